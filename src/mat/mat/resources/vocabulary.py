"""The vocabulary of contract files: types for pydantic that read each part straight into the values of `mat.resources`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, PlainValidator, TypeAdapter, ValidationInfo
from pydantic_core import PydanticCustomError

from mat.core.allowed import Allowed, describe
from mat.core.errors import MatError, did_you_mean
from mat.core.resources import Price, amount
from mat.core.value import FrozenDict, FrozenList
from mat.resources.contract import (
    EXHAUSTED,
    Check,
    Criterion,
    EndCondition,
    HandsOn,
    Inputs,
    Output,
    ResourceContract,
    Skill,
)
from mat.resources.modes import MODES, ContractMode
from mat.resources.reading import (
    ALLOWED_KEYS,
    Fits,
    From,
    NumberField,
    Strings,
    Text,
    Where,
    all_wrong,
    as_mapping,
    given,
    kind_of,
    named,
    within_keys,
    wrong,
)  # fmt: skip
from mat.resources.terms import Fitting, NamedCallable, NamedFunction, StatusCondition, condition, is_json, schema_of

_LARGEST: Final = 10**18
"""Amounts must be smaller than this, so that sums stay readable."""


# -- makers of the parts of a contract ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FileContext:
    """The functions that the caller of `load` passes in, by name."""

    checks: Mapping[str, NamedCallable] = field(default_factory=dict)
    scorers: Mapping[str, NamedCallable] = field(default_factory=dict)
    formats: Mapping[str, NamedCallable] = field(default_factory=dict)
    preparers: Mapping[str, NamedCallable] = field(default_factory=dict)
    endings: Mapping[str, NamedCallable] = field(default_factory=dict)
    modes: Mapping[str, ContractMode] = field(default_factory=dict)
    starts: datetime | None = None


def _amount(resource: str, value: Any) -> int | float | str:
    """Check an amount, and return it as it was written."""
    if isinstance(value, str):
        written, value = value, value.replace("_", "")
        if not re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?", value):
            raise wrong(f"an amount is a number, or a string such as '0.25', not {written[:40]!r}")
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong(f"an amount is a number, or a string such as '0.25', not {kind_of(value)}")
    elif not 0 <= value < _LARGEST:
        raise wrong("an amount is at least 0 and below 10 ** 18")
    try:
        amount(resource, value)
    except MatError as error:
        raise wrong(error.what) from error
    return value  # type: ignore[no-any-return]


def _amounts(found: dict[str, Any]) -> FrozenDict:
    problems: list[tuple[Where, str]] = []
    for resource, value in found.items():
        try:
            found[resource] = _amount(resource, value)
        except PydanticCustomError as error:
            problems.append(((resource,), error.message()))
    if problems:
        raise all_wrong(problems)
    return FrozenDict(found)


def _quality(value: float) -> float:
    if not 0 <= value <= 1:
        raise wrong(f"least_quality={value!r} is outside 0 to 1")
    return value


def _weight(value: int) -> int:
    if value < 0:
        raise wrong("a weight is at least 0")
    return value


def _function(found: tuple[str, NamedCallable] | None) -> NamedFunction | None:
    return None if found is None else NamedFunction(name=found[0], function=found[1])


def _fitting(path: str, allowed: Allowed) -> Fitting:
    return Fitting(rules=((path, _as_value(allowed)),))


def _as_value(allowed: Allowed) -> Allowed:
    return FrozenList(allowed) if isinstance(allowed, list) else allowed


def _inputs(*, schema: Any = None, rules: Mapping[str, Allowed] = {}, prepare: Any = None) -> Inputs:
    checks = tuple(
        Check(name=path, holds=_fitting(path, allowed), text=f"{path}: {describe(allowed)}") for path, allowed in rules.items()
    )
    return Inputs(schema=schema, rules=checks, prepare=_function(prepare))


def _output(*, schema: Any = None, quality: Any = None, least_quality: float = 0.0, format: Check | None = None) -> Output:
    return Output(schema=schema, quality=_function(quality), least_quality=least_quality, format=format)


def _format(name: str, context: FileContext) -> Check | None:
    if not name:
        return None
    known = {"json": is_json, **context.formats}
    found = named(name, known, what="format", argument="formats")
    return Check(name=name, holds=NamedFunction(name=found[0], function=found[1]))


def _form_check(allowed: Allowed) -> Check:
    return Check(name="form", holds=_fitting(".", allowed), text=describe(allowed))


def _criterion(
    *, context: FileContext, name: str = "", weight: float = 1.0, check: str = "", status: str = "",
    output: Mapping[str, Allowed] | None = None,
) -> Criterion:  # fmt: skip
    """One of Phi: `check` names a function, `status` is a condition such as `utilization <= 0.8`, `output` has allow-lists."""
    kinds = [key for key, value in (("check", check), ("status", status), ("output", output)) if value]
    if len(kinds) != 1:
        raise wrong(f"it gives {' and '.join(kinds) or 'nothing'}; give exactly one of check, status and output")
    if output:
        fits = Fitting(rules=tuple((path, _as_value(allowed)) for path, allowed in output.items()))
        return Criterion(name=name or ", ".join(output), holds=fits, weight=weight)
    holds = _condition(check, status, context.checks, "checks")
    return Criterion(name=name or check or _text_of_condition(holds), holds=holds, weight=weight)


def _end_condition(*, context: FileContext, name: str = "", check: str = "", status: str = "") -> EndCondition:
    if bool(check) == bool(status):
        raise wrong("give exactly one of check and status")
    holds = _condition(check, status, context.endings, "endings")
    return EndCondition(name=name or check or _text_of_condition(holds), holds=holds)


def _condition(check: str, status: str, known: Mapping[str, NamedCallable], argument: str) -> NamedFunction | StatusCondition:
    if check:
        found = named(check, known, what="check", argument=argument)
        return NamedFunction(name=found[0], function=found[1])
    try:
        return condition(status)
    except MatError as error:
        raise wrong(f"{error.what}; {error.fix}") from error


def _text_of_condition(holds: NamedFunction | StatusCondition) -> str:
    return holds.text if isinstance(holds, StatusCondition) else holds.name


def _from_text(text: str) -> dict[str, Any]:
    """The keys that a bare text stands for: a condition if it compares something, else the name of a check."""
    return {"status": text} if re.search(r"[<>=!]", text) else {"check": text}


def _mode(*, context: FileContext, name: str, version: Literal["full", "first"] = "full") -> ContractMode | None:
    if not name:
        return None
    known = {**MODES[version], **context.modes}
    if name not in known:
        choice = did_you_mean(name, known) or f"; choose from {', '.join(known)}"
        raise wrong(f"unknown mode: {name!r}{choice}")
    return known[name]


def _seconds_until(deadline: str, starts: datetime | None) -> int | float:
    """tau = deadline - start, in seconds. A time of day means the next one after the start."""
    if starts is None:
        raise wrong("a deadline needs a start: give it to load(starts=), or write duration_s")
    try:
        if re.fullmatch(r"[0-9]{2}:[0-9]{2}(:[0-9]{2})?", deadline):
            due = datetime.combine(starts.date(), time.fromisoformat(deadline), tzinfo=starts.tzinfo)
            due += timedelta(days=0 if due > starts else 1)
        else:
            due = datetime.fromisoformat(deadline)
        left = due - starts
    except (ValueError, OverflowError):
        raise wrong(f"{deadline[:40]!r} is neither a time of day, such as 17:00, nor an ISO date and time") from None
    except TypeError:
        raise wrong("the deadline and the start must both have a time zone, or neither") from None
    if left <= timedelta(0):
        raise wrong(f"{deadline} is not after the start, {starts.isoformat()}")
    return left // timedelta(milliseconds=1) / 1_000 if left.microseconds else left // timedelta(seconds=1)


def _deadline(text: str, info: ValidationInfo) -> int | float | None:
    context: Any = info.context
    return _seconds_until(text, context.starts) if text else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A contract of a file, its part of the budgets above it, and how its budgets are divided among contracts below it."""

    contract: ResourceContract
    weight: int = 1
    caps: FrozenDict = field(default_factory=FrozenDict)
    allocation: str = ""
    divides: tuple[str, ...] | None = None


