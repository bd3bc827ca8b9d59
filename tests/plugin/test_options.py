"""A slip of the pen in an option is told what was meant."""

from __future__ import annotations

import pytest

from pytest_mat import options


def test_an_option_that_there_is_none_of_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(pytest.UsageError, match=r"no option is called --mat-stres; did you mean '--mat-stress'\?"):
        options.check_names(["tests", "--mat-stres"])
    with pytest.raises(pytest.UsageError, match=r"no option is called --mat-sede; did you mean '--mat-seeds'\?"):
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
        import pytest

        @pytest.mark.mat(strategy="beem")
        def test_one(mat_run):
            pass
        """
    )
    done = pytester.runpytest_subprocess()
    done.stdout.fnmatch_lines(["*strategy='beem' is not one of exhaustive, *; did you mean 'beam'?*"])
