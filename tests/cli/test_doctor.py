"""`mat doctor TEST` names what keeps a test from being stressed; `mat completion` gives scripts that shells can read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mat.__main__ import main

SHOP = """
import time

import pytest

import mat


@mat.tool(effect="write")
def pay(order):
    return order


def unseen(order):
    return order


@pytest.fixture(scope="module")
def database():
    return {}


@pytest.fixture
def mat_contracts():
    return [mat.step_contract(on="tool_call", id="pay.little")(lambda record: True)]


@pytest.mark.mat(workload=mat.Workload(category="tool use", tools=["pay"], channels=["email"]))
def test_fit(mat_run, database):
    pay("A1")


def test_plain():
    pay("A1")


def test_crosses_nothing(mat_run):
    unseen("A1")


@pytest.fixture
def requested():
    return mat.step_contract(on="tool_call", id="pay.requested")(lambda record: True)


def test_only_requests_a_contract(requested):
    pay("A1")


class TestWithoutContracts:
    @pytest.fixture
    def mat_contracts(self):
        return []

    def test_unjudged(self, mat_run):
        pay("A1")


@pytest.fixture
def broken():
    raise OSError("no database")


def test_without_set_up(mat_run, broken):
    pay("A1")


def test_without_data(mat_run):
    try:
        pay(object())
    except Exception:
        pass


def test_on_the_network(mat_run):
    import socket

    pay("A1")
    with pytest.raises(Exception):
        socket.create_connection(("127.0.0.1", 9))
"""


def mat_command(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mat", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, timeout=120, env={**os.environ, **environment}
    )


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("shop")
    folder.joinpath("test_shop.py").write_text(SHOP)
    done = mat_command(folder, "doctor", "--json", "test_shop.py")
    assert done.returncode == 1, done.stderr
    return {test["item"].rpartition("::")[2]: test for test in json.loads(done.stdout)["tests"]}


@pytest.mark.full
def test_a_test_that_is_fit_has_contracts_crossings_and_no_problem(seen: dict[str, Any]) -> None:
    fit = seen["test_fit"]
    assert (fit["armed"], fit["contracts"], fit["crossings"], fit["problems"]) == (True, ["pay.little"], {"service:pay": 1}, [])
    assert fit["category"] == "tool_use"


def test_a_test_that_only_requests_a_contract_is_armed(seen: dict[str, Any]) -> None:
    found = seen["test_only_requests_a_contract"]
    assert (found["armed"], found["contracts"], found["problems"]) == (True, ["pay.requested", "pay.little"], [])


@pytest.mark.full
def test_fixtures_that_outlive_an_evaluation_are_named_with_their_scope(seen: dict[str, Any]) -> None:
    assert seen["test_fit"]["persisting"] == {"database": "module"}
    assert seen["test_crosses_nothing"]["persisting"] == {}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("test_plain", "it is a plain test"),
        ("test_crosses_nothing", "its body crosses no boundary"),
        ("test_unjudged", "no contract is armed"),
    ],
)
def test_what_keeps_a_test_from_being_stressed_is_said_with_what_mends_it(seen: dict[str, Any], name: str, said: str) -> None:
    (problem,) = seen[name]["problems"]
    assert problem["what"].startswith(said)
    assert problem["fix"]


@pytest.mark.parametrize(
    ("name", "said", "fix"),
    [
        ("test_without_set_up", "its setup was stopped: no database", "run it with plain pytest"),
        ("test_without_data", "its run was stopped: CodecError: call of pay, parameter 'order'", 'exclude=["order"]'),
        ("test_on_the_network", "network-refused: a look-up of 127.0.0.1:9 was refused", "loopback=True"),
    ],
)
def test_what_stopped_a_run_is_said_with_its_own_fix(seen: dict[str, Any], name: str, said: str, fix: str) -> None:
    (problem,) = seen[name]["problems"]
    assert problem["what"].startswith(said)
    assert fix in problem["fix"]


@pytest.mark.full
def test_one_fit_test_is_0_and_told_in_words(tmp_path: Path) -> None:
    tmp_path.joinpath("test_shop.py").write_text(SHOP)
    done = mat_command(tmp_path, "doctor", "test_shop.py::test_fit")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "test_shop.py::test_fit: passed",
        "  contracts: pay.little",
        "  boundaries crossed: service:pay (1)",
        "  category: tool_use",
        "  fixtures that persist across evaluations: database (module)",
    ]


@pytest.mark.full
def test_a_test_that_fails_without_a_fault_is_a_problem(tmp_path: Path) -> None:
    tmp_path.joinpath("test_shop.py").write_text(
        SHOP + "def test_fails(mat_run):\n    assert pay('A1') == 'A2'\n\ndef test_skips(mat_run):\n    pytest.skip('later')\n"
    )
    done = mat_command(tmp_path, "doctor", "test_shop.py::test_fails")
    assert done.returncode == 1
    assert "  problem: it fails: assert 'A1' == 'A2'\n    fix: make it pass with plain pytest first" in done.stdout
    assert "it fails" not in mat_command(tmp_path, "doctor", "test_shop.py::test_skips").stdout


@pytest.mark.full
def test_a_patched_function_that_a_table_of_tools_still_holds_is_named(tmp_path: Path) -> None:
    tools = (
        "def look(order):\n    return order\n\n\ndef pay(order):\n    return order\n\n\nTOOLS = {'look': look, 'pay': pay}\n"
    )
    tmp_path.joinpath("tools.py").write_text(tools)
    tmp_path.joinpath("conftest.py").write_text("import mat\nmat.patch('tools.look')\nmat.patch('tools.pay')\n")
    tmp_path.joinpath("test_shop.py").write_text(
        "import tools\n\n\ndef test_it(mat_run):\n    tools.TOOLS['look']('A1')\n    tools.pay('A1')\n"
    )
    (found,) = json.loads(mat_command(tmp_path, "doctor", "--json", "test_shop.py").stdout)["tests"]
    said = [problem["what"] for problem in found["problems"]]
    assert said[1:] == ["tools.look is patched, but nobody called it there: tools.TOOLS holds the function itself"]


DESK = """
from contextlib import suppress

