"""The ledger of a run: who may still spend how much, kept exact under concurrency, crashes and late settlements (Sec. 6.1).

Each contract has an account for each resource that it has a budget for. Any other resource is charged to
the nearest contract above that has one, so a limit on a parent holds in its whole tree. For every account, at every moment,

    out + max(own + held, reserve) <= budget + what calls in flight overran

`own`: settled; `held`: reserved by calls in flight; `out`: allocated to contracts below and not returned, spent there or not;
`reserve`: kept back for the contract's own spending, which uses it first. An amount only moves from one of these to another.
The cost of a call does not grow with the tree: it touches the accounts that it charges and those above them.

A live account whose `own + out` exceeds its budget is overrun: its contract has consumed what it allocated to others, even if
they have not spent it. The contract is VIOLATED at that settlement, and the entry names the call. What calls in flight hold is
no part of this: a reservation is an upper bound, and most of it comes back.

A call can end without anybody knowing what it consumed. The accounts that it would have charged are then `unmetered`, and the
entry of that name reports it. A ledger with `refuses_unmetered` allows no further call that needs such an account.

Every change is a numbered entry (see `mat.core.resources.LedgerEntry`). A reader of the entries can check all of this again;
`mat_contracts.resource.conserved` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from mat.core.errors import Blocked, SpecError, raised_text
from mat.core.resources import Amounts, shown
from mat.core.value import FrozenDict, snapshot_arguments
from mat.resources.allocation import Refunds, charges, returns
from mat.resources.lifecycle import TERMINAL_STATES, LifecycleState, transition

_NO_AMOUNTS: Final[Amounts] = {}


class BudgetSpent(Blocked):
    """A resource contract does not allow a call: a budget is spent, a skill is missing, or the contract has ended.

    It is a `mat.Blocked`. `contract` and `resource` say which; `resource` is "" if the reason was not a budget.

    >>> short = mat.budget.ResourceContract(name="short", budgets={"tool:search": 1})
    >>> @mat.tool
    ... def search(question): return ["prices"]
    >>> with mat.run(), mat.budget.contracted(short, agent="clerk"):
    ...     reply = search("prices")
    ...     try:
    ...         search("stock")
    ...     except mat.budget.BudgetSpent as spent:
    ...         print(spent.resource, spent.contract)
    tool:search short#1

    Source: B4.
    """

    def __init__(self, reason: str, contract: str = "", resource: str = "") -> None:
        self.contract, self.resource = contract, resource
        super().__init__(reason)

    def __reduce__(self) -> tuple[object, ...]:
        return (BudgetSpent, (self.reason, self.contract, self.resource))


@dataclass(slots=True, eq=False)
class BudgetShare:
    """The part of an account's budget that an account above provides, and how much of that part was used."""

    above: Account
    part: int
    used: int = 0


@dataclass(slots=True, eq=False)
class Account:
    """One contract's budget of one resource, in its smallest unit. `shares`: the accounts above that provide it.

    `used`, c_i(t): what was spent here and below, without calls in flight. `granted`, b_i: what the contract was given in all;
    when the contract ends, `budget` shrinks to what is committed, and `granted` does not change.
    """

    node: ContractNode
    resource: str
    budget: int
    reserve: int = 0
    own: int = 0
    held: int = 0
    out: int = 0
    used: int = 0
    granted: int = 0
    alarm: int = 0
    """The consumption that needs a notice: the next warning, or the first unit beyond the budget."""
    shares: list[BudgetShare] = field(default_factory=list)
    unmetered: dict[str, str] = field(default_factory=dict)
    """By contract, here or below: the call that consumed an unknown amount."""

    @property
    def overrun(self) -> int:
        """How much was spent and allocated beyond the budget; 0 unless a call took more than it had reserved."""
        return max(0, self.own + self.out - self.budget)

    @property
    def committed(self) -> int:
        return self.own + self.held + self.out

    @property
    def free(self) -> int:
        """What a call may still take. The contract's own calls may also use the reserve."""
        return self.budget - self.own - self.held - self.out

    @property
    def lendable(self) -> int:
        """What may still be allocated: what is free, without the part of the reserve that is not spent yet."""
        return self.free - max(0, self.reserve - self.own - self.held)


