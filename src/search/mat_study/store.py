"""`--mat-store`: the session's reported and measured runs, appended to the run log that `mat query` reads.

It keeps nominal runs (of every governance variant), replays, counterexamples, and all measured runs of an evaluation. It does
not keep the other runs of a search: there are thousands, chosen by the search, so a share of them means nothing. A
counterexample is stored under the condition "adversarial", because a search chose it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from mat.core.errors import CodecError, MatError
from mat.core.files import write_whole
from mat.core.run import Run
from mat.evidence.runlog import RunEntry, RunLog
from mat.kernel.folders import spare
from mat.measure.rows import Labels, RunRow


class KeptRuns:
    """The run log of this process. `session` is one name for all processes of a session.

    If the folder cannot be written, runs are kept in its spare folder, and `elsewhere` says so.
    """

    def __init__(self, folder: Path, session: str) -> None:
        self.session, self._folder = session, folder
        self.elsewhere = ""
        self._log = RunLog(folder, session=session)
        self._ignored = folder.parent / ".gitignore" if folder.parent.name == ".mat" else None

    def append(self, entry: RunEntry) -> None:
        """Append an entry; MatError if it cannot be written."""
        try:
            self._log.append(entry)
        except CodecError as error:
            if self._log.path is not None or self.elsewhere or not isinstance(error.__cause__, OSError):
                raise
            folder = spare(self._folder)
            self.elsewhere = f"runs are stored in {folder}, because {self._folder} cannot be used: {error.what}"
            self._log, self._ignored = RunLog(folder, session=self.session), None
            self._log.append(entry)
        if self._ignored is not None and not self._ignored.exists() and self._ignored.parent.is_dir():
            write_whole(self._ignored, b"# made by pytest-mat\n*\n")


class ItemRuns:
    """Keeps the runs of one item's study; `count` were kept. `warn` is called for a run that could not be kept."""

    def __init__(self, log: KeptRuns, warn: Callable[[str], None]) -> None:
        self._log, self._warn = log, warn
        self.session = log.session
        self.count = 0
        self._told = False

    def keep(self, runs: Sequence[tuple[Run, RunRow]], *, session: str = "") -> None:
        """Append runs with their rows. A run that cannot be written is a warning: the tests continue."""
        for run, row in runs:
            try:
                self._log.append(_entry(run, row, session=session or self.session))
                self.count += 1
                if self._log.elsewhere and not self._told:
                    self._told = True
                    self._warn(self._log.elsewhere)
            except (MatError, OSError) as error:
                self._warn(f"a run was not stored: {error}")


def _entry(run: Run, row: RunRow, *, session: str) -> RunEntry:
    labels = Labels(
        category=row.category, input=row.input, variant=row.variant, misuse=row.misuse, infrastructure=row.infrastructure,
        episode=row.episode, place=row.place,
    )  # fmt: skip
    return RunEntry(
        item=row.item, condition=row.condition, run=run, labels=labels, claims=row.claims, scores=row.scores, session=session,
        written_at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    )  # fmt: skip
