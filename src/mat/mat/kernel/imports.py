"""Modules of the user that a run imports: they stay imported, as they were right after their import."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeAlias

Importing: TypeAlias = Callable[[ModuleType], AbstractContextManager[None]]
"""Entered before a module of the user is executed, and left when that is done."""


class ImportWatch:
    """A finder in front of all others, which uses them. `owned` says whether a module, by its name and file, is the user's."""

    def __init__(self, owned: Callable[[str, str], bool], importing: Importing) -> None:
        self._owned, self._importing = owned, importing
        self._finding: set[str] = set()
        self._missing: set[tuple[object, ...]] = set()
        """What no finder had in this execution, and where they looked: some libraries import what is not installed at each
        call, and the finders are asked once more in any case."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._missing.clear()
        sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            with suppress(ValueError):
                sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        looked = (name, *map(id, sys.meta_path), *map(str, sys.path if path is None else path))
        if name in self._finding or looked in self._missing:
            return None
        self._finding.add(name)
        try:
            found = (finder.find_spec(name, path, target) for finder in list(sys.meta_path) if finder is not self)
            spec = next((each for each in found if each is not None), None)
        finally:
            self._finding.discard(name)
        if spec is None:
            self._missing.add(looked)
        elif spec.origin and hasattr(spec.loader, "exec_module") and self._owned(name, spec.origin):
            spec.loader = _Loader(spec.loader, self._importing)  # type: ignore[assignment]
        return spec


class _Loader:
    """The loader of one module, which it replaces until the module is executed."""

    def __init__(self, loader: Any, importing: Importing) -> None:
        self._loader, self._importing = loader, importing

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        with self._importing(module):
            self._loader.exec_module(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
