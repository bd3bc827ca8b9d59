"""The audits of a ledger: each sees the fault planted into a real run, and says nothing of the run itself or of near misses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mat
from mat.core.digest import canonical
from mat.core.digest import plain as plain_data
from mat.core.record import Mediation, Record
from mat.core.resources import LedgerEntry, entries_of
from mat.core.value import EMPTY, FrozenDict, snapshot_arguments
from mat.core.verdict import Violation
from mat.monitor.contract import KEEP, Contract, Violated
from mat.resources import ResourceContract, Work
from mat_contracts.resource import (
    conserved,
    deadline_met,
    delegation_within_parent,
    exactly_one_terminal_state,
    no_spend_after_terminal,
    reserve_kept,
    utilisation_monotone,
    within_budget,
)
from mat_contracts.traces import broken, record, trace, violations

Trace = tuple[Record, ...]
AUDITS = (
    conserved,
    exactly_one_terminal_state,
    utilisation_monotone,
    no_spend_after_terminal,
    reserve_kept,
    delegation_within_parent,
)
"""What a ledger that is in order never breaks, whatever agents do."""


@mat.model("planner")
def plan(prompt: str, max_tokens: int = 100, wrote: int = 40) -> dict[str, Any]:
    return {"text": "a plan", "usage": {"input_tokens": 10, "output_tokens": wrote}}


@mat.model("planner")
async def plan_async(prompt: str, max_tokens: int = 100, wrote: int = 40, seconds: float = 1) -> dict[str, Any]:
    await asyncio.sleep(seconds)
    return {"text": "a plan", "usage": {"input_tokens": 10, "output_tokens": wrote}}


@mat.tool
def search(query: str) -> list[str]:
    return [query]


def of(name: str = "work", *, terms: Mapping[str, Any] = EMPTY, **budgets: Any) -> ResourceContract:
    return ResourceContract(name=name, budgets=budgets, **terms)


# -- runs ---------------------------------------------------------------------------------------------------------------


def delegated() -> Trace:
    """A parent with a reserve, a child that leaves much of its budget, spendings, a reservation, and a top-up."""
    contract = of("work", terms={"reserve_percent": 10}, tokens=1_000, calls=9, iterations=3, subcontracts=2)
    with mat.run() as run, mat.budget.contracted(contract, agent="boss") as work:
        work.spend("iteration", iterations=1)
        plan("first")
        with work.delegate(of("sub", tokens=300), agent="helper") as child:
            plan("below")
            child.top_up(tokens=100)
            with child.reserve(tokens=50) as held:
                held.settle(tokens=20)
            search("x")
        plan("last")
    return run.trace


def overrun() -> Trace:
    """A runaway below that takes more than it was given, and shrinks the pool above."""
    with mat.run() as run, mat.budget.contracted(of("work", tokens=300), agent="boss") as work:
        with work.delegate(of("sub", tokens=100), agent="runaway"):
            plan("go", max_tokens=0, wrote=190)
        plan("on", max_tokens=50)
    return run.trace


def interleaved() -> Trace:
    """Parallel calls, one cancelled with its branch, one settled when its contract has ended: entries out of their order."""

    async def branch(work: Work) -> None:
        async with work.delegate(of("cancelled", tokens=300), agent="cancelled"):
            await plan_async("long", max_tokens=100, seconds=9)

    async def body() -> None:
        async with mat.budget.contracted(of("work", tokens=2_000, calls=20), agent="boss") as work:
            task = asyncio.create_task(branch(work))
            calls = [asyncio.create_task(plan_async("go", max_tokens=50, seconds=seconds)) for seconds in (3, 1, 2)]
            async with work.delegate(of("slow", tokens=300), agent="slow"):
                calls.append(asyncio.create_task(plan_async("late", max_tokens=100, wrote=60, seconds=4)))
                await asyncio.sleep(0.5)
            await asyncio.sleep(1.5)
            task.cancel()
            async with work.delegate(of("quick", tokens=300), agent="quick"):
                await plan_async("short", seconds=0.1)
            await asyncio.gather(task, *calls, return_exceptions=True)

    with mat.run() as run:
        asyncio.run(body())
    return run.trace


def shared() -> Trace:
    """One contract under two others, which pay for it one after the other."""
    with mat.run() as run, mat.budget.contracted(of("top", tokens=900), agent="boss") as top:
        one = top.draft(of("one", tokens=300), agent="one").activate()
        two = top.draft(of("two", tokens=300), agent="two").activate()
        both = Work(
            of("both", tokens=150), agent="both", parents=[one, two], shares={one.id: {"tokens": 60}, two.id: {"tokens": 90}}
        )
        with both:
            plan("go", max_tokens=60, wrote=80)
        one.cancel("done")
        two.cancel("done")
    return run.trace


RUNS = (delegated, overrun, interleaved, shared)


# -- planting -----------------------------------------------------------------------------------------------------------


def told(records: Trace) -> list[LedgerEntry]:
    """The entries in their order."""
    return sorted((entry for item in records for entry in entries_of(item)), key=lambda entry: entry.number)


def entry_of(records: Trace, event: str, contract: str, nth: int = 0) -> LedgerEntry:
    return [entry for entry in told(records) if (entry.event, entry.contract) == (event, contract)][nth]


def changed(records: Trace, entry: LedgerEntry, /, **facts: Any) -> Trace:
    """The trace with other facts in one entry; None takes a fact away."""
    return tuple(_with(item, entry, facts) if item.step == entry.step else item for item in records)


def _with(item: Record, entry: LedgerEntry, facts: Mapping[str, Any]) -> Record:
    merged = {**entry.facts, **facts}
    new = snapshot_arguments({name: value for name, value in merged.items() if value is not None}, "entry")
    if item.action.kind == "contract":
        return replace(item, action=replace(item.action, arguments=new))
    if entry.event == "settled":
        return replace(item, observation=replace(item.observation, charged=new))
    assert item.mediation is not None
    return replace(item, mediation=replace(item.mediation, reserved=new))


def renumbered(records: Trace, number: int, by: int) -> Trace:
    """All entries from a number on are moved."""
    for entry in told(records):
        if entry.number >= number:
            records = changed(records, entry, entry=entry.number + by)
    return records


def without(records: Trace, entry: LedgerEntry) -> Trace:
    """The trace of a ledger that never made this entry: the numbers after it close up."""
    kept = []
    for item in records:
        if item.step != entry.step:
            kept.append(item)
        elif item.action.kind != "contract" and entry.event == "settled":
            kept.append(replace(item, observation=replace(item.observation, charged=EMPTY)))
        elif item.action.kind != "contract":
            kept.append(replace(item, mediation=Mediation(decision="allow")))
    return renumbered(tuple(kept), entry.number + 1, -1)


def added(records: Trace, after: LedgerEntry, event: str, contract: str, **facts: Any) -> Trace:
    """The trace of a ledger that made one more entry; the last step repeats as the record that holds it."""
    records = renumbered(records, after.number + 1, 1)
    arguments = {"entry": after.number + 1, "contract": contract, **facts}
    step = records[-1].step + 1
    extra = replace(trace(record("contract", event, arguments, agent="planted"))[0], step=step, at_ms=records[-1].at_ms)
    return (*records, extra)


def said(contract: Contract, records: Iterable[Record]) -> list[str]:
    return [item.message for item in violations(contract, records)]


def only(contract: Contract, records: Iterable[Record]) -> Violation:
    (found,) = violations(contract, records)
    return found


# -- in order -----------------------------------------------------------------------------------------------------------


@pytest.mark.sweep("make", RUNS)
@pytest.mark.sweep("template", AUDITS)
def test_a_ledger_in_order_breaks_nothing(template: Callable[[], Contract], make: Callable[[], Trace]) -> None:
    assert said(template(), make()) == []


def test_the_runs_hold_what_they_are_meant_to_hold() -> None:
    arrived = [entry.number for item in interleaved() for entry in entries_of(item)]
    assert arrived != sorted(arrived)
    assert entry_of(interleaved(), "settled", "slow#1").facts["returned"]
    assert (
        entry_of(overrun(), "settled", "sub#1").facts.get("excess") or entry_of(overrun(), "violated", "sub#1").facts["excess"]
    )
    events = {entry.event for entry in told(delegated())}
    assert {"spent", "reserved", "settled", "reallocated", "fulfilled"} <= events


def test_a_trace_that_knows_no_resource_contracts_passes_all_of_them() -> None:
    foreign = trace(record("model_call", "planner"), record("tool_call", "search"), record("message", "user"))
    assert [said(template(), foreign) for template in AUDITS] == [[]] * len(AUDITS)


# -- conserved ----------------------------------------------------------------------------------------------------------


def test_a_reservation_that_is_settled_twice_is_found_at_the_second_settlement() -> None:
    records = delegated()
    first = entry_of(records, "settled", "sub#1", 1)
    facts = {name: first.facts[name] for name in ("amounts", "reserved", "key")}
    found = violations(conserved(), added(records, first, "settled", "sub#1", **facts))
    assert found[0].step == records[-1].step + 1
    assert (
        found[0].message == "planted settled a reservation under sub#1 that is not open: it was settled before, or never made"
    )


def test_a_reservation_that_is_never_settled_is_found_where_it_was_made() -> None:
    records = delegated()
    settled = entry_of(records, "settled", "work#1", 1)
    found = violations(conserved(), without(records, settled))
    lost = [item for item in found if "never settled" in item.message]
    assert [item.step for item in lost] == [settled.step]
    assert "boss reserved 1 call of work#1 and 101 tokens of work#1 under work#1" in lost[0].message


def test_a_settlement_without_a_reservation_is_found() -> None:
    records = delegated()
    assert any("or never made" in text for text in said(conserved(), without(records, entry_of(records, "reserved", "work#1"))))


def test_a_settlement_that_releases_less_than_was_reserved_is_found() -> None:
    records = delegated()
    settled = entry_of(records, "settled", "work#1")
    found = only(conserved(), changed(records, settled, reserved={"work#1": {"calls": 1, "tokens": 7}}))
    assert found.step == settled.step
    assert "its settlement released 1 call of work#1 and 7 tokens of work#1" in found.message


def test_a_lost_refund_is_found_at_the_end_of_the_contract() -> None:
    records = delegated()
    ended = entry_of(records, "fulfilled", "sub#1")
    found = only(conserved(), changed(records, ended, returned=None))
    assert (found.step, found.instance) == (ended.step, "sub#1")
    has, lost = found.message.split(": ")
    assert has == "sub#1 of helper has ended with 400 tokens (70 spent, 0 reserved, 0 allocated)"
    assert lost == "330 tokens not returned to work#1"


def test_a_late_settlement_that_returns_nothing_is_found() -> None:
    records = interleaved()
    settled = entry_of(records, "settled", "slow#1")
    assert settled.number > entry_of(records, "fulfilled", "slow#1").number
    texts = said(conserved(), changed(records, settled, returned=None))
    assert any("not returned to work#1" in text for text in texts)


@pytest.mark.parametrize("by", [-1, 1])
def test_a_return_that_is_one_off_is_found(by: int) -> None:
    records = delegated()
    ended = entry_of(records, "fulfilled", "sub#1")
    assert said(conserved(), changed(records, ended, returned={"sub#1": {"work#1": {"tokens": 330 + by}}}))


def test_more_than_was_allocated_never_comes_back() -> None:
    records = delegated()
    ended = entry_of(records, "fulfilled", "sub#1")
    texts = said(conserved(), changed(records, ended, returned={"sub#1": {"work#1": {"tokens": 401}}}))
    assert texts[0] == "sub#1 returned 401 tokens to work#1, which had allocated 400 tokens to it"


def test_an_overrun_that_is_not_taken_from_above_is_found() -> None:
    records = overrun()
    holder = next(entry for entry in told(records) if entry.facts.get("excess"))
    texts = said(conserved(), changed(records, holder, excess=None))
    assert any("an excess of 100 tokens not taken from work#1" in text for text in texts)


def test_an_allocation_beyond_what_is_free_is_found_and_one_of_all_that_is_free_is_not() -> None:
    def begun(*entries: Record) -> Trace:
        return trace(*entries)

    above = entry(1, "drafted"), entry(2, "activated", allocations={"": {"tokens": 100}})
    spent = entry(3, "spent", amounts={"work#1": {"tokens": 40}})
    below = entry(4, "drafted", "sub#1", parents=["work#1"])
    fits = begun(*above, spent, below, entry(5, "activated", "sub#1", allocations={"work#1": {"tokens": 60}}))
    beyond = begun(*above, spent, below, entry(5, "activated", "sub#1", allocations={"work#1": {"tokens": 61}}))
    assert said(conserved(), fits) == []
    assert said(conserved(), beyond) == [
        "sub#1 was allocated 61 tokens by work#1 of main, which had 60 of 100 free (40 spent, 0 reserved, 0 allocated)"
    ]


def entry(number: int, event: str, contract: str = "work#1", **facts: Any) -> Record:
    return record("contract", event, {"entry": number, "contract": contract, **facts})


BEGUN = entry(1, "drafted"), entry(2, "activated", allocations={"": {"tokens": 100}})
TOKENS = {"work#1": {"tokens": 60}}


def test_two_reservations_of_one_budget_are_found_at_the_second() -> None:
    """The race of a naive ledger: both look before either takes."""
    one = entry(3, "reserved", amounts=TOKENS, key="a")
    two = entry(4, "reserved", amounts=TOKENS, key="b")
    closing = [entry(number, "settled", amounts=TOKENS, reserved=TOKENS, key=key) for number, key in ((5, "a"), (6, "b"))]
    found = only(conserved(), trace(*BEGUN, one, two, *closing))
    assert found.step == 3
    assert found.message.endswith("which had 40 of 100 free (0 spent, 60 reserved, 0 allocated)")
    in_turn = entry(4, "settled", amounts=TOKENS, reserved=TOKENS, key="a")
    less = {"work#1": {"tokens": 40}}
    rest = entry(5, "reserved", amounts=less, key="b"), entry(6, "settled", amounts=less, reserved=less, key="b")
    assert said(conserved(), trace(*BEGUN, one, in_turn, *rest)) == []


def test_nothing_begins_where_a_budget_is_used_up() -> None:
    whole, nothing = {"work#1": {"tokens": 100}}, {"work#1": {"tokens": 0}}
    unknown = entry(4, "reserved", amounts=nothing, key="k"), entry(5, "settled", amounts=nothing, reserved=nothing, key="k")
    assert broken(conserved(), trace(*BEGUN, entry(3, "spent", amounts=whole), *unknown)) == (3,)
    assert broken(conserved(), trace(*BEGUN, entry(3, "spent", amounts=TOKENS), *unknown)) == ()


def test_a_call_in_flight_may_overrun_and_conservation_holds() -> None:
    held, used = entry(3, "reserved", amounts=TOKENS, key="k"), {"work#1": {"tokens": 500}}
    assert said(conserved(), trace(*BEGUN, held, entry(4, "settled", amounts=used, reserved=TOKENS, key="k"))) == []


def test_a_charge_on_an_account_that_is_not_the_nearest_is_found() -> None:
    records = delegated()
    reserved, settled = entry_of(records, "reserved", "sub#1"), entry_of(records, "settled", "sub#1")
    assert "sub#1" in reserved.facts["amounts"]
    amounts = {"work#1": {"calls": 1, "tokens": 102}}
    records = changed(records, reserved, amounts=amounts)
    texts = said(conserved(), changed(records, settled, reserved=amounts))
    charged = "helper reserved 102 tokens under sub#1 on the account of work#1"
    assert texts[0] == f"{charged}, but sub#1 is the nearest contract with a budget of tokens"


def test_a_call_that_reserves_nothing_of_a_budget_it_needs_is_found() -> None:
    records = delegated()
    reserved, settled = entry_of(records, "reserved", "work#1"), entry_of(records, "settled", "work#1")
    only_calls = {"work#1": {"calls": 1}}
    found = violations(conserved(), changed(changed(records, reserved, amounts=only_calls), settled, reserved=only_calls))
    assert [item.message for item in found] == ["boss began a call under work#1 without a reservation of tokens from work#1"]
    assert found[0].step == reserved.step


SUB = entry(3, "drafted", "sub#1", parents=["work#1"]), entry(4, "activated", "sub#1", allocations={"work#1": {"tokens": 50}})
COUNTING = entry(1, "drafted"), entry(2, "activated", allocations={"": {"tokens": 100, "subcontracts": 5}})


@pytest.mark.parametrize(
    ("records", "text"),
    [
        (
            (*COUNTING, SUB[0], entry(4, "activated", "sub#1", amounts={"work#1": {"subcontracts": 2}})),
            "work#1 was charged 2 subcontracts for sub#1",
        ),
        (
            (*COUNTING, SUB[0], entry(4, "activated", "sub#1", amounts={"work#1": {"subcontracts": 1, "tokens": 1}})),
            "work#1 was charged 1 token for sub#1",
        ),
        (
            (*BEGUN, *SUB, entry(5, "fulfilled", "sub#1", returned={"sub#1": {"work#1": {"tokens": 50}}}),
             entry(6, "reallocated", "sub#1", allocations={"work#1": {"tokens": 5}})),
            "sub#1 was reallocated when it was fulfilled",
        ),
        ((*BEGUN, *SUB, entry(5, "reallocated", "sub#1", allocations={"work#1": {"tokens": -5}})), "a negative amount"),
        (
            (*BEGUN, entry(3, "reserved", amounts={"work#1": {"tokens": 1}}, key="k"),
             entry(4, "reserved", amounts={"work#1": {"tokens": 1}}, key="k")),
            "main reserved twice under the key k, which has been open since step 2",
        ),
        ((*BEGUN, *SUB, entry(5, "fulfilled", "sub#1", returned={"sub#1": {"work#1": {"calls": 5}}})), "no budget of calls"),
        ((*BEGUN, *SUB, entry(5, "fulfilled", "sub#1", returned={"sub#1": {"else#1": {"tokens": 1}}})), "0 tokens to it"),
        ((*BEGUN, entry(3, "spent", amounts={"work#1": {"tokens": -5}})), "under work#1, which is a negative amount"),
        ((*BEGUN, entry(3, "spent", amounts={"gone#1": {"tokens": 5}})), "on the account of gone#1, but work#1 is the nearest"),
        ((*BEGUN, entry(3, "spent", amounts={"work#1": {"calls": 5}})), "but no contract that pays for work#1 has"),
        ((*BEGUN, entry(3, "settled", amounts=TOKENS, reserved=TOKENS, key="k")), "it was settled before, or never made"),
    ],
)  # fmt: skip
def test_each_fault_of_a_ledger_is_found_by_itself(records: tuple[Record, ...], text: str) -> None:
    found = violations(conserved(), trace(*records))
    assert any(text in item.message and item.step == len(records) - 1 for item in found), [item.message for item in found]


def test_what_gives_back_and_never_ends_is_found() -> None:
    sub = (
        entry(3, "drafted", "sub#1", parents=["work#1"]),
        entry(4, "activated", "sub#1", allocations={"work#1": {"tokens": 50}}),
    )
    gave = entry(5, "spent", "sub#1", amounts={"sub#1": {"tokens": 0}}, returned={"sub#1": {"work#1": {"tokens": 50}}})
    assert said(conserved(), trace(*BEGUN, *sub, gave)) == ["sub#1 of main returned its budget at step 4 and never ended"]
    assert said(conserved(), trace(*BEGUN, *sub, gave, entry(6, "terminated", "sub#1"))) == []


def test_a_charge_that_is_less_than_the_record_shows_is_found() -> None:
    records = delegated()
    settled = entry_of(records, "settled", "work#1")
    assert settled.facts["amounts"] == {"work#1": {"calls": 1, "tokens": 50}}
    found = violations(conserved(), changed(records, settled, amounts={"work#1": {"calls": 1, "tokens": 10}}))
    assert (found[0].step, found[0].message) == (
        settled.step,
        "boss consumed 50 tokens under work#1, but work#1 was charged 10",
    )


def test_a_subcontract_that_is_not_counted_is_found() -> None:
    records = delegated()
    activated = entry_of(records, "activated", "sub#1")
    assert activated.facts["amounts"] == {"work#1": {"subcontracts": 1}}
    texts = said(conserved(), changed(records, activated, amounts=None))
    assert texts[0] == "sub#1 is not counted as one of the subcontracts of work#1"


def test_a_budget_that_is_not_the_one_of_the_draft_is_found() -> None:
    records = delegated()
    activated = entry_of(records, "activated", "work#1")
    more = {"": {**activated.facts["allocations"][""], "tokens": 5_000}}
    assert (
        said(conserved(), changed(records, activated, allocations=more))[0]
        == "work#1 was drafted with 1,000 tokens but allocated 5,000"
    )


def test_a_missing_entry_and_one_told_twice_are_found() -> None:
    records = delegated()
    spent = entry_of(records, "spent", "work#1")
    texts = said(conserved(), tuple(item for item in records if item.step != spent.step))
    assert f"the trace lacks entry {spent.number} of the ledger" in texts
    twice = replace(records[spent.step], step=records[-1].step + 1)
    assert said(conserved(), (*records, twice)) == [f"the ledger contains entry {spent.number} twice"]


def test_what_is_reported_at_the_end_is_what_the_entries_add_up_to() -> None:
    records = delegated()
    ended = entry_of(records, "fulfilled", "work#1")
    consumed = {**ended.facts["consumed"], "tokens": ended.facts["consumed"]["tokens"] + 1}
    found = only(conserved(), changed(records, ended, consumed=consumed))
    assert found.message == "work#1 reports a consumption of 171 tokens, but its entries add up to 170 tokens"


def test_a_fault_in_a_record_that_arrives_early_is_blamed_on_its_own_step() -> None:
    records = interleaved()
    settled = entry_of(records, "settled", "work#1", 2)
    later = [item for item in records if item.step > settled.step and any(e.number < settled.number for e in entries_of(item))]
    assert later, "the settlement does not wait for anything"
    found = violations(conserved(), changed(records, settled, amounts={"work#1": {"calls": 0, "tokens": 50}}))
    assert found[0].step == settled.step


def amounts_in(records: Trace) -> list[tuple[int, tuple[str, ...]]]:
    """Where amounts stand: (number of the entry, path into its facts)."""
    found = []
    for item in told(records):
        for name in ("allocations", "amounts", "reserved", "returned", "excess", "consumed"):
            found += [(item.number, (name, *path)) for path in _paths(item.facts.get(name))]
    return found


def _paths(value: Any) -> list[tuple[str, ...]]:
    if isinstance(value, int):
        return [()]
    return [(key, *path) for key, inner in (value or {}).items() for path in _paths(inner)]


def _moved(value: Any, path: tuple[str, ...], by: int) -> Any:
    if not path:
        return value + by
    return {key: _moved(inner, path[1:], by) if key == path[0] else inner for key, inner in value.items()}


@pytest.mark.full
@pytest.mark.parametrize("make", RUNS)
@pytest.mark.parametrize("by", [-1, 1])
def test_no_amount_of_any_entry_can_be_one_off(make: Callable[[], Trace], by: int) -> None:
    records = make()
    entries = {item.number: item for item in told(records)}
    unseen = []
    for number, path in amounts_in(records):
        item = entries[number]
        planted = changed(records, item, **{path[0]: _moved(item.facts[path[0]], path[1:], by)})
        if not said(conserved(), planted):
            unseen.append((number, item.event, path))
    assert unseen == []


@pytest.mark.parametrize("make", RUNS)
def test_no_entry_of_consequence_can_be_left_out(make: Callable[[], Trace]) -> None:
    """With the numbers closed up, so that no gap gives it away. A warning and a refusal change nothing."""
    records = make()
    unseen = [
        (item.number, item.event)
        for item in told(records)
        if item.event not in ("warned", "refused")
        and not said(conserved(), without(records, item))
        and not said(exactly_one_terminal_state(), without(records, item))
    ]
    assert unseen == []


# -- parts of runs ------------------------------------------------------------------------------------------------------


def episodes(spent: int = 20) -> mat.run:
    with mat.run([template() for template in AUDITS]) as run:
        with run.episode("one"), mat.budget.contracted(of("first", tokens=100)) as work:
            plan("go", max_tokens=20)
        with run.episode("two"):
            search("x")
            with mat.budget.contracted(of("second", tokens=100)) as work:
                work.spend(tokens=spent)
                plan("go", max_tokens=20)
    return run


def test_each_episode_is_judged_for_the_contracts_drafted_in_it() -> None:
    run = episodes()
    assert run.result is not None
    assert [item.outcome for item in run.result.outcomes] == ["pass"] * len(AUDITS)
    records = run.trace
    spent = entry_of(records, "spent", "second#1")
    planted = changed(records, spent, amounts={"second#1": {"tokens": 101}})
    _, (outcome,) = mat.judge(planted, [conserved()])
    assert [item.step for item in outcome.violations][:1] == [spent.step]


def test_a_contract_of_an_earlier_episode_is_not_judged_by_what_is_unknown() -> None:
    with mat.run() as run, mat.budget.contracted(of("long", tokens=1_000)) as work:
        with run.episode("one"):
            plan("go")
        with run.episode("two"), work.delegate(of("part", tokens=200), agent="helper"):
            plan("go")
    _, outcomes = mat.judge(run.trace, [template() for template in AUDITS])
    by_id = {outcome.contract: [item.message for item in outcome.violations] for outcome in outcomes}
    left_open = by_id.pop("resource.exactly_one_terminal_state")
    assert [text for text in left_open if "part#1" in text] == []
    assert [texts for texts in by_id.values() if texts] == []


def test_a_ledger_is_audited_from_its_beginning_wherever_its_first_entry_stands() -> None:
    """As where the call that a contract is first needed for has a lower step than the records of its draft."""
    held = FrozenDict(entry=3, contract="work#1", amounts=TOKENS)
    for used, expected in ((60, []), (61, ["work#1 reports a consumption of 60 tokens, but its entries add up to 61 tokens"])):
        charged = FrozenDict(entry=4, contract="work#1", amounts={"work#1": {"tokens": used}}, reserved=TOKENS)
        call = record("tool_call", "search")
        call = replace(
            call, mediation=Mediation(decision="allow", reserved=held), observation=replace(call.observation, charged=charged)
        )
        assert said(conserved(), trace(call, *BEGUN, entry(5, "fulfilled", consumed={"tokens": 60}))) == expected


def test_a_prefix_still_waits_for_its_settlements_and_its_ends() -> None:
    from mat.monitor.judge import Judge

    judge = Judge([conserved(), exactly_one_terminal_state()])
    for item in trace(*BEGUN, entry(3, "reserved", amounts=TOKENS, key="k")):
        judge.step(item)
    settlement, end = judge.outcomes_so_far(None)
    assert [(item.text, item.since) for item in settlement.open] == [("main must settle 60 tokens of work#1", 2)]
    assert [(item.text, item.since) for item in end.open] == [("work#1 of main must end", 0)]
    assert settlement.standing == end.standing == "presumably_false"


# -- exactly one terminal state -----------------------------------------------------------------------------------------


def test_a_second_terminal_state_is_found_and_named() -> None:
    records = delegated()
    ended = entry_of(records, "fulfilled", "sub#1")
    found = only(exactly_one_terminal_state(), added(records, ended, "expired", "sub#1"))
    assert found.message == f"sub#1 was fulfilled at step {ended.step}, and then expired"
    assert found.witness == (ended.step, records[-1].step + 1)


def test_an_entry_of_a_contract_that_was_never_drafted_says_who_recorded_what() -> None:
    items = trace(*BEGUN, entry(3, "spent", "gone#1", amounts={"gone#1": {"tokens": 5}}))
    assert "main recorded 'spent' for gone#1 at step 2, but the contract was never drafted" in said(conserved(), items)


def test_a_charge_that_was_not_due_says_what_was() -> None:
    charged = (SUB[0], entry(4, "activated", "sub#1", amounts={"work#1": {"subcontracts": 2}}))
    problem = "work#1 was charged 2 subcontracts for sub#1"
    assert f"{problem}, but 1 subcontract to work#1 was due" in said(conserved(), trace(*COUNTING, *charged))
    assert f"{problem}, but no charge was due" in said(conserved(), trace(*BEGUN, *charged))


def test_a_contract_that_never_ends_is_found_at_its_draft() -> None:
    records = delegated()
    drafted = entry_of(records, "drafted", "sub#1")
    found = only(exactly_one_terminal_state(), without(records, entry_of(records, "fulfilled", "sub#1")))
    assert (found.step, found.agent) == (drafted.step, "helper")
    assert "is still active at the end of the trace" in found.message


@pytest.mark.parametrize(
    ("entries", "at"),
    [
        ([("drafted", {}), ("terminated", {})], ()),
        ([("drafted", {}), ("refused", {}), ("terminated", {})], ()),
        ([("drafted", {}), ("activated", {}), ("violated", {})], ()),
        ([("drafted", {}), ("fulfilled", {})], (1,)),
        ([("drafted", {}), ("expired", {})], (1,)),
        ([("drafted", {})], (0,)),
        ([("drafted", {}), ("drafted", {}), ("terminated", {})], (1,)),
        ([("drafted", {}), ("activated", {}), ("activated", {}), ("expired", {})], (2,)),
        ([("drafted", {}), ("terminated", {}), ("activated", {})], (2,)),
        ([("activated", {}), ("fulfilled", {})], (0, 1)),
        ([("drafted", {}), ("spent", {"amounts": TOKENS}), ("terminated", {})], (1,)),
    ],
)
def test_transitions_are_those_of_the_lifecycle(entries: list[tuple[str, dict[str, Any]]], at: tuple[int, ...]) -> None:
    records = trace(*(entry(number, event, **facts) for number, (event, facts) in enumerate(entries, 1)))
    assert broken(exactly_one_terminal_state(), records) == at


def test_nothing_is_fulfilled_beyond_its_budget_and_at_it_is_fine() -> None:
    held = entry(3, "reserved", amounts=TOKENS, key="k")
    for used, expected in ((100, ()), (101, (4,))):
        settled = entry(4, "settled", amounts={"work#1": {"tokens": used}}, reserved=TOKENS, key="k")
        assert broken(exactly_one_terminal_state(), trace(*BEGUN, held, settled, entry(5, "fulfilled"))) == expected


# -- utilisation --------------------------------------------------------------------------------------------------------


def test_a_negative_consumption_is_found() -> None:
    records = delegated()
    settled = entry_of(records, "settled", "work#1")
    found = violations(utilisation_monotone(), changed(records, settled, amounts={"work#1": {"calls": 1, "tokens": -50}}))
    assert (found[0].step, found[0].message) == (settled.step, "boss spent -50 tokens under work#1, which is a negative amount")


def test_a_consumption_that_is_reported_lower_than_it_was_is_found_and_higher_is_not_its_business() -> None:
    records = delegated()
    ended = entry_of(records, "fulfilled", "work#1")
    for by, expected in ((-1, 1), (1, 0)):
        consumed = {**ended.facts["consumed"], "tokens": ended.facts["consumed"]["tokens"] + by}
        assert len(said(utilisation_monotone(), changed(records, ended, consumed=consumed))) == expected


def test_a_budget_that_grows_without_a_reallocation_is_found() -> None:
    spent = entry(3, "spent", amounts={"work#1": {"tokens": 90}})
    warned = {"resource": "tokens", "percent": 80, "consumed": 90}
    assert said(utilisation_monotone(), trace(*BEGUN, spent, entry(4, "warned", budget=100, **warned))) == []
    texts = said(utilisation_monotone(), trace(*BEGUN, spent, entry(4, "warned", budget=200, **warned)))
    assert texts == ["work#1 reports a budget of 200 but was allocated 100 tokens: its utilization fell"]


def test_a_recorded_reallocation_may_lower_utilisation() -> None:
    records = delegated()
    assert entry_of(records, "reallocated", "sub#1").facts["allocations"] == {"work#1": {"tokens": 100}}
    assert said(utilisation_monotone(), records) == []
    again = added(records, entry_of(records, "activated", "sub#1"), "activated", "sub#1", allocations={"work#1": {"tokens": 5}})
    assert said(utilisation_monotone(), again) == ["sub#1 was activated when it was active"]


# -- after the end ------------------------------------------------------------------------------------------------------


def test_spending_and_reserving_under_an_ended_contract_is_found() -> None:
    records = delegated()
    ended = entry_of(records, "fulfilled", "sub#1")
    spent = only(no_spend_after_terminal(), added(records, ended, "spent", "sub#1", amounts={"sub#1": {"tokens": 5}}))
    assert spent.message == f"planted spent 5 tokens of sub#1 under sub#1, which was fulfilled at step {ended.step}"
    held = added(records, ended, "reserved", "sub#1", amounts={"sub#1": {"tokens": 5}}, key="late")
    assert len(said(no_spend_after_terminal(), held)) == 1


def test_spending_below_an_ended_contract_is_found() -> None:
    below = (
        entry(3, "drafted", "sub#1", parents=["work#1"]),
        entry(4, "activated", "sub#1", allocations={"work#1": {"tokens": 50}}),
    )
    spent = entry(6, "spent", "sub#1", amounts={"sub#1": {"tokens": 5}})
    found = only(no_spend_after_terminal(), trace(*BEGUN, *below, entry(5, "terminated"), spent))
    assert (found.step, found.instance) == (5, "work#1")
    assert "under sub#1, below work#1, which was terminated at step 4" in found.message
    before = entry(5, "spent", "sub#1", amounts={"sub#1": {"tokens": 5}})
    assert said(no_spend_after_terminal(), trace(*BEGUN, *below, before, entry(6, "terminated"))) == []


def test_what_was_in_flight_at_the_end_may_be_settled_after_it() -> None:
    records = interleaved()
    assert entry_of(records, "settled", "slow#1").number > entry_of(records, "fulfilled", "slow#1").number
    assert said(no_spend_after_terminal(), records) == []
    ended = BEGUN, entry(3, "reserved", amounts=TOKENS, key="k"), entry(4, "terminated")
    late = entry(5, "settled", amounts=TOKENS, reserved=TOKENS, key="k")
    assert said(no_spend_after_terminal(), trace(*ended[0], *ended[1:], late)) == []


# -- the reserve --------------------------------------------------------------------------------------------------------


def reserving(given: int, *, own: int = 0, **facts: Any) -> Trace:
    above = entry(1, "drafted", reserve={"tokens": 10}), entry(2, "activated", allocations={"": {"tokens": 100}})
    spent = entry(3, "spent", amounts={"work#1": {"tokens": own}})
    below = (
        entry(4, "drafted", "sub#1", parents=["work#1"]),
        entry(5, "activated", "sub#1", allocations={"work#1": {"tokens": 50}}),
    )
    return trace(*above, spent, *below, entry(6, "reallocated", "sub#1", allocations={"work#1": {"tokens": given}}, **facts))


@pytest.mark.parametrize(
    ("given", "own", "from_reserve", "at"),
    [
        (40, 0, False, ()),
        (41, 0, False, (5,)),
        (45, 0, True, ()),
        (40, 4, False, ()),
        (41, 4, False, (5,)),
        (30, 20, False, ()),  # its own spending has used up the reserve
    ],
)
def test_allocations_leave_the_reserve(given: int, own: int, from_reserve: bool, at: tuple[int, ...]) -> None:
    assert broken(reserve_kept(), reserving(given, own=own, from_reserve=from_reserve)) == at


def test_an_eaten_reserve_is_named_with_its_amount() -> None:
    wanted = "sub#1 was allocated 45 tokens by work#1 of main, including 5 tokens from the reserve of work#1"
    assert said(reserve_kept(), reserving(45)) == [wanted]


def test_a_real_run_whose_child_gets_the_reserve_is_found() -> None:
    records = delegated()  # 1,000 with 100 in reserve, 50 of them used
    moved = entry_of(records, "reallocated", "sub#1")
    for more, expected in ((600, 0), (601, 1)):
        planted = changed(records, moved, allocations={"work#1": {"tokens": more}})
        assert len(said(reserve_kept(), planted)) == expected


# -- delegation ---------------------------------------------------------------------------------------------------------


def below(number: int, contract: str, *parents: str, skills: list[str] | None = None, **facts: Any) -> tuple[Record, Record]:
    drafted = entry(number, "drafted", contract, parents=list(parents), skills=skills)
    return drafted, entry(number + 1, "activated", contract, **facts)


OTHER = below(3, "other#1", allocations={"": {"tokens": 9}})
FROM_WORK = {"allocations": {"work#1": {"tokens": 10}}}


@pytest.mark.parametrize(
    ("records", "at", "text"),
    [
        ((*BEGUN, *below(3, "sub#1", "work#1", **FROM_WORK)), (), ""),
        ((*BEGUN, *below(3, "sub#1", "work#1", allocations={"work#1": {"tokens": 101}})), (3,), "which had 100 of 100 free"),
        ((*BEGUN, *below(3, "sub#1", "work#1", allocations={"": {"tokens": 10}})), (3,), "from outside"),
        ((*BEGUN, *below(3, "sub#1", "work#1", allocations={"": {"calls": 10}})), (), ""),
        ((*BEGUN, *below(3, "sub#1", "work#1", allocations={"work#1": {"calls": 10}})), (3,), "which has no budget of calls"),
        ((*BEGUN, entry(3, "fulfilled"), *below(4, "sub#1", "work#1", **FROM_WORK)), (4, 4), "which was fulfilled"),
        ((*BEGUN, *OTHER, *below(5, "sub#1", "other#1", **FROM_WORK)), (5,), "not the nearest contract with a budget of"),
        ((*BEGUN, *below(3, "sub#1", "work#1", allocations={"gone#1": {"tokens": 1}})), (3,), "which has no budget of tokens"),
        ((*BEGUN, *below(3, "sub#1", "gone#1")), (2,), "which is not in the trace"),
    ],
)  # fmt: skip
def test_allocations_come_from_a_live_contract_above_within_what_it_has(
    records: tuple[Record, ...], at: tuple[int, ...], text: str
) -> None:
    found = violations(delegation_within_parent(), trace(*records))
    assert tuple(item.step for item in found) == at
    assert all(text in item.message for item in found[:1])


@pytest.mark.parametrize(
    ("above", "child", "at"),
    [
        (None, ["tool:pay"], ()),
        (["tool:search", "tool:read"], ["tool:search"], ()),
        (["tool:search"], ["tool:search", "tool:pay"], (2,)),
        (["tool:search"], None, (2,)),
        (["tool:search"], [], ()),
        ([], [], ()),
    ],
)
def test_skills_are_some_of_those_above(above: list[str] | None, child: list[str] | None, at: tuple[int, ...]) -> None:
    records = entry(1, "drafted", skills=above), entry(2, "activated"), *below(3, "sub#1", "work#1", skills=child)
    assert broken(delegation_within_parent(), trace(*records)) == at


@pytest.mark.parametrize(
    ("above", "child", "at"), [(5_000, 5_000, ()), (5_000, 5_001, (3,)), (5_000, None, (3,)), (None, 9, ())]
)
def test_a_deadline_is_no_later_than_that_above(above: int | None, child: int | None, at: tuple[int, ...]) -> None:
    records = entry(1, "drafted"), entry(2, "activated", due_ms=above), *below(3, "sub#1", "work#1", due_ms=child)
    assert broken(delegation_within_parent(), trace(*records)) == at


def test_no_contract_lies_deeper_than_those_above_allow() -> None:
    with mat.run() as run, mat.budget.contracted(of("work", terms={"depth": 2}), agent="boss") as work:
        with work.delegate(of("one"), agent="one") as one, one.delegate(of("two"), agent="two"):
            search("x")
    records = run.trace
    assert said(delegation_within_parent(), records) == []
    drafted = entry_of(records, "drafted", "work#1")
    found = only(delegation_within_parent(), changed(records, drafted, depth=1))
    assert found.step == entry_of(records, "drafted", "two#1").step
    assert found.message == "two#1 is 2 levels below work#1, which allows 1"


def test_an_allocation_edited_in_a_real_run_is_found() -> None:
    records = delegated()
    activated = entry_of(records, "activated", "sub#1")
    found = violations(delegation_within_parent(), changed(records, activated, allocations={"work#1": {"tokens": 951}}))
    assert (found[0].step, found[0].agent) == (activated.step, "helper")
    assert "which had 950 of 1,000 free (50 spent, 0 reserved, 0 allocated)" in found[0].message


# -- within the contracts' own budgets ----------------------------------------------------------------------------------


def test_the_overrun_of_a_call_in_flight_is_attributed_to_the_contract_and_to_who_allocated() -> None:
    records = overrun()
    found = only(within_budget(), records)
    call = next(item for item in records if item.action.kind == "model_call")
    assert (found.step, found.instance, found.agent) == (call.step, "sub#1", "runaway")
    assert found.message == "sub#1 of runaway consumed 200 tokens, 100 more than the 100 that boss of work#1 allocated"


def test_a_budget_used_to_the_last_unit_is_within_and_a_reallocation_counts() -> None:
    assert said(within_budget(), delegated()) == []
    assert said(within_budget(), trace(*BEGUN, entry(3, "spent", amounts={"work#1": {"tokens": 100}}))) == []
    assert broken(within_budget(), trace(*BEGUN, entry(3, "spent", amounts={"work#1": {"tokens": 101}}))) == (2,)


def test_an_overrun_is_reported_once_for_each_contract_and_resource_that_it_breaks() -> None:
    with mat.run() as run, mat.budget.contracted(of("work", tokens=120, calls=9), agent="boss") as work:
        with work.delegate(of("sub", tokens=100), agent="runaway"):
            plan("go", max_tokens=0, wrote=190)
        with pytest.raises(mat.budget.BudgetSpent):
            plan("on")
    assert sorted(item.instance for item in violations(within_budget(), run.trace)) == ["sub#1", "work#1"]
    assert [item.instance for item in violations(within_budget(agents="boss"), run.trace)] == ["work#1"]


# -- online, offline, at random -----------------------------------------------------------------------------------------

ALL = (*AUDITS, within_budget, deadline_met)


class Driver:
    """Agents that do whatever comes up: delegate, call, spend, reserve, crash, cancel, and go on meanwhile."""

    def __init__(self, draw: Callable[[int], int]) -> None:
        self.draw = draw
        """A number from 0 on, below the given one."""

    def budgets(self, most: int) -> dict[str, int]:
        names = ("tokens", "calls", "tool:search", "subcontracts", "iterations", "seconds")
        return {name: self.draw(most) * (20 if name == "tokens" else 1) for name in names if self.draw(2)}

    async def act(self, work: Work, others: list[Work]) -> None:
        for _ in range(self.draw(5)):
            with suppress(mat.budget.BudgetSpent, mat.MatError):
                await self.one(work, others)

    async def one(self, work: Work, others: list[Work]) -> None:
        what = self.draw(10)
        if what <= 1:
            await plan_async("go", max_tokens=self.draw(3) * 20, wrote=self.draw(3) * 25, seconds=self.draw(4))
        elif what == 2:
            search("x")
        elif what == 3:
            work.spend("round", iterations=1)
        elif what == 4:
            work.top_up(from_reserve=bool(self.draw(2)), tokens=self.draw(30))
        elif what == 5:
            with work.reserve(tokens=self.draw(30)) as held:
                await asyncio.sleep(1)
                if self.draw(2):
                    held.settle(tokens=self.draw(40))
        elif what == 6:
            work.cancel("at random")
        elif what == 7 and len(others) > 1:
            payers = [others[self.draw(len(others))], work]
            if payers[0] is not work:
                names = sorted({name for payer in payers for name in payer.node.tracked} - {"subcontracts"})
                shares = {payer.id: {name: self.draw(3) for name in names if name in payer.node.tracked} for payer in payers}
                budgets = {name: sum(share.get(name, 0) for share in shares.values()) for name in names}
                contract = of("many").with_units(budgets)
                with Work(contract, agent="many", parents=payers, shares=shares) as many:
                    await self.act(many, [*others, many])
        elif len(others) < 5:
            task = asyncio.create_task(self.below(work, others))
            if self.draw(2):
                await asyncio.sleep(self.draw(4))
                if self.draw(2):
                    task.cancel()
                    return
            await asyncio.wait([task])
            task.exception()

    async def below(self, work: Work, others: list[Work]) -> None:
        terms = {"reserve_percent": self.draw(3) * 10, "duration_s": (None, None, 3)[self.draw(3)]}
        async with work.delegate(
            of(f"level{len(others)}", terms=terms, **self.budgets(6)), agent=f"agent{len(others)}"
        ) as child:
            await self.act(child, [*others, child])
            if not self.draw(6):
                raise KeyError("crashed")

    async def body(self) -> None:
        budgets = {name: value * 4 for name, value in self.budgets(30).items()}
        async with mat.budget.contracted(of("top", terms={"reserve_percent": 10}, **budgets), agent="top") as work:
            await self.act(work, [work])
            await self.act(work, [work])


def driven(draw: Callable[[int], int], contracts: Iterable[Contract] = ()) -> mat.run:
    with mat.run(contracts) as run:
        with suppress(mat.budget.BudgetSpent):
            asyncio.run(Driver(draw).body())
    return run


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_whatever_agents_do_a_ledger_in_order_is_silent_online_and_offline(data: st.DataObject) -> None:
    run = driven(lambda most: data.draw(st.integers(0, most - 1)), [template() for template in ALL])
    assert run.result is not None
    online = run.result.outcomes
    assert [item.message for outcome in online[: len(AUDITS)] for item in outcome.violations] == []
    assert not any(outcome.error for outcome in online)
    _, offline = mat.judge(run.trace, [template() for template in ALL])
    assert offline == online


@settings(deadline=None, max_examples=50, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_whatever_agents_do_a_planted_amount_is_found(data: st.DataObject) -> None:
    records = driven(lambda most: data.draw(st.integers(0, most - 1))).trace
    places = amounts_in(records)
    if not places:
        return
    number, path = data.draw(st.sampled_from(places))
    item = next(item for item in told(records) if item.number == number)
    by = data.draw(st.sampled_from([-7, -1, 1, 7]))
    planted = changed(records, item, **{path[0]: _moved(item.facts[path[0]], path[1:], by)})
    assert said(conserved(), planted), (item.event, path)


@pytest.mark.parametrize("make", RUNS)
def test_the_state_has_a_canonical_form_that_does_not_depend_on_how_it_was_reached(make: Callable[[], Trace]) -> None:
    records, contract = make(), conserved()

    def folded(items: Iterable[Record]) -> str:
        state = contract.start
        for item in items:
            if contract.kinds is not None and item.action.kind in contract.kinds:
                new = contract.step(state, item)
                state = (state if new.state is KEEP else new.state) if isinstance(new, Violated) else new
        return canonical(plain_data(state))

    assert folded(records) == folded(make())


def test_a_ledger_without_its_first_entries_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mat_contracts.resource.posting.WAITING", 5)
    records = trace(*(entry(number, "warned") for number in range(2, 9)))
    _, (outcome,) = mat.judge(records[:5], [conserved()])
    assert not outcome.error
    _, (outcome,) = mat.judge(records, [conserved()])
    assert outcome.outcome == "fail"
    assert "6 entries of the ledger wait for entry 1" in outcome.error


def test_the_options_of_a_contract_are_those_of_the_others() -> None:
    made = conserved(id="mine", severity="soft", weight=2.0, policy="block", repair="mend it")
    assert (made.id, made.severity, made.weight, made.policy, made.repair) == ("mine", "soft", 2.0, "block", "mend it")
    assert len({template().id for template in ALL}) == len(ALL)
    assert all(template().repair and template().text for template in ALL)
