"""Processes that are started or forked for a search inherit nothing that an execution left in the settings of this process."""

from __future__ import annotations

import os
from typing import Any

import pytest

ID = "test_shop.py::test_refund"
AGENT = """
import decimal
import os
import signal
import sys


def change(found):
    {change}
    return found


@pytest.mark.mat(budget=4, faults=["service.unanswered"])
def test_refund(mat_run, no_double):
    try:
        shop.check("o1")
    except TimeoutError:
        if not change([]):
            shop.refund("o1")
            shop.refund("o1")
    else:
        change([])
"""
"""Breaks its contract where an execution finds the settings as they were before the first one, which changes them."""
CHANGES = {
    "umask": "found += [0o27] if os.umask(0o27) == 0o27 else []",
    "path": 'found += [path for path in sys.path if path == "/warm"]; sys.path.append("/warm")',
    "ignored signal": "found += [] if signal.signal(signal.SIGUSR1, signal.SIG_IGN) is signal.SIG_DFL else [1]",
    "environment": 'found += [os.environ["WARM"]] if "WARM" in os.environ else []; os.environ["WARM"] = "1"',
    "decimal": "found += [7] if decimal.getcontext().prec == 7 else []; decimal.getcontext().prec = 7",
    "scheduler": "found += [os.sched_getscheduler(0)] if os.sched_getscheduler(0) else []; "
    "os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))",
}


def agent(*changes: str) -> str:
    return AGENT.replace("{change}", "\n    ".join(CHANGES[change] for change in changes))


@pytest.mark.full
def test_a_fresh_process_inherits_no_setting_that_the_first_run_left(shop: Any) -> None:
    shop.tests(agent("umask", "path", "ignored signal"))
    item = shop.stress(process=True).items[ID]
    assert (item["status"], item["cost"], item["proven"]) == ("counterexample", 4, True)


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "sched_setscheduler"), reason="the system has no such setting")
def test_a_setting_that_is_not_compared_is_caught_by_fresh_processes_that_do_not_inherit_it(shop: Any) -> None:
    shop.tests(agent("scheduler"))
    item = shop.stress(process=True).items[ID]
    assert (item["status"], item["cost"], item["proven"]) == ("counterexample", 4, False)
    assert "a run in a fresh process" in item["reason"]


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no forks")
def test_a_worker_inherits_no_setting_that_an_execution_left(shop: Any) -> None:
    shop.tests(agent("umask", "path", "ignored signal", "environment", "decimal"))
    before = os.umask(0o22)
    os.umask(before)
    item = shop.stress("--mat-workers", "2").items[ID]
    assert (item["status"], item["cost"], item["proven"]) == ("counterexample", 4, True)
    assert "WARM" not in os.environ
    assert os.umask(before) == before
