"""Agents that fail as models do, scripted and seeded: each has a few bad habits, the same for every task (seed 003).

A note after a failed episode corrects the habit that its label names (`MENDS`), if the agent has it; other notes change
nothing. Agents that do not compute times from headers read machine-readable ones. The script decides that personas follow a
note, and how: with personas the levers show that the measurement works, not what they would do for a model.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import TypeVar
from urllib.parse import unquote

from .hands import Habits, Hands

T = TypeVar("T")
INPUT_LIMIT = 200
"""Characters that the tool interface of a direct-pass agent lets through (seed 003, appendix H)."""


class ListedOrder(Habits):
    """Takes things in the order in which they are listed, whatever their deadlines."""

    name = "listed_order"

    def order(self, items: list[T], deadline: Callable[[T], float], *, machine_readable: bool) -> list[T]:
        return sorted(items, key=deadline) if machine_readable else items


class DirectPass(Habits):
    """Copies what it got into the next call, whose input is truncated at its limit."""

    name = "direct_pass"

    def copy(self, text: str, hands: Hands, name: str) -> str:
        return text[:INPUT_LIMIT]


class AggressiveRetry(Habits):
    """Does not wait: retries at once, whatever a reply requests."""

    name = "aggressive_retry"

    def patient(self) -> bool:
        return False


class EarlyGiveUp(Habits):
    """Stops at the first refusal, and leaves its work unfinished."""

    name = "early_give_up"

    def persistent(self) -> bool:
        return False

    def complete(self, what: str) -> bool:
        return what != "undo"


class Paraphraser(Habits):
    """Rewrites what it has read: decodes escapes, tidies up values."""

    name = "paraphraser"

    def copy(self, text: str, hands: Hands, name: str) -> str:
        decoded = unquote(text)
        if decoded != text:
            return decoded
        return text.lower() if text != text.lower() else _tidied(text)

    def retype(self, text: str) -> str:
        return _tidied(text)


class ShortcutTaker(Habits):
    """Takes every shortcut: offered endpoints, and forms without the parts that seem optional."""

    name = "shortcut_taker"

    def complete(self, what: str) -> bool:
        return what not in ("field", "token", "check", "digest")

    def tempted(self) -> bool:
        return True


class StaleCache(Habits):
    """Asks once and reuses the answer."""

    name = "stale_cache"

    def refreshes(self, *, machine_readable: bool) -> bool:
        return machine_readable


class ValidityAware(DirectPass):
    """Plans by deadlines, refreshes and waits; copies bytes directly (seed 003, appendix H)."""

    name = "validity_aware"


class HandleBased(ListedOrder):
    """Stores artifacts and passes on their handles; knows nothing of time (seed 003, appendix H)."""

    name = "handle_based"

    def copy(self, text: str, hands: Hands, name: str) -> str:
        return hands.handle(text, name)

    def refreshes(self, *, machine_readable: bool) -> bool:
        return machine_readable


def _tidied(text: str) -> str:
    """A value rewritten by meaning: a different text."""
    if re.fullmatch(r"\d+\.0+", text):
        return text.split(".")[0]
    words = re.sub(r"[\s_\-]+", " ", text).strip()
    return words if words != text else f"{text}."


PERSONAS: dict[str, type[Habits]] = {
    kind.name: kind
    for kind in (
        ListedOrder, DirectPass, AggressiveRetry, EarlyGiveUp, Paraphraser, ShortcutTaker, StaleCache, ValidityAware,
        HandleBased,
    )
}  # fmt: skip


MENDS: dict[str, tuple[str, ...]] = {
    "EXPIRED_BEFORE_USE": ("order", "refreshes"),
    "VERSION_CONFLICT": ("refreshes",),
    "RATE_LIMITED": ("patient", "persistent"),
    "SCHEDULED_UNAVAILABLE": ("patient", "persistent"),
    "BACKOFF_VIOLATION": ("patient",),
    "MUTATED_TOKEN": ("copy",),
    "SIGNATURE_MISMATCH": ("copy", "retype"),
    "WRONG_VALUE": ("copy", "retype"),
    "WRONG_HASH": ("retype", "complete digest"),
    "MISSING_CONSTRAINT": ("complete field", "complete check"),
    "MISSING_TOKEN": ("complete token",),
    "COMPENSATION_FAILURE": ("complete undo", "persistent"),
    "SHORTCUT_TAKEN": ("tempted",),
}
"""The habits that a note corrects, by its label. OTHER names no habit, so it corrects none."""
_HABITS = ("order", "copy", "retype", "patient", "persistent", "refreshes", "tempted")


class Mended(Habits):
    """The habits after a note: good where the label names them, otherwise unchanged."""

    def __init__(self, before: Habits, label: str) -> None:
        super().__init__(before.rng)
        self.name = before.name
        good, mended = Habits(before.rng), MENDS.get(label, ())
        self._of = {habit: good if habit in mended else before for habit in _HABITS}
        self._good, self._before, self._mended = good, before, mended

    def order(self, items: list[T], deadline: Callable[[T], float], *, machine_readable: bool) -> list[T]:
        return self._of["order"].order(items, deadline, machine_readable=machine_readable)

    def copy(self, text: str, hands: Hands, name: str) -> str:
        return self._of["copy"].copy(text, hands, name)

    def retype(self, text: str) -> str:
        return self._of["retype"].retype(text)

    def patient(self) -> bool:
        return self._of["patient"].patient()

    def persistent(self) -> bool:
        return self._of["persistent"].persistent()

    def refreshes(self, *, machine_readable: bool) -> bool:
        return self._of["refreshes"].refreshes(machine_readable=machine_readable)

    def complete(self, what: str) -> bool:
        return (self._good if f"complete {what}" in self._mended else self._before).complete(what)

    def tempted(self) -> bool:
        return self._of["tempted"].tempted()


def habits(name: str, task: str, seed: int, *, note: str = "") -> Habits:
    """The habits of the oracle or of a persona, in an episode. `note`: the label in the note after the last episode, if any."""
    kind = Habits if name == Habits.name else PERSONAS[name]
    found = kind(Random(f"{name}/{task}/{seed}"))
    return Mended(found, note) if note else found
