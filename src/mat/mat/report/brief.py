"""The end of a session in a few lines: the tests by result, what needs a person, and what was not judged or not proven.

The page of a report shows the same entries from the same values on its first screen (`findings`, `open_groups`). Nothing here
shows a number with an interval, because those take time.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from mat.core.campaign import BROKE, NOT_JUDGED, ItemStatus, Stability, Standing
from mat.core.value import EMPTY
from mat.report import words
from mat.report.document import Document, FindingLine, ItemLine

WIDTH: Final = 100
"""The widest line, in columns."""
SHOWN: Final = 3
"""The most entries of one kind that are not about broken contracts."""
_GAP: Final = " " * 8
"""What separates the repair from the command."""

Tone: TypeAlias = Literal["", "good", "open", "bad"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BriefLine:
    """A line of the summary: `label`, which a terminal shows in the colour of `tone`, and the rest."""

    text: str
    label: str = ""
    tone: Tone = ""

    def __str__(self) -> str:
        return f"{self.label}{self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenEntry:
    """What one or several tests leave open: `text` says what and why, `fix` what would help, "" if the text says it.

    `label` names the status, such as "NOT PROVEN"; "" for a remark on tests that have another. `tests`: their node ids; () if
    the text counts them.
    """

    label: str
    tone: Tone
    tests: tuple[str, ...]
    text: str
    fix: str = ""

    @property
    def unsettled(self) -> bool:
        """Whether something was not judged or not proven; the others say what a result rests on."""
        return bool(self.label) or self.text.endswith(NOT_JUDGED)


# -- the first line ---------------------------------------------------------------------------------------------------


def answer_lines(document: Document, *, width: int = WIDTH) -> list[BriefLine]:
    """The beginning of a report, as the end of its session in a terminal: counts, what broke, and what is open."""
    if not document.items:
        return []
    name = namer(line.id for line in document.items)
    counts = headline(document.items, stress=any(line.bound is not None for line in document.items))
    return [
        *_wrapped(str(counts), width=width),
        *broken_lines(document.findings, name, width=width),
        *held_lines(document.findings, name, width=width),
        *open_lines(document.items, name, width=width, rest="listed below"),
    ]


def headline(items: Sequence[ItemLine], *, seconds: float | None = None, stress: bool = False) -> BriefLine:
    """The first line of a session's summary: how many tests ended how, after how many executions, in what time.

    `seconds`: None if a report does not know them. `stress`: count what a search says of tests in any case.
    """
    executions = sum(each.executions for each in items)
    always: Collection[str] = _COUNTED_UNDER_STRESS if stress else _COUNTED_IN_NOMINAL_RUNS
    if any(each.status == "evaluated" for each in items):  # "0 broken" would be misread next to tasks that broke contracts
        always = ()
    return BriefLine(
        label=f"mat: {counts_text([each.status for each in items], always=always, remarks=_remarks(items))}",
        text=f"  ({executions:,} execution{'s' * (executions != 1)}{'' if seconds is None else f', {seconds:.0f} s'})",
        tone=tone_of(items),
    )


def result_text(status: str) -> str:
    """The result that a status stands for, in a table: "broken" for a counterexample."""
    return "broken" if status in _COUNTED["broken"] else status.replace("_", " ")


def tone_of(items: Iterable[ItemLine]) -> Tone:
    """The worst colour of these items. An evaluation fails nothing, but is not good where its runs broke hard contracts."""
    tones = {"open" if _broke(item) else _TONES.get(item.status, "good") for item in items}
    return "bad" if "bad" in tones else "open" if "open" in tones else "good"


def counts_text(statuses: Iterable[ItemStatus], *, always: Collection[str] = (), remarks: Mapping[str, str] = EMPTY) -> str:
    """How many items have which result: `2 broken, 1 accepted`. `always`: what is counted even if there is none.

    `remarks`: what is said of a result, such as how many items have it from an earlier session.
    """
    return ", ".join(each.text for each in _counts(statuses, always, remarks))


def worst_first(items: Sequence[ItemLine]) -> list[BriefLine]:
    """How many items have which result, each with its colour: bad results, then open ones, then good ones."""
    order: tuple[Tone, ...] = ("bad", "open", "good")
    return sorted(_counts([each.status for each in items], (), _remarks(items)), key=lambda each: order.index(each.tone))


def _counts(statuses: Iterable[ItemStatus], always: Collection[str], remarks: Mapping[str, str]) -> Iterator[BriefLine]:
    counted: Counter[str] = Counter(statuses)
    for name, those in _COUNTED.items():
        count = sum(counted[status] for status in those)
        if count or name in always:
            remark = remarks.get(name, "")
            text = f"{count:,} {_one(name) if count == 1 else name}{remark and f' ({remark})'}"
            yield BriefLine(text=text, tone="open" if remark.endswith(_BROKEN) else _TONES.get(those[0], "good"))


def _remarks(items: Sequence[ItemLine]) -> dict[str, str]:
    reused, broke = sum(bool(each.reused) for each in items), sum(map(_broke, items))
    found = {"certified": f"{reused:,} reused"} if reused else {}
    return found | ({"evaluated": f"{broke:,} {_BROKEN}"} if broke else {})


_BROKEN: Final = "with broken contracts"
"""The end of a remark on a result that has another colour because of it."""


def _broke(item: ItemLine) -> bool:
    return any(note.endswith(BROKE) for note in item.notes)


_COUNTED: Final[Mapping[str, tuple[str, ...]]] = {
    "nominal runs pass": ("nominal",),
    "certified": ("certified",),
    "broken": ("counterexample", "violated"),
    "expected": ("expected",),
    "accepted": ("accepted",),
    "known": ("known",),
    "missed": ("missed",),
    "flaky": ("flaky",),
    "replays pass": ("replayed",),
    "stale": ("stale",),
    "vacuous": ("vacuous",),
    "not proven": ("not_proven",),
    "not judged": ("not_judged",),
    "evaluated": ("evaluated",),
    "failed": ("failed",),
}
"""What the first line of a summary counts, by the statuses of items."""
_COUNTED_UNDER_STRESS: Final = ("certified", "broken", "expected", "vacuous", "not proven")
_COUNTED_IN_NOMINAL_RUNS: Final = ("broken", "vacuous")
_TONES: Final[Mapping[str, Tone]] = {
    "counterexample": "bad", "violated": "bad", "missed": "bad", "flaky": "bad", "stale": "bad", "failed": "bad",
    "vacuous": "open", "not_proven": "open", "not_judged": "open",
}  # fmt: skip
"""The colour of a status. The others are good."""


def _one(name: str) -> str:
    return name.replace("runs pass", "run passes").replace("replays pass", "replay passes")


# -- what needs a person ----------------------------------------------------------------------------------------------


def broken_lines(findings: Iterable[FindingLine], name: Callable[[str], str], *, width: int = WIDTH) -> list[BriefLine]:
    """An entry for each run that fails a test: contracts, cause, the line of the agent's call, repair, and the command that
    opens it. `name`: of an item, from `namer`."""
    lines: list[BriefLine] = []
    for found in findings:
        if found.standing == "new":
            text = f" {name(found.item)}  {cost_text(found)}  {contracts_text(found)}{replay_text(found)}"
            lines += _wrapped(text, label="BROKEN", tone="bad", width=width)
            lines += [BriefLine(text=line) for line in entry_lines(found, width=width)]
    return lines


def entry_lines(found: FindingLine, *, width: int = WIDTH, follows_message: bool = False) -> list[str]:
    """What broke where and under which schedule; what would repair it; and the command that opens it.

    `follows_message`: a message before it says already what broke.
    """
    place = f" ({found.place})" if found.place else ""
    cause = f"{found.message}{place} {under_text(found)}"
    if follows_message:
        cause = f"at {found.place}, {under_text(found)}" if found.place else under_text(found)
    texts = [words.clean(cause), *remarks(found)]
    lines = [line for text in texts for line in words.wrap(text, indent="  ", hanging="    ", width=width).split("\n")]
    return [*lines, *_repair_lines(found, width=width)]


def _repair_lines(found: FindingLine, *, width: int) -> list[str]:
    """The repair and the command that opens the run, side by side if they fit."""
    command = open_command(found)
    if not found.repair:
        return [f"  {command}"]
    repair = words.wrap(f"repair: {words.clean(found.repair)}", indent="  ", hanging="    ", width=width)
    one_line = f"{repair}{_GAP}{command}"
    return [one_line] if "\n" not in repair and len(one_line) <= width else [*repair.split("\n"), f"  {command}"]


def held_lines(findings: Iterable[FindingLine], name: Callable[[str], str], *, width: int = WIDTH) -> list[BriefLine]:
    """A line for each run that breaks contracts without failing its test: accepted until when and why, or in the baseline."""
    lines: list[BriefLine] = []
    for found in findings:
        if label := _HELD.get(found.standing):
            text = f" {name(found.item)}  {cost_text(found)}  {contracts_text(found)}: {words.clean(found.message)}"
            lines += _wrapped(f"{text}  {held_text(found)}", label=label, tone="open", width=width)
    return lines


_HELD: Final[Mapping[Standing, str]] = {"accepted": "ACCEPTED", "known": "KNOWN"}


def held_text(found: FindingLine) -> str:
    """Until when a finding is accepted, and why it fails nothing."""
    return words.clean(f"until {found.until}: {found.remark}" if found.until else found.remark)


def contracts_text(found: FindingLine) -> str:
    return ", ".join(map(words.clean, found.contracts))


def replay_text(found: FindingLine) -> str:
    """That a replay of the same run fails as well; "" if none does."""
    return "; its replay fails, too" if found.replayed else ""


def cost_text(found: FindingLine) -> str:
    return f"cost {found.cost}" if found.causes else "nominal run"


def under_text(found: FindingLine) -> str:
    """The schedule of a run as the end of a sentence."""
    return f"when {'; '.join(found.causes)}" if found.causes else "in the nominal run"


def remarks(found: FindingLine) -> list[str]:
    """That the failure is not stable, and why an acceptance does not hold for it."""
    stability = Stability(runs=found.executions, reproduced=found.reproduced)
    return [*([words.stability_in_words(stability)] * found.flaky), *([words.clean(found.remark)] if found.remark else [])]


def open_command(found: FindingLine) -> str:
    """The command that shows all steps of a run: of its replay file or, without one, of the test, run again."""
    return words.show_command(found.replay) if found.replay else f"pytest -v {shlex.quote(words.clean(found.item))}"


def failure_lines(found: FindingLine) -> list[str]:
    """What the test's own failure section says where the summary says the rest: what broke, where, and how to open it."""
    place = f" ({found.place})" if found.place else ""
    flaky = "FLAKY: " if found.flaky else ""
    broken = words.clean(f"{flaky}{', '.join(found.contracts)} broken, {cost_text(found)}{place}")
    remark = [f"  {words.clean(found.remark)}"] if found.remark else []
    return [broken, *remark, f"  {open_command(found)}"]


