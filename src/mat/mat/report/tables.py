"""Defines every table of a report: which rows and columns a document gives.

for table in tables_of(document):
    table.name, table.title, table.note, table.columns, table.rows
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from mat.core.campaign import Covered
from mat.measure.containment import RuleCount
from mat.measure.estimate import Estimate
from mat.report import governance, robustness, words
from mat.report.document import Document, EvaluationLine, ItemLine, NominalLine
from mat.report.table import EVERYWHERE, FILES, PAGE, PEOPLE, WRITTEN, Column, Reworded, Table, TableCell, UnitEstimate, p_value

ALL: Final = "all"
_BAR: Final = 30
"""The length of a histogram's longest bar, in characters."""
_NAMES: Final = 4
"""The most idle contracts that a table for people names; files have all."""


def tables_of(document: Document) -> tuple[Table, ...]:
    """The tables of a report that have a row, in the order in which a report shows them."""
    found = (
        *_evaluation(document.evaluation),
        _infrastructure(document),
        _success_in_k(document.evaluation),
        _tasks(document),
        _every_k(document),
        _nominal(document),
        _drift(document),
        _agency(document),
        _faults(document),
        *governance.tables(document.governance),
        _variant_pairs(document),
        *robustness.tables(document.curves),
        robustness.points(document.curves),
        robustness.overview(document.curves),
        _violations(document),
        *_first_violations(document),
        *_distributions(document),
        _items(document.items),
        _coverage(document),
        *_heat_maps(document),
        _metrics(document),
    )
    return tuple(with_population(table) for table in found if table.rows)


def with_population(table: Table) -> Table:
    """The table, with what its intervals are for at the end of its note."""
    estimates = (
        cell.estimate if isinstance(cell, UnitEstimate) else cell
        for row in table.rows
        for cell in row
        if isinstance(cell, Estimate | UnitEstimate)
    )
    found = dict.fromkeys(each.population for each in estimates if each.known and each.population)
    if not found:
        return table
    text = f"intervals are for {_populations_in_words(list(found))}"
    return replace(table, note=f"{table.note}; {text}" if table.note else text)


def _populations_in_words(found: Sequence[str]) -> str:
    """One population as it is; of several, the kinds.

    >>> _populations_in_words(["new tasks like these 8", "new tasks like these 2", "this task on new seeds"])
    'new tasks like those of each row, or new seeds where a row has one task'
    """
    if len(found) == 1:
        return found[0]
    kinds = (
        ("new tasks", "new tasks like those of each row"), ("these ", "the tasks of each row on new seeds"),
        ("new runs", "new runs like those of each row, assumed independent"),
    )  # fmt: skip
    texts = [text for start, text in kinds if any(each.startswith(start) for each in found)]
    alone = any(each.startswith("this task") for each in found)
    if not texts:
        return "the task of each row on new seeds"
    return ", or ".join(texts) + (", or new seeds where a row has one task" if alone else "")


# -- evaluation (A6.6) ------------------------------------------------------------------------------------------------

_TITLES: Final = {
    "nominal": "Nominal runs",
    "fault": "Runs under faults",
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
    "containment": "contained", "final_ok": "contracts kept", "residual_harm": "final harmful",
    "p_allow": "allowed", "p_rewrite": "rewritten", "p_block": "blocked", "non_termination": "not terminated",
    "h_rate": "claims unsupported", "h_prop": "claims propagated", "mtbf_steps": "MTBF steps",
    "mtbf_steps_censored": "MTBF steps, censored", "latency_ms": "run ms", "misuse.refusal": "misuse refused",
    "misuse.harmful": "misuse harmful", "misuse.partial": "misuse contained", "misuse.other": "misuse other",
}  # fmt: skip
_RARE: Final = frozenset(
    ("unknown", "misuse.partial", "misuse.other", "case_violations", "tokens", "tokens_per_success")
)  # fmt: skip
"""Metrics without a column if they are 0 everywhere. (Without a single token, no model reported its usage.)"""
_RATES: Final = "shares and means with 95% intervals; n= where the count is not the number of runs"
_FAULT_RATES: Final = (
    "detected, mitigated, contained: shares of the faults; contracts kept: share of the faults whose run breaks no hard "
    "contract; final harmful: runs whose final response breaks one; allowed, rewritten, blocked: shares of proposed actions"
)


