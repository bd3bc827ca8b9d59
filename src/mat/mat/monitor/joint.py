"""The joint monitor: all armed contracts as one function of a record, dispatched by action kind.

The lines of formulas are inlined and other folds are called, because this function runs at every step of every run. A
contract that raises misses that step: it keeps its state, and the others go on judging. Formulas read the record before they
change anything, so the step can be repeated without the contract that raised. Other folds have only the state that they
return.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from mat.core.errors import SpecError
from mat.core.record import Record
from mat.core.verdict import Verdict
from mat.monitor.contract import KEEP, Contract, Violated
from mat.monitor.deep import room_for
from mat.monitor.layout import CompiledState
from mat.monitor.program import CompiledFormula, Program, program_of, shape_of

Folded: TypeAlias = Verdict | tuple[str, ...]
Fold: TypeAlias = Callable[..., Folded]
"""(record, record before redaction or None) -> the violations of the step, or only which contracts judged it."""
_FREQUENT: Final = ("tool_call", "model_call", "message", "verification", "retrieval")
_PROGRAMS: Final = 512


class MonitorHost(Protocol):
    """What a joint monitor needs from the judge that it belongs to."""

    def formula_violated(self, goal: int, record: Record, found: Any, key: Any, start: int, seen: tuple[int, ...]) -> Any: ...
    def violated(self, position: int, new: Violated, record: Record, found: Any) -> Any: ...
    def crashed(self, position: int, record: Record, error: Exception, found: Any) -> Any: ...
    def formulas_crashed(self, record: Record, raw: Record | None, error: Exception) -> Folded: ...
    def verdict(self, record: Record, checked: tuple[str, ...], found: Any) -> Verdict: ...
    def partly(self, record: Record, checked: tuple[str, ...], crashed: tuple[int, ...], found: Any) -> Folded: ...


@dataclass(frozen=True, slots=True)
class _Code:
    """Generated code for contracts of one shape."""

    program: Program
    objects: tuple[Any, ...]
    kinds: tuple[str, ...]
    """Action kinds with a branch of their own; the last branch is for all others."""
    judging: tuple[tuple[int, ...], ...]
    """For each branch, the positions of the contracts that judge it."""
    make: Callable[..., tuple[Fold, Callable[[], Any]]]


_codes: dict[Any, _Code] = {}
"""Generated code by shape: fixtures create new contracts for every run of a search, with the same few shapes."""


class JointMonitor:
    """One function for all given contracts, with their states. A contract's position is its index among them."""

    __slots__ = ("_code", "_formulas", "_live", "_offsets", "_program", "contracts", "fold", "places")

    def __init__(self, contracts: Sequence[Contract], host: MonitorHost, states: Sequence[Any] | None = None) -> None:
        self.contracts = tuple(contracts)
        self.places = [position for position, contract in enumerate(self.contracts) if contract.formula is not None]
        self._formulas: list[CompiledFormula] = [self.contracts[position].formula for position in self.places]
        objects = tuple(held for item in self._formulas for held in item.objects)
        self._code = _code(self.contracts, self._formulas, objects)
        self._program = self._code.program.holding(self._code.objects, objects)
        self._offsets = [sum(len(item.goals) for item in self._formulas[:place]) for place in range(len(self._formulas))]
        begun = [contract.start for contract in self.contracts] if states is None else list(states)
        joint = self._program.initial
        if states is not None and self.places:
            joint = self._program.joined(
                [(program_of((item,)), begun[position]) for position, item in zip(self.places, self._formulas, strict=True)]
            )
        slots, extra = self._program.live(joint)
        checked = [tuple(self.contracts[position].id for position in positions) for positions in self._code.judging]
        alone = [
            (contract.step, state) for contract, state in zip(self.contracts, begun, strict=True) if contract.formula is None
        ]
        self.fold, self._live = self._code.make(
            host, KEEP, Violated, checked, [step for step, _ in alone], [state for _, state in alone], slots, extra,
            list(self._program.constants.values()),
        )  # fmt: skip

    def states(self) -> list[Any]:
        """The state of every contract, as its `step` takes it."""
        slots, alone, _ = self._live()
        joint, rest = self._program.saved(slots), iter(alone)
        made = []
        for position, contract in enumerate(self.contracts):
            if contract.formula is None:
                made.append(next(rest))
                continue
            place = self.places.index(position)
            item = self._formulas[place]
            made.append(self._program.extracted(joint, self._offsets[place], program_of((item,)), len(item.goals)))
        return made

    def state(self, position: int) -> Any:
        """The state of one contract."""
        return self.states()[position]

    def tried(self, position: int, records: Sequence[Record]) -> list[Violated]:
        """The violations that the last of several records would add to a formula of the past. Changes nothing.

        The states of ids are read through an overlay, so the cost does not grow with their number.
        """
        formula: CompiledFormula = self.contracts[position].formula
        program, offset = program_of((formula,)), self._offsets[self.places.index(position)]
        live = dict(zip((slot.name for slot in self._program.slots), self._live()[0], strict=True))
        mine = {
            own: live[name]
            for goal in range(len(formula.goals))
            for own, name in zip(program.used[goal], self._program.used[offset + goal], strict=True)
        }
        slots: list[Any] = []
        for slot in program.slots:
            value = mine[slot.name]
            slots.append(Overlay(value) if slot.slice is not None else deque(value) if slot.form == "queue" else value)
        host = _Alone(formula)
        fold = _code((_BareFormula(formula, program.initial),), [formula], formula.objects).make(  # type: ignore[arg-type]
            host, KEEP, Violated, [()] * (len(program.kinds) + 1), [], [], slots, [deque() for _ in program.extra],
            list(program.constants.values()),
        )[0]  # fmt: skip
        for record in records:
            host.found.clear()
            fold(record)
        return host.found

    def canonical(self) -> tuple[CompiledState, list[Any]]:
        """The states in canonical form: one of all formulas together, one of each other contract."""
        slots, alone, _ = self._live()
        return self._program.saved(slots), list(alone)

    def evaluations(self) -> list[int]:
        """How often each contract has judged a step."""
        found = [0] * len(self.contracts)
        for positions, count in zip(self._code.judging, self._live()[2], strict=True):
            for position in positions:
                found[position] += count
        return found

    def judging(self, kind: str) -> tuple[int, ...]:
        """The positions of the contracts that judge an action kind."""
        kinds = self._code.kinds
        return self._code.judging[kinds.index(kind) if kind in kinds else len(kinds)]


