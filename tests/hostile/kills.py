"""Kills processes at random moments: nothing finished is lost, all files stay readable, the end is that of one never killed.

`python -m tests.hostile.kills --count 200 --seed 7` kills 200 times, shared among a search (`--mat-stress`), an evaluation
(`--mat-evaluate`), an import into the store (`mat import`) and an update of the store from its log (`mat query`). Each command
is killed and given again until it ends by itself; `--seed` draws the moments.
"""

from __future__ import annotations

import argparse
import difflib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.hostile import files

from mat.core.errors import MatError

IN_A_ROW: Final = 8
"""After so many kills a command may end by itself."""
SHOP: Final = """
import mat

PAID = []


@mat.tool(effect="read", errors="builtin")
def look_up(order):
    return {"order": order, "paid": order in PAID}


@mat.tool(effect="write", impact="high", errors="builtin")
def refund(order, amount):
    PAID.append(order)
    return {"refunded": amount}


def tried(call, *given):
    for _ in range(3):
        try:
            return call(*given)
        except (TimeoutError, ConnectionError):
            mat.mitigate("retry")
    return None


def careful(orders):
    PAID.clear()
    for order in orders:
        found = tried(look_up, order)
        if found and not found["paid"]:
            try:
                refund(order, 30)
            except (TimeoutError, ConnectionError):
                mat.mitigate("escalate")


def careless(orders):
    PAID.clear()
    for order in orders:
        tried(look_up, order)
        tried(refund, order, 30)
"""
TESTS: Final = """
import pytest
import shop
from mat_contracts import no_duplicate_effect

import mat

WORK = dict(channels=["email"], tools=["look_up", "refund"])
pytestmark = pytest.mark.mat(faults=["service.timeout", "service.lost_ack"], budget=8)


@pytest.fixture
def rule():
    return no_duplicate_effect("refund", key="order")


def test_careful(mat_run, rule):
    shop.careful(["A", "B"])


def test_careless(mat_run, rule):
    shop.careless(["A", "B"])


@pytest.mark.mat(workload=mat.Workload(**WORK, category="policy"), seeds=3, budget=4)
def test_careful_task(mat_run, rule):
    mat.untrusted("refund A", channel="email")
    shop.careful(["A"])


@pytest.mark.mat(workload=mat.Workload(**WORK, category="refunds"), seeds=3, budget=4)
def test_careless_task(mat_run, rule):
    mat.untrusted("refund A", channel="email")
    shop.careless(["A"])
"""
QUERY: Final = "SELECT item, condition, count(*) AS n, sum(steps) AS steps FROM runs GROUP BY ALL ORDER BY ALL"
_REUSED: Final = re.compile(r"resumed: (\d+) executions reused")
_TAKEN: Final = re.compile(r"(, | in )[\d.]+ (m?s|min)\b|\b[\d.]+s\b| *\(0:\d\d:\d\d\)")
_LAST: Final = re.compile(r"^=+ [^=]* in [\d.]+s.* =+\n\Z", re.MULTILINE)
"""The last line of pytest."""
_OWN: Final = re.compile(r"^(mat: .*\bresumed: |mat store: |platform |rootdir|plugins|cachedir|={3,}).*$", re.MULTILINE)


def in_words(text: str) -> str:
    """What a session says, without how long it took, what it resumed and what it wrote by itself."""
    return "\n".join(line.rstrip() for line in _TAKEN.sub("", _OWN.sub("", text)).splitlines() if line.strip())


# -- commands -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Command:
    """`make(folder)` prepares a folder. `arguments`: of Python. `finished(folder)`: what is on disk for good, each thing once;
    it raises what reading raises. `result(folder, said)`: what counts of the end."""

    make: Callable[[Path], None]
    arguments: tuple[str, ...]
    finished: Callable[[Path], Counter[str]]
    result: Callable[[Path, str], str]


def _project(folder: Path) -> None:
    for name, text in (("shop.py", SHOP), ("test_shop.py", TESTS), ("pytest.ini", "[pytest]\npythonpath = .\n")):
        (folder / name).write_text(text)
        os.utime(folder / name, (1_000_000_000, 1_000_000_000))  # of before the session, whatever the resolution of the clock


