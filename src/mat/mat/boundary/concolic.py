"""Concolic values: numbers of a perturbed reply that record the decisions taken on them (variational execution).

An operator's grid often has many points that change a number by different amounts. Delivered plainly, each needs its own
run. Here the agent instead gets a number that carries the vector of the values that all points of the grid would have put
there. Arithmetic is done for all points at once. Every operation that turns a number into something else (a comparison, a truth
value, an index, a text, a hash, a key) is a decision: it drops the points whose result differs from that of the chosen point.
The points that are still alive at the end would have led to the same run.

This is sound if two claims of the user hold (`mat.spec.StateDigest`: `complete`, `concolic`). Python code can learn about such
a number only through the methods of its type, and each method either computes the vector or decides. So up to each ask the
agent has done the same for all points alive. The complete digest contains whatever the agent keeps; it is read at each ask and
decides on every number in it. So all points alive share one state there, and stay together whatever is injected later. Records
are snapshots, and a snapshot decides too.

Some operations are invisible, and the user vouches that they do not occur: `type(x) is int`, `x is y`, the class called as a
constructor (`type(x)(0)`), and code in C that reads a real int or float by its layout, such as `decimal.Decimal(x)`,
`datetime.timedelta(x)`, array libraries, database drivers and validators. Code in C raises, or takes another path, when it gets
such a number. `isinstance` works. While a run has such numbers, `json.dumps` and, from Python 3.12 on, `sum` (which adds floats
in a special way) are replaced. The classes do not inherit from int and float, because code in C would then read the chosen
number without a decision.
"""

from __future__ import annotations

import builtins
import copy
import dataclasses
import decimal
import fractions
import json
import math
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final, TypeAlias, cast

from mat.core.value import FrozenDict, FrozenList

PathCondition: TypeAlias = tuple[Any, ...]
"""The path of a leaf: keys, indexes and names of fields."""

_DEAD: Final = object()
"""The value of a point that was dropped before its value was needed."""


class Family:
    """The grid points that one perturbation represents. Number 0 is the chosen one; `alive` holds the others, in order.

    `serial` orders families by age.
    """

    __slots__ = ("alive", "serial")

    def __init__(self, count: int, serial: int = 0) -> None:
        self.alive = list(range(1, count))
        self.serial = serial

    def keep(self, stays: Callable[[int], bool]) -> None:
        """Drop the points for which `stays` is false or raises."""
        if self.alive:
            self.alive = [index for index in self.alive if _holds(stays, index)]

    def drop(self, index: int) -> None:
        if index in self.alive:
            self.alive = [other for other in self.alive if other != index]


def _holds(stays: Callable[[int], bool], index: int) -> bool:
    try:
        return stays(index)
    except Exception:  # it raises for this point but not for the chosen one: the runs would differ
        return False


