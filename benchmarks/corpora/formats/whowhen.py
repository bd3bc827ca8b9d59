"""Who&When: failed multi-agent runs with the decisive agent and step (Zhang et al. 2025, arXiv 2505.00212).

A row is `{question, history, mistake_agent, mistake_step, ...}`. Two kinds of history are mapped, by what messages are like:

Magentic-One teams (hand-crafted; roles say who speaks to whom), see `team`:
- "human": a `message` of the channel "user" at the prompt boundary, as `mat.untrusted` records it; the agent is "human".
- "X (thought)": a `model_call` of "model" by X with the thought as value. The flags of an updated ledger
  (`is_request_satisfied`, `is_in_loop`, `is_progress_being_made`) are the state projection from there on. A traceback in it
  is an error of the runtime, with the kind its text says.
- "X (-> Y)": a `delegation` to Y. "X": a `message` from X to "Orchestrator".
- "X (termination condition)": the `final_response` with the text after "FINAL ANSWER:", where there is one; the run ends
  "horizon" where it says that rounds or time ran out, else "completed".

Group chats (generated; messages have a name):
- each is a `message` from its name to "group_chat"; the first holds the task.
- "Computer_terminal" with an exit code: a `tool_call` of "execute_code" by Computer_terminal. Its arguments are the code
  blocks of the message before and who wrote it; the output is the value, of a code other than 0 the error.
- "TERMINATE" alone in the last message: the speaker's own `termination`; after an answer: the `final_response`, then the
  end. Where the chat goes on after it, it is a message.

A history without such an end ends "implicit": the source does not say why it stops there.

Labels: `question`, `expected_answer`, `is_correct`, `subset`, `level`, `file`, `annotated_*` (see StoredTrace) and
`annotated_reason`. Source steps are indices into `history`, from 0, as the annotation counts them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from corpora.formats.annotations import agent_called, numbered, step_of
from mat.adapters.importers.base import (
    Format,
    RecordMaker,
    StoredTrace,
    error_kind,
    field_of,
    misfit,
    one_trace_a_row,
    text_of,
)

__all__ = ["FORMAT", "team"]

_ROLE: Final = re.compile(r"(?P<who>.+?)\s*\((?P<what>thought|termination condition|->\s*(?P<to>.+?))\)")
_LEDGER_FLAGS: Final = ("is_request_satisfied", "is_in_loop", "is_progress_being_made")
_ANSWER: Final = re.compile(r"FINAL ANSWER:\s*(.*?)\s*(?:\n\s*SCENARIO\.PY COMPLETE.*|\n\s*RUN\.SH COMPLETE.*)?$", re.DOTALL)
_RAN_OUT: Final = re.compile(r"max(?:imum)? (?:rounds?|turns?|time|messages?)\b.*reached|ran out of|timed out", re.IGNORECASE)
_EXIT: Final = re.compile(r"exitcode: (-?\d+)[^\n]*\n?(?:Code output:)?\s?(.*)", re.DOTALL)
_CODE: Final = re.compile(r"```[^\n]*\n(.*?)```", re.DOTALL)
_EXCEPTION: Final = re.compile(r"((?:[a-z_]\w*\.)*[A-Z]\w*)(?::|$)")
_TERMINATE: Final = "TERMINATE"
_TERMINAL: Final = "Computer_terminal"


# -- teams of Magentic-One --------------------------------------------------------------------------------------------


def team(position: str, rows: list[Any], *, path: str, first: int) -> RecordMaker:
    """The records of a Magentic-One team, its end included. `first`: the source's index of the first message."""
    maker = RecordMaker(agent="Orchestrator")
    state: dict[str, object] = {}
    status = "implicit"
    for place, row in enumerate(rows):
        role, text = _message(position, f"{path}[{place}]", row)
        match = _ROLE.fullmatch(role)
        who = match["who"] if match else role
        given: dict[str, Any] = {"agent": who, "source": first + place}
        if match is None:
            outside = role in ("human", "user")
            name, sender = ("user", "user") if outside else ("Orchestrator", who)
            boundary = "prompt" if outside else None
            maker.add("message", name, {"text": text, "sender": sender}, value=text, boundary=boundary, state=state, **given)
        elif match["to"]:
            maker.add("delegation", match["to"], {"task": text, "delegator": who}, value=text, state=state, **given)
        elif match["what"] == "thought":
            state |= _ledger(text)
            _, found, trace = text.rpartition("Traceback (most recent call last):")
            maker.add("model_call", "model", value=text, state=state, **_raised(trace if found else None), **given)
        else:
            status = "horizon" if _RAN_OUT.search(text) else "completed"
            _finish(maker, text, state, given)
    maker.end(status)
    return maker


