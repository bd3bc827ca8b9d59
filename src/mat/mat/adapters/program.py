"""Agents that are programs, in any language: a test starts one, and what it does crosses the test's run.

Two ways lead back from the program to the run: `mat mcp-proxy`, put before its MCP servers, finds the run by an environment
variable; and a gateway on the loopback interface stands for each HTTP API that the test names. Both are served in the test's
own thread while the program works, so that every crossing is in one process, one at a time, in the order of its arrival.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Literal

from mat.adapters.mcp_crossing import MCPPorts
from mat.boundary.session import active
from mat.core import limits
from mat.core.errors import SpecError
from mat.core.proxied import ADDRESS, CLOSED, VERSION
from mat.core.record import Record
from mat.core.value import thaw
from mat.harness.recorder import Recorder
from mat.kernel import clock as clocks
from mat.kernel import network
from mat.kernel import world as worlds
from mat.kernel.writes import unwatched

_LOOK_S: Final = 0.02
"""Real seconds between two looks whether the program has ended."""
_CHUNK: Final = 1 << 16
_NO_STATE: Final = (
    "initialize", "ping", "tools/list", "resources/list", "resources/templates/list", "prompts/list", "resources/read",
    "prompts/get", "completion/complete",
)  # fmt: skip
"""Requests that leave a server as it is."""
_GONE: Final = {"error": {"code": CLOSED, "message": "Connection closed"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A program that has ended: its exit code (negative: the signal that ended it), and its output."""

    code: int
    stdout: str
    stderr: str


