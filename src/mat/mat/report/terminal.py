"""The report for a terminal: plain text without colour codes, as wide as it is told. This module and the plugin print."""

from __future__ import annotations

import io
import shlex
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from mat.core.campaign import Certificate, Counterexample
from mat.core.record import Record
from mat.core.run import Run
from mat.core.spec import Perturbation
from mat.core.verdict import Violation
from mat.evidence.artifact import hit_step
from mat.evidence.replay import Difference
from mat.monitor.localize import backward_slice, region
from mat.monitor.propagation import journey_of, reaching, speaks_of, way
from mat.report import words
from mat.report.document import Document
from mat.report.table import Listing, NoteList, ReportBlock, Table, compact, shown, texts
from mat.report.tables import ALL, tables_of

_STEPS: Final = ("step", "ms", "agent", "action", "arguments", "observation", "effect", "marks")
_ROOMY: Final = 100
"""Columns from which on all parts of a step have room beside each other."""

_CELL: Final = 90
"""Characters of arguments or of a reply shown in a table of steps."""

_PATHS: Final = 3
"""Faults on the way to one violation that are told."""

_TABLE: Final = 120
"""Width of tables of a report where no terminal sets one; paragraphs are narrower."""

_ENDLESS: Final = 10_000
"""Width of tables whose columns were chosen to fit, but for a node id at the end."""

_GAP: Final = 2
"""Blanks between columns."""

_Fill: TypeAlias = Callable[..., str]
"""`words.wrap` of one width."""

_LEAST: Final = 12
"""Characters to which no column is folded."""


def summary(document: Document, *, width: int | None = None) -> str:
    """What a session found: nominal runs, faults, violations, items, counterexamples. Empty parts are left out.

    `width` is that of the terminal, None where the text goes elsewhere.
    """
    tables = [table for table in shown(tables_of(document), "terminal") if table.brief]
    parts = [_before(document), in_text(tables, width=width), _reasons(document, width), _counterexamples(document, width)]
    return _joined(parts)


def whole(document: Document, *, width: int | None = None) -> str:
    """Every table of the report, as an evaluation is told (A6.6), and the counterexamples with how to run them again."""
    tables = shown(tables_of(document), "terminal")
    parts = [
        _before(document),
        in_text(tables, width=width),
        _reasons(document, width),
        _counterexamples(document, width, replays=True),
    ]
    return _joined(parts)


def _before(document: Document) -> str:
    """What to know before the numbers: that some are missing, and whose they are where there are several variants."""
    said = [words.INTERRUPTED] if document.interrupted else []
    said += [words.of_variant(document.variant)] if document.variant else []
    return "".join(f"{line}\n" for line in said)


def _joined(parts: Iterable[str]) -> str:
    return "\n".join(part for part in parts if part)


def _reasons(document: Document, width: int | None) -> str:
    """What is to be said of each item besides its line."""
    shared = _shared_file([line.id for line in document.items])
    lines = [
        words.wrap(
            f"{words.clean(_short(line.id, shared))}: {words.clean(line.reason)}", hanging="  ", width=width or words.WIDTH
        )
        for line in document.items
        if line.reason
    ]
    return "\n".join([*lines, ""]) if lines else ""


def _counterexamples(document: Document, width: int | None, *, replays: bool = False) -> str:
    """Each counterexample in words: what broke where, under which schedule, and what is proven about cheaper ones."""
    shared = _shared_file([line.id for line in document.items])
    files = {line.id: iter(line.replays) for line in document.items}
    parts = []
    for replay in document.counterexamples:
        found, verdict = replay.counterexample, replay.counterexample.verdict
        said = f"{verdict.contract}: {verdict.message} (step {verdict.step}, by {verdict.agent or 'nobody'})"
        causes = [words.perturbation_in_words(item) for item in found.run.spec.schedule] or ["no disturbance is needed"]
        flaky = "FLAKY, " if found.flaky else ""
        lines = [f"{flaky}cost {found.cost}: {'; '.join(causes)}", words.certificate_in_words(replay.certificate, found.cost)]
        lines.append(words.stability_in_words(found.stability))
        file = next(files.get(replay.item, iter(())), "") if replays else ""
        lines += [f"Replay: pytest --mat-replay {shlex.quote(words.clean(file))}"] if file else []
        told = (
            words.wrap(words.clean(line), indent="  ", hanging="    ", width=width or words.WIDTH) for line in [said, *lines]
        )
        parts += [words.clean(_short(replay.item, shared)), *told]
    return "\n".join(["Counterexamples", *parts, ""]) if parts else ""


def _shared_file(ids: Sequence[str]) -> str:
    files = {name.partition("::")[0] for name in ids if "::" in name}
    return files.pop() if len(files) == 1 and all("::" in name or name == ALL for name in ids) else ""


