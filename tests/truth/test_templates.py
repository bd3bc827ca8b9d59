"""Each contract template against realistic traces, written by somebody who has not read the templates."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.truth.templates.judged import EXCEPTIONS, FLOOR, cases, judged, quality

from mat_contracts import templates

NAMES = {f"{entry.family.removesuffix('.py')}.{entry.name}" for entry in templates()}


def test_each_template_has_twenty_traces_half_of_them_broken():
    counts = Counter((case.template, case.broken) for case in cases())
    few = [
        (template, broken)
        for template in sorted({case.template for case in cases()})
        for broken in (True, False)
        if counts[template, broken] < 10
    ]
    assert few == []


@pytest.mark.full
def test_precision_and_recall_are_at_least_nine_tenths_for_each_template_without_an_exception():
    below = {line.template: line for line in quality(map(judged, cases())) if line.worst < FLOOR}
    assert sorted(below) == sorted(EXCEPTIONS)
