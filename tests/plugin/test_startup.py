"""What a session without armed tests pays for the plugin: nothing of ours, and nothing heavy, is imported (decision 21)."""

from __future__ import annotations

from typing import Any

import pytest

HEAVY = (
    "mat",
    "mat_search",
    "mat_study",
    "mat_contracts",
    "mat_faults",
    "pydantic",
    "duckdb",
    "scipy",
    "rich",
    "time_machine",
    "opentelemetry",
)


def test_a_session_without_armed_tests_imports_nothing_heavy(shop: Any) -> None:
    shop.write("conftest.py", "")
    shop.write(
        "test_plain.py",
        f"""
        import sys

        def test_plain(tmp_path):
            found = [name for name in {HEAVY!r} if name in sys.modules]
            ours = sorted(name for name in sys.modules if name.startswith("pytest_mat"))
            assert (found, ours) == ([], ["pytest_mat", "pytest_mat.hookspecs", "pytest_mat.options"])
        """,
    )
    result = shop.pytester.runpytest_subprocess("-p", "no:time_machine", timeout=60)
    result.assert_outcomes(passed=1)


def test_stress_without_armed_tests_imports_nothing_heavy(shop: Any) -> None:
    shop.write("conftest.py", "")
    shop.write(
        "test_plain.py",
        f"""
        import sys

        def test_plain(tmp_path):
            assert [name for name in {HEAVY!r} if name in sys.modules] == []
        """,
    )
    shop.pytester.runpytest_subprocess("--mat-stress", "-p", "no:time_machine", timeout=60).assert_outcomes(passed=1)


@pytest.mark.full
def test_the_plugin_can_be_left_out(shop: Any) -> None:
    shop.write("conftest.py", "")
    shop.tests("def test_shop(): assert shop.naive() == 'refunded'\n")
    shop.pytester.runpytest_subprocess("-p", "no:mat", timeout=60).assert_outcomes(passed=1)
