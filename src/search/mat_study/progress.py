"""How far a search came that did not cover its budget, and what it needs to get further."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mat.core.campaign import Certificate
from mat_search import CampaignResult
from mat_search.declarations import undeclared
from mat_study.settings import ItemSettings

_NAMES: Final = 3
"""Tools without a declared effect that are named."""


def how_far(result: CampaignResult, certificate: Certificate, settings: ItemSettings) -> str:
    """The largest complete layer and how far the search came above it; if a limit ended it, what it needs to get further.

    "" for a search that covered its budget, and for strategies that do not go by cost.
    """
    ended = result.limited or result.interrupted or not certificate.proven
    if not ended or result.complete >= settings.budget or result.complete < 0:
        return ""
    parts = [_complete_layer(result, certificate)]
    layer = result.layer
    if layer is not None and layer.known:
        parts.append(f"cost {layer.cost}: {100 * layer.done // layer.known}% of what is known")
    if result.limited or result.interrupted:
        helps = _helps(result, settings)
        most = f"; what helps most is {_most_helpful(result, helps)}" if len(helps) > 1 else ""
        parts.append(f"to get further, it needs {_listed(helps)}{most}")
    return "; ".join(parts)


def _complete_layer(result: CampaignResult, certificate: Certificate) -> str:
    found = any(len(each.run.spec.schedule) for each in (*result.counterexamples, *result.unconfirmed))
    what = f"cost {result.complete} is complete"
    if not found:
        what += ", nothing found"
    return what if certificate.proven else f"{what}, but not proven"


def _helps(result: CampaignResult, settings: ItemSettings) -> list[str]:
    """What the search needs to get further, as nouns."""
    timed = result.searched < settings.max_runs and settings.timeout_s is not None
    helps = ["more time (--mat-timeout)" if timed else "more runs (--mat-max-runs)"]
    if result.recorded is not None:
        helps = ["more live calls (--mat-live-calls)"]
    if result.complete > 0:
        helps.append(f"a smaller budget ({result.complete} is covered)")
    tools = undeclared([result.nominal])
    if tools:
        helps.append(f"declaring the effects of {_shown(tools)}")
    if not result.nominal.complete:
        helps.append("a mat_state_digest")
    return helps


def _most_helpful(result: CampaignResult, helps: Sequence[str]) -> str:
    """Live calls if they are missing; more of the same if that completes the next cost; a state digest, which merges schedules
    that lead to the same state; what else there is.
    """
    layer = result.layer
    more = helps[0]
    if result.recorded is not None:
        return more
    left = 0 if layer is None else layer.known - layer.done
    if 0 < left <= result.searched:
        return f"{more}: about {left:,} {'execution is' if left == 1 else 'executions are'} left at cost {result.complete + 1}"
    return more if result.nominal.complete else helps[-1]


def _listed(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return f"{', '.join(names[:_NAMES])}{more}"
