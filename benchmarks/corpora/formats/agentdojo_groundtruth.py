"""AgentDojo: tool traces of its reference solutions, run by its own ground-truth pipeline (Debenedetti et al. 2024).

A row is `{suite, version, kind (user or injection), task_id, prompt, ground_truth_output, utility, messages, error}`;
`messages` is a conversation, mapped as in `conversation`. Besides:

- `prompt` is the first message, from "user"; the source does not count it as a step.
- Calls are `{function, args, id}`; a tool message repeats its call in `tool_call`, and `error` is its error.
  `placeholder_args`, which say what an injection may name, are left out.
- The last message of the assistant without calls is the `final_response`.
- Effects and impacts are those of `mat.adapters.agentdojo`, where the same tools are governed live.
- The end is "completed", or "exception" with the row's `error`.

Labels: `suite`, `version`, `task_kind`, `task_id`, `utility`, `expected_output`, `reference` (True: a reference solution).
Source steps are indices into `messages`, from 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mat.adapters.agentdojo import effect_of, impact_of
from mat.adapters.importers.base import Format, StoredTrace, field_of, misfit, one_trace_a_row, text_of
from mat.adapters.importers.conversation import ConversationMessage, Dialect, conversation

__all__ = ["FORMAT"]


def _accepts(row: Mapping[str, Any]) -> bool:
    return "suite" in row and "messages" in row and "task_id" in row


def _convert(position: str, row: Mapping[str, Any]) -> StoredTrace:
    error, prompt = row.get("error"), row.get("prompt")
    rows = field_of(row, "messages", list, position, default=[])
    messages = [_plain(position, item, f"messages[{place}]") for place, item in enumerate(rows)]
    asked = [] if prompt is None else [{"role": "user", "content": prompt}]
    maker = conversation(
        position,
        asked + messages,
        _DIALECT,
        path="messages",
        first=-len(asked),
        crash=None if error is None else text_of(error),
    )
    suite, kind, task = (str(row.get(name)) for name in ("suite", "kind", "task_id"))
    labels = maker.labels(
        FORMAT.name, position, suite=suite, version=row.get("version"), task_kind=kind, task_id=task,
        utility=row.get("utility"), expected_output=row.get("ground_truth_output"), reference=True,
    )  # fmt: skip
    return StoredTrace(id=f"{suite}/{task}", records=tuple(maker.records), labels=labels)


def _plain(position: str, message: object, path: str) -> dict[str, Any]:
    """A message of AgentDojo in OpenAI's form; its error stays in `error`."""
    if not isinstance(message, Mapping):
        raise misfit(position, path, f"is {message!r:.60}, not a message")
    calls = field_of(message, "tool_calls", list, position, path=f"{path}.", default=[])
    answered = field_of(message, "tool_call", dict, position, path=f"{path}.", default={})
    return {
        "role": message.get("role"), "content": message.get("content"), "error": message.get("error"),
        "tool_calls": [_call(position, call, f"{path}.tool_calls[{number}]") for number, call in enumerate(calls)],
        "tool_call_id": message.get("tool_call_id"), "name": answered.get("function"),
    }  # fmt: skip


def _call(position: str, call: object, path: str) -> dict[str, Any]:
    if not isinstance(call, Mapping):
        raise misfit(position, path, f"is {call!r:.60}, not a call")
    name = field_of(call, "function", str, position, path=f"{path}.")
    return {"function": {"name": name, "arguments": call.get("args")}, "id": call.get("id")}


def _error_of(result: ConversationMessage, text: str) -> str | None:
    error = result.row.get("error")
    return None if error is None else text_of(error)


def _ending(messages: list[ConversationMessage]) -> tuple[str, int | None]:
    answers = (message.place for message in reversed(messages) if message.role == "assistant" and not message.calls)
    return "completed", next(answers, None)


_DIALECT: Final = Dialect(effect_of=effect_of, impact_of=impact_of, error_of=_error_of, ending=_ending)

FORMAT: Final = Format(
    name="agentdojo-groundtruth",
    text="tool traces of AgentDojo's reference solutions: suite, kind, task_id, prompt, messages",
    accepts=_accepts,
    traces=one_trace_a_row("agentdojo-groundtruth", _accepts, _convert),
)
