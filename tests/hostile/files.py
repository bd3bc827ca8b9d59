"""Reads damaged files of every format. Each read must succeed, or end in a MatError, within a second and 256 MB.

`python -m tests.hostile.files --count 100000` reads that many of each format; the tests here read some hundreds. A seed names
each input: `--format policy --only 4711` reads one again and shows its traceback.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final, TypeAlias

import mat
from mat.boundary.catalog import operator
from mat.boundary.effect import Raise
from mat.core.campaign import Certificate, Counterexample, Stability
from mat.core.errors import MatError
from mat.core.run import Run
from mat.core.spec import Perturbation, RunSpec
from mat.core.value import FrozenDict

LIMIT_S: Final = 1.0
"""Processor time of one read."""
LIMIT_BYTES: Final = 256 * 2**20
"""What one read may add to the resident size of the process."""


# -- damage -----------------------------------------------------------------------------------------------------------

_BYTES: Final = (
    b"\x00",
    b"\xff",
    b"\n",
    b"\r",
    b'"',
    b"{",
    b"]",
    b"\\",
    b"\xed\xa0\x80",
    b"9" * 400,
    b"[" * 3000,
    b"-",
    b"\xef\xbb\xbf",
)
_VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**400, 1e308, -0.0, float("nan"), float("inf"), "", "x", "\x00", "\ud800",
    "a" * 70_000, "../../etc/passwd", "1e999", [], {}, [[]], {"": {}}, {"$bytes": "!"}, {"$float": "nan"}, {"$int": "zz"},
    {"$no": 1}, "\x1b[31m", "2026-13-45T99:99:99Z", ["x"] * 300,
)  # fmt: skip


def damaged_bytes(text: bytes, draw: random.Random) -> bytes:
    """A few changes of single bytes and of pieces."""
    data = bytearray(text)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 8))):
        at = draw.randrange(len(data) + 1)
        piece = draw.randrange(1, 200)
        match draw.randrange(7):
            case 0 if at < len(data):
                data[at] ^= 1 << draw.randrange(8)
            case 1:
                del data[at : at + piece]
            case 2:
                data[at:at] = draw.choice(_BYTES)
            case 3:
                data[at:at] = data[at : at + piece]
            case 4:
                del data[at:]
            case 5:
                other = draw.randrange(len(data) + 1)
                data[at : at + piece] = data[other : other + piece]
            case _:
                data[at:at] = bytes(draw.randrange(256) for _ in range(draw.randrange(1, 9)))
    return bytes(data)


def damaged_json(value: Any, draw: random.Random) -> Any:
    """A few nodes replaced, dropped, renamed, moved, repeated or nested."""
    root = [json.loads(json.dumps(value))]
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        places = list(_places(root))
        parent, key = draw.choice(places)
        match draw.randrange(7):
            case 0:
                parent[key] = deepcopy(draw.choice(_VALUES))
            case 1:
                del parent[key]
                if not root:
                    root.append(None)
            case 2 if isinstance(parent, dict):
                parent[draw.choice(("", "x", key + "2", "\ud800", "__class__"))] = parent.pop(key)
            case 3:
                other, name = draw.choice(places)
                parent[key] = json.loads(json.dumps(other[name]))
            case 4:
                parent[key] = [parent[key]] * draw.choice((1, 2, 200))
            case 5:
                for _ in range(draw.choice((1, 50, 2000))):
                    parent[key] = [parent[key]] if draw.random() < 0.5 else {"x": parent[key]}
                return _text(root[0])
            case _:
                parent[key] = _nearby(parent[key], draw)
    return _text(root[0])


def _nearby(value: Any, draw: random.Random) -> Any:
    """A value of the same kind: what a schema alone does not refuse."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + draw.choice((-1, 1, -(10**6), 10**6))
    if isinstance(value, float):
        return draw.choice((-value, value * 1e300, value / 3))
    if isinstance(value, str):
        return draw.choice((value[:-1], value + "0", value.upper(), value[::-1], value.replace("1", "2"), value + "\n"))
    if isinstance(value, list):
        return draw.choice((value[:-1], value[::-1], value + value[:1]))
    return {} if isinstance(value, dict) else deepcopy(draw.choice(_VALUES))


