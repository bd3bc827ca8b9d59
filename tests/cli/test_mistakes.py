"""Whatever a command is given: a message that says what, why, how to mend it and where, exit code 2, and no stack trace."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from mat.__main__ import main
from mat.evidence import replay_file

COMMANDS: Final[dict[str, Callable[[str], list[str]]]] = {
    "show": lambda file: ["show", file],
    "replay": lambda file: ["replay", file],
    "replay --as-test": lambda file: ["replay", file, "--as-test"],
    "check": lambda file: ["check", file],
    "check --contracts": lambda file: ["check", file, "--contracts", "rules:ONCE"],
    "diff, first": lambda file: ["diff", file, "good.mat.json"],
    "diff, second": lambda file: ["diff", "good.json", file],
    "report": lambda file: ["report", file],
    "report --out": lambda file: ["report", file, "--out", "out.html"],
    "report --baseline": lambda file: ["report", "good.json", "--baseline", file],
    "import": lambda file: ["import", file, "--store", "kept"],
    "gate": lambda file: ["gate", "--baseline", file],
    "suite": lambda file: ["suite", file],
    "suite --report": lambda file: ["suite", "--report", file],
    "query --parquet": lambda file: ["query", "SELECT 1", "--parquet", file],
    "query --store": lambda file: ["query", "SELECT 1", "--store", file],
    "export --store": lambda file: ["export", "out", "--store", file],
}
SUFFIXES: Final = (".mat.json", ".json", ".mat.log", "")


def foreign() -> Iterator[tuple[str, bytes]]:
    """Contents that are none of ours, by what they are."""
    yield "list", b'[{"a": 1}, {"b": []}]'
    yield "object", b'{"a": {"b": 1}}'
    yield "number", b"3"
    yield "null", b"null"
    yield "empty", b""
    yield "blank", b"\n\n  \n"
    yield "later", b'{"mat": 99, "items": [], "tables": {}, "verdict": {}}'
    yield "unversioned", b'{"mat": "1", "items": [], "tables": {}}'
    yield "hollow", b'{"mat": 1, "items": 3, "tables": []}'
    yield "latin", '{"ä": "ö"}'.encode("latin-1")
    yield "utf16", '{"a": 1}'.encode("utf-16")
    yield "marked", b'\xef\xbb\xbf{"a": 1}'
    yield "binary", bytes(range(256)) * 40
    yield "zeros", b"\0" * 5000
    yield "deep", b"[" * 5000 + b"]" * 5000
    yield "long-number", b'{"mat": 1, "n": ' + b"9" * 6000 + b"}"
    yield "zipped", gzip.compress(b'{"a":1}')[:-4]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory, a_replay: replay_file.Replay) -> Path:
    """A folder with a good file of each kind, and the rules that traces are judged by."""
    folder = tmp_path_factory.mktemp("good")
    replay_file.write(folder / "good.mat.json", a_replay)
    (folder / "rules.py").write_text("from mat_contracts import no_duplicate_effect\nONCE = no_duplicate_effect('refund')\n")
    replay, made = str(folder / "good.mat.json"), str(folder / "made")
    assert main(["report", replay, "--out", str(folder / "good.json")]) == 0
    assert main(["import", replay, "--store", made]) == 0
    assert main(["export", str(folder / "exported"), "--store", made, "--machine", "one"]) == 0
    return folder


@pytest.fixture
def folder(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, in which we are; no git revision is near it."""
    shutil.copytree(good, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def judged(command: str, path: str, capsys: pytest.CaptureFixture[str], *, allowed: tuple[int, ...] = (2,)) -> list[str]:
    """What is wrong with the way a command refuses a file."""
    try:
        code: Any = main(COMMANDS[command](path))
    except SystemExit as ended:
        code = f"SystemExit {ended.code}"
    except Exception as error:
        code = f"{type(error).__name__}: {error}"
    out, err = capsys.readouterr()
    if code != 2:
        return [] if code in allowed else [f"{command} {path}: {code!r}"]
    said = out + err
    missing = [part for part in ("why: ", "fix: ") if part not in said]
    missing += [] if "where: " in said or path in said else ["where"]
    missing += ["Traceback"] if "Traceback" in said else []
    return [f"{command} {path}: {', '.join(missing)} | {said[:200]}"] if missing else []


@pytest.mark.nightly
@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_of_another_kind_is_refused_in_four_parts(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    wrong = []
    for name, content in foreign():
        for suffix in SUFFIXES:
            path = f"{name}{suffix}"
            Path(path).write_bytes(content)
            empty_log = command == "import" and suffix == ".mat.log" and not content
            wrong += judged(command, path, capsys, allowed=(0, 2) if empty_log else (2,))
            Path(path).unlink()
    assert wrong == []


@pytest.mark.full
@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_cut_short_is_refused_in_four_parts(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = []
    log = next(Path("made").glob("*.mat.log"))
    for source in (Path("good.mat.json"), Path("good.json"), log, Path("made/store.duckdb"), Path("exported/runs-one.parquet")):
        whole = source.read_bytes()
        capsys.readouterr()
        for tenth in range(10):
            path = f"cut{tenth}-{source.name}"
            Path(path).write_bytes(whole[: len(whole) * tenth // 10])
            unused = source.suffix == ".duckdb" and tenth >= 5 and command.startswith("report")  # what is gone may be unused
            wrong += judged(command, path, capsys, allowed=(0, 2) if unused else (2,))
    assert wrong == []


@pytest.mark.full
@pytest.mark.parametrize("command", COMMANDS)
def test_a_path_that_is_no_file_is_refused_in_four_parts(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("folder", "folder.json", "folder.mat.json"):
        Path(name).mkdir()
    capsys.readouterr()
    wrong = []
    for path in ("missing.json", "missing.mat.json", "no/such/folder.json", "x" * 300 + ".json", "folder", "folder.mat.json"):
        wrong += judged(
            command,
            path,
            capsys,
        )
    assert wrong == []


def test_a_file_beyond_the_limit_is_refused_before_it_is_parsed(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mat.core import limits

    for name in ("huge.mat.json", "huge.json"):
        with open(name, "wb") as stream:
            stream.truncate(limits.FILE_BYTES + 10)  # a hole: it takes no room on the disk
    capsys.readouterr()
    wrong = judged("show", "huge.mat.json", capsys) + judged("diff, second", "huge.json", capsys)
    assert wrong == []


@pytest.mark.full
def test_every_key_of_a_replay_file_may_hold_anything(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(Path("good.mat.json").read_text())
    capsys.readouterr()
    wrong = []
    for key in data:
        for value in (None, [1], {"x": 1}, "x", -1, 10**30, 1.5):
            Path("odd.mat.json").write_text(json.dumps({**data, key: value}))
            wrong += [f"{key}={value!r}: {said}" for said in judged("show", "odd.mat.json", capsys)]
    assert wrong == []


def test_a_missing_file_is_named_with_its_folder_and_the_file_that_was_meant(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["show", "god.mat.json"]) == 2
    err = capsys.readouterr().err
    assert err.splitlines()[0] == "mat: no such file: god.mat.json; did you mean 'good.mat.json'?"
    assert f"why: paths are relative to {folder}" in err
    assert "where: god.mat.json" in err


def test_a_folder_given_for_a_file_is_called_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mat_replays").mkdir()
    capsys.readouterr()
    assert main(["show", "mat_replays"]) == 2
    assert "mat: mat_replays is a folder\n" in capsys.readouterr().err


def test_a_foreign_json_is_no_replay_file_and_no_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("package.json").write_text('{"name": "x"}')
    capsys.readouterr()
    assert main(["diff", "good.json", "package.json"]) == 2
    assert "package.json is neither a replay file nor a report" in capsys.readouterr().err


def test_what_can_be_read_of_a_cut_log_is_reported_and_the_exit_code_says_that_it_is_not_all(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = next(Path("made").glob("*.mat.log"))
    for name in ("cut.mat.log", "killed/cut.mat.log"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(log.read_bytes() + b"2 400 00")
    capsys.readouterr()
    for command in (["import", "cut.mat.log", "--store", "kept"], ["report", "cut.mat.log"]):
        assert main(command) == 2
        out, err = capsys.readouterr()
        assert "1" in out
        assert "fix: import it after its process has ended" in err
        assert "where: cut.mat.log" in err
    assert main(["report", "killed"]) == 0  # killed processes leave such an end behind: a folder gets a note
    assert "log-torn" in capsys.readouterr().err


def test_a_folder_without_a_store_is_not_an_empty_store(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("nothing").mkdir()
    capsys.readouterr()
    assert main(["query", "SELECT count(*) FROM runs", "--store", "nothing"]) == 2
    assert "nothing contains no store and no log" in capsys.readouterr().err
    assert os.listdir("nothing") == []


# -- slips of the pen -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["shwo", "x"], "unknown command 'shwo'; did you mean 'show'?"),
        (["frobnicate"], "unknown command 'frobnicate'; commands are init, show, replay, diff,"),
        (["--json", "show", "x"], "--json must follow the command: mat COMMAND --json"),
        (["show", "x", "--jsn"], "unknown option --jsn; did you mean '--json'?"),
        (["show", "x", "y"], "too many arguments: y"),
        (["replay"], "the following arguments are required: FILE\n"),
        (["replay", "x", "--pdb"], "unknown option --pdb; put -- before the first option for pytest"),
        (["diff", "a", "b", "--under", "fault"], "'fault' is not one of nominal, faults; did you mean 'faults'?"),
        (["report", "x", "--as", "htm"], "did you mean 'html'?"),
        (["import", "x", "--condition", "nominl"], "did you mean 'nominal'?"),
        (["import", "x", "--input", "bening"], "did you mean 'benign'?"),
        (["export", "x", "--format", "parket"], "did you mean 'parquet'?"),
        (["completion", "bsh"], "did you mean 'bash'?"),
    ],
)
def test_a_slip_of_the_pen_is_told_what_was_meant(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.startswith("usage: mat")


def test_the_system_refusing_a_file_is_a_message_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["suite", "x" * 300]) == 2
    err = capsys.readouterr().err
    assert "File name too long" in err
    assert "Traceback" not in err
