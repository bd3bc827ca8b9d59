"""A short notation for traces: each step is a value, and playing it makes real records with the public verbs of `mat`.

`W.refund(order="A17") >> {"ok": True}` is a call of a tool that writes, with its reply; `>> TimeoutError()` is one that
fails. `R` is a tool that reads, `T` an undeclared one, `H` a write of high impact. The agents of these traces survive each
error, as agents do.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import mat
from mat.core.record import Record
from mat.core.run import Run
from mat.core.value import freeze, thaw


class RateLimitError(Exception):
    """What the client of a tool raises for HTTP 429."""


class ServerError(Exception):
    """What the client of a tool raises for HTTP 5xx."""


class NotFoundError(Exception):
    """What the client of a tool raises for HTTP 404."""


class InvalidError(Exception):
    """What the client of a tool raises for a request it does not understand."""


ERRORS = {"rate_limit": RateLimitError, "server_error": ServerError, "not_found": NotFoundError, "invalid": InvalidError}

_decision: ContextVar[tuple[Any, ...]] = ContextVar("decision", default=())
_answer: ContextVar[Any] = ContextVar("answer", default=True)


def _rule(record: Any) -> Any:
    """What the step in progress wants governance to decide, once."""
    pending = _decision.get()
    _decision.set(())
    return pending[0] if pending else None


def _approver(what: str, details: Any) -> Any:
    answer = _answer.get()
    if isinstance(answer, BaseException):
        raise answer
    return answer


@dataclass(frozen=True)
class World:
    """What the steps of one trace share: memories and works (of resource contracts) by name."""

    memories: dict[str, mat.Memory] = field(default_factory=dict)
    works: dict[str, Any] = field(default_factory=dict)

    def memory(self, name: str) -> mat.Memory:
        return self.memories.setdefault(name, mat.memory({}, name=name))


@dataclass(frozen=True)
class Step:
    """One step: what is done, and the steps inside it."""

    play: Callable[[World], Awaitable[None]]
    inside: tuple[Step, ...] = ()
    governed: bool = False

    def needs_governance(self) -> bool:
        return self.governed or any(step.needs_governance() for step in self.inside)


@dataclass(frozen=True)
class Call:
    """A call of a tool, a model or a retriever: `call >> reply` sets what it returns or raises."""

    make: Callable[..., Any]
    name: str
    arguments: dict[str, Any]
    reply: Any = "ok"
    takes_ms: int = 0
    decision: Any = None
    answer: Any = True
    options: dict[str, Any] = field(default_factory=dict)
    inside: tuple[Step | Call, ...] = ()

    def __rshift__(self, reply: Any) -> Call:
        return replace(self, reply=reply)

    def ms(self, takes_ms: int) -> Call:
        return replace(self, takes_ms=takes_ms)

    def opt(self, **options: Any) -> Call:
        return replace(self, options={**self.options, **options})

    def blocked(self, reason: str = "policy") -> Call:
        return replace(self, decision=mat.policy.Block(reason))

    def rewritten(self, **arguments: Any) -> Call:
        return replace(self, decision=mat.policy.Rewrite({**self.arguments, **arguments}))

    def asked(self, answer: Any = True) -> Call:
        """The mediator asks its approver first."""
        return replace(self, decision=mat.policy.NeedsApproval(), answer=answer)

    def doing(self, *steps: Step | Call) -> Call:
        """Steps that happen while the call is in progress."""
        return replace(self, inside=steps)

    def needs_governance(self) -> bool:
        return self.decision is not None or any(step.needs_governance() for step in self.inside)

    async def play(self, world: World) -> None:
        async def port(**_: Any) -> Any:
            await asyncio.sleep(self.takes_ms / 1000)
            await play(self.inside, world)
            reply = copy.deepcopy(self.reply)
            if isinstance(reply, BaseException):
                raise reply
            return reply

        port.__name__ = self.name
        kinds = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in self.arguments]
        port.__signature__ = inspect.Signature(kinds)  # type: ignore[attr-defined]
        _decision.set(() if self.decision is None else (self.decision,))
        _answer.set(self.answer)
        try:
            await self.make(port, self.name, **self.options)(**copy.deepcopy(self.arguments))
        except mat.Blocked:
            pass
        except Exception as error:
            if not isinstance(error, (type(self.reply), OSError, *ERRORS.values())):  # a mistake in the trace
                raise


class Tools:
    """`W.refund(order="A17")`, `W["orders.refund"](order="A17")`."""

    def __init__(self, **options: Any) -> None:
        self._options = options

    def __getattr__(self, name: str) -> Callable[..., Call]:
        return self[name]

    def __getitem__(self, name: str) -> Callable[..., Call]:
        def make(port: Any, name: str, **options: Any) -> Any:
            return mat.tool(port, name=name, errors=ERRORS, **{**self._options, **options})

        return lambda **arguments: Call(make, name, arguments)


W, R, T, H = Tools(effect="write"), Tools(effect="read"), Tools(), Tools(effect="write", impact="high")


def model(reply: Any = "ok", name: str = "model", **arguments: Any) -> Call:
    """A call of a language model, recorded in full."""

    def make(port: Any, name: str, **options: Any) -> Any:
        return mat.model(name, record="keep", errors=ERRORS, **options)(port)

    return Call(make, name, arguments or {"messages": [{"role": "user", "content": "go on"}]}, reply)


def find(name: str, query: str, *texts: str) -> Call:
    """A call of a retriever."""

    def make(port: Any, name: str, **options: Any) -> Any:
        return mat.retriever(name, errors=ERRORS, **options)(port)

    return Call(make, name, {"query": query}, [mat.Passage(text=text, source=f"{name}.md") for text in texts])


def _plain(function: Callable[[World], Any], *, governed: bool = False, answer: Any = True) -> Step:
    async def step(world: World) -> None:
        _decision.set(())
        _answer.set(answer)
        with suppress(mat.Blocked, LookupError, TimeoutError):  # an agent goes on
            function(world)

    return Step(step, governed=governed)


def tell(text: str) -> Step:
    return _plain(lambda _: mat.message("user", text))


def msg(to: str, text: str) -> Step:
    return _plain(lambda _: mat.message(to, text))


def user(text: str) -> Step:
    return _plain(lambda _: mat.untrusted(text))


def outside(text: str, channel: str) -> Step:
    return _plain(lambda _: mat.untrusted(text, channel=channel))


def check(what: str, passed: bool = True, supports: Any = ()) -> Step:
    return _plain(lambda _: mat.verify(what, passed, supports=supports))


def approve(what: str, answer: Any = True, /, **details: Any) -> Step:
    return _plain(lambda _: mat.approval(what, **details), governed=True, answer=answer)


def claim(text: str, *supports: Any) -> Step:
    return _plain(lambda _: mat.claim(text, supports=supports))


def detect(what: str) -> Step:
    return _plain(lambda _: mat.detect(what))


def mitigate(kind: Any, **details: Any) -> Step:
    return _plain(lambda _: mat.mitigate(kind, **details))


def finish(answer: Any = None, status: Any = "completed") -> Step:
    return _plain(lambda _: mat.finish(answer, status=status))


def state(**signals: Any) -> Step:
    return _plain(lambda _: mat.state(**signals))


def grant(to: str, tool: str, **options: Any) -> Step:
    return _plain(lambda _: mat.grant(to, tool, **options))


def put(memory: str, key: str, value: Any) -> Step:
    return _plain(lambda world: world.memory(memory).__setitem__(key, value))


def get(memory: str, key: str) -> Step:
    return _plain(lambda world: world.memory(memory)[key])


def drop(memory: str, key: str) -> Step:
    return _plain(lambda world: world.memory(memory).__delitem__(key))


def issued(value: str, name: str, ttl_ms: int | None = None, **options: Any) -> Step:
    return _plain(lambda _: mat.artifact.observed(value, name=name, ttl_ms=ttl_ms, **options))


def wait(ms: int) -> Step:
    async def step(_: World) -> None:
        await asyncio.sleep(ms / 1000)

    return Step(step)


def agent(name: str, *steps: Step | Call, role: str = "") -> Step:
    async def step(world: World) -> None:
        async with mat.agent(name, role=role):
            await play(steps, world)

    return Step(step, steps)


def delegate(to: str, task: str, *steps: Step | Call, role: str = "") -> Step:
    async def step(world: World) -> None:
        if not steps:
            mat.delegate(to, task, role=role)
            return
        try:
            async with mat.delegate(to, task, role=role):
                await play(steps, world)
        except mat.Blocked:
            pass

    return Step(step, steps)


def together(*steps: Step | Call) -> Step:
    """The steps at the same time."""

    async def step(world: World) -> None:
        await asyncio.gather(*(one.play(world) for one in steps))

    return Step(step, steps)


def within(contract: Any, agent: str, *steps: Step | Call) -> Step:
    """The steps under a resource contract."""

    async def step(world: World) -> None:
        with suppress(mat.Blocked), mat.budget.contracted(contract, agent=agent) as work:
            world.works[contract.name] = work
            await play(steps, world)

    return Step(step, steps)


def on_work(name: str, function: Callable[[Any], Any]) -> Step:
    """Something done with the work of a resource contract: `on_work("team", lambda work: work.spend(calls=2))`."""
    return _plain(lambda world: function(world.works[name]))


async def play(steps: tuple[Step | Call, ...], world: World) -> None:
    for step in steps:
        await step.play(world)


@dataclass(frozen=True)
class Case:
    """A trace, and whether it breaks its contract, with the reason in a few words."""

    template: str
    broken: bool
    why: str
    contract: mat.Contract
    steps: tuple[Step | Call, ...]
    options: dict[str, Any]

    @property
    def id(self) -> str:
        return f"{self.template}: {'broken' if self.broken else 'kept'}, {self.why}"

    def run(self) -> Run:
        """The run of a case. With `forge`, its records are changed afterwards, as no run of `mat` would write them."""
        options = dict(self.options)
        forge = options.pop("forge", None)
        result = self._played(options)
        if forge is None:
            return result
        records = tuple(replace(record, step=step) for step, record in enumerate(forge(result.records)))
        verdicts, outcomes = mat.judge(records, [self.contract])
        return replace(result, records=records, verdicts=verdicts, outcomes=outcomes)

    def _played(self, options: dict[str, Any]) -> Run:
        governance = None
        if any(step.needs_governance() for step in self.steps):
            governance = mat.policy.Governance(rules=(_rule,), approver=_approver)
        with mat.run(**{"contracts": [self.contract], "governance": governance, **options}) as run:
            asyncio.run(play(self.steps, World()))
        return run.result


@dataclass
class Template:
    """The cases of one template: `broken(why, *steps)` and `kept(why, *steps)`."""

    name: str
    contract: mat.Contract
    cases: list[Case]

    def given(self, contract: mat.Contract) -> Template:
        """The same template with other arguments."""
        return Template(self.name, contract, self.cases)

    def broken(self, why: str, *steps: Step | Call, **options: Any) -> None:
        self.cases.append(Case(self.name, True, why, self.contract, steps, options))

    def kept(self, why: str, *steps: Step | Call, **options: Any) -> None:
        self.cases.append(Case(self.name, False, why, self.contract, steps, options))


@dataclass
class Corpus:
    """All cases of a family of templates."""

    cases: list[Case] = field(default_factory=list)

    def template(self, name: str, contract: mat.Contract) -> Template:
        return Template(name, contract, self.cases)

    def __iter__(self) -> Iterator[Case]:
        return iter(self.cases)


Forge = Callable[[tuple[Record, ...]], Iterable[Record]]


def _named(records: tuple[Record, ...], name: str, of: str) -> int:
    """Where the action of that name is, of a resource contract ("res#1") or of any."""
    return next(
        index
        for index, record in enumerate(records)
        if record.action.name == name
        and (not of or of in (record.action.arguments.get("contract"), record.observation.charged.get("contract")))
    )


def edited(name: str, change: Callable[[dict[str, Any]], Any], of: str = "") -> Forge:
    """The arguments of an entry, or the charge of a call, changed."""

    def forge(records: tuple[Record, ...]) -> Iterable[Record]:
        index = _named(records, name, of)
        record = records[index]
        if record.action.kind == "contract":
            data = thaw(record.action.arguments)
            change(data)
            changed = replace(record, action=replace(record.action, arguments=freeze(data)))
        else:
            data = thaw(record.observation.charged)
            change(data)
            changed = replace(record, observation=replace(record.observation, charged=freeze(data)))
        return (*records[:index], changed, *records[index + 1 :])

    return forge


def left_out(name: str, of: str = "") -> Forge:
    """An entry that is missing."""

    def forge(records: tuple[Record, ...]) -> Iterable[Record]:
        index = _named(records, name, of)
        return (*records[:index], *records[index + 1 :])

    return forge


def twice(name: str, of: str = "") -> Forge:
    """An entry that stands twice, with one number."""

    def forge(records: tuple[Record, ...]) -> Iterable[Record]:
        index = _named(records, name, of)
        return (*records[: index + 1], *records[index:])

    return forge


def renamed(name: str, new: str, of: str = "") -> Forge:
    """An entry of another kind."""

    def forge(records: tuple[Record, ...]) -> Iterable[Record]:
        index = _named(records, name, of)
        changed = replace(records[index], action=replace(records[index].action, name=new))
        return (*records[:index], changed, *records[index + 1 :])

    return forge


def _in_order(records: Iterable[Record]) -> tuple[Record, ...]:
    """The entries of the ledger and the order of calls numbered anew, as their records stand."""
    numbered: list[Record] = []
    entry = 0
    for index, record in enumerate(records):
        mediation, action, observation = record.mediation, record.action, record.observation
        if mediation is not None and mediation.reserved:
            entry += 1
            mediation = replace(mediation, reserved=freeze({**mediation.reserved, "entry": entry}))
        if action.kind == "contract":
            entry += 1
            action = replace(action, arguments=freeze({**action.arguments, "entry": entry}))
        if observation.charged:
            entry += 1
            observation = replace(observation, charged=freeze({**observation.charged, "entry": entry}))
        order = {"asked_seq": 2 * index, "sealed_seq": 2 * index + 1}
        numbered.append(replace(record, mediation=mediation, action=action, observation=observation, **order))
    return tuple(numbered)


def again(name: str, of: str = "") -> Forge:
    """An entry that happens twice, each time with its own number."""
    return lambda records: _in_order(twice(name, of)(records))


def moved(name: str, before: str, of: str = "", before_of: str = "") -> Forge:
    """An entry that happens before another one."""

    def forge(records: tuple[Record, ...]) -> Iterable[Record]:
        record = records[_named(records, name, of)]
        rest = tuple(one for one in records if one is not record)
        index = _named(rest, before, before_of)
        return _in_order((*rest[:index], record, *rest[index:]))

    return forge
