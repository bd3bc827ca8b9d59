"""Contracts from files mean what they say, everything wrong is said at once, and what is written is read back the same."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat.core.errors import MatError, SpecError
from mat.core.resources import amount
from mat.govern import policy
from mat.resources import Criterion, Inputs, Output, Price, ResourceContract, Skill
from mat.resources.contract import HandsOn
from mat.resources.files import CONTRACTS, EXTENSIONS, data, dumps, load, loads
from mat.resources.modes import Band, ContractMode
from mat.resources.terms import condition

pytest.importorskip("yaml")

REVIEW = """
mat: 1
contracts:
  review:
    budgets: {tokens: 50_000, iterations: 3, "tool:search": 6, money: "0.25"}
    duration_s: 300
    inputs:
      schema: {repository: string, pr_id: integer, "labels?": [string]}
      rules: {pr_id: {least: 1}, repository: {pattern: "[a-z]+/[a-z]+"}, "labels.*?": [bug, feature]}
      prepare: fetch_diff
    output:
      schema: {summary: string, approval: boolean}
      quality: share
      least_quality: 0.8
      format: short
    skills: [search, {name: "model:planner", cost: {tokens: 500}, success: 0.9}]
    criteria:
      - reviewed
      - utilization <= 80 %
      - {name: approved, output: {approval: [true]}, weight: 2}
    threshold: 3
    ends_when: [exhausted, "left.tokens < 500", {check: enough}]
    reserve_percent: 10
    warn_at: [50, 80]
    depth: 2
    hands_on: {skills: [search], modes: [urgent]}
    prices: {"model:planner": {input: 3, output: 15}, tool: {call: "0.005"}}
