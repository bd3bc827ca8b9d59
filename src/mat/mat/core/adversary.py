"""Adaptive adversaries: what one sees at a call, and what it answers.

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
    """What an adversary sees of the call that is about to be served and of the steps before it. No texts, arguments or replies.

    - `step`, `kind`, `boundary`, `name`, `agent`, `role`, `impact`, `effect`: of the call. `site`: where an answer binds; at
      the boundary "order" it means who goes first at the ask.
    - `rest`: what is left of the budget, in units of cost. `operators`: the ids that can act here. `injected`: those chosen
      so far, in order.
    - `errors`: earlier calls of this port, by anybody, that failed. `open`: the number of obligations that would be
      violations if nothing more came. `broken`: the ids of the contracts broken so far, in the order in which they were
      first broken.

    >>> @mat.tool
    ... def track(parcel): return "Friday"
    >>> seen = []
    >>> with mat.run(adversary=lambda call: seen.append((call.site, call.rest))):
    ...     reply = track(17)
    >>> seen
    [('main/service:track#1', 12)]

    Source: A3.3 (Eq. 9).
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
    """An adversary for `mat.run(adversary=)`, with a budget of its own.

    `choose`: a function of a `mat.spec.Seen` that returns a Perturbation at its site, or None to let the call pass. `budget`:
    the largest total cost of a run, an integer; a plain function has 12. Raises `mat.MatError` for a budget below 0.

    >>> def first_call(seen):
    ...     return None if seen.injected else mat.spec.perturbation("service.timeout", seen.site, cost=4)
    >>> @mat.tool
    ... def track(parcel): return "Friday"
    >>> with mat.run(adversary=mat.spec.Adaptive(choose=first_call, budget=4)):
    ...     track(17)
    Traceback (most recent call last):
        ...
    TimeoutError: track: timed out

    Source: A3.3 (Eq. 9).
    """

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
