"""What an approval binds, read in one way by the mediator, which acts on it, and by contracts, which check it.

Source: A5.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mat.core.digest import digest
from mat.core.record import Record
from mat.core.value import FrozenDict, snapshot_arguments


def approval_digest(tool: str, arguments: Mapping[str, object], policy: str = "", prefix: str = "") -> str:
    """The digest that an approval of exactly this call binds to: SHA-256 of tool name and canonical arguments, in hex.

    The mediator's own approvals also bind the version of its policy and the trace before the call.
    """
    call = [tool, snapshot_arguments(arguments, f"call of {tool}")]
    return digest([*call, policy, prefix] if policy or prefix else call)


_BINDING: Final = frozenset({"tool", "arguments", "digest", "policy", "prefix", "action"})
"""The details by which an approval names its call."""


def bound_call(record: Record) -> tuple[str, FrozenDict] | str:
    """The (tool, arguments) that an approval is about, or a digest of them, as far as its record names them.

    The record names them by `tool` and `arguments`, by `digest` alone, or by its own name and details. The result is ""
    (nothing is bound) if the digest does not match the tool and arguments, if another detail is named like an argument of the
    call, or if there is any other detail next to a mere digest: the approver saw values that the binding does not cover.
    """
    details = record.action.arguments
    tool, arguments, bound = details.get("tool"), details.get("arguments"), details.get("digest")
    others = set(details) - _BINDING
    if isinstance(tool, str) and isinstance(arguments, dict):
        if not others.isdisjoint(arguments):
            return ""
        if isinstance(bound, str) and "action" not in details and bound not in (approval_digest(tool, arguments), ""):
            return ""
        return tool, snapshot_arguments(arguments, "approval")
    if isinstance(bound, str):
        return "" if others else bound
    return record.action.name, details


def status_of(record: Record) -> str:
    """approved, rejected, expired, pending, or unanswered where the approval was blocked, cancelled or met an error."""
    observation = record.observation
    if record.blocked or observation.error is not None or observation.cancelled or record.taped:
        return "unanswered"
    value: Any = observation.value
    if isinstance(value, dict):
        said = value.get("status")
        return said if isinstance(said, str) else "unanswered"
    return "approved" if value is True else "rejected"


def granted(record: Record) -> bool:
    """Whether an approval was given: the answer was True, or the status is approved. A taped reply approves nothing."""
    return status_of(record) == "approved"
