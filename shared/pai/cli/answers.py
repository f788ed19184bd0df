"""What a run waits for, as a question at the keyboard, and what is typed, as the JSON that answers it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pai.cli.screen import shortened
from pai.cli.turn import told
from pai.client import PaiMessage, PendingActionView, Thread, is_pai_tool_part
from pai.protocol.json import loads

_YES, _NO = frozenset({"y", "yes"}), frozenset({"n", "no"})
_APPROVED, _COMMENT = "approved", "comment"
_WIDTH, _DEPTH = 100, 4


class NoAnswer(ValueError):
    """What was typed cannot be what was asked for; the message says what can."""


@dataclass(frozen=True, slots=True)
class Question:
    """`schema` is the JSON Schema of the answer, as the agent's manifest has it; empty when it is not known.

    `description`: of the tool. `external`: another system is to answer; who sees the question may do it as well.
    """

    action: PendingActionView
    schema: Mapping[str, Any]
    description: str = ""
    external: bool = False

    @property
    def approval(self) -> bool:
        """Whether yes or no is an answer."""
        return self._property(_APPROVED).get("type") == "boolean"

    @property
    def prompt(self) -> str:
        if self.approval:
            return f"{self.action.name}? [y/n] "
        return f"{self.action.name}{_hint(self.schema)}: "

    @property
    def lines(self) -> Iterator[str]:
        """What is asked, and what an answer looks like. The input of a suspension is shown with its call."""
        if self.action.origin.suspend_name is None:
            who = "another system, or from you" if self.external else "you"
            about = f" {shortened(self.description, _WIDTH)}" if self.description else ""
            yield f"{self.action.origin.tool_name} waits for its output from {who}: {told(self.action.input)}{about}"
        if self.approval:
            yield "  answer: y or n; a comment may follow"
        elif self.schema:
            yield f"  answer: {told(shape(self.schema))}"
        else:
            yield "  answer: any JSON"

    def answer(self, typed: str) -> Any:
        """The payload. Raises NoAnswer."""
        if self.approval:
            return self._decision(typed)
        field = self._only_text()
        try:
            given = loads(typed)
        except ValueError:
            given = typed
            if field is None and not self._text:
                raise NoAnswer(f"That is no JSON{_hint(self.schema)}.") from None
        if self._text:
            return given if isinstance(given, str) else typed
        return given if field is None or isinstance(given, dict) else {field: typed}

    def _decision(self, typed: str) -> Any:
        word, _, comment = typed.strip().partition(" ")
        if word.lower() not in _YES | _NO:
            try:
                return loads(typed)
            except ValueError:
                raise NoAnswer("Answer y or n; a comment may follow.") from None
        decision: dict[str, Any] = {_APPROVED: word.lower() in _YES}
        if comment.strip() and self._property(_COMMENT):
            decision[_COMMENT] = comment.strip()
        return decision

    @property
    def _text(self) -> bool:
        return self.schema.get("type") == "string"

    def _property(self, name: str) -> Mapping[str, Any]:
        found = (self.schema.get("properties") or {}).get(name)
        return found if isinstance(found, Mapping) else {}

    def _only_text(self) -> str | None:
        """The one required field, when it is a text: nobody wants to type braces around a file's name."""
        required = self.schema.get("required") or []
        return required[0] if len(required) == 1 and self._property(required[0]).get("type") == "string" else None


def questions(thread: Thread, messages: list[PaiMessage], manifest: Mapping[str, Any]) -> Iterator[Question]:
    """What the parts of these messages wait for."""
    tools = {tool["name"]: tool for tool in manifest.get("tools", ())}
    for message in messages:
        for part in message.parts:
            action = thread.get_pending_action(message, part) if is_pai_tool_part(part) else None
            if action is None:
                continue
            tool = tools.get(action.origin.tool_name, {})
            if action.origin.suspend_name is None:
                external, description = tool.get("kind") == "external", tool.get("description") or ""
                yield Question(action, tool.get("outputSchema") or {}, description=description, external=external)
            else:
                declared = {each["name"]: each["resumeSchema"] for each in tool.get("suspensions", ())}
                yield Question(action, declared.get(action.origin.suspend_name) or {})


def shape(schema: Mapping[str, Any]) -> Any:
    """A JSON Schema as a small example: `{"title": "string", "tags?": ["string"]}`; `?` marks what may be left out."""
    return _shape(schema, schema.get("$defs") or {}, 0)


def _shape(schema: Any, named: Mapping[str, Any], depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _DEPTH:
        return "any"
    if (reference := schema.get("$ref")) is not None:
        return _shape(named.get(str(reference).rpartition("/")[2]), named, depth + 1)
    if isinstance(fields := schema.get("properties"), Mapping):
        required = schema.get("required") or ()
        return {
            name if name in required else f"{name}?": _shape(field, named, depth + 1) for name, field in fields.items()
        }
    if "items" in schema:
        return [_shape(schema["items"], named, depth + 1)]
    if "enum" in schema:
        return " | ".join(map(told, schema["enum"]))
    if "const" in schema:
        return told(schema["const"])
    if isinstance(choices := schema.get("anyOf"), Sequence):
        # `null` only says that there may be none.
        shapes = [_shape(choice, named, depth + 1) for choice in choices if choice != {"type": "null"}]
        return shapes[0] if len(shapes) == 1 else " | ".join(map(told, shapes)) or "any"
    return schema.get("type", "any")


def _hint(schema: Mapping[str, Any]) -> str:
    return f" ({told(shape(schema))})" if isinstance(schema.get("properties"), Mapping) else ""
