"""Load resource contracts from YAML or JSON files, which are untrusted input.

A file uses a closed vocabulary; nothing in it is imported, evaluated or called. It refers to functions (a check, a
scorer, a format, a preparation) by name, and the caller of `load` passes them in. `load` reports all problems in one
SpecError, with line numbers if the format has them. `loads(dumps(contracts))` gives equal contracts.

    contracts:
      review:
        budgets: {tokens: 50000, iterations: 3}
        duration_s: 300
        skills: [search, "model:planner"]
        criteria: [reviewed, "utilization <= 80 %"]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from mat.core.errors import did_you_mean, plural
from mat.core.resources import amount, shown
from mat.resources.allocation import negotiated, proportional
from mat.resources.contract import ResourceContract, beyond
from mat.resources.modes import ContractMode
from mat.resources.reading import FileReader, Where, data_of, kind_of, text_of
from mat.resources.status import ContractStatus
from mat.resources.vocabulary import FILE, TERMS, FileContext, Terms
from mat.resources.writing import data, dumps

__all__ = ["data", "dumps", "load", "loads", "section"]

CONTRACTS: Final = 1_000
"""The largest number of contracts in one file, including nested ones."""
EXTENSIONS: Final = 20
"""The longest chain of `extends`."""
_NAME_CHARS: Final = 100
_OWN: Final = ("extends", "contracts", "allocation", "divides", "caps", "weight")
"""Keys that `extends` does not inherit, because they depend on the contract's place in the file."""
_MERGED: Final = ("budgets", "prices")
"""Keys that `extends` inherits entry by entry."""


# -- reading ------------------------------------------------------------------------------------------------------------


def load(
    path: str | Path,
    *,
    checks: Mapping[str, Callable[[Any, ContractStatus], object]] | None = None,
    scorers: Mapping[str, Callable[[Any], float]] | None = None,
    formats: Mapping[str, Callable[[Any], object]] | None = None,
    preparers: Mapping[str, Callable[[Any], Any]] | None = None,
    endings: Mapping[str, Callable[[ContractStatus], object]] | None = None,
    modes: Mapping[str, ContractMode] | None = None,
    starts: datetime | None = None,
) -> dict[str, ResourceContract]:
    """Load the contracts of a .yaml, .yml or .json file, by name; nested ones are named `above/name`.

    The file names functions from these mappings: `checks` judge (output, status) for criteria, `scorers` rate an output,
    `formats` judge its form, `preparers` prepare an input, `endings` judge a status. `starts`: when the contracts begin; a
    `deadline` needs it. SpecError lists every problem.
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
    checks: Mapping[str, Callable[[Any, ContractStatus], object]] | None = None,
    scorers: Mapping[str, Callable[[Any], float]] | None = None,
    formats: Mapping[str, Callable[[Any], object]] | None = None,
    preparers: Mapping[str, Callable[[Any], Any]] | None = None,
    endings: Mapping[str, Callable[[ContractStatus], object]] | None = None,
    modes: Mapping[str, ContractMode] | None = None,
    starts: datetime | None = None,
    where: str = "contract file",
) -> dict[str, ResourceContract]:
    """Load contracts from a text in YAML or JSON. See `load`."""
    found, lines = data_of(text, json=json, kind="contract file", where=where)
    context = FileContext(
        checks=checks or {}, scorers=scorers or {}, formats=formats or {}, preparers=preparers or {}, endings=endings or {},
        modes=modes or {}, starts=starts,
    )  # fmt: skip
    reader = FileReader(lines, where)
    made = _ContractFile(reader, context).contracts(found)
    if reader.problems:
        raise reader.error(
            "contract file",
            why="an invalid contract would limit nothing",
            fix="correct these; docs/budgets.md describes the file",
        )
    return made


def section(reader: FileReader, contracts: Mapping[str, Mapping[str, Any]], at: Where) -> dict[str, ResourceContract]:
    """The contracts in a top-level section of another file, which names no functions. `reader` collects the problems."""
    made = _ContractFile(reader, FileContext()).section(_nested({"contracts": contracts}))
    for name in made:
        if "/" in name:
            reader.problem(
                (*at, name.partition("/")[0], "contracts"), "a policy cannot nest contracts: agents decide what they hand on"
            )
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A contract in a file: its data with what it inherits, and the place of each key."""

    at: Where
    raw: Mapping[str, Any]
    origins: Mapping[str, Where]

    def where(self, key: str) -> Where:
        return (*self.origins.get(key, self.at), key)


