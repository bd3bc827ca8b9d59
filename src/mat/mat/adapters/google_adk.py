"""Google ADK: tools, agents as tools, transfers, models, the memory service, and sessions as saved work.

Seams, all public methods that subclasses define: `BaseTool.run_async`, `BaseLlm.generate_content_async`, `search_memory` and
`add_session_to_memory` of memory services, `get_session` and `append_event` of session services. A plugin of the runner would
be the framework's own way, but what it raises counts as the plugin's failure and not as the tool's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from mat.adapters.attachment import Adapter, Attachment
from mat.boundary.calls import cross_async, cross_stream_async
from mat.boundary.session import calls_are_plain

_LABEL: Final = "adk_agent_name"
"""The label of a request that names the acting agent."""


def install(attachment: Attachment) -> None:
    _tools(attachment)
    if attachment.models is not False:
        _models(attachment)
    if attachment.memory is not False:
        _memories(attachment)
        _sessions(attachment)


# -- tools and agents -----------------------------------------------------------------------------------------------------


def _tools(attachment: Attachment) -> None:
    from google.adk.tools.agent_tool import AgentTool
    from google.adk.tools.base_tool import BaseTool

    def run_async(real: Callable[..., Any]) -> Callable[..., Any]:
        async def _run_async(self: Any, *, args: dict[str, Any], tool_context: Any) -> Any:
            if calls_are_plain():
                return await real(self, args=args, tool_context=tool_context)
            if isinstance(self, AgentTool):
                port = attachment.delegation(self.name)
            elif self.name == "transfer_to_agent":
                port = attachment.delegation(str(args.get("agent_name", "")))
            else:
                port = attachment.tool(self.name, callee=getattr(self, "func", None))

            def call(changed: dict[str, Any] | None) -> Any:
                return real(self, args={**args, **changed} if changed else args, tool_context=tool_context)

            return await cross_async(port, args, call, agent=str(getattr(tool_context, "agent_name", "") or ""))

        return _run_async

    attachment.replace_method(BaseTool, "run_async", run_async, of_base=False)  # which only says that it is not implemented


# -- models ---------------------------------------------------------------------------------------------------------------


def _models(attachment: Attachment) -> None:
    from google.adk.models import BaseLlm

    def generate(real: Callable[..., Any]) -> Callable[..., Any]:
        async def _generate(self: Any, llm_request: Any, stream: bool = False) -> AsyncIterator[Any]:
            if calls_are_plain():
                async for response in real(self, llm_request, stream):
                    yield response
                return
            name = str(llm_request.model or self.model)
            port = attachment.model(name, of=type(self), stream=stream, encode=_response_data, decode=_response)
            agent = str((llm_request.config.labels or {}).get(_LABEL, "")) if llm_request.config else ""
            if stream:
                chunks = cross_stream_async(
                    port, _prompt(llm_request), lambda changed: real(self, llm_request, True), agent=agent
                )
                async for response in chunks:
                    yield response
                return

            async def call(changed: dict[str, Any] | None) -> Any:
                found = [response async for response in real(self, llm_request, False)]
                return found[0] if len(found) == 1 else found

            replied = await cross_async(port, _prompt(llm_request), call, agent=agent)
            for response in replied if isinstance(replied, list) else [replied]:
                yield response

        return _generate

    attachment.replace_method(BaseLlm, "generate_content_async", generate)


def _plain(value: Any) -> Any:
    """Data without the ids of calls, which are drawn anew in each run."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if name != "id"}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _prompt(request: Any) -> dict[str, Any]:
    contents = [_plain(each.model_dump(mode="json", exclude_none=True)) for each in request.contents]
    instruction = getattr(request.config, "system_instruction", None)
    found = {
        "contents": contents, "instruction": None if instruction is None else str(instruction),
        "tools": sorted(request.tools_dict),
    }  # fmt: skip
    return {name: value for name, value in found.items() if value not in (None, [])}


def _response_data(response: Any) -> Any:
    if isinstance(response, list):
        return [_response_data(each) for each in response]
    return response.model_dump(mode="json", exclude_none=True)


