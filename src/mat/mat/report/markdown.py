"""The report as Markdown, for a pull request or a job summary."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

from mat.report import governance, robustness, words
from mat.report.document import Document

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>|#&!])")


def to_markdown(document: Document) -> str:
    """Tables in the order of the terminal report. Whatever came from a run is escaped."""
    parts = [
        f"# MAT report\n\n{document.runs} runs. Shares carry 95% Wilson intervals.\n",
        _table(
            "Items",
            ("item", "status", "cost", "contract", "step", "executions", "bound", "reason"),
            [
                (
                    line.id, line.status, _text(line.cost), words.and_more(line.contract, len(line.replays)) or "-",
                    _text(line.step), str(line.executions),
                    "not proven" if line.proven is False else _text(line.bound), line.reason,
                )
                for line in document.items
            ],
        ),
        _table(
            "Nominal runs",
            ("item", "runs", "success", "not terminated", "violations", "steps", "tool calls", "tokens"),
            [
                (
                    line.item, str(line.runs), words.share(line.success), words.share(line.non_termination),
                    words.share(line.violations), words.seen(line.steps), words.seen(line.tool_calls), words.seen(line.tokens),
                )
                for line in document.nominal
            ],
        ),
        _table(
            "Faults",
            ("operator", "detected", "mitigated", "contained", "final contracts kept"),
            [
                (
                    line.operator, words.share(line.detected), words.share(line.mitigated), words.share(line.contained),
                    words.share(line.final_ok),
                )
                for line in document.faults
            ],
        ),
        *(_table(part.title, part.columns, part.rows) for part in governance.tables(document.governance)),
        robustness.markdown(document.curves),
        _table(
            "Contracts broken",
            ("contract", "severity", "frequency", "first step (mode)", "action kind", "agent"),
            [
                (
                    line.contract, line.severity, words.share(line.frequency), str(line.first_step), line.action_kind or "-",
                    line.agent or "-",
                )
                for line in document.violations
            ],
        ),
        *_counterexamples(document),
    ]  # fmt: skip
    return "\n".join(part for part in parts if part)


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
        lines += [f"  - Replay: {_code(f'pytest --mat-replay {shlex.quote(file)}')}"] if file else []
    return ["\n".join(lines) + "\n"]


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [f"## {title}\n", f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    lines += [f"| {' | '.join(escape(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no HTML, no end of a cell, nothing invisible."""
    return _SPECIAL.sub(r"\\\1", words.clean(text)).replace("\\<", "&lt;").replace("\\>", "&gt;")


def _code(text: str) -> str:
    """Text to copy: as code, where nothing in it could end that."""
    return escape(text) if "`" in text else f"`{words.clean(text)}`"


def _text(value: int | None) -> str:
    return "-" if value is None else str(value)
