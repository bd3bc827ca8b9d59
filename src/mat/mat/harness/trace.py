"""The trace of a run so far, and its verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from mat.boundary.port import Port
from mat.core.record import Record
from mat.core.value import FrozenDict
from mat.core.verdict import Verdict, Violation
from mat.harness.open_step import OpenStep
from mat.harness.recorded_form import RecordedForm
from mat.monitor.judge import Judge

Sink: TypeAlias = Callable[[Record, Verdict | tuple[str, ...]], None]


class Trace:
    """Records in ask order, open steps among them, and their ports. What a mediator may ask about the run.

    Monitors fold a record once all asked before it are sealed: `verdicts` is as long as that part of the trace. `judge` holds
    their states; each episode has one of its own. `sinks` get each record with its verdict, in ask order.
    """

    __slots__ = ("_form", "judge", "ports", "records", "sinks", "verdicts")

    def __init__(self, judge: Judge, form: RecordedForm) -> None:
        self.judge, self._form = judge, form
        self.records: list[Record | OpenStep] = []
        self.ports: list[Port] = []
        self.verdicts: list[Verdict | tuple[str, ...]] = []
        self.sinks: list[Sink] = []

    def sealed(self) -> tuple[Record, ...]:
        return tuple(record for record in self.records if isinstance(record, Record))

    def settled(self) -> Sequence[Record]:
        """The records that are sealed and judged, without a gap."""
        return cast("list[Record]", self.records[: len(self.verdicts)])

    def pending(self, step: int) -> Sequence[Record]:
        """The records that were asked after the settled ones and before `step`; of open steps, what is proposed."""
        asked = self.records[len(self.verdicts) : step]
        return [item.proposed() if isinstance(item, OpenStep) else item for item in asked]

    def recorded(self, step: int, arguments: FrozenDict) -> FrozenDict:
        """The recorded form of arguments that replace those of an open step."""
        opened = self.records[step]
        return self._form.executed(opened, arguments) if isinstance(opened, OpenStep) else arguments

    def peek(self, proposed: Record) -> tuple[Violation, ...]:
        """The violations of blocking contracts that a proposed action would add, with everything asked before it."""
        return self.judge.peek(proposed, self.pending(proposed.step), blocking=True)
