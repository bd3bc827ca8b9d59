"""Route tasks: match them against contracts, reserve budgets for each branch, and make agents for a contract (Sec. 6.2).

ranked = match(Requirement(skills=("search",), budgets={"tokens": 500}), {"clerk": clerk, "lawyer": lawyer})

with Routing(work, {"clerk": clerk, "lawyer": lawyer}) as routing:     # both budgets are taken
    with routing.choose("lawyer", task="read it") as child:            # the clerk's is back
        ...

with spawn(work, contract, make, agent="specialist") as made:          # make(contract) -> an agent
    made.work.deliver(made.agent("read it"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import TracebackType
from typing import Any, Final, Generic, TypeAlias, TypeVar

from mat.core.errors import RunStopped, SpecError, did_you_mean
from mat.core.resources import AmountInput, amount, amounts, shown
from mat.core.value import FrozenDict
from mat.resources.contract import Criterion, Inputs, Output, ResourceContract, Skill
from mat.resources.work import Delegated, Work

A = TypeVar("A")
Make: TypeAlias = Callable[[ResourceContract], A]
"""Makes an agent for a contract, which says what it may call and consume, and what it has to deliver."""


# -- matching -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """What a task requires. `skills`: ports, as a contract names them; `budgets`: what it will take; `duration_s`: how long.

    `criteria`: names of criteria that must be among those it is accepted by; `least_quality`: the least Q_min it is held to.
    """

    skills: tuple[str, ...] = ()
    budgets: Mapping[str, AmountInput] = field(default_factory=FrozenDict)
    duration_s: AmountInput | None = None
    criteria: tuple[str, ...] = ()
    least_quality: float = 0.0

    def __post_init__(self) -> None:
        amounts(self.budgets, "a requirement")
        if self.duration_s is not None:
            amount("seconds", self.duration_s)
        object.__setattr__(self, "budgets", FrozenDict(self.budgets))

    @property
    def ports(self) -> tuple[str, ...]:
        return tuple(Skill(name=name).port for name in self.skills)

    @property
    def units(self) -> dict[str, int]:
        """The budgets in smallest units."""
        return amounts(self.budgets, "a requirement")

    @property
    def duration_ms(self) -> int | None:
        return None if self.duration_s is None else amount("seconds", self.duration_s)

    def contract(
        self,
        name: str,
        *,
        inputs: Inputs = Inputs(),
        output: Output = Output(),
        criteria: Sequence[Criterion] = (),
    ) -> ResourceContract:
        """The contract of an agent that is made for the task: its skills, budgets and time, and no others.

        Functions cannot be made of a name: `output` and `criteria` bring those that the requirement asks for, or SpecError.
        """
        missing = [item for item in self.criteria if item not in {given.name for given in criteria}]
        problems = [f"the criteria {', '.join(missing)} are not given"] if missing else []
        if output.least_quality < self.least_quality:
            problems.append(
                f"it needs an output of quality {self.least_quality:g}, but output= asks for {output.least_quality:g}"
            )
        if problems:
            raise SpecError(
                what=f"contract {name!r} for a requirement: {'; '.join(problems)}", why="criteria are functions",
                fix="give criteria=(Criterion(...),) and output=Output(quality=..., least_quality=...)",
            )  # fmt: skip
        return ResourceContract(
            name=name, budgets=self.budgets, duration_s=self.duration_s, inputs=inputs, output=output,
            skills=tuple(Skill(name=item) for item in self.skills), criteria=tuple(criteria),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Whether a contract fits a task. `reasons`: why it does not fit, or why it does."""

    name: str
    contract: ResourceContract
    fits: bool
    reasons: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.fits


def match(
    requirement: Requirement, contracts: Mapping[str, ResourceContract], *, within: Work | None = None
) -> tuple[Match, ...]:
    """All contracts, by name, the best first: those that fit, by the probability that all needed skills work, what one call of
    each is expected to cost, how little else they can do, how little they take, and their order here.

    A contract without a budget of a resource does not limit it. `within`: what would pay for it; it must be able to now.
    """
    found = [_matched(requirement, name, contract, within) for name, contract in contracts.items()]
    places = {name: place for place, name in enumerate(contracts)}
    return tuple(sorted(found, key=lambda item: (not item.fits, *_worth(requirement, item.contract), places[item.name])))


def _matched(requirement: Requirement, name: str, contract: ResourceContract, within: Work | None) -> Match:
    against = list(_against(requirement, contract))
    if within is not None:
        against += _unpaid(contract, within)
    if against:
        return Match(name=name, contract=contract, fits=False, reasons=tuple(against))
    return Match(name=name, contract=contract, fits=True, reasons=tuple(_in_favour(requirement, contract)))


