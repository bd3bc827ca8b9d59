"""Counterexamples by run: a run that breaks several contracts, at however many steps, is one entry of a report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mat.core.verdict import Violation
from mat.evidence.replay_file import Replay
from mat.report.document import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRun:
    """A run that a search found. `replays`: its counterexamples, one for each contract and stage; `files`: their replay files.

    `number` is the index of the first of them in the report.
    """

    number: int
    replays: tuple[Replay, ...]
    files: tuple[str, ...]

    @property
    def first(self) -> Replay:
        return self.replays[0]


def found_runs(document: Document) -> list[FoundRun]:
    """The counterexamples of a report by run, in order of first appearance."""
    files = {line.id: iter(line.replays) for line in document.items}
    groups: dict[tuple[str, str], list[tuple[int, Replay, str]]] = {}
    for number, replay in enumerate(document.counterexamples):
        file = next(files.get(replay.item, iter(())), "")
        groups.setdefault((replay.item, replay.counterexample.run.head), []).append((number, replay, file))
    return [
        FoundRun(
            number=group[0][0], files=tuple(dict.fromkeys(file for _, _, file in group if file)),
            replays=tuple(_once(replay for _, replay, _ in group)),
        )
        for group in groups.values()
    ]  # fmt: skip


def _once(replays: Iterable[Replay]) -> list[Replay]:
    """One counterexample for each contract and stage."""
    kept: dict[tuple[str, str], Replay] = {}
    for each in replays:
        verdict = each.counterexample.verdict
        kept.setdefault((verdict.contract, verdict.stage), each)
    return list(kept.values())


def held_findings(document: Document) -> list[tuple[str, str]]:
    """For each finding that fails nothing although no test expects it: its item, and why it may stay."""
    return [
        (
            line.item,
            f"{', '.join(line.contracts)} is {line.standing}{f' until {line.until}' if line.until else ''}: {line.remark}",
        )
        for line in document.findings
        if line.standing in ("accepted", "known")
    ]


def other_violations(violations: Sequence[Violation], verdict: Violation, *, mentioned: Sequence[Violation] = ()) -> list[str]:
    """What else a run breaks, a line for each contract, however often it is broken."""
    others = [found for found in violations if found != verdict and found not in mentioned]
    lines = []
    for contract in dict.fromkeys(found.contract for found in others):
        own = [found for found in others if found.contract == contract]
        steps = [str(step) for step in dict.fromkeys(found.step for found in own)]
        more = f" and {len(steps) - _STEPS} more" if len(steps) > _STEPS else ""
        where = f"at step{'s' * (len(steps) > 1)} {', '.join(steps[:_STEPS])}{more}"
        lines.append(f"{contract} again {where}" if contract == verdict.contract else f"{contract} {where}: {own[0].message}")
    return lines


_STEPS: Final = 8
"""The most steps that are named."""
