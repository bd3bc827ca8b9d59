"""What an adapter is, and one attachment of it: the ports by name, and the attributes of the framework that are replaced.

A seam is an attribute of a framework, usually a method, that an adapter replaces to see the calls that go through it.

Source: A1.2, A4.1, E2.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from mat.boundary.guess import Guess
from mat.boundary.port import Errors, Port, make_port
from mat.boundary.texts import as_passages, from_passages
from mat.core.record import ActionKind
from mat.core.redact import RedactionPolicy
from mat.core.value import snapshot, thaw
from mat.kernel.names import origin

Ability = Literal["observe", "perturb", "govern", "replay"]
ABILITIES: Final[tuple[Ability, ...]] = ("observe", "perturb", "govern", "replay")
_INHERITED: Final = object()
_KEEPING_REPLIES: Final = ("delegation.delay", "delegation.duplicate", "order", "process")
"""Faults of a hand-over that leave its reply as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """An adapter of one framework, as the entry point group `mat.adapters` names it.

    `name`: what users write. `package`: the module that must be importable; `extra`: of pytest-mat, that installs it.
    `release`: the oldest one that the adapter works with, as `distribution>=version`.
    `install(attachment)`: replaces the seams of the framework by `attachment.replace`. `abilities`: what the adapter can do.
    `policy`: what the framework itself does with a tool that fails, in a sentence; it decides what a fault can bring about.

    >>> from mat.adapters import Adapter
    >>> shop = Adapter(name="shop", package="shop_agents", install=lambda attachment: None, policy="a failed tool ends the run")
    >>> shop.abilities
    ('observe', 'perturb', 'govern', 'replay')

    Source: E2.
    """

    name: str
    package: str
    install: Callable[[Attachment], None]
    extra: str = ""
    release: str = ""
    abilities: tuple[Ability, ...] = ABILITIES
    policy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """How one port of an attachment came to its effect. `source`: "you", or what says it, or "" if nothing does."""

    port: str
    effect: str
    source: str