def _against(requirement: Requirement, contract: ResourceContract) -> Iterator[str]:
    for port in requirement.ports:
        if contract.skills is not None and contract.skill(port) is None:
            yield f"it has no skill {port}{did_you_mean(port, [item.port for item in contract.skills])}"
    has = contract.units
    for resource, needed in requirement.units.items():
        if resource in has and has[resource] < needed:
            yield f"it has {shown(resource, has[resource])} of {resource}, {shown(resource, needed)} are needed"
    time, needed_ms = contract.duration_ms, requirement.duration_ms
    if time is not None and needed_ms is not None and time < needed_ms:
        yield f"it has {shown('seconds', time)} s, {shown('seconds', needed_ms)} are needed"
    names = [item.name for item in contract.criteria]
    for criterion in requirement.criteria:
        if criterion not in names:
            yield f"it is not accepted by {criterion}{did_you_mean(criterion, names)}"
    if contract.output.least_quality < requirement.least_quality:
        yield f"it is held to a quality of {contract.output.least_quality:g}, {requirement.least_quality:g} is needed"


def _unpaid(contract: ResourceContract, within: Work) -> Iterator[str]:
    """What a contract in force cannot pay for, or does not allow, at this moment."""
    if not within.live:
        yield f"{within.id} is {within.state}"
    for resource, wanted in contract.units.items():
        account = within.node.tracked.get(resource)
        if account is not None and account.lendable < wanted:
            left = shown(resource, max(0, account.lendable))
            yield f"{within.id} can allocate {left} of {resource}, not {shown(resource, wanted)}"
    counted = within.node.tracked.get("subcontracts")
    if counted is not None and counted.free < 1:
        yield f"{within.id} can make no more of its {counted.budget:,} subcontracts"
    yield from within.objections(contract)


def _in_favour(requirement: Requirement, contract: ResourceContract) -> Iterator[str]:
    for port in requirement.ports:
        skill = contract.skill(port)
        if skill is not None:
            yield f"it has {port}, which works in {float(100 * _success(skill)):g} % of cases"
        else:
            yield f"it may call anything, so {port} too"
    has = contract.units
    for resource, needed in requirement.units.items():
        if resource in has:
            yield f"it has {shown(resource, has[resource])} of {resource} for {shown(resource, needed)}"
    yield from (f"it is accepted by {criterion}" for criterion in requirement.criteria)


def _worth(requirement: Requirement, contract: ResourceContract) -> tuple[Any, ...]:
    """What contracts are ranked by, the smaller the better; exact, so that no rounding decides."""
    skills = [found for port in requirement.ports if (found := contract.skill(port)) is not None]
    works = Fraction(1)
    for skill in skills:
        works *= _success(skill)
    cost: dict[str, int] = {}
    for skill in skills:
        for resource, value in amounts(skill.cost, skill.name).items():
            cost[resource] = cost.get(resource, 0) + value
    other = 1_000_000 if contract.skills is None else len(contract.skills) - len(skills)
    takes = contract.units
    return (
        -works, [cost.get(name, 0) for name in _COMPARED], other,
        [takes.get(name, _UNLIMITED) for name in (*requirement.units, *_COMPARED)],
    )  # fmt: skip


_COMPARED: Final = ("money", "tokens", "seconds", "calls")
"""Resources that costs are compared by, in this order."""
_UNLIMITED: Final = 10**30


def _success(skill: Skill) -> Fraction:
    return Fraction(repr(skill.success)) if isinstance(skill.success, float) else Fraction(skill.success)


# -- routing ------------------------------------------------------------------------------------------------------------


