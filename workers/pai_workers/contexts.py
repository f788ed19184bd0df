"""The contexts that instructions, hooks and tools are given, made from a claimed step."""

from pai.contract import Agent, RunContext
from pai.engine.claim import Claim
from pai.engine.commit import HookOutcome
from pai.engine.records import message_record
from pai.protocol.identity import Identity


def run_context(claim: Claim, agent: Agent) -> RunContext:
    """The run as it stands. Raises ValidationFailed when its client data does not fit the declaration any more."""
    thread, run = claim.thread, claim.run
    return RunContext(
        thread_id=thread.thread_id,
        run_id=run.run_id,
        agent=agent.name,
        identity=Identity.of_owner(thread.owner),
        client_data=None if run.client_data is None else agent.read_client_data(run.client_data),
        step=max(run.model_steps, 1),
        messages=[message_record(message) for message in claim.seen if not message.open],
        thread_metadata=thread.meta,
        run_metadata=run.meta,
        private_thread_metadata=thread.private_meta,
        private_run_metadata=run.private_meta,
    )


def hook_outcome(context: RunContext) -> HookOutcome:
    """What the functions left in the context, for the commit of their step."""
    return HookOutcome(messages=context.added_messages, metadata=context.metadata_changes)
