"""Route tasks: match them against contracts, reserve budgets for each branch, and make agents for a contract (Sec. 6.2).

ranked = match(Requirement(skills=("search",), budgets={"tokens": 500}), {"clerk": clerk, "lawyer": lawyer})

with Routing(work, {"clerk": clerk, "lawyer": lawyer}) as routing:     # reserves both budgets
    with routing.choose("lawyer", task="read it") as child:            # returns the clerk's budget
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
"""Makes an agent for a contract. The contract says what the agent may call and consume, and what it must deliver."""


# -- matching -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """What a task requires. `skills`: ports, as in contracts; `budgets`: what the task takes; `duration_s`: how long it takes.

    `criteria`: names of criteria that the contract must have; `least_quality`: the least Q_min that the contract must require.
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
        """The contract of an agent that is made for the task, with exactly its skills, budgets and time.

        `criteria` and `output` must provide the criteria and the quality that the requirement names, or SpecError.
        """
        missing = [item for item in self.criteria if item not in {criterion.name for criterion in criteria}]
        problems = [f"criteria are missing: {', '.join(missing)}"] if missing else []
        if output.least_quality < self.least_quality:
            problems.append(
                f"it needs an output of quality {self.least_quality:g}, but output= asks for {output.least_quality:g}"
            )
        if problems:
            raise SpecError(
                what=f"contract {name!r} cannot be drafted for a requirement: {'; '.join(problems)}",
                why="criteria are functions, so a name is not enough",
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
    """Whether each contract fits a task, the best first.

    Contracts that fit come first. They are ordered by the probability that all needed skills work, then by the expected cost of
    one call of each, the number of other skills, what they take, and their order in `contracts`. A contract without a budget
    for a resource does not limit it. `within`: the work that would pay for the contract; it must be able to do so now.
    """
    found = [_match_one(requirement, name, contract, within) for name, contract in contracts.items()]
    places = {name: place for place, name in enumerate(contracts)}
    return tuple(sorted(found, key=lambda item: (not item.fits, *_rank(requirement, item.contract), places[item.name])))


def _match_one(requirement: Requirement, name: str, contract: ResourceContract, within: Work | None) -> Match:
    misfits = list(_misfits(requirement, contract))
    if within is not None:
        misfits += _payment_problems(contract, within)
    if misfits:
        return Match(name=name, contract=contract, fits=False, reasons=tuple(misfits))
    return Match(name=name, contract=contract, fits=True, reasons=tuple(_merits(requirement, contract)))


def _misfits(requirement: Requirement, contract: ResourceContract) -> Iterator[str]:
    for port in requirement.ports:
        if contract.skills is not None and contract.skill(port) is None:
            yield f"it has no skill {port}{did_you_mean(port, [item.port for item in contract.skills])}"
    has = contract.units
    for resource, needed in requirement.units.items():
        if resource in has and has[resource] < needed:
            yield f"its budget of {resource} is {shown(resource, has[resource])}, but the task needs {shown(resource, needed)}"
    time, needed_ms = contract.duration_ms, requirement.duration_ms
    if time is not None and needed_ms is not None and time < needed_ms:
        yield f"it has {shown('seconds', time)} s, but the task needs {shown('seconds', needed_ms)} s"
    names = [item.name for item in contract.criteria]
    for criterion in requirement.criteria:
        if criterion not in names:
            yield f"it is not accepted by {criterion}{did_you_mean(criterion, names)}"
    if contract.output.least_quality < requirement.least_quality:
        yield f"it requires a quality of {contract.output.least_quality:g}, but the task needs {requirement.least_quality:g}"


def _payment_problems(contract: ResourceContract, within: Work) -> Iterator[str]:
    """Why `within` cannot pay for a contract, or does not allow it, at this moment."""
    if not within.live:
        yield f"{within.id} is {within.state}"
    for resource, wanted in contract.units.items():
        account = within.node.tracked.get(resource)
        if account is not None and account.lendable < wanted:
            left = shown(resource, max(0, account.lendable))
            yield f"{within.id} can allocate {left} of its {resource}, not {shown(resource, wanted)}"
    counted = within.node.tracked.get("subcontracts")
    if counted is not None and counted.free < 1:
        yield f"subcontracts of {within.id}: the budget of {counted.budget:,} is spent"
    yield from within.objections(contract)


def _merits(requirement: Requirement, contract: ResourceContract) -> Iterator[str]:
    for port in requirement.ports:
        skill = contract.skill(port)
        if skill is not None:
            yield f"it has {port}, which succeeds in {float(100 * _success(skill)):g} % of cases"
        else:
            yield f"it may call any port, {port} included"
    has = contract.units
    for resource, needed in requirement.units.items():
        if resource in has:
            yield f"its budget of {resource} is {shown(resource, has[resource])}, and the task needs {shown(resource, needed)}"
    yield from (f"it is accepted by {criterion}" for criterion in requirement.criteria)


def _rank(requirement: Requirement, contract: ResourceContract) -> tuple[Any, ...]:
    """The sort key of a contract that fits, the smaller the better. It is exact, so that rounding never decides."""
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
"""The resources by which costs are compared, in this order."""
_UNLIMITED: Final = 10**30


def _success(skill: Skill) -> Fraction:
    return Fraction(repr(skill.success)) if isinstance(skill.success, float) else Fraction(skill.success)


# -- routing ------------------------------------------------------------------------------------------------------------


class Routing:
    """Budgets for every branch that a task may take. The block reserves all of them, or none and raises BudgetSpent.

    `choose` hands the task to one branch. The others return their budgets at once: they are TERMINATED, "not chosen". If the
    block ends without a choice, all branches are TERMINATED. A branch's time starts with its reservation. The router pays for
    the choice itself, from what the branches leave.
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
        """Draft every branch. `branches`: name -> contract; `agents`: name -> agent, by default the branch's name."""
        unknown = [f"unknown branch: {name!r}{did_you_mean(name, branches)}" for name in agents if name not in branches]
        if unknown or not branches:
            raise SpecError(
                what=f"{work.id} cannot route: {'; '.join(unknown) or 'there is no branch'}",
                why="a task goes to one of the branches",
                fix='write Routing(work, {"clerk": contract}, agents={"clerk": "ann"})',
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
        """The name of the chosen branch, "" before the choice."""
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
        """Hand the task to one branch. The others end and return their budgets. A second choice raises SpecError."""
        if name not in self.branches:
            raise SpecError(
                what=f"{self.work.id} has no branch {name!r}{did_you_mean(name, self.branches)}",
                why="a task goes to one of the reserved branches", fix=f"choose one of {', '.join(self.branches)}",
            )  # fmt: skip
        if self._chosen:
            raise SpecError(
                what=f"{self.work.id} cannot choose {name} after {self._chosen}",
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


# -- agents made for a contract -----------------------------------------------------------------------------------------


class Spawned(Generic[A]):
    """An agent that is made for a contract, inside a block. `work` is its work, `agent` what `make` returned.

    The contract is in force before the agent is made, so that making the agent is charged to the contract.
    """

    __slots__ = ("_agent", "_delegated", "_make", "work")

    def __init__(self, work: Work, make: Make[A], task: str) -> None:
        self.work, self._make = work, make
        self._delegated = Delegated(work, task)
        self._agent: list[A] = []

    @property
    def agent(self) -> A:
        """The agent. SpecError before the block, because no agent exists yet."""
        if not self._agent:
            raise SpecError(
                what=f"{self.work.id} has no agent yet",
                why="the agent is created when its contract begins",
                fix="use the agent inside the `with` block of its contract",
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
    """Make an agent for a sub-contract of `work`; the agent is made from the contract and works under it.

    `agent`: its name, by default the contract's. The contract is drafted now; SpecError if it asks for more than `work` has.
    """
    return Spawned(work.draft(contract, agent=agent or contract.name, inputs=inputs), make, task)


@dataclass(frozen=True, slots=True, kw_only=True)
class Specialist(Generic[A]):
    """One member of a pool: the contract that it works under, and how to make it (or get it, if it exists)."""

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
    """The best member of a pool for a task. If none fits, `make` makes an agent for `contract`, by default the requirement's.

    If none fits and `make` is None, SpecError says why each one does not fit.
    """
    ranked = match(requirement, {name: item.contract for name, item in pool.items()}, within=work)
    if ranked and ranked[0].fits:
        best = pool[ranked[0].name]
        return spawn(work, best.contract, best.make, agent=ranked[0].name, task=task, inputs=inputs)
    if make is None:
        refusals = [f"{item.name}: {', '.join(item.reasons)}" for item in ranked]
        raise SpecError(
            what="; ".join([f"{work.id} found no agent for the task", *refusals]),
            why="a task needs a contract that meets its requirements",
            fix="ask for less, or give make= to make an agent for it",
        )  # fmt: skip
    return spawn(work, contract or requirement.contract("specialist"), make, task=task, inputs=inputs)
