"""Posting entries into the books: what each of them changes, and what does not add up there."""

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
from mat_contracts.resource.words import flat, listed, most, moves, of, parts

_NONE: Final = BookAccount()
WAITING: Final = 100_000
"""Entries that wait for those before them. Past it the contract is unknown."""


def post(books: Books, found: Sequence[Posted]) -> tuple[Books, list[Discrepancy]]:
    """The books with these entries, as far as all before them are known, and what is wrong with those that were posted."""
    work, waiting, number = Posting(books), books.waiting, books.number
    for item in found:
        told = item.entry.number
        if told == number and not waiting.count:
            number += 1
            work.enter(item)
        elif told < number or waiting.get(str(told)) is not None:
            work.fault(item, "conservation", f"entry {told} of the ledger is told twice")
        else:
            waiting = waiting.put({str(told): item})
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
    """The books at the end of a trace: what still waited is posted, and what is missing or left over is a fault."""
    work, number = Posting(books, whole=books.whole), books.number
    for item in sorted(books.waiting.values(), key=lambda item: item.entry.number):
        told = item.entry.number
        if told > number and books.whole:
            missing = f"entry {number}" if told == number + 1 else f"entries {number} to {told - 1}"
            work.fault(item, "conservation", f"the trace does not tell {missing} of the ledger")
        number = told + 1
        work.enter(item)
    closed = work.books(PersistentTable(), number, books.begun)
    return closed, [*work.faults, *_left_over(closed)]


def _left_over(books: Books) -> Iterator[Discrepancy]:
    """What nobody settled, and what gave back as if it had ended."""
    rules: frozenset[BookRule] = frozenset(("conservation",))
    for hold in books.open_holds():
        said = f"{hold.agent} reserved {listed(hold.amounts)} under {hold.contract} at step {hold.step} and never settled it"
        wanted = "a settlement, or word of its loss"
        yield Discrepancy(
            rules, Violated(said, step=hold.step, witness=(hold.step,), instance=hold.contract, wanted=wanted), hold.agent
        )
    for party in books.in_order():
        if party.ending >= 0 and not party.has_ended:
            said = f"{party.id} of {party.agent} gave back at step {party.ending} and never ended"
            witness = (party.step, party.ending)
            yield Discrepancy(rules, Violated(said, step=party.ending, witness=witness, instance=party.id), party.agent)


