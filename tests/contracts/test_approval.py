"""Approvals: bound to exactly what is executed, used once, in time, and granted."""

from __future__ import annotations

from dataclasses import replace

import pytest

import mat
from mat.core.digest import canonical
from mat.core.errors import SpecError
from mat.core.record import Mediation
from mat.core.value import FrozenDict
from mat.monitor.contract import Violated
from mat.monitor.judge import judge
from mat_contracts.approval import MAX_OPEN, approval_digest, approved_before
from mat_contracts.traces import broken, record, trace, violations

PAY = {"order": "A1", "amount": 5}
IDLE = record("message", "user")


def pay(arguments: dict[str, object] = PAY, **given: object) -> mat.Record:
    return record("tool_call", "pay", arguments, effect="write", **given)  # type: ignore[arg-type]


def approval(what: str = "pay", answer: object = True, **details: object) -> mat.Record:
    return record("approval", what, details or PAY, value=answer)


def unapproved(*records: mat.Record, **options: object) -> tuple[int, ...]:
    return broken(approved_before(**{"tools": "pay", **options}), trace(*records))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        approval(),
        approval("any words", tool="pay", arguments=PAY),
        approval("any words", tool="pay", arguments={"amount": 5, "order": "A1"}, reason="customer asked"),
        approval("any words", digest=approval_digest("pay", PAY)),
    ],
)
def test_an_approval_says_what_it_binds_in_one_of_three_ways(given: mat.Record) -> None:
    assert unapproved(given, pay()) == ()
    assert unapproved(given, pay({"order": "A1", "amount": 6})) == (1,)
    assert unapproved(given, record("tool_call", "refund", PAY, effect="write"), tools="refund") == (1,)


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ((), "no approval of this call was given"),
        ((approval(answer=False),), "the approval 'pay' at step 0 was refused"),
        ((record("approval", "pay", PAY, error="timeout"),), "the approval 'pay' at step 0 was not answered"),
        ((approval(order="A1", amount=50),), "for other arguments: approved amount=50, executed amount=5"),
        ((approval(order="A1"),), "for other arguments: executed amount=5, approved without amount"),
        ((approval(order="A1", amount=5, to="Ann"),), "approved to='Ann', executed without to"),
        ((approval(order="A1", amount=True),), "approved amount=True, executed amount=5"),
        (
            (approval("x", digest=approval_digest("pay", {"order": "A2"})),),
            f"but {approval_digest('pay', PAY)[:12]} was executed",
        ),
        ((record("approval", "pay, large sums", {}, value=True),), "does not bind a call of pay"),
        ((approval(), approval(answer=False)), "the approval 'pay' at step 1 was refused"),
        ((approval(), pay()), "the approval 'pay' at step 0 was already used at step 1"),
    ],
)
def test_the_violation_says_what_differs_between_approved_and_executed(before: tuple[mat.Record, ...], why: str) -> None:
    found = violations(approved_before(tools="pay"), trace(*before, pay()))
    assert len(found) == 1
    assert why in found[0].message
    assert found[0].step == len(before)
    assert found[0].wanted.startswith("a granted, unused approval of pay(amount=5, order='A1')")


def test_one_is_one_true_is_true_and_a_truthy_answer_is_no_yes() -> None:
    assert unapproved(approval(order="A1", amount=True), pay({"order": "A1", "amount": 1})) == (1,)
    assert unapproved(approval(order="A1", amount=5.5), pay()) == (1,)
    assert unapproved(approval(order="A1", amount=5.0), pay()) == ()
    assert unapproved(approval(answer="yes"), pay()) == (1,)
    assert unapproved(approval(answer=1), pay()) == (1,)


def test_each_use_needs_an_approval_of_its_own_and_a_call_without_effect_uses_none() -> None:
    assert unapproved(approval(), pay(), pay()) == (2,)
    assert unapproved(approval(), approval(), pay(), pay()) == ()
    assert unapproved(approval(), pay(blocked=True), pay(effected="no"), pay()) == ()
    assert unapproved(approval(), pay(error="timeout"), pay()) == (2,)  # the first may have been done
    (found,) = violations(approved_before(tools="pay"), trace(approval(), pay(), pay()))
    assert found.witness == (0, 1, 2)


def test_an_approval_expires_by_steps_and_by_time() -> None:
    assert unapproved(approval(), IDLE, pay(), within=2) == ()
    assert unapproved(approval(), IDLE, IDLE, pay(), within=2) == (3,)
    assert unapproved(approval(), IDLE, pay(), within_ms=2000) == ()
    assert unapproved(approval(), IDLE, IDLE, pay(), within_ms=2000) == (3,)
    (found,) = violations(approved_before(tools="pay", within=1), trace(approval(), IDLE, pay()))
    assert "had expired after 2 steps and 2000 ms" in found.message


def test_an_answer_that_came_after_the_call_was_asked_is_too_late() -> None:
    given, call = trace(approval(), pay())
    late = replace(given, sealed_seq=call.asked_seq + 5)
    (found,) = violations(approved_before(tools="pay"), (late, call))
    assert "only after the call was made" in found.message


