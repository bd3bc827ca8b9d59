"""Retries: few, spaced out, and never of a write whose outcome is unknown.

Source: F1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, Unpack

from mat.core import waits
from mat.core.errors import SpecError, plural
from mat.core.record import ActionKind, Record
from mat.core.value import EMPTY, FrozenDict
from mat.monitor.contract import Contract, Violated
from mat_contracts._outcome import effect_of, failed, reported_failure, wait_in_text_ms
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
    writes,
)
from mat_contracts._values import normal, normal_arguments
from mat_contracts.catalogue import Options, template

RequestKey: TypeAlias = str | Iterable[str] | Callable[[Mapping[str, Any]], Any]
"""What identifies a request among the calls of a port: the names of arguments, or a function of the arguments."""
TRANSIENT: Final = ("rate_limit", "timeout", "connection", "server_error")
"""Error kinds after which a later retry can help."""
_CALLS: Final[frozenset[ActionKind]] = frozenset(("tool_call", "retrieval", "model_call", "memory_read", "memory_write"))
_STATUS: Final = (429, 503)
"""HTTP statuses that ask to wait. A reply with another one resets the count."""


class _Chain(NamedTuple):
    """Attempts of a request whose latest failed: (step, ms when asked), oldest first, and the seal of the latest failure."""

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

    `port` limits the contract to these ports. Calls are equal if their port is equal, and their arguments or what `key`
    takes from the arguments; values written differently are equal ("A17" and " a17 "). The count includes the first call and
    the calls that follow a failure, whoever makes them. A success resets the count, so polling is no storm. A failure is an
    error of one of the kinds `errors`, by default of any kind including a block, or a cancellation, or the reply of a tool that
    reports a failure, such as `{"error": ...}`. A call that was asked before the failure was known is no retry. The default
    window is 20 steps. Every call beyond the limit is a violation.

    Raises `mat.MatError` for a count or a window below its minimum, and for two windows.

    Precision 1.00, recall 1.00 on 23 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> failed, done = record("tool_call", "track", {"id": 1}, error="timeout"), record("tool_call", "track", {"id": 1})
    >>> broken(no_retry_storm(times=2), trace(failed, done, failed))
    ()
    >>> broken(no_retry_storm(times=2), trace(failed, failed, done))
    (2,)

    Source: A2.F1.
    """
    count_of(times, "times", least=1)
    if within is not None and within_ms is not None:
        raise SpecError(what="both within= and within_ms= are given", why="the contract has one window", fix="give one of them")
    steps = 20 if within is None and within_ms is None else PastWindow.of(within, within_ms).steps
    ports, request_of = names_or_all(port, "port"), _request(key)
    kinds = None if errors is None else names_of(errors, "errors")
    window = plural(steps, "step") if steps is not None else f"{within_ms} ms"

    def recent(chain: _Chain, record: Record) -> _Chain:
        """The chain with only the attempts in the window that ends at this record; maybe none."""
        tries = chain.tries
        while tries and (
            record.step - tries[0][0] >= steps if steps is not None else record.at_ms - tries[0][1] > (within_ms or 0)
        ):
            tries = tries[1:]
        return chain if tries is chain.tries else chain._replace(tries=tries)

    def step(state: FrozenDict, record: Record) -> FrozenDict | Violated:
        port = record.action.name
        chains: tuple[_Chain, ...] = state.get(port, ())
        fails = (ports is None or port in ports) and failed(record, kinds)
        if not chains and not fails:
            return state
        request = request_of(record.action.arguments)
        if not fails:
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
        if fails:
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
            f"{port} was called {times + 1} times within {window}, and every call before the last failed",
            state=after, instance=port, witness=(*(at for at, _ in tries), record.step),
            wanted=f"at most {plural(times, 'call')} within {window}, then another way",
        )  # fmt: skip

    return Contract(
        id=f"{label_of(ports)}.no_retry_storm", step=step, start=EMPTY, kinds=_CALLS,
        repair="bound the retries and space them out; then use another service, ask for help, or end the run",
        text=f"a call that fails is made at most {plural(times, 'time')} within {window}",
    )  # fmt: skip


