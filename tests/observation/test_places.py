"""Declared places: each is parsed by its grammar and compared exactly, and predicates judge what it delivers."""

from __future__ import annotations

import hashlib
import hmac as library
import json
from base64 import b64encode
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import jwt as pyjwt
import pytest

import mat
from mat.core.artifact import issued, lacking, used
from mat.core.grammar import GRAMMARS, delivered, grammar_at
from mat_contracts.observation import compliant, present

KEY = "k" * 32
TOKEN = "tok_AbCdEfGh12345678"
URL = "https://files.example/report.pdf?expires=60&nonce=a%2Fb"
URL += f"&sig={library.new(KEY.encode(), URL.encode(), hashlib.sha256).hexdigest()}"
Verdict = tuple[list[tuple[str, str, bool]], list[str], list[str]]
WRAPPED = [
    *(("", mark) for mark in ".,;:!?)]}>'\"/|\\#&=` \n"),
    ("(", ")"), ("<", ">"), ("[", "]"), ('"', '"'), ("'", "'"), ("`", "`"),
    ("{", "}"), ("**", "**"), ("", ")."), ("=", ""), ("", "%20"), ("\ufeff", ""), ("", "\u200b"),
]  # fmt: skip
"""What models put before and after a value that they copy."""


@pytest.fixture
def judged() -> Callable[..., Verdict]:
    """Issue an artifact, make one call: ([(at, damage, intact)], what is lacking, labels of violations)."""

    def judge(
        consumes: Any, arguments: dict[str, Any], artifact: str = TOKEN, *, integrity: mat.artifact.Integrity | None = None
    ) -> Verdict:
        @mat.tool(consumes=consumes)
        def call(**given: Any) -> None: ...

        with mat.run([compliant()]) as run:
            mat.artifact.observed(artifact, name="a", integrity=integrity or mat.artifact.sha256())
            call(**arguments)
        assert run.result is not None
        (record,) = [item for item in run.result.records if item.action.kind == "tool_call"]
        return (
            [(item.at, item.damage, item.intact) for item in used(record)],
            [item.what for item in lacking(record)],
            [item.label for item in run.result.violations],
        )

    return judge


def at(path: str, **more: Any) -> mat.artifact.consume:  # type: ignore[valid-type]
    return mat.artifact.consume("a", at=path, **more)


# -- every byte ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), WRAPPED)
@pytest.mark.parametrize("integrity", [mat.artifact.sha256(), mat.artifact.hmac(KEY, parameter="sig")], ids=["sha256", "hmac"])
def test_a_url_with_punctuation_around_it_is_another_url(
    judged: Callable[..., Verdict], before: str, after: str, integrity: Any
) -> None:
    ((where, damage, intact),), missing, labels = judged(at("url"), {"url": f"{before}{URL}{after}"}, URL, integrity=integrity)
    assert (where, intact, missing, labels) == ("url", False, [], ["MUTATED_TOKEN"])
    assert damage in ("other", "wrapped", "reencoded")


@pytest.mark.parametrize(("before", "after"), [pair for pair in WRAPPED if pair != ("", " ")])
@pytest.mark.parametrize("place", ["Authorization", "x-api-key"])
def test_a_header_with_punctuation_around_its_token_carries_another_token(
    judged: Callable[..., Verdict], before: str, after: str, place: str
) -> None:
    scheme = "Bearer " if place == "Authorization" else ""
    found, missing, labels = judged(at(f"headers.{place}"), {"headers": {place: f"{scheme}{before}{TOKEN}{after}"}})
    assert [intact for _, _, intact in found] == [False]
    assert (missing, labels) == ([], ["MUTATED_TOKEN"])


@pytest.mark.parametrize(
    "value", ["", "Token ", "JWT ", "Basic ", "DPoP ", "Bearer", "Bearer:", "Bearer: ", "Bearer\t", "access_token="]
)
def test_a_token_without_its_scheme_or_with_another_one_is_not_delivered(judged: Callable[..., Verdict], value: str) -> None:
    loose = mat.artifact.Integrity("any", lambda issued, submitted: TOKEN in submitted)
    for integrity in (None, loose):
        given = {"headers": {"Authorization": f"{value}{TOKEN}"}}
        assert judged(at("headers.authorization"), given, integrity=integrity) == ([], ["undelivered"], ["MISSING_TOKEN"])


