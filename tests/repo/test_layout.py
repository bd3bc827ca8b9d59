"""What the repository promises about itself."""

from __future__ import annotations

import pkgutil
import re
import subprocess
from pathlib import Path

import pytest

import mat

ROOT = Path(__file__).parents[2]


def _tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git checkout, so the tracked files are unknown")
    return [ROOT / name for name in done.stdout.splitlines()]


def test_the_prescribed_top_level_is_there():
    for name in (
        "pyproject.toml",
        "src/mat",
        "src/contracts_lib",
        "src/faults",
        "src/search",
        "pytest_plugin",
        "tests",
        "examples",
    ):
        assert (ROOT / name).exists(), name


def test_no_subpackage_shares_a_name_with_something_mat_exports():
    subpackages = {module.name for module in pkgutil.iter_modules(mat.__path__)}
    assert subpackages & set(mat.__all__) == set()


def test_everything_in_all_exists():
    assert [name for name in mat.__all__ if not hasattr(mat, name)] == []


def test_architecture_stays_short_and_names_the_rooms_of_the_import_linter():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.splitlines()) <= 60
    layers = re.search(r"layers = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL)
    assert layers is not None
    rooms = [line.strip(' ",') for line in layers[1].strip().splitlines()]
    assert [room for room in rooms if room not in text] == []


def test_no_file_names_a_place_outside_the_project():
    here = re.compile(r"/(?:root|home/\w+|work)/")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in _tracked()
        if path.suffix in (".py", ".md", ".toml", ".json", "") and path.is_file()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if here.search(line)
    ]
    assert found == []


def test_no_file_holds_a_merge_that_was_not_finished():
    mark = re.compile(rb"^(?:<{7}|>{7}) ", re.MULTILINE)
    assert [str(path.relative_to(ROOT)) for path in _tracked() if path.is_file() and mark.search(path.read_bytes())] == []


def test_every_python_package_ships_its_type_marker():
    roots = (
        "src/mat/mat",
        "src/contracts_lib/mat_contracts",
        "src/faults/mat_faults",
        "src/search/mat_search",
        "src/search/mat_study",
    )
    for root in (*roots, "pytest_plugin/pytest_mat"):
        assert (ROOT / root / "py.typed").exists(), root
