"""Steps through a counterexample in a terminal: what is shown and what each key does, without the terminal itself.

`Viewer.pressed` gives the next `ViewerState` for a key, and `Viewer.screen` the lines to show of it. All text from runs is made
printable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Final, Literal, TypeAlias

from mat.core.record import Record
from mat.core.run import Run
from mat.core.verdict import Violation
from mat.report import words

LineTone: TypeAlias = Literal["", "title", "bad", "fault", "dim", "chosen", "gone", "added"]
RowMark: TypeAlias = Literal["", "-", "+", "~"]
KEYS: Final = (
    ("up, down (k, j)", "the step before, the next step"),
    ("enter, right, left", "expand a step: all arguments, the whole reply"),
    ("e", "expand or fold all steps"),
    ("v", "go to the violating step"),
    ("f", "go to the next step that a fault changed"),
    ("d", "compare with the nominal run, if it is known (pytest --mat-store)"),
    ("/, n, N", "search; next, previous"),
    ("page up, page down, space", "a page"),
    ("g, G (home, end)", "the first, the last step"),
    ("?", "this help"),
    ("q", "quit"),
)
_SHORT: Final = "q quit  up/down step  enter expand  v violation  f fault  d compare  / search  ? help"
_SHORT_COMPARED: Final = "- nominal only  + here only  ~ differs  d back  q quit  ? help"
_CELL: Final = 70
_MARGIN: Final = 6
_LEAST_ROWS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenLine:
    """A line of the screen, which may be longer than it is wide."""

    text: str
    tone: LineTone = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRow:
    """A step of the run or, in a comparison, one of the nominal run. `other`: the step of the nominal run that it replaces.

    `mark`: "-" only in the nominal run, "+" only in this one, "~" in both but different.
    """

    record: Record
    mark: RowMark = ""
    other: Record | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewerState:
    """What the person sees: the chosen row, the first line shown, the expanded rows, and the mode.

    `typing`: what is typed after /, None outside of a search. `said`: a remark in the last line.
    """

    chosen: int = 0
    top: int = 0
    expanded: frozenset[int] = frozenset()
    typing: str | None = None
    query: str = ""
    said: str = ""
    compares: bool = False
    helps: bool = False
    done: bool = False


class Viewer:
    """A counterexample to step through. `nominal` is called when a comparison is asked for; None: it is not known."""

    def __init__(self, run: Run, verdict: Violation, *, nominal: Callable[[], Run | None] = lambda: None) -> None:
        self._run, self._verdict, self._nominal = run, verdict, nominal
        self._rows = tuple(ViewRow(record=record) for record in run.records)
        self._compared: tuple[ViewRow, ...] | None = None
        self._broken: dict[int, list[str]] = {}
        for violation in run.violations:
            self._broken.setdefault(violation.step, []).append(words.clean(violation.contract))

    def begin(self) -> ViewerState:
        """The first view, at the violating step."""
        return ViewerState(chosen=self._row_of(self._rows, self._verdict.step))

    def rows(self, view: ViewerState) -> tuple[ViewRow, ...]:
        return self._compared if view.compares and self._compared is not None else self._rows

    # -- keys ---------------------------------------------------------------------------------------------------------

    def pressed(self, view: ViewerState, key: str, *, height: int) -> ViewerState:
        """The view after a key. `height`: that of the screen."""
        if view.typing is not None:
            return self._typed(view, key)
        if view.helps:
            return replace(view, helps=False, done=key == "q")
        view = replace(view, said="")
        last = max(len(self.rows(view)) - 1, 0)
        page = max(height - _MARGIN, 1)
        here = view.chosen
        moved = {
            "up": here - 1, "k": here - 1, "down": here + 1, "j": here + 1, "pageup": here - page, "pagedown": here + page,
            " ": here + page, "home": 0, "g": 0, "end": last, "G": last,
        }  # fmt: skip
        if key in moved:
            return replace(view, chosen=min(max(moved[key], 0), last))
        action = self._ACTIONS.get(key)
        return view if action is None else action(self, view)

    def _toggle(self, view: ViewerState) -> ViewerState:
        return replace(view, expanded=view.expanded ^ {view.chosen})

    def _expand(self, view: ViewerState) -> ViewerState:
        return replace(view, expanded=view.expanded | {view.chosen})

    def _fold(self, view: ViewerState) -> ViewerState:
        return replace(view, expanded=view.expanded - {view.chosen})

    def _toggle_all(self, view: ViewerState) -> ViewerState:
        return replace(view, expanded=frozenset() if view.expanded else frozenset(range(len(self.rows(view)))))

    def _to_violation(self, view: ViewerState) -> ViewerState:
        return replace(view, chosen=self._row_of(self.rows(view), self._verdict.step))

    def _to_fault(self, view: ViewerState) -> ViewerState:
        return self._next(view, lambda row: any(note.changed for note in row.record.faults), missing="no fault changed a step")

    def _next_match(self, view: ViewerState) -> ViewerState:
        return self._search(view, backward=False)

    def _previous_match(self, view: ViewerState) -> ViewerState:
        return self._search(view, backward=True)

    def _begin_search(self, view: ViewerState) -> ViewerState:
        return replace(view, typing="")

    def _help(self, view: ViewerState) -> ViewerState:
        return replace(view, helps=True)

    def _quit(self, view: ViewerState) -> ViewerState:
        return replace(view, done=True)

    def _compare(self, view: ViewerState) -> ViewerState:
        """Turn the comparison with the nominal run on or off, at the same step."""
        if not view.compares and self._compared is None:
            nominal = self._nominal()
            if nominal is None:
                return replace(view, said="the nominal run is not known: run pytest --mat-store once, in this folder")
            self._compared = tuple(_aligned(nominal.records, self._run.records))
        rows = self.rows(view)
        step = rows[view.chosen].record.step if rows else 0
        turned = replace(view, compares=not view.compares, expanded=frozenset(), top=0)
        return replace(turned, chosen=self._row_of(self.rows(turned), step))

    _ACTIONS: Final[dict[str, Callable[[Viewer, ViewerState], ViewerState]]] = {
        "enter": _toggle, "right": _expand, "left": _fold, "e": _toggle_all, "v": _to_violation, "f": _to_fault,
        "n": _next_match, "N": _previous_match, "/": _begin_search, "?": _help, "d": _compare, "q": _quit,
    }  # fmt: skip

    def _typed(self, view: ViewerState, key: str) -> ViewerState:
        """The view after a key of a search."""
        typed = view.typing or ""
        if key == "escape":
            return replace(view, typing=None)
        if key == "enter":
            return self._search(replace(view, typing=None, query=typed or view.query), backward=False)
        if key == "backspace":
            return replace(view, typing=typed[:-1] if typed else None)
        return replace(view, typing=typed + key) if len(key) == 1 else view

    def _search(self, view: ViewerState, *, backward: bool) -> ViewerState:
        if not view.query:
            return replace(view, said="nothing was searched for; / begins a search")
        wanted = view.query.casefold()

        def holds(row: ViewRow) -> bool:
            return any(wanted in line.casefold() for line in (self._line(row), *self._details(row)))

        return self._next(view, holds, missing=f"not found: {view.query}", backward=backward)

    def _next(
        self, view: ViewerState, holds: Callable[[ViewRow], bool], *, missing: str, backward: bool = False
    ) -> ViewerState:
        """The next row that holds, round the end."""
        rows = self.rows(view)
        step = -1 if backward else 1
        for distance in range(1, len(rows) + 1):
            place = (view.chosen + step * distance) % len(rows)
            if holds(rows[place]):
                return replace(view, chosen=place, said="the only one" if place == view.chosen else "")
        return replace(view, said=words.clean(missing))

    @staticmethod
    def _row_of(rows: Sequence[ViewRow], step: int) -> int:
        """The row of a step of the run, or else the last one before it."""
        own = [place for place, row in enumerate(rows) if row.mark != "-" and row.record.step <= step]
        return own[-1] if own else 0

    # -- what is shown ------------------------------------------------------------------------------------------------

    def fitted(self, view: ViewerState, *, width: int, height: int) -> ViewerState:
        """The view with its first line such that the chosen row is on the screen."""
        spans = self._spans(view, width)
        room = self._room(width, height)
        start, end = spans[view.chosen] if spans else (0, 0)
        top = min(view.top, start)
        if end > top + room:
            top = start if end - start > room else end - room
        return replace(view, top=top)

    def screen(self, view: ViewerState, *, width: int, height: int) -> list[ScreenLine]:
        """The lines of the screen."""
        if view.helps:
            return [ScreenLine(text=f"{keys:28}{meaning}") for keys, meaning in KEYS][:height]
        room = self._room(width, height)
        lines = [*self._body(view, width)][view.top : view.top + room]
        blank = [ScreenLine(text="")] * (room - len(lines))
        return [*self._header(width), *lines, *blank, self._footer(view)]

    def _room(self, width: int, height: int) -> int:
        return max(height - len(self._header(width)) - 1, _LEAST_ROWS)

    def _header(self, width: int) -> list[ScreenLine]:
        verdict, run = self._verdict, self._run
        place = run.place(verdict.step)
        causes = "; ".join(words.perturbation_in_words(item) for item in words.in_order_of_steps(run)) or "no disturbance"
        texts = [
            f"{verdict.contract}: {verdict.message}{f' ({place})' if place else ''}",
            f"cost {run.spec.schedule.cost}: {causes}",
        ]
        folded = [line for text in texts for line in words.wrap(words.clean(text), hanging="  ", width=width).split("\n")]
        return [ScreenLine(text=line, tone="title") for line in folded[:_MARGIN]]

    def _footer(self, view: ViewerState) -> ScreenLine:
        if view.typing is not None:
            return ScreenLine(text=f"/{words.clean(view.typing)}", tone="dim")
        rows = self.rows(view)
        where = f"step {rows[view.chosen].record.step} of {len(self._run.records)}" if rows else "no steps"
        help_text = _SHORT_COMPARED if view.compares else _SHORT
        return ScreenLine(text=f"{where}  {view.said or help_text}", tone="dim")

    def _spans(self, view: ViewerState, width: int) -> list[tuple[int, int]]:
        """For each row, its first line in the body and the one after its last."""
        found, at = [], 0
        for place, row in enumerate(self.rows(view)):
            size = 1 + (len(self._detail_lines(row, width)) if place in view.expanded else 0)
            found.append((at, at + size))
            at += size
        return found

    def _body(self, view: ViewerState, width: int) -> Iterator[ScreenLine]:
        for place, row in enumerate(self.rows(view)):
            chosen = place == view.chosen
            sign = "v" if place in view.expanded else ">" if chosen else " "
            mark = row.mark or " " if view.compares else ""
            yield ScreenLine(text=f"{sign}{mark} {self._line(row)}", tone="chosen" if chosen else self._tone(row))
            if place in view.expanded:
                yield from (ScreenLine(text=line, tone="dim") for line in self._detail_lines(row, width))

    def _tone(self, row: ViewRow) -> LineTone:
        if row.mark == "-":
            return "gone"
        if row.record.step in self._broken:
            return "bad"
        if any(note.changed for note in row.record.faults):
            return "fault"
        return "added" if row.mark else ""

    def _line(self, row: ViewRow) -> str:
        """A step on one line."""
        record = row.record
        broken = dict.fromkeys(self._broken.get(record.step, ())) if row.mark != "-" else ()
        marks = "; ".join([*(f"VIOLATES {name}" for name in broken), *words.marks(record)])
        reply = words.observed_text(record.observation)
        parts = [
            f"{record.step:>4} {record.at_ms:>7} ms  {words.clean(record.agent)}", marks,
            f"{words.action_text(record)}({words.asked_text(record, _CELL)})",
            f"-> {words.shorten(reply, _CELL)}" if reply else "",
        ]  # fmt: skip
        return "  ".join(filter(None, parts))

    def _details(self, row: ViewRow) -> list[str]:
        """All facts of a step that a person looks for."""
        record, other = row.record, row.other
        lines = [f"site: {words.clean(record.site)}"] if record.site else []
        lines += [f"{words.clean(name)} = {words.value_text(value)}" for name, value in record.action.arguments.items()]
        lines += [hashed] if (hashed := words.hashed_text(record)) else []
        if record.executed is not None:
            lines += [f"executed: {words.clean(name)} = {words.value_text(item)}" for name, item in record.executed.items()]
        lines.append(f"reply: {words.observed_text(record.observation) or 'none'}")
        lines += [f"the port's own reply: {words.observed_text(record.raw) or 'none'}"] if record.raw is not None else []
        lines += [effect] if (effect := words.effect_text(record)) else []
        if record.mediation is not None and record.mediation.reason:
            lines.append(f"governance: {record.mediation.decision}: {words.clean(record.mediation.reason)}")
        lines += [f"state: {words.value_text(record.state)}"] if record.state else []
        if row.mark != "-":
            for found in self._run.violations:
                if found.step == record.step:
                    lines.append(f"{words.clean(found.contract)}: {words.clean(found.message)}")
                    lines += [f"repair: {words.clean(found.repair)}"] if found.repair else []
        if other is not None:
            lines.append(f"nominal: ({words.asked_text(other, 10_000)}) -> {words.observed_text(other.observation) or 'none'}")
        return lines

    def _detail_lines(self, row: ViewRow, width: int) -> list[str]:
        room = max(width - _MARGIN, 10)
        return [
            f"{' ' * _MARGIN}{text[at : at + room]}" for text in self._details(row) for at in range(0, max(len(text), 1), room)
        ]


def _aligned(nominal: Sequence[Record], here: Sequence[Record]) -> Iterator[ViewRow]:
    """The steps of both runs in one order: calls of one agent to one port are the same, as far as they come in one order."""
    keys = [[(record.agent, record.action.kind, record.action.name) for record in records] for records in (nominal, here)]
    for kind, one, one_end, two, two_end in SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_opcodes():
        if kind == "equal":
            for old, new in zip(nominal[one:one_end], here[two:two_end], strict=True):
                same = (old.action.arguments, old.observation) == (new.action.arguments, new.observation)
                yield ViewRow(record=new) if same else ViewRow(record=new, mark="~", other=old)
            continue
        yield from (ViewRow(record=record, mark="-") for record in nominal[one:one_end])
        yield from (ViewRow(record=record, mark="+") for record in here[two:two_end])