class Posting:
    """The books while entries are posted: what changes is kept apart until all of them are."""

    def __init__(self, books: Books, *, whole: bool = True) -> None:
        self._books = books
        self._parties: dict[str, Party] = {}
        self._holds: dict[str, OpenReservation | None] = {}
        self._said = books.said
        self._touched: dict[str, None] = {}
        self.whole = whole
        self.faults: list[Discrepancy] = []

    def books(self, waiting: PersistentTable, number: int, begun: int) -> Books:
        books = self._books
        return Books(books.parties.put(self._parties), books.holds.put(self._holds), waiting, number, begun, self._said)

    def enter(self, item: Posted) -> None:
        """Post one entry. Of a contract that was drafted before the trace began nothing is known, and nothing is said."""
        entry = item.entry
        self._touched = {}
        party = self.party(entry.contract)
        if entry.event == "drafted":
            _drafted(self, item, party)
        elif party is not None:
            posts = _POSTS.get(entry.event)
            if posts is not None:
                posts(self, item, party)
            for moved in ("returned", "excess"):
                for id, above, resource, value in moves(entry.facts.get(moved)):
                    _moved(self, item, moved, id, above, resource, value)
            for id in self._touched:
                _balanced(self, item, id)
        elif self.whole:
            said = f"{entry.contract} was {entry.event} by {item.agent} at step {entry.step} and never drafted"
            self.fault(item, ("lifecycle", "conservation"), said)

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
        """The contract that a spending is charged to; "" for none, None where the trace does not tell."""
        while (party := self.party(id)) is not None:
            if resource in party.accounts:
                return id
            if len(party.parents) != 1:  # under several there is none that it shares
                return ""
            id = party.parents[0]
        return None

    def counting(self, party: Party, resource: str) -> list[str]:
        """Who has the nearest account of a resource on each way up from a contract; its own is left out."""
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
        """The contracts above one, each once, with how many levels they lie above it at most."""
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
        """Some of an account, which is made where there is none."""
        party = self.party(id)
        assert party is not None
        account = party.accounts.get(resource, _NONE)._replace(**changed)
        self.put(party._replace(accounts=FrozenDict({**party.accounts, resource: account})))

    def keep(self, key: str, hold: OpenReservation | None) -> None:
        """An open reservation; None where it is closed."""
        self._holds[key] = hold

    def consume(self, item: Posted, id: str, resource: str, more: int) -> None:
        """Count a consumption in an account and those above it: of several, the first pays first, and the last what is over."""
        account = self.account(id, resource)
        if account is None or not more:
            return
        shares, rest = [], more
        for place, share in enumerate(account.shares):
            last = place == len(account.shares) - 1
            part = rest if last else min(rest, max(0, share.part - share.used))
            shares.append(share._replace(used=share.used + part))
            rest -= part
        self.change(id, resource, used=account.used + more, shares=tuple(shares))
        _overrun(self, item, id, resource)
        for old, new in zip(account.shares, shares, strict=True):
            self.consume(item, new.above, resource, new.used - old.used)

    def is_new(self, what: str) -> bool:
        """Whether this was not said before."""
        new = what not in self._said
        self._said = self._said | {what}
        return new

    def fault(
        self, item: Posted, rules: BookRules, said: str, *, seen: Iterable[int] = (), of: str = "", wanted: str = ""
    ) -> None:
        """Something does not add up at an entry. `seen`: other steps that matter; `of`: the contract, where it is another."""
        step, id = item.entry.step, of or item.entry.contract
        witness = tuple(sorted({*(at for at in seen if at >= 0), step}))
        party = self.party(id)
        self.faults.append(
            Discrepancy(
                frozenset((rules,) if isinstance(rules, str) else rules),
                Violated(said, step=step, witness=witness, instance=id, wanted=wanted),
                item.agent if party is None else party.agent,
            )
        )


# -- the life of a contract ---------------------------------------------------------------------------------------------


def _drafted(work: Posting, item: Posted, known: Party | None) -> None:
    entry, facts = item.entry, item.entry.facts
    if known is not None:
        work.fault(item, "lifecycle", f"{known.id} was drafted at step {known.step}, and again", seen=(known.step,))
        return
    skills, budgets = facts.get("skills"), facts.get("budgets")
    party = Party(
        entry.contract, str(facts.get("agent", item.agent)), tuple(facts.get("parents") or ()), entry.step,
        skills=None if skills is None else tuple(skills), depth=facts.get("depth"),
        budgets=None if budgets is None else FrozenDict(budgets), reserve=FrozenDict(facts.get("reserve") or EMPTY),
    )  # fmt: skip
    work.put(party)
    for name in party.parents:
        if work.party(name) is None and work.whole:
            work.fault(item, "delegation", f"{party.id} was drafted under {name}, which the trace does not know")
    for above, level in work.above(party):
        if above.depth is not None and level > above.depth:
            said = f"{party.id} lies {level} levels below {above.id}, which allows {above.depth}"
            work.fault(item, "delegation", said, seen=(above.step,), wanted=f"at most {above.depth} levels below {above.id}")
        if level == 1 and above.skills is not None:
            _skilled(work, item, party, above, above.skills)


def _skilled(work: Posting, item: Posted, party: Party, above: Party, skills: tuple[str, ...]) -> None:
    """Whether all skills of a sub-contract are skills of the contract above."""
    beyond = None if party.skills is None else [name for name in party.skills if name not in skills]
    if beyond != []:
        what = "anything" if beyond is None else ", ".join(beyond)
        said = f"{party.id} of {party.agent} may use {what}, and {above.id} above it may not"
        work.fault(item, "delegation", said, seen=(above.step,), wanted=f"some of {', '.join(skills) or 'no skill at all'}")


