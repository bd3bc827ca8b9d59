"""Working under a resource contract: what agents and their orchestrators call.

    with mat.budget.contracted(review, agent="reviewer") as work:
        for _ in work.iterations():
            reply = model(f"{work.status().line()}\\n{prompt}")
            ...
        work.deliver(report)

Every call in the block is metered: its needs are reserved before it and settled after it, and the call is blocked if the budget
is too small. That holds inside of a run, in run time, and outside of runs, in real time (`mat.resources.outside`). Threads and
tasks that are started in the block work under its contract, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

from mat.boundary.emit import acting, agent, delegate
from mat.boundary.session import Meter, active, current_meter
from mat.core.errors import RunStopped, SpecError
from mat.core.resources import AmountInput, Amounts, Prices, amounts, metered, price_of, shown, tokens_of
from mat.core.value import FrozenDict
from mat.kernel.inheritance import inherited
from mat.resources.allocation import REFUNDS, Refunds, equal, proportional
from mat.resources.contract import EXHAUSTED, EndCondition, ResourceContract, Skill, beyond, problems_of
from mat.resources.ledger import BudgetSpent, ContractNode, Ledger
from mat.resources.lifecycle import LifecycleState
from mat.resources.outside import OutsideMeter, OutsideRuns
from mat.resources.status import ContractStatus

T = TypeVar("T")
BeforeCall: TypeAlias = Callable[[str, Amounts, ContractStatus], str | None]
"""Asked before each call with its port ("model:planner"), what it is expected to consume, and the status of the contract.
Returns why the call is refused, or None."""
working: ContextVar[Work | None] = ContextVar("mat_contract", default=None)
"""The contract that the agent in this context works under."""


class Accounting(Protocol):
    """What this module needs from a session: it keeps a ledger and records its entries."""

    @property
    def elapsed_ms(self) -> int: ...

    def account(self, act: Callable[[Ledger], T], *, step: bool = False) -> T:
        """Call `act` with exclusive access to the ledger, and record its entries. `step`: the horizon counts the act."""
        ...

    def work_of(self, agent: str) -> Work | None:
        """The contract that governance puts an agent under."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The result of a delivery. `accepted`: the contract is FULFILLED. `problems`: why it is not, a line each."""

    accepted: bool
    problems: tuple[str, ...]
    met: FrozenDict
    """criterion -> whether it holds"""
    score: float
    quality: float | None

    def __bool__(self) -> bool:
        return self.accepted


