"""What the name of a tool says about its effect, where nobody declared it: a heuristic, for imports and for some contracts."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

READING_VERBS: Final = frozenset(
    {
        "calculate", "check", "compute", "count", "describe", "fetch", "find", "get", "list", "look", "lookup", "query", "read",
        "retrieve", "search", "show", "think", "view",
    }
)  # fmt: skip
"""First words of the names of tools that only read."""
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")


def words_of(tool: str) -> tuple[str, ...]:
    """The words of a tool's name in lower case: get_order, getOrder and GetOrder have the same."""
    return tuple(word.lower() for word in _WORDS.findall(tool))


@lru_cache(maxsize=4_096)
def sounds_like_reading(tool: str) -> bool:
    """Whether the first word of a tool's name is a reading verb; of `Client.get_order`, the first word after the point."""
    words = words_of(tool.rpartition(".")[2])
    return bool(words) and words[0] in READING_VERBS
