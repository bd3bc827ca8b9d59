"""Ten more agents by an author who had not seen the search, on ground that none of the other three sets has.

Run: python benchmarks/foreign_fourth.py [--seeds 20] [--only E01,E02] [--sample 200]: prove what the cheapest cost.

What `foreign` says about faults, declarations and the proof is true here as well.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import random
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from foreign import FAILURES, Foreign, calls, fault, lost, main, outage

import mat
from mat.errors import RateLimited
from mat_contracts import no_duplicate_effect

# -- E01: feature flags -------------------------------------------------------------------------------------------------

BUNDLED: Final = {"dark_mode": "off", "new_ledger": "on", "quick_reply": "off"}
BUNDLED_VERSION: Final = 40


class FlagServer:
    """Serves all flags with a version, and what has changed since one."""

    def __init__(self) -> None:
        self.flags = dict(BUNDLED)
        self.log: list[dict[str, str]] = []

    def switch(self, flag: str, state: str) -> None:
        self.flags[flag] = state
        self.log.append({"flag": flag, "state": state})

    def snapshot(self) -> dict[str, object]:
        return {"flags": dict(self.flags), "version": BUNDLED_VERSION + len(self.log)}

    def changes(self, since: int) -> dict[str, object]:
        return {"changes": self.log[since - BUNDLED_VERSION :], "version": BUNDLED_VERSION + len(self.log)}


class Billing:
    """Books orders by the new ledger where its flag is on. It polls for changes, and loads all flags when it misses some."""

    def __init__(self, server: FlagServer) -> None:
        self.snapshot = mat.tool(server.snapshot, name="snapshot", effect="read")
        self.changes = mat.tool(server.changes, name="changes", effect="read")
        self.book_new = mat.tool(lambda order: "booked", name="book_new", effect="write")
        self.book_old = mat.tool(lambda order: "booked", name="book_old", effect="write")
        self.flags = dict(BUNDLED)
        self.version, self.missed = BUNDLED_VERSION, 0
        self.unbooked: list[int] = []

    def reload(self) -> None:
        try:
            reply = self.snapshot()
        except FAILURES:
            self.flags = dict(BUNDLED)  # what this release was tested with
            return
        self.flags, self.version, self.missed = dict(reply["flags"]), reply["version"], 0

    def poll(self) -> None:
        try:
            reply = self.changes(since=self.version)
            if reply["version"] != self.version + len(reply["changes"]):
                raise ConnectionError("some changes are missing")
            if any(change["flag"] not in BUNDLED for change in reply["changes"]):
                raise ConnectionError("a flag is unknown")
        except FAILURES:
            self.missed += 1
            if self.missed >= 2:
                self.reload()
            return
        self.missed, self.version = 0, reply["version"]
        self.flags.update({change["flag"]: change["state"] for change in reply["changes"]})

    def book(self, order: int) -> None:
        book = self.book_new if self.flags["new_ledger"] == "on" else self.book_old
        try:
            book(order=order)
        except FAILURES:
            self.unbooked.append(order)  # the run at night books it


def feature_flags(seed: int) -> Foreign:
    """When the flags cannot be loaded, those of the release are in force, but the version stays: no poll brings what changed.

    After the ledger was switched off, two polls in a row must fail, by an outage (5), and then the loading of all flags (4),
    which otherwise happens at the start alone. These are reads, so a lost reply is no other than a lost request, and only polls
    and loads decide about flags. Orders may go by the old state for three rounds.
    """
    draw = random.Random(f"E01/{seed}")
    rounds = draw.randrange(9, 16)
    off = draw.randrange(2, rounds - 5)
    first = draw.randrange(off + 2, rounds - 2)  # the first of the polls that fail
    other = draw.randrange(rounds)

    def body() -> None:
        server = FlagServer()
        agent = Billing(server)
        agent.reload()
        for number in range(rounds):
            if number == other:
                server.switch("dark_mode", "on")
            if number == off:
                server.switch("new_ledger", "off")
            agent.poll()
            agent.book(number)
            time.sleep(60)

    @mat.step_contract(on="tool_call", id="ledger.switched_off")
    def ledger_is_off(record: mat.Record) -> bool:
        return record.action.name != "book_new" or record.action.arguments["order"] < off + 3

    return Foreign(
        name="E01", seed=seed, plant={"off": off, "poll": first, "rounds": rounds}, least=9, body=body,
        planted=(outage("changes", first + 1), lost("snapshot", 2)), contract=ledger_is_off,
        group=lambda record: "flags" if record.action.name in ("changes", "snapshot") else "",
        kinds=("service.timeout",),
    )  # fmt: skip


# -- E02: a registry of names -------------------------------------------------------------------------------------------


class Registry:
    """Knows the addresses of mailboxes. One moves; its old address forwards for a minute, and then belongs to somebody else."""

    LIFE_S = 60

    def __init__(self, addresses: Mapping[str, str], moving: str, at_s: float) -> None:
        self.addresses, self.moving = dict(addresses), moving
        self.move_s = time.monotonic() + at_s
        self.astray: list[str] = []

    async def resolve(self, tenant: str) -> dict[str, object]:
        now_s = time.monotonic()
        moved = tenant == self.moving and now_s >= self.move_s
        address = "10.0.1.1" if moved else self.addresses[tenant]
        return {"address": address, "tenant": tenant, "valid_until": now_s + self.LIFE_S}

    async def send(self, address: str, tenant: str, text: str) -> dict[str, object]:
        if address not in (*self.addresses.values(), "10.0.1.1"):
            return {"status": 404}
        forwards = tenant != self.moving or time.monotonic() < self.move_s + self.LIFE_S
        if address != "10.0.1.1" and not (address == self.addresses[tenant] and forwards):
            self.astray.append(text)
        return {"status": 202}


class Mailer:
    """Two couriers bring reports to mailboxes. They ask a registry nearby and then one far away, and remember the answers."""

    def __init__(self, registry: Registry) -> None:
        self.ask_near = mat.tool(registry.resolve, name="resolve_near", effect="read")
        self.ask_far = mat.tool(registry.resolve, name="resolve_far", effect="read")
        self.send = mat.tool(registry.send, name="send", effect="write")
        self.known: dict[str, tuple[str, float]] = {}
        self.kept: list[str] = []

    async def located(self, tenant: str) -> str | None:
        address, until_s = self.known.get(tenant, (None, 0.0))
        if address is not None and time.monotonic() < until_s:
            return address
        for ask in (self.ask_near, self.ask_far):
            try:
                reply = await ask(tenant=tenant)
            except FAILURES:
                continue
            now_s = time.monotonic()
            if reply["tenant"] == tenant and now_s < reply["valid_until"]:
                self.known[tenant] = (reply["address"], min(reply["valid_until"], now_s + 60))
                return str(reply["address"])
        return address  # mailboxes hardly ever move

    async def bring(self, tenant: str, text: str) -> None:
        address = await self.located(tenant)
        if address is None:
            self.kept.append(text)
            return
        try:
            if (await self.send(address=address, tenant=tenant, text=text))["status"] != 202:
                self.kept.append(text)
        except FAILURES:
            self.kept.append(text)

    async def courier(self, name: str, tenants: Sequence[str], rounds: int, start_s: int) -> None:
        with mat.agent(name):
            await asyncio.sleep(start_s)
            for number in range(rounds):
                for tenant in tenants:
                    await self.bring(tenant, f"report {number} for {tenant}")
                await asyncio.sleep(90)


@mat.step_contract(on="final_response", id="report.to_its_reader")
def reports_reach_their_readers(record: mat.Record) -> bool:
    """No report goes to an address that belongs to somebody else."""
    return not record.state["astray"]


def registry_of_names(seed: int) -> Foreign:
    """Where no registry answers, the last known address is taken, however old it is.

    For the first report after a mailbox has moved, the near registry must fail, and then the far one, which is not asked
    otherwise (4 each). No single fault does it, and there are no pairs that cost less.
    """
    draw = random.Random(f"E02/{seed}")
    tenants = [f"tenant-{number}" for number in range(draw.randrange(2, 6))]
    addresses = {tenant: f"10.0.0.{number}" for number, tenant in enumerate(tenants, start=1)}
    rounds = draw.randrange(3, 5)
    moving = draw.randrange(len(tenants))
    moves = draw.randrange(1, rounds)
    late_s = 45 * (moving % 2)

    def body() -> None:
        registry = Registry(addresses, tenants[moving], late_s + 90 * moves - 70)
        agent = Mailer(registry)

        async def both() -> None:
            await asyncio.gather(
                agent.courier("day", tenants[::2], rounds, 0), agent.courier("night", tenants[1::2], rounds, 45)
            )

        asyncio.run(both())
        mat.state(astray=len(registry.astray))
        mat.finish(f"{len(agent.kept)} reports kept")

    site = calls(body, "resolve_near", lambda given: bool(given["tenant"] == tenants[moving]))[moves]
    return Foreign(
        name="E02", seed=seed, plant={"tenant": moving, "round": moves, "tenants": len(tenants)}, least=8, body=body,
        planted=(
            fault("service.timeout", "resolve_near", site.nth, agent=site.agent),
            fault("service.timeout", "resolve_far", 1, agent=site.agent),
        ),
        contract=reports_reach_their_readers,
    )  # fmt: skip


# -- E03: leaders that hand over ----------------------------------------------------------------------------------------


class Election:
    """Lets one node lead at a time. Who resigns leaves word about the jobs that are open; a lease ends after two minutes."""

    LEASE_S = 120

    def __init__(self) -> None:
        self.term, self.until_s = 0, 0.0
        self.word: list[str] = []

    async def campaign(self, node: str) -> dict[str, object]:
        if self.term and time.monotonic() < self.until_s:
            return {"elected": False, "open": [], "term": self.term}
        self.term, self.until_s = self.term + 1, time.monotonic() + self.LEASE_S
        return {"elected": True, "open": list(self.word), "term": self.term}

    async def resign(self, term: int, open: Sequence[str]) -> dict[str, object]:
        if term == self.term:
            self.until_s, self.word = 0.0, list(open)
        return {"term": term}


class Cluster:
    """Nodes that take turns in leading, and do three jobs in each turn. Jobs can be repeated, but for the final ones."""

    def __init__(self, election: Election, jobs: Sequence[str], final: Sequence[str]) -> None:
        self.ran: list[str] = []
        self.campaign = mat.tool(election.campaign, name="campaign", effect="write")
        self.resign = mat.tool(election.resign, name="resign", effect="write")
        self.do = mat.tool(self.do_job, name="do", effect="write")
        self.ask = mat.tool(self.job_state, name="ask", effect="read")
        self.journal = mat.memory({"next": 0}, name="journal")
        self.jobs, self.final = jobs, final

    async def do_job(self, job: str) -> dict[str, str]:
        self.ran.append(job)
        return {"job": job}

    async def job_state(self, job: str) -> dict[str, str]:
        return {"job": job, "state": "done" if job in self.ran else "unknown"}

    async def lead(self, node: str) -> None:
        with mat.agent(node):
            for _ in range(8):
                with suppress(*FAILURES):
                    mine = await self.campaign(node=node)
                    if mine["elected"]:
                        break
                await asyncio.sleep(20)
            else:
                return
            open_jobs: list[str] = []
            first = self.journal["next"]
            for number in range(first, min(first + 3, len(self.jobs))):
                job = self.jobs[number]
                state = await self.asked(job) if job in mine["open"] else "unknown"
                if state == "unknown":
                    state = await self.done(job)
                if state == "unclear":
                    open_jobs.append(job)
                    break
                self.journal["next"] = number + 1
            with suppress(*FAILURES):  # else the lease ends
                await self.resign(term=mine["term"], open=open_jobs)

    async def done(self, job: str) -> str:
        state = "unclear"
        for wait_s in (2, 10):
            with suppress(*FAILURES):
                if (await self.do(job=job))["job"] == job:
                    return "done"
            state = await self.asked(job) if job in self.final else "unclear"
            if job in self.final and state != "unknown":
                return state
            await asyncio.sleep(wait_s)
        return "unclear"

    async def asked(self, job: str) -> str:
        try:
            reply = await self.ask(job=job)
        except FAILURES:
            return "unclear"
        return str(reply["state"]) if reply["job"] == job and reply["state"] in ("done", "unknown") else "unclear"


def leaders(seed: int) -> Foreign:
    """Whether a job is open is said in the resignation alone: when a lease ends instead, the next leader does the job at once.

    The reply to a final job must be lost, then the question what became of it, then the resignation (4 each); the question is
    asked only after a failure. The three ports need one fault each, and no fault of a reply is cheaper than a lost one; jobs
    that are not final may be repeated.
    """
    draw = random.Random(f"E03/{seed}")
    jobs = [f"job-{number:02}" for number in range(draw.randrange(4, 11))]
    final = draw.randrange(len(jobs))
    nodes = ["ann", "bob", "cas"][: draw.randrange(2, 4)]

    def body() -> None:
        async def turns() -> None:
            cluster = Cluster(Election(), jobs, [jobs[final]])
            for turn in range(8):
                if cluster.journal["next"] < len(jobs):
                    await cluster.lead(nodes[turn % len(nodes)])
            mat.state(twice=cluster.ran.count(jobs[final]) > 1)
            mat.finish(f"{len(jobs)} jobs")

        asyncio.run(turns())

    @mat.step_contract(on="final_response", id="job.done_once")
    def final_job_is_done_once(record: mat.Record) -> bool:
        return not record.state["twice"]

    turn = final // 3
    node = nodes[turn % len(nodes)]
    (site,) = calls(body, "do", lambda given: bool(given["job"] == jobs[final]))
    return Foreign(
        name="E03", seed=seed, plant={"job": final, "jobs": len(jobs), "nodes": len(nodes)}, least=12, body=body,
        planted=(
            fault("service.lost_ack", "do", site.nth, agent=node),
            fault("service.timeout", "ask", 1, agent=node),
            fault("service.timeout", "resign", turn // len(nodes) + 1, agent=node),
        ),
        contract=final_job_is_done_once,
        group=lambda record: (
            "final" if record.action.name in ("campaign", "resign") or record.action.arguments.get("job") == jobs[final] else ""
        ),
        kinds=("service.timeout", "service.lost_ack"),
    )  # fmt: skip


# -- E04: models to fall back on ----------------------------------------------------------------------------------------

IN_EUROS: Final = '{"amount": the amount in euros}'
IN_CENTS: Final = '{"amount": the amount in cents}'


def extracted(text: str, schema: str) -> str:
    """A model that finds the amount in an invoice, and writes it as the schema says."""
    found = re.search(r"EUR (\d+\.\d\d)", text)
    if found is None:
        return json.dumps({"amount": None})
    euros = float(found[1])
    return json.dumps({"amount": round(euros * 100) if schema == IN_CENTS else euros})


class Payables:
    """Has a model read invoices, or a small one that is bad at decimals; broken answers are mended by a third."""

    def __init__(self, invoices: Mapping[str, str]) -> None:
        self.fetch = mat.tool(lambda invoice: {"invoice": invoice, "text": invoices[invoice]}, name="fetch", effect="read")
        self.pay = mat.tool(lambda invoice, amount: "paid", name="pay", effect="write", impact="high")
        self.mend = mat.model("mender")(lambda broken, text, schema: extracted(text, schema))
        self.readers = (
            (mat.model("large")(extracted), IN_EUROS, 1),
            (mat.model("small")(extracted), IN_CENTS, 100),
        )
        self.by_hand: list[str] = []

    def handle(self, invoice: str) -> None:
        amount = None
        with suppress(*FAILURES):
            reply = self.fetch(invoice=invoice)
            if reply["invoice"] == invoice:
                amount = self.read(reply["text"])
        if amount is None or not 5 <= amount <= 5_000:
            self.by_hand.append(invoice)
            return
        try:
            self.pay(invoice=invoice, amount=amount)
        except FAILURES:
            self.by_hand.append(invoice)

    def read(self, text: str) -> float | None:
        for model, schema, per_euro in self.readers:
            with suppress(RateLimited):  # the next has a quota of its own
                found = self.parsed(model(text, schema), text)
                if found is not None:
                    return round(found / per_euro, 2)
        return None

    def parsed(self, reply: str, text: str, schema: str = IN_EUROS) -> float | None:
        for again in (True, False):
            try:
                found = json.loads(reply)["amount"]
                return None if found is None else float(found)
            except ValueError:
                if again:
                    reply = self.mend(reply, text, schema)
        return None


def model_chain(seed: int) -> Foreign:
    """Answers are mended to the schema of the large model, whoever gave them; so those of the small one lose two digits.

    The large model must refuse (4), and the answer of the small one, which is asked only then, be broken (5). The invoice must
    be large, or the hundredth part is below what is paid without a look. Two refusals leave the invoice to people.
    """
    draw = random.Random(f"E04/{seed}")
    names = [f"inv-{number:02}" for number in range(draw.randrange(3, 10))]
    large = draw.randrange(len(names))
    amounts = {name: draw.randrange(1_000, 40_000) / 100 for name in names}
    amounts[names[large]] = draw.randrange(60_000, 400_000) / 100
    texts = {name: f"Invoice {name}: please pay EUR {amounts[name]:.2f} within 30 days." for name in names}

    def body() -> None:
        agent = Payables(texts)
        for name in names:
            agent.handle(name)

    @mat.step_contract(on="tool_call", id="invoice.paid_in_full")
    def invoices_are_paid_in_full(record: mat.Record) -> bool:
        given = record.action.arguments
        return record.action.name != "pay" or given["amount"] == amounts[given["invoice"]]

    return Foreign(
        name="E04", seed=seed, plant={"invoice": large, "invoices": len(names)}, least=9, body=body,
        planted=(fault("model.rate_limit", "large", large + 1), fault("model.malformed_call", "small", 1)),
        contract=invoices_are_paid_in_full,
        group=lambda record: "all", kinds=("model.rate_limit", "service.timeout"),
    )  # fmt: skip


# -- E05: documents that are merged -------------------------------------------------------------------------------------


class Documents:
    """A server with documents in sections, which takes a new state only for the revision that it has."""

    def __init__(self, names: Sequence[str]) -> None:
        self.revisions = dict.fromkeys(names, 1)
        self.sections = {name: {"figures": "", "remarks": "none", "summary": "to come"} for name in names}

    def edit(self, doc: str, section: str, text: str) -> None:
        self.sections[doc][section] = text
        self.revisions[doc] += 1

    def pull(self, doc: str) -> dict[str, object]:
        return {"doc": doc, "editor": "web", "revision": self.revisions[doc], "sections": dict(self.sections[doc])}

    def push(self, doc: str, base: int, sections: Mapping[str, str]) -> dict[str, object]:
        if base != self.revisions[doc]:
            return {"doc": doc, "revision": self.revisions[doc], "status": "conflict"}
        self.sections[doc] = dict(sections)
        self.revisions[doc] += 1
        return {"doc": doc, "revision": self.revisions[doc], "status": "stored"}


class Reporter:
    """Puts the figures of the hour into documents that colleagues edit as well."""

    def __init__(self, server: Documents) -> None:
        self.pull = mat.tool(server.pull, name="pull", effect="read")
        self.push = mat.tool(server.push, name="push", effect="write")
        self.open: list[str] = []

    def publish(self, doc: str, figures: str) -> None:
        told = None
        for wait_s in (1, 2, 4):
            try:
                page = self.pull(doc=doc)
            except FAILURES:
                break
            if page["doc"] != doc or page["sections"]["figures"] == figures:  # an earlier push has arrived after all
                return
            merged = {**page["sections"], "figures": figures}
            base = page["revision"] if told is None else told  # the server has just said which it is
            try:
                reply = self.push(doc=doc, base=base, sections=merged)
                if reply["status"] == "stored":
                    return
                told = reply["revision"]
            except FAILURES:
                told = None
            time.sleep(wait_s)
        self.open.append(doc)


@mat.step_contract(on="final_response", id="edit.kept")
def edits_are_kept(record: mat.Record) -> bool:
    """No edit of a colleague is lost."""
    return not record.state["lost"]


def merged_documents(seed: int) -> Foreign:
    """After a conflict the sections come from a new pull, but the revision comes from the reply that reported the conflict.

    The first pull after a colleague's edit must be stale, or have a wrong revision, and the next, which only a conflict brings
    about, be stale (5 each). Only an old pull can undo an edit, and it conflicts unless the revision comes from elsewhere; so
    no pair with a lost call does it, and only calls for that document matter together.
    """
    draw = random.Random(f"E05/{seed}")
    docs = [f"doc-{number}" for number in range(draw.randrange(2, 5))]
    hours = draw.randrange(2, 5)
    edited, hour = draw.randrange(len(docs)), draw.randrange(1, hours)
    section = draw.choice(["remarks", "summary"])

    def body() -> None:
        server = Documents(docs)
        agent = Reporter(server)
        for number in range(hours):
            if number == hour:
                server.edit(docs[edited], section, "Kim: see the annex")
            for doc in docs:
                agent.publish(doc, f"{doc}: {10 + number} in hour {number}")
            time.sleep(3_600)
        mat.state(lost=server.sections[docs[edited]][section] != "Kim: see the annex")
        mat.finish(f"{hours} hours")

    nth = hour * len(docs) + edited + 1
    return Foreign(
        name="E05", seed=seed, plant={"doc": edited, "hour": hour, "docs": len(docs)}, least=10, body=body,
        planted=(fault("service.stale", "pull", nth, age=1), fault("service.stale", "pull", nth + 1, age=1)),
        contract=edits_are_kept,
        group=lambda record: "edited" if record.action.arguments.get("doc") == docs[edited] else "",
        kinds=("service.timeout", "service.lost_ack", "service.stale"),
    )  # fmt: skip


# -- E06: a crawler -----------------------------------------------------------------------------------------------------


class Web:
    """Hosts with pages and rules about what crawlers may read."""

    def __init__(self, links: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
        self.links = links

    async def robots(self, host: str) -> dict[str, object]:
        return {"delay_s": 1, "disallow": ["/private"], "host": host}

    async def fetch(self, host: str, path: str) -> dict[str, object]:
        return {"host": host, "links": list(self.links[host].get(path, ())), "path": path}


class Crawler:
    """Two workers that read the rules of each host before its pages. A host that is slow comes once more at the end."""

    def __init__(self, web: Web, seeds: Sequence[str]) -> None:
        self.robots = mat.tool(web.robots, name="robots", effect="read")
        self.fetch = mat.tool(web.fetch, name="fetch", effect="read")
        self.frontier = [(host, "/") for host in seeds]
        self.seen = set(self.frontier)
        self.rules: dict[str, Mapping[str, Any]] = {}
        self.later: list[tuple[str, str]] = []
        self.down: set[str] = set()

    async def work(self, name: str) -> None:
        with mat.agent(name):
            while self.frontier:
                await self.visit(*self.frontier.pop(0), last=False)

    async def finish(self) -> None:
        await asyncio.sleep(300)
        self.frontier, self.later = self.later, []
        while self.frontier:
            await self.visit(*self.frontier.pop(0), last=True)

    async def visit(self, host: str, path: str, *, last: bool) -> None:
        if host not in self.rules and host not in self.down:
            await self.learn(host, last=last)
        if host in self.down:
            return
        if host not in self.rules:
            self.later.append((host, path))
            return
        if any(path.startswith(prefix) for prefix in self.rules[host]["disallow"]):
            return
        await asyncio.sleep(self.rules[host]["delay_s"])
        try:
            page = await self.fetch(host=host, path=path)
        except FAILURES:
            return  # the next crawl has it
        found = [(host, link) for link in page["links"] if (host, link) not in self.seen]
        self.seen.update(found)
        self.frontier += found

    async def learn(self, host: str, *, last: bool) -> None:
        try:
            reply = await self.robots(host=host)
        except ConnectionError:
            self.down.add(host)
        except TimeoutError:
            if last:
                self.rules[host] = {"delay_s": 10, "disallow": []}  # it answers, but has no rules to give
        else:
            if reply["host"] == host:
                self.rules[host] = reply


@mat.step_contract(on="tool_call", id="page.allowed")
def pages_are_allowed(record: mat.Record) -> bool:
    """No page is read that its host asks crawlers not to read."""
    return record.action.name != "fetch" or not record.action.arguments["path"].startswith("/private")


def crawler(seed: int) -> Foreign:
    """Rules that come late twice count as none. One host links to a page that it does not allow.

    Its rules must time out for the worker that asks first, and again at the end, when nobody asks otherwise (4 each). A host
    whose connection breaks is left alone, so no outage does it; no single fault does, and there are no pairs that cost less.
    """
    draw = random.Random(f"E06/{seed}")
    hosts = [f"{name}.example" for name in ("alder", "birch", "cedar", "elm", "fir", "hazel")[: draw.randrange(3, 7)]]
    weak = draw.choice(hosts)
    links = {host: {"/": [f"/p{number}" for number in range(draw.randrange(0, 3))]} for host in hosts}
    links[weak]["/"].insert(draw.randrange(len(links[weak]["/"]) + 1), "/private/drafts")

    def body() -> None:
        agent = Crawler(Web(links), hosts)

        async def everyone() -> None:
            await asyncio.gather(agent.work("one"), agent.work("two"))
            await agent.finish()

        asyncio.run(everyone())

    (site,) = calls(body, "robots", lambda given: bool(given["host"] == weak))
    return Foreign(
        name="E06", seed=seed, plant={"host": hosts.index(weak), "hosts": len(hosts)}, least=8, body=body,
        planted=(fault("service.timeout", "robots", site.nth, agent=site.agent), lost("robots", 1)),
        contract=pages_are_allowed,
    )  # fmt: skip


# -- E07: reminders -----------------------------------------------------------------------------------------------------


class Reminders:
    """Notes appointments in the evening, looks again in the morning, and reminds people an hour before."""

    def __init__(self, hours: Mapping[str, int]) -> None:
        self.look_up = mat.tool(
            lambda person: {"hour": hours[person], "person": person, "room": "2.14"}, name="look_up", effect="read"
        )
        self.remind = mat.tool(lambda person, hour, room: "sent", name="remind", effect="write")
        self.notes = mat.memory({}, name="notes")
        self.by_hand: list[str] = []

    def found(self, person: str) -> dict[str, Any] | None:
        """The appointment, or None if it cannot be looked up or makes no sense."""
        try:
            reply = self.look_up(person=person)
        except FAILURES:
            return None
        sensible = reply["person"] == person and 8 <= reply["hour"] <= 19
        return {"hour": reply["hour"], "room": reply["room"], "sure": True} if sensible else None

    def evening(self, people: Sequence[str]) -> None:
        for person in people:
            self.notes[person] = self.found(person)

    def morning(self, people: Sequence[str]) -> None:
        for person in people:
            entry = self.found(person)
            if entry is not None:
                self.notes[person] = entry
                continue
            noted = self.notes[person]
            self.notes[person] = None if noted is None else {**noted, "sure": False}

    def day(self, people: Sequence[str]) -> None:
        entries = {person: self.notes[person] for person in people}
        self.by_hand += [person for person, entry in entries.items() if entry is None]
        clock = 7
        for person in sorted(people, key=lambda person: (entries[person] or {"hour": 0})["hour"]):
            entry = entries[person]
            if entry is None:
                continue
            time.sleep(3_600 * max(0, entry["hour"] - 1 - clock))
            clock = max(clock, entry["hour"] - 1)
            now = self.found(person)
            if (now is None and not entry["sure"]) or (now is not None and now["hour"] != entry["hour"]):
                self.by_hand.append(person)  # a colleague calls
                continue
            with suppress(*FAILURES):  # one more thing that nobody should rely on
                self.remind(person=person, hour=entry["hour"], room=entry["room"])


def reminders(seed: int) -> Foreign:
    """What the morning has confirmed is sent, even if it cannot be looked up when the reminder is due.

    In the morning the answer about an appointment that was moved over night must be the stale one of the evening (5), and the
    look an hour before it, which then comes at another place in the day, fail (4). A morning that fails leaves a mark, so no
    two lost calls do it; only calls for that person matter together.
    """
    draw = random.Random(f"E07/{seed}")
    people = [f"p{number}" for number in range(draw.randrange(2, 6))]
    moved = draw.choice(people)
    before = {person: draw.randrange(9, 19) for person in people}
    after = {**before, moved: draw.choice([hour for hour in range(9, 19) if abs(hour - before[moved]) > 1])}

    def body() -> None:
        hours = dict(before)
        agent = Reminders(hours)
        agent.evening(people)
        hours.update(after)
        time.sleep(36_000)
        agent.morning(people)
        agent.day(people)

    @mat.step_contract(on="tool_call", id="reminder.right_hour")
    def reminders_have_the_hour(record: mat.Record) -> bool:
        given = record.action.arguments
        return record.action.name != "remind" or given["hour"] == after[given["person"]]

    morning = len(people) + people.index(moved) + 1
    due = 2 * len(people) + sorted(people, key=lambda person: before[person]).index(moved) + 1
    return Foreign(
        name="E07", seed=seed, plant={"person": people.index(moved), "people": len(people)}, least=9, body=body,
        planted=(fault("service.stale", "look_up", morning, age=1), lost("look_up", due)),
        contract=reminders_have_the_hour,
        group=lambda record: str(record.action.arguments.get("person") or record.action.arguments.get("key") or ""),
        kinds=("service.timeout", "service.lost_ack"),
    )  # fmt: skip


# -- E08: research that is delegated ------------------------------------------------------------------------------------


def planned(question: str) -> dict[str, object]:
    """A model that says whom to ask: the researcher, about the last word of the question."""
    return {"tool": "research", "arguments": {"topic": question.rstrip("?").rpartition(" ")[2]}}


class Analyst:
    """Answers questions about markets. A researcher finds the figures, and what was found is kept for later questions."""

    def __init__(self, reports: Mapping[str, Sequence[tuple[int, int]]], official: Mapping[str, int]) -> None:
        self.plan = mat.model("planner")(planned)
        self.reports = mat.retriever("reports")(
            lambda topic: [
                mat.Passage(text=f"In {year} {figure} million were spent on {topic}.", source=f"{year}.pdf")
                for year, figure in reports[topic]
            ]
        )
        self.confirm = mat.tool(lambda topic: {"figure": official[topic], "topic": topic}, name="confirm", effect="read")
        self.publish = mat.tool(lambda number, topic, figure, caveat: "published", name="publish", effect="write")
        self.research = mat.handoff("researcher")(self.researched)
        self.kept: dict[str, int] = {}
        self.unanswered: list[int] = []

    def researched(self, topic: str) -> dict[str, Any]:
        texts = [passage.text.split() for passage in self.reports(topic)]
        if not texts:
            return {}
        figure = int(max(texts, key=lambda words: words[1])[2])  # the newest
        try:
            told = self.confirm(topic=topic)
        except FAILURES:
            return {"caveat": "not confirmed", "figure": figure}
        agreed = told["topic"] == topic and told["figure"] == figure
        return {"caveat": "", "figure": figure} if agreed else {}

    def answer(self, number: int, question: str) -> None:
        try:
            call = self.plan(question)
        except RateLimited:
            call = {"tool": ""}
        if call["tool"] != "research":
            self.unanswered.append(number)
            return
        topic = call["arguments"]["topic"]
        if topic in self.kept:
            found: dict[str, Any] = {"caveat": "", "figure": self.kept[topic]}
        else:
            found = self.research(topic=topic)
            if not found:
                self.unanswered.append(number)
                return
            self.kept[topic] = found["figure"]
        with suppress(*FAILURES):  # the reader asks again
            self.publish(number=number, topic=topic, **found)


def delegated_research(seed: int) -> Foreign:
    """A figure that could not be confirmed is kept without the caveat, and the next question gets it as if it had been.

    For the first question about a topic that comes again, the newest passage must be missing (5), or the figure is right; and
    the confirmation fail (4), or the difference is seen. Two calls that are lost leave the right figure.
    """
    draw = random.Random(f"E08/{seed}")
    topics = draw.sample(["lamps", "chairs", "shelves", "desks", "carpets", "curtains"], draw.randrange(2, 7))
    again = draw.choice(topics)
    asked = list(topics)
    for _ in range(draw.randrange(1, 3)):
        asked.insert(draw.randrange(asked.index(again) + 1, len(asked) + 1), again)
    reports = {
        topic: [(year, draw.randrange(100, 900)) for year in draw.sample((2021, 2023, 2024), draw.randrange(1, 4))]
        for topic in topics
    }
    place = draw.randrange(2)
    old = [(2019, 1_000 + number) for number in range(draw.randrange(1, 3))]
    reports[again] = [*old[:place], (2025, 950), *old[place:]]
    official = {topic: max(found)[1] for topic, found in reports.items()}

    def body() -> None:
        agent = Analyst(reports, official)
        for number, topic in enumerate(asked):
            agent.answer(number, f"How much is spent on {topic}?")

    @mat.step_contract(on="tool_call", id="figure.right_or_marked")
    def figures_are_right_or_marked(record: mat.Record) -> bool:
        given = record.action.arguments
        return record.action.name != "publish" or bool(given["caveat"]) or given["figure"] == official[given["topic"]]

    (read,) = calls(body, "reports", lambda given: bool(given["topic"] == again))
    (check,) = calls(body, "confirm", lambda given: bool(given["topic"] == again))
    return Foreign(
        name="E08", seed=seed, plant={"topic": topics.index(again), "questions": len(asked)}, least=9, body=body,
        planted=(
            fault("retrieval.drop", "reports", read.nth, agent=read.agent, passage=place),
            fault("service.timeout", "confirm", check.nth, agent=check.agent),
        ),
        contract=figures_are_right_or_marked,
        group=lambda record: "all", kinds=("model.rate_limit", "service.timeout"),
    )  # fmt: skip


# -- E09: keys that are rotated -----------------------------------------------------------------------------------------


class KeyServer:
    """Makes and revokes the keys of services, and tells hosts which to use."""

    def __init__(self, hosts: Mapping[str, Sequence[str]]) -> None:
        self.made = {service: [f"{service}-key-1"] for service in hosts}
        self.used = {(service, host): f"{service}-key-1" for service, names in hosts.items() for host in names}
        self.cut_off = 0

    def create(self, service: str) -> dict[str, object]:
        self.made[service].append(f"{service}-key-{len(self.made[service]) + 1}")
        return {"key": self.made[service][-1], "service": service}

    def deploy(self, service: str, host: str, key: str) -> dict[str, object]:
        accepted = key in self.made[service]
        if accepted:
            self.used[service, host] = key
        return {"accepted": accepted, "host": host}

    def probe(self, service: str, host: str) -> dict[str, object]:
        return {"host": host, "key": self.used[service, host]}

    def revoke(self, key: str) -> dict[str, object]:
        self.cut_off += sum(used == key for used in self.used.values())
        return {"key": key, "revoked": True}


class Rotation:
    """Gives a new key to all hosts of a service, sees that they use it, and revokes the old one."""

    def __init__(self, server: KeyServer, edge: Sequence[str]) -> None:
        self.create = mat.tool(server.create, name="create", effect="write")
        self.deploy = mat.tool(server.deploy, name="deploy", effect="write")
        self.probe = mat.tool(server.probe, name="probe", effect="read")
        self.revoke = mat.tool(server.revoke, name="revoke", effect="write", impact="high")
        self.edge = edge
        self.postponed: list[str] = []

    def rotate(self, service: str, hosts: Sequence[str]) -> None:
        try:
            made = self.create(service=service)
        except FAILURES:
            self.postponed.append(service)
            return
        for host in hosts:
            with suppress(*FAILURES):  # the probe shows who has not got it
                self.deploy(service=service, host=host, key=made["key"])
        if made["service"] != service or not all(self.uses(service, host, made["key"]) for host in hosts):
            self.postponed.append(service)
            return
        with suppress(*FAILURES):  # old keys are listed once a month
            self.revoke(key=f"{service}-key-1")

    def uses(self, service: str, host: str, key: str) -> bool:
        silent = 0
        for wait_s in (5, 30):
            try:
                reply = self.probe(service=service, host=host)
            except FAILURES:
                silent += 1
            else:
                if reply["host"] == host and reply["key"] == key:
                    return True
                with suppress(*FAILURES):
                    self.deploy(service=service, host=host, key=key)
            time.sleep(wait_s)
        return silent == 2 and host in self.edge  # these are off at night, and fetch their keys when they start


@mat.step_contract(on="final_response", id="key.not_in_use")
def revoked_keys_are_not_in_use(record: mat.Record) -> bool:
    """No key is revoked while a host uses it."""
    return not record.state["cut_off"]


def key_rotation(seed: int) -> Foreign:
    """A host at the edge that does not answer counts as switched off, although it may run with the old key.

    The new key must not reach it (4), and both probes of it fail, by an outage (5). With one probe lost, the other shows the
    old key. Whether a key is revoked follows from the calls for its service, and pairs that cost less hold lost calls alone.
    """
    draw = random.Random(f"E09/{seed}")
    services = ["billing", "mail", "search", "wiki"][: draw.randrange(2, 5)]
    hosts = {service: [f"{service}-{number}" for number in range(draw.randrange(2, 4))] for service in services}
    weak = draw.choice(services)
    edge = draw.randrange(len(hosts[weak]))

    def body() -> None:
        server = KeyServer(hosts)
        agent = Rotation(server, [hosts[weak][edge]])
        for service in services:
            agent.rotate(service, hosts[service])
        mat.state(cut_off=server.cut_off)
        mat.finish(f"{len(agent.postponed)} services postponed")

    nth = sum(len(hosts[service]) for service in services[: services.index(weak)]) + edge + 1
    return Foreign(
        name="E09", seed=seed, plant={"service": services.index(weak), "host": edge, "services": len(services)}, least=9,
        body=body, planted=(lost("deploy", nth), outage("probe", nth)), contract=revoked_keys_are_not_in_use,
        group=lambda record: "weak" if record.action.arguments.get("service") == weak else "",
        kinds=("service.timeout", "service.lost_ack"),
    )  # fmt: skip


# -- E10: a receiver of events ------------------------------------------------------------------------------------------


class Wallet:
    """Customers' accounts, and the names under which they are greeted."""

    def __init__(self) -> None:
        self.credits: dict[str, int] = {}
        self.names: dict[str, str] = {}

    def credit(self, event: str, cents: int) -> dict[str, object]:
        self.credits[event] = self.credits.get(event, 0) + cents
        return {"event": event, "status": "credited"}

    def rename(self, event: str, name: str) -> dict[str, object]:
        self.names[event.partition("/")[0]] = name
        return {"event": event, "status": "renamed"}

    def find(self, event: str) -> dict[str, object]:
        return {"booked": event in self.credits, "event": event}


