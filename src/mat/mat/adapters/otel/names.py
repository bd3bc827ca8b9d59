"""Names of attributes and events: those of the GenAI conventions that we write, and the `mat.*` namespace.

The conventions are those of `open-telemetry/semantic-conventions-genai` in version 1.42.0-dev, to which the GenAI part of
the semantic conventions has moved after 1.41; nothing there is stable yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"
SCOPE: Final = "mat"
"""The instrumentation scope of exported spans."""
SERVICE: Final = "pytest-mat"
"""The default `service.name` of exported spans."""
PROVIDER: Final = "mat"
"""`gen_ai.provider.name`, which model and agent spans must have: a run knows the name of a model's port, not who serves it."""


def _prefixed(prefix: str, *fields: str) -> Mapping[str, str]:
    """field -> attribute, the field's name with a prefix."""
    return {field: f"{prefix}.{field}" for field in fields}


FORMAT: Final = "mat.format"
STEP: Final = "mat.step"
HEAD: Final = "mat.head"
RUN_HEAD: Final = "mat.run.head"

SCALARS: Final[Mapping[str, str]] = {
    "step": STEP,
    "at_ms": "mat.time.asked_ms",
    "sealed_ms": "mat.time.sealed_ms",
    "asked_seq": "mat.sequence.asked",
    "sealed_seq": "mat.sequence.sealed",
    "agent": "mat.agent",
    "role": "mat.role",
    "site": "mat.site",
    "effected": "mat.effected",
    "invoked": "mat.invoked",
    "taped": "mat.taped",
}
"""The fields of a Record whose attributes have the field's type."""
STRUCTURES: Final[Mapping[str, str]] = {
    "state": "mat.state",
    "links": "mat.links",
    "executed": "mat.arguments.executed",
    "raw": "mat.observation.raw",
    "faults": "mat.faults",
    "artefacts": "mat.artefacts",
}
"""The fields of a Record whose attributes are JSON text; an empty field has no attribute."""
ACTION: Final = _prefixed("mat.action", "kind", "name", "effect", "impact", "boundary")
ARGUMENTS: Final = "mat.arguments.asked"
OBSERVATION: Final = _prefixed("mat.observation", "cancelled", "chunks", "opaque")
VALUE: Final = "mat.observation.value"
ERROR: Final = "mat.observation.error"
USAGE: Final = "mat.observation.usage"
CHARGED: Final = "mat.resources.charged"
RESERVED: Final = "mat.resources.reserved"
MEDIATION: Final = _prefixed(
    "mat.mediation", "decision", "rule", "reason", "asked_digest", "allowed_digest", "approval", "grant"
)
ALLOWED: Final = "mat.arguments.allowed"
UNDER: Final = "mat.mediation.under"

CAUSES: Final = "mat.causal.parents"
"""The steps whose results this step uses, according to its links. Its span links to their spans."""
PREVIOUS: Final = "mat.causal.previous"
"""The step of the same agent that was sealed last before this step was asked."""
VERDICT: Final = "mat.verdict"

RUN_SCALARS: Final = _prefixed("mat.run", "termination", "success", "error", "elapsed_ms")
RUN_STRUCTURES: Final = _prefixed("mat.run", "unreached", "findings")
SPEC_SCALARS: Final = _prefixed("mat.run", "task", "seed", "clock", "horizon_steps", "horizon_ms")
SPEC_STRUCTURES: Final = _prefixed("mat.run", "config", "schedule")
RUN_ID: Final = "mat.run.id"
RUN_VIEW: Final = "mat.run.view"
RUN_RECORDS: Final = "mat.run.records"
RUN_OUTCOME: Final = "mat.run.outcome"

FAULT_EVENT: Final = "mat.fault"
MEDIATION_EVENT: Final = "mat.mediation"
VIOLATION_EVENT: Final = "mat.violation"
CONTRACT_EVENT: Final = "mat.contract"

LOST: Final[Mapping[str, str]] = {
    "verdicts": "verdicts: written as events for people; judging the records gives them again",
    "outcomes": "opinions, as verdicts",
    "tape": "the replies of ports, for a replay; a replay file has them",
    "states": "digests of monitor states, for the search",
    "restricted": "which operators the ports allow, for the search",
    "contended": "the points at which another task could have gone first, for the search",
    "equivalence_classes": "equivalence classes of perturbations, for the search",
    "margins": "the margins by which contracts were kept, for the search",
    "complete": "what the user declares about the state digest, for the search",
    "clocked": "the same, about the time",
    "concolic": "the same, about the replies of ports",
    "seen": "what an adversary was shown, for the search",
    "errors": "whose exceptions injected failures are, for the search",
    "uncaught": "the injected failure that left the body, for the summary of a search",
    "places": "file and line of each call in the agent's code, for debugging; no part of the facts",
}
"""Field of a Run that its spans do not preserve -> why. They preserve all other fields, and every field of every record."""
