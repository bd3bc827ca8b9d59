"""Where a run went wrong: the first violation, the region around it, and its backward slice over provenance (decision 10)."""

from __future__ import annotations

from collections.abc import Sequence

from mat.core import limits
from mat.core.record import Record
from mat.core.run import Run
from mat.core.verdict import Violation


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
    """The steps whose results reach `step` over provenance links; what it does not hold has no recorded influence."""
    sources: dict[str, list[str]] = {}
    for record in records:
        for link in record.links:
            sources.setdefault(link.dst, []).append(link.src)
    found: set[str] = set()
    todo = [f"step#{step}", f"claim#{step}"]
    while todo:
        artefact = todo.pop()
        for source in sources.get(artefact, ()):
            if source not in found:
                found.add(source)
                todo.append(source)
    steps = {int(name.partition("#")[2]) for name in found if name.startswith(("step#", "claim#"))}
    return tuple(sorted(steps - {step}))
