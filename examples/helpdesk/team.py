"""The team: a planner reads mail and decides, a verifier checks, a mailer acts. Guards tell the careful team from the naive."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Final

import mat
from helpdesk.tools import DOWN, Tools

TRIES: Final = 2
"""Attempts at a service before a careful team gives up."""
QUEUE_S: Final = 120
"""How long a ticket waits between triage and answer."""
MAX_AGE_S: Final = 30
"""Older tracking is not current."""
APPROVAL_CENTS: Final = 10_000
"""Larger refunds need a person's approval."""
STATUSES: Final = ("dispatched", "delivered")
INTENTS: Final = ("refund", "track", "question")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """The guards of a careful team; each can be removed separately."""

    verify_refunds: bool = True
    """Check that the order belongs to the sender, whatever the plan says."""
    ask_before_retry: bool = True
    """After a refund that timed out, ask the shop what was paid before paying again."""
    fresh_tracking: bool = True
    """Believe tracking only if it says that it was taken just now."""
    give_up: bool = True
    """Stop asking a service that does not answer, and hand the ticket to a person."""
    check_consent: bool = True
    """Look the customer up in the opt-out list when an offer is sent; notes are not enough."""
    own_words: bool = True
    """Quote nothing from an email in an answer: it may hold an injection."""


