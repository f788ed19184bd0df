"""Application data goes to listeners once: not again after a reconnect, a repair, or a new attempt of a model step."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence

from pai.client.binding import Binding
from pai.client.messages import PaiCanonicalMessage
from pai.client.part_types import is_application_data
from pai.client.parts import Json, PaiDataPart
from pai.protocol.events import ChunkEvent
from pai.protocol.json import dumps

DataListener = Callable[[PaiDataPart], None]

logger = logging.getLogger(__name__)


class _Observed:
    """What listeners saw of one message.

    A new attempt of a model step begins with `reset-step` and says again what the last one said: `replayed` counts the
    parts without an id of which the same number will be passed over. Parts with an id are known by their latest data.
    """

    def __init__(self) -> None:
        self.latest: dict[tuple[str, str], bytes] = {}
        self.step: Counter[bytes] = Counter()
        self.replayed: Counter[bytes] = Counter()

    def is_new(self, chunk: Json) -> bool:
        data = dumps([chunk["type"], chunk.get("data")])
        part_id = chunk.get("id")
        if part_id is not None:
            key = (chunk["type"], part_id)
            new = self.latest.get(key) != data
            self.latest[key] = data
            return new
        self.step[data] += 1
        if self.replayed[data] > 0:
            self.replayed[data] -= 1
            return False
        return True


class DataListeners:
    """Calls listeners in the order in which they subscribed. One that raises is logged, and the others go on."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._listeners: dict[object, DataListener] = {}
        self._observed: dict[str, _Observed] = {}
        self._polled: dict[str, tuple[PaiCanonicalMessage, Counter[bytes]]] | None = None

    def subscribe(self, listener: DataListener) -> Callable[[], None]:
        """-> unsubscribe; calling it twice does no harm."""
        key = object()
        self._listeners[key] = listener

        def unsubscribe() -> None:
            self._listeners.pop(key, None)

        return unsubscribe

    def observe(self, event: ChunkEvent) -> None:
        chunk, message_id = event["chunk"], event["messageId"]
        kind = chunk["type"]
        if kind == "start-step" and message_id in self._observed:
            self._observed[message_id].step.clear()
        elif kind == "reset-step" and message_id in self._observed:
            observed = self._observed[message_id]
            observed.replayed, observed.step = observed.step + observed.replayed, Counter()
        elif kind in ("finish", "abort"):
            self._observed.pop(message_id, None)
        elif is_application_data(kind) and self._observed.setdefault(message_id, _Observed()).is_new(chunk):
            self._deliver(PaiDataPart(chunk, self._binding))

    def compare(self, messages: Sequence[PaiCanonicalMessage]) -> None:
        """For a thread that is polled: what was in no poll before. The first one only says what there is."""
        first, polled = self._polled is None, self._polled or {}
        self._polled = {}
        for message in messages:
            shown, heard = polled.get(message.id, (None, Counter[bytes]()))
            if shown is not message:
                left, heard = Counter(heard), Counter(heard)
                for part in message.parts:
                    if isinstance(part, PaiDataPart):
                        signature = dumps([part.type, part.id, part.raw.get("data")])
                        left[signature] -= 1
                        if left[signature] < 0:
                            heard[signature] += 1
                            if not first:
                                self._deliver(part)
            self._polled[message.id] = (message, heard)

    def _deliver(self, part: PaiDataPart) -> None:
        for listener in list(self._listeners.values()):
            try:
                listener(part)
            except Exception:
                logger.exception("A data listener failed")
