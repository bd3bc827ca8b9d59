"""One run: how it ends, what it records, what it hides."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import warnings
from contextvars import Context
from typing import Any

import pytest

import mat
from mat.boundary.effect import Delay, Raise, Replace
from mat.boundary.tape import Tape
from mat.core.codec import decode, encode
from mat.core.errors import CodecError, MatError, RunStopped
from mat.core.record import Record
from mat.core.run import REFUSED, UNCONTROLLED, Run, prefixes, remedy
from mat.core.value import FrozenDict
from mat.harness.recorder import Recorder
from mat.temporal import action, always, at_most, eventually, tool_call


@mat.tool(effect="write")
def pay(order: str, amount: int = 1) -> dict[str, Any]:
    return {"receipt": f"R-{order}"}


@mat.tool
def look(order: str) -> str:
    return f"status of {order}"


OPERATORS = [
    mat.spec.operator("service.before", lambda call, reply, stream: Raise("timeout"), grid=[{}]),
    mat.spec.operator("service.after", lambda call, reply, stream: Raise("timeout"), grid=[{}], phase="after"),
    mat.spec.operator("service.same", lambda call, reply, stream: Replace(reply.value), grid=[{}], phase="after"),
    mat.spec.operator("service.slow", lambda call, reply, stream: Delay(5_000), grid=[{}], phase="after"),
    mat.spec.operator("service.crash", lambda call, reply, stream: 1 / 0, grid=[{}]),
    mat.spec.operator("service.nonsense", lambda call, reply, stream: "boom", grid=[{}], phase="after"),
]


def under(operator: str, site: str, body: Any, **options: Any) -> Run:
    with mat.run(schedule=[mat.spec.perturbation(operator, site, cost=4)], operators=OPERATORS, **options) as run:
        body()
    assert run.result is not None
    return run.result


def done(run: mat.run) -> Run:
    assert run.result is not None
    return run.result


def test_the_horizon_in_steps_ends_a_run_whose_agent_swallows_every_exception() -> None:
    with mat.run(horizon=5) as run:
        while True:
            try:
                look("A")
            except Exception:
                continue
    assert (done(run).termination, done(run).term, done(run).success) == ("horizon", False, False)
    assert len(done(run).records) == 6


def agent_that_swallows() -> None:
    try:
        look(object())  # type: ignore[arg-type]
    except Exception:
        look("A")


def test_the_end_of_a_run_raises_the_mistake_that_its_agent_swallowed() -> None:
    run = mat.run()
    run.__enter__()
    agent_that_swallows()
    with pytest.raises(CodecError, match="call of look, parameter 'order'"):
        run.__exit__(None, None, None)


def test_an_exception_of_the_agent_goes_before_a_mistake_that_it_swallowed() -> None:
    run = mat.run()
    with pytest.raises(ZeroDivisionError), run:
        1 / (agent_that_swallows() or 0)
    assert isinstance(run.mistake, CodecError)


def test_the_horizon_in_milliseconds_ends_a_run() -> None:
    with mat.run(horizon_ms=10_000) as run:
        for _ in range(100):
            look("A")
            time.sleep(4)
    assert done(run).termination == "horizon"
    assert [record.at_ms for record in run.trace][:3] == [0, 4_000, 8_000]


def test_a_stop_wrapped_by_a_task_group_ends_the_run_quietly() -> None:
    async def worker() -> None:
        look("A")
        look("B")

    async def body() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(worker())

    with mat.run(horizon=1) as run:
        asyncio.run(body())
    assert done(run).termination == "horizon"


@pytest.mark.parametrize(("status", "success"), [("completed", True), ("aborted", False), ("failed", False)])
def test_an_agent_that_finishes_says_how(status: Any, success: bool) -> None:
    with mat.run() as run:
        mat.finish("answer", status=status)
    assert (done(run).termination, done(run).term, done(run).success) == (status, True, success)
    assert [record.action.kind for record in run.trace] == ["final_response" if success else "termination"]


def test_a_run_that_says_nothing_ends_implicitly_and_one_that_raises_with_the_exception() -> None:
    with mat.run() as run:
        look("A")
    assert (done(run).termination, done(run).success) == ("implicit", True)
    assert run.trace[-1].action.kind == "termination"
    with pytest.raises(KeyError), mat.run() as run:
        raise KeyError("gone")
    assert (done(run).termination, done(run).success, done(run).error) == ("exception", False, "KeyError: 'gone'")


def test_a_step_in_flight_at_the_end_is_sealed_as_cancelled() -> None:
    @mat.tool(effect="write")
    async def slow(key: str) -> None:
        await asyncio.Event().wait()

    async def body() -> None:
        task = asyncio.get_running_loop().create_task(slow("A"))
        await asyncio.sleep(1)
        kept.append(task)
        raise SystemExit

    kept: list[Any] = []
    with pytest.raises(SystemExit), mat.run() as run:
        asyncio.run(body())
    record = run.trace[0]
    assert (record.action.name, record.observation.cancelled, record.effected) == ("slow", True, "unknown")


def test_a_call_that_carries_a_finished_run_warns_and_is_recorded_nowhere() -> None:
    async def body() -> None:
        with mat.run() as first:
            task = asyncio.get_running_loop().create_task(late())
        with mat.run() as second:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                assert await task == "status of A"
            assert any("a call belongs to a run that is over" in str(item.message) for item in caught)
        assert [record.action.kind for record in (*first.trace, *second.trace)] == ["termination", "termination"]

    async def late() -> str:
        await asyncio.sleep(0)
        return look("A")

    asyncio.run(body())


def test_concurrent_agents_keep_their_own_names_and_counts() -> None:
    async def work(name: str) -> None:
        async with mat.agent(name, role=f"role of {name}"):
            for _ in range(2):
                look(name)
                await asyncio.sleep(1)

    async def body() -> None:
        await asyncio.gather(work("a"), work("b"))

    with mat.run() as run:
        asyncio.run(body())
    assert [record.site for record in run.trace[:4]] == [
        "a/service:look#1", "b/service:look#1", "a/service:look#2", "b/service:look#2",
    ]  # fmt: skip
    assert all(record.role == f"role of {record.action.arguments['order']}" for record in run.trace[:4])


def test_the_projection_is_carried_by_the_records_that_follow() -> None:
    with mat.run() as run:
        look("A")
        mat.state(open=2, done=["x"])
        mat.state(open=1)
        look("B")
    assert [record.state for record in run.trace[:2]] == [{}, {"open": 1, "done": ["x"]}]


def test_provenance_links_arguments_and_supports_to_what_delivered_them() -> None:
    with mat.run() as run:
        receipt = pay("A17")
        look(receipt["receipt"])
        mat.claim("paid", supports=[receipt])
    look_record, claim = run.trace[1], run.trace[2]
    assert [(link.src, link.rel, link.dst) for link in look_record.links] == [("step#0", "derived_from", "step#1")]
    assert [(link.src, link.rel, link.dst) for link in claim.links] == [("step#0", "supports", "claim#2")]


@mat.tool(effect="read")
def search(query: str) -> list[dict[str, object]]:
    return [{"name": f"Flat {query}", "status": "available", "address": {"street": f"{query} Street"}}]


@mat.tool
def book(flat: object) -> str:
    return "booked"


def sources(record: Record) -> list[str]:
    return [link.src for link in record.links if link.rel == "derived_from"]


def test_a_call_with_a_part_of_a_reply_comes_from_that_reply_alone() -> None:
    with mat.run() as run:
        first, second = search("North"), search("South")
        book(first[0])
        book(second[0])
        book({"name": "new", "status": "reserved"})  # shares names of fields only
    assert [sources(record) for record in run.trace[2:5]] == [["step#0"], ["step#1"], []]


def test_a_text_that_several_replies_delivered_comes_from_each_the_nearest_first() -> None:
    with mat.run() as run:
        search("North"), search("South")
        book("available")
        book([*search("North"), *search("South")])  # no reply has all of it
        for _ in range(20):
            search("East")
        book("available")
    assert [sources(record) for record in run.trace if record.action.name == "book"] == [
        ["step#1", "step#0"],
        ["step#4", "step#3", "step#1", "step#0"],
        [f"step#{step}" for step in range(25, 17, -1)],
    ]


def test_a_run_within_a_run_leaves_the_outer_one_to_those_without_a_context() -> None:
    with mat.run() as outer:
        with mat.run() as inner:
            Context().run(look, "A")
        Context().run(look, "B")
    assert [[record.action.arguments["order"] for record in run.trace if record.action.boundary] for run in (inner, outer)] == [
        ["A"],
        ["B"],
    ]


def test_evidence_of_others_counts_while_one_step_is_still_in_flight_and_its_own_once_it_has_come() -> None:
    @mat.tool
    async def slow() -> str:
        await asyncio.sleep(10)
        return "came late"

    async def body() -> None:
        task = asyncio.get_running_loop().create_task(slow())
        await asyncio.sleep(0)
        mat.claim("seen", supports=[look("A")])
        mat.claim("heard", supports=[await task])

    with mat.run() as run:
        asyncio.run(body())
    claims = [record for record in run.trace if record.action.kind == "claim"]
    assert [[link.src for link in claim.links] for claim in claims] == [["step#1"], ["step#0"]]


SECRET = "correct horse battery"


def test_a_secret_is_in_no_part_of_a_run() -> None:
    @mat.tool
    def login(user: str, password: str, note: str) -> dict[str, Any]:
        if user == "bad":
            raise ValueError(f"no entry with {note}")
        return {"echo": [note, {"deep": SECRET}]}

    with mat.run(config={"key": "k"}) as run:
        login("early", "x", f"before it was declared: {SECRET}")
        mat.secret(SECRET)
        mat.state(last=SECRET)
        login("a", SECRET, f"with {SECRET}")
        with pytest.raises(ValueError, match=SECRET):
            login("bad", "y", SECRET)
        with pytest.raises(ValueError):
            login("bad", SECRET, "z")
        mat.verify(f"checked {SECRET}", passed=True)
        mat.message("mailer", f"it is {SECRET}")
        mat.detect(f"{SECRET} leaked")
        mat.claim(f"{SECRET}", supports=[SECRET])
        mat.finish(f"done {SECRET}")
    text = json.dumps(encode(done(run)))
    assert SECRET not in text
    assert SECRET.replace(" ", "%20;") not in text
    assert text.count("[redacted:secret#") > 8
    assert done(run).head == decode(Run, json.loads(text)).head


def test_a_rewrite_leaves_the_tool_its_real_secrets_and_the_record_without_them() -> None:
    got = []

    @mat.tool
    def login(password: str, attempts: int) -> None:
        got.append((password, attempts))

    def limit(record: mat.Record) -> mat.policy.Rewrite:
        return mat.policy.Rewrite({**record.action.arguments, "attempts": 1})

    with mat.run(governance=mat.policy.Governance(rules=(limit,))) as run:
        login("hunter2", 9)
    assert got == [("hunter2", 1)]
    assert run.trace[0].executed == {"password": "[redacted:secret#1]", "attempts": 1}
    assert "hunter2" not in json.dumps(encode(done(run)))


def test_a_rewrite_under_an_approval_leaves_the_tool_its_real_secrets_too() -> None:
    got: list[tuple[str, int]] = []

    @mat.tool
    def login(password: str, attempts: int) -> None:
        got.append((password, attempts))

    def limit(record: mat.Record) -> mat.policy.Rewrite:
        return mat.policy.Rewrite({**record.action.arguments, "attempts": 1})

    def asks(record: mat.Record) -> mat.policy.NeedsApproval | None:
        return mat.policy.NeedsApproval("login") if record.action.name == "login" else None

    with mat.run(governance=mat.policy.Governance(rules=(asks, limit), approver=lambda what, arguments: True)) as run:
        login("hunter2", 9)
    assert got == [("hunter2", 1)]
    assert "hunter2" not in json.dumps(encode(done(run)))


def test_a_perturbation_that_was_not_reached_is_reported() -> None:
    result = under("service.before", "main/service:look#3", lambda: look("A"))
    assert [str(item.site) for item in result.unreached] == ["main/service:look#3"]
    assert under("service.slow", "main/service:look#1", lambda: look("A")).unreached == ()


@pytest.mark.parametrize("operator", ["service.crash", "service.nonsense"])
def test_an_operator_that_crashes_or_decides_nonsense_is_an_error_of_its_author(operator: str) -> None:
    with pytest.raises(mat.MatError, match=f"operator {operator}"):
        under(operator, "main/service:look#1", lambda: look("A"))


def impatient() -> None:
    try:  # noqa: SIM105
        pay("A")
    except TimeoutError:
        pass
    look("B")


def test_a_lost_acknowledgement_and_a_time_out_look_alike_to_the_agent_and_differ_in_d() -> None:
    lost = under("service.after", "main/service:pay#1", impatient)
    timed_out = under("service.before", "main/service:pay#1", impatient)
    assert lost.records[0].observation == timed_out.records[0].observation
    assert (lost.records[0].effected, timed_out.records[0].effected) == ("yes", "no")
    assert prefixes(lost)[0] == prefixes(timed_out)[0]
    assert prefixes(lost)[1] != prefixes(timed_out)[1]


def test_histories_that_are_equal_have_equal_prefixes_and_an_inert_perturbation_leaves_them_so() -> None:
    with mat.run() as run:
        impatient()
    inert = under("service.same", "main/service:pay#1", impatient)
    assert inert.id != done(run).id
    assert inert.view == done(run).view
    assert prefixes(inert) == prefixes(done(run))
    slow = under("service.slow", "main/service:pay#1", impatient)
    assert [a == b for a, b in zip(prefixes(slow), prefixes(done(run)), strict=True)][:3] == [True, False, False]


def external(calls: list[str]) -> Any:
    @mat.tool(tape="external", name="remote")
    def remote(key: str) -> dict[str, int]:
        calls.append(key)
        if key == "bad":
            raise TimeoutError("slow")
        return {"size": len(key)}

    return remote


def test_a_tape_serves_external_ports_while_calls_match_then_live_and_not_at_all_where_refused() -> None:
    first: list[str] = []
    with mat.run() as run:
        remote = external(first)
        remote("a")
        with pytest.raises(TimeoutError):
            remote("bad")
    tape = done(run).tape
    again: list[str] = []
    with mat.run(tape=Tape(tape)) as replay:
        remote = external(again)
        assert remote("a") == {"size": 1}
        with pytest.raises(TimeoutError):
            remote("bad")
    assert again == []
    assert done(replay).head == done(run).head
    with mat.run(tape=Tape(tape)):
        assert external(again)("other") == {"size": 5}
    assert again == ["other"]
    with pytest.raises(MatError, match="no taped reply"), mat.run(tape=Tape(tape, live=0)):
        external(again)("other")
    assert again == ["other"]


def test_taped_values_are_decoded_by_the_ports_return_type() -> None:
    from dataclasses import dataclass

    @dataclass
    class Row:
        id: int

    rows: list[Row] = []

    def fetch(key: str) -> Any:
        rows.append(Row(1))
        return rows[-1]

    fetch.__annotations__["return"] = Row
    with mat.run() as run:
        mat.tool(fetch, tape="external")("k")
    with mat.run(tape=Tape(done(run).tape)) as replay:
        assert mat.tool(fetch, tape="external")("k") == Row(1)
    assert len(rows) == 1
    assert done(replay).head == done(run).head


def test_a_reply_whose_own_properties_raise_is_opaque_and_not_lost() -> None:
    class Reply:
        @property
        def usage(self) -> int:
            raise RuntimeError("no")

    @mat.model("planner")
    def ask(prompt: str) -> Reply:
        return Reply()

    with mat.run() as run:
        ask("hello")
    assert run.trace[0].observation.opaque
    (opaque,) = [item for item in done(run).findings if item.code == "opaque-reply"]
    assert opaque.message == "the replies of planner are not plain data: they can be neither compared nor kept in a replay file"


@pytest.mark.parametrize("code", sorted(UNCONTROLLED | REFUSED))
def test_every_finding_that_withdraws_a_proof_has_a_remedy_of_its_own(code: str) -> None:
    assert remedy(code) != remedy("something else")


def test_the_recorder_is_not_entered_after_the_stop() -> None:
    with mat.run(horizon=1) as run:
        look("A")
        recorder = run.recorder
        assert isinstance(recorder, Recorder)
        for _ in range(3):
            with pytest.raises(RunStopped):
                look("B")
    assert done(run).termination == "horizon"
    assert len(done(run).records) == 2


PROGRAM = """
import asyncio, random, uuid, time, mat
@mat.tool
async def work(names):
    await asyncio.sleep(random.random())
    return {"id": uuid.uuid4(), "at": time.time(), "names": names}
