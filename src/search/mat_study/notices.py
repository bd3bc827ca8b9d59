"""Lines that studies print at the end of the session, and the journals to remove afterward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mat.measure.workload import CATEGORIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What the end of the session reports about the study of one item.

    `what` was done: an item was searched or evaluated; an `untasked` item has no workload and ran as usual, an `unevaluated`
    one gave no first run, the evaluation of a `begun` one was interrupted. `path`: its journal, "" without one. `recalled`:
    executions reused from it. `note`: why the journal was not used, or what was reused. `because`: why an item was searched
    although it was certified before. `cut`: the cost at which the session's time ended its search, -1 if it did not begin.
    For an evaluated item: its `category`, whether no structured fault could act on it, and the boundaries it declares that no
    nominal run crossed.
    """

    item: str
    what: Literal["searched", "evaluated", "untasked", "unevaluated", "begun"] = "searched"
    path: str = ""
    recalled: int = 0
    note: str = ""
    because: str = ""
    cut: int | None = None
    category: str = ""
    unfaulted: bool = False
    unmet: tuple[str, ...] = ()


def lines(notices: Sequence[Notice], *, interrupted: bool, verbose: bool = False) -> list[str]:
    """The lines for the terminal at the end of the session. `verbose`: also why certificates were not reused."""
    found = []
    for each in notices:
        if each.recalled:
            found.append(f"{each.item}: resumed: {_plural(each.recalled, 'execution')} reused from an interrupted search")
        if each.note:
            found.append(f"{each.item}: {each.note}")
        if each.because and verbose:
            found.append(f"{each.item}: searched again: {each.because}")
    found += _cut_lines(notices)
    found += _evaluation_lines(sorted(notices, key=lambda each: each.item))
    if interrupted and any(each.path for each in notices):
        what = "evaluation" if any(each.what in ("evaluated", "begun") for each in notices) else "search"
        found.append(f"interrupted: run the same command again to continue the {what}")
    return found


def _cut_lines(notices: Sequence[Notice]) -> list[str]:
    """What the session's time was not enough for, in the order of the items."""
    cut: dict[int, list[str]] = {}
    for each in notices:
        if each.cut is not None:
            cut.setdefault(each.cut, []).append(each.item)
    parts = [
        f"{'not searched for lack of time' if cost < 0 else f'cut short at cost {cost}'}: {', '.join(items)}"
        for cost, items in sorted(cut.items())
    ]
    return [f"--mat-session-timeout: {'; '.join(parts)}"] if parts else []


def _evaluation_lines(notices: Sequence[Notice]) -> list[str]:
    """What was evaluated and what was not, and how the tasks deviate from a balanced workload. Source: A6.1."""
    counts = Counter(each.what for each in notices)
    tasks, others, failed = counts["evaluated"], counts["untasked"], counts["unevaluated"]
    if not tasks and not others and not failed:
        return []
    found = [f"evaluated {_plural(tasks, 'task')}"]
    if others:
        found[0] += f"; {_plural(others, 'test')} without a workload {'was' if others == 1 else 'were'} run as usual"
    if failed:
        found[0] += f"; {_plural(failed, 'test')} could not be evaluated (skipped, or the first run did not complete)"
    evaluated = [each for each in notices if each.what == "evaluated"]
    categories = Counter(dict.fromkeys(CATEGORIES, 0))
    categories.update(each.category for each in evaluated)
    if tasks and len(set(categories.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in sorted(categories.items()))
        found.append(f"the categories have unequal numbers of tasks, so larger ones weigh more in totals: {listed}")
    spared = [each.item for each in evaluated if each.unfaulted]
    if spared:
        found.append(f"no fault within the budget could act on {_plural(len(spared), 'task')}: {', '.join(spared)}")
    unmet = [each for each in evaluated if each.unmet]
    return [*found, *(f"{each.item}: declares {', '.join(each.unmet)}, not used in any nominal run" for each in unmet)]


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
