"""A boundary in the place of a kind of action, or the other way round: the error has the right spelling."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import mat
from mat.core.record import ACTION_KINDS
from mat.core.site import BOUNDARIES
from mat.core.spelling import KINDS_AT, as_boundary, as_kind
from mat.temporal import action


@pytest.mark.parametrize(("mistake", "hint"), [
    (lambda: mat.policy.capability("model_call:planner"), "write 'model'"),
    (lambda: mat.policy.capability("tool_call:refund"), "write 'service'"),
    (lambda: mat.spec.perturbation("model.refusal", "main/model_call:planner#1", cost=1), "write 'model'"),
    (lambda: mat.step_contract(on="model")(lambda record: True), "write 'model_call'"),
    (lambda: mat.step_contract(on="service")(lambda record: True), "write 'tool_call'"),
    (lambda: action("memory"), "write 'memory_read' or 'memory_write'"),
])  # fmt: skip
def test_the_error_names_the_right_spelling_and_where_each_belongs(mistake: Callable[[], object], hint: str) -> None:
    with pytest.raises(mat.MatError) as error:
        mistake()
    assert hint in str(error.value)
    assert "as in" in str(error.value)


def test_a_word_that_is_right_gets_no_hint() -> None:
    assert [word for word in KINDS_AT if as_boundary(word)] == []
    assert [kind for kinds in KINDS_AT.values() for kind in kinds if as_kind(kind)] == []
    assert (as_boundary("refund"), as_kind("refund")) == ("", "")


def test_the_table_has_real_names_only() -> None:
    assert KINDS_AT.keys() <= set(BOUNDARIES)
    assert {kind for kinds in KINDS_AT.values() for kind in kinds} <= set(ACTION_KINDS)
