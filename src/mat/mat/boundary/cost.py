"""The plausibility cost of a perturbation, as integers, and the one rule that counts changed tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_TOKEN = re.compile(r"\w+|[^\w\s]")


def tokens(text: str) -> list[str]:
    """Unicode words, and every other visible character as one token. The rule is part of the run's configuration."""
    return _TOKEN.findall(text)


def changed_tokens(before: str, after: str) -> int:
    """Token edit distance (insert, delete, substitute, each 1)."""
    return _distance(tokens(before), tokens(after))


def _distance(one: Sequence[str], other: Sequence[str]) -> int:
    start = 0
    while start < len(one) and start < len(other) and one[start] == other[start]:
        start += 1
    end = 0
    while end < len(one) - start and end < len(other) - start and one[-1 - end] == other[-1 - end]:
        end += 1
    one, other = one[start : len(one) - end], other[start : len(other) - end]
    if not one or not other:
        return len(one) + len(other)
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, 1):
        previous, row[0] = row[0], i
        for j, right in enumerate(other, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (left != right))
    return row[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """The weights of a perturbation's cost: one unit per `tokens_per_unit` changed tokens, `hook` units for each call that it
    acts on (a span counts as one), `magnitude` units per unit of magnitude.

    Source: c_tokens, c_hook and c_mag.
    """

    tokens_per_unit: int = 4
    hook: int = 4
    magnitude: int = 1

    def of(self, *, changed: int = 0, hooks: int = 0, magnitude: int = 0) -> int:
        return -(-changed // self.tokens_per_unit) + self.hook * hooks + self.magnitude * magnitude


DEFAULT_COST: Final = CostModel()
