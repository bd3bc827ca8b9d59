"""Judges recorded traces (`mat check --contracts`) one at a time, counts per contract, and reports a table or JSON.

Memory does not grow with the file: it holds one record, the monitors' states, the violations of the current trace, twelve
bytes for each change of agent in it, and the few lines that are shown in the end.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mat.core import limits
from mat.core.codec import encode
from mat.core.digest import plain
from mat.core.errors import CodecError, MatError
from mat.core.record import Record
from mat.core.value import snapshot
from mat.core.verdict import ContractOutcome, Obligation, Outcome, Violation, merge
from mat.evidence.jsonl import Stored
from mat.measure.estimate import Estimate, Spread
from mat.measure.interval import wilson
from mat.monitor.contract import Contract
from mat.monitor.judge import EPISODE, HARNESS, Judge, merged
from mat.monitor.triggers import Triggers
from mat.report import words
from mat.report.table import Column, Listing, NoteList, ReportBlock, Table

__all__ = [
    "CheckReport", "CheckTally", "ContractLine", "JudgedTrace", "check_blocks", "judge_trace", "report_data", "trace_data",
]  # fmt: skip

_PREFIX_VERDICTS: Final = ("true", "presumably_true", "presumably_false", "false")
"""The verdicts of a prefix (RV-LTL), from best to worst."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTrace:
    """The outcomes of the contracts on one recorded trace. `origin` is its `file:line`; `torn`: where its file ends early.

    `untriggered`: the contracts that neither this trace triggered nor one judged before with the same triggers.
    """

    id: str
    origin: str
    labels: Mapping[str, Any]
    records: int
    finished: bool
    outcomes: tuple[ContractOutcome, ...]
    torn: str = ""
    untriggered: tuple[str, ...] = ()

    @property
    def violations(self) -> tuple[Violation, ...]:
        found = [violation for outcome in self.outcomes for violation in outcome.violations]
        return tuple(sorted(found, key=lambda item: (item.step, item.contract, item.instance)))

    @property
    def outcome(self) -> Outcome:
        """The outcome of the hard contracts, as for a run."""
        return merge(item.outcome for item in self.outcomes if item.severity == "hard")


# -- judging ----------------------------------------------------------------------------------------------------------


def judge_trace(stored: Stored, contracts: Sequence[Contract], triggers: Triggers | None = None) -> JudgedTrace:
    """Judge one trace as `mat.monitor.judge.judge` does, separately for each episode, but record by record.

    The obligations of an unfinished trace stay open: its verdict is presumed (RV-LTL), and open obligations are no violations.
    `triggers`: those of the traces judged so far, to judge triggers only until they are reached.
    """
    triggers = Triggers(contracts) if triggers is None else triggers
    triggers.begin()
    actors = _Actors()
    judge, has_agent, count = Judge(contracts, online=False), False, 0
    before: tuple[ContractOutcome, ...] | None = None
    last: Record | None = None
    for record in stored.records:
        if last is not None and record.state.get(EPISODE) != last.state.get(EPISODE):
            if before is None or has_agent:
                before = _merge_episodes(before, judge.finish(last))
            judge, has_agent = Judge(contracts, online=False), False
            triggers.begin()
        judge.fold(record)
        if triggers.waiting:
            triggers.fold(record)
        actors.note(record)
        last, count = record, count + 1
        has_agent = has_agent or record.agent != HARNESS
    if before is None or has_agent:
        before = _merge_episodes(before, judge.finish(last) if stored.finished else judge.outcomes_so_far(last))
    return JudgedTrace(
        id=stored.id, origin=str(stored.labels.get("origin", "") or getattr(stored, "where", "")), labels=stored.labels,
        records=count, finished=stored.finished, outcomes=actors.attributed(before), torn=getattr(stored, "torn", ""),
        untriggered=triggers.waiting,
    )  # fmt: skip


def _merge_episodes(
    before: tuple[ContractOutcome, ...] | None, now: tuple[ContractOutcome, ...]
) -> tuple[ContractOutcome, ...]:
    """Merge the outcomes of the episodes so far with those of the next one, whose open obligations remain."""
    if before is None:
        return now
    return tuple(
        replace(both, standing=max(one.standing, other.standing, key=_PREFIX_VERDICTS.index), open=other.open)
        for one, other, both in zip(before, now, merged([before, now]), strict=True)
    )


