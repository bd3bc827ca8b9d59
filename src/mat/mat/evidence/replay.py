"""Judge a re-run of a recorded counterexample: strictly, step by step, or as a regression test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from mat.core.difference import Difference, first_difference
from mat.core.errors import ReplayDivergence
from mat.core.run import Run
from mat.core.verdict import Violation
from mat.evidence.replay_file import Replay, short_id

ReplayStatus: TypeAlias = Literal["passed", "violated", "expected", "unknown", "stale", "divergent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome:
    """The outcome of a replay. `violations`: the hard ones of the re-run.

    `ok`: the replay counts as a pass. With "passed" it is False where a violation was expected and did not come.
    """

    status: ReplayStatus
    ok: bool
    reason: str = ""
    violations: tuple[Violation, ...] = ()
    divergence: ReplayDivergence | None = None


def compare(recorded: Run, again: Run) -> ReplayDivergence | None:
    """The divergence of a re-run from its recording, as an error to raise; None if they are the same run."""
    found = first_difference(recorded, again)
    return None if found is None else divergence(found, where=recorded.spec.task)


_DIFFERENCES: Final[dict[str, str]] = {
    "missing": "the replay ends where the recording has step {step}",
    "extra": "the replay has a step {step} after the recorded end",
    "end": "the replay ends differently, after {step} equal steps",
    "spec": "all {step} steps are equal, but the run is another one",
}


def divergence(found: Difference, *, where: str = "") -> ReplayDivergence:
    """The error for a difference."""
    text = _DIFFERENCES.get(found.aspect, "step {step} differs in its {aspect}").format(step=found.step, aspect=found.aspect)
    return ReplayDivergence(
        what=f"{text}: recorded {found.recorded}, now {found.again}",
        why=f"likely cause: {found.cause}",
        fix="run it as a regression test (plain pytest), which does not compare steps; or search again with --mat-stress",
        where=where,
    )


def judge_strict(replay: Replay, again: Run) -> ReplayOutcome:
    """Judge a strict replay: `divergent` if the facts differ, else the verdicts of today's contracts on the same facts."""
    found = compare(replay.counterexample.run, again)
    if found is not None:
        return ReplayOutcome(status="divergent", ok=False, reason=found.what, violations=again.failures, divergence=found)
    return _judge_contracts(replay, again)


def regression_outcome(replay: Replay, run: Run) -> ReplayOutcome:
    """Judge the recorded seed and schedule on today's code: it passes if no hard contract is violated.

    `stale` if the run no longer reaches any site of the schedule and breaks no hard contract: then it says nothing about this
    counterexample. A replay of an item marked `expect` passes only if the recorded contract is violated again.
    """
    if len(run.spec.schedule) and len(run.unreached) == len(run.spec.schedule) and not (run.failures and not replay.expected):
        sites = ", ".join(str(item.site) for item in run.unreached)
        return ReplayOutcome(
            status="stale", ok=False, violations=run.failures,
            reason=f"the run no longer reaches any site of its schedule ({sites}); if it passes alone "
            f"(pytest -k replay-{short_id(replay)}), a test before it left state behind: reset that in a fixture; otherwise "
            "search again with --mat-stress, and delete the file",
        )  # fmt: skip
    return _judge_contracts(replay, run)


def _judge_contracts(replay: Replay, run: Run) -> ReplayOutcome:
    recorded = replay.counterexample.verdict
    again = [violation for violation in run.violations if violation.contract == recorded.contract]
    missed = f"; {len(run.unreached)} of {len(run.spec.schedule)} sites not reached" if run.unreached else ""
    if replay.expected and again:
        reason = f"violates {recorded.contract} as expected: {again[0].message}"
        return ReplayOutcome(status="expected", ok=True, reason=reason + missed, violations=run.failures)
    if run.failures:
        first = next((item for item in run.failures if item.contract == recorded.contract), run.failures[0])
        reason = f"violates {first.contract} at step {first.step}: {first.message}"
        return ReplayOutcome(status="violated", ok=False, reason=reason + missed, violations=run.failures)
    if run.outcome == "unknown":
        broken = next(item for item in run.outcomes if item.severity == "hard" and item.outcome == "unknown")
        return ReplayOutcome(status="unknown", ok=False, reason=f"{broken.contract} could not be judged: {broken.error}")
    if replay.expected:
        reason = f"was expected to violate {recorded.contract} but does not: take it out of expect= and delete this file"
        return ReplayOutcome(status="passed", ok=False, reason=reason + missed)
    return ReplayOutcome(status="passed", ok=True, reason=f"no hard contract is violated{missed}")
