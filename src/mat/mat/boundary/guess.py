"""Guess which client a tool calls, from the code of the tool and from what its module imports.

Only names and types are looked at, in code that is loaded already: nothing of the tool is called, and nothing connects. The
guess decides what an injected failure is where nothing is declared, and whoever relies on it says so
(`Certificate.assumptions`).
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from mat.boundary.clients import CLIENTS, Failure, client_of, exception, part_of
from mat.core import limits
from mat.core.errors import MatError
from mat.core.site import Boundary
from mat.kernel.names import origin

_NOTHING: Final = object()


@dataclass(frozen=True, slots=True)
class GuessedClient:
    """A client that a tool probably calls, and the file of the user's project that it was read from."""

    name: str
    file: str


class Guess:
    """The clients that a callable probably calls, the likeliest first; read when they are asked for, once.

    First come those that the callable itself names, or functions and classes of the project that it calls; then the others that
    its module imports. Of the latter, clients of language models count for models, and the other clients for everything else.
    """

    __slots__ = ("_boundary", "_callee", "_found")

    def __init__(self, callee: Any, boundary: Boundary) -> None:
        self._callee, self._boundary = callee, boundary
        self._found: tuple[GuessedClient, ...] | None = None

    @property
    def clients(self) -> tuple[GuessedClient, ...]:
        if self._found is None:
            self._found = tuple(item for item in _read(self._callee, self._boundary) if _works(item.name))
        return self._found


def _read(callee: Any, boundary: Boundary) -> Iterator[GuessedClient]:
    function = _function_of(callee)
    if function is None:
        name = client_of(callee)
        return iter([GuessedClient(name, "the tool itself")] if name else [])
    reader = _Reader()
    reader.read(callee)
    called = dict(reader.found)
    imported = {name: file for name, file in _imported(function).items() if name not in called}
    models = [name for name in (*called, *imported) if CLIENTS[name].model]
    wanted = bool(models) and boundary == "model"
    kept = {name: file for name, file in imported.items() if CLIENTS[name].model is wanted}
    return (GuessedClient(name, file) for name, file in {**called, **kept}.items())


def _imported(function: FunctionType) -> dict[str, str]:
    """The clients among the globals of a function's module, in the order of its imports."""
    file, found = _file(function), dict[str, str]()
    for value in list(function.__globals__.values()):
        name = client_of(value)
        if name:
            found.setdefault(name, file)
    return found


class _Reader:
    """Reads the code of functions, and of the functions and classes of the project that they name. `found`: client -> file."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self._seen: set[int] = set()
        self._left = limits.GUESS_FUNCTIONS

    def read(self, callee: Any) -> None:
        function = _function_of(callee)
        assert function is not None
        receiver = getattr(callee, "__self__", None) if isinstance(callee, MethodType) else None
        if receiver is not None:
            self._visit(receiver, (), _file(function))
        self._function(function)
        owner = _owner(function)
        if owner is not None:
            self._class(owner)

    def _function(self, function: FunctionType) -> None:
        if self._left <= 0 or id(function.__code__) in self._seen:
            return
        self._left -= 1
        self._seen.add(id(function.__code__))
        file, names = _file(function), tuple(dict.fromkeys(_names(function.__code__)))
        closed = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
        for name in names:
            value = function.__globals__.get(name, _NOTHING)
            if value is not _NOTHING:
                self._visit(value, names, file)
            elif part_of(name) and name in sys.modules:  # imported inside the function
                self.found.setdefault(part_of(name), file)
        for cell in closed.values():
            try:
                value = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            self._visit(value, names, file)

    def _visit(self, value: Any, names: Iterable[str], file: str) -> None:
        """Look at a value that code names; `names` are all names of that code, attributes included."""
        if isinstance(value, functools.partial):
            value = value.func
        if isinstance(value, MethodType):
            self._visit(value.__self__, names, file)
            value = value.__func__
        name = client_of(value)
        if name:
            self.found.setdefault(name, file)
        elif isinstance(value, FunctionType):
            if "mat_port" not in vars(value) and _is_project(value.__code__.co_filename):  # a tool fails for itself
                self._function(value)
        elif isinstance(value, ModuleType):
            self._module(value, names)
        elif isinstance(value, type):
            self._class(value)
        elif type(value).__module__ != "builtins":
            self._object(value, file)

    def _module(self, module: ModuleType, names: Iterable[str]) -> None:
        members = vars(module)
        file = members.get("__file__")
        if id(module) in self._seen or not isinstance(file, str) or not _is_project(file):
            return
        self._seen.add(id(module))
        for name in names:
            if name in members:
                self._visit(members[name], (), PurePath(file).name)

    def _class(self, kind: type) -> None:
        for each in kind.__mro__:
            if id(each) in self._seen or each.__module__ == "builtins":
                continue
            self._seen.add(id(each))
            for member in list(vars(each).values()):
                function = _function_of(member.__func__ if isinstance(member, staticmethod | classmethod) else member)
                if function is not None and _is_project(function.__code__.co_filename):
                    self._function(inspect.unwrap(function, stop=lambda item: not hasattr(item, "mat_port")))

    def _object(self, value: Any, file: str) -> None:
        """The class of an object of the project, and the classes of its attributes."""
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        self._class(type(value))
        try:
            attributes: Mapping[str, Any] = object.__getattribute__(value, "__dict__")
        except AttributeError:
            return
        for attribute in list(attributes.values()):
            name = client_of(attribute)
            if name:
                self.found.setdefault(name, file)


def _function_of(callee: Any) -> FunctionType | None:
    """The Python function behind a callable; None if it has none."""
    while isinstance(callee, functools.partial | MethodType):
        callee = callee.func if isinstance(callee, functools.partial) else callee.__func__
    if isinstance(callee, FunctionType):
        return callee
    own = vars(type(callee)).get("__call__") if not isinstance(callee, type) else None
    return own if isinstance(own, FunctionType) else None


def _names(code: CodeType) -> Iterator[str]:
    """The global names and the attributes that code uses, in order, functions and classes inside it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _owner(function: FunctionType) -> type | None:
    """The class of a method that is defined at the top of its module; None for other functions."""
    parts = function.__qualname__.split(".")[:-1]
    found: Any = function.__globals__.get(parts[0]) if parts else None
    for part in parts[1:]:
        found = vars(found).get(part) if isinstance(found, type) else None
    return found if isinstance(found, type) else None


def _file(function: FunctionType) -> str:
    return PurePath(function.__code__.co_filename).name


def _is_project(path: str) -> bool:
    return origin(path) == "project"


def _works(name: str) -> bool:
    """Whether the library makes its exceptions as expected; a module of the user's may have the name of one."""
    try:
        return exception(name, Failure(kind="timeout", text="")) is not None
    except MatError:
        return False
