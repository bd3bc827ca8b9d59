"""Load policies from YAML or JSON files, which are untrusted input.

A file uses a closed vocabulary; nothing in it is imported, evaluated or called. It names approvers, which the
caller of `load` passes in. `load` reports all problems in one SpecError, with line numbers if the format has them;
`load_or_block` instead returns a policy that blocks every action, with the reason in the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, TypeAdapter

from mat.boundary.emit import around
from mat.core.allowed import Allowed, may_be_within, within
from mat.core.digest import digest
from mat.core.endpoint import MISSING, may_be_at, values_at
from mat.core.errors import MatError
from mat.core.record import DeclaredEffect, Impact, Record
from mat.govern import rewrites
from mat.govern.capability import Capability, capability, rate
from mat.govern.mediator import Allow, Approver, Block, ConvertToApproval, Decision, NeedsApproval, Rule
from mat.govern.sandbox import Otherwise, StandIns, sandbox
from mat.govern.trust import Level, Reach, Stricter, Trust, route
from mat.govern.variant import Policy, Variant
from mat.resources import files
from mat.resources.reading import (
    Amount,
    FileReader,
    Fits,
    From,
    NameList,
    NumberField,
    OneName,
    OneOf,
    ScalarField,
    Text,
    all_wrong,
    as_mapping,
    data_of,
    given,
    kind_of,
    made,
    one_name,
    short_expression,
    text_of,
    wrong,
)

__all__ = ["FORMAT", "load", "load_or_block", "loads"]

FORMAT: Final = 1
"""The version of the format, which `mat:` names in a file. The policy's own version is a digest of the file by default."""


# -- makers of the parts of a policy ------------------------------------------------------------------------------------

MediatedKind: TypeAlias = Literal[
    "tool_call", "model_call", "retrieval", "memory_read", "memory_write", "message", "delegation", "grant"
]
"""The kinds of action on which a mediator decides. All others report what has already happened."""
NamedApprover: TypeAlias = tuple[str, Approver]
"""An approver with the name that it has in the file."""


def _capability(*, tool: str, parameters: Mapping[str, Allowed] = {}, rates: Sequence[Any] = ()) -> Capability:
    return capability(tool, *rates, **parameters)


def _strip(*, parameters: NameList, tools: NameList = (), matching: str | None = None) -> Rule:
    return rewrites.strip(parameters, tools=tools, matching=None if matching is None else short_expression(matching))


def _redact(*, data: NameList = (), tools: NameList = (), parameters: NameList = ()) -> Rule:
    kinds = (data,) if data else ()
    return rewrites.redact(*kinds, tools=tools, parameters=parameters)


def _route(*, by: NamedApprover, on: Reach = "high") -> Rule:
    return route(by[1], on=on, verifier=by[0])


def _level(*, below: Any, verify: NamedApprover | None = None, **parts: Any) -> Level:
    if verify is None:
        return Level(below=below, **parts)
    return Level(below=below, verify=verify[1], verifier=verify[0], **parts)


def _policy(*, approver: NamedApprover | None = None, variants: Mapping[str, Mapping[str, bool]] = {}, **parts: Any) -> Policy:
    """Make the policy, except for the version and the contracts, which are made from the raw data."""
    declared = tuple(Variant(name=name, **switches) for name, switches in variants.items())
    for name in ("mat", "version", "contracts"):
        parts.pop(name, None)
    for name in ("rules", "routing"):
        parts[name] = tuple(parts.get(name, ()))
    return Policy(approver=None if approver is None else approver[1], declared=declared, **parts)


def _decision(kind: str, **options: Any) -> Decision:
    match kind:
        case "block":
            return Block(**options)
        case "needs_approval":
            by = options.pop("by", None)
            return NeedsApproval(approver=None if by is None else by[1], **options)
        case "to_approval":
            return ConvertToApproval(**options)
    return Allow()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Match:
    """Which actions a rule applies to: all given conditions hold. Paths read arguments, or with `state.` the projection.

    In doubt, a rule that restricts applies, and a rule that allows (`widens`) does not. If a path names several values, a
    restriction's `where` needs one of them that may fit (`may_be_within`) and its `unless` needs all of them to fit; for a rule
    that allows, `where` needs all to fit and `unless` needs one that may. A missing value fits neither.
    """

    tools: NameList = ()
    agents: NameList = ()
    roles: NameList = ()
    kinds: Sequence[MediatedKind] = ("tool_call",)
    effect: DeclaredEffect | None = None
    impact: Impact | None = None
    where: Mapping[str, Allowed] = field(default_factory=dict)
    unless: Mapping[str, Allowed] = field(default_factory=dict)


