"""The stream of models that produce their chunks in a generator of this process."""

from collections.abc import AsyncGenerator, Callable
from typing import Self

from pai.models.model import Chunk, ModelResult
from pai.protocol.usage import UsageSummary


class GeneratedStream:
    """A ModelStream over a generator, which is handed the stream, sets `usage` or `count`, and calls `finish` last."""

    def __init__(self, generate: "Callable[[GeneratedStream], AsyncGenerator[Chunk, None]]") -> None:
        self._result: ModelResult | None = None
        self._count: Callable[[], UsageSummary] = UsageSummary
        self._chunks = generate(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        return await anext(self._chunks)

    @property
    def usage(self) -> UsageSummary:
        return self._count()

    @usage.setter
    def usage(self, usage: UsageSummary) -> None:
        self._count = lambda: usage

    def count(self, read: Callable[[], UsageSummary]) -> None:
        """Read the usage with this function from now on, only when somebody asks."""
        self._count = read

    @property
    def result(self) -> ModelResult:
        if self._result is None:
            raise RuntimeError("The model's stream has not ended.")
        return self._result

    def finish(self, result: ModelResult) -> None:
        self.usage = result.usage
        self._result = result

    async def aclose(self) -> None:
        await self._chunks.aclose()
