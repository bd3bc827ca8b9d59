"""Which contracts were triggered: whether any record reached the trigger of a contract (vacuity).

The trigger of a formula is a formula: the left side of its implications, or for a prohibition the records that could have been
the forbidden one. Triggers are judged on the records of finished runs, by the same monitor, and only until they are reached
once. So a step of a run costs nothing more, no state is hashed, and runs of workers, forks and journals count alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mat.core.endpoint import MISSING, values_at
from mat.core.errors import MatError, did_you_mean, enumeration
from mat.core.record import ActionKind, Record
from mat.core.verdict import Severity, Verdict
from mat.monitor.compile import contract as compiled
from mat.monitor.contract import KEEP, Contract, Violated
from mat.monitor.judge import EPISODE, HARNESS, Judge
from mat.monitor.normal_form import Goal, alternatives, compares_of
from mat.monitor.temporal import (
    Always,
    And,
    AtMost,
    Atom,
    Compare,
    Eventually,
    Field,
    ForEach,
    FormulaNode,
    Next,
    Not,
    Once,
    Or,
    Previous,
    Since,
    Started,
    Until,
    Variable,
    contains,
    field_text,
    looks_ahead,
    mentions,
    subformulas,
    text,
)

_SHOWN: Final = 12
"""How many known names a reason lists."""
_ARGUMENTS: Final = ("action", "arguments")
_NAMED_KINDS: Final = frozenset(("tool_call", "retrieval", "model_call", "memory_read", "memory_write"))
"""Action kinds whose names are those of ports, which code declares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuous:
    """A contract that no record triggered, and why."""

    contract: str
    severity: Severity
    reason: str
    misnamed: bool = False
    """Whether it forbids by name what is no port, so that it can never be broken."""


# -- the trigger of a contract ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trigger:
    """What triggers a contract.

    `probe` is a contract that is broken where the trigger holds; without one, any record of `kinds` triggers it, or with
    `folds` a record that changes its state, or after which the contract's own trigger holds. `said`: the trigger in words.
    `names`: what it forbids by name. `conditions` and `ids`: the parts of the trigger, and the fields with the ids that they
    are about. `selects` and `keys`: the calls, by name, and the arguments, one of which they must have.
    """

    said: str
    kinds: frozenset[ActionKind] | None = None
    probe: Contract | None = None
    folds: bool = False
    names: tuple[tuple[ActionKind, str], ...] = ()
    conditions: tuple[FormulaNode, ...] = ()
    ids: tuple[Field, ...] = ()
    selects: frozenset[str] = frozenset()
    keys: tuple[str, ...] = ()


def _trigger_of(contract: Contract) -> _Trigger:
    kinds = _ended(contract.kinds)
    of_kinds = _Trigger(said=_kinds_text(kinds), kinds=kinds)
    if contract.trigger is not None and not contract.raw:  # records do not show what a raw contract reads
        return replace(of_kinds, folds=True, said=contract.trigger.text, selects=frozenset(contract.selects))
    if contract.formula is None and contract.selects:
        with_keys = f" with {' or '.join(contract.keys)}" if contract.keys else ""
        call = f"a call of {' or '.join(contract.selects)}{with_keys}"
        return replace(of_kinds, said=call, selects=frozenset(contract.selects), keys=contract.keys)
    if contract.formula is None:  # a fold that begins without a state is a prohibition, as a rule
        stateful = contract.start is not None and contract.predicate is None
        folds = stateful and contract.kinds is None and not contract.raw
        return replace(of_kinds, folds=folds, said="a record that changes its state") if folds else of_kinds
    parts: list[FormulaNode] = []
    conditions: list[FormulaNode] = []
    names: list[tuple[ActionKind, str]] = []
    said: list[str] = []
    for goal in contract.formula.goals:
        condition = _condition(goal.body)
        names += [name for part in _forbidden(goal.body) for name in _names(part)]
        if condition is None:  # any record at which the goal is judged
            kinds = _ended(goal.kinds)
            return replace(of_kinds, said=_kinds_text(kinds), kinds=kinds, names=tuple(names))
        conditions.append(condition)
        parts.append(_bound(goal, condition))
        by_id = f", for an id in {field_text(goal.key)}" if isinstance(goal.key, Field) else ""
        said.append(f"{text(condition)}{by_id}")
    formula = parts[0] if len(parts) == 1 else And(parts=tuple(parts))
    try:
        probe = compiled(contract.id, formula)
    except MatError:  # a condition that says nothing by itself
        return replace(of_kinds, names=tuple(names))
    return _Trigger(
        said=" or ".join(dict.fromkeys(said)), kinds=contract.kinds, probe=probe, names=tuple(names),
        conditions=tuple(conditions), ids=tuple(goal.key for goal in contract.formula.goals if isinstance(goal.key, Field)),
    )  # fmt: skip


