"""Resource contracts from files: YAML or JSON, as untrusted input.

A file says what from a closed vocabulary; nothing in it is imported, evaluated or called. What is a function (a check, a
scorer, a format, a preparation) is named, and given by whoever loads the file. `load` says everything that is wrong in one
SpecError, with lines where the format has them; `dumps` writes what `loads` reads back as the same contracts.

    contracts:
      review:
        budgets: {tokens: 50000, iterations: 3}
        duration_s: 300
        skills: [search, "model:planner"]
        criteria: [reviewed, "utilization <= 80 %"]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, PlainValidator, TypeAdapter, ValidationInfo
from pydantic_core import PydanticCustomError

from mat.core.allowed import Allowed, describe
from mat.core.errors import MatError, did_you_mean
from mat.core.reading import (
    ALLOWED_KEYS,
    Fits,
    From,
    Number,
    Reader,
    Strings,
    Text,
    Where,
    all_wrong,
    as_mapping,
    data_of,
    given,
    kind_of,
    named,
    text_of,
    within_keys,
    wrong,
)  # fmt: skip
from mat.core.resources import Price, amount, shown
from mat.core.value import FrozenDict, FrozenList
from mat.resources.allocation import negotiated, proportional
from mat.resources.contract import (
    EXHAUSTED,
    Check,
    Criterion,
    Ending,
    HandsOn,
    Inputs,
    Output,
    ResourceContract,
    Skill,
)
from mat.resources.modes import MODES, Mode
from mat.resources.status import Status
from mat.resources.terms import Condition, Fitting, Function, Named, condition, is_json, schema_of
from mat.resources.writing import data, dumps

__all__ = ["data", "dumps", "load", "loads", "section"]

CONTRACTS: Final = 1_000
"""Contracts in one file, with those below others."""
EXTENSIONS: Final = 20
"""Contracts that one takes over from, one after the other."""
_NAME_CHARS: Final = 100
_LARGEST: Final = 10**18
"""Amounts are smaller than this: what is added up and shown stays a number that people can read."""
_OWN: Final = ("extends", "contracts", "allocation", "divides", "caps", "weight")
"""Keys that are not taken over by `extends`: they are about a contract's own place."""
_MERGED: Final = ("budgets", "prices")
"""Keys of which `extends` takes over what is not named anew."""


# -- what makes the parts of a contract ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What whoever loads a file gives to it, by name."""

    checks: Mapping[str, Function] = field(default_factory=dict)
    scorers: Mapping[str, Function] = field(default_factory=dict)
    formats: Mapping[str, Function] = field(default_factory=dict)
    preparers: Mapping[str, Function] = field(default_factory=dict)
    endings: Mapping[str, Function] = field(default_factory=dict)
    modes: Mapping[str, Mode] = field(default_factory=dict)
    starts: datetime | None = None


def _amount(resource: str, value: Any) -> int | float | str:
    """An amount as it stands there, within limits."""
    if isinstance(value, str):
        value, given = value.replace("_", ""), value
        if not re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?", value):
            raise wrong(f"{given[:40]!r} is no amount: a number, or a text such as '0.25'")
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong(f"an amount is a number, or a text such as '0.25', not {kind_of(value)}")
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


def _share(value: float) -> float:
    if not 0 <= value <= 1:
        raise wrong(f"least_quality={value!r} lies outside of 0 to 1")
    return value


def _weight(value: int) -> int:
    if value < 0:
        raise wrong("a weight is at least 0")
    return value


def _function(found: tuple[str, Function] | None) -> Named | None:
    return None if found is None else Named(name=found[0], function=found[1])


def _fitting(path: str, allowed: Allowed) -> Fitting:
    return Fitting(rules=((path, _frozen(allowed)),))


def _frozen(allowed: Allowed) -> Allowed:
    return FrozenList(allowed) if isinstance(allowed, list) else allowed


def _inputs(*, schema: Any = None, rules: Mapping[str, Allowed] = {}, prepare: Any = None) -> Inputs:
    checks = tuple(
        Check(name=path, holds=_fitting(path, allowed), text=f"{path}: {describe(allowed)}") for path, allowed in rules.items()
    )
    return Inputs(schema=schema, rules=checks, prepare=_function(prepare))


