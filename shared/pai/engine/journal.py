"""The journal of a tool call: what it has done through its context, so that a re-entry does nothing twice.

Every effect has an ordinal, in the order in which the tool asks for them. The highest one with a row is the call's
high-water mark: below it effects are not done again.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, exists, select, update

from pai.engine.runtime import Runtime
from pai.engine.transaction import StepLost
from pai.store.tables import (
    EffectKind,
    EffectState,
    Journal,
    JournalTable,
    Step,
    StepState,
    StepTable,
    table_of,
)

_JOURNAL, _STEP = table_of(JournalTable), table_of(StepTable)

_HELD = exists().where(
    _STEP.c.step_id == bindparam("of_step"),
    _STEP.c.attempt == bindparam("of_attempt"),
    _STEP.c.state == StepState.running.value,
)
_START = (
    _JOURNAL.insert()
    .from_select(
        ["step_id", "ordinal", "version", "kind", "name", "state", "value"],
        select(
            bindparam("step_id"),
            bindparam("ordinal"),
            bindparam("version"),
            bindparam("kind"),
            bindparam("name"),
            bindparam("state"),
            bindparam("value", type_=_JOURNAL.c.value.type),
        ).where(_HELD),
    )
    .returning(_JOURNAL.c.ordinal)
)
_FINISH = (
    update(_JOURNAL)
    .where(_JOURNAL.c.step_id == bindparam("of_step"), _JOURNAL.c.ordinal == bindparam("of_ordinal"), _HELD)
    .values(state=bindparam("new_state"), value=bindparam("new_value"))
)


@dataclass(slots=True)
class Effects:
    """The journal of one call as it was when the call was entered."""

    rows: dict[int, Journal]

    @property
    def high_water(self) -> int:
        return max(self.rows, default=0)


async def start_effect(
    runtime: Runtime,
    step: Step,
    *,
    ordinal: int,
    name: str,
    kind: EffectKind = EffectKind.step,
    value: Any = None,
) -> None:
    """Writes that an effect is about to be done. Raises StepLost."""
    values = {
        "step_id": step.step_id,
        "ordinal": ordinal,
        "version": step.version,
        "kind": kind.value,
        "name": name,
        "state": EffectState.started.value,
        "value": value,
    }
    async with runtime.store.autocommit() as connection:
        if (await connection.execute(_START, {**values, **_held(step)})).first() is None:
            raise StepLost(step.step_id)


async def finish_effect(runtime: Runtime, step: Step, *, ordinal: int, value: Any) -> None:
    """Writes the result of an effect. Raises StepLost."""
    values = {"of_ordinal": ordinal, "new_state": EffectState.done.value, "new_value": value}
    async with runtime.store.autocommit() as connection:
        if (await connection.execute(_FINISH, {**values, **_held(step)})).rowcount != 1:
            raise StepLost(step.step_id)


def _held(step: Step) -> dict[str, Any]:
    return {"of_step": step.step_id, "of_attempt": step.attempt}


def shown(step: Step, ordinal: int) -> Journal:
    """The row that says: everything up to this effect was shown."""
    return Journal(
        step_id=step.step_id,
        ordinal=ordinal,
        version=step.version,
        kind=EffectKind.shown,
        name="",
        state=EffectState.done,
    )
