"""Functions that users write for contracts: refused where they can only mislead, called so that nothing leaks, answers checked.

A fold's state is a value. One that can be changed in place (a Counter, a dataclass that is not frozen) is copied before each
call, so that a proposed action, another test or the next run never meets the changes.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import inspect
import pathlib
import re
import types
import uuid
from collections.abc import Callable
from typing import Any, Final

from mat.core.errors import SpecError
from mat.core.value import FrozenDict, FrozenList

_ATOMS: Final = frozenset(
    (
        type(None), bool, int, float, complex, str, bytes, range, type, types.FunctionType, types.BuiltinFunctionType,
        decimal.Decimal, fractions.Fraction, uuid.UUID, pathlib.PurePosixPath, pathlib.PosixPath, pathlib.PureWindowsPath,
        datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone,
    )
)  # fmt: skip
_GROUPS: Final = (tuple, frozenset, FrozenDict, FrozenList)


def is_immutable(value: Any) -> bool:
    """Whether nobody can change a value in place: plain data, and tuples, frozensets and frozen dataclasses of it."""
    kind = type(value)
    if kind in _ATOMS:
        return True
    if kind is FrozenDict:
        return all(map(is_immutable, value.values()))
    if isinstance(value, tuple | frozenset | FrozenList):
        return all(map(is_immutable, value))
    if isinstance(value, enum.Enum) or kind.__module__.startswith("mat.core."):
        return True
    settings = getattr(kind, "__dataclass_params__", None)
    if settings is None or not settings.frozen:
        return False
    return all(is_immutable(getattr(value, field.name, None)) for field in dataclasses.fields(value))


def own(state: Any) -> Any:
    """The state itself if nobody can change it, else a copy to give away."""
    if is_immutable(state):
        return state
    if type(state) is FrozenDict:
        return FrozenDict({key: own(item) for key, item in state.items()})
    if type(state) is FrozenList:
        return FrozenList(map(own, state))
    return copy.deepcopy(state)


class PureFold:
    """A user's fold as a function of its state: (state, record) -> the next state, or what says that the contract is broken.

    None keeps the state, with the changes that the fold made to it in place, if it made any.
    """

    __slots__ = ("__wrapped__", "_held", "_name", "_violated")

    def __init__(self, fold: Callable[[Any, Any], Any], name: str, violated: type) -> None:
        self.__wrapped__, self._name, self._violated = fold, name, violated
        self._held: Any = None
        """The last state that was found to be immutable: states seldom change."""

    def __call__(self, state: Any, record: Any) -> Any:
        given = state
        if state is not self._held:
            given = own(state)
            if given is state:
                self._held = state
        new = self.__wrapped__(given, record)
        if new is None:
            return given
        if (isinstance(new, bool) and type(state) is not bool) or new is self._violated or _is_deferred(new):
            raise misread(self._name, new, "a fold returns the next state, None to keep it, or mat.Violated(...)")
        return new


def holds(answer: Any, test: Any) -> bool:
    """The answer of `test`, a predicate, as a bool. Raises SpecError for any other, such as a text, which would be true."""
    if answer is True or answer is False:
        return answer
    if type(answer).__name__ in ("bool", "bool_") and type(answer).__module__ == "numpy":
        return bool(answer)
    raise misread(
        getattr(test, "__name__", str(test)), answer, "a predicate returns True or False",
        fix="return one of these, for example bool(...) of the value",
    )  # fmt: skip


def matches(answer: Any, test: Any) -> bool:
    """As `holds`, for a test of one argument, which may also be the search of a regular expression."""
    return answer is not None if answer is None or type(answer) is re.Match else holds(answer, test)


def misread(name: str, answer: Any, rule: str, *, fix: str = "return one of these") -> SpecError:
    """The error for an answer of the wrong type, which would otherwise count as one. `rule`: which answers are right."""
    if inspect.isclass(answer):
        said = f"the class {answer.__qualname__}"
    else:
        said = repr(answer) if answer is None or isinstance(answer, bool) else f"a value of type {type(answer).__qualname__}"
    _close(answer)
    return SpecError(what=f"{name} returned {said}", why=rule, fix=fix)


def refuse_deferred(function: object, what: str) -> None:
    """Raise SpecError for a coroutine or generator function: what it returns is no answer, and counts as true."""
    if function is None:
        return
    if type(function) is types.FunctionType and not function.__dict__ and not function.__code__.co_flags & _DEFERRED:
        return  # the usual case, of which contracts that are made anew for each execution have many
    plain = inspect.unwrap(function) if callable(function) else function
    while isinstance(plain, functools.partial):
        plain = plain.func
    called = getattr(type(plain), "__call__", None)  # noqa: B004  (an instance of a class whose __call__ is such a function)
    for each in (plain, called):
        if inspect.iscoroutinefunction(each) or inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each):
            kind = "a coroutine function" if inspect.iscoroutinefunction(each) else "a generator function"
            raise SpecError(
                what=f"{what} is {kind}",
                why="it returns before it has judged anything, so the contract could never be broken",
                fix="write an ordinary function that returns its answer",
            )


_DEFERRED: Final = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


def _is_deferred(answer: Any) -> bool:
    return inspect.iscoroutine(answer) or inspect.isgenerator(answer) or inspect.isasyncgen(answer)


def _close(answer: Any) -> None:
    """Close a coroutine that nobody will await, so that Python does not warn of it."""
    if inspect.iscoroutine(answer):
        answer.close()
