"""tau-bench's customer service: its airline and retail policies as contracts.

Each contract cites the sentence of the policy it comes from (the first message of every run). The policy is the only source:
what a task expects and what a run earned is not read. Both domains share what the two policies say alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from mat.core.record import ActionKind, Record
from mat.core.value import EMPTY, FrozenDict
from mat.core.verdict import Severity
from mat.monitor.contract import Contract, Violated
from mat_contracts.coordination import no_oscillation
from mat_contracts.effects import success_claims_match_effects
from mat_contracts.idempotency import no_duplicate_effect
from mat_contracts.progress import terminates
from mat_contracts.retry import no_retry_storm

TRANSFER = "transfer_to_human_agents"
AIRLINE_WRITES = (
    "book_reservation", "cancel_reservation", "send_certificate", "update_reservation_baggages", "update_reservation_flights",
    "update_reservation_passengers",
)  # fmt: skip
RETAIL_WRITES = (
    "cancel_pending_order", "exchange_delivered_order_items", "modify_pending_order_address", "modify_pending_order_items",
    "modify_pending_order_payment", "modify_user_address", "return_delivered_order_items",
)  # fmt: skip
_YES = re.compile(
    r"\b(?:yes|yeah|yep|sure|confirm(?:ed)?|go ahead|proceed|please do|correct|okay|ok|sounds good|that works|do it|"
    r"(?:that|it) (?:is|looks|seems) (?:right|good|fine)|that's (?:right|fine|good))\b",
    re.IGNORECASE,
)
_USER_ID = re.compile(r"\b[a-z]+_[a-z]+_\d{4}\b")
_NOW = datetime(2024, 5, 15, 15, 0, 0)
"""The time the airline policy states."""
_DAY_S = 24 * 3600
_KINDS: frozenset[ActionKind] = frozenset(("message", "model_call", "tool_call", "final_response"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What the agent knows: the conversation's standing, the records it looked up, and what it did to them.

    `people` and `entries` are the latest reply about each user, order, reservation or product, by its id.
    """

    told: str = ""
    answered: str = ""
    said: frozenset[str] = frozenset()
    user: str = ""
    people: FrozenDict = EMPTY
    entries: FrozenDict = EMPTY
    variants: FrozenDict = EMPTY
    flights: frozenset[tuple[str, str]] = frozenset()
    changed: frozenset[tuple[str, str]] = frozenset()
    transferred: int = -1
    busy: int = -1


_IDS = re.compile(r"#?\w*\d\w*|\b[A-Z0-9]{6}\b")


def after(desk: Desk, record: Record) -> Desk:
    """What is known after a record."""
    action, value = record.action, record.observation.value
    if action.kind in ("message", "final_response"):
        text = str(action.arguments.get("text", action.arguments.get("answer", "")))
        said = desk.said | frozenset(word.casefold().lstrip("#") for word in _IDS.findall(text))
        if action.name == "user" and record.agent == "user":
            user = desk.user or next(iter(_USER_ID.findall(text)), "")
            return replace(desk, answered=text, said=said, user=user)
        return replace(desk, told=text, answered="", said=said) if record.agent == "assistant" else desk
    if action.kind != "tool_call":
        return desk
    desk = replace(desk, busy=max(desk.busy, record.sealed_seq))
    if record.observation.error is not None:
        return desk
    if action.name == TRANSFER:
        return replace(desk, transferred=record.step)
    if action.name.startswith("find_user_id") and isinstance(value, str):
        return replace(desk, user=value)
    return _looked_up(desk, record, value)


def _looked_up(desk: Desk, record: Record, value: Any) -> Desk:
    """What a reply says about users, orders, reservations, products and flights; of a write also that it was done."""
    action = record.action
    entry = _entry_of(action.arguments)
    if isinstance(value, list | tuple) and action.name.startswith("search_"):
        found = frozenset(
            (str(item.get("flight_number")), str(item.get("date"))) for item in _flat(value) if isinstance(item, Mapping)
        )
        return replace(desk, flights=desk.flights | found)
    if not isinstance(value, Mapping):
        return desk
    if "payment_methods" in value and "name" in value:
        who = str(action.arguments.get("user_id", ""))
        desk = replace(desk, people=FrozenDict({**desk.people, who: value}), user=desk.user or who)
    elif "order_id" in value or "reservation_id" in value:
        entry = str(value.get("order_id", value.get("reservation_id")))
        desk = replace(desk, entries=FrozenDict({**desk.entries, entry: value}))
    elif isinstance(value.get("variants"), Mapping):
        items = {name: (value.get("product_id"), bool(item.get("available"))) for name, item in value["variants"].items()}
        desk = replace(desk, variants=FrozenDict({**desk.variants, **items}))
    if action.effect == "write" and entry:
        desk = replace(desk, changed=desk.changed | {(entry, action.name)})
    return desk


