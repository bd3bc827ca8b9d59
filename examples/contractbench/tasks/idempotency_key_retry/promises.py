"""The contracts on traces of this task: the key of an invoice in all attempts to pay it, as it came, and waits kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import mat
from mat.core.artifact import issued, used
from mat.core.value import EMPTY, FrozenDict
from mat.monitor.contract import Violated
from mat_contracts.observation import backoff_respected, compliant, exchange, expected, idempotency_key_kept, required

PAY, INTEND = "POST /invoices/{invoice}/payment", "POST /intents"
UNANSWERED = (409, 503, 504)
ISSUES = (
    mat.artifact.issue("idempotency_key", at="body.idempotency_key", expires_in="body.expires_in", when={"url": "/intents$"}),
)  # fmt: skip
CONSUMES = (mat.artifact.consume("idempotency_key", at="headers.idempotency-key", when={"url": "/payment$"}, required=False),)


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    names = [invoice["id"] for invoice in given["invoices"]]
    due = [
        expected(f"POST /invoices/{of['id']}/payment", {"body.amount": of["amount"], "body.currency": of["currency"]})
        for of in given["invoices"]
    ]
    return [
        compliant("idempotency_key"),
        idempotency_key_kept(PAY),
        _one_key_for_each_invoice(),
        backoff_respected(PAY, statuses=UNANSWERED),
        required(PAY, ["headers.idempotency-key", "body.amount", "body.currency"]),
        required(INTEND, "body.invoice", label="WRONG_VALUE"),
        expected(INTEND, {"body.invoice": names}),
        expected(PAY, {"path.invoice": names}),
        *due,
    ]


class _Keys(NamedTuple):
    meant: FrozenDict = EMPTY
    """Key -> the invoice it was given for."""
    sent: FrozenDict = EMPTY
    """Invoice -> the key of the first payment that may have been made."""


def _one_key_for_each_invoice() -> mat.Contract:
    @mat.trace_contract(start=_Keys(), on="tool_call", id="one key for each invoice", label="WRONG_VALUE")
    def kept(state: _Keys, record: mat.Record) -> _Keys | Violated:
        """A payment carries the key that was given for its invoice, and never another one once it may have been made."""
        found = exchange(record)
        if found is None:
            return state
        for new in issued(record):
            state = state._replace(meant=FrozenDict({**state.meant, new.id: str(found.fields.get("invoice"))}))
        if not found.path.endswith("/payment"):
            return state
        invoice = found.path.split("/")[-2]
        for item in used(record):
            if not item.intact or item.at.lower() != "headers.idempotency-key":
                continue
            before = state.sent.get(invoice)
            if state.meant.get(item.id) != invoice or before not in (None, item.id):
                return Violated(f"{item.id} is not the key that {invoice} is paid with", state=state)
            if found.succeeded or found.status in UNANSWERED:
                state = state._replace(sent=FrozenDict({**state.sent, invoice: item.id}))
        return state

    return kept
