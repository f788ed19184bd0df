"""Sequences: `epoch * 2**32 + n`, so that a number of an older epoch is always the smaller one and none comes twice."""

EPOCH_BITS = 32
MAX_SEQUENCE = (1 << 53) - 1
"""Numbers up to here survive JSON in every language, and doubles in Lua."""
_MASK = (1 << EPOCH_BITS) - 1


def sequence_of(epoch: int, n: int) -> int:
    """The n-th entry of an epoch; n = 0 is the position before its first entry."""
    return epoch << EPOCH_BITS | n


def epoch_of(sequence: int) -> int:
    return sequence >> EPOCH_BITS


def number_of(sequence: int) -> int:
    return sequence & _MASK
