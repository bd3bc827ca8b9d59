"""Working together with pytest's own features and with the plugins that agents' tests use."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

STRESSED = "@pytest.mark.mat(budget=4, faults=FAULTS)\n"
ID = "test_shop.py::test_refund"

ASYNC_SHOP = """
import asyncio
import mat

@mat.tool(effect="write")
async def refund(order):
    await asyncio.sleep(1)
    return {"refunded": order}

async def naive():
    for _ in range(3):
        try:
            return await refund("o1")
        except TimeoutError:
            await asyncio.sleep(3600)
"""
ASYNC_TEST = """
import ashop

@MARK
@pytest.mark.mat(budget=4, faults=FAULTS)
async def test_refund(mat_run, no_double):
    await ashop.naive()
    assert mat_run.trace[0].sealed_ms == mat_run.trace[0].at_ms + 1000

@MARK
@pytest.mark.mat(budget=4, faults=FAULTS)
async def test_careful(mat_run, no_double):
    try:
        await ashop.refund("o1")
    except TimeoutError:
        pass
"""


def _assert_found_and_certified(session: Any, suffix: str = "") -> None:
    items = session.items
    found, certified = items[f"test_shop.py::test_refund{suffix}"], items[f"test_shop.py::test_careful{suffix}"]
    assert (found["status"], found["cost"], found["proven"]) == ("counterexample", 4, True)
    assert (certified["status"], certified["bound"]) == ("certified", 4)


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_pytest_asyncio(shop: Any, mode: str) -> None:
    shop.write("ashop.py", ASYNC_SHOP)
    shop.tests(ASYNC_TEST.replace("@MARK", "@pytest.mark.asyncio" if mode == "strict" else ""))
    session = shop.stress("-o", f"asyncio_mode={mode}")
    _assert_found_and_certified(session)
    assert sorted(shop.run("-o", f"asyncio_mode={mode}").outcomes.values()) == ["failed", "passed", "passed"]


@pytest.mark.full
def test_anyio(shop: Any) -> None:
    shop.write("ashop.py", ASYNC_SHOP)
    shop.tests(
        '@pytest.fixture\ndef anyio_backend():\n    return "asyncio"\n' + ASYNC_TEST.replace("@MARK", "@pytest.mark.anyio")
    )
    _assert_found_and_certified(shop.stress())
    assert sorted(shop.run().outcomes.values()) == ["failed", "passed", "passed"]


MANY = """
@pytest.mark.mat(budget=4, faults=FAULTS)
@pytest.mark.parametrize("tries", [1, 2, 3])
def test_refund(mat_run, no_double, tries):
    shop.naive(tries)

def test_plain():
    pass
