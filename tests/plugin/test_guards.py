"""What takes a proof away is noticed, named, and neither believed nor reported as a counterexample (DESIGN decision 9)."""

from __future__ import annotations

from typing import Any

import pytest

from mat.core import limits
from mat_study.searches import Searches

ID = "test_shop.py::test_refund"

BREAKER = """
import mat
import shop

seen = False


def handle():
    global seen
    {body}
"""
TURNS = """
    if seen:
        seen = False
        return shop.refund("o1")
    try:
        shop.refund("o1")
    except TimeoutError:
        seen = True
"""
RETRIES_LATER = """
    try:
        shop.refund("o1")
    except TimeoutError:
        if seen:
            shop.refund("o1")
        seen = True
"""
RETRIES_ONCE = """
    try:
        shop.refund("o1")
    except TimeoutError:
        if not seen:
            seen = True
            shop.refund("o1")
"""
SEARCHED = """
import breaker

@pytest.mark.mat(budget=8, faults=FAULTS, isolate={isolate!r})
def test_refund(mat_run, no_double):
    breaker.handle()
"""


@pytest.mark.nightly
@pytest.mark.parametrize("isolate", ["none", "fork"])
@pytest.mark.parametrize(("body", "cost"), [(TURNS, None), (RETRIES_LATER, None), (RETRIES_ONCE, 4)])
def test_a_global_that_only_faults_touch_changes_no_answer(shop: Any, body: str, cost: int | None, isolate: str) -> None:
    """Alone, RETRIES_ONCE refunds twice and RETRIES_LATER does not; after another run it is the other way round."""
    shop.write("breaker.py", BREAKER.format(body=body))
    shop.tests(SEARCHED.format(isolate=isolate))
    item = shop.stress().items[ID]
    assert (item["status"], item["cost"], item["proven"]) == ("counterexample" if cost else "certified", cost, True)
    assert "breaker.seen outlives a run and is restored" in item["relative_to"]


@pytest.mark.parametrize(
    ("before", "body"),
    [
        ("import test_other as other", "other.handle()"),
        ("from test_other import handle", "handle()"),
        ("", "import test_other; test_other.handle()"),
    ],
)
def test_a_global_of_another_tests_module_changes_no_answer(shop: Any, before: str, body: str) -> None:
    shop.write("test_other.py", BREAKER.format(body=RETRIES_ONCE) + "\n\ndef test_nothing():\n    pass\n")
    shop.tests(
        f"""
        {before}

        @pytest.mark.mat(budget=8, faults=FAULTS)
        def test_refund(mat_run, no_double):
            {body}
        """
    )
    item = shop.stress().items[ID]
    assert (item["status"], item["cost"], item["proven"]) == ("counterexample", 4, True)
    assert ".seen outlives a run and is restored" in item["relative_to"]


def test_another_tests_module_that_the_walk_does_not_reach_takes_the_search_to_forks(shop: Any) -> None:
    shop.write("test_other.py", BREAKER.format(body=RETRIES_ONCE) + "\n\ndef test_nothing():\n    pass\n")
    shop.tests(
        """
        from importlib import import_module as load

        @pytest.mark.mat(budget=8, faults=FAULTS)
        def test_refund(mat_run, no_double):
            load("_".join(["test", "other"])).handle()
        """
    )
    item = shop.stress(process=True).items[ID]
    assert (item["status"], item["cost"], item["proven"]) == ("counterexample", 4, True)
    assert "test_other.seen outlives a run" in item["relative_to"]


@pytest.mark.full
def test_what_a_reused_test_left_in_another_tests_module_is_put_back(shop: Any) -> None:
    """The test of the other module pays twice where nothing is remembered yet; the one run of the reused one remembers."""
    shop.tests(
        """
        from importlib import import_module as load

        @pytest.mark.mat(budget=8, faults=FAULTS)
        def test_a(mat_run, no_double):
            load("_".join(["test", "other"])).seen = True
            shop.careful()
        """,
        "test_first.py",
    )
    shop.tests(
        """
        seen = False

        def test_nothing_is_left():
            assert not seen

        @pytest.mark.mat(budget=8, faults=FAULTS)
        def test_b(mat_run, no_double):
            global seen
            try:
                shop.refund("o1")
            except TimeoutError:
                if not seen:
                    seen = True
                    shop.refund("o1")
        """,
        "test_other.py",
    )
    assert shop.stress("test_first.py", process=True).items["test_first.py::test_a"]["proven"]
    session = shop.stress("test_first.py", "test_other.py", process=True)
    assert "1 reused" in session.text
    assert session.items["test_other.py::test_b"]["status"] == "counterexample"
    assert "FAILED test_other.py::test_nothing_is_left" not in session.text


