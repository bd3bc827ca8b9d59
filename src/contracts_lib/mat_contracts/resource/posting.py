"""Posts entries into the books: applies what each entry changes, and reports what does not add up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from mat.core.errors import LimitReached
from mat.core.resources import TERMINAL, LedgerEntry, shown
from mat.core.value import EMPTY, FrozenDict
from mat.monitor.contract import Violated
from mat_contracts._state import PersistentTable
from mat_contracts.resource.books import (
    BookAccount,
    BookRule,
    BookRules,
    Books,
    BookShare,
    Discrepancy,
    OpenReservation,
    Party,
    Posted,
)
from mat_contracts.resource.words import amount_list, at_most, breakdown, flat, quantity, transfers

_NONE: Final = BookAccount()
WAITING: Final = 100_000
"""The most entries that may wait for earlier ones. Beyond it the contract's outcome is unknown."""


def post(books: Books, found: Sequence[Posted]) -> tuple[Books, list[Discrepancy]]:
    """The books after these entries, and the faults found. An entry is posted once all earlier entries are known."""
    work, waiting, number = Posting(books), books.waiting, books.number
    for item in found:
        entry_number = item.entry.number
        if entry_number == number and not waiting.count:
            number += 1
            work.enter(item)
        elif entry_number < number or waiting.get(str(entry_number)) is not None:
            work.fault(item, "conservation", f"the ledger contains entry {entry_number} twice")
        else:
            waiting = waiting.put({str(entry_number): item})
    while waiting.count and (due := waiting.get(str(number))) is not None:
        waiting = waiting.put({str(number): None})
        number += 1
        work.enter(due)
    if waiting.count > WAITING:
        raise LimitReached(
            what=f"{waiting.count} entries of the ledger wait for entry {number}", why="a monitor's state is bounded",
            fix="judge whole traces, in the order of their steps",
        )  # fmt: skip
    begun = books.begun if books.begun >= 0 else found[0].entry.step
    return work.books(waiting, number, begun), work.faults


def close(books: Books) -> tuple[Books, list[Discrepancy]]:
    """The books at the end of a trace, and the faults found. Waiting entries are posted; missing ones are faults."""
    work, number = Posting(books, from_start=books.from_start), books.number
    for item in sorted(books.waiting.values(), key=lambda item: item.entry.number):
        entry_number = item.entry.number
        if entry_number > number and books.from_start:
            missing = f"entry {number}" if entry_number == number + 1 else f"entries {number} to {entry_number - 1}"
            work.fault(item, "conservation", f"the trace lacks {missing} of the ledger")
        number = entry_number + 1
        work.enter(item)
    closed = work.books(PersistentTable(), number, books.begun)
    return closed, [*work.faults, *_leftovers(closed)]


def _leftovers(books: Books) -> Iterator[Discrepancy]:
    """The faults of reservations that were never settled, and of contracts that returned their budget but never ended."""
    rules: frozenset[BookRule] = frozenset(("conservation",))
    for hold in books.open_holds():
        reserved = f"{hold.agent} reserved {amount_list(hold.amounts)} under {hold.contract} at step {hold.step}"
        message = f"{reserved} and never settled the reservation"
        wanted = "a settlement, or a report of its loss"
        yield Discrepancy(
            rules, Violated(message, step=hold.step, witness=(hold.step,), instance=hold.contract, wanted=wanted), hold.agent
        )
    for party in books.in_order():
        if party.ending >= 0 and not party.has_ended:
            message = f"{party.id} of {party.agent} returned its budget at step {party.ending} and never ended"
            witness = (party.step, party.ending)
            yield Discrepancy(rules, Violated(message, step=party.ending, witness=witness, instance=party.id), party.agent)


