# ruff: noqa: E501
"""Where an agent keeps what outlives a run, as source code.

Each place defines, for `agents`:

- `tick(BOX)`: how often it was called before; 0 at first. A place that is `binary` returns 0 at first and later other numbers.
- where the place can hold a number: `recall(BOX)`, None at first, and `keep(BOX_ number)`.
- where a run can put it back: `forget(BOX)`.

BOX stands for the parameter of a place that is a fixture's value and for nothing elsewhere, BOX_ for the same with a comma;
NAME for a word that no other agent has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

TICK: Final = """
def tick(BOX):
    count = recall(BOX) or 0
    keep(BOX_ count + 1)
    return count
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A place, with what its module needs."""

    name: str
    code: str
    holds: bool = True
    """Whether it can hold a number: it has `recall` and `keep`."""
    forgets: bool = False
    binary: bool = False
    scope: str = ""
    """Of the fixture `box`, where the place is its value."""
    files: dict[str, str] = field(default_factory=dict)
    """More modules of the user, by name."""
    folders: tuple[str, ...] = ()
    shared: bool = False
    """Whether every process sees it: no fork has one of its own."""

    @property
    def source(self) -> str:
        return self.code + (TICK if self.holds else "")


def cell(name: str, setup: str, recall: str, keep: str, forget: str = "", **more: object) -> Store:
    """A place that holds a number. Each part is a block of code; `recall` and `forget` see BOX, `keep` also `number`."""
    code = f"{setup.strip()}\n\n\ndef recall(BOX):\n{_block(recall)}\n\n\ndef keep(BOX_ number):\n{_block(keep)}\n"
    if forget:
        code += f"\n\ndef forget(BOX):\n{_block(forget)}\n"
    return Store(name=name, code=code, forgets=bool(forget), **more)  # type: ignore[arg-type]


def ticks(name: str, setup: str, tick: str, forget: str = "", **more: object) -> Store:
    """A place that only tells how often it was touched."""
    code = f"{setup.strip()}\n\n\ndef tick(BOX):\n{_block(tick)}\n"
    if forget:
        code += f"\n\ndef forget(BOX):\n{_block(forget)}\n"
    return Store(name=name, code=code, holds=False, forgets=bool(forget), **more)  # type: ignore[arg-type]


def _block(text: str) -> str:
    return "\n".join("    " + line for line in text.strip().splitlines())


NAMES: Final = (
    cell("module global", "LAST = None", "return LAST", "global LAST\nLAST = number", "global LAST\nLAST = None"),
    cell(
        "class attribute", "class Desk:\n    last = None",
        "return Desk.last", "Desk.last = number", "Desk.last = None",
    ),
    cell(
        "attribute of a subclass that hides its parent's",
        "class Desk:\n    last = None\n\n\nclass NightDesk(Desk):\n    pass",
        "return NightDesk.last", "NightDesk.last = number", "if 'last' in vars(NightDesk):\n    del NightDesk.last",
    ),
    cell(
        "private attribute of a class, set by a class method",
        """
class Desk:
    __last = None

    @classmethod
    def last(cls):
        return cls.__last

    @classmethod
    def note(cls, number):
        cls.__last = number
        """, "return Desk.last()", "Desk.note(number)", "Desk.note(None)",
    ),
    cell(
        "instance on a module's singleton",
        "class Desk:\n    def __init__(self):\n        self.last = None\n\n\nDESK = Desk()",
        "return DESK.last", "DESK.last = number", "DESK.last = None",
    ),
    cell(
        "instance three objects away",
        """
class Part:
    pass


def _office():
    office = Part()
    office.desks = {"a": [Part(), Part()]}
    return office


OFFICE = _office()
        """, 'return getattr(OFFICE.desks["a"][1], "last", None)', 'OFFICE.desks["a"][1].last = number',
        'vars(OFFICE.desks["a"][1]).clear()',
    ),
    cell(
        "closure", """
def _desk():
    last = None

    def get():
        return last

    def put(number):
        nonlocal last
        last = number

    return get, put


