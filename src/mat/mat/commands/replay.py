"""`mat replay FILE`: run a counterexample again, or with --as-test write it as a standalone test."""

from __future__ import annotations

import argparse
import subprocess
import sys

from mat.commands.shared import PASS, USAGE, VIOLATION, print_json, replay_of
from mat.core.errors import SpecError


def replay(options: argparse.Namespace) -> int:
    if options.as_test:
        from mat.commands.astest import as_test

        return as_test(options)
    asked = [name for name, given in (("--out", options.out), ("--embed", options.embed)) if given]
    if asked:
        raise SpecError(
            what=f"{' and '.join(asked)} {'needs' if len(asked) == 1 else 'need'} --as-test",
            why="these options say how to write the test",
            fix="add --as-test",
        )
    replay_of(options.file)  # reports problems of the file before pytest starts
    command = [sys.executable, "-m", "pytest", f"--mat-replay={options.file}", *options.rest]
    done = subprocess.run(command, check=False, stdout=sys.stderr if options.json else None)
    code = done.returncode if done.returncode in (PASS, VIOLATION) else USAGE
    if options.json:
        print_json({"file": str(options.file), "exit": code, "pytest_exit": done.returncode})
    return code
