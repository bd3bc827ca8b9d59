"""The workloads of a session with `--mat-evaluate`, validated once when all tests are collected (A6.1).

Known then are what markers say, and what a `mat_workload` gives that takes no other fixture: it is asked once more for it.
What another one gives is known when its test is set up, and refused there, before the body runs.
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
"""Tests that one problem names; the rest are counted."""
_LATER: Final = object()
REFUSED: Final = "mat_refused"
"""Where a worker of xdist leaves what it refuses."""


def check_workloads(session: pytest.Session, items: Sequence[pytest.Item]) -> None:
    """UsageError with everything that is wrong with the workloads of `items`. What is known is kept."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for item in items:
        if file_of(item) is not None:
            continue
        try:
            _check(session, item)
        except MatError as error:
            found.setdefault((error.what, error.why, error.fix), []).append(item.nodeid)
    if found:
        told = _told(found)
        if hasattr(session.config, "workeroutput"):  # xdist: the controller collects nothing, and says it (REFUSED)
            session.config.workeroutput[REFUSED] = told
        raise pytest.UsageError(told)


def not_for_tasks(config: pytest.Config) -> list[str]:
    """Options of this session that say nothing to an evaluation."""
    return [f"--mat-{name}" for name in ("stress", "stop", "workers") if config.getoption(f"mat_{name}")]


def _check(session: pytest.Session, item: pytest.Item) -> None:
    given = _ahead(session, item)
    known = given is not _LATER
    task = workload_of(given if known else None, settings_of(item))
    session_of(session.config).workloads[item.nodeid] = task
    if known and is_task(task):
        refuse_gaps(task, item.nodeid)


def _ahead(session: pytest.Session, item: pytest.Item) -> Any:
    """What the item's `mat_workload` gives, where it needs nothing for it; _LATER where only its set-up can tell."""
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
    except (Exception, OutcomeException):  # its set-up says so, with a traceback; or it does not, in its own world
        return _LATER


def _told(found: dict[tuple[str, str, str], list[str]]) -> str:
    count = sum(map(len, found.values()))
    lines = [f"--mat-evaluate: {count} {'workload is' if count == 1 else 'workloads are'} invalid; no test was run"]
    for (what, why, fix), names in found.items():
        lines += [what, *(f"  where: {name}" for name in names[:_LISTED])]
        if len(names) > _LISTED:
            lines.append(f"  and {len(names) - _LISTED} more")
        lines += [f"  {label}: {said}" for label, said in (("why", why), ("fix", fix)) if said]
    return "\n".join(lines)