# -- what is open -----------------------------------------------------------------------------------------------------


def open_lines(
    items: Sequence[ItemLine],
    name: Callable[[str], str],
    *,
    explained: Collection[str] = (),
    width: int = WIDTH,
    rest: str = "-v lists them",
) -> list[BriefLine]:
    """What is neither a broken contract nor all well: with the reason and what would help, each kind at most a few times.

    `explained`: items whose own failure section is shown and says why. `rest`: where the others are.
    """
    lines: list[BriefLine] = []
    for status, label in _OPEN.items():
        seen = [item.id for item in items if item.status == status and item.id in explained]
        if seen:
            text = f" {tests_text(seen, name)}: see its failure section above"
            lines += _wrapped(text, label=label, tone=_TONES[status], width=width)
        lines += _group_lines(_open_entries(status, [item for item in items if item.id not in explained]), name, width, rest)
    for group in _remark_groups(items):
        lines += _group_lines(group, name, width, rest)
    return lines


def open_groups(items: Sequence[ItemLine]) -> Iterator[list[OpenEntry]]:
    """Yield what is open, a list for each kind: by status, then remarks on tests that pass or are broken."""
    for status in _OPEN:
        yield _open_entries(status, items)
    yield from _remark_groups(items)


def _open_entries(status: ItemStatus, items: Iterable[ItemLine]) -> list[OpenEntry]:
    groups = _grouped((item.id, item.reason) for item in items if item.status == status)
    return [
        OpenEntry(label=_OPEN[status], tone=_TONES[status], tests=tests, text=text, fix=_HELP.get(status, ""))
        for text, tests in groups
    ]  # fmt: skip


