"""MCP, from the client's side: tools, resources and prompts of servers.

Seams, all public: `call_tool`, `read_resource`, `get_prompt` and `list_tools` of ClientSession, on which the client and groups
of sessions rest; `call_tool` and `get_prompt` of Client (since 2.0) around them, because there one call may take several rounds
of the session. What the server says of a tool in its annotations gives the effect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mat.adapters.attachment import Adapter, Attachment
from mat.adapters.mcp_replies import (
    REPORTED,
    TIMED_OUT,
    PassagesField,
    ToolFailed,
    failed,
    of_passages,
    passages,
    steady,
    tool_result,
)
from mat.boundary.calls import cross_async
from mat.boundary.session import calls_are_plain
from mat.core.proxied import CLOSED

_CODES: Final = {"timeout": TIMED_OUT, "connection": CLOSED}
"""Codes of the errors that the client raises itself: REQUEST_TIMEOUT and CONNECTION_CLOSED of the SDK."""
_OLD_CODES: Final = {**_CODES, "timeout": 408}
"""The same before 2.0, where a time-out has the status of HTTP."""


def install(attachment: Attachment) -> None:
    import mcp
    from mcp import ClientSession

    errors = _errors()
    annotated: dict[str, str] = {}

    def list_tools(real: Callable[..., Any]) -> Callable[..., Any]:
        async def _list_tools(self: Any, *given: Any, **options: Any) -> Any:
            found = await real(self, *given, **options)
            for tool in found.tools:
                effect = _effect(tool.annotations)
                if annotated.setdefault(tool.name, effect) != effect:  # two servers differ: nothing is certain
                    annotated[tool.name] = ""
            return found

        return _list_tools

    def call_tool(real: Callable[..., Any]) -> Callable[..., Any]:
        async def _call_tool(self: Any, name: str, arguments: dict[str, Any] | None = None, *given: Any, **options: Any) -> Any:
            if calls_are_plain():
                return await real(self, name, arguments, *given, **options)
            if name in attachment.retrievers:
                port = attachment.retriever(name, encode=_contents("content"), decode=_tool_result)
            else:
                port = attachment.tool(
                    name, effect=annotated.get(name, ""), source="the server's annotations", errors=errors,
                    encode=_data, decode=_tool_result,
                )  # fmt: skip
            asked = dict(arguments or {})

            def call(changed: dict[str, Any] | None) -> Any:
                return real(self, name, {**asked, **changed} if changed else arguments, *given, **options)

            try:
                return await cross_async(port, asked, call)
            except ToolFailed as failure:
                return _tool_result(failed(str(failure)))

        return _call_tool

    def read_resource(real: Callable[..., Any]) -> Callable[..., Any]:
        async def _read_resource(self: Any, uri: Any, *given: Any, **options: Any) -> Any:
            if calls_are_plain():
                return await real(self, uri, *given, **options)
            port = attachment.retriever("resource", encode=_contents("contents"), decode=_resource)

            def call(changed: dict[str, Any] | None) -> Any:
                return real(self, (changed or {}).get("uri", uri), *given, **options)

            return await cross_async(port, {"uri": str(uri)}, call)

        return _read_resource

    def get_prompt(real: Callable[..., Any]) -> Callable[..., Any]:
        async def _get_prompt(self: Any, name: str, arguments: Any = None, *given: Any, **options: Any) -> Any:
            if calls_are_plain():
                return await real(self, name, arguments, *given, **options)
            port = attachment.retriever("prompt", encode=_contents("messages"), decode=_prompt)
            asked = {"name": name, **({"arguments": arguments} if arguments else {})}

            def call(changed: dict[str, Any] | None) -> Any:
                now = {"arguments": arguments, **(changed or {})}
                return real(self, now.get("name", name), now["arguments"], *given, **options)

            return await cross_async(port, asked, call)

        return _get_prompt

    for name, make in (
        ("list_tools", list_tools), ("call_tool", call_tool), ("read_resource", read_resource), ("get_prompt", get_prompt),
    ):  # fmt: skip
        attachment.replace(ClientSession, name, make)
    client = getattr(mcp, "Client", None)  # before 2.0 there is none
    if client is not None:
        attachment.replace(client, "call_tool", call_tool)
        attachment.replace(client, "get_prompt", get_prompt)


def _errors() -> dict[str, Callable[[str], BaseException]]:
    """What the client raises for each kind of fault."""
    try:
        from mcp import MCPError
    except ImportError:  # before 2.0
        from mcp import McpError
        from mcp.types import ErrorData

        codes = _OLD_CODES

        def error(code: int, text: str) -> BaseException:
            found: BaseException = McpError(ErrorData(code=code, message=text))
            return found
    else:
        codes = _CODES

        def error(code: int, text: str) -> BaseException:
            found: BaseException = MCPError(code, text)
            return found

    def raised(kind: str) -> Callable[[str], BaseException]:
        return lambda text: error(codes[kind], text)

    return {**{kind: raised(kind) for kind in codes}, **dict.fromkeys(REPORTED, ToolFailed)}


def _effect(annotations: Any) -> str:
    """The effect that annotations declare; what they leave out has the default of the specification, which is no read."""
    if annotations is None:
        return ""
    hint = getattr(annotations, "read_only_hint", None) or getattr(annotations, "readOnlyHint", None)
    return "read" if hint else "write"


# -- replies as data ------------------------------------------------------------------------------------------------------


def _data(reply: Any) -> Any:
    return steady(reply.model_dump(mode="json", by_alias=True, exclude_none=True))


def _contents(field: PassagesField) -> Callable[[Any], Any]:
    return lambda reply: passages(_data(reply), field)


def _tool_result(data: Any) -> Any:
    from mcp.types import CallToolResult

    return CallToolResult.model_validate(tool_result(data))


def _resource(data: Any) -> Any:
    from mcp.types import ReadResourceResult

    return ReadResourceResult.model_validate(of_passages(data, "contents"))


def _prompt(data: Any) -> Any:
    from mcp.types import GetPromptResult

    return GetPromptResult.model_validate(of_passages(data, "messages"))


ADAPTERS: Final = {
    "mcp": Adapter(
        name="mcp", package="mcp", install=install, extra="mcp", release="mcp>=1.30",
        policy="a tool that fails is a result with isError; the client raises its own error for time-outs and lost "
        "connections, and repeats no call (since 2.0 over HTTP: once where the server refuses its headers; it resumes broken "
        "streams)",
    )
}  # fmt: skip

__all__ = ["ADAPTERS", "install"]