_get, _put = _desk()
        """, "return _get()", "_put(number)", "_put(None)",
    ),
    cell(
        "default of a parameter", "def _memo(seen={}):  # noqa: B006\n    return seen",
        'return _memo().get("last")', '_memo()["last"] = number', "_memo().clear()",
    ),
    cell(
        "default of a keyword parameter, replaced", "def _memo(*, last=None):\n    return last",
        "return _memo()", '_memo.__kwdefaults__ = {"last": number}', '_memo.__kwdefaults__ = {"last": None}',
    ),
    cell(
        "attribute of a function", "def desk():\n    return desk.last\n\n\ndesk.last = None",
        "return desk()", "desk.last = number", "desk.last = None",
    ),
    cell("partial with a dict", 'import functools\n\nDESK = functools.partial(dict.get, {}, "last")',
         "return DESK()", 'DESK.args[0]["last"] = number', "DESK.args[0].clear()"),
    cell("attribute of a bound method's object",
         "class Desk(dict):\n    def last(self):\n        return self.get('last')\n\n\nlast_known = Desk().last",
         "return last_known()", "last_known.__self__['last'] = number", "last_known.__self__.clear()"),
    cell(
        "a function that is replaced", "def last_known():\n    return None\n\n\n_first = last_known",
        "return last_known()",
        "global last_known\n\ndef answer():\n    return number\n\nlast_known = answer",
        "global last_known\nlast_known = _first",
    ),
    cell(
        "a method that is replaced on the instance",
        "class Desk:\n    def last(self):\n        return None\n\n\nDESK = Desk()",
        "return DESK.last()", "DESK.last = lambda: number", "vars(DESK).clear()",
    ),
    cell(
        "the class of an object",
        """
class Cold:
    number = None


def _state(number):
    return type("Warm", (), {"number": number})


class Desk(Cold):
    pass


DESK = Desk()
        """, "return DESK.number", "DESK.__class__ = type('Warm', (Cold,), {'number': number})", "DESK.__class__ = Desk",
    ),
    cell("dict", "SEEN = {}", 'return SEEN.get("last")', 'SEEN["last"] = number', "SEEN.clear()"),
    cell("nested dict", 'SEEN = {"rates": {}}', 'return SEEN["rates"].get("EUR")', 'SEEN["rates"]["EUR"] = number',
         'SEEN["rates"].clear()'),
    cell("dict that is replaced", "SEEN = {}", 'return SEEN.get("last")',
         "global SEEN\nSEEN = {**SEEN, 'last': number}", "global SEEN\nSEEN = {}"),
    cell("list", "SEEN = []", "return SEEN[-1] if SEEN else None", "SEEN.append(number)", "SEEN.clear()"),
    cell("list in a tuple", "SEEN = ('rates', [])", "return SEEN[1][-1] if SEEN[1] else None", "SEEN[1].append(number)",
         "del SEEN[1][:]"),
    cell("set", "SEEN = set()", "return max(SEEN, default=None)", "SEEN.add(number)", "SEEN.clear()"),
    cell("deque", "import collections\n\nSEEN = collections.deque(maxlen=4)", "return SEEN[-1] if SEEN else None",
         "SEEN.append(number)", "SEEN.clear()"),
    cell("Counter", "import collections\n\nSEEN = collections.Counter()", 'return SEEN["last"] or None',
         'SEEN["last"] = number', "SEEN.clear()"),
    cell("defaultdict", "import collections\n\nSEEN = collections.defaultdict(list)",
         'return SEEN["EUR"][-1] if SEEN["EUR"] else None', 'SEEN["EUR"].append(number)', "SEEN.clear()"),
    cell("OrderedDict", "import collections\n\nSEEN = collections.OrderedDict(a=None, b=None)",
         'return SEEN["b"]', 'SEEN["b"] = number\nSEEN.move_to_end("a")', 'SEEN["b"] = None\nSEEN.move_to_end("b")'),
    cell("order of a dict", 'RANKS = dict.fromkeys(["x", *range(40)])',
         'first = next(iter(RANKS))\nreturn None if first == "x" else RANKS[first]',
         'RANKS.pop("x", None)\nRANKS[next(iter(RANKS))] = number'),
    cell("ChainMap", "import collections\n\nSEEN = collections.ChainMap({}, {})", 'return SEEN.get("last")',
         'SEEN["last"] = number', "SEEN.maps[0].clear()"),
    cell("UserDict", "import collections\n\nSEEN = collections.UserDict()", 'return SEEN.get("last")',
         'SEEN["last"] = number', "SEEN.clear()"),
    cell("attributes of a list's subclass", "class Rates(list):\n    pass\n\n\nRATES = Rates()",
         'return getattr(RATES, "last", None)', "RATES.last = number", "vars(RATES).clear()"),
    cell("SimpleNamespace", "import types\n\nDESK = types.SimpleNamespace(last=None)", "return DESK.last",
         "DESK.last = number", "DESK.last = None"),
    cell("slots", 'class Desk:\n    __slots__ = ("last",)\n\n\nDESK = Desk()', 'return getattr(DESK, "last", None)',
         "DESK.last = number", 'if hasattr(DESK, "last"):\n    del DESK.last'),
    cell("slots of a parent class",
         'class Base:\n    __slots__ = ("last",)\n\n\nclass Desk(Base):\n    __slots__ = ("other",)\n\n\nDESK = Desk()',
         'return getattr(DESK, "last", None)', "DESK.last = number", 'if hasattr(DESK, "last"):\n    del DESK.last'),
    cell("dataclass", "import dataclasses\n\n\n@dataclasses.dataclass\nclass Desk:\n    last: int | None = None\n\n\nDESK = Desk()",
         "return DESK.last", "DESK.last = number", "DESK.last = None"),
    cell("list in a frozen dataclass",
         "import dataclasses\n\n\n@dataclasses.dataclass(frozen=True, slots=True)\nclass Desk:\n    rates: list\n\n\nDESK = Desk([])",
         "return DESK.rates[-1] if DESK.rates else None", "DESK.rates.append(number)", "DESK.rates.clear()"),
    cell("frozen dataclass, changed by force",
         "import dataclasses\n\n\n@dataclasses.dataclass(frozen=True)\nclass Desk:\n    last: int | None = None\n\n\nDESK = Desk()",
         "return DESK.last", 'object.__setattr__(DESK, "last", number)', 'object.__setattr__(DESK, "last", None)'),
    cell("attribute of an enum's member", 'import enum\n\n\nclass Desk(enum.Enum):\n    FRONT = "front"',
         'return getattr(Desk.FRONT, "last", None)', "Desk.FRONT.last = number", 'vars(Desk.FRONT).pop("last", None)'),
    cell("cached property",
         """
