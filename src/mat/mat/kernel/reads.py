"""What the user's code reads, in addition to its modules: files, folders, environment variables, and modules imported by name.

A certificate that is kept for later sessions is valid only as long as these inputs are unchanged (`mat_study.inputs`). The
plugin reports what the interpreter is asked for (`ReadLog.note`). This module decides which requests count, and whether a read
belongs to the execution in progress or to the file of the user's code that is being imported. Files that a library opens in C
are not seen.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from mat.kernel import names, network

ReadKind: TypeAlias = Literal["file", "times", "folder", "variable", "environment", "module", "unknown"]
StackFrame: TypeAlias = tuple[str, str, str]
"""A frame of the stack: its file, its module and its function."""


@dataclass(frozen=True, slots=True, order=True)
class Read:
    """One thing that was read: the content of a `file` (or that it is missing), a file's `times`, the names in a `folder`, a
    `variable`, the whole `environment`, or a `module` by its name. `unknown`: what was read cannot be known; `name` says why.
    """

    kind: ReadKind
    name: str


class ReadLog:
    """What one process has read: by executions of an item, and otherwise by file of the user's code (`by_file`)."""

    def __init__(self) -> None:
        self.by_file: dict[str, dict[Read, None]] = {}
        self._taken: dict[Read, None] | None = None
        self._is_own: Callable[[str], bool] = _never
        self._shared = False
        self._here = _Here()

    @contextmanager
    def taking(self, taken: dict[Read, None], is_own: Callable[[str], bool]) -> Iterator[None]:
        """During an execution: collect its reads in `taken`. `is_own` returns whether the execution itself made a path."""
        outer = self._taken, self._is_own, self._shared
        self._taken, self._is_own, self._shared = taken, is_own, False
        try:
            yield
        finally:
            self._taken, self._is_own, self._shared = outer

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """While an execution imports a module or makes a fixture of wider scope: later executions use it too, so its reads
        count for all of them.
        """
        outer, self._shared = self._shared, True
        try:
            yield
        finally:
            self._shared = outer

    def note(self, event: str, arguments: tuple[Any, ...], stack: Iterable[StackFrame]) -> None:
        """Note what the interpreter was asked for: an audit event, "stat", "lstat", "access", "variable", "environment" or
        "module". `stack`: who asks, the innermost first."""
        if self._here.busy or network.live.get():  # of a live call the reply is recorded, and other executions get that
            return
        self._here.busy = True  # sorting a request may make requests itself
        try:
            self._sort(event, arguments, stack)
        finally:
            self._here.busy = False

    def _sort(self, event: str, arguments: tuple[Any, ...], stack: Iterable[StackFrame]) -> None:
        frames = iter(stack)
        near, kind, first = _library_frames(frames)
        if kind == "machinery" and not (event == "open" and self._taken is not None):
            return
        for read in _meant(event, arguments, near):
            if self._taken is not None and not self._shared:
                if read not in self._taken and not self._is_ignored(read):
                    self._taken[read] = None
            elif not self._is_ignored(read):
                if self._taken is not None:
                    self._taken.setdefault(read)
                file = first if kind == "project" else _innermost_file(frames)
                if file:
                    self.by_file.setdefault(os.path.abspath(file), {}).setdefault(read)

    def _is_ignored(self, read: Read) -> bool:
        if read.kind not in ("file", "times", "folder"):
            return read.kind == "unknown" and self._taken is None
        return _is_tools(read.name) or (self._taken is not None and self._is_own(read.name))


class _Here(threading.local):
    busy = False


def _never(path: str) -> bool:
    return False


_reads: ReadLog | None = None


def watched() -> ReadLog | None:
    """What this process has read since its session began; None if nothing watches."""
    return _reads


def begin() -> ReadLog:
    """Begin to keep what is read."""
    global _reads
    _reads = ReadLog()
    return _reads


def end() -> None:
    global _reads
    _reads = None


@contextmanager
def sharing() -> Iterator[None]:
    """See `ReadLog.sharing`; nothing without a watch."""
    if _reads is None:
        yield
        return
    with _reads.sharing():
        yield


# -- who asks -----------------------------------------------------------------------------------------------------------


def _library_frames(frames: Iterator[StackFrame]) -> tuple[list[str], str, str]:
    """The functions of the standard library through which something is asked for; the kind and the file of the frame around
    them. The frames that are left are those around that."""
    near: list[str] = []
    for file, module, function in frames:
        kind = _kind(file, module)
        if kind != "standard":
            return near, kind, file
        near.append(_METADATA if module.startswith(_METADATA) else function)
    return near, "standard", ""


def _innermost_file(frames: Iterator[StackFrame]) -> str:
    """The innermost file of the user's project; "" without one."""
    return next((file for file, module, _ in frames if _kind(file, module) == "project"), "")


