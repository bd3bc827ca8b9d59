"""Tools with a scripted latency and output, each behind its own boundary; a batch runs others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import mat


class ToolError(Exception):
    """The error of a tool that cannot do what was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """The script of a tool: its latency, its output, and the error that it raises instead."""

    output: str = "ok"
    seconds: float = 0.1
    error: str = ""


Execute = Callable[[str, str, str, dict[str, Any]], Awaitable[str]]


def execution(name: str, behaviour: Behaviour) -> Execute:
    """An instrumented tool: (call_id, server, queue, arguments) -> its output."""

    async def execute(call_id: str, server: str, queue: str, arguments: dict[str, Any]) -> str:
        await asyncio.sleep(behaviour.seconds)
        if behaviour.error:
            raise ToolError(behaviour.error)
        return behaviour.output

    return mat.tool(execute, name=name, effect="read")  # type: ignore[no-any-return]


def wrapped(name: str, work: Callable[[str, dict[str, Any]], Awaitable[str]]) -> Execute:
    """The session's own tools, the batch and the final report, behind the same kind of boundary."""

    async def execute(call_id: str, server: str, queue: str, arguments: dict[str, Any]) -> str:
        return await work(call_id, arguments)

    return mat.tool(execute, name=name, effect="none")  # type: ignore[no-any-return]
