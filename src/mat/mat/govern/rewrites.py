"""Rules that change an action: strip, redact, clamp, replace, drop recipients, ask first. And contracts as rules.

Each function makes a rule for `Governance(rules=...)`. `tools` are exact names of tools (or of ports of another kind, with
`kinds`), by default all. A rule leaves a parameter alone if it is missing or its value has another shape. Capability sets can
require the parameter: they judge a rewritten action again before it runs.

Source: A5.2.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from mat.core.allowed import Allowed, describe, is_allow_list, within
from mat.core.endpoint import ascii_lower, pattern
from mat.core.errors import SpecError, did_you_mean, plural
from mat.core.record import ActionKind, Record
from mat.core.redact import Redactor, find_pii
from mat.core.value import FrozenDict, FrozenList
from mat.core.verdict import Verdict
from mat.govern.approval import Approver
from mat.govern.mediator import Block, ConvertToApproval, Decision, NeedsApproval, Rewrite, Rule
from mat.monitor.compile import contract as contract_of
from mat.monitor.contract import Contract
from mat.monitor.judge import EPISODE, Judge
from mat.monitor.temporal import Formula

__all__ = [
    "clamp", "drop_recipients", "keep_only", "needs_approval", "redact", "replaced", "shield", "strip", "to_approval",
]  # fmt: skip

Names = str | Iterable[str]
When = Callable[[Record], bool]
_TOOLS: Final[tuple[ActionKind, ...]] = ("tool_call",)
_PII: Final = ("email", "iban", "card", "ssn", "phone", "ip", "birth_date")
_NOTHING: Final = object()
_SHORT: Final = 10
"""Repetitions up to this count do not make a pattern slow."""
_TEXT_CHARS: Final = 20_000
"""The longest text in which `strip` looks for a pattern; a search that starts anew at each character takes a second there."""


def strip(parameters: Names, *, tools: Names = (), matching: str | None = None, kinds: Iterable[ActionKind] = _TOOLS) -> Rule:
    """Remove a value: empty a parameter, delete a key inside one ("body.note"), or delete the text that matches `matching`.

    `matching` has one repetition without limit at most, and texts of at most 20,000 characters; a longer one blocks the action.
    """
    expression = None if matching is None else _compile(matching)

    def stripped(value: Any) -> Any:
        if expression is None:
            return _empty(value)
        return _change_texts(value, lambda text: expression.sub("", _short_enough(text)))

    def removed(value: Any, path: Sequence[str]) -> Any:
        return (
            _change_at(value, path, stripped)
            if expression is not None
            else _change_at(value, path[:-1], lambda found: _remove_key(found, path[-1]))
        )

    return _value_rule(
        f"strip {_name_list(parameters)}", _as_names(parameters, "parameters"), tools, kinds, stripped, inside=removed
    )


def redact(
    kinds_of_data: Names = _PII, *, tools: Names = (), parameters: Names = (), kinds: Iterable[ActionKind] = _TOOLS
) -> Rule:
    """Mask personal data of these kinds, and keys and bearer tokens, in the texts of the given parameters, by default all.

    The kinds are those of `mat.core.redact.find_pii`; "secret" means keys and tokens. A mask is the kind in
    brackets.
    """
    wanted = _as_names(kinds_of_data, "kinds_of_data")
    unknown = [kind for kind in wanted if kind not in (*_PII, "secret")]
    if unknown:
        raise SpecError(
            what=f"unknown kind of data: {unknown[0]!r}{did_you_mean(unknown[0], (*_PII, 'secret'))}",
            fix=f"choose from {', '.join((*_PII, 'secret'))}",
        )

    def masked(text: str) -> str:
        for kind, found in sorted(find_pii(text), key=lambda item: -len(item[1])):
            if kind in wanted:
                text = text.replace(found, f"[{kind}]")
        return _MARK.sub(r"[\1]", Redactor().text(text))  # as the record does: marks replace keys and tokens

    def clean(value: Any) -> Any:
        return _change_texts(value, masked)

    return _value_rule(
        f"redact {_name_list(wanted)}", _as_names(parameters, "parameters") if parameters else (), tools, kinds, clean
    )


_MARK: Final = re.compile(r"\[redacted:([a-z_]+)#\d+\]")


def clamp(
    parameter: str, least: float | None = None, most: float | None = None, *, tools: Names = (),
    kinds: Iterable[ActionKind] = _TOOLS,
) -> Rule:  # fmt: skip
    """Bring a number into a range, both ends included. Other values, including NaN, are blocked."""
    if (least is None and most is None) or (least is not None and most is not None and least > most):
        raise SpecError(what=f"cannot clamp {parameter!r} to {least}..{most}", fix="give least=, most= or both, least first")

    def clamped(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            raise ValueError(
                f"{parameter}={value!r} is not a number and cannot be clamped to {_bound_text(least)}..{_bound_text(most)}"
            )
        if least is not None and value < least:
            return least
        return most if most is not None and value > most else value

    return _value_rule(f"clamp {parameter} to {_bound_text(least)}..{_bound_text(most)}", (parameter,), tools, kinds, clamped)


def _bound_text(bound: float | None) -> str:
    return "" if bound is None else str(bound)


def replaced(
    parameter: str, value: object, *, tools: Names = (), unless: Allowed | None = None, kinds: Iterable[ActionKind] = _TOOLS
) -> Rule:
    """Replace the value of a parameter, always or unless `unless` (an allow-list) allows it."""
    allowed = None if unless is None else _allow_list(unless, parameter)

    def replacement(before: Any) -> Any:
        return before if allowed is not None and within(allowed, before) else value

    return _value_rule(f"replace {parameter}", (parameter,), tools, kinds, replacement)


def keep_only(
    parameter: str, allowed: Allowed, *, tools: Names = (), kinds: Iterable[ActionKind] = _TOOLS, least: int = 1
) -> Rule:
    """Keep only the allowed members of a list, or of a text with commas; blocked if fewer than `least` remain."""
    checked = _allow_list(allowed, parameter)

    def kept(value: Any) -> Any:
        members, rejoin = _members(value)
        if members is None:
            if within(checked, value):
                return value
            raise ValueError(f"{parameter}={value!r} is outside {describe(checked)}")
        found = [item for item in members if within(checked, item)]
        if len(found) < least:
            allows = f"{describe(checked)} allows {len(found)} of {plural(len(members), 'value')}"
            raise ValueError(f"{parameter}: {allows}, but at least {least} must be allowed")
        return value if len(found) == len(members) else rejoin(found)

    return _value_rule(f"keep_only {parameter}", (parameter,), tools, kinds, kept)


def drop_recipients(
    parameters: Names = ("to", "cc", "bcc", "recipients"), *, allowed: Allowed, tools: Names = (),
    kinds: Iterable[ActionKind] = _TOOLS,
) -> Rule:  # fmt: skip
    """Remove recipients that are not allowed, in all parameters that name them; blocked if nobody is left.

    Addresses are compared without display name and case; list them in `allowed` in lower case: "ann@shop.example".
    """
    checked, names = _allow_list(allowed, "allowed"), _as_names(parameters, "parameters")
    wanted, action_kinds = frozenset(_as_names(tools, "tools") if tools else ()), frozenset(kinds)

    def rule(record: Record) -> Decision | None:
        action = record.action
        if action.kind not in action_kinds or (wanted and action.name not in wanted):
            return None
        changed, before, after = {}, 0, 0
        for name in names:
            value = action.arguments.get(name)
            members, rejoin = _members(value)
            if members is None:
                if value is None:
                    continue
                return Block(f"{name} of {action.name} is neither a text nor a list, so its recipients cannot be compared")
            kept = [item for item in members if within(checked, _address(item))]
            before, after = before + len(members), after + len(kept)
            if len(kept) < len(members):
                changed[name] = rejoin(kept)
        if not changed:
            return None
        if not after:
            return Block(f"no recipient of {action.name} is allowed")
        return Rewrite(changed, reason=f"{before - after} of {before} recipients left out")

    return _set_name(rule, "drop_recipients")


def to_approval(*, tools: Names = (), when: When | None = None, what: str = "", own: bool = True) -> Rule:
    """Turn a call into a request for approval; the agent goes on without its effect. See ConvertToApproval."""
    return _call_rule(tools, when, "to_approval", lambda record: ConvertToApproval(what, own=own))


def needs_approval(
    *, tools: Names = (), when: When | None = None, what: str = "", own: bool = False, approver: Approver | None = None,
    timeout_ms: int | None = None,
) -> Rule:  # fmt: skip
    """Block a call until it is approved; by default every call of high impact. See NeedsApproval."""
    wish = NeedsApproval(what, own=own, approver=approver, timeout_ms=timeout_ms)
    return _call_rule(tools, when, "needs_approval", lambda record: wish)


def _call_rule(tools: Names, when: When | None, name: str, decide: Callable[[Record], Decision]) -> Rule:
    """A rule for calls of some tools, or for calls for which `when` is true; without either, for calls of high impact."""
    wanted = frozenset(_as_names(tools, "tools") if tools else ())

    def rule(record: Record) -> Decision | None:
        action = record.action
        if action.kind != "tool_call" or (wanted and action.name not in wanted):
            return None
        applies = when(record) if when is not None else bool(wanted) or action.impact == "high"
        return decide(record) if applies else None

    return _set_name(rule, name)


# -- contracts as rules -------------------------------------------------------------------------------------------------


def shield(what: Contract | Formula, *, id: str = "", repair: str = "") -> Rule:
    """Make a rule from a contract, or from a formula of the past: it blocks actions that would break it, with its repair.

    It judges the proposed action with everything asked before it. `id`: the rule's name; `repair`: what the agent is asked to
    do; both replace the contract's. Returns a rule for `mat.policy.Governance(rules=)`. Raises `mat.MatError` for a contract
    that later steps decide.

    >>> from mat.temporal import always, once, tool_call, verification
    >>> verified_first = mat.contract("verified_first", always(tool_call("refund").implies(once(verification(passed=True)))))
    >>> @mat.tool(effect="write")
    ... def refund(order): return "refunded"
    >>> with mat.run(governance=mat.policy.Governance(rules=(mat.policy.shield(verified_first),))):
    ...     checked = mat.verify("the order is the sender's", passed=True)
    ...     refund("A17")
    'refunded'

    Source: A5.2.
    """
    if isinstance(what, Contract):
        guard = replace(what, policy="block", id=id or what.id, repair=repair or what.repair)
        ahead = guard.formula is not None and (guard.formula.ahead or all(goal.when == "last" for goal in guard.formula.goals))
        if ahead:
            raise SpecError(
                what=f"contract {what.id!r} cannot shield: {what.text}",
                why="later steps decide it, and by then the action has been done",
                fix="use past operators, such as always(paid.implies(once(verified)))",
            )
        if guard.raw:
            raise SpecError(
                what=f"contract {what.id!r} cannot shield",
                why="it reads raw values; a rule sees the recorded form",
                fix="write it on the recorded form",
            )
        return _Shield(guard)
    return _Shield(contract_of(id or "shield", what, policy="block", repair=repair))


class _Shield:
    """A contract as a rule. Each run has a new one, which folds the trace like a judge, and so sees recorded forms alone."""

    peeks = recorded = True

    def __init__(self, guard: Contract) -> None:
        self._guard = guard
        self._judge = Judge((guard,))
        self._episode: object = None
        self.__name__ = guard.id

    def fresh(self) -> Rule:
        return _Shield(self._guard)

    def __call__(self, record: Record, pending: Sequence[Record] = ()) -> Decision | None:
        episode = record.state.get(EPISODE)
        judge, before = self._judge, pending
        if episode != self._episode:  # a new episode, which began after the last judged step
            judge, before = Judge((self._guard,)), [item for item in pending if item.state.get(EPISODE) == episode]
        for violation in judge.peek(record, before):
            return Block(violation.repair or violation.message or violation.contract)
        return None

    def observe(self, record: Record, verdict: Verdict | tuple[str, ...]) -> None:
        episode = record.state.get(EPISODE)
        if episode != self._episode:
            self._judge, self._episode = Judge((self._guard,)), episode
        self._judge.step(record)

    def state(self) -> object:
        return self._judge.digest()


# -- helpers ------------------------------------------------------------------------------------------------------------


def _value_rule(
    name: str, parameters: tuple[str, ...], tools: Names, kinds: Iterable[ActionKind], change: Callable[[Any], Any],
    *, inside: Callable[[Any, Sequence[str]], Any] | None = None,
) -> Rule:  # fmt: skip
    """A rule that changes the values of some parameters. If `change` raises ValueError, the rule blocks the action."""
    wanted, action_kinds = frozenset(_as_names(tools, "tools") if tools else ()), frozenset(kinds)
    nested = inside or (lambda value, path: _change_at(value, path, change))

    def rule(record: Record) -> Decision | None:
        action = record.action
        if action.kind not in action_kinds or (wanted and action.name not in wanted):
            return None
        changed: dict[str, Any] = {}
        try:
            named = [way for name in parameters for way in _ways(name)]
            for top, *rest in named if parameters else [(name,) for name in action.arguments]:
                before = changed.get(top, action.arguments.get(top, _NOTHING))
                if before is _NOTHING:
                    continue
                after = nested(before, rest) if rest else change(before)
                if after is not before:
                    changed[top] = after
        except ValueError as error:
            return Block(str(error))
        return Rewrite(changed, reason=name) if changed else None

    return _set_name(rule, name)


def _ways(path: str) -> list[tuple[str, ...]]:
    """What a path can mean, because names may contain full stops themselves.

    >>> _ways("body.amount")
    [('body', 'amount'), ('body.amount',)]
    """
    first, stop, rest = path.partition(".")
    if not stop:
        return [(first,)]
    inner = _ways(rest)
    return [*((first, *way) for way in inner), *((f"{first}.{way[0]}", *way[1:]) for way in inner)]


def _change_at(value: Any, path: Sequence[str], change: Callable[[Any], Any]) -> Any:
    """A copy with the value at a path changed, or the same object if nothing changes. `*` is every member."""
    if not path:
        return change(value)
    head, rest = path[0], path[1:]
    if isinstance(value, Mapping):
        keys = list(value) if head == "*" else [head] if head in value else []
        new = {key: _change_at(value[key], rest, change) for key in keys}
        same = all(new[key] is value[key] for key in keys)
        return value if same else FrozenDict({**value, **new})
    if isinstance(value, list):
        wanted = range(len(value)) if head == "*" else [int(head)] if head.isdecimal() and int(head) < len(value) else []
        items = [_change_at(item, rest, change) if index in wanted else item for index, item in enumerate(value)]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else FrozenList(items)
    return value


def _change_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A copy with every text inside changed, keys and bytes in UTF-8 too, or the same object if nothing changes.

    ValueError for bytes that are no text but hold something to change, and for two keys that would become one.
    """
    if isinstance(value, str):
        new = change(value)
        return value if new == value else new
    if isinstance(value, bytes):
        return _change_bytes(value, change)
    if isinstance(value, Mapping):
        found = {change(key): _change_texts(item, change) for key, item in value.items()}
        if len(found) < len(value):
            raise ValueError("two keys of a mapping would become the same")
        return value if all(key in found and found[key] is value[key] for key in value) else FrozenDict(found)
    if isinstance(value, list):
        items = [_change_texts(item, change) for item in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else FrozenList(items)
    return value


def _change_bytes(value: bytes, change: Callable[[str], str]) -> bytes:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = value.decode("latin-1")
        if change(text) != text:
            raise ValueError("bytes that are not text contain what a rule removes") from None
        return value
    new = change(text)
    return value if new == text else new.encode()


def _remove_key(value: Any, key: str) -> Any:
    """A mapping without a key, or a list with the member at an index emptied; the same object if there is none."""
    if isinstance(value, Mapping):
        return FrozenDict({name: item for name, item in value.items() if name != key}) if key in value else value
    return _change_at(value, (key,), _empty)


def _empty(value: Any) -> Any:
    if isinstance(value, str):
        return "" if value else value
    if isinstance(value, Mapping):
        return FrozenDict() if value else value
    if isinstance(value, list):
        return FrozenList() if value else value
    return None


def _members(value: Any) -> tuple[list[Any] | None, Callable[[list[Any]], Any]]:
    """The members of a list, or of a text separated by commas or semicolons, and a function that joins some of them again."""
    if isinstance(value, list):
        return list(value), FrozenList
    if isinstance(value, str):
        return [item.strip() for item in re.split(r"[,;]", value) if item.strip()], ", ".join
    return None, FrozenList


def _address(item: Any) -> Any:
    """The address of a recipient, in lower case, as allow-lists compare it. Several addresses in one text stay as they are."""
    if not isinstance(item, str):
        return item
    found = re.fullmatch(r"[^<>]*<([^<>]*)>", item.strip())
    return ascii_lower((found[1] if found else item).strip())


def _allow_list(allowed: Allowed, name: str) -> Allowed:
    if not is_allow_list(allowed):
        raise SpecError(
            what=f"{name}: {allowed!r} is not an allow-list", why="a plain string would allow each of its substrings",
            fix="give a set of values, a (least, most) tuple of numbers, or a predicate",
        )  # fmt: skip
    return frozenset(allowed) if isinstance(allowed, Collection) and not isinstance(allowed, tuple) else allowed


def _compile(expression: str) -> re.Pattern[str]:
    """A pattern to delete texts by, simple enough that no text takes long. SpecError for any other."""
    pattern(expression)
    tree = importlib.import_module("re._parser").parse(expression)
    if _long_repeats(tree) > 1:
        raise SpecError(
            what=f"{expression!r} can take very long on some texts",
            why="it has a repetition inside another, or two repetitions without limit",
            fix=f"let at most one repetition match more than {_SHORT} times, put none inside another, or write several rules",
        )
    return re.compile(expression)


def _short_enough(text: str) -> str:
    if len(text) > _TEXT_CHARS:
        raise ValueError(f"a text has {len(text):,} characters, but only texts of at most {_TEXT_CHARS:,} are searched")
    return text


def _long_repeats(tree: Any, *, inside: bool = False) -> int:
    """How many repetitions of a parsed expression may be longer than _SHORT; 2 if one is inside of another."""
    found = 0
    for kind, argument in tree:
        name = str(kind)
        if name.endswith("_REPEAT"):
            least, most, repeated = argument
            if inside and least != most:
                return 2
            found += int(most) > _SHORT
            found += _long_repeats(repeated, inside=inside or int(most) > 1)
        elif name == "SUBPATTERN":
            found += _long_repeats(argument[3], inside=inside)
        elif name == "BRANCH":
            found += 2 if inside else max(_long_repeats(branch) for branch in argument[1])
    return found


def _as_names(names: Names, what: str) -> tuple[str, ...]:
    found = (names,) if isinstance(names, str) else tuple(names)
    if not found or not all(isinstance(name, str) and name for name in found):
        raise SpecError(what=f"{what}={names!r} is empty", fix=f"give {what} as one or several names, as recorded in the trace")
    return found


def _name_list(names: Names) -> str:
    return ", ".join(_as_names(names, "names"))


def _set_name(rule: Callable[[Record], Decision | None], name: str) -> Rule:
    rule.__name__ = name
    return rule
