"""Recovery: safety first, then liveness. Once the faults have ceased, the system gets back to work, and stays quiet."""

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
from mat_contracts._shared import PastWindow
from mat_contracts.catalogue import Options, template

RecoveryGoal: TypeAlias = Callable[[Record], bool] | Formula
"""What it means to be back at work: a predicate on a record, or a formula of the past, such as `tool_call("refund")`."""
WITHIN: Final = 10
"""The recovery budget in steps where none is given."""


@dataclass(frozen=True, slots=True)
class _State:
    """`fault`: the last one, None before the first and after a violation. `since`: the step from which its budget counts.
    `recovered`: the step at which the goal was reached after it, or -1. `goal` and `quiet` are the states of the formula and
    of the contracts that are to keep quiet.
    """

    fault: Fault | None = None
    since: int = -1
    recovered: int = -1
    goal: Any = None
    quiet: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class _Recovery:
    """The fold: each fault opens the window anew."""

    rules: DetectionRules
    budget: PastWindow
    predicate: Callable[[Record], bool] | None
    formula: Contract | None
    """Broken wherever the goal is reached."""
    quiet: tuple[Contract, ...]

    @property
    def start(self) -> _State:
        formula = self.formula
        return _State(goal=None if formula is None else formula.start, quiet=tuple(item.start for item in self.quiet))

    def __call__(self, state: _State, record: Record) -> _State | Violated:
        fault = fault_of(record, self.rules)
        if fault is None and state.fault is None and not self.quiet and not self.remembers:
            return state
        holds, goal = self._goal(state, record)
        noise, quiet = self._noise(state.quiet, record)
        if goal is not state.goal or quiet != state.quiet:
            state = replace(state, goal=goal, quiet=quiet)
        last = state.fault
        if fault is not None:  # whatever happened before: the fault that became known last counts
            latest = fault if last is None or fault.sealed_seq >= last.sealed_seq else last
            return replace(state, fault=latest, since=record.step, recovered=-1)
        if last is None:
            return state
        if not known_to(record, last):
            return replace(state, since=record.step)
        if state.recovered >= 0:
            return _relapsed(last, state, record, noise) if noise else state
        if holds and self.budget.holds(record.step - state.since, record.sealed_ms - last.sealed_ms):
            return replace(state, recovered=record.step)
        # the budget is over where no later record can be in time: those after it are later in steps, and no earlier in run time
        if not self.budget.holds(record.step - state.since + 1, record.at_ms - last.sealed_ms):
            return replace(_late(last, self.budget, f"by step {record.step}", record.step), state=replace(state, fault=None))
        return state

    @property
    def remembers(self) -> bool:
        """Whether the goal's formula has a state, so that it has to see every record."""
        return self.formula is not None and bool(self.formula.start)

    def _goal(self, state: _State, record: Record) -> tuple[bool, Any]:
        """Whether the goal is reached with this record, and the state of its formula."""
        if self.formula is not None and (self.remembers or state.fault is not None):
            new = self.formula.step(state.goal, record)
            broken = isinstance(new, Violated)
            return broken, (state.goal if new.state is KEEP else new.state) if isinstance(new, Violated) else new
        if state.fault is None or state.recovered >= 0:
            return False, state.goal
        return (bool(self.predicate(record)) if self.predicate is not None else _back_at_work(record, state.fault)), state.goal

    def _noise(self, states: tuple[Any, ...], record: Record) -> tuple[tuple[tuple[str, str], ...], tuple[Any, ...]]:
        """(contract, message) of what this record breaks of the quiet ones, and their states after it."""
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
    """After the last fault the system reaches its goal within the recovery budget, and is quiet from then on.

    Liveness beside Eq. 10, which asks for an answer to each fault. The budget is `within` steps and `within_ms` milliseconds
    of run time after the fault was known (both, where both are given; 10 steps where neither is), and each new fault begins
    it anew: while faults go on, nothing is owed. What is a fault is said by `rules` (as in `containment`).

    `goal`: a predicate on a record, or a formula of the past. By default the system is back at work with a call of the port of
    the last fault that has effect and carries neither error nor fault, or with a final response. `quiet`: contracts that the
    run must not break any more once the goal is reached, until the next fault. What they say in the window itself is left to
    them: arm them too. What only the end of the trace settles is left to them as well.

    A budget that has run out is a violation that blames the step of the last fault; a relapse blames its own step. A window
    that is still open where the trace is finished, by a safe abort too, is a violation (A4.2); on a prefix it is an open
    obligation.

    >>> from mat_contracts.traces import broken, record, trace
    >>> failed, again = record("tool_call", "track", error="timeout"), record("tool_call", "track", value="in transit")
    >>> broken(recovers(within=3), trace(failed, failed, again))
    ()
    >>> broken(recovers(within=3), trace(failed, failed, record("claim", "claim"), record("claim", "claim")))
    (1,)
    """
    budget = PastWindow.of(WITHIN if within is None and within_ms is None else within, within_ms)
    guards = (quiet,) if isinstance(quiet, Contract) else tuple(quiet)
    predicate, formula = _reached_by(goal)
    fold = _Recovery(rules, budget, predicate, formula, _checked(guards))

    def finish(state: _State) -> Violated | None:
        if state.fault is None or state.recovered >= 0:
            return None
        return _late(state.fault, fold.budget, "by the end of the trace", None)

    def obligations(state: _State) -> tuple[Obligation, ...]:
        fault = state.fault
        if fault is None or state.recovered >= 0:
            return ()
        text = f"{fault.entered}, and the system is back at work within {fold.budget}"
        return (Obligation(text=text, since=fault.step, instance=fault.site),)

    return Contract(
        id="recovery.faults", step=fold, start=fold.start, finish=finish, obligations=obligations,
        repair="once the other side answers again, take up the work where it was left: retry what failed, or end "
        "with a final response that says what is missing",
        text=f"after the last fault the system is back at work within {fold.budget}, and stays quiet",
    )  # fmt: skip


