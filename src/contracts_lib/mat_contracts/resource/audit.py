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
from mat_contracts.resource.words import amount_list


@template
def conserved(
    **options: Unpack[Options],
) -> Contract:
    """No more of any resource is spent, reserved and allocated than is available, and nothing is lost or counted twice.

    The conservation law (Sec. 6.1), audited from the entries of the ledger, at every entry and for every account:

    - Every reserved, spent or allocated amount was free: own + held + out <= budget, except for overruns of calls in flight.
      If nothing is free (c = b), nothing begins.
    - A reservation is settled once, and the settlement releases the reserved amount. When the trace ends, every reservation is
      settled or reported as lost.
    - A charge goes to the nearest account above, and equals the consumption that the record of the call shows.
    - An ended contract keeps what it has committed. What is left goes back at its end and at each late settlement, an overrun
      is taken from above, and no more goes back than was allocated.
    - A reported consumption equals the sum of the entries, and no entry is missing or duplicate.

    A trace that begins in the middle of a run (a later episode) is judged for the contracts drafted in it. A trace without
    resource contracts passes.

    Precision 1.00, recall 1.00 on 21 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> def entry(number, event, **facts):
    ...     return record("contract", event, {"entry": number, "contract": "work#1", **facts})
    >>> begun = entry(1, "drafted"), entry(2, "activated", allocations={"": {"tokens": 100}})
    >>> broken(conserved(), trace(*begun, entry(3, "spent", amounts={"work#1": {"tokens": 100}})))
    ()
    >>> broken(conserved(), trace(*begun, entry(3, "spent", amounts={"work#1": {"tokens": 101}})))
    (2,)

    Source: Sec. 6.1, B5.
    """
    return audit(
        "conservation", "resource.conserved",
        "reserve before a call, settle once after it, and change accounts in one place, one at a time",
        "no more of any resource is spent, reserved and allocated than is available, and nothing is lost or counted twice",
        obligations=_settlement_obligations,
    )  # fmt: skip


@template
def exactly_one_terminal_state(
    **options: Unpack[Options],
) -> Contract:
    """Every contract ends exactly once: it reaches one terminal state by the end of the trace, by legal transitions.

    The lifecycle (Sec. 4.3): DRAFTED -> ACTIVE -> one of FULFILLED, VIOLATED, EXPIRED, TERMINATED; a draft that is never
    activated is TERMINATED. Violations are: no terminal event, a second one, the activation of a contract that is not a draft,
    spending under a draft, and a contract that is FULFILLED beyond its budgets.

    Precision 1.00, recall 1.00 on 21 traces written without knowledge of this template.

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

    Source: B2.
    """
    return audit(
        "lifecycle", "resource.exactly_one_terminal_state",
        "end a contract in one place, whatever happens to its agent, and check first whether it has already ended",
        "every contract reaches exactly one terminal state", also=_unended, obligations=_end_obligations,
    )  # fmt: skip


@template
def utilisation_monotone(
    **options: Unpack[Options],
) -> Contract:
    """Consumption never decreases, and utilization falls only at a recorded reallocation.

    Monitor(C, t) (Sec. 5.2): c(t) is cumulative, so u = c / b never decreases while b is constant. No consumption or allocation
    is negative. The reported consumption of a contract is never less than the sum of its entries, and its reported budget is
    never more than its allocation.

    Precision 1.00, recall 1.00 on 21 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> def entry(number, event, **facts):
    ...     return record("contract", event, {"entry": number, "contract": "work#1", **facts})
    >>> begun = entry(1, "drafted"), entry(2, "activated", allocations={"": {"tokens": 100}})
    >>> spent = entry(3, "spent", amounts={"work#1": {"tokens": 60}})
    >>> broken(utilisation_monotone(), trace(*begun, spent, entry(4, "fulfilled", consumed={"tokens": 60})))
    ()
    >>> broken(utilisation_monotone(), trace(*begun, spent, entry(4, "fulfilled", consumed={"tokens": 20})))
    (3,)

    Source: B3.
    """
    return audit(
        "monotone", "resource.utilisation_monotone",
        "add up consumption and never subtract from it; record a reallocation when a budget grows",
        "consumption never decreases, and utilization falls only at a recorded reallocation",
    )  # fmt: skip


