"""What agents say about themselves: who acts, hand-overs, checks, claims, approvals, the end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

import mat
import mat_faults
from mat.boundary.effect import Drop, Raise, Replace
from mat.core.errors import SpecError


def perturb(operator: str, site: str, **parameters: Any) -> mat.spec.Perturbation:
    return mat.spec.perturbation(operator, site, parameters, 4)


def said(run: Any) -> list[tuple[str, str, str, dict[str, Any]]]:
    return [(item.agent, item.action.kind, item.action.name, dict(item.action.arguments)) for item in run.trace]


@mat.tool
def track(parcel: str) -> dict[str, str]:
    return {"parcel": parcel, "status": "on its way"}


def test_agents_nest_and_the_outer_one_acts_again_afterwards():
    with mat.run() as run:
        track("0")
        with mat.agent("planner", role="lead"):
            track("1")
            with mat.agent("clerk"):
                track("2")
            track("3")
    assert [(item.agent, item.role, item.site) for item in run.trace[:4]] == [
        ("main", "", "main/service:track#1"), ("planner", "lead", "planner/service:track#1"),
        ("clerk", "", "clerk/service:track#1"), ("planner", "lead", "planner/service:track#2"),
    ]  # fmt: skip


def test_concurrent_agents_are_distinguished():
    async def work(name: str) -> None:
        async with mat.agent(name):
            await asyncio.sleep(1)
            track(name)

    async def team() -> None:
        await asyncio.gather(work("a"), work("b"))

    with mat.run() as run:
        asyncio.run(team())
    assert [(item.agent, item.action.arguments["parcel"]) for item in run.trace[:2]] == [("a", "a"), ("b", "b")]


def test_an_agent_without_a_name_is_refused():
    with pytest.raises(SpecError, match="needs a name"):
        mat.agent("")


def test_a_delegate_acts_inside_the_block_and_the_delegator_after_it():
    async def later() -> str | None:
        async with mat.delegate("mailer", task="post it") as handed:
            track("2")
            return handed.task

    with mat.run() as run:
        assert mat.delegate("clerk", task="look").task == "look"
        with mat.delegate("clerk", task="look", role="helper") as handed:
            track("1")
        assert (handed.task, asyncio.run(later())) == ("look", "post it")
        track("3")
    assert said(run)[:8] == [
        ("main", "delegation", "clerk", {"task": "look", "delegator": "main"}),
        ("main", "delegation", "clerk", {"task": "look", "delegator": "main"}),
        ("clerk", "tool_call", "track", {"parcel": "1"}),
        ("clerk", "handback", "main", {"agent": "clerk"}),
        ("main", "delegation", "mailer", {"task": "post it", "delegator": "main"}),
        ("mailer", "tool_call", "track", {"parcel": "2"}),
        ("mailer", "handback", "main", {"agent": "mailer"}),
        ("main", "tool_call", "track", {"parcel": "3"}),
    ]
    assert [item.role for item in run.trace[2:6:3]] == ["helper", "mailer"]


def test_a_dropped_message_and_a_dropped_delegation_are_lost_without_a_word():
    schedule = [perturb("delegation.drop", "main/delegation:mailer#1")]
    with mat.run(schedule=schedule) as run:
        assert mat.message("mailer", "one") is None
        assert mat.message("mailer", "two") == "two"
    assert [(item.effected, item.invoked, item.observation.value) for item in run.trace[:2]] == [
        ("no", 0, None),
        ("yes", 1, "two"),
    ]
    with mat.run(schedule=schedule) as run:
        with mat.delegate("mailer", task="post it") as handed:
            track("1")
    assert (handed.task, run.trace[0].effected, run.trace[1].agent) == (None, "no", "mailer")


def test_operators_of_a_user_reach_messages_and_texts_from_outside():
    garbled = mat.spec.operator("delegation.garbled", lambda call, reply, stream: Replace(f"~{reply.value}~"), phase="after")
    gone = mat.spec.operator("prompt.gone", lambda call, reply, stream: Raise("connection"))
    lost = mat.spec.operator("delegation.lost", lambda call, reply, stream: Drop())
    schedule = [
        perturb("delegation.garbled", "main/delegation:mailer#1"), perturb("prompt.gone", "main/prompt:email#1"),
        perturb("delegation.lost", "main/delegation:mailer#2..3"),
    ]  # fmt: skip
    with mat.run(schedule=schedule, operators=[garbled, gone, lost]):
        assert [mat.message("mailer", str(number)) for number in range(4)] == ["~0~", None, None, "3"]
        with pytest.raises(ConnectionError, match="email: connection failed"):
            mat.untrusted("hello", channel="email")


def test_text_from_outside_is_spliced_where_the_schedule_says_and_the_record_keeps_both():
    payload = mat_faults.payloads.INSTRUCTIONS[1]
    with mat.run(schedule=[perturb("prompt.splice", "main/prompt:email#2", payload=1)]) as run:
        assert [mat.untrusted("hello", channel="email") for _ in range(3)] == ["hello", f"hello\n{payload}", "hello"]
    first, second = run.trace[:2]
    assert (first.action.kind, dict(first.action.arguments)) == ("message", {"text": "hello", "sender": "email"})
    assert (second.action.arguments["text"], second.raw.value, second.observation.value) == (
        "hello", "hello", f"hello\n{payload}",
    )  # fmt: skip
    assert (first.faults, second.faults[0].operator, second.faults[0].changed) == ((), "prompt.splice", True)


def test_checks_claims_and_corrections_are_records_with_their_evidence():
    with mat.run() as run:
        reply = track("17")
        assert mat.verify("the parcel exists", passed=False, supports=[reply]) is False
        assert mat.claim("It arrives.", supports=[reply["status"], "unknown source"]) == "It arrives."
        mat.detect("stale", supports=["step#0"])
        mat.mitigate("retry", attempt=2)
        mat.state(open_subtasks=2)
        track("17")
    assert [(kind, name, arguments) for _, kind, name, arguments in said(run)[1:5]] == [
        ("verification", "the parcel exists", {"passed": False}), ("claim", "claim", {"text": "It arrives."}),
        ("detection", "stale", {}), ("mitigation", "retry", {"attempt": 2}),
    ]  # fmt: skip
    links = [[(link.src, link.rel, link.dst) for link in item.links if link.rel == "supports"] for item in run.trace]
    assert links[1:4] == [
        [("step#0", "supports", "step#1")], [("step#0", "supports", "claim#2")], [("step#0", "supports", "step#3")],
    ]  # fmt: skip
    assert (run.trace[4].state, run.trace[5].state) == ({}, {"open_subtasks": 2})


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: mat.mitigate("rety"), "unknown mitigation: 'rety'"),
        (lambda: mat.finish("x", status="done"), "unknown finish status: 'done'"),
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_a_wrong_literal_is_refused_with_the_right_ones_inside_a_run_and_outside(call, says, inside):
    def attempt() -> None:
        with pytest.raises(mat.MatError) as caught:
            call()
        assert says in caught.value.what
        assert caught.value.fix

    if not inside:
        return attempt()
    with mat.run() as run:
        attempt()
    assert [item.action.kind for item in run.trace] == ["termination"], "nothing was recorded half-way"
    return None


@pytest.mark.parametrize(
    ("status", "kind", "name", "success"),
    [
        ("completed", "final_response", "answer", True), ("aborted", "termination", "aborted", False),
        ("failed", "termination", "failed", False),
    ],
)  # fmt: skip
def test_a_run_ends_as_it_was_finished(status, kind, name, success):
    with mat.run() as run:
        mat.finish({"answer": 1}, status=status)
    assert said(run) == [("main", kind, name, {"answer": {"answer": 1}})]
    assert (run.result.termination, run.result.success, run.result.term) == (status, success, True)


def test_a_run_that_nobody_finished_and_one_that_raised_say_so():
    with mat.run() as quiet:
        track("1")
    with pytest.raises(KeyError), mat.run() as loud:
        raise KeyError("x")
    assert (quiet.result.termination, loud.result.termination, loud.result.success) == ("implicit", "exception", False)
    assert [item.action.name for item in (quiet.trace[-1], loud.trace[-1])] == ["implicit", "exception"]


def test_an_approval_without_an_approver_is_no_and_the_approver_gets_the_question_and_its_details():
    asked: list[Any] = []

    async def slowly(what: str, details: Any) -> bool:
        await asyncio.sleep(1)
        return bool(details["cents"] < 100)

    def at_once(what: str, details: Any) -> bool:
        asked.append((what, dict(details)))
        return True

    with mat.run() as nobody:
        assert mat.approval("refund", cents=5) is False
        assert asyncio.run(mat.policy.approval_async("refund", cents=5)) is False
    with mat.run(governance=mat.policy.Governance(approver=at_once)):
        assert mat.approval("refund", cents=5) is True
    with mat.run(governance=mat.policy.Governance(approver=slowly)):
        assert [asyncio.run(mat.policy.approval_async("refund", cents=cents)) for cents in (5, 500)] == [True, False]
    assert asked == [("refund", {"cents": 5})]
    assert said(nobody)[0] == ("main", "approval", "refund", {"cents": 5})
    assert nobody.trace[0].observation.value is False
    assert asyncio.run(mat.policy.approval_async("refund")) is False, "outside a run nobody approves"


def test_an_approver_that_fails_approves_nothing():
    done: list[str] = []

    @mat.tool(effect="write")
    def pay() -> None:
        done.append("paid")

    def broken(what: str, details: Any) -> bool:
        raise RuntimeError("approver is down")

    asks = mat.policy.Governance(rules=(lambda record: mat.policy.NeedsApproval("pay"),), approver=broken)
    with (
        mat.run(governance=asks) as run,
        pytest.raises(mat.Blocked, match="not approved: the approver raised RuntimeError: approver is down"),
    ):
        pay()
    assert (done, run.trace[0].effected, run.trace[0].invoked) == ([], "no", 0)


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completion:
    """A client's own reply class, without a canonical form."""

    def __init__(self) -> None:
        self.usage = Usage(prompt_tokens=3, completion_tokens=4, total_tokens=7)


