"""Ports: one named thing at a boundary, with its declared properties."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable
from weakref import WeakKeyDictionary

from mat.boundary import clients
from mat.boundary.guess import Guess, GuessedClient
from mat.boundary.issue import ConsumeDeclaration, IssueDeclaration, as_consumes, as_issues
from mat.core import limits
from mat.core.errors import Blocked, RateLimited, SpecError
from mat.core.record import ActionKind, DeclaredEffect, Impact
from mat.core.redact import POLICIES, RedactionPolicy
from mat.core.run import PortErrors
from mat.core.site import BOUNDARIES, Boundary
from mat.core.value import FrozenDict, FrozenList

TapeMode: TypeAlias = Literal["external", "inprocess"]
RecordPolicy: TypeAlias = RedactionPolicy | Mapping[str, RedactionPolicy]
"""One policy for all fields, or by field: parameter names, "reply", and "*" for the rest."""
Errors: TypeAlias = Mapping[str, Any] | str | Sequence[str]
"""What a client raises: exceptions by kind of failure, or the name of a preset (`mat.boundary.clients`), or several names."""

CUT: Final = "cut"
"""The key of an adapter's exceptions for a reply that breaks off midway; without it, the kind of the fault decides."""
DEFAULT_ERRORS: Final[dict[str, Callable[[str], BaseException]]] = {
    "timeout": lambda message: TimeoutError(message),
    "connection": lambda message: ConnectionError(message),
    "server_error": lambda message: ConnectionError(message),
    "rate_limit": lambda message: RateLimited(message),
    "auth": lambda message: PermissionError(message),
    "not_found": lambda message: LookupError(message),
    "invalid": lambda message: ValueError(message),
}
MESSAGES: Final = {
    "timeout": "timed out",
    "connection": "connection failed",
    "server_error": "service unavailable",
    "rate_limit": "rate limited",
    "auth": "not authorised",
    "not_found": "not found",
    "invalid": "malformed reply",
}
_ERROR_KINDS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (Blocked, "blocked"),
    (TimeoutError, "timeout"),
    (RateLimited, "rate_limit"),
    (ConnectionError, "connection"),
)


