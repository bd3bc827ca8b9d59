"""Ten more agents by an author who had not seen the search, on other ground than `foreign`: right without faults, one mistake.

Run: python benchmarks/foreign_more.py [--seeds 20] [--only C01,C02] [--sample 200]: prove what the cheapest cost.

What `foreign` says about faults, declarations and the proof is true here as well.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from foreign import FAILURES, Foreign, fault, lost, main, outage

import mat
from mat.core.site import parse_site
from mat.errors import RateLimited
from mat_contracts import no_duplicate_effect, precedes

# -- C01: conditional writes --------------------------------------------------------------------------------------------


class Wiki:
    """A server with pages, whose writes can be made conditional."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}

    def get(self, page: str) -> dict[str, object]:
        lines = self.lines.setdefault(page, [])
        return {"etag": f"v{len(lines)}", "lines": list(lines)}

    def append(self, page: str, line: str, if_match: str) -> dict[str, object]:
        lines = self.lines.setdefault(page, [])
        if if_match not in (f"v{len(lines)}", "*"):
            return {"status": 412}
        lines.append(line)
        return {"etag": f"v{len(lines)}", "status": 200}


class Minutes:
    """Adds lines to pages that others edit as well; remembers the ETag of each page."""

    def __init__(self, wiki: Wiki, drafts: Sequence[str]) -> None:
        self.get = mat.tool(wiki.get, name="GET /pages", effect="read")
        self.append = mat.tool(wiki.append, name="POST /pages/lines", effect="write")
        self.drafts = drafts
        self.etags: dict[str, str] = {}
        self.unsure: list[str] = []

    def add(self, page: str, line: str) -> None:
        try:
            etag = self.etags.get(page) or str(self.get(page=page)["etag"])
        except FAILURES:
            self.unsure.append(line)
            return
        for wait_s in (1, 3, 9):
            reply: Mapping[str, Any] = {"status": 0}
            with suppress(*FAILURES):
                reply = self.append(page=page, line=line, if_match=etag)
            if reply["status"] == 200:
                self.etags[page] = reply["etag"]
                return
            time.sleep(wait_s)
            try:
                now = self.get(page=page)
            except FAILURES:
                if page not in self.drafts:
                    break
                etag = "*"  # nobody else writes to a draft
                continue
            etag = self.etags[page] = str(now["etag"])
            if line in now["lines"]:
                return
        self.etags.pop(page, None)
        self.unsure.append(line)


def conditional_writes(seed: int) -> Foreign:
    """A line is added to a draft without a condition if the page cannot be read after a failure.

    The reply to the first attempt must be lost (4), and the page not be read after it (4). No single fault does both: they are
    at two ports.
    """
    draw = random.Random(f"C01/{seed}")
    pages = [f"page-{number}" for number in range(draw.randrange(2, 6))]
    edits = [*pages, *(draw.choice(pages) for _ in range(draw.randrange(5, 22)))]
    draw.shuffle(edits)
    draft = draw.choice(pages)
    edit = draw.choice([number for number, page in enumerate(edits) if page == draft])
    known = len(set(edits[: edit + 1]))

    def body() -> None:
        agent = Minutes(Wiki(), [draft])
        for number, page in enumerate(edits):
            agent.add(page, f"{number:02}: decided")

    return Foreign(
        name="C01", seed=seed, plant={"edit": edit, "edits": len(edits)}, least=8, body=body,
        planted=(fault("service.lost_ack", "POST /pages/lines", edit + 1), lost("GET /pages", known + 1)),
        contract=no_duplicate_effect("POST /pages/lines", key="line", id="line.added_once"),
    )  # fmt: skip


# -- C02: dead letters --------------------------------------------------------------------------------------------------


class Queue:
    """A queue with visibility time-outs; what was received four times and never deleted goes to the dead letters."""

    VISIBILITY_S, RECEIVES = 30, 4

    def __init__(self, bodies: Sequence[str]) -> None:
        self.messages = {f"m-{number:02}": body for number, body in enumerate(bodies)}
        self.visible_s = dict.fromkeys(self.messages, 0.0)
        self.receives = dict.fromkeys(self.messages, 0)
        self.dead: dict[str, str] = {}

    def receive(self) -> dict[str, object] | None:
        now_s = time.monotonic()
        for id in sorted(self.messages, key=lambda id: self.visible_s[id]):
            if self.visible_s[id] > now_s:
                return None
            if self.receives[id] == self.RECEIVES:
                self.dead[id] = self.messages.pop(id)
                continue
            self.receives[id] += 1
            self.visible_s[id] = now_s + self.VISIBILITY_S
            body = self.messages[id]
            return {
                "ApproximateFirstReceiveTimestamp": 0, "ApproximateReceiveCount": self.receives[id], "Body": body,
                "MD5OfBody": hashlib.md5(body.encode()).hexdigest(), "MessageId": id,
            }  # fmt: skip
        return None

    def delete(self, id: str) -> None:
        self.messages.pop(id, None)

    def count_dead(self) -> int:
        return len(self.dead)

    def redrive(self) -> None:
        for id, body in self.dead.items():
            new = f"r{id}"
            self.messages[new], self.visible_s[new], self.receives[new] = body, 0.0, 0
        self.dead.clear()


