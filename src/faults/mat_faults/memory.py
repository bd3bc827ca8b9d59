"""Fault operators of the memory boundary, bounded by the number and size of the changed entries.

>>> from mat_faults import memory
>>> [operator.id for operator in memory.operators()][:2]
['memory.insert', 'memory.reorder']

Source: A3.4.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from mat.boundary.catalog import Operator, operator
from mat.boundary.cost import CostModel
from mat.boundary.effect import PASS, Call, Drop, Effect, Past, Replace, Reply, Rewrite
from mat.core.errors import MatError
from mat.core.record import Record
from mat.core.value import FrozenDict, FrozenList, Value, snapshot
from mat_faults.merging import leaves_changed, unseen
from mat_faults.mutators import can_take_note, duplicate, is_sequence, like_sequence, with_note
from mat_faults.payloads import DEFAULT_NOTES, GOAL, PayloadSource, chosen, collected
from mat_faults.prompt import cheapest
from mat_faults.site import ANSWERED_BY_A_CACHE, arguments_of, earlier_replies, has_older, is_hidden, on_reply, past_of
from mat_faults.spans import entry_spans

TOP: Final = 10
"""The largest number of entries whose order changes, counted from the last."""
SIZE: Final = 16
"""The largest number of leaves and items of a written value that a collision changes."""


def insert(
    notes: PayloadSource | None = None,
    *,
    styles: Iterable[str] | None = None,
    goal: str = GOAL,
    id: str = "memory.insert",
    default: bool = True,
) -> Operator:
    """Insert a note that no agent wrote into what is read, in the form of the entry next to it.

    It costs one hook, and the tokens of the note.

    `notes`: your own texts, as a mapping or a list. `styles`: names of `payloads.STYLES`, each with the given `goal`. A
    payload of two parts is left as two notes.
    """
    found = collected(notes, styles, goal, DEFAULT_NOTES)

    def decide(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
        if reply is None or _reads_keys(call.arguments) or not can_take_note(reply.value):
            return PASS
        poisoned = reply.value
        for part in chosen(found, call.parameters, "note").parts:
            poisoned = with_note(poisoned, part)
        return Replace(poisoned)

    def price(parameters: FrozenDict, model: CostModel) -> int:
        return model.of(hooks=1, changed=chosen(found, parameters, "note").tokens)

    takes_note = on_reply(lambda value, parameters: can_take_note(value))

    def relevant(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
        return not _reads_keys(record.action.arguments) and takes_note(record, parameters, before)

    return operator(
        id, decide, phase="after", kinds=["memory_read"], grid=[{"note": name} for name in cheapest(found)], price=price,
        relevant=relevant, default=default, plausible="anyone who can write to the memory can leave a note",
        bounds={"magnitude": max((len(item.parts) for item in found.values()), default=0)},
    )  # fmt: skip


def _reads_keys(arguments: Mapping[str, Any]) -> bool:
    """Whether the call reads the keys of a memory; a note is not a key."""
    return "keys" in arguments and "key" not in arguments


def _reordered(value: Any) -> Any:
    """A list with its newest entries reversed; the value itself if it is not a list of several entries."""
    return like_sequence(value, [*value[:-TOP], *reversed(value[-TOP:])]) if is_sequence(value, 2) else value


def _reorder(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    after = None if reply is None else _reordered(reply.value)
    return PASS if reply is None or after is reply.value else Replace(after)


def _order_matters(value: Value, parameters: FrozenDict) -> bool:
    return bool(_reordered(value) != value)


def forgotten(value: Any, *, part: str, items: int) -> Any:
    """A list, mapping or text without `items` of its newest or oldest entries; itself if it has fewer.

    The entries of a mapping are in the order of insertion; those of a text are its lines, sentences or tokens.
    """
    if isinstance(value, str):
        found = entry_spans(value)
        if len(found) < items or not found:
            return value
        if part == "newest":
            return value[: found[-items].start].rstrip() if len(found) > items else ""
        return value[found[items].start :] if len(found) > items else ""
    if isinstance(value, Mapping):
        kept = list(value)[:-items] if part == "newest" else list(value)[items:]
        return {key: value[key] for key in kept} if len(value) >= items else value
    if not is_sequence(value, items):
        return value
    return like_sequence(value, list(value[:-items] if part == "newest" else value[items:]))


def _truncated(value: Any, parameters: Mapping[str, Any]) -> Any:
    return forgotten(value, part=str(parameters["part"]), items=int(parameters["items"]))


def _truncate(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    after = None if reply is None else _truncated(reply.value, call.parameters)
    return PASS if reply is None or after is reply.value else Replace(after)


def _is_truncated(value: Value, parameters: FrozenDict) -> bool:
    return _truncated(value, parameters) is not value


def _lose_write(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Drop()


def _stale(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    """The previous reply to the same read; writes and other keys do not count."""
    replies = earlier_replies(call)
    return Replace(duplicate(replies[-1])) if replies else PASS


# -- write collisions ------------------------------------------------------------------------------------------------------


def _collide(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    after = collided(call.given, call.past, agent=call.agent, winner=str(call.parameters["winner"]))
    return PASS if after is None else Rewrite(FrozenDict({"value": after[0]}))


def collided(given: FrozenDict, past: Sequence[Past], *, agent: str, winner: str) -> tuple[Value] | None:
    """The value after a write that collides with another agent's last write to the cell; None if there is no collision.

    `winner="other"`: the other agent's write lands last, so its value stays. `winner="self"`: this agent read the cell before
    the other one wrote it, so its value lacks the other agent's changes. The result is a one-tuple, because None is a value.
    """
    if "value" not in given or not all(_is_plain(item.value) for item in past if _cell_key(item.arguments) == _cell_key(given)):
        return None
    writes = [index for index, item in enumerate(past) if _is_write_to(item, given) and item.agent != agent]
    if not writes:
        return None
    theirs = past[writes[-1]].arguments["value"]
    base = _content(past[: writes[-1]], given)
    mine = given["value"]
    if is_hidden(theirs) or (winner == "self" and is_hidden(base)):
        return None
    after = theirs if winner == "other" else unseen(base, theirs, mine)
    return (after,) if 0 < leaves_changed(mine, after) <= SIZE else None


def _cell_key(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The key of the cell of a read, write or deletion."""
    return {name: item for name, item in arguments.items() if name not in ("value", "deleted")}


