"""Places that hold mutable state: each keeps what it held, says whether it holds it still, and puts it back in place.

Members are compared by identity, and only with the members kept for the same place: what a member holds is the business of
its own node. Putting back keeps the identity of the container and the order of its members, so aliases stay aliases.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter, is_
from threading import local
from types import CellType, FunctionType, ModuleType
from typing import Any, ClassVar, Final, Literal, Protocol, TypeAlias

Remedy: TypeAlias = Literal["restore", "fork", "none"]
"""What helps against a change: to put it back; forks, whose memory is their own; nothing, because forks would share it."""

MISSING: Final = object()
_ATOMS: Final = frozenset((int, str, bytes, bool, type(None), complex, range))
_LAZY: Final = frozenset((
    "__dict__", "__weakref__", "__abstractmethods__", "_abc_impl", "__annotations__", "__slotnames__", "__signature__",
    "__annotations_cache__", "__annotate_func__", "__static_attributes__", "__firstlineno__", "__parameters__",
    "__warningregistry__", "__builtins__", "__cached__",
))  # fmt: skip
"""Attributes that the interpreter and the standard library add when somebody first asks for them."""


@dataclass(frozen=True, slots=True)
class Change:
    """One member that differs. `label`: the attribute, "" for a member of a container."""

    label: str
    before: object
    after: object


class Node(Protocol):
    """A place that holds mutable state."""

    remedy: Remedy

    def keep(self) -> None:
        """Take what the place holds now as what it is put back to."""

    def same(self) -> bool:
        """Whether it holds what was kept; False also where something equal has replaced it. Called around every execution."""

    def changes(self) -> tuple[Change, ...]:
        """What differs. Without any, the present members are as good as those kept, and are kept from now on."""

    def put_back(self) -> None:
        """Make it hold what was kept. Whether that succeeded is asked of `same`."""


def equal(one: object, other: object) -> bool:
    """Whether two values are one object, or immutable data that no program can tell apart."""
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    if kind in _ATOMS:
        return bool(one == other)
    if kind is float:
        return repr(one) == repr(other)
    if isinstance(one, tuple) and isinstance(other, tuple) and kind is tuple:
        return len(one) == len(other) and all(map(equal, one, other))
    return False


class DictNode:
    """A dict of any kind. `attributes`: its keys are names, as in the dict of a module or an instance."""

    __slots__ = ("_base", "_held", "_keys", "_module", "_values", "attributes", "remedy")

    def __init__(self, held: dict[Any, Any], *, attributes: bool = False, module: bool = False) -> None:
        self._held, self.attributes, self._module = held, attributes, module
        self._base: type[dict[Any, Any]] = OrderedDict if isinstance(held, OrderedDict) else dict
        self.remedy: Remedy = "restore"
        self.keep()

    def keep(self) -> None:
        self._keys: tuple[Any, ...] = tuple(self._base.__iter__(self._held))
        self._values: tuple[Any, ...] = tuple(self._base.values(self._held))

    @property
    def joins(self) -> bool:
        """Whether it may be compared together with others (`mat.kernel.comparison`): its class has no code of its own."""
        return type(self._held) is dict

    def kept(self) -> tuple[dict[Any, Any], tuple[Any, ...], tuple[Any, ...]]:
        return self._held, self._keys, self._values

    def same(self) -> bool:
        base, held, keys = self._base, self._held, self._keys
        return (
            dict.__len__(held) == len(keys)
            and all(map(is_, base.values(held), self._values))
            and all(map(is_, base.__iter__(held), keys))
        )

    def changes(self) -> tuple[Change, ...]:
        if self._module:
            self._keep_imports()
        before = dict(zip(self._keys, self._values, strict=True))
        after = dict(self._base.items(self._held))
        found = [
            Change(self._label(key), before.get(key, MISSING), after.get(key, MISSING))
            for key in dict.fromkeys((*before, *after))
            if not equal(before.get(key, MISSING), after.get(key, MISSING))
        ]
        if not found and not self.attributes and list(before) != list(after):
            found = [Change("", list(before), list(after))]
        if not found:
            self.keep()
        return tuple(found)

    def put_back(self) -> None:
        base, held = self._base, self._held
        if dict.__len__(held) != len(self._keys) or not all(map(is_, base.__iter__(held), self._keys)):
            kept = set(map(id, self._keys))
            for key in [key for key in base.__iter__(held) if id(key) not in kept]:
                base.__delitem__(held, key)
        if dict.__len__(held) != len(self._keys) or not all(map(is_, base.__iter__(held), self._keys)):
            base.clear(held)
        for key, value in zip(self._keys, self._values, strict=True):
            if dict.get(held, key, MISSING) is not value:
                base.__setitem__(held, key, value)

    def take(self, changes: Iterable[Change]) -> bool:
        """Keep these changes of attributes, and no others; False if the dict does not hold attributes."""
        kept = dict(zip(self._keys, self._values, strict=True))
        for change in changes:
            if change.after is MISSING:
                kept.pop(change.label, None)
            else:
                kept[change.label] = change.after
        self._keys, self._values = tuple(kept), tuple(kept.values())
        return self.attributes

    def _keep_imports(self) -> None:
        """Keep what a run's imports, warnings and the interpreter added to a module: that is no state of the program."""
        known = set(self._keys)
        added = {key: value for key, value in self._held.items() if key not in known and _incidental(key, value)}
        self._keys += tuple(added)
        self._values += tuple(added.values())

    def _label(self, key: object) -> str:
        return str(key) if self.attributes else ""


