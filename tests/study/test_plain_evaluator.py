"""A study needs no pytest: its Evaluator is a plain function here, and what comes of it is known by hand.

`pay` takes effect before `service.unconfirmed` raises, and does not before `service.unanswered` does. Each costs 4, which is
the budget. So the agent that retries pays twice under exactly one schedule, and the one that gives up never does.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mat.evidence import replay_file
from mat.measure.workload import Workload
from mat_study.evaluation import Evaluated, Lost, Plan
from mat_study.item import Asked, study
from mat_study.means import Subject
from mat_study.replay import plan_of
from mat_study.settings import ItemSettings

PATH = Path(__file__).with_name("plain.py")
_spec = importlib.util.spec_from_file_location("plain_study", PATH)
assert _spec is not None
assert _spec.loader is not None
plain = importlib.util.module_from_spec(_spec)
sys.modules["plain_study"] = plain
_spec.loader.exec_module(plain)
Plain, retries, gives_up = plain.Plain, plain.retries, plain.gives_up

STRESS = Asked(stress=True)
TASK = Workload(category="tool_use", channels=("email",), tools=("pay",))


def schedule_of(run: Any) -> list[tuple[str, str]]:
    return [(each.operator, str(each.site)) for each in run.spec.schedule]


def saved_in(root: Path) -> list[replay_file.Replay]:
    return [replay_file.read(path) for path in sorted((root / "replays").glob("*"))]


def test_a_study_runs_where_pytest_cannot_be_imported() -> None:
    blocked = "import runpy, sys; sys.modules.update(dict.fromkeys(['pytest', '_pytest', 'pytest_mat'])); "
    run = f"runpy.run_path({str(PATH)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", blocked + run], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert json.loads(done.stdout) == ["counterexample", "certified"]


def test_stress_finds_the_one_schedule_under_which_the_agent_pays_twice(tmp_path: Path) -> None:
    shop = Plain(retries)
    found = shop.study(tmp_path, STRESS, seeds=3)
    assert found.result is not None
    assert found.result.status == "counterexample"
    (each,) = found.result.counterexamples
    assert schedule_of(each.run) == [("service.unconfirmed", "main/service:pay#1")]
    assert (each.cost, each.verdict.contract, each.verdict.step) == (4, "paid.once", 1)
    assert (each.stability.other_seeds, each.stability.shown_on) == (2, (1, 2))
    assert found.failure is not None
    assert found.failure.extra == {"paid.once"}
    (saved,) = saved_in(tmp_path)
    assert (saved.item, schedule_of(saved.counterexample.run), saved.expected) == (plain.ITEM, schedule_of(each.run), False)
    assert found.result.replays == ("replays",)
    assert [name for name in shop.calls if name == "searching"] == ["searching"]
    assert {variant for variant, _ in shop.confirmed} == {"none"}


def test_stress_certifies_the_agent_that_gives_up_to_the_whole_budget(tmp_path: Path) -> None:
    shop = Plain(gives_up)
    found = shop.study(tmp_path, STRESS)
    assert found.result is not None
    assert found.result.status == "certified"
    assert found.result.certificate is not None
    assert (found.result.certificate.proven, found.result.certificate.bound) == (True, 4)
    assert (found.failure, saved_in(tmp_path)) == (None, [])
    assert found.report is not None
    assert [(row.condition, row.cost) for row in found.report.rows] == [("nominal", 0), ("fault", 4), ("fault", 4)]
    searched = {tuple(schedule_of(given)) for given in (_as_run(plan) for plan in shop.plans if plan.mode == "search")}
    pay = "main/service:pay#1"
    assert searched == {(), (("service.unanswered", pay),), (("service.unconfirmed", pay),)}


def _as_run(plan: Plan) -> Any:
    """A plan, as `schedule_of` reads it."""
    return type("Planned", (), {"spec": plan})


@pytest.mark.parametrize(
    ("body", "status", "missing", "expected"),
    [(retries, "expected", None, [True]), (gives_up, "missed", {"paid.once"}, [])],
)
def test_an_expected_counterexample_passes_and_its_absence_fails(
    tmp_path: Path, body: Callable[[Plan], object], status: str, missing: set[str] | None, expected: list[bool]
) -> None:
    shop = Plain(body)
    found = shop.study(tmp_path, STRESS, expect=frozenset({"paid.once"}))
    assert found.result is not None
    assert found.result.status == status
    assert (None if found.failure is None else found.failure.missing) == missing
    assert [each.expected for each in saved_in(tmp_path)] == expected


def test_a_counterexample_that_nobody_expected_fails_whatever_else_is_missing(tmp_path: Path) -> None:
    found = Plain(retries).study(tmp_path, STRESS, expect=frozenset({"other"}))
    assert found.result is not None
    assert found.result.status == "counterexample"
    assert found.failure is not None
    assert (found.failure.extra, found.failure.missing) == ({"paid.once"}, {"other"})


def _twice_on_two_seeds(plan: Plan) -> None:
    for _ in range(2 if plan.seed in (1, 2) else 1):
        gives_up(plan)


def test_all_seeds_run_and_the_first_that_fails_is_the_items(tmp_path: Path) -> None:
    shop = Plain(_twice_on_two_seeds)
    found = shop.study(tmp_path, STRESS, seeds=4)
    assert [(plan.mode, plan.seed) for plan in shop.plans] == [("nominal", seed) for seed in range(4)]
    assert (found.failed_seed, found.reported.plan.seed, found.reported.outcome) == (1, 1, "failed")
    assert found.result is not None
    assert (found.result.status, found.result.executions) == ("violated", 4)
    assert found.report is not None
    assert [row.seed for row in found.report.rows] == [0, 1, 2, 3]


def test_where_somebody_looks_the_seed_that_fails_is_the_last(tmp_path: Path) -> None:
    shop = Plain(_twice_on_two_seeds)
    shop.study(tmp_path, Asked(look=True), seeds=4)
    assert [plan.seed for plan in shop.plans] == [0, 1]


def test_a_gate_counts_the_seeds_that_fail(tmp_path: Path) -> None:
    found = Plain(_twice_on_two_seeds).study(tmp_path, Asked(seeds=(0, 1, 5)))
    assert (found.smoke, found.reported.plan.seed) == (1, 1)
    assert found.result is not None
    assert (found.result.status, found.result.executions) == ("violated", 3)


def test_an_item_whose_first_execution_is_lost_has_no_result(tmp_path: Path) -> None:
    found = Plain(retries, lose=lambda plan: "no database").study(tmp_path, STRESS, seeds=3)
    assert isinstance(found.reported, Lost)
    assert found.reported.why == "no database"
    assert (found.result, found.report, found.failure) == (None, None, None)


def test_an_execution_lost_under_stress_is_the_items_outcome(tmp_path: Path) -> None:
    shop = Plain(gives_up, lose=lambda plan: "no database" if len(plan.schedule) else "")
    found = shop.study(tmp_path, STRESS)
    assert isinstance(found.reported, Lost)
    assert len(found.reported.plan.schedule) == 1
    assert found.result is not None
    assert found.result.status == "failed"
    assert sum(bool(len(plan.schedule)) for plan in shop.plans) == 1


def _careful_if_governed(plan: Plan) -> None:
    (gives_up if plan.variant == "careful" else retries)(plan)


def test_each_variant_is_run_and_searched_and_the_items_own_decides(tmp_path: Path) -> None:
    shop = Plain(_careful_if_governed, variants=("none", "careful"))
    found = shop.study(tmp_path, STRESS, seeds=2)
    assert found.result is not None
    assert found.result.status == "counterexample"
    assert found.report is not None
    rows = [(row.variant, row.cost, row.contract, row.proven) for row in found.report.searches]
    assert rows == [("none", 4, "paid.once", True), ("careful", None, "", True)]
    compared = [(plan.variant, plan.seed) for plan in shop.plans if plan.mode == "compare"]
    assert compared == [("careful", 0), ("careful", 1)]
    assert {row.variant for row in found.report.rows} == {"none"}
    assert {row.variant for row in found.report.governed} == {"none", "careful"}


def test_an_item_lost_under_stress_is_run_under_its_other_variants_all_the_same(tmp_path: Path) -> None:
    def lose(plan: Plan) -> str:
        return "no database" if len(plan.schedule) and plan.variant == "none" else ""

    shop = Plain(gives_up, variants=("none", "careful"), lose=lose)
    found = shop.study(tmp_path, STRESS)
    assert isinstance(found.reported, Lost)
    assert found.report is not None
    assert [row.variant for row in found.report.searches] == ["none", "careful"]
    assert {row.variant for row in found.report.governed} == {"none", "careful"}


def test_a_task_is_measured_under_every_condition_and_what_is_none_is_run_as_usual(tmp_path: Path) -> None:
    found = Plain(retries, task=TASK).study(tmp_path, Asked(evaluate=True), seeds=2)
    assert found.result is not None
    assert found.result.status == "evaluated"
    assert found.report is not None
    rows = [(row.seed, row.condition, bool(row.violations)) for row in found.report.rows]
    each = [("nominal", False), ("fault", False), ("fault", True), ("adversarial", True)]  # operators in their order
    assert rows == [(seed, *row) for seed in (0, 1) for row in each]
    assert [schedule_of(one.run) for one in found.result.counterexamples] == [[("service.unconfirmed", "main/service:pay#1")]]

    plain_test = Plain(retries).study(tmp_path, Asked(evaluate=True))
    assert plain_test.result is not None
    assert plain_test.result.status == "nominal"
    assert [notice.what for notice in plain_test.notices] == ["untasked"]


def _fails_where_it_paid_unknowingly(plan: Plan) -> None:
    plain.LEDGER.clear()
    try:
        plain.pay("o1")
    except TimeoutError:
        if plain.LEDGER:
            raise LookupError("nobody knows that it is paid") from None


def test_where_no_contract_breaks_the_worst_case_is_the_run_that_failed_its_task(tmp_path: Path) -> None:
    found = Plain(_fails_where_it_paid_unknowingly, task=TASK).study(tmp_path, Asked(evaluate=True))
    assert found.report is not None
    rows = [(row.condition, row.success, row.cost) for row in found.report.rows]
    assert rows == [("nominal", True, 0), ("fault", True, 4), ("fault", False, 4), ("adversarial", False, 4)]
    fault, adversarial = found.report.rows[2:]
    assert adversarial.schedule == fault.schedule


@pytest.mark.parametrize(("body", "status"), [(retries, "violated"), (gives_up, "replayed")])
def test_a_counterexample_is_run_again(tmp_path: Path, body: Callable[[Plan], object], status: str) -> None:
    found = Plain(retries).study(tmp_path, STRESS).result
    assert found is not None
    assert found.certificate is not None
    recorded = replay_file.Replay(item=plain.ITEM, counterexample=found.counterexamples[0], certificate=found.certificate)
    again = Plain(body)
    given = again.study(tmp_path, Asked(replay=plan_of(recorded, strict=False, live_calls=None)))
    assert given.result is not None
    assert given.result.status == status
    assert [schedule_of(_as_run(plan)) for plan in again.plans] == [[("service.unconfirmed", "main/service:pay#1")]]


# -- interrupted ----------------------------------------------------------------------------------------------------------


class _Interrupting:
    """A body during whose execution number `at` somebody interrupts."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, plan: Plan) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        retries(plan)


