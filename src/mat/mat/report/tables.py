"""Every table of the report, defined once: columns with headings and units, and cells as values.

    for table in tables_of(document):
        table.name, table.title, table.note, table.columns, table.rows

Terminal, Markdown, CSV and Parquet lay the same tables out: people read texts (`cell_text`), files hold numbers (`numbers`).
A cell is a text, a whole number, an `Estimate` (in its column's unit), a `Spread`, a `Quantity`, a `Told`; None and "" say that
nothing is known. `media` says where a table or a column is shown, because a page has room for what a terminal has not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from mat.core.campaign import Covered
from mat.measure import metrics as measures
from mat.measure.estimate import Estimate, Spread
from mat.report import words
from mat.report.document import Document, EvaluationLine, ItemLine, NominalLine

__all__ = [
    "DISTRIBUTED",
    "EVERYWHERE",
    "FIELDS",
    "FILES",
    "PEOPLE",
    "TITLES",
    "TOLD_QUANTILES",
    "WRITTEN",
    "Cell",
    "Column",
    "Medium",
    "Number",
    "Quantity",
    "Table",
    "Told",
    "cell_text",
    "compact",
    "numbers",
    "shown",
    "tables_of",
    "texts",
    "tokens_reported",
    "unit_of",
]

Medium: TypeAlias = Literal["terminal", "markdown", "files"]
EVERYWHERE: Final[tuple[Medium, ...]] = ("terminal", "markdown", "files")
PEOPLE: Final[tuple[Medium, ...]] = ("terminal", "markdown")
WRITTEN: Final[tuple[Medium, ...]] = ("markdown", "files")
FILES: Final[tuple[Medium, ...]] = ("files",)
ALL: Final = "all"
TITLES: Final = {
    "infrastructure": "Infrastructure failures", "nominal": "Nominal runs", "variant_pairs": "Governance variants in pairs",
    "violations": "Contracts broken",
}  # fmt: skip
"""Of tables that the page lays out in its own way."""
_BAR: Final = 30
"""Characters of the longest bar of a histogram."""
_NAMES: Final = 4
"""Names of idle contracts that are told; files have all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """An estimate with a unit of its own. `at_most`: the value is an upper bound of what is estimated."""

    estimate: Estimate
    unit: str = "share"
    at_most: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A value that people are told in other words: `value` is what files hold."""

    text: str
    value: str | float | None


Cell: TypeAlias = "str | int | Estimate | Spread | Quantity | Told | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """`name` is its name in files, `title` its heading for people (by default the name). `unit` is that of its estimates.

    `key`: it says what the row is about. `whole`: names (of tests) that are of more use whole than folded.
    """

    name: str
    title: str = ""
    unit: str = "share"
    key: bool = False
    whole: bool = False
    media: tuple[Medium, ...] = EVERYWHERE

    @property
    def heading(self) -> str:
        return self.title or self.name.replace("_", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`note` says how to read it. `brief`: it belongs in a short summary too.

    `n_in`: the column that says how many runs a row speaks of; an estimate from as many need not repeat it. `grouped`: the
    rows of one value of the first key stand together, and a narrow rendering may say that value once.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    brief: bool = False
    n_in: str = ""
    grouped: bool = False
    media: tuple[Medium, ...] = EVERYWHERE


def tables_of(document: Document) -> tuple[Table, ...]:
    """The tables of a report that have a row, in the order in which they are told."""
    from mat.report import governance, robustness

    found = (
        *_evaluation(document.evaluation),
        _infrastructure(document),
        _nominal(document),
        _faults(document),
        *governance.tables(document.governance),
        _variant_pairs(document),
        *robustness.tables(document.curves),
        robustness.points(document.curves),
        _violations(document),
        *_first_violations(document),
        *_distributions(document),
        _items(document.items),
        _coverage(document),
        *_heat_maps(document),
        _metrics(document),
    )
    return tuple(table for table in found if table.rows)


def shown(tables: Iterable[Table], medium: Medium) -> tuple[Table, ...]:
    """The tables of one medium, each with the columns of that medium alone."""
    return tuple(_in(table, medium) for table in tables if medium in table.media)


def _in(table: Table, medium: Medium) -> Table:
    kept = [place for place, column in enumerate(table.columns) if medium in column.media]
    if len(kept) == len(table.columns):
        return table
    return replace(
        table,
        columns=tuple(table.columns[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in table.rows),
    )


# -- evaluation (A6.6) ------------------------------------------------------------------------------------------------

_TITLES: Final = {
    "nominal": "Nominal runs",
    "fault": "Runs under structured faults",
    "adversarial": "Runs under adversarial schedules",
}
_UNDER_FAULTS: Final = (
    "success", "violations", "detected", "mitigated", "containment", "final_ok", "residual_harm", "p_allow", "p_rewrite",
    "p_block",
)  # fmt: skip
_SHOWN: Final = {
    "nominal": (
        "success", "@", "violations", "collapse", "non_termination", "steps", "tool_calls", "tokens", "tokens_per_success",
    ),
    "fault": _UNDER_FAULTS,
    "adversarial": _UNDER_FAULTS,
}  # fmt: skip
"""The metrics of the tables of A6.6, by condition. "@": success@k and pass^k; "score.": the caller's scores."""
_FURTHER: Final = (
    "unknown", "h_rate", "h_prop", "misuse.refusal", "misuse.harmful", "misuse.partial", "misuse.other", "high_impact_stopped",
    "mtbf_steps", "mtbf_steps_censored", "case_violations", "latency_ms", "score.",
)  # fmt: skip
_HEADINGS: Final = {
    "containment": "contained", "final_ok": "final kept", "residual_harm": "final harmful",
    "p_allow": "allowed", "p_rewrite": "rewritten", "p_block": "blocked", "non_termination": "not terminated",
    "h_rate": "claims unsupported", "h_prop": "claims propagated", "mtbf_steps": "MTBF steps",
    "mtbf_steps_censored": "MTBF steps, censored", "latency_ms": "run ms", "misuse.refusal": "misuse refused",
    "misuse.harmful": "misuse harmful", "misuse.partial": "misuse contained", "misuse.other": "misuse other",
}  # fmt: skip
_RARE: Final = frozenset(
    ("unknown", "misuse.partial", "misuse.other", "case_violations", "tokens", "tokens_per_success")
)  # fmt: skip
"""Not worth a column where they are none everywhere; no token at all means that no model reported its usage."""
_RATES: Final = "shares and means with 95% intervals, n= where they do not rest on all runs"
_FAULT_RATES: Final = (
    "detected, mitigated, contained, final kept: shares of faults, the last of those in runs that keep their contracts; "
    "final harmful: runs whose final response breaks one; allowed, rewritten, blocked: shares of proposed actions"
)


