"""What arms a test, with which settings and contracts; and what a user's mistakes there look like."""

from __future__ import annotations

from typing import Any

import pytest

import mat
from mat_study.settings import settings_from


def test_every_problem_of_a_marker_is_reported_at_once(shop: Any) -> None:
    shop.tests(
        """
        @pytest.mark.mat(3, sedes=2, budget=-1, objective="tusk", horizon=True, search=mat.Search(strategy="bean"))
        def test_refund(mat_run):
            shop.naive()

        def test_other():
            pass
        """
    )
    session = shop.run()
    assert session.outcomes == {"test_shop.py::test_refund": "error", "test_shop.py::test_other": "passed"}
    said = session.failures["test_shop.py::test_refund"]
    for part in (
        "marker mat: its arguments must be passed by name",
        "unknown argument 'sedes'; did you mean 'seeds'?",
        "budget=-1 is not an integer >= 0",
        "horizon=True is not an integer >= 1",
        "objective='tusk' is not one of contracts, task",
        "strategy='bean' is not one of exhaustive, anytime,",
        "fix: correct the marker; its arguments are seeds, budget,",
        "where: test_shop.py::test_refund",
    ):
        assert part in said
    assert "Traceback" not in said
    assert "pytest_mat/" not in said


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ("faults=3", "faults=3 is not a list of operator ids"),
        ("expect=[3]", "expect=[3] is not a list of contract ids"),
        ("contracts=3", "contracts=3 is not a list of contracts"),
        ("workload=mat.Workload(category=3)", "category=3 is not a string"),
        ("workload=3", "workload=3 is not a mat.Workload"),
        ("search='random'", "search='random' is not a mat.Search"),
        ("search=mat.Search(max_runs=0, stop='now')", "max_runs=0 is not an integer >= 1; stop='now' is not one of budget,"),
        ("category='policy'", "unknown argument 'category'; write workload=mat.Workload(category=...)"),
        (
            "strategie='random'",
            "unknown argument 'strategie'; did you mean 'strategy', as in search=mat.Search(strategy=...)?",
        ),
        ("search=mat.Search(target=2)", "target=2 is not a share between 0 and 1"),
        ("search=mat.Search(target='much')", "target='much' is not a share between 0 and 1"),
        ("governance=3", "governance=3 is not a string"),
        ("clock='wall'", "clock='wall' is not one of virtual, real"),
    ],
)
def test_a_marker_argument_of_the_wrong_type_is_named(shop: Any, argument: str, problem: str) -> None:
    shop.tests(f"@pytest.mark.mat({argument})\ndef test_refund():\n    shop.naive()\n")
    session = shop.run()
    assert session.outcomes == {"test_shop.py::test_refund": "error"}
    assert problem in session.failures["test_shop.py::test_refund"]


def test_a_nearer_marker_gives_a_search_back_its_default_and_keeps_what_it_does_not_name() -> None:
    outer = {"search": mat.Search(strategy="random", max_runs=7), "workload": mat.Workload(category="policy", tools=["pay"])}
    inner = {"search": mat.Search(strategy="exhaustive"), "workload": mat.Workload(category="misuse")}
    found = settings_from([((), outer), ((), inner)], overrides={}, defaults={"stop": "first", "max_runs": 9, "seeds": 4})
    assert (found.strategy, found.max_runs, found.stop, found.seeds) == ("exhaustive", 7, "first", 4)
    assert (found.workload.category, list(found.workload.tools)) == ("misuse", ["pay"])
    assert settings_from([((), outer)], overrides={"strategy": "beam", "seeds": 2}, defaults={"seeds": 4}).strategy == "beam"