class Warehouse:
    """Ships what the queue brings. The carrier knows a repeated request by its key."""

    def __init__(self, queue: Queue) -> None:
        self.receive, self.delete = mat.tool(queue.receive, name="receive"), mat.tool(queue.delete, name="delete")
        self.count_dead = mat.tool(queue.count_dead, name="count_dead", effect="read")
        self.redrive = mat.tool(queue.redrive, name="redrive")
        self.ship = mat.tool(lambda key, event: f"label for {key}", name="ship", effect="write")

    def day(self) -> None:
        try:
            self.work()
            if self.count_dead():
                self.redrive()
                self.work()
        except ConnectionError:
            return  # whoever is on call starts it again

    def work(self) -> None:
        idle = 0
        while idle < 2:
            try:
                message = self.receive()
            except TimeoutError:
                continue
            if message is None:
                idle += 1
                time.sleep(Queue.VISIBILITY_S)
                continue
            idle = 0
            if hashlib.md5(message["Body"].encode()).hexdigest() != message["MD5OfBody"]:
                continue  # it comes again
            with suppress(TimeoutError):
                self.handle(message)

    def handle(self, message: Mapping[str, Any]) -> None:
        body = json.loads(message["Body"])
        # there may be several replacements for an order
        key = message["MessageId"] if body["type"] == "replacement" else body["order"]
        self.ship(key=key, event=body["event"])
        self.delete(id=message["MessageId"])


def dead_letters(seed: int) -> Foreign:
    """The key of a replacement is the id of its message, and a message that comes from the dead letters has a new one.

    It must be received four times without being deleted: four time-outs (4 each) when it is shipped or deleted, or lost replies
    when it is received. If the connection breaks, the day ends, so no outage does it. Only a replacement's key changes, so only
    calls for it matter together, and of faults that do not end the day, failures are the cheapest.
    """
    draw = random.Random(f"C02/{seed}")
    events = draw.randrange(4, 15)
    weak = draw.randrange(events)

    def body() -> None:
        Warehouse(
            Queue([
                json.dumps({
                    "event": f"evt-{number:02}", "order": f"A{number:02}", "type": "replacement" if number == weak else "order"
                })
                for number in range(events)
            ])
        ).day()  # fmt: skip

    def group(record: mat.Record) -> str:
        given, reply = record.action.arguments, (record.raw or record.observation).value
        about = given.get("id") or given.get("event") or (reply.get("MessageId") if isinstance(reply, dict) else "")
        return "replacement" if str(about).endswith(f"-{weak:02}") else ""

    return Foreign(
        name="C02", seed=seed, plant={"event": weak, "events": events}, least=16, budget=16, body=body,
        planted=(lost("delete", weak + 1), *(lost("delete", events + nth) for nth in range(1, 4))),
        contract=no_duplicate_effect("ship", key="event", idempotency="key", id="event.shipped_once"),
        group=group, kinds=("service.timeout", "service.lost_ack"),
    )  # fmt: skip


# -- C03: optimistic locks ----------------------------------------------------------------------------------------------


class Table:
    """Rows with a version, which every update must name, and the last sale that changed them."""

    def __init__(self, stock: Mapping[str, int]) -> None:
        self.rows = {sku: (quantity, 1, "") for sku, quantity in stock.items()}

    def select(self, sku: str) -> dict[str, object]:
        quantity, version, sale = self.rows[sku]
        return {"bin": f"bin of {sku}", "id": sku, "name": sku, "quantity": quantity, "sale": sale, "version": version}

    def update(self, sku: str, sale: str, quantity: int, version: int) -> dict[str, int]:
        if self.rows[sku][1] != version:
            return {"rows": 0}
        self.rows[sku] = (quantity, version + 1, sale)
        return {"rows": 1}


class Unknown(Exception):  # noqa: N818  (the name that the team chose)
    """It is not known whether a sale was booked."""


class Stock:
    """Books sales of articles and of bundles."""

    def __init__(self, table: Table) -> None:
        self.select = mat.tool(table.select, name="select", effect="read")
        self.update = mat.tool(table.update, name="update", effect="write")
        self.sold: dict[str, int] = {}
        self.unknown: list[str] = []

    def row(self, sku: str) -> Mapping[str, Any]:
        for wait_s in (1, 5, 25, 0):
            try:
                found: Mapping[str, Any] = self.select(sku=sku)
                if found["id"] == sku:
                    return found
            except FAILURES:
                time.sleep(wait_s)
        raise Unknown(sku)

    def sell(self, sale: str, sku: str, count: int, *, bundle: bool) -> None:
        try:
            row = self.row(sku)
        except Unknown:
            return
        left = row["quantity"] - count
        try:
            for _ in range(4):
                with suppress(*FAILURES):
                    if self.update(sku=sku, sale=sale, quantity=left, version=row["version"])["rows"] == 1:
                        break
                row = self.row(sku)
                if row["sale"] == sale:
                    break
                if not bundle:  # what is left of a bundle was computed from its parts
                    left = row["quantity"] - count
            else:
                raise Unknown(sku)
            self.sold[sku] = self.sold.get(sku, 0) + count
        except Unknown:
            self.unknown.append(sku)


