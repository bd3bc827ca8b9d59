"""Equivalence classes of perturbations, found while a run is executed for the search (`Run.equivalence_classes`).

When a perturbation acts, its operator is asked what it would have decided at the other points of its grid that cover the same
number of calls. If the effect is the same, so is the run (`EquivalenceClass.effect`). If only numbers in the reply differ, and
the user vouches for it, the agent gets concolic numbers for all points at once (mat.boundary.concolic), and the points for
which every decision has the same result make the same run, too (`EquivalenceClass.decisions`; a point is named once).

The records of such runs differ only in the perturbed one: in the parameters of its fault label and, for decisions, in the
value. Agents do not read records; contracts do. So each contract is shown the record as it would have been, from the state it
was in, and points for which its verdict or its next state would differ are dropped. The same holds for the
evidence that later claims cite.

Delays that differ only in milliseconds are the same effect if the user vouches that the state, and not the time at which it is
reached, decides what follows, and if until the next ask, where the state is read, nobody looked at a clock and no other task
existed whose turn could depend on it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Hashable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import chain
from typing import Any, Final, cast

from mat.boundary.catalog import Operator
from mat.boundary.concolic import (
    Family,
    PathCondition,
    form_of,
    plain_of,
    replaced,
    standing_in,
    understood,
    unlike,
)
from mat.boundary.effect import Call, Delay, Effect, Raise, Replace, Reply
from mat.boundary.port import Port
from mat.boundary.usage import usage_of
from mat.core.digest import canonical, plain
from mat.core.operator import ERRORS, with_errors
from mat.core.record import Observation, Record
from mat.core.run import EquivalenceClass, Termination
from mat.core.spec import Perturbation
from mat.core.value import EMPTY, FrozenDict, snapshot
from mat.core.verdict import Verdict
from mat.harness.digest import StateDigest
from mat.harness.noted_stream import NotedStream
from mat.harness.provenance import parts
from mat.harness.recorded_form import if_changed
from mat.harness.trace import Trace
from mat.kernel.world import World
from mat.monitor.contract import KEEP, Contract, Violated
from mat.monitor.judge import Judge


class Looked(Call):
    """A call that notes whether its operator read anything that can differ between equal calls of the port."""

    __slots__ = ("beyond",)

    beyond: bool


def _noting_property(name: str) -> Any:
    slot = vars(Call)[name]

    def read(self: Looked) -> Any:
        object.__setattr__(self, "beyond", True)
        return slot.__get__(self, Looked)

    return property(read, slot.__set__)


_BEYOND: Final = ("site", "at_ms", "past")
"""`history` and `asked` derive from `past`. `index` is left out: the search's keys hold what is left of a range."""
for _name in _BEYOND:
    setattr(Looked, _name, _noting_property(_name))
_SLOTS: Final = tuple((item.name, vars(Call)[item.name]) for item in fields(Call))


def looked(call: Call, parameters: FrozenDict) -> Looked:
    """The same call at another grid point, with nothing looked at yet."""
    made = object.__new__(Looked)
    for name, slot in _SLOTS:
        slot.__set__(made, parameters if name == "parameters" else slot.__get__(call, type(call)))
    object.__setattr__(made, "beyond", False)
    return made


@dataclass(slots=True, kw_only=True)
class _PerturbedRecord:
    """A perturbed record before it is folded: the contracts' states, and the reply at other points."""

    exchange: _Exchange
    label: int
    """Which of the record's fault labels is the perturbation's."""
    delivered: Any = None
    value: Any = None
    others: dict[int, Any] = field(default_factory=dict)
    judge: Judge | None = None
    states: dict[int, Any] | None = None


@dataclass(slots=True, kw_only=True)
class _Window:
    """A delay that acted: how often the clock had been read when it began, and the points with other delays."""

    exchange: _Exchange
    looks: int
    points: tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class _Exchange:
    """One perturbation of the schedule and the grid points that may be equivalent to it; `points[0]` is its own."""

    item: Perturbation
    points: tuple[FrozenDict, ...]
    family: Family
    local: bool = True
    strangers: set[int] = field(default_factory=set)
    """Points at which the operator looked at more than the call."""
    varied: set[int] = field(default_factory=set)
    """Points whose effect differed somewhere; their numbers are tracked next to the chosen ones."""
    later_ms: dict[int, int] = field(default_factory=dict)
    """By how many milliseconds the run takes longer, or shorter, at a point."""