def _finish(maker: RecordMaker, text: str, state: Mapping[str, object], given: Mapping[str, Any]) -> None:
    answer = _ANSWER.search(text)
    if answer is not None:
        maker.add("final_response", "answer", {"answer": answer[1]}, value=text, state=state, **given)
    else:
        maker.add("model_call", "model", value=text, state=state, **given)


def _ledger(text: str) -> dict[str, object]:
    """The flags of an updated ledger: `Updated Ledger:` and a JSON object of {reason, answer} each."""
    head, _, body = text.partition("{")
    if "Ledger" not in head:
        return {}
    try:
        ledger, _ = json.JSONDecoder().raw_decode("{" + body)
    except (ValueError, RecursionError):
        return {}
    flags = {name: ledger.get(name) for name in _LEDGER_FLAGS}
    return {
        name: flag["answer"]
        for name, flag in flags.items()
        if isinstance(flag, Mapping) and isinstance(flag.get("answer"), bool)
    }


def _raised(text: str | None) -> dict[str, Any]:
    """The error a log names: of its last line like `module.SomeError: why`, else of its last line; nothing of None."""
    if text is None:
        return {}
    lines = [line for line in text.splitlines() if line.strip()]
    named = [line for line in lines if _EXCEPTION.match(line)]
    line = (named or lines or ["an error without a text"])[-1]
    match = _EXCEPTION.match(line)
    return {"error": line, "error_type": match[1] if match else "Error", "error_kind": error_kind(line)}


# -- group chats ------------------------------------------------------------------------------------------------------


def _chat(position: str, rows: list[Any], *, path: str) -> RecordMaker:
    maker = RecordMaker()
    before, text = "", ""
    for place, row in enumerate(rows):
        wrote, code = before, text
        role, text = _message(position, f"{path}[{place}]", row)
        name = row.get("name")
        before = name if isinstance(name, str) and name else role
        ran = _EXIT.match(text) if before == _TERMINAL else None
        if ran is not None:
            _executed(maker, ran, code, wrote, place)
        elif place == len(rows) - 1 and text.strip() == _TERMINATE:
            maker.add("termination", "completed", agent=before, source=place)
        elif place == len(rows) - 1 and text.rstrip().endswith(_TERMINATE):
            answer = text.rstrip().removesuffix(_TERMINATE).rstrip()
            maker.add("final_response", "answer", {"answer": answer}, agent=before, value=text, source=place)
            maker.end("completed")
        else:
            maker.add("message", "group_chat", {"text": text, "sender": before}, agent=before, value=text, source=place)
    if not maker.records or maker.records[-1].action.kind != "termination":
        maker.end("implicit")
    return maker


def _executed(maker: RecordMaker, ran: re.Match[str], code: str, wrote: str, place: int) -> None:
    """A run of code: without an effect we know of, its output as value or, where it failed, as the error."""
    asked = {"code": "\n".join(_CODE.findall(code)), "written_by": wrote}
    failure = _raised(ran[2] if int(ran[1]) else None)
    maker.add("tool_call", "execute_code", asked, agent=_TERMINAL, value=ran[2], source=place, **failure)


# -- rows -------------------------------------------------------------------------------------------------------------


def _message(position: str, path: str, row: object) -> tuple[str, str]:
    """Role and text of a message."""
    if not isinstance(row, Mapping):
        raise misfit(position, path, f"is {row!r:.60}, not a message")
    return field_of(row, "role", str, position, path=f"{path}.", default=""), text_of(row.get("content"))


def _accepts(row: Mapping[str, Any]) -> bool:
    return "history" in row and ("mistake_step" in row or "mistake_agent" in row)


def _convert(position: str, row: Mapping[str, Any]) -> StoredTrace:
    history = field_of(row, "history", list, position)
    named = any(isinstance(item, Mapping) and item.get("name") for item in history)
    if named:
        maker = _chat(position, history, path="history")
    else:
        maker = team(position, history, path="history", first=0)
    stated = row.get("mistake_step")
    agent = text_of(row.get("mistake_agent"))
    labels = maker.labels(
        FORMAT.name, position, question=row.get("question"), expected_answer=row.get("ground_truth"),
        is_correct=row.get("is_correct", row.get("is_corrected")), subset=row.get("_subset"), level=row.get("level"),
        file=row.get("_file"), annotated_source_step=numbered(stated), annotated_step=step_of(maker, stated),
        annotated_agent=agent_called(maker, agent), annotated_reason=row.get("mistake_reason"),
    )  # fmt: skip
    name = row.get("question_ID") or position
    subset = row.get("_subset") or ("chat" if named else "team")
    return StoredTrace(id=f"{subset}/{name}", records=tuple(maker.records), labels=labels)


FORMAT: Final = Format(
    name="whowhen",
    text="failed multi-agent runs of Who&When: question, history, mistake_agent, mistake_step",
    accepts=_accepts,
    traces=one_trace_a_row("whowhen", _accepts, _convert),
)
