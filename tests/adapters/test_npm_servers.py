"""`mat mcp-proxy` before servers written in another language: the reference servers of MCP, which npm installs.

The agent is a program of its own, too (npm/keeper.py), so that no process but the test's has anything of pytest-mat in it.
MAT_NPM names a folder in which the servers are installed already; otherwise they are installed for these tests.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "npm"
PACKAGE = "@modelcontextprotocol/server-memory"
SCRIPT = "dist/index.js"
INSTALL_S = 300
pytestmark = [pytest.mark.full, pytest.mark.skipif(sys.platform == "win32", reason="a program's run is a Unix socket")]
TEST = """
import os, sys
import pytest
from mat.adapters import program
from mat_contracts import no_duplicate_effect


@pytest.fixture
def written_once():
    return no_duplicate_effect("create_entities", key="entities")


@pytest.mark.mat(budget=4)
def test_keeper(mat_run, written_once, tmp_path):
    server = [sys.executable, "-m", "mat", "mcp-proxy", "--", "node", os.environ["SERVER"]]
    keeper = [sys.executable, os.environ["KEEPER"], os.environ["CARE"], *server]
    memory = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}
    done = program(keeper, env=memory, tape="external").run("A17")
    assert (done.code, done.stdout) == (0, "1 notes\\n"), done.stderr
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script of the memory server."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    installed = Path(os.environ["MAT_NPM"]) if "MAT_NPM" in os.environ else _installed(tmp_path_factory.mktemp("npm"))
    script = installed / "node_modules" / PACKAGE / SCRIPT
    if not script.exists():
        pytest.skip(f"{PACKAGE} is not installed in {installed}")
    return script


def _installed(folder: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    if done.returncode:
        pytest.skip(f"npm cannot install {PACKAGE}: {done.stderr.strip().splitlines()[-1:]}")
    return folder


def run(folder: Path, server: Path, *options: str, care: str, **env: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_keeper.py").write_text(TEST)
    known = {**os.environ, "SERVER": str(server), "KEEPER": str(HERE / "keeper.py"), "CARE": care, **env}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "test_keeper.py"]
    return subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.nightly
def test_a_double_write_to_a_server_in_javascript_is_found_shrunk_and_replayed_without_it(tmp_path: Path, server: Path) -> None:
    nominal = run(tmp_path, server, care="careless")
    assert nominal.returncode == 0, nominal.stdout
    found = run(tmp_path, server, "--mat-stress", care="careless")
    assert found.returncode == 1, found.stdout
    words = " ".join(found.stdout.split())
    assert "when the reply of the 1st create_entities call by main is lost after the effect happened" in words
    assert "BROKEN test_keeper cost 4" in words
    [file] = (tmp_path / "mat_replays").iterdir()
    assert json.loads(file.read_text())["stability"] == {"runs": 3, "reproduced": 3}
    replayed = run(tmp_path, tmp_path / "there is no server", "--mat-replay", str(file), care="careless")
    assert replayed.returncode == 1, replayed.stdout
    assert "create_entities had the same effect at steps" in " ".join(replayed.stdout.split())
    assert "Cannot find module" not in replayed.stdout


@pytest.mark.nightly
def test_an_agent_that_looks_before_it_writes_again_is_certified_and_its_old_replay_is_silent(
    tmp_path: Path, server: Path
) -> None:
    run(tmp_path, server, "--mat-stress", care="careless")
    assert len(list((tmp_path / "mat_replays").iterdir())) == 1
    fixed = run(tmp_path, server, "--mat-stress", care="careful")
    assert fixed.returncode == 0, fixed.stdout
    assert "1 certified" in fixed.stdout


@pytest.mark.nightly
def test_twenty_processes_with_twenty_hash_seeds_make_one_trace(tmp_path: Path, server: Path) -> None:
    script = tmp_path / "once.py"
    script.write_text(
        "import os, sys, mat\n"
        "from mat.adapters import program\n"
        "server = [sys.executable, '-m', 'mat', 'mcp-proxy', '--', 'node', os.environ['SERVER']]\n"
        "keeper = program([sys.executable, os.environ['KEEPER'], 'careless', *server], env={'MEMORY_FILE_PATH': sys.argv[1]})\n"
        "with mat.run() as run:\n"
        "    assert keeper.run('A17 A18').code == 0\n"
        "print(run.result.head)\n"
    )
    heads = set()
    for seed in range(20):
        known = {**os.environ, "PYTHONHASHSEED": str(seed), "SERVER": str(server), "KEEPER": str(HERE / "keeper.py")}
        command = [sys.executable, str(script), str(tmp_path / f"memory-{seed}.jsonl")]
        heads.add(subprocess.run(command, env=known, capture_output=True, text=True, timeout=60, check=True).stdout)
    assert len(heads) == 1
