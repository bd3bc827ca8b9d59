"""What pytest-mat says of agents: sessions of pytest over their modules, and the words of their reports."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.planted.agents import Agent

MODES: Final = ("one", "workers", "resume")
GROUP: Final = 12
"""Agents in one session."""
LIMIT_S: Final = 60
"""Seconds for a session, for each of its agents, and at least ten times as many for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a report says of one agent."""

    status: str
    cost: int | None = None
    bound: int | None = None
    proven: bool = False
    reason: str = ""
    relative_to: str = ""
    killed: bool = False
    """Whether the session was killed before, and went on."""

    @property
    def words(self) -> str:
        return f"{self.status} {self.cost} {self.bound}"


def write(agents: Sequence[Agent], folder: Path) -> None:
    """The modules of the agents, in a new folder."""
    folder.mkdir(parents=True)
    (folder / "pytest.ini").write_text(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\nmat_errors = builtin\n"  # their tools fail as Python does
    )
    for agent in agents:
        for path, text in agent.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        for path in agent.folders:
            (folder / path).mkdir(parents=True)


def said(agents: Sequence[Agent], folder: Path, mode: str, *, hash_seed: int, stream: random.Random) -> dict[str, Said]:
    """By name, what a session in a new folder says; one that does not end is tried again agent by agent."""
    if mode == "resume":
        return {agent.name: _resumed(agent, folder / agent.name, hash_seed, stream) for agent in agents}
    write(agents, folder)
    found = _session(folder, agents, ("--mat-workers", "2") if mode == "workers" else (), hash_seed)
    missing = [agent for agent in agents if agent.name not in found]
    if len(agents) == 1:
        return found or {agents[0].name: Said(status="no report")}
    for agent in missing:
        found |= said([agent], folder / "alone" / agent.name, mode, hash_seed=hash_seed, stream=stream)
    return found


def _command(folder: Path, agents: Sequence[Agent], more: Sequence[str]) -> list[str]:
    files = [f"test_{agent.name}.py" for agent in agents]
    return [
        sys.executable, "-m", "pytest", "-q", "--mat-stress", "--mat-report", "said.json", "-p", "no:cacheprovider",
        "--rootdir", str(folder), *more, *files,
    ]  # fmt: skip


def _environment(hash_seed: int) -> dict[str, str]:
    return {**os.environ, "PYTHONHASHSEED": str(hash_seed), "OPENBLAS_NUM_THREADS": "1", "PYTEST_ADDOPTS": ""}


def _session(folder: Path, agents: Sequence[Agent], more: Sequence[str], hash_seed: int) -> dict[str, Said]:
    with open(folder / "output.txt", "a") as output:
        session = subprocess.Popen(
            _command(folder, agents, more), cwd=folder, env=_environment(hash_seed), stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
        try:
            session.wait(timeout=LIMIT_S * max(len(agents), 10))
        except subprocess.TimeoutExpired:
            output.write("\nplanted: ended, it took too long\n")
        finally:
            _kill(session)
    report = folder / "said.json"
    return _read(report) if report.exists() else {}


def _kill(session: subprocess.Popen[Any]) -> None:
    """The session with its workers: it is a group of processes of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session.pid, signal.SIGKILL)
    session.wait()


def _read(report: Path) -> dict[str, Said]:
    found = {}
    for item in json.loads(report.read_text())["items"]:
        name = item["id"].partition("::test_")[2].partition("[")[0]
        relative_to = item.get("relative_to") or ""
        found[name] = Said(
            status=item["status"], cost=item["cost"], bound=item["bound"], proven=bool(item.get("proven")),
            reason=str(item.get("reason") or ""), relative_to=relative_to if isinstance(relative_to, str) else str(relative_to),
        )  # fmt: skip
    return found


def _resumed(agent: Agent, folder: Path, hash_seed: int, stream: random.Random) -> Said:
    """A session that is killed once its journal has some lines, and the one that goes on."""
    write([agent], folder)
    lines = stream.randrange(2, 12)
    with open(folder / "output.txt", "a") as output:
        session = subprocess.Popen(
            _command(folder, [agent], ()), cwd=folder, env=_environment(hash_seed), stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
        end = time.monotonic() + 10 * LIMIT_S
        while session.poll() is None and time.monotonic() < end and _journal(folder) < lines:
            time.sleep(0.002)
        killed = session.poll() is None
        _kill(session)
    if killed:
        (folder / "said.json").unlink(missing_ok=True)
        for replay in folder.glob("mat_replays/*"):  # one more item of the next session
            replay.unlink()
    found = _session(folder, [agent], (), hash_seed) if killed else _read(folder / "said.json")
    one = found.get(agent.name, Said(status="no report"))
    return Said(
        status=one.status, cost=one.cost, bound=one.bound, proven=one.proven, reason=one.reason, relative_to=one.relative_to,
        killed=killed,
    )  # fmt: skip


def _journal(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.glob(".mat/campaigns/*.jsonl"))