def test_a_change_by_the_mediator_or_on_the_way_voids_the_approval() -> None:
    more = FrozenDict({"amount": 500})
    rewritten = replace(pay(), mediation=Mediation(decision="rewrite", rule="x", arguments=more))
    corrupted = replace(pay(), executed=FrozenDict({**PAY, "amount": 500}))
    for item in (rewritten, corrupted):
        (found,) = violations(approved_before(tools="pay"), trace(approval(), item))
        assert "approved amount=5, executed amount=500" in found.message
    assert unapproved(approval(order="A1", amount=500), rewritten) == ()
    by_mediator = replace(pay(), mediation=Mediation(decision="allow", rule="ask", reason="approved"))
    assert unapproved(by_mediator) == ()


def test_by_default_every_action_of_high_impact_needs_one_and_others_do_not() -> None:
    high = replace(pay(), action=replace(pay().action, impact="high"))
    contract = approved_before()
    assert broken(contract, trace(pay(), high)) == (1,)
    assert broken(contract, trace(approval(), high)) == ()
    assert contract.id == "high_impact.approved_before"


def test_parameters_that_are_not_bound_and_a_binding_of_ones_own() -> None:
    noted = pay({**PAY, "note": "hello"})
    assert unapproved(approval(), noted) == (1,)
    assert unapproved(approval(), noted, ignore=["note"]) == ()
    assert unapproved(approval(order="A1", amount=5, note="other"), noted, ignore=["note"]) == ()
    own = approved_before(tools="pay", binds=lambda item: ("pay", {"order": item.action.name.split()[-1], "amount": 5}))
    assert broken(own, trace(record("approval", "pay for A1", value=True), pay())) == ()
    assert broken(own, trace(record("approval", "pay for A2", value=True), pay())) == (1,)
    assert broken(approved_before(tools="pay", binds=lambda item: None), trace(approval(), pay())) == (1,)


def test_open_approvals_are_listed_and_ask_for_nothing() -> None:
    contract = approved_before(tools="pay")
    state = contract.step(contract.start, trace(approval())[0])
    assert contract.obligations is not None
    assert [(item.since, item.instance, item.met) for item in contract.obligations(state)] == [(0, "pay", True)]
    assert contract.obligations(contract.start) == ()


def test_the_state_is_bounded_by_use_and_expiry_and_unused_approvals_without_end_fail() -> None:
    items: list[mat.Record] = []
    for at in range(500):
        items += [approval(order=f"A{at}", amount=1), pay({"order": f"A{at}", "amount": 1}), approval(order=f"B{at}", amount=1)]
    contract = approved_before(tools="pay", within=10)
    state, sizes = contract.start, []
    for item in trace(*items):
        new = contract.step(state, item)
        assert not isinstance(new, Violated)
        state = new
        sizes.append(len(canonical(state)))
    assert max(sizes[750:]) <= max(sizes[:750]) * 1.1
    endless = trace(*[approval(order=f"A{at}", amount=1) for at in range(MAX_OPEN + 1)])
    _, (outcome,) = judge(endless, [approved_before(tools="pay")])
    assert (outcome.outcome, f"more than {MAX_OPEN} approvals" in outcome.error) == ("fail", True)


def test_in_a_run_it_stops_what_was_not_approved_and_lets_pass_what_was() -> None:
    paid: list[int] = []

    @mat.tool(effect="write", impact="high", name="pay")
    def send(order: str, amount: int) -> None:
        paid.append(amount)

    with mat.run(
        [approved_before(policy="block")], governance=mat.policy.Governance(approver=lambda what, arguments: True)
    ) as run:
        with pytest.raises(mat.Blocked):
            send("A1", 5)
        assert mat.approval("pay", order="A1", amount=5)
        with pytest.raises(mat.Blocked):
            send("A1", 50)
        send("A1", 5)
        with pytest.raises(mat.Blocked):
            send("A1", 5)
        mat.finish("done")
    assert paid == [5]
    assert run.violations == ()  # what was blocked had no effect


def test_an_approval_by_the_mediators_rule_counts_as_one() -> None:
    def ask(proposed: mat.Record) -> mat.policy.NeedsApproval | None:
        return mat.policy.NeedsApproval("payment") if proposed.action.name == "pay" else None

    @mat.tool(effect="write", impact="high", name="pay")
    def send(order: str, amount: int) -> None: ...

    yes = mat.policy.Governance(rules=[ask], approver=lambda what, arguments: True)
    with mat.run([approved_before()], governance=yes) as run:
        send("A1", 5)
        mat.finish("done")
    assert run.violations == ()
    with mat.run([approved_before()]) as run:
        send("A1", 5)
        mat.finish("done")
    assert [item.step for item in run.violations] == [0]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: approved_before(within=0),
        lambda: approved_before(within_ms=1.5),  # type: ignore[arg-type]
        lambda: approved_before(tools=[""]),
        lambda: approved_before(ignore="note"),
        lambda: approved_before(binds="pay"),  # type: ignore[arg-type]
    ],
)
def test_an_option_that_cannot_mean_anything_is_refused(wrong: object) -> None:
    with pytest.raises(mat.MatError) as caught:
        wrong()  # type: ignore[operator]
    assert caught.value.fix


def test_only_calls_that_where_names_need_approval_and_what_ran_decides():
    contract = approved_before(tools="refund", where=lambda arguments: arguments["amount"] > 100)
    small = record("tool_call", "refund", {"order": "A1", "amount": 5}, effect="write")
    large = record("tool_call", "refund", {"order": "A1", "amount": 500}, effect="write")
    grown = replace(small, executed=FrozenDict({"order": "A1", "amount": 500}))
    assert broken(contract, trace(small, large, grown)) == (1, 2)
    with pytest.raises(SpecError, match="where="):
        approved_before(where="amount > 100")
