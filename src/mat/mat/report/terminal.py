"""Renders a report, a counterexample or a violation as plain text of a given width, without colour codes."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from mat.core.campaign import Certificate, Counterexample
from mat.core.difference import Difference
from mat.core.record import Record
from mat.core.run import Run
from mat.core.verdict import Violation
from mat.evidence.replay_file import hit_step
from mat.monitor.localize import backward_slice, region
from mat.monitor.propagation import journey_of, reaching, speaks_of, way
from mat.report import words
from mat.report.brief import WIDTH, answer_lines
from mat.report.document import Document
from mat.report.grouping import found_runs, held_findings, other_violations
from mat.report.table import Listing, NoteList, ReportBlock, Table, compact, shown, texts
from mat.report.tables import ALL, tables_of

_STEPS: Final = ("step", "ms", "agent", "action", "arguments", "observation", "effect", "marks")
_ROOMY: Final = 100
"""The width from which the parts of a step fit side by side."""

_CELL: Final = 90
"""Characters of arguments or of a reply shown in a table of steps."""

_PATHS: Final = 3
"""The most faults shown on the way to one violation."""

_TABLE: Final = 120
"""The width of a report's tables without a terminal; paragraphs are narrower."""

_ENDLESS: Final = 10_000
"""The width for tables whose columns were already chosen to fit, except for a node id at the end."""

_GAP: Final = 2
"""Blanks between columns."""

_Fill: TypeAlias = Callable[..., str]
"""`words.wrap` of one width."""

_LEAST: Final = 12
"""The narrowest width, in characters, to which a column is wrapped."""


def summary(document: Document, *, width: int | None = None) -> str:
    """The short report of a session: nominal runs, faults, violations, items, counterexamples. Empty parts are omitted.

    `width` is that of the terminal; None if the text goes to a file.
    """
    tables = [table for table in shown(tables_of(document), "terminal") if table.brief]
    parts = [_preamble(document), in_text(tables, width=width), _reasons(document, width), _counterexamples(document, width)]
    return _join_parts(parts)


def listed(document: Document, *, width: int | None = None) -> str:
    """The items of a session with their reasons, and the counterexamples that were expected."""
    expected = replace(document, counterexamples=tuple(each for each in document.counterexamples if each.expected))
    tables = [table for table in shown(tables_of(document), "terminal") if table.name == "items"]
    return _join_parts([in_text(tables, width=width), _reasons(document, width), _counterexamples(expected, width)])


def selected(document: Document, names: Collection[str], *, width: int | None = None) -> str:
    """The tables of these names."""
    tables = [table for table in shown(tables_of(document), "terminal") if table.name in names]
    return _join_parts([_preamble(document) if tables else "", in_text(tables, width=width)])


def whole(document: Document, *, width: int | None = None) -> str:
    """The full report: every table, and the counterexamples with the commands that run them again.

    Source: A6.6.
    """
    tables = shown(tables_of(document), "terminal")
    parts = [
        _preamble(document),
        in_text(tables, width=width),
        _reasons(document, width),
        _counterexamples(document, width, replays=True),
    ]
    return _join_parts(parts)


def report_text(document: Document, *, width: int | None = None) -> str:
    """A report as text: first the answer, as at the end of the session, then everything that `whole` has."""
    answer = answer_lines(document, width=min(width or WIDTH, WIDTH))
    return _join_parts(["".join(f"{line}\n" for line in answer), whole(document, width=width)])


def _preamble(document: Document) -> str:
    """Remarks before the numbers: the session was interrupted, and which of several variants the tables show."""
    lines = [words.INTERRUPTED] if document.interrupted else []
    lines += [words.of_variant(document.variant)] if document.variant else []
    return "".join(f"{line}\n" for line in lines)


def _join_parts(parts: Iterable[str]) -> str:
    return "\n".join(part for part in parts if part)


def _reasons(document: Document, width: int | None) -> str:
    """The reason of each item that has one, what the certificate of each certified one takes as given, and which injected
    failures left the body of a test uncaught."""
    shared = _shared_file([line.id for line in document.items])
    lines = [
        words.wrap(
            f"{words.clean(_without_file(line.id, shared))}: {words.clean(said)}",
            hanging="  ",
            width=width or words.WIDTH,
        )
        for line in document.items
        for said in filter(None, (line.reason, words.certified_relative_to(line), *words.uncaught_failures(line), *line.notes))
    ]
    lines += [
        words.wrap(words.clean(f"{_without_file(item, shared)}: {said}"), hanging="  ", width=width or words.WIDTH)
        for item, said in held_findings(document)
    ]
    return "\n".join([*lines, ""]) if lines else ""


