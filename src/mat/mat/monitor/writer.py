"""Writes what is done at records of one action kind for all goals: see `codegen`. Nothing here runs at a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mat.core.record import ActionKind
from mat.monitor.codegen import FAR, Layout, Scope, delayed, planned
from mat.monitor.expressions import FALSE, TRUE, block, conjunction, disjunction, guarded, negated, used
from mat.monitor.goals import alternatives, chain, compares_of, is_present, pattern
from mat.monitor.temporal import (
    And,
    AtMost,
    Atom,
    Compare,
    Eventually,
    Field,
    Next,
    Node,
    Not,
    Once,
    Or,
    Previous,
    Since,
    Started,
    Until,
    Variable,
    Window,
    children,
    looks_ahead,
    mentions,
)

if TYPE_CHECKING:
    from mat.monitor.codegen import Program

_HEADER: Final = {  # beside action and kind
    "observation": "record.observation",
    "arguments": "action.arguments",
    "name": "action.name",
    "state": "record.state",
    "step": "record.step",
    "at": "record.at_ms",
}
_KNOWN: Final = ("step", "at", "name", "record.agent", "record.role", "record.site", "record.effected", "record.invoked")
"""Never None."""


def body_of(program: Program, kind: ActionKind | None) -> tuple[list[str], set[str]]:
    """(lines, slots they assign) for a `record` of one kind, or of a kind that no formula mentions; they set `found`."""
    function = Function(program, kind)
    for index, goal in enumerate(program.goals):
        if goal.kinds is None or (kind is not None and kind in goal.kinds):
            function.goal(index)
    return function.lines(), function.assigned


def safe(node: Node) -> bool:
    """Whether asking it runs nothing of a user's and cannot raise."""
    if isinstance(node, Atom) and node.test is not None:
        return False
    for item in compares_of(node) if isinstance(node, Atom | Compare) else ():
        sides = [side for side in (item.left, item.right) if isinstance(side, Field)]
        counted = item.left.paths in ((("step",),), (("at_ms",),)) and type(item.right) is int
        if not (item.operator in ("==", "!=") or counted) or any(side.function is not None for side in sides):
            return False
    return all(safe(part) for part in children(node))


