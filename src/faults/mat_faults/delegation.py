"""Fault operators of the delegation boundary: messages, `mat.delegate`, and handoffs that run the other agent.

A message or a delegated task is a text that is delivered; a handoff is a call that runs the receiving agent. Operators
apply to the kinds `delegation` (tasks and handoffs) and `message`; duplicate applies to `delegation` only.

>>> from mat_faults import delegation
>>> [operator.id for operator in delegation.operators()][:2]
['delegation.drop', 'delegation.delay']

Source: A3.4.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from mat.boundary.catalog import Operator, operator
from mat.boundary.cost import CostModel
from mat.boundary.effect import PASS, Call, Delay, Drop, Duplicate, Effect, Reply, Rewrite
from mat.core.operator import CoveredBy
from mat.core.value import FrozenDict
from mat_faults.payloads import DEFAULT_INSTRUCTIONS, named
from mat_faults.site import on_arguments
from mat_faults.spans import (
    Edit,
    TextSpan,
    edit_tokens,
    edited,
    is_within_limit,
    lists,
    paragraphs,
    sentences,
    shortened,
    token_spans,
)
from mat_faults.wording import ids

_TEXTS: Final = ("task", "text", "message", "prompt", "instruction", "instructions", "request", "query", "input", "content")
_NO_TEXTS: Final = frozenset({"sender", "delegator", "to", "agent", "name", "id", "role"})


def _drop(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Drop()


def _delay(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Delay(int(call.parameters["ms"]))


def _duplicate(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Duplicate(1)


# -- altered texts ---------------------------------------------------------------------------------------------------------

_CONSTRAINT = re.compile(
    r"\b(?:only|never|must|not|don['’]t|no\s+more|at\s+(?:most|least)|unless|except|without|before|after|until|within|limit(?:ed)?"
    r"|max(?:imum)?|min(?:imum)?|provided|approval|approved)\b",
    re.IGNORECASE,
)
_CLAUSE = re.compile(
    r"(?:[,;]|\s[-–—])?\s{1,3}(?:(?:but|and)\s+)?(?:only\s+(?:if|when|after|once|with)|but\s+(?:only|not|never)|unless|except|without|provided"
    r"|as\s+long\s+as|at\s+most|at\s+least|no\s+more\s+than|not\s+more\s+than|up\s+to|before|after|until|within"
    r"|by\s+(?:the\s+end|noon|midnight|to(?:day|night|morrow)|[A-Z]?[a-z]*day|\d))\b[^.!?;\n]*",
    re.IGNORECASE,
)
_DIGITS = re.compile(r"\d+")


def swapped(text: str, *, limit: int) -> str:
    """Swap two ids of the same form ("A17" and "A4"); the text itself if there are none within `limit` edited tokens."""
    places = ids(text)
    names = list(places)
    for index, one in enumerate(names):
        for other in names[index + 1 :]:
            if _DIGITS.sub("0", one.lower()) != _DIGITS.sub("0", other.lower()):
                continue
            edits = [Edit(span, other) for span in places[one]] + [Edit(span, one) for span in places[other]]
            if sum(edit_tokens(text, edit) for edit in edits) <= limit:
                return edited(text, edits)
    return text


def without_constraint(text: str, *, limit: int) -> str:
    """A text without its last condition: an item of a list, a sentence, or the end of one, of at most `limit` tokens.

    The text itself if it states no condition, or only the condition.
    """
    units = [_item_span(text, span) for group in lists(text) for span in group]
    units += [span for block in paragraphs(text) for span in sentences(text, block)]
    conditions = [span for span in units if _CONSTRAINT.search(span.of(text))]
    clauses = [TextSpan(*match.span()) for match in _CLAUSE.finditer(text) if match.start() > 0]
    for span in [*sorted(conditions, key=lambda span: -span.start), *reversed(clauses)]:
        after = _cut_span(text, span)
        if after and is_within_limit(text, after, limit):
            return after
    return text


def _item_span(text: str, span: TextSpan) -> TextSpan:
    """An item of a list with its bullet and the end of its line."""
    start = text.rfind("\n", 0, span.start) + 1
    return TextSpan(start, span.end + 1 if text[span.end : span.end + 1] == "\n" else span.end)


def _cut_span(text: str, span: TextSpan) -> str:
    """A text without a span and the white space around it."""
    before, after = text[: span.start], text[span.end :]
    return f"{before}{after.lstrip(' ') if not before or before[-1].isspace() else after}".rstrip()


def _cut_second_half(text: str, *, limit: int) -> str:
    """A text without its second half, or without its last `limit` tokens if the half is longer."""
    return shortened(text, count=min(limit, len(token_spans(text)) // 2), part="tail")


_INSTRUCTION: Final = named(DEFAULT_INSTRUCTIONS)["false_approval"]


def _append_instruction(text: str, *, limit: int) -> str:
    """The text followed by an instruction; `limit` does not bound it."""
    return f"{text}\n{_INSTRUCTION.text}" if text else text


HOW: Final[dict[str, Callable[..., str]]] = {
    "swap_ids": swapped,
    "append_instruction": _append_instruction,
    "truncate": _cut_second_half,
    "drop_constraint": without_constraint,
}
"""How the text of a message, task or handoff is altered."""


def text_argument(arguments: Mapping[str, Any]) -> str | None:
    """The name of the argument with the task or message: one with a usual name, otherwise the longest text."""
    texts = {name: item for name, item in arguments.items() if isinstance(item, str) and name not in _NO_TEXTS}
    usual = [name for name in _TEXTS if name in texts]
    return usual[0] if usual else max(texts, key=lambda name: len(texts[name]), default=None)


def _altered(arguments: Mapping[str, Any], parameters: FrozenDict) -> FrozenDict | None:
    """The altered argument, or None if nothing fits."""
    name = text_argument(arguments)
    if name is None:
        return None
    after = HOW[str(parameters["how"])](arguments[name], limit=int(parameters["tokens"]))
    return None if after == arguments[name] else FrozenDict({name: after})


def _alter(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    changed = _altered(call.given, call.parameters)
    return PASS if changed is None else Rewrite(changed)


def _text_price(parameters: FrozenDict, model: CostModel) -> int:
    return model.of(hooks=1, changed=int(parameters["tokens"]))


def operators() -> tuple[Operator, ...]:
    return (
        operator("delegation.drop", _drop, default=False, bounds={"count": 1}, plausible="a queue loses a message"),
        operator(
            "delegation.delay", _delay, grid=[{"ms": 1_000, "magnitude": 1}, {"ms": 60_000, "magnitude": 2}], default=False,
            bounds={"latency_ms": 60_000}, plausible="the other agent is busy, or its queue is long",
        ),
        operator(
            "delegation.duplicate", _duplicate, kinds=["delegation"], covered=CoveredBy(), default=False, bounds={"count": 2},
            plausible="a queue delivers at least once, and runs a handoff twice",
        ),
        operator(
            "delegation.alter", _alter, price=_text_price, bounds={"tokens": 16}, default=False,
            relevant=on_arguments(lambda arguments, parameters: _altered(arguments, parameters) is not None),
            grid=[
                {"how": "swap_ids", "tokens": 4}, {"how": "append_instruction", "tokens": _INSTRUCTION.tokens},
                {"how": "truncate", "tokens": 16}, {"how": "drop_constraint", "tokens": 16},
            ],
            plausible="a handoff is summarised by a model, which shortens, mixes up and adds",
        ),
    )  # fmt: skip
