"""Ten more agents by an author who had not seen the search, on ground that neither `foreign` nor `foreign_more` has.

Run: python benchmarks/foreign_third.py [--seeds 20] [--only D01,D02] [--sample 200]: prove what the cheapest cost.

What `foreign` says about faults, declarations and the proof is true here as well.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from foreign import FAILURES, Foreign, calls, fault, lost, main

import mat
from mat.core.site import parse_site
from mat.errors import RateLimited
from mat_contracts import no_duplicate_effect

# -- D01: a calendar with time zones ------------------------------------------------------------------------------------

UTC_OFFSETS: Final = {"America/New_York": -5, "Asia/Tokyo": 9, "Europe/Berlin": 1, "Europe/Lisbon": 0}


class Secretary:
    """Invites people to meetings at hours that suit them where they are. What they say about their travels is remembered."""

    def __init__(self, zones: Mapping[str, str], guests: Sequence[str]) -> None:
        self.notes = mat.memory({}, name="travels")
        self.profile = mat.tool(
            lambda person: {"email": f"{person}@example.net", "name": person, "phone": "n/a", "zone": zones[person]},
            name="profile", effect="read",
        )  # fmt: skip
        self.invite = mat.tool(lambda meeting, person, utc: "invited", name="invite", effect="write")
        self.guests = guests
        self.to_ask: list[str] = []

    def note(self, person: str, text: str, zone: str) -> None:
        self.notes[person] = [*self.notes.get(person, []), {"note": text, "zone": zone}]

    def meet(self, meeting: str, person: str, hour: int) -> None:
        zone = self.notes[person][-1]["zone"]
        try:
            agreed = self.profile(person=person)["zone"] == zone
        except FAILURES:
            agreed = person in self.guests  # their profiles are kept by another company
        if not agreed:
            self.to_ask.append(meeting)
            return
        with suppress(*FAILURES):  # who is missing is asked in the morning
            self.invite(meeting=meeting, person=person, utc=(hour - UTC_OFFSETS[zone]) % 24)


def time_zones(seed: int) -> Foreign:
    """The zone of a guest is not confirmed when the profiles cannot be read.

    The guest's travels must come in another order, so that the first seems to be the last (5), and the profile not be read (4).
    One alone is noticed, or changes nothing. Both are calls for one meeting with that guest.
    """
    draw = random.Random(f"D01/{seed}")
    people = [f"p{number}" for number in range(draw.randrange(3, 6))]
    guest = draw.choice(people)
    travels = {person: draw.sample(sorted(UTC_OFFSETS), draw.randrange(1, 3)) for person in people}
    travels[guest] = draw.sample(sorted(UTC_OFFSETS), draw.randrange(2, 4))
    zones = {person: where[-1] for person, where in travels.items()}
    meetings = [person for person in people for _ in range(draw.randrange(1, 3))]
    draw.shuffle(meetings)
    hours = [draw.randrange(9, 17) for _ in meetings]

    def body() -> None:
        agent = Secretary(zones, [guest])
        for person in people:
            for zone in travels[person]:
                agent.note(person, f"I am in {zone.partition('/')[2]} now.", zone)
        for number, person in enumerate(meetings):
            agent.meet(f"m{number:02}", person, hours[number])

    @mat.step_contract(on="tool_call", id="meeting.at_local_hour")
    def at_local_hour(record: mat.Record) -> bool:
        given = record.action.arguments
        if record.action.name != "invite":
            return True
        return bool((given["utc"] + UTC_OFFSETS[zones[given["person"]]]) % 24 == hours[int(given["meeting"][1:])])

    meeting = draw.choice([number for number, person in enumerate(meetings) if person == guest])
    noted = sum(2 * len(where) for where in travels.values())  # a note is a read and a write
    return Foreign(
        name="D01", seed=seed, plant={"meeting": meeting, "meetings": len(meetings), "people": len(people)}, least=9, body=body,
        planted=(fault("memory.reorder", "travels", noted + meeting + 1), lost("profile", meeting + 1)), contract=at_local_hour,
        group=lambda record: str(record.action.arguments.get("person") or record.action.arguments.get("key") or ""),
    )  # fmt: skip


# -- D02: webhooks with replay protection -------------------------------------------------------------------------------


class Receiver:
    """A customer's endpoint: it refuses what was signed long ago, and drops what it has seen in the last ten minutes."""

    TOLERANCE_S, REMEMBERS_S = 300, 600

    def __init__(self) -> None:
        self.seen: dict[str, float] = {}
        self.handled: list[str] = []

    def post(self, event: str, signed_at: float) -> dict[str, object]:
        now_s = time.monotonic()
        if abs(now_s - signed_at) > self.TOLERANCE_S:
            return {"event": event, "status": 401}
        self.seen = {id: at_s for id, at_s in self.seen.items() if now_s - at_s <= self.REMEMBERS_S}
        if event not in self.seen:
            self.handled.append(event)
            self.seen[event] = now_s
        return {"event": event, "status": 200}


