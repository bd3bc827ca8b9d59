"""Instrument tools, retrievers, models and memories.

Outside a run an instrumented call is a plain call, which the resource contract in force there admits and is charged for.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Collection, Generator, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast, get_args, get_type_hints, overload

from mat.boundary.calls import stream_port, stream_port_async
from mat.boundary.crossing import crossing, drive, drive_async
from mat.boundary.emit import handed_over
from mat.boundary.guess import Guess
from mat.boundary.handles import Handles
from mat.boundary.issue import ConsumeDeclaration, IssueDeclaration
from mat.boundary.metered import as_model_call, metered, metered_async, metered_stream, metered_stream_async
from mat.boundary.port import Errors, Port, RecordPolicy, make_port
from mat.boundary.session import active, meter_of
from mat.boundary.texts import as_passages, from_passages
from mat.core.digest import canonical
from mat.core.errors import SpecError
from mat.core.record import ActionKind
from mat.core.site import Boundary
from mat.core.value import FrozenDict, snapshot_arguments

__tracebackhide__ = True
"""pytest shows no frames of this module."""
F = TypeVar("F", bound=Callable[..., Any])
_TEXTS: Final[dict[str, Any]] = {"encode": as_passages, "decode": from_passages}


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A retrieved text, as an instrumented retriever (`mat.retriever`) returns it.

    `id`: its name; a claim may cite it as `supports=["passage:ID"]`, or by the text that was returned. `score`: higher is
    better. `source`: the document. `metadata`: name -> value, anything else. A value: passages with equal fields are equal.

    >>> passage = mat.Passage(text="Parcels arrive on Fridays.", source="faq.md", score=0.9)
    >>> passage.source, passage.score
    ('faq.md', 0.9)

    Source: A1.3.
    """

    text: str
    id: str = ""
    score: float = 0.0
    source: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


def tool(
    target: Any = None,
    *,
    name: str = "",
    effect: str = "unknown",
    impact: str = "low",
    reversible: bool | None = None,
    errors: Errors | None = None,
    tape: str = "inprocess",
    record: RecordPolicy = "keep",
    exclude: Collection[str] = (),
    perturb: bool | Collection[str] = True,
    handles: Handles | None = None,
    issues: IssueDeclaration | Iterable[IssueDeclaration] = (),
    consumes: ConsumeDeclaration | Mapping[str, str] | Iterable[ConsumeDeclaration] = (),
) -> Any:
    """Instrument a tool: in a run, each call is a recorded step that can be judged, blocked and disturbed.

    Decorate a function, a method, a coroutine function, a generator (plain or async), or a class, whose public methods become
    tools named `Class.method`. Write `@mat.tool`, `@mat.tool(effect="write")`, or `search = mat.tool(client.search,
    name="search")`. Outside a run the call is a plain call, which a resource contract in force there may refuse. In a run the
    caller gets what the tool returns or raises, unless a fault, governance or a tape decides otherwise.

    - `name`: what contracts, rules and reports call it; by default the function's own name.
    - `effect`: "write" for a tool that changes the world, "read" for one that changes neither the world nor its own next
      replies, "none" for one that does not even look. "unknown" (default) counts as a write: faults that need a write are
      tried, and governance and contracts protect it. Declaring a read saves executions (`mat doctor --declarations`).
      `impact`: "high" for a call that must not go wrong, "low" (default). `reversible`: whether the effect can be undone;
      by default a write, or an unknown effect, cannot.
    - `errors`: what the tool's client raises when it fails, which is what a fault injects: the name of a client ("httpx",
      "requests", "openai", "boto3", "grpc", "sqlite3", ...; "builtin" for Python's own TimeoutError, ConnectionError, ...), or
      a list of several, each of which is tried; or a dict, error kind -> an exception class, an instance, or a function of the
      message. Kinds: timeout, connection, server_error, rate_limit, auth, not_found, invalid. By default the project's
      (`mat_errors`), else guessed from what the tool's module imports (`mat doctor TEST` shows it), else Python's own.
    - `perturb`: False keeps faults away from it; a list of operators or boundaries (`["service.timeout"]`) allows only these.
    - `record`: "keep" (default), "hash" or "redact", or one of them for each field: `{"card": "redact", "reply": "hash", "*":
      "keep"}`. `exclude`: parameters to leave out of the record, such as a connection.
    - `tape`: "external" serves replays from recorded replies; "inprocess" (default) calls the tool again.
    - `issues`, `consumes`, `handles`: artifacts that replies bring and arguments must carry (declarations, or parameter ->
      the name of its artifact), and the store of their handles; see `mat.artifact`.

    Returns the instrumented callable. Raises `mat.MatError` for invalid options, all of them at once. In a run a call can
    raise `mat.Blocked`, and the exceptions of `errors`.

    `target`: the function or class; omit it to pass options.

    >>> @mat.tool(effect="write", impact="high")
    ... def refund(order: str, amount: int) -> str:
    ...     return "refunded"
    >>> with mat.run() as run:
    ...     refund("A17", amount=30)
    'refunded'
    >>> record = run.trace[0]
    >>> record.site, dict(record.action.arguments), record.effected
    ('main/service:refund#1', {'order': 'A17', 'amount': 30}, 'yes')

    Source: A1.2, A4.1.
    """
    options: dict[str, Any] = dict(
        effect=effect, impact=impact, reversible=reversible, errors=errors, tape=tape, record=record, exclude=exclude,
        perturb=perturb, handles=handles, issues=issues, consumes=consumes,
    )  # fmt: skip
    return _decorator("tool_call", "service", name, options, target)