def test_a_second_scheme_is_a_part_of_the_token_that_a_server_reads(judged: Callable[..., Verdict]) -> None:
    given = {"headers": {"Authorization": f"Bearer Bearer {TOKEN}"}}
    assert judged(at("headers.authorization"), given)[1:] == ([], ["MUTATED_TOKEN"])


CASES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "scheme in any case": (at("headers.authorization"), {"headers": {"AUTHORIZATION": f"bEaReR  {TOKEN} "}}, TOKEN),
    "artifact with its scheme": (at("headers.authorization"), {"headers": {"authorization": f"Bot {TOKEN}"}}, f"Bot {TOKEN}"),
    "basic": (
        at("headers.authorization"),
        {"headers": {"authorization": "Basic " + b64encode(f"me:{TOKEN}".encode()).decode()}}, TOKEN,
    ),
    "headers as pairs": (at("headers.authorization"), {"headers": [("Authorization", f"Bearer {TOKEN}")]}, TOKEN),
    "headers as text": (
        at("headers.authorization"), {"headers": f"Accept: */*\r\nAuthorization: Bearer {TOKEN}\r\n"}, TOKEN,
    ),
    "cookie": (at("headers.cookie"), {"headers": {"Cookie": f"lang=en; s={TOKEN}; theme=dark"}}, TOKEN),
    "cookie in quotes": (at("headers.cookie"), {"headers": {"Cookie": f's="{TOKEN}"'}}, TOKEN),
    "cookie by name": (at("headers.cookie.s"), {"headers": {"Cookie": f"t=x; s={TOKEN}"}}, TOKEN),
    "cookie pair": (at("headers.cookie"), {"headers": {"Cookie": f"lang=en; s={TOKEN}"}}, f"s={TOKEN}"),
    "query of a url": (at("url"), {"url": "https://h.test/p?state=a%2Fb%3Dc+d&x=1"}, "a/b=c d"),
    "path of a url": (at("url"), {"url": "https://h.test/items/a%2Fb-c-d-e-f-g/edit"}, "a/b-c-d-e-f-g"),
    "relative url": (at("url"), {"url": "https://h.test/next?cursor=AbCd12"}, "/next?cursor=AbCd12"),
    "query": (at("query"), {"query": "x=1&code=a%2Bb%3D%3D-0123"}, "a+b==-0123"),
    "form by name": (at("form.code"), {"form": "x=1&code=a%2Bb%3D%3D-0123"}, "a+b==-0123"),
    "json": (at("json"), {"json": {"n": 1, "deep": [{"token": TOKEN}]}}, TOKEN),
    "json as text": (at("body"), {"body": json.dumps({"token": TOKEN})}, TOKEN),
    "json as text by name": (at("body.token"), {"body": json.dumps({"token": TOKEN})}, TOKEN),
    "bytes": (at("body"), {"body": TOKEN.encode()}, TOKEN),
    "number": (at("version"), {"version": 7}, "7"),
    "entity tag": (at("headers.if-match"), {"headers": {"If-Match": '"a" , W/"x", "v7"'}}, '"v7"'),
    "weak entity tag": (at("headers.if-none-match"), {"headers": {"If-None-Match": 'W/"v7"'}}, 'W/"v7"'),
    "entity tag without quotes": (at("headers.if-match"), {"headers": {"If-Match": '"v7"'}}, "v7"),
    "base64 in a header": (
        at("headers.x-key", decode="base64"), {"headers": {"x-key": b64encode(TOKEN.encode()).decode()}}, TOKEN,
    ),
    "base64 in a body": (at("body.data", decode="base64"), {"body": {"data": b64encode(TOKEN.encode()).decode()}}, TOKEN),
    "another scheme": (
        at("headers.authorization", decode=lambda text: text.removeprefix("token ")),
        {"headers": {"authorization": f"token {TOKEN}"}}, TOKEN,
    ),
    "a line": (
        at("text", decode=lambda text: text.split()), {"text": f"deploy with {TOKEN} today"}, TOKEN,
    ),
    "parts": (
        mat.artifact.consume("a", parts="{head}.{body}.{tail}"), {"head": "eyJhbGci", "body": "eyJzdWIi", "tail": "c2ln"},
        "eyJhbGci.eyJzdWIi.c2ln",
    ),
    "parts of a url": (
        mat.artifact.consume("a", parts="https://{host}{path}?{query}"),
        {"host": "files.example", "path": "/report.pdf", "query": URL.partition("?")[2]}, URL,
    ),
    "parameters apart": (
        at("url"), {"url": "https://files.example/report.pdf", "params": dict(
            part.split("=") for part in URL.partition("?")[2].replace("%2F", "/").split("&")
        )}, URL,
    ),
    "parameters of an own query": (
        at("url"), {"url": "https://files.example/reports", "params": {"page": 2}}, "https://files.example/reports",
    ),
    "parameter of its own": (at("url"), {"url": "https://h.test/p", "params": {"cursor": "a/b=c d+e"}}, "a/b=c d+e"),
    "bytes by name": (at("body.token"), {"body": json.dumps({"token": TOKEN}).encode()}, TOKEN),
    "parameters apart as text": (
        at("url"), {"url": "https://files.example/report.pdf", "params": URL.partition("?")[2]}, URL,
    ),
}  # fmt: skip
"""Name -> (declaration, arguments, artifact) of a legitimate use."""


