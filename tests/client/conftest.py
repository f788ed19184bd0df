"""Clients over fake transports."""

import pytest
from fake_transport import IMPATIENT, PolledTransport, StreamTransport

from pai.client import AgentClient, create_agent_client


@pytest.fixture
def transport() -> StreamTransport:
    return StreamTransport()


@pytest.fixture
def polled() -> PolledTransport:
    return PolledTransport()


@pytest.fixture
def client(transport: StreamTransport) -> AgentClient:
    return create_agent_client(transport, reconnect=IMPATIENT)