def _reached_by(goal: RecoveryGoal | None) -> tuple[Callable[[Record], bool] | None, Contract | None]:
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
            what="the goal looks ahead", why="whether it is reached must be known at the step itself", fix="use past operators"
        )
    return None, probe


def _checked(guards: tuple[Contract, ...]) -> tuple[Contract, ...]:
    wrong = [repr(item) for item in guards if not isinstance(item, Contract)]
    raw = [item.id for item in guards if isinstance(item, Contract) and item.raw]
    if wrong or raw:
        problems = [f"no contract: {', '.join(wrong)}"] if wrong else []
        problems += [f"reads values before redaction: {', '.join(raw)}"] if raw else []
        raise SpecError(what=f"quiet= holds what cannot be judged here: {'; '.join(problems)}", fix="give mat.Contract values")
    return guards


def _back_at_work(record: Record, fault: Fault) -> bool:
    action = record.action
    if action.kind == "final_response":
        return True
    if action.kind != fault.kind or action.name != fault.name or record.observation.error is not None:
        return False
    return record.effected == "yes" and not record.observation.cancelled and not record.blocked


def _late(fault: Fault, budget: PastWindow, when: str, step: int | None) -> Violated:
    said = f"{fault.entered}, the last fault, and the system was not back at work within {budget} ({when})"
    witness = (fault.step,) if step is None else (fault.step, step)
    return Violated(said, step=fault.step, witness=witness, instance=fault.site, wanted=f"the goal within {budget}")


def _relapsed(fault: Fault, state: _State, record: Record, noise: tuple[tuple[str, str], ...]) -> Violated:
    broken = "; ".join(f"{contract}: {message}" for contract, message in noise)
    said = f"{fault.entered}, the system was back at work at step {state.recovered}, and then broke {broken}"
    return Violated(said, state=state, witness=(fault.step, state.recovered, record.step), instance=fault.site)