def retriever(
    target: Any = None,
    *,
    tape: str = "inprocess",
    errors: Errors | None = None,
    record: RecordPolicy = "keep",
    exclude: Collection[str] = (),
    perturb: bool | Collection[str] = True,
) -> Any:
    """Instrument a retriever: a function, plain or async, that returns a list of passages, or one text.

    Passages are `mat.Passage`, or mappings and objects with a text; a text is recorded as a list with one passage. Write
    `@mat.retriever`, `@mat.retriever("kb")` to give it a name, or call it with a function. Fault operators of the retrieval
    boundary reorder, drop, cut and poison what it returns, and claims can be traced to its passages.

    `tape`, `errors`, `record`, `exclude`, `perturb`: as for `mat.tool`. Returns the instrumented callable. Raises
    `mat.MatError` for invalid options, all of them at once.

    `target`: the function, or the name.

    >>> @mat.retriever("kb")
    ... def find(question):
    ...     return [mat.Passage(text="Parcels arrive on Fridays.", source="faq.md", score=0.9)]
    >>> with mat.run() as run:
    ...     passages = find("When?")
    >>> run.trace[0].action.kind, run.trace[0].action.name, passages[0].source
    ('retrieval', 'kb', 'faq.md')

    Source: A4.1.
    """
    options: dict[str, Any] = dict(effect="read", errors=errors, tape=tape, record=record, exclude=exclude, perturb=perturb)
    return _instrument_named("retrieval", "retrieval", target, options)