@pytest.mark.full
def test_a_search_that_is_interrupted_anywhere_ends_as_one_that_was_not_and_repeats_nothing(tmp_path: Path) -> None:
    whole = Plain(retries)
    expected = whole.study(tmp_path / "whole", STRESS).result
    for at in range(2, len(whole.plans) + 1):
        root = tmp_path / str(at)
        first, second = Plain(_Interrupting(at)), Plain(retries)
        try:
            assert first.study(root, STRESS).interrupted, at
        except KeyboardInterrupt:  # nothing was found yet
            assert [bool(notice.path) for notice in first.left] == [True], at
        resumed = second.study(root, STRESS)
        (notice,) = resumed.notices
        assert resumed.result == expected, at
        assert notice.recalled == len(first.plans) - 2, at  # the reported one is executed again, and the one that was cut off
        assert len(second.plans) == len(whole.plans) - notice.recalled, at


def test_what_may_have_met_before_an_interruption_is_executed_once_more(tmp_path: Path) -> None:
    """Nobody knows how an execution took place that is kept: its session was ended before it had repeated it alone."""
    expected = Plain(retries).study(tmp_path / "whole", STRESS).result

    def meets(plan: Plan) -> None:
        if len(first.confirmed) == 2:
            raise KeyboardInterrupt
        (gives_up if first.confirmed else retries)(plan)

    first = Plain(meets)
    assert first.study(tmp_path / "cut", STRESS).interrupted
    second = Plain(retries)
    subject = Subject(id=plain.ITEM, task=plain.ITEM, name="test_pay", settings=ItemSettings(budget=4))
    means = second.means(tmp_path / "cut", begin_confirming=lambda variant, batches: False)
    assert study(subject, means, STRESS).result == expected
    assert len(second.confirmed) > len(first.confirmed), "it was used, and not believed"


def test_an_evaluation_that_is_interrupted_goes_on_with_its_next_part(tmp_path: Path) -> None:
    asked = Asked(evaluate=True)
    whole = Plain(retries, task=TASK)
    expected = whole.study(tmp_path / "whole", asked, seeds=2)
    root = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        Plain(_Interrupting(len(whole.plans) - 1), task=TASK).study(root, asked, seeds=2)
    second = Plain(retries, task=TASK)
    resumed = second.study(root, asked, seeds=2)
    assert resumed.report is not None
    assert expected.report is not None
    assert (resumed.result, resumed.report.rows) == (expected.result, expected.report.rows)
    assert [notice.note for notice in resumed.notices] == ["resumed: 5 of 6 cells taken from an interrupted evaluation"]
    assert len(second.plans) < len(whole.plans) // 2 + 2


def test_executions_kept_by_another_search_are_set_aside(tmp_path: Path) -> None:
    assert Plain(_Interrupting(6)).study(tmp_path, STRESS).interrupted
    found = Plain(retries).study(tmp_path, STRESS, budget=8)
    assert [(notice.recalled, notice.note) for notice in found.notices] == [
        (0, "an interrupted search was set aside: it has a different budget")
    ]
    assert isinstance(found.reported, Evaluated)
