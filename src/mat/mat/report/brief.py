"""The end of a session in a few lines: the tests by result, what needs a person, and what was not judged or not proven.

It reads results, not the report made from them: numbers with intervals take time, and nothing here shows one.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from mat.core.campaign import NOT_JUDGED, BrokenRun, ItemResult, ItemStatus, Standing
from mat.core.run import UNCAUGHT
from mat.core.value import EMPTY
from mat.report import words

WIDTH: Final = 100
"""The widest line, in columns."""
_SHOWN: Final = 3
"""The most lines of one kind that are not about broken contracts."""
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
class BriefItem:
    """The result of an item, and its runs that break contracts. `explained`: its own failure section is shown and says why."""

    result: ItemResult
    broken: tuple[BrokenRun, ...] = ()
    explained: bool = False

    @property
    def failing(self) -> tuple[BrokenRun, ...]:
        """The runs that fail it."""
        return tuple(run for run in self.broken if run.standing.kind == "new")


# -- the first line ---------------------------------------------------------------------------------------------------


def headline(results: Sequence[ItemResult], *, seconds: float, stress: bool = False) -> BriefLine:
    """The first line of a session's summary: how many tests ended how, after how many executions, in what time.

    `stress`: count what a search says of tests in any case.
    """
    statuses: list[ItemStatus] = [each.status for each in results]
    reused = {"certified": sum(bool(each.reused) for each in results)}
    always = _COUNTED_UNDER_STRESS if stress else _COUNTED_IN_NOMINAL_RUNS
    executions = sum(each.executions for each in results)
    tones = {_TONES.get(status, "good") for status in statuses}
    return BriefLine(
        label=f"mat: {counts_text(statuses, always=always, reused=reused)}",
        text=f"  ({executions:,} execution{'s' * (executions != 1)}, {seconds:.0f} s)",
        tone="bad" if "bad" in tones else "open" if "open" in tones else "good",
    )


def counts_text(statuses: Iterable[ItemStatus], *, always: Collection[str] = (), reused: Mapping[str, int] = EMPTY) -> str:
    """How many items have which result: `2 broken, 1 accepted`. `always`: what is counted even if there is none.

    `reused`: how many of a result stand from an earlier session.
    """
    counted: Counter[str] = Counter(statuses)
    parts = []
    for name, those in _COUNTED.items():
        count = sum(counted[status] for status in those)
        if count or name in always:
            again = f" ({reused[name]:,} reused)" if reused.get(name) else ""
            parts.append(f"{count:,} {_one(name) if count == 1 else name}{again}")
    return ", ".join(parts)


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


def broken_lines(items: Sequence[BriefItem], *, width: int = WIDTH) -> list[BriefLine]:
    """An entry for each run that fails a test: contracts, cause, the line of the agent's call, repair, and the command that
    opens it.

    A replay that fails is named by the entry of the counterexample that its test's search found again.
    """
    name = _namer(items)
    found = {file for item in items for run in item.failing if not _is_replay(item) for file in run.replays}
    again = {file for item in items for run in item.failing if _is_replay(item) for file in run.replays} & found
    lines: list[BriefLine] = []
    for item in items:
        for run in item.failing:
            if _is_replay(item) and not again.isdisjoint(run.replays):
                continue
            replayed = "; its replay fails, too" if not again.isdisjoint(run.replays) else ""
            text = f" {name(item)}  {cost_text(run)}  {', '.join(map(words.clean, run.contracts))}{replayed}"
            lines += _wrapped(text, label="BROKEN", tone="bad", width=width)
            lines += [BriefLine(text=line) for line in entry_lines(run, item.result.id, width=width)]
    return lines


def entry_lines(run: BrokenRun, item: str, *, width: int = WIDTH, follows_message: bool = False) -> list[str]:
    """What broke where and under which schedule; what would repair it; and the command that opens it.

    `follows_message`: a message before it says already what broke.
    """
    place = f" ({run.place})" if run.place else ""
    cause = f"{run.verdict.message}{place} {_under(run)}"
    if follows_message:
        cause = f"at {run.place}, {_under(run)}" if run.place else _under(run)
    texts = [
        words.clean(cause),
        *([words.stability_in_words(run.stability)] if run.flaky else []),
        *([words.clean(run.standing.remark)] if run.standing.remark else []),
    ]
    lines = [line for text in texts for line in words.wrap(text, indent="  ", hanging="    ", width=width).split("\n")]
    return [*lines, *repair_lines(run, item, width=width)]


def repair_lines(run: BrokenRun, item: str, *, width: int = WIDTH) -> list[str]:
    """The repair and the command that opens the run, side by side if they fit."""
    command = open_command(run, item)
    if not run.verdict.repair:
        return [f"  {command}"]
    repair = words.wrap(f"repair: {words.clean(run.verdict.repair)}", indent="  ", hanging="    ", width=width)
    one_line = f"{repair}{_GAP}{command}"
    return [one_line] if "\n" not in repair and len(one_line) <= width else [*repair.split("\n"), f"  {command}"]


def held_lines(items: Sequence[BriefItem], *, width: int = WIDTH) -> list[BriefLine]:
    """A line for each run that breaks contracts without failing its test: accepted until when and why, or in the baseline.

    A replay is not named besides the counterexample that its test's search found again.
    """
    name = _namer(items)
    found = {file for item in items for run in item.broken if item.result.standings for file in run.replays}
    lines: list[BriefLine] = []
    for item in items:
        for run in item.broken:
            label = _HELD.get(run.standing.kind)
            if label is None or (not item.result.standings and not found.isdisjoint(run.replays)):
                continue
            broken = f"{', '.join(map(words.clean, run.contracts))}: {words.clean(run.verdict.message)}"
            text = f" {name(item)}  {cost_text(run)}  {broken}{_held_text(run)}"
            lines += _wrapped(text, label=label, tone="open", width=width)
    return lines


_HELD: Final[Mapping[Standing, str]] = {"accepted": "ACCEPTED", "known": "KNOWN"}


def _held_text(run: BrokenRun) -> str:
    standing = run.standing
    return words.clean(f"  until {standing.until}: {standing.remark}" if standing.until else f"  {standing.remark}")


def cost_text(run: BrokenRun) -> str:
    return f"cost {run.schedule.cost}" if len(run.schedule) else "nominal run"


def _under(run: BrokenRun) -> str:
    """The schedule of a run as the end of a sentence."""
    causes = "; ".join(words.perturbation_in_words(each) for each in run.schedule)
    return f"when {causes}" if causes else "in the nominal run"


def open_command(run: BrokenRun, item: str) -> str:
    """The command that shows all steps of a run: of its replay file or, without one, of the test, run again."""
    return words.show_command(run.replays[0]) if run.replays else f"pytest -v {shlex.quote(words.clean(item))}"


def failure_lines(run: BrokenRun, item: str) -> list[str]:
    """What the test's own failure section says where the summary says the rest: what broke, where, and how to open it."""
    place = f" ({run.place})" if run.place else ""
    flaky = "FLAKY: " if run.flaky else ""
    broken = words.clean(f"{flaky}{', '.join(run.contracts)} broken, {cost_text(run)}{place}")
    remark = [f"  {words.clean(run.standing.remark)}"] if run.standing.remark else []
    return [broken, *remark, f"  {open_command(run, item)}"]


