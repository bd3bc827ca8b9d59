"""Encodes a trace for the viewer: columns of small numbers for all steps, and the facts of steps in parts.

The viewer reads the columns when a trace is opened, and a part when one of its steps is shown, so that long traces open fast.
All text is untrusted: it goes into the page as escaped ASCII JSON and is shown as text only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mat.core.digest import digest, plain
from mat.core.record import FaultNote, Mediation, Observation, Record, mediation_facts, observed
from mat.core.run import Run
from mat.core.verdict import Violation
from mat.evidence.replay_file import hit_step
from mat.monitor.localize import backward_slice
from mat.monitor.propagation import passages, written
from mat.report import words
from mat.report.to_json import data_of as plain_data

PART: Final = 250
"""The steps of one part."""
_CELL: Final = 110
"""The most characters of a call or a reply in the list of steps."""
_WRITERS: Final = 8
"""The most writers that are named for one read of a whole memory."""

_HARD, _SOFT, _FAULT, _REWRITTEN, _BLOCKED, _APPROVAL, _ERROR, _WITNESS, _REGION, _SLICE, _HIGH, _WRITE = (
    1 << place for place in range(12)
)
"""Properties of a step, as bits; viewer.js has the same constants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A trace for the viewer: its records, its violations, and `verdict`, the violation at which the viewer opens.

    `item` is its test; the viewer offers traces of the same item first for a comparison. `base` identifies the run
    specification without the schedule: by default, a trace is compared with the nominal run of equal base. `about` lists
    facts of the run as (name, value).
    """

    name: str
    records: tuple[Record, ...]
    violations: tuple[Violation, ...] = ()
    verdict: Violation | None = None
    item: str = ""
    schedule: tuple[tuple[str, int | None, int], ...] = ()
    about: tuple[tuple[str, str], ...] = ()
    base: str = ""
    undisturbed: bool = False

    @classmethod
    def of(cls, run: Run, *, name: str, verdict: Violation | None = None) -> Traced:
        """The trace of a finished run. Without `verdict`, it opens at the first hard violation, or else at the first one."""
        violations = run.violations
        success = "" if run.success is None else "succeeded" if run.success else "failed"
        about = (
            ("ended", run.termination),
            ("task", success),
            ("seed", str(run.spec.seed)),
            ("run time", f"{run.elapsed_ms} ms"),
            ("error", run.error),
        )
        return cls(
            name=name,
            records=run.records,
            violations=violations,
            verdict=verdict or next(iter((*run.failures, *violations)), None),
            item=run.spec.task,
            schedule=tuple(
                (words.perturbation_in_words(item), hit_step(run, item), item.cost) for item in run.spec.schedule
            ),
            about=tuple((key, value) for key, value in about if value),
            base=run.spec.base,
            undisturbed=not len(run.spec.schedule),
        )  # fmt: skip


def undisturbed(found: Iterable[Run], runs: Iterable[Run]) -> tuple[Traced, ...]:
    """For each run of `found`, the nominal run among `runs` with equal task, configuration, seed and limits, each once.

    The viewer compares the two. A nominal run that `found` already contains is omitted.
    """
    found = tuple(found)
    known = {run.spec.base for run in found if not len(run.spec.schedule)}
    wanted = {run.spec.base for run in found} - known
    traces: dict[str, Traced] = {}
    for run in runs:
        base = "" if len(run.spec.schedule) else run.spec.base
        if base in wanted and base not in traces:
            traces[base] = Traced.of(run, name=f"nominal, seed {run.spec.seed}: {run.spec.task}")
    return tuple(traces.values())


def partners(traces: Sequence[Traced]) -> list[int | None]:
    """For each trace, the index of the trace to compare it with by default: the nominal run of its base, or None."""
    plain: dict[str, int] = {}
    for place, trace in enumerate(traces):
        if trace.undisturbed and trace.base:
            plain.setdefault(trace.base, place)
    return [None if trace.undisturbed else plain.get(trace.base) for trace in traces]


def data_of(place: int, trace: Traced) -> Iterator[tuple[str, object]]:
    """Yield the data of one trace with element ids: its columns, then its parts. `place` is its index in the page."""
    yield f"trace-{place}", _step_columns(trace)
    for number, start in enumerate(range(0, len(trace.records), PART)):
        part = trace.records[start : start + PART]
        yield f"trace-{place}-{number}", [[_call_text(record), _result_text(record), _step_facts(record)] for record in part]


# -- columns ----------------------------------------------------------------------------------------------------------


class _Names:
    """Numbers texts in the order in which they first occur."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def listed(self) -> list[str]:
        return list(self._numbers)


