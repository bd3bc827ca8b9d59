"""Redaction of a run that is over: what was composed besides the values of its records, and before a secret was declared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, TypeVar

from mat.core.record import Record
from mat.core.redact import Redactor, clean_texts
from mat.core.run import Run

T = TypeVar("T", Run, Record)
_NAMES: Final = frozenset({"contract", "checked", "operator", "parameters"})
"""Fields that are compared with what the user armed and scheduled. They are cleaned in documents alone."""
_COMPOSED: Final = ("verdicts", "outcomes", "findings", "error", "uncaught")
"""What contracts and the harness compose."""
_UNSEALED: Final = ("mediation", "links", "faults", "artefacts")
"""Fields of a record that are not cleaned when it is sealed."""


def redacted_run(run: Run, redactor: Redactor, *, late: bool) -> Run:
    """The run without secrets: in messages, repairs, names, sites, exceptions and notes, too.

    Values of records are clean when they are sealed; they are read again if a secret came to be known `late`, in the run. If
    no secret was declared at all, only tokens are cut out, of what contracts and the harness compose.
    """
    if not redactor.knows_secrets:
        says = run.error or run.findings or any(item.violations or item.error for item in run.outcomes)
        return _clean_fields(run, _COMPOSED, redactor) if says else run
    if late:
        return _clean_fields(run, (*_COMPOSED, "places", "records", "tape"), redactor)
    records = tuple(_clean_fields(record, _UNSEALED, redactor) for record in run.records)
    return _clean_fields(replace(run, records=records), (*_COMPOSED, "places"), redactor)


def _clean_fields(value: T, names: Iterable[str], redactor: Redactor) -> T:
    found = {}
    for name in names:
        before = getattr(value, name)
        if before and (after := clean_texts(before, redactor.text, kept=_NAMES)) is not before:
            found[name] = after
    return replace(value, **found) if found else value
