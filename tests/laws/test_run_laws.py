"""The laws of docs/requirements.md that speak of one run, over random programs of an agent."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mat
from mat.boundary.effect import Pass, Raise
from mat.core.codec import decode, encode
from mat.core.run import Run, prefixes
from mat.core.verdict import merge
from mat.kernel.entropy import Entropy

law = settings(deadline=None, max_examples=60)
SECRET = "tr0ub4dor&3"
steps = st.lists(
    st.tuples(st.sampled_from(["read", "write", "fail", "wait", "say", "cancel"]), st.integers(0, 3), st.text(max_size=6)),
    max_size=12,
)  # fmt: skip
world: list[str] = []


@mat.tool
async def read(key: str) -> dict[str, Any]:
    return {"key": key, "list": [key, None, 1.5]}


@mat.tool(effect="write")
async def write(key: str) -> str:
    await asyncio.sleep(1)
    world.append(key)
    return f"wrote {key}"


@mat.tool(effect="write")
async def fail(key: str) -> None:
    raise ConnectionError(key)


async def act(program: list[tuple[str, int, str]]) -> None:
    for verb, number, text in program:
        if verb == "wait":
            await asyncio.sleep(number)
        elif verb == "say":
            mat.verify(text or "nothing", passed=bool(number))
            mat.state(said=text)
        elif verb == "cancel":
            await asyncio.wait({task := asyncio.get_running_loop().create_task(write(text))}, timeout=0.5)
            task.cancel()
        elif verb == "fail":
            try:
                await fail(text)
            except ConnectionError:
                mat.detect("down")
        else:
            await {"read": read, "write": write}[verb](text)


def execute(program: list[tuple[str, int, str]], **options: Any) -> Run:
    world.clear()

    async def body() -> None:
        async with asyncio.TaskGroup() as group:
            for agent in ("a", "b"):
                with mat.agent(agent):
                    group.create_task(act(program))

    with mat.run(seed=1, states=True, **options) as run:
        asyncio.run(body())
    assert run.result is not None
    return run.result


@pytest.mark.covers("law", ["L1"])
@law
@given(steps)
def test_l1_one_spec_has_one_head(program: Any) -> None:
    assert execute(program).head == execute(program).head


@pytest.mark.covers("law", ["L2"])
@law
@given(steps)
def test_l2_a_fault_layer_that_does_nothing_equals_none(program: Any) -> None:
    nothing = mat.spec.operator("service.nothing", lambda call, reply, stream: Pass(), grid=[{}])
    schedule = [mat.spec.perturbation("service.nothing", "a/service:read#1..9", cost=1)]
    bare, layered = execute(program), execute(program, schedule=schedule, operators=[nothing])
    assert layered.view == bare.view
    assert prefixes(layered) == prefixes(bare)


@pytest.mark.covers("law", ["L5"])
@law
@given(steps)
def test_l5_a_run_survives_its_file_form(program: Any) -> None:
    run = execute(program)
    again = decode(Run, json.loads(json.dumps(encode(run))))
    assert again == run
    assert (again.head, again.view, again.id) == (run.head, run.view, run.id)


@pytest.mark.covers("law", ["L8"])
@law
@given(st.text(), st.text(), st.integers())
def test_l8_a_new_stream_moves_no_other(one: str, other: str, seed: int) -> None:
    alone, crowd = Entropy(seed), Entropy(seed)
    if one != other:
        crowd.stream(other).random()
    assert crowd.stream(one).random() == alone.stream(one).random()


@pytest.mark.covers("law", ["L9"])
@law
@given(st.lists(st.sampled_from(["pass", "unknown", "fail"])), st.lists(st.sampled_from(["pass", "unknown", "fail"])))
def test_l9_merging_outcomes_is_associative_commutative_and_idempotent(one: Any, other: Any) -> None:
    assert merge([*one, *other]) == merge([*other, *one]) == merge([merge(one), merge(other)])
    assert merge([merge(one), merge(one)]) == merge(one)


@pytest.mark.covers("law", ["L10"])
@law
@given(steps)
def test_l10_no_effect_without_a_record_cancelled_or_not(program: Any) -> None:
    run = execute(program)
    writes = [record for record in run.records if record.action.name == "write"]
    assert len(world) == sum(record.effected == "yes" for record in writes)
    assert all(record.effected in ("yes", "unknown") for record in writes if record.invoked)
    assert [record.step for record in run.records] == list(range(len(run.records)))
    assert len(run.verdicts) == len(run.records)


@law
@given(steps)
def test_l10_no_effect_without_a_decision(program: Any) -> None:
    deny = mat.policy.Governance(capabilities={"a": ["read"], "b": ["read"]})

    def quiet() -> Run | None:
        try:
            return execute(program, governance=deny)
        except BaseExceptionGroup:
            return None

    quiet()
    assert world == []


@pytest.mark.covers("law", ["L16"])
@law
@given(steps)
def test_l16_a_planted_secret_is_in_no_artefact(program: Any) -> None:
    planted = [(verb, number, f"{text}{SECRET}" if index % 2 else text) for index, (verb, number, text) in enumerate(program)]
    lost = mat.spec.operator(
        "service.lost", lambda call, reply, stream: Raise("timeout", f"lost {SECRET}"), grid=[{}], phase="after"
    )

    def hide(record: mat.Record) -> Any:
        return mat.policy.Rewrite({"key": SECRET}) if record.action.name == "read" else None

    mat.secret(SECRET)
    schedule = [mat.spec.perturbation("service.lost", "b/service:read#2", cost=1)]
    run = mat.run(schedule=schedule, operators=[lost], governance=mat.policy.Governance(rules=(hide,)), config={"note": SECRET})
    with run, contextlib.suppress(TimeoutError):
        asyncio.run(act(planted))
    assert run.result is not None
    assert SECRET not in json.dumps(encode(run.result))
