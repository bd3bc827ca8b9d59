"""What every family needs: options as users give them, windows, violations, and states by key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias, TypeVar

from mat.core.errors import LimitReached, SpecError, did_you_mean
from mat.core.record import ActionKind, Record
from mat.core.value import FrozenDict
from mat.monitor.contract import Violated

S = TypeVar("S")
CountedBy: TypeAlias = Literal["run", "agent"]
TOOL_CALLS: Final[frozenset[ActionKind]] = frozenset(("tool_call",))
_REMEMBERED: Final = 64
"""Characters of texts that functions of texts remember."""
SHORT: Final = 60
"""Characters of one value in a message."""


# -- options as users give them ---------------------------------------------------------------------------------------


def names_of(given: str | Iterable[str], what: str) -> tuple[str, ...]:
    """One name or several, as a sorted tuple without doubles; SpecError where there is none."""
    found = (given,) if isinstance(given, str) else tuple(sorted(set(given)))
    if not found or not all(isinstance(name, str) and name for name in found):
        raise SpecError(
            what=f"{what}={given!r} names nothing", fix=f"give {what} as a name or several, as recorded in the trace"
        )
    return found


def any_names(given: str | Iterable[str], what: str) -> tuple[str, ...]:
    """Names that may be left out: empty where nothing is given."""
    return names_of(given, what) if given else ()


def names_or_all(given: str | Iterable[str] | None, what: str) -> tuple[str, ...] | None:
    """Names that limit a contract: None, for all, where none are given."""
    return None if given is None else names_of(given, what)


def listed(given: Iterable[S], what: str) -> list[S]:
    """Several values. SpecError for a text, whose letters would be taken one by one."""
    if isinstance(given, str):
        raise SpecError(
            what=f"{what}={given!r} is one text", why="its letters would be taken one by one", fix=f"write [{given!r}]"
        )
    return list(given)


def label(names: Iterable[str]) -> str:
    """Names in an id or a sentence."""
    return "+".join(names)


def label_of(names: tuple[str, ...] | None) -> str:
    """The names that limit a contract, in its id; "any" where none do."""
    return "any" if names is None else label(names)


def count_of(given: int, what: str, *, least: int) -> int:
    if not _is_integer(given, least):
        raise SpecError(what=f"{what}={given!r} is not a count of steps", fix=f"give {what} as an integer >= {least}")
    return given


def milliseconds_of(given: int, what: str, *, least: int = 0) -> int:
    if not _is_integer(given, least):
        raise SpecError(what=f"{what}={given!r} is not a count of milliseconds", fix=f"give {what} as an integer >= {least}")
    return given


def _is_integer(given: object, least: int) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= least


def one_of(given: object, what: str, known: Collection[str]) -> None:
    """SpecError for a word that is none of those known."""
    if given not in known:
        raise SpecError(
            what=f"{what}={given!r} is not known{did_you_mean(str(given), known)}", fix=f"one of {', '.join(known)}"
        )


@dataclass(frozen=True, slots=True)
class PastWindow:
    """How far back something counts: `steps` steps and `milliseconds` of run time, each None for no bound."""

    steps: int | None = None
    milliseconds: int | None = None

    @classmethod
    def of(cls, within: int | None, within_ms: int | None, *, least: int = 1, least_ms: int = 0) -> PastWindow:
        """From the options `within` and `within_ms`. SpecError for a bound that is no integer from the least one on."""
        if within is not None:
            count_of(within, "within", least=least)
        if within_ms is not None:
            milliseconds_of(within_ms, "within_ms", least=least_ms)
        return cls(within, within_ms)

    @property
    def is_bounded(self) -> bool:
        return self.steps is not None or self.milliseconds is not None

    def holds(self, steps: int, milliseconds: int) -> bool:
        """Whether what is so many steps and milliseconds away still counts."""
        if self.steps is not None and steps > self.steps:
            return False
        return self.milliseconds is None or milliseconds <= self.milliseconds

    def __str__(self) -> str:
        """In words: `5 steps and 100 ms`."""
        bounds = ((self.steps, "steps"), (self.milliseconds, "ms"))
        return " and ".join(f"{bound} {unit}" for bound, unit in bounds if bound is not None)


# -- what a step returns ----------------------------------------------------------------------------------------------


def judged(found: Sequence[Violated], state: S) -> S | Violated:
    """What a step returns that may find several violations: the state to go on with, or all of them as one value."""
    return replace(found[0], state=state, more=tuple(found[1:])) if found else state


def all_of(found: Sequence[Violated]) -> Violated | None:
    """What a finished trace breaks, as one value; None where that is nothing."""
    return replace(found[0], more=tuple(found[1:])) if found else None


def too_many(what: str, fix: str = "judge shorter episodes") -> LimitReached:
    """A limit on a monitor's state was reached: the contract becomes unknown."""
    return LimitReached(what=what, why="a monitor's state is bounded", fix=fix)


def put(state: FrozenDict, key: str, value: Any) -> FrozenDict:
    """A state with one entry, or without it where the value is empty."""
    if value:
        return FrozenDict({**state, key: value})
    return FrozenDict({name: item for name, item in state.items() if name != key}) if key in state else state


# -- texts ------------------------------------------------------------------------------------------------------------


def let_through(record: Record) -> Mapping[str, Any]:
    """The arguments after the mediator: a rewritten action is judged as rewritten, faults further down are not the agent's."""
    return record.arguments


def folded(text: str) -> str:
    """A text as exact lists compare it: without case and outer spaces."""
    return text.strip().casefold()


def remembered(read: Callable[[str], S]) -> Callable[[str], S]:
    """A function of a text that remembers what short texts give: ids and states are asked for again and again."""
    known = lru_cache(maxsize=4096)(read)

    def reads(text: str) -> S:
        return known(text) if len(text) <= _REMEMBERED else read(text)

    return reads


def short(value: object) -> str:
    """A value in a message, cut where it is long."""
    return cut(repr(value))


def cut(text: str, size: int = SHORT) -> str:
    return text if len(text) <= size else f"{text[: size - 3]}..."
