"""How unstable a failure is: the share of its repetitions without the same violation."""

from __future__ import annotations

from mat.core.campaign import Stability
from mat.measure.estimate import Estimate
from mat.measure.interval import wilson


def instability(stability: Stability) -> Estimate:
    """The instability of a schedule: 1 - reproduced / runs, with its Wilson interval; no data if it was never repeated.

    The interval is Wilson's, because the number of repetitions is fixed in advance.
    """
    return wilson(stability.runs - stability.reproduced, stability.runs)


def reproduction(stability: Stability) -> Estimate:
    """The share of repetitions that show the violation, 1 - Instab."""
    return wilson(stability.reproduced, stability.runs)