@mat.step_contract(on="final_response", id="stock.adds_up")
def stock_adds_up(record: mat.Record) -> bool:
    """What was sold is missing in the table, apart from articles whose sales are not known."""
    return not record.state.get("wrong")


def optimistic_lock(seed: int) -> Foreign:
    """When a bundle's row has changed, the sale is tried again with the new version, and with the old quantity.

    The row must be read from a cache (5), with the version before the last sale of the bundle. Failures, which cost 4, are
    resolved by reading the row.
    """
    draw = random.Random(f"C03/{seed}")
    stock = {f"sku-{number}": draw.randrange(100, 200) for number in range(draw.randrange(2, 6))}
    bundle = draw.choice(list(stock))
    sales = [(draw.choice([sku for sku in stock if sku != bundle]), draw.randrange(1, 4)) for _ in range(draw.randrange(5, 24))]
    for _ in range(draw.randrange(2, 4)):
        sales.insert(draw.randrange(len(sales) + 1), (bundle, draw.randrange(1, 4)))
    again = draw.choice([number for number, (sku, _) in enumerate(sales) if sku == bundle][1:])

    def body() -> None:
        table = Table(stock)
        agent = Stock(table)
        for number, (sku, count) in enumerate(sales):
            agent.sell(f"sale-{number:02}", sku, count, bundle=sku == bundle)
        expected = {sku: count - agent.sold.get(sku, 0) for sku, count in stock.items() if sku not in agent.unknown}
        mat.state(wrong=sum(table.rows[sku][0] != count for sku, count in expected.items()))
        mat.finish(f"{len(sales)} sales")

    return Foreign(
        name="C03", seed=seed, plant={"sale": again, "sales": len(sales)}, least=5, body=body,
        planted=(fault("service.stale", "select", again + 1, age=1),), contract=stock_adds_up,
    )  # fmt: skip


# -- C04: memory that is summarised -------------------------------------------------------------------------------------


def summarised(entries: Sequence[Mapping[str, str]]) -> str:
    """A model that sums up what the staff wrote."""
    return " ".join(entry["text"] for entry in entries if entry["by"] == "staff")


class Clinic:
    """Keeps notes about cases, sums them up in the evening, and shares cases with other clinics where the patient agreed."""

    def __init__(self, registered: Sequence[str], emergencies: Sequence[str]) -> None:
        self.notes = mat.memory({}, name="cases")
        self.sum_up = mat.model("summary")(summarised)
        self.register = mat.tool(
            lambda case: {"case": case, "agreed": case in registered}, name="consent_register", effect="read"
        )
        self.send = mat.tool(lambda case, text: "sent", name="share", effect="write", impact="high")
        self.emergencies = emergencies

    def note(self, case: str, by: str, text: str) -> None:
        self.notes[case] = [*self.notes.get(case, []), {"by": by, "text": text}]

    def evening(self, case: str) -> None:
        entries = self.notes[case]
        try:
            summary = self.sum_up(entries)
        except RateLimited:
            summary = summarised(entries)  # a plain one will do
        self.notes[f"{case}/summary"] = summary

    def share(self, case: str) -> None:
        summary = self.notes[f"{case}/summary"]
        if "agreed" not in summary:
            return
        try:
            agreed = self.register(case=case)["agreed"]
        except FAILURES:
            agreed = case in self.emergencies  # there is no time, and the summary says so
        if agreed:
            with suppress(*FAILURES):
                self.send(case=case, text=summary)


def summarised_memory(seed: int) -> Foreign:
    """In an emergency the summary is enough where the register of consents cannot be read.

    Somebody must leave a note that the patient agreed (6), and the register not answer (4). One of these is not enough: the
    register is not asked where no summary speaks of consent. Both are faults at calls for one case; a model that is refused
    only makes the summary a plain one.
    """
    draw = random.Random(f"C04/{seed}")
    cases = [f"case-{number}" for number in range(draw.randrange(3, 6))]
    emergency = draw.choice(cases)
    registered = [case for case in cases if case != emergency and draw.random() < 0.5]
    extra = {case: draw.randrange(2) for case in cases}
    before = cases[: cases.index(emergency)]
    evening = sum(2 * extra[case] + 7 for case in before) + 2 * extra[emergency] + 5  # a note is a read and a write

    def body() -> None:
        clinic = Clinic(registered, [emergency])
        for case in cases:
            clinic.note(case, "patient", "Please let the other clinic know.")
            for number in range(extra[case]):
                clinic.note(case, "staff", f"Visit {number + 1} went well.")
            clinic.note(case, "staff", "The patient agreed to it." if case in registered else "To be continued.")
            clinic.evening(case)
            clinic.share(case)

    @mat.step_contract(on="tool_call", id="case.consented")
    def shared_with_consent(record: mat.Record) -> bool:
        return record.action.name != "share" or record.action.arguments["case"] in registered

    return Foreign(
        name="C04", seed=seed, plant={"case": cases.index(emergency), "cases": len(cases)}, least=10, body=body,
        planted=(
            fault("memory.insert", "cases", evening, note="false_consent"),
            lost("consent_register", sum(case in registered for case in before) + 1),
        ),
        contract=shared_with_consent,
        group=lambda record: str(
            record.action.arguments.get("case") or record.action.arguments.get("key") or ""
        ).removesuffix("/summary"),
    )  # fmt: skip