"""


def reviewed(output: Any, status: Any) -> bool:
    return bool(output["summary"])


def share(output: Any) -> float:
    return 0.9


def short(output: Any) -> bool:
    return len(output["summary"]) < 80


def fetch_diff(given: Any) -> Any:
    return {**given, "diff": "+1"}


def enough(status: Any) -> bool:
    return False


FUNCTIONS: dict[str, Any] = {
    "checks": {"reviewed": reviewed},
    "scorers": {"share": share},
    "formats": {"short": short},
    "preparers": {"fetch_diff": fetch_diff},
    "endings": {"enough": enough},
}


@mat.tool
def search(query: str) -> list[str]:
    return [query]


@mat.model("planner")
def ask(prompt: str, max_tokens: int = 100, wrote: int = 90) -> dict[str, Any]:
    return {"text": "so", "usage": {"input_tokens": 10, "output_tokens": wrote}}


def problems(text: str, **given: Any) -> str:
    with pytest.raises(SpecError) as caught:
        loads(text, **given)
    return caught.value.what


class TestMeaning:
    def test_a_file_says_all_seven_parts(self) -> None:
        made = loads(REVIEW, **FUNCTIONS)["review"]
        assert made.units == {"tokens": 50_000, "iterations": 3, "tool:search": 6, "money": 250_000}
        assert (made.duration_ms, made.depth, made.reserve_percent, made.warn_at) == (300_000, 2, 10, (50, 80))
        assert made.skills == (Skill(name="search"), Skill(name="model:planner", cost={"tokens": 500}, success=0.9))
        assert made.prices == {"model:planner": Price(input=3, output=15), "tool": Price(call="0.005")}
        assert made.hands_on == HandsOn(skills=("search",), modes=("urgent",))
        assert [(item.name, item.weight) for item in made.criteria] == [
            ("reviewed", 1),
            ("utilization <= 80 %", 1),
            ("approved", 2),
        ]

    def test_what_it_says_of_inputs_is_asked_and_prepared(self) -> None:
        contract = loads(REVIEW, **FUNCTIONS)["review"]
        good = {"repository": "shop/desk", "pr_id": 7}
        with mat.run():
            for wrong, said in (
                ({**good, "pr_id": 0}, "pr_id: 1..inf"),
                ({**good, "pr_id": "7"}, "input.pr_id: Input should be a valid integer"),
                ({**good, "repository": "shop"}, "repository: what the pattern"),
                ({**good, "labels": ["bug", "x"]}, r"labels"),
                ({"pr_id": 7}, "input.repository: Field required"),
                ({**good, "more": 1}, "input.more: Extra inputs"),
            ):
                with pytest.raises(MatError, match=said):
                    mat.budget.contracted(contract, inputs=wrong)
            assert mat.budget.contracted(contract, inputs=good).inputs == {**good, "diff": "+1"}
            mat.budget.contracted(contract, inputs={**good, "labels": ["bug"]})

    def test_what_it_says_of_outputs_decides_on_fulfilment(self) -> None:
        contract = replace(loads(REVIEW, **FUNCTIONS)["review"], inputs=Inputs())
        with mat.run(), mat.budget.contracted(contract) as work:
            assert work.deliver({"summary": "fine"}).problems[0] == "output.approval: Field required"
            assert work.deliver({"summary": "x" * 80, "approval": True}).problems[0] == "format: short"
            unmet = work.deliver({"summary": "fine", "approval": False})
            assert (unmet.score, unmet.met["approved"], unmet.accepted) == (2, False, False)
            assert work.deliver({"summary": "fine", "approval": True})

    def test_a_condition_on_the_status_ends_a_contract(self) -> None:
        contract = loads("contracts: {work: {budgets: {tokens: 1000}, ends_when: [left.tokens < 500]}}")["work"]
        with mat.run(), mat.budget.contracted(contract) as work:
            ask("go", wrote=490)
            assert work.state == "active"
            ask("go", wrote=0)
            assert (work.state, work.cause) == ("terminated", "left.tokens < 500")

    def test_json_says_the_same(self) -> None:
        made = loads(REVIEW, **FUNCTIONS)
        assert loads(dumps(made), json=True, **FUNCTIONS) == made

    def test_files_are_distinguished_by_their_suffix(self, tmp_path: Path) -> None:
        (tmp_path / "a.yaml").write_text(REVIEW, encoding="utf-8")
        made = load(tmp_path / "a.yaml", **FUNCTIONS)
        (tmp_path / "a.json").write_text(dumps(made), encoding="utf-8")
        assert load(tmp_path / "a.json", **FUNCTIONS) == made
        (tmp_path / "a.txt").write_text(REVIEW, encoding="utf-8")
        with pytest.raises(SpecError, match=r"the contract file a\.txt is neither YAML nor JSON"):
            load(tmp_path / "a.txt")

    def test_the_format_json_is_built_in(self) -> None:
        contract = loads("contracts: {work: {output: {format: json}}}")["work"]
        with mat.run(), mat.budget.contracted(contract) as work:
            assert not work.deliver("{")
            assert work.deliver("{}")

    def test_a_format_may_be_a_pattern(self) -> None:
        contract = loads('contracts: {work: {output: {schema: string, format: {pattern: "# .*"}}}}')["work"]
        with mat.run(), mat.budget.contracted(contract) as work:
            assert not work.deliver("no heading")
            assert work.deliver("# heading")


class TestConditions:
    @pytest.mark.parametrize(
        ("text", "holds"),
        [
            ("utilization <= 80 %", True),
            ("utilization < 0.8", False),
            ("utilization == 80 %", True),
            ("utilization.calls <= 0.1", True),
            ("utilization.calls < 0.1", False),
            ("utilization.money <= 1", False),
            ("consumed.tokens >= 800", True),
            ("consumed.model_calls > 0", True),
            ("consumed.searches > 0", False),
            ("left.tokens == 200", True),
            ("left.tokens > 200", False),
            ("left.money >= 0", False),
            ("reserved.tokens == 0", True),
            ("elapsed_s < 0.001", True),
            ("time_utilization == 0", True),
            ("controllable == 990", True),
        ],
    )
    def test_they_compare_exactly(self, text: str, holds: bool) -> None:
        with mat.run(), mat.budget.contracted(ResourceContract(name="work", budgets={"tokens": 1_000, "calls": 10})) as work:
            ask("go", wrote=790)
            assert condition(text)(work.status()) is holds
            assert condition(text)("an output", work.status()) is holds

    @pytest.mark.parametrize(
        "text",
        ["utilization", "utilization <= x", "__import__('os')", "left <= 3", "status.line() < 3", "left.Tokens < 3", "< 3"],
    )
    def test_nothing_else_is_a_condition(self, text: str) -> None:
        with pytest.raises(SpecError):
            condition(text)

    def test_a_quantity_that_is_close_is_proposed(self) -> None:
        with pytest.raises(SpecError, match="did you mean 'utilization'"):
            condition("utilisation <= 0.8")


class TestTime:
    START = datetime(2026, 3, 2, 16, 30)

    def seconds(self, deadline: str, starts: datetime) -> int | None:
        return loads(f'contracts: {{work: {{deadline: "{deadline}"}}}}', starts=starts)["work"].duration_ms

    def test_a_deadline_is_a_duration_from_the_start(self) -> None:
        assert self.seconds("17:00", self.START) == 30 * 60_000
        assert self.seconds("2026-03-02T16:30:01.500", self.START) == 1_500
        assert self.seconds("16:30", self.START) == 24 * 3_600_000
        there = self.START.replace(tzinfo=UTC)
        assert self.seconds("2026-03-02T18:00:00+01:00", there) == 30 * 60_000

    def test_a_deadline_that_means_nothing_is_reported(self) -> None:
        for deadline, starts, said in (
            ("17:00", None, "needs a start"),
            ("soon", self.START, "neither a time of day"),
            ("2026-03-02T16:30:00", self.START, "not after the start"),
            ("2026-03-03T00:00:00+00:00", self.START, "time zone"),
        ):
            assert said in problems(f'contracts: {{work: {{deadline: "{deadline}"}}}}', starts=starts)

    def test_a_duration_and_a_deadline_are_one_too_many(self) -> None:
        assert "either a duration or a deadline" in problems(
            'contracts: {work: {duration_s: 3, deadline: "17:00"}}', starts=self.START
        )


class TestTakingOver:
    def test_what_is_extended_is_taken_over_and_budgets_are_merged(self) -> None:
        made = loads("""