class Events:
    """Takes events from a sender who repeats what was not answered with 200, and remembers them for half an hour."""

    WINDOW_S, BUSY_S = 1_800, 300

    def __init__(self, wallet: Wallet) -> None:
        self.credit, self.rename = mat.tool(wallet.credit, effect="write"), mat.tool(wallet.rename, effect="write")
        self.find = mat.tool(wallet.find, effect="read")
        self.seen = mat.memory({}, name="seen")

    def receive(self, event: str, kind: str) -> int:
        now_s = time.monotonic()
        seen = self.seen.get(event)
        if seen is not None and now_s - seen["at_s"] <= self.WINDOW_S:  # what is older, nobody sends again
            if seen["state"] == "done":
                return 200
            if now_s - seen["at_s"] < self.BUSY_S:
                return 409  # somebody is at it
            if kind == "credit":
                try:
                    found = self.find(event=event)
                except FAILURES:
                    return 503
                if found["event"] != event:
                    return 503
                if found["booked"]:
                    self.seen[event] = {"at_s": now_s, "state": "done"}
                    return 200
        self.seen[event] = {"at_s": now_s, "state": "begun"}
        try:
            reply = self.credit(event=event, cents=500) if kind == "credit" else self.rename(event=event, name="Kim")
        except FAILURES:
            return 500
        if reply["event"] != event:
            return 500
        self.seen[event] = {"at_s": now_s, "state": "done"}
        return 200


