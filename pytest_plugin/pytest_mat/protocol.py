"""How pytest executes one item once: in full, with all hooks and reports, or slim, with only what a test can observe.

A slim execution makes function fixtures anew, calls the hooks of set-up, call and tear-down of all plugins but two, and makes
reports only if a phase does not simply pass. Output and log records are captured once for all phases.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import pytest
from _pytest.logging import caplog_handler_key, caplog_records_key, catching_logs
from _pytest.runner import check_interactive_exception, get_reraise_exceptions, runtestprotocol
from _pytest.skipping import xfailed_key
from _pytest.tmpdir import tmppath_result_key
from _pytest.unittest import TestCaseFunction

from pytest_mat.execution import handle_of
from pytest_mat.kept import KeptFixtures

Reports: TypeAlias = list[pytest.TestReport]
Phase: TypeAlias = Literal["setup", "call", "teardown"]

_OBSERVING: Final = frozenset({"capfd", "capfdbinary", "caplog", "capsys", "capsysbinary", "capteesys", "recwarn", "subtests"})
"""Fixtures that observe the machinery that a slim execution leaves out."""
_REPORTING: Final = frozenset({"_hypothesis_pytestplugin"})
"""Plugins outside of pytest whose pytest_runtest_makereport changes nothing but the report."""
_OPTIONS: Final = ("setuponly", "setupplan", "setupshow", "trace", "usepdb")
"""Options with which somebody looks at every execution."""


def execute_in_full(item: pytest.Item) -> Reports:
    """Execute the item with pytest's own protocol, unlogged: fixtures, the class instance and captured output are new."""
    _begin(item)
    return runtestprotocol(item, log=False, nextitem=item.parent)  # type: ignore[arg-type]


def why_in_full(item: pytest.Item) -> str:
    """Why a slim execution of the item could differ from a full one; "" if it cannot."""
    if not isinstance(item, pytest.Function) or isinstance(item, TestCaseFunction):
        return f"it is a {type(item).__name__}"
    options = [name for name in _OPTIONS if item.config.getoption(name, False)]
    if options:
        return f"option {options[0]}"
    observing = sorted(_OBSERVING.intersection(item.fixturenames))
    if observing:
        return f"fixture {observing[0]}"
    makers = [getattr(each.plugin, "__name__", type(each.plugin).__module__) for each in _impls(item)]
    foreign = [name for name in makers if not name.startswith("_pytest.") and name not in _REPORTING]
    return f"{foreign[0]} implements pytest_runtest_makereport" if foreign else ""


def _impls(item: pytest.Item) -> list[Any]:
    return list(item.ihook.pytest_runtest_makereport.get_hookimpls())


def _begin(item: pytest.Item) -> None:
    """Forget the previous execution of the item."""
    item._report_sections = []
    if isinstance(item.parent, pytest.Class) and "_instance" in vars(item):
        del item._instance  # type: ignore[attr-defined]
        item._obj = None  # type: ignore[attr-defined]


class SlimProtocol:
    """Executes an item again and again without reports, except for executions that do not simply pass."""

    def __init__(self, item: pytest.Function) -> None:
        plugins = item.config.pluginmanager
        self._item = item
        self._capture: Any = plugins.getplugin("capturemanager")
        self._logging: Any = plugins.getplugin("logging-plugin")
        left_out = {*getattr(item.ihook, "remove_mods", ()), self._capture, self._logging} - {None}
        self._hooks: dict[Phase, Any] = {
            when: plugins.subset_hook_caller(f"pytest_runtest_{when}", left_out) for when in ("setup", "call", "teardown")
        }
        self._kept = KeptFixtures(item, partial(handle_of, item))

    def execute(self) -> Reports:
        """Execute the item once; the reports of all phases if one of them did not simply pass, else none."""
        return _SlimExecution(self._item, self._hooks, self._capture, self._logging, self._kept).execute()


class _SlimExecution:
    """One execution: its phases so far, and their reports if they are needed."""

    def __init__(self, item: pytest.Function, hooks: dict[Phase, Any], capture: Any, log: Any, kept: KeptFixtures) -> None:
        self._item, self._hooks, self._capture, self._log, self._kept = item, hooks, capture, log, kept
        self._reraise = get_reraise_exceptions(item.config)
        self._passed: list[pytest.CallInfo[None]] = []
        self._reports: Reports = []

    def execute(self) -> Reports:
        item, session = self._item, self._item.session
        _begin(item)
        if not item._request:
            item._initrequest()
        item.stash[tmppath_result_key] = {}
        lent = self._kept.lend()
        try:
            with self._captured():
                if self._phase("setup"):
                    self._phase("call")
                    self._kept.learn()
                next_item = None if session.shouldfail or session.shouldstop else item.parent
                self._phase("teardown", nextitem=next_item)
        finally:
            self._kept.take_back(lent)
            item._request = False  # type: ignore[assignment]
            item.funcargs = None  # type: ignore[assignment]
        return self._reports

    def _phase(self, when: Phase, **options: Any) -> bool:
        """Execute one phase; whether it passed."""
        item, hook = self._item, self._hooks[when]
        call = pytest.CallInfo.from_call(partial(hook, item=item, **options), when=when, reraise=self._reraise)
        if self._reports or call.excinfo is not None or item.stash.get(xfailed_key, None):
            return self._report(call)
        self._passed.append(call)
        results = item.stash.get(tmppath_result_key, None)
        if results is not None:
            results[when] = True
        return True

    def _report(self, call: pytest.CallInfo[None]) -> bool:
        """Make the report of a phase, and of those before it; whether it passed."""
        item = self._item
        while self._passed:
            self._reports.append(item.ihook.pytest_runtest_makereport(item=item, call=self._passed.pop(0)))
        self._add_captured(call.when)
        report: pytest.TestReport = item.ihook.pytest_runtest_makereport(item=item, call=call)
        if check_interactive_exception(call, report):
            item.ihook.pytest_exception_interact(node=item, call=call, report=report)
        self._reports.append(report)
        return report.passed

    # -- captured output and log records ----------------------------------------------------------------------------

    @contextmanager
    def _captured(self) -> Iterator[None]:
        with ExitStack() as stack:
            if self._capture is not None:
                self._capture.resume_global_capture()
                stack.callback(self._stop_capturing)
            if self._log is not None:
                stack.enter_context(self._logged())
            yield

    def _stop_capturing(self) -> None:
        self._capture.suspend_global_capture(in_=False)
        self._capture.read_global_capture()  # nobody reads it: drop it

    @contextmanager
    def _logged(self) -> Iterator[None]:
        item, handler = self._item, self._log.caplog_handler
        handler.reset()
        item.stash[caplog_handler_key] = handler
        item.stash[caplog_records_key] = dict.fromkeys(("setup", "call", "teardown"), handler.records)
        with catching_logs(handler, level=self._log.log_level):
            yield
        del item.stash[caplog_handler_key], item.stash[caplog_records_key]

    def _add_captured(self, when: str) -> None:
        item = self._item
        if self._capture is not None:
            out, err = self._capture.read_global_capture()
            item.add_report_section(when, "stdout", out)
            item.add_report_section(when, "stderr", err)
        if self._log is not None:
            item.add_report_section(when, "log", self._log.caplog_handler.stream.getvalue().strip())
            self._log.caplog_handler.reset()