def _is_plain(value: Any) -> bool:
    """Whether a value equals its recorded form. Objects and sets do not: a rewrite would turn them into plain data."""
    if isinstance(value, dict):
        return type(value) in (dict, FrozenDict) and all(_is_plain(item) for item in value.values())
    if isinstance(value, list):
        return type(value) in (list, FrozenList) and all(_is_plain(item) for item in value)
    return value is None or type(value) in (bool, int, float, str, bytes)


def _is_write_to(item: Past, given: Mapping[str, Any]) -> bool:
    return item.kind == "memory_write" and "value" in item.arguments and _cell_key(item.arguments) == _cell_key(given)


def _content(past: Sequence[Past], given: Mapping[str, Any]) -> Value:
    """The content of the cell after these calls, by its last write, deletion or read; None if unknown."""
    for item in reversed(past):
        if _cell_key(item.arguments) != _cell_key(given):
            continue
        if item.kind == "memory_write":
            return item.arguments.get("value")
        try:
            return snapshot(item.value)
        except MatError:  # an object without recorded form cannot be compared
            return None
    return None


def _collides(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    past, given = past_of(record, before), arguments_of(record)
    others = [item for item in past if _is_write_to(item, given) and item.agent != record.agent]
    if not others or "value" not in given:
        return False
    if is_hidden(given) or any(is_hidden(item.arguments) or is_hidden(item.value) for item in past):
        return True
    return collided(given, past, agent=record.agent, winner=str(parameters["winner"])) is not None


def operators() -> tuple[Operator, ...]:
    return (
        insert(),
        operator(
            "memory.reorder", _reorder, phase="after", kinds=["memory_read"], grid=[{"magnitude": 1}],
            bounds={"magnitude": TOP}, relevant=on_reply(_order_matters), plausible="two writers append to one list",
        ),
        operator(
            "memory.truncate", _truncate, phase="after", kinds=["memory_read"], relevant=on_reply(_is_truncated), default=False,
            grid=[{"part": part, "items": items, "magnitude": items} for items in (1, 2) for part in ("oldest", "newest")],
            bounds={"magnitude": 2},
            plausible="a memory that is full forgets its oldest entries, and a page of it ends before the newest",
        ),
        operator(
            "memory.lost_write", _lose_write, kinds=["memory_write"], default=False, bounds={"count": 1},
            plausible="a write that nobody confirms is lost",
        ),
        operator(
            "memory.stale_read", _stale, kinds=["memory_read"], grid=[{"magnitude": 1}], relevant=has_older,
            covered=ANSWERED_BY_A_CACHE, default=False, bounds={"staleness": 1}, plausible="a replica lags behind",
        ),
        operator(
            "memory.collision", _collide, kinds=["memory_write"], grid=[{"winner": "other"}, {"winner": "self"}], default=False,
            relevant=_collides, bounds={"magnitude": SIZE, "count": 1},
            plausible="two agents write one cell at the same time, and nothing orders or merges their writes",
        ),
    )  # fmt: skip