CAREFUL: Final = Guards()
NAIVE: Final = Guards(**{field.name: False for field in fields(Guards)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Email:
    ticket: str
    sender: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    intent: str
    order: str
    verify: bool
    offer: bool
    greeting: str


class GaveUpError(Exception):
    """The team cannot go on; the ticket goes to a person."""


class Team:
    """Answers one email at a time. `handle` returns the answer to the customer, or why a person has to look at the email."""

    def __init__(self, tools: Tools, guards: Guards = CAREFUL) -> None:
        self._tools, self._guards = tools, guards

    def handle(self, email: Email) -> str:
        mat.state(open_subtasks=4, retries=0)
        with mat.agent("planner", role="planner"):
            try:
                answer = self._work(email)
            except GaveUpError as reason:
                return self._escalate(email, str(reason))
            mat.finish(answer)
            return answer

    def _work(self, email: Email) -> str:
        email = replace(email, text=mat.untrusted(email.text, channel="email"))
        plan = self._plan(email)
        mat.state(open_subtasks=3)
        if plan.intent == "refund":
            answer = self._refund(email, plan)
        elif plan.intent == "track":
            answer = self._locate(email, plan)
        else:
            answer = self._explain(email)
        mat.state(open_subtasks=1)
        self._reply(email, plan, answer)
        return answer

    def _plan(self, email: Email) -> Plan:
        notes = self._ask(lambda: self._tools.notes.get(email.sender, []))
        reply = self._ask(lambda: self._tools.plan(email.text, notes))
        try:
            plan = Plan(**reply)
        except TypeError:
            raise GaveUpError("the planner's decision cannot be read") from None
        if plan.intent not in INTENTS:
            raise GaveUpError(f"no such intent: {plan.intent}")
        return plan

    def _order(self, plan: Plan) -> dict[str, Any]:
        try:
            order: dict[str, Any] = self._ask(lambda: self._tools.order(plan.order))
        except LookupError:
            raise GaveUpError("there is no such order") from None
        return order

    # -- refunds ----------------------------------------------------------------------------------------------------

    def _refund(self, email: Email, plan: Plan) -> str:
        order = self._order(plan)
        mat.state(open_subtasks=2)
        if self._guards.verify_refunds or plan.verify:
            with mat.delegate("verifier", task=f"does order {plan.order} belong to {email.sender}?"):
                owned = order["id"] == plan.order and order["email"] == email.sender
                mat.verify("order belongs to the sender", passed=owned, supports=[order])
                mat.message("planner", f"order {plan.order}: {'go ahead' if owned else 'stop'}")
            if not owned:
                raise GaveUpError("the order is not the sender's")
        if order["cents"] > APPROVAL_CENTS and not mat.approval("large refund", order=plan.order, cents=order["cents"]):
            raise GaveUpError("the refund is large and nobody approved it")
        with mat.delegate("mailer", task=f"refund order {plan.order}"):
            self._pay(plan.order, order["cents"])
        return f"Your order {plan.order} is refunded."

    def _pay(self, order: str, cents: int) -> None:
        for attempt in range(1, TRIES + 1):
            try:
                self._tools.refund(order, cents)
                return
            except DOWN as error:
                mat.detect(f"refund failed: {type(error).__name__}")
                mat.state(retries=attempt)
            if self._guards.ask_before_retry and self._is_paid(order):
                return
            mat.mitigate("retry")
        raise GaveUpError("the refund did not go through")

    def _is_paid(self, order: str) -> bool:
        """Whether the shop has paid; only an answer that says plainly "nothing" allows another try."""
        known = self._ask(lambda: self._tools.refunds(order))
        if known == {"order": order, "count": 0, "refunds": []}:
            return not mat.verify("nothing was paid yet", passed=True, supports=[known])
        if known.get("order") != order or known.get("count") != len(known.get("refunds") or ()):
            raise GaveUpError("the shop's list of refunds makes no sense")
        return True

    # -- parcels ----------------------------------------------------------------------------------------------------

    def _locate(self, email: Email, plan: Plan) -> str:
        parcel = self._order(plan)["parcel"]
        triage = self._ask(lambda: self._tools.track(parcel))
        self._once(lambda: self._tools.set_ticket(email.ticket, f"waiting, parcel {triage['status']}"))
        mat.state(open_subtasks=2)
        time.sleep(QUEUE_S)
        latest = self._current(parcel)
        return mat.claim(f"Parcel {parcel} is {latest['status']}.", supports=[latest])

    def _current(self, parcel: str) -> dict[str, Any]:
        """Current tracking."""
        for _ in range(TRIES):
            reply = self._ask(lambda: self._tools.track(parcel))
            if not self._guards.fresh_tracking or _is_fresh(reply, parcel):
                return reply
            mat.detect("tracking is stale", supports=[reply])
            mat.mitigate("retry")
        raise GaveUpError("the carrier has no current news")

    # -- questions --------------------------------------------------------------------------------------------------

    def _explain(self, email: Email) -> str:
        passages = self._ask(lambda: self._tools.search(email.text))
        if not passages:
            raise GaveUpError("the knowledge base says nothing about it")
        best = max(passages, key=lambda passage: passage.score)
        return mat.claim(best.text, supports=[best])

    # -- mail -------------------------------------------------------------------------------------------------------

    def _reply(self, email: Email, plan: Plan, answer: str) -> None:
        body = f"{plan.greeting}! {answer}"
        if not self._guards.own_words:
            body += f"\n> {email.text}"
        with mat.delegate("mailer", task="answer the customer"):
            self._once(lambda: self._tools.mail(email.sender, "Your request", body))
            self._once(lambda: self._tools.set_ticket(email.ticket, "answered"))
            if plan.offer and (not self._guards.check_consent or self._wants_offers(email.sender)):
                self._once(lambda: self._tools.offer(email.sender, "Kettles at half the price!"))
        mat.state(open_subtasks=0)

    def _wants_offers(self, customer: str) -> bool:
        consent = self._ask(lambda: self._tools.consent(customer))
        return mat.verify("customer wants offers", passed=consent == {"customer": customer, "offers": "granted"})

    # -- services that do not answer --------------------------------------------------------------------------------

    def _ask(self, read: Callable[[], Any]) -> Any:
        """Read from a service that may be down; GaveUpError after TRIES, or never without that guard."""
        attempt = 0
        while True:
            try:
                reply = read()
            except DOWN as error:
                attempt += 1
                mat.detect(f"no answer: {type(error).__name__}")
                mat.state(retries=attempt)
                if self._guards.give_up and attempt >= TRIES:
                    raise GaveUpError("a service does not answer") from error
                mat.mitigate("retry")
                time.sleep(attempt)
            else:
                mat.state(retries=0)
                return reply

    def _once(self, write: Callable[[], None]) -> None:
        """Write once. A write that timed out may have happened, so it is not repeated blindly."""
        try:
            write()
        except DOWN as error:
            raise GaveUpError("nobody knows whether the last step was done") from error

    def _escalate(self, email: Email, reason: str) -> str:
        mat.state(open_subtasks=0, retries=0)
        mat.mitigate("escalate", reason=reason)
        try:
            self._tools.set_ticket(email.ticket, "escalated")
        except DOWN:
            mat.detect("the ticket could not be updated")
        mat.finish(reason, status="aborted")
        return f"A person will look at it: {reason}"


def _is_fresh(tracking: dict[str, Any], parcel: str) -> bool:
    """Whether tracking is about this parcel, readable and current."""
    try:
        age_s = time.time() - datetime.fromisoformat(tracking["as_of"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return False
    return tracking.get("parcel") == parcel and tracking.get("status") in STATUSES and abs(age_s) <= MAX_AGE_S
