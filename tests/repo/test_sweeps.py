"""The machinery of the tiers and sweeps (tests/conftest.py), in small sessions of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
SETTINGS = """
[pytest]
addopts = --strict-markers -p no:cacheprovider -p no:xdist
markers =
    full: all
    nightly: broad
    sweep(names, cases, ids=None, fast=None): cases
    covers(kind, names): covered
"""
Session = Callable[..., pytest.RunResult]


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Session:
    """session(tests, *options) runs them with the conftest of this folder, in a process of its own: it loads profiles."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeconftest(CONFTEST.read_text(encoding="utf-8"))
    pytester.makefile(".ini", pytest=SETTINGS)

    def run(tests: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=tests)
        return pytester.runpytest_subprocess(*options)

    return run


CASES = """
import pytest

@pytest.fixture
def base():
    return 1

@pytest.mark.sweep("one", range(20), fast=20)
@pytest.mark.sweep(("two", "three"), [("a", 1), pytest.param("b", 2, id="bee"), ("c", 3)])
def test_product(base, one, two, three):
    with open("cases", "a") as file:
        print(one + base - 1, two, three, file=file)

@pytest.mark.full
@pytest.mark.parametrize("way", "xy")
@pytest.mark.sweep("one", [4, 5, 6], ids=lambda value: f"no {value}", fast=1)
def test_full(way, one):
    with open("cases", "a") as file:
        print(way, one, file=file)
"""
PRODUCT = {f"{one} {two} {three}" for one in range(20) for two, three in (("a", 1), ("b", 2), ("c", 3))}
FULL = {f"{way} {one}" for way in "xy" for one in (4, 5, 6)}


def run_cases(session: Session, *options: str) -> set[str]:
    Path("cases").unlink(missing_ok=True)
    session(CASES, *options).assert_outcomes(**COUNTS[options])
    lines = Path("cases").read_text().splitlines()
    assert len(lines) == len(set(lines))
    return set(lines)


COUNTS: dict[tuple[str, ...], Any] = {
    (): {"passed": 1, "deselected": 2},
    ("--full",): {"passed": 3},
    ("-m", "full"): {"passed": 2, "deselected": 1},
    ("-m", "not full"): {"passed": 1, "deselected": 2},
    ("-m", "not ( full )"): {"passed": 1, "deselected": 2},
    ("--full", "-m", "not full"): {"passed": 1, "deselected": 2},
    ("test_it.py::test_product",): {"passed": 1},
    ("test_it.py::test_full[x]",): {"passed": 1},
    ("--full", "--case", "bee"): {"passed": 1, "skipped": 2},
}


def test_the_fast_tier_runs_a_fixed_sample_in_which_each_value_occurs(session: Session) -> None:
    sample = run_cases(session)
    assert sample < PRODUCT
    assert len(sample) == 20
    assert {case.split()[0] for case in sample} == {str(one) for one in range(20)}
    assert sorted(sum(case.split()[1] == two for case in sample) for two in "abc") == [6, 7, 7]
    assert run_cases(session) == sample


@pytest.mark.full
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--full",), PRODUCT | FULL),
        (("-m", "full"), FULL),
        (("--full", "-m", "not full"), PRODUCT),
        (("test_it.py::test_product",), PRODUCT),
        (("test_it.py::test_full[x]",), {case for case in FULL if case.startswith("x")}),
        (("--full", "--case", "bee"), {case for case in PRODUCT if " b " in case}),
    ],
)
def test_the_full_tier_and_whoever_names_a_test_run_every_case(
    session: Session, options: tuple[str, ...], expected: set[str]
) -> None:
    assert run_cases(session, *options) == expected


LEFT_OUT = """
import pytest
from hypothesis import given, strategies

def test_fast(): pass

@pytest.mark.full
def test_marked(): pass

@pytest.mark.nightly
def test_broad(): pass

@pytest.mark.sweep("one", [1, 2], fast=1)
def test_part_of_a_sweep(one): pass

@pytest.mark.sweep("one", [1, 2])
def test_whole_sweep(one): pass

@given(strategies.integers())
def test_property(number): pass
"""


