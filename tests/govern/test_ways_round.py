"""Ways round governance that an examiner found: none of them lets an action through any more."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import mat
from mat.adapters import Attachment
from mat.boundary.emit import grant
from mat.core.approval import approval_digest
from mat.govern import policy
from mat.govern.capability import capability, endpoint, folder
from mat.govern.mediator import Allow, Block, ConvertToApproval, Governance, NeedsApproval
from mat.govern.rewrites import needs_approval, to_approval
from mat.govern.sandbox import sandbox
from mat.govern.trust import Level, Trust

DONE: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DONE.clear()


@mat.tool(effect="write")
def refund(order: Any, amount: Any = 1) -> str:
    DONE.append((order, amount))
    return "refunded"


@mat.tool(effect="read")
def read(where: str) -> None:
    DONE.append(where)


@mat.model("planner")
def ask(prompt: str) -> str:
    DONE.append(prompt)
    return "a plan"


PORT = Attachment(effects={"refund": "write"}).tool("refund")


def crossed(**arguments: Any) -> Any:
    return mat.cross(PORT, arguments, lambda changed: DONE.append(arguments))


def tried(governance: Governance, act: Callable[[], object]) -> None:
    def go() -> None:
        with mat.run(governance=governance):
            try:  # noqa: SIM105
                act()
            except mat.Blocked:
                pass

    contextvars.copy_context().run(go)


def about(parameter: str, word: str) -> Governance:
    return Governance(rules=(lambda record: Block("no") if word in str(record.action.arguments[parameter]) else None,))


KEY = "-----BEGIN PRIVATE " + "KEY-----DROP TABLE users-----END PRIVATE " + "KEY-----"


@pytest.mark.parametrize(
    ("governance", "act"),
    [
        (Governance(capabilities={"main": [capability("read", where=folder("/data"))]}),
         lambda: read("/data/?token=/../../../../etc/passwd")),
        (Governance(capabilities={"main": [capability("read", where=endpoint("api.shop.example", paths="/v1"))]}),
         lambda: read("https://api.shop.example/v1/&token=/../../admin/delete")),
        (about("where", "DROP TABLE"), lambda: read(KEY)),
        (about("where", "DROP TABLE"), lambda: read("DROP TABLE users" + " " * 1_000_001)),
        (about("prompt", "customer"), lambda: ask("all about the customer")),
    ],
    ids=["folder", "endpoint", "redacted", "long", "hashed prompt"],
)  # fmt: skip
def test_what_is_redacted_in_the_record_is_judged_all_the_same(governance: Governance, act: Callable[[], object]) -> None:
    tried(governance, act)
    assert not DONE


def test_an_approver_sees_what_would_run_and_the_record_does_not_keep_it() -> None:
    seen: list[Any] = []

    def approver(what: str, arguments: Any) -> bool:
        seen.append(arguments["order"])
        return True

    with mat.run(governance=Governance(rules=(lambda record: NeedsApproval(),), approver=approver)) as run:
        refund(KEY)
    assert seen == [KEY]
    assert KEY not in str(run.trace)
    assert [(KEY, 1)] == DONE


def test_a_rewrite_of_one_parameter_leaves_the_secret_in_another() -> None:
    capped = Governance(rules=(lambda r: mat.policy.Rewrite({"amount": 5}) if r.action.arguments["amount"] > 5 else None,))
    with mat.run(governance=capped) as run:
        refund(KEY, 9)
    assert [(KEY, 5)] == DONE
    assert KEY not in str(run.trace)


def test_an_approval_of_a_redacted_text_is_none_of_the_text_itself() -> None:
    own = Governance(rules=(needs_approval(tools="refund", own=True),), approver=lambda what, details: "tool" in details)

    def act() -> None:
        mat.approval("refund", tool="refund", arguments={"order": "[redacted:private_key#1]", "amount": 1})
        refund(KEY)

    tried(own, act)
    assert not DONE


@pytest.mark.parametrize(
    "governance",
    [
        policy.loads("rules:\n  - block: {agents: intern, reason: no}\n").variant(),
        policy.loads("rules:\n  - block: {roles: trainee, reason: no}\n").variant(),
        Governance(rules=(sandbox("intern"),)),
        Governance(rules=(Trust(levels=(Level(below=0.5, keep=[]),), start={"intern": 0.1}),)),
    ],
    ids=["agents", "roles", "sandbox", "trust"],
)
@pytest.mark.parametrize("inner", [lambda: mat.agent("helper"), lambda: mat.delegate("helper", "do it")])
def test_who_acts_for_an_agent_is_held_to_its_rules(governance: Governance, inner: Callable[[], Any]) -> None:
    def act() -> None:
        with mat.agent("intern", role="trainee"), inner():
            refund("A17")

    tried(governance, act)
    assert not DONE


def test_a_granter_in_the_block_of_another_gives_nothing() -> None:
    governance = Governance(capabilities={"intern": [], "manager": []}, granters={"manager": ["refund"]})

    def act() -> None:
        with mat.agent("intern"):
            with mat.agent("manager"):
                grant("intern", "refund")
            refund("A17")

    tried(governance, act)
    assert not DONE


@pytest.mark.parametrize("decision", [ConvertToApproval(), mat.policy.Sandbox("done")])
def test_a_delegation_is_not_replaced(decision: Any) -> None:
    governance = Governance(
        capabilities={"intern": ["delegation:boss"], "boss": ["refund"]},
        rules=(lambda record: decision if record.action.kind == "delegation" else None,),
    )

    def act() -> None:
        with mat.agent("intern"), mat.delegate("boss", "x"):
            refund("A17")

    tried(governance, act)
    assert not DONE


@pytest.mark.parametrize(
    "named",
    [
        {"tool": "refund", "arguments": {"order": "A17", "amount": 9999}},
        {"digest": approval_digest("refund", {"order": "A17", "amount": 9999})},
    ],
)
def test_an_approval_binds_what_the_approver_was_shown(named: dict[str, Any]) -> None:
    own = Governance(rules=(needs_approval(tools="refund", own=True),), approver=lambda what, shown: shown["amount"] <= 100)

    def act() -> None:
        mat.approval("refund", order="A17", amount=1, **named)
        refund("A17", 9999)

    tried(own, act)
    assert not DONE


def test_a_call_that_waits_when_its_run_ends_does_not_run() -> None:
    @mat.tool(effect="write")
    async def pay() -> None:
        DONE.append("paid")

    async def program() -> None:
        answer = asyncio.Event()

        async def approver(what: str, arguments: Any) -> bool:
            return await answer.wait()

        with mat.run(governance=Governance(rules=(lambda record: NeedsApproval(),), approver=approver)):
            task = asyncio.create_task(pay())
            await asyncio.sleep(0.01)
        answer.set()
        with pytest.raises(mat.Blocked):
            await task

    asyncio.run(program())
    assert not DONE


def test_a_stream_half_read_when_its_run_ends_brings_nothing_more() -> None:
    @mat.tool(effect="write")
    def pages() -> Iterator[int]:
        for number in range(3):
            DONE.append(number)
            yield number

    with mat.run(governance=Governance(rules=(lambda record: Allow(),))):
        kept = contextvars.copy_context()
        stream = pages()
        assert next(stream) == 0
    with pytest.raises(mat.Blocked):
        kept.run(next, stream)
    assert DONE == [0]


def test_a_context_that_outlives_a_run_with_a_resource_contract_calls_nothing() -> None:
    team = mat.budget.ResourceContract(name="team", budgets={"calls": 1})
    with mat.run(governance=Governance(contracts={"*": team})):
        kept = contextvars.copy_context()
    with pytest.raises(mat.Blocked):
        kept.run(refund, "A17")
    assert not DONE


def test_an_adapter_names_an_agent_inside_of_the_acting_one() -> None:
    def act() -> None:
        with mat.agent("intern"):
            mat.cross(PORT, {"order": "A17"}, lambda changed: DONE.append("x"), agent="boss")

    tried(Governance(capabilities={"intern": [], "boss": ["refund"]}), act)
    assert not DONE


def test_a_block_that_is_left_in_another_order_leaves_the_others_as_they_are() -> None:
    def stream() -> Iterator[int]:
        with mat.agent("boss"):
            yield 1

    def act() -> None:
        boss = stream()
        next(boss)
        with mat.agent("intern"):
            list(boss)
            refund("A17")

    tried(Governance(capabilities={"intern": [], "boss": ["refund"]}, default="allow"), act)
    assert not DONE
    with mat.run() as run:
        boss = stream()
        next(boss)
        with mat.agent("intern"):
            list(boss)
        refund("A17")
    assert run.trace[0].agent == "main"


def test_a_delegation_made_elsewhere_does_not_leave_the_block_it_is_entered_in() -> None:
    def act() -> None:
        handed = mat.delegate("boss", "x")
        with mat.agent("intern"), handed:
            refund("A17")

    tried(Governance(capabilities={"main": ["delegation:boss", "refund"], "boss": ["refund"], "intern": []}), act)
    assert not DONE


def test_a_call_inside_of_a_call_with_other_arguments_is_judged() -> None:
    def act() -> None:
        mat.cross(PORT, {"amount": 1}, lambda changed: crossed(amount=999))

    tried(Governance(capabilities={"main": [capability("refund", amount=(0, 5))]}), act)
    assert not DONE
    with mat.run() as run:
        mat.cross(PORT, {"amount": 1}, lambda changed: crossed(amount=999))
    assert [item.action.kind for item in run.trace].count("tool_call") == 1, "without governance it is one step"


def test_a_task_that_was_begun_in_a_call_is_no_part_of_it_for_ever() -> None:
    async def program() -> None:
        tasks: list[Any] = []

        async def later() -> None:
            await asyncio.sleep(0.01)
            await mat.cross_async(PORT, {"amount": 2}, paid)

        async def paid(changed: Any) -> None:
            DONE.append("paid")

        async def call(changed: Any) -> None:
            tasks.append(asyncio.create_task(later()))

        await mat.cross_async(PORT, {"amount": 1}, call)
        await asyncio.gather(*tasks)

    with mat.run() as run:
        asyncio.run(program())
    assert [item.action.kind for item in run.trace].count("tool_call") == 2


def test_a_value_that_equals_another_of_another_type_is_not_that_value() -> None:
    what = [1]

    def approver(asked: str, arguments: Any) -> bool:
        what[0] = True
        return True

    with mat.run(governance=Governance(rules=(lambda record: NeedsApproval(),), approver=approver)):
        refund(what)
    assert DONE[0][0][0] is not True
    DONE.clear()
    off = Governance(rules=(lambda r: mat.policy.Rewrite({"order": [0]}) if r.action.arguments["order"][0] is False else None,))
    with mat.run(governance=off):
        refund([False])
    assert DONE[0][0][0] is not False


def test_a_memory_keeps_what_was_approved() -> None:
    kept: dict[str, Any] = {}
    notes = mat.memory(kept, name="notes")
    given = bytearray(b"ok")

    def approver(asked: str, arguments: Any) -> bool:
        given.extend(b"evil")
        return True

    governance = Governance(rules=(lambda record: NeedsApproval(),), approver=approver)
    tried(governance, lambda: notes.__setitem__("k", given))
    assert not kept
    tried(Governance(rules=governance.rules, approver=lambda *asked: True), lambda: notes.__setitem__("k", {1, 2}))
    assert kept == {"k": {1, 2}}, "what nobody changed is kept as it was given"


def test_each_approval_of_a_call_must_still_hold_when_it_runs() -> None:
    def quick(record: mat.Record) -> NeedsApproval:
        return NeedsApproval(approver=lambda what, arguments: True)

    def slow(record: mat.Record) -> NeedsApproval:
        return NeedsApproval(approver=lambda what, arguments: time.sleep(60) or True)

    tried(Governance(rules=(quick, slow), approve_within_ms=1000), lambda: refund("A17"))
    assert not DONE


def test_an_approval_does_not_end_a_sandbox() -> None:
    def act() -> None:
        with mat.agent("intern"):
            mat.approval("refund", order="A", amount=1)
            refund("A", 1)

    rules = (sandbox("intern"), to_approval(tools="refund"))
    tried(Governance(rules=rules, approver=lambda what, arguments: True), act)
    assert not DONE


def test_a_handle_is_judged_by_what_stands_behind_it() -> None:
    store = mat.artifact.handles()

    @mat.tool(effect="read", handles=store)
    def open_file(path: str) -> None:
        DONE.append(path)

    def act() -> None:
        store.put("x", "../etc/passwd")
        open_file("/data/@HANDLE:x")

    tried(Governance(capabilities={"main": [capability("open_file", path=folder("/data"))]}), act)
    assert not DONE