contracts:
  base: {budgets: {tokens: 100, calls: 3}, duration_s: 60, warn_at: [50], skills: [search]}
  more: {extends: base, budgets: {calls: 5, money: 1}, skills: []}
  most: {extends: more, duration_s: 30}
""")
        assert made["more"] == replace(made["base"], name="more", budgets={"tokens": 100, "calls": 5, "money": 1}, skills=())
        assert made["most"] == replace(made["more"], name="most", duration_s=30)

    def test_a_deadline_replaces_a_duration_that_was_taken_over(self) -> None:
        text = 'contracts: {base: {duration_s: 60}, more: {extends: base, deadline: "17:00"}}'
        assert loads(text, starts=TestTime.START)["more"].duration_ms == 30 * 60_000

    def test_a_duration_replaces_a_deadline_that_was_taken_over(self) -> None:
        text = 'contracts: {base: {deadline: "17:00"}, more: {extends: base, duration_s: 60}}'
        assert loads(text, starts=TestTime.START)["more"].duration_ms == 60_000

    def test_what_is_about_a_contracts_own_place_is_not_taken_over(self) -> None:
        made = loads("""
contracts:
  base: {budgets: {tokens: 100}, caps: {tokens: 5}, allocation: negotiated, contracts: {x: {budgets: {tokens: 9}}}}
  again: {extends: base, allocation: negotiated, contracts: {y: {budgets: {tokens: 9}}}}
  alone: {extends: base}
  above: {extends: base, contracts: {z: {}}}