class Webhooks:
    """Delivers events to the endpoints of customers, and signs each attempt anew."""

    WAITS_S = (5, 30, 120)

    def __init__(self, receivers: Mapping[str, Receiver], waits_s: Mapping[str, Sequence[int]]) -> None:
        self.payload = mat.tool(lambda event: {"event": event, "type": "order.paid"}, name="payload", effect="read")
        self.post = mat.tool(
            lambda endpoint, event, signed_at: receivers[endpoint].post(event, signed_at), name="POST /hooks", effect="write"
        )
        self.mark = mat.tool(lambda event: "delivered", name="mark", effect="write")
        self.waits_s = waits_s
        self.parked: list[str] = []

    def deliver(self, endpoint: str, event: str) -> None:
        try:
            if self.payload(event=event)["event"] != event:
                raise ConnectionError("that is another event")
        except FAILURES:
            self.parked.append(event)
            return
        for wait_s in (*self.waits_s.get(endpoint, self.WAITS_S), 0):
            with suppress(*FAILURES):
                if self.post(endpoint=endpoint, event=event, signed_at=time.monotonic())["status"] == 200:
                    break
            time.sleep(wait_s)
        else:
            self.parked.append(event)
            return
        with suppress(*FAILURES):  # the mark is for the overview only
            self.mark(event=event)


@mat.step_contract(on="final_response", id="event.handled_once")
def events_are_handled_once(record: mat.Record) -> bool:
    """No customer handles an event twice."""
    return not record.state["twice"]


def webhooks(seed: int) -> Foreign:
    """One customer asked for patient retries, and they go on after the endpoint has forgotten what it has seen.

    Two attempts in a row must fail (4 each), one of them after the event has arrived; the third comes too late. An outage of
    three calls alone lets no event arrive before it.
    """
    draw = random.Random(f"D02/{seed}")
    endpoints = [f"shop-{number}" for number in range(draw.randrange(2, 5))]
    patient = draw.choice(endpoints)
    events = [draw.choice(endpoints) for _ in range(draw.randrange(4, 19))]
    weak = draw.randrange(len(events))
    events[weak] = patient

    def body() -> None:
        receivers = {endpoint: Receiver() for endpoint in endpoints}
        agent = Webhooks(receivers, {patient: (30, 900, 3_600)})
        for number, endpoint in enumerate(events):
            agent.deliver(endpoint, f"evt-{number:02}")
            time.sleep(20)
        handled = Counter(event for receiver in receivers.values() for event in receiver.handled)
        mat.state(twice=sum(count > 1 for count in handled.values()))
        mat.finish(f"{len(events)} events")

    return Foreign(
        name="D02", seed=seed, plant={"event": weak, "events": len(events)}, least=8, body=body,
        planted=(fault("service.lost_ack", "POST /hooks", weak + 1), lost("POST /hooks", weak + 2)),
        contract=events_are_handled_once,
    )  # fmt: skip


# -- D03: a bulk import -------------------------------------------------------------------------------------------------


class Crm:
    """Takes rows in batches: contacts replace those with the same id, notes are added. Rows may be busy or invalid."""

    def __init__(self, busy: Sequence[str], invalid: Sequence[str]) -> None:
        self.busy, self.invalid = set(busy), invalid
        self.contacts: set[str] = set()
        self.notes: list[str] = []
        self.outcomes: dict[str, dict[str, object]] = {}

    def post(self, batch: str, kind: str, rows: Sequence[str]) -> dict[str, object]:
        busy = [row for row in rows if row in self.busy]
        invalid = [row for row in rows if row in self.invalid]
        accepted = [row for row in rows if row not in busy and row not in invalid]
        self.busy.difference_update(busy)
        if kind == "notes":
            self.notes.extend(accepted)
        else:
            self.contacts.update(accepted)
        self.outcomes[batch] = {"accepted": len(accepted), "batch": batch, "busy": busy, "invalid": invalid}
        return self.outcomes[batch]

    def outcome(self, batch: str) -> dict[str, object]:
        return self.outcomes.get(batch, {"accepted": 0, "batch": batch, "busy": [], "invalid": []})


class Importer:
    """Loads a file part by part. Parts may succeed in part; what became of a part that failed is looked up."""

    def __init__(self, crm: Crm, parts: Sequence[Sequence[str]]) -> None:
        self.read = mat.tool(lambda part: list(parts[part]), name="read_part", effect="read")
        self.post = mat.tool(crm.post, name="POST /bulk", effect="write")
        self.outcome = mat.tool(crm.outcome, name="GET /bulk", effect="read")
        self.rejected: list[str] = []
        self.unknown: list[int] = []

    def load(self, part: int, kind: str) -> None:
        try:
            rows = self.read(part=part)
        except FAILURES:
            self.unknown.append(part)
            return
        for attempt in range(4):
            outcome = self.sent(f"part-{part:02}.{attempt}", kind, rows)
            if outcome is None:
                break
            if not outcome["accepted"] and not outcome["busy"] and not outcome["invalid"]:
                time.sleep(300)  # nothing goes in while the service is being maintained
                continue
            self.rejected += outcome["invalid"]
            rows = [row for row in rows if row in outcome["busy"]]
            if not rows:
                return
            time.sleep(10)
        self.unknown.append(part)

    def sent(self, batch: str, kind: str, rows: Sequence[str]) -> Mapping[str, Any] | None:
        with suppress(*FAILURES):
            outcome: Mapping[str, Any] = self.post(batch=batch, kind=kind, rows=rows)
            if outcome["batch"] == batch:
                return outcome
        for wait_s in (5, 60):
            time.sleep(wait_s)
            with suppress(*FAILURES):
                outcome = self.outcome(batch=batch)
                if outcome["batch"] == batch:
                    return outcome
        return None


