"""The standing of findings: whether a counterexample, or the run of a replay, fails its test, and if not, why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from mat.core.campaign import Certificate, Counterexample, FindingStanding, signature_of
from mat.core.known import Acceptance
from mat.core.run import Run
from mat.core.verdict import Violation
from mat.evidence.replay_file import FOLDER
from mat_study.settings import ItemSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingCounterexample:
    """A counterexample of a search, and its standing."""

    found: Counterexample
    standing: FindingStanding


def standings(found: Iterable[Counterexample], settings: ItemSettings) -> list[StandingCounterexample]:
    """The counterexamples with their standing, without further violations of a contract by the same run.

    A run may break one contract at many steps and interfaces; the first of one standing represents the others.
    """
    kept: dict[tuple[str, str, str, str], StandingCounterexample] = {}
    for each in found:
        standing = standing_of(each, settings)
        key = (each.run.id, each.verdict.contract, each.verdict.stage, standing.kind)
        if key not in kept or each.verdict.step < kept[key].found.verdict.step:
            kept[key] = StandingCounterexample(found=each, standing=standing)
    return list(kept.values())


def standing_of(found: Counterexample, settings: ItemSettings) -> FindingStanding:
    """The standing of a counterexample of a search."""
    if found.verdict.contract in settings.expect:
        return FindingStanding(kind="expected")
    return settings.known.standing(found.signature, found.verdict.stage, found.cost)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingViolation:
    """A hard violation of a run, and its standing."""

    violation: Violation
    standing: FindingStanding


def standings_in(run: Run, settings: ItemSettings) -> tuple[StandingViolation, ...]:
    """The standing of each hard violation of a replay's run, in their order."""
    return tuple(
        StandingViolation(
            violation=each,
            standing=FindingStanding(kind="expected")
            if each.contract in settings.expect
            else settings.known.standing(signature_of(run, each), each.stage, run.spec.schedule.cost, within=True),
        )
        for each in run.failures
    )


def is_held(found: Sequence[StandingViolation]) -> bool:
    """Whether a replay's run passes because of an acceptance or a baseline: nothing that it breaks is new, and something is
    accepted or known."""
    kinds = {each.standing.kind for each in found}
    return "new" not in kinds and bool(kinds & {"accepted", "known"})


def fixed_text(accepted: Acceptance, *, file: str) -> str:
    """What to say of an accepted finding that did not show again."""
    name = file or PurePosixPath(accepted.test.partition("::")[0]).parent.joinpath(FOLDER, accepted.replay).as_posix()
    fixed = f"fixed: {accepted.contract} is accepted until {accepted.until}, but no longer broken"
    return f"{fixed}; remove the acceptance: mat accept --remove {name}"


def not_found_again(settings: ItemSettings, found: Sequence[Counterexample], certificate: Certificate) -> list[str]:
    """What to say of accepted findings that a complete search no longer finds, although it tries their operators."""
    if not certificate.proven:
        return []
    tried = {str(name).partition(".")[0] for name in certificate.grid}
    return [
        fixed_text(each, file="")
        for each in settings.known.unseen(one.signature for one in found)
        if each.cost <= certificate.bound
        and all(set(one.operator_family.split("+")) <= tried for one in each.signatures)
    ]  # fmt: skip
