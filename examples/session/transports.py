"""How a session talks to a model: native tool calls, native calls with an XML final report, or XML alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from session.contracts import SessionConfig
from session.contracts.markup import Tag, tags
from session.contracts.parsing import parsed, repaired
from session.contracts.settings import BATCH, FINAL
from session.provider import tokens

CUT: Final = ("length", "max_tokens")
NORMAL: Final = ("stop", "end_turn", "end", "eos")
CHUNK: Final = 40
OFFERED: Final = 3
"""Numbered slots of a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The provider's request, the tokens that describe the tools, and the schemas for checking calls."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    tool_choice: str
    schema_tokens: int
    schemas: dict[str, Any]
    slots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The content of a reply: (id, tool, raw arguments) of each call, a final report, or a truncated report.

    Raw arguments are None if a tag is not closed. `warn`: an unclosed report was accepted because the stop reason is unknown.
    """

    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    report: tuple[str, dict[str, Any]] | None = None
    cut: bool = False
    warn: bool = False


class Transport(Protocol):
    def system_prompt(self) -> str: ...
    def request(self, messages: list[dict[str, Any]], *, turn: int, final: bool) -> Request: ...
    def calls(self, reply: dict[str, Any], request: Request, keeps: Any) -> Found: ...
    def answers(
        self, id: str, tool: str, status: str, duration_ms: int, given: dict[str, Any], text: str
    ) -> list[dict[str, Any]]: ...
    def command(self, tool: str) -> str: ...
    def source(self, tool: str) -> dict[str, str]: ...
    def streamed(self, arguments: dict[str, Any]) -> Iterator[str]: ...


def transport_of(config: SessionConfig, nonce: str) -> Transport:
    return {"native": Native, "xml-final": XmlFinal, "xml": Xml}[config.transport](config, nonce)


class Native:
    """Tool calls and final report by the provider's own tool interface."""

    def __init__(self, config: SessionConfig, nonce: str) -> None:
        self.config, self.nonce = config, nonce

    def system_prompt(self) -> str:
        return f"You are a careful assistant. Finish with {FINAL}."

    def definitions(self) -> list[dict[str, Any]]:
        known = [{"name": tool.name, "parameters": dict(tool.schema)} for tool in self.config.tools]
        batch = {"type": "object", "properties": {"calls": {"type": "array"}}, "required": ["calls"]}
        return [*known, {"name": BATCH, "parameters": batch}]

    def request(self, messages: list[dict[str, Any]], *, turn: int, final: bool) -> Request:
        format = {"type": "string", "const": self.config.expected_output_format}
        report = {"name": FINAL, "parameters": {"type": "object", "properties": {"format": format}}}
        tools = [report] if final else [*self.definitions(), report]
        return Request(
            messages=messages,
            tools=tools,
            tool_choice="required",
            schema_tokens=tokens(json.dumps(tools)),
            schemas=_schemas(tools),
        )

    def calls(self, reply: dict[str, Any], request: Request, keeps: Any) -> Found:
        native = [(item["id"], item["name"], item["arguments"]) for item in reply.get("tool_calls") or ()]
        for id, name, raw in native:
            if name == FINAL:
                arguments = parsed(raw) or repaired(raw)
                if arguments is not None:
                    return Found(report=(id, dict(arguments)))
        return Found(calls=native)

    def answers(
        self, id: str, tool: str, status: str, duration_ms: int, given: dict[str, Any], text: str
    ) -> list[dict[str, Any]]:
        return [{"role": "tool", "toolCallId": id, "content": text}]

    def command(self, tool: str) -> str:
        return tool

    def source(self, tool: str) -> dict[str, str]:
        return {}

    def streamed(self, arguments: dict[str, Any]) -> Iterator[str]:
        return iter(())


class XmlFinal(Native):
    """Native tool calls; the final report by its tag."""

    def system_prompt(self) -> str:
        return "You are a careful assistant."

    def request(self, messages: list[dict[str, Any]], *, turn: int, final: bool) -> Request:
        tools = [] if final else self.definitions()
        told = {"role": "user", "content": self.next(turn, final=final)}
        cost = tokens(json.dumps(tools)) + tokens(told["content"])
        return Request(messages=[*messages, told], tools=tools, tool_choice="auto", schema_tokens=cost, schemas=_schemas(tools))

    def next(self, turn: int, *, final: bool) -> str:
        """XML-NEXT: the instructions of this turn."""
        slot = f'<ai-agent-{self.nonce}-FINAL tool="{FINAL}" format="{self.config.expected_output_format}">'
        return f"Per-turn instructions. Give your final report as {slot}...</ai-agent-{self.nonce}-FINAL>"

    def calls(self, reply: dict[str, Any], request: Request, keeps: Any) -> Found:
        if not keeps.report_by_tag:
            return super().calls(reply, request, keeps)
        native = [
            (item["id"], item["name"], item["arguments"]) for item in reply.get("tool_calls") or () if item["name"] != FINAL
        ]
        return self._report(reply, keeps) or Found(calls=native)

    def _report(self, reply: dict[str, Any], keeps: Any) -> Found | None:
        found = [tag for tag in tags(reply.get("content") or "") if tag.slot == f"{self.nonce}-FINAL" and tag.tool == FINAL]
        stop = reply.get("stop_reason", "")
        whole = [tag for tag in found if tag.closed or (_may_be_open(tag, stop, keeps))]
        if not whole:
            return Found(cut=True) if found else None
        tag = whole[-1] if keeps.last_tag else whole[0]
        arguments = {
            "payload": tag.payload,
            "closed": tag.closed,
            **{name: tag.attributes[name] for name in tag.attributes if name != "tool"},
        }
        return Found(report=(tag.slot, arguments), warn=not tag.closed and stop not in NORMAL)

    def command(self, tool: str) -> str:
        return f"{tool}_xml" if tool == FINAL else tool

    def source(self, tool: str) -> dict[str, str]:
        return {"source": "xml"} if tool == FINAL else {}

    def streamed(self, arguments: dict[str, Any]) -> Iterator[str]:
        """The growing report for the user, extracted from the model's stream."""
        if "payload" not in arguments:
            return
        stream, slot = TagStream(f"{self.nonce}-FINAL"), f"{self.nonce}-FINAL"
        text = f'Here it is: <ai-agent-{slot} tool="{FINAL}">{arguments["payload"]}' + (
            f"</ai-agent-{slot}>" if arguments["closed"] else ""
        )
        for start in range(0, len(text), CHUNK):
            shown = stream.feed(text[start : start + CHUNK])
            if shown:
                yield shown
        rest = stream.rest()
        if rest:
            yield rest


