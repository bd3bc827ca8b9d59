"""Policies from files: YAML or JSON, as untrusted input (DESIGN decision 20).

A file says what from a closed vocabulary; nothing in it is imported, evaluated or called. Approvers are named, and given by
whoever loads the file. `load` says everything that is wrong in one SpecError, with lines where the format has them;
`load_or_block` gives a policy that blocks every action instead, with the reason in the trace.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

from mat.core import limits
from mat.core.allowed import Allowed, within
from mat.core.codec import load_json
from mat.core.digest import digest
from mat.core.endpoint import MISSING, endpoint, folder, length, pattern, values_at
from mat.core.errors import MatError, SpecError
from mat.core.record import ActionKind, Effect, Impact, Record
from mat.govern import rewrites
from mat.govern.capability import Capability, capability, capability_sets, rate
from mat.govern.mediator import Allow, Approver, Block, ConvertToApproval, Decision, NeedsApproval, Rule
from mat.govern.sandbox import Otherwise, StandIns, sandbox
from mat.govern.trust import Level, Reach, Stricter, Trust, route
from mat.govern.variant import FULL, Policy, Variant
from mat.monitor.contract import did_you_mean

__all__ = ["FORMAT", "load", "load_or_block", "loads"]

FORMAT: Final = 1
"""The version of the format, which `mat:` names in a file. The policy's own version is a digest of the file by default."""
Where: TypeAlias = tuple[str | int, ...]
"""Where something stands in a file: keys, and places in lists."""
Scalar: TypeAlias = str | int | float | bool | None
Names: TypeAlias = str | tuple[str, ...]
_STRICT: Final = {"extra": "forbid", "strict": True}
_T = TypeVar("_T")


# -- the vocabulary ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    __pydantic_config__ = _STRICT
    least: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Endpoint:
    __pydantic_config__ = _STRICT
    hosts: Names
    schemes: Names = ("https",)
    paths: Names = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Values:
    """What a value may be; exactly one of these, `least` and `most` being one."""

    __pydantic_config__ = _STRICT
    values: tuple[Scalar, ...] | None = None
    least: int | float | None = None
    most: int | float | None = None
    pattern: str | None = None
    length: _Range | None = None
    endpoint: _Endpoint | None = None
    folder: Names | None = None


Fits: TypeAlias = tuple[Scalar, ...] | _Values


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rate:
    __pydantic_config__ = _STRICT
    most: int
    window_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Capability:
    __pydantic_config__ = _STRICT
    tool: str
    parameters: dict[str, Fits] = field(default_factory=dict)
    rates: tuple[_Rate, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Match:
    """Which actions a rule is about: all conditions that are given hold. Paths read arguments, or `state.` the projection."""

    __pydantic_config__ = _STRICT
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
    __pydantic_config__ = _STRICT
    parameters: Names
    tools: Names = ()
    matching: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Redact:
    __pydantic_config__ = _STRICT
    data: Names = ()
    tools: Names = ()
    parameters: Names = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clamp:
    __pydantic_config__ = _STRICT
    parameter: str
    least: int | float | None = None
    most: int | float | None = None
    tools: Names = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replace:
    __pydantic_config__ = _STRICT
    parameter: str
    value: Scalar
    tools: Names = ()
    unless: Fits | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeepOnly:
    __pydantic_config__ = _STRICT
    parameter: str
    allowed: Fits
    tools: Names = ()
    least: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _DropRecipients:
    __pydantic_config__ = _STRICT
    allowed: Fits
    parameters: Names = ("to", "cc", "bcc", "recipients")
    tools: Names = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sandbox:
    __pydantic_config__ = _STRICT
    agents: Names
    replies: dict[str, Any] = field(default_factory=dict)
    otherwise: Otherwise = "dry_run"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Route:
    __pydantic_config__ = _STRICT
    by: str
    on: Reach = "high"


@dataclass(frozen=True, slots=True, kw_only=True)
class _StandIns:
    __pydantic_config__ = _STRICT
    replies: dict[str, Any] = field(default_factory=dict)
    otherwise: Otherwise = "dry_run"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    __pydantic_config__ = _STRICT
    below: float | str
    keep: tuple[str | _Capability, ...] | None = None
    verify: str = ""
    on: Reach = "write"
    high_impact: Stricter = ""
    rules: tuple[dict[str, Any], ...] = ()
    sandbox: _StandIns | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trust:
    __pydantic_config__ = _STRICT
    prior: float | str = "0.7"
    half_life: int = 50
    clock: Literal["steps", "ms"] = "steps"
    start: dict[str, float | str] = field(default_factory=dict)
    weights: dict[str, float | str] = field(default_factory=dict)
    levels: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variant:
    __pydantic_config__ = _STRICT
    shield: bool = True
    capabilities: bool = False
    routing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sections:
    """The top of a file. What stands below is read piece by piece, so that one mistake does not hide another."""

    __pydantic_config__ = _STRICT
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
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)