def _activated(work: Posting, item: Posted, party: Party) -> None:
    facts = item.entry.facts
    if party.state != "drafted":
        rules: BookRules = ("lifecycle", "monotone") if party.state == "active" else "lifecycle"
        work.fault(item, rules, f"{party.id} was activated when it was {party.state}", seen=(party.step, party.ended))
    due_ms = facts.get("due_ms")
    work.put(party._replace(state=party.state if party.has_ended else "active", due_ms=due_ms))
    for name in party.parents:
        above = work.party(name)
        if above is not None:
            _begun_below(work, item, party, above, due_ms)
    given = flat(facts.get("allocations"))
    payers = {
        resource: [work.nearest(name, resource) for name in party.parents]
        for resource in {resource for _, resource, _ in given}
    }

    def turn(allocation: tuple[str, str, int]) -> int:  # the first contract above pays first
        turns = payers[allocation[1]]
        return turns.index(allocation[0]) if allocation[0] in turns else len(turns)

    for giver, resource, value in sorted(given, key=turn):
        _allocated(work, item, party, giver, resource, value)
    _as_drafted(work, item, party, given)
    _counted(work, item, party)


def _as_drafted(work: Posting, item: Posted, party: Party, given: list[tuple[str, str, int]]) -> None:
    """Whether a contract was given the budgets that it was drafted with, where its draft names them."""
    if party.budgets is None:
        return
    allocated: dict[str, int] = {}
    for _, resource, value in given:
        allocated[resource] = allocated.get(resource, 0) + value
    for resource in sorted({*allocated, *party.budgets}):
        wanted, got = party.budgets.get(resource, 0), allocated.get(resource, 0)
        if wanted != got:
            said = f"{party.id} was drafted with {of(resource, wanted)}, and allocated {shown(resource, got)}"
            work.fault(item, "conservation", said, seen=(party.step,), wanted=f"an allocation of {of(resource, wanted)}")


def _begun_below(work: Posting, item: Posted, party: Party, above: Party, due_ms: int | None) -> None:
    """Whether a contract was activated below a live one, and ends with it."""
    if above.is_over or above.state == "drafted":
        said = f"{party.id} was activated below {above.id}, which was {above.is_now}"
        work.fault(item, "delegation", said, seen=(above.step, above.over_at), wanted="a live contract above")
    if above.due_ms is not None and (due_ms is None or due_ms > above.due_ms):
        until = "without a deadline" if due_ms is None else f"until {due_ms} ms"
        said = f"{party.id} may work {until}, and {above.id} above it until {above.due_ms} ms"
        work.fault(item, "delegation", said, seen=(above.step,), wanted=f"a deadline at {above.due_ms} ms or before")


def _counted(work: Posting, item: Posted, party: Party) -> None:
    """A new contract is one of the subcontracts of whoever above counts them."""
    counting, told = work.counting(party, "subcontracts"), flat(item.entry.facts.get("amounts"))
    charged = [account for account, resource, _ in told if resource == "subcontracts"]
    for account in counting:
        if account not in charged:
            said = f"{party.id} is not counted as one of the subcontracts of {account}"
            work.fault(item, "conservation", said, of=account, wanted="a charge of 1 subcontract")
    for account, resource, value in told:
        if (account not in counting or resource != "subcontracts" or value != 1) and work.party(account) is not None:
            said = f"{account} was charged {of(resource, value)} for {party.id}"
            wanted = f"a charge of 1 subcontract to {' and '.join(counting)}" if counting else "no charge"
            work.fault(item, "conservation", said, of=account, wanted=wanted)
        _charged(work, item, account, resource, value, begun=True)


