"""LangChain and LangGraph: tools, chat models, retrievers, stores and check-pointers.

Seams: `_run` and `_arun` of each class of tools, inside of the tool's own handling of errors, so that this still applies;
`_generate_with_cache` and `_agenerate_with_cache` of chat models, and `stream` and `astream` of those that can stream;
`invoke` and `ainvoke` of retrievers; `batch` and `abatch` of stores; `get_tuple`, `put`, `put_writes` of check-pointers, and
their async forms. Who acts is the agent, else the node of the user's graph, that the metadata of the call names.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from mat.adapters.attachment import Adapter, Attachment
from mat.boundary.calls import cross, cross_async, cross_stream, cross_stream_async
from mat.boundary.session import active, calls_are_plain

_INJECTED: Final = ("callbacks", "config", "run_manager", "runtime", "state", "store")
"""Parameters that the framework fills in."""
_PARTS_OF_AN_AGENT: Final = ("agent", "model", "tools")
"""Nodes of the graphs that LangChain makes of an agent: the agent that they belong to acts."""


def install(attachment: Attachment) -> None:
    _tools(attachment)
    if attachment.models is not False:
        _models(attachment)
    _retrievers(attachment)
    if attachment.memory is not False:
        _stores(attachment)
        _checkpoints(attachment)


def _acting() -> str:
    """The name of the agent that acts, else of the node of the user's graph; "" outside of both."""
    from langchain_core.runnables.config import var_child_runnable_config

    metadata = (var_child_runnable_config.get() or {}).get("metadata") or {}
    if name := metadata.get("lc_agent_name"):
        return str(name)
    nodes = [part.partition(":")[0] for part in str(metadata.get("langgraph_checkpoint_ns") or "").split("|")]
    if metadata.get("ls_integration") or nodes[-1] in _PARTS_OF_AN_AGENT:
        nodes.pop()
    return nodes[-1] if nodes else ""


# -- tools ----------------------------------------------------------------------------------------------------------------


def _tools(attachment: Attachment) -> None:
    from langchain_core.tools import BaseTool

    def port_of(tool: Any) -> Any:
        return attachment.tool(
            tool.name, callee=getattr(tool, "func", None) or getattr(tool, "coroutine", None) or type(tool)._run
        )

    def run(real: Callable[..., Any]) -> Callable[..., Any]:
        def _run(self: Any, *args: Any, **kwargs: Any) -> Any:
            if calls_are_plain():
                return real(self, *args, **kwargs)
            return cross(
                port_of(self),
                _asked(args, kwargs),
                lambda changed: real(self, *args, **{**kwargs, **(changed or {})}),
                agent=_acting(),
            )

        return _run

    def arun(real: Callable[..., Any]) -> Callable[..., Any]:
        async def _arun(self: Any, *args: Any, **kwargs: Any) -> Any:
            if calls_are_plain():
                return await real(self, *args, **kwargs)
            return await cross_async(
                port_of(self),
                _asked(args, kwargs),
                lambda changed: real(self, *args, **{**kwargs, **(changed or {})}),
                agent=_acting(),
            )

        return _arun

    for name, make in (("_run", run), ("_arun", arun)):
        attachment.replace_method(BaseTool, name, make, of_base=False)  # its own `_arun` only calls `_run`, in a thread