def model(
    target: Any = None,
    *,
    tape: str = "external",
    errors: Errors | None = None,
    record: RecordPolicy | None = None,
    exclude: Collection[str] = (),
    perturb: bool | Collection[str] = True,
    usage: Callable[[Any], Any] | None = None,
) -> Any:
    """Instrument a call of a language model: a function, plain or async, or a generator of chunks.

    Write `@mat.model`, `@mat.model("planner")` to give it a name, or call it with a function. The record keeps the reply,
    hashes the prompt, and reads token usage from the reply. Replays serve the replies from tape
    (`tape="external"`, the default), and so do searches with `--mat-live-calls`.

    `record`: as for `mat.tool`; by default `{"reply": "keep", "*": "hash"}`. `errors`, `exclude`, `perturb`: as for
    `mat.tool`. `usage`: a function that gets the reply (of a stream, the list of its chunks) and returns its token usage, as
    `{"input_tokens": 12, "output_tokens": 3}`, or None; for replies in a shape that `mat.boundary.usage` does not know. In a
    replay it gets the recorded reply. Returns the instrumented callable. Raises `mat.MatError` for invalid options, all of them
    at once.

    `target`: the function, or the name.

    >>> @mat.model("planner")
    ... def ask(prompt):
    ...     return {"content": "refund A17", "usage": {"input_tokens": 12, "output_tokens": 3}}
    >>> with mat.run() as run:
    ...     ask("What next?")["content"]
    'refund A17'
    >>> run.trace[0].action.name, dict(run.trace[0].observation.usage)
    ('planner', {'input_tokens': 12, 'output_tokens': 3})

    Source: A1.2, A1.8.
    """
    policy: RecordPolicy = {"reply": "keep", "*": "hash"} if record is None else record
    options: dict[str, Any] = dict(effect="read", errors=errors, tape=tape, record=policy, exclude=exclude, perturb=perturb)
    options["usage"] = usage
    return _instrument_named("model_call", "model", target, options)


def handoff(
    to: str,
    *,
    role: str = "",
    errors: Errors | None = None,
    record: RecordPolicy = "keep",
    exclude: Collection[str] = (),
    perturb: bool | Collection[str] = True,
) -> Callable[[F], F]:
    """Instrument a function, plain or async, that runs another agent: a call delegates to the agent `to`, which acts inside.

    The call crosses the delegation boundary with its parameters as arguments, and its end is recorded as the hand-back. Unlike
    `mat.delegate` around a block, a handoff can be delivered twice, late, or not at all, like a message in a queue.

    `role`: of the agent, by default its name. `errors`, `record`, `exclude`, `perturb`: as for `mat.tool`. Returns the
    decorator. Raises `mat.MatError` for a generator, and for invalid options.

    >>> @mat.handoff("mailer")
    ... def send_mail(task):
    ...     return f"sent: {task}"
    >>> with mat.run() as run:
    ...     send_mail("tell Ann")
    'sent: tell Ann'
    >>> [(record.agent, record.action.kind, record.action.name) for record in run.trace[:2]]
    [('main', 'delegation', 'mailer'), ('mailer', 'handback', 'main')]

    Source: A1.2.
    """
    options: dict[str, Any] = dict(effect="write", errors=errors, record=record, exclude=exclude, perturb=perturb)

    def decorate(callee: F) -> F:
        function = _function(callee)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise SpecError(
                what=f"handoff to {to!r}: a generator cannot receive a handoff", fix="decorate a function or a coroutine"
            )
        inner = _as_agent_async(callee, to, role) if inspect.iscoroutinefunction(function) else _as_agent(callee, to, role)
        functools.update_wrapper(inner, callee)
        return cast(F, instrument(inner, kind="delegation", boundary="delegation", name=to, options=options))

    return decorate


def _as_agent(callee: Callable[..., Any], to: str, role: str) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with handed_over(to, role):
            return callee(*args, **kwargs)

    return run


def _as_agent_async(callee: Callable[..., Any], to: str, role: str) -> Callable[..., Any]:
    async def run(*args: Any, **kwargs: Any) -> Any:
        with handed_over(to, role):
            return await callee(*args, **kwargs)

    return run


def _instrument_named(kind: ActionKind, boundary: Boundary, target: Any, options: dict[str, Any]) -> Any:
    if target is None or isinstance(target, str):
        return _decorator(kind, boundary, target or "", options, None)
    return _decorator(kind, boundary, "", options, target)