@pytest.mark.parametrize("name", CASES)
def test_what_a_grammar_adds_is_no_damage(judged: Callable[..., Verdict], name: str) -> None:
    consumes, arguments, artifact = CASES[name]
    found, missing, labels = judged(consumes, arguments, artifact)
    assert ([(damage, intact) for _, damage, intact in found], missing, labels) == ([("", True)], [], [])


@pytest.mark.parametrize("name", [name for name in CASES if name != "number"])
def test_of_each_of_them_one_character_more_is_damage(judged: Callable[..., Verdict], name: str) -> None:
    """The same calls, with an artifact that was issued without the last character, or with another one at its end."""
    consumes, arguments, artifact = CASES[name]
    if artifact in ("v7", '"v7"', 'W/"v7"'):
        artifact = artifact.replace("7", "8")
        found, _, labels = judged(consumes, arguments, artifact)
        assert not any(intact for _, _, intact in found)
        assert len(labels) == 1
        return
    for damaged in (artifact[:-1], artifact + "Z", artifact[:-1] + ("y" if artifact[-1] != "y" else "z")):
        found, _, labels = judged(consumes, arguments, damaged)
        assert not any(intact for _, _, intact in found), damaged
        assert len(labels) == 1, damaged


def test_parameters_apart_excuse_nothing_in_another_place(judged: Callable[..., Verdict]) -> None:
    given = {"url": "https://h.test/p", "params": {"page": 1}, "headers": {"authorization": TOKEN}}
    assert judged(at("headers.authorization"), given) == ([], ["undelivered"], ["MISSING_TOKEN"])


def test_parameters_in_another_order_or_with_another_value_are_damage(judged: Callable[..., Verdict]) -> None:
    base, _, query = URL.partition("?")
    pairs = [tuple(part.split("=")) for part in query.replace("%2F", "/").split("&")]
    assert judged(at("url"), {"url": base, "params": pairs})[2:] == (["WRONG_VALUE"],)  # TOKEN was issued, no URL
    assert judged(at("url"), {"url": base, "params": pairs}, URL)[2] == []
    assert judged(at("url"), {"url": base, "params": pairs[::-1]}, URL)[0] == [("url", "reordered", False)]
    assert judged(at("url"), {"url": base, "params": [*pairs[:-1], ("sig", pairs[-1][1][:-3])]}, URL)[0] == [
        ("url", "truncated", False)
    ]


def test_a_url_with_parameters_apart_is_whole_where_no_place_is_declared(judged: Callable[..., Verdict]) -> None:
    base, _, query = URL.partition("?")
    params = dict(part.split("=") for part in query.replace("%2F", "/").split("&"))
    assert judged((), {"url": base, "params": params}, URL) == ([("url", "", True)], [], [])
    assert judged((), {"url": base, "params": {**params, "sig": params["sig"][:-9]}}, URL) == (
        [("url", "truncated", False)], [], ["OTHER"],
    )  # fmt: skip


