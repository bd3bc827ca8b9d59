"""Reads recorded traces and replay files as runs, for `mat import` and `mat report`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args

from mat.measure.rows import Labels, RunCondition
from mat.measure.workload import InputCategory

if TYPE_CHECKING:
    from mat.core.record import Record
    from mat.core.redact import Redactor
    from mat.core.run import Run, Termination
    from mat.evidence.jsonl import Stored
    from mat.evidence.runlog import RunEntry
    from mat.monitor.contract import Contract


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedOptions:
    """Options that describe recorded traces in addition to their own labels; "" and None mean not given."""

    format: str | None = None
    session: str = ""
    condition: RunCondition | None = None
    category: str = ""
    input: InputCategory | Literal[""] = ""
    variant: str = ""


def judging(names: Sequence[str]) -> tuple[Contract, ...]:
    """The contracts of --contracts. Problems with them are reported before any file is read."""
    from mat.adapters.checking import contracts_from
    from mat.monitor.judge import Judge

    contracts = contracts_from(names)
    Judge(contracts)
    return contracts


_SUCCESS: Final = ("success", "is_correct", "utility")
"""Labels of recorded formats that state whether the task succeeded. A reward of 1 or more also means success."""


def entries(path: Path, given: RecordedOptions, contracts: Sequence[Contract]) -> Iterator[RunEntry]:
    """Yield the runs of a replay file, or of a file of recorded traces."""
    from mat.adapters.checking import stored_traces
    from mat.evidence import replay_file
    from mat.evidence.runlog import RunEntry

    session = given.session or f"import {path.name}"
    if path.name.endswith(replay_file.SUFFIX) and given.format in (None, "replay"):
        replay = replay_file.read(path)
        labels = Labels(category=given.category, input=given.input, variant=given.variant)
        run = replay.counterexample.run
        yield RunEntry(item=replay.item, condition=given.condition or "replay", run=run, labels=labels, session=session)
        return
    seen: Counter[str] = Counter()  # two recordings in one file may be equal in every value and still count as two
    for stored in stored_traces(path, given.format):
        run, labels = recorded(stored, contracts, given)
        entry = RunEntry(item=run.spec.task, condition=given.condition or "nominal", run=run, labels=labels, session=session)
        key = entry.key
        yield replace(entry, repeat=seen[key])
        seen[key] += 1


def recorded(stored: Stored, contracts: Sequence[Contract], given: RecordedOptions) -> tuple[Run, Labels]:
    """A recorded trace as a run; its labels state the task, the trial, the outcome and the termination.

    Its values are redacted like those of our own runs, so that no key, token or password gets into the log.
    """
    from mat.core.redact import Redactor
    from mat.core.run import Run
    from mat.core.spec import RunSpec
    from mat.core.value import snapshot_arguments
    from mat.report.check import judge_trace

    redactor = Redactor()
    records = tuple(_redacted(record, redactor) for record in stored.records)
    stated = stored.labels
    judged = judge_trace(_RedactedTrace(stored, records), contracts) if contracts else None
    trial = stated.get("seed", stated.get("trial"))
    run = Run(
        spec=RunSpec(
            task=_item(stored), seed=trial if type(trial) is int else 0,
            config=snapshot_arguments({"imported": str(stated.get("format", "mat"))}, "config"),
        ),
        records=records,
        outcomes=judged.outcomes if judged is not None else (),
        termination=_termination(stored, records),
        success=_success(stated),
        elapsed_ms=_elapsed_ms(stated, records),
    )  # fmt: skip
    condition = stated.get("condition")  # a condition of the source's own experiment becomes a variant
    own_condition = _text(condition) if condition not in get_args(RunCondition) else ""
    labels = Labels(
        category=_text(stated.get("category")) or given.category,
        input=given.input,
        variant=_text(stated.get("variant")) or own_condition or given.variant,
        infrastructure=(_text(stated.get("crash_kind")) or "crash") if stated.get("crashed") else "",
    )
    return run, labels


class _RedactedTrace:
    """A stored trace with its values redacted."""

    def __init__(self, stored: Stored, records: tuple[Record, ...]) -> None:
        self.id, self.labels, self.finished, self.records = stored.id, stored.labels, stored.finished, records


def _redacted(record: Record, redactor: Redactor) -> Record:
    """The record without secrets; the same object if it contains none."""
    action, seen = record.action, record.observation
    arguments, value = redactor.mapping(action.arguments), redactor.value(seen.value)
    error = seen.error and replace(seen.error, message=redactor.text(seen.error.message))
    state = redactor.mapping(record.state)
    if arguments is action.arguments and value is seen.value and error == seen.error and state is record.state:
        return record
    return replace(
        record, state=state, action=replace(action, arguments=arguments), observation=replace(seen, value=value, error=error)
    )


def _item(stored: Stored) -> str:
    """The task that a trace is a trial of, so that the trials of one task are grouped."""
    stated = stored.labels
    task, prefix = stated.get("task_id"), str(stated.get("format", ""))
    name = f"task-{task}" if task is not None else stored.id.removesuffix(f"/trial-{stated.get('trial')}")
    return f"{prefix}/{name}" if prefix and prefix not in ("mat", "replay") else name


def _termination(stored: Stored, records: Sequence[Record]) -> Termination:
    from mat.core import run

    known = get_args(run.Termination)
    last = records[-1].action if records else None
    for found in (stored.labels.get("termination"), last.name if last is not None and last.kind == "termination" else None):
        if found in known:
            return cast("Termination", found)
    return "completed" if stored.finished else "exception"


def _success(labels: Mapping[str, Any]) -> bool | None:
    for name in _SUCCESS:
        if type(labels.get(name)) is bool:
            return bool(labels[name])
    reward = labels.get("reward")
    return reward >= 1 if isinstance(reward, int | float) and not isinstance(reward, bool) else None


def _elapsed_ms(labels: Mapping[str, Any], records: Sequence[Record]) -> int:
    stated = labels.get("elapsed_ms")
    return stated if type(stated) is int else max((record.sealed_ms for record in records), default=0)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