import functools


class Desk:
    @functools.cached_property
    def rates(self):
        return []


DESK = Desk()
         """, "return DESK.rates[-1] if DESK.rates else None", "DESK.rates.append(number)", 'vars(DESK).pop("rates", None)'),
    cell("settings behind lru_cache", "import functools\n\n\n@functools.lru_cache\ndef settings():\n    return {}",
         'return settings().get("last")', 'settings()["last"] = number', "settings.cache_clear()"),
    cell("os.environ", "import os", 'text = os.environ.get("NAME_LAST")\nreturn int(text) if text else None',
         'os.environ["NAME_LAST"] = str(number)', 'os.environ.pop("NAME_LAST", None)'),
    cell("os.environ, by putenv's mapping of bytes", "import os",
         'text = os.environb.get(b"NAME_LAST")\nreturn int(text) if text else None',
         'os.environb[b"NAME_LAST"] = str(number).encode()', 'os.environb.pop(b"NAME_LAST", None)'),
    cell("ContextVar", 'import contextvars\n\nLAST = contextvars.ContextVar("NAME", default=None)', "return LAST.get()",
         "LAST.set(number)", "LAST.set(None)"),
    cell("list in a ContextVar", 'import contextvars\n\nLAST = contextvars.ContextVar("NAME", default=[])',
         "return LAST.get()[-1] if LAST.get() else None", "LAST.get().append(number)", "LAST.get().clear()"),
    cell("contextvars.Context", 'import contextvars\n\nVAR = contextvars.ContextVar("NAME")\nCONTEXT = contextvars.Context()',
         "return CONTEXT.run(VAR.get, None)", "CONTEXT.run(VAR.set, number)", "CONTEXT.run(VAR.set, None)"),
    cell("threading.local", "import threading\n\nLOCAL = threading.local()", 'return getattr(LOCAL, "last", None)',
         "LOCAL.last = number", "vars(LOCAL).clear()"),
    cell("WeakKeyDictionary", "import weakref\n\n\nclass Key:\n    pass\n\n\nKEY = Key()\nSEEN = weakref.WeakKeyDictionary()",
         "return SEEN.get(KEY)", "SEEN[KEY] = number", "SEEN.clear()"),
    cell("WeakValueDictionary",
         """
import weakref


class Rate:
    def __init__(self, number):
        self.number = number