@dataclass(slots=True, kw_only=True)
class Attachment:
    """The options of one attachment, its ports, and what it has replaced. See `mat.attach` for the options.

    `tape`: whether tools and retrievers run again in a replay ("inprocess"), or their replies come from the recording.

    `adapter`: what it attaches. `declared`: port -> how the port came to its effect, filled while the attachment is in
    force. `memory`: as for `mat.attach`.

    >>> from mat.adapters import Attachment
    >>> port = Attachment(effects={"refund": "write"}).tool("refund")
    >>> port.name, port.effect
    ('refund', 'write')

    Source: E2.
    """

    adapter: Adapter | None = None
    effects: Mapping[str, str] = field(default_factory=dict)
    impacts: Mapping[str, str] = field(default_factory=dict)
    retrievers: Collection[str] = ()
    errors: Errors | None = None
    models: bool | Mapping[str, str] = True
    memory: bool | Mapping[str, str] = True
    perturb: bool | Collection[str] | Mapping[str, bool | Collection[str]] = True
    prompts: RedactionPolicy = "hash"
    tape: Literal["external", "inprocess"] = "inprocess"
    declared: dict[str, Declared] = field(default_factory=dict)
    _ports: dict[tuple[str, ...], Port] = field(default_factory=dict)
    _replaced: list[tuple[Any, str, Any]] = field(default_factory=list)
    _followed: dict[type, list[tuple[str, Callable[[Any], Any]]]] = field(default_factory=dict)

    def options_by_port(self) -> dict[str, tuple[str, ...]]:
        """The options that name a port, by the name of the port."""
        given: dict[str, Collection[str]] = {
            "effects": self.effects, "impacts": self.impacts, "retrievers": self.retrievers,
            "perturb": self.perturb if isinstance(self.perturb, Mapping) else (),
        }  # fmt: skip
        ports = sorted({port for ports in given.values() for port in ports})
        return {port: tuple(option for option, named in given.items() if port in named) for port in ports}

    # -- ports --------------------------------------------------------------------------------------------------------

    def tool(
        self,
        name: str,
        *,
        effect: str = "",
        source: str = "",
        callee: Any = None,
        errors: Errors | None = None,
        stream: bool = False,
        encode: Callable[[Any], Any] | None = None,
        decode: Callable[[Any], Any] | None = None,
    ) -> Port:
        """The port of a tool, made at its first call; a retriever where the user names it as one.

        `effect`: what the framework or the protocol declares, and `source`: where; the user's own word comes first. `callee`:
        the function that does the work, from whose module the client and its errors are guessed. `errors`: what the client of
        this tool raises, if the adapter knows it. `stream`: its reply comes in chunks; a retriever's comes whole.
        """
        kind: ActionKind = "retrieval" if name in self.retrievers else "tool_call"
        key = (kind, name, "stream") if stream else (kind, name)
        port = self._ports.get(key)
        if port is None:
            if kind == "retrieval":
                return self.retriever(
                    name, callee=callee, encode=_then(encode, as_passages), decode=_then(from_passages, decode)
                )
            said = self.effects.get(name)
            found = said or effect or "unknown"
            self.declared[name] = Declared(port=name, effect=found, source="you" if said else source if effect else "")
            port = self._ports[key] = make_port(
                name=name, kind=kind, boundary="service", effect=found, impact=self.impacts.get(name, "low"),
                errors=self.errors or errors, perturb=self._perturb(name), encode=encode, decode=decode and _of_plain(decode),
                tape=self.tape, stream=stream,
                guess=None if callee is None else Guess(callee, "service"),
            )  # fmt: skip
        return port

    def retriever(
        self,
        name: str,
        *,
        callee: Any = None,
        encode: Callable[[Any], Any] = as_passages,
        decode: Callable[[Any], Any] = from_passages,
    ) -> Port:
        """The port of a retriever. `encode`: from its reply to a list of passages, `decode`: back."""
        port = self._ports.get(("retrieval", name))
        if port is None:
            port = self._ports["retrieval", name] = make_port(
                name=name, kind="retrieval", boundary="retrieval", effect="read", errors=self.errors,
                perturb=self._perturb(name), encode=encode, decode=_of_plain(decode), tape=self.tape,
                guess=None if callee is None else Guess(callee, "retrieval"),
            )  # fmt: skip
        return port

    def model(
        self,
        name: str,
        *,
        of: Any = None,
        errors: Errors | None = None,
        stream: bool = False,
        encode: Callable[[Any], Any] | None = None,
        decode: Callable[[Any], Any] | None = None,
    ) -> Port:
        """The port of a model, by its id. In replays its replies come from tape, unless `of`, its class or
        function, is a part of the user's project: a scripted model is code under test.
        """
        if isinstance(self.models, Mapping):
            name = self.models.get(name, name)
        port = self._ports.get(("model_call", name, str(stream)))
        if port is None:
            port = self._ports["model_call", name, str(stream)] = make_port(
                name=name, kind="model_call", boundary="model", effect="read", tape="inprocess" if _is_own(of) else "external",
                record={"reply": "keep", "*": self.prompts}, errors=errors, stream=stream, perturb=self._perturb(name),
                encode=encode, decode=decode and _of_plain(decode),
            )  # fmt: skip
        return port

    def store(self, name: str) -> tuple[Port, Port]:
        """The ports of a memory: for reads, and for writes."""
        if isinstance(self.memory, Mapping):
            name = self.memory.get(name, name)
        return self._memory("memory_read", "read", name), self._memory("memory_write", "write", name)

    def saved_work(self, name: str, encode: Callable[[Any], Any]) -> tuple[Port, Port]:
        """The ports of a place where a framework saves its own work: for reads, and for writes.

        What is saved is the framework's own data, so that no fault changes it; a process can end before it or after it.
        `encode`: what is recorded of a reply.
        """
        if isinstance(self.memory, Mapping):
            name = self.memory.get(name, name)
        only = self._perturb(name) and ("process", "order")
        return (
            self._memory("memory_read", "read", name, perturb=only, encode=encode, decode=_not_replaced),
            self._memory("memory_write", "write", name, perturb=only, encode=encode, decode=_not_replaced),
        )

    def delegation(self, to: str, *, encode: Callable[[Any], Any] | None = None) -> Port:
        """The port of a hand-over of work to the agent `to`.

        `encode`: what is recorded of a reply that is an object of the framework, such as the agent that goes on; no fault
        replaces such a reply.
        """
        port = self._ports.get(("delegation", to))
        if port is None:
            perturb = self._perturb(to)
            if encode is not None:
                perturb = perturb and _KEEPING_REPLIES
            port = self._ports["delegation", to] = make_port(
                name=to, kind="delegation", boundary="delegation", effect="write", perturb=perturb, encode=encode,
                decode=encode and _not_replaced,
            )  # fmt: skip
        return port

    def _memory(self, kind: ActionKind, effect: str, name: str, **options: Any) -> Port:
        port = self._ports.get((kind, name))
        if port is None:
            options = {"perturb": self._perturb(name), **options}
            port = self._ports[kind, name] = make_port(name=name, kind=kind, boundary="memory", effect=effect, **options)
        return port

    def _perturb(self, name: str) -> bool | Collection[str]:
        return self.perturb.get(name, True) if isinstance(self.perturb, Mapping) else self.perturb

    # -- seams --------------------------------------------------------------------------------------------------------

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace an attribute of a class or a module by `make(what it is now)`, until the attachment ends."""
        before = vars(owner).get(name, _INHERITED)
        current = inspect.getattr_static(owner, name)
        made = make(current)
        self._replaced.append((owner, name, before))
        named = inspect.isroutine(current) and not isinstance(made, classmethod | staticmethod)
        setattr(owner, name, functools.wraps(current)(made) if named else made)

    def in_words(self) -> str:
        """What is attached, its release, and its own policy for failures, which decides what a fault can bring about."""
        return "" if self.adapter is None else _in_words(self.adapter)

    def replace_value(self, owner: Any, name: str, value: Any) -> None:
        """Replace an attribute by a value, until the attachment ends."""
        self._replaced.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def replace_method(self, base: type, name: str, make: Callable[[Any], Any], *, of_base: bool = True) -> None:
        """Replace a method in each class that defines it: `base` (unless `of_base` is False) and its subclasses.

        Subclasses that are made while the attachment lasts are included: frameworks import many of theirs late.
        """
        done, rest = set[type](), [base]
        while rest:
            kind = rest.pop()
            if kind not in done and (of_base or kind is not base) and _defines(kind, name):
                self.replace(kind, name, make)
            done.add(kind)
            rest += kind.__subclasses__()
        followed = self._followed.get(base)
        if followed is None:
            followed = self._followed[base] = []
            self._follow(base, followed)
        followed.append((name, make))

    def _follow(self, base: type, followed: list[tuple[str, Callable[[Any], Any]]]) -> None:
        before = vars(base).get("__init_subclass__")

        def init_subclass(kind: Any, /, **options: Any) -> None:
            if before is None:
                super(base, kind).__init_subclass__(**options)  # type: ignore[arg-type]
            else:
                before.__get__(None, kind)(**options)
            for name, make in followed:
                if _defines(kind, name):
                    self.replace(kind, name, make)

        self._replaced.append((base, "__init_subclass__", _INHERITED if before is None else before))
        setattr(base, "__init_subclass__", classmethod(init_subclass))  # noqa: B010  (mypy sees a signature of its own)

    @property
    def replaced(self) -> tuple[tuple[Any, str, Any], ...]:
        """(owner, attribute, what `getattr_static` gave before) of everything that is replaced now, the first of each."""
        found: dict[tuple[int, str], tuple[Any, str, Any]] = {}
        for owner, name, before in self._replaced:
            inherited = next((vars(kind)[name] for kind in _bases_of(owner) if name in vars(kind)), None)
            found.setdefault((id(owner), name), (owner, name, inherited if before is _INHERITED else before))
        return tuple(found.values())

    def undo(self) -> None:
        """Put everything back that was replaced."""
        self._followed.clear()
        while self._replaced:
            owner, name, before = self._replaced.pop()
            if before is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


def _bases_of(owner: Any) -> tuple[type, ...]:
    return owner.__mro__[1:] if isinstance(owner, type) else ()


def _then(first: Callable[[Any], Any] | None, second: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """One function after the other; None changes nothing."""
    if first is None or second is None:
        return first or second or (lambda value: value)
    return lambda value: second(first(value))


def _defines(kind: type, name: str) -> bool:
    """Whether a class has a method of its own under this name that does something."""
    found = vars(kind).get(name)
    return inspect.isfunction(found) and not getattr(found, "__isabstractmethod__", False)


@functools.lru_cache
def _in_words(adapter: Adapter) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        release = f" {version(adapter.release.partition('>=')[0] or adapter.package)}"
    except PackageNotFoundError:
        release = ""
    return f"{adapter.name}{release}" + (f": {adapter.policy}" if adapter.policy else "")


def _is_own(made: Any) -> bool:
    """Whether a class or a function is defined in the user's project."""
    module = sys.modules.get(getattr(made, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    return file is not None and origin(file) == "project"


def _not_replaced(value: Any) -> Any:
    raise AssertionError("no fault replaces what a framework has saved")


def _of_plain(decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The decoder, which gets dicts and lists of its own, wherever the data comes from."""
    return lambda value: decode(thaw(snapshot(value)))


__all__ = ["ABILITIES", "Ability", "Adapter", "Attachment", "Declared"]
