"""Token usage: counts a provider did not send stay absent, and sums add what is there."""

from pai.protocol.wire import WireModel


class InputTokenDetails(WireModel):
    no_cache_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None


class OutputTokenDetails(WireModel):
    text_tokens: int | None = None
    reasoning_tokens: int | None = None


class UsageSummary(WireModel):
    """Usage of a model step, a run or a thread; it counts provider calls, not unique transcript tokens."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    input_token_details: InputTokenDetails = InputTokenDetails()
    output_token_details: OutputTokenDetails = OutputTokenDetails()


def empty_usage() -> UsageSummary:
    return UsageSummary()


def has_usage(usage: UsageSummary) -> bool:
    """Whether any count is known."""
    return usage != UsageSummary()


def _sum(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else left + right


def add_usage(left: UsageSummary, right: UsageSummary) -> UsageSummary:
    """The sum, count by count; absent plus absent stays absent."""
    li, ri, lo, ro = (
        left.input_token_details,
        right.input_token_details,
        left.output_token_details,
        right.output_token_details,
    )
    return UsageSummary(
        input_tokens=_sum(left.input_tokens, right.input_tokens),
        output_tokens=_sum(left.output_tokens, right.output_tokens),
        total_tokens=_sum(left.total_tokens, right.total_tokens),
        input_token_details=InputTokenDetails(
            no_cache_tokens=_sum(li.no_cache_tokens, ri.no_cache_tokens),
            cache_read_tokens=_sum(li.cache_read_tokens, ri.cache_read_tokens),
            cache_write_tokens=_sum(li.cache_write_tokens, ri.cache_write_tokens),
        ),
        output_token_details=OutputTokenDetails(
            text_tokens=_sum(lo.text_tokens, ro.text_tokens),
            reasoning_tokens=_sum(lo.reasoning_tokens, ro.reasoning_tokens),
        ),
    )
