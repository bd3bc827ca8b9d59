"""Files and commands of the README and the guides, as their readers write and type them.

A block is marked in the line above it: `<!-- file: NAME -->` or, for a command with its output, `<!-- run -->`.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- (file: (?P<file>\S+)|run) -->\n```\w+\n(?P<body>.*?)\n```", re.DOTALL)


def blocks(guide: str) -> list[re.Match[str]]:
    """The blocks of a guide, named by its path in the repository: `file` (None for a command) and `body`."""
    return list(BLOCK.finditer((ROOT / guide).read_text(encoding="utf-8")))


def write(block: re.Match[str], folder: Path) -> None:
    """Write a block that is a file."""
    (folder / block["file"]).write_text(block["body"] + "\n", encoding="utf-8")


def typed(block: re.Match[str]) -> tuple[str, str]:
    """The command of a block, without its prompt, and the output that the guide shows."""
    command, _, shown = block["body"].partition("\n")
    return command.removeprefix("$ "), shown


def run(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command of a guide in a folder, with these variables of the environment next to those of this process."""
    words = shlex.split(command)
    longer = ("CI", "BUILD_NUMBER")  # pytest prints more where they are set
    inherited = {key: value for key, value in os.environ.items() if key not in longer and not key.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", *words, *(("-p", "no:cacheprovider", "-p", "no:xdist") if words[0] == "pytest" else ())],
        cwd=folder, env={**inherited, **environment}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
