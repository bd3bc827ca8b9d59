"""The status of a resource contract: what it has consumed, its utilization, and a line for models.

Source: Monitor(C, t), Sec. 5.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mat.core.resources import shown
from mat.resources.lifecycle import LifecycleState

_TOKENS: Final = ("tokens", "input_tokens", "reasoning_tokens", "output_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractStatus:
    """A contract at one moment. Amounts are in smallest units, times in milliseconds of run time.

    `budgets`: b, as allocated so far. `consumed`: c(t), here and below, without calls in flight; `reserved`: what those hold;
    `left`: what a call may still take. `metered`: every resource that was consumed, budgeted or not. Consumption never
    decreases; utilization decreases only if a recorded reallocation raises the budget.
    """

    contract: str
    state: LifecycleState
    cause: str
    at_ms: int
    elapsed_ms: int
    duration_ms: int | None
    budgets: Mapping[str, int]
    consumed: Mapping[str, int]
    reserved: Mapping[str, int]
    left: Mapping[str, int]
    metered: Mapping[str, int]
    warnings: tuple[str, ...] = ()
    unmetered: tuple[str, ...] = ()
    """Budgets of which a call consumed an unknown amount: their `consumed` is the least that it can be."""

    @property
    def utilization_by_resource(self) -> dict[str, float]:
        """u = c / b by resource; 1 for a budget of 0."""
        return {name: self.consumed[name] / budget if budget else 1.0 for name, budget in self.budgets.items()}

    @property
    def time_utilization(self) -> float:
        """(t - t_start) / tau, 0 without a limit."""
        if self.duration_ms is None:
            return 0.0
        return self.elapsed_ms / self.duration_ms if self.duration_ms else 1.0

    @property
    def utilization(self) -> float:
        """The utilization of the most constrained resource: max((t - t_start) / tau, max c_i / b_i)."""
        return max((self.time_utilization, *self.utilization_by_resource.values()), default=0.0)

    @property
    def controllable(self) -> int | None:
        """B_ctrl = B_tok - r_in: the tokens left for reasoning and output; None without a budget of tokens."""
        budget = self.budgets.get("tokens")
        return None if budget is None else budget - self.metered.get("input_tokens", 0)

    @property
    def exhausted(self) -> tuple[str, ...]:
        """The resources that are spent to the last unit."""
        return tuple(name for name, budget in self.budgets.items() if self.consumed[name] >= budget)

    def line(self) -> str:
        """`Budget: 1,200/50,000 tokens, 1/3 iterations; time: 4/30 s`, for a model to read."""
        least = dict.fromkeys(self.unmetered, "at least ")
        parts = [
            f"{least.get(name, '')}{shown(name, self.consumed[name])}/{shown(name, budget)} {_label(name)}"
            for name, budget in self.budgets.items()
        ]
        text = f"Budget: {', '.join(parts)}" if parts else "Budget: none"
        if self.duration_ms is not None:
            text += f"; time: {shown('seconds', self.elapsed_ms)}/{shown('seconds', self.duration_ms)} s"
        return text


def _label(resource: str) -> str:
    _, mark, port = resource.partition(":")
    return f"calls of {port}" if mark else resource.replace("_", " ")
