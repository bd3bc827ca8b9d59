"""The shop's agents in Google ADK, as its documentation builds them; nothing of mat in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import shop
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types


class ScriptedModel(BaseLlm):
    mind: Any

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        answers = [part.function_response for each in llm_request.contents for part in each.parts if part.function_response]
        results = [
            shop.Result(
                str(each.name), str(each.response.get("error") or each.response.get("result")), "error" in each.response
            )
            for each in answers
        ]
        thought = self.mind(results)
        size = len(llm_request.contents)
        usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=10 * size, candidates_token_count=5)
        if isinstance(thought, str):
            if stream:
                for word in thought.split(" "):
                    yield LlmResponse(content=_content(types.Part(text=f"{word} ")), partial=True)
            yield LlmResponse(content=_content(types.Part(text=thought)), usage_metadata=usage)
        else:
            calls = [types.Part(function_call=types.FunctionCall(name=name, args=args)) for name, args in thought]
            yield LlmResponse(content=_content(*calls), usage_metadata=usage)


def _content(*parts: types.Part) -> types.Content:
    return types.Content(role="model", parts=list(parts))


def _told(tool: Any, args: dict[str, Any], tool_context: Any, error: Exception) -> dict[str, Any]:
    return {"error": str(error) or type(error).__name__}


def handle(mind: shop.Mind, mode: str) -> str:
    agent = LlmAgent(
        name="clerk", model=ScriptedModel(model="scripted", mind=mind), tools=list(shop.TOOLS), on_tool_error_callback=_told
    )
    runner = InMemoryRunner(agent=agent, app_name="shop")
    message = types.Content(role="user", parts=[types.Part(text="Help me with order A17")])
    config = RunConfig(streaming_mode=StreamingMode.SSE if mode == "stream" else StreamingMode.NONE)

    async def begun() -> dict[str, Any]:
        session = await runner.session_service.create_session(app_name="shop", user_id="ann")
        return {"user_id": "ann", "session_id": session.id, "new_message": message, "run_config": config}

    def text_of(event: Any) -> str:
        parts = event.content.parts if event.content and not event.partial else None
        return parts[0].text or "" if parts else ""

    if mode == "sync":
        return [text_of(event) for event in runner.run(**asyncio.run(begun()))][-1]

    async def run() -> str:
        return [text_of(event) async for event in runner.run_async(**await begun())][-1]

    return asyncio.run(run())