""")
        assert [name for name in made if "/" in name] == ["base/x", "again/y", "above/z"]
        assert [made[name].units.get("tokens") for name in ("base/x", "again/y", "above/z")] == [5, 9, None]

    def test_null_is_nothing_said_of_inputs_and_output(self) -> None:
        made = loads("contracts: {base: {output: {schema: string}}, a: {extends: base, inputs: null, output: null}, b: {}}")
        assert made["a"] == replace(made["b"], name="a")

    def test_a_mode_gives_a_contract_its_time(self) -> None:
        made = loads(
            "contracts: {a: {mode: urgent}, b: {mode: {name: urgent, version: first}}, c: {mode: balanced, duration_s: 5}}"
        )
        assert [(item.mode, item.duration_ms) for item in made.values()] == [
            ("urgent", 30_000),
            ("urgent", 8_000),
            ("balanced", 5_000),
        ]

    def test_modes_of_ones_own_are_given(self) -> None:
        calm = ContractMode(name="calm", duration_s=600, effort="high", bands=(Band(below=100, effort="high", share=50),))
        assert loads("contracts: {a: {mode: calm}}", modes={"calm": calm})["a"].duration_ms == 600_000
        assert "unknown mode: 'calm'" in problems("contracts: {a: {mode: calm}}")

    def test_what_is_wrong_in_a_base_is_reported_once(self) -> None:
        said = problems("contracts: {base: {budgets: {tokens: -1}}, a: {extends: base}, b: {extends: base}}")
        assert said.startswith("the contract file has 1 problem:")

    def test_a_circle_and_a_stranger_are_reported(self) -> None:
        said = problems("contracts: {a: {extends: b}, b: {extends: a}, base: {}, c: {extends: bas}}")
        assert "a -> b -> a" in said
        assert "unknown contract: 'bas'; did you mean 'base'?" in said


class TestTrees:
    TREE = """
contracts:
  pipeline:
    budgets: {tokens: 100000, calls: 30, "tool:search": 6}
    reserve_percent: 10
    skills: [search, "model:planner"]
    allocation: ALLOCATION
    divides: [tokens]
    contracts:
      researcher: {weight: 3, skills: [search], budgets: {"tool:search": 4}}
      analyst: {weight: 2, skills: ["model:planner"]}
      reporter: {weight: 1, skills: []}
"""

    def tokens(self, text: str) -> list[int]:
        made = loads(text)
        return [made[f"pipeline/{name}"].units["tokens"] for name in ("researcher", "analyst", "reporter")]

    def test_proportional_and_equal_divide_what_the_reserve_leaves(self) -> None:
        assert self.tokens(self.TREE.replace("ALLOCATION", "proportional")) == [45_000, 30_000, 15_000]
        assert self.tokens(self.TREE.replace("ALLOCATION", "equal")) == [30_000, 30_000, 30_000]

    def test_what_a_contract_asks_for_itself_goes_first(self) -> None:
        text = self.TREE.replace("ALLOCATION", "proportional").replace(
            "reporter: {weight: 1,", "reporter: {budgets: {tokens: 40000},"
        )
        assert self.tokens(text) == [30_000, 20_000, 40_000]

    def test_negotiated_is_what_each_asks_for_up_to_its_cap(self) -> None:
        text = self.TREE.replace("ALLOCATION", "negotiated\n    caps: {tokens: 60000}")
        text = text.replace("weight: 3,", "").replace('"tool:search": 4', "tokens: 900000")
        text = text.replace("weight: 2,", "budgets: {tokens: 40000}, caps: {tokens: 20000},").replace(
            "weight: 1,", "budgets: {tokens: 10000},"
        )
        assert self.tokens(text) == [60_000, 20_000, 10_000]

    def test_a_tree_from_a_file_runs(self) -> None:
        made = loads(self.TREE.replace("ALLOCATION", "proportional"))
        with mat.run(), mat.budget.contracted(made["pipeline"]) as work:
            children = [
                work.draft(made[f"pipeline/{name}"], agent=name).activate() for name in ("researcher", "analyst", "reporter")
            ]
            assert [child.left("tokens") for child in children] == [45_000, 30_000, 15_000]
            assert work.left("tokens") == 10_000

    def test_a_tree_cannot_hold_more_than_it_has(self) -> None:
        said = problems("""