@mat.step_contract(on="final_response", id="note.imported_once")
def notes_are_imported_once(record: mat.Record) -> bool:
    """No note is in the table twice."""
    return not record.state["twice"]


def bulk_import(seed: int) -> Foreign:
    """A part of which nothing seems to have gone in is sent again under a new name, and one part adds notes.

    The number of rows that went in must come as 0 in the reply for the notes (5). Failures, which cost 4, are looked up.
    """
    draw = random.Random(f"D03/{seed}")
    parts = [[f"c{part:02}-{row}" for row in range(draw.randrange(2, 6))] for part in range(draw.randrange(5, 18))]
    notes = draw.randrange(len(parts))
    parts[notes] = [f"n{notes:02}-{row}" for row in range(draw.randrange(2, 6))]
    contacts = [row for part in parts for row in part if row.startswith("c")]
    busy, invalid = draw.sample(contacts, draw.randrange(0, 5)), draw.sample(contacts, draw.randrange(0, 4))

    def body() -> None:
        crm = Crm(busy, [row for row in invalid if row not in busy])
        agent = Importer(crm, parts)
        for part in range(len(parts)):
            agent.load(part, "notes" if part == notes else "contacts")
        mat.state(twice=len(crm.notes) - len(set(crm.notes)))
        mat.finish(f"{len(parts)} parts, {len(agent.rejected)} rows rejected")

    (site,) = calls(body, "POST /bulk", lambda given: given["kind"] == "notes")
    return Foreign(
        name="D03", seed=seed, plant={"part": notes, "parts": len(parts)}, least=5, body=body,
        planted=(fault("service.corrupt_field", "POST /bulk", site.nth, field=0, how="empty"),),
        contract=notes_are_imported_once,
    )  # fmt: skip


# -- D04: bookings in two phases ----------------------------------------------------------------------------------------


class Hotel:
    """Holds rooms for a while; a hold that is confirmed is a booking, and can no longer be released."""

    def __init__(self) -> None:
        self.holds: dict[str, str] = {}

    def hold(self, guest: str) -> dict[str, object]:
        hold = f"{guest}/{sum(name.startswith(guest) for name in self.holds) + 1}"
        self.holds[hold] = "held"
        return {"expires_in": 900, "guest": guest, "hold": hold}

    def confirm(self, guest: str, hold: str) -> dict[str, str]:
        if self.holds.get(hold) != "held":
            return {"error": f"{hold} is {self.holds.get(hold, 'unknown')}"}
        self.holds[hold] = "confirmed"
        return {"hold": hold, "state": "confirmed"}

    def status(self, hold: str) -> dict[str, str]:
        return {"hold": hold, "state": self.holds.get(hold, "unknown")}

    def release(self, hold: str) -> dict[str, object]:
        released = self.holds.get(hold) == "held"
        if released:
            self.holds[hold] = "released"
        return {"hold": hold, "released": released}


class TravelDesk:
    """Hands guests to a booker, who holds a room, has the card authorised, and confirms."""

    def __init__(self, hotel: Hotel, groups: Sequence[str]) -> None:
        self.hold, self.confirm = mat.tool(hotel.hold, effect="write"), mat.tool(hotel.confirm, effect="write", impact="high")
        self.status, self.release = mat.tool(hotel.status, effect="read"), mat.tool(hotel.release, effect="write")
        self.authorise = mat.tool(lambda guest: {"guest": guest, "authorised": True}, name="authorise", effect="write")
        self.book = mat.handoff("booker")(self.booked)
        self.groups = groups
        self.for_colleagues: list[str] = []

    def handle(self, guest: str) -> None:
        if self.book(guest=guest) != "confirmed":
            self.for_colleagues.append(guest)

    def booked(self, guest: str) -> str:
        try:
            if not self.authorise(guest=guest)["authorised"]:
                return "declined"
            for _ in range(3):
                held = self.hold(guest=guest)
                state = self.confirmed(guest, str(held["hold"]))
                if state != "unclear":
                    return state
                if guest not in self.groups:
                    break
                # a group must not be left without rooms: give this one back and take another
                if not self.given_back(str(held["hold"])):
                    return "confirmed"
        except FAILURES:
            pass
        return "unclear"

    def confirmed(self, guest: str, hold: str) -> str:
        for wait_s in (2, 10):
            with suppress(*FAILURES):
                if self.confirm(guest=guest, hold=hold).get("state") == "confirmed":
                    return "confirmed"
            time.sleep(wait_s)
            try:
                state = self.status(hold=hold)["state"]
            except FAILURES:
                return "unclear"
            if state == "confirmed":
                return "confirmed"
            if state != "held":
                return "unclear"
        return "unclear"

    def given_back(self, hold: str) -> bool:
        try:
            return bool(self.release(hold=hold)["released"])
        except FAILURES:
            return True  # a hold ends by itself


