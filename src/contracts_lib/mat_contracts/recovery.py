"""Recovery: liveness after safety. Once the faults have stopped, the system gets back to work and breaks nothing more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, Unpack

from mat.core.errors import SpecError
from mat.core.record import Record
from mat.core.verdict import Obligation
from mat.monitor.compile import contract
from mat.monitor.contract import KEEP, Contract, Violated
from mat.monitor.faults import RULES, DetectionRules, Fault, fault_of, known_to
from mat.monitor.temporal import Formula, always
from mat_contracts._outcome import succeeded
from mat_contracts._shared import PastWindow
from mat_contracts.catalogue import Options, template

RecoveryGoal: TypeAlias = Callable[[Record], bool] | Formula
"""When the system is back at work: a predicate on a record, or a formula of the past, such as `tool_call("refund")`."""
WITHIN: Final = 10
"""The default recovery budget, in steps."""


@dataclass(frozen=True, slots=True)
class _State:
    """`fault`: the last fault, None before the first one and after a violation. `since`: the step from which its budget counts.
    `recovered`: the step at which the goal was reached after the fault, or -1. `goal` and `quiet`: the states of the goal's
    formula and of the `quiet` contracts.
    """

    fault: Fault | None = None
    since: int = -1
    recovered: int = -1
    goal: Any = None
    quiet: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class _Recovery:
    """The step function. Each fault restarts the window."""

    rules: DetectionRules
    budget: PastWindow
    predicate: Callable[[Record], bool] | None
    goal_contract: Contract | None
    """A contract that is broken at each step that reaches the goal."""
    quiet: tuple[Contract, ...]

    @property
    def start(self) -> _State:
        goal = self.goal_contract
        return _State(goal=None if goal is None else goal.start, quiet=tuple(item.start for item in self.quiet))

    def __call__(self, state: _State, record: Record) -> _State | Violated:
        fault = fault_of(record, self.rules)
        if fault is None and state.fault is None and not self.quiet and not self.remembers:
            return state
        holds, goal = self._goal(state, record)
        noise, quiet = self._noise(state.quiet, record)
        if goal is not state.goal or quiet != state.quiet:
            state = replace(state, goal=goal, quiet=quiet)
        last = state.fault
        if fault is not None:  # the fault that became known last counts
            latest = fault if last is None or fault.sealed_seq >= last.sealed_seq else last
            return replace(state, fault=latest, since=record.step, recovered=-1)
        if last is None:
            return state
        if not known_to(record, last):
            return replace(state, since=record.step)
        if state.recovered >= 0:
            return _relapse(last, state, record, noise) if noise else state
        if holds and self.budget.holds(record.step - state.since, record.sealed_ms - last.sealed_ms):
            return replace(state, recovered=record.step)
        # the budget is used up if no later record can be in time: it has a higher step and is no earlier in run time
        if not self.budget.holds(record.step - state.since + 1, record.at_ms - last.sealed_ms):
            return replace(
                _not_recovered(last, self.budget, f"by step {record.step}", record.step), state=replace(state, fault=None)
            )
        return state

    @property
    def remembers(self) -> bool:
        """Whether the goal's formula has a state, so that it must see every record."""
        return self.goal_contract is not None and bool(self.goal_contract.start)

    def _goal(self, state: _State, record: Record) -> tuple[bool, Any]:
        """Whether the goal is reached with this record, and the state of its formula."""
        if self.goal_contract is not None and (self.remembers or state.fault is not None):
            new = self.goal_contract.step(state.goal, record)
            broken = isinstance(new, Violated)
            return broken, (state.goal if new.state is KEEP else new.state) if isinstance(new, Violated) else new
        if state.fault is None or state.recovered >= 0:
            return False, state.goal
        return (bool(self.predicate(record)) if self.predicate is not None else _back_at_work(record, state.fault)), state.goal

    def _noise(self, states: tuple[Any, ...], record: Record) -> tuple[tuple[tuple[str, str], ...], tuple[Any, ...]]:
        """(contract, message) for each `quiet` contract that this record breaks, and the states of these contracts after it."""
        found: list[tuple[str, str]] = []
        after: list[Any] = []
        for item, state in zip(self.quiet, states, strict=True):
            new = state if item.kinds is not None and record.action.kind not in item.kinds else item.step(state, record)
            if isinstance(new, Violated):
                found += [(item.id, broken.message) for broken in (new, *new.more)]
                new = state if new.state is KEEP else new.state
            after.append(new)
        return tuple(found), tuple(after)


