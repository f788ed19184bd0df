"""`paictl db`: the schema of the database."""

import argparse

from pai.cli.environment import settings_of
from pai.store.schema import current_revision, head_revision
from pai.store.schema import upgrade as upgrade_schema


def upgrade(options: argparse.Namespace) -> int:
    """Migrate to the newest schema; safe to run from several processes at once."""
    settings = settings_of(options)
    before = current_revision(settings.database_url)
    after = upgrade_schema(settings.database_url)
    told = "already" if before == after else f"now; it was {before or 'empty'}"
    print(f"The schema is {after} {told}.")
    return 0


def current(options: argparse.Namespace) -> int:
    """Exit code 1 when the schema is not the one that this version needs."""
    settings = settings_of(options)
    found, needed = current_revision(settings.database_url), head_revision()
    print(f"The schema is {found or 'empty'}; this version needs {needed}.")
    return 0 if found == needed else 1