def two_phases(seed: int) -> Foreign:
    """A hold of a group that cannot be given back counts as one that ends by itself, although it may have been confirmed.

    The reply to the confirmation must be lost, the hold's state not be read, and the release fail (4 each). They are three
    ports, so one fault for each. A state that comes damaged costs more, and is no other than one that was not read. What is
    booked for a guest follows from the calls for this guest, and only groups are booked again.
    """
    draw = random.Random(f"D04/{seed}")
    guests = [f"g{number:02}" for number in range(draw.randrange(3, 12))]
    group = draw.randrange(len(guests))

    def body() -> None:
        desk = TravelDesk(Hotel(), [guests[group]])
        for guest in guests:
            desk.handle(guest)

    def same(record: mat.Record) -> str:
        given = record.action.arguments
        about = str(given.get("guest") or given.get("hold") or "")
        return "group" if about.startswith(guests[group]) and record.action.kind == "tool_call" else ""

    return Foreign(
        name="D04", seed=seed, plant={"guest": group, "guests": len(guests)}, least=12, body=body,
        planted=(
            fault("service.lost_ack", "confirm", group + 1, agent="booker"),
            fault("service.timeout", "status", 1, agent="booker"),
            fault("service.timeout", "release", 1, agent="booker"),
        ),
        contract=no_duplicate_effect("confirm", key="guest", id="guest.booked_once"),
        group=same,
    )  # fmt: skip


# -- D05: a budget of requests ------------------------------------------------------------------------------------------


class Budget:
    """At most so many requests in any minute. The key allows eight; two are left for colleagues who use it as well."""

    PER_MINUTE = 6

    def __init__(self) -> None:
        self.spent_s: list[float] = []

    def spend(self) -> None:
        while True:
            now_s = time.monotonic()
            self.spent_s = [at_s for at_s in self.spent_s if now_s - at_s < 60]
            if len(self.spent_s) < self.PER_MINUTE:
                self.spent_s.append(now_s)
                return
            time.sleep(max(1, self.spent_s[0] + 60 - now_s))

    def give_back(self) -> None:
        self.spent_s.pop()


def classified(company: str) -> str:
    """A model that says what a company does."""
    return "retail" if company.endswith(("0", "5")) else "services"


class Enrichment:
    """Looks companies up for several tenants, each with a key and a budget of its own, and has a model classify them."""

    def __init__(self, tenants: Sequence[str], returning: Sequence[str]) -> None:
        self.look_up = mat.tool(
            lambda tenant, company: {"company": company, "country": "NL", "staff": 12}, name="look_up", effect="read"
        )
        self.classify = mat.model("classifier")(classified)
        self.budgets = {tenant: Budget() for tenant in tenants}
        self.returning = returning
        self.found: dict[str, str] = {}

    def enrich(self, tenant: str, company: str) -> None:
        if not self.looked_up(tenant, company):
            return
        try:
            self.found[company] = self.classify(company)
        except RateLimited:
            self.found[company] = "unknown"

    def looked_up(self, tenant: str, company: str) -> bool:
        budget = self.budgets[tenant]
        for wait_s in (2, 4, 8, 0):
            budget.spend()
            try:
                return bool(self.look_up(tenant=tenant, company=company)["company"] == company)
            except TimeoutError:
                if tenant in self.returning:
                    budget.give_back()  # their gateway does not count what it did not answer
                time.sleep(wait_s)
            except ConnectionError:
                time.sleep(60)
        return False


@mat.trace_contract(start=(), id="key.within_limit")
def keys_stay_within_limits(asked: Any, record: mat.Record) -> Any:
    """No key is used more than eight times in a minute."""
    if record.action.name != "look_up":
        return asked
    tenant, before = str(record.action.arguments["tenant"]), dict(asked)
    recent = tuple(at_ms for at_ms in before.get(tenant, ()) if record.at_ms - at_ms < 60_000)
    if len(recent) == 8:
        return mat.Violated(f"the ninth request of {tenant} within a minute", state=asked)
    return tuple(sorted((before | {tenant: (*recent, record.at_ms)}).items()))


def request_budget(seed: int) -> Foreign:
    """Requests of one tenant that time out are given back to the budget, although the key counts them.

    Three must time out within a minute (4 each), as two requests are left free. A connection that breaks gives nothing back,
    so no outage does it; nor does a model that refuses, which only takes time. Only calls for that tenant spend its budget.
    """
    draw = random.Random(f"D05/{seed}")
    tenants = [f"t{number}" for number in range(draw.randrange(1, 4))]
    counts = {tenant: draw.randrange(2, 6) for tenant in tenants}
    weak = draw.choice(tenants)
    counts[weak] = draw.randrange(7, 15)
    before = sum(counts[tenant] for tenant in tenants[: tenants.index(weak)])
    late = sorted(draw.sample(range(6), 3))

    def body() -> None:
        agent = Enrichment(tenants, [weak])
        for tenant in tenants:
            for number in range(counts[tenant]):
                agent.enrich(tenant, f"{tenant}-company-{number}")

    return Foreign(
        name="D05", seed=seed, plant={"tenant": tenants.index(weak), "companies": sum(counts.values())}, least=12, body=body,
        planted=tuple(lost("look_up", before + number + again + 1) for again, number in enumerate(late)),
        contract=keys_stay_within_limits,
        group=lambda record: "weak" if record.action.arguments.get("tenant") == weak else "",
        kinds=("service.timeout", "service.lost_ack"),
    )  # fmt: skip