def _evaluation(lines: Sequence[EvaluationLine]) -> Iterator[Table]:
    """For people the tables of A6.6, a condition each, and what else is known; for files every metric of every cell."""
    for condition, title in _TITLES.items():
        cells = [line for line in lines if line.condition == condition]
        if not cells:
            continue
        title += _by(lines)
        note = _RATES if condition == "nominal" else f"{_RATES}; {_FAULT_RATES}"
        yield _cells(f"evaluation_{condition}", title, cells, _SHOWN[condition], note)
        yield _cells(f"evaluation_{condition}_further", f"{title}: further metrics", cells, _FURTHER, "")
    yield _every_cell(lines)


def _by(lines: Sequence[EvaluationLine]) -> str:
    parts = ["category"] if len({line.category for line in lines}) > 1 else []
    parts += ["variant"] if len({line.variant for line in lines}) > 1 else []
    return f" by {' and '.join(parts)}" if parts else ", all"


def _cells(name: str, title: str, lines: Sequence[EvaluationLine], wanted: Sequence[str], note: str) -> Table:
    chosen = [metric for metric in _chosen(lines, wanted) if metric not in _RARE or _ever(lines, metric)]
    units = {metric.name: metric.unit for line in lines for metric in line.metrics}
    several = len({line.variant for line in lines}) > 1
    outside = any(line.infrastructure for line in lines)
    note += "; lost: runs whose infrastructure failed, in no rate" if outside and note else ""
    columns = [Column(name="category", key=True)]
    columns += [Column(name="variant", key=True)] if several else []
    columns += [Column(name="items", title="tests"), Column(name="runs")]
    columns += [Column(name="infrastructure", title="lost")] if outside else []
    columns += [Column(name=metric, title=_heading(metric), unit=units[metric]) for metric in chosen]
    rows = []
    for line in lines if chosen else ():
        kept = line.runs - line.infrastructure
        keys: list[Cell] = [line.category, *([line.variant] if several else [])]
        counts: list[Cell] = [line.items, kept, *([line.infrastructure] if outside else [])]
        rows.append((*keys, *counts, *(line.get(metric) for metric in chosen)))
    return Table(
        name=name, title=title, note=note, columns=tuple(columns), rows=tuple(rows), n_in="runs", grouped=several,
        media=PEOPLE,
    )  # fmt: skip