def _flat(items: Any) -> Iterator[Any]:
    for item in items:
        yield from _flat(item) if isinstance(item, list | tuple) else (item,)


def _entry_of(arguments: Mapping[str, Any]) -> str:
    """The order or reservation a call is about."""
    return str(arguments.get("order_id") or arguments.get("reservation_id") or "")


Check = Callable[[Desk, Record], str]
"""Says what is wrong with a record after what was known before it; an empty text where nothing is."""


def rule(name: str, text: str, check: Check, *, severity: Severity = "hard", repair: str = "") -> Contract:
    """A contract from a check; `text` is the policy's sentence."""

    def step(desk: Desk, record: Record) -> Desk | Violated:
        wrong, new = check(desk, record), after(desk, record)
        if not wrong:
            return new
        instance = _entry_of(record.action.arguments)
        return Violated(wrong, state=new, witness=(record.step,), instance=instance, wanted=text)

    return Contract(
        id=f"policy.{name}", step=step, start=Desk(), kinds=_KINDS, text=text, severity=severity, repair=repair or text
    )


def on_writes(names: Sequence[str], check: Check) -> Check:
    """A check of calls of these tools only."""
    wanted = frozenset(names)
    return lambda desk, record: (
        check(desk, record) if record.action.kind == "tool_call" and record.action.name in wanted else ""
    )


# -- what both policies say -------------------------------------------------------------------------------------------


def _confirmed(desk: Desk, record: Record) -> str:
    if desk.told and _YES.search(desk.answered):
        return ""
    return f"{record.action.name} without an explicit yes: the user's last words were {desk.answered[:80]!r}"


def _listed(desk: Desk, record: Record) -> str:
    entry = _entry_of(record.action.arguments)
    return "" if not entry or entry.casefold().lstrip("#") in desk.said else f"nobody named {entry} before {record.action.name}"


def _one_at_a_time(desk: Desk, record: Record) -> str:
    if record.action.kind == "model_call":
        return "a text next to a tool call" if record.observation.value else ""
    if record.action.kind == "tool_call" and record.asked_seq < desk.busy:
        return f"{record.action.name} was called while another call was open"
    return ""


def _over(desk: Desk, record: Record) -> str:
    acts = record.action.kind == "tool_call"
    return f"{record.action.name} after the transfer of step {desk.transferred}" if acts and desk.transferred >= 0 else ""


def _accepted(desk: Desk, record: Record) -> str:
    error = record.observation.error
    return f"{record.action.name} was refused: {error.message[:80]}" if error and record.action.kind == "tool_call" else ""


def _known_entry(desk: Desk, record: Record) -> str:
    entry = _entry_of(record.action.arguments)
    return f"{record.action.name} of {entry}, which was not looked up" if entry and entry not in desk.entries else ""


def _own_entry(desk: Desk, record: Record) -> str:
    owner = _known(desk, record).get("user_id")
    return (
        f"{record.action.name} of what belongs to {owner}, not to {desk.user}"
        if owner and desk.user and owner != desk.user
        else ""
    )


def _known(desk: Desk, record: Record) -> Mapping[str, Any]:
    entry = desk.entries.get(_entry_of(record.action.arguments))
    return entry if isinstance(entry, Mapping) else {}


def _methods(desk: Desk) -> Mapping[str, Any]:
    person = desk.people.get(desk.user)
    methods = person.get("payment_methods") if isinstance(person, Mapping) else None
    return methods if isinstance(methods, Mapping) else {}


def _paid_with(arguments: Mapping[str, Any]) -> list[str]:
    several = arguments.get("payment_methods")
    if isinstance(several, list | tuple):
        return [str(item.get("payment_id")) for item in several if isinstance(item, Mapping)]
    one = arguments.get("payment_id", arguments.get("payment_method_id"))
    return [str(one)] if one else []


def _own_payment(desk: Desk, record: Record) -> str:
    known = {*_methods(desk)}
    if not known:
        return ""
    strange = [name for name in _paid_with(record.action.arguments) if name not in known]
    return f"{record.action.name} with {', '.join(strange)}, which the user's profile does not have" if strange else ""


