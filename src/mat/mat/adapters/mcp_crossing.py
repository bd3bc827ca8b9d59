"""Requests of MCP as steps of a run, as plain data: what a proxy or a program's run does with one JSON-RPC request.

`tools/call` is a tool call (or a retrieval, for tools named as retrievers), `resources/read` and `prompts/get` are
retrievals that can be poisoned. The rest, such as `initialize` and `tools/list`, is recorded and served in replays, and no
fault changes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from mat.boundary.calls import cross
from mat.boundary.port import Port, make_port
from mat.core.errors import Blocked
from mat.core.proxied import CLOSED

Forward: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""Sends a request with these params to the server, and returns {"result": ...} or {"error": ...}."""

TIMED_OUT: Final = -32001
REPORTED: Final = ("server_error", "rate_limit", "auth", "not_found", "invalid")
"""Kinds of fault that a server reports in the result of a tool, as the specification says of errors of execution."""
VOLATILE: Final = ("_meta", "requestState")
"""Fields of a reply that may differ from run to run: notes for the protocol, and the sealed state of a call in rounds."""
_FAILED: Final = "ServerReported"


class ServerReported(Exception):  # noqa: N818  (a reply of the server, as the protocol has it)
    """An error of JSON-RPC. Its text is the error object, so that a tape keeps its code."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(json.dumps(dict(error), sort_keys=True))


class ToolFailed(Exception):  # noqa: N818  (for the client it is a result and no error)
    """A fault that the client meets as a result with `isError`."""


@dataclass(slots=True, kw_only=True)
class MCPPorts:
    """The ports of the servers that one client talks to.

    `effects`, `impacts`, `retrievers`, `perturb`: as for `mat.attach`. `tape`: "external" if a recording answers in replays.
    """

    effects: Mapping[str, str] = field(default_factory=dict)
    impacts: Mapping[str, str] = field(default_factory=dict)
    retrievers: Collection[str] = ()
    perturb: bool | Collection[str] = True
    tape: Literal["external", "inprocess"] = "inprocess"
    _annotated: dict[str, str] = field(default_factory=dict)
    _ports: dict[tuple[str, str], Port] = field(default_factory=dict)

    def answer(self, method: str, params: Mapping[str, Any], forward: Forward, *, server: str = "") -> dict[str, Any]:
        """One request as a step: {"result": ...} or {"error": ...}, the very object that `forward` returned if it is unchanged.

        A blocked call is a result with `isError`. `mat.MatError` and what ends a run propagate. `server`: its name.
        """
        port, asked, put = self._step(method, params, server)
        got: list[tuple[Any, dict[str, Any]]] = []

        def call(changed: dict[str, Any] | None) -> Any:
            reply = forward(put(changed) if changed else dict(params))
            if "error" in reply:
                raise ServerReported(reply["error"])
            got[:] = [(reply["result"], reply)]
            return reply["result"]

        try:
            result = cross(port, asked, call)
        except Blocked as blocked:
            return _failed(f"blocked: {blocked}")
        except ToolFailed as failed:
            return _failed(str(failed))
        except Exception as error:
            code = _error_object(error)
            if code is None:
                raise
            return {"error": code}
        if method == "tools/list":
            self._learn(result)
        return got[0][1] if got and got[0][0] is result else {"result": result}

    def _learn(self, result: Any) -> None:
        """The effects that the annotations of tools declare."""
        for tool in result.get("tools", ()) if isinstance(result, Mapping) else ():
            hints = tool.get("annotations")
            effect = "" if hints is None else "read" if hints.get("readOnlyHint") else "write"
            if self._annotated.setdefault(str(tool["name"]), effect) != effect:  # two servers differ: nothing is certain
                self._annotated[str(tool["name"])] = ""

    def _step(
        self, method: str, params: Mapping[str, Any], server: str
    ) -> tuple[Port, dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
        """The port of a request, its arguments, and how changed arguments become its params."""
        if method == "tools/call":
            name, arguments = str(params.get("name", "")), dict(params.get("arguments") or {})
            port = self._retriever(name, "content") if name in self.retrievers else self._tool(name)
            return port, arguments, lambda changed: {**params, "arguments": {**arguments, **changed}}
        asked = {name: item for name, item in params.items() if name not in VOLATILE}
        if method == "resources/read":
            port = self._retriever("resource", "contents")
        elif method == "prompts/get":
            port = self._retriever("prompt", "messages")
        else:
            port = self._plain(f"{server} {method}".strip())
        return port, asked, lambda changed: {**params, **changed}

    def _tool(self, name: str) -> Port:
        effect = self.effects.get(name) or self._annotated.get(name) or "unknown"
        port = self._ports.get(("tool", name))
        if port is None or port.effect != effect:
            port = self._ports["tool", name] = make_port(
                name=name, kind="tool_call", boundary="service", effect=effect, impact=self.impacts.get(name, "low"),
                errors=_ERRORS, tape=self.tape, perturb=self.perturb, encode=_steady, decode=_result,
            )  # fmt: skip
        return port

    def _retriever(self, name: str, part: str) -> Port:
        port = self._ports.get(("retrieval", name))
        if port is None:
            port = self._ports["retrieval", name] = make_port(
                name=name, kind="retrieval", boundary="retrieval", effect="read", errors=_ERRORS, tape=self.tape,
                perturb=self.perturb, encode=_passages(part), decode=_of_passages(part),
            )  # fmt: skip
        return port

    def _plain(self, name: str) -> Port:
        port = self._ports.get(("plain", name))
        if port is None:
            port = self._ports["plain", name] = make_port(
                name=name, kind="retrieval", boundary="retrieval", effect="read", tape=self.tape, perturb=False,
                encode=_steady, decode=_result,
            )  # fmt: skip
        return port


def _maker(code: int) -> Callable[[str], ServerReported]:
    return lambda text: ServerReported({"code": code, "message": text})


_ERRORS: Final = {"timeout": _maker(TIMED_OUT), "connection": _maker(CLOSED), **dict.fromkeys(REPORTED, ToolFailed)}


def _error_object(error: Exception) -> dict[str, Any] | None:
    """The error object of JSON-RPC that an exception carries; one from a tape has the name of its type in front."""
    text = str(error)
    if isinstance(error, RuntimeError):
        kind, _, text = text.partition(": ")
        if kind != _FAILED:
            return None
    elif not isinstance(error, ServerReported):
        return None
    found: dict[str, Any] = json.loads(text)
    return found


def _failed(text: str) -> dict[str, Any]:
    return {"result": {"content": [{"type": "text", "text": text}], "isError": True}}


# -- replies as data ------------------------------------------------------------------------------------------------------


def _steady(result: Any) -> Any:
    """The reply without what may differ from run to run."""
    if not isinstance(result, Mapping):
        return result
    return {name: item for name, item in result.items() if name not in VOLATILE}


def _result(data: Any) -> Any:
    """A result again: of its data, or of a text or of parts that a fault put in its place."""
    if isinstance(data, Mapping) and not _is_part(data):
        return {str(name): _thawed(item) for name, item in data.items()}
    items = [] if data is None else list(data) if isinstance(data, list | tuple) else [data]
    return {"content": [_part(each) for each in items]}


def _passages(part: str) -> Callable[[Any], Any]:
    """The parts of a reply as passages; a result that reports an error stays as it is."""

    def encode(result: Any) -> Any:
        if not isinstance(result, Mapping) or result.get("isError"):
            return _steady(result)
        return [_flat(each) for each in result.get(part, ())]

    return encode


def _of_passages(part: str) -> Callable[[Any], Any]:
    def decode(data: Any) -> Any:
        if isinstance(data, Mapping):
            return {str(name): _thawed(item) for name, item in data.items()}
        return {part: [_passage(each, part) for each in data or ()]}

    return decode


def _flat(item: Any) -> Any:
    """A message of a prompt with its text on top, where faults and contracts look for it."""
    if isinstance(item, Mapping) and isinstance(item.get("content"), Mapping) and item["content"].get("type") == "text":
        return {"role": item.get("role", "user"), "text": item["content"].get("text", "")}
    return item


def _passage(item: Any, part: str) -> Any:
    """An item of a reply, of the passage that it was or that a fault added."""
    text = item if isinstance(item, str) else item.get("text", "") if isinstance(item, Mapping) else str(item)
    if part == "messages":
        if isinstance(item, Mapping) and "content" in item:
            return _thawed(item)
        role = item.get("role", "user") if isinstance(item, Mapping) else "user"
        return {"role": role, "content": {"type": "text", "text": text}}
    if isinstance(item, Mapping) and (part == "contents" or "type" in item):
        return _thawed(item) if part == "content" or "uri" in item else {"uri": "resource://unknown", "text": text}
    return {"uri": "resource://unknown", "text": text} if part == "contents" else {"type": "text", "text": text}


def _is_part(data: Mapping[str, Any]) -> bool:
    return "type" in data and "content" not in data


def _part(item: Any) -> Any:
    if isinstance(item, Mapping) and "type" in item:
        return _thawed(item)
    return {"type": "text", "text": item if isinstance(item, str) else json.dumps(_thawed(item), ensure_ascii=False)}


def _thawed(value: Any) -> Any:
    from mat.core.value import snapshot, thaw

    return thaw(snapshot(value))


__all__ = [
    "REPORTED", "TIMED_OUT", "VOLATILE", "Forward", "MCPPorts", "ServerReported", "ToolFailed",
]  # fmt: skip
