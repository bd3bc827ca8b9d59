"""The workloads of a session with `--mat-evaluate`, validated once when all tests are collected (A6.1).

At that time markers are known, and the value of a `mat_workload` fixture that requests no other fixture, which is called
once more for it. Any other `mat_workload` is validated when its test is set up, before the body runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Final

import pytest
from _pytest.outcomes import OutcomeException

from mat.core.errors import MatError
from mat_study.tasks import is_task, refuse_gaps, workload_of
from pytest_mat.options import settings_of
from pytest_mat.replays import file_of
from pytest_mat.session import session_of

_LISTED: Final = 20
"""How many tests one problem lists; the others are counted."""
_LATER: Final = object()
REFUSED: Final = "mat_refused"
"""The key under which an xdist worker leaves the workloads that it refuses."""


def check_workloads(session: pytest.Session, items: Sequence[pytest.Item]) -> None:
    """Raise UsageError with all problems of the workloads of `items`. Keep the workloads that are known."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for item in items:
        if file_of(item) is not None:
            continue
        try:
            _check(session, item)
        except MatError as error:
            found.setdefault((error.what, error.why, error.fix), []).append(item.nodeid)
    if found:
        text = _problem_text(found)
        if hasattr(session.config, "workeroutput"):  # xdist: the controller collects nothing, and reports the error (REFUSED)
            session.config.workeroutput[REFUSED] = text
        raise pytest.UsageError(text)


def ignored_options(config: pytest.Config) -> list[str]:
    """Options of this session that an evaluation ignores for tests with a workload."""
    return [f"--mat-{name}" for name in ("stress", "stop", "workers") if config.getoption(f"mat_{name}")]


def _check(session: pytest.Session, item: pytest.Item) -> None:
    given = _ahead(session, item)
    known = given is not _LATER
    task = workload_of(given if known else None, settings_of(item))
    session_of(session.config).workloads[item.nodeid] = task
    if known and is_task(task):
        refuse_gaps(task, item.nodeid)


def _ahead(session: pytest.Session, item: pytest.Item) -> Any:
    """The value of the item's `mat_workload` fixture if it requests no fixture; _LATER if it is known only in setup."""
    definitions = session._fixturemanager.getfixturedefs("mat_workload", item)
    if not definitions:
        return None
    nearest = definitions[-1]
    if nearest.func.__module__ == "pytest_mat":
        return None
    waits = inspect.isgeneratorfunction(nearest.func) or inspect.iscoroutinefunction(nearest.func)
    if waits or inspect.isasyncgenfunction(nearest.func) or nearest.params or inspect.signature(nearest.func).parameters:
        return _LATER
    try:
        return nearest.func()
    except (Exception, OutcomeException):  # the setup reports it with a traceback, or succeeds under the run's clock
        return _LATER


def _problem_text(found: dict[tuple[str, str, str], list[str]]) -> str:
    count = sum(map(len, found.values()))
    lines = [f"--mat-evaluate: {count} {'workload is' if count == 1 else 'workloads are'} invalid; no test was run"]
    for (what, why, fix), names in found.items():
        lines += [what, *(f"  where: {name}" for name in names[:_LISTED])]
        if len(names) > _LISTED:
            lines.append(f"  and {len(names) - _LISTED} more")
        lines += [f"  {label}: {said}" for label, said in (("why", why), ("fix", fix)) if said]
    return "\n".join(lines)