def _chosen(lines: Sequence[EvaluationLine], wanted: Sequence[str]) -> list[str]:
    """Names of known metrics, in the order in which they are wanted."""
    known = dict.fromkeys(metric.name for line in lines for metric in line.metrics)
    return [name for want in wanted for name in known if _is(name, want)]


def _ever(lines: Sequence[EvaluationLine], name: str) -> bool:
    return any(found is not None and found.value for found in (line.get(name) for line in lines))


def _is(name: str, want: str) -> bool:
    if want == "@":
        return name.startswith(("success@", "pass^")) and not name.endswith(".unbiased")
    return name.startswith(want) if want.endswith(".") else name == want


def _heading(name: str) -> str:
    return _HEADINGS.get(name, name.replace("_", " "))


def _every_cell(lines: Sequence[EvaluationLine]) -> Table:
    names = dict.fromkeys(metric.name for line in lines for metric in line.metrics)
    units = {metric.name: metric.unit for line in lines for metric in line.metrics}
    keys = tuple(Column(name=name, key=True) for name in ("condition", "category", "variant"))
    counts = tuple(Column(name=name) for name in ("items", "runs", "infrastructure", "k"))
    return Table(
        name="evaluation",
        title="Evaluation",
        columns=(*keys, *counts, *(Column(name=name, unit=units[name]) for name in names)),
        rows=tuple(
            (
                line.condition, line.category, line.variant, line.items, line.runs, line.infrastructure, line.k,
                *(line.get(name) for name in names),
            )
            for line in lines
        ),
        media=FILES,
    )  # fmt: skip


def _infrastructure(document: Document) -> Table:
    return Table(
        name="infrastructure",
        title=TITLES["infrastructure"],
        note="runs under all variants; what is left out of all is in no rate, what is left out of a score counts in all others",
        brief=True,
        columns=(
            Column(name="condition", key=True), Column(name="reason", title="what failed", key=True), Column(name="runs"),
            Column(name="left_out_of", title="left out of"),
        ),
        rows=tuple((line.condition, line.reason, line.runs, line.left_out_of or ALL) for line in document.infrastructure),
    )  # fmt: skip


# -- one session ------------------------------------------------------------------------------------------------------


def tokens_reported(lines: Iterable[NominalLine | EvaluationLine]) -> bool:
    """Whether any model said what it used. Where none did, zero is no number of tokens."""
    return any(bool(line.tokens.most) if isinstance(line, NominalLine) else bool(_value(line, "tokens")) for line in lines)


def _value(line: EvaluationLine, name: str) -> float | None:
    found = line.get(name)
    return None if found is None else found.value


def _nominal(document: Document) -> Table:
    tokens = EVERYWHERE if tokens_reported(document.nominal) else FILES
    return Table(
        name="nominal",
        title=TITLES["nominal"],
        note="shares with 95% Wilson intervals; counts as median [least-most]",
        brief=True,
        columns=(
            Column(name="item", key=True, whole=True), Column(name="runs"), Column(name="success"),
            Column(name="non_termination", title="not terminated"), Column(name="violations"),
            Column(name="steps", unit="steps"), Column(name="tool_calls", unit="calls"),
            Column(name="tokens", unit="tokens", media=tokens),
        ),
        rows=tuple(
            (
                line.item, line.runs, line.success, line.non_termination, line.violations, line.steps, line.tool_calls,
                line.tokens if line.tokens.most else Told(text="not reported", value=None),
            )
            for line in document.nominal
        ),
    )  # fmt: skip


