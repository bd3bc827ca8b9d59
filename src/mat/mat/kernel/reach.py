"""What can outlive a run: all mutable state that can be reached from the user's modules, as nodes with names.

The walk goes through modules, classes, functions (closures, defaults, attributes), instances, containers and the objects of
`mat.kernel.natives`. It enters the classes and functions of the user's modules, not those of libraries, whose instances it
does enter; and nothing of pytest's or of this project but what users gave to it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import dis
import functools
import gc
import io
import itertools
import re
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from contextvars import Context, ContextVar
from typing import Any, Final

from mat.core import limits
from mat.kernel.natives import abstract_node, native_node, opaque_node
from mat.kernel.nodes import (
    FUNCTION_PARTS,
    BareNode,
    CellNode,
    ClassNode,
    DictNode,
    DispatchNode,
    FunctionNode,
    InstanceNode,
    ListNode,
    Node,
    SetNode,
    SlotsNode,
    ValueNode,
    WatchNode,
    attributes_of,
    cell_value,
)

OURS: Final = frozenset(("mat", "mat_contracts", "mat_faults", "mat_search", "mat_study", "pytest_mat"))
_RUNNERS: Final = frozenset(("_pytest", "pytest", "xdist", "coverage", "_hypothesis_pytestplugin"))
_STATELESS_PACKAGES: Final = frozenset((
    "_abc", "_codecs", "_contextvars", "_decimal", "_frozen_importlib", "_frozen_importlib_external", "_operator",
    "_socket", "_sre", "_ssl", "_struct", "_thread", "_weakref", "annotationlib", "ast", "asyncio", "codecs",
    "contextvars", "datetime", "decimal", "fractions", "importlib", "inspect", "ipaddress", "logging", "operator",
    "pathlib", "pydantic_core", "re", "select", "selectors", "socket", "ssl", "struct", "time", "tokenize", "typing",
    "typing_extensions", "uuid", "weakref", "zipimport", "zoneinfo",
))  # fmt: skip
"""Packages whose objects are values, machinery of the interpreter, or read elsewhere (`mat.kernel.places`)."""
_STATELESS: Final = frozenset((
    int, str, float, bool, bytes, complex, range, slice, type(None), type(...), type(NotImplemented), object,
    types.CodeType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.MemberDescriptorType, types.GetSetDescriptorType, types.ClassMethodDescriptorType, types.GenericAlias,
    types.UnionType, types.FrameType, types.TracebackType,
))  # fmt: skip
_WEAK: Final = frozenset((weakref.ref, weakref.KeyedRef))
_REACHES_ANYTHING: Final = frozenset((
    "modules", "import_module", "__import__", "resolve_name", "locate", "get_objects", "get_referrers", "__subclasses__",
    "_getframe", "currentframe", "tb_frame",
))  # fmt: skip
"""Names in code that can find a module, or what is in it, without naming it."""
_INTERPRETERS: Final = frozenset((
    "__abstractmethods__", "__annotations__", "__annotate_func__", "__annotations_cache__", "__builtins__", "__cached__",
    "__dataclass_fields__", "__dataclass_params__", "__dict__", "__loader__", "__spec__", "__warningregistry__", "__weakref__",
))  # fmt: skip
"""Attributes of modules and classes that the interpreter and the standard library give them, and that hold no state."""
_METHOD_WRAPPER: Final = type([].__len__)
_LRU: Final = type(functools.lru_cache(lambda: None))

_STORE_ATTR: Final = dis.opmap["STORE_ATTR"]
_IMPORT_NAME: Final = dis.opmap["IMPORT_NAME"]
_EXTENDED: Final = dis.opmap["EXTENDED_ARG"]


_CACHE: Final = type(functools.lru_cache(len))


def package_of(kind: Any) -> str:
    """The package of a class, or of the function behind a cache: a cache of ours that a module of the user imports is ours."""
    module = kind.__module__
    return module.partition(".")[0] if isinstance(module, str) else ""


class Reached:
    """Nodes reached from named objects. `own`: the names of the user's modules that are entered; `apart`: modules that are
    entered when something leads to them. `full`: the limit on nodes was reached; `unreadable`: objects that cannot be walked;
    `names_modules`: code of the user's may change `sys.modules`."""

    def __init__(self, own: Iterable[str], apart: Iterable[types.ModuleType] = (), *, most: int | None = None) -> None:
        self.own = set(own)
        self._most = limits.ISOLATED_NODES if most is None else most
        self._apart = {module.__name__: module for module in apart}
        self._apart_by_globals = {id(vars(module)): name for name, module in self._apart.items()}
        self._apart_below: dict[str, list[str]] = {}  # of a module that is apart: itself; of a package: those in it
        for name in self._apart:
            for package in itertools.accumulate(name.split("."), "{}.{}".format):
                self._apart_below.setdefault(package, []).append(name)
        self._slots: dict[type, tuple[tuple[str, Any], ...]] = {}
        self._configs: list[Any] = []
        self._met: set[type] = set()  # classes whose modules are entered
        self._named: list[frozenset[str]] = []  # in the code of the user's functions, not yet asked for names of those
        self.nodes: list[Node] = []
        self.full = self.names_modules = False
        self.unreadable: dict[str, None] = {}
        self.files: set[int] = set()  # the descriptors of file objects that were met
        self._places: list[int] = []  # of each node, its place in `_trail`
        self._natives: dict[int, int] = {}  # the id of the object that a node is of, where the node does not hold it
        self._trail: list[tuple[int, str]] = []  # of each place, where it was reached from, and by what name
        self._seen: dict[int, object] = {}  # by id; holding the object keeps its id its own
        self._todo: deque[tuple[Any, int]] = deque()
        self._watched: set[int] = set()
        self._bare: list[tuple[dict[str, Any], int]] = []  # the empty dicts of functions
        self._functions: list[tuple[types.FunctionType, int]] = []  # the user's
        self._classes: list[tuple[type, int]] = []
        self._libraries: list[types.ModuleType] = []  # the modules that something refers to; the user's among them
        self.stored: set[str] = set()

    # -- from outside -----------------------------------------------------------------------------------------------

    def enter(self, name: str, held: object) -> None:
        """Walk everything that is reachable from an object, under a name."""
        self._push(held, self._place(-1, name))
        self.walk()

    def enter_module(self, module: types.ModuleType) -> None:
        if id(vars(module)) not in self._seen:
            self._apart.pop(module.__name__, None)
            self.own.add(module.__name__)
            self._visit_module(module, self._place(-1, module.__name__))
        self.walk()

    def walk(self) -> None:
        while self._todo or self._named_apart():
            if len(self.nodes) > self._most:
                self.full = True
                self._todo.clear()
                return
            if self._todo:
                held, at = self._todo.popleft()
                try:
                    self._visit(held, at)
                except Exception:  # an object that answers with an error what everybody may ask
                    self.unreadable.setdefault(self._path_to(at))
        if self._bare:
            names = [self._path_to(place) for _, place in self._bare]
            self._add_node(BareNode([attributes for attributes, _ in self._bare], names), self._place(-1, ""))
            self._bare.clear()

    def add(self, name: str, node: Node) -> None:
        """A node that was not reached through an object."""
        self._add_node(node, self._place(-1, name))

    def keep(self, index: int) -> None:
        """Take what a place holds now as what it should hold, and walk it."""
        node = self.nodes[index]
        if isinstance(node, BareNode):
            for attributes, name in node.take():
                self._push(attributes, self._place(-1, name))
            return
        node.keep()
        self.again(index)

    def again(self, index: int) -> None:
        """Walk what a place holds by now."""
        node, at = self.nodes[index], self._places[index]
        held: Any = getattr(node, "_held", None)
        if isinstance(node, DictNode) and node.attributes:
            skipped = _INTERPRETERS if "__spec__" in held else ()  # of a module
            for name, value in list(held.items()):
                if name not in skipped:
                    self._push(value, at, name)
        elif isinstance(held, type):
            for name, value in list(vars(held).items()):
                if not name.startswith("__"):
                    self._push(value, at, name)
        elif isinstance(held, dict):
            self._push_dict(held, at)
        elif isinstance(held, list | set | deque):
            self._push_all(list(held), at)
        elif isinstance(held, types.CellType):
            self._push(cell_value(held), at)

    @property
    def seen(self) -> Mapping[int, object]:
        """The objects that were met, by id."""
        return self._seen

    def held(self, index: int) -> int:
        """The id of the object that a node is of."""
        return self._natives.get(index) or id(getattr(self.nodes[index], "_held", None))

    def name(self, index: int, label: str = "") -> str:
        """What a user calls a member of a node: `desk.LAST`, whatever is nested in it."""
        path = self._path_to(self._places[index])
        return ".".join(part for part in (path, label) if part)

    def _path_to(self, place: int) -> str:
        parts = []
        while place >= 0:
            place, part = self._trail[place]
            if part:
                parts.append(part)
        return ".".join(reversed(parts))

    # -- the walk ---------------------------------------------------------------------------------------------------

    def _place(self, parent: int, label: str) -> int:
        self._trail.append((parent, label))
        return len(self._trail) - 1

    def _add_node(self, node: Node, place: int) -> None:
        self.nodes.append(node)
        self._places.append(place)

    def _push(self, held: object, parent: int, label: str = "") -> None:
        kind = type(held)
        if kind in _STATELESS or id(held) in self._seen:
            return
        self._seen[id(held)] = held
        self._todo.append((held, self._place(parent, label) if label else parent))

    def _push_all(self, members: Iterable[object], parent: int) -> None:
        for member in members:
            self._push(member, parent)

    def _visit(self, held: Any, at: int) -> None:
        kind = type(held)
        if self._apart:
            self._meet(held, kind)
        if kind in _WEAK:
            return
        if issubclass(kind, types.ModuleType):
            self._libraries.append(held)
        elif issubclass(kind, type):
            self._visit_class(held, at)
        elif kind is types.FunctionType:
            self._visit_function(held, at)
        elif kind is types.CellType:
            self._add_node(CellNode(held), at)
            self._push(cell_value(held), at)
        elif kind is ContextVar:
            self._push_all(_default(held), at)
        elif kind is Context:
            node = native_node(held)
            assert node is not None
            self._add_node(node, at)
            self._push_all(held.values(), at)
        elif issubclass(kind, _TRANSPARENT):
            if issubclass(kind, BaseException):
                self._add_node(ValueNode(lambda: held.args, lambda args: setattr(held, "args", args)), at)
            self._push_all(_inside(held), at)
        else:
            package = package_of(held if kind is _CACHE else kind)
            if package in _RUNNERS:
                self._push_all(_given_to_pytest(held), at)
                if kind.__name__ == "Config":
                    self._configs.append(held)
            elif package not in _STATELESS_PACKAGES or issubclass(kind, _STATEFUL):
                self._visit_object(held, kind, at, compared=package not in OURS)

    def _visit_object(self, held: Any, kind: type, at: int, *, compared: bool) -> None:
        if issubclass(kind, io.IOBase):
            with suppress(OSError, ValueError):  # one that is closed, or in memory
                self.files.add(held.fileno())
        node = _container_node(held, kind)
        if node is None and compared:
            node = native_node(held)
        if node is not None:
            self._natives[len(self.nodes)] = id(held)
            self._add_node(node, at)
        members = self._members(held, at, compared=compared)
        if node is None and not members and compared and kind.__module__ not in self.own:
            self._add_node(opaque_node(held), at)
            inside = _without_globals(gc.get_referents(held))
            self._push_all([each for each in inside if type(each) not in (dict, list, set)], at)  # its own tables are its own

    def _members(self, held: Any, at: int, *, compared: bool = True) -> bool:
        """Visit what an object holds; returns whether any part of it could be read."""
        kind, read = type(held), False
        if issubclass(kind, dict):
            self._push_dict(held, at)
            return True
        if issubclass(kind, list | tuple | set | frozenset | deque):
            self._push_all(_iterated(held, kind), at)
            read = True
        elif issubclass(kind, weakref.WeakValueDictionary):
            self._push_weak(held, [(None, each) for each in held.values()], at)
            return True
        elif issubclass(kind, weakref.WeakKeyDictionary | weakref.WeakSet):
            pairs = held.items() if isinstance(held, weakref.WeakKeyDictionary) else ((each, None) for each in held)
            self._push_weak(held, pairs, at)
            return True
        elif kind is _LRU:
            self._push(held.__wrapped__, at)
        elif kind.__module__ in ("builtins", "itertools"):
            self._push_all(_without_globals(gc.get_referents(held)), at)
        attributes = attributes_of(held)
        if attributes is not None:
            read = True
            foreign = not self._is_own(kind)
            if compared:
                self._add_node(InstanceNode(held), at)
                if id(attributes) not in self._seen:
                    self._seen[id(attributes)] = attributes
                    self._add_node(DictNode(attributes, attributes=not foreign), at)
            for name, value in list(attributes.items()):
                self._push(value, at, "" if foreign else name)
        slots = self._slots.get(kind)
        if slots is None:
            slots = self._slots[kind] = _slots(kind)
        if slots:
            read = True
            node = SlotsNode(held, slots)
            own = self._is_own(kind)
            if compared and (own or not _is_frozen(kind)):
                self._add_node(node, at)
            for name, value in node.members():
                self._push(value, at, name if own else "")
        return read

    def _is_own(self, kind: type) -> bool:
        return kind.__module__ in self.own

    def _push_dict(self, held: dict[Any, Any], at: int) -> None:
        self._push_all(dict.keys(held), at)
        self._push_all(dict.values(held), at)
        if hasattr(held, "default_factory"):
            self._push(held.default_factory, at)
        attributes = attributes_of(held)
        if attributes is not None:
            self._push(attributes, at)

    def _push_weak(self, held: Any, pairs: Iterable[tuple[Any, Any]], at: int) -> None:
        """The table inside of a weak container; what it refers to is held, so that it can be put back."""
        self._push(held.data, at)
        for key, value in pairs:
            self._push(key, at)
            self._push(value, at)

    def _visit_module(self, module: types.ModuleType, at: int) -> None:
        held = vars(module)
        self._seen[id(held)] = held
        self._add_node(DictNode(held, attributes=True, module=True), at)
        for name, value in list(held.items()):
            if name not in _INTERPRETERS and not _is_part(value, module, name):
                self._push(value, at, name)

    def _visit_class(self, held: type, at: int) -> None:
        if held.__module__ not in self.own:
            return
        self._add_node(ClassNode(held), at)
        self._classes.append((held, at))
        self._push(type(held), at)
        self._push_all(held.__bases__, at)
        for name, value in list(vars(held).items()):
            if name not in _INTERPRETERS and not name.startswith("__pydantic_"):
                self._push(value, at, name)
        if "_abc_impl" in vars(held):
            self._add_node(abstract_node(held), at)

    def _visit_function(self, held: types.FunctionType, at: int) -> None:
        dispatches = "registry" in held.__dict__ and "_clear_cache" in held.__dict__
        if dispatches:
            self._visit_dispatcher(held, at)
        for name, cell in zip(held.__code__.co_freevars, held.__closure__ or (), strict=False):
            if held.__module__ != "functools" or name not in ("dispatch_cache", "cache_token"):
                self._push(cell, at, "" if dispatches or held.__module__ not in self.own else name)
        self._push_all(held.__defaults__ or (), at)
        if held.__kwdefaults__:
            self._push(held.__kwdefaults__, at)
        attributes = held.__dict__
        if attributes and not dispatches:
            self._seen[id(attributes)] = attributes
            self._add_node(DictNode(attributes, attributes=True), at)
            for name, value in list(attributes.items()):
                self._push(value, at, "" if name == "__wrapped__" else name)
        elif not attributes and held.__module__ in self.own:
            self._bare.append((attributes, at))
        if held.__module__ in self.own or held.__globals__.get("__name__") in self.own:
            named = named_in(held.__code__)
            self.names_modules = self.names_modules or "modules" in named
            if self._apart:
                self._named.append(named)
        if held.__module__ in self.own:
            self.stored |= stored_names(held.__code__)
            self._functions.append((held, at))

    def _visit_dispatcher(self, held: Any, at: int) -> None:
        """A function of functools.singledispatch: its registry counts, what it remembers of calls does not."""
        for table in gc.get_referents(held.registry):
            if isinstance(table, dict) and id(table) not in self._seen:
                self._seen[id(table)] = table
                self._add_node(DispatchNode(table, held._clear_cache), at)
                self._push_all(table.values(), at)

    # -- modules apart ----------------------------------------------------------------------------------------------

    def _meet(self, held: Any, kind: type) -> None:
        """Enter the module that an object belongs to, if that is apart. A weak reference is as good as what it refers to."""
        if kind in _WEAK:
            held = held()
            kind = type(held)
        if issubclass(kind, types.ModuleType):
            for name in self._apart_below.get(_module_name(held), ()):
                self._enter_apart(name)
        elif kind is types.FunctionType:
            self._enter_apart(held.__module__)
            self._enter_apart(self._apart_by_globals.get(id(held.__globals__)))
        self._meet_class(kind)
        if issubclass(kind, type):
            self._meet_class(held)

    def _meet_class(self, kind: type) -> None:
        if kind in self._met:
            return
        self._met.add(kind)
        for base in kind.__mro__:
            self._enter_apart(base.__module__)
        if package_of(kind) in _RUNNERS and not _RUNS_TESTS.isdisjoint(base.__name__ for base in kind.__mro__):
            self._enter_all_apart()

    def _named_apart(self) -> bool:
        """Enter the modules that the code met since the last time can find by a name; returns whether there are any."""
        before = len(self._apart)
        while self._apart and self._named:
            named = self._named.pop()
            if not named.isdisjoint(_REACHES_ANYTHING) or named >= _ALL_TESTS:
                self._enter_all_apart()
            for name in [name for name in self._apart if name.rpartition(".")[2] in named]:
                self._enter_apart(name)
        return len(self._apart) < before

    def _enter_apart(self, name: object) -> None:
        module = self._apart.pop(name, None) if isinstance(name, str) else None
        if module is not None:
            self.own.add(module.__name__)
            self._visit_module(module, self._place(-1, module.__name__))

    def _enter_all_apart(self) -> None:
        for name in list(self._apart):
            self._enter_apart(name)

    # -- libraries --------------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Watch the attributes that the user's code stores, on the library modules and classes that it can name."""
        if any(_asks_for(function.__code__, "__subclasses__") for function, _ in self._functions):
            for held, at in self._classes:
                self._add_node(ValueNode(lambda held=held: frozenset(map(id, type.__subclasses__(held))), remedy="fork"), at)  # type: ignore[misc]
        if any(_asks_for(function.__code__, "__annotations__") for function, _ in self._functions):
            for function, at in self._functions:  # made when somebody asks for them, so only where somebody does
                self._add_node(DictNode(function.__annotations__), at)
        names = frozenset(self.stored)
        for config in self._configs:
            watched = {*names, *(attribute for attribute in vars(config) if _is_given(attribute))}
            self._add_node(WatchNode(config, sorted(watched)), self._place(-1, "config"))
        if not names:
            return
        if not names.isdisjoint(FUNCTION_PARTS):
            for function, at in self._functions:
                self._add_node(FunctionNode(function), at)
        for name in sorted(self.own):
            module = sys.modules.get(name)
            for held in list(vars(module).values()) if module is not None else ():
                self._watch(held, names)
        imported = {name for function, _ in self._functions for name in imported_names(function.__code__)}
        for library in (*self._libraries, *filter(None, map(sys.modules.get, sorted(imported)))):
            self._watch(library, names)
        self._watch(sys.modules["builtins"], names)

    def _watch(self, held: Any, names: frozenset[str]) -> None:
        kind = type(held)
        if issubclass(kind, types.ModuleType):
            foreign, label = held.__name__ not in self.own, held.__name__
        elif issubclass(kind, type):
            foreign, label = held.__module__ not in self.own, f"{held.__module__}.{held.__qualname__}"
        else:
            return
        if not foreign or id(held) in self._watched or label.partition(".")[0] in OURS | _RUNNERS:
            return
        self._watched.add(id(held))
        self._add_node(WatchNode(held, sorted(names)), self._place(-1, label))
        if issubclass(kind, types.ModuleType):
            for value in list(vars(held).values()):
                if issubclass(type(value), type) and package_of(value) == held.__name__.partition(".")[0]:
                    self._watch(value, names)