import pytest

import mat
from mat_contracts import no_duplicate_effect


@mat.tool
def order(id):
    return {"cents": 100}


@mat.tool(effect="write")
def pay(cents):
    return "paid"


@pytest.fixture
def once():
    return no_duplicate_effect(tool="pay")


@pytest.mark.mat(budget=4)
def test_pays(once):
    for _ in range(2):
        with suppress(OSError):
            order("A17")
            break
    pay(100)
"""


@pytest.mark.nightly
def test_declarations_that_would_save_executions_are_counted(tmp_path: Path) -> None:
    tmp_path.joinpath("test_desk.py").write_text(DESK)
    plain = mat_command(tmp_path, "doctor", "test_desk.py")
    assert "  undeclared effects, which count as writes: order (--declarations counts what reads would save)" in plain.stdout
    counted = mat_command(tmp_path, "doctor", "--json", "--declarations", "test_desk.py")
    (saving,) = json.loads(counted.stdout)["tests"][0]["declarations"]
    assert (saving["tools"], saving["saves"] > 0, saving["executions"] > saving["saves"]) == (["order"], True, True)
    told = mat_command(tmp_path, "doctor", "--declarations", "test_desk.py").stdout
    line = f'  declare effect="read" at `order`: saves {saving["saves"]:,} of {saving["executions"]:,} executions'
    assert line in told.splitlines()
    tmp_path.joinpath("test_desk.py").write_text(DESK.replace("@mat.tool\n", '@mat.tool(effect="read")\n'))
    assert "declare" not in mat_command(tmp_path, "doctor", "--declarations", "test_desk.py").stdout


@pytest.mark.full
def test_tests_are_looked_at_in_one_process_whatever_the_environment_asks_for(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    tmp_path.joinpath("test_shop.py").write_text(SHOP)
    done = mat_command(tmp_path, "doctor", "test_shop.py::test_fit", PYTEST_ADDOPTS="-n 2 -p no:cacheprovider")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.full
def test_tests_that_are_not_there_are_a_mistake_with_what_pytest_said(tmp_path: Path) -> None:
    done = mat_command(tmp_path, "doctor", "test_none.py")
    assert done.returncode == 2
    assert "no test could be examined" in done.stderr
    assert "test_none.py" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_a_completion_script_knows_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for name in ("show", "check", "replay", "report", "diff", "suite", "gate", "query", "import", "export", "doctor"):
        assert name in script


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_reads_its_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    tmp_path.joinpath("mat.sh").write_text(capsys.readouterr().out)
    done = subprocess.run(["bash", "-n", str(tmp_path / "mat.sh")], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


MISSPELT = """
import pytest

