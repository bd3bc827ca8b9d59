"""A misspelled option is refused with a suggestion."""

from __future__ import annotations

from typing import Any

import pytest
from tests.plugin.conftest import INI

from mat.core.search import STOPS, STRATEGIES
from pytest_mat import options


def test_an_option_that_there_is_none_of_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(pytest.UsageError, match=r"unknown option --mat-stres; did you mean '--mat-stress'\?"):
        options.check_names(["tests", "--mat-stres"])
    with pytest.raises(pytest.UsageError, match=r"unknown option --mat-faults; it is a setting: -o mat_faults="):
        options.check_names(["--mat-faults", "service.lost_ack"])
    with pytest.raises(pytest.UsageError, match=r"unknown option --mat-sede; did you mean '--mat-seeds'\?"):
        options.check_names(["--mat-sede=3"])


def test_options_that_there_are_and_those_of_others_pass() -> None:
    options.check_names(["--mat-seeds=3", "--mat-store", "-x", "--maxfail=2", "tests/--mat-x"])


@pytest.mark.full
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--mat-strategy=exhaustiv", "'exhaustiv' is not one of exhaustive,*did you mean 'exhaustive'?"),
        ("--mat-stop=cheap", "'cheap' is not one of budget, cheapest, first; did you mean 'cheapest'?"),
    ],
)
def test_a_value_that_there_is_none_of_is_refused_with_the_one_that_was_meant(
    pytester: pytest.Pytester, given: str, said: str
) -> None:
    done = pytester.runpytest_subprocess(given)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"*{said}*"])


@pytest.mark.full
def test_a_marker_value_that_there_is_none_of_is_told_what_was_meant(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import mat
        import pytest

        @pytest.mark.mat(search=mat.Search(strategy="beem"))
        def test_one(mat_run):
            pass
        """
    )
    done = pytester.runpytest_subprocess()
    done.stdout.fnmatch_lines(["*strategy='beem' is not one of exhaustive, *; did you mean 'beam'?*"])


SET = """
mat_seeds = 2
mat_budget = 4
mat_max_runs = 1
mat_strategy = anytime
mat_faults = service.lost_ack
mat_timeout = 60
"""


@pytest.mark.full
def test_a_configuration_file_sets_what_no_marker_does(shop: Any) -> None:
    shop.write("pytest.ini", INI + SET)
    shop.tests(
        """
        @pytest.mark.mat
        def test_refund(mat_run, no_double):
            shop.careful()

        @pytest.mark.mat(seeds=1, search=mat.Search(stop="first"))
        def test_once(mat_run, no_double):
            shop.careful()
        """
    )
    session = shop.run()
    assert {name: item["executions"] for name, item in session.items.items()} == {
        "test_shop.py::test_refund": 2, "test_shop.py::test_once": 1,
    }  # fmt: skip
    assert set(shop.stress().statuses.values()) == {"not_proven"}
    session = shop.stress("--mat-max-runs=50")
    assert {item["bound"] for item in session.items.values()} == {4}
    assert set(session.statuses.values()) == {"certified"}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("mat_seeds = 0", "mat_seeds: '0' is not an integer >= 1"),
        ("mat_seeds = two", "mat_seeds is not a number ("),
        ("mat_strategy = bean", "mat_strategy: 'bean' is not one of exhaustive, "),
        ("mat_workers = 0", "mat_workers: '0' is not an integer >= 1"),
        ("mat_timeout = soon", "mat_timeout is not a number ("),
        ("mat_target = 2", "mat_target: '2.0' is not a share between 0 and 1, such as 0.05"),
    ],
)
def test_a_value_of_the_configuration_file_that_means_nothing_is_a_usage_error(shop: Any, line: str, problem: str) -> None:
    shop.write("pytest.ini", f"{INI}{line}\n")
    shop.tests("def test_nothing():\n    pass\n")
    done = shop.pytester.runpytest_inprocess()
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert problem in done.stderr.str()
    assert "pytest.ini" in done.stderr.str()


def test_the_plugin_knows_every_strategy_and_stop_without_importing_them() -> None:
    assert options._STRATEGIES == STRATEGIES
    assert options._STOPS == STOPS