def _evaluation(lines: Sequence[EvaluationLine]) -> Iterator[Table]:
    """For people, the tables of A6.6 and further metrics, one per condition; for files, every metric of every cell."""
    for condition, title in _TITLES.items():
        cells = [line for line in lines if line.condition == condition]
        if not cells:
            continue
        title += _title_suffix(lines)
        note = _RATES if condition == "nominal" else f"{_RATES}; {_FAULT_RATES}"
        yield _cell_table(f"evaluation_{condition}", title, cells, _SHOWN[condition], note)
        yield _cell_table(f"evaluation_{condition}_further", f"{title}: further metrics", cells, _FURTHER, "")
    yield _every_cell(lines)
    yield _every_metric(lines)


def _title_suffix(lines: Sequence[EvaluationLine]) -> str:
    parts = ["category"] if len({line.category for line in lines}) > 1 else []
    parts += ["variant"] if len({line.variant for line in lines}) > 1 else []
    return f" by {' and '.join(parts)}" if parts else ", all"


def _cell_table(name: str, title: str, lines: Sequence[EvaluationLine], wanted: Sequence[str], note: str) -> Table:
    largest = {name for line in lines for name in (f"success@{line.k}", f"pass^{line.k}")}
    chosen = [
        metric
        for metric in _known_metrics(lines, wanted)
        if (metric not in _RARE or _is_ever_nonzero(lines, metric)) and (metric in largest or not _is_wanted(metric, "@"))
    ]
    units = {metric.name: metric.unit for line in lines for metric in line.metrics}
    several = len({line.variant for line in lines}) > 1
    outside = any(line.infrastructure for line in lines)
    note += "; lost: runs whose infrastructure failed (excluded from all rates)" if outside and note else ""
    columns = [Column(name="category", key=True)]
    columns += [Column(name="variant", key=True)] if several else []
    columns += [Column(name="items", title="tests"), Column(name="runs")]
    columns += [Column(name="infrastructure", title="lost")] if outside else []
    columns += [Column(name=metric, title=_heading(metric), unit=units[metric]) for metric in chosen]
    rows = []
    for line in lines if chosen else ():
        kept = line.runs - line.infrastructure
        keys: list[TableCell] = [line.category, *([line.variant] if several else [])]
        counts: list[TableCell] = [line.items, kept, *([line.infrastructure] if outside else [])]
        rows.append((*keys, *counts, *(line.get(metric) for metric in chosen)))
    return Table(
        name=name, title=title, note=note, columns=tuple(columns), rows=tuple(rows), n_in="runs", grouped=several,
        media=PEOPLE,
    )  # fmt: skip


def _known_metrics(lines: Sequence[EvaluationLine], wanted: Sequence[str]) -> list[str]:
    """The names of known metrics, in the order of `wanted`."""
    known = dict.fromkeys(metric.name for line in lines for metric in line.metrics)
    return [name for want in wanted for name in known if _is_wanted(name, want)]


def _is_ever_nonzero(lines: Sequence[EvaluationLine], name: str) -> bool:
    return any(found is not None and found.value for found in (line.get(name) for line in lines))


def _is_wanted(name: str, want: str) -> bool:
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