class Work:
    """The work of an agent under a contract. It begins DRAFTED, is ACTIVE from `activate` or its block on, and ends once.

    As a context manager, plain or async, it activates the contract and lets the agent act under it. At the end of the block,
    the contract is FULFILLED if it requires no output, else TERMINATED with the cause: an exception, or what was not delivered.
    """

    keeper: Accounting
    _prices: Prices

    def __init__(
        self,
        contract: ResourceContract,
        *,
        agent: str = "",
        inputs: Any = None,
        parents: Sequence[Work] = (),
        shares: Mapping[str, Amounts] | None = None,
        after: Sequence[Work] = (),
        role: str = "",
        before: BeforeCall | None = None,
        refunds: Refunds = "last_first",
    ) -> None:
        if refunds not in REFUNDS:
            raise SpecError(what=f"refunds={refunds!r} is not one of {', '.join(REFUNDS)}", fix='write refunds="proportional"')
        if not isinstance(contract, ResourceContract):
            raise SpecError(what=f"{contract!r} is not a resource contract", fix="give a mat.budget.ResourceContract")
        session = active()
        if parents:
            keeper: Any = parents[0].keeper
            if any(parent.keeper is not keeper for parent in parents):
                raise SpecError(what=f"{contract.name}: its parents belong to different runs", fix="delegate within one run")
        else:
            keeper = OutsideRuns() if session is None else session.metering
        self.keeper = cast(Accounting, keeper)
        self.contract, self.parents, self._after = contract, tuple(parents), tuple(after)
        self.agent = agent or acting.get()[0]
        self._role = role
        self._inputs = inputs
        self._shares, self._refunds = shares, refunds
        self._prices = contract.prices or next((parent._prices for parent in parents if parent._prices), contract.prices)
        self._skills = {} if contract.skills is None else {item.port: item for item in contract.skills}
        hooks: list[tuple[Work, BeforeCall]] = [] if before is None else [(self, before)]
        hooks += [hook for parent in parents for hook in parent._hooks]
        self._hooks: tuple[tuple[Work, BeforeCall], ...] = tuple(dict.fromkeys(hooks))
        self._delivered: Delivery | None = None
        self._stack: list[ExitStack] = []
        self.node = self._draft_node()

    # -- lifecycle ------------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self.node.id

    @property
    def state(self) -> LifecycleState:
        return self.node.state

    @property
    def cause(self) -> str:
        """Why the contract ended, unless it was FULFILLED."""
        return self.node.cause

    @property
    def live(self) -> bool:
        return self.node.live

    @property
    def inputs(self) -> Any:
        """The agent's input, checked and prepared as the contract says."""
        return self._inputs

    def _draft_node(self) -> ContractNode:
        contract, parents = self.contract, self.parents
        problems = [problem for parent in parents for problem in parent.objections(contract)]
        problems += _shares_problems(contract, self._shares, len(parents))
        problems += problems_of(contract.inputs.schema, self._inputs, "input")
        if not problems:
            problems += [
                f"the input breaks the rule {rule.text or rule.name}"
                for rule in contract.inputs.rules
                if not rule.holds(self._inputs)
            ]
        if problems:
            raise SpecError(
                what=f"contract {contract.name!r} cannot be drafted: {'; '.join(problems)}",
                why="a contract is in force from the moment it is drafted",
                fix="correct the input, or ask for less",
            )
        if contract.inputs.prepare is not None:
            self._inputs = contract.inputs.prepare(self._inputs)
        conditions = contract.ends_when

        def ends(node: ContractNode) -> str:
            return _end_cause(conditions, self._status(node))

        return self.keeper.account(
            lambda ledger: ledger.draft(
                contract.name, self.agent, parents=[parent.node for parent in parents], warn_at=contract.warn_at,
                ends=ends if conditions else None, refunds=self._refunds, budgets=contract.units, reserve=contract.reserve,
                duration_ms=contract.duration_ms, depth=contract.depth,
                skills=None if contract.skills is None else [item.port for item in contract.skills],
            ),
            step=True,
        )  # fmt: skip

    def activate(self) -> Work:
        """Take the budgets from above and begin. If they are not available, the draft is TERMINATED and BudgetSpent raised."""
        upstream = [item for item in self._after if item.state != "fulfilled"]

        def begin(ledger: Ledger) -> str:
            if self.state != "drafted":
                return f"{self.id} is {self.state}"
            why = "; ".join(f"{item.id}, which comes before it, is {item.state}" for item in upstream)
            contract = self.contract
            why = why or ledger.activate(
                self.node, self._allocations(), reserve=contract.reserve, duration_ms=contract.duration_ms
            )
            if why:
                ledger.end(self.node, "terminated", why)
            return why

        why = self.keeper.account(begin)
        if why:
            raise BudgetSpent(f"contract {self.id} cannot begin: {why}", self.id)
        return self

    def _allocations(self) -> Mapping[str, Amounts]:
        if not self.parents:
            return {"": self.contract.units}
        if self._shares is not None:
            return self._shares
        above, units = self.parents[0].node.tracked, self.contract.units
        limited = {resource: value for resource, value in units.items() if resource in above}
        outside = {resource: value for resource, value in units.items() if resource not in above}
        return {self.parents[0].id: limited, **({"": outside} if outside else {})}

    def deliver(self, output: Any) -> Delivery:
        """Deliver the result. If it meets the contract, the contract is FULFILLED; otherwise the work goes on."""
        spec, contract = self.contract.output, self.contract
        problems = problems_of(spec.schema, output, "output")
        quality = None
        if not problems and spec.quality is not None:
            quality = float(spec.quality(output))
            if quality < spec.least_quality:
                problems.append(f"quality {quality:g} is below {spec.least_quality:g}")
        if not problems and spec.format is not None and not spec.format.holds(output):
            problems.append(f"format: {spec.format.text or spec.format.name}")
        status = self.status()
        met = {item.name: bool(item.holds(output, status)) for item in contract.criteria}
        score = sum(item.weight for item in contract.criteria if met[item.name])
        if score < contract.needed:
            unmet = ", ".join(name for name, holds in met.items() if not holds)
            problems.append(f"criteria: {score:g} of {contract.needed:g}, without {unmet}")
        accepted = not problems

        def judge(ledger: Ledger) -> bool:
            ledger.expire(self.node, self.keeper.elapsed_ms)
            if not self.live:
                problems.append(f"the contract is {self.state}" + (f": {self.cause}" if self.cause else ""))
                return False
            if accepted:
                facts: dict[str, Any] = {} if quality is None else {"quality": quality}
                ledger.end(self.node, "fulfilled", criteria=met, score=score, **facts)
            return accepted

        accepted = self.keeper.account(judge)
        self._delivered = Delivery(
            accepted=accepted, problems=tuple(problems), met=FrozenDict(met), score=score, quality=quality
        )
        return self._delivered

    def cancel(self, cause: str = "cancelled") -> None:
        """Cancel the contract and those below it: they are TERMINATED. Does nothing if it has ended."""

        def end(ledger: Ledger) -> None:
            if not self.node.ended:
                ledger.end(self.node, "terminated", cause)

        self.keeper.account(end)

    def _finish(self, error: BaseException | None) -> None:
        """End the contract at the end of its block."""

        def end(ledger: Ledger) -> None:
            ledger.expire(self.node, self.keeper.elapsed_ms)
            if not self.live:
                return
            if error is not None:
                ledger.end(self.node, "terminated", f"{type(error).__name__}: {_first_line(error)}".rstrip(": "))
            elif self._delivered is not None:
                ledger.end(self.node, "terminated", f"not fulfilled: {'; '.join(self._delivered.problems)}")
            elif self.asks_for_output:
                ledger.end(self.node, "terminated", "nothing was delivered")
            else:
                ledger.end(self.node, "fulfilled")

        self.keeper.account(end)

    @property
    def asks_for_output(self) -> bool:
        """Whether only an output fulfils the contract."""
        output = self.contract.output
        return bool(self.contract.criteria or output.schema is not None or output.quality or output.format)

    def __enter__(self) -> Work:
        if not self.live:
            self.activate()
        with ExitStack() as scope:
            scope.enter_context(agent(self.agent, role=self._role or _role_of(self.agent)))
            scope.callback(working.reset, working.set(self))
            if isinstance(self.keeper, OutsideRuns):
                meter: Meter = OutsideMeter(self, self.keeper)
                scope.enter_context(inherited(current_meter))
                scope.callback(current_meter.reset, current_meter.set(meter))
            self._stack.append(scope.pop_all())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._stack.pop():
            if not isinstance(error, RunStopped):
                self._finish(error)

    async def __aenter__(self) -> Work:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    # -- spending -------------------------------------------------------------------------------------------------------

    def spend(self, what: str = "", /, **consumed: AmountInput) -> None:
        """Count consumption outside of calls, such as `work.spend(gpu_seconds=3)`. BudgetSpent if the budget is too small."""
        needs = amounts(consumed, f"{self.id} spends")

        def charge(ledger: Ledger) -> tuple[str, str]:
            return ledger.spend(self.node, needs, what)

        self._raise_if_refused(*self.keeper.account(charge, step=True))

    def iterations(self) -> Iterator[int]:
        """Rounds, counted from 1, until the budget of iterations is spent or the contract ends."""
        number = 0
        while True:
            try:
                self.spend("iteration", iterations=1)
            except BudgetSpent as error:
                if error.resource == "iterations":
                    return
                raise
            number += 1
            yield number

    def reserve(self, **needed: AmountInput) -> Reservation:
        """Reserve a budget for something other than a call, for a block that settles it. BudgetSpent if it is not available."""
        return Reservation(self, amounts(needed, f"{self.id} reserves"))

    def _raise_if_refused(self, resource: str, why: str) -> None:
        if why:
            raise BudgetSpent(why, self.id, resource)

    def needs(self, kind: str, port: str, arguments: Mapping[str, Any]) -> tuple[dict[str, int], str]:
        """(what a call is expected to consume, why the contract does not allow such a call or "")."""
        skill = self._skills.get(port)
        if skill is None and self.contract.skills is not None:
            return {}, f"{self.id} has no skill {port}: it has {', '.join(self._skills) or 'none'}"
        found = estimate(kind, port, arguments, skill)
        if self._prices and "money" not in found:
            price = price_of(self._prices, port)
            if price is not None:
                found["money"] = price.of(found)
        return found, self._objection(port, found)

    def _objection(self, port: str, needs: Amounts) -> str:
        """Why a hook of this contract, or of one above it, refuses a call, or ""."""
        for work, before in self._hooks:
            why = before(port, needs, work.status())
            if why is not None and not isinstance(why, str):
                raise SpecError(
                    what=f"the hook before the calls of {work.id} returned {why!r}",
                    why="only None allows a call, and a text says why it is refused",
                    fix="return None or a text, from a plain function",
                )
            if why:
                return f"{work.id} refuses {port}: {why}"
        return ""

    def consumption(
        self,
        kind: str,
        name: str,
        *,
        invoked: int,
        elapsed_ms: int,
        usage: Mapping[str, Any],
        needs: Amounts,
        whole: bool = True,
    ) -> dict[str, int]:
        """What a call consumed, as far as known; for the rest, the reserved amounts.

        An attempt that did not reach the port counts as a call, but consumes no tokens and no money. `whole` False: the reply
        broke off, so the usage that it named is the least, and no less than the reserved amounts counts.
        """
        used = {**{resource: needs[resource] for resource in _TOKENS if needs.get(resource)}, **tokens_of(usage)}
        if usage and not whole:
            used = {resource: max(count, needs.get(resource, 0)) for resource, count in used.items()}
            used["tokens"] = max(used.get("tokens", 0), used.get("input_tokens", 0) + used.get("output_tokens", 0))
        as_usage = {"total_tokens" if resource == "tokens" else resource: count for resource, count in used.items()}
        found = metered(kind, name, elapsed_ms, as_usage if invoked else {}, self._prices if invoked else {})
        known = used if invoked else (*_TOKENS, "money")
        return {**{resource: need for resource, need in needs.items() if resource not in known}, **found}

    def unknown(self, kind: str, name: str, *, usage: Mapping[str, Any], needs: Amounts) -> tuple[str, ...]:
        """The resources of which a reply consumed an amount that neither its usage nor a reservation tells.

        A usage that names no reasoning tokens had none.
        """
        if kind != "model_call":
            return ()
        stated = tokens_of(usage)
        missing = [item for item in _TOKENS if item not in stated and not needs.get(item)]
        if stated:
            missing = [item for item in missing if item != "reasoning_tokens"]
        price = price_of(self._prices, f"model:{name}") if self._prices else None
        if price is not None and any(price.of({item: 1_000_000}) > price.of({}) for item in missing):
            missing.append("money")
        return tuple(missing)

    # -- what is left ---------------------------------------------------------------------------------------------------

    def status(self) -> ContractStatus:
        """The current status of the contract, Monitor(C, t)."""
        return self.keeper.account(lambda ledger: self._status(self.node))

    def _status(self, node: ContractNode) -> ContractStatus:
        now_ms = self.keeper.elapsed_ms
        accounts = dict(sorted(node.tracked.items()))
        begun = node.state != "drafted"
        return ContractStatus(
            contract=node.id, state=node.state, cause=node.cause, at_ms=now_ms,
            elapsed_ms=max(0, now_ms - node.start_ms) if begun else 0,
            duration_ms=None if node.due_ms is None else node.due_ms - node.start_ms,
            budgets={name: item.granted for name, item in accounts.items()},
            consumed={name: item.used for name, item in accounts.items()},
            reserved={name: item.held for name, item in accounts.items()},
            left={name: max(0, item.free) for name, item in accounts.items()},
            metered=dict(node.metered), warnings=tuple(f"{name} {percent} %" for name, percent in sorted(node.warned)),
            unmetered=tuple(name for name, item in accounts.items() if item.unmetered),
        )  # fmt: skip

    def left(self, resource: str) -> int | None:
        """How much of a resource a call may still take, in smallest units; None without a limit."""
        account = self.node.tracked.get(resource)
        return None if account is None else max(0, account.free)

    # -- below ----------------------------------------------------------------------------------------------------------

    def objections(self, contract: ResourceContract) -> Iterator[str]:
        """Why a contract can never be below this one: it requires what this one, or one above it, never had."""
        return beyond(contract, _lineage(self))

    def draft(
        self, contract: ResourceContract, *, agent: str, inputs: Any = None, after: Sequence[Work] = (), role: str = ""
    ) -> Work:
        """Draft a sub-contract. It takes its budgets from this contract when it is activated.

        SpecError if it requires more than this contract ever had, other skills, or a deeper level than allowed.
        """
        return Work(contract, agent=agent, inputs=inputs, parents=(self,), after=after, role=role)

    def delegate(
        self,
        contract: ResourceContract,
        *,
        agent: str,
        task: str = "",
        inputs: Any = None,
        after: Sequence[Work] = (),
        role: str = "",
    ) -> Delegated:
        """Hand a task to another agent under a sub-contract: a context manager, plain or async, in which that agent acts."""
        return Delegated(self.draft(contract, agent=agent, inputs=inputs, after=after, role=role), task)

    def split(
        self, shares: Mapping[str, int] | Iterable[str], resources: Iterable[str] | None = None
    ) -> dict[str, dict[str, int]]:
        """Divide what may be allocated among several sub-contracts: name -> resource -> amount, in smallest units.

        A mapping gives weights (proportional); names alone get equal parts. `resources` defaults to all that have a budget,
        except calls of single ports and subcontracts.
        """
        if self.node.ended:
            raise BudgetSpent(f"contract {self.id} is {self.state}: it has nothing to divide", self.id)
        tracked = self.node.tracked
        names = list(resources) if resources is not None else [
            name for name in tracked if ":" not in name and name != "subcontracts"
        ]  # fmt: skip
        weights = shares if isinstance(shares, Mapping) else None
        receivers = list(shares)
        found: dict[str, dict[str, int]] = {name: {} for name in receivers}
        for resource in sorted(names):
            account = self.node.tracked.get(resource)
            if account is None:
                others = f", or choose from {', '.join(self.node.tracked)}" if self.node.tracked else ""
                raise SpecError(what=f"{self.id} has no budget of {resource}", fix=f"give the contract this budget{others}")
            total = max(0, account.lendable)
            parts = equal(total, receivers) if weights is None else proportional(total, weights)
            for name, part in parts.items():
                found[name][resource] = part
        return found

    def top_up(self, *, from_reserve: bool = False, **more: AmountInput) -> None:
        """Raise this contract's budgets from what the one above has free. BudgetSpent if that is too little."""
        additional = amounts(more, f"top up {self.id}")
        self._raise_if_refused(
            "", self.keeper.account(lambda ledger: ledger.reallocate(self.node, additional, from_reserve=from_reserve))
        )


