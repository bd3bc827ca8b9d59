"""The judge: one fold for online, offline and peeking; what crashes is unknown; later violations are counted too."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat.core.record import Record
from mat.core.verdict import Outcome, merge
from mat.monitor.joint import Overlay
from mat.monitor.judge import Judge, judge
from mat.temporal import always, at_most, for_each, once, tool_call
from mat_contracts import (
    claims_supported,
    collapse,
    containment,
    least_privilege,
    no_duplicate_effect,
    no_pii,
    progress,
    terminates,
    verify_before_act,
)
from mat_contracts.traces import broken, record, trace, violations


@mat.tool(effect="write", impact="high", name="refund")
def refund(order: str, amount: int) -> dict[str, object]:
    return {"order": order, "refunded": amount}


@mat.tool(effect="read", name="track")
def track(parcel: int) -> dict[str, object]:
    if parcel == 13:
        raise TimeoutError("carrier")
    return {"parcel": parcel, "eta": "Friday"}


@mat.trace_contract(start=())
def refunds_in_a_row(state: tuple[str, ...], item: Record) -> object:
    if item.action.name != "refund":
        return ()
    row = (*state, item.action.arguments["order"])[-3:]
    return mat.Violated("three refunds in a row", state=row, witness=(item.step,)) if len(row) == 3 else row


@mat.step_contract(on="tool_call", policy="block")
def refunds_are_capped(item: Record) -> bool:
    """A refund is at most 500."""
    return bool(item.action.arguments.get("amount", 0) <= 500)


def armed() -> list[mat.Contract]:
    return [
        refunds_in_a_row, refunds_are_capped, verify_before_act("refund", within=2), progress(window=3), collapse(window=2),
        terminates(), containment(), no_duplicate_effect("refund", key="order"), claims_supported(), no_pii(),
        least_privilege({"main": {"refund": {"amount": (0, 400)}, "track": None}}),
        mat.contract("never.mailed", ~once(mat.temporal.action("message", "mailer"))),
    ]  # fmt: skip


def do(action: str) -> None:
    match action:
        case "check":
            mat.verify("row", passed=True)
        case "track":
            mat.claim("Parcel 7 arrives on Friday", supports=[track(7)])
        case "fail":
            with pytest.raises(TimeoutError):
                track(13)
        case "too much":
            with pytest.raises(mat.core.errors.Blocked):
                refund("A", 900)
        case "mail":
            mat.message("mailer", "to ann@example.com")
        case "state":
            mat.state(open_subtasks=2, retries=1)
        case order:
            refund(order, 450 if order == "B" else 5)


ACTIONS = ["check", "track", "fail", "too much", "mail", "state", "A", "B"]


@pytest.mark.covers("law", ["L3"])
@given(st.lists(st.sampled_from(ACTIONS), max_size=12), st.booleans(), st.integers(3, 12))
def test_online_verdicts_are_those_of_judging_the_finished_trace(actions: list[str], ends: bool, horizon: int) -> None:
    with mat.run(armed(), horizon=horizon) as run:
        for action in actions:
            do(action)
        if ends:
            mat.finish("done")
    assert run.result is not None
    verdicts, outcomes = judge(run.result.records, armed())
    assert verdicts == run.result.verdicts
    assert outcomes == run.result.outcomes


def test_those_runs_reach_both_outcomes_of_every_contract() -> None:
    seen: dict[str, set[str]] = {}
    for actions, horizon in (
        (["check", "A", "track"], 50),
        (["state", "A", "A", "A", "B", "too much", "mail", "fail"], 50),
        (["state", *["track"] * 9], 8),
        (["track", "track"], 6),
    ):
        with mat.run(armed(), horizon=horizon) as run:
            for action in actions:
                do(action)
            if horizon == 6:
                mat.claim("nothing says so")
                mat.claim("nothing says so")
        assert run.result is not None
        for outcome in run.result.outcomes:
            seen.setdefault(outcome.contract, set()).add(outcome.outcome)
    assert {contract for contract, outcomes in seen.items() if outcomes != {"pass", "fail"}} == set()


@pytest.mark.covers("law", ["L4"])
@given(st.lists(st.sampled_from(ACTIONS), max_size=10), st.data())
def test_peeking_changes_nothing(actions: list[str], data: st.DataObject) -> None:
    with mat.run(horizon=100) as run:
        for action in actions:
            if action != "too much":
                do(action)
    court, plain = Judge(armed()), Judge(armed())
    for item in run.trace:
        proposed = record("tool_call", "refund", {"order": "A", "amount": data.draw(st.sampled_from([5, 900]))}, invoked=0)
        proposed = replace(proposed, step=item.step, effected="unknown")
        before = court.digest()
        first = court.peek(proposed, [item])
        assert court.peek(proposed, [item]) == first
        assert court.digest() == before
        assert court.step(item) == plain.step(item)
    assert court.finish(None) == plain.finish(None)


def test_peeking_sees_what_the_action_would_break_after_those_still_open() -> None:
    court = Judge([no_duplicate_effect("refund", policy="block")])
    first, second = (replace(item, effected="unknown", invoked=0) for item in trace(*[record("tool_call", "refund")] * 2))
    assert court.peek(first) == ()
    assert [violation.contract for violation in court.peek(second, [first])] == ["refund.no_duplicate_effect"]


outcomes = st.sampled_from(["pass", "unknown", "fail"])


@given(st.lists(outcomes), st.lists(outcomes), st.randoms())
def test_merging_outcomes_is_associative_commutative_and_idempotent(
    one: list[Outcome], two: list[Outcome], random: object
) -> None:
    both = merge([*one, *two])
    assert both == merge([merge(one), merge(two)]) == merge([*two, *one]) == merge([both, both])
    assert both == ("fail" if "fail" in one + two else "unknown" if "unknown" in one + two else "pass")


def test_a_contract_that_raises_fails_with_its_error_and_the_others_go_on() -> None:
    @mat.step_contract(on="tool_call")
    def crashes(item: Record) -> bool:
        return bool(item.action.arguments["missing"])

    with mat.run([crashes, refunds_are_capped, verify_before_act("refund")]) as run:
        refund("A", 5)
        mat.finish("done")
    assert run.result is not None
    by_id = {outcome.contract: outcome for outcome in run.result.outcomes}
    assert by_id["crashes"].outcome == "fail"
    assert by_id["crashes"].error == "raised KeyError at step 0: 'missing'"
    assert by_id["refund.verified_before_act"].outcome == "fail"
    assert by_id["refunds_are_capped"].outcome == "pass"


def test_a_contract_that_raises_at_the_end_fails() -> None:
    def finish(state: object) -> None:
        raise RuntimeError("no end")

    contract = mat.trace_contract(start=0, finish=finish, id="crashes")(lambda state, item: state + 1)
    _, (outcome,) = judge(trace(record("tool_call", "refund")), [contract])
    assert (outcome.outcome, outcome.error) == ("fail", "raised RuntimeError at the end: no end")


def test_the_repair_of_a_record_that_could_not_be_judged_is_the_fix_of_its_error() -> None:
    def told(seen: int, record: Record) -> int:
        raise mat.MatError("more than 1000 tools", fix="declare fewer tools")

    def silent(seen: int, record: Record) -> int:
        raise ZeroDivisionError

    contracts = [mat.trace_contract(start=0, id=function.__name__)(function) for function in (told, silent)]
    (verdict,), outcomes = judge(trace(record("tool_call", "track")), contracts)
    assert {outcome.contract: outcome.error.splitlines()[0] for outcome in outcomes} == {
        "told": "raised MatError at step 0: more than 1000 tools", "silent": "raised ZeroDivisionError at step 0",
    }  # fmt: skip
    assert {violation.contract: violation.repair for violation in verdict.violations} == {
        "told": "declare fewer tools",
        "silent": 'make the contract judge this record without an error, or set on_error="unknown"',
    }


def test_what_was_violated_before_a_crash_still_fails() -> None:
    @mat.step_contract(on="tool_call")
    def late(item: Record) -> bool:
        return False if item.step == 0 else bool(1 / 0)

    _, (outcome,) = judge(trace(*[record("tool_call", "refund")] * 3), [late])
    assert (outcome.outcome, len(outcome.violations), outcome.evaluations) == ("fail", 2, 1)


def mutate_arguments(item: Record) -> None:
    item.action.arguments["amount"] = 0


def mutate_nested(item: Record) -> None:
    item.action.arguments["items"].append(1)


def mutate_field(item: Record) -> None:
    item.effected = "no"  # type: ignore[misc]


@pytest.mark.parametrize("mutate", [mutate_arguments, mutate_nested, mutate_field])
def test_a_contract_that_changes_a_record_fails_and_the_record_stays(mutate: object) -> None:
    @mat.step_contract(on="tool_call")
    def meddles(item: Record) -> bool:
        mutate(item)  # type: ignore[operator]
        return True

    (item,) = trace(record("tool_call", "refund", {"amount": 5, "items": [2]}))
    _, (outcome,) = judge([item], [meddles])
    assert outcome.outcome == "fail"
    assert (item.action.arguments, item.effected) == ({"amount": 5, "items": [2]}, "yes")


def test_a_blocking_contract_that_crashed_lets_nothing_pass() -> None:
    @mat.step_contract(on="tool_call", policy="block")
    def guards(item: Record) -> bool:
        return bool(item.action.arguments["amount"] <= 500)

    court = Judge([guards])
    first, second = trace(record("tool_call", "refund", {}), record("tool_call", "refund", {"amount": 5}))
    court.step(first)
    assert [violation.message for violation in court.peek(second)] == ["guards raised KeyError at step 0: 'amount'"]
    (message,) = trace(record("message", "user"))
    assert court.peek(message) == ()


@pytest.mark.parametrize(
    ("start", "change"),
    [
        ({}, lambda state, name: state.update({name: 1})),
        ([], lambda state, name: state.append(name)),
        (set(), lambda state, name: state.add(name)),
        ({"seen": []}, lambda state, name: state["seen"].append(name)),
    ],
)
def test_a_fold_that_changes_its_state_in_place_fails_and_leaks_into_no_other_run(start: object, change: object) -> None:
    def fold(state: object, item: Record) -> object:
        change(state, item.action.name)  # type: ignore[operator]
        return state

    contract = mat.trace_contract(start=start, id="leaks")(fold)
    items = trace(record("tool_call", "refund"))
    for _ in range(2):
        court = Judge([contract])
        before = court.digest()
        court.peek(items[0])
        assert court.digest() == before
        court.step(items[0])
        (outcome,) = court.finish(items[0])
        assert outcome.outcome == "fail"
    assert contract.start == start


def test_a_pure_fold_may_start_from_a_dict_a_list_or_a_set() -> None:
    def names(state: dict[str, int], item: Record) -> object:
        new = {**state, item.action.name: state.get(item.action.name, 0) + 1}
        return mat.Violated("twice", state=new) if new[item.action.name] == 2 else new

    items = trace(record("tool_call", "a"), record("tool_call", "b"), record("tool_call", "a"))
    assert broken(mat.trace_contract(start={}, id="names")(names), items) == (2,)
    assert broken(mat.trace_contract(start=[], id="list")(lambda state, item: [*state, item.step]), items) == ()
    assert broken(mat.trace_contract(start=set(), id="set")(lambda state, item: state | {item.step}), items) == ()


def test_two_contracts_with_one_id_are_refused() -> None:
    with pytest.raises(mat.MatError, match=r"two armed contracts have the id 'privacy\.no_pii'"):
        Judge([no_pii(), no_pii(allow=["a@b.c"])])


def test_what_is_no_contract_is_refused() -> None:
    with pytest.raises(mat.MatError, match="is not a contract"):
        Judge([lambda item: True])  # type: ignore[list-item]


def test_a_state_without_canonical_form_is_named_when_states_are_compared() -> None:
    court = Judge([mat.trace_contract(start=object(), id="odd")(lambda state, item: state)])
    with pytest.raises(mat.MatError, match="state of contract 'odd' has no canonical form"):
        court.digest()


def test_after_a_violation_the_fold_goes_on_from_the_state_it_gave() -> None:
    assert broken(refunds_in_a_row, trace(*[record("tool_call", "refund", {"order": "A"})] * 5)) == (2, 3, 4)


def test_without_a_state_a_violation_keeps_the_one_before() -> None:
    @mat.trace_contract(start=0)
    def at_most_two(count: int, item: Record) -> object:
        return count + 1 if count < 2 else mat.Violated("a third")

    assert broken(at_most_two, trace(*[record("tool_call", "refund")] * 5)) == (2, 3, 4)


def test_several_violations_at_one_step_are_all_reported_at_the_steps_they_blame() -> None:
    def finish(state: tuple[int, ...]) -> mat.Violated | None:
        first, *rest = [mat.Violated(f"open {step}", step=step, witness=(step,)) for step in state]
        return replace(first, more=tuple(rest))

    contract = mat.trace_contract(start=(), finish=finish, id="opens")(lambda state, item: (*state, item.step))
    found = violations(contract, trace(record("tool_call", "a", agent="x"), record("tool_call", "b", agent="y")))
    assert [(item.step, item.agent, item.message) for item in found] == [(0, "x", "open 0"), (1, "y", "open 1")]


def test_a_blocked_action_is_attempted_and_one_that_happened_effected() -> None:
    contract = verify_before_act("refund")
    blocked, happened = record("tool_call", "refund", blocked=True), record("tool_call", "refund", effect="write")
    assert [item.stage for item in violations(contract, trace(blocked, happened))] == ["attempted", "effected"]


def test_a_blocking_contract_stops_the_action_in_a_run() -> None:
    with mat.run([refunds_are_capped, verify_before_act("refund")]) as run:
        with pytest.raises(mat.core.errors.Blocked, match="at most 500"):
            refund("A", 501)
        mat.finish("done")
    assert [(item.contract, item.stage) for item in run.violations] == [
        ("refund.verified_before_act", "attempted"),
        ("refunds_are_capped", "attempted"),
    ]
    assert run.trace[0].effected == "no"


def test_a_raw_contract_is_judged_online_and_unknown_offline() -> None:
    @mat.step_contract(on="message", raw=True)
    def reads_raw(item: Record) -> bool:
        return True

    with mat.run([reads_raw]) as run:
        mat.message("mailer", "hello")
    assert run.outcome == "pass"
    _, (outcome,) = judge(run.trace, [reads_raw])
    assert outcome.outcome == "unknown"


def test_only_contracts_of_a_records_kind_are_checked_and_counted() -> None:
    court = Judge([refunds_are_capped, no_pii()])
    assert court.step(trace(record("tool_call", "refund", {"amount": 5}))[0]).checked == ("refunds_are_capped",)
    assert [outcome.evaluations for outcome in court.finish(None)] == [1, 0]


def test_a_peek_by_id_sees_what_was_pending_and_leaves_every_state_as_it_was() -> None:
    once_each = for_each("arguments.order", always(at_most(1, tool_call("refund"))))
    court = Judge([mat.contract("once", once_each, policy="block")])
    made = trace(*[record("tool_call", "refund", {"order": f"o{number}"}) for number in range(40)])
    for item in made:
        court.fold(item)
    before, (again, other) = (
        court.digest(),
        trace(*[record("tool_call", "refund", {"order": order}) for order in ("o5", "new")]),
    )
    assert [found.instance for found in court.peek(replace(again, step=40))] == ["o5"]
    assert court.peek(replace(other, step=40)) == ()
    pending = [replace(other, step=40), replace(again, step=41)]
    assert [found.instance for found in court.peek(replace(other, step=42), pending)] == ["new"]
    assert court.digest() == before


def test_an_overlay_reads_through_hides_what_is_taken_out_and_keeps_what_is_put_in_to_itself() -> None:
    base = {"a": (1,), "b": (2,)}
    over = Overlay(base)
    over["a"] = (9,)
    over.pop("b", None)
    assert (over.get("a"), over.get("b"), over.get("c")) == ((9,), None, None)
    assert base == {"a": (1,), "b": (2,)}


def test_an_id_that_cannot_be_hashed_costs_its_own_contract_only() -> None:
    listed = mat.contract(
        "listed",
        for_each(lambda record: [record.action.name], always(at_most(0, tool_call()))),
    )
    named = mat.contract("named", for_each("name", always(at_most(0, tool_call()))))
    _, (first, second) = judge(trace(record("tool_call", "refund")), [listed, named])
    assert (first.outcome, "unhashable" in first.error) == ("fail", True)
    assert [found.instance for found in second.violations] == ["refund"]
