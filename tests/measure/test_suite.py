from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mat
from mat.boundary.catalog import operator
from mat.boundary.effect import Raise
from mat.core.campaign import Counterexample
from mat.measure import suite
from mat.measure.regression import RunOutcome
from mat.measure.suite import Candidate, Cover, CoverageUnit, candidates, nominal_passes, select


def unit(number: int) -> CoverageUnit:
    return CoverageUnit(kind="contract", key=(f"c{number}",))


def candidate(name: str, units: Sequence[int], steps: int = 1) -> Candidate:
    return Candidate(name=name, units=frozenset(map(unit, units)), steps=steps)


def names(cover: Cover) -> list[str]:
    return [choice.name for choice in cover.chosen]


def best(given: Sequence[Candidate]) -> list[str]:
    """The first cover by number, then steps, then names, by trying all."""
    whole = frozenset().union(*(item.units for item in given))
    covers = (
        subset
        for size in range(len(given) + 1)
        for subset in itertools.combinations(sorted(given, key=lambda item: item.name), size)
        if frozenset().union(*(item.units for item in subset)) == whole
    )
    return min(
        ((len(subset), sum(item.steps for item in subset), [item.name for item in subset]) for subset in covers),
    )[2]


instances = st.lists(
    st.tuples(st.sets(st.integers(0, 6), min_size=1, max_size=4), st.integers(1, 4)), min_size=1, max_size=9
).map(lambda rows: [candidate(f"r{place}", sorted(units), steps) for place, (units, steps) in enumerate(rows)])


@pytest.mark.full
@settings(max_examples=150, deadline=None)
@given(instances, st.randoms(use_true_random=False))
def test_the_exact_suite_is_the_first_by_number_steps_and_names_in_whatever_order_it_is_given(
    given: list[Candidate], shuffler: random.Random
) -> None:
    cover = select(given)
    assert (cover.method, cover.proven, cover.unique, names(cover)) == ("exact", True, True, best(given))
    assert cover.bound == len(cover.chosen)
    shuffled = list(given)
    shuffler.shuffle(shuffled)
    assert select(shuffled) == cover


@pytest.mark.full
@settings(max_examples=100, deadline=None)
@given(instances, st.randoms(use_true_random=False))
def test_a_greedy_suite_covers_all_and_its_bound_is_one(given: list[Candidate], shuffler: random.Random) -> None:
    cover, least = select(given, exact_limit=0), len(best(given))
    chosen = [item for item in given if item.name in names(cover)]
    assert frozenset().union(*(item.units for item in chosen)) == frozenset(cover.units)
    assert cover.method == "greedy"
    assert 1 <= cover.bound <= least <= len(chosen)
    assert cover.proven is (cover.bound == len(chosen))
    for item in chosen:  # none of them is needless
        assert frozenset().union(*(other.units for other in chosen if other is not item)) != frozenset(cover.units)
    shuffled = list(given)
    shuffler.shuffle(shuffled)
    assert select(shuffled, exact_limit=0) == cover


TRAP = [candidate("a", [0, 1, 2, 3]), candidate("left", [0, 1, 4]), candidate("right", [2, 3, 5])]
"""What covers most by itself is not in the smallest suite."""


def test_where_greed_takes_one_too_many_the_exact_suite_does_not() -> None:
    assert names(select(TRAP)) == ["left", "right"]
    trap = [*TRAP, candidate("b", [4, 6]), candidate("c", [5, 6])]
    exact, greedy = select(trap), select(trap, exact_limit=4)
    assert (len(exact.chosen), exact.method) == (3, "exact")
    assert (len(greedy.chosen), greedy.method, greedy.bound, greedy.proven) == (3, "greedy", 3, True)


def cyclic(size: int) -> list[Candidate]:
    """Pairs of neighbours on a ring: nothing is forced, no one is dominated, and names alone decide."""
    return [candidate(f"r{place:03}", [place, (place + 1) % size]) for place in range(size)]


