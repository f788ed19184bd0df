"""What callers bring with a request: parts, metadata, client data and client tools, checked before anything changes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pai.contract import Agent, ClientToolDefinitionSnapshot, Schema, Tool, check_client_tools
from pai.engine.files import files_of
from pai.fold.reserved import attachment
from pai.protocol.errors import NotFound, TooLarge, ValidationFailed
from pai.protocol.ids import new_id
from pai.protocol.json import dumps
from pai.protocol.requests import AttachmentPartInput, FilePartInput, TextPartInput, UserMessageInput
from pai.protocol.text import clean, clean_text
from pai.store.tables import File

if TYPE_CHECKING:
    from pai.engine.runtime import Caller, Runtime

_URL_SCHEMES = ("data:", "https:", "http:")


async def user_parts(runtime: "Runtime", caller: "Caller", message: UserMessageInput) -> list[dict[str, Any]]:
    """The native parts of a user message. Raises ValidationFailed, TooLarge, NotFound (attachments).

    The transaction that stores the message sees to it that its files are still there, and stay.
    """
    attached = [part.file_id for part in message.parts if isinstance(part, AttachmentPartInput)]
    if len(attached) > runtime.settings.max_attachments:
        raise ValidationFailed.at("message.parts", f"more than {runtime.settings.max_attachments} attachments")
    files = await files_of(runtime, caller, attached) if attached else {}
    parts: list[dict[str, Any]] = []
    for index, part in enumerate(message.parts):
        at = f"message.parts.{index}"
        match part:
            case TextPartInput():
                parts.append({"type": "text", "text": clean_text(part.text)})
            case FilePartInput():
                parts.append(clean(part.wire()))
                check_part(parts[-1], at=at)
            case AttachmentPartInput():
                parts.append(_attachment_part(files.get(part.file_id)))
    if not any(part["type"] != "text" or part["text"].strip() for part in parts):
        raise ValidationFailed.at("message.parts", "the message is empty")
    limit = runtime.settings.max_message_bytes
    if len(dumps(parts)) > limit:
        raise TooLarge("The message is too large.", limit_bytes=limit)
    return parts


def check_part(part: Mapping[str, Any], *, at: str) -> None:
    """Raises ValidationFailed for an address that a page must not open, and for what only PAI says of a file."""
    url = part.get("url")
    if isinstance(url, str) and not url.lower().startswith(_URL_SCHEMES):
        raise ValidationFailed.at(f"{at}.url", "only http, https and data URLs")
    if "pai" in (part.get("providerMetadata") or {}):
        raise ValidationFailed.at(f"{at}.providerMetadata.pai", "this key is reserved")
    if part["type"] == "steering-message":
        for index, inner in enumerate(part["parts"]):
            check_part(inner, at=f"{at}.parts.{index}")


def _attachment_part(file: File | None) -> dict[str, Any]:
    if file is None:
        raise NotFound("file")
    return attachment(
        new_id("att"),
        file_id=file.file_id,
        media_type=file.media_type,
        filename=file.filename,
        byte_size=file.byte_size,
        metadata=file.meta,
    )


def checked_metadata(schema: Schema, value: dict[str, Any], *, at: str) -> dict[str, Any]:
    """Metadata as the declared type completes it, with its defaults. Raises ValidationFailed."""
    if "pai" in value:
        raise ValidationFailed.at(f"{at}.pai", "this key is reserved")
    completed: dict[str, Any] = schema.complete(value, at=at)
    return completed


def stored_tool(snapshot: dict[str, Any]) -> Tool:
    """A client tool that came with an earlier request and was checked then."""
    return ClientToolDefinitionSnapshot.read(snapshot).tool(max_schema_bytes=len(dumps(snapshot)))


def check_size(runtime: "Runtime", value: Any, *, at: str) -> None:
    """What is stored in a message for a call has a limit, whoever made it. Raises ValidationFailed."""
    limit = runtime.settings.output_max_bytes
    if len(dumps(value)) > limit:
        raise ValidationFailed.at(at, f"is larger than {limit} bytes")


def checked_context(
    runtime: "Runtime", agent: Agent, *, client_data: Any, client_tools: Sequence[dict[str, Any]] | None
) -> dict[str, Any]:
    """The request context as columns of the run, only what the request carries. Raises ValidationFailed."""
    context: dict[str, Any] = {}
    if client_data is not None:
        context["client_data"] = clean(client_data)
        limit = runtime.settings.max_message_bytes
        if len(dumps(context["client_data"])) > limit:
            raise ValidationFailed.at("clientData", f"is larger than {limit} bytes")
        agent.read_client_data(context["client_data"])
    if client_tools is not None:
        limits = runtime.settings
        check_client_tools(
            agent, client_tools, max_tools=limits.max_client_tools, max_schema_bytes=limits.max_schema_bytes
        )
        context["client_tools"] = list(client_tools)
    return context