def _may_be_open(tag: Tag, stop: str, keeps: Any) -> bool:
    """Whether a report without closing tag is complete: the stop reason says so."""
    if not tag.payload.strip():
        return False
    if stop in CUT:
        return not keeps.cut_is_retried
    return bool(keeps.unclosed_is_taken)


class Xml(XmlFinal):
    """Calls and report by tags: the provider gets no tools."""

    def __init__(self, config: SessionConfig, nonce: str) -> None:
        super().__init__(config, nonce)
        self._first, self._turn, self._used = 1, 0, 0

    def request(self, messages: list[dict[str, Any]], *, turn: int, final: bool) -> Request:
        if turn != self._turn:
            self._turn, self._first, self._used = turn, self._first + self._used, 0
        told = {"role": "user", "content": self.next(turn, final=final)}
        slots = () if final else self._slots()
        schemas = {} if final else _schemas(self.definitions())
        return Request(
            messages=[*messages, told],
            tools=[],
            tool_choice="auto",
            schema_tokens=tokens(told["content"]),
            schemas=schemas,
            slots=slots,
        )

    def _slots(self) -> tuple[str, ...]:
        return tuple(f"{self.nonce}-{number:04d}" for number in range(self._first, self._first + OFFERED))

    def next(self, turn: int, *, final: bool) -> str:
        last = super().next(turn, final=final)
        progress = f"Tell your progress as <ai-agent-{self.nonce}-PROGRESS>...</ai-agent-{self.nonce}-PROGRESS>"
        if final:
            return f"{last}\n{progress}"
        offered = "\n".join(f'<ai-agent-{slot} tool="NAME">JSON</ai-agent-{slot}>' for slot in self._slots())
        return f"{last}\n{progress}\nYour tools: {json.dumps(self.definitions())}\nCall them in these slots:\n{offered}"

    def calls(self, reply: dict[str, Any], request: Request, keeps: Any) -> Found:
        found = self._report(reply, keeps)
        if found is None and not keeps.report_by_tag:
            native = Native.calls(self, reply, request, keeps)
            found = native if native.report is not None else None
        if found is not None:
            return found
        taken: dict[str, Tag] = {}
        for tag in tags(reply.get("content") or ""):
            fits = tag.slot in request.slots or (not keeps.matches_nonce and tag.slot[-4:].isdigit())
            if fits and tag.slot not in taken:
                taken[tag.slot] = tag
                if tag.slot in request.slots:
                    self._used = max(self._used, request.slots.index(tag.slot) + 1)
        return Found(calls=[(slot, tag.tool, tag.payload if tag.closed else None) for slot, tag in taken.items()])

    def answers(
        self, id: str, tool: str, status: str, duration_ms: int, given: dict[str, Any], text: str
    ) -> list[dict[str, Any]]:
        lines = [
            f"System Notice: tool response for {id} ({tool})",
            f"slot: {id}",
            f"tool: {tool}",
            f"status: {status}",
            f"duration: {duration_ms} ms",
            f"request: {json.dumps(given)}",
            "response:",
            text,
        ]
        return [{"role": "user", "content": "\n".join(lines)}]

    def source(self, tool: str) -> dict[str, str]:
        return {"source": "xml"}


def _schemas(tools: list[dict[str, Any]]) -> dict[str, Any]:
    return {tool["name"]: tool["parameters"] for tool in tools}


class TagStream:
    """Shows only the content of one tag of a stream; text is held back while it may be markup."""

    def __init__(self, slot: str) -> None:
        self._open, self._close = f"<ai-agent-{slot}", f"</ai-agent-{slot}>"
        self._held, self._inside, self._done = "", False, False

    def feed(self, chunk: str) -> str:
        """The text to show after one more chunk."""
        if self._done:
            return ""
        self._held += chunk
        if not self._inside:
            start = self._held.find(self._open)
            end = self._held.find(">", start) if start >= 0 else -1
            if end < 0:
                return ""
            self._held, self._inside = self._held[end + 1 :], True
        stop = self._held.find(self._close)
        if stop >= 0:
            shown, self._held, self._done = self._held[:stop], "", True
            return shown
        keep = len(self._close) - 1
        shown, self._held = self._held[:-keep], self._held[-keep:]
        return shown

    def rest(self) -> str:
        """The text that is held back at the end of the stream: the end of the content of a tag that was never closed."""
        shown, self._held = (self._held if self._inside and not self._done else ""), ""
        return shown
