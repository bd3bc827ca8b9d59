"""Budgets and deadlines on traces from any source, and on the contracts of a run."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat.adapters.importers.otlp import FORMAT
from mat.core.errors import SpecError
from mat.core.record import Observation, Record
from mat.core.resources import Price
from mat.core.value import FrozenDict
from mat.resources import ResourceContract
from mat_contracts.resource import deadline_met, within_budget
from mat_contracts.traces import broken, record, trace, violations


def reply(tokens_in: int = 30, tokens_out: int = 20, *, model: str = "planner", agent: str = "main", **usage: int) -> Record:
    """A model call as any source records it: all that is known are the tokens that the reply names."""
    told = FrozenDict(input_tokens=tokens_in, output_tokens=tokens_out, **usage)
    return replace(record("model_call", model, agent=agent), observation=Observation(value="text", usage=told))


def call(tool: str = "search", agent: str = "main", **more: Any) -> Record:
    return record("tool_call", tool, agent=agent, **more)


def lasting(item: Record, ms: int) -> Record:
    return replace(item, sealed_ms=item.at_ms + ms)


# -- within_budget ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budgets", "at"),
    [
        ({"tokens": 100}, ()),
        ({"tokens": 99}, (3,)),
        ({"tokens": 50}, (3,)),
        ({"tokens": 49}, (0,)),
        ({"input_tokens": 60, "output_tokens": 40}, ()),
        ({"input_tokens": 60, "output_tokens": 39}, (3,)),
        ({"calls": 4}, ()),
        ({"calls": 3}, (4,)),
        ({"calls": 0}, (0,)),
        ({"model_calls": 1}, (3,)),
        ({"tool_calls": 1, "searches": 0}, (4,)),
        ({"tool:search": 1}, (4,)),
        ({"tool:search": 2, "tool:read": 0, "model:planner": 2}, ()),
        ({"tokens": 60, "tool_calls": 1}, (3, 4)),
    ],
)
def test_the_first_step_beyond_a_budget_is_named_for_each_resource(budgets: Mapping[str, int], at: tuple[int, ...]) -> None:
    records = trace(reply(), record("message", "user"), call(), reply(), call(), record("claim", "claim"))
    assert broken(within_budget(budgets), records) == at


def test_a_violation_tells_amounts_the_step_that_took_most_and_is_reported_once() -> None:
    records = trace(reply(10, 10), reply(900, 300), reply(10, 10), reply(10, 10))
    (found,) = violations(within_budget({"tokens": 1_230}), records)
    assert found.message == "the run consumed 1,240 tokens, 10 more than the budget of 1,230; step 1 consumed the most, 1,200"
    assert (found.step, found.witness, found.wanted) == (2, (1, 2), "at most 1,230 tokens")


def test_the_providers_total_goes_before_the_sum_and_reasoning_is_a_kind_of_its_own() -> None:
    records = trace(reply(30, 20, total_tokens=70, reasoning_tokens=20))
    assert broken(within_budget({"tokens": 69}), records) == (0,)
    assert broken(within_budget({"tokens": 70, "reasoning_tokens": 20}), records) == ()
    assert broken(within_budget({"reasoning_tokens": 19}), records) == (0,)


def test_a_failed_call_counts_and_a_blocked_one_does_not() -> None:
    assert broken(within_budget({"calls": 1}), trace(call(error="timeout"), call())) == (1,)
    assert broken(within_budget({"calls": 1}), trace(call(blocked=True), call())) == ()


def test_seconds_are_those_spent_in_calls_in_whole_milliseconds() -> None:
    records = tuple(lasting(item, 1_250) for item in trace(call(), call()))
    assert broken(within_budget({"seconds": 2.5}), records) == ()
    (found,) = violations(within_budget({"seconds": "2.499"}), records)
    assert found.message == "the run consumed 2.5 seconds, 0.001 more than the budget of 2.499; step 0 consumed the most, 1.25"


def test_money_is_counted_by_prices_in_exact_millionths() -> None:
    prices = {"model:planner": Price(input=3, output=15), "tool": Price(call="0.005")}
    records = trace(reply(1_000, 200), call(), reply(1_000, 200, model="other"))
    assert broken(within_budget({"money": "0.011"}, prices=prices), records) == ()
    assert broken(within_budget({"money": "0.010999"}, prices=prices), records) == (1,)


def test_budgets_are_shared_or_each_agent_or_role_has_them() -> None:
    records = trace(reply(agent="a"), reply(agent="b"), reply(agent="a"))
    roles = tuple(replace(item, role="writer") for item in records)
    assert broken(within_budget({"tokens": 100}), records) == (2,)
    assert broken(within_budget({"tokens": 100}, per="agent"), records) == ()
    assert broken(within_budget({"tokens": 99}, per="agent"), records) == (2,)
    assert broken(within_budget({"tokens": 50}, agents="b"), records) == ()
    assert broken(within_budget({"tokens": 49}, agents="b"), records) == (1,)
    assert broken(within_budget({"tokens": 149}, agents=["a", "b"]), records) == (2,)
    assert broken(within_budget({"tokens": 100}, per="role"), roles) == (2,)
    (found,) = violations(within_budget({"tokens": 60}, per="agent"), records)
    assert found.message.startswith("agent a consumed 100 tokens, 40 more than the budget of 60")


def of(name: str = "work", **budgets: Any) -> ResourceContract:
    return ResourceContract(name=name, budgets=budgets)


def test_what_is_no_call_counts_from_the_entries_of_a_ledger() -> None:
    with mat.run() as run, mat.budget.contracted(of(iterations=5, gpu_seconds=50, subcontracts=5), agent="boss") as work:
        for _ in range(3):
            work.spend("round", iterations=1)
        with work.reserve(gpu_seconds=20) as held:
            held.settle(gpu_seconds=7)
        with work.delegate(of("sub"), agent="helper"):
            pass
    assert broken(within_budget({"iterations": 3, "gpu_seconds": 7, "subcontracts": 1}), run.trace) == ()
    over = violations(within_budget({"iterations": 2, "gpu_seconds": 6, "subcontracts": 0}), run.trace)
    assert [item.instance for item in over] == ["iterations", "gpu_seconds", "subcontracts"]
    assert [run.trace[item.step].action.name for item in over] == ["spent", "settled", "activated"]


def test_a_budget_that_a_real_run_keeps_in_calls_is_counted_once() -> None:
    """Calls stand in their own records and in what the ledger charged for them: they count once."""

    @mat.tool
    def search(query: str) -> list[str]:
        return [query]

    with mat.run() as run, mat.budget.contracted(of(calls=9)):
        search("a")
        search("b")
    assert broken(within_budget({"calls": 2, "tool:search": 2}), run.trace) == ()
    assert len(broken(within_budget({"calls": 1}), run.trace)) == 1


# -- as a guard ---------------------------------------------------------------------------------------------------------


@mat.model("planner")
def plan(prompt: str, wrote: int = 20) -> dict[str, Any]:
    return {"text": "a plan", "usage": {"input_tokens": 30, "output_tokens": wrote}}


@mat.tool
def look(query: str) -> list[str]:
    return [query]


@mat.tool
async def look_slowly(query: str) -> list[str]:
    await asyncio.sleep(1)
    return [query]


def test_as_a_guard_it_blocks_the_call_that_would_go_beyond() -> None:
    guard = within_budget({"tool_calls": 2}, policy="block")
    with mat.run([guard]) as run:
        look("a")
        look("b")
        with pytest.raises(mat.Blocked):
            look("c")
        plan("on")
    assert run.result is not None
    assert [item.outcome for item in run.result.outcomes] == ["pass"]
    assert [item.blocked for item in run.trace][:4] == [False, False, True, False]


def test_as_a_guard_it_counts_calls_in_flight() -> None:
    async def one() -> bool:
        try:
            await look_slowly("x")
        except mat.Blocked:
            return False
        return True

    async def body() -> list[bool]:
        return await asyncio.gather(*(one() for _ in range(5)))

    with mat.run([within_budget({"calls": 3}, policy="block")]):
        assert asyncio.run(body()).count(True) == 3


@pytest.mark.parametrize(("budget", "second"), [(51, "runs"), (50, "blocked"), (49, "blocked")])
def test_as_a_guard_it_lets_no_call_begin_that_needs_what_is_used_up(budget: int, second: str) -> None:
    with mat.run([within_budget({"tokens": budget}, policy="block")]):
        plan("go")
        look("tools need no tokens")
        if second == "runs":
            plan("on")
        else:
            with pytest.raises(mat.Blocked, match=f"50 of the budget of {budget} tokens already spent"):
                plan("on")


# -- mistakes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budgets", "options", "text"),
    [
        ({}, {}, "names no resource"),
        ("tokens", {}, "names no resource"),
        ({"token": 5}, {}, "did you mean 'tokens'"),
        ({"search": 5}, {}, "did you mean 'searches'"),
        ({"tokens": -1}, {}, "negative"),
        ({"tokens": 1.5}, {}, "is not a multiple of 1"),
        ({"tool:": 1}, {}, "does not name a port"),
        ({"money": 1}, {}, "money has no prices"),
        ({"money": 1}, {"prices": {"modell:x": Price()}}, "names? no port"),
        ({"money": 1}, {"prices": {"model:x": 3}}, "not a Price"),
        ({"tokens": 1}, {"per": "agents"}, "did you mean 'agent'"),
        (None, {"per": "agent"}, "per= is given without budgets="),
        (None, {"prices": {}}, "prices= is given without budgets="),
    ],
)
def test_a_budget_that_would_count_nothing_is_refused(budgets: Any, options: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        within_budget(budgets, **options)


def test_every_mistake_is_reported_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        within_budget({"token": 1, "money": 1, "calls": -2})
    assert all(text in str(caught.value) for text in ("'tokens'", "money has no prices", "negative"))


def test_resources_that_nobody_counts_by_itself_may_have_any_name() -> None:
    assert broken(within_budget({"gpu_seconds": 5, "human_reviews": 1}), trace(call())) == ()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"within_ms": -1}, "not an integer >= "),
        ({"within_ms": 1.5}, "not an integer >= "),
        ({"per": "agent"}, "without within_ms"),
        ({"within_ms": 1, "per": "agents"}, "did you mean 'agent'"),
    ],
)
def test_a_deadline_that_means_nothing_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        deadline_met(**options)


# -- deadline_met -------------------------------------------------------------------------------------------------------


def timed(seconds: float, after: float = 0) -> mat.run:
    async def body() -> None:
        async with mat.budget.contracted(ResourceContract(name="work", duration_s=2), agent="boss"):
            await look_for(seconds)
            await asyncio.sleep(after)

    with mat.run() as run:
        asyncio.run(body())
    return run


@mat.tool
async def look_for(seconds: float) -> None:
    await asyncio.sleep(seconds)


def test_a_contract_that_expired_violates_and_one_that_ends_at_its_last_moment_does_not() -> None:
    assert violations(deadline_met(), timed(2).trace) == ()
    (found,) = violations(deadline_met(), timed(2.001).trace)
    assert found.message == "work#1 of boss ended as expired at 2001 ms, and its deadline was at 2000 ms"
    assert (found.instance, found.agent) == ("work#1", "boss")
    assert violations(deadline_met(agents="other"), timed(2.001).trace) == ()


def entry(number: int, event: str, **facts: Any) -> Record:
    return record("contract", event, {"entry": number, "contract": "work#1", **facts})


@pytest.mark.parametrize("event", ["fulfilled", "violated", "terminated"])
def test_an_end_of_any_name_after_the_deadline_is_late(event: str) -> None:
    for due_ms, expected in ((2_000, ()), (1_999, (2,))):
        records = trace(entry(1, "drafted"), entry(2, "activated", due_ms=due_ms), entry(3, event))
        assert broken(deadline_met(), records) == expected


def test_an_expiry_without_a_recorded_deadline_is_late_too() -> None:
    assert broken(deadline_met(), trace(entry(1, "drafted"), entry(2, "activated"), entry(3, "expired"))) == (2,)


def test_on_any_trace_the_step_that_ends_too_late_is_named_once() -> None:
    records = trace(call(), call(), lasting(call(), 0), call())
    assert broken(deadline_met(within_ms=3_000), records) == ()
    assert broken(deadline_met(within_ms=1_000), records) == (2,)
    slow = (records[0], replace(records[1], sealed_ms=9_000), *records[2:])
    (found,) = violations(deadline_met(within_ms=5_000), slow)
    assert found.step == 1
    assert found.message == "the run did not finish within 5000 ms: step 1 ended after 9000 ms, 4000 ms late"
    assert found.witness == (0, 1)


def test_time_counts_from_the_first_record_of_the_run_of_some_agents_or_of_each() -> None:
    late = tuple(replace(item, at_ms=item.at_ms + 60_000, sealed_ms=item.sealed_ms + 60_000) for item in trace(call(), call()))
    assert broken(deadline_met(within_ms=1_000), late) == ()
    records = trace(call(agent="a"), call(agent="b"), call(agent="b"), call(agent="a"))
    assert broken(deadline_met(within_ms=1_000, agents="b"), records) == ()
    assert broken(deadline_met(within_ms=999, agents="b"), records) == (2,)
    assert broken(deadline_met(within_ms=2_999, per="agent"), records) == (3,)
    assert broken(deadline_met(within_ms=3_000, per="agent"), records) == ()


# -- at random ----------------------------------------------------------------------------------------------------------

_CALLS = st.one_of(
    st.builds(reply, st.integers(0, 50), st.integers(0, 50), agent=st.sampled_from("ab")),
    st.builds(call, st.sampled_from(["search", "read"]), st.sampled_from("ab")),
    st.builds(call, st.just("search"), blocked=st.just(True)),
)


@pytest.mark.full
@given(st.lists(_CALLS, max_size=12), st.integers(0, 200), st.integers(0, 8), st.sampled_from(["run", "agent"]))
def test_it_agrees_with_adding_up_the_whole_trace(items: list[Record], tokens: int, calls: int, per: Any) -> None:
    records, expected = trace(*items), set()
    for owner in {""} if per == "run" else {item.agent for item in records}:
        spent = used = 0
        for item in records:
            if item.blocked or (owner and item.agent != owner):
                continue
            used += 1
            spent += sum(item.observation.usage.values())
            expected |= {("calls", owner, item.step)} if used == calls + 1 else set()
            if spent > tokens and not any(known[:2] == ("tokens", owner) for known in expected):
                expected.add(("tokens", owner, item.step))
    contract = within_budget({"tokens": tokens, "calls": calls}, per=per)
    found = {(item.instance.split()[-1], item.instance.rpartition(" ")[0], item.step) for item in violations(contract, records)}
    assert found == expected


# -- recorded spans -----------------------------------------------------------------------------------------------------

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "otel-genai"
_USAGE = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")


def tokens_in(document: Mapping[str, Any]) -> int:
    """What the model calls of an OTLP document consumed, added up from its spans."""
    total = 0
    for span in (span for part in document["resourceSpans"] for scope in part["scopeSpans"] for span in scope["spans"]):
        told = {item["key"]: next(iter(item["value"].values())) for item in span.get("attributes", ())}
        if told.get("gen_ai.operation.name") in ("chat", "embeddings"):
            total += sum(int(told.get(name, 0)) for name in _USAGE)
    return total


@pytest.mark.skipif(not DATA.is_dir(), reason="the recorded spans of ../shared/data are not here")
def test_recorded_spans_consume_exactly_the_tokens_that_they_name() -> None:
    consumed = 0
    for path in sorted(DATA.glob("*.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            documents = [json.loads(line)["otlp"] for line in lines]
        for document in documents:
            records = [item.records for item in FORMAT.traces(iter([("document:1", document)]))]
            total = tokens_in(document)
            if len(records) == 1 and total:
                assert broken(within_budget({"tokens": total}), records[0]) == ()
                assert len(broken(within_budget({"tokens": total - 1}), records[0])) == 1
                consumed += total
    assert consumed > 10_000


def test_the_usual_options_are_there() -> None:
    for made in (
        within_budget({"tokens": 1}, id="mine", severity="soft", weight=2.0, repair="mend it"),
        within_budget(id="mine", severity="soft", weight=2.0, repair="mend it"),
        deadline_met(id="mine", severity="soft", weight=2.0, repair="mend it"),
        deadline_met(within_ms=5, id="mine", severity="soft", weight=2.0, repair="mend it"),
    ):
        assert (made.id, made.severity, made.weight, made.repair, made.policy) == ("mine", "soft", 2.0, "mend it", "observe")
