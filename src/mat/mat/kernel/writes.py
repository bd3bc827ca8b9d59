"""What a run writes outside of itself: files, databases, servers and processes, noted through an audit hook.

A run's own folders are those that it makes below the folder for temporary files, and everything that `tempfile` makes for it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from mat.kernel import audit, network

_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_IGNORED: Final = frozenset(("__pycache__", ".mat", ".pytest_cache", ".hypothesis", ".mypy_cache"))
"""Folders that hold nothing of a program's state."""
_IGNORED_ROOTS: Final = ("/dev/", "/proc/", "/sys/")
_SHARED_ROOTS: Final = ("/dev/shm/", "/dev/mqueue/")
"""Folders in the former that hold files like any other."""
_PYTESTS_LEVELS: Final = 2
_DATABASE_FILES: Final = ("", "-wal", "-journal")

_watch: WriteWatch | None = None


def _temporary_folder() -> str:
    """The folder for temporary files; "" where there is none that can be written to."""
    try:
        return tempfile.gettempdir()
    except OSError:
        return ""


class WriteWatch:
    """Collects the names of what is written while `watching`. `shown` makes a name from a path.

    `kept_folder`: where pytest keeps temporary folders; what it does there with folders is no run's. `roots`: the user's
    folders; a project that itself is below the folder for temporary files is none.
    `shares`: whether a run has used anything that another run at the same time would use as well.
    """

    def __init__(self, *, shown: Callable[[str], str] = str, kept_folder: str = "", roots: Iterable[str] = ()) -> None:
        self._roots = tuple({os.path.join(os.path.realpath(each), "") for each in roots if each})
        self._shown, self._kept_folder = shown, os.path.join(os.path.realpath(kept_folder), "") if kept_folder else ""
        self._temporary = tuple(
            {os.path.join(os.path.realpath(each), "") for each in (_temporary_folder(), kept_folder) if each}
        )
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        ignored = [os.path.join(os.path.realpath(each), "") for each in (cache, sys.pycache_prefix) if each]
        self._ignored_roots = (*_IGNORED_ROOTS, *ignored)
        self._own: set[str] = set()
        self._databases: dict[str, tuple[object, ...]] = {}
        self.names: dict[str, None] = {}
        self.shares = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note what is written from here on."""
        global _watch
        audit.watch(_EVENTS, _audit)
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
        self.shares = self.shares or bool(found)
        return found

    # -- events -----------------------------------------------------------------------------------------------------

    def opened(self, path: Any, mode: Any, flags: Any) -> None:
        if (isinstance(flags, int) and flags & _WRITING) or (isinstance(mode, str) and not set(mode).isdisjoint("wax+")):
            self.wrote(path)

    def wrote(self, path: Any, *others: Any) -> None:
        place = _absolute(path)
        if place and not self._is_own(place) and not os.path.isdir(place):  # that is where `tempfile` opens a file without name
            self.names.setdefault(self._shown(place))

    def moved(self, source: Any, target: Any, source_folder: Any = -1, target_folder: Any = -1) -> None:
        self.arranged(source, source_folder)
        self.arranged(target, target_folder)

    def linked(self, source: Any, target: Any, folder: Any = -1, *others: Any) -> None:
        self.arranged(target, folder)

    def changed(self, path: Any, mode: Any, folder: Any = -1) -> None:
        self.arranged(path, folder)

    def arranged(self, path: Any, folder: Any = -1) -> None:
        """A file or folder was made, moved or removed, without looking into it. `folder`: the descriptor it is named in."""
        place = _absolute(path, folder)
        if place and not self._is_pytests(place):
            self.wrote(place)

    def _is_pytests(self, place: str) -> bool:
        """Whether pytest arranges this folder itself: those of sessions and tests, and what it throws away."""
        if not self._kept_folder or not place.startswith(self._kept_folder):
            return False
        parts = place[len(self._kept_folder) :].split(os.sep)
        return len(parts) <= _PYTESTS_LEVELS or parts[0].startswith("garbage-")

    def made_folder(self, path: Any, mode: Any = 0, folder: Any = -1) -> None:
        place = _absolute(path, folder)
        if self._is_temporary(place):
            self.shares = self.shares or not (self._kept_folder and place.startswith(self._kept_folder))
            if not os.path.lexists(place):
                self._own.add(place)
        elif place and not os.path.isdir(place) and not self._is_own(place):
            self.names.setdefault(self._shown(place))

    def made_temporary(self, path: Any) -> None:
        self.shares = True  # runs draw the same names
        self._own.add(_absolute(path))

    def connected(self, database: Any) -> None:
        text = os.fsdecode(database) if isinstance(database, str | bytes | os.PathLike) else ""
        if text.startswith("file:"):
            text = "" if "mode=memory" in text or ":memory:" in text else text[len("file:") :].partition("?")[0]
        if text and text != ":memory:":
            place = _absolute(text)
            if not self._is_own(place):
                self.shares = True
                self._databases.setdefault(place, _stamp(place))

    def called(self, connection: Any, address: Any) -> None:
        self.shares = True
        if isinstance(address, tuple) and len(address) >= 2:
            if network.is_allowed(address[0]):
                return
            self.names.setdefault(f"{address[0]}:{address[1]}")
        elif isinstance(address, str | bytes) and address:
            self.names.setdefault(os.fsdecode(address))

    def met(self, *arguments: Any) -> None:
        """Something that others can use at the same time, and that keeps nothing: a port, a lock."""
        self.shares = True

    def mapped(self, file: Any, *others: Any) -> None:
        self.shares = self.shares or file != -1  # else it is memory of this process

    def started(self, executable: Any, *others: Any) -> None:
        if isinstance(executable, str | bytes | os.PathLike):
            self.names.setdefault(f"process {os.path.basename(os.fsdecode(executable))}")

    def _is_temporary(self, place: str) -> bool:
        """Whether a path is below a folder for temporary files, and not in a project that is there, too."""
        nearest = max((len(each) for each in self._temporary if place.startswith(each)), default=0)
        return nearest > max((len(each) for each in self._roots if place.startswith(each)), default=0)

    # -- what is a run's own ----------------------------------------------------------------------------------------

    def is_own(self, place: str) -> bool:
        """Whether a run made this path, or pytest did for its temporary folders."""
        place = os.path.realpath(place)
        if self._is_own(place):
            return True
        nearest = max((len(each) for each in self._roots if place.startswith(each)), default=0)
        return place.startswith(self._kept_folder or os.devnull) and len(self._kept_folder) > nearest

    def _is_own(self, place: str) -> bool:
        ignored = place.startswith(self._ignored_roots) and not place.startswith(_SHARED_ROOTS)
        if ignored or not _IGNORED.isdisjoint(place.split(os.sep)):
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


def _absolute(path: Any, folder: Any = -1) -> str:
    """A path without symbolic links; "" for descriptors. `folder`: the descriptor of the folder in which a path is named."""
    if not isinstance(path, str | bytes | os.PathLike):
        return ""
    text = os.fsdecode(path)
    if isinstance(folder, int) and folder >= 0 and not os.path.isabs(text):
        try:
            text = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text)
        except OSError:  # elsewhere nobody knows where it is
            return ""
    return os.path.realpath(text)


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
    "os.symlink": WriteWatch.linked,
    "os.truncate": WriteWatch.wrote,
    "os.chmod": WriteWatch.changed,
    "tempfile.mkdtemp": WriteWatch.made_temporary,
    "tempfile.mkstemp": WriteWatch.made_temporary,
    "sqlite3.connect": WriteWatch.connected,
    "socket.connect": WriteWatch.called,
    "socket.bind": WriteWatch.met,
    "fcntl.flock": WriteWatch.met,
    "fcntl.lockf": WriteWatch.met,
    "mmap.__new__": WriteWatch.mapped,
    "subprocess.Popen": WriteWatch.started,
    "os.posix_spawn": WriteWatch.started,
    "os.system": WriteWatch.started,
}


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    watch = _watch
    if watch is None or network.live.get():  # what a client writes at a recorded call is no agent's state
        return
    with unwatched():  # what it does itself is reported, too
        _EVENTS[event](watch, *arguments)