# -- what is open -----------------------------------------------------------------------------------------------------


def open_lines(items: Sequence[BriefItem], *, width: int = WIDTH) -> list[BriefLine]:
    """What is neither a broken contract nor all well: with the reason and what would help, each kind at most a few times."""
    lines: list[BriefLine] = []
    name = _namer(items)
    for status, label in _OPEN.items():
        own = [item for item in items if item.result.status == status]
        explained = [item for item in own if item.explained]
        if explained:
            text = f" {_first_and_count(explained, name)}: see its failure section above"
            lines += _wrapped(text, label=label, tone=_TONES[status], width=width)
        groups = _grouped((item, item.result.reason) for item in own if not item.explained)
        for reason, group in groups[:_SHOWN]:
            said = "; ".join(filter(None, (words.clean(reason), _HELP.get(status))))
            lines += _wrapped(f" {_first_and_count(group, name)}: {said}", label=label, tone=_TONES[status], width=width)
        lines += _more(groups[_SHOWN:], f" {label.lower()}")
    for texts, most in ((_reasons, _SHOWN), (_estimates, _SHOWN), (_notes, _SHOWN), (_uncaught, _SHOWN), (_given, 1)):
        groups = _grouped((item, text) for item in items for text in texts(item.result))
        for said, group in groups[:most]:
            lines += _wrapped(f"{_first_and_count(group, name)}: {words.clean(said)}", width=width)
        lines += _more(groups[most:])
    return [*lines, *_unjudged_bodies(items, name, width)]


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


