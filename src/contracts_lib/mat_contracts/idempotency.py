"""Idempotency: an effect that is meant to happen once happens once, even if a reply was lost."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeAlias, Unpack

from mat.core.digest import digest
from mat.core.endpoint import MISSING, values_at
from mat.core.errors import SpecError
from mat.core.record import Record
from mat.core.value import EMPTY, FrozenDict
from mat.monitor.contract import Contract, Violated
from mat_contracts._outcome import effect_of
from mat_contracts._shared import TOOL_CALLS, label, let_through, names_of, too_many
from mat_contracts._values import currencies, currencies_agree, normal
from mat_contracts.catalogue import Options, template

EffectKey: TypeAlias = str | Iterable[str] | Callable[[Mapping[str, Any]], Any]
MAX_EFFECTS: Final = 1_000
"""Different effects that one contract remembers: as many as a run has steps by default. With more it is unknown."""
BUFFERED: Final = 32
"""Latest effects that are kept in a table of their own, because merging them with the others copies all."""
_PARTS: Final = 8
_CHARS: Final = 64


@template
def no_duplicate_effect(
    tool: str | Iterable[str],
    *,
    key: EffectKey | None = None,
    idempotency: str = "",
    **options: Unpack[Options],
) -> Contract:
    """The same effect, a call of `tool` with the same key arguments, happens at most once.

    `key` names the arguments that identify an effect (by default all), as `"order"`, or `"body.order"` for a member of one; or
    it is a function of the arguments that returns a value to compare. Values are compared in normal form: 30, 30.0 and "30.00
    EUR" are one amount, "A17" and " a17 " one id, and "15 May 2024" is 2024-05-15.

    An effect happened if `effected` is "yes" and the reply does not report a failure, as `{"error": ...}` does; a call whose
    port ran more than once had its effect more than once. If it is unknown whether it happened (the port failed midway, or
    reports a time-out), the call breaks nothing, but a later violation mentions it. A proposed call counts as an effect, so
    that `policy="block"` stops the second one.

    `idempotency` names the parameter by which the service recognizes a retry; over HTTP `"Idempotency-Key"` is that header, and
    `"body.key"` a member of the body. Calls with one idempotency key are one effect, however often they are sent. The same key
    with other arguments breaks the contract, because the service drops the second call or takes it for the first. A call
    without a key, or with a new one, is a new effect: it breaks the contract if the same effect happened, or may have happened,
    before.

    Raises `mat.MatError` for an empty name, and if `idempotency` is not the name of a parameter.

    Precision 1.00, recall 1.00 on 48 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> refund = record("tool_call", "refund", {"order": "A1", "amount": 5}, effect="write")
    >>> other = record("tool_call", "refund", {"order": "B2", "amount": 5}, effect="write")
    >>> broken(no_duplicate_effect("refund", key="order"), trace(refund, other))
    ()
    >>> broken(no_duplicate_effect("refund", key="order"), trace(refund, refund))
    (1,)

    Source: Sec. IV-B, A1.9.
    """
    tools = names_of(tool, "tool")
    tool_names = label(tools)
    again = tool_names if len(tools) == 1 else "it"
    key_of = _key(key)
    if not isinstance(idempotency, str):
        raise SpecError(what=f"idempotency={idempotency!r} is not a parameter", fix="give the name of the parameter")
    if idempotency:
        return Contract(
            id=f"{tool_names}.no_duplicate_effect", step=_keyed(tools, key_of, idempotency, whole=key is None),
            start=_KEYED, kinds=TOOL_CALLS,
            repair=f"send a retry of {tool_names} with the key of the first call, and any other call with a new key",
            text=f"{tool_names} has the same effect at most once; {idempotency} identifies a retry",
        )  # fmt: skip

    def step(state: _Table, record: Record) -> _Table | Violated:
        name = record.action.name
        happened = effect_of(record) if name in tools else "no"
        if happened == "no":
            return state
        made = key_of(let_through(record))
        effect, units = _effect_key(name, made), currencies(made)
        known: tuple[_Seen, ...] = _lookup(state, effect) or ()
        before = next((item for item in known if currencies_agree(item.units, units)), None)
        others = tuple(item for item in known if item is not before)
        done, unsure = (-1, -1) if before is None else (before.done, before.unsure)
        if happened == "unknown" and (record.invoked == 1 or record.effected == "yes"):
            return _put(state, effect, (*others, _Seen(units, done, record.step if unsure < 0 else unsure)))
        new = _put(state, effect, (*others, _Seen(units, record.step, unsure)))
        if done < 0 and record.invoked <= 1:
            return new
        said, witness = _repeat_problem(record, done, unsure)
        wanted = f"one {name} with these arguments"
        return Violated(said, state=new, witness=witness, instance=digest([name, made])[:8], wanted=wanted)

    return Contract(
        id=f"{tool_names}.no_duplicate_effect", step=step, start=_NO_TABLE, kinds=TOOL_CALLS,
        repair="send an idempotency key (name its parameter with idempotency=), or ask the service what happened before "
        f"calling {again} again",
        text=f"{tool_names} has the same effect at most once",
    )  # fmt: skip


_Table: TypeAlias = tuple[FrozenDict, FrozenDict, int]
"""Two mappings by key, and the number of keys. The second holds the latest BUFFERED entries and overrides the first."""
_NO_TABLE: Final[_Table] = (EMPTY, EMPTY, 0)


class _Seen(NamedTuple):
    """An effect in one currency: the step at which it happened last, and the first at which it may have happened, or -1."""

    units: tuple[str, ...]
    done: int
    unsure: int


@dataclass(frozen=True, slots=True)
class _Keyed:
    """Calls by idempotency key, and effects by key arguments."""

    calls: _Table = _NO_TABLE
    effects: _Table = _NO_TABLE


class _Sent(NamedTuple):
    """The first call with a key: its step, the digest of its other arguments, and their currencies."""

    step: int
    arguments: str
    units: tuple[str, ...]


class _Had(NamedTuple):
    """The latest call that had an effect (`sure`) or may have had it, and its idempotency key, "" for none."""

    step: int
    sure: bool
    key: str
    units: tuple[str, ...]


_KEYED: Final = _Keyed()


def _keyed(tools: tuple[str, ...], key_of: Callable[[Mapping[str, Any]], Any], parameter: str, *, whole: bool) -> Any:
    """The step function for idempotency keys. With `whole`, all arguments except the idempotency key identify an effect."""

    def step(state: _Keyed, record: Record) -> _Keyed | Violated:
        happened = effect_of(record) if record.action.name in tools else "no"
        if happened == "no":
            return state
        arguments = let_through(record)
        rest = _without(arguments, parameter)
        said, given = _digest(record.action.name, rest), _named(arguments, parameter)
        sent = "" if given is None or given == "" else digest([record.action.name, given])[:32]
        inside = given is not None and _spelling(arguments, parameter) is None
        effect = _digest(record.action.name, key_of(rest if whole or inside else arguments))
        units = currencies(rest)
        before: _Had | None = _lookup(state.effects, effect)
        before = before if before is None or currencies_agree(before.units, units) else None
        runs = record.invoked if happened == record.effected else 1
        sure = happened == "yes" or runs > 1
        first: _Sent | None = _lookup(state.calls, sent) if sent else None
        if first is not None:
            if first.arguments != said or not currencies_agree(first.units, units):
                return _reused_key(record, first, parameter)
            if sure and before is not None and not before.sure:
                return replace(state, effects=_put(state.effects, effect, before._replace(sure=True)))
            return state
        new = _Keyed(
            _put(state.calls, sent, _Sent(record.step, said, units)) if sent else state.calls,
            _put(state.effects, effect, _Had(record.step, sure or (before is not None and before.sure), sent, units)),
        )
        why, witness = _new_key_problem(record, before, runs, keyed=bool(sent), parameter=parameter)
        if not why:
            return new
        wanted = f"the same {parameter} in a retry, and no second {record.action.name} otherwise"
        return Violated(why, state=new, witness=witness, instance=effect[:8], wanted=wanted)

    return step


def _reused_key(record: Record, first: _Sent, parameter: str) -> Violated:
    return Violated(
        f"{record.action.name} at step {record.step} carries the {parameter} of step {first.step} with other arguments",
        witness=(first.step, record.step), instance=first.arguments[:8],
        wanted=f"a new {parameter} for another effect, or the arguments of step {first.step}",
    )  # fmt: skip


def _new_key_problem(
    record: Record, before: _Had | None, runs: int, *, keyed: bool, parameter: str
) -> tuple[str, tuple[int, ...]]:
    """What is wrong with a call whose key is new, and the steps that show it; "" if nothing is wrong."""
    name, parts, witness = record.action.name, [], [record.step]
    if before is not None:
        witness.insert(0, before.step)
        other = f"another {parameter}" if keyed else f"no {parameter}"
        done = "had" if before.sure else "may have had"
        sent = f"{name} at step {record.step}, sent with {other},"
        parts.append(f"{sent} repeats an effect that the call at step {before.step} {done}")
    if runs > 1 and not keyed:
        parts.append(f"the one call at step {record.step} ran {name} {runs} times without a {parameter}")
    return "; ".join(parts), tuple(witness)


def _effect_key(name: str, made: Any) -> Any:
    """The key of an effect: its values in normal form if they are few and short, otherwise a digest."""
    found = normal(made)
    if type(found) is not tuple:
        return name, _shortened(found)
    return (name, tuple(map(_shortened, found))) if len(found) <= _PARTS else digest([name, found])[:32]


def _shortened(part: Any) -> Any:
    """A normal form, or a named one, in which anything but a short text is replaced by its digest."""
    if type(part) is str:
        return part if len(part) <= _CHARS else (_text_digest(part),)
    if type(part) is tuple and len(part) == 2 and type(part[1]) is str:
        return part if len(part[1]) <= _CHARS else (part[0], (_text_digest(part[1]),))
    return (digest(part)[:32],)


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _digest(name: str, made: Any) -> str:
    """The digest of a call's values in normal form."""
    return digest([name, normal(made)])[:32]


