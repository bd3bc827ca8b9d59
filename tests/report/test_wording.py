"""Sentences with numbers: one of a thing is not many, and nothing is claimed that was not searched."""

from __future__ import annotations

import pytest

from mat.core.campaign import Certificate, Stability
from mat.core.value import FrozenDict
from mat.report import words


@pytest.mark.parametrize(
    ("certificate", "cost", "said"),
    [
        (
            Certificate(proven=True, bound=0, executions=1), 0,
            "The nominal run breaks the contract, so there is no cheaper counterexample: 1 execution.",
        ),
        (
            Certificate(proven=False, reason="stopped", executions=2), 0,
            "The nominal run breaks the contract, so there is no cheaper counterexample",
        ),
        (
            Certificate(proven=True, bound=0, executions=1), 1,
            "No cheaper counterexample exists on this grid: the nominal run breaks nothing (1 execution, 0 skipped).",
        ),
        (
            Certificate(proven=True, bound=0, executions=5), 4,
            "The nominal run breaks nothing; costs 1 to 4 are undecided: 5 executions, 0 skipped.",
        ),
        (
            Certificate(proven=False, reason="interrupted", executions=1), 4,
            "Not proven to be the cheapest: interrupted (1 execution, 0 skipped).",
        ),
        (
            Certificate(proven=True, bound=3, executions=9, skipped=FrozenDict({"seen": 2})), 4,
            "No cheaper counterexample exists on this grid: 9 executions, bound 3, 2 skipped.",
        ),
    ],
)  # fmt: skip
def test_a_certificate_says_what_its_bound_means(certificate: Certificate, cost: int, said: str) -> None:
    assert words.certificate_in_words(certificate, cost).startswith(said)


def test_one_execution_is_not_many() -> None:
    assert words.stability_in_words(Stability(runs=1, reproduced=1)) == "It was reproduced in 1 of 1 execution."
