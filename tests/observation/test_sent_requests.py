"""Requests of an attached HTTP client: artifacts are looked for in what is sent, of which a step records a part."""

from __future__ import annotations

import asyncio
import hashlib
import hmac as library
from typing import Any

import pytest

import mat
from mat.boundary.effect import Rewrite
from mat.core.artifact import reached, used
from mat_contracts.observation import bytes_preserved, compliant

httpx = pytest.importorskip("httpx")

TOKEN = "tok_AbCdEfGh12345678"
URL = "https://files.example/report.pdf?expires=60&nonce=a%2Fb"
URL += f"&sig={library.new(b'k', URL.encode(), hashlib.sha256).hexdigest()}"
BASE, _, QUERY = URL.partition("?")
PARAMS = dict(part.split("=") for part in QUERY.replace("%2F", "/").split("&"))


def answer(request: Any) -> Any:
    return httpx.Response(200, json={"ok": True})


def uses(ask: Any, **options: Any) -> tuple[list[tuple[Any, ...]], list[str], Any]:
    """What one request uses, the labels of violations, and the record."""
    with mat.attach("httpx"), mat.run([compliant()], **options) as run:
        mat.artifact.observed(URL, name="url", integrity=mat.artifact.hmac("k", parameter="sig"))
        mat.artifact.observed(TOKEN, name="token")
        ask(httpx.Client(transport=httpx.MockTransport(answer)))
    assert run.result is not None
    (record,) = [item for item in run.result.records if item.action.kind == "tool_call"]
    found = [(item.id, item.at, item.damage, item.intact) for item in used(record)]
    return found, [item.label for item in run.result.violations], record


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.get(URL),
        lambda client: client.get(BASE, params=PARAMS),
        lambda client: client.get(BASE, params=list(PARAMS.items())),
        lambda client: client.send(client.build_request("GET", httpx.URL(URL))),
    ],
)
def test_a_url_is_whole_however_its_client_was_given_it(ask: Any) -> None:
    assert uses(ask)[:2] == ([("url#1", "url", "", True)], [])


def test_a_url_is_whole_in_an_asynchronous_client() -> None:
    async def go() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            await client.get(BASE, params=PARAMS)

    assert uses(lambda client: asyncio.run(go()))[:2] == ([("url#1", "url", "", True)], [])


@pytest.mark.parametrize(
    ("params", "damage", "label"),
    [
        ({**PARAMS, "sig": PARAMS["sig"][:-9]}, "truncated", "OTHER"),
        (dict(reversed(PARAMS.items())), "reordered", "SIGNATURE_MISMATCH"),
        ({**PARAMS, "nonce": "a%2Fb"}, "reencoded", "MUTATED_TOKEN"),
    ],
)
def test_damage_to_a_parameter_is_damage_to_the_url(params: dict[str, str], damage: str, label: str) -> None:
    found, labels, record = uses(lambda client: client.get(BASE, params=params))
    assert (found, labels) == ([("url#1", "url", damage, False)], [label])
    assert "url" not in record.arguments


def test_headers_are_read_and_not_recorded() -> None:
    found, labels, record = uses(
        lambda client: client.get("https://h.test/x", headers={"authorization": f"Bearer {TOKEN}", "x-other": TOKEN[:-5]})
    )
    assert found == [("token#1", "headers.authorization", "", True), ("token#1", "headers.x-other", "truncated", False)]
    assert labels == ["OTHER"]
    assert TOKEN not in repr(record)
    assert "headers" not in record.arguments


def test_what_a_fault_does_to_a_query_is_reported_of_what_reached_the_service() -> None:
    cut = {**PARAMS, "sig": PARAMS["sig"][:-9]}
    own = mat.spec.operator("service.own", lambda call, reply, stream: Rewrite({"query": cut}))
    with mat.attach("httpx"), mat.run() as first:
        httpx.Client(transport=httpx.MockTransport(answer)).get(URL)
    assert first.result is not None
    site = mat.spec.perturbation(own.id, first.result.records[0].site)
    contracts = [bytes_preserved(id="asked"), bytes_preserved(id="reached", form="reached")]
    with mat.attach("httpx"), mat.run(contracts, operators=[own], schedule=[site]) as run:
        mat.artifact.observed(URL, name="url")
        httpx.Client(transport=httpx.MockTransport(answer)).get(URL)
    assert run.result is not None
    (record,) = [item for item in run.result.records if item.action.kind == "tool_call"]
    assert [(item.at, item.damage) for item in used(record)] == [("url", "")]
    assert [(item.at, item.damage) for item in reached(record)] == [("url", "truncated")]
    assert [item.contract for item in run.result.violations] == ["reached"]


def test_a_tool_that_makes_a_request_is_looked_at_by_its_own_arguments() -> None:
    @mat.tool
    def fetch(note: str) -> str:
        httpx.Client(transport=httpx.MockTransport(answer)).get(URL)
        return note

    with mat.attach("httpx"), mat.run([compliant()]) as run:
        mat.artifact.observed(URL, name="url")
        fetch(f"see {URL}")
    assert run.result is not None
    assert [[item.at for item in used(record)] for record in run.result.records if record.action.kind == "tool_call"] == [
        ["note"], ["url"],
    ]  # fmt: skip
    assert run.result.violations == ()
