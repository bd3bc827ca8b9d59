"""Fault operators of the model boundary: limits, unusable or wrong replies, broken streams.

Replies in the shapes of providers and frameworks are changed as those would say it (`model_shapes`). Any other reply is plain
data: a text, a message with `content`, a call of a tool as {tool, arguments}, {name, input} or as JSON text.

>>> from mat_faults import model
>>> [operator.id for operator in model.operators()][:2]
['model.rate_limit', 'model.malformed_call']

Source: A3.4.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from mat.boundary.catalog import Operator, operator
from mat.boundary.effect import PASS, Call, Effect, Raise, Replace, Reply, Rewrite
from mat.core.record import Record
from mat.core.value import FrozenDict, Value, snapshot_arguments
from mat_faults import model_replies
from mat_faults.model_shapes import (
    ARGUMENT_KEYS,
    CALL_KEYS,
    MOST,
    TEXT_KEYS,
    SaidReply,
    called,
    changed_reply,
    shape_of,
)
from mat_faults.mutators import (
    FieldPath,
    apply_inside,
    is_sequence,
    json_inside,
    leaves,
    like_sequence,
    text_path,
    with_leaf,
)
from mat_faults.site import arguments_of, is_hidden, on_reply, raw_observation
from mat_faults.streams import cut_matters, cut_stream
from mat_faults.toolbox import ARGUMENTS, HOWS, poisoned, tool_lists, tool_names, tool_price

ReplyChange: TypeAlias = Callable[[Any, FrozenDict], tuple[Any] | None]
"""(reply, parameters) -> a changed copy of the reply in a one-tuple; None if the change does not fit."""

REFUSAL: Final = "I'm sorry, but I can't help with that."
OVERRUN: Final = "Let me go through this once more, step by step, to be sure."
"""The text that a model that does not stop repeats."""

_STOP_KEYS: Final = {
    "finish_reason": ("length", "stop"),
    "stop_reason": ("max_tokens", "refusal"),
    "finishReason": ("MAX_TOKENS", "SAFETY"),
}
"""By client: the stop reason of a reply cut at its limit, and of a refusal."""
_TOTALS: Final = ("total_tokens", "totalTokenCount", "total_token_count")
_OUTPUT_TOKENS: Final = (
    "output_tokens",
    "completion_tokens",
    "response_tokens",
    "candidates_token_count",
    "candidatesTokenCount",
    *_TOTALS,
)
_LONGEST: Final = 100_000
"""The largest number of characters that an overrun adds."""


def _rate_limit(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Raise("rate_limit", retry_after_s=30.0)


def _malformed(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    damaged = None if reply is None else damaged_call(reply.value)
    return PASS if damaged is None else Replace(damaged[0])


def damaged_call(value: Any) -> tuple[Any] | None:
    """Make the tool call of a reply unusable: JSON text cut short, or the name of the call (or its arguments) broken."""
    if shape_of(value) is not None:
        return changed_reply(value, _with_damage)
    found = _text_named(value, CALL_KEYS) or _text_named(value, ARGUMENT_KEYS)
    if found is not None:
        return (with_leaf(value, found[0], f"{found[1]}_"),)
    for path, leaf in leaves(value):
        if json_inside(leaf) is not None:
            half = leaf.strip()[: len(leaf.strip()) // 2]  # never JSON: its bracket stays open
            return (with_leaf(value, path, half),)
    return None


def _with_damage(said: SaidReply) -> SaidReply | None:
    if said.calls:
        return replace(said, calls=(replace(said.calls[0], tool=f"{said.calls[0].tool}_"), *said.calls[1:]))
    text = said.text.strip()
    return None if json_inside(text) is None else replace(said, text=text[: len(text) // 2])


def _text_named(value: Any, names: Sequence[str]) -> tuple[FieldPath, str] | None:
    for name in names:
        for path, leaf in leaves(value):
            if path and path[-1] == name and isinstance(leaf, str) and leaf:
                return path, leaf
    return None


def _empty(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    empty = None if reply is None else emptied(reply.value)
    return PASS if empty is None else Replace(empty[0])


def emptied(value: Any) -> tuple[Any] | None:
    """Remove the content of a reply: its text and its calls, or all of plain data; an object keeps everything but its text."""
    if shape_of(value) is not None:
        return changed_reply(value, lambda said: replace(said, text="", calls=()))
    if isinstance(value, dict):
        return ({},) if value else None
    if is_sequence(value, 0):
        return (like_sequence(value, []),) if value else None
    found = text_path(value)
    return None if found is None or not found[1] else (with_leaf(value, found[0], ""),)


# -- tools ---------------------------------------------------------------------------------------------------------------


def _called_tool(value: Any) -> str | None:
    found = called(json_inside(value) or value)
    return None if found is None else found[1]


def wrong_tool(value: Any, others: Sequence[str]) -> tuple[Any] | None:
    """Replace the called tool by the first of `others` that the reply does not call; None if there is none."""

    def change(inner: Any) -> tuple[Any] | None:
        found = called(inner)
        other = None if found is None else next((name for name in others if name != found[1]), None)
        return None if found is None or other is None else (with_leaf(inner, found[0], other),)

    return apply_inside(value, change)


def offered(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the tools that a model is offered: of definitions, or as adapters record them."""
    named = [item for name in ARGUMENTS if is_sequence(arguments.get(name), 1) for item in arguments[name]]
    return (*tool_names(arguments), *(item for item in named if isinstance(item, str)))


