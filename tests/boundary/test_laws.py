"""Laws of the crossing on random programs: L2 (no faults, no fault layer), L10 (no reply without record, no effect unseen)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
import mat_faults
from mat.boundary.catalog import Catalog

CATALOG = Catalog(mat_faults.operators())
CALLS = st.lists(
    st.tuples(
        st.sampled_from(["pay", "pay_later", "lines", "lines_later"]), st.integers(0, 3), st.sampled_from([0.5, 1.5, 90.0])
    ),
    min_size=1, max_size=6,
)  # fmt: skip
"""(port, how it fares, seconds of patience). 0 and 1: answers; 2: raises; 3: is blocked by governance."""
FAULTS = st.lists(
    st.tuples(
        st.sampled_from(["timeout", "lost_ack", "delay", "duplicate", "corrupt_field", "partial", "stale", "error"]),
        st.sampled_from(["pay", "pay_later", "lines", "lines_later"]), st.integers(1, 3),
    ),
    max_size=4, unique_by=lambda item: item[1:],
)  # fmt: skip


class Ports:
    """Counts every time a port really ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

        @mat.tool(effect="write")
        def pay(nth: int, fate: int) -> dict[str, int]:
            return self.run("pay", fate)

        @mat.tool(effect="write")
        async def pay_later(nth: int, fate: int) -> dict[str, int]:
            self.ran.append("pay_later")
            await asyncio.sleep(1)
            return self.answer(fate)

        @mat.tool(effect="write")
        def lines(nth: int, fate: int) -> Any:
            yield self.run("lines", 0)
            yield self.answer(fate)

        @mat.tool(effect="write")
        async def lines_later(nth: int, fate: int) -> Any:
            self.ran.append("lines_later")
            yield self.answer(0)
            await asyncio.sleep(1)
            yield self.answer(fate)

        self.pay, self.pay_later, self.lines, self.lines_later = pay, pay_later, lines, lines_later

    def run(self, name: str, fate: int) -> dict[str, int]:
        self.ran.append(name)
        return self.answer(fate)

    def answer(self, fate: int) -> dict[str, int]:
        if fate == 2:
            raise LookupError("nothing there")
        return {"count": len(self.ran), "fate": fate}

    async def call(self, nth: int, name: str, fate: int, patience_s: float) -> Any:
        """One call as an impatient agent makes it: what it got, or what it met."""
        try:
            if name == "pay":
                return self.pay(nth, fate)
            if name == "lines":
                return list(self.lines(nth, fate))
            if name == "pay_later":
                return await asyncio.wait_for(self.pay_later(nth, fate), patience_s)
            async with asyncio.timeout(patience_s):
                return [chunk async for chunk in self.lines_later(nth, fate)]
        except (OSError, LookupError) as error:
            return error


def forbid(record: mat.Record) -> mat.policy.Block | None:
    return mat.policy.Block("forbidden") if record.action.arguments.get("fate") == 3 else None


def play(calls: Sequence[Any], schedule: Any = (), *, together: bool = False, **options: Any) -> tuple[Any, Ports, list[Any]]:
    ports = Ports()

    async def agent() -> list[Any]:
        if together:
            return await asyncio.gather(*(ports.call(nth, *call) for nth, call in enumerate(calls)))
        return [await ports.call(nth, *call) for nth, call in enumerate(calls)]

    with mat.run(schedule=schedule, governance=mat.policy.Governance(rules=(forbid,)), **options) as run:
        got = asyncio.run(agent())
    return run.result, ports, got


def scheduled(faults: Sequence[tuple[str, str, int]]) -> list[mat.spec.Perturbation]:
    return [
        mat.spec.perturbation(f"service.{name}", f"main/service:{port}#{nth}", CATALOG[f"service.{name}"].grid[0], 4)
        for name, port, nth in faults
    ]


@given(calls=CALLS, faults=FAULTS, together=st.booleans())
def test_every_reply_has_a_record_and_every_effect_a_decision_cancelled_or_not(calls, faults, together):
    run, ports, got = play(calls, scheduled(faults), together=together, operators=CATALOG)
    records = sorted((item for item in run.records if item.action.boundary), key=lambda item: item.action.arguments["nth"])
    assert len(records) == len(got) == len(calls)
    assert sum(item.invoked for item in records) == len(ports.ran), "a port ran as often as the records say"
    for record, reply in zip(records, got, strict=True):
        assert record.mediation is not None
        assert record.blocked == (record.action.arguments["fate"] == 3) == isinstance(reply, mat.Blocked)
        assert (record.observation.error is None) == (not isinstance(reply, BaseException))
        assert (record.effected == "no") == (record.invoked == 0)
        assert record.sealed_seq > record.asked_seq
        if record.observation.error is None:
            assert record.observation.value == reply
        if record.observation.cancelled and record.raw is None:
            assert record.effected in ("no", "unknown"), "nobody knows what becomes of a call that was given up"
    assert [item.step for item in run.records] == list(range(len(run.records)))


@pytest.mark.full
@given(calls=CALLS, faults=FAULTS, together=st.booleans())
def test_one_spec_gives_one_head(calls, faults, together):
    heads = {play(calls, scheduled(faults), together=together, operators=CATALOG)[0].head for _ in range(2)}
    assert len(heads) == 1


@pytest.mark.full
@given(calls=CALLS, together=st.booleans())
def test_an_empty_schedule_is_as_if_there_were_no_fault_layer(calls, together):
    without = play(calls, together=together, operators=())
    with_layer = play(calls, together=together, operators=CATALOG)
    assert with_layer[0].head == without[0].head
    assert list(map(repr, with_layer[2])) == list(map(repr, without[2]))


@pytest.mark.full
@given(calls=CALLS, together=st.booleans())
def test_a_perturbation_that_decides_to_pass_changes_no_fact_but_its_label(calls, together):
    idle = mat.spec.operator("service.idle", lambda call, reply, stream: mat.boundary.effect.PASS, phase="after")
    schedule = [mat.spec.perturbation("service.idle", f"main/service:{name}#1..9", {}, 4) for name in ("pay", "pay_later")]
    plain, _, got = play(calls, together=together)
    run, _, same = play(calls, schedule, together=together, operators=[idle])
    assert run.view == plain.view
    assert list(map(repr, got)) == list(map(repr, same))
    assert not any(note.changed for record in run.records for note in record.faults)


@pytest.mark.parametrize("name", ["pay", "lines"])
def test_the_laws_notice_a_port_that_runs_behind_the_records(name):
    """The count of L10 is not vacuous: one more run of a port than the records know of is seen."""
    run, ports, _ = play([(name, 0, 90.0)])
    ports.pay.__wrapped__(1, 0) if name == "pay" else list(ports.lines.__wrapped__(1, 0))
    assert sum(item.invoked for item in run.records) != len(ports.ran)