def same(one: Any, other: Any) -> bool:
    """Whether two outcomes are indistinguishable: of one type and equal; 0.0 and -0.0 differ, NaN equals NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float | complex):
        return repr(one) == repr(other)
    return bool(one == other)


class _Number:
    """The base of both kinds of number; only `standing_in` makes them."""

    __slots__ = ("_mat_family", "_mat_values")

    _mat_family: Family
    _mat_values: list[Any]

    def __new__(cls, *args: object, **kwargs: object) -> Any:
        raise TypeError(
            "type(x)(...) was called on a number in a perturbed reply; concolic values cannot track this: "
            "do not set concolic=True in mat.spec.StateDigest"
        )

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._mat_values[0])

    def __mat_plain__(self) -> Any:
        """Return the plain number, which is a decision. Modules that do not import this one call the method by its name."""
        return _decide(_identity, self)

    def __getattr__(self, name: str) -> Any:
        value = self._mat_values[0]
        return getattr(self.__mat_plain__() if hasattr(value, name) else value, name)

    def __reduce_ex__(self, protocol: object) -> Any:
        plain = self.__mat_plain__()
        return type(plain), (plain,)

    def __copy__(self) -> Any:
        return self.__mat_plain__()

    def __deepcopy__(self, memo: object) -> Any:
        return self.__mat_plain__()

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        if type(other) in _KINDS:  # for another point the power may be a huge number
            other = other.__mat_plain__()
        return _lift(operator.pow, self, other) if modulus is None else pow(self.__mat_plain__(), other, modulus)

    def __rpow__(self, other: Any, modulus: Any = None) -> Any:
        return pow(other, self.__mat_plain__()) if modulus is None else pow(other, self.__mat_plain__(), modulus)

    def __round__(self, digits: Any = None) -> Any:
        return _decide(round, self) if digits is None else _lift(round, self, digits)

    def __divmod__(self, other: Any) -> Any:
        return _lift(_quotient, self, other), _lift(_remainder, self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return _lift(_quotient, other, self), _lift(_remainder, other, self)


def _identity(value: Any) -> Any:
    return value


def _quotient(one: Any, other: Any) -> Any:
    return divmod(one, other)[0]


def _remainder(one: Any, other: Any) -> Any:
    return divmod(one, other)[1]


def _lifted_method(function: Callable[..., Any]) -> Any:
    return lambda self, *others: _lift(function, self, *others)


def _reflected_method(function: Callable[[Any, Any], Any]) -> Any:
    return lambda self, other: _lift(function, other, self)


def _deciding_method(function: Callable[..., Any]) -> Any:
    return lambda self, *others: _decide(function, self, *others)


_DECIDING: Final[dict[str, Callable[..., Any]]] = {
    "bool": bool, "int": int, "float": float, "complex": complex, "hash": hash, "str": str, "repr": repr, "format": format,
    "trunc": math.trunc, "floor": math.floor, "ceil": math.ceil, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
    "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
}  # fmt: skip
_ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv, "floordiv": operator.floordiv,
    "mod": operator.mod,
}  # fmt: skip
_BITS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "rshift": operator.rshift,
}  # fmt: skip


def _methods(binary: dict[str, Callable[..., Any]], unary: dict[str, Callable[..., Any]]) -> dict[str, Any]:
    made = {f"__{name}__": _lifted_method(function) for name, function in (binary | unary).items()}
    made |= {f"__r{name}__": _reflected_method(function) for name, function in binary.items()}
    return made | {f"__{name}__": _deciding_method(function) for name, function in _DECIDING.items()}


_SIGNS: Final[dict[str, Callable[[Any], Any]]] = {"neg": operator.neg, "pos": operator.pos, "abs": operator.abs}


def _lshift(self: Any, other: Any) -> Any:
    return _lift(operator.lshift, self, other.__mat_plain__() if type(other) in _KINDS else other)


def _rlshift(self: Any, other: Any) -> Any:
    return other << self.__mat_plain__()


# the classes have the names of int and float, so that error messages, which agents may read, stay the same
_Int: Final[type[_Number]] = type(
    "int",
    (_Number,),
    {
        "__slots__": (),
        "__module__": __name__,
        **_methods(_ARITHMETIC | _BITS, _SIGNS | {"invert": operator.invert}),
        "__index__": _deciding_method(operator.index),
        "__lshift__": _lshift,
        "__rlshift__": _rlshift,
    },
)
_Float: Final[type[_Number]] = type(
    "float", (_Number,), {"__slots__": (), "__module__": __name__, **_methods(_ARITHMETIC, _SIGNS)}
)
_CLASSES: Final[dict[type, type[_Number]]] = {int: _Int, float: _Float}
_KINDS: Final = frozenset({_Int, _Float})
_NUMBERS: Final = frozenset({int, float, bool, *_KINDS})
_COMPARABLE: Final = _NUMBERS | {
    str, bytes, type(None), list, tuple, dict, set, frozenset, complex, decimal.Decimal, fractions.Fraction,
}  # fmt: skip
"""Types whose comparisons with a number are known to have no side effects."""


def is_stand_in(value: object) -> bool:
    """Whether a value is such a number. This is not a decision."""
    return type(value) in _KINDS


def standing_in(family: Family, values: Sequence[Any]) -> Any:
    """A number with one value per point of the family; a plain number if all points that are alive have the same value.

    `values[0]` is the value of the chosen point, an int or a float; those of dropped points do not matter. Points whose value
    is of another type are dropped.
    """
    first = values[0]
    family.keep(lambda index: type(values[index]) is type(first))
    if all(same(values[index], first) for index in family.alive):
        return first
    made = object.__new__(_CLASSES[type(first)])
    made._mat_family, made._mat_values = family, list(values)
    return made


def _columns(args: Sequence[Any]) -> tuple[Family, list[Any]]:
    """The youngest family among the arguments, and each argument as a column of its values; older families are decided."""
    family = max((arg._mat_family for arg in args if type(arg) in _KINDS), key=lambda found: found.serial)
    columns = []
    for arg in args:
        if type(arg) not in _KINDS:
            columns.append(_Constant(arg))
        elif arg._mat_family is family:
            columns.append(arg._mat_values)
        else:
            columns.append(_Constant(arg.__mat_plain__()))
    return family, columns


class _Constant:
    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __getitem__(self, index: int) -> Any:
        return self._value


def _chosen_outcome(family: Family, function: Callable[..., Any], columns: Sequence[Any]) -> Any:
    """The outcome for the chosen point; if it is an error, all other points are dropped."""
    try:
        return function(*[column[0] for column in columns])
    except BaseException:
        family.alive = []
        raise


def _lift(function: Callable[..., Any], *args: Any) -> Any:
    """Compute a function of numbers for every point. An argument that is not a number makes it a decision."""
    if not all(type(arg) in _NUMBERS for arg in args):
        return function(*[arg.__mat_plain__() if type(arg) in _KINDS else arg for arg in args])
    family, columns = _columns(args)
    first = _chosen_outcome(family, function, columns)
    values = [first] + [_DEAD] * max(family.alive, default=0)

    def done(index: int) -> bool:
        values[index] = function(*[column[index] for column in columns])
        return True

    family.keep(done)
    if type(first) in _CLASSES:
        return standing_in(family, values)
    family.keep(lambda index: same(values[index], first))
    return first


def _decide(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function whose result cannot be tracked: points for which the result differs are dropped."""
    if not all(type(arg) in _COMPARABLE for arg in args):
        return function(*[arg.__mat_plain__() if type(arg) in _KINDS else arg for arg in args])
    family, columns = _columns(args)
    first = _chosen_outcome(family, function, columns)
    family.keep(lambda index: same(function(*[column[index] for column in columns]), first))
    return first


