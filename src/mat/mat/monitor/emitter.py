"""Emit the lines that update a goal's state and report its violations, for records of one action kind (see `compile`)."""

from __future__ import annotations

from dataclasses import replace

from mat.core.record import ActionKind
from mat.monitor.expressions import FALSE, TRUE, block, conjunction, disjunction, guarded, is_deep, negated
from mat.monitor.layout import FAR, JointGoals, Layout, Scope, delayed
from mat.monitor.normal_form import chain, decided, is_present, pattern
from mat.monitor.reads import RecordReads, plain
from mat.monitor.temporal import (
    And,
    AtMost,
    Atom,
    Compare,
    Eventually,
    Field,
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
    Window,
    children,
    mentions,
)


class RecordCode(RecordReads):
    """The lines for records of one kind: the reads of the record, then the updates."""

    def __init__(self, joint: JointGoals, kind: ActionKind | None) -> None:
        super().__init__(joint, kind)
        self.assigned: set[str] = set()
        self.trace = Body(self, joint.scope)

    def of_trace(self, layout: Layout, node: FormulaNode) -> list[str]:
        """Updates for a part of a slice's formula that is judged on the whole trace."""
        self.on_trace(layout, node)
        return self.trace.take()

    def on_trace(self, layout: Layout, node: FormulaNode) -> str:
        self.trace.layout = layout
        return self.trace.value(node)


def first_of(queue: str, window: Window) -> tuple[str, str]:
    """(step, time) of the oldest entry of a queue; the time is "" if the window needs none."""
    return (f"{queue}[0][0]", f"{queue}[0][1]") if window.timed else (f"{queue}[0]", "")


