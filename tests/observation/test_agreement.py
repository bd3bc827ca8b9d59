"""Declared places are judged as servers read them: the requests of benchmarks/places.py, fewer of them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from mat.boundary.issue import ConsumeDeclaration

for needed in ("h11", "httpx", "starlette"):
    pytest.importorskip(needed, reason="servers that read requests need it: pip install 'pytest-mat[examples]'")

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("url", "bearer", "basic", "cookie", "query", "header", "entity tag (weak)")


@pytest.fixture(scope="module")
def places() -> Iterator[ModuleType]:
    found = importlib.util.spec_from_file_location("benchmark_places", ROOT / "benchmarks" / "places.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    yield module
    del sys.modules[found.name]


def agreement(places: ModuleType, name: str, requests: int, seed: int) -> float:
    counted = [item for item in places.judged(name, requests, seed) if not item.forgiven]
    return sum(item.received == item.kept for item in counted) / len(counted)


def test_all_grammars_are_compared(places: ModuleType) -> None:
    assert set(NAMES) <= set(places.GRAMMARS)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_server_receives_is_intact_and_what_it_does_not_is_damaged(places: ModuleType, name: str) -> None:
    found = list(places.judged(name, 200, 1))
    assert all(item.received for item in found if item.legitimate)
    assert all(item.kept for item in found if item.legitimate)
    assert sum(not item.received for item in found) >= 50
    assert agreement(places, name, 200, 1) >= places.LEAST


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_so_it_is_of_thousands_of_requests(places: ModuleType, name: str) -> None:
    assert agreement(places, name, 2_000, 2) >= places.LEAST


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in NAMES if name != "basic"])
def test_a_rule_that_looks_for_the_artifact_anywhere_in_its_place_does_not_agree(
    places: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ConsumeDeclaration.delivered

    def anywhere(self: ConsumeDeclaration, text: str, *, tag: bool) -> tuple[str, ...]:
        words = text.replace('"', " ").replace(";", " ").replace("=", " ").replace(",", " ").split()
        return (*real(self, text, tag=tag), *(word.strip(".,;:!?()[]<>{}'`*/|\\") for word in (text, *words)))

    monkeypatch.setattr(ConsumeDeclaration, "delivered", anywhere)
    assert agreement(places, name, 1_000, 1) < places.LEAST
