"""The traces of a session's page (`--mat-report FILE.html`) other than counterexamples: violating and nominal runs.

The reports of the items carry them, and only if a page is requested: a step takes about a kilobyte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mat.core.run import Run
from pytest_mat.replays import file_of
from pytest_mat.session import session_of

if TYPE_CHECKING:
    from mat.evidence.replay_file import Replay
    from mat.report.page import Traced


def page_is_requested(config: pytest.Config) -> bool:
    """Whether the session writes an HTML report."""
    return any(Path(name).suffix.lower() == ".html" for name in config.getoption("mat_report") or ())


def compared(item: pytest.Item) -> Callable[[int], bool] | None:
    """A function of a seed: whether this session runs a replay of the item on that seed.

    If such a replay breaks again, the page compares it with the item's nominal run. None if no page is requested.
    """
    if not page_is_requested(item.config):
        return None
    state = session_of(item.config)
    if state.replayed is None:
        files = [file for file in map(file_of, item.session.items) if file is not None]
        state.replayed = frozenset((file.replay.item, file.replay.counterexample.run.spec.seed) for file in files)
    known = state.replayed
    return lambda seed: (item.nodeid, seed) in known


def page_traces(counterexamples: Iterable[Replay], runs: Sequence[Run]) -> tuple[Traced, ...]:
    """The traces of a page other than its counterexamples: each violating run, then the nominal runs to compare with.

    `runs` are all that the items sent. A counterexample's own run is not shown twice.
    """
    from mat.report.page import Traced, undisturbed

    found = [replay.counterexample.run for replay in counterexamples]
    shown = {run.id for run in found}
    broken: dict[str, Run] = {run.id: run for run in runs if run.failures and run.id not in shown}
    return (
        *(Traced.of(run, name=_name(run)) for run in broken.values()),
        *undisturbed([*found, *broken.values()], runs),
    )


def _name(run: Run) -> str:
    broken: Any = run.failures[0]
    return f"{broken.contract} is broken, seed {run.spec.seed}: {run.spec.task}"
