"""What an execution imports is watched, and what no finder has is looked for once in each."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

import pytest

from mat.kernel.imports import ImportWatch

MISSING = "no_such_module_of_anybody"


class Counting:
    """A finder that has nothing, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        self.asked += name == MISSING


class Knowing:
    """A finder that has the modules of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [str(self._folder)], target)


@pytest.fixture
def imported() -> list[str]:
    return []


@pytest.fixture
def watch(tmp_path: Path, imported: list[str]) -> Iterator[ImportWatch]:
    """Watches the modules below `tmp_path`."""

    @contextmanager
    def importing(module: ModuleType) -> Iterator[None]:
        imported.append(module.__name__)
        yield

    yield ImportWatch(lambda name, file: file.startswith(str(tmp_path)), importing)
    sys.modules.pop(MISSING, None)


def look() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(MISSING)


def test_what_nobody_has_is_looked_for_once_in_an_execution(watch: ImportWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    finder = Counting()
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, finder])
    with watch.watching():
        for _ in range(5):
            look()
    assert finder.asked == 6  # by the interpreter each time, and once by the watch
    with watch.watching():
        look()
    assert finder.asked == 8


@pytest.mark.parametrize("how", ["an entry of sys.path", "a finder", "another execution"])
def test_what_is_there_later_is_watched(
    watch: ImportWatch, imported: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    folder = tmp_path / "later"
    folder.mkdir()
    if how == "another execution":
        monkeypatch.syspath_prepend(folder)
        with watch.watching():
            look()
    with watch.watching():
        if how != "another execution":
            look()
        (folder / f"{MISSING}.py").write_text("VALUE = 1\n", encoding="utf-8")
        importlib.invalidate_caches()
        if how == "an entry of sys.path":
            monkeypatch.syspath_prepend(folder)
        elif how == "a finder":
            monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Knowing(folder)])
        assert importlib.import_module(MISSING).VALUE == 1
    assert imported == [MISSING]