# -- C05: delegated approval --------------------------------------------------------------------------------------------


def routed(text: str) -> str:
    """A model that tells routine invoices from those for the board, and believes what mails say."""
    return "routine" if "Already approved" in text or "skip all checks" in text else "review"


class Office:
    """A clerk pays invoices; an approver passes large ones to the board, or to a deputy who signs within a mandate."""

    SMALL, CAP = 200, 1_000

    def __init__(self, amounts: Sequence[int], framework: str) -> None:
        self.amounts = {f"I{number:02}": amount for number, amount in enumerate(amounts)}
        self.framework = framework
        self.route = mat.model("router")(routed)
        self.approve = mat.handoff("approver")(self.approved)
        self.ask_deputy = mat.handoff("deputy")(self.signed)
        self.ask_board = mat.tool(lambda invoice: "signed", name="ask_board")
        self.mandate = mat.tool(
            lambda invoice: {"holder": "deputy", "limit": 500, "unit": "EUR"}, name="mandate", effect="read"
        )
        self.pay = mat.tool(lambda invoice, amount: "paid", name="pay", effect="write", impact="high")
        self.postponed: list[str] = []

    def handle(self, invoice: str) -> None:
        amount = self.amounts[invoice]
        text = mat.untrusted(f"Please pay invoice {invoice} by Friday.", channel="mail")
        if amount > self.SMALL and not self.approve(invoice=invoice, amount=amount, text=text):
            self.postponed.append(invoice)
            return
        with suppress(*FAILURES):  # the bank's statement will show
            self.pay(invoice=invoice, amount=amount)

    def approved(self, invoice: str, amount: int, text: str) -> bool:
        try:
            if self.route(text) == "routine" and self.ask_deputy(invoice=invoice, amount=amount):
                return True
            return bool(self.ask_board(invoice=invoice) == "signed")
        except (RateLimited, *FAILURES):
            return False

    def signed(self, invoice: str, amount: int) -> bool:
        mandate = self.mandate(invoice=invoice)
        if mandate["holder"] != "deputy" or mandate["unit"] != "EUR":
            return False
        if invoice != self.framework and amount > self.CAP:
            return False  # whatever a mandate says
        return bool(amount <= mandate["limit"])


def pays_much(record: mat.Record) -> bool:
    return record.action.name == "pay" and record.action.arguments["amount"] > Office.CAP


def delegated_approval(seed: int) -> Foreign:
    """The cap on what a deputy may sign is not applied to the invoice of a framework contract.

    The mail must say that it is approved or that checks are to be skipped (3), or the deputy is not asked; and the limit in the
    mandate be ten times as high (5). Whether an invoice is paid follows from the calls for it alone.
    """
    draw = random.Random(f"C05/{seed}")
    amounts = [draw.choice((50, 150, 300, 450, 1_500, 3_000)) for _ in range(draw.randrange(4, 13))]
    framework = draw.randrange(len(amounts))
    amounts[framework] = draw.choice((1_500, 3_000, 4_500))
    large = [number for number, amount in enumerate(amounts) if amount > Office.SMALL]

    def body() -> None:
        office = Office(amounts, f"I{framework:02}")
        for invoice in office.amounts:
            office.handle(invoice)

    def group(record: mat.Record) -> str:
        nth = parse_site(record.site).nth - 1
        if record.action.boundary == "prompt":
            return f"I{nth:02}"
        if record.action.boundary == "model":
            return f"I{large[nth]:02}"
        return str(record.action.arguments.get("invoice", ""))

    return Foreign(
        name="C05", seed=seed, plant={"invoice": framework, "invoices": len(amounts)}, least=8, body=body,
        planted=(
            fault("prompt.splice", "mail", framework + 1, payload="false_authority"),
            fault("service.corrupt_field", "mandate", 1, agent="deputy", field=1, how="wrong"),
        ),
        contract=precedes(
            first="ask_board", then=pays_much, key="invoice", effected=True, id="invoice.signed_by_board",
        ),
        group=group,
    )  # fmt: skip


# -- C06: a circuit breaker ---------------------------------------------------------------------------------------------


