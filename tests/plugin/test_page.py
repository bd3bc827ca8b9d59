"""The page of a session (`--mat-report FILE.html`): each counterexample next to the nominal run of its test and seed."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest

STRESSED = """
@pytest.mark.mat(budget=4, faults=FAULTS)
def test_naive(mat_run, no_double):
    assert shop.naive() == "refunded"


@pytest.mark.mat(budget=4, faults=FAULTS)
def test_careful(mat_run, no_double):
    shop.careful()
"""
NAIVE, CAREFUL = "test_shop.py::test_naive", "test_shop.py::test_careful"


def listed(shop: Any, name: str = "out.html") -> list[dict[str, Any]]:
    """The traces of a page, as its viewer offers them."""
    html = (shop.path / name).read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="trace-list">(.*?)</script>', html)
    return json.loads(found[1]) if found else []


def compared(shop: Any) -> list[tuple[str, str | None]]:
    """Each trace of the page with the one it is compared with."""
    traces = listed(shop)
    return [(trace["name"], traces[trace["against"]]["name"] if "against" in trace else None) for trace in traces]


FOUND, PLAIN = f"1. no_double, cost 4: {NAIVE}", f"nominal, seed 0: {NAIVE}"


@pytest.mark.full
def test_a_search_puts_the_undisturbed_run_next_to_its_counterexample_and_no_run_of_a_test_that_holds(shop: Any) -> None:
    shop.tests(STRESSED)
    session = shop.stress("--mat-report", "out.html")
    assert session.statuses == {NAIVE: "counterexample", CAREFUL: "certified"}
    assert compared(shop) == [(FOUND, PLAIN), (PLAIN, None)]


@pytest.mark.nightly
def test_an_evaluation_does_so_too_and_after_an_interruption_as_well(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    task = 'workload=mat.Workload(category="policy", waive=["channels"], tools=["refund"])'
    shop.tests(STRESSED.replace("budget=4", f"budget=4, seeds=2, {task}"))
    shop.run("--mat-evaluate", "--mat-report", "out.html")
    expected = compared(shop)
    assert expected == [(FOUND, PLAIN), (PLAIN, None)]
    shop.conftest(
        """
def pytest_runtest_logreport(report):
    import os
    if os.environ.get("STOP") and "naive" in report.nodeid and report.when == "call":
        raise KeyboardInterrupt
"""
    )
    with monkeypatch.context() as patched:
        patched.setenv("STOP", "1")
        assert shop.run("--mat-evaluate", process=True).code == pytest.ExitCode.INTERRUPTED
    session = shop.run("--mat-evaluate", "--mat-report", "out.html")
    assert "cells taken from an interrupted evaluation" in session.text
    assert compared(shop) == expected


@pytest.mark.full
def test_the_runs_of_a_governed_counterexample_are_of_its_own_variant(shop: Any) -> None:
    shop.conftest(
        """
from mat.govern.variant import Policy


@pytest.fixture
def mat_governance():
    return Policy(rules=(lambda record: None,), capabilities={"main": ["check", "refund"]}, use="shield")
"""
    )
    shop.tests(STRESSED)
    shop.stress("--mat-report", "out.html", "--mat-governance", "all", "-k", "naive")
    assert compared(shop) == [(FOUND, PLAIN), (PLAIN, None)]


@pytest.mark.nightly
def test_without_a_search_the_page_shows_runs_that_broke_and_replays_next_to_their_undisturbed_run(shop: Any) -> None:
    shop.tests(STRESSED)
    shop.stress()
    shop.tests(
        STRESSED
        + """

def test_refused(mat_run, no_refund):
    shop.careful()


def test_fine(mat_run, no_refund):
    shop.check("o1")
