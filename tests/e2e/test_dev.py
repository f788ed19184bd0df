"""One command starts everything, prints what works, keeps it up, and leaves nothing behind."""

import os
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pai.client import ThreadState, create_pai_http_client
from support.dev_server import REPOSITORY, DevServer, dev_server
from support.processes import alive, killed_at_end
from support.servers import PrivateRedis, answers
from support.waiting import wait_until, wait_until_sync


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    with dev_server(tmp_path_factory.mktemp("dev") / "home") as running:
        yield running


def printed(server: DevServer, name: str) -> list[str]:
    """The command that it printed last under that name."""
    return shlex.split(re.findall(rf"^{name}:\s+(.*)$", server.output, re.MULTILINE)[-1])


def ran(argv: list[str], **options: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(argv, cwd=REPOSITORY, text=True, capture_output=True, timeout=60, check=False, **options)  # type: ignore[call-overload,no-any-return]


async def answer(server: DevServer, thread_id: str) -> str:
    """The text of the latest message of the thread."""
    state = await state_of(server, thread_id)
    return state.messages[-1].text if state.messages else ""


async def state_of(server: DevServer, thread_id: str) -> ThreadState:
    async with create_pai_http_client(server.url) as client:
        return await client.agent("main").thread(thread_id).refresh()


async def test_every_line_that_it_prints_works_as_it_stands(server: DevServer) -> None:
    sent = ran(printed(server, "Send"))
    assert '"status":"running"' in sent.stdout
    await wait_until(lambda: ended(server, "hello"))
    watch = subprocess.Popen(printed(server, "Watch"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert watch.stdout is not None
    with killed_at_end([watch.pid]), watch.stdout:
        seen = ""
        while "snapshot" not in seen:
            seen = watch.stdout.readline()
        assert "cloudy" in seen
    watch.wait()
    chat = ran([*printed(server, "Chat"), "What is the weather in Paris?"])
    assert (chat.returncode, chat.stderr) == (0, "")
    assert '  ✓ get_weather {"city":"Paris"' in chat.stdout


async def ended(server: DevServer, thread_id: str) -> bool:
    state = await state_of(server, thread_id)
    return state.thread.status == "idle" and len(state.messages) > 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything_in_order(tmp_path: Path, number: int) -> None:
    with dev_server(tmp_path / "home") as server:
        children = server.children()
        assert len(children) == 3
        assert server.stop(number) == 0
        assert not any(alive(pid) for pid in children)
        assert server.output.rstrip().endswith("Stopped.")
        assert "ERROR" not in server.output
        assert "Traceback" not in server.output


def test_nothing_is_left_when_it_is_killed_and_the_next_start_finds_the_port_free(tmp_path: Path) -> None:
    with dev_server(tmp_path / "home") as server:
        children = server.children()
        with killed_at_end(list(children)):
            server.kill()
            wait_until_sync(lambda: not any(alive(pid) for pid in children), saw=server.children)
        server.start()


async def test_an_answer_goes_on_after_a_restart(tmp_path: Path) -> None:
    with dev_server(tmp_path / "home") as server:
        async with create_pai_http_client(server.url) as client:
            thread = client.agent("main").thread("long")
            run = await thread.send("count to 400")
            await wait_until(lambda: partial(server, "long"))
            assert server.stop() == 0
            assert not run_ended(thread.get_state(), run.run_id)
            server.start()
            state = await run.wait_until_idle()
        assert state.messages[-1].text == " ".join(str(number) for number in range(1, 401))


async def partial(server: DevServer, thread_id: str) -> bool:
    return "5 6 7" in await answer(server, thread_id)


def run_ended(state: ThreadState, run_id: str) -> bool:
    found = state.run(run_id)
    return found is not None and found.status.terminal


async def test_the_chat_survives_a_restart_in_mid_answer(server: DevServer) -> None:
    chat = subprocess.Popen(
        [*printed(server, "Chat"), "--thread", "long", "count to 300"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with killed_at_end([chat.pid]):
        await wait_until(lambda: partial(server, "long"))
        server.stop()
        server.start()
        out, _ = chat.communicate(timeout=60)
    assert chat.returncode == 0
    assert "reconnecting…" in out
    last = out.split("begins again)\n")[-1].replace("reconnecting…\n", "").replace("connected again\n", "")
    assert last.split() == [str(number) for number in range(1, 301)]


@pytest.mark.parametrize("name", ["cli worker", "cli api", "valkey-server"])
async def test_a_part_that_dies_is_started_again_and_the_answer_is_whole(server: DevServer, name: str) -> None:
    async with create_pai_http_client(server.url) as client:
        thread = client.agent("main").thread(name.replace(" ", "-"))
        run = await thread.send("count to 150")
        await wait_until(lambda: partial(server, thread.thread_id))
        victim = server.child(name)
        offset = len(server.output)
        os.kill(victim, signal.SIGKILL)
        state = await run.wait_until_idle()
    assert state.messages[-1].text.split() == [str(number) for number in range(1, 151)]
    await wait_until(lambda: [pid for pid, line in server.children().items() if name in line] not in ([], [victim]))
    assert "again" in server.output[offset:]


def test_servers_of_ones_own_are_used_and_left_alone(
    tmp_path: Path, own_redis: PrivateRedis, bare_postgres_url: str
) -> None:
    environment = {"PAI_REDIS_URL": own_redis.url, "PAI_DATABASE_URL": bare_postgres_url}
    with dev_server(tmp_path / "home", environment=environment) as server:
        assert len(server.children()) == 2
        chat = ran([*printed(server, "Chat"), "count to 3"])
        server.stop()
    assert chat.stdout == "1 2 3\n"
    assert answers(own_redis.url)
    assert not (server.home / "pai.db").exists()


def test_a_port_in_use_is_said_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = DevServer(tmp_path / "home", port=taken.getsockname()[1])
        done = ran(server.argv, env={**os.environ, "PAI_HOME": str(server.home)})
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"--port {server.port + 1}" in done.stderr
    assert not (server.home / "redis.log").exists()


def test_a_second_one_in_the_same_folder_says_who_has_it(server: DevServer) -> None:
    other = DevServer(server.home)
    done = ran(other.argv, env={**os.environ, "PAI_HOME": str(server.home)})
    assert done.returncode == 1
    assert server.process is not None
    assert f"runs in {server.home} already (process {server.process.pid})" in done.stderr


def test_agents_that_cannot_be_imported_are_said_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n")
    done = subprocess.run(
        [*DevServer(tmp_path / "home").argv[:2], "broken:registry"],
        cwd=tmp_path,
        env={**os.environ, "PAI_HOME": str(tmp_path / "home")},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "paictl: PAI_AGENTS 'broken:registry': 'broken' imports 'nothing_of_that_name', which is not installed.\n"
    )


def test_somebody_elses_agents_are_served(tmp_path: Path) -> None:
    (tmp_path / "my_app.py").write_text(
        "from pai import Agent, Registry\n"
        "poet = Agent('poet', model='demo')\n"
        "@poet.tool\n"
        "def rhyme(word: str) -> str:\n"
        "    'A word that rhymes.'\n"
        "    print('asked for', word, 1)\n"
        "    return word + 'le'\n"
        "registry = Registry(poet)\n"
    )
    with dev_server(tmp_path / "home", agents="my_app:registry", directory=tmp_path) as server:
        argv = printed(server, "Chat")
        assert argv[1:4] == ["chat", "--agent", "poet"]
        chat = ran([*argv, 'call rhyme {"word": "tab"}'])
        wait_until_sync(lambda: "\nasked for tab 1\n" in server.output, saw=lambda: server.output)
    assert "  ✓ rhyme table\n" in chat.stdout
