"""When triggers are due, and what they say."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import BaseModel

from pai import Agent, Identity, TriggerContext, TriggerInput
from pai.contract.cron import Cron, Interval, latest
from pai.protocol.errors import ValidationFailed

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("0 9 * * *", "2026-01-31T08:59:59", "2026-01-31T09:00"),
        ("0 9 * * *", "2026-01-31T09:00", "2026-02-01T09:00"),
        ("*/15 * * * *", "2026-01-31T09:01", "2026-01-31T09:15"),
        ("5-59/20 * * * *", "2026-01-31T09:26", "2026-01-31T09:45"),
        ("50/5 * * * *", "2026-01-31T09:01", "2026-01-31T09:50"),
        ("0 0 * * mon-fri", "2026-01-31T12:00", "2026-02-02T00:00"),
        ("0 0 * * 7", "2026-01-31T12:00", "2026-02-01T00:00"),
        ("0 0 1 JAN,jul *", "2026-01-31T12:00", "2026-07-01T00:00"),
        ("0 0 13 * fri", "2026-02-01T00:00", "2026-02-06T00:00"),
        ("0 0 29 2 *", "2026-01-01T00:00", "2028-02-29T00:00"),
        ("0 0 29 2 *", "2096-03-01T00:00", "2104-02-29T00:00"),
        ("59 23 31 12 *", "2026-12-31T23:59", "2027-12-31T23:59"),
        ("@weekly", "2026-01-31T12:00", "2026-02-01T00:00"),
        ("@hourly", "2026-01-31T12:00:00.5", "2026-01-31T13:00"),
    ],
)
def test_a_cron_expression_comes_next_at(expression: str, after: str, expected: str) -> None:
    assert Cron(expression, UTC).next_after(at(after)) == at(expected)


@pytest.mark.parametrize(
    "expression",
    ["", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "*/0 * * * *",
     "5-1 * * * *", "a * * * *", "1,,2 * * * *", "*-5 * * * *", "-1 * * * *", "0 0 30 2 *", "@reboot", "1.5 * * * *",
     "٣ * * * *", "*/٣ * * * *", "1-٣ * * * *"],
)  # fmt: skip
def test_other_expressions_are_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Cron(expression, UTC)


def times(cron: Cron, *, after: str, count: int) -> list[str]:
    moment, found = at(after), []
    for _ in range(count):
        moment = cron.next_after(moment)
        found.append(moment.strftime("%dT%H:%M"))
    return found


def test_a_time_is_the_wall_clocks() -> None:
    nine = Cron("0 9 * * *", BERLIN)
    assert times(nine, after="2026-03-28T00:00", count=3) == ["28T08:00", "29T07:00", "30T07:00"]


def test_a_time_that_is_skipped_fires_when_the_clock_jumps() -> None:
    assert times(Cron("30 2 * * *", BERLIN), after="2026-03-28T00:00", count=3) == ["28T01:30", "29T01:30", "30T00:30"]


def test_a_time_that_happens_twice_fires_once() -> None:
    assert times(Cron("30 2 * * *", BERLIN), after="2026-10-24T12:00", count=2) == ["25T00:30", "26T01:30"]


def test_every_half_hour_goes_on_through_the_doubled_hour() -> None:
    found = times(Cron("*/30 * * * *", BERLIN), after="2026-10-25T00:00", count=4)
    assert found == ["25T00:30", "25T01:00", "25T01:30", "25T02:00"]


def test_where_clocks_fall_back_over_midnight_the_evening_comes_again() -> None:
    half_past = Cron("30 * * * *", ZoneInfo("America/St_Johns"))
    assert times(half_past, after="2010-11-07T02:30:30", count=2) == ["07T03:00", "07T04:00"]


def test_a_schedule_only_goes_forward() -> None:
    cron = Cron("*/20 1-3 * * *", BERLIN)
    moment = at("2026-03-01T00:00")
    for _ in range(500):
        following = cron.next_after(moment)
        assert following > moment
        moment = following


def test_an_interval_counts_from_the_epoch_so_that_all_processes_agree() -> None:
    interval = Interval(timedelta(minutes=7))
    first = interval.next_after(at("2026-01-31T09:00"))
    assert (first - datetime(1970, 1, 1, tzinfo=UTC)) % timedelta(minutes=7) == timedelta(0)
    assert interval.next_after(first) - first == timedelta(minutes=7)
    assert interval.next_after(first - timedelta(microseconds=1)) == first


class Report(BaseModel):
    topic: str


def context() -> TriggerContext:
    return TriggerContext(trigger="t", agent="main", identity=Identity("a"), slot=at("2026-01-31T09:00"))


async def test_a_trigger_gives_an_input_a_text_or_nothing() -> None:
    agent = Agent("main", model="demo")

    @agent.trigger("report", on_call=True)
    async def report(ctx: TriggerContext, report: Report) -> TriggerInput:
        return TriggerInput(text=f"{report.topic} at {ctx.slot:%H}", queue="steer")

    @agent.trigger("texts", interval=timedelta(hours=1), owner=Identity("ada", tenant="acme"))
    def texts() -> str:
        return "hello"

    @agent.trigger("nothing", cron="@daily", owner="ada")
    async def nothing(ctx: TriggerContext, limit: int = 3) -> None:
        assert limit == 3

    @agent.trigger("wrong", on_call=True)
    async def wrong() -> int:
        return 3

    triggers = agent.triggers
    assert await triggers["report"].call(context(), {"topic": "sales"}) == TriggerInput(
        text="sales at 09", queue="steer"
    )
    assert await triggers["texts"].call(context()) == TriggerInput(text="hello")
    assert await triggers["nothing"].call(context(), None) is None
    assert triggers["texts"].owner == Identity("ada", tenant="acme")
    assert triggers["nothing"].owner == Identity("ada")
    assert triggers["report"].next_after(at("2026-01-31T09:00")) is None
    assert triggers["texts"].next_after(at("2026-01-31T09:10")) == at("2026-01-31T10:00")
    for name, value in (("report", {}), ("report", None), ("texts", {"topic": "sales"}), ("wrong", None)):
        with pytest.raises(ValidationFailed):
            await triggers[name].call(context(), value)


@pytest.mark.parametrize(
    ("schedule", "since", "until", "expected"),
    [
        (Interval(timedelta(seconds=1)), "2020-01-01T00:00", "2026-01-31T09:00:00.5", "2026-01-31T09:00"),
        (Interval(timedelta(seconds=1)), "2026-01-31T09:00", "2026-01-31T09:00", "2026-01-31T09:00"),
        (Interval(timedelta(hours=1)), "2026-01-31T09:00", "2026-01-31T09:59:59", "2026-01-31T09:00"),
        (Interval(timedelta(hours=1)), "2026-01-31T09:00", "2026-01-31T10:00", "2026-01-31T10:00"),
        (Cron("0 9 * * mon-fri", UTC), "2026-01-05T09:00", "2026-02-01T20:00", "2026-01-30T09:00"),
        (Cron("* * * 1 *", UTC), "2020-01-01T00:00", "2026-12-31T00:00", "2026-01-31T23:59"),
        (Cron("0 0 29 2 *", UTC), "1996-02-29T00:00", "2026-01-01T00:00", "2024-02-29T00:00"),
        (Cron("30 2 * * *", BERLIN), "2026-03-01T01:30", "2026-03-29T12:00", "2026-03-29T01:30"),
        (Cron("*/30 * * * *", BERLIN), "2026-10-24T00:00", "2026-10-25T01:20", "2026-10-25T01:00"),
    ],
)
def test_of_the_times_that_were_missed_the_latest_is_found(
    schedule: Cron | Interval, since: str, until: str, expected: str
) -> None:
    assert latest(schedule, at(since), at(until)) == at(expected)


def test_a_trigger_input_has_text_or_parts() -> None:
    parts = [{"type": "text", "text": "a"}]
    assert TriggerInput(text="a").message_parts() == TriggerInput(parts=parts).message_parts() == parts
    wrong: list[dict[str, Any]] = [{}, {"text": "a", "parts": parts}, {"parts": []}]
    for options in wrong:
        with pytest.raises(ValidationFailed):
            TriggerInput(**options).message_parts()
