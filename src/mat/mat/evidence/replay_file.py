"""The replay file (`*.mat.json`, DESIGN section 6): one counterexample as text, to review, commit and run again.

Replay files arrive in pull requests, so they are untrusted input: JSON only, limits on size and depth, every
field checked, nothing imported by name. The text is plain ASCII with one key and one record per line, so that diffs are
readable and no invisible character can hide in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar, cast

from mat.core import limits
from mat.core.campaign import Certificate, Counterexample, Signature, Stability
from mat.core.codec import decode, load_json, written
from mat.core.digest import digest, plain
from mat.core.errors import MatError, ReplayError, printable
from mat.core.files import write_whole
from mat.core.record import Record
from mat.core.redact import cleaned
from mat.core.run import Finding, Run, TapeEntry, Termination
from mat.core.site import Site, meets
from mat.core.spec import ClockKind, Perturbation, RunSpec, Schedule, overlap_text
from mat.core.value import SPARSE, FrozenDict
from mat.core.verdict import ContractOutcome, Outcome, Severity, Stage, Violation

FORMAT: Final = 2
"""The version of the file. Since 2, what a run draws depends on its task: a run of format 1 cannot be executed again."""
SUFFIX: Final = ".mat.json"
FOLDER: Final = "mat_replays"
_STRICT: Final = {"extra": "forbid"}
_OPERATOR: Final = re.compile(r"^[a-z]+\.[A-Za-z0-9_.\-]+$")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.\-]+")
_NAME_CHARS: Final = 80
_LISTS: Final = frozenset({"violations", "schedule", "tape", "records"})
"""Keys whose entries are written one per line."""

T = TypeVar("T")


class SecretInReplayError(ReplayError):
    """A replay file would contain a declared secret, and cannot do without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A counterexample with the test item it belongs to. `expected`: the item is marked `expect`, so it must violate again."""

    item: str
    counterexample: Counterexample
    certificate: Certificate
    expected: bool = False


# -- the parts of the file that have no type in core -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    __pydantic_config__: ClassVar[Any] = _STRICT
    contract: str
    severity: Severity
    stage: Stage
    step: int
    agent: str
    role: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Explained:
    """Further fields of each violation, in the order of `violations`."""

    __pydantic_config__: ClassVar[Any] = _STRICT
    weight: float
    repair: str
    region: tuple[int, int]
    witness: tuple[int, ...]
    instance: str
    wanted: str = ""
    label: str = field(default="", metadata=SPARSE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Armed:
    __pydantic_config__: ClassVar[Any] = _STRICT
    contract: str
    severity: Severity
    outcome: Outcome
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scheduled:
    __pydantic_config__: ClassVar[Any] = _STRICT
    operator: str
    site: Site
    parameters: FrozenDict
    cost: int
    step: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spec:
    __pydantic_config__: ClassVar[Any] = _STRICT
    task: str
    config: FrozenDict
    seed: int
    horizon_steps: int
    horizon_ms: int
    clock: ClockKind


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """The end of the run: what `head` needs in addition to the records, and the verdicts. `verdict` indexes `explained`."""

    __pydantic_config__: ClassVar[Any] = _STRICT
    termination: Termination
    elapsed_ms: int
    success: bool | None
    error: str
    verdict: int
    explained: tuple[_Explained, ...]
    contracts: tuple[_Armed, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReplayFile:
    __pydantic_config__: ClassVar[Any] = _STRICT
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
    result: _Result
    tape: tuple[TapeEntry, ...]
    records: tuple[Record, ...]


# -- to text ----------------------------------------------------------------------------------------------------------


def header(replay: Replay) -> dict[str, Any]:
    """The file without `result`, `tape` and `records`, as JSON data in the order of the file. Reports use it too."""
    found, run = replay.counterexample, replay.counterexample.run
    spec = run.spec
    return {
        "mat": FORMAT,
        "verdict": _data(_part(_Judged, found.verdict)),
        "violations": _data(tuple(_part(_Judged, item) for item in run.violations)),
        "signature": _data(found.signature),
        "cost": found.cost,
        "schedule": _data(tuple(_scheduled_part(run, item) for item in spec.schedule)),
        "certificate": _drop_empty(replay.certificate, "relative_to", "estimate", "assumptions"),
        "spec": _data(_part(_Spec, spec)),
        "stability": _drop_empty(found.stability, "other_seeds", "shown_on"),
        "head": run.head,
        "expected": replay.expected,
    }


def data_of(replay: Replay) -> dict[str, Any]:
    """The whole file as JSON data, in its order."""
    run = replay.counterexample.run
    return {
        **header(replay),
        "result": _data(_result(replay.counterexample)),
        "tape": _data(run.tape),
        "records": _data(run.records),
    }


def pack(replay: Replay) -> str:
    """The text of the file; equal replays give equal bytes. ReplayError if the parts do not belong together.

    Also if a declared secret stands in what the run is executed from: without it, the file would be of another run.
    """
    asked, replay = replay.counterexample.run.spec, cleaned(replay)
    run = replay.counterexample.run
    if run.spec != asked:
        raise SecretInReplayError(
            what=f"no replay file for {run.spec.task}: a declared secret stands in its node id, configuration or schedule",
            why="the file would hold the secret, or could not be run without it",
            fix="give the parameter an id without it (pytest.param(..., id=...)), and take it out of names and parameters",
        )
    problems = [*_item_problems(replay.item, run.spec.task)]
    if replay.counterexample.verdict not in run.violations:
        problems.append("the verdict is not one of the run's violations")
    if problems:
        raise ReplayError(
            what=f"cannot pack a replay of {replay.item!r}: {'; '.join(problems)}",
            fix="pack the run in which the violation was found",
        )
    lines = [f'"{key}": {_lines(item) if key in _LISTS else _text(item)}' for key, item in data_of(replay).items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _lines(items: list[Any]) -> str:
    return "[\n" + ",\n".join(" " + _text(item) for item in items) + "\n]" if items else "[]"


def _text(data: Any) -> str:
    return json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(", ", ": "))


def _drop_empty(value: Any, *rare: str) -> Any:
    """JSON data without the given fields if they are empty."""
    return {name: item for name, item in _data(value).items() if item or name not in rare}


def _data(value: Any) -> Any:
    """JSON data. Our fields keep their declared order, recorded mappings are sorted, so that equal content gives equal text."""
    if isinstance(value, Site):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _data(item) for name, item in written(value)}
    if isinstance(value, tuple):
        return [_data(item) for item in value]
    return _sort_keys(plain(value))


def _sort_keys(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _sort_keys(data[key]) for key in sorted(data)}
    if isinstance(data, list):
        return [_sort_keys(item) for item in data]
    return data


def _part(kind: type[T], whole: object) -> T:
    """A part of the file from one of our values: the fields of the same names."""
    return kind(**{item.name: getattr(whole, item.name) for item in fields(cast(Any, kind))})


def _fields_of(part: Any) -> dict[str, Any]:
    return {item.name: getattr(part, item.name) for item in fields(part)}


def _scheduled_part(run: Run, item: Perturbation) -> _Scheduled:
    return _Scheduled(
        operator=item.operator, site=item.site, parameters=item.parameters, cost=item.cost, step=hit_step(run, item)
    )


def hit_step(run: Run, perturbation: Perturbation) -> int | None:
    """The first step at which a perturbation acted; None if its site was not reached."""
    for record in run.records:
        for note in record.faults:
            if note.operator != perturbation.operator or note.parameters != perturbation.parameters:
                continue
            if meets(perturbation.site, record.site):
                return record.step
    return None


def _result(found: Counterexample) -> _Result:
    run = found.run
    return _Result(
        termination=run.termination,
        elapsed_ms=run.elapsed_ms,
        success=run.success,
        error=run.error,
        verdict=run.violations.index(found.verdict),
        explained=tuple(_part(_Explained, item) for item in run.violations),
        contracts=tuple(_part(_Armed, item) for item in run.outcomes),
        findings=run.findings,
    )


# -- from text --------------------------------------------------------------------------------------------------------


def unpack(text: str, *, where: str) -> Replay:
    """Read a replay file. ReplayError lists every problem; no text raises another exception."""
    try:
        data = load_json(text, where=where)
        _check_version(data, where)
        file = decode(_ReplayFile, data, where=where, name="replay file")
    except ReplayError:
        raise
    except MatError as error:
        raise ReplayError(
            what=printable(error.what), why=error.why, where=where,
            fix=error.fix or "restore the file from version control, or delete it and search again",
        ) from None  # fmt: skip
    problems = list(_part_problems(file))
    if not problems:
        replay, problems = _assemble(file)
    if problems:
        raise ReplayError(
            what=printable(f"not a replay file: {'; '.join(problems)}"),
            why="its parts contradict each other, so it was edited by hand or merged wrongly",
            fix="restore the file from version control, or delete it and search again",
            where=where,
        )
    return replay


def _check_version(data: Any, where: str) -> None:
    version = data.get("mat") if isinstance(data, dict) else None
    if type(version) is not int:
        raise ReplayError(
            what="not a replay file: it has no format version",
            why='the first key of a replay file is "mat", a whole number',
            fix="restore the file from version control, or delete it and search again",
            where=where,
        )
    if version != FORMAT:
        age = "a newer" if version > FORMAT else "an older"
        raise ReplayError(
            what=f"replay file of format {version}; this pytest-mat reads format {FORMAT}",
            why=f"{age} version wrote it, and its runs draw other random numbers and ids",
            fix="upgrade pytest-mat" if version > FORMAT else "delete it and run `pytest --mat-stress`, which writes a new one",
            where=where,
        )


def _part_problems(file: _ReplayFile) -> Iterator[str]:
    """Problems of single parts, beyond their types."""
    yield from _item_problems(file.spec.task, file.spec.task)
    for index, item in enumerate(file.schedule):
        if not _OPERATOR.match(item.operator):
            yield f"schedule.{index}.operator: {item.operator!r} is not of the form boundary.name"
        elif item.operator.partition(".")[0] != item.site.boundary:
            yield f"schedule.{index}: {item.operator} cannot bind to {item.site}"
        if item.cost < 0:
            yield f"schedule.{index}.cost: {item.cost} is negative"
    for index, one in enumerate(file.schedule):
        for other in file.schedule[index + 1 :]:
            if one.site.overlaps(other.site):
                yield f"schedule: {overlap_text(one.site, other.site)}"
    if [record.step for record in file.records] != list(range(len(file.records))):
        yield "records: steps are not numbered 0, 1, 2, ..."
    if len(file.result.explained) != len(file.violations):
        yield f"result.explained has length {len(file.result.explained)}, but violations has length {len(file.violations)}"
    if not 0 <= file.result.verdict < len(file.violations):
        yield f"result.verdict: there is no violation {file.result.verdict}"
    elif file.violations[file.result.verdict] != file.verdict:
        yield "verdict is not the violation that result.verdict names"
    armed = {item.contract for item in file.result.contracts}
    for contract in sorted({item.contract for item in file.violations} - armed):
        yield f"violations: {contract!r} is not among the armed contracts"
    for name, least, number in (
        ("spec.horizon_steps", 1, file.spec.horizon_steps),
        ("spec.horizon_ms", 1, file.spec.horizon_ms),
        ("stability.runs", 0, file.stability.runs),
        ("stability.reproduced", 0, file.stability.reproduced),
    ):
        if number < least:
            yield f"{name}: {number} is less than {least}"


def _item_problems(item: str, task: str) -> Iterator[str]:
    if not item or item != task:
        yield f"the task {task!r} is not the node id of the item {item!r}"
    if any(not character.isprintable() for character in item):
        yield f"the node id {item!r} contains control characters"


def _assemble(file: _ReplayFile) -> tuple[Replay, list[str]]:
    """The replay, and the contradictions between the file and its records."""
    run = _run(file)
    replay = Replay(
        item=file.spec.task,
        counterexample=Counterexample(
            verdict=_explain(file)[file.result.verdict], run=run, stability=file.stability
        ),
        certificate=file.certificate,
        expected=file.expected,
    )  # fmt: skip
    try:
        return replay, [
            f"{name}: the file says {_short(stated)}, its records give {_short(found)}"
            for name, stated, found in (
                ("head", file.head, run.head),
                ("cost", file.cost, replay.counterexample.cost),
                ("signature", _data(file.signature), _data(replay.counterexample.signature)),
                ("schedule", _data(file.schedule), _data(tuple(_scheduled_part(run, item) for item in run.spec.schedule))),
                ("violations", _data(file.violations), _data(tuple(_part(_Judged, item) for item in run.violations))),
            )
            if stated != found
        ]
    except (MatError, ValueError) as error:  # a record's site that does not parse, a text that cannot be hashed
        return replay, [f"records: {error.what if isinstance(error, MatError) else error}"]


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _explain(file: _ReplayFile) -> tuple[Violation, ...]:
    pairs = zip(file.violations, file.result.explained, strict=True)
    return tuple(Violation(**_fields_of(judged), **_fields_of(more)) for judged, more in pairs)


def _run(file: _ReplayFile) -> Run:
    violations = _explain(file)
    spec = RunSpec(**_fields_of(file.spec), schedule=Schedule(tuple(_part(Perturbation, item) for item in file.schedule)))
    outcomes = tuple(
        ContractOutcome(**_fields_of(item), violations=tuple(one for one in violations if one.contract == item.contract))
        for item in file.result.contracts
    )
    reached = {str(item.site) for item in file.schedule if item.step is not None}
    return Run(
        spec=spec, records=file.records, outcomes=outcomes, tape=file.tape, termination=file.result.termination,
        success=file.result.success, error=file.result.error, findings=file.result.findings,
        elapsed_ms=file.result.elapsed_ms,
        unreached=tuple(item for item in spec.schedule if str(item.site) not in reached),
    )  # fmt: skip


# -- files ------------------------------------------------------------------------------------------------------------


def write(path: Path, replay: Replay) -> None:
    """Write the file atomically: no reader sees half of it, and no crash leaves half of it."""
    text = pack(replay)
    try:
        write_whole(path, text.encode("ascii"))
    except OSError as error:
        raise ReplayError(
            what=f"cannot write {path.name}: {error.strerror}", fix="check the folder", where=str(path)
        ) from error


def read(path: Path) -> Replay:
    """Read one replay file; ReplayError names the file."""
    where = str(path)
    try:
        if not path.is_file():
            raise ReplayError(what=f"no replay file {path.name}", fix="check the path", where=where)
        with path.open("rb") as stream:
            raw = stream.read(limits.FILE_BYTES + 1)
    except OSError as error:
        raise ReplayError(
            what=f"cannot read {path.name}: {error.strerror}",
            fix="check the path and its permissions",
            where=where,
        ) from error
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ReplayError(
            what=f"{path.name} is not text: {error.reason} at byte {error.start}",
            fix="restore the file from version control",
            where=where,
        ) from None
    return unpack(text, where=where)


def short_id(replay: Replay) -> str:
    """Six hex digits that distinguish the counterexamples of an item by contract, stage and schedule."""
    found = replay.counterexample
    items = [[item.operator, str(item.site), item.parameters] for item in found.run.spec.schedule]
    return digest([replay.item, found.verdict.contract, found.verdict.stage, items])[:6]


def name_of(replay: Replay) -> str:
    """The file's name: the test function and the short id."""
    inner = replay.item.partition("::")[2] or replay.item
    function = inner.partition("[")[0].rpartition("::")[2]
    safe = _UNSAFE.sub("_", function).strip("._-")[:_NAME_CHARS] or "replay"
    return f"{safe}-{short_id(replay)}{SUFFIX}"


def project_of(path: Path, item: str) -> Path | None:
    """The folder from which the test of a replay file is run: this one, or the nearest above the file that has the test's file.

    None if the test's file is in none of them.
    """
    test = item.partition("::")[0]
    return next((each for each in (Path.cwd(), *path.absolute().parents) if (each / test).is_file()), None)


def find(directory: Path) -> list[Path]:
    """The replay files that belong to the tests of a folder, by name."""
    return sorted(path for path in (directory / FOLDER).glob("*" + SUFFIX) if path.is_file())