def _reasons(result: ItemResult) -> list[str]:
    return [result.reason] if result.reason and result.status in _REMARKED else []


def _estimates(result: ItemResult) -> list[str]:
    certificate = result.certificate
    return [words.estimate_in_words(certificate)] if certificate is not None and certificate.estimate else []


def _notes(result: ItemResult) -> list[str]:
    return [note for note in result.notes if not note.endswith(NOT_JUDGED)]


def _uncaught(result: ItemResult) -> list[str]:
    return [found.message for found in result.findings if found.code == UNCAUGHT]


def _given(result: ItemResult) -> list[str]:
    certificate = result.certificate
    if result.status != "certified" or certificate is None:
        return []
    return [text] if (text := words.certified_in_words(certificate.given, result.reused)) else []


def _unjudged_bodies(items: Iterable[BriefItem], name: Callable[[BriefItem], str], width: int) -> list[BriefLine]:
    found = [(item, note) for item in items for note in item.result.notes if note.endswith(NOT_JUDGED)]
    if len(found) == 1:
        ((item, note),) = found
        return _wrapped(f"{name(item)}: {words.clean(note)}", width=width)
    text = (
        f"not judged: in {len(found)} tests, disturbed runs failed the test's own asserts or ended in an exception; "
        "objective='task' judges them, -v counts them"
    )
    return _wrapped(text, width=width) if found else []


def _wrapped(text: str, *, width: int, label: str = "", tone: Tone = "") -> list[BriefLine]:
    """A paragraph that begins with a label."""
    first, *rest = words.wrap(f"{label}{text}", hanging="  ", width=width).split("\n")
    return [BriefLine(text=first.removeprefix(label), label=label, tone=tone), *(BriefLine(text=line) for line in rest)]


def _more(groups: Sequence[tuple[str, Sequence[BriefItem]]], what: str = "") -> list[BriefLine]:
    """How many items are in these groups, which are not shown."""
    count = len({item.result.id for _, group in groups for item in group})
    return [BriefLine(text=f"  and {words.plural(count, f'more{what} test')} (-v lists them)")] if count else []


def _grouped(pairs: Iterable[tuple[BriefItem, str]]) -> list[tuple[str, list[BriefItem]]]:
    """The items of each text, in the order of first appearance."""
    groups: dict[str, list[BriefItem]] = {}
    for item, text in pairs:
        groups.setdefault(text, []).append(item)
    return list(groups.items())


def _first_and_count(items: Sequence[BriefItem], name: Callable[[BriefItem], str]) -> str:
    more = f" and {len(items) - 1} more" if len(items) > 1 else ""
    return f"{name(items[0])}{more}"


def _namer(items: Collection[BriefItem]) -> Callable[[BriefItem], str]:
    """A function that names an item: by the last part of its node id, if no other item has the same."""
    counts = Counter(_short_name(item.result.id) for item in items)

    def name(item: BriefItem) -> str:
        short = _short_name(item.result.id)
        return words.clean(short if counts[short] == 1 else item.result.id)

    return name


def _short_name(item: str) -> str:
    function, bracket, parameters = item.partition("[")
    return f"{function.rpartition('::')[2]}{bracket}{parameters}"


def _is_replay(item: BriefItem) -> bool:
    return item.result.status == "violated" and any(run.replays for run in item.failing)
