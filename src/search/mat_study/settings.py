"""The validated settings of one item, from its marker, the command line and the project's configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from typing import Any, Final, Literal

from mat.core import limits
from mat.core.errors import SpecError, did_you_mean
from mat.core.known import KnownFindings
from mat.core.resources import PriceList
from mat.core.search import SEARCH_FIELDS, Search, Stop, StrategyName, search_problems
from mat.measure.workload import Workload, workload_problems
from mat.monitor.contract import Contract

_NO_WORKLOAD: Final = Workload()
_NO_PRICES: Final = PriceList()
_NOTHING_KNOWN: Final = KnownFindings()


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemSettings:
    """The settings of one item. `seeds` counts from 0; `faults` None means every default operator.

    `governance` is the variant that the marker names. `live_calls`: how many calls of external ports may be made for replies
    that are not recorded; None records nothing and calls the ports every time. `loopback`: whether connections to servers of
    this machine are allowed. From `strategy` to `target`: how --mat-stress searches; a `target` of None is 1 in 20. `workload`
    is what the test stands for in an evaluation, according to the marker.

    `vacuous`: the contracts that may be vacuous under stress, by id.

    Only the session sets `require_proof` (whether a searched item fails unless something is proven), the `variants` that the
    command line asks for, `timeout_s` (the real seconds that a search may take), `errors` (the clients whose exceptions are
    injected at tools that declare none), the `prices` of models, the `known` findings, which do not fail the item, and the
    executions and the strategy of the searches of an evaluation.
    """

    seeds: int = 1
    budget: int = limits.BUDGET
    faults: tuple[str, ...] | None = None
    contracts: tuple[Contract, ...] = ()
    expect: frozenset[str] = frozenset()
    vacuous: frozenset[str] = frozenset()
    objective: Literal["contracts", "task"] = "contracts"
    horizon: int = limits.HORIZON_STEPS
    isolate: Literal["none", "fork"] = "none"
    governance: str = ""
    clock: Literal["virtual", "real"] = "virtual"
    live_calls: int | None = None
    loopback: bool = False
    strategy: StrategyName = "portfolio"
    max_runs: int = limits.MAX_RUNS
    shrink_runs: int | None = None
    stop: Stop = "budget"
    curve: int = 0
    target: Fraction | None = None
    workload: Workload = _NO_WORKLOAD
    variants: tuple[str, ...] = ()
    timeout_s: float | None = None
    errors: tuple[str, ...] = ()
    prices: PriceList = _NO_PRICES
    require_proof: bool = False
    known: KnownFindings = _NOTHING_KNOWN
    evaluation_runs: int = limits.EVALUATION_RUNS
    evaluation_strategy: StrategyName = "anytime"


_SESSION_FIELDS: Final = (
    "errors",
    "prices",
    "variants",
    "timeout_s",
    "require_proof",
    "known",
    "evaluation_runs",
    "evaluation_strategy",
)
_MARKER_FIELDS: Final = tuple(
    name for name in ItemSettings.__dataclass_fields__ if name not in (*_SESSION_FIELDS, *SEARCH_FIELDS, "workload")
)
ARGUMENTS: Final = (*_MARKER_FIELDS, "search", "workload")
"""The arguments of the marker."""
OVERRIDES: Final = ("seeds", "budget", "horizon", "live_calls", *SEARCH_FIELDS)
"""The settings that the command line can override."""
_WORKLOAD_FIELDS: Final = tuple(Workload.__dataclass_fields__)


def settings_from(
    markers: Sequence[tuple[tuple[Any, ...], Mapping[str, Any]]],
    *,
    overrides: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
    variants: tuple[str, ...] = (),
    timeout_s: float | None = None,
    errors: tuple[str, ...] = (),
    prices: PriceList = _NO_PRICES,
    require_proof: bool = False,
    where: str = "",
) -> ItemSettings:
    """Settings from the arguments of markers, the outermost first; the command line's `overrides` win over them.

    `defaults` are the project's values for what no marker sets, by the name of an argument or of a field of Search. Nearer
    markers override outer ones, field by field in a search and a workload; contracts add up, and so do the names of contracts
    that may be vacuous. SpecError lists every problem.
    """
    found: dict[str, Any] = {}
    contracts: list[Any] = []
    fields: dict[str, dict[str, Any]] = {"search": {}, "workload": {}}
    for name, value in (defaults or {}).items():
        (fields["search"] if name in SEARCH_FIELDS else found)[name] = value
    problems: list[str] = []
    for positional, named in markers:
        if positional:
            problems.append("its arguments must be passed by name")
        for name, value in named.items():
            if name in fields and isinstance(value, _GROUPS[name]):
                fields[name].update(_changed_fields(value))
            elif name in fields:
                problems.append(f"{name}={value!r} is not a mat.{_GROUPS[name].__name__}")
            elif name not in ARGUMENTS:
                problems.append(f"unknown argument {name!r}{_suggestion(name)}")
            elif name == "contracts" and isinstance(value, list | tuple):
                contracts += value
            elif name == "vacuous" and _are_names(value) and _are_names(found.get(name, ())):
                found[name] = (*_as_names(found.get(name, ())), *_as_names(value))
            else:
                found[name] = value
    fields["search"].update({name: value for name, value in overrides.items() if name in SEARCH_FIELDS})
    found.update({name: value for name, value in overrides.items() if name not in SEARCH_FIELDS})
    problems += [*_value_problems(found), *_type_problems(found), *search_problems(fields["search"])]
    problems += workload_problems(fields["workload"])
    if problems:
        fix = f"correct the marker; its arguments are {', '.join(ARGUMENTS)}"
        raise SpecError(what=f"marker mat: {'; '.join(problems)}", fix=fix, where=where)
    for name, kind in (("expect", frozenset), ("vacuous", frozenset), ("faults", tuple)):
        if found.get(name) is not None:
            found[name] = kind([found[name]] if isinstance(found[name], str) else found[name])
    runs = overrides.get("max_runs")
    search = fields["search"]
    if "target" in search:
        search["target"] = Fraction(str(search["target"]))
    return ItemSettings(
        **{**found, "contracts": tuple(contracts)},
        **search,
        workload=Workload(**fields["workload"]),
        variants=variants,
        timeout_s=timeout_s,
        errors=errors,
        prices=prices,
        require_proof=require_proof,
        evaluation_runs=min(search.get("max_runs", limits.MAX_RUNS), limits.EVALUATION_RUNS) if runs is None else runs,
        evaluation_strategy=overrides.get("strategy") or "anytime",
    )


_GROUPS: Final[Mapping[str, type[Search] | type[Workload]]] = {"search": Search, "workload": Workload}


def _changed_fields(value: Search | Workload) -> dict[str, Any]:
    """The fields of a value that differ from their defaults."""
    empty = type(value)()
    fields = {name: getattr(value, name) for name in type(value).__dataclass_fields__}
    return {name: given for name, given in fields.items() if given != getattr(empty, name)}


def _suggestion(name: str) -> str:
    """A hint what to write instead of an unknown argument."""
    homes = {**dict.fromkeys(SEARCH_FIELDS, "search=mat.Search"), **dict.fromkeys(_WORKLOAD_FIELDS, "workload=mat.Workload")}
    if name in homes:
        return f"; write {homes[name]}({name}=...)"
    close = get_close_matches(name, [*ARGUMENTS, *homes], n=1)
    if close and close[0] in homes:
        return f"; did you mean {close[0]!r}, as in {homes[close[0]]}({close[0]}=...)?"
    return did_you_mean(name, ARGUMENTS)


def _value_problems(found: Mapping[str, Any]) -> list[str]:
    problems = []
    for name, least in (("seeds", 1), ("budget", 0), ("horizon", 1), ("live_calls", 0)):
        value = found.get(name, least)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            problems.append(f"{name}={value!r} is not an integer >= {least}")
    for name, allowed in (
        ("objective", ("contracts", "task")),
        ("isolate", ("none", "fork")),
        ("clock", ("virtual", "real")),
    ):
        if found.get(name, allowed[0]) not in allowed:
            hint = did_you_mean(str(found[name]), allowed)
            problems.append(f"{name}={found[name]!r} is not one of {', '.join(allowed)}{hint}")
    return problems


def _are_names(value: object) -> bool:
    if value is None or isinstance(value, str):
        return True
    return isinstance(value, list | tuple | set | frozenset) and all(isinstance(each, str) for each in value)


def _as_names(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())


def _type_problems(found: Mapping[str, Any]) -> list[str]:
    problems = []
    for name, what in (("faults", "operator ids"), ("expect", "contract ids"), ("vacuous", "contract ids")):
        value = found.get(name)
        if not _are_names(value):
            problems.append(f"{name}={value!r} is not a list of {what}")
    if "contracts" in found:
        problems.append(f"contracts={found['contracts']!r} is not a list of contracts")
    if not isinstance(found.get("loopback", False), bool):
        problems.append(f"loopback={found['loopback']!r} is neither True nor False")
    if not isinstance(found.get("governance", ""), str):
        problems.append(f"governance={found['governance']!r} is not a string")
    return problems