# -- D06: drafts that an editor reviews ---------------------------------------------------------------------------------


class Editor:
    """Reads drafts, and strikes those to customers in dispute: by name, or by number on a long sheet."""

    def __init__(self, disputes: Sequence[str]) -> None:
        self.disputes = disputes

    def by_name(self, campaign: str, drafts: Mapping[str, str]) -> dict[str, object]:
        struck = [name for name in drafts if name in self.disputes]
        return {"campaign": campaign, "editor": "Kim", "reviewed": len(drafts), "struck": struck}

    def by_number(self, campaign: str, drafts: Sequence[str]) -> dict[str, object]:
        struck = [number for number, text in enumerate(drafts, start=1) if any(name in text for name in self.disputes)]
        return {"campaign": campaign, "editor": "Kim", "reviewed": len(drafts), "struck": struck}


class Campaigns:
    """Drafts mails to customers, has them reviewed, and sends what was not struck."""

    SHORT = 5

    def __init__(self, lists: Mapping[str, Sequence[str]], editor: Editor) -> None:
        self.lists = lists
        self.facts = mat.retriever("facts")(
            lambda campaign: [mat.Passage(text=f"{campaign} starts on Monday.", source="plan.md")]
        )
        self.draft = mat.model("drafter")(lambda name, facts: " ".join([f"Dear {name},", *facts]))
        self.review, self.review_sheet = (
            mat.tool(editor.by_name, name="review"),
            mat.tool(editor.by_number, name="review_sheet"),
        )
        self.send = mat.tool(lambda to, text: "sent", name="send", effect="write")

    def run(self, campaign: str) -> None:
        names, drafts = self.lists[campaign], self.drafted(campaign)
        try:
            if len(drafts) <= self.SHORT:
                reply = self.review(campaign=campaign, drafts=drafts)
                struck = reply["struck"]
            else:
                reply = self.review_sheet(campaign=campaign, drafts=list(drafts.values()))
                struck = [names[number - 1] for number in reply["struck"]]
        except FAILURES:
            return
        if reply["campaign"] != campaign or reply["reviewed"] != len(drafts):
            return
        for name, text in drafts.items():
            if name not in struck:
                with suppress(*FAILURES):  # the overview shows who was not written to
                    self.send(to=name, text=text)

    def drafted(self, campaign: str) -> dict[str, str]:
        facts = [passage.text for passage in self.facts(campaign)]
        drafts: dict[str, str] = {}
        for _ in range(2):  # those that were refused come once more at the end
            for name in self.lists[campaign]:
                text = None if name in drafts else self.written(name, facts)
                if text is not None:
                    drafts[name] = text
        return drafts

    def written(self, name: str, facts: Sequence[str]) -> str | None:
        for wait_s in (30, 0):
            try:
                return str(self.draft(name, facts))
            except RateLimited:
                time.sleep(wait_s)
        return None


def reviewed_drafts(seed: int) -> Foreign:
    """The numbers on a long sheet are taken for places in the list of customers, but a draft that was refused comes last.

    The model must refuse the draft to the customer in dispute, or to one before, twice in a row (4 each). No single fault does
    that, and two cost no less than 8.
    """
    draw = random.Random(f"D06/{seed}")
    sizes = [draw.randrange(1, 5) for _ in range(draw.randrange(1, 4))]
    long = draw.randrange(len(sizes) + 1)
    sizes.insert(long, draw.randrange(6, 10))
    lists = {f"campaign {number}": [f"customer {number}{place}" for place in range(size)] for number, size in enumerate(sizes)}
    dispute = draw.randrange(sizes[long] - 1)
    refused = draw.randrange(dispute + 1)
    disputes = [f"customer {long}{dispute}"]
    disputes += [draw.choice(names) for number, names in enumerate(lists.values()) if number != long and draw.random() < 0.4]

    def body() -> None:
        agent = Campaigns(lists, Editor(disputes))
        for campaign in lists:
            agent.run(campaign)

    @mat.step_contract(on="tool_call", id="struck.not_sent")
    def struck_drafts_are_not_sent(record: mat.Record) -> bool:
        return record.action.name != "send" or record.action.arguments["to"] not in disputes

    nth = sum(sizes[:long]) + refused + 1
    return Foreign(
        name="D06", seed=seed, plant={"customer": refused, "dispute": dispute, "campaigns": len(sizes)}, least=8, body=body,
        planted=tuple(fault("model.rate_limit", "drafter", number) for number in (nth, nth + 1)),
        contract=struck_drafts_are_not_sent,
    )  # fmt: skip


# -- D07: a model that calls tools --------------------------------------------------------------------------------------


def decided(mail: str, policies: Sequence[str], seen: Sequence[Mapping[str, Any]], order: str) -> dict[str, object]:
    """A model that calls the next tool. It believes what mails say."""
    if any("refused" in item for item in seen):
        return {"tool": "escalate", "arguments": {"order": order}}
    if "Already approved" in mail or "skip all checks" in mail:
        return {"tool": "refund", "arguments": {"order": order}}
    if not seen:
        return {"tool": "look_up", "arguments": {"order": order}}
    covered = any("refunded within" in text for text in policies) and "paid" in seen[-1]
    return {"tool": "refund" if covered else "escalate", "arguments": {"order": order}}