def event_receiver(seed: int) -> Foreign:
    """The sender's last attempt comes after an hour, when the receiver has forgotten the event.

    The reply to a credit must be lost (4). The next attempt finds it under way, and the one after that asks what became of it,
    which no other does: this must fail (4). No single fault does it, and there are no pairs that cost less.
    """
    draw = random.Random(f"E10/{seed}")
    kinds = ["rename"] * draw.randrange(3, 9)
    credit = draw.randrange(len(kinds))
    kinds[credit] = "credit"
    copies = draw.sample(range(len(kinds)), draw.randrange(0, 3))

    def body() -> None:
        agent = Events(Wallet())
        start_s = time.monotonic()
        due = [(200.0 * number, number, 0) for number in range(len(kinds))]
        due += [(200.0 * number + 20, number, 3) for number in copies]  # the sender sends some twice
        heapq.heapify(due)
        while due:
            at_s, number, attempt = heapq.heappop(due)
            time.sleep(max(0.0, start_s + at_s - time.monotonic()))
            if agent.receive(f"c{number % 3}/{number:02}", kinds[number]) != 200 and attempt < 3:
                heapq.heappush(due, (at_s + (60, 600, 3_600)[attempt], number, attempt + 1))

    return Foreign(
        name="E10", seed=seed, plant={"event": credit, "events": len(kinds)}, least=8, body=body,
        planted=(fault("service.lost_ack", "credit", 1), lost("find", 1)),
        contract=no_duplicate_effect("credit", key="event", id="event.credited_once"),
    )  # fmt: skip


AGENTS: Final[dict[str, Callable[[int], Foreign]]] = {
    f"E{number:02}": make
    for number, make in enumerate(
        (
            feature_flags, registry_of_names, leaders, model_chain, merged_documents, crawler, reminders, delegated_research,
            key_rotation, event_receiver,
        ),
        start=1,
    )
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(AGENTS, __doc__))