contracts:
  top:
    budgets: {tokens: 100, iterations: 1, subcontracts: 2}
    reserve_percent: 10
    depth: 1
    skills: [search, pay]
    hands_on: {skills: [search], modes: [urgent, economical]}
    allocation: equal
    contracts:
      a: {skills: [serch], mode: urgent}
      b: {skills: [pay], budgets: {tokens: 91}, mode: balanced}
      c: {mode: urgent, contracts: {d: {skills: [search], mode: urgent}}}
""")
        for expected in (
            "contracts.top.contracts.b (line 12): tokens: 91 requested, but top can allocate 90",
            "has no skill tool:serch; did you mean",
            "top does not hand on tool:pay",
            "hands on only the modes urgent and economical, but contract 'b' has mode balanced",
            "top limits skills, so contract 'c' must give skills=",
            "top allows 1 level of contracts",
            "3 contracts below it, but its budget is 2 subcontracts",
            "tokens: 91 requested together, but top can allocate 90",
            "iterations: no budget is left for b, c",
        ):
            assert expected in said

    def test_keys_out_of_place_are_reported(self) -> None:
        said = problems("contracts: {a: {weight: 2, allocation: equal}, b: {contracts: {c: {divides: [x]}}}}")
        assert "contracts.a.weight (line 1): only a contract below" in said
        assert said.count("no contracts below it to divide") == 2


class TestUntrusted:
    @pytest.mark.parametrize(
        ("terms", "said"),
        [
            ("depth: '3'", "contracts.a.depth (line 1): input should be a valid integer, not a string"),
            ("depth: true", "contracts.a.depth (line 1): input should be a valid integer, not true or false"),
            ("reserve_percent: 1.5", "contracts.a.reserve_percent (line 1): input should be a valid integer, not a number"),
            ("warn_at: ['50']", "contracts.a.warn_at[0] (line 1): input should be a valid integer, not a string"),
            ("threshold: '1'", "contracts.a.threshold (line 1): input should be a number, not a string"),
            ("threshold: true", "contracts.a.threshold (line 1): input should be a number, not true or false"),
            (
                "budgets: {tokens: true}",
                "contracts.a.budgets.tokens (line 1): an amount is a number, or a string such as '0.25', not",
            ),
            (
                "duration_s: true",
                "contracts.a.duration_s (line 1): an amount is a number, or a string such as '0.25', not true",
            ),
            ("skills: [3]", "contracts.a.skills[0] (line 1): input should be a string or a mapping, not a number"),
            ("skills: search", "contracts.a.skills (line 1): input should be a list, not a string"),
            ("skills: [{name: b, success: true}]", "success (line 1): input should be a number, not true or false"),
            (
                "hands_on: {skills: [1]}",
                "contracts.a.hands_on.skills[0] (line 1): input should be a valid string, not a number",
            ),
        ],
    )
    def test_nothing_is_taken_for_what_it_is_not(self, terms: str, said: str) -> None:
        assert said in problems(f"contracts: {{a: {{{terms}}}}}")

    def test_everything_wrong_is_said_at_once_with_lines(self) -> None:
        said = problems(
            """contract: 3
contracts:
  a:
    budgets: {tokens: many, Calls: 3, money: 0.1234567}
    skils: [x]
    criteria: ["utilisation <= 3", judged, {name: x}, {check: judged, status: left.tokens > 3}]
    output: {schema: {a: strin}, quality: scored, least_quality: 2}
    inputs: {rules: {n: {least: 5, most: 3}, m: {pattern: "("}}}
    warn_at: [101]
  "b#1": {}
  c: 3
""",
            checks={"judge": reviewed},
        )
        for expected in (
            "contract (line 1): unknown key: 'contract'; did you mean 'contracts'?",
            "contracts.c (line 11)",
        ):
            assert expected in said
        said = problems(
            """
