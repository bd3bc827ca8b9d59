"""Contracts on a run's ledger of resource contracts, checked from its entries alone (Sec. 4.3, 5.2, 6.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from mat.core.record import Record
from mat.core.verdict import Obligation
from mat.monitor.contract import Contract, Violated
from mat_contracts._shared import all_of, judged
from mat_contracts.catalogue import Options, template
from mat_contracts.resource.books import KINDS, BookRule, Books, Discrepancy, entries
from mat_contracts.resource.posting import close, post
from mat_contracts.resource.words import listed


@template
def conserved(
    **options: Unpack[Options],
) -> Contract:
    """Of no resource more is spent, reserved and allocated than there is, and nothing is lost or counted twice.

    The conservation law (Sec. 6.1), audited from the entries of the ledger, at every entry and for every account:

    - what is reserved, spent or allocated was free: own + held + out <= budget, but for what calls in flight overran; and
      where nothing is free (c = b) nothing begins
    - a reservation is settled once, releases what was reserved, and is settled or told as lost when the trace ends
    - a charge stands in the nearest account above, and is what the record of the call shows was consumed
    - an ended contract keeps what it has committed: what it has left comes back, at its end and at each late settlement,
      what it overran is taken from above, and never more comes back than was allocated
    - what is told to be consumed is what the entries add up to, and no entry is missing or told twice

    A trace that begins in the midst of a run (a later episode) is judged for the contracts drafted in it. One without
    resource contracts passes.

    >>> from mat_contracts.traces import broken, record, trace
    >>> def entry(number, event, **facts):
    ...     return record("contract", event, {"entry": number, "contract": "work#1", **facts})
    >>> begun = entry(1, "drafted"), entry(2, "activated", allocations={"": {"tokens": 100}})
    >>> broken(conserved(), trace(*begun, entry(3, "spent", amounts={"work#1": {"tokens": 100}})))
    ()
    >>> broken(conserved(), trace(*begun, entry(3, "spent", amounts={"work#1": {"tokens": 101}})))
    (2,)
    """
    return audit(
        "conservation", "resource.conserved",
        "reserve before a call, settle once after it, and change accounts in one place, one at a time",
        "of no resource more is spent, reserved and allocated than there is, and nothing is lost or counted twice",
        obligations=_to_settle,
    )  # fmt: skip


@template
def exactly_one_terminal_state(
    **options: Unpack[Options],
) -> Contract:
    """Every contract ends once: it has one terminal event by the end of the trace, and gets there by legal transitions.

    The lifecycle (Sec. 4.3): DRAFTED -> ACTIVE -> one of FULFILLED, VIOLATED, EXPIRED, TERMINATED; a draft that is never
    activated is TERMINATED. A second terminal event is a violation, and so are none at all, an activation of what is no draft,
    spending under one, and a contract that is FULFILLED beyond its budgets.

    >>> from mat_contracts.traces import broken, record, trace
    >>> def entry(number, event, **facts):
    ...     return record("contract", event, {"entry": number, "contract": "work#1", **facts})
    >>> begun = entry(1, "drafted"), entry(2, "activated")
    >>> broken(exactly_one_terminal_state(), trace(*begun, entry(3, "fulfilled")))
    ()
    >>> broken(exactly_one_terminal_state(), trace(*begun))
    (0,)
    >>> broken(exactly_one_terminal_state(), trace(*begun, entry(3, "fulfilled"), entry(4, "expired")))
    (3,)
    """
    return audit(
        "lifecycle", "resource.exactly_one_terminal_state",
        "end a contract in one place, whatever happens to its agent, and look whether it has ended before",
        "every contract reaches exactly one terminal state", also=_never_ended, obligations=_to_end,
    )  # fmt: skip


@template
def utilisation_monotone(
    **options: Unpack[Options],
) -> Contract:
    """Consumption never decreases, and utilisation falls at a recorded reallocation only.

    Monitor(C, t) (Sec. 5.2): c(t) is cumulative, so u = c / b never decreases while b stays. Nothing less than nothing is
    consumed or allocated; what a contract is told to have consumed is never less than what its entries add up to, and the
    budget that it is told of is never more than what it was allocated.

    >>> from mat_contracts.traces import broken, record, trace
    >>> def entry(number, event, **facts):
    ...     return record("contract", event, {"entry": number, "contract": "work#1", **facts})
    >>> begun = entry(1, "drafted"), entry(2, "activated", allocations={"": {"tokens": 100}})
    >>> spent = entry(3, "spent", amounts={"work#1": {"tokens": 60}})
    >>> broken(utilisation_monotone(), trace(*begun, spent, entry(4, "fulfilled", consumed={"tokens": 60})))
    ()
    >>> broken(utilisation_monotone(), trace(*begun, spent, entry(4, "fulfilled", consumed={"tokens": 20})))
    (3,)
    """
    return audit(
        "monotone", "resource.utilisation_monotone",
        "add up what was consumed and never take from it; record a reallocation where a budget grows",
        "consumption never decreases, and utilisation falls at a recorded reallocation only",
    )  # fmt: skip


@template
def no_spend_after_terminal(
    **options: Unpack[Options],
) -> Contract:
    """Nothing is reserved or spent under a contract that has ended, or below one that has.

    Sec. 4.3 and 4.2 (Psi ends a contract, whatever its success). The settlement of what was reserved before is no spending:
    calls in flight are not called back.

    >>> from mat_contracts.traces import broken, record, trace
    >>> def entry(number, event, **facts):
    ...     return record("contract", event, {"entry": number, "contract": "work#1", **facts})
    >>> begun = entry(1, "drafted"), entry(2, "activated", allocations={"": {"tokens": 100}})
    >>> amounts = {"work#1": {"tokens": 60}}
    >>> ended = *begun, entry(3, "reserved", amounts=amounts, key="k"), entry(4, "fulfilled")
    >>> broken(no_spend_after_terminal(), trace(*ended, entry(5, "settled", amounts=amounts, reserved=amounts, key="k")))
    ()
    >>> broken(no_spend_after_terminal(), trace(*ended, entry(5, "spent", amounts=amounts)))
    (4,)
    """
    return audit(
        "after_end", "resource.no_spend_after_terminal",
        "ask whether the contract, and all above it, are active before anything begins under it",
        "nothing is reserved or spent under a contract that has ended, or below one that has",
    )  # fmt: skip


@template
def reserve_kept(
    **options: Unpack[Options],
) -> Contract:
    """Allocations to contracts below never eat into the reserve of the contract that gives.

    B_reserve (Sec. 6.1) is kept for a contract's own spending, which may use it up; a reallocation may take from it where it
    says so (`from_reserve`).

    >>> from mat_contracts.traces import broken, record, trace
    >>> def entry(number, event, contract="work#1", **facts):
    ...     return record("contract", event, {"entry": number, "contract": contract, **facts})
    >>> above = entry(1, "drafted", reserve={"tokens": 10}), entry(2, "activated", allocations={"": {"tokens": 100}})
    >>> below = entry(3, "drafted", "sub#1", parents=["work#1"])
    >>> broken(reserve_kept(), trace(*above, below, entry(4, "activated", "sub#1", allocations={"work#1": {"tokens": 90}})))
    ()
    >>> broken(reserve_kept(), trace(*above, below, entry(4, "activated", "sub#1", allocations={"work#1": {"tokens": 91}})))
    (3,)
    """
    return audit(
        "reserve", "resource.reserve_kept",
        "allocate out of B - B_reserve, and take from the reserve by a reallocation that says so",
        "allocations to contracts below never eat into the reserve",
    )  # fmt: skip


@template
def delegation_within_parent(
    **options: Unpack[Options],
) -> Contract:
    """A sub-contract gets nothing that the contract above it has not: budget, skills, time, levels of delegation.

    Sec. 6.1 and 6.2, sum of R_i <= R_parent. Every allocation and reallocation comes from a live contract above, the nearest
    that has a budget of the resource, within what was free there at that moment; skills are some of those above; the deadline
    is no later; no contract lies deeper than one above it allows. What nobody above limits may come from outside.

    >>> from mat_contracts.traces import broken, record, trace
    >>> def entry(number, event, contract="work#1", **facts):
    ...     return record("contract", event, {"entry": number, "contract": contract, **facts})
    >>> above = entry(1, "drafted", skills=["tool:search"]), entry(2, "activated", allocations={"": {"tokens": 100}})
    >>> def below(skill):
    ...     return entry(3, "drafted", "sub#1", parents=["work#1"], skills=[skill])
    >>> broken(delegation_within_parent(), trace(*above, below("tool:search")))
    ()
    >>> broken(delegation_within_parent(), trace(*above, below("tool:pay")))
    (2,)
    """
    return audit(
        "delegation", "resource.delegation_within_parent",
        "draft a sub-contract out of what the contract above has free, with some of its skills and within its time",
        "a sub-contract gets nothing that the contract above it has not",
    )  # fmt: skip


def _never_ended(books: Books) -> list[Violated]:
    """The contracts that have no terminal state."""
    return [
        Violated(
            f"{party.id} of {party.agent} was drafted at step {party.step} and is {party.state} at the end of the trace",
            step=party.step, witness=(party.step,), instance=party.id, wanted="one terminal state",
        )
        for party in books.in_order()
        if not party.has_ended
    ]  # fmt: skip


def _to_end(books: Books) -> tuple[Obligation, ...]:
    return tuple(
        Obligation(text=f"{party.id} of {party.agent} has to end", since=party.step, instance=party.id)
        for party in books.in_order()
        if not party.has_ended
    )


def _to_settle(books: Books) -> tuple[Obligation, ...]:
    return tuple(
        Obligation(text=f"{hold.agent} has to settle {listed(hold.amounts)}", since=hold.step, instance=hold.contract)
        for hold in books.open_holds()
    )


def audit(
    rule: BookRule,
    id: str,
    repair: str,
    text: str,
    *,
    whose: frozenset[str] = frozenset(),
    also: Callable[[Books], list[Violated]] | None = None,
    obligations: Callable[[Books], tuple[Obligation, ...]] | None = None,
) -> Contract:
    """A contract that reports the faults of one rule. `whose`: of these agents' contracts only; `also`: what a finished trace
    lacks."""

    def reportable(faults: list[Discrepancy]) -> list[Violated]:
        return [fault.violated for fault in faults if rule in fault.rules and (not whose or fault.agent in whose)]

    def step(state: Books, record: Record) -> Books | Violated:
        found = entries(record)
        if not found:
            return state
        state, faults = post(state, found)
        return judged(reportable(faults), state)

    def finish(state: Books) -> Violated | None:
        state, faults = close(state)
        return all_of(reportable(faults) + (also(state) if also is not None else []))

    return Contract(
        id=id, step=step, start=Books(), finish=finish, obligations=obligations, kinds=KINDS,
        repair=repair, text=text,
    )  # fmt: skip
