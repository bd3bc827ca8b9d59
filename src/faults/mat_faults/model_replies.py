"""Fault operators on what a model replies: calls of tools that are wrong, calls next to other words, old replies.

They act on the replies of all providers and frameworks that `model_shapes` knows, and on plain calls, {tool, arguments}. Where
a reply calls no tool they have nothing to act on.

>>> from mat_faults import model_replies
>>> [operator.id for operator in model_replies.operators()][:2]
['model.unknown_tool', 'model.invalid_arguments']

Source: A3.4.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from mat.boundary.catalog import Operator, operator
from mat.boundary.effect import PASS, Call, Effect, Replace, Reply
from mat.core.record import Record
from mat.core.value import FrozenDict, Value
from mat_faults.model_shapes import MOST, SaidReply, changed_reply, shape_of
from mat_faults.mutators import duplicate
from mat_faults.site import on_reply, past_of

SaidChange: TypeAlias = Callable[[SaidReply, FrozenDict], SaidReply | None]
"""(what a reply says, parameters) -> what it says in its place; None if the change does not fit."""

CONTRADICTION: Final = "There is nothing to do here, so I do not call any tool."
"""The text next to a call that says the opposite."""
UNKNOWN: Final = "_v2"
"""What a model adds to the name of a tool that it remembers wrongly."""
BREAKS: Final = ("missing", "type", "null", "extra")
"""An argument left out, of another type, null, or one that the tool does not have."""
_EXTRA: Final = ("reason", "as the customer asked")


def _with_first(said: SaidReply, **changes: Any) -> SaidReply:
    first, *others = said.calls
    return replace(said, calls=(replace(first, **changes), *others))


def unknown_tool(said: SaidReply, parameters: FrozenDict) -> SaidReply | None:
    """The first call names a tool that does not exist."""
    return _with_first(said, tool=said.calls[0].tool + UNKNOWN) if said.calls else None


def invalid_arguments(said: SaidReply, parameters: FrozenDict) -> SaidReply | None:
    """The first call with arguments that its tool's schema does not allow; the change is to the first argument."""
    given, how = said.calls[0].arguments if said.calls else None, str(parameters["how"])
    if not isinstance(given, Mapping) or not (given or how == "extra"):
        return None
    if how == "extra":
        return None if _EXTRA[0] in given else _with_first(said, arguments={**given, _EXTRA[0]: _EXTRA[1]})
    name = next(iter(given))
    if how == "missing":
        return _with_first(said, arguments={key: item for key, item in given.items() if key != name})
    return _with_first(said, arguments={**given, name: None if how == "null" else _of_another_type(given[name])})


def _of_another_type(value: Any) -> Any:
    """A list for a text, a text for anything else; no text that a lenient schema reads as the value."""
    return [value] if isinstance(value, str) else "as agreed"


def repeated_call(said: SaidReply, parameters: FrozenDict) -> SaidReply | None:
    """The first call twice in one reply."""
    return replace(said, calls=(*said.calls, replace(said.calls[0], again=True))) if said.calls else None


def contradiction(said: SaidReply, parameters: FrozenDict) -> SaidReply | None:
    """The calls next to a text that denies them."""
    return replace(said, text=CONTRADICTION) if said.calls and said.text != CONTRADICTION else None


def _operator(
    id: str, change: SaidChange, plausible: str, *, grid: Sequence[Mapping[str, object]] = ({"magnitude": 1},), most: int = 2
) -> Operator:
    """An operator that changes what a reply says, in the reply's own shape; relevant where that changes it."""

    def changed(value: Any, parameters: FrozenDict) -> tuple[Any] | None:
        return changed_reply(value, lambda said: change(said, parameters))

    def decide(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
        found = None if reply is None else changed(reply.value, call.parameters)
        return PASS if found is None else Replace(found[0])

    def fits(value: Value, parameters: FrozenDict) -> bool:
        return changed(value, parameters) is not None

    return operator(
        id, decide, phase="after", grid=grid, relevant=on_reply(fits), default=False, plausible=plausible,
        bounds={"count": 1, "magnitude": most},
    )  # fmt: skip


# -- old replies ----------------------------------------------------------------------------------------------------------


def _old(value: Any) -> Any:
    """An earlier reply, as a cache gives it: the ids of its calls are new."""
    shape = shape_of(value)
    return duplicate(value) if shape is None else shape.renewed(value, "-again")


def _stale(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    """The model's previous reply, whatever it was asked; without one, nothing happens."""
    age = int(call.parameters["age"])
    return Replace(_old(call.history[-age])) if len(call.history) >= age else PASS


def _has_replied(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    """Whether the model replied before. An equal reply may matter, too: a scripted model that is not asked does not go on."""
    return len(past_of(record, before)) >= int(parameters["age"])


def operators() -> tuple[Operator, ...]:
    return (
        _operator("model.unknown_tool", unknown_tool, "models name tools that they remember or make up"),
        _operator(
            "model.invalid_arguments", invalid_arguments, "models leave out, mistype and add arguments",
            grid=[{"how": how, "magnitude": 1} for how in BREAKS],
        ),
        _operator("model.repeated_call", repeated_call, "models that call tools in parallel call one twice"),
        _operator("model.contradiction", contradiction, "a model's words and its calls are made apart", most=MOST),
        operator(
            "model.stale", _stale, grid=[{"age": 1, "magnitude": 1}], relevant=_has_replied, default=False,
            bounds={"count": 1, "staleness": 1, "magnitude": 1},
            plausible="a cache in front of the model mistakes another request for this one",
        ),
    )  # fmt: skip
