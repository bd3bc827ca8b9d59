"""Reads a JSON report back: what a comparison needs (`read`), or all of it (`restored`).

JSON contains every number, but of a counterexample only the header of its replay file. The steps are read from the replay
file, at the path in the report; a counterexample whose file is missing or has changed is shown without its steps. The report
is untrusted: it is parsed as JSON only, within limits, and every field is checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path, PurePath
from typing import Any, Final, Literal

from mat.core import limits
from mat.core.campaign import Certificate, Counterexample, ItemStatus, Signature, Stability
from mat.core.codec import FORMAT, decode, load_json
from mat.core.errors import MatError, SpecError
from mat.core.known import KnownFinding
from mat.core.run import Run
from mat.core.spec import Perturbation, RunSpec, Schedule
from mat.core.verdict import ContractOutcome, Severity, Violation
from mat.evidence import replay_file
from mat.evidence.replay_file import Replay, _Judged, _Scheduled, _Spec
from mat.measure.estimate import Estimate
from mat.measure.regression import RunOutcome
from mat.measure.robustness import Curve
from mat.report.document import Document, FindingLine, HeatMap, ItemLine, MetricLine, Tables, unit_of

# -- what a comparison needs ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedItem:
    id: str
    status: ItemStatus
    category: str = ""
    replays: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedContract:
    contract: str
    severity: Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedTables:
    outcomes: tuple[RunOutcome, ...]
    violations: tuple[ReportedContract, ...] = ()
    other_outcomes: tuple[RunOutcome, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """The part of a report that a comparison needs: items, broken contracts, and the outcome of each run."""

    mat: Literal[1]
    items: tuple[ReportedItem, ...]
    tables: ReportedTables
    interrupted: bool = False


def is_report(data: object) -> bool:
    """Whether JSON data is a report (of any version) and not a replay file."""
    return isinstance(data, dict) and "items" in data and "tables" in data


def read_data(path: Path) -> Any:
    """The JSON data of an untrusted file, within limits. MatError names the file."""
    where = str(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(limits.FILE_BYTES + 1)
    except OSError as error:
        why = "a report is a JSON file, not a folder" if path.is_dir() else ""
        raise MatError(f"cannot read {path.name}: {error.strerror}", why=why, fix="check the path", where=where) from error
    return load_json(raw, where=where)


def read(path: Path) -> Reported:
    """Read a report that `pytest --mat-report FILE.json` wrote. MatError if it is no report, or has no outcomes."""
    return reported(read_data(path), where=str(path))


def reported(data: object, *, where: str) -> Reported:
    """Check untrusted JSON data and return it as a report. `where` is a path, or REVISION:PATH. MatError as in `read`."""
    checked = _checked_report(data, where=where)
    if not isinstance(checked["tables"], dict) or "outcomes" not in checked["tables"]:
        raise SpecError(
            what=f"{_file_name(where)} has no outcomes of runs", why="it was written by another version of pytest-mat",
            fix="write the report again with pytest --mat-report", where=where,
        )  # fmt: skip
    return decode(Reported, checked, where=where, name="report")


def _checked_report(data: object, *, where: str) -> dict[str, Any]:
    """The data, if it is a report of this format; SpecError otherwise."""
    if not isinstance(data, dict) or not is_report(data):
        raise SpecError(
            what=f"{_file_name(where)} is not a report", why="a report has items and tables",
            fix="write one with pytest --mat-report", where=where,
        )  # fmt: skip
    if data.get("mat") != FORMAT:
        raise SpecError(
            what=f"{_file_name(where)} is a report of format {data.get('mat')!r}", why=f"this version reads format {FORMAT}",
            fix="write the report again with pytest --mat-report, or use the version that wrote it", where=where,
        )  # fmt: skip
    _check_numbers(data, where)
    return data


def _check_numbers(data: object, where: str) -> None:
    """SpecError for NaN, infinities and integers of more than 64 bits, which no report has and some formats cannot hold."""
    level = [data]
    while level:
        inside: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inside += item.values()
            elif isinstance(item, list):
                inside += item
            elif (type(item) is float and not math.isfinite(item)) or (type(item) is int and abs(item) > limits.REPORT_INTEGER):
                value = repr(item) if isinstance(item, float) else "an integer of more than 64 bits"
                raise _damaged_report(where, f"a report cannot contain {value}")
        level = inside


def _damaged_report(where: str, why: str) -> SpecError:
    return SpecError(
        what=f"{_file_name(where)} is a damaged report",
        why=why,
        fix="write the report again with pytest --mat-report",
        where=where,
    )


def _file_name(where: str) -> str:
    return PurePath(where.rpartition(":")[2]).name


# -- findings ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineFindings:
    """The findings of an earlier report, by test, and the outcomes of its runs."""

    by_test: Mapping[str, tuple[KnownFinding, ...]]
    reported: Reported


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownHeader:
    """The part of a counterexample in a report that says what is found."""

    verdict: _Judged
    signature: Signature
    cost: int
    spec: _Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class _Findings:
    counterexamples: tuple[_KnownHeader, ...] = ()
    findings: tuple[FindingLine, ...] = ()


def read_findings(path: Path) -> BaselineFindings:
    """The findings of a report that `pytest --mat-report FILE.json` wrote: its counterexamples, and the runs that broke
    contracts. MatError if it is no report."""
    data = read_data(path)
    checked = reported(data, where=str(path))
    file = decode(_Findings, data, where=str(path), name="report")
    found: dict[str, list[KnownFinding]] = {}
    for header in file.counterexamples:
        found.setdefault(header.spec.task, []).append(
            KnownFinding(
                test=header.spec.task, stage=header.verdict.stage, cost=header.cost, signatures=(header.signature,)
            )
        )  # fmt: skip
    for line in file.findings:
        if not line.causes:  # a nominal run; nobody has to search to find it again
            continue
        found.setdefault(line.test, []).extend(
            KnownFinding(test=line.test, stage=each.stage, cost=line.cost, signatures=(each.signature,))
            for each in line.signatures
        )
    return BaselineFindings(by_test={test: tuple(each) for test, each in found.items()}, reported=checked)


# -- all of it -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A document that was read back, and why steps are missing, for each counterexample without steps."""

    document: Document
    missing: tuple[str, ...] = ()


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
class _ReportFile:
    runs: int
    items: tuple[ItemLine, ...]
    tables: Tables
    counterexamples: tuple[_Header, ...] = ()
    metrics: dict[str, Estimate]
    curves: tuple[Curve, ...] = ()
    variant: str = ""
    interrupted: bool = False
    heat_maps: tuple[HeatMap, ...] = ()
    findings: tuple[FindingLine, ...] = ()