def _ended(kinds: frozenset[ActionKind] | None) -> frozenset[ActionKind] | None:
    """The kinds of records that trigger a contract on these kinds; None (any) for terminations: some runs record no end."""
    return None if kinds and "termination" in kinds else kinds


def _kinds_text(kinds: frozenset[ActionKind] | None) -> str:
    return "a record" if kinds is None else f"a record of kind {enumeration(sorted(kinds), 'or')}"


def _bound(goal: Goal, condition: FormulaNode) -> FormulaNode:
    """A formula that is broken where the condition holds, for the goal's ids."""
    never = Always(part=Not(part=condition))
    if goal.key is None or (isinstance(goal.key, Variable) and not mentions(condition, goal.key)):
        return never
    return ForEach(key=goal.key, part=never)


def _condition(body: Any) -> FormulaNode | None:
    """The condition under which a step triggers a goal's body; None: every step does."""
    if isinstance(body, And):
        found = [_condition(part) for part in body.parts]
        kept = [part for part in found if part is not None]
        return Or(parts=tuple(kept)) if len(kept) == len(found) else None
    guards, consequences = _sides(body)
    asked: list[FormulaNode | None] = list(guards)
    for part in consequences:
        if isinstance(part, AtMost) and part.count == 0 and len(guards) == 1:
            asked = [_possible(part.part)]
        elif isinstance(part, Not) and not (guards and _has_operator(part)):
            asked.append(_possible(part.part))
        elif isinstance(part, Compare) and part.operator == "!=":
            asked.append(_possible(part))
    conditions = [part for part in asked if part is not None]
    if isinstance(body, Or) and any(isinstance(part, Started) for part in body.parts):  # judged at the first step only
        conditions += [Not(part=Previous(part=Atom(text="any record")))] if guards else []
    return conditions[0] if len(conditions) == 1 else And(parts=tuple(conditions)) if conditions else None


def _sides(body: Any) -> tuple[list[FormulaNode], list[FormulaNode]]:
    """The left sides of a body's implications, and what must hold then; of several prohibitions the last is what must hold."""
    guards: list[FormulaNode] = []
    consequences: list[FormulaNode] = []
    for part in alternatives(body):
        if isinstance(part, Started):
            continue
        if isinstance(part, Not) and not looks_ahead(part):
            guards.append(part.part)
        else:
            consequences.append(part)
    if not consequences and guards:
        consequences.append(Not(part=guards.pop()))
    return guards, consequences


def _forbidden(body: Any) -> Iterator[FormulaNode]:
    """The formulas that must not hold; one that matches no record can never hold, so its contract is never broken."""
    if isinstance(body, And):
        for part in body.parts:
            yield from _forbidden(part)
        return
    for part in _sides(body)[1]:
        if isinstance(part, Not) or (isinstance(part, AtMost) and part.count == 0):
            yield part.part


def _has_operator(node: FormulaNode) -> bool:
    return contains(node, Once | Since | Previous | AtMost | Eventually | Until | Next)


def _possible(node: FormulaNode) -> FormulaNode | None:
    """The records that could have been what a prohibition forbids: of its kind, with the fields it compares. None: all."""
    match node:
        case Atom(kinds=kinds, compares=compares):
            wanted = tuple(item for item in map(_present, compares) if item is not None)
            kinds = _ended(kinds)
            return Atom(text=_atom_text(kinds, wanted), kinds=kinds, compares=wanted) if kinds or wanted else None
        case Compare():
            return _present(node)
        case And(parts=parts):
            found = [part for part in map(_possible, parts) if part is not None]
            return And(parts=tuple(found)) if found else None
        case Or(parts=parts):
            options = [_possible(part) for part in parts]
            known = [part for part in options if part is not None]
            return Or(parts=tuple(known)) if len(known) == len(options) else None
        case Once(part=part) | Eventually(part=part) | AtMost(part=part) | Next(part=part) | Previous(part=part):
            return _possible(part)
        case Since(right=right) | Until(right=right):
            return _possible(right)
        case _:
            return None


