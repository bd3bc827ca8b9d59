"""The pristine process of a session, `python -m pytest_mat.pristine`: it imports what all items need, and no code of the user.

In its children a session of pytest collects one module and executes plans instead of the tests (`mat_study.pristine`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

from mat_study.evaluation import Plan
from mat_study.fresh import FreshBatch
from mat_study.pristine import ExecuteBatch, SendFrame, serve

_IMPORTED: Final = (
    "pytest_mat.items", "mat_contracts", "mat_faults", "mat.report.terminal", "_pytest.pytester_assertions", "asyncio",
)  # fmt: skip
"""Imported before any module is collected, for all modules at once."""


class ServedSession:
    """A plugin for pytest that executes batches instead of the tests."""

    def __init__(self, run: Callable[[ExecuteBatch], None]) -> None:
        self._run = run

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        if not session.testsfailed:  # else pytest reports that the module cannot be collected, and ends
            _warm(session)
            self._run(partial(_execute_batch, session))


def _warm(session: pytest.Session) -> None:
    """Look up what every execution needs and no execution changes, once for all forks."""
    from mat.kernel.install import rebind
    from mat.kernel.isolation import Ownership
    from pytest_mat.session import session_of

    Ownership([str(session.config.rootpath)]).modules()
    session_of(session.config).catalog  # noqa: B018  # a cached property
    rebind()  # last: it looks through all modules whenever there is a new one


def _collect(arguments: tuple[str, ...], run: Callable[[ExecuteBatch], None]) -> None:
    sys.argv = ["pytest", *arguments]
    pytest.main(list(arguments), plugins=[ServedSession(run)])


def _execute_batch(
    session: pytest.Session, batch: FreshBatch, plans: Iterable[Plan], files: Path, send: SendFrame
) -> None:  # fmt: skip
    from pytest_mat.confirm import BATCH, RequestedBatch

    item = next((each for each in session.items if each.nodeid == batch.item.node), None)
    if item is None:
        names = ", ".join(each.nodeid for each in session.items[:5]) or "nothing"
        raise LookupError(f"{batch.item.node} was not collected again, but {names}")
    factory = getattr(session.config, "_tmp_path_factory", None)
    if factory is not None:
        files.mkdir()
        factory._basetemp = files.resolve()
    session.config.stash[BATCH] = RequestedBatch(batch=batch, plans=plans, send=send)
    session.config.hook.pytest_runtest_protocol(item=item, nextitem=None)


def main() -> None:
    for name in _IMPORTED:
        import_module(name)
    serve(sys.argv[1:], _collect)


if __name__ == "__main__":
    main()