def _text(value: Any) -> bytes:
    """JSON text of a value, however deep."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(50_000)
    try:
        return json.dumps(value).encode()
    finally:
        sys.setrecursionlimit(before)


def _places(root: Any) -> Iterator[tuple[Any, Any]]:
    """(parent, key) of each node, at most some thousands."""
    waiting, seen = [root], 0
    while waiting and seen < 4000:
        parent = waiting.pop()
        items = parent.items() if isinstance(parent, dict) else enumerate(parent)
        for key, item in list(items):
            seen += 1
            yield parent, key
            if isinstance(item, dict | list):
                waiting.append(item)


def damaged(text: bytes, draw: random.Random) -> bytes:
    """Damage at the level of bytes or, where the file is JSON or lines of it, of JSON."""
    if draw.random() < 0.4:
        return damaged_bytes(text, draw)
    try:
        return damaged_json(json.loads(text), draw)
    except ValueError:
        pass
    lines = text.split(b"\n")
    index = draw.randrange(len(lines))
    try:
        lines[index] = damaged_json(json.loads(lines[index]), draw)
    except ValueError:
        return damaged_bytes(text, draw)
    return b"\n".join(lines)


# -- formats ----------------------------------------------------------------------------------------------------------

Reader: TypeAlias = Callable[[Path], object]


@dataclass(frozen=True)
class FileFormat:
    """`make(folder)` writes a sound file and returns its path; `read(path)` reads all of it."""

    make: Callable[[Path], Path]
    read: Reader
    bytes_only: bool = field(default=False, kw_only=True)


LOST = operator("service.lost_ack", lambda call, reply, stream: Raise("timeout"), phase="after")


@mat.tool(effect="write", impact="high")
def refund(order: str, amount: float, note: str = "") -> dict[str, object]:
    return {"order": order, "paid": amount, "lines": [1, 2.5, None]}


@mat.trace_contract(start=0, id="refund.once")
def once_only(count: int, record: mat.Record) -> object:
    if record.action.name != "refund" or record.effected == "no":
        return None
    return mat.Violated("refunded twice", repair="send an idempotency key", state=count + 1, since=0) if count else 1


def shop(seed: int, *schedule: Perturbation) -> Run:
    with mat.run([once_only], task="tests/test_shop.py::test_refund", schedule=schedule, operators=[LOST], seed=seed) as run:
        with mat.agent("mailer", role="support"):
            for _ in range(2):
                try:
                    refund("A-7", 25.5, note="for ann@example.org")
                    break
                except TimeoutError:
                    mat.mitigate("retry")
            mat.finish("refunded")
    assert run.result is not None
    return run.result


def lost_ack() -> Perturbation:
    return mat.spec.perturbation("service.lost_ack", "mailer/service:refund#1", cost=4)


def runs() -> list[Run]:
    return [shop(0), shop(1, lost_ack()), shop(2)]


def _replay(folder: Path) -> Path:
    from mat.evidence import replay_file

    run = shop(0, lost_ack())
    proof = Certificate(
        proven=True, bound=3, executions=212, states=250, skipped=FrozenDict({"equal state": 38}), seeds=(0,),
        checks=FrozenDict({"sampled": 8}),
    )  # fmt: skip
    found = Counterexample(verdict=run.failures[0], run=run, stability=Stability(runs=3, reproduced=3))
    path = folder / "shop.mat.json"
    replay_file.write(path, replay_file.Replay(item=run.spec.task, counterexample=found, certificate=proof))
    return path


def _run_log(folder: Path) -> Path:
    from mat.evidence.runlog import RunEntry, RunLog

    with RunLog(folder, session="first") as log:
        for run in runs():
            log.append(RunEntry(item=run.spec.task, condition="nominal", run=run))
        path = log.path
    assert path is not None
    return path


def _journal(folder: Path) -> Path:
    from mat_search.journal import open_journal

    path = folder / "search.jsonl"
    journal = open_journal(path, RunSpec(task="x"), key={"item": "x"})
    for run in runs():
        journal.keep("evaluate", run.spec.schedule, run)
    journal.close()
    return path


def _read_journal(path: Path) -> object:
    from mat_search.journal import open_journal

    journal = open_journal(path, RunSpec(task="x"), key={"item": "x"})
    for run in runs():
        journal.recall("evaluate", run.spec.schedule)
    journal.close()
    for other in path.parent.glob("*.aside*"):
        other.unlink()
    return journal


def _store(folder: Path) -> Path:
    from mat.evidence.store import NAME, bring_up_to_date

    _run_log(folder)
    bring_up_to_date(folder / NAME, folder)
    return folder / NAME


def _read_store(path: Path) -> object:
    from mat.commands.stores import undamaged
    from mat.evidence.store import Store

    with undamaged(path):
        store = Store(path, mode="read")
        try:
            return store.query("select count(*) from runs")
        finally:
            store.close()


def text_file(name: str, text: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_text(text)
        return folder / name

    return make


def _traces(folder: Path) -> Path:
    from mat.evidence import jsonl

    path = folder / "traces.jsonl"
    for run in runs():
        jsonl.write(path, run)
    return path


def _read_traces(path: Path) -> object:
    from mat.evidence import jsonl

    return [list(trace.records) for trace in jsonl.read(path)]


def _otlp(folder: Path) -> Path:
    from mat.adapters.otel.writer import to_otlp_json

    path = folder / "traces.json"
    path.write_text(json.dumps(to_otlp_json(*runs())))
    return path


def _read_otlp(path: Path) -> object:
    from mat.adapters.importers.reading import read_traces

    return [list(trace.records) for trace in read_traces(path)]


def _report(folder: Path) -> Path:
    from mat.measure.rows import row_of
    from mat.report.build import build
    from mat.report.files import write

    path = folder / "report.json"
    write(build([], [row_of(run, item=run.spec.task, condition="nominal") for run in runs()]), path)
    return path


def _read_report(path: Path) -> object:
    from mat.report.from_json import read, read_data, restored

    return read(path), restored(read_data(path), where=str(path), folders=(path.parent,))


def _accepted(folder: Path) -> Path:
    from mat.evidence import acceptance, replay_file

    replay = replay_file.read(_replay(folder))
    day = date(2026, 3, 1)
    path = folder / "accepted.json"
    acceptance.write(
        path, [acceptance.acceptance_of(replay, "shop.mat.json", reason="ticket 4711", by="ada", today=day, until=day)]
    )
    return path


def _read_accepted(path: Path) -> object:
    from mat.core.known import KnownFindings
    from mat.evidence import acceptance

    found = acceptance.read(path)
    known = KnownFindings(accepted=found, today="2026-02-01")
    return [known.standing(each.signatures[0], each.stage, each.cost) for each in found]


def _report_with_findings(folder: Path) -> Path:
    from mat.core.campaign import BrokenRun, ItemResult, signatures_in
    from mat.report.build import build
    from mat.report.files import write

    run = shop(0, lost_ack())
    found = Counterexample(verdict=run.failures[0], run=run)
    broken = BrokenRun(
        verdict=run.failures[0], contracts=(run.failures[0].contract,), schedule=run.spec.schedule, place="shop.py:22",
        replays=("mat_replays/shop.mat.json",), signatures=signatures_in(run, [run.failures[0].contract]), test=run.spec.task,
    )  # fmt: skip
    result = ItemResult(id=run.spec.task, status="counterexample", counterexamples=(found,))
    path = folder / "report.json"
    write(build([result], [], broken={result.id: (broken,)}), path)
    return path


def _read_findings(path: Path) -> object:
    """As a baseline, and for GitHub: what a report from outside says is shown there."""
    from mat.report.annotations import annotation_lines
    from mat.report.files import rendered
    from mat.report.from_json import read_data, read_findings, restored
    from mat.report.markdown import session_summary
    from mat.report.source_lines import REPOSITORY_ROOT

    found = read_findings(path)
    document = restored(read_data(path), where=str(path)).document
    lines = annotation_lines(document, folders=REPOSITORY_ROOT)
    assert all(line.isprintable() for line in lines)
    return found, lines, rendered(document, "sarif"), session_summary(document)


def _read_policy(path: Path) -> object:
    from mat.govern import policy

    return policy.load(path, approvers={"manager": lambda what, arguments: True})


def _read_contracts(path: Path) -> object:
    from mat.resources import files

    return files.load(path)


def _read_replay(path: Path) -> object:
    from mat.evidence import replay_file

    return replay_file.read(path)


def _read_log(path: Path) -> object:
    from mat.evidence import runlog

    return list(runlog.read(path.parent))


POLICY: Final = {
    "mat": 1, "name": "desk", "approver": "manager",
    "capabilities": {"triage": ["lookup", {
        "tool": "refund", "parameters": {"order": {"pattern": "A[0-9]+"}, "amount": {"least": 1, "most": 500}},
        "rates": [{"most": 3, "window_ms": 1000}],
    }]},
    "rules": [
        {"block": {"tools": "send", "unless": {"to": {"pattern": ".*@shop\\.example"}}, "reason": "mail stays"}},
        {"clamp": {"parameter": "amount", "least": 1, "most": 500}},
        {"needs_approval": {"impact": "high", "by": "manager", "timeout_ms": 1000}},
        {"strip": {"parameters": "note", "matching": "x+"}},
    ],
}  # fmt: skip
CONTRACTS: Final = """contracts:
  base: &no
    budgets: {tokens: 50000}
  review:
    budgets: {tokens: 50000, iterations: 3}
    duration_s: 300
    skills: [search, "model:planner"]
    criteria: ["utilization <= 80 %"]
