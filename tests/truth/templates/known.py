"""What the templates are known to judge wrongly, and why."""

from __future__ import annotations

EXCEPTIONS: dict[str, str] = {}
"""Template -> why its precision or recall is below the floor: the sentence is in its docstring, too."""

_BY_REASON: dict[str, tuple[str, ...]] = {
    "it compares numbers, dates and status words, not names: give `verifier=` where that matters": (
        "claims.claims_supported: broken, another customer",
    ),
    "null counts as no arguments": ("conversation.tool_calls_well_formed: broken, arguments are null",),
    "a result inside a longer text of a prompt is not recognized": ("conversation.truncation_noticed: broken, in a prompt",),
    "names of people are not compared, only ids and amounts": (
        "effects.success_claims_match_effects: broken, to the wrong person",
    ),
    "an id that only an earlier read connects with the action is missing in the action": (
        "effects.success_claims_match_effects: kept, an id that a read connects with the action",
    ),
    "lists of tools and the tools shown to a model are compared apart": (
        "injection.interface_unchanged: broken, listed, then shown otherwise",
    ),
    "`injected_instructions` knows phrases, not meanings: give `instructions=` where it matters": (
        "privacy.memory_writes_sanitized: broken, in other words",
        "privacy.memory_writes_sanitized: broken, you are now",
    ),
    "stars that stand for the last digits of an SSN are not recognized as a mask of one": (
        "privacy.redacted: broken, an SSN that shows too much",
    ),
}

WRONG = {trace: reason for reason, traces in _BY_REASON.items() for trace in traces}
"""Trace -> why it is judged wrongly."""
