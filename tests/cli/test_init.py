"""`mat init`, and what `mat` says without arguments."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mat.__main__ import main
from mat.commands.project import look_at

PYPROJECT = """
[project]
name = "shop"
version = "1"

[tool.pytest.ini_options]
testpaths = ["checks"]
addopts = ["--strict-markers", "--import-mode=importlib"]
filterwarnings = ["error"]
"""
AGENT = """
import httpx
from framework import tool


@tool
def cancel_order(order): ...


class Desk:
    @tool(name="look")
    def look_up(self, order): ...

    def _helper(self): ...


def plain(): ...
"""


@pytest.mark.full
def test_an_empty_folder_gets_a_green_test(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path)]) == 0
    assert "wrote tests/test_mat_agent.py" in capsys.readouterr().out
    done = _pytest(tmp_path)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout


@pytest.mark.full
def test_the_first_test_is_certified_and_a_second_try_breaks_it(tmp_path: Path) -> None:
    main(["init", str(tmp_path)])
    done = _pytest(tmp_path, "--mat-stress")
    assert "1 certified" in done.stdout
    file = tmp_path / "tests" / "test_mat_agent.py"
    careful = 'return "I do not know whether the refund was made; a person will look at it."'
    assert careful in file.read_text()
    file.write_text(file.read_text().replace(careful, 'refund("A17", amount=30)'))
    done = _pytest(tmp_path, "--mat-stress")
    assert (done.returncode, "BROKEN test_agent" in done.stdout) == (1, True), done.stdout


@pytest.mark.full
def test_an_existing_project_keeps_its_files_and_layout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _project(tmp_path)
    before = (tmp_path / "checks" / "conftest.py").read_text()
    assert main(["init", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert (tmp_path / "checks" / "conftest.py").read_text() == before
    assert "unchanged checks/conftest.py" in said
    assert "mat_attach = httpx" in said
    assert "pip install -e . httpx pytest-mat" in (tmp_path / ".github" / "workflows" / "mat.yml").read_text()
    done = _pytest(tmp_path)
    assert (done.returncode, "2 passed" in done.stdout) == (0, True), done.stdout


def test_a_second_time_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["init", str(tmp_path)])
    written = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for path in written:
        path.write_bytes(path.read_bytes() + b"# mine\n")
    capsys.readouterr()
    assert main(["init", str(tmp_path)]) == 0
    assert "wrote" not in capsys.readouterr().out
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == {
        path: text + b"# mine\n" for path, text in written.items()
    }


def test_what_a_project_has_already_is_not_suggested_or_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "agent.py").write_text(
        "import httpx\nimport mat\n\n@mat.tool(effect='read')\ndef vendor(name): ...\n\n@tool\ndef pay(order): ...\n"
    )
    assert main(["init", str(tmp_path)]) == 0
    conftest = (tmp_path / "tests" / "conftest.py").read_text()
    assert "agent.pay" in conftest
    assert "vendor" not in conftest
    (tmp_path / "tests" / "test_mat_agent.py").unlink()
    (tmp_path / "tests" / "test_own.py").write_text("async def test_pay(mat_run): ...\n")
    capsys.readouterr()
    assert main(["init", str(tmp_path)]) == 0
    assert "set mat_attach" not in capsys.readouterr().out
    assert not (tmp_path / "tests" / "test_mat_agent.py").exists()
    (tmp_path / "tests" / "test_own.py").write_text("def test_pay(): ...\n")
    (tmp_path / "tests" / "conftest.py").write_text("")
    assert main(["init", str(tmp_path)]) == 0
    assert "to attach to httpx: set mat_attach = httpx" in capsys.readouterr().out
    assert (tmp_path / "tests" / "test_mat_agent.py").exists()


def test_a_dry_run_writes_nothing_and_says_what_it_would(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--dry-run", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    assert said.count("would write") == 3
    assert main(["init", "--dry-run", "--json", str(tmp_path)]) == 0
    assert [file["written"] for file in json.loads(capsys.readouterr().out)["files"]] == [False] * 3


def test_what_is_in_the_code_is_found_without_running_it(tmp_path: Path) -> None:
    _project(tmp_path)
    (tmp_path / "src" / "shop" / "tools.py").write_text("raise SystemExit('imported')\ndef get_price(item): ...\n")
    (tmp_path / "src" / "shop" / "broken.py").write_text("def (:\n")
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "pyvenv.cfg").write_text("")
    (tmp_path / "venv" / "langgraph_copy.py").write_text("import langgraph\n")
    found = look_at(tmp_path)
    assert {tool.name: tool.effect for tool in found.tools} == {
        "shop.agent.cancel_order": "write", "shop.agent.Desk.look_up": "read", "shop.tools.get_price": "read",
    }  # fmt: skip
    assert [each.name for each in found.attached] == ["httpx"]
    assert found.unreadable == ("src/shop/broken.py",)
    assert (found.tests, found.has_tests, found.configuration, found.installs) == (
        Path("checks"), True, "pyproject.toml", "-e .",
    )  # fmt: skip


@pytest.mark.parametrize(("code", "attached"), [
    ("import httpx, langgraph.graph, langchain_core", ["langgraph"]),
    ("from google.adk import Agent", ["google_adk"]),
    ("from google import adk", ["google_adk"]),
    ("from google.cloud import storage", []),
    ("import requests\nfrom agents import Agent", ["openai_agents"]),
    ("from .agents import Agent", []),
])  # fmt: skip
def test_frameworks_are_told_from_what_the_code_imports(tmp_path: Path, code: str, attached: list[str]) -> None:
    (tmp_path / "agent.py").write_text(code)
    assert [each.name for each in look_at(tmp_path).attached] == attached


@pytest.mark.parametrize(("name", "text", "tests"), [
    ("setup.cfg", "[tool:pytest]\ntestpaths = units\n", "units"),
    ("pytest.ini", "[pytest]\ntestpaths =\n  units\n  others\n", "units"),
    ("tox.ini", "[pytest]\ntestpaths = missing\n", "tests"),
    ("pyproject.toml", "not toml [", "tests"),
])  # fmt: skip
def test_the_folder_of_tests_is_the_configured_one(tmp_path: Path, name: str, text: str, tests: str) -> None:
    (tmp_path / "units").mkdir()
    (tmp_path / name).write_text(text)
    assert look_at(tmp_path).tests == Path(tests)


def test_a_tool_of_a_framework_gets_its_effect_where_the_framework_is_attached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tools.py").write_text(
        "from langgraph import tool\n@tool\ndef look_up(order): ...\n@tool('refund')\ndef refund_order(order): ...\n"
        "def post(text): ...\n"
    )
    monkeypatch.setattr("mat.commands.project._is_installed", lambda package: package == "langgraph")
    assert main(["init", str(tmp_path)]) == 0
    written = (tmp_path / "tests" / "conftest.py").read_text()
    scope: dict[str, Any] = {}
    exec(written.replace("@pytest.fixture", ""), scope)
    assert scope["mat_attach"]() == {"langgraph": {"effects": {"look_up": "read", "refund": "write"}}}
    assert [line for line in written.splitlines() if "mat.patch(" in line] == ['# mat.patch("tools.post", effect="write")']


def test_a_tool_is_named_with_what_cannot_be_recorded_and_where_a_retry_must_stand(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(
        "@retry(stop=3)\ndef pay(db: sqlite3.Connection, order: str): ...\n"
        "async def find(order, *, session: 'Session' = None, client: httpx.AsyncClient | None = None): ...\n"
    )
    pay, find = look_at(tmp_path).tools
    assert (pay.retried, pay.exclude, find.retried, find.exclude) == ("retry", ("db",), "", ("client",))
    main(["init", str(tmp_path)])
    written = (tmp_path / "tests" / "conftest.py").read_text()
    assert '# tools.pay: write @mat.tool(effect="write", exclude=["db"]) below its @retry' in written
    assert '# mat.patch("tools.find", effect="read", exclude=["client"])' in written


@pytest.mark.full
@pytest.mark.parametrize("name", ["", "requirements.txt", "tests/__init__.py", "conftest.py", "pyproject.toml", "pytest.ini"])
def test_tests_can_import_the_code_at_the_top_of_a_project(tmp_path: Path, name: str) -> None:
    (tmp_path / "agent.py").write_text("ANSWER = 42\n")
    (tmp_path / "tests").mkdir()
    if name:
        (tmp_path / name).write_text("[project]\nname = 'agent'\n" if name == "pyproject.toml" else "")
    assert main(["init", str(tmp_path)]) == 0
    expected = name in ("", "requirements.txt")
    assert (tmp_path / "pytest.ini").is_file() == (expected or name == "pytest.ini")
    if expected:
        (tmp_path / "tests" / "test_agent.py").write_text("from agent import ANSWER\ndef test_it(): assert ANSWER == 42\n")
        command = [str(Path(sys.executable).parent / "pytest"), "-q", "-p", "no:cacheprovider"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120)
        assert "2 passed" in done.stdout


@pytest.mark.parametrize(("files", "install"), [
    ({}, "httpx pytest-mat"),
    ({"requirements.txt": "pydantic>=2\nhttpx[http2] >= 0.27  # the shop\n"}, "-r requirements.txt pytest-mat"),
    ({"requirements.txt": "-r base.txt\n", "base.txt": "HTTPX==0.28\n"}, "-r requirements.txt pytest-mat"),
    (
        {"requirements.txt": "-r base.txt\n" * 30, "base.txt": "-r requirements.txt\n" * 30 + "HTTPX==0.28\n"},
        "-r requirements.txt pytest-mat",
    ),
    ({"requirements.txt": "pydantic\n"}, "-r requirements.txt httpx pytest-mat"),
    (
        {"requirements.txt": "httpx\n", "requirements-dev.txt": "anyio\n"},
        "-r requirements.txt -r requirements-dev.txt pytest-mat",
    ),
    ({"pyproject.toml": "[project]\nname = 'x'\ndependencies = ['httpx>=0.27']\n"}, "-e . pytest-mat"),
    (
        {"pyproject.toml": "[project]\nname = 'x'\n[project.optional-dependencies]\ntest = ['httpx']\n"},
        '-e ".[test]" pytest-mat',
    ),
    ({"pyproject.toml": "[project]\nname = 'x'\ndynamic = ['dependencies']\n"}, "-e . pytest-mat"),
    ({"pyproject.toml": "[tool.poetry.dependencies]\nhttpx = '*'\n[build-system]\nrequires = []\n"}, "-e . pytest-mat"),
    ({"setup.py": "setup(install_requires=NEEDED)\n"}, "-e . pytest-mat"),
])  # fmt: skip
def test_ci_installs_what_the_project_requires_and_what_its_code_imports_besides(
    tmp_path: Path, files: dict[str, str], install: str
) -> None:
    (tmp_path / "agent.py").write_text("import json, httpx, nobody_has_this, shop\nfrom .desk import x\n")
    (tmp_path / "shop.py").write_text("")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert main(["init", str(tmp_path)]) == 0
    workflow = (tmp_path / ".github" / "workflows" / "mat.yml").read_text()
    assert f"- run: pip install {install}\n" in workflow
    assert f"""- run: pip install {install.removesuffix("pytest-mat")}"pytest-mat[report]"\n""" in workflow


def test_ci_installs_frameworks_by_their_extra_and_clients_by_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mat.commands.requirements.packages_distributions", dict)
    (tmp_path / "agent.py").write_text("import langgraph.graph, aiohttp, google.adk\n")
    assert look_at(tmp_path).needs == ("aiohttp",)
    main(["init", str(tmp_path)])
    workflow = (tmp_path / ".github" / "workflows" / "mat.yml").read_text()
    assert '- run: pip install aiohttp "pytest-mat[google-adk,langgraph]"\n' in workflow


def test_a_folder_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path / "missing")]) == 2
    assert "no such file" in capsys.readouterr().err


def test_mat_alone_says_what_is_here_and_what_to_do_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([]) == 0
    assert "next: mat init" in (empty := capsys.readouterr().out)
    assert len(empty.splitlines()) <= 4
    main(["init"])
    capsys.readouterr()
    main([])
    said = capsys.readouterr().out
    assert "1 test file, 1 with tests of agents; 0 replay files" in said
    assert "next: pytest --mat-stress" in said
    (tmp_path / "tests" / "mat_replays").mkdir()
    (tmp_path / "tests" / "mat_replays" / "test_agent-1.mat.json").write_text("{}")
    main([])
    assert "next: mat show tests/mat_replays/test_agent-1.mat.json" in capsys.readouterr().out


def _project(folder: Path) -> None:
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "src" / "shop").mkdir(parents=True)
    (folder / "src" / "shop" / "agent.py").write_text(AGENT)
    (folder / "checks").mkdir()
    (folder / "checks" / "conftest.py").write_text("MINE = 1\n")
    (folder / "checks" / "test_shop.py").write_text("def test_shop(): pass\n")


def _pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, timeout=120)