_DOES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "airline": {
        "refund": ("cancel_*", "update_reservation_flights"), "charge": ("book_*", "update_*"), "pay": ("book_*", "update_*"),
        "apply": ("book_*", "update_*"), "upgrade": ("update_*",), "change": ("update_*",), "add": ("update_*",),
    },
    "retail": {
        **dict.fromkeys(("refund", "credit", "process", "issue", "add"), ("cancel_*", "return_*", "exchange_*", "modify_*")),
        **dict.fromkeys(("replace", "switch", "charge", "pay", "change"), ("exchange_*", "modify_*")),
        **dict.fromkeys(("update", "initiate", "request"), ("cancel_*", "return_*", "exchange_*", "modify_*")),
    },
}  # fmt: skip
"""What each domain's tools do besides their names, by the policy: cancelling an order refunds it, changing one charges."""


def shared(writes: Sequence[str], domain: str) -> tuple[Contract, ...]:
    """What both policies say, and general templates."""
    yes = "list the action details and obtain explicit user confirmation (yes) before updating the database"
    return (
        rule("confirmed", yes, on_writes(writes, _confirmed)),
        rule("named", yes, on_writes(writes, _listed), severity="soft"),
        rule("one_at_a_time", "one tool call at a time, and no response beside it", _one_at_a_time, severity="soft"),
        rule("over_after_transfer", "a transfer ends what the agent does", _over),
        rule("looked_up", "check the status of what a write changes before it", on_writes(writes, _known_entry)),
        rule("own", "help one user per conversation, with what is theirs", on_writes(writes, _own_entry)),
        rule("own_payment", "payment methods are those of the user's profile", on_writes(writes, _own_payment)),
        rule("accepted", "calls keep the rules the tools check", on_writes(writes, _accepted)),
        no_retry_storm(id="template.no_retry_storm"),
        no_duplicate_effect(writes, id="template.no_duplicate_effect"),
        no_oscillation(id="template.no_oscillation", kinds="tool_call"),
        success_claims_match_effects(id="template.success_claims_match_effects", verbs=_DOES[domain]),
        terminates(id="template.terminates"),
    )


# -- airline ----------------------------------------------------------------------------------------------------------


def airline() -> tuple[Contract, ...]:
    """The airline policy."""
    cancel, flights, book = ("cancel_reservation",), ("update_reservation_flights",), ("book_reservation",)
    bags = ("update_reservation_baggages", "book_reservation")
    return (
        *shared(AIRLINE_WRITES, "airline"),
        rule("user_known", "first obtain the user id", on_writes(AIRLINE_WRITES, _user_known)),
        rule("may_cancel", "cancel within 24 hours, business, or as insurance allows", on_writes(cancel, _may_cancel)),
        rule("not_flown", "only trips that are not flown are cancelled", on_writes(cancel, _not_flown)),
        rule("basic_economy_stays", "basic economy flights cannot be modified", on_writes(flights, _basic_stays)),
        rule("same_ends", "origin, destination and trip type stay", on_writes(flights, _same_ends)),
        rule("flights_seen", "flights are those the search showed as available", on_writes(flights, _flights_seen)),
        rule("no_certificate", "changed flights are paid by gift card or credit card", on_writes(flights, _no_certificate)),
        rule("bags_stay", "checked bags are added, not removed", on_writes(bags[:1], _bags_stay)),
        rule("bags_free", "the free allowance is as the policy says", on_writes(bags, _bags_free)),
        rule("same_number", "the number of passengers stays", on_writes(("update_reservation_passengers",), _same_number)),
        rule("booking", "at most 5 passengers, 1 certificate, 1 credit card, 3 gift cards", on_writes(book, _booking)),
        rule("certificate", "certificates are $100 or $50 a passenger", on_writes(("send_certificate",), _certificate)),
    )


def _user_known(desk: Desk, record: Record) -> str:
    return "" if desk.user or _known(desk, record) else f"{record.action.name} before the user id was known"


def _may_cancel(desk: Desk, record: Record) -> str:
    known = _known(desk, record)
    if not known or known.get("cabin") == "business" or known.get("insurance") == "yes":
        return ""
    try:
        age = (_NOW - datetime.fromisoformat(str(known.get("created_at")))).total_seconds()
    except ValueError:
        return ""
    if age <= _DAY_S:
        return ""
    return f"a {known.get('cabin')} reservation without insurance, booked on {known.get('created_at')}, was cancelled"


def _not_flown(desk: Desk, record: Record) -> str:
    dates = [str(item.get("date")) for item in _known(desk, record).get("flights", ()) if isinstance(item, Mapping)]
    return f"a flight of {min(dates)} may be flown" if dates and min(dates) < f"{_NOW:%Y-%m-%d}" else ""


