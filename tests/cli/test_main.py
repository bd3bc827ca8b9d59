from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mat.__main__ import main
from mat.evidence import replay_file


def mat_command(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mat", *map(str, arguments)], capture_output=True, text=True, check=False, cwd=cwd, timeout=120
    )


@pytest.mark.full
def test_show_prints_the_counterexample_and_every_step(file: Path) -> None:
    done = mat_command("show", file)
    assert done.returncode == 0
    assert done.stdout.startswith("refund.once: refunded twice\n")
    assert "All steps (4); the run ended: its body returned" in done.stdout
    assert f"pytest --mat-replay={file}" in done.stdout.replace("\n", " ")
    assert done.stderr == ""


@pytest.mark.full
def test_show_json_is_the_content_of_the_file(file: Path) -> None:
    done = mat_command("show", "--json", file)
    assert done.returncode == 0
    assert json.loads(done.stdout) == json.loads(file.read_text())


@pytest.mark.full
def test_check_passes_whole_files_and_lists_every_broken_one(file: Path, tmp_path: Path) -> None:
    assert mat_command("check", file).returncode == 0
    broken, missing = tmp_path / "broken.mat.json", tmp_path / "missing.mat.json"
    broken.write_text(file.read_text()[:500])
    done = mat_command("check", broken, file, missing)
    assert done.returncode == 2
    assert f"{broken} is not JSON" in done.stdout
    assert f"{file}: ok" in done.stdout
    assert f"no such file: {missing}" in done.stdout
    assert done.stdout.count("fix:") == 2
    data = json.loads(mat_command("check", "--json", broken, file).stdout)
    assert (data["ok"], [item["ok"] for item in data["files"]]) == (False, [False, True])


@pytest.mark.full
def test_diff_is_0_for_equal_runs_and_1_with_the_first_differing_step(file: Path, other_file: Path) -> None:
    same = mat_command("diff", file, file)
    assert (same.returncode, same.stdout.startswith("the same run: 4 equal steps")) == (0, True)
    differ = mat_command("diff", file, other_file)
    assert differ.returncode == 1
    assert differ.stdout.startswith("first difference at step 0, in: arguments\n")
    assert "amount=25" in differ.stdout
    assert "amount=30" in differ.stdout
    data = json.loads(mat_command("diff", "--json", file, other_file).stdout)
    assert (data["equal"], data["difference"]["step"], data["difference"]["aspect"]) == (False, 0, "arguments")
    assert json.loads(mat_command("diff", "--json", file, file).stdout) == {"equal": True, "difference": None}


@pytest.mark.full
def test_doctor_names_versions_plugins_and_operators(tmp_path: Path) -> None:
    data = json.loads(mat_command("doctor", "--json", cwd=tmp_path).stdout)
    assert data["problems"] == []
    assert "mat" in data["plugins"]
    assert "service.lost_ack" in data["operators"]
    assert data["versions"]["pytest"] == pytest.__version__
    text = mat_command("doctor", cwd=tmp_path)
    assert text.returncode == 0
    assert max(map(len, text.stdout.splitlines())) <= 120
    (service,) = (part for part in text.stdout.split("\n  ") if part.startswith("service: "))
    assert "lost_ack" in text.stdout[text.stdout.index(service) :]


@pytest.mark.full
def test_doctor_finds_a_package_that_shadows_ours(tmp_path: Path) -> None:
    (tmp_path / "mat_search.py").write_text("")
    done = mat_command("doctor", cwd=tmp_path)
    assert done.returncode == 2
    assert "mat_search" in done.stdout.partition("problem:")[2]


@pytest.mark.full
@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["show"],
        ["show", "missing.mat.json"],
        ["show", "."],
        ["diff", "missing.mat.json", "missing.mat.json"],
        ["replay", "missing.mat.json"],
        ["show", "--json", "missing.mat.json"],
    ],
)
def test_a_mistake_is_a_message_on_stderr_and_exit_code_2(arguments: list[str], tmp_path: Path) -> None:
    done = mat_command(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_no_command_at_all_names_the_next_one_and_where_all_are_listed(tmp_path: Path) -> None:
    done = mat_command(cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "next: mat init" in done.stdout
    assert "all commands: mat --help" in done.stdout


@pytest.mark.full
def test_a_mistake_under_json_is_json_too(tmp_path: Path) -> None:
    done = mat_command("show", "--json", "missing.mat.json", cwd=tmp_path)
    assert json.loads(done.stdout)["error"]["what"] == "no such file: missing.mat.json"


@pytest.mark.parametrize("content", ["", "[" * 100_000, '{"mat": 2}', '{"mat": 1}', "\x1b[31m", '{"mat": 1, "\\u001b[2J": 1}'])
def test_a_hostile_file_ends_in_a_message_and_no_escape_reaches_the_terminal(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "evil.mat.json"
    path.write_text(content)
    for command in ("show", "check"):
        assert main([command, str(path)]) == 2
        out, err = capsys.readouterr()
        assert out or err
        assert "\x1b" not in out + err


@pytest.mark.parametrize("command", ["show", "replay", "diff", "check", "doctor"])
def test_every_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert f"example: mat {command}" in text
    assert "--json" in text


@pytest.mark.full
def test_a_reader_that_stops_early_is_no_error(file: Path) -> None:
    shown = subprocess.Popen(
        [sys.executable, "-m", "mat", "show", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert shown.stdout is not None
    assert shown.stderr is not None
    shown.stdout.close()
    assert shown.wait(timeout=60) == 0
    assert shown.stderr.read() == ""
    shown.stderr.close()


def found_by_stress(project: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--mat-stress"], cwd=project, capture_output=True,
        check=False, timeout=120,
    )  # fmt: skip
    (path,) = replay_file.find(project)
    return path


@pytest.mark.full
def test_replay_runs_the_counterexample_and_exits_with_its_verdict(project: Path) -> None:
    path = found_by_stress(project)
    again = mat_command("replay", path, "--", "-p", "no:cacheprovider", cwd=project)
    assert again.returncode == 1
    assert "refund.once" in again.stdout
    data = mat_command("replay", "--json", path, cwd=project)
    assert json.loads(data.stdout)["exit"] == data.returncode == 1
