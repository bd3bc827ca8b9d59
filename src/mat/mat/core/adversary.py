"""Adaptive adversaries: what one sees at a crossing, and what it answers (A3.3; Eq. 9 of the paper: h_t = Obs(r_t)).

The types are here because the recorder asks and the search answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from mat.core import limits
from mat.core.errors import SpecError
from mat.core.record import ActionKind
from mat.core.spec import Perturbation
from mat.core.value import EXACT_FIELDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The safe facts of the call that is about to be served and of the steps before it (h_t = Obs(r_t)).

    No texts, arguments or replies. `site` is where an answer binds; at the boundary `order` it means who goes first at
    the ask (`boundary` and `name` are then those of the order boundary). `operators` are the ids that can act here: their
    boundary and kinds fit, and the port allows them. `rest` is what is left of the budget, `injected` the operators chosen so
    far in this run, in order. `errors` counts earlier calls of this port, by anybody, that failed; `open` the obligations that
    would be violations if nothing more came; `broken` holds the ids of the contracts broken so far, in the order in which they
    were first broken.
    """

    __pydantic_config__ = EXACT_FIELDS
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
    operators: tuple[str, ...] = ()
    injected: tuple[str, ...] = ()
    errors: int = 0
    open: int = 0
    broken: tuple[str, ...] = ()


Choose: TypeAlias = Callable[[Seen], Perturbation | None]
"""Called once for each call that an operator can act on and that no perturbation of the run covers yet; None lets it pass.

The answer binds to that call: its site is `Seen.site`, or a range of calls that begins there. Its cost is at least 1 and at
most `Seen.rest`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptive:
    """A Choose with its own budget B of Eq. 9; a plain function has `limits.BUDGET`. Raises SpecError for a budget below 0."""

    choose: Choose
    budget: int = limits.BUDGET

    def __post_init__(self) -> None:
        if not isinstance(self.budget, int) or isinstance(self.budget, bool) or self.budget < 0:
            raise SpecError(what=f"budget={self.budget!r} is not an integer >= 0", fix="give the largest total cost of a run")

    def __call__(self, seen: Seen) -> Perturbation | None:
        return self.choose(seen)


def budget_of(choose: Choose) -> int:
    """The budget that a Choose has in one run."""
    return choose.budget if isinstance(choose, Adaptive) else limits.BUDGET