def _legs(items: Any) -> list[tuple[str, str]]:
    given = items if isinstance(items, list | tuple) else ()
    return [(str(item.get("flight_number")), str(item.get("date"))) for item in given if isinstance(item, Mapping)]


def _basic_stays(desk: Desk, record: Record) -> str:
    known = _known(desk, record)
    moved = sorted(_legs(known.get("flights"))) != sorted(_legs(record.action.arguments.get("flights")))
    return "the flights of a basic economy reservation were changed" if known.get("cabin") == "basic_economy" and moved else ""


def _same_ends(desk: Desk, record: Record) -> str:
    before, now = _legs(_known(desk, record).get("flights")), _legs(record.action.arguments.get("flights"))
    if before and not now:
        return "a reservation was left without flights"
    one_way = _known(desk, record).get("flight_type") == "one_way"
    return "a round trip lost its way back" if before and not one_way and len(now) < 2 else ""


def _flights_seen(desk: Desk, record: Record) -> str:
    known = {*desk.flights, *_legs(_known(desk, record).get("flights"))}
    new = [leg for leg in _legs(record.action.arguments.get("flights")) if leg not in known]
    return f"flight {' on '.join(new[0])} was never looked up" if new else ""


def _no_certificate(desk: Desk, record: Record) -> str:
    paid = _paid_with(record.action.arguments)
    return f"changed flights were paid with {paid[0]}" if paid and paid[0].startswith("certificate") else ""


def _bags_stay(desk: Desk, record: Record) -> str:
    before, now = _known(desk, record).get("total_baggages"), record.action.arguments.get("total_baggages")
    return (
        f"checked bags went from {before} to {now}" if isinstance(before, int) and isinstance(now, int) and now < before else ""
    )


_FREE: Mapping[str, Mapping[str, int]] = {
    "regular": {"basic_economy": 0, "economy": 1, "business": 2},
    "silver": {"basic_economy": 1, "economy": 2, "business": 3},
    "gold": {"basic_economy": 2, "economy": 3, "business": 3},
}


def _bags_free(desk: Desk, record: Record) -> str:
    arguments, known = record.action.arguments, _known(desk, record)
    source = known or arguments
    person = desk.people.get(str(source.get("user_id") or desk.user))
    member = person.get("membership") if isinstance(person, Mapping) else None
    total, paid, passengers = arguments.get("total_baggages"), arguments.get("nonfree_baggages"), source.get("passengers")
    free = _FREE.get(str(member), {}).get(str(source.get("cabin")))
    if free is None or not isinstance(total, int) or not isinstance(paid, int) or not isinstance(passengers, list | tuple):
        return ""
    owed = max(0, total - free * len(passengers))
    return f"{paid} bags were charged, the policy says {owed}" if paid != owed else ""


def _same_number(desk: Desk, record: Record) -> str:
    before, now = _known(desk, record).get("passengers"), record.action.arguments.get("passengers")
    if not isinstance(before, list | tuple) or not isinstance(now, list | tuple) or len(before) == len(now):
        return ""
    return f"{len(before)} passengers became {len(now)}"


def _booking(desk: Desk, record: Record) -> str:
    arguments = record.action.arguments
    passengers, paid = arguments.get("passengers"), _paid_with(arguments)
    if isinstance(passengers, list | tuple) and len(passengers) > 5:
        return f"{len(passengers)} passengers in one reservation"
    for kind, most in (("certificate", 1), ("credit_card", 1), ("gift_card", 3)):
        if sum(name.startswith(kind) for name in paid) > most:
            return f"more than {most} {kind} in one booking"
    return ""


def _certificate(desk: Desk, record: Record) -> str:
    person = desk.people.get(str(record.action.arguments.get("user_id") or desk.user))
    mine = [entry for entry in desk.entries.values() if isinstance(entry, Mapping)]
    member = person.get("membership") if isinstance(person, Mapping) else None
    if member == "regular" and not any(item.get("insurance") == "yes" or item.get("cabin") == "business" for item in mine):
        return "a certificate for a regular member without insurance who flies economy"
    amount = record.action.arguments.get("amount")
    fair = {each * len(item.get("passengers", ())) for item in mine for each in (50, 100)}
    return f"a certificate of {amount}" if fair and amount not in fair else ""


# -- retail -----------------------------------------------------------------------------------------------------------

