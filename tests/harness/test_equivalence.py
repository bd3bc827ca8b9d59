"""Perturbations that could be exchanged: found where they make the same run, and claimed nowhere else."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mat
from mat.boundary.effect import PASS, Delay, Hold, Raise, Replace
from mat.core.record import facts
from mat.core.run import EquivalenceClass, Run
from mat.core.spec import Perturbation
from mat.temporal import always, predicate

SITE = "main/service:price#1"


@mat.tool
def price(item: str) -> dict[str, Any]:
    return {"amount": 10, "tax": 0.5, "unit": "EUR"}


@mat.tool(perturb=False)
def report(text: object) -> str:
    return "noted"


def added(call: Any, reply: Any, stream: random.Random) -> Any:
    return Replace({**reply.value, "amount": reply.value["amount"] + call.parameters["by"]})


def op(id: str, decide: Callable[..., Any], grid: list[dict[str, Any]], phase: Any = "after") -> mat.spec.Operator:
    return mat.spec.operator(f"service.{id}", decide, grid=grid, phase=phase)


BY = [{"by": by} for by in (1, 2, 3, 5, -4)]
ADDED = op("added", added, BY)


def run_of(
    body: Callable[[], Any], item: Perturbation | list[Perturbation], operators: list[mat.spec.Operator], **options: Any
) -> Run:
    """Made with `states`; a body that fails makes a failed run."""
    schedule = item if isinstance(item, list) else [item]
    run = mat.run(options.pop("contracts", ()), schedule=schedule, operators=operators, states=True, **options)
    try:
        with run:
            body()
    except (ArithmeticError, TypeError, ValueError, LookupError, AttributeError):
        pass
    assert run.result is not None
    return run.result


def at(operator: mat.spec.Operator, parameters: dict[str, Any], site: str = SITE) -> Perturbation:
    return mat.spec.perturbation(operator.id, site, parameters, 4)


def alike_of(
    body: Callable[[], Any], operator: mat.spec.Operator, parameters: dict[str, Any], site: str = SITE, **options: Any
) -> EquivalenceClass:
    (found,) = run_of(body, at(operator, parameters, site), [operator], **options).equivalence_classes
    return found


def points(found: tuple[Any, ...]) -> list[Any]:
    return [dict(point) for point in found]


def bought() -> None:
    report(price("tea")["unit"])


def keeps(function: Callable[[], object] = lambda: None, **options: Any) -> Any:
    """A run with stand-ins, whose user vouches that `function` is all there is to know."""
    promised: dict[str, Any] = {"complete": True, "clock": False, "concolic": True}
    return {"vary": True, "state_digest": mat.spec.StateDigest(function, **{**promised, **options})}


# -- equal effect -----------------------------------------------------------------------------------------------------


def test_points_with_the_same_effect_are_named_and_the_others_are_not():
    capped = op(
        "capped",
        lambda call, reply, stream: Replace({"amount": min(call.parameters["to"], 7)}),
        [{"to": n} for n in (3, 8, 9, 12)],
    )
    assert points(alike_of(bought_amount, capped, {"to": 9}).effect) == [{"to": 8}, {"to": 12}]
    assert alike_of(bought_amount, capped, {"to": 3}).effect == ()


def bought_amount() -> None:
    report(price("tea")["amount"])


VALUES = [1, True, 1.0, [1], (1,), {"a": 1, "b": 2}, {"b": 2, "a": 1}, 0.0, -0.0, "1", None]


@pytest.mark.parametrize("mine", range(len(VALUES)))
def test_values_that_are_equal_only_to_python_are_different_effects(mine):
    typed = op(
        "typed",
        lambda call, reply, stream: Replace({"v": VALUES[call.parameters["n"]]}),
        [{"n": n} for n in range(len(VALUES))],
    )
    assert alike_of(lambda: price("tea"), typed, {"n": mine}).effect == ()


def test_a_value_without_a_recorded_form_equals_nothing():
    opaque = op("opaque", lambda call, reply, stream: Replace(object()), [{"n": 1}, {"n": 2}])
    assert alike_of(lambda: price("tea"), opaque, {"n": 1}).effect == ()


def test_an_operator_that_crashes_at_another_point_is_not_alike_there():
    fussy = op("fussy", lambda call, reply, stream: Replace(1 // call.parameters["n"]), [{"n": n} for n in (2, 0, 3)])
    assert points(alike_of(lambda: price("tea"), fussy, {"n": 2}).effect) == [{"n": 3}]


def test_points_that_draw_are_compared_on_the_same_draws_and_disturb_neither_stream_nor_notes():
    def drawn(call: Any, reply: Any, stream: random.Random) -> Any:
        return Replace({"amount": stream.randrange(1000) + call.parameters["more"] // 2 + random.randrange(1000)})

    wide = op("drawn", drawn, [{"more": n} for n in (0, 1, 2, 3)])
    alone = op("drawn", drawn, [{"more": 0}])

    def body() -> None:
        report(price("tea")["amount"])
        report(random.randrange(10**9))

    found, other = (run_of(body, at(operator, {"more": 0}), [operator]) for operator in (wide, alone))
    assert found.head == other.head
    assert [len(record.faults) for record in found.records] == [len(record.faults) for record in other.records]
    assert found.equivalence_classes[0].local is False


def test_points_that_draw_alike_are_alike_and_not_local():
    picked = op(
        "picked", lambda call, reply, stream: Replace({"amount": stream.randrange(1000) + call.parameters["n"] // 2}),
        [{"n": n} for n in (0, 1, 2)],
    )  # fmt: skip
    found = alike_of(bought_amount, picked, {"n": 0})
    assert (points(found.effect), found.local) == ([{"n": 1}], False)


BEYOND = {
    "site": lambda call: call.site,
    "at_ms": lambda call: call.at_ms,
    "past": lambda call: call.past,
    "history": lambda call: call.history,
    "asked": lambda call: call.asked,
    "repr": repr,
}


@pytest.mark.parametrize("name", BEYOND)
def test_an_operator_that_looks_beyond_the_call_is_not_local(name):
    def decide(call: Any, reply: Any, stream: random.Random) -> Any:
        BEYOND[name](call)
        return Replace(1)

    assert alike_of(lambda: price("tea"), op("looks", decide, [{"n": 1}, {"n": 2}]), {"n": 1}).local is False


def test_an_operator_that_looks_at_the_call_and_the_reply_alone_is_local():
    def decide(call: Any, reply: Any, stream: random.Random) -> Any:
        seen = [call.kind, call.port, call.agent, call.parameters["n"], call.arguments["item"], call.given["item"], reply.value]
        seen.append(call.index)  # what is left of a range is in the keys of the search
        return Replace(len(seen))

    assert alike_of(lambda: price("tea"), op("near", decide, [{"n": 1}, {"n": 2}]), {"n": 1}).local is True


def test_where_the_chosen_point_is_local_a_point_that_looks_further_is_not_exchanged_for_it():
    def decide(call: Any, reply: Any, stream: random.Random) -> Any:
        return Replace(len(call.past) * 0 if call.parameters["n"] == 2 else 0)

    far = op("far", decide, [{"n": n} for n in (1, 2, 3)])
    near, looking = (alike_of(lambda: price("tea"), far, {"n": n}) for n in (1, 2))
    assert (near.local, points(near.effect)) == (True, [{"n": 3}])
    assert (looking.local, points(looking.effect)) == (False, [{"n": 1}, {"n": 3}])


def test_a_range_is_alike_only_if_it_is_at_every_ask_and_only_with_ranges_of_its_length():
    flaps = op(
        "flaps", lambda call, reply, stream: Replace(call.index * call.parameters["n"] // 2),
        [{"calls": 2, "n": 1}, {"calls": 2, "n": 0}, {"calls": 2, "n": 2}, {"calls": 3, "n": 1}, {"n": 1}],
    )  # fmt: skip

    def body() -> None:
        price("tea")
        price("rum")

    def ranged(nominal: int) -> EquivalenceClass:
        site = f"main/service:price#1..{nominal}"
        return alike_of(body, flaps, {"calls": nominal, "n": 1}, site)

    assert points(ranged(2).effect) == [{"calls": 2, "n": 0}]
    assert ranged(2).site == "main/service:price#1..2"
    assert ranged(3).effect == ()


def test_a_perturbation_that_lets_the_call_pass_equals_those_that_do_too():
    passing = op(
        "passing",
        lambda call, reply, stream: PASS if call.parameters["n"] < 3 else Raise("timeout"),
        [{"n": n} for n in (1, 2, 3)],
    )
    assert points(alike_of(lambda: price("tea"), passing, {"n": 1}).effect) == [{"n": 2}]


def test_a_contract_that_reads_the_parameters_of_fault_labels_tells_points_apart():
    @mat.step_contract(on="tool_call")
    def mild(record: mat.Record) -> bool:
        return all(note.parameters["n"] < 3 for note in record.faults)

    same = op("same", lambda call, reply, stream: Replace(0), [{"n": n} for n in (1, 2, 3)])
    assert points(alike_of(lambda: price("tea"), same, {"n": 1}, contracts=[mild]).effect) == [{"n": 2}]


def test_an_operator_that_passes_a_changed_call_on_decides_as_it_would():
    def inner(call: Any) -> Any:
        return Replace([call.parameters["n"] // 2, call.site, call.index])

    outer = op("outer", lambda call, reply, stream: inner(replace(call, index=7)), [{"n": n} for n in (2, 3, 4)])
    run = run_of(lambda: price("tea"), at(outer, {"n": 2}), [outer])
    assert run.records[0].observation.value == [1, SITE, 7]
    assert (points(run.equivalence_classes[0].effect), run.equivalence_classes[0].local) == ([{"n": 3}], False)


def test_who_goes_first_and_what_is_replied_are_two_perturbations_of_one_call():
    turns = mat.spec.operator("order.turns", lambda call, reply, stream: Hold(1), grid=[{"n": 1}, {"n": 2}])

    @mat.step_contract(on="tool_call", id="first.label")
    def labelled(record: mat.Record) -> bool:
        return all(note.parameters["n"] < 2 for note in record.faults if note.operator == "order.turns")

    async def main() -> None:
        async def other() -> None:
            report("other")

        task = asyncio.create_task(other())
        price("tea")
        await task

    same = op("same", lambda call, reply, stream: Replace(0), [{"n": n} for n in (1, 2, 3)])
    held = mat.spec.perturbation("order.turns", "main/order:service.price#1", {"n": 1}, 4)
    for contracts, alive in (((), [{"n": 2}]), ([labelled], [])):
        run = run_of(lambda: asyncio.run(main()), [held, at(same, {"n": 1})], [turns, same], contracts=contracts)
        found = {item.operator: points(item.effect) for item in run.equivalence_classes}
        assert found == {"order.turns": alive, "service.same": [{"n": 2}, {"n": 3}]}


def test_without_states_nothing_is_noted():
    with mat.run(schedule=[at(ADDED, {"by": 1})], operators=[ADDED]) as run:
        bought()
    assert run.result is not None
    assert run.result.equivalence_classes == ()


# -- delays -----------------------------------------------------------------------------------------------------------

LATE = op("late", lambda call, reply, stream: Delay(call.parameters["s"] * 1000), [{"s": s} for s in (1, 2, 4)])
TIMELESS = {"state_digest": mat.spec.StateDigest(lambda: None, complete=True, clock=False)}


def test_delays_are_one_effect_where_nobody_looks_at_the_time_and_the_user_vouches_for_it():
    assert points(alike_of(bought, LATE, {"s": 2}, **TIMELESS).effect) == [{"s": 1}, {"s": 4}]
    for honest in (None, mat.spec.StateDigest(lambda: None, complete=True), mat.spec.StateDigest(lambda: None, clock=False)):
        assert alike_of(bought, LATE, {"s": 2}, state_digest=honest).effect == ()


@pytest.mark.parametrize("look", [lambda: time.monotonic(), lambda: time.time(), lambda: datetime.now().timestamp()])
def test_delays_differ_where_a_clock_is_read_before_the_next_ask(look):
    def measured() -> None:
        began = look()
        price("tea")
        report(look() - began > 3)

    def before_only() -> None:
        look()
        price("tea")
        report("done")

    assert alike_of(measured, LATE, {"s": 2}, **TIMELESS).effect == ()
    assert points(alike_of(before_only, LATE, {"s": 2}, **TIMELESS).effect) == [{"s": 1}, {"s": 4}]


def test_errors_that_differ_in_the_wait_before_them_are_one_effect_and_no_wait_at_all_is_one_too():
    def decide(call: Any, reply: Any, stream: random.Random) -> Any:
        return Raise(call.parameters["kind"], delay_ms=call.parameters["ms"])

    kinds = [("timeout", 500), ("timeout", 900), ("timeout", 0), ("connection", 500)]
    fails = op("fails", decide, [{"kind": kind, "ms": ms} for kind, ms in kinds], phase="before")

    def body() -> None:
        try:
            price("tea")
        except TimeoutError:
            report("late")

    found = alike_of(body, fails, {"kind": "timeout", "ms": 500}, **TIMELESS)
    assert points(found.effect) == [{"kind": "timeout", "ms": 900}, {"kind": "timeout", "ms": 0}]
    assert alike_of(body, fails, {"kind": "timeout", "ms": 500}).effect == ()


def test_no_delay_and_a_delay_differ_in_what_is_noted_of_them():
    some = op("some", lambda call, reply, stream: Delay(call.parameters["ms"]), [{"ms": 0}, {"ms": 5}, {"ms": 9}])
    assert points(alike_of(bought, some, {"ms": 5}, **TIMELESS).effect) == [{"ms": 9}]


def test_a_delay_that_would_lead_beyond_the_horizon_is_another_one():
    assert points(alike_of(bought, LATE, {"s": 1}, horizon_ms=3_000, **TIMELESS).effect) == [{"s": 2}]


def test_delays_differ_where_tasks_or_threads_take_turns():
    async def main() -> None:
        price("tea")

    def beside() -> None:
        thread = threading.Thread(target=lambda: time.sleep(3))
        thread.start()
        price("tea")
        thread.join()

    assert alike_of(lambda: asyncio.run(main()), LATE, {"s": 2}, **TIMELESS).effect == ()
    assert alike_of(beside, LATE, {"s": 2}, **TIMELESS).effect == ()


# -- equal decisions --------------------------------------------------------------------------------------------------


def test_a_number_that_is_never_read_is_one_with_its_whole_column():
    found = alike_of(bought, ADDED, {"by": 2}, **keeps())
    assert (found.effect, points(found.decisions)) == ((), [{"by": by} for by in (1, 3, 5, -4)])


def test_one_comparison_leaves_the_points_on_the_same_side():
    def body() -> None:
        report("dear" if price("tea")["amount"] * 2 > 25 else "cheap")

    assert points(alike_of(body, ADDED, {"by": 3}, **keeps()).decisions) == [{"by": 5}]
    assert points(alike_of(body, ADDED, {"by": 1}, **keeps()).decisions) == [{"by": 2}, {"by": -4}]


@pytest.mark.parametrize(
    "shown",
    [
        lambda x: report(x), lambda x: report(f"{x} EUR"), lambda x: report({"deep": [x]}), lambda x: mat.state(amount=x),
        lambda x: mat.claim(x), lambda x: mat.claim(f"costs {x}"), lambda x: mat.message("boss", f"{x}"),
        lambda x: mat.finish(x),
        lambda x: report(json.dumps({"x": x})), lambda x: mat.verify("right", True, supports=[{"amount": x}]),
    ],
)  # fmt: skip
def test_a_number_that_is_shown_to_anybody_stands_alone_and_is_recorded_plainly(shown):
    def body() -> None:
        shown(price("tea")["amount"])

    options = keeps()
    run = run_of(body, at(ADDED, {"by": 2}), [ADDED], **options)
    assert run.equivalence_classes[0].decisions == ()
    assert run.head == run_of(body, at(ADDED, {"by": 2}), [ADDED], **{**options, "vary": False}).head
    assert "boundary.concolic" not in repr([type(item) for record in run.records for item in record.action.arguments.values()])


def works() -> None:
    with mat.budget.contracted(mat.budget.ResourceContract(name="work", budgets={"calls": 9})):
        pass


def shows() -> None:
    mat.artifact.observed("ticket-1")


@pytest.mark.parametrize("reads_more", [works, shows])
def test_where_somebody_reads_more_of_the_calls_than_the_monitors_nothing_is_exchangeable(reads_more):
    capped = op(
        "capped",
        lambda call, reply, stream: Replace({"amount": min(call.parameters["to"], 7)}),
        [{"to": n} for n in (8, 9)],
    )

    def compared() -> None:
        price("tea")["amount"] > 11  # noqa: B015

    def before() -> None:
        reads_more()
        compared()

    def after() -> None:
        compared()
        reads_more()

    assert points(alike_of(compared, capped, {"to": 9}).effect) == [{"to": 8}]
    assert points(alike_of(compared, ADDED, {"by": 2}, **keeps()).decisions) == [{"by": 3}, {"by": 5}]
    runs = [run_of(body, at(ADDED, {"by": 2}), [ADDED], **keeps()) for body in (before, after)]
    runs.append(run_of(before, at(capped, {"to": 9}), [capped]))
    assert [(run.error, run.unreached) for run in runs] == [("", ())] * 3
    assert [[item.decisions for item in run.equivalence_classes] for run in runs] == [[], [()], []]


def test_a_state_that_keeps_the_number_stands_alone():
    state: dict[str, Any] = {}

    def body() -> None:
        state.clear()
        state["amount"] = price("tea")["amount"]
        report("done")

    assert alike_of(body, ADDED, {"by": 2}, **keeps(lambda: dict(state))).decisions == ()
    assert len(alike_of(body, ADDED, {"by": 2}, **keeps(lambda: sorted(state))).decisions) == 4


def test_nothing_is_varied_that_the_user_does_not_vouch_for():
    for options in (keeps(complete=False), keeps(concolic=False), {**keeps(), "vary": False}, {**keeps(), "clock": "real"}):
        assert alike_of(bought, ADDED, {"by": 2}, **options).decisions == ()


def test_nothing_is_varied_where_others_could_go_on():
    async def main() -> None:
        async def other() -> None:
            report("other")

        task = asyncio.create_task(other())
        price("tea")
        await task

    async def alone() -> None:
        price("tea")

    assert alike_of(lambda: asyncio.run(main()), ADDED, {"by": 2}, **keeps()).decisions == ()
    assert len(alike_of(lambda: asyncio.run(alone()), ADDED, {"by": 2}, **keeps()).decisions) == 4


def test_contracts_that_look_at_the_perturbed_reply_tell_points_apart():
    @mat.step_contract(on="tool_call", id="reply.small")
    def small(record: mat.Record) -> bool:
        return not isinstance(record.observation.value, dict) or record.observation.value["amount"] < 13

    @mat.trace_contract(start=0, on="tool_call", id="parity")
    def parity(state: int, record: mat.Record) -> int:
        return state + (record.observation.value["amount"] if isinstance(record.observation.value, dict) else 0) % 2

    @mat.trace_contract(start=0, on="tool_call", id="raw")
    def origin(state: int, record: mat.Record) -> int:
        return 0 if record.raw is None else record.raw.value["amount"]

    expected = {small: [{"by": 1}, {"by": -4}], parity: [{"by": -4}], origin: [{"by": by} for by in (1, 3, 5, -4)]}
    for contract, alive in expected.items():
        assert points(alike_of(bought, ADDED, {"by": 2}, contracts=[contract], **keeps()).decisions) == alive


def test_contracts_that_look_at_what_the_port_really_said_see_whether_that_differs():
    @mat.trace_contract(start=0, on="tool_call", id="really")
    def really(state: int, record: mat.Record) -> int:
        return state + (record.raw is not None)

    grid = op("added", added, [{"by": by} for by in (0, 1, 2)])
    for by, alive in ((1, [{"by": 2}]), (0, [])):
        assert points(alike_of(bought, grid, {"by": by}, contracts=[really], **keeps()).decisions) == alive


def test_temporal_formulas_are_asked_as_well():
    cheap = predicate(lambda record: record.action.name != "price" or record.observation.value["amount"] < 13)
    formula = mat.contract("stays.cheap", always(cheap))
    assert points(alike_of(bought, ADDED, {"by": 2}, contracts=[formula], **keeps()).decisions) == [{"by": 1}, {"by": -4}]


def test_a_perturbed_call_within_another_is_judged_when_its_turn_comes():
    @mat.tool(perturb=False)
    def order(item: str) -> str:
        return str(price(item)["unit"])

    @mat.trace_contract(start=False, on="tool_call", id="ordered.small")
    def small(ordered: bool, record: mat.Record) -> Any:
        if record.action.name == "price" and ordered and record.observation.value["amount"] >= 13:
            return mat.Violated("dear", state=ordered)
        return ordered or record.action.name == "order"

    found = alike_of(lambda: order("tea"), ADDED, {"by": 2}, contracts=[small], **keeps())
    assert points(found.decisions) == [{"by": 1}, {"by": -4}]
    assert len(alike_of(bought, ADDED, {"by": 2}, contracts=[small], **keeps()).decisions) == 4


def test_evidence_that_a_literal_cites_tells_points_apart():
    def body() -> None:
        reply = price("tea")
        mat.claim("it costs 13", supports=[{"amount": 13, "tax": 0.5, "unit": "EUR"}])
        report(reply["unit"])

    assert points(alike_of(body, ADDED, {"by": 2}, **keeps()).decisions) == [{"by": 1}, {"by": 5}, {"by": -4}]
    assert alike_of(body, ADDED, {"by": 3}, **keeps()).decisions == ()


def test_what_is_redacted_is_not_varied():
    @mat.tool(record="hash")
    def vault(item: str) -> dict[str, int]:
        return {"amount": 10}

    @mat.tool
    def account(item: str) -> dict[str, int]:
        return {"amount": 10, "password": 1}

    secret = op("secret", lambda call, reply, stream: Replace({"amount": 1, "password": call.parameters["by"]}), BY)
    assert alike_of(lambda: vault("a"), ADDED, {"by": 2}, "main/service:vault#1", **keeps()).decisions == ()
    assert alike_of(lambda: account("a"), secret, {"by": 2}, "main/service:account#1", **keeps()).decisions == ()


def test_under_governance_nothing_is_varied_but_equal_effects_are_found():
    capped = op("capped", lambda call, reply, stream: Replace(min(call.parameters["to"], 7)), [{"to": n} for n in (3, 8, 9)])
    options = {**keeps(), "governance": mat.policy.Governance(name="strict")}
    assert alike_of(bought, ADDED, {"by": 2}, **options).decisions == ()
    assert points(alike_of(lambda: price("tea"), capped, {"to": 8}, **options).effect) == [{"to": 9}]


def test_a_range_carries_one_vector_through_all_its_asks():
    both = op("both", added, [{"calls": 2, "by": by} for by in (1, 2, 3, 5)])

    def body() -> None:
        first, second = price("tea")["amount"], price("rum")["amount"]
        report("same" if first == second else "other")
        if first + second > 25:
            report("dear")

    site = "main/service:price#1..2"
    found = alike_of(body, both, {"calls": 2, "by": 3}, site, **keeps())
    assert points(found.decisions) == [{"calls": 2, "by": 5}]


def test_of_two_perturbations_each_has_its_own_points():
    def body() -> None:
        first, second = price("tea")["amount"], price("rum")["amount"]
        report("more" if second > 12 else "less")
        report("dear" if first > 10 else "cheap")

    items = [at(ADDED, {"by": 1}), at(ADDED, {"by": 3}, "main/service:price#2")]
    first, second = run_of(body, items, [ADDED], **keeps()).equivalence_classes
    assert points(first.decisions) == [{"by": 2}, {"by": 3}, {"by": 5}]
    assert points(second.decisions) == [{"by": 5}]


def test_a_reply_made_of_such_numbers_is_perturbed_as_a_plain_one():
    @mat.tool
    def double(amount: int) -> dict[str, int]:
        return {"amount": amount}

    exact = op(
        "exact",
        lambda call, reply, stream: Replace({"amount": [call.parameters["by"], type(reply.value["amount"]) is int]}),
        BY,
    )

    def body() -> None:
        double(price("tea")["amount"])

    items = [at(ADDED, {"by": 1}), at(exact, {"by": 3}, "main/service:double#1")]
    run = run_of(body, items, [ADDED, exact], **keeps())
    assert run.records[1].observation.value == {"amount": [3, True]}
    assert run.equivalence_classes[0].decisions == ()


def test_a_model_call_is_recorded_with_plain_usage():
    @mat.model("writer")
    def writer(prompt: str) -> dict[str, Any]:
        return {"text": "hello", "usage": {"input_tokens": 10}}

    more = mat.spec.operator(
        "model.more", lambda call, reply, stream: Replace({**reply.value, "usage": {"input_tokens": call.parameters["n"]}}),
        grid=[{"n": 1}, {"n": 2}, {"n": 3}], phase="after",
    )  # fmt: skip
    run = run_of(lambda: writer("hi"), at(more, {"n": 1}, "main/model:writer#1"), [more], **keeps())
    assert type(run.records[0].observation.usage["input_tokens"]) is int
    assert points(run.equivalence_classes[0].decisions) == [{"n": 2}, {"n": 3}]

    @mat.step_contract(on="model_call", id="few.tokens")
    def few(record: mat.Record) -> bool:
        return record.observation.usage["input_tokens"] < 3

    judged = run_of(lambda: writer("hi"), at(more, {"n": 1}, "main/model:writer#1"), [more], contracts=[few], **keeps())
    assert points(judged.equivalence_classes[0].decisions) == [{"n": 2}]


def test_a_stream_is_not_varied():
    @mat.tool
    def stream() -> Any:
        yield 1
        yield 2

    chunks = op("chunks", lambda call, reply, stream: Replace([call.parameters["by"], 7]), BY)
    run = run_of(lambda: report(len(list(stream()))), at(chunks, {"by": 2}, "main/service:stream#1"), [chunks], **keeps())
    assert run.records[0].observation.value == [2, 7]
    assert run.equivalence_classes[0].decisions == ()


# -- what is claimed is so --------------------------------------------------------------------------------------------

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "floor": lambda a, b: a // b,
    "mod": lambda a, b: a % b, "div": lambda a, b: a / b, "min": min, "max": max, "less": lambda a, b: a < b,
    "equal": lambda a, b: a == b, "either": lambda a, b: a or b, "both": lambda a, b: a and b,
    "round": lambda a, b: round(a / 3, 1),
    "abs": lambda a, b: abs(a), "int": lambda a, b: int(a), "sorted": lambda a, b: sorted([a, b, 4])[1],
    "key": lambda a, b: {4: 1, 11: 2, 13.0: 3}.get(a, b), "in": lambda a, b: a in {b, 12, 6},
    "range": lambda a, b: len(range(int(a) % 7)),
    "sum": lambda a, b: sum([a, b]), "index": lambda a, b: [3, 4, 5][a % 3], "text": lambda a, b: len(f"{a}"),
    "divmod": lambda a, b: divmod(a, b)[1], "power": lambda a, b: a**2 % 11, "json": lambda a, b: len(json.dumps([a, b])),
    "unlike": lambda a, b: a if a != b else 0, "chained": lambda a, b: 3 < a <= 12, "set": lambda a, b: len({a, b}),
    "none": lambda a, b: 0 if a is None else 1, "same": lambda a, b: 7,
}  # fmt: skip
NUMBERS = 6
words = st.tuples(st.sampled_from(sorted(BINARY)), *[st.integers(0, NUMBERS - 1)] * 3)
shows = st.tuples(st.sampled_from(["say", "branch", "note", "ask"]), *[st.integers(0, NUMBERS - 1)] * 3)
programs = st.lists(st.one_of(words, words, words, shows), max_size=8)


class Machine:
    """A small program over some numbers, two of which are a reply's. It knows which of them it will still read."""

    def __init__(self, program: list[Any]) -> None:
        self.program, self.at, self.numbers = program, 0, [0] * NUMBERS

    def state(self) -> object:
        wanted = {place for _, one, other, _ in self.program[self.at :] for place in (one, other)}
        return [self.at, {str(place): self.numbers[place] for place in sorted(wanted)}]

    def body(self) -> None:
        self.at, self.numbers = 0, [4, 9, 2.5, -1, 0, 3]
        reply = price("tea")
        self.numbers[0], self.numbers[2] = reply["amount"], reply["tax"]
        while self.at < len(self.program):
            word, one, other, to = self.program[self.at]
            self.at += 1
            left, right = self.numbers[one], self.numbers[other]
            if word == "say":
                report("saying" if to % 2 else left)
            elif word == "branch":
                if left > right:
                    report("more")
            elif word == "note":
                mat.verify("positive", left > 0)
            elif word == "ask":
                self.numbers[to] = price("more")["amount"]
            else:
                self.numbers[to] = BINARY[word](left, right)


