"""Reads the baseline of a gate: a report file, or the report committed in a git revision. No code of that revision runs."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mat.commands.shared import check_files, reading
from mat.core import limits
from mat.core.errors import SpecError

if TYPE_CHECKING:
    from mat.measure.gate import Baseline
    from mat.report.from_json import Reported

FILE: Final = "mat_baseline.json"
"""The default path of a baseline report in a git revision, relative to the folder of the session."""
REPLAY: Final = re.compile(r"[\[-]replay-[0-9a-f]+\]$")
"""Matches the end of a node id that runs a replay file."""

REPORT: Final = "write one with pytest --mat-seeds 100 --mat-report FILE.json"


def read_baseline(ref: str, *, file: str, folder: Path | None = None) -> tuple[Reported, str]:
    """The report that `ref` names, and a name to show: a report file, or the one committed at `file` in a git revision.

    MatError if there is neither, or if the report does not have the outcome of each run.
    """
    from mat.report.from_json import read, reported

    folder = folder or Path()
    path = folder / ref
    if os.path.exists(path):
        check_files(path, fix=REPORT)
        with reading(path, fix=REPORT):
            found = read(path)
        name = ref
    else:
        commit = _commit(ref, folder)
        where = f"{ref}:{file}"
        with reading(Path(where), fix=REPORT):
            found = reported(_json(_blob(commit, file, ref, folder), where), where=where)
        name = f"{ref} ({commit[:12]}, {file})"
    if not any(outcome.condition in ("nominal", "replay") for outcome in found.tables.outcomes):
        raise SpecError(
            what=f"{name} contains neither a nominal run nor a replay", why="a gate compares a change with these runs",
            fix=REPORT, where=str(path) if os.path.isfile(path) else where,
        )  # fmt: skip
    return found, name


def _json(raw: bytes, where: str) -> Any:
    from mat.core.codec import load_json

    return load_json(raw, where=where)


def _commit(ref: str, folder: Path) -> str:
    done = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    if done is None or done.returncode:
        raise SpecError(
            what=f"{ref!r} is neither a file nor a git revision",
            why="a baseline is a report, or a revision with a committed report",
            fix="check the path; in CI, fetch the revision first (fetch-depth: 0)", where=str(folder.resolve()),
        )  # fmt: skip
    return done.stdout.decode("ascii", "replace").strip()


def _blob(commit: str, file: str, ref: str, folder: Path) -> bytes:
    """The bytes of a file as committed in a revision; no filter or text conversion of the repository runs."""
    name = f"{commit}:./{file}"
    size = _git(folder, "cat-file", "-s", name)
    kind = _git(folder, "cat-file", "-t", name)
    if size is None or size.returncode or kind is None or kind.stdout.strip() != b"blob":
        raise SpecError(
            what=f"the revision {ref} has no baseline report {file}",
            why="a gate reads the report committed in the revision; it never runs code of another revision",
            fix=f"commit one (pytest --mat-seeds 100 --mat-report {file}), name its path with --file, or name a report file",
            where=f"{ref}:{file}",
        )  # fmt: skip
    if int(size.stdout) > limits.FILE_BYTES:
        raise SpecError(
            what=f"{file} of {ref} is larger than {limits.FILE_BYTES} bytes",
            fix="write a report of fewer runs",
            where=f"{ref}:{file}",
        )
    done = _git(folder, "cat-file", "blob", name)
    assert done is not None
    return done.stdout


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes] | None:
    try:
        return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=False)
    except OSError:
        return None


def _node_of_replay(item: str, path: str) -> str:
    """The node id under which a test's replay file runs: its name ends in the six digits that tell the replays apart."""
    label = f"replay-{Path(path).name.removesuffix('.mat.json').rpartition('-')[2]}"
    return f"{item[:-1]}-{label}]" if item.endswith("]") else f"{item}[{label}]"


def baseline_of(reported: Reported) -> Baseline:
    """The baseline of a gate from a report: categories of tests, statuses of replays, and outcomes of runs."""
    from mat.measure.gate import Baseline

    return Baseline(
        categories={item.id: item.category for item in reported.items if not REPLAY.search(item.id)},
        statuses={item.id: item.status for item in reported.items if REPLAY.search(item.id)},
        outcomes=reported.tables.outcomes,
        discovered=frozenset(
            _node_of_replay(item.id, path) for item in reported.items if not REPLAY.search(item.id) for path in item.replays
        ),
    )
