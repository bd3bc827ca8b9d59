"""A careful HTTP client: it retries a request without a reply if a retry cannot repeat an effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .episode import Agent
from .toolbox import Reply, Tools

SAFE = ("GET", "HEAD", "OPTIONS", "PUT", "DELETE")
"""The idempotent methods (RFC 9110, 9.2.2)."""
TRIES = 3


def repeatable(method: str, headers: Mapping[str, Any] | None) -> bool:
    """Whether a request may be sent again if it is unknown whether it arrived: it is idempotent, or has an idempotency key."""
    return method in SAFE or any(name.lower() == "idempotency-key" for name in headers or {})


class Careful:
    """Tools that retry requests without a reply, if that is safe. Each attempt is a step."""

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
            except OSError:  # time-outs and broken connections
                if not left:
                    raise


def careful(agent: Agent) -> Agent:
    """The same agent with a careful client."""

    async def acting(instruction: str, tools: Tools) -> object:
        return await agent(instruction, Careful(tools))  # type: ignore[arg-type]

    return acting
