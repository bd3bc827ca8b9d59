"""AgentRx: failed runs with annotated failures and their root cause (microsoft/AgentRx).

Two kinds of rows, each with `annotation {failures[{failure_id, step_number, failure_category, failed_agent, step_reason}],
root_cause {failure_id}, failure_summary}`:

- tau-bench rows (`traj`), mapped as in `tau_bench`; every message has an `index`, from 1.
- Magentic-One rows (`trajectory_id`, `trajectory`), mapped as teams in `whowhen`; messages are counted from 1.

Labels besides those of tau-bench: `annotated_*` (see StoredTrace) of the root cause, its `annotated_category`,
`annotated_reason` and `annotated_summary`, and `annotated_failures`, every failure as a mapping with `failure_id`, `step`
(ours, None where the source has no such step), `source_step` (from 1), `agent`, `category` and `reason`. A result counted
apart by the source is the step of its call. A root cause that names no annotated failure leaves the annotated step None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from corpora.formats.annotations import agent_called, numbered, step_of
from corpora.formats.tau_bench import DIALECT, task_labels
from corpora.formats.whowhen import team
from mat.adapters.importers.base import Format, RecordMaker, StoredTrace, field_of, misfit, one_trace_a_row, text_of
from mat.adapters.importers.conversation import conversation

__all__ = ["FORMAT"]


def _accepts(row: Mapping[str, Any]) -> bool:
    return "annotation" in row and ("traj" in row or "trajectory" in row)


def _convert(position: str, row: Mapping[str, Any]) -> StoredTrace:
    if "traj" in row:
        maker = conversation(position, field_of(row, "traj", list, position, default=[]), DIALECT, path="traj", first=1)
        stated = task_labels(position, row)
        name = f"tau-retail/task-{stated['task_id']}/trial-{stated['trial']}"
    else:
        maker = team(position, field_of(row, "trajectory", list, position), path="trajectory", first=1)
        stated = {}
        name = f"magentic-one/{row.get('trajectory_id') or position}"
    stated |= _annotated(position, maker, field_of(row, "annotation", dict, position, default={}))
    return StoredTrace(id=name, records=tuple(maker.records), labels=maker.labels(FORMAT.name, position, **stated))


def _annotated(position: str, maker: RecordMaker, annotation: Mapping[str, Any]) -> dict[str, Any]:
    listed = field_of(annotation, "failures", list, position, path="annotation.", default=[])
    failures = tuple(_failure(position, maker, item, f"annotation.failures[{place}]") for place, item in enumerate(listed))
    cause = field_of(annotation, "root_cause", dict, position, path="annotation.", default={})
    root = next((item for item in failures if str(item["failure_id"]) == str(cause.get("failure_id"))), None)
    found = root or {"step": None, "source_step": None, "agent": "", "category": ""}
    return {
        "annotated_step": found["step"], "annotated_source_step": found["source_step"], "annotated_agent": found["agent"],
        "annotated_category": found["category"], "annotated_reason": cause.get("reason_for_root_cause"),
        "annotated_summary": annotation.get("failure_summary"), "annotated_failures": failures,
    }  # fmt: skip


def _failure(position: str, maker: RecordMaker, item: object, path: str) -> dict[str, Any]:
    if not isinstance(item, Mapping):
        raise misfit(position, path, f"is {item!r:.60}, not an annotated failure")
    stated = item.get("step_number")
    return {
        "failure_id": item.get("failure_id"), "step": step_of(maker, stated), "source_step": numbered(stated),
        "agent": agent_called(maker, text_of(item.get("failed_agent"))),
        "category": item.get("failure_category"), "reason": item.get("step_reason"),
    }  # fmt: skip


FORMAT: Final = Format(
    name="agentrx",
    text="failed runs of AgentRx with annotation: traj or trajectory",
    accepts=_accepts,
    traces=one_trace_a_row("agentrx", _accepts, _convert),
)