def _rule_maker(kind: str) -> Callable[..., Rule]:
    """A function that makes rules, each of which gives one decision on the actions that it matches."""

    def make(*, id: str = "", **options: Any) -> Rule:
        match = _Match(**{name: options.pop(name) for name in _MATCH if name in options})
        decision, matches = _decision(kind, **options), _matcher(match, widens=kind == "allow")

        def rule(record: Record) -> Decision | None:
            return decision if matches(record) else None

        rule.__name__ = id or kind
        return rule

    return make


def _matcher(read: _Match, *, widens: bool) -> Callable[[Record], bool]:
    tools, agents, roles = (_as_set(names) for names in (read.tools, read.agents, read.roles))
    kinds: frozenset[str] = frozenset(read.kinds)

    def matches(record: Record) -> bool:
        action = record.action
        if action.kind not in kinds or not (action.boundary or action.kind == "grant"):
            return False
        # whoever acts for an agent is held to what restricts the agent; to be allowed something, one must be it oneself
        acting = ((record.agent, record.role), *(() if widens else around()))
        conditions = ((tools, {action.name}), (agents, {name for name, _ in acting}), (roles, {role for _, role in acting}))
        if any(names and names.isdisjoint(found) for names, found in conditions):
            return False
        if not _has_effect(action.effect, read.effect, widens=widens) or read.impact not in (None, action.impact):
            return False
        if not all(_is_met(record, path, allowed, all_of=widens) for path, allowed in read.where.items()):
            return False
        unless = (_is_met(record, path, allowed, all_of=not widens) for path, allowed in read.unless.items())
        return not read.unless or not all(unless)

    return matches


def _has_effect(found: DeclaredEffect, wanted: DeclaredEffect | None, *, widens: bool) -> bool:
    """Whether a rule for some effect matches. A call of unknown effect matches what restricts, and no rule that allows."""
    return wanted is None or found == wanted or (found == "unknown" and not widens)


def _is_met(record: Record, path: str, allowed: Allowed, *, all_of: bool) -> bool:
    """Whether a condition holds: what widens must surely hold for all values at a path, what restricts may hold for any."""
    source, inner = (record.state, path[6:]) if path.startswith("state.") else (record.action.arguments, path)
    if not all_of:
        return any(may_be_within(allowed, value) for value in may_be_at(source, inner))
    met = [value is not MISSING and within(allowed, value) for value in values_at(source, inner)]
    return bool(met) and all(met)


def _as_set(names: NameList) -> frozenset[str]:
    return frozenset((names,) if isinstance(names, str) else names)


# -- the vocabulary -----------------------------------------------------------------------------------------------------


def _from_name(tool: str, context: object) -> Capability:
    return made(_capability, tool=one_name(tool))


def _not_empty(kinds: list[Any]) -> list[Any]:
    if not kinds:
        raise wrong("the list is empty; leave it out for tool calls")
    return kinds


def _conditions(given: dict[str, Allowed]) -> dict[str, Allowed]:
    """Refuse conditions that no action can meet, or that every action meets."""
    if not given:
        raise wrong("it names no parameter; leave it out for all values")
    problems = [
        *(((path,), "the path has an empty part") for path in given if not all(part.strip() for part in path.split("."))),
        *(((path,), "the list is empty, so no value meets it") for path, allowed in given.items() if allowed == []),
    ]
    if problems:
        raise all_wrong(problems)
    return given


def _block(*, reason: str, **options: Any) -> Rule:
    return _rule_maker("block")(reason=reason, **options)


