"""How one item is run, as a value: what its marker and the command line say, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Literal

from mat.core import limits
from mat.core.errors import SpecError, did_you_mean
from mat.monitor.contract import Contract

STRATEGIES: Final = ("exhaustive", "anytime", "random", "beam", "evolutionary", "adversary", "statistical")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How one item is run. `seeds` counts from 0; `faults` None means every default operator.

    `governance` is the variant that the marker names. `live_calls`: how many calls of external ports may be made for replies
    that are not recorded; None records nothing and calls them every time. `target`: the share of random schedules breaking a
    contract that the statistical strategy compares with; None for 1 in 20.

    What the session alone says: `variants` that the command line asks for, `timeout_s`, real seconds that a search may take,
    and the executions and the strategy of the searches of an evaluation.
    """

    seeds: int = 1
    budget: int = limits.BUDGET
    faults: tuple[str, ...] | None = None
    contracts: tuple[Contract, ...] = ()
    expect: frozenset[str] = frozenset()
    objective: Literal["contracts", "task"] = "contracts"
    horizon: int = limits.HORIZON_STEPS
    isolate: Literal["none", "fork"] = "none"
    strategy: str = "exhaustive"
    stop: Literal["budget", "cheapest", "first"] = "budget"
    curve: int = 0
    live_calls: int | None = None
    target: Fraction | None = None
    category: str = ""
    input: Literal["benign", "misuse", ""] = ""
    channels: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    waive: tuple[str, ...] = ()
    episode: str = ""
    max_runs: int = limits.MAX_RUNS
    shrink_runs: int | None = None
    governance: str = ""
    clock: Literal["virtual", "real"] = "virtual"
    variants: tuple[str, ...] = ()
    timeout_s: float | None = None
    evaluation_runs: int = limits.EVALUATION_RUNS
    evaluation_strategy: str = "anytime"


_SESSION: Final = ("variants", "timeout_s", "evaluation_runs", "evaluation_strategy")
_FIELDS: Final = tuple(name for name in Settings.__dataclass_fields__ if name not in _SESSION)
"""What a marker may say."""
OVERRIDES: Final = (
    "seeds", "budget", "max_runs", "shrink_runs", "strategy", "stop", "curve", "horizon", "live_calls", "target",
)  # fmt: skip
"""What the command line may say instead."""


def settings_from(
    markers: Sequence[tuple[tuple[Any, ...], Mapping[str, Any]]],
    overrides: Mapping[str, Any],
    *,
    variants: tuple[str, ...] = (),
    timeout_s: float | None = None,
    where: str = "",
) -> Settings:
    """Settings from the arguments of markers, the outermost first: nearer ones override, contracts add up, `overrides` win.

    SpecError lists everything that is wrong with them.
    """
    found: dict[str, Any] = {}
    contracts: list[Any] = []
    problems: list[str] = []
    for positional, named in markers:
        if positional:
            problems.append("its arguments are given by name")
        for name, value in named.items():
            if name not in _FIELDS:
                problems.append(f"no argument is called {name!r}{did_you_mean(name, _FIELDS)}")
            elif name == "contracts" and isinstance(value, list | tuple):
                contracts += value
            else:
                found[name] = value
    found.update(overrides)
    problems += [*_problems(found), *_type_problems(found)]
    if problems:
        raise SpecError(what=f"marker mat: {'; '.join(problems)}", fix=f"it takes {', '.join(_FIELDS)}", where=where)
    for name, kind in (("expect", frozenset), ("faults", tuple), ("channels", tuple), ("tools", tuple), ("waive", tuple)):
        if found.get(name) is not None:
            found[name] = kind([found[name]] if isinstance(found[name], str) else found[name])
    if "target" in found:
        found["target"] = Fraction(str(found["target"]))
    runs = overrides.get("max_runs")
    return Settings(
        **{**found, "contracts": tuple(contracts)},
        variants=variants,
        timeout_s=timeout_s,
        evaluation_runs=min(found.get("max_runs", limits.MAX_RUNS), limits.EVALUATION_RUNS) if runs is None else runs,
        evaluation_strategy=overrides.get("strategy") or "anytime",
    )


def _problems(found: Mapping[str, Any]) -> list[str]:
    problems = []
    leasts = {"seeds": 1, "budget": 0, "max_runs": 1, "shrink_runs": 0, "curve": 0, "horizon": 1, "live_calls": 0}
    for name, least in leasts.items():
        value = found.get(name, least)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            problems.append(f"{name}={value!r} is not an integer >= {least}")
    for name, allowed in (
        ("objective", ("contracts", "task")),
        ("isolate", ("none", "fork")),
        ("strategy", STRATEGIES),
        ("stop", ("budget", "cheapest", "first")),
        ("clock", ("virtual", "real")),
        ("input", ("benign", "misuse", "")),
    ):
        if found.get(name, allowed[0]) not in allowed:
            meant = did_you_mean(str(found[name]), allowed)
            problems.append(f"{name}={found[name]!r} is not one of {', '.join(filter(None, allowed))}{meant}")
    return problems


def _type_problems(found: Mapping[str, Any]) -> list[str]:
    problems = []
    for name, what in (
        ("faults", "operator ids"), ("expect", "contract ids"), ("channels", "names"), ("tools", "port names"),
        ("waive", "names"),
    ):  # fmt: skip
        value = found.get(name)
        names = () if value is None or isinstance(value, str) else value
        if not isinstance(names, list | tuple | set | frozenset) or not all(isinstance(each, str) for each in names):
            problems.append(f"{name}={value!r} is not a list of {what}")
    if "contracts" in found:
        problems.append(f"contracts={found['contracts']!r} is not a list of contracts")
    if "target" in found and not is_share(found["target"]):
        problems.append(f"target={found['target']!r} is not a share between 0 and 1, such as 0.05")
    problems += [
        f"{name}={found[name]!r} is not a text"
        for name in ("category", "governance", "episode")
        if not isinstance(found.get(name, ""), str)
    ]
    return problems


def is_share(value: object) -> bool:
    """Whether a value is a share between 0 and 1, both excluded."""
    try:
        return not isinstance(value, bool) and 0 < Fraction(str(value)) < 1
    except (ValueError, ZeroDivisionError):
        return False
