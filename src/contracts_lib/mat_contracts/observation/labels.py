"""The failure labels of observation contracts, their groups and their order.

The order is total, so an episode that breaks several contracts has one primary label. The benchmark that defines these labels
ranks seven of them. We keep its ranks and put the others next to similar ones: expiry comes before damage, damage before
shortcuts, shortcuts before wrong or missing parts. Impatience comes last, because the same request may still succeed later.

Source: seed 003, table 2 and appendix K.

>>> from mat_contracts.observation.labels import FAILURES, INTEGRITY, LABELS, OTHER, SEVERITY, SUCCESS, VALIDITY
>>> FAILURES == VALIDITY + INTEGRITY, set(LABELS) == {*FAILURES, SUCCESS, OTHER}, SEVERITY[0]
(True, True, 'EXPIRED_BEFORE_USE')
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mat.core.verdict import Violation

SUCCESS: Final = "SUCCESS"
OTHER: Final = "OTHER"

VALIDITY: Final = ("EXPIRED_BEFORE_USE", "RATE_LIMITED", "SCHEDULED_UNAVAILABLE", "VERSION_CONFLICT")
INTEGRITY: Final = (
    "WRONG_VALUE",
    "MISSING_CONSTRAINT",
    "MUTATED_TOKEN",
    "SIGNATURE_MISMATCH",
    "COMPENSATION_FAILURE",
    "WRONG_HASH",
    "SHORTCUT_TAKEN",
    "MISSING_TOKEN",
    "BACKOFF_VIOLATION",
)
FAILURES: Final = (*VALIDITY, *INTEGRITY)
LABELS: Final = (*FAILURES, SUCCESS, OTHER)

SEVERITY: Final = (
    "EXPIRED_BEFORE_USE",
    "MUTATED_TOKEN",
    "SIGNATURE_MISMATCH",
    "WRONG_HASH",
    "SHORTCUT_TAKEN",
    "COMPENSATION_FAILURE",
    "VERSION_CONFLICT",
    "WRONG_VALUE",
    "MISSING_TOKEN",
    "MISSING_CONSTRAINT",
    "BACKOFF_VIOLATION",
    "RATE_LIMITED",
    "SCHEDULED_UNAVAILABLE",
    OTHER,
    SUCCESS,
)
"""All labels, the most severe first."""

_RANK: Final = {label: rank for rank, label in enumerate(SEVERITY)}


def most_severe(labels: Iterable[str]) -> str:
    """The most severe of some labels; SUCCESS if there are none. An unknown label counts as OTHER.

    >>> from mat_contracts.observation import most_severe
    >>> most_severe(["RATE_LIMITED", "MUTATED_TOKEN"]), most_severe([])
    ('MUTATED_TOKEN', 'SUCCESS')

    Source: D2.
    """
    return min((label if label in _RANK else OTHER for label in labels), key=_RANK.__getitem__, default=SUCCESS)


def primary_label(violations: Iterable[Violation], success: bool | None = None) -> str:
    """The label of a run: the most severe of its violations' labels; with none, OTHER where the task failed, else SUCCESS.

    >>> from mat_contracts.observation import primary_label
    >>> primary_label([]), primary_label([], success=False)
    ('SUCCESS', 'OTHER')

    Source: D2.
    """
    labels = [violation.label or OTHER for violation in violations]
    return most_severe(labels) if labels else OTHER if success is False else SUCCESS


def axis(label: str) -> str:
    """The group of a label: "validity", "integrity" or "meta".

    >>> from mat_contracts.observation import axis
    >>> axis("RATE_LIMITED"), axis("WRONG_HASH"), axis("OTHER")
    ('validity', 'integrity', 'meta')

    Source: D2.
    """
    return "validity" if label in VALIDITY else "integrity" if label in INTEGRITY else "meta"


__all__ = [
    "FAILURES",
    "INTEGRITY",
    "LABELS",
    "OTHER",
    "SEVERITY",
    "SUCCESS",
    "VALIDITY",
    "axis",
    "most_severe",
    "primary_label",
]