_TRANSPARENT: Final = (
    staticmethod, classmethod, property, functools.cached_property, functools.partial, functools.partialmethod,
    types.MethodType, types.MappingProxyType, types.BuiltinMethodType, _METHOD_WRAPPER, functools.singledispatchmethod,
    BaseException,
)  # fmt: skip
"""Types that matter only for what they hold."""
_STATEFUL: Final = (
    type(threading.Lock()), type(threading.RLock()), threading.local, weakref.WeakValueDictionary, weakref.WeakKeyDictionary,
    asyncio.Queue, asyncio.Lock, asyncio.Event, asyncio.Semaphore, asyncio.Condition,
)  # fmt: skip
"""Types of these packages that hold a program's state all the same."""


def _default(held: ContextVar[Any]) -> Iterable[object]:
    """The default of a context variable, which is what it has where nobody has set it."""
    try:
        return (Context().run(held.get),)
    except LookupError:
        return ()


def _inside(held: Any) -> Iterable[object]:
    match held:
        case BaseException():
            return (*held.args, attributes_of(held))
        case types.MappingProxyType():
            return gc.get_referents(held)
        case types.BuiltinMethodType():
            return () if isinstance(held.__self__, types.ModuleType) else (held.__self__,)
        case _:
            return _without_globals(gc.get_referents(held))