def _faults(document: Document) -> Table:
    """Decisions of governance are told to people where one of them was against an action."""
    mediated = any(line.rewrite.value or line.block.value for line in document.faults)
    decided = EVERYWHERE if mediated else FILES
    return Table(
        name="faults",
        title="Faults",
        note="the unit is the fault, intervals by run; windows of Eq. 10: 5 and 5 steps unless stated",
        brief=True,
        columns=(
            Column(name="operator", key=True), Column(name="boundary", media=FILES), Column(name="runs", media=FILES),
            Column(name="injected", media=FILES), Column(name="detected"), Column(name="mitigated"),
            Column(name="contained"), Column(name="final_ok", title="final contracts kept"),
            Column(name="allow", title="allowed", media=decided), Column(name="rewrite", title="rewritten", media=decided),
            Column(name="block", title="blocked", media=decided),
            Column(name="detected_by", media=FILES), Column(name="mitigated_by", media=FILES),
        ),
        rows=tuple(
            (
                line.operator, line.boundary, line.runs, _yes(line.injected), line.detected, line.mitigated, line.contained,
                line.final_ok, line.allow, line.rewrite, line.block, _rules(line.detected_by), _rules(line.mitigated_by),
            )
            for line in document.faults
        ),
    )  # fmt: skip


def _yes(fact: bool | None) -> str:
    return "" if fact is None else "yes" if fact else "no"


def _rules(counts: Iterable[object]) -> str:
    from mat.measure.containment import RuleCount

    return "; ".join(f"{count.rule} {count.faults}" for count in counts if isinstance(count, RuleCount))


def _variant_pairs(document: Document) -> Table:
    """Each governance variant against the first, on the same runs (A6.3)."""
    return Table(
        name="variant_pairs",
        title=TITLES["variant_pairs"],
        note="runs of equal item, seed and schedule; difference: of the shares, new minus old; p: McNemar's exact test, "
        "two-sided",
        columns=(
            Column(name="condition", key=True), Column(name="aspect", key=True), Column(name="old", key=True),
            Column(name="new", key=True), Column(name="pairs"), Column(name="both"), Column(name="only_old"),
            Column(name="only_new"), Column(name="neither"), Column(name="difference"), Column(name="p"),
            Column(name="tokens", unit="tokens", media=WRITTEN if tokens_reported(document.nominal) else FILES),
        ),
        rows=tuple(
            (
                line.condition, line.aspect, line.old, line.new, line.paired.table.pairs, line.paired.table.both,
                line.paired.table.only_old, line.paired.table.only_new, line.paired.table.neither, line.paired.difference,
                _p(line.paired.p_value), line.tokens,
            )
            for line in document.variant_pairs
        ),
        n_in="pairs",
    )  # fmt: skip


def _p(value: float | None) -> Cell:
    return None if value is None else Told(text=f"{value:.2g}", value=value)


def _violations(document: Document) -> Table:
    return Table(
        name="violations",
        title=TITLES["violations"],
        note="share of all runs, under faults as without",
        brief=True,
        columns=(
            Column(name="contract", key=True), Column(name="severity"), Column(name="frequency"),
            Column(name="first_step", title="first step (mode)"), Column(name="action_kind"), Column(name="agent"),
        ),
        rows=tuple(
            (line.contract, line.severity, line.frequency, line.first_step, line.action_kind, line.agent)
            for line in document.violations
        ),
    )  # fmt: skip


