"""The recipe for an outside suite (README.md), executed as written there, if AgentDojo is installed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("agentdojo.functions_runtime", reason="needs AgentDojo: pip install 'pytest-mat[agentdojo]'")

GUIDE = Path(__file__).parent / "README.md"
BLOCK = re.compile(r"<!-- agentdojo: (file (?P<file>\S+)|run) -->\n```\w+\n(?P<body>.*?)\n```", re.DOTALL)


def _pattern(expected: str) -> str:
    lines = [
        "(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + "\n" for line in expected.splitlines()
    ]
    return "".join(lines)


def test_the_recipe_runs_and_prints_what_it_says(tmp_path):
    blocks = list(BLOCK.finditer(GUIDE.read_text(encoding="utf-8")))
    assert [bool(block["file"]) for block in blocks] == [True, False]
    for block in blocks:
        if block["file"]:
            (tmp_path / block["file"]).write_text(block["body"] + "\n", encoding="utf-8")
            continue
        command, _, expected = block["body"].partition("\n")
        plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_") and name != "CI"}
        done = subprocess.run(
            [
                sys.executable, "-m", *shlex.split(command.removeprefix("$ ")), "-p", "no:cacheprovider", "-p", "no:xdist",
                "-p", "no:langsmith_plugin",
            ],
            cwd=tmp_path, env={**plain, "COLUMNS": "80"}, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert re.fullmatch(_pattern(expected), done.stdout), f"{command}\n{done.stdout}\n{done.stderr}"
