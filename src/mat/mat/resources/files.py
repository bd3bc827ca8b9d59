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
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from mat.core.allowed import Allowed, describe
from mat.core.errors import MatError, did_you_mean
from mat.core.reading import STRICT, Fits, Reader, Values, Where, data_of, kind_of, sound, text_of
from mat.core.resources import Price, amount, amounts, shown
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
Given: TypeAlias = int | float | str
"""An amount in a file: a number, or a decimal text, as "0.25"."""


# -- the vocabulary -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inputs:
    __pydantic_config__ = STRICT
    schema: Any = None
    rules: dict[str, Fits] = field(default_factory=dict)
    prepare: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Output:
    __pydantic_config__ = STRICT
    schema: Any = None
    quality: str = ""
    least_quality: int | float = 0.0
    format: str | Values = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Skill:
    __pydantic_config__ = STRICT
    name: str
    cost: dict[str, Given] = field(default_factory=dict)
    success: int | float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Criterion:
    """One of Phi: `check` names a function, `status` is a condition such as `utilization <= 0.8`, `output` says what fits."""

    __pydantic_config__ = STRICT
    name: str = ""
    weight: int | float = 1.0
    check: str = ""
    status: str = ""
    output: dict[str, Fits] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ending:
    __pydantic_config__ = STRICT
    name: str = ""
    check: str = ""
    status: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _HandsOn:
    __pydantic_config__ = STRICT
    skills: tuple[str, ...] | None = None
    modes: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Price:
    __pydantic_config__ = STRICT
    call: Given = 0
    input: Given = 0
    output: Given = 0
    reasoning: Given = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mode:
    __pydantic_config__ = STRICT
    name: str
    version: Literal["full", "first"] = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contract:
    """The terms of one contract, and how its budgets are divided among those below it."""

    __pydantic_config__ = STRICT
    extends: str = ""
    mode: str | _Mode = ""
    budgets: dict[str, Given] = field(default_factory=dict)
    duration_s: Given | None = None
    deadline: str = ""
    inputs: _Inputs | None = None
    output: _Output | None = None
    skills: tuple[str | _Skill, ...] | None = None
    criteria: tuple[str | _Criterion, ...] = ()
    threshold: int | float | None = None
    ends_when: tuple[str | _Ending, ...] = ()
    reserve_percent: int = 0
    warn_at: tuple[int, ...] = (80,)
    depth: int | None = None
    hands_on: _HandsOn | None = None
    prices: dict[str, _Price] = field(default_factory=dict)
    weight: int = 1
    caps: dict[str, Given] = field(default_factory=dict)
    allocation: Literal["proportional", "equal", "negotiated", ""] = ""
    divides: tuple[str, ...] | None = None
    contracts: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Top:
    __pydantic_config__ = STRICT
    mat: Literal[1] = 1
    contracts: dict[str, dict[str, Any]] = field(default_factory=dict)


_INSIDE: Final[dict[str, type[Any]]] = {
    "contracts": _Contract, "inputs": _Inputs, "output": _Output, "rules": Values, "skills": _Skill, "criteria": _Criterion,
    "ends_when": _Ending, "hands_on": _HandsOn, "prices": _Price, "mode": _Mode, "format": Values,
}  # fmt: skip
_OWN: Final = ("extends", "contracts", "allocation", "divides", "caps", "weight")
"""Keys that are not taken over by `extends`: they are about a contract's own place."""
_MERGED: Final = ("budgets", "prices")
"""Keys of which `extends` takes over what is not named anew."""


# -- reading ------------------------------------------------------------------------------------------------------------


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
    reader = Reader(lines, where, inside=_INSIDE)
    made = _File(reader, given).contracts(found)
    if reader.problems:
        raise reader.error(
            "contract file", why="a contract that means nothing would bound nothing", fix="see docs/resources.md"
        )
    return made


