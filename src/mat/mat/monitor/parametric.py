"""Parametric slicing: emit the lines of one for_each, with the ids that a record touches, the goal for each, and deadlines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mat.monitor.emitter import Body, GoalEmitter, RecordCode, first_of
from mat.monitor.expressions import FALSE, TRUE, block, conjunction, disjunction, indented, negated, used
from mat.monitor.layout import FAR, Layout
from mat.monitor.normal_form import alternatives, compares_of, is_present, pattern
from mat.monitor.reads import plain
from mat.monitor.temporal import (
    And,
    AtMost,
    Atom,
    Compare,
    Field,
    FormulaNode,
    Not,
    Once,
    Or,
    Previous,
    Since,
    Started,
    Variable,
    Window,
    children,
    looks_ahead,
    mentions,
    subformulas,
)


def _remembers(node: FormulaNode) -> bool:
    """Whether an operator or comparison has state."""
    if isinstance(node, Atom | Compare):
        return not all(plain(item) for item in compares_of(node))
    return isinstance(node, Once | Since | AtMost | Previous | Started)


class SliceEmitter:
    """Emits the lines of one for_each: which ids this record touches, and the goal for each of them."""

    def __init__(self, function: RecordCode, index: int) -> None:
        self.function, self.index = function, index
        self.joint = function.joint
        self.goal = self.joint.goals[index]
        self.part = self.joint.slices[index]
        self.layout = Layout(self.joint, index, self.part.scope)
        (self.table,) = self.joint.scope.slots_for(self.goal, "table", None)
        self.names = [slot.name for slot in self.part.scope.slots]
        self._forgets_later = False
        """Whether ids are forgotten only after every id of the record was handled: a later one may still be owed a report."""

    def lines(self) -> list[str]:
        made: list[str] = []
        for node in self._trace_parts(self.goal.body):
            made += self.function.of_trace(self.layout, node)
        groups = self._groups()
        if self.part.engine:
            self.function.asking(f"due_{self.table}.check_limit()")
        expires = self.part.forgets and (self.part.lasts, self.part.lasts_ms) != (-1, -1)
        self._forgets_later = expires and self.part.engine and len(groups) > 1
        made += ["forget = False"] if self._forgets_later else []
        made += self._report_due(closing=False)
        for number, (condition, key, bound) in enumerate(groups):
            earlier = [negated(conjunction([other, f"{other_key} == {key}"])) for other, other_key, _ in groups[:number]]
            made += self._group(conjunction([condition, *earlier]), key, bound)
        made += self._report_due(closing=True)
        return [*made, *(block("if forget:", self._forget()) if self._forgets_later else [])]

    def _trace_parts(self, node: FormulaNode) -> Iterator[FormulaNode]:
        """The operators, and comparisons with the step before, that are judged on the whole trace; not what joins them."""
        past = not (isinstance(node, Not | And | Or) or is_present(node) or looks_ahead(node))
        if past and self.layout.scope_of(node) is self.joint.scope:
            yield node
            return
        for part in children(node):
            yield from self._trace_parts(part)

    def _groups(self) -> list[tuple[str, str, dict[int, str]]]:
        """(condition, id, values of the atoms with the variable) for each place where an id can occur."""
        key = self.goal.key
        if isinstance(key, Field):
            name = self._id(key)
            return [(conjunction([f"{name} is not None", self._run_guard()]), name, {})]
        assert isinstance(key, Variable)
        matches: dict[int, tuple[str, str]] = {}
        for node in subformulas(self.goal.touches):
            if isinstance(node, Atom | Compare) and mentions(node, key):
                matches[id(node)] = self._match(node)
        places = list(dict.fromkeys(at for matched, at in matches.values() if matched != FALSE))
        groups = []
        for place in places:
            conditions = [matched for matched, at in matches.values() if at == place]
            earlier = places[: places.index(place)]  # already handled for this id: none of their atoms is true of it
            values = {
                node: FALSE if at in earlier else matched if at in (place, "") else conjunction([matched, f"{at} == {place}"])
                for node, (matched, at) in matches.items()
            }
            groups.append((conjunction([f"{place} is not None", disjunction(conditions)]), place, values))
        return groups

    def _id(self, field: Field) -> str:
        """An id. Values of records are hashable; the result of a user's function is hashed before any state changes."""
        name = self.function.field(field)
        if field.function is not None:
            self.function.asking(f"hash({name})")
        return name

    def _run_guard(self) -> str:
        """The condition under which a past formula can be false, or its state can change; otherwise its slice is skipped."""
        body = self.goal.body
        remembering = [node for node in subformulas(body) if _remembers(node)]
        parts = [node.part for node in remembering if isinstance(node, Once | AtMost)]
        plain_parts = len(parts) == len(remembering) and all(map(is_present, parts))
        if self.goal.when != "every" or self.goal.ahead or not plain_parts:
            return TRUE
        unless = [part for part in alternatives(body) if is_present(part)]
        broken = self.function.ask_all(unless, conjunction, False) if unless else TRUE
        return self.function.asked(disjunction([broken, *[self.function.ask(part) for part in parts]]), "p")

    def _match(self, node: Atom | Compare) -> tuple[str, str]:
        """(condition that the rest of the atom holds, the id for which it holds), as expressions."""
        variables = [item for item in compares_of(node) if isinstance(item.right, Variable)]
        tests = [self.function.atom(node)] if isinstance(node, Atom) else []
        if tests == [FALSE]:
            return FALSE, ""
        places = [self._id(item.left) for item in variables]
        tests += [f"{places[0]} == {place}" for place in places[1:]]
        return self.function.asked(conjunction(tests), "m"), places[0]

    def _group(self, condition: str, key: str, bound: dict[int, str]) -> list[str]:
        body = Body(self.function, self.part.scope, bound)
        body.layout = self.layout
        lines = used(GoalEmitter(self.function, self.layout, body, key).lines())
        if not lines:
            return []
        row = self.function.local("r")
        if lines == [f"{name} = step" for name in self.names]:  # every occurrence overwrites the state
            return block(f"if {condition}:", [*lines, *self._put_row(key)])
        changing = [line.strip() for line in lines if line.lstrip().startswith(tuple(f"{name} = " for name in self.names))]
        happened = bool(changing) and not self.part.engine and all(line.endswith(" = step") for line in changing)
        lines, kept = self._store_if_changed(lines, self._put_row(key) if happened else self._store(key))
        return block(f"if {condition}:", [f"{row} = {self.table}.get({key})", *self._load(row), *lines, *kept])

    def _store_if_changed(self, lines: list[str], kept: list[str]) -> tuple[list[str], list[str]]:
        """Store the state of an id only if it changed; if that is not certain, the lines that change it set a flag."""
        assigned = tuple(f"{name} = " for name in self.names)
        if self.part.engine or any(line.startswith(assigned) for line in lines):
            return lines, kept
        flagged = [line + "; changed = True" if line.lstrip().startswith(assigned) else line for line in lines]
        return (["changed = False", *flagged], block("if changed:", kept)) if flagged != lines else (lines, [])

    def _load(self, row: str) -> list[str]:
        if not self.names:
            return []
        fresh = [f"{slot.name} = {self._start(slot)}" for slot in self.part.scope.slots]
        if self.part.bare:
            return [f"{self.names[0]} = {row} if {row} is not None else {FAR}"]
        unpacked = f"{''.join(name + ', ' for name in self.names)}{'_,' if self.part.forgets else ''} = {row}"
        return [f"if {row} is None:", *indented(fresh), "else:", *indented([unpacked])]

    def _start(self, slot: Any) -> str:
        return f"Obligations({self.joint.constant(slot.plan)})" if slot.plan is not None else repr(slot.start)

    def _store(self, key: str) -> list[str]:
        """Keep the state of the id unless it equals the start state; forget ids that cannot matter any more."""
        if not self.names:
            return []
        return [f"if {self._matters()}:", *indented(self._put_row(key)), f"else: {self.table}.pop({key}, None)"]

    def _matters(self) -> str:
        """The condition under which the state of an id is not as if it had never been seen."""
        slots = self.part.scope.slots
        return disjunction(
            [f"{slot.name}.open" if slot.plan is not None else f"{slot.name} != {slot.start!r}" for slot in slots]
        )

    def _unpacked(self) -> str:
        return f"{''.join(name + ', ' for name in self.names)}{'touched,' if self.part.forgets else ''} = row"

    def _drop_if_as_new(self, key: str) -> list[str]:
        dropped = [self._unpacked(), f"if not ({self._matters()}): del {self.table}[{key}]"]
        return [f"row = {self.table}.get({key})", *block("if row is not None:", dropped)]

    def _put_row(self, key: str) -> list[str]:
        row = "".join(name + ", " for name in self.names)
        if not self.part.forgets or (self.part.lasts == -1 and self.part.lasts_ms == -1):
            return [f"{self.table}[{key}] = ({row})"]
        if self.part.bare:
            return [f"{self.table}[{key}] = step", f"order_{self.table}.append((step, {key}))", *self._forget()]
        touched = self._touch_time()
        stored = f"{self.table}[{key}] = ({row}{touched},)"
        forget = ["forget = True"] if self._forgets_later else self._forget()
        return [stored, f"order_{self.table}.append(({touched}, {key}))", *forget]

    def _expiry_units(self) -> tuple[bool, bool]:
        """Whether steps, and milliseconds, say when an id can be forgotten."""
        in_ms = self.part.lasts_ms != -1
        return (self.part.lasts != -1 or not in_ms, in_ms)

    def _touch_time(self) -> str:
        counted = zip(self._expiry_units(), ("step", "at"), strict=True)
        needed = [self.function.need(name) for wanted, name in counted if wanted]
        return f"({', '.join(needed)})" if len(needed) > 1 else needed[0]

    def _forget(self) -> list[str]:
        order, part = f"order_{self.table}", self.part
        in_steps, in_ms = self._expiry_units()
        first = f"{order}[0][0]"
        since = (f"{first}[0]", f"{first}[1]") if in_steps and in_ms else (first, first)
        over = self.function.elapsed(since, ">", part.lasts if in_steps else None, part.lasts_ms if in_ms else None)
        gone = "row == then" if part.bare else "row is not None and row[-1] == then"
        return block(
            f"while {' and '.join(over)}:",  # the entry just queued is never over
            [
                f"then, old = {order}.popleft()",
                f"row = {self.table}.get(old)",
                f"if {gone}: del {self.table}[old]",
            ],
        )

    def _report_due(self, *, closing: bool) -> list[str]:
        """Report the deadlines of all ids that have passed before this step, or that end with it."""
        if self.part.engine:
            return self._report_due_engines() if closing else []
        window = self.part.due
        if window is None:
            return []
        due = f"due_{self.table}"
        start = first_of(f"{due}[0]", window)
        over = self.function.elapsed(start, ">=" if closing else ">", window.high, None if closing else window.high_ms)
        if not over:
            return []
        return block(f"while {due} and ({' or '.join(over)}):", self._report_next(due, window))

    def _report_due_engines(self) -> list[str]:
        """Like `_report_due`, for nested future operators."""
        emitter = GoalEmitter(self.function, self.layout, Body(self.function, self.part.scope), "late")
        report, step, at = emitter.report("start"), self.function.need("step"), self.function.need("at")
        future = self.layout.future_goal()
        outside, trace = future.plan.outside, self.function.trace
        trace.layout = self.layout
        leaves = range(len(future.leaves))
        truth = "".join(f"bool({emitter.leaf(leaf, trace)}), " if leaf in outside else "False, " for leaf in leaves)
        due = f"due_{self.table}"
        broken = block(f"for start in engine.pass_by({step}, {at}, truth):", [*self._load_for_witness("late"), report])
        settled = block("if not engine.open:", self._drop_if_as_new("late"))
        each = [*broken, f"{due}.keep(late, engine)", *settled]
        looked = [f"truth = ({truth})", *block(f"for late, engine in {due}.due({step}, {at}, truth):", each)]
        return [*trace.take(), *block(f"if {due}:", looked)]

    def _report_next(self, due: str, window: Window) -> list[str]:
        """Report the next obligation that is due, unless it was met in the meantime."""
        body = Body(self.function, self.part.scope)
        found = pattern(self.goal)
        assert found is not None
        pending = self.part.pending
        report = GoalEmitter(self.function, self.layout, body, "late").report("start[0]" if window.timed else "start")
        taken = [body.pop(pending), *([] if found[2] else [report]), *self._restore("late")]
        waiting = [self._unpacked(), *block(f"if {pending} and {pending}[0] == start:", taken)]
        return [f"start, late = {due}.popleft()", f"row = {self.table}.get(late)", *block("if row is not None:", waiting)]

    def _restore(self, key: str) -> list[str]:
        row = "".join(name + ", " for name in self.names)
        kept = f"({row}touched,)" if self.part.forgets else f"({row})"
        return [f"if {self._matters()}: {self.table}[{key}] = {kept}", f"else: {self.table}.pop({key}, None)"]

    def _load_for_witness(self, key: str) -> list[str]:
        """The slots of an id, for the witness of a violation."""
        return [f"row = {self.table}.get({key})", *self._load("row")]  # an id forgotten at this step counts as never seen