contracts:
  a:
    budgets: {tokens: many, Calls: 3, money: 0.1234567}
    skils: [x]
    criteria: ["utilisation <= 3", judged, {name: x}, {check: judged, status: left.tokens > 3}]
    output: {schema: {a: strin}, quality: scored, least_quality: 2}
    inputs: {rules: {n: {least: 5, most: 3}, m: {pattern: "("}}}
    warn_at: [101]
  "b#1": {}
""",
            checks={"judge": reviewed},
        )
        for expected in (
            "contracts.a.budgets.tokens (line 4): an amount is a number, or a string such as '0.25', not 'many'",
            "contracts.a.budgets.Calls (line 4): 'Calls' is not a resource name",
            "contracts.a.budgets.money (line 4): money=0.1234567 is not a multiple of 0.000001",
            "contracts.a.skils (line 5): unknown key: 'skils'; did you mean 'skills'?",
            "contracts.a.criteria[0] (line 6)",
            "unknown check: 'judged'; load(checks=) has judge; did you mean 'judge'?",
            "contracts.a.criteria[2] (line 6): it gives nothing",
            "contracts.a.criteria[3] (line 6): it gives check and status",
            "contracts.a.output.schema.a (line 7): unknown type: 'strin'; did you mean 'string'?",
            "unknown scorer: 'scored'; pass it with load(scorers=)",
            "least_quality=2 is outside 0 to 1",
            "contracts.a.inputs.rules.n (line 8): least=5 is greater than most=3",
            "'(' is not a regular expression",
            "warn_at 101 is not a whole percentage",
            "contracts.b#1 (line 10): 'b#1' is not a contract name",
        ):
            assert expected in said, expected

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("- a", "it contains a list, not sections"),
            ("contracts: {}", "it contains no contracts"),
            ("mat: 2", "mat"),
            ("contracts: &x {a: {}}\nmore: *x", "anchor"),
            ("contracts: {a: !!python/object:os.system {}}", "tag"),
            ("contracts: {a: {}, a: {}}", "'a' twice"),
            ("contracts: {a: {budgets: [tokens]}}", "budgets"),
            ("contracts: {a: {budgets: {tokens: 1e999999999}}}", "cannot be held exactly"),
            ("contracts: {a: {budgets: {tokens: '1e99'}}}", "or a string such as '0.25', not '1e99'"),
            ("contracts: {a: {budgets: {tokens: 1000000000000000000}}}", "below 10 ** 18"),
            ("contracts: {a: {budgets: {tokens: true}}}", "tokens"),
            ("contracts: {a/b: {}}", "is not a contract name"),
            ('contracts: {"a\\nb": {}}', "is not a contract name"),
            ("contracts: {a: {output: {format: markdown}}}", "unknown format: 'markdown'"),
            ("contracts: {a: {depth: -1}}", "depth=-1"),
            ("contracts: {a: {reserve_percent: 10.5}}", "reserve_percent"),
            ("contracts: {a: {inputs: {schema: [string, integer]}}}", "a list of one schema"),
            ('contracts: {a: {inputs: {schema: {x: string, "x?": string}}}}', "with and without"),
        ],
    )
    def test_what_means_nothing_is_refused(self, text: str, said: str) -> None:
        assert said in problems(text)

    def test_limits_are_reported(self) -> None:
        many = {"contracts": {f"c{number}": {} for number in range(CONTRACTS + 1)}}
        assert f"the limit is {CONTRACTS:,}" in problems(json.dumps(many), json=True)
        chain: dict[str, Any] = {"c0": {}}
        chain.update({f"c{number}": {"extends": f"c{number - 1}"} for number in range(1, EXTENSIONS + 2)})
        assert f"extends more than {EXTENSIONS} contracts" in problems(json.dumps({"contracts": chain}), json=True)
        assert "deep" in problems('{"contracts": {"a": ' + "[" * 200 + "]" * 200 + "}}", json=True)

    @given(
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats()
            | st.text(max_size=8)
            | st.sampled_from(["exhausted", "urgent", "a"]),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        ["budgets", "contracts", "a", "extends", "tokens", "mode", "criteria", "skills", "allocation", "name"]
                    ),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=20,
        )
    )
    def test_whatever_a_file_holds_it_is_a_contract_or_a_spec_error(self, found: Any) -> None:
        text = json.dumps({"contracts": {"x": found}})
        try:
            made = loads(text, json=True)
        except SpecError:
            return
        assert all(isinstance(item, ResourceContract) for item in made.values())


class TestPolicies:
    """Contracts in policy files, for agents that know nothing of them."""

    def test_agents_work_under_the_contracts_of_a_policy(self) -> None:
        made = policy.loads("contracts: {'*': {budgets: {calls: 3}}, clerk: {budgets: {calls: 1}, mode: urgent}}")
        assert made.contracts["clerk"].duration_ms == 30_000
        with mat.run(governance=made.variant("shield")):
            with mat.agent("clerk"):
                search("a")
                with pytest.raises(mat.budget.BudgetSpent, match="the budget of 1 is spent"):
                    search("b")
            search("c")

    def test_what_is_wrong_is_said_with_everything_else(self) -> None:
        with pytest.raises(SpecError) as caught:
            policy.loads("""