def _without_globals(found: Iterable[object]) -> Iterator[object]:
    """Objects that may be entered: the dict of a module is not, whoever refers to it."""
    return (each for each in found if not (type(each) is dict and "__name__" in each and "__spec__" in each))


def _container_node(held: Any, kind: type) -> Node | None:
    if issubclass(kind, dict):
        return DictNode(held)
    if issubclass(kind, list | deque):
        return ListNode(held)
    if issubclass(kind, set):
        return SetNode(held)
    return None


def _iterated(held: Any, kind: type) -> Iterable[object]:
    base: Any = next(each for each in (list, tuple, set, frozenset, deque) if issubclass(kind, each))
    members: Iterable[object] = base.__iter__(held)
    return members


def _slots(kind: type) -> tuple[tuple[str, Any], ...]:
    """The slots of a class, by name: they are settled when it is made."""
    bases = [base for base in kind.__mro__ if base.__flags__ & _PYTHON_CLASS]
    members = [member for base in bases for member in vars(base).items()]
    return tuple((name, held) for name, held in members if isinstance(held, types.MemberDescriptorType))


_PYTHON_CLASS: Final = 1 << 9


def _is_frozen(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) and bool(kind.__dataclass_params__.frozen)  # type: ignore[attr-defined]


_OF_PYTEST: Final = frozenset((
    "args", "args_source", "cache", "hook", "invocation_params", "known_args_namespace", "option", "pluginmanager", "stash",
    "trace", "workerinput", "workeroutput",
))  # fmt: skip
"""The attributes that pytest and xdist give to their configuration; the others are the user's."""


