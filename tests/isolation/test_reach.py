"""What outlives an execution is found by its name, and put back exactly; what cannot be put back says so."""

import importlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import ModuleType

import pytest

from mat.kernel.isolation import Isolation, Ownership, ProcessState
from mat.kernel.nodes import Remedy

_NUMBERS = count()
Import = Callable[..., ModuleType]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Import]:
    """Write a module of a user and import it."""
    monkeypatch.syspath_prepend(tmp_path)
    loaded: list[str] = []

    def load(text: str, name: str = "") -> ModuleType:
        name = name or f"desk{next(_NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        loaded.append(name)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield load
    for name in loaded:
        sys.modules.pop(name, None)


# Each: the module, what a run does, what observes the state (must be the same before and after), and the name that is given.
PUT_BACK = {
    "dict": ("LAST = {}", "LAST['fx'] = 3", "dict(LAST)", "LAST"),
    "nested": ("LAST = {'a': [{}]}", "LAST['a'][0]['b'] = 1", "repr(LAST)", "LAST"),
    "order": ("LAST = {'a': 1, 'b': 2}", "LAST['a'] = LAST.pop('a')", "list(LAST)", "LAST"),
    "global": ("COUNT = 0", "globals().update(COUNT=COUNT + 1)", "COUNT", "COUNT"),
    "new global": ("import sys", "globals().update(LATER=1)", "'LATER' in globals()", "LATER"),
    "list": ("SEEN = []", "SEEN.append(1)", "list(SEEN)", "SEEN"),
    "list subclass": ("class L(list): pass\nSEEN = L()", "SEEN.append(1)", "list(SEEN)", "SEEN"),
    "exception's arguments": ("FAILED = RuntimeError()", "setattr(FAILED, 'args', (1,))", "FAILED.args", "FAILED"),
    "default of a ContextVar": (
        "from contextvars import ContextVar\nLAST = ContextVar('last', default=[])",
        "LAST.get().append(1)",
        "list(LAST.get())",
        "LAST",
    ),
    "dunder name of a module": ("__last__ = {}", "__last__.update(a=1)", "dict(__last__)", "__last__"),
    "dunder name of a class": (
        "class Desk:\n    __cache__ = {}",
        "Desk.__cache__.update(a=1)",
        "dict(Desk.__cache__)",
        "Desk.__cache__",
    ),
    "plugin of a manager": (
        "import pluggy\nclass Desk:\n    def __init__(self): self.last = 0\nMANAGER = pluggy.PluginManager('desk')\n"
        "MANAGER.register(Desk())\ndef desk(): return next(iter(MANAGER.get_plugins()))",
        "setattr(desk(), 'last', 1)",
        "desk().last",
        "MANAGER.last",
    ),
    "value of a parameter": (
        "import pytest\nCASE = pytest.param({}, id='one')",
        "CASE.values[0].update(a=1)",
        "dict(CASE.values[0])",
        "CASE",
    ),
    "documentation": (
        "def desk(): pass\ndef run(): desk.__doc__ = '1'",
        "run()",
        "desk.__doc__",
        "desk.__doc__",
    ),
    "defaults": (
        "def desk(a=1): return a\ndef run(): desk.__defaults__ = (2,)",
        "run()",
        "desk()",
        "desk.__defaults__",
    ),
    "set": ("SEEN = {'a', 'b'}", "SEEN.add('c')", "list(SEEN)", "SEEN"),
    "deque": ("from collections import deque\nQ = deque([1, 2])", "Q.rotate()", "list(Q)", "Q"),
    "Counter": ("from collections import Counter\nC = Counter()", "C['a'] += 1", "dict(C)", "C"),
    "defaultdict": ("from collections import defaultdict\nD = defaultdict(list)", "D['a'].append(1)", "dict(D)", "D"),
    "OrderedDict": (
        "from collections import OrderedDict\nD = OrderedDict(a=1, b=2)",
        "D.move_to_end('a')",
        "list(D)",
        "D",
    ),
    "bytearray": ("B = bytearray(b'ab')", "B.append(1)", "bytes(B)", "B"),
    "array": ("from array import array\nA = array('i', [1])", "A.append(1)", "list(A)", "A"),
    "class": ("class Desk:\n    last = None", "setattr(Desk, 'last', 1)", "Desk.last", "Desk.last"),
    "new class attribute": ("class Desk: pass", "setattr(Desk, 'more', 1)", "hasattr(Desk, 'more')", "Desk.more"),
    "instance": (
        "class Desk:\n    def __init__(self): self.n = 0\nDESK = Desk()",
        "setattr(DESK, 'n', 1)",
        "DESK.n",
        "DESK.n",
    ),
    "replaced dict": (
        "class Desk:\n    def __init__(self): self.n = 0\nDESK = Desk()",
        "setattr(DESK, '__dict__', {'n': 5})",
        "DESK.n",
        "DESK",
    ),
    "class of an instance": (
        "class Open: pass\nclass Closed: pass\nDESK = Open()",
        "setattr(DESK, '__class__', Closed)",
        "type(DESK).__name__",
        "DESK",
    ),
    "slots": (
        "class Desk:\n    __slots__ = ('n', 'later')\n    def __init__(self): self.n = 0\nDESK = Desk()",
        "(setattr(DESK, 'n', 1), setattr(DESK, 'later', 2))",
        "(DESK.n, hasattr(DESK, 'later'))",
        "DESK.n",
    ),
    "dataclass": (
        "from dataclasses import dataclass, field\n"
        "@dataclass\nclass Desk:\n    seen: list = field(default_factory=list)\nDESK = Desk()",
        "DESK.seen.append(1)",
        "list(DESK.seen)",
        "DESK.seen",
    ),
    "frozen": (
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Desk:\n    n: int = 0\nDESK = Desk()",
        "object.__setattr__(DESK, 'n', 1)",
        "DESK.n",
        "DESK.n",
    ),
    "pydantic": (
        "from pydantic import BaseModel\nclass Desk(BaseModel):\n    n: int = 0\n    seen: list = []\nDESK = Desk()",
        "(setattr(DESK, 'n', 1), DESK.seen.append(1))",
        "(DESK.n, list(DESK.seen), set(DESK.model_fields_set))",
        "DESK.n",
    ),
    "enum": ("import enum\nclass E(enum.Enum):\n    A = 1", "setattr(E.A, 'hits', 1)", "hasattr(E.A, 'hits')", "E.A.hits"),
    "closure": (
        "def make():\n    n = 0\n"
        "    def step():\n        nonlocal n\n        n += 1\n        return n\n    return step\nSTEP = make()",
        "STEP()",
        "STEP.__closure__[0].cell_contents",
        "STEP.n",
    ),
    "default": ("def seen(x=None, known=[]):\n    known.append(x)", "seen(1)", "list(seen.__defaults__[1])", "seen"),
    "keyword default": ("def seen(*, known={}):\n    known['a'] = 1", "seen()", "dict(seen.__kwdefaults__['known'])", "seen"),
    "function attribute": ("def seen(): pass", "setattr(seen, 'calls', 1)", "hasattr(seen, 'calls')", "seen.calls"),
    "known function attribute": ("def seen(): pass\nseen.calls = 0", "setattr(seen, 'calls', 1)", "seen.calls", "seen.calls"),
    "lru_cache": (
        "import functools\n@functools.lru_cache\ndef rate(x): return x",
        "rate(1)",
        "rate.cache_info()",
        "rate",
    ),
    "cached_property": (
        "import functools\nclass Desk:\n    @functools.cached_property\n    def rate(self): return 1\nDESK = Desk()",
        "DESK.rate",
        "dict(vars(DESK))",
        "DESK.rate",
    ),
    "singledispatch": (
        "import functools\n@functools.singledispatch\ndef show(x): return 'any'\n",
        "(show.register(int, lambda x: 'int'), show(1))",
        "show(1)",
        "show",
    ),
    "abstract base class": (
        "import abc\nclass Tool(abc.ABC): pass\nclass Mail: pass",
        "Tool.register(Mail)",
        "issubclass(Mail, Tool)",
        "Tool",
    ),
    "metaclass registry": (
        "class Meta(type):\n    known = []\n"
        "    def __init__(cls, *a): Meta.known.append(cls.__name__)\nclass Desk(metaclass=Meta): pass",
        "Meta('Late', (), {})",
        "list(Meta.known)",
        "Meta.known",
    ),
    "weak values": (
        "import weakref\nclass D: pass\nONE, TWO = D(), D()\nW = weakref.WeakValueDictionary(one=ONE)",
        "W.update(two=TWO)",
        "sorted(W)",
        "W",
    ),
    "weak keys": (
        "import weakref\nclass D: pass\nONE = D()\nW = weakref.WeakKeyDictionary()",
        "W.update({ONE: 1})",
        "len(W)",
        "W",
    ),
    "thread-local": ("import threading\nT = threading.local()", "setattr(T, 'last', 1)", "hasattr(T, 'last')", "T"),
    "Random": ("import random\nR = random.Random(3)", "R.random()", "R.getstate()", "R"),
    "list iterator": ("REPLIES = iter([1, 2, 3])", "next(REPLIES)", "REPLIES.__length_hint__()", "REPLIES"),
    "StringIO": ("import io\nS = io.StringIO('ab')", "S.read(1)", "S.tell()", "S"),
    "BytesIO": ("import io\nS = io.BytesIO()", "S.write(b'ab')", "(S.tell(), S.getvalue())", "S"),
    "file position": ("F = open(__file__)", "F.read(2)", "F.tell()", "F"),
    "sqlite in memory": (
        "import sqlite3\nDB = sqlite3.connect(':memory:')\nDB.execute('create table t (a)')\nDB.commit()",
        "DB.execute('insert into t values (1)')",
        "DB.execute('select count(*) from t').fetchone()",
        "DB",
    ),
    "sqlite schema": (
        "import sqlite3\nDB = sqlite3.connect(':memory:')",
        "DB.execute('create table t (a)')",
        "DB.execute('select count(*) from sqlite_master').fetchone()",
        "DB",
    ),
    "numpy": ("import numpy\nA = numpy.zeros(3)", "A.__setitem__(0, 1.0)", "A.tolist()", "A"),
    "numpy generator": (
        "import numpy\nG = numpy.random.default_rng(1)",
        "G.random()",
        "str(G.bit_generator.state)",
        "G",
    ),
    "numpy random state": (
        "import numpy\nG = numpy.random.RandomState(1)",
        "G.random_sample()",
        "[str(part) for part in G.get_state()]",
        "G",
    ),
    "ctypes": ("import ctypes\nC = ctypes.c_int(1)", "setattr(C, 'value', 2)", "C.value", "C"),
    "lock": ("import threading\nL = threading.Lock()", "L.acquire()", "L.locked()", "L"),
    "Event": ("import threading\nE = threading.Event()", "E.set()", "E.is_set()", "E"),
    "queue": ("import queue\nQ = queue.Queue()", "Q.put(1)", "Q.qsize()", "Q"),
    "SimpleQueue": ("import queue\nQ = queue.SimpleQueue()", "Q.put(1)", "Q.qsize()", "Q"),
    "asyncio.Queue": ("import asyncio\nQ = asyncio.Queue()", "Q.put_nowait(1)", "Q.qsize()", "Q"),
    "partial": (
        "import functools\nP = functools.partial(dict, seen=[])",
        "P.keywords['seen'].append(1)",
        "list(P.keywords['seen'])",
        "P",
    ),
    "mapping proxy": (
        "import types\n_D = {}\nP = types.MappingProxyType(_D)\ndel _D",
        "__import__('gc').get_referents(P)[0].update(a=1)",
        "dict(P)",
        "P",
    ),
    "exception": ("ERROR = ValueError([])", "ERROR.args[0].append(1)", "list(ERROR.args[0])", "ERROR"),
    "Mock": ("from unittest.mock import Mock\nM = Mock()", "M(1)", "M.call_count", "M"),
    "library attribute": (
        "import json\ndef spoil(): json.loaded = 1",
        "spoil()",
        "hasattr(json, 'loaded')",
        "json.loaded",
    ),
    "library that a function imports": (
        "def spoil():\n    import json\n    json.loaded = 1",
        "spoil()",
        "hasattr(__import__('json'), 'loaded')",
        "json.loaded",
    ),
    "library in a table": (
        "import json\nTOOLS = {'json': json}\ndel json\ndef spoil(): TOOLS['json'].loaded = 1",
        "spoil()",
        "hasattr(TOOLS['json'], 'loaded')",
        "json.loaded",
    ),
    "frozen dataclass with slots": (
        "from dataclasses import dataclass\n@dataclass(frozen=True, slots=True)\nclass Rate: held: dict\nRATE = Rate({})",
        "object.__setattr__(RATE, 'held', {'a': 1})",
        "RATE.held",
        "RATE.held",
    ),
    "annotations": (
        "def seen(): pass\ndef spoil(): seen.__annotations__['a'] = 1",
        "spoil()",
        "dict(seen.__annotations__)",
        "seen",
    ),
    "library class": (
        "import json\ndef spoil(): json.JSONEncoder.item_separator = ';'",
        "spoil()",
        "json.JSONEncoder.item_separator",
        "json.encoder.JSONEncoder.item_separator",
    ),
}