@functools.lru_cache(maxsize=20_000)
def _kind(path: str, module: str) -> str:
    if module.partition(".")[0] in names.HARNESS:
        return "machinery"
    return "standard" if path.startswith("<") else names.origin(path)


# -- what is asked for --------------------------------------------------------------------------------------------------

_TOOLS: Final = frozenset((".mat", ".pytest_cache", ".hypothesis", ".mypy_cache"))
_VOLATILE: Final = ("/proc/", "/sys/")
_ACCESS: Final = os.O_RDONLY | os.O_WRONLY | os.O_RDWR
_ASKS_FOR_KIND: Final = frozenset(
    ("exists", "lexists", "isfile", "isdir", "islink", "ismount", "is_file", "is_dir", "is_symlink", "samefile", "getsize",
     "realpath", "_joinrealpath", "resolve", "checkcache", "updatecache", "getsourcefile", "findsource", "which", "iterdir",
     "_access_check", "copyfile", "_islink", "walk", "glob", "rglob")
)  # fmt: skip
"""Functions of the standard library that look at a file without telling its times."""
_METADATA: Final = "importlib.metadata"
_LOOKS_UP: Final = frozenset((_METADATA, "_fill_cache"))
"""How Python itself finds distributions and modules: their versions and files are compared in another way."""
_LISTS_FOR_ITSELF: Final = frozenset(("getproxies_environment", "_patch_dict", "_unpatch_dict"))
"""Functions of the standard library that list the environment to find proxies, which count anyway, or to put it back."""


def _meant(event: str, arguments: tuple[Any, ...], near: list[str]) -> list[Read]:
    """What an event reads. `near`: the names of the functions of the standard library between the user's code and the event."""
    if not _LOOKS_UP.isdisjoint(near):
        return []
    match event, *arguments:
        case "open", str(path), None, int() if not os.path.isabs(path) and not os.path.lexists(path):
            return _of_descriptor(near)
        case "open", path, _, flags if not isinstance(flags, int) or flags & _ACCESS != os.O_WRONLY:
            return _of_path("file", path)
        case (("os.listdir" | "os.scandir"), int(), *_) | ("descriptor",):
            return _of_descriptor(near)
        case (("os.listdir" | "os.scandir"), path, *_):
            return _of_path("folder", "." if path is None else path)
        case "sqlite3.connect", database:
            return [read for name in _database_files(database) for read in _of_path("file", name)]
        case (("stat" | "lstat"), path) if _ASKS_FOR_KIND.isdisjoint(near):
            return _of_path("times", path)
        case (("stat" | "lstat" | "access"), path):
            return _of_path("file", path)
        case "variable", str(name):
            return [Read("variable", name)]
        case ("environment",) if _LISTS_FOR_ITSELF.isdisjoint(near):
            return [Read("environment", "")]
        case "module", str(name):
            return [Read("module", name)]
        case "ctypes.dlopen", str(name):
            return [Read("unknown", f"the library {name} is loaded, and what it reads is not known")]
        case (("subprocess.Popen" | "os.posix_spawn" | "os.system" | "os.exec" | "os.fork" | "os.forkpty"), *_):
            return [Read("unknown", "a process is started, and what it reads is not known")]
    return []


def _of_path(kind: ReadKind, path: Any) -> list[Read]:
    """A read of a path, which is made absolute; none of a descriptor. A module's bytecode stands for its source."""
    if not isinstance(path, str | bytes | os.PathLike):
        return []
    try:
        text = os.path.abspath(os.fsdecode(path))
    except OSError:  # the working folder was removed
        return [Read("unknown", "a file is read in a folder that was removed")]
    if text.startswith(_VOLATILE):
        return [Read("unknown", f"{text} is read, which differs from one process to the next")]
    if text.endswith(".pyc"):
        with suppress(ValueError):
            text = importlib.util.source_from_cache(text)
    return [Read(kind, text)]


def _of_descriptor(near: list[str]) -> list[Read]:
    """A read below a folder that is named by its descriptor; `shutil.rmtree` reads what it removes."""
    removes = any(name.startswith(("rmtree", "_rmtree")) for name in near)
    return [] if removes else [Read("unknown", "a file is named by the descriptor of its folder")]


def _database_files(database: Any) -> list[str]:
    text = os.fsdecode(database) if isinstance(database, str | bytes | os.PathLike) else ""
    if text.startswith("file:"):
        text = "" if "mode=memory" in text or ":memory:" in text else text[len("file:") :].partition("?")[0]
    return [text, f"{text}-wal"] if text and text != ":memory:" else []


@functools.lru_cache(maxsize=20_000)
def _is_tools(path: str) -> bool:
    """Whether a path is a tool's own, a device, or of the installation, whose distributions have versions."""
    return path.startswith("/dev/") or not _TOOLS.isdisjoint(path.split(os.sep)) or names.origin(path) != "project"
