"""Every execution of an item begins from the state of the process before the item's first run (`mat.kernel.isolation`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from contextlib import nullcontext
from functools import cached_property
from types import ModuleType
from typing import Any, Final, TypeVar

import pytest

from mat.kernel.apart import ApartState
from mat.kernel.isolation import Isolation, OutlivedState
from mat.kernel.reads import Read, sharing
from mat.kernel.reads import begin as begin_reads
from mat.kernel.reads import end as end_reads
from mat_study.fresh import user_roots
from pytest_mat import asked

T = TypeVar("T")
_WATCH: Final = "mat-fixtures"


class IsolatedItem:
    """Executes an item from one state of the process. `recorded`: calls to servers are answered from a recording.

    What an execution leaves is found and put back before the next one, and at the end of a search (`finish`): the first may be
    the only one, of a test that is not searched. In a fresh process it is found at once, because it decides how to go on there.
    """

    def __init__(self, item: pytest.Item, *, recorded: bool) -> None:
        self._item, config = item, item.config
        keep_reads()
        self._workers = (config.getoption("mat_workers") or 1) > 1
        self._leave = not config.getoption("mat_confirm")
        roots = [str(config.rootpath), str(config.invocation_params.dir), *user_roots()]
        self._root = os.path.join(os.path.realpath(config.rootpath), "")
        self._isolation = Isolation(roots, shown=self._shown, kept_folder=_kept_folder(config), recorded=recorded)
        self._executions = self._known = self._reported = 0
        self._fixtures = watch_fixtures(config)

    def execute(self, function: Callable[[], T]) -> tuple[T, tuple[OutlivedState, ...]]:
        """The result of a function, and what is found to outlive executions by then and was not reported before."""
        isolation = self._isolation
        if not self._executions:
            plugins = [each for each in self._item.config.pluginmanager.get_plugins() if isinstance(each, ModuleType)]
            roots = {**self._fixtures.values(), "config": self._item.config}
            apart = None if self._workers else self._fixtures.apart  # nobody would see what workers have changed in the end
            isolation.start(roots, apart, root=_module_of(self._item), plugins=plugins)
        self._executions += 1
        self._known = self._reported
        outer, self._fixtures.isolation = self._fixtures.isolation, isolation
        try:
            result = isolation.execute(function, leave=self._leave)
        finally:
            self._fixtures.isolation = outer
        return result, self._news()

    @property
    def read(self) -> tuple[Read, ...]:
        """What executions in this process have read so far."""
        return tuple(self._isolation.read)

    def discard(self) -> tuple[OutlivedState, ...]:
        """Forget what the last execution left that could be put back; the rest of what it found."""
        self._isolation.discard()
        return self._news()

    def _news(self) -> tuple[OutlivedState, ...]:
        found = tuple(self._isolation.found)
        self._reported = len(found)
        return found[self._known :]

    def put_back(self) -> None:
        """Put back what the last execution left. The next execution reports it."""
        if self._executions:
            self._isolation.restore()
            self._isolation.look_apart()

    @property
    def shares(self) -> bool:
        """Whether an execution has used anything that another one at the same time would use as well."""
        return self._isolation.shares

    def look_apart(self) -> tuple[OutlivedState, ...]:
        """What the last executions have changed in the modules of other tests."""
        before = len(self._isolation.found)
        self.put_back()
        return tuple(self._isolation.found)[before:]

    @property
    def looks(self) -> int | None:
        """How often nothing had changed there; None if there are none, or nothing was executed."""
        return self._isolation.looks

    def finish(self) -> None:
        """Put back what the last execution left, unless it was the only one."""
        if self._executions > 1:
            self.put_back()

    def settle(self, function: Callable[[], object]) -> None:
        """Call a function whose changes belong to the state to begin from."""
        with self._isolation.state.settling():
            function()

    def _shown(self, path: str) -> str:
        return path.removeprefix(self._root)


def keep_reads() -> None:
    """Keep what this session reads from now on, and what it was asked for before."""
    watch = asked.watched()
    if watch is None or watch.handle is not None:
        return
    reads = begin_reads()
    watch.handle = reads.note
    for event, arguments, stack in watch.early:
        reads.note(event, arguments, stack)
    watch.early.clear()


def stop_keeping_reads() -> None:
    """Forget what the session read."""
    end_reads()


def _kept_folder(config: pytest.Config) -> str:
    factory: Any = getattr(config, "_tmp_path_factory", None)
    if factory is None:
        return ""
    try:
        base = factory.getbasetemp()
    except OSError:  # nothing can be written in the temporary folder, so no run writes there either
        return ""
    return str(base if config.getoption("basetemp", None) else base.parent)


class _FixtureWatch:
    """A plugin for pytest: what a fixture that outlives a run changes belongs to the state to begin from."""

    def __init__(self) -> None:
        self.isolation: Isolation | None = None
        self._wider: dict[int, Any] = {}
        self._tests: list[ModuleType] = []

    def take_tests(self, items: Iterable[pytest.Item]) -> None:
        """Take the modules of all tests that were collected, also of those that are deselected."""
        modules = {id(module): module for item in items if (module := _module_of(item)) is not None}
        self._tests = list(modules.values())

    @cached_property
    def apart(self) -> ApartState | None:
        """The modules of tests. A process that has one test only does not import the others; None if it is the only one."""
        return ApartState(self._tests) if len(self._tests) > 1 else None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Generator[None, Any, Any]:
        if fixturedef.scope == "function":
            return (yield)
        self._wider[id(fixturedef)] = fixturedef
        with (
            sharing(),
            nullcontext() if self.isolation is None else self.isolation.settling(lambda: _fixture_value(fixturedef)),
        ):
            return (yield)

    def values(self) -> dict[str, object]:
        """The values of the fixtures that exist now and outlive a run, by name."""
        found: dict[str, object] = {}
        for fixture in self._wider.values():
            found |= _fixture_value(fixture)
        return found


def _module_of(item: pytest.Item) -> ModuleType | None:
    """The module of a test, if only pytest's own collector of modules has to do with it: no conftest, plugin or doctest."""
    collector = item.getparent(pytest.Module)
    module = vars(collector).get("_obj") if type(collector) is pytest.Module else None
    if type(module) is not ModuleType or type(name := vars(module).get("__name__")) is not str:
        return None
    used_otherwise = name.rpartition(".")[2] == "conftest" or item.config.pluginmanager.is_registered(module)
    return None if used_otherwise else module


def watch_fixtures(config: pytest.Config) -> _FixtureWatch:
    """The watch of a session, which must be there before the first fixture is made."""
    found: _FixtureWatch | None = config.pluginmanager.getplugin(_WATCH)
    if found is None:
        found = _FixtureWatch()
        config.pluginmanager.register(found, _WATCH)
    return found


def _fixture_value(fixture: Any) -> dict[str, object]:
    result = fixture.cached_result
    return {f"fixture {fixture.argname}": result[0]} if result is not None and result[2] is None else {}
