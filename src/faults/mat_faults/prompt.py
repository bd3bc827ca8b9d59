"""Operators on text that enters from outside. They pay for the tokens they change, and for nothing else."""

from __future__ import annotations

import random
from collections.abc import Sequence

from mat.boundary.catalog import Operator, operator
from mat.boundary.effect import PASS, Call, Effect, Replace, Reply
from mat.core.cost import CostModel, changed_tokens, tokens
from mat.core.record import Record
from mat.core.value import FrozenDict
from mat_faults.payloads import INSTRUCTIONS


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
    text = str(reply.value)
    words = text.split()
    kept = words[: max(0, len(words) - call.parameters["words"])]
    return Replace(" ".join(kept)) if len(kept) < len(words) else PASS


def _words_price(parameters: FrozenDict, model: CostModel) -> int:
    return model.of(changed=parameters["words"])


def _has_words(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    return len(tokens(str(record.observation.value))) > int(parameters["words"])


def operators() -> tuple[Operator, ...]:
    return (
        splice(),
        operator(
            "prompt.truncate", _truncate, phase="after", grid=[{"words": 4}, {"words": 16}], price=_words_price,
            relevant=_has_words, default=False, plausible="channels and windows cut long texts",
        ),
    )  # fmt: skip
