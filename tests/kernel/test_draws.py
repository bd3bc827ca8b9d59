"""Draws of a run are keyed by seed, task, stream and drawing place: never by process, hash seed, order or what others draw."""

from __future__ import annotations

import inspect
import json
import os
import pickle
import random
import secrets
import subprocess
import sys
import tempfile
import types
import uuid
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import choices as bound_earlier
from typing import Any

import numpy
import pytest

import mat
from mat.kernel import world as worlds
from mat.kernel.install import installed
from mat.kernel.world import World

AGENT = '''
"""An agent that draws in every way there is, next to a library that initialises lazily."""
import os, pathlib, random, secrets, tempfile, uuid
from dataclasses import dataclass, field
from random import choice

import lazy

@dataclass
class Order:
    id: uuid.UUID = field(default_factory=uuid.uuid4)

def handle(with_library):
    if with_library:
        lazy.client()
    named = tempfile.NamedTemporaryFile()
    with named:
        name = pathlib.Path(named.name).name
    drawn = [
        random.random(), choice(range(10**9)), random.sample(range(10**9), 2), random.Random().random(),
        random.SystemRandom().random(), str(uuid.uuid1()), str(uuid.uuid4()), str(Order().id), secrets.token_hex(8),
        os.urandom(8).hex(), name,
    ]
    if hasattr(uuid, "uuid7"):
        drawn.append(str(uuid.uuid7()))
    return drawn
'''
LAZY = '''
"""A library that draws once in a process, when it is first used."""
import os, random, secrets, tempfile, uuid

CLIENT = []

def client():
    if not CLIENT:
        CLIENT.append((random.random(), uuid.uuid4(), random.Random(), secrets.token_hex(3), os.urandom(5)))
        if "site-packages" in __file__:  # within a library, and so within the project, such ids stay in order of time
            uuid.uuid1(), getattr(uuid, "uuid7", uuid.uuid1)()
        os.rmdir(tempfile.mkdtemp())
    return CLIENT[0]
'''
PROCESS = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
import agent, mat
out = {}
for task, with_library in json.loads(sys.argv[2]):
    with mat.run(seed=7, task=task):
        out[task] = agent.handle(with_library)
print(json.dumps(out))
"""


@pytest.fixture(params=["installed", "in the project"])
def project(tmp_path: Path, request: pytest.FixtureRequest) -> list[str]:
    """The folders to import from: the agent, and the lazy library, installed or a module of the project."""
    library = tmp_path / "site-packages" if request.param == "installed" else tmp_path
    library.mkdir(exist_ok=True)
    (library / "lazy.py").write_text(LAZY)
    (tmp_path / "agent.py").write_text(AGENT)
    return [str(tmp_path), str(library)]


def in_a_process(project: list[str], tmp_path: Path, hash_seed: str, plan: list[tuple[str, bool]]) -> dict[str, list[Any]]:
    """What each task draws in a new process, which executes them in that order."""
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "TMPDIR": str(folder)}
    command = [sys.executable, "-c", PROCESS, json.dumps(project), json.dumps(plan)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


ARCHIVED = """
import mat, os, random, secrets, uuid

def draw():
    return str(uuid.uuid4()), random.random(), secrets.token_hex(4)

with mat.run(seed=7):
    print(draw(), uuid.uuid4(), uuid.__file__.endswith(os.path.join("python399.zip", "uuid.py")))
