"""Conservation in real runs: random trees and graphs of agents at work on the deterministic loop, judged by the templates of
`mat_contracts.resource` from nothing but the trace."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from random import Random
from typing import Any, Final, Literal, TypeAlias

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mat
from mat.core.errors import SpecError
from mat.core.run import Run
from mat.monitor.judge import judge
from mat.resources import ResourceContract, Skill, Work
from mat_contracts.resource import (
    conserved,
    deadline_met,
    delegation_within_parent,
    exactly_one_terminal_state,
    no_spend_after_terminal,
    reserve_kept,
    utilisation_monotone,
)

EXAMPLES: Final = int(os.environ.get("MAT_EXAMPLES", "150"))
"""How many programs; 10,000 take about three minutes."""
LAWS: Final = (
    conserved(), exactly_one_terminal_state(), no_spend_after_terminal(), reserve_kept(), utilisation_monotone(),
    delegation_within_parent(),
)  # fmt: skip


# -- programs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Terms:
    tokens: int | None = None
    calls: int | None = None
    reserve_percent: int = 0
    seconds: int | None = None
    search_only: bool = False


@dataclass(frozen=True)
class Think:
    """A model call. `wrote` None: the reply does not say what it took."""

    most: int = 0
    wrote: int | None = None
    ms: int = 0


@dataclass(frozen=True)
class Search:
    ms: int = 0
    fails: bool = False


@dataclass(frozen=True)
class Spend:
    tokens: int = 0


@dataclass(frozen=True)
class Hold:
    """A reservation by hand. `used` None: never said. `lost`: its block is never left."""

    tokens: int = 0
    used: int | None = None
    ms: int = 0
    lost: bool = False


@dataclass(frozen=True)
class TopUp:
    tokens: int = 0
    from_reserve: bool = False


@dataclass(frozen=True)
class Pause:
    ms: int = 0


@dataclass(frozen=True)
class Stop:
    """The agent's own contract is cancelled, or its agent crashes."""

    crash: bool = False


@dataclass(frozen=True)
class Hand:
    """Work is handed on. `how`: in place; in a task; in one that is cut off after some time; in one that nobody awaits.

    `shared`: the contract stands under the agent's own and under the first that lives elsewhere, and each pays a half;
    `in_proportion`: and gets back in proportion what is left.
    """

    terms: Terms = Terms()
    body: tuple[Step, ...] = ()
    how: Literal["here", "beside", "cut", "left"] = "here"
    ms: int = 0
    shared: bool = False
    in_proportion: bool = False


Step: TypeAlias = Think | Search | Spend | Hold | TopUp | Pause | Stop | Hand


def programs(*, levels: int = 3, most: int = 10) -> st.SearchStrategy[Hand]:
    few, ms = st.integers(0, 9), st.sampled_from([0, 1, 2, 5, 20])
    perhaps = st.none() | few
    rarely: Any = [None] * 30

    def terms(tokens: list[int]) -> Any:
        return st.builds(
            Terms,
            tokens=st.sampled_from([None, *tokens]),
            calls=st.sampled_from([*rarely, *range(6)]),
            reserve_percent=st.sampled_from([0, 0, 20, 50]),
            seconds=st.sampled_from([*rarely, 0, 1, 2]),
            search_only=st.sampled_from([*rarely, True]).map(bool),
        )

    plain = {
        st.builds(Think, most=few, wrote=perhaps, ms=ms): 4,
        st.builds(Search, ms=ms, fails=st.booleans()): 1,
        st.builds(Spend, tokens=few): 2,
        st.builds(Hold, tokens=few, used=perhaps, ms=ms, lost=st.sampled_from([False, False, True])): 2,
        st.builds(TopUp, tokens=few, from_reserve=st.booleans()): 2,
        st.builds(Pause, ms=st.sampled_from([1, 2, 5, 20, 1100])): 2,
        st.builds(Stop, crash=st.booleans()): 2,
    }

    def handed(body: Any, *, root: bool = False) -> Any:
        how = st.sampled_from(["here", "beside", "cut", "left"])
        return st.builds(
            Hand,
            terms=terms(list(range(4, 31))) if root else terms(list(range(16))),
            body=st.lists(body, max_size=most).map(tuple),
            how=st.just("here") if root else how,
            ms=ms,
            shared=st.just(False) if root else st.booleans(),
            in_proportion=st.just(False) if root else st.booleans(),
        )

    def step(depth: int) -> Any:
        choices = [item for item, weight in plain.items() for _ in range(weight)]
        if depth:
            choices += [handed(step(depth - 1))] * 8
        return st.sampled_from(choices).flatmap(lambda chosen: chosen)

    return handed(step(levels), root=True)