class Posting:
    """The books while entries are posted. Changes are collected here, and `books` returns the books that include them."""

    def __init__(self, books: Books, *, from_start: bool = True) -> None:
        self._books = books
        self._parties: dict[str, Party] = {}
        self._holds: dict[str, OpenReservation | None] = {}
        self._reported = books.reported
        self._touched: dict[str, None] = {}
        self.from_start = from_start
        self.faults: list[Discrepancy] = []

    def books(self, waiting: PersistentTable, number: int, begun: int) -> Books:
        books = self._books
        return Books(books.parties.put(self._parties), books.holds.put(self._holds), waiting, number, begun, self._reported)

    def enter(self, item: Posted) -> None:
        """Post one entry. Skip the entries of contracts that were drafted before the trace began."""
        entry = item.entry
        self._touched = {}
        party = self.party(entry.contract)
        if entry.event == "drafted":
            _post_draft(self, item, party)
        elif party is not None:
            posts = _POSTS.get(entry.event)
            if posts is not None:
                posts(self, item, party)
            for moved in ("returned", "excess"):
                for id, above, resource, value in transfers(entry.facts.get(moved)):
                    _post_transfer(self, item, moved, id, above, resource, value)
            for id in self._touched:
                _check_balance(self, item, id)
        elif self.from_start:
            event = f"{item.agent} recorded {entry.event!r} for {entry.contract} at step {entry.step}"
            self.fault(item, ("lifecycle", "conservation"), f"{event}, but the contract was never drafted")

    # -- what is known --------------------------------------------------------------------------------------------------

    def party(self, id: str) -> Party | None:
        found = self._parties.get(id)
        if found is None:
            found = self._books.parties.get(id)
        return found

    def account(self, id: str, resource: str) -> BookAccount | None:
        party = self.party(id)
        return None if party is None else party.accounts.get(resource)

    def hold(self, key: str) -> OpenReservation | None:
        found: OpenReservation | None = self._holds[key] if key in self._holds else self._books.holds.get(key)
        return found

    def nearest(self, id: str, resource: str) -> str | None:
        """The contract whose account pays; "" if no contract has a budget of the resource, None if the trace lacks it."""
        while (party := self.party(id)) is not None:
            if resource in party.accounts:
                return id
            if len(party.parents) != 1:  # contracts with several parents share no single account
                return ""
            id = party.parents[0]
        return None

    def counting(self, party: Party, resource: str) -> list[str]:
        """The nearest contracts above that have an account of the resource, one for each path up."""
        found: dict[str, None] = {}
        seen, waiting = set(), list(party.parents)
        while waiting:
            name = waiting.pop(0)
            parent = self.party(name)
            if parent is None or name in seen:
                continue
            seen.add(name)
            if resource in parent.accounts:
                found[name] = None
            else:
                waiting += parent.parents
        return list(found)

    def above(self, party: Party) -> Iterator[tuple[Party, int]]:
        """Every contract above, with the largest number of levels between the two."""
        levels: dict[str, int] = {}
        waiting = [(name, 1) for name in party.parents]
        while waiting:
            name, level = waiting.pop(0)
            parent = self.party(name)
            if parent is not None and level > levels.get(name, 0):
                levels[name] = level
                waiting += [(item, level + 1) for item in parent.parents]
        for name, level in levels.items():
            found = self.party(name)
            if found is not None:
                yield found, level

    # -- what changes ---------------------------------------------------------------------------------------------------

    def put(self, party: Party) -> None:
        self._parties[party.id] = party
        self._touched[party.id] = None

    def change(self, id: str, resource: str, **changed: Any) -> None:
        """Change fields of an account. Create the account if it does not exist."""
        party = self.party(id)
        assert party is not None
        account = party.accounts.get(resource, _NONE)._replace(**changed)
        self.put(party._replace(accounts=FrozenDict({**party.accounts, resource: account})))

    def keep(self, key: str, hold: OpenReservation | None) -> None:
        """Store an open reservation under its key; None closes it."""
        self._holds[key] = hold

    def consume(self, item: Posted, id: str, resource: str, more: int) -> None:
        """Add consumption to an account and to those above. Of several, the last one pays the overrun."""
        account, party = self.account(id, resource), self.party(id)
        if account is None or party is None or not more:
            return
        due = [share.part for share in account.shares]
        if party.in_proportion:
            due = _in_proportion(sum(share.used for share in account.shares) + more, due)
        shares, rest = [], more
        for place, share in enumerate(account.shares):
            last = place == len(account.shares) - 1
            part = rest if last else min(rest, max(0, due[place] - share.used))
            shares.append(share._replace(used=share.used + part))
            rest -= part
        self.change(id, resource, used=account.used + more, shares=tuple(shares))
        _check_overrun(self, item, id, resource)
        for old, new in zip(account.shares, shares, strict=True):
            self.consume(item, new.above, resource, new.used - old.used)

    def is_new(self, what: str) -> bool:
        """Whether a lasting fault has not been reported yet. Marks it as reported."""
        new = what not in self._reported
        self._reported = self._reported | {what}
        return new

    def was_reported(self, what: str) -> bool:
        return what in self._reported

    def fault(
        self, item: Posted, rules: BookRules, message: str, *, seen: Iterable[int] = (), about: str = "", wanted: str = ""
    ) -> None:
        """Report a fault at an entry. `seen`: other steps that matter. `about`: the contract, if not that of the entry."""
        step, id = item.entry.step, about or item.entry.contract
        witness = tuple(sorted({*(at for at in seen if at >= 0), step}))
        party = self.party(id)
        self.faults.append(
            Discrepancy(
                frozenset((rules,) if isinstance(rules, str) else rules),
                Violated(message, step=step, witness=witness, instance=id, wanted=wanted),
                item.agent if party is None else party.agent,
            )
        )


