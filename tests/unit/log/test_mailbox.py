"""The mailbox of one watcher."""

import asyncio
from datetime import timedelta

from pai.log.mailbox import Mailbox


def mailbox(**bounds: int) -> "Mailbox[str]":
    return Mailbox(lambda: "overflow", **bounds)


async def test_all_that_waits_is_taken_at_once_and_in_order() -> None:
    box = mailbox()
    for item in "abc":
        box.put(item)
    await box.wait()
    assert (box.take(), box.take()) == (["a", "b", "c"], [])


async def test_a_reader_wakes_once_for_everything_that_was_put() -> None:
    box, taken = mailbox(), []

    async def read() -> None:
        await box.wait()
        taken.append(box.take())

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    for item in "abc":
        box.put(item)
    await reader
    assert taken == [["a", "b", "c"]]


async def test_beyond_its_bounds_everything_is_replaced_by_the_overflow() -> None:
    box = mailbox(max_count=3)
    for item in "abcd":
        box.put(item)
    box.put("e")
    assert box.take() == ["overflow", "e"]
    box = mailbox(max_bytes=10)
    box.put("a", size=6)
    box.put("b", size=6)
    assert box.take() == ["overflow"]


async def test_one_item_is_taken_however_large() -> None:
    box = mailbox(max_count=3, max_bytes=10)
    box.put("a", count=100, size=1_000)
    assert box.take() == ["a"]


async def test_a_wait_ends_at_its_timeout_and_the_mailbox_goes_on() -> None:
    box = mailbox()
    await box.wait(timeout=timedelta(milliseconds=5))
    assert box.take() == []
    box.put("a")
    await box.wait(timeout=timedelta(0))
    assert box.take() == ["a"]


async def test_after_closing_what_waits_can_be_taken_and_nothing_comes() -> None:
    box = mailbox()
    box.put("a")
    box.close()
    box.put("b")
    assert not box.closed
    await box.wait()
    assert box.take() == ["a"]
    await box.wait()
    assert box.closed


async def test_closing_wakes_the_reader() -> None:
    box = mailbox()
    reader = asyncio.create_task(box.wait())
    await asyncio.sleep(0)
    box.close()
    await reader
