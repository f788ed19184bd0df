"""The runtime client of trusted code, over HTTP and in the same process."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from api_parts import ServedApi, served
from test_api_trusted import OPS, registry

from pai.client import (
    LifecycleMessage,
    RuntimeAgentClient,
    TextPart,
    create_agent_client,
    create_direct_transport,
    create_http_transport,
    create_runtime_client,
    create_runtime_direct_transport,
    create_runtime_http_transport,
)
from pai.protocol.errors import Forbidden, IdempotencyConflict, NotFound, ValidationFailed
from pai.protocol.identity import Identity
from pai.settings import Settings

ANN = Identity(subject="ann")


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[ServedApi]:
    named = settings.model_copy(update={"identity": "test_api_trusted:resolve"})
    async with served(named, registry()) as running:
        yield running


@pytest.fixture(params=["http", "direct"])
async def client(api: ServedApi, request: pytest.FixtureRequest) -> AsyncIterator[RuntimeAgentClient]:
    if request.param == "http":
        url = f"{api.client.base_url}/api/pai/main"
        transport: Any = create_runtime_http_transport(url, owner="ann", headers=OPS)
    else:
        trusted = Identity(subject="ops", trusted=True)
        transport = create_runtime_direct_transport(
            api.state.runtime, trusted, "main", owner=ANN.owner, hub=api.state.hub
        )
    async with create_runtime_client(transport) as made:
        yield made


async def test_messages_are_appended_read_and_hidden(api: ServedApi, client: RuntimeAgentClient) -> None:
    thread = client.thread("t")
    await thread.send("hello")
    message = await thread.messages.append("note", role="system", visibility="model", private_metadata={"by": "ops"})
    assert isinstance(message, LifecycleMessage)
    assert (message.visibility, message.private_metadata, message.text) == ("model", {"by": "ops"}, "note")
    assert message.metadata.pai.producer == "admin"
    [found] = await thread.messages.get_many(["none", message.id])
    assert isinstance(found.parts[0], TextPart)
    hello = thread.get_state().messages[0].id
    await thread.messages.update_visibility([hello], visibility="none")
    seen = create_agent_client(create_direct_transport(api.state.runtime, ANN, "main")).thread("t")
    assert [shown.id for shown in (await seen.refresh()).messages if shown.role != "assistant"] == []
    assert {shown.id for shown in (await thread.refresh()).messages} >= {hello, message.id}
    with pytest.raises(NotFound):
        await thread.messages.update_visibility(["none"], visibility="all")
    with pytest.raises(ValidationFailed):
        await thread.messages.append([{"type": "nothing"}])


async def test_metadata_of_a_thread_and_of_a_run(client: RuntimeAgentClient) -> None:
    thread = client.thread("t")
    run = await thread.send("hello")
    for metadata in (thread.metadata, thread.run_metadata(run.run_id)):
        await metadata.update({"a": 1}, private={"b": 2})
        record = await metadata.get()
        assert (record.metadata, record.private_metadata) == ({"a": 1}, {"b": 2})
    with pytest.raises(NotFound):
        await thread.run_metadata("none").get()


async def test_lists_reach_hidden_threads_and_other_owners(client: RuntimeAgentClient, api: ServedApi) -> None:
    await client.triggers.fire("remind", "tea", thread_id="secret")
    await api.client.post(
        "/api/pai/other/threads/x/send",
        json={"message": {"parts": [{"type": "text", "text": "hi"}]}},
        headers={"x-user": "bob"},
    )
    assert (await client.threads.list()).items == []
    assert [item.thread_id for item in (await client.threads.list(hidden=True)).items] == ["secret"]
    everything = (await client.threads.list_all()).items
    assert {(item.owner, item.agent, item.hidden) for item in everything} == {
        (ANN.owner, "main", True),
        ("default/bob", "other", False),
    }
    assert [item.agent for item in (await client.threads.list_all(owner="default/bob")).items] == ["other"]
    assert [item.agent for item in (await client.threads.list(agent="other")).items] == []


@pytest.mark.parametrize("owner", ["ann", "default/ann", "%61nn"])
async def test_an_owner_is_named_alike_on_both_transports(api: ServedApi, owner: str) -> None:
    trusted = Identity(subject="ops", trusted=True)
    transports: list[Any] = [
        create_runtime_http_transport(f"{api.client.base_url}/api/pai/main", owner=owner, headers=OPS),
        create_runtime_direct_transport(api.state.runtime, trusted, "main", owner=owner),
    ]
    for number, transport in enumerate(transports):
        async with create_runtime_client(transport) as client:
            await client.thread(f"t{number}").send("hello")
            found = (await client.threads.list_all(owner=owner)).items
            assert {(item.thread_id, item.owner) for item in found} == {(f"t{n}", ANN.owner) for n in range(number + 1)}


@pytest.mark.parametrize("owner", ["", "a/", "/a", "a/b/c", "%ff", "x" * 1001])
async def test_what_is_no_owner_is_refused_on_both_transports(
    api: ServedApi, client: RuntimeAgentClient, owner: str
) -> None:
    with pytest.raises(ValidationFailed):
        await client.threads.list_all(owner=owner)
    with pytest.raises(ValidationFailed):
        create_runtime_direct_transport(api.state.runtime, Identity(subject="ops", trusted=True), "main", owner=owner)


async def test_a_trigger_fires_once_for_a_key(client: RuntimeAgentClient) -> None:
    first = await client.triggers.fire("remind", "tea", key="k")
    assert first is not None
    assert await client.triggers.fire("remind", "tea", key="k") == first
    with pytest.raises(IdempotencyConflict):
        await client.triggers.fire("remind", "milk", key="k")
    with pytest.raises(NotFound) as missing:
        await client.triggers.fire("none")
    assert missing.value.what == "trigger"


async def test_without_trust_there_is_no_runtime_client(api: ServedApi) -> None:
    with pytest.raises(Forbidden):
        create_runtime_direct_transport(api.state.runtime, ANN, "main")
    url = f"{api.client.base_url}/api/pai/main"
    ordinary = {"x-user": "ann"}
    async with create_runtime_client(create_runtime_http_transport(url, headers=ordinary)) as client:
        with pytest.raises(Forbidden):
            await client.threads.list_all()
        with pytest.raises(Forbidden):
            await client.triggers.fire("remind")
    async with create_agent_client(create_http_transport(url, headers=ordinary)) as plain:
        with pytest.raises(Forbidden):
            await plain.threads.list(hidden=True)
