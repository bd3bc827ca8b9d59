"""Execute schedules in a fresh interpreter, where no earlier run can have left state.

The interpreter has another hash seed, which exposes a dependence on set order. This module holds both ends: `confirm` writes
a request and starts the process; there, `answer` executes it and writes the runs next to the request, one per line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mat.core.codec import decode, encode
from mat.core.errors import MatError
from mat.core.run import Run
from mat.core.spec import Schedule
from mat.kernel.clock import real_monotonic
from mat_study.evaluation import Evaluated, Evaluator, Plan

_HASH_SEED: Final = "424242"
_SECONDS: Final = 600.0
_POLL_S: Final = 0.005
"""Real seconds between two checks for an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshRequest:
    """`parent`: the process that waits for the answer."""

    schedules: tuple[Schedule, ...]
    parent: int
    seed: int = 0


def confirm(
    schedules: Sequence[Schedule], command: Callable[[Path], Sequence[str]], *, folder: Path, where: str
) -> Iterator[Run | None]:
    """Execute schedules of the item `where` in one fresh process, and yield each run as soon as it is ready.

    `command` gives the command line that starts the process in `folder`, from the request file.
    """
    with tempfile.TemporaryDirectory(prefix="mat-") as place, open(Path(place, "output"), "w+b") as output:
        request = Path(place, "request.json")
        request.write_text(json.dumps(encode(FreshRequest(schedules=tuple(schedules), parent=os.getpid()))))
        process = subprocess.Popen(
            command(request), cwd=folder, env=_environment(), stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
        answered = 0
        try:
            for data in _answer_lines(process, _answer_path(request)):
                answered += 1
                yield None if data is None else decode(Run, data, where="fresh process")
        finally:
            process.kill()
            process.wait()
        if answered != len(schedules):
            output.seek(0)
            text = output.read()[-2000:].decode(errors="replace").strip()
            raise MatError(
                "the fresh process that confirms counterexamples did not answer",
                why=text or f"it exited with {process.returncode}",
                fix="run the test by its node id alone and see whether it is collected",
                where=where,
            )


def answer(request: Path, evaluate: Evaluator) -> int:
    """In the fresh process: execute the request as long as the waiting process lives. Returns the seed."""
    wanted = decode(FreshRequest, json.loads(request.read_text()), where=str(request))
    for schedule in wanted.schedules:
        if os.name == "posix" and os.getppid() != wanted.parent:
            break
        given = evaluate(Plan(mode="search", seed=wanted.seed, schedule=schedule))
        run = encode(given.run) if isinstance(given, Evaluated) else None
        with _answer_path(request).open("ab") as stream:
            stream.write(json.dumps(run).encode() + b"\n")
    return wanted.seed


def _answer_lines(process: subprocess.Popen[bytes], path: Path) -> Iterator[Any]:
    """Yield the lines of the answer as they are written, until the process ends or its time is over."""
    deadline, offset, ended = real_monotonic() + _SECONDS, 0, False
    while not ended:
        try:
            process.wait(_POLL_S)
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


def _environment() -> dict[str, str]:
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_XDIST", "PYTEST_CURRENT", "COV_CORE"))
    }
    kept.pop("PYTEST_ADDOPTS", None)
    return {**kept, "PYTHONHASHSEED": _HASH_SEED, "PYTHONPATH": os.pathsep.join(_user_roots())}


def _user_roots() -> list[str]:
    """The user's own entries of sys.path, in their order, so that imports resolve as they do here.

    They are PYTHONPATH, additions of a conftest or `pythonpath`, and editable installations; the interpreter adds the folders
    of the installation itself.
    """
    return [
        path for path in sys.path if path and "site-packages" not in path and not path.startswith((sys.prefix, sys.base_prefix))
    ]