class Equivalences:
    """The equivalence classes of the perturbations of one run in progress. `vary`: concolic numbers may be delivered."""

    def __init__(self, *, world: World, trace: Trace, given: StateDigest | None, vary: bool) -> None:
        self._world, self._trace = world, trace
        trace.sinks.append(self._on_judged)
        vouched = given is not None and given.complete
        self._vary = vary and vouched and given is not None and given.concolic and world.clock.virtual
        self._timeless = vouched and given is not None and not given.clock
        self._exchanges: dict[tuple[Any, ...], _Exchange] = {}
        self._shown: dict[int, list[_PerturbedRecord]] = {}
        self._windows: list[_Window] = []
        self._cited: list[tuple[Family, list[frozenset[str]]]] = []
        self._concolic_stack = ExitStack()
        self._has_concolic = False

    def forget(self) -> None:
        """Drop all other grid points: from now on calls are metered, so their costs and times matter, too."""
        for exchange in self._exchanges.values():
            for index in list(exchange.family.alive):
                exchange.family.drop(index)

    # -- when a perturbation acts -------------------------------------------------------------------------------------

    def decide(
        self,
        item: Perturbation,
        operator: Operator,
        call: Call,
        reply: Reply | None,
        stream: random.Random,
        ask: Callable[[Operator, Call, Reply | None, random.Random], Effect],
    ) -> tuple[Effect, Decisions]:
        """The operator's decision, and what it would have decided at the other points."""
        if reply is not None:
            reply = Reply(plain_of(reply.value)) if self._has_concolic else reply
        exchange = self._exchange_of(item, operator)
        noted = NotedStream(stream)
        mine = looked(call, item.parameters)
        effect = ask(operator, mine, reply, noted)
        exchange.local = exchange.local and not mine.beyond and not noted.drawn()
        others: dict[int, Effect] = {}
        with self._world.entropy.unmoved() if exchange.family.alive else nullcontext():
            for index in exchange.family.alive:
                own = NotedStream(stream, origin=noted)
                theirs = looked(call, exchange.points[index])
                try:
                    others[index] = operator.decide(theirs, reply, own)
                except Exception:  # if the operator crashes at a point, that point makes another run
                    continue
                if theirs.beyond or own.drawn():
                    exchange.strangers.add(index)
        return effect, Decisions(exchange=exchange, effect=effect, others=others)

    def _exchange_of(self, item: Perturbation, operator: Operator) -> _Exchange:
        found = self._exchanges.get(item.key)
        if found is None:
            span, own = item.site.last - item.site.nth + 1, canonical(item.parameters)
            client = str(item.parameters.get(ERRORS, ""))
            spanning = [point for point in operator.grid if int(point.get("calls", 1)) == span]
            grid = {canonical(point): point for point in (with_errors(point, client) for point in spanning)}
            points = (item.parameters, *[point for text, point in grid.items() if text != own])
            family = Family(len(points), serial=len(self._exchanges))
            found = self._exchanges[item.key] = _Exchange(item=item, points=points, family=family)
        return found

    def settle(self, decisions: Decisions, step: int, port: Port, *, label: int) -> Effect:
        """The effect at the call, if possible with concolic numbers for the other points.

        `label`: the index of its fault label in the step.
        """
        exchange, effect = decisions.exchange, decisions.effect
        family, form = exchange.family, _form(effect)
        differing: dict[int, dict[PathCondition, Any]] = {}
        late: dict[int, int] = {}
        for index in family.alive:
            other = decisions.others.get(index)
            if form is not None and other is not None and _form(other) == form:
                continue
            longer = _longer(effect, other)
            leaves = unlike(effect.value, other.value) if type(effect) is type(other) is Replace else None
            if longer is not None and self._untimed():
                late[index] = longer
            elif leaves and self._may_vary(port):
                differing[index] = leaves
            else:
                family.drop(index)
        for index, longer in late.items():
            exchange.later_ms[index] = exchange.later_ms.get(index, 0) + longer
        if late:
            self._windows.append(_Window(exchange=exchange, looks=self._world.looks, points=tuple(late)))
        shown = _PerturbedRecord(exchange=exchange, label=label)
        if differing and isinstance(effect, Replace):
            effect = self._varied(effect, differing, decisions, shown)
        if family.alive:
            self._shown.setdefault(step, []).append(shown)
            self._keep_states(shown)  # and once more where steps before this one are judged meanwhile
        return effect

    def _varied(
        self, effect: Replace, differing: dict[int, dict[PathCondition, Any]], decisions: Decisions, shown: _PerturbedRecord
    ) -> Replace:
        exchange, family = decisions.exchange, decisions.exchange.family
        columns: dict[PathCondition, list[Any]] = {}
        for index in family.alive:
            for path in differing.get(index, ()):
                columns.setdefault(path, [_at(effect.value, path)] * len(exchange.points))[index] = differing[index][path]
        try:
            value = replaced(effect.value, {path: standing_in(family, column) for path, column in columns.items()})
        except ValueError:  # the reply shares its parts with itself
            for index in differing:
                family.drop(index)
            return effect
        if not self._has_concolic:
            self._has_concolic = True
            self._concolic_stack.enter_context(understood())
        exchange.varied.update(differing)
        shown.delivered, shown.value = value, effect.value
        for index in family.alive:
            other = decisions.others[index]
            assert isinstance(other, Replace)
            shown.others[index] = other.value
        return Replace(value)

    def _may_vary(self, port: Port) -> bool:
        """Whether a reply may carry concolic numbers: no other task can use one where no state is read."""
        return (
            self._vary
            and not port.stream
            and port.usage is None
            and port.policy("reply") == "keep"
            and not self._world.others_can_run(suspends=True)
        )

    def _untimed(self) -> bool:
        turns = self._world.scheduler
        return (
            self._timeless
            and turns is not None
            and turns.alone
            and turns.me() is not None
            and asyncio._get_running_loop() is None
        )

    # -- until the run ends -------------------------------------------------------------------------------------------

    def plain(self, step: int, value: Any) -> Any:
        """The reply as it is recorded. A perturbed one is that of the chosen point, and this is not a decision."""
        for shown in self._shown.get(step, ()):
            if shown.delivered is value and value is not None:
                return shown.value
        return plain_of(value) if self._has_concolic else value

    def recorded(self, arguments: FrozenDict) -> FrozenDict:
        """Arguments that were recorded without a snapshot, with plain numbers."""
        if not self._has_concolic:
            return arguments
        before = dict(arguments)
        made = plain_of(before)
        return arguments if made is before else FrozenDict(made)

    def _on_judged(self, record: Record, found: Verdict | tuple[str, ...]) -> None:
        """Compare the other points of a perturbed record once the monitors have judged it. Called in ask order."""
        for shown in self._shown.pop(record.step, ()):
            self._drop_disagreeing(shown, record)
        for following in self._shown.get(record.step + 1, ()):
            self._keep_states(following)

    def _keep_states(self, shown: _PerturbedRecord) -> None:
        shown.judge = self._trace.judge
        shown.states = shown.judge.states()

    def _drop_disagreeing(self, shown: _PerturbedRecord, record: Record) -> None:
        """Drop the points at which a contract's result or next state differs or is unknown."""
        exchange, family = shown.exchange, shown.exchange.family
        values = _observed(shown, record)
        if shown.states is None or shown.judge is not self._trace.judge or values is None:
            family.alive = []
            return
        judging = [
            (contract, shown.states[index])
            for index, contract in enumerate(shown.judge.contracts)
            if index in shown.states and (contract.kinds is None or record.action.kind in contract.kinds)
        ]
        results = [_result_text(contract, state, record) for contract, state in judging]

        def agree(index: int) -> bool:
            other = _record_of(record, shown.label, exchange.points[index], values.get(index))
            return all(
                mine is not None and _result_text(contract, state, other) == mine
                for (contract, state), mine in zip(judging, results, strict=True)
            )

        family.keep(agree)
        if values and family.alive:
            chosen = _citable(record.observation)
            cites = [_citable(values[index]) if index in values else chosen for index in range(len(exchange.points))]
            if len(set(cites)) > 1:
                self._cited.append((family, cites))

    def cited(self, key: str) -> None:
        """Provenance searched for a value, by its canonical text: drop the points at which another reply contained it."""
        for family, cites in self._cited:
            family.keep(lambda index, cites=cites: (key in cites[index]) == (key in cites[0]))  # type: ignore[misc]

    def read(self) -> None:
        """The state is about to be read: it contains everything that was kept of the delays before it."""
        for window in self._windows:
            if window.looks != self._world.looks or not self._untimed():
                for index in window.points:
                    window.exchange.family.drop(index)
        self._windows.clear()

    def finish(self, *, termination: Termination, elapsed_ms: int, horizon_ms: int) -> tuple[EquivalenceClass, ...]:
        """The perturbations that acted, in order, with their equivalent grid points."""
        self._concolic_stack.close()
        for shown in chain.from_iterable(self._shown.values()):  # never judged
            shown.exchange.family.alive = []
        found = []
        for exchange in self._exchanges.values():
            late, strangers = exchange.later_ms, exchange.strangers if exchange.local else frozenset()
            alive = [
                index
                for index in exchange.family.alive
                if index not in strangers
                and not (late.get(index, 0) and (termination == "horizon" or elapsed_ms + 1 + late[index] > horizon_ms))
            ]
            found.append(
                EquivalenceClass(
                    site=str(exchange.item.site), operator=exchange.item.operator, parameters=exchange.item.parameters,
                    local=exchange.local,
                    effect=tuple(exchange.points[index] for index in alive if index not in exchange.varied),
                    decisions=tuple(exchange.points[index] for index in alive if index in exchange.varied),
                )
            )  # fmt: skip
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """What an operator decided at a call, and what it would have decided at the other points."""

    exchange: _Exchange
    effect: Effect
    others: dict[int, Effect]


