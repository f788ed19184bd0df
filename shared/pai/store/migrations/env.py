"""Alembic's entry: runs migrations on the connection that `pai.store.schema` hands over."""

from typing import Any, Literal

from alembic import context
from sqlmodel import SQLModel

import pai.store.tables  # noqa: F401 - declares the tables
from pai.store.types import Json


def _render(kind: str, value: Any, autogenerate: Any) -> str | Literal[False]:
    if kind == "type" and isinstance(value, Json):
        autogenerate.imports.add("from pai.store.types import Json")
        return "Json()"
    return False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=SQLModel.metadata,
    render_as_batch=True,
    render_item=_render,
    compare_type=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
