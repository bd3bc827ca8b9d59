"""One search of one item: execute what a strategy asks for, check the assumptions, shrink and confirm the hits.

The search continues to the budget and keeps the cheapest counterexample of each failure signature; `stop` ends it earlier.
However it stops, its bound follows from what the strategy has left open (see mat_search.exhaust). A contract that the nominal
run breaks is not searched for: its cheapest counterexample is that run.

Checks come on top of `max_runs`. A failed check withdraws the certificate but never the counterexamples, which have their own
executions in a fresh process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Final

from mat.core import limits
from mat.core.campaign import Certificate, Counterexample, Covered, Recorded, Stability
from mat.core.curve import ScheduleResult, frontier, schedule_result
from mat.core.errors import SpecError
from mat.core.operator import grid_data
from mat.core.run import Run, prefixes, same_violation
from mat.core.search import STOPS
from mat.core.spec import NO_SCHEDULE, Schedule
from mat.core.value import FrozenDict
from mat.core.verdict import Violation
from mat.kernel.clock import real_monotonic
from mat.kernel.entropy import Entropy
from mat_search.adversary import AdversarySearch
from mat_search.anytime import Anytime
from mat_search.beam import Beam
from mat_search.campaign import (
    BeginConfirming,
    Campaign,
    CampaignResult,
    Confirm,
    EndExploring,
    Progress,
    SearchStopped,
    ShowLayer,
    Unanswered,
)
from mat_search.checks import Checks, SearchClaim, WithdrawnError, words
from mat_search.coverage import CoverageTally
from mat_search.covering import digest_assumptions
from mat_search.curve import Chains, chain_seed
from mat_search.evolve import Evolutionary
from mat_search.executions import Adapt, Evaluate, Executions, RunJournal
from mat_search.exhaust import Exhaustive
from mat_search.hits import Hit, Hits, distinct, matching_violation, same_failure
from mat_search.portfolio import Portfolio
from mat_search.reach import RecordedReach, in_words
from mat_search.sample import RandomSearch
from mat_search.shrink import Shows, ShrinkStopped, shrink
from mat_search.space import Edge
from mat_search.statistical import sample
from mat_search.strategy import EdgeOutcome, Factory, SearchPlan

STRATEGIES: Final[dict[str, Factory]] = {
    "exhaustive": Exhaustive,
    "anytime": Anytime,
    "portfolio": Portfolio,
    "random": RandomSearch,
    "beam": Beam,
    "evolutionary": Evolutionary,
    "adversary": AdversarySearch,
}
"""The strategies by name. The statistical one is not among them: it does not assume deterministic runs."""

_LOSING: Final = (Exhaustive, Anytime, Portfolio)
"""Strategies that go on without the run of an edge."""
_LAYERS_EVERY: Final = 100
"""Executions between two estimates of what is left at the next cost; an estimate takes time."""


def search(
    nominal: Run,
    evaluate: Evaluate,
    campaign: Campaign,
    *,
    confirm: Confirm | None = None,
    confirm_again: Confirm | None = None,
    begin_confirming: BeginConfirming | None = None,
    progress: Progress | None = None,
    layers: ShowLayer | None = None,
    vary: Evaluate | None = None,
    adapt: Adapt | None = None,
    executor: Executor | None = None,
    journal: RunJournal | None = None,
    note: Callable[[Run], None] | None = None,
    enough: EndExploring | None = None,
) -> CampaignResult:
    """Find, for each failure signature, a cheapest schedule within the budget that shows it, with a certificate.

    `nominal` is the run that was reported; the search begins by reproducing it. `confirm` executes schedules in a fresh
    process, `confirm_again` in another one, under another hash seed; without them, counterexamples are re-executed in this
    process only, and a proof is not compared with other processes. `begin_confirming` may begin what both will be asked for.
    `vary` executes what the strategy asks for and reports `Run.equivalence_classes`; without it, `evaluate` executes. `adapt`
    executes an adversary's runs. `executor` executes probable next schedules in advance; the result does not depend on it.
    `journal` keeps finished executions. `note` is called with every execution, once, in order, whoever made it. `enough` may
    end exploring early, so that time is left for the checks. `layers` is called now and then with an estimate of what is left
    at the next cost.
    KeyboardInterrupt propagates as long as nothing was found; later it ends the current phase, and the findings are kept.

    - `evaluate`, `vary`: functions that execute a `mat.spec.RunSpec` and return its `mat.Run`. `adapt` gets a function that
      chooses perturbations, too.
    - `confirm`, `confirm_again`: functions of a sequence of schedules that return a sequence of as many Runs; in the place of
      one that was not executed is why it was not, or None.
    - `begin_confirming(batches)` gets pairs: whether `confirm_again` will be asked, and for which schedules. It returns whether
      some of them are executed at the same time.
    - `campaign`: the settings. `progress(executions, cheapest, proven)` is called now and then, with the cost of the
      cheapest counterexample (or None) and the cost up to which all is proven.
    - `enough(runs)` gets the number of executions that the checks will take, and returns why exploring ends now, or "".
    Returns a `CampaignResult`. Raises `mat.MatError` for a statistical strategy without `interval` and `decided`.

    >>> import mat_faults
    >>> from contextlib import suppress
    >>> from mat_search import Campaign, search
    >>> @mat.tool(effect="write")
    ... def refund(order): return "refunded"
    >>> once = mat.contract("once", mat.temporal.always(mat.temporal.at_most(1, mat.temporal.tool_call("refund"))))
    >>> def evaluate(spec):
    ...     with mat.run([once], schedule=spec.schedule, states=True) as run:
    ...         for _ in range(2):
    ...             with suppress(OSError):
    ...                 refund("A17")
    ...                 break
    ...     return run.result
    >>> operators = tuple(item.spec() for item in mat_faults.operators() if item.default)
    >>> found = search(evaluate(mat.spec.RunSpec()), evaluate, Campaign(operators=operators, budget=4))
    >>> found.nominal.outcome, len(found.counterexamples)
    ('pass', 1)

    Source: A3.2, A3.3.
    """
    spec = nominal.spec.under(NO_SCHEDULE)
    vary = vary if nominal.concolic else None
    notes = _ExecutionNotes(campaign, nominal, note)
    executions = Executions(spec, evaluate, vary=vary, adapt=adapt, executor=executor, journal=journal, note=notes.note)
    try:
        if campaign.strategy == "statistical":
            return replace(sample(nominal, executions, campaign, progress), covered=notes.covered)
        result = _Search(
            nominal, executions, campaign, (confirm, confirm_again), begin_confirming, progress, layers, enough
        ).run()  # fmt: skip
        return notes.completed(result, executions)
    finally:
        executions.close()


def _plan(campaign: Campaign, entropy: Entropy) -> SearchPlan:
    problems = []
    if campaign.strategy not in STRATEGIES:
        names = ", ".join([*STRATEGIES, "statistical"])
        problems.append(f"unknown strategy {campaign.strategy!r}: use one of {names}")
    if campaign.stop not in STOPS:
        problems.append(f"stop={campaign.stop!r} is not one of {', '.join(STOPS)}")
    if problems:
        raise SpecError(what="; ".join(problems), fix="correct the arguments of mat_search.Campaign")
    return SearchPlan(
        operators=campaign.operators, budget=campaign.budget, max_runs=campaign.max_runs, prune=campaign.prune,
        stream=entropy.stream(f"search/{campaign.strategy}"),
    )  # fmt: skip


class _ExecutionNotes:
    """What all executions of a search add up to.

    That is the coverage, the frontier (the runs that decide the worst-case curve), and the random chains: schedules that
    grow by one perturbation at a time, for the other robustness curves.
    """

    def __init__(self, campaign: Campaign, nominal: Run, note: Callable[[Run], None] | None) -> None:
        self._chains = Chains(campaign.operators, budget=campaign.budget, count=campaign.curve, seed=chain_seed(nominal))
        self._note = note
        self._tally = CoverageTally()
        self.frontier: tuple[ScheduleResult, ...] = ()

    @property
    def covered(self) -> Covered:
        return self._tally.covered

    def note(self, run: Run) -> None:
        self.frontier = frontier([*self.frontier, schedule_result(run)])
        self._chains.note(run)
        self._tally.note(run)
        if self._note is not None:
            self._note(run)

    def completed(self, result: CampaignResult, executions: Executions) -> CampaignResult:
        """The result with the notes of all executions, after executing what the chains still need."""
        interrupted = result.interrupted
        if not interrupted:
            try:
                self._chains.finish(executions.plain)
            except SearchStopped:
                pass
            except KeyboardInterrupt:
                interrupted = True
        return replace(
            result, chains=self._chains.grown, executed=self.frontier, covered=self.covered, executions=executions.count,
            interrupted=interrupted,
        )  # fmt: skip


class _Search:
    def __init__(
        self,
        nominal: Run,
        executions: Executions,
        campaign: Campaign,
        confirm: tuple[Confirm | None, Confirm | None],
        begin_confirming: BeginConfirming | None,
        progress: Progress | None,
        layers: ShowLayer | None,
        enough: EndExploring | None,
    ) -> None:
        entropy = Entropy.of(nominal.spec)
        self._enough = enough
        self._campaign, self._executions = campaign, executions
        (self._confirm, self._confirm_again), self._begin_confirming = confirm, begin_confirming
        self._progress, self._layers = progress, layers
        self._plan = _plan(campaign, entropy)
        self._strategy = STRATEGIES[campaign.strategy](self._plan)
        self._checks = Checks(nominal, executions, campaign.judge, entropy)
        self._hits = Hits(campaign.judge, nominal)
        self._together = False  # whether fresh processes have executed at the same time
        self._checked: set[str] = set()
        self._searched = self._shrinking = 0
        self._first: int | None = None
        self._interrupted = self._limited = False
        self._reach = RecordedReach()
        self._unanswered = ""
        self._unfinished = ""
        self._unfaithful = ""
        self._withdrawn, self._withdrawn_s = "", 0.0

    def run(self) -> CampaignResult:
        reason, proven = self._explore_and_check()
        seen, unconfirmed, fresh = self._confirm_found(self._shrink_all(), nominal_too=proven)
        if proven and self._unfaithful:
            reason, proven = self._unfaithful, False
        unasked = self._confirm is not None and not (self._checks.fresh_nominal or fresh)
        if proven and (unasked or any(item.stability.runs == 0 for item in seen)):
            reason, proven = reason or "the search ended before its result could be confirmed", False
        if proven and fresh:
            reason, proven = fresh, False
        if proven and (unconfirmed or any(item.flaky for item in seen)):
            reason, proven = "a counterexample did not reproduce: state outlives a run", False
        return CampaignResult(
            nominal=self._checks.nominal,
            nominal_stability=self._nominal_stability(differs=bool(fresh)),
            counterexamples=seen,
            unconfirmed=unconfirmed,
            certificate=self._certificate(reason or self._unfinished, proven=proven),
            executions=self._executions.count,
            searched=self._searched,
            shrinking=self._shrinking,
            first=self._first,
            recalled=self._executions.recalled,
            findings=(*self._checks.nominal.findings, *self._executions.findings),
            complete=self._strategy.bound if self._strategy.proves else -1,
            layer=self._strategy.layer,
            limited=self._limited,
            recorded=self._recorded,
            interrupted=self._interrupted,
        )

    # -- exploring --------------------------------------------------------------------------------------------------

    def _explore_and_check(self) -> tuple[str, bool]:
        """Explore, then verify the assumptions; returns why the search stopped early, and whether what it covered is proven."""
        reason = ""
        try:
            try:
                self._explore()
            except Unanswered:  # by a strategy that cannot go on without the run: `_recorded` says what it lacked
                pass
            except SearchStopped as stopped:
                reason, self._limited = str(stopped), True
            recorded = self._recorded
            if recorded is not None:
                reason, self._limited = "; ".join(filter(None, (in_words(recorded, self._unanswered), reason))), True
            if self._withdrawn:
                return self._withdrawn, False
            self._checks.verify(self._strategy.skipped, self._claim())
        except SearchStopped as stopped:
            self._limited = True
            return f"{reason or stopped}; the checks that a proof needs could not run", False
        except WithdrawnError as withdrawn:
            self._withdraw(withdrawn)
            return self._withdrawn, False
        except KeyboardInterrupt:
            if not self._hits:
                raise
            self._interrupted = True
            return "interrupted", False
        return reason, True

    def _withdraw(self, withdrawn: WithdrawnError) -> None:
        """Nothing is proven any more; what broke in the run that shows why counts as found."""
        if not self._withdrawn:
            self._withdrawn, self._withdrawn_s = str(withdrawn), real_monotonic()
        if withdrawn.run is not None:
            self._hits.repeated(withdrawn.run)

    def _holds(self, check: Callable[..., None], *arguments: object) -> bool:
        """Whether a check passes. One that does not withdraws the proof, and the search goes on for what it can find."""
        try:
            check(*arguments)
        except WithdrawnError as withdrawn:
            self._withdraw(withdrawn)
            return False
        return True

    def _claim(self) -> SearchClaim:
        hits = self._hits
        return SearchClaim(grid=self._plan.grid, bound=self._strategy.bound, cheapest=hits.cheapest, nominal=hits.nominal)

    def _explore(self) -> None:
        strategy, executions, begun = self._strategy, self._executions, False
        while (edge := strategy.ask(self._cost_limit())) is not None:
            if self._searched + len(self._reach.unanswered) >= self._campaign.max_runs:
                limit = self._campaign.max_runs
                counted = "1 execution does" if limit == 1 else f"{limit} executions do"
                raise SearchStopped(f"{counted} not cover the budget of {self._campaign.budget}")
            if self._withdrawn and real_monotonic() - self._withdrawn_s > limits.UNPROVEN_S:
                self._limited = True
                return
            if begun:
                self._end_in_time()
            if executions.lookahead:
                executions.begin([edge.schedule, *(item.schedule for item in strategy.upcoming(executions.lookahead))])
            try:
                run = self._execute(edge)
            except Unanswered as missing:
                self._unanswered = self._unanswered or str(missing)
                self._reach.unanswered[edge.schedule] = missing.missing
                if not isinstance(strategy, _LOSING):
                    raise
                strategy.lose(edge)
                continue
            self._reach.reached += 1
            states = prefixes(run)
            self._holds(self._checks.controlled, run)
            if not begun:
                self._holds(self._checks.begin, run)
                begun = True
            if not self._holds(self._checks.explored, edge, run, states):
                if edge.cost <= self._plan.budget:
                    self._hits.repeated(run)
                if not isinstance(strategy, _LOSING):
                    return
                strategy.lose(edge)
                continue
            hits = self._hits.note(edge, run) if edge.cost <= self._plan.budget else ()
            strategy.tell(edge, EdgeOutcome(run=run, states=states, broken=self._hits.broken(run)))
            if hits:
                self._note_hits(edge, hits)
            if self._layers is not None and self._searched % _LAYERS_EVERY == 0:
                self._layers(strategy.layer)
            if self._progress is not None:
                self._progress(executions.count, self._hits.cost, max(0, strategy.bound))

    @property
    def _recorded(self) -> Recorded | None:
        """How far recorded replies reach; None if every request was answered."""
        return self._reach.result(self._checks.nominal, self._campaign.prices)

    def _end_in_time(self) -> None:
        """Raise SearchStopped if no time is left but for the checks, and for shrinking what was found."""
        if self._enough is not None:
            found = len(self._hits) * limits.SHRINK_RESERVE
            why = self._enough(self._checks.due(len(self._strategy.skipped)) + found)
            if why:
                raise SearchStopped(why)

    def _execute(self, edge: Edge) -> Run:
        """The run of an edge; a run that is known already does not count again."""
        before = self._executions.count
        policy = self._strategy.policy(edge)
        run = self._executions.explore(edge.schedule) if policy is None else self._executions.adapted(policy)
        self._searched += self._executions.count - before
        return run

    def _cost_limit(self) -> int | None:
        """The largest cost still of interest after something was found."""
        cost = self._hits.cost
        if cost is None or self._campaign.stop == "budget":
            return None
        return cost if self._campaign.stop == "cheapest" else cost - 1

    def _note_hits(self, edge: Edge, hits: Sequence[Hit]) -> None:
        """Repeat the nominal run after each contract's first hit; shrink a hit found out of cost order at once."""
        self._first = self._first or self._searched
        new = {hit.violation.contract for hit in hits} - self._checked
        if new:
            self._checked |= new
            self._holds(self._checks.again, "after a counterexample")
        reduced = isinstance(self._strategy, Portfolio)
        if self._campaign.stop != "budget" and not reduced and self._strategy.bound < hits[0].schedule.cost - 1:
            for hit in hits:
                self._shrink_hit(hit)

    # -- shrinking --------------------------------------------------------------------------------------------------

    def _shrink_hit(self, hit: Hit) -> Hit | None:
        """Replace a hit by its simplest form; None if the plain run does not show it."""
        if not self._plain_run_shows(hit):
            self._hits.drop(hit)
            return None
        most = self._campaign.shrink_runs
        if most is None:
            most = max(limits.SHRINK_LEAST, self._campaign.max_runs - self._searched)
        result = shrink(
            hit.schedule,
            hit.run,
            self._shows_same(hit),
            operators=self._campaign.operators,
            execute=self._execute_and_judge,
            most=most,
        )
        if not result.finished:
            self._unfinished = f"shrinking {hit.violation.contract} stopped before its counterexample was minimal"
        verdict = matching_violation(result.run, self._campaign.judge(result.run), hit.counterexample)
        assert verdict is not None
        simplest = self._naming_clients(Hit(schedule=result.schedule, run=result.run, violation=verdict))
        self._hits.replace(hit, simplest)
        return simplest

    def _naming_clients(self, hit: Hit) -> Hit:
        """The hit with the clients named whose exceptions it injects; an adversary names none."""
        schedule = self._plan.grid.naming_clients(hit.schedule, hit.run)
        if schedule == hit.schedule:
            return hit
        try:
            run, judged = self._execute_and_judge(schedule)
        except (ShrinkStopped, KeyboardInterrupt):
            return hit
        verdict = matching_violation(run, judged, hit.counterexample)
        return hit if verdict is None else Hit(schedule=schedule, run=run, violation=verdict)

    def _shows_same(self, hit: Hit) -> Shows:
        """What shrinking preserves: the failure signature, or just the broken contract if only the cheapest is wanted."""
        if self._campaign.stop == "budget":
            return lambda run, judged: same_failure(run, judged, hit.counterexample)
        return lambda run, judged: any(same_violation(hit.violation, found) for found in judged)

    def _plain_run_shows(self, hit: Hit) -> bool:
        """Whether the plain run shows the hit of a run with concolic values."""
        if hit.plain or self._executions.same_as_plain:
            return True
        try:
            shows = any(same_violation(item, hit.violation) for item in self._execute_and_judge(hit.schedule)[1])
        except (ShrinkStopped, KeyboardInterrupt):  # confirmation will show it
            return True
        if not shows:
            self._unfaithful = f"concolic values changed a run ({words(hit.schedule)}): its values leave Python code"
        return shows

    def _execute_and_judge(self, schedule: Schedule) -> tuple[Run, tuple[Violation, ...]]:
        before = self._executions.count
        try:
            run = self._executions.plain(schedule)
        except SearchStopped:
            raise ShrinkStopped from None
        except KeyboardInterrupt:
            self._interrupted = True
            raise
        self._shrinking += self._executions.count - before
        return run, self._campaign.judge(run)

    def _shrink_all(self) -> tuple[Counterexample, ...]:
        """The simplest counterexample of each signature; schedules that shrink to one signature are one counterexample."""
        simplest = [self._shrink_hit(hit) for hit in self._hits.ranked()]
        return distinct([hit.counterexample for hit in simplest if hit is not None])

    # -- confirmation -----------------------------------------------------------------------------------------------

    def _confirm_found(
        self, found: Sequence[Counterexample], *, nominal_too: bool
    ) -> tuple[tuple[Counterexample, ...], tuple[Counterexample, ...], str]:
        """The counterexamples that were reproduced, those that were not, and how a fresh process differs.

        They are executed first in a fresh process, then here. Reproduced in this process only counts as not reproduced. The
        first run that shows a counterexample is kept: the fresh one if possible, which no earlier run can have influenced.
        """
        seen: list[Counterexample] = []
        never: list[Counterexample] = []
        outside, differs, other = self._execute_fresh(found, nominal_too=nominal_too)
        for index, item in enumerate(found):
            runs: list[Run | None] = [outside[index]] if outside else []
            if outside or self._confirm is None:
                runs += self._repeat(item, self._campaign.stability_runs - len(runs))
            showing = [run for run in runs if run is not None and self._shows(run, item.verdict)]
            kept = replace(item, stability=Stability(runs=len(runs), reproduced=len(showing)))
            if not runs:  # the search ended before a repetition: report it as it is
                seen.append(kept)
                continue
            if not showing or (outside and showing == runs[1:]):  # not at all, or in this process only
                never.append(kept)
                continue
            verdict = matching_violation(showing[0], self._campaign.judge(showing[0]), item)
            assert verdict is not None
            seen.append(replace(kept, run=showing[0], verdict=verdict))
        for item in self._only_elsewhere(other):
            (seen if item.stability.stable else never).append(item)
        return distinct(seen), tuple(never), differs

    def _execute_fresh(
        self, found: Sequence[Counterexample], *, nominal_too: bool
    ) -> tuple[list[Run | None], str, Run | None]:  # fmt: skip
        """The runs of a fresh process, how it differs from this one, and the run that shows it.

        Where processes that execute at the same time say anything else than this one, they may have met. What counts then is
        what they say one after another.
        """
        schedules = [item.run.spec.schedule for item in found]
        if self._begin_confirming is not None and self._confirm is not None:
            fresh, unexecuted = self._checks.counts["fresh"], self._checks.unexecuted
            runs, differs, other = self._fresh_runs(schedules, nominal_too=nominal_too, begin=self._begin_confirming)
            shown = [run is not None and self._shows(run, item.verdict) for run, item in zip(runs, found, strict=False)]
            as_here = not differs and len(shown) == len(found) and all(shown)
            if as_here or self._interrupted or not self._together:
                return runs, differs, other
            self._checks.counts["fresh"], self._checks.unexecuted = fresh, unexecuted
        return self._fresh_runs(schedules, nominal_too=nominal_too)

    def _fresh_runs(
        self, schedules: Sequence[Schedule], *, nominal_too: bool, begin: BeginConfirming | None = None
    ) -> tuple[list[Run | None], str, Run | None]:
        """The runs, how they differ, and the run that shows it. `begin`: they are executed at the same time.

        There are no runs without `confirm` or after an interrupt. Each schedule is executed in a process of its own. A
        certificate is worthless if runs of another process differ: for one, the cheapest schedules that were executed here are
        each executed in a process of their own as well, and a sample of the others in one, in another order, with the nominal
        run last.
        """
        if self._confirm is None or not (schedules or nominal_too):
            return [], "", None
        sample = self._checks.fresh_sample(without=schedules) if nominal_too else []
        alone = [*schedules, *sample[: limits.FRESH_CHEAPEST]]
        backwards = sample[limits.FRESH_CHEAPEST :][::-1]
        try:
            if begin is not None:
                again = [(True, [*sample, NO_SCHEDULE])] if nominal_too and self._confirm_again is not None else []
                batches = [*((False, [each]) for each in alone), (False, [*backwards, NO_SCHEDULE]), *again]
                self._together = begin(batches)
            first = [run for schedule in alone for run in self._elsewhere(self._confirm, [schedule])]
            found, cheapest = first[: len(schedules)], zip(sample, first[len(schedules) :], strict=False)
            *runs, nominal = self._elsewhere(self._confirm, [*backwards, NO_SCHEDULE])
            compared = [*cheapest, *zip(backwards, runs, strict=True)]
            differs, other = self._checks.fresh(nominal, compared, len(schedules))
            if nominal_too and not differs and self._confirm_again is not None:
                *runs, nominal = self._elsewhere(self._confirm_again, [*sample, NO_SCHEDULE])
                differs, other = self._checks.fresh(nominal, [*zip(sample, runs, strict=True)], 0)
        except KeyboardInterrupt:
            self._interrupted = True
            return [], "", None
        except SearchStopped as stopped:
            return [], str(stopped), None
        finally:
            if begin is not None and not self._interrupted:  # else nobody waits for what was begun
                begin([])
        return found, differs, other

    def _elsewhere(self, confirm: Confirm, schedules: Sequence[Schedule]) -> Iterator[Run | None]:
        """The runs of a fresh process, None for one that was not executed; the first reason for that is kept."""
        for given in confirm(schedules):
            if isinstance(given, str):
                self._checks.unexecuted = self._checks.unexecuted or given
            yield None if isinstance(given, str) else given

    def _only_elsewhere(self, run: Run | None) -> list[Counterexample]:
        """What a run of a fresh process breaks, and the same schedule here does not, with how often it does so there."""
        if run is None or self._confirm is None or self._confirm_again is None:
            return []
        schedule = run.spec.schedule
        try:
            again = [
                run, *self._elsewhere(self._confirm, [schedule]), *self._elsewhere(self._confirm_again, [schedule])
            ]  # fmt: skip
        except KeyboardInterrupt:
            self._interrupted = True
            again = [run]
        here = {violation.contract for violation in self._campaign.judge(self._checks.nominal)}
        found = [each for each in self._campaign.judge(run) if each.contract not in here]
        return [
            Counterexample(
                verdict=each,
                run=run,
                stability=Stability(
                    runs=len(again), reproduced=sum(other is not None and self._shows(other, each) for other in again)
                ),
            )
            for each in found
        ]

    def _nominal_stability(self, *, differs: bool) -> Stability:
        """How often the nominal run was repeated, here and in a fresh process, and how often it was the same."""
        fresh, repeated = self._checks.fresh_nominal, self._checks.counts["nominal"]
        return Stability(runs=repeated + (1 if fresh or differs else 0), reproduced=self._checks.same_nominal + fresh)

    def _repeat(self, item: Counterexample, times: int) -> list[Run | None]:
        """The runs of up to `times` executions in this process."""
        runs: list[Run | None] = []
        while len(runs) < times and not self._interrupted:
            try:
                runs.append(self._executions.again(item.run.spec.schedule))
            except SearchStopped:
                break
            except KeyboardInterrupt:
                self._interrupted = True
        return runs

    def _shows(self, run: Run, verdict: Violation) -> bool:
        return any(same_violation(verdict, found) for found in self._campaign.judge(run))

    def _certificate(self, reason: str, *, proven: bool) -> Certificate:
        strategy = self._strategy
        if proven and not strategy.proves:
            proven, reason = False, reason or f"{self._campaign.strategy} search proves nothing"
        proven = proven and strategy.bound >= 0
        return Certificate(
            proven=proven,
            reason=reason,
            bound=strategy.bound if proven else 0,
            executions=self._executions.count,
            states=len(strategy.seen),
            skipped=FrozenDict(strategy.skipped.by_reason()),
            grid=grid_data(self._campaign.operators),
            seeds=(self._checks.nominal.spec.seed,),
            checks=FrozenDict(self._checks.counts),
            assumptions=(
                *self._plan.grid.assumptions,
                *(digest_assumptions(self._checks.nominal) if self._plan.prune else ()),
            ),
        )
