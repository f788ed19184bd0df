"""What `paictl dev` relies on: all processes up, stopped in order, and none left behind."""

import asyncio
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from pai.cli import child as child_module
from pai.cli.child import ChildFailed
from pai.cli.supervisor import supervise
from support.processes import alive, killed_at_end, notes, scripted_child
from support.waiting import wait_until, wait_until_sync


def pids(folder: Path, name: str) -> list[int]:
    return [int(line.split()[1]) for line in notes(folder, name) if line.startswith("started")]


async def test_it_is_ready_when_every_child_said_so(tmp_path: Path) -> None:
    specs = [scripted_child(tmp_path, "one"), scripted_child(tmp_path, "two")]
    async with supervise(specs, report=print) as supervisor:
        assert await supervisor.ready()
        assert all(child.pid is not None and alive(child.pid) for child in supervisor.children)


async def test_a_child_that_is_not_ready_keeps_it_waiting(tmp_path: Path) -> None:
    specs = [scripted_child(tmp_path, "one"), scripted_child(tmp_path, "two", "slow")]
    async with supervise(specs, report=print) as supervisor:
        waiting = asyncio.create_task(supervisor.ready())
        await wait_until(lambda: notes(tmp_path, "two"))
        await supervisor.children[0].ready()
        assert not waiting.done()
        supervisor.interrupt()
        assert await waiting is False


async def test_children_are_stopped_in_reverse_order(tmp_path: Path) -> None:
    ended: list[str] = []
    async with supervise([scripted_child(tmp_path, name) for name in ("a", "b", "c")], report=print) as supervisor:
        await supervisor.ready()
        for running in supervisor.children:
            running._keeper.add_done_callback(lambda _, name=running.spec.name: ended.append(name))
    assert ended == ["c", "b", "a"]
    assert all(notes(tmp_path, name)[-1] == "told to stop" for name in "abc")


async def test_a_child_that_ends_before_it_is_ready_fails_the_start(tmp_path: Path) -> None:
    specs = [scripted_child(tmp_path, "good"), scripted_child(tmp_path, "bad", "fail")]
    async with supervise(specs, report=print) as supervisor:
        with pytest.raises(ChildFailed, match=r"bad ended .exit code 3. before it was ready"):
            await supervisor.ready()
    assert supervisor.children[0]._keeper.done()
    # It may have been stopped before it noted anything.
    assert not any(alive(pid) for pid in pids(tmp_path, "good"))


async def test_a_child_that_ends_later_is_started_again(tmp_path: Path) -> None:
    reported: list[str] = []
    async with supervise([scripted_child(tmp_path, "one")], report=reported.append) as supervisor:
        await supervisor.ready()
        first = supervisor.children[0].pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await wait_until(lambda: len(pids(tmp_path, "one")) == 2)
    assert reported == ["one ended (killed by SIGKILL); starting it again in 0.5 s"]


async def test_each_end_in_a_row_is_followed_by_a_longer_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "_FIRST_DELAY", 0.01)
    monkeypatch.setattr(child_module, "_LONGEST_DELAY", 0.03)
    reported: list[str] = []
    async with supervise([scripted_child(tmp_path, "one", "crash")], report=reported.append):
        await wait_until(lambda: len(reported) == 4)
    assert [line.split("again in ")[1] for line in reported[:4]] == ["0.01 s", "0.02 s", "0.03 s", "0.03 s"]


async def test_a_stop_between_two_starts_is_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "_FIRST_DELAY", 3600.0)
    monkeypatch.setattr(child_module, "_LONGEST_DELAY", 3600.0)
    reported: list[str] = []
    async with supervise([scripted_child(tmp_path, "one", "crash")], report=reported.append):
        await wait_until(lambda: reported)
    assert len(pids(tmp_path, "one")) == 1


async def test_a_child_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    reported: list[str] = []
    spec = scripted_child(tmp_path, "deaf", "deaf", grace=timedelta(seconds=0.3))
    async with supervise([spec], report=reported.append) as supervisor:
        await supervisor.ready()
    assert reported == ["deaf did not stop within 0.3 s and is killed"]
    assert not alive(pids(tmp_path, "deaf")[0])


async def test_one_signal_that_arrives_twice_is_one_request(tmp_path: Path) -> None:
    async with supervise([scripted_child(tmp_path, "one")], report=print) as supervisor:
        await supervisor.ready()
        supervisor.interrupt()
        supervisor.interrupt()
    assert notes(tmp_path, "one")[-1] == "told to stop"


async def test_a_second_interrupt_ends_what_does_not_stop(tmp_path: Path) -> None:
    spec = scripted_child(tmp_path, "deaf", "deaf", grace=timedelta(hours=1))
    async with supervise([spec], report=print) as supervisor:
        await supervisor.ready()
        supervisor.interrupt()
        supervisor._stopped_at = float("-inf")  # long ago
        supervisor.interrupt()
    assert not alive(pids(tmp_path, "deaf")[0])


def test_nothing_is_left_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    program = (
        "import asyncio, pathlib, sys\n"
        "from support.processes import scripted_child\n"
        "from pai.cli.supervisor import supervise\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "async def main():\n"
        "    specs = [scripted_child(folder, 'one'), scripted_child(folder, 'deaf', 'deaf')]\n"
        "    async with supervise(specs, report=print) as supervisor:\n"
        "        await supervisor.ready()\n"
        "        (folder / 'ready').touch()\n"
        "        await supervisor.stopped.wait()\n"
        "asyncio.run(main())\n"
    )
    tests = str(Path(__file__).parents[2])
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], env={**os.environ, "PYTHONPATH": tests})
    wait_until_sync((tmp_path / "ready").exists)
    children = pids(tmp_path, "one") + pids(tmp_path, "deaf")
    with killed_at_end(children):
        assert all(alive(pid) for pid in children)
        process.kill()
        process.wait()
        wait_until_sync(lambda: not any(alive(pid) for pid in children))


def test_a_signal_to_the_supervisor_stops_all_and_it_ends_well(tmp_path: Path) -> None:
    program = (
        "import asyncio, pathlib, sys\n"
        "from support.processes import scripted_child\n"
        "from pai.cli.supervisor import supervise\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "async def main():\n"
        "    async with supervise([scripted_child(folder, 'one')], report=print) as supervisor:\n"
        "        await supervisor.ready()\n"
        "        (folder / 'ready').touch()\n"
        "        await supervisor.stopped.wait()\n"
        "asyncio.run(main())\n"
    )
    tests = str(Path(__file__).parents[2])
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], env={**os.environ, "PYTHONPATH": tests})
    wait_until_sync((tmp_path / "ready").exists)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 0
    assert notes(tmp_path, "one")[-1] == "told to stop"