def _items(lines: Sequence[ItemLine]) -> Table:
    return Table(
        name="items",
        title="Items",
        brief=True,
        columns=(
            Column(name="item", key=True, whole=True), Column(name="category", key=True, media=FILES), Column(name="status"),
            Column(name="cost"), Column(name="contract"), Column(name="step"), Column(name="agent", media=FILES),
            Column(name="executions"), Column(name="bound"), Column(name="proven", media=FILES),
            Column(name="reason", media=WRITTEN), Column(name="replays", media=FILES), Column(name="findings", media=FILES),
        ),
        rows=tuple(
            (
                line.id, line.category, line.status, line.cost,
                Told(text=words.and_more(line.contract, len(line.replays)), value=line.contract), line.step, line.agent,
                line.executions, _bound(line), _yes(line.proven), line.reason, "; ".join(line.replays),
                "; ".join(line.findings),
            )
            for line in lines
        ),
    )  # fmt: skip


def _bound(line: ItemLine) -> Cell:
    """Up to which cost there is proof. A bound that nothing proves is not told as a number."""
    return Told(text="not proven", value=line.bound) if line.proven is False else line.bound


def _coverage(document: Document) -> Table:
    """What the search of each item met (A6.5): counts for people, names in files."""
    searched = [(line, line.covered) for line in document.items if line.covered is not None]
    return Table(
        name="coverage",
        title="Coverage of the searches",
        note="interfaces are what was crossed at a boundary; of these some met a fault, and some answered with an error; "
        "idle contracts were armed and never had an action to judge",
        columns=(
            Column(name="item", key=True, whole=True), Column(name="boundaries"), Column(name="interfaces"),
            Column(name="perturbed"), Column(name="failing"), Column(name="risks"), Column(name="contracts"),
            Column(name="idle", title="idle contracts"),
        ),
        rows=tuple((line.id, *_covered(covered)) for line, covered in searched),
    )  # fmt: skip


def _covered(found: Covered) -> tuple[Cell, ...]:
    counted = (found.boundaries, found.interfaces, found.perturbed, found.failing, found.risks, found.contracts)
    idle = ", ".join(found.idle[:_NAMES]) + (f" and {len(found.idle) - _NAMES} more" if len(found.idle) > _NAMES else "")
    return (
        *(Told(text=str(len(names)), value="; ".join(names)) for names in counted),
        Told(text=idle, value="; ".join(found.idle)),
    )


def _heat_maps(document: Document) -> Iterator[Table]:
    """For files: people see heat maps on the page."""
    for number, found in enumerate(document.heat_maps):
        yield Table(
            name=f"heat_map_{number + 1}" if number else "heat_map",
            title=found.title,
            columns=(
                Column(name="group", title="category", key=True), Column(name="row", title=found.down, key=True),
                Column(name="column", title=found.across, key=True), Column(name="success"), Column(name="why"),
            ),
            rows=tuple(
                (row.group, row.name, column, cell.success, cell.why)
                for row in found.rows
                for column, cell in zip(found.columns, row.cells, strict=True)
                if cell is not None
            ),
            media=FILES,
        )  # fmt: skip


# -- how numbers are spread -------------------------------------------------------------------------------------------

DISTRIBUTED: Final = {
    "steps_to_termination": "steps to termination", "steps_to_failure": "steps to failure",
    "first_violation": "first violating step", "latency_ms": "run time",
}  # fmt: skip
TOLD_QUANTILES: Final = (50, 90, 99)


def _first_violations(document: Document) -> Iterator[Table]:
    """Where failing runs first go wrong: by agent and kind of action, and a histogram of the step."""
    rows = [
        (line.condition, line.by.replace("_", " "), part.name, part.count, part.share)
        for line in document.first_violations
        for part in line.shares
    ]
    yield Table(
        name="first_violations",
        title="Who and what failing runs first go wrong with",
        columns=(
            Column(name="condition", key=True), Column(name="by", key=True), Column(name="name", key=True),
            Column(name="runs"), Column(name="share"),
        ),
        rows=tuple(rows),
    )  # fmt: skip
    bars = [
        (line.condition, _step(part.least, part.most), part.count, line.distribution.bins)
        for line in document.distributions
        if line.name == "first_violation"
        for part in line.distribution.bins
    ]
    yield Table(
        name="first_violation_histogram",
        title="First violating step",
        columns=(
            Column(name="condition", key=True), Column(name="step", key=True), Column(name="runs"),
            Column(name="bar", title=" "),
        ),
        rows=tuple(
            (condition, step, count, Told(text=_bar(count, max(each.count for each in among)), value=None))
            for condition, step, count, among in bars
        ),
        media=PEOPLE,
    )  # fmt: skip


