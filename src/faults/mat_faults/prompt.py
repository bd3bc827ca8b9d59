"""Fault operators of the prompt boundary: they change text from outside, and cost the tokens that they change.

The parameter `tokens` of a grid point is the largest number of tokens that the operator changes, by the cost rule, and its
price. If a rule does not fit the text within that limit, nothing changes. Values that are not texts stay as they are.

>>> from mat_faults import prompt
>>> [operator.id for operator in prompt.operators()][:2]
['prompt.splice', 'prompt.distract']
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TypeAlias

from mat.boundary.catalog import CostFunction, Decide, Operator, operator
from mat.boundary.cost import DEFAULT_COST, CostModel
from mat.boundary.effect import PASS, Call, Effect, Replace, Reply
from mat.core.operator import Relevant
from mat.core.value import FrozenDict, Value
from mat_faults.payloads import (
    DEFAULT_INSTRUCTIONS,
    DISTRACTORS,
    GOAL,
    STYLES,
    Payload,
    PayloadSource,
    chosen,
    collected,
    named,
)
from mat_faults.site import on_reply
from mat_faults.spans import reordered, shortened
from mat_faults.wording import RULES, VAGUE, ambiguous, paraphrase

TextChange: TypeAlias = Callable[[str, FrozenDict], str]
"""(text, parameters) -> the text that replaces it."""


def splice(
    payloads: PayloadSource | None = None,
    *,
    styles: Iterable[str] | None = None,
    goal: str = GOAL,
    id: str = "prompt.splice",
    default: bool = True,
) -> Operator:
    """Add untrusted text to the end of a text from outside. A payload of two parts surrounds the text.

    `payloads`: your own texts, as a mapping or a list. `styles`: names of `payloads.STYLES`, each with the given `goal`.
    Without either, the three of the default grid.

    Source: A3.4.
    """
    found = collected(payloads, styles, goal, DEFAULT_INSTRUCTIONS)

    def change(text: str, parameters: FrozenDict) -> str:
        return around(text, chosen(found, parameters, "payload"))

    return operator(
        id, replacing(change), phase="after", grid=[{"payload": name} for name in cheapest(found)],
        price=added(found, "payload"), relevant=where_changed(change), bounds={"tokens": largest(found)}, default=default,
        plausible="anyone who can write to the channel can add a sentence",
    )  # fmt: skip


def splice_all(*, goal: str = GOAL, id: str = "prompt.splice_all", default: bool = False) -> Operator:
    """`splice` with every style of the library; some cost more than a small budget."""
    return splice(styles=STYLES, goal=goal, id=id, default=default)


def distract(sentences: PayloadSource = DISTRACTORS, *, id: str = "prompt.distract", default: bool = False) -> Operator:
    """Add a harmless, irrelevant sentence to the end or the start of a text."""
    found = named(sentences)

    def change(text: str, parameters: FrozenDict) -> str:
        sentence = chosen(found, parameters, "sentence").text
        pair = (sentence, text) if parameters.get("place") == "start" else (text, sentence)
        return "\n".join(part for part in pair if part)

    names = cheapest(found)
    grid = [{"sentence": name, "place": "end"} for name in names] + [{"sentence": names[-1], "place": "start"}] if names else []
    return operator(
        id, replacing(change), phase="after", grid=grid, price=added(found, "sentence"), relevant=where_changed(change),
        bounds={"tokens": largest(found)}, default=default, plausible="people write more than the matter at hand",
    )  # fmt: skip


def around(text: str, payload: Payload) -> str:
    """A text with a payload in it."""
    head, tail = payload.parts[:-1], payload.parts[-1]
    return "\n".join([*head, text, tail])


def replacing(change: TextChange) -> Decide:
    """A decision that changes the text of a reply; any other reply passes."""

    def decide(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
        if reply is None or not isinstance(reply.value, str):
            return PASS
        after = change(reply.value, call.parameters)
        return PASS if after == reply.value else Replace(after)

    return decide


def where_changed(change: TextChange) -> Relevant:
    """Relevant where the change alters the text."""

    def test(value: Value, parameters: FrozenDict) -> bool:
        return isinstance(value, str) and change(value, parameters) != value

    return on_reply(test)


def added(found: dict[str, Payload], name: str) -> CostFunction:
    """A price: the tokens of the payload that the grid point names."""

    def price(parameters: FrozenDict, model: CostModel) -> int:
        return model.of(changed=chosen(found, parameters, name).tokens)

    return price


def cheapest(found: dict[str, Payload]) -> list[str]:
    """The names of payloads, cheapest first; payloads of equal price keep their order."""
    return sorted(found, key=lambda name: DEFAULT_COST.of(changed=found[name].tokens))


def largest(found: dict[str, Payload]) -> int:
    return max((item.tokens for item in found.values()), default=0)


def _tokens_price(parameters: FrozenDict, model: CostModel) -> int:
    return model.of(changed=int(parameters["tokens"]))


def _paraphrased(text: str, parameters: FrozenDict) -> str:
    return paraphrase(text, rule=str(parameters["rule"]), limit=int(parameters["tokens"]))


def _ambiguous(text: str, parameters: FrozenDict) -> str:
    return ambiguous(text, what=str(parameters["what"]), limit=int(parameters["tokens"]))


def _reordered(text: str, parameters: FrozenDict) -> str:
    return reordered(text, limit=int(parameters["tokens"]))


def _truncated(text: str, parameters: FrozenDict) -> str:
    return shortened(text, count=int(parameters["tokens"]), part=str(parameters.get("part", "tail")))


def _token_operator(id: str, change: TextChange, *, grid: list[dict[str, object]], plausible: str) -> Operator:
    """An operator whose grid points limit the tokens that they change."""
    most = max(int(str(point["tokens"])) for point in grid)
    return operator(
        id, replacing(change), phase="after", grid=grid, price=_tokens_price, relevant=where_changed(change),
        bounds={"tokens": most}, default=False, plausible=plausible,
    )  # fmt: skip


def operators() -> tuple[Operator, ...]:
    return (
        splice(),
        distract(),
        _token_operator(
            "prompt.paraphrase", _paraphrased,
            grid=[*({"rule": rule, "tokens": 8} for rule in RULES), {"rule": "all", "tokens": 24}],
            plausible="people word the same request in many ways",
        ),
        _token_operator(
            "prompt.ambiguity", _ambiguous, grid=[{"what": what, "tokens": 8} for what in VAGUE],
            plausible="people leave out what seems clear to them: which order, which unit, which day",
        ),
        _token_operator(
            "prompt.reorder", _reordered, grid=[{"tokens": 16}, {"tokens": 32}],
            plausible="people write wishes and conditions in any order",
        ),
        _token_operator(
            "prompt.truncate", _truncated,
            grid=[{"tokens": count, "part": part} for count in (4, 16) for part in ("tail", "head", "middle")],
            plausible="channels and context windows cut long texts",
        ),
    )  # fmt: skip