def _code(contracts: Sequence[Contract], formulas: Sequence[CompiledFormula], objects: tuple[Any, ...]) -> _Code:
    positions = tuple((contract.formula is None, contract.kinds, contract.raw) for contract in contracts)
    key = (shape_of(formulas, objects), positions)
    known = _codes.get(key)
    if known is None:
        if len(_codes) >= _PROGRAMS:
            _codes.clear()
        with room_for(max((item.depth for item in formulas), default=0)):
            known = _codes[key] = _compile(contracts, Program([goal for item in formulas for goal in item.goals]), objects)
    return known


def _compile(contracts: Sequence[Contract], program: Program, objects: tuple[Any, ...]) -> _Code:
    mentioned = {kind for contract in contracts for kind in contract.kinds or ()} | set(program.kinds)
    kinds = [kind for kind in _FREQUENT if kind in mentioned] + sorted(mentioned - set(_FREQUENT))
    judging, bodies, assigned = [], [], set()
    for branch, kind in enumerate([*kinds, None]):
        positions = tuple(position for position, item in enumerate(contracts) if item.kinds is None or kind in item.kinds)
        judging.append(positions)
        inlined = any(contracts[position].formula is not None for position in positions)
        lines, changed = program.body(kind if kind in program.kinds else None) if inlined else ([], set())
        assigned |= changed
        bodies.append(_branch(branch, contracts, positions, lines))
    source = _source(contracts, program, kinds, bodies, assigned)
    scope: dict[str, Any] = {}
    try:
        exec(compile("\n".join(source), "<contracts>", "exec"), scope)  # only numbers, literals and our own names
    except (SyntaxError, RecursionError, MemoryError) as error:
        if isinstance(error, SyntaxError) and "too many" not in str(error):
            raise
        raise too_deep(f"a formula of {', '.join(contract.id for contract in contracts) or 'a contract'}") from error
    return _Code(program, objects, tuple(kinds), tuple(judging), scope["make"])


def too_deep(what: str) -> SpecError:
    return SpecError(
        what=f"{what} is nested too deeply",
        why="Python compiles about two hundred levels, and every implies, ~ and temporal operator adds one",
        fix='compare one field with many values by field("name").among([...]), or test everything in one predicate(...)',
    )