class _Actors:
    """The actor of each step, stored as the steps at which it changes, because a violation may blame a much earlier step."""

    __slots__ = ("_from", "_known", "_who")

    def __init__(self) -> None:
        self._from, self._who = array("q"), array("i")
        self._known: dict[tuple[str, str], int] = {}

    def note(self, record: Record) -> None:
        who = self._known.setdefault((record.agent, record.role), len(self._known))
        if not self._who or self._who[-1] != who:
            self._from.append(record.step)
            self._who.append(who)

    def attributed(self, outcomes: tuple[ContractOutcome, ...]) -> tuple[ContractOutcome, ...]:
        """The outcomes with the agent and role of each violating step filled in."""
        known = list(self._known)

        def attribute(violation: Violation) -> Violation:
            place = bisect_right(self._from, violation.step) - 1
            if violation.agent or place < 0:
                return violation
            agent, role = known[self._who[place]]
            return replace(violation, agent=agent, role=role)

        return tuple(
            replace(outcome, violations=tuple(map(attribute, outcome.violations))) if outcome.violations else outcome
            for outcome in outcomes
        )


# -- counting ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractLine:
    """One contract over all traces; in each it is violated, kept, unknown (it crashed, or cannot judge offline) or pending.

    `applied` counts traces in which it judged a step or was violated without one; it is `triggered` if a step reached its
    trigger, such as a call that a formula names. `pending` counts unfinished traces with an open
    obligation. `rate` is the share of violated among violated and kept, without a value if the contract never applied.
    `first_step` summarises the steps of the first violations. `error` is the first reason for an unknown.
    """

    contract: str
    severity: str
    traces: int
    applied: int
    violated: int
    unknown: int
    pending: int
    rate: Estimate
    first_step: Spread
    error: str = ""
    triggered: bool = True

    @property
    def vacuous(self) -> bool:
        """Whether no step of any trace triggered the contract, so that it says nothing about the traces."""
        return not (self.triggered or self.violated or self.unknown or self.pending)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLine:
    """A line of the report: a contract that a trace violates, with its first violation; or an open obligation."""

    trace: str
    origin: str
    contract: str
    violation: Violation | None = None
    again: int = 0
    """Further violations of the contract in this trace."""
    obligation: Obligation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """The result of checking traces. `shown` and `pending` are the first lines of all; `more_*` count those left out."""

    lines: tuple[ContractLine, ...]
    traces: int
    unfinished: int
    records: int
    violating: int
    failing: int
    shown: tuple[CheckLine, ...]
    more_shown: int
    pending: tuple[CheckLine, ...]
    more_pending: int
    notes: tuple[str, ...]
    problems: tuple[MatError, ...]

    @property
    def vacuous(self) -> tuple[str, ...]:
        return tuple(line.contract for line in self.lines if line.vacuous)


@dataclass(slots=True, eq=False)
class _ContractCount:
    traces: int = 0
    applied: int = 0
    violated: int = 0
    unknown: int = 0
    pending: int = 0
    first_steps: Counter[int] = field(default_factory=Counter)
    error: str = ""
    triggered: bool = False