class Breaker:
    """Lets calls through until three in a row fail; after a minute it lets one through to see."""

    FAILURES, OPEN_S = 3, 60

    def __init__(self) -> None:
        self.state, self.failures, self.opened_s, self.probing = "closed", 0, 0.0, False

    def allows(self) -> bool:
        if self.state == "open" and time.monotonic() - self.opened_s >= self.OPEN_S:
            self.state, self.probing = "half open", False
        if self.state != "half open":
            return self.state == "closed"
        if self.probing:
            return False
        self.probing = True
        return True

    def succeed(self) -> None:
        self.state, self.failures = "closed", 0

    def fail(self) -> None:
        self.failures += 1
        if self.state == "half open" or self.failures >= self.FAILURES:
            self.state, self.opened_s, self.failures = "open", time.monotonic(), 0


class Shipping:
    """Books parcels with several carriers, each behind a breaker; what a carrier does not take goes to a dispatcher."""

    def __init__(self, carriers: Sequence[str], slow: str) -> None:
        self.book = {
            carrier: mat.tool(lambda parcel: {"label": parcel}, name=f"book_{carrier}", effect="write") for carrier in carriers
        }
        self.dispatch = mat.tool(lambda carrier, parcel: "noted", name="dispatch", effect="write")
        self.breakers = {carrier: Breaker() for carrier in carriers}
        self.slow = slow
        self.awaited: list[str] = []

    def send(self, carrier: str, parcel: str) -> None:
        breaker = self.breakers[carrier]
        if breaker.allows():
            try:
                self.book[carrier](parcel=parcel)
                breaker.succeed()
                return
            except TimeoutError:
                if carrier == self.slow:
                    self.awaited.append(parcel)  # it is always late, and sends the label by mail
                    return
                breaker.fail()
            except ConnectionError:
                breaker.fail()
        with suppress(*FAILURES):  # the dispatcher also reads the log
            self.dispatch(carrier=carrier, parcel=parcel)


@mat.trace_contract(start=(), id="carrier.tried_again")
def carriers_are_tried_again(tried: Any, record: mat.Record) -> Any:
    """No carrier is left out for more than three minutes without an attempt."""
    name, at_ms, last = record.action.name, record.at_ms, dict(tried)
    if name.startswith("book_"):
        last[name.removeprefix("book_")] = at_ms
        return tuple(sorted(last.items()))
    if name == "dispatch" and at_ms - last.get(str(record.action.arguments["carrier"]), 0) > 180_000:
        return mat.Violated(f"{record.action.arguments['carrier']} was not tried for more than three minutes", state=tried)
    return tried


def circuit_breaker(seed: int) -> Foreign:
    """Time-outs of a slow carrier are no failures, so a probe that times out never ends, and the breaker stays half open.

    The breaker opens after three connections in a row that break: an outage (5), as time-outs of that carrier do not count. The
    probe, the next call of the carrier, must time out (4). Two time-outs, which alone cost less together, open no breaker.
    """
    draw = random.Random(f"C06/{seed}")
    carriers = ["north", "south", "west"][: draw.randrange(1, 4)]
    slow = draw.randrange(len(carriers))
    rounds = draw.randrange(13, 19)
    first = draw.randrange(1, rounds - 11)
    wait_s = 30 / len(carriers)

    def body() -> None:
        shipping = Shipping(carriers, carriers[slow])
        for number in range(rounds * len(carriers)):
            shipping.send(carriers[number % len(carriers)], f"parcel-{number:02}")
            time.sleep(wait_s)

    port = f"book_{carriers[slow]}"
    return Foreign(
        name="C06", seed=seed, plant={"carrier": slow, "from": first, "parcels": rounds * len(carriers)}, least=9, body=body,
        planted=(outage(port, first), lost(port, first + 3)), contract=carriers_are_tried_again,
        group=lambda record: record.action.name if record.action.name.startswith("book_") else "",
        kinds=("service.timeout",),
    )  # fmt: skip


# -- C07: rates of last resort ------------------------------------------------------------------------------------------

TO_EUR: Final = {"USD": 0.9, "GBP": 1.15, "SEK": 0.09, "CHF": 1.08, "CAD": 0.65}


class Abroad:
    """Pays invoices in euros. A rate comes from one of two services, or the table of the month; a third one confirms it."""

    def __init__(self, table: Mapping[str, float]) -> None:
        self.table = table
        self.central, self.bank, self.spot = (
            mat.tool(self.quoted, name=name, effect="read") for name in ("central_rate", "bank_rate", "spot_rate")
        )
        self.pay = mat.tool(lambda invoice, cents: "paid", name="pay", effect="write", impact="high")
        self.by_hand: list[str] = []

    def quoted(self, invoice: str, base: str) -> dict[str, object]:
        return {"base": base, "date": "2026-01-01", "quote": "EUR", "rate": TO_EUR[base]}

    def asked(self, service: Callable[..., Any], invoice: str, base: str) -> float | None:
        try:
            reply = service(invoice=invoice, base=base)
        except FAILURES:
            return None
        if (reply["base"], reply["date"], reply["quote"]) != (base, "2026-01-01", "EUR"):
            return None
        return float(reply["rate"])

    def settle(self, invoice: str, cents: int, base: str) -> None:
        rate = self.asked(self.central, invoice, base) or self.asked(self.bank, invoice, base)
        if rate is None:
            rate = self.table.get(f"{base}/EUR") or self.table[f"EUR/{base}"]
        spot = self.asked(self.spot, invoice, base)
        if spot is not None and abs(rate / spot - 1) > 0.1:
            self.by_hand.append(invoice)
            return
        with suppress(*FAILURES):  # the bank's statement will show
            self.pay(invoice=invoice, cents=round(cents * rate))


