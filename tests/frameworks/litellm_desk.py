"""The shop's agent on LiteLLM: a loop around `completion`, as its documentation builds it; nothing of mat in it.

LiteLLM knows only the models. The tools are functions of the shop, which the test declares, as users of LiteLLM have to.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # prices of models: not from the network

import litellm
import shop
from litellm import acompletion, completion


class ScriptedModel(litellm.CustomLLM):
    def __init__(self, mind: shop.Mind) -> None:
        super().__init__()
        self.mind = mind

    def _message(self, messages: list[Any]) -> dict[str, Any]:
        results = [
            shop.Result(each["name"], each["content"], each["content"].startswith("error"))
            for each in messages
            if each["role"] == "tool"
        ]
        thought, size = self.mind(results), len(messages)
        if isinstance(thought, str):
            return {"role": "assistant", "content": thought}
        calls = [
            {"id": f"c{size}-{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for number, (name, arguments) in enumerate(thought)
        ]
        return {"role": "assistant", "content": None, "tool_calls": calls}

    def completion(self, *given: Any, messages: list[Any], **options: Any) -> Any:
        message, size = self._message(messages), len(messages)
        return litellm.ModelResponse(
            choices=[{"index": 0, "finish_reason": "tool_calls" if "tool_calls" in message else "stop", "message": message}],
            usage={"prompt_tokens": 10 * size, "completion_tokens": 5, "total_tokens": 10 * size + 5},
        )

    async def acompletion(self, *given: Any, **options: Any) -> Any:
        return self.completion(**options)

    def streaming(self, *given: Any, messages: list[Any], **options: Any) -> Iterator[Any]:
        message, size = self._message(messages), len(messages)
        calls = [{**call, "index": number} for number, call in enumerate(message.get("tool_calls", ()))]
        part = {"index": 0, "is_finished": False, "finish_reason": "", "usage": None, "tool_use": None, "text": ""}
        yield from ({**part, "tool_use": call} for call in calls)
        usage = {"prompt_tokens": 10 * size, "completion_tokens": 5, "total_tokens": 10 * size + 5}
        reason = "tool_calls" if calls else "stop"
        yield {**part, "text": message["content"] or "", "is_finished": True, "finish_reason": reason, "usage": usage}

    async def astreaming(self, *given: Any, **options: Any) -> AsyncIterator[Any]:
        for each in self.streaming(**options):
            yield each


async def _call(call: Any) -> dict[str, Any]:
    name = call.function.name
    try:
        found = getattr(shop, name)(**json.loads(call.function.arguments))
        text = str(await found if inspect.isawaitable(found) else found)
    except Exception as error:
        text = f"error: {error}"
    return {"role": "tool", "tool_call_id": call.id, "name": name, "content": text}


async def _calls(calls: list[Any]) -> list[dict[str, Any]]:
    return list(await asyncio.gather(*[_call(each) for each in calls]))


def _request(messages: list[Any]) -> dict[str, Any]:
    functions = [{"name": each.__name__, "description": each.__doc__, "parameters": {}} for each in shop.TOOLS]
    tools = [{"type": "function", "function": each} for each in functions]
    return {"model": "shop/scripted", "messages": messages, "tools": tools}


def _ask(messages: list[Any], *, stream: bool) -> Any:
    if not stream:
        return completion(**_request(messages))
    return litellm.stream_chunk_builder(
        list(completion(**_request(messages), stream=True, stream_options={"include_usage": True})), messages=messages
    )


def handle(mind: shop.Mind, mode: str) -> str:
    litellm.custom_provider_map = [{"provider": "shop", "custom_handler": ScriptedModel(mind)}]
    litellm.utils.custom_llm_setup()
    messages: list[Any] = [{"role": "user", "content": "Help me with order A17"}]

    def sync() -> str:
        while True:
            message = _ask(messages, stream=mode == "stream").choices[0].message
            if not message.tool_calls:
                return str(message.content)
            messages.extend([message, *asyncio.run(_calls(message.tool_calls))])

    async def concurrent() -> str:
        while True:
            message = (await acompletion(**_request(messages))).choices[0].message
            if not message.tool_calls:
                return str(message.content)
            messages.extend([message, *await _calls(message.tool_calls)])

    return asyncio.run(concurrent()) if mode == "async" else sync()
