"""The mediator's layer of a run: governance judges what the port would get, and records keep the redacted form of it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from mat.boundary.session import MediationOutcome, Settled, StandIn
from mat.core.record import Mediation
from mat.core.value import FrozenDict, snapshot_arguments, thaw
from mat.govern.mediator import Mediator, changed_names
from mat.harness.open_step import OpenStep
from mat.harness.recorded_form import RecordedForm
from mat.harness.trace import Trace


class MediationLayer:
    """Asks the mediator about open steps."""

    __slots__ = ("_form", "_trace", "mediator")

    def __init__(self, mediator: Mediator, trace: Trace, form: RecordedForm) -> None:
        self.mediator, self._trace, self._form = mediator, trace, form

    def mediate(self, opened: OpenStep) -> MediationOutcome | None:
        """The decision on a step; None if it is allowed and there is nothing to record."""
        recorded, judged = opened.proposed(), _judged_arguments(opened)
        proposed = recorded
        if judged is not opened.arguments:
            proposed = replace(recorded, action=replace(recorded.action, arguments=judged))
        decided = self.mediator.mediate(proposed, self._trace, recorded)
        if decided is None or (type(decided) is Mediation and decided.arguments is None and not decided.reason):
            return decided
        return self._on_real_arguments(opened, judged, decided)

    def confirm(self, opened: OpenStep) -> Mediation | None:
        """Check an approved step again before it runs; None if the approval still holds."""
        mediation = opened.mediation
        if mediation is None:
            return None
        allowed, running = mediation.arguments or opened.passed_arguments, opened.current_arguments
        executed = None if opened.replaced_arguments is None else self._form.executed(opened, opened.replaced_arguments)
        record = replace(opened.proposed(), executed=executed)
        refused = self.mediator.confirm(record, self._form.mediation(opened, mediation), changed_names(allowed, running))
        return None if refused is None else replace(refused, arguments=mediation.arguments)

    def refuse_changed(self, opened: OpenStep, names: list[str]) -> Mediation:
        """Block an action whose parameters `names` were changed after it was judged."""
        judged = opened.mediation or Mediation(decision="allow")
        return self.mediator.refuse_changed(opened.proposed(), judged, names)

    def _on_real_arguments(self, opened: OpenStep, judged: FrozenDict, decided: MediationOutcome) -> MediationOutcome:
        """Give parameters that a decision leaves unchanged the values of the call, and cut secrets out of its reason."""
        if isinstance(decided, Mediation):
            return self._with_real_arguments(opened, judged, decided)
        if isinstance(decided, StandIn):
            return replace(decided, mediation=self._with_real_arguments(opened, judged, decided.mediation))
        settle = decided.settle

        def settled(answer: Any, artifact: str) -> Settled:
            found = settle(answer, artifact)
            return replace(found, decision=self._on_real_arguments(opened, judged, found.decision))

        return replace(decided, settle=settled)

    def _with_real_arguments(self, opened: OpenStep, judged: FrozenDict, mediation: Mediation) -> Mediation:
        reason = self._form.redactor.text(mediation.reason)
        given = mediation.arguments
        if given is None or judged is opened.passed_arguments:
            return replace(mediation, reason=reason)
        changed = {field: item for field, item in given.items() if field not in judged or item is not judged[field]}
        return replace(mediation, reason=reason, arguments=FrozenDict({**opened.passed_arguments, **changed}))


def _judged_arguments(opened: OpenStep) -> FrozenDict:
    """The arguments that rules judge: as the port gets them, before redaction, with the texts behind handles."""
    if opened.port.handles is None:
        return opened.judged_arguments
    with suppress(LookupError):  # the call will say that the handle is unknown
        return snapshot_arguments(opened.port.handles.resolve(thaw(opened.judged_arguments)), f"call of {opened.port.name}")
    return opened.judged_arguments