class Delegated:
    """A task handed to another agent under a sub-contract. The block returns its Work.

    `task` is the task as it was delivered, None if it was lost.
    """

    __slots__ = ("_delegation", "task", "work")

    def __init__(self, work: Work, task: str) -> None:
        self.work = work
        self.task: str | None = task
        self._delegation: delegate | None = None

    def __enter__(self) -> Work:
        if not self.work.live:
            self.work.activate()
        try:
            self._delegation = delegate(self.work.agent, self.task or "", role=self.work._role)
        except BaseException as error:
            self.work._finish(error)
            raise
        self.task = self._delegation.task
        self._delegation.__enter__()
        return self.work.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._delegation is not None
        try:
            self.work.__exit__(kind, error, trace)
        finally:
            self._delegation.__exit__(kind, error, trace)

    async def __aenter__(self) -> Work:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


class Reservation:
    """A reserved budget. `settle` takes what was really used; without it, the whole reservation counts as spent."""

    __slots__ = ("_key", "_needs", "_work")

    def __init__(self, work: Work, needs: Amounts) -> None:
        self._work, self._needs = work, needs
        self._key = ""

    def __enter__(self) -> Reservation:
        work = self._work

        def hold(ledger: Ledger) -> tuple[str, str]:
            resource, why = ledger.refusal(work.node, self._needs)
            if not why:
                self._key = f"reservation#{ledger.numbered()}"
                ledger.hold(self._key, work.node, self._needs)
            return resource, why

        work._raise_if_refused(*work.keeper.account(hold, step=True))
        return self

    def settle(self, **consumed: AmountInput) -> None:
        """Settle with what was really used. A second settlement has no effect."""
        self._settle(amounts(consumed, f"{self._work.id} settles"))

    def _settle(self, actual: Amounts | None) -> None:
        self._work.keeper.account(lambda ledger: ledger.settled(self._key, actual))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._settle(None)

    async def __aenter__(self) -> Reservation:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


