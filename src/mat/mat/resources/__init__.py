"""Resource contracts: what agents may consume, enforced at the boundary and conserved under delegation (seeds 000 and 001)."""

from mat.core.resources import METERED, Price
from mat.resources.allocation import equal, negotiated, proportional
from mat.resources.contract import (
    EXHAUSTED,
    Check,
    Criterion,
    Ending,
    HandsOn,
    Inputs,
    Output,
    ResourceContract,
    Skill,
)
from mat.resources.ledger import BudgetSpent, Ledger
from mat.resources.status import Status
from mat.resources.work import Delivery, Work, contracted, current

__all__ = [
    "EXHAUSTED", "METERED", "BudgetSpent", "Check", "Criterion", "Delivery", "Ending", "HandsOn", "Inputs", "Ledger",
    "Output", "Price", "ResourceContract", "Skill", "Status", "Work", "contracted", "current", "equal", "negotiated",
    "proportional",
]  # fmt: skip