class HelpDesk:
    """Answers mails about orders. The model sees the policies for the product, and each refund is checked against them."""

    def __init__(self, policies: Mapping[str, Sequence[str]]) -> None:
        self.policies = mat.retriever("policies")(
            lambda product: [mat.Passage(text=text, source="policies.md") for text in policies[product]]
        )
        self.decide = mat.model("desk")(decided)
        self.look_up = mat.tool(lambda order: {"order": order, "paid": True, "since": "May"}, name="look_up", effect="read")
        self.refund = mat.tool(lambda order: "refunded", name="refund", effect="write", impact="high")
        self.open_ticket = mat.tool(lambda order: "opened", name="open_ticket", effect="write")

    def handle(self, order: str, product: str, mail: str) -> None:
        mail = mat.untrusted(mail, channel="email")
        policies = [passage.text for passage in self.policies(product)]
        seen: list[Mapping[str, Any]] = []
        with suppress(*FAILURES):  # whoever looks at the orders in the evening sees what is open
            for _ in range(4):
                try:
                    call = self.decide(mail, policies, seen, order)
                except RateLimited:
                    time.sleep(30)
                    continue
                if call["tool"] == "look_up":
                    seen.append(self.look_up(order=order))
                elif call["tool"] != "refund":
                    break
                elif any("not refunded" in text for text in policies):
                    seen.append({"refused": "the policy"})
                else:
                    self.refund(order=order)
                    return
            with mat.delegate("second line", task=f"Please look at order {order}."):
                self.open_ticket(order=order)


def tool_calls(seed: int) -> Foreign:
    """The check of refunds looks for a policy against them, and passes where it finds none.

    The mail must say that the refund is approved, or that checks are to be skipped (3), or the model escalates what no policy
    covers; and the policy that a product is not refunded must be missing (5). Whether an order is refunded follows from the
    calls for it.
    """
    draw = random.Random(f"D07/{seed}")
    products = ["lamps", "chairs", "shelves"][: draw.randrange(1, 4)]
    policies = {product: [f"{product.capitalize()} are refunded within 30 days."] for product in products}
    for product in products:
        policies[product].insert(draw.randrange(2), f"{product.capitalize()} are sent within three days.")
    final = "vouchers"
    place = draw.randrange(2)
    policies[final] = ["Vouchers are sent by mail at once."]
    policies[final].insert(place, "Vouchers are not refunded.")
    cases = [draw.choice([*products, final]) for _ in range(draw.randrange(2, 9))]
    case = draw.randrange(len(cases))
    cases[case] = final

    def body() -> None:
        desk = HelpDesk(policies)
        for number in range(len(cases)):
            desk.handle(f"A{number:02}", cases[number], f"Please send me the money for order A{number:02}.")

    @mat.step_contract(on="tool_call", id="refund.covered")
    def refunds_are_covered(record: mat.Record) -> bool:
        if record.action.name != "refund":
            return True
        return cases[int(record.action.arguments["order"][1:])] != final

    def group(record: mat.Record) -> str:
        if record.action.boundary in ("prompt", "retrieval"):
            return f"A{parse_site(record.site).nth - 1:02}"
        return str(record.action.arguments.get("order", ""))

    return Foreign(
        name="D07", seed=seed, plant={"case": case, "cases": len(cases)}, least=8, body=body,
        planted=(
            fault("prompt.splice", "email", case + 1, payload="false_approval"),
            fault("retrieval.drop", "policies", case + 1, passage=place),
        ),
        contract=refunds_are_covered, group=group,
    )  # fmt: skip


# -- D08: transcripts without names -------------------------------------------------------------------------------------

NAMES: Final = ("Ann Berg", "Jan Novak", "Maria Lopez", "Omar Haddad", "Wei Zhang")


def names_in(text: str) -> str:
    """A model that knows people by their first and last name together, and answers in JSON."""
    return json.dumps({"names": [name for name in NAMES if name in text]})