@template
def no_spend_after_terminal(
    **options: Unpack[Options],
) -> Contract:
    """Nothing is reserved or spent under a contract that has ended, or below such a contract.

    Sec. 4.3 and 4.2 (Psi ends a contract, whatever its success). The settlement of an earlier reservation is not spending,
    because calls in flight are not canceled.

    Precision 1.00, recall 1.00 on 21 traces written without knowledge of this template.

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

    Source: B2.
    """
    return audit(
        "after_end", "resource.no_spend_after_terminal",
        "before anything begins under a contract, check that the contract and all above it are active",
        "nothing is reserved or spent under a contract that has ended, or below such a contract",
    )  # fmt: skip


@template
def reserve_kept(
    **options: Unpack[Options],
) -> Contract:
    """Allocations to contracts below never use the reserve of the allocating contract.

    B_reserve (Sec. 6.1) is kept for a contract's own spending, which may use it up. A reallocation may take from the reserve
    if it says so (`from_reserve`).

    Precision 1.00, recall 1.00 on 21 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> def entry(number, event, contract="work#1", **facts):
    ...     return record("contract", event, {"entry": number, "contract": contract, **facts})
    >>> above = entry(1, "drafted", reserve={"tokens": 10}), entry(2, "activated", allocations={"": {"tokens": 100}})
    >>> below = entry(3, "drafted", "sub#1", parents=["work#1"])
    >>> broken(reserve_kept(), trace(*above, below, entry(4, "activated", "sub#1", allocations={"work#1": {"tokens": 90}})))
    ()
    >>> broken(reserve_kept(), trace(*above, below, entry(4, "activated", "sub#1", allocations={"work#1": {"tokens": 91}})))
    (3,)

    Source: B5.
    """
    return audit(
        "reserve", "resource.reserve_kept",
        "allocate only what the budget has beyond its reserve; to use the reserve, call top_up(from_reserve=True) on the "
        "sub-contract",
        "allocations to contracts below never use the reserve",
    )  # fmt: skip


@template
def delegation_within_parent(
    **options: Unpack[Options],
) -> Contract:
    """A sub-contract gets nothing that the contract above it does not have: budget, skills, time, levels of delegation.

    Sec. 6.1 and 6.2, sum of R_i <= R_parent. Every allocation and reallocation comes from the nearest contract above that has
    a budget of the resource; that contract is live and has this amount free. Skills are a subset of those above. The deadline
    is no later. No contract is deeper than a contract above it allows. A resource that no contract above limits may come from
    outside.

    Precision 1.00, recall 1.00 on 21 traces written without knowledge of this template.

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

    Source: B5, B6.
    """
    return audit(
        "delegation", "resource.delegation_within_parent",
        "draft a sub-contract from the free budget of the contract above, with some of its skills and within its time",
        "a sub-contract gets nothing that the contract above it does not have",
    )  # fmt: skip


def _unended(books: Books) -> list[Violated]:
    """The contracts that have no terminal state."""
    return [
        Violated(
            f"{party.id} of {party.agent} was drafted at step {party.step} and is still {party.state} at the end of the trace",
            step=party.step, witness=(party.step,), instance=party.id, wanted="one terminal state",
        )
        for party in books.in_order()
        if not party.has_ended
    ]  # fmt: skip


def _end_obligations(books: Books) -> tuple[Obligation, ...]:
    return tuple(
        Obligation(text=f"{party.id} of {party.agent} must end", since=party.step, instance=party.id)
        for party in books.in_order()
        if not party.has_ended
    )


def _settlement_obligations(books: Books) -> tuple[Obligation, ...]:
    return tuple(
        Obligation(text=f"{hold.agent} must settle {amount_list(hold.amounts)}", since=hold.step, instance=hold.contract)
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
    """A contract that reports the faults of one rule.

    `whose`: judge only the contracts of these agents. `also`: returns what a finished trace lacks.
    """

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
