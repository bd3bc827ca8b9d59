"""Workers of one search: forks (--mat-workers) and a cluster of dask (--mat-executor), and what a large cluster would do.

Run: python benchmarks/workers.py [--rounds 3] [--ms 20] [--burn] [--workers 200] [--tests 10000] [--executions 2000]

1. A test whose executions take `--ms` milliseconds is searched by one process, by two forks, and by a cluster of two workers on
   this machine, in turns. An execution waits that long in real time, as for an answer of a network; with `--burn` it uses
   the processor instead. The time is that of the search; that of starting a cluster stands next to it. Medians, and ratios.
2. The same on a scheduler and two workers in processes of their own: processor time of each part for one execution, and the
   bytes that all parts write to sockets for it, counted where dask writes them.
3. A simulation of `--workers` workers with these numbers: how many searching processes feed them, and how long a campaign
   of `--tests` tests takes. The scheduler and each searching process are servers with one queue; workers take what they get.

The last line is JSON with all numbers.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

SUBJECT: Final = """
import ctypes
import os
import time
from pathlib import Path

import mat
import pytest

usleep = ctypes.CDLL(None).usleep  # real time: a run replaces that of Python
clock = time.process_time


@mat.tool(effect="write", impact="high")
def refund(order):
    return {"refunded": order}


def take(ms, burn):
    if not burn:
        usleep(ms * 1000)
        return
    until = os.times().user + ms / 1000
    while os.times().user < until:
        pass


@mat.trace_contract(start=0)
def few(seen, record):
    return seen + 1 if seen < 50 else mat.Violated("too many")


def agent():
    for order in range(8):
        try:
            refund(order)
        except Exception:
            pass


@pytest.mark.mat(contracts=[few], budget=2)
def test_first(mat_run):
    agent()


@pytest.mark.mat(contracts=[few], budget=12, search=mat.Search(max_runs=MAX_RUNS, strategy="exhaustive"))
def test_search(mat_run):
    take(TAKES_MS, BURNS)
    with Path(".mat", "log").open("a") as log:
        log.write(f"{os.getpid()}\\n")
    agent()
"""
CONFTEST: Final = """
import json
from pathlib import Path


def pytest_runtest_logreport(report):
    if report.when == "call":
        with Path(".mat", "seconds").open("a") as seconds:
            seconds.write(json.dumps([report.nodeid.partition("::")[2], report.duration]) + "\\n")
"""
COUNTING: Final = """
import os
from pathlib import Path

from distributed.comm import tcp

written = writes = 0
write = tcp.TCP.write


async def counted(self, *arguments, write=write, **named):
    global written, writes
    count = await write(self, *arguments, **named)
    written, writes = written + count, writes + 1
    if not writes % 50:
        Path(os.environ["BYTES"], str(os.getpid())).write_text(str(written))
    return count


if write.__name__ != "counted":  # dask may load this twice
    tcp.TCP.write = counted
