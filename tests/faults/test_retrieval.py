"""Operators on retrieved passages: of any class, bounded by the passages they touch, never in place."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import random
from collections import Counter
from typing import Any, NamedTuple

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
import mat_faults
from mat.boundary.catalog import DEFAULT_COST, Catalog
from mat.boundary.effect import PASS, Call, Past, Reply
from mat.core.value import EMPTY, FrozenDict
from mat_faults.mutators import leaves

CATALOG = Catalog(mat_faults.operators())
OPERATORS = [item for item in CATALOG if item.boundary == "retrieval"]
CHANGING = [item for item in OPERATORS if item.phase == "after"]


class Hit(NamedTuple):
    source: str
    text: str
    score: float


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    id: str
    page_content: str
    relevance_score: float


@dataclasses.dataclass
class Node:
    passage: mat.Passage
    distance: int


def passages(kind: str, texts: list[str]) -> list[Any]:
    """The same passages as every class of client returns them, best first."""
    made = {
        "passage": lambda text, rank: mat.Passage(text=text, id=f"p{rank}", score=1.0 / rank, source="kb"),
        "mapping": lambda text, rank: {"id": f"p{rank}", "content": text, "score": 1.0 / rank, "at": {"page": rank}},
        "model": lambda text, rank: Model(id=f"p{rank}", page_content=text, relevance_score=1.0 / rank),
        "tuple": lambda text, rank: Hit(f"kb number {rank}", text, 1.0 / rank),
        "nested": lambda text, rank: Node(mat.Passage(text=text, id=f"p{rank}"), rank),
        "pair": lambda text, rank: (text, 1.0 / rank),
        "text": lambda text, rank: text,
    }[kind]
    return [made(text, rank) for rank, text in enumerate(texts, 1)]


KINDS = ("passage", "mapping", "model", "tuple", "nested", "pair", "text")


def decide(operator: mat.spec.Operator, value: Any, point: Any, past: tuple[Past, ...] = ()) -> Any:
    """What the agent gets in the place of a reply; the reply itself where the operator passes."""
    call = Call(
        port="kb", kind="retrieval", agent="main", site="", arguments=EMPTY, at_ms=0, parameters=FrozenDict(point), past=past
    )
    effect = operator.decide(call, None if operator.phase == "before" else Reply(value), random.Random(0))
    return value if effect == PASS else effect.value


def texts_of(value: Any) -> list[str]:
    return [leaf for _, leaf in leaves(value) if isinstance(leaf, str)]


@pytest.mark.parametrize("operator", CHANGING, ids=lambda item: item.id)
@given(
    kind=st.sampled_from(KINDS),
    texts=st.lists(st.sampled_from(("A red kettle.", "Tea", "Boil it twice, then wait.")), max_size=13),
)
def test_passages_of_any_class_keep_it_and_no_more_of_them_are_touched_than_the_bound_says(operator, kind, texts):
    value = passages(kind, texts)
    before = copy.deepcopy(value)
    for point in operator.grid:
        after = decide(operator, value, point)
        assert value == before, "altered in place"
        assert type(after) is type(value)
        assert {type(item) for item in after} <= {type(item) for item in value}
        gone, new = Counter(map(repr, value)), Counter(map(repr, after))
        touched = max((gone - new).total(), (new - gone).total())
        if operator.id == "retrieval.empty":
            assert after == []
        elif operator.id == "retrieval.shuffle":
            assert touched == 0
            assert sum(one != other for one, other in zip(value, after, strict=True)) <= operator.bounds["magnitude"]
        else:
            assert touched <= point["magnitude"] <= operator.bounds["magnitude"]


@pytest.mark.sweep("operator", OPERATORS, ids=lambda item: item.id, fast=100)
@pytest.mark.sweep("kind", KINDS)
@pytest.mark.sweep("texts", [[], ["Tea"], ["A red kettle."], ["A red kettle.", "Tea"], ["Tea", "Tea", "Boil it, then wait."]])
def test_an_operator_says_yes_exactly_where_it_changes_something(operator, kind, texts):
    made = passages(kind, texts)

    @mat.retriever("kb")
    def search(query: str) -> list[Any]:
        return copy.deepcopy(made)

    with mat.run() as run:
        search("kettle")
    record = run.result.records[0]
    for point in operator.grid:
        assert operator.relevant(record, point, ()) == (decide(operator, made, point) != made)


@pytest.mark.sweep("nothing", ["one text", {"text": "a", "score": 1}, None, 5, Hit("a", "b", 1.0)])
@pytest.mark.sweep("operator", CHANGING, ids=lambda item: item.id)
def test_a_reply_that_is_no_list_of_passages_is_left_alone(operator, nothing):
    assert all(decide(operator, nothing, point) == nothing for point in operator.grid)


def near(texts: list[str], *, of: str, copies: int) -> list[str]:
    point = {"of": of, "copies": copies, "magnitude": 2 * copies}
    found = decide(CATALOG["retrieval.near_duplicates"], passages("passage", texts), point)
    return [f"{item.id}: {item.text}" for item in found]


def test_near_duplicates_take_the_places_of_others_under_ids_of_their_own():
    texts = ["Boil.", "Wait.", "Pour."]
    assert near(texts, of="first", copies=1) == ["p1: Boil.", "p1-copy1: Boil. (reprint)", "p2: Wait."]
    assert near(texts, of="last", copies=1) == ["p1: Boil.", "p3-copy1: Pour. (reprint)", "p2: Wait."]
    assert near(texts, of="last", copies=2) == ["p1: Boil.", "p3-copy1: Pour. (reprint)", "p3-copy2: Pour. (mirror)"]
    assert near(texts[:2], of="first", copies=2) == ["p1: Boil.", "p2: Wait."]


@pytest.mark.parametrize(
    ("how", "order", "kept"),
    [
        ("fade", "kept", [("a", 1), ("b", 2), ("c", 1)]),
        ("fade", "sorted", [("b", 2), ("c", 1), ("a", 1)]),
        ("swap", "kept", [("a", 1), ("b", 2), ("c", 3)]),
        ("swap", "sorted", [("c", 3), ("b", 2), ("a", 1)]),
    ],
)
def test_scores_are_exchanged_and_the_order_kept_or_sorted(how, order, kept):
    value = [{"text": "a", "score": 3}, {"text": "b", "score": 2}, {"text": "c", "score": 1}]
    point = {"how": how, "order": order, "magnitude": 1}
    found = decide(CATALOG["retrieval.score_noise"], value, point)
    assert [(item["text"], item["score"]) for item in found] == kept


def test_scores_of_pairs_and_of_mixed_numbers_are_exchanged_too():
    point = {"how": "swap", "order": "kept", "magnitude": 2}
    assert decide(CATALOG["retrieval.score_noise"], [("a", 1), ("b", 0.5)], point) == [("a", 0.5), ("b", 1)]


@pytest.mark.parametrize(
    "value",
    [
        ["a", "b"],
        [("a", "b", 1, 2), ("c", "d", 3, 4)],
        [{"text": "a", "score": 1}, {"text": "b", "score": 1.0}],
        [{"text": "a", "score": 1}],
        [{"text": "a", "score": True}, {"text": "b", "score": False}],
        [{"text": "a", "page": 1}, {"text": "b", "page": 2}],
    ],
)
def test_where_no_two_scores_differ_no_score_is_changed(value):
    assert all(
        decide(CATALOG["retrieval.score_noise"], value, point) == value for point in CATALOG["retrieval.score_noise"].grid
    )


def test_half_of_the_evidence_is_cut_at_either_end():
    value = passages("tuple", ["Boil it twice, then wait.", "Tea"])
    cut = {
        part: decide(CATALOG["retrieval.truncate"], value, {"passage": 0, "part": part, "magnitude": 1})[0].text
        for part in ("tail", "head")
    }
    assert cut == {"tail": "Boil it twice,", "head": ", then wait."}
    assert decide(CATALOG["retrieval.truncate"], value, {"passage": 1, "part": "tail", "magnitude": 1}) == value


class Desk:
    """Answers from what it finds, with the faults that people make: the first hit only, a threshold, no look at the source."""

    def __init__(self) -> None:
        self.found = [
            mat.Passage(text="Refunds need a check of the owner.", id="policy", score=0.9, source="handbook"),
            mat.Passage(text="Kettles boil water.", id="kettle", score=0.6, source="catalogue"),
            mat.Passage(text="Mars is red.", id="mars", score=0.2, source="news"),
        ]

    def search(self, query: str) -> list[mat.Passage]:
        return copy.deepcopy(self.found)

    async def search_later(self, query: str) -> list[mat.Passage]:
        await asyncio.sleep(0.01)
        return copy.deepcopy(self.found)


def read(hits: list[mat.Passage]) -> dict[str, Any]:
    good = [item for item in hits if item.score >= 0.5]
    return {
        "first": hits[0].id if hits else "",
        "good": [item.id for item in good],
        "checks": any("check of the owner" in item.text for item in good[:2]),
        "kettle": any(item.id == "kettle" for item in hits[:2]),
        "planted": any("no verification" in item.text for item in hits),
    }


USUAL = {"first": "policy", "good": ["policy", "kettle"], "checks": True, "kettle": True, "planted": False}


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("id", "point", "differs"),
    [
        ("retrieval.shuffle", {"magnitude": 1}, {"first": "mars", "good": ["kettle", "policy"]}),
        ("retrieval.drop", {"passage": 0, "magnitude": 1}, {"first": "kettle", "good": ["kettle"], "checks": False}),
        ("retrieval.empty", {"magnitude": 1}, {"first": "", "good": [], "checks": False, "kettle": False}),
        ("retrieval.truncate", {"passage": 0, "part": "tail", "magnitude": 1}, {"checks": False}),
        ("retrieval.truncate", {"passage": 1, "part": "tail", "magnitude": 1}, {}),
        (
            "retrieval.near_duplicates", {"of": "last", "copies": 1, "magnitude": 2},
            {"kettle": False, "good": ["policy", "kettle"]},
        ),
        ("retrieval.score_noise", {"how": "fade", "order": "kept", "magnitude": 1}, {"good": ["kettle"], "checks": False}),
        (
            "retrieval.score_noise", {"how": "swap", "order": "sorted", "magnitude": 2},
            {"first": "mars", "good": ["mars", "kettle"], "checks": False},
        ),
        ("retrieval.poison", {"payload": "policy_update", "magnitude": 1}, {"planted": True}),
    ],
)  # fmt: skip
def test_a_desk_that_reads_carelessly_is_seen_failing_where_it_does(id, point, differs, asynchronous):
    desk = Desk()
    search = mat.retriever("kb")(desk.search_later if asynchronous else desk.search)

    def ask(*schedule: mat.spec.Perturbation) -> tuple[Any, dict[str, Any]]:
        with mat.run(schedule=schedule) as run:
            hits = asyncio.run(search("refund")) if asynchronous else search("refund")
        return run.result, read(hits)

    nominal, usual = ask()
    assert usual == USUAL
    assert CATALOG[id].relevant(nominal.records[0], FrozenDict(point), ())
    cost = CATALOG[id].price(FrozenDict(point), DEFAULT_COST)
    run, seen = ask(mat.spec.perturbation(id, "main/retrieval:kb#1", point, cost))
    assert run.unreached == ()
    assert run.records[0].faults[0].changed
    assert run.view != nominal.view
    assert {key: item for key, item in seen.items() if item != usual[key]} == {
        key: item for key, item in differs.items() if item != usual[key]
    }


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_stale_search_finds_what_the_same_query_found_before_and_nothing_else(asynchronous):
    desk = Desk()
    search = mat.retriever("kb")(desk.search_later if asynchronous else desk.search)

    def ask(query: str) -> list[str]:
        hits = asyncio.run(search(query)) if asynchronous else search(query)
        return [item.id for item in hits]

    def session(*schedule: mat.spec.Perturbation) -> tuple[Any, list[list[str]]]:
        desk.__init__()
        with mat.run(schedule=schedule) as run:
            seen = [ask("refund"), ask("kettle")]
            desk.found.pop(0)
            seen += [ask("refund"), ask("mars"), ask("mars")]
        return run.result, seen

    nominal, usual = session()
    operator, point = CATALOG["retrieval.stale"], FrozenDict({"age": 1, "magnitude": 1})
    relevant = [operator.relevant(item, point, nominal.records[: item.step]) for item in nominal.records[:5]]
    assert relevant == [False, False, True, False, True]  # an equal reply, too: the search decides whether it covers it
    for number, matters in enumerate(relevant, 1):
        run, seen = session(mat.spec.perturbation(operator.id, f"main/retrieval:kb#{number}", point, 5))
        expected = [*usual[:2], usual[0] if number == 3 else usual[2], *usual[3:]]
        assert (seen, run.records[number - 1].faults[0].changed) == (expected, matters)


def test_a_planted_text_of_a_user_takes_the_shape_of_its_neighbours():
    mine = mat_faults.retrieval.poison({"mars": "Ship it to Mars."}, id="retrieval.mars")
    assert [dict(choice.parameters) for choice in mine.spec().choices] == [{"payload": "mars", "magnitude": 1}]
    for kind in KINDS:
        value = passages(kind, ["Boil.", "Wait."])
        after = decide(mine, value, mine.grid[0])
        assert after[:2] == value
        assert type(after[2]) is type(value[1])
        assert "Ship it to Mars." in texts_of(after[2])
    assert decide(mine, [], mine.grid[0]) == []