@pytest.mark.parametrize("kind", PUT_BACK)
def test_what_a_run_changed_is_named_and_put_back(kind: str, load: Import, tmp_path: Path) -> None:
    text, run, observe, name = PUT_BACK[kind]
    module = load(text)
    space = vars(module)
    before = eval(observe, space)
    state = ProcessState(Ownership([str(tmp_path)]), {})
    assert state.restore() == ()
    for _ in range(3):
        exec(run, space)
        assert eval(observe, space) != before or kind in ("singledispatch", "abstract base class")
        found = state.restore()
        expected = name if name.startswith("json") else f"{module.__name__}.{name}"
        assert expected in [each.name for each in found]
        assert {each.remedy for each in found} == {"restore"}
        if kind != "singledispatch":  # looking at it fills a cache, which is then put back as well
            assert eval(observe, space) == before
        assert state.restore() == () or kind in ("singledispatch", "abstract base class")


CANNOT_BE_PUT_BACK: dict[str, tuple[str, str, str, Remedy]] = {
    "count": ("import itertools\nIDS = itertools.count(1)", "next(IDS)", "IDS", "fork"),
    "generator": ("def ids():\n    for n in range(9): yield n\nIDS = ids()", "next(IDS)", "IDS", "fork"),
    "compressor": ("import zlib\nPACK = zlib.compressobj()", "PACK.compress(b'one')", "PACK", "fork"),
    "ended compressor": ("import zlib\nPACK = zlib.compressobj()", "PACK.flush()", "PACK", "fork"),
    "exhausted": ("IDS = iter([1])", "list(IDS)", "IDS", "fork"),
    "warm cache": (
        "import functools\n@functools.lru_cache\ndef rate(x): return x\nrate(1)",
        "rate(2)",
        "rate",
        "fork",
    ),
    "subclasses": (
        "class Rate: pass\nKEPT = []\ndef count(): return len(Rate.__subclasses__())",
        "KEPT.append(type('Euro', (Rate,), {}))",
        "Rate",
        "fork",
    ),
    "Context": (
        "from contextvars import Context, ContextVar\nVAR = ContextVar('v')\nC = Context()",
        "C.run(VAR.set, 1)",
        "C",
        "fork",
    ),
    "shared memory": ("import mmap\nPAGE = mmap.mmap(-1, 8)", "PAGE.__setitem__(0, 1)", "PAGE", "none"),
    "multiprocessing.Value": (
        "import multiprocessing\nRATE = multiprocessing.Value('i', 0)",
        "setattr(RATE, 'value', 3)",
        "RATE",
        "none",
    ),
    "hash": ("import hashlib\nH = hashlib.sha256()", "H.update(b'a')", "H", "fork"),
    "written file": ("F = open(__file__ + '.log', 'w')", "F.write('a')", "F", "none"),
    "closed": ("import io\nS = io.StringIO()", "S.close()", "S", "fork"),
    "thread": (
        "import threading\nLOCK = threading.Lock()\nLOCK.acquire()\n"
        "def start(): threading.Thread(target=LOCK.acquire, daemon=True).start()",
        "start()",
        "",
        "fork",
    ),
}


