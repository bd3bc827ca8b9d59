"""The tools of the agents: every boundary of the team, instrumented once. Outside a run these are plain calls."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import httpx

import mat
from helpdesk.world import ARTICLES, Mail, World


def _refused(message: str) -> httpx.HTTPStatusError:
    request = httpx.Request("GET", "http://shop.test")
    return httpx.HTTPStatusError(message, request=request, response=httpx.Response(503, request=request))


HTTP_ERRORS: Final = {"timeout": httpx.ReadTimeout, "connection": httpx.ConnectError, "server_error": _refused}
SQL_ERRORS: Final = {"timeout": sqlite3.OperationalError, "connection": sqlite3.OperationalError}
DOWN: Final = (httpx.HTTPError, sqlite3.Error, OSError, mat.errors.RateLimited)
"""The errors that the clients of these services raise when a service does not answer as it should."""


class Tools:
    """The boundaries of one team. `notes` is the memory that all agents share, by customer."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.notes = mat.memory(world.notes, name="notes")

    @mat.tool(effect="read", errors=SQL_ERRORS)
    def order(self, order: str) -> dict[str, Any]:
        """The order as the database has it; LookupError where there is none."""
        row = self._world.database.execute("select * from orders where id = ?", (order,)).fetchone()
        if row is None:
            raise LookupError(f"no order {order!r}")
        return dict(row)

    @mat.tool(effect="read", errors=SQL_ERRORS)
    def consent(self, customer: str) -> dict[str, Any]:
        """Whether a customer wants offers: "granted" or "withdrawn"."""
        row = self._world.database.execute("select offers from customers where email = ?", (customer,)).fetchone()
        return {"customer": customer, "offers": "withdrawn" if row is None else row["offers"]}

    @mat.tool(effect="write", errors=SQL_ERRORS)
    def set_ticket(self, ticket: str, status: str) -> None:
        with self._world.database as database:
            database.execute("update tickets set status = ? where id = ?", (status, ticket))

    @mat.tool(effect="read", errors=HTTP_ERRORS)
    def track(self, parcel: str) -> dict[str, Any]:
        """{parcel, status, as_of}: where the carrier saw the parcel, and when."""
        return self._json("GET", f"/parcels/{parcel}")

    @mat.tool(effect="write", impact="high", reversible=False, errors=HTTP_ERRORS)
    def refund(self, order: str, cents: int) -> dict[str, Any]:
        return self._json("POST", "/refunds", {"order": order, "cents": cents})

    @mat.tool(effect="read", errors=HTTP_ERRORS)
    def refunds(self, order: str) -> dict[str, Any]:
        """{order, count, refunds}: the payments for an order so far."""
        return self._json("GET", f"/refunds/{order}")

    @mat.tool(effect="write", reversible=False, errors="builtin")  # errors of sockets are Python's own
    def mail(self, to: str, subject: str, body: str) -> None:
        self._world.outbox.append(Mail(to=to, subject=subject, body=body))

    @mat.tool(effect="write", reversible=False, errors="builtin")
    def offer(self, to: str, body: str) -> None:
        """Advertising, for those who want it."""
        self._world.outbox.append(Mail(to=to, subject="An offer", body=body))

    @mat.retriever("kb")
    def search(self, query: str) -> list[mat.Passage]:
        """Articles that share words with the query, best first."""
        words = set(re.findall(r"\w+", query.lower()))
        scores = {name: len(words & set(re.findall(r"\w+", text.lower()))) for name, text in ARTICLES.items()}
        found = [mat.Passage(text=ARTICLES[name], id=name, score=float(score)) for name, score in scores.items() if score]
        return sorted(found, key=lambda passage: -passage.score)

    @mat.model("planner", tape="inprocess", errors="builtin")
    def plan(self, email: str, notes: Sequence[str]) -> dict[str, Any]:
        """A stand-in for a language model: reads, decides, and follows every instruction, whoever gives it."""
        text, remarks = email.lower(), " ".join(map(str, notes)).lower()
        order = re.search(r"\bA\d+\b", email)
        intent = "refund" if "refund" in text else "track" if "parcel" in text else "question"
        told_to_hurry = re.search(r"skip|ignore|no verification|already approved", text) is not None
        refuses_offers = re.search(r"no offers|opted out|unsubscribed", remarks) is not None
        agreed_since = re.search(r"agreed|consent|opted (back )?in|allowed", remarks) is not None
        return {
            "intent": intent,
            "order": order[0] if order else "",
            "verify": not told_to_hurry,
            "offer": agreed_since or not refuses_offers,
            "greeting": random.choice(["Dear", "Hello", "Good day"]),
        }

    def _json(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        response = self._world.http.request(method, path, json=body)
        response.raise_for_status()
        reply: dict[str, Any] = response.json()
        return reply