def _every_metric(lines: Sequence[EvaluationLine]) -> Table:
    """All metrics of each cell, one a row."""
    names = ("condition", "category", "variant", "metric")
    return Table(
        name="cells",
        title="All metrics of each cell",
        columns=(*(Column(name=name, key=True) for name in names), Column(name="value"), Column(name="method")),
        rows=tuple(
            (
                line.condition, line.category, line.variant, metric.name,
                UnitEstimate(estimate=metric.estimate, unit=metric.unit), metric.estimate.method,
            )
            for line in lines
            for metric in line.metrics
        ),
        media=PAGE,
    )  # fmt: skip


_SHOWN_K: Final = (1, 2, 3, 4, 5, 8, 10, 16, 20, 32)


def _success_in_k(lines: Sequence[EvaluationLine]) -> Table:
    """success@k and pass^k over all tasks, for several k.

    Source: Sec. V-C 1b.
    """
    rows = []
    for line in lines:
        for k in sorted({*_SHOWN_K, line.k}) if line.category == ALL and line.condition != "adversarial" else ():
            found = line.get(f"success@{k}.unbiased"), line.get(f"pass^{k}")
            if any(found):
                rows.append((line.condition, line.variant, k, *found))
    several = len({row[1] for row in rows}) > 1
    table = Table(
        name="success_in_k",
        title="Success in k runs of a task",
        note="success@k: at least one of k runs succeeds; pass^k: all do; unbiased means over tasks",
        columns=(
            Column(name="condition", key=True), Column(name="variant", key=True), Column(name="k", key=True),
            Column(name="any", title="success@k"), Column(name="all", title="pass^k"),
        ),
        rows=tuple(rows),
        media=PEOPLE,
    )  # fmt: skip
    return table if several else without_column(table, "variant")


def without_column(table: Table, name: str) -> Table:
    """The table without a column."""
    place = [column.name for column in table.columns].index(name)
    return replace(
        table, columns=(*table.columns[:place], *table.columns[place + 1 :]),
        rows=tuple((*row[:place], *row[place + 1 :]) for row in table.rows),
    )  # fmt: skip


def _tasks(document: Document) -> Table:
    """Success in k runs of each task, for people."""
    nominal = [line for line in document.tasks if line.condition == "nominal"]
    table = Table(
        name="tasks",
        title="Success of each task",
        note="success@k and pass^k in percent, for k = 1, 2 and so on",
        columns=(
            Column(name="task", key=True, whole=True), Column(name="variant", key=True), Column(name="runs"),
            Column(name="solved"), Column(name="any", title="success@k"), Column(name="all", title="pass^k"),
        ),
        rows=tuple(
            (line.task, line.variant, line.runs, line.solved, _percents(line.any_of), _percents(line.all_of))
            for line in nominal
        ),
        media=PEOPLE,
    )  # fmt: skip
    return table if len({line.variant for line in nominal}) > 1 else without_column(table, "variant")


_LISTED_K: Final = 6


def _percents(shares: Sequence[float]) -> str:
    texts = [f"{100 * share:.0f}" for share in shares[:_LISTED_K]]
    return " ".join(texts) + (" ..." if len(shares) > _LISTED_K else "")


def _every_k(document: Document) -> Table:
    """success@k and pass^k of each task for every k, for files."""
    return Table(
        name="tasks_in_k",
        title="Success in k runs of each task",
        columns=(
            *(Column(name=name, key=True) for name in ("item", "condition", "category", "variant", "schedule", "k")),
            Column(name="runs"), Column(name="solved"), Column(name="success_at_k"), Column(name="pass_hat_k"),
        ),
        rows=tuple(
            (
                line.task, line.condition, line.category, line.variant, line.schedule, k + 1, line.runs, line.solved,
                Reworded(text=f"{any_of:.3g}", value=any_of), Reworded(text=f"{all_of:.3g}", value=all_of),
            )
            for line in document.tasks
            for k, (any_of, all_of) in enumerate(zip(line.any_of, line.all_of, strict=True))
        ),
        media=FILES,
    )  # fmt: skip