"""


@pytest.mark.nightly
def test_xdist_gives_the_same_results_and_one_report(shop: Any) -> None:
    shop.tests(MANY)
    alone = shop.stress()
    files = {path.name: path.read_bytes() for path in shop.replays}
    assert len(files) == 2
    for path in shop.replays:
        path.unlink()
    spread = shop.stress("-n2", process=True)
    assert {path.name: path.read_bytes() for path in shop.replays} == files
    assert spread.items == alone.items
    by_name = [sorted(session.report["counterexamples"], key=json.dumps) for session in (alone, spread)]
    assert by_name[0] == by_name[1]
    assert spread.report["runs"] == alone.report["runs"]
    assert spread.report["metrics"] == alone.report["metrics"]


@pytest.mark.nightly
def test_a_worker_that_dies_loses_nothing_of_the_other_items(shop: Any) -> None:
    """The worker that takes its place meets a replay file more than the first one did."""
    shop.tests(
        """
        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_refund(mat_run, no_double):
            shop.naive()

        def test_dies():
            import os
            os._exit(3)

        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_later(mat_run, no_double):
            shop.careful()
        """
    )
    session = shop.stress("-n1", process=True)
    assert "crashed while running 'test_shop.py::test_dies'" in session.text
    assert "2 failed, 1 passed" in session.text
    assert session.statuses == {ID: "counterexample", "test_shop.py::test_later": "certified"}
    assert len(shop.replays) == 1


@pytest.mark.nightly
def test_unittest(shop: Any) -> None:
    shop.tests(
        """
        import unittest

        @pytest.fixture
        def mat_contracts(no_double):
            return [no_double]

        class TestRefund(unittest.TestCase):
            def setUp(self):
                assert not hasattr(self, "seen")
                self.seen = []

            @pytest.mark.mat(budget=4, faults=FAULTS)
            def test_naive(self):
                self.seen.append(1)
                shop.naive()

            @pytest.mark.mat(budget=4, faults=FAULTS)
            def test_careful(self):
                self.assertEqual(shop.careful(), "refunded")

            @pytest.mark.mat(budget=4, faults=FAULTS)
            def test_wrong(self):
                self.assertEqual(shop.careful(), "declined")
        """
    )
    session = shop.stress()
    prefix = "test_shop.py::TestRefund::test_"
    assert session.statuses == {f"{prefix}naive": "counterexample", f"{prefix}careful": "certified", f"{prefix}wrong": "failed"}
    assert session.outcomes == {f"{prefix}naive": "failed", f"{prefix}careful": "passed", f"{prefix}wrong": "failed"}
    assert "'refunded' != 'declined'" in session.failures[f"{prefix}wrong"]
    (path,) = shop.replays
    again = shop.run()
    assert again.outcomes[f"{prefix}naive[replay-{path.name[-15:-9]}]"] == "failed"
    assert len(again.outcomes) == 4


@pytest.mark.nightly
def test_k_and_last_failed_select_items_and_replays(shop: Any) -> None:
    shop.tests(
        STRESSED + "def test_refund(mat_run, no_double): shop.naive()\n\n"
        + STRESSED + "def test_careful(mat_run, no_double): shop.careful()\n"
    )  # fmt: skip
    assert list(shop.stress("-k", "careful").outcomes) == ["test_shop.py::test_careful"]
    assert shop.stress().outcomes == {ID: "failed", "test_shop.py::test_careful": "passed"}
    assert set(shop.run("--lf").outcomes) >= {ID}
    plain = shop.run()
    (failed,) = [name for name, outcome in plain.outcomes.items() if outcome == "failed"]
    assert failed.startswith(f"{ID}[replay-")
    assert shop.run("--lf").outcomes == {failed: "failed"}


class Interactions:
    """Counts what --pdb would open."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def pytest_exception_interact(self, node: Any, call: Any, report: Any) -> None:
        self.seen.append(f"{report.when}: {call.excinfo.typename}")


@pytest.mark.full
def test_pdb_is_offered_once_and_for_the_reported_run(shop: Any) -> None:
    shop.tests(
        """
        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_refund(mat_run, no_double):
            assert shop.careful() == "refunded"

        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_wrong(mat_run, no_double):
            assert shop.careful() == "declined"
        """
    )
    interactions = Interactions()
    session = shop.stress(plugins=(interactions,))
    assert session.statuses == {ID: "certified", "test_shop.py::test_wrong": "failed"}
    assert interactions.seen == ["call: AssertionError"]


@pytest.mark.full
def test_pdb_opens_on_the_reported_run(shop: Any) -> None:
    pytest.importorskip("pexpect")
    shop.tests(
        """
        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_refund(mat_run, no_double):
            answer = shop.careful()
            assert answer == "declined"
        """
    )
    child = shop.pytester.spawn_pytest("--mat-stress --pdb test_shop.py", expect_timeout=30)
    child.expect(r"\(Pdb\)")
    child.sendline("p answer")
    child.expect("'refunded'")
    child.sendline("c")
    child.expect("1 failed")
    child.close()


@pytest.mark.full
def test_a_foreign_timeout_does_not_act_on_the_search(shop: Any) -> None:
    shop.tests(
        """
        import mat.kernel.clock
        from pathlib import Path

        SPENT = Path(".mat", "spent")  # in a folder that holds nothing of a program's state
        SPENT.parent.mkdir(exist_ok=True)

        def busy(seconds):
            start = mat.kernel.clock.real_monotonic()
            while mat.kernel.clock.real_monotonic() < start + seconds:
                pass
            with SPENT.open("a") as stream:
                stream.write(f"{seconds} ")

        @pytest.mark.timeout(2)
        @pytest.mark.mat(budget=8, faults=FAULTS)
        def test_refund(mat_run, no_double):
            busy(0.3)
            shop.careful()

        @pytest.mark.timeout(1, func_only=True)
        @pytest.mark.mat(budget=4, faults=["service.unconfirmed"])
        def test_function(mat_run, no_double):
            busy(1.2 if len(mat_run.spec.schedule) else 0)
            shop.careful()

        def test_spent():
            spent = SPENT.read_text().split()
            assert spent.count("0.3") >= 8
            assert spent.count("1.2") >= 1
        """
    )
    session = shop.stress()
    assert session.failures == {}
    assert session.statuses == {ID: "certified", "test_shop.py::test_function": "certified"}


