"""Resource contracts: budgets of tokens, calls, money and time, in tests and outside of them.

`docs/budgets.md` is the guide.
"""

from mat.resources.contract import ResourceContract
from mat.resources.ledger import BudgetSpent
from mat.resources.work import contracted

__all__ = ["BudgetSpent", "ResourceContract", "contracted"]
