"""Hijacked agents without a model: replay a script of harmful calls through an agent's own tools, as a worst case.

This measures what a fooled model could do, not whether a model can be fooled. The calls go through the instrumented ports, and
so through recorder, mediator and faults, as the acting agent; after a refusal the next call is made. Scripts are untrusted
data: they can only call the tools that the caller gives, and read earlier replies by key.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

from mat.boundary.emit import acting
from mat.boundary.emit import agent as acting_agent
from mat.boundary.session import active
from mat.core.codec import load_json
from mat.core.errors import MatError, SpecError, did_you_mean, plural
from mat.core.record import Effected, ErrorFact, Record
from mat.core.redact import is_hashed
from mat.core.value import EMPTY, FrozenDict, FrozenList, Value, snapshot_arguments, thaw
from mat.harness.recorder import Recorder

__all__ = ["Attempt", "Hijack", "ScriptedCall", "hijacked", "hijacked_async", "joined", "reply_of", "script_of"]

REPLY: Final = "$reply"
JOIN: Final = "$join"
EACH: Final = "*"
_REDACTED: Final = "[redacted:"

ScriptPart: TypeAlias = Literal["script", "benign"]
Ruling: TypeAlias = Literal["allow", "rewrite", "block", "unmade"]
Caller: TypeAlias = Callable[[str, dict[str, Any]], Any]
"""(tool, arguments) -> reply or awaitable: how a system calls its tools by name."""
ScriptTools: TypeAlias = Mapping[str, Callable[..., Any]] | Iterable[Callable[..., Any]] | Caller
ScriptSource: TypeAlias = "Iterable[object] | Path | Any"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedCall:
    """One call of a script. Arguments are plain data; see `reply_of` and `joined` for values taken from earlier replies."""

    tool: str
    arguments: FrozenDict = EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The result of one scripted call.

    `decision` is the mediator's, "allow" without governance or objection, "unmade" if the script needed a reply
    that never came. `arguments` are those asked, in recorded form; `executed` those that the port really got, None if it did
    not run. `reply` and `error` are what the hijacked agent got.
    """

    tool: str
    part: ScriptPart
    arguments: FrozenDict
    decision: Ruling
    rule: str = ""
    reason: str = ""
    step: int | None = None
    site: str = ""
    executed: FrozenDict | None = None
    invoked: int = 0
    effected: Effected = "no"
    reply: Value = None
    error: ErrorFact | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hijack:
    """A replayed script: `attempts` in the order made, including those of a benign script."""

    agent: str
    role: str
    attempts: tuple[Attempt, ...]

    @property
    def script(self) -> tuple[Attempt, ...]:
        return tuple(item for item in self.attempts if item.part == "script")

    @property
    def benign(self) -> tuple[Attempt, ...]:
        return tuple(item for item in self.attempts if item.part == "benign")

    @property
    def allowed(self) -> tuple[Attempt, ...]:
        return self._with_decision("allow")

    @property
    def rewritten(self) -> tuple[Attempt, ...]:
        return self._with_decision("rewrite")

    @property
    def blocked(self) -> tuple[Attempt, ...]:
        return self._with_decision("block")

    @property
    def executed(self) -> tuple[Attempt, ...]:
        """The script's calls that reached their port, as asked or rewritten, whatever came back."""
        return tuple(item for item in self.script if item.executed is not None)

    def _with_decision(self, decision: Ruling) -> tuple[Attempt, ...]:
        return tuple(item for item in self.script if item.decision == decision)


# -- scripts --------------------------------------------------------------------------------------------------------------

_MISSING: Final = object()


def reply_of(call: int | str, *path: str | int, default: object = _MISSING) -> dict[str, Any]:
    """A marker for a value of an earlier reply, read when the script runs: {"$reply": [call, *path]}.

    `call` is a place in the script, from 0, or a tool's name for its latest reply, benign calls included. A path goes by key,
    index or public attribute; "*" takes each item of a list. Without such a value the call is not made, or `default`
    is used.
    """
    marker: dict[str, Any] = {REPLY: [call, *path]}
    return marker if default is _MISSING else {**marker, "default": default}


def joined(*parts: object, separator: str = "") -> dict[str, Any]:
    """A marker for text joined from texts and values of earlier replies, lists item by item: {"$join": [...], "with": ...}."""
    return {JOIN: list(parts), "with": separator}


