"""tau-bench: recorded runs of a customer-service agent with tools and a simulated user (Yao et al. 2024, arXiv 2406.12045).

A row is `{task_id, reward, info, traj, trial}`; `traj` is a conversation, mapped as in `conversation`. Besides:

- The assistant's message that the user's closing "###STOP###" answers is the `final_response`.
- A result "Error: ..." or "Unknown action ..." is an error of kind "not_found" where it says so, else "rejected", and had no
  effect: the tools check everything before they change anything. Results that are JSON objects or lists are parsed.
- Effects by tool: see `effect_of`.
- The end is "completed" after "###STOP###" or a transfer to a person, else "horizon": the run used up its steps.

Labels: `task_id`, `trial`, `reward`, `user_id`, `expected_actions` (the task's reference calls), `expected_outputs`. Source
steps are indices into `traj`, from 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mat.adapters.importers.base import Format, StoredTrace, field_of, misfit, one_trace_a_row
from mat.adapters.importers.conversation import ConversationMessage, Dialect, conversation, tool_of
from mat.core.record import DeclaredEffect

__all__ = ["DIALECT", "FORMAT", "effect_of", "task_labels"]

_READS: Final = ("get_", "find_", "list_", "search_", "check_")
_TRANSFER: Final = "transfer_to_human_agents"
_EFFECTS: Final[Mapping[str, DeclaredEffect]] = {
    "calculate": "read",
    "think": "read",
    _TRANSFER: "none",  # ends the conversation; changes no data
}
_STOP: Final = "###STOP###"


def effect_of(tool: str) -> DeclaredEffect:
    """Whether a tool of the airline and retail domains changes the database: get_, find_, list_, search_, check_ do not."""
    known = _EFFECTS.get(tool)
    return known if known is not None else "read" if tool.startswith(_READS) else "write"


def _error_of(result: ConversationMessage, text: str) -> str | None:
    return text if text.startswith(("Error:", "Unknown action")) else None


def _ending(messages: list[ConversationMessage]) -> tuple[str, int | None]:
    if not messages:
        return "implicit", None
    last = messages[-1]
    if last.role == "user" and _STOP in last.text:
        before = messages[-2] if len(messages) > 1 else None
        final = before is not None and before.role == "assistant" and not before.calls
        return "completed", before.place if before is not None and final else None
    if any(tool_of(call) == _TRANSFER for message in messages[-2:] for call in message.calls):
        return "completed", None
    return "horizon", None


DIALECT: Final = Dialect(
    effect_of=effect_of, error_of=_error_of, ending=_ending, default_error_kind="rejected", error_may_have_effect=False
)


def task_labels(position: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """What a row of tau-bench states besides the conversation."""
    info = field_of(row, "info", dict, position, default={})
    task = field_of(info, "task", dict, position, path="info.", default={})
    reward = row.get("reward")
    if reward is not None and not isinstance(reward, int | float):
        raise misfit(position, "reward", f"is {reward!r:.60}, not a number")
    return {
        "task_id": row.get("task_id"), "trial": row.get("trial"), "reward": None if reward is None else float(reward),
        "user_id": task.get("user_id"),
        "expected_actions": tuple(field_of(task, "actions", list, position, path="info.task.", default=[])),
        "expected_outputs": tuple(field_of(task, "outputs", list, position, path="info.task.", default=[])),
    }  # fmt: skip


def _accepts(row: Mapping[str, Any]) -> bool:
    return "traj" in row and "task_id" in row and "condition" not in row and "annotation" not in row


def _convert(position: str, row: Mapping[str, Any]) -> StoredTrace:
    stated = task_labels(position, row)
    maker = conversation(position, field_of(row, "traj", list, position, default=[]), DIALECT, path="traj")
    return StoredTrace(
        id=f"task-{stated['task_id']}/trial-{stated['trial']}",
        records=tuple(maker.records),
        labels=maker.labels(FORMAT.name, position, **stated),
    )


FORMAT: Final = Format(
    name="tau-bench",
    text="runs of tau-bench: task_id, reward, info, traj, trial",
    accepts=_accepts,
    traces=one_trace_a_row("tau-bench", _accepts, _convert),
)
