"""An agent on the client of the SDK, over stdio, as a program: `mcp_program.py careless|careful SERVER...`. It knows no mat."""

from __future__ import annotations

import asyncio
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

try:
    from mcp import MCPError
except ImportError:  # before 2.0
    from mcp import McpError as MCPError


async def refund(session: ClientSession, order: str, *, careful: bool) -> str:
    for attempt in range(3):
        try:
            if attempt and careful and "1" in text(await session.call_tool("balance", {"order": order})):
                return "refunded before"
            return text(await session.call_tool("refund", {"order": order}))
        except MCPError as error:
            print(f"again, after {error}", file=sys.stderr)
    return "gave up"


def text(result: object) -> str:
    return "".join(part.text for part in result.content)  # type: ignore[attr-defined]


async def main() -> None:
    command, *arguments = sys.argv[2:]
    server = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        await session.list_tools()
        both = await asyncio.gather(*(refund(session, order, careful=sys.argv[1] == "careful") for order in ("A17", "A18")))
        await session.read_resource("notes://policy")  # type: ignore[arg-type]
        print(*both, sep=", ")


asyncio.run(main())