def _warned(work: Posting, item: Posted, party: Party) -> None:
    resource, budget = str(item.entry.facts.get("resource")), item.entry.facts.get("budget")
    account = party.accounts.get(resource)
    if account is None:  # time, too
        return
    _told(work, item, party, resource, item.entry.facts.get("consumed"))
    if isinstance(budget, int) and budget > account.allocated:
        had = of(resource, account.allocated)
        said = f"{party.id} was told of a budget of {shown(resource, budget)}, and was allocated {had}: its utilisation fell"
        work.fault(item, "monotone", said, seen=(party.step,), wanted="a recorded reallocation wherever a budget grows")


def _told(work: Posting, item: Posted, party: Party, resource: str, told: Any) -> None:
    """Whether what an entry says was consumed is what those before it add up to."""
    account = party.accounts.get(resource)
    if account is not None and isinstance(told, int) and told != account.used:
        rules: BookRules = ("conservation", "monotone") if told < account.used else "conservation"
        has = f"its entries add up to {of(resource, account.used)}"
        work.fault(item, rules, f"{party.id} was told to have consumed {of(resource, told)}, and {has}", seen=(party.step,))


def _ended(work: Posting, item: Posted, party: Party) -> None:
    entry = item.entry
    if party.has_ended:
        said = f"{party.id} was {party.state} at step {party.ended}, and then {entry.event}"
        work.fault(item, "lifecycle", said, seen=(party.ended,), wanted="one terminal state")
        return
    if party.state == "drafted" and entry.event != "terminated":
        said = f"{party.id} was {entry.event} and never active"
        work.fault(item, "lifecycle", said, seen=(party.step,), wanted="terminated, as a draft that is dropped")
    over = [name for name, account in sorted(party.accounts.items()) if account.used > account.allocated]
    if over and entry.event == "fulfilled":
        said = f"{party.id} was fulfilled beyond its budget of {', '.join(over)}"
        work.fault(item, "lifecycle", said, seen=(party.step,), wanted="violated")
    if entry.event == "expired" or (party.due_ms is not None and entry.at_ms > party.due_ms):
        due = "" if party.due_ms is None else f", and its deadline was at {party.due_ms} ms"
        said = f"{party.id} of {party.agent} ended as {entry.event} at {entry.at_ms} ms{due}"
        work.fault(item, "deadline", said, seen=(party.step,), wanted="its end within the time that it has")
    work.put(party._replace(state=entry.event, ended=entry.step))
    for resource, told in (entry.facts.get("consumed") or EMPTY).items():
        _told(work, item, party, resource, told)


# -- what is allocated, and what comes back -----------------------------------------------------------------------------


def _reallocated(work: Posting, item: Posted, party: Party) -> None:
    facts = item.entry.facts
    if party.state != "active" or party.is_over:
        said = f"{party.id} was allocated more when it was {party.is_now}"
        work.fault(item, ("delegation", "conservation"), said, seen=(party.step, party.over_at))
    for giver, resource, value in flat(facts.get("allocations")):
        _allocated(work, item, party, giver, resource, value, from_reserve=bool(facts.get("from_reserve")))


def _allocated(
    work: Posting, item: Posted, party: Party, giver: str, resource: str, value: int, *, from_reserve: bool = False
) -> None:
    """An amount passes from one contract's account into that of one below; from outside, where the giver is ""."""
    amount = of(resource, value)
    if value < 0:
        work.fault(item, ("conservation", "monotone"), f"{party.id} was allocated {amount}, which is less than nothing")
    own = work.account(party.id, resource) or BookAccount(reserve=party.reserve.get(resource, 0))
    shares = _more(own.shares, giver, value) if giver else own.shares
    limits = [] if giver else work.counting(party, resource)
    work.change(
        party.id, resource, budget=own.budget + value, allocated=own.allocated + value, reserve=own.reserve, shares=shares
    )
    if giver:
        _given(work, item, party, giver, resource, value, from_reserve=from_reserve)
    elif limits:
        said = f"{party.id} was allocated {amount} from outside, and {', '.join(limits)} above it has a budget of it"
        work.fault(item, ("delegation", "conservation"), said, wanted=f"an allocation of {' or '.join(limits)}")


