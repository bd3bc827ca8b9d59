"""Read token usage from replies, and requested waits from errors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from mat.core.value import EMPTY, FrozenDict

_USAGE: Final = {
    "input_tokens": (
        "input_tokens", "prompt_tokens", "request_tokens", "prompt_token_count", "promptTokenCount", "inputTokens",
    ),
    "output_tokens": (
        "output_tokens", "completion_tokens", "response_tokens", "candidates_token_count", "candidatesTokenCount",
        "outputTokens",
    ),
    "reasoning_tokens": ("reasoning_tokens", "thoughts_token_count", "thoughtsTokenCount"),
    "total_tokens": ("total_tokens", "total_token_count", "totalTokenCount", "totalTokens"),
}  # fmt: skip
"""Our names, and those of OpenAI (chat and responses), Anthropic, Gemini, Bedrock, LangChain and Pydantic AI."""
_PLACES: Final = ("usage", "usage_metadata", "usageMetadata", "token_usage")
_CACHED: Final = ("cache_creation_input_tokens", "cache_read_input_tokens")
"""Anthropic counts them apart from input_tokens; they are input all the same."""


def usage_of(reply: Any) -> FrozenDict:
    """Token usage of a model's reply, or of the last chunk that has it, in the shapes of the common clients."""
    if isinstance(reply, list | tuple):
        found = (usage_of(chunk) for chunk in reversed(reply[-_LAST:]))
        return next((usage for usage in found if usage), EMPTY)
    try:
        usage = next((found for place in _PLACES if (found := _member(reply, place)) is not None), None)
        if callable(usage):
            usage = usage()
    except Exception:  # a client's own property failed: the usage is unknown, the reply stands
        return EMPTY
    return EMPTY if usage is None else FrozenDict(_counts(usage))


_LAST: Final = 4
"""How many chunks from the end of a stream may hold its usage."""


def _counts(usage: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for ours, names in _USAGE.items():
        for name in names:
            value = _member(usage, name)
            if isinstance(value, int) and not isinstance(value, bool):
                counts[ours] = value
                break
    cached = [value for name in _CACHED if isinstance(value := _member(usage, name), int) and not isinstance(value, bool)]
    if cached and "input_tokens" in counts and "total_tokens" not in counts:
        counts["input_tokens"] += sum(cached)
    return counts


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def retry_after_ms(error: BaseException) -> int | None:
    """The wait that an exception asks for, in milliseconds: `retry_after_s` or `retry_after` (seconds), or the header of its
    response; None if there is none, or it is a date."""
    try:
        for name in ("retry_after_s", "retry_after"):
            seconds = getattr(error, name, None)
            if seconds is not None:
                break
        else:
            headers = getattr(getattr(error, "response", None), "headers", None)
            seconds = None if headers is None else headers.get("retry-after", headers.get("Retry-After"))
        if seconds is None or isinstance(seconds, bool):
            return None
        wait = float(seconds)
        return math.ceil(wait * 1000) if 0 <= wait < 1e12 else None
    except Exception:  # a date, or a property of the client's own that failed: no wait is known
        return None
