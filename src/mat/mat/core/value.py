"""Values as they are recorded: JSON shapes plus bytes, copied when a step is asked, and read-only after."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import json
import math
import pathlib
import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Annotated, Any, Final, NoReturn, TypeAlias, TypeVar, cast

from mat.core import limits
from mat.core.digest import as_base, canonical
from mat.core.errors import CodecError


def _read_only(self: object, *args: object, **kwargs: object) -> NoReturn:
    raise TypeError(f"{type(self).__name__} is part of a record and cannot be changed; copy it first")


class FrozenDict(dict[str, Any]):
    """A read-only dict, so that no contract or operator can change a recorded fact."""

    __slots__ = ()
    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = __ior__ = _read_only

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))  # like dict equality: 1, 1.0 and True are equal; only digests distinguish them

    def __reduce__(self) -> tuple[object, ...]:
        return (FrozenDict, (dict(self),))

    def __deepcopy__(self, memo: object) -> FrozenDict:
        return self

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> Any:
        return _schema(cls, wanted="an object")


class FrozenList(list[Any]):
    """A read-only list; see FrozenDict."""

    __slots__ = ()
    __setitem__ = __delitem__ = append = extend = insert = pop = remove = _read_only
    clear = sort = reverse = __iadd__ = __imul__ = _read_only

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple[object, ...]:
        return (FrozenList, (list(self),))

    def __deepcopy__(self, memo: object) -> FrozenList:
        return self

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> Any:
        return _schema(cls, wanted="a list")


def _schema(*expected: type[object], wanted: str) -> Any:
    """The pydantic schema of recorded values in JSON data: chosen by JSON type, never by trying alternatives.

    `wanted`: what an error calls them.
    """
    from pydantic_core import PydanticCustomError, core_schema

    def validate(data: object) -> object:
        frozen = freeze(data)
        if type(frozen) not in expected:
            raise PydanticCustomError("json_type", f"Input should be {wanted}")
        return frozen

    return core_schema.no_info_plain_validator_function(validate)


class _AnyValue:
    """Makes pydantic validate a Value in one piece."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> Any:
        return _schema(*IMMUTABLE, FrozenDict, FrozenList, wanted="a JSON value")


Scalar: TypeAlias = bool | int | float | str | bytes | None
Value: TypeAlias = Annotated[bool | int | float | str | bytes | FrozenList | FrozenDict | None, _AnyValue]


class SecretText(str):
    """The text of a secret whose class says that it is one (`pydantic.SecretStr`): redaction cuts it out whole."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'**********'"

    def get_secret_value(self) -> str:
        return str.__str__(self)


class HiddenText(SecretText):
    """A secret that is cut out in its place alone, because it may be as short and as common as any word."""

    __slots__ = ()


EMPTY: FrozenDict = FrozenDict()
SPARSE: Final = {"sparse": True}
"""Metadata of a field that is written to files only if it is not empty, so that files of earlier versions do not change."""
EXACT_FIELDS: Final = {"extra": "forbid"}
"""`__pydantic_config__` of a class that is written to files: unknown fields are errors."""
IMMUTABLE: Final[frozenset[type[object]]] = frozenset({type(None), bool, int, float, str, bytes})
"""The types whose values are their own recorded form."""


def snapshot(value: object, where: str = "value") -> Value:
    """Copy a value into its recorded form, or raise CodecError.

    Dataclasses, pydantic models, enums, dates, Decimal, UUID, paths and sets have a recorded form; sets are sorted. The error
    for any other class names `where`.
    """
    if type(value) in IMMUTABLE:
        return cast(Value, value)
    return _copy(value, where, 0)


def snapshot_arguments(arguments: Mapping[str, object], where: str) -> FrozenDict:
    """The recorded form of a call's arguments; a CodecError names all parameters that have none."""
    for name, value in arguments.items():
        if type(value) not in IMMUTABLE or type(name) is not str:
            break
    else:
        return FrozenDict(arguments)
    copied, refused = {}, {}
    for name, item in arguments.items():
        try:
            copied[_key(name, where)] = snapshot(item, f"{where}, parameter {name!r}")
        except CodecError as error:
            refused[str(name)] = error
    if refused:
        first = next(iter(refused.values()))
        raise CodecError(
            what="; ".join(error.what for error in refused.values()), why=first.why, where=first.where,
            fix=first.fix.replace("exclude=", f"exclude={json.dumps(list(refused))}"),
        )  # fmt: skip
    return FrozenDict(copied)


def _copy(value: object, where: str, depth: int) -> Value:
    kind = type(value)
    if kind in IMMUTABLE:
        return cast(Value, value)
    if kind is FrozenDict or kind is FrozenList:
        return cast(Value, value)
    if depth > limits.VALUE_DEPTH:
        raise CodecError(
            what=f"{where} is nested more than {limits.VALUE_DEPTH} deep",
            why="a recorded value is finite and small; this one may contain itself",
            fix="pass the parts the agent needs, or leave the parameter out with exclude=",
            where=where,
        )
    if isinstance(value, Mapping):
        return _copy_mapping(value, where, depth)
    if isinstance(value, list | tuple):
        if hasattr(value, "_asdict"):
            return _copy(value._asdict(), where, depth + 1)
        return FrozenList(_copy(item, where, depth + 1) for item in value)
    plain = _as_plain(value, where, depth)
    if plain is not None:
        return plain[0]
    raise CodecError(
        what=f"{where} cannot be recorded: it is of type {kind.__module__}.{kind.__qualname__}",
        why="a step records its values so that the run can be compared, searched and replayed",
        fix="pass plain data, a dataclass or a pydantic model, or leave the parameter out with exclude=",
        where=where,
    )


