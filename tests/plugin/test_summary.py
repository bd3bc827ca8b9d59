"""What a session prints by default, with -v and with -vv, and while it runs."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter

from pytest_mat import live_line
from pytest_mat.live_line import LiveLine

ID = "test_shop.py::test_refund"
NAIVE = """
@pytest.mark.mat(budget=4, faults=FAULTS)
def test_refund(mat_run, no_double):
    shop.naive()
"""
TABLE = "Nominal runs (shares"


def section(session: Any) -> list[str]:
    """The lines of the summary."""
    lines: list[str] = session.text.splitlines()
    begin = next(number for number, line in enumerate(lines) if re.fullmatch("=+ mat =+", line))
    end = next(number for number, line in enumerate(lines) if line.startswith("mat report: "))
    return [re.sub(r", \d+ s\)", ", 1 s)", line) for line in lines[begin + 1 : end] if line]


@pytest.mark.full
def test_one_broken_test_is_one_entry_and_its_failure_section_repeats_nothing(shop: Any) -> None:
    shop.tests(NAIVE)
    session = shop.stress("-q")
    (path,) = shop.replays
    show = f"mat show mat_replays/{path.name}"
    assert section(session) == [
        "mat: 0 certified, 1 broken, 0 expected, 0 vacuous, 0 not proven  (11 executions, 1 s)",
        "BROKEN test_refund  cost 4  no_double",
        "  o1 was refunded twice (shop.py:22) when service.unconfirmed acts on the 1st refund call by main",
        f"  repair: ask what happened before a retry        {show}",
        "test_refund: in 1 of 3 disturbed runs the test's body did not catch the TimeoutError injected at",
        "  check",
        "test_refund: 1 of 3 disturbed runs ended in an exception (TimeoutError 1) (not judged:",
        "  objective='task')",
    ]
    assert session.failures[ID] == f"no_double broken, cost 4 (shop.py:22)\n  {show}"
    assert session.text.count("refunded twice") == 1
    again = shop.stress("-q")
    assert [line for line in section(again) if line.startswith("BROKEN")] == [
        "BROKEN test_refund  cost 4  no_double; its replay fails, too"
    ]


@pytest.mark.nightly
def test_expected_counterexamples_and_replays_are_counted_and_v_lists_them(shop: Any) -> None:
    shop.tests(NAIVE.replace("budget=4", 'budget=4, expect=["no_double"]'))
    shop.stress()
    for option, listed, tables in ((), False, False), (("-v",), True, False), (("-vv",), True, True):
        session = shop.stress(*option)
        said = "\n".join(section(session))
        assert said.startswith("mat: 0 certified, 0 broken, 1 expected, 1 replay passes, 0 vacuous, 0 not proven"), said
        assert ("refunded twice" in said) == ("\nexpected" in said) == listed
        assert (TABLE in said) == tables


@pytest.mark.full
@pytest.mark.parametrize(("expect", "named"), [([], "no_double, few"), (["no_double"], "few")])
def test_a_run_that_breaks_two_contracts_at_four_steps_is_one_entry(shop: Any, expect: list[str], named: str) -> None:
    shop.tests(
        f"""
        @pytest.fixture
        def few():
            return mat.step_contract(on="tool_call", id="few")(lambda record: record.step < 2)

        @pytest.mark.mat(budget=4, faults=["service.unconfirmed"], expect={expect})
        def test_refund(mat_run, no_double, few):
            for _ in range(4):
                try:
                    shop.refund("o1")
                    break
                except TimeoutError:
                    for _ in range(3):
                        shop.refund("o1")
        """
    )
    session = shop.stress()
    (item,) = session.items.values()
    assert len(item["replays"]) > 1
    assert [line for line in section(session) if line.startswith("BROKEN")] == [f"BROKEN test_refund  cost 4  {named}"]
    assert session.failures[ID].count("mat show") == 1


@pytest.mark.full
def test_what_a_failure_section_explains_is_explained_here_if_there_is_none(shop: Any) -> None:
    shop.tests(NAIVE.replace("budget=4", 'budget=4, expect=["no_double"]').replace("naive", "careful"))
    assert "MISSED test_refund: see its failure section above" in section(shop.stress())
    help_text = "MISSED test_refund: remove the contract from expect= if the system was fixed, or raise budget="
    for option in ("--tb=no", "--no-summary"):
        assert help_text in shop.stress(option).text


def test_a_nominal_failure_is_short_where_a_summary_follows_and_in_full_where_none_does(shop: Any) -> None:
    shop.tests(NAIVE.replace("no_double", "no_refund"))
    session = shop.stress()
    assert session.failures[ID] == f"no_refund broken, nominal run (shop.py:22)\n  pytest -v {ID}"
    assert section(session)[1] == "BROKEN test_refund  nominal run  no_refund"
    session = shop.run()
    assert "VIOLATES no_refund" in session.failures[ID]
    assert "BROKEN" not in session.text


@pytest.mark.full
def test_a_replay_that_breaks_another_contract_is_not_opened_by_its_recording(shop: Any) -> None:
    shop.tests(NAIVE)
    shop.stress()
    (path,) = shop.replays
    name = f"{ID}[replay-{path.name[12:18]}]"
    assert f"mat show mat_replays/{path.name}" in shop.run().failures[name]
    shop.tests(NAIVE.replace("no_double", "no_refund"))
    assert shop.run().failures[name].endswith(f"  pytest -v '{name}'")
    assert [line for line in section(shop.stress()) if line.startswith("BROKEN")] == [
        "BROKEN test_refund  nominal run  no_refund",
        f"BROKEN {name.partition('::')[2]}  cost 4  no_refund",
    ]


@pytest.mark.full
def test_the_configuration_file_sets_how_much_the_summary_says(shop: Any) -> None:
    shop.tests(NAIVE)
    assert TABLE not in shop.stress().text
    assert TABLE in shop.stress("-o", "verbosity_mat=2").text
    assert TABLE not in shop.stress("-vv", "-o", "verbosity_mat=0").text
    refused = shop.pytester.runpytest_inprocess("-o", "verbosity_mat=much")
    refused.stderr.fnmatch_lines(["ERROR: verbosity_mat: 'much' is neither a whole number nor auto*"])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [100.0]
    monkeypatch.setattr(live_line, "real_monotonic", lambda: time[0])
    return time


def line_on(file: io.StringIO, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> tuple[LiveLine, Any]:
    reporter = TerminalReporter(pytestconfig, file)
    monkeypatch.setattr(pytestconfig.pluginmanager, "getplugin", lambda name: reporter)
    monkeypatch.setattr(pytestconfig.option, "verbose", 0)
    return LiveLine(pytestconfig), reporter


def test_without_a_terminal_an_item_prints_a_line_every_ten_seconds(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, now: list[float]
) -> None:
    file = io.StringIO()
    line, _ = line_on(file, pytestconfig, monkeypatch)
    for second in range(35):
        now[0] = 100.0 + second
        line.show(f"{second} s")
    line.clear()
    assert file.getvalue().split("\n") == ["mat: 11 s", "mat: 22 s", "mat: 33 s", ""]


def test_a_terminal_shows_one_line_and_then_pytests_own_again(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, now: list[float]
) -> None:
    file = Terminal()
    line, reporter = line_on(file, pytestconfig, monkeypatch)
    reporter.write("test_shop.py ..")
    for step in range(5):
        now[0] += 1
        line.show(f"{step} runs")
    assert "\n" not in file.getvalue()
    line.clear()
    reporter.write(".")
    shown = ""
    for part in file.getvalue().split("\r"):
        shown = part + shown[len(part) :]
    assert shown.rstrip() == "test_shop.py ..."
    assert reporter._tw.width_of_current_line == len("test_shop.py ...")


def test_quiet_sessions_show_no_progress(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, now: list[float]
) -> None:
    file = io.StringIO()
    monkeypatch.setattr(pytestconfig.option, "verbose", -1)
    reporter = TerminalReporter(pytestconfig, file)
    monkeypatch.setattr(pytestconfig.pluginmanager, "getplugin", lambda name: reporter)
    line = LiveLine(pytestconfig)
    now[0] += 60
    line.show("60 s")
    assert file.getvalue() == ""
