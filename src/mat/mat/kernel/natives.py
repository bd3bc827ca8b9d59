"""Objects whose state is not in attributes: how it is read, and put back where the type allows that.

`native_node` knows the types of the standard library and numpy arrays. `opaque_node` is for all other types written in C: it
compares what such an object refers to and how it shows itself, which is enough to see most changes, and to put none back.
"""

from __future__ import annotations

import _abc  # type: ignore[import-not-found]
import contextvars
import functools
import gc
import hashlib
import io
import itertools
import mmap
import os
import pickle
import queue
import random
import sqlite3
import sys
import threading
import types
import zlib
from array import array
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, Final

from mat.core import limits
from mat.kernel.nodes import Change, Node, Remedy, ValueNode

_Maker = Callable[[Any], Node | None]
_LRU: Final = type(functools.lru_cache(lambda: None))
_LOCK: Final = type(threading.Lock())
_RLOCK: Final = type(threading.RLock())
_CLOSED: Final = "closed"


def native_node(held: object) -> Node | None:
    """The node of an object with state of its own; None if its type is not known here, or the object has no state."""
    kind = type(held)
    for base in kind.__mro__:
        maker = _MAKERS.get(base)
        if maker is not None:
            return maker(held)
    if "numpy" in sys.modules and issubclass(kind, sys.modules["numpy"].ndarray):
        return _numpy(held)
    if "numpy.random" in sys.modules:
        drawn = sys.modules["numpy.random"]
        if issubclass(kind, drawn.Generator):
            return _numpy_generator(held)
        if issubclass(kind, drawn.RandomState):
            return _numpy_state(held)
    memory = _foreign_memory(held)
    if memory is not None:
        return memory
    if hasattr(kind, "hexdigest") and hasattr(kind, "copy"):
        return ValueNode(held.hexdigest, remedy="fork")  # type: ignore[attr-defined]
    if kind.__module__ == "zlib" and hasattr(kind, "copy"):
        return _compressor(held)
    if kind.__module__ in ("builtins", "itertools") and hasattr(kind, "__next__"):
        return _iterator(held)
    return None


def opaque_node(held: object) -> Node:
    """Compare an object by its references and its own repr, as far as C code gives it."""
    kind = type(held)
    shown = kind.__repr__ is not object.__repr__ and isinstance(kind.__repr__, types.WrapperDescriptorType)
    counted = hasattr(kind, "__len__")

    def look() -> tuple[object, ...]:
        referents = tuple(map(id, gc.get_referents(held)))
        try:
            return referents, repr(held) if shown else "", len(held) if counted else 0  # type: ignore[arg-type]
        except Exception as error:  # a closed or broken object: that is how it looks
            return referents, type(error).__name__, 0

    return ValueNode(look, remedy="fork")


# -- buffers and queues -------------------------------------------------------------------------------------------------


def _bytearray(held: bytearray) -> Node:
    def write(kept: bytes) -> None:
        held[:] = kept

    return ValueNode(lambda: bytes(held), write)


def _array(held: Any) -> Node:
    def write(kept: bytes) -> None:
        held[:] = array(held.typecode, kept)

    return ValueNode(held.tobytes, write)


def _numpy(held: Any) -> Node | None:
    """An array of numbers; one of objects, or a huge one, is only compared by its size."""
    import numpy

    if held.dtype.hasobject or held.nbytes > limits.ISOLATED_BYTES:
        return opaque_node(held)

    def read() -> tuple[Any, ...]:
        return held.shape, str(held.dtype), numpy.asarray(held).tobytes()

    def write(kept: tuple[Any, ...]) -> None:
        shape, dtype, data = kept
        with suppress(ValueError, AttributeError):  # resized or read-only: then it stays different, which is noticed
            held[...] = numpy.frombuffer(data, dtype=dtype).reshape(shape)

    return ValueNode(read, write) if held.flags.writeable else None


def _simple_queue(held: Any) -> Node:
    """A queue that was empty can be emptied again."""

    def write(size: int) -> None:
        while not size and held.qsize():
            held.get_nowait()

    return ValueNode(held.qsize, write)


def _compressor(held: Any) -> Node:
    """A stream of zlib: what it would give if it ended now."""

    def read() -> object:
        try:
            return held.copy().flush()
        except (ValueError, zlib.error):  # it has ended
            return _CLOSED

    return ValueNode(read, remedy="fork")


# -- caches, iterators, generators --------------------------------------------------------------------------------------


