"""Cron expressions and intervals: when a trigger is due next."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_SHORTHANDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_ITEM = re.compile(r"(\*|[a-z]{3}|\d{1,2})(?:-([a-z]{3}|\d{1,2}))?(?:/(\d{1,2}))?\Z", re.ASCII)
_HORIZON_DAYS = 366 * 8 + 2  # the longest wait there is: 29 February over a year such as 2100


@dataclass(frozen=True, slots=True)
class Cron:
    """`minute hour day month weekday`, with lists, ranges, steps, names (`mon`, `jan`) and `@daily` and the like.

    As in cron, when both days are restricted either one is enough. Wall-clock times are those of `timezone`: one that a
    change to summer time skips fires when the clock jumps, one that happens twice fires once, at the first; with `*`
    as hour it fires in both of the doubled hours.

    Raises ValueError for an expression that says nothing, or never comes.
    """

    expression: str
    timezone: tzinfo
    _minutes: tuple[int, ...] = field(init=False, repr=False)
    _hours: tuple[int, ...] = field(init=False, repr=False)
    _days: frozenset[int] = field(init=False, repr=False)
    _months: frozenset[int] = field(init=False, repr=False)
    _weekdays: frozenset[int] = field(init=False, repr=False)
    _either_day: bool = field(init=False, repr=False)
    _folds: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        text = self.expression.strip().lower()
        fields = _SHORTHANDS.get(text, text).split()
        if len(fields) != 5:
            raise ValueError(f"{self.expression!r} has {len(fields)} fields; write `minute hour day month weekday`")
        minute, hour, day, month, weekday = fields
        set_field = object.__setattr__
        set_field(self, "_minutes", tuple(sorted(_read(minute, low=0, high=59))))
        set_field(self, "_hours", tuple(sorted(_read(hour, low=0, high=23))))
        set_field(self, "_days", frozenset(_read(day, low=1, high=31)))
        set_field(self, "_months", frozenset(_read(month, low=1, high=12, names=_MONTHS, first=1)))
        set_field(self, "_weekdays", frozenset(value % 7 for value in _read(weekday, low=0, high=7, names=_DAYS)))
        set_field(self, "_either_day", not day.startswith("*") and not weekday.startswith("*"))
        set_field(self, "_folds", (0, 1) if hour.startswith("*") else (0,))
        self.next_after(datetime(2024, 1, 1, tzinfo=UTC))

    def next_after(self, moment: datetime) -> datetime:
        """The first time strictly after `moment` (aware), in UTC."""
        local = moment.astimezone(self.timezone)
        # One day back: where clocks fall back over midnight, a part of the day before comes again.
        first = local.date() - timedelta(days=1)
        for offset in range(_HORIZON_DAYS):
            day = first + timedelta(days=offset)
            if self._matches(day):
                for candidate in self._times(day):
                    if candidate > moment:
                        return candidate
        raise ValueError(f"{self.expression!r} never comes")

    def _matches(self, day: date) -> bool:
        if day.month not in self._months:
            return False
        in_month, in_week = day.day in self._days, day.isoweekday() % 7 in self._weekdays
        return in_month or in_week if self._either_day else in_month and in_week

    def _times(self, day: date) -> Iterator[datetime]:
        """In order of UTC: a skipped wall-clock time maps to after the jump, possibly past a later regular one."""
        moments = {
            datetime.combine(day, time(hour, minute, fold=fold), tzinfo=self.timezone).astimezone(UTC)
            for hour in self._hours
            for minute in self._minutes
            for fold in self._folds
        }
        return iter(sorted(moments))


@dataclass(frozen=True, slots=True)
class Interval:
    """Every `period`, counted from the epoch, so that every process computes the same times. At least one second."""

    period: timedelta

    def __post_init__(self) -> None:
        if self.period < timedelta(seconds=1):
            raise ValueError("an interval is at least one second")

    def next_after(self, moment: datetime) -> datetime:
        """The first time strictly after `moment` (aware), in UTC."""
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        return epoch + ((moment - epoch) // self.period + 1) * self.period


def latest(schedule: Cron | Interval, since: datetime, until: datetime) -> datetime:
    """The last time that is not after `until`; `since` when there is none after that."""
    while until - since >= timedelta(seconds=1):  # two times are never closer
        middle = since + (until - since) / 2
        following = schedule.next_after(middle)
        if following <= until:
            since = following
        else:
            until = middle
    return since


def _read(text: str, *, low: int, high: int, names: tuple[str, ...] = (), first: int = 0) -> set[int]:
    values: set[int] = set()
    for item in text.split(","):
        match = _ITEM.match(item)
        if match is None:
            raise ValueError(f"{item!r} is no cron field")
        start_text, end_text, step_text = match.groups()
        if start_text == "*":
            if end_text is not None:
                raise ValueError(f"{item!r} is no cron field")
            start, end = low, high
        else:
            start = _number(start_text, names=names, first=first)
            end = start if end_text is None else _number(end_text, names=names, first=first)
            if end_text is None and step_text is not None:
                end = high
        step = 1 if step_text is None else int(step_text)
        if not low <= start <= end <= high or step == 0:
            raise ValueError(f"{item!r} is not within {low}-{high}")
        values.update(range(start, end + 1, step))
    return values


def _number(text: str, *, names: tuple[str, ...], first: int) -> int:
    if text.isdigit():
        return int(text)
    if text in names:
        return names.index(text) + first
    raise ValueError(f"{text!r} is no cron field")
