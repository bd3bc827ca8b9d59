"""The mediator's layer of a run: governance judges recorded forms, ports get the real values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mat.boundary.session import MediationOutcome, Settled, StandIn
from mat.core.record import Mediation
from mat.core.value import FrozenDict
from mat.govern.mediator import Mediator
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
        decided = self.mediator.mediate(opened.proposed(), self._trace)
        if decided is None or (type(decided) is Mediation and decided.arguments is None):
            return decided
        return _on_real_arguments(opened, decided)

    def confirm(self, opened: OpenStep) -> Mediation | None:
        """Check an approved step again before it runs; None if the approval still holds."""
        if opened.mediation is None:
            return None
        executed = None if opened.replaced_arguments is None else self._form.executed(opened, opened.replaced_arguments)
        record = replace(opened.proposed(), executed=executed)
        refused = self.mediator.confirm(record, self._form.mediation(opened, opened.mediation))
        return None if refused is None else replace(refused, arguments=opened.mediation.arguments)

    def refuse_changed(self, opened: OpenStep, names: list[str]) -> Mediation:
        """Block an action whose parameters `names` were changed after it was judged."""
        judged = opened.mediation or Mediation(decision="allow")
        return self.mediator.refuse_changed(opened.proposed(), judged, names)


def _on_real_arguments(opened: OpenStep, decided: MediationOutcome) -> MediationOutcome:
    """Convert a decision on the recorded form to one on the real arguments."""
    if isinstance(decided, Mediation):
        return _with_real_arguments(opened, decided)
    if isinstance(decided, StandIn):
        return replace(decided, mediation=_with_real_arguments(opened, decided.mediation))
    settle = decided.settle

    def settled(answer: Any, artifact: str) -> Settled:
        found = settle(answer, artifact)
        return replace(found, decision=_on_real_arguments(opened, found.decision))

    return replace(decided, settle=settled)


def _with_real_arguments(opened: OpenStep, mediation: Mediation) -> Mediation:
    """A rewrite changes the recorded form; parameters that it leaves unchanged get their real values back."""
    if mediation.arguments is None or opened.arguments is opened.passed_arguments:
        return mediation
    sealed = opened.arguments
    changed = {field: item for field, item in mediation.arguments.items() if field not in sealed or item is not sealed[field]}
    return replace(mediation, arguments=FrozenDict({**opened.passed_arguments, **changed}))
