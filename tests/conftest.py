"""Shared by all test rooms: the tiers, sweeps, pytest's own harness for plugins, and a check of what a test leaves behind.

Tiers: `pytest` runs the fast tier, `pytest --full` everything but what is marked `nightly`, `pytest --rest` what `--full` has
and the fast tier has not, some cases and examples of each test, `pytest --nightly` everything. A test marked `full` is left out
of the fast tier, a sweep with `fast=N` runs N of its cases there, and Hypothesis draws few examples, the same ones each time.
Tests that are selected by node id or with `-m full` or `-m nightly` run in whatever tier they are, with all their cases.
"""

from __future__ import annotations

import gc
import gzip
import importlib.util
import itertools
import json
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy.random  # noqa: F401  # pytester takes back what an inner session imports, and numpy can be loaded only once
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from mat.kernel.isolation import Ownership

pytest_plugins = ["pytester"]

os.environ.pop("PYTEST_ADDOPTS", None)  # meant for this session, not for those that tests begin

EXAMPLES = 15
"""Hypothesis's examples for each property in the fast tier, at most."""
SOME_EXAMPLES, SOME_CASES, SOME_OF_A_SWEEP = 40, 2, 4
"""With --rest: examples of each property, and cases of each parametrized test, at most; and how many times the cases of a sweep
in the fast tier."""
# how many real seconds an example takes says something of the machine and of what else it does, and nothing of the property
_timeless = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fast", _timeless, derandomize=True, database=None, max_examples=EXAMPLES, print_blob=False)
settings.register_profile("full", _timeless, derandomize=False, print_blob=True)
settings.register_profile("rest", settings.get_profile("full"), max_examples=SOME_EXAMPLES)


# -- tiers ----------------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="Run the fast tier and the full one, with new random examples.")
    parser.addoption(
        "--rest",
        action="store_true",
        help="Run what --full has and the fast tier has not, some cases of each: tests marked full, sweeps, properties.",
    )
    parser.addoption("--nightly", action="store_true", help="Run all tests, also those that .ci/run has no time for.")
    parser.addoption("--case", help="Run only those cases of sweeps whose name holds this text.")
    parser.addoption("--collect-messages", metavar="FILE", help="Write every text that the tests make the product show.")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Loads the Hypothesis profile of the tier: before its plugin reads the seed, and before a test module is imported."""
    if config.getoption("--collect-messages"):
        _collect_messages(config)
    config.option.full = config.option.full or config.option.rest or config.option.nightly
    if not _full(config):
        settings.load_profile("fast")
        if hasattr(providers, "_get_local_constants"):  # else examples depend on which modules happen to be imported
            nothing = providers.Constants(**{kind: type(found)() for kind, found in vars(providers._local_constants).items()})
            providers._get_local_constants = lambda: nothing
        return
    settings.load_profile("rest" if config.option.rest else "full")
    if getattr(config.option, "hypothesis_seed", "") is None:  # workers of xdist are given the controller's
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(2**32))


def _collect_messages(config: pytest.Config) -> None:
    path = config.option.collect_messages = str(config.invocation_params.dir / config.option.collect_messages)
    spec = importlib.util.spec_from_file_location("collected_messages", Path(__file__).with_name("messages.py"))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.collect(config, Path(path))


def pytest_report_header(config: pytest.Config) -> list[str]:
    return ["fast tier; --full runs all tests"] if _spread(config) and not _full(config) else []


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    fast, total = config.stash.get(SELECTED, 0), len(config.stash.get(COLLECTED, ()))
    return [] if _full(config) else [f"fast tier: {fast} of {total} tests; --full runs all"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if _full(config):
        seed = getattr(config.option, "hypothesis_seed", None)
        terminalreporter.write_line(f"full tier: --hypothesis-seed={seed} draws the same examples again")


COLLECTED = pytest.StashKey[tuple[pytest.Item, ...]]()
SELECTED = pytest.StashKey[int]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[COLLECTED] = tuple(items)
    keep, drop = [], []
    for item in items:
        left_out = item.get_closest_marker("nightly") is not None and not _nightly(config)
        if config.option.rest:
            left_out = left_out or not _more_in_the_full_tier(item)
            _draw_few(item, SOME_EXAMPLES)
        elif not _full(config):
            left_out = left_out or item.get_closest_marker("full") is not None
            _draw_few(item, EXAMPLES)
        (drop if left_out and not _asked_for(item) else keep).append(item)
    if config.option.rest:
        some = _some_cases(keep)
        drop += [item for item in keep if item not in some and not _asked_for(item)]
        keep = [item for item in keep if item in some or _asked_for(item)]
    config.stash[SELECTED] = len(keep)
    if drop:
        items[:] = keep
        config.hook.pytest_deselected(items=drop)


@pytest.fixture
def collected(request: pytest.FixtureRequest) -> tuple[pytest.Item, ...]:
    """All tests that were found, whatever tier is run and whatever is deselected."""
    return request.config.stash[COLLECTED]


def _full(config: pytest.Config) -> bool:
    return bool(config.getoption("--full") or _nightly(config) or _selected(config, "full"))


def _nightly(config: pytest.Config) -> bool:
    return bool(config.getoption("--nightly") or _selected(config, "nightly"))


def _selected(config: pytest.Config, marker: str) -> bool:
    """Whether `-m` asks for it."""
    expression = re.sub(r"[()\s]+", " ", config.getoption("-m"))
    return re.search(rf"(?<!\bnot )\b{marker}\b", expression) is not None


def _more_in_the_full_tier(item: pytest.Item) -> bool:
    return (
        item.get_closest_marker("full") is not None
        or getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        or any("fast" in sweep.kwargs for sweep in item.iter_markers("sweep"))
    )


def _spread(config: pytest.Config) -> bool:
    """Whether this is the controller of xdist, which collects nothing itself."""
    return not hasattr(config, "workerinput") and bool(getattr(config.option, "tx", None))


def _asked_for(item: pytest.Item) -> bool:
    """Whether the command line names an item by its node id."""
    for given in item.config.args:
        file, mark, rest = given.partition("::")
        if mark and (item.config.invocation_params.dir / file).resolve() == item.path:
            own = item.nodeid.partition("::")[2]
            if own == rest or own.startswith((f"{rest}::", f"{rest}[")):
                return True
    return False


def _some_cases(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """All tests without parameters, and of each other test a few of its cases, always the same ones."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return {item for name, found in cases.items() for item in random.Random(name).sample(found, min(SOME_CASES, len(found)))}