def _decorator(kind: ActionKind, boundary: Boundary, name: str, options: dict[str, Any], target: Any) -> Any:
    def decorate(callee: Any) -> Any:
        return instrument(callee, kind=kind, boundary=boundary, name=name, options=options)

    return decorate if target is None else decorate(target)


def instrument(callee: Any, *, kind: ActionKind, boundary: Boundary, name: str, options: dict[str, Any]) -> Any:
    """Wrap a callable, a class, a staticmethod or a classmethod."""
    if isinstance(callee, staticmethod | classmethod):
        inner = instrument(callee.__func__, kind=kind, boundary=boundary, name=name, options=options)
        return type(callee)(inner)
    if isinstance(callee, type):
        prefix = name or callee.__name__
        for attribute, member in list(vars(callee).items()):
            function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
            if not attribute.startswith("_") and inspect.isfunction(function):
                wrapped = instrument(member, kind=kind, boundary=boundary, name=f"{prefix}.{attribute}", options=options)
                setattr(callee, attribute, wrapped)
        return callee
    if not callable(callee):
        raise SpecError(
            what=f"{callee!r} cannot be instrumented", why="it is not callable", fix="decorate a function, a method or a class"
        )
    if getattr(callee, "mat_port", None) is not None:
        return callee
    return _wrap(
        callee, kind=kind, boundary=boundary, name=name or getattr(callee, "__name__", type(callee).__name__), options=options
    )


def _wrap(callee: Callable[..., Any], *, kind: ActionKind, boundary: Boundary, name: str, options: dict[str, Any]) -> Any:
    function = _function(callee)
    streams = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    result_type = _chunk_type(_result_type(function)) if streams else _result_type(function)
    port = make_port(
        name=name, kind=kind, boundary=boundary, result_type=result_type, stream=streams, guess=Guess(callee, boundary),
        **(_TEXTS if kind == "retrieval" and not streams else {}), **options,
    )  # fmt: skip
    binder = Binder(callee, exclude=port.exclude, where=f"call of {name}")
    if port.handles is not None:
        binder.callee = callee = port.handles.around(callee)
    if kind == "model_call":
        binder.callee = as_model_call(callee, function)
    wrapper: Any
    if inspect.isasyncgenfunction(function):
        wrapper = _stream_async(callee, port, binder)
    elif inspect.isgeneratorfunction(function):
        wrapper = _stream(callee, port, binder)
    elif inspect.iscoroutinefunction(function):
        wrapper = _call_async(callee, port, binder)
    else:
        wrapper = _call(callee, port, binder)
    functools.update_wrapper(wrapper, callee)
    wrapper.mat_port = port
    return wrapper


def _function(callee: Any) -> Any:
    """The function that a callable calls: the function of a partial, the `__call__` of an object."""
    while isinstance(callee, functools.partial):
        callee = callee.func
    return callee if inspect.isroutine(callee) else type(callee).__call__


def _chunk_type(hint: Any) -> Any:
    """The item type of a stream, from Iterator[T], Generator[T, ...] and their async variants."""
    inner = get_args(hint)
    return inner[0] if inner else None


def _result_type(function: Any) -> Any:
    try:
        return get_type_hints(function).get("return")
    except Exception:  # unresolvable annotations of a user's function only mean untyped tapes
        return None


def _call(callee: Callable[..., Any], port: Port, binder: Binder) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        session = active()
        if session is None:
            meter = meter_of(port)
            if meter is None:
                return callee(*args, **kwargs)
            return metered(meter, port, binder.named(args, kwargs), lambda: callee(*args, **kwargs))
        steps = crossing(session, port, binder.named(args, kwargs))
        return drive(steps, lambda changed: binder.call(args, kwargs, changed))

    return wrapper


def _call_async(callee: Callable[..., Any], port: Port, binder: Binder) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        session = active()
        if session is None:
            meter = meter_of(port)
            if meter is None:
                return await callee(*args, **kwargs)
            return await metered_async(meter, port, binder.named(args, kwargs), lambda: callee(*args, **kwargs))
        steps = crossing(session, port, binder.named(args, kwargs), suspends=True)
        return await drive_async(steps, lambda changed: binder.call(args, kwargs, changed))

    return wrapper


