"""The table of docs/reference/results.md, by cell: what vacuous, unknown and unjudged mean in each mode, and the exit codes.

Each row is a kind of result, each column a command. A cell is the status of the item, whether its test passes, the exit code
and what is said. `flaky` under stress has tests of its own (tests/plugin/test_flaky.py).
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import scipy.special  # noqa: F401  (a session in this process takes away what it imports, and numpy loads only once)

import mat
from mat.__main__ import main
from mat.evidence import jsonl
from mat.temporal import always, at_most, tool_call

ROOT: Final = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("shop_of_the_table", ROOT / "tests" / "plugin" / "conftest.py")
assert _spec is not None
assert _spec.loader is not None
_shop = importlib.util.module_from_spec(_spec)
sys.modules["shop_of_the_table"] = _shop
_spec.loader.exec_module(_shop)
shop = _shop.shop

ID: Final = "test_shop.py::test_refund"
TEST: Final = """
    @pytest.fixture
    def rule():
        RULE

    @pytest.mark.mat(budget=4, faults=FAULTS, workload=mat.Workload(category="refunds"))
    def test_refund(mat_run, rule):
        BODY
"""
FORMULA: Final = "from mat.temporal import always, at_most, tool_call; return mat.contract('rule', always({}))"
KEPT: Final = FORMULA.format("at_most(9, tool_call('refund'))")
RAISES: Final = "return mat.step_contract(on='tool_call', id='rule', {})(lambda record: record.action.arguments['x'] > 0)"
ROWS: Final[dict[str, tuple[str, str]]] = {
    "certified": (KEPT, "shop.careful()"),
    "vacuous": (FORMULA.format("at_most(1, tool_call('refnd'))"), "shop.careful()"),
    "misnamed": (FORMULA.format("~tool_call('refnd')"), "shop.careful()"),
    "unknown": (RAISES.format("on_error='unknown'"), "shop.careful()"),
    "raises": (RAISES.format(""), "shop.careful()"),
    "body": (KEPT, "assert shop.careful() == 'refunded'"),
}
"""For each kind of result, a contract and a body."""
Cell = tuple[str, str, int, str]
"""The status, the test's outcome, the exit code, and what is said."""
NOMINAL: Final[dict[str, Cell]] = {
    "certified": ("nominal", "passed", 0, ""),
    "vacuous": ("vacuous", "passed", 0, "PytestWarning: rule is vacuous: nothing triggered it"),
    "misnamed": ("vacuous", "failed", 1, "rule is vacuous: it can never be broken"),
    "unknown": ("not_judged", "passed", 0, "PytestWarning: rule could not be judged"),
    "raises": ("violated", "failed", 1, "rule: could not be judged: KeyError"),
    "body": ("nominal", "passed", 0, ""),
}
STRESS: Final[dict[str, Cell]] = {
    "certified": ("certified", "passed", 0, "mat: 1 certified, 0 broken"),
    "vacuous": ("vacuous", "failed", 1, "0 expected, 1 vacuous, 0 not proven"),
    "misnamed": ("vacuous", "failed", 1, "0 expected, 1 vacuous, 0 not proven"),
    "unknown": ("not_judged", "passed", 0, "0 vacuous, 0 not proven, 1 not judged"),
    "raises": ("violated", "failed", 1, "mat: 0 certified, 1 broken"),
    "body": ("certified", "passed", 0, "disturbed runs failed the test's own asserts"),
}
PROOF: Final[dict[str, Cell]] = {
    **STRESS,
    "unknown": ("not_judged", "failed", 1, "not judged: rule could not be judged"),
}
GATE: Final[dict[str, Cell]] = {
    "certified": ("nominal", "passed", 0, "The gate passes"),
    "vacuous": ("vacuous", "passed", 0, "PytestWarning: rule is vacuous"),
    "misnamed": ("vacuous", "passed", 0, "PytestWarning: rule is vacuous"),
    "unknown": ("not_judged", "passed", 1, "first: seed 0: a contract could not be judged"),
    "raises": ("violated", "xfailed", 1, "The gate fails"),
    "body": ("nominal", "passed", 0, "The gate passes"),
}
CHECK: Final[dict[str, tuple[int, str]]] = {
    "certified": (0, ""),
    "vacuous": (0, "rule is vacuous: no step of any trace triggers it"),
    "unknown": (0, "rule could not be judged in 1 trace"),
    "raises": (1, "rule could not be judged in 1 trace"),
}


