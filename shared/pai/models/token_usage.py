"""Token counts of pydantic-ai as the wire has them; what the provider did not send stays absent."""

from pydantic_ai.usage import RequestUsage

from pai.protocol.usage import InputTokenDetails, OutputTokenDetails, UsageSummary


def usage_summary(usage: RequestUsage, *, provider: str) -> UsageSummary:
    """The summary of one provider call.

    pydantic-ai has zero both for "none" and for "not sent", but only what was sent is set on the instance; except for
    Google, where it sets every count, and Google itself leaves out zeros.
    """
    if usage.unmeasured_requests:
        return UsageSummary()
    counts = {name: value for name, value in vars(usage).items() if value or provider != "google"}
    read, written = counts.get("cache_read_tokens"), counts.get("cache_write_tokens")
    given, made = counts.get("input_tokens"), counts.get("output_tokens")
    reasoning = _reasoning(usage, counts.get("output_reasoning_tokens"))
    return UsageSummary(
        input_tokens=given,
        output_tokens=made,
        total_tokens=None if given is None or made is None else given + made,
        input_token_details=InputTokenDetails(
            no_cache_tokens=None if given is None else max(0, given - (read or 0) - (written or 0)),
            cache_read_tokens=read,
            cache_write_tokens=written,
        ),
        output_token_details=OutputTokenDetails(
            text_tokens=None if made is None or reasoning is None else max(0, made - reasoning),
            reasoning_tokens=reasoning,
        ),
    )


def _reasoning(usage: RequestUsage, sent: int | None) -> int | None:
    if sent is not None:
        return sent
    for name in ("reasoning_tokens", "thoughts_tokens", "thinking_tokens"):
        if name in usage.details:
            return usage.details[name]
    return None
