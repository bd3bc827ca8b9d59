"""Retries (F1): few, spaced out, and never of a write whose outcome nobody knows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, Unpack

from mat.core.errors import SpecError
from mat.core.record import ActionKind, Record
from mat.core.value import EMPTY, FrozenDict
from mat.monitor.contract import Contract, Violated
from mat_contracts._shared import (
    PastWindow,
    any_names,
    count_of,
    judged,
    label_of,
    milliseconds_of,
    names_of,
    names_or_all,
    put,
)
from mat_contracts.catalogue import Options, template

RequestKey: TypeAlias = str | Iterable[str] | Callable[[Mapping[str, Any]], Any]
"""What makes two calls of a port one request: the names of arguments, or a function of them."""
TRANSIENT: Final = ("rate_limit", "timeout", "connection", "server_error")
"""Error kinds after which trying again later can help."""
_CALLS: Final[frozenset[ActionKind]] = frozenset(("tool_call", "retrieval", "model_call", "memory_read", "memory_write"))
_STATUS: Final[Mapping[int, str]] = {429: "rate_limit", 503: "server_error"}
"""HTTP statuses that a reply may state in place of an error."""
_UNITS: Final[Mapping[str, int]] = {"": 1000, "s": 1000, "sec": 1000, "secs": 1000, "second": 1000, "seconds": 1000, "ms": 1}
_SAID: Final = re.compile(
    r"(?:retry|try again)[ _-]?(?:after|in)\"?'?[\s:=]+(\d+(?:\.\d+)?)\s*(ms|seconds?|secs?|s)?\b", re.IGNORECASE
)


class _Chain(NamedTuple):
    """Attempts of one request whose latest failed: (step, ms when asked), oldest first, and when that failure was known."""

    kind: str
    port: str
    request: Any
    tries: tuple[tuple[int, int], ...]
    sealed_seq: int


@template
def no_retry_storm(
    port: str | Iterable[str] | None = None,
    *,
    times: int = 3,
    within: int | None = None,
    within_ms: int | None = None,
    key: RequestKey | None = None,
    errors: str | Iterable[str] | None = None,
    **options: Unpack[Options],
) -> Contract:
    """A call that fails is made at most `times` times in any `within` steps (or `within_ms` milliseconds of run time).

    A2.F1. Calls are the same where their port and arguments are, or what `key` takes of the arguments. Counted are the
    first call and those after it that follow a failure, whoever makes them; a success ends the count, so that polling is no
    storm. A failure is an error of any kind, a block included, or of the kinds `errors`; a cancelled call counts. Calls that
    were asked before the failure was known are no retries. `within` is 20 steps where neither window is given. Every
    call too many is a violation.

    >>> from mat_contracts.traces import broken, record, trace
    >>> failed, done = record("tool_call", "track", {"id": 1}, error="timeout"), record("tool_call", "track", {"id": 1})
    >>> broken(no_retry_storm(times=2), trace(failed, done, failed))
    ()
    >>> broken(no_retry_storm(times=2), trace(failed, failed, done))
    (2,)
    """
    count_of(times, "times", least=1)
    if within is not None and within_ms is not None:
        raise SpecError(what="both within= and within_ms= are given", why="a storm has one window", fix="give one of them")
    steps = 20 if within is None and within_ms is None else PastWindow.of(within, within_ms).steps
    ports, request_of = names_or_all(port, "port"), _request(key)
    kinds = None if errors is None else names_of(errors, "errors")
    window = f"{steps} steps" if steps is not None else f"{within_ms} ms"

    def recent(chain: _Chain, record: Record) -> _Chain:
        """The chain with the attempts that a window which ends at this record still holds; none where it is over."""
        tries = chain.tries
        while tries and (
            record.step - tries[0][0] >= steps if steps is not None else record.at_ms - tries[0][1] > (within_ms or 0)
        ):
            tries = tries[1:]
        return chain if tries is chain.tries else chain._replace(tries=tries)

    def step(state: FrozenDict, record: Record) -> FrozenDict | Violated:
        port, seen = record.action.name, record.observation
        chains: tuple[_Chain, ...] = state.get(port, ())
        if not chains and seen.error is None and not seen.cancelled:
            return state
        failed = (ports is None or port in ports) and _failed(record, kinds)
        if not chains and not failed:
            return state
        request = request_of(record.action.arguments)
        if not failed:
            for chain in chains:
                if chain.request == request and chain.kind == record.action.kind:
                    break
            else:
                return state
        live = tuple(chain for chain in (recent(old, record) for old in chains) if chain.tries)
        before = next((chain for chain in live if _same(chain, record, request)), None)
        others = tuple(chain for chain in live if chain is not before)
        retried = before is not None and before.sealed_seq < record.asked_seq
        tries = before.tries if before is not None else ()
        new = others
        if failed:
            sealed = record.sealed_seq if before is None else max(record.sealed_seq, before.sealed_seq)
            latest = (*tries, (record.step, record.at_ms))[-times:] if retried or before is None else tries
            new = (*others, _Chain(record.action.kind, port, request, latest, sealed))
            state = _pruned(state, port, lambda chain: bool(recent(chain, record).tries))
        elif before is not None and not retried:
            new = live
        after = put(state, port, new)
        if not retried or len(tries) < times:
            return after
        return Violated(
            f"{port} was called {times + 1} times within {window}, each time after a failure",
            state=after, instance=port, witness=(*(at for at, _ in tries), record.step),
            wanted=f"at most {times} calls within {window}, or another way after the last failure",
        )  # fmt: skip

    return Contract(
        id=f"{label_of(ports)}.no_retry_storm", step=step, start=EMPTY, kinds=_CALLS,
        repair="bound the retries and space them out; then use another service, ask, or end the run",
        text=f"a call that fails is made at most {times} times within {window}",
    )  # fmt: skip


class _Wait(NamedTuple):
    """Failures in a row of one port, and since when the latest is known. `stated_ms`: the wait it asked for, or -1."""

    agent: str
    kind: str
    port: str
    failures: int
    step: int
    sealed_ms: int
    sealed_seq: int
    stated_ms: int


@template
def backoff_respected(
    port: str | Iterable[str] | None = None,
    *,
    base_ms: int = 1_000,
    factor: float = 2.0,
    cap_ms: int = 60_000,
    jitter: float = 0.0,
    errors: str | Iterable[str] = TRANSIENT,
    retry_after_ms: Callable[[Record], int | None] | None = None,
    shared: Iterable[str] = (),
    **options: Unpack[Options],
) -> Contract:
    """A port that failed k times in a row is called again no earlier than it said, or min(cap, base * factor^(k-1)) ms later.

    A2.F1. Time is run time, from when the failure was known to when the next call was asked. A failure is an error of the
    kinds `errors`, or a reply with the HTTP status 429 or 503 (`status`, `status_code`); a call that does not fail so begins
    anew. Where the failure states a wait, that one holds, to the millisecond: `retry_after_ms(record)`; by default the
    reply's `retry_after`, `retry_after_s` or `retry_after_ms`, a `retry-after` among its `headers` (seconds; dates are not
    read), or "retry after 5 s" in the error's text. `jitter` is the share of the
    computed wait by which a retry may come early, 1 for full jitter. Each agent waits for its own failures; at the ports
    `shared`, any agent for any. Calls asked before the failure was known are no retries.

    >>> from mat_contracts.traces import broken, record, trace  # one record a second
    >>> failed, done = record("tool_call", "track", error="timeout"), record("tool_call", "track")
    >>> broken(backoff_respected(base_ms=1000), trace(failed, done))
    ()
    >>> broken(backoff_respected(base_ms=1000), trace(failed, failed, done))
    (2,)
    """
    kinds, ports, common = names_of(errors, "errors"), names_or_all(port, "port"), frozenset(shared)
    milliseconds_of(base_ms, "base_ms")
    milliseconds_of(cap_ms, "cap_ms")
    if not isinstance(factor, int | float) or isinstance(factor, bool) or not 1 <= factor < float("inf"):
        raise SpecError(what=f"factor={factor!r} is not a factor of growth", fix="give a number >= 1")
    if not isinstance(jitter, int | float) or isinstance(jitter, bool) or not 0 <= jitter <= 1:
        raise SpecError(what=f"jitter={jitter!r} is not a share", fix="give a number from 0 to 1")
    stated = retry_after_ms or _retry_after_ms

    def wanted_ms(wait: _Wait) -> int:
        if wait.stated_ms >= 0:
            return wait.stated_ms
        grown: float = base_ms
        for _ in range(wait.failures - 1):
            if grown >= cap_ms or factor == 1:
                break
            grown *= factor
        return int(min(cap_ms, grown) * (1 - jitter))

    def step(state: FrozenDict, record: Record) -> FrozenDict | Violated:
        action, seen = record.action, record.observation
        port, waits = action.name, state.get(action.name, ())
        kind = ""
        if (seen.error is not None or isinstance(seen.value, dict)) and (ports is None or port in ports):
            kind = _transient(record, kinds)
        if not waits and not kind:
            return state
        who, wait = "" if port in common else record.agent, None
        for item in waits:
            if item.agent == who and item.kind == action.kind:
                wait = item
        if wait is None and not kind:
            return state
        again = wait is not None and wait.sealed_seq < record.asked_seq
        new = tuple(item for item in waits if item is not wait) if again or wait is None or kind else waits
        if kind:
            failures = 1 if wait is None else wait.failures + again
            told = stated(record)
            entry = _Wait(
                who, action.kind, port, min(failures, 1_000), record.step, record.sealed_ms, record.sealed_seq,
                -1 if told is None else told,
            )  # fmt: skip
            new = (*new, entry if wait is None or record.sealed_seq > wait.sealed_seq else wait)
        after = state if new is waits else put(state, port, new)
        if wait is None or not again or record.at_ms - wait.sealed_ms >= wanted_ms(wait):
            return after
        said = "it had asked for" if wait.stated_ms >= 0 else f"are due after {_failures(wait.failures)}"
        return Violated(
            f"{action.name} was called again {record.at_ms - wait.sealed_ms} ms after it failed at step {wait.step}; "
            f"{wanted_ms(wait)} ms {said}",
            state=after, instance=action.name, witness=(wait.step, record.step), wanted=f"a wait of {wanted_ms(wait)} ms",
        )  # fmt: skip

    return Contract(
        id=f"{label_of(ports)}.backoff_respected", step=step, start=EMPTY, kinds=_CALLS,
        repair="wait as long as the service says, or longer after every failure, before calling again",
        text=f"after a failure the next call waits, {base_ms} ms at first, or as long as the service says",
    )  # fmt: skip


class _Tried(NamedTuple):
    """A request that has not succeeded: the steps of its attempts, how many, and where its outcome became unknown, or -1."""

    agent: str
    kind: str
    port: str
    request: Any
    times: int
    steps: tuple[int, ...]
    sealed_seq: int
    unknown: int


_Requests: TypeAlias = tuple[FrozenDict, bool] | tuple[()]
"""Requests that have not succeeded, by port, and whether the outcome of one is unknown; empty where there are none."""


@template
def retries_bounded(
    port: str | Iterable[str] | None = None,
    *,
    attempts: int = 3,
    key: RequestKey | None = None,
    checks: str | Iterable[str] | None = None,
    idempotent: str | Iterable[str] = (),
    idempotency_key: str = "idempotency_key",
    forget_after: int = 200,
    **options: Unpack[Options],
) -> Contract:
    """A request is tried at most `attempts` times, and a write whose outcome is unknown not again before it was checked.

    A2.F1. A request is the calls of one agent to one port with the same arguments, or the same `key`; it is over when it
    succeeds, or is not tried again within `forget_after` steps. Each attempt too many is a violation.

    A write (`effect="write"`) has an unknown outcome where it failed after the port was invoked. It may be tried again after
    a check by its agent: a verification, or a tool that reads (of a memory: a read of it) and does not fail; what is called
    `checks` where that is given. Ports named in `idempotent`, and calls that carry an argument `idempotency_key`, need none.

    >>> from mat_contracts.traces import broken, record, trace
    >>> lost = record("tool_call", "pay", {"order": 7}, error="timeout", effect="write")
    >>> look, paid = record("verification", "paid?"), record("tool_call", "pay", {"order": 7}, effect="write")
    >>> broken(retries_bounded("pay"), trace(lost, look, paid))
    ()
    >>> broken(retries_bounded("pay"), trace(lost, paid))
    (1,)
    """
    count_of(attempts, "attempts", least=1)
    count_of(forget_after, "forget_after", least=1)
    ports, request_of, safe = names_or_all(port, "port"), _request(key), any_names(idempotent, "idempotent")
    looks = names_or_all(checks, "checks")

    def live(item: _Tried, record: Record) -> bool:
        return record.step - item.steps[-1] <= forget_after

    def step(state: _Requests, record: Record) -> _Requests | Violated:
        requests, unknown = state or _NO_REQUESTS
        action, seen = record.action, record.observation
        port = action.name
        if unknown and seen.error is None and not seen.cancelled and (looks is None or port in looks):
            state = requests, unknown = _looked(requests, record, looks)
        tried_here: tuple[_Tried, ...] = requests.get(port, ())
        if not tried_here and seen.error is None and not seen.cancelled:
            return state
        failed = action.kind in _CALLS and (ports is None or port in ports) and _failed(record, None)
        if (not tried_here and not failed) or action.kind not in _CALLS:
            return state
        request = request_of(action.arguments)
        tried = None
        for item in tried_here:
            if item.agent == record.agent and item.kind == action.kind and item.request == request and live(item, record):
                tried = item
                break
        if tried is None and not failed:
            return state
        again = tried is not None and tried.sealed_seq < record.asked_seq
        new = tried_here if tried is not None and not again else tuple(item for item in tried_here if item is not tried)
        if failed:
            requests = _pruned(requests, port, lambda item: live(item, record))
            others = (item for item in tried_here if item is not tried and live(item, record))
            new = (*others, _tried_again(tried, record, request, attempts))
        if new is not tried_here:
            requests = put(requests, port, new)
            unknown = any(item.unknown >= 0 for items in requests.values() for item in items)
            state = (requests, unknown) if requests else ()
        found: list[Violated] = []
        if tried is not None and again:
            found = _too_many(tried, record, attempts)
            guarded = port in safe or bool(action.arguments.get(idempotency_key))
            if tried.unknown >= 0 and action.effect == "write" and not guarded:
                found.append(_unchecked(tried, record))
        return judged(found, state)

    return Contract(
        id=f"{label_of(ports)}.retries_bounded", step=step, start=(), kinds=_CALLS | {"verification"},
        repair="after the last attempt use another way or give up; look up what a lost write did before repeating it",
        text=f"at most {attempts} attempts a request, and a write of unknown outcome is checked before it is tried again",
    )  # fmt: skip


_NO_REQUESTS: Final = (EMPTY, False)


def _looked(requests: FrozenDict, record: Record, looks: tuple[str, ...] | None) -> tuple[FrozenDict, bool]:
    """After a check: what it settles is known."""
    found, unknown = {}, False
    for port, items in requests.items():
        settled = tuple(item._replace(unknown=-1) if _settles(item, record, looks) else item for item in items)
        unknown = unknown or any(item.unknown >= 0 for item in settled)
        if any(new is not old for new, old in zip(settled, items, strict=True)):
            found[port] = settled
    return FrozenDict({**requests, **found}) if found else requests, unknown


def _too_many(tried: _Tried, record: Record, attempts: int) -> list[Violated]:
    if tried.times < attempts:
        return []
    return [
        Violated(
            f"{tried.port} was tried {tried.times + 1} times for one request, {attempts} are allowed",
            instance=tried.port, witness=(*tried.steps, record.step), wanted=f"another way after {attempts} attempts",
        )
    ]  # fmt: skip


def _unchecked(tried: _Tried, record: Record) -> Violated:
    return Violated(
        f"{tried.port} failed at step {tried.unknown} with an unknown outcome and was repeated at step {record.step} unchecked",
        instance=tried.port, witness=(tried.unknown, record.step),
        wanted=f"a look at what step {tried.unknown} has done, or an idempotency key",
    )  # fmt: skip


def _tried_again(tried: _Tried | None, record: Record, request: Any, attempts: int) -> _Tried:
    action = record.action
    unknown = record.step if action.effect == "write" and record.effected == "unknown" else -1
    if tried is None:
        return _Tried(record.agent, action.kind, action.name, request, 1, (record.step,), record.sealed_seq, unknown)
    return tried._replace(
        times=tried.times + 1, steps=(*tried.steps, record.step)[-attempts:],
        sealed_seq=max(tried.sealed_seq, record.sealed_seq), unknown=tried.unknown if unknown < 0 else unknown,
    )  # fmt: skip


def _settles(item: _Tried, record: Record, looks: tuple[str, ...] | None) -> bool:
    """A check speaks of what its own agent had seen fail before it asked; without `looks` it reads what was written to."""
    if item.unknown < 0 or item.agent != record.agent or item.sealed_seq >= record.asked_seq:
        return False
    kind = record.action.kind
    if kind == "verification" or looks is not None:
        return True
    if item.kind == "memory_write":
        return kind == "memory_read" and record.action.name == item.port
    return kind == "tool_call" and record.action.effect == "read"


# -- calls and failures ---------------------------------------------------------------------------------------------------


def _failed(record: Record, kinds: tuple[str, ...] | None) -> bool:
    error = record.observation.error
    if error is None:
        return record.observation.cancelled and kinds is None
    return kinds is None or error.kind in kinds


def _transient(record: Record, kinds: tuple[str, ...]) -> str:
    """The kind of a failure after which one waits, "" where there is none."""
    error, value = record.observation.error, record.observation.value
    if error is not None:
        return error.kind if error.kind in kinds else ""
    if isinstance(value, dict):
        for status in (value.get("status_code"), value.get("status")):
            if type(status) is int and (kind := _STATUS.get(status, "")) in kinds:
                return kind
    return ""


def _retry_after_ms(record: Record) -> int | None:
    """The wait that a failure states, in milliseconds; None where it states none."""
    error, value = record.observation.error, record.observation.value
    if isinstance(value, Mapping):
        headers = value.get("headers")
        folded = {str(name).casefold(): item for name, item in headers.items()} if isinstance(headers, Mapping) else {}
        given = (
            (value.get("retry_after_ms"), 1), (value.get("retry_after_s"), 1000), (value.get("retry_after"), 1000),
            (folded.get("retry-after-ms"), 1), (folded.get("retry-after"), 1000),
        )  # fmt: skip
        for found, unit in given:
            wait = _number(found)
            if wait is not None:
                return round(wait * unit)
    if error is None:
        return None
    if error.retry_after_ms is not None:
        return error.retry_after_ms
    said = _SAID.search(error.message)
    return None if said is None else round(float(said[1]) * _UNITS[(said[2] or "").lower()])


def _number(value: object) -> float | None:
    if isinstance(value, str) and re.fullmatch(r"\s*\d+(\.\d+)?\s*", value):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        return None
    return float(value)


def _pruned(state: FrozenDict, port: str, is_live: Callable[[Any], bool]) -> FrozenDict:
    """The state without what the other ports keep and will not ask for again; done where it grows, so that it stays small."""
    kept = {name: items if name == port else tuple(filter(is_live, items)) for name, items in state.items()}
    return FrozenDict({name: items for name, items in kept.items() if items})


def _same(item: _Chain | _Tried, record: Record, request: Any) -> bool:
    return item.port == record.action.name and item.kind == record.action.kind and bool(item.request == request)


def _request(key: RequestKey | None) -> Callable[[Mapping[str, Any]], Any]:
    """What of the arguments identifies a request. An argument that a call lacks reads as None."""
    if key is None:
        return lambda arguments: arguments
    if callable(key):
        return key
    names = names_of(key, "key")
    return lambda arguments: tuple(arguments.get(name) for name in names)


def _failures(count: int) -> str:
    return "one failure" if count == 1 else f"{count} failures"
