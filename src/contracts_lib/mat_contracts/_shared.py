"""What every family needs: names as users give them, default ids, and the arguments that were really let through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from mat.core.errors import SpecError
from mat.core.record import Record
from mat.monitor.contract import Violated

S = TypeVar("S")


def names_of(given: str | Iterable[str], what: str) -> tuple[str, ...]:
    """One name or several, as a sorted tuple without doubles; SpecError where there is none."""
    found = (given,) if isinstance(given, str) else tuple(sorted(set(given)))
    if not found or not all(isinstance(name, str) and name for name in found):
        raise SpecError(
            what=f"{what}={given!r} names nothing", fix=f"give {what} as a name or several, as recorded in the trace"
        )
    return found


def label(names: Iterable[str]) -> str:
    """Names in an id or a sentence."""
    return "+".join(names)


def count_of(given: int, what: str, *, least: int) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise SpecError(what=f"{what}={given!r} is not a count of steps", fix=f"give {what} as an integer >= {least}")
    return given


def let_through(record: Record) -> Mapping[str, Any]:
    """The arguments after the mediator: a rewritten action is judged as rewritten, faults further down are not the agent's."""
    return record.arguments


def folded(text: str) -> str:
    """A text as exact lists compare it: without case and outer spaces."""
    return text.strip().casefold()


def judged(found: Sequence[Violated], state: S) -> S | Violated:
    """What a step returns that may find several violations: the state to go on with, or all of them as one value."""
    return replace(found[0], state=state, more=tuple(found[1:])) if found else state