class _ContractFile:
    """Builds the contracts of one file."""

    def __init__(self, reader: FileReader, context: FileContext) -> None:
        self._reader, self._context = reader, context
        self._top: Mapping[str, Mapping[str, Any]] = {}
        self._made: dict[str, ResourceContract] = {}
        self._read: dict[Where, tuple[_Place, Terms] | None] = {}
        self._count = 0

    def contracts(self, found: object) -> dict[str, ResourceContract]:
        if not isinstance(found, dict):
            self._reader.problem((), f"it contains {kind_of(found)}, not sections")
            return {}
        if self._reader.read(FILE, found) is not None and not found.get("contracts"):
            self._reader.problem((), "it contains no contracts")
        return self.section(_nested(found))

    def section(self, contracts: Mapping[str, Mapping[str, Any]]) -> dict[str, ResourceContract]:
        """The contracts of the mapping at the key `contracts`."""
        self._top = contracts
        self._check_keys(contracts, ("contracts",), below=False)
        if self._count > CONTRACTS:
            self._reader.problem((), f"it contains {self._count:,} contracts; the limit is {CONTRACTS:,}")
            return {}
        for name, raw in contracts.items():
            self._build(raw, ("contracts", name), above=())
        return self._made

    def _check_keys(self, contracts: Mapping[str, Any], at: Where, *, below: bool) -> None:
        """Report invalid names, and keys in the wrong place."""
        for name, raw in contracts.items():
            self._count += 1
            place = (*at, name)
            if not _is_name(name):
                use = f"use up to {_NAME_CHARS} printable characters, without # and /"
                self._reader.problem(place, f"{name[:_NAME_CHARS]!r} is not a contract name: {use}")
            for key in ("weight", "caps") if not below else ():
                if key in raw and not (key == "caps" and raw.get("contracts")):
                    self._reader.problem((*place, key), "only a contract below another one has a share")
            for key in ("allocation", "divides"):
                if key in raw and not raw.get("contracts"):
                    self._reader.problem((*place, key), "there are no contracts below it to divide its budgets among")
            self._check_keys(_nested(raw), (*place, "contracts"), below=True)

    # -- extending ------------------------------------------------------------------------------------------------------

    def _chain(self, raw: Mapping[str, Any], at: Where) -> list[tuple[Where, Mapping[str, Any]]] | None:
        """A contract and those that it extends, one after the other, with their places; None if one cannot be found."""
        chain: list[tuple[Where, Mapping[str, Any]]] = [(at, raw)]
        while True:
            place, data = chain[-1]
            base = data.get("extends")
            if not base or not isinstance(base, str):
                return chain
            if base not in self._top:
                choice = did_you_mean(base, self._top) or f"; choose from {', '.join(self._top)}"
                self._reader.problem((*place, "extends"), f"unknown contract: {base!r}{choice}")
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

    # -- building -------------------------------------------------------------------------------------------------------

    def _terms(self, raw: Mapping[str, Any], at: Where) -> tuple[_Place, Terms] | None:
        """A contract's place, with what it inherits, and its terms; None if it has a problem."""
        if at not in self._read:
            chain = self._chain(raw, at)
            place = (
                _merged(chain)
                if chain
                else _Place(at=at, raw={key: raw[key] for key in raw if key not in ("extends", "threshold")}, origins={})
            )
            terms = self._reader.read(TERMS, place.raw, at=at, context=self._context, origins=place.origins)
            self._read[at] = None if chain is None or terms is None else (place, _named_terms(str(at[-1]), terms))
        return self._read[at]

    def _build(
        self, raw: Mapping[str, Any], at: Where, *, above: tuple[ResourceContract, ...],
        units: Mapping[str, int] = {},
    ) -> None:  # fmt: skip
        """Build a contract and those below it. `units`: what it was allocated, which overrides its own budgets."""
        found, shares = self._terms(raw, at), {}
        if found is not None:
            place, terms = found
            contract = terms.contract
            if units:
                contract = contract.with_units({**contract.units, **units})
            for problem in beyond(contract, [(over.name, over, levels) for levels, over in enumerate(above, start=1)]):
                self._reader.problem(at, problem)
            self._made["/".join(str(part) for part in at[1::2])] = contract
            shares = self._shares(place, terms, contract)
            above = (contract, *above)
        for child, inner in _nested(raw).items():
            self._build(inner, (*at, "contracts", child), above=above, units=shares.get(child, {}))

    # -- dividing -------------------------------------------------------------------------------------------------------

    def _shares(self, place: _Place, terms: Terms, made: ResourceContract) -> dict[str, dict[str, int]]:
        """What each contract below is allocated: name -> resource -> amount. Too large allocations are reported."""
        at, units, reserve = place.at, made.units, made.reserve
        below = {name: self._terms(raw, (*at, "contracts", name)) for name, raw in _nested(place.raw).items()}
        children = {name: found[1] for name, found in below.items() if found is not None}
        if not below or len(children) < len(below):
            return {}
        counted = units.get("subcontracts")
        if counted is not None and len(below) > counted:
            self._reader.problem(
                at, f"it has {plural(len(below), 'contract')} below it, but its budget is {plural(counted, 'subcontract')}"
            )
        shares: dict[str, dict[str, int]] = {name: {} for name in children}
        for resource in self._divided_resources(terms, units, place) if terms.allocation else ():
            free = units[resource] - reserve[resource]
            for name, part in self._divide(resource, free, terms, children, place).items():
                shares[name][resource] = part
        for name, child in children.items():
            for resource, value in {**child.contract.units, **shares[name]}.items():
                if resource in units and value > units[resource] - reserve[resource]:
                    free = units[resource] - reserve[resource]
                    self._reader.problem(
                        (*at, "contracts", name),
                        f"{resource}: {shown(resource, value)} requested, but {made.name} can allocate {shown(resource, free)}",
                    )
        return shares

    def _divided_resources(self, terms: Terms, units: Mapping[str, int], place: _Place) -> list[str]:
        """The resources whose budgets are divided: those named, else all except calls of single ports and subcontracts."""
        if terms.divides is None:
            return [name for name in units if ":" not in name and name != "subcontracts"]
        for name in terms.divides:
            if name not in units:
                self._reader.problem(place.where("divides"), f"there is no budget of {name}{did_you_mean(name, units)}")
        return [name for name in dict.fromkeys(terms.divides) if name in units]

    def _divide(
        self, resource: str, free: int, terms: Terms, children: Mapping[str, Terms], place: _Place
    ) -> Mapping[str, int]:
        """One budget, divided. Unless it is negotiated, contracts get their own budgets first; the rest is divided."""
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
            wanted, left = shown(resource, free - rest), shown(resource, free)
            self._reader.problem(
                place.where("contracts"),
                f"{resource}: {wanted} requested together, but {terms.contract.name} can allocate {left}",
            )
            return {}
        if not others:
            return {}
        parts = proportional(rest, others) if any(others.values()) else dict.fromkeys(others, 0)
        empty = [name for name, part in parts.items() if not part]
        if empty:
            self._reader.problem(
                place.where("allocation"),
                f"{resource}: no budget is left for {', '.join(empty)}; `divides` names the resources to divide",
            )
        return parts


