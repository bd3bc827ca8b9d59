"""Follow a fault: the steps that it reached, by recorded provenance, and the first violation among them.

Forward over links (derived_from, supports, returns), memory cells, retrieved passages and hand-offs, from the step where the
fault entered. This shows what a fault could have influenced, never that it was necessary for what happened (DESIGN decision
10): only a run without it can show that.

Source: A4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from mat.core.digest import canonical
from mat.core.record import Record
from mat.core.run import Run
from mat.core.verdict import Violation
from mat.monitor.faults import RULES, DetectionRules, Fault, fault_of, is_alternate, is_retry

_TELLS: Final = ("delegation", "message")


@dataclass(frozen=True, slots=True)
class Hop:
    """A step that a fault reached, and the artifact that carried it: `step#n`, `claim#n`, `passage:id` or `memory:name/key`.

    `relation`: that of the link (derived_from, supports, returns), or fault (it entered here), told (its agent was handed
    something that the fault had touched), retry or alternate (a call that answers the fault).
    """

    step: int
    agent: str
    artefact: str
    relation: str
    action: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Journey:
    """The steps that a fault reached, and the path to a violation.

    `hops` are all steps it reached, in ask order, the first being where it entered. `path` leads from there to `violation`,
    the first one on the way; without one it is empty. `agents`: the agents that it reached, in that order.
    """

    fault: Fault
    hops: tuple[Hop, ...]
    path: tuple[Hop, ...] = ()
    violation: Violation | None = None

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(hop.agent for hop in self.path or self.hops))


@dataclass(slots=True)
class FaultSpread:
    """The artifacts and agents that one fault has touched so far; one pass over the records after it, in ask order.

    `come` maps each reached step to its hop and the step before it. Each link takes constant time. Plain data, so that a copy
    can be part of a monitor's state.
    """

    fault: Fault
    come: dict[int, tuple[Hop, int]] = field(default_factory=dict)
    touched: dict[str, int] = field(default_factory=dict)
    cells: dict[str, dict[str, int]] = field(default_factory=dict)
    told: dict[str, tuple[int, str]] = field(default_factory=dict)

    def copy(self) -> FaultSpread:
        cells = {memory: dict(cells) for memory, cells in self.cells.items()}
        return FaultSpread(self.fault, dict(self.come), dict(self.touched), cells, dict(self.told))

    def passes_by(self, record: Record) -> bool:
        """A quick check that a later record is not reached and cleans nothing."""
        if record.links or record.agent in self.told:
            return False
        kind, fault = record.action.kind, self.fault
        return kind != "retrieval" and not (fault.error and kind == fault.kind)

    def follow(self, record: Record, rules: DetectionRules = RULES) -> Hop | None:
        """Take one more record, beginning with the fault's own; return the hop if the fault reaches it."""
        if record.step < self.fault.step:
            return None
        found = self._hop_to(record, rules)
        if found is None:
            self._clean(record)
            return None
        hop, _ = found
        self.come[record.step] = found
        if hop.relation not in ("retry", "alternate"):  # a retry or alternate call is caused by the fault but does not carry it
            self._touch(record)
        if record.action.kind == "handback" and self.told.get(record.agent, (0, ""))[1] == "delegation":
            del self.told[record.agent]
        return hop

    def back(self, step: int) -> tuple[Hop, ...]:
        """The path from where the fault entered to a step that it reached."""
        hops = []
        while step >= 0:
            hop, step = self.come[step]
            hops.append(hop)
        return tuple(reversed(hops))

    def _hop_to(self, record: Record, rules: DetectionRules) -> tuple[Hop, int] | None:
        fault = self.fault
        if record.step == fault.step:
            return _hop(record, record.artefact, "fault"), -1
        own = (record.artefact, f"claim#{record.step}")
        for link in record.links:  # recorded provenance comes before inferred hops
            source = self._source(link.src) if link.dst in own else None
            if source is not None:
                return _hop(record, source[0], link.rel), source[1]
        if fault.error and record.step - fault.step <= rules.detect_within + rules.mitigate_within:
            answer = "retry" if is_retry(record, fault) else "alternate" if is_alternate(record, fault, rules) else ""
            if answer:
                return _hop(record, f"step#{fault.step}", answer), fault.step
        teller, _ = self.told.get(record.agent, (-1, ""))
        return None if teller < 0 else (_hop(record, f"step#{teller}", "told"), teller)

    def _source(self, artefact: str) -> tuple[str, int] | None:
        """The touched artifact that matches this one, and the step that last touched it; `memory:name/*` is a whole memory."""
        step = self.touched.get(artefact)
        if step is not None:
            return artefact, step
        memory, _, key = artefact.partition("/")
        cells = self.cells.get(memory)
        if not cells:
            return None
        cell = artefact if artefact in cells else f"{memory}/*"
        if key == "*" and cell not in cells:
            cell = next(reversed(cells))
        return (cell, cells[cell]) if cell in cells else None

    def _touch(self, record: Record) -> None:
        """Mark everything that this record produced as touched."""
        step, action = record.step, record.action
        entered = step == self.fault.step
        self.touched[record.artefact] = self.touched[f"claim#{step}"] = step
        if entered or record.effected != "no":  # a write that the fault swallowed leaves an outdated value
            for cell in written(record):
                self.cells.setdefault(cell.partition("/")[0], {})[cell] = step
        for passage, altered in passages(record):
            if altered or not entered:
                self.touched[f"passage:{passage}"] = step
        lost = record.blocked or (entered and (self.fault.error or record.observation.value is None))
        if action.kind in _TELLS and action.boundary != "prompt" and not lost:
            self.told.setdefault(action.name, (step, action.kind))

    def _clean(self, record: Record) -> None:
        """Mark what was written or retrieved again without the fault as clean."""
        if record.action.kind == "memory_write" and record.effected != "no":
            for cell in written(record):
                self.cells.get(cell.partition("/")[0], {}).pop(cell, None)
        for passage, _ in passages(record):
            self.touched.pop(f"passage:{passage}", None)


