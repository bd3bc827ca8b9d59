"""Model calls that fail, replies that are not what was asked for, tools shown otherwise, streams that end early."""

from __future__ import annotations

import asyncio
import copy
import json
from types import MappingProxyType
from typing import Any

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mat
import mat_faults
from mat.boundary.catalog import Catalog
from mat.boundary.effect import PASS, Call, Past, Reply, Rewrite
from mat.core.record import Record
from mat.core.value import EMPTY, FrozenDict, snapshot_arguments
from mat_faults.conformance import distance
from mat_faults.model import OVERRUN, REFUSAL
from mat_faults.toolbox import HOWS, INSTRUCTION

CATALOG = Catalog(mat_faults.operators())
TOOLS = [
    {
        "name": "pay",
        "description": "Pays.",
        "input_schema": {"type": "object", "properties": {"by": {"enum": ["card", "cash"]}}},
    },
    {"name": "track", "description": "Tracks.", "input_schema": {"type": "object", "properties": {}}},
]
FUNCTIONS = [
    {"type": "function", "function": {"name": t["name"], "description": t["description"], "parameters": t["input_schema"]}}
    for t in TOOLS
]


def decide(id: str, reply: Any, *, given: Any = EMPTY, past: tuple[Any, ...] = (), **parameters: Any) -> Any:
    """What the operator makes of a reply; the reply itself where it decides to pass."""
    call = Call(
        port="p", kind="model_call", agent="main", site="", arguments=EMPTY, at_ms=0, parameters=FrozenDict(parameters),
        given=snapshot_arguments(given, "test"),
        past=tuple(Past(kind="model_call", agent="main", arguments=EMPTY, value=value, at_ms=0) for value in past),
    )  # fmt: skip
    before = copy.deepcopy(reply) if not isinstance(reply, MappingProxyType) else reply
    effect = CATALOG[id].decide(call, None if CATALOG[id].phase == "before" else Reply(reply), None)  # type: ignore[arg-type]
    assert reply == before, "the reply was altered in place"
    if effect == PASS:
        return reply
    return dict(effect.arguments) if isinstance(effect, Rewrite) else effect.value


class Function(pydantic.BaseModel):
    name: str
    arguments: str


class ToolCall(pydantic.BaseModel):
    id: str
    function: Function


class Message(pydantic.BaseModel):
    content: str | None
    tool_calls: list[ToolCall] = []


class Choice(pydantic.BaseModel):
    message: Message
    finish_reason: str = "tool_calls"


class Usage(pydantic.BaseModel):
    prompt_tokens: int = 10
    completion_tokens: int = 5
    total_tokens: int = 15


class Completion(pydantic.BaseModel):
    choices: list[Choice]
    usage: Usage = Usage()


def completion(content: str | None, *names: str) -> Completion:
    calls = [ToolCall(id="c", function=Function(name=name, arguments='{"order": "A1"}')) for name in names]
    return Completion(choices=[Choice(message=Message(content=content, tool_calls=calls))])


BLOCKS = {
    "content": [{"type": "text", "text": "I will pay."}, {"type": "tool_use", "name": "pay", "input": {"order": "A1"}}],
    "stop_reason": "tool_use", "usage": {"input_tokens": 8, "output_tokens": 4},
}  # fmt: skip
DATA = {"tool": "pay", "arguments": {"order": "A1"}}

# -- the wrong tool ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "wrong"),
    [
        (DATA, {**DATA, "tool": "track"}),
        (json.dumps(DATA), json.dumps({**DATA, "tool": "track"})),
        ({"name": "pay", "input": {}}, {"name": "track", "input": {}}),
        (completion(None, "pay"), completion(None, "track")),
        (completion("ok", "pay", "pay"), None),
        ({"name": "pay"}, {"name": "pay"}), ("pay", "pay"), (completion("Dear Ann"), completion("Dear Ann")), (None, None),
    ],
)  # fmt: skip
def test_another_tool_that_was_offered_is_called(reply, wrong):
    for given_ in ({"tools": TOOLS}, {"functions": FUNCTIONS}, {"request": {"tools": TOOLS}}):
        got = decide("model.wrong_tool", reply, given=given_)
        if isinstance(reply, Completion) and wrong is None:
            names = [call.function.name for call in got.choices[0].message.tool_calls]
            assert names == ["track", "pay"], "one call is changed, the others are not"
        else:
            assert got == wrong