class AgentProgram:
    """A program as the system under test; make it with `program`."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], cwd: str | Path | None, timeout_s: float, ports: MCPPorts,
        http: Mapping[str, str],
    ) -> None:  # fmt: skip
        self._command, self._env, self._cwd = list(command), dict(env), cwd
        self._timeout_s, self._ports, self._http = timeout_s, ports, dict(http)
        network.declare_child(self, self._command)

    def run(self, input: str = "", *arguments: str) -> Completed:
        """Start the program with more arguments, give it `input` on its standard input, and wait for its end.

        Outside of a run it is a plain subprocess. Raises `subprocess.TimeoutExpired` after `timeout_s` of real time, and
        whatever a crossing raises that is no answer to the program: `mat.MatError`, the end of the run, a crash.
        """
        command = [*self._command, *arguments]
        if active() is None:
            return self._plainly(command, input)
        with _Serving(self._ports.anew(), self._http) as serving:
            return serving.run(command, input, env={**os.environ, **self._env}, cwd=self._cwd, timeout_s=self._timeout_s)

    def _plainly(self, command: list[str], input: str) -> Completed:
        env = {**self._http, **os.environ, **self._env}
        done = subprocess.run(
            command, input=input, env=env, cwd=self._cwd, timeout=self._timeout_s, capture_output=True, text=True, check=False
        )
        return Completed(code=done.returncode, stdout=done.stdout, stderr=done.stderr)


def program(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    timeout_s: float = 60.0,
    effects: Mapping[str, str] | None = None,
    impacts: Mapping[str, str] | None = None,
    retrievers: Collection[str] = (),
    perturb: bool | Collection[str] = True,
    tape: Literal["external", "inprocess"] = "inprocess",
    http: Mapping[str, str] | None = None,
) -> AgentProgram:
    """An agent that is a program, in any language: each execution of a test starts it anew.

    Put `mat mcp-proxy --` before the commands of its MCP servers: in a test, what the program asks them is recorded, judged,
    disturbed, governed and replayed; elsewhere the proxy only passes messages on. `http` names the APIs that it calls, by the
    environment variable that holds their address: {"OPENAI_BASE_URL": "https://api.openai.com/v1"}.

    - `command`: the program and its arguments. `env`: variable -> value, added to the environment; `cwd`: where it starts.
    - `timeout_s`: real seconds that one execution may take.
    - `effects`, `impacts`, `retrievers`, `perturb`: as for `mat.attach`. The annotations of a server's tools, and the method of
      an HTTP request, give the effects of those that are not named.
    - `tape`: whether the servers run in replays as well ("inprocess"), or the recording answers ("external"): for servers that
      a replay cannot reach. Models that `http` names are always external.

    The program's own clock is real, and so is the time that it waits. Its hash seed is fixed, and MAT_SEED differs from run to
    run as the test's seed does. What its servers keep in files or elsewhere is not put back between executions: start them in
    a fresh folder, such as pytest's `tmp_path`.

    Raises `mat.MatError` for an empty or a single string, and, when it runs, on a system without Unix sockets.

    >>> import sys
    >>> from mat.adapters import program
    >>> done = program([sys.executable, "-c", "print(input().upper())"]).run("refund a17")
    >>> done.code, done.stdout
    (0, 'REFUND A17\\n')

    Source: E2, A1.2.
    """
    if isinstance(command, str) or not command:
        raise SpecError(
            what=f"program({command!r}): the command is not a list of strings", why="no shell splits it",
            fix=f"write program({command.split() if isinstance(command, str) else ['./agent']!r})",
        )  # fmt: skip
    ports = MCPPorts(
        effects=dict(effects or {}), impacts=dict(impacts or {}), retrievers=frozenset(retrievers), perturb=perturb,
        tape=tape,
    )  # fmt: skip
    return AgentProgram(
        [str(each) for each in command], env=dict(env or {}), cwd=cwd, timeout_s=timeout_s, ports=ports, http=dict(http or {})
    )


class _Serving:
    """The run's side while one program works: the socket for proxies, the gateways, and the program itself."""

    def __init__(self, ports: MCPPorts, http: Mapping[str, str]) -> None:
        self._ports, self._http = ports, http
        self._selector = selectors.DefaultSelector()
        self._stack = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._until = 0.0

    def __enter__(self) -> _Serving:
        if not hasattr(socket, "AF_UNIX"):
            raise SpecError(
                what="an agent that is a program needs Unix sockets", why="its proxies reach the run through one",
                fix="run these tests on Linux or macOS",
            )  # fmt: skip
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="mat-"))
        self._address = os.path.join(folder, "run")
        self._listener = self._stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        self._listener.bind(self._address)
        self._listener.listen(64)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._gateways = {name: self._stack.enter_context(_gateway(url, self._ports)) for name, url in self._http.items()}
        for gateway in self._gateways.values():
            self._selector.register(gateway.listener, selectors.EVENT_READ, gateway.handle)
        return self

    def __exit__(self, *error: object) -> None:
        self._end()
        self._selector.close()
        self._stack.close()

    def run(
        self, command: list[str], input: str, *, env: dict[str, str], cwd: str | Path | None, timeout_s: float
    ) -> Completed:
        env.update({ADDRESS: self._address, "PYTHONHASHSEED": "0", "MAT_SEED": str(_seed())})
        env.update((name, gateway.url) for name, gateway in self._gateways.items())
        self._until = clocks.real_monotonic() + timeout_s
        with _files() as (given, out, err):
            given.write(input.encode())
            given.seek(0)
            with unwatched(), network.allowed():
                self._process = subprocess.Popen(
                    command, env=env, cwd=cwd, stdin=given, stdout=out, stderr=err, process_group=0
                )
            while self._process.poll() is None:
                self._wait(command, timeout_s)
            self._serve_what_was_sent()
            code = self._process.returncode
            self._end()
            return Completed(code=code, stdout=_text(out), stderr=_text(err))

    def _wait(self, command: list[str], timeout_s: float) -> None:
        left_s = self.left_s()
        if left_s <= 0:  # arguments differ from run to run, where they name folders
            raise subprocess.TimeoutExpired(os.path.basename(command[0]), timeout_s)
        for key, _ in self._selector.select(min(left_s, _LOOK_S)):
            key.data()

    def _serve_what_was_sent(self) -> None:
        """The program has ended: what it sent before is still a part of the run."""
        while self.left_s() > 0 and (ready := self._selector.select(0)):
            for key, _ in ready:
                key.data()

    def _end(self) -> None:
        """End the program and what it has started: an execution leaves nothing behind."""
        if self._process is not None:
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            while self._process.poll() is None:
                clocks.real_sleep(_LOOK_S / 10)

    # -- proxies ----------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        proxy = _Proxy(self._stack.enter_context(connection), self)
        self._selector.register(connection, selectors.EVENT_READ, proxy.handle)

    def answer(self, proxy: _Proxy, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        last: list[dict[str, Any]] = []

        def forward(sent: dict[str, Any]) -> dict[str, Any]:
            proxy.catch_up()
            reply = proxy.ask({"forward": sent})
            last[:] = [reply]
            return reply

        step = _steps()
        found = self._ports.answer(method, params, forward, server=proxy.server)
        if not last and method not in _NO_STATE:
            proxy.missed += [(method, {**params, **asked}) for asked in _taped(step, method)]
        return None if last and found is last[0] else found

    @property
    def gateways(self) -> tuple[Any, ...]:
        return tuple(self._gateways.values())

    def left_s(self) -> float:
        return max(0.0, self._until - clocks.real_monotonic())

    def forget(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)


class _Proxy:
    """One proxy of the program, by its connection: JSON, one message a line (see `RunConnection`)."""

    def __init__(self, connection: socket.socket, serving: _Serving) -> None:
        self._connection, self._serving = connection, serving
        self._rest = b""
        self.server = ""
        self.missed: list[tuple[str, dict[str, Any]]] = []

    def catch_up(self) -> None:
        """Send the server what a recording has answered in its place so far: from here on it has to know."""
        missed, self.missed = self.missed, []
        for method, params in missed:
            self.ask({"forward": params, "method": method})

    def handle(self) -> None:
        """Read what has come, and answer it."""
        try:
            found = self._receive()
        except TimeoutError:  # half a message, and the program's time is over
            return
        for message in found:
            if "cross" in message:
                self._send({"answer": self._serving.answer(self, str(message["cross"]), message.get("params") or {})})
            elif message.get("mat") == VERSION:
                self.server = str(message.get("server", ""))
            else:
                raise _foreign(message)

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send an instruction, and wait for the reply; a proxy that has ended is a closed connection."""
        self._send(message)
        while True:
            try:
                self._wait_for_it()
                found = self._receive()
            except TimeoutError:
                return _GONE
            if not found:
                return _GONE
            for each in found:
                if "reply" in each:
                    reply: dict[str, Any] = each["reply"]
                    return reply

    def _wait_for_it(self) -> None:
        """Wait for this proxy, and serve the gateways in the meantime: its server may need one to answer."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection, selectors.EVENT_READ)
            for gateway in self._serving.gateways:
                selector.register(gateway.listener, selectors.EVENT_READ, gateway.handle)
            while (left_s := self._serving.left_s()) > 0:
                ready = [key for key, _ in selector.select(left_s)]
                for key in ready:
                    if key.data is not None:
                        key.data()
                if any(key.data is None for key in ready):
                    return
        raise TimeoutError

    def _send(self, message: dict[str, Any]) -> None:
        with suppress(OSError):  # it has ended, which the next read tells
            self._connection.sendall(json.dumps(message).encode() + b"\n")

    def _receive(self) -> list[dict[str, Any]]:
        """The messages that have come, at least one; none at the end of the connection."""
        while True:
            self._connection.settimeout(self._serving.left_s() or _LOOK_S)
            try:
                chunk = self._connection.recv(_CHUNK)
            except ConnectionError:
                chunk = b""
            if not chunk:
                with suppress(KeyError, ValueError):
                    self._serving.forget(self._connection)
                return []
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            if len(self._rest) > limits.FILE_BYTES:
                raise _foreign({"length": len(self._rest)})
            if lines:
                return [_message(line) for line in lines]


def _message(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _foreign(line[:80].decode("utf-8", "replace"))
    return found


def _foreign(message: object) -> SpecError:
    return SpecError(
        what=f"the program sent to {ADDRESS} a message that `mat mcp-proxy` does not send: {str(message)[:80]}",
        why="only the proxy of this version of pytest-mat may use that socket",
        fix="start the server as `mat mcp-proxy -- command`, with the pytest-mat that runs the test",
    )


def _steps() -> int:
    session = active()
    return len(session.trace.records) if isinstance(session, Recorder) else 0


def _taped(step: int, method: str) -> Iterator[dict[str, Any]]:
    """What the server would have been asked, as often as it would, if the recording had not answered since this step."""
    session = active()
    records = session.trace.records[step:] if isinstance(session, Recorder) else ()
    for record in records:
        if isinstance(record, Record) and record.taped:
            asked = record.action.arguments if record.executed is None else record.executed
            given = {name: thaw(item) for name, item in asked.items()}
            for _ in range(record.invoked):
                yield {"arguments": given} if method == "tools/call" else given


def _gateway(url: str, ports: MCPPorts) -> Any:
    from mat.adapters.gateway import Gateway

    return Gateway(url, ports)


def _seed() -> int:
    world = worlds.current()
    return 0 if world is None else world.entropy.stream("program").getrandbits(32)


@contextmanager
def _files() -> Iterator[tuple[IO[bytes], IO[bytes], IO[bytes]]]:
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        yield given, out, err


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


__all__ = ["AgentProgram", "Completed", "program"]
