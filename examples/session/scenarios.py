"""The scenarios of a session, as scripts that work in all three transports."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from session.contracts import SessionConfig, SessionTool, Target
from session.orchestrator import Keeps, Result, Session
from session.provider import Call, Fails, Provider, Says
from session.toolbox import Behaviour

QUERY: Final = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
NUMBER: Final = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
CONFIG: Final = SessionConfig(
    max_turns=4,
    max_tool_calls_per_turn=3,
    max_retries=3,
    context_window=16_000,
    buffer_tokens=500,
    max_output_tokens=1_500,
    tool_response_max_bytes=1_024,
    tool_timeout_ms=5_000,
    targets=(
        Target(provider="alpha", model="a1"),
        Target(provider="beta", model="b1", settings={"temperature": 0.2}, reasoning=False),
    ),
    settings={"temperature": 0.5, "top_p": 0.9},
    reasoning={"reasoning_effort": "high"},
    tools=(
        SessionTool(name="search", schema=QUERY, queue="web", server="web"),
        SessionTool(name="read_page", schema=NUMBER, queue="web", server="web"),
    ),
    queues={"default": 4, "web": 2},
    expected_output_format="markdown",
)
TOOLS: Final[Mapping[str, Behaviour]] = {
    "search": Behaviour(output="three pages about kettles"),
    "read_page": Behaviour(output="kettles boil water"),
}


def search(query: str = "kettles", **more: Any) -> Call:
    return Call(tool="search", arguments={"query": query}, **more)


def page(number: int = 1) -> Call:
    return Call(tool="read_page", arguments={"number": number})


REPORT: Final = Says(report=("Kettles boil water.",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A script, what differs from the usual configuration and tools, and how the session should end.

    `reason`: that of a synthetic report; `transports`: those in which it can happen.
    """

    script: tuple[Says | Fails, ...]
    changes: Mapping[str, Any] = field(default_factory=dict)
    tools: Mapping[str, Behaviour] = field(default_factory=dict)
    success: bool = True
    reason: str = ""
    transports: tuple[str, ...] = ("native", "xml-final", "xml")
    task: str = "What do kettles do?"

    def config(self, transport: str) -> SessionConfig:
        return replace(CONFIG, transport=transport, **self.changes)

    def run(self, transport: str, keeps: Keeps = Keeps()) -> Result:
        """Run it; inside a run of `mat`, in virtual time."""
        session = Session(self.config(transport), Provider(self.script), {**TOOLS, **self.tools}, keeps=keeps)
        return asyncio.run(session.run(self.task))


LONG: Final = "ä" * 900
"""1800 bytes, and a limit of 1024 falls between two of them."""
SCHEMA: Final = {
    "type": "object",
    "properties": {"facts": {"type": "object"}, "title": {"type": "string"}},
    "required": ["facts"],
}
BATCH_CALL: Final = Call(
    tool="agent__batch",
    arguments={"calls": [{"tool": "search", "arguments": {"query": "x"}}, {"tool": "read_page", "arguments": {"number": 1}}]},
)

