"""What a run writes outside of itself: files, databases, servers and processes, noted through an audit hook.

A run's own folders are those that it makes below the folder for temporary files, and everything that `tempfile` makes for it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_IGNORED: Final = frozenset(("__pycache__", ".mat", ".pytest_cache", ".hypothesis", ".mypy_cache"))
"""Folders that hold nothing of a program's state."""
_IGNORED_ROOTS: Final = ("/dev/", "/proc/", "/sys/")
_PYTESTS_LEVELS: Final = 2
_DATABASE_FILES: Final = ("", "-wal", "-journal")

_watch: WriteWatch | None = None
_hooked = False


class WriteWatch:
    """Collects the names of what is written while `watching`. `shown` makes a name from a path.

    `kept_folder`: where pytest keeps temporary folders; what it does there with folders is no run's.
    """

    def __init__(self, *, shown: Callable[[str], str] = str, kept_folder: str = "") -> None:
        self._shown, self._kept_folder = shown, os.path.join(os.path.realpath(kept_folder), "") if kept_folder else ""
        self._temporary = tuple(
            {os.path.join(os.path.realpath(each), "") for each in (tempfile.gettempdir(), kept_folder) if each}
        )
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        self._ignored_roots = (*_IGNORED_ROOTS, os.path.join(os.path.realpath(cache), ""))
        self._own: set[str] = set()
        self._databases: dict[str, tuple[object, ...]] = {}
        self.names: dict[str, None] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note what is written from here on."""
        global _watch
        _install_hook()
        outer, _watch = _watch, self
        self._own.clear()
        try:
            yield
        finally:
            _watch = outer
            self._close_databases()

    def take(self) -> tuple[str, ...]:
        """The names noted since they were last taken."""
        found, self.names = tuple(self.names), {}
        return found

    # -- events -----------------------------------------------------------------------------------------------------

    def opened(self, path: Any, mode: Any, flags: Any) -> None:
        if (isinstance(flags, int) and flags & _WRITING) or (isinstance(mode, str) and not set(mode).isdisjoint("wax+")):
            self.wrote(path)

    def wrote(self, path: Any, *others: Any) -> None:
        place = _absolute(path)
        if place and not self._is_own(place) and not os.path.isdir(place):  # that is where `tempfile` opens a file without name
            self.names.setdefault(self._shown(place))

    def moved(self, source: Any, target: Any, *others: Any) -> None:
        for path in (source, target):
            self.arranged(path)

    def arranged(self, path: Any, *others: Any) -> None:
        """A file or folder was made, moved or removed, without looking into it."""
        place = _absolute(path)
        if place and not self._is_pytests(place):
            self.wrote(place)

    def _is_pytests(self, place: str) -> bool:
        """Whether pytest arranges this folder itself: those of sessions and tests, and what it throws away."""
        if not self._kept_folder or not place.startswith(self._kept_folder):
            return False
        parts = place[len(self._kept_folder) :].split(os.sep)
        return len(parts) <= _PYTESTS_LEVELS or parts[0].startswith("garbage-")

    def made_folder(self, path: Any, *others: Any) -> None:
        place = _absolute(path)
        if place.startswith(self._temporary):
            if not os.path.lexists(place):
                self._own.add(place)
        elif place and not os.path.isdir(place) and not self._is_own(place):
            self.names.setdefault(self._shown(place))

    def made_temporary(self, path: Any) -> None:
        self._own.add(_absolute(path))

    def connected(self, database: Any) -> None:
        text = os.fsdecode(database) if isinstance(database, str | bytes | os.PathLike) else ""
        if text.startswith("file:"):
            text = "" if "mode=memory" in text or ":memory:" in text else text[len("file:") :].partition("?")[0]
        if text and text != ":memory:":
            place = _absolute(text)
            if not self._is_own(place):
                self._databases.setdefault(place, _stamp(place))

    def called(self, connection: Any, address: Any) -> None:
        if isinstance(address, tuple) and len(address) >= 2:
            self.names.setdefault(f"{address[0]}:{address[1]}")
        elif isinstance(address, str | bytes) and address:
            self.names.setdefault(os.fsdecode(address))

    def started(self, executable: Any, *others: Any) -> None:
        if isinstance(executable, str | bytes | os.PathLike):
            self.names.setdefault(f"process {os.path.basename(os.fsdecode(executable))}")

    # -- what is a run's own ----------------------------------------------------------------------------------------

    def _is_own(self, place: str) -> bool:
        if place.startswith(self._ignored_roots) or not _IGNORED.isdisjoint(place.split(os.sep)):
            return True
        return any(place == folder or place.startswith(folder + os.sep) for folder in self._own)

    def _close_databases(self) -> None:
        for place, stamp in self._databases.items():
            if _stamp(place) != stamp:
                self.names.setdefault(self._shown(place))
        self._databases.clear()


@contextmanager
def unwatched() -> Iterator[None]:
    """Note nothing: a module is imported, or a fixture set up that outlives the run."""
    global _watch
    outer, _watch = _watch, None
    try:
        yield
    finally:
        _watch = outer


def _absolute(path: Any) -> str:
    """A path without symbolic links; "" for descriptors."""
    if not isinstance(path, str | bytes | os.PathLike):
        return ""
    return os.path.realpath(os.fsdecode(path))


def _stamp(place: str) -> tuple[object, ...]:
    """What changes when a database is written."""
    found: list[object] = []
    for suffix in _DATABASE_FILES:
        try:
            status = os.stat(place + suffix)
        except OSError:
            found.append(None)
        else:
            found.append((status.st_mtime_ns, status.st_size))
    return tuple(found)


_EVENTS: Final[dict[str, Callable[..., None]]] = {
    "open": WriteWatch.opened,
    "os.mkdir": WriteWatch.made_folder,
    "os.remove": WriteWatch.arranged,
    "os.rmdir": WriteWatch.arranged,
    "os.rename": WriteWatch.moved,
    "os.link": WriteWatch.moved,
    "os.symlink": WriteWatch.moved,
    "os.truncate": WriteWatch.wrote,
    "os.chmod": WriteWatch.arranged,
    "tempfile.mkdtemp": WriteWatch.made_temporary,
    "tempfile.mkstemp": WriteWatch.made_temporary,
    "sqlite3.connect": WriteWatch.connected,
    "socket.connect": WriteWatch.called,
    "subprocess.Popen": WriteWatch.started,
    "os.posix_spawn": WriteWatch.started,
    "os.system": WriteWatch.started,
}


def _install_hook() -> None:
    """An audit hook cannot be removed again, so it is installed only when the first search needs it."""
    global _hooked
    if not _hooked:
        _hooked = True
        sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    watch = _watch
    if watch is None:
        return
    note = _EVENTS.get(event)
    if note is not None:
        with unwatched():  # what it does itself is reported, too
            note(watch, *arguments)
