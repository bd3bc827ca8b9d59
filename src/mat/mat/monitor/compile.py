"""From a formula to one fold: a generated function whose state is a tuple with a slot for each past operator.

Code is generated because a fold runs at every step of every run of a search: shared subformulas are evaluated once, and an
atom's kind and name are compared in line. Nothing of a user's text enters the code; predicates are passed by reference.

A step is skipped where it can change neither the truth of the formula nor a slot. `_true_kinds` and `_false_kinds` bound
the action kinds at which a formula can be true, or false; an atom is false at every other kind, so a slot of once(phi) can
only change where phi can be true. That is why the dispatch by kind is sound (tests/monitor compares it with every step).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mat.core.errors import SpecError
from mat.core.record import ActionKind
from mat.core.verdict import Severity
from mat.monitor.contract import Contract, ContractPolicy, Violated
from mat.monitor.temporal import Always, And, Atom, Formula, Node, Not, Once, Or, _node, text

Kinds = frozenset[ActionKind] | None
"""None: any kind."""


def contract(
    id: str,
    formula: Formula,
    *,
    severity: Severity = "hard",
    weight: float = -1.0,
    policy: ContractPolicy = "observe",
    repair: str = "",
    message: str = "",
) -> Contract:
    """A contract from a formula. always(phi) is judged at every step; anything else must hold at the last one."""
    node = _node(formula)
    top = node.part if isinstance(node, Always) else node
    compiler = _Compiler()
    value = compiler.value(top)
    at_end = not isinstance(node, Always)
    step, start = compiler.fold(value, at_end=at_end, said=message or _said(top), repair=repair, empty=_of_nothing(top))
    kinds: Kinds = None if at_end else _union(_false_kinds(top), *compiler.slot_kinds)
    finish: Callable[[Any], Violated | None] | None = None
    if at_end:
        said = message or f"at the end {text(top)} does not hold"

        def closed(state: Any) -> Violated | None:
            return None if state[-1] else Violated(said, repair=repair)

        finish = closed
    return Contract(
        id=id, step=step, start=start, finish=finish, kinds=kinds, severity=severity, weight=weight, policy=policy,
        repair=repair, text=text(node),
    )  # fmt: skip


def _said(node: Node) -> str:
    """The violation in words: for `a implies b`, a happened without b."""
    match node:
        case Or(parts=(Not(part=left), right)):
            return f"{text(left)} without {text(right)}"
        case Not(part=part):
            return f"{text(part)} happened"
        case _:
            return f"{text(node)} does not hold"


def _of_nothing(node: Node) -> bool:
    """The value on an empty trace: nothing happened, so no atom is true and nothing was true before."""
    match node:
        case Not(part=part):
            return not _of_nothing(part)
        case And(parts=parts):
            return all(_of_nothing(part) for part in parts)
        case Or(parts=parts):
            return any(_of_nothing(part) for part in parts)
        case _:
            return False


class _Compiler:
    """Emits one assignment per distinct subformula, inner ones first."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._names: dict[int, str] = {}
        self._kept: list[Node] = []
        self._scope: dict[str, Any] = {"Violated": Violated}
        self._slots: list[str] = []
        self._starts: list[Any] = []
        self.slot_kinds: list[Kinds] = []

    def value(self, node: Node) -> str:
        """The name of the local that holds the node's value at this step."""
        known = self._names.get(id(node))
        if known is not None:
            return known
        expression = self._expression(node)
        name = f"v{len(self._names)}"
        self._lines.append(f"{name} = {expression}")
        self._names[id(node)] = name
        self._kept.append(node)
        return name

    def _expression(self, node: Node) -> str:
        match node:
            case Atom():
                return self._atom(node)
            case Not(part=part):
                return f"not {self.value(part)}"
            case And(parts=parts):
                return " and ".join([self.value(part) for part in parts])
            case Or(parts=parts):
                return " or ".join([self.value(part) for part in parts])
            case Once():
                return self._once(node)
            case Always():
                raise SpecError(
                    what="always(...) stands inside another formula",
                    why="it speaks of the whole trace, so it has no value at a step",
                    fix="use historically(...) inside, and always(...) once, outermost",
                )

    def _atom(self, atom: Atom) -> str:
        tests = []
        if atom.kinds is not None:
            if len(atom.kinds) == 1:
                tests.append(f"kind == {self._constant(next(iter(atom.kinds)))}")
            else:
                tests.append(f"kind in {self._constant(atom.kinds)}")
        if atom.name is not None:
            tests.append(f"action.name == {self._constant(atom.name)}")
        if atom.test is not None:
            tests.append(f"{self._constant(atom.test)}(record)")
        return " and ".join(tests) or "True"

    def _once(self, node: Once) -> str:
        part = self.value(node.part)
        self.slot_kinds.append(_true_kinds(node.part))
        if node.within is None and node.within_ms is None:
            slot = self._slot(-1)
            self._lines.append(f"if {part}: {slot} = 0")
            return f"{slot} >= 0"
        checks = []
        for bound, now in ((node.within, "record.step"), (node.within_ms, "record.at_ms")):
            if bound is not None:  # the latest occurrence is nearest in steps and in time
                slot = self._slot(-1)
                self._lines.append(f"if {part}: {slot} = {now}")
                checks.append(f"{slot} >= 0 and {now} - {slot} <= {bound}")
        return " and ".join(checks)

    def _slot(self, start: Any) -> str:
        name = f"s{len(self._slots)}"
        self._slots.append(name)
        self._starts.append(start)
        return name

    def _constant(self, value: Any) -> str:
        name = f"c{len(self._scope)}"
        self._scope[name] = value
        return name

    def fold(
        self, value: str, *, at_end: bool, said: str, repair: str, empty: bool = False
    ) -> tuple[Callable[[Any, Any], Any], Any]:
        if at_end:
            last = self._slot(empty)
            self._lines.append(f"{last} = bool({value})")
        slots = self._slots
        packed = "(" + "".join(f"{slot}, " for slot in slots) + ")"
        self._scope.update(said=said, repair=repair)
        body = []
        if slots:
            body.append(f"{packed} = state")
        body += ["action = record.action", "kind = action.kind", *self._lines]
        if slots:
            body.append(f"if {packed} != state: state = {packed}")
        if not at_end:
            body.append(f"if not {value}: return Violated(said, repair, state)")
        body.append("return state")
        source = "def step(state, record):\n    " + "\n    ".join(body) + "\n"
        exec(compile(source, "<contract>", "exec"), self._scope)  # names and numbers of ours only
        return self._scope["step"], tuple(self._starts)


def _true_kinds(node: Node) -> Kinds:
    match node:
        case Atom(kinds=kinds):
            return kinds
        case Not(part=part):
            return _false_kinds(part)
        case And(parts=parts):
            return _intersection(*[_true_kinds(part) for part in parts])
        case Or(parts=parts):
            return _union(*[_true_kinds(part) for part in parts])
        case _:
            return None


def _false_kinds(node: Node) -> Kinds:
    match node:
        case Not(part=part):
            return _true_kinds(part)
        case And(parts=parts):
            return _union(*[_false_kinds(part) for part in parts])
        case Or(parts=parts):
            return _intersection(*[_false_kinds(part) for part in parts])
        case _:
            return None


def _union(*sets: Kinds) -> Kinds:
    found: frozenset[ActionKind] = frozenset()
    for kinds in sets:
        if kinds is None:
            return None
        found |= kinds
    return found


def _intersection(*sets: Kinds) -> Kinds:
    found: Kinds = None
    for kinds in sets:
        if kinds is not None:
            found = kinds if found is None else found & kinds
    return found