def _present(item: Compare) -> Compare | None:
    """A formula: the compared field is there. None if the comparison is about its absence, or with an earlier step."""
    if item.right is None or item.left.before or len(item.left.paths) > 1:
        return None
    return Compare(left=item.left, operator="!=", right=None)


def _atom_text(kinds: frozenset[ActionKind] | None, compares: Sequence[Compare]) -> str:
    said = _kinds_text(kinds)
    return f"{said} with {' and '.join(field_text(item.left) for item in compares)}" if compares else said


def _names(node: FormulaNode) -> Iterator[tuple[ActionKind, str]]:
    for part in subformulas(node):
        if isinstance(part, Atom) and part.name is not None and part.kinds and len(part.kinds) == 1:
            (kind,) = part.kinds
            if kind in _NAMED_KINDS:
                yield kind, part.name


def named_ports(contract: Contract) -> tuple[str, ...]:
    """The ports that a contract names: in its formula, or in the arguments of its template. A fold of the user's names none."""
    goals = () if contract.formula is None else contract.formula.goals
    named = [name for goal in goals for _, name in _names(goal.body)]
    return tuple(sorted({*contract.selects, *named}))


# -- the triggers of several contracts --------------------------------------------------------------------------------


class Triggers:
    """Which of several contracts were triggered by the runs noted so far."""

    def __init__(self, contracts: Iterable[Contract]) -> None:
        self._contracts = {contract.id: contract for contract in contracts}
        self._triggers = {name: _trigger_of(contract) for name, contract in self._contracts.items()}
        self._waiting = dict(self._triggers)
        self._seen: set[tuple[ActionKind, str]] = set()
        self._arguments: set[str] = set()
        self._names = any(trigger.names or trigger.selects for trigger in self._triggers.values())
        self._kinds: dict[str, frozenset[ActionKind] | None] = {}
        self._states: dict[str, Any] = {}
        self._selected: dict[str, _Trigger] = {}
        self._judge: Judge | None = None

    @property
    def waiting(self) -> tuple[str, ...]:
        """The contracts that nothing triggered yet, by id."""
        return tuple(self._waiting)

    @property
    def hard(self) -> frozenset[str]:
        """The ids of the hard contracts."""
        return frozenset(name for name, contract in self._contracts.items() if contract.severity == "hard")

    def note(self, records: Sequence[Record]) -> None:
        """Note the records of a run; each of its episodes is judged from its own start."""
        if not self._waiting and not self._names:
            return
        self.begin()
        episode = records[0].state.get(EPISODE) if records else None
        for record in records:
            if record.state.get(EPISODE) != episode:
                episode = record.state.get(EPISODE)
                self.begin()
            self.fold(record)

    def reached(self, contract: str) -> None:
        """Note that a contract was triggered: it was broken, for instance."""
        if self._waiting.pop(contract, None) is not None:
            self._kinds.pop(contract, None)
            self._selected.pop(contract, None)
            self._states.pop(contract, None)

    def begin(self) -> None:
        """Begin another run, or another episode of one."""
        probes = [trigger.probe for trigger in self._waiting.values() if trigger.probe is not None]
        self._judge = Judge(probes) if probes else None
        plain = {name: trigger for name, trigger in self._waiting.items() if trigger.probe is None}
        self._selected = {name: trigger for name, trigger in plain.items() if trigger.selects and not trigger.folds}
        self._kinds = {name: trigger.kinds for name, trigger in plain.items() if not (trigger.folds or trigger.selects)}
        self._states = {name: self._contracts[name].start for name, trigger in plain.items() if trigger.folds}

    def fold(self, record: Record) -> None:
        """Note the next record of the run."""
        kind, acted = record.action.kind, record.agent != HARNESS
        self._seen.add((kind, record.action.name))
        self._arguments.update(record.action.arguments)
        for name, trigger in list(self._selected.items()):
            if record.action.name in trigger.selects and (
                not trigger.keys or any(_has(record.action.arguments, key) for key in trigger.keys)
            ):
                self.reached(name)
        for name, kinds in list(self._kinds.items()):
            if (acted and kinds is None) or (kinds is not None and kind in kinds):
                self.reached(name)
        for name, state in list(self._states.items()):
            self._fold_state(name, state, record, acted)
        if self._judge is not None:
            folded = self._judge.fold(record)
            for found in folded.violations if isinstance(folded, Verdict) else ():
                if acted or kind in (self._contracts[found.contract].kinds or ()):
                    self.reached(found.contract)

    def _fold_state(self, name: str, state: Any, record: Record, acted: bool) -> None:
        """Fold a record once more by a contract whose kinds do not say what triggers it."""
        contract = self._contracts[name]
        if contract.kinds is not None and record.action.kind not in contract.kinds:
            return
        try:
            after = contract.step(state, record)
            if isinstance(after, Violated):
                triggered, after = True, state if after.state is KEEP else after.state
            elif contract.trigger is not None:
                triggered = contract.trigger.holds(after, record)
            else:
                triggered = after is not state and bool(after != state)
        except Exception:  # it could not judge this step, so this step triggered it
            triggered, after = True, state
        self._states[name] = after
        if triggered and acted:
            self.reached(name)

    def vacuous(self, known: Iterable[tuple[str, str]]) -> tuple[Vacuous, ...]:
        """The contracts that nothing triggered, and those that forbid by name what is no port.

        `known`: ports besides those of the runs, as (action kind, name).
        """
        ports = {(str(kind), name) for kind, name in (*known, *self._seen)}
        found = []
        for name, trigger in self._triggers.items():
            strange = [each for each in trigger.names if each not in ports]
            lost = _unknown_ports(trigger, ports)
            if name in self._waiting:
                reason = f"nothing triggered it; it is triggered by {trigger.said}"
                reason += _unknown_text(trigger, ports, self._arguments)
            elif lost:
                reason = f"a part of it is never triggered{_names_text(lost[0], ports)}"
            elif strange:
                reason = f"it can never be broken{_names_text(strange[0], ports)}"
            else:
                continue
            severity = self._contracts[name].severity
            found.append(Vacuous(contract=name, severity=severity, reason=reason, misnamed=bool(strange)))
        return tuple(found)