def _response(data: Any) -> Any:
    from google.adk.models import LlmResponse

    if isinstance(data, list):
        return [_response(each) for each in data]
    if not isinstance(data, dict):
        parts = [{"text": str(data)}] if data else []
        data = {"content": {"role": "model", "parts": parts}}
    return LlmResponse.model_validate(data)


# -- memories and sessions ------------------------------------------------------------------------------------------------


def _memories(attachment: Attachment) -> None:
    from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse

    def search_memory(real: Callable[..., Any]) -> Callable[..., Any]:
        async def _search_memory(self: Any, *, app_name: str, user_id: str, query: str) -> Any:
            if calls_are_plain():
                return await real(self, app_name=app_name, user_id=user_id, query=query)
            port = attachment.retriever("memory", encode=entries, decode=found)

            def call(changed: dict[str, Any] | None) -> Any:
                return real(self, app_name=app_name, user_id=user_id, query=(changed or {}).get("query", query))

            return await cross_async(port, {"user": user_id, "query": query}, call)

        return _search_memory

    def entries(reply: Any) -> list[Any]:
        """Entries as passages: those of one text with it on top."""
        return [
            {"text": each["content"]["parts"][0]["text"], "author": each.get("author", "")} if _is_text(each) else each
            for each in (memory.model_dump(mode="json", exclude_none=True) for memory in reply.memories)
        ]

    def found(passages: Any) -> Any:
        given = ({"text": each} if isinstance(each, str) else each for each in passages or ())
        return SearchMemoryResponse.model_validate(
            {
                "memories": [
                    {"content": {"parts": [{"text": each["text"]}]}, "author": each.get("author") or None}
                    if "text" in each
                    else each
                    for each in given
                ]
            }
        )

    def add_session(real: Callable[..., Any]) -> Callable[..., Any]:
        async def _add_session(self: Any, session: Any) -> Any:
            if calls_are_plain():
                return await real(self, session)
            _, writes = attachment.saved_work("memory", lambda reply: None)
            asked = {"key": session.user_id, "events": len(session.events)}
            return await cross_async(writes, asked, lambda changed: real(self, session))

        return _add_session

    attachment.replace_method(BaseMemoryService, "search_memory", search_memory)
    attachment.replace_method(BaseMemoryService, "add_session_to_memory", add_session)


def _is_text(entry: dict[str, Any]) -> bool:
    parts = entry.get("content", {}).get("parts", ())
    return len(parts) == 1 and isinstance(parts[0].get("text"), str)


def _sessions(attachment: Attachment) -> None:
    """Reads of a session and the events added to it, so that a process can end before one and after it."""
    from google.adk.sessions import BaseSessionService

    def size(reply: Any) -> Any:
        return {"events": len(reply.events)} if hasattr(reply, "events") else None

    def get_session(real: Callable[..., Any]) -> Callable[..., Any]:
        async def _get_session(self: Any, *, app_name: str, user_id: str, session_id: str, **options: Any) -> Any:
            given = {"app_name": app_name, "user_id": user_id, "session_id": session_id, **options}
            if calls_are_plain():
                return await real(self, **given)
            reads, _ = attachment.saved_work("session", size)
            return await cross_async(reads, {"key": user_id}, lambda changed: real(self, **given))

        return _get_session

    def append_event(real: Callable[..., Any]) -> Callable[..., Any]:
        async def _append_event(self: Any, session: Any, event: Any) -> Any:
            if calls_are_plain():
                return await real(self, session=session, event=event)
            _, writes = attachment.saved_work("session", size)
            asked = {"key": session.user_id, "author": event.author}
            return await cross_async(writes, asked, lambda changed: real(self, session=session, event=event))

        return _append_event

    attachment.replace_method(BaseSessionService, "get_session", get_session)
    attachment.replace_method(BaseSessionService, "append_event", append_event, of_base=False)  # which subclasses call


ADAPTERS: Final = {
    "google_adk": Adapter(
        name="google_adk", package="google.adk", install=install, extra="google-adk", release="google-adk>=2.0",
        policy="a tool that raises ends the run, unless on_tool_error_callback or a plugin answers for it; models retry by "
        "their own retry options",
    )
}  # fmt: skip

__all__ = ["ADAPTERS", "install"]
