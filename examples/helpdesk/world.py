"""The world of the helpdesk: a database, a shop with an HTTP interface, a knowledge base, an outbox.

Nothing here knows about agents or tests. Each World is fresh: it shares nothing with any other.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import httpx

SCHEMA: Final = """
create table customers (email text primary key, name text, offers text);
create table orders (id text primary key, email text, item text, cents integer, parcel text);
create table tickets (id text primary key, email text, status text);
insert into customers values ('ann@example.org', 'Ann', 'granted'), ('bob@example.org', 'Bob', 'withdrawn');
insert into orders values ('A1', 'ann@example.org', 'kettle', 4900, 'P1'), ('A2', 'bob@example.org', 'lamp', 2500, 'P2');
insert into tickets values ('T1', 'ann@example.org', 'open'), ('T2', 'bob@example.org', 'open');
"""
ARTICLES: Final = {
    "warranty": "A kettle has two years of warranty.",
    "descale": "Descale a kettle with vinegar once a month.",
    "returns": "Anything may be returned within thirty days.",
}
JOURNEY: Final = ((0, "dispatched"), (60, "delivered"))
"""Every parcel's statuses, by seconds after the first look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    to: str
    subject: str
    body: str


class Shop:
    """The shop's HTTP interface, a WSGI application: GET /parcels/<id>, GET /refunds/<order>, POST /refunds.

    It pays whatever it is asked to pay: the caller has to know what was already paid.
    """

    def __init__(self) -> None:
        self.paid: list[dict[str, Any]] = []
        self._opened_s: float | None = None

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        method, (_, resource, *rest) = environ["REQUEST_METHOD"], environ["PATH_INFO"].split("/")
        match method, resource, rest:
            case "GET", "parcels", [parcel]:
                status, body = "200 OK", self._parcel(parcel)
            case "GET", "refunds", [order]:
                status, body = "200 OK", self._refunds(order)
            case "POST", "refunds", []:
                status, body = "201 Created", self._refund(json.load(environ["wsgi.input"]))
            case _:
                status, body = "404 Not Found", {"detail": f"no {method} {environ['PATH_INFO']}"}
        start_response(status, [("Content-Type", "application/json")])
        return [json.dumps(body).encode()]

    def _parcel(self, parcel: str) -> dict[str, Any]:
        now_s = time.time()
        self._opened_s = now_s if self._opened_s is None else self._opened_s
        reached = [status for since_s, status in JOURNEY if now_s - self._opened_s >= since_s]
        return {"parcel": parcel, "status": reached[-1], "as_of": _timestamp(now_s)}

    def _refunds(self, order: str) -> dict[str, Any]:
        found = [refund["refund"] for refund in self.paid if refund["order"] == order]
        return {"order": order, "count": len(found), "refunds": found}

    def _refund(self, request: dict[str, Any]) -> dict[str, Any]:
        self.paid.append({"refund": f"R{len(self.paid) + 1}", **request})
        return self.paid[-1]


def _timestamp(now_s: float) -> str:
    return datetime.fromtimestamp(now_s, UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class World:
    """Everything outside the team."""

    database: sqlite3.Connection
    shop: Shop
    http: httpx.Client
    notes: dict[str, list[str]]
    outbox: list[Mail] = field(default_factory=list)


def new_world() -> World:
    """A world with two customers, two orders and the notes of earlier shifts."""
    database = sqlite3.connect(":memory:")
    database.row_factory = sqlite3.Row
    database.executescript(SCHEMA)
    shop = Shop()
    client = httpx.Client(transport=httpx.WSGITransport(app=shop), base_url="http://shop.test", trust_env=False)
    notes = {
        "ann@example.org": ["prefers short answers"],
        "bob@example.org": ["wants no offers by mail", "asks precise questions"],
    }
    return World(database, shop, client, notes)