@pytest.mark.full
def test_an_interrupted_search_stays_interrupted_though_it_changed_another_tests_module(shop: Any) -> None:
    """Something was found before, so the interrupt ends the search; what the last execution changed is seen at its end."""
    shop.write("test_other.py", "LAST = []\n\n\ndef test_nothing():\n    pass\n")
    shop.tests(
        """
        from importlib import import_module as load

        @pytest.mark.mat(budget=8, faults=FAULTS)
        def test_refund(mat_run, no_double):
            for order in ("o1", "o2"):
                try:
                    shop.refund(order)
                except TimeoutError:
                    if order == "o2":
                        load("_".join(["test", "other"])).LAST.append(1)
                        raise KeyboardInterrupt
                    shop.refund(order)
        """
    )
    session = shop.stress("test_shop.py", "test_other.py", process=True)
    assert session.code == pytest.ExitCode.INTERRUPTED
    assert not session.items[ID]["proven"]


@pytest.mark.full
def test_what_only_a_worker_cannot_put_back_takes_the_search_to_forks(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An iterator that only forks advance, so that the searching process sees nothing of it."""
    shop.write("counting.py", "import itertools\nimport os\n\nnumbers, here = itertools.count(), os.getpid()\n")
    shop.tests(
        """
        import os
        import counting

        @pytest.mark.mat(budget=8, faults=FAULTS)
        def test_refund(mat_run, no_double):
            if os.getpid() != counting.here:
                next(counting.numbers)
            for number in range(4):
                try:
                    shop.refund(f"o{number}")
                except TimeoutError:
                    pass
        """
    )
    search, ways = Searches._search, []

    def searched(self: Searches, *arguments: Any, forked: bool, **named: Any) -> Any:
        ways.append(forked)
        return search(self, *arguments, forked=forked, **named)

    monkeypatch.setattr(Searches, "_search", searched)
    item = shop.stress("--mat-workers", "2").items[ID]
    assert (item["status"], item["proven"]) == ("certified", True)
    assert ways == [False, True]


REMEMBERED = {
    "configuration": (
        "def pytest_configure(config):\n    config.last = []\n",
        "mat_run, no_double, pytestconfig",
        "pytestconfig.last",
    ),
    "attribute of the configuration": (
        "def pytest_configure(config):\n    config.last = []\n",
        "mat_run, no_double, request",
        "request.config.last",
    ),
}


@pytest.mark.parametrize("place", REMEMBERED)
def test_what_pytests_configuration_holds_is_put_back(shop: Any, place: str) -> None:
    conftest, fixtures, last = REMEMBERED[place]
    shop.conftest(conftest)
    shop.tests(
        f"""
        @pytest.mark.mat(budget=8, faults=FAULTS)
        def test_refund({fixtures}):
            try:
                shop.refund("o1")
            except TimeoutError:
                if not {last}:
                    {last}.append(1)
                    shop.refund("o1")
        """
    )
    item = shop.stress().items[ID]
    assert (item["status"], item["cost"], item["proven"]) == ("counterexample", 4, True)
    assert "outlives a run and is restored" in item["relative_to"]


def test_a_conftest_of_which_another_has_taken_the_name_is_put_back(shop: Any) -> None:
    shop.conftest("SEEN = []\n\n\n@pytest.fixture\ndef seen():\n    return SEEN\n")
    shop.write("below/conftest.py", "")
    shop.write("below/test_other.py", "def test_nothing():\n    pass\n")
    shop.tests(
        """
        @pytest.mark.mat(budget=8, faults=FAULTS)
        def test_refund(mat_run, no_double, seen):
            try:
                shop.refund("o1")
            except TimeoutError:
                if not seen:
                    seen.append(1)
                    shop.refund("o1")
        """
    )
    item = shop.stress().items[ID]
    assert (item["status"], item["cost"], item["proven"]) == ("counterexample", 4, True)
    assert "conftest.SEEN outlives a run and is restored" in item["relative_to"]


COUNTED = """
import os
from pathlib import Path

from mat.kernel.isolation import ProcessState

made, kept = ProcessState.__init__, Path(__file__).with_name("processes")


def pytest_sessionstart():
    def make(self, *arguments, **named):
        made(self, *arguments, **named)
        with kept.open("a") as file:
            file.write(f"{os.getpid()}\\n")

    ProcessState.__init__ = make


def pytest_sessionfinish():
    ProcessState.__init__ = made
"""


def test_only_a_process_of_several_executions_compares_its_state(shop: Any) -> None:
    shop.conftest(COUNTED)
    shop.tests(
        """
        @pytest.mark.mat(budget=8, faults=FAULTS)
        def test_refund(mat_run, no_double):
            for number in range(5):
                shop.careful(f"o{number}")
        """
    )
    item = shop.stress().items[ID]
    assert item["proven"]
    assert item["executions"] > 20, "there are schedules that are executed alone, and others"
    compared = (shop.path / "processes").read_text().split()
    assert len(set(compared)) == 3, "the session, and a process for each hash seed"


@pytest.mark.full
def test_a_file_that_outlives_a_run_takes_the_certificate_away(shop: Any) -> None:
    shop.tests(
        """
        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_refund(mat_run, no_double):
            with open("ledger.txt", "a") as ledger:
                ledger.write("o1")
            shop.careful()
        """
    )
    item = shop.stress().items[ID]
    assert (item["status"], item["proven"], item["bound"]) == ("not_proven", False, 0)
    assert item["reason"] == "ledger.txt is written outside of the run, where every execution sees it"


@pytest.mark.full
def test_an_agent_that_counts_in_a_module_is_executed_in_forks(shop: Any) -> None:
    shop.write("counting.py", "import itertools\n\nnumbers = itertools.count()\n")
    shop.tests(
        """
        import counting

        @pytest.mark.mat(budget=8, faults=FAULTS)
        def test_refund(mat_run, no_double):
            shop.refund(f"o{next(counting.numbers)}")
        """
    )
    session = shop.stress()
    item = session.items[ID]
    assert session.outcomes == {ID: "passed"}
    assert (item["status"], item["proven"]) == ("certified", True)
    assert "counting.numbers outlives a run and cannot be restored, so each run was executed in a fork" in item["relative_to"]


@pytest.mark.full
def test_what_is_too_much_to_compare_is_executed_in_forks(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ISOLATED_NODES", 1_000)
    shop.write("register.py", "rows = [[number] for number in range(2_000)]\n")
    shop.tests(
        """
        import register

        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_refund(mat_run, no_double):
            shop.refund("o1")
        """
    )
    item = shop.stress().items[ID]
    assert (item["status"], item["proven"]) == ("certified", True)
    assert (
        "more state than can be compared outlives a run and cannot be restored, so each run was executed in a fork"
        in item["relative_to"]
    )


@pytest.mark.nightly
def test_an_order_taken_from_a_set_is_caught_by_the_fresh_process(shop: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "3")  # an order that the fresh process, with a seed of its own, does not share
    shop.tests(
        """
        @pytest.mark.mat(budget=4, faults=["service.unconfirmed"])
        def test_refund(mat_run, no_late):
            for order in {f"order-{number}" for number in range(40)}:
                try:
                    shop.refund(order)
                except TimeoutError:
                    shop.check(order)

        @pytest.fixture
        def no_late():
            import os
            last = list({f"order-{number}" for number in range(40)})[-1]

            @mat.step_contract(on="tool_call", id="no_late")
            def no_late(record):
                return record.action.name != "check" or record.action.arguments["order"] != "order-7"
            return no_late
        """
    )
    session = shop.stress(process=True)
    item = session.items[ID]
    assert (item["status"], item["proven"]) == ("flaky", False)
    assert "1 failed" in session.text
    assert "fresh process" in item["reason"]
    assert shop.replays == []


@pytest.mark.full
def test_a_pair_whose_first_half_looks_like_another_fault_is_found(shop: Any) -> None:
    """A lost acknowledgement and a time-out look alike to the agent; only the first, with a second fault, breaks it."""
    shop.tests(
        """
        def handle():
            try:
                shop.refund("o1")
            except TimeoutError:
                try:
                    shop.check("o1")
                except TimeoutError:
                    shop.refund("o1")

        @pytest.mark.mat(budget=8, faults=FAULTS)
        def test_refund(mat_run, no_double):
            handle()

        @pytest.mark.mat(budget=7, faults=FAULTS)
        def test_below(mat_run, no_double):
            handle()
        """
    )
    session = shop.stress()
    (found,) = session.report["counterexamples"]
    assert [(step["operator"], step["site"]) for step in found["schedule"]] == [
        ("service.unanswered", "main/service:check#1"),
        ("service.unconfirmed", "main/service:refund#1"),
    ]
    assert found["certificate"]["proven"] is True
    below = session.items["test_shop.py::test_below"]
    assert (below["status"], below["bound"]) == ("certified", 7)


@pytest.mark.nightly
def test_a_thread_of_the_agents_own_takes_turns_and_the_certificate_stands(shop: Any) -> None:
    shop.tests(
        """
        import threading

        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_refund(mat_run, no_double):
            thread = threading.Thread(target=shop.check, args=("o1",))
            thread.start()
            thread.join()
            shop.careful()
        """
    )
    item = shop.stress(process=True).items[ID]  # two sessions in one process would both report the thread
    assert (item["status"], item["proven"]) == ("certified", True)


@pytest.mark.nightly
def test_a_thread_that_virtual_time_does_not_know_takes_the_certificate_away(shop: Any) -> None:
    shop.tests(
        """
        import _thread
        import time

        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_refund(mat_run, no_double):
            done = []

            def check():
                try:
                    shop.check("o1")
                except TimeoutError:
                    pass
                done.append(1)

            _thread.start_new_thread(check, ())
            while not done:
                pass
            shop.careful()
        """
    )
    item = shop.stress().items[ID]
    assert (item["status"], item["proven"]) == ("not_proven", False)
    assert "the run is not controlled (order-not-controlled)" in item["reason"]


@pytest.mark.full
def test_state_that_the_trace_does_not_show_is_caught_by_running_skipped_schedules(shop: Any) -> None:
    """Two faults that leave the same trace, and an agent that looks past it at what a reply carries in addition to its data."""
    shop.conftest(
        """
        from mat.boundary.effect import Replace

        HIDDEN = []

        class Answer(dict):
            amount = None

        def spoil(call, reply, stream):
            answer = Answer(order="o1", fine=False)
            answer.amount = call.parameters["amount"]
            return Replace(answer)

        def pytest_mat_contracts(item):
            return []

        _operators = pytest_mat_operators

        def pytest_mat_operators(config):
            grid = [{"amount": number} for number in range(3)]
            return [*_operators(config), mat.spec.operator("service.spoiled", spoil, grid=grid)]

        @pytest.fixture(autouse=True)
        def hidden():
            HIDDEN.clear()
        """
    )
    shop.tests(
        """
        import conftest

        def handle():
            for order in ("o1", "o2"):
                conftest.HIDDEN.append(getattr(shop.check(order), "amount", None))
            if conftest.HIDDEN == [2, 1]:
                mat.finish("strange")

        @pytest.mark.mat(budget=8, faults=["service.spoiled"], vacuous="no_double")
        def test_hidden(mat_run, no_double):
            handle()

        @pytest.fixture
        def mat_state_digest(request):
            return (lambda: list(conftest.HIDDEN)) if request.node.name == "test_shown" else None

        @pytest.mark.mat(budget=8, faults=["service.spoiled"], vacuous="no_double")
        def test_shown(mat_run, no_double):
            handle()
        """
    )
    items = shop.stress().items
    hidden, shown = items["test_shop.py::test_hidden"], items["test_shop.py::test_shown"]
    assert (hidden["status"], hidden["proven"]) == ("not_proven", False)
    assert "a skipped schedule (" in hidden["reason"]
    assert "write a mat_state_digest fixture" in hidden["reason"]
    assert (shown["status"], shown["bound"]) == ("certified", 8)


@pytest.mark.nightly
def test_an_agent_that_follows_the_order_of_a_set_is_not_certified_even_where_nothing_breaks(
    pytester: Any, monkeypatch: Any
) -> None:
    pytester.makepyfile(
        """
        import mat, pytest

        @mat.tool
        def read(name):
            return name

        @mat.step_contract(on="tool_call")
        def short(record):
            return len(record.action.arguments["name"]) < 9

        @pytest.mark.mat(budget=4, contracts=[short])
        def test_order(mat_run):
            for name in {"ann", "bob", "cid", "dee", "eve", "fay", "gus"}:
                try:
                    read(name)
                except TimeoutError:
                    pass
        """
    )
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    done = pytester.runpytest_subprocess("--mat-stress", "-p", "no:xdist")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["NOT PROVEN test_order: *in a fresh process*"])


SWALLOWS = """
@pytest.mark.mat(budget=4, faults=FAULTS)
def test_refund(mat_run, no_double):
    try:
        shop.refund({order})
    except TimeoutError:
        try:
            shop.refund({again})
        except Exception:
            pass
    except Exception:
        pass
    {more}
"""


@pytest.mark.parametrize("more", ["pass", "assert shop is None"], ids=["goes on", "fails for it"])
def test_a_call_that_cannot_be_recorded_fails_the_test_of_an_agent_that_swallows_the_error(shop: Any, more: str) -> None:
    shop.tests(SWALLOWS.format(order="object()", again='"o1"', more=more))
    for session in (shop.run(), shop.stress()):
        assert session.outcomes == {ID: "failed"}
        assert "parameter 'order' cannot be recorded" in session.failures[ID]


@pytest.mark.full
def test_a_call_that_cannot_be_recorded_under_a_fault_is_no_certificate(shop: Any) -> None:
    shop.tests(SWALLOWS.format(order='"o1"', again="object()", more="pass"))
    session = shop.stress()
    assert session.outcomes == {ID: "failed"}
    assert "parameter 'order' cannot be recorded" in session.failures[ID]
