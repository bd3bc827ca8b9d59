"""Approvals: records of their own, bound to exactly what is approved, in time, and confirmed before the port runs."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import mat
from mat.boundary.effect import Call, Delay, Effect, Reply, Rewrite
from mat.core.approval import approval_digest, granted
from mat.core.digest import chain
from mat.core.record import facts
from mat.core.run import Run
from mat.core.value import FrozenDict
from mat.govern.approval import Approved, Rejected
from mat.govern.mediator import ConvertToApproval, Governance, NeedsApproval, Sandbox
from mat.monitor.judge import judge
from mat_contracts.approval import approved_before

DONE: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DONE.clear()


@mat.tool(effect="write", impact="high")
def pay(to: str = "ann", amount: int = 5) -> str:
    DONE.append({"to": to, "amount": amount})
    return "paid"


@mat.tool(effect="write", impact="high")
async def wire(to: str = "ann", amount: int = 5) -> str:
    DONE.append({"to": to, "amount": amount})
    return "paid"


def asks(record: mat.Record) -> NeedsApproval | None:
    return NeedsApproval("payment") if record.action.impact == "high" else None


def asking(approver: Any = None, *, rule: Any = asks, **options: Any) -> Governance:
    return Governance(rules=(rule,), approver=approver, **options)


def tried(governance: Governance, *calls: dict[str, Any], **options: Any) -> Run:
    """The run of some payments; whether they were blocked is in the trace."""
    with mat.run(governance=governance, **options) as run:
        for call in calls or ({},):
            try:  # noqa: SIM105
                pay(**call)
            except mat.Blocked:
                pass
    assert run.result is not None
    return run.result


def async_tried(governance: Governance, **options: Any) -> Run:
    with mat.run(governance=governance, **options) as run:
        try:  # noqa: SIM105
            asyncio.run(wire())
        except mat.Blocked:
            pass
    assert run.result is not None
    return run.result


def mediation(record: mat.Record) -> Any:
    assert record.mediation is not None
    return record.mediation


def yes(what: str, arguments: Any) -> bool:
    return True


def test_an_approval_is_a_record_of_its_own_that_the_mediation_names_and_that_binds_exactly_the_call() -> None:
    mat_run = tried(asking(yes, version="v7"), {"amount": 7})
    action, approval = mat_run.records[:2]
    assert (approval.action.kind, approval.action.name, approval.artefact) == (
        "approval",
        "payment",
        mediation(action).approval,
    )
    said = approval.action.arguments
    assert (said["tool"], said["arguments"], said["policy"], said["action"]) == (
        "pay",
        {"to": "ann", "amount": 7},
        "v7",
        "step#0",
    )
    assert said["digest"] == approval_digest("pay", {"to": "ann", "amount": 7}, "v7", said["prefix"])
    assert approval.observation.value == {"status": "approved", "by": "yes", "reason": ""}
    assert granted(approval)
    assert (mediation(action).decision, mediation(action).reason) == ("allow", "approved")
    assert (
        mediation(action).asked_digest == mediation(action).allowed_digest == approval_digest("pay", {"to": "ann", "amount": 7})
    )
    assert DONE == [{"to": "ann", "amount": 7}]


def test_the_trace_before_the_call_is_part_of_what_is_approved_and_can_be_recomputed() -> None:
    records = tried(asking(yes), {"amount": 1}, {"amount": 1}).records
    first, second = (item.action.arguments for item in records if item.action.kind == "approval")
    assert first["digest"] != second["digest"]
    count, _, link = second["prefix"].partition(":")
    expected = ""
    for record in records[: int(count)]:
        expected = chain(expected, facts(record))
    assert (int(count), link) == (2, expected)


@pytest.mark.parametrize(
    ("answer", "status", "by", "why"),
    [
        (True, "approved", "approver", ""),
        (Approved(by="Ann"), "approved", "Ann", ""),
        (False, "rejected", "approver", "payment was not approved"),
        (Rejected(reason="too much", by="Ann"), "rejected", "Ann", "payment was not approved: too much"),
        (1, "rejected", "approver", "the approver returned int, not True"),
        ("yes", "rejected", "approver", "the approver returned str, not True"),
        (None, "rejected", "approver", "the approver returned NoneType, not True"),
        (Approved, "rejected", "approver", "the approver returned type, not True"),
    ],
)
def test_only_a_yes_approves_and_the_trace_says_who_and_why_not(answer: Any, status: str, by: str, why: str) -> None:
    def approver(what: str, arguments: Any) -> Any:
        return answer

    action, approval = tried(asking(approver)).records[:2]
    found: Any = approval.observation.value
    assert (found["status"], found["by"]) == (status, by)
    assert bool(DONE) is (status == "approved") is not action.blocked
    assert mediation(action).approval == "step#1"
    if why:
        assert why in mediation(action).reason


def test_an_approver_that_raises_has_rejected() -> None:
    def broken(what: str, arguments: Any) -> bool:
        raise KeyError("no such person")

    action, approval = tried(asking(broken)).records[:2]
    assert approval.observation.value["status"] == "rejected"  # type: ignore[index,call-overload]
    assert "the approver raised KeyError" in mediation(action).reason
    assert DONE == []


def test_a_plain_approver_that_took_too_long_has_let_it_expire() -> None:
    def slow(what: str, arguments: Any) -> bool:
        time.sleep(61)
        return True

    action, approval = tried(asking(slow, timeout_ms=60_000)).records[:2]
    assert approval.observation.value["status"] == "expired"  # type: ignore[index,call-overload]
    assert "answered after 61000 ms, 60000 allowed" in mediation(action).reason
    assert DONE == []
    assert not tried(asking(slow, timeout_ms=61_000)).records[0].blocked


def test_an_async_approver_that_never_answers_expires_in_virtual_time() -> None:
    async def never(what: str, arguments: Any) -> bool:
        await asyncio.Event().wait()
        return True

    run = async_tried(asking(never, timeout_ms=3_600_000))
    action, approval = run.records[:2]
    assert (approval.observation.value["status"], run.elapsed_ms) == ("expired", 3_600_000)  # type: ignore[index,call-overload]
    assert mediation(action).reason == "the approval of payment expired: no answer in 3600000 ms"
    assert DONE == []


def test_an_async_approver_in_time_approves_and_its_own_time_out_is_a_rejection() -> None:
    async def soon(what: str, arguments: Any) -> bool:
        await asyncio.sleep(1)
        return True

    async def fails(what: str, arguments: Any) -> bool:
        raise TimeoutError("its own")

    assert not async_tried(asking(soon, timeout_ms=1_001)).records[0].blocked
    approval = async_tried(asking(fails, timeout_ms=1_001)).records[1]
    assert approval.observation.value["status"] == "rejected"  # type: ignore[index,call-overload]


def test_a_wait_for_approval_that_is_cancelled_runs_nothing_and_gives_back_what_it_took() -> None:
    async def never(what: str, arguments: Any) -> bool:
        await asyncio.Event().wait()
        return True

    async def body() -> None:
        task = asyncio.ensure_future(wire())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    once = mat.policy.capability("wire", mat_rate())
    with mat.run(governance=asking(never, capabilities={"main": [once]})) as run:
        asyncio.run(body())
    action, approval = run.trace[:2]
    assert (action.effected, action.observation.cancelled, approval.observation.cancelled) == ("no", True, True)
    assert run.recorder is not None
    assert run.recorder.mediation is not None
    assert run.recorder.mediation.mediator.state() == ()


def mat_rate() -> Any:
    from mat.govern.capability import rate

    return rate(1)


def test_a_verifier_named_by_the_rule_is_asked_in_place_of_the_runs_approver() -> None:
    def verifier(what: str, arguments: Any) -> bool:
        return bool(arguments["amount"] < 10)

    def route(record: mat.Record) -> NeedsApproval:
        return NeedsApproval("payment", approver=verifier)

    run = tried(asking(lambda what, arguments: False, rule=route), {"amount": 5}, {"amount": 50})
    assert DONE == [{"to": "ann", "amount": 5}]
    assert [item.observation.value["by"] for item in run.records if item.action.kind == "approval"] == ["verifier"] * 2  # type: ignore[index,call-overload]


def test_each_rule_that_wants_approval_gets_its_own() -> None:
    asked: list[str] = []

    def no(what: str, arguments: Any) -> bool:
        asked.append("second")
        return False

    def first(record: mat.Record) -> NeedsApproval:
        return NeedsApproval("first")

    def second(record: mat.Record) -> NeedsApproval:
        return NeedsApproval("second", approver=no)

    run = tried(Governance(rules=(first, second), approver=yes))
    assert [item.action.name for item in run.records if item.action.kind == "approval"] == ["first", "second"]
    assert (asked, DONE, run.records[0].blocked) == (["second"], [], True)


# -- changed between approval and execution -------------------------------------------------------------------------------


def perturbed(decide: Any, phase: Any = "before") -> dict[str, Any]:
    own = mat.spec.operator("service.own", decide, phase=phase)
    return {"operators": [own], "schedule": [mat.spec.perturbation("service.own", "main/service:pay#1", cost=1)]}


def more(call: Call, reply: Reply | None, stream: Any) -> Effect:
    return Rewrite(FrozenDict({"amount": 500}))


def same(call: Call, reply: Reply | None, stream: Any) -> Effect:
    return Rewrite(FrozenDict({"amount": 5}))


def late(call: Call, reply: Reply | None, stream: Any) -> Effect:
    return Delay(5_000)


def test_what_was_changed_after_approval_is_blocked_before_the_port_runs() -> None:
    record = tried(asking(yes), **perturbed(more)).records[0]
    assert DONE == []
    assert (record.effected, record.invoked, mediation(record).decision) == ("no", 0, "block")
    assert mediation(record).reason == "pay was changed after approval: amount"
    assert mediation(record).approval == "step#1"
    assert [note.operator for note in record.faults] == ["service.own"]


def test_a_change_that_changes_nothing_and_one_of_what_nobody_approved_pass() -> None:
    tried(asking(yes), **perturbed(same))
    tried(Governance(rules=(lambda record: None,)), **perturbed(more))
    assert [item["amount"] for item in DONE] == [5, 500]


def test_a_rewrite_by_the_shield_that_was_approved_as_rewritten_runs_as_rewritten_unless_it_is_changed_again() -> None:
    def capped(record: mat.Record) -> Any:
        return mat.policy.Rewrite({"amount": 50}) if record.action.arguments["amount"] > 50 else NeedsApproval("payment")

    assert mediation(tried(asking(yes, rule=capped), {"amount": 900}).records[0]).decision == "rewrite"
    assert DONE == [{"to": "ann", "amount": 50}]
    record = tried(asking(yes, rule=capped), {"amount": 900}, **perturbed(more)).records[0]
    assert (record.blocked, len(DONE)) == (True, 1)


def test_an_approval_that_is_used_too_late_has_expired() -> None:
    record = tried(asking(yes, approve_within_ms=4_999), **perturbed(late)).records[0]
    assert "expired: it was given 5000 ms earlier and is valid for 4999 ms" in mediation(record).reason
    assert DONE == []
    assert not tried(asking(yes, approve_within_ms=5_000), **perturbed(late)).records[0].blocked


def test_secrets_do_not_hide_a_change_after_approval() -> None:
    def other(call: Call, reply: Reply | None, stream: Any) -> Effect:
        return Rewrite(FrozenDict({"to": "Bearer bbbbbbbbbbbbbbbbbbbbbbbb"}))

    call = {"to": "Bearer aaaaaaaaaaaaaaaaaaaaaaaa"}
    assert not tried(asking(yes), call).records[0].blocked
    assert tried(asking(yes), call, **perturbed(other)).records[0].blocked
    assert DONE == [{"to": "Bearer aaaaaaaaaaaaaaaaaaaaaaaa", "amount": 5}]


# -- an agent's own approvals ---------------------------------------------------------------------------------------------


def own(record: mat.Record) -> NeedsApproval:
    return NeedsApproval("payment", own=True)


def attempts(governance: Governance, *steps: Any) -> list[bool]:
    """Whether each payment among some steps went through."""
    went = []
    with mat.run(governance=governance):
        for step in steps:
            if callable(step):
                step()
                continue
            try:
                pay(**step)
                went.append(True)
            except mat.Blocked:
                went.append(False)
    return went


def approves(**details: Any) -> Any:
    return lambda: mat.approval("payment", **details)


def test_an_agents_own_approval_of_exactly_the_call_serves_once_where_the_policy_says_so() -> None:
    only_before = Governance(rules=(own,), approver=lambda what, arguments: "action" not in arguments and "tool" in arguments)
    exact = {"tool": "pay", "arguments": {"to": "ann", "amount": 5}}
    assert attempts(only_before, {}) == [False]
    assert attempts(only_before, approves(**exact), {}, {}) == [True, False]
    assert attempts(only_before, approves(**exact), {"amount": 6}) == [False]
    assert attempts(only_before, approves(tool="pay", arguments={"to": "ann", "amount": 5.0}), {}) == [False]
    assert attempts(Governance(rules=(asks,), approver=only_before.approver), approves(**exact), {}) == [False]


def test_an_approval_serves_the_agent_that_asked_for_it_alone() -> None:
    only_before = Governance(rules=(own,), approver=lambda what, arguments: "action" not in arguments and "tool" in arguments)
    with mat.run(governance=only_before):
        with mat.agent("careful"):
            assert mat.approval("payment", tool="pay", arguments={"to": "ann", "amount": 5})
        with mat.agent("hasty"), pytest.raises(mat.Blocked):
            pay()
        with mat.agent("careful"):
            pay()
    assert len(DONE) == 1


def test_an_own_approval_expires_and_is_void_when_the_same_was_refused_later() -> None:
    answers = iter([True, False, False, True, False, True])

    def approver(what: str, arguments: Any) -> bool:
        return next(answers)

    exact = approves(tool="pay", arguments={"to": "ann", "amount": 5})
    governance = Governance(rules=(own,), approver=approver, approve_within_ms=1000)
    assert attempts(governance, exact, exact, {}) == [False]
    assert attempts(governance, exact, lambda: time.sleep(1.001), {}) == [False]
    assert attempts(governance, exact, lambda: time.sleep(1), {}) == [True]


def test_a_call_turned_into_a_request_runs_nothing_and_runs_once_it_was_approved() -> None:
    def convert(record: mat.Record) -> ConvertToApproval:
        return ConvertToApproval("payment")

    with mat.run(governance=Governance(rules=(convert,), approver=yes)) as run:
        told: Any = pay()
        assert (told["status"], told["approval"], DONE) == ("pending approval", "step#1", [])
        assert mat.approval("payment", digest=told["digest"])
        assert pay() == "paid"
        assert pay() != "paid", "an approval serves once"
    action, request = run.trace[:2]
    assert (action.effected, action.invoked, mediation(action).decision) == ("no", 0, "rewrite")
    assert request.observation.value == {"status": "pending", "by": "", "reason": ""}
    assert not granted(request)


def test_a_sandboxed_call_gets_a_stand_ins_reply_and_never_reaches_port_or_faults() -> None:
    def sandbox(record: mat.Record) -> Sandbox:
        return Sandbox(lambda arguments: f"would pay {arguments['amount']}", reason="rehearsal")

    with mat.run(governance=Governance(rules=(sandbox,)), **perturbed(more)) as run:
        assert pay(amount=3) == "would pay 3"
    record = run.trace[0]
    assert (DONE, record.effected, record.invoked, record.faults) == ([], "no", 0, ())
    assert (mediation(record).decision, mediation(record).reason) == ("rewrite", "sandbox: rehearsal")


# -- contracts read the same trace ----------------------------------------------------------------------------------------


def broken_by(run: Run) -> list[str]:
    return [item.message for item in judge(run.records, [approved_before(tools="pay")])[1][0].violations]


def test_contracts_on_approvals_read_the_mediators_approvals_and_the_agents_own_alike() -> None:
    assert broken_by(tried(asking(yes), {"amount": 7}, {"amount": 7})) == []
    assert broken_by(tried(asking(lambda what, arguments: False))) == []
    (message,) = broken_by(tried(Governance()))
    assert "no approval of this call was given" in message


def test_a_forged_trace_in_which_the_approval_says_something_else_breaks_the_contract() -> None:
    from dataclasses import replace

    run = tried(asking(yes), {"amount": 7})
    action, approval, *rest = run.records

    def forged(**changes: Any) -> list[str]:
        return broken_by(replace(run, records=(action, replace(approval, **changes), *rest)))

    assert forged() == []
    refused = replace(approval.observation, value=FrozenDict({"status": "rejected", "by": "x", "reason": ""}))
    assert forged(observation=refused) == ["pay at step 0 relies on an approval that is rejected"]
    other = FrozenDict({**approval.action.arguments, "digest": "0" * 64})
    assert forged(action=replace(approval.action, arguments=other)) == [
        "pay at step 0 relies on an approval that binds another call"
    ]
    assert "not in the trace" in broken_by(replace(run, records=(action,)))[0]
    changed = replace(action, executed=FrozenDict({"to": "ann", "amount": 700}))
    assert "changed after approval" in broken_by(replace(run, records=(changed, approval, *rest)))[0]


def test_a_taped_reply_never_approves() -> None:
    from dataclasses import replace

    from mat_contracts.traces import record

    given = record("approval", "pay", {"amount": 5}, value=True)
    assert granted(given)
    assert not granted(replace(given, taped=True))


def test_an_agents_own_question_times_out_as_the_policy_says() -> None:
    def slow(what: str, arguments: Any) -> bool:
        time.sleep(2)
        return True

    async def never(what: str, arguments: Any) -> bool:
        await asyncio.Event().wait()
        return True

    with mat.run(governance=Governance(approver=slow, timeout_ms=1_999)) as run:
        assert mat.approval("payment") is False
    assert run.trace[0].observation.value is False
    with mat.run(governance=Governance(approver=slow, timeout_ms=2_000)):
        assert mat.approval("payment") is True
    with mat.run(governance=Governance(approver=never, timeout_ms=60_000)) as run:
        assert asyncio.run(mat.policy.approval_async("payment")) is False
    assert run.result is not None
    assert run.result.elapsed_ms == 60_000


@mat.tool(effect="write", impact="high")
def pages(amount: int = 5) -> Any:
    DONE.append({"amount": amount})
    yield "a"
    yield "b"


def test_a_stream_is_approved_confirmed_and_stood_in_for_as_a_call_is() -> None:
    with mat.run(governance=asking(yes)):
        assert list(pages()) == ["a", "b"]
    own = mat.spec.operator("service.own", more)
    schedule = [mat.spec.perturbation("service.own", "main/service:pages#1", cost=1)]
    with mat.run(governance=asking(yes), operators=[own], schedule=schedule), pytest.raises(mat.Blocked, match="changed after"):
        list(pages())
    with mat.run(governance=Governance(rules=(lambda record: Sandbox("nothing"),))):
        assert list(pages()) == ["nothing"]
    assert DONE == [{"amount": 5}]


def test_what_the_agent_changes_while_the_approver_thinks_is_not_what_runs() -> None:
    reached: list[Any] = []

    @mat.tool(effect="write", impact="high")
    async def mail(to: list[str], parts: tuple[str, ...] = ("a",)) -> None:
        reached.append((to, parts))

    async def thinks(what: str, arguments: Any) -> bool:
        await asyncio.sleep(1)
        return list(arguments["to"]) == ["ann"]

    async def body() -> None:
        recipients = ["ann"]
        task = asyncio.ensure_future(mail(recipients))
        await asyncio.sleep(0.5)
        recipients.append("eve")
        await task

    with mat.run(governance=asking(thinks)):
        asyncio.run(body())
    assert reached == [(["ann"], ("a",))]


def test_what_nobody_changed_reaches_the_port_as_the_very_objects_that_were_given() -> None:
    reached: list[Any] = []

    @mat.tool(effect="write", impact="high")
    def mail(to: list[str], options: dict[str, int]) -> None:
        reached.extend((to, options))

    to, options = ["ann"], {"copies": 1}
    with mat.run(governance=asking(yes)):
        mail(to, options)
    assert reached[0] is to
    assert reached[1] is options