"""


@pytest.mark.full
def test_draws_are_the_same_where_the_standard_library_is_in_an_archive(tmp_path: Path) -> None:
    """As in the interpreters that Windows applications embed."""
    archive = tmp_path / "python399.zip"
    with zipfile.ZipFile(archive, "w") as held:
        for module in (random, secrets, uuid):
            held.write(inspect.getfile(module), f"{module.__name__}.py")
    said = []
    for path in ("", str(archive)):
        done = subprocess.run(
            [sys.executable, "-c", ARCHIVED], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
            timeout=60, check=True,
        )  # fmt: skip
        said.append(done.stdout.rpartition(" "))
    assert [each[2] for each in said] == ["False\n", "True\n"]
    assert said[0][0] == said[1][0]


def all_apart(*draws: list[Any]) -> bool:
    return all(len({json.dumps(item) for item in same}) == len(same) for same in zip(*draws, strict=True))


@pytest.mark.full
@pytest.mark.covers("law", ["L1"])
@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.full), pytest.param(19, marks=pytest.mark.nightly)])
def test_a_task_draws_the_same_in_every_process_order_and_hash_seed_and_three_tasks_draw_apart(
    project: list[str], tmp_path: Path, processes: int
) -> None:
    tasks = ["a", "b", "c"]
    expected = in_a_process(project, tmp_path, "0", [(task, False) for task in tasks])
    assert all_apart(*expected.values())
    for number in range(1, processes + 1):
        order = random.Random(number).sample(tasks, 3)[: 1 + number % 3]
        drawn = in_a_process(
            project, tmp_path, str(number), [(task, (number + place) % 2 == 1) for place, task in enumerate(order)]
        )
        assert drawn == {task: expected[task] for task in order}


# -- in this process ------------------------------------------------------------------------------------------------------


def library(name: str, text: str, **extra: object) -> types.ModuleType:
    """A module that counts as installed."""
    module = types.ModuleType(name)
    vars(module).update(extra, __file__=f"/opt/site-packages/{name}.py")
    exec(compile(text, module.__file__ or "", "exec"), vars(module))
    return module


def in_run(body: Callable[[], Any], task: str = "t", seed: int = 1) -> Any:
    with installed(World(seed, task=task)):
        return body()


def agent() -> list[Any]:
    return [random.random(), uuid.uuid4(), random.Random().random(), os.urandom(4), uuid.uuid1()]


def after(other: Callable[[], Any]) -> Callable[[], list[Any]]:
    def body() -> list[Any]:
        other()
        return agent()

    return body


DRAWS = (
    "import random, uuid, os\ndef draw(): return [random.random(), uuid.uuid4(), random.Random(), os.urandom(4), uuid.uuid1()]"
)
THROUGH = "def make(factory): return factory()"


def test_what_a_library_or_another_function_draws_shifts_no_draw_of_the_agent() -> None:
    through = library("mat_test_through", THROUGH)
    direct = library("mat_test_lazy", DRAWS)
    factory = library("mat_test_factory", DRAWS + "\ndef through(): return make(draw)", make=through.make)

    def helper() -> Any:
        return agent()

    assert in_run(after(direct.draw)) == in_run(after(factory.through)) == in_run(after(lambda: None)) == in_run(agent)
    assert in_run(after(helper)) != in_run(agent)  # it calls `agent`, so these are draws of that place

    def made_by_library() -> Any:
        return through.make(uuid.uuid4)

    assert in_run(made_by_library) == in_run(lambda: (factory.through(), made_by_library())[1])


def test_with_one_stream_for_everybody_a_lazy_library_shifts_every_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two planted faults: draws that ignore their place, and a world that ignores its task."""
    from mat.kernel import randomness

    direct = library("mat_test_lazy_planted", DRAWS)
    with monkeypatch.context() as patch:
        patch.setattr(randomness, "place_of", lambda frame: "")
        assert in_run(after(direct.draw)) != in_run(agent)
    seeded_by_the_seed_alone = [in_run(agent, task="") for _ in "abc"]
    assert not all_apart(*([str(item) for item in drawn] for drawn in seeded_by_the_seed_alone))
    assert all_apart(*([str(item) for item in in_run(agent, task=task)[:-1]] for task in "abc"))


@pytest.mark.covers("law", ["L8"])
def test_moving_code_and_nesting_it_changes_no_draw() -> None:
    text = "import uuid\ndef pay(): return [uuid.uuid4() for _ in range(2)]"
    moved = f"{'#' * 80}\nother = 1\n\n\n{text.replace('uuid.uuid4()', '(lambda: uuid.uuid4())()')}"
    drawn = []
    for name, code in (("mat_test_a", text), ("mat_test_b", moved)):
        module = types.ModuleType(name)
        module.__file__ = f"/srv/shop/{name}.py"
        exec(compile(code, module.__file__, "exec"), vars(module))
        drawn.append(in_run(module.pay))
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 2


def test_names_bound_before_the_run_draw_from_the_run() -> None:
    def draw() -> Any:
        return bound_earlier(range(10**9), k=3)

    assert in_run(draw) == in_run(draw) != in_run(draw, task="u")
    assert draw() != draw()


@dataclass
class Order:
    id: uuid.UUID = field(default_factory=uuid.uuid4)


