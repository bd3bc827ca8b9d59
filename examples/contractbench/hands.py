"""How a plan acts: through the tools, and with the habits of whoever acts.

A task's plan says what there is to do and in which order; at each point where agents are known to fail it asks for a habit:
in which order to take things, how to copy an artefact, whether to wait. The oracle has good habits only; a persona has some
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
    """The agent ends the episode by itself, without having done the task."""


class Habits:
    """The good ones; a persona overrides some. `rng` is seeded with task, seed and persona."""

    name = "oracle"

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def order(self, items: list[T], deadline: Callable[[T], float], *, machine_readable: bool) -> list[T]:
        """The order in which to use things that expire: the most urgent first."""
        return sorted(items, key=deadline)

    def copy(self, text: str, hands: Hands, name: str) -> str:
        """An artefact as it gets into the next call: byte by byte."""
        return text

    def retype(self, text: str) -> str:
        """A value that the agent read and writes down again: an amount, a name, an address shown as a link."""
        return text

    def patient(self) -> bool:
        """Whether it waits as long as it was told to."""
        return True

    def persistent(self) -> bool:
        """Whether it goes on after a refusal or when told to come back later."""
        return True

    def refreshes(self, *, machine_readable: bool) -> bool:
        """Whether it asks anew for what may be over or out of date, instead of using what it has."""
        return True

    def complete(self, what: str) -> bool:
        """Whether it does what seems optional. what: "field", "token", "digest", "check" or "undo"."""
        return True

    def tempted(self) -> bool:
        """Whether it takes an easier way that a reply offers or a comment hints at."""
        return False


class Hands:
    """Tools, instruction and habits of one agent in one episode. Nothing else is known to a plan."""

    def __init__(
        self, instruction: str, tools: Tools, habits: Habits, *, machine_readable: bool = False, handles: bool = False
    ) -> None:
        self.instruction, self.tools, self.habits = instruction, tools, habits
        self._kept: dict[str, tuple[Any, float | None]] = {}
        self._told_expiry, self._reads_expiry, self._by_handle = False, machine_readable, handles
        self._handles: dict[str, str] = {}

    @property
    def machine_readable(self) -> bool:
        """Whether a reply has said in a field of its own until when things hold, and this agent reads such fields."""
        return self._reads_expiry and self._told_expiry

    # -- tools ------------------------------------------------------------------------------------------------------

    async def http(self, method: str, url: str, **parts: Any) -> Reply:
        """One request; parts: headers, json, form, text. Whoever is not persistent gives up when it is refused."""
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
        """Wait as long as a server asked for. Whoever is impatient does not wait at all."""
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
        """An artefact (token, signed URL, state, cursor, ETag) as this agent hands it on; its handle where it has those."""
        return self.handle(text, name) if self._by_handle else self.habits.copy(text, self, name)

    def handle(self, text: str, name: str) -> str:
        """The handle under which an artefact is stored; one of its own for each text, so that two of a name stay apart."""
        if text not in self._handles:
            plain = re.sub(r"[^A-Za-z0-9_]+", "_", name) or "artefact"
            self._handles[text] = self.tools.handles.put(f"{plain}_{len(self._handles) + 1}", text)
        return self._handles[text]

    def retype(self, text: str) -> str:
        """A plain value as this agent writes it down."""
        return self.habits.retype(text)

    async def current(self, name: str, fetch: Callable[[], Awaitable[T]], *, until: Callable[[T], float] | None = None) -> T:
        """A value that may be over or out of date by now: asked for anew, or what this agent has kept.

        until: the moment (virtual seconds) from which a value no longer holds; with good habits a kept value is used before it.
        Without `until` nobody can know, and with good habits it is always asked for anew.
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
        """Whether this agent takes the easier way just offered."""
        return self.habits.tempted()

    def parts(self, what: str, **optional: Any) -> Mapping[str, Any]:
        """Fields that a protocol requires and that work without seems to do: all of them, or none."""
        return optional if self.complete(what) else {}
