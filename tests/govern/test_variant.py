"""Variants of one policy: what each has in force, and which of them a test runs under."""

from __future__ import annotations

from typing import Any

import pytest

import mat
from mat.core.errors import SpecError
from mat.govern.trust import Level, Trust, route
from mat.govern.variant import FULL, STANDARD, Policy, Variant, named, select


def forbid(record: mat.Record) -> mat.policy.Block | None:
    return mat.policy.Block("never") if record.action.name == "drop" else None


POLICY = Policy(
    rules=(forbid,),
    capabilities={"main": ["pay", "drop"]},
    trust=Trust(start={"main": 0}, levels=(Level(below=0.5, keep=["look"]),)),
    routing=(route(lambda what, arguments: arguments["to"] == "ann"),),
)


@mat.tool(effect="write", impact="high")
def pay(to: str) -> str:
    return to


@mat.tool(effect="write")
def drop() -> None: ...


@mat.tool
def look() -> int:
    return 1


def allowed(governance: mat.policy.Governance | None) -> set[str]:
    """Which of the four actions go through."""
    tries: dict[str, Any] = {"ann": lambda: pay("ann"), "eve": lambda: pay("eve"), "drop": drop, "look": look}
    done = set()
    with mat.run(governance=governance):
        for name, act in tries.items():
            try:
                act()
                done.add(name)
            except mat.Blocked:
                pass
    return done


@pytest.mark.parametrize(
    ("name", "done"),
    [
        ("none", {"ann", "eve", "drop", "look"}),
        ("shield", {"ann", "eve", "look"}),
        ("shield+capabilities", {"ann", "eve"}),
        ("shield+routing", {"look"}),
        (FULL.name, set()),
    ],
)
def test_each_variant_has_its_own_parts_of_the_policy_in_force(name: str, done: set[str]) -> None:
    assert allowed(POLICY.variant(name)) == done


def test_routing_is_by_verifier_and_by_trust() -> None:
    from dataclasses import replace

    assert allowed(replace(POLICY, trust=None).variant("shield+routing")) == {"ann", "look"}


def test_the_standard_variants_come_in_the_order_of_the_table_and_under_their_names() -> None:
    variants = POLICY.variants()
    assert list(variants) == [variant.name for variant in STANDARD]
    assert variants["none"] is None
    assert [item.name for item in variants.values() if item] == ["shield", "shield+capabilities", "shield+routing"]
    assert POLICY.variant().name == FULL.name  # type: ignore[union-attr]


def test_a_policy_may_declare_variants_of_its_own() -> None:
    policy = Policy(
        rules=(forbid,), capabilities={"main": []}, declared=(Variant(name="caps", shield=False, capabilities=True),)
    )
    assert list(policy.variants())[-1] == "caps"
    assert policy.variant("caps").rules == ()  # type: ignore[union-attr]
    assert allowed(policy.variant("caps")) == set()


def test_mistakes_in_a_policy_are_named_together() -> None:
    declared = (Variant(name="shield"), Variant(name="a b"), Variant(name="x"), Variant(name="x"))
    with pytest.raises(SpecError) as raised:
        Policy(declared=declared, use="sheild")
    for part in ("'shield' is a standard one", "may not contain ' '", "two variants are called 'x'", "did you mean 'shield'"):
        assert part in str(raised.value)
    with pytest.raises(SpecError, match=r"'shield\+routng'.*did you mean 'shield\+routing'"):
        POLICY.variant("shield+routng")


def test_what_a_policy_cannot_mean_is_said_when_it_is_made() -> None:
    with pytest.raises(SpecError):
        Policy(rules=("no rule",))  # type: ignore[arg-type]


G = mat.policy.Governance(rules=(forbid,), name="strict")
BY_NAME = {"new": G, "old": mat.policy.Governance(name="old")}


@pytest.mark.parametrize(
    ("given", "marker", "asked", "own", "compared"),
    [
        (None, "", (), "none", ("none",)),
        (G, "", (), "strict", ("strict",)),
        (G, "none", (), "none", ("none",)),
        (G, "", ("none",), "none", ("none",)),
        (G, "strict", ("none",), "none", ("none",)),
        (G, "", ("all",), "strict", ("strict", "none")),
        (BY_NAME, "", (), "new", ("new",)),
        (BY_NAME, "old", (), "old", ("old",)),
        (BY_NAME, "old", ("none", "new"), "old", ("old", "none", "new")),
        (BY_NAME, "", ("none", "old"), "none", ("none", "old")),
        (BY_NAME, "", ("none", "new"), "new", ("new", "none")),
        (BY_NAME, "", ("all",), "new", ("new", "none", "old")),
        (POLICY, "", (), FULL.name, (FULL.name,)),
        (POLICY, "shield", (), "shield", ("shield",)),
        (POLICY, "", ("shield", "shield+routing"), "shield", ("shield", "shield+routing")),
        (POLICY, "", ("all",), FULL.name, (FULL.name, *[variant.name for variant in STANDARD])),
        (POLICY, "shield", ("all",), "shield", ("shield", "none", "shield+capabilities", "shield+routing", FULL.name)),
    ],
)
def test_the_own_variant_decides_and_the_others_are_compared(
    given: Any, marker: str, asked: tuple[str, ...], own: str, compared: tuple[str, ...]
) -> None:
    chosen = select(given, marker=marker, asked=asked)
    assert (chosen.own, chosen.compared) == (own, compared)
    assert set(chosen.governance) == set(compared)
    assert "none" not in chosen.governance or chosen.governance["none"] is None


@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        (POLICY, {"asked": ("shild",)}, "did you mean 'shield'"),
        (BY_NAME, {"marker": "nwe"}, "did you mean 'new'"),
        (G, {"asked": ("none", "shield")}, "choose from 'none', 'strict'"),
        (3, {}, "mat_governance returned int"),
        ({}, {}, "an empty mapping"),
        ({"a,b": G, "none": G, "x": 4}, {}, "'a,b' is not a name.*'none' is the variant without.*'x' is int"),
    ],
)
def test_a_name_that_is_no_variant_and_a_thing_that_is_no_governance_are_refused(given: Any, options: Any, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        select(given, **options)


def test_variants_given_by_name_are_distinguished_in_the_ids_of_runs() -> None:
    given = {"open": mat.policy.Governance(), "strict": mat.policy.Governance(rules=(forbid,)), "whole": POLICY}
    names = {name: item.name for name, item in named(given)[1].items() if item}
    assert names == {"open": "open", "strict": "strict", "whole": "whole"}


def test_no_governance_is_always_among_the_variants() -> None:
    for given in (None, G, POLICY, BY_NAME):
        assert named(given)[1]["none"] is None  # type: ignore[arg-type]