def with_generated() -> list[uuid.UUID]:
    return [Order().id for _ in range(2)]


def test_generated_code_draws_for_the_function_that_calls_it() -> None:
    assert in_run(with_generated) == in_run(lambda: (Order(), with_generated())[1])


def test_a_seed_that_the_project_sets_is_the_seed_of_all_its_code_and_of_no_library() -> None:
    direct = library("mat_test_unseeded", DRAWS)

    def body() -> Any:
        random.seed(42)
        theirs = direct.draw()[:2]
        return (lambda: random.random())(), random.random(), theirs

    known = random.Random(42)
    one, other, theirs = in_run(body)
    assert (one, other) == (known.random(), known.random())
    assert theirs == in_run(lambda: direct.draw()[:2])

    def again() -> Any:
        state = random.getstate()
        first = random.random()
        random.setstate(state)
        return first == random.random()

    assert in_run(again)

    def reseeded() -> Any:
        random.seed()
        return random.random()

    assert in_run(reseeded) == in_run(reseeded) != in_run(reseeded, task="u")


def test_generators_made_in_a_run_have_streams_of_their_own_and_older_ones_keep_their_state() -> None:
    older = random.Random(3)

    def body() -> Any:
        one, other = random.Random(), random.Random()
        return one.random(), other.random(), older.random()

    first, second = in_run(body), in_run(body)
    assert first[:2] == second[:2]
    assert first[0] != first[1]
    known = random.Random(3)
    assert (first[2], second[2]) == (known.random(), known.random())


def test_numpy_draws_by_seed_and_task_and_is_restored() -> None:
    numpy.random.seed(9)
    before = numpy.random.get_state()[1].tolist()  # type: ignore[index]

    def body() -> Any:
        return [*numpy.random.rand(2), numpy.random.default_rng().random()]

    assert in_run(body) == in_run(body)
    assert not set(in_run(body)) & set(in_run(body, task="u"))
    assert numpy.random.get_state()[1].tolist() == before  # type: ignore[index]


def test_names_of_temporary_files_repeat_and_a_name_that_is_taken_costs_one_more_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def kept() -> str:
        with tempfile.NamedTemporaryFile(delete=False) as file:
            return Path(file.name).name

    first, second = in_run(kept), in_run(kept)
    assert first != second
    assert (tmp_path / first).exists()
    (tmp_path / first).unlink()
    assert in_run(kept) == first


def test_functions_of_random_can_be_pickled_in_a_run() -> None:
    def body() -> Any:
        return pickle.loads(pickle.dumps(random.choice)) is random.choice

    assert in_run(body)


def test_an_inner_run_draws_its_own_and_the_outer_one_continues() -> None:
    def nested() -> Any:
        before = random.random()
        inner = in_run(agent, task="inner")
        return before, random.random(), inner

    def alone() -> Any:
        return random.random(), random.random()

    one, two, inner = in_run(nested)
    assert inner == in_run(agent, task="inner")
    assert (one, two) == in_run(lambda: nested()[:2])
    assert in_run(alone) == in_run(alone)


def test_threads_that_do_not_belong_to_the_run_draw_from_the_machine() -> None:
    world = World(1, task="t")
    with installed(world):
        assert worlds.current() is world
        world.owns_thread = lambda: False  # type: ignore[method-assign]
        assert agent() != agent()


# -- packages that make ids -----------------------------------------------------------------------------------------------


class _Id(uuid.UUID):
    """The class of a package whose ids are made in Rust."""


RUST = """
import uuid
def uuid4(): return UUID(int=uuid.uuid4().int)
def uuid7(): return UUID(int=secrets.randbits(128))
def uuid1(node=None, clock_seq=None): return UUID(int=uuid.uuid1().int)
def uuid6(node=None, timestamp=None, nanos=None): return UUID(int=0)
def uuid7_bulk(n): return [uuid7() for _ in range(n)]
def uuid4_as_strings_bulk(n): return [str(uuid4()) for _ in range(n)]
def _uuid7_int(timestamp=None, nanos=None): return uuid7().int
"""


