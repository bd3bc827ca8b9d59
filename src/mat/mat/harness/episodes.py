"""Episodes: several cases in one run, each with monitors that start anew."""

from __future__ import annotations

from collections import Counter

from mat.core.verdict import ContractOutcome
from mat.govern.mediator import Mediator
from mat.harness.trace import Trace
from mat.monitor.judge import Judge, attribute, merged, speaks


class Episodes:
    """Closes the monitors of a trace at the end of each episode. `outcomes`: the outcomes of the finished episodes."""

    __slots__ = ("_began", "_count", "_mediator", "_trace", "outcomes")

    def __init__(self, trace: Trace, mediator: Mediator | None) -> None:
        self._trace, self._mediator = trace, mediator
        self._began = 0
        self._count = 0
        self.outcomes: list[tuple[ContractOutcome, ...]] = []

    def number(self) -> int:
        """The number of the next episode."""
        self._count += 1
        return self._count

    def next(self) -> None:
        """End the episode in progress, if it has any steps, and start the monitors anew."""
        records = self._trace.sealed()
        if len(records) > self._began:
            self._end()
            self._trace.judge = Judge(self._trace.judge.contracts)
            self._began = len(records)

    def finish(self) -> tuple[ContractOutcome, ...]:
        """End the last episode; one outcome per contract over all of them."""
        if not self.outcomes or speaks(self._trace.sealed()[self._began :]):
            self._end()
        return merged(self.outcomes)

    def _end(self) -> None:
        """Close the monitors, and report the violations that appear only at the end of the episode to the mediator."""
        records = self._trace.sealed()
        self.outcomes.append(attribute(self._trace.judge.finish(records[-1] if records else None), records))
        if self._mediator is None:
            return
        verdicts = self._trace.verdicts[self._began :]
        shown = Counter(item.contract for verdict in verdicts if not isinstance(verdict, tuple) for item in verdict.violations)
        self._mediator.ended([item for found in self.outcomes[-1] for item in found.violations[shown[found.contract] :]])