def _executions(folder: Path) -> Counter[str]:
    """The executions in the journals of searches, and the parts in those of evaluations, by the start of their lines."""
    lines = [
        line
        for path in sorted((folder / ".mat").glob("*/*.jsonl"))
        for line in path.read_bytes().split(b"\n")[1:-1]
        if b'"source": ' not in line[:60]
    ]
    return Counter(line[:60].decode() for line in lines)


def _replays(folder: Path) -> Counter[str]:
    from mat.evidence import replay_file

    return Counter(replay_file.read(path).item for path in sorted((folder / "mat_replays").glob("*.json")))


def _logged(folder: Path) -> Counter[str]:
    from mat.evidence import runlog

    if not any(folder.glob("kept/*.log")):  # it was killed before its first run
        return Counter()
    return Counter(f"{entry.item} {entry.condition} {entry.run.head}" for entry in runlog.read(folder / "kept"))


def _stored(folder: Path) -> list[tuple[object, ...]]:
    """The runs of the store as any reader of it sees them."""
    from mat.evidence.store import NAME, Store, bring_up_to_date

    path = folder / "kept" / NAME
    bring_up_to_date(path, folder / "kept")
    store = Store(path, mode="read")
    try:
        return list(store.query(QUERY).rows)
    finally:
        store.close()


def _traces(folder: Path) -> None:
    from mat.evidence import jsonl

    for seed in range(120):
        jsonl.write(folder / "traces.mat.jsonl", files.shop(seed, *([files.lost_ack()] if seed % 2 else [])))


def _log(folder: Path) -> None:
    from mat.evidence.runlog import RunEntry, RunLog

    with RunLog(folder / "kept", session="first") as log:
        for seed in range(120):
            run = files.shop(seed)
            log.append(RunEntry(item=run.spec.task, condition="nominal", run=run))


def _in_lines(folder: Path) -> str:
    """The runs of the log and the rows of the store, a line each."""
    return "\n".join([*(f"{run}: {count}" for run, count in sorted(_logged(folder).items())), *map(str, _stored(folder))])


_PYTEST: Final = ("-m", "pytest", "-p", "no:cacheprovider")
COMMANDS: Final = {
    "search": Command(
        make=_project, arguments=(*_PYTEST, "--mat-stress", "-k", "not task"),
        finished=lambda folder: _executions(folder) + _replays(folder), result=lambda folder, said: in_words(said),
    ),
    "evaluation": Command(
        make=_project, arguments=(*_PYTEST, "--mat-evaluate", "-k", "task", "--mat-store=kept"),
        finished=lambda folder: _executions(folder) + _logged(folder),
        result=lambda folder, said: f"{in_words(said)}\n{_in_lines(folder)}",
    ),
    "import": Command(
        make=_traces, arguments=("-m", "mat", "import", "traces.mat.jsonl", "--store", "kept", "--category", "refunds"),
        finished=_logged,
        result=lambda folder, said: _in_lines(folder),
    ),
    "update of the store": Command(
        make=_log, arguments=("-m", "mat", "query", QUERY, "--json", "--store", "kept"), finished=_logged,
        result=lambda folder, said: f"{said}\n{_in_lines(folder)}",
    ),
}  # fmt: skip


# -- kills --------------------------------------------------------------------------------------------------------------


@dataclass
class KillFindings:
    """What went wrong, as sentences. `killed`: how often; `ended`: how many commands then ended by themselves."""

    wrong: list[str] = field(default_factory=list)
    killed: int = 0
    ended: int = 0
    with_progress: int = 0
    """Kills after which something finished was on disk."""