SEEN = weakref.WeakValueDictionary()
KEPT = []
         """,
         'rate = SEEN.get("EUR")\nreturn None if rate is None else rate.number',
         'KEPT.append(Rate(number))\nSEEN["EUR"] = KEPT[-1]', "KEPT.clear()\nSEEN.clear()"),
    cell("WeakSet", "import weakref\n\n\nclass Rate:\n    pass\n\n\nRATES = weakref.WeakSet()\nKEPT = []",
         "return max((rate.number for rate in RATES), default=None)",
         "rate = Rate()\nrate.number = number\nKEPT.append(rate)\nRATES.add(rate)", "KEPT.clear()\nRATES.clear()"),
    cell("attribute of a stdlib module", "import json", 'return getattr(json, "NAME_last", None)', "json.NAME_last = number",
         'vars(json).pop("NAME_last", None)'),
    cell("function of a stdlib module, replaced", "import fractions\n\n_gcd = fractions.math.isqrt",
         'return getattr(fractions, "NAME", lambda: None)()', "fractions.NAME = lambda: number",
         'vars(fractions).pop("NAME", None)'),
    cell("monkeypatched method of a stdlib class", "import string",
         'return string.Template.__dict__.get("NAME", lambda self: None)(None)',
         'setattr(string.Template, "NAME", lambda self: number)',
         'if "NAME" in vars(string.Template):\n    delattr(string.Template, "NAME")'),
    cell("logger level", 'import logging\n\nLOG = logging.getLogger("NAME")', "return LOG.level or None",
         "LOG.setLevel(number)", "LOG.setLevel(0)"),
    cell("attribute of a logger", "import logging", 'return getattr(logging.getLogger("NAME"), "last", None)',
         'logging.getLogger("NAME").last = number', 'vars(logging.getLogger("NAME")).pop("last", None)'),
    cell("logger's handlers", 'import logging\n\nLOG = logging.getLogger("NAME")',
         "return LOG.handlers[-1].level if LOG.handlers else None", "LOG.addHandler(logging.NullHandler(number))",
         "LOG.handlers.clear()"),
    cell("module put into sys.modules", "import sys\nimport types",
         'found = sys.modules.get("NAME_rates")\nreturn None if found is None else found.last',
         'module = types.ModuleType("NAME_rates")\nmodule.last = number\nsys.modules["NAME_rates"] = module',
         'sys.modules.pop("NAME_rates", None)'),
    cell("attribute of builtins", "import builtins", 'return getattr(builtins, "NAME_last", None)', "builtins.NAME_last = number",
         'vars(builtins).pop("NAME_last", None)'),
    cell("registry filled by a decorator",
         """
RATES = {}


def rate(function):
    RATES[function.__name__] = function
    return function
         """, 'return RATES["euro"]() if "euro" in RATES else None',
         "@rate\ndef euro():\n    return number", "RATES.clear()"),
    cell("registry filled by a metaclass",
         """
class Registry(type):
    known = []

    def __init__(cls, name, bases, space):
        super().__init__(name, bases, space)
        if bases:
            Registry.known.append(cls)


class Rate(metaclass=Registry):
    number = None
         """, "return Registry.known[-1].number if Registry.known else None", 'Registry("Euro", (Rate,), {"number": number})',
         "Registry.known.clear()"),
    cell("registry filled by __init_subclass__",
         """
class Rate:
    known = {}

    def __init_subclass__(cls, **more):
        Rate.known["last"] = cls
         """, 'return Rate.known["last"].number if Rate.known else None', 'type("Euro", (Rate,), {"number": number})',
         "Rate.known.clear()"),
    cell("singledispatch registry",
         """
import functools


