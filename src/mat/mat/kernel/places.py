"""The settings of the process that a run can change: environment, folders, warnings, logging, signals and others."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import decimal
import gc
import io
import locale
import logging
import os
import signal
import socket
import stat
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Final

from mat.kernel.nodes import MISSING, Change, ListNode, Node, Remedy, ValueNode

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]


def places(
    *, names_modules: Callable[[], bool] = lambda: True, files: Collection[int] = ()
) -> Iterator[tuple[str, Node]]:  # fmt: skip
    """A node for each setting, with the name that a user knows it by.

    `names_modules`: whether code of the user's may change `sys.modules`; if none does, only an import does. `files`: the
    descriptors of file objects that have nodes.
    """
    yield "os.environ", EnvironmentNode()
    yield "the working folder", ValueNode(_folder, os.chdir)
    yield "the umask", ValueNode(_umask, os.umask)
    yield "sys.path", ListNode(sys.path)
    yield "sys.path", ValueNode(lambda: id(sys.path))
    yield "sys.meta_path", ListNode(sys.meta_path)
    yield "sys.modules", ModulesNode(names_modules)
    yield "sys.argv", ListNode(sys.argv)
    yield "sys.excepthook", ValueNode(lambda: sys.excepthook, lambda kept: setattr(sys, "excepthook", kept))
    yield "the recursion limit", ValueNode(sys.getrecursionlimit, sys.setrecursionlimit)
    yield "the switch interval", ValueNode(sys.getswitchinterval, sys.setswitchinterval)
    yield "the locale", ValueNode(lambda: locale.setlocale(locale.LC_ALL), lambda kept: locale.setlocale(locale.LC_ALL, kept))
    yield "the garbage collector", ValueNode(lambda: (gc.isenabled(), gc.get_threshold()), _set_gc)
    yield "the warning filters", ValueNode(_filters, _set_filters)
    yield "the socket timeout", ValueNode(socket.getdefaulttimeout, socket.setdefaulttimeout)
    yield "the decimal context", ValueNode(_decimal, _set_decimal)
    yield "logging", LoggingNode()
    if "csv" in sys.modules:
        yield "the csv dialects", ValueNode(_dialects, _set_dialects)
    yield "a thread", ThreadsNode()
    yield "a pipe", PipesNode()
    yield "the position in a file", PositionsNode(files)
    if threading.current_thread() is threading.main_thread():
        yield "a signal handler", ValueNode(_handlers, _set_handlers)
    if hasattr(signal, "pthread_sigmask"):
        yield "the signal mask", ValueNode(_blocked, lambda kept: signal.pthread_sigmask(signal.SIG_SETMASK, kept))
    if resource is not None:
        yield "a resource limit", ValueNode(_resource_limits, _set_resource_limits)
    if hasattr(os, "getpriority"):
        yield "the process priority", ValueNode(_priority, lambda kept: os.setpriority(os.PRIO_PROCESS, 0, kept))
    if hasattr(os, "sched_getaffinity"):
        yield "the processor affinity", ValueNode(lambda: os.sched_getaffinity(0), lambda kept: os.sched_setaffinity(0, kept))


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def _umask() -> int:
    found = os.umask(0o022)
    os.umask(found)
    return found


def _set_gc(kept: tuple[bool, tuple[int, ...]]) -> None:
    enabled, thresholds = kept
    gc.set_threshold(*thresholds)
    (gc.enable if enabled else gc.disable)()


def _filters() -> tuple[list[Any], tuple[Any, ...], Any]:
    return warnings.filters, tuple(warnings.filters), warnings.showwarning  # type: ignore[return-value]


def _set_filters(kept: tuple[list[Any], tuple[Any, ...], Any]) -> None:
    warnings.filters, members, warnings.showwarning = kept
    warnings.filters[:] = members
    getattr(warnings, "_filters_mutated", getattr(warnings, "_filters_mutated_lock_held", lambda: None))()


def _decimal() -> tuple[object, ...]:
    context = decimal.getcontext()
    return tuple([getattr(context, name) for name in _DECIMAL]) + tuple(context.traps.values())


def _set_decimal(kept: tuple[Any, ...]) -> None:
    context = decimal.getcontext()
    for name, value in zip(_DECIMAL, kept, strict=False):
        setattr(context, name, value)
    for trap, value in zip(context.traps, kept[len(_DECIMAL) :], strict=True):
        context.traps[trap] = value


_DECIMAL: Final = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")


def _handlers() -> tuple[Any, ...]:
    return tuple([_signal.getsignal(number) for number in _numbers()])


def _set_handlers(kept: tuple[Any, ...]) -> None:
    for number, handler in zip(_numbers(), kept, strict=True):
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@cache
def _numbers() -> tuple[int, ...]:
    """The signals that a program can handle or ignore."""
    fixed = {getattr(signal, name, None) for name in ("SIGKILL", "SIGSTOP")}
    return tuple(sorted(int(number) for number in signal.valid_signals() - fixed))


def _blocked() -> set[Any]:
    return signal.pthread_sigmask(signal.SIG_BLOCK, ())


def _resource_limits() -> tuple[tuple[int, int], ...]:
    return tuple([resource.getrlimit(number) for number in _resources()])


def _set_resource_limits(kept: tuple[tuple[int, int], ...]) -> None:
    for number, limits, now in zip(_resources(), kept, _resource_limits(), strict=True):
        if limits != now:
            resource.setrlimit(number, limits)


@cache
def _resources() -> tuple[int, ...]:
    return tuple(sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}))


def _priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


def _dialects() -> dict[str, Any]:
    import csv

    return {name: csv.get_dialect(name) for name in csv.list_dialects()}


def _set_dialects(kept: dict[str, Any]) -> None:
    import csv

    for name in set(csv.list_dialects()) - set(kept):
        csv.unregister_dialect(name)
    for name, dialect in kept.items():
        csv.register_dialect(name, dialect)


class ThreadsNode:
    """The threads that run. One that a run left behind goes on, and can be neither read nor ended."""

    __slots__ = ("_kept", "remedy")

    def __init__(self) -> None:
        self.remedy: Remedy = "fork"
        self.keep()

    def keep(self) -> None:
        self._kept = frozenset(threading.enumerate())

    def same(self) -> bool:
        return self._kept.issuperset(threading.enumerate())

    def changes(self) -> tuple[Change, ...]:
        more = [thread.name for thread in threading.enumerate() if thread not in self._kept]
        return tuple(Change("", MISSING, name) for name in more)

    def put_back(self) -> None:
        """Impossible."""


class PipesNode:
    """How much waits in the pipes of which this process has both ends. Forks share them."""

    __slots__ = ("_ends", "_kept", "remedy")

    def __init__(self) -> None:
        self.remedy: Remedy = "none"
        self._ends = _own_pipes()
        self.keep()

    def _now(self) -> tuple[int, ...]:
        return tuple([_waiting(end) for end in self._ends])

    def keep(self) -> None:
        self._kept = self._now()

    def same(self) -> bool:
        return not self._ends or self._now() == self._kept

    def changes(self) -> tuple[Change, ...]:
        pairs = zip(self._kept, self._now(), strict=True)
        return tuple(Change("", f"{before} bytes", f"{after} bytes") for before, after in pairs if before != after)

    def put_back(self) -> None:
        """Impossible: what was read is gone, and the order of what waits is not known."""


class PositionsNode:
    """Where descriptors are that read files and that no file object holds. Forks share them."""

    __slots__ = ("_descriptors", "_kept", "remedy")

    def __init__(self, files: Collection[int]) -> None:
        self.remedy: Remedy = "none"
        self._descriptors = [number for number in _reading_descriptors() if number not in files]
        self.keep()

    def _now(self) -> tuple[int, ...]:
        return tuple([_position(descriptor) for descriptor in self._descriptors])

    def keep(self) -> None:
        self._kept = self._now()

    def same(self) -> bool:
        return not self._descriptors or self._now() == self._kept

    def changes(self) -> tuple[Change, ...]:
        pairs = zip(self._kept, self._now(), strict=True)
        return tuple(Change("", before, after) for before, after in pairs if before != after)

    def put_back(self) -> None:
        """In vain: another process may be reading there."""


def _position(descriptor: int) -> int:
    try:
        return os.lseek(descriptor, 0, os.SEEK_CUR)
    except OSError:
        return -1  # it is closed


def _reading_descriptors() -> tuple[int, ...]:
    """The descriptors that can only read, of regular files; but those of libraries' file objects, and of standard streams."""
    try:
        import fcntl

        names = os.listdir("/proc/self/fd")
    except (ImportError, OSError):
        return ()
    found: dict[int, tuple[int, int]] = {}
    for number in sorted(map(int, names)):
        with suppress(OSError):
            status = os.fstat(number)
            if stat.S_ISREG(status.st_mode) and fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
                found[number] = status.st_dev, status.st_ino
    standard = {file for number, file in found.items() if number <= _LAST_STREAM}
    found = {number: file for number, file in found.items() if file not in standard}
    held = {each.fileno() for each in gc.get_objects() if type(each) is io.FileIO and not each.closed} if found else ()
    return tuple(number for number in found if number not in held)


