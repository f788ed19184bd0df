"""Blocking work in threads, for files and for clients that block."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from concurrent.futures import Executor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(executor: Executor | None, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns when the thread has, also to a caller who was cancelled: what it uses may be closed then."""
    call = partial(function, *args, **kwargs)
    work = asyncio.get_running_loop().run_in_executor(executor, call)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # looked at, so that nobody is told of it
        raise


async def blocks_of(pieces: AsyncIterable[bytes], size: int) -> AsyncGenerator[bytes, None]:
    """The same bytes in blocks of at least `size`, the last one shorter."""
    gathered: list[bytes] = []
    length = 0
    async for piece in pieces:
        gathered.append(piece)
        length += len(piece)
        if length >= size:
            block = b"".join(gathered)
            gathered.clear()
            length = 0
            yield block
            del block
    if length:
        yield b"".join(gathered)