class Function:
    """What is asked of the record, then the updates."""

    def __init__(self, program: Program, kind: ActionKind | None) -> None:
        self.program, self.kind = program, kind
        self._asks: list[str] = []
        self._firsts: list[str] = []
        self._needs: set[str] = set()
        self._fields: dict[Any, str] = {}
        self._asked: dict[int, tuple[str, Node]] = {}
        self._onces: dict[int, str] = {}
        self._locals = 0
        self.assigned: set[str] = set()
        self.trace = Body(self, program.scope)
        self._whole: list[str] = []

    def local(self, prefix: str) -> str:
        self._locals += 1
        return f"{prefix}{self._locals}"

    def need(self, name: str) -> str:
        self._needs.add(name)
        return name

    def lines(self) -> list[str]:
        head = [f"{local} = {expression}" for local, expression in _HEADER.items() if local in self._needs]
        return used([*head, *self._firsts, *self._asks, *self._whole])

    # what the record is asked

    def field(self, field: Field) -> str:
        """The name of a local that holds a field."""
        key = (field.paths, field.function)
        if key not in self._fields:
            expression = self._field(field)
            if not expression.isidentifier() and expression not in _KNOWN:
                name = self.local("f")
                self._asks.append(f"{name} = {expression}")
                expression = name
            self._fields[key] = expression
        return self._fields[key]

    def _field(self, field: Field) -> str:
        if field.function is not None:
            return f"{self.program.constant(field.function)}(record)"
        if len(field.paths) == 1:
            return self._read(field.paths[0])
        return f"({', '.join(self._read(path) for path in field.paths)})"

    def _side(self, field: Field) -> str:
        """A field to be compared once: read in place where nobody else needs it and reading it cannot raise."""
        shared = self.program.fields[field.paths, field.function] > 1
        return self.field(field) if shared or field.function is not None else self._field(field)

    def _read(self, path: tuple[str, ...]) -> str:
        match path:
            case ("action", "kind") if self.kind is not None:
                return repr(self.kind)
            case ("action", "name"):
                return self.need("name")
            case ("action", "arguments", *rest) if rest:
                return self._dug(self.need("arguments"), rest)
            case ("action", attribute):
                return f"action.{attribute}"
            case ("observation", "error", attribute):
                error = f"{self.need('observation')}.error"
                return f"(None if {error} is None else {error}.{attribute})"
            case ("mediation", attribute):
                return f"(None if record.mediation is None else record.mediation.{attribute})"
            case ("observation", attribute, *rest):
                return self._dug(f"{self.need('observation')}.{attribute}", rest)
            case ("state", *rest) if rest:
                return self._dug(self.need("state"), rest)
            case ("step",):
                return self.need("step")
            case ("at_ms",):
                return self.need("at")
            case (attribute,):
                return f"record.{attribute}"
        raise AssertionError(path)

    @staticmethod
    def _dug(base: str, rest: Sequence[str]) -> str:
        if not rest:
            return base
        if len(rest) == 1 and base in ("arguments", "state"):
            return f"{base}.get({rest[0]!r})"
        return f"dig({base}, {', '.join(map(repr, rest))})"

    def ask(self, node: Node, positive: bool = True) -> str:
        """A formula about the record alone, or its opposite.

        What can raise, or is needed more than once, is asked in the first half, and given a name.
        """
        if self.program.uses[id(node)] <= 1 and safe(node):
            return self._present(node, positive)
        if not positive:
            return negated(self.ask(node))
        if id(node) not in self._asked:
            expression = self._present(node)
            if expression not in (TRUE, FALSE) and not expression.isidentifier():
                name = self.local("p")
                self._asks.append(f"{name} = {expression}")
                expression = name
            self._asked[id(node)] = (expression, node)
        return self._asked[id(node)][0]

    def ask_all(self, nodes: Sequence[Node], join: Callable[[Sequence[str]], str], positive: bool) -> str:
        """Several formulas about the record, joined: asked in their order, and only as far as they decide it."""
        if all(safe(node) or self.program.uses[id(node)] > 1 for node in nodes):
            return join([self.ask(node, positive) for node in nodes])
        expression = join(
            [self.ask(node, positive) if id(node) in self._asked else self._present(node, positive) for node in nodes]
        )
        if expression in (TRUE, FALSE) or expression.isidentifier():
            return expression
        name = self.local("p")
        self._asks.append(f"{name} = {expression}")
        return name

    def _present(self, node: Node, positive: bool = True) -> str:
        match node:
            case Atom() | Compare():
                expression = self.atom(node) if isinstance(node, Atom) else self.compare(node)
                return expression if positive else negated(expression)
            case Not(part=part):
                return self._present(part, not positive)
            case And(parts=parts) | Or(parts=parts):
                join = conjunction if isinstance(node, And) is positive else disjunction
                return join([self._present(part, positive) for part in parts])
        raise AssertionError(node)

    def atom(self, atom: Atom) -> str:
        """An atom without what binds a variable or reads the step before. A user's function is called once a step."""
        if atom.kinds is not None and self.kind not in atom.kinds:
            return FALSE
        compares = [item for item in atom.compares if plain(item)]
        calls = atom.test is not None or any(item.operator == "test" for item in compares)
        if calls and self.program.asked[id(atom)] > 1:
            if id(atom) not in self._onces:
                name = self._onces[id(atom)] = self.local("u")
                self._firsts.append(f"{name} = None")
                return f"({name} if {name} is not None else ({name} := bool({self._tests(atom, compares)})))"
            name = self._onces[id(atom)]
            return f"({name} if {name} is not None else ({name} := bool({self._tests(atom, compares)})))"
        return self._tests(atom, compares)

    def _tests(self, atom: Atom, compares: Sequence[Compare]) -> str:
        tests = []
        if atom.name is not None:
            tests.append(f"{self.need('name')} == {self.program.constant(atom.name)}")
        tests += [self._filter(item) for item in compares]
        if atom.test is not None:
            tests.append(f"{self.program.constant(atom.test)}(record)")
        return conjunction(tests)

    def _filter(self, item: Compare) -> str:
        """An argument filter of an atom: read only where the atom's other tests hold."""
        path = item.left.paths[0] if item.left.paths else ()
        if path[:2] != ("action", "arguments") or len(path) != 3 or isinstance(item.right, Field):
            return self.compare(item)
        arguments, key = self.need("arguments"), repr(path[2])
        if item.operator == "test":
            return f"{key} in {arguments} and {self.program.constant(item.right)}({arguments}[{key}])"
        if item.right is None:
            return f"{key} in {arguments} and {arguments}[{key}] is None"
        return f"{arguments}.get({key}) == {self.program.constant(item.right)}"

    def compare(self, item: Compare) -> str:
        if item.operator in ("==", "!=") and (not isinstance(item.right, Field) or item.right.function is None):
            right = self._side(item.right) if isinstance(item.right, Field) else self.program.constant(item.right)
            return self.compared(self._side(item.left), item.operator, right)
        right = self.field(item.right) if isinstance(item.right, Field) else self.program.constant(item.right)
        if item.operator == "in" or isinstance(item.right, Field):
            left = self._side(item.left) if item.operator == "in" else self.field(item.left)
            return self.compared(left, item.operator, right)
        left = self._side(item.left)
        if left.isidentifier() or left in _KNOWN:
            return self.compared(left, item.operator, right)
        name = self.local("f")  # read where it is needed, and named to be read once
        return f"({name} := {left}) is not None and {name} {item.operator} {right}"

    @staticmethod
    def compared(left: str, operator: str, right: str) -> str:
        if operator in ("==", "!=") and right == "None":
            return f"{left} is {'not ' if operator == '!=' else ''}None"
        if operator in ("==", "!=", "in"):
            return f"{left} {operator} {right}"
        known = [f"{side} is not None" for side in (left, right) if side.isidentifier() and side not in _KNOWN]
        return " and ".join([*known, f"{left} {operator} {right}"])

    # goals

    def goal(self, index: int) -> None:
        if self.program.goals[index].key is None:
            layout = Layout(self.program, index, self.program.scope)
            self.trace.layout = layout
            lines = GoalWriter(self, layout, self.trace, None).lines()
            self._whole += [*self.trace.take(), *lines]
        else:
            from mat.monitor.slices import SliceWriter

            self._whole += SliceWriter(self, index).lines()

    def of_trace(self, layout: Layout, node: Node) -> list[str]:
        """Updates for a part of a slice's formula that is judged on the whole trace."""
        self.on_trace(layout, node)
        return self.trace.take()

    def on_trace(self, layout: Layout, node: Node) -> str:
        self.trace.layout = layout
        return self.trace.value(node)

    def asking(self, line: str) -> None:
        self._asks.append(line)


