"""What the page of a session (`--mat-report FILE.html`) shows besides counterexamples: runs that broke, and undisturbed ones.

They travel with the reports of the items, and only where a page is asked for: a step takes about a kilobyte.
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
    from mat.evidence.artifact import Replay
    from mat.report.page import Traced


def page_is_asked(config: pytest.Config) -> bool:
    return any(Path(name).suffix.lower() == ".html" for name in config.getoption("mat_report") or ())


def compared(item: pytest.Item) -> Callable[[int], bool] | None:
    """Whether a replay of this session is compared with the item's undisturbed run of a seed, should it break again.

    None where no page is asked for.
    """
    if not page_is_asked(item.config):
        return None
    state = session_of(item.config)
    if state.replayed is None:
        files = [file for file in map(file_of, item.session.items) if file is not None]
        state.replayed = frozenset((file.replay.item, file.replay.counterexample.run.spec.seed) for file in files)
    known = state.replayed
    return lambda seed: (item.nodeid, seed) in known


def looked_at(counterexamples: Iterable[Replay], runs: Sequence[Run]) -> tuple[Traced, ...]:
    """The traces of a page besides those of its counterexamples: each run that broke something, then what is compared with.

    `runs` are all that the items sent. One that is a counterexample's own is not shown twice.
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
