"""The findings that a session lives with: accepted ones next to the replay files, and those of `--mat-baseline`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from mat.core.errors import MatError
from mat.core.known import Acceptance, KnownFindings
from mat.evidence import acceptance
from pytest_mat.options import session_began_ns
from pytest_mat.replays import task_of

if TYPE_CHECKING:
    from mat.report.from_json import BaselineFindings


class SessionFindings:
    """What is known of the tests of a session; each file is read once, in each process."""

    def __init__(self, baseline: Path | None) -> None:
        self._accepted: dict[Path, tuple[Acceptance, ...] | MatError] = {}
        self.baseline = None if baseline is None else _read_baseline(baseline)
        self.today = datetime.fromtimestamp(session_began_ns() / 1e9, UTC).date().isoformat()

    def accepted(self, folder: Path) -> tuple[Acceptance, ...]:
        """The acceptances of the tests in a folder. MatError if their file is damaged."""
        path = acceptance.file_in(folder)
        if path not in self._accepted:
            try:
                self._accepted[path] = acceptance.read(path)
            except MatError as error:
                self._accepted[path] = error
        found = self._accepted[path]
        if isinstance(found, MatError):
            raise found
        return found


def _read_baseline(path: Path) -> BaselineFindings:
    from mat.report.from_json import read_findings

    return read_findings(path)


_FINDINGS: Final = pytest.StashKey[SessionFindings]()


def _findings_of(config: pytest.Config) -> SessionFindings:
    found = config.stash.get(_FINDINGS, None)
    if found is None:
        name = config.getoption("mat_baseline")
        baseline = None if name is None else Path(config.invocation_params.dir, name)
        found = config.stash[_FINDINGS] = SessionFindings(baseline)
    return found


def known_findings(item: pytest.Item) -> KnownFindings:
    """What is known of an item's test. MatError if a file is damaged."""
    findings, task = _findings_of(item.config), task_of(item)
    return KnownFindings(
        accepted=tuple(each for each in findings.accepted(item.path.parent) if each.test == task),
        baseline=None if findings.baseline is None else findings.baseline.by_test.get(task, ()),
        today=findings.today,
    )


def baseline_of(config: pytest.Config) -> BaselineFindings | None:
    """The baseline of the session; None without `--mat-baseline`."""
    return _findings_of(config).baseline
