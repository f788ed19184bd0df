"""Which class shows which part. What did not change since the last look is shared, not made again."""

from collections.abc import Sequence

from pai.client.binding import Binding
from pai.client.parts import (
    CustomPart,
    FilePart,
    Json,
    PaiAttachmentPart,
    PaiDataPart,
    PaiReasoningPart,
    Part,
    ReasoningFilePart,
    SourceDocumentPart,
    SourceUrlPart,
    SteeringMessagePart,
    StepStartPart,
    TextPart,
)
from pai.client.tool_parts import PaiDynamicToolPart, PaiStaticToolPart
from pai.fold.reserved import is_reserved

PaiMessagePart = (
    TextPart
    | PaiReasoningPart
    | SourceUrlPart
    | SourceDocumentPart
    | FilePart
    | ReasoningFilePart
    | CustomPart
    | SteeringMessagePart
    | StepStartPart
    | PaiStaticToolPart
    | PaiDynamicToolPart
    | PaiAttachmentPart
    | PaiDataPart
    | Part
)
"""Everything in `message.parts`: narrow it with `isinstance`, `match`, or the guards."""

_TYPES: dict[str, type[Part]] = {
    "text": TextPart,
    "reasoning": PaiReasoningPart,
    "source-url": SourceUrlPart,
    "source-document": SourceDocumentPart,
    "file": FilePart,
    "reasoning-file": ReasoningFilePart,
    "custom": CustomPart,
    "steering-message": SteeringMessagePart,
    "step-start": StepStartPart,
    "attachment": PaiAttachmentPart,
}


def view_parts(projected: Sequence[Json], binding: Binding, previous: Sequence[Part]) -> tuple[Part, ...]:
    """Parts of an older state are used again where they show the same JSON object."""
    shared = len(previous)
    return tuple(
        previous[index] if index < shared and previous[index].raw is part else view_part(part, binding)
        for index, part in enumerate(projected)
    )


def view_part(raw: Json, binding: Binding) -> Part:
    kind: str = raw["type"]
    known = _TYPES.get(kind)
    if known is not None:
        return known(raw, binding)
    if kind == "dynamic-tool":
        return PaiDynamicToolPart(raw, binding.erased())
    if kind.startswith("tool-"):
        return PaiStaticToolPart(raw, binding)
    return PaiDataPart(raw, binding) if is_application_data(kind) else Part(raw, binding)


def is_application_data(kind: str) -> bool:
    """Whether a part or chunk of that type is the application's own data."""
    return kind.startswith("data-") and not is_reserved(kind)