def _given(
    work: Posting, item: Posted, party: Party, giver: str, resource: str, value: int, *, from_reserve: bool
) -> None:  # fmt: skip
    """The giver's side of an allocation."""
    source, account = work.party(giver), work.account(giver, resource)
    if source is None and not work.whole:
        return
    said = f"{party.id} was allocated {of(resource, value)} by {giver}"
    if source is None or account is None:
        work.fault(item, ("delegation", "conservation"), f"{said}, which has no budget of it")
        return
    said, seen = f"{said} of {source.agent}", (source.step, source.over_at)
    if giver not in [work.nearest(name, resource) for name in party.parents]:
        wanted = "an allocation of the nearest contract above that has a budget of it"
        work.fault(item, "delegation", f"{said}, which is not the one to give it", seen=seen, wanted=wanted)
    if source.is_over or source.state == "drafted":
        work.fault(
            item, "delegation", f"{said}, which was {source.is_now}", seen=seen, wanted="an allocation of a live contract"
        )
    free, kept = account.free, account.kept
    if value > max(0, free):
        had = (
            f"which had {shown(resource, max(0, free))} of {shown(resource, account.budget)} free ({parts(resource, account)})"
        )
        work.fault(item, ("delegation", "conservation"), f"{said}, {had}", seen=seen, wanted=most(resource, free))
    lendable = max(0, free - kept)
    if kept and value > lendable and not from_reserve:
        eaten = of(resource, min(kept, value - lendable))
        wanted = f"{most(resource, lendable)}, so that its reserve of {shown(resource, kept)} is kept"
        work.fault(item, "reserve", f"{said}, {eaten} out of its reserve", seen=seen, wanted=wanted)
    reserve = account.reserve - max(0, value - lendable) if from_reserve else account.reserve
    work.change(giver, resource, out=account.out + value, reserve=max(0, reserve))


def _moved(work: Posting, item: Posted, moved: str, id: str, above: str, resource: str, value: int) -> None:
    """An ended contract gave back what it does not need, or took what it had consumed beyond its budget."""
    party, account, giver = work.party(id), work.account(id, resource), work.account(above, resource)
    did = (
        f"{id} gave {of(resource, value)} back to {above}"
        if moved == "returned"
        else f"{id} took {of(resource, value)} of {above}"
    )
    if party is None or account is None:
        if work.whole:
            work.fault(item, "conservation", f"{did}, and has no budget of it", of=id)
        return
    if not party.is_over:
        work.put(party._replace(ending=item.entry.step))
    had = sum(share.part for share in account.shares if share.above == above)
    signed = value if moved == "excess" else -value
    if value < 0 or had + signed < 0 or above not in [share.above for share in account.shares]:
        said = f"{did}, which had allocated {of(resource, had)} to it"
        work.fault(item, "conservation", said, seen=(party.step,), of=id, wanted=most(resource, had))
    work.change(id, resource, budget=account.budget + signed, shares=_more(account.shares, above, signed))
    if giver is not None:
        work.change(above, resource, out=giver.out + signed)


def _more(shares: tuple[BookShare, ...], above: str, value: int) -> tuple[BookShare, ...]:
    """With so much more from a contract above."""
    if all(share.above != above for share in shares):
        return (*shares, BookShare(above, value))
    return tuple(share._replace(part=share.part + value) if share.above == above else share for share in shares)


def _balanced(work: Posting, item: Posted, id: str) -> None:
    """An ended contract keeps what it has committed, and nothing else."""
    party = work.party(id)
    if party is None or not party.is_over:
        return
    for resource, account in sorted(party.accounts.items()):
        left = account.free
        if left and account.shares and work.is_new(f"{id} {resource} {left}"):
            amount, givers = of(resource, abs(left)), ", ".join(share.above for share in account.shares)
            lost = (
                f"{amount} did not come back to {givers}" if left > 0 else f"{amount} more than it has, not taken of {givers}"
            )
            said = f"{id} of {party.agent} has ended with {of(resource, account.budget)} ({parts(resource, account)}): {lost}"
            wanted = f"{amount} {'returned to' if left > 0 else 'charged to'} {givers}"
            work.fault(item, "conservation", said, seen=(party.step, party.over_at), of=id, wanted=wanted)


