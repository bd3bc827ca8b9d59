"""Contracts: folds over records with an id, a severity and a policy. All three ways to write one produce a `Contract`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from mat.core.errors import SpecError, did_you_mean
from mat.core.record import ACTION_KINDS, ActionKind, Record
from mat.core.value import FrozenDict, FrozenList
from mat.core.verdict import WEIGHTS, Obligation, Severity

ContractPolicy: TypeAlias = Literal["observe", "block"]
FoldState: TypeAlias = Any
"""A monitor's state: plain data, tuples, frozensets, enums or frozen dataclasses, so that it has a canonical digest."""
Margin: TypeAlias = Callable[[Sequence[Record]], float]
"""Records of a finished trace -> the margin by which the contract is kept; 0 or less if it is broken."""


class _Keep:
    __slots__ = ()


KEEP: Final = _Keep()


@dataclass(frozen=True, slots=True)
class Violated:
    """What a fold returns instead of a state when the contract is broken.

    `state` is the state to go on with (by default the previous one); `witness` the steps that matter, `instance` the id,
    `wanted` what would have satisfied the contract, `step` the step to blame if it is not the current one; `more`
    carries further violations found at the same step. `label` classifies the failure (by default, as the contract does).
    """

    message: str
    repair: str = ""
    state: Any = KEEP
    witness: tuple[int, ...] = ()
    instance: str = ""
    step: int | None = None
    since: int | None = None
    more: tuple[Violated, ...] = ()
    wanted: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """A monitor: `step` folds a record into the state, `finish` closes open obligations on a finished trace.

    `obligations` lists what a state still waits for (since which step, for which id), for prefixes. `kinds` are the action
    kinds `step` is called for, None for all. `policy="block"` lets the mediator block a proposed action that would break it.
    `formula` is set if judges can fold the contract together with others (`mat.contract`). `raw` contracts read values
    before redaction and can be judged online only. `margin` is a function from a finished trace to the margin by which the
    contract is kept (robustness: 0 or less if it is broken); it guides the search and decides nothing. `label`: the class of
    failure of its violations.
    """

    id: str
    step: Callable[[FoldState, Record], FoldState | Violated]
    start: FoldState = None
    finish: Callable[[FoldState], Violated | None] | None = None
    obligations: Callable[[FoldState], tuple[Obligation, ...]] | None = None
    kinds: frozenset[ActionKind] | None = None
    severity: Severity = "hard"
    weight: float = -1.0
    policy: ContractPolicy = "observe"
    repair: str = ""
    raw: bool = False
    text: str = ""
    formula: Any = field(default=None, compare=False, repr=False)
    predicate: Callable[[Record], bool | Violated] | None = field(default=None, compare=False)
    margin: Margin | None = field(default=None, compare=False)
    label: str = ""

    def __post_init__(self) -> None:
        problems = []
        if not self.id or not isinstance(self.id, str):
            problems.append("it has no id")
        if self.severity not in WEIGHTS:
            problems.append(f"severity {self.severity!r} is neither 'soft' nor 'hard'")
        if self.policy not in ("observe", "block"):
            problems.append(f"policy {self.policy!r} is neither 'observe' nor 'block'")
        unknown = sorted(set(self.kinds or ()) - set(ACTION_KINDS))
        if unknown:
            problems.append(f"no action kind is called {', '.join(map(repr, unknown))}{did_you_mean(unknown[0], ACTION_KINDS)}")
        if problems:
            raise SpecError(what=f"contract {self.id!r}: {'; '.join(problems)}", fix="see mat.contract and mat.step_contract")
        object.__setattr__(self, "start", _frozen(self.start))
        if self.weight < 0:
            object.__setattr__(self, "weight", WEIGHTS[self.severity])

    def __call__(self, record: Record) -> bool:
        """Judge a single record; for unit tests of step contracts."""
        return not isinstance(self.step(self.start, record), Violated)


def _frozen(state: Any) -> Any:
    """A read-only copy of the start state: a fold that changed it in place would leak into the next run and into every peek."""
    if type(state) is dict:
        return FrozenDict({key: _frozen(item) for key, item in state.items()})
    if type(state) is list:
        return FrozenList(_frozen(item) for item in state)
    return frozenset(state) if type(state) is set else state


def kinds_of(on: str | Iterable[str] | None) -> frozenset[Any] | None:
    if on is None:
        return None
    return frozenset((on,) if isinstance(on, str) else on)


def step_contract(
    on: ActionKind | Iterable[ActionKind] | None = None,
    *,
    id: str = "",
    severity: Severity = "hard",
    weight: float = -1.0,
    policy: ContractPolicy = "observe",
    repair: str = "",
    raw: bool = False,
    margin: Margin | None = None,
    label: str = "",
) -> Callable[[Callable[[Record], bool | Violated]], Contract]:
    """Make a contract from a predicate on one record, which returns True, or a Violated that says why the record breaks it.

    It means always(predicate) (A1.6).
    """

    def decorate(predicate: Callable[[Record], bool | Violated]) -> Contract:
        name = id or predicate.__name__
        said = (inspect.getdoc(predicate) or f"{name} does not hold").splitlines()[0]

        def step(state: FoldState, record: Record) -> FoldState | Violated:
            holds = predicate(record)
            if holds is True:
                return state
            if isinstance(holds, Violated):
                return holds
            return state if holds else Violated(said, repair=repair)

        return Contract(
            id=name, step=step, kinds=kinds_of(on), severity=severity, weight=weight, policy=policy,
            repair=repair, raw=raw, text=said, predicate=predicate, margin=margin, label=label,
        )  # fmt: skip

    return decorate


def trace_contract(
    start: FoldState = None,
    *,
    finish: Callable[[FoldState], Violated | None] | None = None,
    obligations: Callable[[FoldState], tuple[Obligation, ...]] | None = None,
    on: ActionKind | Iterable[ActionKind] | None = None,
    id: str = "",
    severity: Severity = "hard",
    weight: float = -1.0,
    policy: ContractPolicy = "observe",
    repair: str = "",
    raw: bool = False,
    margin: Margin | None = None,
    label: str = "",
) -> Callable[[Callable[[Any, Record], Any]], Contract]:
    """Make a contract from a fold `(state, record) -> state`; it may return a Violated. Returning None keeps the state.

    `finish(state)` is called once at the end of the trace and returns a Violated or None; `obligations(state)` lists the
    obligations that are open in a state.
    """

    def decorate(fold: Callable[[Any, Record], Any]) -> Contract:
        name = id or fold.__name__

        def step(state: FoldState, record: Record) -> FoldState | Violated:
            new = fold(state, record)
            return state if new is None else new

        return Contract(
            id=name, step=step, start=start, finish=finish, obligations=obligations, kinds=kinds_of(on), severity=severity,
            weight=weight, policy=policy, repair=repair, raw=raw, text=(inspect.getdoc(fold) or name).splitlines()[0],
            margin=margin, label=label,
        )  # fmt: skip

    return decorate
