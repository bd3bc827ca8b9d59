"""An action changed between approval and execution: unprotected it breaks contracts on approvals, governed it is blocked."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat.boundary.effect import PASS, Call, Rewrite
from mat.core.value import EMPTY, FrozenDict, snapshot_arguments
from mat.govern.mediator import Governance, NeedsApproval
from mat_contracts.approval import approved_before
from mat_contracts.traces import record, trace
from mat_faults import approval
from mat_faults.conformance import assert_conforms

(OPERATOR,) = approval.operators()
KINDS = ("amount", "recipient", "id")


def changed(what: str, **given_: Any) -> Any:
    """What the operator would put in place of some arguments; None where it declines."""
    call = Call(
        port="pay", kind="tool_call", agent="main", site="", arguments=EMPTY, at_ms=0, parameters=FrozenDict({"what": what}),
        given=snapshot_arguments(given_, "call"),
    )  # fmt: skip
    effect = OPERATOR.decide(call, None, random.Random(0))
    if effect == PASS:
        return None
    assert isinstance(effect, Rewrite)
    return dict(effect.arguments)


@pytest.mark.parametrize(
    ("what", "arguments", "wanted"),
    [
        ("amount", {"order": "A1", "amount": 5}, {"amount": 50}),
        ("amount", {"count": 0, "note": "5"}, {"count": 1}),
        ("amount", {"body": {"lines": [{"cents": 2.5}]}}, {"body": {"lines": [{"cents": 25.0}]}}),
        ("amount", {"days": 3}, {"days": 30}),
        ("amount", {"urgent": True, "text": "five"}, None),
        ("recipient", {"to": "ann@shop.example", "text": "hi"}, {"to": "xann@shop.example"}),
        ("recipient", {"to": ["ann@a.example", "bob@a.example"]}, {"to": ["xann@a.example", "bob@a.example"]}),
        ("recipient", {"iban": "DE89370400440532013000"}, {"iban": "DE89370400440532013001"}),
        ("recipient", {"target": "https://a.example/x"}, {"target": "https://a.example/y"}),
        ("recipient", {"amount": 5, "text": "to ann"}, None),
        ("id", {"order": "A9", "amount": 5}, {"order": "A0"}),
        ("id", {"customer_id": 41, "amount": 5}, {"customer_id": 42}),
        ("id", {"parcelId": "Zz"}, {"parcelId": "Za"}),
        ("id", {"case": "T-17"}, {"case": "T-18"}),
        ("id", {"text": "hello there"}, None),
    ],
)
def test_one_argument_becomes_another_of_its_json_type(what: str, arguments: dict[str, Any], wanted: Any) -> None:
    assert changed(what, **arguments) == wanted


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=6,
)  # fmt: skip


@given(arguments=st.dictionaries(st.sampled_from(["to", "amount", "order_id", "text", "x"]), JSON), what=st.sampled_from(KINDS))
def test_whatever_the_arguments_exactly_one_leaf_changes_and_keeps_its_type(arguments: dict[str, Any], what: str) -> None:
    from mat_faults.mutators import leaves

    given_ = snapshot_arguments(arguments, "call")
    found = changed(what, **given_)
    if found is None:
        return
    assert list(found)[1:] == []
    before, after = list(leaves(dict(given_))), list(leaves({**given_, **found}))
    assert [path for path, _ in before] == [path for path, _ in after]
    different = [(one, other) for (_, one), (_, other) in zip(before, after, strict=True) if repr(one) != repr(other)]
    assert len(different) == 1
    assert type(different[0][0]) is type(different[0][1])


def relevant(record_: mat.Record, *before: mat.Record, what: str = "amount") -> bool:
    return bool(OPERATOR.relevant(record_, FrozenDict({"what": what}), before))


def test_it_is_tried_only_where_something_was_approved_or_governed_and_where_it_would_change_something() -> None:
    from mat.core.record import Mediation

    (pay,) = trace(record("tool_call", "pay", {"amount": 5}, effect="write"))
    approval = record("approval", "pay", {"amount": 5}, value=True)
    assert not relevant(pay)
    assert relevant(pay, approval)
    assert relevant(replace(pay, mediation=Mediation(decision="allow")))
    assert not relevant(pay, approval, what="recipient")


def test_it_keeps_what_the_kit_asks_of_operators_but_for_calls_that_nobody_approved() -> None:
    assert_conforms(OPERATOR, accept=["misses"])


@mat.tool(effect="write", impact="high")
def pay(to: str, amount: int, order: str) -> str:
    return f"{amount} to {to} for {order}"


CALL = {"to": "ann@shop.example", "amount": 5, "order": "A1"}


def run_of(what: str, body: Any, governance: Governance) -> mat.Run:
    schedule = [mat.spec.perturbation(OPERATOR.id, "main/service:pay#1", {"what": what, "magnitude": 1}, cost=5)]
    with mat.run([approved_before()], governance=governance, operators=[OPERATOR], schedule=schedule) as run:
        body()
    assert run.result is not None
    return run.result


@pytest.mark.parametrize("what", KINDS)
def test_who_asks_for_approval_and_then_acts_unprotected_does_what_nobody_approved(what: str) -> None:
    def body() -> None:
        if mat.approval("payment", tool="pay", arguments=CALL):
            pay(**CALL)  # type: ignore[arg-type]

    run = run_of(what, body, Governance(approver=lambda what, arguments: True))
    (violation,) = run.violations
    assert (violation.contract, violation.stage) == ("high_impact.approved_before", "effected")
    assert "was for other arguments" in violation.message


@pytest.mark.parametrize("what", KINDS)
def test_where_governance_asks_for_the_approval_the_changed_action_is_blocked(what: str) -> None:
    def body() -> None:
        with pytest.raises(mat.Blocked, match="changed after approval"):
            pay(**CALL)  # type: ignore[arg-type]

    asks = Governance(rules=(lambda record: NeedsApproval("payment"),), approver=lambda what, arguments: True)
    run = run_of(what, body, asks)
    assert run.violations == ()
    assert (run.records[0].invoked, run.records[0].effected) == (0, "no")
    assert [note.changed for note in run.records[0].faults] == [True]


def searched(governance: Governance, body: Any) -> Any:
    """What a search over this operator alone finds in a run of the body."""
    from mat_search import Campaign, search

    def evaluate(spec: mat.spec.RunSpec) -> mat.Run:
        run = mat.run(
            [approved_before()],
            governance=governance,
            operators=[OPERATOR],
            schedule=spec.schedule,
            seed=spec.seed,
            states=True,
        )
        with suppress(OSError), run:
            body()
        assert run.result is not None
        return run.result

    return search(evaluate(mat.spec.RunSpec()), evaluate, Campaign(operators=(OPERATOR.spec(),), budget=12, stop="budget"))


def test_the_search_finds_the_change_after_approval_and_proves_that_governance_leaves_none() -> None:
    def body() -> None:
        if mat.approval("payment", tool="pay", arguments=CALL):
            pay(**CALL)  # type: ignore[arg-type]

    def yes(what: str, arguments: Any) -> bool:
        return True

    (found,) = searched(Governance(approver=yes), body).counterexamples
    assert [item.operator for item in found.run.spec.schedule] == [OPERATOR.id]
    asks = Governance(
        rules=(lambda record: NeedsApproval("payment", own=True) if record.action.impact == "high" else None,), approver=yes
    )
    governed = searched(asks, body)
    assert governed.counterexamples == ()
    assert governed.certificate.proven, governed.certificate.reason