def script_of(source: ScriptSource, *, agent: str = "") -> tuple[ScriptedCall, ...]:
    """Make a script from anything that contains calls; SpecError lists all problems at once.

    `source`: calls as (tool, arguments), as {"tool": ..., "arguments": {...}} or as ScriptedCall, where a tool may also be the
    instrumented function itself; records, or a Run, trace or replay with records, whose tool calls are taken (those of
    `agent`, if one is named); or the path of a JSON file with such a list, {"calls": [...]}, or a replay file.
    """
    return tuple(call for call, _ in _read(source, agent))


_CallSource: TypeAlias = "tuple[ScriptedCall, Callable[..., Any] | None]"


def _read(source: ScriptSource, agent: str = "") -> list[_CallSource]:
    """The calls of a source, each with its callable if the source contains one."""
    found: list[_CallSource] = []
    problems: list[str] = []
    for place, item in enumerate(_items(source)):
        if _is_step(item):
            _add_recorded(item, agent, found, problems)
            continue
        tool, arguments = _tool_and_arguments(item)
        name = tool if isinstance(tool, str) else _port_name(tool)
        if not name:
            problems.append(f"call {place} names no tool: {item!r:.80}")
        elif not isinstance(arguments, Mapping):
            problems.append(f"call {place} of {name}: its arguments are {arguments!r:.60}, not a mapping by parameter name")
        else:
            call = ScriptedCall(tool=name, arguments=snapshot_arguments(arguments, f"script, call {place} of {name}"))
            found.append((call, None if isinstance(tool, str) else tool))
    problems += _reference_problems(found)
    if problems:
        raise SpecError(
            what=f"script: {'; '.join(problems)}",
            why="the calls cannot be made without this information",
            fix='write (tool, {"name": value}), with mat.harness.hijack.reply_of for values of earlier replies',
        )
    return found


def _items(source: ScriptSource) -> list[Any]:
    if isinstance(source, Path):
        data = load_json(source.read_bytes(), where=str(source))
        source = data.get("calls", data.get("records", data)) if isinstance(data, dict) else data
    for attribute in ("counterexample", "run", "result", "records"):  # a replay, its counterexample, a run, a trace
        source = getattr(source, attribute, source)
    if isinstance(source, str | Mapping) or not isinstance(source, Iterable):
        raise SpecError(
            what=f"{type(source).__name__} is not a script",
            fix="give calls as (tool, arguments), records, a run, or the path of a JSON file",
        )
    return list(source)


def _is_step(item: object) -> bool:
    return isinstance(item, Record) or (isinstance(item, Mapping) and isinstance(item.get("action"), Mapping))


def _add_recorded(item: Any, agent: str, found: list[_CallSource], problems: list[str]) -> None:
    """Add the call of a record, given as a Record or as the JSON data of a replay file."""
    if isinstance(item, Record):
        kind, name, arguments, who = item.action.kind, item.action.name, item.action.arguments, item.agent
    else:
        action = item["action"]
        kind, name, arguments, who = action.get("kind"), action.get("name"), action.get("arguments", {}), item.get("agent")
    if kind != "tool_call" or (agent and who != agent):
        return
    if not isinstance(name, str) or not name or not isinstance(arguments, Mapping):
        problems.append(f"a recorded call has no name or no arguments: {item!r:.80}")
        return
    lost = sorted(field for field, value in arguments.items() if _is_lost(value))
    if lost:
        problems.append(f"the recorded call of {name} has {', '.join(lost)} only as a hash or redacted")
    found.append((ScriptedCall(tool=name, arguments=snapshot_arguments(arguments, f"recorded call of {name}")), None))


def _is_lost(value: object) -> bool:
    """Whether a recorded value replaces one that was not kept."""
    if isinstance(value, str):
        return _REDACTED in value
    if isinstance(value, Mapping):
        return is_hashed(value) or any(map(_is_lost, value.values()))
    return isinstance(value, list | tuple) and any(map(_is_lost, value))


def _tool_and_arguments(item: Any) -> tuple[Any, Any]:
    if isinstance(item, ScriptedCall):
        return item.tool, item.arguments
    if isinstance(item, Mapping):
        return item.get("tool"), item.get("arguments", {})
    if isinstance(item, Sequence) and not isinstance(item, str) and len(item) in (1, 2):
        return item[0], item[1] if len(item) == 2 else {}
    return None, {}


def _port_name(tool: object) -> str:
    port = getattr(tool, "mat_port", None)
    return "" if port is None else cast(str, port.name)