def _lru(held: Any) -> Node:
    """A cache that was empty and never asked can be cleared; what a warm one held cannot be put back."""

    def read() -> tuple[int, ...]:
        info = held.cache_info()
        full = info.maxsize is not None and info.currsize == info.maxsize
        order = info.hits if info.currsize and full else 0  # a hit changes what a full cache drops next
        return info.misses, info.currsize, order

    def write(kept: tuple[int, ...]) -> None:
        if kept == (0, 0, 0):
            held.cache_clear()

    return ValueNode(read, write)


def _iterator(held: Any) -> Node:
    """An iterator of the interpreter: some take back their position, the others are only compared.

    A changed count of `itertools.count` shows in its repr, also where it can no longer be pickled.
    """

    def read() -> tuple[Any, ...]:
        if isinstance(held, itertools.count):
            return (repr(held),)
        try:
            reduced = held.__reduce__()
        except Exception:  # nothing else than the length hint shows how far it is
            reduced = ()
        parts = reduced[1:3] if isinstance(reduced, tuple) else ()
        hint = held.__length_hint__() if hasattr(held, "__length_hint__") else 0
        return (hint, *[_state(part) for part in parts])

    def write(kept: tuple[Any, ...]) -> None:
        position = kept[-1]
        if isinstance(position, int) and hasattr(held, "__setstate__"):
            held.__setstate__(position)

    return ValueNode(read, write)


def _state(part: object) -> object:
    """A part of a pickled iterator: numbers by value, everything else by identity."""
    if isinstance(part, int | str | bytes | None):
        return part
    if isinstance(part, tuple):
        return tuple(_state(each) if isinstance(each, int | str | tuple) else type(each).__name__ for each in part)
    return type(part).__name__


def _generator(held: Any) -> Node:
    """A generator or coroutine: where it is, and its variables."""
    prefix = next(name for name in ("gi_", "cr_", "ag_") if hasattr(held, f"{name}frame"))

    def read() -> tuple[Any, ...]:
        frame = getattr(held, f"{prefix}frame")
        if frame is None:
            return (_CLOSED,)
        return frame.f_lasti, tuple((name, _state(value), id(value)) for name, value in sorted(frame.f_locals.items()))

    return ValueNode(read, remedy="fork")


# -- files and databases ------------------------------------------------------------------------------------------------


def _memory_file(held: Any) -> Node:
    def read() -> Any:
        try:
            return (held.getvalue(), held.tell())
        except ValueError:
            return _CLOSED

    def write(kept: Any) -> None:
        if kept != _CLOSED and read() != _CLOSED:
            value, position = kept
            held.seek(0)
            held.truncate()
            held.write(value)
            held.seek(position)

    return ValueNode(read, write)


def _file(held: Any) -> Node | None:
    """An open file. One that is read can be put back to its position; what was written to a file is written."""
    if held in (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__):
        return None

    def read() -> Any:
        try:
            if held.writable():
                held.flush()
            return (held.tell(), os.fstat(held.fileno()).st_size)
        except (OSError, ValueError) as error:
            return type(error).__name__

    def write(kept: Any) -> None:
        now = read()
        if isinstance(kept, tuple) and isinstance(now, tuple) and kept[1] == now[1]:
            held.seek(kept[0])

    try:
        writes = held.writable()
    except ValueError:
        return None
    return ValueNode(read, write, remedy="none" if writes else "restore")


def _database(held: sqlite3.Connection) -> Node | None:
    """A connection of sqlite3: a database in memory is copied, and copied back."""

    def ask(text: str) -> Any:
        cursor = held.cursor()
        cursor.row_factory = None
        return cursor.execute(text).fetchone()

    def read() -> Any:
        try:
            return (held.total_changes, held.in_transaction, ask("PRAGMA schema_version"))
        except sqlite3.Error as error:
            return type(error).__name__

    try:
        in_file = bool(ask("PRAGMA database_list")[2])
    except sqlite3.Error:
        return None
    if in_file:
        return ValueNode(read, remedy="none")
    return _MemoryDatabase(held, read)


class _MemoryDatabase:
    """A database in memory, with a copy of what it held."""

    __slots__ = ("_copy", "_held", "_read", "_seen", "remedy")

    def __init__(self, held: sqlite3.Connection, read: Callable[[], Any]) -> None:
        self._held, self._read = held, read
        self.remedy: Remedy = "restore"
        self.keep()

    def keep(self) -> None:
        self._seen = self._read()
        self._copy = None
        if isinstance(self._seen, tuple) and not self._seen[1]:
            self._copy = sqlite3.connect(":memory:", check_same_thread=False)
            self._held.backup(self._copy)

    def same(self) -> bool:
        return bool(self._read() == self._seen)

    def changes(self) -> tuple[Change, ...]:
        return () if self.same() else (Change("", self._seen, self._read()),)

    def put_back(self) -> None:
        if self._copy is None or not isinstance(self._read(), tuple):
            return
        self._held.rollback()
        self._copy.backup(self._held)
        self._seen = self._read()  # the count of changes goes on