class CheckTally:
    """Counts judged traces per contract, and keeps the first `limit` violations and open obligations to show."""

    def __init__(self, contracts: Sequence[Contract], *, limit: int) -> None:
        self._contracts, self._limit = tuple(contracts), limit
        self._counts = [_ContractCount() for _ in self._contracts]
        self._traces = self._unfinished = self._records = self._violating = self._failing = 0
        self._shown: list[CheckLine] = []
        self._pending: list[CheckLine] = []
        self._more_shown = self._more_pending = 0
        self._notes: list[str] = []
        self._problems: list[MatError] = []

    def add(self, trace: JudgedTrace) -> None:
        """Count one trace. An empty one, whose file ends within its header, only gets a note."""
        if trace.torn:
            if len(self._notes) < limits.NOTES:
                self._notes.append(trace.torn)
            if not trace.records and not trace.id:
                return
        self._traces += 1
        self._records += trace.records
        self._unfinished += not trace.finished
        self._violating += any(outcome.broken for outcome in trace.outcomes)
        self._failing += trace.outcome == "fail" or any(
            outcome.unjudged and contract.severity == "hard" and contract.on_error == "fail"
            for contract, outcome in zip(self._contracts, trace.outcomes, strict=True)
        )
        for count, outcome in zip(self._counts, trace.outcomes, strict=True):
            _count_outcome(count, outcome)
            count.triggered = count.triggered or outcome.contract not in trace.untriggered
            if outcome.broken:
                self._add_violation(trace, outcome)
            for obligation in outcome.open:
                self._add_pending(trace, outcome, obligation)

    def problem(self, error: MatError) -> None:
        """Keep the error of a file that could not be read."""
        self._problems.append(error)

    def _add_violation(self, trace: JudgedTrace, outcome: ContractOutcome) -> None:
        if len(self._shown) >= self._limit:
            self._more_shown += 1
            return
        first = min(outcome.violations, key=lambda item: item.step)
        again = len(outcome.violations) - 1
        self._shown.append(
            CheckLine(trace=trace.id, origin=trace.origin, contract=outcome.contract, violation=first, again=again)
        )

    def _add_pending(self, trace: JudgedTrace, outcome: ContractOutcome, obligation: Obligation) -> None:
        if len(self._pending) >= self._limit:
            self._more_pending += 1
            return
        self._pending.append(CheckLine(trace=trace.id, origin=trace.origin, contract=outcome.contract, obligation=obligation))

    def report(self) -> CheckReport:
        return CheckReport(
            lines=tuple(_contract_line(contract, count) for contract, count in zip(self._contracts, self._counts, strict=True)),
            traces=self._traces, unfinished=self._unfinished, records=self._records, violating=self._violating,
            failing=self._failing, shown=tuple(self._shown), more_shown=self._more_shown, pending=tuple(self._pending),
            more_pending=self._more_pending, notes=tuple(self._notes), problems=tuple(self._problems),
        )  # fmt: skip


def _count_outcome(count: _ContractCount, outcome: ContractOutcome) -> None:
    count.traces += 1
    count.applied += outcome.evaluations > 0 or bool(outcome.violations)
    count.violated += outcome.broken
    count.unknown += outcome.unjudged
    count.pending += outcome.outcome == "unknown" and not outcome.error
    count.error = count.error or outcome.error
    if outcome.broken:
        count.first_steps[min(violation.step for violation in outcome.violations)] += 1


def _contract_line(contract: Contract, count: _ContractCount) -> ContractLine:
    settled = count.traces - count.unknown - count.pending if count.applied else 0
    return ContractLine(
        contract=contract.id, severity=contract.severity, traces=count.traces, applied=count.applied, violated=count.violated,
        unknown=count.unknown, pending=count.pending, rate=wilson(count.violated, settled),
        first_step=_spread(count.first_steps), error=count.error, triggered=count.triggered,
    )  # fmt: skip


def _spread(counted: Counter[int]) -> Spread:
    """As `mat.measure.estimate.spread`, for counted values."""
    n = counted.total()
    if n == 0:
        return Spread(n=0, least=None, median=None, most=None)
    seen, steps = 0, sorted(counted)
    for median in steps:
        seen += counted[median]
        if seen > (n - 1) // 2:
            break
    return Spread(n=n, least=steps[0], median=median, most=steps[-1])


# -- as text ----------------------------------------------------------------------------------------------------------


def check_blocks(report: CheckReport) -> Iterator[ReportBlock]:
    """The table of contracts, then violations, open obligations, and what was not judged."""
    unfinished = f", {report.unfinished} unfinished" if report.unfinished else ""
    yield (
        f"{words.plural(report.traces, 'trace')} judged{unfinished}: {report.violating} violating, "
        f"{words.plural(report.records, 'record')}"
    )
    yield _contract_table(report)
    yield from _listing("Violations (the first of each contract in a trace)", report.shown, report.more_shown)
    yield from _listing("Open obligations of unfinished traces", report.pending, report.more_pending)
    yield NoteList(
        lines=(
            *(
                f"{line.contract} could not be judged in {words.plural(line.unknown, 'trace')}: {line.error}"
                for line in report.lines
                if line.unknown
            ),
            *(f"{name} is vacuous: no step of any trace triggers it" for name in report.vacuous),
            *(f"note: {note}" for note in report.notes),
            *([f"{words.plural(len(report.problems), 'file')} could not be read to the end"] if report.problems else []),
        )
    )


