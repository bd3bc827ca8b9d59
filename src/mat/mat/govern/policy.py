"""Policies from files: YAML or JSON, as untrusted input (DESIGN decision 20).

A file says what from a closed vocabulary; nothing in it is imported, evaluated or called. Approvers are named, and given by
whoever loads the file. `load` says everything that is wrong in one SpecError, with lines where the format has them;
`load_or_block` gives a policy that blocks every action instead, with the reason in the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from mat.core.allowed import Allowed, within
from mat.core.digest import digest
from mat.core.endpoint import MISSING, values_at
from mat.core.errors import MatError, did_you_mean
from mat.core.reading import (
    STRICT,
    Fits,
    Names,
    Reader,
    Scalar,
    Values,
    Where,
    data_of,
    kind_of,
    short_expression,
    sound,
    text_of,
)
from mat.core.record import ActionKind, Effect, Impact, Record
from mat.govern import rewrites
from mat.govern.capability import Capability, capability, capability_sets, rate
from mat.govern.mediator import Allow, Approver, Block, ConvertToApproval, Decision, NeedsApproval, Rule
from mat.govern.sandbox import Otherwise, StandIns, sandbox
from mat.govern.trust import Level, Reach, Stricter, Trust, route
from mat.govern.variant import FULL, Policy, Variant
from mat.resources import files

__all__ = ["FORMAT", "load", "load_or_block", "loads"]

FORMAT: Final = 1
"""The version of the format, which `mat:` names in a file. The policy's own version is a digest of the file by default."""
_T = TypeVar("_T")


# -- the vocabulary ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rate:
    __pydantic_config__ = STRICT
    most: int
    window_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Capability:
    __pydantic_config__ = STRICT
    tool: str
    parameters: dict[str, Fits] = field(default_factory=dict)
    rates: tuple[_Rate, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Match:
    """Which actions a rule is about: all conditions that are given hold. Paths read arguments, or `state.` the projection."""

    __pydantic_config__ = STRICT
    id: str = ""
    tools: Names = ()
    agents: Names = ()
    roles: Names = ()
    kinds: tuple[ActionKind, ...] = ("tool_call",)
    effect: Effect | None = None
    impact: Impact | None = None
    where: dict[str, Fits] = field(default_factory=dict)
    unless: dict[str, Fits] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block(_Match):
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _NeedsApproval(_Match):
    what: str = ""
    by: str = ""
    own: bool = False
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _ToApproval(_Match):
    what: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Strip:
    __pydantic_config__ = STRICT
    parameters: Names
    tools: Names = ()
    matching: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Redact:
    __pydantic_config__ = STRICT
    data: Names = ()
    tools: Names = ()
    parameters: Names = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clamp:
    __pydantic_config__ = STRICT
    parameter: str
    least: int | float | None = None
    most: int | float | None = None
    tools: Names = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replace:
    __pydantic_config__ = STRICT
    parameter: str
    value: Scalar
    tools: Names = ()
    unless: Fits | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeepOnly:
    __pydantic_config__ = STRICT
    parameter: str
    allowed: Fits
    tools: Names = ()
    least: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _DropRecipients:
    __pydantic_config__ = STRICT
    allowed: Fits
    parameters: Names = ("to", "cc", "bcc", "recipients")
    tools: Names = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sandbox:
    __pydantic_config__ = STRICT
    agents: Names
    replies: dict[str, Any] = field(default_factory=dict)
    otherwise: Otherwise = "dry_run"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Route:
    __pydantic_config__ = STRICT
    by: str
    on: Reach = "high"


@dataclass(frozen=True, slots=True, kw_only=True)
class _StandIns:
    __pydantic_config__ = STRICT
    replies: dict[str, Any] = field(default_factory=dict)
    otherwise: Otherwise = "dry_run"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    __pydantic_config__ = STRICT
    below: float | str
    keep: tuple[str | _Capability, ...] | None = None
    verify: str = ""
    on: Reach = "write"
    high_impact: Stricter = ""
    rules: tuple[dict[str, Any], ...] = ()
    sandbox: _StandIns | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trust:
    __pydantic_config__ = STRICT
    prior: float | str = "0.7"
    half_life: int = 50
    clock: Literal["steps", "ms"] = "steps"
    start: dict[str, float | str] = field(default_factory=dict)
    weights: dict[str, float | str] = field(default_factory=dict)
    levels: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variant:
    __pydantic_config__ = STRICT
    shield: bool = True
    capabilities: bool = False
    routing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Top:
    """The top of a file. What stands below is read piece by piece, so that one mistake does not hide another."""

    __pydantic_config__ = STRICT
    mat: Literal[1] = 1
    name: str = ""
    version: str = ""
    default: Literal["allow", "deny", ""] = ""
    approver: str = ""
    timeout_ms: int | None = None
    approve_within_ms: int | None = None
    use: str = FULL.name
    capabilities: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    granters: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    rules: tuple[dict[str, Any], ...] = ()
    routing: tuple[dict[str, Any], ...] = ()
    trust: dict[str, Any] | None = None
    contracts: dict[str, dict[str, Any]] = field(default_factory=dict)
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)