@functools.singledispatch
def rate(value):
    return None
         """, "return rate(1)", "rate.register(int, lambda value: number)"),
    cell("abstract base class", "import abc\n\n\nclass Warm(abc.ABC):\n    pass\n\n\nclass Desk:\n    last = 1",
         "return Desk.last if issubclass(Desk, Warm) else None", "Warm.register(Desk)\nDesk.last = number"),
    cell("pydantic model", "import pydantic\n\n\nclass Desk(pydantic.BaseModel):\n    last: int | None = None\n\n\nDESK = Desk()",
         "return DESK.last", "DESK.last = number", "DESK.last = None"),
    cell("private attribute of a pydantic model",
         "import pydantic\n\n\nclass Desk(pydantic.BaseModel):\n    _last: int | None = pydantic.PrivateAttr(None)\n\n\nDESK = Desk()",
         "return DESK._last", "DESK._last = number", "DESK._last = None"),
    cell("numpy array", "import numpy\n\nRATES = numpy.zeros(3, dtype=int)", "return int(RATES[1]) or None", "RATES[1] = number",
         "RATES[:] = 0"),
    cell("view of a numpy array", "import numpy\n\nRATES = numpy.zeros((2, 2), dtype=int)\nROW = RATES[1]",
         "return int(RATES[1, 0]) or None", "ROW[0] = number", "ROW[:] = 0"),
    cell("bytearray", "RATES = bytearray(2)", 'return int.from_bytes(RATES, "big") or None',
         'RATES[:] = number.to_bytes(2, "big")', "RATES[:] = bytes(2)"),
    cell("array.array", 'import array\n\nRATES = array.array("i", [0])', "return RATES[0] or None", "RATES[0] = number",
         "RATES[0] = 0"),
    cell("ctypes number", "import ctypes\n\nRATE = ctypes.c_int(0)", "return RATE.value or None", "RATE.value = number",
         "RATE.value = 0"),
    cell("memoryview", "RATES = memoryview(bytearray(4)).cast('i')", "return RATES[0] or None", "RATES[0] = number", "RATES[0] = 0"),
    cell("BytesIO", "import io\n\nBUFFER = io.BytesIO()", 'return int(BUFFER.getvalue() or b"0") or None',
         "BUFFER.seek(0)\nBUFFER.truncate()\nBUFFER.write(str(number).encode())", "BUFFER.seek(0)\nBUFFER.truncate()"),
    cell("StringIO", "import io\n\nLOG = io.StringIO()", 'lines = LOG.getvalue().split()\nreturn int(lines[-1]) if lines else None',
         'LOG.write(f"{number}\\n")'),
    cell("SimpleCookie", "import http.cookies\n\nJAR = http.cookies.SimpleCookie()",
         'return int(JAR["last"].value) if "last" in JAR else None', 'JAR["last"] = str(number)', "JAR.clear()"),
    cell("ConfigParser", 'import configparser\n\nCONFIG = configparser.ConfigParser()\nCONFIG.add_section("rates")',
         'return CONFIG.getint("rates", "last", fallback=None)', 'CONFIG.set("rates", "last", str(number))',
         'CONFIG.remove_option("rates", "last")'),
    cell("XML tree", 'import xml.etree.ElementTree as tree\n\nDESK = tree.Element("desk")',
         'text = DESK.get("last")\nreturn int(text) if text else None', 'DESK.set("last", str(number))',
         'DESK.attrib.pop("last", None)'),
    cell("SQLite in memory",
         """
import sqlite3

BASE = sqlite3.connect(":memory:", check_same_thread=False)
BASE.execute("CREATE TABLE rates (number INTEGER)")
BASE.commit()
         """, 'return BASE.execute("SELECT max(number) FROM rates").fetchone()[0]',
         'BASE.execute("INSERT INTO rates VALUES (?)", (number,))\nBASE.commit()',
         'BASE.execute("DELETE FROM rates")\nBASE.commit()'),
    cell("queue.Queue", "import queue\n\nRATES = queue.Queue()", "return RATES.queue[-1] if RATES.queue else None",
         "RATES.put(number)", "RATES.queue.clear()"),
    cell("heap", "import heapq\n\nRATES = []", "return -RATES[0] if RATES else None", "heapq.heappush(RATES, -number)",
         "RATES.clear()"),
    cell("local of a suspended generator",
         """
def _desk():
    last = None
    while True:
        sent = yield last
        if sent is not None:
            last = sent


DESK = _desk()
next(DESK)
         """, "return DESK.send(None)", "DESK.send(number)"),
    cell("arguments of a kept exception", "FAILED = RuntimeError()", "return FAILED.args[-1] if FAILED.args else None",
         "FAILED.args = (number,)", "FAILED.args = ()"),
    cell("annotations of a function", "def desk():\n    pass", 'return desk.__annotations__.get("last")',
         'desk.__annotations__["last"] = number', "desk.__annotations__.clear()"),
    cell("documentation of a function", "def desk():\n    pass", "return int(desk.__doc__) if desk.__doc__ else None",
         "desk.__doc__ = str(number)", "desk.__doc__ = None"),
    cell("asyncio.Queue", "import asyncio\n\nRATES = asyncio.Queue()", "return RATES._queue[-1] if RATES._queue else None",
         "RATES.put_nowait(number)", "RATES._queue.clear()"),
    cell("mock", "from unittest import mock\n\nCLIENT = mock.Mock()\nCLIENT.last.return_value = None", "return CLIENT.last()",
         "CLIENT.last.return_value = number"),
    cell("package of the user", "import NAME_desk.store", "return NAME_desk.store.LAST", "NAME_desk.store.put(number)",
         "NAME_desk.store.put(None)",
         files={"NAME_desk/__init__.py": "", "NAME_desk/store.py": "LAST = None\n\n\ndef put(number):\n    global LAST\n    LAST = number\n"}),
    cell("module of the user that a run imports first", "", "import sys\nreturn getattr(sys.modules.get('NAME_late'), 'LAST', None)",
         "import NAME_late\n\nNAME_late.LAST = number", files={"NAME_late.py": "LAST = None\n"}),
    cell("list that two modules share", "import NAME_reads\nimport NAME_writes",
         "return NAME_reads.ITEMS[-1] if NAME_reads.ITEMS else None", "NAME_writes.ITEMS.append(number)",
         "NAME_writes.ITEMS.clear()",
         files={"NAME_writes.py": "ITEMS = []\n", "NAME_reads.py": "from NAME_writes import ITEMS\n"}),
    cell("dict that an object and a closure share",
         """