def _output(*, schema: Any = None, quality: Any = None, least_quality: float = 0.0, format: Check | None = None) -> Output:
    return Output(schema=schema, quality=_function(quality), least_quality=least_quality, format=format)


def _format(name: str, context: _Given) -> Check | None:
    if not name:
        return None
    known = {"json": is_json, **context.formats}
    found = named(name, known, what="format", argument="formats")
    return Check(name=name, holds=Named(name=found[0], function=found[1]))


def _form(allowed: Allowed) -> Check:
    return Check(name="form", holds=_fitting(".", allowed), text=describe(allowed))


def _criterion(
    *, context: _Given, name: str = "", weight: float = 1.0, check: str = "", status: str = "",
    output: Mapping[str, Allowed] | None = None,
) -> Criterion:  # fmt: skip
    """One of Phi: `check` names a function, `status` is a condition such as `utilization <= 0.8`, `output` says what fits."""
    said = [key for key, value in (("check", check), ("status", status), ("output", output)) if value]
    if len(said) != 1:
        raise wrong(f"it says {' and '.join(said) or 'nothing'}; one of check, status, output is asked")
    if output:
        fits = Fitting(rules=tuple((path, _frozen(allowed)) for path, allowed in output.items()))
        return Criterion(name=name or ", ".join(output), holds=fits, weight=weight)
    holds = _condition(check, status, context.checks, "checks")
    return Criterion(name=name or check or _text_of_condition(holds), holds=holds, weight=weight)


def _ending(*, context: _Given, name: str = "", check: str = "", status: str = "") -> Ending:
    if bool(check) == bool(status):
        raise wrong("one of check and status is asked")
    holds = _condition(check, status, context.endings, "endings")
    return Ending(name=name or check or _text_of_condition(holds), holds=holds)


def _condition(check: str, status: str, known: Mapping[str, Function], argument: str) -> Named | Condition:
    if check:
        found = named(check, known, what="check", argument=argument)
        return Named(name=found[0], function=found[1])
    try:
        return condition(status)
    except MatError as error:
        raise wrong(f"{error.what}; {error.fix}") from error


def _text_of_condition(holds: Named | Condition) -> str:
    return holds.text if isinstance(holds, Condition) else holds.name


def _parsed(text: str) -> dict[str, Any]:
    """A bare text: a condition where it compares something, else the name of a check."""
    return {"status": text} if re.search(r"[<>=!]", text) else {"check": text}


def _mode(*, context: _Given, name: str, version: Literal["full", "first"] = "full") -> Mode | None:
    if not name:
        return None
    known = {**MODES[version], **context.modes}
    if name not in known:
        raise wrong(f"no mode is called {name!r}{did_you_mean(name, known)}; there are {', '.join(known)}")
    return known[name]


def _until(deadline: str, starts: datetime | None) -> int | float:
    """tau = deadline - start, in seconds. A time of day is the next one after the start."""
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
        raise wrong(f"{deadline[:40]!r} is no time of day, as 17:00, and no ISO date and time") from None
    except TypeError:
        raise wrong("the deadline and the start must both have a time zone, or neither") from None
    if left <= timedelta(0):
        raise wrong(f"{deadline} is not after the start, {starts.isoformat()}")
    return left // timedelta(milliseconds=1) / 1_000 if left.microseconds else left // timedelta(seconds=1)


def _deadline(text: str, info: ValidationInfo) -> int | float | None:
    context: Any = info.context
    return _until(text, context.starts) if text else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    """A contract of a file, what it has of the one above it, and how its budgets are divided among those below it."""

    contract: ResourceContract
    weight: int = 1
    caps: FrozenDict = field(default_factory=FrozenDict)
    allocation: str = ""
    divides: tuple[str, ...] | None = None


