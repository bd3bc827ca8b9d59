"""Soft enforcement: show a model what it may still use, so that it can regulate itself (Sec. 5.2 and 7.2).

Nothing here enforces anything: a model may ignore it, and the mediator blocks calls beyond the budget in any case. The texts
are functions of the contract and the status alone, so equal runs show a model equal texts.

    reply = model(system=prompt(work), prompt=task)
    ...
    messages.append(reminder(work.contract, work.status()))
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mat.core.resources import amounts, shown
from mat.resources.contract import ResourceContract, Skill
from mat.resources.modes import CallPlan, ContractMode, plan
from mat.resources.status import ContractStatus
from mat.resources.work import Work

_WORDS: Final = {"seconds": "spent in calls"}
_AT_THE_LIMIT: Final = (
    "A call that does not fit into what is left is refused. A call that uses more than is left once it has begun ends the work."
)


def prompt(work: Work, *, mode: ContractMode | None = None) -> str:
    """The fragment of a system prompt for the current state of the work."""
    return fragment(work.contract, work.status(), mode=mode)


def fragment(contract: ResourceContract, status: ContractStatus, *, mode: ContractMode | None = None) -> str:
    """A budget-aware fragment of a system prompt: budget, time, what is left, what may be called, and what happens at a limit.

    With a mode, the fragment also names the next step that the mode plans. Line breaks in names become spaces.
    """
    lines = [f'You work under the resource contract "{_one_line(contract.name)}".', _one_line(status.line())]
    lines += [f"- {_one_line(resource)}: {_left_text(resource, status)}" for resource in status.budgets]
    if status.duration_ms is not None:
        remaining = max(0, status.duration_ms - status.elapsed_ms)
        lines.append(f"- time: {shown('seconds', remaining)} s left; after that nothing is started")
    if contract.skills is not None:
        lines.append("You may call:" if contract.skills else "You may call nothing.")
        lines += [f"- {_skill_text(item, status)}" for item in contract.skills]
        lines.append("Every other call is refused.")
    if status.budgets:
        lines.append(_AT_THE_LIMIT)
    lines += [f"Warning: {text}" for text in warnings(contract, status)]
    if status.state != "active":
        lines.append(f"The contract is {status.state}: call nothing more.")
    elif mode is not None:
        lines.append(advice(plan(status, mode)))
    return "\n".join(lines)


def reminder(contract: ResourceContract, status: ContractStatus, *, mode: ContractMode | None = None) -> str:
    """A message for a model between two steps: the status line, passed thresholds, and what to do."""
    lines = [_one_line(status.line()), *(f"Warning: {text}" for text in warnings(contract, status))]
    if mode is not None:
        lines.append(advice(plan(status, mode)))
    return "\n".join(lines)


def warnings(contract: ResourceContract, status: ContractStatus) -> tuple[str, ...]:
    """A line for each budget, and for the time, that has passed a threshold of the contract. It names the highest one."""
    found = []
    for resource, budget in status.budgets.items():
        percent = _highest_passed(contract.warn_at, status.consumed[resource], budget)
        if percent is not None:
            found.append(f"{percent} % of {_one_line(resource)} is used, {shown(resource, status.left[resource])} left")
    if status.duration_ms is not None:
        percent = _highest_passed(contract.warn_at, status.elapsed_ms, status.duration_ms)
        if percent is not None:
            remaining = max(0, status.duration_ms - status.elapsed_ms)
            found.append(f"{percent} % of the time is over, {shown('seconds', remaining)} s left")
    return tuple(found)


def advice(call_plan: CallPlan) -> str:
    """A plan as a sentence for a model."""
    if call_plan.stop:
        return f"Stop and deliver what you have: {call_plan.reason}."
    parts = list(_advice_parts(call_plan))
    return f"{parts[0].capitalize()}{''.join(f', {part}' for part in parts[1:])}: {call_plan.reason}."


def _advice_parts(call_plan: CallPlan) -> Iterator[str]:
    if call_plan.explore:
        yield "explore alternatives where they may pay"
    elif call_plan.concise:
        yield "be concise and finish with what you have"
    else:
        yield "go on without detours"
    if call_plan.max_tokens is not None:
        yield f"use at most {call_plan.max_tokens:,} tokens in the next answer"
    if call_plan.effort == "none":
        yield "do not reason at length"


def _left_text(resource: str, status: ContractStatus) -> str:
    held = status.reserved[resource]
    of = f"{shown(resource, status.left[resource])} of {shown(resource, status.budgets[resource])} left"
    unit = f" ({_WORDS[resource]})" if resource in _WORDS else ""
    return of + unit + (f", with {shown(resource, held)} held by calls under way" if held else "")


def _skill_text(skill: Skill, status: ContractStatus) -> str:
    """A skill with the expected cost of a call, and with the limit on its port if there is one."""
    parts = [f"about {shown(name, value)} {_one_line(name)} a call" for name, value in amounts(skill.cost, skill.name).items()]
    if skill.port in status.left:
        parts.append(
            f"{shown(skill.port, status.left[skill.port])} of {shown(skill.port, status.budgets[skill.port])} calls left"
        )
    return _one_line(skill.name) + (f" ({'; '.join(parts)})" if parts else "")


def _highest_passed(thresholds: tuple[int, ...], used: int, whole: int) -> int | None:
    """The highest threshold, in percent, that is reached; None if none is."""
    return max((percent for percent in thresholds if used * 100 >= percent * whole), default=None)


def _one_line(text: str) -> str:
    """A name on one line. Names become part of an instruction, and a line break could fake another instruction."""
    return " ".join(text.split())
