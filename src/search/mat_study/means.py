"""What a study is about, and what it is given to execute with. The plugin makes both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from mat.core.operator import OperatorSpec
from mat_search.journal import ConfirmInOrder
from mat_study.evaluation import Evaluator
from mat_study.live import LiveCalls
from mat_study.notices import Notice
from mat_study.settings import ItemSettings
from mat_study.store import ItemRuns

WriteLine: TypeAlias = Callable[[str], None]
"""Shows a line of progress, over the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The item under study. `id` is its own, `task` the one that it has without its replay, `name` a short one.

    `place` of `places`: its position in the session, for the time that is left, which began at `began_s`.
    """

    id: str
    task: str
    name: str
    settings: ItemSettings
    place: int = 0
    places: int = 1
    began_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What to study an item with.

    `evaluate` executes a plan. `operators` gives the chosen ones; MatError where there are none of a name. `confirm` makes,
    for a governance variant, a function that executes schedules in a fresh process. `replays` is the folder for replay files,
    whose paths `typed` gives as a user types them. `prepare` is called in a worker before it executes anything, `searching`
    before the first execution that is not the reported one, `interrupted` where no report will say that there is something to
    go on with. `root` is the folder that holds `.mat`, `began_ns` when the session began as files tell time. `compared`:
    whether an undisturbed run of a seed is shown; None where nothing is.
    """

    evaluate: Evaluator
    operators: Callable[[], tuple[OperatorSpec, ...]]
    live: LiveCalls
    confirm: Callable[[str], ConfirmInOrder]
    replays: Path
    root: Path
    began_ns: int
    fresh: bool = False
    workers: int = 1
    typed: Callable[[Path], str] = str
    prepare: Callable[[], None] = lambda: None
    searching: Callable[[], None] = lambda: None
    interrupted: Callable[[Notice], Any] = lambda notice: None
    store: ItemRuns | None = None
    compared: Callable[[int], bool] | None = None
    line: WriteLine | None = None
