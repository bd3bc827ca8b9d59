"""The complete example of each framework in the reference, executed as written: its one fault breaks its one contract."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from tests.frameworks.test_frameworks import FRAMEWORKS, missing, pytest_in

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "frameworks.md"
FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)\n```", re.DOTALL)


def sections() -> dict[str, str]:
    """The text of the page by framework; that before the first is under "", with the files that all share."""
    first, *others = re.split(r"^## (?=[a-z_]+$)", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {"": first} | {each.partition("\n")[0]: each for each in others}


def test_every_framework_has_an_example() -> None:
    assert sections().keys() == {"", *FRAMEWORKS}


@pytest.mark.full
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_example_runs_and_is_broken_as_it_says(framework: str, tmp_path: Path) -> None:
    if missing(framework):
        pytest.skip(f"{framework} is not installed")
    found = sections()
    own = dict(FILE.findall(found[framework]))
    for name, text in {**dict(FILE.findall(found[""])), **own}.items():
        (tmp_path / name).write_text(f"{text}{os.linesep}", encoding="utf-8")
    attach = "" if "mat_attach" in own.get("conftest.py", "") else f"mat_attach = {framework}\n"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = .\n{attach}")
    done = pytest_in(tmp_path, "--mat-stress", "--mat-report", "report.json")
    item = json.loads((tmp_path / "report.json").read_text())["items"][0]
    assert item["status"] == "counterexample", done.stdout
    assert "refund had the same effect at steps" in " ".join(done.stdout.split())
    assert (tmp_path / "mat_replays").is_dir()