# -- values that hold such numbers ----------------------------------------------------------------------------------------


def unlike(one: Any, other: Any) -> dict[PathCondition, Any] | None:
    """The numbers in which two values differ: path -> number in the other value; None if anything else differs.

    Only an int and another int, or a float and another float, can differ in this way; bools cannot. Lists, tuples, dicts (with
    keys in the same order) and dataclasses are compared part by part, and no other class.
    """
    found: dict[PathCondition, Any] = {}
    return found if _compare(one, other, (), found) else None


def _compare(one: Any, other: Any, path: PathCondition, found: dict[PathCondition, Any]) -> bool:
    kind = type(one)
    if kind is not type(other) or len(path) > _DEPTH:
        return False
    if kind in _CLASSES:
        if not same(one, other):
            found[path] = other
        return True
    parts, others = _parts(one), _parts(other)
    if parts is None or others is None:
        form = form_of(one)
        return form is not None and form == form_of(other)
    if [form_of(key) for key, _ in parts] != [form_of(key) for key, _ in others]:
        return False
    return all(_compare(mine, theirs, (*path, key), found) for (key, mine), (_, theirs) in zip(parts, others, strict=True))


_DEPTH: Final = 32


def _parts(value: Any) -> list[tuple[Any, Any]] | None:
    """(key, part) of a container that can be rebuilt with other parts; None for anything else."""
    kind = type(value)
    if kind is dict:
        return list(value.items())
    if kind is list or kind is tuple or _is_namedtuple(kind):
        return list(enumerate(value))
    if dataclasses.is_dataclass(kind) and set(getattr(value, "__dict__", ())) <= {field.name for field in _fields(value)}:
        return [(field.name, getattr(value, field.name, None)) for field in _fields(value)]
    return None


