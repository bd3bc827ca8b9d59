"""Several givers share what is used, and get back what is left: exactly, and as the contract says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat.core.errors import SpecError
from mat.core.run import Run
from mat.resources import ResourceContract, Work
from mat.resources.allocation import REFUNDS, charges, paid, returns
from mat.resources.ledger import Ledger
from mat_contracts.resource import conserved, delegation_within_parent, exactly_one_terminal_state, within_budget

PARTS = st.lists(st.integers(0, 50), min_size=1, max_size=5)


@given(PARTS, st.integers(0, 300))
def test_payments_in_proportion_add_up_and_nobody_pays_more_than_its_part(parts: list[int], used: int) -> None:
    found = paid(used, parts)
    assert sum(found) == used
    assert all(0 <= share <= part for share, part in zip(found[:-1], parts, strict=False))
    assert found[-1] - parts[-1] <= max(0, used - sum(parts))
    exact = [min(used, sum(parts)) * part / sum(parts) if sum(parts) else 0 for part in parts]
    assert all(abs(share - wanted) <= len(parts) for share, wanted in zip(found[:-1], exact, strict=False))


@given(PARTS, st.integers(0, 300), st.integers(0, 20))
def test_a_payment_never_decreases(parts: list[int], used: int, more: int) -> None:
    assert all(after >= before for before, after in zip(paid(used, parts), paid(used + more, parts), strict=True))


@given(PARTS, st.lists(st.integers(0, 60), max_size=8), st.sampled_from(REFUNDS), st.integers(0, 30), st.data())
def test_charges_and_returns_lose_nothing(
    parts: list[int], steps: list[int], refunds: str, grown: int, data: st.DataObject
) -> None:
    used = [0] * len(parts)
    for place, more in enumerate(steps):
        if place == len(steps) // 2:
            parts = [parts[0] + grown, *parts[1:]]
        shares = charges(more, parts, used, refunds)  # type: ignore[arg-type]
        assert sum(shares) == more
        assert min(shares) >= 0
        used = [before + share for before, share in zip(used, shares, strict=True)]
        assert all(taken <= part for taken, part in zip(used[:-1], parts, strict=False))
    spare = sum(max(0, part - taken) for part, taken in zip(parts, used, strict=True))
    surplus = data.draw(st.integers(0, spare))
    back = returns(surplus, parts, used, refunds)  # type: ignore[arg-type]
    assert sum(back) == surplus
    assert all(0 <= share <= max(0, part - taken) for share, part, taken in zip(back, parts, used, strict=True))


@mat.model("m")
def ask(prompt: str, max_tokens: int, wrote: int) -> object:
    return {"usage": {"input_tokens": 0, "output_tokens": wrote}}


def of(name: str, tokens: int) -> ResourceContract:
    return ResourceContract(name=name, budgets={"tokens": tokens})


def shared(refunds: str, *calls: int, most: int = 0) -> tuple[Run, tuple[int, int], tuple[int, int]]:
    """A contract of 60 tokens from one and 40 from another: what each of the two has used, and what it has left."""
    with mat.run([conserved(), delegation_within_parent(), exactly_one_terminal_state(), within_budget()]) as run:
        first, second = (mat.budget.contracted(of(name, 100), agent=name).activate() for name in ("first", "second"))
        shares = {first.id: {"tokens": 60}, second.id: {"tokens": 40}}
        with Work(of("both", 100), agent="both", parents=(first, second), shares=shares, refunds=refunds):  # type: ignore[arg-type]
            for wrote in calls:
                ask("", max_tokens=most, wrote=wrote)
        used = first.status().consumed["tokens"], second.status().consumed["tokens"]
        left = first.left("tokens") or 0, second.left("tokens") or 0
    assert run.result is not None
    return run.result, used, left


@pytest.mark.parametrize(
    ("refunds", "calls", "used", "left"),
    [
        ("last_first", (30, 20), (50, 0), (50, 100)),
        ("proportional", (30, 20), (30, 20), (70, 80)),
        ("proportional", (1,) * 50, (30, 20), (70, 80)),
        ("last_first", (100,), (60, 40), (40, 60)),
        ("proportional", (100,), (60, 40), (40, 60)),
        ("last_first", (), (0, 0), (100, 100)),
        ("proportional", (), (0, 0), (100, 100)),
    ],
)
def test_what_is_left_goes_back_as_the_contract_says(
    refunds: str, calls: tuple[int, ...], used: tuple[int, int], left: tuple[int, int]
) -> None:
    run, *found = shared(refunds, *calls)
    assert found == [used, left]
    assert [str(item) for item in run.failures] == []


@pytest.mark.parametrize("refunds", REFUNDS)
def test_the_last_giver_pays_an_overrun(refunds: str) -> None:
    run, used, left = shared(refunds, 90, 30)
    assert (used, left) == ((60, 60), (40, 40))
    assert {item.contract for item in run.failures} == {"resource.within_budget"}


def test_an_audit_catches_a_ledger_that_shares_otherwise_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    draft = Ledger.draft

    def mislabelled(self: Ledger, *given: object, **facts: object) -> object:
        node = draft(self, *given, **facts)  # type: ignore[arg-type]
        node.refunds = "last_first"
        return node

    monkeypatch.setattr(Ledger, "draft", mislabelled)
    run, used, _ = shared("proportional", 30, 20)
    assert used == (50, 0)
    assert {item.contract for item in run.failures} == {"resource.conserved"}


def test_other_ways_are_refused() -> None:
    with pytest.raises(SpecError, match="refunds='fair' is not one of last_first, proportional"):
        Work(of("both", 1), refunds="fair")  # type: ignore[arg-type]