# -- acting them out -----------------------------------------------------------------------------------------------------


@mat.model("thinker")
async def think(prompt: str, max_tokens: int, wrote: int | None, ms: int) -> dict[str, Any]:
    await asyncio.sleep(ms / 1000)
    return {"text": "so", "usage": {} if wrote is None else {"input_tokens": 1, "output_tokens": wrote}}


@mat.tool
async def search(ms: int, fails: bool) -> str:
    await asyncio.sleep(ms / 1000)
    if fails:
        raise ConnectionError("down")
    return "found"


@mat.tool
async def unknown_skill() -> str:
    return "never"


def contract_of(terms: Terms, above: ResourceContract | None) -> ResourceContract:
    budgets = {name: value for name in ("tokens", "calls") if (value := getattr(terms, name)) is not None}
    limited = terms.search_only or (above is not None and above.skills is not None)
    return ResourceContract(
        name="c", budgets=budgets, reserve_percent=terms.reserve_percent, duration_s=terms.seconds,
        skills=(Skill(name="search"),) if limited else None,
    )  # fmt: skip


class CrashError(Exception):
    pass


class Office:
    """Who works, in the order in which they began."""

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.left: list[asyncio.Task[None]] = []

    async def open(self, program: Hand) -> None:
        await self.hand(program, None)
        await asyncio.gather(*self.left, return_exceptions=True)

    async def hand(self, hand: Hand, above: Work | None) -> None:
        contract = contract_of(hand.terms, None if above is None else above.contract)
        other = next((item for item in self.works if item.live and above is not None and item is not above), None)
        parents = [item for item in (above, other if hand.shared else None) if item is not None]
        shares = None
        if len(parents) == 2:
            halves = {name: (value // 2, value - value // 2) for name, value in contract.units.items()}
            shares = {parent.id: {name: half[place] for name, half in halves.items()} for place, parent in enumerate(parents)}
        try:
            refunds = "proportional" if hand.in_proportion else "last_first"
            work = Work(contract, agent=f"agent{len(self.works)}", parents=parents, shares=shares, refunds=refunds)
            self.works.append(work)
            async with work:
                await self.act(work, hand.body)
        except (
            SpecError,
            mat.budget.BudgetSpent,
            CrashError,
        ):  # a draft that asks for what there cannot be; a refusal; a crash
            pass

    async def act(self, work: Work, body: tuple[Step, ...]) -> None:
        beside = []
        try:
            for step in body:
                if isinstance(step, Hand) and step.how != "here":
                    task = asyncio.create_task(self.hand(step, work))
                    (self.left if step.how == "left" else beside).append(task)
                    if step.how == "cut":
                        asyncio.get_running_loop().call_later(step.ms / 1000, task.cancel)
                else:
                    await self.one(work, step)
        finally:
            await asyncio.gather(*beside, return_exceptions=True)

    async def one(self, work: Work, step: Step) -> None:
        try:
            match step:
                case Think():
                    await think("", step.most, step.wrote, step.ms)
                case Search():
                    await search(step.ms, step.fails)
                case Spend():
                    work.spend(tokens=step.tokens)
                case Hold():
                    held = work.reserve(tokens=step.tokens)
                    held.__enter__()
                    await asyncio.sleep(step.ms / 1000)
                    if step.used is not None and not step.lost:
                        held.settle(tokens=step.used)
                        held.settle(tokens=step.used)
                    if not step.lost:
                        held.__exit__(None, None, None)
                case TopUp():
                    work.top_up(tokens=step.tokens, from_reserve=step.from_reserve)
                case Pause():
                    await asyncio.sleep(step.ms / 1000)
                case Stop(crash=True):
                    raise CrashError
                case Stop():
                    work.cancel()
                case Hand():
                    await self.hand(step, work)
        except (mat.budget.BudgetSpent, ConnectionError):
            pass


def execute(program: Hand) -> Run:
    with mat.run(LAWS, seed=1) as run:
        asyncio.run(Office().open(program))
    assert run.result is not None
    return run.result


def broken(program: Hand) -> list[str]:
    """The laws that the trace of a program breaks: none where a ledger without one of its guards refuses to go on."""
    try:
        return [item.contract for item in execute(program).failures]
    except SpecError:
        return []


@pytest.mark.full
@settings(max_examples=EXAMPLES)
@given(programs())
def test_whatever_agents_do_the_laws_of_their_budgets_hold(program: Hand) -> None:
    assert [str(item) for item in execute(program).failures] == []


@pytest.mark.full
@settings(max_examples=max(20, EXAMPLES // 10))
@given(programs())
def test_one_program_has_one_head(program: Hand) -> None:
    assert execute(program).head == execute(program).head


# -- each guard taken out ------------------------------------------------------------------------------------------------


def smallest(laws: set[str]) -> Hand:
    """A program whose trace breaks one of these laws: searched from a fixed seed, then shrunk as long as it breaks the same."""
    program = hypothesis.find(
        programs(levels=2, most=6),
        lambda item: not laws.isdisjoint(broken(item)),
        settings=settings(max_examples=1_000, phases=[hypothesis.Phase.generate], database=None, deadline=None),
        random=Random(7),
    )
    law = next(law for law in broken(program) if law in laws)
    smaller: Hand | None = program
    while smaller is not None:
        program = smaller
        smaller = next((item for item in simpler(program) if law in broken(item)), None)
    return program


def simpler(thing: Any) -> Iterator[Any]:
    """A program, or a part of one, with less in it."""
    match thing:
        case bool():
            yield from [False] if thing else []
        case int():
            yield from dict.fromkeys(item for item in (0, thing // 2, thing - 1) if 0 <= item < thing)
        case "beside" | "cut" | "left":
            yield "here"
        case tuple():
            for size in (8, 4, 2, 1):
                for place in range(0, len(thing), size):
                    yield thing[:place] + thing[place + size :]
            for place, item in enumerate(thing):
                if isinstance(item, Hand):
                    yield (*thing[:place], *item.body, *thing[place + 1 :])
                for less in simpler(item):
                    yield (*thing[:place], less, *thing[place + 1 :])
        case _ if is_dataclass(thing):
            for item in fields(thing):
                value = getattr(thing, item.name)
                if item.name in ("tokens", "calls", "seconds") and isinstance(thing, Terms) and value is not None:
                    yield replace(thing, **{item.name: None})
                for less in simpler(value):
                    yield replace(thing, **{item.name: less})


def size(program: Hand) -> int:
    """How many contracts and steps it has."""
    return 1 + sum(size(step) if isinstance(step, Hand) else 1 for step in program.body)


def shown(step: Step, depth: int = 0) -> str:
    """A program as people read it, a line a step: what differs from the simplest is named."""
    facts = [
        f"{item.name}={value}"
        for item in fields(step)
        if item.name not in ("body", "terms") and (value := getattr(step, item.name)) != item.default
    ]
    if isinstance(step, Hand):
        facts += [f"{item.name}={value}" for item in fields(Terms) if (value := getattr(step.terms, item.name)) != item.default]
    line = "  " * depth + " ".join([type(step).__name__.lower(), *facts])
    return "\n".join([line, *(shown(item, depth + 1) for item in getattr(step, "body", ()))])


WITHOUT: Final = {
    "calls in flight do not count": ({"conserved"}, 4),
    "settles as often as it is told": ({"conserved"}, 2),
    "gives back what calls in flight hold": ({"conserved"}, 4),
    "gives nothing back": ({"conserved"}, 2),
    "allocates what is not there": ({"conserved", "delegation_within_parent"}, 4),
    "lends its reserve": ({"reserve_kept"}, 4),
    "forgets lost settlements": ({"conserved"}, 2),
    "keeps overruns from those above": ({"conserved"}, 4),
    "does not end what overran": ({"exactly_one_terminal_state", "conserved"}, 4),
    "ends nothing below": (
        {"no_spend_after_terminal", "exactly_one_terminal_state", "delegation_within_parent", "conserved"},
        6,
    ),
    "lets calls start after the end": ({"no_spend_after_terminal", "delegation_within_parent"}, 4),
    "limits nothing below": ({"conserved"}, 4),
}
"""What a ledger without one of its guards does -> the templates that may say so, and how many contracts and steps suffice."""


@pytest.mark.full
@pytest.mark.parametrize(
    ("guard", "laws", "most"), [(name, *expected) for name, expected in WITHOUT.items()], ids=list(WITHOUT)
)
def test_a_run_without_one_guard_is_caught_by_its_trace_and_shrunk(
    guard: str, laws: set[str], most: int, take_out: Callable[[str], None]
) -> None:
    take_out(guard)
    program = smallest({f"resource.{law}" for law in laws})  # raises NoSuchExample where none breaks any of them
    assert size(program) <= most, shown(program)


def test_a_counterexample_reads_as_who_does_what_under_whom(take_out: Callable[[str], None]) -> None:
    program = Hand(
        terms=Terms(tokens=3), body=(Hand(how="beside", body=(Think(wrote=0),)), Think(most=3, wrote=0))
    )  # fmt: skip
    assert broken(program) == []
    take_out("calls in flight do not count")
    (violation,) = execute(program).failures
    assert violation.contract == "resource.conserved"
    assert violation.message.startswith("agent1 reserved 0 tokens from c#1, which had 0 of 3 free")
    assert shown(program).splitlines() == [
        "hand tokens=3",
        "  hand how=beside",
        "    think wrote=0",
        "  think most=3 wrote=0",
    ]


def test_a_skill_that_a_contract_has_not_is_refused_and_shows_where_nobody_asks(take_out: Callable[[str], None]) -> None:
    program = Hand(terms=Terms(search_only=True), body=(Think(), Search()))

    def called(run: Run) -> list[str]:
        return [record.action.name for record in run.records if record.invoked]

    assert called(execute(program)) == ["search"]
    take_out("knows no skills")
    assert called(execute(program)) == ["thinker", "search"]


def test_a_call_after_the_deadline_is_refused_and_shows_where_nobody_looks_at_the_clock(
    take_out: Callable[[str], None],
) -> None:
    program = Hand(terms=Terms(seconds=1), body=(Pause(1100), Think()))

    def late(run: Run) -> list[str]:
        _, outcomes = judge(run.records, [deadline_met()])
        return [item.message for outcome in outcomes for item in outcome.violations]

    (expired,) = late(execute(program))
    assert "expired" in expired
    take_out("has all the time")
    (unseen,) = late(execute(program))
    assert "fulfilled" in unseen


def test_two_contracts_that_live_on_one_account_cannot_both_give_it(take_out: Callable[[str], None]) -> None:
    program = Hand(terms=Terms(tokens=2), body=(Hand(body=(Hand(terms=Terms(tokens=3), shared=True),)),))
    assert broken(program) == []
    take_out("checks each giver alone")
    assert set(broken(program)) == {"resource.conserved", "resource.delegation_within_parent"}
