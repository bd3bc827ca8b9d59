"""`--mat-store`: the session's reported and measured runs, appended to the artefact log that `mat query` reads.

Kept are nominal runs (of every governance variant), replays, counterexamples, and all measured runs of an evaluation. What a
search executes on its way is not: there are thousands, chosen by the search, and no share of them means anything. A
counterexample is kept as adversarial, because a search has chosen it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from mat.core.errors import MatError
from mat.core.run import Run
from mat.evidence.runlog import Entry, RunLog
from mat.measure.rows import Labels, RunRow
from pytest_mat.runtime import KEPT

_LOG: Final = pytest.StashKey["KeptRuns"]()


class KeptRuns:
    """The artefact log of this process. `session` is one name for all processes of a session."""

    def __init__(self, folder: Path, session: str) -> None:
        self.session = session
        self._log = RunLog(folder, session=session)
        self._ignored = folder.parent / ".gitignore" if folder.parent.name == ".mat" else None

    def keep(self, item: pytest.Item, runs: Iterable[tuple[Run, RunRow]], *, session: str = "") -> None:
        """Append runs with what their rows say of them. One that cannot be written is a warning: the tests go on."""
        for run, row in runs:
            try:
                self._log.append(_entry(run, row, session=session or self.session))
                item.stash[KEPT] = item.stash.get(KEPT, 0) + 1
            except MatError as error:
                item.warn(pytest.PytestWarning(f"a run was not stored: {error}"))
        if self._ignored is not None and not self._ignored.exists() and self._ignored.parent.is_dir():
            self._ignored.write_text("# made by pytest-mat\n*\n", encoding="utf-8")


def kept_runs(config: pytest.Config) -> KeptRuns | None:
    """The log that this session keeps, None where it keeps none."""
    folder = config.getoption("mat_store")
    if folder is None:
        return None
    found = config.stash.get(_LOG, None)
    if found is None:
        found = config.stash[_LOG] = KeptRuns(Path(config.invocation_params.dir, folder), _session(config))
    return found


def keep(item: pytest.Item, runs: Sequence[tuple[Run, RunRow]]) -> None:
    """Keep runs of an item, where the session keeps any."""
    log = kept_runs(item.config)
    if log is not None:
        log.keep(item, runs)


def _session(config: pytest.Config) -> str:
    """A name that no other session has, the same in all workers of one."""
    shared = getattr(config, "workerinput", {}).get("testrunuid")
    return str(shared) if shared else f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}"


def _entry(run: Run, row: RunRow, *, session: str) -> Entry:
    labels = Labels(
        category=row.category, input=row.input, variant=row.variant, misuse=row.misuse, infrastructure=row.infrastructure,
        episode=row.episode, place=row.place,
    )  # fmt: skip
    return Entry(
        item=row.item, condition=row.condition, run=run, labels=labels, claims=row.claims, scores=row.scores, session=session,
        written_at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    )  # fmt: skip