class _Wait(NamedTuple):
    """Consecutive failures of a port, and the seal of the latest. `stated_ms`: the wait that the latest asked for, or -1."""

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
    """After k failures in a row, a port is called again no earlier than it asks, or min(cap, base * factor^(k-1)) ms later.

    `port` limits the contract to these ports. Time is run time, from the seal of the failure to the next call. `base_ms`
    is the first wait, `factor` its growth, `cap_ms` the longest wait. A failure is an error of one of the kinds `errors`, or a
    reply that reports one of these kinds ("Rate limit exceeded") or the HTTP status 429 or 503; any other reply resets the
    count. If the failure states a
    wait, this wait is required to the millisecond: `retry_after_ms(record)` reads it. By default it is the reply's
    `retry_after`, `retry_after_s` or `retry_after_ms`, a `retry-after` in its `headers` (seconds or a date), or
    "retry after 5 s" in the error's text. `jitter` is the share of the computed wait by which a retry may come early, 1 for
    full jitter. Each agent waits after its own failures; at the ports `shared`, every agent waits after the failures of all.
    A call that was asked before the failure was known is no retry.

    Raises `mat.MatError` for times below 0, a `factor` below 1 and a `jitter` outside 0 to 1.

    Precision 1.00, recall 1.00 on 26 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace  # one record a second
    >>> failed, done = record("tool_call", "track", error="timeout"), record("tool_call", "track")
    >>> broken(backoff_respected(base_ms=1000), trace(failed, done))
    ()
    >>> broken(backoff_respected(base_ms=1000), trace(failed, failed, done))
    (2,)

    Source: A2.F1.
    """
    kinds, ports, common = names_of(errors, "errors"), names_or_all(port, "port"), frozenset(shared)
    milliseconds_of(base_ms, "base_ms")
    milliseconds_of(cap_ms, "cap_ms")
    if not isinstance(factor, int | float) or isinstance(factor, bool) or not 1 <= factor < float("inf"):
        raise SpecError(what=f"factor={factor!r} is not a growth factor", fix="give a number >= 1")
    if not isinstance(jitter, int | float) or isinstance(jitter, bool) or not 0 <= jitter <= 1:
        raise SpecError(what=f"jitter={jitter!r} is not a share", fix="give a number from 0 to 1")
    read_wait = retry_after_ms or _retry_after_ms

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
        if (seen.error is not None or isinstance(seen.value, dict | str)) and (ports is None or port in ports):
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
            stated_ms = read_wait(record)
            entry = _Wait(
                who, action.kind, port, min(failures, 1_000), record.step, record.sealed_ms, record.sealed_seq,
                -1 if stated_ms is None else stated_ms,
            )  # fmt: skip
            new = (*new, entry if wait is None or record.sealed_seq > wait.sealed_seq else wait)
        after = state if new is waits else put(state, port, new)
        if wait is None or not again or record.at_ms - wait.sealed_ms >= wanted_ms(wait):
            return after
        required = "its reply asked for a wait of"
        if wait.stated_ms < 0:
            required = f"after {_failure_count(wait.failures)}, the caller should wait"
        return Violated(
            f"{action.name} was called again {record.at_ms - wait.sealed_ms} ms after it failed at step {wait.step}; "
            f"{required} {wanted_ms(wait)} ms",
            state=after, instance=action.name, witness=(wait.step, record.step), wanted=f"a wait of {wanted_ms(wait)} ms",
        )  # fmt: skip

    return Contract(
        id=f"{label_of(ports)}.backoff_respected", step=step, start=EMPTY, kinds=_CALLS,
        repair="before calling again, wait as long as the service asks, or longer after every failure",
        text=f"after a failure the next call waits, {base_ms} ms at first, or as long as the service asks",
    )  # fmt: skip


class _Tried(NamedTuple):
    """A request that has not succeeded yet: its attempts, and the step at which its outcome became unknown, or -1."""

    agent: str
    kind: str
    port: str
    request: Any
    times: int
    steps: tuple[int, ...]
    sealed_seq: int
    unknown: int


