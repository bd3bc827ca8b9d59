"""Guess which client a tool calls, from the code of the tool and from what its module imports.

Only names and types are looked at, in code that is loaded already: nothing of the tool is called, and nothing connects. The
guess decides what an injected failure is where nothing is declared, and whoever relies on it says so
(`Certificate.assumptions`).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final
from weakref import WeakKeyDictionary

from mat.boundary.clients import CLIENTS, ClientFailure, client_of, exception, part_of
from mat.core import limits
from mat.core.errors import MatError
from mat.core.site import Boundary
from mat.kernel.names import HARNESS, origin

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
    Code of an installed library is not read, because libraries wrap the exceptions of others; unless it belongs to a client.
    """

    __slots__ = ("__weakref__", "_boundary", "_callee")

    def __init__(self, callee: Any, boundary: Boundary) -> None:
        self._callee, self._boundary = callee, boundary

    @property
    def clients(self) -> tuple[GuessedClient, ...]:
        found = _GUESSED.get(self)
        if found is None:
            found = _GUESSED[self] = tuple(item for item in _read(self._callee, self._boundary) if _works(item.name))
        return found


_GUESSED: Final[WeakKeyDictionary[Guess, tuple[GuessedClient, ...]]] = WeakKeyDictionary()
"""What was read so far; not in the tool itself, whose state must be the same after a run as before."""


def _read(callee: Any, boundary: Boundary) -> Iterator[GuessedClient]:
    function = _function_of(callee)
    if function is None or not _is_project(function):
        name = client_of(callee if function is None else function)
        return iter([GuessedClient(name, "the tool itself")] if name else [])
    reader = _Reader()
    reader.read(callee, function)
    called = dict(reader.found)
    imported = {name: file for name, file in _imported(function).items() if name not in called}
    wanted = boundary == "model" and any(CLIENTS[name].model for name in (*called, *imported))
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
    """Reads the code of functions, and of the functions and classes of the project that they name. `found`: client -> file.

    Other tools are left out: they have ports of their own. Types are compared without `isinstance`, which asks a lazy object.
    """

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self._seen: set[int] = set()
        self._left = limits.GUESS_FUNCTIONS

    def read(self, callee: Any, function: FunctionType) -> None:
        if type(callee) is MethodType:
            self._visit(callee.__self__, (), _file(function))
        self._code(function)
        owner = _owner(function)
        if owner is not None:
            self._class(owner)

    def _code(self, function: FunctionType) -> None:
        if self._left <= 0 or id(function.__code__) in self._seen:
            return
        self._left -= 1
        self._seen.add(id(function.__code__))
        file, names = _file(function), tuple(dict.fromkeys(_names_in(function.__code__)))
        for name in names:
            value = function.__globals__.get(name, _NOTHING)
            if value is not _NOTHING:
                self._visit(value, names, file)
            elif part_of(name) and name in sys.modules:  # imported inside the function
                self.found.setdefault(part_of(name), file)
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            self._visit(value, names, file)

    def _visit(self, value: Any, names: Iterable[str], file: str) -> None:
        """Look at a value that code names; `names` are all names of that code, attributes included."""
        kind, name = type(value), client_of(value)
        if name:
            self.found.setdefault(name, file)
        elif kind is functools.partial:
            self._visit(value.func, names, file)
        elif kind is MethodType:
            self._visit(value.__self__, names, file)
            self._visit(value.__func__, names, file)
        elif kind is FunctionType:
            function = _function_of(value)
            if function is not None and "mat_port" not in vars(value) and _is_project(function):
                self._code(function)
        elif kind is ModuleType:
            self._module(value, names)
        elif issubclass(kind, type):
            self._class(value)
        elif _is_project_class(kind):
            self._object(value, file)

    def _module(self, module: ModuleType, names: Iterable[str]) -> None:
        """What code names of a module of the project."""
        members = vars(module)
        if _is_project_module(members):
            for name in names:
                value = members.get(name, _NOTHING)
                if value is not _NOTHING and type(value) is not ModuleType:
                    self._visit(value, (), PurePath(members["__file__"]).name)

    def _class(self, kind: type) -> None:
        for each in kind.__mro__:
            if id(each) in self._seen or not _is_project_class(each):
                continue
            self._seen.add(id(each))
            for member in list(vars(each).values()):
                plain = member.__func__ if type(member) in (staticmethod, classmethod) else member
                if type(plain) is FunctionType:
                    self._visit(plain, (), "")

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
    """The Python function behind a callable and its decorators; None if it has none."""
    while True:
        if type(callee) is functools.partial:
            callee = callee.func
        elif type(callee) is MethodType:
            callee = callee.__func__
        elif type(callee) is FunctionType:
            inner = vars(callee).get("__wrapped__")
            if inner is None:
                return callee
            callee = inner
        else:
            own = vars(type(callee)).get("__call__")
            return own if type(own) is FunctionType else None


def _names_in(code: CodeType) -> Iterator[str]:
    """The global names and the attributes that code uses, in order, functions and classes inside it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _owner(function: FunctionType) -> type | None:
    """The class of a method that is defined at the top of its module; None for other functions."""
    parts = function.__qualname__.split(".")[:-1]
    found: Any = function.__globals__.get(parts[0]) if parts else None
    for part in parts[1:]:
        found = vars(found).get(part) if issubclass(type(found), type) else None
    return found if issubclass(type(found), type) else None


def _file(function: FunctionType) -> str:
    return PurePath(function.__code__.co_filename).name


def _is_project(function: FunctionType) -> bool:
    name = function.__globals__.get("__name__")
    ours = isinstance(name, str) and name.partition(".")[0] in HARNESS
    return not ours and origin(function.__code__.co_filename) == "project"


def _is_project_class(kind: type) -> bool:
    module = sys.modules.get(str(vars(kind).get("__module__")))
    return module is not None and _is_project_module(vars(module))


def _is_project_module(members: Mapping[str, Any]) -> bool:
    name, file = members.get("__name__"), members.get("__file__")
    ours = isinstance(name, str) and name.partition(".")[0] in HARNESS
    return not ours and isinstance(file, str) and origin(file) == "project"


def _works(name: str) -> bool:
    """Whether the library makes its exceptions as expected; a module of the user's may have the name of one."""
    try:
        return exception(name, ClientFailure(kind="timeout", text="")) is not None
    except MatError:
        return False
