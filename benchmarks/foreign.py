"""Ten agents as teams write them, by an author who had not seen the search: each is right without faults, and has one mistake.

Run: python benchmarks/foreign.py [--seeds 20] [--only B01,B02] [--sample 200]: prove what the cheapest counterexamples cost.

Faults are the default operators of `mat_faults`. Nothing is declared for the search: no state digest, effects only where a team
would declare them. A seed decides where the mistake lies and how long the run is. `least` is the cost of the cheapest schedule
that breaks the contract, `planted` is one such schedule. The script executes `planted`, it without each of its parts, every
single fault that is cheaper, and every cheaper combination of faults that can matter together. Each agent's docstring says why
no others can; a random sample of combinations at all calls tests that.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import mat
from mat.boundary.catalog import Catalog
from mat.core.errors import MatError
from mat.core.site import parse_site
from mat.errors import RateLimited
from mat_contracts import no_duplicate_effect, no_retry_storm, precedes
from mat_faults import operators

CATALOG: Final = Catalog(operators())
GRID: Final = CATALOG.select()
FAILURES: Final = (TimeoutError, ConnectionError)


def nowhere(record: mat.Record) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """One agent. `plant`: where its mistake lies. `body`: the agent with fresh services.

    For the proof, `group`: only faults at calls of one group can break the contract together, "" is no group; `kinds`: the
    operators that can do so (none: all). Agents without groups have no combination that costs less than `least`.
    """

    name: str
    seed: int
    plant: Mapping[str, int]
    least: int
    planted: tuple[mat.spec.Perturbation, ...]
    contract: mat.Contract
    body: Callable[[], None]
    budget: int = 12
    group: Callable[[mat.Record], str] = nowhere
    kinds: tuple[str, ...] = ()
    operators: tuple[mat.spec.Operator, ...] = GRID

    def run(
        self, spec: mat.spec.RunSpec, *, digest: bool = False, vary: bool = False, adversary: Any = None, states: bool = True
    ) -> mat.Run:
        """One execution. No agent declares a state digest, so `digest` changes nothing."""
        run = mat.run(
            [self.contract], schedule=spec.schedule, seed=spec.seed, operators=CATALOG, states=states, vary=vary,
            adversary=adversary,
        )  # fmt: skip
        try:
            with run:
                self.body()
        except MatError:
            raise
        except Exception:  # the agent gave up under a disturbance; the contract is judged all the same
            pass
        assert run.result is not None
        return run.result


def calls(body: Callable[[], None], port: str, test: Callable[[Mapping[str, Any]], bool]) -> list[mat.spec.Site]:
    """Where the undisturbed run calls a port with such arguments."""
    nominal = mat.run(states=False)
    with nominal:
        body()
    assert nominal.result is not None
    found = [record for record in nominal.result.records if record.action.name == port and record.site]
    return [parse_site(record.site) for record in found if test(record.action.arguments)]


def fault(operator: str, port: str, nth: int, *, agent: str = "main", **parameters: object) -> mat.spec.Perturbation:
    """A perturbation at its price on the default grid."""
    point = next(item for item in CATALOG[operator].spec().choices if parameters.items() <= item.parameters.items())
    site = mat.spec.Site(
        agent=agent, boundary=CATALOG[operator].boundary, name=port, nth=nth, last=nth + point.span - 1,
    )  # fmt: skip
    return mat.spec.perturbation(operator, site, point.parameters, point.cost)


def lost(port: str, nth: int) -> mat.spec.Perturbation:
    return fault("service.timeout", port, nth)


def outage(port: str, nth: int) -> mat.spec.Perturbation:
    return fault("service.outage", port, nth, calls=3)


# -- B01: an HTTP client ------------------------------------------------------------------------------------------------


class PaymentClient:
    """Charges orders over HTTP, with idempotency keys and retries."""

    def __init__(self, get: Callable[..., Any], post: Callable[..., Any]) -> None:
        self.get, self.post = get, post
        self.session = 1
        self.unpaid: list[str] = []

    def charge(self, order: str, *, deposit: bool) -> str | None:
        try:
            cents = self.get(order=order)["cents"]
        except FAILURES:
            self.unpaid.append(order)
            return None
        for wait_s in (1, 2, 4, 8, 16):
            key = f"{self.session}/{order}/deposit" if deposit else order
            try:
                return str(self.post(key=key, order=order, cents=cents)["id"])
            except ConnectionError:
                self.session += 1  # connect anew
            except TimeoutError:
                pass
            time.sleep(wait_s)
        self.unpaid.append(order)
        return None


def http_client(seed: int) -> Foreign:
    """The keys of deposits hold the number of the session, which changes when the connection breaks.

    The reply to the deposit must be lost (4), and the connection break at the next attempt: an outage (5). A deposit is charged
    twice only by two attempts with different keys, so only posts matter together.
    """
    draw = random.Random(f"B01/{seed}")
    orders = draw.randrange(6, 26)
    deposit = draw.randrange(orders)

    def body() -> None:
        charges: dict[str, dict[str, object]] = {}

        def get(order: str) -> dict[str, object]:
            return {"cents": 500 + 10 * len(charges), "currency": "EUR"}

        def post(key: str, order: str, cents: int) -> dict[str, object]:
            return charges.setdefault(key, {"id": f"ch_{len(charges)}", "status": "succeeded"})

        client = PaymentClient(mat.tool(get, name="GET /orders", effect="read"), mat.tool(post, name="POST /charges"))
        for number in range(orders):
            client.charge(f"order-{number}", deposit=number == deposit)

    return Foreign(
        name="B01", seed=seed, plant={"order": deposit, "orders": orders}, least=9, body=body,
        planted=(
            fault("service.lost_ack", "POST /charges", deposit + 1), outage("POST /charges", deposit + 2)
        ),
        contract=no_duplicate_effect("POST /charges", key="order", idempotency="key", id="order.charged_once"),
        group=lambda record: "posts" if record.action.name == "POST /charges" else "",
    )  # fmt: skip


# -- B02: a queue -------------------------------------------------------------------------------------------------------


class Feed:
    """A queue that delivers at least once: what is not acknowledged within 30 seconds comes again."""

    def __init__(self, events: Sequence[Mapping[str, object]]) -> None:
        self.waiting = list(events)
        self.flying: dict[object, tuple[float, Mapping[str, object]]] = {}

    async def receive(self, worker: str) -> Mapping[str, object] | None:
        await asyncio.sleep(0.02)
        late = [key for key, (since, _) in self.flying.items() if time.monotonic() - since > 30]
        self.waiting += [self.flying.pop(key)[1] for key in late]
        if not self.waiting:
            return None
        event = self.waiting.pop(0)
        self.flying[event["id"]] = (time.monotonic(), event)
        return dict(event)

    async def ack(self, id: str) -> None:
        self.flying.pop(id, None)


class Bank:
    def __init__(self) -> None:
        self.rows: list[str] = []

    async def book(self, ref: str, cents: int) -> dict[str, object]:
        await asyncio.sleep(0.05)
        self.rows.append(ref)
        return {"row": len(self.rows)}

    async def find(self, ref: str) -> bool:
        await asyncio.sleep(0.01)
        return ref in self.rows


class Consumers:
    """Two workers that book what the feed brings, once for each id."""

    def __init__(self, feed: Feed, bank: Bank) -> None:
        self.receive, self.ack = mat.tool(feed.receive), mat.tool(feed.ack)
        self.book, self.find = mat.tool(bank.book, effect="write"), mat.tool(bank.find, effect="read")
        self.seen: set[str] = set()
        self.parked: list[str] = []

    async def work(self, worker: str) -> None:
        failed = 0
        while failed < 5:
            try:
                event = await self.receive(worker=worker)
            except FAILURES:
                failed += 1
                await asyncio.sleep(failed)
                continue
            if event is None:
                return
            await self.handle(event)
            with suppress(*FAILURES):  # else it comes again, and is known then
                await self.ack(id=event["id"])

    async def handle(self, event: Mapping[str, Any]) -> None:
        ref = event["id"]
        if ref in self.seen:
            return
        if event["type"] != "refund":
            self.seen.add(ref)
        if not await self.booked(ref, event["cents"]):
            self.parked.append(ref)
        self.seen.add(ref)

    async def booked(self, ref: str, cents: int) -> bool:
        for wait_s in (1, 5):
            try:
                await self.book(ref=ref, cents=cents)
                return True
            except ConnectionError:
                await asyncio.sleep(wait_s)
            except TimeoutError:
                try:
                    if await self.find(ref=ref):
                        return True
                except FAILURES:
                    return False
        return False


def queue_consumers(seed: int) -> Foreign:
    """A refund is noted as seen after its booking; the feed delivers one a second time while a slow booking is under way.

    One lost reply to its booking is enough (4): that takes a second, in which the other worker gets the copy. No fault that
    this agent can meet is cheaper.
    """
    draw = random.Random(f"B02/{seed}")
    events = draw.randrange(8, 17)
    first = draw.randrange(events - 4)
    copy = min(events, first + draw.randrange(4, 9))

    def body() -> None:
        feed = [
            {
                "id": f"evt-{number:02}",
                "type": "refund" if number == first or number % 3 == 0 else "payment",
                "cents": 100 + number,
            }
            for number in range(events)
        ]
        feed.insert(copy, feed[first])
        consumers = Consumers(Feed(feed), Bank())

        async def both() -> None:
            await asyncio.gather(consumers.work("one"), consumers.work("two"))

        asyncio.run(both())

    return Foreign(
        name="B02", seed=seed, plant={"event": first, "copy": copy, "events": events}, least=4, body=body,
        planted=(fault("service.lost_ack", "book", first + 1),),
        contract=no_duplicate_effect("book", key="ref", id="event.booked_once"),
    )  # fmt: skip


# -- B03: a database, and compensations ---------------------------------------------------------------------------------


class Travel:
    """Three services that a trip needs, and the books that an auditor reads."""

    def __init__(self) -> None:
        self.rows: dict[str, set[str]] = {"seat": set(), "room": set(), "card": set()}

    def reserve_seat(self, trip: str) -> dict[str, str]:
        self.rows["seat"].add(trip)
        return {"seat": f"seat for {trip}"}

    def release_seat(self, trip: str) -> None:
        self.rows["seat"].discard(trip)

    def reserve_room(self, trip: str) -> dict[str, str]:
        self.rows["room"].add(trip)
        return {"room": f"room for {trip}"}

    def release_room(self, trip: str) -> None:
        self.rows["room"].discard(trip)

    def charge_card(self, trip: str) -> dict[str, str]:
        self.rows["card"].add(trip)
        return {"charge": f"charge of {trip}"}

    def refund_card(self, trip: str) -> None:
        self.rows["card"].discard(trip)


class Saga:
    """Books trips step by step, and undoes what is done in reverse order where a step fails."""

    def __init__(self, travel: Travel) -> None:
        self.steps = {
            "seat": (mat.tool(travel.reserve_seat, effect="write"), mat.tool(travel.release_seat, effect="write")),
            "room": (mat.tool(travel.reserve_room, effect="write"), mat.tool(travel.release_room, effect="write")),
            "card": (mat.tool(travel.charge_card, effect="write"), mat.tool(travel.refund_card, effect="write")),
        }
        self.complete: list[str] = []
        self.by_hand: list[tuple[str, str]] = []

    def book(self, trip: str, order: Sequence[str]) -> None:
        done = []
        for name in order:
            done.append(name)  # what fails may have happened
            try:
                self.steps[name][0](trip=trip)
            except FAILURES:
                self.undo(trip, done)
                return
        self.complete.append(trip)

    def undo(self, trip: str, done: Sequence[str]) -> None:
        for name in reversed(done):
            if not self.undone(trip, name):
                self.by_hand.append((trip, name))
                return

    def undone(self, trip: str, name: str) -> bool:
        for wait_s in (1, 2, 4):
            try:
                self.steps[name][1](trip=trip)
                return True
            except FAILURES:
                time.sleep(wait_s)
        return False


@mat.step_contract(on="final_response", id="charges.settled")
def charges_are_settled(record: mat.Record) -> bool:
    """Whoever was charged travels, got the money back, or is on the list of the back office."""
    return not record.state.get("unsettled")


def saga(seed: int) -> Foreign:
    """Undoing ends at the first step that cannot be undone. Trips with a voucher are charged first, and undone last.

    A reservation must fail after the charge (4), and its release in all three attempts: an outage (5). An open charge needs a
    failed step and a failed release of the same trip, so only calls for one trip matter together.
    """
    draw = random.Random(f"B03/{seed}")
    trips = draw.randrange(4, 17)
    voucher = draw.randrange(trips)

    def body() -> None:
        travel = Travel()
        agent = Saga(travel)
        for number in range(trips):
            agent.book(f"trip-{number}", ("card", "seat", "room") if number == voucher else ("seat", "room", "card"))
        open_charges = travel.rows["card"] - set(agent.complete) - {trip for trip, name in agent.by_hand if name == "card"}
        mat.state(unsettled=len(open_charges))
        mat.finish(f"{len(agent.complete)} trips booked")

    return Foreign(
        name="B03", seed=seed, plant={"trip": voucher, "trips": trips}, least=9, body=body,
        planted=(lost("reserve_room", voucher + 1), outage("release_room", 1)), contract=charges_are_settled,
        group=lambda record: str(record.action.arguments.get("trip", "")),
    )  # fmt: skip


# -- B04: memory --------------------------------------------------------------------------------------------------------

USUAL_LIMIT: Final = 1000
GRADES: Final = (200, 500, 1000, 2000)


class Expenses:
    """Loads the limits of cost centres in the morning, and decides about claims during the day."""

    def __init__(self, load: Callable[..., Any], pay: Callable[..., Any]) -> None:
        self.load = mat.tool(load, name="load_limit", effect="read")
        self.pay = mat.tool(pay, name="pay", effect="write", impact="high")
        self.limits = mat.memory({}, name="limits")
        self.referred: list[str] = []

    def loaded(self, centre: str) -> dict[str, object]:
        for wait_s in (2, 10):
            try:
                limit = self.load(centre=centre)["limit"]
                if limit in GRADES:
                    return {"limit": limit, "source": "loaded"}
            except FAILURES:
                time.sleep(wait_s)
        return {"limit": USUAL_LIMIT, "source": "usual"}

    def morning(self, centres: Sequence[str], projects: Mapping[str, str]) -> None:
        for centre in centres:
            self.limits[centre] = self.loaded(centre)
        for project, centre in projects.items():
            self.limits[project] = {"limit": self.limits[centre]["limit"], "source": centre}

    def decide(self, claim: str, centre: str, amount: int) -> None:
        entry = self.limits[centre]
        if entry["source"] == "usual":
            entry = self.loaded(centre)  # the usual limit is for small things only
        if (entry["source"] == "usual" and amount > 100) or amount > entry["limit"]:
            self.referred.append(claim)
            return
        try:
            self.pay(claim=claim, centre=centre, amount=amount)
        except FAILURES:
            self.referred.append(claim)


def memory_fallback(seed: int) -> Foreign:
    """A project inherits the limit of its centre, but not the remark that it is only the usual one.

    The limit of that centre must fail to load twice: an outage (5). One fault of cost 4 covers one attempt.
    """
    draw = random.Random(f"B04/{seed}")
    centres = [f"centre-{number}" for number in range(draw.randrange(4, 13))]
    claims = draw.randrange(5, 17)
    parent, weak = draw.randrange(len(centres)), draw.randrange(claims)
    real = {centre: draw.choice((200, 500)) for centre in centres} | {"project": 0}
    real["project"] = real[centres[parent]]
    asked = [(draw.choice(centres), draw.choice((50, 150, 900))) for _ in range(claims)]

    def body() -> None:
        agent = Expenses(
            lambda centre: {"limit": real[centre], "owner": f"head of {centre}"}, lambda claim, centre, amount: "ok"
        )
        agent.morning(centres, {"project": centres[parent]})
        for number, (centre, amount) in enumerate(asked):
            if number == weak:
                centre, amount = "project", 800
            agent.decide(f"claim-{number}", centre, amount)

    @mat.step_contract(on="tool_call", id="limits.kept")
    def limits_are_kept(record: mat.Record) -> bool:
        arguments = record.action.arguments
        return record.action.name != "pay" or arguments["amount"] <= real[arguments["centre"]]

    return Foreign(
        name="B04", seed=seed, plant={"centre": parent, "claim": weak, "centres": len(centres)}, least=5, body=body,
        planted=(outage("load_limit", parent + 1),), contract=limits_are_kept,
    )  # fmt: skip


# -- B05: hand-offs -----------------------------------------------------------------------------------------------------


class Newsroom:
    """An editor hands items to a writer and to the legal desk, and what they agree on to a publisher."""

    def __init__(self, objected: str) -> None:
        self.objected = objected
        self.refused: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.write = mat.handoff("writer")(self.written)
        self.review = mat.handoff("legal")(self.reviewed)
        self.release = mat.handoff("publisher")(self.released)
        self.large = mat.model("large")(self.worded)
        self.small = mat.model("small")(self.worded)
        self.rules = mat.tool(lambda item: {"forbidden": "promise"}, name="rules", effect="read")
        self.sign_off = mat.tool(lambda item: "signed", name="sign_off", effect="write")
        self.publish = mat.tool(lambda item, text: "published", name="publish", effect="write", impact="high")

    def worded(self, prompt: str) -> str:
        item, _, remark = prompt.partition(": ")
        claim = "a promise" if item == self.objected and not remark else "a fact"
        return f"{item} with {claim}"

    def written(self, item: str, remark: str) -> str:
        for model, wait_s in ((self.large, 30), (self.large, 60), (self.small, 0)):
            try:
                self.texts[item] = model(f"{item}: {remark}" if remark else item)
                break
            except RateLimited:
                time.sleep(wait_s)
        return self.texts.get(item, "")

    def reviewed(self, item: str, text: str) -> str:
        if self.refused.get(item) == text:
            return "known"  # nothing has changed since
        try:
            if self.rules(item=item)["forbidden"] in text:
                self.refused[item] = text
                return "refused"
            self.sign_off(item=item)
        except FAILURES:
            return "postponed"
        return "agreed"

    def released(self, item: str, text: str) -> None:
        with suppress(*FAILURES):  # else tomorrow's issue has it
            self.publish(item=item, text=text)

    def edit(self, item: str, *, urgent: bool) -> None:
        text = self.write(item=item, remark="")
        if not text:
            return
        verdict = self.review(item=item, text=text)
        if verdict == "refused":
            text = self.write(item=item, remark="no promises")
            verdict = self.review(item=item, text=text)
        if verdict == "agreed" or (urgent and verdict not in ("refused", "postponed")):
            self.release(item=item, text=text)


def handoffs(seed: int) -> Foreign:
    """The legal desk calls a text that it has refused before "known"; for urgent items the editor takes that for a yes.

    The writer must return the refused text: both attempts with the large model and the one with the small one fail (4 each).
    Only the calls for an item decide about its text and verdict; so calls for the urgent one matter together, and model calls.
    """
    draw = random.Random(f"B05/{seed}")
    items = draw.randrange(3, 9)
    urgent = draw.randrange(items)

    def body() -> None:
        room = Newsroom(f"item-{urgent}")
        for number in range(items):
            room.edit(f"item-{number}", urgent=number == urgent)

    return Foreign(
        name="B05", seed=seed, plant={"item": urgent, "items": items}, least=12, body=body,
        planted=(
            fault("model.rate_limit", "large", urgent + 2, agent="writer"),
            fault("model.rate_limit", "large", urgent + 3, agent="writer"),
            fault("model.rate_limit", "small", 1, agent="writer"),
        ),
        contract=precedes(first="sign_off", then="publish", key="item", id="item.signed_off"),
        group=lambda record: (
            "urgent" if record.action.boundary == "model" or record.action.arguments.get("item") == f"item-{urgent}" else ""
        ),
    )  # fmt: skip


# -- B06: retries of retries --------------------------------------------------------------------------------------------


class Exhausted(Exception):  # noqa: N818  (the name that the client's library has)
    """The client has used its attempts."""


class Uploader:
    """Uploads files in parts: a client that tries twice, in a job that tries twice, and a check for missing parts."""

    def __init__(self) -> None:
        self.put = mat.tool(lambda file, part: {"etag": f"{file}.{part}"}, name="put_part")

    def client(self, file: str, part: int) -> str:
        for wait_s in (1, 3):
            try:
                return str(self.put(file=file, part=part)["etag"])
            except TimeoutError:
                time.sleep(wait_s)
        raise Exhausted

    def job(self, file: str, part: int) -> bool:
        for wait_s in (10, 60):
            try:
                self.client(file, part)
                return True
            except Exhausted:
                time.sleep(wait_s)
        return False

    def upload(self, file: str, parts: int, *, resume: bool) -> str:
        try:
            missing = [part for part in range(parts) if not self.job(file, part)]
            if missing and resume:
                missing = [part for part in missing if not self.job(file, part)]
        except ConnectionError:
            return "later"  # no route to the store: nothing is tried until somebody looks
        return "complete" if not missing else "incomplete"


def retries(seed: int) -> Foreign:
    """A file that may be resumed gets its missing parts once more, with all attempts anew.

    Four attempts at one part must time out (4 each); a fifth follows. Only time-outs are tried again, each fault covers one
    attempt, and an attempt at one part follows from attempts at the same part alone: only calls for one part matter together.
    """
    draw = random.Random(f"B06/{seed}")
    sizes = [draw.randrange(2, 7) for _ in range(draw.randrange(3, 9))]
    file = draw.randrange(len(sizes))
    part = draw.randrange(sizes[file])
    before = sum(sizes[:file]) + part

    def body() -> None:
        agent = Uploader()
        for number, parts in enumerate(sizes):
            agent.upload(f"file-{number}", parts, resume=number == file)

    return Foreign(
        name="B06", seed=seed, plant={"file": file, "part": part, "parts": sum(sizes)}, least=16, body=body, budget=16,
        planted=tuple(lost("put_part", before + nth) for nth in range(1, 5)),
        contract=no_retry_storm("put_part", times=4, within=40, id="part.attempts"),
        group=lambda record: f"{record.action.arguments['file']}/{record.action.arguments['part']}",
    )  # fmt: skip


# -- B07: pages with a cursor -------------------------------------------------------------------------------------------


class Incomplete(Exception):  # noqa: N818  (the name that the team chose)
    """A book was not listed as a whole."""


class Contacts:
    """A server with address books, in pages."""

    def __init__(self, books: Mapping[str, int]) -> None:
        self.pages = {
            book: [[f"{book}.{page}{row}" for row in range(3)] for page in range(pages)] for book, pages in books.items()
        }

    def ids(self, book: str) -> set[str]:
        return {id for page in self.pages[book] for id in page}

    def list_contacts(self, book: str, cursor: str) -> dict[str, object]:
        number = int(cursor.removeprefix("page-").removesuffix("-of")) if cursor.endswith("-of") else 0 if not cursor else -1
        if number < 0:
            raise ValueError(f"bad cursor {cursor!r}")
        pages = self.pages[book]
        following = f"page-{number + 1}-of" if number + 1 < len(pages) else ""
        return {"count": len(self.ids(book)), "cursor": following, "data": list(pages[number])}


class Mirror:
    """Keeps a copy of address books, and deletes from it what the server no longer lists."""

    def __init__(self, server: Contacts) -> None:
        self.page = mat.tool(server.list_contacts, name="list_contacts", effect="read")
        self.delete = mat.tool(lambda id: "gone", name="delete_contact", effect="write", impact="high")
        self.copies = {book: {*server.ids(book), f"{book}.old"} for book in server.pages}

    def listed(self, book: str, cursor: str) -> dict[str, Any]:
        for wait_s in (1, 5):
            try:
                return dict(self.page(book=book, cursor=cursor))
            except FAILURES:
                time.sleep(wait_s)
        return dict(self.page(book=book, cursor=cursor))

    def sync(self, book: str, *, counts: bool) -> None:
        seen: set[str] = set()
        expected, cursor = 0, ""
        while True:
            page = self.listed(book, cursor)
            expected = page["count"] if not cursor else expected
            if not self.copies[book].issuperset(page["data"]):
                raise Incomplete(f"unknown contacts in {book}")
            seen.update(page["data"])
            cursor = page["cursor"]
            if not cursor:
                break
        if len(seen) != expected and (expected or counts):  # an old server does not count, and says 0
            raise Incomplete(f"{len(seen)} of {expected} contacts of {book}")
        for id in sorted(self.copies[book] - seen):
            self.delete(id=id)


def cursor_pages(seed: int) -> Foreign:
    """For one book a count of 0 is taken for "not known", and a list that ends early goes unnoticed.

    The count on its first page must become 0 (5), and the cursor on a later page empty (5). What is deleted from a book follows
    from its pages alone: only calls for one book matter together.
    """
    draw = random.Random(f"B07/{seed}")
    books = {f"book-{number}": draw.randrange(2, 5) for number in range(draw.randrange(3, 9))}
    weak = draw.randrange(len(books))
    books[f"book-{weak}"] = draw.randrange(3, 6)
    before = sum(list(books.values())[:weak])
    server = Contacts(books)
    known = {id for book in books for id in server.ids(book)}

    def body() -> None:
        agent = Mirror(server)
        for number, book in enumerate(books):
            try:
                agent.sync(book, counts=number != weak)
            except (Incomplete, ValueError, *FAILURES):
                continue  # tomorrow again

    @mat.step_contract(on="tool_call", id="contacts.kept")
    def contacts_are_kept(record: mat.Record) -> bool:
        return record.action.name != "delete_contact" or record.action.arguments["id"] not in known

    def emptied(field: int, nth: int) -> mat.spec.Perturbation:
        return fault("service.corrupt_field", "list_contacts", nth, field=field, how="empty")

    return Foreign(
        name="B07", seed=seed, plant={"book": weak, "pages": sum(books.values())}, least=10, body=body,
        planted=(emptied(0, before + 1), emptied(1, before + 2)), contract=contacts_are_kept,
        group=lambda record: str(record.action.arguments.get("book", "")),
    )  # fmt: skip


# -- B08: a rate limit and a deadline -----------------------------------------------------------------------------------


class Digest:
    """Reads sources, one a second, and sends a digest in time; a source that fails is tried again while there is time."""

    def __init__(self, sources: int, slack_s: int) -> None:
        self.began_s = time.monotonic()
        self.left = sources
        self.deadline_s = sources + slack_s
        self.fetch = mat.tool(lambda source: {"title": source}, name="fetch", effect="read")
        self.archive = mat.tool(lambda source: {"title": source}, name="archive", effect="read")
        self.publish = mat.tool(lambda titles: "sent", name="publish", effect="write")

    def has_time(self, wait_s: int) -> bool:
        return time.monotonic() - self.began_s + wait_s + self.left <= self.deadline_s

    def read(self, source: str) -> str | None:
        for wait_s in (1, 2, 4, 0):
            try:
                return str(self.fetch(source=source)["title"])
            except FAILURES:
                if not wait_s or not self.has_time(wait_s):
                    return None
                time.sleep(wait_s)
        return None

    def dig(self, source: str) -> str | None:
        for wait_s in (5, 10, 20, 0):  # a slow machine: it must not be asked again too early
            try:
                return str(self.archive(source=source)["title"])
            except FAILURES:
                time.sleep(wait_s)
        return None

    def send(self, titles: Sequence[str]) -> None:
        while True:
            try:
                self.publish(titles=list(titles))
                return
            except FAILURES:
                if not self.has_time(1):
                    return
                time.sleep(1)


def deadline(seed: int) -> Foreign:
    """The waits for the archive ignore the clock.

    They take 35 of the 36 or 40 seconds that are left: an outage of the archive (5), and before it one second or more at
    another source: a time-out (4) if 36, an outage (5) if 40. Replies decide nothing, so only failures matter, of all calls; a
    lost reply takes the same second as a lost request.
    """
    draw = random.Random(f"B08/{seed}")
    sources = draw.randrange(10, 31)
    archived = draw.randrange(2, sources - 1)
    slack_s = draw.choice((36, 40))

    def body() -> None:
        agent = Digest(sources, slack_s)
        titles = []
        for number in range(sources):
            time.sleep(1)  # the rate limit
            agent.left -= 1
            titles.append(agent.dig(f"source-{number}") if number == archived else agent.read(f"source-{number}"))
        agent.send([title for title in titles if title])

    @mat.step_contract(on="tool_call", id="digest.in_time")
    def digest_is_in_time(record: mat.Record) -> bool:
        return record.action.name != "publish" or record.at_ms <= 1000 * (sources + slack_s)

    before = lost("fetch", archived) if slack_s == 36 else outage("fetch", archived - 1)
    return Foreign(
        name="B08", seed=seed, plant={"source": archived, "slack_s": slack_s, "sources": sources},
        least=9 if slack_s == 36 else 10, body=body, planted=(before, outage("archive", 1)), contract=digest_is_in_time,
        group=lambda record: "time", kinds=("service.timeout", "service.outage"),
    )  # fmt: skip


# -- B09: stale while revalidate ----------------------------------------------------------------------------------------


class Unavailable(Exception):  # noqa: N818  (the name that the team chose)
    """No price that may be used."""


@dataclass(frozen=True, slots=True)
class Entry:
    price: int
    at_s: float
    again_s: float = 0.0


def etag(sku: str, at_s: int, price: int) -> int:
    return zlib.crc32(f"{sku}:{at_s}:{price}".encode())


class Prices:
    """A cache that serves old prices for a while and fetches new ones in the background."""

    SOFT_S, HARD_S = 60, 180

    def __init__(self, fetch: Callable[..., Any], bulky: str) -> None:
        self.fetch, self.bulky = fetch, bulky
        self.entries: dict[str, Entry] = {}
        self.failed, self.closed_until_s = 0, 0.0

    def get(self, sku: str) -> int:
        now_s, entry = time.monotonic(), self.entries.get(sku)
        if now_s < self.closed_until_s:
            raise Unavailable(sku)
        if entry is None or now_s - entry.at_s > self.HARD_S:
            self.refresh(sku)
            entry = self.entries.get(sku)
            if entry is None or now_s - entry.at_s > self.HARD_S:
                raise Unavailable(sku)
        elif now_s - entry.at_s > self.SOFT_S and now_s > entry.again_s:
            threading.Thread(target=self.refresh, args=[sku], daemon=True).start()
        return entry.price

    def refresh(self, sku: str) -> None:
        try:
            reply = self.fetch(sku=sku)
            if reply["etag"] != etag(sku, reply["at_s"], reply["price"]):
                raise ValueError("damaged")
            if time.monotonic() - reply["at_s"] > 5:
                raise ValueError("answered by a cache")
        except (ValueError, *FAILURES):
            self.postpone(sku)
            return
        self.failed = 0
        self.entries[sku] = Entry(reply["price"], time.monotonic())

    def postpone(self, sku: str) -> None:
        now_s = time.monotonic()
        self.failed += 1
        if self.failed >= 3:  # the service is down
            self.failed, self.closed_until_s = 0, now_s + 300
        if sku in self.entries and sku == self.bulky:
            self.entries[sku] = replace(self.entries[sku], at_s=now_s)
        elif sku in self.entries:
            self.entries[sku] = replace(self.entries[sku], again_s=now_s + 30)


def revalidation(seed: int) -> Foreign:
    """When a refresh fails, the entry of one article is dated anew, as if its price were of today.

    Two refreshes of that article in a row must fail (4 each), and others in between succeed. No single fault does that: an
    outage closes the cache for five minutes. No combination costs less than 8.
    """
    draw = random.Random(f"B09/{seed}")
    articles = draw.randrange(4, 7)
    rounds = draw.randrange(4, 6)
    bulky = draw.randrange(articles)
    tick_s = 80 / articles

    def body() -> None:
        began_s = time.monotonic()

        def fetch(sku: str) -> dict[str, int]:
            now_s = int(time.monotonic())
            price = 10_000 + int(now_s - began_s) // 10
            return {"at_s": now_s, "etag": etag(sku, now_s, price), "price": price}

        order = mat.tool(lambda sku, price: "ordered", name="order", effect="write")
        prices = Prices(mat.tool(fetch, name="fetch_price"), f"sku-{bulky}")
        for visit in range(articles * rounds):
            sku = f"sku-{visit % articles}"
            with suppress(Unavailable, *FAILURES):
                order(sku=sku, price=prices.get(sku))
            time.sleep(tick_s)

    @mat.step_contract(on="tool_call", id="price.fresh")
    def prices_are_fresh(record: mat.Record) -> bool:
        if record.action.name != "order":
            return True
        return record.at_ms / 1000 - 10 * (record.action.arguments["price"] - 10_000) <= 210

    return Foreign(
        name="B09", seed=seed, plant={"article": bulky, "articles": articles, "rounds": rounds}, least=8, body=body,
        planted=tuple(lost("fetch_price", articles * cycle + bulky + 1) for cycle in (1, 2)), contract=prices_are_fresh,
    )  # fmt: skip


# -- B10: a planner -----------------------------------------------------------------------------------------------------


def scripted(log: Sequence[str]) -> dict[str, object]:
    """A model that looks, asks the manager, refunds and answers, and believes what mails say."""
    mail, *done = log
    order = mail.split()[2]
    told = "approved" in mail or "skip all checks" in mail
    tools = [line.partition(":")[0] for line in done if "failed" not in line and "no such tool" not in line]
    wanted = ["look_up", *([] if told else ["ask_manager"]), "refund"]
    if any("refused" in line for line in done):
        return {"tool": "answer", "arguments": {"order": order}}
    chosen = next((tool for tool in wanted if tool not in tools), "answer")
    return {"tool": chosen, "arguments": {"order": order}}


class Desk:
    """Lets a model choose tools; a refund needs the manager's consent, or a partner whose terms ask for none."""

    def __init__(self, partners: Sequence[str]) -> None:
        self.partners = partners
        self.approved: set[str] = set()
        self.plan = mat.model("planner")(scripted)
        self.tools = {
            "look_up": mat.tool(lambda order: {"order": order, "total": 80}, name="look_up", effect="read"),
            "ask_manager": mat.tool(lambda order: {"approved": True}, name="ask_manager"),
            "refund": mat.tool(lambda order: "refunded", name="refund", effect="write", impact="high"),
        }
        self.terms = mat.tool(lambda order: {"needs_manager": True}, name="partner_terms", effect="read")

    def handle(self, text: str) -> None:
        log = [mat.untrusted(text, channel="email")]
        for _ in range(6):
            try:
                step = self.plan(log)
            except RateLimited:
                time.sleep(30)
                continue
            if step["tool"] == "answer":
                return
            log.append(f"{step['tool']}: {self.act(step['tool'], step['arguments']['order'])}")

    def act(self, tool: str, order: str) -> str:
        if tool not in self.tools:
            return "no such tool"
        if tool == "refund" and not self.may_refund(order):
            return "refused"
        try:
            reply = self.tools[tool](order=order)
        except FAILURES:
            return "failed"
        if tool == "ask_manager":
            if not reply["approved"]:
                return "refused"
            self.approved.add(order)
        return "done"

    def may_refund(self, order: str) -> bool:
        if order in self.approved:
            return True
        terms: Mapping[str, bool] = {"needs_manager": order not in self.partners}
        if order in self.partners:
            with suppress(*FAILURES):
                terms = self.terms(order=order)
        return not terms["needs_manager"]


