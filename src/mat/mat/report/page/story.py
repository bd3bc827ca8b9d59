"""Collects what a page shows of a counterexample: violation, schedule, certificate, steps, causes and the replay command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mat.core.campaign import Counterexample
from mat.core.record import Record
from mat.core.run import Run
from mat.core.verdict import Violation
from mat.evidence.replay_file import Replay, hit_step
from mat.monitor.localize import backward_slice, region
from mat.monitor.propagation import reaching, speaks_of, way
from mat.report import words
from mat.report.grouping import other_violations

_PATHS: Final = 3
"""The most faults shown on the way to one violation."""
_OTHERS: Final = 5
"""The most other violations of the same run that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One counterexample, for a template. `steps` are those around the violation; the viewer has the whole trace.

    `broken`: the contracts that each step violates. `schedule`: each perturbation in words and in code notation. `command` runs
    the counterexample again; "" without a replay file.
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
    """What the page shows of one counterexample; `number` is its index in the report."""
    verdict, run = replay.counterexample.verdict, replay.counterexample.run
    steps = tuple(region(run.records, verdict))
    return Story(
        number=number, replay=replay, where=_violation_place(verdict), command=command, steps=steps,
        schedule=tuple(
            (words.perturbation_in_words(item), words.perturbation_in_data(item, hit_step(run, item)))
            for item in words.in_order_of_steps(run)
        ),
        provenance=_provenance(run, verdict), others=_other_violations(run, verdict),
        uncontrolled="; ".join(finding.message for finding in run.uncontrolled),
        broken={
            record.step: tuple(dict.fromkeys(found.contract for found in run.violations if found.step == record.step))
            for record in steps
        },
    )  # fmt: skip


def _violation_place(verdict: Violation) -> str:
    who = f" by {verdict.agent}" if verdict.agent else ""
    role = f" ({verdict.role})" if verdict.role and verdict.role != verdict.agent else ""
    instance = f", instance {verdict.instance}" if verdict.instance else ""
    return f"{verdict.stage.capitalize()} at step {verdict.step}{who}{role}{instance}"


def _provenance(run: Run, verdict: Violation) -> tuple[str, ...]:
    """The backward slice, and the faults whose path leads to the violating step.

    Source: A4.3.
    """
    lines: list[str] = []
    found = backward_slice(run.records, verdict.step)
    if found:
        lines.append(words.built_from(run, verdict.step, found))
    for journey in reaching(run, verdict)[:_PATHS]:
        lines.append(f"Fault: {journey.fault.entered}.")
        path = () if speaks_of(verdict, journey.fault) else journey.path
        if len(path) > 1 and way(path) not in verdict.message:
            lines.append(f"Steps it passed through (not necessarily causes): {way(path)}.")
    return tuple(lines)


def _other_violations(run: Run, verdict: Violation) -> tuple[str, ...]:
    others = other_violations(run.violations, verdict)
    lines = others[:_OTHERS]
    return (*lines, *([f"and {len(others) - _OTHERS} more"] if len(others) > _OTHERS else []))