def plain(item: Compare) -> bool:
    """Whether a comparison is a matter of the record alone."""
    sides = [side for side in (item.left, item.right) if isinstance(side, Field)]
    return not isinstance(item.right, Variable) and not any(side.before for side in sides)


class Body:
    """Values of formulas in one scope: emits the updates of their state, each once, and gives expressions."""

    def __init__(self, function: Function, scope: Scope, bound: dict[int, str] | None = None) -> None:
        self.function, self.scope, self.bound = function, scope, bound or {}
        self.layout: Layout
        self._lines: list[str] = []
        self._values: dict[int, tuple[str, Node]] = {}
        self.changed = False

    def take(self) -> list[str]:
        lines, self._lines = self._lines, []
        return lines

    def set(self, name: str, value: str) -> str:
        """An assignment to a slot."""
        self.changed = True
        if not self.scope.local:
            self.function.assigned.add(name)
        return f"{name} = {value}"

    def push(self, queue: str, entry: str) -> str:
        self.changed = True
        return self.set(queue, f"(*{queue}, {entry})") if self.scope.local else f"{queue}.append({entry})"

    def pop(self, queue: str) -> str:
        self.changed = True
        return self.set(queue, f"{queue}[1:]") if self.scope.local else f"{queue}.popleft()"

    def clear(self, queue: str) -> str:
        self.changed = True
        return self.set(queue, "()") if self.scope.local else f"{queue}.clear()"

    def named(self, expression: str) -> str:
        name = self.function.local("v")
        self._lines.append(f"{name} = {expression}")
        return name

    def value(self, node: Node, positive: bool = True) -> str:
        """An expression for the value at this step, or its opposite; valid once the lines taken so far have run."""
        if self._asked(node) and not self._elsewhere(node):
            return self.function.ask(node, positive)
        shared = self.function.program.uses[id(node)] > 1
        if isinstance(node, Not | And | Or) and not shared and not self._elsewhere(node):
            if isinstance(node, Not):
                return self.value(node.part, not positive)
            join = conjunction if isinstance(node, And) is positive else disjunction
            asked = [part for part in node.parts if self._asked(part) and not self._elsewhere(part)]
            rest = [self.value(part, positive) for part in node.parts if part not in asked]
            return join([self.function.ask_all(asked, join, positive), *rest] if asked else rest)
        if id(node) not in self._values:
            expression = self._value(node)
            if shared and not self.scope.local and expression not in (TRUE, FALSE) and not expression.isidentifier():
                expression = self.named(expression)
            self._values[id(node)] = (expression, node)  # the node, so that its id is not given to another one
        expression = self._values[id(node)][0]
        return expression if positive else negated(expression)

    def _elsewhere(self, node: Node) -> bool:
        return self.scope.local and self.layout.scope_of(node) is not self.scope

    def _asked(self, node: Node) -> bool:
        """Whether it is a matter of the record alone, and of no id."""
        key = self.layout.of_goal.key
        return id(node) not in self.bound and is_present(node) and not (isinstance(key, Variable) and mentions(node, key))

    def _value(self, node: Node) -> str:
        if self._elsewhere(node):
            return self.function.on_trace(self.layout, node)
        if id(node) in self.bound:
            return self.bound[id(node)]
        match node:
            case Not(part=part):
                return negated(self.value(part))
            case And(parts=parts):
                return conjunction([self.value(part) for part in parts])
            case Or(parts=parts):
                return disjunction([self.value(part) for part in parts])
            case Atom():
                parts_of = [self.function.atom(node), *[self._compare(item) for item in node.compares if not plain(item)]]
                return conjunction(parts_of)
            case Compare():
                return self._compare(node)
            case Started():
                return self.layout.slots(node)[0]
            case Once(part=part, window=window):
                return self._seen(node, TRUE, self.value(part), window)
            case Since(left=left, right=right, window=window):
                return self._seen(node, self.value(left), self.value(right), window)
            case Previous(part=part):
                return self._previous(node, self.value(part))
            case AtMost():
                return self._at_most(node, self.value(node.part))
        raise AssertionError(node)

    def _compare(self, item: Compare) -> str:
        """A comparison with a field of the step before."""
        sides, updates = [], []
        for place, side in (("left", item.left), ("right", item.right)):
            if not isinstance(side, Field):
                sides.append(self.function.program.constant(side))
                continue
            now = self.function.field(replace(side, before=False))
            if side.before:
                (slot,) = self.scope.own(item, place, None)
                updates.append(self.set(slot, now))
                sides.append(slot)
            else:
                sides.append(now)
        value = self.named(self.function.compared(sides[0], item.operator, sides[1]))
        self._lines += updates
        return value

    def _seen(self, node: Once | Since, left: str, right: str, window: Window) -> str:
        slots = self.layout.slots(node)
        seen, timed, late = slots[0], window.timed, delayed(window)
        seen_ms = slots[1] if timed else ""
        gone = [self.set(slot, str(FAR)) for slot in (seen, seen_ms) if slot]
        self._lines += guarded(negated(left), [*gone, *([self.clear(slots[-1])] if late else [])])
        value = self._near(seen, seen_ms, window)
        if window.low == 1 and not late and right != FALSE:
            value = self.named(value)
        step = self.function.need("step")
        at = self.function.need("at") if timed else ""
        if late:
            young = slots[-1]
            self._lines += guarded(right, [self.push(young, f"({step}, {at})" if timed else step)])
            first = f"{young}[0]"
            ripe = [f"{step} - {first}[0] >= {window.low}", f"{at} - {first}[1] >= {window.low_ms}"] if timed else []
            wait = " and ".join(ripe) or f"{step} - {first} >= {window.low}"
            take = [self.set(seen, f"{first}[0]"), self.set(seen_ms, f"{first}[1]")] if timed else [self.set(seen, first)]
            self._lines += block(f"while {young} and {wait}:", [*take, self.pop(young)])
        elif right != FALSE:
            noted = [self.set(seen, step), *([self.set(seen_ms, at)] if timed else [])]
            kept = right if window.bounded else conjunction([f"{seen} < 0", right])  # for ever: the first one says it all
            self._lines += guarded(kept, noted)
        return value

    def _near(self, seen: str, seen_ms: str, window: Window) -> str:
        tests = [] if window.bounded else [f"{seen} >= 0"]  # what has not occurred is too far back for any bound
        if window.high is not None:
            tests.append(f"{self.function.need('step')} - {seen} <= {window.high}")
        if window.high_ms is not None:
            tests.append(f"{self.function.need('at')} - {seen_ms} <= {window.high_ms}")
        return " and ".join(tests)

    def _previous(self, node: Previous, part: str) -> str:
        (slot,) = self.layout.slots(node)
        if self.scope.local:
            value = self.named(slot)
            self._lines.append(self.set(slot, part if part in (TRUE, FALSE) else f"bool({part})"))
            return value
        step = self.function.need("step")
        value = self.named(f"{slot} == {step} - 1")
        self._lines += guarded(part, [self.set(slot, step)])
        return value

    def _at_most(self, node: AtMost, part: str) -> str:
        (hits,) = self.layout.slots(node)
        count, window = node.count, node.window
        if not window.bounded:
            self._lines += guarded(conjunction([part, f"{hits} <= {count}"]), [self.set(hits, f"{hits} + 1")])
            return f"{hits} <= {count}"
        step = self.function.need("step")
        at = self.function.need("at") if window.timed else ""
        entry = f"({step}, {at})" if window.timed else step
        oldest = block(f"if len({hits}) > {count + 1}:", [self.pop(hits)])
        self._lines += guarded(part, [self.push(hits, entry), *oldest])
        first, out = (f"{hits}[0][0]" if window.timed else f"{hits}[0]"), []
        if window.high is not None:
            out.append(f"{step} - {first} > {window.high}")
        if window.high_ms is not None:
            out.append(f"{at} - {hits}[0][1] > {window.high_ms}")
        return disjunction([f"len({hits}) <= {count}", *out])