@pytest.mark.parametrize("kind", CANNOT_BE_PUT_BACK)
def test_what_cannot_be_put_back_is_named_with_its_remedy(kind: str, load: Import, tmp_path: Path) -> None:
    text, run, name, remedy = CANNOT_BE_PUT_BACK[kind]
    module = load(text)
    state = ProcessState(Ownership([str(tmp_path)]), {})
    assert state.restore() == ()
    exec(run, vars(module))
    found = state.restore()
    if kind == "thread":  # a thread left alive would slow every later run of this session
        module.LOCK.release()
    expected = (f"{module.__name__}.{name}" if name else "a thread", remedy)
    assert [(each.name, each.remedy) for each in found if each.remedy != "restore"] == [expected]


def test_aliases_stay_aliases_and_containers_keep_their_identity(load: Import, tmp_path: Path) -> None:
    module = load("ONE = []\nTWO = {'one': ONE}\nclass D: pass\nD.three = ONE")
    one, two = module.ONE, module.TWO
    state = ProcessState(Ownership([str(tmp_path)]), {})
    module.ONE = module.TWO = module.D.three = None
    one.append(1)
    two.clear()
    state.restore()
    assert module.ONE is one
    assert module.TWO is two
    assert module.TWO["one"] is one
    assert module.D.three is one
    assert one == []


