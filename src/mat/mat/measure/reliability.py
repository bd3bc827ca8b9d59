"""Reliability over rows: success, success@k, termination, violations and their profile, mediation, MTBF.

No rate here counts rows with an infrastructure failure; `infrastructure` counts them separately.

Source: A6.2, A6.4.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, TypeAlias, TypeVar

from mat.core.errors import SpecError
from mat.core.verdict import Severity
from mat.measure.bootstrap import mean_of, ratio_of, share_of
from mat.measure.distribution import Distribution, ShareOf, distribution, shares
from mat.measure.estimate import Estimate
from mat.measure.interval import wilson
from mat.measure.rows import RunRow, counted
from mat.measure.sampling import TASKS, Sampling, Trials, described, share, task_of

_Key = TypeVar("_Key", int, str)
TimeUnit: TypeAlias = Literal["steps", "ms"]
_NOT_TERMINATED: Final = frozenset(("horizon", "deadlock"))
_PROGRESS: Final = "progress."
"""The prefix of the ids of contracts against coordination collapse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCount:
    """The number of runs in which a contract was first broken at a step."""

    step: int
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractProfile:
    """How one contract fails over a set of runs.

    `frequency`: share of runs that break it. `first_step`: the mode of its first violating step over those runs, the earliest
    if there are several. `action_kind` and `agent`: the most frequent ones at those first steps, the first by name if
    tied. `first_steps`: how often each step was the first, by step.
    """

    contract: str
    severity: Severity
    frequency: Estimate
    first_step: int
    action_kind: str
    agent: str
    first_steps: tuple[StepCount, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstViolations:
    """Where failing runs first go wrong (t*, i_t*): the step, the agent, and the kind of action."""

    steps: Distribution
    agents: tuple[ShareOf, ...]
    action_kinds: tuple[ShareOf, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MediationShares:
    """Shares of the proposed actions that the mediator allowed, rewrote and blocked."""

    allow: Estimate
    rewrite: Estimate
    block: Estimate


def infrastructure(rows: Iterable[RunRow]) -> tuple[ShareOf, ...]:
    """Infrastructure failures by reason, as shares of all infrastructure failures; empty if there are none."""
    return shares(row.infrastructure for row in rows if row.infrastructure)


# -- success ----------------------------------------------------------------------------------------------------------


def success(rows: Iterable[RunRow], sampling: Sampling = TASKS) -> Estimate:
    """Success(kappa, delta) = 1/(NS) sum_i sum_s Y(x_i, z_s, delta): share of judged runs with Y = 1.

    Source: Sec. V-C 1a.
    """
    return _share(((row, row.success) for row in counted(rows) if row.success is not None), sampling)


def success_at(rows: Iterable[RunRow], k: int) -> Estimate:
    """Success@k = 1/N sum_i I{max_{j <= k} Y(x_i, z_j, delta) = 1}: share of tasks solved in their first k runs.

    A task is an item under one schedule delta; its runs are ordered by seed, then as given. Tasks with fewer than
    k judged runs are left out; n counts the others.

    Source: Sec. V-C 1b.
    """
    solved = [any(found[:k]) for found in _by_task(rows, k)]
    return _over_tasks(wilson(sum(solved), len(solved)))


def success_at_unbiased(rows: Iterable[RunRow], k: int) -> Estimate:
    """Success@k from all runs of a task: the mean over tasks of 1 - C(n - c, k) / C(n, k), of n runs with c successes.

    It is unbiased, and varies less than success@k of the first k runs. Source: M. Chen et al. (2021), arXiv 2107.03374, Eq. 1.
    """
    return _over_tasks(
        share_of(1 - Fraction(math.comb(len(found) - sum(found), k), math.comb(len(found), k)) for found in _by_task(rows, k))
    )


def pass_hat(rows: Iterable[RunRow], k: int) -> Estimate:
    """pass^k: the chance that k runs of a task all succeed, the mean over tasks of C(c, k) / C(n, k). Unbiased.

    Source: S. Yao et al. (2024), arXiv 2406.12045.
    """
    return _over_tasks(share_of(Fraction(math.comb(sum(found), k), math.comb(len(found), k)) for found in _by_task(rows, k)))


def _over_tasks(estimate: Estimate) -> Estimate:
    """An estimate with one value for each task: its interval is for new tasks."""
    return described(estimate, map(str, range(estimate.n)), TASKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLine:
    """One task under one schedule: `runs` judged runs, of which `solved` succeed; and for each k up to `runs` the chance that
    at least one of k runs succeeds (success@k, unbiased) and that all do (pass^k)."""

    task: str
    schedule: str
    runs: int
    solved: int
    any_of: tuple[float, ...]
    all_of: tuple[float, ...]


def by_task(rows: Iterable[RunRow]) -> tuple[TaskLine, ...]:
    """success@k and pass^k of each task, for every k. Source: as in `success_at_unbiased` and `pass_hat`."""
    return tuple(_task_line(key, found) for key, found in _results(rows).items())


def _task_line(key: tuple[str, str], found: Sequence[bool]) -> TaskLine:
    n, won = len(found), sum(found)
    return TaskLine(
        task=key[0], schedule=key[1], runs=n, solved=won,
        any_of=tuple(float(1 - Fraction(math.comb(n - won, k), math.comb(n, k))) for k in range(1, n + 1)),
        all_of=tuple(float(Fraction(math.comb(won, k), math.comb(n, k))) for k in range(1, n + 1)),
    )  # fmt: skip


def runs_per_task(rows: Iterable[RunRow]) -> int:
    """The largest k for which every task with judged runs has k of them; 0 if there are none."""
    return min(map(len, _by_task(rows, 1)), default=0)


def _by_task(rows: Iterable[RunRow], k: int) -> list[list[bool]]:
    """Y of the runs of each task with at least k judged runs, by seed. Repeated runs under one seed keep their order."""
    if k < 1:
        raise SpecError(what=f"k={k} is below 1", why="success@k is computed over k runs of a task", fix="use k >= 1")
    return [found for found in _results(rows).values() if len(found) >= k]


def _results(rows: Iterable[RunRow]) -> dict[tuple[str, str], list[bool]]:
    """Y of the judged runs of each (item, schedule), by seed."""
    found: dict[tuple[str, str], list[tuple[int, bool]]] = {}
    for row in counted(rows):
        if row.success is not None:
            found.setdefault((row.item, row.schedule), []).append((row.seed, row.success))
    return {
        key: [solved for _, solved in sorted(those, key=lambda entry: entry[0])] for key, those in sorted(found.items())
    }  # fmt: skip


# -- termination and violations ---------------------------------------------------------------------------------------


def non_termination(rows: Iterable[RunRow], sampling: Sampling = TASKS) -> Estimate:
    """NTR = 1/(NS) sum I{not Term(tau)}: share of runs stopped at the horizon or in a deadlock.

    Source: Sec. V-C 1c, A1.7.
    """
    return _share(((row, not _terminated(row)) for row in counted(rows)), sampling)


def collapse(
    rows: Iterable[RunRow], sampling: Sampling = TASKS, *, contracts: Collection[str] | None = None
) -> Estimate:  # fmt: skip
    """Share of runs that collapse: Term = 0, or a progress contract broken.

    `contracts` names those contracts; by default all whose id begins with "progress.", like those of the templates.
    """

    def collapsed(row: RunRow) -> bool:
        return not _terminated(row) or any(
            found.contract.startswith(_PROGRESS) if contracts is None else found.contract in contracts
            for found in row.violations
        )

    return _share(((row, collapsed(row)) for row in counted(rows)), sampling)


def violation_rate(rows: Iterable[RunRow], sampling: Sampling = TASKS) -> Estimate:
    """Fail = 1/(NS) sum Fail(tau): share of runs that break at least one hard contract, of those that one judged.

    Source: Eq. 4, Sec. V-C 2a.
    """
    return _share(((row, bool(row.hard)) for row in counted(rows) if row.judged), sampling)


def case_violations(rows: Iterable[RunRow], sampling: Sampling = TASKS) -> Estimate:
    """Share of cases that break a hard contract, in runs with several cases. Cases of one run are dependent."""
    found = [row for row in counted(rows) if row.judged]
    return share(
        (
            Trials(
                task=task_of(row), seed=row.seed, won=sum(case.first_failure is not None for case in row.cases),
                trials=len(row.cases),
            )
            for row in found
        ),
        sampling,
    )  # fmt: skip


def unknown_rate(rows: Iterable[RunRow], sampling: Sampling = TASKS) -> Estimate:
    """Share of runs with a hard contract that could not be judged, and none broken (unknown is its own column)."""
    return _share(((row, row.outcome == "unknown") for row in counted(rows) if row.judged), sampling)


def profile(rows: Sequence[RunRow], sampling: Sampling = TASKS) -> tuple[ContractProfile, ...]:
    """The contracts broken in these runs: hard before soft, then by frequency, then by name.

    p_k = 1/(NS) sum I{k in VioID(tau)}.

    Source: Sec. V-C 2b.
    """
    kept = [row for row in counted(rows) if row.judged or row.violations]
    firsts: dict[tuple[str, Severity], list[tuple[int, str, str]]] = {}
    for row in kept:
        seen: set[tuple[str, Severity]] = set()
        for found in row.violations:  # violations are in the order of steps
            key = (found.contract, found.severity)
            if key not in seen:
                seen.add(key)
                firsts.setdefault(key, []).append((found.step, found.action_kind, found.agent))
    profiles = [
        ContractProfile(
            contract=contract,
            severity=severity,
            frequency=_share(
                ((row, any((one.contract, one.severity) == (contract, severity) for one in row.violations)) for row in kept),
                sampling,
            ),
            first_step=_mode(step for step, _, _ in found),
            action_kind=_mode(kind for _, kind, _ in found),
            agent=_mode(agent for _, _, agent in found),
            first_steps=tuple(
                StepCount(step=step, runs=count) for step, count in sorted(Counter(step for step, _, _ in found).items())
            ),
        )
        for (contract, severity), found in firsts.items()
    ]
    return tuple(sorted(profiles, key=lambda item: (item.severity != "hard", -(item.frequency.value or 0.0), item.contract)))


def first_violations(rows: Iterable[RunRow], *, severity: Severity | None = None) -> FirstViolations:
    """The first violation of each failing run, one that breaks a hard contract.

    It can be of any monitored contract, as in the definition; `severity` restricts it to one severity. Runs that do not fail
    are counted as `without` a step.

    Source: Sec. V-C 2c.
    """
    kept = counted(rows)
    failing = [row for row in kept if row.hard]
    firsts = [
        next((found for found in row.violations if severity in (None, found.severity)), None) for row in failing
    ]  # violations are in the order of steps
    found = [first for first in firsts if first is not None]
    return FirstViolations(
        steps=distribution([*(first.step for first in found), *([None] * (len(kept) - len(found)))]),
        agents=shares(first.agent for first in found),
        action_kinds=shares(first.action_kind for first in found),
    )


def steps_to_termination(rows: Iterable[RunRow]) -> Distribution:
    """Steps of the runs that terminate; those stopped at the horizon or in a deadlock count as `without`."""
    return distribution(row.steps if _terminated(row) else None for row in counted(rows))


def steps_to_failure(rows: Iterable[RunRow]) -> Distribution:
    """Steps up to and including the first that breaks a hard contract; runs that break none count as `without`."""
    return distribution(None if row.first_failure is None else row.first_failure + 1 for row in counted(rows))


# -- time between failures --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """One episode: its length until its first failure, or until its end if it has none (then it is censored)."""

    length: int
    failed: bool


def lifetimes(rows: Iterable[RunRow], *, unit: TimeUnit = "steps") -> tuple[Lifetime, ...]:
    """F_r of each episode r: MAT steps, or run milliseconds, until the first failure or the end.

    An episode is a sequence of tasks that share state: all runs of one condition, variant and schedule with the same `episode`
    and seed, ordered by `place`, then as given. The rows must be of one configuration (tasks may arm different contracts, so
    digests may differ). A run without an episode is an episode of its own, as is one whose body goes through several cases
    (`RunRow.cases`). The failing step counts. Steps after the first failure do not count. A run with an infrastructure failure
    does not count either; it ends its episode before any failure. Runs without a hard contract, which cannot fail, and for `ms`
    runs without a clock, belong to no episode.
    """
    episodes: dict[tuple[object, ...], list[RunRow]] = {}
    for index, row in enumerate(rows):
        if not row.judged or (unit == "ms" and row.elapsed_ms is None):
            continue  # nothing could have failed, or nothing says when
        alone = () if row.episode else (row.item, index)
        key = (row.condition, row.variant, row.schedule, row.episode, row.seed, *alone)
        episodes.setdefault(key, []).append(row)
    found = (_lifetime(sorted(those, key=lambda row: row.place), unit) for those in episodes.values())
    return tuple(life for life in found if life is not None)


def _lifetime(rows: Sequence[RunRow], unit: TimeUnit) -> Lifetime | None:
    length = 0
    for index, row in enumerate(rows):
        if row.infrastructure:
            return Lifetime(length=length, failed=False) if index else None
        if row.first_failure is not None:
            last = row.first_failure + 1 if unit == "steps" else row.first_failure_ms
            return Lifetime(length=length + ((row.elapsed_ms or 0) if last is None else last), failed=True)
        length += row.steps if unit == "steps" else row.elapsed_ms or 0
    return Lifetime(length=length, failed=False)


def mtbf(rows: Iterable[RunRow], *, unit: TimeUnit = "steps") -> Estimate:
    """MTBF = 1/R sum_r F_r the plain mean. An episode without a failure counts with its length.

    Such episodes make it too low, because they would have continued. See `mtbf_censored`.
    """
    return mean_of(life.length for life in lifetimes(rows, unit=unit))


def mtbf_censored(rows: Iterable[RunRow], *, unit: TimeUnit = "steps") -> Estimate:
    """Total time over failures: sum_r F_r / #{r : episode r failed}; None if none failed.

    The maximum likelihood estimate for a constant failure rate (B. Epstein, M. Sobel, JASA 48 (1953)); an episode without a
    failure counts as survived that long. The interval is the bootstrap's over episodes and does not assume a constant rate.
    """
    return ratio_of((life.length, life.failed) for life in lifetimes(rows, unit=unit))


# -- mediation --------------------------------------------------------------------------------------------------------


def mediation(rows: Iterable[RunRow]) -> MediationShares:
    """p_allow, p_rewrite and p_block over all actions the mediator decided on."""
    rows = counted(rows)
    allowed, rewritten, blocked = (
        sum(row.allowed for row in rows), sum(row.rewritten for row in rows), sum(row.blocked for row in rows),
    )  # fmt: skip
    n = allowed + rewritten + blocked
    return MediationShares(allow=wilson(allowed, n), rewrite=wilson(rewritten, n), block=wilson(blocked, n))


# ---------------------------------------------------------------------------------------------------------------------


def _terminated(row: RunRow) -> bool:
    return row.termination not in _NOT_TERMINATED


def _share(facts: Iterable[tuple[RunRow, bool]], sampling: Sampling) -> Estimate:
    return share((Trials(task=task_of(row), seed=row.seed, won=int(fact)) for row, fact in facts), sampling)


def _mode(values: Iterable[_Key]) -> _Key:
    """The most frequent value, the smallest if several are."""
    counts = Counter(values)
    most = max(counts.values())
    return min(value for value, count in counts.items() if count == most)