@dataclass(slots=True, eq=False)
class ContractNode:
    """One contract in the ledger. `tracked`: resource -> the account that its spending is charged to."""

    id: str
    name: str
    agent: str
    parents: tuple[ContractNode, ...]
    state: LifecycleState = "drafted"
    cause: str = ""
    depth: int = 0
    start_ms: int = 0
    due_ms: int | None = None
    accounts: dict[str, Account] = field(default_factory=dict)
    tracked: dict[str, Account] = field(default_factory=dict)
    children: list[ContractNode] = field(default_factory=list)
    warn_at: tuple[int, ...] = ()
    warned: set[tuple[str, int]] = field(default_factory=set)
    metered: dict[str, int] = field(default_factory=dict)
    """What was consumed here and below, budgeted or not."""
    line: tuple[ContractNode, ...] = ()
    """The contract and all contracts above it, each once, nearest first."""
    ends: Callable[[ContractNode], str] | None = None
    """Called after each spending: why the contract ends now (Psi), or ""."""
    refunds: Refunds = "last_first"
    """How several contracts above share what is used, and what comes back."""
    asks: bool = False
    """Whether `ends` is set here or in a contract above."""

    @property
    def live(self) -> bool:
        return self.state == "active"

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL_STATES


@dataclass(slots=True, eq=False)
class HeldAmounts:
    """The amounts reserved for a call in flight, by account, the estimate `needs`, and a name of the call for people."""

    node: ContractNode
    amounts: list[tuple[Account, int]]
    needs: Amounts
    facts: FrozenDict
    call: str


class LedgerNotice(NamedTuple):
    """An entry that is not part of a call's record and gets a record of its own."""

    agent: str
    event: str
    facts: dict[str, Any]


