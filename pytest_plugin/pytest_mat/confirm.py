"""Executing schedules where no earlier run can have left anything: in a fresh interpreter, or in a fork.

The fresh interpreter also has another hash seed, so that an order taken from a set shows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mat.core.codec import decode, encode
from mat.core.errors import MatError
from mat.core.run import Run
from mat.core.spec import Schedule
from mat.kernel.clock import real_monotonic
from pytest_mat import live
from pytest_mat.runtime import PLAN, variant_of
from pytest_mat.tasks import JUDGED, Judged

_HASH_SEED = "424242"
_SECONDS = 600.0
_LOOK_S = 0.005
"""Real seconds between two looks for an answer."""


def confirmer(item: pytest.Item) -> Callable[[Sequence[Schedule]], Iterator[Run | None]]:
    """A function that executes schedules of this item in one fresh interpreter, and gives each run as soon as it is there."""

    def confirm(schedules: Sequence[Schedule]) -> Iterator[Run | None]:
        with tempfile.TemporaryDirectory(prefix="mat-") as folder, open(Path(folder, "said"), "w+b") as said:
            request = Path(folder, "request.json")
            asked = {"seed": 0, "schedules": [encode(schedule) for schedule in schedules], "parent": os.getpid()}
            request.write_text(json.dumps(asked))
            process = subprocess.Popen(
                _command(item, request), cwd=item.config.invocation_params.dir, env=_environment(item), stdout=said,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            given = 0
            try:
                for data in _answers(process, _answer_path(request)):
                    given += 1
                    yield None if data is None else decode(Run, data, where="fresh process")
            finally:
                process.kill()
                process.wait()
            if given != len(schedules):
                said.seek(0)
                text = said.read()[-2000:].decode(errors="replace").strip()
                raise MatError(
                    "the fresh process that confirms counterexamples gave no answer",
                    why=text or f"it ended with {process.returncode}",
                    fix="run the test by its node id alone and see whether it is collected",
                    where=item.nodeid,
                )

    return confirm


def _answers(process: subprocess.Popen[bytes], path: Path) -> Iterator[Any]:
    """The lines of the answer as they are written, until the process has ended or its time is over."""
    deadline, offset, ended = real_monotonic() + _SECONDS, 0, False
    while not ended:
        try:
            process.wait(_LOOK_S)
            ended = True
        except subprocess.TimeoutExpired:
            ended = real_monotonic() > deadline
        if not path.exists():
            continue
        with path.open("rb") as stream:
            stream.seek(offset)
            while (line := stream.readline()).endswith(b"\n"):
                offset += len(line)
                yield json.loads(line)


def _answer_path(request: Path) -> Path:
    return request.with_name(request.name + ".answer")


def _command(item: pytest.Item, request: Path) -> list[str]:
    config = item.config
    node = str(item.path) + item.nodeid[item.nodeid.find("::") :]
    command = [sys.executable, "-m", "pytest", node, "--rootdir", str(config.rootpath), "--mat-confirm", str(request)]
    if config.inipath is not None:
        command += ["-c", str(config.inipath)]
    for name in config.option.plugins or ():
        command += ["-p", name]
    for override in config.option.override_ini or ():
        command += ["-o", override]
    command += ["-q", "-p", "no:cacheprovider", f"--import-mode={config.getoption('importmode')}"]
    if config.pluginmanager.hasplugin("xdist"):
        command += ["-n0"]
    if config.getoption("mat_horizon") is not None:
        command += ["--mat-horizon", str(config.getoption("mat_horizon"))]
    return [*command, *live.arguments(item), "--mat-governance", variant_of(item)]


def _environment(item: pytest.Item) -> dict[str, str]:
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_XDIST", "PYTEST_CURRENT", "COV_CORE"))
    }
    kept.pop("PYTEST_ADDOPTS", None)
    return {**kept, "PYTHONHASHSEED": _HASH_SEED, "PYTHONPATH": os.pathsep.join(_user_roots())}


def _user_roots() -> list[str]:
    """The user's own entries of sys.path, in their order, so that imports resolve as they do here.

    They hold PYTHONPATH, what a conftest or `pythonpath` put there, and editable installations; the installation's own
    folders come back by themselves.
    """
    return [
        path for path in sys.path if path and "site-packages" not in path and not path.startswith((sys.prefix, sys.base_prefix))
    ]


def answer(item: pytest.Item, nextitem: pytest.Item | None) -> Any:
    """In the fresh process: execute the requested schedules and write the runs beside the request, a line each.

    Where nobody is left to read them, the rest is not executed.
    """
    from _pytest.runner import runtestprotocol

    from pytest_mat.runtime import Plan
    from pytest_mat.stress import EvaluationFailed, cancel_foreign_timer, evaluate_here

    cancel_foreign_timer(item)  # it was set for one run of the item
    path = Path(item.config.getoption("mat_confirm"))
    request = json.loads(path.read_text())
    for data in request["schedules"]:
        if os.name == "posix" and os.getppid() != request["parent"]:
            break
        schedule = decode(Schedule, data, where=str(path))
        run: Any = None
        with suppress(EvaluationFailed):
            run = encode(evaluate_here(item, seed=request["seed"], schedule=schedule))
        with _answer_path(path).open("ab") as stream:
            stream.write(json.dumps(run).encode() + b"\n")
    item.stash[PLAN] = Plan(mode="search", seed=request["seed"])
    return runtestprotocol(item, log=False, nextitem=nextitem)


def evaluate_in_fork(item: pytest.Item, *, seed: int, schedule: Schedule, **how: Any) -> Run:
    """One evaluation in a forked child, whose memory is this process's at this moment and dies with it."""
    from pytest_mat.stress import evaluate_here

    if not hasattr(os, "fork"):
        raise MatError(
            'isolate="fork" cannot be had on this platform', why="it has no fork", fix="leave isolate out", where=item.nodeid
        )
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            run = evaluate_here(item, seed=seed, schedule=schedule, **how)
            data = json.dumps([encode(run), encode(item.stash[JUDGED])]).encode()
            with os.fdopen(writing, "wb") as stream:
                stream.write(data)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        received = stream.read()
    os.waitpid(child, 0)
    if not received:
        return evaluate_here(item, seed=seed, schedule=schedule, **how)  # fails here too, and says why
    made, said = json.loads(received)
    item.stash[JUDGED] = decode(Judged, said, where="fork")
    return decode(Run, made, where="fork")