def _terms(*, mode: Mode | None = None, deadline: float | None = None, **said: Any) -> _Terms:
    place = {key: said.pop(key) for key in ("weight", "caps", "allocation", "divides") if key in said}
    for key in ("extends", "contracts"):
        said.pop(key, None)
    if deadline is not None and said.get("duration_s") is not None:
        raise all_wrong([(("deadline",), "a duration and a deadline: one of them says how long it may take")])
    if deadline is not None:
        said["duration_s"] = deadline
    for key in ("skills", "criteria", "ends_when", "warn_at"):
        if said.get(key) is not None:
            said[key] = tuple(said[key])
    for key in ("inputs", "output"):
        if said.get(key, 0) is None:
            said.pop(key)
    if "prices" in said:
        said["prices"] = FrozenDict(said["prices"])
    try:
        contract = ResourceContract(name="contract", **said)
    except MatError as error:  # the reader names the place
        raise wrong(error.what.partition(": ")[2] or error.what) from error
    return _Terms(contract=contract if mode is None else mode.of(contract), **place)


# -- the vocabulary -----------------------------------------------------------------------------------------------------

_AMOUNTS: Final = Annotated[dict[str, Any], AfterValidator(_amounts)]
_MONEY: Final = Annotated[Any, PlainValidator(lambda value: _amount("money", value))]
_SCHEMA: Final = Annotated[Any, PlainValidator(schema_of)]
_FORM: Final = Annotated[Any, From(within_keys, **ALLOWED_KEYS), AfterValidator(_form)]
_INPUTS: Final = From(_inputs, schema=_SCHEMA, rules=dict[str, Fits], prepare=given("preparation", "preparers"))
_OUTPUT: Final = From(
    _output, schema=_SCHEMA, quality=given("scorer", "scorers"), least_quality=Annotated[Number, AfterValidator(_share)],
    format=Annotated[Any, Text(_format, _FORM)],
)  # fmt: skip
_SKILL: Final = Text(
    lambda name, context: Skill(name=name), Annotated[Any, From(Skill, name=str, cost=_AMOUNTS, success=Number)]
)
_CRITERION: Final = Text(
    lambda text, context: _criterion(context=context, **_parsed(text)),
    Annotated[Any, From(_criterion, name=str, weight=Number, check=str, status=str, output=dict[str, Fits] | None)],
)
_ENDING: Final = Text(
    lambda text, context: EXHAUSTED if text == EXHAUSTED else _ending(context=context, **_parsed(text)),
    Annotated[Any, From(_ending, name=str, check=str, status=str)],
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
    criteria=list[Annotated[Any, _CRITERION]], threshold=Number | None, ends_when=list[Annotated[Any, _ENDING]],
    reserve_percent=int, warn_at=list[int], depth=int | None,
    hands_on=Annotated[Any, From(HandsOn, skills=Strings | None, modes=Strings | None)] | None,
    prices=dict[str, Annotated[Any, From(Price, call=_MONEY, input=_MONEY, output=_MONEY, reasoning=_MONEY)]],
    weight=Annotated[int, AfterValidator(_weight)], caps=_AMOUNTS,
    allocation=Literal["proportional", "equal", "negotiated", ""], divides=Strings | None,
    contracts=dict[str, dict[str, Any]],
)  # fmt: skip
_TERMS: Final[TypeAdapter[_Terms]] = TypeAdapter(Annotated[_Terms, _CONTRACT])
_FILE: Final[TypeAdapter[Any]] = TypeAdapter(
    Annotated[Any, From(as_mapping, mat=Literal[1], contracts=dict[str, dict[str, Any]])]
)


# -- reading ------------------------------------------------------------------------------------------------------------


def load(
    path: str | Path,
    *,
    checks: Mapping[str, Callable[[Any, Status], object]] | None = None,
    scorers: Mapping[str, Callable[[Any], float]] | None = None,
    formats: Mapping[str, Callable[[Any], object]] | None = None,
    preparers: Mapping[str, Callable[[Any], Any]] | None = None,
    endings: Mapping[str, Callable[[Status], object]] | None = None,
    modes: Mapping[str, Mode] | None = None,
    starts: datetime | None = None,
) -> dict[str, ResourceContract]:
    """The contracts of a .yaml, .yml or .json file by name, those below another one as `above/name`.

    `checks` judge (output, status) for criteria, `scorers` give the quality of an output, `formats` judge its form,
    `preparers` make an input ready, `endings` judge a status; a file names them. `starts`: when the contracts will begin, which
    turns a `deadline` into a duration. SpecError lists every problem.
    """
    path = Path(path)
    return loads(
        text_of(path, "contract file"), json=path.suffix == ".json", checks=checks, scorers=scorers, formats=formats,
        preparers=preparers, endings=endings, modes=modes, starts=starts, where=str(path),
    )  # fmt: skip


