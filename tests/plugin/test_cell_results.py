"""The journal of an evaluation gives back what it was given, and executes again what it cannot read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mat.core.checkpoint import claim
from mat_study.cell_results import CellJournal, CellResults
from mat_study.sources import installed_digest

PART = CellResults(met=["pay"], notes=["a note"], executions=3)


def parts(path: Path, **more: Any) -> CellJournal:
    return CellJournal(path, {"item": "here"}, began_ns=0, **more)


def written(path: Path) -> None:
    journal = parts(path, session="monday")
    journal.keep("none/0/nominal", PART)
    journal.close()


def forged(path: Path, *contents: str) -> None:
    """The same log with other content, and the checksums that belong to it."""
    header = json.loads(path.read_bytes().splitlines()[0])[2]
    path.unlink()
    log = claim(path, kind=header["kind"], key=header["key"])
    assert log is not None
    for content in contents:
        log.append(content)
    log.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "evaluations" / "one.jsonl"


def test_a_part_is_given_back_under_the_session_that_kept_it(path: Path) -> None:
    written(path)
    journal = parts(path, session="tuesday")
    assert (journal.recall("none/0/nominal"), journal.recall("none/1/nominal")) == (PART, None)
    assert (journal.session, journal.recalled, journal.note) == ("monday", 1, "")
    journal.close()


def test_a_source_that_changed_begins_anew_with_the_session_of_today(path: Path) -> None:
    written(path)
    forged(path, json.dumps({"part": "none/0/nominal", "session": "monday", "sources": {"/gone.py": "e3b0"}, "gave": {}}))
    journal = parts(path, session="tuesday")
    assert (journal.recall("none/0/nominal"), journal.session) == (None, "tuesday")
    assert journal.note == "an interrupted evaluation was set aside: /gone.py changed since"
    journal.close()


@pytest.mark.parametrize("content", ["{}", "[]", "3", '{"part":1,"session":"","sources":{},"gave":{}}'])
def test_an_entry_of_another_shape_sets_the_journal_aside(path: Path, content: str) -> None:
    written(path)
    forged(path, content)
    journal = parts(path)
    assert journal.note == "an interrupted evaluation was set aside: line 1 was written by another version"
    journal.keep("none/0/nominal", PART)
    journal.close()
    again = parts(path)
    assert again.recall("none/0/nominal") == PART
    again.close()


@pytest.mark.parametrize("gave", ["{}", '{"rows":3}', '{"executions":1}'])
def test_a_part_of_another_shape_is_executed_again(path: Path, gave: str) -> None:
    written(path)
    forged(path, f'{{"part":"none/0/nominal","session":"","sources":{{}},"gave":{gave}}}')
    journal = parts(path)
    assert (journal.recall("none/0/nominal"), journal.recalled, journal.note) == (None, 0, "")
    journal.close()


def test_an_entry_that_is_not_json_means_no_journal(path: Path) -> None:
    written(path)
    forged(path, "{")
    journal = parts(path)
    assert journal.note.startswith("no journal is kept: line 1 of a log is not JSON")
    assert (journal.recall("none/0/nominal"), journal.path) == (None, None)
    journal.keep("none/0/nominal", PART)


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_folder_or_a_pipe_in_the_place_of_the_file_means_no_journal(path: Path, make: Any, fresh: bool) -> None:
    path.parent.mkdir()
    make(path)
    journal = parts(path, fresh=fresh)
    kept = fresh and make is os.mkfifo  # removed, as any file
    assert journal.note.startswith("no journal is kept: ") != kept
    journal.keep("none/0/nominal", PART)
    journal.close()


def test_what_is_installed_belongs_to_the_key(path: Path) -> None:
    written(path)
    assert json.loads(path.read_bytes().splitlines()[0])[2]["key"]["installed"] == installed_digest()