"""
PARTS: Final = {
    "pytest_mat.cluster": "link", "dask_scheduler": "scheduler", "multiprocessing": "worker", "pytest_mat.pristine": "fresh",
    "mat-stress": "session",
}  # fmt: skip
"""What stands in the command line of each part, the first that fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """One session: seconds of the search and of everything else, executions in all and in the searching process."""

    seconds: float
    rest_s: float
    executions: int
    here: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What one execution on the cluster costs, in milliseconds of a processor, and in bytes that are written to sockets.

    `session_ms` includes the link. `own`: executions of a search that take place in the searching process, one by one.
    """

    session_ms: float
    scheduler_ms: float
    worker_ms: float
    bytes: float
    own: int


# -- measured here ------------------------------------------------------------------------------------------------------


def project(ms: int, burn: bool, runs: int) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="mat-workers-"))
    subject = SUBJECT.replace("TAKES_MS", str(ms)).replace("BURNS", str(burn)).replace("MAX_RUNS", str(runs))
    (folder / "test_subject.py").write_text(subject)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / ".mat").mkdir()
    return folder


def session(folder: Path, *options: str, processor: dict[str, float] | None = None, bytes_to: Path | None = None) -> Search:
    """A session of both tests. `processor` receives the seconds of each part."""
    for name in ("log", "seconds"):
        (folder / ".mat" / name).unlink(missing_ok=True)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:hypothesispytest",
        "--mat-stress",
        "--mat-fresh",
        "--mat-no-reuse",
        *options,
    ]
    environment = {**os.environ} if bytes_to is None else counting(bytes_to)
    began_s = time.monotonic()
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    while process.poll() is None:
        if processor is not None:
            look(process.pid, processor)
        time.sleep(0.1)
    whole_s = time.monotonic() - began_s
    seconds = dict(json.loads(line) for line in (folder / ".mat" / "seconds").read_text().splitlines())
    text = process.stdout.read().decode() if process.stdout else ""
    assert process.returncode == 0, text
    assert "workers-lost" not in text, text
    executed = (folder / ".mat" / "log").read_text().split()
    spent_s = seconds["test_search"]
    return Search(
        seconds=spent_s, rest_s=whole_s - spent_s, executions=len(executed), here=executed.count(str(process.pid))
    )  # fmt: skip


def look(process: int, processor: dict[str, float]) -> None:
    """Add up what each part has used so far; of processes that have ended, what was seen last."""
    try:
        found = [psutil.Process(process), *psutil.Process(process).children(recursive=True)]
    except psutil.Error:
        return
    for each in found:
        try:
            line, used = " ".join(each.cmdline()), each.cpu_times()
        except psutil.Error:
            continue
        part = next((name for text, name in PARTS.items() if text in line), "other")
        processor[f"{part} {each.pid}"] = used.user + used.system


def counting(folder: Path) -> dict[str, str]:
    """An environment in which every part of dask counts the bytes that it writes."""
    script = folder / "counting.py"
    script.write_text(COUNTING)
    preloads = {f"DASK_DISTRIBUTED__{part}__PRELOAD": f'["{script}"]' for part in ("SCHEDULER", "WORKER", "CLIENT")}
    (folder / "bytes").mkdir(exist_ok=True)
    return {**os.environ, **preloads, "BYTES": str(folder / "bytes")}


def written(folder: Path) -> int:
    return sum(int(path.read_text() or 0) for path in (folder / "bytes").iterdir())


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """A scheduler and two workers of one thread: its address, and the processes."""
    place, environment = folder / "scheduler.json", counting(folder)
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    module = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    processes = [subprocess.Popen([*module, "--scheduler-file", str(place)], env=environment, **quiet)]
    while not place.exists():
        time.sleep(0.1)
    module = [sys.executable, "-m", "distributed.cli.dask_worker", "--nthreads", "1", "--nworkers", "2", "--no-dashboard"]
    processes.append(subprocess.Popen([*module, "--scheduler-file", str(place)], env=environment, **quiet))
    try:
        yield json.loads(place.read_text())["address"], [each.pid for each in processes]
    finally:
        for each in processes:
            os.killpg(each.pid, signal.SIGTERM)
            each.wait()


def ratios(folder: Path, rounds: int) -> dict[str, list[Search]]:
    ways = {
        "one process": (),
        "two forks": ("--mat-workers", "2"),
        "dask of two": ("--mat-executor", "dask", "--mat-workers", "2"),
    }
    found: dict[str, list[Search]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in list(ways)[number % len(ways) :] + list(ways)[: number % len(ways)]:
            found[name].append(session(folder, *ways[name]))
    return found


def costs(runs: int) -> Costs:
    """Of one execution on a cluster, from two sessions of short executions that differ only in how many there are."""
    folder = project(1, False, runs)
    with cluster(folder) as (address, processes):
        seen: list[tuple[dict[str, float], int, Search]] = []
        for options in (("-k", "test_search"), ("-k", "test_search", "--mat-max-runs", "60")):
            used: dict[str, float] = {}
            before, parts = written(folder), parts_of(processes)
            given = session(folder, *options, "--mat-executor", f"dask:{address}", processor=used, bytes_to=folder)
            sums = {name: sum(each for key, each in used.items() if key.startswith(name)) for name in ("session", "link")}
            after = parts_of(processes)
            sums |= {name: after[name] - parts[name] for name in after}
            seen.append((sums, written(folder) - before, given))
    (most, most_bytes, long), (least, least_bytes, short) = seen
    count = (long.executions - long.here) - (short.executions - short.here)
    part = {name: 1000 * (most[name] - least[name]) / count for name in most}
    return Costs(
        session_ms=part["session"] + part["link"], scheduler_ms=part["scheduler"], worker_ms=part["worker"],
        bytes=(most_bytes - least_bytes) / count, own=long.here,
    )  # fmt: skip


def parts_of(processes: list[int]) -> dict[str, float]:
    scheduler: dict[str, float] = {}
    workers: dict[str, float] = {}
    look(processes[0], scheduler)
    look(processes[1], workers)
    return {
        "scheduler": sum(scheduler.values()),
        "worker": sum(used for name, used in workers.items() if not name.startswith("fresh")),
    }


# -- simulated ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Searching:
    """A searching process: the executions it has requested and not taken yet, by the time when each is finished."""

    number: int
    now_ms: float = 0.0
    left: int = 0
    searches: int = 0
    requested: deque[float] = field(default_factory=deque)


def simulate(costs: Costs, *, execution_ms: float, workers: int, sessions: int, executions: int, searches: int = 3) -> float:
    """Executions in a second, of `sessions` searching processes that share a scheduler and workers.

    Each makes some searches of `executions`, one after another: first it executes `own` itself, then it takes those of workers
    in order, and has requested two for each of its share of the workers by then. A worker is busy for an execution and its own
    part; the scheduler and each searching process do one thing at a time.
    """
    window = max(1, 2 * workers // sessions)
    free_ms = [0.0] * workers
    scheduler_ms = 0.0
    waiting = [(0.0, number, Searching(number, searches=searches)) for number in range(sessions)]
    while waiting and waiting[0][2].searches + waiting[0][2].left:
        now_ms, number, each = heapq.heappop(waiting)
        if not each.left:
            each.searches, each.left = each.searches - 1, executions
            now_ms += costs.own * execution_ms
            heapq.heappush(waiting, (now_ms, number, each))
            continue
        while len(each.requested) < min(window, each.left):
            scheduler_ms = max(scheduler_ms, now_ms) + costs.scheduler_ms
            finished_ms = max(heapq.heappop(free_ms), scheduler_ms) + execution_ms + costs.worker_ms
            heapq.heappush(free_ms, finished_ms)
            each.requested.append(finished_ms)
        each.now_ms = max(now_ms, each.requested.popleft()) + costs.session_ms
        each.left -= 1
        if each.left or each.searches:
            heapq.heappush(waiting, (each.now_ms, number, each))
        else:
            ended_ms = each.now_ms
    return 1000 * sessions * searches * (executions + costs.own) / ended_ms


def campaign(costs: Costs, *, workers: int, tests: int, executions: int) -> list[dict[str, float]]:
    """For executions of several lengths: how many searching processes are worth having, and how long the campaign takes."""
    found = []
    for execution_ms in (20.0, 100.0, 500.0, 2000.0):
        for sessions in (1, 4, 16, 50, 200):
            rate = simulate(costs, execution_ms=execution_ms, workers=workers, sessions=sessions, executions=executions)
            sent = rate * executions / (executions + costs.own)
            found.append({
                "execution_ms": execution_ms, "sessions": sessions, "per_second": rate,
                "hours": tests * (executions + costs.own) / rate / 3600,
                "busy": sent * (execution_ms + costs.worker_ms) / 1000 / workers,
                "scheduler": sent * costs.scheduler_ms / 1000, "megabytes": sent * costs.bytes / 1e6,
            })  # fmt: skip
    return found


# -- printed ------------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description="Workers of one search, and a simulation of many.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ms", type=int, default=20, help="how long an execution takes")
    parser.add_argument("--burn", action="store_true", help="executions use the processor instead of waiting")
    parser.add_argument("--runs", type=int, default=1000, help="executions of the search that is measured")
    parser.add_argument("--workers", type=int, default=200, help="of the simulated cluster")
    parser.add_argument("--tests", type=int, default=10_000, help="of the simulated campaign")
    parser.add_argument("--executions", type=int, default=2_000, help="of each test there")
    given = parser.parse_args()
    folder = project(given.ms, given.burn, given.runs)
    print(f"executions of {given.ms} ms that {'use the processor' if given.burn else 'wait'}; load {os.getloadavg()[0]:.1f}")
    found = ratios(folder, given.rounds)
    medians = {name: statistics.median(each.seconds for each in searches) for name, searches in found.items()}
    for name, searches in found.items():
        rest_s = statistics.median(each.rest_s for each in searches)
        counts = f"{searches[0].executions} executions, {searches[0].here} in the searching process"
        ratio = medians["one process"] / medians[name]
        print(f"{name:12} {medians[name]:6.1f} s  {ratio:4.2f} times as fast  (+ {rest_s:.1f} s; {counts})")
    cost = costs(given.runs)
    print(
        f"for one execution on a cluster: searching process with its link {cost.session_ms:.1f} ms, scheduler "
        f"{cost.scheduler_ms:.1f} ms, worker {cost.worker_ms:.1f} ms of a processor, {cost.bytes:,.0f} bytes"
    )
    table = campaign(cost, workers=given.workers, tests=given.tests, executions=given.executions)
    print(f"simulated: {given.workers} workers, {given.tests:,} tests of {given.executions:,} executions")
    for row in table:
        print(
            f"{row['execution_ms']:5.0f} ms  {row['sessions']:4.0f} searching  {row['per_second']:7,.0f} a second  "
            f"workers busy {row['busy']:4.0%}  scheduler {row['scheduler']:4.0%}  {row['megabytes']:5.1f} MB/s  "
            f"{row['hours']:7.1f} h"
        )
    rounds = {name: [asdict(each) for each in searches] for name, searches in found.items()}
    print(json.dumps({"rounds": rounds, "medians": medians, "costs": asdict(cost), "campaign": table}))


if __name__ == "__main__":
    main()
