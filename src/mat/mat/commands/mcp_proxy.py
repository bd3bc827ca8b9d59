"""`mat mcp-proxy -- command...`: a proxy between an MCP client and a server, which records, disturbs or replays."""

from __future__ import annotations

import argparse
import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from mat.commands.shared import PASS, USAGE, Add
from mat.core.errors import MatError, SpecError
from mat.core.proxied import ADDRESS

_HELP: Final = "run a proxy in front of an MCP server: it records a client's requests, disturbs them, or replays a recording"
_EXAMPLES: Final = """mat mcp-proxy --record shop.mat.jsonl -- npx @modelcontextprotocol/server-memory
         mat mcp-proxy --schedule schedule.json -- python server.py
         mat mcp-proxy --replay shop.mat.jsonl
         mat mcp-proxy --url http://localhost:8000/mcp --port 8001

configure the client with this command instead of the server's
in a test with mat.adapters.program, the proxy finds the run of the test
exit codes: that of the server; 2 for a usage error or an unreadable file"""
_INTERNAL: Final = -32603


def add_parser(add: Add) -> None:
    parser = add("mcp-proxy", _HELP, _EXAMPLES)
    parser.add_argument("--record", type=Path, metavar="FILE", help="append the trace of this session to FILE (.mat.jsonl)")
    parser.add_argument(
        "--schedule", type=Path, metavar="FILE", help="disturb calls by the schedule in a replay file or a JSON list"
    )
    parser.add_argument(
        "--replay", type=Path, metavar="FILE", help="answer from a recorded trace or a replay file, without the server"
    )
    parser.add_argument(
        "--name",
        dest="server",
        default="",
        metavar="NAME",
        help="the server's name in the trace, if a client has several servers",
    )
    parser.add_argument(
        "--retriever", action="append", default=[], metavar="TOOL",
        help="a tool whose replies are text from outside, such as a search; may be repeated",
    )  # fmt: skip
    parser.add_argument("--url", metavar="URL", help="the URL of a streamable HTTP server, instead of a command")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="with --url: where to listen (default: a free port)")
    parser.add_argument("rest", nargs="*", default=[], metavar="COMMAND", help="the server's command; put -- before it")


def mcp_proxy(options: argparse.Namespace) -> int:
    from mat.adapters.mcp_proxy import RunConnection, warn

    if not options.rest and not options.url and not options.replay:
        raise SpecError(
            what="mat mcp-proxy has no server", why="it stands between a client and a server",
            fix="put the server's command after --, or name its address with --url",
        )  # fmt: skip
    if options.rest and options.url:
        raise SpecError(what="mat mcp-proxy has two servers", fix="give either a command or --url")
    address = os.environ.get(ADDRESS)
    if address:
        if options.record or options.schedule or options.replay:
            warn(f"{ADDRESS} is set: the test's own run records and disturbs; the options for files are ignored")
        return _serve(options, RunConnection(address, name=options.server))
    if not (options.record or options.schedule or options.replay):
        return _serve(options, _Plain())
    with _own_run(options) as crossing:
        return _serve(options, crossing)


class _Plain:
    """No run: every message passes."""

    descriptor: int | None = None

    def answer(self, method: str, params: Mapping[str, Any], forward: Any) -> dict[str, Any]:
        found: dict[str, Any] = forward(dict(params))
        return found


class _OwnRun:
    """A run of this process, in real time."""

    descriptor: int | None = None

    def __init__(self, ports: Any, *, server: str, recorded: Sequence[Any]) -> None:
        self._ports, self._server, self._recorded = ports, server, recorded

    def answer(self, method: str, params: Mapping[str, Any], forward: Any) -> dict[str, Any]:
        from mat.adapters.mcp_proxy import warn

        try:
            found: dict[str, Any] = self._ports.answer(method, params, forward, server=self._server)
        except MatError as error:
            text = f"{error.what}{self._nearest(method, params)}"
            warn(text)
            return {"error": {"code": _INTERNAL, "message": text}}
        return found

    def _nearest(self, method: str, params: Mapping[str, Any]) -> str:
        from mat.core.nearest import in_words, nearest
        from mat.core.value import snapshot, thaw

        name, asked = method, dict(params)
        if method == "tools/call":
            name, asked = str(params.get("name", "")), dict(params.get("arguments") or {})
        same = [each for each in self._recorded if name in (each.action.name, each.action.name.rpartition(" ")[2])]
        found = nearest(thaw(snapshot(asked)), [thaw(each.action.arguments) for each in same])
        if found is None:
            return f"; nothing is recorded of {name}"
        return f"; the nearest recorded request differs in {in_words(found)}" if found else "; it was recorded fewer times"