def _wrong_tool(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    if reply is None:
        return PASS
    used = [name for name in map(_called_tool, call.history) if name is not None]
    changed = wrong_tool(reply.value, (*offered(call.given), *used))
    return PASS if changed is None else Replace(changed[0])


def _other_tool_known(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    """Whether the reply calls a tool, and another tool was offered to the model or used by it before."""
    earlier = [item for item in before if item.action.kind == "model_call" and item.action.name == record.action.name]
    if is_hidden(arguments_of(record)) or any(
        is_hidden(raw_observation(item).value) or raw_observation(item).opaque for item in earlier
    ):
        return _calls_tool(record)
    used = [name for name in (_called_tool(raw_observation(item).value) for item in earlier) if name is not None]
    return wrong_tool(raw_observation(record).value, (*offered(arguments_of(record)), *used)) is not None


def _calls_tool(record: Record) -> bool:
    return is_hidden(raw_observation(record).value) or _called_tool(raw_observation(record).value) is not None


def _poisoned_arguments(arguments: Mapping[str, Any], how: str) -> FrozenDict | None:
    """The arguments of a model call that hold tools, with the first list of them poisoned."""
    for path in tool_lists(dict(arguments)):
        if any(name in ARGUMENTS for name in path):
            name = str(path[0])
            changed = poisoned({name: arguments[name]}, how)
            if changed is not None:
                return snapshot_arguments(changed[0], "poisoned tools")
    return None


def _poison_tools(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    changed = _poisoned_arguments(call.given, str(call.parameters["how"]))
    return PASS if changed is None else Rewrite(changed)


def _shows_tools(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    arguments = arguments_of(record)
    if _poisoned_arguments(arguments, str(parameters["how"])) is not None:
        return True
    return any(is_hidden(item) and not isinstance(item, str) for item in arguments.values())


# -- texts -----------------------------------------------------------------------------------------------------------------


def said_text(value: Any) -> tuple[FieldPath, str] | None:
    """The path and the text of a reply: the reply itself, or its first field with a usual name."""
    if isinstance(value, str):
        return ((), value) if value else None
    named = [
        (path, leaf) for path, leaf in leaves(value)
        if path and path[-1] in TEXT_KEYS and isinstance(leaf, str) and leaf and "usage" not in path
    ]  # fmt: skip
    return min(named, key=lambda item: len(item[0])) if named else None


def refused(value: Any) -> tuple[Any] | None:
    """Replace the text of a reply by a refusal, and remove its tool calls; None if it has neither.

    The text replaces the calls: {tool, arguments} becomes {content}.
    """
    if isinstance(value, str):
        return (REFUSAL,) if value and value != REFUSAL else None
    if shape_of(value) is not None:
        return changed_reply(value, _with_refusal)
    found = called(value)
    if isinstance(value, Mapping) and found is not None and len(found[0]) == 1:
        kept = {key: item for key, item in value.items() if key not in (*CALL_KEYS, "toolName", *ARGUMENT_KEYS)}
        return (_with_stop_reason({**kept, "content": REFUSAL}, 1),)
    text = said_text(value)
    return None if text is None else (_with_stop_reason(with_leaf(value, text[0], REFUSAL), 1),)


def _with_refusal(said: SaidReply) -> SaidReply | None:
    if not said.calls and said.text in ("", REFUSAL):
        return None
    return SaidReply(text=REFUSAL, calls=(), ended="refusal")


def _with_stop_reason(value: Any, which: int) -> Any:
    """The reply with its stop reason, if it has one, changed to that of a cut (`which` 0) or of a refusal (1)."""
    for path, leaf in leaves(value):
        if path and path[-1] in _STOP_KEYS and isinstance(leaf, str):
            return with_leaf(value, path, _STOP_KEYS[str(path[-1])][which])
    return value


def cut_short(value: Any, percent: int) -> tuple[Any] | None:
    """The reply with the first `percent` of its text, and a stop reason to match if it has one; None without a text.

    If the reply has only calls, the arguments of the last are cut: their text, or the last of them.
    """
    if shape_of(value) is not None:
        return changed_reply(value, lambda said: _with_cut(said, percent))
    found = said_text(value) or _text_named(value, ARGUMENT_KEYS)
    if found is None or len(found[1]) < 2:
        return None
    path, text = found
    left = text[: len(text) * percent // 100]
    return (_with_stop_reason(with_leaf(value, path, left), 0),)


def _with_cut(said: SaidReply, percent: int) -> SaidReply | None:
    if len(said.text) > 1:
        return replace(said, text=said.text[: len(said.text) * percent // 100], ended="length")
    if not said.calls or not said.calls[-1].arguments:
        return None
    *others, last = said.calls
    given = last.json or last.arguments
    left: Any = given[: len(given) * percent // 100] if isinstance(given, str) else _first_of(given, percent)
    return replace(said, calls=(*others, replace(last, arguments=left)), ended="length")


def _first_of(arguments: Mapping[str, Any], percent: int) -> dict[str, Any]:
    """The first `percent` of some arguments; at most MOST are lost."""
    count = max(len(arguments) * percent // 100, len(arguments) - MOST)
    return dict(list(arguments.items())[:count])


def overrun(value: Any, times: int) -> tuple[Any] | None:
    """The reply with its output tokens multiplied by `times` and a longer text; None if it has neither usage nor text.

    A JSON text stays as it is: the additional tokens count as hidden ones.
    """
    changed, any_change = value, False
    usage = _output_tokens(value)
    extra = max((count * (times - 1) for path, count in usage.items() if path[-1] not in _TOTALS), default=0)
    for path, count in usage.items():
        new = count + extra if path[-1] in _TOTALS and extra else count * times
        if new != count:
            changed, any_change = with_leaf(changed, path, new), True
    found = said_text(value)
    if found is not None and json_inside(found[1]) is None:
        repeats = min(times, _LONGEST // len(OVERRUN))
        changed, any_change = with_leaf(changed, found[0], found[1] + f" {OVERRUN}" * repeats), True
    return (changed,) if any_change else None


def _output_tokens(value: Any) -> dict[FieldPath, int]:
    """The counts of output tokens in a reply's first usage entry, and in one on top, by path, by the clients' names."""
    counts = {
        path: leaf for path, leaf in leaves(value)
        if len(path) > 1 and path[-1] in _OUTPUT_TOKENS and type(leaf) is int and str(path[-2]).lower().startswith("usage")
    }  # fmt: skip
    first = next(iter(counts), ())[:-1]
    return {path: count for path, count in counts.items() if path[:-1] in (first, ("usage",))}


def _text_operator(id: str, change: ReplyChange, grid: Sequence[Mapping[str, object]], most: int, plausible: str) -> Operator:
    """An operator that applies a pure function to the reply; it is relevant where the function returns a change."""

    def decide(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
        changed = None if reply is None else change(reply.value, call.parameters)
        return PASS if changed is None else Replace(changed[0])

    def relevant(value: Value, parameters: FrozenDict) -> bool:
        return change(value, parameters) is not None

    return operator(
        id, decide, phase="after", grid=grid, relevant=on_reply(relevant), default=False, plausible=plausible,
        bounds={"count": 1, "magnitude": most},
    )  # fmt: skip


def _is_call(value: Value, parameters: FrozenDict) -> bool:
    return damaged_call(value) is not None


def _can_be_empty(value: Value, parameters: FrozenDict) -> bool:
    return emptied(value) is not None


def operators() -> tuple[Operator, ...]:
    one = {"magnitude": 1}
    return (
        operator(
            "model.rate_limit", _rate_limit, plausible="a quota shared with others", raises=["rate_limit"], bounds={"count": 1}
        ),
        operator(
            "model.malformed_call", _malformed, phase="after", grid=[one], relevant=on_reply(_is_call),
            plausible="models write broken calls now and then", bounds={"count": 1, "magnitude": 2},
        ),
        operator(
            "model.empty", _empty, phase="after", grid=[one], relevant=on_reply(_can_be_empty), default=False,
            plausible="a filter removed the whole reply", bounds={"count": 1, "magnitude": 16},
        ),
        operator(
            "model.wrong_tool", _wrong_tool, phase="after", grid=[one], relevant=_other_tool_known, default=False,
            plausible="two tools with similar descriptions are mixed up", bounds={"count": 1, "magnitude": 1},
        ),
        _text_operator(
            "model.refusal", lambda value, parameters: refused(value), [one], 16,
            "a filter of the provider takes a harmless request for a harmful one",
        ),
        _text_operator(
            "model.truncated", lambda value, parameters: cut_short(value, int(parameters["percent"])),
            [{"percent": 50, **one}, {"percent": 10, **one}], 16, "the reply reaches its limit of tokens",
        ),
        _text_operator(
            "model.token_overrun", lambda value, parameters: overrun(value, int(parameters["times"])),
            [{"times": 10, "magnitude": 1}, {"times": 100, "magnitude": 2}], 8,
            "a model that repeats itself until it is stopped",
        ),
        operator(
            "model.tool_description", _poison_tools, relevant=_shows_tools, default=False, price=tool_price,
            grid=[{"how": how, "magnitude": 1 if how in ("enum", "instruction") else 2} for how in HOWS],
            plausible="the publisher of a tool writes its description and schema", bounds={"count": 1, "magnitude": 2},
        ),
        operator(
            "model.cut", cut_stream, relevant=cut_matters, default=False,
            grid=[
                {"chunks": chunks, "magnitude": 1, **kind} for kind in ({}, {"kind": "connection"}) for chunks in (0, 1, 2, 4)
            ],
            plausible="a stream ends early, quietly or with its connection", bounds={"count": 1},
        ),
        *model_replies.operators(),
    )  # fmt: skip