@runtime_checkable
class Resolver(Protocol):
    """What a port needs from a store of handles (mat.boundary.handles)."""

    def resolve(self, value: Any) -> Any:
        """Replace the handles in a value by their artifacts."""

    def around(self, callee: Callable[..., Any]) -> Callable[..., Any]:
        """A callable that gets the artifacts themselves."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Port:
    """One port. `errors` maps an error kind to what its client raises: a class, an instance or a function of the message.
    `clients`: the declared presets, each of which is tried; for kinds that neither declares, `guess` is asked.

    `tape="external"`: in a replay, its replies come from tape while calls match. `perturb` limits what the search may do
    here: False for nothing, or the allowed operator ids. `handles`: the store whose handles are replaced by artifacts.
    `issues` and `consumes`: the artifacts that its replies bring, and that its arguments must carry. `encode`: from a client's
    object (a reply, or a chunk of a stream) to the plain data that is recorded, disturbed and taped; `decode`: back again, for
    data that the client did not give. It gets None where a fault took the reply away. `usage`: reads the token usage of
    a model's reply, where `mat.boundary.usage` does not know its shape.
    """

    name: str
    kind: ActionKind
    boundary: Boundary | Literal[""] = "service"
    effect: DeclaredEffect = "unknown"
    impact: Impact = "low"
    reversible: bool = True
    errors: Mapping[str, Any] = ()  # type: ignore[assignment]
    tape: TapeMode = "inprocess"
    record: RecordPolicy = "keep"
    exclude: frozenset[str] = frozenset()
    perturb: bool | frozenset[str] = True
    result_type: Any = None
    stream: bool = False
    handles: Resolver | None = None
    issues: tuple[IssueDeclaration, ...] = ()
    consumes: tuple[ConsumeDeclaration, ...] = ()
    clients: tuple[str, ...] = ()
    guess: Guess | None = None
    encode: Callable[[Any], Any] | None = None
    decode: Callable[[Any], Any] | None = None
    usage: Callable[[Any], Any] | None = None

    def allows(self, operator: str) -> bool:
        if isinstance(self.perturb, bool):
            return self.perturb
        return operator in self.perturb or operator.partition(".")[0] in self.perturb

    def policy(self, field: str) -> RedactionPolicy:
        if isinstance(self.record, str):
            return self.record
        return self.record.get(field, self.record.get("*", "keep"))

    def error(self, kind: str, message: str, retry_after_s: float | None) -> BaseException:
        """The exception that the port raised, from its recorded kind: as declared, else a built-in one."""
        return self._made(kind, self._text(kind, message), retry_after_s, client=next(iter(self.clients), ""), midway=False)

    def failure(
        self,
        kind: str,
        message: str,
        retry_after_s: float | None,
        *,
        client: str = "",
        project: tuple[str, ...] = (),
        midway: bool = False,
    ) -> BaseException:
        """The exception that the port's client would raise for this kind of fault.

        `client` is the wanted one, "" for the likeliest; a declaration of the port overrules it. `project`: the presets of the
        project, for ports that declare nothing. `midway`: a part of the reply has arrived.
        """
        found = self.clients or project or tuple(item.name for item in self._guessed)
        if client not in clients.names() or (self.clients and client not in self.clients):
            client = next((name for name in found if clients.offers(name, kind)), "")
        return self._made(kind, self._text(kind, message), retry_after_s, client=client, midway=midway)

    def tried(self, project: tuple[str, ...]) -> PortErrors | None:
        """The clients that a search tries by name; None if the declaration leaves no choice, or nothing is known."""
        known = _TRIED.setdefault(self, {})
        if project not in known:
            known[project] = self._find_tried(project)
        return known[project]

    def _find_tried(self, project: tuple[str, ...]) -> PortErrors | None:
        guessed = () if self.clients or project else self._guessed
        names = self.clients or project or tuple(item.name for item in guessed)
        if self.clients and len(names) == 1:
            return None
        kinds = {}
        for kind in DEFAULT_ERRORS:
            offering = [name for name in names if clients.offers(name, kind)]
            if kind not in self.errors and offering and (len(offering) > 1 or offering != [clients.BUILTIN]):
                kinds[kind] = FrozenList(offering)
        files = dict.fromkeys(item.file for item in guessed)
        why = f"{', '.join(files)} {'imports' if len(files) == 1 else 'import'} {'it' if len(names) == 1 else 'them'}"
        port = f"{self.boundary}:{self.name}"
        return PortErrors(port=port, kinds=FrozenDict(kinds), guess=why if guessed else "") if kinds else None

    @property
    def _guessed(self) -> tuple[GuessedClient, ...]:
        """The guess; if some exceptions are declared, only the clients that they come from, if they come from any."""
        if self.guess is None:
            return ()
        declared = {clients.client_of(made) for made in self.errors.values()} if self.errors else set[str]()
        return tuple(item for item in self.guess.clients if item.name in declared) or self.guess.clients

    def _text(self, kind: str, message: str) -> str:
        return message or f"{self.name}: {MESSAGES.get(kind, kind)}"

    def _made(self, kind: str, text: str, retry_after_s: float | None, *, client: str, midway: bool) -> BaseException:
        broken = midway and kind == "connection"  # any other kind says itself what the client meets
        made = (broken and self.errors.get(CUT)) or self.errors.get(kind) if self.errors else None
        if isinstance(made, BaseException):
            error = made
        elif made is not None:
            error = self._exception(kind, made, text)
        else:
            failure = clients.ClientFailure(kind=kind, text=text, retry_after_s=retry_after_s, midway=midway)
            found = clients.exception(client, failure) if client else None
            error = _builtin(kind, text) if found is None else found
        if retry_after_s is not None and hasattr(error, "retry_after_s"):
            error.retry_after_s = retry_after_s
        return error

    def _exception(self, kind: str, made: Callable[[str], Any], text: str) -> BaseException:
        try:
            error = made(text)
        except Exception as failure:
            said = f"raised {type(failure).__name__}: {failure}"
        else:
            if isinstance(error, BaseException):
                return error
            said = f"returned {type(error).__qualname__}, which is not an exception"
        raise SpecError(
            what=f"errors[{kind!r}] of port {self.name!r} {said}",
            why="the port calls it with the message to make the exception that its client would raise",
            fix="give an exception class that takes a message, an instance, or a function of the message",
        )

    def error_kind(self, error: BaseException) -> str:
        """The kind of an exception that the port itself raised, "" if unknown."""
        for kind, made in self.errors.items() if self.errors else ():
            if isinstance(made, type) and isinstance(error, made):
                return kind
        for name in self.clients:
            if kind := clients.kind_of(name, error):
                return kind
        for known, kind in _ERROR_KINDS:
            if isinstance(error, known):
                return kind
        return ""


_TRIED: Final[WeakKeyDictionary[Port, dict[tuple[str, ...], PortErrors | None]]] = WeakKeyDictionary()
"""By port and project, what `Port.tried` found; not in the port, whose state must be the same after a run as before."""


def _builtin(kind: str, text: str) -> BaseException:
    maker = DEFAULT_ERRORS.get(kind)
    return RuntimeError(text) if maker is None else maker(text)


def preset_names(errors: Errors | None) -> tuple[str, ...]:
    """The presets that `errors=` names; () for a mapping."""
    if errors is None or isinstance(errors, Mapping):
        return ()
    return (errors,) if isinstance(errors, str) else tuple(errors)


def project_errors(errors: str | Sequence[str]) -> tuple[str, ...]:
    """The presets that a project names for all its tools. SpecError for unknown ones, and for libraries that are missing."""
    given = preset_names(errors)
    problems = clients.problems(given)
    if problems:
        raise SpecError(
            what="; ".join(problems), why="an injected failure is an exception of the client that the tools call",
            fix="correct errors= (in the ini file: mat_errors)",
        )  # fmt: skip
    return clients.canonical_names(given)


_declared: dict[tuple[ActionKind, str], None] = {}


def declare_port(kind: ActionKind, name: str) -> None:
    """Note the name of a port that a framework has, which may not have been called yet."""
    if len(_declared) < limits.DECLARED_PORTS:
        _declared[kind, name] = None


def declared_ports() -> tuple[tuple[ActionKind, str], ...]:
    """The ports that code of this process has declared so far, as (action kind, name)."""
    return tuple(_declared)


def option_problems(
    *,
    effect: str = "unknown",
    impact: str = "low",
    tape: str = "inprocess",
    record: RecordPolicy = "keep",
    errors: Errors | None = None,
    exclude: Collection[str] = (),
    perturb: bool | Collection[str] = True,
) -> list[str]:
    """What is wrong with a port's options, a sentence each."""
    problems = []
    for option, value, allowed in (
        ("effect", effect, ("none", "read", "write", "unknown")),
        ("impact", impact, ("low", "high")),
        ("tape", tape, ("external", "inprocess")),
    ):
        if value not in allowed:
            problems.append(f"{option}={value!r} is not one of {', '.join(allowed)}")
    wrong = [policy for policy in ((record,) if isinstance(record, str) else record.values()) if policy not in POLICIES]
    problems += [f"record={policy!r} is not one of {', '.join(POLICIES)}" for policy in wrong]
    problems += clients.problems(preset_names(errors))
    for fault, made in errors.items() if isinstance(errors, Mapping) else ():
        if fault not in (*DEFAULT_ERRORS, CUT):
            problems.append(f"errors: there is no error kind {fault!r}; the kinds are {', '.join(DEFAULT_ERRORS)}")
        if not isinstance(made, BaseException) and not callable(made):
            problems.append(f"errors[{fault!r}] is neither an exception nor a function that makes one")
    for option, given in (("exclude", exclude), ("perturb", perturb)):
        if isinstance(given, str):  # a string is a collection, too
            problems.append(f"{option}={given!r} is a single string; write [{given!r}]")
    for allowed_here in () if isinstance(perturb, bool | str) else perturb:
        if allowed_here.partition(".")[0] not in BOUNDARIES:
            problems.append(f"perturb: {allowed_here!r} is not an operator or a boundary")
    return problems


