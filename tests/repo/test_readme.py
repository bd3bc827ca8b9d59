"""The README's files and commands, executed as written; `...` in an expected output stands for anything."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- (file: (?P<file>\S+)|run) -->\n```\w+\n(?P<body>.*?)\n```", re.DOTALL)


def _blocks() -> list[re.Match[str]]:
    return list(BLOCK.finditer((ROOT / "README.md").read_text(encoding="utf-8")))


def _pattern(expected: str) -> str:
    lines = [
        "(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + "\n" for line in expected.splitlines()
    ]
    return "".join(lines)


def test_the_readme_has_blocks_to_run():
    assert sum(block["file"] is None for block in _blocks()) >= 3


def test_every_readme_block_runs_and_prints_what_it_says(tmp_path):
    plain = {key: value for key, value in os.environ.items() if key not in ("CI", "BUILD_NUMBER")}  # they lengthen the output
    environment = {key: value for key, value in plain.items() if not key.startswith("PYTEST_")}
    for block in _blocks():
        if block["file"]:
            (tmp_path / block["file"]).write_text(block["body"] + "\n", encoding="utf-8")
            continue
        command, _, expected = block["body"].partition("\n")
        words = shlex.split(command.removeprefix("$ "))
        done = subprocess.run(
            [sys.executable, "-m", *words, "-p", "no:cacheprovider", "-p", "no:xdist"],
            cwd=tmp_path, env={**environment, "COLUMNS": "80"}, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert re.fullmatch(_pattern(expected), done.stdout), f"{command}\n{done.stdout}\n{done.stderr}"