@pytest.mark.full
@pytest.mark.parametrize("option", [[], ["--mat-stress"]])
def test_what_a_run_needs_is_imported_before_the_time_out_of_the_first_test_begins(
    pytester: pytest.Pytester, option: list[str]
) -> None:
    pytester.makeconftest(
        """
        import sys

        import pytest

        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_runtest_protocol(item):
            print("ready:", "pytest_mat.items" in sys.modules)
            return (yield)
        """
    )
    pytester.makepyfile(test_armed="def test_armed(mat_run): pass")
    pytester.runpytest_subprocess("-s", *option).stdout.fnmatch_lines(["*ready: True"])


@pytest.mark.full
def test_a_plain_suite_imports_nothing_of_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_plain="import sys\n\ndef test_plain(): assert 'pytest_mat.items' not in sys.modules")
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


@pytest.mark.full
def test_a_foreign_timeout_ends_a_reported_run_that_hangs(shop: Any) -> None:
    shop.tests(
        """
        import mat.kernel.clock

        @pytest.mark.timeout(2)
        def test_refund(mat_run, no_double):
            start = mat.kernel.clock.real_monotonic()
            while mat.kernel.clock.real_monotonic() < start + 60:  # an end, in case the alarm gets lost
                pass

        @pytest.mark.mat(budget=0)
        def test_after(mat_run):
            shop.naive()
            time.sleep(3600)
        """
    )
    session = shop.stress()
    assert session.outcomes == {ID: "failed", "test_shop.py::test_after": "passed"}
    assert "Timeout" in session.failures[ID]