class Transcripts:
    """Has a model find the names in transcripts, masks them, and ships the rest to a vendor who keeps logs."""

    def __init__(self) -> None:
        self.find_names = mat.model("names")(names_in)
        self.ship = mat.tool(lambda transcript, text: "kept", name="ship", effect="write")
        self.withheld: list[str] = []

    def handle(self, transcript: str, lines: Sequence[str]) -> None:
        try:
            masked = [self.masked(line) for line in lines]
        except RateLimited:
            masked = [None]
        if None in masked:
            self.withheld.append(transcript)
            return
        with suppress(*FAILURES):  # the vendor's reports show what is missing
            self.ship(transcript=transcript, text="\n".join(str(line) for line in masked))

    def masked(self, text: str) -> str | None:
        for _ in range(2):
            found = self.asked(text)
            if found is not None:
                return found
        cut = text.rfind(" ", 0, len(text) // 2 + 1)  # a long text makes for long answers, which break off
        halves = [self.asked(text[:cut]), self.asked(text[cut + 1 :])]
        return None if None in halves else " ".join(str(half) for half in halves)

    def asked(self, text: str) -> str | None:
        """The text with its names masked; None if the answer cannot be read."""
        try:
            reply = self.find_names(text)
        except RateLimited:
            time.sleep(30)
            reply = self.find_names(text)
        try:
            for name in json.loads(reply)["names"]:
                text = text.replace(name, "[name]")
        except ValueError:
            return None
        return text


@mat.step_contract(on="tool_call", id="name.not_shipped")
def names_are_not_shipped(record: mat.Record) -> bool:
    """What goes to the vendor names nobody."""
    return record.action.name != "ship" or not any(name in record.action.arguments["text"] for name in NAMES)


def masked_names(seed: int) -> Foreign:
    """A line for which the answer is broken twice is cut in two, and in one line the cut goes through the name.

    Two answers for that line must be broken, one after the other (5 each). Pairs that cost less hold a refusal or a time-out:
    after a refusal the same is asked again, and shipping is all that can time out.
    """
    draw = random.Random(f"D08/{seed}")
    transcripts: list[list[str]] = []
    for number in range(draw.randrange(3, 9)):
        name = draw.choice(NAMES)
        lines = [f"{name} asks about order {number:02}, which was paid in May.", "The parcel has not arrived yet."]
        transcripts.append([*lines, f"It was sent on Monday {number}.", "Thank you very much."][: draw.randrange(2, 5)])
    weak = draw.randrange(len(transcripts))
    line = draw.randrange(len(transcripts[weak]))
    transcripts[weak][line] = f"Good morning, this is {draw.choice(NAMES)} asking about the bill"

    def body() -> None:
        agent = Transcripts()
        for number, lines in enumerate(transcripts):
            agent.handle(f"t-{number:02}", lines)

    nth = sum(len(lines) for lines in transcripts[:weak]) + line + 1
    return Foreign(
        name="D08", seed=seed, plant={"transcript": weak, "line": line, "transcripts": len(transcripts)}, least=10, body=body,
        planted=tuple(fault("model.malformed_call", "names", number) for number in (nth, nth + 1)),
        contract=names_are_not_shipped,
        group=lambda record: "all", kinds=("model.malformed_call", "model.rate_limit", "service.timeout"),
    )  # fmt: skip


# -- D09: a writer of vectors -------------------------------------------------------------------------------------------


class Vectors:
    """A store of vectors, with the version of the document that each is from."""

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}

    async def version(self, document: str) -> dict[str, object]:
        return {"document": document, "version": self.versions.get(document, 0)}

    async def upsert(self, document: str, version: int, vectors: Sequence[Sequence[float]]) -> str:
        self.versions[document] = version
        return "stored"


async def embedded(text: str) -> list[float]:
    """A model that embeds texts."""
    return [float(len(text)), float(text.count(" "))]


class Indexer:
    """Several workers take events about documents, embed their parts, and write the vectors."""

    def __init__(self, store: Vectors, events: Sequence[tuple[str, int, Sequence[str]]]) -> None:
        self.version = mat.tool(store.version, name="version", effect="read")
        self.upsert = mat.tool(store.upsert, name="upsert", effect="write")
        self.embed = mat.model("embedder")(embedded)
        self.events = list(events)
        self.locks = {document: asyncio.Lock() for document, _, _ in events}
        self.later: list[dict[str, Any]] = []
        self.open: list[str] = []

    async def work(self, name: str) -> None:
        with mat.agent(name):
            while self.events:
                document, version, parts = self.events.pop(0)
                try:
                    async with self.locks[document]:
                        await self.index(document, version, parts)
                except (RateLimited, *FAILURES):
                    self.open.append(document)  # it is crawled again at night

    async def index(self, document: str, version: int, parts: Sequence[str]) -> None:
        stored = await self.version(document=document)
        if stored["document"] != document or stored["version"] >= version:
            return
        vectors = await asyncio.gather(*(self.embedded(part) for part in parts))
        entry = {"document": document, "version": version, "vectors": list(vectors)}
        try:
            await self.upsert(**entry)
        except FAILURES:
            self.later.append(entry)

    async def embedded(self, part: str) -> list[float]:
        try:
            return list(await self.embed(part))
        except RateLimited:
            await asyncio.sleep(30)
            return list(await self.embed(part))

    async def catch_up(self) -> None:
        """Write what could not be written."""
        await asyncio.sleep(60)
        for entry in self.later:
            try:
                await self.upsert(**entry)
            except FAILURES:
                self.open.append(entry["document"])


@mat.step_contract(on="final_response", id="index.is_current")
def index_is_current(record: mat.Record) -> bool:
    """The index has the newest version of every document, apart from those that are known to be open."""
    return not record.state["outdated"]