# -- predicates ---------------------------------------------------------------------------------------------------------


def test_a_predicate_is_asked_about_what_was_delivered_and_only_its_answer_is_recorded(judged: Callable[..., Verdict]) -> None:
    secret, asked = mat.secret("S3cr3t-9f8a7b6c5d4e"), list[str]()

    def same(issued: str, submitted: str) -> bool:
        asked.append(submitted)
        return issued == submitted

    @mat.tool(consumes=at("headers.authorization"))
    def call(headers: dict[str, str]) -> None: ...

    with mat.run([compliant()]) as run:
        mat.artifact.observed(secret, name="a", integrity=mat.artifact.Integrity("same", same))
        call({"authorization": f"Bearer {secret}"})
        call({"authorization": f"Bearer {secret},"})
    assert run.result is not None
    assert asked == [secret, secret, f"{secret},"]  # the first when it was issued
    assert [item.step for item in run.result.violations] == [2]
    assert secret not in repr(run.result.records)


def test_a_signature_is_verified_on_the_token_that_arrived(judged: Callable[..., Verdict]) -> None:
    token = pyjwt.encode({"sub": "x"}, KEY, algorithm="HS256")
    signed = mat.artifact.jwt(KEY)
    for text, intact in ((f"Bearer {token}", [True]), (f"Bearer {token}.", [False]), (f"Token {token}", []), (token, [])):
        found, _, labels = judged(at("headers.authorization"), {"headers": {"authorization": text}}, token, integrity=signed)
        assert ([item for _, _, item in found], not labels) == (intact, intact == [True]), text


def test_an_entity_tag_is_compared_with_its_prefix(judged: Callable[..., Verdict]) -> None:
    def tags(issued: str, text: str, *, weak: bool) -> list[bool]:
        found, _, _ = judged(
            at("headers.if-match"), {"headers": {"if-match": text}}, issued, integrity=mat.artifact.etag(weak=weak)
        )
        return [intact for _, _, intact in found]

    assert tags('"abcdefgh"', 'W/"abcdefgh"', weak=False) == [False]
    assert tags('"abcdefgh"', 'W/"abcdefgh"', weak=True) == [True]
    assert tags('"abcdefgh"', '"x", "abcdefgh"', weak=False) == [True]
    assert tags('"abcdefgh"', '"abcdefgh".', weak=False) == [False]
    assert tags('"abcdefgh"', "abcdefgh", weak=False) == [False]


# -- what cannot be read ------------------------------------------------------------------------------------------------


def findings(run: Any) -> list[str]:
    return sorted({finding.code for finding in run.result.findings} - {"opaque-reply"})


def calls(run: Any) -> list[Any]:
    return [record for record in run.result.records if record.action.kind == "tool_call"]


def test_a_place_that_is_not_recorded_is_reported_as_not_read_and_breaks_nothing() -> None:
    from mat.adapters import Attachment

    @mat.tool(consumes=at("headers.authorization"), exclude={"headers"})
    def call(headers: Any) -> None: ...

    port = Attachment().tool("post")
    declared = mat.tool(lambda body: None, name="opaque", consumes=at("body"))
    with mat.run([compliant(), present()]) as run:
        mat.artifact.observed(TOKEN, name="a")
        call({"authorization": f"Bearer {TOKEN}"})
        mat.cross(port, {"body": object()}, lambda changed: None)
        declared(body="<aiohttp.formdata.FormData>")
    assert run.result is not None
    assert [item.what for record in run.result.records for item in lacking(record)] == ["unread", "unread"]
    assert run.result.violations == ()
    assert "artefact-not-read" in findings(run)


def test_a_missing_artifact_is_still_missing_where_the_place_can_be_read(judged: Callable[..., Verdict]) -> None:
    assert judged(at("headers.authorization"), {"headers": {}})[1:] == (["absent"], ["MISSING_TOKEN"])
    assert judged(at("headers.authorization"), {"headers": [("accept", "*/*")]})[1:] == (["absent"], ["MISSING_TOKEN"])
    assert judged(at("body.token"), {"body": '{"n": 1}'})[1:] == (["absent"], ["MISSING_TOKEN"])