_Requests: TypeAlias = tuple[FrozenDict, bool] | tuple[()]
"""(requests that have not succeeded, by port; whether the outcome of one is unknown), or empty if there are none."""


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
    """A request is tried at most `attempts` times, and a write with an unknown outcome is checked before it is tried again.

    `port` limits the contract to these ports. A request is all calls of one agent to one port with the same arguments,
    or with the same `key`. It ends when it succeeds, or when it is not tried again within `forget_after` steps. Each attempt
    beyond the limit is a violation.

    The outcome of a write (`effect="write"`, or undeclared: see `mat_contracts._shared.writes`) is unknown if it failed after
    the port was invoked, or if its reply reports a time-out or a failure of the server. After any other reported failure
    nothing was written. The write may be tried again after a check by the same agent that does not fail: a verification, or a
    tool that reads; for a memory, a read of it.
    `checks` names what counts as a check instead. Ports in `idempotent`, and calls with the argument `idempotency_key`, need no
    check.

    Raises `mat.MatError` for a count below its minimum and an empty name.

    Precision 1.00, recall 1.00 on 27 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> lost = record("tool_call", "pay", {"order": 7}, error="timeout", effect="write")
    >>> look, paid = record("verification", "paid?"), record("tool_call", "pay", {"order": 7}, effect="write")
    >>> broken(retries_bounded("pay"), trace(lost, look, paid))
    ()
    >>> broken(retries_bounded("pay"), trace(lost, paid))
    (1,)

    Source: A2.F1.
    """
    count_of(attempts, "attempts", least=1)
    count_of(forget_after, "forget_after", least=1)
    ports, request_of, safe = names_or_all(port, "port"), _request(key), any_names(idempotent, "idempotent")
    check_names = names_or_all(checks, "checks")

    def live(item: _Tried, record: Record) -> bool:
        return record.step - item.steps[-1] <= forget_after

    def step(state: _Requests, record: Record) -> _Requests | Violated:
        requests, unknown = state or _NO_REQUESTS
        action = record.action
        port = action.name
        if unknown and not failed(record) and (check_names is None or port in check_names):
            state = requests, unknown = _apply_check(requests, record, check_names)
        tried_here: tuple[_Tried, ...] = requests.get(port, ())
        fails = action.kind in _CALLS and (ports is None or port in ports) and failed(record)
        if (not tried_here and not fails) or action.kind not in _CALLS:
            return state
        request = request_of(action.arguments)
        tried = None
        for item in tried_here:
            if item.agent == record.agent and item.kind == action.kind and item.request == request and live(item, record):
                tried = item
                break
        if tried is None and not fails:
            return state
        again = tried is not None and tried.sealed_seq < record.asked_seq
        new = tried_here if tried is not None and not again else tuple(item for item in tried_here if item is not tried)
        if fails:
            requests = _pruned(requests, port, lambda item: live(item, record))
            others = (item for item in tried_here if item is not tried and live(item, record))
            new = (*others, _add_attempt(tried, record, request, attempts, named=ports is not None))
        if new is not tried_here:
            requests = put(requests, port, new)
            unknown = any(item.unknown >= 0 for items in requests.values() for item in items)
            state = (requests, unknown) if requests else ()
        found: list[Violated] = []
        if tried is not None and again:
            found = _excess(tried, record, attempts)
            guarded = port in safe or bool(action.arguments.get(idempotency_key))
            if tried.unknown >= 0 and writes(action, named=ports is not None) and not guarded:
                found.append(_unchecked_repeat(tried, record))
        return judged(found, state)

    return Contract(
        id=f"{label_of(ports)}.retries_bounded", step=step, start=(), kinds=_CALLS | {"verification"},
        repair="after the last attempt use another way or give up; before you repeat a lost write, check what it did",
        text=f"at most {attempts} attempts per request, and a write of unknown outcome is checked before it is tried again",
    )  # fmt: skip


_NO_REQUESTS: Final = (EMPTY, False)


def _apply_check(requests: FrozenDict, record: Record, check_names: tuple[str, ...] | None) -> tuple[FrozenDict, bool]:
    """The requests after a check, and whether the outcome of one is still unknown."""
    found, unknown = {}, False
    for port, items in requests.items():
        settled = tuple(item._replace(unknown=-1) if _settles(item, record, check_names) else item for item in items)
        unknown = unknown or any(item.unknown >= 0 for item in settled)
        if any(new is not old for new, old in zip(settled, items, strict=True)):
            found[port] = settled
    return FrozenDict({**requests, **found}) if found else requests, unknown


def _excess(tried: _Tried, record: Record, attempts: int) -> list[Violated]:
    if tried.times < attempts:
        return []
    return [
        Violated(
            f"{tried.port} was tried {plural(tried.times + 1, 'time')} for one request; the limit is {attempts}",
            instance=tried.port, witness=(*tried.steps, record.step), wanted=f"another way after {attempts} attempts",
        )
    ]  # fmt: skip


