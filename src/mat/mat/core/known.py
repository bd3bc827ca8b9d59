"""Findings that a project lives with: accepted until a date (`mat accept`), or in the baseline (`--mat-baseline`).

A finding is a counterexample of a test, without its run: its stage, its cost, and its signatures. An acceptance covers what is
found again under one of its signatures, and nothing that is cheaper or more severe.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from mat.core.campaign import NEW, FindingStanding, Signature
from mat.core.value import EXACT_FIELDS
from mat.core.verdict import Stage

_STAGES: Final = {"attempted": 0, "effected": 1}
_SEVERITIES: Final = {"soft": 0, "hard": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFinding:
    """A counterexample that is known: of which test, at which stage and cost.

    `signatures`: those of its contract in its run, which may break the contract at several interfaces.
    """

    __pydantic_config__ = EXACT_FIELDS
    test: str
    stage: Stage
    cost: int
    signatures: tuple[Signature, ...]

    def concerns(self, signature: Signature, *, within: bool = False) -> bool:
        """Whether a failure of the same test is the same one, whatever its severity, stage and cost.

        `within`: a failure under more kinds of operators is the same, too. A run fails as it does under a part of its schedule.
        """
        return any(_same(own, signature, within=within) for own in self.signatures)

    def covers(self, signature: Signature, stage: Stage) -> bool:
        """Whether that failure is no more severe than this finding."""
        severest = max(_SEVERITIES[own.severity] for own in self.signatures)
        return _STAGES[stage] <= _STAGES[self.stage] and _SEVERITIES[signature.severity] <= severest


def _same(one: Signature, other: Signature, *, within: bool) -> bool:
    if replace(one, severity=other.severity, operator_family=other.operator_family) != other:
        return False
    families, others = (set(each.operator_family.split("+")) for each in (one, other))
    return families <= others if within else families == others


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """A finding that does not fail its test up to and including a date.

    `replay`: the name of its replay file. `since` and `until` are dates, YYYY-MM-DD. `by`: who accepted it, "" if nobody says.
    """

    __pydantic_config__ = EXACT_FIELDS
    replay: str
    test: str
    stage: Stage
    cost: int
    signatures: tuple[Signature, ...]
    reason: str
    since: str
    until: str
    by: str = ""

    @property
    def contract(self) -> str:
        return self.signatures[0].contract

    @property
    def finding(self) -> KnownFinding:
        return KnownFinding(test=self.test, stage=self.stage, cost=self.cost, signatures=self.signatures)

    def ended(self, today: str) -> bool:
        return self.until < today

    def in_words(self) -> str:
        """By whom it was accepted, and why."""
        return f"{f'{self.by}: ' if self.by else ''}{self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFindings:
    """What is known of one test. `today`: the date that decides, YYYY-MM-DD in UTC. `baseline`: None without a baseline."""

    accepted: tuple[Acceptance, ...] = ()
    baseline: tuple[KnownFinding, ...] | None = None
    today: str = ""

    @property
    def nothing(self) -> bool:
        return not self.accepted and self.baseline is None

    def standing(self, signature: Signature, stage: Stage, cost: int, *, within: bool = False) -> FindingStanding:
        """The standing of a failure of the test. `within` as in `KnownFinding.concerns`."""
        own = [each for each in self.accepted if each.finding.concerns(signature, within=within)]
        for each in own:
            if not each.ended(self.today) and each.cost <= cost and each.finding.covers(signature, stage):
                return FindingStanding(kind="accepted", remark=each.in_words(), until=each.until)
        remarks = [_why_not(each, signature, stage, cost, self.today) for each in own]
        if not any(each.ended(self.today) for each in own):
            known = [each for each in self.baseline or () if each.concerns(signature, within=within)]
            if any(each.cost <= cost and each.covers(signature, stage) for each in known):
                return FindingStanding(kind="known", remark="in the baseline")
            remarks += [f"{_excess(each, signature, stage, cost)} than in the baseline" for each in known]
        return FindingStanding(remark="; ".join(dict.fromkeys(remarks))) if remarks else NEW

    def unseen(self, seen: Iterable[Signature]) -> tuple[Acceptance, ...]:
        """The acceptances of findings that none of these failures is about."""
        found = tuple(seen)
        return tuple(
            each for each in self.accepted if not any(each.finding.concerns(one, within=True) for one in found)
        )  # fmt: skip


def _why_not(accepted: Acceptance, signature: Signature, stage: Stage, cost: int, today: str) -> str:
    """Why an acceptance that concerns a failure does not cover it."""
    if accepted.ended(today):
        return f"its acceptance ended on {accepted.until} ({accepted.in_words()})"
    return f"{_excess(accepted.finding, signature, stage, cost)} than the accepted one ({accepted.in_words()})"


def _excess(known: KnownFinding, signature: Signature, stage: Stage, cost: int) -> str:
    """In what a failure exceeds a known one."""
    if not known.covers(signature, stage):
        return f"more severe ({signature.severity}, {stage})"
    return f"cheaper ({cost}, not {known.cost})"