def _counterexamples(document: Document, width: int | None, *, replays: bool = False) -> str:
    """Each counterexample in words: what broke where, under which schedule, and what is proven about cheaper ones.

    What one run breaks is one counterexample, at however many steps.
    """
    shared = _shared_file([line.id for line in document.items])
    parts = []
    for group in found_runs(document):
        first, found = group.first, group.first.counterexample
        causes = [words.perturbation_in_words(item) for item in words.in_order_of_steps(found.run)] or [
            "no disturbance is needed"
        ]
        flaky = "FLAKY, " if any(each.counterexample.flaky for each in group.replays) else ""
        lines = [
            *(_broken_text(each.counterexample.verdict) for each in group.replays),
            f"{flaky}cost {found.cost}: {'; '.join(causes)}",
            words.certificate_in_words(first.certificate, found.cost),
            *dict.fromkeys(words.stability_in_words(each.counterexample.stability) for each in group.replays),
            *(f"Replay: {words.replay_command(file)}" for file in group.files if replays),
        ]
        wrapped = (
            words.wrap(words.clean(line), indent="  ", hanging="    ", width=width or words.WIDTH) for line in lines
        )  # fmt: skip
        parts += [words.clean(_without_file(first.item, shared)), *wrapped]
    return "\n".join(["Counterexamples", *parts, ""]) if parts else ""


def _broken_text(verdict: Violation) -> str:
    return f"{verdict.contract}: {verdict.message} (step {verdict.step}, by {verdict.agent or 'nobody'})"


def _shared_file(ids: Sequence[str]) -> str:
    files = {name.partition("::")[0] for name in ids if "::" in name}
    return files.pop() if len(files) == 1 and all("::" in name or name == ALL for name in ids) else ""


def _without_file(item: str, shared: str) -> str:
    return item.removeprefix(f"{shared}::")


# -- tables of the report ---------------------------------------------------------------------------------------------


def in_text(tables: Iterable[Table], *, width: int | None = None) -> str:
    """Tables one under another; "" without any. A table that is too wide goes on below, its rows named again.

    Names of tests come last and are never wrapped: a name longer than half a line may exceed the width.
    """
    return _join_parts(_table_in_text(table, width or _TABLE, width or words.WIDTH) for table in shown(tables, "terminal"))


def blocks_in_text(blocks: Iterable[ReportBlock], *, width: int | None = None) -> str:
    """Paragraphs, tables and lists, one below the other. `width` as in `summary`."""
    return _join_parts(_block_text(block, words.filler(width), width) for block in blocks).rstrip("\n") + "\n"


def _block_text(block: ReportBlock, fill: _Fill, width: int | None) -> str:
    match block:
        case str():
            return f"{fill(words.clean(block))}\n"
        case Table():
            return in_text([block], width=width)
        case NoteList(lines=lines):
            return "\n".join([*(fill(words.clean(line), hanging="  ") for line in lines), ""]) if lines else ""
        case Listing():
            shown = (fill(words.clean(line), indent="  ", hanging="    ") for line in block.shown)
            return "\n".join([block.title, *shown, *([f"  {block.rest}"] if block.rest else []), ""])