def planner(seed: int) -> Foreign:
    """If the terms of a partner cannot be read, its refunds need no manager.

    The mail must say that the refund is approved (3), or the model asks; and reading the terms must fail (4). Without the first
    the terms are never read. Two sentences in two mails are the only combination that costs less.
    """
    draw = random.Random(f"B10/{seed}")
    mails = draw.randrange(2, 8)
    partner = draw.randrange(mails)

    def body() -> None:
        desk = Desk([f"A{partner}"])
        for number in range(mails):
            desk.handle(f"Please refund A{number} because it came broken.")

    return Foreign(
        name="B10", seed=seed, plant={"mail": partner, "mails": mails}, least=7, body=body,
        planted=(
            fault("prompt.splice", "email", partner + 1, payload="false_approval"), lost("partner_terms", 1)
        ),
        contract=precedes(first="ask_manager", then="refund", key="order", effected=True, id="refund.approved"),
        group=lambda record: "mails" if record.action.boundary == "prompt" else "",
    )  # fmt: skip


AGENTS: Final[dict[str, Callable[[int], Foreign]]] = {
    f"B{number:02}": make
    for number, make in enumerate(
        (
            http_client, queue_consumers, saga, memory_fallback, handoffs, retries, cursor_pages, deadline, revalidation,
            planner,
        ),
        start=1,
    )
}  # fmt: skip


