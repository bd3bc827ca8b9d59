"""Resource contracts as frozen values: C = (I, O, S, R, T, Phi, Psi) (Sec. 4.1, 4.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import FunctionType
from typing import Any, Final, Literal, TypeAlias

from mat.core.errors import SpecError, did_you_mean, enumeration, plural
from mat.core.resources import METERED, SCALES, AmountInput, Prices, amount, amounts, resource_problem
from mat.core.value import FrozenDict
from mat.resources.status import ContractStatus

Schema: TypeAlias = Any
"""A type (a dataclass, `list[str]`, a pydantic model; a TypedDict, before Python 3.12 that of typing_extensions), checked by
pydantic and not converted; None for anything."""
EXHAUSTED: Final = "exhausted"
"""The name of a termination condition: a budget is completely spent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A named condition on a value. `holds(value)` returns whether the value meets it; `text` says what it requires."""

    name: str
    holds: Callable[[Any], object]
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """I: the agent's input. `rules` check an input that fits the schema; `prepare` converts it for the agent."""

    schema: Schema = None
    rules: tuple[Check, ...] = ()
    prepare: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """O: the output that the agent delivers. `quality` rates it from 0 to 1, and `least_quality` (Q_min) is required.

    `format` checks the form, such as Markdown with severity labels. Such an output can still fail the criteria.
    """

    schema: Schema = None
    quality: Callable[[Any], float] | None = None
    least_quality: float = 0.0
    format: Check | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """One of S: a port that the agent may call, such as `tool:search`, `model:planner`, `retriever:kb`, or a tool's bare name.

    `cost`: what one call is expected to consume; it is reserved before the call. `success`: the probability that a call works.
    """

    name: str
    cost: Mapping[str, AmountInput] = field(default_factory=FrozenDict)
    success: float = 1.0

    @property
    def port(self) -> str:
        return self.name if ":" in self.name else f"tool:{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """A success criterion, (phi, w) of Phi: a condition on (output, status) and its weight."""

    name: str
    holds: Callable[[Any, ContractStatus], object]
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndCondition:
    """A termination condition, one of Psi. It is checked after each spending and ends the contract, successful or not."""

    name: str
    holds: Callable[[ContractStatus], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandsOn:
    """Limits on delegation: which skills and modes the sub-contracts may have, at any depth. None: no limit."""

    skills: tuple[str, ...] | None = None
    modes: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceContract:
    """What an agent may consume, for how long, for which task, and when the task is done.

    - `budgets`: resource -> amount. The names are open; those in `mat.core.resources.METERED` are counted automatically
      (tokens, calls, iterations, money, ...), and "tool:search" counts one port. Money is in the currency of `prices` (port
      -> its `Price`), time in seconds.
    - `duration_s`: seconds of run time from activation; None for no limit.
    - `inputs`, `output`: what the agent gets and must deliver. `skills`: the ports that it may call, None for any.
    - `criteria` with `threshold`: the task is done if the weights of the criteria that hold add up to at least `threshold`; by
      default all must hold. `ends_when`: further conditions that end the contract.
    - `reserve_percent`: of each budget, kept back from sub-contracts. `depth`: how many levels of sub-contracts there may be
      below, None for any. `hands_on`: what they may be given.
    - `warn_at`: percentages of a budget, or of the time, that are each reported once. `mode`: the contract mode by name.

    Raises `mat.MatError`, which lists every problem.

    >>> review = mat.budget.ResourceContract(name="review", budgets={"tokens": 50_000, "seconds": 2.5}, duration_s=60)
    >>> review.units, review.duration_ms
    ({'seconds': 2500, 'tokens': 50000}, 60000)

    Source: B1 (Sec. 4.1, 4.2).
    """

    name: str
    budgets: Mapping[str, AmountInput] = field(default_factory=FrozenDict)
    duration_s: AmountInput | None = None
    inputs: Inputs = Inputs()
    output: Output = Output()
    skills: tuple[Skill, ...] | None = None
    criteria: tuple[Criterion, ...] = ()
    threshold: float | None = None
    ends_when: tuple[EndCondition | Literal["exhausted"], ...] = ()
    reserve_percent: int = 0
    warn_at: tuple[int, ...] = (80,)
    depth: int | None = None
    hands_on: HandsOn | None = None
    mode: str = ""
    prices: Prices = field(default_factory=FrozenDict)

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise SpecError(
                what=f"resource contract {self.name!r}: {'; '.join(problems)}",
                why="an invalid contract would limit nothing",
                fix='write, for example, ResourceContract(name="review", budgets={"tokens": 50_000, "iterations": 3})',
            )
        object.__setattr__(self, "budgets", FrozenDict(self.budgets))

    def _problems(self) -> Iterable[str]:
        if not isinstance(self.name, str) or not self.name or "#" in self.name:
            yield f"name={self.name!r} is not a name (a string without '#')"
        yield from _amount_problems("budgets", self.budgets)
        for resource in self.budgets:  # names are open, so a misspelled one would limit nothing
            meant = next((name for name in METERED if name in (f"{resource}s", f"{resource}es")), "")
            if meant:
                yield f"{resource!r} is not counted; did you mean {meant!r}?"
        if self.duration_s is not None:
            yield from _amount_problems("duration_s", {"seconds": self.duration_s})
        for skill in self.skills or ():
            yield from _skill_problems(skill)
        if not isinstance(self.inputs, Inputs) or not isinstance(self.output, Output):
            yield "inputs must be an Inputs, and output an Output"
            return
        for what, schema in (("input", self.inputs.schema), ("output", self.output.schema)):
            if problem := _schema_problem(schema):
                yield f"{what}: {problem}"
        wrong = [item for item in self.criteria if not isinstance(item, Criterion)]
        yield from (f"{item!r} is not a Criterion" for item in wrong)
        if not wrong:
            yield from self._success_problems()
            yield from self._number_problems()

    def _success_problems(self) -> Iterable[str]:
        """The problems of Phi, Psi and the required quality."""
        total = sum(item.weight for item in self.criteria)
        if any(item.weight < 0 for item in self.criteria):
            yield "a criterion has a negative weight"
        if self.threshold is not None and not 0 <= self.threshold <= total:
            yield f"threshold={self.threshold!r} cannot be met: the weights of the criteria add up to {total:g}"
        if not 0 <= self.output.least_quality <= 1:
            yield f"least_quality={self.output.least_quality!r} is outside 0 to 1"
        if self.output.least_quality and self.output.quality is None:
            yield "least_quality needs a function quality= that measures it"
        for ending in self.ends_when:
            if ending != EXHAUSTED and not isinstance(ending, EndCondition):
                yield f"{ending!r} is not a termination condition; write an EndCondition, or {EXHAUSTED!r}"

    def _number_problems(self) -> Iterable[str]:
        for name, value in (("reserve_percent", self.reserve_percent), *(("warn_at", value) for value in self.warn_at)):
            if type(value) is not int or not 0 <= value <= 100:
                yield f"{name} {value!r} is not a whole percentage"
        if self.depth is not None and (type(self.depth) is not int or self.depth < 0):
            yield f"depth={self.depth!r} is not an integer >= 0"
        for port in self.prices:
            if port not in ("tool", "model", "retriever") and (
                problem := resource_problem(port) or ("" if ":" in port else "?")
            ):
                yield f"prices: {port!r} is not a port" if problem else ""

    @property
    def needed(self) -> float:
        """theta: the sum of weights at which Phi is met."""
        return sum(item.weight for item in self.criteria) if self.threshold is None else self.threshold

    @property
    def duration_ms(self) -> int | None:
        return None if self.duration_s is None else amount("seconds", self.duration_s)

    @property
    def reserve(self) -> dict[str, int]:
        """B_reserve by resource, rounded down."""
        return {resource: value * self.reserve_percent // 100 for resource, value in self.units.items()}

    @property
    def units(self) -> dict[str, int]:
        """The budgets in smallest units, by resource."""
        return amounts(self.budgets, self.name)

    def skill(self, port: str) -> Skill | None:
        """The skill that covers a port such as `tool:search`, or None."""
        return next((item for item in self.skills or () if item.port == port), None)

    def with_units(self, units: Mapping[str, int]) -> ResourceContract:
        """The same contract with other budgets, in smallest units."""
        parts = {name: Fraction(value, SCALES[name]) if name in SCALES else value for name, value in units.items()}
        return replace(self, budgets=parts)


def _skill_problems(skill: Skill) -> Iterable[str]:
    if not isinstance(skill, Skill):
        yield f"{skill!r} is not a Skill"
        return
    if problem := resource_problem(skill.port):
        yield f"skill {problem}"
    yield from _amount_problems(f"the cost of {skill.name}", skill.cost)
    if not 0 <= skill.success <= 1:
        yield f"the success of {skill.name} is {skill.success!r}, which is not a probability"


def _amount_problems(where: str, table: Any) -> Iterable[str]:
    if not isinstance(table, Mapping):
        yield f"{where} is {table!r}, not a mapping of resources to amounts"
        return
    for resource, value in table.items():
        try:
            amount(resource, value)
        except SpecError as error:
            yield f"{where}: {error.what}"


def problems_of(schema: Schema, value: Any, what: str) -> list[str]:
    """The problems that pydantic finds in a value, a line each. It converts nothing."""
    if schema is None:
        return []
    from pydantic import ValidationError

    try:
        _adapter(schema).validate_python(value, strict=True)
    except ValidationError as error:
        return [f"{what}{''.join(f'.{part}' for part in item['loc'])}: {item['msg']}" for item in error.errors()]
    return []


def _adapter(schema: Schema) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(schema)


def _schema_problem(schema: Schema) -> str:
    """Why pydantic cannot check values with this schema, or ""."""
    if schema is None:
        return ""
    if isinstance(schema, str | FunctionType):
        return f"{schema!r} is not a type"
    from pydantic import PydanticUserError

    try:
        _adapter(schema)
    except (PydanticUserError, TypeError, ValueError, NameError) as error:
        return f"its schema {getattr(schema, '__name__', schema)!r} cannot be used for checking: {str(error).splitlines()[0]}"
    return ""


def beyond(contract: ResourceContract, above: Iterable[tuple[str, ResourceContract, int]]) -> Iterator[str]:
    """The problems of a contract that asks for more than the contracts above it have or hand on.

    `above`: for each of them, its name in messages, the contract, and its distance in levels, from 1.
    """
    for name, over, levels in above:
        if levels == 1:
            yield from _unknown_skills(contract, name, over)
        if over.depth is not None and levels > over.depth:
            yield f"{name} allows {plural(over.depth, 'level')} of contracts below it"
        if over.hands_on is not None:
            yield from _not_handed_on(contract, name, over.hands_on)


def _unknown_skills(contract: ResourceContract, above: str, over: ResourceContract) -> Iterator[str]:
    if over.skills is None:
        return
    known = [item.port for item in over.skills]
    if contract.skills is None:
        yield f"{above} limits skills, so contract {contract.name!r} must give skills="
    for item in contract.skills or ():
        if item.port not in known:
            yield f"{above} has no skill {item.port}{did_you_mean(item.port, known)}"


def _not_handed_on(contract: ResourceContract, above: str, hands: HandsOn) -> Iterator[str]:
    if hands.skills is not None:
        ports = {Skill(name=name).port for name in hands.skills}
        if contract.skills is None:
            yield f"{above} limits the skills that it hands on, so contract {contract.name!r} must give skills="
        for item in contract.skills or ():
            if item.port not in ports:
                yield f"{above} does not hand on {item.port}"
    if hands.modes is not None and contract.mode not in hands.modes:
        noun = "mode" if len(hands.modes) == 1 else "modes"
        allowed = f"only the {noun} {enumeration(hands.modes)}" if hands.modes else "no mode"
        own = f"mode {contract.mode}" if contract.mode else "no mode"
        yield f"{above} hands on {allowed}, but contract {contract.name!r} has {own}"
