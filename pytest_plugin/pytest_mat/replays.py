"""Replay files as items: collected next to their test, re-run in CI, never dropped silently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest import TestCase

import pytest

from mat.core.errors import MatError
from mat.evidence import replay_file
from pytest_mat.session import session_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFile:
    """The replay that a cloned item re-runs, and the file it was read from."""

    replay: replay_file.Replay
    path: Path


_FILE: Final = pytest.StashKey[ReplayFile]()


def file_of(item: pytest.Item) -> ReplayFile | None:
    """The replay file that an item re-runs; None for an ordinary test."""
    return item.stash.get(_FILE, None)


def task_of(item: pytest.Item) -> str:
    """The task: the item's node id without its replay."""
    file = file_of(item)
    return file.replay.item if file is not None else item.nodeid


def _replays(config: pytest.Config, directory: Path) -> dict[Path, replay_file.Replay | MatError]:
    """Every replay file of a folder, as a Replay or as the MatError that explains why it cannot be read."""
    cache = session_of(config).replays
    found: dict[Path, replay_file.Replay | MatError] = {}
    for path in replay_file.find(directory):
        if path not in cache:
            try:
                cache[path] = replay_file.read(path)
            except MatError as error:
                cache[path] = error
        found[path] = cache[path]
    return found


def with_replays(items: Sequence[Any]) -> list[Any]:
    """The items of one test function, each followed by an item for each of its replay files."""
    made: list[Any] = []
    for item in items:
        made.append(item)
        if not isinstance(item, pytest.Function):
            continue
        for path, replay in _replays(item.config, item.path.parent).items():
            if not isinstance(replay, MatError) and replay.item == item.nodeid:
                made.append(_clone(item, path, replay))
    return made


def _clone(item: pytest.Function, path: Path, replay: replay_file.Replay) -> pytest.Function:
    label = f"replay-{replay_file.short_id(replay)}"
    name = f"{item.name[:-1]}-{label}]" if item.name.endswith("]") else f"{item.name}[{label}]"
    options: dict[str, Any] = {
        "name": name,
        "callspec": getattr(item, "callspec", None),
        "fixtureinfo": item._fixtureinfo,
        "originalname": item.originalname,
        "keywords": {label: True},
    }
    if not isinstance(item.parent, pytest.Class):
        options["callobj"] = item.obj
    clone: pytest.Function = type(item).from_parent(item.parent, **options)
    _set_node_id(clone, f"{item.nodeid[:-1]}-{label}]" if item.nodeid.endswith("]") else f"{item.nodeid}[{label}]")
    clone.own_markers = list(item.own_markers)
    for marker in item.own_markers:
        clone.keywords[marker.name] = marker
    clone.stash[_FILE] = ReplayFile(replay=replay, path=path)
    return clone


def _set_node_id(item: Any, nodeid: str) -> None:
    """pytest derives the id from parameters; a replay's id has one more part. The attribute changed its type in pytest 9.1."""
    if hasattr(item, "_id"):
        item._id = type(item._id).parse(nodeid)
    else:
        item._nodeid = nodeid


def _not_collected(path: Path, config: pytest.Config) -> str:
    """That the test of the replay file to run was not collected, and where it can be."""
    item = replay_file.read(path).item
    project = replay_file.project_of(path, item)
    if project is None:
        help = f"{item.partition('::')[0]} is neither below this folder nor below one above the file: run it in its project"
    elif project != config.rootpath:
        help = f"run it in its project: cd {project}"
    else:
        help = "it was renamed, removed or deselected"
    return f"--mat-replay {path}: its test {item} was not collected\n  fix: {help}"