# -- reading ----------------------------------------------------------------------------------------------------------


def load(path: str | Path, *, approvers: Mapping[str, Approver] | None = None) -> Policy:
    """The policy of a .yaml, .yml or .json file. SpecError lists every problem; `approvers` gives those that it names."""
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > limits.FILE_BYTES:
            raise SpecError(f"{path.name} has {size} bytes, the limit is {limits.FILE_BYTES}", fix="split it", where=str(path))
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"cannot read the policy {path.name}: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise SpecError(f"the policy {path.name} is not UTF-8: {error.reason}", where=str(path)) from error
    if path.suffix not in (".yaml", ".yml", ".json"):
        raise SpecError(f"{path.name} is no policy file", fix="name it .yaml, .yml or .json", where=str(path))
    return loads(text, json=path.suffix == ".json", approvers=approvers, where=str(path))


def loads(text: str, *, json: bool = False, approvers: Mapping[str, Approver] | None = None, where: str = "policy") -> Policy:
    """The policy that a text holds: YAML, or JSON."""
    data, lines = _read_json(text, where) if json else _read_yaml(text, where)
    reader = _Reader(lines, approvers or {}, where)
    made = reader.policy(data)
    if reader.problems or made is None:
        raise reader.error()
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


class _Reader:
    """Builds a policy from data and keeps what is wrong with it."""

    def __init__(self, lines: Mapping[Where, int], approvers: Mapping[str, Approver], where: str) -> None:
        self._lines, self._approvers, self._where = lines, approvers, where
        self.problems: list[str] = []

    def error(self) -> SpecError:
        return SpecError(
            what=f"the policy has {len(self.problems)} problem{'s' * (len(self.problems) > 1)}: {'; '.join(self.problems)}",
            why="a policy means what it says, or nothing", fix="see docs/governance.md", where=self._where,
        )  # fmt: skip

    def _problem(self, at: Where, said: str) -> None:
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in at).lstrip(".") or "the file"
        line = next((self._lines[at[:size]] for size in range(len(at), -1, -1) if at[:size] in self._lines), None)
        self.problems.append(f"{place}{'' if line is None else f' (line {line})'}: {said}")

    def _as(self, kind: type[_T], data: object, at: Where) -> _T | None:
        """Data as one of the classes above, or None with its problems noted."""
        from pydantic import ValidationError

        try:
            return cast(_T, _adapter(cast(Hashable, kind)).validate_json(json.dumps(data)))
        except ValidationError as error:
            for place, said in _explained(kind, error, at):
                self._problem(place, said)
        return None

    def _tried(self, at: Where, make: Callable[[], _T]) -> _T | None:
        """What a builder makes, or None with what it refused noted."""
        try:
            return make()
        except MatError as error:
            self._problem(at, error.what)
        return None

    def policy(self, data: object) -> Policy | None:
        if not isinstance(data, dict):
            self._problem((), f"it holds {_kind_of(data)}, not sections")
            return None
        top = self._as(_Sections, data, ())
        if top is None:  # the sections that are well-formed are read all the same, for what else is wrong
            sound = _sound(_Sections, data)
            top = _Sections(**sound)
        capabilities = self._sets(top.capabilities, "capabilities")
        granters = self._sets(top.granters, "granters")
        rules = self._rules(top.rules, ("rules",))
        routing = self._rules(top.routing, ("routing",))
        trust = None if top.trust is None else self._trust(top.trust)
        declared = []
        for name, parts in top.variants.items():
            read = self._as(_Variant, parts, ("variants", name))
            if read is not None:
                declared.append(Variant(name=name, shield=read.shield, capabilities=read.capabilities, routing=read.routing))
        approver = self._approver(top.approver, ("approver",)) if top.approver else None
        if not (top.capabilities or top.rules or top.routing or top.trust is not None or top.default == "deny"):
            self._problem((), "it governs nothing: give capabilities, rules, routing or trust, or default: deny")
        made = self._tried(
            (),
            lambda: Policy(
                rules=rules, approver=approver, capabilities=capabilities, granters=granters, trust=trust, routing=routing,
                default=top.default, timeout_ms=top.timeout_ms, approve_within_ms=top.approve_within_ms, name=top.name,
                version=top.version or digest(data)[:16], declared=tuple(declared), use=top.use,
            ),
        )  # fmt: skip
        return None if self.problems else made

    def _approver(self, name: str, at: Where) -> Approver | None:
        if name not in self._approvers:
            given = f"given were {', '.join(sorted(self._approvers))}" if self._approvers else "none were given"
            said = f"no approver is called {name!r}{did_you_mean(name, self._approvers)}; {given} to load(approvers=)"
            self._problem(at, said)
            return None
        return self._approvers[name]

    def _sets(self, declared: Mapping[str, Sequence[Any]], section: str) -> dict[str, list[str | Capability]]:
        found: dict[str, list[str | Capability]] = {}
        for agent, items in declared.items():
            made = [self._capability(item, (section, agent, place)) for place, item in enumerate(items)]
            found[agent] = [item for item in made if item is not None]
        self._tried((section,), lambda: capability_sets(found))
        return found

    def _capability(self, item: object, at: Where) -> Capability | None:
        if isinstance(item, str):
            return self._tried(at, lambda: capability(item))
        read = self._as(_Capability, item, at)
        if read is None:
            return None
        allowed = {name: self._allowed(fits, (*at, "parameters", name)) for name, fits in read.parameters.items()}
        rates = [
            self._tried((*at, "rates", place), lambda each=each: rate(each.most, each.window_ms))  # type: ignore[misc]
            for place, each in enumerate(read.rates)
        ]
        if None in rates or any(value is None for value in allowed.values()):
            return None
        return self._tried(at, lambda: capability(read.tool, *rates, **allowed))  # type: ignore[arg-type]

    def _allowed(self, fits: Fits, at: Where) -> Allowed | None:
        """An allow-list from its data."""
        if not isinstance(fits, _Values):
            return list(fits)
        said = [name for name in ("values", "pattern", "length", "endpoint", "folder") if getattr(fits, name) is not None]
        if fits.least is not None or fits.most is not None:
            said.append("least and most")
        if len(said) != 1:
            self._problem(at, f"it says {' and '.join(said) if said else 'nothing'}; one of values, least and most, pattern, "
                              "length, endpoint, folder says what is allowed")  # fmt: skip
            return None
        if fits.values is not None:
            return list(fits.values)
        if said == ["least and most"]:
            least = float("-inf") if fits.least is None else fits.least
            most = float("inf") if fits.most is None else fits.most
            if least > most:
                self._problem(at, f"least {least} is more than most {most}")
                return None
            return (least, most)
        return self._tried(at, lambda: _predicate(fits))

    def _rules(self, items: Sequence[Mapping[str, Any]], at: Where) -> tuple[Rule, ...]:
        made = [self._rule(item, (*at, place)) for place, item in enumerate(items)]
        return tuple(rule for rule in made if rule is not None)

    def _rule(self, item: Mapping[str, Any], at: Where) -> Rule | None:
        """One rule: a mapping from its kind to what it says."""
        if len(item) != 1:
            self._problem(at, f"a rule has one key, its kind; this has {', '.join(map(str, item)) or 'none'}")
            return None
        ((kind, data),) = item.items()
        known = _RULES.get(kind)
        if known is None:
            self._problem(at, f"no rule is called {kind!r}{did_you_mean(str(kind), _RULES)}; there are {', '.join(_RULES)}")
            return None
        at = (*at, kind)
        read = self._as(known, data, at)
        if read is None:
            return None
        before = len(self.problems)
        made = self._tried(at, lambda: self._made(kind, read, at))
        return made if len(self.problems) == before else None

    def _made(self, kind: str, read: Any, at: Where) -> Rule | None:
        """The rule of a kind, from what the file says of it."""
        if isinstance(read, _Match):
            return self._matched(kind, read, at)
        match kind:
            case "strip":
                _short(read.matching)
                return rewrites.strip(read.parameters, tools=read.tools, matching=read.matching)
            case "redact":
                options = {"tools": read.tools, "parameters": read.parameters}
                return rewrites.redact(read.data, **options) if read.data else rewrites.redact(**options)
            case "clamp":
                return rewrites.clamp(read.parameter, read.least, read.most, tools=read.tools)
            case "replace":
                unless = None if read.unless is None else self._allowed(read.unless, (*at, "unless"))
                return rewrites.replaced(read.parameter, read.value, tools=read.tools, unless=unless)
            case "keep_only":
                allowed = self._allowed(read.allowed, (*at, "allowed"))
                return (
                    None if allowed is None else rewrites.keep_only(read.parameter, allowed, tools=read.tools, least=read.least)
                )
            case "drop_recipients":
                allowed = self._allowed(read.allowed, (*at, "allowed"))
                return None if allowed is None else rewrites.drop_recipients(read.parameters, allowed=allowed, tools=read.tools)
            case "sandbox":
                return sandbox(read.agents, read.replies, otherwise=read.otherwise)
        assert kind == "route", kind
        verify = self._approver(read.by, (*at, "by"))
        return None if verify is None else route(verify, on=read.on, verifier=read.by)

    def _matched(self, kind: str, read: _Match, at: Where) -> Rule | None:
        """A rule that decides one thing on the actions it matches."""
        where = {path: self._allowed(fits, (*at, "where", path)) for path, fits in read.where.items()}
        unless = {path: self._allowed(fits, (*at, "unless", path)) for path, fits in read.unless.items()}
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
        read = self._as(_Trust, data, ("trust",)) or _Trust(**_sound(_Trust, data))
        levels = [self._level(level, ("trust", "levels", place)) for place, level in enumerate(read.levels)]
        return self._tried(
            ("trust",),
            lambda: Trust(
                prior=read.prior, half_life=read.half_life, clock=read.clock, start=read.start, weights=read.weights,
                levels=tuple(level for level in levels if level is not None),
            ),
        )  # fmt: skip

    def _level(self, data: Mapping[str, Any], at: Where) -> Level | None:
        read = self._as(_Level, data, at)
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
        return self._tried(
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
_EXPRESSION_CHARS: Final = 1_000
"""Length of a regular expression that we agree to compile."""


def _short(expression: str | None) -> None:
    if expression is not None and len(expression) > _EXPRESSION_CHARS:
        raise SpecError(f"a regular expression of {len(expression)} characters", fix=f"use at most {_EXPRESSION_CHARS}")


def _predicate(fits: _Values) -> Allowed:
    """A predicate that is data."""
    if fits.pattern is not None:
        _short(fits.pattern)
        return pattern(fits.pattern)
    if fits.length is not None:
        return length(fits.length.least, fits.length.most)
    if fits.endpoint is not None:
        return endpoint(fits.endpoint.hosts, schemes=fits.endpoint.schemes, paths=fits.endpoint.paths)
    assert fits.folder is not None
    return folder(fits.folder)


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


# -- formats ----------------------------------------------------------------------------------------------------------


def _read_json(text: str, where: str) -> tuple[Any, dict[Where, int]]:
    try:
        load_json(text, where=where)
    except MatError as error:
        raise SpecError(error.what, why=error.why, fix=error.fix, where=where) from None
    doubles: list[str] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in found]
        doubles.extend(sorted({name for name in names if names.count(name) > 1}))
        return dict(found)

    def constant(name: str) -> Any:
        raise SpecError(f"{name} is no number of JSON", where=where)

    data = json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    if doubles:
        raise SpecError(f"the policy names {', '.join(map(repr, doubles))} twice", why="one would hide the other", where=where)
    return data, {}


