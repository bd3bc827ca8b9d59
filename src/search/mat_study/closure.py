"""The user's source files that a module imports: directly, through others, at its top or inside of functions.

A certificate that is kept for later sessions depends on the content of these files (see `inputs`). Imports are read from the
source, because what a session has loaded says nothing about one test of many. Installed
distributions and the standard library are not followed: they have versions.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.machinery import BuiltinImporter, FrozenImporter
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from mat.kernel import names

_DYNAMIC: Final = re.compile(r"\b(?:__import__|exec|eval)\s*\(|\bsys\.modules\b")
"""How a module reaches others that its imports do not name."""
_BLIND: Final = frozenset(
    ("_dbm", "_gdbm", "apsw", "chromadb", "cv2", "dbm", "duckdb", "faiss", "h5py", "lancedb", "lmdb", "onnxruntime",
     "polars", "pyarrow", "pyspark", "rocksdb", "tensorflow", "tokenizers", "torch")
)  # fmt: skip
"""Libraries that open files in native code, where Python does not see it."""
_SKIPPED_FINDERS: Final = ("AssertionRewritingHook", "ImportWatch")


@dataclass(frozen=True, slots=True)
class _Located:
    """A module by its full name: its file ("" for a namespace package), and where its submodules are, if it is a package."""

    name: str
    file: str
    folders: tuple[str, ...] | None

    @property
    def package(self) -> str:
        return self.name if self.folders is not None else self.name.rpartition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Closure:
    """The source files of modules and of all that they import. `dynamic`: those that may reach modules in another way too.
    `blind`: imported libraries that read files unseen.
    """

    files: tuple[str, ...]
    dynamic: tuple[str, ...] = ()
    blind: tuple[str, ...] = ()


@dataclass(slots=True)
class _Walk:
    files: dict[str, None] = field(default_factory=dict)
    dynamic: dict[str, None] = field(default_factory=dict)
    blind: dict[str, None] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)


class ImportGraph:
    """Finds modules and their imports; keeps what it found for the rest of the session."""

    def __init__(self) -> None:
        self._searched: dict[str, _Located | None] = {}

    def of_modules(self, modules: Iterable[ModuleType]) -> Closure:
        """The closure of loaded modules."""
        walk = _Walk()
        for module in modules:
            located = _loaded(module.__name__, module)
            if located is not None:
                self._enter(located, walk)
        return _closure(walk)

    def of_name(self, name: str) -> Closure | None:
        """The closure of a module by its full name; None if there is no such module."""
        walk = _Walk()
        return _closure(walk) if self._follow(name, walk) else None

    def _follow(self, name: str, walk: _Walk) -> bool:
        """Enter a module and the packages that contain it; whether there is such a module."""
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            located = self._locate(".".join(parts[:count]))
            if located is None:
                return False
            self._enter(located, walk)
        return True

    def _enter(self, first: _Located, walk: _Walk) -> None:
        left = [first]
        while left:
            located = left.pop()
            if located.name in walk.seen:
                continue
            walk.seen.add(located.name)
            if not _is_followed(located):
                if located.name in _BLIND:
                    walk.blind[located.name] = None
                continue
            if located.file:
                walk.files[located.file] = None
            imported, dynamic = ((), False) if _is_namespace(located) else _imports(located.file)
            if dynamic:
                walk.dynamic[located.file or located.name] = None
            for wanted in imported:
                left += self._wanted(wanted, located)

    def _wanted(self, wanted: _Import, where: _Located) -> Iterator[_Located]:
        base = wanted.module
        if wanted.level:
            above = where.package.split(".")
            above = above[: len(above) - wanted.level + 1]
            base = ".".join([*above, *([base] if base else [])])
        found: _Located | None = None
        parts = base.split(".") if base else []
        for count in range(1, len(parts) + 1):
            found = self._locate(".".join(parts[:count]))
            if found is None:
                return
            yield found
        for name in wanted.names:
            for inner in _submodules(found) if name == "*" else (name,):
                located = self._locate(f"{base}.{inner}" if base else inner) if found is None or found.folders else None
                if located is not None:
                    yield located

    def _locate(self, name: str) -> _Located | None:
        module = sys.modules.get(name)
        loaded = None if module is None else _loaded(name, module)
        if loaded is not None:
            return loaded
        if name not in self._searched:
            self._searched[name] = self._search(name)
        return self._searched[name]

    def _search(self, name: str) -> _Located | None:
        above, _, _ = name.rpartition(".")
        folders: Any = None
        if above:
            package = self._locate(above)
            if package is None or package.folders is None:
                return None
            folders = list(package.folders)
        for finder in list(sys.meta_path):
            if finder in (BuiltinImporter, FrozenImporter) or type(finder).__name__ in _SKIPPED_FINDERS:
                continue
            try:
                spec = finder.find_spec(name, folders)
            except Exception:  # a finder of somebody else's; the import statement would raise it
                continue
            if spec is not None:
                places = spec.submodule_search_locations
                file = spec.origin if spec.origin and spec.has_location else ""
                return _Located(name, file, None if places is None else tuple(places))
        return None


def _closure(walk: _Walk) -> Closure:
    return Closure(files=tuple(sorted(walk.files)), dynamic=tuple(sorted(walk.dynamic)), blind=tuple(sorted(walk.blind)))


def _loaded(name: str, module: object) -> _Located | None:
    file, places = getattr(module, "__file__", None), getattr(module, "__path__", None)
    if not isinstance(file, str) and places is None:
        return None
    try:
        folders = None if places is None else tuple(str(each) for each in places)
    except TypeError:
        folders = None
    return _Located(name, os.path.abspath(file) if isinstance(file, str) else "", folders)


def is_own(name: str) -> bool:
    """Whether a module belongs to the machinery of tests, pytest-mat included: its version counts, not its files."""
    return name.partition(".")[0] in names.HARNESS


def _is_followed(located: _Located) -> bool:
    if is_own(located.name):
        return False
    if located.file or located.folders is None:
        return names.origin(located.file) == "project"
    return any(names.origin(os.path.join(each, "")) == "project" for each in located.folders or ())


def _is_namespace(located: _Located) -> bool:
    return not located.file and located.folders is not None


def _submodules(package: _Located | None) -> Iterator[str]:
    """The modules in the folders of a package."""
    for folder in () if package is None else package.folders or ():
        for path in sorted(Path(folder).glob("*.py")):
            yield path.stem


@dataclass(frozen=True, slots=True)
class _Import:
    """An import statement: the dots before the module, the module, and the names taken from it ("*": all)."""

    level: int
    module: str
    names: tuple[str, ...] = ()


def _imports(file: str) -> tuple[tuple[_Import, ...], bool]:
    """The imports of a source file, and whether it may reach modules in another way, as what is no source may."""
    if not file.endswith(".py"):
        return (), True
    try:
        status = os.stat(file)
        return _parsed(file, status.st_mtime_ns, status.st_size)
    except OSError:
        return (), False


@lru_cache(maxsize=20_000)
def _parsed(file: str, mtime_ns: int, size: int) -> tuple[tuple[_Import, ...], bool]:
    source = Path(file).read_bytes()
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return (), True
    found: dict[_Import, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(dict.fromkeys(_Import(0, each.name) for each in node.names))
        elif isinstance(node, ast.ImportFrom):
            found[_Import(node.level, node.module or "", tuple(each.name for each in node.names))] = None
    return tuple(found), _DYNAMIC.search(source.decode("utf-8", "replace")) is not None
