"""The shop as an MCP server, and a loop over a client of it, as the SDK's documentation writes them; nothing of mat in it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import anyio.from_thread
import shop
from mcp import ClientSession

try:
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver import MCPServer as Server
except ImportError:  # before 2.0
    from mcp.server.fastmcp import Context  # type: ignore[no-redef]
    from mcp.server.fastmcp import FastMCP as Server  # type: ignore[no-redef]

Called = Callable[[str, dict[str, Any]], Any]


def server(*, reporting: bool = False) -> Any:
    made = Server("shop")
    for each in shop.TOOLS:
        made.tool()(reported(each) if reporting else each)
    return made


def reported(tool: Callable[..., Any]) -> Callable[..., Any]:
    """The tool, which also reports its progress."""

    async def told(ctx: Context, **given: Any) -> str:
        await ctx.report_progress(0, 1)
        found = tool(**given)
        text: str = await found if inspect.isawaitable(found) else found
        await ctx.report_progress(1, 1)
        return text

    asked = inspect.signature(tool, eval_str=True)
    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=Context)
    told.__signature__ = asked.replace(parameters=[*asked.parameters.values(), context])  # type: ignore[attr-defined]
    told.__annotations__ = {name: each.annotation for name, each in asked.parameters.items()} | {"ctx": Context, "return": str}
    told.__name__, told.__doc__ = tool.__name__, tool.__doc__
    return told


def connected(made: Any) -> Any:
    try:
        from mcp import Client
    except ImportError:
        from mcp.shared.memory import create_connected_server_and_client_session

        return create_connected_server_and_client_session(made._mcp_server)
    return Client(made)


async def called(session: ClientSession, name: str, arguments: dict[str, Any], **options: Any) -> shop.Result:
    try:
        found = await session.call_tool(name, arguments, **options)
    except Exception as error:
        return shop.Result(name, f"error: {error}", True)
    text = "\n".join(each.text for each in found.content if each.type == "text")
    return shop.Result(name, text, bool(getattr(found, "is_error", None) or getattr(found, "isError", None)))


async def work(mind: shop.Mind, **options: Any) -> str:
    results: list[shop.Result] = []
    async with connected(server(reporting=bool(options))) as session:
        await session.list_tools()
        for _ in range(40):
            thought = mind(results)
            if isinstance(thought, str):
                return thought
            results += await asyncio.gather(*(called(session, name, arguments, **options) for name, arguments in thought))
    return "gave up"


def work_from_outside(mind: shop.Mind) -> str:
    """A synchronous agent: its session lives in the event loop of another thread."""
    results: list[shop.Result] = []
    with anyio.from_thread.start_blocking_portal() as portal, portal.wrap_async_context_manager(connected(server())) as session:
        portal.call(session.list_tools)
        for _ in range(40):
            thought = mind(results)
            if isinstance(thought, str):
                return thought
            results += [portal.call(called, session, name, arguments) for name, arguments in thought]
    return "gave up"


async def work_and_watch(mind: shop.Mind) -> str:
    """The tools report their progress while they work."""
    seen: list[float] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        seen.append(done)

    return await work(mind, progress_callback=progress)


def handle(mind: shop.Mind, mode: str) -> str:
    if mode == "sync":
        return work_from_outside(mind)
    return asyncio.run(work_and_watch(mind) if mode == "stream" else work(mind))
