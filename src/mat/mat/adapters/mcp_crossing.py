"""Requests of MCP as steps of a run, as plain data: what a proxy or a program's run does with one JSON-RPC request.

`tools/call` is a tool call (or a retrieval, for tools named as retrievers), `resources/read` and `prompts/get` are
retrievals that can be poisoned. The rest, such as `initialize` and `tools/list`, is a step only where a recording has to answer
in the place of the server, and no fault changes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from mat.adapters.mcp_replies import (
    REPORTED,
    TIMED_OUT,
    VOLATILE,
    PassagesField,
    ToolFailed,
    failed,
    of_passages,
    passages,
    plain,
    steady,
    tool_result,
)
from mat.boundary.calls import cross
from mat.boundary.port import Port, make_port
from mat.core.errors import Blocked
from mat.core.proxied import CLOSED

_Forward: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""Sends a request with these params to the server, and returns {"result": ...} or {"error": ...}."""

STEPS: Final = ("tools/call", "resources/read", "prompts/get")
"""Requests that are always a step."""
_INTERNAL: Final = -32603
_FAILED: Final = "ServerReported"


class ServerReported(Exception):  # noqa: N818  (a reply of the server, as the protocol has it)
    """An error of JSON-RPC. Its text is the error object, so that a tape keeps its code."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(json.dumps(dict(error), sort_keys=True))


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

    def anew(self) -> MCPPorts:
        """The same options, with nothing learnt: for one run."""
        return MCPPorts(
            effects=self.effects, impacts=self.impacts, retrievers=self.retrievers, perturb=self.perturb, tape=self.tape
        )

    def answer(self, method: str, params: Mapping[str, Any], forward: _Forward, *, server: str = "") -> dict[str, Any]:
        """One request as a step: {"result": ...} or {"error": ...}, the very object that `forward` returned if it is unchanged.

        A blocked call is a result with `isError`. `mat.MatError` and what ends a run propagate. `server`: its name.
        """
        if self.tape == "inprocess" and method not in STEPS:
            reply = forward(dict(params))
            if method == "tools/list":
                self._learn(reply.get("result"))
            return reply
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
            return _failed(method, f"blocked: {blocked}")
        except ToolFailed as failure:
            return _failed(method, str(failure))
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
                errors=_ERRORS, tape=self.tape, perturb=self.perturb, encode=steady, decode=tool_result,
            )  # fmt: skip
        return port

    def _retriever(self, name: str, field: PassagesField) -> Port:
        port = self._ports.get(("retrieval", name))
        if port is None:
            port = self._ports["retrieval", name] = make_port(
                name=name, kind="retrieval", boundary="retrieval", effect="read", errors=_ERRORS, tape=self.tape,
                perturb=self.perturb, encode=partial(passages, field=field), decode=partial(of_passages, field=field),
            )  # fmt: skip
        return port

    def _plain(self, name: str) -> Port:
        port = self._ports.get(("plain", name))
        if port is None:
            port = self._ports["plain", name] = make_port(
                name=name, kind="retrieval", boundary="retrieval", effect="read", tape=self.tape, perturb=False,
                encode=steady, decode=plain,
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


def _failed(method: str, text: str) -> dict[str, Any]:
    """A failure as the protocol has it: of a tool in its result, of anything else as an error."""
    if method != "tools/call":
        return {"error": {"code": _INTERNAL, "message": text}}
    return {"result": failed(text)}


__all__ = ["STEPS", "MCPPorts", "ServerReported"]
