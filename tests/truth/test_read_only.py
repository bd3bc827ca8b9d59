"""Where nothing can be written next to the tests, nothing is lost: it is in the temporary folder, and the session says so.

A file in the place of a folder refuses everybody, even an administrator.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.plugin import conftest as plugin

import mat
from mat.core.campaign import Certificate, Counterexample
from mat.evidence import replay_file
from mat.evidence.runlog import read
from mat.kernel.folders import OutputFolder, spare, writable
from mat_study.live import FOLDER, LiveCalls, path_of
from mat_study.means import Means, Subject
from mat_study.settings import ItemSettings
from mat_study.stress import _save

shop = plugin.shop

TEST = """
@pytest.mark.mat(budget=4, faults=FAULTS)
def test_refund(mat_run, no_double):
    shop.naive()
"""
ID = "test_shop.py::test_refund"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def refused(tmp_path: Path) -> Path:
    """A folder that cannot be made."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "journals"


def test_a_folder_that_can_be_written_is_made_and_left_empty(tmp_path: Path) -> None:
    wanted = tmp_path / "a" / "b"
    assert writable(wanted) == OutputFolder(path=wanted)
    assert list(wanted.iterdir()) == []


def test_the_spare_folder_is_private_stable_and_bears_the_name(refused: Path, temporary: Path) -> None:
    found = writable(refused)
    assert found.path.name == "journals"
    assert temporary in found.path.parents
    assert f"{refused} cannot be written (" in found.why
    assert stat.S_IMODE(found.path.parent.stat().st_mode) == 0o700
    assert writable(refused).path == found.path
    assert spare(refused.with_name("others")) != found.path


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders have no owner")
@pytest.mark.parametrize("plant", ["a folder that others write to", "a link", "a file"])
def test_a_spare_folder_that_others_may_have_planted_is_not_used(refused: Path, temporary: Path, plant: str) -> None:
    place = spare(refused).parent
    (place / "journals").rmdir()
    place.rmdir()
    if plant == "a link":
        (temporary / "elsewhere").mkdir()
        place.symlink_to(temporary / "elsewhere")
    elif plant == "a file":
        place.write_text("")
    else:
        place.mkdir()
        place.chmod(0o777)
    assert spare(refused).parent not in (place, temporary / "elsewhere")


def test_recorded_replies_are_copied_to_the_spare_folder_and_read_there(temporary: Path, tmp_path: Path) -> None:
    warnings: list[str] = []
    root = tmp_path / "checkout"
    kept = path_of(root, ID)
    kept.parent.mkdir(parents=True)
    kept.write_text("")
    live = LiveCalls(root, ID, most=1, warn=warnings.append)
    assert live._cassette_path() == kept
    kept.rename(tmp_path / "kept")
    kept.parent.rmdir()
    (root / FOLDER).write_text("")
    found = live._cassette_path()
    assert temporary in found.parents
    assert warnings == [f"recorded replies are in {found}, because {root / FOLDER} cannot be written (File exists)"]


@pytest.mark.full
def test_a_counterexample_that_cannot_be_saved_next_to_its_test_is_in_the_temporary_folder(shop: Any, temporary: Path) -> None:
    (shop.path / "mat_replays").write_text("")
    (shop.path / ".mat").write_text("")
    shop.tests(TEST)
    session = shop.stress()
    assert session.statuses == {ID: "counterexample"}
    (path,) = temporary.glob("*/mat_replays/*.mat.json")
    said = session.failures[ID]
    assert f"mat show {path}" in said
    assert f"the replay file is in {path.parent}, because it could not be written next to the test: cannot write" in said
    assert f"the replay file is in {path.parent}" in session.items[ID]["reason"]
    (journals,) = temporary.glob("*/campaigns")
    assert f"the journal of the search is in {journals}, because {shop.path}/.mat/campaigns cannot be written" in session.text
    again = shop.run(f"--mat-replay={path}")
    assert again.outcomes == {f"{ID}[replay-{path.name[-15:-9]}]": "failed"}
    assert again.failures[f"{ID}[replay-{path.name[-15:-9]}]"].startswith("no_double: o1 was refunded twice")


@mat.trace_contract(start=0, id="once")
def once(count: int, record: mat.Record) -> object:
    return mat.Violated("twice", state=count + 1) if count else 1


def saved(folder: Path) -> Any:
    """Save a counterexample of a small run, as a search does."""
    with mat.run([once], task=ID) as run:
        mat.message("ann", "hello")
    assert run.result is not None
    found = Counterexample(verdict=run.result.failures[0], run=run.result)
    never: Any = None
    means = Means(
        evaluate=never,
        operators=never,
        live=never,
        confirm=never,
        forked=never,
        replays=folder / "mat_replays",
        root=folder,
        began_ns=0,
    )
    return _save(Subject(id=ID, task=ID, name="", settings=ItemSettings()), means, found, Certificate(proven=False))


def test_a_replay_file_is_written_next_to_the_test_else_in_the_temporary_folder(tmp_path: Path, temporary: Path) -> None:
    found = saved(tmp_path)
    assert (found.remark, replay_file.read(Path(found.path)).item) == ("", ID)
    (tmp_path / "file").write_text("")
    found = saved(tmp_path / "file")
    assert temporary in Path(found.path).parents
    assert replay_file.read(Path(found.path)).item == ID
    assert f"the replay file is in {Path(found.path).parent}, because it could not be written next to the test" in found.remark


def test_a_counterexample_is_reported_even_if_it_can_be_saved_nowhere(tmp_path: Path, temporary: Path) -> None:
    temporary.rmdir()
    temporary.write_text("")
    (tmp_path / "file").write_text("")
    assert saved(tmp_path / "file").remark.startswith("the replay file could not be written: cannot write test_refund-")


@pytest.mark.full
def test_runs_that_cannot_be_stored_in_the_checkout_are_in_the_temporary_folder(shop: Any, temporary: Path) -> None:
    (shop.path / ".mat").write_text("")
    shop.tests(TEST)
    session = shop.run("--mat-store")
    assert session.statuses == {ID: "nominal"}
    (folder,) = temporary.glob("*/store")
    assert f"runs are stored in {folder}, because {shop.path}/.mat/store cannot be used" in session.text
    assert [entry.item for entry in read(folder)] == [ID]