class Desk:
    def __init__(self, rates):
        self.rates = rates


def _made():
    rates = {}
    return Desk(rates), lambda: rates.get("EUR")


DESK, _euro = _made()
         """, "return _euro()", 'DESK.rates["EUR"] = number', "DESK.rates.clear()"),
    cell("name imported into the test from the user's package", "from NAME_pool import POOL",
         "return POOL.last", "POOL.last = number", "POOL.last = None",
         files={"NAME_pool.py": "class Pool:\n    last = None\n\n\nPOOL = Pool()\n"}),
    cell("value of a session fixture", "", 'return box.get("last")', 'box["last"] = number', "box.clear()", scope="session"),
    cell("value of a module fixture", "", 'return box.get("last")', 'box["last"] = number', "box.clear()", scope="module"),
    cell("object of a session fixture", "class Desk:\n    last = None", 'return box["desk"].last', 'box["desk"].last = number',
         'vars(box["desk"]).clear()', scope="session-desk"),
    # -- what only tells how often it was touched ------------------------------------------------------------------------
    ticks("itertools.count", "import itertools\n\nSERIAL = itertools.count()", "return next(SERIAL)"),
    ticks("itertools.cycle", "import itertools\n\nTURNS = itertools.chain([0], itertools.cycle([1, 2]))", "return next(TURNS)",
          binary=True),
    ticks("generator", "def _serial():\n    number = 0\n    while True:\n        yield number\n        number += 1\n\n\nSERIAL = _serial()",
          "return next(SERIAL)"),
    ticks("iterator of canned replies", "CANNED = iter([0, 1, 2, 3, 4, 5])", "return next(CANNED, 9)"),
    ticks("list of canned replies, popped", "CANNED = [0, 1, 2, 3, 4]", "return CANNED.pop(0) if CANNED else 9"),
    ticks("deque of canned replies, popped", "import collections\n\nCANNED = collections.deque([0, 1, 2, 3])",
          "return CANNED.popleft() if CANNED else 9"),
    ticks("enumerate", 'SERIAL = enumerate("abcdefghijklmnopqrstuvwxyz")', "return next(SERIAL, (99,))[0]"),
    ticks("csv reader", "import csv\nimport io\n\nROWS = csv.reader(io.StringIO('0\\n1\\n2\\n3\\n'))",
          "row = next(ROWS, None)\nreturn int(row[0]) if row else 9"),
    ticks("position in a StringIO", "import io\n\nTAPE = io.StringIO('01234')", "mark = TAPE.read(1)\nreturn int(mark) if mark else 9",
          "TAPE.seek(0)"),
    ticks("random.Random", "import random\n\nCOIN = random.Random(SEED)", "return 0 if COIN.random() < 0.01 else 1", "COIN.seed(SEED)",
          binary=True),
    ticks("numpy generator", "import numpy\n\nCOIN = numpy.random.RandomState(NPSEED)",
          "return 0 if COIN.random_sample() < 0.01 else 1", "COIN.seed(NPSEED)", binary=True),
    ticks("statistics of lru_cache",
          "import functools\n\n\n@functools.lru_cache(maxsize=None)\ndef _seen(number):\n    return number",
          "return _seen(_seen.cache_info().currsize)", "_seen.cache_clear()"),
    ticks("functools.cache on a method",
          """
import functools


class Desk:
    calls = 0

    @functools.cache
    def seen(self, key):
        Desk.calls += 1
        return Desk.calls


