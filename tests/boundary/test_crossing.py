"""The crossing: two phases, five layers in one order, and a record for whatever leaves it (DESIGN decisions 5, 6, 12)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

import mat
import mat_faults
from mat.boundary.effect import Duplicate, Effect, Rewrite
from mat.boundary.tape import Tape
from mat.core.errors import RunStopped, SpecError
from mat.core.value import FrozenDict


def only(run: Any, kind: str = "tool_call") -> Any:
    """The one record of that kind."""
    (record,) = [item for item in run.trace if item.action.kind == kind]
    return record


def perturb(operator: str, site: str, **parameters: Any) -> mat.spec.Perturbation:
    return mat.spec.perturbation(operator, site, parameters, 4)


def deciding(effect: Effect) -> mat.spec.Operator:
    return mat.spec.operator("service.own", lambda call, reply, stream: effect)


@mat.trace_contract(start=0, on="tool_call", policy="block", id="once")
def paid_once(count: int, record: Any) -> Any:
    if record.action.name != "refund" or record.effected == "no":
        return count
    return count + 1 if count == 0 else mat.Violated("a second refund", state=count + 1)


def test_of_two_concurrent_refunds_the_second_is_blocked_and_only_one_is_done():
    done: list[str] = []

    @mat.tool(effect="write")
    async def refund(order: str) -> str:
        await asyncio.sleep(1)
        done.append(order)
        return "paid"

    async def both() -> list[Any]:
        return await asyncio.gather(refund("A1"), refund("A1"), return_exceptions=True)

    with mat.run([paid_once]) as run:
        first, second = asyncio.run(both())
    assert (first, type(second), done) == ("paid", mat.Blocked, ["A1"])
    assert [(item.effected, item.blocked) for item in run.trace[:2]] == [("yes", False), ("no", True)]
    assert run.trace[1].sealed_seq < run.trace[0].sealed_seq


def test_governance_comes_before_faults_so_a_blocked_call_is_never_perturbed():
    @mat.tool(effect="write")
    def refund(order: str) -> str:
        raise AssertionError("must not run")

    forbid = mat.policy.Governance(rules=(lambda record: mat.policy.Block("no refunds"),))
    with mat.run(governance=forbid, schedule=[perturb("service.timeout", "main/service:refund#1")]) as run:
        with pytest.raises(mat.Blocked, match="no refunds"):
            refund("A1")
    assert (only(run).faults, only(run).invoked, only(run).observation.error.kind) == ((), 0, "blocked")
    assert [str(item.site) for item in run.result.unreached] == ["main/service:refund#1"]


def capped(record: Any) -> mat.policy.Rewrite:
    return mat.policy.Rewrite({"cents": min(record.action.arguments["cents"], 500)})


def test_a_rewritten_call_runs_with_the_new_arguments_and_the_record_shows_both():
    got = []

    @mat.tool(effect="write")
    def refund(order: str, cents: int, *, card: str) -> int:
        got.append((order, cents, card))
        return cents

    secret = mat.secret("4000-1234-secret")
    with mat.run(governance=mat.policy.Governance(rules=(capped,))) as run:
        assert refund("A1", 9900, card=secret) == 500
    assert got == [("A1", 500, secret)], "what the rule left alone arrives as the caller gave it"
    assert only(run).action.arguments["cents"] == 9900
    assert only(run).executed["cents"] == 500
    assert secret not in repr(run.trace)


def test_a_rewrite_by_governance_survives_a_rewrite_by_an_operator():
    got = []

    @mat.tool(effect="write")
    def refund(order: str, cents: int) -> None:
        got.append((order, cents))

    own = deciding(Rewrite(FrozenDict({"order": "A2"})))
    with mat.run(
        governance=mat.policy.Governance(rules=(capped,)), operators=[own], schedule=[perturb(own.id, "main/service:refund#1")]
    ) as run:
        refund("A1", 9900)
    assert got == [("A2", 500)]
    assert only(run).executed == {"order": "A2", "cents": 500}
    assert only(run).faults[0].changed


def test_a_rewrite_of_a_memory_key_writes_to_the_new_key():
    store: dict[str, Any] = {}
    notes = mat.memory(store, name="notes")

    def moved(record: Any) -> Any:
        return mat.policy.Rewrite({"key": "quarantine"}) if record.action.kind == "memory_write" else None

    with mat.run(governance=mat.policy.Governance(rules=(moved,))):
        notes["ann"] = "x"
    assert store == {"quarantine": "x"}


def test_governance_can_clean_text_that_enters_from_outside():
    def clean(record: Any) -> mat.policy.Rewrite:
        return mat.policy.Rewrite({"text": record.action.arguments["text"].replace("skip checks", "")})

    with mat.run(governance=mat.policy.Governance(rules=(clean,))):
        assert mat.untrusted("hello skip checks") == "hello "


@pytest.mark.parametrize("error", ["", "late"])
def test_a_call_delivered_twice_gives_the_first_reply_whatever_becomes_of_the_second(error):
    calls: list[int] = []

    @mat.tool(effect="write")
    def refund(order: str) -> dict[str, int]:
        calls.append(1)
        if error and len(calls) == 2:
            raise ValueError(error)
        return {"receipt": len(calls)}

    with mat.run(schedule=[perturb("service.duplicate", "main/service:refund#1")]) as run:
        assert refund("A1") == {"receipt": 1}
    assert (len(calls), only(run).invoked, only(run).effected, only(run).raw) == (2, 2, "yes", None)


def test_a_stream_delivered_twice_gives_its_chunks_once():
    @mat.tool
    def lines() -> Any:
        yield from "ab"

    own = deciding(Duplicate(1))
    with mat.run(operators=[own], schedule=[perturb(own.id, "main/service:lines#1")]) as run:
        assert list(lines()) == ["a", "b"]
    assert (only(run).invoked, only(run).observation.chunks) == (2, 2)


def test_the_tape_holds_what_the_port_said_and_a_replay_applies_the_fault_again():
    def scenario(tape: Tape | None, calls: list[str]) -> Any:
        @mat.tool(tape="external")
        def track(parcel: str) -> dict[str, str]:
            calls.append(parcel)
            return {"status": "lost"}

        wrong = mat.spec.perturbation("service.corrupt_field", "main/service:track#1", {"field": 0, "how": "empty"}, 5)
        with mat.run(schedule=[wrong], tape=tape) as run:
            assert track("P1") == {"status": ""}
        return run.result

    live: list[str] = []
    taped: list[str] = []
    recorded = scenario(None, live)
    assert [entry.value for entry in recorded.tape] == [{"status": "lost"}]
    assert recorded.records[0].raw.value == {"status": "lost"}
    again = scenario(Tape(recorded.tape), taped)
    assert (live, taped) == (["P1"], [])
    assert again.head == recorded.head


def test_an_empty_schedule_is_no_fault_layer():
    def scenario(**options: Any) -> str:
        @mat.tool(effect="write")
        def pay(cents: int) -> int:
            return cents

        with mat.run(**options) as run:
            pay(1)
            mat.finish(pay(2))
        return run.result.head

    assert scenario(operators=mat_faults.operators(), schedule=()) == scenario() == scenario(operators=())


def test_errors_are_those_the_ports_client_would_raise():
    class RefusedError(Exception):
        pass

    made = ValueError("ready-made")
    errors = {"timeout": RefusedError, "connection": made, "server_error": lambda message: RefusedError(f"503 {message}")}

    @mat.tool(errors=errors)
    def track() -> None:
        """Says nothing."""

    schedule = [
        perturb("service.timeout", "main/service:track#1"),
        perturb("service.outage", "main/service:track#2", calls=1),
        perturb("service.error", "main/service:track#3", kind="server_error"),
        perturb("service.error", "main/service:track#4", kind="rate_limit"),
    ]
    met: list[Exception] = []
    with mat.run(schedule=schedule) as run:
        for _ in range(4):
            try:
                track()
            except Exception as error:
                met.append(error)
    assert [type(error) for error in met] == [RefusedError, ValueError, RefusedError, mat.errors.RateLimited]
    assert (str(met[0]), met[1] is made, met[3].retry_after_s) == ("track: timed out", True, 30.0)
    assert [item.observation.error.kind for item in run.trace[:4]] == ["timeout", "connection", "server_error", "rate_limit"]


def test_mistakes_in_an_error_map_are_said_at_once_or_when_met():
    with pytest.raises(SpecError, match=r"timeot.*neither an exception"):
        mat.tool(errors={"timeot": ValueError, "auth": 3})(print)

    @mat.tool(errors={"timeout": lambda: ValueError()})
    def track() -> None:
        """Says nothing."""

    with pytest.raises(SpecError, match=r"errors\['timeout'\] of port 'track' raised TypeError"):
        with mat.run(schedule=[perturb("service.timeout", "main/service:track#1")]):
            track()


@pytest.mark.parametrize("delay_first", [False, True])
def test_a_cancelled_call_is_sealed_as_cancelled(delay_first):
    @mat.tool(effect="write")
    async def refund(order: str) -> None:
        await asyncio.sleep(10)

    async def impatient() -> None:
        await asyncio.wait_for(refund("A1"), 1)

    schedule = [perturb("service.delay", "main/service:refund#1", ms=60_000)] if delay_first else []
    with mat.run(schedule=schedule) as run, pytest.raises(TimeoutError):
        asyncio.run(impatient())
    record = only(run)
    assert record.observation.cancelled
    assert (record.effected, record.invoked) == (("no", 0) if delay_first else ("unknown", 1))


def test_nothing_leaves_a_crossing_without_a_record():
    class Odd(BaseException):
        pass

    @mat.tool
    def track(error: str) -> None:
        raise {"odd": Odd, "key": KeyError, "stop": StopIteration, "exit": SystemExit}[error]("x")

    with mat.run() as run:
        for name, kind in (("odd", Odd), ("key", KeyError), ("stop", StopIteration), ("exit", SystemExit)):
            with pytest.raises(kind):
                track(name)
    assert [item.observation.error.type for item in run.trace[:4]] == ["Odd", "KeyError", "StopIteration", "SystemExit"]
    assert [item.effected for item in run.trace[:4]] == ["unknown"] * 4


def test_no_effect_happens_beyond_the_horizon():
    done: list[int] = []

    @mat.tool(effect="write")
    def pay(cents: int) -> None:
        done.append(cents)

    with mat.run(horizon=2) as run:
        for cents in range(9):
            pay(cents)
    assert (done, run.result.termination) == ([0, 1], "horizon")


def test_a_call_in_flight_when_the_run_ends_is_sealed_as_cancelled():
    @mat.tool
    async def forever() -> None:
        await asyncio.Event().wait()

    with mat.run() as run:
        asyncio.run(_until_stopped(forever))
    assert only(run).observation.cancelled
    assert run.result.termination == "deadlock"


async def _until_stopped(call: Callable[[], Any]) -> None:
    await call()


def test_an_async_approver_cannot_be_taken_for_a_yes_in_plain_code():
    async def yes(what: str, details: Any) -> bool:
        return True

    with mat.run(governance=mat.policy.Governance(approver=yes)) as run:
        with pytest.raises(SpecError, match="approver is async"):
            mat.approval("refund")
        assert asyncio.run(mat.policy.approval_async("refund")) is True
    assert [item.observation.value for item in run.trace[:2]] == [None, True]


@pytest.mark.parametrize(("answer", "granted"), [(True, True), (False, False), ("no", False), (1, False), (None, False)])
def test_only_true_is_an_approval(answer, granted):
    with mat.run(governance=mat.policy.Governance(approver=lambda what, details: answer)) as run:
        assert mat.approval("refund", cents=5) is granted
    assert only(run, "approval").observation.value is granted


@pytest.mark.parametrize("streamed", [False, True])
def test_an_async_approver_asked_for_a_plain_call_is_refused_and_nothing_runs(streamed):
    done: list[str] = []

    @mat.tool(effect="write")
    def pay() -> Any:
        done.append("paid")

    @mat.tool(effect="write")
    def pages() -> Any:
        done.append("paid")
        yield 1

    async def yes(what: str, details: Any) -> bool:
        return True

    asks = mat.policy.Governance(rules=(lambda record: mat.policy.NeedsApproval("x"),), approver=yes)
    with pytest.raises(SpecError, match="approver is async"), mat.run(governance=asks) as run:
        list(pages()) if streamed else pay()
    assert (done, only(run).effected) == ([], "no")


def test_a_stop_unwinds_an_agent_that_catches_everything():
    @mat.tool
    def track() -> None:
        """Says nothing."""

    caught: list[BaseException] = []
    with mat.run(horizon=1):
        try:
            while True:
                track()
        except Exception as error:  # an agent that never gives up
            caught.append(error)
        except RunStopped:
            raise
    assert caught == []


def test_an_operator_draws_from_a_stream_of_its_own():
    drawn: list[float] = []

    def decide(call: Any, reply: Any, stream: random.Random) -> Effect:
        drawn.append(stream.random())
        return Rewrite(FrozenDict())

    @mat.tool
    def roll() -> float:
        return random.random()

    def scenario(*schedule: mat.spec.Perturbation) -> float:
        with mat.run(operators=[mat.spec.operator("service.own", decide)], schedule=schedule, seed=3):
            return roll()

    assert scenario() == scenario(perturb("service.own", "main/service:roll#1"))
    assert len(drawn) == 1
