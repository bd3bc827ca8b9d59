"""Helpers of all families: checks of options, windows, violations, and states by key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias, TypeVar

from mat.core.errors import LimitReached, SpecError, did_you_mean, plural
from mat.core.record import Action, ActionKind, Record
from mat.core.value import FrozenDict
from mat.core.verbs import sounds_like_reading
from mat.monitor.contract import Violated

S = TypeVar("S")
CountedBy: TypeAlias = Literal["run", "agent"]
TOOL_CALLS: Final[frozenset[ActionKind]] = frozenset(("tool_call",))
_REMEMBERED: Final = 64
"""Length of the longest text that `remembered` keeps a result for, in characters."""
SHORT: Final = 60
"""Length of one value in a message, in characters."""


# -- effects -----------------------------------------------------------------------------------------------------------


def writes(action: Action, *, named: bool) -> bool:
    """Whether a contract on effects counts a call as a write. A declared effect decides.

    An undeclared call counts if the contract names its tool (`named`). A contract that names no tool counts it, too, unless
    the tool's name begins with a verb that reads ("search", "get_order") and its impact is low: otherwise such a contract
    would fail on every search that nobody declared.
    """
    if action.effect != "unknown":
        return action.effect == "write"
    return named or action.impact == "high" or not sounds_like_reading(action.name)


# -- options as users give them ---------------------------------------------------------------------------------------


def names_of(given: str | Iterable[str], what: str) -> tuple[str, ...]:
    """One or more names as a sorted tuple without duplicates. SpecError if there are none."""
    found = (given,) if isinstance(given, str) else tuple(sorted(set(given)))
    if not found or not all(isinstance(name, str) and name for name in found):
        raise SpecError(
            what=f"{what}={given!r} is empty or contains an empty name",
            fix=f"give {what} one or more names, as recorded in the trace",
        )
    return found


def any_names(given: str | Iterable[str], what: str) -> tuple[str, ...]:
    """Names of an optional argument: an empty tuple if none are given."""
    return names_of(given, what) if given else ()


def names_or_all(given: str | Iterable[str] | None, what: str) -> tuple[str, ...] | None:
    """Names that restrict a contract. None means no restriction."""
    return None if given is None else names_of(given, what)


def listed(given: Iterable[S], what: str) -> list[S]:
    """Values as a list. SpecError for a string, because it would be split into letters."""
    if isinstance(given, str):
        raise SpecError(what=f"{what}={given!r} is a string", why="it would be split into letters", fix=f"write [{given!r}]")
    return list(given)


def label(names: Iterable[str]) -> str:
    """Names joined for an id or a sentence."""
    return "+".join(names)


def label_of(names: tuple[str, ...] | None) -> str:
    """The names that restrict a contract, joined for its id; "any" without a restriction."""
    return "any" if names is None else label(names)


def count_of(given: int, what: str, *, least: int) -> int:
    """The value of the option `what`. SpecError unless it is an integer >= `least`."""
    if not _is_integer(given, least):
        raise SpecError(
            what=f"{what}={given!r} is not an integer >= {least}", fix=f"give {what} as a whole number of at least {least}"
        )
    return given


def milliseconds_of(given: int, what: str, *, least: int = 0) -> int:
    """The value of the option `what` in milliseconds. SpecError unless it is an integer >= `least`."""
    if not _is_integer(given, least):
        raise SpecError(
            what=f"{what}={given!r} is not an integer >= {least}",
            fix=f"give {what} as a whole number of milliseconds, at least {least}",
        )
    return given


def _is_integer(given: object, least: int) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= least


def one_of(given: object, what: str, known: Collection[str]) -> None:
    """Raise SpecError unless `given` is one of the known words."""
    if given not in known:
        raise SpecError(
            what=f"{what}={given!r} is not a valid value{did_you_mean(str(given), known)}", fix=f"use one of {', '.join(known)}"
        )


@dataclass(frozen=True, slots=True)
class PastWindow:
    """How far back something counts: at most `steps` steps and `milliseconds` of run time. None means no bound."""

    steps: int | None = None
    milliseconds: int | None = None

    @classmethod
    def of(cls, within: int | None, within_ms: int | None, *, least: int = 1, least_ms: int = 0) -> PastWindow:
        """Make a window from the options `within` and `within_ms`. SpecError unless each is None or a large enough integer."""
        if within is not None:
            count_of(within, "within", least=least)
        if within_ms is not None:
            milliseconds_of(within_ms, "within_ms", least=least_ms)
        return cls(within, within_ms)

    @property
    def is_bounded(self) -> bool:
        return self.steps is not None or self.milliseconds is not None

    def holds(self, steps: int, milliseconds: int) -> bool:
        """Whether something so many steps and milliseconds ago still counts."""
        if self.steps is not None and steps > self.steps:
            return False
        return self.milliseconds is None or milliseconds <= self.milliseconds

    def __str__(self) -> str:
        """In words: `5 steps and 100 ms`."""
        steps = "" if self.steps is None else plural(self.steps, "step")
        milliseconds = "" if self.milliseconds is None else f"{self.milliseconds} ms"
        return " and ".join(filter(None, (steps, milliseconds)))


def steps_text(steps: Sequence[int]) -> str:
    """Steps in words: `step 3`, or `steps 3, 5`."""
    return f"{'step' if len(steps) == 1 else 'steps'} {', '.join(map(str, steps))}"


# -- what a step returns ----------------------------------------------------------------------------------------------


def judged(found: Sequence[Violated], state: S) -> S | Violated:
    """The return value of a step: `state` if nothing was found, else all violations as one value that carries the state."""
    return replace(found[0], state=state, more=tuple(found[1:])) if found else state


def all_of(found: Sequence[Violated]) -> Violated | None:
    """All violations of a finished trace as one value; None if there are none."""
    return replace(found[0], more=tuple(found[1:])) if found else None


def too_many(what: str, fix: str = "judge shorter episodes") -> LimitReached:
    """The error for a monitor state that reached its limit. Raising it makes the contract unknown."""
    return LimitReached(what=what, why="a monitor's state is bounded", fix=fix)


def put(state: FrozenDict, key: str, value: Any) -> FrozenDict:
    """A copy of a state with one entry set, or removed if the value is empty."""
    if value:
        return FrozenDict({**state, key: value})
    return FrozenDict({name: item for name, item in state.items() if name != key}) if key in state else state


# -- texts ------------------------------------------------------------------------------------------------------------


def let_through(record: Record) -> Mapping[str, Any]:
    """The arguments after mediation: a rewritten action is judged as rewritten, without the faults injected later."""
    return record.arguments


def folded(text: str) -> str:
    """A text as exact lists compare it: case-folded, without outer spaces."""
    return text.strip().casefold()


def remembered(read: Callable[[str], S]) -> Callable[[str], S]:
    """Cache a function of a text for short texts, because ids and status words recur."""
    known = lru_cache(maxsize=4096)(read)

    def reads(text: str) -> S:
        return known(text) if len(text) <= _REMEMBERED else read(text)

    return reads


def short(value: object) -> str:
    """The repr of a value for a message, shortened if it is long."""
    return cut(repr(value))


def cut(text: str, size: int = SHORT) -> str:
    """A text of at most `size` characters; a longer one is shortened and ends in "..."."""
    return text if len(text) <= size else f"{text[: size - 3]}..."