# -- registries ----------------------------------------------------------------------------------------------------------


def abstract_node(held: Any) -> Node:
    """The classes that were registered with an abstract base class."""

    def read() -> tuple[int, ...]:
        return tuple(sorted(id(each()) for each in _abc._get_dump(held)[0]))

    def write(kept: tuple[int, ...]) -> None:
        registered = [each() for each in _abc._get_dump(held)[0]]
        _abc._reset_registry(held)
        for each in registered:
            if id(each) in kept:
                held.register(each)
        _abc._reset_caches(held)

    return ValueNode(read, write)


# -- others -------------------------------------------------------------------------------------------------------------


def _random(held: random.Random) -> Node | None:
    if isinstance(held, random.SystemRandom):
        return None
    return ValueNode(held.getstate, held.setstate)


def _lock(held: Any) -> Node:
    def write(kept: bool) -> None:
        if not kept and held.locked():
            held.release()

    return ValueNode(held.locked, write)


def _rlock(held: Any) -> Node:
    def write(kept: bool) -> None:
        while not kept and held._is_owned():
            held.release()

    return ValueNode(held._is_owned, write)


def _executor(held: Any) -> Node:
    """A pool of threads or processes: its workers cannot be taken back."""

    def read() -> tuple[int, bool]:
        workers = getattr(held, "_threads", None) or getattr(held, "_processes", None) or ()
        return len(workers), bool(getattr(held, "_shutdown", False) or getattr(held, "_shutdown_thread", False))

    return ValueNode(read, remedy="fork")


def _context(held: contextvars.Context) -> Node:
    """A context that a program keeps. A variable can be set in it again, and not removed."""
    return ValueNode(lambda: dict(held.items()), remedy="fork")


def _mapped(held: mmap.mmap) -> Node | None:
    """Memory that forks may share, and so do workers that execute side by side."""
    if held.closed or len(held) > limits.ISOLATED_BYTES:
        return None
    return ValueNode(lambda: _CLOSED if held.closed else hashlib.sha256(memoryview(held)).digest(), remedy="none")


def _foreign_memory(held: Any) -> Node | None:
    """The node of an object of ctypes, or of multiprocessing, whose memory all processes share; None for another object."""
    kind = type(held)
    if kind.__module__ == "multiprocessing.sharedctypes":
        memory = held.get_obj()
        return ValueNode(lambda: bytes(memory), remedy="none")
    ctypes: Any = sys.modules.get("ctypes")
    if ctypes is None or not issubclass(kind, ctypes.Structure | ctypes.Union | ctypes.Array | ctypes._SimpleCData):
        return None
    shared = type(getattr(held, "_wrapper", None)).__module__ == "multiprocessing.heap"

    def write(kept: bytes) -> None:
        ctypes.memmove(ctypes.addressof(held), kept, len(kept))

    return ValueNode(lambda: bytes(held), None if shared else write, remedy="none" if shared else "restore")


def _numpy_generator(held: Any) -> Node:
    bits = held.bit_generator

    def write(kept: bytes) -> None:
        bits.state = pickle.loads(kept)

    return ValueNode(lambda: pickle.dumps(bits.state), write)


def _numpy_state(held: Any) -> Node:
    return ValueNode(lambda: pickle.dumps(held.get_state()), lambda kept: held.set_state(pickle.loads(kept)))


_MAKERS: Final[dict[type, _Maker]] = {
    contextvars.Context: _context,
    mmap.mmap: _mapped,
    bytearray: _bytearray,
    array: _array,
    queue.SimpleQueue: _simple_queue,
    _LRU: _lru,
    types.GeneratorType: _generator,
    types.CoroutineType: _generator,
    types.AsyncGeneratorType: _generator,
    io.StringIO: _memory_file,
    io.BytesIO: _memory_file,
    io.TextIOWrapper: _file,
    io.BufferedReader: _file,
    io.BufferedWriter: _file,
    io.BufferedRandom: _file,
    io.FileIO: _file,
    sqlite3.Connection: _database,
    random.Random: _random,
    _LOCK: _lock,
    _RLOCK: _rlock,
    Executor: _executor,
}
NATIVE: Final = tuple(_MAKERS)
