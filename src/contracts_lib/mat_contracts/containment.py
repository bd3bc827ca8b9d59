"""Containment (Eq. 10): a fault that entered at a boundary is detected in time, then mitigated in time."""

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
"""Steps of one fault's path that are kept while it is open; what was reached after them is left to the finished run."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A fault that is not contained yet, and what it has reached meanwhile. Neither is ever changed in place."""

    watch: Watch
    spread: FaultSpread


@dataclass(frozen=True, slots=True)
class _Containment:
    """The fold: one entry for each open fault, none of them older than both windows together."""

    rules: DetectionRules

    @property
    def contains(self) -> bool:
        """Reports count by the rules of the contract that judges containment, not by those of a contract beside it."""
        return True

    def __call__(self, state: tuple[_Open, ...], record: Record) -> tuple[_Open, ...] | Violated:
        if not state and not record.faults and record.observation.error is None:
            return state
        rules = self.rules
        remaining: list[_Open] = []
        late: list[_Open] = []
        for item in state:
            watch = advance(item.watch, record, rules)
            if watch.mitigated >= 0:
                continue
            after = _Open(watch, _followed(item.spread, record, rules))
            (late if record.step >= watch.deadline(rules) else remaining).append(after)
        fault = fault_of(record, rules)
        if fault is not None:
            remaining.append(_Open(begin(fault, rules), _followed(FaultSpread(fault), record, rules)))
        kept = tuple(remaining)
        return judged([_broken(item, record.step) for item in late], kept) if late else kept


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

    Eq. 10, A4.2. `rules` says what a fault, a detection and a mitigation is (`DetectionRules` lists all; users add their
    own). w = `detect_within`, w' = `mitigate_within` (5 and 5 steps), `boundaries` and `alternates`
    take the place of what `rules` says. In short:

    - Fault: an injected effect that changed the call, or an observed error of the other side.
    - Detection: the error that the agent got, a `mat.detect`, a failed verification or, after an error, a retry. A silent
      fault (a stale or corrupt reply) is not detected by calling again.
    - Mitigation: a `mat.mitigate`, a retry, an alternate service, a safe abort; and a new plan, a question to the user, a
      request for approval or a delegation, where the agent shows that it has noticed.
    - Any detection in the window serves, and mitigation counts from it; one may be the step of the other. One step serves all
      faults whose window is open. What is open when the trace is finished is a violation.

    A violation blames the step of the fault. It names the boundary by which the fault entered, where it had got to by recorded
    provenance, and the step at which the violation was certain (A4.3); the final response is judged by its own contracts.

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

    def finish(state: tuple[_Open, ...]) -> Violated | None:
        return all_of([_broken(item, None) for item in state])

    return Contract(
        id="containment.faults", step=_Containment(applied), start=(), finish=finish, obligations=_obligations,
        repair="recognise the fault (mat.detect, or check the reply) and act on it: retry, use another service, "
        "replan, ask, or escalate",
        text=f"every fault is detected within {applied.detect_within} steps, mitigated within {applied.mitigate_within} more",
    )  # fmt: skip


def _followed(spread: FaultSpread, record: Record, rules: DetectionRules) -> FaultSpread:
    if len(spread.come) >= _FOLLOWED or (spread.come and spread.passes_by(record)):
        return spread
    after = spread.copy()
    after.follow(record, rules)
    return after


def _obligations(state: tuple[_Open, ...]) -> tuple[Obligation, ...]:
    return tuple(
        Obligation(
            text=f"{item.watch.fault.entered} is {'mitigated' if item.watch.noticed else 'detected and mitigated'}",
            since=item.watch.fault.step,
            instance=item.watch.fault.site,
        )
        for item in state
    )


def _broken(item: _Open, step: int | None) -> Violated:
    """`step`: where it became certain; None where the trace ended before."""
    watch, fault = item.watch, item.watch.fault
    when = "by the end of the trace" if step is None else f"in time, by step {step}"
    if watch.detected < 0:
        said = f"{fault.entered} and was not detected {when}"
    elif watch.noticed:
        said = f"{fault.entered}, by the rule {watch.by} was detected at step {watch.detected} and was not mitigated {when}"
    else:
        said = f"{fault.entered}, gave the agent an error, and was not mitigated {when}"
    hops = [hop for hop, _ in item.spread.come.values()]
    if len(hops) > 1:
        said += f"; it had reached, by recorded provenance: {way(hops)}"
    steps = [fault.step, *([watch.detected] if watch.noticed else []), *([] if step is None else [step])]
    return Violated(said, step=fault.step, witness=tuple(dict.fromkeys(steps)), instance=fault.site)