def _is_given(attribute: str) -> bool:
    return not attribute.startswith("_") and attribute not in _OF_PYTEST


def _given_to_pytest(held: Any) -> Iterable[object]:
    """What a user gave to pytest: arguments of marks, functions of fixtures."""
    name = type(held).__name__
    if name == "Config":
        return [value for attribute, value in list(vars(held).items()) if _is_given(attribute)]
    if name == "ParameterSet":
        return (held.values, held.marks)
    if name == "MarkDecorator":
        return (held.mark,)
    if name == "Mark":
        return (held.args, dict(held.kwargs) if isinstance(held.kwargs, Mapping) else ())
    if name == "FixtureFunctionDefinition":
        return (held._get_wrapped_function(),)
    return ()


def _is_part(value: object, package: types.ModuleType, name: str) -> bool:
    """Whether this is what an import of a module leaves in its package: nobody's code asked for that."""
    return issubclass(type(value), types.ModuleType) and _module_name(value) == f"{_module_name(package)}.{name}"


def _module_name(module: object) -> str:
    """The name of a module, which may load itself when somebody asks it for anything."""
    name = object.__getattribute__(module, "__dict__").get("__name__")
    return name if isinstance(name, str) else ""


_RUNS_TESTS: Final = frozenset(("Node", "FixtureRequest"))
"""Classes of pytest whose instances lead to all tests, and so do the names together with which code asks a session for them."""
_ALL_TESTS: Final = frozenset(("session", "items"))