def _draw_few(item: pytest.Item, most: int) -> None:
    """What a test itself says of its number of examples is meant for the whole of the full tier."""
    test = getattr(getattr(item, "obj", None), "__func__", getattr(item, "obj", None))
    own = getattr(test, "_hypothesis_internal_use_settings", None)
    if own is not None and own.max_examples > most:
        test._hypothesis_internal_use_settings = settings(own, max_examples=most)


# -- sweeps ---------------------------------------------------------------------------------------------------------------


# A case leaves its traces for the next in these: no fixture is made again within a sweep.
_CHANGED_BY_A_CASE = {
    "caplog",
    "capfd",
    "capsys",
    "monkeypatch",
    "pytester",
    "recwarn",
    "subtests",
    "testdir",
    "tmp_path",
    "tmpdir",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A sweep is one test: an unnamed parameter set stands for its cases, and its body runs once for each of them."""
    for marker in metafunc.definition.iter_markers("sweep"):
        shared = sorted(_CHANGED_BY_A_CASE & set(metafunc.fixturenames))
        assert not shared, f"the cases of a sweep share its fixtures; parametrize a test that needs {', '.join(shared)}"
        names = _names(marker)
        metafunc.parametrize(names, [pytest.param(*(None for _ in names), id=pytest.HIDDEN_PARAM)])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs the body once for each case of a sweep, and reports all cases that failed together, by name.

    A case that skips itself or fails as expected does not end the test. A sweep is skipped where all of its cases are.
    """
    if pyfuncitem.get_closest_marker("sweep") is None:
        return None
    cases = _cases(pyfuncitem)
    assert cases, "a sweep over no cases tests nothing"
    wanted = pyfuncitem.config.option.case
    if wanted and not (cases := [case for case in cases if wanted in case[0]]):
        pytest.skip(f"no case has {wanted!r} in its name")
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    failures: list[tuple[str, BaseException]] = []
    left_out: dict[str, BaseException] = {}
    for name, values in cases:
        try:
            returned = pyfuncitem.obj(**{**given, **values})
            assert returned is None, f"the body of a sweep returns nothing and is not async; this one returned {returned!r}"
            assert_no_world_is_left_in_place()
        except (KeyboardInterrupt, pytest.exit.Exception):
            raise
        except (pytest.skip.Exception, pytest.xfail.Exception) as reason:
            left_out[name] = reason
        except BaseException as error:
            error.add_note(f"case: {name}")
            failures.append((name, error))
    if left_out:
        pyfuncitem.add_report_section("call", "cases left out", "\n".join(f"{name}: {why}" for name, why in left_out.items()))
    if failures:
        failed = ", ".join(name for name, _ in failures)
        raise BaseExceptionGroup(f"{len(failures)} of {len(cases)} cases failed: {failed}", [error for _, error in failures])
    if len(left_out) == len(cases):
        raise next(iter(left_out.values()))
    return True


def _cases(item: pytest.Function) -> list[tuple[str, dict[str, Any]]]:
    """(name, arguments) of each case: the product of all sweeps; in the fast tier a fixed sample, with --rest a larger one."""
    markers = list(item.iter_markers("sweep"))
    parts = [list(_part(marker)) for marker in reversed(markers)]
    places = list(itertools.product(*(range(len(part)) for part in parts)))
    few = min((marker.kwargs["fast"] for marker in markers if "fast" in marker.kwargs), default=len(places))
    if item.config.option.rest:
        few *= SOME_OF_A_SWEEP
    if (item.config.option.rest or not _full(item.config)) and not _asked_for(item) and few < len(places):
        places = _spread_out(places, few, item.originalname)
    chosen = [[part[index] for part, index in zip(parts, place, strict=True)] for place in places]
    return [
        ("-".join(name for name, _ in one), {key: value for _, values in one for key, value in values.items()})
        for one in chosen
    ]


def _spread_out(places: list[tuple[int, ...]], few: int, seed: str) -> list[tuple[int, ...]]:
    """A sample that a test's name fixes, in which each value of each sweep occurs about equally often."""
    left = random.Random(seed).sample(places, len(places))
    times: Counter[tuple[int, int]] = Counter()
    chosen = []
    for _ in range(few):
        place = min(left, key=lambda place: sum(times[at] for at in enumerate(place)))  # the first one of several
        left.remove(place)
        times.update(enumerate(place))
        chosen.append(place)
    return sorted(chosen)


def _part(marker: pytest.Mark) -> Iterator[tuple[str, dict[str, Any]]]:
    names = _names(marker)
    ids: Iterable[str] | Callable[[Any], Any] | None = marker.kwargs.get("ids")
    labels = [] if ids is None or callable(ids) else list(ids)
    for index, case in enumerate(marker.args[1]):
        label = labels[index] if labels else None
        if isinstance(case, type(pytest.param())):
            assert not case.marks, f"a case of a sweep cannot be marked; parametrize the test: {case!r}"
            label, case = case.id or label, case.values if len(names) > 1 else case.values[0]
        values = tuple(case) if len(names) > 1 else (case,)
        assert len(values) == len(names), f"a case of a sweep over {names} has {len(values)} values: {case!r}"
        if callable(ids):
            label = "-".join(str(ids(value)) for value in values)
        yield (
            label or "-".join(_named(value, f"{name}{index}") for name, value in zip(names, values, strict=True)),
            dict(zip(names, values, strict=True)),
        )


def _named(value: Any, other: str) -> str:
    if isinstance(value, (str, int, float, bool)) or value is None:
        return str(value)[:60].encode("unicode_escape").decode()
    return getattr(value, "__name__", other)


def _names(marker: pytest.Mark) -> tuple[str, ...]:
    names = marker.args[0]
    return tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else tuple(names)


# -- sessions that a test begins in this process ----------------------------------------------------------------------------


def pytest_collection_finish() -> None:
    """Collecting garbage never looks at the tests themselves, which are most of all objects."""
    gc.collect()
    gc.freeze()


_owns = Ownership.owns


def _owns_no_other_tests(self: Ownership, name: str, file: str) -> bool:
    """To the session of a test, the modules of all tests would be the user's own, and compared at each execution."""
    here = os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[0]
    other = name.startswith("tests.") and "/test_" in file and not file.endswith(here or " ")
    return not other and _owns(self, name, file)


Ownership.owns = _owns_no_other_tests  # type: ignore[method-assign]


# -- what a test leaves behind --------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def no_world_is_left_in_place() -> Iterator[None]:
    """A test whose run leaves its clock and randomness behind fails itself, not a later one."""
    yield
    assert_no_world_is_left_in_place()


@pytest.fixture(autouse=True)
def no_secret_stays_declared() -> Iterator[None]:
    """What a test declares to be a secret is none in the tests after it."""
    from mat.core import redact

    outer, redact._declared = redact._declared, redact.Declarations()
    yield
    redact._declared = outer


def assert_no_world_is_left_in_place() -> None:
    assert time.sleep.__module__ == "time"


# -- files of recorded runs -----------------------------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Writes rows as JSON lines, gzipped where the name ends with .gz."""

    def write(*rows: Any, name: str = "rows.jsonl") -> Path:
        path = tmp_path / name
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        return path

    return write


@pytest.fixture
def reader() -> Callable[..., Iterator[Any]]:
    """What reads traces from a file; tests/corpora reads with the formats of its benchmark."""
    from mat.adapters.importers import read_traces

    return read_traces


@pytest.fixture
def imported(written: Callable[..., Path], reader: Callable[..., Iterator[Any]]) -> Callable[..., Any]:
    """The one trace of one row."""

    def read(row: Any, format: str | None = None) -> Any:
        (stored,) = reader(written(row), format)
        return stored

    return read


@pytest.fixture(scope="session", autouse=True)
def shared_pristine_processes() -> Iterator[None]:
    """The sessions that tests run share the pristine processes, whose start takes a second."""
    from mat_study.fresh import SHARED

    SHARED.hold()
    yield
    SHARED.release()