def _stream(callee: Callable[..., Any], port: Port, binder: Binder) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        if active() is None:
            meter = meter_of(port)
            if meter is None:
                return (yield from callee(*args, **kwargs))
            yield from metered_stream(meter, port, binder.named(args, kwargs), lambda: callee(*args, **kwargs))
            return None
        return (yield from stream_port(port, binder.named(args, kwargs), lambda changed: binder.call(args, kwargs, changed)))

    return wrapper


def _stream_async(callee: Callable[..., Any], port: Port, binder: Binder) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        chunks: Any
        if active() is not None:
            chunks = stream_port_async(port, binder.named(args, kwargs), lambda changed: binder.call(args, kwargs, changed))
        elif (meter := meter_of(port)) is not None:
            chunks = metered_stream_async(meter, port, binder.named(args, kwargs), lambda: callee(*args, **kwargs))
        else:
            chunks = callee(*args, **kwargs)
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await chunks.aclose()

    return wrapper


class Binder:
    """Maps a call's arguments to parameter names, without the bound receiver and the excluded parameters."""

    __slots__ = ("_defaults", "_drop", "_extra", "_known", "_names", "_positional", "_signature", "_simple", "_where", "callee")

    def __init__(self, callee: Callable[..., Any], *, exclude: frozenset[str], where: str) -> None:
        self.callee, self._where = callee, where
        try:
            self._signature: inspect.Signature | None = inspect.signature(callee)
        except (TypeError, ValueError):
            self._signature = None
        parameters = list(self._signature.parameters.values()) if self._signature else []
        unknown = sorted(exclude - {parameter.name for parameter in parameters})
        if unknown and parameters and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            raise SpecError(
                what=f"{where}: exclude names unknown parameters: {', '.join(unknown)}",
                fix=f"choose from {', '.join(parameter.name for parameter in parameters)}",
            )
        drop = set(exclude)
        owner = getattr(callee, "__qualname__", "").rpartition(".")[0]
        if parameters and parameters[0].name in ("self", "cls") and owner and not owner.endswith("<locals>"):
            drop.add(parameters[0].name)
        self._drop = frozenset(drop)
        self._names = tuple(parameter.name for parameter in parameters)
        self._known = frozenset(self._names)
        self._positional = sum(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in parameters)
        plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        self._simple = self._signature is not None and all(parameter.kind in plain for parameter in parameters)
        self._extra = next((item.name for item in parameters if item.kind is item.VAR_KEYWORD), None)
        self._defaults = {item.name: item.default for item in parameters if item.default is not item.empty}

    def recorded(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> FrozenDict:
        """The arguments in recorded form."""
        return snapshot_arguments(self.named(args, kwargs), self._where)

    def named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name, defaults filled in. A call that does not fit the signature raises its usual TypeError."""
        if self._simple and len(args) <= self._positional:
            named = dict(zip(self._names, args))  # noqa: B905  (defaults and keywords fill the rest)
            named.update(kwargs)
            fits = len(named) == len(args) + len(kwargs)
            for name, value in self._defaults.items():
                if name not in named:
                    named[name] = value
            if not fits or named.keys() != self._known:
                self._signature.bind(*args, **kwargs)  # type: ignore[union-attr]
        else:
            named = self._bind(args, kwargs)
        if self._drop:
            named = {name: value for name, value in named.items() if name not in self._drop}
        return named

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if self._signature is None:
            return {**dict(zip(_place_names(args, kwargs), args, strict=True)), **kwargs}
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        named = dict(bound.arguments)
        extra = self._extra
        if extra is not None:
            more = named.pop(extra)
            hidden = self._hidden(more, extra)
            named.update({name: value for name, value in more.items() if name not in hidden})
            if hidden:
                named[extra] = hidden
        return named

    def _hidden(self, more: Mapping[str, Any], extra: str) -> dict[str, Any]:
        """The keywords that are called like a positional parameter; they are recorded under the name of all keywords.

        `f(1, a=2)` for `f(a, /, **more)`: `a` is 1, and the other is `more.a`.
        """
        hidden = {name: value for name, value in more.items() if name in self._known and name != extra}
        if hidden and extra in more:
            hidden[extra] = more[extra]
        return hidden

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any], changed: FrozenDict | None) -> Any:
        """Invoke with some parameters changed by name; all others are passed as given."""
        if not changed:
            return self.callee(*args, **kwargs)
        if self._signature is None:
            new, places = _thaw(changed), _place_names(args, kwargs)
            given = [new.pop(name) if name in new else value for name, value in zip(places, args, strict=True)]
            return self.callee(*given, **{**kwargs, **new})
        bound = self._signature.bind(*args, **kwargs)
        before = self.recorded(args, kwargs)
        for name, value in changed.items():
            if name in before and canonical(before[name]) == canonical(value):  # 1 and True are two values
                continue
            parameter = self._signature.parameters.get(name)
            if parameter is not None and parameter.kind is not inspect.Parameter.VAR_KEYWORD:
                bound.arguments[name] = _thaw(value)
                continue
            extra = self._extra
            if extra is not None and name == extra and self._hidden(bound.arguments.get(extra, {}), extra):
                more = bound.arguments[extra]
                kept = {key: item for key, item in more.items() if key not in self._hidden(more, extra)}
                bound.arguments[extra] = {**kept, **_thaw(value)}
                continue
            if extra is None:
                raise SpecError(
                    what=f"{self._where} has no parameter {name!r}",
                    why="a rewrite or an operator tried to set it",
                    fix=f"choose from {', '.join(self._names)}",
                )
            bound.arguments.setdefault(extra, {})[name] = _thaw(value)
        return self.callee(*bound.args, **bound.kwargs)


def _place_names(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
    """Names for the arguments of a callable without a signature, by place."""
    return [f"arg{index}" if f"arg{index}" not in kwargs else f"*{index}" for index in range(len(args))]


def _thaw(value: Any) -> Any:
    from mat.core.value import thaw

    return thaw(value)


class Memory(MutableMapping[str, Any]):
    """A mapping that agents share, whose reads and writes are recorded steps; `mat.memory` makes one.

    It wraps any mutable mapping, or a pair of functions `get(key)` and `put(key, value)`. Outside a run it is the plain
    mapping. Iterating over it and `len` read the keys in one step. A missing key is recorded as the reply `KeyError`.
    `record`, `perturb`, `tape`: as for `mat.tool`.

    Raises `mat.MatError` without a store or functions, and where keys are listed or deleted although it has only functions.

    `store`: key -> value, None if `get` and `put` are given. `name`: what contracts and reports call it.

    >>> notes = mat.Memory({}, name="notes")
    >>> with mat.run() as run:
    ...     notes["eta"] = "Friday"
    ...     notes["eta"]
    'Friday'
    >>> [(record.action.kind, dict(record.action.arguments)) for record in run.trace[:2]]
    [('memory_write', {'key': 'eta', 'value': 'Friday'}), ('memory_read', {'key': 'eta'})]

    Source: A1.2, A4.1.
    """

    def __init__(
        self,
        store: MutableMapping[str, Any] | None,
        *,
        name: str,
        get: Callable[[Any], Any] | None = None,
        put: Callable[[Any, Any], Any] | None = None,
        record: RecordPolicy = "keep",
        perturb: bool | Collection[str] = True,
        tape: str = "inprocess",
    ) -> None:
        if (store is None) == (get is None and put is None):
            raise SpecError(
                what=f"memory {name!r} needs a store, or get= and put=",
                fix="write mat.memory({}, name=...) or mat.memory(get=..., put=..., name=...)",
            )
        self._store, self._get, self._put = store, get, put
        options: dict[str, Any] = dict(name=name, boundary="memory", record=record, perturb=perturb, tape=tape)
        self._read = make_port(kind="memory_read", effect="read", **options)
        self._write = make_port(kind="memory_write", effect="write", **options)
        self.name = name

    def _cross(self, port: Port, arguments: dict[str, Any], call: Callable[[FrozenDict | None], Any]) -> Any:
        session = active()
        if session is None:
            return call(None)
        return drive(crossing(session, port, arguments), call)

    def __getitem__(self, key: str) -> Any:
        return self._fetch(key, present=False)

    def _fetch(self, key: Any, *, present: bool) -> Any:
        """Read one cell. `present`: only if it exists, so that a store with default values creates no cell."""

        def read(changed: FrozenDict | None) -> Any:
            wanted = changed.get("key", key) if changed else key
            if self._get is not None:
                return self._get(wanted)
            store = self._require()
            if present and wanted not in store:
                raise KeyError(wanted)
            return store[wanted]

        self._require_way(self._get)
        return self._cross(self._read, {"key": key}, read)

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self._fetch(key, present=True)
        except KeyError:
            return default

    def __setitem__(self, key: str, value: Any) -> None:
        def write(changed: FrozenDict | None) -> None:
            new = _thaw(changed["value"]) if changed and "value" in changed else value
            cell = changed.get("key", key) if changed else key
            if self._put is not None:
                self._put(cell, new)
            else:
                self._require()[cell] = new

        self._require_way(self._put)
        self._cross(self._write, {"key": key, "value": value}, write)

    def __delitem__(self, key: str) -> None:
        def delete(changed: FrozenDict | None) -> None:
            del self._require()[changed.get("key", key) if changed else key]

        self._require_way(None)
        self._cross(self._write, {"key": key, "deleted": True}, delete)

    def __iter__(self) -> Iterator[str]:
        self._require_way(None)
        return iter(self._cross(self._read, {"keys": True}, lambda changed: list(self._require())))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, key: object) -> bool:
        try:
            self._fetch(key, present=True)
        except KeyError:
            return False
        return True

    def _require_way(self, way: Callable[..., Any] | None) -> None:
        """Refuse an operation that this memory does not support, before a step is recorded."""
        if way is None:
            self._require()

    def _require(self) -> MutableMapping[str, Any]:
        if self._store is None:
            raise SpecError(
                what=f"memory {self.name!r} has only get and put",
                why="deleting and listing need a mapping",
                fix="give it a mapping, or only read and write it",
            )
        return self._store


@overload
def memory(store: MutableMapping[str, Any], *, name: str, **options: Any) -> Memory: ...
@overload
def memory(
    store: None = None, *, name: str, get: Callable[[Any], Any], put: Callable[[Any, Any], Any], **options: Any
) -> Memory: ...
def memory(store: MutableMapping[str, Any] | None = None, *, name: str, **options: Any) -> Memory:
    """Instrument a memory that agents share: a mutable mapping, or two functions `get=` and `put=`.

    `name`: what contracts and reports call it. `options`: `record`, `perturb`, `tape`, as for `mat.tool`. Returns a
    `mat.Memory`. Raises `mat.MatError` without a store or functions, and for invalid options.

    `store`: key -> value, None if `get` and `put` are given.

    >>> notes = mat.memory({}, name="notes")
    >>> with mat.run() as run, mat.agent("planner"):
    ...     notes["eta"] = "Friday"
    >>> dict(notes), run.trace[0].site
    ({'eta': 'Friday'}, 'planner/memory:notes#1')

    Source: A1.2, A4.1.
    """
    return Memory(store, name=name, **options)


__all__ = ["Binder", "Memory", "Passage", "handoff", "instrument", "memory", "model", "retriever", "tool"]
