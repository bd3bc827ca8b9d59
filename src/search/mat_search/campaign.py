"""The inputs and results of a search, as values; `mat_search.engine` executes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from mat.core import limits
from mat.core.campaign import Certificate, Counterexample, Covered, MissingReply, Recorded, Stability
from mat.core.curve import Chain, ScheduleResult
from mat.core.operator import OperatorSpec
from mat.core.resources import PriceList
from mat.core.run import Finding, Run
from mat.core.search import Stop
from mat.core.spec import Schedule
from mat.core.value import FrozenDict
from mat.core.verdict import Violation
from mat_search.hits import JudgeRun

Confirm: TypeAlias = Callable[[Sequence[Schedule]], Sequence[Run | str | None]]
"""Execute schedules in a fresh process; for a schedule without a run, why there is none, or None."""
BeginConfirming: TypeAlias = Callable[[Sequence[tuple[bool, Sequence[Schedule]]]], bool]
"""Is told what fresh processes will be asked for next, in this order (whether by `confirm_again`, and the schedules), and that
nothing of what it was told before will be. Returns whether some of that is executed at the same time."""
Progress: TypeAlias = Callable[[int, int | None, int], None]
"""(executions, cheapest cost found or None, bound proven so far)."""
EndExploring: TypeAlias = Callable[[int], str]
"""How many more executions the checks will take -> why exploring ends now, to leave time for them; "" to go on."""
ShareInterval: TypeAlias = Callable[[int, int], FrozenDict]
"""(failures, runs) -> {value, low, high, n, confidence, method}, valid at any number of looks."""
DecideShare: TypeAlias = Callable[[int, int], str]
"""(failures, runs) -> "below" or "above" the target, "" if undecided."""


def hard_violations(run: Run) -> tuple[Violation, ...]:
    """Return the hard violations of a `mat.Run`, by step: what a search counts as a failure by default.

    >>> from mat_search import hard_violations
    >>> with mat.run([mat.contract("silent", mat.temporal.always(~mat.temporal.action("message")))]) as run:
    ...     text = mat.message("user", "hello")
    >>> [found.step for found in hard_violations(run.result)]
    [0]

    Source: A1.6 (Eq. 4).
    """
    return run.failures


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """The settings of a search.

    `stop`: "budget" continues until the budget is exhausted and reports one counterexample per failure signature; "cheapest"
    ends once everything up to the cost of the cheapest one is done; "first" once nothing can be cheaper. `max_runs` limits
    what the strategy executes; repetitions, samples, shrinking and confirmation come on top. `shrink_runs`: executions that
    shrinking one hit may take, None for what is left of `max_runs`, and limits.SHRINK_LEAST in any case. `curve`: how many
    random chains of schedules to grow as well (mat_search.curve), for robustness curves. `interval` and `decided` serve the
    statistical strategy (mat_search.statistical): the interval that replaces a proof, and when to stop. `prices` tell what
    live calls would cost where replies are not recorded.

    - `operators`: the specifications of the fault operators. `budget`: the largest total cost of a schedule, an integer.
      `strategy`: one of `STRATEGIES`, or "statistical".
    - `prune`: whether schedules that cannot differ from an executed one are skipped. `stability_runs`: how often each
      counterexample is repeated.
    - `judge`: a function of a `mat.Run` that returns a tuple of the violations to search for.
    - `interval(failures, runs)` returns the interval of the share as a mapping with value, low, high, n, confidence and
      method; `decided(failures, runs)` returns "below", "above" or "".

    >>> from mat_search import Campaign
    >>> import mat_faults
    >>> Campaign(operators=tuple(item.spec() for item in mat_faults.service.operators()), budget=4).strategy
    'exhaustive'

    Source: A3.2.
    """

    operators: tuple[OperatorSpec, ...]
    budget: int = limits.BUDGET
    max_runs: int = limits.MAX_RUNS
    shrink_runs: int | None = None
    strategy: str = "exhaustive"
    stop: Stop = "budget"
    prune: bool = True
    stability_runs: int = limits.STABILITY_RUNS
    curve: int = 0
    judge: JudgeRun = field(default=hard_violations, compare=False)
    interval: ShareInterval | None = field(default=None, compare=False)
    decided: DecideShare | None = field(default=None, compare=False)
    prices: PriceList = field(default_factory=PriceList, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer that is not complete: `done` of the `known` schedules of this cost were executed or skipped.

    More of them may become known as others are executed.
    """

    cost: int
    done: int
    known: int


ShowLayer: TypeAlias = Callable[[Layer | None], None]
"""Called with the next layer, None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignResult:
    """`counterexamples`: one per failure signature, severest first, then cheapest; the stability of a flaky one shows that.

    `unconfirmed`: not reproduced, or in this process only. `nominal_stability` counts how often the nominal run was repeated,
    the fresh process included. `searched`: executions that the strategy asked for, `shrinking` that shrinking took;
    `executions`: all, checks included, of which `recalled` were taken from a journal. `first`: executions until the first hit.
    `executed` are the executed schedules that decide the worst case at every budget, `chains` random ones that grew, `covered`
    the coverage of all. `complete`: the cost up to which nothing is left to execute, whether or not the checks held; -1 for
    strategies that prove nothing, and before the undisturbed run. `layer`: the next one, None if it is beyond the budget.
    `limited`: a limit ended the search or its checks. `recorded`: how far recorded replies reached, None where every request
    was answered. `interrupted`: a KeyboardInterrupt ended a part of the search, and the caller should end the session after it
    has reported the findings.

    `certificate`: what was proven, and why the search ended.

    >>> from mat_search import Campaign, search
    >>> def evaluate(spec):
    ...     with mat.run(schedule=spec.schedule, states=True) as run:
    ...         mat.finish("done")
    ...     return run.result
    >>> found = search(evaluate(mat.spec.RunSpec()), evaluate, Campaign(operators=(), budget=4))
    >>> found.counterexamples, found.nominal.outcome
    ((), 'pass')

    Source: A3.2.
    """

    nominal: Run
    nominal_stability: Stability
    counterexamples: tuple[Counterexample, ...]
    unconfirmed: tuple[Counterexample, ...]
    certificate: Certificate
    executions: int
    searched: int = 0
    shrinking: int = 0
    first: int | None = None
    recalled: int = 0
    findings: tuple[Finding, ...] = ()
    complete: int = -1
    layer: Layer | None = None
    limited: bool = False
    recorded: Recorded | None = None
    interrupted: bool = False
    executed: tuple[ScheduleResult, ...] = ()
    chains: tuple[Chain, ...] = ()
    covered: Covered = field(default_factory=Covered)


class SearchStopped(Exception):  # noqa: N818  (it is no error: what was found and proven so far is kept)
    """Ends a search early, with the reason that its certificate gives; `evaluate` may raise it. What was found is kept.

    >>> from mat_search import SearchStopped
    >>> str(SearchStopped("out of quota"))
    'out of quota'

    Source: A3.2.
    """


class Unanswered(SearchStopped):
    """An execution needed a reply that is not recorded; `evaluate` may raise it. The search goes on with other schedules.

    >>> from mat_search import SearchStopped
    >>> from mat_search.campaign import Unanswered
    >>> issubclass(Unanswered, SearchStopped)
    True
    """

    def __init__(self, why: str, missing: MissingReply | None = None) -> None:
        self.missing = missing
        super().__init__(why)