def make_port(
    *,
    name: str,
    kind: ActionKind,
    boundary: Boundary,
    effect: str = "unknown",
    impact: str = "low",
    reversible: bool | None = None,
    errors: Errors | None = None,
    tape: str = "inprocess",
    record: RecordPolicy = "keep",
    exclude: Collection[str] = (),
    perturb: bool | Collection[str] = True,
    result_type: Any = None,
    stream: bool = False,
    handles: Resolver | None = None,
    issues: IssueDeclaration | Iterable[IssueDeclaration] = (),
    consumes: ConsumeDeclaration | Mapping[str, str] | Iterable[ConsumeDeclaration] = (),
    guess: Guess | None = None,
    encode: Callable[[Any], Any] | None = None,
    decode: Callable[[Any], Any] | None = None,
    usage: Callable[[Any], Any] | None = None,
) -> Port:
    """Make a port; SpecError reports all mistakes in its options at once."""
    problems = option_problems(
        effect=effect, impact=impact, tape=tape, record=record, errors=errors, exclude=exclude, perturb=perturb
    )
    named, declared = preset_names(errors), errors if isinstance(errors, Mapping) else {}
    if isinstance(handles, type) or not (handles is None or isinstance(handles, Resolver)):
        problems.append(f"handles={handles!r} is not a store; write store = mat.artifact.handles() and handles=store")
    brought: tuple[IssueDeclaration, ...] = ()
    needed: tuple[ConsumeDeclaration, ...] = ()
    try:
        brought, needed = as_issues(issues), as_consumes(consumes)
    except (TypeError, SpecError) as error:
        problems.append(str(error))
    if (encode is None) != (decode is None):
        problems.append("encode= and decode= belong together: what one turns into data, the other turns back")
    if inspect.iscoroutinefunction(usage):
        problems.append("usage= is a coroutine function; give an ordinary function of the reply that returns its token usage")
    elif usage is not None and not callable(usage):
        problems.append(f"usage={usage!r} is not a function of the reply that returns its token usage")
    if not name:
        problems.append("it has no name")
    if problems:
        raise SpecError(what=f"port {name!r}: {'; '.join(problems)}", fix="correct the options of the decorator")
    declare_port(kind, name)
    return Port(
        name=name, kind=kind, boundary=boundary, effect=effect, impact=impact,  # type: ignore[arg-type]
        reversible=effect in ("none", "read") if reversible is None else reversible, errors=dict(declared), tape=tape,  # type: ignore[arg-type]
        record=record, exclude=frozenset(exclude),
        perturb=perturb if isinstance(perturb, bool) else frozenset(perturb), result_type=result_type, stream=stream,
        handles=handles, issues=brought, consumes=needed, clients=clients.canonical_names(named), guess=guess,
        encode=encode, decode=decode, usage=usage,
    )  # fmt: skip
