"""An agent that keeps notes in an MCP server: standard library only, and nothing of pytest-mat in it.

    keeper.py careless|careful SERVER...

It reads orders from its standard input, a line each, and notes that each was refunded. Where the acknowledgement is late, the
careless one writes again; the careful one looks first.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from typing import Any

TIMED_OUT = -32001


class ServerError(Exception):
    """An error of the protocol."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code = error["code"]


class Client:
    """A client of MCP over a server's standard input and output, as the specification has it."""

    def __init__(self, command: list[str]) -> None:
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._numbers = itertools.count(1)
        self.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "keeper", "version": "1"})
        self._send(method="notifications/initialized")
        self.tools = {tool["name"] for tool in self.ask("tools/list")["tools"]}

    def ask(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        self._send(id=number, method=method, params=params)
        assert self._server.stdout is not None
        for line in self._server.stdout:
            found = json.loads(line)
            if "method" not in found and found.get("id") == number:
                if "error" in found:
                    raise ServerError(found["error"])
                return found["result"]
        raise EOFError(f"the server ended before it answered {method}")

    def call(self, name: str, **arguments: Any) -> str:
        result = self.ask("tools/call", name=name, arguments=arguments)
        text = "\n".join(part["text"] for part in result["content"] if part["type"] == "text")
        if result.get("isError"):
            raise ServerError({"code": 0, "message": text})
        return text

    def close(self) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(timeout=20)

    def _send(self, **message: Any) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._server.stdin.flush()


def note(client: Client, order: str, *, careful: bool) -> None:
    written = {"name": f"refund of {order}", "entityType": "refund", "observations": ["30 EUR"]}
    for attempt in range(3):
        try:
            if attempt and careful and written["name"] in client.call("search_nodes", query=order):
                return
            client.call("create_entities", entities=[written])
            return
        except ServerError as error:
            if error.code != TIMED_OUT:
                raise


def main() -> None:
    client = Client(sys.argv[2:])
    for order in sys.stdin.read().split():
        note(client, order, careful=sys.argv[1] == "careful")
    print(f"{client.call('read_graph').count('entityType')} notes")
    client.close()


if __name__ == "__main__":
    main()
