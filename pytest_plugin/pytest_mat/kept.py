"""Fixtures that give the same contracts in every execution of an item, so that one making serves a whole search.

Whether a fixture may be kept follows from its code: it requests only fixtures that are kept, calls only what makes contracts,
reads only constants, stores nothing outside of its own variables, and no function that it defines shares a variable with it.
Everything else is made anew in each execution: whatever draws, reads a clock, opens something, or counts.
"""

from __future__ import annotations

import builtins
import dis
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import pytest

from mat.monitor.contract import Contract
from mat.monitor.temporal import Field, Formula, Variable

_MAKERS: Final = ("mat.monitor", "mat_contracts")
"""Packages whose functions make contracts and formulas, and do nothing else."""
_GATHERING: Final = ("mat", "mat.temporal", "mat_contracts")
"""Modules that fixtures read names from."""
_BUILTINS: Final = (bool, dict, float, frozenset, int, len, list, max, min, range, set, sorted, str, tuple, zip)
_CONSTANTS: Final = (type(None), bool, int, float, complex, str, bytes, Enum)
_OURS: Final = (Contract, Formula, Field, Variable)
_STORING: Final = (
    "STORE_GLOBAL", "STORE_ATTR", "STORE_SUBSCR", "STORE_SLICE", "STORE_NAME", "DELETE_", "IMPORT_", "LOAD_BUILD_CLASS",
)  # fmt: skip
_GENERATING: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_COMPREHENSIONS: Final = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_HOOKING: Final = ("_pytest.", "anyio.", "pytest_asyncio.", "pytest_mat.")
"""Packages whose hooks for fixtures do nothing for a fixture that is a plain function."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A global name that a fixture reads."""

    names: Mapping[str, Any]
    name: str
    value: Any

    def unchanged(self) -> bool:
        return self.names.get(self.name, self.value) is self.value


class KeptFixtures:
    """The contract fixtures of one item that are made once. `lend` gives them to an execution, `learn` takes them from one.

    `handle` is called at each execution for the value of `mat_run`, so that pytest need not make a `request` for it.
    """

    def __init__(self, item: pytest.Function, handle: Callable[[], object]) -> None:
        self._item, self._handle = item, handle
        self._examined: set[int] = set()
        """The fixtures that were looked at; a test may also ask for one by its name, in a run (`request.getfixturevalue`)."""
        self._pure: dict[str, _PureFixture] = {}
        self._values: dict[str, tuple[Any, Any]] = {}
        """By name, the value of each fixture and the key under which pytest caches it."""
        self._runs: list[tuple[Any, Any]] = []
        """The fixture `mat_run`, unless it is somebody else's, and that key."""

    def lend(self) -> list[Any]:
        """Give the values to the next execution, before its fixtures are made; returns the fixtures to `take_back`."""
        self._forget_changed()
        request: Any = self._item._request
        found = [(self._pure[name].fixture, value, key) for name, (value, key) in self._values.items()]
        found += [(fixture, self._handle(), key) for fixture, key in self._runs]
        lent = []
        if self._runs:  # it requests `request`, for which pytest would make a fixture first
            self._item.funcargs["request"] = request
        for fixture, value, key in found:
            if fixture.cached_result is None:  # pytest gives what is cached to whoever asks for the fixture
                fixture.cached_result = (list(value) if isinstance(value, list) else value, key, None)
                lent.append(fixture)
                if fixture.argname in self._item.fixturenames:  # somebody will
                    request._fixture_defs[fixture.argname] = fixture
        return lent

    def learn(self) -> None:
        """Keep the values that an execution has made. Called while its fixtures exist."""
        self._examine()
        for name, pure in self._pure.items():
            result = None if name in self._values else pure.fixture.cached_result
            if result is not None and result[2] is None and _is_contracts(result[0]):
                value, key, _ = result
                self._values[name] = (list(value) if isinstance(value, list) else value), key

    def _examine(self) -> None:
        """Find the fixtures of the item that may be kept; none if another plugin takes part in making fixtures."""
        request: Any = self._item._request
        made = {name: each for name, each in request._fixture_defs.items() if id(each) not in self._examined}
        if not made:
            return
        self._examined.update(map(id, made.values()))
        if any(_hooked(self._item, name) for name in ("pytest_fixture_setup", "pytest_fixture_post_finalizer")):
            return
        run = made.get("mat_run")
        if run is not None and run.func.__module__ == "pytest_mat" and run.cached_result is not None:
            self._runs.append((run, run.cached_result[1]))
        while True:
            added = {
                name: pure
                for name, fixture in made.items()
                if name not in self._pure
                and self._pure.keys() >= set(fixture.argnames)
                and (pure := _pure_fixture(self._item, fixture)) is not None
            }
            if not added:
                return
            self._pure |= added

    @staticmethod
    def take_back(lent: list[Any]) -> None:
        for fixture in lent:
            fixture.cached_result = None
            fixture._finalizers.clear()  # those of fixtures that depend on it, which have run

    def _forget_changed(self) -> None:
        """Forget everything if a global name that some fixture reads has another value now."""
        if not all(read.unchanged() for name in self._values for read in self._pure[name].reads):
            self._values.clear()


