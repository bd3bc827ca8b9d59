"""A contract that nothing triggered certifies nothing: what triggers a contract, and what becomes of one without."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mat
import mat_contracts
import mat_contracts.observation
from mat.core.record import Record
from mat.core.value import FrozenDict
from mat.monitor.judge import judge
from mat.monitor.temporal import Formula
from mat.monitor.triggers import Triggers, reached
from mat.temporal import action, always, at_most, eventually, for_each, once, tool_call, variable, verification
from mat.temporal import field as value_of
from mat_contracts.traces import record, trace

ORDER = variable("order")
RECORDS = trace(
    record("tool_call", "refund", {"order": "A1", "amount": 5}),
    record("tool_call", "check", {"order": "A1"}),
    record("termination", "implicit", agent="harness"),
)


def contract(formula: Formula) -> mat.Contract:
    return mat.contract("c", formula)


def why_vacuous(given: mat.Contract, records: tuple[Record, ...] = RECORDS, ports: Iterable[tuple[str, str]] = ()) -> str:
    triggers = Triggers([given])
    triggers.note(records)
    return "".join(each.reason for each in triggers.vacuous(ports))


# -- what triggers a formula ------------------------------------------------------------------------------------------

TRIGGERED = {
    "an implication": always(tool_call("refund").implies(once(verification()))),
    "a prohibition": always(~tool_call("check")),
    "a prohibition of an argument": always(~(value_of("arguments.amount") > 500)),
    "a prohibition under a condition": always(tool_call("refund").implies(~(value_of("arguments.order") == "B2"))),
    "a bound": always(at_most(1, tool_call("refund"))),
    "a bound for each id": for_each("arguments.order", always(at_most(1, tool_call("refund")))),
    "a variable": for_each(ORDER, always(tool_call("refund", order=ORDER).implies(once(tool_call("check", order=ORDER))))),
    "a promise": always(tool_call("refund").implies(eventually(tool_call("check")))),
    "what must happen": eventually(tool_call("mail")),
    "what must hold at every step": always(value_of("arguments.amount") <= 500),
    "one of two parts": always(tool_call("mail").implies(once(verification()))) & always(~tool_call("check")),
    "the first step": tool_call("refund").implies(eventually(tool_call("check"))),
}
NAMED = {
    "an implication": always(tool_call("refnd").implies(once(verification()))),
    "a prohibition": always(~tool_call("refnd")),
    "a prohibition with a condition on an argument": always(~tool_call("refnd", amount=lambda amount: amount > 500)),
    "a bound": always(at_most(1, tool_call("refnd"))),
    "a bound of nothing": always(at_most(0, tool_call("refnd"))),
    "a bound for each id": for_each("arguments.order", always(at_most(1, tool_call("refnd")))),
    "a variable": for_each(ORDER, always(tool_call("refnd", order=ORDER).implies(once(tool_call("check", order=ORDER))))),
    "a promise": always(tool_call("refnd").implies(eventually(tool_call("check")))),
}
MISSPELT = {
    "a prohibition": always(~tool_call("refund", amuont=900)),
    "a prohibition of any call": always(~(value_of("arguments.amuont") > 500)),
    "an inequality": always(tool_call("refund").implies(value_of("arguments.amuont") != 900)),
    "an implication": always(tool_call("refund", amuont=lambda amount: amount > 4).implies(once(verification()))),
    "a bound for each id": for_each("arguments.amuont", always(at_most(1, tool_call("refund")))),
    "a variable": for_each(ORDER, always(tool_call("refund", amuont=ORDER).implies(once(tool_call("check", order=ORDER))))),
}


@pytest.mark.parametrize("kind", TRIGGERED)
def test_a_formula_is_triggered_by_what_it_is_about(kind: str) -> None:
    assert why_vacuous(contract(TRIGGERED[kind])) == ""
    assert reached([contract(TRIGGERED[kind])], RECORDS) == {"c"}


@pytest.mark.parametrize("kind", NAMED)
def test_a_name_that_no_port_has_is_reported_with_the_nearest_and_the_known_ones(kind: str) -> None:
    said = why_vacuous(contract(NAMED[kind]))
    assert "no known port is called 'refnd' (tool_call); did you mean 'refund'? (known: check, refund)" in said


@pytest.mark.parametrize("kind", MISSPELT)
def test_an_argument_that_no_call_has_is_reported_with_the_nearest(kind: str) -> None:
    assert "no call has an argument 'amuont'; did you mean 'amount'?" in why_vacuous(contract(MISSPELT[kind]))


def test_a_declared_port_may_be_forbidden_without_ever_being_called() -> None:
    forbidden = contract(always(~tool_call("shell")))
    assert "no known port is called 'shell'" in why_vacuous(forbidden)
    assert why_vacuous(forbidden, ports=[("tool_call", "shell")]) == ""


def test_what_judges_the_first_step_alone_is_vacuous_where_it_begins_differently() -> None:
    assert "nothing triggered it" in why_vacuous(contract(tool_call("check").implies(eventually(tool_call("refund")))))


def test_the_end_of_a_run_triggers_what_judges_how_it_ends() -> None:
    ends = mat.step_contract(on="termination", id="c")(lambda record: record.action.name != "horizon")
    assert why_vacuous(ends, RECORDS[:2]) == ""
    assert why_vacuous(contract(always(~action("termination", "horizon"))), RECORDS[:2]) == ""


def test_a_prohibition_of_a_kind_that_no_record_has_is_vacuous() -> None:
    assert why_vacuous(contract(always(~action("message", "user")))).endswith("triggered by a record of kind message")


# -- what triggers predicates and folds -------------------------------------------------------------------------------


def test_a_predicate_is_triggered_by_a_record_of_its_kinds() -> None:
    assert why_vacuous(mat.step_contract(on="tool_call", id="c")(lambda record: True)) == ""
    assert "a record of kind message" in why_vacuous(mat.step_contract(on="message", id="c")(lambda record: True))


def counted(name: str, on: Any = None) -> mat.Contract:
    @mat.trace_contract(start=0, on=on, id="c")
    def fold(count: int, record: Record) -> int:
        return count + (record.action.name == name)

    return fold


def test_a_fold_is_triggered_by_a_record_that_changes_its_state_or_by_the_kinds_that_it_declares() -> None:
    assert why_vacuous(counted("refund")) == ""
    assert why_vacuous(counted("refnd")).endswith("a record that changes its state")
    assert why_vacuous(counted("refnd", on="tool_call")) == ""
    assert why_vacuous(counted("refund", on="message")) != ""


def test_a_fold_that_cannot_judge_a_record_was_put_to_the_question() -> None:
    @mat.trace_contract(start=0, id="c")
    def raises(count: int, record: Record) -> int:
        return count + int(record.action.arguments["amount"])

    assert why_vacuous(raises, RECORDS[1:2]) == ""


def test_a_run_without_an_agents_record_triggers_nothing() -> None:
    for given in (counted("refund"), mat.step_contract(id="c")(lambda record: True), contract(always(~tool_call("check")))):
        assert why_vacuous(given, RECORDS[2:]) != ""


def test_one_run_of_many_is_enough() -> None:
    triggers = Triggers([mat.contract("mailed", NAMED["an implication"]), counted("check")])
    triggers.note(RECORDS[:1])
    assert triggers.waiting == ("mailed", "c")
    triggers.note(RECORDS)
    triggers.note(RECORDS[:1])
    assert triggers.waiting == ("mailed",)


# -- their kinds ------------------------------------------------------------------------------------------------------


def renamed(records: tuple[Record, ...], name: Callable[[str], str]) -> tuple[Record, ...]:
    return tuple(replace(each, action=replace(each.action, name=name(each.action.name))) for each in records)


def respelt(records: tuple[Record, ...]) -> tuple[Record, ...]:
    def spelt(arguments: FrozenDict) -> FrozenDict:
        return FrozenDict({f"{name}_": value for name, value in arguments.items()})

    return tuple(replace(each, action=replace(each.action, arguments=spelt(each.action.arguments))) for each in records)


@pytest.mark.parametrize("kind", [kind for kind in TRIGGERED if "refund" in mat.contract("c", TRIGGERED[kind]).text])
def test_whatever_names_a_tool_is_vacuous_where_all_tools_are_renamed(kind: str) -> None:
    assert why_vacuous(contract(TRIGGERED[kind]), renamed(RECORDS, lambda name: f"{name}_v2")) != ""


@pytest.mark.parametrize("kind", ["a prohibition of an argument", "a prohibition under a condition", "a bound for each id"])
def test_whatever_forbids_by_an_argument_is_vacuous_where_all_arguments_are_renamed(kind: str) -> None:
    assert why_vacuous(contract(TRIGGERED[kind]), respelt(RECORDS)) != ""


PATH = Path(__file__).parents[1] / "monitor" / "test_formulas.py"


@pytest.mark.sweep("number", range(20), fast=1)
def test_what_breaks_at_a_step_was_triggered(number: int) -> None:
    """Random formulas over random traces: only what is judged at the end can break without a trigger."""
    spec = importlib.util.spec_from_file_location("formulas_of_vacuity", PATH)
    assert spec is not None
    assert spec.loader is not None
    formulas = sys.modules.get("formulas_of_vacuity") or importlib.util.module_from_spec(spec)
    if "formulas_of_vacuity" not in sys.modules:
        sys.modules["formulas_of_vacuity"] = formulas
        spec.loader.exec_module(formulas)
    tried = 0
    for seed in range(30 * number, 30 * number + 30):
        dice = random.Random(seed)
        given = formulas.contract_of(formulas.random_formula(dice))
        if any(goal.when != "every" or goal.key is not None or goal.ahead for goal in given.formula.goals):
            continue
        records = formulas.random_trace(dice)
        _, (outcome,) = judge(records, [given])
        tried += bool(outcome.violations)
        assert not outcome.violations or reached([given], records) == {"c"}, given.text
    assert tried


# -- templates --------------------------------------------------------------------------------------------------------

TEMPLATES: dict[str, Callable[[str, str], mat.Contract]] = {
    "no_duplicate_effect": lambda tool, key: mat_contracts.no_duplicate_effect(tool, key=key),
    "approved_before": lambda tool, key: mat_contracts.approved_before(tools=[tool]),
    "verify_before_act": lambda tool, key: mat_contracts.verify_before_act(tool),
    "precedes": lambda tool, key: mat_contracts.precedes(first="check", then=tool),
    "followed_by": lambda tool, key: mat_contracts.followed_by(trigger=tool, answer="check", within=5),
    "never_concurrent": lambda tool, key: mat_contracts.never_concurrent(tool, key=key),
    "no_retry_storm": lambda tool, key: mat_contracts.no_retry_storm(port=tool),
    "retries_bounded": lambda tool, key: mat_contracts.retries_bounded(port=tool),
    "backoff_respected": lambda tool, key: mat_contracts.backoff_respected(port=tool),
    "consent": lambda tool, key: mat_contracts.consent(send=tool, recipient="order", opted_out=["B2"]),
    "within_rate": lambda tool, key: mat_contracts.observation.within_rate(tool, calls=2, per_ms=1000),
    "required": lambda tool, key: mat_contracts.observation.required(tool, "order"),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_with_a_typing_mistake_in_the_name_of_a_tool_is_vacuous(name: str) -> None:
    assert why_vacuous(TEMPLATES[name]("refund", "order")) == ""
    said = why_vacuous(TEMPLATES[name]("refnd", "order"))
    assert "no known port is called 'refnd' (tool_call); did you mean 'refund'?" in said


@pytest.mark.parametrize("name", ["no_duplicate_effect", "never_concurrent"])
def test_a_template_with_a_typing_mistake_in_a_key_is_vacuous(name: str) -> None:
    said = why_vacuous(TEMPLATES[name]("refund", "ordr"))
    assert "no call has an argument 'ordr'; did you mean 'order'?" in said


def test_a_template_with_one_wrong_name_of_several_is_vacuous_in_part() -> None:
    said = why_vacuous(mat_contracts.no_duplicate_effect(["refund", "chek"]))
    assert said.startswith("a part of it is never triggered; no known port is called 'chek' (tool_call); did you mean 'check'?")