class Body:
    """Emits the state updates of the formulas in one scope, each once, and gives expressions for their values."""

    def __init__(self, function: RecordCode, scope: Scope, bound: dict[int, str] | None = None) -> None:
        self.function, self.scope, self.bound = function, scope, bound or {}
        self.layout: Layout
        self._lines: list[str] = []
        self._values: dict[int, tuple[str, FormulaNode]] = {}
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

    def value(self, node: FormulaNode, positive: bool = True) -> str:
        """An expression for the value at this step, or its negation; valid once the lines emitted so far have run."""
        if self._is_record_only(node):
            return self.function.ask(node, positive)
        if (known := self._values.get(id(node))) is not None:
            return known[0] if positive else negated(known[0])
        shared = self.function.joint.uses[id(node)] > 1
        if isinstance(node, Not | And | Or):
            expression = self._emit_connective(node, positive or shared)
            if not shared:
                if not is_deep(expression):
                    return expression
                name = self.named(expression)
                self._values[id(node)] = (name if positive else negated(name), node)
                return name
        else:
            expression = self._value(node)
        if shared and not self.scope.local and expression not in (TRUE, FALSE) and not expression.isidentifier():
            expression = self.named(expression)
        self._values[id(node)] = (expression, node)  # the node, so that its id is not given to another one
        return expression if positive else negated(expression)

    def _emit_connective(self, node: Not | And | Or, positive: bool) -> str:
        """Where the kind of the record decides it, its parts about the record are not asked."""
        known = decided(node, self.function.kind)
        if known is not None:
            self.emit_operators(node)
            return TRUE if known is positive else FALSE
        if isinstance(node, Not):
            return self.value(node.part, not positive)
        join = conjunction if isinstance(node, And) is positive else disjunction
        asked = [part for part in node.parts if self._is_record_only(part)]
        rest = [self.value(part, positive) for part in node.parts if part not in asked]
        return join([self.function.ask_all(asked, join, positive), *rest] if asked else rest)

    def emit_operators(self, node: FormulaNode) -> None:
        """The updates of the operators in a formula whose value is not needed."""
        if isinstance(node, Not | And | Or):
            for part in children(node):
                self.emit_operators(part)
        elif not self._is_record_only(node):
            self.value(node)

    def _on_whole_trace(self, node: FormulaNode) -> bool:
        return self.scope.local and self.layout.scope_of(node) is not self.scope

    def _is_record_only(self, node: FormulaNode) -> bool:
        """Whether the value of a formula depends only on the record, not on an id."""
        key = self.layout.of_goal.key
        return id(node) not in self.bound and is_present(node) and not (isinstance(key, Variable) and mentions(node, key))

    def _value(self, node: FormulaNode) -> str:
        if self._on_whole_trace(node):
            return self.function.on_trace(self.layout, node)
        if id(node) in self.bound:
            return self.bound[id(node)]
        match node:
            case Atom():
                parts_of = [self.function.atom(node), *[self._emit_compare(item) for item in node.compares if not plain(item)]]
                return conjunction(parts_of)
            case Compare():
                return self._emit_compare(node)
            case Started():
                return self.layout.slots(node)[0]
            case Once(part=part, window=window):
                return self._emit_once_since(node, TRUE, self.value(part), window)
            case Since(left=left, right=right, window=window):
                return self._emit_once_since(node, self.value(left), self.value(right), window)
            case Previous(part=part):
                return self._emit_previous(node, self.value(part))
            case AtMost():
                return self._emit_at_most(node, self.value(node.part))
        raise AssertionError(node)

    def _emit_compare(self, item: Compare) -> str:
        """A comparison with a field of the previous step. An order can raise, so it is read in the first half."""
        function, order = self.function, item.operator not in ("==", "!=")
        sides, updates = [], []
        for place, side in (("left", item.left), ("right", item.right)):
            if not isinstance(side, Field):
                sides.append(function.joint.constant(side))
                continue
            now = function.field(replace(side, before=False))
            if side.before:
                (slot,) = self.scope.slots_for(item, place, None)
                updates.append(self.set(slot, now))
                sides.append(self._stored(slot) if order and self.scope.local else slot)
            else:
                sides.append(now)
        value = function.order(item, sides[0], sides[1])
        if not order:
            value = self.named(value)
        elif value != FALSE:
            key = self.layout.of_goal.key
            concerned = [f"{function.field(key)} is not None"] if self.scope.local and isinstance(key, Field) else []
            value = function.asked(conjunction([*concerned, value]), "p")
        self._lines += updates
        return value

    def _stored(self, slot: str) -> str:
        """The value of a slot of the record's id, read in the first half. Only a key, not a variable, needs it."""
        goal = self.layout.of_goal
        assert isinstance(goal.key, Field)
        (table,) = self.function.joint.scope.slots_for(goal, "table", None)
        place = [known.name for known in self.scope.slots].index(slot)
        row = self.function.asked(f"{table}.get({self.function.field(goal.key)})", "q")
        return self.function.asked(f"None if {row} is None else {row}[{place}]", "q")

    def _emit_once_since(self, node: Once | Since, left: str, right: str, window: Window) -> str:
        slots = self.layout.slots(node)
        seen, timed, late = slots[0], window.timed, delayed(window)
        seen_ms = slots[1] if timed else ""
        gone = [self.set(slot, str(FAR)) for slot in (seen, seen_ms) if slot]
        self._lines += guarded(negated(left), [*gone, *([self.clear(slots[-1])] if late else [])])
        value = self._in_window(seen, seen_ms, window)
        if window.low == 1 and not late and right != FALSE:
            value = self.named(value)
        if late:
            young = slots[-1]
            self._lines += guarded(right, [self.push(young, self.function.now(window))])
            first = first_of(young, window)
            ripe = self.function.elapsed(first, ">=", window.low, window.low_ms if timed else None)
            take = [self.set(slot, part) for slot, part in zip((seen, seen_ms), first, strict=True) if slot]
            self._lines += block(f"while {' and '.join([young, *ripe])}:", [*take, self.pop(young)])
        elif right != FALSE:
            need = self.function.need
            noted = [self.set(seen, need("step")), *([self.set(seen_ms, need("at"))] if timed else [])]
            # without a bound, the first occurrence decides
            kept = right if window.bounded else conjunction([f"{seen} < 0", right])
            self._lines += guarded(kept, noted)
        return value

    def _in_window(self, seen: str, seen_ms: str, window: Window) -> str:
        if not window.bounded:
            return f"{seen} >= 0"  # an event that has not occurred is too far back for any bound
        return " and ".join(self.function.elapsed((seen, seen_ms), "<=", window.high, window.high_ms))

    def _emit_previous(self, node: Previous, part: str) -> str:
        (slot,) = self.layout.slots(node)
        if self.scope.local:
            value = self.named(slot)
            self._lines.append(self.set(slot, part if part in (TRUE, FALSE) else f"bool({part})"))
            return value
        step = self.function.need("step")
        value = self.named(f"{slot} == {step} - 1")
        self._lines += guarded(part, [self.set(slot, step)])
        return value

    def _emit_at_most(self, node: AtMost, part: str) -> str:
        (hits,) = self.layout.slots(node)
        count, window = node.count, node.window
        if not window.bounded:
            self._lines += guarded(conjunction([part, f"{hits} <= {count}"]), [self.set(hits, f"{hits} + 1")])
            return f"{hits} <= {count}"
        oldest = block(f"if len({hits}) > {count + 1}:", [self.pop(hits)])
        self._lines += guarded(part, [self.push(hits, self.function.now(window)), *oldest])
        out = self.function.elapsed(first_of(hits, window), ">", window.high, window.high_ms)
        return disjunction([f"len({hits}) <= {count}", *out])


