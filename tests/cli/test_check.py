"""`mat check --contracts`: stored traces judged from the command line."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import mat
from mat.__main__ import main
from mat.evidence import jsonl

CONTRACTS = """
import mat
import pytest


@mat.trace_contract(start=0, id="refund.once", on="tool_call")
def once(count, record):
    if record.action.name != "refund":
        return None
    return mat.Violated("refunded twice") if count else 1


@mat.step_contract(on="tool_call", id="small", severity="soft")
def small(record):
    "refunds are small"
    return record.action.arguments.get("amount", 0) < 100


def waiting(state):
    return (mat_obligation(text="send the receipt", since=state),) if state is not None else ()


from mat.core.verdict import Obligation as mat_obligation


@mat.trace_contract(start=None, id="receipt", on="tool_call", obligations=waiting,
                    finish=lambda state: None if state is None else mat.Violated("no receipt", step=state))
def receipt(state, record):
    return record.step if record.action.name == "refund" else mat.Violated("x") if record.action.name == "never" else state


@mat.step_contract(on="approval", id="approvals")
def approvals(record):
    return False


@mat.step_contract(on="tool_call", id="crashes")
def crashes(record):
    return record.action.arguments["nothing"]


ALL = [once, small]
PAIR = (once, approvals)
EMPTY = []
MIXED = [once, 3]
number = 3


def made():
    return [once]


def one():
    return small


def needs(amount, name="x"):
    return [once]


def raises():
    raise ValueError("no file")


def nothing():
    return None


@pytest.fixture
def fixture():
    return once
