"""Where the direct transport is asked for: the engine is only imported by those who use it."""

from typing import TYPE_CHECKING, Any

from pai.client.transport import AgentClientTransport

if TYPE_CHECKING:
    from pai.protocol.identity import Identity


def create_direct_transport(
    runtime: Any, identity: "Identity", agent_name: str, *, hub: Any = None
) -> AgentClientTransport:
    """Threads of `identity` without HTTP: in the same process as the API, or in a trusted job.

    `runtime` is an open `pai.engine.runtime.Runtime`; the caller closes it. With a `hub` (an open `pai.log.hub.Hub`)
    watches are streams; without one, threads are polled. Raises NotFound for an agent that the runtime does not know.
    """
    from pai.client.direct import DirectTransport, WatchingDirectTransport

    if hub is None:
        return DirectTransport(runtime, identity, agent_name)
    return WatchingDirectTransport(runtime, identity, agent_name, hub=hub)
