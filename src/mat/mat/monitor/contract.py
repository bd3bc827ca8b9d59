"""Contracts: folds over records with an id, a severity and a policy. All three ways to write one produce a `Contract`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from mat.core.errors import SpecError, did_you_mean
from mat.core.record import ACTION_KINDS, ActionKind, Record
from mat.core.spelling import as_kind
from mat.core.value import FrozenDict, FrozenList
from mat.core.verdict import WEIGHTS, Obligation, Severity
from mat.monitor.written import PureFold, holds, is_immutable, misread, own, refuse_deferred

ContractPolicy: TypeAlias = Literal["observe", "block"]
OnError: TypeAlias = Literal["fail", "unknown"]
"""The outcome of a contract that could not judge a step, because it raised or answered nonsense."""
FoldState: TypeAlias = Any
"""A monitor's state: plain data, tuples, frozensets, enums or frozen dataclasses, so that it has a canonical digest."""
Margin: TypeAlias = Callable[[Sequence[Record]], float]
"""A function from the records of a finished trace to the margin by which the contract is kept (0 or less if broken)."""


class _Keep:
    __slots__ = ()


KEEP: Final = _Keep()


@dataclass(frozen=True, slots=True)
class Violated:
    """What a contract's predicate or fold returns where the contract is broken.

    - `message`: what is wrong, in one sentence. `repair`: what to do about it. `wanted`: what would have satisfied the
      contract.
    - `state`: the state to go on with; by default the one before this record.
    - `witness`: the numbers of the steps that matter. `instance`: the id it is about, such as an order number.
    - `step`: the step to blame, by default the current one. `since`: the step at which it began.
    - `more`: further violations at the same step. `label`: the class of failure, by default the contract's.

    >>> @mat.step_contract(on="tool_call")
    ... def capped(record):
    ...     amount = record.action.arguments["amount"]
    ...     return amount <= 500 or mat.Violated(f"{amount} is too much", repair="ask for an approval")
    >>> @mat.tool(effect="write")
    ... def refund(order, amount): return "refunded"
    >>> with mat.run([capped]) as run:
    ...     reply = refund("A17", amount=900)
    >>> [(found.message, found.repair) for found in run.violations]
    [('900 is too much', 'ask for an approval')]

    Source: A1.5.
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
class FoldTrigger:
    """What triggers a fold that reads some records only as evidence.

    `text`: in words. `holds(state, record)`: whether a run has reached it, asked of each record that the contract folds, with
    the state after that record.
    """

    text: str
    holds: Callable[[FoldState, Record], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """A property that every run must have: a fold over the records of a run, with an id, a severity and a policy.

    `mat.contract`, `mat.step_contract`, `mat.trace_contract` and the templates of `mat_contracts` make contracts; you seldom
    write this class. Give contracts to `mat.run(contracts)`, or request fixtures that return them.

    - `id`: its name in verdicts and reports.
    - `step(state, record)`: the next state, or a `mat.Violated`; called with each record whose action kind is in `kinds`
      (None: all). The state begins as `start`, and is plain data, a tuple, a frozenset or a frozen dataclass.
    - `finish(state)`: called once at the end of a finished trace; a Violated or None. `obligations(state)`: what a state still
      waits for, as a tuple.
    - `severity`: "hard" (a violation fails the test) or "soft" (it is only reported). `weight`: how much a violation counts,
      by default 10 for hard and 1 for soft.
    - `policy`: "block" lets the mediator block a proposed action that would break the contract; "observe" only reports.
    - `repair`: what to do about a violation. `label`: the class of failure of its violations. `text`: the property in words.
    - `raw`: it reads values before redaction, so it can be judged online only.
    - `on_error`: what happens if it cannot judge a step because it raises or answers nonsense: "fail" (a violation at that
      step) or "unknown" (its outcome is unknown at best). Either way it goes on with the next step.
    - `margin`: a function from a finished trace to the margin by which the contract is kept (0 or less if it is broken); it
      guides the search and decides nothing.
    - `selects`: the names of the ports whose calls it is about, and `keys`: the arguments that it reads of them. They decide
      whether a run triggered it (`mat.monitor.triggers`); without them, its kinds or its formula do. `trigger`: what decides
      it instead, for a template that reads some records only as evidence.
    - `formula` and `predicate` are set by the functions that make contracts.

    Calling a contract with one record says whether that record alone keeps it. Raises `mat.MatError` without an id, and for an
    unknown severity, policy or action kind.

    >>> @mat.step_contract(on="tool_call")
    ... def capped(record):
    ...     return record.action.arguments["amount"] <= 500
    >>> isinstance(capped, mat.Contract), capped.id, capped.severity, capped.weight
    (True, 'capped', 'hard', 10.0)

    Source: A1.4, A1.6.
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
    on_error: OnError = "fail"
    selects: tuple[str, ...] = field(default=(), compare=False, repr=False)
    keys: tuple[str, ...] = field(default=(), compare=False, repr=False)
    trigger: FoldTrigger | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        problems = []
        if not self.id or not isinstance(self.id, str):
            problems.append("it has no id")
        if self.severity not in WEIGHTS:
            problems.append(f"severity {self.severity!r} is neither 'soft' nor 'hard'")
        if self.policy not in ("observe", "block"):
            problems.append(f"policy {self.policy!r} is neither 'observe' nor 'block'")
        if self.on_error not in ("fail", "unknown"):
            problems.append(f"on_error {self.on_error!r} is neither 'fail' nor 'unknown'")
        unknown = sorted(set(self.kinds or ()) - set(ACTION_KINDS))
        if unknown:
            hint = as_kind(unknown[0]) or did_you_mean(unknown[0], ACTION_KINDS)
            problems.append(f"unknown action kind: {', '.join(map(repr, unknown))}{hint}")
        if problems:
            kinds = f"; the action kinds are {', '.join(ACTION_KINDS)}" if unknown else ""
            raise SpecError(what=f"contract {self.id!r}: {'; '.join(problems)}", fix=f"correct its arguments{kinds}")
        for name in ("step", "finish", "obligations", "predicate", "margin"):
            refuse_deferred(getattr(self, name), f"{name} of contract {self.id!r}")
        object.__setattr__(self, "start", _frozen(self.start))
        if not is_immutable(self.start) and not isinstance(self.step, PureFold):
            object.__setattr__(self, "step", PureFold(self.step, self.id, Violated))
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
    on_error: OnError = "fail",
) -> Callable[[Callable[[Record], bool | Violated]], Contract]:
    """Make a contract from a predicate on one record, which must hold at every step. Use it as a decorator.

    The predicate takes a `mat.Record` and returns True, False, or a `mat.Violated` that says what is wrong; the first line of
    its docstring is the message for False. If it raises or returns anything else, that is a violation, too: it could not
    judge the step (see `on_error` of `mat.Contract`).

    `on`: the action kinds that it judges ("tool_call", or several), by default all. `id`: by default the name of the
    predicate. `severity`, `weight`, `policy`, `repair`, `raw`, `margin`, `label`, `on_error`: see `mat.Contract`. Returns the
    decorator, which returns the Contract. Raises `mat.MatError` for an unknown severity, policy or action kind, and for a
    coroutine or generator function.

    >>> @mat.step_contract(on="tool_call", severity="soft")
    ... def capped(record):
    ...     "A refund is at most 500."
    ...     return record.action.arguments["amount"] <= 500
    >>> @mat.tool(effect="write")
    ... def refund(order, amount): return "refunded"
    >>> with mat.run([capped]) as run:
    ...     replies = [refund("A17", amount=20), refund("A18", amount=900)]
    >>> [(found.contract, found.step, found.message) for found in run.violations]
    [('capped', 1, 'A refund is at most 500.')]

    Source: A1.4, A1.6.
    """

    def decorate(predicate: Callable[[Record], bool | Violated]) -> Contract:
        name = id or getattr(predicate, "__name__", type(predicate).__name__)
        refuse_deferred(predicate, f"the predicate of contract {name!r}")
        said = (inspect.getdoc(predicate) or f"{name} does not hold").splitlines()[0]

        def step(state: FoldState, record: Record) -> FoldState | Violated:
            answer = predicate(record)
            if answer is True:
                return state
            if isinstance(answer, Violated):
                return answer
            return state if holds(answer, name) else Violated(said, repair=repair)

        return Contract(
            id=name, step=step, kinds=kinds_of(on), severity=severity, weight=weight, policy=policy,
            repair=repair, raw=raw, text=said, predicate=predicate, margin=margin, label=label, on_error=on_error,
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
    on_error: OnError = "fail",
) -> Callable[[Callable[[Any, Record], Any]], Contract]:
    """Make a contract from a fold over the trace. Use it as a decorator.

    The fold takes a state and a `mat.Record`, and returns the next state, None to keep the state, or a `mat.Violated`. `start`
    is the first state. States are values (tuples, frozensets, frozen dataclasses): the same fold judges online, offline,
    proposed actions and prefixes. A dict, list or set as `start` is made read-only; any other state that can be changed in
    place is copied for each call, which takes time. A fold whose state is True or False needs `start=False`.

    `finish(state)` is called once at the end of a finished trace, and returns a Violated or None. `obligations(state)` lists
    what a state still waits for. `on`: the action kinds that it folds, by default all. `id`: by default the name of the fold.
    The rest: see `mat.Contract`. Returns the decorator, which returns the Contract. Raises `mat.MatError` for an unknown
    severity, policy or action kind, and for a coroutine or generator function.

    >>> @mat.trace_contract(start=frozenset(), on="tool_call")
    ... def refunded_once(seen, record):
    ...     order = record.action.arguments["order"]
    ...     return mat.Violated(f"{order} was refunded twice") if order in seen else seen | {order}
    >>> @mat.tool(effect="write")
    ... def refund(order): return "refunded"
    >>> with mat.run([refunded_once]) as run:
    ...     replies = [refund("A17"), refund("B4"), refund("A17")]
    >>> [(found.step, found.message) for found in run.violations]
    [(2, 'A17 was refunded twice')]

    Source: A1.4.
    """

    def decorate(fold: Callable[[Any, Record], Any]) -> Contract:
        name = id or getattr(fold, "__name__", type(fold).__name__)
        for function, what in ((fold, "the fold"), (finish, "finish"), (obligations, "obligations")):
            refuse_deferred(function, f"{what} of contract {name!r}")

        def finished(state: FoldState) -> Violated | None:
            assert finish is not None
            found = finish(own(state))
            if found is None or isinstance(found, Violated):
                return found
            raise misread(f"finish of {name}", found, "finish returns None or mat.Violated(...)")

        def waiting(state: FoldState) -> tuple[Obligation, ...]:
            assert obligations is not None
            return tuple(obligations(own(state)))

        return Contract(
            id=name, step=PureFold(fold, name, Violated), start=start, finish=finish and finished,
            obligations=obligations and waiting, kinds=kinds_of(on), severity=severity, weight=weight, policy=policy,
            repair=repair, raw=raw, text=(inspect.getdoc(fold) or name).splitlines()[0], margin=margin, label=label,
            on_error=on_error,
        )  # fmt: skip

    return decorate