def _asked(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    named = {f"arg{index}": value for index, value in enumerate(args)}
    return {**named, **{name: value for name, value in kwargs.items() if name not in _INJECTED}}


# -- models ---------------------------------------------------------------------------------------------------------------


def _models(attachment: Attachment) -> None:
    from langchain_core.language_models.chat_models import BaseChatModel

    def name_of(model: Any) -> str:
        return str(getattr(model, "model_name", None) or getattr(model, "model", None) or model._llm_type)

    def port_of(model: Any) -> Any:
        return attachment.model(name_of(model), of=type(model), encode=_message_data, decode=_result)

    def streamed(model: Any, given: Any, options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        port = attachment.model(name_of(model), of=type(model), stream=True, encode=_chunk_data, decode=_chunk)
        return port, {**_prompt(model._convert_input(given).to_messages(), options), "stream": True}

    def is_plain(model: Any, options: Mapping[str, Any], *, async_api: bool) -> bool:
        """Whether the call is no stream of its own: one that cannot stream asks the model as a whole."""
        if calls_are_plain():
            return True
        return active() is not None and not model._should_stream(async_api=async_api, **{**options, "stream": True})

    def generate(real: Callable[..., Any]) -> Callable[..., Any]:
        def _generate_with_cache(self: Any, messages: Any, *args: Any, **kwargs: Any) -> Any:
            if calls_are_plain():
                return real(self, messages, *args, **kwargs)
            return cross(
                port_of(self), _prompt(messages, kwargs), lambda changed: real(self, messages, *args, **kwargs), agent=_acting()
            )

        return _generate_with_cache

    def agenerate(real: Callable[..., Any]) -> Callable[..., Any]:
        async def _agenerate_with_cache(self: Any, messages: Any, *args: Any, **kwargs: Any) -> Any:
            if calls_are_plain():
                return await real(self, messages, *args, **kwargs)
            return await cross_async(
                port_of(self), _prompt(messages, kwargs), lambda changed: real(self, messages, *args, **kwargs), agent=_acting()
            )

        return _agenerate_with_cache

    def stream(real: Callable[..., Any]) -> Callable[..., Any]:
        def _stream(self: Any, input: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
            if is_plain(self, kwargs, async_api=False):
                found: Iterator[Any] = real(self, input, *args, **kwargs)
                return found
            port, asked = streamed(self, input, kwargs)
            return cross_stream(port, asked, lambda changed: real(self, input, *args, **kwargs), agent=_acting())

        return _stream

    def astream(real: Callable[..., Any]) -> Callable[..., Any]:
        def _astream(self: Any, input: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            if is_plain(self, kwargs, async_api=True):
                found: AsyncIterator[Any] = real(self, input, *args, **kwargs)
                return found
            port, asked = streamed(self, input, kwargs)
            return cross_stream_async(port, asked, lambda changed: real(self, input, *args, **kwargs), agent=_acting())

        return _astream

    for name, made in (("stream", stream), ("astream", astream)):
        attachment.replace_method(BaseChatModel, name, made)
    attachment.replace(BaseChatModel, "_generate_with_cache", generate)
    attachment.replace(BaseChatModel, "_agenerate_with_cache", agenerate)


def _prompt(messages: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """What a model is asked: the messages, without the ids that the framework gives them, and the names of the tools."""
    tools = [_tool_name(tool) for tool in options.get("tools") or ()]
    return {"messages": [_message(each) for each in messages], **({"tools": tools} if tools else {})}


def _tool_name(tool: Any) -> str:
    if isinstance(tool, Mapping):
        return str(tool.get("function", tool).get("name", ""))
    return str(getattr(tool, "name", type(tool).__name__))


def _message(message: Any) -> dict[str, Any]:
    found = {
        "type": message.type, "content": message.content, "name": getattr(message, "name", None),
        "tool_calls": [_call(call) for call in getattr(message, "tool_calls", None) or ()],
        "tool_call_id": getattr(message, "tool_call_id", None), "status": getattr(message, "status", None),
    }  # fmt: skip
    return {name: value for name, value in found.items() if value not in (None, [])}


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    return {name: call[name] for name in ("name", "args", "id") if name in call}


def _message_data(result: Any) -> dict[str, Any]:
    """The message of a ChatResult as plain data: content, calls of tools, usage, and why it ended."""
    message = result.generations[0].message
    found: dict[str, Any] = {"content": message.content, "tool_calls": [_call(call) for call in message.tool_calls]}
    if message.usage_metadata:
        found["usage"] = dict(message.usage_metadata)
    reason = (message.response_metadata or {}).get("finish_reason") or (message.response_metadata or {}).get("stop_reason")
    if reason:
        found["finish_reason"] = reason
    return found


_CHUNK_METADATA: Final = ("finish_reason", "stop_reason", "model_provider", "output_version")
"""What a chunk's metadata says of it; its ids and times differ from run to run."""


def _chunk_data(chunk: Any) -> dict[str, Any]:
    """A chunk of a stream as plain data. LangChain adds the usage of the chunks up, as `usage_metadata` says."""
    metadata = chunk.response_metadata or {}
    found = {
        "content": chunk.content, "tool_call_chunks": [dict(call) for call in getattr(chunk, "tool_call_chunks", None) or ()],
        "usage_metadata": chunk.usage_metadata and dict(chunk.usage_metadata), "more": dict(chunk.additional_kwargs or {}),
        "metadata": {name: metadata[name] for name in _CHUNK_METADATA if name in metadata},
        "position": getattr(chunk, "chunk_position", None),
    }  # fmt: skip
    return {name: value for name, value in found.items() if name == "content" or value not in (None, [], {})}


def _chunk(data: Any) -> Any:
    """A chunk of a stream from plain data, or from a text that a fault put in its place."""
    from langchain_core.messages import AIMessageChunk

    given = data if isinstance(data, dict) else {"content": str(data or "")}
    named = {"position": "chunk_position", "usage_metadata": "usage_metadata", "tool_call_chunks": "tool_call_chunks"}
    return AIMessageChunk(
        content=given.get("content") or "", additional_kwargs=given.get("more") or {},
        response_metadata=given.get("metadata") or {},
        **{field: given[name] for name, field in named.items() if given.get(name)},
    )  # fmt: skip


def _result(data: Any) -> Any:
    """A ChatResult from plain data, or from a text that a fault put in its place."""
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    given = data if isinstance(data, dict) else {"content": data or ""}
    good, bad = [], []
    for number, call in enumerate(given.get("tool_calls") or ()):
        name, args, call_id = call.get("name", ""), call.get("args", {}), call.get("id") or f"call_{number}"
        if isinstance(args, dict):
            good.append({"name": name, "args": args, "id": call_id, "type": "tool_call"})
        else:
            bad.append({"name": name, "args": str(args), "id": call_id, "error": "the arguments are not an object"})
    usage = given.get("usage")
    complete = isinstance(usage, dict) and {"input_tokens", "output_tokens", "total_tokens"} <= usage.keys()
    message = AIMessage(
        content=given.get("content") or "", tool_calls=good, invalid_tool_calls=bad, usage_metadata=usage if complete else None,
        response_metadata={"finish_reason": given["finish_reason"]} if given.get("finish_reason") else {},
    )  # fmt: skip
    return ChatResult(generations=[ChatGeneration(message=message)])


# -- retrievers, stores, check-pointers -----------------------------------------------------------------------------------


def _retrievers(attachment: Attachment) -> None:
    from langchain_core.retrievers import BaseRetriever

    def port_of(retriever: Any) -> Any:
        return attachment.retriever(retriever.get_name(), callee=type(retriever), encode=_passages, decode=_documents)

    def invoke(real: Callable[..., Any]) -> Callable[..., Any]:
        def _invoke(self: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
            if calls_are_plain():
                return real(self, input, *args, **kwargs)

            def call(changed: dict[str, Any] | None) -> Any:
                return real(self, (changed or {}).get("query", input), *args, **kwargs)

            return cross(port_of(self), {"query": input}, call, agent=_acting())

        return _invoke

    def ainvoke(real: Callable[..., Any]) -> Callable[..., Any]:
        async def _ainvoke(self: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
            if calls_are_plain():
                return await real(self, input, *args, **kwargs)

            def call(changed: dict[str, Any] | None) -> Any:
                return real(self, (changed or {}).get("query", input), *args, **kwargs)

            return await cross_async(port_of(self), {"query": input}, call, agent=_acting())

        return _ainvoke

    attachment.replace(BaseRetriever, "invoke", invoke)
    attachment.replace(BaseRetriever, "ainvoke", ainvoke)


def _passages(documents: Any) -> list[dict[str, Any]]:
    return [{"text": each.page_content, "id": each.id or "", "metadata": each.metadata} for each in documents]


def _documents(passages: Any) -> list[Any]:
    from langchain_core.documents import Document

    return [
        Document(page_content=each, metadata={})
        if isinstance(each, str)
        else Document(page_content=each.get("text", ""), id=each.get("id") or None, metadata=each.get("metadata") or {})
        for each in passages or ()
    ]


def _stores(attachment: Attachment) -> None:
    try:
        from langgraph.store.base import BaseStore
    except ImportError:  # LangChain without LangGraph has none
        return

    def cell(op: Any) -> str:
        space = getattr(op, "namespace", None) or getattr(op, "namespace_prefix", None) or ()
        return "/".join([*space, str(getattr(op, "key", None) or "*")])

    def port_and_arguments(op: Any) -> tuple[Any, dict[str, Any]]:
        reads, writes = attachment.store("store")
        if type(op).__name__ == "PutOp":
            return writes, {"key": cell(op), "value": op.value} if op.value is not None else {"key": cell(op), "deleted": True}
        query = getattr(op, "query", None)
        return reads, {"key": cell(op), **({"query": query} if query else {})}

    def written(op: Any, changed: dict[str, Any] | None) -> Any:
        return op._replace(value=changed["value"]) if changed and "value" in changed else op

    def batch(real: Callable[..., Any]) -> Callable[..., Any]:
        def _batch(self: Any, ops: Any) -> Any:
            if calls_are_plain():
                return real(self, ops)
            done = []
            for op in ops:
                port, asked = port_and_arguments(op)

                def call(changed: dict[str, Any] | None, op: Any = op) -> Any:
                    return real(self, [written(op, changed)])[0]

                done.append(cross(port, asked, call, agent=_acting()))
            return done

        return _batch

    def abatch(real: Callable[..., Any]) -> Callable[..., Any]:
        async def _abatch(self: Any, ops: Any) -> Any:
            if calls_are_plain():
                return await real(self, ops)
            done = []
            for op in ops:
                port, asked = port_and_arguments(op)

                async def call(changed: dict[str, Any] | None, op: Any = op) -> Any:
                    return (await real(self, [written(op, changed)]))[0]

                done.append(await cross_async(port, asked, call, agent=_acting()))
            return done

        return _abatch

    for name, make in (("batch", batch), ("abatch", abatch)):
        attachment.replace_method(BaseStore, name, make)


# -- check-pointers -------------------------------------------------------------------------------------------------------


_GIVEN: Final = {"get_tuple": 1, "put": 3, "put_writes": 2}
"""How many arguments of a check-pointer's method are read; LangGraph gives them by position."""


def _checkpoints(attachment: Attachment) -> None:
    """`get_tuple`, `put` and `put_writes` of check-pointers, so that a process can end before one and after it."""
    try:
        from langgraph.checkpoint.base import BaseCheckpointSaver
    except ImportError:
        return

    def thread_of(config: Any) -> str:
        given = config.get("configurable") or {}
        return "/".join(str(given[name]) for name in ("thread_id", "checkpoint_ns") if given.get(name))

    def step_of(found: Any) -> Any:
        """Of a reply: the step of the graph that was saved. Its ids are drawn from time."""
        return {"step": found.metadata.get("step")} if getattr(found, "metadata", None) else None

    def port_and_arguments(name: str, given: tuple[Any, ...]) -> tuple[Any, dict[str, Any]]:
        reads, writes = attachment.saved_work("checkpoint", step_of)
        asked: dict[str, Any] = {"key": thread_of(given[0])}
        if name == "get_tuple":
            return reads, asked
        if name == "put":
            return writes, {**asked, "step": given[2].get("step"), "source": given[2].get("source")}
        return writes, {**asked, "channels": [channel for channel, _ in given[1]]}

    def made(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(real: Callable[..., Any]) -> Callable[..., Any]:
            def _saved(self: Any, *given: Any, **options: Any) -> Any:
                if calls_are_plain() or len(given) < _GIVEN[name]:
                    return real(self, *given, **options)
                port, asked = port_and_arguments(name, given)
                return cross(port, asked, lambda changed: real(self, *given, **options), agent=_acting())

            return _saved

        return make

    def made_async(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(real: Callable[..., Any]) -> Callable[..., Any]:
            async def _saved(self: Any, *given: Any, **options: Any) -> Any:
                if calls_are_plain() or len(given) < _GIVEN[name]:
                    return await real(self, *given, **options)
                port, asked = port_and_arguments(name, given)
                return await cross_async(port, asked, lambda changed: real(self, *given, **options), agent=_acting())

            return _saved

        return make

    for name in _GIVEN:
        attachment.replace_method(BaseCheckpointSaver, name, made(name))
        attachment.replace_method(BaseCheckpointSaver, f"a{name}", made_async(name))


_POLICY: Final = (
    "a tool that raises ends the graph, unless its handle_tool_error, handle_tool_errors of ToolNode or a middleware catches it"
)
ADAPTERS: Final = {
    "langchain": Adapter(
        name="langchain",
        package="langchain_core",
        install=install,
        extra="langchain",
        release="langchain-core>=1.0",
        policy=_POLICY,
    ),
    "langgraph": Adapter(
        name="langgraph", package="langgraph", install=install, extra="langgraph", release="langgraph>=1.0", policy=_POLICY
    ),
}

__all__ = ["ADAPTERS", "install"]