"""
    )
    session = shop.run("--mat-report", "out.html")
    broken = [name for name, status in session.statuses.items() if status == "violated"]
    assert len(broken) == 2
    replayed, refused = f"no_double is broken, seed 0: {NAIVE}", "no_refund is broken, seed 0: test_shop.py::test_refused"
    assert compared(shop) == [(replayed, PLAIN), (refused, None), (PLAIN, None)]


@pytest.mark.nightly
def test_a_page_takes_the_runs_of_all_workers(shop: Any) -> None:
    pytest.importorskip("xdist")
    shop.tests(STRESSED)
    shop.stress("--mat-report", "out.html", "-n", "2", process=True)
    assert compared(shop) == [(FOUND, PLAIN), (PLAIN, None)]


@pytest.mark.nightly
def test_no_run_travels_where_no_page_is_asked_for(shop: Any) -> None:
    class Sent:
        runs: list[Any] = []

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            self.runs += getattr(report, "mat", {}).get("shown", [])

    shop.tests(STRESSED)
    sent = Sent()
    shop.stress("--mat-report", "out.csv", plugins=(sent,))
    assert sent.runs == []
    shop.stress("--mat-report", "out.html", plugins=(sent,))
    assert len(sent.runs) > 0


# -- a session without a run, and one with a gate ----------------------------------------------------------------------------

EMPTY = " (empty: pytest-mat ran no test in this session)"


@pytest.mark.full
@pytest.mark.parametrize("arguments", [("-k", "nothing"), ("-k", "plain")])
def test_a_session_without_a_run_writes_an_empty_report_over_an_old_one_and_says_so(
    shop: Any, arguments: tuple[str, ...]
) -> None:
    shop.tests(STRESSED + "\n\ndef test_plain():\n    pass\n")
    old = (shop.path / "out.html", shop.path / "out.md")
    for path in old:
        path.write_text("as it was")
    session = shop.run(*arguments, "--mat-report", "out.html", "--mat-report", "out.md")
    assert session.report["items"] == []
    assert f"mat report: out.html{EMPTY}" in session.text
    assert all("as it was" not in path.read_text(encoding="utf-8") for path in old)
    assert listed(shop) == []
    session = shop.run("--mat-report", "out.html")
    assert EMPTY not in session.text


def test_what_runs_nothing_by_intent_or_mistake_leaves_reports_alone(shop: Any) -> None:
    shop.tests(STRESSED + '\n\n@pytest.mark.mat(workload=mat.Workload(category="policy"))\ndef test_gaps(mat_run):\n    pass\n')
    (shop.path / "out.html").write_text("old")
    for arguments in (("--collect-only",), ("--mat-evaluate",)):
        session = shop.run(*arguments, "--mat-report", "out.html")
        assert "mat report:" not in session.text
        assert (shop.path / "out.html").read_text() == "old"


def test_a_session_that_fails_before_its_first_run_leaves_no_report_of_an_earlier_one(shop: Any) -> None:
    shop.tests("@pytest.mark.mat(seedz=3)\ndef test_odd(mat_run):\n    pass\n")
    (shop.path / "out.md").write_text("old")
    session = shop.run("--mat-report", "out.md")
    assert session.code == 1
    assert f"mat report: out.md{EMPTY}" in session.text
    assert (shop.path / "out.md").read_text(encoding="utf-8") != "old"


def test_the_store_says_where_it_is_and_how_many_runs_it_took(shop: Any) -> None:
    shop.tests(STRESSED)
    session = shop.run("--mat-seeds", "2", "--mat-store")
    assert "mat store: .mat/store (4 runs)" in session.text
    assert "mat store" not in shop.run().text


@pytest.mark.nightly
def test_a_gates_session_has_its_comparison_and_the_suite_of_its_replays_in_its_own_reports(shop: Any) -> None:
    shop.tests(STRESSED)
    shop.stress()
    shop.run("--mat-report", "base.json")
    text = (shop.path / "shop.py").read_text()
    shop.write("shop.py", text.replace('return "refunded"', 'return "done"'))
    session = shop.run("--mat-gate", "base.json", "--mat-report", "out.html", "--mat-report", "out.md")
    comparison, suite = session.report["comparison"], session.report["suite"]
    assert (comparison["regressed"], comparison["runs"]) == (True, 2)
    (replay,) = suite["replays"]
    (file,) = shop.replays
    assert replay["file"] == f"mat_replays/{file.name}"
    assert replay["id"].startswith(f"{NAIVE}[replay-")
    html = (shop.path / "out.html").read_text(encoding="utf-8")
    assert '<section id="regression"' in html
    assert '<section id="suite"' in html
    assert "base.json" in (shop.path / "out.md").read_text(encoding="utf-8")
    told = shop.pytester.run(sys.executable, "-m", "mat", "report", "out.json", "--as", "md")  # the rest is in nobody's way
    assert told.ret == 0


@pytest.mark.nightly
def test_a_session_without_a_gate_compares_nothing(shop: Any) -> None:
    shop.tests(STRESSED)
    assert not {"comparison", "suite"} & set(shop.stress().report)
