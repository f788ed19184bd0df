"""PAI: a backend for durable agent conversations. What an application imports to declare its agents.

Each name is imported when it is first asked for: `paictl`, whose package this is, must be there before that.
"""

TYPE_CHECKING = False  # without `typing`, which takes longer to import than the rest

if TYPE_CHECKING:
    from pai.contract.agent import Agent
    from pai.contract.child_thread import ChildResult, ChildThread
    from pai.contract.command import CommandContext
    from pai.contract.context import ToolContext
    from pai.contract.errors import OutcomeUnknown, ThreadsTooDeep, ToolError
    from pai.contract.registry import Registry
    from pai.contract.rehearsal import Rehearsal
    from pai.contract.run_context import ModelTask, PendingAction, RunContext, RunOutcome, StepPreparation
    from pai.contract.suspension import Suspension
    from pai.contract.tool import ToolData
    from pai.contract.trigger import TriggerContext, TriggerInput
    from pai.protocol.errors import DeclarationError, PaiError
    from pai.protocol.identity import Identity

_MODULES = {
    "Agent": "pai.contract.agent",
    "ChildResult": "pai.contract.child_thread",
    "ChildThread": "pai.contract.child_thread",
    "CommandContext": "pai.contract.command",
    "DeclarationError": "pai.protocol.errors",
    "Identity": "pai.protocol.identity",
    "ModelTask": "pai.contract.run_context",
    "OutcomeUnknown": "pai.contract.errors",
    "PaiError": "pai.protocol.errors",
    "PendingAction": "pai.contract.run_context",
    "Registry": "pai.contract.registry",
    "Rehearsal": "pai.contract.rehearsal",
    "RunContext": "pai.contract.run_context",
    "RunOutcome": "pai.contract.run_context",
    "StepPreparation": "pai.contract.run_context",
    "Suspension": "pai.contract.suspension",
    "ThreadsTooDeep": "pai.contract.errors",
    "ToolContext": "pai.contract.context",
    "ToolData": "pai.contract.tool",
    "ToolError": "pai.contract.errors",
    "TriggerContext": "pai.contract.trigger",
    "TriggerInput": "pai.contract.trigger",
}

__all__ = [
    "Agent",
    "ChildResult",
    "ChildThread",
    "CommandContext",
    "DeclarationError",
    "Identity",
    "ModelTask",
    "OutcomeUnknown",
    "PaiError",
    "PendingAction",
    "Registry",
    "Rehearsal",
    "RunContext",
    "RunOutcome",
    "StepPreparation",
    "Suspension",
    "ThreadsTooDeep",
    "ToolContext",
    "ToolData",
    "ToolError",
    "TriggerContext",
    "TriggerInput",
]


if not TYPE_CHECKING:  # a checker shall know a wrong name

    def __getattr__(name: str) -> object:
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(module), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_MODULES})
