"""The five path mutations: one spot changes, every byte outside it stays; the service answers with the label they provoke."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections import Counter
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mat
import mat_faults
from mat.boundary.catalog import Catalog
from mat.boundary.effect import PASS, Call, Reply, Rewrite
from mat.core.value import EMPTY, FrozenDict, snapshot_arguments, thaw
from mat_faults import path
from mat_faults.mutators import leaves
from mat_faults.path import LABELS, REPORTED

CATALOG = Catalog(mat_faults.operators())
BEFORE = [id for id in LABELS if CATALOG[id].phase == "before"]
TOKEN = "dGhlIHF1aWNrIGJyb3duIGZveA" * 10
URL = f"https://s3.example.net/b%2Fkey.pdf?X-Sig={TOKEN}&X-Date=2026%2F03&X-Cred=a%2Fb#p%2F1"


def decide(id: str, given: dict[str, Any], **parameters: Any) -> Any:
    call = Call(
        port="p", kind="tool_call", agent="main", site="", arguments=EMPTY, at_ms=0, parameters=FrozenDict(parameters),
        given=snapshot_arguments(given, "test"),
    )  # fmt: skip
    effect = CATALOG[id].decide(call, None, None)  # type: ignore[arg-type]
    return dict(effect.arguments) if isinstance(effect, Rewrite) else None


def label(reply: Any, link: int = 0) -> Any:
    call = Call(
        port="p", kind="tool_call", agent="main", site="", arguments=EMPTY, at_ms=0, parameters=FrozenDict({"link": link})
    )
    effect = CATALOG["service.path_label"].decide(call, Reply(reply), None)  # type: ignore[arg-type]
    return None if effect == PASS else effect.value


def test_each_names_the_label_it_provokes_and_none_is_searched_by_default():
    assert list(LABELS.values()) == [
        "TOOL_INPUT_TOO_LONG", "MUTATED_TOKEN", "MUTATED_TOKEN", "SIGNATURE_MISMATCH", "WRONG_VALUE",
    ]  # fmt: skip
    assert REPORTED == {"TOOL_INPUT_TOO_LONG": "OTHER"}
    assert {item.id for item in path.operators()} == set(LABELS)
    assert not any(CATALOG[id].default for id in LABELS)


# -- what changes, and what does not ---------------------------------------------------------------------------------------


def test_an_artefact_is_clipped_where_the_limit_lies():
    assert decide("service.path_truncate", {"url": URL}, chars=200) == {"url": URL[:200]}
    assert decide("service.path_truncate", {"url": URL[:200]}, chars=200) is None
    assert decide("service.path_truncate", {"a": "x" * 80, "b": "y" * 80}, chars=64, artefact=1) == {"b": "y" * 64}
    assert decide("service.path_truncate", {"a": "x" * 80}, chars=64, artefact=1) is None


def test_a_line_break_goes_into_the_first_token_longer_than_a_line():
    text = f"please use {TOKEN} now"
    (wrapped,) = decide("service.path_wrap", {"text": text}, column=76).values()
    assert wrapped == f"please use {TOKEN[:76]}\n{TOKEN[76:]} now"
    assert decide("service.path_wrap", {"text": "many short words " * 20}, column=76) is None
    assert decide("service.path_wrap", {"text": "x" * 76}, column=76) is None


def test_escapes_of_one_url_are_decoded():
    (changed,) = decide("service.path_reencode", {"url": URL}, escape="%2F").values()
    assert changed == URL.replace("%2F", "/")
    assert decide("service.path_reencode", {"url": "a%2fb%2Fc d%2Fe"}, escape="%2F") == {"url": "a/b/c d%2Fe"}
    assert decide("service.path_reencode", {"url": "https://x/a%3Db%2F"}, escape="first") == {"url": "https://x/a=b%2F"}


@pytest.mark.parametrize("text", ["https://x/a/b", "100%", "a%20b", "a%25b", "a%00b", "a%ffb", "%2", ""])
def test_nothing_else_is_decoded(text):
    assert decide("service.path_reencode", {"url": text}, escape="first") is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("https://x/p?b=1&a=2", "https://x/p?a=2&b=1"),
        ("https://x/p?b=1&a=2&b=0&a=1#top?z=1&y=2", "https://x/p?a=2&a=1&b=1&b=0#top?z=1&y=2"),
        ("see https://x/p?b=1&a=(2), and go", "see https://x/p?a=(2)&b=1, and go"),
        ("[x](https://x/p?b=1&a=2)", "[x](https://x/p?a=2&b=1)"),
        ("curl 'https://x/p?b=%26&a=2'", "curl 'https://x/p?a=2&b=%26'"),
        ('{"u":"https://x/p?b=1&a=2"}', '{"u":"https://x/p?a=2&b=1"}'),
        ('<a href="https://x/?b=1&amp;a=2">', '<a href="https://x/?a=2&amp;b=1">'),
        ("b=1&a=2", "a=2&b=1"),
        ("?b=1&a", "?a&b=1"),
        ("https://x/p?a=1&b=2 https://x/q?d=1&c=2", "https://x/p?a=1&b=2 https://x/q?c=2&d=1"),
    ],
)
def test_query_parameters_are_sorted_by_name(before, after):
    assert decide("service.path_reorder", {"text": before}) == {"text": after}


@pytest.mark.parametrize("text", ["https://x/p?a=1&b=2", "https://x/p", "Tom & Jerry = friends & more", "R&D=fun", "x?b=1", ""])
def test_a_sorted_query_and_a_text_that_is_none_stay(text):
    assert decide("service.path_reorder", {"text": text}) is None


def test_pairs_of_a_query_are_sorted_where_they_stand_under_such_a_name_and_nowhere_else():
    assert decide("service.path_reorder", {"params": [["b", 1], ["a", 2]]}) == {"params": [["a", 2], ["b", 1]]}
    assert decide("service.path_reorder", {"request": {"query": [["b", 1], ["a", 2]]}}) == {
        "request": {"query": [["a", 2], ["b", 1]]}
    }
    assert decide("service.path_reorder", {"rows": [["b", 1], ["a", 2]]}) is None


@pytest.mark.parametrize("id", BEFORE)
def test_a_spot_is_found_however_deep_it_lies_and_what_stands_next_to_it_is_kept(id):
    parameters = dict(CATALOG[id].grid[0])
    given = {"method": "GET", "request": {"headers": {"Referer": "/", "X-Next": [1, None, URL]}, "flag": True}, "retries": 3}
    changed = decide(id, given, **parameters)
    assert list(changed) == ["request"]
    assert changed["request"]["headers"]["X-Next"][2] != URL
    again = thaw(changed["request"])
    again["headers"]["X-Next"][2] = URL
    assert again == given["request"]


NESTED = st.recursive(
    st.none()
    | st.integers()
    | st.text(max_size=30)
    | st.sampled_from([URL, TOKEN, "b=2&a=1", f"go to {URL}, now", "x%2Fy z%2Fw"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
UNDONE = {
    "service.path_truncate": lambda before, after: before.startswith(after),
    "service.path_wrap": lambda before, after: len(after) == len(before) + 1 and "\n" in after and without_break(before, after),
    "service.path_reencode": lambda before, after: unquote(before) == unquote(after) and "%2F" in before,
    "service.path_reorder": lambda before, after: Counter(split(before)) == Counter(split(after)),
}


def without_break(before: str, after: str) -> bool:
    return any(after[:at] + after[at + 1 :] == before for at, char in enumerate(after) if char == "\n")


def split(text: str) -> list[str]:
    """What stands between separators, and the separators: sorting a query moves whole parts."""
    return [
        part for piece in text.replace("#", "?").replace(" ", "?").replace(",", "?").split("?") for part in piece.split("&")
    ]


@pytest.mark.full
@pytest.mark.parametrize("id", BEFORE)
@settings(deadline=None)
@given(given_=st.dictionaries(st.text("abcdefgh", min_size=1, max_size=4), NESTED, max_size=3), data=st.data())
def test_one_string_changes_and_every_byte_outside_it_stays(id, given_, data):
    point = data.draw(st.sampled_from(CATALOG[id].grid))
    changed = decide(id, given_, **point)
    if changed is None:
        return
    frozen = snapshot_arguments(given_, "test")
    before, after = list(leaves(dict(frozen))), list(leaves({**frozen, **changed}))
    assert [spot for spot, _ in before] == [spot for spot, _ in after]
    ((old, new),) = [(one, other) for (_, one), (_, other) in zip(before, after, strict=True) if repr(one) != repr(other)]
    assert UNDONE[id](old, new)


@settings(deadline=None)
@given(reply=NESTED, link=st.integers(0, 1))
def test_a_label_takes_the_place_of_one_address_and_of_nothing_else(reply, link):
    page = {"page": reply, "links": [{"text": "Pay", "href": URL}], "html": f'<a href="{URL}">Get it</a> or [all]({URL})'}
    changed = label(page, link)
    before, after = list(leaves(page)), list(leaves(changed))
    assert [spot for spot, _ in before] == [spot for spot, _ in after]
    ((old, new),) = [(one, other) for (_, one), (_, other) in zip(before, after, strict=True) if repr(one) != repr(other)]
    assert URL in old
    assert new in ("Pay", f'<a href="Get it">Get it</a> or [all]({URL})', f'<a href="{URL}">Get it</a> or [all](all)')


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        ({"text": "Pay", "href": "/p"}, {"text": "Pay", "href": "Pay"}),
        ([{"label": "Pay", "url": "/p", "id": 1}], [{"label": "Pay", "url": "Pay", "id": 1}]),
        ("[Pay](/p) or [Help](/h)", "[Pay](Pay) or [Help](/h)"),
        ("<A class=x HREF='/p' id=1>Pay</a>", "<A class=x HREF='Pay' id=1>Pay</a>"),
        ('{"links": [{"title": "Pay", "link": "/p"}]}', '{"links": [{"title": "Pay", "link": "Pay"}]}'),
        ({"text": "/p", "href": "/p"}, None), ({"href": "/p"}, None), ({"text": "Pay"}, None), ("a [note] (see p. 3)", None),
        ("<a href='/p'></a>", None), (5, None), (None, None),
    ],
)  # fmt: skip
def test_a_person_sees_the_label_of_a_link(reply, shown):
    assert label(reply) == shown


# -- what a service that checks its bytes says --------------------------------------------------------------------------------


def signature(url: str) -> str:
    return hmac.new(b"key", url.encode(), hashlib.sha256).hexdigest()


class Store:
    """Issues a signed URL and takes it back only as it was issued."""

    def __init__(self) -> None:
        self.url, self.signature = URL, signature(URL)

    def check(self, url: str) -> str:
        if signature(url) == self.signature:
            return "SUCCESS"
        if len(url) < len(self.url) and self.url.startswith(url):
            return "TOOL_INPUT_TOO_LONG"
        if unquote("".join(url.split())) == unquote(self.url):
            return "MUTATED_TOKEN"
        ours, theirs = urlsplit(self.url), urlsplit(url)
        if ours[:3] == theirs[:3] and sorted(parse_qsl(ours.query)) == sorted(parse_qsl(theirs.query)):
            return "SIGNATURE_MISMATCH"
        return "WRONG_VALUE"


def visit(*schedule: mat.spec.Perturbation, asynchronous: bool) -> tuple[str, Any]:
    """An agent that reads a page and fetches what its link points to."""
    store = Store()

    def plain_page() -> dict[str, Any]:
        return {"links": [{"text": "Download", "href": store.url}]}

    def plain_fetch(request: dict[str, Any]) -> str:
        return store.check(request["url"])

    async def page() -> dict[str, Any]:
        return plain_page()

    async def fetch(request: dict[str, Any]) -> str:
        return plain_fetch(request)

    async def later() -> str:
        found = await mat.tool(name="page")(page)()
        return await mat.tool(name="fetch", effect="write")(fetch)({"method": "GET", "url": found["links"][0]["href"]})

    with mat.run(schedule=schedule) as run:
        if asynchronous:
            said = asyncio.run(later())
        else:
            found = mat.tool(name="page")(plain_page)()
            said = mat.tool(name="fetch", effect="write")(plain_fetch)({"method": "GET", "url": found["links"][0]["href"]})
    return said, run.result


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("id", LABELS)
def test_a_service_that_checks_its_bytes_answers_with_the_label(id, asynchronous):
    assert visit(asynchronous=asynchronous)[0] == "SUCCESS"
    operator = CATALOG[id]
    site = "main/service:fetch#1" if operator.phase == "before" else "main/service:page#1"
    for point in operator.grid:
        if point.get("artefact") or point.get("link"):
            continue  # there is one artefact, and one link
        said, run = visit(mat.spec.perturbation(id, site, point, 5), asynchronous=asynchronous)
        assert said == LABELS[id]
        assert run.unreached == ()
        fetched = next(item for item in run.records if item.action.name == "fetch")
        assert (fetched.executed is not None) == (operator.phase == "before")


def test_arguments_that_the_record_hides_are_never_ruled_out():
    @mat.tool(record={"url": "hash", "*": "keep"})
    def fetch(url: str) -> None:
        return None

    with mat.run() as run:
        fetch("/short")
    record = run.result.records[0]
    assert all(CATALOG[id].relevant(record, point, ()) for id in BEFORE for point in CATALOG[id].grid)