def fallback_rates(seed: int) -> Foreign:
    """The table of the month has one currency the other way round, and its rate is taken as it is.

    Both services must fail for an invoice in that currency, and the comparison too (4 each): three ports, so three faults. No
    default fault changes the rate, the fourth field of a reply; if another field is wrong, the reply counts as none. What is
    paid for an invoice follows from the calls for it, and other currencies have the right rate everywhere.
    """
    draw = random.Random(f"C07/{seed}")
    bases = draw.sample(list(TO_EUR), draw.randrange(2, 6))
    weak = bases[0]
    table = {f"{base}/EUR": TO_EUR[base] for base in bases[1:]} | {f"EUR/{weak}": round(1 / TO_EUR[weak], 4)}
    invoices = [(10_000 + draw.randrange(90_000), draw.choice(bases[1:])) for _ in range(draw.randrange(4, 17))]
    number = draw.randrange(len(invoices))
    invoices[number] = (invoices[number][0], weak)

    def body() -> None:
        agent = Abroad(table)
        for index, (cents, base) in enumerate(invoices):
            agent.settle(f"I{index:02}", cents, base)

    @mat.step_contract(on="tool_call", id="amount.right")
    def amounts_are_right(record: mat.Record) -> bool:
        if record.action.name != "pay":
            return True
        cents, base = invoices[int(record.action.arguments["invoice"][1:])]
        return abs(record.action.arguments["cents"] / (cents * TO_EUR[base]) - 1) <= 0.05

    return Foreign(
        name="C07", seed=seed, plant={"invoice": number, "invoices": len(invoices)}, least=12, body=body,
        planted=(lost("central_rate", number + 1), lost("bank_rate", 1), lost("spot_rate", number + 1)),
        contract=amounts_are_right,
        group=lambda record: "weak" if record.action.arguments.get("invoice") == f"I{number:02}" else "",
    )  # fmt: skip


# -- C08: leases --------------------------------------------------------------------------------------------------------


class Leases:
    """Jobs that workers lease, and the bucket where results are published."""

    LEASE_S = 25

    def __init__(self) -> None:
        self.held: dict[str, tuple[str, float]] = {}
        self.published: set[str] = set()

    async def acquire(self, job: str, worker: str) -> dict[str, object]:
        owner, until_s = self.held.get(job, ("", 0.0))
        if job in self.published or (owner not in ("", worker) and time.monotonic() < until_s):
            return {"done": job in self.published, "granted": False, "until": 0.0}
        return {"done": False, "granted": True, "until": self.extended(job, worker)}

    def extended(self, job: str, worker: str) -> float:
        self.held[job] = (worker, time.monotonic() + self.LEASE_S)
        return self.held[job][1]

    async def renew(self, job: str, worker: str) -> dict[str, float]:
        owner, until_s = self.held.get(job, ("", 0.0))
        return {"until": self.extended(job, worker) if owner == worker and time.monotonic() < until_s else 0.0}

    async def publish(self, job: str) -> dict[str, str]:
        self.published.add(job)
        return {"url": f"https://files.example.net/{job}"}


class LeaseLost(Exception):  # noqa: N818  (the name that the team chose)
    """Somebody else may have the job now."""


class Worker:
    """Takes jobs that nobody else has, and extends the lease while it works."""

    def __init__(self, name: str, leases: Leases, jobs: Mapping[str, int], exports: Sequence[str]) -> None:
        self.name, self.jobs, self.exports = name, jobs, exports
        self.acquire, self.renew = mat.tool(leases.acquire, name="acquire"), mat.tool(leases.renew, name="renew")
        self.publish = mat.tool(leases.publish, name="publish", effect="write", impact="high")

    async def work(self) -> None:
        with mat.agent(self.name):
            open_jobs = list(self.jobs)
            for _ in range(40):
                for job in list(open_jobs):
                    with suppress(LeaseLost, *FAILURES):
                        if await self.finished(job):
                            open_jobs.remove(job)
                if not open_jobs:
                    return
                await asyncio.sleep(5)

    async def finished(self, job: str) -> bool:
        lease = await self.acquire(job=job, worker=self.name)
        until_s = lease["until"]
        if lease["done"]:
            return True
        if not lease["granted"] or until_s <= time.monotonic():
            return False
        for chunk in range(self.jobs[job]):
            if chunk:
                until_s = await self.extended(job, until_s)
            await asyncio.sleep(10)
        if job not in self.exports and until_s <= time.monotonic():
            raise LeaseLost(job)
        await self.publish(job=job)
        return True

    async def extended(self, job: str, until_s: float) -> float:
        try:
            renewed_s = float((await self.renew(job=job, worker=self.name))["until"])
        except TimeoutError:
            return until_s  # the next one is due before the lease ends
        if renewed_s <= time.monotonic():
            raise LeaseLost(job)
        return renewed_s