"""


class Checked(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)

    @property
    def line(self) -> str:
        """The text without the breaks of long lines."""
        return " ".join(self.out.split())


Check = Callable[..., Checked]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Check:
    """`mat check` in a folder that holds contracts, run in this process; modules it loads are forgotten after."""
    (tmp_path / "shop_checks.py").write_text(CONTRACTS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    for name in [name for name in sys.modules if name.startswith("shop_")]:
        monkeypatch.delitem(sys.modules, name)

    def run(*arguments: object) -> Checked:
        code = main(["check", *map(str, arguments)])
        sys.modules.pop("shop_checks", None)
        return Checked(code, *capsys.readouterr())

    return run


@mat.tool(effect="write", impact="high")
def refund(order: str, amount: int) -> str:
    return "done"


def recorded(path: Path, *orders: int, trace: str = "case", finished: bool = True) -> Path:
    """A real run with one refund of each amount, appended to a file."""
    with mat.run([], task=trace) as run, mat.agent("mailer"):
        for amount in orders:
            refund("A-7", amount)
    jsonl.write(path, run.trace, trace=trace, finished=finished)
    return path


def spans(*tools: str) -> str:
    made = [
        {
            "traceId": "ab" * 16, "spanId": str(number), "startTimeUnixNano": str(number * 2),
            "endTimeUnixNano": str(number * 2 + 1), "attributes": {
                "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, "gen_ai.agent.name": "clerk",
            },
        }
        for number, tool in enumerate(tools)
    ]  # fmt: skip
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": made}]}]}) + "\n"


# -- verdicts and exit codes ------------------------------------------------------------------------------------------


def test_exit_0_without_a_violation_and_1_with_a_hard_one(check: Check, tmp_path: Path) -> None:
    path = recorded(tmp_path / "runs.mat.jsonl", 5, trace="good")
    good = check(path, "--contracts", "shop_checks:ALL")
    assert (good.code, good.err) == (0, "")
    assert "1 trace judged: 0 violating, 2 records" in good.out
    recorded(path, 5, 6, trace="bad")
    bad = check(path, "--contracts", "shop_checks:ALL")
    assert bad.code == 1
    assert f"bad ({path}:5): refund.once at step 1 by mailer: refunded twice" in bad.line
    assert "good (" not in bad.line


def test_a_soft_violation_is_shown_with_exit_0(check: Check, tmp_path: Path) -> None:
    found = check(recorded(tmp_path / "runs.mat.jsonl", 500), "--contracts", "shop_checks:ALL")
    assert found.code == 0
    assert "small at step 0 by mailer: refunds are small" in found.line


def test_the_table_counts_traces_per_contract_with_an_interval(check: Check, tmp_path: Path) -> None:
    path = tmp_path / "runs.mat.jsonl"
    for number, amounts in enumerate([(1,), (1, 2), (1, 2, 3), (1,)]):
        recorded(path, *amounts, trace=f"case {number}")
    found = check(path, "--contracts", "shop_checks:PAIR")
    rows = [line.split() for line in found.out.splitlines()]
    assert ["refund.once", "hard", "4", "4", "2", "0", "0", "50%", "[15-85]", "n=4", "1"] in rows
    assert ["approvals", "hard", "4", "0", "0", "0", "0", "-", "-"] in rows
    assert "approvals is vacuous" in found.line
    assert "refund.once is vacuous" not in found.line


def test_replay_files_spans_and_our_own_traces_are_judged_together(check: Check, tmp_path: Path, file: Path) -> None:
    ours = recorded(tmp_path / "runs.mat.jsonl", 5)
    otlp, packed = tmp_path / "spans.jsonl", tmp_path / "spans.jsonl.gz"
    otlp.write_text(spans("refund", "refund"))
    packed.write_bytes(gzip.compress(spans("refund", "look").encode()))
    found = check(file, ours, otlp, packed, "--contracts", "shop_checks:once", "--json")
    assert found.code == 1
    traces = found.data["traces"]
    assert [(item["labels"].get("format"), item["outcome"]) for item in traces] == [
        ("replay", "fail"), (None, "pass"), ("otlp", "fail"), ("otlp", "pass"),
    ]  # fmt: skip
    assert traces[0]["trace"] == "test_shop.py::test_refund"
    assert traces[2]["contracts"][0]["violations"][0]["agent"] == "clerk"


def test_an_open_obligation_of_a_trace_without_an_end_is_reported_and_not_a_violation(check: Check, tmp_path: Path) -> None:
    path = recorded(tmp_path / "runs.mat.jsonl", 5, trace="cut", finished=False)
    found = check(path, "--contracts", "shop_checks:receipt")
    assert found.code == 0
    assert f"cut ({path}:1): receipt since step 0: send the receipt" in found.line
    (outcome,) = check(path, "--contracts", "shop_checks:receipt", "--json").data["traces"][0]["contracts"]
    assert (outcome["outcome"], outcome["standing"]) == ("unknown", "presumably_false")
    assert outcome["open"] == [{"text": "send the receipt", "since": 0, "instance": "", "met": False}]
    ended = check(recorded(tmp_path / "ended.mat.jsonl", 5), "--contracts", "shop_checks:receipt")
    assert (ended.code, "no receipt" in ended.line) == (1, True)


def test_a_torn_file_is_judged_as_far_as_it_goes_and_the_place_is_reported(check: Check, tmp_path: Path) -> None:
    path = recorded(tmp_path / "runs.mat.jsonl", 1, 2)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]) + lines[3][:50])
    found = check(path, "--contracts", "shop_checks:once")
    assert found.code == 1
    assert "1 trace judged, 1 unfinished: 1 violating, 2 records" in found.line
    assert f"note: {path}:4: the file is cut off here" in found.line


def test_a_contract_that_crashes_fails_with_its_error(check: Check, tmp_path: Path) -> None:
    found = check(recorded(tmp_path / "runs.mat.jsonl", 1), "--contracts", "shop_checks:crashes")
    assert found.code == 1
    assert "crashes could not be judged in 1 trace: raised KeyError at step 0: 'nothing'" in found.line


def test_limit_is_what_the_text_shows_and_json_has_all(check: Check, tmp_path: Path) -> None:
    path = tmp_path / "runs.mat.jsonl"
    for number in range(25):
        recorded(path, 1, 2, trace=f"case {number}")
    default = check(path, "--contracts", "shop_checks:once")
    assert (default.out.count("refunded twice"), "and 5 more" in default.out) == (20, True)
    assert check(path, "--contracts", "shop_checks:once", "--limit", 1).out.count("refunded twice") == 1
    data = check(path, "--contracts", "shop_checks:once", "--json", "--limit", 1).data
    assert sum(len(item["contracts"][0]["violations"]) for item in data["traces"]) == 25
    assert data["totals"] == {"traces": 25, "unfinished": 0, "records": 75, "violating": 25, "failing": 25}
    (line,) = data["table"]
    assert (line["contract"], line["violated"], line["rate"]["n"], line["rate"]["method"]) == ("refund.once", 25, 25, "wilson")
    assert (data["mat"], data["vacuous"], data["problems"], data["ok"]) == (1, [], [], False)


# -- contracts by name ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "ids"),
    [
        (["once"], ["refund.once"]), (["ALL"], ["refund.once", "small"]), (["PAIR"], ["refund.once", "approvals"]),
        (["made"], ["refund.once"]), (["one"], ["small"]), (["one", "approvals"], ["small", "approvals"]),
        (["ALL", "once", "PAIR"], ["refund.once", "small", "approvals"]),
    ],
)  # fmt: skip
def test_contracts_are_named_alone_in_lists_or_by_a_function_and_may_be_repeated(
    names: list[str], ids: list[str], check: Check, tmp_path: Path
) -> None:
    path = recorded(tmp_path / "runs.mat.jsonl", 1)
    options = [part for name in names for part in ("--contracts", f"shop_checks:{name}")]
    assert [line["contract"] for line in check(path, *options, "--json").data["table"]] == ids


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("shop_checks:onces", "module shop_checks has no 'onces'; did you mean 'once'?"),
        ("shop_check:once", "no module named 'shop_check'; did you mean 'shop_checks'?"),
        ("shop_checks.inner:once", "no module named 'shop_checks.inner'"),
        ("shop_checks", "'shop_checks' is not of the form module:name"),
        ("shop_checks:", "'shop_checks:' is not of the form module:name"),
        ("./shop_checks.py:once", "write shop_checks:once"),
        ("shop_checks:number", "shop_checks:number is not a contract: a value of type int"),
        ("shop_checks:EMPTY", "shop_checks:EMPTY is empty"),
        ("shop_checks:MIXED", "shop_checks:MIXED contains a value of type int, which is not a contract"),
        ("shop_checks:needs", "shop_checks:needs needs arguments: amount"),
        ("shop_checks:raises", "shop_checks:raises() raised ValueError: no file"),
        ("shop_checks:nothing", "what shop_checks:nothing() returned is not a contract: None"),
        ("shop_checks:fixture", "shop_checks:fixture is a pytest fixture"),
        ("shop_broken:x", "module shop_broken cannot be imported: ZeroDivisionError"),
        ("shop_syntax:x", "module shop_syntax cannot be imported: SyntaxError"),
        ("shop_import:x", "module shop_import cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all'"),
    ],
)
def test_a_wrong_name_is_a_clear_error_with_exit_2(name: str, said: str, check: Check, tmp_path: Path) -> None:
    (tmp_path / "shop_broken.py").write_text("\n\n1 / 0\n")
    (tmp_path / "shop_syntax.py").write_text("\ndef (\n")
    (tmp_path / "shop_import.py").write_text("import nowhere_at_all\n")
    found = check(recorded(tmp_path / "runs.mat.jsonl", 1), "--contracts", name)
    assert (found.code, found.out) == (2, "")
    assert said in found.err
    assert "fix: " in found.err
    if name.startswith(("shop_broken", "shop_syntax", "shop_import")):
        line = {"shop_broken": 3, "shop_syntax": 2, "shop_import": 1}[name.partition(":")[0]]
        assert f"{name.partition(':')[0]}.py:{line}\n" in found.err


def test_two_contracts_with_one_id_are_refused_before_a_file_is_read(check: Check, tmp_path: Path) -> None:
    (tmp_path / "shop_other.py").write_text(CONTRACTS)
    found = check(tmp_path / "missing", "--contracts", "shop_checks:once", "--contracts", "shop_other:once")
    assert found.code == 2
    assert "two armed contracts have the id 'refund.once'" in found.err


def test_a_usage_error_under_json_is_json_too(check: Check, tmp_path: Path) -> None:
    found = check(recorded(tmp_path / "runs.mat.jsonl", 1), "--contracts", "shop_checks:onces", "--json")
    assert found.code == 2
    assert found.data["error"]["what"].startswith("module shop_checks has no 'onces'")


@pytest.mark.full
def test_the_installed_command_finds_modules_of_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "shop_checks.py").write_text(CONTRACTS)
    path = recorded(tmp_path / "runs.mat.jsonl", 1, 2)
    command = [sys.executable, "-P", "-m", "mat", "check", str(path), "--contracts", "shop_checks:once"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (1, "")
    assert "refunded twice" in done.stdout


# -- files that cannot be read ----------------------------------------------------------------------------------------

UNREADABLE: dict[str, tuple[bytes, str]] = {
    "nothing.jsonl": (b"", "contains no rows"),
    "unknown.jsonl": (b'{"a": 1}\n', "unknown.jsonl:1"),
    "no.json": (b"not json\n", "no.json:1"),
    "bad.mat.jsonl": (b'{"mat": 1, "trace": "x"}\n{"step": 0}\n', "bad.mat.jsonl:2"),
    "newer.mat.jsonl": (b'{"mat": 9, "trace": "x"}\n', "newer.mat.jsonl:1"),
    "torn.jsonl.gz": (gzip.compress(b'{"mat": 1, "trace": "x"}\n' * 99)[:-9], "torn.jsonl.gz"),
    "broken.mat.json": (b'{"mat": 1}', "broken.mat.json"),
    "deep.jsonl": (b"[" * 100_000, "deep.jsonl"),
    "binary.bin": (bytes(range(256)) * 10, "binary.bin"),
    "escape.mat.jsonl": (b'{"mat": 1, "trace": "x", "\\u001b[2J": 1}\n', "escape.mat.jsonl:1"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_unreadable_file_is_exit_2_with_its_place_and_the_others_are_judged(name: str, check: Check, tmp_path: Path) -> None:
    content, place = UNREADABLE[name]
    broken = tmp_path / name
    broken.write_bytes(content)
    path = recorded(tmp_path / "runs.mat.jsonl", 1, 2)
    found = check(broken, path, "--contracts", "shop_checks:once")
    assert found.code == 2
    assert place in found.err
    assert "refunded twice" in found.out
    assert "1 file could not be read to the end" in found.out
    assert "Traceback" not in found.err
    assert "\x1b" not in found.err + found.out
    data = check(broken, path, "--contracts", "shop_checks:once", "--json").data
    assert [item["trace"] for item in data["traces"]][-1] == "case"
    assert len(data["problems"]) == 1
    assert not data["ok"]


def test_a_missing_file_and_a_folder_are_exit_2(check: Check, tmp_path: Path) -> None:
    for path in (tmp_path / "missing.jsonl", tmp_path):
        found = check(path, "--contracts", "shop_checks:once")
        assert found.code == 2
        assert str(path) in found.err


def test_what_stood_before_a_broken_row_was_judged(check: Check, tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    path.write_text(spans("refund", "refund") + spans("refund").replace("ab" * 16, "cd" * 16) + '{"broken\n' + spans("look"))
    found = check(path, "--contracts", "shop_checks:once")
    assert found.code == 2
    assert f"{path}:3" in found.err
    assert "refunded twice" in found.out


def test_a_format_can_be_named_and_a_wrong_one_is_reported(check: Check, tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    path.write_text(spans("refund", "refund"))
    assert check(path, "--contracts", "shop_checks:once", "--format", "otlp").code == 1
    wrong = check(path, "--contracts", "shop_checks:once", "--format", "otpl")
    assert wrong.code == 2
    assert "unknown format: 'otpl'; did you mean 'otlp'?" in wrong.err
    assert check(path, "--contracts", "shop_checks:once", "--format", "mat").code == 2
    assert check(path, "--contracts", "shop_checks:once", "--format", "replay").code == 2
    assert check(path, "--format", "otlp").code == 2


def test_without_contracts_recorded_traces_are_validated_and_other_files_are_said_to_need_contracts(
    check: Check, tmp_path: Path
) -> None:
    path = recorded(tmp_path / "runs.mat.jsonl", 1)
    assert (check(path).code, check(path).out) == (0, f"{path}: ok\n")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + lines[1].replace('"step":0', '"step":7') + "".join(lines[2:]))
    broken = check(path)
    assert broken.code == 2
    assert "has step 7" in broken.out
    spans = tmp_path / "spans.jsonl"
    spans.write_text('{"resourceSpans": []}\n{}\n')
    assert "to judge recorded traces, add --contracts MODULE:NAME" in check(spans).out


def test_the_help_shows_how_to_judge_traces_and_what_the_exit_codes_mean(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["check", "--help"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert "mat check runs.mat.jsonl --contracts shop.contracts:refunds_capped" in text
    assert "exit codes: 0 no hard contract is violated, 1 a hard contract is violated, 2" in text


@pytest.mark.parametrize("limit", ["-1", "many", ""])
def test_a_limit_that_is_no_count_is_exit_2(limit: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as left:
        main(["check", str(tmp_path), "--contracts", "x:y", f"--limit={limit}"])
    assert left.value.code == 2
