"""Resource contracts: what agents may consume, enforced at the boundary and conserved under delegation (seeds 000 and 001)."""

from mat.core.resources import METERED, Price
from mat.resources.allocation import equal, negotiated, proportional
from mat.resources.contract import (
    EXHAUSTED,
    Check,
    Criterion,
    EndCondition,
    HandsOn,
    Inputs,
    Output,
    ResourceContract,
    Skill,
)
from mat.resources.ledger import BudgetSpent, Ledger
from mat.resources.status import ContractStatus
from mat.resources.work import Delivery, Work, contracted, current

__all__ = [
    "EXHAUSTED",
    "METERED",
    "BudgetSpent",
    "Check",
    "ContractStatus",
    "Criterion",
    "Delivery",
    "EndCondition",
    "HandsOn",
    "Inputs",
    "Ledger",
    "Output",
    "Price",
    "ResourceContract",
    "Skill",
    "Work",
    "contracted",
    "current",
    "equal",
    "negotiated",
    "proportional",
]  # fmt: skip
