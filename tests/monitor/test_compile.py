"""How contracts of formulas are made and refused; what they mean is compared with a slow evaluator in test_formulas."""

from __future__ import annotations

import functools
import operator
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mat
from mat.core.digest import canonical
from mat.core.record import Record
from mat.monitor.judge import Judge
from mat.monitor.temporal import Formula
from mat.temporal import (
    action,
    always,
    at_most,
    eventually,
    field,
    for_each,
    historically,
    once,
    predicate,
    since,
    tool_call,
    verification,
)
from mat_contracts.traces import broken, record, trace

CHECK = verification(passed=True)
REFUND = tool_call("refund")
ATOMS = [
    REFUND,
    tool_call("refund", amount=lambda amount: amount > 1),
    tool_call(),
    CHECK,
    verification(),
    predicate(lambda record: record.agent == "a", text="by a"),
    predicate(lambda record: record.step % 2 == 0, on=("tool_call", "message"), text="even"),
    action("message", "user"),
]


def compound(inner: st.SearchStrategy[Formula]) -> st.SearchStrategy[Formula]:
    bound = st.none() | st.integers(0, 4)
    bound_ms = st.none() | st.integers(0, 3000)
    return st.one_of(
        inner.map(lambda part: ~part),
        st.builds(lambda one, two: one & two, inner, inner),
        st.builds(lambda one, two: one | two, inner, inner),
        st.builds(lambda one, two: one.implies(two), inner, inner),
        inner.map(lambda part: part & ~once(part)),
        st.builds(lambda part, steps, ms: once(part, within=steps, within_ms=ms), inner, bound, bound_ms),
        st.builds(lambda part, steps, ms: historically(part, within=steps, within_ms=ms), inner, bound, bound_ms),
    )


formulas = st.recursive(st.sampled_from(ATOMS), compound, max_leaves=6)
steps = st.one_of(
    st.builds(
        lambda name, amount, agent: record("tool_call", name, {"amount": amount}, agent=agent),
        st.sampled_from(["refund", "track"]), st.integers(0, 3), st.sampled_from("ab"),
    ),
    st.booleans().map(lambda passed: record("verification", "row", {"passed": passed})),
    st.sampled_from(["user", "mailer"]).map(lambda name: record("message", name, agent="a")),
    st.just(record("memory_write", "notes")),
)  # fmt: skip


@st.composite
def traces(draw: st.DrawFn, least: int = 0) -> tuple[Record, ...]:
    """A random trace whose time stands still, moves a little or jumps."""
    made = trace(*draw(st.lists(steps, min_size=least, max_size=12)))
    at_ms, placed = 0, []
    for item in made:
        at_ms += draw(st.sampled_from([0, 500, 1000, 2500]))
        placed.append(replace(item, at_ms=at_ms))
    return tuple(placed)


@pytest.mark.full
@settings(max_examples=300, deadline=None)
@given(formulas, traces())
def test_skipping_steps_by_kind_changes_no_verdict_and_no_state(formula: Formula, records: tuple[Record, ...]) -> None:
    skipping = mat.contract("c", always(formula))
    court, full = Judge([skipping]), Judge([replace(skipping, kinds=None)])
    for item in records:
        assert court.step(item).violations == full.step(item).violations
        assert court.digest() == full.digest()


def test_a_formula_over_one_kind_is_not_called_for_the_others() -> None:
    contract = mat.contract("c", always(REFUND.implies(once(CHECK, within=3))))
    assert contract.kinds == frozenset({"tool_call", "verification"})


def test_on_an_empty_trace_nothing_happened() -> None:
    assert broken(mat.contract("c", once(REFUND)), ()) == (0,)
    assert broken(mat.contract("c", ~once(REFUND)), ()) == ()
    assert broken(mat.contract("c", historically(REFUND)), ()) == ()


