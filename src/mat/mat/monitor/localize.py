"""Localise a failure: the first violation, the region around it, and its backward slice over provenance."""

from __future__ import annotations

from collections.abc import Sequence

from mat.core import limits
from mat.core.record import Record
from mat.core.run import Run
from mat.core.verdict import Violation
from mat.monitor.propagation import passages, written


def first_violation(run: Run, contract: str | None = None) -> Violation | None:
    """The first hard violation, or the first of one contract."""
    for violation in run.violations if contract is not None else run.failures:
        if contract is None or violation.contract == contract:
            return violation
    return None


def region(
    records: Sequence[Record], violation: Violation, *, before: int = limits.REGION, after: int = 1
) -> tuple[Record, ...]:
    """The records that explain a violation: its own region, `before` steps of context and `after` steps that follow."""
    start = max(0, min(violation.region[0], violation.step - before))
    if violation.step - start > 4 * before:
        start = violation.step - before
    return tuple(record for record in records if start <= record.step <= violation.step + after)


def backward_slice(records: Sequence[Record], step: int) -> tuple[int, ...]:
    """The steps whose results reach `step` over provenance links; other steps have no recorded influence.

    One backward pass, so that a memory cell leads to the last write before the read, and a passage to the retrieval that
    found it. `records` are in ask order.
    """
    wanted = {f"step#{step}", f"claim#{step}"}
    found: list[int] = []
    for record in reversed(records):
        if record.step > step:
            continue
        own = {record.artefact, f"claim#{record.step}"}
        cells = written(record) if record.effected != "no" else ()
        made = own | {cell for cell in cells if _wants(wanted, cell)} | {f"passage:{name}" for name, _ in passages(record)}
        if wanted.isdisjoint(made) and not any(cell in made for cell in cells):
            continue
        found.append(record.step)
        wanted -= made
        wanted.update(link.src for link in record.links if link.dst in own)
    return tuple(sorted(item for item in found if item != step))


def _wants(wanted: set[str], cell: str) -> bool:
    """Whether one of the reads could have returned this cell; `memory:name/*` means a whole memory."""
    memory, _, key = cell.partition("/")
    return cell in wanted or f"{memory}/*" in wanted or (key == "*" and any(item.startswith(f"{memory}/") for item in wanted))
