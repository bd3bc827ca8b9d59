"""Operators on what agents hand to each other (A3.4)."""

from __future__ import annotations

import random

from mat.boundary.catalog import Operator, operator
from mat.boundary.effect import Call, Drop, Effect, Reply


def _drop(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Drop()


def operators() -> tuple[Operator, ...]:
    return (operator("delegation.drop", _drop, default=False, plausible="a queue that loses messages"),)