@functools.cache
def named_in(code: types.CodeType) -> frozenset[str]:
    """The words that a function's code, or that of a function in it, has in its names and texts."""
    found = set(code.co_names)
    for each in code.co_consts:
        if isinstance(each, str):
            found.update(re.findall(r"\w+", each))
        elif isinstance(each, types.CodeType):
            found |= named_in(each)
    return frozenset(word for name in found for word in name.split("."))


@functools.cache
def _asks_for(code: types.CodeType, name: str) -> bool:
    """Whether a function's code, or that of a function in it, asks for an attribute of that name."""
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return name in code.co_names or any(_asks_for(each, name) for each in inner)


@functools.cache
def stored_names(code: types.CodeType) -> frozenset[str]:
    """The attributes that a function's code may set on objects: those it names, and with `setattr` any text in it."""
    found = {*_names_of(code, _STORE_ATTR)}
    if "setattr" in code.co_names or "__dict__" in code.co_names:
        found.update(each for each in code.co_consts if isinstance(each, str) and each.isidentifier())
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            found |= stored_names(inner)
    return frozenset(found)


@functools.cache
def imported_names(code: types.CodeType) -> frozenset[str]:
    """The modules that a function's code, or that of a function in it, imports."""
    inner = (imported_names(each) for each in code.co_consts if isinstance(each, types.CodeType))
    return frozenset(_names_of(code, _IMPORT_NAME)).union(*inner)


def _names_of(code: types.CodeType, wanted: int) -> Iterator[str]:
    """The names that instructions of one kind have in a function's code."""
    extended = 0
    for operation, argument in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        if operation == wanted:
            yield code.co_names[extended | argument]
        extended = (extended | argument) << 8 if operation == _EXTENDED else 0
