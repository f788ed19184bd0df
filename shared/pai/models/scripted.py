"""A model that says what it is told: for tests and benchmarks, of this package and of applications built on it."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from pai.models.chunks import text
from pai.models.errors import ModelError
from pai.models.model import Chunk, FinishReason, ModelRequest, ModelResult
from pai.models.stream import GeneratedStream
from pai.protocol.usage import UsageSummary


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What one call of the model does.

    With `gate` the stream waits for the event before chunk number `gate_at`; with `error` it raises that before chunk
    number `error_at` (after the last one when that is beyond the end). The finish reason is derived from the chunks
    when not given.
    """

    chunks: Sequence[Chunk]
    usage: UsageSummary = field(default_factory=UsageSummary)
    finish_reason: FinishReason | None = None
    suspended: bool = False
    error: BaseException | None = None
    error_at: int = 0
    gate: asyncio.Event | None = None
    gate_at: int = 0


Script = Turn | Sequence[Chunk] | str


def says(*deltas: str) -> Turn:
    """A turn that is one text."""
    return Turn(chunks=text(deltas))


class ScriptedModel:
    """Plays one `Script` per call: the turns given, in order, or what a function of the request answers.

    A string stands for a text, a list of chunks for a turn of those. `delay` passes before each chunk; zero still lets
    other tasks run, None does not. `requests` holds the latest thousand requests.
    """

    def __init__(
        self,
        script: Callable[[ModelRequest], Script] | Sequence[Script],
        *,
        name: str = "scripted",
        provider: str = "scripted",
        delay: timedelta | None = timedelta(0),
    ) -> None:
        self.name = name
        self.provider = provider
        self.requests: deque[ModelRequest] = deque(maxlen=1000)
        self._delay = None if delay is None else delay.total_seconds()
        self._answer = script if callable(script) else _in_order(script)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[GeneratedStream]:
        self.requests.append(request)
        turn = _turn(self._answer(request))
        opened = GeneratedStream(lambda stream: self._play(turn, stream))
        try:
            yield opened
        finally:
            await opened.aclose()

    async def _play(self, turn: Turn, stream: GeneratedStream) -> AsyncGenerator[Chunk, None]:
        stream.usage = turn.usage
        for index, chunk in enumerate(turn.chunks):
            if turn.gate is not None and index == turn.gate_at:
                await turn.gate.wait()
            if turn.error is not None and index == turn.error_at:
                raise turn.error
            if self._delay is not None:
                await asyncio.sleep(self._delay)
            yield chunk
        if turn.gate is not None and turn.gate_at >= len(turn.chunks):
            await turn.gate.wait()
        if turn.error is not None:
            raise turn.error
        reason = turn.finish_reason or _finish_reason(turn.chunks)
        stream.finish(
            ModelResult(
                usage=turn.usage,
                finish_reason=reason,
                suspended=turn.suspended,
                diagnostics={"model": self.name, "provider": self.provider, "finishReason": str(reason)},
            )
        )


def _turn(script: Script) -> Turn:
    if isinstance(script, Turn):
        return script
    return says(script) if isinstance(script, str) else Turn(chunks=script)


def _in_order(scripts: Sequence[Script]) -> Callable[[ModelRequest], Script]:
    left = iter(scripts)

    def answer(request: ModelRequest) -> Script:
        try:
            return next(left)
        except StopIteration:
            raise ModelError("The script has no turn left.") from None

    return answer


def _finish_reason(chunks: Sequence[Chunk]) -> FinishReason:
    called = any(
        chunk["type"] in ("tool-input-available", "tool-input-error") and not chunk.get("providerExecuted")
        for chunk in chunks
    )
    return FinishReason.tool_calls if called else FinishReason.stop