def test_a_window_ends_exactly_at_its_bound() -> None:
    checked, idle, refund = (
        record("verification", "row", {"passed": True}),
        record("message", "user"),
        record("tool_call", "refund"),
    )
    contract = mat.contract("c", always(REFUND.implies(once(CHECK, within=2))))
    assert broken(contract, trace(checked, idle, refund)) == ()
    assert broken(contract, trace(checked, idle, idle, refund)) == (3,)
    timed = mat.contract("c", always(REFUND.implies(once(CHECK, within_ms=2000))))
    assert broken(timed, trace(checked, idle, refund)) == ()
    assert broken(timed, trace(checked, idle, idle, refund)) == (3,)


@pytest.mark.full
@settings(max_examples=100, deadline=None)
@given(formulas)
def test_the_state_of_a_formula_does_not_grow_with_the_trace(formula: Formula) -> None:
    contract = mat.contract("c", always(formula))
    item, state, sizes = record("tool_call", "refund", {"amount": 2}, agent="a"), contract.start, []
    for step in range(0, 200_000, 1_000):
        new = contract.step(state, replace(item, step=step, at_ms=step))
        state = new.state if isinstance(new, mat.Violated) else new
        sizes.append(len(canonical(state)))
    slots = len(contract.start)
    assert max(sizes) <= 2 + 16 * slots


def test_always_inside_another_formula_is_refused() -> None:
    for formula in (
        ~always(REFUND),
        always(~always(REFUND)),
        REFUND | always(CHECK),
    ):
        with pytest.raises(mat.MatError, match="is nested inside another formula"):
            mat.contract("c", formula)
    with pytest.raises(mat.MatError, match="is nested inside another formula"):
        once(always(REFUND))


def test_and_or_not_and_if_on_a_formula_are_refused() -> None:
    for use in (
        lambda: REFUND and CHECK,
        lambda: REFUND or CHECK,
        lambda: not REFUND,
        lambda: 1 if REFUND else 2,
    ):
        with pytest.raises(mat.MatError, match="no truth value") as caught:
            use()
        assert "&, | and ~" in caught.value.fix


@pytest.mark.parametrize("bound", [-1, 1.5, "3", True])
def test_a_bound_that_is_no_count_is_refused(bound: object) -> None:
    with pytest.raises(mat.MatError, match="is not a count"):
        once(REFUND, within=bound)  # type: ignore[arg-type]
    with pytest.raises(mat.MatError, match="is not a count"):
        historically(REFUND, within_ms=bound)  # type: ignore[arg-type]


def test_what_is_no_formula_is_refused() -> None:
    for use in (lambda: mat.contract("c", "refund"), lambda: always(True), lambda: REFUND & "x"):  # type: ignore[arg-type,operator]
        with pytest.raises(mat.MatError, match="is not a formula"):
            use()


def test_an_unknown_action_kind_is_refused_with_the_one_meant() -> None:
    with pytest.raises(mat.MatError, match="did you mean 'tool_call'"):
        action("toolcall")  # type: ignore[arg-type]


def test_the_message_and_text_say_the_formula() -> None:
    from mat_contracts.traces import violations

    contract = mat.contract("c", always(REFUND.implies(once(CHECK, within=5))), repair="check first")
    assert contract.text == "always((tool_call('refund') implies once(verification(passed=True), within=5)))"
    (violation,) = violations(contract, trace(record("tool_call", "refund")))
    assert violation.message == "tool_call('refund') without once(verification(passed=True), within=5)"
    assert violation.repair == "check first"