async def body():
    await asyncio.gather(*(work({f"{i}-{k}" for k in range(9)}) for i in range(5)))
with mat.run(seed=3) as run:
    asyncio.run(body())
    mat.state(seen={"a", "b"}); mat.finish(frozenset("xyz"))
print(run.result.head)
"""


@pytest.mark.full
@pytest.mark.covers("law", ["L1"])
def test_one_spec_has_one_head_across_processes_and_hash_seeds() -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", PROGRAM], env={**os.environ, "PYTHONHASHSEED": seed}, stdout=subprocess.PIPE)
        for seed in ("0", "1", "77")
    ]
    heads = {process.communicate(timeout=60)[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(heads) == 1
    assert len(heads.pop()) == 64


def test_config_is_frozen_and_hashable() -> None:
    with mat.run(config={"model": ["a", {"b": 1}]}) as run:
        pass
    assert isinstance(done(run).spec.config, FrozenDict)
    assert hash(done(run).spec) == hash(decode(mat.spec.RunSpec, encode(done(run).spec)))


def test_the_error_of_a_run_is_the_same_in_every_process():
    thing = object()
    with pytest.raises(RuntimeError), mat.run() as run:
        raise RuntimeError(f"no {thing!r}\nand more")
    assert run.result.error == "RuntimeError: no <object object at 0x>"


def test_a_run_that_cannot_begin_leaves_nothing_of_its_world_behind():
    sleep = time.sleep
    with pytest.raises(mat.MatError), mat.run(schedule=[mat.spec.perturbation("service.unknown", "main/service:x#1")]):
        pass
    assert time.sleep is sleep


def test_a_run_says_what_is_open_since_which_step_and_presumes_how_it_would_end() -> None:
    @mat.tool(effect="write")
    def refund(order: str) -> str:
        return order

    promised = mat.contract(
        "refund.told",
        always(tool_call("refund").implies(eventually(action("message")))),
    )
    quiet = mat.contract("refund.once", always(at_most(1, tool_call("refund"))))
    with mat.run(contracts=[promised, quiet]) as run:
        refund("A")
        told, once = run.outcomes_so_far
        assert (told.standing, told.outcome, once.standing) == ("presumably_false", "unknown", "presumably_true")
        assert [(item.since, item.met) for item in told.open] == [(0, False)]
        mat.message("user", "refunded")
        assert [item.standing for item in run.outcomes_so_far] == ["presumably_true", "presumably_true"]
        refund("B")
        refund("C")
        assert run.outcomes_so_far[1].standing == "false"
    assert [item.standing for item in run.outcomes_so_far] == ["false", "false"]
    assert [(item.contract, item.step) for item in run.violations] == [
        ("refund.once", 2),
        ("refund.told", 2),
        ("refund.once", 3),
    ]
