"""Artefacts in runs: what is issued, used, lacking and reached, and what of it gets into a record."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from random import Random
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, unquote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mat
from mat.boundary.effect import Replace, Rewrite, Truncate
from mat.boundary.integrity import Integrity, sha256
from mat.boundary.port import Port
from mat.core import limits
from mat.core.artifact import issued, lacking, reached, used
from mat.core.value import snapshot_arguments
from mat.harness.artifact_index import ArtifactIndex

Told = Callable[[Any], list[tuple[Any, ...]]]
A = "https://h.test/a%2Fb?x=1&z=2&sig=4f3a9b2c1d8e7f60"
B = "https://h.test/c?x=1&z=2&sig=aa77bb66cc55dd44"
TOKEN = "tok_AbCdEfGh12345678"


def calls(run: Any, kind: str = "tool_call") -> list[Any]:
    return [record for record in run.result.records if record.action.kind == kind]


# -- issued -------------------------------------------------------------------------------------------------------------


def test_every_artefact_of_a_reply_is_issued_with_its_place_time_and_kind(shop: SimpleNamespace) -> None:
    shop.offers(A, B, ttl=10)
    with mat.run() as run:
        time.sleep(2)
        shop.listing()
    first, second = issued(calls(run)[0])
    assert (first.id, first.at, first.issued_ms, first.ttl_ms) == ("url#1", "files.0.url", 2000, 10_000)
    assert (second.id, second.at, second.integrity, second.delivered) == ("url#2", "files.1.url", "sha256", True)


def test_times_to_live_are_read_next_to_the_artefact_then_from_the_top_and_may_be_worked_out() -> None:
    reply = {"token": TOKEN, "expires_in": "1.5", "more": [{"token": TOKEN[::-1], "expires_in": 3}]}
    top = mat.artifact.issue("top", at="token", expires_in="expires_in")
    beside = mat.artifact.issue("beside", at="more.*.token", expires_in="expires_in")
    worked_out = mat.artifact.issue(
        "own", at="token", ttl_ms=lambda artefact, said: len(artefact) * said["more"][0]["expires_in"]
    )
    neither = mat.artifact.issue("none", at="token", expires_in="lifetime", ttl_ms=7)

    @mat.tool(issues=[top, beside, worked_out, neither])
    def login() -> dict[str, Any]:
        return reply

    with mat.run() as run:
        login()
    assert [(item.name, item.ttl_ms) for item in issued(calls(run)[0])] == [
        ("top", 1500), ("beside", 3000), ("own", 60), ("none", 7),
    ]  # fmt: skip


def test_a_pattern_cuts_artefacts_out_and_read_undoes_how_they_are_written() -> None:
    import html

    @mat.tool(issues=mat.artifact.issue("link", pattern='href="([^"]+)"', read=html.unescape))
    def page() -> str:
        return f'<a href="{html.escape(A)}">a</a> <a href="{html.escape(B)}">b</a>'

    @mat.tool
    def get(url: str) -> None: ...

    with mat.run() as run:
        page()
        get(A)
        get(html.escape(B))
    said, whole, escaped = calls(run)
    assert [(item.id, item.delivered) for item in issued(said)] == [("link#1", True), ("link#2", True)]
    assert [(item.id, item.damage) for item in used(whole)] == [("link#1", "")]
    assert [(item.id, item.damage) for item in used(escaped)] == [("link#2", "reencoded")]


def test_an_issue_with_a_condition_needs_a_call_that_meets_it(told: Told) -> None:
    @mat.tool(issues=mat.artifact.issue("token", at="t", when={"url": "/token$", "method": "^POST$"}))
    def send(method: str, url: str) -> dict[str, str]:
        return {"t": TOKEN}

    with mat.run() as run:
        send("GET", "https://h/token")
        send("POST", "https://h/tokens")
        send(method="POST", url="https://h/token")
    assert [told(record) for record in calls(run)] == [[], [], [("issued", "token#1", "t")]]


def test_what_is_no_text_and_what_is_not_there_issues_nothing(told: Told) -> None:
    replies = iter([{"t": None}, {"t": ""}, {"t": 5}, {}, [], None, {"t": {"t": TOKEN}}])

    @mat.tool(issues=mat.artifact.issue("token", at="t"))
    def send() -> Any:
        return next(replies)

    with mat.run() as run:
        for _ in range(7):
            send()
    assert [told(record) for record in calls(run)] == [[]] * 7
    assert run.result.findings == ()


def test_a_tool_that_raises_issues_nothing_and_its_arguments_still_tell(told: Told, shop: SimpleNamespace) -> None:
    @mat.tool(issues=mat.artifact.issue("token", at="t"))
    def broken(url: str) -> dict[str, str]:
        raise ConnectionError

    shop.offers(A)
    with mat.run() as run:
        shop.listing()
        with pytest.raises(ConnectionError):
            broken(A[:-8])
    assert told(calls(run)[1]) == [("used", "url#1", "truncated", False)]


def test_async_tools_and_streams_issue_what_they_say_as_a_whole(told: Told) -> None:
    @mat.tool(issues=mat.artifact.issue("token", at="t"))
    async def login() -> dict[str, str]:
        await asyncio.sleep(1)
        return {"t": TOKEN}

    @mat.tool(issues=mat.artifact.issue("code", pattern=r"code: (\S+)"))
    async def talk() -> AsyncIterator[str]:
        for part in ("your co", "de: AbCd", "EfGh5678 "):
            yield part

    @mat.tool(issues=mat.artifact.issue("word", pattern=r"word: (\S+)"))
    def chat() -> Iterator[str]:
        yield from ("word: ", "Zy98Xw76Vu54")

    @mat.tool
    async def send(text: str) -> None: ...

    async def body() -> None:
        await login()
        async for _ in talk():
            pass
        list(chat())
        await send(f"{TOKEN} and AbCdEfGh5678 and Zy98Xw76Vu54")

    with mat.run() as run:
        asyncio.run(body())
    assert [told(record) for record in calls(run)] == [
        [("issued", "token#1", "t")],
        [("issued", "code#1", "")],
        [("issued", "word#1", "")],
        [("used", "word#1", "", True), ("used", "code#1", "", True), ("used", "token#1", "", True)],
    ]
    assert issued(calls(run)[0])[0].issued_ms == 1000


@pytest.mark.parametrize("how", ["whole", "cut", "broken", "left", "failed"])
def test_a_stream_that_ends_early_has_issued_what_stood_in_its_chunks(told: Told, how: str) -> None:
    @mat.tool(issues=mat.artifact.issue("token", at="*.t"))
    def login() -> Iterator[dict[str, str]]:
        yield {"t": TOKEN}
        if how == "failed":
            raise ConnectionError
        yield {"t": TOKEN[::-1]}

    @mat.tool
    def send(text: str) -> None: ...

    kind = "connection" if how == "broken" else ""
    cut = mat.spec.operator("service.own", lambda call, reply, stream: Truncate(1, kind=kind))
    schedule = [mat.spec.perturbation("service.own", "main/service:login#1", {}, 4)] if how in ("cut", "broken") else []
    with mat.run(operators=[cut], schedule=schedule) as run:
        chunks: Any = login()
        assert next(chunks) == {"t": TOKEN}
        with suppress(ConnectionError):
            chunks.close() if how == "left" else list(chunks)
        send(TOKEN)
    assert told(calls(run)[0])[0] == ("issued", "token#1", "0.t")
    assert issued(calls(run)[0])[0].delivered
    assert told(calls(run)[1]) == [("used", "token#1", "", True)]


@pytest.mark.parametrize("left", [False, True])
def test_half_a_word_of_a_stream_of_text_is_issued_as_no_artifact(told: Told, left: bool) -> None:
    @mat.tool(issues=mat.artifact.issue("word", pattern=r"word: (\S+)"))
    def chat() -> Iterator[str]:
        yield from ("word: Zy98", "Xw76", "Vu54")

    with mat.run() as run:
        chunks: Any = chat()
        next(chunks)
        chunks.close() if left else list(chunks)
    assert told(calls(run)[0]) == ([] if left else [("issued", "word#1", "")])


def test_observed_declares_an_artefact_now_and_returns_it_unchanged(told: Told) -> None:
    @mat.tool
    def send(text: str) -> None: ...

    assert mat.artifact.observed(TOKEN, name="outside") is TOKEN
    with mat.run() as run:
        time.sleep(3)
        assert mat.artifact.observed(TOKEN, name="key", ttl_ms=500, supersedes=True) is TOKEN
        send(TOKEN)
    (declared,) = calls(run, "artefact")
    (fact,) = issued(declared)
    assert (fact.id, fact.at, fact.issued_ms, fact.ttl_ms, fact.supersedes) == ("key#1", "", 3000, 500, True)
    assert told(calls(run)[0]) == [("used", "key#1", "", True)]


@pytest.mark.parametrize("wrong", ["", 5, None, ["a"]])
def test_what_is_no_text_cannot_be_observed(wrong: Any) -> None:
    with pytest.raises(mat.MatError, match="non-empty string"):
        mat.artifact.observed(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: mat.artifact.issue("a b"),
        lambda: mat.artifact.issue("a", ttl_ms=-1),
        lambda: mat.artifact.issue("a", ttl_ms=1.5),  # type: ignore[arg-type]
        lambda: mat.artifact.issue("a", ttl_ms=True),
        lambda: mat.artifact.issue("a", pattern="("),
        lambda: mat.artifact.issue("a", when={"url": "("}),
        lambda: mat.artifact.issue("a", integrity="sha256"),  # type: ignore[arg-type]
        lambda: mat.artifact.consume("a", at=""),
        lambda: mat.artifact.consume("a b", at="x"),
    ],
)
def test_a_declaration_that_cannot_mean_anything_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(mat.MatError) as caught:
        wrong()
    assert caught.value.fix


# -- used ---------------------------------------------------------------------------------------------------------------


def test_an_artefact_is_found_in_nested_data_and_in_longer_texts_with_its_place(shop: SimpleNamespace) -> None:
    shop.offers(A, B)
    with mat.run() as run:
        shop.listing()
        shop.mail({"to": ["x", {"text": f"see {A}."}], "n": 5})
        shop.mail((b"bytes", f"https://x.test/?to={B.replace('%', '%25').replace('&', '%26')}"))
    nested, inside = calls(run)[1:]
    assert [(item.id, item.at, item.damage) for item in used(nested)] == [("url#1", "body.to.1.text", "")]
    assert [(item.id, item.at, item.damage) for item in used(inside)] == [("url#2", "body.1", "")]


def test_two_artefacts_in_one_text_are_both_told_whole_or_damaged(told: Told, shop: SimpleNamespace) -> None:
    shop.offers(A, B)
    with mat.run() as run:
        shop.listing()
        shop.mail(f"{A} {B}")
        shop.mail(f"{A} {B[:-6]}")
        shop.mail(f"{A[:-6]} {B}")
    assert [told(record) for record in calls(run)[1:]] == [
        [("used", "url#2", "", True), ("used", "url#1", "", True)],
        [("used", "url#1", "", True), ("used", "url#2", "truncated", False)],
        [("used", "url#2", "", True), ("used", "url#1", "truncated", False)],
    ]


def test_an_artefact_inside_another_is_reported_with_it_and_alone(told: Told) -> None:
    inner, outer = TOKEN, f"https://h.test/f?token={TOKEN}&file=report-9f8a7b6c5d4e3f21&sig=00ff11ee22dd33cc"

    @mat.tool
    def get(url: str) -> None: ...

    with mat.run() as run:
        mat.artifact.observed(inner, name="token")
        mat.artifact.observed(outer, name="url")
        get(outer)
        get(f"https://h.test/f?token={TOKEN}&file=other")
        get(outer[:-5])
        get(outer.replace(TOKEN, TOKEN[:-3]))
    whole, other, cut, both = calls(run)
    assert told(whole) == [("used", "url#1", "", True), ("used", "token#1", "", True)]
    assert told(other) == [("used", "token#1", "", True)]
    assert told(cut) == [("used", "token#1", "", True), ("used", "url#1", "truncated", False)]
    assert told(both) == [("used", "token#1", "truncated", False)]


def test_of_equal_texts_the_latest_counts_and_under_several_names_each_once() -> None:
    @mat.tool
    def send(text: str) -> None: ...

    with mat.run() as run:
        mat.artifact.observed(TOKEN, name="key", ttl_ms=1000)
        mat.artifact.observed(TOKEN, name="alias")
        time.sleep(2)
        mat.artifact.observed(TOKEN, name="key", ttl_ms=1000)
        send(TOKEN)
    assert [(item.id, item.issued_ms, item.late_ms(2000)) for item in used(calls(run)[0])] == [
        ("key#2", 2000, None), ("alias#1", 0, None),
    ]  # fmt: skip


def test_a_newer_artefact_ends_those_before_it_only_where_it_supersedes() -> None:
    old, new, last = "AbCdEfGh1234", "ZyXwVuTs9876", "QqWwEeRr5544"

    @mat.tool
    def send(text: str) -> None: ...

    with mat.run() as run:
        mat.artifact.observed(old, name="key")
        mat.artifact.observed(new, name="key")
        send(f"{old} {new}")
        mat.artifact.observed(last, name="key", supersedes=True)
        send(f"{old} {new} {last}")
    before, after = calls(run)
    assert [(item.id, item.superseded) for item in used(before)] == [("key#2", False), ("key#1", False)]
    assert [(item.id, item.superseded) for item in used(after)] == [("key#3", False), ("key#2", True), ("key#1", True)]


def test_a_use_is_linked_to_the_step_that_issued_the_artefact(shop: SimpleNamespace) -> None:
    shop.offers(A)
    with mat.run() as run:
        shop.mail("hello")
        shop.listing()
        shop.fetch(A[:-6])
    assert [(link.src, link.rel, link.dst) for link in calls(run)[2].links] == [("step#1", "derived_from", "step#2")]


def test_a_handle_is_resolved_for_the_port_and_told_as_a_handle(told: Told) -> None:
    store, got = mat.artifact.handles(), list[Any]()

    @mat.tool(handles=store)
    def fetch(url: Any, deep: Any = None) -> None:
        got.append((url, deep))

    @mat.tool
    def blind(url: str) -> None:
        got.append((url, None))

    with mat.run() as run:
        mat.artifact.observed(A, name="url")
        handle = store.put("url_1", A)
        fetch(handle)
        fetch(f"{handle}&more=1", deep={"a": [handle, (handle,)]})
        blind(handle)
        with pytest.raises(mat.artifact.UnknownHandle, match="did you mean"):
            fetch("@HANDLE:url_2")
    assert handle == "@HANDLE:url_1"
    assert got == [(A, None), (f"{A}&more=1", {"a": [A, (A,)]}), ("@HANDLE:url_1", None)]
    first, second, unseen, unknown = calls(run)
    assert [(item.id, item.handle, item.damage, item.place) for item in used(first)] == [
        ("url#1", True, "", "https://h.test/a%2Fb"),
    ]  # fmt: skip
    assert [item.at for item in used(second)] == ["url", "deep.a.0", "deep.a.1.0"]
    assert told(unseen) == []
    assert told(unknown) == []
    assert first.action.arguments["url"] == "@HANDLE:url_1"


@pytest.mark.full
def test_each_run_and_the_time_outside_has_handles_of_its_own() -> None:
    store = mat.artifact.handles()
    store.put("a", "outside")

    @mat.tool(handles=store)
    async def fetch(url: str) -> str:
        await asyncio.sleep(1)
        return url

    with mat.run():
        assert "a" not in store
        assert len(store) == 0
        store.put("a", "inside")
        assert asyncio.run(fetch("@HANDLE:a")) == "inside"
    with mat.run():
        assert list(store) == []
    assert store["@HANDLE:a"] == store["a"] == "outside"
    assert asyncio.run(fetch("@HANDLE:a")) == "outside"


# -- consumed -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ('"v3"', ("used", "tag#1", "", True)),
        ('"v2", "v3"', ("used", "tag#1", "", True)),
        ('"v4"', ("lacking", "tag", "foreign")),
        ("", ("lacking", "tag", "absent")),
        (None, ("lacking", "tag", "absent")),
    ],
)
def test_short_artefacts_are_recognised_where_they_belong(value: Any, wanted: tuple[Any, ...], told: Told) -> None:
    @mat.tool(consumes={"match": "tag"})
    def put(match: Any = None) -> None: ...

    with mat.run() as run:
        mat.artifact.observed('"v3"', name="tag", integrity=mat.artifact.etag())
        put(match=value)
    assert told(calls(run)[0]) == [wanted]


def test_numbers_are_read_as_they_are_written_and_an_old_one_is_reported_as_superseded() -> None:
    @mat.tool(consumes={"version": "version"})
    def put(version: int) -> None: ...

    with mat.run() as run:
        mat.artifact.observed("7", name="version", supersedes=True)
        put(7)
        mat.artifact.observed("8", name="version", supersedes=True)
        put(7)
        put(17)
    fresh, stale, foreign = calls(run)
    assert [(item.id, item.superseded) for item in used(fresh)] == [("version#1", False)]
    assert [(item.id, item.superseded) for item in used(stale)] == [("version#1", True)]
    assert [item.what for item in lacking(foreign)] == ["foreign"]


def test_an_artefact_of_another_name_is_foreign_where_it_does_not_belong_and_told_for_what_it_is(told: Told) -> None:
    @mat.tool(consumes=mat.artifact.consume("access", at="headers.authorization"))
    def get(headers: dict[str, str]) -> None: ...

    with mat.run() as run:
        mat.artifact.observed(TOKEN, name="access")
        mat.artifact.observed("Refresh99887766zZ", name="refresh")
        get({"Authorization": f"Bearer {TOKEN}"})
        get({"Authorization": "Bearer Refresh99887766zZ"})
        get({"Authorization": f"Bearer {TOKEN[:-4]}"})
        get({"x": "y"})
    assert [told(record) for record in calls(run)] == [
        [("used", "access#1", "", True)],
        [("used", "refresh#1", "", True), ("lacking", "access", "foreign")],
        [("used", "access#1", "truncated", False)],
        [("lacking", "access", "absent")],
    ]


def test_what_is_consumed_under_a_condition_or_may_be_left_out_lacks_nothing_elsewhere(told: Told) -> None:
    needs = [
        mat.artifact.consume("token", at="token", when={"url": "/api/"}),
        mat.artifact.consume("trace", at="trace", required=False),
    ]

    @mat.tool(consumes=needs)
    def get(url: str, token: str = "", trace: str = "") -> None: ...

    with mat.run() as run:
        get("https://h/login")
        get("https://h/api/x")
        get("https://h/login", trace="made-up-1234")
    assert [told(record) for record in calls(run)] == [[], [("lacking", "token", "absent")], [("lacking", "trace", "foreign")]]


def test_of_several_artefacts_an_explained_damage_goes_before_an_unexplained_one() -> None:
    pages = [f"http://a.test/p?report=r&page={page}&state={'9aF3' * size}" for page, size in ((1, 250), (2, 750), (3, 2000))]

    @mat.tool(consumes={"url": "page"})
    def get(url: str) -> None: ...

    with mat.run() as run:
        for page in pages:
            mat.artifact.observed(page, name="page")
        get(pages[2][:200])
        get(pages[0][:200])
    assert [(item.id, item.damage) for record in calls(run) for item in used(record)] == [
        ("page#3", "truncated"), ("page#1", "truncated"),
    ]  # fmt: skip


def test_an_entity_tag_in_a_body_or_a_sentence_is_intact_and_in_a_list_compared_as_http_says() -> None:
    tag = '"4f3a9b2c1d8e"'

    @mat.tool
    def put(text: str) -> None: ...

    with mat.run() as run:
        mat.artifact.observed(tag, name="tag", integrity=mat.artifact.etag())
        for text in (json.dumps({"tag": tag}), f"the tag is {tag}.", f'"other", {tag}', f"W/{tag}"):
            put(text)
    assert [item.intact for record in calls(run) for item in used(record)] == [True, True, True, False]


def test_a_predicate_of_the_users_own_is_asked_and_one_that_raises_holds_of_nothing(told: Told) -> None:
    def fussy(before: str, after: str) -> bool:
        if before != after:
            raise ValueError(after)
        return True

    @mat.tool
    def send(text: str) -> None: ...

    with mat.run() as run:
        mat.artifact.observed(TOKEN, name="key", integrity=Integrity("fussy", fussy))
        mat.artifact.observed("Refresh99887766zZ", name="loose", integrity=Integrity("any", lambda before, after: True))
        mat.artifact.observed("payload.0000", name="broken", integrity=mat.artifact.hmac("k"))
        send(TOKEN[:-4])
        send("refresh99887766zz")
    assert [told(record) for record in calls(run)] == [
        [("used", "key#1", "truncated", False)],
        [("used", "loose#1", "other", True)],
    ]
    assert sorted(finding.code for finding in run.result.findings) == ["broken-artefact", "broken-predicate"]


# -- faults and governance ----------------------------------------------------------------------------------------------


def test_a_reply_that_a_fault_changed_was_issued_and_did_not_arrive(shop: SimpleNamespace) -> None:
    shop.offers(A, B)
    effect = Replace({"files": [{"url": A}, {"url": B[:-3]}]})
    own = mat.spec.operator("service.own", lambda call, reply, stream: effect, phase="after")
    with mat.run(operators=[own], schedule=[mat.spec.perturbation(own.id, "main/service:listing#1")]) as run:
        shop.listing()
        shop.fetch(A)
        shop.fetch(B)
    assert [(item.id, item.delivered) for item in issued(calls(run)[0])] == [("url#1", True), ("url#2", False)]
    assert [[item.id for item in used(record)] for record in calls(run)[1:]] == [["url#1"], ["url#2"]]


def test_a_lost_acknowledgement_issued_an_artefact_that_nobody_got(shop: SimpleNamespace) -> None:
    shop.offers(A)
    schedule = [mat.spec.perturbation("service.lost_ack", "main/service:listing#1")]
    with mat.run(schedule=schedule) as run, pytest.raises(OSError):
        shop.listing()
    assert [(item.id, item.delivered) for item in issued(calls(run)[0])] == [("url#1", False)]


def test_what_a_fault_did_to_the_arguments_is_reported_of_the_port_and_not_of_the_agent(shop: SimpleNamespace) -> None:
    shop.offers(A)
    own = mat.spec.operator("service.own", lambda call, reply, stream: Rewrite({"url": A[:-6]}))
    with mat.run(operators=[own], schedule=[mat.spec.perturbation(own.id, "main/service:fetch#1")]) as run:
        shop.listing()
        shop.fetch(A)
        shop.fetch(A)
    perturbed, clean = calls(run)[1:]
    assert [(item.damage, item.intact) for item in used(perturbed)] == [("", True)]
    assert [(item.damage, item.intact) for item in reached(perturbed)] == [("truncated", False)]
    assert reached(clean) == used(clean)
    assert "reached" not in clean.artefacts


# -- what leaves --------------------------------------------------------------------------------------------------------


def test_no_record_holds_a_secret_in_its_facts_about_artefacts(shop: SimpleNamespace) -> None:
    secret = mat.secret("S3cr3t-9f8a7b6c5d4e")
    with mat.run() as run:
        mat.artifact.observed(secret, name="key")
        shop.offers(f"https://h.test/f?key={secret}&sig=1")
        shop.listing()
        shop.mail({"text": f"key {secret}", secret: [secret[:-5]]})
        shop.fetch(b64encode(secret.encode()).decode())
        with pytest.raises(mat.MatError):
            mat.artifact.observed(secret, name=f"{secret} x")
    assert used(calls(run)[1])
    for record in run.result.records:
        assert secret not in repr(record.artefacts)
        assert secret not in repr(record)
    assert secret not in repr(run.result.findings)


def test_records_of_runs_without_artefacts_say_nothing_of_them(shop: SimpleNamespace) -> None:
    with mat.run() as run:
        shop.mail("hello")
    assert all(not record.artefacts for record in run.result.records)


# -- cost ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def crowd() -> ArtifactIndex:
    """As many artefacts as a run follows, of three kinds."""
    known = ArtifactIndex(lambda kind, text: None)
    for number in range(limits.ARTIFACTS):
        text = (
            f"https://h.test/f{number}?sig={number:032x}{number * 7919:032x}" if number % 2 else f"tok_{number * 104729:024x}"
        )
        known.issue("url", text, at="", step=number, at_ms=0, ttl_ms=None, integrity=sha256(), supersedes=False)
    return known


def test_among_a_thousand_artefacts_few_are_looked_at_closely(crowd: ArtifactIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    import mat.harness.artifact_index as module

    looked: list[str] = []
    monkeypatch.setattr(module, "damage_in", _counting(module.damage_in, looked))
    port = Port(name="send", kind="tool_call", boundary="service", effect="none")
    words = " ".join(f"word{number % 97}" for number in range(1200))
    target = f"https://h.test/f501?sig={501:032x}{501 * 7919:032x}"
    assert crowd.carried(port, snapshot_arguments({"text": words}, "send")).used == ()
    assert len(looked) <= 8
    found = crowd.carried(port, snapshot_arguments({"text": target[:-9]}, "send")).used
    assert [(item.id, item.damage) for item in found] == [("url#502", "truncated")]


@pytest.mark.parametrize(
    "text",
    [
        "Please look up order A17 of 2026-03-05 for Ms Ruiz, and report what the carrier says.",
        "https://docs.other.test/guide/chapter-7?lang=en&section=installation#requirements",
        "kZ83hQpL0vBn27RtYx55WcMf91DsGj46",
    ],
)
def test_a_text_that_has_nothing_to_do_with_a_thousand_artefacts_is_compared_with_none(
    crowd: ArtifactIndex, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mat.harness.artifact_index as module

    looked: list[str] = []
    for name in ("damage_in", "holds"):
        monkeypatch.setattr(module, name, _counting(getattr(module, name), looked))
    port = Port(
        name="send", kind="tool_call", boundary="service", effect="none", consumes=(mat.artifact.consume("url", at="url"),)
    )
    found = crowd.carried(port, snapshot_arguments({"url": text, "text": text}, "send"))
    assert (found.used, [item.what for item in found.lacking]) == ((), ["foreign"])
    assert looked == []


@pytest.mark.full
@pytest.mark.parametrize("declared", [True, False])
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**9))
def test_what_is_looked_up_is_what_a_comparison_with_all_finds(
    made: dict[str, Any], carriers: dict[str, Any], declared: bool, seed: int
) -> None:
    import mat.harness.artifact_index as module

    rng, known = Random(seed), ArtifactIndex(lambda kind, text: None)
    kinds = [kind for kind in made if kind != "8 kB url"]
    texts = [made[rng.choice(kinds)](rng) for _ in range(12)]
    for text in texts:
        known.issue("a", text, at="", step=0, at_ms=0, ttl_ms=None, integrity=sha256(), supersedes=False)
    consumes = (mat.artifact.consume("a", at="text"),) if declared else ()
    port = Port(name="send", kind="tool_call", boundary="service", effect="none", consumes=consumes)
    text, at = rng.choice(texts), rng.randint(1, 20)
    damaged = rng.choice(
        [
            text, text[:-at], text[at:], f"{text[:at]}\n{text[at:]}", text.swapcase(), f"{text[:at]}...{text[-at:]}",
            f"({text})", quote(text, safe=""), unquote(text), b64encode(text.encode()).decode(), text[:at] + text[at + 1 :],
            text[::-1], "&".join(sorted(text.split("&"))),
        ]
    )  # fmt: skip
    arguments = snapshot_arguments({"text": carriers[rng.choice(sorted(carriers))](damaged)}, "send")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_FEW", 0)
        looked_up = known.carried(port, arguments)
        patch.setattr(module, "_FEW", 10**6)
        assert known.carried(port, arguments) == looked_up


def _counting(call: Callable[..., Any], looked: list[str]) -> Callable[..., Any]:
    def counted(wanted: Any, reading: Any, **more: Any) -> Any:
        looked.append(wanted.text)
        return call(wanted, reading, **more)

    return counted


def test_of_more_artefacts_than_are_followed_the_oldest_are_let_go_and_it_is_said() -> None:
    notes: list[str] = []
    known = ArtifactIndex(lambda kind, text: notes.append(kind))
    texts = [f"tok_{number * 104729:024x}" for number in range(limits.ARTIFACTS + 2)]
    for step, text in enumerate(texts):
        known.issue("t", text, at="", step=step, at_ms=0, ttl_ms=None, integrity=sha256(), supersedes=False)
    port = Port(name="send", kind="tool_call", boundary="service", effect="none")
    assert known.carried(port, snapshot_arguments({"text": texts[1]}, "send")).used == ()
    assert [item.id for item in known.carried(port, snapshot_arguments({"text": texts[2]}, "send")).used] == ["t#3"]
    assert set(notes) == {"many-artefacts"}


def test_two_runs_at_once_follow_artefacts_of_their_own(told: Told) -> None:
    import contextvars

    @mat.tool
    def send(text: str) -> None: ...

    def other() -> Any:
        with mat.run() as run:
            send(TOKEN)
        return run

    with mat.run() as outer:
        mat.artifact.observed(TOKEN, name="key")
        inner = contextvars.Context().run(other)
        send(TOKEN)
    assert told(calls(inner)[0]) == []
    assert told(calls(outer)[0]) == [("used", "key#1", "", True)]


def test_handles_are_resolved_in_collections_of_every_kind_and_what_holds_none_is_passed_on_itself() -> None:
    from collections import OrderedDict, namedtuple

    pair = namedtuple("pair", "url count")
    store, got = mat.artifact.handles(), list[Any]()

    @mat.tool(handles=store)
    def send(value: Any) -> None:
        got.append(value)

    handle, kept = store.put("u", "outside"), [1, "a"]
    for value in (OrderedDict(a=handle), pair(handle, 1), {handle}, frozenset([handle]), (handle,), kept):
        send(value)
    assert got == [OrderedDict(a="outside"), pair("outside", 1), {"outside"}, frozenset(["outside"]), ("outside",), kept]
    assert [type(value) for value in got[:2]] == [OrderedDict, pair]
    assert got[-1] is kept


def test_a_place_that_holds_only_a_scheme_holds_nothing(told: Told) -> None:
    @mat.tool(consumes=mat.artifact.consume("token", at="headers.authorization"))
    def get(headers: dict[str, str]) -> None: ...

    with mat.run() as run:
        mat.artifact.observed(TOKEN, name="token")
        for text in ("Bearer", "bearer ", "  ", f"Bearer  {TOKEN}"):
            get({"Authorization": text})
    assert [told(record) for record in calls(run)] == [
        *[[("lacking", "token", "absent")]] * 3,
        [("used", "token#1", "", True)],
    ]


def test_what_governance_made_of_an_artefact_is_reported_of_the_port_and_not_of_the_agent() -> None:
    def careless(record: Any) -> Any:
        return mat.policy.Rewrite({"code": record.action.arguments["code"][:13]}) if record.action.name == "confirm" else None

    @mat.tool(effect="write")
    def confirm(code: str, amount: int) -> None: ...

    with mat.run(governance=mat.policy.Governance(rules=(careless,))) as run:
        mat.artifact.observed("code-4f3a9b2c8d7e", name="code")
        confirm("code-4f3a9b2c8d7e", 9)
    (record,) = calls(run)
    assert [(item.id, item.damage) for item in used(record)] == [("code#1", "")]
    assert [(item.id, item.damage) for item in reached(record)] == [("code#1", "truncated")]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), others=st.integers(0, 5), data=st.data())
def test_an_artefact_in_any_format_is_the_only_one_told_among_its_siblings(
    made: dict[str, Any], carriers: dict[str, Any], seed: int, others: int, data: st.DataObject
) -> None:
    kind = data.draw(st.sampled_from(["token", "signed url", "base64", "jwt", "cookie", "etag", "odd text"]))
    carrier = carriers[data.draw(st.sampled_from(sorted(carriers)))]
    rng, known = Random(seed), ArtifactIndex(lambda code, text: None)
    texts = [made[kind](rng) for _ in range(others + 1)]
    for text in texts:
        known.issue("a", text, at="", step=0, at_ms=0, ttl_ms=None, integrity=sha256(), supersedes=False)
    port = Port(name="send", kind="tool_call", boundary="service", effect="none")
    meant = data.draw(st.integers(0, others))
    whole = known.carried(port, snapshot_arguments({"text": carrier(texts[meant])}, "send")).used
    assert [(item.id, item.damage, item.intact) for item in whole] == [(f"a#{meant + 1}", "", True)]
    if kind in ("signed url", "jwt", "cookie"):
        cut = known.carried(port, snapshot_arguments({"text": carrier(texts[meant][:-7])}, "send")).used
        assert [(item.id, item.intact) for item in cut] == [(f"a#{meant + 1}", False)]


def test_functions_that_cannot_read_a_reply_and_odd_times_do_not_stand_in_the_agents_way(told: Told) -> None:
    def unknown(artefact: str, reply: Any) -> int:
        raise KeyError(artefact)

    reply = {"t": TOKEN, "ttl": "inf"}

    @mat.tool(
        issues=[
            mat.artifact.issue("broken", at="t", ttl_ms=unknown),
            mat.artifact.issue("lost", at="t", read=lambda text: None),  # type: ignore[arg-type, return-value]
            mat.artifact.issue("endless", at="t", expires_in="ttl"),
            mat.artifact.issue("rounded", at="t", ttl_ms=lambda text, reply: 1499.6),  # type: ignore[arg-type, return-value]
        ]
    )
    def login() -> dict[str, str]:
        return reply

    with mat.run() as run:
        assert login() == reply
    assert [(item.id, item.ttl_ms) for item in issued(calls(run)[0])] == [("endless#1", None), ("rounded#1", 1500)]
    assert [finding.code for finding in run.result.findings] == ["broken-issue"]
    assert TOKEN not in repr(run.result.findings)