def test_a_function_that_cannot_decode_delivers_nothing_and_is_reported() -> None:
    @mat.tool(consumes=at("text", decode=lambda text: text.split("=")[1]))
    def call(text: str) -> None: ...

    with mat.run([compliant()]) as run:
        mat.artifact.observed(TOKEN, name="a")
        call(f"a={TOKEN}")
        call(TOKEN)
    assert run.result is not None
    assert [[item.intact for item in used(record)] for record in calls(run)] == [[True], [False]]
    assert findings(run) == ["broken-decode"]


def httpx_response(body: dict[str, Any]) -> Any:
    import httpx

    return httpx.Response(200, headers={"etag": '"v7-abcdef"', "set-cookie": f"s={TOKEN}"}, json=body)


def starlette_response(body: dict[str, Any]) -> Any:
    from starlette.responses import JSONResponse

    return JSONResponse(body, headers={"etag": '"v7-abcdef"', "set-cookie": f"s={TOKEN}"})


def like_requests(body: dict[str, Any]) -> Any:
    headers = {"ETag": '"v7-abcdef"', "Set-Cookie": f"s={TOKEN}"}
    return SimpleNamespace(status_code=200, headers=headers, _content=json.dumps(body).encode())


@pytest.mark.parametrize("made", [httpx_response, starlette_response, like_requests])
def test_artifacts_are_read_from_the_responses_of_clients(made: Callable[[dict[str, Any]], Any]) -> None:
    for needed in {"httpx_response": "httpx", "starlette_response": "starlette"}.get(made.__name__, "json").split():
        pytest.importorskip(needed)
    declared = [
        mat.artifact.issue("url", at="body.files.*.url", expires_in="body.ttl"),
        mat.artifact.issue("tag", at="headers.etag"),
        mat.artifact.issue("session", at="headers.set-cookie", pattern="s=([^;]+)"),
        mat.artifact.issue("same", at="json.files.0.url"),
        mat.artifact.issue("cut", at="text", pattern=r'"(https:[^"]+)"'),
    ]

    @mat.tool(issues=declared)
    def listing() -> Any:
        return made({"files": [{"url": URL}], "ttl": 5})

    with mat.run() as run:
        listing()
    assert run.result is not None
    assert [(item.id, item.ttl_ms, item.delivered) for item in issued(run.result.records[0])] == [
        ("url#1", 5000, True), ("tag#1", None, True), ("session#1", None, True), ("same#1", None, True), ("cut#1", None, True),
    ]  # fmt: skip
    assert findings(run) == []


def test_a_reply_that_cannot_be_read_is_reported_and_its_artifacts_are_not_called_foreign() -> None:
    httpx = pytest.importorskip("httpx")

    class Opaque: ...

    replies = iter([httpx.Response(200, stream=httpx.ByteStream(b"{}")), Opaque(), {"error": "none"}])

    @mat.tool(issues=mat.artifact.issue("a", at="body.token"))
    def login() -> Any:
        return next(replies)

    @mat.tool(consumes=at("token"))
    def call(token: str) -> None: ...

    with mat.run([compliant()]) as run:
        login()
        login()
        call(TOKEN)
    assert run.result is not None
    assert [item.what for item in lacking(calls(run)[2])] == ["unread"]
    assert (run.result.violations, findings(run)) == ((), ["artefact-not-read"])
    replies = iter([{"error": "none"}])
    with mat.run([compliant()]) as run:
        login()
        call(TOKEN)
    assert run.result is not None
    assert [item.label for item in run.result.violations] == ["WRONG_VALUE"]
    assert findings(run) == []


JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhYmMxMjMifQ.c2lnbmF0dXJlLW9mLWl0"


