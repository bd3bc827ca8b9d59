"""Shared parts of the scripted models: named random draws, token counts of texts, and reading a budget in a prompt."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import mat
from mat.core.resources import consumed, entries_of
from mat.core.run import Run

_SAID: Final = re.compile(r"([\d,.]+)/([\d,.]+) ([a-z_ ]+)")
CHARS_PER_TOKEN: Final = 4
LONGEST_REPLY: Final = 65_536
"""The provider's token limit of a reply."""


def luck(*names: object) -> random.Random:
    """A random generator that depends only on these names: the same names give the same draws in every process and order."""
    return random.Random("/".join(map(str, names)))


def tokens(text: str) -> int:
    return -(-len(text) // CHARS_PER_TOKEN)


def reply(prompt: str, text: str, *, thought: int = 0, max_tokens: int = 0) -> dict[str, Any]:
    """A provider's reply. Reasoning counts as output, as providers count it; `max_tokens` truncates reasoning."""
    wrote = tokens(text)
    thought = max(0, min(thought, (max_tokens or LONGEST_REPLY) - wrote))
    usage = {"input_tokens": tokens(prompt), "output_tokens": wrote + thought, "reasoning_tokens": thought}
    return {"text": text, "usage": usage}


def left(prompt: str, what: str) -> int | None:
    """What is left of a resource by the status line in a prompt (`Budget: 1,200/50,000 tokens, ...`); None without one."""
    _, told, line = prompt.rpartition("Budget: ")
    for used, total, name in _SAID.findall(line.splitlines()[0] if told else ""):
        if name.strip() == what:
            return int(total.replace(",", "")) - int(used.replace(",", ""))
    return None


# -- a run in numbers ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run of one task. `success` is the state of the world, not the opinion of a contract or an agent."""

    task: str
    group: str
    success: bool
    quality: float
    tokens: int
    reasoning_tokens: int
    model_calls: int
    iterations: int
    seconds: float
    ended: str
    """finished, or horizon if the run was stopped"""
    states: tuple[str, ...]
    """how each contract of the run ended, the outermost first"""
    blocked: tuple[str, ...]
    """why calls were blocked, by resource"""
    violations: tuple[str, ...]
    """the contracts that the run broke"""


def trial(run: Run, *, task: str, group: str, success: bool, quality: float = 0.0, iterations: int = 0) -> Trial:
    """Measure everything but the outcome from the trace, the same way with and without a contract."""
    spent: dict[str, int] = {}
    for record in run.records:
        for resource, amount in consumed(record).items():
            spent[resource] = spent.get(resource, 0) + amount
    return Trial(
        task=task, group=group, success=success, quality=quality, tokens=spent.get("tokens", 0),
        reasoning_tokens=spent.get("reasoning_tokens", 0), model_calls=spent.get("model_calls", 0), iterations=iterations,
        seconds=run.elapsed_ms / 1000, ended=str(run.termination), states=tuple(_ends(run.records)),
        blocked=tuple(_blocked(run.records)), violations=tuple(sorted({item.contract for item in run.violations})),
    )  # fmt: skip


def _ends(records: Iterable[mat.Record]) -> list[str]:
    found: dict[str, str] = {}
    for entry in sorted((entry for record in records for entry in entries_of(record)), key=lambda entry: entry.number):
        found[entry.contract] = entry.event if entry.event in ENDED else found.get(entry.contract, "")
    return list(found.values())


ENDED: Final = ("fulfilled", "violated", "expired", "terminated")


def _blocked(records: Iterable[mat.Record]) -> list[str]:
    return [
        record.mediation.reason.partition(" of ")[0]
        for record in records
        if record.blocked and record.mediation is not None and record.mediation.rule == "budget"
    ]
