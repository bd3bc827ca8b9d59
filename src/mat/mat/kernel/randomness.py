"""Randomness of a run: replacements that draw from streams of the seed and the task, by drawing place (see `callers`).

Covered are `random`, `os.urandom` and with it `secrets` and `uuid4`, unseeded `random.Random()`, names of temporary files,
ids in order of time (`uuid1`, `uuid6`, `uuid7`) with the packages that make them, and numpy's global generator. Ids that
other native code makes are not.
"""

from __future__ import annotations

import functools
import inspect
import os
import random
import ssl
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, Final

from mat.kernel import world as worlds
from mat.kernel.callers import libraries_of, place_of
from mat.kernel.entropy import Entropy

_frame = sys._getframe
_real_urandom = os.urandom
_real_seed_of_class = random.Random.seed
_real_seed, _real_getstate, _real_setstate = random.seed, random.getstate, random.setstate
_TempNames: Any = tempfile._RandomNameSequence  # type: ignore[attr-defined]
_GLOBAL: Final = tuple(name for name, value in vars(random).items() if getattr(value, "__self__", None) is random._inst)
"""The functions of `random` that share one generator, a draw from which would shift everybody's next."""


# -- bytes and generators ---------------------------------------------------------------------------------------------


def _drawing() -> Entropy | None:
    """The entropy of the run that the calling thread belongs to, if any."""
    world = worlds.current()
    return world.entropy if world is not None and world.owns_thread() else None


def _urandom(size: int, /) -> bytes:
    entropy = _drawing()
    if entropy is None:
        return _real_urandom(size)
    return entropy.stream(f"os.urandom/{place_of(_frame(1))}").randbytes(size)


def _getrandom(size: int, flags: int = 0) -> bytes:
    return _urandom(size)


def _seed(generator: random.Random, a: Any = None, version: int = 2) -> None:
    """Seed `random.Random()` from a stream; without a seed it would read the operating system in C."""
    entropy = _drawing() if a is None else None
    if entropy is not None:
        a = entropy.stream(f"random.Random/{place_of(_frame(1))}").getrandbits(128)
    _real_seed_of_class(generator, a, version)


def _of_place(name: str) -> Callable[..., Any]:
    """A function of the module `random`, with a generator for each place in the place of the one that all share."""
    real = getattr(random, name)

    @functools.wraps(real)
    def draw(*args: Any, **kwargs: Any) -> Any:
        entropy = _drawing()
        if entropy is None:
            return real(*args, **kwargs)
        place = place_of(_frame(1))
        generator = entropy.seeded.get(libraries_of(place)) if entropy.seeded else None
        return getattr(generator or entropy.stream(f"random/{place}"), name)(*args, **kwargs)

    draw.__module__, draw.__qualname__ = __name__, f"functions.{name}"  # so that it can be pickled
    return draw


def _random_seed(a: Any = None, version: int = 2) -> None:
    """`random.seed`: from then on all code of the caller's library draws from one generator."""
    entropy = _drawing()
    if entropy is None:
        _real_seed(a, version)
        return
    place = place_of(_frame(1))
    generator = random.Random(0)
    generator.seed(entropy.stream(f"random.seed/{place}").getrandbits(128) if a is None else a, version)
    entropy.seeded[libraries_of(place)] = generator


def _random_setstate(state: Any) -> None:
    """`random.setstate`: like `random.seed`."""
    entropy = _drawing()
    if entropy is None:
        _real_setstate(state)
        return
    generator = random.Random(0)
    generator.setstate(state)
    entropy.seeded[libraries_of(place_of(_frame(1)))] = generator


functions: Final = SimpleNamespace(
    **{name: _of_place(name) for name in _GLOBAL} | {"seed": _random_seed, "setstate": _random_setstate}
)


class _Names(_TempNames):  # type: ignore[misc]
    """Names of temporary files. Where one is taken, and in the search for a folder, the next one is the machine's."""

    def __next__(self) -> str:
        entropy, caller = _drawing(), _frame(1)
        if entropy is None or caller.f_locals.get("seq") or caller.f_code.co_name == "_get_default_tempdir":
            return "".join(self.characters[byte % len(self.characters)] for byte in _real_urandom(8))
        return "".join(entropy.stream(f"tempfile/{place_of(caller)}").choices(self.characters, k=8))


# -- ids in order of time ---------------------------------------------------------------------------------------------