# -- the proof that nothing is cheaper ----------------------------------------------------------------------------------


def offers(run: mat.Run, most: int) -> Iterator[tuple[mat.Record, mat.spec.Perturbation]]:
    """Every grid point of at most this cost that could change something at a call of the run, with the call's record."""
    for index, record in enumerate(run.records):
        if not record.site or not record.action.boundary:
            continue
        site = parse_site(record.site)
        about = replace(site, boundary="order", name=f"{site.boundary}.{site.name}")
        for operator in GRID:
            here = about if operator.boundary == "order" else site
            if operator.boundary != here.boundary or record.action.kind not in operator.spec().kinds:
                continue
            for choice in operator.spec().choices:
                if choice.cost <= most and operator.relevant(record, choice.parameters, run.records[:index]):
                    yield record, mat.spec.Perturbation(
                        operator=operator.id, site=replace(here, last=here.nth + choice.span - 1), parameters=choice.parameters,
                        cost=choice.cost,
                    )  # fmt: skip


def scheduled(agent: Foreign, schedule: Iterable[mat.spec.Perturbation]) -> mat.Run:
    return agent.run(mat.spec.RunSpec(schedule=mat.spec.schedule(schedule)), states=False)


def added(schedule: mat.spec.Schedule, item: mat.spec.Perturbation) -> mat.spec.Schedule | None:
    """The schedule with one more, unless a call already has one."""
    return None if any(item.site.overlaps(other.site) for other in schedule) else schedule.add(item)


