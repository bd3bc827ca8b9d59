"""Damaged files of every format are read, or refused with a MatError, quickly and in little memory."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path

import pytest
from tests.hostile import files

from mat.core.errors import MatError


@pytest.mark.full
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly) if name == "store" else name for name in files.FORMATS]
)
def test_damaged_files_are_read_or_refused(name: str) -> None:
    found = files.read_damaged(name, 150)
    assert not found.wrong
    assert found.read + found.refused == 150
    assert found.read, "some damage leaves a sound file"


def _crashes(path: Path) -> object:
    return json.loads(path.read_bytes())["a"]


def _is_slow(path: Path) -> object:
    return sum(range(3 * 10**8)) if b"a" in path.read_bytes() else 0


def _is_large(path: Path) -> object:
    return len(bytearray(300 * 2**20)) if b"a" in path.read_bytes() else 0


@pytest.mark.nightly
def test_a_reader_that_crashes_or_is_slow_or_large_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    make = files.text_file("x.json", '{"a": [1, 2]}')
    monkeypatch.setitem(files.FORMATS, "crashes", files.FileFormat(make, _crashes))
    monkeypatch.setitem(files.FORMATS, "slow", files.FileFormat(make, _is_slow))
    monkeypatch.setitem(files.FORMATS, "large", files.FileFormat(make, _is_large))
    assert any("KeyError at test_files.py" in wrong for wrong in files.read_damaged("crashes", 100).wrong)
    assert any(wrong.endswith(" s") for wrong in files.read_damaged("slow", 1).wrong)
    assert any(wrong.endswith(" MB") for wrong in files.read_damaged("large", 1).wrong)


@pytest.mark.full
def test_damage_is_that_of_its_seed_and_reaches_each_level() -> None:
    text = json.dumps({"a": [1, {"b": "x"}], "c": 2.5}).encode()
    made = [files.damaged(text, random.Random(seed)) for seed in range(300)]
    assert made == [files.damaged(text, random.Random(seed)) for seed in range(300)]
    assert len(set(made)) > 200
    valid = 0
    for item in made:
        with suppress(ValueError, RecursionError):
            valid += isinstance(json.loads(item), dict)
    assert 60 < valid < 240, "some are JSON of another shape, and some are no JSON"


@pytest.mark.full
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"mat": 1, "rules": [' + '{"a": 1}, ' * 19_000 + "1]}", "more than 20,000 values"),
        ("{" + ", ".join(f'"k{number}": 1' for number in range(25_000)) + "}", "more than 20,000 values"),
        ('{"mat": 1, "rules": [' + "[], " * 1_000_000 + "1]}", "the limit is 2,000,000"),
        ("mat: 1\nrules:\n" + "- a\n" * 21_000, "more than 20,000 values"),
    ],
    ids=["rules", "keys", "bytes", "yaml"],
)
def test_a_policy_of_many_values_is_refused_before_each_is_a_problem(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / ("policy.yaml" if text.startswith("mat") else "policy.json")
    path.write_text(text)
    with pytest.raises(MatError, match=said):
        files.FORMATS["policy, JSON"].read(path)
