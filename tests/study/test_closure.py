"""Which source files a module rests on, by its imports."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mat_study.closure import ImportGraph

FILES = {
    "closed/__init__.py": "",
    "closed/top.py": "from . import near\nfrom .deep import low as lowest\nimport json, closed_single\n",
    "closed/near.py": "def late():\n    from closed.late import VALUE\n    return VALUE\n",
    "closed/late.py": "VALUE = 1\n",
    "closed/deep/__init__.py": "from .helper import *\n",
    "closed/deep/low.py": "from .. import other\n",
    "closed/deep/helper.py": "",
    "closed/other.py": "try:\n    import closed_absent\nexcept ImportError:\n    pass\n",
    "closed/unused.py": "",
    "closed_single.py": "import pytest, mat\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [each for each in sys.modules if each.startswith("closed")]:
        del sys.modules[name]


def closure(folder: Path) -> list[str]:
    module = importlib.import_module("closed.top")
    return [str(Path(path).relative_to(folder)) for path in ImportGraph().of_modules([module]).files]


def test_imports_are_followed_at_the_top_and_inside_of_functions_but_not_into_installed_packages(folder: Path) -> None:
    assert closure(folder) == sorted(set(FILES) - {"closed/unused.py"} - {"closed/__init__.py"} | {"closed/__init__.py"})


def test_a_module_that_was_absent_belongs_to_it_once_it_is_there(folder: Path) -> None:
    before = closure(folder)
    (folder / "closed_absent.py").write_text("")
    importlib.invalidate_caches()
    assert set(closure(folder)) - set(before) == {"closed_absent.py"}


def test_a_module_by_its_name_comes_with_the_packages_around_it(folder: Path) -> None:
    found = ImportGraph().of_name("closed.deep.helper")
    assert found is not None
    assert [str(Path(path).relative_to(folder)) for path in found.files] == [
        "closed/__init__.py", "closed/deep/__init__.py", "closed/deep/helper.py",
    ]  # fmt: skip
    assert ImportGraph().of_name("closed.deep.missing") is None


@pytest.mark.parametrize(
    ("text", "dynamic"),
    [("__import__(name)", True), ("import sys; sys.modules['x']", True), ("exec(text)", True), ("import os", False)],
)
def test_a_module_that_may_reach_others_in_another_way_says_so(folder: Path, text: str, dynamic: bool) -> None:
    (folder / "closed" / "near.py").write_text(f"def late(name, text):\n    {text}\n")
    found = ImportGraph().of_modules([importlib.import_module("closed.top")])
    assert bool(found.dynamic) is dynamic


def test_a_library_that_reads_files_unseen_is_named(folder: Path) -> None:
    (folder / "closed" / "near.py").write_text("def late():\n    import duckdb\n")
    assert ImportGraph().of_modules([importlib.import_module("closed.top")]).blind == ("duckdb",)
