"""The shop as an MCP server, and a loop over a client of it, as the SDK's documentation writes them; nothing of mat in it."""

from __future__ import annotations

import asyncio
from typing import Any

import shop
from mcp import ClientSession

try:
    from mcp.server.mcpserver import MCPServer as Server
except ImportError:  # before 2.0
    from mcp.server.fastmcp import FastMCP as Server  # type: ignore[no-redef]


def server() -> Any:
    made = Server("shop")
    for each in shop.TOOLS:
        made.tool()(each)
    return made


def connected(made: Any) -> Any:
    try:
        from mcp import Client
    except ImportError:
        from mcp.shared.memory import create_connected_server_and_client_session

        return create_connected_server_and_client_session(made._mcp_server)
    return Client(made)


async def called(session: ClientSession, name: str, arguments: dict[str, Any]) -> shop.Result:
    try:
        found = await session.call_tool(name, arguments)
    except Exception as error:
        return shop.Result(name, f"error: {error}", True)
    text = "\n".join(each.text for each in found.content if each.type == "text")
    return shop.Result(name, text, bool(getattr(found, "is_error", None) or getattr(found, "isError", None)))


async def work(mind: shop.Mind) -> str:
    results: list[shop.Result] = []
    async with connected(server()) as session:
        await session.list_tools()
        for _ in range(40):
            thought = mind(results)
            if isinstance(thought, str):
                return thought
            results += await asyncio.gather(*(called(session, name, arguments) for name, arguments in thought))
    return "gave up"


def handle(mind: shop.Mind, mode: str) -> str:
    return asyncio.run(work(mind))
