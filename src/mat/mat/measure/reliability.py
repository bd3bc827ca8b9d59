"""Reliability in one pass over rows: success, termination, violations, the profile per contract, mediation (A6.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from mat.core.verdict import Severity
from mat.measure.estimate import Estimate
from mat.measure.interval import wilson
from mat.measure.rows import RunRow

_Key = TypeVar("_Key", int, str)
_NOT_TERMINATED: Final = frozenset(("horizon", "deadlock"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractProfile:
    """How one contract fails over a set of runs.

    `frequency`: share of runs that break it. `first_step`: the mode of its first violating step over those runs, the earlier
    of equals. `action_kind` and `agent`: the most frequent at those first steps, by name among equals.
    """

    contract: str
    severity: Severity
    frequency: Estimate
    first_step: int
    action_kind: str
    agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MediationShares:
    """Shares of the proposed actions that the mediator allowed, rewrote and blocked."""

    allow: Estimate
    rewrite: Estimate
    block: Estimate


def success(rows: Iterable[RunRow]) -> Estimate:
    """Share of runs with Y = 1 among those that could be judged."""
    return _share(row.success for row in rows if row.success is not None)


def non_termination(rows: Iterable[RunRow]) -> Estimate:
    """Share of runs with Term = 0: stopped at the horizon or in a deadlock (A1.7)."""
    return _share(row.termination in _NOT_TERMINATED for row in rows)


def violation_rate(rows: Iterable[RunRow]) -> Estimate:
    """Share of runs that break at least one hard contract: the mean of Fail(tau) (Eq. 4)."""
    return _share(bool(row.hard) for row in rows)


def mediation(rows: Iterable[RunRow]) -> MediationShares:
    """p_allow, p_rewrite and p_block over all actions the mediator decided on."""
    rows = tuple(rows)
    allowed, rewritten, blocked = (
        sum(row.allowed for row in rows), sum(row.rewritten for row in rows), sum(row.blocked for row in rows),
    )  # fmt: skip
    n = allowed + rewritten + blocked
    return MediationShares(allow=wilson(allowed, n), rewrite=wilson(rewritten, n), block=wilson(blocked, n))


def profile(rows: Sequence[RunRow]) -> tuple[ContractProfile, ...]:
    """The contracts broken in these runs: hard before soft, then by frequency, then by name."""
    firsts: dict[tuple[str, Severity], list[tuple[int, str, str]]] = {}
    for row in rows:
        seen: set[tuple[str, Severity]] = set()
        for found in row.violations:  # by step, so the first of a contract is its first
            key = (found.contract, found.severity)
            if key not in seen:
                seen.add(key)
                firsts.setdefault(key, []).append((found.step, found.action_kind, found.agent))
    profiles = [
        ContractProfile(
            contract=contract,
            severity=severity,
            frequency=wilson(len(found), len(rows)),
            first_step=_mode(step for step, _, _ in found),
            action_kind=_mode(kind for _, kind, _ in found),
            agent=_mode(agent for _, _, agent in found),
        )
        for (contract, severity), found in firsts.items()
    ]
    return tuple(sorted(profiles, key=lambda item: (item.severity != "hard", -(item.frequency.value or 0.0), item.contract)))


def _share(facts: Iterable[bool]) -> Estimate:
    counted = [bool(fact) for fact in facts]
    return wilson(sum(counted), len(counted))


def _mode(values: Iterable[_Key]) -> _Key:
    """The most frequent value; of equals the smallest."""
    counts = Counter(values)
    most = max(counts.values())
    return min(value for value, count in counts.items() if count == most)
