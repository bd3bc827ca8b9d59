"""One search of one item: executes what a strategy asks for, checks everything it rests on, shrinks and confirms the hits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, TypeVar

from mat.core import limits
from mat.core.campaign import Certificate, Counterexample, Stability
from mat.core.errors import SpecError
from mat.core.operator import OperatorSpec, grid_data
from mat.core.run import Finding, Run, prefixes, same_violation
from mat.core.spec import NO_SCHEDULE, RunSpec, Schedule
from mat.core.value import FrozenDict
from mat.core.verdict import Violation
from mat.kernel.entropy import Entropy
from mat_search.exhaust import Exhaustive
from mat_search.sample import RandomSearch
from mat_search.shrink import shrink
from mat_search.space import Edge
from mat_search.strategy import Strategy

StrategyName: TypeAlias = Literal["exhaustive", "random"]
T = TypeVar("T")
STRATEGIES = ("exhaustive", "random")
Evaluate: TypeAlias = Callable[[RunSpec], Run]
Judge: TypeAlias = Callable[[Run], tuple[Violation, ...]]
"""What counts as a failure of a run: its hard violations by default, and the task where that is the objective."""
Confirm: TypeAlias = Callable[[Sequence[Schedule]], Sequence[Run | None]]
"""Execute schedules in a fresh process; None where a run could not be had."""
Progress: TypeAlias = Callable[[int, int | None, int], None]
"""(executions, cheapest cost found or None, bound proven so far)."""


def hard_violations(run: Run) -> tuple[Violation, ...]:
    return run.failures


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """How to search. `all_contracts`: go on to the budget after the first hit, for an item with expected weaknesses."""

    operators: tuple[OperatorSpec, ...]
    budget: int = limits.BUDGET
    max_runs: int = limits.MAX_RUNS
    strategy: StrategyName = "exhaustive"
    all_contracts: bool = False
    prune: bool = True
    stability_runs: int = limits.STABILITY_RUNS
    judge: Judge = field(default=hard_violations, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignResult:
    """`counterexamples`: one per contract, cheapest first. `unconfirmed`: seen in the search, not in a fresh process."""

    nominal: Run
    counterexamples: tuple[Counterexample, ...]
    unconfirmed: tuple[Counterexample, ...]
    certificate: Certificate
    executions: int
    first: int | None = None
    findings: tuple[Finding, ...] = ()


class _WithdrawnError(Exception):
    """A check failed: what was concluded from earlier runs no longer holds."""


class SearchStopped(Exception):  # noqa: N818  (it is no error: what was found and proven so far is kept)
    """Ends a search early, with the reason that its certificate gives; `evaluate` may raise it."""


def search(
    nominal: Run,
    evaluate: Evaluate,
    campaign: Campaign,
    *,
    confirm: Confirm | None = None,
    progress: Progress | None = None,
) -> CampaignResult:
    """Find, for each contract, a cheapest schedule within the budget that breaks it; say how far that is proven.

    `nominal` is the run that was reported; the search begins by reproducing it. Without `confirm`, counterexamples are re-executed in this process only.
    """
    return _Search(nominal, evaluate, campaign, confirm, progress).run()


class _Search:
    def __init__(
        self, nominal: Run, evaluate: Evaluate, campaign: Campaign, confirm: Confirm | None, progress: Progress | None
    ) -> None:
        if campaign.strategy not in STRATEGIES:
            raise SpecError(what=f"no strategy is called {campaign.strategy!r}", fix=f"use one of {', '.join(STRATEGIES)}")
        self._reported, self._spec = nominal, nominal.spec.under(NO_SCHEDULE)
        self._evaluate, self._campaign = evaluate, campaign
        self._confirm, self._progress = confirm, progress
        self._entropy = Entropy(self._spec.base)
        self._executions = 0
        self._first: int | None = None
        self._open_cost: int | None = None
        self._nominal: Run | None = None
        self._hits: dict[str, tuple[Schedule, Run, Violation]] = {}
        self._endings: dict[str, str] = {}
        self._executed: list[tuple[Schedule, str]] = []
        self._checks: dict[str, int] = {"prefix": 0, "nominal": 0, "skipped": 0, "repeated": 0, "fresh": 0}
        self._known: dict[Schedule, tuple[Run, tuple[Violation, ...]]] = {}

    def _strategy(self) -> Strategy:
        campaign = self._campaign
        if campaign.strategy == "random":
            return RandomSearch(campaign.operators, budget=campaign.budget, stream=self._entropy.stream("search/random"))
        return Exhaustive(campaign.operators, budget=campaign.budget, prune=campaign.prune)

    def run(self) -> CampaignResult:
        strategy = self._strategy()
        reason, proven = "", True
        try:
            try:
                self._explore(strategy)
            except SearchStopped as stopped:
                reason = str(stopped)
            self._verify(strategy)
        except (_WithdrawnError, SearchStopped) as withdrawn:
            reason, proven = str(withdrawn), False
        except KeyboardInterrupt:
            reason, proven = "interrupted", False
            if not self._hits:
                raise
        confirmed, unconfirmed = self._shrunk()
        if unconfirmed and proven:
            reason, proven = "a counterexample did not reproduce in a fresh process: state outlives a run", False
        assert self._nominal is not None
        certificate = self._certificate(strategy, reason, proven=proven)
        return CampaignResult(
            nominal=self._nominal,
            counterexamples=tuple(sorted(confirmed, key=lambda item: (item.cost, item.verdict.contract))),
            unconfirmed=tuple(unconfirmed),
            certificate=certificate,
            executions=self._executions,
            first=self._first,
            findings=self._nominal.findings,
        )

    # -- exploring --------------------------------------------------------------------------------------------------

    def _explore(self, strategy: Strategy) -> None:
        stop_above: int | None = None
        while (edge := strategy.ask()) is not None:
            self._open_cost = edge.cost
            if stop_above is not None and edge.cost > stop_above:
                return
            if self._executions >= self._campaign.max_runs:
                raise SearchStopped(f"{self._campaign.max_runs} executions do not cover the budget of {self._campaign.budget}")
            run = self._execute(edge.schedule)
            if self._nominal is None:
                self._nominal = run
                self._refuse_uncontrolled(run)
                self._same(self._reported, run, "the nominal run, repeated before the search,")
            else:
                self._check_prefix(edge, run)
            self._endings.setdefault(edge.key, prefixes(run)[-1])
            self._executed.append((edge.schedule, run.head))
            if self._hit(edge.schedule, run) and not self._campaign.all_contracts and stop_above is None:
                stop_above = edge.cost
            strategy.tell(edge, run)
            self._open_cost = None
            if self._progress is not None:
                cheapest = min((schedule.cost for schedule, _, _ in self._hits.values()), default=None)
                self._progress(self._executions, cheapest, max(0, strategy.bound))

    def _execute(self, schedule: Schedule) -> Run:
        self._executions += 1
        return self._evaluate(self._spec.under(schedule))

    def _hit(self, schedule: Schedule, run: Run) -> bool:
        """Whether this run breaks a contract for the first time. A nominal violation is not the search's to report."""
        violations = self._campaign.judge(run)
        new = False
        for violation in violations:
            if violation.contract not in self._hits and len(schedule):
                assert self._nominal is not None
                if any(same_violation(violation, other) for other in self._campaign.judge(self._nominal)):
                    continue
                self._hits[violation.contract] = (schedule, run, violation)
                self._first = self._first or self._executions
                new = True
        if new:
            self._check_nominal("after a counterexample")
        return new

    # -- checks (DESIGN decision 9) ---------------------------------------------------------------------------------

    def _refuse_uncontrolled(self, run: Run) -> None:
        if run.uncontrolled:
            finding = run.uncontrolled[0]
            raise _WithdrawnError(f"the run is not controlled ({finding.code}): {finding.message}")

    def _check_prefix(self, edge: Edge, run: Run) -> None:
        """The child must have lived its parent's life up to the injected site."""
        self._checks["prefix"] += 1
        states = prefixes(run)
        if len(states) > edge.step and states[edge.step] == edge.state and not _wrong_site(edge, run):
            self._refuse_uncontrolled(run)
            return
        for step, (before, after) in enumerate(zip(edge.lineage, states, strict=False)):
            if before != after:
                differing = max(0, step - 1)
                raise _WithdrawnError(
                    f"{_at(run, differing)} differs from the run before it, before anything was injected; {_CAUSES}"
                )
        raise _WithdrawnError(f"step {edge.step} was not reached again under the same schedule; {_CAUSES}")

    def _check_nominal(self, when: str) -> None:
        assert self._nominal is not None
        self._checks["nominal"] += 1
        again = self._execute(NO_SCHEDULE)
        self._same(self._nominal, again, f"the nominal run, repeated {when},")

    def _same(self, one: Run, other: Run, what: str) -> None:
        if one.head == other.head:
            return
        before, after = prefixes(one), prefixes(other)
        differing = next(
            (step for step, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
        )
        raise _WithdrawnError(f"{what} differs at {_at(other, max(0, differing - 1))}; {_CAUSES}")

    def _verify(self, strategy: Strategy) -> None:
        """At the end: a sample of skipped edges is executed, a sample of executed ones repeated, and the nominal run."""
        skipped = getattr(strategy, "skipped", [])
        for edge in self._sample([edge for edge in skipped if edge.key in self._endings], "skipped"):
            self._checks["skipped"] += 1
            run = self._execute(edge.schedule)
            self._check_prefix(edge, run)
            if prefixes(run)[-1] != self._endings[edge.key]:
                raise _WithdrawnError(
                    f"a skipped schedule ({_words(edge.schedule)}) did not end as the equal one did; "
                    "something the trace does not show decides (give a mat_state_digest fixture)"
                )
        early, late = self._executed[1 : 1 + limits.SKIP_SAMPLE_LEAST], self._executed[1 + limits.SKIP_SAMPLE_LEAST :]
        for schedule, head in [*early, *self._sample(late, "repeated")]:
            self._checks["repeated"] += 1
            run = self._execute(schedule)
            if run.head != head:
                raise _WithdrawnError(
                    f"the same schedule ({_words(schedule)}) gave another run at the end of the search; {_CAUSES}"
                )
        self._check_nominal("at the end")

    def _sample(self, population: Sequence[T], name: str) -> list[T]:
        size = max(limits.SKIP_SAMPLE_LEAST, len(population) * limits.SKIP_SAMPLE_PERCENT // 100)
        if len(population) <= size:
            return list(population)
        chosen = sorted(self._entropy.stream(f"search/{name}").sample(range(len(population)), size))
        return [population[index] for index in chosen]

    # -- hits -------------------------------------------------------------------------------------------------------

    def _shrunk(self) -> tuple[list[Counterexample], list[Counterexample]]:
        found: list[tuple[Counterexample, Schedule]] = []
        for contract in sorted(self._hits):
            schedule, run, violation = self._hits[contract]
            result = shrink(
                schedule, run, violation, operators=self._campaign.operators, execute=self._rerun, most=self._campaign.max_runs
            )
            verdict = next(item for item in self._campaign.judge(result.run) if same_violation(item, violation))
            found.append((Counterexample(verdict=verdict, run=result.run), result.schedule))
        return self._confirmed(found)

    def _rerun(self, schedule: Schedule) -> tuple[Run, tuple[Violation, ...]]:
        known = self._known.get(schedule)
        if known is None:
            self._executions += 1
            run = self._evaluate(self._spec.under(schedule))
            known = self._known[schedule] = (run, self._campaign.judge(run))
        return known

    def _confirmed(self, found: Sequence[tuple[Counterexample, Schedule]]) -> tuple[list[Counterexample], list[Counterexample]]:
        """First in a fresh process, then again here; the file keeps the fresh run, which no earlier run can have touched."""
        fresh: Sequence[Run | None] = [None] * len(found)
        if found and self._confirm is not None:
            fresh = self._confirm([schedule for _, schedule in found])
            self._checks["fresh"] += len(found)
        good: list[Counterexample] = []
        bad: list[Counterexample] = []
        for (item, schedule), outside in zip(found, fresh, strict=True):
            runs = [] if self._confirm is None else [outside]
            while len(runs) < self._campaign.stability_runs:
                self._executions += 1
                runs.append(self._evaluate(self._spec.under(schedule)))
            shows = [run is not None and self._shows(run, item.verdict) for run in runs]
            stability = Stability(runs=len(shows), reproduced=sum(shows))
            kept = replace(item, stability=stability, run=outside if outside is not None and shows[0] else item.run)
            verdict = next(found for found in self._campaign.judge(kept.run) if same_violation(found, item.verdict))
            (good if shows[0] else bad).append(replace(kept, verdict=verdict))
        return good, bad

    def _shows(self, run: Run, verdict: Violation) -> bool:
        return any(same_violation(verdict, found) for found in self._campaign.judge(run))

    def _certificate(self, strategy: Strategy, reason: str, *, proven: bool) -> Certificate:
        if self._campaign.strategy == "random":
            proven, reason = False, reason or "random search proves nothing"
        bound = strategy.bound if self._open_cost is None else min(strategy.bound, self._open_cost - 1)
        return Certificate(
            proven=proven,
            reason=reason,
            bound=max(0, bound) if proven else 0,
            executions=self._executions,
            states=len(getattr(strategy, "seen", ())),
            skipped=FrozenDict({"equal state": len(getattr(strategy, "skipped", ()))}),
            grid=grid_data(self._campaign.operators),
            seeds=(self._spec.seed,),
            checks=FrozenDict(self._checks),
        )


_CAUSES = "likely causes: state shared between runs, a real clock, ids, threads, or the order of a set"


def _wrong_site(edge: Edge, run: Run) -> bool:
    """Whether the step that was to carry the injection is another one now."""
    if edge.added is None:
        return False
    record = next((item for item in run.records if item.step == edge.step), None)
    return record is None or any(item == edge.added for item in run.unreached)


def _at(run: Run, step: int) -> str:
    record = next((item for item in run.records if item.step == step), None)
    return f"step {step}" if record is None else f"step {step} ({record.site})"


def _words(schedule: Schedule) -> str:
    return ", ".join(f"{item.operator} at {item.site}" for item in schedule) or "empty"
