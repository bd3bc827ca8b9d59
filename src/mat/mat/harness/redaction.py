"""Retroactive redaction: find records made before a text was declared secret, and make them again without it."""

from __future__ import annotations

from dataclasses import replace

from mat.core.record import Observation, Record
from mat.core.redact import Redactor, texts
from mat.core.site import escape, unescape


def holds(record: Record, text: str) -> bool:
    """Whether a recorded text contains another one, in any form that redaction knows."""
    cleaner = Redactor({text: None})
    return any(cleaner.text(found) != found for found in texts(_values(record)))


def _values(record: Record) -> list[object]:
    observations = [record.observation, *([record.raw] if record.raw is not None else [])]
    said = [item.error.message for item in observations if item.error is not None]
    return [record.site, record.action.name, record.action.arguments, record.state, record.executed, record.artefacts, *said,
            *(item.value for item in observations)]  # fmt: skip


def clean_site(site: str, redactor: Redactor) -> str:
    port, _, rest = site.partition(":")
    name, mark, nth = rest.rpartition("#")
    return f"{port}:{escape(redactor.text(unescape(name)))}{mark}{nth}"


def redacted(record: Record, redactor: Redactor) -> Record:
    """A copy of a record without the texts that have become secret since."""

    def seen(observation: Observation) -> Observation:
        error = observation.error
        return replace(
            observation, value=redactor.value(observation.value),
            error=None if error is None else replace(error, message=redactor.text(error.message)),
        )  # fmt: skip

    action = record.action
    return replace(
        record, site=clean_site(record.site, redactor), state=redactor.mapping(record.state),
        action=replace(action, name=redactor.text(action.name), arguments=redactor.mapping(action.arguments)),
        observation=seen(record.observation), raw=None if record.raw is None else seen(record.raw),
        executed=None if record.executed is None else redactor.mapping(record.executed),
        artefacts=redactor.mapping(record.artefacts),
    )  # fmt: skip