def test_nearer_markers_win_and_contracts_add_up(shop: Any) -> None:
    shop.tests(
        """
        @mat.step_contract(on="tool_call")
        def outer(record): return True

        @mat.step_contract(on="tool_call")
        def inner(record): return True

        pytestmark = pytest.mark.mat(seeds=3, contracts=[outer], workload=mat.Workload(category="module"))

        @pytest.mark.mat(workload=mat.Workload(category="class"))
        class TestShop:
            @pytest.mark.mat(seeds=2, contracts=[inner])
            def test_both(self, mat_run):
                assert mat_run.spec.config["contracts"] == ["inner:hard", "outer:hard"]
                shop.naive()

        def test_module(mat_run):
            assert mat_run.spec.config["contracts"] == ["outer:hard"]
            shop.naive()
        """
    )
    session = shop.run()
    assert session.outcomes == {"test_shop.py::TestShop::test_both": "passed", "test_shop.py::test_module": "passed"}
    found = {name: (item["executions"], item["category"]) for name, item in session.items.items()}
    assert found == {"test_shop.py::TestShop::test_both": (2, "class"), "test_shop.py::test_module": (3, "module")}


@pytest.mark.full
def test_the_command_line_overrides_markers(shop: Any) -> None:
    shop.tests(
        """
        @pytest.mark.mat(seeds=3, horizon=100, budget=0, search=mat.Search(strategy="exhaustive"))
        def test_refund(mat_run, no_double):
            assert mat_run.spec.horizon_steps == 50
            shop.careful()
        """
    )
    options = ("--mat-seeds=2", "--mat-horizon=50", "--mat-budget=4", "--mat-strategy=random", "--mat-max-runs=5")
    session = shop.stress(*options)
    item = session.items["test_shop.py::test_refund"]
    assert session.code == 0
    assert item["status"] == "not_proven"
    assert item["reason"] == "5 executions do not cover the budget of 4"


def test_contracts_come_from_fixtures_overrides_marker_and_hook_each_once(shop: Any) -> None:
    shop.conftest(
        """
        def made(name):
            return mat.step_contract(on="tool_call", id=name)(lambda record: True)

        SHARED = made("shared")

        @pytest.fixture
        def mat_contracts():
            return [made("from.directory"), SHARED]

        @pytest.fixture
        def several():
            return [made("from.list.1"), made("from.list.2")]

        def pytest_mat_contracts(item):
            return [made("from.hook"), SHARED]
        """
    )
    shop.tests(
        """
        @pytest.mark.mat(contracts=[mat.step_contract(id="from.marker")(lambda record: True)])
        def test_all(mat_run, no_double, several):
            assert mat_run.spec.config["contracts"] == [
                "from.directory:hard", "from.hook:hard", "from.list.1:hard", "from.list.2:hard", "from.marker:hard",
                "no_double:hard", "shared:hard",
            ]
        """
    )
    shop.tests(
        """
        @pytest.fixture
        def mat_contracts(mat_contracts):
            return [*mat_contracts, mat.step_contract(id="from.module")(lambda record: True)]

        def test_module(mat_run):
            assert mat_run.spec.config["contracts"] == [
                "from.directory:hard", "from.hook:hard", "from.module:hard", "shared:hard",
            ]
        """,
        name="test_module.py",
    )
    session = shop.run()
    assert session.failures == {}
    assert session.outcomes == {"test_shop.py::test_all": "passed", "test_module.py::test_module": "passed"}


@pytest.mark.full
def test_operators_of_the_hook_are_searched(shop: Any) -> None:
    shop.tests(
        """
        @pytest.mark.mat(faults=["service.unconfirmed"], expect=["no_double"])
        def test_refund(mat_run, no_double):
            shop.naive()
        """
    )
    session = shop.stress()
    (found,) = session.report["counterexamples"]
    assert [step["operator"] for step in found["schedule"]] == ["service.unconfirmed"]
    assert session.statuses == {"test_shop.py::test_refund": "expected"}


def test_a_requested_contract_arms_a_test_without_marker_and_without_mat_run(shop: Any) -> None:
    shop.tests(
        """
        def test_breaks(no_refund):
            shop.naive()

        def test_keeps(no_double):
            shop.naive()

        @pytest.fixture
        def both(no_refund, no_double):
            return [no_refund, no_double]

        def test_in_a_list(both):
            shop.naive()
        """
    )
    session = shop.run()
    assert session.outcomes == {
        "test_shop.py::test_breaks": "failed",
        "test_shop.py::test_keeps": "passed",
        "test_shop.py::test_in_a_list": "failed",
    }
    assert session.failures["test_shop.py::test_breaks"].startswith("no_refund: no_refund does not hold")


