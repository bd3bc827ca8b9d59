"""Ten more agents by an author who had not seen the search, on other ground than `foreign`: right without faults, one mistake.

Run: python benchmarks/foreign_more.py [--seeds 20] [--only C01,C02] [--sample 200]: prove what the cheapest counterexamples cost.

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

import mat
from foreign import FAILURES, Foreign, fault, lost, main, outage
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
    """Rows with a version, which every update must name."""

    def __init__(self, stock: Mapping[str, int]) -> None:
        self.rows = {sku: (quantity, 1) for sku, quantity in stock.items()}

    def select(self, sku: str) -> dict[str, object]:
        quantity, version = self.rows[sku]
        return {"bin": f"bin of {sku}", "id": sku, "name": f"article {sku}", "quantity": quantity, "version": version}

    def update(self, sku: str, quantity: int, version: int) -> dict[str, int]:
        if self.rows[sku][1] != version:
            return {"rows": 0}
        self.rows[sku] = (quantity, version + 1)
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

    def row(self, sku: str) -> tuple[int, int]:
        for wait_s in (1, 5, 25, 0):
            try:
                found = self.select(sku=sku)
                if found["id"] == sku:
                    return found["quantity"], found["version"]
            except FAILURES:
                time.sleep(wait_s)
        raise Unknown(sku)

    def written(self, sku: str, quantity: int, version: int) -> bool:
        """Whether the row has the new quantity; after a failure or a conflict it is read."""
        with suppress(*FAILURES):
            if self.update(sku=sku, quantity=quantity, version=version)["rows"] == 1:
                return True
        return self.row(sku) == (quantity, version + 1)

    def sell(self, sku: str, count: int, *, bundle: bool) -> None:
        try:
            quantity, version = self.row(sku)
        except Unknown:
            return
        left = quantity - count
        try:
            for _ in range(4):
                if self.written(sku, left, version):
                    self.sold[sku] = self.sold.get(sku, 0) + count
                    return
                quantity, version = self.row(sku)
                if not bundle:  # what is left of a bundle was computed from its parts
                    left = quantity - count
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
    sales = [(draw.choice(list(stock)), draw.randrange(1, 4)) for _ in range(draw.randrange(5, 24))]
    for _ in range(draw.randrange(2, 4)):
        sales.insert(draw.randrange(len(sales) + 1), (bundle, draw.randrange(1, 4)))
    again = draw.choice([number for number, (sku, _) in enumerate(sales) if sku == bundle][1:])

    def body() -> None:
        table = Table(stock)
        agent = Stock(table)
        for sku, count in sales:
            agent.sell(sku, count, bundle=sku == bundle)
        expected = {sku: count - agent.sold.get(sku, 0) for sku, count in stock.items() if sku not in agent.unknown}
        mat.state(wrong=sum(table.rows[sku][0] != count for sku, count in expected.items()))
        mat.finish(f"{len(sales)} sales")

    return Foreign(
        name="C03", seed=seed, plant={"sale": again, "sales": len(sales)}, least=5, body=body,
        planted=(fault("service.stale", "select", again + 1, age=1),), contract=stock_adds_up,
    )  # fmt: skip


AGENTS: Final[dict[str, Callable[[int], Foreign]]] = {
    f"C{number:02}": make for number, make in enumerate((conditional_writes, dead_letters, optimistic_lock), start=1)
}


if __name__ == "__main__":
    sys.exit(main(AGENTS, __doc__))
