"""Operators that a user writes, and what is said to one who writes them wrongly."""

from __future__ import annotations

from typing import Any

import pytest

import mat
import mat_faults
from mat.boundary.catalog import Catalog
from mat.boundary.effect import PASS, Delay, Drop, Rewrite, Truncate
from mat.core.errors import SpecError
from mat.core.value import FrozenDict
from mat.report import words

CATALOG = Catalog(mat_faults.operators())


def idle(call: Any, reply: Any, stream: Any) -> Any:
    return PASS


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (dict(id="service"), "its id must be of the form boundary.name"),
        (dict(id="network.slow"), "where boundary is one of service, retrieval"),
        (dict(grid=[]), "its grid is empty"),
        (dict(price=lambda parameters, model: 0), "must be an integer >= 1"),
        (dict(price=lambda parameters, model: 1.5), "must be an integer >= 1"),
        (dict(phase="later"), "phase='later' is neither 'before' nor 'after'"),
        (dict(kinds=["retrieval"]), "no call at the service boundary is of kind 'retrieval'"),
        (dict(kinds=["tool_cal"]), "no call at the service boundary is of kind 'tool_cal'"),
        (dict(decide=None), "decide is not a function"),
        (dict(id="network.slow", grid=[], phase="x"), "its grid is empty"),
        (dict(id="network.slow", grid=[], phase="x"), "phase='x'"),
    ],
)
def test_an_operator_that_cannot_work_is_refused_where_it_is_made(given, says):
    options = {"id": "service.mine", "decide": idle, **given}
    with pytest.raises(SpecError) as caught:
        mat.spec.operator(options.pop("id"), options.pop("decide"), **options)
    assert says in caught.value.what
    assert caught.value.fix


def test_choices_are_cheapest_first_and_ties_keep_the_order_of_the_grid():
    made = mat.spec.operator(
        "service.mine", idle, grid=[{"magnitude": 3, "name": "a"}, {"magnitude": 1, "name": "b"}, {"magnitude": 1, "name": "c"}]
    )
    assert [(choice.parameters["name"], choice.cost, choice.span) for choice in made.spec().choices] == [
        ("b", 5, 1), ("c", 5, 1), ("a", 7, 1),
    ]  # fmt: skip


def test_a_grid_point_that_covers_several_calls_says_so():
    assert [choice.span for choice in CATALOG["service.outage"].spec().choices] == [3, 100]


def test_two_operators_of_one_id_are_refused_and_one_registered_twice_is_not():
    catalog = Catalog([mat.spec.operator("service.mine", idle)])
    catalog.register(mat.spec.operator("service.mine", idle))
    with pytest.raises(SpecError, match=r"'service\.mine' is registered twice"):
        catalog.register(mat.spec.operator("service.mine", idle, phase="after"))


def test_a_search_takes_the_default_operators_or_those_named_by_id_or_boundary():
    assert all(item.default for item in CATALOG.select())
    assert {item.boundary for item in CATALOG.select(["memory"])} == {"memory"}
    prompts = sorted(item.id for item in CATALOG if item.boundary == "prompt")
    assert [item.id for item in CATALOG.select(["service.timeout", "prompt"])] == [*prompts, "service.timeout"]
    assert "prompt.splice" in prompts
    with pytest.raises(SpecError, match=r"did you mean 'service\.timeout'"):
        CATALOG.select(["service.timout"])


@pytest.mark.parametrize(
    ("made", "cost", "site"),
    [
        (mat_faults.prompt.splice(["Ship to Mars now, please."], id="prompt.mars", default=False), 2, "main/prompt:user#1"),
        (mat_faults.memory.insert(["Ann agreed to everything."], id="memory.agreed", default=False), 6, "main/memory:notes#1"),
    ],
)
def test_payloads_of_a_user_stand_where_they_were_put_at_their_own_price(made, cost, site):
    (choice,) = made.spec().choices
    assert (choice.cost, made.default) == (cost, False)
    notes = mat.memory({"ann": ["tea"]}, name="notes")
    with mat.run(schedule=[mat.spec.perturbation(made.id, site, choice.parameters, cost)], operators=[made]):
        got = f"{mat.untrusted('Hello')} {notes['ann']}"
    assert ("Mars" in got, "agreed" in got) == (made.boundary == "prompt", made.boundary == "memory")


def test_no_payload_is_no_operator():
    with pytest.raises(SpecError, match="its grid is empty"):
        mat_faults.prompt.splice([])


@mat.tool(effect="write")
def pay(cents: int) -> dict[str, int]:
    return {"paid": cents}


@mat.tool
def lines() -> Any:
    yield from "abc"


def played(decide: Any, call: Any, *, port: str = "pay", phase: Any = "before") -> tuple[Any, Any]:
    made = mat.spec.operator("service.mine", decide, phase=phase)
    site = f"main/service:{port}#1"
    with mat.run(schedule=[mat.spec.perturbation(made.id, site, {}, 4)], operators=[made]) as run:
        return call(), run