def test_a_tool_that_was_used_before_serves_where_none_was_offered_and_without_either_nothing_happens():
    assert decide("model.wrong_tool", DATA, past=({"tool": "track", "arguments": {}}, "hello")) == {**DATA, "tool": "track"}
    assert decide("model.wrong_tool", DATA, past=(DATA,)) == DATA
    assert decide("model.wrong_tool", DATA, given={"tools": TOOLS[:1]}) == DATA


def plan(record: Any, *asked: dict[str, Any]) -> tuple[Record, ...]:
    @mat.model("planner", tape="inprocess", record=record)
    def planner(prompt: str, tools: Any = None) -> Any:
        return {"tool": prompt, "arguments": {}} if prompt else "hello"

    with mat.run() as run:
        for item in asked:
            planner(**item)
    return run.result.records[:-1]


@pytest.mark.parametrize(
    ("record", "asked", "expected"),
    [
        ("keep", [{"prompt": "pay", "tools": TOOLS}], True), ("keep", [{"prompt": "pay"}], False),
        ("keep", [{"prompt": "track"}, {"prompt": "pay"}], True), ("keep", [{"prompt": "pay"}, {"prompt": "pay"}], False),
        ("keep", [{"prompt": "", "tools": TOOLS}], False), (None, [{"prompt": "pay"}], True), (None, [{"prompt": ""}], False),
        ("hash", [{"prompt": ""}], True),
    ],
)  # fmt: skip
def test_it_could_matter_where_another_tool_is_known_or_the_record_does_not_show_it(record, asked, expected):
    records = plan(record, *asked)
    assert CATALOG["model.wrong_tool"].relevant(records[-1], EMPTY, records[:-1]) is expected


# -- refusals, cuts, overruns ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "refused"),
    [
        ("Dear Ann", REFUSAL), (json.dumps(DATA), REFUSAL), (DATA, {"content": REFUSAL}),
        ({**DATA, "usage": {"output_tokens": 3}}, {"usage": {"output_tokens": 3}, "content": REFUSAL}),
        (BLOCKS, {**BLOCKS, "content": [{"type": "text", "text": REFUSAL}], "stop_reason": "refusal"}),
        (
            {**BLOCKS, "content": BLOCKS["content"][1:]},
            {**BLOCKS, "content": [{"type": "text", "text": REFUSAL}], "stop_reason": "refusal"},
        ),
        ({"text": "Dear Ann", "id": "m1"}, {"text": REFUSAL, "id": "m1"}),
        ("", ""), (None, None), ({}, {}), (5, 5), ({"score": 1}, {"score": 1}), (REFUSAL, REFUSAL),
    ],
)  # fmt: skip
def test_a_model_refuses_in_the_form_of_its_client(reply, refused):
    assert decide("model.refusal", reply) == refused


def test_an_object_of_a_client_refuses_without_its_calls():
    (choice,) = decide("model.refusal", completion(None, "pay")).choices
    assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == (REFUSAL, [], "stop")