class DispatchNode(DictNode):
    """The registry of a `functools.singledispatch` function. `forget` drops what the function remembers of it."""

    __slots__ = ("_forget",)

    def __init__(self, held: dict[Any, Any], forget: Callable[[], object]) -> None:
        super().__init__(held)
        self._forget = forget

    def put_back(self) -> None:
        super().put_back()
        self._forget()


class BareNode:
    """The attribute dicts of functions that have no attributes, together: most never get any."""

    __slots__ = ("_dicts", "_names", "remedy")

    def __init__(self, dicts: Sequence[dict[str, Any]], names: Sequence[str]) -> None:
        self._dicts, self._names = tuple(dicts), tuple(names)
        self.remedy: Remedy = "restore"

    def keep(self) -> None:
        """Forget the functions that have attributes by now; `take` says which those are."""
        bare = [(attributes, name) for attributes, name in zip(self._dicts, self._names, strict=True) if not attributes]
        self._dicts, self._names = tuple(each for each, _ in bare), tuple(name for _, name in bare)

    def take(self) -> list[tuple[dict[str, Any], str]]:
        """The attributes that functions have by now, with their names; they are not compared here any more."""
        found = [(attributes, name) for attributes, name in zip(self._dicts, self._names, strict=True) if attributes]
        self.keep()
        return found

    def same(self) -> bool:
        return not any(self._dicts)

    def changes(self) -> tuple[Change, ...]:
        return tuple(
            Change(f"{name}.{attribute}", MISSING, value)
            for name, attributes in zip(self._names, self._dicts, strict=True)
            for attribute, value in attributes.items()
        )

    def put_back(self) -> None:
        for attributes in self._dicts:
            attributes.clear()


def _incidental(name: object, value: object) -> bool:
    return name in _LAZY or issubclass(type(value), ModuleType)


class ListNode:
    """A list or a deque."""

    __slots__ = ("_base", "_held", "_members", "remedy")

    def __init__(self, held: list[Any] | deque[Any]) -> None:
        self._held = held
        self._base: Any = list if isinstance(held, list) else deque
        self.remedy: Remedy = "restore"
        self.keep()

    def keep(self) -> None:
        self._members: tuple[Any, ...] = tuple(self._base.__iter__(self._held))

    @property
    def joins(self) -> bool:
        return type(self._held) in (list, deque)

    def kept(self) -> tuple[list[Any] | deque[Any], tuple[Any, ...]]:
        return self._held, self._members

    def same(self) -> bool:
        base, held = self._base, self._held
        return base.__len__(held) == len(self._members) and all(map(is_, base.__iter__(held), self._members))

    def changes(self) -> tuple[Change, ...]:
        now = tuple(self._base.__iter__(self._held))
        if equal(now, self._members):
            self.keep()
            return ()
        return (Change("", list(self._members), list(now)),)

    def put_back(self) -> None:
        base, held = self._base, self._held
        if base is list:
            list.__setitem__(held, slice(None), self._members)  # type: ignore[index]
        else:
            base.clear(held)
            base.extend(held, self._members)


class SetNode:
    """A set. Its order can be observed, and depends on its history, so it is compared and put back as well."""

    __slots__ = ("_copy", "_held", "_members", "remedy")

    def __init__(self, held: set[Any]) -> None:
        self._held = held
        self.remedy: Remedy = "restore"
        self.keep()

    def keep(self) -> None:
        self._members: tuple[Any, ...] = tuple(set.__iter__(self._held))
        self._copy = set.copy(self._held)

    @property
    def joins(self) -> bool:
        return type(self._held) is set

    def kept(self) -> tuple[set[Any], tuple[Any, ...]]:
        return self._held, self._members

    def same(self) -> bool:
        held = self._held
        return set.__len__(held) == len(self._members) and all(map(is_, set.__iter__(held), self._members))

    def changes(self) -> tuple[Change, ...]:
        if set.__len__(self._held) == len(self._members) and all(map(equal, set.__iter__(self._held), self._members)):
            self.keep()
            return ()
        return (Change("", set(self._members), set(self._held)),)

    def put_back(self) -> None:
        for source in (self._copy, self._members, self._members[::-1]):
            set.clear(self._held)
            set.update(self._held, source)
            if self.same():
                return