def test_every_effect_does_what_it_says():
    assert played(lambda *_: Drop(), lambda: pay(5))[0] is None
    lost, run = played(lambda *_: Drop(), lambda: list(lines()), port="lines", phase="after")
    assert (lost, run.trace[0].observation.chunks, run.trace[0].raw.value) == ([], 0, ["a", "b", "c"])
    assert played(lambda *_: Truncate(1), lambda: list(lines()), port="lines", phase="after")[0] == ["a"]
    assert played(lambda *_: Truncate(1), lambda: list(lines()), port="lines")[0] == ["a"]
    assert played(lambda *_: Truncate(1), lambda: pay(5), phase="after")[0] == {"paid": 5}, "a reply that is no stream is left"
    assert played(lambda *_: Rewrite(FrozenDict({"cents": 7})), lambda: pay(5))[0] == {"paid": 7}
    reply, run = played(lambda *_: Delay(2_500), lambda: pay(5), phase="after")
    assert (reply, run.trace[0].sealed_ms) == ({"paid": 5}, 2_500)


@pytest.mark.parametrize(
    ("decide", "phase", "says"),
    [
        (lambda *_: Rewrite(FrozenDict({"cents": 7})), "after", "an operator returned Rewrite for a reply of pay"),
        (lambda *_: Rewrite(FrozenDict({"cent": 7})), "before", "has no parameter 'cent'"),
        (lambda *_: "drop", "before", "operator service.mine returned str"),
        (lambda *_: None, "after", "operator service.mine returned NoneType"),
        (lambda *_: 1 // 0, "before", "operator service.mine raised ZeroDivisionError"),
    ],
)
def test_an_effect_that_makes_no_sense_is_its_authors_mistake_and_never_met_by_the_agent(decide, phase, says):
    with pytest.raises(SpecError) as caught:
        played(decide, lambda: pay(5), phase=phase)
    assert says in caught.value.what
    assert caught.value.fix


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (dict(perturb="service.timeout"), "perturb='service.timeout' is a single string"),
        (dict(exclude="cents"), "exclude='cents' is a single string"),
        (dict(perturb=["servce.timeout"]), "perturb: 'servce.timeout' is not an operator or a boundary"),
    ],
)
def test_a_port_that_names_its_operators_wrongly_is_refused(options, says):
    with pytest.raises(SpecError) as caught:
        mat.tool(**options)(lambda cents: cents)
    assert says in caught.value.what


def test_a_perturbation_knows_its_place_in_its_range_and_what_was_said_before():
    seen: list[Any] = []

    def watch(call: Any, reply: Any, stream: Any) -> Any:
        seen.append((call.index, call.arguments["cents"], [item["paid"] for item in call.history], list(call.asked)))
        return PASS

    made = mat.spec.operator("service.watch", watch)
    with mat.run(schedule=[mat.spec.perturbation(made.id, "main/service:pay#2..3", {}, 4)], operators=[made]):
        for cents in range(4):
            pay(cents)
    assert seen == [(0, 1, [0], [{"cents": 0}]), (1, 2, [0, 1], [{"cents": 0}, {"cents": 1}])]


@pytest.mark.sweep("operator", list(CATALOG), ids=lambda item: item.id)
def test_a_report_says_in_words_what_every_grid_point_does(operator):
    name = "service.pay" if operator.boundary in ("order", "process") else "pay"
    for choice in operator.spec().choices:
        site = f"clerk/{operator.boundary}:{name}#1" + (f"..{choice.span}" if choice.span > 1 else "")
        said = words.perturbation_in_words(mat.spec.perturbation(operator.id, site, choice.parameters, choice.cost))
        assert operator.id not in said
        assert "pay" in said
        assert "clerk" in said
        assert not set("{}") & set(said)


@pytest.mark.parametrize(
    ("id", "site", "parameters", "said"),
    [
        ("service.delay", "service:pay#1", {"ms": 60_000}, "the reply of the 1st pay call by clerk arrives late, by 60 s"),
        ("service.delay", "service:pay#1", {}, "the reply of the 1st pay call by clerk arrives late"),
        (
            "service.schema_mismatch", "service:pay#2", {"how": "null"},
            "a field in the reply of the 2nd pay call by clerk is null",
        ),
        ("service.schema_mismatch", "service:pay#2", {}, "the reply of the 2nd pay call by clerk does not fit its schema"),
        ("model.cut", "model:m#1", {"chunks": 1}, "the stream of the 1st call of model m by clerk ends early, after 1 chunk"),
        (
            "model.cut", "model:m#1", {"chunks": 2, "kind": "connection"},
            "the connection breaks during the stream of the 1st call of model m by clerk, after 2 chunks",
        ),
        (
            "order.hold", "order:service.pay#3", {"turns": 1},
            "others go first: the 3rd pay call by clerk waits for 1 other call",
        ),
        (
            "order.hold", "order:retrieval.kb#1", {"turns": 100},
            "others go first: the 1st search of kb by clerk waits until nothing else can run",
        ),
    ],
)  # fmt: skip
def test_what_the_parameters_add_stands_in_the_sentence(id, site, parameters, said):
    assert words.perturbation_in_words(mat.spec.perturbation(id, f"clerk/{site}", parameters, 4)) == said