_NEEDS: Mapping[str, str] = {
    "cancel_pending_order": "pending", "modify_pending_order_address": "pending", "modify_pending_order_items": "pending",
    "modify_pending_order_payment": "pending", "exchange_delivered_order_items": "delivered",
    "return_delivered_order_items": "delivered",
}  # fmt: skip
_ONCE = ("exchange_delivered_order_items", "modify_pending_order_items")
_REASONS = ("no longer needed", "ordered by mistake")


def retail() -> tuple[Contract, ...]:
    """The retail policy."""
    reads = ("get_user_details", "get_order_details")
    return (
        *shared(RETAIL_WRITES, "retail"),
        rule(
            "authenticated",
            "authenticate the user by email, or name and zip code, first",
            on_writes((*reads, *RETAIL_WRITES), _authenticated),
        ),
        rule(
            "status",
            "only pending orders are cancelled or modified, only delivered ones returned or exchanged",
            on_writes(RETAIL_WRITES, _status),
        ),
        rule("once", "exchange and modify tools are called once an order", on_writes(_ONCE, _once)),
        rule(
            "items_of_order",
            "items are those of the order",
            on_writes((*_ONCE, "return_delivered_order_items"), _items_of_order),
        ),
        rule("same_product", "each item becomes an available item of the same product", on_writes(_ONCE, _same_product)),
        rule(
            "refund_to",
            "refunds go to the original payment method or a gift card",
            on_writes(("return_delivered_order_items",), _refund_to),
        ),
        rule(
            "other_payment",
            "a changed payment method differs from the original one",
            on_writes(("modify_pending_order_payment",), _other_payment),
        ),
        rule(
            "reason", "the reason is 'no longer needed' or 'ordered by mistake'", on_writes(("cancel_pending_order",), _reason)
        ),
    )


def _authenticated(desk: Desk, record: Record) -> str:
    found = desk.user and (not _USER_ID.search(desk.answered) or desk.user not in desk.answered)
    return "" if found else f"{record.action.name} before the user was found by email or by name and zip code"


def _status(desk: Desk, record: Record) -> str:
    status, needed = _known(desk, record).get("status"), _NEEDS.get(record.action.name)
    return f"{record.action.name} of an order that is {status}" if status and needed and status != needed else ""


def _once(desk: Desk, record: Record) -> str:
    done = (_entry_of(record.action.arguments), record.action.name) in desk.changed
    return f"a second {record.action.name} of the same order" if done else ""


def _texts(given: Any) -> list[str]:
    return [str(item) for item in given] if isinstance(given, list | tuple) else []


def _bought(desk: Desk, record: Record) -> dict[str, str]:
    """Product by item of the order a call is about."""
    items = _known(desk, record).get("items", ())
    return {str(item.get("item_id")): str(item.get("product_id")) for item in items if isinstance(item, Mapping)}


def _items_of_order(desk: Desk, record: Record) -> str:
    bought = _bought(desk, record)
    strange = [item for item in _texts(record.action.arguments.get("item_ids")) if bought and item not in bought]
    return f"item {strange[0]} is not in the order" if strange else ""


def _same_product(desk: Desk, record: Record) -> str:
    old, new = (_texts(record.action.arguments.get(name)) for name in ("item_ids", "new_item_ids"))
    if len(old) != len(new):
        return f"{len(old)} items for {len(new)}"
    bought = _bought(desk, record)
    for before, now in zip(old, new, strict=True):
        variant = desk.variants.get(now)
        if variant is None:
            return f"item {now} was never looked up"
        if not variant[1]:
            return f"item {now} is not available"
        if before in bought and bought[before] != str(variant[0]):
            return f"item {before} for {now}, which is another product"
        if before == now:
            return f"item {now} for itself"
    return ""


def _refund_to(desk: Desk, record: Record) -> str:
    paid = _known(desk, record).get("payment_history", ())
    original = {str(item.get("payment_method_id")) for item in paid if isinstance(item, Mapping)}
    to = str(record.action.arguments.get("payment_method_id", ""))
    return f"the refund goes to {to}" if original and to not in original and not to.startswith("gift_card") else ""


def _other_payment(desk: Desk, record: Record) -> str:
    paid = _known(desk, record).get("payment_history", ())
    to = str(record.action.arguments.get("payment_method_id", ""))
    same = any(isinstance(item, Mapping) and item.get("payment_method_id") == to for item in paid)
    return f"{to} already pays this order" if same else ""


def _reason(desk: Desk, record: Record) -> str:
    reason = record.action.arguments.get("reason")
    return f"the reason is {reason!r}" if reason not in _REASONS else ""