def test_an_artifact_in_several_arguments_is_whole_if_they_make_it_up(judged: Callable[..., Verdict]) -> None:
    head, body, tail = JWT.split(".")
    for given in (
        {"head": head, "body": body, "tail": tail},
        {"token": {"a": f"{head}.", "b": [f"{body}.", tail]}, "n": 5},
        {"tail": tail, "rest": f"{head}.{body}", "note": "hello"},
    ):
        found, _, labels = judged((), given, JWT)
        assert (all(intact for _, _, intact in found), labels) == (True, []), given
    assert found == [("tail + rest", "", True)]
    apart = {"host": "files.example", "path": "/report.pdf", "query": URL.partition("?")[2]}
    assert judged((), apart, URL) == ([("host + path + query", "", True)], [], [])
    assert judged((), {**apart, "path": "/report.pd"}, URL)[2] == ["OTHER"]
    for given in (
        {"head": head, "body": body[:-1], "tail": tail},
        {"body": body, "tail": tail},
        {"first": f"{head}.{body}"},
        {"first": f"{head}.{body}", "second": f"{body}.{tail}"},
    ):
        assert not any(intact for _, _, intact in judged((), given, JWT)[0]), given


# -- guesses ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [f"token {TOKEN[:14]}... accepted", f"sent with {TOKEN[:12]} to h.test", f"GET {URL[:90]} gave 200"],
)
def test_a_line_of_a_log_that_shows_a_part_of_an_artifact_breaks_nothing(judged: Callable[..., Verdict], line: str) -> None:
    artifact = URL if "GET" in line else TOKEN
    found, _, labels = judged((), {"line": line}, artifact)
    assert labels == []
    assert [intact for _, _, intact in found] in ([], [False])


def test_damage_in_a_value_of_its_own_is_reported_as_a_guess_of_likeness() -> None:
    @mat.tool
    def call(value: str) -> None: ...

    with mat.run([compliant()]) as run:
        mat.artifact.observed(TOKEN, name="a")
        call(TOKEN[:-5])
        call(f"Your token is {TOKEN[:-5]} and it holds")
    assert run.result is not None
    assert [[item.guess for item in used(record)] for record in calls(run)] == [["likeness"], ["mention"]]
    assert [item.message for item in run.result.violations] == ["a#1 in value was truncated (recognized by similarity)"]


# -- declarations and grammars ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: mat.artifact.consume("a", at="x", decode="baer"), "did you mean 'bearer'"),
        (lambda: mat.artifact.consume("a", at="x", decode=5), "neither the name"),  # type: ignore[arg-type]
        (lambda: mat.artifact.consume("a", at="x", parts="{y}"), "both at= and parts="),
        (lambda: mat.artifact.consume("a", parts="y"), "no parameter in braces"),
        (lambda: mat.artifact.consume("a"), "names no parameter"),
    ],
)
def test_a_declaration_that_can_deliver_nothing_is_refused(wrong: Callable[[], object], says: str) -> None:
    with pytest.raises(mat.MatError, match=says) as caught:
        wrong()
    assert caught.value.fix


def test_the_path_of_a_place_decides_its_grammar() -> None:
    wanted = {
        "url": "url", "request.href": "url", "headers.X-Key": "header", "headers.url": "header",
        "request.headers.cookie": "cookie",
        "headers.If_None_Match": "etag", "params": "query", "params.x": "value", "json": "body", "authorization": "value",
    }  # fmt: skip
    assert {path: grammar_at(path) for path in wanted} == wanted


@pytest.mark.parametrize("grammar", GRAMMARS)
@pytest.mark.parametrize(
    "text",
    ["", " ", "\x00", "{", "[" * 2000, "a=b;c", "%zz", "http://[", "Basic =", "Basic \ud800", '"', 'W/"a', "\ud800", "é" * 9],
)
def test_no_text_is_too_odd_for_a_grammar(grammar: Any, text: str) -> None:
    assert isinstance(delivered(grammar, text), tuple)


def test_parameters_are_put_together_as_clients_do() -> None:
    httpx = pytest.importorskip("httpx")
    from mat.core.grammar import assembled

    for params in ({"a": "1/2 3", "b": "x=y&z"}, [("a", "1"), ("a", "2")], {"a": ["1", "2"]}, {"n": 5}):
        assert assembled("https://h.test/p", params) == str(httpx.Request("GET", "https://h.test/p", params=params).url)
    assert assembled("https://h.test/p", {"a": {"b": 1}}) is None
    assert assembled("https://h.test/p", urlencode({"a": "b"})) == "https://h.test/p?a=b"