class ClassNode:
    """The attributes of a class."""

    __slots__ = ("_attributes", "_held", "_names", "_values", "remedy")

    def __init__(self, held: type) -> None:
        self._held, self._attributes = held, type.__dict__["__dict__"].__get__(held)
        self.remedy: Remedy = "restore"
        self.keep()

    def keep(self) -> None:
        self._names: tuple[str, ...] = tuple(self._attributes)
        self._values: tuple[Any, ...] = tuple(self._attributes.values())

    joins: ClassVar[bool] = True

    def kept(self) -> tuple[Any, tuple[str, ...], tuple[Any, ...]]:
        return self._attributes, self._names, self._values

    def same(self) -> bool:
        attributes, names = self._attributes, self._names
        return (
            len(attributes) == len(names)
            and all(map(is_, attributes.values(), self._values))
            and all(map(is_, attributes, names))
        )

    def changes(self) -> tuple[Change, ...]:
        before = dict(zip(self._names, self._values, strict=True))
        after = dict(self._attributes)
        found = tuple(
            Change(name, before.get(name, MISSING), after.get(name, MISSING))
            for name in dict.fromkeys((*before, *after))
            if name not in _LAZY
            and not name.startswith("__pydantic_")
            and not equal(before.get(name, MISSING), after.get(name, MISSING))
        )
        if not found:
            self.keep()
        return found

    def put_back(self) -> None:
        before = dict(zip(self._names, self._values, strict=True))
        for change in self.changes():
            if change.label in before:
                type.__setattr__(self._held, change.label, before[change.label])
            else:
                type.__delattr__(self._held, change.label)
        if not self.changes():  # the order of attributes may differ, which no program relies on
            self.keep()


FUNCTION_PARTS: Final = (
    "__code__",
    "__defaults__",
    "__doc__",
    "__kwdefaults__",
    "__name__",
    "__qualname__",
    "__module__",
)
parts_of: Final[Callable[[FunctionType], tuple[Any, ...]]] = attrgetter(*FUNCTION_PARTS)
"""The parts of a function that an assignment replaces."""


class FunctionNode:
    """The parts of a function that an assignment replaces, such as its defaults."""

    __slots__ = ("_held", "_values", "remedy")

    joins: ClassVar[bool] = True

    def __init__(self, held: FunctionType) -> None:
        self._held = held
        self.remedy: Remedy = "restore"
        self.keep()

    def keep(self) -> None:
        self._values = parts_of(self._held)

    def kept(self) -> tuple[FunctionType, tuple[Any, ...]]:
        return self._held, self._values

    def same(self) -> bool:
        return all(map(is_, parts_of(self._held), self._values))

    def changes(self) -> tuple[Change, ...]:
        pairs = zip(FUNCTION_PARTS, self._values, parts_of(self._held), strict=True)
        found = tuple(Change(name, before, after) for name, before, after in pairs if not equal(before, after))
        if not found:
            self.keep()
        return found

    def put_back(self) -> None:
        for change in self.changes():
            setattr(self._held, change.label, change.before)


class InstanceNode:
    """The class and the attribute dict that an instance has; the dict's contents have a node of their own."""

    __slots__ = ("_dict", "_held", "_kind", "remedy")

    def __init__(self, held: object) -> None:
        self._held = held
        self.remedy: Remedy = "restore"
        self.keep()

    def keep(self) -> None:
        self._kind, self._dict = type(self._held), attributes_of(self._held)

    @property
    def joins(self) -> bool:
        """Whether its attribute dict is read as those of most objects are."""
        return self._dict is not None and not issubclass(type(self._held), local)

    def kept(self) -> tuple[object, type, dict[str, Any] | None]:
        return self._held, self._kind, self._dict

    def same(self) -> bool:
        return type(self._held) is self._kind and attributes_of(self._held) is self._dict

    def changes(self) -> tuple[Change, ...]:
        return (Change("", (self._kind, self._dict), (type(self._held), attributes_of(self._held))),)

    def put_back(self) -> None:
        if type(self._held) is not self._kind:
            object.__setattr__(self._held, "__class__", self._kind)
        if attributes_of(self._held) is not self._dict:
            object.__setattr__(self._held, "__dict__", self._dict)


def attributes_of(held: object) -> dict[str, Any] | None:
    """The attribute dict of an instance, without asking code of its class; None if it has none."""
    try:
        found = held.__dict__ if issubclass(type(held), local) else object.__getattribute__(held, "__dict__")
    except (AttributeError, TypeError):
        return None
    return found if type(found) is dict else None