def loads(
    text: str,
    *,
    json: bool = False,
    checks: Mapping[str, Callable[[Any, Status], object]] | None = None,
    scorers: Mapping[str, Callable[[Any], float]] | None = None,
    formats: Mapping[str, Callable[[Any], object]] | None = None,
    preparers: Mapping[str, Callable[[Any], Any]] | None = None,
    endings: Mapping[str, Callable[[Status], object]] | None = None,
    modes: Mapping[str, Mode] | None = None,
    starts: datetime | None = None,
    where: str = "contract file",
) -> dict[str, ResourceContract]:
    """The contracts that a text holds: YAML, or JSON. See `load`."""
    found, lines = data_of(text, json=json, kind="contract file", where=where)
    given = _Given(
        checks=checks or {}, scorers=scorers or {}, formats=formats or {}, preparers=preparers or {}, endings=endings or {},
        modes=modes or {}, starts=starts,
    )  # fmt: skip
    reader = Reader(lines, where)
    made = _File(reader, given).contracts(found)
    if reader.problems:
        raise reader.error(
            "contract file", why="a contract that means nothing would bound nothing", fix="see docs/resources.md"
        )
    return made


def section(reader: Reader, contracts: Mapping[str, Mapping[str, Any]], at: Where) -> dict[str, ResourceContract]:
    """The contracts in a section of another file, at its top, without functions. `reader` notes what is wrong."""
    made = _File(reader, _Given()).section(_below({"contracts": contracts}))
    for name in made:
        if "/" in name:
            reader.problem((*at, name.partition("/")[0], "contracts"), "what is handed on below a contract is up to the agents")
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A contract in a file: its data, what it takes over included, and where each key stands."""

    at: Where
    raw: Mapping[str, Any]
    origins: Mapping[str, Where]

    def where(self, key: str) -> Where:
        return (*self.origins.get(key, self.at), key)


class _File:
    """Builds the contracts of one file."""

    def __init__(self, reader: Reader, given: _Given) -> None:
        self._reader, self._given = reader, given
        self._top: Mapping[str, Mapping[str, Any]] = {}
        self._made: dict[str, ResourceContract] = {}
        self._read: dict[Where, tuple[_Place, _Terms] | None] = {}
        self._count = 0

    def contracts(self, found: object) -> dict[str, ResourceContract]:
        if not isinstance(found, dict):
            self._reader.problem((), f"it holds {kind_of(found)}, not sections")
            return {}
        if self._reader.read(_FILE, found) is not None and not found.get("contracts"):
            self._reader.problem((), "it holds no contracts")
        return self.section(_below(found))

    def section(self, contracts: Mapping[str, Mapping[str, Any]]) -> dict[str, ResourceContract]:
        """Those of a mapping that stands at the key `contracts`."""
        self._top = contracts
        self._checked(contracts, ("contracts",), below=False)
        if self._count > CONTRACTS:
            self._reader.problem((), f"it holds {self._count} contracts, the limit is {CONTRACTS}")
            return {}
        for name, raw in contracts.items():
            self._build(raw, ("contracts", name), above=())
        return self._made

    def _checked(self, contracts: Mapping[str, Any], at: Where, *, below: bool) -> None:
        """Note names that are none, and keys that are out of place."""
        for name, raw in contracts.items():
            self._count += 1
            place = (*at, name)
            if not _is_name(name):
                self._reader.problem(
                    place, f"{name[:_NAME_CHARS]!r} is no name: printable, without # and /, up to 100 characters"
                )
            for key in ("weight", "caps") if not below else ():
                if key in raw and not (key == "caps" and raw.get("contracts")):
                    self._reader.problem((*place, key), "only a contract below another one has a share of it")
            for key in ("allocation", "divides"):
                if key in raw and not raw.get("contracts"):
                    self._reader.problem((*place, key), "there are no contracts below it to divide its budgets among")
            self._checked(_below(raw), (*place, "contracts"), below=True)

    # -- taking over ----------------------------------------------------------------------------------------------------

    def _merged(self, raw: Mapping[str, Any], at: Where) -> _Place | None:
        """A contract with what it extends; None where that cannot be found."""
        chain: list[tuple[Where, Mapping[str, Any]]] = [(at, raw)]
        while True:
            place, data = chain[-1]
            base = data.get("extends")
            if not base or not isinstance(base, str):
                break
            if base not in self._top:
                known = ", ".join(self._top)
                self._reader.problem(
                    (*place, "extends"), f"no contract is called {base!r}{did_you_mean(base, self._top)}; there are {known}"
                )
                return None
            there = ("contracts", base)
            if any(there == seen for seen, _ in chain):
                self._reader.problem(
                    (*at, "extends"), f"{base!r} extends itself: {' -> '.join(str(seen[-1]) for seen, _ in chain)} -> {base}"
                )
                return None
            if len(chain) > EXTENSIONS:
                self._reader.problem((*at, "extends"), f"it extends more than {EXTENSIONS} contracts in a row")
                return None
            chain.append((there, self._top[base]))
        merged: dict[str, Any] = {}
        origins: dict[str, Where] = {}
        for place, data in reversed(chain):
            for key, value in data.items():
                if key in _OWN and place != at:
                    continue
                before = merged.get(key)
                joined = key in _MERGED and isinstance(before, dict) and isinstance(value, dict)
                merged[key] = {**before, **value} if joined else value  # type: ignore[dict-item]
                origins[key] = place
            if "deadline" in data and "duration_s" not in data:
                merged.pop("duration_s", None)
            elif "duration_s" in data and "deadline" not in data:
                merged.pop("deadline", None)
        return _Place(at=at, raw=merged, origins=origins)

    # -- building -------------------------------------------------------------------------------------------------------

    def _terms(self, raw: Mapping[str, Any], at: Where) -> tuple[_Place, _Terms] | None:
        """A contract with what it takes over, and what that means; None where something is wrong with it."""
        if at not in self._read:
            found = self._merged(raw, at)
            place = found or _Place(
                at=at, raw={key: raw[key] for key in raw if key not in ("extends", "threshold")}, origins={}
            )
            terms = self._reader.read(_TERMS, place.raw, at=at, context=self._given, origins=place.origins)
            self._read[at] = None if found is None or terms is None else (place, _called(str(at[-1]), terms))
        return self._read[at]

    def _build(
        self, raw: Mapping[str, Any], at: Where, *, above: tuple[ResourceContract, ...],
        units: Mapping[str, int] = {},
    ) -> None:  # fmt: skip
        """A contract and those below it. `units`: what it was allocated, over what it says itself."""
        found, shares = self._terms(raw, at), {}
        if found is not None:
            place, terms = found
            contract = terms.contract
            if units:
                contract = contract.with_units({**contract.units, **units})
            for said in _beyond(contract, above):
                self._reader.problem(at, said)
            self._made["/".join(str(part) for part in at[1::2])] = contract
            shares = self._shares(place, terms, contract)
            above = (contract, *above)
        for child, inner in _below(raw).items():
            self._build(inner, (*at, "contracts", child), above=above, units=shares.get(child, {}))

    # -- dividing -------------------------------------------------------------------------------------------------------

    def _shares(self, place: _Place, terms: _Terms, made: ResourceContract) -> dict[str, dict[str, int]]:
        """What each contract below is allocated: name -> resource -> amount. Noted where that is more than there is."""
        at, units, reserve = place.at, made.units, made.reserve
        below = {name: self._terms(raw, (*at, "contracts", name)) for name, raw in _below(place.raw).items()}
        children = {name: found[1] for name, found in below.items() if found is not None}
        if not below or len(children) < len(below):
            return {}
        counted = units.get("subcontracts")
        if counted is not None and len(below) > counted:
            self._reader.problem(at, f"it has {len(below)} contracts below it, and a budget of {counted} subcontracts")
        shares: dict[str, dict[str, int]] = {name: {} for name in children}
        for resource in self._divided(terms, units, place) if terms.allocation else ():
            free = units[resource] - reserve[resource]
            for name, part in self._parts(resource, free, terms, children, place).items():
                shares[name][resource] = part
        for name, child in children.items():
            for resource, value in {**child.contract.units, **shares[name]}.items():
                if resource in units and value > units[resource] - reserve[resource]:
                    free = units[resource] - reserve[resource]
                    self._reader.problem(
                        (*at, "contracts", name),
                        f"{shown(resource, value)} of {resource}, and {made.name} can allocate {shown(resource, free)}",
                    )
        return shares

    def _divided(self, terms: _Terms, units: Mapping[str, int], place: _Place) -> list[str]:
        """Resources whose budgets are divided: those named, or all but limits on single ports and the number of contracts."""
        if terms.divides is None:
            return [name for name in units if ":" not in name and name != "subcontracts"]
        for name in terms.divides:
            if name not in units:
                self._reader.problem(place.where("divides"), f"there is no budget of {name}{did_you_mean(name, units)}")
        return [name for name in dict.fromkeys(terms.divides) if name in units]

    def _parts(
        self, resource: str, free: int, terms: _Terms, children: Mapping[str, _Terms], place: _Place
    ) -> Mapping[str, int]:
        """One budget divided; what a contract asks for itself goes before what is divided, except where it is negotiated."""
        asked = {name: child.contract.units[resource] for name, child in children.items() if resource in child.contract.units}
        if terms.allocation == "negotiated":
            caps = {name: amount(resource, child.caps[resource]) for name, child in children.items() if resource in child.caps}
            if resource in terms.caps:
                caps = {**dict.fromkeys(asked, amount(resource, terms.caps[resource])), **caps}
            return negotiated(free, {name: min(value, caps.get(name, value)) for name, value in asked.items()})
        rest = free - sum(asked.values())
        others = {
            name: 1 if terms.allocation == "equal" else child.weight for name, child in children.items() if name not in asked
        }
        if rest < 0:
            name = terms.contract.name
            self._reader.problem(
                place.where("contracts"),
                f"together {shown(resource, free - rest)} of {resource}, and {name} can allocate {shown(resource, free)}",
            )
            return {}
        if not others:
            return {}
        parts = proportional(rest, others) if any(others.values()) else dict.fromkeys(others, 0)
        empty = [name for name, part in parts.items() if not part]
        if empty:
            self._reader.problem(
                place.where("allocation"),
                f"nothing of {resource} is left for {', '.join(empty)}; `divides` names the resources that are divided",
            )
        return parts


def _called(name: str, terms: _Terms) -> _Terms:
    """With its own name; one that is none is told elsewhere."""
    return replace(terms, contract=replace(terms.contract, name=name)) if _is_name(name) else terms


def _is_name(name: str) -> bool:
    return 0 < len(name) <= _NAME_CHARS and name.isprintable() and "#" not in name and "/" not in name


def _below(raw: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """The contracts below one, as far as they are mappings."""
    inner = raw.get("contracts")
    return {name: item for name, item in inner.items() if isinstance(item, dict)} if isinstance(inner, dict) else {}


def _beyond(contract: ResourceContract, above: Sequence[ResourceContract]) -> Iterator[str]:
    """Where a contract asks for what those above it never had, or do not hand on; the nearest one comes first."""
    if above and above[0].skills is not None:
        known = [item.port for item in above[0].skills]
        if contract.skills is None:
            yield f"{above[0].name} limits skills, so name those of {contract.name}"
        for item in contract.skills or ():
            if item.port not in known:
                yield f"{above[0].name} has no skill {item.port}{did_you_mean(item.port, known)}"
    for levels, over in enumerate(above, start=1):
        if over.depth is not None and levels > over.depth:
            yield f"{over.name} allows {over.depth} level(s) of contracts below it"
        hands = over.hands_on
        if hands is None:
            continue
        ports = None if hands.skills is None else {Skill(name=name).port for name in hands.skills}
        if ports is not None and contract.skills is None:
            yield f"{over.name} limits the skills that are handed on, so name those of {contract.name}"
        for item in contract.skills or ():
            if ports is not None and item.port not in ports:
                yield f"{over.name} does not hand on {item.port}"
        if hands.modes is not None and contract.mode not in hands.modes:
            yield f"{over.name} hands on the modes {', '.join(hands.modes) or 'none'}, and not {contract.mode or 'no mode'}"
