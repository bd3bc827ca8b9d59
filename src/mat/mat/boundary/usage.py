"""Token usage of models' replies, in the shapes of the common clients: mappings, objects and streams of either.

Providers count in different ways. Our counts: `input_tokens` is all that the model read, from a cache or not; `output_tokens`
is what it wrote; `reasoning_tokens` is a part of the output, except in Gemini's replies, which count thoughts apart;
`cached_tokens` is the part of the input that came from a cache; `total_tokens` is the provider's own total. A count that
contains another is not added to it. These counts are added, because the provider states them apart:

- Anthropic: `cache_creation_input_tokens` and `cache_read_input_tokens` to the input, where no total is stated.
  https://docs.claude.com/en/docs/build-with-claude/prompt-caching ("Tracking cache performance")
- Bedrock, Converse: `cacheReadInputTokens` and `cacheWriteInputTokens` to the input.
  https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_TokenUsage.html
- Gemini: `toolUsePromptTokenCount` to the input; thoughts to a total that is not stated.
  https://ai.google.dev/api/generate-content#UsageMetadata

Read as they are:

- OpenAI: `usage`, with `completion_tokens_details` and `prompt_tokens_details` (chat), `output_tokens_details` and
  `input_tokens_details` (responses). https://platform.openai.com/docs/api-reference/chat/object
- Bedrock, InvokeModel: the headers `x-amzn-bedrock-input-token-count` and `-output-token-count`, and a stream's
  `amazon-bedrock-invocationMetrics`. https://docs.aws.amazon.com/bedrock/latest/userguide/inference-invoke.html
- Ollama: `prompt_eval_count` and `eval_count`. https://github.com/ollama/ollama/blob/main/docs/api.md
- Cohere: `tokens` of `meta` (v1) or `usage` (v2), else `billed_units`. https://docs.cohere.com/reference/chat
- LangChain: `usage_metadata`. https://python.langchain.com/api_reference/core/messages/
  langchain_core.messages.ai.UsageMetadata.html
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from mat.core.value import EMPTY, FrozenDict

ReadUsage = Callable[[Any], Any]
"""From a reply (of a stream, the list of its chunks) to its token usage: a mapping, a client's usage object, or None."""
_log: Final = logging.getLogger("mat.budget")
_NAMES: Final = {
    "input_tokens": (
        "input_tokens", "prompt_tokens", "request_tokens", "prompt_token_count", "promptTokenCount", "inputTokens",
        "inputTokenCount", "x-amzn-bedrock-input-token-count",
    ),
    "output_tokens": (
        "output_tokens", "completion_tokens", "response_tokens", "candidates_token_count", "candidatesTokenCount",
        "response_token_count", "responseTokenCount", "outputTokens", "outputTokenCount", "x-amzn-bedrock-output-token-count",
    ),
    "reasoning_tokens": ("reasoning_tokens", "thoughts_token_count", "thoughtsTokenCount"),
    "cached_tokens": (
        "cached_tokens", "cache_read_input_tokens", "cacheReadInputTokens", "cached_content_token_count",
        "cachedContentTokenCount", "prompt_cache_hit_tokens", "cache_read_tokens",
    ),
    "total_tokens": ("total_tokens", "total_token_count", "totalTokenCount", "totalTokens"),
}  # fmt: skip
"""Our names, and those of OpenAI (chat and responses), Anthropic, Gemini, Bedrock, DeepSeek, LangChain and Pydantic AI."""
_DETAILS: Final = {
    "reasoning_tokens": (
        ("completion_tokens_details", "reasoning_tokens"), ("output_tokens_details", "reasoning_tokens"),
        ("output_token_details", "reasoning"),
    ),
    "cached_tokens": (
        ("prompt_tokens_details", "cached_tokens"), ("input_tokens_details", "cached_tokens"),
        ("input_token_details", "cache_read"),
    ),
}  # fmt: skip
"""Counts that OpenAI and LangChain state one level deeper."""
_APART: Final = {
    "input_tokens": ("cache_creation_input_tokens", "cache_read_input_tokens"),
    "inputTokens": ("cacheReadInputTokens", "cacheWriteInputTokens"),
    "prompt_token_count": ("tool_use_prompt_token_count",),
    "promptTokenCount": ("toolUsePromptTokenCount",),
}
"""By the name of the input: the counts that it does not contain."""
_GEMINI: Final = ("prompt_token_count", "promptTokenCount")
_PLACES: Final = (
    "usage", "usage_metadata", "usageMetadata", "token_usage", "meta", "HTTPHeaders", "amazon-bedrock-invocationMetrics",
)  # fmt: skip
"""Where a reply holds its usage."""
_PARTS: Final = ("tokens", "billed_units")
"""Where Cohere's usage holds its counts: what the model processed, and what is billed."""
_OLLAMA: Final = {"input_tokens": "prompt_eval_count", "output_tokens": "eval_count"}
_HOLDERS: Final = (
    "response", "message", "delta", "metadata", "ResponseMetadata", "x_groq", "data", "raw", "response_metadata", "llm_output",
    "chunk", "line",
)  # fmt: skip
"""What the events of streams (OpenAI, Anthropic, Bedrock, Cohere, Groq, Mistral) and wrappers (LangChain, LlamaIndex) hold."""
_DEPTH: Final = 2
_DIGITS: Final = 15