def _merged(chain: Sequence[tuple[Where, Mapping[str, Any]]]) -> _Place:
    """The first contract of a chain, with what it inherits from the others."""
    at = chain[0][0]
    merged: dict[str, Any] = {}
    origins: dict[str, Where] = {}
    for place, terms in reversed(chain):
        for key, value in terms.items():
            if key in _OWN and place != at:
                continue
            before = merged.get(key)
            joined = key in _MERGED and isinstance(before, dict) and isinstance(value, dict)
            merged[key] = {**before, **value} if joined else value  # type: ignore[dict-item]
            origins[key] = place
        if "deadline" in terms and "duration_s" not in terms:
            merged.pop("duration_s", None)
        elif "duration_s" in terms and "deadline" not in terms:
            merged.pop("deadline", None)
    return _Place(at=at, raw=merged, origins=origins)


def _named_terms(name: str, terms: Terms) -> Terms:
    """The terms with the contract's name. An invalid name is reported elsewhere."""
    return replace(terms, contract=replace(terms.contract, name=name)) if _is_name(name) else terms


def _is_name(name: str) -> bool:
    return 0 < len(name) <= _NAME_CHARS and name.isprintable() and "#" not in name and "/" not in name


def _nested(raw: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """The contracts below one that are mappings."""
    inner = raw.get("contracts")
    return {name: item for name, item in inner.items() if isinstance(item, dict)} if isinstance(inner, dict) else {}
