"""One search of one item: executes what a strategy asks for, checks everything it rests on, shrinks and confirms the hits.

The search stops at a first hit only after every edge of that cost is done, so the cheapest counterexample of each contract
broken at that cost is found. However it stops, its bound is what the strategy has left open (see mat_search.exhaust). A
contract that the nominal run breaks is not searched for: its cheapest counterexample is that run.

Checks come on top of `max_runs`, and one that fails withdraws the certificate, never the counterexamples: those stand on
their own executions in a fresh process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, TypeVar

from mat.core import limits
from mat.core.campaign import Certificate, Counterexample, Stability
from mat.core.errors import SpecError
from mat.core.operator import OperatorSpec, grid_data
from mat.core.run import Finding, Run, prefixes, same_violation
from mat.core.site import order_site
from mat.core.spec import NO_SCHEDULE, RunSpec, Schedule
from mat.core.value import FrozenDict
from mat.core.verdict import Stage, Violation
from mat.kernel.entropy import Entropy
from mat_search.exhaust import Exhaustive
from mat_search.sample import RandomSearch
from mat_search.shrink import ShrinkStopped, shrink
from mat_search.space import Edge, Key, first_difference, lineage
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
    """How to search. `all_contracts`: go on to the budget after the first hit, for an item with expected weaknesses.

    `max_runs` limits what the strategy executes; repetitions, samples, shrinking and confirmation come on top.
    """

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
    """`counterexamples`: one per contract, cheapest first. `unconfirmed`: seen in the search, not in a fresh process.

    `nominal_stability` counts how often the nominal run was repeated, the fresh process included. `first`: executions until
    the first hit. `interrupted`: a KeyboardInterrupt ended a part of it, and the caller should
    end the session once it has said what was found.
    """

    nominal: Run
    nominal_stability: Stability
    counterexamples: tuple[Counterexample, ...]
    unconfirmed: tuple[Counterexample, ...]
    certificate: Certificate
    executions: int
    first: int | None = None
    findings: tuple[Finding, ...] = ()
    interrupted: bool = False


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

    `nominal` is the run that was reported; the search begins by reproducing it. Without `confirm`, counterexamples are
    re-executed in this process only. KeyboardInterrupt propagates while nothing was found; later it ends the part it met
    and what was found is kept.
    """
    return _Search(nominal, evaluate, campaign, confirm, progress).run()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ending:
    """How a run ended, as equal edges must: D at the end, and what was judged from the injected step on."""

    state: str
    broken: frozenset[tuple[str, Stage]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hit:
    schedule: Schedule
    run: Run
    violation: Violation


class _Search:
    def __init__(
        self, nominal: Run, evaluate: Evaluate, campaign: Campaign, confirm: Confirm | None, progress: Progress | None
    ) -> None:
        if campaign.strategy not in STRATEGIES:
            raise SpecError(what=f"no strategy is called {campaign.strategy!r}", fix=f"use one of {', '.join(STRATEGIES)}")
        self._nominal, self._spec = nominal, nominal.spec.under(NO_SCHEDULE)
        self._known_broken = frozenset(violation.contract for violation in campaign.judge(nominal))
        self._evaluate, self._campaign = evaluate, campaign
        self._confirm, self._progress = confirm, progress
        self._entropy = Entropy(self._spec.base)
        self._executions = 0
        self._first: int | None = None
        self._interrupted = False
        self._unfinished = ""
        self._fresh_differs = ""
        self._fresh_nominal = 0
        self._hits: dict[str, _Hit] = {}
        self._endings: dict[Key, _Ending] = {}
        self._executed: list[tuple[Edge, str]] = []
        self._checks: dict[str, int] = {"prefix": 0, "nominal": 0, "skipped": 0, "repeated": 0, "fresh": 0}
        self._known: dict[Schedule, tuple[Run, tuple[Violation, ...]]] = {}

    def _strategy(self) -> Strategy:
        campaign = self._campaign
        if campaign.strategy == "random":
            return RandomSearch(campaign.operators, budget=campaign.budget, stream=self._entropy.stream("search/random"))
        return Exhaustive(campaign.operators, budget=campaign.budget, prune=campaign.prune)

    def run(self) -> CampaignResult:
        strategy = self._strategy()
        reason, proven = self._explored(strategy)
        confirmed, unconfirmed = self._confirmed(self._shrunk(), nominal_too=proven)
        if unconfirmed and proven:
            reason, proven = "a counterexample did not reproduce: state outlives a run", False
        if self._fresh_differs and proven:
            reason, proven = self._fresh_differs, False
        return CampaignResult(
            nominal=self._nominal,
            nominal_stability=self._nominal_stability(),
            counterexamples=tuple(sorted(confirmed, key=lambda item: (item.cost, item.verdict.contract))),
            unconfirmed=tuple(unconfirmed),
            certificate=self._certificate(strategy, reason or self._unfinished, proven=proven),
            executions=self._executions,
            first=self._first,
            findings=self._nominal.findings,
            interrupted=self._interrupted,
        )

    def _explored(self, strategy: Strategy) -> tuple[str, bool]:
        """Explore and check; the reason for stopping early, and whether what is left is proven."""
        reason = ""
        try:
            try:
                self._explore(strategy)
            except SearchStopped as stopped:
                reason = str(stopped)
            self._verify(strategy)
        except SearchStopped as stopped:
            return f"{reason or stopped}; the checks that a proof needs could not be made", False
        except _WithdrawnError as withdrawn:
            return str(withdrawn), False
        except KeyboardInterrupt:
            if not self._hits:
                raise
            self._interrupted = True
            return "interrupted", False
        return reason, True

    # -- exploring --------------------------------------------------------------------------------------------------

    def _explore(self, strategy: Strategy) -> None:
        enough: int | None = None
        while (edge := strategy.ask(enough)) is not None:
            if self._executions >= self._campaign.max_runs:
                raise SearchStopped(f"{self._campaign.max_runs} executions do not cover the budget of {self._campaign.budget}")
            run = self._execute(edge.schedule)
            states = prefixes(run)
            if edge.key is None:
                self._begin(run)
            else:
                self._check_prefix(edge, run, states)
                self._endings.setdefault(edge.key, self._ending(edge, run, states))
                self._executed.append((edge, states[-1]))
            hit = self._hit(edge, run)
            strategy.tell(edge, run, states)
            if hit:
                self._check_nominal("after a counterexample")
                if not self._campaign.all_contracts and enough is None:
                    enough = edge.cost
            if self._progress is not None:
                cheapest = min((found.schedule.cost for found in self._hits.values()), default=None)
                self._progress(self._executions, cheapest, max(0, strategy.bound))

    def _begin(self, run: Run) -> None:
        self._refuse_uncontrolled(run)
        self._same(self._nominal, run, "the nominal run, repeated before the search,")
        self._nominal = run
        self._known[NO_SCHEDULE] = (run, self._campaign.judge(run))

    def _execute(self, schedule: Schedule) -> Run:
        run = self._evaluate(self._spec.under(schedule))
        self._executions += 1
        return run

    def _hit(self, edge: Edge, run: Run) -> bool:
        """Whether this run breaks a contract for the first time; a cheaper hit of a known one replaces it."""
        if edge.key is None:
            return False
        new = False
        for violation in self._campaign.judge(run):
            contract = violation.contract
            known = self._hits.get(contract)
            if contract in self._known_broken or (known is not None and known.schedule.cost <= edge.cost):
                continue
            self._hits[contract] = _Hit(schedule=run.spec.schedule, run=run, violation=violation)
            self._first = self._first or self._executions
            new = new or known is None
        return new

    # -- checks (DESIGN decision 9) ---------------------------------------------------------------------------------

    def _refuse_uncontrolled(self, run: Run) -> None:
        if run.uncontrolled:
            finding = run.uncontrolled[0]
            raise _WithdrawnError(f"the run is not controlled ({finding.code}): {finding.message}")

    def _check_prefix(self, edge: Edge, run: Run, states: Sequence[str]) -> None:
        """The child must have lived its parent's life up to the injected site, and have met the injection there."""
        self._checks["prefix"] += 1
        self._refuse_uncontrolled(run)
        if len(states) > edge.step + 1 and states[edge.step] == edge.state and not _wrong_site(edge, run):
            return
        differing = first_difference(edge.lineage, states)
        if differing is not None and differing <= edge.step:
            where = _at(run, max(0, differing - 1))
            raise _WithdrawnError(f"{where} differs from the run before it, before anything was injected; {_CAUSES}")
        raise _WithdrawnError(f"step {edge.step} ({edge.site}) was not reached again under the same schedule; {_CAUSES}")

    def _check_nominal(self, when: str) -> None:
        self._checks["nominal"] += 1
        self._same(self._nominal, self._execute(NO_SCHEDULE), f"the nominal run, repeated {when},")

    def _same(self, one: Run, other: Run, what: str) -> None:
        """The reported run may have been made without monitor states, so facts are compared."""
        if one.head == other.head:
            return
        before, after = prefixes(replace(one, states=())), prefixes(replace(other, states=()))
        differing = first_difference(lineage(before), after)
        where = "its fault labels" if differing is None else _at(other, max(0, differing - 1))
        raise _WithdrawnError(f"{what} differs at {where}; {_CAUSES}")

    def _ending(self, edge: Edge, run: Run, states: Sequence[str]) -> _Ending:
        """What came before the injection is not compared: it was judged in the parents' runs."""
        found = self._campaign.judge(run)
        broken = frozenset((item.contract, item.stage) for item in found if item.step >= edge.step)
        return _Ending(state=states[-1], broken=broken)

    def _verify(self, strategy: Strategy) -> None:
        """At the end: a sample of skipped edges is executed, executed ones are repeated, and the nominal run once more.

        The first executed edges are all repeated: they ran before others could leave anything behind. The order is turned
        round, so that what two neighbours set and clear again shows.
        """
        for edge in self._sample([edge for edge in strategy.skipped if edge.key in self._endings], "skipped"):
            self._check_skipped(edge)
        early, late = self._executed[: limits.SKIP_SAMPLE_LEAST], self._executed[limits.SKIP_SAMPLE_LEAST :]
        for edge, ending in reversed([*early, *self._sample(late, "repeated")]):
            self._checks["repeated"] += 1
            if prefixes(self._execute(edge.schedule))[-1] != ending:
                words = _words(edge.schedule)
                raise _WithdrawnError(f"the same schedule ({words}) gave another run at the end of the search; {_CAUSES}")
        self._check_nominal("at the end")

    def _check_skipped(self, edge: Edge) -> None:
        assert edge.key is not None
        self._checks["skipped"] += 1
        run = self._execute(edge.schedule)
        states = prefixes(run)
        self._check_prefix(edge, run, states)
        if self._ending(edge, run, states) != self._endings[edge.key]:
            raise _WithdrawnError(
                f"a skipped schedule ({_words(edge.schedule)}) did not end as the equal one did; "
                "something the trace does not show decides (give a mat_state_digest fixture)"
            )

    def _sample(self, population: Sequence[T], name: str) -> list[T]:
        """SKIP_SAMPLE_PERCENT of a population, at least SKIP_SAMPLE_LEAST, and never more than the search executed."""
        share = min(len(population) * limits.SKIP_SAMPLE_PERCENT // 100, len(self._executed))
        size = max(limits.SKIP_SAMPLE_LEAST, share)
        if len(population) <= size:
            return list(population)
        chosen = sorted(self._entropy.stream(f"search/{name}").sample(range(len(population)), size))
        return [population[index] for index in chosen]

    # -- hits -------------------------------------------------------------------------------------------------------

    def _shrunk(self) -> list[Counterexample]:
        found = []
        most = max(limits.SHRINK_LEAST, self._campaign.max_runs - self._executions)
        for contract in sorted(self._hits):
            hit = self._hits[contract]
            result = shrink(
                hit.schedule, hit.run, hit.violation, operators=self._campaign.operators, execute=self._rerun, most=most
            )
            if not result.finished:
                self._unfinished = f"shrinking {contract} was ended before its counterexample was minimal"
            verdict = next(item for item in self._campaign.judge(result.run) if same_violation(item, hit.violation))
            found.append(Counterexample(verdict=verdict, run=result.run))
        return found

    def _rerun(self, schedule: Schedule) -> tuple[Run, tuple[Violation, ...]]:
        known = self._known.get(schedule)
        if known is None:
            try:
                run = self._execute(schedule)
            except SearchStopped:
                raise ShrinkStopped from None
            except KeyboardInterrupt:
                self._interrupted = True
                raise
            known = self._known[schedule] = (run, self._campaign.judge(run))
        return known

    def _confirmed(
        self, found: Sequence[Counterexample], *, nominal_too: bool
    ) -> tuple[list[Counterexample], list[Counterexample]]:
        """First in a fresh process, then again here; the file keeps the fresh run, which no earlier run can have touched."""
        good: list[Counterexample] = []
        bad: list[Counterexample] = []
        fresh = self._fresh([item.run.spec.schedule for item in found], nominal_too=nominal_too)
        for item, outside in zip(found, fresh, strict=True):
            runs = outside if self._confirm is not None else self._repeated(item, 1)
            if runs:
                runs = [*runs, *self._repeated(item, self._campaign.stability_runs - len(runs))]
            shows = [run is not None and self._shows(run, item.verdict) for run in runs]
            kept = replace(item, stability=Stability(runs=len(shows), reproduced=sum(shows)))
            if runs and shows[0] and runs[0] is not None:
                verdict = next(each for each in self._campaign.judge(runs[0]) if same_violation(each, item.verdict))
                good.append(replace(kept, run=runs[0], verdict=verdict))
            else:
                bad.append(kept)
        return good, bad

    def _fresh(self, schedules: Sequence[Schedule], *, nominal_too: bool) -> list[list[Run | None]]:
        """One run each from a fresh process; none where there is no such process or it was interrupted.

        The nominal run goes along, because a certificate is worth nothing where another process lives another life.
        """
        if self._confirm is None or not (schedules or nominal_too):
            return [[] for _ in schedules]
        try:
            nominal, *runs = self._confirm([NO_SCHEDULE, *schedules])
        except KeyboardInterrupt:
            self._interrupted = True
            return [[] for _ in schedules]
        self._checks["fresh"] += len(schedules) + 1
        self._check_fresh(nominal)
        return [[run] for run in runs]

    def _check_fresh(self, nominal: Run | None) -> None:
        try:
            if nominal is None:
                raise _WithdrawnError("the nominal run could not be had in a fresh process")
            self._same(self._nominal, nominal, "the nominal run in a fresh process, under another hash seed,")
            self._fresh_nominal = 1
        except _WithdrawnError as withdrawn:
            self._fresh_differs = str(withdrawn)

    def _nominal_stability(self) -> Stability:
        """How often the nominal run was repeated; all but a differing fresh one were equal, or the search had ended there."""
        tried = self._checks["nominal"] + (1 if self._fresh_nominal or self._fresh_differs else 0)
        return Stability(runs=tried, reproduced=self._checks["nominal"] + self._fresh_nominal)

    def _repeated(self, item: Counterexample, times: int) -> list[Run | None]:
        """Executions in this process, as many as can be had."""
        runs: list[Run | None] = []
        while len(runs) < times and not self._interrupted:
            try:
                runs.append(self._execute(item.run.spec.schedule))
            except SearchStopped:
                break
            except KeyboardInterrupt:
                self._interrupted = True
        return runs

    def _shows(self, run: Run, verdict: Violation) -> bool:
        return any(same_violation(verdict, found) for found in self._campaign.judge(run))

    def _certificate(self, strategy: Strategy, reason: str, *, proven: bool) -> Certificate:
        if self._campaign.strategy == "random":
            proven, reason = False, reason or "random search proves nothing"
        proven = proven and strategy.bound >= 0
        return Certificate(
            proven=proven,
            reason=reason,
            bound=strategy.bound if proven else 0,
            executions=self._executions,
            states=len(strategy.seen),
            skipped=FrozenDict({"equal state": len(strategy.skipped)}),
            grid=grid_data(self._campaign.operators),
            seeds=(self._spec.seed,),
            checks=FrozenDict(self._checks),
        )


_CAUSES = "likely causes: state shared between runs, a real clock, ids, threads, or the order of a set"


def _wrong_site(edge: Edge, run: Run) -> bool:
    """Whether the step that was to carry the injection is another one now, or did not meet it."""
    site = run.records[edge.step].site
    return edge.site not in (site, order_site(site)) or edge.added in run.unreached


def _at(run: Run, step: int) -> str:
    record = next((item for item in run.records if item.step == step), None)
    return f"step {step}" if record is None else f"step {step} ({record.site})"


def _words(schedule: Schedule) -> str:
    return ", ".join(f"{item.operator} at {item.site}" for item in schedule) or "empty"
