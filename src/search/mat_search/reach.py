"""How far recorded replies reach: the share of schedules that they answer, and what the others would cost at least."""

from __future__ import annotations

from collections.abc import Sequence

from mat.core.run import Run


def reach_text(reached: int, unanswered: Sequence[str], nominal: Run) -> str:
    """The reason of a search that met requests without a recorded reply. `unanswered`: what each such schedule lacked.

    A schedule without a reply needs at least one live call, of about as many tokens as a model call of the nominal run.
    """
    whole = reached + len(unanswered)
    calls = f"{len(unanswered)} live call{'' if len(unanswered) == 1 else 's'}"
    tokens = _tokens_per_call(nominal)
    cost = f", about {tokens * len(unanswered):,} tokens" if tokens else ""
    share = f"{reached} of {whole} schedules ({100 * reached // whole}%) were reached with recorded replies"
    return f"{share}; the others need at least {calls}{cost}; first: {unanswered[0]}"


def _tokens_per_call(run: Run) -> int:
    """The mean number of tokens of a model call; 0 if no reply reports any."""
    found = [record.observation.usage for record in run.records if record.action.kind == "model_call"]
    counted = [sum(int(usage.get(name, 0)) for name in ("input_tokens", "output_tokens")) for usage in found if usage]
    return sum(counted) // len(counted) if counted else 0
