"""Role drift: what a role may do, what it must do, and how often it acts outside its role.

Source: F3.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, TypeAlias, Unpack, get_args

from mat.core.errors import SpecError, did_you_mean, plural
from mat.core.record import ACTION_KINDS, ActionKind, DeclaredEffect, Record
from mat.core.value import EMPTY, FrozenDict
from mat.monitor.contract import Contract, Violated, kinds_of
from mat_contracts._outcome import effect_of
from mat_contracts._reading import is_inbound, statement, texts_in
from mat_contracts._shared import TOOL_CALLS, count_of, label, names_of, one_of, put, steps_text, writes
from mat_contracts.catalogue import Options, template

AllowedUse: TypeAlias = str | Callable[[Record], bool]
"""An action kind, "kind:name", a name of any kind, or a predicate. A name may hold the wildcards * and ?; else it is exact."""
NOTES: Final[tuple[str, ...]] = (
    "model_call", "claim", "verification", "detection", "mitigation", "termination", "handback",
)  # fmt: skip
"""What an agent thinks and notes about itself: allowed to every role that does not deny it."""
CITATION: Final = r"\[\d+(?:\s*[,-]\s*\d+)*\]|\[[^\[\]\s:]+:[^\[\]]+\]|\b(?:passage|step|claim)[:#][\w./-]+|https?://\S+"
"""A number in brackets, [source: place], an artifact, or a URL."""
_REMEMBERED: Final = 1_000
"""The most (kind, name) pairs of actions for which a role remembers whether it permits them."""
_CITED: Final = frozenset(("citations", "sources", "references"))
"""Fields of a structured answer that hold its sources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """U_i: the actions that a role permits. `who` holds role or agent names, exactly as recorded.

    An action is permitted if `allow` or `always` names it and `deny` does not. `allow=None` permits everything that is not
    denied. A message that comes in from outside (`mat.untrusted`) is recorded with its receiver, but is no action of the
    receiver.

    `allow`, `deny` and `always` hold action kinds ("retrieval"), names ("search"), both ("tool_call:search"), or functions
    of the record that return a bool. Raises `mat.MatError` for a role that permits everything, and for an unknown action
    kind.

    >>> from mat_contracts import Role
    >>> from mat_contracts.traces import record
    >>> planner = Role(who=("planner",), allow=("search",))
    >>> [planner.permits(record("tool_call", name, agent="planner")) for name in ("search", "pay")]
    [True, False]

    Source: F3, A2.F3.
    """

    who: tuple[str, ...]
    allow: tuple[AllowedUse, ...] | None = None
    deny: tuple[AllowedUse, ...] = ()
    always: tuple[AllowedUse, ...] = NOTES

    def __post_init__(self) -> None:
        for name in ("who", "allow", "deny", "always"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, (value,) if isinstance(value, str) or callable(value) else tuple(value))
        names_of(self.who, "who")
        if self.allow is None and not self.deny:
            raise SpecError(what=f"role {label(self.who)} allows everything", fix="give allow= or deny=")
        problems = [text for entry in (*(self.allow or ()), *self.deny, *self.always) if (text := _problem(entry))]
        if problems:
            raise SpecError(
                what=f"role {label(self.who)}: {'; '.join(problems)}", fix='write "retrieval", "tool_call:search" or "search"'
            )

    def permits(self, record: Record) -> bool | None:
        """Whether the role permits this action; None if it is not an action of this role."""
        if not _acts(record, self.who):
            return None
        if any(_matches(entry, record) for entry in self.deny):
            return False
        if self.allow is None:
            return True
        return any(_matches(entry, record) for entry in self.allow) or any(_matches(entry, record) for entry in self.always)