def _in_order(module: ModuleType, name: str, **remembered: object) -> Callable[..., Any]:
    """A function that makes ids in order of time. What its module remembers of the last one is kept for each library apart."""
    real = getattr(module, name)

    @functools.wraps(real)
    def made(*args: Any, **kwargs: Any) -> Any:
        entropy = _drawing()
        if entropy is None:
            return real(*args, **kwargs)
        own = entropy.remembered.setdefault((module.__name__, libraries_of(place_of(_frame(1)))), dict(remembered))
        outer = {key: getattr(module, key) for key in remembered}
        vars(module).update(own)
        try:
            return real(*args, **kwargs)
        finally:
            own.update({key: getattr(module, key) for key in remembered})
            vars(module).update(outer)

    return made


def _uuid_extensions(module: ModuleType) -> Callable[..., Any]:
    """`uuid7` of the package uuid7, which remembers its last id in the default of an argument."""
    real = module.uuid7

    @functools.wraps(real)
    def uuid7(*args: Any, **kwargs: Any) -> Any:
        entropy = _drawing()
        if entropy is not None and len(args) < 4:
            key = (module.__name__, libraries_of(place_of(_frame(1))))
            kwargs.setdefault("_last", entropy.remembered.setdefault(key, {"_last": [0, 0, 0, 0]})["_last"])
        return real(*args, **kwargs)

    return uuid7


def _one(node: int | None = None, clock_seq: int | None = None) -> int:
    return uuid.uuid1(node, clock_seq).int


def _one_of_any_node() -> int:
    return uuid.uuid1(int.from_bytes(os.urandom(6)) | 1 << 40).int


def _six(node: int | None = None, clock_seq: int | None = None, timestamp: int | None = None, nanos: int | None = None) -> int:
    """A version 6 id: of version 1, in order of time. `timestamp` in seconds, and `nanos` more. Source: RFC 9562, 5.6."""
    value = uuid.uuid1(node, clock_seq)
    given = _nanoseconds(timestamp, nanos)
    ticks = value.time if given is None else given // 100 + _GREGORIAN
    return (ticks >> 12 & (1 << 48) - 1) << 80 | 6 << 76 | (ticks & 0xFFF) << 64 | value.int & (1 << 64) - 1


_GREGORIAN: Final = 0x01B21DD213814000
"""Intervals of 100 ns between 1582-10-15, from which versions 1 and 6 count, and 1970-01-01."""


def _nanoseconds(timestamp: int | None, nanos: int | None) -> int | None:
    return None if timestamp is None else timestamp * 10**9 + (nanos or 0)


def _four() -> int:
    return uuid.uuid4().int


def _seven(timestamp: int | None = None, nanos: int | None = None, nanoseconds: int | None = None) -> int:
    """A version 7 id with a counter of 42 bits, which continues within a millisecond. Source: RFC 9562, 6.2, method 1.

    `timestamp` in seconds, and `nanos` more, or `nanoseconds`: the id of another moment than now.
    """
    entropy = _drawing()
    assert entropy is not None
    last = entropy.remembered.setdefault(("uuid7", libraries_of(place_of(_frame(1)))), {"ms": -1, "counter": 0})
    nanoseconds = _nanoseconds(timestamp, nanos) if nanoseconds is None else nanoseconds
    now_ms = (time.time_ns() if nanoseconds is None else nanoseconds) // 10**6
    if nanoseconds is not None or now_ms > last["ms"]:
        counter = int.from_bytes(os.urandom(6)) & (1 << 41) - 1
    else:
        now_ms, counter = last["ms"], last["counter"] + 1
    if nanoseconds is None:
        last.update(ms=now_ms, counter=counter)
    high, low = counter >> 30 & 0xFFF, counter & (1 << 30) - 1
    tail = int.from_bytes(os.urandom(4))
    return (now_ms & (1 << 48) - 1) << 80 | 7 << 76 | high << 64 | 2 << 62 | low << 32 | tail


_NATIVE: Final[dict[str, tuple[Callable[..., int], str]]] = {
    "uuid1": (_one, "id"), "uuid_v1mc": (_one_of_any_node, "id"), "uuid4": (_four, "id"), "uuid6": (_six, "id"),
    "uuid7": (_seven, "id"), "_uuid4_int": (_four, "int"), "_uuid7_int": (_seven, "int"), "uuid4_bulk": (_four, "ids"),
    "uuid4_as_strings_bulk": (_four, "texts"), "uuid7_bulk": (_seven, "ids"), "uuid7_as_strings_bulk": (_seven, "texts"),
}  # fmt: skip
"""Functions of uuid_utils and fastuuid, which draw and read the clock in Rust: the id that each makes, and what it returns."""


