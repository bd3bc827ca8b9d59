"""Ports: one named thing at a boundary, with its declared properties."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

from mat.boundary.issue import Consume, Issue, as_consumes, as_issues
from mat.core import limits
from mat.core.errors import Blocked, RateLimited, SpecError
from mat.core.record import ActionKind, DeclaredEffect, Impact
from mat.core.redact import POLICIES, RedactionPolicy
from mat.core.site import BOUNDARIES, Boundary

TapeMode: TypeAlias = Literal["external", "inprocess"]
RecordPolicy: TypeAlias = RedactionPolicy | Mapping[str, RedactionPolicy]
"""One policy for all fields, or by field: parameter names, "reply", and "*" for the rest."""

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Port:
    """One port. `errors` maps an error kind to what its client raises: a class, an instance or a function of the message.

    `tape="external"`: in a replay, its replies come from tape while calls match. `perturb` limits what the search may do
    here: False for nothing, or the allowed operator ids. `handles`: the store whose handles are replaced by artifacts.
    `issues` and `consumes`: the artifacts that its replies bring, and that its arguments must carry.
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
    issues: tuple[Issue, ...] = ()
    consumes: tuple[Consume, ...] = ()

    def allows(self, operator: str) -> bool:
        if isinstance(self.perturb, bool):
            return self.perturb
        return operator in self.perturb or operator.partition(".")[0] in self.perturb

    def policy(self, field: str) -> RedactionPolicy:
        if isinstance(self.record, str):
            return self.record
        return self.record.get(field, self.record.get("*", "keep"))

    def error(self, kind: str, message: str, retry_after_s: float | None) -> BaseException:
        """The exception the port's client would raise for this kind of fault."""
        text = message or f"{self.name}: {MESSAGES.get(kind, kind)}"
        made = self.errors.get(kind) if self.errors else None
        if made is None:
            maker = DEFAULT_ERRORS.get(kind)
            error = RuntimeError(text) if maker is None else maker(text)
        elif isinstance(made, BaseException):
            error = made
        else:
            error = self._exception(kind, made, text)
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
        for known, kind in _ERROR_KINDS:
            if isinstance(error, known):
                return kind
        return ""


_declared: dict[tuple[ActionKind, str], None] = {}


def declared_ports() -> tuple[tuple[ActionKind, str], ...]:
    """The ports that code of this process has declared so far, as (action kind, name)."""
    return tuple(_declared)


def make_port(
    *,
    name: str,
    kind: ActionKind,
    boundary: Boundary,
    effect: str = "unknown",
    impact: str = "low",
    reversible: bool | None = None,
    errors: Mapping[str, Any] | None = None,
    tape: str = "inprocess",
    record: RecordPolicy = "keep",
    exclude: Collection[str] = (),
    perturb: bool | Collection[str] = True,
    result_type: Any = None,
    stream: bool = False,
    handles: Resolver | None = None,
    issues: Issue | Iterable[Issue] = (),
    consumes: Consume | Mapping[str, str] | Iterable[Consume] = (),
) -> Port:
    """Make a port; SpecError reports all mistakes in its options at once."""
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
    for fault, made in (errors or {}).items():
        if fault not in DEFAULT_ERRORS:
            problems.append(f"errors: there is no error kind {fault!r}; the kinds are {', '.join(DEFAULT_ERRORS)}")
        if not isinstance(made, BaseException) and not callable(made):
            problems.append(f"errors[{fault!r}] is neither an exception nor a function that makes one")
    for option, given in (("exclude", exclude), ("perturb", perturb)):
        if isinstance(given, str):  # a string is a collection, too
            problems.append(f"{option}={given!r} is a single string; write [{given!r}]")
    for allowed_here in () if isinstance(perturb, bool | str) else perturb:
        if allowed_here.partition(".")[0] not in BOUNDARIES:
            problems.append(f"perturb: {allowed_here!r} is not an operator or a boundary")
    if isinstance(handles, type) or not (handles is None or isinstance(handles, Resolver)):
        problems.append(f"handles={handles!r} is not a store; write store = mat.artifact.handles() and handles=store")
    brought: tuple[Issue, ...] = ()
    needed: tuple[Consume, ...] = ()
    try:
        brought, needed = as_issues(issues), as_consumes(consumes)
    except (TypeError, SpecError) as error:
        problems.append(str(error))
    if not name:
        problems.append("it has no name")
    if problems:
        raise SpecError(what=f"port {name!r}: {'; '.join(problems)}", fix="correct the options of the decorator")
    if len(_declared) < limits.DECLARED_PORTS:
        _declared[kind, name] = None
    return Port(
        name=name, kind=kind, boundary=boundary, effect=effect, impact=impact,  # type: ignore[arg-type]
        reversible=effect in ("none", "read") if reversible is None else reversible, errors=dict(errors or {}), tape=tape,  # type: ignore[arg-type]
        record=record, exclude=frozenset(exclude),
        perturb=perturb if isinstance(perturb, bool) else frozenset(perturb), result_type=result_type, stream=stream,
        handles=handles, issues=brought, consumes=needed,
    )  # fmt: skip