# -- reading ----------------------------------------------------------------------------------------------------------


def load(path: str | Path, *, approvers: Mapping[str, Approver] | None = None) -> Policy:
    """The policy of a .yaml, .yml or .json file. SpecError lists every problem; `approvers` gives those that it names."""
    path = Path(path)
    return loads(text_of(path, "policy"), json=path.suffix == ".json", approvers=approvers, where=str(path))


def loads(text: str, *, json: bool = False, approvers: Mapping[str, Approver] | None = None, where: str = "policy") -> Policy:
    """The policy that a text holds: YAML, or JSON."""
    data, lines = data_of(text, json=json, kind="policy", where=where)
    reader = Reader(lines, where, inside=_INSIDE)
    made = _Sections(reader, approvers or {}).policy(data)
    if reader.problems or made is None:
        raise reader.error("policy", why="a policy means what it says, or nothing", fix="see docs/governance.md")
    return made


def load_or_block(path: str | Path, *, approvers: Mapping[str, Approver] | None = None) -> Policy:
    """The same for a file that is read while a system runs: one that cannot be read blocks every action, and says why."""
    try:
        return load(path, approvers=approvers)
    except MatError as error:
        reason = f"the policy {Path(path).name} cannot be used, so nothing is allowed: {error.what}"

    def policy_file(record: Record) -> Decision:
        return Block(reason)

    return Policy(rules=(policy_file,), use="shield", name=Path(path).name.replace(" ", "_").replace(",", "_"))


