"""Every `pip install` line of the repository names an extra that exists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"(?:pytest-mat|\.|\$wheel|\bwheel)\[([A-Za-z0-9_,{}.$-]+)\]")


def _extras() -> set[str]:
    return {*tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]}


def _named(text: str) -> set[str]:
    """The extras in install lines; those that code fills in are left out."""
    found = set()
    for line in text.splitlines():
        if "pip install" in line or "pytest-mat[" in line:
            for names in LINE.findall(line):
                found |= {name.strip() for name in names.split(",") if not re.search(r"[{}$.]", name) and name}
    return found


def test_every_install_line_names_an_extra_that_exists() -> None:
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "pyproject.toml", *(ROOT / ".ci").iterdir()]
    for folder, pattern in (
        ("docs", "*.md"), ("examples", "*.md"), ("examples", "*.py"), ("src", "*.py"), ("pytest_plugin", "*.py"),
        ("tests", "*.py"), ("benchmarks", "*.py"),
    ):  # fmt: skip
        files += [file for file in (ROOT / folder).rglob(pattern) if file != Path(__file__)]
    known, seen, wrong = _extras(), set(), []
    for file in files:
        names = _named(file.read_text(encoding="utf-8"))
        seen |= names
        wrong += [f"{file.relative_to(ROOT)}: {name}" for name in sorted(names - known)]
    assert not wrong
    assert {"report", "yaml", "test", "examples"} <= seen


def test_a_line_with_an_unknown_extra_is_found() -> None:
    assert _named('pip install "pytest-mat[reports,yaml]"') == {"reports", "yaml"}
    assert _named("pip install -e '.[exampels]'") == {"exampels"}
    assert _named("fix = f'pip install \"pytest-mat[{extra}]\"'") == set()


def test_an_extra_asks_only_for_extras_that_exist() -> None:
    given = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    asked = {name for lines in given.values() for line in lines for name in _named(line)}
    assert asked <= given.keys()
    assert asked >= {"all", "examples", "stats"}