_PLAIN: Final = (
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("tag:yaml.org,2002:int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("tag:yaml.org,2002:float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+0123456789.")),
)
"""Plain scalars as YAML 1.2 reads them, so that `on` and `no` are words; no dates, no base 60."""


def _read_yaml(text: str, where: str) -> tuple[Any, dict[Where, int]]:
    """Data and the line of everything in it. One document, without anchors, aliases and tags, and within limits."""
    try:
        yaml: Any = import_module("yaml")
    except ImportError:
        raise MatError(
            "YAML policies need PyYAML", why="it is not installed; JSON policies need nothing",
            fix="pip install 'pytest-mat[yaml]'", where=where,
        ) from None  # fmt: skip
    if len(text) > limits.FILE_BYTES:
        raise SpecError(f"the policy has {len(text)} characters, the limit is {limits.FILE_BYTES}", where=where)

    loader: Any = type("Loader", (yaml.SafeLoader,), {"yaml_implicit_resolvers": {}})
    for tag, expression, first in _PLAIN:
        loader.add_implicit_resolver(tag, re.compile(rf"^(?:{expression})$"), first)
    try:
        _check_events(yaml, yaml.parse(text, Loader=loader), where)
        node = yaml.compose(text, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        said = getattr(error, "problem", None) or str(error)
        line = "" if mark is None else f" in line {mark.line + 1}"
        raise SpecError(f"the policy is not YAML{line}: {said}", fix="mend the line", where=where) from None
    lines: dict[Where, int] = {}
    doubles: list[str] = []
    data = None if node is None else _from_node(yaml, node, (), lines, doubles)
    if doubles:
        raise SpecError(f"the policy says {'; '.join(doubles)}", why="one would hide the other", where=where)
    return data, lines


def _check_events(yaml: Any, events: Iterator[Any], where: str) -> None:
    """Refuse what grows, refers or constructs, before anything is built of it."""
    depth = documents = 0
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise SpecError(
                f"the policy has an anchor or alias in line {line}", why="policies are read as they stand", where=where
            )
        if isinstance(event, yaml.NodeEvent) and getattr(event, "tag", None):
            raise SpecError(f"the policy has a tag in line {line}", why="nothing is constructed from a policy", where=where)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > limits.FILE_DEPTH:
                raise SpecError(f"the policy is nested more than {limits.FILE_DEPTH} deep in line {line}", where=where)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    if documents > 1:
        raise SpecError(f"the file holds {documents} documents", fix="one policy a file", where=where)


def _from_node(yaml: Any, node: Any, at: Where, lines: dict[Where, int], doubles: list[str]) -> Any:
    lines.setdefault(at, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        return [_from_node(yaml, item, (*at, place), lines, doubles) for place, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Any] = {}
        for key_node, item in node.value:
            key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "?"
            line = key_node.start_mark.line + 1
            if key in found:
                doubles.append(f"{key!r} twice, again in line {line}")
            lines[(*at, key)] = line
            found[key] = _from_node(yaml, item, (*at, key), lines, doubles)
        return found
    kind, text = node.tag.rpartition(":")[2], node.value
    match kind:
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return _integer(text, node.start_mark.line + 1)
        case "float":
            return float(text)
    return text


def _integer(text: str, line: int) -> int:
    try:
        return int(text)
    except ValueError:  # more digits than Python reads
        raise SpecError(f"the number in line {line} has {len(text)} digits", fix="write a smaller one") from None


# -- problems in words ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _explained(kind: type[Any], error: Any, at: Where) -> Iterator[tuple[Where, str]]:
    """pydantic's problems: where each stands, and what is wrong. Of a union's branches, the one that got furthest counts."""
    seen: dict[Where, list[str]] = {}
    for item in error.errors():
        loc = tuple(part for part in item["loc"] if not _is_branch(part))
        if item["type"] == "unexpected_keyword_argument" or item["type"] == "extra_forbidden":
            name = str(item["loc"][-1])
            inside = tuple(part for part in item["loc"][:-1] if not _is_branch(part))
            loc, said = (*inside, name), f"no key is called {name!r}{did_you_mean(name, _keys_of(kind, inside))}"
        elif item["type"] in ("missing", "missing_keyword_only_argument"):
            said = "it is missing"
        elif item["type"] == "literal_error":
            expected = str(item.get("ctx", {}).get("expected", "")).replace(" or ", ", ").replace("'", "")
            choices = [choice.strip() for choice in expected.split(",")]
            said = (
                f"{item['input']!r} is not one of {', '.join(filter(None, choices))}{did_you_mean(str(item['input']), choices)}"
            )
        else:
            said = f"{item['msg'][0].lower()}{item['msg'][1:]}, not {_kind_of(item['input'])}"
        seen.setdefault((*at, *loc), []).append(said)
    for place, found in seen.items():
        if any(len(other) > len(place) and other[: len(place)] == place for other in seen):
            continue
        unique = list(dict.fromkeys(found))
        keyed = [said for said in unique if said.startswith("no key")]
        yield place, keyed[0] if keyed else " or ".join(unique)


def _is_branch(part: object) -> bool:
    """Whether a part of pydantic's path names a branch of a union, and nothing in the file."""
    return isinstance(part, str) and (part in _BRANCHES or "[" in part or part.startswith("_"))


_BRANCHES: Final = ("str", "int", "float", "bool", "none")


def _keys_of(kind: Any, loc: Where) -> list[str]:
    """The keys that a class above, or one inside it, takes."""
    found = [item.name for item in fields(kind)]
    for part in loc:
        inside = _INSIDE.get(str(part))
        if inside is not None:
            found = [item.name for item in fields(inside)]
    return found


_INSIDE: Final[dict[str, type[Any]]] = {
    "parameters": _Values, "where": _Values, "unless": _Values, "allowed": _Values, "length": _Range, "endpoint": _Endpoint,
    "rates": _Rate, "keep": _Capability, "sandbox": _StandIns,
}  # fmt: skip


def _kind_of(data: object) -> str:
    names = {dict: "a mapping", list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(data), "nothing" if data is None else type(data).__name__)


def _sound(kind: type[Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Those keys of some data that the class accepts on their own, in its types."""
    from pydantic import ValidationError

    found: dict[str, Any] = {}
    for item in fields(kind):
        if item.name in data:
            try:
                read = _adapter(cast(Hashable, kind)).validate_json(json.dumps({item.name: data[item.name]}))
            except ValidationError:
                continue
            found[item.name] = getattr(read, item.name)
    return found