def test_the_rest_is_what_the_fast_tier_leaves_out(session: Session) -> None:
    result = session(LEFT_OUT, "--rest", "-v")
    result.assert_outcomes(passed=3, deselected=3)
    result.stdout.fnmatch_lines(["*test_marked*", "*test_part_of_a_sweep*", "*test_property*", "full tier: *-seed=*"])


MANY = """
import pytest
from hypothesis import given, settings, strategies

drawn = []

@pytest.mark.full
@pytest.mark.parametrize("one", range(10))
def test_cases(one): pass

@pytest.mark.parametrize("one", [*range(50), pytest.param(99, marks=pytest.mark.full)])
def test_one_long_case(one): pass

@settings(max_examples=500)
@given(strategies.integers())
def test_property(number): drawn.append(number)

swept = []

@pytest.mark.sweep("one", range(30), fast=3)
def test_sweep(one): swept.append(one)

@pytest.mark.full
def test_drawn(): print("drawn:", "few" if len(drawn) <= 40 else "many", len(swept))
"""


@pytest.mark.full
@pytest.mark.parametrize(("options", "cases", "drawn"), [(("--rest",), 2, "few 12"), (("--full",), 10, "many 30")])
def test_of_the_rest_some_cases_and_examples_run_the_same_each_time(
    session: Session, options: tuple[str, ...], cases: int, drawn: str
) -> None:
    first, second = (session(MANY, *options, "-v", "-s").outlines for _ in range(2))
    chosen = [line.split()[0] for line in first if "test_cases[" in line]
    assert len(chosen) == cases
    assert chosen == [line.split()[0] for line in second if "test_cases[" in line]
    assert any(line.endswith(f"drawn: {drawn}") for line in first)
    assert any("test_one_long_case[99]" in line for line in first)


@pytest.mark.full
@pytest.mark.parametrize(
    ("options", "passed"), [((), 4), (("--full",), 5), (("--nightly",), 6), (("-m", "nightly"), 1), (("-k", "broad"), 0)]
)
def test_what_is_broad_waits_for_the_night(session: Session, options: tuple[str, ...], passed: int) -> None:
    session(LEFT_OUT, *options).assert_outcomes(passed=passed, deselected=6 - passed)


def test_who_names_a_broad_test_runs_it(session: Session) -> None:
    session(LEFT_OUT, "test_it.py::test_broad").assert_outcomes(passed=1)


@pytest.mark.full
@pytest.mark.parametrize("expression", ["not full", "not ( full )"])
def test_who_excludes_full_tests_stays_in_the_fast_tier(session: Session, expression: str) -> None:
    assert len(run_cases(session, "-m", expression)) == 20


OUTCOMES = """
import sys
import time

import pytest

@pytest.mark.sweep("value", [1, 2, 3, 4, 5])
def test_names_what_fails(value):
    if value == 2:
        assert value == 20
    if value == 3:
        pytest.skip("not this one")
    if value == 4:
        sys.exit(4)
    if value == 5:
        pytest.fail("five")

@pytest.mark.sweep("value", [1, 2, 3])
def test_goes_on_after_a_skip(value):
    if value == 1:
        pytest.skip("not this one")
    if value == 2:
        pytest.xfail("known")

@pytest.mark.sweep("value", [1, 2])
def test_skips_all(value):
    pytest.skip("none")

@pytest.mark.sweep("value", [])
def test_has_none(value):
    pass

@pytest.mark.sweep("value", iter(()))
def test_has_no_more(value):
    pass

@pytest.mark.sweep("value", [1])
async def test_is_not_awaited(value):
    raise ValueError

@pytest.mark.sweep("value", [(1, 2), (1,)])
def test_takes_pairs_as_one_value(value):
    assert value

@pytest.mark.sweep(("one", "two"), [(1, 2), (1,)])
def test_lacks_a_value(one, two):
    pass

@pytest.mark.sweep("value", [1, pytest.param(2, marks=pytest.mark.skip)])
def test_marks_a_case(value):
    pass

@pytest.mark.sweep("value", [1, 2])
def test_leaves_a_clock_behind(value, clocks=[]):
    def sleep(seconds): pass
    clocks.append(time.sleep)
    time.sleep = sleep if value == 1 else clocks[0]
"""