def test_a_ring_needs_half_of_its_pairs_and_the_first_names_are_taken() -> None:
    assert names(select(cyclic(8))) == ["r000", "r002", "r004", "r006"]
    odd = select(cyclic(9))
    assert names(odd) == ["r000", "r001", "r003", "r005", "r007"]
    assert select(cyclic(9), exact_limit=8).bound == 5  # 4.5 in the relaxation


def test_steps_decide_between_equally_small_suites_before_names_do() -> None:
    given = [candidate("a", [0, 1], steps=9), candidate("b", [1, 0], steps=3), candidate("c", [2], steps=1)]
    assert names(select(given)) == ["b", "c"]
    ring = [candidate(item.name, [int(unit.key[0][1:]) for unit in item.units], 9 if item.name == "r000" else 1)
            for item in cyclic(8)]  # fmt: skip
    assert names(select(ring)) == ["r001", "r003", "r005", "r007"]


def test_branch_and_bound_that_does_not_end_leaves_a_greedy_suite_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    shuffler = random.Random(7)
    hard = [candidate(f"r{place:03}", shuffler.sample(range(60), 6)) for place in range(120)]
    monkeypatch.setattr(suite, "NODES", 0)
    cover = select(hard)
    assert cover.method == "greedy"
    assert cover.bound <= len(cover.chosen)


@pytest.mark.full
def test_a_large_set_is_solved_and_a_larger_one_is_chosen_greedily_with_a_bound() -> None:
    shuffler = random.Random(3)
    many = [candidate(f"r{place:04}", shuffler.sample(range(40), 3), steps=place % 5 + 1) for place in range(400)]
    exact, greedy = select(many), select(many, exact_limit=399)
    assert exact.method == "exact"
    assert greedy.method == "greedy"
    assert greedy.bound <= len(exact.chosen) <= len(greedy.chosen)


def test_every_choice_says_what_only_it_covers_and_what_is_left_out_says_who_covers_it() -> None:
    cover = select(TRAP)
    (left, _), (out,) = cover.chosen, cover.left_out
    assert (left.only, left.shared) == ((unit(4),), (unit(0), unit(1)))
    assert (out.name, out.covered_by) == ("a", ("left", "right"))


def test_nothing_to_cover_is_an_empty_suite() -> None:
    assert select([]) == Cover(method="exact", proven=True, unique=True, bound=0, units=(), chosen=(), left_out=())


# -- what a replay covers ---------------------------------------------------------------------------------------------

OPERATORS = [
    operator("service.lost_ack", lambda call, reply, stream: Raise("timeout"), phase="after"),
    operator("memory.lost_write", lambda call, reply, stream: Raise("timeout")),
]


@mat.tool(effect="write", impact="high")
def refund(order: str) -> str:
    return "done"


@mat.tool
def look(order: str) -> str:
    return order


def never(name: str, severity: str = "hard") -> mat.Contract:
    return mat.step_contract(on="tool_call", id=f"no.{name}", severity=severity)(  # type: ignore[arg-type]
        lambda record: record.action.name != name
    )


def found(contract: str, *, calls: Sequence[str], site: str = "", contracts: Sequence[mat.Contract] = ()) -> Counterexample:
    """A run of these calls, found for breaking this contract."""
    schedule = [mat.spec.perturbation("service.lost_ack", site, cost=4)] if site else []
    with mat.run(contracts, task="t.py::test", schedule=schedule, operators=OPERATORS) as run:
        for name in calls:
            try:
                {"refund": refund, "look": look}[name]("A1")
            except TimeoutError:
                mat.mitigate("retry")
    assert run.result is not None
    verdict = next(each for each in run.result.violations if each.contract == contract)
    return Counterexample(verdict=verdict, run=run.result)


BOTH = (never("refund"), never("look"))


def kinds(item: Candidate, kind: str) -> set[tuple[str, ...]]:
    return {unit.key for unit in item.units if unit.kind == kind}


