"""What the page of a session (`--mat-report FILE.html`) shows besides counterexamples: runs that broke, and undisturbed ones.

They travel with the reports of the items, and only where a page is asked for: a step takes about a kilobyte.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from mat.core.run import Run

if TYPE_CHECKING:
    from mat.evidence.artifact import Replay
    from mat.report.page import Traced

_REPLAYED: Final = pytest.StashKey[frozenset[tuple[str, int]]]()


def page_is_asked(config: pytest.Config) -> bool:
    return any(Path(name).suffix.lower() == ".html" for name in config.getoption("mat_report") or ())


def is_replayed(item: pytest.Item, seed: int) -> bool:
    """Whether a replay of this session is compared with the item's undisturbed run of that seed, should it break again."""
    from pytest_mat.runtime import REPLAY

    config = item.config
    if _REPLAYED not in config.stash:
        replays = [each.stash[REPLAY] for each in item.session.items if REPLAY in each.stash]
        config.stash[_REPLAYED] = frozenset((each.item, each.counterexample.run.spec.seed) for each in replays)
    return (item.nodeid, seed) in config.stash[_REPLAYED]


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
