"""Compile formulas to contracts. Start here to read the compiler: from a formula to the code that judges it.

`always(tool_call("pay").implies(once(verification(passed=True), within=5)))` is compiled in these steps, a module each:

1. `temporal` builds the formula: a tree of frozen nodes, Always(Or(Not(Atom), Once(Atom, Window(0, 5)))).
2. `normal_form` splits it into goals. A `Goal` has a body without always or for_each, says where the body is judged (every
   step, the first, the last), for which id, and at which action kinds its value can change: here one goal, at every step, at
   the kinds tool_call and verification.
3. `layout` gives each subformula that remembers something a slot of the state: here s0, the step of the last verification.
   `JointGoals` does so for all armed contracts together, so that they share equal subformulas.
4. `reads` writes the reads of a record of one kind, `emitter` the updates and reports of a goal, `parametric` a for_each
   (parametric slicing: the same lines on the row of one id), with `expressions` to join, negate and fold them. For one kind
   most atoms are constants, so most of a formula folds away:

       verification:  if arguments.get('passed') == True: s0 = step
       tool_call:     if (name == 'pay') and (step - s0 > 5): found = report(0, record, found, None, -1, (s0, ))

   The reads come first because they run user code and can raise; the updates cannot. So a crash leaves the state unchanged.
5. `program` holds these lines for each kind, and turns the state into a value and back (saved, live). `CompiledFormula` is what
   a `Contract` carries.
6. `joint` joins the programs of all contracts with the folds of the others into one function, and executes its source. `judge`
   owns it. A formula with several or nested future operators waits in `obligations`; `explain` puts a violation into words.

Only numbers, literals of plain constants and our own identifiers enter the code; everything else is passed by reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mat.core import limits
from mat.core.errors import SpecError
from mat.core.record import Record
from mat.core.verdict import Obligation, Severity
from mat.monitor.contract import Contract, ContractPolicy, Margin, OnError, Violated
from mat.monitor.deep import room_for
from mat.monitor.explain import id_text
from mat.monitor.joint import fold_alone
from mat.monitor.layout import CompiledState
from mat.monitor.normal_form import goals_of, union
from mat.monitor.program import CompiledFormula, OpenObligation, program_of
from mat.monitor.temporal import Formula, _node, depth, text


def contract(
    id: str,
    formula: Formula,
    *,
    severity: Severity = "hard",
    weight: float = -1.0,
    policy: ContractPolicy = "observe",
    repair: str = "",
    message: str = "",
    margin: Margin | None = None,
    on_error: OnError = "fail",
) -> Contract:
    """Make a contract from a formula of `mat.temporal`.

    `always(phi)` is judged at every step, a formula that looks ahead (eventually, until, next) at the first step, any other at
    the last. Parts joined by & at the top are judged separately.

    `id`: the contract's name. `message` replaces the generated text of its violations. `severity`, `weight`, `policy`,
    `repair`, `margin`, `on_error`: see `mat.Contract`. Raises `mat.MatError` if `formula` is not a formula, or if
    `policy="block"` is given for one that is decided later: about later steps, or judged at the end of the run.

    >>> from mat.temporal import always, once, tool_call, verification
    >>> verified_first = mat.contract("verified_first", always(tool_call("refund").implies(once(verification(passed=True)))))
    >>> @mat.tool(effect="write")
    ... def refund(order): return "refunded"
    >>> with mat.run([verified_first]) as run:
    ...     reply = refund("A17")
    >>> [(found.contract, found.step) for found in run.violations]
    [('verified_first', 0)]

    Source: A1.4, A1.9.
    """
    node = _node(formula)
    nested = depth(node)
    if nested > limits.FORMULA_DEPTH:
        raise SpecError(
            what=f"the formula of contract {id!r} is nested {nested:,} levels deep; the limit is {limits.FORMULA_DEPTH:,}",
            fix='compare one field with many values by field("name").among([...]), or test everything in one predicate(...)',
        )
    with room_for(nested):
        goals, said = goals_of(node), text(node)
        compiled = CompiledFormula(goals, message, repair, nested)
        start = program_of((compiled,)).initial
    if policy == "block" and any(goal.ahead for goal in goals):
        raise SpecError(
            what=f"contract {id!r} blocks actions, but refers to later steps: {text(node)}",
            why="later steps decide eventually, until and next, and by then the action has been done",
            fix="use past operators, such as always(paid.implies(once(verified))), or use policy='observe'",
        )
    if policy == "block" and all(goal.when == "last" for goal in goals):
        raise SpecError(
            what=f"contract {id!r} blocks actions, but is judged at the end of the run: {text(node)}",
            why="it has no verdict during the run",
            fix="write always(...) around what must hold at every step",
        )
    return Contract(
        id=id,
        step=_Step(compiled),
        start=start,
        finish=_Finish(compiled) if any(goal.ahead or goal.when == "last" for goal in goals) else None,
        obligations=_Waiting(compiled),
        kinds=union(*[goal.kinds for goal in goals]),
        severity=severity,
        weight=weight,
        policy=policy,
        repair=repair,
        text=said,
        formula=compiled,
        margin=margin,
        on_error=on_error,
    )


def _merge(found: Sequence[Violated], **changes: Any) -> Violated | None:
    """Merge the violations of one step into one Violated with `more`; None if there are none."""
    return replace(found[0], more=tuple(found[1:]), **changes) if found else None


@dataclass(frozen=True, slots=True)
class _Step:
    """The fold of one contract as a pure function of its state, for unit tests and proposed actions; see `joint`."""

    formula: CompiledFormula

    def __call__(self, state: CompiledState, record: Record) -> CompiledState | Violated:
        found, after = fold_alone(self.formula, state, record)
        return _merge(found, state=after) or (state if after == state else after)


@dataclass(frozen=True, slots=True)
class _Finish:
    """Report the obligations that are still open at the end of the trace as violations."""

    formula: CompiledFormula

    def __call__(self, state: CompiledState) -> Violated | None:
        open_ones = sorted(program_of((self.formula,)).open(state), key=_age)
        return _merge([self._closed(item) for item in open_ones if not item.met])

    def _closed(self, item: OpenObligation) -> Violated:
        violated = self.formula.texts[item.goal].closed(item.key, item.since)
        asked_nowhere = item.since is None and self.formula.goals[item.goal].when == "first"
        return replace(violated, step=0) if asked_nowhere else violated  # no step of the trace could be judged


@dataclass(frozen=True, slots=True)
class _Waiting:
    """List the open obligations of a state. One about the last step is open only if it does not hold now."""

    formula: CompiledFormula

    def __call__(self, state: CompiledState) -> tuple[Obligation, ...]:
        return tuple(
            Obligation(
                text=self.formula.texts[item.goal].waiting,
                since=0 if item.since is None else item.since,
                instance=id_text(item.key),
                met=item.met,
            )
            for item in sorted(program_of((self.formula,)).open(state), key=_age)
            if item.since is not None or not item.met
        )


def _age(item: OpenObligation) -> tuple[int, int, str]:
    return (item.goal, -1 if item.since is None else item.since, id_text(item.key))
