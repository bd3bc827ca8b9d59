"""Replay files as items (DESIGN decisions 16 and 17): collected beside their test, re-run in CI, never lost in silence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import TestCase

import pytest

from mat.boundary.tape import Tape
from mat.core.campaign import Certificate, Counterexample
from mat.core.errors import MatError
from mat.core.run import Run
from mat.evidence import artifact
from pytest_mat.options import width_of
from pytest_mat.runtime import REPLAY, Plan, cached_settings, refuse, task_of

_SOURCE = pytest.StashKey[Path]()
_READ: pytest.StashKey[dict[Path, Any]] = pytest.StashKey()


def _replays(config: pytest.Config, directory: Path) -> dict[Path, Any]:
    """Every replay file of a folder: the Replay, or the MatError that says why it cannot be read."""
    cache = config.stash.setdefault(_READ, {})
    found: dict[Path, Any] = {}
    for path in artifact.find(directory):
        if path not in cache:
            try:
                cache[path] = artifact.read(path)
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


def _clone(item: pytest.Function, path: Path, replay: Any) -> pytest.Function:
    label = f"replay-{artifact.short_id(replay)}"
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
    clone.stash[REPLAY] = replay
    clone.stash[_SOURCE] = path
    return clone


def _set_node_id(item: Any, nodeid: str) -> None:
    """pytest takes the id from the parametrization; ours has a part more. The attribute changed its type in pytest 9.1."""
    if hasattr(item, "_id"):
        item._id = type(item._id).parse(nodeid)
    else:
        item._nodeid = nodeid


def complete(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add what only a whole collection can show: replays of unittest methods, unreadable files, files without a test."""
    wanted = config.getoption("mat_replay")
    if wanted:
        chosen = [item for item in items if item.stash.get(_SOURCE, Path()) == Path(wanted)] or _missing_clones(
            items, [Path(wanted)]
        )
        if not chosen:
            raise pytest.UsageError(f"--mat-replay {wanted}: its test {artifact.read(Path(wanted)).item} was not collected")
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen
        return
    directories = sorted({item.path.parent for item in items})
    paths = [path for directory in directories for path in _replays(config, directory)]
    present = {item.stash[_SOURCE] for item in items if _SOURCE in item.stash}
    items += _missing_clones(items, [path for path in paths if path not in present])
    present = {item.stash[_SOURCE] for item in items if _SOURCE in item.stash}
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


def _is_replay(item: pytest.Item) -> bool:
    return isinstance(item, Broken) or REPLAY in item.stash


def _missing_clones(items: Sequence[pytest.Item], paths: Sequence[Path]) -> list[pytest.Item]:
    """Replays whose items were not made with their tests': of unittest methods, and of tests selected by their node ids."""
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


def _unittest_clone(item: pytest.Function, path: Path, replay: Any) -> pytest.Item:
    clone: pytest.Function = type(item).from_parent(item.parent, name=item.name, callobj=item.obj)
    _set_node_id(clone, f"{item.nodeid}[replay-{artifact.short_id(replay)}]")
    clone.own_markers = list(item.own_markers)
    clone.stash[REPLAY] = replay
    clone.stash[_SOURCE] = path
    return clone


def _broken(config: pytest.Config, path: Path, modules: dict[Path, Any], *, selective: bool) -> pytest.Item | None:
    """A failing item for a file that cannot be read or whose test is gone; None where its test was only not selected."""
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
        why="a counterexample without its test guards nothing",
        fix="rename the test back, or delete the file if the test was meant to go",
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


def replay_plan(item: pytest.Item, replay: Any) -> Plan:
    """The recorded seed and schedule; external ports answer from the recorded tape."""
    recorded = replay.counterexample.run
    strict = item.config.getoption("mat_replay") is not None
    live = cached_settings(item).live_calls
    return Plan(
        mode="strict" if strict else "regression",
        seed=recorded.spec.seed,
        schedule=recorded.spec.schedule,
        tape=Tape(recorded.tape, live=0 if strict and live is None else live),
        replay=replay,
    )


def judge_replay(item: pytest.Item, plan: Plan, run: Run, error: BaseException | None) -> None:
    """Decide a replay item; raises what its report shows."""
    from mat.evidence.replay import compare, regression_outcome

    replay = plan.replay
    if plan.mode == "strict":
        divergence = compare(replay.counterexample.run, run)
        if divergence is not None:
            refuse(divergence)
        from mat.report.terminal import failure_section

        text = failure_section(
            replay.counterexample, replay.certificate, replay_path=source_of(item), item=replay.item,
            width=width_of(item.config),
        )  # fmt: skip
        if not replay.expected:
            pytest.fail(text, pytrace=False)
        item.add_report_section("call", "mat", text)
        return
    outcome = regression_outcome(replay, run)
    if not outcome.ok:
        pytest.fail(_broken_again(item, run, outcome), pytrace=False)
    unexpected = [each for each in run.failures if replay.expected and each.contract not in cached_settings(item).expect]
    if unexpected:
        first = unexpected[0]
        pytest.fail(
            f"violates {first.contract}, which expect= does not name, at step {first.step}: {first.message}", pytrace=False
        )


def _broken_again(item: pytest.Item, run: Run, outcome: Any) -> str:
    from mat.report.terminal import violation_section

    if outcome.status != "violated":
        return str(outcome.reason)
    steps = violation_section(run, outcome.violations, width=width_of(item.config))
    return f"{outcome.reason}\n\n{steps}Replay: pytest --mat-replay {source_of(item)}\n"


def source_of(item: pytest.Item) -> str:
    """The file of a replay's item, as a user would type it."""
    return _relative(item, item.stash[_SOURCE])


def save(item: pytest.Item, counterexample: Counterexample, certificate: Certificate, *, expected: bool) -> str:
    """Write the replay file beside the test; returns its path as the user would type it."""
    replay = artifact.Replay(
        item=task_of(item),
        counterexample=counterexample,
        certificate=certificate.below(counterexample.cost),
        expected=expected,
    )
    folder = item.path.parent / artifact.FOLDER
    folder.mkdir(exist_ok=True)
    path = folder / artifact.name_of(replay)
    artifact.write(path, replay)
    return _relative(item, path)


def _relative(item: pytest.Item, path: Path) -> str:
    try:
        return str(path.relative_to(item.config.invocation_params.dir))
    except ValueError:
        return str(path)
