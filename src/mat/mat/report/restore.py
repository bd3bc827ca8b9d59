"""A report that was written as JSON, back as a `Document`, so that it can be told in every other form.

JSON holds every number. Of a counterexample it holds what a replay file begins with; its steps are in the replay file itself,
which is looked for where the report says it is. A counterexample whose file is not found, or is another one by now, is told
without its steps. The file comes from outside: JSON only, within limits, every field checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from mat.core.campaign import Certificate, Counterexample, Signature, Stability
from mat.core.codec import FORMAT, decode
from mat.core.errors import MatError, SpecError
from mat.core.run import Run
from mat.core.spec import Perturbation, RunSpec, Schedule
from mat.core.verdict import ContractOutcome, Violation
from mat.evidence import artifact
from mat.evidence.artifact import Replay, _Judged, _Scheduled, _Spec
from mat.measure.estimate import Estimate
from mat.measure.robustness import Curve, CurvePoint, Kind, Measure
from mat.report.document import Document, HeatMap, ItemLine, Metric, Tables, is_report
from mat.report.tables import unit_of

__all__ = ["Restored", "restored"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A document, and for each counterexample that is told without its steps, why."""

    document: Document
    missing: tuple[str, ...] = ()


# -- the file as it is read -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    budget: int
    value: float | None
    low: float | None
    high: float | None
    n: int
    proven: bool | None
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bounded:
    value: float | None
    low: float | None
    high: float | None
    n: int
    confidence: float
    method: str
    proven: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Curve:
    category: str
    kind: Kind
    measure: Measure
    points: tuple[_Point, ...]
    area: _Bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    mat: int
    verdict: _Judged
    violations: tuple[_Judged, ...]
    signature: Signature
    cost: int
    schedule: tuple[_Scheduled, ...]
    certificate: Certificate
    spec: _Spec
    stability: Stability
    head: str
    expected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    runs: int
    items: tuple[ItemLine, ...]
    tables: Tables
    counterexamples: tuple[_Header, ...] = ()
    metrics: dict[str, Estimate]
    curves: tuple[_Curve, ...] = ()
    variant: str = ""
    interrupted: bool = False
    heat_maps: tuple[HeatMap, ...] = ()


# -- back -------------------------------------------------------------------------------------------------------------


def restored(data: Any, *, where: str, folders: Sequence[Path] = ()) -> Restored:
    """The document of a report's JSON data; replay files are looked for below `folders`. MatError where it is no report."""
    if not is_report(data):
        raise SpecError(
            what=f"{where} is not a report", why="a report has items and tables", fix="write one with pytest --mat-report",
            where=where,
        )  # fmt: skip
    if data.get("mat") != FORMAT:
        raise SpecError(
            what=f"{where} is a report of format {data.get('mat')!r}", why=f"this version reads format {FORMAT}",
            fix="write the report again with pytest --mat-report", where=where,
        )  # fmt: skip
    file = decode(_File, {**data, "tables": _with_listed_metrics(data["tables"])}, where=where)
    found = list(_counterexamples(file, folders))
    tables = {field.name: getattr(file.tables, field.name) for field in fields(Tables)}
    document = Document(
        runs=file.runs,
        items=file.items,
        curves=tuple(_curve(curve) for curve in file.curves),
        variant=file.variant,
        interrupted=file.interrupted,
        heat_maps=file.heat_maps,
        counterexamples=tuple(replay for replay, _ in found),
        metrics=tuple(Metric(name=name, estimate=estimate, unit=unit_of(name)) for name, estimate in file.metrics.items()),
        **tables,
    )
    return Restored(document=document, missing=tuple(why for _, why in found if why))


def _with_listed_metrics(tables: Any) -> Any:
    """The tables with the metrics of an evaluation's cells listed, as a Document has them; what is no such cell as it is."""
    cells = tables.get("evaluation") if isinstance(tables, dict) else None
    if not isinstance(cells, list):
        return tables
    return tables | {"evaluation": [_listed(cell) for cell in cells]}


def _listed(cell: Any) -> Any:
    metrics = cell.get("metrics") if isinstance(cell, dict) else None
    if not isinstance(metrics, dict):
        return cell
    listed = [{"name": name, "estimate": estimate, "unit": unit_of(str(name))} for name, estimate in metrics.items()]
    return cell | {"metrics": listed}


def _curve(curve: _Curve) -> Curve:
    confidence = curve.area.confidence
    return Curve(
        category=curve.category,
        kind=curve.kind,
        measure=curve.measure,
        points=tuple(
            CurvePoint(
                budget=point.budget, proven=point.proven,
                estimate=Estimate(
                    value=point.value, low=point.low, high=point.high, n=point.n, confidence=confidence, method=point.method
                ),
            )
            for point in curve.points
        ),
        area=Estimate(
            value=curve.area.value, low=curve.area.low, high=curve.area.high, n=curve.area.n, confidence=confidence,
            method=curve.area.method,
        ),
        area_proven=curve.area.proven,
    )  # fmt: skip


# -- counterexamples --------------------------------------------------------------------------------------------------


def _counterexamples(file: _File, folders: Sequence[Path]) -> Iterator[tuple[Replay, str]]:
    """Each with its steps, or without them and why."""
    files = {line.id: iter(line.replays) for line in file.items}
    for header in file.counterexamples:
        name = next(files.get(header.spec.task, iter(())), "")
        whole, why = _whole(header, name, folders)
        replay = _headed(header) if whole is None else whole
        yield replay, f"{header.verdict.contract} in {header.spec.task} is told without its steps: {why}" if why else ""


def _whole(header: _Header, name: str, folders: Sequence[Path]) -> tuple[Replay | None, str]:
    """The replay file of a counterexample, with what the report says of it."""
    if not name:
        return None, "the report names no replay file"
    path = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if path is None:
        return None, f"there is no replay file {name}"
    try:
        found = artifact.read(path)
    except MatError as error:
        return None, f"{name} cannot be read: {error.what}"
    if found.counterexample.run.head != header.head:
        return None, f"{name} holds another run by now"
    counterexample = replace(found.counterexample, stability=header.stability)
    return replace(found, counterexample=counterexample, certificate=header.certificate, expected=header.expected), ""


def _headed(header: _Header) -> Replay:
    """A counterexample without its steps."""
    spec = RunSpec(
        task=header.spec.task, config=header.spec.config, seed=header.spec.seed, clock=header.spec.clock,
        horizon_steps=header.spec.horizon_steps, horizon_ms=header.spec.horizon_ms,
        schedule=Schedule(
            tuple(
                Perturbation(operator=item.operator, site=item.site, parameters=item.parameters, cost=item.cost)
                for item in header.schedule
            )
        ),
    )  # fmt: skip
    broken: dict[str, list[Violation]] = {}
    for judged in header.violations:
        broken.setdefault(judged.contract, []).append(_violation(judged))
    outcomes = tuple(
        ContractOutcome(contract=name, severity=found[0].severity, outcome="fail", violations=tuple(found))
        for name, found in broken.items()
    )
    return Replay(
        item=header.spec.task,
        counterexample=Counterexample(
            verdict=_violation(header.verdict), run=Run(spec=spec, outcomes=outcomes), stability=header.stability
        ),
        certificate=header.certificate,
        expected=header.expected,
    )  # fmt: skip


def _violation(judged: _Judged) -> Violation:
    return Violation(**{field.name: getattr(judged, field.name) for field in fields(judged)})
