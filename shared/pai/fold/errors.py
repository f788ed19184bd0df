"""Why a chunk could not be applied."""

from typing import Any

from pai.protocol.errors import PaiError


class FoldError(PaiError):
    """A chunk that does not fit what came before it. The message is as it was.

    `chunk_type` and `chunk_id` name what was looked for; `name` is the name that the AI SDK gives the error.
    """

    code = "fold"
    title = "The chunk does not fit the message"
    name = "AI_UIMessageStreamError"

    def __init__(self, message: str, *, chunk_type: str | None = None, chunk_id: str | None = None) -> None:
        super().__init__(message)
        self.chunk_type = chunk_type
        self.chunk_id = chunk_id
        self.message = message

    def wire(self) -> dict[str, Any]:
        """`{name, chunkType?, chunkId?, message}`, the form that the test vectors have."""
        keys = {"chunkType": self.chunk_type, "chunkId": self.chunk_id}
        return {
            "name": self.name,
            **{key: value for key, value in keys.items() if value is not None},
            "message": self.message,
        }


class MetadataError(FoldError):
    """Metadata that is no object cannot be merged into."""

    name = "TypeError"


class Malformed(FoldError):
    """A chunk without what its type needs: it did not pass `validate_chunk`."""

    name = "TypeError"
