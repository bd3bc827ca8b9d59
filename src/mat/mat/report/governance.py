"""The comparison of governance variants (A5.5, A6.6): one table of outcomes, one of what the mediator decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mat.measure.governance import VariantLine
from mat.report import words


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table as text cells, for whichever rendering."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(lines: Sequence[VariantLine]) -> tuple[Table, ...]:
    """What each variant came to, what was searched under it, and what the mediator decided. Empty without lines."""
    found = (_outcomes(lines), _searched(lines), _mediated(lines))
    return tuple(table for table in found if table.rows)


def _outcomes(lines: Sequence[VariantLine]) -> Table:
    rows = [
        (
            _name(line, lines), str(line.runs), words.share(line.success), words.share(line.violations),
            words.share(line.high_impact_stopped), words.share(line.attack_success),
        )
        for line in lines
    ]  # fmt: skip
    return Table(
        title="Governance variants (high impact stopped: blocked, routed to approval or sandboxed)",
        columns=("variant", "runs", "success", "violations", "high impact stopped", "attack success"),
        rows=tuple(rows),
    )


def _searched(lines: Sequence[VariantLine]) -> Table:
    return Table(
        title="Governance variants under search (broken: items with a counterexample, undisturbed ones included)",
        columns=("variant", "broken", "cheapest"),
        rows=tuple((words.clean(line.variant), words.share(line.broken), _cost(line)) for line in lines if line.broken.n),
    )


def _mediated(lines: Sequence[VariantLine]) -> Table:
    rows = []
    for line in lines:
        whole = [("all", line.shares), *((f"{part.name} impact", part.shares) for part in line.by_impact)]
        for name, shares in (*whole, *((f"{part.name} input", part.shares) for part in line.by_input)):
            if shares.allow.n:
                cells = (words.share(item) for item in (shares.allow, shares.rewrite, shares.block))
                rows.append((_name(line, lines), name, *cells))
    return Table(
        title="Mediation (shares of proposed tool calls and writes)",
        columns=("variant", "actions", "allowed", "rewritten", "blocked"),
        rows=tuple(rows),
    )


def _name(line: VariantLine, lines: Sequence[VariantLine]) -> str:
    """The variant, with its condition where there is more than one."""
    several = len({other.condition for other in lines}) > 1
    return words.clean(f"{line.variant}, {line.condition}" if several else line.variant)


def _cost(line: VariantLine) -> str:
    return "-" if line.cheapest is None else str(line.cheapest)


def table(lines: Sequence[VariantLine]) -> str:
    """Both tables for a terminal."""
    from mat.report.terminal import _table

    return "\n".join(_table(part.title, part.columns, part.rows, width=words.WIDTH) for part in tables(lines))


def markdown(lines: Sequence[VariantLine]) -> str:
    """Both tables as Markdown, escaped."""
    from mat.report.markdown import _table

    return "\n".join(_table(part.title, part.columns, part.rows) for part in tables(lines))