@mat.step_contract(on="tool_call", id="reply.small")
def replies_are_small(record: mat.Record) -> bool:
    return not isinstance(record.observation.value, dict) or record.observation.value["amount"] < 14


@mat.trace_contract(start=0, on="tool_call", id="reports.counted")
def reports_are_counted(state: int, record: mat.Record) -> Any:
    text = record.action.arguments.get("text")
    return mat.Violated("said a large number", state=state) if isinstance(text, int) and text > 12 else state + 1


WARPED = [{"by": by, "tax": tax} for by in (0, 1, 2, 3, 5, -4, -10) for tax in (0, 0.25)]
WARP = op(
    "warped",
    lambda call, reply, stream: Replace(
        {
            "amount": reply.value["amount"] + call.parameters["by"],
            "tax": reply.value["tax"] + call.parameters["tax"],
            "unit": "EUR",
        }
    ),
    WARPED,
)


def told(run: Run) -> list[Any]:
    """Everything of a run but what the perturbed reply was and the parameters of the perturbation."""
    bare = []
    for record in run.records:
        if record.faults:
            record = replace(record, faults=(), raw=None, observation=replace(record.observation, value=None))
        bare.append(facts(record))
    verdicts = [(item.step, item.checked, item.violations) for item in run.verdicts]
    return [bare, run.states, verdicts, run.outcomes, run.termination, run.success, run.error, run.tape, run.findings]


@pytest.mark.full
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs, st.sampled_from(WARPED), st.integers(1, 2))
def test_every_point_that_is_claimed_makes_the_same_run_when_it_is_executed_plainly(program, point, nth):
    machine = Machine(program)
    options = {"contracts": [replies_are_small, reports_are_counted], **keeps(machine.state)}
    site = f"main/service:price#{nth}"

    def plainly(parameters: Any) -> Run:
        return run_of(machine.body, at(WARP, dict(parameters), site), [WARP], **{**options, "vary": False})

    varied, plain = run_of(machine.body, at(WARP, point, site), [WARP], **options), plainly(point)
    assert varied.head == plain.head
    assert (varied.states, varied.outcomes, varied.tape) == (plain.states, plain.outcomes, plain.tape)
    for found in varied.equivalence_classes:
        for other in (*found.effect, *found.decisions):
            assert told(plainly(other)) == told(plain)
