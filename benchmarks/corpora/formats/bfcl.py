"""BFCL: reference call sequences of the multi-turn function-calling benchmark (Patil et al. 2025, bfcl-eval).

A row is `{category, question {id, question[turns of messages], initial_config, path, involved_classes}, ground_truth[calls a
turn]}`. The trace is the reference sequence, turn by turn:

- each message of the turn: a `message` of the channel its role names, at the prompt boundary, as `mat.untrusted` records
  it. A turn without one (functions that were held back are added) has none.
- each call, a text such as `cd(folder='document')`: a `tool_call` with its keyword arguments; positional ones, whose names
  the source does not say, are "0", "1", ... An argument that is no literal stays text; a call that is none has its whole
  text under "unparsed".
- Nothing says what calls returned: no value, effected "unknown". The end is "completed".
- Effects by function: see `effect_of`.

Labels: `category`, `involved_classes`, `missed_functions` (by turn), `excluded_functions`, `reference` (True). Source steps
are turns, from 0.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any, Final

from mat.adapters.importers.base import Format, RecordMaker, StoredTrace, field_of, misfit, one_trace_a_row, text_of
from mat.core.record import DeclaredEffect

__all__ = ["FORMAT", "called", "effect_of"]

_READS: Final = re.compile(
    r"(?:get|list|view|display|check|estimate|find|search|compute|calculate|retrieve|verify|filter|is|has)(?=[A-Z_]|$)"
)
_EFFECTS: Final[Mapping[str, DeclaredEffect]] = {
    # GorillaFileSystem: cd moves about; the others print
    "cd": "none", "cat": "read", "diff": "read", "du": "read", "find": "read", "grep": "read", "ls": "read", "pwd": "read",
    "sort": "read", "tail": "read", "wc": "read",
    # MathAPI and conversions: no state at all
    **dict.fromkeys(
        (
            "absolute_value", "add", "divide", "gallon_to_liter", "imperial_si_conversion", "liter_to_gallon", "logarithm",
            "max_value", "mean", "min_value", "multiply", "percentage", "power", "round_number", "si_unit_conversion",
            "square_root", "standard_deviation", "subtract", "sum_values",
        ),
        "read",
    ),
    # lookups whose name does not begin with their verb
    "message_get_login_status": "read", "posting_get_login_status": "read", "ticket_get_login_status": "read",
    "trading_get_login_status": "read", "travel_get_login_status": "read",
}  # fmt: skip
_NAME: Final = re.compile(r"\s*([A-Za-z_][\w.]*)\s*\(")


def effect_of(function: str, arguments: Mapping[str, Any] | None = None) -> DeclaredEffect:
    """Whether a function of BFCL's simulated services changes them, by its name; `echo` does where it names a file."""
    if function == "echo":
        return "write" if (arguments or {}).get("file_name") else "read"
    known = _EFFECTS.get(function)
    return known if known is not None else "read" if _READS.match(function) else "write"


def called(text: str) -> tuple[str, dict[str, Any]]:
    """Name and arguments of a call written in Python."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        node = None
    if not isinstance(node, ast.Call):
        match = _NAME.match(text)
        return (match[1] if match else "unparsed"), {"unparsed": text}
    found = {str(place): _literal(argument) for place, argument in enumerate(node.args)}
    found |= {item.arg or "**": _literal(item.value) for item in node.keywords}
    return ast.unparse(node.func), found


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return ast.unparse(node)


def _accepts(row: Mapping[str, Any]) -> bool:
    question = row.get("question")
    return "ground_truth" in row and isinstance(question, Mapping) and "question" in question


def _convert(position: str, row: Mapping[str, Any]) -> StoredTrace:
    question = field_of(row, "question", dict, position)
    turns = field_of(question, "question", list, position, path="question.", default=[])
    calls = field_of(row, "ground_truth", list, position, default=[])
    maker = RecordMaker(agent="assistant")
    for turn in range(max(len(turns), len(calls))):
        for place, message in enumerate(_items(position, turns, turn, "question.question")):
            _said(maker, position, message, turn, f"question.question[{turn}][{place}]")
        for place, call in enumerate(_items(position, calls, turn, "ground_truth")):
            if not isinstance(call, str):
                raise misfit(position, f"ground_truth[{turn}][{place}]", f"is {call!r:.60}, not the text of a call")
            name, arguments = called(call)
            effect = effect_of(name, arguments)
            maker.add("tool_call", name, arguments, effect=effect, effected="unknown", source=turn)
    maker.end("completed")

    def names(field: str) -> tuple[Any, ...]:
        return tuple(field_of(question, field, list, position, path="question.", default=[]))

    labels = maker.labels(
        FORMAT.name, position, category=row.get("category"), involved_classes=names("involved_classes"),
        missed_functions=field_of(question, "missed_function", dict, position, path="question.", default={}), reference=True,
        excluded_functions=names("excluded_function"),
    )  # fmt: skip
    return StoredTrace(id=str(question.get("id") or position), records=tuple(maker.records), labels=labels)


def _items(position: str, turns: list[Any], turn: int, path: str) -> list[Any]:
    if turn >= len(turns) or turns[turn] is None:
        return []
    if not isinstance(turns[turn], list):
        raise misfit(position, f"{path}[{turn}]", f"is {turns[turn]!r:.60}, not a list")
    found: list[Any] = turns[turn]
    return found


def _said(maker: RecordMaker, position: str, message: object, turn: int, path: str) -> None:
    if not isinstance(message, Mapping):
        raise misfit(position, path, f"is {message!r:.60}, not a message")
    role = field_of(message, "role", str, position, path=f"{path}.", default="user")
    text = text_of(message.get("content"))
    said = {"text": text, "sender": role}
    maker.add("message", role, said, agent=role, boundary="prompt", value=text, source=turn)


FORMAT: Final = Format(
    name="bfcl-multiturn",
    text="reference calls of BFCL multi-turn: category, question, ground_truth",
    accepts=_accepts,
    traces=one_trace_a_row("bfcl-multiturn", _accepts, _convert),
)
