"""Batches: what writers publish in one call, and what they are told."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pai.log.entries import Entry, Field, ResetReason
from pai.log.sequences import sequence_of


class PublishStatus(StrEnum):
    PUBLISHED = "published"
    DUPLICATE = "duplicate"
    """This batch is in the log already, under the sequences that are given."""
    FENCED = "fenced"
    LOST = "lost"
    """The log is gone, or of another epoch: raise the epoch in SQL and open the log under it."""
    EARLY = "early"
    """A transaction that committed before this one has not been published yet."""
    DROPPED = "dropped"
    """Watchers were told already of this revision or a later one."""
    DELETED = "deleted"


@dataclass(slots=True, kw_only=True)
class LiveBatch:
    """Chunks of a model step, under its fence; `batch` counts from 1 within the attempt.

    With `reason` a reset goes first, which also sets the log's revision to `revision`. `opening`: whoever raised the
    thread's epoch in SQL publishes once so. `seen`: the last sequence of this epoch that the writer was given; a log
    that has less was restored from an older state, and is lost.
    """

    version: str
    epoch: int
    number: int
    attempt: int
    batch: int
    entries: Sequence[Field]
    opening: bool = False
    revision: int | None = None
    reason: ResetReason | None = None
    seen: int = 0

    def __post_init__(self) -> None:
        if self.opening and self.reason is None:
            self.reason = ResetReason.LOST


@dataclass(slots=True, kw_only=True)
class TransactionBatch:
    """What one transaction did to a thread: its chunks, then one update.

    `floor`: the lowest number of a live step, or the next number; publishes of lower ones are refused from now on.
    `finished`: numbers of the steps that the transaction settled. `opening`: as in `LiveBatch`; with `reason` a reset
    goes first (a new thread opens epoch 1 without). `forced`: when the transaction before it still has not been
    published, publish one reset instead. `pushes`: values for lists of the same server, as (key, value): they go
    whatever becomes of the entries, but not before the transaction that committed before this one.
    """

    version: str
    epoch: int
    revision: int
    entries: Sequence[Field]
    floor: int
    finished: Sequence[int] = ()
    opening: bool = False
    reason: ResetReason | None = None
    seen: int = 0
    forced: bool = False
    pushes: Sequence[tuple[bytes, bytes]] = ()


Batch = LiveBatch | TransactionBatch


@dataclass(frozen=True, slots=True)
class PublishResult:
    """`first` and `last` are the sequences of the batch, a reset that went first included; 0 when nothing is known."""

    status: PublishStatus
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class FenceResult:
    """`status`: published (the fences are up), lost or deleted. `last`: the last sequence, 0 when lost or deleted."""

    status: PublishStatus
    last: int
    revision: int


class LogState(StrEnum):
    LIVE = "live"
    MISSING = "missing"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class LogRead:
    """One consistent read: the head of the log, and entries in order.

    `oldest` is the sequence of the first entry that is still there, 0 when there is none.
    """

    state: LogState
    epoch: int = 0
    n: int = 0
    revision: int = 0
    oldest: int = 0
    entries: list[Entry] = field(default_factory=list)

    @property
    def last(self) -> int:
        """The last sequence; 0 when the log is missing or deleted."""
        return sequence_of(self.epoch, self.n)