rules: [{blok: {}}]
contracts:
  clerk: {budgts: {calls: 1}, criteria: [reviewed]}
  team: {contracts: {below: {}}}
""")
        for said in (
            "unknown rule: 'blok'",
            "contracts.clerk.budgts (line 4): unknown key: 'budgts'; did you mean 'budgets'?",
            "unknown check: 'reviewed'",
            "contracts.team.contracts (line 5): a policy cannot nest contracts: agents decide what they hand on",
        ):
            assert said in caught.value.what


AMOUNTS = (
    st.integers(0, 10**6)
    | st.floats(0, 1_000).map(lambda value: round(value, 3))
    | st.integers(0, 10**6).map(lambda value: f"{value / 1000:.3f}")
)
RESOURCES = st.dictionaries(st.sampled_from(["money", "seconds"]), AMOUNTS) | st.dictionaries(
    st.sampled_from(["tokens", "calls", "iterations", "tool:search", "model:planner", "gpu_hours"]), st.integers(0, 10**9)
)
FITS: Any = (
    st.lists(st.integers(-5, 5) | st.text(max_size=3) | st.booleans() | st.none(), max_size=3)
    | st.fixed_dictionaries({"least": st.integers(-5, 5)})
    | st.fixed_dictionaries({"least": st.integers(-5, 5), "most": st.integers(5, 9)})
    | st.just({"pattern": "[a-z]*"})
    | st.just({"length": {"least": 1, "most": 3}})
    | st.just({"folder": "/srv"})
    | st.just({"endpoint": {"hosts": ["api.shop.example"], "paths": "/v1"}})
)
SCHEMAS: Any = st.recursive(
    st.sampled_from(["string", "integer", "number", "boolean", "object", "list", "any"]),
    lambda inner: inner.map(lambda kind: [kind]) | st.dictionaries(st.sampled_from(["a", "b?", "c"]), inner, min_size=1),
    max_leaves=5,
)
TERMS: Any = st.fixed_dictionaries(
    {},
    optional={
        "budgets": RESOURCES,
        "duration_s": AMOUNTS,
        "reserve_percent": st.integers(0, 100),
        "depth": st.integers(0, 5),
        "warn_at": st.lists(st.integers(0, 100), max_size=3),
        "mode": st.sampled_from(["urgent", "economical", "balanced"]),
        "skills": st.lists(
            st.sampled_from(["search", "model:planner"])
            | st.fixed_dictionaries({"name": st.just("pay"), "success": st.floats(0, 1), "cost": RESOURCES}),
            max_size=3,
        ),
        "criteria": st.lists(
            st.sampled_from(["reviewed", "utilization <= 80 %"])
            | st.fixed_dictionaries(
                {"name": st.text(max_size=3), "output": st.dictionaries(st.sampled_from([".", "a?"]), FITS, min_size=1)}
            ),
            max_size=3,
        ),
        "ends_when": st.lists(st.sampled_from(["exhausted", "left.tokens < 3", "enough"]), max_size=2),
        "inputs": st.fixed_dictionaries(
            {"schema": SCHEMAS, "rules": st.dictionaries(st.sampled_from(["a", "b.*?", "."]), FITS)}
        ),
        "output": st.fixed_dictionaries(
            {
                "schema": SCHEMAS,
                "quality": st.just("share"),
                "least_quality": st.floats(0, 1),
                "format": st.sampled_from(["json", "short", {"pattern": "x"}, {"values": [1, 2]}]),
            }
        ),
        "hands_on": st.fixed_dictionaries(
            {}, optional={"skills": st.lists(st.just("search"), max_size=2), "modes": st.lists(st.just("urgent"), max_size=1)}
        ),
        "prices": st.dictionaries(
            st.sampled_from(["tool", "model:planner"]),
            st.fixed_dictionaries({}, optional={"call": st.sampled_from([0, 1, "0.5", 0.25]), "input": st.integers(0, 9)}),
        ),
    },
)


class TestRoundTrip:
    @pytest.mark.full
    @given(st.dictionaries(st.text("abc é", min_size=1, max_size=3), TERMS, min_size=1, max_size=3))
    def test_what_is_written_is_read_back_the_same(self, contracts: dict[str, Any]) -> None:
        made = loads(json.dumps({"contracts": contracts}), json=True, **FUNCTIONS)
        assert loads(dumps(made), json=True, **FUNCTIONS) == made
        assert loads(dumps(made), **FUNCTIONS) == made
        assert data(loads(dumps(made), json=True, **FUNCTIONS)) == data(made)

    @given(
        budgets=st.dictionaries(st.sampled_from(["money", "seconds", "tokens"]), st.integers(0, 10**9)),
        kind=st.sampled_from([Decimal, Fraction, int]),
    )
    def test_exact_amounts_stay_exact(self, budgets: dict[str, int], kind: Any) -> None:
        given = {name: kind(value) / 1000 if kind is not int and name != "tokens" else value for name, value in budgets.items()}
        contract = ResourceContract(name="work", budgets=given)
        read = loads(dumps({"work": contract}), json=True)["work"]
        assert read.units == contract.units == {name: amount(name, value) for name, value in given.items()}

    def test_a_tree_is_read_back_with_the_budgets_that_it_was_allocated(self) -> None:
        made = loads(TestTrees.TREE.replace("ALLOCATION", "proportional"))
        assert loads(dumps(made)) == made

    def test_contracts_can_be_hashed_and_compared(self) -> None:
        made = loads(
            REVIEW.replace('{name: "model:planner", cost: {tokens: 500}, success: 0.9}', '"model:planner"'), **FUNCTIONS
        )
        assert made["review"].inputs.rules[0] == loads(REVIEW, **FUNCTIONS)["review"].inputs.rules[0]

    def test_functions_and_types_made_in_code_cannot_be_written(self) -> None:
        contract = ResourceContract(
            name="work",
            inputs=Inputs(schema=dict[str, int]),
            output=Output(quality=share),
            criteria=(Criterion(name="done", holds=reviewed),),
        )
        with pytest.raises(SpecError) as caught:
            dumps({"work": contract, "x/work": contract, "other": contract})
        for said in (
            "is a type made in code",
            "the scorer of the output is a function",
            "the criterion done is a function",
            "there is no contract x",
            "other: the contract is called 'work'",
        ):
            assert said in caught.value.what

    def test_a_mode_that_a_contract_only_claims_cannot_be_written(self) -> None:
        with pytest.raises(SpecError, match="has at most 30 s"):
            dumps({"work": ResourceContract(name="work", mode="urgent")})