# -- what is spent ------------------------------------------------------------------------------------------------------


def _reserved(work: Posting, item: Posted, party: Party) -> None:
    key, amounts = _key(item.entry), item.entry.facts.get("amounts") or EMPTY
    before = work.hold(key)
    if before is not None:
        said = f"{item.agent} reserved twice under the key {key}, which is open since step {before.step}"
        work.fault(item, "conservation", said, seen=(before.step,), wanted="a settlement between the two")
    _may_begin(work, item, party, "reserved")
    for account, resource, value in flat(amounts):
        _in_place(work, item, party, account, resource, value, "reserved")
        had = work.account(account, resource)
        if had is not None:
            _fits(work, item, account, resource, value, "reserved")
            work.change(account, resource, held=had.held + value)
    for resource in item.counts:
        nearest = work.nearest(party.id, resource)
        if nearest and resource not in amounts.get(nearest, EMPTY):
            said = f"{item.agent} began a call under {party.id} without a reservation of {resource} of {nearest}"
            work.fault(item, "conservation", said, of=nearest, wanted="a reservation of whatever the call may consume")
    work.keep(key, OpenReservation(party.id, item.agent, item.entry.step, FrozenDict(amounts)))


def _settled(work: Posting, item: Posted, party: Party) -> None:
    key, facts = _key(item.entry), item.entry.facts
    hold = work.hold(key)
    if hold is None:
        said = f"{item.agent} settled under {party.id} what is not reserved: it was settled before, or never reserved"
        work.fault(item, "conservation", said, wanted="one settlement of each reservation")
        return
    work.keep(key, None)
    held, released = flat(hold.amounts), flat(facts.get("reserved"))
    if sorted(held) != sorted(released) or hold.contract != party.id:
        was = f"{hold.agent} reserved {listed(hold.amounts)} under {hold.contract} at step {hold.step}"
        said = f"{was}, and its settlement released {listed(facts.get('reserved'))} under {party.id}"
        work.fault(item, "conservation", said, seen=(hold.step,), wanted="a settlement that releases what was reserved")
    for account, resource, value in held:
        had = work.account(account, resource)
        if had is not None:
            work.change(account, resource, held=had.held - value)
    charged: dict[str, int] = {}
    for account, resource, value in flat(facts.get("amounts")):
        charged[resource] = charged.get(resource, 0) + value
        _in_place(work, item, party, account, resource, value, "spent")
        _charged(work, item, account, resource, value)
    _all_charged(work, item, party, charged)


def _all_charged(work: Posting, item: Posted, party: Party, charged: Mapping[str, int]) -> None:
    """Whether what the record of a call shows was charged, wherever a contract has a budget of it."""
    for resource, count in item.counts.items():
        account = work.nearest(party.id, resource)
        if account and charged.get(resource, 0) != count:
            was = f"{account} was charged {shown(resource, charged.get(resource, 0))}"
            said = f"{item.agent} consumed {of(resource, count)} under {party.id}, and {was}"
            work.fault(item, "conservation", said, of=account, wanted=f"a charge of {of(resource, count)}")


def _spent(work: Posting, item: Posted, party: Party) -> None:
    _may_begin(work, item, party, "spent")
    for account, resource, value in flat(item.entry.facts.get("amounts")):
        _in_place(work, item, party, account, resource, value, "spent")
        _charged(work, item, account, resource, value, begun=True)


