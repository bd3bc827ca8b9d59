"""Promises that are joined or nested: none is lost between ids, and a step costs what it settles."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

import mat
from mat.core import limits
from mat.core.record import Record
from mat.core.verdict import Violation
from mat.monitor.judge import Judge, judge
from mat.monitor.obligations import Obligations
from mat.monitor.temporal import Formula
from mat.temporal import always, eventually, for_each, next, previous, tool_call, until, variable
from mat_contracts.traces import record, trace

ORDER = variable("order")
OPEN, PAY, SHIP = (tool_call(name, order=ORDER) for name in ("open", "pay", "ship"))
TOUCHED = OPEN | tool_call("swap", first=ORDER) | tool_call("swap", second=ORDER)


def at(times: Sequence[int], *records: Record) -> tuple[Record, ...]:
    return tuple(replace(item, at_ms=ms, sealed_ms=ms) for item, ms in zip(trace(*records), times, strict=True))


def call(name: str, **arguments: str) -> Record:
    return record("tool_call", name, arguments)


def violations(formula: Formula, records: Sequence[Record]) -> tuple[Violation, ...]:
    _, (outcome,) = judge(tuple(records), [mat.contract("c", formula)])
    assert not outcome.error
    return outcome.violations


def test_an_overdue_promise_survives_another_id_of_the_same_record() -> None:
    both = eventually(PAY, within_ms=5) & eventually(SHIP, within_ms=5)
    records = at([7, 18], call("open", order="b"), call("swap", first="a", second="b"))
    found = violations(for_each(ORDER, always(TOUCHED.implies(both))), records)
    assert sorted((item.instance, item.witness[0]) for item in found) == [("a", 1), ("b", 0), ("b", 1)]


def test_a_deadline_of_an_id_that_was_settled_before_is_reported_when_it_passes() -> None:
    """The state of the id outlives its promise (`previous`), and with it what was noted as queued."""
    fresh = ~previous(tool_call("open", order=ORDER))
    formula = always(eventually(fresh & eventually(PAY, within=(2, 3), within_ms=(1, 3)), within=1))
    names = [("open", "b"), ("other", ""), ("open", "a"), ("other", ""), ("open", "b"), ("other", "")]
    records = at([4, 5, 15, 17, 18, 19], *[call(name, **({"order": order} if order else {})) for name, order in names])
    found = violations(for_each(ORDER, formula), records)
    assert sorted((item.instance, item.step) for item in found) == [("a", 5), ("b", 2), ("b", 5)]


def earliest(places: set[tuple[str, int]]) -> dict[str, int]:
    return {instance: min(step for own, step in places if own == instance) for instance, _ in places}


def windows(dice: random.Random) -> dict[str, object]:
    return dice.choice(
        [
            {"within_ms": dice.choice((0, 5, 20, 60))}, {"within": dice.choice((1, 2, 4))}, {"within": 2, "within_ms": 40},
            {"within": (1, 3)}, {},
        ]
    )  # fmt: skip


PLACES = {"swap": ("first", "second")}


def histories(dice: random.Random) -> Iterator[tuple[Record, ...]]:
    for _ in range(4):
        names = [dice.choice(("open", "swap", "pay", "ship", "other")) for _ in range(dice.randint(1, 14))]
        calls = [call(name, **{place: dice.choice("abc") for place in PLACES.get(name, ("order",))}) for name in names]
        times, now = [], 0
        for _ in calls:
            now += dice.choice((0, 1, 5, 10, 40))
            times.append(now)
        yield at(times, *calls)


@pytest.mark.nightly
@pytest.mark.sweep("number", range(40), fast=4)
def test_joined_promises_are_broken_where_one_of_them_is(number: int) -> None:
    """Each promise alone takes another path of the compiler than both together."""
    dice = random.Random(f"joined/{number}")
    for _ in range(15):
        one, other = eventually(PAY, **windows(dice)), eventually(SHIP, **windows(dice))  # type: ignore[arg-type]
        endless = not one.window.bounded or not other.window.bounded  # type: ignore[attr-defined]
        for records in histories(dice):
            alone = [violations(for_each(ORDER, always(TOUCHED.implies(part))), records) for part in (one, other)]
            together = violations(for_each(ORDER, always(TOUCHED.implies(one & other))), records)
            expected = {(item.instance, item.witness[0]) for found in alone for item in found}
            said = {(item.instance, item.witness[0]) for item in together}
            if endless:  # the first of the steps that no later one tells apart stands for all
                assert earliest(said) == earliest(expected)
            else:
                assert said == expected


SLICED = {
    "joined": eventually(PAY, within_ms=10**9) & eventually(SHIP, within=10**9),
    "joined without an end": eventually(PAY) & eventually(SHIP),
    "nested": eventually(PAY & eventually(SHIP, within=10**9), within_ms=10**9),
    "until": until(~tool_call("stop", order=ORDER), PAY & eventually(SHIP)),
    "either": eventually(PAY, within=10**9) | next(SHIP),
}


@pytest.mark.parametrize("kind", SLICED)
def test_a_step_looks_only_at_the_ids_that_it_can_settle(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    real = Obligations.pass_by
    monkeypatch.setattr(
        Obligations, "pass_by", lambda self, step, at, truth: [looked.append(step), real(self, step, at, truth)][1]
    )  # fmt: skip
    records = trace(*[call("open", order=f"o{number}") for number in range(300)], *[call("other")] * 100)
    monitor = Judge([mat.contract("c", for_each(ORDER, always(OPEN.implies(SLICED[kind]))))])
    for item in records:
        monitor.step(item)
    assert looked == []
    (outcome,) = monitor.finish(records[-1])
    assert len(outcome.violations) == 300


def test_a_window_that_closes_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    real = Obligations.pass_by
    monkeypatch.setattr(
        Obligations, "pass_by", lambda self, step, at, truth: [looked.append(step), real(self, step, at, truth)][1]
    )  # fmt: skip
    promise = eventually(PAY, within=100) & eventually(SHIP, within=200)
    records = trace(*[call("open", order=f"o{number}") for number in range(50)], *[call("other")] * 300)
    found = violations(for_each(ORDER, always(OPEN.implies(promise))), records)
    assert [item.step for item in found] == [number + 100 for number in range(50)]
    assert looked == [number + 100 for number in range(50)]


@pytest.mark.parametrize(
    "promise",
    [
        eventually(tool_call("pay")) & eventually(tool_call("ship")),
        eventually(tool_call("pay") & eventually(tool_call("ship"))),
        until(~tool_call("stop"), tool_call("pay") & until(~tool_call("stop"), tool_call("ship"))),
        eventually(tool_call("pay"), within=3) & eventually(tool_call("ship")),
    ],
)
def test_what_no_later_step_tells_apart_is_kept_once(promise: Formula) -> None:
    sizes = []
    for many in (20, 400):
        monitor = Judge([mat.contract("c", always(tool_call("open").implies(promise)))])
        steps = trace(*[call(("open", "pay", "open", "other")[number % 4], order="a") for number in range(many)])
        for item in steps:
            monitor.step(item)
        sizes.append(len(str(monitor.states())))
        (outcome,) = monitor.finish(steps[-1])
        assert outcome.violations
    assert sizes[1] < sizes[0] * 2


@pytest.mark.parametrize("sliced", [False, True])
def test_too_many_open_promises_are_not_judged_and_fail(sliced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OPEN_OBLIGATIONS", 5)
    promise = eventually(PAY, within=1000) & eventually(SHIP, within=1000)
    formula: Formula = for_each(ORDER, always(OPEN.implies(promise)))
    if not sliced:
        pay, ship = (eventually(tool_call(name), within=1000) for name in ("pay", "ship"))
        formula = always(tool_call("open").implies(pay & ship))
    contract = mat.contract("c", formula)
    opened = [call("open", order="a")] * 7
    _, (fine,) = judge(trace(*opened[:5], call("pay", order="a"), call("ship", order="a")), [contract])
    assert (fine.outcome, fine.error) == ("pass", "")
    _, (crowded,) = judge(trace(*opened, call("pay", order="a"), call("ship", order="a")), [contract])
    assert crowded.outcome == "fail"
    assert [(item.step, item.label) for item in crowded.violations][:1] == [(6, "unjudged")]
    assert "more than 5 steps wait" in crowded.violations[0].message
