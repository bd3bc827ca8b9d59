"""Budgets and deadlines, on traces from any source (Sec. 4.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final, Literal, NamedTuple, TypeAlias, Unpack

from mat.core.errors import SpecError, did_you_mean
from mat.core.record import Record
from mat.core.resources import METERED, AmountInput, Price, Prices, amounts, consumed, price_of, resource_problem, shown
from mat.core.value import EMPTY, FrozenDict
from mat.monitor.contract import Contract, Violated
from mat.monitor.judge import HARNESS
from mat_contracts._shared import any_names, judged, milliseconds_of, one_of
from mat_contracts.catalogue import Options, template
from mat_contracts.resource.audit import audit
from mat_contracts.resource.books import KINDS
from mat_contracts.resource.words import at_most, quantity

Per: TypeAlias = Literal["run", "agent", "role"]
_PER: Final = ("run", "agent", "role")
_CLOSE: Final = 0.85
"""The least similarity at which a name counts as a misspelled resource."""
_TOKENS: Final = ("tokens", "input_tokens", "reasoning_tokens", "output_tokens")


class _Used(NamedTuple):
    """The consumption of a resource so far, and the step that consumed most."""

    amount: int = 0
    most: int = 0
    at: int = -1


@dataclass(frozen=True, slots=True)
class _Spending:
    """Consumption by owner and resource. `over`: reported overruns. `drafts`: resource contracts not yet active."""

    used: FrozenDict = EMPTY
    over: frozenset[str] = frozenset()
    drafts: frozenset[str] = frozenset()


@template
def within_budget(
    budgets: Mapping[str, AmountInput] | None = None,
    *,
    prices: Prices | None = None,
    agents: str | Iterable[str] = (),
    per: Per = "run",
    **options: Unpack[Options],
) -> Contract:
    """Consumption stays within the budget: c_i <= b_i for every resource (Sec. 4.2).

    `budgets` maps resources to amounts, as in a resource contract: tokens by kind, calls, `tool:search`, seconds, and money,
    computed with `prices`. Consumption is counted from the records of any trace: calls, the tokens that model replies name, and
    the time spent in calls. What is not a call (iterations, other spending) is counted from the entries of a ledger. A blocked
    call consumes nothing. `agents` limits the contract to some agents, which share the budgets; with `per="agent"` or `"role"`
    each has its own. The violation is the first step that exceeds a budget, for each resource. With `policy="block"`, a call
    is blocked if it would exceed a budget, or if it needs a resource that is used up (c = b).

    Without `budgets`, every resource contract in the trace (of `agents`, or all) stays within its allocation. The overrun of a
    call in flight is a violation too, and so is a call that takes what its contract has allocated to others. A violation names
    the contract, the agent that works under it, and the agents that allocated.

    Raises `mat.MatError` without any resource, for a misspelled one, a negative amount, money without `prices`, and for
    `prices` without `budgets`.

    Precision 1.00, recall 1.00 on 22 traces written without knowledge of this template.

    >>> from dataclasses import replace
    >>> from mat.core.record import Observation
    >>> from mat.core.value import FrozenDict
    >>> from mat_contracts.traces import broken, record, trace
    >>> observation = Observation(value="text", usage=FrozenDict(input_tokens=30, output_tokens=20))
    >>> reply = replace(record("model_call", "planner"), observation=observation)
    >>> broken(within_budget({"tokens": 100, "calls": 3}), trace(reply, reply))
    ()
    >>> broken(within_budget({"tokens": 99, "calls": 3}), trace(reply, reply))
    (1,)

    Source: B4.
    """
    if budgets is None:
        return _within_contracts(prices, agents, per)
    units = _budgets(budgets, prices)
    one_of(per, "per", _PER)
    whose = any_names(agents, "agents")
    needed = prices or {}

    def step(state: _Spending, record: Record) -> _Spending | Violated:
        state, taken = _consumed(state, record, needed)
        if whose and record.agent not in whose:
            return state
        proposed = record.sealed_seq <= record.asked_seq and not record.blocked
        owner = "" if per == "run" else record.agent if per == "agent" else record.role
        over, used, known = [], dict(state.used), state.over
        for resource, budget in units.items():
            name, more = f"{owner} {resource}", taken.get(resource, 0)
            before = used.get(name) or _Used()
            if more:
                used[name] = _Used(before.amount + more, *max((more, record.step), (before.most, before.at), key=_by_amount))
            beyond = before.amount + more > budget
            if proposed:
                if (beyond and more) or (before.amount >= budget and _may_consume(record, resource, needed)):
                    over.append(_used_up(record, resource, budget, before, options.get("repair")))
            elif beyond and name not in known:
                known = known | {name}
                over.append(_overrun(record, owner, per, resource, budget, used.get(name) or before))
        new = replace(state, used=FrozenDict(used), over=known) if taken else state
        return judged(over, new)

    limits = ", ".join(quantity(resource, budget) for resource, budget in units.items())
    whom = f" of {', '.join(whose)}" if whose else ""
    return Contract(
        id=f"resource.within_budget{'.' + '+'.join(whose) if whose else ''}", step=step, start=_Spending(), kinds=KINDS,
        repair="once the budget is used up, stop or hand over what is done; check what is left before each call",
        text=f"consumption{whom} stays within {limits}{'' if per == 'run' else f' for each {per}'}",
    )  # fmt: skip


def _by_amount(found: tuple[int, int]) -> tuple[int, int]:
    return found[0], -found[1]


def _within_contracts(prices: Prices | None, agents: str | Iterable[str], per: str) -> Contract:
    """Judges the resource contracts in the trace, from the entries of their ledger."""
    given = [name for name, is_given in (("prices=", prices is not None), ("per=", per != "run")) if is_given]
    if given:
        raise SpecError(
            what=f"{' and '.join(given)} {'is' if len(given) == 1 else 'are'} given without budgets=",
            why="the contracts of the trace have their own prices and holders",
            fix='give budgets, such as within_budget({"tokens": 50_000})',
        )  # fmt: skip
    return audit(
        "overrun", "resource.within_budget",
        "reserve what a call may need before it starts (max_tokens), so that it cannot consume more than is left",
        "every contract consumes no more than it was allocated", whose=frozenset(any_names(agents, "agents")),
    )  # fmt: skip


def _budgets(budgets: Mapping[str, AmountInput], prices: Prices | None) -> dict[str, int]:
    """Budgets in smallest units. One SpecError reports every problem."""
    problems = []
    if not isinstance(budgets, Mapping) or not budgets:
        raise SpecError(
            what=f"budgets={budgets!r} names no resource",
            fix='write {"tokens": 50_000}, or omit it to judge the contracts of the trace',
        )
    for name in budgets:
        if isinstance(name, str) and name not in METERED and ":" not in name:
            slip = get_close_matches(name, list(METERED), n=1, cutoff=_CLOSE)
            if slip:
                problems.append(f"there is no resource {name!r}; did you mean {slip[0]!r}?")
    if "money" in budgets and prices is None:
        problems.append("money has no prices: give prices={...}, which may be empty if only explicit spending counts")
    for port, price in (prices or {}).items():
        kind = port.partition(":")[0] if isinstance(port, str) else ""
        if kind not in ("tool", "model", "retriever") or (":" in port and resource_problem(port)):
            problems.append(
                f"the key {port!r} of prices names no port{did_you_mean(str(port), ('tool', 'model', 'retriever'))}"
            )
        elif not isinstance(price, Price):
            problems.append(f"the price of {port} is {price!r}, not a Price")
    try:
        units = amounts(budgets, "budgets")
    except SpecError as error:
        problems.append(error.what)
    if problems:
        raise SpecError(
            what=f"within_budget: {'; '.join(problems)}",
            why="a budget needs a resource that is counted, an amount >= 0 and, for money, prices",
            fix="correct budgets= and prices=; the resources that are counted automatically are "
            f"{', '.join(METERED)}, tool:name, model:name and retriever:name",
        )  # fmt: skip
    return units


def _consumed(state: _Spending, record: Record, prices: Prices) -> tuple[_Spending, dict[str, int]]:
    """The next state, and what a record consumed: as a call, or as a ledger entry that does not concern a call."""
    action = record.action
    if action.kind != "contract":
        return state, consumed(record, prices)
    facts, event = action.arguments, action.name
    contract = facts.get("contract")
    if event == "drafted" and facts.get("parents") and isinstance(contract, str):
        return replace(state, drafts=state.drafts | {contract}), {}
    if event in ("activated", "terminated") and contract in state.drafts:
        return replace(state, drafts=state.drafts - {contract}), {"subcontracts": 1} if event == "activated" else {}
    taken: dict[str, int] = {}
    if event in ("spent", "settled"):
        for given in (facts.get("amounts") or EMPTY).values():
            for resource, value in given.items():
                taken[resource] = taken.get(resource, 0) + value
    return state, taken


def _may_consume(record: Record, resource: str, prices: Prices) -> bool:
    """Whether a call that has not begun will consume a resource whose amount cannot be known in advance."""
    kind = record.action.kind
    if kind == "contract":
        return False
    if resource in _TOKENS:
        return kind == "model_call"
    if resource == "money":
        port = {"tool_call": "tool", "model_call": "model", "retrieval": "retriever"}[kind]
        return price_of(prices, f"{port}:{record.action.name}") is not None
    return resource == "seconds"


def _overrun(record: Record, owner: str, per: Per, resource: str, budget: int, used: _Used) -> Violated:
    who = "the run" if per == "run" else f"{per} {owner}" if owner else f"agents without a {per}"
    beyond = f"{shown(resource, used.amount - budget)} more than the budget of {shown(resource, budget)}"
    took = "" if used.at in (-1, record.step) else f"; step {used.at} consumed the most, {shown(resource, used.most)}"
    return Violated(
        f"{who} consumed {quantity(resource, used.amount)}, {beyond}{took}",
        witness=tuple(sorted({used.at, record.step} - {-1})),
        instance=f"{owner} {resource}".strip(), wanted=at_most(resource, budget),
    )  # fmt: skip


def _used_up(record: Record, resource: str, budget: int, used: _Used, repair: str | None) -> Violated:
    """The violation of a call that must not begin."""
    spent = f"{shown(resource, used.amount)} of the budget of {quantity(resource, budget)} already spent"
    return Violated(
        f"{record.agent} may not call {record.action.name}: {spent}", witness=tuple(sorted({used.at, record.step} - {-1})),
        instance=resource, wanted=at_most(resource, budget), repair=repair or f"{spent}: stop, or hand over what is done",
    )  # fmt: skip


# -- time ---------------------------------------------------------------------------------------------------------------


class _Begun(NamedTuple):
    """When a run or an agent began, and whether it was reported as late."""

    at_ms: int
    step: int
    late: bool = False


@template
def deadline_met(
    *,
    within_ms: int | None = None,
    agents: str | Iterable[str] = (),
    per: Literal["run", "agent"] = "run",
    **options: Unpack[Options],
) -> Contract:
    """Contracts end before their deadline: t - t_start <= tau (Sec. 4.2, 4.3).

    A contract that EXPIRED is a violation, and so is a contract that ends in another state after its deadline. `agents` limits
    this to the contracts of these agents. With `within_ms` the contract judges a trace from any source: its first record and
    the end of its last record are at most that many milliseconds of run time apart. This applies to the run, to `agents`
    together, or with `per="agent"` to each agent. The violation is the first step that ends too late.

    Raises `mat.MatError` for a negative time, for an unknown `per`, and for `per` without `within_ms`.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> def entry(number, event, **facts):
    ...     return record("contract", event, {"entry": number, "contract": "work#1", **facts})
    >>> begun = entry(1, "drafted"), entry(2, "activated", due_ms=2_000)
    >>> broken(deadline_met(), trace(*begun, entry(3, "fulfilled")))
    ()
    >>> broken(deadline_met(), trace(*begun, entry(3, "warned"), entry(4, "terminated")))
    (3,)
    >>> broken(deadline_met(within_ms=1_000), trace(*begun, entry(3, "fulfilled")))
    (2,)

    Source: Sec. 4.2, 4.3, B2.
    """
    whose = any_names(agents, "agents")
    if within_ms is None:
        if per != "run":
            raise SpecError(what=f"per={per!r} is given without within_ms=", fix="give within_ms=, or omit per=")
        return audit(
            "deadline", "resource.deadline_met",
            "check the remaining time before each call, and deliver what is done before it is over",
            "contracts end before their deadline", whose=frozenset(whose),
        )  # fmt: skip
    one_of(per, "per", ("run", "agent"))
    bound = milliseconds_of(within_ms, "within_ms")

    def step(state: FrozenDict, record: Record) -> FrozenDict | Violated:
        if (whose and record.agent not in whose) or (per == "agent" and record.agent == HARNESS):
            return state
        owner = record.agent if per == "agent" else ""
        begun: _Begun | None = state.get(owner)
        if begun is None:
            begun = _Begun(record.at_ms, record.step)
            state = FrozenDict({**state, owner: begun})
        passed = record.sealed_ms - begun.at_ms
        if begun.late or passed <= bound:
            return state
        who = owner or ("the run" if not whose else ", ".join(whose))
        return Violated(
            f"{who} did not finish within {bound} ms: step {record.step} ended after {passed} ms, {passed - bound} ms late",
            state=FrozenDict({**state, owner: begun._replace(late=True)}), witness=tuple(sorted({begun.step, record.step})),
            instance=owner, wanted=f"its last step ended at {begun.at_ms + bound} ms or before",
        )  # fmt: skip

    return Contract(
        id=f"resource.deadline_met.{bound}_ms{'.' + '+'.join(whose) if whose else ''}", step=step, start=EMPTY,
        repair="do less, do it in parallel, or ask for more time",
        text=f"{', '.join(whose) or ('each agent' if per == 'agent' else 'the run')} finishes within {bound} ms",
    )  # fmt: skip