_APPROVER: Final = given("approver", "approvers", needed=True)
_RATE: TypeAlias = Annotated[Any, From(rate, most=int, window_ms=int | None)]
_CAPABILITY: TypeAlias = Annotated[
    Capability, Text(_from_name, Annotated[Any, From(_capability, tool=OneName, parameters=dict[str, Fits], rates=list[_RATE])])
]
_CONDITIONS: Final = Annotated[dict[str, Fits], AfterValidator(_conditions)]
_MATCH: Final[Mapping[str, Any]] = {
    "tools": NameList, "agents": NameList, "roles": NameList,
    "kinds": Annotated[list[MediatedKind], AfterValidator(_not_empty)], "effect": DeclaredEffect | None,
    "impact": Impact | None, "where": _CONDITIONS, "unless": _CONDITIONS,
}  # fmt: skip
_STAND_INS: Final[Mapping[str, Any]] = {"replies": dict[str, Any], "otherwise": Otherwise}
_RULES: Final[Mapping[str, From]] = {
    "allow": From(_rule_maker("allow"), id=str, **_MATCH),
    "block": From(_block, id=str, reason=str, **_MATCH),
    "needs_approval": From(
        _rule_maker("needs_approval"), id=str, what=str, by=_APPROVER, own=bool, timeout_ms=int | None, **_MATCH
    ),
    "to_approval": From(_rule_maker("to_approval"), id=str, what=str, **_MATCH),
    "strip": From(_strip, parameters=NameList, tools=NameList, matching=str | None),
    "redact": From(_redact, data=NameList, tools=NameList, parameters=NameList),
    "clamp": From(rewrites.clamp, parameter=OneName, least=NumberField | None, most=NumberField | None, tools=NameList),
    "replace": From(rewrites.replaced, parameter=OneName, value=ScalarField, tools=NameList, unless=Fits | None),
    "keep_only": From(rewrites.keep_only, parameter=OneName, allowed=Fits, tools=NameList, least=int),
    "drop_recipients": From(rewrites.drop_recipients, allowed=Fits, parameters=NameList, tools=NameList),
    "sandbox": From(sandbox, agents=NameList, **_STAND_INS),
    "route": From(_route, by=_APPROVER, on=Reach),
}
"""All rules that a file can use, with their parameters."""
_RULE: TypeAlias = Annotated[Any, OneOf("rule", {kind: Annotated[Any, takes] for kind, takes in _RULES.items()})]
_LEVEL: Final = From(
    _level, below=Amount, keep=list[_CAPABILITY] | None, verify=_APPROVER, on=Reach, high_impact=Stricter, rules=list[_RULE],
    sandbox=Annotated[Any, From(StandIns, **_STAND_INS)] | None,
)  # fmt: skip
_TRUST: Final = From(
    Trust, whole=True, prior=Amount, half_life=int, clock=Literal["steps", "ms"], start=dict[str, Amount],
    weights=dict[str, Amount], levels=list[Annotated[Any, _LEVEL]],
)  # fmt: skip
_VARIANT: Final = From(as_mapping, shield=bool, capabilities=bool, routing=bool)
_POLICY: Final = From(
    _policy, whole=True, mat=Literal[1], name=str, version=str, default=Literal["allow", "deny", ""], approver=_APPROVER,
    timeout_ms=int | None, approve_within_ms=int | None, use=str, capabilities=dict[str, list[_CAPABILITY]],
    granters=dict[str, list[_CAPABILITY]], rules=list[_RULE], routing=list[_RULE], trust=Annotated[Any, _TRUST] | None,
    contracts=dict[str, dict[str, Any]], variants=dict[str, Annotated[Any, _VARIANT]],
)  # fmt: skip
_FILE: Final[TypeAdapter[Policy]] = TypeAdapter(Annotated[Any, _POLICY], config={"defer_build": True})
_GOVERNING: Final = ("capabilities", "rules", "routing", "contracts")


# -- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Approvers:
    """The approvers that the caller of `load` passes in, by name."""

    approvers: Mapping[str, Approver]


def load(path: str | Path, *, approvers: Mapping[str, Approver] | None = None) -> Policy:
    """Load the policy of a .yaml, .yml or .json file. SpecError lists every problem; `approvers`: those that the file names."""
    path = Path(path)
    return loads(text_of(path, "policy"), json=path.suffix == ".json", approvers=approvers, where=str(path))


def loads(text: str, *, json: bool = False, approvers: Mapping[str, Approver] | None = None, where: str = "policy") -> Policy:
    """Load a policy from a text in YAML or JSON."""
    data, lines = data_of(text, json=json, kind="policy", where=where)
    reader = FileReader(lines, where)
    policy = _read(reader, data, _Approvers(approvers or {}))
    if reader.problems or policy is None:
        raise reader.error(
            "policy",
            why="a policy with a problem is not applied at all",
            fix="correct these; docs/governance.md describes the file",
        )
    return policy


def _read(reader: FileReader, data: object, context: _Approvers) -> Policy | None:
    if not isinstance(data, dict):
        reader.problem((), f"it contains {kind_of(data)}, not sections")
        return None
    policy = reader.read(_FILE, data, context=context)
    terms = data.get("contracts")
    contracts = files.section(reader, terms, ("contracts",)) if isinstance(terms, dict) else {}
    if not any(data.get(name) for name in _GOVERNING) and data.get("trust") is None and data.get("default") != "deny":
        reader.problem((), "it governs nothing: give capabilities, rules, routing, contracts or trust, or default: deny")
    if policy is None or reader.problems:
        return None
    return replace(policy, contracts=contracts, version=data.get("version") or digest(data)[:16])


def load_or_block(path: str | Path, *, approvers: Mapping[str, Approver] | None = None) -> Policy:
    """Like `load`, for a running system: if the file cannot be used, the policy blocks every action and says why."""
    try:
        return load(path, approvers=approvers)
    except MatError as error:
        reason = f"the policy {Path(path).name} cannot be used, so nothing is allowed: {error.what}"

    def policy_file(record: Record) -> Decision:
        return Block(reason)

    return Policy(rules=(policy_file,), use="shield", name=Path(path).name.replace(" ", "_").replace(",", "_"))