class Called(Completion):
    def __init__(self) -> None:
        self.usage = lambda: {"input_tokens": 3, "reasoning_tokens": 1, "cost": 2.5, "output_tokens": True}  # type: ignore[assignment]


class Crashing:
    @property
    def usage(self) -> Any:
        raise RuntimeError("no usage")


@pytest.mark.parametrize(
    ("reply", "usage"),
    [
        ({"usage": {"input_tokens": 1, "output_tokens": 2}}, {"input_tokens": 1, "output_tokens": 2}),
        (Completion(), {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}),
        (Called(), {"input_tokens": 3, "reasoning_tokens": 1}),
        (Crashing(), {}), ({"usage": None}, {}), ("text", {}), (None, {}),
    ],
)  # fmt: skip
def test_token_usage_is_read_from_whatever_a_client_returns(reply, usage):
    @mat.model("planner")
    def ask(prompt: str) -> Any:
        return reply

    with mat.run() as run:
        assert ask("x") is reply
    assert run.trace[0].observation.usage == usage


def test_a_handoff_runs_another_agent_and_records_that_it_handed_back():
    @mat.handoff("mailer", role="writer")
    def mail(text: str) -> str:
        track(text)
        return text.upper()

    @mat.handoff("mailer")
    async def mail_later(text: str) -> str:
        track(text)
        return text.upper()

    assert mail("plain") == "PLAIN"
    with mat.run() as run:
        with mat.agent("planner"):
            assert (mail("1"), asyncio.run(mail_later("b"))) == ("1", "B")
        with pytest.raises(SpecError, match="generator"):
            mat.handoff("mailer")(lambda: (yield))
    assert said(run)[:6] == [
        ("planner", "delegation", "mailer", {"text": "1"}),
        ("mailer", "tool_call", "track", {"parcel": "1"}),
        ("mailer", "handback", "planner", {"agent": "mailer"}),
        ("planner", "delegation", "mailer", {"text": "b"}),
        ("mailer", "tool_call", "track", {"parcel": "b"}),
        ("mailer", "handback", "planner", {"agent": "mailer"}),
    ]
    assert (run.trace[1].role, run.trace[4].role) == ("writer", "mailer")


def test_a_handoff_that_fails_hands_back_too_and_one_delivered_twice_runs_twice():
    done: list[str] = []

    @mat.handoff("mailer")
    def mail(text: str) -> str:
        done.append(text)
        if text == "bad":
            raise ValueError(text)
        return text

    with mat.run(schedule=[perturb("delegation.duplicate", "main/delegation:mailer#2", times=1, magnitude=1)]) as run:
        with pytest.raises(ValueError, match="bad"):
            mail("bad")
        assert mail("good") == "good"
    assert done == ["bad", "good", "good"]
    assert [item.action.kind for item in run.trace].count("handback") == 3