@pytest.mark.full
def test_a_foreign_timeout_between_executions_fails_the_test_and_not_the_session(
    shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mat.kernel.isolation import Isolation

    start, begun = Isolation.start, []

    def slow(self: Isolation, *arguments: Any, **named: Any) -> None:
        begun.append(self)
        while len(begun) == 1:
            pass
        start(self, *arguments, **named)

    shop.tests(
        """
        @pytest.mark.timeout(1)
        def test_refund(mat_run, no_double):
            pass

        def test_after():
            pass
        """
    )
    monkeypatch.setattr(Isolation, "start", slow)
    session = shop.stress()
    assert session.outcomes == {ID: "failed", "test_shop.py::test_after": "passed"}
    assert "Timeout" in session.failures[ID]


def test_a_report_has_the_items_in_the_order_of_collection_whoever_finishes_first(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mat.core.campaign import ItemResult
    from mat.core.codec import encode
    from mat_study.measuring import ItemReport
    from pytest_mat import pytest_xdist_node_collection_finished, summary

    class Node:
        config = pytester.parseconfig()

    monkeypatch.setattr(summary, "_payloads", [])
    pytest_xdist_node_collection_finished(Node, ["t.py::b", "t.py::a", "t.py::c"])
    for name in ("t.py::c", "t.py::late", "t.py::a", "t.py::b"):
        summary.keep_report(encode(ItemReport(result=ItemResult(id=name, status="nominal"))))
    ordered = [report.result.id for report in summary._reports(Node.config)]
    assert ordered == ["t.py::b", "t.py::a", "t.py::c", "t.py::late"]
    assert [report.result.id for report in summary._reports(pytester.parseconfig())][:2] == ["t.py::c", "t.py::late"]


@pytest.mark.full
def test_x_stops_at_the_first_counterexample(shop: Any) -> None:
    shop.tests(
        STRESSED + "def test_refund(mat_run, no_double): shop.naive()\n\n"
        + STRESSED + "def test_careful(mat_run, no_double): shop.careful()\n"
    )  # fmt: skip
    session = shop.stress("-x")
    assert session.outcomes == {ID: "failed"}
    assert len(shop.replays) == 1


FRESH = """
import pytest

NAMES = ("session", "class", "function", "torn", "evaluations")

@pytest.fixture(scope="session")
def wide(pytestconfig):  # what a test counts in a module is put back before each execution
    vars(pytestconfig).setdefault("shop_made", dict.fromkeys(NAMES, 0))["session"] += 1

@pytest.fixture(scope="class")
def middle(pytestconfig):
    vars(pytestconfig)["shop_made"]["class"] += 1

@pytest.fixture
def narrow(tmp_path, monkeypatch, pytestconfig):
    import os
    made = vars(pytestconfig)["shop_made"]
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "used").touch()
    assert "SHOP_STATE" not in os.environ
    monkeypatch.setenv("SHOP_STATE", "used")
    made["function"] += 1
    yield []
    made["torn"] += 1
    assert made["torn"] == made["function"]

class TestShop:
    @pytest.mark.mat(budget=8, faults=FAULTS)
    def test_refund(self, mat_run, no_double, wide, middle, narrow, pytestconfig):
        assert not hasattr(self, "used")
        self.used = True
        assert narrow == []
        narrow.append(1)
        vars(pytestconfig)["shop_made"]["evaluations"] += 1
        shop.careful()

    def test_after(self, wide, middle):
        assert not hasattr(self, "used")

def test_made(pytestconfig):
    made = vars(pytestconfig)["shop_made"]
    count = made["evaluations"]
    assert count > 5
    assert made == {"session": 1, "class": 1, "function": count, "torn": count, "evaluations": count}
"""


@pytest.mark.full
def test_function_fixtures_and_instances_are_fresh_in_each_evaluation_and_wider_ones_stay(shop: Any) -> None:
    shop.tests(FRESH)
    session = shop.stress()
    assert session.failures == {}
    assert session.statuses == {"test_shop.py::TestShop::test_refund": "certified"}


@pytest.mark.full
def test_captured_output_and_logs_are_those_of_the_reported_run(shop: Any) -> None:
    shop.tests(
        """
        import logging

        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_refund(mat_run, no_double, caplog, capsys):
            size = len(mat_run.spec.schedule)
            with capsys.disabled():
                pass
            logging.getLogger("shop").warning("log under %d", size)
            assert caplog.messages == [f"log under {size}"]
            shop.naive()

        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_printing(mat_run, no_double):
            print(f"said under {len(mat_run.spec.schedule)}")
            shop.naive()
        """
    )
    session = shop.stress()
    assert session.outcomes == {ID: "failed", "test_shop.py::test_printing": "failed"}
    assert session.text.count("said under 0") == 1
    assert "said under 1" not in session.text
    assert session.text.count("log under 0") == 1
    assert "log under 1" not in session.text


@pytest.mark.full
def test_skip_and_xfail_keep_their_meaning(shop: Any) -> None:
    shop.tests(
        """
        @pytest.mark.skip(reason="not today")
        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_skipped(mat_run, no_double):
            shop.naive()

        @pytest.mark.xfail(strict=True)
        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_expected_to_fail(mat_run, no_refund):
            shop.naive()

        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_skips(mat_run, no_double):
            shop.naive()
            pytest.skip("not here")

        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_skips_under_a_fault(mat_run, no_double):
            if shop.careful() == "failed":
                pytest.skip("no service")
        """
    )
    session = shop.stress()
    assert session.outcomes == {
        "test_shop.py::test_skipped": "skipped",
        "test_shop.py::test_expected_to_fail": "xfailed",
        "test_shop.py::test_skips": "skipped",
        "test_shop.py::test_skips_under_a_fault": "skipped",
    }
    assert session.code == 0
    assert session.statuses == {"test_shop.py::test_expected_to_fail": "violated", "test_shop.py::test_skips": "failed"}


@pytest.mark.full
def test_a_skip_under_one_fault_does_not_hide_what_another_one_breaks(shop: Any) -> None:
    shop.tests(
        """
        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_refund(mat_run, no_double):
            shop.naive()
            try:
                shop.check("o9")
            except TimeoutError:
                pytest.skip("no service")
        """
    )
    session = shop.stress()
    item = session.items[ID]
    assert session.outcomes == {ID: "failed"}
    assert (item["status"], item["cost"]) == ("counterexample", 4)


@pytest.mark.full
def test_a_fixture_that_fails_under_a_fault_is_an_error_of_the_item(shop: Any) -> None:
    shop.tests(
        """
        @pytest.fixture
        def checked():
            trouble = []
            yield trouble
            assert trouble == []

        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_refund(mat_run, no_double, checked):
            if shop.careful() == "failed":
                checked.append("it failed")

        @pytest.mark.mat(budget=0)
        def test_after(mat_run):
            shop.naive()
        """
    )
    session = shop.stress()
    assert session.outcomes == {ID: "error", "test_shop.py::test_after": "passed"}
    assert session.statuses[ID] == "failed"
    assert "in the search, under service." in session.text


@pytest.mark.full
def test_pytest_exit_ends_the_session(shop: Any) -> None:
    shop.tests(
        """
        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_refund(mat_run, no_double):
            shop.careful()
            if len(mat_run.spec.schedule):
                pytest.exit("enough", returncode=7)

        def test_after(): pass
        """
    )
    session = shop.stress()
    assert session.code == 7
    assert "Exit: enough" in session.text
    assert session.outcomes == {}


@pytest.mark.nightly
def test_an_interrupt_keeps_what_was_found_and_ends_the_session(shop: Any) -> None:
    shop.tests(
        """
        @pytest.mark.mat(budget=8, faults=FAULTS, expect=["no_double"])
        def test_refund(mat_run, no_double):
            shop.naive()
            if len(mat_run.spec.schedule) == 2:
                raise KeyboardInterrupt

        def test_after(): pass
        """
    )
    session = shop.stress(process=True)
    assert session.code == 2
    assert "KeyboardInterrupt" in session.text
    (path,) = shop.replays
    data = json.loads(path.read_text())
    assert (data["cost"], data["certificate"]["proven"]) == (4, False)
    item = session.items[ID]
    assert (item["status"], item["proven"]) == ("expected", False)
    assert item["reason"].startswith("interrupted; cost 7 is complete")
    assert "test_after" not in session.text


@pytest.mark.full
def test_an_interrupt_of_a_reported_run_leaves_the_clock_and_the_randomness_as_they_were(shop: Any) -> None:
    import random
    import time

    shop.tests("def test_refund(mat_run):\n    shop.naive()\n    raise KeyboardInterrupt\n")
    before = (time.sleep, time.monotonic, os.urandom, random.getstate())
    result = shop.pytester.runpytest_inprocess(no_reraise_ctrlc=True)
    assert int(result.ret) == 2
    assert (time.sleep, time.monotonic, os.urandom, random.getstate()) == before


@pytest.mark.full
def test_reports_hold_the_promised_keys(shop: Any) -> None:
    shop.tests(
        STRESSED + "def test_refund(mat_run, no_double): shop.naive()\n\n"
        + STRESSED + "def test_careful(mat_run, no_double): shop.careful()\n"
    )  # fmt: skip
    session = shop.stress("--mat-report", "out.md")
    report = session.report
    assert list(report) == ["mat", "runs", "items", "tables", "counterexamples", "metrics", "curves", "findings"]
    assert [(item["id"], item["status"]) for item in report["items"]] == [
        (ID, "counterexample"), ("test_shop.py::test_careful", "certified"),
    ]  # fmt: skip
    for item in report["items"]:
        assert {"id", "status", "cost", "executions", "bound"} <= set(item)
    assert {"nominal", "faults", "governance", "violations"} <= set(report["tables"])
    (found,) = report["counterexamples"]
    (path,) = shop.replays
    in_file = json.loads(path.read_text())
    assert list(in_file)[:10] == [
        "mat", "verdict", "violations", "signature", "cost", "schedule", "certificate", "spec", "stability", "head",
    ]  # fmt: skip
    certified, in_certificate = found.pop("certificate"), in_file["certificate"]
    assert {**certified, "bound": 0} == {**in_certificate, "bound": 0}
    assert found == {key: in_file[key] for key in found}
    assert set(in_file) - set(found) == {"certificate", "result", "tape", "records"}
    for metric in report["metrics"].values():
        assert set(metric) == {"value", "low", "high", "n", "confidence", "method", "sampling_unit", "population"}
    assert report["metrics"]["nominal.success"]["value"] == 1.0
    text = (shop.path / "out.md").read_text()
    assert "test\\_refund" in text
    assert "no\\_double" in text