def usage_of(reply: Any, read: ReadUsage | None = None) -> FrozenDict:
    """The token usage that a model's reply names, as {"input_tokens": 12, ...}; empty if it names none.

    A list or tuple is a stream. Its counts are the largest of each kind, because providers send the input first and the output
    last, or totals so far; LangChain's chunks hold parts, which are added. `read`: how to read a shape of one's own; if it
    raises, the usage is unknown, and the error is logged.

    >>> dict(usage_of({"usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}}))
    {'input_tokens': 9, 'output_tokens': 4, 'total_tokens': 13}
    """
    if read is not None:
        try:
            named = read(reply)
            return FrozenDict(_counts(named) or _found(named, _DEPTH)[0])
        except Exception:  # the reply stands, whatever became of its usage
            _log.warning("usage= of a model failed, so the usage of its reply is unknown", exc_info=True)
            return EMPTY
    if not isinstance(reply, list | tuple):
        return FrozenDict(_safe(reply)[0])
    counts: dict[str, int] = {}
    for chunk in reply:
        add_chunk(counts, chunk)
    return FrozenDict(counts)


def add_chunk(counts: dict[str, int], chunk: Any) -> None:
    """Add the usage that a chunk of a stream names to the counts of the chunks before it."""
    found, is_part = _safe(chunk)
    for name, count in found.items():
        counts[name] = counts.get(name, 0) + count if is_part else max(counts.get(name, 0), count)


def _safe(reply: Any) -> tuple[dict[str, int], bool]:
    try:
        return _found(reply, _DEPTH)
    except Exception:  # a client's own property failed: the usage is unknown, the reply stands
        return {}, False


def _found(reply: Any, depth: int) -> tuple[dict[str, int], bool]:
    """(the counts, whether they are a part that the other chunks' counts are added to)."""
    if reply is None or isinstance(reply, str | bytes | int | float):
        return {}, False
    for place in _PLACES:
        usage = _member(reply, place)
        if usage is not None and (counts := _counts(usage() if callable(usage) else usage)):
            return counts, place == "usage_metadata" and _member(usage, "input_tokens") is not None
    own = {ours: count for ours, name in _OLLAMA.items() if (count := _whole(_member(reply, name))) is not None}
    if own:
        return own, False
    for holder in _HOLDERS if depth else ():
        inner = _member(reply, holder)
        if holder == "chunk" and isinstance(raw := _member(inner, "bytes"), bytes):  # Bedrock, InvokeModelWithResponseStream
            inner = json.loads(raw)
        if inner is not None and (found := _found(inner, depth - 1))[0]:
            return found
    return {}, False


def _counts(usage: Any, *, is_part: bool = False) -> dict[str, int]:
    """The counts that a usage object states. `is_part`: it is one of Cohere's parts, which have none themselves."""
    counts: dict[str, int] = {}
    read = ""
    for ours, names in _NAMES.items():
        for name in names:
            count = _whole(_member(usage, name))
            if count is not None:
                counts[ours] = count
                read = name if ours == "input_tokens" else read
                break
    for ours, places in _DETAILS.items():
        for details, name in places:
            count = _whole(_member(_member(usage, details), name))
            if count is not None:
                counts.setdefault(ours, count)
    if not counts and not is_part:
        return next((found for name in _PARTS if (found := _counts(_member(usage, name), is_part=True))), {})
    apart = sum(_whole(_member(usage, name)) or 0 for name in _APART.get(read, ()))
    if read in _GEMINI and "total_tokens" not in counts:
        thought = counts.get("reasoning_tokens", 0)
        counts["total_tokens"] = counts["input_tokens"] + apart + counts.get("output_tokens", 0) + thought
    if apart and (read != "input_tokens" or "total_tokens" not in counts):
        counts["input_tokens"] += apart
        if "total_tokens" in counts:
            both = counts["input_tokens"] + counts.get("output_tokens", 0)
            counts["total_tokens"] = max(counts["total_tokens"], both)
    return counts


def _whole(value: Any) -> int | None:
    """A count as an integer; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str):  # a header
        return int(value) if value.isascii() and value.isdigit() and len(value) <= _DIGITS else None
    return None


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