def _is_contracts(value: object) -> bool:
    return isinstance(value, Contract) or (
        isinstance(value, list | tuple) and all(isinstance(part, Contract) for part in value)
    )


@dataclass(frozen=True, slots=True)
class _PureFixture:
    fixture: Any
    reads: tuple[_Read, ...]


def _hooked(item: pytest.Function, hook: str) -> bool:
    plugins = [each.plugin for each in getattr(item.ihook, hook).get_hookimpls()]
    return any(not f"{getattr(plugin, '__name__', type(plugin).__module__)}.".startswith(_HOOKING) for plugin in plugins)


def _pure_fixture(item: pytest.Function, fixture: Any) -> _PureFixture | None:
    function = fixture.func
    params = getattr(getattr(item, "callspec", None), "params", {})
    if fixture.scope != "function" or fixture.params or fixture.argname in params or not isinstance(function, FunctionType):
        return None
    reads = _reads_of(function) if function.__code__.co_argcount == len(fixture.argnames) else None  # else: a method
    return None if reads is None else _PureFixture(fixture, reads)


# -- what code does ---------------------------------------------------------------------------------------------------


def _reads_of(function: FunctionType) -> tuple[_Read, ...] | None:
    """The global names that a function reads, if it does nothing that makes a difference between two calls; else None."""
    examined: dict[CodeType, list[_Read]] = {}
    return tuple(read for reads in examined.values() for read in reads) if _is_pure(function, examined) else None


def _is_pure(function: FunctionType, examined: dict[CodeType, list[_Read]]) -> bool:
    code = function.__code__
    if code in examined:
        return True
    if code.co_flags & _GENERATING or code.co_freevars or code.co_cellvars or function.__kwdefaults__ or function.__defaults__:
        return False
    reads = examined[code] = []
    modules: list[ModuleType] = []
    attributes: set[str] = set()
    for instruction in _executed(code):
        name = instruction.opname
        if name.startswith(_STORING) or _has_defaults(instruction):
            return False
        if name in ("LOAD_ATTR", "LOAD_METHOD"):
            attributes.add(instruction.argval)
        elif name in ("LOAD_GLOBAL", "LOAD_NAME"):
            reads.append(_read(function, instruction.argval))
            if isinstance(reads[-1].value, ModuleType):
                modules.append(reads[-1].value)
    return all(_is_harmless(read.value, examined) for read in reads) and _reach_only_makers(modules, attributes, examined)


def _executed(code: CodeType) -> Iterator[dis.Instruction]:
    """The instructions that a call executes: its own, and those of comprehensions, but not those of functions it defines."""
    yield from dis.get_instructions(code)
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and constant.co_name in _COMPREHENSIONS:
            yield from _executed(constant)


def _has_defaults(instruction: dis.Instruction) -> bool:
    """Whether a function is made with default arguments, which outlive its calls."""
    made = instruction.opname in ("MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE")
    return made and bool((instruction.arg or 0) & 3)


def _read(function: FunctionType, name: str) -> _Read:
    names = function.__globals__
    if name in names:
        return _Read(names, name, names[name])
    return _Read(names, name, getattr(builtins, name, _MISSING))


_MISSING: Final = object()


def _reach_only_makers(modules: list[ModuleType], attributes: set[str], examined: dict[CodeType, list[_Read]]) -> bool:
    """Whether everything that these attributes can be in these modules, and in modules within them, is harmless."""
    for module in modules:
        for name in sorted(attributes):
            value = getattr(module, name, None)
            if isinstance(value, ModuleType) and value not in modules:
                modules.append(value)
            if value is not None and not _is_harmless(value, examined):
                return False
    return True


def _is_harmless(value: Any, examined: dict[CodeType, list[_Read]]) -> bool:
    """Whether to read or call a value makes no difference between two executions."""
    if isinstance(value, ModuleType):
        return value.__name__ in _GATHERING
    if isinstance(value, _OURS):
        return True
    if callable(value):
        if any(value is known for known in _BUILTINS) or _made_by_us(value):
            return True
        return isinstance(value, FunctionType) and _is_pure(value, examined)
    return _is_constant(value)


def _made_by_us(value: Callable[..., Any]) -> bool:
    module = getattr(value, "__module__", None) or ""
    return any(module == name or module.startswith(f"{name}.") for name in _MAKERS)


def _is_constant(value: Any) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(_is_constant(part) for part in value)
    return isinstance(value, _CONSTANTS)