@contextmanager
def _own_run(options: argparse.Namespace) -> Iterator[_OwnRun]:
    import mat
    from mat.adapters.mcp_crossing import MCPPorts
    from mat.adapters.mcp_proxy import warn
    from mat.boundary.tape import Tape

    records = _recorded(options.replay) if options.replay else ()
    tape = Tape(_entries(records), live=0) if options.replay else None
    schedule = _schedule(options.schedule) if options.schedule else ()
    ports = MCPPorts(retrievers=frozenset(options.retriever), tape="external")
    run = mat.run(schedule=schedule, clock="real", tape=tape, task=options.server or "mcp-proxy")
    with _ended_by_signal():
        try:
            with run, suppress(_Ended):  # that is how clients end their servers
                yield _OwnRun(ports, server=options.server, recorded=records)
        finally:
            if options.record and run.recorder is not None:
                _write(options.record, run.result)
    assert run.result is not None
    for missed in run.result.unreached:
        warn(f"{missed.operator} at {missed.site} was not reached")


class _Ended(BaseException):
    """The client has ended this process by a signal."""


@contextmanager
def _ended_by_signal() -> Iterator[None]:
    def end(number: int, frame: object) -> None:
        raise _Ended

    before = signal.signal(signal.SIGTERM, end), signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])


def _serve(options: argparse.Namespace, crossing: Any) -> int:
    from mat.adapters.mcp_proxy import StdioProxy

    if options.url:
        from mat.adapters.mcp_proxy_http import HTTPProxy

        proxy = HTTPProxy(options.url, crossing, port=options.port)
        print(f"mat mcp-proxy: {proxy.url}", flush=True)
        try:
            proxy.serve()
        finally:
            proxy.close()
        return PASS
    return StdioProxy(options.rest, crossing).serve()


# -- files ----------------------------------------------------------------------------------------------------------------


def _write(path: Path, run: Any) -> None:
    from mat.evidence import jsonl

    jsonl.write(path, run)


def _recorded(path: Path) -> tuple[Any, ...]:
    """The records of a replay file, or of the last trace of a file of traces."""
    from mat.commands.shared import replay_of
    from mat.evidence import jsonl, replay_file

    if path.name.endswith(replay_file.SUFFIX):
        return replay_of(path).counterexample.run.records
    found: tuple[Any, ...] = ()
    for trace in jsonl.read(path):
        found = tuple(trace.records)
    return found


def _entries(records: Sequence[Any]) -> Iterator[Any]:
    from mat.core.digest import digest
    from mat.core.run import TapeEntry

    for record in records:
        if record.action.boundary and (record.invoked or record.taped):
            asked = record.action.arguments if record.executed is None else record.executed
            heard = record.raw or record.observation
            error = heard.error
            yield TapeEntry(
                site=record.site, request=digest(asked), mode="external", value=heard.value,
                error=None if error is None else (error.type, error.message, error.kind), opaque=heard.opaque,
                retry_after_ms=None if error is None else error.retry_after_ms,
            )  # fmt: skip


def _schedule(path: Path) -> tuple[Any, ...]:
    import mat
    from mat.commands.shared import replay_of
    from mat.evidence import replay_file

    if path.name.endswith(replay_file.SUFFIX):
        return tuple(replay_of(path).counterexample.run.spec.schedule)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _no_schedule(path, str(error)) from None
    if not isinstance(data, list) or not all(isinstance(each, dict) and {"operator", "site"} <= {*each} for each in data):
        raise _no_schedule(path, "it is not a list of objects with operator and site")
    return tuple(
        mat.spec.perturbation(each["operator"], each["site"], each.get("parameters") or {}, cost=int(each.get("cost", 0)))
        for each in data
    )


def _no_schedule(path: Path, why: str) -> SpecError:
    return SpecError(
        what=f"{path.name} holds no schedule", why=why, where=str(path),
        fix='write [{"operator": "service.timeout", "site": "main/service:refund#1"}], or name a replay file',
    )  # fmt: skip


__all__ = ["USAGE", "add_parser", "mcp_proxy"]
