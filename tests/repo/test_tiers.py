"""The fast tier leaves out no room, law, template, operator or metric."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import settings

import mat_contracts
import mat_faults
from mat.measure.metrics import METRICS

ROOT = Path(__file__).parents[2]
OPTIONAL = re.compile(r"^(\w+ = )?pytest\.importorskip\(", re.MULTILINE)
"""What a file of tests says that skips itself where a package is missing."""


def laws() -> dict[str, set[str]]:
    """Id of each law in docs/requirements.md -> the files that show it."""
    section = (ROOT / "docs/requirements.md").read_text(encoding="utf-8").partition("## Laws")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (L\d+) \| [^|]+ \| ([^|]+) \|$", section, re.MULTILINE)
    return {law: set(re.findall(r"`([^`]+)`", files)) for law, files in rows}


REGISTRIES: Mapping[str, Callable[[], set[str]]] = {
    "law": lambda: set(laws()),
    "template": lambda: {template.name for template in mat_contracts.templates()},
    "operator": lambda: {operator.id for operator in mat_faults.operators()},
    "metric": lambda: set(METRICS),
}


@pytest.fixture
def everything(collected: tuple[pytest.Item, ...]) -> list[pytest.Item]:
    """All tests of this folder, where all of them were collected."""
    found = [item for item in collected if item.path.is_relative_to(ROOT / "tests")]
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("**/test_*.py")}
    files = {path for path, text in texts.items() if "def test_" in text and not OPTIONAL.search(text)}
    if files - {item.path for item in found}:
        pytest.skip("a part of the tests was collected; `pytest` without paths checks this")
    return found


@pytest.fixture
def fast(everything: list[pytest.Item]) -> list[pytest.Item]:
    return [item for item in everything if not any(item.get_closest_marker(tier) for tier in ("full", "nightly"))]


def _covered(items: list[pytest.Item], kind: str) -> Iterator[str]:
    for item in items:
        if any("fast" in sweep.kwargs for sweep in item.iter_markers("sweep")):
            continue  # the fast tier runs some of its cases
        if any(item.get_closest_marker(name) for name in ("skip", "skipif", "xfail")):
            continue
        for marker in item.iter_markers("covers"):
            if marker.args[0] == kind:
                yield from marker.args[1]


@pytest.mark.parametrize("kind", REGISTRIES)
def test_the_fast_tier_exercises_all_there_are(fast: list[pytest.Item], kind: str) -> None:
    wanted, covered = REGISTRIES[kind](), set(_covered(fast, kind))
    assert wanted
    assert wanted - covered == set(), f"no test of the fast tier is marked covers({kind!r}, ...) for these"
    assert covered - wanted == set(), "there are none of these"


def test_the_laws_are_numbered_and_the_requirements_name_the_files_that_show_them(everything: list[pytest.Item]) -> None:
    found = laws()
    assert list(found) == [f"L{number}" for number in range(1, len(found) + 1)]
    shown: dict[str, set[str]] = {law: set() for law in found}
    for item in everything:
        for marker in item.iter_markers("covers"):
            for law in marker.args[1] if marker.args[0] == "law" else ():
                shown[law].add(item.path.relative_to(ROOT).as_posix())
    assert shown == found


def test_the_fast_tier_exercises_every_room(fast: list[pytest.Item]) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [room for contract in contracts if contract["type"] == "layers" for room in contract["layers"]]
    rooms = {room.strip() for layer in layers for room in layer.split("|")}
    texts = [path.read_text() for path in {item.path for item in fast}]
    assert len(rooms) > 10
    assert [room for room in sorted(rooms) if not any(re.search(rf"(from|import) {room}\b", text) for text in texts)] == []


def test_the_fast_tier_draws_the_same_few_examples_and_the_full_one_new_ones(
    request: pytest.FixtureRequest, collected: tuple[pytest.Item, ...]
) -> None:
    full = request.config.getoption("--full")  # which --rest and --nightly turn on
    assert settings.default.derandomize is not full
    tests = collected if full else request.session.items
    own = {item.nodeid: getattr(getattr(item, "obj", None), "_hypothesis_internal_use_settings", None) for item in tests}
    fixed = [name for name, used in own.items() if used is not None and used.derandomize is full]
    assert fixed == [], "the tier decides whether examples are new: no derandomize in the settings of a test"
    if not full:
        assert settings.default.database is None
        most = settings.default.max_examples
        assert [name for name, used in own.items() if used is not None and used.max_examples > most] == []
