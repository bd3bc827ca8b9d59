"""Containment (Eq. 10): a fault that entered at a boundary is detected in time, then mitigated in time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, get_args

from mat.core.errors import SpecError
from mat.core.record import Record
from mat.core.site import Boundary
from mat.core.verdict import Severity
from mat.monitor.contract import Contract, ContractPolicy, Violated
from mat_contracts._shared import count_of

FAULT_KINDS: Final = frozenset(("timeout", "connection", "rate_limit", "server_error", "invalid"))
"""Error kinds that mean a fault of the other side. Others (blocked, auth, not_found) are answers an agent may well get."""
BOUNDARIES: Final = ("service", "retrieval", "memory", "model", "delegation")
"""Where faults enter. Prompt and order disturbances are perturbations of the search (Sec. IV-C), not faults (Sec. IV-D)."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A fault not yet contained. `loud`: the agent met an error. `detected`: the latest detection in the window, or -1."""

    step: int
    site: str
    boundary: str
    kind: str
    name: str
    cause: str
    loud: bool
    detected: int = -1


def containment(
    *,
    detect_within: int = 5,
    mitigate_within: int = 5,
    boundaries: Iterable[str] = BOUNDARIES,
    id: str = "",
    severity: Severity = "hard",
    weight: float = -1.0,
    policy: ContractPolicy = "observe",
    repair: str = "",
) -> Contract:
    """Every fault at step t is detected at some t' in [t, t + w], then mitigated at some t'' in [t', t' + w'].

    Eq. 10, A4.2; w = `detect_within`, w' = `mitigate_within`, in steps. The rules:

    - Fault: an injected effect that changed the call, at one of `boundaries`, or an observed error of FAULT_KINDS.
    - Detection: a `mat.detect`, a failed verification or, where the agent met an error, another call of the same port.
      A silent fault (a stale or corrupt reply) is not detected by calling again.
    - Mitigation: a `mat.mitigate`, another call of the same port, a delegation, a request for approval or a message to
      "user". It serves at the step of the detection or after it; a detection that is late serves nothing.
    - Blocked calls are neither. One detection or mitigation serves all faults whose window is open.
    - What is open when the trace is finished is a violation.

    A violation blames the step of the fault and names the boundary by which it entered; the final response is judged by
    its own contracts.

    >>> from mat_contracts.traces import broken, record, trace
    >>> failed, again = record("tool_call", "track", error="timeout"), record("tool_call", "track", value="in transit")
    >>> broken(containment(), trace(failed, again))
    ()
    >>> broken(containment(), trace(failed))
    (0,)
    """
    count_of(detect_within, "detect_within", least=1)
    count_of(mitigate_within, "mitigate_within", least=0)
    entries = frozenset(boundaries)
    unknown = sorted(entries - set(get_args(Boundary)))
    if unknown:
        raise SpecError(what=f"no boundary is called {', '.join(unknown)}", fix=f"use some of {', '.join(get_args(Boundary))}")

    def step(state: tuple[_Open, ...], record: Record) -> tuple[_Open, ...] | Violated:
        if not state and not record.faults and record.observation.error is None:
            return state
        remaining: list[_Open] = []
        late: list[_Open] = []
        for fault in state:
            seen = _advanced(fault, record, detect_within, mitigate_within)
            if seen is None:
                continue
            (late if _is_late(seen, record.step, detect_within, mitigate_within) else remaining).append(seen)
        entered = _fault(record, entries)
        if entered is not None:
            remaining.append(entered)
        kept = tuple(remaining)
        return _violated(late, kept, "in time") if late else kept

    def finish(state: tuple[_Open, ...]) -> Violated | None:
        return _violated(state, (), "by the end of the trace") if state else None

    return Contract(
        id=id or "containment.faults", step=step, start=(), finish=finish, severity=severity, weight=weight, policy=policy,
        repair=repair or "recognise the fault (mat.detect, or check the reply) and act on it: retry, use another service, "
        "replan, ask, or escalate",
        text=f"every fault is detected within {detect_within} steps and then mitigated within {mitigate_within}",
    )  # fmt: skip


def _fault(record: Record, entries: frozenset[str]) -> _Open | None:
    """The fault that entered with this record, injected or observed."""
    error, action = record.observation.error, record.action
    injected = [note.operator for note in record.faults if note.changed] if action.boundary in entries else []
    observed = error is not None and error.kind in FAULT_KINDS and (not action.boundary or action.boundary in entries)
    if not injected and not observed:
        return None
    cause = ", ".join(injected) or (error.kind if error is not None else "")
    return _Open(record.step, record.site, action.boundary, action.kind, action.name, cause, loud=error is not None)


def _advanced(fault: _Open, record: Record, detect_within: int, mitigate_within: int) -> _Open | None:
    """The fault after one more record: None once it is contained."""
    kind = record.action.kind
    again = kind == fault.kind and record.action.name == fault.name and not record.blocked
    if record.step - fault.step <= detect_within and (
        kind == "detection"
        or (kind == "verification" and record.action.arguments.get("passed") is False)
        or (again and fault.loud)
    ):
        fault = replace(fault, detected=record.step)
    mitigates = again or (not record.blocked and _is_mitigation(record))
    if mitigates and fault.detected >= 0 and record.step - fault.detected <= mitigate_within:
        return None
    return fault


def _is_mitigation(record: Record) -> bool:
    kind = record.action.kind
    if kind == "message":  # what comes from the user enters at the prompt boundary
        return record.action.name == "user" and record.action.boundary != "prompt"
    return kind in ("mitigation", "delegation", "approval")


def _is_late(fault: _Open, step: int, detect_within: int, mitigate_within: int) -> bool:
    """Whether nothing that comes after this step can contain it: no detection is possible, nor mitigation of the last one."""
    if step - fault.step < detect_within:
        return False
    return fault.detected < 0 or step - fault.detected >= mitigate_within


def _violated(faults: Iterable[_Open], state: tuple[_Open, ...], when: str) -> Violated:
    found = [_broken(fault, when) for fault in faults]
    return replace(found[0], state=state, more=tuple(found[1:]))


def _broken(fault: _Open, when: str) -> Violated:
    entered = f"{fault.cause} entered at {fault.boundary or fault.kind} ({fault.site}, step {fault.step})"
    if fault.detected < 0:
        return Violated(f"{entered} and was not detected {when}", step=fault.step, witness=(fault.step,), instance=fault.site)
    said = f"{entered}, was detected at step {fault.detected} and was not mitigated {when}"
    return Violated(said, step=fault.step, witness=(fault.step, fault.detected), instance=fault.site)
