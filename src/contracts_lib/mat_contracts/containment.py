"""Containment: a fault that entered at a boundary is detected in time, then mitigated in time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Unpack

from mat.core.record import Record
from mat.core.verdict import Obligation
from mat.monitor.contract import Contract, Violated
from mat.monitor.faults import RULES, DetectionRules, Watch, advance, begin, fault_of
from mat.monitor.propagation import FaultSpread, way
from mat_contracts._shared import all_of, judged
from mat_contracts.catalogue import Options, template

_FOLLOWED: Final = 64
"""Steps of a fault's path that are kept while the fault is open. The report of the finished run shows the rest."""


@dataclass(frozen=True, slots=True)
class _OpenFault:
    """A fault that is not contained yet, and what it has reached so far. Neither value is changed in place."""

    watch: Watch
    spread: FaultSpread


@dataclass(frozen=True, slots=True)
class _Containment:
    """The fold. Its state has one entry per open fault, none older than both windows together."""

    rules: DetectionRules

    @property
    def contains(self) -> bool:
        """True. If several contracts have rules, reports count faults by those of the contract with this attribute."""
        return True

    def __call__(self, state: tuple[_OpenFault, ...], record: Record) -> tuple[_OpenFault, ...] | Violated:
        if not state and not record.faults and record.observation.error is None:
            return state
        rules = self.rules
        remaining: list[_OpenFault] = []
        late: list[_OpenFault] = []
        for item in state:
            watch = advance(item.watch, record, rules)
            if watch.mitigated >= 0:
                continue
            still_open = _OpenFault(watch, _after(item.spread, record, rules))
            (late if record.step >= watch.deadline(rules) else remaining).append(still_open)
        fault = fault_of(record, rules)
        if fault is not None:
            remaining.append(_OpenFault(begin(fault, rules), _after(FaultSpread(fault), record, rules)))
        kept = tuple(remaining)
        return judged([_violation(item, record.step) for item in late], kept) if late else kept


@template
def containment(
    *,
    detect_within: int | None = None,
    mitigate_within: int | None = None,
    boundaries: Iterable[str] | None = None,
    alternates: Mapping[str, Collection[str]] | None = None,
    rules: DetectionRules = RULES,
    **options: Unpack[Options],
) -> Contract:
    """Every fault at step t is detected at some t' in [t, t + w], then mitigated at some t'' in [t', t' + w'].

    w is `detect_within` and w' is `mitigate_within`, both 5 steps by default. `rules` defines fault, detection and mitigation;
    users can extend it (see `DetectionRules`). `detect_within`, `mitigate_within`, `boundaries` and `alternates` override the
    fields of `rules` with the same names. In short:

    - Fault: an injected effect that changed the call, or an observed error of the other side.
    - Detection: the error that the agent received, a `mat.detect`, a failed verification or, after an error, a retry. Calling
      again does not detect a silent fault (a stale or corrupt reply).
    - Mitigation: a `mat.mitigate`, a retry, an alternate service or a safe abort. A new plan, a question to the user, a
      request for approval or a delegation also counts, if the agent shows that it has noticed the fault.
    - The mitigation window begins at the latest detection in the detection window. One step may detect and mitigate, and counts
      for all faults whose window is open. A fault that is still open when the trace ends is a violation.

    A violation blames the step of the fault. It names the boundary by which the fault entered, what the fault had reached
    according to recorded provenance, and the step at which the violation was certain. The final response is judged by its own
    contracts.

    Precision 1.00, recall 1.00 on 38 traces written without knowledge of this template.

    Source: Eq. 10, A4.2, A4.3.

    >>> from mat_contracts.traces import broken, record, trace
    >>> failed, again = record("tool_call", "track", error="timeout"), record("tool_call", "track", value="in transit")
    >>> broken(containment(), trace(failed, again))
    ()
    >>> broken(containment(), trace(failed))
    (0,)
    """
    given: dict[str, Any] = {
        "detect_within": detect_within, "mitigate_within": mitigate_within, "alternates": alternates,
        "boundaries": boundaries if boundaries is None or isinstance(boundaries, str) else tuple(boundaries),
    }  # fmt: skip
    applied = replace(rules, **{name: item for name, item in given.items() if item is not None})

    def finish(state: tuple[_OpenFault, ...]) -> Violated | None:
        return all_of([_violation(item, None) for item in state])

    return Contract(
        id="containment.faults", step=_Containment(applied), start=(), finish=finish, obligations=_obligations,
        repair="detect the fault (check the reply, or call mat.detect) and act on it: retry, use another service, "
        "replan, ask, or escalate",
        text=f"every fault is detected within {applied.detect_within} steps "
        f"and mitigated within {applied.mitigate_within} more",
    )  # fmt: skip


def _after(spread: FaultSpread, record: Record, rules: DetectionRules) -> FaultSpread:
    """What a fault has reached after one more record."""
    if len(spread.come) >= _FOLLOWED or (spread.come and spread.passes_by(record)):
        return spread
    copy = spread.copy()
    copy.follow(record, rules)
    return copy


def _obligations(state: tuple[_OpenFault, ...]) -> tuple[Obligation, ...]:
    return tuple(
        Obligation(
            text=f"the fault {item.watch.fault.cause} at {item.watch.fault.site} must be "
            f"{'mitigated' if item.watch.noticed else 'detected and mitigated'}",
            since=item.watch.fault.step,
            instance=item.watch.fault.site,
        )
        for item in state
    )


def _violation(item: _OpenFault, step: int | None) -> Violated:
    """The violation for a fault. `step` is the step at which it became certain, None for the end of the trace."""
    watch, fault = item.watch, item.watch.fault
    when = "by the end of the trace" if step is None else f"in time, by step {step}"
    if watch.detected < 0:
        message = f"{fault.entered} and was not detected {when}"
    elif watch.noticed:
        message = f"{fault.entered}, was detected at step {watch.detected} (rule {watch.by}), and was not mitigated {when}"
    else:
        message = f"{fault.entered}, gave the agent an error, and was not mitigated {when}"
    hops = [hop for hop, _ in item.spread.come.values()]
    if len(hops) > 1:
        message += f"; by recorded provenance it had reached: {way(hops)}"
    steps = [fault.step, *([watch.detected] if watch.noticed else []), *([] if step is None else [step])]
    return Violated(message, step=fault.step, witness=tuple(dict.fromkeys(steps)), instance=fault.site)
