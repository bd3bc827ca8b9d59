"""Tables that compare governance variants: their outcomes, their searches, and the mediator's decisions.

Source: A5.5, A6.6.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mat.measure.estimate import Estimate
from mat.measure.governance import VariantLine
from mat.measure.reliability import MediationShares
from mat.report.table import FILES, PAGE, Column, Reworded, Table, TableCell


def tables(lines: Sequence[VariantLine]) -> tuple[Table, ...]:
    """The outcomes of each variant, the searches under it, and the mediator's decisions. Empty without lines."""
    found = (_outcome_table(lines), _search_table(lines), _mediation_table(lines))
    return tuple(table for table in found if table.rows)


_KEYS = (Column(name="variant", key=True), Column(name="condition", key=True, media=FILES))


def _outcome_table(lines: Sequence[VariantLine]) -> Table:
    return Table(
        name="governance",
        title="Governance variants",
        note="high impact stopped: blocked, routed to approval or sandboxed",
        brief=True,
        columns=(
            *_KEYS, Column(name="runs"), Column(name="success"), Column(name="violations"), Column(name="high_impact_stopped"),
            Column(name="attack_success"), Column(name="broken", media=PAGE), Column(name="cheapest", media=PAGE),
        ),
        rows=tuple(
            (
                *_key_cells(line, lines), line.runs, line.success, line.violations, line.high_impact_stopped,
                line.attack_success, line.broken, line.cheapest,
            )
            for line in lines
        ),
    )  # fmt: skip


def _search_table(lines: Sequence[VariantLine]) -> Table:
    return Table(
        name="governance_search",
        title="Governance variants under search",
        note="broken: items with a counterexample, nominal runs included",
        brief=True,
        columns=(Column(name="variant", key=True), Column(name="broken"), Column(name="cheapest")),
        rows=tuple((line.variant, line.broken, line.cheapest) for line in lines if line.broken.n),
    )


def _mediation_table(lines: Sequence[VariantLine]) -> Table:
    rows: list[tuple[TableCell, ...]] = []
    for line in lines:
        for name, shares in _action_groups(line):
            if shares.allow.n:
                decided: tuple[Estimate, ...] = (shares.allow, shares.rewrite, shares.block)
                rows.append((*_key_cells(line, lines), name, *decided))
    return Table(
        name="mediation",
        title="Mediation",
        note="shares of the proposed actions: tool calls, writes, and any other action that was blocked or rewritten",
        brief=True,
        columns=(
            *_KEYS, Column(name="actions", key=True), Column(name="allowed"), Column(name="rewritten"), Column(name="blocked"),
        ),
        rows=tuple(rows),
    )  # fmt: skip


def _action_groups(line: VariantLine) -> Iterator[tuple[str, MediationShares]]:
    yield "all", line.shares
    for part in line.by_impact:
        yield f"{part.name} impact", part.shares
    for part in line.by_input:
        yield f"{part.name} input", part.shares


def _key_cells(line: VariantLine, lines: Sequence[VariantLine]) -> tuple[TableCell, TableCell]:
    """The variant, with its condition if there are several, and the condition."""
    several = len({other.condition for other in lines}) > 1
    return Reworded(text=f"{line.variant}, {line.condition}" if several else line.variant, value=line.variant), line.condition