def test_a_replay_covers_every_hard_contract_that_its_run_breaks_and_every_indexed_signature_in_it() -> None:
    both = found("no.refund", calls=["refund", "look"], contracts=BOTH)
    one = found("no.look", calls=["look"], contracts=BOTH)
    first, second = candidates({"a": both, "b": one})
    assert kinds(first, "contract") == {("no.refund",), ("no.look",)}
    assert kinds(second, "contract") == {("no.look",)}
    assert kinds(second, "signature") == {("no.look", "hard", "tool_call", "look", "low", "none")}
    assert kinds(second, "signature") < kinds(first, "signature")
    assert names(select([first, second])) == ["a"]
    (alone,) = candidates({"a": both})  # no replay is indexed by the other signature
    assert kinds(alone, "signature") == {("no.refund", "hard", "tool_call", "refund", "high", "none")}


def test_another_family_of_operators_is_another_signature() -> None:
    calm = found("no.refund", calls=["refund"], contracts=BOTH)
    lost = found("no.refund", calls=["refund", "refund"], site="main/service:refund#1", contracts=BOTH)
    assert [item.name for item in select(candidates({"calm": calm, "lost": lost})).chosen] == ["calm", "lost"]
    few = select(candidates({"calm": calm, "lost": lost}, representative=True))
    assert names(few) == ["calm"]
    assert {unit.key for unit in few.units if unit.kind == "class"} == {("service", "tool_call")}


def test_representatives_still_cover_every_hard_contract() -> None:
    given = {name: found(f"no.{name}", calls=[name], contracts=BOTH) for name in ("refund", "look")}
    assert names(select(candidates(given, representative=True))) == ["look", "refund"]


def test_a_soft_violation_is_no_hard_contract_to_cover() -> None:
    soft = found("no.look", calls=["look"], contracts=[never("look", "soft")])
    (item,) = candidates({"a": soft})
    assert kinds(item, "contract") == set()
    assert kinds(item, "signature") == {("no.look", "soft", "tool_call", "look", "low", "none")}


# -- tests that pass --------------------------------------------------------------------------------------------------


def outcome(item: str, *, steps: int = 3, **facts: object) -> RunOutcome:
    base = dict(
        condition="nominal", seed=0, schedule="", cost=0, success=True, outcome="pass", broken=(), armed=("c",), decisions=()
    )
    return RunOutcome(item=item, steps=steps, **{**base, **facts})  # type: ignore[arg-type]


def test_each_category_gives_its_passing_tests_with_the_fewest_steps() -> None:
    categories = {"a": "misuse", "b": "misuse", "c": "", "d": "misuse", "e": "planning"}
    outcomes = [
        outcome("a", steps=5), outcome("b", steps=2), outcome("b", steps=9, seed=1), outcome("c"), outcome("d", steps=5),
        outcome("e", success=False),
    ]  # fmt: skip
    assert [(item.category, item.item) for item in nominal_passes(categories, outcomes)] == [("", "c"), ("misuse", "a")]
    two = nominal_passes(categories, reversed(outcomes), each=2)
    assert [(item.item, item.rank, item.passing) for item in two if item.category] == [("a", 1, 3), ("d", 2, 3)]


@pytest.mark.parametrize(
    "facts",
    [
        {"success": False}, {"success": None}, {"outcome": "fail"}, {"outcome": "unknown"}, {"armed": ()},
        {"condition": "replay"}, {"condition": "fault", "schedule": "x"},
    ],
)  # fmt: skip
def test_a_test_that_does_not_pass_undisturbed_is_not_chosen(facts: dict[str, object]) -> None:
    assert nominal_passes({"a": ""}, [outcome("a", **facts)]) == ()


def test_one_failing_seed_makes_a_test_no_passing_one() -> None:
    assert nominal_passes({"a": ""}, [outcome("a"), outcome("a", seed=1, success=False)]) == ()