REPORTED = """
*Group: 3 of 5 cases failed: 2, 4, 5 (3 sub-exceptions)
*case: 2
*case: 4
*case: 5
3: not this one
PASSED test_it.py::test_goes_on_after_a_skip
FAILED test_it.py::test_has_none - *a sweep over no cases tests nothing*
FAILED test_it.py::test_has_no_more - *a sweep over no cases tests nothing*
FAILED test_it.py::test_is_not_awaited - *
*the body of a sweep returns nothing and is not async; this one returned <coroutine*
PASSED test_it.py::test_takes_pairs_as_one_value
FAILED test_it.py::test_lacks_a_value - *has 1 values: (1,)*
FAILED test_it.py::test_marks_a_case - *a case of a sweep cannot be marked*
FAILED test_it.py::test_leaves_a_clock_behind - *
*Group: 1 of 2 cases failed: 1 (1 sub-exception)
"""


def test_a_sweep_reports_all_cases_that_failed_and_refuses_what_it_cannot_run(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    result = session(OUTCOMES, "-rA")
    result.assert_outcomes(passed=2, failed=7, skipped=1)
    for line in REPORTED.strip().splitlines():
        result.stdout.fnmatch_lines([line.replace("[", "[[]")])


@pytest.mark.full
@pytest.mark.parametrize("stop", ["raise KeyboardInterrupt", "pytest.exit('enough')"])
def test_an_interrupt_ends_a_sweep(session: Session, stop: str) -> None:
    result = session(f"""
        import pytest
        @pytest.mark.sweep("value", range(3))
        def test_it(value):
            assert value == 0, "went on"
            {stop}
        """)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.no_fnmatch_line("*went on*")


@pytest.mark.full
@pytest.mark.parametrize(
    "tests",
    [
        "def test_it(value, tmp_path):\n    pass",
        "def test_it(value, own):\n    pass\n@pytest.fixture\ndef own(monkeypatch):\n    pass",
        "def test_it(value):\n    pass\n@pytest.fixture(autouse=True)\ndef own(capsys):\n    pass",
    ],
    ids=["as an argument", "through a fixture", "autouse"],
)
def test_a_sweep_refuses_a_fixture_in_which_a_case_leaves_traces_for_the_next(session: Session, tests: str) -> None:
    result = session(f"import pytest\n@pytest.mark.sweep('value', [1, 2])\n{tests}\n")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*the cases of a sweep share its fixtures; parametrize a test that needs *"])


PROPERTY = """
from hypothesis import given, settings, strategies as st

@settings(max_examples=40)
@given(st.integers())
def test_it(number):
    with open("drawn", "a") as file:
        print(number, file=file)
"""


@pytest.mark.full
def test_the_fast_tier_draws_the_same_examples_and_the_full_one_new_ones_that_its_seed_repeats(session: Session) -> None:
    def drawn(*options: str) -> list[str]:
        Path("drawn").unlink(missing_ok=True)
        result = session(PROPERTY, *options)
        result.assert_outcomes(passed=1)
        seeds.append(result.stdout.str().rpartition("--hypothesis-seed=")[2].split()[0])
        return Path("drawn").read_text().split()

    seeds: list[str] = []
    fast = drawn()
    assert len(fast) == 15
    assert drawn() == fast
    one, other = drawn("--full"), drawn("--full")
    assert len(one) == len(other) == 40
    assert one != other
    assert drawn("--full", f"--hypothesis-seed={seeds[-1]}") == other
