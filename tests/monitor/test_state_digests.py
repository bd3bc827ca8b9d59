"""Digests of monitor states that are remembered by value equal those computed from scratch."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat.core import limits
from mat.core.digest import digest, plain
from mat.core.errors import SpecError
from mat.core.value import FrozenDict
from mat.harness.search_state import SearchState
from mat.monitor import state_digests
from mat.monitor.judge import Judge
from mat.monitor.state_digests import joint_digest, state_digest

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3)
states = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.frozensets(scalars, max_size=3)
        | st.dictionaries(scalars, inner, max_size=3)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3).map(FrozenDict)
    ),
    max_leaves=8,
)


def from_scratch(name: Any, state: Any) -> str:
    return digest([name, plain(state)])


@given(st.lists(states, min_size=1, max_size=4))
def test_a_remembered_digest_is_the_one_from_scratch(drawn: list[Any]) -> None:
    for state in (*drawn, *drawn):
        assert state_digest("c", state, plain) == from_scratch("c", state)


@pytest.mark.parametrize("alike", [(1, True, 1.0), (0.0, -0.0), ((1,), (True,), (1.0,)), ("a", b"a"), (("c", 1), ("c", True))])
def test_equal_states_of_different_types_keep_different_digests(alike: tuple[Any, ...]) -> None:
    assert len({state_digest("c", state, plain) for state in alike}) == len(alike)


def test_a_state_that_marshal_writes_like_bytes_is_not_taken_for_them() -> None:
    numpy = pytest.importorskip("numpy")
    number = numpy.float64(17.0)
    for state in (bytes(number), number, (bytes(number),), (number,)):
        assert state_digest("c", state, plain) == from_scratch("c", state)


def test_contracts_with_equal_states_keep_different_digests() -> None:
    assert state_digest("a", 1, plain) != state_digest("b", 1, plain)


def test_what_is_remembered_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STATE_DIGEST_BYTES", 1_000)
    for number in range(2_000):
        assert state_digest("c", number, plain) == from_scratch("c", number)
    assert sum(len(key) for _, key in state_digests._known) <= 1_000 + sys.getsizeof(b"") + 100


class Opaque:
    pass


def test_a_state_without_a_canonical_form_is_refused_at_every_run() -> None:
    @mat.trace_contract(start=0, id="opaque")
    def judged(state: object, record: mat.Record) -> object:
        """Keeps an object."""
        return Opaque()

    for _ in range(2):
        with pytest.raises(SpecError, match="no canonical form"), mat.run([judged], states=True):
            mat.verify("one", passed=True)


# -- at every ask of a run ----------------------------------------------------------------------------------------------


def whole_from_scratch(judge: Judge) -> str:
    """The digest of all states, written plainly."""
    formulas, alone = judge._joint.canonical()
    armed = [judge.contracts[index] for index in judge._armed]
    parts = [from_scratch([each.id for each in armed if each.formula is not None], formulas)]
    parts += [from_scratch(each.id, state) for each, state in zip((c for c in armed if c.formula is None), alone, strict=True)]
    return digest([parts, sorted(judge._errors.items())]) if judge.contracts else ""


@mat.tool(effect="write")
def pay(order: str, amount: object) -> dict[str, object]:
    return {"paid": amount}


@mat.trace_contract(start=(), id="kept")
def kept(seen: tuple[object, ...], record: mat.Record) -> object:
    """Keeps what was paid."""
    return (*seen, record.action.arguments.get("amount"))[-3:]


@mat.trace_contract(start=0, id="crashes", on_error="unknown")
def crashes(seen: int, record: mat.Record) -> object:
    """Cannot judge large amounts."""
    return seen + 1 if record.action.arguments.get("amount") != 3 else seen // 0


CONTRACTS = (
    mat.contract("once", mat.temporal.always(mat.temporal.at_most(2, mat.temporal.tool_call("pay")))),
    kept, crashes,
)  # fmt: skip
payments = st.lists(
    st.tuples(st.sampled_from(["A1", "A2"]), st.sampled_from([1, True, 1.0, 3, "1", None])), min_size=1, max_size=8
)


@given(payments, st.integers(0, 3))
def test_a_run_has_the_digest_from_scratch_at_every_ask(drawn: list[tuple[str, object]], armed: int) -> None:
    expected: list[str] = []
    read = SearchState.read

    def reading(search: SearchState) -> None:
        expected.append(whole_from_scratch(search._trace.judge))
        read(search)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SearchState, "read", reading)
        with mat.run(CONTRACTS[:armed], states=True) as run:
            for order, amount in drawn:
                pay(order, amount)
    assert run.result is not None
    assert list(run.result.states) == expected


def test_the_joint_digest_names_the_contracts_that_could_not_judge() -> None:
    judge = Judge(CONTRACTS)
    clean = judge.digest()
    assert clean == joint_digest(tuple(state_digest(*each, plain) for each in _parts(judge)))
    judge._errors[2] = "raised"
    assert judge.digest() == whole_from_scratch(judge) != clean


def _parts(judge: Judge) -> list[tuple[Any, Any]]:
    formulas, alone = judge._joint.canonical()
    return [(("once",), formulas), *zip(("kept", "crashes"), alone, strict=True)]