def _step_columns(trace: Traced) -> dict[str, Any]:
    agents, kinds, names, relations, artefacts = _Names(), _Names(), _Names(), _Names(), _Names()
    records, bits = trace.records, _step_bits(trace)
    sources = [
        [step, source, relations.number(relation), artefacts.number(artefact)]
        for step, source, relation, artefact in _sources(records)
    ]
    return {
        "name": trace.name,
        "item": trace.item,
        "about": [list(pair) for pair in trace.about],
        "schedule": [list(item) for item in trace.schedule],
        "part": PART,
        "step": [record.step for record in records],
        "at": [record.at_ms for record in records],
        "agent": [agents.number(record.agent) for record in records],
        "kind": [kinds.number(record.action.kind) for record in records],
        "action": [names.number(record.action.name) for record in records],
        "bits": bits,
        "asked": [_fact_number(_call_facts(record)) for record in records],
        "results": [_fact_number(_result_facts(record)) for record in records],
        "agents": agents.listed(),
        "kinds": kinds.listed(),
        "actions": names.listed(),
        "sources": sources,
        "relations": relations.listed(),
        "artefacts": artefacts.listed(),
        "marks": _step_marks(trace),
        "violations": [plain_data(violation) for violation in trace.violations],
        "verdict": trace.violations.index(trace.verdict) if trace.verdict in trace.violations else -1,
    }


def _fact_number(facts: Any) -> int:
    """A number that equal facts share, small enough for a script to hold exactly."""
    return int(digest(facts)[:13], 16)


def _call_facts(record: Record) -> list[Any]:
    """The call of a step, by which the steps of two traces are matched."""
    return [record.agent, record.action.kind, record.action.name, record.action.arguments]


def _result_facts(record: Record) -> list[Any]:
    """The result of a step, for comparison. Times are excluded, because they differ after any earlier delay."""
    return [
        record.site, record.role, record.state, record.action.effect, record.action.impact, observed(record.observation),
        record.effected, None if record.mediation is None else mediation_facts(record.mediation), record.executed,
        record.invoked, None if record.raw is None else observed(record.raw), record.taped,
        [[note.operator, note.parameters, note.effect, note.changed] for note in record.faults],
    ]  # fmt: skip


def _step_bits(trace: Traced) -> list[int]:
    """The property bits of each step."""
    places = {record.step: place for place, record in enumerate(trace.records)}
    bits = [_record_bits(record) for record in trace.records]
    for violation in trace.violations:
        if violation.step in places:
            bits[places[violation.step]] |= _HARD if violation.severity == "hard" else _SOFT
    verdict = trace.verdict
    if verdict is not None:
        first, last = min(verdict.region[0], verdict.step), max(verdict.region[1], verdict.step)
        window = [step for step in places if first <= step <= last]  # a contract sets the region, and may make it any size
        sliced = (*backward_slice(trace.records, verdict.step), verdict.step)
        for steps, bit in ((window, _REGION), (verdict.witness, _WITNESS), (sliced, _SLICE)):
            for step in steps:
                if step in places:
                    bits[places[step]] |= bit
    return bits


def _record_bits(record: Record) -> int:
    found, mediation = 0, record.mediation
    if any(note.changed for note in record.faults):
        found |= _FAULT
    if mediation is not None:
        found |= {"rewrite": _REWRITTEN, "block": _BLOCKED}.get(mediation.decision, 0)
        found |= _APPROVAL if mediation.approval else 0
    if record.observation.error is not None or record.observation.cancelled:
        found |= _ERROR
    if record.action.impact == "high":
        found |= _HIGH
    return found | (_WRITE if record.action.may_write else 0)


def _step_marks(trace: Traced) -> list[list[Any]]:
    """The marks of steps as [index, kind, text], by index: violations first, then faults and the mediator's decisions."""
    places = {record.step: place for place, record in enumerate(trace.records)}
    broken: dict[int, list[list[Any]]] = {}
    mark: list[Any]
    for violation in trace.violations:
        if violation.step in places:
            place = places[violation.step]
            mark = [place, violation.severity, violation.contract]
            marks = broken.setdefault(place, [])
            if mark not in marks:
                marks.append(mark)
    found = []
    for place, record in enumerate(trace.records):
        found += broken.get(place, [])
        for note in record.faults:
            if note.changed:
                held = note.operator.startswith("order.")
                found.append([place, "fault", "others went first" if held else note.operator])
        decision = record.mediation.decision if record.mediation is not None else "allow"
        if record.mediation is not None and decision != "allow":
            found.append([place, decision, {"block": "blocked", "rewrite": "rewritten"}[decision]])
    return found