_LAST_STREAM: Final = 2


def _own_pipes() -> tuple[int, ...]:
    """A descriptor of each pipe that has both ends here; none where the system does not list descriptors.

    Two descriptors may be one end: both outputs of `pytest 2>&1 | tee log`, which somebody else reads.
    """
    reading: dict[int, int] = {}
    writing: set[int] = set()
    try:
        import fcntl

        names = os.listdir("/proc/self/fd")
    except (ImportError, OSError):
        return ()
    for number in sorted(map(int, names)):
        with suppress(OSError):
            status = os.fstat(number)
            if stat.S_ISFIFO(status.st_mode):
                access = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE
                if access != os.O_WRONLY:
                    reading.setdefault(status.st_ino, number)
                if access != os.O_RDONLY:
                    writing.add(status.st_ino)
    return tuple(end for pipe, end in sorted(reading.items()) if pipe in writing)


def _waiting(end: int) -> int:
    """Bytes that wait in a pipe; -1 if it is closed."""
    import fcntl
    import termios

    try:
        return int.from_bytes(fcntl.ioctl(end, termios.FIONREAD, b"\0" * 4), sys.byteorder)
    except OSError:
        return -1


class EnvironmentNode:
    """`os.environ`."""

    __slots__ = ("_bytes", "_kept", "remedy")

    def __init__(self) -> None:
        self.remedy: Remedy = "restore"
        self.keep()

    def keep(self) -> None:
        self._kept: dict[str, str] = dict(os.environ)
        self._bytes = dict(_encoded())

    def same(self) -> bool:
        return _encoded() == self._bytes

    def changes(self) -> tuple[Change, ...]:
        now = dict(os.environ)
        found = tuple(
            Change(name, self._kept.get(name, MISSING), now.get(name, MISSING))
            for name in sorted({*self._kept, *now})
            if self._kept.get(name) != now.get(name) and name not in _PYTEST
        )
        if not found:
            self.keep()
        return found

    def put_back(self) -> None:
        for change in self.changes():
            if change.before is MISSING:
                del os.environ[change.label]
            else:
                os.environ[change.label] = str(change.before)
            if change.label == "TZ" and hasattr(time, "tzset"):
                time.tzset()


