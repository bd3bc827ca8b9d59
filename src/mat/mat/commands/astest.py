"""`mat replay FILE --as-test`: write a counterexample as a standalone test, next to the test that it breaks."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from mat.commands.shared import PASS, print_json, replay_of, write_text
from mat.core.errors import ReplayError, SpecError, printable
from mat.evidence import astest as writing
from mat.evidence import replay_file


def as_test(options: argparse.Namespace) -> int:
    from mat.report.words import perturbation_in_words

    replay = replay_of(options.file)
    original = _test_file(options.file, replay)
    out = _output_path(options, original, replay)
    subject = _collect(original, replay, options.rest)
    run = replay.counterexample.run
    described = [f"{perturbation_in_words(item)} (cost {item.cost})" for item in run.spec.schedule]
    text = writing.as_test(replay, subject, name=options.file.name, said=described, embed=options.embed)
    if out is not None:
        write_text(out, text, mode="x")
    if options.json:
        print_json({"file": None if out is None else str(out), "test": text})
    else:
        print(text if out is None else f"{out}\nrun it with: pytest {out}", end="" if out is None else "\n")
    return PASS


def _test_file(file: Path, replay: replay_file.Replay) -> Path:
    """The file of the replay's test: in the parent of the replay's folder."""
    path = file.resolve().parent.parent / Path(replay.item.partition("::")[0]).name
    if file.resolve().parent.name != replay_file.FOLDER or not path.is_file():
        raise ReplayError(
            what=f"cannot find the test of {file.name}",
            why=f"it belongs to {printable(replay.item)}, so it must be in {replay_file.FOLDER}/ next to {path.name}",
            fix="name the replay file in the folder where pytest --mat-stress wrote it",
            where=str(file),
        )
    return path


def _output_path(options: argparse.Namespace, original: Path, replay: replay_file.Replay) -> Path | None:
    """Where to write; None for stdout."""
    if options.out is not None and str(options.out) == "-":
        return None
    out: Path = options.out or Path(os.path.relpath(original.with_name(writing.file_name(replay))))
    problems = []
    if out.resolve().parent != original.parent:
        problems.append(f"it must be in the same folder as {os.path.relpath(original)}")
    if out.suffix != ".py":
        problems.append("its name must end in .py")
    if out.exists():
        problems.append("the file exists already")
    if problems:
        raise SpecError(
            what=f"cannot write the test to {out}: {'; '.join(problems)}",
            fix=f"choose another --out{', or delete the existing file' if out.exists() else ''}",
        )
    return out


def _collect(original: Path, replay: replay_file.Replay, rest: list[str]) -> writing.CollectedTest:
    """The parts of the test as it is now. Its module is imported and its fixtures are set up; its body does not run."""
    from mat.commands.collected import OPERATORS, OUT

    node = f"{os.path.relpath(original)}::{replay.item.partition('::')[2]}"
    operators = sorted({item.operator for item in replay.counterexample.run.spec.schedule})
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "subject.json")
        done = subprocess.run(
            [
                sys.executable, "-m", "pytest", "-p", "mat.commands.collected", "--setup-only", "-q", "-p", "no:cacheprovider",
                *rest, node,
            ],
            check=False, capture_output=True, text=True, errors="replace",
            env={**os.environ, OUT: str(written), OPERATORS: ",".join(operators)},
        )  # fmt: skip
        if not written.is_file():
            output = "\n".join([*done.stdout.strip().splitlines()[-15:], *done.stderr.strip().splitlines()[-5:]])
            raise ReplayError(
                what=f"{printable(replay.item)} could not be collected and set up",
                why=f"pytest {node} printed:\n{output}",
                fix="correct the test, or delete the replay file if the test no longer exists",
            )
        return writing.subject_from(written.read_text(encoding="utf-8"))
