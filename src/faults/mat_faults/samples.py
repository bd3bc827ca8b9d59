"""Sample calls and replies of common tools, indexes, memories and clients, for `mat_faults.conformance`.

>>> from mat_faults import samples
>>> samples.SAMPLES[0].kind
'tool_call'
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping
from typing import Any, Final, Literal

from mat.boundary.instrument import Passage
from mat.core.record import ActionKind
from mat.core.value import EMPTY


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """An earlier call of a sample: its agent, its kind (empty: that of the sample), its arguments and its reply.

    `arguments`: parameter -> value, by default those of the sample.

    >>> from mat_faults.conformance import Turn
    >>> Turn(reply={"eta": "Friday"}, arguments={"parcel": 17}).agent
    'main'

    Source: A3.4.
    """

    reply: Any
    arguments: Mapping[str, Any] | None = None
    agent: str = "main"
    kind: ActionKind | Literal[""] = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A call and its reply, as an operator gets them. `past`: calls of the same port before it, oldest first.

    `arguments` of a message are {text}, of a delegation {task}; their reply is what was sent. A stream's reply is the list of
    its chunks. `prompt`: a message that enters from outside, at the prompt boundary, instead of one between agents.
    `approved`: an approval is asked for before each call. `port`: the name of the port, if the operator looks at it.

    `kind`: the action kind. `effect`: "read" (default) or "write".

    >>> from mat_faults.conformance import Sample
    >>> Sample(name="track a parcel", kind="tool_call", arguments={"parcel": 17}, reply={"eta": "Friday"}).effect
    'read'

    Source: A3.4.
    """

    name: str
    kind: ActionKind
    arguments: Mapping[str, Any] = EMPTY
    reply: Any = None
    effect: Literal["read", "write"] = "read"
    stream: bool = False
    prompt: bool = False
    approved: bool = False
    port: str = ""
    past: tuple[Turn, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Invoice:
    """A typed reply."""

    number: str
    cents: int
    paid: bool
    due: datetime.date
    lines: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    input_tokens: int
    output_tokens: int


@dataclasses.dataclass(frozen=True, slots=True)
class Completion:
    """A typed reply of a model."""

    content: str
    usage: Usage
    finish_reason: str = "stop"


_ORDER: Final = {
    "id": "A17", "status": "shipped", "cents": 4900, "gift": False, "ordered_at": "2026-03-01T10:00:00Z", "due": "2026-03-09",
    "items": [{"sku": "kettle", "count": 1}, {"sku": "lamp", "count": 2}], "address": {"city": "Graz", "note": "Zweiter Stock"},
}  # fmt: skip
_HEADERS: Final = {
    "status_code": 200, "version": "1.4.2", "body": {"in_stock": 3},
    "headers": {
        "ETag": '"33a64df5"', "Content-Type": "application/json", "X-Request-Id": "r-81f2",
        "Date": "Wed, 21 Oct 2026 07:28:00 GMT",
    },
}  # fmt: skip
_SIGNATURE: Final = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_URL: Final = (
    "https://files.example.net/bucket/report%2F2026%2Fmarch.pdf?X-Amz-Signature=" + _SIGNATURE * 3
    + "&X-Amz-Date=20260301T100000Z&X-Amz-Credential=AK%2F20260301%2Feu-central-1#page=2"
)  # fmt: skip
_CURSOR: Final = "https://api.example.net/orders?sort=asc&page=2&cursor=" + "QWxhZGRpbjpvcGVuIHNlc2FtZQ" * 8 + "%2Fend"
TOOLS: Final = [
    {
        "name": "search_orders", "description": "Finds orders by number or customer.",
        "inputSchema": {
            "type": "object", "required": ["text"],
            "properties": {"text": {"type": "string"}, "state": {"type": "string", "enum": ["open", "shipped", "returned"]}},
        },
    },
    {"name": "refund", "description": "Pays an order back.", "inputSchema": {"type": "object", "properties": {}}},
]  # fmt: skip
FUNCTIONS: Final = [
    {
        "type": "function",
        "function": {"name": item["name"], "description": item["description"], "parameters": item["inputSchema"]},
    }
    for item in TOOLS
]

_SERVICE: Final = (
    Sample(
        name="an order", kind="tool_call", arguments={"order": "A17"}, reply=_ORDER,
        past=(
            Turn(arguments={"order": "A17"}, reply={**_ORDER, "status": "new", "cents": 5900}),
            Turn(arguments={"order": "B4"}, reply={"id": "B4"}),
            Turn(arguments={"order": "A17"}, reply={**_ORDER, "status": "packed"}),
        ),
    ),
    Sample(
        name="a payment", kind="tool_call", effect="write", arguments={"order": "A17", "cents": 4900},
        reply={"receipt": "R1", "final": True}, past=(Turn(arguments={"order": "B4", "cents": 100}, reply={"receipt": "R0"}),),
    ),
    Sample(
        name="an approved payment", kind="tool_call", effect="write", approved=True, reply={"sent": True},
        arguments={"to": "ann@example.net", "amount": 49, "order": "A17"},
    ),
    Sample(
        name="an endpoint of HTTP", kind="tool_call", port="GET shop.test/orders/{id}", arguments={"path": "/orders/17"},
        reply={"status": 200, "headers": {"content-type": "application/json", "etag": '"v2"'}, "body": _ORDER},
    ),
    Sample(name="a page", kind="tool_call", reply=[{"id": number, "total": number * 10} for number in range(40)]),
    Sample(name="an empty page", kind="tool_call", arguments={"page": 9}, reply=[]),
    Sample(name="a JSON text", kind="tool_call", reply=json.dumps(_ORDER)),
    Sample(
        name="a web page", kind="tool_call", arguments={"url": "https://example.net/"},
        reply='Files: <a class="x" href="https://example.net/a.pdf?v=2">Download</a>, or [the list](https://example.net/list).',
    ),
    Sample(
        name="links", kind="tool_call",
        reply={"links": [{"text": "Pay", "href": "https://pay.example.net/1"}, {"text": "Help", "href": "/help"}]},
    ),
    Sample(name="a plain text", kind="tool_call", arguments={"city": "Graz"}, reply="Cloudy"),
    Sample(name="a number", kind="tool_call", reply=7),
    Sample(name="nothing", kind="tool_call", effect="write", arguments={"cents": 5}, reply=None),
    Sample(name="a list of tools", kind="tool_call", reply={"tools": TOOLS}),
    Sample(
        name="a reply with headers", kind="tool_call", reply=_HEADERS,
        past=(Turn(reply={**_HEADERS, "headers": {**_HEADERS["headers"], "ETag": '"0cc175b9"'}}),),  # type: ignore[dict-item]
    ),
    Sample(
        name="a typed reply", kind="tool_call",
        reply=Invoice(number="R-1", cents=4900, paid=False, due=datetime.date(2026, 3, 1), lines=("kettle", "lamp")),
    ),
    Sample(
        name="a signed URL", kind="tool_call", effect="write", reply={"ok": True},
        arguments={
            "url": _URL, "headers": {"Authorization-Token": f"{_SIGNATURE}{_SIGNATURE}", "Referer": _CURSOR},
            "params": [["sort", "asc"], ["after", "A%2F17"]],
        },
    ),
    Sample(name="a stream of rows", kind="tool_call", stream=True, reply=[{"row": number} for number in range(6)]),
)  # fmt: skip

_PASSAGES: Final = [
    Passage(
        text=f"{topic} Returns are free within 30 days of delivery.", id=f"p{rank}", score=0.9 - rank / 10, source=f"doc{rank}"
    )
    for rank, topic in enumerate(
        ("Kettles boil water.", "Lamps give light.", "Parcels are tracked.", "Refunds take 5 days.", "Gifts.")
    )
]
_RETRIEVAL: Final = (
    Sample(
        name="passages", kind="retrieval", arguments={"query": "returns of kettles", "top_k": 5}, reply=_PASSAGES,
        past=(
            Turn(arguments={"query": "returns of kettles", "top_k": 5}, reply=_PASSAGES[:2]),
            Turn(arguments={"query": "returns of kettles", "top_k": 5}, reply=_PASSAGES[1:4]),
        ),
    ),
    Sample(
        name="rows of an index", kind="retrieval", arguments={"query": "lamps"},
        reply=[{"id": rank, "content": f"Lamp {rank} is dim. It is sold out.", "score": 1.0 / rank} for rank in (1, 2, 3)],
    ),
    Sample(name="texts", kind="retrieval", arguments={"query": "parcels"}, reply=["Parcels are tracked.", "Parcels get lost."]),
    Sample(
        name="passages with text and structured content", kind="retrieval", arguments={"query": "returns"},
        reply=[
            {"type": "text", "text": f"Returns take {days} days. They are free.", "structured": {"id": days, "score": 1 / days}}
            for days in (3, 5)
        ],
    ),
    Sample(name="one passage", kind="retrieval", arguments={"query": "gifts"}, reply=_PASSAGES[-1:]),
    Sample(name="no passage", kind="retrieval", arguments={"query": "ships"}, reply=[]),
)  # fmt: skip

_NOTES: Final = ["Ann wants short answers.", "Ann agreed to no offers.", "Order A17 is late."]
_MEMORY: Final = (
    Sample(
        name="notes", kind="memory_read", arguments={"key": "ann"}, reply=_NOTES,
        past=(
            Turn(kind="memory_write", agent="other", arguments={"key": "ann", "value": _NOTES[:1]}, reply=None),
            Turn(arguments={"key": "ann"}, reply=_NOTES[:1]),
            Turn(kind="memory_write", agent="other", arguments={"key": "ann", "value": _NOTES}, reply=None),
        ),
    ),
    Sample(
        name="a record", kind="memory_read", arguments={"key": "bob"}, reply={"name": "Bob", "note": "Likes tea.", "visits": 3}
    ),
    Sample(name="a text", kind="memory_read", arguments={"key": "plan"}, reply="Look the order up, then refund it."),
    Sample(name="keys", kind="memory_read", arguments={"keys": True}, reply=["ann", "bob", "plan"]),
    Sample(name="no note", kind="memory_read", arguments={"key": "eve"}, reply=None),
    Sample(
        name="a new note", kind="memory_write", effect="write", arguments={"key": "ann", "value": [*_NOTES, "Refund agreed."]},
        past=(
            Turn(kind="memory_read", agent="other", arguments={"key": "ann"}, reply=_NOTES),
            Turn(kind="memory_write", agent="other", arguments={"key": "ann", "value": [*_NOTES, "Ann called."]}, reply=None),
        ),
    ),
    Sample(
        name="a note after another", kind="memory_write", effect="write",
        arguments={"key": "bob", "value": [*_NOTES, "Bob called."]},
        past=(
            Turn(kind="memory_read", arguments={"key": "bob"}, reply=_NOTES[:2]),
            Turn(kind="memory_write", agent="other", arguments={"key": "bob", "value": _NOTES}, reply=None),
        ),
    ),
    Sample(
        name="a new text", kind="memory_write", effect="write", arguments={"key": "plan", "value": "Refund it. Then tell Ann."}
    ),
    Sample(name="a deletion", kind="memory_write", effect="write", arguments={"key": "plan", "deleted": True}),
)  # fmt: skip

_EMAIL: Final = """Hello team,
my order A17 (kettle, 49.00 EUR) has not arrived. Please check where the parcel is before you do anything else.
If it is lost, refund the full amount to my card; do not send a voucher, and do not call me.
You must:
- confirm the address,
- refund at most 49 EUR,
- answer by 2026-03-05.
I bought two lamps from you last year and was very happy with them. Your colleague Bob wrote that I can expect a reply
within 3 days. Never share my phone number with the carrier. Thank you, Ann"""
_PROMPT: Final = (
    Sample(name="an email", kind="message", prompt=True, arguments={"text": _EMAIL}),
    Sample(
        name="a request", kind="message", prompt=True,
        arguments={"text": "Refund the order A17. Use the card. Tell the customer when it is done, and send no voucher."},
    ),
    Sample(name="one word", kind="message", prompt=True, arguments={"text": "Hello"}),
    Sample(name="no text", kind="message", prompt=True, arguments={"text": ""}),
)  # fmt: skip
_DELEGATION: Final = (
    Sample(
        name="a message", kind="message",
        arguments={"text": "Refund 49 EUR for order A17, not order A16, to the card. Tell Ann, but only once it is done."},
        past=(Turn(arguments={"text": "Order A16 is done."}, reply=None),),
    ),
    Sample(name="a short message", kind="message", arguments={"text": "ok"}),
    Sample(
        name="a task", kind="delegation",
        arguments={"task": "Refund at most 49 EUR for order A17, not order A16. Ask for approval first. Never call anyone."},
        past=(Turn(arguments={"task": "Look up order A17."}, reply=None),),
    ),
    Sample(name="no task", kind="delegation", arguments={"task": ""}),
)  # fmt: skip

_CHAT: Final = {
    "choices": [
        {
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant", "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"order": "A17"}'}}
                ],
            },
        }
    ],
    "usage": {"prompt_tokens": 81, "completion_tokens": 17, "total_tokens": 98},
}  # fmt: skip
_ITEMS: Final = [
    {
        "id": "m1", "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "I look the order up.", "annotations": []}],
    },
    {"type": "function_call", "call_id": "c1", "name": "refund", "arguments": '{"order": "A17"}', "status": "completed"},
]  # fmt: skip
_MODEL: Final = (
    Sample(
        name="a chat completion", kind="model_call", reply=_CHAT,
        arguments={"messages": [{"role": "user", "content": "Refund A17"}], "tools": FUNCTIONS},
    ),
    Sample(
        name="content blocks", kind="model_call", arguments={"prompt": "Refund A17", "tools": TOOLS},
        reply={
            "content": [
                {"type": "text", "text": "I will look the order up first, then pay it back."},
                {"type": "tool_use", "id": "t1", "name": "search_orders", "input": {"text": "A17"}},
            ],
            "stop_reason": "tool_use", "usage": {"input_tokens": 60, "output_tokens": 22},
        },
    ),
    Sample(
        name="output items", kind="model_call", arguments={"input": "Refund A17"},
        reply={"output": _ITEMS, "status": "completed"},
        past=(Turn(arguments={"input": "Hello"}, reply={"output": _ITEMS[:1], "status": "completed"}),),
    ),
    Sample(
        name="parts of Gemini", kind="model_call", arguments={"contents": "Refund A17"},
        reply={
            "candidates": [
                {"content": {"parts": [{"functionCall": {"name": "refund", "args": {"order": "A17"}}}]}, "finishReason": "STOP"}
            ],
            "usageMetadata": {"candidatesTokenCount": 7, "totalTokenCount": 20},
        },
    ),
    Sample(
        name="parts of Pydantic AI", kind="model_call", arguments={"messages": []},
        reply={
            "parts": [
                {"part_kind": "text", "content": "I refund it."},
                {"part_kind": "tool-call", "tool_name": "refund", "args": {"order": "A17"}, "tool_call_id": "p1"},
            ]
        },
    ),
    Sample(
        name="a message of LangChain", kind="model_call", arguments={"messages": []},
        reply={"content": "", "tool_calls": [{"name": "refund", "args": {"order": "A17"}, "id": "c1"}]},
        past=(Turn(arguments={"messages": ["Hello"]}, reply={"content": "Hello Ann", "tool_calls": []}),),
    ),
    Sample(
        name="a completion over HTTP", kind="model_call", arguments={"path": "/v1/chat/completions"},
        reply={"status": 200, "headers": {"content-type": "application/json"}, "body": _CHAT},
    ),
    Sample(
        name="a call as data", kind="model_call", arguments={"prompt": "What next?"},
        reply={"tool": "refund", "arguments": {"order": "A17"}},
        past=(Turn(arguments={"prompt": "What first?"}, reply={"tool": "search_orders", "arguments": {"text": "A17"}}),),
    ),
    Sample(
        name="a call as text", kind="model_call", arguments={"prompt": "What next?", "tools": TOOLS},
        reply='{"tool": "refund", "arguments": {"order": "A17"}}',
    ),
    Sample(name="a text", kind="model_call", arguments={"prompt": "Thank Ann"}, reply="Dear Ann, your refund is on its way."),
    Sample(
        name="a typed completion", kind="model_call", arguments={"prompt": "Sum up"},
        reply=Completion(content="Ann gets 49 EUR back.", usage=Usage(input_tokens=40, output_tokens=9)),
    ),
    Sample(name="no text", kind="model_call", arguments={"prompt": "Say nothing"}, reply=""),
    Sample(
        name="a stream", kind="model_call", stream=True, arguments={"prompt": "Thank Ann"},
        reply=["Dear", " Ann,", " your", " refund", " is", " on its way."],
    ),
)  # fmt: skip

SAMPLES: Final[tuple[Sample, ...]] = (*_SERVICE, *_RETRIEVAL, *_MEMORY, *_PROMPT, *_DELEGATION, *_MODEL)
