"""python -m examples.contractbench.loopback TASK [--seed N] [--port N]: a task's server on this machine, behind a socket.

The application is the one that agents meet in process, served by uvicorn on 127.0.0.1, so that any HTTP client can be the
agent, in another process or another language. A run's virtual clock does not reach that far: server and agent share a
`ManualClock` that only they move. An agent without `Tools` moves it with its requests, which take a second each, like steps,
and waits with `POST /-/wait {"seconds": n}`; `GET /-/instruction`, `/-/now` and `/-/result` are there for whoever
runs it. Nothing under `/-/` is an event.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from mat import MatError
from mat.boundary.session import active

from . import episode
from .clock import ManualClock
from .desk import Desk, Event, Levers
from .episode import Agent, Result
from .task import Task, ids
from .task import task as the_task
from .toolbox import SECONDS

HOST = "127.0.0.1"
ASIDE = "/-/"
"""Requests under this path do not reach the task's server."""
_LONGEST = 1 << 20
"""The most bytes of a request's head: artifacts of some tasks fill the default of 16 kB."""


async def play(task: Task, seed: int, agent: Agent, *, name: str, levers: Levers | None = None) -> tuple[Result, list[Event]]:
    """`episode.play` over a socket: the same agent, the same tools, a real HTTP client. Call it outside a run."""
    with _listening(0) as listener:
        base = _base(listener)

        @asynccontextmanager
        async def client(app: Any) -> AsyncIterator[httpx.AsyncClient]:
            with _serving(app, listener):
                async with httpx.AsyncClient(base_url=base, trust_env=False) as connection:
                    yield connection

        return await episode.play(
            task, seed, agent, name=name, levers=levers, clock=ManualClock(), client=client, base=base,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A task behind a socket, for an agent elsewhere. base: its URL; events: the requests so far."""

    task: Task
    seed: int
    base: str
    desk: Desk
    clock: ManualClock

    @property
    def instruction(self) -> str:
        return self.task.instruction(self.desk.given, self.base)

    @property
    def events(self) -> list[Event]:
        return self.desk.events

    @property
    def label(self) -> str:
        """The judgment of the episode so far. Steps are requests here; a request beyond the budgets gets a 410."""
        return episode.judged(self.task, self.desk)[0]


@contextmanager
def serving(task: Task, seed: int = 0, *, levers: Levers | None = None, port: int = 0) -> Iterator[Served]:
    """Serve a task until the block ends. port 0: any free port. Errors: MatError if uvicorn is missing."""
    clock = ManualClock()
    desk = Desk(task.given(seed), seed=f"{task.id}/{seed}", clock=clock, levers=levers)
    with _listening(port) as listener:
        served = Served(task=task, seed=seed, base=_base(listener), desk=desk, clock=clock)
        with _serving(_Stepping(desk.app(task.routes(desk)), served), listener):
            yield served


class _Stepping:
    """An application whose requests take a step of virtual time each, within the budgets of its task."""

    def __init__(self, app: Any, served: Served) -> None:
        self._app, self._served = app, served
        self._steps = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        if scope["path"].startswith(ASIDE) and scope["path"] != f"{ASIDE}wait":
            await self._aside(scope["path"].removeprefix(ASIDE))(scope, receive, send)
            return
        if not await self._step():
            await JSONResponse({"error": "the budget of this task is used up"}, 410)(scope, receive, send)
            return
        if scope["path"] == f"{ASIDE}wait":
            await (await self._waited(request))(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _step(self) -> bool:
        task, clock = self._served.task, self._served.clock
        if self._steps >= task.steps or clock.now() >= task.seconds:
            return False
        self._steps += 1
        await clock.sleep(SECONDS)
        return True

    async def _waited(self, request: Request) -> Response:
        seconds: Any = None
        with suppress(ValueError, TypeError, KeyError):
            seconds = float((await request.json())["seconds"])
        if seconds is None or not math.isfinite(seconds) or seconds < 0:
            return JSONResponse({"error": 'send {"seconds": n}, n not negative'}, 422)
        await self._served.clock.sleep(seconds)
        return JSONResponse({"now": self._served.clock.now()})

    def _aside(self, name: str) -> Response:
        served = self._served
        if name == "instruction":
            return PlainTextResponse(served.instruction)
        if name == "now":
            return JSONResponse({"now": served.clock.now()})
        if name == "result":
            events = [event.data() for event in served.events]
            return JSONResponse({"label": served.label, "steps": self._steps, "now": served.clock.now(), "events": events})
        return JSONResponse({"error": f"there are {ASIDE}instruction, {ASIDE}now, {ASIDE}wait and {ASIDE}result"}, 404)


# -- the socket -----------------------------------------------------------------------------------------------------------


@contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    if active() is not None:
        raise MatError(
            "a task cannot be served at a socket inside a run",
            why="the virtual time of a run does not wait for sockets",
            fix="play it in process there (episode.play), and at a socket outside of runs",
        )
    # With an explicit protocol, asyncio turns Nagle's algorithm off for accepted sockets; else each reply takes 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        yield listener
    finally:
        listener.close()


def _base(listener: socket.socket) -> str:
    return f"http://{HOST}:{listener.getsockname()[1]}"


@contextmanager
def _serving(app: Any, listener: socket.socket) -> Iterator[None]:
    """Serve an ASGI application at a socket, in a thread of its own, while the block lasts."""
    server = _server(app)
    ready = threading.Event()
    startup = server.startup

    async def started(sockets: Any = None) -> None:
        try:
            await startup(sockets)
        finally:
            ready.set()

    server.startup = started
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="contractbench-loopback", daemon=True)
    thread.start()
    ready.wait()
    if not server.started:
        raise MatError("the task's server did not start", why="uvicorn gave up at its start", where=_base(listener))
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


def _server(app: Any) -> Any:
    try:
        import uvicorn
    except ImportError:
        raise MatError(
            "a task cannot be served at a socket", why="uvicorn is not installed", fix="pip install 'pytest-mat[examples]'"
        ) from None
    config = uvicorn.Config(
        app, http="h11", ws="none", lifespan="off", loop="asyncio", log_level="warning", access_log=False, server_header=False,
        date_header=False, h11_max_incomplete_event_size=_LONGEST,
    )  # fmt: skip
    return uvicorn.Server(config)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.contractbench.loopback", description="Serve one task.")
    parser.add_argument("task", choices=ids(), metavar="TASK", help="one of the 33")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--port", type=int, default=0, help="default: any that is free")
    options = parser.parse_args(given)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started it with Ctrl-C ignored
    with serving(the_task(options.task), options.seed, port=options.port) as served:
        print(f"{served.instruction}\n\n-- {served.base}; Ctrl-C ends the episode", flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
        print(json.dumps({"label": served.label, "requests": len(served.events), "virtual_seconds": served.clock.now()}))


if __name__ == "__main__":
    main()
