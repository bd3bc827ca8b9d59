"""The report of a session as a value: every table and number that the renderings (terminal, JSON, Markdown) show."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path, PurePath
from typing import Any, Literal

from mat.core import limits
from mat.core.campaign import Covered, Status
from mat.core.codec import FORMAT, decode, load_json
from mat.core.errors import MatError, SpecError
from mat.core.verdict import Severity
from mat.evidence.artifact import Replay, header
from mat.measure.containment import FaultProfile
from mat.measure.distribution import Distribution, ShareOf
from mat.measure.estimate import Estimate, Spread
from mat.measure.governance import VariantLine
from mat.measure.paired import PairedShares
from mat.measure.regression import RunOutcome
from mat.measure.reliability import ContractProfile
from mat.measure.robustness import Curve
from mat.measure.rows import Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemLine:
    """One test item. `cost`, `contract`, `step` and `agent` are those of its cheapest counterexample, None or "" without one.

    `bound` and `proven` are the certificate's, None where nothing was searched; so is `covered`, what the search met (A6.5).
    `outcomes_left_out` counts its runs under faults that the table `outcomes` does not hold.
    """

    id: str
    status: Status
    cost: int | None
    executions: int
    bound: int | None
    proven: bool | None
    reason: str
    contract: str
    step: int | None
    agent: str
    category: str
    replays: tuple[str, ...]
    findings: tuple[str, ...]
    outcomes_left_out: int = 0
    covered: Covered | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NominalLine:
    """Runs without disturbance of one item, or of all: then `item` is "all". Those lost to their infrastructure are in none."""

    item: str
    runs: int
    success: Estimate
    non_termination: Estimate
    violations: Estimate
    steps: Spread
    tool_calls: Spread
    tokens: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A number by its name. `unit`: share, steps, ms, tokens, calls or score."""

    name: str
    estimate: Estimate
    unit: str = "share"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationLine:
    """One cell of the evaluation: the runs of a condition, a workload category and a governance variant (A6.1, A6.6).

    `category` "all" stands for all of them, those without one included. `infrastructure` of its `runs` failed and are in no
    metric. `k`: runs that every task has, for success@k. `metrics`: those of `mat.measure.metrics.METRICS` of which the cell
    knows anything, in that order, with `success@k`, `success@k.unbiased` and `pass^k` where k > 1.
    """

    condition: Condition
    category: str
    variant: str
    items: int
    runs: int
    infrastructure: int
    k: int
    metrics: tuple[Metric, ...]

    def get(self, name: str) -> Estimate | None:
        """A metric by name; None where the cell knows nothing of it."""
        return next((metric.estimate for metric in self.metrics if metric.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributionLine:
    """How a number of the runs of one condition is spread; `unit` is steps or ms.

    `name`: steps_to_termination, steps_to_failure, first_violation (the first violating step of failing runs) or latency_ms.
    """

    condition: Condition
    name: str
    unit: str
    distribution: Distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstViolationLine:
    """Who and what failing runs first go wrong with, under one condition: shares of the failing runs, most often first."""

    condition: Condition
    by: Literal["agent", "action_kind"]
    shares: tuple[ShareOf, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InfrastructureLine:
    """Runs of one condition, under any variant, that say nothing about the system, because what stands in `reason` failed.

    `left_out_of`: the one metric that they are missing from, where a scorer failed; "" for a run that is in no metric at all.
    """

    condition: Condition
    reason: str
    runs: int
    left_out_of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantPair:
    """Two governance variants on the same items, seeds and schedules of one condition: what the second changes.

    `aspect`: success of the task, or compliance, which is no hard contract broken. `tokens`: what the second uses more in a
    run of both. Pairs of runs of which one is lost to its infrastructure stand in `paired.apart` alone.
    """

    condition: Condition
    aspect: Literal["success", "compliance"]
    old: str
    new: str
    paired: PairedShares
    tokens: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatCell:
    """Task success of the runs of one row and column. `why`: what most of those that failed failed with, "" where none did."""

    success: Estimate
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatRow:
    """`cells` stand as the columns do; None where nothing was run that is judged. Rows of one `group` stand together."""

    name: str
    group: str
    cells: tuple[HeatCell | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Task success by two things: `rows` are of the kind `down`, columns of the kind `across`; say tests and variants."""

    title: str
    down: str
    across: str
    columns: tuple[str, ...]
    rows: tuple[HeatRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables of a report by the names that they have in its JSON, in that order; a line each."""

    nominal: tuple[NominalLine, ...] = ()
    faults: tuple[FaultProfile, ...] = ()
    governance: tuple[VariantLine, ...] = ()
    violations: tuple[ContractProfile, ...] = ()
    outcomes: tuple[RunOutcome, ...] = ()
    evaluation: tuple[EvaluationLine, ...] = ()
    distributions: tuple[DistributionLine, ...] = ()
    first_violations: tuple[FirstViolationLine, ...] = ()
    infrastructure: tuple[InfrastructureLine, ...] = ()
    variant_pairs: tuple[VariantPair, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Document(Tables):
    """`runs` counts the rows it was built from. Lines stand in the order in which the items ran.

    `variant`: where runs of several governance variants were given, the one that all but `evaluation`, `governance`,
    `infrastructure` and `variant_pairs` speak of. `interrupted`: the session was ended before all tests had run. `outcomes`
    has a line for each run; it is for programs, so the renderings for people leave it out. `heat_maps`: where several variants,
    or parameters of one test, were run.
    """

    runs: int = 0
    items: tuple[ItemLine, ...] = ()
    curves: tuple[Curve, ...] = ()
    counterexamples: tuple[Replay, ...] = ()
    metrics: tuple[Metric, ...] = ()
    variant: str = ""
    interrupted: bool = False
    heat_maps: tuple[HeatMap, ...] = ()


# -- files ------------------------------------------------------------------------------------------------------------


def as_data(document: Document) -> dict[str, Any]:
    """The report as JSON data, with the names of DESIGN section 6."""
    from mat.report import robustness

    return {
        "mat": FORMAT,
        "runs": document.runs,
        "items": [_data(line) for line in document.items],
        "tables": {table.name: _data(getattr(document, table.name)) for table in fields(Tables)},
        "counterexamples": [header(replay) for replay in document.counterexamples],
        "metrics": _by_name(document.metrics),
        "curves": robustness.as_data(document.curves),
        **({"variant": document.variant} if document.variant else {}),
        **({"interrupted": True} if document.interrupted else {}),
        **({"heat_maps": _data(document.heat_maps)} if document.heat_maps else {}),
    }


def _by_name(metrics: tuple[Metric, ...]) -> dict[str, Any]:
    return {metric.name: _data(metric.estimate) for metric in metrics}


def to_json(document: Document, **more: Any) -> str:
    """The report as text, with more data behind it: ASCII, indented, a newline at the end; equal reports give equal bytes."""
    return json.dumps(as_data(document) | more, ensure_ascii=True, allow_nan=False, indent=1) + "\n"


# -- back from a file -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedItem:
    id: str
    status: Status
    category: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedContract:
    contract: str
    severity: Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedTables:
    outcomes: tuple[RunOutcome, ...]
    violations: tuple[ReportedContract, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What is read back of a report: its items, the contracts broken in it, and the outcome of each run."""

    mat: Literal[1]
    items: tuple[ReportedItem, ...]
    tables: ReportedTables
    interrupted: bool = False


def is_report(data: object) -> bool:
    """Whether JSON data is a report of ours, of whatever version, and not a replay file."""
    return isinstance(data, dict) and "items" in data and "tables" in data


def read_data(path: Path) -> Any:
    """The JSON data of a file from outside, within limits. MatError names the file."""
    where = str(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(limits.FILE_BYTES + 1)
    except OSError as error:
        why = "a report is one JSON file" if path.is_dir() else "a report is read from its JSON file"
        raise MatError(f"cannot read {path.name}: {error.strerror}", why=why, fix="check the path", where=where) from error
    return load_json(raw, where=where)


def read(path: Path) -> Reported:
    """Read a report that `pytest --mat-report FILE.json` wrote. MatError where it is none, or one without outcomes."""
    return reported(read_data(path), where=str(path))


def reported(data: object, *, where: str) -> Reported:
    """What JSON data from outside says as a report. `where` is a path, or REVISION:PATH. MatError as in `read`."""
    name = PurePath(where.rpartition(":")[2]).name
    if not isinstance(data, dict) or not is_report(data):
        raise SpecError(
            what=f"{name} is not a report", why="a report has items and tables", fix="write one with pytest --mat-report",
            where=where,
        )  # fmt: skip
    if data.get("mat") != FORMAT:
        raise SpecError(
            what=f"{name} is a report of format {data.get('mat')!r}", why=f"this version reads format {FORMAT}",
            fix="write the report again with pytest --mat-report, or use the version that wrote it", where=where,
        )  # fmt: skip
    if not isinstance(data["tables"], dict) or "outcomes" not in data["tables"]:
        raise SpecError(
            what=f"{name} does not say what each run came to",
            why="it was written by another version of pytest-mat",
            fix="write the report again with pytest --mat-report",
            where=where,
        )
    return decode(Reported, data, where=where)


# ---------------------------------------------------------------------------------------------------------------------


def _data(value: Any) -> Any:
    if isinstance(value, EvaluationLine):  # its metrics by name, as those of the whole report
        return {each.name: _data(getattr(value, each.name)) for each in fields(value)} | {"metrics": _by_name(value.metrics)}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _data(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_data(item) for item in value]
    return value


def write(document: Document, path: Path) -> None:
    """Write the report in the form of the path's suffix; see `mat.report.files`."""
    from mat.report import files

    files.write(document, path)