def _step(least: int, most: int) -> str:
    return str(least) if least == most else f"{least}-{most}"


def _bar(count: int, most: int) -> str:
    """A bar; of a run that is there at all at least a dash."""
    return "=" * round(_BAR * count / most) or ("-" if count else " ")


def _distributions(document: Document) -> Iterator[Table]:
    lines = document.distributions
    percents = dict.fromkeys(part.percent for line in lines for part in line.distribution.quantiles)
    rows = []
    for line in lines:
        found = {part.percent: Quantity(estimate=part.estimate, unit=line.unit) for part in line.distribution.quantiles}
        name = Told(text=DISTRIBUTED.get(line.name, line.name), value=line.name)
        spread: list[Cell] = [name, line.condition, line.unit, line.distribution.n, line.distribution.without]
        rows.append((*spread, *(found.get(percent) for percent in percents)))
    yield Table(
        name="distributions",
        title="Distributions",
        note="exact intervals between order statistics; ... where the data do not bound an end; "
        "without: runs that have none, because they never failed or were cut off",
        n_in="runs",
        columns=(
            Column(name="number", key=True), Column(name="condition", key=True), Column(name="unit", media=FILES),
            Column(name="runs"), Column(name="without"),
            *(
                Column(
                    name=f"p{percent}", title="median" if percent == 50 else f"{percent}% within",
                    media=EVERYWHERE if percent in TOLD_QUANTILES else FILES,
                )
                for percent in percents
            ),
        ),
        rows=tuple(rows),
    )  # fmt: skip
    yield Table(
        name="histograms",
        title="Histograms",
        columns=(
            Column(name="number", key=True), Column(name="condition", key=True), Column(name="unit"),
            Column(name="least", key=True), Column(name="most", key=True), Column(name="runs"),
        ),
        rows=tuple(
            (line.name, line.condition, line.unit, part.least, part.most, part.count)
            for line in lines
            for part in line.distribution.bins
        ),
        media=FILES,
    )  # fmt: skip


def _metrics(document: Document) -> Table:
    return Table(
        name="metrics",
        title="Metrics",
        columns=(Column(name="metric", key=True), Column(name="value")),
        rows=tuple((line.name, Quantity(estimate=line.estimate, unit=line.unit)) for line in document.metrics),
        media=FILES,
    )


def unit_of(name: str) -> str:
    """The unit of a number of the report by its name, as `nominal.steps` or `score.politeness`: share, unless one says else."""
    short = name.partition(".")[2]
    for known in (name, short):
        if known.startswith("score."):
            return "score"
        if known in measures.METRICS:
            return measures.METRICS[known].unit
    return "share"


# -- cells ------------------------------------------------------------------------------------------------------------


def cell_text(cell: Cell, unit: str = "share", *, n: int | None = None) -> str:
    """A cell as people read it, not yet escaped; "-" for nothing. An estimate from `n` observations does not say so again."""
    if isinstance(cell, Told):
        return cell.text or "-"
    if isinstance(cell, Quantity):
        said = words.quantity(cell.estimate, cell.unit, n=n)
        return f"<= {said}" if cell.at_most and cell.estimate.known else said
    if isinstance(cell, Estimate):
        return words.quantity(cell, unit, n=n)
    if isinstance(cell, Spread):
        return words.seen(cell)
    return "-" if cell is None or cell == "" else str(cell)


def texts(table: Table) -> list[list[str]]:
    """The rows of a table as people read them, not yet escaped."""
    place = next((place for place, column in enumerate(table.columns) if column.name == table.n_in), None)
    return [
        [
            cell_text(cell, column.unit, n=_count(row, place))
            for cell, column in zip(row, table.columns, strict=True)
        ]
        for row in table.rows
    ]  # fmt: skip