class _Sections:
    """Builds a policy from data; what is wrong with it is noted by the reader."""

    def __init__(self, reader: Reader, approvers: Mapping[str, Approver]) -> None:
        self._reader, self._approvers = reader, approvers

    def policy(self, data: object) -> Policy | None:
        if not isinstance(data, dict):
            self._reader.problem((), f"it holds {kind_of(data)}, not sections")
            return None
        top = self._reader.read(_Top, data, ())
        if top is None:  # the sections that are well-formed are read all the same, for what else is wrong
            sane = sound(_Top, data)
            top = _Top(**sane)
        capabilities = self._sets(top.capabilities, "capabilities")
        granters = self._sets(top.granters, "granters")
        rules = self._rules(top.rules, ("rules",))
        routing = self._rules(top.routing, ("routing",))
        trust = None if top.trust is None else self._trust(top.trust)
        declared = []
        for name, parts in top.variants.items():
            read = self._reader.read(_Variant, parts, ("variants", name))
            if read is not None:
                declared.append(Variant(name=name, shield=read.shield, capabilities=read.capabilities, routing=read.routing))
        approver = self._approver(top.approver, ("approver",)) if top.approver else None
        contracts = files.section(self._reader, top.contracts, ("contracts",))
        given = (top.capabilities, top.rules, top.routing, top.contracts, top.trust is not None, top.default == "deny")
        if not any(given):
            self._reader.problem(
                (), "it governs nothing: give capabilities, rules, routing, contracts or trust, or default: deny"
            )
        made = self._reader.tried(
            (),
            lambda: Policy(
                rules=rules, approver=approver, capabilities=capabilities, granters=granters, trust=trust, routing=routing,
                contracts=contracts, default=top.default, timeout_ms=top.timeout_ms,
                approve_within_ms=top.approve_within_ms, name=top.name, version=top.version or digest(data)[:16],
                declared=tuple(declared), use=top.use,
            ),
        )  # fmt: skip
        return None if self._reader.problems else made

    def _approver(self, name: str, at: Where) -> Approver | None:
        return self._reader.named(name, self._approvers, what="approver", argument="approvers", at=at)

    def _sets(self, declared: Mapping[str, Sequence[Any]], section: str) -> dict[str, list[str | Capability]]:
        found: dict[str, list[str | Capability]] = {}
        for agent, items in declared.items():
            made = [self._capability(item, (section, agent, place)) for place, item in enumerate(items)]
            found[agent] = [item for item in made if item is not None]
        self._reader.tried((section,), lambda: capability_sets(found))
        return found

    def _capability(self, item: object, at: Where) -> Capability | None:
        if isinstance(item, str):
            return self._reader.tried(at, lambda: capability(item))
        read = self._reader.read(_Capability, item, at)
        if read is None:
            return None
        allowed = {name: self._reader.allowed(fits, (*at, "parameters", name)) for name, fits in read.parameters.items()}
        rates = [
            self._reader.tried((*at, "rates", place), lambda each=each: rate(each.most, each.window_ms))  # type: ignore[misc]
            for place, each in enumerate(read.rates)
        ]
        if None in rates or any(value is None for value in allowed.values()):
            return None
        return self._reader.tried(at, lambda: capability(read.tool, *rates, **allowed))  # type: ignore[arg-type]

    def _rules(self, items: Sequence[Mapping[str, Any]], at: Where) -> tuple[Rule, ...]:
        made = [self._rule(item, (*at, place)) for place, item in enumerate(items)]
        return tuple(rule for rule in made if rule is not None)

    def _rule(self, item: Mapping[str, Any], at: Where) -> Rule | None:
        """One rule: a mapping from its kind to what it says."""
        if len(item) != 1:
            self._reader.problem(at, f"a rule has one key, its kind; this has {', '.join(map(str, item)) or 'none'}")
            return None
        ((kind, data),) = item.items()
        known = _RULES.get(kind)
        if known is None:
            self._reader.problem(
                at, f"no rule is called {kind!r}{did_you_mean(str(kind), _RULES)}; there are {', '.join(_RULES)}"
            )
            return None
        at = (*at, kind)
        read = self._reader.read(known, data, at)
        if read is None:
            return None
        before = len(self._reader.problems)
        made = self._reader.tried(at, lambda: self._made(kind, read, at))
        return made if len(self._reader.problems) == before else None

    def _made(self, kind: str, read: Any, at: Where) -> Rule | None:
        """The rule of a kind, from what the file says of it."""
        if isinstance(read, _Match):
            return self._matched(kind, read, at)
        match kind:
            case "strip":
                short_expression(read.matching)
                return rewrites.strip(read.parameters, tools=read.tools, matching=read.matching)
            case "redact":
                options = {"tools": read.tools, "parameters": read.parameters}
                return rewrites.redact(read.data, **options) if read.data else rewrites.redact(**options)
            case "clamp":
                return rewrites.clamp(read.parameter, read.least, read.most, tools=read.tools)
            case "replace":
                unless = None if read.unless is None else self._reader.allowed(read.unless, (*at, "unless"))
                return rewrites.replaced(read.parameter, read.value, tools=read.tools, unless=unless)
            case "keep_only":
                allowed = self._reader.allowed(read.allowed, (*at, "allowed"))
                return (
                    None if allowed is None else rewrites.keep_only(read.parameter, allowed, tools=read.tools, least=read.least)
                )
            case "drop_recipients":
                allowed = self._reader.allowed(read.allowed, (*at, "allowed"))
                return None if allowed is None else rewrites.drop_recipients(read.parameters, allowed=allowed, tools=read.tools)
            case "sandbox":
                return sandbox(read.agents, read.replies, otherwise=read.otherwise)
        assert kind == "route", kind
        verify = self._approver(read.by, (*at, "by"))
        return None if verify is None else route(verify, on=read.on, verifier=read.by)

    def _matched(self, kind: str, read: _Match, at: Where) -> Rule | None:
        """A rule that decides one thing on the actions it matches."""
        where = {path: self._reader.allowed(fits, (*at, "where", path)) for path, fits in read.where.items()}
        unless = {path: self._reader.allowed(fits, (*at, "unless", path)) for path, fits in read.unless.items()}
        decision: Decision
        if isinstance(read, _Block):
            decision = Block(read.reason)
        elif isinstance(read, _NeedsApproval):
            approver = self._approver(read.by, (*at, "by")) if read.by else None
            decision = NeedsApproval(read.what, own=read.own, approver=approver, timeout_ms=read.timeout_ms)
        elif isinstance(read, _ToApproval):
            decision = ConvertToApproval(read.what)
        else:
            decision = Allow()
        if any(value is None for value in (*where.values(), *unless.values())):
            return None
        matches = _matcher(read, where, unless, widens=kind == "allow")  # type: ignore[arg-type]

        def rule(record: Record) -> Decision | None:
            return decision if matches(record) else None

        rule.__name__ = read.id or kind
        return rule

    def _trust(self, data: Mapping[str, Any]) -> Trust | None:
        read = self._reader.read(_Trust, data, ("trust",)) or _Trust(**sound(_Trust, data))
        levels = [self._level(level, ("trust", "levels", place)) for place, level in enumerate(read.levels)]
        return self._reader.tried(
            ("trust",),
            lambda: Trust(
                prior=read.prior, half_life=read.half_life, clock=read.clock, start=read.start, weights=read.weights,
                levels=tuple(level for level in levels if level is not None),
            ),
        )  # fmt: skip

    def _level(self, data: Mapping[str, Any], at: Where) -> Level | None:
        read = self._reader.read(_Level, data, at)
        if read is None:
            return None
        rules = self._rules(read.rules, (*at, "rules"))
        keep = None
        if read.keep is not None:
            raw = [item if isinstance(item, str) else data["keep"][place] for place, item in enumerate(read.keep)]
            kept = [self._capability(item, (*at, "keep", place)) for place, item in enumerate(raw)]
            keep = [item for item in kept if item is not None]
        verify = self._approver(read.verify, (*at, "verify")) if read.verify else None
        if read.verify and verify is None:
            return None
        stand_ins = read.sandbox
        return self._reader.tried(
            at,
            lambda: Level(
                below=read.below, keep=keep, verify=verify, verifier=read.verify or "verifier", on=read.on,
                high_impact=read.high_impact, rules=rules,
                sandbox=None if stand_ins is None else StandIns(replies=stand_ins.replies, otherwise=stand_ins.otherwise),
            ),
        )  # fmt: skip


