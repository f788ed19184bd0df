"""The message that brings a step to a worker: the very one that Celery's own producer would send.

Celery's producer costs more than everything else that a send does, in a thread of its own. So where the broker is the
Redis of the event log, the message of a step travels with the publication of the transaction that made it.
"""

from base64 import b64encode
from uuid import uuid4

from pai.protocol.json import dumps

STEP_TASK = "pai.step"
KEY_PREFIX = "pai:"
"""Before every key that Celery uses in Redis."""

_NOTHING_AFTER = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


def queue_key(queue: str) -> bytes:
    """The list in Redis that workers of a queue take their messages from."""
    return f"{KEY_PREFIX}{queue}".encode()


def step_message(step_id: str, queue: str) -> bytes:
    """Celery's message protocol, version 2, in the envelope of kombu's virtual transports."""
    task_id = str(uuid4())
    return dumps(
        {
            "body": b64encode(dumps([[step_id], {}, _NOTHING_AFTER])).decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {
                "lang": "py",
                "task": STEP_TASK,
                "id": task_id,
                "shadow": None,
                "eta": None,
                "expires": None,
                "group": None,
                "group_index": None,
                "retries": 0,
                "timelimit": [None, None],
                "root_id": task_id,
                "parent_id": None,
                "argsrepr": f"[{step_id!r}]",
                "kwargsrepr": "{}",
                "origin": "pai",
                "ignore_result": True,
                "replaced_task_nesting": 0,
                "stamped_headers": None,
                "stamps": {},
            },
            "properties": {
                "correlation_id": task_id,
                "reply_to": "",
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": queue},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": str(uuid4()),
            },
        }
    )