@template
def role(
    who: str | Iterable[str],
    *,
    allow: AllowedUse | Iterable[AllowedUse] | None = None,
    deny: AllowedUse | Iterable[AllowedUse] = (),
    always: AllowedUse | Iterable[AllowedUse] = NOTES,
    **options: Unpack[Options],
) -> Contract:
    """A role, or an agent, does only what its role allows: a_t is in U_i at every step t of agent i.

    `who` names roles or agents. Entries of `allow` and `deny` are action kinds ("retrieval"),
    "kind:name" ("tool_call:search"), names of any kind ("search"), or predicates on the record; in a name, * and ? match any
    text. `deny` wins over `allow`. `always` adds actions that every role may do, by default NOTES. A blocked action is an
    attempted violation. The duties of a role are contracts of their own: `cites_sources`, `only_proposes_external_calls`,
    `no_external_side_effects`.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> planner = role("planner", allow=["delegation", "tool_call:calendar"])
    >>> broken(planner, trace(record("delegation", "mailer", agent="planner"), record("model_call", "gpt", agent="planner")))
    ()
    >>> broken(planner, trace(record("tool_call", "send", agent="planner"), record("tool_call", "send", agent="mailer")))
    (0,)

    Source: F3, Sec. III-B, A2.F3.
    """
    rules = Role(who=_tuple(who), allow=None if allow is None else _tuple(allow), deny=_tuple(deny), always=_tuple(always))
    role_name, names, permits = label(rules.who), frozenset(rules.who), _remember_permits(rules)

    def step(state: None, record: Record) -> Violated | None:
        if record.agent not in names and record.role not in names:
            return state
        return _outside(record, rules) if permits(record) is False else state

    return Contract(
        id=f"{role_name}.role", step=step,
        repair=f"leave the action to an agent that may do it: {role_name} can ask by a message or a delegation",
        text=f"{role_name} does only what its role allows",
    )  # fmt: skip


def _outside(record: Record, rules: Role) -> Violated:
    action = record.action
    wanted = "an action that its role allows" if rules.allow is None else f"one of {_entry_list(rules.allow)}"
    return Violated(
        f"{_agent_and_role(record)} performed {action.kind} {action.name}, which its role does not allow".replace("  ", " "),
        instance=record.agent, witness=(record.step,), wanted=wanted,
    )  # fmt: skip


@template
def drift_below(
    roles: Role | Iterable[Role],
    *,
    eps: float = 0.2,
    window: int = 20,
    **options: Unpack[Options],
) -> Contract:
    """At most a share `eps` of an agent's last `window` actions lies outside its role.

    The drift score over a window. `roles` are the roles to judge by. The share is of the full window, so an agent
    with fewer actions is in violation only if no further actions could keep the bound. An action is outside if a role of its
    agent does not permit it. Agents without a role are not judged. A violation resets the agent's count. `mat.measure.drift` is
    the score of whole runs.

    Raises `mat.MatError` if `roles` holds anything but roles, for a window below 1, and for an `eps` that is not a share
    below 1.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> reader, good, bad = Role(who=("main",), allow=("retrieval",)), record("retrieval", "kb"), record("tool_call", "send")
    >>> broken(drift_below(reader, eps=0.25, window=4), trace(bad, good, good, good, bad))
    ()
    >>> broken(drift_below(reader, eps=0.25, window=4), trace(bad, good, good, bad))
    (3,)

    Source: F3, A2.F3.
    """
    rules = (roles,) if isinstance(roles, Role) else tuple(roles)
    if not rules or not all(isinstance(item, Role) for item in rules):
        raise SpecError(what=f"roles={roles!r} is not a role", fix="give Role(who=..., allow=...) or several of them")
    count_of(window, "window", least=1)
    if isinstance(eps, bool) or not isinstance(eps, int | float) or not 0 <= eps < 1:
        raise SpecError(
            what=f"eps={eps!r} is not a share below 1", fix="give the share of actions that may be outside the role"
        )

    most = math.floor(eps * window + 1e-9)  # 0.29 of 100 are 29
    names, permitting = frozenset(name for item in rules for name in item.who), tuple(map(_remember_permits, rules))

    def step(state: FrozenDict, record: Record) -> FrozenDict | Violated:
        agent = record.agent
        if agent not in names and record.role not in names:
            return state
        answers = [permits(record) for permits in permitting]
        within_role = False not in answers
        if within_role and (agent not in state or True not in answers):
            return state
        count, outside = state.get(agent, (0, ()))
        count += 1
        if outside and count - outside[0][0] >= window:
            outside = outside[1:]
        if not within_role:
            outside = (*outside, (count, record.step))
        if not outside:  # actions before the window no longer matter
            return put(state, agent, ())
        if len(outside) <= most:
            return put(state, agent, (count, outside))
        steps = tuple(at for _, at in outside)
        return Violated(
            f"{agent} acted outside its role in {len(steps)} of its last {plural(window, 'action')} (at most {most} allowed): "
            f"{steps_text(steps)}",
            state=put(state, agent, ()), instance=agent, witness=steps, wanted=f"at most {most} of {window}",
        )  # fmt: skip

    role_names = label(tuple(sorted({name for item in rules for name in item.who})))
    return Contract(
        id=f"{role_names}.drift", step=step, start=EMPTY,
        repair="remind the agent of its role, restart it, or take away the tools that it should not use",
        text=f"at most a share {eps:g} of any {window} actions of {role_names} lies outside the role",
    )  # fmt: skip


# -- duties ---------------------------------------------------------------------------------------------------------------


