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
LAWS = {
    "L1": "the same specification gives the same head, across processes and hash seeds",
    "L2": "no schedule equals no fault layer",
    "L3": "verdicts online are those of judging offline",
    "L4": "peeking changes nothing",
    "L5": "what is written is read back the same",
    "L6": "a strict replay gives the same head or says where it diverges",
    "L7": "shrinking keeps contract and stage, never costs more, is 1-minimal and idempotent",
    "L8": "a new stream of randomness moves no other",
    "L9": "merging outcomes is associative, commutative and idempotent",
    "L10": "no reply without a record, no effect without a decision, cancelled or not",
    "L11": "intervals cover at their stated rate in simulation",
    "L12": "every contract is seen failing",
    "L13": "every operator is seen changing a run",
    "L14": "a monitor's state does not grow with the trace",
    "L15": "pruned and unpruned search agree on every system small enough to exhaust",
    "L16": "a planted secret is in no artefact",
}


REGISTRIES: Mapping[str, Callable[[], set[str]]] = {
    "law": lambda: set(LAWS),
    "template": lambda: {template.name for template in mat_contracts.templates()},
    "operator": lambda: {operator.id for operator in mat_faults.operators()},
    "metric": lambda: set(METRICS),
}


@pytest.fixture
def fast(collected: tuple[pytest.Item, ...]) -> list[pytest.Item]:
    """What the fast tier runs, where the whole of it was collected."""
    folders = {path.name for path in (ROOT / "tests").iterdir() if any(path.glob("**/test_*.py"))}
    if folders - {
        item.path.relative_to(ROOT / "tests").parts[0] for item in collected if item.path.is_relative_to(ROOT / "tests")
    }:
        pytest.skip("a part of the tests was collected; `pytest` without paths checks this")
    return [item for item in collected if item.get_closest_marker("full") is None]


def _covered(items: list[pytest.Item], kind: str) -> Iterator[str]:
    for item in items:
        if any("fast" in sweep.kwargs for sweep in item.iter_markers("sweep")):
            continue  # of its cases the fast tier runs some
        for marker in item.iter_markers("covers"):
            if marker.args[0] == kind:
                yield from marker.args[1]


@pytest.mark.parametrize("kind", REGISTRIES)
def test_the_fast_tier_exercises_all_there_are(fast: list[pytest.Item], kind: str) -> None:
    wanted, covered = REGISTRIES[kind](), set(_covered(fast, kind))
    assert wanted
    assert wanted - covered == set(), f"no test of the fast tier is marked covers({kind!r}, ...) for these"
    assert covered - wanted == set(), "there are none of these"


def test_the_fast_tier_exercises_every_room(fast: list[pytest.Item]) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [room for contract in contracts if contract["type"] == "layers" for room in contract["layers"]]
    rooms = {room.strip() for layer in layers for room in layer.split("|")}
    texts = [path.read_text() for path in {item.path for item in fast}]
    assert len(rooms) > 10
    assert [room for room in sorted(rooms) if not any(re.search(rf"(from|import) {room}\b", text) for text in texts)] == []


def test_the_fast_tier_draws_the_same_few_examples(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--full"):
        assert not settings.default.derandomize
        return
    assert settings.default.derandomize
    assert settings.default.database is None
    own = [getattr(item.obj, "_hypothesis_internal_use_settings", None) for item in request.session.items]
    assert [item for item in own if item is not None and item.max_examples > settings.default.max_examples] == []