import mat
from mat.temporal import always, at_most, tool_call
from mat_contracts import no_duplicate_effect


@mat.tool(effect="write")
def refund(order):
    return order


@pytest.fixture
def once():
    return [
        no_duplicate_effect(tool="refnud"), mat.contract("capped", always(at_most(1, tool_call("refunds")))),
        no_duplicate_effect(tool="zip_code"), no_duplicate_effect(tool="refund"),
    ]


def test_refunds(mat_run, once):
    refund("A1")
"""


@pytest.mark.full
def test_a_port_that_a_contract_names_and_no_call_has_is_named_with_the_nearest(tmp_path: Path) -> None:
    tmp_path.joinpath("test_shop.py").write_text(MISSPELT)
    done = mat_command(tmp_path, "doctor", "test_shop.py")
    assert done.returncode == 1
    meant = "; did you mean 'refund'?"
    assert [line for line in done.stdout.splitlines() if "crossed" in line] == [
        "  boundaries crossed: service:refund (1)",
        "  contract zip_code.no_duplicate_effect: no boundary called 'zip_code' was crossed",
        f"  problem: contract refnud.no_duplicate_effect: no boundary called 'refnud' was crossed{meant}",
        "    fix: correct the name, as in the list of boundaries crossed",
        f"  problem: contract capped: no boundary called 'refunds' was crossed{meant}",
        "    fix: correct the name, as in the list of boundaries crossed",
    ]


ATTACHED = """
import httpx
import pytest

import mat
from mat_contracts import terminates

SHOP = httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, json={})), base_url="http://shop.test")


@pytest.fixture
def mat_contracts():
    return [terminates()]
"""
OPTIONS = 'effects={"POST shop.test/refund": "write", "GET shop.test/orders": "read"}, perturb={"other.test/x": False}'
IN_A_FIXTURE = """
@pytest.fixture
def mat_attach():
    return {"httpx": dict(OPTIONS)}


def test_a(mat_run):
    SHOP.post("/refunds")


def test_b(mat_run):
    SHOP.get("/orders")
"""
IN_A_BLOCK = """
def test_a(mat_run):
    with mat.attach("httpx", OPTIONS):
        SHOP.post("/refunds")
        SHOP.get("/orders")
"""


@pytest.mark.full
@pytest.mark.parametrize("form", [IN_A_FIXTURE, IN_A_BLOCK], ids=["fixture", "block"])
def test_a_port_that_an_attachment_names_and_no_test_crosses_is_named_with_the_nearest(tmp_path: Path, form: str) -> None:
    tmp_path.joinpath("test_shop.py").write_text(ATTACHED + form.replace("OPTIONS", OPTIONS))
    first, *others = json.loads(mat_command(tmp_path, "doctor", "--json", "test_shop.py").stdout)["tests"]
    assert [each["what"] for each in first["problems"]] == [
        "effects= of httpx: no boundary called 'POST shop.test/refund' was crossed; did you mean 'POST shop.test/refunds'?"
    ]
    assert first["uncrossed"] == ["perturb= of httpx: no boundary called 'other.test/x' was crossed"]
    assert [(each["problems"], each["uncrossed"]) for each in others] == [([], [])] * len(others)


@pytest.mark.full
@pytest.mark.parametrize("marker", ["", '@pytest.mark.mat(objective="task")'])
def test_without_a_contract_the_asserts_are_what_is_judged(tmp_path: Path, marker: str) -> None:
    body = f"{marker}\ndef test_it(mat_run):\n    assert refund('A1') == 'A1'\n"
    tmp_path.joinpath("test_shop.py").write_text(MISSPELT + body)
    (found,) = json.loads(mat_command(tmp_path, "doctor", "--json", "test_shop.py::test_it").stdout)["tests"]
    said = [] if marker else ["no contract is armed: --mat-stress judges only the test's own asserts and exceptions"]
    assert [each["what"] for each in found["problems"]] == said
