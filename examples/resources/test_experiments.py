"""The experiments show what they are meant to show: limits hold, ledger laws are kept, loops end."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import mat
from resources import clarification, code_review, crisis, research, strategy
from resources.measured import paired, variance_ratio
from resources.promises import laws, promises
from resources.scripted import left, luck, reply

HERE = Path(__file__).parent
LAWS = {contract.id for contract in laws()}


@pytest.fixture(scope="session")
def reviewed():
    return code_review.experiment(promises())


@pytest.fixture(scope="session")
def researched():
    return research.experiment(promises())


@pytest.fixture(scope="session")
def answered():
    return strategy.experiment(promises())


@pytest.fixture(scope="session")
def stated():
    return crisis.experiment(promises())


@pytest.fixture(scope="session")
def clarified():
    return clarification.experiment(promises())


def broken(trials):
    return {name for trial in trials for name in trial.violations}


class TestCodeReview:
    def test_both_conditions_have_the_same_seventy_tasks(self, reviewed):
        assert [item.task for item in reviewed.uncontracted] == [item.task for item in reviewed.contracted]
        assert [[item.group for item in reviewed.contracted].count(group) for group in ("easy", "medium")] == [31, 39]

    def test_no_run_under_contract_goes_beyond_its_limits_told_or_not(self, reviewed):
        for side in (reviewed.contracted, reviewed.deaf):
            assert max(item.tokens for item in side) <= 50_000
            assert max(item.iterations for item in side) == 3
            assert max(item.model_calls for item in side) == 6
            assert broken(side) == set()

    def test_without_one_runs_do(self, reviewed):
        assert max(item.tokens for item in reviewed.uncontracted) > 50_000
        assert max(item.iterations for item in reviewed.uncontracted) == code_review.LONGEST

    def test_tokens_vary_less_under_contract(self, reviewed):
        spent = [[item.tokens for item in side] for side in (reviewed.uncontracted, reviewed.contracted)]
        for method in ("percentile", "bca"):
            found = variance_ratio(*spent, method=method)
            assert 1 < found.low < found.value < found.high

    def test_programs_are_executed_and_wrong_ones_are_found(self):
        task = code_review.tasks()[0]
        steps = code_review.steps_of(task.statement)
        bench = code_review.Bench(task)
        assert bench.test_code(code_review.program(steps))["failed"] == 0
        for place, (kind, n) in enumerate(steps):
            wrong = [*steps[:place], (kind, n + 1), *steps[place + 1 :]]
            assert bench.test_code(code_review.program(wrong))["failed"] > 0
        assert code_review.run_program("def solve(numbers: return 1", [1]) == "SyntaxError"
        assert code_review.run_program("def solve(numbers): return open('x')", [1]) == "NameError"

    @pytest.mark.mat(faults=["model.token_overrun", "service.timeout"], budget=5)
    def test_a_review_spends_nothing_after_its_end(
        self, mat_run, budget_is_conserved, contracts_end_once, nothing_is_spent_after_the_end
    ):
        task = code_review.tasks()[40]
        with mat.budget.contracted(code_review.REVIEW, agent="coder") as work:
            source = code_review.Pair(task, work).solve()
        assert work.node.ended
        assert "def solve" in source


class TestResearch:
    def test_conservation_holds_in_all_fifty_topics(self, researched):
        assert [item.task for item in researched.contracted] == list(research.TOPICS)
        assert broken(researched.contracted) & LAWS == set()

    def test_only_the_runaway_overran_its_budget(self, researched):
        assert [item.task for item in researched.contracted if item.violations] == [research.RUNAWAY]

    def test_nobody_searches_more_often_than_the_contract_says(self, researched):
        assert max(item.iterations for item in researched.contracted) <= research.SEARCHES
        assert max(item.iterations for item in researched.uncontracted) > research.SEARCHES
        assert any("tool:web_search" in item.blocked for item in researched.contracted)

    def test_the_runaway_is_halted_and_nobody_after_it_begins(self, researched):
        records = researched.runaway.records
        halted = next(record.step for record in records if record.action.name == "violated")
        assert records[halted].action.arguments["overrun"]["tokens"] >= research.RUNAWAY_TOKENS - 40_000
        later = [record for record in records[halted:] if record.action.kind in ("model_call", "tool_call")]
        contracts = {entry["contract"] for record in later if (entry := record.observation.charged)}
        assert contracts == {"researcher#2", "analyzer#2", "reporter#1"}
        assert "analyzer#1 is terminated at 0 tokens: researcher#1, which comes before it, is violated" in "\n".join(
            research.incident(researched.runaway)
        )

    def test_what_is_divided_after_the_runaway_is_what_it_has_left(self, researched):
        given = {
            record.action.arguments["contract"]: record.action.arguments["allocations"]
            for record in researched.runaway.records if record.action.name == "activated"
        }  # fmt: skip
        again = sum(given[name]["project#1"]["tokens"] for name in ("researcher#2", "analyzer#2", "reporter#1"))
        assert again <= 100_000 - 10_000 - research.RUNAWAY_TOKENS

    def test_without_a_contract_nobody_notices(self, researched):
        free, bound = (
            next(item for item in side if item.task == research.RUNAWAY)
            for side in (researched.uncontracted, researched.contracted)
        )
        assert free.ended != "horizon"
        assert free.quality < research.GOOD <= bound.quality
        assert bound.tokens <= 100_000

    @pytest.mark.mat(faults=["model.token_overrun", "order.hold"], budget=6)
    def test_a_pipeline_conserves_its_budget_when_replies_get_out_of_hand(
        self, mat_run, budget_is_conserved, contracts_end_once, nothing_is_spent_after_the_end
    ):
        try:
            research.contracted("health-03")
        except mat.budget.BudgetSpent:  # both attempts were overrun: there is no report, so a person takes over
            mat.mitigate("escalate", reason="no budget is left")


class TestModes:
    def test_more_effort_takes_more_tokens_and_finds_more(self, answered):
        for modes in answered.values():
            thought = [sum(item.reasoning_tokens for item in modes[name]) for name in ("urgent", "economical", "balanced")]
            right = [sum(item.success for item in modes[name]) for name in ("urgent", "economical", "balanced")]
            assert thought == sorted(thought)
            assert thought[0] == 0
            assert right == sorted(right)

    def test_what_comes_after_the_deadline_is_worth_nothing_and_takes_no_longer(self, answered):
        late = [item for modes in answered.values() for trials in modes.values() for item in trials if "expired" in item.states]
        assert late
        assert not any(item.success for item in late)
        for version, modes in answered.items():
            for name, trials in modes.items():
                assert max(item.seconds for item in trials) <= strategy.MODES[version][name].duration_s + 0.001

    def test_no_law_is_broken_by_being_late(self, answered):
        trials = [item for modes in answered.values() for trials in modes.values() for item in trials]
        assert broken(trials) == {"limit.time"}

    def test_puzzles_have_one_solution(self):
        for puzzle in strategy.puzzles():
            assert sum(puzzle.holds(number) for number in range(puzzle.bound)) == 1


class TestCrisis:
    def test_who_is_never_content_is_stopped_by_the_horizon_with_nothing_to_show(self, stated):
        stuck = next(item for item in stated.uncontracted if item.task == crisis.DILEMMA)
        assert (stuck.ended, stuck.success, stuck.quality) == ("horizon", False, 0.0)

    def test_under_contract_everything_is_submitted(self, stated):
        assert all(item.success and item.ended != "horizon" for item in stated.contracted)
        freed = next(item for item in stated.contracted if item.task == crisis.DILEMMA)
        assert freed.quality >= crisis.LEAST
        assert max(item.iterations for item in stated.contracted) <= 4

    def test_what_is_fulfilled_has_the_quality_that_the_contract_asks_for(self, stated):
        for item in stated.contracted:
            assert (item.states == ("fulfilled",)) == (item.quality >= crisis.LEAST)

    def test_points_that_exclude_each_other_are_never_both_there(self):
        draft, everything = "", list(range(crisis.POINTS))
        for attempt in range(1, 30):
            draft = crisis.compose("", crisis.DILEMMA, attempt, draft, everything)["text"]
            assert crisis.quality(draft) < 1


class TestClarification:
    def test_without_a_contract_it_goes_on_for_eleven_days(self, clarified):
        assert clarified.uncontracted.ended == "horizon"
        assert clarified.uncontracted.days == pytest.approx(clarification.DAYS, abs=0.01)

    def test_the_budget_stops_it_before_the_first_call_that_might_not_fit(self, clarified):
        assert clarified.contracted.money <= 50_000_000
        assert 50_000_000 - clarified.contracted.money < clarification.MOST_MONEY * 1_000_000
        assert clarified.stopped.startswith("money of research#1")
        assert clarified.contracted.money < clarified.uncontracted.money

    def test_no_law_is_broken_by_it(self, clarified):
        assert clarified.violations == ()


class TestStandingContract:
    """The same loop as a test: the governance of its run has a contract with a budget of 1 money."""

    @pytest.fixture
    def mat_governance(self):
        return mat.policy.Governance(name="budget", contracts={"*": replace(clarification.RESEARCH, budgets={"money": 1})})

    @pytest.mark.mat(faults=["model.token_overrun"], budget=6, expect={"budgets.kept"})
    def test_only_a_reply_out_of_hand_overruns_what_was_reserved_for_it(
        self, mat_run, budget_is_conserved, budgets_are_kept, contracts_end_once, nothing_is_spent_after_the_end
    ):
        with pytest.raises(mat.budget.BudgetSpent):
            clarification.talk()


def test_a_paired_difference_has_both_intervals_and_a_test():
    found = paired([10.0, 12, 9, 14, 10, 11, 13, 9, 12, 10], [9.0, 10, 9, 11, 9, 10, 10, 8, 11, 9])
    assert found.new - found.old == pytest.approx(-1.4)
    for interval in (found.percentile, found.bca):
        assert interval.low < -1.4 < interval.high < 0
    assert found.p_value < 0.01


def test_equal_conditions_have_no_p_value_and_a_ratio_of_one():
    assert paired([1.0, 2, 3], [1.0, 2, 3]).p_value is None
    assert variance_ratio([1.0, 2, 4, 8], [1.0, 2, 4, 8]).value == 1


def test_what_never_varies_has_no_ratio():
    assert variance_ratio([1.0, 2, 4, 8], [3.0, 3, 3, 3]).value is None


def test_scripts_read_what_a_prompt_tells_of_the_budget():
    said = "Budget: 1,200/50,000 tokens, 1/3 iterations, 2/6 calls of web_search; time: 4/30 s"
    assert [left(said, name) for name in ("tokens", "iterations", "calls of web_search")] == [48_800, 2, 4]
    assert left("no budget is told", "tokens") is None
    assert luck("a", 1).random() == luck("a", 1).random()
    assert reply("12345", "text", thought=100, max_tokens=11)["usage"] == {
        "input_tokens": 2, "output_tokens": 11, "reasoning_tokens": 10,
    }  # fmt: skip


class TestResults:
    RESULTS = (HERE / "results.md").read_text(encoding="utf-8")

    @pytest.mark.parametrize(
        ("module", "fixture"),
        [
            (code_review, "reviewed"), (research, "researched"), (strategy, "answered"), (crisis, "stated"),
            (clarification, "clarified"),
        ],
        ids=lambda item: getattr(item, "__name__", ""),
    )  # fmt: skip
    def test_the_table_of_the_page_is_what_is_measured(self, module, fixture, request):
        name = module.__name__.rpartition(".")[2]
        said = module.text(request.getfixturevalue(fixture))
        assert f"$ python -m examples.resources {name}\n{said}\n```" in self.RESULTS

    def test_another_process_with_another_hash_seed_prints_the_same(self):
        done = subprocess.run(
            [sys.executable, "-m", "examples.resources", "crisis"], cwd=HERE.parents[1], capture_output=True, text=True,
            check=True, env={**os.environ, "PYTHONHASHSEED": "20261"}, timeout=120,
        )  # fmt: skip
        assert f"\n{done.stdout}```" in self.RESULTS

    def test_an_unknown_name_is_refused_with_those_that_exist(self):
        done = subprocess.run(
            [sys.executable, "-m", "examples.resources", "crises"], cwd=HERE.parents[1], capture_output=True, text=True,
            check=False, timeout=120,
        )  # fmt: skip
        assert (done.returncode, "choose from code_review, research" in done.stderr) == (2, True)