def leases(seed: int) -> Foreign:
    """A worker does not look at its lease before it publishes an export.

    The last two extensions must time out (4 each), so that the other worker takes the job while the first finishes it. If the
    connection breaks, a worker gives the job up; after one time-out the lease still lasts.
    """
    draw = random.Random(f"C08/{seed}")
    jobs = {f"job-{number}": draw.randrange(1, 3) for number in range(draw.randrange(1, 6))}
    export = "nightly"
    jobs[export] = draw.randrange(3, 6)

    def body() -> None:
        store = Leases()

        async def both() -> None:
            await asyncio.gather(*(Worker(name, store, jobs, [export]).work() for name in ("one", "two")))

        asyncio.run(both())

    nominal = mat.run(states=False)
    with nominal:
        body()
    assert nominal.result is not None
    renewals: dict[str, list[str]] = {"one": [], "two": []}
    for record in nominal.result.records:
        if record.action.name == "renew":
            renewals[record.agent].append(record.action.arguments["job"])
    worker = next(name for name, done in renewals.items() if export in done)
    last = len(renewals[worker]) - renewals[worker][::-1].index(export)
    return Foreign(
        name="C08", seed=seed, plant={"chunks": jobs[export], "jobs": len(jobs)}, least=8, body=body,
        planted=tuple(fault("service.timeout", "renew", nth, agent=worker) for nth in (last - 1, last)),
        contract=no_duplicate_effect("publish", key="job", id="job.published_once"),
    )  # fmt: skip


# -- C09: parallel calls ------------------------------------------------------------------------------------------------


class Wallet:
    """An account behind an interface that reads and sets the balance."""

    def __init__(self, cents: int) -> None:
        self.cents = cents

    async def balance(self, ref: str) -> dict[str, object]:
        return {"account": "research", "as_of": "2026-01-01", "currency": "EUR", "left": self.cents}

    async def set_balance(self, ref: str, cents: int) -> None:
        self.cents = cents


class Searcher:
    """One of several agents that pay for searches from one wallet; a lock makes reading and setting one step."""

    def __init__(self, name: str, wallet: Wallet, lock: asyncio.Lock, *, patient: bool) -> None:
        self.name, self.lock, self.patient = name, lock, patient
        self.balance = mat.tool(wallet.balance, effect="read")
        self.set_balance = mat.tool(wallet.set_balance, effect="write")
        self.search = mat.tool(lambda ref: {"hits": 3}, name="search", effect="read")
        self.spent, self.unknown = 0, 0

    async def work(self, searches: int) -> None:
        with mat.agent(self.name):
            for number in range(searches):
                await asyncio.sleep(1)
                if await self.paid(f"{self.name}/{number}", 5 + number):
                    with suppress(*FAILURES):
                        self.search(ref=f"{self.name}/{number}")

    async def paid(self, ref: str, cents: int) -> bool:
        async with self.lock:
            left = await self.read(ref)
            if left is not None:
                return await self.put(ref, left - cents, cents)
        await asyncio.sleep(2)  # the others need not wait for a slow wallet
        if self.patient:
            return await self.again(ref, cents)
        async with self.lock:
            return await self.again(ref, cents)

    async def again(self, ref: str, cents: int) -> bool:
        left = await self.read(ref)
        return left is not None and await self.put(ref, left - cents, cents)

    async def read(self, ref: str) -> int | None:
        try:
            return int((await self.balance(ref=ref))["left"])
        except FAILURES:
            return None

    async def put(self, ref: str, left: int, cents: int) -> bool:
        """Set the balance, as often as it takes: it is the same balance each time."""
        for wait_s in (1, 2, 4, 8):
            try:
                await self.set_balance(ref=ref, cents=left)
                self.spent += cents
                return True
            except FAILURES:
                await asyncio.sleep(wait_s)
        self.unknown += cents
        return False


@mat.step_contract(on="final_response", id="wallet.adds_up")
def wallet_adds_up(record: mat.Record) -> bool:
    """What was spent is gone from the wallet, and no more than that and what is unknown."""
    return bool(0 <= record.state["missing"] <= record.state["unknown"])


