"""The terms that replace functions and types in contract files: named functions, allow-lists, conditions, schemas.

All are values that compare equal if they mean the same, so that a contract from a file can be written and read back.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Final, TypeAlias

from mat.core.allowed import Allowed, within
from mat.core.endpoint import MISSING, values_at
from mat.core.errors import SpecError, did_you_mean
from mat.core.resources import SCALES, resource_problem
from mat.resources.contract import Schema
from mat.resources.reading import Where, all_wrong, kind_of
from mat.resources.status import ContractStatus

NamedCallable: TypeAlias = Callable[..., Any]
"""A function that a file names and the caller of `load` passes in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFunction:
    """A function with the name that a file uses for it."""

    name: str
    function: NamedCallable

    def __call__(self, *given: Any) -> Any:
        return self.function(*given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """A condition that the values at some paths fit allow-lists. `.` is the value itself; `path?` may be missing.

    If a path names several values, such as `to.*`, all of them must fit.
    """

    rules: tuple[tuple[str, Allowed], ...]

    def __call__(self, value: Any, status: ContractStatus | None = None) -> bool:
        return all(_fits(value, path, allowed) for path, allowed in self.rules)


def _fits(value: Any, path: str, allowed: Allowed) -> bool:
    inner = path.removesuffix("?")
    found = [value] if inner == "." else values_at(value, inner) if isinstance(value, Mapping) else [MISSING]
    if path.endswith("?"):
        return all(item is MISSING or within(allowed, item) for item in found)
    return all(item is not MISSING and within(allowed, item) for item in found)


_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_QUANTITIES: Final = ("utilization", "time_utilization", "elapsed_s", "controllable")
_RESOURCE_QUANTITIES: Final = ("consumed", "reserved", "left", "utilization")
_CONDITION: Final = re.compile(r"\s*([a-z_]+)(?:\.(\S+?))?\s*(<=|>=|==|!=|<|>)\s*([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*(%?)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusCondition:
    """A comparison of the status with a number, such as `utilization <= 80 %`, `left.tokens >= 500`, `elapsed_s < 30`.

    The comparison is exact, in ratios of integers. Amounts are in the units of contracts: seconds, units of the currency. If
    nothing limits a resource, every comparison with its `left` or `utilization` is false.
    """

    text: str
    quantity: str
    resource: str
    sign: str
    number: Fraction

    def __call__(self, *given: Any) -> bool:
        """Called with (output, status) for a criterion, and with (status) for a termination condition."""
        value = self._value(given[-1])
        return value is not None and _COMPARISONS[self.sign](value, self.number)

    def _value(self, status: ContractStatus) -> Fraction | int | None:
        name = self.resource
        match self.quantity:
            case "utilization" if not name:
                return max(_time_utilization(status), *(_utilization(status, item) for item in status.budgets), Fraction(0))
            case "utilization":
                return _utilization(status, name) if name in status.budgets else None
            case "time_utilization":
                return _time_utilization(status)
            case "elapsed_s":
                return Fraction(status.elapsed_ms, SCALES["seconds"])
            case "controllable":
                return status.controllable
            case "consumed":
                counted = status.consumed.get(name, status.metered.get(name, 0))
            case "reserved":
                counted = status.reserved.get(name, 0)
            case _:
                if name not in status.left:
                    return None
                counted = status.left[name]
        return Fraction(counted, SCALES.get(name, 1))


def _utilization(status: ContractStatus, resource: str) -> Fraction:
    budget = status.budgets[resource]
    return Fraction(status.consumed[resource], budget) if budget else Fraction(1)


def _time_utilization(status: ContractStatus) -> Fraction:
    if status.duration_ms is None:
        return Fraction(0)
    return Fraction(status.elapsed_ms, status.duration_ms) if status.duration_ms else Fraction(1)


def condition(text: str) -> StatusCondition:
    """Parse a condition; SpecError if the text is not one."""
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise SpecError(
            what=f"{text!r} is not a condition on the status", why="expressions in files are not evaluated",
            fix="write a quantity, a comparison and a number, such as `utilization <= 80 %` or `left.tokens >= 500`",
        )  # fmt: skip
    quantity, resource, sign, number, percent = found.groups()
    known = _QUANTITIES if resource is None else _RESOURCE_QUANTITIES
    if quantity not in known:
        of = "" if resource is None else " of a resource"
        raise SpecError(
            what=f"{text!r}: unknown quantity{of}: {quantity!r}{did_you_mean(quantity, known)}",
            why="expressions in files are not evaluated", fix=f"use one of {', '.join(known)}",
        )  # fmt: skip
    if resource is not None and (problem := resource_problem(resource)):
        raise SpecError(what=f"{text!r}: {problem}", fix="name a resource")
    return StatusCondition(
        text=" ".join(text.split()), quantity=quantity, resource=resource or "", sign=sign,
        number=Fraction(number) / (100 if percent else 1),
    )  # fmt: skip


# -- schemas ------------------------------------------------------------------------------------------------------------

TYPES: Final[Mapping[str, Any]] = {
    "string": str, "integer": int, "number": float, "boolean": bool, "object": dict, "list": list, "any": Any,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The fields of an object, for pydantic: (name, type, whether it is required). Other fields are not allowed."""

    fields: tuple[tuple[str, Any, bool], ...]

    def __get_pydantic_core_schema__(self, source: object, handler: Any) -> Any:
        from pydantic_core import core_schema

        made = {
            name: core_schema.typed_dict_field(handler.generate_schema(kind), required=required)
            for name, kind, required in self.fields
        }
        return core_schema.typed_dict_schema(made, extra_behavior="forbid")


def schema_of(given: Any) -> Schema:
    """The type that a file describes: a name, a list with one schema (for its items), or fields (`name?` is optional).

    Raises a pydantic ValidationError with the place of each problem.
    """
    problems: list[tuple[Where, str]] = []
    schema = None if given is None else _schema_of(given, (), problems)
    if problems:
        raise all_wrong(problems)
    return schema


def _schema_of(given: Any, at: Where, problems: list[tuple[Where, str]]) -> Schema:
    if isinstance(given, str):
        if given not in TYPES:
            choice = did_you_mean(given, TYPES) or f"; choose from {', '.join(TYPES)}"
            problems.append((at, f"unknown type: {given!r}{choice}"))
        return TYPES.get(given)
    if isinstance(given, list) and len(given) == 1:
        inner: Any = _schema_of(given[0], (*at, 0), problems)
        return list[inner]
    if isinstance(given, dict) and given:
        fields = [(name, _schema_of(kind, (*at, name), problems)) for name, kind in given.items()]
        names = [name.removesuffix("?") for name, _ in fields]
        if len(set(names)) < len(names):
            problems.append((at, "a field occurs both with and without `?`"))
        shape = Shape(fields=tuple((name.removesuffix("?"), kind, not name.endswith("?")) for name, kind in fields))
        return Annotated[dict, shape]
    problems.append((at, f"a schema is the name of a type, a list of one schema, or fields, not {kind_of(given)}"))
    return None


def is_json(output: Any) -> bool:
    """The format `json`: whether an output is a text that is valid JSON."""
    if not isinstance(output, str):
        return False
    try:
        json.loads(output)
    except (ValueError, RecursionError):
        return False
    return True
