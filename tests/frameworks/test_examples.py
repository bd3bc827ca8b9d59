"""The complete example of each framework in the reference, executed as written: its one fault breaks its one contract."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from tests.frameworks.test_frameworks import FRAMEWORKS, missing, pytest_in

ROOT = Path(__file__).parents[2]
PAGE, FIGURES = ROOT / "docs" / "reference" / "frameworks.md", ROOT / "benchmarks" / "frameworks.md"
FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)\n```", re.DOTALL)


def sections() -> dict[str, str]:
    """The text of the page by framework; that before the first is under "", with the files that all share."""
    first, *others = re.split(r"^## (?=[a-z_]+$)", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {"": first} | {each.partition("\n")[0]: each for each in others}


def test_every_framework_has_an_example() -> None:
    assert sections().keys() == {"", *FRAMEWORKS}


def test_the_page_of_figures_says_how_many_lines_attach_each_framework_and_three_are_enough(tmp_path: Path) -> None:
    rows = re.findall(r"^\| (\w+) [\d.]+ \| (\d+) \|", FIGURES.read_text(encoding="utf-8"), flags=re.MULTILINE)
    said = {framework: int(lines) for framework, lines in rows}
    assert said == {framework: len(write_example(tmp_path, framework)) for framework in FRAMEWORKS}
    assert max(said.values()) <= 3


def write_example(path: Path, framework: str) -> list[str]:
    """Write a framework's example into a folder. Returns the lines that attach it, without imports."""
    found = sections()
    own = dict(FILE.findall(found[framework]))
    conftest = own.get("conftest.py", "")
    attach = "" if "mat_attach" in conftest else f"mat_attach = {framework}"
    files = {"pytest.ini": f"[pytest]\npythonpath = .\n{attach}", **dict(FILE.findall(found[""])), **own}
    for name, text in files.items():
        (path / name).write_text(f"{text}{os.linesep}", encoding="utf-8")
    settings = [line for line in files["pytest.ini"].splitlines() if line.startswith("mat_")]
    return settings + [line for line in conftest.splitlines() if line and "import " not in line]


@pytest.mark.full
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_example_runs_and_is_broken_as_it_says(framework: str, tmp_path: Path) -> None:
    if missing(framework):
        pytest.skip(f"{framework} is not installed")
    write_example(tmp_path, framework)
    done = pytest_in(tmp_path, "--mat-stress", "--mat-report", "report.json")
    item = json.loads((tmp_path / "report.json").read_text())["items"][0]
    assert item["status"] == "counterexample", done.stdout
    assert "refund had the same effect at steps" in " ".join(done.stdout.split())
    assert (tmp_path / "mat_replays").is_dir()