def test_an_equal_value_of_plain_data_is_no_change(load: Import, tmp_path: Path) -> None:
    module = load("NAME = 'ab'\nSTATE = {'n': 1000, 'pair': (1, 'x')}\nLIST = [1.5]")
    state = ProcessState(Ownership([str(tmp_path)]), {})
    module.NAME = "".join(["a", "b"])
    module.STATE["n"] = int("1000")
    module.STATE["pair"] = (1, "".join(["x"]))
    module.LIST[0] = float("1.5")
    assert state.restore() == ()


def test_a_cache_of_ours_that_a_module_imports_is_no_state_of_the_user(load: Import, tmp_path: Path) -> None:
    module = load("from functools import lru_cache\nfrom mat.core.verbs import sounds_like_reading\nown = lru_cache(len)")
    state = ProcessState(Ownership([str(tmp_path)]), {})
    module.own("one")
    module.sounds_like_reading("a name that nobody else asks for")
    assert [each.name.rpartition(".")[2] for each in state.restore()] == ["own"]


def test_what_changed_is_shown_without_running_code_of_the_user(load: Import, tmp_path: Path) -> None:
    module = load("class Loud:\n    def __repr__(self): raise SystemExit\nLAST = {}")
    state = ProcessState(Ownership([str(tmp_path)]), {})
    module.LAST["fx"] = 1.1
    module.LAST["who"] = module.Loud()
    [found] = [each for each in state.restore() if each.name.endswith("LAST")]
    assert "nothing -> 1.1" in found.text or "<Loud>" in found.text