class Ledger:
    """All contracts of one run, or of one contract tree outside of runs. Not thread-safe: its owner must serialize calls.

    `now_ms` returns run time. `refuses_unmetered`: after a call of unknown consumption, no call may start that needs the same
    resource.
    """

    def __init__(self, now_ms: Callable[[], int], *, refuses_unmetered: bool = False) -> None:
        self._now_ms = now_ms
        self._refuses_unmetered = refuses_unmetered
        self._entries = 0
        self._names: dict[str, int] = {}
        self.nodes: dict[str, ContractNode] = {}
        self.holds: dict[str, HeldAmounts] = {}
        self.notices: list[LedgerNotice] = []

    # -- contracts ------------------------------------------------------------------------------------------------------

    def draft(
        self,
        name: str,
        agent: str,
        *,
        parents: Sequence[ContractNode] = (),
        warn_at: Sequence[int] = (),
        ends: Callable[[ContractNode], str] | None = None,
        refunds: Refunds = "last_first",
        **facts: Any,
    ) -> ContractNode:
        """Add a contract in state "drafted". It takes no budget yet."""
        number = self._names[name] = self._names.get(name, 0) + 1
        depth = max((parent.depth + 1 for parent in parents), default=0)
        node = ContractNode(f"{name}#{number}", name, agent, tuple(parents), depth=depth, warn_at=tuple(warn_at), ends=ends)
        node.line = (node, *dict.fromkeys(item for parent in parents for item in parent.line))
        node.asks = any(item.ends is not None for item in node.line)
        node.refunds = refunds
        if refunds != "last_first":
            facts["refunds"] = refunds
        self.nodes[node.id] = node
        self._notify(node, "drafted", name=name, agent=agent, parents=[parent.id for parent in parents], **facts)
        return node

    def activate(
        self,
        node: ContractNode,
        allocations: Mapping[str, Amounts],
        *,
        reserve: Amounts = _NO_AMOUNTS,
        duration_ms: int | None = None,
    ) -> str:
        """Take all budgets from the contracts above, or none. Returns why that fails, or ""; after a failure the draft remains.

        `allocations`: parent -> resource -> amount. The key "" holds what comes from outside: the budgets of a contract without
        parents, and limits on resources that no contract above limits. SpecError for invalid allocations.
        """
        now_ms = self._now_ms()
        transition(node.state, "active", node.id)
        _check_allocations(node, allocations)
        problem = self._unavailable(node, allocations, now_ms)
        if problem:
            self._notify(node, "refused", cause=problem)
            return problem
        node.state = transition(node.state, "active", node.id)
        node.start_ms = now_ms
        dues = [parent.due_ms for parent in node.parents if parent.due_ms is not None]
        if duration_ms is not None:
            dues.append(now_ms + duration_ms)
        node.due_ms = min(dues, default=None)
        if len(node.parents) == 1:
            node.tracked = dict(node.parents[0].tracked)
        for giver in ("", *(parent.id for parent in node.parents)):
            for resource, taken in allocations.get(giver, _NO_AMOUNTS).items():
                account = node.accounts.get(resource)
                if account is None:
                    account = node.accounts[resource] = Account(node, resource, 0, reserve.get(resource, 0))
                _add_budget(account, taken, self.nodes[giver].tracked[resource] if giver else None)
        node.tracked.update(node.accounts)
        for account in node.accounts.values():
            _set_alarm(account)
        for parent in node.parents:
            parent.children.append(node)
        made = _nearest_accounts(node, "subcontracts")
        for account in made:
            account.own += 1
            self._count_use(account, 1)
        charged = _by_account((account, 1) for account in made)
        self._notify(
            node, "activated", allocations=_allocations_of(node), due_ms=node.due_ms, **({"amounts": charged} if made else {})
        )
        self._check_limits(node, made)
        return ""

    def _unavailable(self, node: ContractNode, allocations: Mapping[str, Amounts], now_ms: int) -> str:
        """Why a contract cannot be activated, or ""."""
        for parent in node.parents:
            self.expire(parent, now_ms)
            if not parent.live:
                return f"{parent.id} is {parent.state}"
        wanted: dict[tuple[str, str], tuple[Account, int]] = {}
        for giver, given in allocations.items():
            for resource, part in given.items() if giver else ():
                account = self.nodes[giver].tracked.get(resource)
                if account is None:
                    return f"{giver} has no budget of {resource}, so it cannot allocate any"
                key = (account.node.id, resource)  # several parents may share one account
                wanted[key] = (account, wanted.get(key, (account, 0))[1] + part)
        for account in _nearest_accounts(node, "subcontracts"):
            if account.free - wanted.get((account.node.id, "subcontracts"), (account, 0))[1] < 1:
                budget = shown("subcontracts", account.budget)
                return f"subcontracts of {account.node.id}: the budget of {budget} is spent"
        for account, whole in wanted.values():
            problem = self._unaffordable(account, whole)
            if problem:
                return problem
        if len(node.parents) > 1:  # it has no single nearest account to share
            allocated = {resource for given in allocations.values() for resource in given}
            limited = {resource for parent in node.parents for resource in parent.tracked} - {"subcontracts"}
            if missing := sorted(limited - allocated):
                return f"each resource that its parents limit must be allocated, and {', '.join(missing)} is not"
        return ""

    def _unaffordable(self, account: Account, wanted: int) -> str:
        """Why an account cannot allocate an amount without breaking conservation or its reserve, or ""."""
        if wanted <= account.lendable:
            return ""
        resource = account.resource
        left, kept = shown(resource, max(0, account.lendable)), account.free - account.lendable
        reserve = f", with {shown(resource, kept)} in reserve" if kept else ""
        return f"{account.node.id} can allocate {left} of its {resource}{reserve}, not {shown(resource, wanted)}"

    def reallocate(self, node: ContractNode, amounts: Amounts, *, from_reserve: bool = False) -> str:
        """Raise a live contract's budgets from what the contract above has free. Returns why that fails, or "".

        What finished contracts returned is free again (B_available). With `from_reserve`, the reserve may be used, too.
        """
        self.expire(node, self._now_ms())
        if not node.live:
            return f"{node.id} is {node.state}"
        wanted = []
        for resource, more in amounts.items():
            account = node.accounts.get(resource)
            if account is None or not account.shares:
                return f"{node.id} was not allocated {resource}"
            above = account.shares[0].above
            problem = "" if from_reserve and more <= above.free else self._unaffordable(above, more)
            if problem:
                return problem
            wanted.append((account, above, more))
        for account, above, more in wanted:
            above.reserve -= max(0, more - max(0, above.lendable))  # what exceeds the lendable amount comes out of the reserve
            above.out += more
            account.shares[0].part += more
            account.budget += more
            account.granted += more
            _set_alarm(account)
        given: dict[str, dict[str, int]] = {}
        for account, above, more in wanted:
            given.setdefault(above.node.id, {})[account.resource] = more
        self._notify(node, "reallocated", allocations=given, from_reserve=from_reserve)
        return ""

    # -- spending -------------------------------------------------------------------------------------------------------

    def refusal(self, node: ContractNode, needs: Amounts) -> tuple[str, str]:
        """(resource, why) if a call with these needs may not start, else ("", ""). The resource can be ""."""
        self.expire(node, self._now_ms())
        if not node.live:
            why = f": {node.cause}" if node.cause else ""
            return "", f"contract {node.id} is {node.state}{why}"
        tracked = node.tracked
        for resource, need in needs.items():
            account = tracked.get(resource)
            if account is not None:
                why = self._misfit(account, need)
                if why:
                    return resource, why
        return "", ""

    def _misfit(self, account: Account, need: int) -> str:
        """Why a need does not fit an account, or "". A need of 0 means that the amount is not known in advance."""
        free = account.free
        resource, node = account.resource, account.node
        if account.unmetered and self._refuses_unmetered:
            call = next(iter(account.unmetered.values()))
            return (
                f"{resource} of {node.id}: what is left is unknown, because {call} named no usage; name it with "
                "mat.model(usage=...), or count it with spend()"
            )
        if free > 0 and need <= free:
            return ""
        of = f"{resource} of {node.id}"
        budget = shown(resource, account.budget)
        if account.own + account.out >= account.budget and not account.held:
            elsewhere = f", {shown(resource, account.out)} of it allocated" if account.out else ""
            return f"{of}: the budget of {budget} is spent{elsewhere}"
        if free > 0:
            return f"{of}: {shown(resource, need)} needed, {shown(resource, free)} of {budget} left"
        held = shown(resource, account.held)
        return f"{of}: nothing of {budget} is left, with {held} reserved by calls in flight"

    def reserve(self, key: str, node: ContractNode, needs: Amounts, call: str = "") -> dict[str, Any]:
        """Reserve what a call needs until it is settled. Returns the entry's facts. Call `refusal` first.

        `call`: what an overrun is blamed on, such as "model:planner at step 3"; by default the key.
        """
        tracked = node.tracked
        taken = []
        for resource, need in needs.items():
            account = tracked.get(resource)
            if account is not None:
                account.held += need
                taken.append((account, need))
        facts = _by_account(taken)
        self.holds[key] = HeldAmounts(node, taken, needs, facts, call or key)
        return self._entry(node, amounts=facts)

    def settle(self, key: str, actual: Amounts | None, unknown: Iterable[str] = (), **more: Any) -> dict[str, Any]:
        """Settle a call with what it consumed, or None if that is unknown: then the reserved amount counts as spent.

        `unknown`: resources of which the call consumed an unknown amount, nothing of which had been reserved. Returns the
        entry's facts, empty if there is nothing to settle, as for a call that was settled before.
        """
        hold = self.holds.pop(key, None)
        if hold is None:
            return {}
        node = hold.node
        if actual is None:
            actual = hold.needs
        charged = []
        held = {account.resource: (account, amount) for account, amount in hold.amounts}
        for resource, (account, reserved) in held.items():
            spent = actual.get(resource, 0)
            account.held -= reserved
            account.own += spent
            self._count_use(account, spent)
            charged.append((account, spent))
        for item in node.line:
            for resource, spent in actual.items():
                item.metered[resource] = item.metered.get(resource, 0) + spent
        for resource, account in node.tracked.items():  # what was not known when it was reserved
            if resource not in held and actual.get(resource):
                account.own += actual[resource]
                self._count_use(account, actual[resource])
                charged.append((account, actual[resource]))
        entry = self._entry(node, amounts=_by_account(charged), reserved=hold.facts, **more)
        if any(account.node.state != "active" for account, _ in charged):
            entry.update(self._rebalance_ended(account.node for account, _ in charged))
        self._mark_unmetered(node, unknown, hold.call)
        self._check_limits(node, [account for account, _ in charged], hold.call)
        return entry

    def _mark_unmetered(self, node: ContractNode, unknown: Iterable[str], call: str) -> None:
        """Note the accounts that a call would have charged with an unknown amount. The first call of a contract is reported."""
        found = [(name, account) for name in unknown if (account := node.tracked.get(name)) is not None]
        new = [name for name, account in found if node.id not in account.unmetered]
        for _, account in found:
            for item in _with_above(account):
                item.unmetered.setdefault(node.id, call)
        if new:
            self._notify(node, "unmetered", resources=sorted(new), call=call)

    def numbered(self) -> int:
        """The number of the next entry, which can name a reservation."""
        return self._entries + 1

    def hold(self, key: str, node: ContractNode, needs: Amounts) -> None:
        """Like `reserve`, for a reservation without a call: the entry becomes a notice."""
        facts = self.reserve(key, node, needs)
        self.notices.append(LedgerNotice(node.agent, "reserved", {**facts, "key": key}))

    def settled(self, key: str, actual: Amounts | None) -> None:
        """Like `settle`, for a reservation without a call: the entry becomes a notice."""
        hold = self.holds.get(key)
        if hold is not None:
            place = len(self.notices)
            facts = self.settle(key, actual)
            self.notices.insert(place, LedgerNotice(hold.node.agent, "settled", {**facts, "key": key}))

    def spend(self, node: ContractNode, amounts: Amounts, what: str = "") -> tuple[str, str]:
        """Charge what was consumed outside of calls. Returns (resource, why) and charges nothing if it does not fit.

        It stands for what earlier calls of this contract consumed of the same resources, if that was unknown.
        """
        for name in amounts:
            for account in () if name not in node.tracked else _with_above(node.tracked[name]):
                account.unmetered.pop(node.id, None)
        resource, why = self.refusal(node, amounts)
        if why:
            return resource, why
        charged = []
        for item in node.line:
            for name, more in amounts.items():
                item.metered[name] = item.metered.get(name, 0) + more
        for name, more in amounts.items():
            if (paying := node.tracked.get(name)) is not None:
                paying.own += more
                self._count_use(paying, more)
                charged.append((paying, more))
        self._notify(node, "spent", amounts=_by_account(charged), **({"what": what} if what else {}))
        self._check_limits(node, [account for account, _ in charged])
        return "", ""

    def _count_use(self, account: Account, more: int) -> None:
        """Count a consumption in the account and all above it. Several shares pay as the contract's `refunds` says."""
        while len(account.shares) == 1:
            (share,) = account.shares
            account.used += more
            share.used += more
            account = share.above
        account.used += more
        if not account.shares:
            return
        parts, used = [share.part for share in account.shares], [share.used for share in account.shares]
        for share, part in zip(account.shares, charges(more, parts, used, account.node.refunds), strict=True):
            if part:
                share.used += part
                self._count_use(share.above, part)

    def _check_limits(self, node: ContractNode, changed: Sequence[Account], call: str = "") -> None:
        """Send warnings, and end contracts that were overrun or whose conditions end them, the deepest first.

        `call`: the call that was settled.
        """
        if not node.asks and not any(map(_has_alarm, changed)):
            return
        touched: dict[str, ContractNode] = {}
        for account in changed:
            for item in _with_above(account):
                touched[item.node.id] = item.node
                self._warn(item)
        for above in node.line:
            if above is node or above.ends is not None:
                touched.setdefault(above.id, above)
        lived = [item for item in sorted(touched.values(), key=lambda node: -node.depth) if item.live]
        for ended in lived:
            if not ended.live:
                continue
            over = [account for account in ended.accounts.values() if account.overrun]
            if over:
                cause = "; ".join(_overrun(account, f"{call} of {node.agent}") for account in over)
                self._end(ended, "violated", cause, **({"call": call} if call else {}))
            elif ended.ends is not None:
                cause = _end_cause(ended.ends, ended)
                if cause and ended.live:
                    self._end(ended, "terminated", cause)
        for ended in lived:
            if not ended.live:
                self._check_those_above(ended)

    def _warn(self, account: Account) -> None:
        node = account.node
        if not node.live or not node.warn_at:
            return
        for percent in node.warn_at:
            if account.used * 100 >= percent * account.budget and (account.resource, percent) not in node.warned:
                node.warned.add((account.resource, percent))
                self._notify(
                    node, "warned", resource=account.resource, percent=percent, consumed=account.used, budget=account.budget
                )
                _set_alarm(account)

    # -- the end --------------------------------------------------------------------------------------------------------

    def expire(self, node: ContractNode, now_ms: int) -> None:
        """End a contract and those above it whose time has run out, from the outermost down."""
        if node.due_ms is None or now_ms <= node.due_ms:
            self._warn_of_time(node, now_ms)
            return
        for item in sorted(node.line, key=lambda item: item.depth):
            if item.live and item.due_ms is not None and now_ms > item.due_ms:
                self.end(item, "expired", f"its time ended at {item.due_ms} ms")

    def _warn_of_time(self, node: ContractNode, now_ms: int) -> None:
        if node.due_ms is None or not node.live:
            return
        for percent in node.warn_at:
            passed, whole = now_ms - node.start_ms, node.due_ms - node.start_ms
            if passed * 100 >= percent * whole and ("time", percent) not in node.warned:
                node.warned.add(("time", percent))
                self._notify(node, "warned", resource="time", percent=percent, consumed=passed, budget=whole)

    def end(self, node: ContractNode, state: LifecycleState, cause: str = "", **facts: Any) -> None:
        """End a contract, after those below it, and return what it has left. SpecError if it has already ended.

        What calls in flight hold remains reserved until they are settled or the run ends. If the contract above has to cover it
        after an overrun here, and has no longer enough, it is overrun, too.
        """
        self._end(node, state, cause, **facts)
        self._check_those_above(node)

    def _check_those_above(self, node: ContractNode) -> None:
        """End the contracts that are overrun by what an ended contract below them has left in flight."""
        above = {id(item): item for account in node.accounts.values() for item in _with_above(account) if item is not account}
        for account in sorted(above.values(), key=lambda account: -account.node.depth):
            if account.node.live and account.overrun:
                self._end(account.node, "violated", _overrun(account, f"calls in flight of {node.id}"))
                self._check_those_above(account.node)

    def _end(self, node: ContractNode, state: LifecycleState, cause: str = "", **facts: Any) -> None:
        began = node.live
        if began and state == "terminated" and node.due_ms is not None and self._now_ms() > node.due_ms:
            state, cause = "expired", f"its time ended at {node.due_ms} ms; {cause}"
        node.state, node.cause = (
            transition(node.state, state, node.id),
            cause,
        )  # set first, so that ending a child does not end this one again
        overrun = {name: item.overrun for name, item in node.accounts.items() if item.overrun}
        if overrun:
            facts["overrun"] = overrun
            facts["allocated_by"] = {
                name: [share.above.node.agent for share in node.accounts[name].shares] or [node.agent] for name in overrun
            }
        for child in reversed(list(node.children)):
            if not child.ended:
                self._end(child, "terminated", f"{node.id} is {state}" + (f": {cause}" if state == "violated" else ""))
        consumed = {name: item.used for name, item in node.accounts.items()}
        if began and (moved := self._rebalance_ended([node])):
            facts.update(moved)
        self._notify(node, state, cause=cause, consumed=consumed, **facts)

    def _rebalance_ended(self, nodes: Iterable[ContractNode]) -> Mapping[str, Any]:
        """Return what ended contracts no longer need to those above, and charge those above for what they overran.

        The result is {"returned": {contract: {above: {resource: amount}}}, "excess": the same}, without empty parts.
        """
        returned: dict[str, dict[str, dict[str, int]]] = {}
        excess: dict[str, dict[str, dict[str, int]]] = {}
        waiting = list(nodes)
        while waiting:
            node = waiting.pop(0)
            if not node.ended:
                continue
            for account in node.accounts.values():
                for above, more in self._rebalance(account):
                    into = returned if more < 0 else excess
                    into.setdefault(node.id, {}).setdefault(above.node.id, {})[account.resource] = abs(more)
                    waiting.append(above.node)
        if not returned and not excess:
            return {}
        found = {name: moved for name, moved in (("returned", returned), ("excess", excess)) if moved}
        return snapshot_arguments(found, "what moved")

    def _rebalance(self, account: Account) -> list[tuple[Account, int]]:
        """Set an ended contract's budget to what is committed. Returns (account above, change of its share) for each change."""
        moved = []
        surplus = account.budget - account.committed
        if surplus > 0:
            parts, used = [share.part for share in account.shares], [share.used for share in account.shares]
            back = returns(surplus, parts, used, account.node.refunds)
            for share, part in reversed(list(zip(account.shares, back, strict=True))):
                if part:
                    share.part -= part
                    share.above.out -= part
                    account.budget -= part
                    moved.append((share.above, -part))
        if surplus < 0 and account.shares:
            share = account.shares[-1]
            share.part -= surplus
            share.above.out -= surplus
            account.budget -= surplus
            moved.append((share.above, -surplus))
        return moved

    def close(self) -> None:
        """End the run: amounts that were never settled count as spent, and open contracts end."""
        for node in list(self.nodes.values()):
            if node.live:
                self.expire(node, self._now_ms())
            if not node.ended and all(parent.ended for parent in node.parents):
                self.end(node, "terminated", "the run ended")
        for key, hold in list(self.holds.items()):
            node = hold.node
            facts = self.settle(key, None)
            self.notices.append(LedgerNotice(node.agent, "settled", {**facts, "lost": True, "key": key}))

    # -- entries --------------------------------------------------------------------------------------------------------

    def _entry(self, node: ContractNode, **facts: Any) -> dict[str, Any]:
        self._entries += 1
        facts["contract"], facts["entry"] = node.id, self._entries
        return facts

    def _notify(self, node: ContractNode, event: str, **facts: Any) -> None:
        self.notices.append(LedgerNotice(node.agent, event, self._entry(node, **facts)))

    def take_notices(self) -> list[LedgerNotice]:
        """The notices since the last call."""
        notices, self.notices = self.notices, []
        return notices

    def state(self) -> tuple[object, ...]:
        """Everything that decides what may be spent, as a value with a canonical form; empty if there is no contract."""
        return tuple(
            (
                node.id, node.state, node.start_ms, node.due_ms, sorted(node.warned),
                [
                    [name, item.budget, item.reserve, item.own, item.held, item.out, item.used, sorted(item.unmetered)]
                    for name, item in node.accounts.items()
                ],
            )
            for node in self.nodes.values()
        )  # fmt: skip


