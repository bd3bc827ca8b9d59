"""L15 where texts are cut out of the trace: two damaged tokens that read alike there are two, and are searched as two."""

from __future__ import annotations

import pytest

import mat
from mat.boundary.effect import Replace

SCHEME = "Bearer "


@mat.step_contract(on="tool_call", id="never.pays")
def nobody_pays(record: mat.Record) -> bool:
    return record.action.name != "pay"


def shortened(call, reply, stream):
    return Replace(str(reply.value)[: len(SCHEME) + call.parameters["chars"]])


CUT = mat.spec.operator(
    "service.cut", shortened, phase="after", grid=[{"chars": 16, "magnitude": 1}, {"chars": 20, "magnitude": 1}],
    relevant=lambda record, parameters, before: record.action.name == "token",
)  # fmt: skip


def body() -> None:
    @mat.tool
    def token() -> str:
        return f"{SCHEME}abcdefghijklmnopqrstuvwx"

    @mat.tool
    def ready() -> bool:
        return True

    @mat.tool(effect="write")
    def pay() -> None: ...

    held = token()
    try:
        ready()
    except TimeoutError:
        if len(held) == len(SCHEME) + 20:
            pay()


@pytest.mark.parametrize("chars", [16, 20])
def test_states_tell_two_damages_of_a_token_apart_that_the_trace_writes_alike(chars):
    def run_of(length: int) -> mat.Run:
        cut = mat.spec.perturbation("service.cut", "main/service:token#1", parameters={"chars": length, "magnitude": 1})
        with mat.run([nobody_pays], schedule=[cut], operators=[CUT], states=True) as run:
            body()
        return run.result

    first, again, other = run_of(chars), run_of(chars), run_of(36 - chars)
    assert [record.observation for record in first.records] == [record.observation for record in other.records]
    assert first.states == again.states
    assert first.states[-1] != other.states[-1]


@pytest.mark.full
def test_no_schedule_is_taken_for_one_with_another_damage(lab, found):
    made = lab(body, [nobody_pays], ("service.timeout",), extra=[CUT])
    result = made.search(budget=12)
    assert result.certificate.proven
    assert found(result) == made.brute_force(12) == {"never.pays": 9}
