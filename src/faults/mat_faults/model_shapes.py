"""Replies of models in the shapes of providers and frameworks: what was said, which tools are called, and why it ended.

`shape_of` finds the shape of a reply, its `read` gives what the reply says, its `write` a copy that says something else. A
shape is data: where its items, texts and calls stand. All else in a reply stays as it is, such as usage and reasoning.

| shape | recognised by |
|---|---|
| OpenAI chat completions, LiteLLM | `choices[].message`; the message alone, as of smolagents and Ollama |
| OpenAI responses, OpenAI Agents | `output[]` of typed items; a stream of them by its last event |
| Anthropic messages | `content[]` of typed blocks |
| Gemini, Google ADK | `candidates[].content.parts[]`; `content.parts[]` |
| LangChain | `content` and `tool_calls[]` |
| Pydantic AI | `parts[]` with `part_kind`; a stream of them by its last chunk, the whole response |

An HTTP reply, {status, headers, body}, has the shape of its body. `changed_reply` also takes a plain call, {tool, arguments},
and its JSON text.

>>> from mat_faults.model_shapes import shape_of
>>> reply = {"content": [{"type": "tool_use", "id": "t1", "name": "refund", "input": {"order": "A17"}}]}
>>> shape = shape_of(reply)
>>> shape.name, shape.read(reply).calls[0].tool
('Anthropic messages', 'refund')
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from mat.core.value import EMPTY
from mat_faults.mutators import FieldPath, apply_inside, is_sequence, json_inside, objects, parts, with_leaf

Ending: TypeAlias = Literal["", "length", "refusal"]
"""Why a model stopped: at its limit of tokens, by refusing; "" for whatever the reply says."""
MOST: Final = 8
"""The largest number of items of a reply that is changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalledTool:
    """A call of a tool in a reply. `arguments`: as data, or a text that is no JSON object. `json`: the JSON text that was read.

    `item`: the position of the item that it was read from. `again`: it is a further call like that one, with ids of its own.
    """

    tool: str
    arguments: Any
    item: int = 0
    json: str = ""
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidReply:
    """What a reply says: its text, "" without one, its calls of tools, and why it ended."""

    text: str
    calls: tuple[CalledTool, ...]
    ended: Ending = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """How the items of one kind look: those with `key`, of this `value` if it is named. The paths lead into an item."""

    key: str
    value: str = ""
    text: FieldPath = ()
    name: FieldPath = ()
    arguments: FieldPath = ()
    ids: tuple[FieldPath, ...] = ()

    def fits(self, item: Any) -> bool:
        found = found_at(item, (self.key,))
        return found is not None and self.value in ("", found) and not found_at(item, ("thought",))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A shape of replies.

    `items`: the path of the list that holds the calls, and the texts if `text_path` is empty. `text_path`: else the path of the
    text. `plain`: a text item without its text. `stop`: the paths of the reason for which the reply ended, each with its values
    for a cut and for a refusal. `named`: a stop is added where the reply has none.
    """

    name: str
    items: FieldPath
    calls: _Kind
    texts: _Kind | None = None
    text_path: FieldPath = ()
    plain: Mapping[str, Any] = EMPTY
    stop: tuple[tuple[FieldPath, Mapping[str, Any]], ...] = ()
    named: bool = True

    def under(self, path: FieldPath) -> ModelShape:
        """The same shape inside of a larger reply."""
        return replace(
            self, items=(*path, *self.items), text_path=(*path, *self.text_path) if self.text_path else (),
            stop=tuple(((*path, *where), words) for where, words in self.stop),
        )  # fmt: skip

    def read(self, value: Any) -> SaidReply:
        """What the reply says."""
        items = self._items_of(value)
        calls = [
            _called_tool(found_at(item, self.calls.name), found_at(item, self.calls.arguments), place)
            for place, item in enumerate(items)
            if self._is_call(item)
        ]  # fmt: skip
        if self.text_path:
            text = _text_of(found_at(value, self.text_path))
        else:
            text = "".join(_text_of(found_at(item, self._texts.text)) for item in items if self._is_text(item))
        return SaidReply(text=text, calls=tuple(calls))

    def write(self, value: Any, said: SaidReply) -> Any | None:
        """A copy of the reply that says this; None if its classes have no place for it, or too much would have to change."""
        before = self.read(value)
        items = self._items_of(value)
        if sum(self._is_call(item) or self._is_text(item) for item in items) > MOST:
            return None
        left: list[tuple[int, Any]] | None = list(enumerate(items))
        if said.text != before.text and self.text_path:
            if not _has_place(value, self.text_path):
                return None
            value = with_leaf(value, self.text_path, said.text)
        elif said.text != before.text:
            left = self._with_text(items, said.text)
        if left is None:
            return None
        new = self._with_calls(items, left, said.calls)
        if new != list(items):
            value = with_leaf(value, self.items, new)
            if self.text_path and _repeats_calls(found_at(value, self.text_path)):
                value = with_leaf(value, self.text_path, said.text)
        return self._ended(value, said.ended) if said.ended else value

    def renewed(self, value: Any, mark: str) -> Any:
        """The reply with other ids of its calls, as a model gives each call one of its own."""
        for place, item in enumerate(self._items_of(value)):
            if self._is_call(item):
                value = with_leaf(value, (*self.items, place), self._with_ids(item, mark))
        return value

    @property
    def _texts(self) -> _Kind:
        assert self.texts is not None, "a shape has its texts among its items, or at a path of their own"
        return self.texts

    def _items_of(self, value: Any) -> Sequence[Any]:
        found = found_at(value, self.items)
        return found if is_sequence(found, 0) else ()

    def _is_call(self, item: Any) -> bool:
        return self.calls.fits(item) and isinstance(found_at(item, self.calls.name), str)

    def _is_text(self, item: Any) -> bool:
        return self.texts is not None and self.texts.fits(item) and isinstance(found_at(item, self.texts.text), str)

    def _with_text(self, items: Sequence[Any], text: str) -> list[tuple[int, Any]] | None:
        """The items with their positions, with one text in the place of their texts; None if they have no place for it.

        Without a text among them it comes before the calls, as an item of its own, at position -1.
        """
        spots = [place for place, item in enumerate(items) if self._is_text(item)]
        left = [(place, item) for place, item in enumerate(items) if place not in spots]
        if not text:
            return left
        if spots:
            new = (spots[0], with_leaf(items[spots[0]], self._texts.text, text))
            return sorted([*left, new], key=lambda each: each[0])
        if any(not isinstance(item, Mapping) for item in items):
            return None
        first = next((place for place, item in left if self._is_call(item)), len(items))
        return [*left[:first], (-1, with_leaf(_thawed(self.plain), self._texts.text, text)), *left[first:]]

    def _with_calls(self, items: Sequence[Any], left: Sequence[tuple[int, Any]], calls: Sequence[CalledTool]) -> list[Any]:
        """The items in their order, with these calls in the place of the calls among them."""
        own: dict[int, list[Any]] = {}
        for call in calls:
            own.setdefault(call.item, []).append(self._item_of(items[call.item], call))
        found: list[Any] = []
        for place, item in left:
            found += own.get(place, []) if self._is_call(item) else [item]
        return found

    def _item_of(self, item: Any, call: CalledTool) -> Any:
        if found_at(item, self.calls.name) != call.tool:
            item = with_leaf(item, self.calls.name, call.tool)
        given = found_at(item, self.calls.arguments)
        if _arguments(given) != call.arguments and _has_place(item, self.calls.arguments):
            item = with_leaf(item, self.calls.arguments, _like(given, call.arguments))
        return self._with_ids(item, "-again") if call.again else item

    def _with_ids(self, item: Any, mark: str) -> Any:
        for path in self.calls.ids:
            known = found_at(item, path)
            item = with_leaf(item, path, known + mark) if isinstance(known, str) and known else item
        return item

    def _ended(self, value: Any, ended: Ending) -> Any:
        for path, words in self.stop:
            if ended in words and _has_place(value, path, add=self.named):
                value = with_leaf(value, path, _thawed(words[ended]))
        return value


def found_at(value: Any, path: FieldPath) -> Any:
    """The value at a path; None if the path leads nowhere."""
    for step in path:
        if is_sequence(value, 1) and isinstance(step, int):
            value = value[step] if -len(value) <= step < len(value) else None
        else:
            inside: Any = value if isinstance(value, Mapping) else dict(parts(value))
            value = inside.get(step)
    return value


def _has_place(value: Any, path: FieldPath, *, add: bool = True) -> bool:
    """Whether a value can be put at a path: over another one, or, with `add`, into a mapping."""
    holder = found_at(value, path[:-1])
    if isinstance(holder, Mapping):
        return add or path[-1] in holder
    return path[-1] in dict(parts(holder))


def _repeats_calls(blocks: Any) -> bool:
    """Whether the text next to calls is a list of blocks with the calls once more, as LangChain has them of Anthropic."""
    return is_sequence(blocks, 1) and any(found_at(block, ("type",)) == "tool_use" for block in blocks)


def _called_tool(tool: Any, arguments: Any, item: int) -> CalledTool:
    data = _arguments(arguments)
    text = arguments if isinstance(arguments, str) and isinstance(data, dict) else ""
    return CalledTool(tool=str(tool), arguments=data, item=item, json=text)


def _text_of(value: Any) -> str:
    """A text, or the texts of a list of blocks."""
    if is_sequence(value, 1):
        return "".join(_text_of(found_at(block, ("text",))) for block in value)
    return value if isinstance(value, str) else ""


def _arguments(value: Any) -> Any:
    """Arguments as data: JSON text is read; text that is none stays, and no arguments are no arguments."""
    if isinstance(value, Mapping):
        return dict(value)
    found = json_inside(value)
    return found if isinstance(found, dict) else value or {}


def _like(given: Any, arguments: Any) -> Any:
    """Arguments in the form in which they were given: JSON text, or data."""
    if isinstance(arguments, str) or not isinstance(given, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":") if '": ' not in given else None)


def _thawed(value: Any) -> Any:
    """A copy of plain data of this module."""
    if isinstance(value, Mapping):
        return {name: _thawed(item) for name, item in value.items()}
    return [_thawed(item) for item in value] if isinstance(value, list | tuple) else value


# -- the shapes -----------------------------------------------------------------------------------------------------------

_FUNCTION: Final = _Kind(key="function", name=("function", "name"), arguments=("function", "arguments"), ids=(("id",),))
_CHAT: Final = ModelShape(
    name="OpenAI chat completions", items=("choices", 0, "message", "tool_calls"), calls=_FUNCTION,
    text_path=("choices", 0, "message", "content"),
    stop=((("choices", 0, "finish_reason"), {"length": "length", "refusal": "stop"}),),
)  # fmt: skip
_MESSAGE: Final = ModelShape(name="OpenAI message", items=("tool_calls",), calls=_FUNCTION, text_path=("content",))
_NESTED: Final = replace(
    _MESSAGE.under(("message",)),
    named=False,
    stop=tuple(((name,), {"length": "length", "refusal": "stop"}) for name in ("finish_reason", "done_reason")),
)
_LANGCHAIN: Final = ModelShape(
    name="LangChain", items=("tool_calls",), calls=_Kind(key="name", name=("name",), arguments=("args",), ids=(("id",),)),
    text_path=("content",), stop=((("finish_reason",), {"length": "length", "refusal": "stop"}),),
)  # fmt: skip
_RESPONSES: Final = ModelShape(
    name="OpenAI responses", items=("output",),
    calls=_Kind(key="type", value="function_call", name=("name",), arguments=("arguments",), ids=(("call_id",), ("id",))),
    texts=_Kind(key="type", value="message", text=("content", 0, "text")),
    plain={
        "id": "msg", "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "", "annotations": []}],
    },
    stop=(
        (("status",), {"length": "incomplete"}), (("incomplete_details",), {"length": {"reason": "max_output_tokens"}}),
        (("output", -1, "status"), {"length": "incomplete"}),
    ),
    named=False,
)  # fmt: skip
_ANTHROPIC: Final = ModelShape(
    name="Anthropic messages", items=("content",),
    calls=_Kind(key="type", value="tool_use", name=("name",), arguments=("input",), ids=(("id",),)),
    texts=_Kind(key="type", value="text", text=("text",)), plain={"type": "text", "text": ""},
    stop=((("stop_reason",), {"length": "max_tokens", "refusal": "refusal"}),),
)  # fmt: skip
_STOPS: Final = {"length": "MAX_TOKENS", "refusal": "SAFETY"}
_GEMINI: Final = ModelShape(
    name="Gemini", items=("candidates", 0, "content", "parts"),
    calls=_Kind(
        key="functionCall", name=("functionCall", "name"), arguments=("functionCall", "args"), ids=(("functionCall", "id"),)
    ),
    texts=_Kind(key="text", text=("text",)), plain={"text": ""}, stop=((("candidates", 0, "finishReason"), _STOPS),),
)  # fmt: skip
_ADK: Final = ModelShape(
    name="Google ADK", items=("content", "parts"),
    calls=_Kind(
        key="function_call", name=("function_call", "name"), arguments=("function_call", "args"), ids=(("function_call", "id"),)
    ),
    texts=_Kind(key="text", text=("text",)), plain={"text": ""}, stop=((("finish_reason",), _STOPS),),
)  # fmt: skip
_PYDANTIC: Final = ModelShape(
    name="Pydantic AI", items=("parts",),
    calls=_Kind(key="part_kind", value="tool-call", name=("tool_name",), arguments=("args",), ids=(("tool_call_id",),)),
    texts=_Kind(key="part_kind", value="text", text=("content",)), plain={"part_kind": "text", "content": ""},
    stop=((("finish_reason",), {"length": "length", "refusal": "content_filter"}),),
)  # fmt: skip


def shape_of(value: Any) -> ModelShape | None:
    """The shape of a reply; None for a text, and for a reply that no provider makes."""
    if isinstance(value, Mapping) and isinstance(value.get("status"), int) and isinstance(value.get("headers"), Mapping):
        inside = shape_of(value.get("body")) if 200 <= value["status"] < 300 else None
        return None if inside is None else inside.under(("body",))
    if is_sequence(value, 1):
        last = len(value) - 1
        of_openai = found_at(value[last], ("type",)) in ("response.completed", "response.incomplete")
        if of_openai or found_at(value[last], ("event_kind",)) == "response":
            inside = shape_of(found_at(value[last], ("response",)))
            return None if inside is None else inside.under((last, "response"))
        return None
    if found_at(value, ("choices", 0, "message")) is not None:
        return _CHAT
    if _typed(found_at(value, ("output",)), "type"):
        return _RESPONSES
    for shape in (_GEMINI, _ADK):
        if is_sequence(found_at(value, shape.items), 1):
            return shape
    if _typed(found_at(value, ("parts",)), "part_kind"):
        return _PYDANTIC
    return _message_shape(value)


def _message_shape(value: Any) -> ModelShape | None:
    calls, content = found_at(value, ("tool_calls",)), found_at(value, ("content",))
    if is_sequence(calls, 0) and all(_FUNCTION.fits(call) for call in calls) and (calls or found_at(value, ("role",))):
        return _MESSAGE
    if is_sequence(calls, 0) and content is not None and all(_LANGCHAIN.calls.fits(call) for call in calls):
        return _LANGCHAIN
    message = found_at(value, ("message",))
    if is_sequence(found_at(message, ("tool_calls",)), 1) or (found_at(message, ("role",)) and "done" in value):
        return _NESTED
    return _ANTHROPIC if _typed(content, "type") else None


# -- any reply ------------------------------------------------------------------------------------------------------------

CALL_KEYS: Final = ("tool", "tool_name", "name", "function", "action", "intent", "command")
ARGUMENT_KEYS: Final = ("arguments", "args", "parameters", "input")
TEXT_KEYS: Final = ("content", "text", "message", "output", "output_text", "answer", "reply")


def called(value: Any) -> tuple[FieldPath, str] | None:
    """The path and the name of the first tool call in a reply; None if it calls no tool.

    A name is that of a call if its field is `tool` or `tool_name`, or if the same mapping has arguments.
    """
    for path, inside in objects(value):
        for key in ("tool", "tool_name", "toolName"):
            if isinstance(inside.get(key), str) and inside[key]:
                return (*path, key), inside[key]
        if any(key in inside for key in ARGUMENT_KEYS):
            for key in ("name", "function", "action", "command"):
                if isinstance(inside.get(key), str) and inside[key]:
                    return (*path, key), inside[key]
    return None


def changed_reply(value: Any, change: Callable[[SaidReply], SaidReply | None]) -> tuple[Any] | None:
    """A copy of a reply that says what `change` makes of it; None if that is None, or nothing that the reply can say."""

    def inside(inner: Any) -> tuple[Any] | None:
        shape = shape_of(inner)
        said = _plain_call(inner) if shape is None else shape.read(inner)
        new = None if said is None else change(said)
        if said is None or new is None or new == said:
            return None
        made = _with_plain_call(inner, said, new) if shape is None else shape.write(inner, new)
        return None if made is None else (made,)

    return apply_inside(value, inside)


def _plain_call(value: Any) -> SaidReply | None:
    """What a plain call of a tool says; the text is that next to it."""
    found = called(value)
    if found is None:
        return None
    holder = found_at(value, found[0][:-1])
    inside = holder if isinstance(holder, Mapping) else dict(parts(holder))
    key = _first(inside, ARGUMENT_KEYS)
    text = _text_of(inside.get(_first(inside, TEXT_KEYS)))
    return SaidReply(text=text, calls=(_called_tool(found[1], inside.get(key), 0),))


def _with_plain_call(value: Any, before: SaidReply, said: SaidReply) -> Any | None:
    found = called(value)
    if found is None or len(said.calls) != 1:
        return None
    path, (call,) = found[0][:-1], said.calls
    holder = found_at(value, path)
    inside = holder if isinstance(holder, Mapping) else dict(parts(holder))
    if said.text != before.text:
        if not isinstance(inside.get(_first(inside, TEXT_KEYS)), str):
            return None
        value = with_leaf(value, (*path, _first(inside, TEXT_KEYS)), said.text)
    if call.arguments != before.calls[0].arguments:
        key = _first(inside, ARGUMENT_KEYS)
        if key not in inside:
            return None
        value = with_leaf(value, (*path, key), _like(inside[key], call.arguments))
    return with_leaf(value, found[0], call.tool)


def _first(inside: Mapping[Any, Any], keys: Sequence[str]) -> str:
    """The first of some keys that a mapping has, "" if it has none."""
    return next((key for key in keys if key in inside), "")


def _typed(items: Any, key: str) -> bool:
    """Whether this is a list of items that all name their type."""
    return is_sequence(items, 1) and all(isinstance(found_at(item, (key,)), str) for item in items)