def section(reader: Reader, contracts: Mapping[str, Mapping[str, Any]], at: Where) -> dict[str, ResourceContract]:
    """The contracts in a section of another file, at its top, without functions. `reader` notes what is wrong."""
    made = _File(reader, _Given()).section(contracts)
    for name in made:
        if "/" in name:
            reader.problem((*at, name.partition("/")[0], "contracts"), "what is handed on below a contract is up to the agents")
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A contract in a file: its data, what it takes over included, and where each key stands."""

    at: Where
    name: str
    path: str
    raw: Mapping[str, Any]
    sane: bool
    origins: Mapping[str, Where]

    def where(self, key: str) -> Where:
        return (*self.origins.get(key, self.at), key)


class _File:
    """Builds the contracts of one file."""

    def __init__(self, reader: Reader, given: _Given) -> None:
        self._reader, self._given = reader, given
        self._top: Mapping[str, Mapping[str, Any]] = {}
        self._unsound: set[str] = set()
        self._made: dict[str, ResourceContract] = {}
        self._count = 0

    def contracts(self, found: object) -> dict[str, ResourceContract]:
        if not isinstance(found, dict):
            self._reader.problem((), f"it holds {kind_of(found)}, not sections")
            return {}
        top = self._reader.read(_Top, found, ())
        if top is None:  # what is well-formed is read all the same, for what else is wrong
            top = _Top(**sound(_Top, found))
        elif not top.contracts:
            self._reader.problem((), "it holds no contracts")
        return self.section(top.contracts)

    def section(self, contracts: Mapping[str, Mapping[str, Any]]) -> dict[str, ResourceContract]:
        """Those of a mapping that stands at the key `contracts`."""
        self._top = contracts
        self._checked(contracts, ("contracts",), below=False)
        if self._count > CONTRACTS:
            self._reader.problem((), f"it holds {self._count} contracts, the limit is {CONTRACTS}")
            return {}
        for name, raw in contracts.items():
            self._built(name, raw, ("contracts", name), above=())
        return self._made

    def _checked(self, contracts: Mapping[str, Any], at: Where, *, below: bool) -> None:
        """Note what is wrong with the form of each contract, once, whoever takes it over."""
        for name, raw in contracts.items():
            self._count += 1
            place = (*at, name)
            if not name or len(name) > _NAME_CHARS or not name.isprintable() or "#" in name or "/" in name:
                self._reader.problem(
                    place, f"{name[:_NAME_CHARS]!r} is no name: printable, without # and /, up to 100 characters"
                )
            if self._count > CONTRACTS:
                continue
            if self._reader.read(_Contract, raw, place) is None:
                self._unsound.add(repr(place))
            for key in ("weight", "caps") if not below else ():
                if key in raw and not (key == "caps" and raw.get("contracts")):
                    self._reader.problem((*place, key), "only a contract below another one has a share of it")
            for key in ("allocation", "divides"):
                if key in raw and not raw.get("contracts"):
                    self._reader.problem((*place, key), "there are no contracts below it to divide its budgets among")
            inner = raw.get("contracts")
            if isinstance(inner, dict) and all(isinstance(item, dict) for item in inner.values()):
                self._checked(inner, (*place, "contracts"), below=True)

    # -- taking over ----------------------------------------------------------------------------------------------------

    def _merged(self, name: str, raw: Mapping[str, Any], at: Where, path: str) -> _Place | None:
        """A contract with what it extends; None where one of them is not sound."""
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
        sane = not any(repr(place) in self._unsound for place, _ in chain)
        return _Place(at=at, name=name, path=path, raw=merged, sane=sane, origins=origins)

    def _terms(self, place: _Place) -> _Contract | None:
        """A contract as it is read; of one that is not sound, whose problems are told, what is well-formed."""
        if place.sane:
            return self._reader.read(_Contract, place.raw, place.at)
        return _Contract(**sound(_Contract, place.raw))

    # -- building -------------------------------------------------------------------------------------------------------

    def _built(
        self,
        name: str,
        raw: Mapping[str, Any],
        at: Where,
        *,
        above: tuple[ResourceContract, ...],
        units: Mapping[str, int] = {},
    ) -> None:
        """A contract and those below it. `units`: what it was allocated, over what it says itself."""
        path = "/".join(str(part) for part in at[1::2])
        place = self._merged(name, raw, at, path)
        read = None if place is None else self._terms(place)
        if place is None or read is None:
            return
        count = self._reader.noted
        made = self._contract(place, read)
        if made is None or self._reader.noted > count:
            return
        if units:
            made = made.with_units({**made.units, **units})
        for said in _beyond(made, above):
            self._reader.problem(at, said)
        self._made[path] = made
        shares = self._shares(place, read, made)
        for child, inner in read.contracts.items():
            self._built(child, inner, (*at, "contracts", child), above=(made, *above), units=shares.get(child, {}))

    def _contract(self, place: _Place, read: _Contract) -> ResourceContract | None:
        mode = self._mode(read.mode, place.where("mode"))
        terms: dict[str, Any] = {
            "name": place.name, "budgets": self._amounts(read.budgets, place.where("budgets")),
            "duration_s": self._duration(read, place), "inputs": self._inputs(read.inputs, place.where("inputs")),
            "output": self._output(read.output, place.where("output")),
            "skills": self._skills(read.skills, place.where("skills")),
            "criteria": self._criteria(read.criteria, place.where("criteria")), "threshold": read.threshold,
            "ends_when": self._endings(read.ends_when, place.where("ends_when")), "reserve_percent": read.reserve_percent,
            "warn_at": read.warn_at, "depth": read.depth, "prices": self._prices(read.prices, place.where("prices")),
            "hands_on": None if read.hands_on is None else HandsOn(skills=read.hands_on.skills, modes=read.hands_on.modes),
        }  # fmt: skip
        try:
            made = ResourceContract(**terms)
        except MatError as error:
            self._reader.problem(place.at, error.what.partition(": ")[2] or error.what)
            return None
        return made if mode is None else mode.of(made)

    def _amounts(self, given: Mapping[str, Given], at: Where) -> FrozenDict:
        found = {name: self._amount(name, value, (*at, name)) for name, value in given.items()}
        return FrozenDict({name: value for name, value in found.items() if value is not None})

    def _amount(self, resource: str, value: Given, at: Where) -> Given | None:
        """An amount as it stands there, within limits; None where it is none, with the problem noted."""
        if isinstance(value, str):
            text = value.replace("_", "")
            if not re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?", text):
                self._reader.problem(at, f"{value[:40]!r} is no amount: a number, or a text such as '0.25'")
                return None
            value = text
        elif not 0 <= value < _LARGEST:
            self._reader.problem(at, "an amount is at least 0 and below 10 ** 18")
            return None
        kept = value
        return kept if self._reader.tried(at, lambda: (amount(resource, kept),)) else None

    def _duration(self, read: _Contract, place: _Place) -> Given | None:
        if read.duration_s is not None and read.deadline:
            self._reader.problem(place.where("deadline"), "a duration and a deadline: one of them says how long it may take")
        if read.deadline:
            return self._until(read.deadline, place.where("deadline"))
        return None if read.duration_s is None else self._amount("seconds", read.duration_s, place.where("duration_s"))

    def _until(self, deadline: str, at: Where) -> Given | None:
        """tau = deadline - start, in seconds. A time of day is the next one after the start."""
        starts = self._given.starts
        if starts is None:
            self._reader.problem(at, "a deadline needs a start: give it to load(starts=), or write duration_s")
            return None
        try:
            if re.fullmatch(r"[0-9]{2}:[0-9]{2}(:[0-9]{2})?", deadline):
                due = datetime.combine(starts.date(), time.fromisoformat(deadline), tzinfo=starts.tzinfo)
                due += timedelta(days=0 if due > starts else 1)
            else:
                due = datetime.fromisoformat(deadline)
            left = due - starts
        except (ValueError, OverflowError):
            self._reader.problem(at, f"{deadline[:40]!r} is no time of day, as 17:00, and no ISO date and time")
            return None
        except TypeError:
            self._reader.problem(at, "the deadline and the start must both have a time zone, or neither")
            return None
        if left <= timedelta(0):
            self._reader.problem(at, f"{deadline} is not after the start, {starts.isoformat()}")
            return None
        return left // timedelta(milliseconds=1) / 1_000 if left.microseconds else left // timedelta(seconds=1)

    def _mode(self, given: str | _Mode, at: Where) -> Mode | None:
        if not given:
            return None
        name, version = (given, "full") if isinstance(given, str) else (given.name, given.version)
        known = {**MODES[version], **self._given.modes}
        if name not in known:
            self._reader.problem(at, f"no mode is called {name!r}{did_you_mean(name, known)}; there are {', '.join(known)}")
        return known.get(name)

    def _inputs(self, read: _Inputs | None, at: Where) -> Inputs:
        if read is None:
            return Inputs()
        rules = [
            Check(name=path, holds=Fitting(rules=((path, allowed),)), text=f"{path}: {describe(allowed)}")
            for path, allowed in self._fitting(read.rules, (*at, "rules"))
        ]
        prepare = self._named(read.prepare, self._given.preparers, "preparation", "preparers", (*at, "prepare"))
        return Inputs(schema=schema_of(read.schema, (*at, "schema"), self._reader), rules=tuple(rules), prepare=prepare)

    def _output(self, read: _Output | None, at: Where) -> Output:
        if read is None:
            return Output()
        form = None
        if isinstance(read.format, Values):
            for _, allowed in self._fitting({".": read.format}, (*at, "format"), single=True):
                form = Check(name="form", holds=Fitting(rules=((".", allowed),)), text=describe(allowed))
        elif read.format:
            known = {"json": is_json, **self._given.formats}
            function = self._named(read.format, known, "format", "formats", (*at, "format"))
            form = None if function is None else Check(name=read.format, holds=function)
        quality = self._named(read.quality, self._given.scorers, "scorer", "scorers", (*at, "quality"))
        schema = schema_of(read.schema, (*at, "schema"), self._reader)
        return Output(schema=schema, quality=quality, least_quality=read.least_quality, format=form)

    def _fitting(self, rules: Mapping[str, Fits], at: Where, *, single: bool = False) -> Iterator[tuple[str, Allowed]]:
        for path, fits in rules.items():
            allowed = self._reader.allowed(fits, at if single else (*at, path))
            if allowed is not None:
                yield path, FrozenList(allowed) if isinstance(allowed, list) else allowed

    def _named(self, name: str, known: Mapping[str, Function], what: str, argument: str, at: Where) -> Named | None:
        if not name:
            return None
        function = self._reader.named(name, known, what=what, argument=argument, at=at)
        return None if function is None else Named(name=name, function=function)

    def _skills(self, given: Sequence[str | _Skill] | None, at: Where) -> tuple[Skill, ...] | None:
        if given is None:
            return None
        made = []
        for index, item in enumerate(given):
            if isinstance(item, str):
                made.append(Skill(name=item))
            else:
                made.append(Skill(name=item.name, cost=self._amounts(item.cost, (*at, index, "cost")), success=item.success))
        return tuple(made)

    def _criteria(self, given: Sequence[str | _Criterion], at: Where) -> tuple[Criterion, ...]:
        made = []
        for index, item in enumerate(given):
            read = _parsed(item, _Criterion) if isinstance(item, str) else item
            said = [name for name in ("check", "status", "output") if getattr(read, name)]
            if len(said) != 1:
                self._reader.problem(
                    (*at, index), f"it says {' and '.join(said) or 'nothing'}; one of check, status, output is asked"
                )
                continue
            holds: Any = self._condition(read.check, read.status, self._given.checks, "checks", (*at, index))
            if read.output:
                holds = Fitting(rules=tuple(self._fitting(read.output, (*at, index, "output"))))
            if holds is not None:
                default = read.check or (holds.text if isinstance(holds, Condition) else ", ".join(read.output or ()))
                made.append(Criterion(name=read.name or default, holds=holds, weight=read.weight))
        return tuple(made)

    def _endings(self, given: Sequence[str | _Ending], at: Where) -> tuple[Ending | Literal["exhausted"], ...]:
        made: list[Ending | Literal["exhausted"]] = []
        for index, item in enumerate(given):
            if item == EXHAUSTED:
                made.append("exhausted")
                continue
            read = _parsed(item, _Ending) if isinstance(item, str) else item
            if bool(read.check) == bool(read.status):
                self._reader.problem((*at, index), "one of check and status is asked")
                continue
            holds = self._condition(read.check, read.status, self._given.endings, "endings", (*at, index))
            if holds is not None:
                made.append(Ending(name=read.name or (holds.name if isinstance(holds, Named) else holds.text), holds=holds))
        return tuple(made)

    def _condition(
        self, check: str, status: str, known: Mapping[str, Function], argument: str, at: Where
    ) -> Named | Condition | None:
        if check:
            return self._named(check, known, "check", argument, at)
        if not status:
            return None
        try:
            return condition(status)
        except MatError as error:
            self._reader.problem(at, f"{error.what}; {error.fix}")
        return None

    def _prices(self, given: Mapping[str, _Price], at: Where) -> FrozenDict:
        made = {}
        for port, price in given.items():
            parts = {
                name: self._amount("money", getattr(price, name), (*at, port, name))
                for name in ("call", "input", "output", "reasoning")
            }
            made[port] = Price(**{name: part or 0 for name, part in parts.items()})
        return FrozenDict(made)

    # -- dividing -------------------------------------------------------------------------------------------------------

    def _shares(self, place: _Place, read: _Contract, made: ResourceContract) -> dict[str, dict[str, int]]:
        """What each contract below is allocated: name -> resource -> amount. Noted where that is more than there is."""
        if not read.contracts:
            return {}
        at, units, reserve = place.at, made.units, made.reserve
        below = {name: self._below(name, raw, at) for name, raw in read.contracts.items()}
        if any(item is None for item in below.values()):
            return {}
        children = {name: item for name, item in below.items() if item is not None}
        counted = units.get("subcontracts")
        if counted is not None and len(read.contracts) > counted:
            self._reader.problem(at, f"it has {len(read.contracts)} contracts below it, and a budget of {counted} subcontracts")
        shares: dict[str, dict[str, int]] = {name: {} for name in children}
        for resource in self._divided(read, units, place) if read.allocation else ():
            free = units[resource] - reserve[resource]
            parts = self._parts(resource, free, read, children, place)
            for name, part in parts.items():
                shares[name][resource] = part
        for name, child in children.items():
            for resource, value in {**child.units, **shares[name]}.items():
                if resource in units and value > units[resource] - reserve[resource]:
                    free = units[resource] - reserve[resource]
                    self._reader.problem(
                        (*at, "contracts", name),
                        f"{shown(resource, value)} of {resource}, and {place.name} can allocate {shown(resource, free)}",
                    )
        return shares

    def _below(self, name: str, raw: Mapping[str, Any], at: Where) -> _Share | None:
        """What a contract below asks for itself, as far as that can be read."""
        place = self._merged(name, raw, (*at, "contracts", name), "")
        if place is None:
            return None
        found = self._terms(place)
        if found is None:
            return None
        budgets = self._amounts(found.budgets, place.where("budgets"))
        caps = self._amounts(found.caps, place.where("caps"))
        if found.weight < 0:
            self._reader.problem(place.where("weight"), "a weight is at least 0")
        return _Share(weight=max(0, found.weight), units=amounts(budgets, name), caps=amounts(caps, name))

    def _divided(self, read: _Contract, units: Mapping[str, int], place: _Place) -> list[str]:
        """Resources whose budgets are divided: those named, or all but limits on single ports and the number of contracts."""
        if read.divides is None:
            return [name for name in units if ":" not in name and name != "subcontracts"]
        for name in read.divides:
            if name not in units:
                self._reader.problem(place.where("divides"), f"there is no budget of {name}{did_you_mean(name, units)}")
        return [name for name in dict.fromkeys(read.divides) if name in units]

    def _parts(
        self, resource: str, free: int, read: _Contract, children: Mapping[str, _Share], place: _Place
    ) -> Mapping[str, int]:
        """One budget divided; what a contract asks for itself goes before what is divided, except where it is negotiated."""
        asked = {name: child.units[resource] for name, child in children.items() if resource in child.units}
        if read.allocation == "negotiated":
            common = self._amounts(read.caps, place.where("caps"))
            caps = {name: child.caps[resource] for name, child in children.items() if resource in child.caps}
            if resource in common:
                caps = {**dict.fromkeys(asked, amount(resource, common[resource])), **caps}
            return negotiated(free, {name: min(value, caps.get(name, value)) for name, value in asked.items()})
        rest = free - sum(asked.values())
        others = {
            name: 1 if read.allocation == "equal" else child.weight for name, child in children.items() if name not in asked
        }
        if rest < 0:
            self._reader.problem(
                place.where("contracts"),
                f"together {shown(resource, free - rest)} of {resource}, and {place.name} can allocate {shown(resource, free)}",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """What a contract below another one brings to the division of a budget, in smallest units."""

    weight: int
    units: Mapping[str, int]
    caps: Mapping[str, int]


def _parsed(text: str, kind: Any) -> Any:
    """A bare text: a condition where it compares something, else the name of a check."""
    return kind(status=text) if re.search(r"[<>=!]", text) else kind(check=text)


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
