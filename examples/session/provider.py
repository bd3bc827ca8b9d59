"""A scripted model behind a real boundary. It reads its instructions as a model does: native tools, or XML-NEXT."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import mat
from session.contracts.markup import Instructions, instructions

LATENCY_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call of the model. `raw` replaces the arguments' JSON; `slot` forces a slot; `closed`: with its end tag."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)
    raw: str | None = None
    slot: str = ""
    closed: bool = True

    @property
    def text(self) -> str:
        return json.dumps(self.arguments) if self.raw is None else self.raw


@dataclass(frozen=True, slots=True, kw_only=True)
class Says:
    """A reply. `report`: final reports, in order; `usage`: (input, output, cache read), counted by default."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    report: tuple[Any, ...] = ()
    closed: bool = True
    encoding: str = "raw"
    native_report: bool = False
    stop: str = "stop"
    usage: tuple[int, int, int] | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fails:
    """An error: auth, quota, rate_limit, timeout, network, model, invalid or context."""

    kind: str
    message: str = ""
    retry_after_ms: int | None = None


def tokens(text: str) -> int:
    """The estimate that the session uses, and the count that this provider reports."""
    return (len(text) + 3) // 4


TEXTS: Final = {
    "auth": "401 unauthorized",
    "quota": "quota exceeded",
    "rate_limit": "429 too many requests",
    "timeout": "timed out",
    "network": "connection reset",
    "model": "500 internal server error",
    "invalid": "malformed response",
    "context": "maximum context length exceeded",
}


class Provider:
    """Answers requests from a script. When the script is used up, every further request fails."""

    def __init__(self, script: Iterable[Says | Fails]) -> None:
        self._script = list(script)

    @mat.model("llm", tape="inprocess", record="keep")
    async def complete(
        self,
        provider: str,
        model: str,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        tool_choice: str,
        settings: dict[str, Any],
        session: dict[str, Any],
    ) -> dict[str, Any]:
        """{content, reasoning, tool_calls, usage, stop_reason}, or {error: {kind, message, retry_after_ms}}."""
        await asyncio.sleep(LATENCY_S)
        line = self._script.pop(0) if self._script else Fails(kind="model")
        if isinstance(line, Fails):
            message = line.message or f"{provider}: {TEXTS[line.kind]}"
            return {"error": {"kind": line.kind, "message": message, "retry_after_ms": line.retry_after_ms}}
        content, calls = _rendered(line, _told(messages))
        sent = tokens(json.dumps(messages)) + tokens(json.dumps(tools))
        read, wrote, cached = line.usage or (sent, tokens(content) + tokens(json.dumps(calls)), 0)
        usage = {"inputTokens": read, "outputTokens": wrote, "cacheReadTokens": cached}
        reply = {"content": content, "tool_calls": calls, "usage": usage, "stop_reason": line.stop}
        return {**reply, "reasoning": line.reasoning} if line.reasoning else reply


def _told(messages: list[dict[str, Any]]) -> Instructions | None:
    for message in reversed(messages[-3:]):
        found = instructions(message["content"]) if message["role"] == "user" else None
        if found is not None:
            return found
    return None


def _rendered(line: Says, told: Instructions | None) -> tuple[str, list[dict[str, Any]]]:
    """A reply in the form that the instructions ask for."""
    parts = [line.content] if line.content else []
    native: list[dict[str, Any]] = []
    slots = list(told.slots) if told is not None else []
    for number, call in enumerate(line.calls):
        if not slots:
            native.append({"id": f"call-{number + 1}", "name": call.tool, "arguments": call.text})
            continue
        slot = call.slot or slots[min(number, len(slots) - 1)]
        parts.append(f'<ai-agent-{slot} tool="{call.tool}">{call.text}' + (f"</ai-agent-{slot}>" if call.closed else ""))
    for report in line.report:
        if told is None or line.native_report:
            given = {"report_content": report} if isinstance(report, str) else {"content_json": report}
            given = {"encoding": line.encoding, **given, **line.extra}
            native.append({"id": "call-final", "name": "agent__final_report", "arguments": json.dumps(given)})
            continue
        text, slot = report if isinstance(report, str) else json.dumps(report), f"{told.nonce}-FINAL"
        head = f'<ai-agent-{slot} tool="agent__final_report" format="{_format(told)}">'
        parts.append(head + text + (f"</ai-agent-{slot}>" if line.closed else ""))
    return "\n".join(parts), native


def _format(told: Instructions) -> str:
    return told.text.partition('format="')[2].partition('"')[0]
