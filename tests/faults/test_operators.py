"""Every operator is seen changing a run (L13), stays within its bounds, and says truly where it could not matter."""

from __future__ import annotations

import asyncio
import copy
import functools
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

import mat
import mat_faults
from mat.boundary.catalog import Catalog
from mat.boundary.instrument import instrument
from mat.core import limits
from mat.core.errors import MatError, SpecError
from mat.core.record import Record
from mat.core.site import name_about, parse_site
from mat_search.covering import Covering

OPERATORS = mat_faults.operators()
POINTS = [pytest.param(item, point, id=f"{item.id}-{dict(point)}") for item in OPERATORS for point in item.grid]
EMAIL = (
    "Where is my parcel P1? It should have been here last week, at least five days ago. "
    "Refund the order A1 within 3 days if it is lost."
)
TASK = "Write to Ann about order A1, not order A2, but only after you have checked her address."
TOOLS = [
    {
        "name": "pay", "description": "Pays an order back.",
        "inputSchema": {"type": "object", "properties": {"by": {"type": "string", "enum": ["card", "cash"]}}},
    },
    {"name": "track", "description": "Says where a parcel is.", "inputSchema": {"type": "object", "properties": {}}},
]  # fmt: skip
TOKEN = "QWxhZGRpbjpvcGVuIHNlc2FtZQ" * 8
URL = f"https://files.example.net/a%2Fb.pdf?sig={TOKEN}&at=1#top"
NEXT = f"https://files.example.net/c%2Fd.pdf?to=9&cursor={TOKEN}"


