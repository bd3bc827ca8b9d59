"""What the default install leaves out is named where it is needed."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mat
from mat.__main__ import main
from mat.core.extras import EXTRAS, install_line, is_installed, require
from mat.govern.policy import loads
from mat.measure import bootstrap
from mat.measure.estimate import Estimate
from mat.measure.interval import clopper_pearson, wilson
from mat.measure.robustness import _resampled
from mat.measure.suite import Candidate, select
from mat.report.files import check_path
from mat_contracts.pii import rules


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes the modules of an extra impossible to import, as where they are not installed."""

    def remove(extra: str) -> None:
        for name in EXTRAS[extra]:
            for loaded in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
                monkeypatch.setitem(sys.modules, loaded, None)
            monkeypatch.setitem(sys.modules, name, None)

    return remove


def test_the_tests_have_every_extra() -> None:
    for extra in EXTRAS.keys() - {"presidio"}:
        require(extra, "a test")


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_that_is_not_installed_is_noticed(extra: str, lacking: Callable[[str], None]) -> None:
    lacking(extra)
    assert not is_installed(extra)
    with pytest.raises(mat.MatError, match=re.escape(f'pip install "pytest-mat[{extra}]"')) as error:
        require(extra, "a test", otherwise="do without")
    assert error.value.fix.endswith(", or do without")


def _use_spans() -> object:
    from mat.adapters import otel

    return otel.__getattr__("MatSpanProcessor")


def _use_strategies() -> object:
    import mat_faults
    from mat_search.strategies import schedules

    @mat.tool
    def track(parcel: int) -> str:
        return "Friday"

    with mat.run() as run:
        track(17)
    return schedules(run.result, mat_faults.operators(), budget=4)


@pytest.mark.parametrize(("extra", "use"), [
    ("stats", lambda: clopper_pearson(3, 9)),
    ("pii", rules),
    ("otel", _use_spans),
    ("hypothesis", _use_strategies),
    ("jwt", lambda: mat.artifact.jwt("key", algorithms=["HS256"])),
    ("yaml", lambda: loads("agents: {}")),
    ("report", lambda: check_path(Path("page.html"))),
    ("store", lambda: check_path(Path("report.parquet"))),
])  # fmt: skip
def test_what_needs_an_extra_says_how_to_install_it(extra: str, use: Callable[[], Any], lacking: Callable[[str], None]) -> None:
    lacking(extra)
    with pytest.raises(mat.MatError) as error:
        use()
    assert install_line(extra) in error.value.fix
    assert "not installed" in error.value.what
    assert error.value.why


@pytest.mark.parametrize(("extra", "command"), [
    ("store", ["query", "SELECT 1"]), ("completion", ["completion", "bash"]), ("stats", ["gate", "--baseline", "none.json"]),
])  # fmt: skip
def test_a_command_without_its_extra_is_an_error_and_no_traceback(
    extra: str, command: list[str], lacking: Callable[[str], None], capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".mat").mkdir()
    lacking(extra)
    assert main(command) == 2
    assert install_line(extra) in capsys.readouterr().err


def test_shares_are_the_same_without_scipy_and_other_intervals_say_what_they_need(lacking: Callable[[str], None]) -> None:
    before = wilson(7, 9)
    values = [0.1, 0.4, 0.4, 0.7, 0.9, 0.2, 0.5, 0.6, 0.3, 0.8, 0.1, 0.2]
    lengths = [3.0, 4.0, 8.0, 9.0, 2.0, 5.0, 7.0, 6.0, 1.0, 11.0, 4.0, 2.5]
    whole, means = bootstrap.share_of(values), bootstrap.mean_of(lengths)
    lacking("stats")
    assert wilson(7, 9) == before
    share, mean_length = bootstrap.share_of(values), bootstrap.mean_of(lengths)
    assert share.value == whole.value
    assert share.method == "wilson, as if binary"
    assert _covers(share, whole)
    assert (mean_length.value, mean_length.low, mean_length.high) == (means.value, None, None)
    assert mean_length.method == "percentile bootstrap, no interval without pytest-mat[stats]"


def test_curves_over_items_are_wider_without_scipy_not_narrower(lacking: Callable[[str], None]) -> None:
    from fractions import Fraction

    column = tuple(Fraction(part, 4) for part in (1, 2, 3, 4, 4, 2, 1, 3, 2, 3, 4, 1))
    whole = _resampled([column], 0.95)[column]
    lacking("stats")
    assert _covers(_resampled([column], 0.95)[column], whole)


def test_a_suite_is_chosen_greedily_without_scipy(lacking: Callable[[str], None]) -> None:
    from mat.measure.suite import CoverageUnit

    a, b, c, d = (CoverageUnit(kind="contract", key=(name,)) for name in "abcd")
    given = [
        Candidate(name="one", units=frozenset({a, b}), steps=3), Candidate(name="two", units=frozenset({b, c}), steps=3),
        Candidate(name="three", units=frozenset({c, d}), steps=3), Candidate(name="four", units=frozenset({d, a}), steps=3),
    ]  # fmt: skip
    whole = select(given)
    lacking("stats")
    found = select(given)
    assert (whole.method, whole.proven) == ("exact", True)
    assert (found.method, found.proven, found.bound) == ("greedy", False, 1)
    assert frozenset().union(*(each.units for each in given if each.name in {one.name for one in found.chosen})) == {a, b, c, d}


def test_the_table_of_extras_is_that_of_the_package() -> None:
    project = Path(__file__).parents[2] / "pyproject.toml"
    given = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    assert EXTRAS.keys() <= given["optional-dependencies"].keys()
    names = " ".join(given["dependencies"])
    assert not [name for name in ("scipy", "numpy", "duckdb", "hypothesis", "jinja2", "opentelemetry") if name in names]


def _covers(one: Estimate, other: Estimate) -> bool:
    ends = (one.low, other.low, other.high, one.high)
    assert None not in ends
    return one.low <= other.low <= other.high <= one.high  # type: ignore[operator]