@pytest.mark.full
def test_of_a_test_that_only_requests_a_contract_the_body_alone_is_in_the_world_and_nothing_of_it_stays(shop: Any) -> None:
    shop.conftest(
        """
        def pytest_sessionfinish(session):
            from pytest_mat.execution import EXECUTION
            for item in session.items:
                assert EXECUTION not in item.stash
        """
    )
    shop.tests(
        """
        def is_real():
            return time.sleep is __import__("mat.kernel.clock").kernel.clock.real_sleep

        @pytest.fixture
        def around():
            assert is_real()
            yield
            assert is_real()

        def test_keeps(around, no_double):
            assert not is_real()
            shop.naive()
        """
    )
    for session in (shop.run(), shop.stress("--mat-budget=1")):
        assert session.outcomes == {"test_shop.py::test_keeps": "passed"}
        assert session.code == pytest.ExitCode.OK


@pytest.mark.full
def test_the_body_goes_on_in_the_world_that_its_fixtures_were_made_in(shop: Any) -> None:
    shop.tests(
        """
        import random

        @pytest.fixture
        def before():
            time.sleep(30)
            return time.monotonic(), random.random()

        def test_refund(mat_run, no_double, before):
            then, drawn = before
            assert time.monotonic() == then
            assert random.random() != drawn
            shop.naive()
        """
    )
    for session in (shop.run(), shop.stress("--mat-budget=1")):
        assert session.outcomes == {"test_shop.py::test_refund": "passed"}


def test_a_plain_test_runs_once_whatever_the_options(shop: Any) -> None:
    shop.tests(
        """
        runs = []

        def test_plain(tmp_path):
            runs.append(1)

        def test_runs():
            assert runs == [1]
        """
    )
    session = shop.stress("--mat-seeds=3")
    assert session.outcomes == {"test_shop.py::test_plain": "passed", "test_shop.py::test_runs": "passed"}


def test_a_plain_test_is_left_alone(shop: Any) -> None:
    shop.tests(
        """
        import random, uuid

        def test_plain():
            state = random.getstate()
            assert time.sleep is __import__("mat.kernel.clock").kernel.clock.real_sleep
            assert shop.naive() == "refunded"
            assert random.getstate() == state
        """
    )
    session = shop.stress()
    assert session.outcomes == {"test_shop.py::test_plain": "passed"}
    assert session.items == {}


# -- mistakes -----------------------------------------------------------------------------------------------------------


def test_an_option_that_is_misspelt_is_refused_with_the_nearest_and_others_are_pytests(shop: Any) -> None:
    shop.tests("def test_plain():\n    pass\n")
    for option, said in (("--mat-stres", "did you mean '--mat-stress'?"), ("--mad-stress", "unrecognized arguments")):
        result = shop.pytester.runpytest_inprocess(option)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert said in result.stderr.str()


@pytest.mark.parametrize("mode", ["run", "stress"])
def test_an_unknown_operator_fails_its_item_and_names_the_nearest(shop: Any, mode: str) -> None:
    shop.tests(
        """
        @pytest.mark.mat(faults=["service.unanswred"])
        def test_refund(no_double):
            shop.naive()

        def test_other():
            pass
        """
    )
    session = getattr(shop, mode)()
    assert session.outcomes["test_shop.py::test_other"] == "passed"
    assert session.outcomes["test_shop.py::test_refund"] == "failed"
    assert "memory." not in session.text
    said = session.failures["test_shop.py::test_refund"]
    assert "unknown operator: 'service.unanswred'; did you mean 'service.unanswered'?" in said
    assert "fix: " in said
    assert "INTERNALERROR" not in session.text


@pytest.mark.full
def test_a_contract_that_cannot_judge_fails_its_test_nominally_and_under_a_schedule(shop: Any) -> None:
    shop.tests(
        """
        @pytest.fixture
        def broken():
            return mat.step_contract(on="tool_call", id="broken")(lambda record: record.no_such_field)

        @pytest.fixture
        def reads_replies():
            return mat.step_contract(on="tool_call", id="reads")(lambda record: len(record.observation.value) > 0)

        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_always(broken):
            assert shop.careful() in ("refunded", "failed")

        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_without_a_reply(reads_replies):
            assert shop.careful() in ("refunded", "failed")
        """
    )
    plain = shop.run()
    assert plain.outcomes == {"test_shop.py::test_always": "failed", "test_shop.py::test_without_a_reply": "passed"}
    assert "could not be judged: AttributeError" in plain.text
    session = shop.stress()
    assert session.items["test_shop.py::test_without_a_reply"]["status"] == "counterexample"
    assert "could not be judged: TypeError: object of type 'NoneType' has no len()" in session.text
    assert shop.run().outcomes["test_shop.py::test_without_a_reply"] == "passed"
    assert [name for name, said in shop.run().outcomes.items() if "replay-" in name and said == "passed"] == []


