"""Schedules in a cluster: one run per slot, whoever dies."""

from collections import Counter
from datetime import timedelta

import httpx

from support.cluster import Cluster
from support.waiting import wait_until


async def test_three_schedulers_and_a_kill_between_claim_and_dispatch_make_one_run_per_slot(
    chaos: Cluster, http: httpx.AsyncClient
) -> None:
    chaos.environment = {**chaos.environment, "PAI_AGENTS": "support.trigger_agents:registry", "PAI_LEASE": "1",
                         "PAI_RENEW_INTERVAL": "0.3"}  # fmt: skip
    api = chaos.start_api()
    victim = chaos.start_worker(PAI_FAULTS="trigger.before_send:2")
    victim.ready()
    others = [chaos.start_worker(), chaos.start_worker()]
    url = api.ready().url
    for other in others:
        other.ready()

    async def slots() -> list[str]:
        page = (await http.get(f"{url}/threads?limit=100")).json()
        return [item["title"]["value"] for item in page["items"]]

    await wait_until(lambda: not victim.alive, timeout=timedelta(seconds=60), saw=chaos.output)
    before = len(await slots())

    async def gone_on() -> bool:
        found = sorted(int(title.removeprefix("slot ")) for title in await slots())
        # The victim's slot waits for its lease; when it has fired there is no hole any more.
        return len(found) >= before + 4 and found == list(range(found[0], found[-1] + 1))

    await wait_until(gone_on, timeout=timedelta(seconds=60), saw=chaos.output)
    assert max(Counter(await slots()).values()) == 1
