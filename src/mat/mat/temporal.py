"""Formulas over a trace: atoms (`tool_call`, `verification`, ...), operators of past and future, quantified ids.

Give one to `mat.contract`. Each name's docstring says what it means; `docs/reference/formulas.md` says when each is judged.
"""

from mat.monitor.temporal import (
    action,
    always,
    at_most,
    eventually,
    field,
    for_each,
    historically,
    next,
    once,
    predicate,
    previous,
    since,
    tool_call,
    until,
    variable,
    verification,
)

__all__ = [
    "action", "always", "at_most", "eventually", "field", "for_each", "historically", "next", "once", "predicate",
    "previous", "since", "tool_call", "until", "variable", "verification",
]  # fmt: skip
