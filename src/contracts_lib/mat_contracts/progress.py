"""Progress and termination: the remaining work decreases, and the run ends.

Source: F1, Eq. 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, Unpack

from mat.core.errors import SpecError, plural
from mat.core.record import ActionKind, Record
from mat.monitor.contract import Contract, Violated
from mat_contracts._shared import count_of
from mat_contracts._values import number_of
from mat_contracts.catalogue import Options, template

Potential: TypeAlias = Callable[[Mapping[str, Any]], float]
SIGNALS: Final[Mapping[str, float]] = {"open_subtasks": 1, "approvals": 1, "retries": 1}
"""The default Phi: unresolved subtasks + pending approvals + active retries in the state projection, and their weights."""
_OUTSIDE: Final = ("horizon", "deadlock")
"""Terminations that stop a run from outside, so that it did not end by itself."""
_ENDS: Final[frozenset[ActionKind]] = frozenset(("final_response", "termination"))
_State: TypeAlias = tuple[float | None, int, int, int, bool]
"""(Phi at the previous step, steps without a decrease, the step they began at, the step of the collapse or -1, terminated)."""
_START: Final[_State] = (None, 0, 0, -1, False)


@template
def progress(
    *,
    window: int,
    potential: Potential | None = None,
    weights: Mapping[str, float] | None = None,
    **options: Unpack[Options],
) -> Contract:
    """In any `window` consecutive steps, the remaining work Phi decreases at least once, or the run terminates.

    Phi is the weighted sum of SIGNALS in the state projection. `weights` changes weights and adds signals;
    `potential` is a function of the state that replaces the sum. While the state has none of the signals (for a `potential`:
    is empty), the contract does not apply. Each further full window without a decrease is another violation. The record of a
    horizon or deadlock comes from the harness and is not counted as a step.

    `window`: steps, at least 1. Raises `mat.MatError` for a smaller window, a negative weight, and both `potential` and
    `weights`.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> two, one = (record("tool_call", "work", state={"open_subtasks": left}) for left in (2, 1))
    >>> broken(progress(window=2), trace(two, two, one, one))
    ()
    >>> broken(progress(window=2), trace(two, two, two))
    (2,)

    Source: Sec. IV-B, A1.9.
    """
    count_of(window, "window", least=1)
    phi = _phi(potential, weights)

    def step(state: _State, record: Record) -> _State | Violated:
        before, stalled, since, seen, ended = state
        if ended:
            return state
        if record.action.kind in _ENDS:
            return before, stalled, since, seen, True
        value = phi(record)
        if value is None:
            return state
        if before is None or value < before:
            return value, 0, record.step, seen, False
        stalled += 1
        if stalled < window:
            return value, stalled, since, seen, False
        stalled_for = f"{plural(window, 'step')} without progress"
        message = f"{stalled_for}: the remaining work is {value:g} and has not decreased since step {since}"
        return Violated(message, state=(value, 0, record.step, seen, False), since=since, witness=(since, record.step))

    return Contract(
        id="progress.window", step=step, start=_START,
        repair=f"after {plural(window, 'step')} without progress, change the plan, ask for help, or end the run",
        text=f"the remaining work decreases at least once in any {plural(window, 'step')}, or the run terminates",
    )  # fmt: skip


@template
def collapse(
    *,
    window: int,
    potential: Potential | None = None,
    weights: Mapping[str, float] | None = None,
    **options: Unpack[Options],
) -> Contract:
    """A run that does not terminate has no k with Phi(s[t+1]) >= Phi(s[t]) for all t in [k, k + window].

    Decided when the run ends. Such a stretch has `window + 1` transitions. A run does not terminate if
    its horizon or a deadlock stopped it. Phi, `potential` and `weights` are as in `progress`. The violation blames the
    step at which the first such stretch was complete.

    `window`: steps, at least 1. Raises `mat.MatError` for a smaller window, a negative weight, and both `potential` and
    `weights`.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> stuck = record("tool_call", "work", state={"open_subtasks": 1})
    >>> broken(collapse(window=1), trace(stuck, stuck, stuck, record("termination", "implicit")))
    ()
    >>> broken(collapse(window=1), trace(stuck, stuck, stuck, record("termination", "horizon")))
    (2,)

    Source: A1.7.
    """
    count_of(window, "window", least=1)
    phi = _phi(potential, weights)

    def step(state: _State, record: Record) -> _State | Violated:
        value, stalled, since, seen, ended = state
        if seen >= 0 and _is_stopped(record) and not ended:
            message = (
                f"collapse: the remaining work did not decrease from step {since} to {seen}, and the run did not terminate"
            )
            return Violated(message, step=seen, since=since, witness=(since, seen, record.step))
        if seen >= 0:
            return (value, stalled, since, seen, ended or record.action.kind in _ENDS)
        value, stalled, since, seen, ended = _next_state(state, record, phi)
        return (value, stalled, since, record.step if stalled > window else -1, ended)

    return Contract(
        id="progress.collapse", step=step, start=_START,
        repair="bound the retries, and end the run when there is no progress, if necessary with a safe abort",
        text=f"no {window + 1} transitions without a decrease of the remaining work in a run that does not terminate",
    )  # fmt: skip


@template
def terminates(
    **options: Unpack[Options],
) -> Contract:
    """The run ends by a terminal action within its horizon: a final response, a safe abort, an explicit failure or a return.

    A termination record shows that the horizon or a deadlock stopped the run. A trace without
    such a record was not stopped.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> broken(terminates(), trace(record("final_response", "answer", {"answer": "done"})))
    ()
    >>> broken(terminates(), trace(record("termination", "horizon")))
    (0,)

    Source: F1, A1.7.
    """

    def step(state: None, record: Record) -> Violated | None:
        if not _is_stopped(record):
            return state
        return Violated(f"the run did not terminate: {record.action.name}", witness=(record.step,))

    return Contract(
        id="progress.terminates", step=step, kinds=frozenset(("termination",)),
        repair="bound loops and waits, and end the run with mat.finish, if necessary as aborted or failed",
        text="the run ends by a terminal action within its horizon",
    )  # fmt: skip


def _is_stopped(record: Record) -> bool:
    return record.action.kind == "termination" and record.action.name in _OUTSIDE


def _next_state(state: _State, record: Record, phi: Callable[[Record], float | None]) -> _State:
    """The state after one more record."""
    before, stalled, since, seen, ended = state
    if ended:
        return state
    if record.action.kind in _ENDS:
        return (before, stalled, since, seen, True)
    value = phi(record)
    if value is None:
        return state
    if before is None or value < before:
        return (value, 0, record.step, seen, False)
    return (value, stalled + 1, since, seen, False)


def _phi(potential: Potential | None, weights: Mapping[str, float] | None) -> Callable[[Record], float | None]:
    """A function that returns Phi of a record's state, or None if it does not apply. SpecError if Phi is not a number >= 0."""
    if potential is not None and weights is not None:
        raise SpecError(
            what="both potential= and weights= are given", why="weights belong to the default potential", fix="give one of them"
        )
    table = {**SIGNALS, **(weights or {})}
    for name, weight in table.items():
        _at_least_zero(weight, f"the weight of {name}")

    signals = tuple(table.items())

    def default(record: Record) -> float | None:
        state, total, found = record.state, 0.0, False
        for name, weight in signals:
            if name in state:
                found, value = True, state[name]
                if type(value) is not int or value < 0:  # most values are counts
                    value = _at_least_zero(value, f"signal {name}")
                total += weight * value
        return total if found else None

    def from_potential(record: Record) -> float | None:
        assert potential is not None
        return float(_at_least_zero(potential(record.state), "the potential")) if record.state else None

    return default if potential is None else from_potential


def _at_least_zero(value: Any, what: str) -> float:
    number = number_of(value)  # a Decimal is recorded as text
    if number is not None and number.is_finite() and number >= 0:
        return float(number)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise SpecError(
            what=f"{what} is {value!r}", why="a potential, its signals and its weights are numbers >= 0",
            fix="give numbers >= 0, such as counts in mat.state",
        )  # fmt: skip
    return value