class SlotsNode:
    """The slots of an instance; `descriptors` by name."""

    __slots__ = ("_descriptors", "_held", "_names", "_values", "remedy")

    def __init__(self, held: object, descriptors: Sequence[tuple[str, Any]]) -> None:
        self._held = held
        self._names = tuple(name for name, _ in descriptors)
        self._descriptors = tuple(descriptor for _, descriptor in descriptors)
        self.remedy: Remedy = "restore"
        self.keep()

    def keep(self) -> None:
        self._values = tuple(self._read())

    def _read(self) -> Iterable[Any]:
        return [slot_value(descriptor, self._held) for descriptor in self._descriptors]

    def members(self) -> Iterable[tuple[str, Any]]:
        return [pair for pair in zip(self._names, self._values, strict=True) if pair[1] is not MISSING]

    def same(self) -> bool:
        return all(map(is_, self._read(), self._values))

    def changes(self) -> tuple[Change, ...]:
        found = tuple(
            Change(name, before, after)
            for name, before, after in zip(self._names, self._values, self._read(), strict=True)
            if not equal(before, after)
        )
        if not found:
            self.keep()
        return found

    def put_back(self) -> None:
        for descriptor, before, after in zip(self._descriptors, self._values, self._read(), strict=True):
            if before is MISSING and after is not MISSING:
                descriptor.__delete__(self._held)
            elif before is not after:
                descriptor.__set__(self._held, before)


def slot_value(descriptor: Any, held: object) -> Any:
    try:
        return descriptor.__get__(held)
    except AttributeError:
        return MISSING


class CellNode:
    """A variable that functions share: a closure."""

    __slots__ = ("_held", "_value", "remedy")

    def __init__(self, held: CellType) -> None:
        self._held = held
        self.remedy: Remedy = "restore"
        self.keep()

    def keep(self) -> None:
        self._value = cell_value(self._held)

    @property
    def joins(self) -> bool:
        return self._value is not MISSING

    def kept(self) -> tuple[CellType, Any]:
        return self._held, self._value

    def same(self) -> bool:
        return cell_value(self._held) is self._value

    def changes(self) -> tuple[Change, ...]:
        now = cell_value(self._held)
        if equal(now, self._value):
            self.keep()
            return ()
        return (Change("", self._value, now),)

    def put_back(self) -> None:
        if self._value is MISSING:
            del self._held.cell_contents
        else:
            self._held.cell_contents = self._value


def cell_value(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


class ValueNode:
    """State that is read as one value, and written back as one. `read` of a changed object raises nothing: it returns a value
    that differs. Without `write` it cannot be put back."""

    __slots__ = ("_read", "_value", "_write", "remedy")

    def __init__(
        self, read: Callable[[], Any], write: Callable[[Any], object] | None = None, *, remedy: Remedy = "restore"
    ) -> None:
        self._read, self._write = read, write
        self.remedy: Remedy = remedy
        self.keep()

    def keep(self) -> None:
        self._value = self._read()

    def same(self) -> bool:
        return bool(self._read() == self._value)

    def changes(self) -> tuple[Change, ...]:
        now = self._read()
        return () if now == self._value else (Change("", self._value, now),)

    def put_back(self) -> None:
        if self._write is not None:
            self._write(self._value)


class WatchNode:
    """The attributes that a program sets on a module or class which is not its own: those added, and `names`.

    A library's own attributes are not compared: libraries cache in them what they computed.
    """

    __slots__ = ("_attributes", "_count", "_known", "_names", "_owner", "_values", "remedy")

    def __init__(self, owner: Any, names: Iterable[str]) -> None:
        self._owner, self._attributes = owner, vars(owner)
        self._names = tuple(name for name in names if name in self._attributes)
        self.remedy: Remedy = "restore"
        self._known: frozenset[str] = frozenset(names)
        self.keep()

    def keep(self) -> None:
        self._count = len(self._attributes)
        self._values = {name: self._attributes.get(name, MISSING) for name in self._known}

    @property
    def joins(self) -> bool:
        return not self._names

    def kept(self) -> tuple[Any, int]:
        return self._attributes, self._count

    def same(self) -> bool:
        get, values = self._attributes.get, self._values
        if len(self._attributes) != self._count:
            return False
        return all(get(name, MISSING) is values[name] for name in self._names)

    def changes(self) -> tuple[Change, ...]:
        found = tuple(
            Change(name, before, after)
            for name, before in self._values.items()
            if not equal(before, after := self._attributes.get(name, MISSING)) and not _incidental(name, after)
        )
        if not found:
            self.keep()
        return found

    def put_back(self) -> None:
        for change in self.changes():
            if change.before is MISSING:
                delattr(self._owner, change.label)
            else:
                setattr(self._owner, change.label, change.before)