SEEDED = """
import mat
from mat.monitor.judge import Judge
from mat.temporal import always, at_most, eventually, field, for_each, predicate, since, tool_call
from mat_contracts import claims_supported, consent, containment, least_privilege, no_duplicate_effect, no_pii, progress
from mat_contracts import verify_before_act
from mat_contracts.traces import record, trace

seen = mat.trace_contract(start=frozenset(), id="seen")(lambda state, item: state | {item.action.name})
court = Judge([
    seen, claims_supported(), containment(), no_pii(tools=["mail", "refund", "track"]), progress(window=3),
    least_privilege({"main": {"refund": {"order": {"A", "B", "C"}}, "track": {}, "mail": None}}),
    no_duplicate_effect(["refund", "mail", "track"], key=["order"]), consent(send=["mail", "post"], opted_out={"x", "y", "z"}),
    verify_before_act(["refund", "mail", "post"]),
    mat.contract("either", always(predicate(lambda item: True, on=("message", "tool_call", "claim")))),
])
for item in trace(
    record("tool_call", "refund", {"order": "A"}, error="timeout", state={"open_subtasks": 1}),
    record("tool_call", "track", {"order": "B"}, value={"eta": "2024-05-03", "ok": True}, faults=["service.stale"]),
    record("claim", "claim", {"text": "B arrives on Friday"}, supports=["step#1"]),
    record("tool_call", "mail", {"order": "D", "to": "y"}),
):
    verdict = court.step(item)
    print(verdict)
print(court.digest(), court.finish(item))
"""


@pytest.mark.full
def test_states_and_verdicts_do_not_depend_on_the_hash_seed() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", SEEDED], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True, timeout=60
        ).stdout
        for seed in ("0", "1", "77")
    }
    (only,) = said
    assert "violations=(Violation(" in only


@pytest.mark.parametrize(
    "name", ["it's", 'a "b"\n c', "v1", "x == y", "a and b", "not z", "if x in y", "{x}", "\\", "found", "s0", "é\u2028"]
)
def test_whatever_a_name_holds_stays_a_name_in_the_generated_code(name: str) -> None:
    called, other = record("tool_call", name, {name: name}), record("tool_call", name + "!", {name: "!"})
    seen, argued = tool_call(name), tool_call(**{name: name})
    formulas = [
        always(~seen), always(~argued), always(tool_call().implies(since(~seen, ~argued))),
        for_each(f"arguments.{name}" if "." not in name else name, always(at_most(0, seen))),
        always(field(f"arguments.{name}") != name), always(seen.implies(eventually(~seen, within=0))),
    ]  # fmt: skip
    contracts = [mat.contract(f"c{number}", formula) for number, formula in enumerate(formulas)]
    court = Judge(contracts)
    for item in trace(other, called, other):
        court.step(item)
    assert [[found.step for found in outcome.violations] for outcome in court.finish(None)] == [[1]] * len(formulas)


@pytest.mark.parametrize("key", ["amount", "amount in cents", "a == b", "it's a < b", 'a "b" in c', "a\\ in b"])
def test_the_opposite_of_a_test_leaves_the_words_of_a_key_alone(key: str) -> None:
    contract = mat.contract("c", always(field(f"arguments.{key}") == None))  # noqa: E711
    assert broken(contract, trace(record("tool_call", "pay", {key: None}), record("tool_call", "pay", {key: 5}))) == (1,)


@pytest.mark.filterwarnings("error")
def test_a_field_that_is_always_there_is_compared_with_none_without_a_warning() -> None:
    kind, both, either = field("kind"), field("kind", "name"), field("kind", "kind")
    seen = [REFUND.implies(part) for part in (kind != None, both != None, either != None)]  # noqa: E711
    lost = [REFUND.implies(part) for part in (kind == None, both == None, either == None)]  # noqa: E711
    made = trace(record("tool_call", "track"), record("tool_call", "refund"))
    assert [broken(mat.contract("c", always(part)), made) for part in (*seen, *lost)] == [()] * 3 + [(1,)] * 3


@pytest.mark.full
@pytest.mark.parametrize("joined", [operator.or_, operator.and_])
@pytest.mark.parametrize("count", [250, 3000])
def test_a_formula_of_many_parts_is_as_deep_as_one_of_two(count: int, joined: Callable[[Any, Any], Any]) -> None:
    tools = [f"tool{number}" for number in range(count)]
    wide = mat.contract("c", always(~functools.reduce(joined, [~tool_call(name) for name in tools])))
    seen = broken(wide, trace(record("tool_call", tools[-1]), record("tool_call", "other")))
    assert seen == ((0, 1) if joined is operator.or_ else (1,))
