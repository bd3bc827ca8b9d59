"""Role drift: the share of an agent's actions that lie outside its role, D_i, of one run and over runs.

Source: F3.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mat.core.errors import SpecError
from mat.core.record import Record
from mat.core.run import Run
from mat.measure.estimate import Estimate
from mat.measure.interval import CONFIDENCE, wilson, wilson_ends
from mat.monitor.judge import HARNESS

ROLE_CONTRACTS: Final = (".role", ".drift", ".cites_sources", ".only_proposes", ".no_external_side_effects")
"""The endings of the ids that role contracts have by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftRow:
    """One agent in one run: `steps` = |T_i| actions, `outside` of them not in its role U_i. `error`: why not judged."""

    agent: str
    steps: int
    outside: int
    error: str = ""

    @property
    def score(self) -> float | None:
        """D_i(tau); None if the agent never acted or could not be judged."""
        return self.outside / self.steps if self.steps and not self.error else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDrift:
    """One agent over runs.

    `score`: the mean of D_i(tau) over the runs in which it acted; n counts these runs. `drifted`: the share of these runs with
    any action outside the role. `absent`: runs in which it never acted; `unjudged`: runs in which a contract was unknown.
    Neither share counts these.
    """

    agent: str
    score: Estimate
    drifted: Estimate
    absent: int
    unjudged: int


def drift_of(run: Run, contracts: str | Iterable[str], *, agents: Iterable[str] | None = None) -> tuple[DriftRow, ...]:
    """D_i(tau) of one run by the verdicts of its role contracts, by agent: attempts count as actions.

    D_i = |{t in T_i : a_t not in U_i}| / |T_i|. T_i are all steps of agent i. A step is outside the role if a violation of
    `contracts` (ids) blames it. Agents without a role contract score 0, so name the others in `agents`. If the outcome of a
    contract is unknown, no row has a score. SpecError for a contract that was not armed.

    Source: Sec. III-B, F3, A2.F3.
    """
    wanted = (contracts,) if isinstance(contracts, str) else tuple(sorted(set(contracts)))
    outcomes = {outcome.contract: outcome for outcome in run.outcomes}
    missing = [name for name in wanted if name not in outcomes]
    if missing or not wanted:
        also = f", or choose from {', '.join(sorted(outcomes))}" if outcomes else ""
        raise SpecError(
            what=f"run {run.id[:12]} did not arm {', '.join(map(repr, missing))}" if missing else "no contract is given",
            why="drift is the share of actions that break role contracts",
            fix=f"arm a role contract in the run{also}",
        )
    blamed = {violation.step for name in wanted for violation in outcomes[name].violations}
    errors = "; ".join(f"{name}: {outcomes[name].error}" for name in wanted if outcomes[name].error)
    acted = [record for record in run.records if _is_action(record)]
    steps = Counter(record.agent for record in acted)
    outside = Counter(record.agent for record in acted if record.step in blamed)
    return _rows(steps, outside, agents, errors)


def armed_drift(run: Run) -> tuple[DriftRow, ...]:
    """D_i of one run by the role contracts that it armed under their default ids; empty without one."""
    wanted = [outcome.contract for outcome in run.outcomes if outcome.contract.endswith(ROLE_CONTRACTS)]
    return drift_of(run, wanted) if wanted else ()


def drift(rows: Iterable[DriftRow], *, confidence: float = CONFIDENCE) -> tuple[AgentDrift, ...]:
    """The drift of each agent over the rows of many runs, by name.

    The unit is the run: actions of one run are dependent. The interval of `score` is Wilson's at the mean score m of n runs,
    method "wilson-mean": a score in [0, 1] with mean m varies at most as much as a coin of that bias, m(1 - m), so the
    interval covers at least as often as it does for shares, and is not empty if all scores are equal.
    """
    by_agent: dict[str, list[DriftRow]] = {}
    for row in rows:
        by_agent.setdefault(row.agent, []).append(row)
    return tuple(_agent_drift(agent, found, confidence) for agent, found in sorted(by_agent.items()))


def _agent_drift(agent: str, rows: list[DriftRow], confidence: float) -> AgentDrift:
    scores = [row.score for row in rows if row.score is not None]
    unjudged = sum(bool(row.error) for row in rows)
    return AgentDrift(
        agent=agent,
        score=_mean(scores, confidence),
        drifted=wilson(sum(score > 0 for score in scores), len(scores), confidence),
        absent=len(rows) - unjudged - len(scores),
        unjudged=unjudged,
    )


def _mean(scores: list[float], confidence: float) -> Estimate:
    n, method = len(scores), "wilson-mean"
    if not n:
        return Estimate(value=None, low=None, high=None, n=0, confidence=confidence, method=method)
    value = min(math.fsum(scores) / n, 1.0)
    low, high = wilson_ends(value, n, confidence)
    return Estimate(value=value, low=low, high=high, n=n, confidence=confidence, method=method)


def _rows(steps: Counter[str], outside: Counter[str], agents: Iterable[str] | None, error: str = "") -> tuple[DriftRow, ...]:
    names = sorted(steps if agents is None else set((agents,) if isinstance(agents, str) else agents))
    return tuple(DriftRow(agent=name, steps=steps[name], outside=outside[name], error=error) for name in names)


def _is_action(record: Record) -> bool:
    """Whether an agent took a step. The harness's closing record and incoming messages are no agent's actions."""
    return record.agent != HARNESS and (record.action.kind != "message" or record.action.boundary != "prompt")