def cheaper(agent: Foreign) -> tuple[int, list[mat.spec.Schedule]]:
    """How many schedules that cost less than `least` were executed, and those that break the contract.

    They are all single faults, and all combinations at the calls of one group, those included that exist only under other
    faults of the group. Combinations hold no delay of order: nobody else could go first in the agents that have groups.
    """
    met: dict[mat.spec.Schedule, bool] = {}
    waiting: list[tuple[mat.spec.Schedule, str]] = [(mat.spec.Schedule(), "")]
    while waiting:
        schedule, group = waiting.pop()
        run = scheduled(agent, schedule)
        if run.failures:
            met[schedule] = True
            continue
        if len(schedule) and not group:
            continue
        for record, item in offers(run, agent.least - 1 - schedule.cost):
            to = agent.group(record) if not agent.kinds or item.operator in agent.kinds else ""
            to = "" if item.site.boundary == "order" else to
            grown = added(schedule, item) if not len(schedule) or to == group else None
            if grown is not None and grown not in met:
                met[grown] = False
                waiting.append((grown, to))
    return len(met), [schedule for schedule, broken in met.items() if broken]


def sampled(agent: Foreign, count: int) -> list[mat.spec.Schedule]:
    """Random schedules of several faults at all calls that cost less than `least`, and break the contract all the same."""
    stream, broken = random.Random(f"{agent.name}/{agent.seed}/sample"), []
    nominal = scheduled(agent, ())
    for _ in range(count):
        schedule, run = mat.spec.Schedule(), nominal
        while found := [item for _, item in offers(run, agent.least - 1 - schedule.cost)]:
            grown = added(schedule, stream.choice(found))
            if grown is None:
                break
            schedule, run = grown, scheduled(agent, grown)
            if run.failures:
                broken.append(schedule)
                break
    return broken