def written(shop: Any, row: str) -> None:
    rule, body = ROWS[row]
    shop.tests(TEST.replace("RULE", rule).replace("BODY", body))


def cell_of(session: Any, said: str) -> Cell:
    everything = re.sub(r"\s+", " ", session.text + "".join(session.failures.values()))
    return session.statuses[ID], session.outcomes[ID], session.code, said if said in everything else everything


@pytest.mark.parametrize("row", ["vacuous", "misnamed", *(pytest.param(row, marks=pytest.mark.full) for row in ROWS)])
def test_in_nominal_runs(shop: Any, row: str) -> None:
    written(shop, row)
    assert cell_of(shop.run(), NOMINAL[row][-1]) == NOMINAL[row]


@pytest.mark.nightly
@pytest.mark.parametrize("row", ROWS)
def test_under_stress(shop: Any, row: str) -> None:
    written(shop, row)
    assert cell_of(shop.stress(), STRESS[row][-1]) == STRESS[row]


@pytest.mark.nightly
@pytest.mark.parametrize("row", ROWS)
def test_under_stress_with_require_proof(shop: Any, row: str) -> None:
    written(shop, row)
    assert cell_of(shop.stress("--mat-require-proof"), PROOF[row][-1]) == PROOF[row]


@pytest.mark.full
@pytest.mark.parametrize("row", ROWS)
def test_in_the_gate(shop: Any, row: str) -> None:
    """Against a baseline in which the contract was kept."""
    written(shop, "certified")
    shop.run("--mat-seeds", "20")
    shutil.copy(shop.path / "out.json", shop.path / "base.json")
    written(shop, row)
    session = shop.run("--mat-gate=base.json", "--mat-gate-set", "tolerance.success=0.2")
    assert cell_of(session, GATE[row][-1]) == GATE[row]


@mat.tool(effect="write")
def refund(order: str) -> str:
    return f"refunded {order}"


def needs_x(record: Any) -> bool:
    return bool(record.action.arguments["x"] > 0)


CONTRACTS: Final = {
    "certified": mat.contract("rule", always(at_most(9, tool_call("refund")))),
    "vacuous": mat.contract("rule", always(at_most(1, tool_call("refnd")))),
    "unknown": mat.step_contract(on="tool_call", id="rule", on_error="unknown")(needs_x),
    "raises": mat.step_contract(on="tool_call", id="rule")(needs_x),
}


@pytest.mark.parametrize("row", CHECK)
def test_in_mat_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], row: str) -> None:
    with mat.run() as run:
        refund("A1")
    jsonl.write(tmp_path / "traces.mat.jsonl", run.trace, trace="one", finished=True)
    module = type(sys)("rules_of_the_table")
    module.rule = CONTRACTS[row]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rules_of_the_table", module)
    code = main(["check", str(tmp_path / "traces.mat.jsonl"), "--contracts", "rules_of_the_table:rule"])
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert (code, CHECK[row][1] if CHECK[row][1] in said else said) == CHECK[row]


def test_the_page_has_each_cell() -> None:
    """docs/reference/results.md says what these tests show: a row for each kind, with the status of each mode."""
    page = (ROOT / "docs" / "reference" / "results.md").read_text()
    rows = {cells[0]: cells[1:] for cells in map(_cells, page.splitlines()) if len(cells) == 6}
    for row, name in NAMES.items():
        nominal, stress, proof, check, gate = rows[name][:5]
        assert nominal.startswith(_shown(NOMINAL[row])), row
        assert stress.startswith(_shown(STRESS[row])), row
        assert proof.startswith(_shown(PROOF[row])), row
        assert gate.startswith("fails" if GATE[row][2] else "passes"), row
        assert check.endswith(f"exit code {CHECK[row][0]}") if row in CHECK else check == "-", row


NAMES: Final = {
    "certified": "kept",
    "vacuous": "vacuous",
    "misnamed": "forbids a name that no port has",
    "unknown": 'unknown (`on_error="unknown"`)',
    "raises": "cannot judge (`on_error` not set)",
    "body": "the body fails under a disturbance",
}


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []


def _shown(cell: Cell) -> str:
    return f"{'passes' if cell[1] == 'passed' else 'fails'}, `{cell[0]}`"