@lru_cache(maxsize=32)
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(item.name for item in fields(kind))


def _form(effect: Effect) -> Any:
    parts_ = tuple([form_of(getattr(effect, name)) for name in _field_names(cast(Hashable, type(effect)))])
    return None if None in parts_ else (type(effect), parts_)


def _longer(effect: Effect, other: Effect | None) -> int | None:
    """By how many milliseconds the other effect takes longer, if they differ in nothing else."""
    if isinstance(effect, Delay) and isinstance(other, Delay):
        return other.ms - effect.ms if (other.ms > 0) == (effect.ms > 0) else None
    if isinstance(effect, Raise) and isinstance(other, Raise):
        timed, form = replace(other, delay_ms=effect.delay_ms), _form(effect)
        return other.delay_ms - effect.delay_ms if form is not None and _form(timed) == form else None
    return None


def _at(value: Any, path: PathCondition) -> Any:
    for key in path:
        value = value[key] if isinstance(value, dict | list | tuple) else getattr(value, key)
    return value


def _observed(shown: _PerturbedRecord, record: Record) -> dict[int, Observation] | None:
    """The observations at other points; empty if the value is the same, None if they are unknown."""
    observation = record.observation
    if not shown.others:
        return {}
    if observation.error is not None or observation.cancelled or observation.opaque:
        return None
    counted = record.action.kind == "model_call"
    found = {}
    try:
        if canonical(snapshot(shown.value)) != canonical(observation.value):  # something was cut out of it
            return None
        for index in shown.exchange.family.alive:
            value = shown.others[index]
            found[index] = replace(observation, value=snapshot(value), usage=usage_of(value) if counted else EMPTY)
    except Exception:  # without a recorded form
        return None
    return found


def _record_of(record: Record, label: int, parameters: FrozenDict, observation: Observation | None) -> Record:
    """The record as it would have been at another point of the grid."""
    faults = tuple(replace(item, parameters=parameters) if at == label else item for at, item in enumerate(record.faults))
    if observation is None:
        return replace(record, faults=faults)
    heard = record.raw if record.raw is not None else record.observation if record.invoked or record.taped else None
    return replace(record, faults=faults, observation=observation, raw=if_changed(heard, observation))


def _result_text(contract: Contract, state: Any, record: Record) -> str | None:
    """A contract's result for a record, as text; None if it has no canonical form."""
    try:
        new = contract.step(state, record)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    try:
        if isinstance(new, Violated):
            return canonical(["violated", _violation_data(new), plain(state if new.state is KEEP else new.state)])
        return canonical(["state", plain(new)])
    except Exception:
        return None


def _violation_data(violated: Violated) -> list[Any]:
    said = [getattr(violated, item.name) for item in fields(violated) if item.name not in ("state", "more")]
    return [plain(said), *[_violation_data(item) for item in violated.more]]


def _citable(observation: Observation) -> frozenset[str]:
    """The parts of a reply that can be cited."""
    return frozenset(canonical(part) for part in parts(observation.value))
