"""What a caller may say, and the request and the optimistic message that it becomes."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar

from pydantic import ValidationError

from pai.client.binding import Binding, to_json
from pai.client.facts import PendingFacts
from pai.client.files import UploadedFile
from pai.client.messages import PaiPendingInputMessage, PendingMetadata
from pai.client.part_types import view_parts
from pai.client.parts import Json
from pai.protocol.errors import FieldError, ValidationFailed
from pai.protocol.requests import (
    AttachmentPartInput,
    FilePartInput,
    SendQueueOptions,
    TextPartInput,
    UserMessageInput,
)
from pai.protocol.state import QueueMode
from pai.protocol.times import iso, now_ms
from pai.protocol.wire import WireModel

SendAttachmentInput = UploadedFile | AttachmentPartInput | FilePartInput | str | Mapping[str, Any]
"""An uploaded file, a part, or the id of a file."""

ClientSendInput = str | UserMessageInput | Mapping[str, Any]
"""A text, a structured message, or `{"text", "attachments", "metadata"}`."""


class _QueueKeys(TypedDict):
    mode: QueueMode


class SendQueueKeys(_QueueKeys, total=False):
    """`SendQueueOptions` as a dict."""

    merge: Literal["none", "last"]


SendQueue = QueueMode | SendQueueOptions | SendQueueKeys
"""How an input waits when the thread is busy: `"queue"` for the end of the run, `"steer"` for its next step.

The long forms also say whether it joins the newest input that waits: `{"mode": "steer", "merge": "last"}`.
"""

R = TypeVar("R", bound=WireModel)
_UNKNOWN_MEDIA_TYPE = "application/octet-stream"


def request(kind: type[R], /, **fields: Any) -> R:
    """A request of that kind. Raises ValidationFailed."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise ValidationFailed.of(error) from None


def queue_options(given: SendQueue | None) -> SendQueueOptions | None:
    """Any of the forms. Raises ValidationFailed."""
    if given is None or isinstance(given, SendQueueOptions):
        return given
    keys: Any = {"mode": given} if isinstance(given, str) else given
    try:
        return SendQueueOptions.model_validate(keys)
    except ValidationError as error:
        failed = ValidationFailed.of(error).errors
        raise ValidationFailed(
            errors=[FieldError(path=f"queue.{each.path}".rstrip("."), message=each.message) for each in failed]
        ) from None


def user_message(
    given: ClientSendInput | None = None,
    *,
    text: str | None = None,
    attachments: Sequence[SendAttachmentInput] = (),
    metadata: Any = None,
) -> UserMessageInput:
    """Any of the three forms as a structured message. Raises ValidationFailed."""
    if given is not None and (text is not None or attachments):
        raise ValidationFailed.at("message", "give either a message, or text and attachments")
    if isinstance(given, UserMessageInput):
        parts: Any = given.parts
        metadata = given.metadata if metadata is None else metadata
    elif isinstance(given, Mapping) and "parts" in given:
        parts = given["parts"]
        metadata = given.get("metadata") if metadata is None else metadata
    elif isinstance(given, Mapping):
        return _shorthand(given, metadata)
    else:
        said = given if given is not None else text
        if said is None and not attachments:
            raise ValidationFailed.at("message", "give a message, a text or attachments")
        parts = [{"type": "text", "text": said}] if said or not attachments else []
        parts += [_attachment(attachment) for attachment in attachments]
    return request(UserMessageInput, parts=_plain(parts), metadata=_metadata(metadata))


def optimistic(
    message_id: str, message: UserMessageInput, attachments: Sequence[SendAttachmentInput], binding: Binding
) -> PaiPendingInputMessage:
    """What is shown until the server has admitted the input; uploaded files among `attachments` say what they are."""
    uploaded = {file.file_id: file for file in attachments if isinstance(file, UploadedFile)}
    shown: list[Json] = []
    for part in message.parts:
        if isinstance(part, AttachmentPartInput):
            file = uploaded.get(part.file_id) or UploadedFile(file_id=part.file_id, media_type=_UNKNOWN_MEDIA_TYPE)
            shown.append({"type": "attachment", "id": part.file_id, **file.wire()})
        else:
            shown.append(part.wire())
    now = iso(now_ms())
    facts = PendingFacts(created_at=now, updated_at=now)
    return PaiPendingInputMessage(
        message_id, view_parts(shown, binding, ()), PendingMetadata(dict(message.metadata or {}), facts)
    )


def _shorthand(given: Mapping[str, Any], metadata: Any) -> UserMessageInput:
    unknown = set(given) - {"text", "attachments", "metadata"}
    if unknown:
        raise ValidationFailed.at(f"message.{min(unknown)}", "is no part of a message")
    return user_message(
        text=given.get("text") or "",
        attachments=given.get("attachments") or (),
        metadata=given.get("metadata") if metadata is None else metadata,
    )


def _attachment(given: SendAttachmentInput) -> Any:
    match given:
        case str():
            return {"type": "attachment", "fileId": given}
        case UploadedFile():
            return {"type": "attachment", "fileId": given.file_id}
        case Mapping() if "type" not in given:
            file_id = given.get("fileId", given.get("file_id"))
            return {"type": "attachment", "fileId": file_id}
        case _:
            return given


def _plain(parts: Any) -> Any:
    """Clean JSON; parts that are models already become their wire form."""
    typed = (TextPartInput, FilePartInput, AttachmentPartInput)
    plain = [part.wire() if isinstance(part, typed) else part for part in parts]
    return to_json(plain, at="message.parts")


def _metadata(metadata: Any) -> Any:
    return None if metadata is None else to_json(metadata, at="message.metadata")