SCENARIOS: Final[Mapping[str, Scenario]] = {
    "plain": Scenario(script=(Says(calls=(search(), page())), Says(calls=(page(2),)), REPORT)),
    "at once": Scenario(script=(REPORT,)),
    "turns used up": Scenario(
        script=tuple(Says(calls=(search(str(number)),)) for number in range(4)), success=False, reason="max_turns_exhausted"
    ),
    "failed turns": Scenario(
        script=tuple(Fails(kind=("network", "timeout", "model")[number % 3]) for number in range(12)),
        success=False,
        reason="max_turns_exhausted",
    ),
    "a failed turn, then an answer": Scenario(
        script=(Fails(kind="model"), Fails(kind="network"), Fails(kind="timeout"), REPORT)
    ),
    "network": Scenario(script=(Says(calls=(search(),)), Fails(kind="network"), REPORT)),
    "rate limits": Scenario(script=(Fails(kind="rate_limit"), REPORT)),
    "all limited": Scenario(
        script=(
            Fails(kind="rate_limit"),
            Fails(kind="rate_limit", retry_after_ms=7_000),
            Fails(kind="rate_limit"),
            Fails(kind="rate_limit", retry_after_ms=500),
            REPORT,
        ),
        changes={"max_retries": 6},
    ),
    "one target limited": Scenario(
        script=(*(Fails(kind="rate_limit") for _ in range(8)), REPORT),
        changes={"max_retries": 10, "targets": (Target(provider="alpha", model="a1"),)},
    ),
    "retry after": Scenario(
        script=(Fails(kind="rate_limit", retry_after_ms=90_000), Fails(kind="network"), REPORT),
        changes={"max_retries": 4},
    ),
    "auth": Scenario(script=(Says(calls=(search(),)), Fails(kind="auth", message="invalid API key")), success=False),
    "quota": Scenario(script=(Fails(kind="quota", message="billing limit reached"),), success=False),
    "malformed response": Scenario(script=(Fails(kind="invalid"), REPORT)),
    "empty": Scenario(script=(Says(), Says(content="  "), REPORT)),
    "empty to the end": Scenario(script=(Says(),) * 12, success=False, reason="max_turns_exhausted"),
    "plain text": Scenario(script=(Says(content="I think so."), REPORT)),
    "reasoning": Scenario(script=(Says(reasoning="Let me think."), REPORT)),
    "text at the end": Scenario(
        script=(*(Says(calls=(search(str(number)),)) for number in range(3)), Says(content="They boil water.")),
        transports=("native",),
    ),
    "excess calls": Scenario(
        script=(Says(calls=(search("a"), page(1), search("b"), page(2))), REPORT), transports=("native", "xml-final")
    ),
    "unreadable arguments": Scenario(script=(Says(calls=(search(), Call(tool="read_page", raw="number one"))), REPORT)),
    "repaired arguments": Scenario(
        script=(Says(calls=(Call(tool="search", raw="{query: 'kettles',"), Call(tool="read_page", raw='{"number": 2'))), REPORT)
    ),
    "invalid parameters": Scenario(
        script=(Says(calls=(page(), Call(tool="search", arguments={"q": "x"}), Call(tool="fly", arguments={}))), REPORT)
    ),
    "nothing usable": Scenario(script=(Says(calls=(Call(tool="search", arguments={}),)), REPORT)),
    "truncation": Scenario(
        script=(Says(calls=(search(), page())), REPORT),
        tools={"search": Behaviour(output=LONG), "read_page": Behaviour(output="b" * 1_024)},
    ),
    "batch": Scenario(
        script=(Says(calls=(BATCH_CALL,)), REPORT),
        tools={"search": Behaviour(output=LONG), "read_page": Behaviour(output="x" * 900)},
    ),
    "timeout": Scenario(script=(Says(calls=(search(), page())), REPORT), tools={"search": Behaviour(seconds=60)}),
    "tool failure": Scenario(script=(Says(calls=(search(),)), REPORT), tools={"search": Behaviour(error="no such host")}),
    "queue": Scenario(script=(Says(calls=(search("a"), search("b"), search("c"))), REPORT)),
    "overflow": Scenario(
        script=(Says(calls=(page(), search(), page(2))), Says(calls=(search(),)), REPORT),
        changes={"context_window": 5_000, "tool_response_max_bytes": 20_000},
        tools={"search": Behaviour(output="x" * 14_000, seconds=0.3), "read_page": Behaviour(seconds=0.2, output="y" * 400)},
    ),
    "overflow while others wait": Scenario(
        script=(Says(calls=(search(), search("b"), page(2))), REPORT),
        changes={"context_window": 5_000, "tool_response_max_bytes": 20_000, "queues": {"default": 4, "web": 1}},
        tools={"search": Behaviour(output="x" * 14_000, seconds=0.3)},
    ),
    "preflight": Scenario(script=(Says(calls=(search(),)), REPORT), task="kettles " * 7_200),
    "no room for outputs": Scenario(
        script=(Says(calls=(search(),), usage=(15_000, 200, 0)), Says(calls=(search(),), content="Let me look again."), REPORT),
    ),
    "forced without an answer": Scenario(
        script=(Says(calls=(search(),), usage=(15_000, 200, 0)), *(Says() for _ in range(12))),
        success=False,
        reason="context_window_exceeded",
    ),
    "another format": Scenario(
        script=(Says(report=("Kettles boil water.",), extra={"format": "html"}),), transports=("native",)
    ),
    "base64": Scenario(
        script=(Says(report=(base64.b64encode(b"Kettles boil water.").decode(),), encoding="base64"),), transports=("native",)
    ),
    "json": Scenario(
        script=(Says(calls=(search(),)), Says(report=({"facts": {"a": 1}, "title": "t"},))),
        changes={"expected_output_format": "json", "output_schema": SCHEMA},
    ),
    "nested json": Scenario(
        script=(Says(report=({"facts": '{"a": {"b": 1}}', "title": "t"},)),),
        changes={"expected_output_format": "json", "output_schema": SCHEMA},
    ),
    "report refused": Scenario(
        script=(Says(report=({"title": "t"},)), Says(report=({"facts": {}},))),
        changes={"expected_output_format": "json", "output_schema": SCHEMA},
    ),
    "report refused twice": Scenario(
        script=(Says(report=({"title": "t"},)), Says(report=({"title": "u"},)), REPORT),
        success=False,
        reason="final_report_failed",
        changes={"expected_output_format": "json", "output_schema": SCHEMA},
    ),
    "slack": Scenario(
        script=(Says(report=({"messages": [{"text": "hi"}]},)),),
        changes={"expected_output_format": "slack-block-kit"},
        transports=("xml-final", "xml"),
    ),
    "sub-agent": Scenario(
        script=(Says(report=(' {"not": parsed ',)),),
        changes={"expected_output_format": "sub-agent"},
        transports=("xml-final", "xml"),
    ),
    "two reports": Scenario(script=(Says(report=("A draft.", "The answer.")),), transports=("xml-final", "xml")),
    "unclosed": Scenario(
        script=(Says(report=("Kettles boil water.",), closed=False, stop="end_turn"),), transports=("xml-final", "xml")
    ),
    "unclosed, reason unknown": Scenario(
        script=(Says(report=("Kettles boil water.",), closed=False, stop=""),), transports=("xml-final", "xml")
    ),
    "cut off": Scenario(
        script=(Says(report=("Kettles boil",), closed=False, stop="max_tokens"), REPORT), transports=("xml-final", "xml")
    ),
    "unclosed call": Scenario(
        script=(Says(calls=(page(), Call(tool="search", arguments={"query": "x"}, closed=False))), REPORT), transports=("xml",)
    ),
    "foreign nonce": Scenario(
        script=(Says(calls=(search(), search("b", slot="deadbeef-0002"), search("c", slot="5e551011-0009"))), REPORT),
        transports=("xml",),
    ),
    "native report": Scenario(script=(Says(report=("By call.",), native_report=True), REPORT), transports=("xml-final", "xml")),
    "long report": Scenario(script=(Says(report=("Kettles. " * 400,)),)),
}
