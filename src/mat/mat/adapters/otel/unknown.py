"""The gaps of a trace made from spans: each has a code, a sentence, and a count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["ALWAYS", "MET", "TraceGap", "unknowns"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceGap:
    """A fact about a trace that its spans lack. `count`: how many spans this concerns; 0 for all of them."""

    code: str
    text: str
    count: int = 0


ALWAYS: Final[Mapping[str, str]] = {
    "effect": "whether a tool changes the world, and how much is at stake; it is guessed from the tool's name",
    "effected": "whether a call that failed or was cut off took effect; one that went well is taken to have",
    "mediation": "what was asked before governance changed or refused it; the arguments are those that were executed",
    "faults": "whether a reply was disturbed on its way; the delivered reply is taken as the original",
    "links": "on which earlier results an action rests",
    "state": "roles, episodes and the projection that potentials read",
    "emitted": "claims, verifications, approvals, grants, detections and mitigations: no span records them",
}
"""Gaps of every trace from foreign spans."""
MET: Final[Mapping[str, str]] = {
    "inputs": "what a model was given: its messages were not captured",
    "outputs": "what a model replied: its messages were not captured",
    "usage": "how many tokens a model call took",
    "arguments": "what a tool was called with",
    "results": "what a tool returned",
    "stored": "what was retrieved from, or written to, a store",
    "tasks": "what an agent was asked to do by another",
    "answer": "what the outermost agent answered",
    "unseen_tools": "when a tool ran that only messages mention; it is put between the two model calls",
    "ends": "how a span ended: it never did; the call is taken as cancelled",
    "parents": "what is around a span: its parent is not among the spans",
    "spans_left_out": "what a span did that follows no convention for agents; it is not a step",
    "dropped": "attributes or events that limits of the SDK dropped from a span",
    "cut": "what came after the trace had reached the limit of spans; it is not judged",
    "records": "steps that are missing from a run of ours; it is read up to the first of them",
    "facts": "what changed on the way: the digest of the records is not that of the run",
    "early": "whether the trace goes on: it was judged before its last span ended",
}
"""Gaps that are counted as they occur."""


def unknowns(met: Mapping[str, int], *, guessed: bool) -> tuple[TraceGap, ...]:
    """The gaps of a trace: with `guessed`, those of every trace of foreign spans; then those that occurred, by code."""
    always = [TraceGap(code=code, text=text) for code, text in ALWAYS.items()] if guessed else []
    return (*always, *(TraceGap(code=code, text=text, count=met[code]) for code, text in MET.items() if met.get(code)))
