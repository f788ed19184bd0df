"""How a log line names the step that it is about, the same way in every process."""

from pai.store.tables import Step, StepKind, Thread

_LONGEST = 300


def named(thread: Thread, step: Step) -> str:
    """`agent=main thread=t1 run=run_… step=step_… kind=tool tool=order call=call_…`, for the end of a line."""
    facts = {
        "agent": step.agent,
        "owner": thread.owner,
        "thread": thread.thread_id,
        "run": step.run_id,
        "step": step.step_id,
        "attempt": step.attempt,
        "kind": step.kind,
    }
    if step.kind == StepKind.tool:
        facts |= {"tool": step.name or "", "call": step.tool_call_id or ""}
    elif step.name:
        facts["hook"] = step.name
    return " ".join(f"{key}={value}" for key, value in facts.items())


def shortened(text: str) -> str:
    """One line of bounded length: a reason in front of the name."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