def _table_in_text(table: Table, width: int, paragraph: int) -> str:
    laid = _text_table(table)
    if _needed_width(laid) + _width_of_name(laid, width) > width:
        laid = _text_table(compact(table), narrow=True)
    title = f"{table.title} of {laid.shared}" if laid.shared and table.name == "items" else table.title
    note = f" ({words.clean(table.note)})" if table.note else ""
    return "\n".join(
        _table(
            words.wrap(f"{title}, continued" if number else f"{title}{note}", hanging="  ", width=paragraph),
            *_select_columns(laid, block),
            width=width if laid.last is None else _ENDLESS,
        )
        for number, block in enumerate(_blocks(laid, width))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _TextTable:
    """A table as text. `keys` are the indexes of the key columns, `last` that of a name column shown last and unwrapped.

    `n` is the index of the column with the count behind the estimates; like the keys it is repeated in every block of columns.
    `sizes` are the widths of the columns, `shared` the file that all names share and do not repeat.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    keys: Sequence[int]
    last: int | None
    n: int | None
    sizes: Sequence[int]
    shared: str


def _text_table(table: Table, *, narrow: bool = False) -> _TextTable:
    """Lay a table out as text. If `narrow`, headings wider than their cells are wrapped."""
    from rich.cells import cell_len

    columns = [column.heading for column in table.columns]
    rows = [[words.clean(cell) for cell in row] for row in texts(table)]
    keys = [place for place, column in enumerate(table.columns) if column.key and not column.whole]
    last = next((place for place, column in enumerate(table.columns) if column.whole), None)
    n = next((place for place, column in enumerate(table.columns) if column.name == table.n_in), None)
    shared = ""
    if last is not None:
        rows, shared = _without_shared_file(rows, last)
    elif table.grouped and len(keys) > 1:
        columns, rows = _group_rows(columns, rows, keys)
        keys, n = [0], None if n is None else n - 1
    widths = [max(map(cell_len, column), default=0) for column in zip(*rows, strict=True)] or [0] * len(columns)
    if narrow:
        columns = [_wrap_heading(column, size) for column, size in zip(columns, widths, strict=True)]
    sizes = [max(size, *map(cell_len, column.split("\n"))) for column, size in zip(columns, widths, strict=True)]
    return _TextTable(columns=columns, rows=rows, keys=keys, last=last, n=n, sizes=sizes, shared=shared)


def _wrap_heading(heading: str, size: int) -> str:
    return textwrap.fill(heading, max(size, 1), break_long_words=False, break_on_hyphens=False)


def _width_of_name(laid: _TextTable, width: int) -> int:
    """The width of a name column at the end; 0 if it is so long that it exceeds the width anyway."""
    size = 0 if laid.last is None else laid.sizes[laid.last] + _GAP
    return size if size <= width // 2 else 0


def _needed_width(laid: _TextTable) -> int:
    """The width of all columns except a name at the end."""
    sizes = [size for place, size in enumerate(laid.sizes) if place != laid.last]
    return sum(sizes) + _GAP * (len(sizes) - 1)


def _without_shared_file(rows: list[list[str]], place: int) -> tuple[list[list[str]], str]:
    """The rows with the file that all names share removed from the names, and that file."""
    shared = _shared_file([row[place] for row in rows])
    return [[*row[:place], _without_file(row[place], shared), *row[place + 1 :]] for row in rows], shared


def _group_rows(columns: list[str], rows: list[list[str]], keys: Sequence[int]) -> tuple[list[str], list[list[str]]]:
    """The rows grouped by the first of their two keys, each group below a line with that key."""
    first, second = keys[:2]
    others = [place for place in range(len(columns)) if place not in (first, second)]
    grouped: list[list[str]] = []
    group = None
    for row in rows:
        if row[first] != group:
            group = row[first]
            grouped.append([group, *("" for _ in others)])
        grouped.append([f"  {row[second]}", *(row[place] for place in others)])
    return [f"{columns[first]}, {columns[second]}", *(columns[place] for place in others)], grouped


def _blocks(laid: _TextTable, width: int) -> list[list[int]]:
    """Blocks of columns that fit side by side: the keys, at least one other column, and last a name of any length.

    A text column counts with at most its share of the width, because longer texts are wrapped.
    """
    most = max(_LEAST, width // (2 * max(len(laid.keys), 1)))
    sizes = [min(size, most) + _GAP for size in laid.sizes]
    repeated = [*laid.keys, *([] if laid.n is None else [laid.n])]
    room = width + _GAP - sum(sizes[place] for place in repeated) - _width_of_name(laid, width)
    end = [] if laid.last is None else [laid.last]
    blocks: list[list[int]] = []
    taken = 0
    for place in range(len(sizes) if laid.rows else 0):
        if place in repeated or place == laid.last:
            continue
        if not blocks or taken + sizes[place] > room:
            blocks.append([*repeated])
            taken = 0
        blocks[-1].append(place)
        taken += sizes[place]
    return [[*block, *end] for block in blocks]


def _select_columns(laid: _TextTable, block: Sequence[int]) -> tuple[list[str], list[list[str]]]:
    return [laid.columns[place] for place in block], [[row[place] for place in block] for row in laid.rows]


# -- failures ---------------------------------------------------------------------------------------------------------


def failure_section(
    counterexample: Counterexample,
    certificate: Certificate,
    *,
    replay_path: str,
    item: str,
    steps: Sequence[Record] | None = None,
    folder: str = "",
    width: int | None = None,
) -> str:
    """One counterexample in full: what broke, the schedule, certificate, stability, steps, causes and the replay command.

    `steps`: those that the table shows, by default those around the violation. `folder` as in `words.replay_command`, `width`
    as in `summary`.
    """
    fill = words.filler(width)
    run, verdict = counterexample.run, counterexample.verdict
    steps = region(run.records, verdict) if steps is None else steps
    parts = [
        fill(_headline(run, verdict), hanging="  "),
        fill(_violation_place(verdict, item), indent="  "),
        "",
        *_schedule_lines(counterexample, fill),
        fill(words.certificate_in_words(certificate, counterexample.cost), indent="  "),
        fill(words.stability_in_words(counterexample.stability), indent="  "),
        "",
        *([steps_table(run, steps, title=_region_title(run, steps), width=width)] if steps else []),
        *_slice_lines(run, verdict, fill),
        *_fault_lines(run, verdict, fill),
        *_other_violations(run, verdict, fill, mentioned=_mentioned_violations(run, verdict)),
        *(fill(f"Not controlled: {words.clean(finding.message)}", hanging="  ") for finding in run.uncontrolled),
        *_repair_lines(verdict, fill),
        f"Replay: {words.replay_command(replay_path, folder=folder)}",
    ]
    return "\n".join(parts) + "\n"


def violation_section(run: Run, violations: Sequence[Violation], *, width: int | None = None) -> str:
    """The violations of a run without a search: each contract once, at its first violation, with the steps around it."""
    fill = words.filler(width)
    firsts: dict[str, Violation] = {}
    for violation in violations:
        firsts.setdefault(violation.contract, violation)
    parts = []
    for verdict in firsts.values():
        steps = region(run.records, verdict)
        again = sum(found.contract == verdict.contract for found in violations) - 1
        parts += [
            fill(_headline(run, verdict), hanging="  "),
            fill(
                _violation_place(verdict, run.spec.task)
                + (f"; {words.plural(again, 'more violation')} of this contract" if again else ""),
                indent="  ",
            ),
            "",
            steps_table(run, steps, title=_region_title(run, steps), width=width),
            *_slice_lines(run, verdict, fill),
            *_fault_lines(run, verdict, fill),
            *_repair_lines(verdict, fill),
        ]
    parts += [
        fill(f"Perturbed: {words.perturbation_in_words(item)}", hanging="  ") for item in words.in_order_of_steps(run)
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def _repair_lines(verdict: Violation, fill: _Fill) -> list[str]:
    """The contract's label, what would have satisfied it, and how to repair the violation."""
    lines = (("Label", verdict.label), ("Wanted", verdict.wanted), ("Repair", verdict.repair))
    return [fill(f"{name}: {words.clean(text)}", hanging="  ") for name, text in lines if text]


def _headline(run: Run, verdict: Violation) -> str:
    """The contract, what is wrong, and the line of the agent's code that made the call, if it is known."""
    place = run.place(verdict.step)
    return words.clean(f"{verdict.contract}: {verdict.message}" + (f" ({place})" if place else ""))


def _violation_place(verdict: Violation, item: str) -> str:
    who = f" by {verdict.agent}" if verdict.agent else ""
    role = f" ({verdict.role})" if verdict.role and verdict.role != verdict.agent else ""
    instance = f", instance {verdict.instance}" if verdict.instance else ""
    where = f", in {item}" if item else ""
    return words.clean(f"{verdict.severity} contract, {verdict.stage} at step {verdict.step}{who}{role}{instance}{where}")


def _schedule_lines(counterexample: Counterexample, fill: _Fill) -> list[str]:
    run = counterexample.run
    if not len(run.spec.schedule):
        return ["Schedule: empty. The nominal run breaks the contract."]
    lines = [f"Schedule, cost {counterexample.cost}:"]
    for number, item in enumerate(words.in_order_of_steps(run), 1):
        lines.append(fill(words.perturbation_in_words(item), indent=f"  {number}. ", hanging="     "))
        lines.append(fill(words.clean(words.perturbation_in_data(item, hit_step(run, item))), indent="     "))
    return lines


def _region_title(run: Run, steps: Sequence[Record]) -> str:
    if not steps:
        return "Steps"
    return f"Steps {steps[0].step} to {steps[-1].step} of {len(run.records)}"


def _slice_lines(run: Run, verdict: Violation, fill: _Fill) -> list[str]:
    found = backward_slice(run.records, verdict.step)
    if not found:
        return []
    return [fill(words.built_from(run, verdict.step, found), hanging="  ")]


def _fault_lines(run: Run, verdict: Violation, fill: _Fill) -> list[str]:
    """The faults whose path leads to the violating step; for a fault that was not contained, its whole path.

    Source: A4.3.
    """
    lines = []
    for journey in reaching(run, verdict)[:_PATHS]:
        if speaks_of(verdict, journey.fault):
            journey = journey_of(run, journey.fault)
        path, first = journey.path or journey.hops, journey.violation
        lines.append(f"Fault: {journey.fault.entered}")
        if len(path) > 1 and way(path) not in verdict.message:
            lines.append(f"Steps it passed through (recorded provenance, not necessarily causes): {way(path)}")
        if first is not None and first != verdict:
            lines.append(f"First violation on that path: {first.contract} at step {first.step}: {first.message}")
    return [fill(words.clean(line), hanging="  ") for line in lines]


def _mentioned_violations(run: Run, verdict: Violation) -> list[Violation]:
    """The violations that the paths of faults already mention."""
    journeys = [
        journey_of(run, journey.fault) if speaks_of(verdict, journey.fault) else journey
        for journey in reaching(run, verdict)[:_PATHS]
    ]
    return [journey.violation for journey in journeys if journey.violation is not None]


def _other_violations(run: Run, verdict: Violation, fill: _Fill, *, mentioned: Sequence[Violation]) -> list[str]:
    others = other_violations(run.violations, verdict, mentioned=mentioned)
    lines = [fill(f"Also broken: {words.clean(line)}", hanging="  ") for line in others[:5]]
    if len(others) > 5:
        lines.append(f"and {words.plural(len(others) - 5, 'more contract')}")
    return lines


def difference_text(found: Difference, one: Run, other: Run, *, names: tuple[str, str], width: int | None = None) -> str:
    """The first difference of two runs: what differs, the likely cause, and that step of each run."""
    fill = words.filler(width)
    place = f"step {found.step}" if found.step < max(len(one.records), len(other.records)) else "the end"
    parts = [
        fill(f"first difference at {place}, in: {found.aspect}", hanging="  "),
        fill(f"{words.clean(names[0])}: {words.clean(found.recorded)}", indent="  ", hanging="    "),
        fill(f"{words.clean(names[1])}: {words.clean(found.again)}", indent="  ", hanging="    "),
        fill(f"likely cause: {words.clean(found.cause)}", indent="  ", hanging="    "),
        "",
    ]
    for run, name in zip((one, other), names, strict=True):
        steps = [record for record in run.records if record.step == found.step]
        parts.append(
            steps_table(run, steps, title=words.clean(name), width=width) or f"{words.clean(name)} has no step {found.step}\n"
        )
    return "\n".join(parts)


def steps_table(run: Run, records: Iterable[Record], *, title: str = "Steps", width: int | None = None) -> str:
    """Steps as a table: arguments and replies are shortened, faults and violations are marked at their step.

    If the columns do not fit side by side, one column shows the parts of a step below each other.
    """
    broken: dict[int, list[str]] = {}
    for violation in run.violations:
        broken.setdefault(violation.step, []).append(f"VIOLATES {words.clean(violation.contract)}")
    rows = [_step_row(record, broken.get(record.step, ())) for record in records]
    width = width or words.WIDTH
    if width >= _ROOMY:
        return _table(title, _STEPS, rows, width=width)
    return _table(title, (*_STEPS[:3], "what happened"), [(*row[:3], _step_text(*row[3:])) for row in rows], width=width)


def _step_row(record: Record, broken: Iterable[str]) -> tuple[str, ...]:
    marks = "; ".join([*words.marks(record), *dict.fromkeys(broken)])
    return (
        str(record.step), str(record.at_ms), words.clean(record.agent), words.action_text(record),
        words.asked_text(record, _CELL),
        words.shorten(words.observed_text(record.observation), _CELL), words.effect_text(record), marks,
    )  # fmt: skip


def _step_text(action: str, arguments: str, observed: str, effect: str, marks: str) -> str:
    """The non-empty parts of a step, one per line."""
    remarks = "; ".join(part for part in (effect, marks) if part)
    parts = (f"{action}: {arguments}" if arguments else action, f"-> {observed}" if observed else "", remarks)
    return "\n".join(part for part in parts if part)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, width: int = words.WIDTH) -> str:
    if not rows:
        return ""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False)
    for index, column in enumerate(columns):
        numbers = all(row[index].isdigit() or row[index] in ("", "-") for row in rows)
        table.add_column(Text(column), justify="right" if numbers else "left", overflow="fold", no_wrap=False)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    stream = io.StringIO()
    console = Console(
        file=stream, width=width, color_system=None, force_terminal=False, force_jupyter=False, legacy_windows=False,
        markup=False, emoji=False, highlight=False,
    )  # fmt: skip
    console.print(table)
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    return "\n".join([title, *lines, ""])
