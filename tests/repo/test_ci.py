"""Where any command of .ci/run or .ci/nightly fails, the script fails. Each of them is made to fail once; nothing real runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STUBS = r"""
hit() {
    local said="${*//$work/WORK}"
    echo "$said" >>"$LOG"
    [ "$said" != "$FAIL" ] || return 3
}
within() {
    hit within "$@" || return
    case "$*" in *"pip list") echo "pytest 1" ;; *"two.xml") printf %s "$TWO" ;; esac
}
environment() { hit environment "$@"; }
installed() { hit installed "$@"; }
npm() { hit npm "$@"; }
browser() { hit browser; }
tools() { hit tools; }
as_readme() { hit as_readme "$@"; }
refuses() { hit refuses "$@"; }
build() { hit build; wheel=WHEEL; }
copy() {
    hit copy "$@"
    mkdir "$work/$1"
    cp -r examples "$work/$1"
    [ -z "$CHANGED" ] || touch "$work/$1/examples/$CHANGED/mat_replays/new"
}
"""
EXAMPLES = ("helpdesk", "treasury", "resources", "contractbench", "agentdojo", "session")
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
NEAREST = "tests/laws tests/core tests/kernel tests/isolation"


class Scripts:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / ".ci", folder / ".ci")
        with (folder / ".ci/common").open("a") as file:
            file.write(STUBS)
        for example in EXAMPLES:
            (folder / "examples" / example / "mat_replays").mkdir(parents=True)
        (folder / "bin").mkdir()
        self.pythons("3.11", "3.12")

    def pythons(self, own: str, *others: str) -> None:
        """The Pythons that start: that of the script, and others."""
        commands = {f"python{version}": f"echo {version}" if version in (own, *others) else "exit 127" for version in VERSIONS}
        for name, does in {**commands, "python3": f"echo {own}"}.items():
            (self.folder / "bin" / name).write_text(f"#!/bin/sh\n{does}\n")
            (self.folder / "bin" / name).chmod(0o755)

    def run(self, *command: str, log: str = "log", **plan: str) -> tuple[int, str]:
        given = {"LOG": str(self.folder / log), "PYENV_ROOT": "/nowhere", "FAIL": "", "CHANGED": "", "TWO": "", **plan}
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", *command], cwd=self.folder, env={**os.environ, **given, "PATH": path}, capture_output=True, text=True,
            check=False, timeout=100,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    return Scripts(tmp_path)


@pytest.mark.full
@pytest.mark.parametrize(("script", "least"), [("run", 25), ("nightly", 20)])
def test_a_command_that_fails_makes_the_script_fail(scripts: Scripts, script: str, least: int) -> None:
    assert scripts.run(f".ci/{script}")[0] == 0
    commands = list(dict.fromkeys((scripts.folder / "log").read_text().splitlines()))
    assert len(commands) >= least
    with ThreadPoolExecutor(4) as pool:
        codes = list(pool.map(lambda one: scripts.run(f".ci/{script}", log="other", FAIL=one)[0], commands))
    assert [command for command, code in zip(commands, codes, strict=True) if code == 0] == []


@pytest.mark.full
@pytest.mark.parametrize("example", ["helpdesk", "treasury", "resources", "contractbench", "agentdojo"])
def test_a_stress_that_changes_a_committed_replay_makes_the_run_fail(scripts: Scripts, example: str) -> None:
    code, said = scripts.run(".ci/run", CHANGED=example)
    assert code == 1
    assert f"the stress of examples/{example} changed committed replay files" in said


@pytest.mark.full
@pytest.mark.parametrize(("own", "others", "tested"), [
    ("3.11", ("3.12", "3.13"), ["3.13"]),
    ("3.12", ("3.11", "3.13", "3.14"), ["3.11", "3.14"]),
    ("3.13", ("3.11", "3.12"), ["3.11"]),
    ("3.11", (), []),
])  # fmt: skip
def test_the_run_tests_with_the_oldest_and_the_newest_python_that_start(
    scripts: Scripts, own: str, others: tuple[str, ...], tested: list[str]
) -> None:
    scripts.pythons(own, *others)
    code, said = scripts.run(".ci/run")
    assert (code, "no other Python starts here" in said) == (0, not tested)
    log = (scripts.folder / "log").read_text().splitlines()
    assert [line for line in log if NEAREST in line] == [
        f"within python{each} python -m pytest -q {NEAREST}" for each in tested
    ]
    assert set(log) >= {f"installed python{each}" for each in tested}


def test_the_package_names_the_pythons_that_are_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["project"]["classifiers"]))
    assert named == ["3.11", "3.12", "3.13"]
    assert set(named) <= set(VERSIONS)
    assert project["project"]["requires-python"] == f">={named[0]}"
    assert project["tool"]["mypy"]["python_version"] == named[0]
    (versions,) = re.findall(r"^versions=\((.*?)\)", (ROOT / ".ci/common").read_text(), re.MULTILINE)
    assert versions.split() == list(VERSIONS)


@pytest.mark.full
def test_the_nightly_compares_outcomes_names_what_did_not_run_and_knows_its_stages(scripts: Scripts) -> None:
    assert scripts.run(".ci/nightly", "again", TWO="other")[0] == 1
    code, said = scripts.run(".ci/nightly", "prereleases", "python3.11", "python3.12", "python3.13")
    assert code == 0
    left_out = said[said.index("== not run") :]
    assert "prereleases: not run: there are none" in left_out
    assert "python3.11: not run: it is the Python of .ci/run" in left_out
    assert "python3.12" not in left_out
    assert "python3.13: not run: no Python 3.13 starts here" in left_out
    code, said = scripts.run(".ci/nightly", "agian")
    assert code == 2
    assert said.startswith("unknown stage: agian; choose from: again broad monitors contractbench agentdojo kills")


def test_a_test_that_names_no_framework_runs_in_the_environment_of_each_one() -> None:
    common, nightly = ((ROOT / ".ci" / name).read_text() for name in ("common", "nightly"))
    parts = [
        re.search(pattern, common, re.MULTILINE | re.DOTALL) for pattern in (r"^frameworks=.*?$", r"^not_of_others\(.*?^}")
    ]
    script = (
        "\n".join(part[0] for part in parts if part) + '\nfor name in "${frameworks[@]}"; do not_of_others "$name"; echo; done'
    )
    chosen = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(chosen) == 7
    assert nightly.count('"$(not_of_others "$name")"') == 2
    for own in ("langgraph", "openai_agents"):
        assert [own in expression for expression in chosen].count(False) == 1
    for expression in chosen:
        assert re.fullmatch(r"not \(\w+( or \w+){5}\)", expression)
