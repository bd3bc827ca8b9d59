"""Fault operators of the retrieval boundary, bounded by the number of changed passages.

A reply is a list or tuple of passages: `mat.Passage`, mappings, objects, named tuples, plain texts, or pairs of a document and
its score. Changed passages are copies in their own shape; any other reply is left alone.

>>> from mat_faults import retrieval
>>> [operator.id for operator in retrieval.operators()][:2]
['retrieval.shuffle', 'retrieval.drop']

Source: A3.4.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from mat.boundary.catalog import Decide, Operator, operator
from mat.boundary.effect import PASS, Call, Effect, Replace, Reply
from mat.core.operator import Relevant
from mat.core.record import Record
from mat.core.value import FrozenDict, Value
from mat_faults.mutators import FieldPath, can_take_note, duplicate, is_sequence, leaves, like_sequence, with_leaf, with_note
from mat_faults.payloads import DEFAULT_PASSAGES, GOAL, PayloadSource, chosen, collected, tool_goal
from mat_faults.prompt import cheapest
from mat_faults.site import ANSWERED_BY_A_CACHE, earlier_replies, has_older, on_reply
from mat_faults.spans import shortened, token_spans

PassagesChange: TypeAlias = Callable[[Any, FrozenDict], Any]
"""(passages, parameters) -> the passages delivered in their place; the same object if nothing fits."""

TOP: Final = 10
"""The largest number of passages whose order changes, counted from the first."""
_TEXTS: Final = ("text", "page_content", "content", "passage", "snippet", "body", "chunk", "document")
_SCORES: Final = ("score", "similarity", "relevance", "relevance_score", "rank_score", "distance", "_score")
_IDS: Final = ("id", "doc_id", "document_id", "chunk_id")
_COPIES: Final = (" (reprint)", " (mirror)", " (archived copy)", " (print version)")


def replacing(change: PassagesChange) -> Decide:
    """A decision that changes a list of passages; any other reply passes."""

    def decide(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
        if reply is None or not is_sequence(reply.value, 1):
            return PASS
        after = change(reply.value, call.parameters)
        return PASS if after is reply.value else Replace(after)

    return decide


def where_changed(change: PassagesChange) -> Relevant:
    """Relevant where the change alters the passages or their order."""

    def test(value: Value, parameters: FrozenDict) -> bool:
        if not is_sequence(value, 1):
            return False
        return bool(change(value, parameters) != value)

    return on_reply(test)


def _shuffled(value: Any, parameters: FrozenDict) -> Any:
    """Reverse the first passages: the strongest shuffle of them, and the same in every run."""
    return like_sequence(value, [*reversed(value[:TOP]), *value[TOP:]]) if len(value) > 1 else value


def _dropped(value: Any, parameters: FrozenDict) -> Any:
    index = int(parameters["passage"])
    return like_sequence(value, [*value[:index], *value[index + 1 :]]) if index < len(value) else value


def _emptied(value: Any, parameters: FrozenDict) -> Any:
    return like_sequence(value, [])


def _truncated(value: Any, parameters: FrozenDict) -> Any:
    """Remove half of the text of one passage: its tail or its head."""
    index = int(parameters["passage"])
    found = evidence_path(value[index]) if index < len(value) else None
    if found is None:
        return value
    path, text = found
    after = shortened(text, count=len(token_spans(text)) // 2, part=str(parameters["part"]))
    return value if after == text else with_leaf(value, (index, *path), after)


def _with_near_duplicates(value: Any, parameters: FrozenDict) -> Any:
    """Insert near duplicates of the first or the last passage after the first, and remove as many at the end."""
    copies = int(parameters["copies"])
    of = 0 if parameters["of"] == "first" else len(value) - 1
    if len(value) <= copies:
        return value
    added = [_near_duplicate(value[of], number) for number in range(copies)]
    if any(item is None for item in added):
        return value
    return like_sequence(value, [value[0], *added, *value[1 : len(value) - copies]])


def _near_duplicate(passage: Any, number: int) -> Any:
    """A copy of a passage with a few more words and its own id; None if it has no text."""
    found = evidence_path(passage)
    if found is None:
        return None
    changed = with_leaf(passage, found[0], found[1].rstrip() + _COPIES[number % len(_COPIES)])
    for path, leaf in leaves(passage):
        if path and path[-1] in _IDS and isinstance(leaf, str) and leaf:
            changed = with_leaf(changed, path, f"{leaf}-copy{number + 1}")
    return changed


def evidence_path(passage: Any) -> tuple[FieldPath, str] | None:
    """The leaf that holds a passage's text: one with a usual name, outermost first, else the longest text."""
    texts = [(path, leaf) for path, leaf in leaves(passage) if isinstance(leaf, str)]
    by_name = [item for item in texts if _leaf_name(passage, item[0]) in _TEXTS]
    if by_name:
        return min(by_name, key=lambda item: len(item[0]))
    return max(texts, key=lambda item: len(item[1]), default=None)