def given(arguments: tuple[str, ...], folder: Path, *, killed_after_s: float | None) -> tuple[int, str]:
    """(exit code, what it said) of a command, which is killed with all its processes after a time."""
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=folder, stdout=out, stderr=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "PYTHONHASHSEED": "0", "COLUMNS": "100"},
        )  # fmt: skip
        try:
            code = process.wait(killed_after_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        out.seek(0)
        return code, out.read()


def kill(name: str, count: int, seed: int, command: Command | None = None) -> KillFindings:
    """Kill a command `count` times, in as many series as that takes."""
    command, found, draw = command or COMMANDS[name], KillFindings(), random.Random(f"{name}:{seed}")
    with tempfile.TemporaryDirectory() as root:
        expected, lasted_s = _never_killed(command, Path(root))
        while found.killed < count:
            folder = Path(tempfile.mkdtemp(dir=root))
            command.make(folder)
            for what in _series(command, folder, draw, found, expected, lasted_s, count):
                found.wrong.append(f"{name}, kill {found.killed}: {what}")
            shutil.rmtree(folder, ignore_errors=True)
    return found


def _never_killed(command: Command, root: Path) -> tuple[dict[bool, str], float]:
    """(how the command ends where it begins without and with the replay files of an earlier session, how long it takes)."""
    ends: dict[bool, str] = {}
    replays, lasted_s = root / "whole-0" / "mat_replays", 0.0
    for again in (False, True):
        folder = root / f"whole-{int(again)}"
        folder.mkdir()
        command.make(folder)
        if again and replays.exists():
            shutil.copytree(replays, folder / "mat_replays")
        began = time.monotonic()
        code, said = given(command.arguments, folder, killed_after_s=None)
        lasted_s = lasted_s or time.monotonic() - began
        if code not in (0, 1):
            raise MatError(f"{' '.join(command.arguments)} ends with {code}: {said[-500:]}")
        ends[again] = command.result(folder, said)
    return ends, lasted_s


def _series(
    command: Command, folder: Path, draw: random.Random, found: KillFindings, expected: dict[bool, str], lasted_s: float,
    count: int,
) -> Iterator[str]:  # fmt: skip
    before, kills = Counter[str](), 0
    while True:
        last = kills == IN_A_ROW or found.killed == count
        replays = (folder / "mat_replays").exists() and any((folder / "mat_replays").iterdir())
        code, said = given(command.arguments, folder, killed_after_s=None if last else draw.uniform(0, lasted_s))
        if code != -signal.SIGKILL or _LAST.search(said):  # killed after its last word, it has ended
            code = max(code, 0)
            break
        kills += 1
        found.killed += 1
        try:
            now = command.finished(folder)
        except Exception as error:
            yield f"unreadable: {type(error).__name__}: {error}"
            return
        found.with_progress += bool(now)
        lost = before - now
        if lost:
            yield f"lost: {lost.total()} of {before.total()} finished"
        before = now
    found.ended += 1
    if code not in (0, 1):
        yield f"it ends with {code}: {said[-300:]}"
        return
    reused = sum(map(int, _REUSED.findall(said)))
    missing = sum(count for line, count in before.items() if '"kind":"' in line) - reused
    if missing > 0:
        yield f"{missing} finished executions are executed again"
    try:
        end = command.result(folder, said)
    except Exception as error:
        yield f"unreadable in the end: {type(error).__name__}: {error}"
        return
    if end != expected[replays]:
        changed = difflib.unified_diff(expected[replays].splitlines(), end.splitlines(), lineterm="", n=0)
        yield "it ends with other words:\n    " + "\n    ".join([*changed][2:12])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="kills, of all commands together")
    parser.add_argument("--seed", type=int, default=0, help="draws the moments")
    parser.add_argument("--command", choices=COMMANDS, action="append", help="only this command")
    options = parser.parse_args()
    names = options.command or list(COMMANDS)
    failed = False
    for index, name in enumerate(names):
        count = options.count * (index + 1) // len(names) - options.count * index // len(names)
        found = kill(name, count, options.seed)
        print(
            f"{name:20} {found.killed:4} kills, {found.with_progress:4} of them with finished work on disk;"
            f" {found.ended:3} ended by themselves; {len(found.wrong)} wrong", flush=True,
        )  # fmt: skip
        for wrong in found.wrong:
            failed = True
            print(f"  {wrong}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
