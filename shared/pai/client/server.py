"""All agents of one server over HTTP."""

from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from pai.client.agent_client import AgentClient, create_agent_client
from pai.client.http import HttpTransport
from pai.client.http_edge import transport_errors
from pai.client.http_requests import TIMEOUT, Headers, HttpRequests, new_http_client
from pai.contract.agent import Agent
from pai.protocol.wire import WireModel

_PATH = "/api/pai"


class AgentListing(WireModel):
    """One agent of a server."""

    agent: str
    title: str | None = None
    description: str | None = None


class PaiHttpClient:
    """The clients of its agents share one connection pool. Close it, or use it with `async with`."""

    def __init__(
        self, base_url: str, *, headers: Headers | None, timeout: timedelta, http: httpx.AsyncClient | None
    ) -> None:
        base = base_url.rstrip("/")
        self.url = base if base.endswith(_PATH) else base + _PATH
        self._headers = headers
        self._timeout = timeout
        self._http = http or new_http_client()
        self._owned = http is None

    def agent(self, agent: str | Agent, contract: Agent | None = None) -> AgentClient:
        """`client.agent("main")` for plain JSON; `client.agent(main_agent)` or `agent("main", main_agent)` for a client
        that is bound to the declared types."""
        name = agent if isinstance(agent, str) else agent.name
        bound = contract if isinstance(agent, str) else agent
        url = f"{self.url}/{quote(name, safe='~:')}"
        requests = HttpRequests(self._http, url, headers=self._headers, timeout=self._timeout)
        return create_agent_client(HttpTransport(requests), bound)

    async def list_agents(self) -> list[AgentListing]:
        requests = HttpRequests(self._http, self.url, headers=self._headers, timeout=self._timeout)
        answer: Mapping[str, Any] = await requests.json("GET", "")
        with transport_errors():
            return [AgentListing.read(item) for item in answer["agents"]]

    async def close(self) -> None:
        if self._owned:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def create_pai_http_client(
    base_url: str,
    *,
    headers: Headers | None = None,
    timeout: timedelta = TIMEOUT,
    http_client: httpx.AsyncClient | None = None,
) -> PaiHttpClient:
    """`base_url` is the server (`http://localhost:8000`), with or without `/api/pai`."""
    return PaiHttpClient(base_url, headers=headers, timeout=timeout, http=http_client)
