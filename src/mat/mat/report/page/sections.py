"""The sections of the page: each is a function of the report's values that gives markup, "" where there is nothing to show."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mat.core.campaign import Status
from mat.measure.regression import DECISIONS, GovernanceComparison, Pair, Regression
from mat.measure.rows import Condition
from mat.measure.suite import Cover, Unit
from mat.report import plots, words
from mat.report.document import Document, EvaluationLine, ItemLine
from mat.report.page.cells import Cell, Number, Shown, percent, table
from mat.report.page.heat import heat_table
from mat.report.page.markup import Child, Markup, breakable, joined, tag, text
from mat.report.page.story import badge, counterexample
from mat.report.regression import _TITLES as _ASPECTS
from mat.report.suite import _name as unit_in_words
from mat.report.tables import DISTRIBUTED, TITLES, TOLD_QUANTILES, tokens_reported

__all__ = ["SECTIONS", "Parts", "Section"]

_LISTED: Final = 200
"""Runs, actions and items of one kind that a comparison lists; the JSON report has all."""
_STYLES: Final[dict[Status, str]] = {
    "certified": "good", "nominal": "good", "replayed": "good", "expected": "good", "counterexample": "bad", "violated": "bad",
    "failed": "bad", "missed": "bad", "stale": "warn", "not_proven": "warn", "vacuous": "warn",
}  # fmt: skip
_KINDS: Final = {"contract": "hard contract", "signature": "failure signature", "class": "kind of failure"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a page is made of. `opened` names the trace, by its place in the page, of each counterexample that has one."""

    document: Document
    regression: Regression | None = None
    suite: Cover | None = None
    opened: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of the page: its id and title, and how it is made."""

    id: str
    title: str
    make: Callable[[Parts], Markup]


# -- overview ---------------------------------------------------------------------------------------------------------


def _overview(parts: Parts) -> Markup:
    variant = parts.document.variant
    interrupted = note(words.INTERRUPTED) if parts.document.interrupted else None
    return joined(
        interrupted, note(words.of_variant(variant)) if variant else None, _tiles(parts.document), _items(parts.document)
    )


def _tiles(document: Document) -> Markup:
    """The numbers one looks for first."""
    statuses = Counter(line.status for line in document.items)
    outside = 0 if document.variant else sum(line.runs for line in document.infrastructure if not line.left_out_of)
    found: list[tuple[str, str, Child]] = [
        (str(len(document.items)), "test" if len(document.items) == 1 else "tests", _statuses(statuses)),
        (f"{document.runs:,}", "run" if document.runs == 1 else "runs", f"{outside} in no rate" if outside else ""),
    ]
    costs = [replay.counterexample.cost for replay in document.counterexamples]
    if document.items:
        expected = sum(replay.expected for replay in document.counterexamples)
        about = [f"cheapest costs {min(costs)}"] if costs else []
        about += [f"{expected} expected"] if expected else []
        found.append((str(len(costs)), "counterexample" if len(costs) == 1 else "counterexamples", ", ".join(about)))
    metrics = {metric.name: metric.estimate for metric in document.metrics}
    for name, said in _HEADLINES:
        estimate = metrics.get(name)
        if estimate is not None and estimate.value is not None and estimate.low is not None and estimate.high is not None:
            about_it = f"{percent(estimate.low)} to {percent(estimate.high)}, n = {estimate.n:,}"
            found.append((percent(estimate.value), said, about_it))
    return tag("dl", *(_tile(*item) for item in found), class_="tiles")


_HEADLINES: Final = (
    ("nominal.success", "task success, undisturbed"),
    ("nominal.violations", "break a contract, undisturbed"),
    ("fault.violations", "break a contract, under faults"),
    ("containment", "faults contained"),
)


def _tile(value: str, said: str, about: Child) -> Markup:
    return tag("div", tag("dt", said), tag("dd", tag("b", value), tag("span", about) if about else None))


def _statuses(statuses: Mapping[Status, int]) -> Markup:
    return joined(*(badge(f"{count} {_status(status)}", _STYLES.get(status, "")) for status, count in sorted(statuses.items())))


def _status(status: str) -> str:
    return status.replace("_", " ")


def _items(document: Document) -> Markup:
    shared = _shared([line.id for line in document.items])
    categories = any(line.category for line in document.items)
    columns = ["test", "status", "cost", "contract", "step", "agent", "executions", "bound", *["category"] * categories]
    rows: list[list[Cell]] = [
        [
            _named(line, shared), _shown_status(line.status), line.cost, words.and_more(line.contract, len(line.replays)),
            line.step, line.agent, line.executions, _bound(line), *([line.category] if categories else []),
        ]
        for line in document.items
    ]  # fmt: skip
    return joined(
        table(columns, rows, caption=f"Tests{f' of {shared}' if shared else ''}", name="items"), _notes(document, shared)
    )


def _named(line: ItemLine, shared: str) -> Shown:
    name = line.id.removeprefix(f"{shared}::")
    return Shown(tag("code", breakable(name)), words.clean(name))


def _code(name: str) -> Shown:
    """A short name that is not broken over lines."""
    return Shown(tag("code", name, class_="name"), words.clean(name))


def _shown_status(status: Status) -> Shown:
    return Shown(badge(_status(status), _STYLES.get(status, "")), status)


def _bound(line: ItemLine) -> Cell:
    if line.bound is None:
        return None
    return Shown(Markup(str(line.bound)), line.bound) if line.proven else Shown(Markup("not proven"), -1)


def _notes(document: Document, shared: str) -> Markup:
    """Reasons and findings, by test."""
    lines = []
    for line in document.items:
        said = [line.reason, *line.findings]
        if line.outcomes_left_out:
            said.append(f"{words.plural(line.outcomes_left_out, 'run')} under faults not kept one by one")
        lines += [tag("li", tag("code", line.id.removeprefix(f"{shared}::")), f": {text}") for text in said if text]
    return folded(f"Reasons and findings ({len(lines)})", tag("ul", *lines)) if lines else Markup("")


def _shared(ids: Sequence[str]) -> str:
    files = {name.partition("::")[0] for name in ids}
    return files.pop() if len(files) == 1 else ""


def folded(title: str, *children: Child, opened: bool = False) -> Markup:
    return tag("details", tag("summary", title), *children, open=opened or None)


def note(said: str) -> Markup:
    return tag("p", said, class_="note")


def _coverage(parts: Parts) -> Markup:
    """What each search met (A6.5), and what it never did: that is where nothing is known."""
    lines = [(line, line.covered) for line in parts.document.items if line.covered is not None]
    shared = _shared([line.id for line, _ in lines])
    rows: list[tuple[Cell, ...]] = [
        (
            _named(line, shared),
            _of(covered.contracts, (*covered.contracts, *covered.idle)),
            _list(covered.idle),
            _of(covered.perturbed, covered.interfaces),
            _list([name for name in covered.interfaces if name not in covered.perturbed]),
            _list(covered.failing),
            _list([risk.rstrip("/") for risk in covered.risks]),
        )
        for line, covered in lines
    ]
    columns = (
        "test",
        "contracts judged",
        "never judged",
        "ports disturbed",
        "never disturbed",
        "ports that failed",
        "decisions",
    )
    return _with_note(
        "Of armed contracts and crossed ports, under any schedule. Decisions: the impact, and what governance said.",
        table(columns, rows, caption="What the searches met", name="coverage"),
    )


def _of(some: Sequence[str], every: Sequence[str]) -> Shown:
    return Shown(text(f"{len(some)} of {len(every)}"), len(some))


def _list(names: Sequence[str]) -> str:
    return ", ".join(names)


# -- tables -----------------------------------------------------------------------------------------------------------


def _nominal(parts: Parts) -> Markup:
    lines = parts.document.nominal
    shared = _shared([line.item for line in lines if line.item != "all"])
    tokens = tokens_reported(lines)
    return _with_note(
        "Runs without disturbance. Shares with 95% Wilson intervals; counts as median [least–most].",
        table(
            (
                "test", "runs", "task success", "not terminated", "breaks a contract", "steps", "tool calls",
                *["tokens"] * tokens,
            ),
            [
                (
                    Shown(tag("b", "all"), "") if name == "all" else Shown(tag("code", breakable(name)), name), line.runs,
                    line.success,
                    line.non_termination, line.violations, line.steps, line.tool_calls,
                    *([line.tokens if line.tokens.most else "not reported"] if tokens else []),
                )
                for line in lines
                for name in [words.clean(line.item.removeprefix(f"{shared}::"))]
            ],
            caption=f"{TITLES['nominal']}{f' of {shared}' if shared else ''}",
            name="nominal",
        ),
    )  # fmt: skip


def _with_note(said: str, shown: Markup) -> Markup:
    return joined(note(said), shown) if shown else Markup("")


def _faults(parts: Parts) -> Markup:
    return _with_note(
        "The unit is the fault. It is detected and mitigated within the windows of Eq. 10 (5 and 5 steps unless stated), and "
        "contained where it is mitigated and the run breaks no hard contract. Intervals allow for faults that share a run.",
        table(
            (
                "operator", "boundary", "runs", "detected", "mitigated", "contained", "contracts kept", "actions blocked",
                "detected by",
            ),
            [
                (
                    _code(line.operator), line.boundary, line.runs, line.detected, line.mitigated,
                    line.contained, line.final_ok, line.block,
                    ", ".join(f"{rule.rule} {rule.faults}" for rule in line.detected_by),
                )
                for line in parts.document.faults
            ],
            caption="Faults by operator",
            name="faults",
        ),
    )  # fmt: skip


def _governance(parts: Parts) -> Markup:
    lines = parts.document.governance
    if not lines:
        return _variant_pairs(parts.document)
    several = len({line.condition for line in lines}) > 1
    named = [(f"{line.variant}, {line.condition}" if several else line.variant, line) for line in lines]
    plot = plots.shares(
        "plot-governance",
        [(name, line.shares) for name, line in named],
        title="Mediation by variant: shares of proposed actions",
    )
    outcomes = table(
        (
            "variant", "runs", "task success", "breaks a contract", "high impact stopped", "attack success", "broken in search",
            "cheapest",
        ),
        [
            (
                name, line.runs, line.success, line.violations, line.high_impact_stopped, line.attack_success, line.broken,
                line.cheapest,
            )
            for name, line in named
        ],
        caption="Governance variants",
        name="governance",
    )  # fmt: skip
    mediated = [
        (name, of, shares.allow, shares.rewrite, shares.block)
        for name, line in named
        for of, shares in (
            ("all", line.shares),
            *((f"{part.name} impact", part.shares) for part in line.by_impact),
            *((f"{part.name} input", part.shares) for part in line.by_input),
        )
        if shares.allow.n
    ]
    return joined(
        note(
            "High impact stopped: blocked, routed to approval, or answered by a stand-in. Shares: of proposed calls and writes."
        ),
        figure(plot),
        outcomes,
        table(("variant", "actions", "allowed", "rewritten", "blocked"), mediated, caption="Mediation", name="mediation"),
        _variant_pairs(parts.document),
    )


def _variant_pairs(document: Document) -> Markup:
    """Each variant against the first, on the same runs (A6.3)."""
    tokens = tokens_reported(document.nominal)
    rows: list[tuple[Cell, ...]] = [
        (
            _CONDITIONS[line.condition], _ASPECTS[line.aspect], line.old, line.new, line.paired.table.pairs,
            line.paired.table.only_old, line.paired.table.only_new, Number(line.paired.difference, "points"),
            line.paired.p_value, *([Number(line.tokens, "tokens")] if tokens else []),
        )
        for line in document.variant_pairs
    ]  # fmt: skip
    return _with_note(
        "Runs of equal test, seed and schedule. Difference: new minus old, in points; p: McNemar's exact test, two-sided.",
        table(
            ("condition", "aspect", "old", "new", "pairs", "lost", "gained", "difference", "p", *["more tokens"] * tokens),
            rows,
            caption=TITLES["variant_pairs"],
            name="variant-pairs",
        ),
    )


def figure(*plots_made: Markup) -> Markup:
    return tag("div", *plots_made, class_="figures") if any(plots_made) else Markup("")


def _violations(parts: Parts) -> Markup:
    lines = parts.document.violations
    if not lines:
        return Markup("")
    profile = plots.bars(
        "plot-profile",
        [plots.Bar(label=words.clean(line.contract), estimate=line.frequency, style=line.severity) for line in lines],
        title="Violation profile: share of runs that break each contract",
    )
    return joined(
        note("Share of all runs, under faults as without. First step: the most frequent step of the first violation."),
        figure(_captioned("Violation profile: share of runs", profile), *_first_violations(parts.document)),
        table(
            ("contract", "severity", "frequency", "first step", "action kind", "agent"),
            [
                (
                    _code(line.contract),
                    Shown(badge(line.severity, "bad" if line.severity == "hard" else "warn"), line.severity),
                    line.frequency, line.first_step, line.action_kind, line.agent,
                )
                for line in lines
            ],
            caption=TITLES["violations"],
            name="violations",
        ),
    )  # fmt: skip


def _first_violations(document: Document) -> list[Markup]:
    """At which step failing runs first go wrong, who, and with what; by condition."""
    plotted = []
    for number, line in enumerate(line for line in document.distributions if line.name == "first_violation"):
        title = f"First violation, {_CONDITIONS[line.condition]}: runs by step"
        plotted.append(
            _captioned(title, plots.histogram(f"plot-first-{number}", line.distribution.bins, title=title, unit="step"))
        )
    for number, first in enumerate(document.first_violations):
        title = f"First violation, {_CONDITIONS[first.condition]}: {first.by.replace('_', ' ')}"
        shown = [plots.Bar(label=words.clean(part.name) or "none", estimate=part.share) for part in first.shares[:_BARS]]
        plotted.append(_captioned(title, plots.bars(f"plot-first-by-{number}", shown, title=title)))
    return plotted


def _captioned(title: str, plot: Markup) -> Markup:
    return tag("figure", tag("figcaption", title), plot) if plot else Markup("")


_BARS: Final = 12
"""Bars of one plot of agents or kinds; the most frequent."""
_CONDITIONS: Final = {"nominal": "undisturbed", "fault": "under faults", "adversarial": "adversarial", "replay": "replays"}


# -- evaluation -------------------------------------------------------------------------------------------------------

_COLUMNS: Final = {
    "nominal": ("success", "@", "violations", "non_termination", "h_rate", "steps", "tokens_per_success"),
    "fault": ("success", "violations", "detected", "mitigated", "containment", "residual_harm", "p_rewrite", "p_block"),
    "adversarial": ("success", "violations", "detected", "mitigated", "containment", "residual_harm", "p_rewrite", "p_block"),
    "replay": ("success", "violations"),
}
"""The metrics of the tables of A6.6, by condition; "@" stands for success in several runs. All others are in the last table."""


def _evaluation(parts: Parts) -> Markup:
    lines = parts.document.evaluation
    if not lines:
        return Markup("")
    by_condition = dict.fromkeys(line.condition for line in lines)
    tables = [_evaluated(condition, [line for line in lines if line.condition == condition]) for condition in by_condition]
    every: list[tuple[Cell, ...]] = [
        (
            _CONDITIONS[line.condition], line.category, line.variant, metric.name, Number(metric.estimate, metric.unit),
            metric.estimate.method,
        )
        for line in lines
        for metric in line.metrics
    ]  # fmt: skip
    columns = ("condition", "category", "variant", "metric", "value", "method")
    return joined(
        note("A row for each category of the workload and governance variant; infrastructure failures are in no rate."),
        *tables,
        folded(
            f"All metrics of each cell ({len(every)})", table(columns, every, name="cells", label="All metrics of each cell")
        ),
        _outside(parts.document),
    )


def _evaluated(condition: Condition, lines: Sequence[EvaluationLine]) -> Markup:
    known = dict.fromkeys(metric.name for line in lines for metric in line.metrics)
    chosen = [
        name
        for column in _COLUMNS[condition]
        for name in known
        if name == column or (column == "@" and name.startswith(("success@", "pass^")))
        if name != "tokens_per_success" or tokens_reported(lines)
    ]
    units = {metric.name: metric.unit for line in lines for metric in line.metrics}
    several, outside = len({line.variant for line in lines}) > 1, any(line.infrastructure for line in lines)
    rows: list[list[Cell]] = [
        [
            Shown(tag("b", "all"), "~") if line.category == "all" else line.category,
            *([line.variant] if several else []),
            line.items,
            line.runs,
            *([line.infrastructure] if outside else []),
            *(Number(line.get(name), units[name]) for name in chosen),
        ]
        for line in lines
    ]
    headers = ["category", *["variant"] * several, "tests", "runs", *["infrastructure"] * outside, *map(_status, chosen)]
    return table(headers, rows, caption=f"Evaluation, {_CONDITIONS[condition]}", name=f"evaluation-{condition}")


def _outside(document: Document) -> Markup:
    rows = [
        (_CONDITIONS[line.condition], line.reason, line.runs, line.left_out_of or "all") for line in document.infrastructure
    ]
    columns = ("condition", "what failed around the run", "runs", "left out of")
    return table(columns, rows, caption=TITLES["infrastructure"], name="outside")


def _heat(parts: Parts) -> Markup:
    found = parts.document.heat_maps
    if not found:
        return Markup("")
    return joined(
        note("Undisturbed runs that are judged; below a share what most of those that failed failed with."),
        *map(heat_table, found),
    )


def _distributions(parts: Parts) -> Markup:
    lines = parts.document.distributions
    if not lines:
        return Markup("")
    plotted, rows = [], []
    for number, line in enumerate(lines):
        title = f"{DISTRIBUTED.get(line.name, line.name).capitalize()}, {_CONDITIONS[line.condition]}"
        if line.name != "first_violation":
            plot = plots.histogram(f"plot-spread-{number}", line.distribution.bins, title=title, unit=line.unit)
            plotted.append(_captioned(title, plot))
        found: dict[int, Cell] = {part.percent: Number(part.estimate, "") for part in line.distribution.quantiles}
        rows.append(
            (title, line.unit, line.distribution.n, line.distribution.without, *(found.get(at) for at in TOLD_QUANTILES))
        )
    columns = ("number", "unit", "runs", "without", "median", "90% at most", "99% at most")
    return joined(
        note("Quantiles with exact intervals between order statistics; an end that the data do not bound is open."),
        figure(*plotted),
        table(columns, rows, caption="Quantiles", name="distributions"),
    )


# -- robustness -------------------------------------------------------------------------------------------------------


def _robustness(parts: Parts) -> Markup:
    found = [curve for curve in parts.document.curves if curve.area.n]
    if not found:
        return Markup("")
    panels = []
    for number, (measure, category) in enumerate(dict.fromkeys((curve.measure, curve.category) for curve in found)):
        curves = [curve for curve in found if (curve.measure, curve.category) == (measure, category)]
        title = f"{_MEASURES[measure]}: {'all tests' if category == 'all' else category}"
        panel = plots.curve_panel(f"plot-curve-{number}", words.clean(title), curves)
        panels.append(tag("figure", tag("figcaption", title), panel))
    key = tag(
        "p",
        tag("span", "adversarial schedules", class_="key one"),
        tag("span", "random schedules", class_="key two") if any(curve.kind == "random" for curve in found) else None,
        tag("span", "hollow points: upper bounds, not everything within that budget was searched", class_="key hollow"),
        class_="note",
    )
    rows: list[tuple[Cell, ...]] = [
        (
            _MEASURES[curve.measure], curve.category, curve.kind, curve.largest, curve.points[0].estimate, curve.last.estimate,
            curve.area, {None: "sampled", True: "exact on the grid", False: "upper bound"}[curve.area_proven],
        )
        for curve in found
    ]  # fmt: skip
    return joined(
        note("R(B): the share of tests that hold under schedules of cost at most B. Bands: 95% intervals, point by point."),
        key,
        figure(*panels),
        table(
            ("measure", "category", "schedules", "largest budget", "R(0)", "R at the largest", "area", "area is"), rows,
            caption="Robustness", name="robustness",
        ),
    )  # fmt: skip


_MEASURES: Final = {"success": "Task success", "compliance": "No hard contract broken"}


# -- regression -------------------------------------------------------------------------------------------------------


def _regression(parts: Parts) -> Markup:
    found = parts.regression
    if found is None:
        return Markup("")
    under = "without faults" if found.under == "nominal" else "under faults: replays, and schedules that both searched"
    counted = f"{words.plural(found.runs, 'run')} of {words.plural(found.items, 'test')} in both reports, {under}."
    verdict = badge("regression", "bad") if found.regressed else badge("no regression", "good")
    aspects = (found.success, found.compliance, found.passed)
    return joined(
        tag("p", verdict, f" {counted} p: McNemar's exact test, two-sided.", class_="note"),
        table(
            ("aspect", "old", "new", "regressed of those that had it", "regressed", "improved", "p"),
            [
                (
                    _ASPECTS[part.aspect], part.old, part.new, part.rate, len(part.regressed), len(part.improved), part.p_value,
                )
                for part in aspects
            ],
            caption="Rates by run",
            name="regression",
        ),
        *(_pairs(f"Regressions: {_ASPECTS[part.aspect]}", part.regressed, opened=True) for part in aspects[:2]),
        *(_pairs(f"Improvements: {_ASPECTS[part.aspect]}", part.improved) for part in aspects[:2]),
        _decisions("Decisions on actions of high impact (rows: old, columns: new)", found.high),
        _decisions("Decisions on all actions (rows: old, columns: new)", found.all_actions),
        _changes(found),
        _apart(found),
    )  # fmt: skip


def _pairs(title: str, pairs: Sequence[Pair], *, opened: bool = False) -> Markup:
    if not pairs:
        return Markup("")
    rows = [
        (Shown(tag("code", breakable(pair.item)), words.clean(pair.item)), pair.seed, pair.schedule, pair.why)
        for pair in pairs[:_LISTED]
    ]
    shown = table(("test", "seed", "schedule", "why"), rows, label=title)
    return folded(f"{title} ({len(pairs)})", shown, _left_out(len(pairs)), opened=opened)


def _left_out(count: int) -> Markup | None:
    return note(f"{count - _LISTED} more are in the JSON report.") if count > _LISTED else None


def _decisions(title: str, found: GovernanceComparison) -> Markup:
    counts = {(line.old, line.new): line.count for line in found.table}
    if not found.matched or counts.get(("allow", "allow")) == found.matched:
        return Markup("")
    rows: list[list[Cell]] = [[old, *(counts.get((old, new), 0) for new in DECISIONS)] for old in DECISIONS]
    return table(("", *DECISIONS), rows, caption=title)


def _changes(found: Regression) -> Markup:
    changes = sorted(
        found.all_actions.changes, key=lambda item: (item.impact != "high", not item.loosened, item.item, item.site)
    )
    if not changes:
        return Markup("")
    rows: list[tuple[Cell, ...]] = [
        (
            Shown(tag("code", breakable(item.site)), words.clean(item.site)), item.impact, item.old, item.new,
            "loosened" if item.loosened else "tightened",
            item.item, item.seed, item.schedule,
        )
        for item in changes[:_LISTED]
    ]  # fmt: skip
    columns = ("action", "impact", "old", "new", "change", "test", "seed", "schedule")
    return folded(
        f"Decisions that changed ({len(changes)})",
        table(columns, rows, label="Decisions that changed"),
        _left_out(len(changes)),
        opened=True,
    )


def _apart(found: Regression) -> Markup:
    """What the rates do not speak of, so that nobody takes it for compared."""
    lines = [f"only in the old report: {name}" for name in found.only_old]
    lines += [f"only in the new report: {name}" for name in found.only_new]
    if found.unmatched_old or found.unmatched_new:
        lines.append(f"runs without a partner: {found.unmatched_old} old, {found.unmatched_new} new")
    if found.unjudged:
        lines.append(f"{words.plural(found.unjudged, 'run')} without a task success on one side: contracts alone compared")
    lines += [f"no longer armed in {line.item}: {', '.join(line.contracts)}" for line in found.disarmed]
    return folded(f"Not compared ({len(lines)})", tag("ul", *(tag("li", line) for line in lines))) if lines else Markup("")


# -- suite ------------------------------------------------------------------------------------------------------------


def _suite(parts: Parts) -> Markup:
    cover = parts.suite
    if cover is None:
        return Markup("")
    total = len(cover.chosen) + len(cover.left_out)
    how = {True: "no fewer can cover them", False: f"at least {cover.bound} are needed"}[cover.proven]
    counts = Counter(unit.kind for unit in cover.units)
    covered = ", ".join(words.plural(count, _KINDS[kind]) for kind, count in counts.items())
    return joined(
        note(f"{len(cover.chosen)} of {words.plural(total, 'replay')} cover {covered or 'nothing'}: {how} ({cover.method})."),
        table(
            ("replay", "steps", "only it covers", "covers with others"),
            [
                (
                    Shown(tag("code", breakable(item.name)), words.clean(item.name)),
                    item.steps,
                    _units(item.only),
                    _units(item.shared),
                )
                for item in cover.chosen
            ],
            caption="Regression suite",
            name="suite",
        ),
        folded(
            f"Left out ({len(cover.left_out)})",
            table(
                ("replay", "covered by"), [(item.name, ", ".join(item.covered_by)) for item in cover.left_out], label="Left out"
            ),
        )
        if cover.left_out
        else None,
    )


def _units(units: Sequence[Unit]) -> Cell:
    names = [unit_in_words(unit) for unit in units]
    return Shown(tag("ul", *(tag("li", name) for name in names), class_="plain"), len(names), left=True) if names else ""


# -- counterexamples and metrics --------------------------------------------------------------------------------------


def _counterexamples(parts: Parts) -> Markup:
    files = {line.id: iter(line.replays) for line in parts.document.items}
    return joined(
        *(
            counterexample(
                number,
                replay,
                opened=parts.opened.get(number),
                how_to_replay=_command(next(files.get(replay.item, iter(())), "")),
            )
            for number, replay in enumerate(parts.document.counterexamples)
        )
    )


def _command(file: str) -> str:
    return f"pytest --mat-replay {shlex.quote(words.clean(file))}" if file else ""


def _metrics(parts: Parts) -> Markup:
    rows: list[tuple[Cell, ...]] = [
        (_code(metric.name), Number(metric.estimate, metric.unit), metric.estimate.method) for metric in parts.document.metrics
    ]
    return table(("metric", "value", "method"), rows, caption="Every number of the report", name="metrics")


SECTIONS: Final = (
    Section(id="overview", title="Overview", make=_overview),
    Section(id="evaluation", title="Evaluation", make=_evaluation),
    Section(id="heat", title="Heat map", make=_heat),
    Section(id="nominal", title="Nominal", make=_nominal),
    Section(id="faults", title="Faults", make=_faults),
    Section(id="governance", title="Governance", make=_governance),
    Section(id="violations", title="Violations", make=_violations),
    Section(id="distributions", title="Distributions", make=_distributions),
    Section(id="robustness", title="Robustness", make=_robustness),
    Section(id="regression", title="Regression", make=_regression),
    Section(id="coverage", title="Coverage", make=_coverage),
    Section(id="suite", title="Suite", make=_suite),
    Section(id="counterexamples", title="Counterexamples", make=_counterexamples),
    Section(id="metrics", title="Metrics", make=_metrics),
)
"""In the order of the page. A new one is a line here."""