def _hop(record: Record, artefact: str, relation: str) -> Hop:
    return Hop(record.step, record.agent, artefact, relation, f"{record.action.kind} {record.action.name}")


def written(record: Record) -> tuple[str, ...]:
    """The memory cells that a record wrote or tried to write."""
    if not record.links:
        return ()
    return tuple(link.dst for link in record.links if link.src == record.artefact and link.dst.startswith("memory:"))


def passages(record: Record) -> Iterator[tuple[str, bool]]:
    """Ids of the passages that a retrieval delivered, each with whether it differs from the port's own reply."""
    value = record.observation.value
    if record.action.kind != "retrieval" or not isinstance(value, list):
        return
    raw = None if record.raw is None else record.raw.value
    said = {canonical(item) for item in raw} if isinstance(raw, list) else None
    for item in value:
        name = item.get("id") if isinstance(item, dict) else None
        if isinstance(name, str) and name:
            yield name, said is None or canonical(item) not in said


# -- finished runs ----------------------------------------------------------------------------------------------------


def spread_of(records: Iterable[Record], fault: Fault, rules: DetectionRules = RULES) -> FaultSpread:
    """Everything that a fault reached. Linear in the records and their links."""
    spread = FaultSpread(fault)
    for record in records:
        spread.follow(record, rules)
    return spread


def journeys(run: Run, rules: DetectionRules = RULES) -> tuple[Journey, ...]:
    """The journey of each fault of a run, up to the first violation of a contract (hard before soft at one step)."""
    return tuple(journey_of(run, fault, rules) for fault in faults_in(run.records, rules))


def journey_of(run: Run, fault: Fault, rules: DetectionRules = RULES) -> Journey:
    """The journey of one fault of a run. A violation about the fault itself (containment) is not a consequence of it."""
    ordered = sorted(run.violations, key=lambda item: (item.step, item.severity != "hard", item.contract, item.instance))
    return _journey(run.records, fault, [item for item in ordered if not speaks_of(item, fault)], rules)


def reaching(run: Run, violation: Violation, rules: DetectionRules = RULES) -> tuple[Journey, ...]:
    """The faults that reach the violating step, each with its path there; empty if provenance records no path.

    Only the fault itself reaches a violation about it, such as one of containment.
    """
    faults = [fault for fault in faults_in(run.records, rules) if fault.step <= violation.step]
    mentioned = [fault for fault in faults if speaks_of(violation, fault)]
    found = [_journey(run.records, fault, [violation], rules) for fault in mentioned or faults]
    return tuple(journey for journey in found if journey.violation is not None)


def faults_in(records: Iterable[Record], rules: DetectionRules = RULES) -> tuple[Fault, ...]:
    return tuple(fault for fault in (fault_of(record, rules) for record in records) if fault is not None)


def _journey(records: Sequence[Record], fault: Fault, violations: Iterable[Violation], rules: DetectionRules) -> Journey:
    spread = spread_of(records, fault, rules)
    first = next((item for item in violations if item.step in spread.come), None)
    path = () if first is None else spread.back(first.step)
    return Journey(fault=fault, hops=tuple(hop for hop, _ in spread.come.values()), path=path, violation=first)


def speaks_of(violation: Violation, fault: Fault) -> bool:
    """Whether a violation is about the fault itself (it was not contained): it names the fault's step and site."""
    return violation.step == fault.step and violation.instance == fault.site


_SHOWN: Final = 8
"""The number of hops of a path that are listed individually."""


def way(hops: Sequence[Hop]) -> str:
    """Hops in words, with who acted and what carried the fault; the middle of a long path is left out."""
    texts = [_hop_text(hop) for hop in hops]
    if len(texts) > _SHOWN:
        texts[_SHOWN // 2 : -_SHOWN // 2] = [f"{len(texts) - _SHOWN} more"]
    return " -> ".join(texts)


def _hop_text(hop: Hop) -> str:
    how = {"fault": "", "told": f" (learned from {hop.artefact})", "retry": " (its retry)", "alternate": " (in its place)"}
    return f"step {hop.step} {hop.agent}: {hop.action}{how.get(hop.relation, f' (from {hop.artefact})')}"
