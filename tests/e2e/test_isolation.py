"""What belongs to somebody else is what does not exist: on every route, in every place that takes an id.

For each operation of the OpenAPI document and each place in it that names something, the same request is made twice:
with an id that nobody has, and with an id of somebody else. The answers must be the same, and nothing of theirs may
change. A route that the test cannot make a request for fails it.
"""

import base64
import hashlib
import itertools
import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from support import id_positions
from support.dev_server import dev_server
from support.id_positions import Operation, Position
from support.waiting import wait_until_sync

SUPPORT = Path(__file__).parents[1] / "support"
pytestmark = pytest.mark.timeout(400)
WITHOUT_IDS = {"listAgents"}
"""Operations that name nothing at all."""
ALIKE = {"send", "deleteThread", "createWatchToken", "uploadFile"}
"""Operations that do not care whether what they name exists: they make it, need it not, or want it gone."""
CHOSEN = ("key", "response")
"""Names that every caller chooses. Somebody else's use of the same one must not be noticed, in whatever place."""
OWNER = "X-Pai-Owner"
SHARED_TABLES = {"alembic_version", "api_key", "signing_key", "schedule"}
_MADE = re.compile(r"\b[a-z]+_[0-9a-f]{8}-?[0-9a-f]{4}-?7[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}\b")
_VOLATILE = (
    (_MADE, "<made>"),
    (re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+Z"), "<time>"),
    (re.compile(r'"(token|signature|url)":"[^"]*"'), r'"\1":"<secret>"'),
    (re.compile(r'"(revision|sequence)":\d+'), r'"\1":0'),
)
_numbers = itertools.count(1)


@dataclass
class World:
    """What one caller has with one agent. `places`: ids by kind, of an idle thread and of one that waits."""

    user: str
    agent: str
    places: dict[str, dict[str, str]] = field(default_factory=dict)
    mark: Any = None
    fingerprint: str = ""

    @property
    def headers(self) -> dict[str, str]:
        return {"x-user": self.user}

    @property
    def base(self) -> str:
        return f"/api/pai/{self.agent}"


@dataclass
class Attacker:
    """A caller who may act in `world`, and in no other."""

    world: World
    headers: dict[str, str]

    @property
    def trusted(self) -> bool:
        return OWNER in self.headers


@dataclass
class Site:
    database: sqlite3.Connection
    http: httpx.Client
    document: dict[str, Any]

    def build(self, world: World) -> None:
        """An idle thread with an attachment, and one that waits for an answer while input is queued."""
        idle = self._sent(world, "count to 1")
        waiting = self._sent(world, 'call publish_post {"title": "x"}')
        queued = {"message": {"parts": [{"type": "text", "text": "next"}]}, "queue": {"mode": "queue"}}
        self._settled(world, idle, "idle")
        parts = self._settled(world, waiting, "waiting")[-1]
        queued = self._ok("POST", f"{world.base}/threads/{waiting['thread']}/send", world, json=queued)
        asked = next(part for part in parts["parts"] if part["type"] == "data-pai-suspension")
        call = {"message": parts["id"], "tool_call": asked["data"]["toolCallId"], "action": asked["id"]}
        page = self._ok("GET", f"{world.base}/threads", world, params={"limit": "1"})["nextPageToken"]
        common = {"queue_item": queued["queueItemId"], "page": page, "owner": f"default/{world.user}"}
        # What only a waiting thread has is also tried where the idle one is named.
        world.places = {"idle": {**common, **call, **idle}, "waiting": {**common, **waiting, **call}}
        world.mark, world.fingerprint = self.mark(world), self.rows(world)

    def refresh(self, world: World) -> None:
        """The same world anew, when a request changed something in it."""
        if self.mark(world) == world.mark:
            return
        for item in self._ok("GET", f"{world.base}/threads", world, params={"limit": "100"})["items"]:
            self._ok("DELETE", f"{world.base}/threads/{item['threadId']}", world)
        self.build(world)

    def _sent(self, world: World, text: str) -> dict[str, str]:
        name = f"{world.user}-{world.agent}-{next(_numbers)}"
        headers = {"idempotency-key": f"upload-{name}", "content-type": "text/plain"}
        file = self._ok("POST", f"{world.base}/files", world, content=b"a secret", headers=headers)["fileId"]
        parts = [{"type": "text", "text": text}, {"type": "attachment", "fileId": file}]
        body = {"message": {"parts": parts}, "messageId": f"message-{name}"}
        path, headers = f"{world.base}/threads/thread-{name}/send", {"idempotency-key": f"key-{name}"}
        sent = self._ok("POST", path, world, json=body, headers=headers)
        return {
            "thread": f"thread-{name}",
            "run": sent["run"]["runId"],
            "message": f"message-{name}",
            "file": file,
            "key": f"key-{name}",
            "response": f"message-{name}",
            "position": f"{sent['version']}:4294967297",
        }

    def _ok(
        self, method: str, path: str, world: World, *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> Any:
        answer = self.http.request(method, path, headers={**world.headers, **(headers or {})}, **options)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def _settled(self, world: World, ids: Mapping[str, str], status: str) -> Any:
        """The messages once the thread is in that status."""

        def messages() -> Any:
            state = self._ok("GET", f"{world.base}/threads/{ids['thread']}", world)
            return state["messages"] if state["thread"]["status"] == status else None

        return wait_until_sync(messages)

    def mark(self, world: World) -> Any:
        """Another one after every change of a thread, which costs less than to look at all rows."""
        query = (
            "SELECT version, revision, (SELECT count(*) FROM receipt WHERE receipt.version = thread.version) "
            "FROM thread WHERE owner = ? AND agent = ? ORDER BY version"
        )
        return self.database.execute(query, (f"default/{world.user}", world.agent)).fetchall()

    def rows(self, world: World) -> str:
        """A fingerprint of all rows that belong to the world."""
        digest = hashlib.sha256()
        mine = (f"default/{world.user}", world.agent)
        tables = [name for (name,) in self.database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in sorted(set(tables) - SHARED_TABLES):
            columns = [row[1] for row in self.database.execute(f"PRAGMA table_info({table})")]
            assert {"owner", "version"} & set(columns), f"whose are the rows of {table}?"
            by_owner = "owner = ? AND agent = ?"
            by_thread = "version IN (SELECT version FROM thread WHERE owner = ? AND agent = ?)"
            condition = by_owner if "owner" in columns else by_thread
            query = f"SELECT * FROM {table} WHERE {condition} ORDER BY {', '.join(columns)}"
            for row in self.database.execute(query, mine):
                digest.update(repr((table, row)).encode())
        return digest.hexdigest()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    environment = {"PAI_IDENTITY": "isolation_agents:who", "PYTHONPATH": str(SUPPORT)}
    home = tmp_path_factory.mktemp("isolation") / "home"
    with (
        dev_server(home, agents="isolation_agents:registry", directory=SUPPORT, environment=environment) as server,
        httpx.Client(base_url=server.url, timeout=15) as http,
        closing(sqlite3.connect(f"file:{home / 'pai.db'}?mode=ro", uri=True)) as database,
    ):
        yield Site(database, http, http.get("/openapi.json").json())


@pytest.fixture(scope="module")
def victim(site: Site) -> World:
    world = World("anna", "main")
    site.build(world)
    return world


def attack(site: Site, world: World, headers: Mapping[str, str] | None = None) -> Attacker:
    site.build(world)
    return Attacker(world, {**world.headers, **(headers or {})})


ATTACKERS: dict[str, Callable[[Site], Attacker]] = {
    "another identity": lambda site: attack(site, World("ben", "main")),
    "the same identity with another agent": lambda site: attack(site, World("anna", "other")),
    "a trusted caller who acts for another identity": lambda site: attack(
        site, World("cara", "main"), {"x-user": "root", "x-trusted": "1", OWNER: "cara"}
    ),
}


def unknown(kind: str, like: str) -> str:
    """An id of the kind that nobody has."""
    number = next(_numbers)
    version = f"th_0198{number:04x}-0000-7000-8000-000000000000"
    match kind:
        case "position":
            return f"{version}:4294967297"
        case "page":
            listed_at, _ = json.loads(base64.urlsafe_b64decode(like + "=="))
            return base64.urlsafe_b64encode(json.dumps([listed_at, version]).encode()).decode().rstrip("=")
        case "owner":
            return f"default/nobody-{number}"
    return f"nothing-{number}"


@dataclass(frozen=True)
class Case:
    """One request. `position`: the only place with an id that is not the caller's; None: all of them."""

    operation: Operation
    place: str
    position: Position | None
    body: Any

    def __str__(self) -> str:
        return f"{self.operation.name} ({self.place}, {self.position or 'all'})"

    def perform(self, site: Site, attacker: Attacker, foreign: Mapping[str, str]) -> tuple[int, str]:
        """-> status and text, of a stream the first event, without what differs as ids and times do."""
        own, at = attacker.world.places[self.place], self.position
        target = {} if at is None else {at.kind: foreign[at.kind]}
        in_path = own if at is not None and at.place != "path" else {**own, **(target or foreign)}
        path = self.operation.path.replace("{agent}", attacker.world.agent)
        path = path.replace("{name}", "nudge" if "/triggers/" in path else "archive")
        for one in self.operation.positions:
            path = path.replace(f"{{{one.name}}}", quote(in_path[one.kind], safe="")) if one.place == "path" else path
        assert "{" not in path, f"{self}: {path}"
        headers, options = dict(attacker.headers), dict[str, Any]()
        if at is not None and at.place == "header":
            headers[at.name] = foreign[at.kind]
        if at is not None and at.place == "query":
            options["params"] = {at.name: foreign[at.kind]}
        if self.body is not None:
            body = id_positions.filled(self.body, foreign if at is None else own)
            options["json"] = id_positions.put(body, at.path, foreign[at.kind]) if at and at.place == "body" else body
        elif self.operation.has_body:
            options["content"], headers["content-type"] = b"bytes", "text/plain"
        with site.http.stream(self.operation.method, path, headers=headers, **options) as response:
            streamed = response.headers.get("content-type", "").startswith("text/event-stream")
            text = next(response.iter_text()) if streamed else response.read().decode()
        return response.status_code, _normalised(text, {*own.values(), *foreign.values()})


def _normalised(text: str, ids: set[str]) -> str:
    for value in sorted(ids, key=len, reverse=True):
        text = text.replace(json.dumps(value)[1:-1], "<id>")
    for pattern, shown in _VOLATILE:
        text = pattern.sub(shown, text)
    return text


def cases(operation: Operation, attacker: Attacker) -> Iterator[Case]:
    """What a trusted caller does for somebody is tried in every place only where ordinary callers cannot come."""
    ordinary = not any(one.kind == "owner" for one in operation.positions)
    for place in ("idle", "waiting"):
        if operation.body is not None or any(one.place == "path" for one in operation.positions):
            yield Case(operation, place, None, operation.body)
        for position in () if attacker.trusted and ordinary else operation.positions:
            # A trusted caller names an owner in every request; whose, is what it is trusted with.
            if position.kind == "owner" and attacker.trusted:
                continue
            if position.kind in CHOSEN and place == "waiting":
                continue
            if position.place != "body":
                yield Case(operation, place, position, operation.body)
                continue
            whole = id_positions.merged(operation.body, position.body)
            yield Case(operation, place, position, whole)
            if position.body != whole:
                yield Case(operation, place, position, position.body)


def test_every_route_names_something_or_is_known_not_to(site: Site) -> None:
    found = list(id_positions.operations(site.document))
    assert {one.name for one in found if not one.positions} == WITHOUT_IDS
    assert len([one for one in found if one.positions]) >= 25


@pytest.mark.parametrize("name", ATTACKERS)
def test_what_belongs_to_somebody_else_does_not_exist(site: Site, victim: World, name: str) -> None:
    attacker, wrong = ATTACKERS[name](site), list[str]()
    for operation in id_positions.operations(site.document):
        for case in cases(operation, attacker):
            theirs = victim.places[case.place]
            nobodys = {kind: unknown(kind, value) for kind, value in theirs.items()}
            site.refresh(attacker.world)
            found = case.perform(site, attacker, theirs)
            if found[0] >= 500:
                wrong.append(f"{case}: {found}")
            site.refresh(attacker.world)
            expected = case.perform(site, attacker, nobodys)
            if found != expected:
                wrong.append(f"{case}: {expected} for what nobody has, {found} for what somebody else has")
        if site.rows(victim) != victim.fingerprint:
            wrong.append(f"{operation.name}: it changed what belongs to somebody else")
            site.refresh(victim)
    assert not wrong, "\n".join(wrong)


def test_the_same_requests_reach_what_is_ones_own(site: Site) -> None:
    """Otherwise the test above would compare one mistake with another."""
    attacker, unreached = ATTACKERS["a trusted caller who acts for another identity"](site), list[str]()
    for operation in id_positions.operations(site.document):
        reached = not operation.positions or operation.name in ALIKE
        for case in cases(operation, attacker):
            if case.position is None and not reached:
                site.refresh(attacker.world)
                own = attacker.world.places[case.place]
                found = case.perform(site, attacker, own)
                reached = found != case.perform(site, attacker, {kind: unknown(kind, own[kind]) for kind in own})
        if not reached and any(one.place == "path" for one in operation.positions):
            unreached.append(operation.name)
    assert not unreached
