"""`make bench`: measures PAI against floors of the same run, prints a table and writes bench.json.

python -m tests.bench [case ...]

Cases: first, submit, saturation, delivery, watchers, hops, attach, stops, lists, files, fold, memory, waiting
"""

import argparse
import asyncio
import json
import os
import platform
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.bench import cases, control, floors
from tests.bench.driver import percentile
from tests.bench.stack import Stack

CASES = (
    *("first", "submit", "saturation", "delivery", "watchers", "hops"),
    *("attach", "stops", "lists", "files", "fold", "memory", "waiting"),
)


class Report:
    """Rows of (what, value, unit, goal, ratio to the floor)."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []
        self.floor = 0.0

    def add(self, what: str, value: float, unit: str, *, goal: str = "", floor: float = 0.0) -> None:
        ratio = value / floor if floor else None
        self.rows.append({"what": what, "value": round(value, 3), "unit": unit, "goal": goal, "ratio": ratio})
        shown = "" if ratio is None else f"{ratio:.1f}x"
        print(f"{what:<58}{value:>12.2f} {unit:<4}{goal:>16}{shown:>9}", flush=True)

    @asynccontextmanager
    async def against_floor(self, stack: Stack) -> AsyncIterator[None]:
        """Measures the floor before and after: a host that is shared changes its speed within a run."""
        before = await _floors(stack)
        yield
        both = [(one + other) / 2 for one, other in zip(before, await _floors(stack), strict=True)]
        self.floor = sum(both)
        for what, value in zip(
            ("bare Celery no-op dispatch", "XADD to receive", "INSERT over HTTP"), both, strict=True
        ):
            self.add(f"floor: {what}, p50", value, "ms")
        self.add("floor: the three together", self.floor, "ms")


async def _floors(stack: Stack) -> tuple[float, float, float]:
    return (
        floors.celery_dispatch_ms(stack),
        await floors.xadd_receive_ms(stack),
        await floors.insert_over_http_ms(stack),
    )


async def measure(stack: Stack, chosen: set[str], report: Report) -> None:
    if "first" in chosen:
        async with report.against_floor(stack):
            alone = await cases.first_chunk(stack, concurrent=1, count=200)
        report.add("send to first chunk, alone, p50", percentile(alone, 0.5), "ms", goal="12, 4x", floor=report.floor)
        report.add("send to first chunk, alone, p95", percentile(alone, 0.95), "ms")
        crowd = await cases.first_chunk(stack, concurrent=50, count=600)
        report.add("send to first chunk, 50 threads at once, p50", percentile(crowd, 0.5), "ms", goal="150")
    if "submit" in chosen:
        for tool, what in (("pick", "an output"), ("approve", "a suspension")):
            async with report.against_floor(stack):
                first, spoken = await cases.submit(stack, tool=tool, count=90)
            label = f"submit {what} to first chunk, alone, p50"
            report.add(label, percentile(first, 0.5), "ms", goal="4x", floor=report.floor)
        report.add("  to the model's first chunk", percentile(spoken, 0.5), "ms", floor=report.floor)
    if "saturation" in chosen:
        for what, value, unit in await cases.saturation(stack, count=1500):
            goal = {"one-step runs completed at saturation": "100", "transactions per run": "5"}.get(what, "")
            report.add(what, value, unit, goal=goal)
    if "hops" in chosen:
        async with report.against_floor(stack):
            alone = await cases.tool_hops(stack, concurrent=1, rounds=30)
        report.add("tool hop, five in a row, alone, p50", percentile(alone, 0.5), "ms", goal="6", floor=report.floor)
        ten = await cases.tool_hops(stack, concurrent=10, rounds=10)
        report.add("tool hop, ten threads at once, p50", percentile(ten, 0.5), "ms", goal="20")
    if "delivery" in chosen:
        for rate, goals in ((20, ("4", "20")), (50, ("", "50"))):
            delays, lost = await cases.delivery(stack, runs=50, rate=rate, seconds=8)
            report.add(f"chunk published to received, 50 x {rate}/s, p50", percentile(delays, 0.5), "ms", goal=goals[0])
            report.add(
                f"chunk published to received, 50 x {rate}/s, p99", percentile(delays, 0.99), "ms", goal=goals[1]
            )
            report.add(f"chunks lost, 50 x {rate}/s", lost, "", goal="0")
    if "watchers" in chosen:
        delays, lost, connections = await cases.many_watchers(stack, watchers=1000, threads=20, seconds=8)
        report.add("1,000 watchers, 1,000 events/s, p50", percentile(delays, 0.5), "ms")
        report.add("1,000 watchers, 1,000 events/s, p99", percentile(delays, 0.99), "ms", goal="50")
        report.add("events lost by 1,000 watchers", lost, "", goal="0")
        report.add("Redis connections of everything, 1,000 watchers", connections, "")
    if "attach" in chosen:
        middle, long = await cases.attach(stack, count=30)
        report.add("attach in mid-answer, 2,000 chunks behind, p95", percentile(middle, 0.95), "ms", goal="200")
        report.add("snapshot of 2,000 messages, p95", percentile(long, 0.95), "ms", goal="200")
    if "stops" in chosen:
        for (what, value, unit), goal in zip(await control.stops(stack, count=60), ("20", "100", "200"), strict=True):
            report.add(what, value, unit, goal=goal)
    if "lists" in chosen:
        (page, http, unit), (rows, sql, _) = await control.lists(stack, threads=10_000, count=60)
        report.add(rows, sql, unit)
        report.add(page, http, unit, goal="SQL + 10")
    if "files" in chosen:
        for what, value, unit in await control.files(stack):
            report.add(what, value, unit)
    if "fold" in chosen:
        for what, value, unit in cases.fold_cost():
            report.add(what, value, unit)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []])
    parser.add_argument("--json", type=Path, default=Path("bench.json"))
    options = parser.parse_args()
    chosen = set(options.cases or CASES)
    report = Report()
    print(f"{'':<58}{'measured':>12}     {'goal':>16}{'floor':>9}")
    with Stack() as stack:
        await measure(stack, chosen, report)
    if "memory" in chosen:
        with Stack() as stack:
            for what, value, unit in await cases.memory(stack):
                report.add(what, value, unit)
    if "waiting" in chosen:
        with Stack() as stack:
            for what, value, unit in await cases.waiting(stack, count=10_000):
                report.add(what, value, unit)
    host = {"python": platform.python_version(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    options.json.write_text(json.dumps({"host": host, "results": report.rows}, indent=2) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