@template
def recovers(
    *,
    within: int | None = None,
    within_ms: int | None = None,
    goal: RecoveryGoal | None = None,
    quiet: Contract | Iterable[Contract] = (),
    rules: DetectionRules = RULES,
    **options: Unpack[Options],
) -> Contract:
    """After the last fault the system reaches its goal within the recovery budget, and then breaks no `quiet` contract.

    `containment` demands a reaction to each fault; this contract adds liveness. The budget is `within` steps and
    `within_ms` milliseconds of run time after the fault was known (both, if both are given; by default 10 steps). Each new
    fault restarts it, so nothing is due while faults go on. `rules` define what a fault is, as in `containment`.

    `goal`: a predicate on a record, or a formula of the past. By default the goal is reached with a final response, or with a
    call of the last fault's port that takes effect, has neither an error nor a fault, and whose reply reports no failure.
    `quiet`: contracts that the run must not break between the goal and the next fault. To judge the window itself and the end
    of the trace by these contracts, arm them too.

    If the budget runs out, the violation blames the step of the last fault; a relapse blames its own step. A window that is
    open at the end of the trace, even after a safe abort, is a violation; on a prefix it is an open obligation.

    Raises `mat.MatError` for an invalid window, for a goal that is not a function or a formula of the past, and for
    contracts in `quiet` that cannot judge recorded values.

    Precision 1.00, recall 1.00 on 22 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> failed, again = record("tool_call", "track", error="timeout"), record("tool_call", "track", value="in transit")
    >>> broken(recovers(within=3), trace(failed, failed, again))
    ()
    >>> broken(recovers(within=3), trace(failed, failed, record("claim", "claim"), record("claim", "claim")))
    (1,)

    Source: A4.2.
    """
    budget = PastWindow.of(WITHIN if within is None and within_ms is None else within, within_ms)
    guards = (quiet,) if isinstance(quiet, Contract) else tuple(quiet)
    predicate, formula = _goal_test(goal)
    fold = _Recovery(rules, budget, predicate, formula, _check_guards(guards))

    def finish(state: _State) -> Violated | None:
        if state.fault is None or state.recovered >= 0:
            return None
        return _not_recovered(state.fault, fold.budget, "by the end of the trace", None)

    def obligations(state: _State) -> tuple[Obligation, ...]:
        fault = state.fault
        if fault is None or state.recovered >= 0:
            return ()
        text = f"{fault.entered}, and the system must be back at work within {fold.budget}"
        return (Obligation(text=text, since=fault.step, instance=fault.site),)

    return Contract(
        id="recovery.faults", step=fold, start=fold.start, finish=finish, obligations=obligations,
        repair="once the other side answers again, resume the work: retry the failed calls, or end with a final "
        "response that says what is missing",
        text=f"after the last fault the system is back at work within {fold.budget}, and breaks nothing more",
    )  # fmt: skip


def _goal_test(goal: RecoveryGoal | None) -> tuple[Callable[[Record], bool] | None, Contract | None]:
    if goal is None or (callable(goal) and not isinstance(goal, Formula)):
        return goal, None
    if not isinstance(goal, Formula):
        raise SpecError(
            what=f"goal={goal!r} is neither a predicate nor a formula",
            fix="give record -> bool, or mat.temporal.tool_call(...)",
        )
    probe = contract("recovery.goal", always(~goal))
    if probe.formula.ahead:
        raise SpecError(
            what="the goal refers to future steps",
            why="each step must show whether the goal is reached",
            fix="use past operators",
        )
    return None, probe


def _check_guards(guards: tuple[Contract, ...]) -> tuple[Contract, ...]:
    wrong = [repr(item) for item in guards if not isinstance(item, Contract)]
    raw = [item.id for item in guards if isinstance(item, Contract) and item.raw]
    if wrong or raw:
        problems = [f"{item} is not a contract" for item in wrong]
        problems += [f"contract {id!r} reads values before redaction" for id in raw]
        raise SpecError(what=f"quiet: {'; '.join(problems)}", fix="give contracts that judge recorded values")
    return guards


def _back_at_work(record: Record, fault: Fault) -> bool:
    action = record.action
    if action.kind == "final_response":
        return True
    if action.kind != fault.kind or action.name != fault.name:
        return False
    return succeeded(record) and not record.blocked


def _not_recovered(fault: Fault, budget: PastWindow, when: str, step: int | None) -> Violated:
    message = f"{fault.entered}; it was the last fault, and the system was not back at work within {budget} ({when})"
    witness = (fault.step,) if step is None else (fault.step, step)
    return Violated(message, step=fault.step, witness=witness, instance=fault.site, wanted=f"the goal within {budget}")


def _relapse(fault: Fault, state: _State, record: Record, noise: tuple[tuple[str, str], ...]) -> Violated:
    broken = "; ".join(f"{contract}: {message}" for contract, message in noise)
    message = f"{fault.entered}, the system was back at work at step {state.recovered}, and then broke {broken}"
    return Violated(message, state=state, witness=(fault.step, state.recovered, record.step), instance=fault.site)