def _short(item: str, shared: str) -> str:
    return item.removeprefix(f"{shared}::")


# -- tables of the report ---------------------------------------------------------------------------------------------


def in_text(tables: Iterable[Table], *, width: int | None = None) -> str:
    """Tables one under another; "" without any. A table that is too wide goes on below, its rows named again.

    Names of tests stand last and whole: one that takes more than half a line goes beyond it rather than be folded.
    """
    return _joined(_in_text(table, width or _TABLE, width or words.WIDTH) for table in shown(tables, "terminal"))


def told(blocks: Iterable[ReportBlock], *, width: int | None = None) -> str:
    """Paragraphs, tables and lists one under another. `width` as in `summary`."""
    return _joined(_block(block, words.filler(width), width) for block in blocks).rstrip("\n") + "\n"


def _block(block: ReportBlock, fill: _Fill, width: int | None) -> str:
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


def _in_text(table: Table, width: int, paragraph: int) -> str:
    laid = _laid(table)
    if _needs(laid) + _room_of_name(laid, width) > width:
        laid = _laid(compact(table), narrow=True)
    title = f"{table.title} of {laid.shared}" if laid.shared and table.name == "items" else table.title
    note = f" ({words.clean(table.note)})" if table.note else ""
    return "\n".join(
        _table(
            words.wrap(f"{title}, continued" if number else f"{title}{note}", hanging="  ", width=paragraph),
            *_chosen(laid, block),
            width=width if laid.last is None else _ENDLESS,
        )
        for number, block in enumerate(_blocks(laid, width))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Laid:
    """A table as text: `keys` are the places of what its rows are about, `last` that of a name that stands last and whole.

    `n` is the place of the count that estimates rest on; it is said beside them wherever they stand, as the keys are. `sizes`
    are the widths of its columns, `shared` the file that all names share, which they do not repeat.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    keys: Sequence[int]
    last: int | None
    n: int | None
    sizes: Sequence[int]
    shared: str


def _laid(table: Table, *, narrow: bool = False) -> _Laid:
    """A narrow table has headings of several lines where they are wider than what stands below them."""
    from rich.cells import cell_len

    columns = [column.heading for column in table.columns]
    rows = [[words.clean(cell) for cell in row] for row in texts(table)]
    keys = [place for place, column in enumerate(table.columns) if column.key and not column.whole]
    last = next((place for place, column in enumerate(table.columns) if column.whole), None)
    n = next((place for place, column in enumerate(table.columns) if column.name == table.n_in), None)
    shared = ""
    if last is not None:
        rows, shared = _named(rows, last)
    elif table.grouped and len(keys) > 1:
        columns, rows = _grouped(columns, rows, keys)
        keys, n = [0], None if n is None else n - 1
    widths = [max(map(cell_len, column), default=0) for column in zip(*rows, strict=True)] or [0] * len(columns)
    if narrow:
        columns = [_folded(column, size) for column, size in zip(columns, widths, strict=True)]
    sizes = [max(size, *map(cell_len, column.split("\n"))) for column, size in zip(columns, widths, strict=True)]
    return _Laid(columns=columns, rows=rows, keys=keys, last=last, n=n, sizes=sizes, shared=shared)


def _folded(heading: str, size: int) -> str:
    return textwrap.fill(heading, max(size, 1), break_long_words=False, break_on_hyphens=False)


def _room_of_name(laid: _Laid, width: int) -> int:
    """What a name at the end takes; nothing where it is so long that it goes beyond the width in any case."""
    size = 0 if laid.last is None else laid.sizes[laid.last] + _GAP
    return size if size <= width // 2 else 0


def _needs(laid: _Laid) -> int:
    """The width that all its columns take, but for a name at the end."""
    sizes = [size for place, size in enumerate(laid.sizes) if place != laid.last]
    return sum(sizes) + _GAP * (len(sizes) - 1)


def _named(rows: list[list[str]], place: int) -> tuple[list[list[str]], str]:
    """Rows whose names do not repeat the file that all share, and that file."""
    shared = _shared_file([row[place] for row in rows])
    return [[*row[:place], _short(row[place], shared), *row[place + 1 :]] for row in rows], shared


def _grouped(columns: list[str], rows: list[list[str]], keys: Sequence[int]) -> tuple[list[str], list[list[str]]]:
    """Rows under a line with the first of their two keys."""
    first, second = keys[:2]
    others = [place for place in range(len(columns)) if place not in (first, second)]
    told: list[list[str]] = []
    said = None
    for row in rows:
        if row[first] != said:
            said = row[first]
            told.append([said, *("" for _ in others)])
        told.append([f"  {row[second]}", *(row[place] for place in others)])
    return [f"{columns[first]}, {columns[second]}", *(columns[place] for place in others)], told


def _blocks(laid: _Laid, width: int) -> list[list[int]]:
    """Which columns stand beside each other: as many as fit beside the keys, at least one, and a name of any length last.

    A text that takes more than its share of the width is folded, and asks for no more.
    """
    most = max(_LEAST, width // (2 * max(len(laid.keys), 1)))
    sizes = [min(size, most) + _GAP for size in laid.sizes]
    said = [*laid.keys, *([] if laid.n is None else [laid.n])]
    room = width + _GAP - sum(sizes[place] for place in said) - _room_of_name(laid, width)
    end = [] if laid.last is None else [laid.last]
    blocks: list[list[int]] = []
    taken = 0
    for place in range(len(sizes) if laid.rows else 0):
        if place in said or place == laid.last:
            continue
        if not blocks or taken + sizes[place] > room:
            blocks.append([*said])
            taken = 0
        blocks[-1].append(place)
        taken += sizes[place]
    return [[*block, *end] for block in blocks]


def _chosen(laid: _Laid, block: Sequence[int]) -> tuple[list[str], list[list[str]]]:
    return [laid.columns[place] for place in block], [[row[place] for place in block] for row in laid.rows]


# -- failures ---------------------------------------------------------------------------------------------------------


def failure_section(
    counterexample: Counterexample, certificate: Certificate, *, replay_path: str, item: str, width: int | None = None
) -> str:
    """One counterexample, as a person can act on it: what broke, under what, how sure, where, why, and how to see it again.

    `width` as in `summary`.
    """
    fill = words.filler(width)
    run, verdict = counterexample.run, counterexample.verdict
    steps = region(run.records, verdict)
    parts = [
        fill(f"{words.clean(verdict.contract)}: {words.clean(verdict.message)}", hanging="  "),
        fill(_where(verdict, item), indent="  "),
        "",
        *_schedule(counterexample, fill),
        fill(words.certificate_in_words(certificate, counterexample.cost), indent="  "),
        fill(words.stability_in_words(counterexample.stability), indent="  "),
        "",
        steps_table(run, steps, title=_region_title(run, steps), width=width),
        *_slice(run, verdict, fill),
        *_paths(run, verdict, fill),
        *_others(run, verdict, fill, told=_told(run, verdict)),
        *(fill(f"Not controlled: {words.clean(finding.message)}", hanging="  ") for finding in run.uncontrolled),
        *_repair(verdict, fill),
        f"Replay: pytest --mat-replay {shlex.quote(words.clean(replay_path))}",
    ]
    return "\n".join(parts) + "\n"


def violation_section(run: Run, violations: Sequence[Violation], *, width: int | None = None) -> str:
    """What a run broke, without a search: each contract once, at its first violation, with the steps around it."""
    fill = words.filler(width)
    firsts: dict[str, Violation] = {}
    for violation in violations:
        firsts.setdefault(violation.contract, violation)
    parts = []
    for verdict in firsts.values():
        steps = region(run.records, verdict)
        again = sum(found.contract == verdict.contract for found in violations) - 1
        parts += [
            fill(f"{words.clean(verdict.contract)}: {words.clean(verdict.message)}", hanging="  "),
            fill(_where(verdict, run.spec.task) + (f"; {again} more of it" if again else ""), indent="  "),
            "",
            steps_table(run, steps, title=_region_title(run, steps), width=width),
            *_slice(run, verdict, fill),
            *_paths(run, verdict, fill),
            *_repair(verdict, fill),
        ]
    parts += [
        fill(f"Perturbed: {words.perturbation_in_words(item)}", hanging="  ") for item in run.spec.schedule
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def _repair(verdict: Violation, fill: _Fill) -> list[str]:
    """What would have satisfied the contract, and what to do about it."""
    lines = (("Label", verdict.label), ("Wanted", verdict.wanted), ("Repair", verdict.repair))
    return [fill(f"{name}: {words.clean(text)}", hanging="  ") for name, text in lines if text]


def _where(verdict: Violation, item: str) -> str:
    who = f" by {verdict.agent}" if verdict.agent else ""
    role = f" ({verdict.role})" if verdict.role and verdict.role != verdict.agent else ""
    instance = f", instance {verdict.instance}" if verdict.instance else ""
    where = f", in {item}" if item else ""
    said = f"{verdict.severity} contract, {verdict.stage} at step {verdict.step}{who}{role}{instance}{where}"
    return words.clean(said)


def _schedule(counterexample: Counterexample, fill: _Fill) -> list[str]:
    run = counterexample.run
    if not len(run.spec.schedule):
        return ["Schedule: empty. The undisturbed run does this."]
    lines = [f"Schedule, cost {counterexample.cost}:"]
    for number, item in enumerate(sorted(run.spec.schedule, key=lambda item: (_hit(run, item), item.key)), 1):
        lines.append(fill(words.perturbation_in_words(item), indent=f"  {number}. ", hanging="     "))
        lines.append(fill(words.clean(words.perturbation_in_data(item, hit_step(run, item))), indent="     "))
    return lines


def _hit(run: Run, item: Perturbation) -> int:
    step = hit_step(run, item)
    return len(run.records) if step is None else step


def _region_title(run: Run, steps: Sequence[Record]) -> str:
    if not steps:
        return "Steps"
    return f"Steps {steps[0].step} to {steps[-1].step} of {len(run.records)}"


def _slice(run: Run, verdict: Violation, fill: _Fill) -> list[str]:
    found = backward_slice(run.records, verdict.step)
    if not found:
        return []
    by_step = {record.step: record for record in run.records}
    named = ", ".join(f"{step} ({words.action_text(by_step[step])})" if step in by_step else str(step) for step in found)
    return [fill(f"Backward slice of step {verdict.step} over recorded provenance: {named}", hanging="  ")]


def _paths(run: Run, verdict: Violation, fill: _Fill) -> list[str]:
    """The faults whose path leads to the violating step, or, of a fault that was not contained, where it went (A4.3)."""
    lines = []
    for journey in reaching(run, verdict)[:_PATHS]:
        if speaks_of(verdict, journey.fault):
            journey = journey_of(run, journey.fault)
        path, first = journey.path or journey.hops, journey.violation
        lines.append(f"Fault: {journey.fault.entered}")
        if len(path) > 1 and way(path) not in verdict.message:
            lines.append(f"Its path over recorded provenance (what it touched, not whether it was necessary): {way(path)}")
        if first is not None and first != verdict:
            lines.append(f"First violation on that path: {first.contract} at step {first.step}: {first.message}")
    return [fill(words.clean(line), hanging="  ") for line in lines]


def _told(run: Run, verdict: Violation) -> list[Violation]:
    """The violations that the paths of faults name."""
    journeys = [
        journey_of(run, journey.fault) if speaks_of(verdict, journey.fault) else journey
        for journey in reaching(run, verdict)[:_PATHS]
    ]
    return [journey.violation for journey in journeys if journey.violation is not None]


def _others(run: Run, verdict: Violation, fill: _Fill, *, told: Sequence[Violation]) -> list[str]:
    others = [found for found in run.violations if found != verdict and found not in told]
    lines = [
        fill(f"Also broken: {words.clean(found.contract)} at step {found.step}: {words.clean(found.message)}", hanging="  ")
        for found in others[:5]
    ]
    if len(others) > 5:
        lines.append(f"and {len(others) - 5} more violations")
    return lines


def difference_text(found: Difference, one: Run, other: Run, *, names: tuple[str, str], width: int | None = None) -> str:
    """Where two runs part: what differs, the likely cause, and that step of each."""
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
        parts.append(steps_table(run, steps, title=words.clean(name), width=width) or f"{words.clean(name)} has no such step\n")
    return "\n".join(parts)


def steps_table(run: Run, records: Iterable[Record], *, title: str = "Steps", width: int | None = None) -> str:
    """Steps as a table: arguments and replies shortened, faults and violations marked at their step.

    Where there is no room for all columns beside each other, what a step did stands in one, part under part.
    """
    broken: dict[int, list[str]] = {}
    for violation in run.violations:
        broken.setdefault(violation.step, []).append(f"VIOLATES {words.clean(violation.contract)}")
    rows = [_step(record, broken.get(record.step, ())) for record in records]
    width = width or words.WIDTH
    if width >= _ROOMY:
        return _table(title, _STEPS, rows, width=width)
    return _table(title, (*_STEPS[:3], "what happened"), [(*row[:3], _under(*row[3:])) for row in rows], width=width)


def _step(record: Record, broken: Iterable[str]) -> tuple[str, ...]:
    marks = "; ".join([*words.marks(record), *dict.fromkeys(broken)])
    return (
        str(record.step), str(record.at_ms), words.clean(record.agent), words.action_text(record),
        words.asked_text(record, _CELL),
        words.shorten(words.observed_text(record.observation), _CELL), words.effect_text(record), marks,
    )  # fmt: skip


def _under(action: str, arguments: str, observed: str, effect: str, marks: str) -> str:
    """The parts of a step that say something, one under another."""
    said = "; ".join(part for part in (effect, marks) if part)
    parts = (f"{action}: {arguments}" if arguments else action, f"-> {observed}" if observed else "", said)
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