def test_what_is_no_contract_is_refused_with_its_source(shop: Any) -> None:
    shop.tests(
        """
        @pytest.fixture
        def mat_contracts():
            return [3]

        def test_refund(mat_run):
            shop.naive()
        """
    )
    said = shop.run().failures["test_shop.py::test_refund"]
    assert "mat_contracts" in said
    assert "int" in said
    assert "fix: use a list of contracts" in said


def test_two_contracts_with_one_id_are_refused(shop: Any) -> None:
    shop.tests(
        """
        @pytest.fixture
        def mat_contracts():
            return [mat.step_contract(id="same")(lambda record: flag) for flag in (True, False)]

        def test_refund(mat_run):
            shop.naive()
        """
    )
    said = shop.run().failures["test_shop.py::test_refund"]
    assert "same" in said
    assert "fix: " in said


def test_an_argument_without_canonical_form_names_the_parameter(shop: Any) -> None:
    shop.tests(
        """
        def test_refund(mat_run):
            shop.check(object())

        def test_other(mat_run):
            shop.check("o1")
        """
    )
    session = shop.run()
    assert session.outcomes == {"test_shop.py::test_refund": "failed", "test_shop.py::test_other": "passed"}
    said = session.failures["test_shop.py::test_refund"]
    assert "order" in said
    assert "why: " in said
    assert "fix: " in said


@pytest.mark.parametrize(
    ("option", "name"), [("report", "out.doc"), ("report", "out"), ("report", "shop.py/out.json"), ("store", "shop.py")]
)
def test_what_cannot_be_written_is_refused_before_the_session(shop: Any, option: str, name: str) -> None:
    shop.tests("def test_refund(mat_run): shop.naive()\n")
    result = shop.pytester.runpytest_inprocess(f"--mat-{option}={name}")
    assert int(result.ret) == 4
    result.stderr.fnmatch_lines([f"*--mat-{option}*{name}*"])
    result.stdout.no_fnmatch_line("*passed*")


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("--mat-strategy=bean", "--mat-strategy"),
        ("--mat-budget=-1", "--mat-budget"),
        ("--mat-governance=none,,shield", "--mat-governance"),
    ],
)
def test_a_bad_option_is_refused_before_the_session(shop: Any, option: str, problem: str) -> None:
    shop.tests("def test_refund(mat_run): shop.naive()\n")
    result = shop.pytester.runpytest_inprocess(option)
    assert int(result.ret) == 4
    result.stderr.fnmatch_lines([f"*{problem}*"])


def test_rates_of_faults_follow_the_rules_of_the_armed_containment(shop: Any) -> None:
    shop.tests(
        """
        from mat_contracts import containment

        calls = []

        @mat.tool
        def flaky():
            calls.append(1)
            if len(calls) == 1:
                raise TimeoutError("slow")
            return "fine"

        @pytest.fixture
        def patient(): return containment(mitigate_within=5, severity="soft")

        @pytest.fixture
        def hasty(): return containment(detect_within=2, mitigate_within=2, severity="soft")

        def slowly():
            calls.clear()
            try:
                flaky()
            except TimeoutError:
                shop.check("a"); shop.check("b"); shop.check("c")
                flaky()

        def test_patient(mat_run, patient): slowly()

        def test_hasty(mat_run, hasty): slowly()
        """
    )
    for name, mitigated in (("patient", 1.0), ("hasty", 0.0)):
        (line,) = shop.run("-k", f"test_{name}").report["tables"]["faults"]
        assert (line["operator"], line["mitigated"]["value"]) == ("observed.timeout", mitigated)