"""
YAML_POLICY: Final = """mat: 1
name: desk
approver: manager
capabilities:
  triage:
    - lookup
    - tool: refund
      parameters: {order: {pattern: "A[0-9]+"}, amount: {least: 1, most: 500}}
rules:
  - block: {tools: send, unless: {to: {pattern: '.*@shop\\.example'}}, reason: mail stays}
  - clamp: {parameter: amount, least: 1, most: 500}
"""
FORMATS: Final[dict[str, FileFormat]] = {
    "replay": FileFormat(_replay, _read_replay),
    "run log": FileFormat(_run_log, _read_log),
    "search journal": FileFormat(_journal, _read_journal),
    "store": FileFormat(_store, _read_store, bytes_only=True),
    "policy, JSON": FileFormat(text_file("policy.json", json.dumps(POLICY)), _read_policy),
    "policy, YAML": FileFormat(text_file("policy.yaml", YAML_POLICY), _read_policy),
    "resource contracts": FileFormat(text_file("contracts.yaml", CONTRACTS.replace(" &no", "")), _read_contracts),
    "traces": FileFormat(_traces, _read_traces),
    "OTLP": FileFormat(_otlp, _read_otlp),
    "report": FileFormat(_report, _read_report),
    "accepted findings": FileFormat(_accepted, _read_accepted),
    "findings of a report": FileFormat(_report_with_findings, _read_findings),
}


# -- reading ----------------------------------------------------------------------------------------------------------


@dataclass
class Findings:
    """What went wrong, by its kind: the seeds of the first inputs; and the slowest read in seconds of processor time,
    and what the largest added to the memory."""

    wrong: dict[str, list[int]] = field(default_factory=dict)
    read: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    bytes_added: int = 0


def read_damaged(name: str, count: int, *, first: int = 0, show: bool = False) -> Findings:
    """Read `count` damaged files of a format."""
    form, found = FORMATS[name], Findings()
    with tempfile.TemporaryDirectory() as folder:
        path = form.make(Path(folder))
        sound = path.read_bytes()
        form.read(path)
        path.write_bytes(sound)
        for seed in range(first, first + count):
            draw = random.Random(f"{name}:{seed}")
            path.write_bytes(damaged_bytes(sound, draw) if form.bytes_only else damaged(sound, draw))
            memory, began, wrong = _Memory(), time.process_time(), ""
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    form.read(path)
                found.read += 1
            except MatError:
                found.refused += 1
            except Exception as error:
                frame = traceback.extract_tb(error.__traceback__)[-1]
                wrong = f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
                if show:
                    traceback.print_exc()
            took = time.process_time() - began
            added = memory.added()
            found.slowest_s, found.bytes_added = max(found.slowest_s, took), max(found.bytes_added, added)
            if took > LIMIT_S:
                wrong = wrong or f"{took:.1f} s"
            if added > LIMIT_BYTES:
                wrong = wrong or f"{added >> 20} MB"
            if wrong:
                found.wrong.setdefault(wrong, []).append(seed)
    return found


class _Memory:
    """What is added to the resident size from here on, at its peak. The input was made before: that is not counted."""

    def __init__(self) -> None:
        if os.access("/proc/self/clear_refs", os.W_OK):  # elsewhere only what exceeds the peak of all reads so far is seen
            Path("/proc/self/clear_refs").write_text("5")
        self._before = _peak()

    def added(self) -> int:
        """In bytes."""
        return _peak() - self._before


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="inputs of each format")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--format", choices=FORMATS, action="append", help="only this format")
    parser.add_argument("--only", type=int, help="read the input of this seed, and show what it raises")
    options = parser.parse_args()
    failed = False
    for name in options.format or FORMATS:
        only = options.only is not None
        found = read_damaged(name, 1 if only else options.count, first=options.only if only else options.first, show=only)
        print(
            f"{name:20} {found.read:7} read {found.refused:7} refused, slowest {found.slowest_s * 1000:4.0f} ms,"
            f" {found.bytes_added >> 20:4} MB more", flush=True,
        )  # fmt: skip
        for wrong, seeds in found.wrong.items():
            failed = True
            print(f"  {wrong}: {len(seeds)} times, seeds {seeds[:5]}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