def _encoded() -> Mapping[Any, Any]:
    """The environment as it is stored, because decoding all of it costs more than everything else here."""
    return getattr(os.environ, "_data", os.environ)


_PYTEST: Final = frozenset(("PYTEST_CURRENT_TEST", "PYTEST_VERSION"))


class ModulesNode:
    """`sys.modules`. What a run imported stays imported; a module it put there or took away is put back.

    To compare them takes longer than anything else in here, because there are so many, so it is done where `named` says that
    code of the user's may have changed one, or their number has changed.
    """

    __slots__ = ("_modules", "_named", "_names", "remedy")

    def __init__(self, named: Callable[[], bool]) -> None:
        self._named = named
        self.remedy: Remedy = "restore"
        self.keep()

    def keep(self) -> None:
        self._names: tuple[str, ...] = tuple(sys.modules)
        self._modules: tuple[Any, ...] = tuple(sys.modules.values())

    def same(self) -> bool:
        if len(sys.modules) != len(self._names) or next(reversed(sys.modules)) != self._names[-1]:
            return False
        return not self._named() or tuple(sys.modules.values()) == self._modules

    def changes(self) -> tuple[Change, ...]:
        before = dict(zip(self._names, self._modules, strict=True))
        found = [
            Change(name, before.get(name, MISSING), module)
            for name, module in list(sys.modules.items())
            if before.get(name, MISSING) is not module and not (name not in before and _was_imported(module))
        ]
        found += [Change(name, module, MISSING) for name, module in before.items() if name not in sys.modules]
        if not found:
            self.keep()
        return tuple(found)

    def put_back(self) -> None:
        for change in self.changes():
            if change.before is MISSING:
                del sys.modules[change.label]
            else:
                sys.modules[change.label] = change.before  # type: ignore[assignment]
        self.changes()