@template
def cites_sources(
    who: str | Iterable[str],
    *,
    on: ActionKind | Iterable[ActionKind] = ("message", "claim", "final_response"),
    pattern: str | None = CITATION,
    needs: Callable[[str], bool] | None = None,
    **options: Unpack[Options],
) -> Contract:
    """Every statement of a role names its sources: each message, claim and final response has a support link or a citation.

    `who` names roles or agents, `on` action kinds. A source is a link "supports" (`supports=` of a claim), a match of
    `pattern` in the text (None: links only), or a non-empty field `citations`, `sources` or `references` of a structured
    answer. `claims_supported` judges whether the source supports the statement. `needs(text)` returns whether a text needs
    sources; greetings, for example, do not. Empty texts never do.

    Raises `mat.MatError` for an empty name and an invalid regular expression.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> cited = record("message", "user", {"text": "The parcel is in Lille [1]."}, agent="researcher")
    >>> bare = record("message", "user", {"text": "The parcel is in Lille."}, agent="researcher")
    >>> broken(cites_sources("researcher"), trace(cited, record("claim", "claim", {"text": "x"}, supports=["passage:1"])))
    ()
    >>> broken(cites_sources("researcher"), trace(bare))
    (0,)

    Source: A2.F3.
    """
    names = names_of(who, "who")
    kinds = kinds_of(on) or frozenset()
    try:
        found = None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise SpecError(
            what=f"pattern={pattern!r} is not a regular expression: {error}", fix="correct it, or give None"
        ) from None

    def step(state: None, record: Record) -> Violated | None:
        if not _acts(record, names) or any(link.rel == "supports" for link in record.links):
            return state
        content = statement(record)
        text = " ".join(texts_in(content))
        if not text.strip() or (needs is not None and not needs(text)):
            return state
        if found is not None and found.search(text):
            return state
        if isinstance(content, Mapping) and any(content.get(key) for key in _CITED):
            return state
        return Violated(
            f"{_agent_and_role(record)} gave no source in {record.action.kind} {record.action.name}".rstrip(),
            instance=record.agent, witness=(record.step,), wanted="a support link or a citation",
        )  # fmt: skip

    return Contract(
        id=f"{label(names)}.cites_sources", step=step, kinds=kinds,
        repair="name the passage or result that the statement comes from (supports=, or a citation), or leave it out",
        text=f"{label(names)} names sources",
    )  # fmt: skip


@template
def only_proposes_external_calls(
    who: str | Iterable[str],
    *,
    external: str | Iterable[str] | None = None,
    effects: DeclaredEffect | Iterable[DeclaredEffect] | None = None,
    **options: Unpack[Options],
) -> Contract:
    """A role only proposes external calls, by a message, a delegation or a request for approval, and never makes one itself.

    `who` names roles or agents. External tools are those named in `external` (* and ? match any text) and those with one
    of the declared `effects`; without both, all tools. An undeclared call counts as a write, unless its name begins with a verb
    that reads. An approval does not entitle the role to make the call. A blocked call
    is an attempted violation.

    Raises `mat.MatError` for an unknown effect and an empty name.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> propose, call = record("message", "clerk", {"text": "refund A1?"}), record("tool_call", "refund", {"order": "A1"})
    >>> broken(only_proposes_external_calls("main", external="refund"), trace(propose, record("tool_call", "look_up")))
    ()
    >>> broken(only_proposes_external_calls("main", external="refund"), trace(propose, call))
    (1,)

    Source: A2.F3.
    """
    names = names_of(who, "who")
    tools = () if external is None else names_of(external, "external")
    chosen: tuple[str, ...] = () if effects is None else names_of(effects, "effects")
    for effect in chosen:
        one_of(effect, "effects", get_args(DeclaredEffect))
    patterns = tuple(tool for tool in tools if "*" in tool or "?" in tool)

    def step(state: None, record: Record) -> Violated | None:
        if record.agent not in names and record.role not in names:
            return state
        action = record.action
        outside = action.name in tools or action.effect in chosen or (not tools and not chosen)
        outside = outside or ("write" in chosen and writes(action, named=False))
        if not outside and not any(_like(action.name, tool) for tool in patterns):
            return state
        return Violated(
            f"{_agent_and_role(record)} called {action.name}, which it may only propose",
            instance=record.agent, witness=(record.step,), wanted="a message, a delegation or a request for approval",
        )  # fmt: skip

    return Contract(
        id=f"{label(names)}.only_proposes", step=step, kinds=TOOL_CALLS,
        repair="hand the call over to an agent that may make it, with everything it needs to decide",
        text=f"{label(names)} only proposes external calls",
    )  # fmt: skip


