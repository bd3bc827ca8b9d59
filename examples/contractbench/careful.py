"""A careful HTTP client: where no reply came, it asks again, if that cannot do anything twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .episode import Agent
from .toolbox import Reply, Tools

SAFE = ("GET", "HEAD", "OPTIONS", "PUT", "DELETE")
"""What can be asked again without doing anything twice (RFC 9110, 9.2.2)."""
TRIES = 3


def repeatable(method: str, headers: Mapping[str, Any] | None) -> bool:
    """Whether a request may be sent again when nobody knows if it arrived: it is idempotent, or a key makes it so."""
    return method in SAFE or any(name.lower() == "idempotency-key" for name in headers or {})


class Careful:
    """Tools whose requests are sent again where no reply came, if they may be. Each try is a step."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tools, name)

    async def http(self, method: str, url: str, **parts: Any) -> Reply:
        left = TRIES if repeatable(method, parts.get("headers")) else 1
        while True:
            left -= 1
            try:
                return await self._tools.http(method, url, **parts)
            except OSError:  # time-outs, and connections that broke
                if not left:
                    raise


def careful(agent: Agent) -> Agent:
    """The same agent with a careful client."""

    async def acting(instruction: str, tools: Tools) -> object:
        return await agent(instruction, Careful(tools))  # type: ignore[arg-type]

    return acting