def _was_imported(module: object) -> bool:
    return getattr(module, "__spec__", None) is not None or not isinstance(module, types.ModuleType)


class LoggingNode:
    """The levels, handlers and further attributes of all loggers. One that is new and was not configured changes nothing."""

    __slots__ = ("_kept", "remedy")

    def __init__(self) -> None:
        self.remedy: Remedy = "restore"
        self.keep()

    def keep(self) -> None:
        self._kept = _loggers()

    def same(self) -> bool:
        return _loggers() == self._kept

    def changes(self) -> tuple[Change, ...]:
        now = _loggers()
        found = tuple(
            Change(name, self._kept.get(name, _NEW), now.get(name, _NEW))
            for name in sorted({*self._kept, *now})
            if self._kept.get(name, _NEW) != now.get(name, _NEW)
        )
        if not found:
            self.keep()
        return found

    def put_back(self) -> None:
        manager = logging.root.manager
        for change in self.changes():
            kept: Any = change.before
            if change.label == _DISABLED:
                manager.disable = kept
                continue
            logger = logging.root if change.label == "root" else logging.getLogger(change.label)
            for name, _ in _more(logger):
                del vars(logger)[name]
            vars(logger).update(kept[5])
            logger.level, logger.propagate, logger.disabled = kept[:3]
            logger.handlers[:] = [*kept[3], *[each for each in logger.handlers if _is_runners(each)]]
            logger.filters[:] = kept[4]
        with suppress(AttributeError):
            manager._clear_cache()  # type: ignore[attr-defined]
        self.changes()


_NEW: Final = (logging.NOTSET, True, False, (), (), ())
_ATTRIBUTES: Final = frozenset(vars(logging.Logger("")))
_DISABLED: Final = "disable"


def _loggers() -> Mapping[str, Any]:
    manager = logging.root.manager
    found: dict[str, Any] = {"root": _logger(logging.root), _DISABLED: manager.disable}
    for name, logger in manager.loggerDict.items():
        if type(logger) is not logging.PlaceHolder:
            found[name] = _logger(logger)  # type: ignore[arg-type]
    return found


def _logger(logger: logging.Logger) -> tuple[Any, ...]:
    handlers = tuple([each for each in logger.handlers if not _is_runners(each)])
    return logger.level, logger.propagate, logger.disabled, handlers, tuple(logger.filters), _more(logger)


def _more(logger: logging.Logger) -> tuple[tuple[str, Any], ...]:
    """The attributes that a program has put on a logger."""
    held = vars(logger)
    if len(held) <= len(_ATTRIBUTES):
        return ()
    return tuple([(name, value) for name, value in held.items() if name not in _ATTRIBUTES and name not in _OWN])


_OWN: Final = ("root", "manager")


def _is_runners(handler: logging.Handler) -> bool:
    """Whether pytest added a handler, for the phase of a test."""
    return type(handler).__module__.startswith("_pytest")