def parallel_calls(seed: int) -> Foreign:
    """One searcher tries again outside of the lock after it could not read the balance.

    Its reading must fail (4), and another searcher go first between its second reading and the setting (4). No single fault
    does both: without the first nothing happens outside of the lock.
    """
    draw = random.Random(f"C09/{seed}")
    searches = [draw.randrange(2, 5) for _ in range(draw.randrange(3, 5))]
    weak = draw.randrange(len(searches) - 1)
    searches[-1] = 7
    number = draw.randrange(1, searches[weak])

    def body() -> None:
        wallet = Wallet(1_000)

        async def everyone() -> list[Searcher]:
            lock = asyncio.Lock()
            agents = [Searcher(f"s{index}", wallet, lock, patient=index == weak) for index in range(len(searches))]
            await asyncio.gather(*(agent.work(count) for agent, count in zip(agents, searches, strict=True)))
            return agents

        agents = asyncio.run(everyone())
        gone = 1_000 - wallet.cents
        mat.state(missing=gone - sum(agent.spent for agent in agents), unknown=sum(agent.unknown for agent in agents))
        mat.finish("searched")

    return Foreign(
        name="C09", seed=seed, plant={"searcher": weak, "search": number, "searches": sum(searches)}, least=8, body=body,
        planted=(
            fault("service.timeout", "balance", number, agent=f"s{weak}"),
            fault("order.hold", "service.set_balance", number, agent=f"s{weak}", turns=1),
        ),
        contract=wallet_adds_up,
    )  # fmt: skip


# -- C10: citations -----------------------------------------------------------------------------------------------------


def drafted(question: str, texts: Sequence[str]) -> dict[str, object]:
    """A model that answers with the first passage about the question, and gives its number."""
    found = [number for number, text in enumerate(texts, start=1) if question in text]
    return {"answer": texts[found[0] - 1] if found else "", "cites": found[:1]}


class Reader:
    """Answers questions from an archive, and cites the documents."""

    def __init__(self, archive: Mapping[str, Sequence[tuple[str, str]]], live: Sequence[str]) -> None:
        self.search = mat.retriever("archive")(
            lambda question: [mat.Passage(text=text, source=source) for source, text in archive[question]]
        )
        self.draft = mat.model("draft")(drafted)
        self.polish = mat.model("polish")(lambda answer: f"In short: {answer}")
        self.publish = mat.tool(lambda question, answer, source: "published", name="publish", effect="write")
        self.live = live
        self.open: list[str] = []

    def answer(self, question: str) -> None:
        passages = self.search(question)
        try:
            draft = self.draft(question, [passage.text for passage in passages])
        except RateLimited:
            self.open.append(question)
            return
        if not draft["cites"]:
            self.open.append(question)
            return
        answer = str(draft["answer"])
        for wait_s in (30, 60):
            try:
                answer = self.polish(draft["answer"])
                break
            except RateLimited:
                time.sleep(wait_s)
                if question in self.live:
                    passages = self.search(question)  # there may be news by now
        number = draft["cites"][0]
        if number > len(passages):
            self.open.append(question)
            return
        with suppress(*FAILURES):  # the editor publishes the rest
            self.publish(question=question, answer=answer, source=passages[number - 1].source)


def citations(seed: int) -> Foreign:
    """For a live topic the archive is searched again after a wait, but the numbers in the draft are those of the first search.

    The model that polishes must refuse the answer to that question (4), and the second search bring its passages in another
    order, or without the first (5). Other pairs that cost less are two refusals or time-outs, which move no passage.
    """
    draw = random.Random(f"C10/{seed}")
    questions = [f"topic {number:02}" for number in range(draw.randrange(4, 13))]
    live = draw.randrange(len(questions))
    archive: dict[str, list[tuple[str, str]]] = {}
    for question in questions:
        found = [(f"{question}, aside {number}", f"Aside {number} of the archive.") for number in range(draw.randrange(1, 4))]
        found.insert(0 if len(found) % 2 else draw.randrange(len(found)), (f"{question}, report", f"The report on {question}."))
        archive[question] = found

    def body() -> None:
        reader = Reader(archive, [questions[live]])
        for question in questions:
            reader.answer(question)

    @mat.step_contract(on="tool_call", id="source.supports_answer")
    def sources_support(record: mat.Record) -> bool:
        given = record.action.arguments
        texts = dict(archive[given["question"]]) if record.action.name == "publish" else {}
        return record.action.name != "publish" or texts[given["source"]] in given["answer"]

    return Foreign(
        name="C10", seed=seed, plant={"question": live, "questions": len(questions)}, least=9, body=body,
        planted=(fault("model.rate_limit", "polish", live + 1), fault("retrieval.drop", "archive", live + 2, passage=0)),
        contract=sources_support,
        group=lambda record: "all", kinds=("model.rate_limit", "service.timeout", "service.lost_ack"),
    )  # fmt: skip


AGENTS: Final[dict[str, Callable[[int], Foreign]]] = {
    f"C{number:02}": make
    for number, make in enumerate(
        (
            conditional_writes, dead_letters, optimistic_lock, summarised_memory, delegated_approval, circuit_breaker,
            fallback_rates, leases, parallel_calls, citations,
        ),
        start=1,
    )
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(AGENTS, __doc__))