def _fields(value: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(value)


def _is_namedtuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_make") and hasattr(kind, "_fields")


def replaced(value: Any, leaves: Mapping[PathCondition, Any]) -> Any:
    """The value with other leaves at some paths; parts that are not on these paths stay the same objects.

    ValueError if a container on such a path occurs twice in the value: changing one occurrence would change the other.
    """
    ways = {path[:length] for path in leaves for length in range(len(path))}
    met: dict[int, int] = {}
    _count_containers(value, met, 0)
    return _rebuild(value, (), leaves, ways, met)


def _count_containers(value: Any, met: dict[int, int], depth: int) -> None:
    parts = _parts(value) if depth <= _DEPTH else None
    for _, part in parts or ():
        _count_containers(part, met, depth + 1)
    if parts is not None:
        met[id(value)] = met.get(id(value), 0) + 1


def _rebuild(
    value: Any, path: PathCondition, leaves: Mapping[PathCondition, Any], ways: set[PathCondition], met: Mapping[int, int]
) -> Any:
    if path in leaves:
        return leaves[path]
    if path not in ways:
        return value
    if met[id(value)] > 1:
        raise ValueError("a container occurs twice in the value")
    made = [(key, _rebuild(part, (*path, key), leaves, ways, met)) for key, part in _parts(value) or ()]
    return _with_parts(value, made)


def _with_parts(value: Any, parts: Sequence[tuple[Any, Any]]) -> Any:
    kind = type(value)
    if kind is dict:
        return dict(parts)
    items = [part for _, part in parts]
    if kind is list or kind is tuple:
        return kind(items)
    if _is_namedtuple(kind):
        return cast(Any, kind)._make(items)
    made = copy.copy(value)
    for name, part in parts:
        object.__setattr__(made, name, part)
    return made


def plain_of(value: Any, depth: int = 0) -> Any:
    """The value with plain numbers instead of concolic ones, which is a decision; the same object if it has none."""
    if type(value) in _KINDS:
        return value.__mat_plain__()
    parts = _parts(value) if depth <= _DEPTH else None
    if parts is None:
        return value
    made = [(plain_of(key, depth + 1), plain_of(part, depth + 1)) for key, part in parts]
    if all(new[0] is old[0] and new[1] is old[1] for new, old in zip(made, parts, strict=True)):
        return value
    return _with_parts(value, made)


_MAPPINGS: Final = (dict, FrozenDict)
_SEQUENCES: Final = (list, tuple, FrozenList)
_VALUES: Final = ("datetime", "decimal", "fractions", "uuid", "pathlib", "ipaddress")
"""Modules whose values are equal to their recorded form."""


def form_of(value: Any, depth: int = 0) -> Any:
    """A form that distinguishes values by types, order and content; None if a value has no recorded form."""
    kind = type(value)
    if kind in (int, bool, str, bytes, type(None)):
        return (kind, value)
    if kind is float:
        return (kind, repr(value))
    if depth > _DEPTH:
        return None
    if kind in _MAPPINGS:
        pairs: Iterable[tuple[Any, Any]] = value.items()
    elif kind in _SEQUENCES or (_is_namedtuple(kind) and not getattr(value, "__dict__", None)):
        pairs = enumerate(value)
    elif dataclasses.is_dataclass(kind):
        pairs = _parts(value) or ()
        if not pairs and _fields(value):
            return None
    else:
        return _standard_form(value)
    made = tuple((form_of(key, depth + 1), form_of(part, depth + 1)) for key, part in pairs)
    return None if any(None in pair for pair in made) else (kind, made)


def _standard_form(value: Any) -> Any:
    """The recorded form of a value of the standard library; other classes may carry state that is not recorded."""
    if type(value).__module__ not in _VALUES and not isinstance(value, Enum):
        return None
    from mat.core.digest import canonical
    from mat.core.value import snapshot

    try:
        return (type(value), canonical(snapshot(value)))
    except Exception:  # it has no recorded form, or a property of the user's class raised
        return None


# -- replacements for common code in C ------------------------------------------------------------------------------------


@contextmanager
def understood() -> Iterator[None]:
    """While a run has concolic numbers, make `json` write them (a decision) and `sum` add them as it adds plain ones."""
    default, added = json.JSONEncoder.default, builtins.sum

    def written(self: json.JSONEncoder, o: Any) -> Any:
        return o.__mat_plain__() if type(o) in _KINDS else default(self, o)

    def total(iterable: Iterable[Any], /, start: Any = 0) -> Any:
        items = list(iterable)
        if not any(type(item) in _KINDS for item in (*items, start)):
            return added(items, start)
        return _lift(lambda *numbers: added(numbers[1:], numbers[0]), start, *items)

    json.JSONEncoder.default = written  # type: ignore[method-assign]
    if sys.version_info >= (3, 12):
        builtins.sum = total  # type: ignore[assignment]
    try:
        yield
    finally:
        json.JSONEncoder.default = default  # type: ignore[method-assign]
        builtins.sum = added


__all__ = [
    "Family", "PathCondition", "form_of", "is_stand_in", "plain_of", "replaced", "same", "standing_in", "understood",
    "unlike",
]  # fmt: skip
