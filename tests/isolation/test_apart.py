"""The module of another test is compared where anything leads to it, and only there."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import ModuleType

import pytest

from mat.core import limits
from mat.kernel.apart import ApartState
from mat.kernel.isolation import Isolation, Ownership, ProcessState

_NUMBERS = count()
OTHER = """
    import asyncio
    import functools

    LAST = {}


    class Desk:
        seen = LAST


    class Slotted(Desk):
        __slots__ = ()


    class Meta(type):
        pass


    class Pure:
        pass


    def remember(value=1):
        LAST["fx"] = value


    def steps():
        yield remember()


    async def ask():
        remember()


    DESK = Desk()
    METHOD = DESK.__init__
"""
# Each way to get from the module of a test to that of another one, whose name is OTHER here; `run` is what is executed.
WAYS = {
    "module": "import OTHER as other",
    "function": "from OTHER import remember",
    "renamed function": "from OTHER import remember\nremember.__module__ = 'elsewhere'",
    "class": "from OTHER import Desk",
    "base class": "from OTHER import Desk\nclass Own(Desk): pass",
    "metaclass": "from OTHER import Meta\nclass Own(metaclass=Meta): pass",
    "class of a library": (
        "import types\nfrom OTHER import Desk\nMADE = types.new_class('Made', (Desk,))\nMADE.__module__ = 'pydantic'"
    ),
    "instance": "from OTHER import DESK",
    "instance without attributes": "from OTHER import Pure\nMADE = Pure()",
    "instance with slots": "from OTHER import Slotted\nMADE = [{'a': (Slotted(),)}]",
    "bound method": "from OTHER import METHOD",
    "partial": "import functools\nfrom OTHER import remember\nLATER = functools.partial(remember, 2)",
    "partial of a partial": (
        "import functools\nfrom OTHER import remember\nLATER = functools.partial(map, functools.partial(remember, 2))"
    ),
    "cache": "import functools\nfrom OTHER import remember\nLATER = functools.lru_cache(remember)",
    "wrapper": "import functools\nfrom OTHER import remember\n@functools.wraps(remember)\ndef own(): pass",
    "closure": "from OTHER import remember as taken\ndef make(held):\n    return lambda: held\nOWN = make(taken)\ndel taken",
    "default": "import OTHER\ndef own(held=OTHER.remember): pass\ndel OTHER",
    "attribute of a function": "import OTHER\ndef own(): pass\nown.held = OTHER.remember\ndel OTHER",
    "key of a dict": "import OTHER\nHELD = {OTHER.remember: 1}\ndel OTHER",
    "deque": "import OTHER, collections\nHELD = collections.deque([OTHER.DESK])\ndel OTHER",
    "generator": "import OTHER\nHELD = OTHER.steps()\ndel OTHER",
    "coroutine": "import OTHER\nHELD = OTHER.ask()\ndel OTHER",
    "iterator": "import OTHER\nHELD = map(OTHER.remember, [])\ndel OTHER",
    "weak reference": "import OTHER, weakref\nHELD = weakref.ref(OTHER.remember)\ndel OTHER",
    "weak set": "import OTHER, weakref\nHELD = weakref.WeakSet([OTHER.DESK])\ndel OTHER",
    "weak values": "import OTHER, weakref\nHELD = weakref.WeakValueDictionary(a=OTHER.DESK)\ndel OTHER",
    "context variable": (
        "import OTHER\nfrom contextvars import ContextVar\nHELD = ContextVar('held', default=OTHER.remember)\ndel OTHER"
    ),
    "property": "import OTHER\nclass Own:\n    held = property(OTHER.remember)\ndel OTHER",
    "static method": "import OTHER\nclass Own:\n    held = staticmethod(OTHER.remember)\ndel OTHER",
    "object of a library": "import OTHER, threading\nHELD = threading.Timer(9, OTHER.remember)\ndel OTHER",
    "exception": "import OTHER\nHELD = ValueError(OTHER.DESK)\ndel OTHER",
    "import in a function": "def run():\n    import OTHER\n    OTHER.remember()",
    "import from, in a function": "def run():\n    from OTHER import remember\n    remember()",
    "import in a nested function": "def run():\n    def inner():\n        import OTHER\n        OTHER.remember()\n    inner()",
    "import in a method": (
        "class Own:\n    @staticmethod\n    def run():\n        import OTHER\n        OTHER.remember()\nrun = Own.run"
    ),
    "import in a lambda": "run = lambda: __import__('OTHER').remember()",
    "import in a wrapper": (
        "import functools, json\n@functools.wraps(json.loads)\ndef run():\n    import OTHER\n    OTHER.remember()"
    ),
    "name in a text": "import pkgutil\nrun = lambda: pkgutil.resolve_name('OTHER:remember')()",
    "computed name": "import importlib\nrun = lambda: importlib.import_module(NAME).remember()\nNAME = ''.join(['OTH', 'ER'])",
    "all modules": (
        "import sys\ndef run():\n    for name, module in list(sys.modules.items()):\n        if name == NAME:\n"
        "            module.remember()\nNAME = ''.join(['OTH', 'ER'])"
    ),
    "all objects": (
        "import gc, types\ndef run():\n    for each in gc.get_objects():\n"
        "        if isinstance(each, types.FunctionType) and each.__module__ == NAME and each.__name__ == 'remember':\n"
        "            each()\nNAME = ''.join(['OTH', 'ER'])"
    ),
    "subclasses": (
        "import OTHER\nclass Base: pass\n"
        "OTHER.Own = type('Own', (Base,), {'__module__': OTHER.__name__, 'held': OTHER.remember})\ndel OTHER\n"
        "run = lambda: Base.__subclasses__()[0].held()"
    ),
}  # fmt: skip
Pair = Callable[[str], tuple[ModuleType, ModuleType]]


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """Write and import the module of another test, and then a module of a test whose code leads to it."""
    monkeypatch.syspath_prepend(tmp_path)
    loaded: list[str] = []

    def load(name: str, text: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(text)
        loaded.append(name)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    def pair(code: str) -> tuple[ModuleType, ModuleType]:
        name = f"test_other{next(_NUMBERS)}"
        other = load(name, textwrap.dedent(OTHER))
        halves = f"{name[:3]!r}, {name[3:]!r}"
        return other, load(f"own{next(_NUMBERS)}", code.replace("'OTH', 'ER'", halves).replace("OTHER", name))

    yield pair
    for name in loaded:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("way", WAYS)
def test_what_leads_to_another_tests_module_has_it_compared(way: str, pair: Pair, tmp_path: Path) -> None:
    other, own = pair(WAYS[way])
    isolation = Isolation([str(tmp_path)])
    isolation.start({}, apart=ApartState([other]))
    isolation.execute(getattr(own, "run", other.remember))
    assert other.LAST == {}, "an execution left something"
    assert [each.remedy for each in isolation.found] == ["restore"]
    assert all(each.name.endswith(("LAST", "seen", "held")) or "LAST" in each.name for each in isolation.found)


def test_what_nothing_leads_to_is_compared_now_and_then(pair: Pair, tmp_path: Path) -> None:
    other, _ = pair("import json\nDESK = {}\ndef run(items):\n    return json.dumps(DESK)")
    ownership = Ownership([str(tmp_path)])
    assert ProcessState(ownership, {}, ApartState([other])).size < ProcessState(ownership, {}).size
    isolation = Isolation([str(tmp_path)])
    isolation.start({}, apart=ApartState([other]))
    isolation.execute(other.remember)
    assert not isolation.found
    isolation.execute(lambda: None)
    assert [(each.name, each.remedy) for each in isolation.found] == [(f"{other.__name__}.LAST", "fork")]
    assert other.LAST == {}


def test_what_the_tests_of_a_module_did_is_no_change_by_others(pair: Pair, tmp_path: Path) -> None:
    other, _ = pair("DESK = {}")
    apart = ApartState([other])
    isolation = Isolation([str(tmp_path)])
    other.remember()
    other.remember.called = [1]
    other.Desk.more = {}
    for _ in range(2):
        isolation.start({}, apart=apart)
        isolation.execute(lambda: None)
        isolation.look_apart()
        assert not isolation.found
    other.remember.called.append(2)
    isolation.look_apart()
    assert other.remember.called == [1]
    assert isolation.found


def test_what_a_fixture_or_an_import_of_a_run_changes_stays(pair: Pair, tmp_path: Path) -> None:
    other, _ = pair("DESK = {}")
    isolation = Isolation([str(tmp_path)])
    isolation.start({}, apart=ApartState([other]))

    def execution() -> None:
        with isolation.settling():
            other.remember("started")
        other.Desk.more = 1

    isolation.execute(execution)
    isolation.look_apart()
    assert other.LAST == {"fx": "started"}
    assert not hasattr(other.Desk, "more")
    assert [each.name for each in isolation.found] == [f"{other.__name__}.Desk.more"]


def test_two_modules_of_one_name_are_compared_around_each_execution(pair: Pair, tmp_path: Path) -> None:
    other, own = pair("LAST = {}")
    own.__name__ = other.__name__
    isolation = Isolation([str(tmp_path)])
    isolation.start({}, apart=ApartState([other, own]))
    isolation.execute(lambda: (other.remember(), own.LAST.update(fx=1)))
    assert other.LAST == own.LAST == {}
    assert [each.remedy for each in isolation.found] == ["restore"]


def test_modules_that_are_too_much_to_compare_are_compared_around_each_execution(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, _ = pair("DESK = {}")
    monkeypatch.setattr(limits, "APART_NODES", 3)
    isolation = Isolation([str(tmp_path)])
    isolation.start({}, apart=ApartState([other]))
    isolation.execute(other.remember)
    assert other.LAST == {}
    assert [each.remedy for each in isolation.found] == ["restore"]


def test_a_package_does_not_lead_to_its_tests_unless_somebody_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    name = f"package{next(_NUMBERS)}"
    (tmp_path / name).mkdir()
    for part in ("__init__", "test_one", "helpers"):
        (tmp_path / name / f"{part}.py").write_text("LAST = {}")
    other = importlib.import_module(f"{name}.test_one")
    own = importlib.import_module(f"{name}.helpers")

    def found() -> list[str]:
        isolation = Isolation([str(tmp_path)])
        isolation.start({}, apart=ApartState([other]))
        isolation.execute(lambda: other.LAST.update(fx=1))
        other.LAST.clear()
        return [each.remedy for each in isolation.found]

    assert found() == []
    own.held = sys.modules[name]
    assert found() == ["restore"]


def test_a_chain_of_modules_is_compared_to_its_end(pair: Pair, tmp_path: Path) -> None:
    last, middle = pair("def run():\n    import OTHER\n    OTHER.remember()")
    _, own = pair(f"import {middle.__name__} as middle")
    isolation = Isolation([str(tmp_path)])
    isolation.start({}, apart=ApartState([last, middle]))
    isolation.execute(own.middle.run)
    assert last.LAST == {}
    assert isolation.found


def test_a_fixture_that_leads_to_another_tests_module_has_it_compared(pair: Pair, tmp_path: Path) -> None:
    other, _ = pair("DESK = {}")
    isolation = Isolation([str(tmp_path)])
    isolation.start({"fixture desk": other.DESK}, apart=ApartState([other]))
    isolation.execute(other.remember)
    assert other.LAST == {}
    assert isolation.found


def test_what_is_compared_already_is_found_once_and_with_its_own_remedy(pair: Pair, tmp_path: Path) -> None:
    """The module of the item itself is among those of all tests."""
    other, own = pair("import mmap\nPAGE = mmap.mmap(-1, 8)")
    isolation = Isolation([str(tmp_path)])
    isolation.start({}, apart=ApartState([other, own]), root=own)
    isolation.execute(lambda: own.PAGE.__setitem__(0, 1), leave=True)
    isolation.look_apart()
    assert not isolation.found
    isolation.restore()
    assert [each.remedy for each in isolation.found] == ["none"]