def _native(module: ModuleType, name: str) -> Callable[..., Any]:
    real, (make, shape) = getattr(module, name), _NATIVE[name]
    signature = inspect.signature(real)  # releases differ in the names and order of arguments

    @functools.wraps(real)
    def made(*args: Any, **kwargs: Any) -> Any:
        if _drawing() is None:
            return real(*args, **kwargs)
        if shape in ("ids", "texts"):
            found = [module.UUID(int=make()) for _ in range(*args, **kwargs)]
            return [str(item) for item in found] if shape == "texts" else found
        number = make(**signature.bind(*args, **kwargs).arguments)
        return number if shape == "int" else module.UUID(int=number)

    return made


# -- what is replaced -------------------------------------------------------------------------------------------------

_STANDARD_IDS: Final = tuple(
    (uuid, name, _in_order(uuid, name, **remembered))
    for name, remembered in (
        ("uuid1", {"_last_timestamp": None}),
        ("uuid6", {"_last_timestamp_v6": None}),
        ("uuid7", {"_last_timestamp_v7": None, "_last_counter_v7": 0}),
    )
    if hasattr(uuid, name)
)
REPLACED: Final[tuple[tuple[Any, str, Any], ...]] = (
    (os, "urandom", _urandom), (random, "_urandom", _urandom), (ssl, "RAND_bytes", _urandom),
    *(((os, "getrandom", _getrandom),) if hasattr(os, "getrandom") else ()),
    *((random, name, function) for name, function in vars(functions).items()), (random.Random, "seed", _seed),
    (tempfile, "_RandomNameSequence", _Names), (tempfile, "_name_sequence", _Names()), *_STANDARD_IDS,
)  # fmt: skip
BOUND_EARLIER: Final[dict[int, Any]] = {
    id(getattr(owner, name)): value for owner, name, value in REPLACED if isinstance(owner, ModuleType) and name[0] != "_"
}
"""Replacements by the id of the original, which a module may have imported before the run."""
_originals: dict[str, list[object]] = {}
"""By package, its functions that make ids. They must stay alive, because they are known by their ids."""


def of_packages() -> dict[int, Any]:
    """More of `BOUND_EARLIER`: for the packages that make ids and were imported since the last call."""
    found: dict[int, Any] = {}
    for name in ("uuid6", "uuid_extensions.uuid7", "uuid_utils", "fastuuid"):
        module = sys.modules.get(name)
        if module is not None and name not in _originals:
            _originals[name] = []
            for real, replacement in _in_package(name, module):
                _originals[name].append(real)
                found[id(real)] = replacement
    return found


def _in_package(name: str, module: ModuleType) -> Iterator[tuple[Any, Callable[..., Any]]]:
    """The functions of a package that make ids, with their replacements."""
    if name == "uuid6":
        for version in (6, 7, 8):
            real = getattr(module, f"uuid{version}", None)
            if real is not None and hasattr(module, f"_last_v{version}_timestamp"):
                yield real, _in_order(module, f"uuid{version}", **{f"_last_v{version}_timestamp": None})
    elif name == "uuid_extensions.uuid7":
        yield module.uuid7, _uuid_extensions(module)
    else:
        for function in _NATIVE:
            if hasattr(module, function):
                yield getattr(module, function), _native(module, function)


def seed_shared(entropy: Entropy) -> Callable[[], None]:
    """Seed the generators that all places share, for what draws from them directly; return what restores them.

    These are the one behind the module `random` and, if numpy is imported, its global one.
    """
    state = _real_getstate()
    _real_seed(entropy.seed_of("random"))
    numpy_random: Any = sys.modules.get("numpy.random")
    if not hasattr(numpy_random, "set_state"):
        return functools.partial(_real_setstate, state)
    numpy_state = numpy_random.get_state()
    numpy_random.seed(entropy.seed_of("numpy.random") & 0xFFFF_FFFF)

    def restore() -> None:
        _real_setstate(state)
        numpy_random.set_state(numpy_state)

    return restore
