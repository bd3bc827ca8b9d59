"""Renders a report, a comparison or a gate's result as Markdown, for a pull request or a job summary."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from mat.measure.gate import Gate
from mat.measure.regression import Regression
from mat.report import brief, gate, regression, words
from mat.report.definitions import definitions
from mat.report.document import Document, FindingLine, ItemLine
from mat.report.grouping import found_runs, held_findings
from mat.report.table import Listing, Table, shown, texts
from mat.report.tables import tables_of

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>|#&!])")


def to_markdown(document: Document) -> str:
    """The report with every table, items first. All text from runs is escaped."""
    tables = shown(tables_of(document), "markdown")
    first = [table for table in tables if table.name == "items"]
    parts = [
        f"# MAT report\n\n{words.plural(document.runs, 'run')}. Shares carry 95% intervals.\n",
        f"**{words.INTERRUPTED}**\n" if document.interrupted else "",
        f"{escape(words.of_variant(document.variant))}\n" if document.variant else "",
        in_markdown([*first, *(table for table in tables if table.name != "items")]),
        "".join(f"- {escape(item)}: {escape(said)}\n" for item, said in held_findings(document)),
        *_counterexamples(document),
        in_markdown([definitions(tables)]),
    ]
    return "\n".join(part for part in parts if part)


def in_markdown(tables: Iterable[Table]) -> str:
    """Tables under headings, escaped; "" without tables."""
    return "\n".join(
        _table(table.title, [column.heading for column in table.columns], texts(table), note=table.note)
        for table in shown(tables, "markdown")
        if table.rows
    )


def comparison(found: Regression, *, names: tuple[str, str]) -> str:
    """The comparison of two reports: the verdict, shortened lists, and the tables."""
    runs, changed = regression.listings(found)
    summary = regression.scope_sentence(found, names).removesuffix(".")
    lines = ["## Comparison\n", f"{escape(summary)}. **{escape(regression.conclusion(found))}**\n"]
    for each in (*runs, *changed):
        lines += [f"### {each.title}\n", *_list_lines(each), ""]
    return "\n".join([*lines, in_markdown(regression.regression_tables(found))])


def gate_summary(found: Gate, *, baseline: str) -> str:
    """A short summary of a gate: the result, the table of aspects, and what was lost or is missing."""
    table = gate.aspects(found)
    lines = [
        f"## MAT gate: {'passed' if found.passed else 'failed'}\n",
        f"{escape(gate.judgement(found))} {escape(gate.against(found, baseline))}\n",
        *_rows([column.name for column in table.columns], texts(table)),
        "",
        escape(gate.how(found)),
    ]
    for each in gate.sections(found):
        lines += ["", f"**{escape(each.title)}**\n", *_list_lines(each)]
    return "\n".join(lines) + "\n"


def session_summary(document: Document) -> str:
    """A short summary of a session for a pull request: counts, what is broken or open, and what is accepted until when."""
    counts = brief.counts_text([line.status for line in document.items]) or "no test ran"
    lines = [f"## MAT: {_inert(counts)}", ""]
    lines += [f"**{words.INTERRUPTED}**", ""] if document.interrupted else []
    for title, entries in (
        ("Broken", [_finding_entry(each) for each in document.findings if each.standing == "new"]),
        ("Open", [_open_entry(each) for each in document.items if each.status in _OPEN]),
        ("Accepted", [_finding_entry(each) for each in document.findings if each.standing == "accepted"]),
        ("Known from the baseline", [_finding_entry(each) for each in document.findings if each.standing == "known"]),
    ):
        if entries:
            shown = list(dict.fromkeys(entries))[:_ENTRIES]
            more = [f"- and {len(entries) - _ENTRIES} more"] if len(entries) > _ENTRIES else []
            lines += [f"### {title} ({len(entries)})", "", *shown, *more, ""]
    return "\n".join(lines) + "\n"


_ENTRIES: Final = 20
"""The most entries of one kind in a summary: a job's summary has a limit of size."""
_CHARS: Final = 400
_OPEN: Final = ("flaky", "missed", "stale", "vacuous", "not_proven", "not_judged")


def _finding_entry(found: FindingLine) -> str:
    """A finding on one line."""
    place = f" ({_inert(found.place)})" if found.place else ""
    cause = f"when {'; '.join(found.causes)}" if found.causes else "in the nominal run"
    cost = f"cost {found.cost}" if found.causes else "nominal run"
    parts = [
        f"- **{_inert(', '.join(found.contracts))}**, {cost}, in {_inert(found.item)}{place}: "
        f"{_inert(found.message)} {_inert(cause)}"
    ]
    parts += [f"Repair: {_inert(found.repair)}"] if found.repair else []
    parts += [f"**Until {found.until}**: {_inert(found.remark)}"] if found.until else []
    parts += [_inert(found.remark)] if found.remark and found.standing == "new" else []
    parts += [_code(words.show_command(found.replay))] if found.replay else []
    return ". ".join(parts)


def _open_entry(line: ItemLine) -> str:
    reason = f": {_inert(line.reason)}" if line.reason else ""
    return f"- {line.status.replace('_', ' ')}: {_inert(line.id)}{reason}"


def _inert(text: str) -> str:
    """Escaped text, cut short, in which no address becomes a link."""
    return escape(words.shorten(text, _CHARS)).replace("://", "&#58;//").replace("www.", "www&#46;")


def _list_lines(found: Listing) -> list[str]:
    return [*(f"- {escape(line)}" for line in found.shown), *([f"- {found.rest}"] if found.rest else [])]


def _counterexamples(document: Document) -> list[str]:
    if not document.counterexamples:
        return []
    lines = ["## Counterexamples\n"]
    for group in found_runs(document):
        first, found = group.first, group.first.counterexample
        flaky = " (flaky)" if any(each.counterexample.flaky for each in group.replays) else ""
        verdicts = [each.counterexample.verdict for each in group.replays]
        broken = "; ".join(f"**{escape(each.contract)}**: {escape(each.message)}" for each in verdicts)
        lines.append(f"- In {escape(first.item)}{flaky}, {broken}")
        lines += [
            f"  - {escape(words.perturbation_in_words(item))} (cost {item.cost})" for item in words.in_order_of_steps(found.run)
        ]
        lines.append(f"  - {escape(words.certificate_in_words(first.certificate, found.cost))}")
        stabilities = dict.fromkeys(words.stability_in_words(each.counterexample.stability) for each in group.replays)
        lines += [f"  - {escape(text)}" for text in stabilities]
        lines += [f"  - Replay: {_code(words.replay_command(file))}" for file in group.files]
    return ["\n".join(lines) + "\n"]


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, note: str = "") -> str:
    if not rows:
        return ""
    sentence = f"{note[0].upper()}{note[1:]}." if note else ""
    lines = [f"## {escape(title)}\n", *([f"{escape(sentence)}\n"] if sentence else [])]
    return "\n".join([*lines, *_rows(columns, rows)]) + "\n"


def _rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(map(escape, columns))} |", f"|{'---|' * len(columns)}",
        *(f"| {' | '.join(map(escape, row))} |" for row in rows),
    ]  # fmt: skip


def escape(text: str) -> str:
    """Escape text so that Markdown shows it literally: no markup, HTML, cell separators or invisible characters."""
    return _SPECIAL.sub(r"\\\1", words.clean(text)).replace("\\<", "&lt;").replace("\\>", "&gt;")


def _code(text: str) -> str:
    """Text to copy, as code unless it contains a backtick."""
    return escape(text) if "`" in text else f"`{words.clean(text)}`"