@template
def no_external_side_effects(
    who: str | Iterable[str],
    *,
    kinds: ActionKind | Iterable[ActionKind] = "tool_call",
    **options: Unpack[Options],
) -> Contract:
    """A role changes nothing outside: none of its calls that write takes effect, or may have taken effect.

    `who` names roles or agents. A call writes if its port is declared with `effect="write"`, or with no effect and its
    name does not begin with a verb that reads ("search", "get_order"). It took effect unless its record says otherwise: it was
    blocked, failed before the port ran, or its reply reports a failure. `kinds` are the action kinds that count; use
    `kinds=("tool_call", "memory_write")` to include memories that agents share.

    Raises `mat.MatError` for an empty name.

    Precision 1.00, recall 1.00 on 22 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> write, read = (record("tool_call", effect, {"order": "A1"}, effect=effect) for effect in ("write", "read"))
    >>> broken(no_external_side_effects("main"), trace(read, record("tool_call", "pay", effect="write", blocked=True)))
    ()
    >>> broken(no_external_side_effects("main"), trace(read, write))
    (1,)

    Source: A2.F3.
    """
    names = names_of(who, "who")

    def step(state: None, record: Record) -> Violated | None:
        action = record.action
        if record.effected == "no" or not writes(action, named=False) or not _acts(record, names):
            return state
        happened = effect_of(record)
        if happened == "no":
            return state
        sure = "changed something outside by calling" if happened == "yes" else "may have changed something outside by calling"
        return Violated(
            f"{_agent_and_role(record)} {sure} {action.name}", instance=record.agent, witness=(record.step,),
            wanted="calls that only read",
        )  # fmt: skip

    return Contract(
        id=f"{label(names)}.no_external_side_effects", step=step, kinds=kinds_of(kinds),
        repair="use calls that only read, and hand over the changes",
        text=f"{label(names)} changes nothing outside",
    )  # fmt: skip


# -- who and what ---------------------------------------------------------------------------------------------------------


def _remember_permits(rules: Role) -> Callable[[Record], bool | None]:
    """`rules.permits` with a memory for each kind and name of action, unless a predicate needs the whole record."""
    if any(callable(entry) for entry in (*(rules.allow or ()), *rules.deny, *rules.always)):
        return rules.permits
    known: dict[tuple[str, str], bool] = {}

    def permits(record: Record) -> bool | None:
        if not _acts(record, rules.who):
            return None
        asked = (record.action.kind, record.action.name)
        permitted = known.get(asked)
        if permitted is None:
            if len(known) >= _REMEMBERED:
                known.clear()
            permitted = known[asked] = rules.permits(record) is True
        return permitted

    return permits


def _acts(record: Record, who: tuple[str, ...]) -> bool:
    if record.role not in who and record.agent not in who:
        return False
    return not is_inbound(record)


def _agent_and_role(record: Record) -> str:
    return f"{record.agent} ({record.role})" if record.role and record.role != record.agent else record.agent


def _matches(entry: AllowedUse, record: Record) -> bool:
    """Whether an entry of a role matches this action."""
    if not isinstance(entry, str):
        return bool(entry(record))
    kind, colon, name = entry.partition(":")
    if colon and kind in ACTION_KINDS:
        return record.action.kind == kind and _like(record.action.name, name)
    return record.action.kind == entry or (entry not in ACTION_KINDS and _like(record.action.name, entry))


def _like(name: str, pattern: str) -> bool:
    """Whether a name equals a pattern, or matches it if it holds * or ?. Brackets are literal."""
    if name == pattern or ("*" not in pattern and "?" not in pattern):
        return name == pattern
    return fnmatchcase(name, pattern.replace("[", "[[]"))


def _problem(entry: Any) -> str:
    if callable(entry):
        return ""
    if not isinstance(entry, str) or not entry:
        return f"{entry!r} is not a kind, a name or a predicate"
    kind, colon, name = entry.partition(":")
    if colon and kind not in ACTION_KINDS:
        return f"{entry!r} does not begin with an action kind{did_you_mean(kind, ACTION_KINDS)}"
    return f"{entry!r} has no name after its kind" if colon and not name else ""


def _entry_list(entries: Iterable[AllowedUse]) -> str:
    return ", ".join(entry if isinstance(entry, str) else getattr(entry, "__name__", "a predicate") for entry in entries)


def _tuple(entries: AllowedUse | Iterable[AllowedUse]) -> tuple[Any, ...]:
    return (entries,) if isinstance(entries, str) or callable(entries) else tuple(entries)
