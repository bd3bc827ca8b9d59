"""Operators on text that enters from outside. They pay for the tokens they change, and for nothing else."""

from __future__ import annotations

import random
from collections.abc import Sequence

from mat.boundary.catalog import Operator, operator
from mat.boundary.effect import PASS, Call, Effect, Replace, Reply
from mat.core.cost import CostModel, changed_tokens, tokens
from mat.core.value import FrozenDict, Value
from mat_faults.payloads import INSTRUCTIONS
from mat_faults.site import on_reply


def splice(payloads: Sequence[str] = INSTRUCTIONS, *, id: str = "prompt.splice", default: bool = True) -> Operator:
    """Appends one of the payloads to a text from outside (A3.4: spliced untrusted text)."""
    texts = tuple(payloads)

    def decide(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
        before = "" if reply is None else str(reply.value)
        return Replace(f"{before}\n{texts[call.parameters['payload']]}")

    def price(parameters: FrozenDict, model: CostModel) -> int:
        return model.of(changed=changed_tokens("", texts[parameters["payload"]]))

    return operator(
        id, decide, phase="after", grid=[{"payload": index} for index in range(len(texts))], price=price, default=default,
        plausible="anyone who can write to the channel can add a sentence",
    )  # fmt: skip


def _truncate(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    if reply is None:
        return PASS
    text, lost = str(reply.value), int(call.parameters["tokens"])
    found = tokens(text)
    if len(found) <= lost:
        return PASS
    end = len(text)
    for token in reversed(found[-lost:]):
        end = text.rindex(token, 0, end)
    return Replace(text[:end].rstrip())


def _tokens_price(parameters: FrozenDict, model: CostModel) -> int:
    return model.of(changed=int(parameters["tokens"]))


def _has_tokens(value: Value, parameters: FrozenDict) -> bool:
    return len(tokens(str(value))) > int(parameters["tokens"])


def operators() -> tuple[Operator, ...]:
    return (
        splice(),
        operator(
            "prompt.truncate", _truncate, phase="after", grid=[{"tokens": 4}, {"tokens": 16}], price=_tokens_price,
            relevant=on_reply(_has_tokens), default=False, plausible="channels and windows cut long texts",
        ),
    )  # fmt: skip