def score_path(passage: Any) -> tuple[FieldPath, Any] | None:
    """The leaf that holds a passage's score: one with a usual name, or the only number of a pair."""
    numbers = [(path, leaf) for path, leaf in leaves(passage) if isinstance(leaf, int | float) and not isinstance(leaf, bool)]
    by_name = [item for item in numbers if _leaf_name(passage, item[0]) in _SCORES]
    if by_name:
        return min(by_name, key=lambda item: len(item[0]))
    pair = isinstance(passage, list | tuple) and len(passage) == 2 and not hasattr(passage, "_fields")
    alone = [item for item in numbers if len(item[0]) == 1]
    return alone[0] if pair and len(alone) == 1 else None


def _leaf_name(passage: Any, path: FieldPath) -> str:
    """The name of a leaf; fields of a named tuple have their names, as in the record."""
    if not path:
        return ""
    fields = getattr(passage, "_fields", None)
    return str(fields[path[0]] if fields and len(path) == 1 else path[-1])


def _rescored(value: Any, parameters: FrozenDict) -> Any:
    """Give the first passage the score of the last ("fade"); "swap" also gives the last passage that of the first.

    "kept": the order stays, so only code that uses thresholds or ranks by score sees it. "sorted": the passages, which
    come in the order of their scores, follow the new scores; the faded passage comes after others of its score.
    """
    scores = [score_path(item) for item in value]
    first, last = scores[0], scores[-1]
    if first is None or last is None or first[1] == last[1]:
        return value
    faded = with_leaf(value[0], first[0], last[1])
    raised = with_leaf(value[-1], last[0], first[1]) if parameters["how"] == "swap" else value[-1]
    if parameters["order"] == "kept":
        return like_sequence(value, [faded, *value[1:-1], raised])
    if parameters["how"] == "swap":
        return like_sequence(value, [raised, *value[1:-1], faded])
    return like_sequence(value, [*value[1:], faded])


def poison(
    passages: PayloadSource | None = None,
    *,
    styles: Iterable[str] | None = None,
    goal: str = GOAL,
    id: str = "retrieval.poison",
    default: bool = False,
) -> Operator:
    """Plant a passage after the others, in their form; an empty reply stays empty, because it shows no form.

    `passages`: your own texts, as a mapping or a list. `styles`: names of `payloads.STYLES`, each with the given `goal`. A
    payload of two parts is planted as two passages. Without either, and where a framework is attached, a search also plants a
    passage that asks for a call of one of the run's own tools.
    """
    found = collected(passages, styles, goal, DEFAULT_PASSAGES)
    grid = [{"payload": name, "magnitude": len(found[name].parts)} for name in cheapest(found)]

    def change(value: Any, parameters: FrozenDict) -> Any:
        if not can_take_note(value):
            return value
        for part in chosen(found, parameters, "payload").parts:
            value = with_note(value, part)
        return value

    def aims(records: Sequence[Record]) -> list[dict[str, object]]:
        goal = tool_goal(records) if passages is None and styles is None else ""
        return [{"payload": "policy_update", "goal": goal, "magnitude": 1}] if goal else []

    return operator(
        id, replacing(change), phase="after", relevant=where_changed(change), default=default, aims=aims,
        grid=sorted(grid, key=lambda point: int(str(point["magnitude"]))),
        bounds={"magnitude": max((len(item.parts) for item in found.values()), default=0)},
        plausible="somebody can add documents to the index",
    )  # fmt: skip