@pytest.fixture
def rust(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    from mat.kernel import randomness

    machine = random.SystemRandom()
    module = library("fastuuid", RUST, UUID=_Id, secrets=types.SimpleNamespace(randbits=machine.getrandbits))
    monkeypatch.setitem(sys.modules, "fastuuid", module)
    monkeypatch.delitem(randomness._originals, "fastuuid", raising=False)
    yield module
    randomness._originals.pop("fastuuid", None)


def test_ids_that_a_package_makes_in_rust_are_made_by_the_run(rust: types.ModuleType) -> None:
    def body() -> Any:
        ids = [rust.uuid1(), rust.uuid4(), rust.uuid6(), *rust.uuid7_bulk(3), rust.uuid7()]
        return ids, rust.uuid4_as_strings_bulk(2), rust._uuid7_int(5, 10**6)

    ids, texts, number = in_run(body)
    assert in_run(body) == (ids, texts, number)
    assert [item.version for item in ids] == [1, 4, 6, 7, 7, 7, 7]
    assert all(isinstance(item, _Id) and item.variant == uuid.RFC_4122 for item in ids)
    assert ids[3:] == sorted(set(ids[3:]))
    assert [uuid.UUID(text).version for text in texts] == [4, 4]
    assert (number >> 80, uuid.UUID(int=number).version) == (5001, 7)
    theirs = library("mat_test_rusty", "def draw(): return rust.uuid7()", rust=rust)
    assert in_run(lambda: (theirs.draw(), rust.uuid7())[1]) == in_run(lambda: rust.uuid7())
    assert rust.uuid7() != rust.uuid7()


@pytest.mark.parametrize("name", ["uuid6", "uuid_extensions", "uuid_utils", "uuid_utils.compat", "fastuuid"])
def test_ids_of_an_installed_package_are_made_by_the_run(name: str) -> None:
    package = pytest.importorskip(name)

    def body() -> Any:
        return [str(package.uuid7()) for _ in range(3)] + ([str(package.uuid4())] if hasattr(package, "uuid4") else [])

    if name.startswith("uuid_utils"):
        given = [{"timestamp": 5, "nanos": 10**6}, {"nanoseconds": 5_001 * 10**6}]  # before release 1, and since
        (options,) = [each for each in given if each.keys() <= inspect.signature(package.uuid7).parameters.keys()]
        assert in_run(lambda: package.uuid7(**options)).int >> 80 == 5_001
        assert in_run(lambda: package.uuid1(1, 2)).clock_seq == 2
        assert in_run(lambda: package.uuid6(1)).int % 2**48 == 1
    theirs = library(f"mat_test_{name.replace('.', '_')}", "def draw(): return package.uuid7()", package=package)
    assert in_run(body) == in_run(body) == in_run(lambda: (theirs.draw(), body())[1])
    assert not set(in_run(body)) & set(in_run(body, task="u"))
    ids = in_run(body)[:3]
    assert ids == sorted(set(ids))
    assert not set(body()) & set(in_run(body))


def test_ids_in_order_of_time_stay_in_order_and_a_run_does_not_continue_those_of_another() -> None:
    module = library("mat_test_uuid6", "_last_v7_timestamp = None", time=__import__("time"))
    exec(
        "def uuid7():\n global _last_v7_timestamp\n now = time.time_ns() // 10**6\n"
        " if _last_v7_timestamp is not None and now <= _last_v7_timestamp: now = _last_v7_timestamp + 1\n"
        " _last_v7_timestamp = now\n return now",
        vars(module),
    )
    from mat.kernel.randomness import _in_order

    made = _in_order(module, "uuid7", _last_v7_timestamp=None)
    lazily = library("mat_test_ordered", "def draw(): return made()", made=made)

    def body() -> list[int]:
        return [made() for _ in range(3)]

    alone = in_run(body)
    assert alone == sorted(set(alone))
    assert in_run(lambda: (lazily.draw(), body())[1]) == alone == in_run(body)
    assert module._last_v7_timestamp is None


# -- mat.run --------------------------------------------------------------------------------------------------------------


def test_a_run_without_a_task_draws_by_its_seed_and_one_with_a_task_by_both() -> None:
    def drawn(**options: Any) -> Any:
        with mat.run(seed=5, **options):
            return agent()

    assert drawn() == drawn(task="")
    assert drawn(task="a") == drawn(task="a", clock="real", horizon=7, config={"commit": "b"})[:4] + drawn(task="a")[4:]
    assert drawn() != drawn(task="a") != drawn(task="b")