class GoalEmitter:
    """Emits the lines that judge one goal, in the fold itself or for one id (`key` is its expression)."""

    def __init__(self, function: RecordCode, layout: Layout, body: Body, key: str | None) -> None:
        self.function, self.layout, self.body, self.key = function, layout, body, key
        self.goal, self.index = layout.of_goal, layout.index

    def report(self, start: str = "-1") -> str:
        joint = self.function.joint
        seen = "".join(f"{self.layout.slots(node)[0]}, " for node in joint.witnesses[self.index])
        return f"found = report({self.index}, record, found, {self.key}, {start}, ({seen}))"

    def lines(self) -> list[str]:
        goal, body = self.goal, self.body
        if goal.ahead:
            found = pattern(goal)
            if found is not None:
                lines = self._emit_response(*found)
            else:
                links = chain(goal)
                lines = self._emit_engine() if links is None else self._emit_chain(*links)
        else:
            value = body.value(goal.body, goal.when == "last")
            if goal.when == "last":
                (last,) = body.scope.slots_for(goal, "last", False)
                lines = [*body.take(), body.set(last, self._emit_last(value))]
            else:
                lines = [*body.take(), *guarded(value, [self.report()])]
        if goal.when == "first":
            (started,) = body.scope.slots_for(goal, "started", False)
            lines.append(body.set(started, TRUE))
        return lines

    def _emit_last(self, value: str) -> str:
        """Store whether the goal holds at this step; for an id, the step of its slice at which it does not hold, or -1."""
        if self.key is None:
            return value if value in (TRUE, FALSE) else f"bool({value})"
        step = self.function.need("step")
        return {TRUE: "-1", FALSE: step}.get(value, f"-1 if {value} else {step}")

    def _emit_response(self, guard: FormulaNode, operator: Eventually | Until | Next, absent: bool) -> list[str]:
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
            return [*before, *self._emit_unbounded(pending, opens, left, right, absent)]
        lines = self._emit_bounded(pending, opens, left, right, window, absent)
        return [*before, *guarded(disjunction([pending, opens]), lines)]

    def _emit_unbounded(self, pending: str, opens: str, left: str, right: str, absent: bool) -> list[str]:
        """Without a deadline, the first open step represents all open steps."""
        body, step = self.body, self.function.need("step")
        lines = guarded(conjunction([opens, f"{pending} < 0"]), [body.set(pending, step)])
        if absent:
            return [*lines, *guarded(conjunction([f"{pending} >= 0", right]), [self.report(pending), body.set(pending, "-1")])]
        lines += guarded(right, [body.set(pending, "-1")])
        if left != TRUE:
            gone = conjunction([f"{pending} >= 0", negated(left)])
            lines += guarded(gone, [self.report(pending), body.set(pending, "-1")])
        return lines

    def _emit_bounded(self, pending: str, opens: str, left: str, right: str, window: Window, absent: bool) -> list[str]:
        """A queue of open steps: all windows have the same length, so the first to open is the first to close."""
        body, step = self.body, self.function.need("step")
        first = first_of(pending, window)
        settle, fail = [body.pop(pending)], [self.report(first[0]), body.pop(pending)]
        expire = settle if absent else fail
        over = self.function.elapsed(first, ">", window.high, window.high_ms)[::-1]
        lines = block(f"while {pending} and ({' or '.join(over)}):", expire) if over else []
        entry = self.function.now(window)
        part = self.layout.part
        waiting = [f"due_{self._table()}.append(({entry}, {self.key}))"] if part is not None and part.due is not None else []
        lines += guarded(opens, [body.push(pending, entry), *waiting])
        ripe = self.function.elapsed(first, ">=", window.low or None, window.low_ms or None)
        reached = block(f"while {' and '.join([pending, *ripe])}:", fail if absent else settle)
        if not ripe and not absent:
            reached = [body.clear(pending)]
        lines += guarded(right, reached)
        if left != TRUE:
            lines += guarded(negated(left), block(f"while {pending}:", fail))
        if window.high is not None:
            lines += block(f"while {pending} and {step} - {first[0]} >= {window.high}:", expire)
        return lines

    def _table(self) -> str:
        return self.function.joint.scope.slots_for(self.goal, "table", None)[0]

    def _emit_chain(self, guard: FormulaNode, first: Eventually, link: FormulaNode, then: Eventually) -> list[str]:
        """Emit a goal with a trigger, a first answer within some steps, and a second answer within some steps of the first.

        The state holds the steps of open triggers and first answers. A second answer settles the first answers that are near
        enough, and the triggers that are near enough to those. A trigger is violated when no first answer can come any more
        and no first answer that came can still be followed.
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

    def leaf(self, number: int, body: Body) -> str:
        """The value of a leaf of the engine; any, where the kind of the record decides a connective around it."""
        future, kind = self.layout.future_goal(), self.function.kind
        leaf = future.leaves[number]
        if not any(decided(node, kind) is not None for node in future.around[number]):
            return body.value(leaf)
        if not is_present(leaf):
            body.emit_operators(leaf)
        return TRUE if decided(leaf, kind) else FALSE

    def _emit_engine(self) -> list[str]:
        """Emit a goal with several or nested future operators: see `obligations`."""
        body, goal = self.body, self.goal
        future = self.layout.future_goal()
        plan, leaves = future.plan, future.leaves
        (engine,) = body.scope.slots_for(goal, "engine", None, plan=plan)
        opens = conjunction([negated(self.leaf(index, body)) for index in plan.guard])
        truth = "".join(f"bool({self.leaf(number, body)}), " for number in range(len(leaves)))
        before = body.take()
        step, at = self.function.need("step"), self.function.need("at")
        moved = block(f"for start in {engine}.step({step}, {at}, ({truth})):", [self.report("start")])
        if self.key is None:
            self.function.asking(f"{engine}.check_limit()")
            return [*before, *guarded(disjunction([f"{engine}.open", opens]), moved)]
        table = self._table()
        kept = [f"due_{table}.keep({self.key}, {engine})"]
        body.changed = True
        return [*before, *guarded(disjunction([f"{engine}.open", opens]), [*moved, *kept])]
