"""Convert spans to a trace, for both the importer and the span processor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mat.adapters.otel import names
from mat.adapters.otel.convert import Conversion, EffectOf, effect_of
from mat.adapters.otel.native import is_native, read_records
from mat.adapters.otel.span import Span
from mat.adapters.otel.unknown import TraceGap, unknowns
from mat.core.record import Record
from mat.core.verdict import ContractOutcome
from mat.monitor.contract import Contract
from mat.monitor.judge import EPISODE, Judge, attribute, merged, speaks

__all__ = ["Converted", "convert", "judged"]

_RUN_LABELS = ("task", "seed", "termination", "success", "error", "elapsed_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """The records of one trace, and the facts that its spans lack.

    `finished`: the trace is complete to its end. `lossy`: a part of the run is missing. `sources`: the span of each record, by
    id. `labels`: the labels of a run that pytest-mat exported.
    """

    records: tuple[Record, ...]
    finished: bool
    lossy: bool
    unknown: tuple[TraceGap, ...]
    sources: tuple[Any, ...] = ()
    labels: Mapping[str, Any]

    def count(self, code: str) -> int:
        """How many spans a gap concerns."""
        return sum(item.count for item in self.unknown if item.code == code)


def convert(
    spans: Sequence[Span], *, where: str, effects: EffectOf = effect_of, met: Mapping[str, int] | None = None
) -> Converted:
    """Convert spans, in any order, to a trace.

    Spans that `export` wrote give back the records of their run; other spans are read by the GenAI conventions. `met`: gaps
    that the caller knows of. CodecError if a value is too deep to record, or a span of ours was changed.
    """
    if any(is_native(span) for span in spans):
        return _native(spans, where, met or {})
    conversion = Conversion(effects)
    for span in spans:
        conversion.add(span)
    records = conversion.finish()
    ids = {span.id for span in spans}
    orphans = sum(bool(span.parent) and span.parent not in ids and not span.remote for span in spans)
    gaps = conversion.gaps + Counter({"parents": orphans, "dropped": sum(span.dropped > 0 for span in spans)}) + Counter(met)
    ended = all(span.end is not None for span in spans) and not any(gaps[code] for code in ("early", "cut"))
    return Converted(
        records=records, finished=ended and not orphans, lossy=True, unknown=unknowns(gaps, guessed=True),
        sources=conversion.sources, labels={},
    )  # fmt: skip


def _native(spans: Sequence[Span], where: str, met: Mapping[str, int]) -> Converted:
    records, found = read_records(spans, where)
    gaps = found + Counter({"dropped": sum(span.dropped > 0 for span in spans)}) + Counter(met)
    steps = {span.attributes.get(names.STEP): span.id for span in spans}
    named = {**names.SPEC_SCALARS, **names.RUN_SCALARS}
    roots = [span.attributes for span in spans if names.FORMAT in span.attributes]
    labels: dict[str, Any] = {"run": "", "head": ""} if roots else {}
    for root in roots:
        labels |= {"run": root.get(names.RUN_ID, ""), "head": root.get(names.RUN_HEAD, "")}
        labels |= {field: root.get(named[field]) for field in _RUN_LABELS}
    lost = any(gaps[code] for code in ("records", "parents", "facts", "dropped", "cut", "early"))
    return Converted(
        records=records, finished=not any(gaps[code] for code in ("records", "parents", "cut", "early")), lossy=lost,
        unknown=unknowns(gaps, guessed=False), sources=tuple(steps[record.step] for record in records), labels=labels,
    )  # fmt: skip


def judged(records: Sequence[Record], contracts: Iterable[Contract], *, finished: bool) -> tuple[ContractOutcome, ...]:
    """Judge a trace by contracts, each episode from its start. In an unfinished trace, obligations stay open."""
    armed, cases = tuple(contracts), _cases(records)
    episodes: list[tuple[ContractOutcome, ...]] = []
    for number, case in enumerate(cases, 1):
        judge = Judge(armed, online=False)
        for record in case:
            judge.fold(record)
        if not episodes or speaks(case):
            last = number == len(cases) and not finished
            outcomes = judge.outcomes_so_far(case[-1]) if last else judge.finish(case[-1])
            episodes.append(attribute(outcomes, records))
    if episodes:
        return merged(episodes)
    judge = Judge(armed, online=False)
    return judge.finish(None) if finished else judge.outcomes_so_far(None)


def _cases(records: Sequence[Record]) -> list[list[Record]]:
    """The records of each episode."""
    cases: list[list[Record]] = []
    for record in records:
        if not cases or record.state.get(EPISODE) != cases[-1][-1].state.get(EPISODE):
            cases.append([])
        cases[-1].append(record)
    return cases
