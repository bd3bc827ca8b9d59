"""How unstable a failure is (Eq. 9): the share of its repetitions in which the same violation did not show."""

from __future__ import annotations

from mat.core.campaign import Stability
from mat.measure.estimate import Estimate
from mat.measure.interval import wilson


def instability(stability: Stability) -> Estimate:
    """Instab of Eq. 9: 1 - reproduced / runs, with its Wilson interval; no data if it was never repeated.

    Wilson's, because the number of repetitions is fixed before the first of them.
    """
    return wilson(stability.runs - stability.reproduced, stability.runs)


def reproduction(stability: Stability) -> Estimate:
    """The same from the other side: how often the violation shows."""
    return wilson(stability.reproduced, stability.runs)