def test_the_values_of_fixtures_belong_to_the_state(tmp_path: Path) -> None:
    db = {"rows": [1]}
    state = ProcessState(Ownership([str(tmp_path)]), {"fixture db": db})
    db["rows"].append(2)
    assert [each.name for each in state.restore()] == ["fixture db"]
    assert db == {"rows": [1]}


def test_what_a_fixture_gives_to_a_module_leads_to_nothing_of_the_interpreters(load: Import, tmp_path: Path) -> None:
    module = load("ORDERS = {}")
    state = ProcessState(Ownership([str(tmp_path)]), {})
    size = state.size
    with state.settling():
        module.ORDERS["A17"] = module.PLACED = []
    assert state.size == size + 1


def test_a_module_that_a_run_imports_stays_as_it_was_right_after_its_import(load: Import, tmp_path: Path) -> None:
    registry = load("PLUGINS = []", "registry_of_desk")
    (tmp_path / "late_plugin.py").write_text("import registry_of_desk\nregistry_of_desk.PLUGINS.append('late')\nCACHE = {}\n")
    isolation = Isolation([str(tmp_path)])
    isolation.start({})

    def run() -> None:
        import late_plugin  # type: ignore[import-not-found]

        late_plugin.CACHE["a"] = 1

    isolation.execute(run)
    late = sys.modules.pop("late_plugin")
    sys.modules["late_plugin"] = late
    assert late.CACHE == {}
    assert registry.PLUGINS == ["late"]
    assert [each.name for each in isolation.found] == ["late_plugin.CACHE"]
    assert type(late.__spec__.loader).__name__ != "_Loader"  # type: ignore[union-attr]
    isolation.execute(run)
    assert late.CACHE == {}
    del sys.modules["late_plugin"]