def _by_account(taken: Iterable[tuple[Account, int]]) -> FrozenDict:
    """{contract: {resource: amount}}, in recorded form."""
    found: dict[str, dict[str, int]] = {}
    for account, value in taken:
        name = account.node.id
        if name in found:
            found[name][account.resource] = value
        else:
            found[name] = {account.resource: value}
    return FrozenDict({name: FrozenDict(part) for name, part in found.items()})


def _set_alarm(account: Account) -> None:
    node, budget = account.node, account.budget
    marks = [-(-percent * budget // 100) for percent in node.warn_at if (account.resource, percent) not in node.warned]
    account.alarm = min((budget + 1, *marks))


def _has_alarm(account: Account) -> bool:
    """Whether the account or one above has reached its alarm, or is overrun."""
    while account.used < account.alarm and account.own + account.out <= account.budget:
        shares = account.shares
        if not shares:
            return False
        if len(shares) > 1:
            return True
        account = shares[0].above
    return True


def _allocations_of(node: ContractNode) -> dict[str, dict[str, int]]:
    """giver -> resource -> amount for what a contract was given; the giver is "" for what came from outside."""
    found: dict[str, dict[str, int]] = {}
    for account in node.accounts.values():
        for giver, part in [(share.above.node.id, share.part) for share in account.shares] or [("", account.budget)]:
            given = found.setdefault(giver, {})
            given[account.resource] = given.get(account.resource, 0) + part
    return found


def _with_above(account: Account) -> Iterable[Account]:
    """The account and all accounts above it, each once."""
    found = {id(account): account}
    waiting = [account]
    while waiting:
        for share in waiting.pop().shares:
            if id(share.above) not in found:
                found[id(share.above)] = share.above
                waiting.append(share.above)
    return found.values()


def _nearest_accounts(node: ContractNode, resource: str) -> list[Account]:
    """The nearest account of a resource on each path up from a contract, without its own; each once."""
    found: dict[str, Account] = {}
    seen: set[str] = set()
    waiting = list(node.parents)
    while waiting:
        parent = waiting.pop(0)
        account = parent.accounts.get(resource)
        if account is not None:
            found.setdefault(parent.id, account)
        elif parent.id not in seen:
            seen.add(parent.id)
            waiting += parent.parents
    return list(found.values())


def _add_budget(account: Account, taken: int, above: Account | None) -> None:
    """Add an amount to the budget of an account, from the account above or, if that is None, from outside."""
    account.budget += taken
    account.granted += taken
    if above is None:
        return
    above.out += taken
    share = next((item for item in account.shares if item.above is above), None)
    if share is None:
        account.shares.append(BudgetShare(above, taken))
    else:  # two parents draw on one account
        share.part += taken


def _check_allocations(node: ContractNode, allocations: Mapping[str, Amounts]) -> None:
    """Raise SpecError if an allocation names a contract that is not above, or evades a limit."""
    parents = [parent.id for parent in node.parents]
    problems = [f"{giver!r} is not above it" for giver in allocations if giver and giver not in parents]
    for giver, given in allocations.items():
        for resource, part in given.items():
            if type(part) is not int or part < 0:
                problems.append(f"{resource}={part!r} is not an amount")
            elif not giver and (above := _nearest_accounts(node, resource)):
                problems.append(f"{resource} is limited by {above[0].node.id}, and cannot come from outside")
    if problems:
        raise SpecError(
            what=f"contract {node.id} cannot be activated: {'; '.join(problems)}",
            why="a budget comes from a contract above, so that no limit can be bypassed",
            fix="allocate from the contracts that it was drafted under",
        )


def _end_cause(ends: Callable[[ContractNode], str], node: ContractNode) -> str:
    """Why a contract's own conditions end it, or "". A condition that raises ends the contract: fail closed."""
    try:
        return ends(node)
    except Exception as error:
        return f"a termination condition {raised_text(error)}"


def _overrun(account: Account, call: str) -> str:
    """Why an account is overrun. `call`: the call that took more than was free, and who made it."""
    resource = account.resource
    used, budget = shown(resource, account.used), shown(resource, account.budget)
    if account.used > account.budget:
        return f"the consumption of {resource} is {used}, over the budget of {budget}"
    own, out, over = (shown(resource, value) for value in (account.own, account.out, account.overrun))
    return (
        f"{call} took {over} {resource} that were not free: {own} spent here and {out} allocated below exceed the budget of "
        f"{budget}"
    )