def _sources(records: Sequence[Record]) -> Iterable[tuple[int, int, str, str]]:
    """Yield (index, index of the source or -1, relation, artefact) for the inputs of each step, by recorded provenance.

    The source of a memory cell is its last writer, that of a passage the retrieval that found it.
    """
    steps = {record.step: place for place, record in enumerate(records)}
    found: dict[str, int] = {}
    cells: dict[str, dict[str, int]] = {}
    for place, record in enumerate(records):
        own = {record.artefact, f"claim#{record.step}"}
        for link in record.links:
            if link.dst in own:
                for source in _source_indexes(link.src, steps, found, cells):
                    yield place, source, link.rel, link.src
        if record.effected != "no":
            for cell in written(record):
                cells.setdefault(cell.partition("/")[0], {})[cell] = place
        for name, _ in passages(record):
            found[f"passage:{name}"] = place


def _source_indexes(artefact: str, steps: dict[int, int], found: dict[str, int], cells: dict[str, dict[str, int]]) -> list[int]:
    kind, _, number = artefact.partition("#")
    if kind in ("step", "claim") and number.isdigit():
        return [steps.get(int(number), -1)]
    memory, _, key = artefact.partition("/")
    if memory in cells:
        if key == "*":
            return sorted(set(cells[memory].values()))[-_WRITERS:]
        return [cells[memory].get(artefact, cells[memory].get(f"{memory}/*", -1))]
    return [found.get(artefact, -1)]


# -- the facts of a step ----------------------------------------------------------------------------------------------


def _call_text(record: Record) -> str:
    return words.shorten(words.asked_text(record, 90), _CELL)


def _result_text(record: Record) -> str:
    return words.shorten(words.observed_text(record.observation), _CELL)


def _step_facts(record: Record) -> dict[str, Any]:
    """The facts of a step, in the order in which the viewer shows them, without empty ones."""
    action = record.action
    return _without_empty(
        site=record.site,
        role=record.role if record.role != record.agent else "",
        sealed=record.sealed_ms if record.sealed_ms != record.at_ms else None,
        effect=action.effect if action.effect != "none" else "",
        impact=action.impact if action.impact != "low" else "",
        effected=record.effected if action.may_write else "",
        invoked=record.invoked if record.invoked != 1 else None,
        taped=record.taped,
        arguments=plain(action.arguments),
        hashed=words.hashed_text(record),
        executed=None if record.executed is None else [plain(record.executed)],
        mediation=None if record.mediation is None else _mediation_data(record.mediation),
        faults=[_fault_data(note) for note in record.faults],
        raw=None if record.raw is None else _observation_data(record.raw),
        observation=_observation_data(record.observation),
        state=plain(record.state),
        links=[[link.src, link.rel, link.dst] for link in record.links],
    )


def _without_empty(**facts: Any) -> dict[str, Any]:
    return {name: item for name, item in facts.items() if item is not None and item is not False and item not in ("", [], {})}


def _observation_data(observation: Observation) -> dict[str, Any]:
    """An observation as JSON data. The value is in a list, which distinguishes it from a missing one."""
    error = observation.error
    return _without_empty(
        value=[plain(observation.value)] if observation.value is not None else None,
        error=None if error is None else [error.type, error.message, error.kind, error.retry_after_ms],
        cancelled=observation.cancelled,
        chunks=observation.chunks,
        opaque=observation.opaque,
        usage=plain(observation.usage),
    )


def _mediation_data(mediation: Mediation) -> dict[str, Any]:
    return _without_empty(
        decision=mediation.decision,
        rule=mediation.rule,
        reason=mediation.reason,
        arguments=None if mediation.arguments is None else [plain(mediation.arguments)],
        approval=mediation.approval,
        grant=mediation.grant,
        under=list(mediation.under),
    )


def _fault_data(note: FaultNote) -> dict[str, Any]:
    return {"operator": note.operator, "parameters": plain(note.parameters), "effect": note.effect, "changed": note.changed}