def _remark_groups(items: Sequence[ItemLine]) -> Iterator[list[OpenEntry]]:
    for texts in (_reasons, _estimates, _notes, words.uncaught_failures, _given):
        groups = _grouped((item.id, text) for item in items for text in texts(item))
        yield [OpenEntry(label="", tone="", tests=tests, text=text) for text, tests in groups]
    yield _unjudged_bodies(items)


def _group_lines(entries: Sequence[OpenEntry], name: Callable[[str], str], width: int, rest: str) -> list[BriefLine]:
    lines: list[BriefLine] = []
    for entry in entries[:SHOWN]:
        text = "; ".join(filter(None, (words.clean(entry.text), entry.fix)))
        space = " " if entry.label and entry.tests else ""
        tests = f"{tests_text(entry.tests, name)}: " if entry.tests else ": "
        lines += _wrapped(f"{space}{tests}{text}", label=entry.label, tone=entry.tone, width=width)
    return lines + _more(entries[SHOWN:], rest)


_OPEN: Final[Mapping[ItemStatus, str]] = {
    "flaky": "FLAKY",
    "missed": "MISSED",
    "stale": "STALE",
    "vacuous": "VACUOUS",
    "not_judged": "NOT JUDGED",
    "not_proven": "NOT PROVEN",
}
_HELP: Final[Mapping[str, str]] = {
    "flaky": 'a violation did not show again; isolate="fork" executes each run in a new process',
    "missed": "remove the contract from expect= if the system was fixed, or raise budget=",
    "stale": "delete the file, or search again with --mat-stress",
    "vacuous": "mat doctor TEST says what is not instrumented; vacuous= allows a contract by name",
    "not_judged": "make the contract judge every run",
}
"""What would help, where the reason does not say so itself."""
_REMARKED: Final = ("nominal", "certified", "expected", "accepted", "known", "replayed", "counterexample")
"""The statuses of items whose reason is a remark, such as that no proof was reached."""