def _branch(branch: int, contracts: Sequence[Contract], positions: Sequence[int], formulas: list[str]) -> list[str]:
    """The lines that judge a record of one action kind."""
    alone = [position for position in positions if contracts[position].formula is None]
    if not formulas and not alone:
        return [*([f"n{branch} += 1"] if positions else []), f"return checked{branch}"]
    lines = ["found = None"]
    if formulas:
        lines += ["try:", *[f"    {line}" for line in formulas]]
        lines += ["except Exception as error:", "    return host.formulas_crashed(record, raw, error)"]
    lines.append(f"n{branch} += 1")
    if alone:
        lines.append("crashed = ()")
    for position in alone:
        given = "record if raw is None else raw" if contracts[position].raw else "record"
        lines += [
            "try:",
            f"    new = step{position}(t{position}, {given})",
            "except Exception as error:",
            f"    found, crashed = host.crashed({position}, record, error, found), (*crashed, {position})",
            "else:",
            f"    if new is not t{position}:",
            "        if type(new) is Violated:",
            f"            found = host.violated({position}, new, record, found)",
            f"            if new.state is not KEEP: t{position} = new.state",
            "        else:",
            f"            t{position} = new",
        ]
    if alone:
        lines.append(f"if crashed: return host.partly(record, checked{branch}, crashed, found)")
    return [*lines, f"return checked{branch} if found is None else host.verdict(record, checked{branch}, found)"]


def _source(
    contracts: Sequence[Contract], program: Program, kinds: Sequence[str], bodies: Sequence[list[str]], assigned: set[str]
) -> list[str]:
    slots, extra = [slot.name for slot in program.slots], program.extra
    alone = [position for position, contract in enumerate(contracts) if contract.formula is None]
    states, counts = [f"t{position}" for position in alone], [f"n{branch}" for branch in range(len(bodies))]
    unpacked = {
        "checked": [f"checked{branch}" for branch in range(len(bodies))], "steps": [f"step{position}" for position in alone],
        "states": states, "slots": slots, "extra": extra, "constants": list(program.constants),
    }  # fmt: skip
    changing = sorted({*assigned, *states, *counts})
    lines = [
        f"def make(host, KEEP, Violated, {', '.join(unpacked)}):",
        "    report = host.formula_violated",
    ]
    lines += [f"    ({', '.join(names)},) = {name}" for name, names in unpacked.items() if names]
    lines += [f"    {name} = 0" for name in counts]
    lines += ["    def fold(record, raw=None):", f"        nonlocal {', '.join(changing)}"]
    lines += [
        "        action = record.action",
        "        kind = action.kind",
    ]
    for kind, body in zip(kinds, bodies, strict=False):
        lines += [f"        if kind == {kind!r}:", *[f"            {line}" for line in body]]
    lines += [f"        {line}" for line in bodies[-1]]
    lines += ["    def live():", f"        return [{', '.join(slots)}], [{', '.join(states)}], [{', '.join(counts)}]"]
    lines.append("    return fold, live")
    return lines


@dataclass(frozen=True, slots=True)
class _BareFormula:
    """A formula without its contract, with the attributes that `JointMonitor` needs."""

    formula: CompiledFormula
    start: CompiledState
    id: str = ""
    step: None = None
    kinds: None = None
    raw: bool = False


class Overlay(dict[Any, Any]):
    """A mapping of ids to states that keeps changes apart from the mapping below it."""

    __slots__ = ("_base",)

    def __init__(self, base: dict[Any, Any]) -> None:
        self._base = base

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key] if key in self else self._base.get(key, default)

    def pop(self, key: Any, default: Any = None) -> None:
        self[key] = None

    __delitem__ = pop


class _Alone:
    """The host of a single formula: it collects violations, and lets exceptions through."""

    def __init__(self, formula: CompiledFormula) -> None:
        self._formula = formula
        self.found: list[Violated] = []

    def formula_violated(self, goal: int, record: Record, found: Any, key: Any, start: int, seen: tuple[int, ...]) -> None:
        self.found.append(self._formula.texts[goal].violated(record.step, key, start, seen))

    def formulas_crashed(self, record: Record, raw: Record | None, error: Exception) -> Folded:
        raise error


def fold_alone(formula: CompiledFormula, state: CompiledState, record: Record) -> tuple[list[Violated], CompiledState]:
    """Fold one step of one formula from a given state: its violations, and the next state."""
    host = _Alone(formula)
    monitor = JointMonitor((_BareFormula(formula, state),), host, (state,))  # type: ignore[arg-type]
    monitor.fold(record)
    found = sorted(host.found, key=lambda item: (item.since, item.instance, item.message))  # ids have no order of their own
    return found, monitor.states()[0]