def _poison_one_view() -> Operator:
    """Plant a passage in one view of a result that has two: the text, which guards read, or the data, which code reads."""
    payload = collected(None, None, GOAL, DEFAULT_PASSAGES)
    text = payload[cheapest(payload)[0]].parts[0]

    def change(value: Any, parameters: FrozenDict) -> Any:
        if not _has_two_views(value):
            return value
        planted = with_note(value, text)
        if planted is None:
            return value
        return like_sequence(value, [*planted[:-1], {**planted[-1], "only": str(parameters["view"])}])

    return operator(
        "retrieval.poison_view", replacing(change), phase="after", relevant=where_changed(change), default=False,
        grid=[{"view": view, "magnitude": 1} for view in ("structured", "text")], bounds={"magnitude": 1},
        plausible="a server puts something else into its structured content than into the text of its reply",
    )  # fmt: skip


def _has_two_views(value: Any) -> bool:
    """Whether these are passages of a result with text and structured content, as the adapter of MCP records them."""
    return isinstance(value, list) and bool(value) and isinstance(value[-1], Mapping) and "structured" in value[-1]


def _stale(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    """The previous reply to the same query; without one, nothing happens."""
    age, replies = int(call.parameters["age"]), earlier_replies(call)
    return Replace(duplicate(replies[-age])) if len(replies) >= age else PASS


def _passage_operator(
    id: str, change: PassagesChange, *, grid: list[dict[str, object]], magnitude: int, plausible: str, default: bool = False
) -> Operator:
    return operator(
        id, replacing(change), phase="after", grid=grid, relevant=where_changed(change), bounds={"magnitude": magnitude},
        default=default, plausible=plausible,
    )  # fmt: skip


def operators() -> tuple[Operator, ...]:
    return (
        _passage_operator(
            "retrieval.shuffle", _shuffled, grid=[{"magnitude": 1}], magnitude=TOP, default=True,
            plausible="scores are close and the index was rebuilt",
        ),
        _passage_operator(
            "retrieval.drop", _dropped, grid=[{"passage": index, "magnitude": 1} for index in range(2)], magnitude=1,
            default=True, plausible="a document was not indexed",
        ),
        _passage_operator(
            "retrieval.truncate", _truncated, magnitude=1, plausible="passages are cut where a chunk ends",
            grid=[{"passage": index, "part": part, "magnitude": 1} for index in range(2) for part in ("tail", "head")],
        ),
        _passage_operator(
            "retrieval.near_duplicates", _with_near_duplicates, magnitude=4,
            plausible="one document is indexed in many copies, which displace others",
            grid=[{"of": of, "copies": copies, "magnitude": 2 * copies} for copies in (1, 2) for of in ("first", "last")],
        ),
        _passage_operator(
            "retrieval.score_noise", _rescored, magnitude=2,
            plausible="the scores of another model or another build of the index differ",
            grid=[
                {"how": how, "order": order, "magnitude": magnitude}
                for how, magnitude in (("fade", 1), ("swap", 2)) for order in ("kept", "sorted")
            ],
        ),
        _passage_operator(
            "retrieval.empty", _emptied, grid=[{"magnitude": 1}], magnitude=1,
            plausible="the index is being rebuilt, or the filter is too strict",
        ),
        operator(
            "retrieval.stale", _stale, grid=[{"age": 1, "magnitude": 1}], relevant=has_older, covered=ANSWERED_BY_A_CACHE,
            bounds={"staleness": 1}, default=False, plausible="a search cache answers with earlier results",
        ),
        poison(),
        _poison_one_view(),
    )  # fmt: skip