def _copy_mapping(value: Mapping[Any, object], where: str, depth: int) -> FrozenDict:
    copied = {_key(key, where): _copy(item, where, depth + 1) for key, item in value.items()}
    if len(copied) != len(value):
        raise CodecError(
            what=f"{where} has two keys with the same text form",
            why="recorded mappings have text keys, so one of them would be lost",
            fix="convert the keys before the call, or leave the parameter out with exclude=",
            where=where,
        )
    return FrozenDict(copied)


def _as_plain(value: object, where: str, depth: int) -> tuple[Value] | None:
    """The recorded form of an instance of a known class, in a one-tuple because None is a value."""
    if isinstance(value, enum.Enum):
        return (_copy(value.value, where, depth + 1),)
    if type(value) in (SecretText, HiddenText):
        return (cast(Value, value),)
    reveal = getattr(type(value), "get_secret_value", None)
    if reveal is not None:
        return (_secret_text(reveal(value), where, depth),)
    based = as_base(value)  # subclasses, such as numpy.float64 or a str with markup
    if based is not None:
        return (based,)
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return (_copy(value.tolist(), where, depth + 1),)
    if isinstance(value, Set):
        return (FrozenList(sorted((_copy(item, where, depth + 1) for item in value), key=canonical)),)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return (
            FrozenDict(
                {
                    field.name: _copy(getattr(value, field.name), f"{where}.{field.name}", depth + 1)
                    for field in dataclasses.fields(value)
                }
            ),
        )
    dump = getattr(type(value), "model_dump", None)
    if dump is not None:
        return (_copy(dump(value), where, depth + 1),)
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return (value.isoformat(),)
    if isinstance(value, datetime.timedelta):
        return (value.total_seconds(),)
    if isinstance(value, decimal.Decimal | uuid.UUID | pathlib.PurePath):
        return (str(value),)
    if isinstance(value, Sequence) and not isinstance(value, type):
        return (FrozenList(_copy(item, where, depth + 1) for item in value),)
    return None


def _secret_text(revealed: object, where: str, depth: int) -> Value:
    """The recorded form of what a SecretStr, a SecretBytes or another secret of pydantic holds."""
    held = _copy(revealed, where, depth + 1)
    if isinstance(held, bytes):
        return SecretText(held.decode("utf-8", "surrogateescape"))
    return SecretText(held if isinstance(held, str) else canonical(held))


def _key(key: object, where: str) -> str:
    if type(key) is str:
        return key
    if isinstance(key, enum.Enum):
        return _key(key.value, where)
    if key is None or isinstance(key, bool | int | float | str):
        if isinstance(key, float) and not math.isfinite(key):
            raise CodecError(what=f"{where} has a key that is not finite", where=where, fix="use a text key")
        return str(key)
    if isinstance(key, tuple):
        return "(" + ", ".join(_key(part, where) for part in key) + ")"
    if isinstance(key, uuid.UUID | datetime.date | pathlib.PurePath | decimal.Decimal):
        return str(key)
    raise CodecError(
        what=f"{where} has a key of type {type(key).__qualname__}",
        why="recorded mappings have text keys",
        fix="convert the keys before the call, or leave the parameter out with exclude=",
        where=where,
    )


def thaw(value: Value) -> Any:
    """A plain, mutable copy of a recorded value: dicts and lists again."""
    if type(value) is FrozenDict:
        return {key: thaw(item) for key, item in value.items()}
    if type(value) is FrozenList:
        return [thaw(item) for item in value]
    return value


def freeze(data: Any) -> Any:
    """Recorded values from JSON data: the inverse of `digest.plain`. ValueError for an unknown tag."""
    if isinstance(data, dict):
        if len(data) == 1:
            ((tag, item),) = data.items()
            if tag == "$bytes" and isinstance(item, str):
                return base64.b64decode(item, validate=True)
            if tag == "$float" and item in ("nan", "inf", "-inf"):
                return float(item)
            if tag == "$int" and isinstance(item, str):
                return int(item, 16)
        tags = [key for key in data if key.startswith("$") and not key.startswith("$$")]
        if tags:
            raise ValueError(f"unknown tag {tags[0]!r}")
        return FrozenDict({(key[1:] if key.startswith("$$") else key): freeze(item) for key, item in data.items()})
    if isinstance(data, list):
        return FrozenList(freeze(item) for item in data)
    return data


T = TypeVar("T")


def draft_of(kind: type) -> Callable[[], Any]:
    """A class for values of `kind` under construction: their fields can be set until `__class__ = kind` freezes them.

    CPython allows the assignment because the slots are the same. A draft is five times cheaper than the `__init__` of a frozen
    dataclass, which calls `object.__setattr__` for each field.
    """
    names = ("__init__", "__setattr__", "__delattr__")
    return type(f"{kind.__name__}Draft", (kind,), {"__slots__": (), **{name: getattr(object, name) for name in names}})


def fast_constructor(kind: type[T]) -> Callable[..., T]:
    """A positional constructor of a frozen slotted dataclass that takes every field."""
    names = tuple(field.name for field in dataclasses.fields(cast(Any, kind)))
    body = "\n    ".join(f"draft.{name} = {name}" for name in names)
    source = (
        f"def construct({', '.join(names)}):\n    draft = __draft__()\n    {body}\n"
        f"    draft.__class__ = __frozen__\n    return draft\n"
    )
    namespace: dict[str, Any] = {"__frozen__": kind, "__draft__": draft_of(kind)}
    exec(source, namespace)  # the names come from our own dataclasses
    return cast(Callable[..., T], namespace["construct"])
