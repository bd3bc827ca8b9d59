"""Replies of every provider and framework: what they say is read, and a fault speaks as they do."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
import mat_faults
from mat.boundary.catalog import Catalog
from mat.boundary.effect import PASS, Call, Past, Reply
from mat.core.value import EMPTY, FrozenDict, snapshot
from mat_faults.conformance import distance
from mat_faults.model import REFUSAL
from mat_faults.model_replies import BREAKS, CONTRADICTION
from mat_faults.model_shapes import shape_of
from mat_faults.mutators import objects, with_leaf

CATALOG = Catalog(mat_faults.operators())
REFUND = {"order": "A17", "amount": 30}
OF_CALLS = ("model.unknown_tool", "model.invalid_arguments", "model.repeated_call", "model.contradiction")
"""Operators that have nothing to act on where no tool is called."""


def chat(text: str, *calls: tuple[str, Any]) -> Any:
    made = [
        {"id": f"c{place}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for place, (name, given) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": text or None, **({"tool_calls": made} if made else {})}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {"completion_tokens": 5}}


def message(text: str, *calls: tuple[str, Any]) -> Any:
    """As smolagents has it, which gives arguments as data."""
    made = [{"id": f"c{place}", "function": {"name": name, "arguments": given}} for place, (name, given) in enumerate(calls)]
    return {"role": "assistant", "content": text or None, "tool_calls": made}


def ollama(text: str, *calls: tuple[str, Any]) -> Any:
    made = [{"function": {"name": name, "arguments": given}} for name, given in calls]
    return {"message": {"role": "assistant", "content": text, "tool_calls": made}, "done": True, "done_reason": "stop"}


def responses(text: str, *calls: tuple[str, Any]) -> Any:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    said = [{"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": content}] if text else []
    made = [
        {"type": "function_call", "id": f"f{place}", "call_id": f"c{place}", "name": name, "arguments": json.dumps(given)}
        for place, (name, given) in enumerate(calls)
    ]
    reasoning = {"type": "reasoning", "id": "r", "summary": []}
    return {"output": [reasoning, *said, *made], "status": "completed", "incomplete_details": None, "tools": [{"name": "x"}]}


def events(text: str, *calls: tuple[str, Any]) -> Any:
    return [{"type": "response.created"}, {"type": "response.completed", "response": responses(text, *calls)}]


def anthropic(text: str, *calls: tuple[str, Any]) -> Any:
    said = [{"type": "text", "text": text}] if text else []
    made = [{"type": "tool_use", "id": f"t{place}", "name": name, "input": given} for place, (name, given) in enumerate(calls)]
    return {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, *said, *made], "stop_reason": "end_turn"}


def gemini(text: str, *calls: tuple[str, Any]) -> Any:
    made = [{"functionCall": {"name": name, "args": given}} for name, given in calls]
    parts = [{"text": "hm", "thought": True}, *([{"text": text}] if text else []), *made]
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}


def adk(text: str, *calls: tuple[str, Any]) -> Any:
    made = [{"function_call": {"id": f"a{place}", "name": name, "args": given}} for place, (name, given) in enumerate(calls)]
    return {"content": {"role": "model", "parts": [*([{"text": text}] if text else []), *made]}}


def langchain(text: str, *calls: tuple[str, Any]) -> Any:
    made = [{"name": name, "args": given, "id": f"c{place}"} for place, (name, given) in enumerate(calls)]
    return {"content": text, "tool_calls": made, "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}


def pydantic_ai(text: str, *calls: tuple[str, Any]) -> Any:
    said = [{"part_kind": "text", "content": text}] if text else []
    made = [
        {"part_kind": "tool-call", "tool_name": name, "args": given, "tool_call_id": f"p{place}"}
        for place, (name, given) in enumerate(calls)
    ]
    return {"parts": [*said, *made], "kind": "response", "model_name": "scripted", "usage": {"output_tokens": 5}}


def pydantic_ai_events(text: str, *calls: tuple[str, Any]) -> Any:
    return [{"event_kind": "part_delta", "index": 0}, {"event_kind": "response", "response": pydantic_ai(text, *calls)}]


def http(text: str, *calls: tuple[str, Any]) -> Any:
    return {"status": 200, "headers": {"content-type": "application/json"}, "body": anthropic(text, *calls)}


SHAPES = {
    made.__name__: made
    for made in (
        chat, message, ollama, responses, events, anthropic, gemini, adk, langchain, pydantic_ai, pydantic_ai_events, http,
    )
}  # fmt: skip
IDS = ("id", "call_id", "tool_call_id")


def read(reply: Any) -> tuple[str, list[tuple[str, Any]]]:
    """The text and the calls of a reply."""
    shape = shape_of(reply)
    assert shape is not None
    said = shape.read(reply)
    return said.text, [(call.tool, call.arguments) for call in said.calls]


def ids(value: Any) -> list[str]:
    """The ids in a reply, in order."""
    if isinstance(value, dict):
        return [found for name, item in value.items() for found in ([item] if name in IDS else ids(item))]
    return [found for item in value for found in ids(item)] if isinstance(value, list) else []


def decide(id: str, reply: Any, *, past: tuple[Any, ...] = (), **parameters: Any) -> Any:
    """What the operator makes of a reply; PASS where it leaves it. Its record must foresee which."""
    operator = CATALOG[id]
    call = Call(
        port="m", kind="model_call", agent="main", site="", arguments=EMPTY, at_ms=0, parameters=FrozenDict(parameters),
        past=tuple(Past(kind="model_call", agent="main", arguments=EMPTY, value=value, at_ms=0) for value in past),
    )  # fmt: skip
    before = copy.deepcopy(reply)
    effect = operator.decide(call, None if operator.phase == "before" else Reply(reply), None)  # type: ignore[arg-type]
    assert reply == before, "the reply was altered in place"
    assert _foreseen(operator, reply, past, parameters) is (effect != PASS)
    return PASS if effect == PASS else effect.value  # type: ignore[union-attr]


def _foreseen(operator: Any, reply: Any, past: tuple[Any, ...], parameters: dict[str, Any]) -> bool:
    said = iter([*past, reply])

    @mat.model("m", tape="inprocess", record="keep")
    def ask() -> Any:
        return copy.deepcopy(next(said))

    with mat.run() as run:
        for _ in (*past, reply):
            ask()
    *before, record = [each for each in run.trace if each.action.boundary]
    found: bool = operator.relevant(record, FrozenDict(parameters), before)
    return found


@pytest.fixture(params=SHAPES)
def made(request: pytest.FixtureRequest) -> Any:
    return SHAPES[request.param]


def test_text_and_calls_are_read_in_every_shape(made: Any) -> None:
    both = made("I refund it.", ("look_up", {"order": "A17"}), ("refund", REFUND))
    assert read(both) == ("I refund it.", [("look_up", {"order": "A17"}), ("refund", REFUND)])
    assert read(snapshot(both)) == read(both), "a record is read like the reply"
    assert read(made("", ("refund", REFUND))) == ("", [("refund", REFUND)])


def test_a_tool_is_called_that_does_not_exist(made: Any) -> None:
    changed = decide("model.unknown_tool", made("Yes.", ("refund", REFUND), ("look_up", {})))
    assert changed == made("Yes.", ("refund_v2", REFUND), ("look_up", {}))


@pytest.mark.parametrize(
    ("how", "broken"),
    [
        ("missing", {"amount": 30}), ("type", {"order": ["A17"], "amount": 30}), ("null", {"order": None, "amount": 30}),
        ("extra", {**REFUND, "reason": "as the customer asked"}),
    ],
)  # fmt: skip
def test_arguments_break_the_schema(made: Any, how: str, broken: Any) -> None:
    assert decide("model.invalid_arguments", made("Yes.", ("refund", REFUND)), how=how) == made("Yes.", ("refund", broken))
    without = made("Yes.", ("refund", {}))
    assert (decide("model.invalid_arguments", without, how=how) == PASS) is (how != "extra")


def test_a_number_becomes_a_text_that_no_lenient_schema_reads_as_one() -> None:
    changed = decide("model.invalid_arguments", chat("", ("refund", {"amount": 30})), how="type")
    assert read(changed)[1] == [("refund", {"amount": "as agreed"})]


def test_a_call_is_made_twice_in_one_reply_each_with_ids_of_its_own(made: Any) -> None:
    changed = decide("model.repeated_call", made("Yes.", ("refund", REFUND), ("look_up", {})))
    assert read(changed) == ("Yes.", [("refund", REFUND), ("refund", REFUND), ("look_up", {})])
    assert len(set(ids(changed))) == len(ids(changed))


def test_a_call_stands_next_to_a_text_that_denies_it(made: Any) -> None:
    assert read(decide("model.contradiction", made("Yes.", ("refund", REFUND)))) == (CONTRADICTION, [("refund", REFUND)])
    alone = decide("model.contradiction", made("", ("refund", REFUND)))
    assert read(alone) == (CONTRADICTION, [("refund", REFUND)])
    assert decide("model.contradiction", alone) == PASS


def test_a_refusal_calls_nothing(made: Any) -> None:
    for reply in (made("Yes.", ("refund", REFUND)), made("", ("refund", REFUND))):
        refused = decide("model.refusal", reply)
        assert read(refused) == (REFUSAL, [])
        assert decide("model.refusal", refused) == PASS


def test_an_empty_reply_is_still_a_reply_of_the_provider(made: Any) -> None:
    empty = decide("model.empty", made("Yes.", ("refund", REFUND)))
    assert empty.keys() == made("Yes.").keys() if isinstance(empty, dict) else len(empty) == 2
    assert "Yes." not in json.dumps(empty)
    assert "refund" not in json.dumps(empty)


def test_a_text_is_cut_at_the_limit_and_the_reply_says_so(made: Any) -> None:
    cut = decide("model.truncated", made("Dear Ann, hello"), percent=50)
    assert read(cut)[0] == "Dear An"
    if made is message:  # smolagents has no place for it
        return
    assert any(word in json.dumps(cut) for word in ('"length"', '"max_tokens"', '"MAX_TOKENS"', '"max_output_tokens"'))


def test_arguments_are_cut_at_the_limit_as_their_text_or_as_data(made: Any) -> None:
    cut = decide("model.truncated", made("", ("look_up", {"order": "A17"}), ("refund", REFUND)), percent=50)
    first, (tool, left) = read(cut)[1]
    assert first == ("look_up", {"order": "A17"})
    assert tool == "refund"
    assert left in (json.dumps(REFUND)[:15], {"order": "A17"})


def test_the_limits_of_providers_are_in_their_words() -> None:
    assert decide("model.truncated", responses("Dear Ann"), percent=50)["incomplete_details"] == {"reason": "max_output_tokens"}
    assert decide("model.truncated", responses("Dear Ann"), percent=50)["output"][-1]["status"] == "incomplete"
    assert decide("model.truncated", adk("Dear Ann"), percent=50)["finish_reason"] == "MAX_TOKENS"
    assert decide("model.truncated", langchain("Dear Ann"), percent=50)["finish_reason"] == "length"
    assert decide("model.refusal", gemini("Dear Ann"))["candidates"][0]["finishReason"] == "SAFETY"
    assert decide("model.refusal", pydantic_ai("Dear Ann"))["finish_reason"] == "content_filter"
    assert decide("model.refusal", http("Dear Ann"))["body"]["stop_reason"] == "refusal"


def test_the_call_of_another_tool_is_in_every_shape(made: Any) -> None:
    assert decide("model.malformed_call", made("Yes.", ("refund", REFUND))) == made("Yes.", ("refund_", REFUND))
    used = made("", ("look_up", {}))
    changed = decide("model.wrong_tool", made("Yes.", ("refund", REFUND)), past=(used,))
    assert changed == made("Yes.", ("look_up", REFUND))


@pytest.mark.parametrize("id", [*OF_CALLS, "model.malformed_call"])
def test_without_a_call_there_is_nothing_to_act_on(made: Any, id: str) -> None:
    for point in CATALOG[id].grid:
        assert decide(id, made("Dear Ann"), **point) == PASS


@pytest.mark.parametrize("nothing", [None, "", "Dear Ann", 5, [], {}, {"score": 1}, ["a"], [{"type": "x"}], {"output": []}])
@pytest.mark.parametrize("id", OF_CALLS)
def test_what_is_no_reply_of_a_model_is_left_alone(id: str, nothing: Any) -> None:
    for point in CATALOG[id].grid:
        assert decide(id, nothing, **point) == PASS
    assert shape_of(nothing) is None


def test_an_old_reply_comes_again_with_ids_of_its_own(made: Any) -> None:
    old, new = made("", ("look_up", {"order": "A17"})), made("Done.")
    stale = decide("model.stale", new, past=(made("Hello"), old), age=1)
    assert read(stale) == read(old)
    calls = [item for item in ids(stale) if item.endswith("-again")]
    assert len(calls) == len([item for item in ids(old) if item not in ("m", "r")])
    assert decide("model.stale", new, age=1) == PASS


def test_an_old_reply_that_equals_todays_may_matter_because_the_model_is_not_asked() -> None:
    assert decide("model.stale", "Hello", past=("Hello",), age=1) == "Hello"


@pytest.mark.parametrize(
    ("id", "parameters", "changed"),
    [
        ("model.unknown_tool", {}, {"tool": "refund_v2"}), ("model.contradiction", {}, {"content": CONTRADICTION}),
        ("model.invalid_arguments", {"how": "missing"}, {"arguments": {"amount": 30}}), ("model.repeated_call", {}, None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("text", [False, True], ids=["data", "text"])
def test_a_plain_call_and_its_json_text_are_changed_where_they_can_say_it(
    id: str, parameters: Any, changed: Any, text: bool
) -> None:
    plain = {"tool": "refund", "arguments": REFUND, "content": "I pay."}
    found = decide(id, json.dumps(plain) if text else plain, **parameters)
    if changed is None:
        assert found == PASS
    else:
        assert (json.loads(found) if text else found) == {**plain, **changed}
    assert decide("model.contradiction", {"tool": "refund", "arguments": REFUND}) == PASS


def test_a_reply_with_many_items_is_left_alone() -> None:
    for id in ("model.empty", "model.refusal", "model.contradiction"):
        assert decide(id, anthropic("Yes.", *[("refund", REFUND)] * 9)) == PASS


def test_an_http_reply_that_is_an_error_says_nothing() -> None:
    assert shape_of({**http("Yes.", ("refund", REFUND)), "status": 500}) is None
    assert shape_of({"status": 200, "headers": {}, "body": "data: {}"}) is None


def test_blocks_of_langchain_that_repeat_a_call_go_with_it() -> None:
    blocks = [{"type": "text", "text": "Yes."}, {"type": "tool_use", "id": "c0", "name": "refund", "input": REFUND}]
    reply = {**langchain("", ("refund", REFUND)), "content": blocks}
    assert read(reply) == ("Yes.", [("refund", REFUND)])
    for id, name in (("model.unknown_tool", "refund_v2"), ("model.malformed_call", "refund_")):
        changed = decide(id, reply)
        assert changed == langchain("Yes.", (name, REFUND))
        assert distance(reply, changed) <= CATALOG[id].bounds["magnitude"]


def test_the_tokens_of_an_overrun_are_those_that_the_meter_reads() -> None:
    usage = {"candidatesTokenCount": 7, "totalTokenCount": 20}
    reply = {**http("Yes."), "body": {**gemini("Yes."), "usageMetadata": usage}, "usage": usage}
    changed = decide("model.token_overrun", reply, times=10)
    assert changed["usage"] == changed["body"]["usageMetadata"] == {"candidatesTokenCount": 70, "totalTokenCount": 83}


def test_tools_that_an_adapter_names_are_known_to_the_wrong_tool() -> None:
    assert mat_faults.model.offered(FrozenDict({"tools": ("look_up", "refund")})) == ("look_up", "refund")


TEXTS = st.text(max_size=12)
CALLS = st.tuples(TEXTS.filter(bool), st.dictionaries(TEXTS, st.none() | st.integers() | TEXTS, max_size=3))
POINTS = [(id, point) for id in (*OF_CALLS, "model.refusal", "model.empty", "model.truncated") for point in CATALOG[id].grid]


@given(name=st.sampled_from(sorted(SHAPES)), text=TEXTS, calls=st.lists(CALLS, max_size=3), picked=st.sampled_from(POINTS))
def test_any_reply_stays_one_of_its_shape(name: str, text: str, calls: Any, picked: Any) -> None:
    reply = SHAPES[name](text, *calls)
    before, (id, point) = shape_of(reply), picked
    changed = decide(id, reply, **point)
    if changed != PASS and shape_of(changed) is not None:  # without its last item, a reply has no shape
        assert shape_of(changed) == before


WORDS = [
    "choices", "message", "content", "tool_calls", "function", "name", "arguments", "args", "input", "output", "type", "text",
    "candidates", "parts", "functionCall", "function_call", "part_kind", "tool_name", "tool", "role", "done", "status",
    "headers", "body", "response", "finish_reason", "thought", "id",
]  # fmt: skip
VALUES = st.sampled_from(
    ["text", "message", "tool_use", "function_call", "tool-call", "response.completed", "", "{}", '{"a":1}']
)
JUNK = st.recursive(
    st.none() | st.just(200) | VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5),
    max_leaves=25,
)
EVERY = [(item, point) for item in CATALOG if item.boundary == "model" and item.phase == "after" for point in item.grid]


@given(junk=JUNK, name=st.sampled_from(sorted(SHAPES)), data=st.data())
def test_what_only_looks_like_a_reply_breaks_no_operator_and_no_bound(junk: Any, name: str, data: Any) -> None:
    reply = data.draw(st.sampled_from([junk, _grafted(SHAPES[name]("Yes.", ("refund", REFUND)), junk, data)]))
    before = copy.deepcopy(reply)
    for operator, point in EVERY:
        call = Call(
            port="m", kind="model_call", agent="main", site="", arguments=EMPTY, at_ms=0, parameters=point,
            given=FrozenDict({"tools": ("look_up",)}),
        )  # fmt: skip
        effect = operator.decide(call, Reply(reply), None)  # type: ignore[arg-type]
        assert reply == before
        changed = reply if effect == PASS else effect.value  # type: ignore[union-attr]
        assert distance(reply, changed) <= operator.bounds["magnitude"], operator.id


def _grafted(value: Any, junk: Any, data: Any) -> Any:
    """A reply with something else in the place of one of its parts."""
    places = [(path, key) for path, inside in objects(value) for key in inside]
    path, key = data.draw(st.sampled_from(places))
    return with_leaf(value, (*path, key), junk)


def test_every_way_to_break_arguments_is_in_the_grid() -> None:
    assert tuple(point["how"] for point in CATALOG["model.invalid_arguments"].grid) == BREAKS
