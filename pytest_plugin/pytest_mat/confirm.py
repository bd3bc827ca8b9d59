"""Executing schedules where no earlier run can have left anything: in a fresh interpreter.

It also has another hash seed, so that an order taken from a set shows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mat.core.codec import decode, encode
from mat.core.errors import MatError
from mat.core.run import Run
from mat.core.spec import Schedule
from mat.kernel.clock import real_monotonic
from mat_study.evaluation import Evaluated, Plan
from pytest_mat.evaluators import ItemEvaluator, Reports

_HASH_SEED = "424242"
_SECONDS = 600.0
_LOOK_S = 0.005
"""Real seconds between two looks for an answer."""


def confirmer(item: pytest.Item, variant: str, *, recorded: bool) -> Callable[[Sequence[Schedule]], Iterator[Run | None]]:
    """A function that executes schedules of this item in one fresh interpreter, and gives each run as soon as it is there.

    `recorded`: runs hear recorded replies, and no live call is made.
    """

    def confirm(schedules: Sequence[Schedule]) -> Iterator[Run | None]:
        with tempfile.TemporaryDirectory(prefix="mat-") as folder, open(Path(folder, "said"), "w+b") as said:
            request = Path(folder, "request.json")
            asked = {"seed": 0, "schedules": [encode(schedule) for schedule in schedules], "parent": os.getpid()}
            request.write_text(json.dumps(asked))
            process = subprocess.Popen(
                _command(item, variant, request, recorded=recorded),
                cwd=item.config.invocation_params.dir, env=_environment(item), stdout=said,
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


def _command(item: pytest.Item, variant: str, request: Path, *, recorded: bool) -> list[str]:
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
    if recorded:
        command += ["--mat-live-calls", "0"]
    return [*command, "--mat-governance", variant]


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


def answer(item: pytest.Item, evaluate: ItemEvaluator) -> Reports:
    """In the fresh process: execute the requested schedules and write the runs beside the request, a line each.

    Where nobody is left to read them, the rest is not executed.
    """
    path = Path(item.config.getoption("mat_confirm"))
    request = json.loads(path.read_text())
    for data in request["schedules"]:
        if os.name == "posix" and os.getppid() != request["parent"]:
            break
        schedule = decode(Schedule, data, where=str(path))
        given = evaluate.here(Plan(mode="search", seed=request["seed"], schedule=schedule))
        run = encode(given.run) if isinstance(given, Evaluated) else None
        with _answer_path(path).open("ab") as stream:
            stream.write(json.dumps(run).encode() + b"\n")
    return evaluate.here(Plan(mode="search", seed=request["seed"])).reports