def test_context_variables_do_not_outlive_a_run(load: Import, tmp_path: Path) -> None:
    module = load("from contextvars import ContextVar\nREQUEST = ContextVar('request')")
    isolation = Isolation([str(tmp_path)])
    isolation.start({})
    isolation.execute(lambda: module.REQUEST.set(7))
    assert module.REQUEST.get(None) is None
    assert [each.name for each in isolation.found] == [f"{module.__name__}.REQUEST"]


HOSTILE = {
    "class": "class Lazy:\n    __class__ = property(lambda self: 1 / 0)\nheld = Lazy()",
    "class of classes": (
        "ready = []\nclass Meta(type):\n    def __getattribute__(self, name):\n        if ready: raise RuntimeError(name)\n"
        "        return super().__getattribute__(name)\nclass Lazy(metaclass=Meta): pass\nready.append(1)"
    ),
    "module without a name": "import types\nheld = types.ModuleType('held')\ndel held.__name__",
    "module with another name": "import types\nheld = types.ModuleType('held')\nheld.__name__ = ['held']",
    "weak reference": (
        "import weakref\nclass Lazy:\n    __class__ = property(lambda self: 1 / 0)\nkept = Lazy()\nheld = weakref.ref(kept)"
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_an_object_that_answers_with_errors_ends_nothing(kind: str, load: Import, tmp_path: Path) -> None:
    module = load(f"LAST = {{}}\n{HOSTILE[kind]}")
    isolation = Isolation([str(tmp_path)])
    isolation.start({})
    isolation.execute(lambda: module.LAST.update(fx=1))
    assert module.LAST == {}
    assert f"{module.__name__}.LAST" in [each.name for each in isolation.found]
    assert all(each.remedy == "fork" for each in isolation.found if not each.name.endswith("LAST"))


def test_a_session_of_a_test_takes_no_other_tests_for_the_users_own() -> None:
    other = importlib.import_module("tests.isolation.test_comparison")
    owned = {module.__name__ for module in Ownership([str(Path(__file__).parents[2])]).modules()}
    assert __name__ in owned
    assert other.__name__ not in owned