def _infrastructure(document: Document) -> Table:
    return Table(
        name="infrastructure",
        title="Infrastructure failures",
        note="runs of all variants; left out of all: counted in no rate; left out of a score: counted in all other rates",
        brief=True,
        columns=(
            Column(name="condition", key=True), Column(name="reason", title="what failed", key=True), Column(name="runs"),
            Column(name="left_out_of", title="left out of"),
        ),
        rows=tuple((line.condition, line.reason, line.runs, line.left_out_of or ALL) for line in document.infrastructure),
    )  # fmt: skip


# -- one session ------------------------------------------------------------------------------------------------------


def tokens_reported(lines: Iterable[NominalLine | EvaluationLine]) -> bool:
    """Whether any model reported its usage. If none did, zero tokens means unknown."""
    return any(
        bool(line.tokens.most) if isinstance(line, NominalLine) else bool(_metric_value(line, "tokens")) for line in lines
    )


def _metric_value(line: EvaluationLine, name: str) -> float | None:
    found = line.get(name)
    return None if found is None else found.value


def _nominal(document: Document) -> Table:
    tokens = EVERYWHERE if tokens_reported(document.nominal) else FILES
    return Table(
        name="nominal",
        title="Nominal runs",
        note="shares with 95% intervals; counts as median [least-most]",
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
                line.tokens if line.tokens.most else Reworded(text="not reported", value=None),
            )
            for line in document.nominal
        ),
    )  # fmt: skip


def _drift(document: Document) -> Table:
    """Role drift by agent.

    Source: A2.F3.
    """
    return Table(
        name="drift",
        title="Role drift",
        note="score: share of an agent's actions that break a role contract, mean over runs; drifted: share of the runs with "
        "such an action; absent: runs in which the agent did not act; unjudged: runs that a role contract could not judge",
        columns=(
            Column(name="condition", key=True), Column(name="agent", key=True), Column(name="score"), Column(name="drifted"),
            Column(name="absent"), Column(name="unjudged"),
        ),
        rows=tuple(
            (line.condition, line.agent, line.score, line.drifted, line.absent, line.unjudged) for line in document.drift
        ),
    )  # fmt: skip


def _agency(document: Document) -> Table:
    """Unsafe actions.

    Source: A2.F4.
    """
    bounds = {line.epsilon for line in document.agency} - {None}
    note = "unsafe: share of the proposed actions that are declared unsafe; effected: those that were not stopped"
    if bounds:
        most = ", ".join(f"{bound:g}" for bound in sorted(filter(None, bounds)))
        note += f"; verdict: whether the probability of an unsafe action is at most {most}"
    return Table(
        name="agency",
        title="Unsafe actions",
        note=note,
        columns=(
            Column(name="condition", key=True), Column(name="rate", title="unsafe"), Column(name="effected"),
            Column(name="runs", title="runs with any"), Column(name="labels", title="what"), Column(name="verdict"),
        ),
        rows=tuple(
            (
                line.condition, line.rate, line.effected, line.runs,
                ", ".join(f"{words.clean(name)} {count}" for name, count in line.labels), line.verdict,
            )
            for line in document.agency
        ),
    )  # fmt: skip


def _faults(document: Document) -> Table:
    """Faults by operator. People see decisions of governance only if one of them was not to allow."""
    mediated = any(line.rewrite.value or line.block.value for line in document.faults)
    decided = EVERYWHERE if mediated else FILES
    return Table(
        name="faults",
        title="Faults",
        note="each fault counts once; a fault must be detected within 5 steps and mitigated within 5 more, unless stated "
        "otherwise",
        brief=True,
        columns=(
            Column(name="operator", key=True), Column(name="boundary", media=FILES), Column(name="runs", media=FILES),
            Column(name="injected", media=FILES), Column(name="detected"), Column(name="mitigated"),
            Column(name="contained"), Column(name="final_ok", title="contracts kept"),
            Column(name="allow", title="allowed", media=decided), Column(name="rewrite", title="rewritten", media=decided),
            Column(name="block", title="blocked", media=decided),
            Column(name="detected_by", media=FILES), Column(name="mitigated_by", media=FILES),
        ),
        rows=tuple(
            (
                line.operator, line.boundary, line.runs, _yes_or_no(line.injected), line.detected, line.mitigated,
                line.contained, line.final_ok, line.allow, line.rewrite, line.block, _rule_counts(line.detected_by),
                _rule_counts(line.mitigated_by),
            )
            for line in document.faults
        ),
    )  # fmt: skip