def restored(data: Any, *, where: str, folders: Sequence[Path] = ()) -> Restored:
    """The document of a report's JSON data. Replay files are searched in `folders`. MatError if the data is no report."""
    data = _checked_report(data, where=where)
    tables = data["tables"]
    shaped = data | {"tables": _with_metric_lists(tables), "curves": _curves_data(data.get("curves", ()))}
    file = decode(_ReportFile, shaped, where=where, name="report")
    if any(len(row.cells) != len(each.columns) for each in file.heat_maps for row in each.rows):
        raise _damaged_report(where, "a heat map has a row with more or fewer cells than columns")
    if any([point.budget for point in curve.points] != list(range(len(curve.points) or 1)) for curve in file.curves):
        raise _damaged_report(where, "a curve has points for other budgets than 0, 1, 2 and so on")
    found = list(_counterexamples(file, folders))
    document = Document(
        runs=file.runs,
        items=file.items,
        curves=file.curves,
        variant=file.variant,
        interrupted=file.interrupted,
        heat_maps=file.heat_maps,
        findings=file.findings,
        counterexamples=tuple(replay for replay, _ in found),
        metrics=tuple(MetricLine(name=name, estimate=estimate, unit=unit_of(name)) for name, estimate in file.metrics.items()),
        **{field.name: getattr(file.tables, field.name) for field in fields(Tables)},
    )
    return Restored(document=document, missing=tuple(why for _, why in found if why))


def _curves_data(curves: Any) -> Any:
    return [_curve_data(curve) for curve in curves] if isinstance(curves, list) else curves


def _with_metric_lists(tables: Any) -> Any:
    """The tables with the metrics of evaluation cells as lists, as in a Document; malformed cells stay as they are."""
    cells = tables.get("evaluation") if isinstance(tables, dict) else None
    if not isinstance(cells, list):
        return tables
    return tables | {"evaluation": [_with_metric_list(cell) for cell in cells]}


def _with_metric_list(cell: Any) -> Any:
    metrics = cell.get("metrics") if isinstance(cell, dict) else None
    if not isinstance(metrics, dict):
        return cell
    listed = [{"name": name, "estimate": estimate, "unit": unit_of(str(name))} for name, estimate in metrics.items()]
    return cell | {"metrics": listed}


_CURVE: Final = ("category", "kind", "measure")
_ESTIMATE: Final = ("value", "low", "high", "n", "method")


def _curve_data(curve: Any) -> Any:
    """The data of a curve in the shape of its class; malformed data stays as it is, for the decoder to refuse."""
    area = curve.get("area") if isinstance(curve, dict) else None
    points = curve.get("points") if isinstance(curve, dict) else None
    if not isinstance(area, dict) or not isinstance(points, list):
        return curve
    return {
        **{name: curve[name] for name in _CURVE if name in curve},
        "points": [_point_data(point, area.get("confidence")) for point in points],
        "area": {name: area[name] for name in (*_ESTIMATE, "confidence") if name in area},
        "area_proven": area.get("proven"),
    }


def _point_data(point: Any, confidence: Any) -> Any:
    if not isinstance(point, dict):
        return point
    estimate = {name: point[name] for name in _ESTIMATE if name in point} | {"confidence": confidence}
    return {name: point[name] for name in ("budget", "proven") if name in point} | {"estimate": estimate}


# -- counterexamples --------------------------------------------------------------------------------------------------


def _counterexamples(file: _ReportFile, folders: Sequence[Path]) -> Iterator[tuple[Replay, str]]:
    """Yield each counterexample with its steps and "", or without steps and why."""
    files = {line.id: iter(line.replays) for line in file.items}
    for header in file.counterexamples:
        name = next(files.get(header.spec.task, iter(())), "")
        stored, why = _stored_replay(header, name, folders)
        replay = _replay_of_header(header) if stored is None else stored
        yield replay, f"{header.verdict.contract} in {header.spec.task} is shown without its steps: {why}" if why else ""


def _stored_replay(header: _Header, name: str, folders: Sequence[Path]) -> tuple[Replay | None, str]:
    """The replay file of a counterexample, with stability and certificate from the report; or None and why."""
    if not name:
        return None, "the report names no replay file"
    path = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if path is None:
        return None, f"cannot find the replay file {name}"
    try:
        found = replay_file.read(path)
    except MatError as error:
        return None, f"{name} cannot be read: {error.what}"
    if found.counterexample.run.head != header.head:
        return None, f"{name} now contains another run"
    counterexample = replace(found.counterexample, stability=header.stability)
    return replace(found, counterexample=counterexample, certificate=header.certificate, expected=header.expected), ""


def _replay_of_header(header: _Header) -> Replay:
    """A counterexample from the header in the report, without its steps."""
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
