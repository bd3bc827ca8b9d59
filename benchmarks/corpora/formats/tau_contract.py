"""tau-contract-agents: retail runs of tau-bench under four conditions of generated run-time contracts (AgentVerify).

Rows are those of tau-bench (see `tau_bench` for the mapping) with `condition` (tool-calling,
preconditions-advice, assertions-pre-only, assertions-pre+post), `crashed` and `records` of the assertion agents. Besides:

- Arguments of the assertion agents are Python texts; in them a list is a text once more (`"['17']"`), which is read as
  the list the tool got. Their calls have no ids and are answered in order.
- A failed call of theirs is answered `# var_3 = "Error: ..."`, which is read as the text assigned.
- A crashed run has no conversation. It ends with "exception", its error has the kind its text says, and it is not
  `finished`: what the infrastructure cut off breaks no obligation, and its reward says nothing about a condition.

Labels besides those of tau-bench: `condition`, `crashed`, `crash_error`, `crash_kind` (connection, rate_limit, auth,
harness: the code around the agent failed), `preconditions_passed` (of each generated check in order, whether it passed; the
source does not say which call a check belongs to).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from corpora.formats.tau_bench import DIALECT, task_labels
from mat.adapters.importers.base import Format, StoredTrace, error_kind, field_of, one_trace_a_row
from mat.adapters.importers.conversation import conversation, parsed_arguments

__all__ = ["FORMAT"]

_ASSIGNED: Final = re.compile(r"# var_\d+ = (.*)", re.DOTALL)


def _arguments(given: object) -> Mapping[str, Any]:
    found = parsed_arguments(given)
    if not isinstance(given, str) or given.lstrip().startswith('{"'):
        return found
    return {name: _listed(value) for name, value in found.items()}


def _listed(value: object) -> object:
    if isinstance(value, str) and value.startswith("[") and value.endswith("]"):
        inner = _literal(value)
        return inner if isinstance(inner, list) else value
    return value


def _result(text: str) -> str:
    """What a tool answered, out of the line of the program it is recorded as."""
    match = _ASSIGNED.fullmatch(text)
    if match is None:
        return text
    inner = _literal(match[1])
    return inner if isinstance(inner, str) else match[1]


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None


_DIALECT: Final = replace(DIALECT, arguments_of=_arguments, result_of=_result)


def _accepts(row: Mapping[str, Any]) -> bool:
    return "traj" in row and "condition" in row


def _convert(position: str, row: Mapping[str, Any]) -> StoredTrace:
    condition = field_of(row, "condition", str, position)
    messages = field_of(row, "traj", list, position, default=[])
    crashed = row.get("crashed") is True or (not messages and bool(_error(position, row)))
    error = _error(position, row) if crashed else ""
    stated = task_labels(position, row) | {
        "condition": condition, "crashed": crashed, "crash_error": error,
        "crash_kind": error_kind(error, "harness") if crashed else "", "preconditions_passed": _passed(position, row),
    }  # fmt: skip
    maker = conversation(position, messages, _DIALECT, path="traj", crash=error if crashed else None)
    return StoredTrace(
        id=f"{condition}/task-{stated['task_id']}/trial-{stated['trial']}",
        records=tuple(maker.records),
        labels=maker.labels(FORMAT.name, position, **stated),
        finished=not crashed,
    )


def _error(position: str, row: Mapping[str, Any]) -> str:
    return str(field_of(row, "info", dict, position, default={}).get("error") or "")


def _passed(position: str, row: Mapping[str, Any]) -> tuple[bool, ...]:
    kept = field_of(row, "records", dict, position, default={})
    return tuple(field_of(kept, "preconditions_outputs", list, position, path="records.", default=[]))


FORMAT: Final = Format(
    name="tau-contract-agents",
    text="runs of tau-bench under conditions: task_id, condition, crashed, traj, records",
    accepts=_accepts,
    traces=one_trace_a_row("tau-contract-agents", _accepts, _convert),
)
