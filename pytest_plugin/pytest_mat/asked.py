"""What the interpreter is asked for, from before the first conftest file is imported: files, folders, variables, modules.

CPython reports what is opened, listed and started to an audit hook. It does not report looks at a file (`os.stat`), the
environment, or `importlib.import_module` of a module that is loaded; for these, stand-ins take the place of the originals
while a session watches. This module imports nothing of ours: `mat.kernel.reads` decides later what counts.
"""

from __future__ import annotations

import functools
import importlib._bootstrap as _bootstrap
import os
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final, TypeAlias

CallingFrame: TypeAlias = tuple[str, str, str]
"""A frame of the stack: its file, its module and its function."""
Handle: TypeAlias = Callable[[str, tuple[Any, ...], Iterator[CallingFrame]], None]
"""(event, its arguments, the frames that ask, the innermost first)."""

_AUDITED: Final = frozenset(
    ("open", "os.listdir", "os.scandir", "sqlite3.connect", "subprocess.Popen", "os.posix_spawn", "os.system", "os.exec",
     "os.fork", "os.forkpty", "ctypes.dlopen")
)  # fmt: skip
_LOOKS: Final = ("stat", "lstat", "access")
_CAPABILITIES: Final = (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids)
_real: Final[dict[str, Any]] = {}
_hooked: Final[list[bool]] = []


class AskedFor:
    """What was asked for before anybody took it over, and whom to tell from then on."""

    def __init__(self) -> None:
        self.early: list[tuple[str, tuple[Any, ...], tuple[CallingFrame, ...]]] = []
        self.handle: Handle | None = None

    def note(self, event: str, arguments: tuple[Any, ...], frame: FrameType | None) -> None:
        if self.handle is not None:
            self.handle(event, arguments, callers(frame))
        elif not _is_installed(arguments):
            self.early.append((event, arguments, tuple(callers(frame))))


def callers(frame: FrameType | None) -> Iterator[CallingFrame]:
    """The frames of a stack from this one outwards."""
    while frame is not None:
        yield frame.f_code.co_filename, str(frame.f_globals.get("__name__")), frame.f_code.co_name
        frame = frame.f_back


def _is_installed(arguments: tuple[Any, ...]) -> bool:
    """Whether this is a file of an installed distribution, of which an import opens very many."""
    path = arguments[0] if arguments else None
    return isinstance(path, str) and (
        "site-packages" in path or path.startswith((sys.base_prefix + "/lib", sys.prefix + "/lib"))
    )


_asked: AskedFor | None = None


def watched() -> AskedFor | None:
    """What this session was asked for; None if nothing watches."""
    return _asked


def begin() -> None:
    """Watch from now on."""
    global _asked
    _asked = AskedFor()
    if not _hooked:  # a hook cannot be removed again
        _hooked.append(True)
        sys.addaudithook(_audit)
    if not _real:
        _put_in()


def end() -> None:
    global _asked
    _asked = None
    if _real:
        _put_out()


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _asked is not None and event in _AUDITED:
        _asked.note(event, arguments, sys._getframe(1))


def _looking(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def look(path: Any, *arguments: Any, **options: Any) -> Any:
        if _asked is not None:
            event = real.__name__ if options.get("dir_fd") is None else "descriptor"
            _asked.note(event, (path,) if event != "descriptor" else (), sys._getframe(1))
        return real(path, *arguments, **options)

    return look


class _WatchedEnvironment(os._Environ):  # type: ignore[type-arg]
    """`os.environ` and `os.environb`, whose class is replaced while a session watches."""

    def __getitem__(self, key: Any) -> Any:
        if _asked is not None and isinstance(key, str | bytes):
            _asked.note("variable", (os.fsdecode(key),), sys._getframe(1))
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[Any]:
        if _asked is not None:
            _asked.note("environment", (), sys._getframe(1))
        return super().__iter__()


def _importing(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def import_by_name(name: str, package: str | None = None, level: int = 0) -> Any:
        if _asked is not None:
            full = _bootstrap._resolve_name(name, package, level) if level > 0 and package else name  # type: ignore[attr-defined]
            _asked.note("module", (full,), sys._getframe(1))
        return real(name, package, level)

    return import_by_name


def _put_in() -> None:
    for name in _LOOKS:
        real = _real[name] = getattr(os, name)
        look = _looking(real)
        setattr(os, name, look)
        for capable in _CAPABILITIES:
            if real in capable:
                capable.add(look)
    _real["import"] = _bootstrap._gcd_import  # type: ignore[attr-defined]
    _bootstrap._gcd_import = _importing(_real["import"])  # type: ignore[attr-defined]
    for environment in _environments():
        environment.__class__ = _WatchedEnvironment


def _put_out() -> None:
    for name in _LOOKS:
        for capable in _CAPABILITIES:
            capable.discard(getattr(os, name))
        setattr(os, name, _real[name])
    _bootstrap._gcd_import = _real["import"]  # type: ignore[attr-defined]
    for environment in _environments():
        environment.__class__ = os._Environ
    _real.clear()


def _environments() -> Iterator[Any]:
    yield from (each for each in (os.environ, getattr(os, "environb", None)) if isinstance(each, os._Environ))
