"""What services, networks, caches and publishers of tools do to a call: what changes, how far, and where nothing fits."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import datetime
import json
import time
from decimal import Decimal
from typing import Any

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mat
import mat_faults
from mat.boundary.catalog import Catalog
from mat.boundary.effect import PASS, Call, Past, Reply
from mat.core.value import EMPTY, FrozenDict
from mat_faults.conformance import distance
from mat_faults.schema import CHANGING, KEEPING, METADATA, OVERLONG
from mat_faults.toolbox import HOWS, INSTRUCTION, PARAMETER, tool_names

CATALOG = Catalog(mat_faults.operators())


def decide(id: str, reply: Any, past: tuple[Any, ...] = (), **parameters: Any) -> Any:
    """What the operator makes of a reply; the reply itself where it decides to pass."""
    call = Call(
        port="p", kind="tool_call", agent="main", site="", arguments=EMPTY, at_ms=0, parameters=FrozenDict(parameters),
        past=tuple(Past(kind="tool_call", agent="main", arguments=EMPTY, value=value, at_ms=0) for value in past),
    )  # fmt: skip
    before = copy.deepcopy(reply)
    effect = CATALOG[id].decide(call, Reply(reply), None)  # type: ignore[arg-type]
    assert repr(reply) == repr(before), "the reply was altered in place"
    return reply if effect == PASS else effect.value


# -- fields, by JSON schema type ---------------------------------------------------------------------------------------------

ROW = {"count": 3, "due": "2026-03-01T10:00", "name": "Ann", "paid": True, "state": "open"}


@pytest.mark.parametrize(
    ("how", "field", "key", "value"),
    [
        ("null", 0, "count", None), ("null", 4, "state", None), ("type", 0, "count", "3"), ("type", 1, "due", 16),
        ("type", 3, "paid", "true"), ("array", 0, "count", [3]), ("negative", 0, "count", -4), ("huge", 0, "count", 2**63),
        ("enum", 0, "name", "Ann_unknown"), ("enum", 1, "state", "open_unknown"), ("date", 0, "due", "2026-13-45T10:00"),
        ("overlong", 1, "name", ("Ann" * OVERLONG)[:OVERLONG]), ("encoding", 1, "name", "\u00ef\u00bb\u00bfAnn"),
    ],
)  # fmt: skip
def test_one_field_breaks_its_schema(how, field, key, value):
    id = "service.invalid_field" if how in KEEPING else "service.schema_mismatch"
    assert decide(id, ROW, field=field, how=how) == {**ROW, key: value}
    assert decide(id, json.dumps(ROW), field=field, how=how) == json.dumps({**ROW, key: value}, ensure_ascii=False)


def test_keys_come_and_go():
    nested = {"a": {"b": 1, "c": 2}, "d": 3}
    gone = [decide("service.schema_mismatch", nested, field=index, how="missing") for index in range(5)]
    assert gone == [{"d": 3}, {"a": {"b": 1, "c": 2}}, {"a": {"c": 2}, "d": 3}, {"a": {"b": 1}, "d": 3}, nested]
    more = [decide("service.schema_mismatch", nested, field=index, how="extra") for index in range(3)]
    assert more == [{**nested, "unexpected": True}, {"a": {"b": 1, "c": 2, "unexpected": True}, "d": 3}, nested]


@pytest.mark.sweep(
    ("how", "leaf", "broken"),
    [
        ("negative", 0, -1), ("negative", 2.5, -3.5), ("negative", Decimal("1.5"), Decimal("-2.5")), ("negative", -1, -1),
        ("negative", True, True), ("huge", 2**63, 2**63), ("huge", 1.5, 1e308), ("huge", float("inf"), float("inf")),
        ("enum", "IN_PROGRESS", "IN_PROGRESS_UNKNOWN"), ("enum", "on its way", "on its way_unknown"), ("enum", "A17", "A17"),
        ("enum", "a sentence that is far too long to be a member of anything", ...), ("date", "2026-03-01", "2026-13-45"),
        ("date", "R-2026-03-01", ...), ("date", "noon", "noon"), ("date", datetime.date(2026, 3, 1), datetime.date(1, 1, 1)),
        ("date", datetime.date(1, 1, 1), datetime.date(9999, 1, 1)),
        ("overlong", "x" * OVERLONG, "xx" * OVERLONG), ("overlong", "", "x" * OVERLONG), ("overlong", 5, 5),
        ("encoding", "Käse", "K\u00c3\u00a4se"), ("encoding", b"ab", b"\xff\xfeab"), ("encoding", 5, 5),
        ("type", "17", 17), ("type", b"\x01", "01"), ("type", 1.5, "1.5"), ("type", datetime.date(2026, 3, 1), "2026-03-01"),
    ],
)  # fmt: skip
def test_a_field_is_broken_as_its_kind_allows_and_left_where_it_does_not(how, leaf, broken):
    id = "service.invalid_field" if how in KEEPING else "service.schema_mismatch"
    assert decide(id, {"x": leaf}, field=0, how=how) == {"x": leaf if broken is ... else broken}


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    count: Any
    due: Any


class Model(pydantic.BaseModel):
    count: Any
    due: Any
    hidden: Any = pydantic.Field(default=1, exclude=True)


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12), st.binary(max_size=4), st.dates(),
    st.datetimes(), st.decimals(allow_nan=False, places=2, min_value=-999, max_value=999),
    st.sampled_from(["open", "2026-03-01", "Käse", "in transit"]),
)  # fmt: skip
REPLIES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3),
        st.builds(Row, inner, inner), st.builds(Model, count=inner, due=inner),
    ),
    max_leaves=8,
)  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("how", [*KEEPING, *CHANGING])
@settings(deadline=None)
@given(reply=REPLIES, field=st.integers(0, 3))
def test_damage_touches_one_field_of_any_reply_and_is_foreseen_in_its_record(how, reply, field):
    keeps = how in KEEPING
    id = "service.invalid_field" if keeps else "service.schema_mismatch"
    changed = decide(id, reply, field=field, how=how)
    assert type(changed) is type(reply) or reply is changed or (not keeps and not isinstance(reply, dict | list))

    @mat.tool
    def ask() -> Any:
        return reply

    with mat.run() as run:
        ask()
    record, point = run.result.records[0], FrozenDict({"field": field, "how": how, "magnitude": 1})
    if changed is not reply:
        assert CATALOG[id].relevant(record, point, ()), "the search would lose this"
        assert distance(reply, changed) <= 1
        assert keeps or how in ("extra", "missing") or repr(changed) != repr(reply)


@settings(deadline=None)
@given(reply=REPLIES, how=st.sampled_from(METADATA))
def test_metadata_of_any_reply_changes_in_one_place(reply, how):
    page = {
        "body": reply,
        "headers": {"ETag": '"a1"', "X-Request-Id": "r-1", "Content-Type": "text/html", "Date": "2026-03-01"},
    }
    whole = {**page, "status": 201, "version": "1.2.3"}
    changed = decide("service.metadata", whole, how=how)
    assert distance(whole, changed) == 1


# -- metadata ----------------------------------------------------------------------------------------------------------------


@pytest.mark.sweep(
    ("how", "before", "after"),
    [
        ("version", {"api_version": "1.4.2"}, {"api_version": "2.4.2"}), ("version", {"rev": 7}, {"rev": 8}),
        ("version", {"version": "latest"}, None), ("etag", {"ETag": '"33a6"'}, {"ETag": '"33a0"'}),
        ("timestamp", {"updated_at": "2026-03-01T10:00:00Z"}, {"updated_at": "2026-02-28T10:00:00Z"}),
        ("timestamp", {"Date": "Sun, 01 Mar 2026 07:28:00 GMT"}, {"Date": "Sat, 28 Feb 2026 07:28:00 GMT"}),
        ("timestamp", {"timestamp": 1_770_000_000}, {"timestamp": 1_769_913_600}),
        ("timestamp", {"expires": 1_770_000_000_000}, {"expires": 1_769_913_600_000}),
        ("timestamp", {"created": datetime.date(2026, 3, 1)}, {"created": datetime.date(2026, 2, 28)}),
        ("timestamp", {"time": 12}, None), ("timestamp", {"date": "0001-01-01"}, None),
        ("timestamp", {"date": "tomorrow"}, None),
        ("id", {"request_id": "r-81f2"}, {"request_id": "r-81f0"}), ("id", {"id": 7}, {"id": 8}), ("id", {"id": True}, None),
        ("status", {"status": 200}, {"status": 202}), ("status", {"code": "202"}, {"code": "200"}),
        ("status", {"status_code": 404}, {"status_code": 200}), ("status", {"status": "shipped"}, None),
        ("status", {"code": 7}, None), ("content_type", {"mime-type": "a/b"}, {"mime-type": "text/html; charset=utf-8"}),
        ("content_type", {"Content-Type": "text/html"}, {"Content-Type": "application/octet-stream"}),
        ("content_type", {"content_type": "book"}, None), ("etag", {"name": "x", "value": "y"}, None),
        ("etag", {"headers": [["Age", "1"], ["ETag", "a"]]}, {"headers": [["Age", "1"], ["ETag", "0"]]}),
        ("etag", {"headers": [{"name": "ETag", "value": "a"}]}, {"headers": [{"name": "ETag", "value": "0"}]}),
        ("etag", '{"etag": "a"}', '{"etag": "0"}'), ("etag", "etag: a", None),
    ],
)  # fmt: skip
def test_metadata_is_changed_in_the_form_it_has(how, before, after):
    assert decide("service.metadata", before, how=how) == (before if after is None else after)


def test_a_stale_tag_is_one_that_the_port_gave_before():
    past = ({"h": {"ETag": "one"}}, '{"h": {"ETag": "two"}}', {"h": {"ETag": "now"}})
    assert decide("service.metadata", {"h": {"ETag": "now"}}, past, how="etag") == {"h": {"ETag": "two"}}
    assert decide("service.metadata", {"h": {"ETag": "now"}}, past[2:], how="etag") == {"h": {"ETag": "no0"}}


# -- tools -------------------------------------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"to": {"enum": ["a", "b"]}}, "required": ["to"]}
MCP = [
    {"name": "send", "description": "Sends.", "inputSchema": SCHEMA},
    {"name": "read", "description": "Reads.", "inputSchema": {"type": "object", "properties": {}}},
]
OPENAI = [
    {"type": "function", "function": {"name": t["name"], "description": t["description"], "parameters": t["inputSchema"]}}
    for t in MCP
]  # fmt: skip


class Tool(pydantic.BaseModel):
    name: str
    description: str
    inputSchema: dict[str, Any]  # noqa: N815


class Listing(pydantic.BaseModel):
    tools: list[Tool]
    nextCursor: str | None = None  # noqa: N815


def plain(value: Any) -> Any:
    return value.model_dump() if isinstance(value, pydantic.BaseModel) else value


def entries(listing: Any) -> list[dict[str, Any]]:
    found = listing["tools"] if isinstance(listing, dict) else listing
    return [item.get("function", item) for item in found]


LISTINGS = {
    "mcp": {"tools": MCP, "nextCursor": None},
    "objects": Listing(tools=[Tool(**item) for item in MCP]),
    "openai": OPENAI,
    "text": json.dumps({"tools": MCP}),
}


@pytest.mark.parametrize("form", LISTINGS)
def test_listed_tools_are_poisoned_in_their_own_form(form):
    listing = LISTINGS[form]

    def poisoned(how: str) -> list[dict[str, Any]]:
        changed = decide("service.tool_description", listing, how=how)
        assert type(changed) is type(listing)
        assert 1 <= distance(listing, changed) <= 2
        return entries(json.loads(changed) if form == "text" else plain(changed))

    schema = "parameters" if form == "openai" else "inputSchema"
    first, second = poisoned("instruction")
    assert (first["description"], second["description"]) == (f"Sends. {INSTRUCTION}", "Reads.")
    assert [item["description"] for item in poisoned("swap")] == ["Reads.", "Sends."]
    assert poisoned("enum")[0][schema]["properties"]["to"]["enum"] == ["a", "b_v2"]
    asked = poisoned("required")[0][schema]
    assert (asked["required"], PARAMETER in asked["properties"]) == (["to", PARAMETER], True)
    assert set(HOWS) == {"enum", "swap", "required", "instruction"}


@pytest.mark.parametrize(
    "reply",
    [
        [{"name": "Kettle", "description": "Boils.", "price": 5}], {"products": [{"name": "Lamp", "description": "Glows."}]},
        {"tools": []}, {"tools": ["send"]}, {"tools": [{"name": "send"}]}, "tools", None, 5,
    ],
)  # fmt: skip
def test_what_only_looks_like_tools_is_left_alone(reply):
    assert all(decide("service.tool_description", reply, how=how) == reply for how in HOWS)
    assert tool_names(reply) == ()


def test_tools_without_schema_or_with_one_description_take_what_fits():
    bare = {"tools": [{"name": "a", "description": "Same."}, {"name": "b", "description": "Same."}]}
    assert [how for how in HOWS if decide("service.tool_description", bare, how=how) != bare] == ["instruction"]


# -- failures and delays -------------------------------------------------------------------------------------------------------


def talk(calls: int, asynchronous: bool, *schedule: mat.spec.Perturbation) -> tuple[list[Any], Any, list[int]]:
    """What an agent meets in some calls of one port, the run, and how often the port had worked after each call."""
    done: list[int] = []

    def work(n: int) -> dict[str, int]:
        done.append(n)
        return {"n": n}

    async def later(n: int) -> dict[str, int]:
        return work(n)

    def meet(error: Exception) -> str:
        return f"{type(error).__name__} {getattr(error, 'retry_after_s', '')}".strip()

    async def all_of_them() -> list[Any]:
        port, met = mat.tool(name="work", effect="write")(later), []
        for n in range(calls):
            try:
                met.append(await port(n))
            except (OSError, LookupError, ValueError) as error:
                met.append(meet(error))
            met.append(round((time.monotonic() - begin) * 1000))
        return met

    with mat.run(schedule=schedule) as run:
        begin = time.monotonic()
        if asynchronous:
            met = asyncio.run(all_of_them())
        else:
            port, met = mat.tool(name="work", effect="write")(work), []
            for n in range(calls):
                try:
                    met.append(port(n))
                except (OSError, LookupError, ValueError) as error:
                    met.append(meet(error))
                met.append(round((time.monotonic() - begin) * 1000))
    return met, run.result, done


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("id", "site", "parameters", "met", "done"),
    [
        ("service.flapping", "#1..3", {"calls": 3}, ["ConnectionError", 0, 1, 0, "ConnectionError", 0, 3, 0], [1, 3]),
        ("service.slow", "#1..3", {"calls": 3, "ms": 1000}, [0, 1000, 1, 3000, 2, 6000, 3, 6000], [0, 1, 2, 3]),
        ("service.drop", "#2", {}, [0, 0, None, 0, 2, 0, 3, 0], [0, 2, 3]),
        ("service.drop_reply", "#2", {}, [0, 0, None, 0, 2, 0, 3, 0], [0, 1, 2, 3]),
        ("service.error", "#1", {"kind": "rate_limit"}, ["RateLimited 30.0", 0, 1, 0, 2, 0, 3, 0], [1, 2, 3]),
        ("service.error", "#1", {"kind": "server_error"}, ["ConnectionError", 0, 1, 0, 2, 0, 3, 0], [1, 2, 3]),
        ("service.error", "#1", {"kind": "auth"}, ["PermissionError", 0, 1, 0, 2, 0, 3, 0], [1, 2, 3]),
        ("service.error", "#1", {"kind": "not_found"}, ["LookupError", 0, 1, 0, 2, 0, 3, 0], [1, 2, 3]),
        ("service.error", "#1", {"kind": "invalid"}, ["ValueError", 0, 1, 0, 2, 0, 3, 0], [1, 2, 3]),
    ],
)  # fmt: skip
def test_calls_fail_wait_and_work_as_the_operator_says(id, site, parameters, met, done, asynchronous):
    schedule = mat.spec.perturbation(id, f"main/service:work{site}", parameters, 5)
    got, run, worked = talk(4, asynchronous, schedule)
    assert got == [{"n": item} if index % 2 == 0 and isinstance(item, int) else item for index, item in enumerate(met)]
    assert worked == done
    assert run.unreached == ()


def test_a_rate_limit_is_recorded_with_the_wait_it_names():
    _, run, _ = talk(1, False, mat.spec.perturbation("service.error", "main/service:work#1", {"kind": "rate_limit"}, 4))
    error = run.records[0].observation.error
    assert (error.kind, error.retry_after_ms) == ("rate_limit", 30_000)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_lost_reply_of_a_stream_is_an_empty_stream(asynchronous):
    @mat.tool
    def rows() -> Any:
        yield from (1, 2)

    @mat.tool(name="rows")
    async def later_rows() -> Any:
        yield 1
        yield 2

    async def collect() -> list[int]:
        return [row async for row in later_rows()]

    with mat.run(schedule=[mat.spec.perturbation("service.drop_reply", "main/service:rows#1", {}, 4)]) as run:
        got = asyncio.run(collect()) if asynchronous else list(rows())
    assert got == []
    assert run.result.records[0].raw.value == [1, 2]


def test_nothing_is_lost_of_a_reply_that_is_nothing():
    @mat.tool
    def ask(reply: Any) -> Any:
        return reply

    with mat.run() as run:
        for reply in (None, 0, [], {}):
            ask(reply)
    relevant = [CATALOG["service.drop_reply"].relevant(record, EMPTY, ()) for record in run.result.records[:4]]
    assert relevant == [False, True, True, True]


def test_a_partial_page_loses_half_and_never_more_than_its_bound():
    for size, left in ((1, 0), (2, 1), (5, 2), (32, 16), (100, 84)):
        assert decide("service.partial", list(range(size)), magnitude=1) == list(range(left))