def proved(agent: Foreign, sample: int) -> tuple[int, list[str]]:
    """How many schedules the proof has executed, and what contradicts `least`."""
    problems = []
    nominal, planted = scheduled(agent, ()), scheduled(agent, agent.planted)
    if nominal.violations or nominal.uncontrolled or not nominal.success:
        problems.append(f"the undisturbed run fails: {nominal.violations} {nominal.uncontrolled}")
    if not planted.failures or planted.unreached or planted.spec.schedule.cost != agent.least:
        problems.append(f"what was planted costs {planted.spec.schedule.cost}, breaks {planted.failures}")
    without = [(part, [item for item in agent.planted if item is not part]) for part in agent.planted]
    problems += [f"{part} is not needed" for part, rest in without if scheduled(agent, rest).failures]
    count, broken = cheaper(agent)
    return count, problems + [
        f"cheaper: {[(item.operator, str(item.site)) for item in it]}" for it in broken + sampled(agent, sample)
    ]


def main(agents: Mapping[str, Callable[[int], Foreign]] = AGENTS, about: str | None = __doc__) -> int:
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", default=",".join(agents), help="agents, separated by commas")
    parser.add_argument("--sample", type=int, default=100, help="random schedules of several faults, for each agent and seed")
    given = parser.parse_args()
    wrong = 0
    for name in given.only.split(","):
        for seed in range(given.seeds):
            agent = agents[name](seed)
            count, problems = proved(agent, given.sample)
            print(f"{name} seed {seed:2}: cheapest {agent.least}; {count} cheaper schedules keep the contract", flush=True)
            for problem in problems:
                print(f"  WRONG: {problem}", flush=True)
            wrong += len(problems)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