def _yes_or_no(fact: bool | None) -> str:
    return "" if fact is None else "yes" if fact else "no"


def _rule_counts(counts: Iterable[RuleCount]) -> Reworded:
    texts = [f"{count.rule} {count.faults}" for count in counts]
    return Reworded(text=", ".join(texts), value="; ".join(texts))


def _variant_pairs(document: Document) -> Table:
    """Each governance variant against the one without governance, on the same draws.

    Source: A6.3.
    """
    return Table(
        name="variant_pairs",
        title="Governance variants in pairs",
        note="old is the reference; runs with the same item and seed (and schedule, under faults); difference: new "
        "share minus old share; p: exact two-sided test that swaps the two sides of whole tasks",
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
                p_value(line.paired.p_value), line.tokens,
            )
            for line in document.variant_pairs
        ),
        n_in="pairs",
    )  # fmt: skip


def _violations(document: Document) -> Table:
    return Table(
        name="violations",
        title="Contracts broken",
        note="share of all runs, nominal and under faults",
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
            Column(name="reason", media=WRITTEN), Column(name="relative_to", title="relative to", media=WRITTEN),
            Column(name="replays", media=FILES), Column(name="findings", media=FILES),
        ),
        rows=tuple(
            (
                line.id, line.category, line.status, line.cost,
                Reworded(text=words.and_more(line.contract, len(line.replays)), value=line.contract), line.step, line.agent,
                line.executions, _proven_bound(line), _yes_or_no(line.proven), line.reason, line.relative_to,
                "; ".join(line.replays), "; ".join(line.findings),
            )
            for line in lines
        ),
    )  # fmt: skip


def _proven_bound(line: ItemLine) -> TableCell:
    """The cost up to which there is a proof; "not proven" instead of the number if nothing proves it."""
    return Reworded(text="not proven", value=line.bound) if line.proven is False else line.bound


def _coverage(document: Document) -> Table:
    """What the search of each item covered: counts for people, names in files.

    Source: A6.5.
    """
    searched = [(line, line.covered) for line in document.items if line.covered is not None]
    return Table(
        name="coverage",
        title="Coverage of the searches",
        note="ports: those that were called; disturbed: ports that met a fault; failing: ports that returned an error; "
        "idle contracts were armed but had no action to judge",
        columns=(
            Column(name="item", key=True, whole=True), Column(name="boundaries"), Column(name="interfaces", title="ports"),
            Column(name="perturbed", title="disturbed"), Column(name="failing"), Column(name="risks"), Column(name="contracts"),
            Column(name="idle", title="idle contracts"), *(Column(name=name, media=PAGE) for name in _SHARES),
        ),
        rows=tuple((line.id, *_coverage_counts(covered), *_coverage_shares(covered)) for line, covered in searched),
    )  # fmt: skip


def _coverage_counts(found: Covered) -> tuple[TableCell, ...]:
    counted = (found.boundaries, found.interfaces, found.perturbed, found.failing, found.risks, found.contracts)
    idle = ", ".join(found.idle[:_NAMES]) + (f" and {len(found.idle) - _NAMES} more" if len(found.idle) > _NAMES else "")
    return (
        *(Reworded(text=str(len(names)), value="; ".join(names)) for names in counted),
        Reworded(text=idle, value="; ".join(found.idle)),
    )


