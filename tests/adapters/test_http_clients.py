"""Every HTTP client against a real server: nothing changes without a fault, and each fault is what the wire would bring."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

import mat
import mat_faults
from mat.boundary.effect import Rewrite
from mat.core.value import FrozenDict

CATALOG = mat_faults.operators()


@dataclass
class Shop:
    url: str
    refunds: list[Any] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    shop: Shop

    def do_GET(self) -> None:
        self.shop.asked.append(self.path)
        self._reply({"order": "A17", "paid": 30}, etag='"v2"')

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.shop.refunds.append(json.loads(body))
        self._reply({"refunded": json.loads(body)["order"]})

    def _reply(self, value: Any, **headers: str) -> None:
        content = json.dumps(value).encode()
        self.send_response(200)
        for name, text in {"content-type": "application/json", "content-length": str(len(content)), **headers}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *given: Any) -> None:
        return None


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadingHTTPServer]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()


@pytest.fixture
def shop(server: ThreadingHTTPServer) -> Shop:
    found = Shop(f"http://127.0.0.1:{server.server_address[1]}")
    Handler.shop = found
    return found


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    text: str


def by_httpx(method: str, url: str, body: Any) -> Answer:
    import httpx

    with httpx.Client() as client:
        reply = client.request(method, url, json=body)
    return Answer(reply.status_code, dict(reply.headers), reply.text)


def by_httpx_async(method: str, url: str, body: Any) -> Answer:
    import httpx

    async def ask() -> Answer:
        async with httpx.AsyncClient() as client:
            reply = await client.request(method, url, json=body)
        return Answer(reply.status_code, dict(reply.headers), reply.text)

    return asyncio.run(ask())


def by_requests(method: str, url: str, body: Any) -> Answer:
    import requests

    with requests.Session() as session:
        reply = session.request(method, url, json=body, allow_redirects=False)
    return Answer(reply.status_code, {name.lower(): text for name, text in reply.headers.items()}, reply.text)


def by_urllib3(method: str, url: str, body: Any) -> Answer:
    import urllib3

    with urllib3.PoolManager(retries=False) as pool:
        reply = pool.request(method, url, json=body, redirect=False)
    return Answer(reply.status, {name.lower(): text for name, text in reply.headers.items()}, reply.data.decode())


def by_aiohttp(method: str, url: str, body: Any) -> Answer:
    import aiohttp

    async def ask() -> Answer:
        async with aiohttp.ClientSession() as session, session.request(method, url, json=body, allow_redirects=False) as reply:
            return Answer(reply.status, {name.lower(): text for name, text in reply.headers.items()}, await reply.text())

    return asyncio.run(ask())


CLIENTS: dict[str, tuple[str, Callable[[str, str, Any], Answer]]] = {
    "httpx": ("httpx", by_httpx), "httpx-async": ("httpx", by_httpx_async), "requests": ("requests", by_requests),
    "urllib3": ("urllib3", by_urllib3), "aiohttp": ("aiohttp", by_aiohttp),
}  # fmt: skip
RAISED = {
    # client: what it raises for a time-out, a refused connection, and a body that breaks off
    "httpx": ("httpx.ReadTimeout", "httpx.ConnectError", "httpx.RemoteProtocolError"),
    "httpx-async": ("httpx.ReadTimeout", "httpx.ConnectError", "httpx.RemoteProtocolError"),
    "requests": ("requests.ReadTimeout", "requests.ConnectionError", "requests.ConnectionError"),
    "urllib3": (
        "urllib3.exceptions.ReadTimeoutError", "urllib3.exceptions.NewConnectionError", "urllib3.exceptions.ProtocolError",
    ),
    "aiohttp": ("aiohttp.ServerTimeoutError", "aiohttp.ServerDisconnectedError", "aiohttp.ClientPayloadError"),
}  # fmt: skip


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if importlib.util.find_spec(CLIENTS[name][0]) is None:
        pytest.skip(f"{CLIENTS[name][0]} is not installed")
    return name


def error_of(client: str, which: int) -> type[BaseException]:
    module, _, name = RAISED[client][which].rpartition(".")
    found: type[BaseException] = getattr(importlib.import_module(module), name)
    return found


def under(client: str, shop: Shop, operator: str, method: str = "POST", **parameters: Any) -> tuple[Callable[[], Answer], str]:
    """A request of the client, in a run under one fault, and what its port is called."""
    package, ask = CLIENTS[client]
    path = "/orders/17" if method == "GET" else "/refunds"
    name = f"{method} 127.0.0.1{'/orders/{id}' if method == 'GET' else path}"
    site = mat.spec.Site(agent="main", boundary="service", name=name, nth=1, last=1)
    added = mat.spec.perturbation(operator, site, parameters, cost=4)

    def asked() -> Answer:
        with mat.run(schedule=[added], operators=CATALOG, clock="real"), mat.attach(package):
            return ask(method, f"{shop.url}{path}", {"order": "A17"} if method == "POST" else None)

    return asked, name


def test_without_a_fault_the_client_gets_what_the_server_sent(client: str, shop: Shop) -> None:
    package, ask = CLIENTS[client]
    bare = ask("POST", f"{shop.url}/refunds?by=ann", {"order": "A17"})
    with mat.run(clock="real") as run, mat.attach(package):
        found = ask("POST", f"{shop.url}/refunds?by=ann", {"order": "A17"})
        assert found == Answer(200, {**bare.headers, "date": found.headers["date"]}, bare.text)  # a second may have passed
        looked = ask("GET", f"{shop.url}/orders/17", None)
    assert json.loads(looked.text) == {"order": "A17", "paid": 30}
    assert looked.headers["etag"] == '"v2"'
    refund, order = [record for record in run.trace if record.action.boundary]
    host = "127.0.0.1"  # without its port, which is another one each time
    assert (refund.action.name, refund.action.effect) == (f"POST {host}/refunds", "write")
    assert (order.action.name, order.action.effect) == (f"GET {host}/orders/{{id}}", "read")
    assert dict(refund.action.arguments) == {"path": "/refunds", "query": {"by": "ann"}, "body": {"order": "A17"}}
    assert refund.observation.value["body"] == {"refunded": "A17"}  # type: ignore[index, call-overload]


@pytest.mark.parametrize(("operator", "which"), [("service.timeout", 0), ("service.outage", 1)])
def test_a_lost_request_is_the_clients_own_exception(client: str, shop: Shop, operator: str, which: int) -> None:
    asked, _ = under(client, shop, operator, **({"calls": 3} if operator == "service.outage" else {}))
    with pytest.raises(error_of(client, which)):
        asked()
    assert shop.refunds == []


def test_a_body_that_breaks_off_is_the_clients_own_exception_after_the_effect(client: str, shop: Shop) -> None:
    asked, _ = under(client, shop, "service.http_cut")
    with pytest.raises(error_of(client, 2)):
        asked()
    assert shop.refunds == [{"order": "A17"}]


@pytest.mark.parametrize("status", [503, 429, 500, 502, 408, 409, 425])
def test_a_status_is_a_reply_and_the_server_has_done_nothing(client: str, shop: Shop, status: int) -> None:
    reply = under(client, shop, "service.http_status", status=status)[0]()
    assert reply.status == status
    assert (reply.headers.get("retry-after") == "30") == (status in (429, 503))
    assert shop.refunds == []


def test_a_gateway_may_fail_after_the_server_has_done_it(client: str, shop: Shop) -> None:
    assert under(client, shop, "service.http_gateway", status=502)[0]().status == 502
    assert shop.refunds == [{"order": "A17"}]


def test_other_replies_in_the_place_of_the_right_one(client: str, shop: Shop) -> None:
    page = under(client, shop, "service.http_reply", "GET", how="content_type")[0]()
    assert (page.headers["content-type"], page.text[:6]) == ("text/html", "<html>")
    moved = under(client, shop, "service.http_reply", "GET", how="redirect")[0]()
    assert (moved.status, moved.headers["location"]) == (302, "/login")
    old = under(client, shop, "service.http_reply", "GET", how="etag")[0]()
    assert old.headers["etag"] == '"v2-before"'
    assert json.loads(old.text) == {"order": "A17", "paid": 30}
    assert under(client, shop, "service.http_reply", "GET", how="empty")[0]().text == ""


def test_afterwards_the_client_is_as_before(client: str, shop: Shop) -> None:
    under(client, shop, "service.http_status", status=503)[0]()
    assert CLIENTS[client][1]("POST", f"{shop.url}/refunds", {"order": "B2"}).status == 200
    assert shop.refunds == [{"order": "B2"}]


@pytest.mark.parametrize("name", ["key", "KEY", "api_key", "api-key", "apikey", "access_token"])
def test_the_callers_key_in_a_url_reaches_the_server_and_no_trace(client: str, shop: Shop, name: str) -> None:
    package, by = CLIENTS[client]
    keys = ("Kx7-short", "Kx7-short", "Qz9plm4Wd81mNvB20aa")
    with mat.run(clock="real") as run, mat.attach(package):
        for value in keys:
            by("GET", f"{shop.url}/orders/A17?{name}={value}&page=2", None)
    assert [sent.partition("?")[2] for sent in shop.asked] == [f"{name}={value}&page=2" for value in keys]
    first, again, other = (dict(record.action.arguments["query"]) for record in run.trace[:3])
    assert first["page"] == "2"
    assert first == again != other  # who asked is hidden; that it was another caller is not
    for value in keys:
        assert value not in repr(run.result)


def test_the_callers_key_is_sent_where_a_fault_changes_the_query(client: str, shop: Shop) -> None:
    package, by = CLIENTS[client]
    site = mat.spec.Site(agent="main", boundary="service", name="GET 127.0.0.1/orders/{id}", nth=1, last=1)
    turn = mat.spec.operator(
        "service.turn", lambda call, reply, stream: Rewrite(FrozenDict({"query": {**call.given["query"], "page": "3"}}))
    )
    with (
        mat.run(clock="real", operators=[turn], schedule=[mat.spec.perturbation("service.turn", site, {}, 4)]) as run,
        mat.attach(package),
    ):
        by("GET", f"{shop.url}/orders/A17?key=Kx7-short&page=2", None)
    assert [sent.partition("?")[2] for sent in shop.asked] == ["key=Kx7-short&page=3"]
    assert "Kx7-short" not in repr(run.trace)
