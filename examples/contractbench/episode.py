"""One episode: an agent, a task, a seed; and its result (seed 003, appendix G)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

import httpx

import mat
from mat_contracts.observation import OTHER, SUCCESS, most_severe

from . import personas
from .clock import Clock, RunClock
from .desk import Desk, Event, Levers
from .hands import GaveUp, Hands
from .task import Task
from .toolbox import OutOfBudget, Tools

Agent = Callable[[str, Tools], Awaitable[object]]
"""The interface for a model: an async function of the instruction and the tools. Its return value is not judged."""
BASE = "http://api.example.test"
_DETAIL = ("ttl_seconds", "time_of_attempt", "expired_by_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of an episode. `trace_hash`: SHA-256 over all requests and answers, in order."""

    task_id: str
    category: str
    seed: int
    agent: str
    success: bool
    failure_label: str
    failure_detail: dict[str, Any] = field(default_factory=dict)
    steps: int
    tool_calls: int
    virtual_time_elapsed: float
    trace_hash: str

    def data(self) -> dict[str, Any]:
        return asdict(self)


async def play(
    task: Task,
    seed: int,
    agent: Agent,
    *,
    name: str,
    levers: Levers | None = None,
    clock: Clock | None = None,
    client: Callable[[Any], AbstractAsyncContextManager[httpx.AsyncClient]] | None = None,
    base: str = BASE,
) -> tuple[Result, list[Event]]:
    """Play one episode. `client` makes an HTTP client for the ASGI application; by default, one in this process."""
    clock = RunClock() if clock is None else clock
    levers = Levers() if levers is None else levers
    given = task.given(seed)
    desk = Desk(given, seed=f"{task.id}/{seed}", clock=clock, levers=levers)
    app = desk.app(task.routes(desk))
    ended = ""
    async with in_process(app) if client is None else client(app) as connection:
        tools = Tools(
            connection, clock=clock, steps=task.steps, seconds=task.seconds, levers=levers, issues=task.issues,
            consumes=task.consumes,
        )  # fmt: skip
        with mat.agent("agent"):
            for artefact, text in task.known(given).items():
                mat.artifact.observed(text, name=artefact)
            try:
                await agent(task.instruction(given, base), tools)
            except OutOfBudget:
                ended = "out of budget"
            except (GaveUp, OSError) as reason:  # an agent that gives up, or a failing tool that is not called again
                ended = str(reason) or type(reason).__name__
            mat.finish(ended or "done", status="failed" if ended else "completed")
    return _result(task, seed, name, desk, tools), desk.events


def in_process(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=BASE)


def _result(task: Task, seed: int, name: str, desk: Desk, tools: Tools) -> Result:
    label, event = judged(task, desk)
    detail: dict[str, Any] = {}
    if event is not None:
        detail = {"resource_id": event.resource, **{key: event.detail[key] for key in _DETAIL if key in event.detail}}
    log = json.dumps([item.data() for item in desk.events], sort_keys=True)
    return Result(
        task_id=task.id, category=task.category, seed=seed, agent=name, success=label == SUCCESS, failure_label=label,
        failure_detail=detail, steps=tools.calls, tool_calls=len(desk.events), virtual_time_elapsed=desk.now(),
        trace_hash=sha256(f"{tools.trace.hexdigest()}{log}".encode()).hexdigest(),
    )  # fmt: skip


def judged(task: Task, desk: Desk) -> tuple[str, Event | None]:
    """The primary label of an episode from its HTTP events alone, and the first event with this label.

    Every failure in the log counts, whatever came after it, and everything that the validator finds missing at the end.
    """
    failures = [event.failure for event in desk.events if event.failure]
    missing = list(task.validate(tuple(desk.events), desk.given))
    label = most_severe([*failures, *missing])
    if label == SUCCESS and missing:
        label = OTHER
    return label, next((event for event in desk.events if event.failure == label), None)


def persona(name: str, task: Task, seed: int, *, levers: Levers | None = None, note: str = "") -> Agent:
    """A scripted agent: follows the plan of the task with the habits of the oracle or of a persona."""
    habits = personas.habits(name, task.id, seed, note=note)
    levers = Levers() if levers is None else levers

    async def agent(instruction: str, tools: Tools) -> object:
        return await task.plan(Hands(instruction, tools, habits, machine_readable=levers.ttl, handles=levers.handles))

    return agent