_SHARES: Final = ("judged", "never_judged", "disturbed", "never_disturbed", "failed", "decisions")


def _coverage_shares(found: Covered) -> tuple[TableCell, ...]:
    """How many contracts and ports were covered, and the names of those that never were."""
    return (
        _share_of(found.contracts, (*found.contracts, *found.idle)), ", ".join(found.idle),
        _share_of(found.perturbed, found.interfaces),
        ", ".join(name for name in found.interfaces if name not in found.perturbed), ", ".join(found.failing),
        ", ".join(risk.rstrip("/") for risk in found.risks),
    )  # fmt: skip


def _share_of(some: Sequence[str], every: Sequence[str]) -> Reworded:
    return Reworded(text=f"{len(some)} of {len(every)}", value=len(some))


def _heat_maps(document: Document) -> Iterator[Table]:
    """Heat maps as tables for files; people see them on the page."""
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

SHOWN_QUANTILES: Final = (50, 90, 99)
"""The percentages of the quantiles that people see; files have all."""


def _first_violations(document: Document) -> Iterator[Table]:
    """The first violations of failing runs: by agent and action kind, and a histogram of the step."""
    rows = [
        (line.condition, line.by.replace("_", " "), part.name, part.count, part.share)
        for line in document.first_violations
        for part in line.shares
    ]
    yield Table(
        name="first_violations",
        title="First violations of failing runs, by agent and action kind",
        columns=(
            Column(name="condition", key=True), Column(name="by", key=True), Column(name="name", key=True),
            Column(name="runs"), Column(name="share"),
        ),
        rows=tuple(rows),
    )  # fmt: skip
    bars = [
        (line.condition, _step_range(part.least, part.most), part.count, line.distribution.bins)
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
            (condition, step, count, Reworded(text=_bar(count, max(each.count for each in among)), value=None))
            for condition, step, count, among in bars
        ),
        media=PEOPLE,
    )  # fmt: skip


def _step_range(least: int, most: int) -> str:
    return str(least) if least == most else f"{least}-{most}"


def _bar(count: int, most: int) -> str:
    """A bar of a histogram; at least a dash if the count is not 0."""
    return "=" * round(_BAR * count / most) or ("-" if count else " ")


def _distributions(document: Document) -> Iterator[Table]:
    lines = document.distributions
    percents = dict.fromkeys([part.percent for line in lines for part in line.distribution.quantiles] + [*SHOWN_QUANTILES])
    rows = []
    for line in lines:
        found = {part.percent: UnitEstimate(estimate=part.estimate, unit=line.unit) for part in line.distribution.quantiles}
        name = Reworded(text=words.DISTRIBUTED.get(line.name, line.name), value=line.name)
        spread: list[TableCell] = [name, line.condition, line.unit, line.distribution.n, line.distribution.without]
        title = words.distribution_title(line.name, line.condition)
        rows.append((*spread, *(found.get(percent) for percent in percents), title))
    yield Table(
        name="distributions",
        title="Distributions",
        note="exact intervals between order statistics; ...: the data do not bound this end; "
        "without: runs without a value, because they never failed or were cut off",
        n_in="runs",
        columns=(
            Column(name="number", key=True), Column(name="condition", key=True), Column(name="unit", media=FILES),
            Column(name="runs"), Column(name="without"),
            *(
                Column(
                    name=f"p{percent}", title="median" if percent == 50 else f"{percent}% within",
                    media=EVERYWHERE if percent in SHOWN_QUANTILES else FILES,
                )
                for percent in percents
            ),
            Column(name="title", media=PAGE),
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
        columns=(Column(name="metric", key=True), Column(name="value"), Column(name="method", media=PAGE)),
        rows=tuple(
            (line.name, UnitEstimate(estimate=line.estimate, unit=line.unit), line.estimate.method) for line in document.metrics
        ),
        media=FILES,
    )
