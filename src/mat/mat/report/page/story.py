"""One counterexample as a person reads it: what broke, under what, how sure, where, and how to run it. A template tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mat.core.campaign import Counterexample
from mat.core.record import Record
from mat.core.run import Run
from mat.core.spec import Perturbation
from mat.core.verdict import Violation
from mat.evidence.artifact import Replay, hit_step
from mat.monitor.localize import backward_slice, region
from mat.monitor.propagation import reaching, speaks_of, way
from mat.report import words

_PATHS: Final = 3
"""Faults on the way to one violation that are told."""
_OTHERS: Final = 5
"""Other violations of the same run that are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """`steps` explain the violation; the whole trace is in the viewer. `broken`: contracts by the step that violates them.

    `schedule`: each perturbation in words and as data. `command` runs the counterexample again, "" where no file holds it.
    """

    number: int
    replay: Replay
    where: str
    schedule: tuple[tuple[str, str], ...]
    provenance: tuple[str, ...]
    others: tuple[str, ...]
    uncontrolled: str
    command: str
    steps: tuple[Record, ...]
    broken: dict[int, tuple[str, ...]]

    @property
    def found(self) -> Counterexample:
        return self.replay.counterexample

    @property
    def verdict(self) -> Violation:
        return self.found.verdict


def story_of(number: int, replay: Replay, *, command: str) -> Story:
    verdict, run = replay.counterexample.verdict, replay.counterexample.run
    steps = tuple(region(run.records, verdict))
    ordered = sorted(run.spec.schedule, key=lambda item: (_hit(run, item), item.key))
    return Story(
        number=number, replay=replay, where=_where(verdict), command=command, steps=steps,
        schedule=tuple(
            (words.perturbation_in_words(item), words.perturbation_in_data(item, hit_step(run, item))) for item in ordered
        ),
        provenance=_provenance(run, verdict), others=_others(run, verdict),
        uncontrolled="; ".join(finding.message for finding in run.uncontrolled),
        broken={
            record.step: tuple(dict.fromkeys(found.contract for found in run.violations if found.step == record.step))
            for record in steps
        },
    )  # fmt: skip


def _where(verdict: Violation) -> str:
    who = f" by {verdict.agent}" if verdict.agent else ""
    role = f" ({verdict.role})" if verdict.role and verdict.role != verdict.agent else ""
    instance = f", instance {verdict.instance}" if verdict.instance else ""
    return f"{verdict.stage.capitalize()} at step {verdict.step}{who}{role}{instance}"


def _hit(run: Run, item: Perturbation) -> int:
    step = hit_step(run, item)
    return len(run.records) if step is None else step


def _provenance(run: Run, verdict: Violation) -> tuple[str, ...]:
    """The backward slice, and the faults whose path leads to the violating step (A4.3)."""
    lines: list[str] = []
    by_step = {record.step: record for record in run.records}
    found = backward_slice(run.records, verdict.step)
    if found:
        named = ", ".join(f"{step} ({words.action_text(by_step[step])})" if step in by_step else str(step) for step in found)
        lines.append(f"Step {verdict.step} was built from steps {named}.")
    for journey in reaching(run, verdict)[:_PATHS]:
        lines.append(f"Fault: {journey.fault.entered}.")
        path = () if speaks_of(verdict, journey.fault) else journey.path
        if len(path) > 1 and way(path) not in verdict.message:
            lines.append(f"Steps it passed through (not necessarily causes): {way(path)}.")
    return tuple(lines)


def _others(run: Run, verdict: Violation) -> tuple[str, ...]:
    others = [found for found in run.violations if found != verdict]
    lines = [f"{found.contract} at step {found.step}: {found.message}" for found in others[:_OTHERS]]
    return (*lines, *([f"and {len(others) - _OTHERS} more"] if len(others) > _OTHERS else []))
