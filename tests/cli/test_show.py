"""`mat show` in a terminal: keys come from a real one, which is left as it was; text goes to pipes."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from mat.__main__ import main
from mat.commands.keys import single_keys
from mat.core.errors import MatError
from mat.evidence import replay_file


def spawned(*arguments: str, **environment: str) -> Any:
    pexpect = pytest.importorskip("pexpect")
    import os

    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30", **environment}
    return pexpect.spawn(
        sys.executable, ["-m", "mat", "show", *arguments], dimensions=(30, 100), env=env, encoding="utf-8", timeout=30
    )


def seen(child: Any) -> str:
    """What the child wrote until it ended, without escape sequences."""
    import pexpect

    child.expect(pexpect.EOF)
    return re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", child.before)


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="pexpect needs a POSIX terminal")
def test_a_person_steps_searches_and_quits_and_the_terminal_is_restored(file: Path) -> None:
    import termios

    child = spawned(str(file))
    child.expect("VIOLATES refund.once")
    before = termios.tcgetattr(child.child_fd)
    assert not before[3] & termios.ICANON
    child.send("g")
    child.expect(r"step 0 of 4")
    child.send("\x1b[B")
    child.expect(r"step 1 of 4")
    child.send("\r")
    child.expect("reply:")
    child.send("/mitig\r")
    child.expect("mitigation retry")
    child.send("d")
    child.expect("the nominal run is not known")
    child.send("?")
    child.expect("this help")
    child.send("xq")
    text = seen(child)
    child.close()
    assert child.exitstatus == 0
    assert "Traceback" not in text
    child = spawned(str(file))
    child.expect("VIOLATES")
    child.sendintr()
    assert "Traceback" not in seen(child)
    child.close()
    assert child.exitstatus == 130


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="pexpect needs a POSIX terminal")
@pytest.mark.parametrize(("options", "environment"), [(["--plain"], {}), ([], {"TERM": "dumb"}), (["--json"], {})])
def test_text_is_printed_where_it_is_asked_for(file: Path, options: list[str], environment: dict[str, str]) -> None:
    child = spawned(*options, str(file), **environment)
    text = seen(child)
    assert "refund.once" in text
    assert "q quit" not in text


def test_a_pipe_gets_text(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(file)]) == 0
    assert "All steps (4)" in capsys.readouterr().out


def test_where_there_are_no_single_keys_they_are_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "in"
    path.write_text("q")
    with path.open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        with pytest.raises(MatError, match="does not deliver single keys") as caught, single_keys():
            pass
    assert "--plain" in caught.value.fix
    monkeypatch.setitem(sys.modules, "termios", None)
    with pytest.raises(MatError, match="does not deliver single keys"), single_keys():
        pass


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="pexpect needs a POSIX terminal")
def test_the_nominal_run_of_the_store_is_compared_with(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:cacheprovider")
    command = [sys.executable, "-m", "pytest", "-q", "--mat-stress", "--mat-store", "--mat-budget", "4"]
    subprocess.run(command, cwd=project, check=False, capture_output=True, timeout=120)
    (replay,) = (project / "mat_replays").glob("*.mat.json")
    child = spawned(str(replay))
    child.expect("VIOLATES")
    child.send("d")
    child.expect("nominal only")
    child.send("q")
    seen(child)


def test_a_test_in_the_place_of_its_replay_is_told_where_the_replays_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", __file__]) == 2
    err = capsys.readouterr().err
    assert "is a Python file" in err
    assert "mat_replays/*.mat.json" in err


def test_steps_that_are_shown_already_are_not_shown_again(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(file)]) == 0
    said = capsys.readouterr().out
    assert said.count("VIOLATES") == 1
    assert "All steps (4); the run ended: its body returned; the table above shows all of them" in said


def test_each_step_of_a_long_run_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    replays = Path(__file__).parents[2] / "examples" / "helpdesk" / "mat_replays"
    assert main(["show", str(replays / "test_a_parcel_is_located-5154cd.mat.json")]) == 0
    said = capsys.readouterr().out
    total = int(re.findall(r"All steps \((\d+)\)", said)[0])
    shown = [int(number) for number in re.findall(r"^ *(\d+) +\d+  ", said, re.MULTILINE)]
    assert (shown, total > 10) == (list(range(total)), True)
    assert said.index("Repair: ") < said.index("All steps (")


@pytest.fixture
def kept(project: Path, a_replay: replay_file.Replay) -> str:
    """The path of a replay file in its project, relative to it."""
    folder = project / "mat_replays"
    folder.mkdir()
    replay_file.write(folder / "x.mat.json", a_replay)
    return "mat_replays/x.mat.json"


def test_in_another_folder_the_command_names_the_folder_of_the_project(
    project: Path, kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (elsewhere := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(elsewhere)
    assert main(["show", str(project / kept)]) == 0
    assert f"Replay: cd {project} && pytest --mat-replay {kept}\n" in capsys.readouterr().out
    monkeypatch.chdir(project)
    assert main(["show", kept]) == 0
    assert f"Replay: pytest --mat-replay {kept}\n" in capsys.readouterr().out


def test_without_the_project_the_missing_test_is_named(
    project: Path, kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = tmp_path / "alone" / "x.mat.json"
    alone.parent.mkdir()
    (project / kept).rename(alone)
    monkeypatch.chdir(alone.parent)
    assert main(["show", "x.mat.json"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Its test test_shop.py::test_refund is neither below this folder nor below one above the file" in said


@pytest.mark.parametrize(("folder", "meant"), [("mat_replays", "../mat_replays/x.mat.json"), ("..", None)])
def test_a_path_that_is_relative_to_another_folder_is_found(
    project: Path,
    kept: str,
    folder: str,
    meant: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(project / folder)
    given = kept if meant else f"no/{project.name}/{kept}"
    assert main(["show", given]) == 2
    assert f"no such file: {given}; did you mean '{meant or f'{project.name}/{kept}'}'?" in capsys.readouterr().err
