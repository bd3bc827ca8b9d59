"""Renders a report, a comparison or a gate's result as Markdown, for a pull request or a job summary."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from mat.measure.gate import Gate
from mat.measure.regression import Regression
from mat.report import gate, regression, words
from mat.report.definitions import definitions
from mat.report.document import Document
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


def _list_lines(found: Listing) -> list[str]:
    return [*(f"- {escape(line)}" for line in found.shown), *([f"- {found.rest}"] if found.rest else [])]


def _counterexamples(document: Document) -> list[str]:
    if not document.counterexamples:
        return []
    lines = ["## Counterexamples\n"]
    files = {line.id: iter(line.replays) for line in document.items}
    for replay in document.counterexamples:
        found = replay.counterexample
        flaky = " (flaky)" if found.flaky else ""
        lines.append(f"- **{escape(found.verdict.contract)}**{flaky} in {escape(replay.item)}: {escape(found.verdict.message)}")
        lines += [f"  - {escape(words.perturbation_in_words(item))} (cost {item.cost})" for item in found.run.spec.schedule]
        lines.append(f"  - {escape(words.certificate_in_words(replay.certificate, found.cost))}")
        lines.append(f"  - {escape(words.stability_in_words(found.stability))}")
        file = next(files.get(replay.item, iter(())), "")
        lines += [f"  - Replay: {_code(words.replay_command(file))}"] if file else []
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
