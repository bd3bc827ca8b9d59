"""The code that executions depend on: an interrupted search or evaluation is resumed only if that code is unchanged.

Code is every loaded source outside the standard library and the installation, and the set of installed distributions. A
source that changed while the session ran never matches, because the code that ran is not the code on disk.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Final

from mat.core.digest import digest
from mat_study.contents import digest_of

_INSTALLED: Final = ("site-packages", "dist-packages")
_GONE: Final = "gone"
_EDITED: Final = "changed while the session ran"


class Sources:
    """The loaded modules that are not part of the installation, with the digests of their files.

    `began_ns`: when the session began, in nanoseconds on the clock of file times.
    """

    def __init__(self, began_ns: int) -> None:
        self._began_ns = began_ns
        self._modules = 0
        self._known: dict[str, str] = {}
        self._first: frozenset[str] | None = None

    def new(self) -> dict[str, str]:
        """The sources loaded since the last call; cheap if nothing was imported."""
        if len(sys.modules) == self._modules:
            return {}
        self._modules = len(sys.modules)
        found = {path: self.digest(path) for path in _loaded_sources() if path not in self._known}
        self._known.update(found)
        if self._first is None:
            self._first = frozenset(found)
        return found

    def since_first(self) -> dict[str, str]:
        """All sources loaded since the first call of `new`."""
        self.new()
        return {path: found for path, found in self._known.items() if path not in (self._first or ())}

    def differing(self, there: Iterable[tuple[str, str]]) -> list[str]:
        """Those of the sources loaded in another process, by path and digest, that are not the same here."""
        return [path for path, found in there if self.digest(path) != found]

    def digest(self, path: str) -> str:
        """The digest of a file as it is now; for a file that changed after the session began, a text that equals no digest."""
        try:
            changed_ns = os.stat(path).st_mtime_ns
        except OSError:
            return _GONE
        return f"{_EDITED} at {changed_ns}" if changed_ns > self._began_ns else digest_of(path) or _GONE


def _loaded_sources() -> Iterator[str]:
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and not _is_installed(path):
            yield path


@lru_cache(maxsize=10_000)
def _is_installed(path: str) -> bool:
    """Whether a file belongs to Python or to an installed distribution, which has a version."""
    parts = Path(path).parts
    if any(name in parts for name in _INSTALLED):
        return True
    return any(path.startswith(root + os.sep) for root in _STANDARD_LIBRARY)


_STANDARD_LIBRARY: Final = tuple(filter(None, (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))))


def installed_versions() -> dict[str, str]:
    """The version of each installed distribution, the project's own excepted."""
    places = [path for path in sys.path if any(name in Path(path).parts for name in _INSTALLED)]
    return dict(_versions_in(tuple((path, _changed_at(path)) for path in places)))


@lru_cache(maxsize=4)
def _versions_in(places: tuple[tuple[str, int], ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for place, _ in places:
        with suppress(OSError):
            for name in sorted(os.listdir(place)):
                stem, suffix = os.path.splitext(name)
                if suffix in _METADATA:
                    distribution, _, version = stem.partition("-")
                    found.setdefault(distribution.lower(), version.partition("-")[0])
    return found


def installed_digest() -> str:
    """The digest of everything installed on the module search path."""
    return _distributions_digest(tuple((path, _changed_at(path)) for path in sys.path if path))


def _changed_at(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=4)
def _distributions_digest(places: tuple[tuple[str, int], ...]) -> str:
    """The digest of what is installed: the folders that name a distribution and its version, with the list of its files and
    their digests, so that another environment with the same files has the same; without such a list, when it was made.
    """
    found = []
    for place, _ in places:
        try:
            with os.scandir(place) as entries:
                found += [(entry.name, _distribution_digest(entry)) for entry in entries if entry.name.endswith(_METADATA)]
        except OSError:
            continue
    return digest([list(each) for each in sorted(found)])


def _distribution_digest(entry: os.DirEntry[str]) -> str:
    try:
        return sha256(Path(entry.path, "RECORD").read_bytes()).hexdigest()
    except OSError:
        return str(entry.stat().st_mtime_ns)


_METADATA: Final = (".dist-info", ".egg-info")