def contracted(
    contract: ResourceContract, *, agent: str = "", inputs: Any = None, role: str = "", before: BeforeCall | None = None
) -> Work:
    """Work under a resource contract: a context manager, plain or async. Below another contract it is a sub-contract.

    `agent`: who acts, by default the agent that acts here; `role`: of that agent. `inputs`: the input of the task, which the
    contract checks. The contract is drafted now, active inside `with`, and ended after it. Returns a Work: `status()`,
    `deliver(output)`, `delegate(contract, agent=)`, `spend(...)`, `iterations()`. Calls inside are reserved before they start
    and settled after; what the budget does not cover raises `mat.budget.BudgetSpent`. That holds inside of a run and outside,
    where time is real, and where a budget of tokens or money allows no call after a reply that names no usage. `before(port,
    needs, status)` is asked before each call, here and in sub-contracts: a text that it returns refuses the call. Raises
    `mat.MatError` for anything but a contract, for invalid inputs, and for a sub-contract beyond the one above.

    >>> team = mat.budget.ResourceContract(name="team", budgets={"tool:search": 3})
    >>> @mat.tool
    ... def search(question): return ["prices"]
    >>> with mat.run(), mat.budget.contracted(team, agent="planner") as work:
    ...     reply = search("prices")
    ...     work.status().line()
    'Budget: 1/3 calls of search'

    Source: B2, B6.
    """
    above = current()
    return Work(
        contract, agent=agent, inputs=inputs, parents=() if above is None else (above,), role=role, before=before
    )  # fmt: skip