def complete(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add what only a complete collection reveals: replays of unittest methods, unreadable files, files without a test."""
    wanted = config.getoption("mat_replay")
    if wanted:
        chosen = [item for item in items if _path(item) == Path(wanted)] or _missing_clones(items, [Path(wanted)])
        if not chosen:
            raise pytest.UsageError(_not_collected(Path(wanted), config))
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen
        return
    directories = sorted({item.path.parent for item in items})
    paths = [path for directory in directories for path in _replays(config, directory)]
    present = {_path(item) for item in items}
    items += _missing_clones(items, [path for path in paths if path not in present])
    present = {_path(item) for item in items}
    selective = any("::" in str(argument) for argument in config.args)
    modules = {item.getparent(pytest.Module) for item in items}
    by_file = {module.path: module for module in modules if module is not None}
    for path in paths:
        if path in present:
            continue
        broken = _broken(config, path, by_file, selective=selective)
        if broken is not None:
            items.append(broken)
    collected = getattr(config, "workerinput", {}).get("mat_collected")
    if collected is not None:
        items[:] = [item for item in items if item.nodeid in collected or not _is_replay(item)]


def _path(item: pytest.Item) -> Path | None:
    file = file_of(item)
    return None if file is None else file.path


def _is_replay(item: pytest.Item) -> bool:
    return isinstance(item, Broken) or file_of(item) is not None


def _missing_clones(items: Sequence[pytest.Item], paths: Sequence[Path]) -> list[pytest.Item]:
    """Items for replays that have none yet: of unittest methods, and of tests selected by their node ids."""
    made: list[pytest.Item] = []
    for path in paths:
        replay = _replays(items[0].config, path.parent.parent).get(path) if items else None
        if replay is None or isinstance(replay, MatError):
            continue
        owners = [item for item in items if isinstance(item, pytest.Function) and item.nodeid == replay.item]
        for item in owners:
            clone = _unittest_clone if item.cls is not None and issubclass(item.cls, TestCase) else _clone
            made.append(clone(item, path, replay))
    return made


def _unittest_clone(item: pytest.Function, path: Path, replay: replay_file.Replay) -> pytest.Item:
    clone: pytest.Function = type(item).from_parent(item.parent, name=item.name, callobj=item.obj)
    _set_node_id(clone, f"{item.nodeid}[replay-{replay_file.short_id(replay)}]")
    clone.own_markers = list(item.own_markers)
    clone.stash[_FILE] = ReplayFile(replay=replay, path=path)
    return clone


def _broken(config: pytest.Config, path: Path, modules: dict[Path, Any], *, selective: bool) -> pytest.Item | None:
    """A failing item for a file that cannot be read or whose test no longer exists; None if its test was just not selected."""
    folder = path.parent.parent
    replay = _replays(config, folder)[path]
    if isinstance(replay, MatError):
        module = next((modules[file] for file in sorted(modules) if file.parent == folder), None)
        return None if module is None else Broken.from_parent(module, name=path.name, error=replay)
    owner = folder / Path(replay.item.partition("::")[0]).name
    if selective:
        return None
    if not owner.exists():
        module = next((modules[file] for file in sorted(modules) if file.parent == folder), None)
    else:
        module = modules.get(owner)
    if module is None:
        return None
    gone = MatError(
        f"{path.name} belongs to {replay.item}, which no longer exists",
        why="without its test, a counterexample cannot run",
        fix="rename the test back, or delete the file if the test was removed on purpose",
        where=str(path),
    )
    return Broken.from_parent(module, name=path.name, error=gone)


class Broken(pytest.Item):
    """Fails with the reason why a replay file cannot run."""

    def __init__(self, *, error: MatError, **options: Any) -> None:
        super().__init__(**options)
        self._error = error

    def runtest(self) -> None:
        raise self._error

    def repr_failure(self, excinfo: Any, style: Any = None) -> str:
        return str(excinfo.value)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


def source_of(item: pytest.Item) -> str:
    """The file of a replay item, as a user would type it."""
    file = file_of(item)
    assert file is not None
    return typed(item, file.path)


def typed(item: pytest.Item, path: Path) -> str:
    """A path as a user types it."""
    try:
        return str(path.relative_to(item.config.invocation_params.dir))
    except ValueError:
        return str(path)