def _in_proportion(used: int, parts: Sequence[int]) -> list[int]:
    """What each giver pays of a consumption: its part of what those from it on have to pay, rounded down."""
    due, left = [], sum(parts)
    for part in parts:
        due.append(part * min(used, left) // left if left else 0)
        used -= due[-1]
        left -= part
    return due


# -- the life of a contract ---------------------------------------------------------------------------------------------


def _post_draft(work: Posting, item: Posted, known: Party | None) -> None:
    entry, facts = item.entry, item.entry.facts
    if known is not None:
        work.fault(item, "lifecycle", f"{known.id} was drafted at step {known.step}, and then again", seen=(known.step,))
        return
    skills, budgets = facts.get("skills"), facts.get("budgets")
    party = Party(
        entry.contract, str(facts.get("agent", item.agent)), tuple(facts.get("parents") or ()), entry.step,
        skills=None if skills is None else tuple(skills), depth=facts.get("depth"),
        budgets=None if budgets is None else FrozenDict(budgets), reserve=FrozenDict(facts.get("reserve") or EMPTY),
        in_proportion=facts.get("refunds") == "proportional",
    )  # fmt: skip
    work.put(party)
    for name in party.parents:
        if work.party(name) is None and work.from_start:
            work.fault(item, "delegation", f"{party.id} was drafted under {name}, which is not in the trace")
    for above, level in work.above(party):
        if above.depth is not None and level > above.depth:
            message = f"{party.id} is {level} levels below {above.id}, which allows {above.depth}"
            work.fault(item, "delegation", message, seen=(above.step,), wanted=f"at most {above.depth} levels below {above.id}")
        if level == 1 and above.skills is not None:
            _check_skills(work, item, party, above, above.skills)


def _check_skills(work: Posting, item: Posted, party: Party, above: Party, skills: tuple[str, ...]) -> None:
    """Whether all skills of a sub-contract are skills of the contract above."""
    beyond = None if party.skills is None else [name for name in party.skills if name not in skills]
    if beyond != []:
        what = "anything" if beyond is None else ", ".join(beyond)
        message = f"{party.id} of {party.agent} may use {what}, but {above.id} above it may not"
        work.fault(item, "delegation", message, seen=(above.step,), wanted=f"some of {', '.join(skills) or 'no skill at all'}")


def _post_activation(work: Posting, item: Posted, party: Party) -> None:
    facts = item.entry.facts
    if party.state != "drafted":
        rules: BookRules = ("lifecycle", "monotone") if party.state == "active" else "lifecycle"
        work.fault(item, rules, f"{party.id} was activated when it was {party.state}", seen=(party.step, party.ended))
    due_ms = facts.get("due_ms")
    work.put(party._replace(state=party.state if party.has_ended else "active", due_ms=due_ms))
    for name in party.parents:
        above = work.party(name)
        if above is not None:
            _check_parent(work, item, party, above, due_ms)
    given = flat(facts.get("allocations"))
    payers = {
        resource: [work.nearest(name, resource) for name in party.parents]
        for resource in {resource for _, resource, _ in given}
    }

    def turn(allocation: tuple[str, str, int]) -> int:  # the first contract above pays first
        turns = payers[allocation[1]]
        return turns.index(allocation[0]) if allocation[0] in turns else len(turns)

    for giver, resource, value in sorted(given, key=turn):
        _post_allocation(work, item, party, giver, resource, value)
    _check_draft(work, item, party, given)
    _post_subcontract(work, item, party)


def _check_draft(work: Posting, item: Posted, party: Party, given: list[tuple[str, str, int]]) -> None:
    """Check that a contract was allocated the budgets of its draft, if the draft names any."""
    if party.budgets is None:
        return
    allocated: dict[str, int] = {}
    for _, resource, value in given:
        allocated[resource] = allocated.get(resource, 0) + value
    for resource in sorted({*allocated, *party.budgets}):
        wanted, got = party.budgets.get(resource, 0), allocated.get(resource, 0)
        if wanted != got:
            message = f"{party.id} was drafted with {quantity(resource, wanted)} but allocated {shown(resource, got)}"
            work.fault(
                item, "conservation", message, seen=(party.step,), wanted=f"an allocation of {quantity(resource, wanted)}"
            )


def _check_parent(work: Posting, item: Posted, party: Party, above: Party, due_ms: int | None) -> None:
    """Check that the contract above is live, and that its deadline is not earlier."""
    if above.is_over or above.state == "drafted":
        message = f"{party.id} was activated below {above.id}, which was {_inactive_text(above)}"
        work.fault(item, "delegation", message, seen=(above.step, above.over_at), wanted="a live contract above")
    if above.due_ms is not None and (due_ms is None or due_ms > above.due_ms):
        until = "without a deadline" if due_ms is None else f"until {due_ms} ms"
        message = f"{party.id} may work {until}, but {above.id} above it only until {above.due_ms} ms"
        work.fault(item, "delegation", message, seen=(above.step,), wanted=f"a deadline at {above.due_ms} ms or before")


def _inactive_text(party: Party) -> str:
    """What a contract that is not active was: `never activated`, `ending`, `fulfilled`."""
    return "never activated" if party.is_now == "drafted" else party.is_now


def _post_subcontract(work: Posting, item: Posted, party: Party) -> None:
    """Check that the contracts above that limit `subcontracts` are charged for a new contract."""
    counting, charges = work.counting(party, "subcontracts"), flat(item.entry.facts.get("amounts"))
    charged = [account for account, resource, _ in charges if resource == "subcontracts"]
    for account in counting:
        if account not in charged:
            message = f"{party.id} is not counted as one of the subcontracts of {account}"
            work.fault(item, "conservation", message, about=account, wanted="a charge of 1 subcontract")
    for account, resource, value in charges:
        if (account not in counting or resource != "subcontracts" or value != 1) and work.party(account) is not None:
            to = f"1 subcontract to {' and '.join(counting)}"
            due = f"{to} was due" if counting else "no charge was due"
            message = f"{account} was charged {quantity(resource, value)} for {party.id}, but {due}"
            wanted = f"a charge of {to}" if counting else "no charge"
            work.fault(item, "conservation", message, about=account, wanted=wanted)
        _charge(work, item, account, resource, value, begun=True)


def _post_warning(work: Posting, item: Posted, party: Party) -> None:
    resource, budget = str(item.entry.facts.get("resource")), item.entry.facts.get("budget")
    account = party.accounts.get(resource)
    if account is None:  # such as time, which has no account
        return
    _check_report(work, item, party, resource, item.entry.facts.get("consumed"))
    if isinstance(budget, int) and budget > account.allocated:
        had = quantity(resource, account.allocated)
        message = f"{party.id} reports a budget of {shown(resource, budget)} but was allocated {had}: its utilization fell"
        work.fault(item, "monotone", message, seen=(party.step,), wanted="a recorded reallocation wherever a budget grows")


def _check_report(work: Posting, item: Posted, party: Party, resource: str, reported: Any) -> None:
    """Check that the consumption that an entry reports equals the sum of the earlier entries."""
    account = party.accounts.get(resource)
    if account is not None and isinstance(reported, int) and reported != account.used:
        rules: BookRules = ("conservation", "monotone") if reported < account.used else "conservation"
        has = f"its entries add up to {quantity(resource, account.used)}"
        work.fault(
            item, rules, f"{party.id} reports a consumption of {quantity(resource, reported)}, but {has}", seen=(party.step,)
        )


def _post_end(work: Posting, item: Posted, party: Party) -> None:
    entry = item.entry
    if party.has_ended:
        message = f"{party.id} was {party.state} at step {party.ended}, and then {entry.event}"
        work.fault(item, "lifecycle", message, seen=(party.ended,), wanted="one terminal state")
        return
    if party.state == "drafted" and entry.event != "terminated":
        message = f"{party.id} was {entry.event} but never active"
        work.fault(item, "lifecycle", message, seen=(party.step,), wanted="terminated, because it is a draft")
    over = [
        name
        for name, account in sorted(party.accounts.items())
        if account.used > account.allocated or work.was_reported(f"{party.id} {name}")
    ]
    if over and entry.event == "fulfilled":
        message = f"{party.id} was fulfilled beyond its budget of {', '.join(over)}"
        work.fault(item, "lifecycle", message, seen=(party.step,), wanted="violated")
    if entry.event == "expired" or (party.due_ms is not None and entry.at_ms > party.due_ms):
        due = "" if party.due_ms is None else f", and its deadline was at {party.due_ms} ms"
        message = f"{party.id} of {party.agent} ended as {entry.event} at {entry.at_ms} ms{due}"
        work.fault(item, "deadline", message, seen=(party.step,), wanted="an end by its deadline")
    work.put(party._replace(state=entry.event, ended=entry.step))
    for resource, reported in (entry.facts.get("consumed") or EMPTY).items():
        _check_report(work, item, party, resource, reported)


# -- what is allocated, and what comes back -----------------------------------------------------------------------------


def _post_reallocation(work: Posting, item: Posted, party: Party) -> None:
    facts = item.entry.facts
    if party.state != "active" or party.is_over:
        message = f"{party.id} was reallocated when it was {party.is_now}"
        work.fault(item, ("delegation", "conservation"), message, seen=(party.step, party.over_at))
    for giver, resource, value in flat(facts.get("allocations")):
        _post_allocation(work, item, party, giver, resource, value, from_reserve=bool(facts.get("from_reserve")))


def _post_allocation(
    work: Posting, item: Posted, party: Party, giver: str, resource: str, value: int, *, from_reserve: bool = False
) -> None:
    """Post an allocation from the giver's account; from outside if the giver is ""."""
    amount = quantity(resource, value)
    if value < 0:
        work.fault(item, ("conservation", "monotone"), f"{party.id} was allocated {amount}, which is a negative amount")
    own = work.account(party.id, resource) or BookAccount(reserve=party.reserve.get(resource, 0))
    shares = _add_share(own.shares, giver, value) if giver else own.shares
    limits = [] if giver else work.counting(party, resource)
    work.change(
        party.id, resource, budget=own.budget + value, allocated=own.allocated + value, reserve=own.reserve, shares=shares
    )
    if giver:
        _post_giver(work, item, party, giver, resource, value, from_reserve=from_reserve)
    elif limits:
        message = (
            f"{party.id} was allocated {amount} from outside, but its {resource} must come from {' or '.join(limits)} above it"
        )
        work.fault(item, ("delegation", "conservation"), message, wanted=f"an allocation of {' or '.join(limits)}")


def _post_giver(
    work: Posting, item: Posted, party: Party, giver: str, resource: str, value: int, *, from_reserve: bool
) -> None:  # fmt: skip
    """Post the giver's side of an allocation."""
    source, account = work.party(giver), work.account(giver, resource)
    if source is None and not work.from_start:
        return
    message = f"{party.id} was allocated {quantity(resource, value)} by {giver}"
    if source is None or account is None:
        work.fault(item, ("delegation", "conservation"), f"{message}, which has no budget of {resource}")
        return
    message, seen = f"{message} of {source.agent}", (source.step, source.over_at)
    if giver not in [work.nearest(name, resource) for name in party.parents]:
        wanted = f"an allocation of the nearest contract above that has a budget of {resource}"
        problem = f"{message}, which is not the nearest contract with a budget of {resource}"
        work.fault(item, "delegation", problem, seen=seen, wanted=wanted)
    if source.is_over or source.state == "drafted":
        work.fault(
            item,
            "delegation",
            f"{message}, which was {_inactive_text(source)}",
            seen=seen,
            wanted="an allocation of a live contract",
        )
    free, kept = account.free, account.kept
    if value > max(0, free):
        left = f"{shown(resource, max(0, free))} of {shown(resource, account.budget)}"
        had = f"which had {left} free ({breakdown(resource, account)})"
        work.fault(item, ("delegation", "conservation"), f"{message}, {had}", seen=seen, wanted=at_most(resource, free))
    lendable = max(0, free - kept)
    if kept and value > lendable and not from_reserve:
        eaten = quantity(resource, min(kept, value - lendable))
        wanted = f"{at_most(resource, lendable)}, so that the reserve of {shown(resource, kept)} is kept"
        work.fault(item, "reserve", f"{message}, including {eaten} from the reserve of {giver}", seen=seen, wanted=wanted)
    reserve = account.reserve - max(0, value - lendable) if from_reserve else account.reserve
    work.change(giver, resource, out=account.out + value, reserve=max(0, reserve))


def _post_transfer(work: Posting, item: Posted, moved: str, id: str, above: str, resource: str, value: int) -> None:
    """Post a transfer of an ended contract: it returns its free budget, or takes what it consumed beyond its budget."""
    party, account, giver = work.party(id), work.account(id, resource), work.account(above, resource)
    did = (
        f"{id} returned {quantity(resource, value)} to {above}"
        if moved == "returned"
        else f"{id} took {quantity(resource, value)} from {above}"
    )
    if party is None or account is None:
        if work.from_start:
            work.fault(item, "conservation", f"{did}, but has no budget of {resource}", about=id)
        return
    if not party.is_over:
        work.put(party._replace(ending=item.entry.step))
    had = sum(share.part for share in account.shares if share.above == above)
    signed = value if moved == "excess" else -value
    if value < 0 or had + signed < 0 or above not in [share.above for share in account.shares]:
        message = f"{did}, which had allocated {quantity(resource, had)} to it"
        work.fault(item, "conservation", message, seen=(party.step,), about=id, wanted=at_most(resource, had))
    work.change(id, resource, budget=account.budget + signed, shares=_add_share(account.shares, above, signed))
    if giver is not None:
        work.change(above, resource, out=giver.out + signed)
        _check_overdraft(work, item, above, resource)


def _add_share(shares: tuple[BookShare, ...], above: str, value: int) -> tuple[BookShare, ...]:
    """The shares with `value` more from a contract above."""
    if all(share.above != above for share in shares):
        return (*shares, BookShare(above, value))
    return tuple(share._replace(part=share.part + value) if share.above == above else share for share in shares)


def _check_balance(work: Posting, item: Posted, id: str) -> None:
    """Check that an ended contract keeps only what it has committed."""
    party = work.party(id)
    if party is None or not party.is_over:
        return
    for resource, account in sorted(party.accounts.items()):
        left = account.free
        if left and account.shares and work.is_new(f"{id} {resource} {left}"):
            amount, givers = quantity(resource, abs(left)), " and ".join(share.above for share in account.shares)
            lost = f"{amount} not returned to {givers}" if left > 0 else f"an excess of {amount} not taken from {givers}"
            budget = f"{quantity(resource, account.budget)} ({breakdown(resource, account)})"
            message = f"{id} of {party.agent} has ended with {budget}: {lost}"
            wanted = f"{amount} {'returned to' if left > 0 else 'charged to'} {givers}"
            work.fault(item, "conservation", message, seen=(party.step, party.over_at), about=id, wanted=wanted)


# -- what is spent ------------------------------------------------------------------------------------------------------


def _post_reservation(work: Posting, item: Posted, party: Party) -> None:
    key, amounts = _key(item.entry), item.entry.facts.get("amounts") or EMPTY
    before = work.hold(key)
    if before is not None:
        message = f"{item.agent} reserved twice under the key {key}, which has been open since step {before.step}"
        work.fault(item, "conservation", message, seen=(before.step,), wanted="a settlement between the two")
    _check_active(work, item, party, "reserved")
    for account, resource, value in flat(amounts):
        _check_account(work, item, party, account, resource, value, "reserved")
        had = work.account(account, resource)
        if had is not None:
            _check_free(work, item, account, resource, value, "reserved")
            work.change(account, resource, held=had.held + value)
    for resource in item.counts:
        nearest = work.nearest(party.id, resource)
        if nearest and resource not in amounts.get(nearest, EMPTY):
            message = f"{item.agent} began a call under {party.id} without a reservation of {resource} from {nearest}"
            work.fault(
                item, "conservation", message, about=nearest, wanted="a reservation of everything that the call may consume"
            )
    work.keep(key, OpenReservation(party.id, item.agent, item.entry.step, FrozenDict(amounts)))


def _post_settlement(work: Posting, item: Posted, party: Party) -> None:
    key, facts = _key(item.entry), item.entry.facts
    hold = work.hold(key)
    if hold is None:
        message = f"{item.agent} settled a reservation under {party.id} that is not open: it was settled before, or never made"
        work.fault(item, "conservation", message, wanted="one settlement of each reservation")
        return
    work.keep(key, None)
    held, released = flat(hold.amounts), flat(facts.get("reserved"))
    if sorted(held) != sorted(released) or hold.contract != party.id:
        was = f"{hold.agent} reserved {amount_list(hold.amounts)} under {hold.contract} at step {hold.step}"
        message = f"{was}, but its settlement released {amount_list(facts.get('reserved'))} under {party.id}"
        work.fault(item, "conservation", message, seen=(hold.step,), wanted="a settlement that releases what was reserved")
    for account, resource, value in held:
        had = work.account(account, resource)
        if had is not None:
            work.change(account, resource, held=had.held - value)
    charged: dict[str, int] = {}
    for account, resource, value in flat(facts.get("amounts")):
        charged[resource] = charged.get(resource, 0) + value
        _check_account(work, item, party, account, resource, value, "spent")
        _charge(work, item, account, resource, value)
    _check_charges(work, item, party, charged)


def _check_charges(work: Posting, item: Posted, party: Party, charged: Mapping[str, int]) -> None:
    """Check that the consumption that the record of a call shows was charged wherever a contract has a budget of it."""
    for resource, count in item.counts.items():
        account = work.nearest(party.id, resource)
        if account and charged.get(resource, 0) != count:
            was = f"{account} was charged {shown(resource, charged.get(resource, 0))}"
            message = f"{item.agent} consumed {quantity(resource, count)} under {party.id}, but {was}"
            work.fault(item, "conservation", message, about=account, wanted=f"a charge of {quantity(resource, count)}")


def _post_spending(work: Posting, item: Posted, party: Party) -> None:
    _check_active(work, item, party, "spent")
    for account, resource, value in flat(item.entry.facts.get("amounts")):
        _check_account(work, item, party, account, resource, value, "spent")
        _charge(work, item, account, resource, value, begun=True)


def _check_active(work: Posting, item: Posted, party: Party, did: str) -> None:
    """Check that the contract and all above it are active."""
    over = party if party.is_over else next((above for above, _ in work.above(party) if above.is_over), None)
    if party.state != "drafted" and over is None:
        return
    message = f"{item.agent} {did} {amount_list(item.entry.facts.get('amounts'))} under {party.id}"
    if party.state == "drafted":
        work.fault(item, "lifecycle", f"{message}, which was never activated", seen=(party.step,))
    if over is not None:
        where = "which" if over is party else f"below {over.id}, which"
        message = f"{message}, {where} was {over.is_now} at step {over.over_at}"
        wanted = "nothing begins after the end of a contract"
        work.fault(item, "after_end", message, seen=(over.over_at,), about=over.id, wanted=wanted)


def _check_account(work: Posting, item: Posted, party: Party, account: str, resource: str, value: int, did: str) -> None:
    """Check that an amount is not negative, and is charged to the right account."""
    nearest = work.nearest(party.id, resource)
    if value >= 0 and nearest == account:
        return
    message = f"{item.agent} {did} {quantity(resource, value)} under {party.id}"
    if value < 0:
        work.fault(item, ("conservation", "monotone"), f"{message}, which is a negative amount")
    if nearest is not None and nearest != account and (work.from_start or work.party(account) is not None):
        has = (
            f"{nearest} is the nearest contract with a budget of {resource}"
            if nearest
            else f"no contract that pays for {party.id} has a budget of {resource}"
        )
        wanted = f"a charge to {nearest}" if nearest else "no charge"
        work.fault(item, "conservation", f"{message} on the account of {account}, but {has}", about=account, wanted=wanted)


def _check_free(work: Posting, item: Posted, account: str, resource: str, value: int, did: str) -> None:
    """Check that an amount is free. If nothing is free, no call may begin, not even one of unknown consumption."""
    had, owner = work.account(account, resource), work.party(account)
    if had is None or owner is None or (value <= had.free and (had.free > 0 or (did == "spent" and not value))):
        return
    free = f"which had {shown(resource, max(0, had.free))} of {shown(resource, had.budget)} free ({breakdown(resource, had)})"
    message = f"{item.agent} {did} {quantity(resource, value)} from {account}, {free}"
    work.fault(item, "conservation", message, seen=(owner.step,), about=account, wanted=at_most(resource, had.free))


def _charge(work: Posting, item: Posted, account: str, resource: str, value: int, *, begun: bool = False) -> None:
    """Post a charge. `begun`: the charge is checked against the free budget; those of calls in flight are not."""
    had = work.account(account, resource)
    if had is not None:
        if begun:
            _check_free(work, item, account, resource, value, "spent")
        work.change(account, resource, own=had.own + value)
        work.consume(item, account, resource, value)
        _check_overdraft(work, item, account, resource)


def _check_overrun(work: Posting, item: Posted, id: str, resource: str) -> None:
    """Report once that a contract consumed more than it was ever allocated."""
    party, account = work.party(id), work.account(id, resource)
    if party is None or account is None or account.used <= account.allocated or not work.is_new(f"{id} {resource}"):
        return
    givers = [work.party(share.above) for share in account.shares]
    by = " and ".join(f"{giver.agent} of {giver.id}" for giver in givers if giver is not None)
    allocated = f"{shown(resource, account.allocated)} that {'it was allocated' if not by else f'{by} allocated'}"
    beyond = shown(resource, account.used - account.allocated)
    message = f"{id} of {party.agent} consumed {quantity(resource, account.used)}, {beyond} more than the {allocated}"
    work.fault(item, "overrun", message, seen=(party.step,), about=id, wanted=at_most(resource, account.allocated))


def _check_overdraft(work: Posting, item: Posted, id: str, resource: str) -> None:
    """Report once that a live contract consumed what it had allocated to contracts below."""
    party, account = work.party(id), work.account(id, resource)
    if party is None or account is None or party.is_over:
        return
    over = account.own + account.out - account.allocated
    if over <= 0 or not work.is_new(f"{id} {resource}"):
        return
    took = f"{id} of {party.agent} consumed {quantity(resource, account.own)} and allocated {shown(resource, account.out)}"
    message = f"{took}, {shown(resource, over)} more than the {shown(resource, account.allocated)} that it had"
    wanted = at_most(resource, account.allocated - account.out)
    work.fault(item, "overrun", message, seen=(party.step,), about=id, wanted=wanted)


def _key(entry: LedgerEntry) -> str:
    """The key of a reservation: its own, or one made from the step of its call."""
    return str(entry.facts.get("key") or f"step#{entry.step}")


_POSTS: Final[Mapping[str, Callable[[Posting, Posted, Party], None]]] = {
    "activated": _post_activation,
    "reallocated": _post_reallocation,
    "reserved": _post_reservation,
    "settled": _post_settlement,
    "spent": _post_spending,
    "warned": _post_warning,
    **dict.fromkeys(TERMINAL, _post_end),
}
