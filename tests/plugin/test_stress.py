"""The search through pytest: counterexamples, certificates, expectations, and what is not proven."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import Any

import pytest

NAIVE = """
@pytest.mark.mat(budget=8, faults=FAULTS)
def test_refund(mat_run, no_double):
    shop.naive()
"""
ID = "test_shop.py::test_refund"


@pytest.mark.full
def test_a_counterexample_fails_the_test_and_leaves_a_file_that_a_second_search_writes_again(shop: Any) -> None:
    shop.tests(NAIVE)
    session = shop.stress()
    assert session.outcomes == {ID: "failed"}
    assert session.statuses == {ID: "counterexample"}
    (path,) = shop.replays
    assert path.name.startswith("test_refund-")
    assert path.name.endswith(".mat.json")
    before = path.read_bytes()
    data = json.loads(before)
    assert data["verdict"]["contract"] == "no_double"
    assert data["cost"] == 4
    assert [(item["operator"], item["site"], item["cost"]) for item in data["schedule"]] == [
        ("service.unconfirmed", "main/service:refund#1", 4)
    ]
    assert data["stability"] == {"runs": 3, "reproduced": 3}
    assert data["certificate"]["proven"] is True
    assert data["spec"]["task"] == ID

    file = f"mat_replays/{path.name}"
    assert session.failures[ID] == f"no_double broken, cost 4 (shop.py:22)\n  mat show {file}"

    again = shop.stress("-v")
    assert again.outcomes == {ID: "failed", f"{ID}[replay-{path.name[12:18]}]": "failed"}
    assert shop.replays == [path]
    assert path.read_bytes() == before

    lines = again.failures[ID].splitlines()
    assert lines[0] == "no_double: o1 was refunded twice (shop.py:22)"
    assert "Schedule, cost 4:" in lines
    assert any("service.unconfirmed at main/service:refund#1, cost 4, step 1" in line for line in lines)
    assert any(line.startswith("  No cheaper counterexample exists on this grid: ") for line in lines)
    assert "  It was reproduced in 3 of 3 executions." in lines
    assert any("tool_call refund" in line and "VIOLATES no_double" in line for line in lines)
    assert lines[-1] == f"Replay: pytest --mat-replay mat_replays/{path.name}"


@pytest.mark.nightly
def test_the_search_writes_the_same_files_whatever_replays_there_are(shop: Any) -> None:
    shop.tests(
        """
        import functools

        @functools.cache
        def prices():
            return {"o1": 1, "o2": 2}

        @pytest.mark.parametrize("order", ["o1", "o2"])
        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_refund(mat_run, no_double, order):
            if prices()[order]:
                shop.naive(order=order)
        """
    )
    session = shop.stress()
    written = {path: path.read_bytes() for path in shop.replays}
    assert len(written) == 2
    assert ["prices" in item["relative_to"] for item in session.items.values()] == [True, True]
    again = shop.stress()
    assert len(again.outcomes) == 4
    assert {path: path.read_bytes() for path in shop.replays} == written


@pytest.mark.nightly
def test_the_search_writes_the_same_files_whatever_the_hash_seed(shop: Any) -> None:
    shop.tests(
        """
        @pytest.mark.mat(budget=8, faults=FAULTS)
        @pytest.mark.parametrize("tries", [2, 3])
        def test_refund(mat_run, no_double, tries):
            shop.naive(tries)
        """
    )
    written = []
    for seed in ("1", "2"):
        for path in shop.replays:
            path.unlink()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "--mat-stress", "-q"], cwd=shop.path,
            env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "2 failed" in done.stdout
        written.append({path.name: path.read_bytes() for path in shop.replays})
    assert len(written[0]) == 2
    assert written[0] == written[1]


@pytest.mark.full
def test_a_careful_agent_is_certified_to_the_budget_and_says_so(shop: Any) -> None:
    shop.tests(
        """
        @pytest.mark.mat(budget=8, faults=FAULTS, workload=mat.Workload(category="refunds"))
        def test_refund(mat_run, no_double):
            shop.careful()
        """
    )
    session = shop.stress()
    assert session.outcomes == {ID: "passed"}
    item = session.items[ID]
    assert (item["status"], item["bound"], item["proven"], item["cost"]) == ("certified", 8, True, None)
    assert item["category"] == "refunds"
    assert shop.replays == []
    assert "certified" in session.text


@pytest.mark.nightly
def test_a_budget_below_the_weakness_certifies_to_that_budget_only(shop: Any) -> None:
    pair = """
    @pytest.mark.mat(budget=BUDGET, faults=FAULTS)
    def test_refund(mat_run, no_double):
        for order in ("o1", "o2"):
            try:
                shop.refund(order)
            except TimeoutError:
                pass
        times = sum(record.observation.error is not None for record in mat_run.trace)
        if times == 2:
            shop.refund("o1")
    """
    shop.tests(pair.replace("BUDGET", "7"))
    session = shop.stress()
    assert session.outcomes == {ID: "passed"}
    item = session.items[ID]
    assert (item["status"], item["bound"], item["proven"]) == ("certified", 7, True)
    shop.tests(pair.replace("BUDGET", "8"))
    item = shop.stress().items[ID]
    assert (item["status"], item["cost"]) == ("counterexample", 8)


@pytest.mark.full
def test_a_budget_that_buys_no_fault_proves_nothing(shop: Any) -> None:
    shop.tests(NAIVE.replace("budget=8", "budget=3"))
    item = shop.stress().items[ID]
    assert item["status"] == "vacuous"
    assert item["reason"] == "no operator of the grid can change anything here within the budget of 3"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("expect", "status", "said"),
    [
        (["no_double"], "expected", ""),
        (["no_double", "no_such"], "missed", "no counterexample for no_such, which expect= lists"),
        (["no_such"], "counterexample", "no_double broken, cost 4 (shop.py:22)"),
    ],
)
def test_expect_is_green_only_with_exactly_these_counterexamples(shop: Any, expect: list[str], status: str, said: str) -> None:
    shop.tests(NAIVE.replace("budget=8", f"budget=8, expect={expect}"))
    session = shop.stress()
    assert session.statuses == {ID: status}
    assert session.outcomes == {ID: "passed" if status == "expected" else "failed"}
    assert said in session.failures.get(ID, "")
    if status == "counterexample":
        assert "no counterexample for no_such" in session.failures[ID]
    if status == "missed":
        assert "no_double broken" not in session.failures[ID]


@pytest.mark.full
def test_an_expected_contract_that_the_nominal_run_breaks_is_found_at_cost_0(shop: Any) -> None:
    shop.tests(
        """
        @pytest.mark.mat(budget=4, faults=FAULTS, expect=["no_refund"])
        def test_refund(mat_run, no_refund):
            shop.careful()
        """
    )
    session = shop.stress()
    item = session.items[ID]
    assert (item["status"], item["cost"]) == ("expected", 0)
    (path,) = shop.replays
    assert json.loads(path.read_text())["schedule"] == []
    again = shop.run()
    assert set(again.outcomes.values()) == {"passed"}
    assert len(again.outcomes) == 2


@pytest.mark.nightly
def test_a_body_that_fails_under_a_fault_fails_the_item_only_where_the_task_is_the_objective(shop: Any) -> None:
    shop.tests(
        """
        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_contracts(mat_run, no_double):
            assert shop.careful() == "refunded"

        @pytest.mark.mat(budget=4, faults=FAULTS, objective="task")
        def test_task(mat_run, no_double):
            try:
                assert shop.careful() == "refunded"
            except TimeoutError:
                pass
        """
    )
    session = shop.stress()
    assert session.statuses == {"test_shop.py::test_contracts": "certified", "test_shop.py::test_task": "counterexample"}
    assert session.outcomes == {"test_shop.py::test_contracts": "passed", "test_shop.py::test_task": "failed"}
    assert session.failures["test_shop.py::test_task"].startswith("task.AssertionError@test_shop.py:17 broken, cost 4")
    assert session.items["test_shop.py::test_task"]["cost"] == 4
    (path,) = shop.replays
    again = shop.run()
    assert again.outcomes["test_shop.py::test_contracts"] == "passed"
    assert again.outcomes[f"test_shop.py::test_task[replay-{path.name[10:16]}]"] == "failed"
    shop.write("shop.py", (shop.path / "shop.py").read_text().replace('return "failed"', 'return "refunded"'))
    assert set(shop.run().outcomes.values()) == {"passed"}


def test_an_item_that_crosses_no_boundary_is_vacuous(shop: Any) -> None:
    shop.tests(
        """
        def test_nothing(mat_run):
            pass

        @pytest.mark.mat(vacuous="no_double")
        def test_allowed(mat_run, no_double):
            pass
        """
    )
    session = shop.stress()
    assert {(item["status"], item["reason"]) for item in session.items.values()} == {("vacuous", "no boundary is crossed")}
    assert set(session.outcomes.values()) == {"passed"}


@pytest.mark.full
def test_a_search_that_reaches_its_limit_passes_as_not_proven_with_the_reason(shop: Any) -> None:
    shop.tests(
        """
        @pytest.mark.mat(budget=8, faults=FAULTS, search=mat.Search(max_runs=2))
        def test_refund(mat_run, no_double):
            shop.careful()
        """
    )
    session = shop.stress()
    item = session.items[ID]
    assert session.outcomes == {ID: "passed"}
    assert item["status"] == "not_proven"
    assert item["reason"].startswith("2 executions do not cover the budget of 8; cost 3 is complete, nothing found; ")


@pytest.mark.full
def test_a_search_out_of_time_passes_as_not_proven_with_the_reason(shop: Any) -> None:
    shop.tests(NAIVE.replace("naive", "careful"))
    session = shop.stress("--mat-timeout=0")
    item = session.items[ID]
    assert session.outcomes == {ID: "passed"}
    assert item["status"] == "not_proven"
    assert item["reason"].startswith(
        "--mat-timeout: the limit of 0.0 s is reached; cost 3 is complete, nothing found; cost 4: 0%"
    )


@pytest.mark.nightly
def test_random_search_finds_and_shrinks_but_proves_nothing(shop: Any) -> None:
    shop.tests(NAIVE.replace("budget=8", 'budget=4, search=mat.Search(strategy="random", max_runs=60)'))
    session = shop.stress()
    item = session.items[ID]
    assert (item["status"], item["cost"], item["proven"]) == ("counterexample", 4, False)
    shop.replays[0].unlink()
    shop.tests(
        NAIVE.replace("budget=8", 'budget=8, search=mat.Search(strategy="random", max_runs=60)').replace("naive", "careful")
    )
    assert shop.stress().items[ID]["status"] == "not_proven"


@pytest.mark.full
def test_counterexamples_of_the_first_seed_are_tried_on_the_others(shop: Any) -> None:
    shop.tests(
        """
        from pathlib import Path

        SEEN = Path(".mat", "seen")  # in a folder that holds nothing of a program's state
        SEEN.parent.mkdir(exist_ok=True)

        @pytest.mark.mat(budget=4, seeds=3, faults=FAULTS)
        def test_refund(mat_run, no_double):
            shop.naive()
            with SEEN.open("a") as stream:
                print(mat_run.seed, len(mat_run.spec.schedule), file=stream)

        def test_seen():
            assert set(SEEN.read_text().splitlines()) == {f"{seed} {size}" for seed in range(3) for size in range(2)}
        """
    )
    session = shop.stress()
    assert session.outcomes == {ID: "failed", "test_shop.py::test_seen": "passed"}


def test_an_item_that_fails_without_faults_is_not_searched(shop: Any) -> None:
    shop.tests(
        """
        @pytest.mark.mat(budget=8, faults=FAULTS)
        def test_refund(mat_run, no_refund):
            shop.naive()
        """
    )
    session = shop.stress()
    assert session.statuses == {ID: "violated"}
    assert session.items[ID]["executions"] == 1
    assert shop.replays == []


@pytest.mark.full
def test_a_plugin_sees_the_result_of_a_searched_item(shop: Any) -> None:
    shop.tests(NAIVE.replace("naive", "careful"))
    seen = []

    class Watcher:
        def pytest_mat_item_finished(self, item: pytest.Item, result: Any) -> None:
            seen.append((item.nodeid, result.status, result.certificate.bound))

    shop.stress(plugins=(Watcher(),))
    assert seen == [(ID, "certified", 8)]


@pytest.mark.nightly
@pytest.mark.parametrize("stop", ["first", "cheapest", "budget"])
def test_a_search_that_was_told_to_stop_early_says_what_it_left(shop: Any, stop: str) -> None:
    shop.tests(NAIVE)
    session = shop.stress("--mat-stop", stop)
    found = session.items[ID]
    assert (found["status"], found["cost"], found["proven"]) == ("counterexample", 4, True)
    assert (found["bound"] < 8) == (stop != "budget")
    left = f"stop={stop}: schedules that cost more than {found['bound']} were not searched"
    assert found["reason"] == (left if stop != "budget" else "")
    assert (left in session.text) == (stop != "budget")


@pytest.mark.full
def test_the_live_line_is_for_terminals_only(shop: Any) -> None:
    shop.tests(NAIVE.replace("naive", "careful"))
    session = shop.stress()
    assert "\r" not in session.text


@pytest.mark.full
def test_a_wrong_argument_that_an_option_overrides_leaves_the_search_without_a_proof(shop: Any) -> None:
    """The fresh process that confirms does not get the option: it has no run to give, and says so."""
    shop.tests(NAIVE.replace("naive", "careful").replace("budget=8", "budget=-1"))
    session = shop.stress("--mat-budget", "2")
    assert session.outcomes == {ID: "passed"}
    assert session.statuses == {ID: "not_proven"}
    why = "marker mat: budget=-1 is not an integer >= 0"
    assert session.items[ID]["reason"] == f"the nominal run could not be executed in a fresh process: {why}"


SERVER = """
import socket

@pytest.fixture(scope="session", autouse=True)
def server():
    with socket.create_server(("127.0.0.1", {port})):
        yield
"""


@pytest.mark.full
def test_a_fixture_that_fails_in_a_fresh_process_is_named_with_its_exception(shop: Any) -> None:
    """A server at a fixed port: the fresh process cannot have the port while this one has it."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    shop.tests(NAIVE.replace("naive", "careful") + SERVER.format(port=port))
    session = shop.stress(process=True)
    assert session.statuses == {ID: "not_proven"}
    why = "the nominal run could not be executed in a fresh process: set-up failed: OSError: [Errno "
    assert session.items[ID]["reason"].startswith(why)
    assert "in use" in session.items[ID]["reason"]