def _has(arguments: Mapping[str, Any], key: str) -> bool:
    """Whether a call has an argument of this name, a member at this path, or this header, which is recorded in lower case."""
    return key.lower() in arguments or any(found is not MISSING for found in values_at(arguments, key))


def _unknown_ports(trigger: _Trigger, ports: set[tuple[str, str]]) -> list[tuple[ActionKind, str]]:
    """The names that a trigger selects calls by, and that no port has, with the kind of call that is most often meant."""
    known = {name for _, name in ports}
    return [("tool_call", name) for name in sorted(trigger.selects) if name not in known]


def _unknown_text(trigger: _Trigger, ports: set[tuple[str, str]], arguments: set[str]) -> str:
    """The first name of a port, or else of an argument, in a trigger that nobody knows, and the nearest known one."""
    named = [*(name for part in trigger.conditions for name in _names(part)), *trigger.names]
    strange = [*(name for name in named if name not in ports), *_unknown_ports(trigger, ports)]
    if strange:
        return _names_text(strange[0], ports)
    fields = [*(item.left for part in trigger.conditions for item in compares_of(part)), *trigger.ids]
    unknown = [key.partition(".")[0] for key in trigger.keys]
    unknown += [path[2] for item in fields for path in item.paths if path[:2] == _ARGUMENTS and len(path) > 2]
    missing = [name for name in unknown if name not in arguments]
    return f"; no call has an argument {missing[0]!r}{did_you_mean(missing[0], sorted(arguments))}" if missing else ""


def _names_text(strange: tuple[ActionKind, str], ports: set[tuple[str, str]]) -> str:
    """What to say of a name that no known port has: the nearest, and the known ones."""
    kind, name = strange
    known = sorted(port for of_kind, port in ports if of_kind == kind)
    said = f"; no known port is called {name!r} ({kind}){did_you_mean(name, known)}"
    if not known:
        return said
    more = f", and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return f"{said} (known: {', '.join(known[:_SHOWN])}{more})"


def reached(contracts: Iterable[Contract], records: Sequence[Record]) -> frozenset[str]:
    """The ids of the contracts that the records of a run triggered."""
    armed = tuple(contracts)
    triggers = Triggers(armed)
    triggers.note(records)
    return frozenset(contract.id for contract in armed) - frozenset(triggers.waiting)