_RULES: Final[dict[str, type[Any]]] = {
    "allow": _Match, "block": _Block, "needs_approval": _NeedsApproval, "to_approval": _ToApproval, "strip": _Strip,
    "redact": _Redact, "clamp": _Clamp, "replace": _Replace, "keep_only": _KeepOnly, "drop_recipients": _DropRecipients,
    "sandbox": _Sandbox, "route": _Route,
}  # fmt: skip
"""All rules that a file can name, with what each takes."""


def _matcher(
    read: _Match, where: Mapping[str, Allowed], unless: Mapping[str, Allowed], *, widens: bool
) -> Callable[[Record], bool]:
    """Whether a rule is about an action. In doubt a rule that restricts applies, and one that allows does not.

    Where a path names several values, a restriction's `where` is met by any of them and its `unless` by all of them, and what
    is missing meets neither; for a rule that allows it is the other way round.
    """
    tools, agents, roles = (_names(given) for given in (read.tools, read.agents, read.roles))
    kinds = frozenset(read.kinds)

    def matches(record: Record) -> bool:
        action = record.action
        if action.kind not in kinds or not action.boundary:
            return False
        named = ((tools, action.name), (agents, record.agent), (roles, record.role))
        if any(given and name not in given for given, name in named):
            return False
        if read.effect not in (None, action.effect) or read.impact not in (None, action.impact):
            return False
        if not all(_met(record, path, allowed, all_of=widens) for path, allowed in where.items()):
            return False
        return not unless or not all(_met(record, path, allowed, all_of=not widens) for path, allowed in unless.items())

    return matches


def _met(record: Record, path: str, allowed: Allowed, *, all_of: bool) -> bool:
    source, inner = (record.state, path[6:]) if path.startswith("state.") else (record.action.arguments, path)
    met = [value is not MISSING and within(allowed, value) for value in values_at(source, inner)]
    return bool(met) and (all(met) if all_of else any(met))


def _names(given: Names) -> frozenset[str]:
    return frozenset((given,) if isinstance(given, str) else given)


_INSIDE: Final[dict[str, type[Any]]] = {
    "parameters": Values, "where": Values, "unless": Values, "allowed": Values, "rates": _Rate, "keep": _Capability,
    "sandbox": _StandIns,
}  # fmt: skip
