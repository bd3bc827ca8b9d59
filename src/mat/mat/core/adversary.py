"""What an adaptive adversary sees at a crossing, and what it answers (A3.3, Eq. 9 of the seed)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from mat.core.record import ActionKind
from mat.core.spec import Perturbation


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """h_t = Obs(r_t): the safe facts of the step that is asked and of those before it; no texts, arguments or replies.

    `rest` is what is left of the budget. `broken` holds the ids of contracts broken so far, in order; `open` counts the
    obligations that stand open; `errors` how many earlier calls of this port failed.
    """

    step: int
    kind: ActionKind
    boundary: str
    name: str
    agent: str
    role: str
    site: str
    impact: str
    effect: str
    rest: int
    errors: int = 0
    open: int = 0
    broken: tuple[str, ...] = ()


Choose: TypeAlias = Callable[[Seen], Perturbation | None]
"""Asked at each crossing of a run; None lets it pass. What it answers binds to that ask and must be within the rest."""