def _lookup(known: _Table, key: Any) -> Any:
    found = known[1].get(key)
    return known[0].get(key) if found is None else found


def _put(known: _Table, key: Any, value: Any) -> _Table:
    older, latest, size = known
    if key not in latest and key not in older:
        if size >= MAX_EFFECTS:
            raise too_many(
                f"more than {MAX_EFFECTS} different effects in one trace", "judge shorter episodes, or give a coarser key="
            )
        size += 1
    if len(latest) < BUFFERED:
        return older, FrozenDict({**latest, key: value}), size
    return FrozenDict({**older, **latest, key: value}), EMPTY, size


def _repeat_problem(record: Record, done: int, unsure: int) -> tuple[str, tuple[int, ...]]:
    """What is wrong with this effect, and the steps that show it; "" if nothing is wrong."""
    name, parts, witness = record.action.name, [], [record.step]
    if done >= 0:
        parts.append(f"{name} had the same effect at steps {done} and {record.step}")
        witness.insert(0, done)
    if record.invoked > 1:
        parts.append(f"the one call at step {record.step} ran {name} {record.invoked} times")
    if parts and unsure >= 0:
        parts.append(f"the call at step {unsure} may have had it as well")
    return "; ".join(parts), tuple(witness)


def _key(key: EffectKey | None) -> Callable[[Mapping[str, Any]], Any]:
    if key is None:
        return dict
    if callable(key):
        return key
    names = names_of(key, "key")

    def named(arguments: Mapping[str, Any]) -> Any:
        found = [_named(arguments, name, MISSING) for name in names]
        missing = [name for name, value in zip(names, found, strict=True) if value is MISSING]
        if missing:
            raise SpecError(
                what=f"a call has no argument {', '.join(map(repr, missing))}; it has {', '.join(sorted(arguments)) or 'none'}",
                why="without these arguments two effects cannot be distinguished",
                fix="correct key=, or do not exclude the parameter from the record",
            )
        return found

    return named


def _named(arguments: Mapping[str, Any], name: str, default: Any = None) -> Any:
    """The argument of this name, or the member of one that a path such as "body.order" names."""
    spelling = _spelling(arguments, name)
    if spelling is not None:
        return arguments[spelling]
    return next((value for value in values_at(arguments, name) if value is not MISSING), default)


def _spelling(arguments: Mapping[str, Any], name: str) -> str | None:
    """The name as the call spells it: headers are recorded in lower case."""
    return next((each for each in (name, name.lower()) if each in arguments), None)


def _without(arguments: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The arguments without one of them, or without a member of one."""
    spelling = _spelling(arguments, name)
    head, _, rest = name.partition(".")
    if spelling is None and rest and isinstance(inner := arguments.get(head), Mapping):
        return {**arguments, head: _without(inner, rest)}
    return {each: value for each, value in arguments.items() if each != spelling}