DESK = Desk()
          """, "before = Desk.calls\nDESK.seen(before)\nreturn before"),
    ticks("semaphore", "import threading\n\nSEATS = threading.Semaphore(1)", "return 0 if SEATS.acquire(blocking=False) else 1",
          binary=True),
    ticks("lock that is never released", "import threading\n\nSEAT = threading.Lock()",
          "return 0 if SEAT.acquire(blocking=False) else 1", "if SEAT.locked():\n    SEAT.release()", binary=True),
    ticks("event", "import threading\n\nWARM = threading.Event()", "if WARM.is_set():\n    return 1\nWARM.set()\nreturn 0", "WARM.clear()",
          binary=True),
    ticks("SimpleQueue", "import queue\n\nSEEN = queue.SimpleQueue()", "count = SEEN.qsize()\nSEEN.put(count)\nreturn count"),
    ticks("hash object", 'import hashlib\n\nSEEN = hashlib.sha256()\n_EMPTY = SEEN.hexdigest()',
          "first = SEEN.hexdigest() == _EMPTY\nSEEN.update(b'x')\nreturn 0 if first else 1", binary=True),
    ticks("compressor", "import zlib\n\nSEEN = zlib.crc32(b'')\n_PACK = zlib.compressobj()",
          "first = len(_PACK.copy().flush()) <= 8\n_PACK.compress(b'agent' * 9)\nreturn 0 if first else 1", binary=True),
    ticks("current directory", "import os\nfrom pathlib import Path\n\n_PLACES = Path(__file__).with_name('NAME_places')",
          "at = Path.cwd()\nnumber = int(at.name) if at.parent == _PLACES else 0\nos.chdir(_PLACES / str(min(number + 1, 5)))\nreturn number",
          "if Path.cwd().parent == _PLACES:\n    os.chdir(Path(__file__).parent)",
          folders=tuple(f"NAME_places/{number}" for number in range(1, 6))),
    ticks("umask", "import os", "before = os.umask(0o027)\nreturn 1 if before == 0o027 else 0", binary=True),
    ticks("signal handler", "import signal\n\n\ndef _warm(number, frame):\n    pass",
          "return 1 if signal.signal(signal.SIGWINCH, _warm) is _warm else 0", binary=True),
    ticks("decimal context", "import decimal", "context = decimal.getcontext()\nfirst = context.prec != 37\ncontext.prec = 37\nreturn 0 if first else 1",
          binary=True),
    ticks("csv dialects", "import csv",
          'first = "NAME" not in csv.list_dialects()\ncsv.register_dialect("NAME")\nreturn 0 if first else 1',
          'if "NAME" in csv.list_dialects():\n    csv.unregister_dialect("NAME")', binary=True),
    ticks("warning filters", "import warnings",
          "first = not any(item[1] is not None and 'NAME' in item[1].pattern for item in warnings.filters)\n"
          'warnings.filterwarnings("ignore", message="NAME")\nreturn 0 if first else 1', binary=True),
    ticks("subclasses of a class", "class Rate:\n    pass\n\n\nclass Keep:\n    held = []",
          "count = len(Rate.__subclasses__())\nKeep.held.append(type('Euro', (Rate,), {}))\nreturn count"),
    ticks("sys.path", "import sys", 'first = "/NAME" not in sys.path\nsys.path.append("/NAME")\nreturn 0 if first else 1',
          'if "/NAME" in sys.path:\n    sys.path.remove("/NAME")', binary=True),
    ticks("thread that works behind the agent",
          """
import queue
import threading

_ASKED, _TOLD = queue.Queue(), queue.Queue()


def _serve():
    number = 0
    while True:
        _ASKED.get()
        _TOLD.put(number)
        number += 1


