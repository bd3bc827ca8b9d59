"""The contracts on traces of this task: offers are claimed in time, as signed, and reported whole and by priority."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mat
from mat.core.artifact import used
from mat.monitor.contract import Violated
from mat_contracts.observation import compliant, exchange, required

REPORT = "POST /allocations"
ISSUES = (
    mat.artifact.issue("offer_url", at="body.offers.*.url", expires_in="expires_in", when={"url": "/pool$"}),
    mat.artifact.issue("plan", at="body.plan", when={"url": "/pool$"}),
    mat.artifact.issue("confirmation", at="body.confirmation", when={"method": "POST"}),
)
CONSUMES = (
    mat.artifact.consume("plan", at="json.plan", when={"url": "/allocations$"}, required=False),
    mat.artifact.consume("confirmation", at="json.confirmations.*", when={"url": "/allocations$"}, required=False),
)


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    ranked = sorted(given["offers"], key=lambda offer: offer["priority"])
    last = len(ranked) - 1
    return [
        compliant(["offer_url", "plan", "confirmation"]),
        required(REPORT, ["body.plan", "body.confirmations.0", f"body.confirmations.{last}"]),
        _by_priority([offer["name"] for offer in ranked]),
    ]


def _by_priority(names: list[str]) -> mat.Contract:
    @mat.trace_contract(start=(), on="tool_call", id="reported by priority", label="WRONG_VALUE")
    def ordered(claimed: tuple[str, ...], record: mat.Record) -> tuple[str, ...] | Violated:
        """The confirmations of a report stand in the order of priority; claimed: what each confirmation was given for."""
        found = exchange(record)
        if found is None:
            return claimed
        if isinstance(found.reply, Mapping) and "confirmation" in found.reply:
            return (*claimed, str(found.reply.get("name")))
        if found.path != "/allocations":
            return claimed
        places = {item.at: int(item.id.partition("#")[2]) for item in used(record) if item.name == "confirmation"}
        ranks = [names.index(claimed[number - 1]) for _, number in sorted(places.items()) if number <= len(claimed)]
        if ranks != sorted(set(ranks)):
            return Violated("the confirmations are not in the order of priority", state=claimed)
        return claimed

    return ordered
