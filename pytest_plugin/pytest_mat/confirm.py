"""Executing schedules where no earlier run can have left anything: in a fresh interpreter, or in a fork.

The fresh interpreter also has another hash seed, so that an order taken from a set shows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mat.core.codec import decode, encode
from mat.core.errors import MatError
from mat.core.run import Run
from mat.core.spec import Schedule
from pytest_mat import live
from pytest_mat.runtime import PLAN, variant_of

_HASH_SEED = "424242"
_SECONDS = 600.0


def confirmer(item: pytest.Item) -> Callable[[Sequence[Schedule]], Sequence[Run | None]]:
    """A function that executes schedules of this item in one fresh interpreter."""

    def confirm(schedules: Sequence[Schedule]) -> Sequence[Run | None]:
        with tempfile.TemporaryDirectory(prefix="mat-") as folder:
            request = Path(folder, "request.json")
            request.write_text(json.dumps({"seed": 0, "schedules": [encode(schedule) for schedule in schedules]}))
            done = subprocess.run(
                _command(item, request), cwd=item.config.invocation_params.dir, env=_environment(item), capture_output=True,
                text=True, timeout=_SECONDS, stdin=subprocess.DEVNULL, check=False,
            )  # fmt: skip
            answer = Path(folder, "request.json.answer")
            if not answer.exists():
                said = (done.stdout + done.stderr)[-2000:]
                raise MatError(
                    "the fresh process that confirms counterexamples gave no answer",
                    why=said.strip() or f"it ended with {done.returncode}",
                    fix="run the test by its node id alone and see whether it is collected",
                    where=item.nodeid,
                )
            runs = json.loads(answer.read_text())
            return [None if data is None else decode(Run, data, where="fresh process") for data in runs]

    return confirm


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
    """In the fresh process: execute the requested schedules and write the runs beside the request."""
    from _pytest.runner import runtestprotocol

    from pytest_mat.runtime import Plan
    from pytest_mat.stress import EvaluationFailed, evaluate_here

    path = Path(item.config.getoption("mat_confirm"))
    request = json.loads(path.read_text())
    runs: list[Any] = []
    for data in request["schedules"]:
        schedule = decode(Schedule, data, where=str(path))
        try:
            runs.append(encode(evaluate_here(item, seed=request["seed"], schedule=schedule)))
        except EvaluationFailed:
            runs.append(None)
    path.with_name(path.name + ".answer").write_text(json.dumps(runs))
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
            data = json.dumps(encode(evaluate_here(item, seed=seed, schedule=schedule, **how))).encode()
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
    return decode(Run, json.loads(received), where="fork")
