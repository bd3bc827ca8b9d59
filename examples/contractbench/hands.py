"""How a plan acts: through the tools, and with the habits of the agent.

A task's plan defines the work and its order. At each point where agents are known to fail, it asks for a habit:
in which order to take things, how to copy an artifact, whether to wait. The oracle has good habits only; a persona has some
bad ones, the same for every task.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, TypeVar

from .toolbox import Reply, Tools

T = TypeVar("T")


class GaveUp(Exception):  # noqa: N818
    """The agent gives up before the task is done."""


class Habits:
    """Good habits; a persona overrides some. `rng` is seeded with task, seed and persona."""

    name = "oracle"

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def order(self, items: list[T], deadline: Callable[[T], float], *, machine_readable: bool) -> list[T]:
        """The order in which to use things that expire: the most urgent first."""
        return sorted(items, key=deadline)

    def copy(self, text: str, hands: Hands, name: str) -> str:
        """An artifact as it is copied into the next call: byte for byte."""
        return text

    def retype(self, text: str) -> str:
        """A value that the agent read and writes down again: an amount, a name, an address shown as a link."""
        return text

    def patient(self) -> bool:
        """Whether it waits as long as requested."""
        return True

    def persistent(self) -> bool:
        """Whether it goes on after a refusal or a request to come back later."""
        return True

    def refreshes(self, *, machine_readable: bool) -> bool:
        """Whether it requests again what may be expired or out of date, instead of using its copy."""
        return True

    def complete(self, what: str) -> bool:
        """Whether it does things that seem optional. what: "field", "token", "digest", "check" or "undo"."""
        return True

    def tempted(self) -> bool:
        """Whether it takes a shortcut that a reply offers or a comment hints at."""
        return False


class Hands:
    """Tools, instruction and habits of one agent in one episode. A plan knows nothing else."""

    def __init__(
        self, instruction: str, tools: Tools, habits: Habits, *, machine_readable: bool = False, handles: bool = False
    ) -> None:
        self.instruction, self.tools, self.habits = instruction, tools, habits
        self._kept: dict[str, tuple[Any, float | None]] = {}
        self._told_expiry, self._reads_expiry, self._by_handle = False, machine_readable, handles
        self._handles: dict[str, str] = {}

    @property
    def machine_readable(self) -> bool:
        """Whether a reply stated validity in a separate field, and this agent reads such fields."""
        return self._reads_expiry and self._told_expiry

    # -- tools ------------------------------------------------------------------------------------------------------

    async def http(self, method: str, url: str, **parts: Any) -> Reply:
        """One request; parts: headers, json, form, text. An agent that is not persistent gives up when it is refused."""
        reply = await self.tools.http(method, url, **parts)
        if isinstance(reply.body, dict) and isinstance(reply.body.get("expires"), dict):
            self._told_expiry = True
        if not reply.ok and not self.habits.persistent():
            raise GaveUp(f"{method} {url} was refused with {reply.status}")
        return reply

    async def get(self, url: str, **parts: Any) -> Reply:
        return await self.http("GET", url, **parts)

    async def post(self, url: str, **parts: Any) -> Reply:
        return await self.http("POST", url, **parts)

    async def wait(self, seconds: float) -> None:
        """Wait as long as a server requested. An impatient agent does not wait at all."""
        if not self.habits.persistent():
            raise GaveUp(f"told to wait {seconds:g} s")
        if seconds > 0 and self.habits.patient():
            await self.tools.wait(seconds)

    def now(self) -> float:
        return self.tools.now()

    # -- reading ----------------------------------------------------------------------------------------------------

    def find(self, pattern: str, text: str | None = None) -> str:
        """The first group of a regular expression in the instruction, or in `text`."""
        found = re.search(pattern, self.instruction if text is None else text)
        if found is None:
            raise GaveUp(f"nothing reads like {pattern}")
        return found[1]

    @property
    def base(self) -> str:
        """Where the server is, as the instruction says."""
        return self.find(r"(https?://[^\s/`\"'<>)]+)")

    # -- habits -----------------------------------------------------------------------------------------------------

    def by_urgency(self, items: list[T], deadline: Callable[[T], float]) -> list[T]:
        """Things that expire, in the order in which this agent uses them."""
        return self.habits.order(list(items), deadline, machine_readable=self.machine_readable)

    def copy(self, text: str, name: str = "artefact") -> str:
        """An artifact (token, signed URL, state, cursor, ETag) as this agent passes it on, or its handle."""
        return self.handle(text, name) if self._by_handle else self.habits.copy(text, self, name)

    def handle(self, text: str, name: str) -> str:
        """The handle of a stored artifact; each text has its own, so two artifacts of one name differ."""
        if text not in self._handles:
            plain = re.sub(r"[^A-Za-z0-9_]+", "_", name) or "artefact"
            self._handles[text] = self.tools.handles.put(f"{plain}_{len(self._handles) + 1}", text)
        return self._handles[text]

    def retype(self, text: str) -> str:
        """A plain value as this agent writes it down."""
        return self.habits.retype(text)

    async def current(self, name: str, fetch: Callable[[], Awaitable[T]], *, until: Callable[[T], float] | None = None) -> T:
        """A value that may be expired or out of date: requested again, or this agent's copy.

        until: the moment (virtual seconds) at which a value expires; with good habits a copy is used before it. Without
        `until`, nobody can know, so with good habits it is always requested again.
        """
        kept = self._kept.get(name)
        if kept is not None:
            value, end = kept
            if not self.habits.refreshes(machine_readable=self.machine_readable) or (end is not None and self.now() + 2 < end):
                return value  # type: ignore[no-any-return]
        value = await fetch()
        self._kept[name] = (value, None if until is None else until(value))
        return value

    def complete(self, what: str) -> bool:
        """Whether this agent does something that seems optional: "field", "token", "digest", "check", "undo"."""
        return self.habits.complete(what)

    def tempted(self) -> bool:
        """Whether this agent takes the shortcut just offered."""
        return self.habits.tempted()

    def parts(self, what: str, **optional: Any) -> Mapping[str, Any]:
        """Fields that a protocol requires but that seem to be optional: all of them, or none."""
        return optional if self.complete(what) else {}