class Routing:
    """Budgets for every branch that a task may take: its block reserves all of them, or none and raises BudgetSpent.

    `choose` hands the task to one branch, and the others return their budgets at once: they are TERMINATED, "not chosen". If
    the block ends without a choice, all are. The time of a branch runs from its reservation on. What choosing costs is the
    router's own: it is paid of what the branches leave.
    """

    __slots__ = ("_chosen", "branches", "work")

    def __init__(
        self,
        work: Work,
        branches: Mapping[str, ResourceContract],
        *,
        inputs: Any = None,
        agents: Mapping[str, str] = FrozenDict(),
    ) -> None:
        """`branches`: name -> contract; `agents`: name -> who would act, by default the branch's name. All are drafted now."""
        unknown = [f"no branch is called {name!r}{did_you_mean(name, branches)}" for name in agents if name not in branches]
        if unknown or not branches:
            raise SpecError(
                what=f"{work.id} routes: {'; '.join(unknown) or 'there is no branch'}",
                why="a task goes to one of the branches",
                fix='Routing(work, {"clerk": contract}, agents={"clerk": "ann"})',
            )  # fmt: skip
        self.work = work
        self.branches: dict[str, Work] = {}
        self._chosen = ""
        for name, contract in branches.items():
            try:
                self.branches[name] = work.draft(contract, agent=agents.get(name, name), inputs=inputs)
            except BaseException:
                self._release(f"branch {name} cannot be drafted")
                raise

    @property
    def chosen(self) -> str:
        """The branch that was taken; empty as long as none was."""
        return self._chosen

    def __enter__(self) -> Routing:
        for name, branch in self.branches.items():
            try:
                branch.activate()
            except RunStopped:
                raise
            except BaseException:
                self._release(f"branch {name} cannot be reserved")
                raise
        return self

    def choose(self, name: str, task: str = "") -> Delegated:
        """Hand the task to one branch; the others end, and what they held is back. A choice is made once."""
        if name not in self.branches:
            raise SpecError(
                what=f"{self.work.id} routes: no branch is called {name!r}{did_you_mean(name, self.branches)}",
                why="a task goes to one of the branches that were reserved", fix=f"choose {', '.join(self.branches)}",
            )  # fmt: skip
        if self._chosen:
            raise SpecError(
                what=f"{self.work.id} routes: {name} cannot be chosen after {self._chosen}",
                why="the other branches have released their reservations", fix="route again, or delegate",
            )  # fmt: skip
        self._chosen = name
        self._release("not chosen", spare=name)
        return Delegated(self.branches[name], task)

    def _release(self, cause: str, *, spare: str = "") -> None:
        for name, branch in self.branches.items():
            if name != spare:
                branch.cancel(cause)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._chosen and not isinstance(error, RunStopped):
            self._release("no branch was chosen" if error is None else f"{type(error).__name__} before a branch was chosen")

    async def __aenter__(self) -> Routing:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


# -- agents made to a contract ------------------------------------------------------------------------------------------


class Spawned(Generic[A]):
    """An agent that is made for a contract, inside a block: `work` is its contract, `agent` what `make` returned.

    The contract is in force before the agent is made: there is no agent without a budget, and what making one takes is its own.
    """

    __slots__ = ("_agent", "_delegated", "_make", "work")

    def __init__(self, work: Work, make: Make[A], task: str) -> None:
        self.work, self._make = work, make
        self._delegated = Delegated(work, task)
        self._agent: list[A] = []

    @property
    def agent(self) -> A:
        """What was made; SpecError before the block, where nothing is."""
        if not self._agent:
            raise SpecError(
                what=f"{self.work.id} has no agent yet", why="it is made when its contract begins", fix="use it inside `with`"
            )
        return self._agent[0]

    @property
    def task(self) -> str | None:
        """The task as it was delivered."""
        return self._delegated.task

    def __enter__(self) -> Spawned[A]:
        self._delegated.__enter__()
        try:
            self._agent.append(self._make(self.work.contract))
        except BaseException as error:
            self._delegated.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._delegated.__exit__(kind, error, trace)

    async def __aenter__(self) -> Spawned[A]:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


def spawn(
    work: Work, contract: ResourceContract, make: Make[A], *, agent: str = "", task: str = "", inputs: Any = None
) -> Spawned[A]:
    """An agent made to a contract under `work`: the contract is what it is made of, and what it is held to.

    `agent`: its name, by default the contract's. Drafted now; SpecError where the contract asks for more than `work` may give.
    """
    return Spawned(work.draft(contract, agent=agent or contract.name, inputs=inputs), make, task)


@dataclass(frozen=True, slots=True, kw_only=True)
class Specialist(Generic[A]):
    """One of a pool: the contract that it works under, and how it is made (or taken, where it exists)."""

    contract: ResourceContract
    make: Make[A]


def assign(
    work: Work,
    requirement: Requirement,
    pool: Mapping[str, Specialist[A]],
    *,
    make: Make[A] | None = None,
    contract: ResourceContract | None = None,
    task: str = "",
    inputs: Any = None,
) -> Spawned[A]:
    """The best of a pool for a task; if none fits, an agent that `make` makes for `contract`, by default the requirement's.

    If none fits and there is no `make`, SpecError says why each does not fit.
    """
    ranked = match(requirement, {name: item.contract for name, item in pool.items()}, within=work)
    if ranked and ranked[0].fits:
        best = pool[ranked[0].name]
        return spawn(work, best.contract, best.make, agent=ranked[0].name, task=task, inputs=inputs)
    if make is None:
        raise SpecError(
            what=f"{work.id} found nobody for a task{''.join(f'; {item.name}: {_joined(item.reasons)}' for item in ranked)}",
            why="a task goes to a contract that meets it", fix="ask for less, or give make= to make an agent for it",
        )  # fmt: skip
    return spawn(work, contract or requirement.contract("specialist"), make, task=task, inputs=inputs)


def _joined(reasons: Sequence[str]) -> str:
    return ", ".join(reasons)