@pytest.mark.parametrize(
    ("reply", "cut"),
    [
        ("Dear Ann, hello", "Dear An"), (BLOCKS, {**BLOCKS, "stop_reason": "max_tokens", "content": [
            {"type": "text", "text": "I wil"}, BLOCKS["content"][1]]}),
        ({"arguments": "order=A1"}, {"arguments": "orde"}), (json.dumps(DATA), json.dumps(DATA)[: len(json.dumps(DATA)) // 2]),
        ("x", "x"), ("", ""), (DATA, DATA), (None, None),
    ],
)  # fmt: skip
def test_an_answer_ends_at_its_limit(reply, cut):
    assert decide("model.truncated", reply, percent=50) == cut


def test_an_object_of_a_client_says_that_it_was_cut():
    cut = decide("model.truncated", completion("Dear Ann, hello"), percent=50).choices[0]
    assert (cut.message.content, cut.finish_reason) == ("Dear An", "length")
    call = decide("model.truncated", completion(None, "pay"), percent=50).choices[0]
    assert (call.message.tool_calls[0].function.arguments, call.finish_reason) == ('{"order', "length")


def test_an_overrun_is_paid_for_and_seen():
    run_over = decide("model.token_overrun", completion("Dear Ann"), times=10)
    assert run_over.usage == Usage(prompt_tokens=10, completion_tokens=50, total_tokens=60)
    assert run_over.choices[0].message.content == "Dear Ann" + f" {OVERRUN}" * 10
    blocks = decide("model.token_overrun", BLOCKS, times=100)
    assert blocks["usage"] == {"input_tokens": 8, "output_tokens": 400}
    call = {**DATA, "usage": {"output_tokens": 3}}
    assert decide("model.token_overrun", call, times=10) == {**DATA, "usage": {"output_tokens": 30}}
    assert decide("model.token_overrun", DATA, times=10) == DATA
    assert decide("model.token_overrun", json.dumps(DATA), times=10) == json.dumps(DATA), "a call stays one that can be read"


def test_an_overrun_is_in_the_usage_of_the_record():
    @mat.model("planner", tape="inprocess")
    def planner(prompt: str) -> Any:
        return {"content": "Dear Ann", "usage": {"prompt_tokens": 3, "completion_tokens": 5}}

    with mat.run(schedule=[mat.spec.perturbation("model.token_overrun", "main/model:planner#1", {"times": 100}, 6)]) as run:
        planner("x")
    assert run.result.records[0].observation.usage == {"input_tokens": 3, "output_tokens": 500}


TEXTS = st.text(max_size=20)
NAMES = ["content", "text", "tool", "name", "arguments", "input", "usage", "output_tokens", "stop_reason", "x"]
REPLIES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
        st.builds(completion, TEXTS, TEXTS),
    ),
    max_leaves=8,
)  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("id", ["model.refusal", "model.truncated", "model.token_overrun", "model.wrong_tool"])
@settings(deadline=None)
@given(reply=REPLIES, data=st.data())
def test_any_reply_is_changed_within_bounds_and_as_its_record_foresees(id, reply, data):
    operator, point = CATALOG[id], data.draw(st.sampled_from(CATALOG[id].grid))

    @mat.model("planner", tape="inprocess", record="keep")
    def planner(tools: Any) -> Any:
        return reply

    with mat.run() as run:
        planner(TOOLS)
    changed = decide(id, reply, given={"tools": TOOLS}, **point)
    said = operator.relevant(run.result.records[0], point, ())
    assert said or changed == reply, "the search would lose this"
    assert distance(reply, changed) <= operator.bounds["magnitude"]


# -- tools as they are shown ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tools", "functions", "tool_definitions"])
def test_tools_are_shown_otherwise_and_nothing_else_is(name):
    for tools in (TOOLS, FUNCTIONS):
        given_ = {"prompt": "pay", name: tools}
        (shown,) = decide("model.tool_description", None, given=given_, how="instruction").items()
        assert shown[0] == name
        first = shown[1][0].get("function", shown[1][0])
        assert first["description"] == f"Pays. {INSTRUCTION}"
        assert shown[1][1:] == snapshot_arguments({"t": tools[1:]}, "test")["t"]


