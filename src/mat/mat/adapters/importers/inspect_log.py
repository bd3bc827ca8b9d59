"""Import evaluation logs of Inspect (UK AI Security Institute) in JSON: one trace per sample.

A row is a log, `{version, status, eval {task, model, ...}, samples [{id, epoch, messages, scores, target, error, ...}]}`.
Messages are read as in `chat`. A sample with an `error` ended with that exception and is not finished; one with a `limit`
ended at its horizon. The binary form is converted first: `inspect log convert --to json`.

Labels: `task_id`, `model`, `sample`, `trial` (the epoch), `target`, `scores` (scorer -> value), and `success` if all scores
are "C" or 1, or all are "I" or 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mat.adapters.importers.base import Format, Row, StoredTrace, field_of, misfit
from mat.adapters.importers.chat import chat
from mat.core.errors import CodecError

__all__ = ["FORMAT"]


def _accepts(row: Mapping[str, Any]) -> bool:
    return isinstance(row.get("eval"), Mapping) and isinstance(row.get("samples"), list)


def _traces(rows: Iterator[Row]) -> Iterator[StoredTrace]:
    for position, row in rows:
        if not _accepts(row):
            raise misfit(position, "the row", "is not a log of Inspect with samples: it needs the fields eval and samples")
        for place, sample in enumerate(row["samples"]):
            path = f"samples[{place}]"
            if not isinstance(sample, Mapping):
                raise misfit(position, path, f"is {sample!r:.60}, not a sample")
            try:
                yield _sample(position, row["eval"], sample, path)
            except CodecError as error:  # a value too deep to record
                raise CodecError(f"{position}: {error.what}", why=error.why, where=position) from None


def _sample(position: str, log: Mapping[str, Any], sample: Mapping[str, Any], path: str) -> StoredTrace:
    messages = field_of(sample, "messages", list, position, path=f"{path}.")
    error = field_of(sample, "error", dict, position, path=f"{path}.", default={})
    scores = field_of(sample, "scores", dict, position, path=f"{path}.", default={})
    values = {name: score.get("value") for name, score in scores.items() if isinstance(score, Mapping)}
    crash = str(error.get("message") or "error") if error else None
    status = "horizon" if sample.get("limit") else None
    sources = [(f"{path}.messages[{number}]", message) for number, message in enumerate(messages)]
    maker, left_out = chat(position, sources, crash=crash, status=status)
    task, sample_id, trial = log.get("task"), sample.get("id"), sample.get("epoch")
    labels = maker.labels(
        FORMAT.name, position, task_id=f"{task}/{sample_id}", model=log.get("model"), sample=sample_id, trial=trial,
        target=sample.get("target"), scores=values, left_out=left_out, **_success(values),
    )  # fmt: skip
    return StoredTrace(
        id=f"{task}/{sample_id}/epoch-{trial}", records=tuple(maker.records), labels=labels,
        finished=maker.records[-1].action.name in ("completed", "horizon"),
    )  # fmt: skip


def _success(values: Mapping[str, Any]) -> dict[str, bool]:
    """The label `success` of a sample, if all its scores agree."""
    if values and all(value in ("C", 1) for value in values.values()):
        return {"success": True}
    return {"success": False} if values and all(value in ("I", 0) for value in values.values()) else {}


FORMAT: Final = Format(
    name="inspect", text="evaluation logs of Inspect as JSON: eval, samples", accepts=_accepts, traces=_traces
)
