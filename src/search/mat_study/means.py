"""What the plugin gives to a study: its subject, and the functions and stores with which to execute it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from mat.core.operator import OperatorSpec
from mat.core.run import Run
from mat.core.spec import RunSpec, Schedule
from mat.kernel.isolation import OutlivedState
from mat.kernel.reads import Read
from mat_search.declarations import DeclarationSaving
from mat_search.executions import Evaluate
from mat_search.journal import ConfirmInOrder
from mat_study.evaluation import Evaluated, Evaluator, Plan
from mat_study.fresh import FreshAnswer, HashSeed
from mat_study.live import LiveCalls
from mat_study.notices import Notice
from mat_study.reuse import Reuse
from mat_study.settings import ItemSettings
from mat_study.store import ItemRuns

PlanOf: TypeAlias = Callable[[Evaluate, RunSpec], Plan]
"""(the function of a search that a worker calls, and its argument) -> the plan that is the same on another machine."""
Receive: TypeAlias = Callable[[FreshAnswer], Run]
"""Takes in what another machine knows of an execution, and returns its run; Declined or WorkerFailed if it has none."""


Tell: TypeAlias = Callable[[str], None]
"""Is called with what the end of the session shall report of a search."""


class Pool(Protocol):
    """Makes an executor for one search. `forked`: each execution needs a process of its own."""

    def __call__(self, plan: PlanOf, receive: Receive, tell: Tell, *, forked: bool) -> Executor: ...


WriteLine: TypeAlias = Callable[[str], None]
"""Shows a line of progress in place of the previous one."""


@dataclass(frozen=True, slots=True)
class Allotment:
    """The seconds that a session has for the search of one item; `whole_s`: for all of them."""

    seconds: float
    whole_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The item under study. `id` is its node id, `task` the node id without its replay, `name` a short name.

    `armed`: whether it has the marker or `mat_run`, and not only a contract. `place` of `places`: its position in the session,
    which began at `began_s`, to estimate the time left. `replay`: its replay file as a user types it, "" for a test.
    """

    id: str
    task: str
    name: str
    settings: ItemSettings
    armed: bool = True
    place: int = 0
    places: int = 1
    began_s: float = 0.0
    replay: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """The means to study an item.

    - To execute: `evaluate` executes a plan. `forked` makes, given an execution of the item, an evaluator that executes each
      plan in a new process (adversary: a fork). `confirm` makes, for a governance variant and a value of PYTHONHASHSEED, a
      function that executes schedules in a fresh process; `begin_confirming` gets, for a variant, what these functions will be
      asked for, and returns whether they execute it at the same time. `operators` returns the chosen operators; MatError for
      an unknown name. `workers` is the number of processes that search at the same time.
    - Called by the study: `put_back`, before a worker is forked, restores what the last execution changed in this process.
      `look_apart`, at the end of a search, returns what executions have changed that is compared only now and then; `looks` is
      how often that was found unchanged, None if there is nothing like that.
      `pool` makes the executor of a search whose workers are not forks. `prepare`, in a worker, before it executes anything.
      `searching`, before the first execution that is not reported. `interrupted`, if no report will mention that there is
      something to resume.
    - Places and times: `replays` is the folder for replay files; `typed` writes their paths as a user types them. `root` is
      the folder that contains `.mat`, `began_ns` the start of the session on the clock of file times. `allotted` returns the
      seconds that the session has for the search of this item, None without a limit.
    - Kept: `store` keeps runs (--mat-store). `reuse` keeps certificates from one session to the next; None: it keeps none.
      `fresh`: do not resume an interrupted search (--mat-fresh). `read` returns what executions in this process have read.
    - Shown: `line` shows progress in place, `tell` a line that stays. `compared`: whether the HTML report may compare a replay
      with the nominal run of this seed; None without an HTML report. `saving` receives what declared effects would save (for
      `mat doctor`); None: nothing is counted.
    """

    evaluate: Evaluator
    operators: Callable[[], tuple[OperatorSpec, ...]]
    live: LiveCalls
    confirm: Callable[[str, HashSeed], ConfirmInOrder]
    forked: Callable[[Evaluated], Evaluator]
    replays: Path
    root: Path
    began_ns: int
    fresh: bool = False
    workers: int = 1
    pool: Pool | None = None
    typed: Callable[[Path], str] = str
    put_back: Callable[[], None] = lambda: None
    look_apart: Callable[[], tuple[OutlivedState, ...]] = tuple
    looks: Callable[[], int | None] = lambda: None
    prepare: Callable[[], None] = lambda: None
    begin_confirming: Callable[[str, Sequence[tuple[HashSeed, Sequence[Schedule]]]], bool] | None = None
    searching: Callable[[], None] = lambda: None
    interrupted: Callable[[Notice], Any] = lambda notice: None
    store: ItemRuns | None = None
    compared: Callable[[int], bool] | None = None
    line: WriteLine | None = None
    tell: Callable[[str], None] = lambda text: None
    saving: Callable[[tuple[DeclarationSaving, ...]], None] | None = None
    reuse: Reuse | None = None
    read: Callable[[], tuple[Read, ...]] = tuple
    allotted: Callable[[], Allotment | None] = lambda: None
