"""An event store with optimistic concurrency, and a projection that follows with a delay: a token says how far it must be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mat_contracts.observation import OTHER, most_severe

from ...desk import Desk, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """An event in the store. position: its place among the events of all streams. seen_at: when the projection has it."""

    stream: str
    kind: str
    amount: Decimal
    position: int
    seen_at: float

    def data(self) -> dict[str, str]:
        return {"type": self.kind, "amount": f"{self.amount:.2f}"}


def parameters(rng: Random) -> dict[str, Any]:
    source, target = rng.sample(["wh_north", "wh_south", "wh_east", "wh_west"], 2)
    floor = rng.randint(2, 9) * 10
    history = {name: [f"{rng.randint(100, 400)}.00" for _ in range(rng.randint(2, 4))] for name in (source, target)}
    return {
        "source": source, "target": target, "floor": f"{floor}.00", "history": history, "lag": rng.randint(7, 10),
        "elsewhere": {source: f"{rng.randint(1, 60)}.00", target: f"{rng.randint(1, 60)}.00"},
        "token_holds": rng.randint(30, 40),
    }  # fmt: skip


def routes(desk: Desk) -> list[Route]:
    store = Store(desk)

    async def read(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in desk.given["history"]:
            return desk.answer(request, "NO_ROUTE", {"error": "no such stream"}, status=404)
        events = store.stream(name)
        body = {"stream": name, "version": len(events), "events": [event.data() for event in events]}
        if name == desk.given["target"] and not store.moved:
            store.elsewhere(desk.given["source"])
        return desk.answer(request, "STREAM", body, resource=name)

    async def append(request: Request) -> Response:
        name, said = request.path_params["name"], await fields(request)
        if name not in desk.given["history"]:
            return desk.answer(request, "NO_ROUTE", {"error": "no such stream"}, status=404)
        label, status, error = store.judged(name, said)
        if label:
            return desk.refuse(request, label, {"error": error}, status=status, resource=name)
        event = store.append(name, said["type"], said["amount"])
        store.moved[name] = desk.issue("event_id", f"Evt-{desk.token(20)}")
        token = desk.issue(
            "consistency_token", f"{desk.token(220)}+{event.position}/{desk.token(30)}=", desk.given["token_holds"]
        )
        store.tokens[token] = event.position
        if name == desk.given["source"]:
            store.elsewhere(desk.given["target"])
        body = {
            "version": len(store.stream(name)), "event_id": store.moved[name], "consistency_token": token,
            "token_holds": desk.given["token_holds"],
        }  # fmt: skip
        return desk.answer(
            request, "APPENDED", body, status=201, resource=name, holds={"consistency_token": "consistency_token"}
        )

    async def balance(request: Request) -> Response:
        name, token = request.path_params["name"], request.headers.get("consistency-token")
        if name not in desk.given["history"]:
            return desk.answer(request, "NO_ROUTE", {"error": "no such balance"}, status=404)
        if not token:
            error = {"error": "Consistency-Token is required"}
            return desk.refuse(request, "MISSING_CONSTRAINT", error, status=428, resource="consistency_token")
        label, detail = desk.check("consistency_token", token)
        if label:
            return desk.refuse(
                request, label, {"error": "token is not valid"}, status=400, resource="consistency_token", **detail
            )
        if (left := store.behind(store.tokens[token])) > 0:
            return _behind(desk, request, name, left, store.told)
        return desk.answer(request, "BALANCE", {"stream": name, "balance": f"{store.projected(name):.2f}"}, resource=name)

    async def report(request: Request) -> Response:
        balances = (await fields(request)).get("balances")
        if not isinstance(balances, dict) or set(balances) != set(desk.given["history"]):
            error = {"error": "balances of both streams are required"}
            return desk.refuse(request, "MISSING_CONSTRAINT", error, status=422, resource="report")
        if set(store.moved) != set(balances):
            return desk.answer(request, "UNMOVED", {"error": "the move is not complete"}, status=409, resource="report")
        if any(said != f"{store.total(name):.2f}" for name, said in balances.items()):
            return desk.refuse(request, "WRONG_VALUE", {"error": "not the balances"}, status=422, resource="report")
        return desk.answer(request, "REPORTED", {"ok": True}, status=201)

    return [
        Route("/streams/{name}", read),
        Route("/streams/{name}", append, methods=["POST"]),
        Route("/balances/{name}", balance),
        Route("/reports", report, methods=["POST"]),
    ]


class Store:
    """All streams, in the order in which their events were appended. `moved`: stream -> id of the event the agent appended."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._events: list[Appended] = []
        self._elsewhere = {name: Decimal(amount) for name, amount in desk.given["elsewhere"].items()}
        self.moved: dict[str, str] = {}
        self.tokens: dict[str, int] = {}
        self.told: dict[str, float] = {}
        for name, amounts in desk.given["history"].items():
            for amount in amounts:
                self.append(name, "Deposited", amount, lag=0.0)

    def stream(self, name: str) -> list[Appended]:
        return [event for event in self._events if event.stream == name]

    def append(self, name: str, kind: str, amount: str | Decimal, *, lag: float | None = None) -> Appended:
        seen_at = self._desk.now() + (self._desk.given["lag"] if lag is None else lag)
        event = Appended(stream=name, kind=kind, amount=Decimal(amount), position=len(self._events), seen_at=seen_at)
        self._events.append(event)
        return event

    def elsewhere(self, name: str) -> None:
        """Another service appends to a stream, once."""
        if (amount := self._elsewhere.pop(name, None)) is not None:
            self.append(name, "Deposited", amount)

    def total(self, name: str) -> Decimal:
        return _sum(self.stream(name))

    def projected(self, name: str) -> Decimal:
        """The balance as far as the projection has come."""
        return _sum([event for event in self.stream(name) if event.seen_at <= self._desk.now()])

    def behind(self, position: int) -> float:
        """Seconds until the projection has the event at a position."""
        return round(self._events[position].seen_at - self._desk.now(), 3)

    def judged(self, name: str, said: dict[str, Any]) -> tuple[str, int, str]:
        """(label, status, error) of an append, of the most severe that is wrong; the label is empty where nothing is."""
        wrong = {label: (status, error) for label, status, error in self._wrong(name, said)}
        label = most_severe(wrong)
        return (label, *wrong[label]) if wrong else ("", 201, "")

    def _wrong(self, name: str, said: dict[str, Any]) -> Iterator[tuple[str, int, str]]:
        source = name == self._desk.given["source"]
        required = ["expected_version", "type", "amount", *([] if source else ["causation_id"])]
        if missing := [field for field in required if said.get(field) in (None, "")]:
            yield "MISSING_CONSTRAINT", 428 if "expected_version" in missing else 422, f"required: {', '.join(missing)}"
        if name in self.moved or ("type" not in missing and said["type"] != ("Withdrawn" if source else "Deposited")):
            yield "WRONG_VALUE", 422, "this event does not belong here"
        if not source and "causation_id" not in missing:
            yield from self._cause(str(said["causation_id"]))
        version = said.get("expected_version")
        if "expected_version" in missing:
            return  # an amount is right or wrong at a version
        if version != len(self.stream(name)):
            known = isinstance(version, int) and 0 <= version < len(self.stream(name))
            yield "VERSION_CONFLICT" if known else "WRONG_VALUE", 409, "wrong expected version"
        elif "amount" not in missing and said["amount"] != self._right_amount(source):
            yield "WRONG_VALUE", 422, "this amount cannot be moved"

    def _cause(self, submitted: str) -> Iterator[tuple[str, int, str]]:
        label, _ = self._desk.check("event_id", submitted)
        if label == "TOOL_INPUT_TOO_LONG":
            label = OTHER
        if label or submitted != self.moved.get(self._desk.given["source"]):
            yield label or "WRONG_VALUE", 422, "unknown cause"

    def _right_amount(self, source: bool) -> str:
        """What is to be moved: of the source what it has above the floor, of the target what was withdrawn."""
        withdrawn = [event.amount for event in self._events if event.kind == "Withdrawn"]
        total = self.total(self._desk.given["source"]) - Decimal(self._desk.given["floor"])
        return f"{total if source else withdrawn[0] if withdrawn else Decimal(0):.2f}"


def _sum(events: list[Appended]) -> Decimal:
    return sum((event.amount if event.kind == "Deposited" else -event.amount for event in events), Decimal(0))


def _behind(desk: Desk, request: Request, name: str, left: float, told: dict[str, float]) -> Response:
    """The projection is behind: report it once, and label a request that comes back before the stated time."""
    headers, body = {"Retry-After": f"{left:g}"}, {"error": "the projection is behind"}
    if desk.now() < told.get(name, 0.0):
        return desk.refuse(
            request, "BACKOFF_VIOLATION", body, status=503, resource=name, headers=headers, early_by_seconds=left
        )
    told[name] = desk.now() + left
    return desk.answer(request, "BEHIND", body, status=503, resource=name, headers=headers)
