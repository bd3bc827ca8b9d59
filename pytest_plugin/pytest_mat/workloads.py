"""The workloads of a session with `--mat-evaluate`, validated once when all tests are collected.

Markers are known at that time. A `mat_workload` fixture that requests no other fixture is called once more to get its value.
Any other `mat_workload` is validated when its test is set up, before the body runs.

Source: A6.1.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Final

import pytest
from _pytest.outcomes import OutcomeException

from mat.core.errors import MatError
from mat.core.redact import cleaned
from mat_study.tasks import is_task, refuse_gaps, workload_of
from pytest_mat.options import settings_of
from pytest_mat.replays import file_of
from pytest_mat.session import session_of

_MOST_NAMES: Final = 20
"""How many tests one problem lists; the others are counted."""
_NOT_YET_KNOWN: Final = object()
"""In place of a workload that is known only when its test is set up."""
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
        text = cleaned(_problem_text(found))
        if hasattr(session.config, "workeroutput"):  # xdist: the controller collects nothing, and reports the error (REFUSED)
            session.config.workeroutput[REFUSED] = text
        raise pytest.UsageError(text)


def ignored_options(config: pytest.Config) -> list[str]:
    """Options of this session that an evaluation ignores for tests with a workload."""
    return [f"--mat-{name}" for name in ("stress", "stop", "workers", "executor") if config.getoption(f"mat_{name}")]


def _check(session: pytest.Session, item: pytest.Item) -> None:
    workload = _early_workload(session, item)
    known = workload is not _NOT_YET_KNOWN
    task = workload_of(workload if known else None, settings_of(item))
    session_of(session.config).workloads[item.nodeid] = task
    if known and is_task(task):
        refuse_gaps(task, item.nodeid)


def _early_workload(session: pytest.Session, item: pytest.Item) -> Any:
    """The value of the item's `mat_workload` fixture if that fixture requests no other; otherwise _NOT_YET_KNOWN."""
    definitions = session._fixturemanager.getfixturedefs("mat_workload", item)
    if not definitions:
        return None
    nearest = definitions[-1]
    if nearest.func.__module__ == "pytest_mat":
        return None
    needs_setup = inspect.isgeneratorfunction(nearest.func) or inspect.iscoroutinefunction(nearest.func)
    if needs_setup or inspect.isasyncgenfunction(nearest.func) or nearest.params or inspect.signature(nearest.func).parameters:
        return _NOT_YET_KNOWN
    try:
        return nearest.func()
    except (Exception, OutcomeException):  # the setup reports it with a traceback, or succeeds under the run's clock
        return _NOT_YET_KNOWN


def _problem_text(found: dict[tuple[str, str, str], list[str]]) -> str:
    count = sum(map(len, found.values()))
    lines = [f"--mat-evaluate: {count} {'workload is' if count == 1 else 'workloads are'} invalid; no test was run"]
    for (what, why, fix), names in found.items():
        lines += [what, *(f"  where: {name}" for name in names[:_MOST_NAMES])]
        if len(names) > _MOST_NAMES:
            lines.append(f"  and {len(names) - _MOST_NAMES} more")
        lines += [f"  {label}: {text}" for label, text in (("why", why), ("fix", fix)) if text]
    return "\n".join(lines)