class GoalWriter:
    """The lines that judge one goal, in the fold itself or for one id (`key` is its expression)."""

    def __init__(self, function: Function, layout: Layout, body: Body, key: str | None) -> None:
        self.function, self.layout, self.body, self.key = function, layout, body, key
        self.goal, self.index = layout.of_goal, layout.index

    def report(self, start: str = "-1") -> str:
        program = self.function.program
        seen = "".join(f"{self.layout.slots(node)[0]}, " for node in program.witnesses[self.index])
        return f"found = report({self.index}, record, found, {self.key}, {start}, ({seen}))"

    def lines(self) -> list[str]:
        goal, body = self.goal, self.body
        if goal.ahead:
            found = pattern(goal)
            if found is not None:
                lines = self._response(*found)
            else:
                links = chain(goal)
                lines = self._engine() if links is None else self._chain(*links)
        else:
            value = body.value(goal.body, goal.when == "last")
            if goal.when == "last":
                (last,) = body.scope.own(goal, "last", False)
                lines = [*body.take(), body.set(last, self._last(value))]
            else:
                lines = [*body.take(), *guarded(value, [self.report()])]
        if goal.when == "first":
            (started,) = body.scope.own(goal, "started", False)
            lines.append(body.set(started, TRUE))
        return lines

    def _last(self, value: str) -> str:
        """Whether it holds at this step. For an id: -1, or the step of its slice where it does not hold."""
        if self.key is None:
            return value if value in (TRUE, FALSE) else f"bool({value})"
        step = self.function.need("step")
        return {TRUE: "-1", FALSE: step}.get(value, f"-1 if {value} else {step}")

    def _response(self, guard: Node, operator: Eventually | Until | Next, absent: bool) -> list[str]:
        body = self.body
        opens = body.value(guard, False)
        right = body.value(operator.right if isinstance(operator, Until) else operator.part)
        left = body.value(operator.left) if isinstance(operator, Until) else TRUE
        before = body.take()
        (pending,) = self.layout.pending(operator)
        step = self.function.need("step")
        if isinstance(operator, Next):
            unmet = guarded(negated(right), [self.report(pending)])
            lines = block(f"if {pending} >= 0:", [*unmet, body.set(pending, "-1")])
            return [*before, *lines, *guarded(opens, [body.set(pending, step)])]
        window = operator.window
        if not (window.bounded or window.low or window.low_ms):
            return [*before, *self._unbounded(pending, opens, left, right, absent)]
        lines = self._bounded(pending, opens, left, right, window, absent)
        return [*before, *guarded(disjunction([pending, opens]), lines)]

    def _unbounded(self, pending: str, opens: str, left: str, right: str, absent: bool) -> list[str]:
        """No deadline tells open steps apart: the first stands for all."""
        body, step = self.body, self.function.need("step")
        lines = guarded(conjunction([opens, f"{pending} < 0"]), [body.set(pending, step)])
        if absent:
            return [*lines, *guarded(conjunction([f"{pending} >= 0", right]), [self.report(pending), body.set(pending, "-1")])]
        lines += guarded(right, [body.set(pending, "-1")])
        if left != TRUE:
            gone = conjunction([f"{pending} >= 0", negated(left)])
            lines += guarded(gone, [self.report(pending), body.set(pending, "-1")])
        return lines

    def _bounded(self, pending: str, opens: str, left: str, right: str, window: Window, absent: bool) -> list[str]:
        """A queue of open steps: windows all have one length, so what opened first closes first."""
        body, step = self.body, self.function.need("step")
        at = self.function.need("at") if window.timed else ""
        first = f"{pending}[0][0]" if window.timed else f"{pending}[0]"
        settle, fail = [body.pop(pending)], [self.report(first), body.pop(pending)]
        expire = settle if absent else fail
        over = []
        if window.high_ms is not None:
            over.append(f"{at} - {pending}[0][1] > {window.high_ms}")
        if window.high is not None:
            over.append(f"{step} - {first} > {window.high}")
        lines = block(f"while {pending} and ({' or '.join(over)}):", expire) if over else []
        entry = f"({step}, {at})" if window.timed else step
        part = self.layout.part
        waiting = [f"due_{self._table()}.append(({entry}, {self.key}))"] if part is not None and part.due is not None else []
        lines += guarded(opens, [body.push(pending, entry), *waiting])
        ripe = []
        if window.low:
            ripe.append(f"{step} - {first} >= {window.low}")
        if window.low_ms:
            ripe.append(f"{at} - {pending}[0][1] >= {window.low_ms}")
        reached = block(f"while {' and '.join([pending, *ripe])}:", fail if absent else settle)
        if not ripe and not absent:
            reached = [body.clear(pending)]
        lines += guarded(right, reached)
        if left != TRUE:
            lines += guarded(negated(left), block(f"while {pending}:", fail))
        if window.high is not None:
            lines += block(f"while {pending} and {step} - {first} >= {window.high}:", expire)
        return lines

    def _table(self) -> str:
        return self.function.program.scope.own(self.goal, "table", None)[0]

    def _chain(self, guard: Node, first: Eventually, link: Node, then: Eventually) -> list[str]:
        """A trigger, the first answer within steps, the second within steps of it: open triggers and first answers, by step.

        A second answer settles the first ones it is near enough to, and with them the triggers they are near enough to. A
        trigger is lost once no first answer can come any more and none that came can still be followed.
        """
        body, step = self.body, self.function.need("step")
        pending, links = self.layout.chained()
        opens, linked, settles = body.value(guard, False), body.value(link), body.value(then.part)
        before = body.take()
        near, far, near_then, far_then = first.window.low, first.window.high, then.window.low, then.window.high
        in_reach = f"{near} <= answer - start <= {far}"
        lines = guarded(opens, [f"{pending}.append({step})"])
        lines += guarded(linked, [f"{links}.append({step})"])
        ripe = f"[answer for answer in {links} if {step} - answer >= {near_then}]" if near_then else links
        kept = f"[start for start in {pending} if not any({in_reach} for answer in ripe)]"
        lines += guarded(
            conjunction([links, settles]),
            [f"ripe = {ripe}", f"rest = {kept}", f"{pending}.clear()", f"{pending}.extend(rest)"],
        )
        lines += block(f"while {links} and {step} - {links}[0] >= {far_then}:", [f"{links}.popleft()"])
        lost = f"[start for start in {pending} if {step} - start >= {far} and not any({in_reach} for answer in {links})]"
        lines += block(
            f"if {pending} and {step} - {pending}[0] >= {far}:",
            block(f"for start in {lost}:", [f"{pending}.remove(start)", self.report("start")]),
        )
        lines += block(f"if not {pending}:", [f"{links}.clear()"])
        return [*before, *guarded(disjunction([pending, opens]), lines)]

    def _engine(self) -> list[str]:
        """Several or nested future operators: see `obligations`."""
        body, goal = self.body, self.goal
        plan, leaves = planned(goal)
        (engine,) = body.scope.own(goal, "engine", None, plan=plan)
        past = [part for part in alternatives(goal.body) if not looks_ahead(part)]
        opens = conjunction([body.value(part, False) for part in past])
        truth = "".join(f"bool({body.value(leaf)}), " for leaf in leaves)
        before = body.take()
        step, at = self.function.need("step"), self.function.need("at")
        moved = block(f"for start in {engine}.step({step}, {at}, ({truth})):", [self.report("start")])
        if self.key is None:
            return [*before, *guarded(disjunction([f"{engine}.open", opens]), moved)]
        table = self._table()
        kept = [
            *block(f"if {engine}.open:", [f"due_{table}[{self.key}] = {engine}"]),
            "else:",
            f"    due_{table}.pop({self.key}, None)",
        ]
        body.changed = True
        return [*before, *guarded(disjunction([f"{engine}.open", opens]), [*moved, *kept])]
