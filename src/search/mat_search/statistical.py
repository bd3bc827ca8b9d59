"""Sequential tests of nondeterministic systems: an estimate with an interval instead of a proof.

With a live model that cannot be recorded, two runs may differ, and no conclusion from one run holds for another. Instead, this
strategy estimates how often a schedule drawn from a declared distribution (mat_search.curve.random_policy) breaks a contract:
it draws and executes episodes, one after another and without reuse, until the interval of that share lies entirely below or
above the target. The interval is valid at every look, so stopping by it does not bias it.

A counterexample is an episode that broke a contract, under its realised schedule. It is executed again unchanged; its stability
is how often the contract breaks again. It is not shrunk: one execution says too little about a simpler schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mat.core.campaign import Certificate, Counterexample, Stability
from mat.core.curve import Chain, ScheduleResult, frontier, schedule_result
from mat.core.errors import SpecError
from mat.core.operator import grid_data
from mat.core.run import Run, same_violation
from mat.kernel.entropy import Entropy
from mat_search.campaign import Campaign, CampaignResult, Progress, SearchStopped
from mat_search.curve import chain_seed, chains, random_policy
from mat_search.executions import Executions
from mat_search.hits import Hit, Hits, distinct, matching_violation
from mat_search.space import free


def sample(nominal: Run, executions: Executions, campaign: Campaign, progress: Progress | None) -> CampaignResult:
    """Execute episodes until it is decided how often contracts break, or until `max_runs` are spent.

    The share does not include contracts that the nominal run breaks. SpecError for a campaign without a stopping rule.
    """
    interval, decided = campaign.interval, campaign.decided
    if interval is None or decided is None:
        raise SpecError(
            what="the statistical strategy has no interval and no stopping rule",
            why="mat_search has no statistics of its own",
            fix="pass Campaign(interval=, decided=), as in mat.measure.sequential",
        )
    hits, counts = Hits(campaign.judge, nominal), _EpisodeCounts()
    reason, interrupted = "", False
    try:
        reason = _run_episodes(nominal, executions, campaign, hits, counts, decided, progress)
    except SearchStopped as stopped:
        reason = str(stopped)
    except KeyboardInterrupt:
        if not hits:
            raise
        reason, interrupted = "interrupted", True
    searched = executions.count
    found: tuple[Counterexample, ...] = _counterexamples(hits.ranked())
    grown: tuple[Chain, ...] = ()
    if not interrupted:
        found, interrupted = _repeat(found, executions, campaign)
    if not interrupted:
        grown, interrupted = _grow_chains(nominal, executions, campaign)
    return CampaignResult(
        nominal=nominal,
        nominal_stability=Stability(),
        counterexamples=found,
        unconfirmed=(),
        certificate=Certificate(
            proven=False,
            reason=f"a share, not a proof: {counts.runs} random schedules within the budget ({reason})",
            executions=executions.count,
            grid=grid_data(campaign.operators),
            seeds=(nominal.spec.seed,),
            estimate=interval(counts.failures, counts.runs),
        ),
        executions=executions.count,
        searched=searched,
        first=counts.first,
        recalled=executions.recalled,
        findings=(*nominal.findings, *executions.findings),
        interrupted=interrupted,
        executed=counts.frontier,
        chains=grown,
    )


class _EpisodeCounts:
    """The number of episodes, and how many of them broke a contract."""

    def __init__(self) -> None:
        self.runs = self.failures = 0
        self.first: int | None = None
        self.frontier: tuple[ScheduleResult, ...] = ()

    def note(self, run: Run, *, broke: bool) -> None:
        self.runs += 1
        self.failures += broke
        if broke and self.first is None:
            self.first = self.runs
        self.frontier = frontier([*self.frontier, schedule_result(run)])


def _run_episodes(
    nominal: Run,
    executions: Executions,
    campaign: Campaign,
    hits: Hits,
    counts: _EpisodeCounts,
    decided: Callable[[int, int], str],
    progress: Progress | None,
) -> str:
    """Execute episodes; returns why no more of them were executed."""
    while counts.runs < campaign.max_runs:
        policy = random_policy(
            nominal,
            campaign.operators,
            budget=campaign.budget,
            seed=Entropy.of(nominal.spec).seed_of("search/statistical"),
            episode=counts.runs,
        )
        run = executions.adapted(policy)
        hits.note(free(run.spec.schedule), run)
        counts.note(run, broke=bool(hits.broken(run)))
        if progress is not None:
            progress(executions.count, hits.cost, 0)
        side = decided(counts.failures, counts.runs)
        if side:
            return f"decided: {side} the target"
    return f"max_runs={campaign.max_runs} is not enough to decide"


def _counterexamples(hits: Sequence[Hit]) -> tuple[Counterexample, ...]:
    return distinct([hit.counterexample for hit in hits])


def _grow_chains(nominal: Run, executions: Executions, campaign: Campaign) -> tuple[tuple[Chain, ...], bool]:
    """The chains (none if they could not all be grown), and whether an interrupt ended their growth."""
    try:
        return chains(
            campaign.operators, executions.again, budget=campaign.budget, count=campaign.curve, seed=chain_seed(nominal)
        ), False  # fmt: skip
    except SearchStopped:
        return (), False
    except KeyboardInterrupt:
        return (), True


def _repeat(
    counterexamples: Sequence[Counterexample], executions: Executions, campaign: Campaign
) -> tuple[tuple[Counterexample, ...], bool]:
    """The counterexamples with their stability under repetition, and whether an interrupt ended the repetitions."""
    found, interrupted = [], False
    for item in counterexamples:
        runs: list[Run] = []
        try:
            while len(runs) < campaign.stability_runs and not interrupted:
                runs.append(executions.again(item.run.spec.schedule))
        except SearchStopped:
            pass
        except KeyboardInterrupt:
            interrupted = True
        showing = [run for run in runs if any(same_violation(item.verdict, each) for each in campaign.judge(run))]
        stability = Stability(runs=len(runs), reproduced=len(showing))
        if not showing:
            found.append(Counterexample(verdict=item.verdict, run=item.run, stability=stability))
            continue
        verdict = matching_violation(showing[0], campaign.judge(showing[0]), item)
        assert verdict is not None
        found.append(Counterexample(verdict=verdict, run=showing[0], stability=stability))
    return distinct(found), interrupted