def _may_begin(work: Posting, item: Posted, party: Party, did: str) -> None:
    """Whether the contract, and all above it, are active."""
    over = party if party.is_over else next((above for above, _ in work.above(party) if above.is_over), None)
    if party.state != "drafted" and over is None:
        return
    said = f"{item.agent} {did} {listed(item.entry.facts.get('amounts'))} under {party.id}"
    if party.state == "drafted":
        work.fault(item, "lifecycle", f"{said}, which was never activated", seen=(party.step,))
    if over is not None:
        where = "which" if over is party else f"below {over.id}, which"
        said = f"{said}, {where} was {over.is_now} at step {over.over_at}"
        wanted = "nothing that begins after the end of a contract"
        work.fault(item, "after_end", said, seen=(over.over_at,), of=over.id, wanted=wanted)


def _in_place(work: Posting, item: Posted, party: Party, account: str, resource: str, value: int, did: str) -> None:
    """Whether an amount stands in the account that it belongs to, and is one."""
    nearest = work.nearest(party.id, resource)
    if value >= 0 and nearest == account:
        return
    said = f"{item.agent} {did} {of(resource, value)} under {party.id}"
    if value < 0:
        work.fault(item, ("conservation", "monotone"), f"{said}, which is less than nothing")
    if nearest is not None and nearest != account and (work.whole or work.party(account) is not None):
        has = f"{nearest} is the nearest that has a budget of it" if nearest else "no contract there has a budget of it"
        wanted = f"a charge to {nearest}" if nearest else "no charge"
        work.fault(item, "conservation", f"{said} on the account of {account}, and {has}", of=account, wanted=wanted)


def _fits(work: Posting, item: Posted, account: str, resource: str, value: int, did: str) -> None:
    """Whether what begins fits into what is free. Where nothing is free no call begins, not even one of unknown needs."""
    had, owner = work.account(account, resource), work.party(account)
    if had is None or owner is None or (value <= had.free and (had.free > 0 or (did == "spent" and not value))):
        return
    free = f"which had {shown(resource, max(0, had.free))} of {shown(resource, had.budget)} free ({parts(resource, had)})"
    said = f"{item.agent} {did} {of(resource, value)} of {account}, {free}"
    work.fault(item, "conservation", said, seen=(owner.step,), of=account, wanted=most(resource, had.free))


def _charged(work: Posting, item: Posted, account: str, resource: str, value: int, *, begun: bool = False) -> None:
    """An amount was consumed; `begun`: by an act that had to fit, and not by a call in flight."""
    had = work.account(account, resource)
    if had is not None:
        if begun:
            _fits(work, item, account, resource, value, "spent")
        work.change(account, resource, own=had.own + value)
        work.consume(item, account, resource, value)


def _overrun(work: Posting, item: Posted, id: str, resource: str) -> None:
    """Whether a contract has consumed more than it was ever allocated; told once."""
    party, account = work.party(id), work.account(id, resource)
    if party is None or account is None or account.used <= account.allocated or not work.is_new(f"{id} {resource}"):
        return
    givers = [work.party(share.above) for share in account.shares]
    by = ", ".join(f"{giver.agent} of {giver.id}" for giver in givers if giver is not None)
    allocated = f"{shown(resource, account.allocated)} that {'it was given' if not by else f'{by} allocated'}"
    beyond = shown(resource, account.used - account.allocated)
    said = f"{id} of {party.agent} consumed {of(resource, account.used)}, {beyond} more than the {allocated}"
    work.fault(item, "overrun", said, seen=(party.step,), of=id, wanted=most(resource, account.allocated))


def _key(entry: LedgerEntry) -> str:
    """The name of a reservation: its own, or that of the call that it is for."""
    return str(entry.facts.get("key") or f"step#{entry.step}")


_POSTS: Final[Mapping[str, Callable[[Posting, Posted, Party], None]]] = {
    "activated": _activated,
    "reallocated": _reallocated,
    "reserved": _reserved,
    "settled": _settled,
    "spent": _spent,
    "warned": _warned,
    **dict.fromkeys(TERMINAL, _ended),
}