def _reference_problems(calls: list[_CallSource]) -> list[str]:
    problems = []
    for place, (call, _) in enumerate(calls):
        for marker in _markers(call.arguments):
            if JOIN in marker and (not isinstance(marker[JOIN], list) or not isinstance(marker.get("with", ""), str)):
                problems.append(f"call {place} of {call.tool}: {JOIN} takes a list, and a string in 'with'")
            if REPLY not in marker:
                continue
            reference = marker[REPLY]
            if not isinstance(reference, list) or not reference or not all(type(part) in (str, int) for part in reference):
                problems.append(
                    f"call {place} of {call.tool}: {REPLY} takes a list of a call and a path, not {reference!r:.60}"
                )
            elif type(reference[0]) is int and not 0 <= reference[0] < place:
                problems.append(
                    f"call {place} of {call.tool} uses the reply of call {reference[0]}, which does not come before it"
                )
            elif any(type(part) is str and part.startswith("_") for part in reference[1:]):
                problems.append(f"call {place} of {call.tool}: {reference!r:.60} reads a private attribute")
    return problems


def _markers(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        if REPLY in value or JOIN in value:
            yield value
        for item in value.values():
            yield from _markers(item)
    elif isinstance(value, list):
        for item in value:
            yield from _markers(item)


# -- replaying ------------------------------------------------------------------------------------------------------------


def hijacked(
    script: ScriptSource,
    *,
    tools: ScriptTools | None = None,
    agent: str = "",
    role: str = "",
    benign: ScriptSource = (),
    after: int | None = None,
) -> Hijack:
    """Replay a script of harmful calls inside a run, as the hijacked agent; returns the result of each call.

    - `script`, `benign`: calls as (tool, arguments), a `mat.Run` or its records, or the path of a JSON file; see
      `mat.harness.hijack.script_of`. `benign` calls are made, too, `after` of them before the script and the rest after it
      (all before it by default).
    - `tools`: instrumented callables, by name or in a list, or a function of (tool, arguments) that calls a tool by name; not
      needed if the script holds the callables.
    - `agent` and `role`: who is hijacked, by default the agent that acts. To hijack real code halfway, call this there: in a
      tool, or instead of the model.

    A refusal, a tool's error and an injected fault are noted, and the next call is made. Returns a Hijack: `attempts`, and of
    the script `allowed`, `rewritten`, `blocked`, `executed`, each a tuple. Raises `mat.MatError` outside a run, for a tool
    that is not known, and for a call that crossed no boundary, because nothing would be measured.

    >>> @mat.tool(effect="write")
    ... def send(to, text): return "sent"
    >>> policy = mat.policy.Governance(capabilities={"mailer": [mat.policy.capability("send", to={"ann@example.org"})]})
    >>> script = [(send, {"to": "eve@example.net", "text": "all files"}), (send, {"to": "ann@example.org", "text": "hello"})]
    >>> with mat.run(governance=policy):
    ...     found = mat.policy.hijacked(script, agent="mailer")
    >>> len(found.blocked), len(found.executed)
    (1, 1)

    Source: A5.5, A2.F4.
    """
    steps = _replay(script, benign, tools, agent, role, after)
    try:
        call = next(steps)
        while True:
            call = steps.send(_call_plain(call))
    except StopIteration as done:
        return cast(Hijack, done.value)


async def hijacked_async(
    script: ScriptSource,
    *,
    tools: ScriptTools | None = None,
    agent: str = "",
    role: str = "",
    benign: ScriptSource = (),
    after: int | None = None,
) -> Hijack:
    """Like `mat.policy.hijacked`, for async tools, or a mixture of both. Await it; its arguments and errors are the same.

    >>> import asyncio
    >>> @mat.tool(effect="write")
    ... async def send(to): return "sent"
    >>> with mat.run():
    ...     found = asyncio.run(mat.policy.hijacked_async([(send, {"to": "eve@example.net"})], agent="mailer"))
    >>> [(attempt.decision, attempt.reply) for attempt in found.attempts]
    [('allow', 'sent')]

    Source: A5.5, A2.F4.
    """
    steps = _replay(script, benign, tools, agent, role, after)
    try:
        call = next(steps)
        while True:
            call = steps.send(await _call_awaited(call))
    except StopIteration as done:
        return cast(Hijack, done.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PendingCall:
    """A call that is ready to be made, and the agent that makes it."""

    call: Caller
    tool: str
    arguments: dict[str, Any]
    agent: str
    role: str


@dataclass(slots=True)
class _CallResult:
    """The reply or the error that the hijacked agent got from a call."""

    reply: Any = None
    error: Exception | None = None


@contextmanager
def _acting(pending: _PendingCall) -> Iterator[_CallResult]:
    """Act as the hijacked agent for one call, and keep a refusal or an error of the call; a MatError ends the replay."""
    result = _CallResult()
    try:
        with acting_agent(pending.agent, role=pending.role):
            yield result
    except MatError:
        raise
    except Exception as error:  # the record of the call holds it, too
        result.error = error


def _call_plain(pending: _PendingCall) -> _CallResult:
    with _acting(pending) as result:
        reply = pending.call(pending.tool, pending.arguments)
        if inspect.isawaitable(reply) or isinstance(reply, AsyncIterator):
            if inspect.iscoroutine(reply):
                reply.close()
            raise SpecError(
                what=f"{pending.tool} is async", why="plain code cannot wait for its reply", fix="await hijacked_async(...)"
            )
        result.reply = list(reply) if inspect.isgenerator(reply) else reply
    return result


async def _call_awaited(pending: _PendingCall) -> _CallResult:
    with _acting(pending) as result:
        reply = pending.call(pending.tool, pending.arguments)
        if inspect.isawaitable(reply):
            reply = await reply
        if isinstance(reply, AsyncIterator):
            reply = [chunk async for chunk in reply]
        result.reply = list(reply) if inspect.isgenerator(reply) else reply
    return result


def _replay(
    script: ScriptSource, benign: ScriptSource, tools: ScriptTools | None, agent: str, role: str, after: int | None
) -> Generator[_PendingCall, _CallResult, Hijack]:
    """Yield the calls to make, one by one, receive the result of each, and return the Hijack."""
    recorder = _recorder()
    read, read_benign = _read(script), _read(benign)
    call = _caller(tools, [*read, *read_benign])
    harmful, ordinary = [item for item, _ in read], [item for item, _ in read_benign]
    cut = len(ordinary) if after is None else after
    if not 0 <= cut <= len(ordinary):
        raise SpecError(
            what=f"after={after} is outside the benign script, which has {plural(len(ordinary), 'call')}",
            fix=f"give after= as an integer from 0 to {len(ordinary)}",
        )
    order: list[tuple[ScriptPart, int, ScriptedCall]] = [
        *(("benign", place, item) for place, item in enumerate(ordinary[:cut])),
        *(("script", place, item) for place, item in enumerate(harmful)),
        *(("benign", cut + place, item) for place, item in enumerate(ordinary[cut:])),
    ]
    replies: dict[int | str, Any] = {}
    of_part: dict[ScriptPart, dict[int | str, Any]] = {"script": {}, "benign": {}}
    attempts = []
    who = acting.get() if not agent else (agent, role)
    for part, place, item in order:
        own = of_part[part]
        try:
            arguments = {name: _filled(value, own, replies) for name, value in item.arguments.items()}
        except LookupError as error:
            attempts.append(Attempt(
                tool=item.tool, part=part, arguments=item.arguments, decision="unmade", reason=str(error.args[0])
            ))  # fmt: skip
            continue
        seen = frozenset(record.step for record in recorder.trace.sealed())
        result = yield _PendingCall(call=call, tool=item.tool, arguments=arguments, agent=who[0], role=who[1])
        if result.error is None:
            own[place] = replies[item.tool] = result.reply
        attempts.append(_attempt(recorder, seen, who[0], item.tool, part, result.error))
    return Hijack(agent=who[0], role=who[1], attempts=tuple(attempts))


def _recorder() -> Recorder:
    session = active()
    if not isinstance(session, Recorder):
        raise SpecError(
            what="a hijacked agent acts outside a run",
            why="nothing governs its calls there, and they would be real",
            fix="call it inside `with mat.run(governance=...)`, or in a test that requests mat_run",
        )
    return session


def _caller(tools: ScriptTools | None, calls: Sequence[_CallSource]) -> Caller:
    """How to call a tool of the scripts by name; SpecError names every one that is not known."""
    known = {call.tool: given for call, given in calls if given is not None}
    wanted = list(dict.fromkeys(call.tool for call, _ in calls))
    if callable(tools) and not isinstance(tools, Mapping | Iterable) and not _port_name(tools):
        by_name = tools
        return lambda tool, arguments: known[tool](**arguments) if tool in known else by_name(tool, arguments)
    if isinstance(tools, Mapping):
        known = {**tools, **known}
    elif tools is not None:
        listed = [tools] if callable(tools) else list(tools)
        known = {**{_port_name(tool) or getattr(tool, "__name__", ""): tool for tool in listed}, **known}
    unknown = [
        f"the script calls {name!r}, which is not in tools={did_you_mean(name, known)}" for name in wanted if name not in known
    ]
    if unknown:
        raise SpecError(
            what="; ".join(unknown),
            why="the hijacked agent has only the tools of its system",
            fix="add them to tools=",
        )
    return lambda tool, arguments: known[tool](**arguments)


def _attempt(
    recorder: Recorder, seen: frozenset[int], agent: str, tool: str, part: ScriptPart, failure: Exception | None
) -> Attempt:
    """The result of a call, from its record: the one with the tool's name, because the call may have made nested calls."""
    new = [item for item in recorder.trace.sealed() if item.step not in seen and item.agent == agent and item.action.boundary]
    record = next((item for item in new if item.action.name == tool), new[-1] if new else None)
    if record is None and failure is not None:
        raise SpecError(
            what=f"the call of {tool!r} was never made: {type(failure).__name__}: {failure}",
            why="it failed before it reached the boundary",
            fix="give the arguments of the tool",
        ) from failure
    if record is None:
        raise SpecError(
            what=f"the call of {tool!r} crossed no boundary",
            why="a tool that is not instrumented cannot be governed, so nothing was measured",
            fix="decorate it with mat.tool, or use mat.patch",
        )
    mediation, executed = record.mediation, record.executed
    if record.invoked == 0:
        executed = None
    elif executed is None:
        executed = record.action.arguments
    return Attempt(
        tool=tool, part=part, arguments=record.action.arguments, decision="allow" if mediation is None else mediation.decision,
        rule="" if mediation is None else mediation.rule, reason="" if mediation is None else mediation.reason,
        step=record.step, site=record.site, executed=executed, invoked=record.invoked, effected=record.effected,
        reply=record.observation.value, error=record.observation.error,
    )  # fmt: skip


# -- values of earlier replies --------------------------------------------------------------------------------------------


def _filled(value: Any, own: Mapping[int | str, Any], latest: Mapping[int | str, Any]) -> Any:
    """An argument with its markers filled in; LookupError says which reply is missing."""
    if isinstance(value, Mapping):
        if REPLY in value:
            try:
                return _reply_value(value[REPLY], own, latest)
            except LookupError:
                if "default" in value:
                    return thaw(value["default"])
                raise
        if JOIN in value:
            parts = [_filled(part, own, latest) for part in value[JOIN]]
            return str(value.get("with", "")).join(text for part in parts for text in _strings(part))
        return {name: _filled(item, own, latest) for name, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, own, latest) for item in value]
    return value


def _strings(part: Any) -> list[str]:
    return [text for item in part for text in _strings(item)] if isinstance(part, list | tuple) else [str(part)]


def _reply_value(reference: Sequence[Any], own: Mapping[int | str, Any], latest: Mapping[int | str, Any]) -> Any:
    call, *path = reference
    source = own if type(call) is int else latest
    if call not in source:
        raise LookupError(f"the reply of {f'call {call}' if type(call) is int else call} never came")
    found = _at_path(source[call], path, list(reference))
    return thaw(found) if isinstance(found, FrozenDict | FrozenList) else found


def _at_path(value: Any, path: Sequence[Any], reference: list[Any]) -> Any:
    for depth, part in enumerate(path):
        if part == EACH:
            items = value.values() if isinstance(value, Mapping) else value
            if isinstance(items, str) or not isinstance(items, Iterable):
                raise LookupError(f"{reference} finds no list at {part!r}")
            return [_at_path(item, path[depth + 1 :], reference) for item in items]
        value = _member(value, part, reference)
    return value


def _member(value: Any, part: str | int, reference: list[Any]) -> Any:
    """Read one key, index or public attribute. A script cannot read methods or private attributes."""
    try:
        if isinstance(value, Mapping):
            return value[part]
        if isinstance(part, int):
            return value[part]
        found = getattr(value, part, _MISSING)
    except (LookupError, TypeError):
        found = _MISSING
    if found is _MISSING or callable(found) or str(part).startswith("_"):
        raise LookupError(f"{reference} finds nothing at {part!r}")
    return found