def _reasons(item: ItemLine) -> list[str]:
    return [item.reason] if item.reason and item.status in _REMARKED else []


def _estimates(item: ItemLine) -> list[str]:
    return [words.estimated_share(item.estimate)] if item.estimate is not None else []


def _notes(item: ItemLine) -> list[str]:
    return [note for note in item.notes if not note.endswith(NOT_JUDGED)]


def _given(item: ItemLine) -> list[str]:
    return [text] if (text := words.certified_relative_to(item)) else []


def _unjudged_bodies(items: Iterable[ItemLine]) -> list[OpenEntry]:
    found = [(item.id, note) for item in items for note in item.notes if note.endswith(NOT_JUDGED)]
    if len(found) == 1:
        ((test, note),) = found
        return [OpenEntry(label="", tone="", tests=(test,), text=note)]
    text = (
        f"in {len(found)} tests, disturbed runs failed the test's own asserts or ended in an exception; "
        "objective='task' judges them, -v counts them"
    )
    return [OpenEntry(label="not judged", tone="", tests=(), text=text)] if found else []


def _wrapped(text: str, *, width: int, label: str = "", tone: Tone = "") -> list[BriefLine]:
    """A paragraph that begins with a label."""
    first, *rest = words.wrap(f"{label}{text}", hanging="  ", width=width).split("\n")
    return [BriefLine(text=first.removeprefix(label), label=label, tone=tone), *(BriefLine(text=line) for line in rest)]


def _more(entries: Sequence[OpenEntry], rest: str) -> list[BriefLine]:
    """How many items or, without a label, remarks are not shown."""
    if not entries:
        return []
    label = entries[0].label.lower()
    tests = {test for entry in entries for test in entry.tests}
    left = words.plural(len(tests), f"more {label} test") if label else words.plural(len(entries), "more remark")
    return [BriefLine(text=f"  and {left} ({rest})")]


def _grouped(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, tuple[str, ...]]]:
    """The items of each text, in the order of first appearance."""
    groups: dict[str, list[str]] = {}
    for item, text in pairs:
        groups.setdefault(text, []).append(item)
    return [(text, tuple(items)) for text, items in groups.items()]


def tests_text(tests: Sequence[str], name: Callable[[str], str]) -> str:
    """The first of some tests, and how many more there are."""
    more = f" and {len(tests) - 1} more" if len(tests) > 1 else ""
    return f"{name(tests[0])}{more}"


def namer(items: Iterable[str]) -> Callable[[str], str]:
    """A function that names an item: by the last part of its node id, if no other of these items has the same."""
    counts = Counter(map(_short_name, items))

    def name(item: str) -> str:
        short = _short_name(item)
        return words.clean(short if counts[short] == 1 else item)

    return name


def _short_name(item: str) -> str:
    function, bracket, parameters = item.partition("[")
    return f"{function.rpartition('::')[2]}{bracket}{parameters}"