class World:
    """What the ports answer from. `said` keeps each reply with a copy made before anyone else had it."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, Any]] = []
        self.asked = 0
        self.notes = {"ann": ["short answers", "no offers"]}

    def say(self, reply: Any) -> Any:
        self.said.append((reply, copy.deepcopy(reply)))
        return reply

    def pay(self, order: str, cents: int) -> dict[str, Any]:
        self.asked += 1
        return self.say({"order": order, "cents": cents, "receipt": {"id": f"R{self.asked}", "final": True}})

    def track(self, parcel: str) -> dict[str, Any]:
        self.asked += 1
        return self.say(
            {
                "parcel": parcel, "status": "on its way", "asked": self.asked, "sent": "2026-01-05", "due": "2026-01-09",
                "meta": {"code": 200, "etag": f"e{self.asked}", "version": "2.1", "Content-Type": "text/plain", "id": 7,
                         "updated_at": "2026-01-07T10:00:00Z"},
            }
        )  # fmt: skip

    def ask(self, path: str) -> dict[str, Any]:
        self.asked += 1
        headers = {"content-type": "application/json", "etag": f'"e{self.asked}"'}
        return self.say({"status": 200, "headers": headers, "body": {"asked": self.asked}})

    def page(self) -> dict[str, Any]:
        return self.say({"links": [{"text": "Pay", "href": "https://pay.example.net/1"}, {"text": "Help", "href": "/help"}]})

    def list_tools(self) -> dict[str, Any]:
        return self.say({"tools": copy.deepcopy(TOOLS)})

    def fetch(self, url: str, headers: dict[str, str]) -> dict[str, Any]:
        return self.say({"url": url, "referer": headers["Referer"]})

    def search(self, query: str) -> list[mat.Passage]:
        self.asked += 1
        return self.say(
            [mat.Passage(text=f"{query} {rank}, {self.asked}. Ask us.", id=str(rank), score=1.0 / rank) for rank in (1, 2, 3)]
        )

    def plan(self, prompt: str, tools: list[Any]) -> dict[str, Any]:
        shown = repr(tools)  # what a model was shown shows in what it says
        call = {"tool": "pay", "arguments": {"order": "A1"}}
        return self.say({"content": f"I will pay it back with {shown}.", **call, "usage": {"output_tokens": 3}})

    def chat(self, prompt: str) -> dict[str, Any]:
        self.asked += 1
        function = {"name": "pay", "arguments": f'{{"order": "A{self.asked}"}}'}
        message = {"role": "assistant", "content": "I pay.", "tool_calls": [{"id": f"c{self.asked}", "function": function}]}
        return self.say({"choices": [{"message": message, "finish_reason": "tool_calls"}]})

    def talk(self, prompt: str) -> Any:
        for word in ("Dear", "Ann,", "your", "parcel", "is", "lost."):
            yield self.say(word)

    def watch(self, parcel: str) -> Any:
        for place in ("left Berlin", "in Hanover", "in Cologne", "at the door", "back in Cologne"):
            yield self.say({"parcel": parcel, "at": place})

    def look_up(self, query: str) -> list[dict[str, Any]]:
        of = {"key": "hits", "at": "snippet", "listed": True, "style": "json", "rest": {}, "spaced": False}
        return self.say([{"type": "text", "text": f"{query} {rank}.", "structured": {"id": rank}, "of": of} for rank in (1, 2)])

    def hand(self, task: str) -> str:
        self.asked += 1
        return self.say(f"{task} Done.")

    def read(self, key: str) -> list[str]:
        return self.say(list(self.notes[key]))

    def write(self, key: str, value: list[str]) -> None:
        self.notes[key] = list(value)


PORTS = {
    "pay": dict(kind="tool_call", boundary="service", options={"effect": "write"}),
    "track": dict(kind="tool_call", boundary="service", options={}),
    "ask": dict(kind="tool_call", boundary="service", options={}, name="GET shop.test/orders"),
    "page": dict(kind="tool_call", boundary="service", options={}),
    "list_tools": dict(kind="tool_call", boundary="service", options={}),
    "fetch": dict(kind="tool_call", boundary="service", options={}),
    "watch": dict(kind="tool_call", boundary="service", options={}),
    "look_up": dict(kind="retrieval", boundary="retrieval", options={}),
    "search": dict(kind="retrieval", boundary="retrieval", options={}),
    "plan": dict(kind="model_call", boundary="model", options={"tape": "inprocess"}),
    "chat": dict(kind="model_call", boundary="model", options={"tape": "inprocess"}),
    "talk": dict(kind="model_call", boundary="model", options={"tape": "inprocess"}),
    "hand": dict(kind="delegation", boundary="delegation", options={"effect": "write"}),
    "read": dict(kind="memory_read", boundary="memory", options={}),
    "write": dict(kind="memory_write", boundary="memory", options={"effect": "write"}),
}
STREAMS = ("talk", "watch")
OTHERS = ("write", ("ann", ["short answers", "no offers", "likes tea"]))
"""What another agent writes between two calls of the first."""
CALLS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("plan", ("what next", TOOLS)), ("read", ("ann",)), OTHERS, ("read", ("ann",)),
    ("write", ("ann", ["short answers", "agreed to offers", "likes tea"])), ("read", ("ann",)), ("track", ("P1",)),
    ("track", ("P1",)), ("track", ("P1",)), ("page", ()), ("ask", ("/orders",)), ("list_tools", ()),
    ("fetch", (URL, {"Referer": NEXT})),
    ("look_up", ("kettle",)), ("watch", ("P1",)),
    ("search", ("kettle",)), ("pay", ("A1", 4900)), ("pay", ("A2", 100)), ("pay", ("A3", 100)), ("search", ("kettle",)),
    ("hand", (TASK,)), ("talk", ("thank Ann",)), ("plan", ("and now", TOOLS)),
    ("chat", ("what now",)), ("chat", ("and then",)),
)  # fmt: skip


def port(world: World, name: str, asynchronous: bool) -> Callable[..., Any]:
    plain = getattr(world, name)

    @functools.wraps(plain)  # a call's arguments are named by the signature
    async def later(*args: Any) -> Any:
        await asyncio.sleep(0)
        return plain(*args)

    @functools.wraps(plain)
    async def chunks(*args: Any) -> Any:
        for chunk in plain(*args):
            await asyncio.sleep(0)
            yield chunk

    target = plain if not asynchronous else chunks if name in STREAMS else later
    return instrument(target, **{"name": "notes" if name in ("read", "write") else name, **PORTS[name]})


MET = (OSError, LookupError, ValueError, TypeError)
"""What a client raises for a fault; TypeError is what a reply that was not given gives."""


def agent(world: World) -> list[str]:
    """Talks to everything once or more and goes on whatever it meets; returns all it saw."""
    seen = greet()
    ports = {name: port(world, name, False) for name in PORTS}
    for call in CALLS:
        with mat.agent("other" if call is OTHERS else "main"):
            try:
                answer = ports[call[0]](*call[1])
                seen.append(repr(list(answer) if call[0] in STREAMS else answer))
            except MET as error:
                seen.append(repr(error))

    def both(name: str) -> None:
        with mat.agent(name):
            for parcel in ("P2", "P3"):
                with suppress(*MET):
                    seen.append(f"{name} {ports['track'](parcel)!r}")

    threads = [threading.Thread(target=both, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [*seen, str(world.asked), str(time.monotonic())]


async def async_agent(world: World) -> list[str]:
    """The same in async code."""
    seen = greet()
    ports = {name: port(world, name, True) for name in PORTS}
    for call in CALLS:
        with mat.agent("other" if call is OTHERS else "main"):
            try:
                answer = ports[call[0]](*call[1])
                seen.append(repr([chunk async for chunk in answer] if call[0] in STREAMS else await answer))
            except MET as error:
                seen.append(repr(error))

    async def both(name: str) -> None:
        with mat.agent(name):
            for parcel in ("P2", "P3"):
                with suppress(*MET):
                    seen.append(f"{name} {await ports['track'](parcel)!r}")

    await asyncio.gather(both("one"), both("two"))
    return [*seen, str(world.asked), str(time.monotonic())]


def greet() -> list[str]:
    return [
        mat.untrusted(EMAIL, channel="email"),
        str(mat.message("mailer", TASK)),
        str(mat.delegate("mailer", TASK).task),
        str(mat.approval("a refund")),
    ]


GREETED = 4


def play(
    *schedule: mat.spec.Perturbation, asynchronous: bool = False, operators: Any = OPERATORS
) -> tuple[Any, list[str], World]:
    world, seen = World(), []
    with mat.run(schedule=schedule, operators=operators) as run:
        try:
            seen = asyncio.run(async_agent(world)) if asynchronous else agent(world)
        except mat.errors.ProcessCrashed:
            seen = ["the process ended"]
    return run.result, seen, world


@functools.cache
def nominal(asynchronous: bool = False) -> tuple[Any, list[str]]:
    return play(asynchronous=asynchronous)[:2]


def candidates(operator: mat.spec.Operator, run: Any) -> list[Record]:
    spec = operator.spec()
    if spec.boundary == "order":  # who goes first matters where two want to go
        return [item for item in run.records if item.agent == "one"]
    return [
        item
        for item in run.records
        if item.agent == "main"
        and item.action.boundary
        and spec.boundary in (item.action.boundary, "process")
        and item.action.kind in spec.kinds
    ]


def bound(operator: mat.spec.Operator, point: Any, record: Record) -> mat.spec.Perturbation:
    choice = next(item for item in operator.spec().choices if item.parameters == point)
    site = parse_site(record.site)
    if operator.boundary in ("order", "process"):
        site = replace(site, boundary=operator.boundary, name=name_about(site.boundary, site.name))
    return mat.spec.perturbation(operator.id, replace(site, last=site.nth + choice.span - 1), point, choice.cost)


@pytest.mark.covers("operator", [item.id for item in OPERATORS])
@pytest.mark.covers("law", ["L13"])
@pytest.mark.sweep("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.sweep(("operator", "point"), POINTS)
def test_every_grid_point_changes_a_run_where_it_says_it_could(operator, point, asynchronous):
    calm, saw = nominal(asynchronous)
    spots = [item for item in candidates(operator, calm) if operator.relevant(item, point, calm.records[: item.step])]
    assert spots, "no site of the scenario is relevant"
    added = bound(operator, point, spots[0] if operator.boundary == "order" else spots[-1])
    run, seen, world = play(added, asynchronous=asynchronous)
    assert run.unreached == ()
    (noted,) = [note for item in run.records for note in item.faults if note.operator == operator.id and note.changed][:1]
    assert noted.parameters == point
    assert run.view != calm.view
    assert seen != saw
    assert all(reply == kept for reply, kept in world.said), "a reply was altered in place"
    assert play(added, asynchronous=asynchronous)[0].head == run.head


@pytest.mark.full
@pytest.mark.sweep(("operator", "point"), POINTS)
def test_where_an_operator_says_it_cannot_matter_it_does_not(operator, point):
    calm, saw = nominal()
    for record in candidates(operator, calm):
        if not operator.relevant(record, point, calm.records[: record.step]):
            run, seen, _ = play(bound(operator, point, record))
            assert (run.view, seen) == (calm.view, saw)


def test_delivering_a_task_twice_is_for_handoffs():
    operator, (calm, _) = Catalog(OPERATORS)["delegation.duplicate"], nominal()
    assert {item.action.name for item in candidates(operator, calm)} == {"hand", "mailer"}
    spec = operator.spec()
    covering = Covering([spec])
    searched = {
        item.action.name for item in candidates(operator, calm) if not covering.covers(spec, spec.choices[0], item, (), calm)
    }
    assert searched == {"hand"}


@pytest.mark.sweep("operator", OPERATORS, ids=lambda item: item.id)
def test_every_operator_has_an_ordered_affordable_grid_and_says_why_it_is_plausible(operator):
    costs = [choice.cost for choice in operator.spec().choices]
    assert all(type(cost) is int and 1 <= cost <= 8 <= limits.BUDGET for cost in costs)
    assert costs == sorted(costs)
    assert [operator.price(point, mat.boundary.catalog.DEFAULT_COST) for point in operator.grid] == costs, (
        "grid: simplest first"
    )
    assert 1 <= len(operator.grid) <= 12
    assert operator.plausible
    assert operator.id.startswith(f"{operator.boundary}.")


def test_the_default_grid_is_the_documented_one():
    assert {item.id for item in OPERATORS if item.default} == {
        "prompt.splice", "service.timeout", "service.lost_ack", "service.stale", "service.corrupt_field", "service.outage",
        "retrieval.shuffle", "retrieval.drop", "memory.insert", "memory.reorder", "model.rate_limit", "model.malformed_call",
        "order.hold",
    }  # fmt: skip


def test_a_lost_acknowledgement_looks_like_a_timeout_and_the_effect_has_happened():
    cost = dict(parameters={}, cost=4)
    lost, saw_lost, paid = play(mat.spec.perturbation("service.lost_ack", "main/service:pay#1", **cost))
    timed, saw_timed, unpaid = play(mat.spec.perturbation("service.timeout", "main/service:pay#1", **cost))
    one, other = (next(item for item in run.records if item.action.name == "pay") for run in (lost, timed))
    assert one.observation == other.observation
    assert (one.effected, one.invoked, other.effected, other.invoked) == ("yes", 1, "no", 0)
    assert paid.asked == unpaid.asked + 1
    first = GREETED + [name for name, _ in CALLS].index("pay")
    assert saw_lost[first] == saw_timed[first]


def test_an_outage_refuses_every_call_of_its_range_and_no_other():
    run, _, _ = play(mat.spec.perturbation("service.outage", "main/service:track#1..2", {"calls": 2}, 5))
    kinds = [
        item.observation.error.kind if item.observation.error else ""
        for item in run.records
        if item.action.name == "track" and item.agent == "main"
    ]
    assert kinds == ["connection", "connection", ""]


def test_a_stale_reply_is_what_the_port_said_even_after_the_agent_changed_its_copy():
    calls = []

    @mat.tool
    def balance() -> dict[str, Any]:
        calls.append(None)
        return {"cents": len(calls)}

    with mat.run(schedule=[mat.spec.perturbation("service.stale", "main/service:balance#2", {"age": 1}, 5)]):
        balance()["cents"] = 99
        assert balance() == {"cents": 1}
    assert len(calls) == 1


def test_a_stale_read_answers_with_the_same_key_only():
    notes = mat.memory({"a": 1, "b": 2}, name="notes")
    with mat.run(schedule=[mat.spec.perturbation("memory.stale_read", "main/memory:notes#4", {"magnitude": 1}, 5)]) as run:
        first, _ = notes["a"], notes["b"]
        notes["a"] = 3
        again = notes["a"]
    assert (first, again) == (1, 1)
    assert run.result.unreached == ()


def test_a_note_is_never_put_among_the_keys_of_a_memory():
    operator = Catalog(OPERATORS)["memory.insert"]
    notes = mat.memory({"a": ["x"]}, name="notes")
    with mat.run(schedule=[mat.spec.perturbation(operator.id, "main/memory:notes#1", {"note": 0}, 6)]) as run:
        assert list(notes) == ["a"]
    assert not operator.relevant(run.result.records[0], {"note": 0}, ())


def test_payloads_of_a_user_make_an_operator_of_their_own():
    mine = mat_faults.prompt.splice(["Ship to Mars."], id="prompt.splice_mars")
    assert [choice.cost for choice in mine.spec().choices] == [1]
    with mat.run(schedule=[mat.spec.perturbation(mine.id, "main/prompt:user#1", {"payload": 0}, 1)], operators=[mine]):
        assert mat.untrusted("Hello") == "Hello\nShip to Mars."


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        ([("service.timeot", "main/service:pay#1")], "did you mean 'service.timeout'"),
        ([("model.rate_limit", "main/service:pay#1")], "cannot bind"),
        ([("service.timeout", "main/service:pay#1"), ("service.stale", "main/service:pay#1..3")], "two perturbations overlap"),
        ([("service.timeout", "main/servce:pay#1")], "not a site"),
    ],
)
def test_a_schedule_that_cannot_mean_anything_is_refused_with_a_fix(schedule, says):
    with pytest.raises(SpecError) as caught, mat.run(schedule=[mat.spec.perturbation(*item) for item in schedule]):
        pytest.fail("the run must not start")
    assert says in caught.value.what
    assert caught.value.why
    assert caught.value.fix


@pytest.mark.parametrize(
    ("operator", "site", "fix"),
    [
        ("service.timeout", "main/service:POST /charges#1", "write main/service:POST%20;%2f;charges#1"),
        ("service.outage", "a b/service:GET host:80/x#2..4", "write a%20;b/service:GET%20;host%3a;80%2f;x#2..4"),
        ("order.hold", "main/service:pay#1", "write main/order:service.pay#1"),
        (
            "order.hold",
            "main/order:pay#1",
            "write main/order:service.pay#1, or the call's boundary in the place of service",
        ),
        ("process.crash", "main/memory:notes#2", "write main/process:memory.notes#2"),
        ("service.timeout", "main/model:planner#1", "write a site of the form agent/service:name#n"),
    ],
)
def test_the_fix_of_a_wrong_site_is_one_that_parses(operator: str, site: str, fix: str) -> None:
    with pytest.raises(SpecError) as caught, mat.run(schedule=[mat.spec.perturbation(operator, site)]):
        pytest.fail("the run must not start")
    assert caught.value.fix == fix
    if " or " not in fix and " form " not in fix:
        assert str(mat.spec.perturbation(operator, fix.removeprefix("write ")).site) == fix.removeprefix("write ")


def test_a_schedule_over_its_budget_is_refused_with_a_fix():
    with pytest.raises(MatError) as caught:
        mat.spec.schedule([mat.spec.perturbation("service.timeout", "main/service:pay#1", {}, 4)]).within(3)
    assert (caught.value.what, bool(caught.value.why), bool(caught.value.fix)) == (
        "the schedule costs 4; the budget is 3", True, True,
    )  # fmt: skip


def test_an_operator_that_raises_is_its_authors_mistake():
    def broken(call: Any, reply: Any, stream: Any) -> Any:
        raise KeyError("x")

    bad = mat.spec.operator("service.broken", broken)
    with pytest.raises(SpecError, match=r"service\.broken raised KeyError"):
        with mat.run(schedule=[mat.spec.perturbation("service.broken", "main/service:track#1", {}, 4)], operators=[bad]):
            port(World(), "track", False)("P1")