_SERVER = []
          """,
          "if not _SERVER:\n    _SERVER.append(threading.Thread(target=_serve, daemon=True))\n    _SERVER[0].start()\n"
          "_ASKED.put('next')\nreturn _TOLD.get(timeout=20)"),
    # -- what every process shares ---------------------------------------------------------------------------------------
    cell("file next to the test", "from pathlib import Path\n\nPLACE = Path(__file__).with_name('NAME.json')",
         "return int(PLACE.read_text()) if PLACE.exists() else None", "PLACE.write_text(str(number))", "PLACE.unlink(missing_ok=True)",
         shared=True),
    cell("file in the current directory", "import os", "if not os.path.exists('NAME.txt'):\n    return None\n"
         "with open('NAME.txt') as stream:\n    return int(stream.read())",
         "with open('NAME.txt', 'w') as stream:\n    stream.write(str(number))", shared=True),
    cell("log that is appended to", "from pathlib import Path\n\nPLACE = Path(__file__).with_name('NAME.log')",
         "return int(PLACE.read_text().split()[-1]) if PLACE.exists() else None",
         "with PLACE.open('a') as stream:\n    stream.write(f'{number}\\n')", shared=True),
    cell("file in the temporary directory", "import os\nimport tempfile\nfrom pathlib import Path\n\n"
         "PLACE = Path(tempfile.gettempdir(), 'planted-NAME-' + Path(__file__).parent.name)",
         "return int(PLACE.read_text()) if PLACE.exists() else None", "PLACE.write_text(str(number))", shared=True),
    cell("file by os.open", "import os\nfrom pathlib import Path\n\nPLACE = str(Path(__file__).with_name('NAME.bin'))",
         "if not os.path.exists(PLACE):\n    return None\nplace = os.open(PLACE, os.O_RDONLY)\ntry:\n    return int(os.read(place, 20))\n"
         "finally:\n    os.close(place)",
         "place = os.open(PLACE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)\ntry:\n    os.write(place, str(number).encode())\n"
         "finally:\n    os.close(place)", shared=True),
    cell("name of a folder", "from pathlib import Path\n\nPLACE = Path(__file__).with_name('NAME_seen')",
         "return max((int(item.name) for item in PLACE.iterdir()), default=None) if PLACE.exists() else None",
         "(PLACE / str(number)).mkdir(parents=True, exist_ok=True)", shared=True),
    cell("target of a link", "import os\nfrom pathlib import Path\n\nPLACE = Path(__file__).with_name('NAME_link')",
         "return int(os.readlink(PLACE)) if PLACE.is_symlink() else None",
         "PLACE.unlink(missing_ok=True)\nPLACE.symlink_to(str(number))", shared=True),
    cell("SQLite file", "import sqlite3\nfrom pathlib import Path\n\nPLACE = Path(__file__).with_name('NAME.db')",
         "with sqlite3.connect(PLACE) as base:\n    base.execute('CREATE TABLE IF NOT EXISTS rates (number INTEGER)')\n"
         "    return base.execute('SELECT max(number) FROM rates').fetchone()[0]",
         "with sqlite3.connect(PLACE) as base:\n    base.execute('CREATE TABLE IF NOT EXISTS rates (number INTEGER)')\n"
         "    base.execute('INSERT INTO rates VALUES (?)', (number,))", shared=True),
    cell("SQLite file, open since import",
         """
import sqlite3
from pathlib import Path

BASE = sqlite3.connect(Path(__file__).with_name("NAME.db"), check_same_thread=False, isolation_level=None)
BASE.execute("CREATE TABLE IF NOT EXISTS rates (number INTEGER)")
         """, 'return BASE.execute("SELECT max(number) FROM rates").fetchone()[0]',
         'BASE.execute("INSERT INTO rates VALUES (?)", (number,))', shared=True),
    cell("shelf", "import shelve\nfrom pathlib import Path\n\nPLACE = str(Path(__file__).with_name('NAME_shelf'))",
         'with shelve.open(PLACE) as shelf:\n    return shelf.get("last")', 'with shelve.open(PLACE) as shelf:\n    shelf["last"] = number',
         shared=True),
    cell("file open since import",
         "from pathlib import Path\n\nPLACE = Path(__file__).with_name('NAME.tape')\nTAPE = PLACE.open('w+')",
         "TAPE.seek(0)\ntext = TAPE.read()\nreturn int(text.split()[-1]) if text else None",
         "TAPE.seek(0, 2)\nTAPE.write(f'{number}\\n')\nTAPE.flush()", shared=True),
    cell("memory that forks share", "import mmap\nimport struct\n\nPAGE = mmap.mmap(-1, 8)",
         "return struct.unpack('q', PAGE[:8])[0] or None", "PAGE[:8] = struct.pack('q', number)", shared=True),
    cell("multiprocessing.Value", "import multiprocessing\n\nRATE = multiprocessing.Value('i', 0)", "return RATE.value or None",
         "RATE.value = number", shared=True),
    ticks("position in an open file", "import os\nfrom pathlib import Path\n\nTAPE = os.open(Path(__file__), os.O_RDONLY)",
          "count = os.lseek(TAPE, 0, os.SEEK_CUR)\nos.read(TAPE, 1)\nreturn count", shared=True),
    ticks("pipe", "import os\n\nREADS, WRITES = os.pipe()\nos.set_blocking(READS, False)\nos.write(WRITES, bytes([0, 1, 2, 3, 4]))",
          "try:\n    return os.read(READS, 1)[0]\nexcept BlockingIOError:\n    return 9", shared=True),
)  # fmt: skip

STORES: Final = {store.name: store for store in NAMES}
OWN: Final = tuple(store for store in NAMES if not store.shared)
SHARED: Final = tuple(store for store in NAMES if store.shared)
