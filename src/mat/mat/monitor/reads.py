"""Emit the reads of a record: fields, comparisons, atoms.

The code for a record has two halves: first all reads, then the updates of the state. Only the reads can raise, because they run
user code, so a crash leaves the state unchanged. `asking` and `asked` add to the first half.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from mat.core.record import ActionKind
from mat.monitor.deep import remembered
from mat.monitor.expressions import FALSE, TRUE, conjunction, disjunction, is_deep, negated, used
from mat.monitor.layout import JointGoals
from mat.monitor.normal_form import compares_of
from mat.monitor.temporal import And, Atom, Compare, Field, FormulaNode, Not, Or, Variable, Window, children

_HEADER: Final = {  # in addition to action and kind
    "observation": "record.observation",
    "arguments": "action.arguments",
    "name": "action.name",
    "state": "record.state",
    "step": "record.step",
    "at": "record.at_ms",
}
_KNOWN: Final = ("step", "at", "name", "record.agent", "record.role", "record.site", "record.effected", "record.invoked")
"""Locals that are never None."""
_SHARED: Final = re.compile(r"\((u\d+) if \1 is not None else \(\1 := ")
_ORDERS: Final = ("<", "<=", ">", ">=")


@remembered
def safe(node: FormulaNode) -> bool:
    """Whether reading a field runs no user code and cannot raise."""
    if isinstance(node, Atom) and node.test is not None:
        return False
    for item in compares_of(node) if isinstance(node, Atom | Compare) else ():
        sides = [side for side in (item.left, item.right) if isinstance(side, Field)]
        counted = item.left.paths in ((("step",),), (("at_ms",),)) and type(item.right) is int
        if not (item.operator in ("==", "!=", "in") or counted) or any(side.function is not None for side in sides):
            return False
    return all(safe(part) for part in children(node))


def _is_group(field: Field) -> bool:
    """Whether the field is several values."""
    return len(field.paths) > 1


def _flat(node: FormulaNode, positive: bool, disjunctive: bool) -> Iterator[tuple[FormulaNode, bool]]:
    """(part, whether it is not negated) of a connective, those of the same connective inside included: ~(a | b) is ~a & ~b."""
    if isinstance(node, Not):
        yield from _flat(node.part, not positive, disjunctive)
    elif isinstance(node, And | Or) and (isinstance(node, Or) is positive) is disjunctive:
        for part in node.parts:
            yield from _flat(part, positive, disjunctive)
    else:
        yield node, positive


def plain(item: Compare) -> bool:
    """Whether a comparison depends only on the record."""
    sides = [side for side in (item.left, item.right) if isinstance(side, Field)]
    return not isinstance(item.right, Variable) and not any(side.before for side in sides)


class RecordReads:
    """Emits the reads of a record of one kind (None: a kind that no formula mentions), each only once."""

    def __init__(self, joint: JointGoals, kind: ActionKind | None) -> None:
        self.joint, self.kind = joint, kind
        self._asks: list[str] = []
        self._firsts: list[str] = []
        self._needs: set[str] = set()
        self._fields: dict[Any, str] = {}
        self._asked: dict[int, tuple[str, FormulaNode]] = {}
        self._onces: dict[int, str] = {}
        self._locals = 0

    def lines(self, updates: Sequence[str]) -> list[str]:
        """All reads, then the updates, without unused values."""
        head = [f"{local} = {expression}" for local, expression in _HEADER.items() if local in self._needs]
        return used([*head, *self._firsts, *self._asks, *updates])

    def elapsed(self, since: tuple[str, str], sign: str, steps: int | None, milliseconds: int | None) -> list[str]:
        """The distances from (step, time) to this step compared with bounds; None: no bound."""
        tests = [] if steps is None else [f"{self.need('step')} - {since[0]} {sign} {steps}"]
        return tests if milliseconds is None else [*tests, f"{self.need('at')} - {since[1]} {sign} {milliseconds}"]

    def now(self, window: Window) -> str:
        """This step as an entry of a queue: with its time where the window needs it."""
        return f"({self.need('step')}, {self.need('at')})" if window.timed else self.need("step")

    def local(self, prefix: str) -> str:
        """A new name for a local variable."""
        self._locals += 1
        return f"{prefix}{self._locals}"

    def need(self, name: str) -> str:
        """The name of a local of `_HEADER`, which is assigned at the top of the code because something needs it."""
        self._needs.add(name)
        return name

    def field(self, field: Field) -> str:
        """The name of a local that holds a field."""
        key = (field.paths, field.function)
        if key not in self._fields:
            expression = self._field(field)
            self._fields[key] = expression if expression in _KNOWN else self.asked(expression, "f")
        return self._fields[key]

    def _field(self, field: Field) -> str:
        if field.function is not None:
            return f"{self.joint.constant(field.function)}(record)"
        if len(field.paths) == 1:
            return self._read(field.paths[0])
        return f"({', '.join(self._read(path) for path in field.paths)})"

    def _side(self, field: Field) -> str:
        """A field that is compared: read in place if it is needed once and reading it cannot raise."""
        shared = self.joint.fields[field.paths, field.function] > 1
        return self.field(field) if shared or field.function is not None else self._field(field)

    def _read(self, path: tuple[str, ...]) -> str:
        match path:
            case ("action", "kind") if self.kind is not None:
                return repr(self.kind)
            case ("action", "name"):
                return self.need("name")
            case ("action", "arguments", *rest) if rest:
                return self._nested(self.need("arguments"), rest)
            case ("action", attribute):
                return f"action.{attribute}"
            case ("observation", "error", attribute):
                error = f"{self.need('observation')}.error"
                return f"(None if {error} is None else {error}.{attribute})"
            case ("mediation", attribute):
                return f"(None if record.mediation is None else record.mediation.{attribute})"
            case ("observation", attribute, *rest):
                return self._nested(f"{self.need('observation')}.{attribute}", rest)
            case ("state", *rest) if rest:
                return self._nested(self.need("state"), rest)
            case ("step",):
                return self.need("step")
            case ("at_ms",):
                return self.need("at")
            case (attribute,):
                return f"record.{attribute}"
        raise AssertionError(path)

    @staticmethod
    def _nested(base: str, rest: Sequence[str]) -> str:
        if not rest:
            return base
        if len(rest) == 1 and base in ("arguments", "state"):
            return f"{base}.get({rest[0]!r})"
        return f"dig({base}, {', '.join(map(repr, rest))})"

    def _is_written_out(self, field: Field) -> bool:
        """Whether the code has a literal for the field, which is never None: Python warns of `'tool_call' is None`."""
        return field.function is None and (
            len(field.paths) > 1 or (field.paths == (("action", "kind"),) and self.kind is not None)
        )

    def ask(self, node: FormulaNode, positive: bool = True) -> str:
        """A formula about the record alone, or its negation.

        Reads that can raise, or are needed more than once, are done in the first half and get a name.
        """
        if self.joint.uses[id(node)] <= 1 and safe(node):
            return self._present(node, positive)
        if not positive:
            return negated(self.ask(node))
        if id(node) not in self._asked:
            expression = self._present(node)
            self._asked[id(node)] = (self.asked(expression, "p"), node)
        return self._asked[id(node)][0]

    def ask_all(self, nodes: Sequence[FormulaNode], join: Callable[[Sequence[str]], str], positive: bool) -> str:
        """Several formulas about the record, joined: what cannot raise first, then the others in order, as far as needed."""
        if all(safe(node) for node in nodes):
            return join([self.ask(node, positive) for node in nodes])
        return self.asked(self._joined(nodes, join, positive), "p")

    def _joined(self, nodes: Sequence[FormulaNode], join: Callable[[Sequence[str]], str], positive: bool) -> str:
        parts = [part for node in nodes for part in _flat(node, positive, join is disjunction)]
        parts.sort(key=lambda part: not safe(part[0]))
        return join([self._asked_part(node, sign) for node, sign in parts])

    def _asked_part(self, node: FormulaNode, positive: bool) -> str:
        if id(node) in self._asked:
            expression = self._asked[id(node)][0]
            return expression if positive else negated(expression)
        return self._present(node, positive)

    def _present(self, node: FormulaNode, positive: bool = True) -> str:
        match node:
            case Atom() | Compare():
                expression = self.atom(node) if isinstance(node, Atom) else self.compare(node)
                return expression if positive else negated(expression)
            case Not(part=part):
                return self._present(part, not positive)
            case And(parts=parts) | Or(parts=parts):
                join = conjunction if isinstance(node, And) is positive else disjunction
                expression = self._joined(parts, join, positive)
                return self._cut(expression, lazily=not safe(node)) if is_deep(expression) else expression
        raise AssertionError(node)

    def _cut(self, expression: str, *, lazily: bool) -> str:
        """An expression that is nested deeply under a name; one that can raise as a function, which is asked if needed."""
        if not lazily:
            return self.asked(expression, "p")
        name = self.local("g")
        self.asking(f"{name} = lambda: {_SHARED.sub(chr(40) * 2, expression)}")  # within, each function is asked for itself
        return f"{name}()"

    def atom(self, atom: Atom) -> str:
        """An atom without parts that bind a variable or read the previous step. A user's function is called once per step."""
        if atom.kinds is not None and self.kind not in atom.kinds:
            return FALSE
        compares = [item for item in atom.compares if plain(item)]
        calls = atom.test is not None or any(item.operator == "test" for item in compares)
        if calls and self.joint.goals_with[id(atom)] > 1:
            if id(atom) not in self._onces:
                self._onces[id(atom)] = self.local("u")
                self._firsts.append(f"{self._onces[id(atom)]} = None")
            name = self._onces[id(atom)]
            return f"({name} if {name} is not None else ({name} := bool({self._tests(atom, compares)})))"
        return self._tests(atom, compares)

    def _tests(self, atom: Atom, compares: Sequence[Compare]) -> str:
        tests = []
        if atom.name is not None:
            tests.append(f"{self.need('name')} == {self.joint.constant(atom.name)}")
        tests += [self._filter(item) for item in compares]
        if atom.test is not None:
            test = self.joint.constant(atom.test)
            tests.append(f"holds({test}(record), {test})")
        return conjunction(tests)

    def _filter(self, item: Compare) -> str:
        """An argument filter of an atom: read only if the atom's other tests hold."""
        path = item.left.paths[0] if item.left.paths else ()
        if path[:2] != ("action", "arguments") or len(path) != 3 or isinstance(item.right, Field):
            return self.compare(item)
        arguments, key = self.need("arguments"), repr(path[2])
        if item.operator == "test":
            test = self.joint.constant(item.right)
            return f"{key} in {arguments} and matches({test}({arguments}[{key}]), {test})"
        if item.right is None:
            return f"{key} in {arguments} and {arguments}[{key}] is None"
        return f"{arguments}.get({key}) == {self.joint.constant(item.right)}"

    def compare(self, item: Compare) -> str:
        if item.right is None and item.operator in ("==", "!=") and self._is_written_out(item.left):
            return FALSE if item.operator == "==" else TRUE
        if item.operator in ("==", "!=") and (not isinstance(item.right, Field) or item.right.function is None):
            right = self._side(item.right) if isinstance(item.right, Field) else self.joint.constant(item.right)
            return self.compared(self._side(item.left), item.operator, right)
        if item.operator in _ORDERS and (_is_group(item.left) or not isinstance(item.right, Field)):
            return self._ordered(item)
        right = self.field(item.right) if isinstance(item.right, Field) else self.joint.constant(item.right)
        left = self._side(item.left) if item.operator == "in" else self.field(item.left)
        return self.compared(left, item.operator, right)

    def _ordered(self, item: Compare) -> str:
        """An order with a constant, or of several values: none holds if one of them is None."""
        if isinstance(item.right, Field):
            return self.order(item, self.field(item.left), self.field(item.right))
        if item.right is None or (isinstance(item.right, tuple) and None in item.right):
            return FALSE
        left, right = self._side(item.left), self.joint.constant(item.right)
        if left.isidentifier() or left in _KNOWN:
            return self.order(item, left, right)
        name = self.local("f")  # read only where it is needed, and named so that it is read once
        known = f"None not in ({name} := {left})" if _is_group(item.left) else f"({name} := {left}) is not None"
        return f"{known} and {name} {item.operator} {right}"

    def order(self, item: Compare, left: str, right: str) -> str:
        """Two named sides in a comparison; an order with None, or with a None in a group, does not hold."""
        if item.operator not in _ORDERS:
            return self.compared(left, item.operator, right)
        groups = [
            f"None not in {name}"
            for side, name in ((item.left, left), (item.right, right))
            if isinstance(side, Field) and _is_group(side)
        ]
        constant = not isinstance(item.right, Field) and (
            item.right is None or (isinstance(item.right, tuple) and None in item.right)
        )
        return FALSE if constant else " and ".join([*groups, self.compared(left, item.operator, right)])

    @staticmethod
    def compared(left: str, operator: str, right: str) -> str:
        if operator in ("==", "!=") and right == "None":
            return f"{left} is {'not ' if operator == '!=' else ''}None"
        if operator in ("==", "!=", "in"):
            return f"{left} {operator} {right}"
        known = [f"{side} is not None" for side in (left, right) if side.isidentifier() and side not in _KNOWN]
        return " and ".join([*known, f"{left} {operator} {right}"])

    def asking(self, line: str) -> None:
        """Add a line to the first half."""
        self._asks.append(line)

    def asked(self, expression: str, prefix: str) -> str:
        """The name of a local that holds an expression of the first half; a constant or a name is returned unchanged."""
        if expression in (TRUE, FALSE) or expression.isidentifier():
            return expression
        name = self.local(prefix)
        self.asking(f"{name} = {expression}")
        return name
