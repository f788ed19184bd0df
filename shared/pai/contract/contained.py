"""What an application's code may raise: whatever it is, it ends a call and never the process.

`SystemExit`, `KeyboardInterrupt` and their like would stop the event loop that all steps of a worker share; a
`StopIteration` is never delivered from a thread.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Suspended(BaseException):
    """Leaves the tool when a suspension has no answer yet. A BaseException, so that `except Exception` lets it pass."""


class Escaped(Exception):
    """An application's function raised something that is no Exception; that is its `__cause__`."""


@contextmanager
def contained(*, in_thread: bool = False) -> Iterator[None]:
    """Around an application's code. Exceptions pass, as do Suspended and, outside of threads, what ends the running
    task from without; raises Escaped for anything else.

    A group in which nothing is left but Suspended is that: a suspension in an `asyncio.TaskGroup`.
    """
    try:
        yield
    except Suspended:
        raise
    except (asyncio.CancelledError, GeneratorExit) as error:
        if not in_thread and _is_ending(error):
            raise
        raise _escaped(error) from error
    except StopIteration as error:
        raise _escaped(error) from error
    except Exception:
        raise
    except BaseExceptionGroup as group:
        if group.split(Suspended)[1] is None:
            raise Suspended from None
        raise _escaped(group) from group
    except BaseException as error:
        raise _escaped(error) from error


def in_thread(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Calls an application's function, for whoever hands it to a thread."""
    with contained(in_thread=True):
        return function(*args, **kwargs)


def _escaped(error: BaseException) -> Escaped:
    return Escaped(f"{type(error).__name__} was raised, which is no Exception")


def _is_ending(error: BaseException) -> bool:
    """Whether somebody cancelled the running task, or closes a coroutine that does not run any more."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return True
    return task is None or (isinstance(error, asyncio.CancelledError) and task.cancelling() > 0)