def compact(table: Table) -> Table:
    """The same in less width: n is said once a row, the one that most of its estimates rest on; others still say theirs."""
    names = [column.name for column in table.columns]
    if table.n_in in names or "runs" in names:
        return replace(table, n_in=table.n_in or "runs")
    counts = [[found.n for found in map(_estimated, row) if found is not None and found.known] for row in table.rows]
    if not any(counts):
        return table
    place = 1 + max((place for place, column in enumerate(table.columns) if column.key), default=-1)
    return replace(
        table,
        columns=(*table.columns[:place], Column(name="n"), *table.columns[place:]),
        rows=tuple(
            (*row[:place], max(found, key=found.count, default=None), *row[place:])
            for row, found in zip(table.rows, counts, strict=True)
        ),
        n_in="n",
    )


def _estimated(cell: Cell) -> Estimate | None:
    if isinstance(cell, Quantity):
        return cell.estimate
    return cell if isinstance(cell, Estimate) else None


def _count(row: Sequence[Cell], place: int | None) -> int | None:
    cell = None if place is None else row[place]
    return cell if isinstance(cell, int) else None


# -- numbers, one a line ----------------------------------------------------------------------------------------------

FIELDS: Final = (
    ("table", "VARCHAR"), ("item", "VARCHAR"), ("condition", "VARCHAR"), ("category", "VARCHAR"), ("variant", "VARCHAR"),
    ("subject", "VARCHAR"), ("name", "VARCHAR"), ("unit", "VARCHAR"), ("value", "DOUBLE"), ("low", "DOUBLE"),
    ("high", "DOUBLE"), ("n", "BIGINT"), ("confidence", "DOUBLE"), ("method", "VARCHAR"), ("text", "VARCHAR"),
)  # fmt: skip
"""The columns of CSV and Parquet files, with their SQL types."""
_ABOUT: Final = ("item", "condition", "category", "variant")


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One number or fact of a table: a line of a CSV or Parquet file.

    `subject`: what the row is about besides item, condition, category and variant: an operator, a contract, an agent. `name`:
    the column. `value` with the interval [low, high] at `confidence`, from `n` observations by `method`; of what was merely
    seen (`method` "median [least, most]") the median and the range. `text` is a fact that is no number.
    """

    table: str
    item: str = ""
    condition: str = ""
    category: str = ""
    variant: str = ""
    subject: str = ""
    name: str
    unit: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    confidence: float | None = None
    method: str = ""
    text: str = ""


def numbers(tables: Iterable[Table]) -> Iterator[Number]:
    """Every number and fact of tables, row by row; what is not known at all is left out."""
    for table in shown(tables, "files"):
        for row in table.rows:
            cells = list(zip(table.columns, row, strict=True))
            keys = {column.name: _plain(cell) for column, cell in cells if column.key}
            item, condition, category, variant = (keys.pop(name, "") for name in _ABOUT)
            line = Number(
                table=table.name, item=item, condition=condition, category=category, variant=variant, name="",
                subject=" / ".join(filter(None, keys.values())),
            )  # fmt: skip
            for column, cell in cells:
                if not column.key:
                    yield from _number(replace(line, name=column.name), column, cell)


def _plain(cell: Cell) -> str:
    value: object = cell.value if isinstance(cell, Told) else cell
    return "" if value is None else str(value)


def _number(line: Number, column: Column, given: Cell) -> Iterator[Number]:
    cell = given.value if isinstance(given, Told) else given
    if isinstance(cell, Estimate | Quantity):
        quantity = cell if isinstance(cell, Quantity) else Quantity(estimate=cell, unit=column.unit)
        estimate = quantity.estimate
        method = f"{estimate.method}, at most" if quantity.at_most and estimate.known else estimate.method
        yield replace(
            line, unit=quantity.unit, value=estimate.value, low=estimate.low, high=estimate.high, n=estimate.n,
            confidence=estimate.confidence, method=method,
        )  # fmt: skip
    elif isinstance(cell, Spread):
        if cell.n:
            yield replace(
                line, unit=column.unit, value=_float(cell.median), low=_float(cell.least), high=_float(cell.most), n=cell.n,
                method="median [least, most]",
            )  # fmt: skip
    elif isinstance(cell, int | float):
        yield replace(line, value=float(cell))
    elif cell:
        yield replace(line, text=cell)


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)