def _unchecked_repeat(tried: _Tried, record: Record) -> Violated:
    message = f"{tried.port} failed at step {tried.unknown} with an unknown outcome"
    return Violated(
        f"{message} and was repeated at step {record.step} without a check",
        instance=tried.port, witness=(tried.unknown, record.step),
        wanted=f"a check of what step {tried.unknown} did, or an idempotency key",
    )  # fmt: skip


def _add_attempt(tried: _Tried | None, record: Record, request: Any, attempts: int, *, named: bool) -> _Tried:
    action = record.action
    unknown = record.step if effect_of(record) == "unknown" and writes(action, named=named) else -1
    if tried is None:
        return _Tried(record.agent, action.kind, action.name, request, 1, (record.step,), record.sealed_seq, unknown)
    return tried._replace(
        times=tried.times + 1, steps=(*tried.steps, record.step)[-attempts:],
        sealed_seq=max(tried.sealed_seq, record.sealed_seq), unknown=tried.unknown if unknown < 0 else unknown,
    )  # fmt: skip


def _settles(item: _Tried, record: Record, check_names: tuple[str, ...] | None) -> bool:
    """Whether a check settles the outcome of a request: a failure that the agent knew of before it asked.

    Without `check_names`, only a verification or a read of the right kind counts.
    """
    if item.unknown < 0 or item.agent != record.agent or item.sealed_seq >= record.asked_seq:
        return False
    kind = record.action.kind
    if kind == "verification" or check_names is not None:
        return True
    if item.kind == "memory_write":
        return kind == "memory_read" and record.action.name == item.port
    return kind == "tool_call" and record.action.effect != "none" and not writes(record.action, named=False)


# -- calls and failures ---------------------------------------------------------------------------------------------------


def _transient(record: Record, kinds: tuple[str, ...]) -> str:
    """The kind of a failure that requires a wait, or "" if the call did not fail like that."""
    error = record.observation.error
    if error is not None:
        return error.kind if error.kind in kinds else ""
    found = None if record.observation.value is None else reported_failure(record.observation.value)
    if found is None or (found.status and found.status not in _STATUS):
        return ""
    return found.kind if found.kind in kinds else ""


def _retry_after_ms(record: Record) -> int | None:
    """The wait that a failure asks for, in milliseconds, or None."""
    error, value = record.observation.error, record.observation.value
    if isinstance(value, Mapping):
        headers = value.get("headers")
        folded = {str(name).casefold(): item for name, item in headers.items()} if isinstance(headers, Mapping) else {}
        candidates = (
            (value.get("retry_after_ms"), 1), (value.get("retry_after_s"), 1000), (value.get("retry_after"), 1000),
            (folded.get("retry-after-ms"), 1), (folded.get("retry-after"), 1000),
        )  # fmt: skip
        for found, unit in candidates:
            wait = _number(found)
            if wait is not None:
                return round(wait * unit)
        dated = waits.retry_after_ms(folded.get("retry-after"), at_ms=record.sealed_ms, sent=folded.get("date"))
        if dated is not None:
            return dated
    if error is None:
        return None
    if error.retry_after_ms is not None:
        return error.retry_after_ms
    return wait_in_text_ms(error.message)


def _number(value: object) -> float | None:
    if isinstance(value, str) and re.fullmatch(r"\s*\d+(\.\d+)?\s*", value):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        return None
    return float(value)


def _pruned(state: FrozenDict, port: str, is_live: Callable[[Any], bool]) -> FrozenDict:
    """The state without the entries of other ports that no longer matter. Called when the state grows, to keep it small."""
    kept = {name: items if name == port else tuple(filter(is_live, items)) for name, items in state.items()}
    return FrozenDict({name: items for name, items in kept.items() if items})


def _same(item: _Chain | _Tried, record: Record, request: Any) -> bool:
    return item.port == record.action.name and item.kind == record.action.kind and bool(item.request == request)


def _request(key: RequestKey | None) -> Callable[[Mapping[str, Any]], Any]:
    """A function that returns what identifies a request in its arguments, in normal form. A missing one counts as None."""
    if key is None:
        return normal_arguments
    if callable(key):
        return lambda arguments: normal(key(arguments))
    names = names_of(key, "key")
    return lambda arguments: tuple(normal(arguments.get(name)) for name in names)


def _failure_count(count: int) -> str:
    return "one failure" if count == 1 else f"{count} failures"