def _terms(*, mode: ContractMode | None = None, deadline: float | None = None, **fields: Any) -> Terms:
    place = {key: fields.pop(key) for key in ("weight", "caps", "allocation", "divides") if key in fields}
    for key in ("extends", "contracts"):
        fields.pop(key, None)
    if deadline is not None and fields.get("duration_s") is not None:
        raise all_wrong([(("deadline",), "give either a duration or a deadline, not both")])
    if deadline is not None:
        fields["duration_s"] = deadline
    for key in ("skills", "criteria", "ends_when", "warn_at"):
        if fields.get(key) is not None:
            fields[key] = tuple(fields[key])
    for key in ("inputs", "output"):
        if fields.get(key, 0) is None:
            fields.pop(key)
    if "prices" in fields:
        fields["prices"] = FrozenDict(fields["prices"])
    try:
        contract = ResourceContract(name="contract", **fields)
    except MatError as error:  # the reader names the place
        raise wrong(error.what.partition(": ")[2] or error.what) from error
    return Terms(contract=contract if mode is None else mode.of(contract), **place)


# -- the vocabulary -----------------------------------------------------------------------------------------------------

_AMOUNTS: Final = Annotated[dict[str, Any], AfterValidator(_amounts)]
_MONEY: Final = Annotated[Any, PlainValidator(lambda value: _amount("money", value))]
_SCHEMA: Final = Annotated[Any, PlainValidator(schema_of)]
_FORM: Final = Annotated[Any, From(within_keys, **ALLOWED_KEYS), AfterValidator(_form_check)]
_INPUTS: Final = From(_inputs, schema=_SCHEMA, rules=dict[str, Fits], prepare=given("preparation", "preparers"))
_OUTPUT: Final = From(
    _output, schema=_SCHEMA, quality=given("scorer", "scorers"), least_quality=Annotated[NumberField, AfterValidator(_quality)],
    format=Annotated[Any, Text(_format, _FORM)],
)  # fmt: skip
_SKILL: Final = Text(
    lambda name, context: Skill(name=name), Annotated[Any, From(Skill, name=str, cost=_AMOUNTS, success=NumberField)]
)
_CRITERION: Final = Text(
    lambda text, context: _criterion(context=context, **_from_text(text)),
    Annotated[Any, From(_criterion, name=str, weight=NumberField, check=str, status=str, output=dict[str, Fits] | None)],
)
_END_CONDITION: Final = Text(
    lambda text, context: EXHAUSTED if text == EXHAUSTED else _end_condition(context=context, **_from_text(text)),
    Annotated[Any, From(_end_condition, name=str, check=str, status=str)],
)
_MODE: Final = Text(
    lambda name, context: _mode(context=context, name=name),
    Annotated[Any, From(_mode, name=str, version=Literal["full", "first"])],
)
_CONTRACT: Final = From(
    _terms, whole=True, extends=str, mode=Annotated[Any, _MODE], budgets=_AMOUNTS,
    duration_s=Annotated[Any, PlainValidator(lambda value: None if value is None else _amount("seconds", value))],
    deadline=Annotated[str, AfterValidator(_deadline)], inputs=Annotated[Any, _INPUTS] | None,
    output=Annotated[Any, _OUTPUT] | None, skills=list[Annotated[Any, _SKILL]] | None,
    criteria=list[Annotated[Any, _CRITERION]], threshold=NumberField | None, ends_when=list[Annotated[Any, _END_CONDITION]],
    reserve_percent=int, warn_at=list[int], depth=int | None,
    hands_on=Annotated[Any, From(HandsOn, skills=Strings | None, modes=Strings | None)] | None,
    prices=dict[str, Annotated[Any, From(Price, call=_MONEY, input=_MONEY, output=_MONEY, reasoning=_MONEY)]],
    weight=Annotated[int, AfterValidator(_weight)], caps=_AMOUNTS,
    allocation=Literal["proportional", "equal", "negotiated", ""], divides=Strings | None,
    contracts=dict[str, dict[str, Any]],
)  # fmt: skip
TERMS: Final[TypeAdapter[Terms]] = TypeAdapter(Annotated[Any, _CONTRACT], config={"defer_build": True})
FILE: Final[TypeAdapter[Any]] = TypeAdapter(
    Annotated[Any, From(as_mapping, mat=Literal[1], contracts=dict[str, dict[str, Any]])], config={"defer_build": True}
)