def _contract_table(report: CheckReport) -> Table:
    return Table(
        name="contracts",
        title="Contracts",
        note="rate: violated / (violated + kept), with 95% Wilson intervals",
        columns=(
            Column(name="contract", key=True), Column(name="severity"), Column(name="traces"), Column(name="applied"),
            Column(name="violated"), Column(name="unknown"), Column(name="pending"), Column(name="rate"),
            Column(name="first_step"),
        ),
        rows=tuple(
            (
                line.contract, line.severity, line.traces, line.applied, line.violated, line.unknown, line.pending, line.rate,
                line.first_step,
            )
            for line in report.lines
        ),
    )  # fmt: skip


def _listing(title: str, shown: Sequence[CheckLine], more: int) -> Iterator[ReportBlock]:
    if shown or more:
        rest = f"and {more} more; raise --limit to show more, or use --json for all" if more else ""
        yield Listing(title=title, lines=tuple(map(_sentence, shown)), more=rest)


def _sentence(item: CheckLine) -> str:
    place = f"{item.trace} ({item.origin})" if item.origin and item.origin != item.trace else item.trace
    if item.violation is not None:
        found = item.violation
        by = f" by {found.agent}" if found.agent else ""
        again = f" ({words.plural(item.again, 'more violation')} of this contract)" if item.again else ""
        instance = f" [{found.instance}]" if found.instance and found.instance not in found.message else ""
        return f"{place}: {item.contract} at step {found.step}{by}: {found.message}{instance}{again}"
    assert item.obligation is not None
    obligation = item.obligation
    instance = f" [{obligation.instance}]" if obligation.instance and obligation.instance not in obligation.text else ""
    return f"{place}: {item.contract} since step {obligation.since}: {obligation.text}{instance}"


# -- as JSON ----------------------------------------------------------------------------------------------------------


def trace_data(trace: JudgedTrace) -> dict[str, Any]:
    """One judged trace as JSON data, with all violations and open obligations of each contract."""
    steps = trace.labels.get("source_steps")
    return {
        "trace": trace.id,
        "origin": trace.origin,
        "labels": _labels(trace.labels),
        "finished": trace.finished,
        "records": trace.records,
        "outcome": trace.outcome,
        "torn": trace.torn,
        "contracts": [
            {
                "contract": outcome.contract,
                "severity": outcome.severity,
                "outcome": outcome.outcome,
                "standing": outcome.standing,
                "evaluations": outcome.evaluations,
                "error": outcome.error,
                "violations": [_violation_data(item, steps) for item in outcome.violations],
                "open": [encode(item) for item in outcome.open],
            }
            for outcome in trace.outcomes
        ],
    }


def _labels(labels: Mapping[str, Any]) -> Any:
    """The labels of the source, without its step indexes: a violation that needs one has it as `source_step`."""
    try:
        return plain(snapshot({key: item for key, item in labels.items() if key not in ("origin", "source_steps")}, "labels"))
    except CodecError:  # an importer may label a run with anything
        return {}


def _violation_data(violation: Violation, steps: Sequence[Any] | None) -> dict[str, Any]:
    data: dict[str, Any] = encode(violation)
    if steps is not None and 0 <= violation.step < len(steps):
        data["source_step"] = plain(snapshot(steps[violation.step], "source step"))
    return data


def report_data(report: CheckReport) -> dict[str, Any]:
    """The report as JSON data, without the traces."""
    return {
        "totals": {
            "traces": report.traces, "unfinished": report.unfinished, "records": report.records,
            "violating": report.violating, "failing": report.failing,
        },
        "table": [encode(line) for line in report.lines],
        "vacuous": list(report.vacuous),
        "notes": list(report.notes),
        "problems": [
            {"what": error.what, "why": error.why, "fix": error.fix, "where": error.where} for error in report.problems
        ],
        "ok": not report.failing and not report.problems,
    }  # fmt: skip