def test_tools_deep_in_a_request_are_found_and_other_lists_are_not():
    deep = {"request": {"model": "m", "tools": TOOLS}}
    (changed,) = decide("model.tool_description", None, given=deep, how="swap").values()
    assert [item["description"] for item in changed["tools"]] == ["Tracks.", "Pays."]
    assert changed["model"] == "m"
    for given_ in ({"products": TOOLS}, {"prompt": "tools"}, {"tools": None}, {"tools": []}):
        assert decide("model.tool_description", None, given=given_, how="swap") is None


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("how", HOWS)
def test_the_model_gets_the_poisoned_tools_and_the_agent_keeps_its_own(how, asynchronous):
    shown: list[Any] = []
    mine = copy.deepcopy(TOOLS)

    @mat.model("planner", tape="inprocess", record="keep")
    def planner(prompt: str, tools: Any) -> str:
        shown.append(tools)
        return "ok"

    @mat.model("planner", tape="inprocess", record="keep")
    async def later(prompt: str, tools: Any) -> str:
        shown.append(tools)
        return "ok"

    point = next(point for point in CATALOG["model.tool_description"].grid if point["how"] == how)
    with mat.run(schedule=[mat.spec.perturbation("model.tool_description", "main/model:planner#1", point, 5)]) as run:
        assert (asyncio.run(later("x", mine)) if asynchronous else planner("x", mine)) == "ok"
    assert mine == TOOLS
    assert 1 <= distance(TOOLS, shown[0]) <= point["magnitude"]
    assert run.result.records[0].executed["tools"] == snapshot_arguments({"t": shown[0]}, "test")["t"]


# -- streams -------------------------------------------------------------------------------------------------------------------

WORDS = ["Dear", "Ann", "your", "parcel", "came"]


def listen(schedule: Any, asynchronous: bool, words: list[str] = WORDS) -> tuple[list[str], str, Any, list[str]]:
    """What was heard, the error, the run, and what the model had said when the stream ended."""
    spoken: list[str] = []

    @mat.model("talker", tape="inprocess")
    def talker() -> Any:
        for word in words:
            spoken.append(word)
            yield word

    @mat.model("talker", tape="inprocess")
    async def later() -> Any:
        for word in words:
            spoken.append(word)
            yield word

    async def hear(heard: list[str]) -> None:
        async for word in later():  # one by one: what was heard before the stream broke is kept
            heard.append(word)  # noqa: PERF401

    heard: list[str] = []
    said = ""
    with mat.run(schedule=schedule) as run:
        try:
            if asynchronous:
                asyncio.run(hear(heard))
            else:
                for word in talker():
                    heard.append(word)  # noqa: PERF402
        except ConnectionError as error:
            said = str(error)
    return heard, said, run.result, spoken


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("kind", ["", "connection"])
@pytest.mark.parametrize("chunks", [0, 1, 2, 4])
def test_a_stream_ends_after_so_many_chunks_quietly_or_with_its_connection(chunks, kind, asynchronous):
    point = {"chunks": chunks, "magnitude": 1, **({"kind": kind} if kind else {})}
    assert FrozenDict(point) in CATALOG["model.cut"].grid
    heard, said, run, spoken = listen([mat.spec.perturbation("model.cut", "main/model:talker#1", point, 5)], asynchronous)
    assert heard == WORDS[:chunks]
    assert ("broke" in said) == bool(kind)
    assert run.records[0].observation.chunks == chunks
    assert len(spoken) == max(chunks, 1), "what was cut off was never said; the first chunk comes with the call"
    assert run.records[0].effected != "no"


@pytest.mark.parametrize("length", range(6))
def test_a_cut_says_where_it_matters(length):
    _, _, calm, _ = listen((), False, WORDS[:length])
    for point in CATALOG["model.cut"].grid:
        _, _, run, _ = listen([mat.spec.perturbation("model.cut", "main/model:talker#1", point, 5)], False, WORDS[:length])
        assert CATALOG["model.cut"].relevant(calm.records[0], point, ()) is (run.view != calm.view)


def test_a_reply_that_is_no_stream_cannot_be_cut():
    (record,) = plan("keep", {"prompt": "pay"})
    assert not any(CATALOG["model.cut"].relevant(record, point, ()) for point in CATALOG["model.cut"].grid)