def current() -> Work | None:
    """The contract that is in force here, or None."""
    work, session = working.get(), active()
    if session is None:
        return work
    keeper = cast(Accounting, session.metering)
    return work if work is not None and work.keeper is keeper else keeper.work_of(acting.get()[0])


_TOKENS: Final = ("input_tokens", "reasoning_tokens", "output_tokens", "tokens")
_LIMIT_ARGUMENTS: Final = (
    "max_tokens", "max_output_tokens", "max_completion_tokens", "max_tokens_to_sample", "maxOutputTokens", "maxTokens",
    "max_new_tokens", "num_predict",
)  # fmt: skip
_LIMIT_HOLDERS: Final = ("body", "config", "generation_config", "generationConfig", "inferenceConfig", "options")
"""The arguments that hold the limit in requests over HTTP, of Gemini, Bedrock and Ollama."""
_INPUT_CHARS_PER_TOKEN: Final = 4


def estimate(kind: str, port: str, arguments: Mapping[str, Any], skill: Skill | None) -> dict[str, int]:
    """Estimate what a call will consume: resource -> amount, 0 if unknown.

    The skill's declared cost takes precedence. Output tokens are the call's limit (`max_tokens` and similar, also inside of
    `body`, `config`, `options` and their kin), input tokens a quarter of the characters in its texts.
    """
    counted = {"tool_call": "tool_calls", "model_call": "model_calls", "retrieval": "searches"}[kind]
    found = {"calls": 1, counted: 1, port: 1, "seconds": 0, "money": 0}
    if kind == "model_call":
        most = _limit(arguments, depth=2)
        read = -(-_characters(arguments) // _INPUT_CHARS_PER_TOKEN) if most else 0
        found.update(input_tokens=read, reasoning_tokens=0, output_tokens=most, tokens=read + most)
    if skill is not None:
        found.update(amounts(skill.cost, skill.name))
    if not found["money"]:
        del found["money"]
    return found


def _limit(arguments: Any, *, depth: int) -> int:
    """How many tokens a call lets the model write; 0 if it sets no limit."""

    def member(name: str) -> Any:
        return arguments.get(name) if isinstance(arguments, Mapping) else getattr(arguments, name, None)

    most = next((value for name in _LIMIT_ARGUMENTS if type(value := member(name)) is int and value > 0), 0)
    if most or not depth:
        return most
    holders = (member(name) for name in _LIMIT_HOLDERS)
    return next((found for item in holders if item is not None and (found := _limit(item, depth=depth - 1))), 0)


def _characters(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(_characters(item) for item in value.values())
    if isinstance(value, list | tuple):
        return sum(_characters(item) for item in value)
    return 0


def _lineage(parent: Work) -> Iterator[tuple[str, ResourceContract, int]]:
    """The contracts from `parent` upwards, as `beyond` takes them: (name, contract, levels)."""
    waiting = [(parent, 1)]
    while waiting:
        work, levels = waiting.pop()
        yield work.id, work.contract, levels
        waiting += [(item, levels + 1) for item in work.parents]


def _shares_problems(contract: ResourceContract, shares: Mapping[str, Amounts] | None, parents: int) -> Iterator[str]:
    """The problems of shares that are missing or do not add up to the contract's budgets."""
    if shares is None:
        if parents > 1:
            yield f"it does not say which of its {parents} parents pays what: give shares={{parent.id: {{resource: amount}}}}"
        return
    units = contract.units
    for resource in sorted({*units, *(name for given in shares.values() for name in given)}):
        whole = sum(given.get(resource, 0) for given in shares.values())
        if whole != units.get(resource, 0):
            budget = shown(resource, units.get(resource, 0))
            yield f"its shares of {resource} add up to {shown(resource, whole)}, but its budget is {budget}"


def _end_cause(conditions: Sequence[EndCondition | str], status: ContractStatus) -> str:
    for condition in conditions:
        if condition == EXHAUSTED:
            if status.exhausted:
                return f"exhausted: {', '.join(status.exhausted)}"
        elif isinstance(condition, EndCondition) and condition.holds(status):
            return condition.name
    return ""


def _role_of(name: str) -> str:
    who, role = acting.get()
    return role if who == name else ""


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "")