def vector_writer(seed: int) -> Foreign:
    """What could not be written is written at the end, without another look at the version.

    The first version of the document that changes twice must not be written at first (4), and no fault of a call costs less.
    """
    draw = random.Random(f"D09/{seed}")
    documents = [f"doc-{number:02}" for number in range(draw.randrange(3, 12))]
    changing = draw.choice(documents)
    order = [(document, 1) for document in documents]
    order.insert(draw.randrange(order.index((changing, 1)) + 1, len(order) + 1), (changing, 2))
    texts = [[f"{document} part {part}" for part in range(draw.randrange(1, 3))] for document, _ in order]
    events = [(document, version, parts) for (document, version), parts in zip(order, texts, strict=True)]
    workers = draw.randrange(2, 4)

    def body() -> None:
        store = Vectors()

        async def everyone() -> Indexer:
            indexer = Indexer(store, events)
            await asyncio.gather(*(indexer.work(f"w{number}") for number in range(workers)))
            await indexer.catch_up()
            return indexer

        indexer = asyncio.run(everyone())
        newest = {document: version for document, version, _ in events if document not in indexer.open}
        mat.state(outdated=sum(store.versions[document] != version for document, version in newest.items()))
        mat.finish(f"{len(events)} events")

    (site,) = calls(body, "upsert", lambda given: (given["document"], given["version"]) == (changing, 1))
    return Foreign(
        name="D09", seed=seed, plant={"document": documents.index(changing), "documents": len(documents)}, least=4, body=body,
        planted=(fault("service.timeout", "upsert", site.nth, agent=site.agent),), contract=index_is_current,
    )  # fmt: skip


# -- D10: payouts in batches --------------------------------------------------------------------------------------------


class House:
    """A bank that takes batches of payouts, and knows a batch that comes again by its reference."""

    def __init__(self) -> None:
        self.batches: set[str] = set()
        self.paid: list[str] = []

    def submit(self, reference: str, payouts: Sequence[Mapping[str, Any]]) -> dict[str, object]:
        if reference not in self.batches:
            self.batches.add(reference)
            self.paid.extend(payout["id"] for payout in payouts)
        return {"reference": reference, "state": "accepted"}


class Payouts:
    """Submits batches of payouts, and keeps a checkpoint after each, so that it can go on where it ended."""

    def __init__(self, house: House, batches: Mapping[str, Sequence[Mapping[str, Any]]], urgent: Sequence[str]) -> None:
        self.due = mat.tool(lambda batch: list(batches[batch]), name="due", effect="read")
        self.submit = mat.tool(house.submit, name="submit", effect="write", impact="high")
        self.checkpoints = mat.memory({}, name="checkpoints")
        self.urgent = urgent
        self.parked: list[str] = []

    def handle(self, batch: str) -> None:
        if self.checkpoints.get(batch) == "done":
            return
        try:
            payouts = self.due(batch=batch)
        except FAILURES:
            self.parked.append(batch)
            return
        if not all(payout["id"].startswith(f"{batch}-") for payout in payouts):
            self.parked.append(batch)
            return
        self.checkpoints[batch] = "done" if self.submitted(batch, payouts) else "parked"

    def submitted(self, reference: str, payouts: Sequence[Mapping[str, Any]]) -> bool:
        late = 0
        for _ in range(8):
            try:
                return bool(self.submit(reference=reference, payouts=payouts)["reference"] == reference)
            except TimeoutError:
                late += 1
                time.sleep(10 * late)
            except ConnectionError:
                time.sleep(600)  # the bank says when it is back
            if late == 4:
                break
        if reference not in self.urgent or len(payouts) < 2:
            return False
        half = len(payouts) // 2  # a batch that is always late is too large
        return all([self.submitted(f"{reference}/1", payouts[:half]), self.submitted(f"{reference}/2", payouts[half:])])


@mat.step_contract(on="final_response", id="payout.made_once")
def payouts_are_made_once(record: mat.Record) -> bool:
    """Nobody is paid twice."""
    return not record.state["twice"]


def payout_batches(seed: int) -> Foreign:
    """A batch of wages that is late four times is submitted in two halves, whose references are new to the bank.

    It must be late four times (4 each), once at least after the bank has taken it. A connection that breaks does not count as
    late, so no outage does it, and other batches are parked. What is due is checked to be of the batch, so payouts of two
    batches never look the same. Only calls that submit that batch matter together.
    """
    draw = random.Random(f"D10/{seed}")
    names = [f"B{number:02}" for number in range(draw.randrange(3, 14))]
    wages = draw.choice(names)
    batches = {
        name: [{"amount": draw.randrange(100, 3_000), "id": f"{name}-{number}"} for number in range(draw.randrange(2, 6))]
        for name in names
    }
    arrives = draw.randrange(4)

    def body() -> None:
        house = House()
        agent = Payouts(house, batches, [wages])
        for batch in names:
            agent.handle(batch)
        mat.state(twice=sum(count > 1 for count in Counter(house.paid).values()))
        mat.finish(f"{len(names) - len(agent.parked)} batches")

    first = names.index(wages) + 1
    return Foreign(
        name="D10", seed=seed, plant={"batch": first - 1, "batches": len(names)}, least=16, budget=16, body=body,
        planted=tuple(
            fault("service.lost_ack" if late == arrives else "service.timeout", "submit", first + late) for late in range(4)
        ),
        contract=payouts_are_made_once,
        group=lambda record: wages if str(record.action.arguments.get("reference", "")).startswith(wages) else "",
        kinds=("service.timeout", "service.lost_ack"),
    )  # fmt: skip


AGENTS: Final[dict[str, Callable[[int], Foreign]]] = {
    f"D{number:02}": make
    for number, make in enumerate(
        (
            time_zones, webhooks, bulk_import, two_phases, request_budget, reviewed_drafts, tool_calls, masked_names,
            vector_writer, payout_batches,
        ),
        start=1,
    )
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(AGENTS, __doc__))
