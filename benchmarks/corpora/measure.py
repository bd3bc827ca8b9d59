"""Judging stored runs, and the arithmetic: precision, recall, base rate and localisation, each with its interval and n."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpora.formats import read_traces
from mat.adapters.importers import StoredTrace
from mat.core.record import Record
from mat.measure.estimate import Estimate
from mat.measure.interval import wilson
from mat.monitor.contract import Contract
from mat.monitor.judge import judge

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
NEAR = (0, 1, 3)
"""Distances, in steps of the source, at which a named step counts as located."""


def half_of(trace_id: str) -> str:
    """ "design" or "report", by a hash of the id: contracts were written looking at the design half only."""
    return "design" if hashlib.sha256(trace_id.encode()).digest()[0] % 2 == 0 else "report"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One violation: the contract, whether it is hard, our step and the agent it blames."""

    contract: str
    hard: bool
    step: int
    agent: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One run and what the contracts say of it. `failed` is None where the corpus states no outcome."""

    id: str
    half: str
    failed: bool | None
    findings: tuple[Finding, ...]
    errors: tuple[str, ...]
    steps: tuple[tuple[int, str], ...]
    """Of each of our steps, the source's index (of one it does not count, that before) and the agent."""
    counted: tuple[tuple[int, str], ...]
    """The steps the source counts, once each, with the agent: what a person could have named."""
    first_error: int | None
    truth: int | None
    """The annotated step, as an index of the source."""
    truth_agent: str
    labels: Mapping[str, Any]

    @property
    def named(self) -> Finding | None:
        """The hard violation that blames the earliest step: what the contracts would show first."""
        hard = [finding for finding in self.findings if finding.hard]
        return min(hard, key=lambda finding: finding.step, default=None)

    def flagged_by(self, contract: str | None = None) -> bool:
        """Whether that contract is broken; without a name, whether any hard one is."""
        return any(finding.hard if contract is None else finding.contract == contract for finding in self.findings)


def judged(stored: StoredTrace, contracts: Sequence[Contract], failed: Callable[[Mapping[str, Any]], bool | None]) -> Judged:
    """A stored run, judged as if finished. The labels are read after the verdicts are in, and only to be compared with them."""
    records = tuple(stored.records)
    _, outcomes = judge(records, contracts)
    labels = stored.labels
    truth = labels.get("annotated_step")
    steps = _placed(records, labels["source_steps"])
    agent = str(labels.get("annotated_agent") or "")
    found = (
        Finding(
            contract=item.contract, hard=item.severity == "hard", step=item.step, message=item.message,
            agent=item.agent or (records[item.step].agent if 0 <= item.step < len(records) else ""),
        )
        for outcome in outcomes
        for item in outcome.violations
    )  # fmt: skip
    return Judged(
        id=stored.id, half=half_of(stored.id), failed=failed(labels), findings=tuple(found), steps=steps,
        errors=tuple(f"{outcome.contract}: {outcome.error}" for outcome in outcomes if outcome.error),
        counted=tuple(dict(_counted(records, labels["source_steps"])).items()),
        first_error=next((record.step for record in records if record.observation.error is not None), None),
        truth=steps[truth][0] if isinstance(truth, int) else None, truth_agent=agent, labels=labels,
    )  # fmt: skip


def _placed(records: Sequence[Record], source: Sequence[Any]) -> tuple[tuple[int, str], ...]:
    placed, now = [], next((index for index in source if isinstance(index, int)), 0)
    for record, index in zip(records, source, strict=True):
        now = index if isinstance(index, int) else now
        placed.append((now, record.agent))
    return tuple(placed)


def _counted(records: Sequence[Record], source: Sequence[Any]) -> Iterable[tuple[int, str]]:
    return ((index, record.agent) for record, index in zip(records, source, strict=True) if isinstance(index, int))


def judged_corpus(
    path: str,
    contracts_for: Callable[[StoredTrace], Sequence[Contract]],
    failed: Callable[[Mapping[str, Any]], bool | None],
) -> list[Judged]:
    """Every run of a file below DATA."""
    return [judged(stored, contracts_for(stored), failed) for stored in read_traces(DATA / path)]


# -- flags against outcomes -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """How flags meet failures. precision: failed among flagged; recall: flagged among failed; base: failed among all."""

    flagged: int
    precision: Estimate
    recall: Estimate
    base: Estimate

    @property
    def beats_base(self) -> bool | None:
        """Whether the whole interval of the precision lies above the base rate; None where every run failed, or none did."""
        low, base = self.precision.low, self.base.value
        if base is None or base in (0.0, 1.0):
            return None
        return low is not None and low > base


def flags(runs: Sequence[Judged], contract: str | None = None) -> Flags:
    """Flags of one contract, or of any hard one, against the outcomes of the runs that have one."""
    known = [(run.flagged_by(contract), run.failed) for run in runs if run.failed is not None]
    caught = sum(flag and bool(bad) for flag, bad in known)
    flagged, failed = sum(flag for flag, _ in known), sum(bool(bad) for _, bad in known)
    return Flags(
        flagged=flagged, precision=wilson(caught, flagged), recall=wilson(caught, failed), base=wilson(failed, len(known))
    )


# -- named steps against annotated ones -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """How often a step was named at each distance of NEAR, and the annotated agent, among all annotated runs.

    `named` counts the runs for which a step was named at all; a run without one counts as missed.
    """

    named: int
    near: tuple[Estimate, ...]
    agent: Estimate


Namer = Callable[[Judged], int | None]
"""Names one of our steps of a run, or none."""


def by_contracts(run: Judged) -> int | None:
    return None if run.named is None else run.named.step


def by_first_error(run: Judged) -> int | None:
    return run.first_error


def by_last_step(run: Judged) -> int | None:
    if not run.counted:
        return None
    return max(place for place, step in enumerate(run.steps) if step == run.counted[-1])


def located(runs: Sequence[Judged], namer: Namer) -> Located:
    """One way of naming steps, over the annotated runs."""
    annotated = [run for run in runs if run.truth is not None]
    named = [(run, namer(run)) for run in annotated]
    hits = [sum(step is not None and _distance(run, step) <= near for run, step in named) for near in NEAR]
    agents = sum(step is not None and _same(run.steps[step][1], run.truth_agent) for run, step in named)
    return Located(
        named=sum(step is not None for _, step in named), near=tuple(wilson(hit, len(annotated)) for hit in hits),
        agent=wilson(agents, len(annotated)),
    )  # fmt: skip


def _distance(run: Judged, step: int) -> int:
    assert run.truth is not None
    return abs(run.steps[step][0] - run.truth)


def _same(agent: str, other: str) -> bool:
    return agent.casefold() == other.casefold()


def expected_at_random(runs: Sequence[Judged]) -> tuple[float | None, ...]:
    """What naming one counted step of each run at random gives, in expectation: a share for each of NEAR, and the agent's."""
    annotated = [run for run in runs if run.truth is not None and run.counted]
    if not annotated:
        return (None,) * (len(NEAR) + 1)
    shares = [
        [sum(abs(index - (run.truth or 0)) <= near for index, _ in run.counted) / len(run.counted) for near in NEAR]
        + [sum(_same(agent, run.truth_agent) for _, agent in run.counted) / len(run.counted)]
        for run in annotated
    ]
    return tuple(sum(column) / len(annotated) for column in zip(*shares, strict=True))
