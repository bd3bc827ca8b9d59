"""Contracts on how an agent uses a service: requested waits, announced downtime, limits, sagas, idempotency, no shortcuts.

The contracts judge calls of any port, and read HTTP exchanges of ports that make HTTP requests (see `Exchange`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, Unpack

from mat.core.allowed import Allowed, describe, is_range, within
from mat.core.digest import digest
from mat.core.errors import SpecError
from mat.core.record import Record
from mat.core.value import EMPTY, FrozenDict
from mat.core.waits import retry_after_ms
from mat.monitor.contract import Contract, Violated
from mat_contracts._outcome import failure_of, wait_in_text_ms
from mat_contracts._shared import all_of, count_of, milliseconds_of, names_of, one_of, short
from mat_contracts._shared import label as joined
from mat_contracts._values import allows, number_of
from mat_contracts.catalogue import Options, template
from mat_contracts.observation.artifacts import checked_label
from mat_contracts.observation.calls import Exchange, On, SelectedCalls, status_of
from mat_contracts.observation.labels import OTHER

Announced: TypeAlias = Callable[[Record], "tuple[int, int] | None"]
"""A record -> the (first, last + 1) millisecond of run time of a downtime that its reply announces, or None."""
_LIMITED: Final = (429,)
_DOWN: Final = (503,)
_REMEMBERED: Final = 256
"""How many of the latest keys and requests are remembered."""


class _Quiet(NamedTuple):
    """A requested wait: until when, at which step it was requested, and the seal of that step."""

    until_ms: int
    step: int
    sealed_seq: int


def stated_wait_ms(record: Record) -> int | None:
    """The wait that a reply or an error asks for, in milliseconds, or None.

    It is read from the error (see ErrorFact) or its text ("retry after 5 s"), or from the reply's header `Retry-After`, or its
    `retry_after`: seconds, or a date (see `mat.core.waits`), which counts from the header `Date`.

    `record`: of the call that was answered.

    >>> from mat_contracts.observation import stated_wait_ms
    >>> from mat_contracts.traces import record
    >>> stated_wait_ms(record("tool_call", "get", value={"status": 429, "headers": {"retry-after": "2"}}))
    2000

    Source: D1; RFC 9110, section 10.2.3.
    """
    error, value = record.observation.error, record.observation.value
    if error is not None:
        return wait_in_text_ms(error.message) if error.retry_after_ms is None else error.retry_after_ms
    if not isinstance(value, Mapping):
        return None
    given = value.get("headers")
    headers = {str(name).lower(): item for name, item in given.items()} if isinstance(given, Mapping) else {}
    stated = headers.get("retry-after", value.get("retry_after"))
    return retry_after_ms(stated, at_ms=record.sealed_ms, sent=headers.get("date"))


@template
def backoff_respected(
    on: On = None,
    *,
    statuses: Collection[int] = (*_LIMITED, *_DOWN),
    scope: str = "path",
    label: str = "BACKOFF_VIOLATION",
    **options: Unpack[Options],
) -> Contract:
    """After a refusal that states a wait (Retry-After; RFC 9110, 10.2.3), no call goes to the same place until it is over.

    `on`: the calls that are judged. A refusal is an error that states a wait, or a reply with one of the HTTP `statuses` that
    does. `scope`: the place that must be left alone, the "path" of a URL (without a URL: the port) or the whole "selection".
    For waits that no reply states, see `mat_contracts.backoff_respected`.

    Raises `mat.MatError` for an unknown scope or label.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace  # one record a second
    >>> refused = record("tool_call", "get", value={"status": 429, "headers": {"retry-after": "2"}})
    >>> get, other = record("tool_call", "get"), record("tool_call", "other")
    >>> broken(backoff_respected(), trace(refused, other, get))
    ()
    >>> broken(backoff_respected(), trace(refused, get, get))
    (1,)

    Source: D1; RFC 9110, section 10.2.3.
    """
    one_of(scope, "scope", ("path", "selection"))
    selected = SelectedCalls(on)

    def place(record: Record) -> str:
        if scope == "selection":
            return "*"
        found = selected.exchange(record)
        return record.action.name if found is None else f"{found.url.partition('//')[2].partition('/')[0]}{found.path}"

    def step(quiet: FrozenDict, record: Record) -> FrozenDict | Violated:
        if selected(record) is None:
            return quiet
        where = place(record)
        asked: _Quiet | None = quiet.get(where)
        early = asked is not None and asked.sealed_seq < record.asked_seq and record.at_ms < asked.until_ms
        refused = record.observation.error is not None or status_of(record) in statuses
        wait = stated_wait_ms(record) if refused else None
        if any(item.until_ms <= record.at_ms for item in quiet.values()):
            quiet = FrozenDict({name: item for name, item in quiet.items() if item.until_ms > record.at_ms})
        if wait is not None and record.invoked:
            new = _Quiet(record.sealed_ms + wait, record.step, record.sealed_seq)
            quiet = FrozenDict({**quiet, where: new if asked is None or new.until_ms > asked.until_ms else asked})
        if not early or asked is None:
            return quiet
        left = (asked.until_ms - record.at_ms) / 1000
        what = "a selected call was made" if scope == "selection" else f"{where} was called again"
        return Violated(
            f"{what} {left:g} s before the requested wait was over", state=quiet,
            witness=(asked.step,), repair="wait as long as Retry-After says", label=label,
        )  # fmt: skip

    label = checked_label(label)
    return _contract("backoff_respected", selected, step, EMPTY, label, text="requested waits are respected")


@template
def within_rate(on: On = None, *, calls: int, per_ms: int, label: str = "RATE_LIMITED", **options: Unpack[Options]) -> Contract:
    """At most `calls` calls are made in any `per_ms` milliseconds of run time: a limit that the agent knows (RFC 6585, 4).

    Raises `mat.MatError` for a count or a time below 1, and for an unknown label.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace  # one record a second
    >>> get = record("tool_call", "get")
    >>> broken(within_rate(calls=2, per_ms=2500), trace(get, get))
    ()
    >>> broken(within_rate(calls=2, per_ms=2500), trace(get, get, get, get))
    (2, 3)

    Source: D1; RFC 6585, section 4.
    """
    count_of(calls, "calls", least=1)
    milliseconds_of(per_ms, "per_ms", least=1)
    selected = SelectedCalls(on)

    def step(times: tuple[int, ...], record: Record) -> tuple[int, ...] | Violated:
        if selected(record) is None or record.blocked:
            return times
        recent = tuple(at for at in times if at > record.at_ms - per_ms)
        new = (*recent, record.at_ms)[-calls:]
        if len(recent) < calls:
            return new
        return Violated(
            f"{calls + 1} calls within {per_ms} ms; {calls} are allowed", state=new, repair="spread the calls", label=label
        )

    label = checked_label(label)
    return _contract("within_rate", selected, step, (), label, text=f"at most {calls} calls in {per_ms} ms")


@template
def not_rate_limited(
    on: On = None, *, at_most: int = 0, statuses: Collection[int] = _LIMITED, label: str = "RATE_LIMITED",
    **options: Unpack[Options],
) -> Contract:  # fmt: skip
    """A service refuses at most `at_most` calls because of its rate limit.

    Such a refusal is a reply with one of the `statuses` (HTTP 429), or an error of the kind rate_limit. at_most=1 lets an agent
    discover a limit by reaching it once.

    Raises `mat.MatError` for a count below 0 and an unknown label.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> refused = record("tool_call", "get", value={"status": 429})
    >>> broken(not_rate_limited(at_most=1), trace(refused, record("tool_call", "get")))
    ()
    >>> broken(not_rate_limited(at_most=1), trace(refused, refused))
    (1,)

    Source: D1; RFC 6585, section 4.
    """
    count_of(at_most, "at_most", least=0)
    selected = SelectedCalls(on)

    def step(refused: int, record: Record) -> int | Violated:
        error = record.observation.error
        limited = error.kind == "rate_limit" if error is not None else status_of(record) in statuses
        if not limited or selected(record) is None:
            return refused
        new = min(refused + 1, at_most + 1)
        if refused < at_most:
            return new
        return Violated(
            f"the call was refused because of a rate limit (such refusals allowed: {at_most})", state=new,
            repair="wait, or call less often", label=label,
        )  # fmt: skip

    label = checked_label(label)
    return _contract("not_rate_limited", selected, step, 0, label, text="no rate limit is exceeded")


@template
def not_during_maintenance(
    on: On = None,
    *,
    windows: Iterable[tuple[int, int]] = (),
    announced: Announced | None = None,
    statuses: Collection[int] = _DOWN,
    label: str = "SCHEDULED_UNAVAILABLE",
    **options: Unpack[Options],
) -> Contract:
    """No call is made during a known downtime: one of the `windows`, or one that a reply of the run announced.

    `on`: the calls that are judged. `windows`: (first, last + 1) milliseconds of run time. `announced`: a function that
    reads such a window from a record. By default a reply with one of the `statuses` that states a wait announces a downtime
    of that length.

    Raises `mat.MatError` for a window that does not end after it begins, and for an unknown label.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace  # one record a second
    >>> get = record("tool_call", "get")
    >>> broken(not_during_maintenance(windows=[(1000, 3000)]), trace(get))
    ()
    >>> broken(not_during_maintenance(windows=[(1000, 3000)]), trace(get, get, get, get))
    (1, 2)

    Source: D1.
    """
    selected, known = SelectedCalls(on), tuple(sorted((int(start), int(end)) for start, end in windows))
    if any(start >= end for start, end in known):
        raise SpecError(
            what=f"windows={known!r} contains a window that does not end after it begins",
            why="a window must contain at least 1 ms",
            fix="give (first, last + 1) in ms",
        )

    def read(record: Record) -> tuple[int, int] | None:
        if announced is not None:
            return announced(record)
        wait = stated_wait_ms(record) if status_of(record) in statuses and selected(record) is not None else None
        return None if wait is None else (record.sealed_ms, record.sealed_ms + wait)

    def step(state: tuple[tuple[int, int, int], ...], record: Record) -> tuple[tuple[int, int, int], ...] | Violated:
        hit = None
        if selected(record) is not None:
            hit = next((item for item in state if item[0] <= record.at_ms < item[1] and item[2] < record.asked_seq), None)
        found = read(record)
        new = tuple(item for item in state if item[1] > record.at_ms or item[2] < 0)
        if found is not None and not any(item[:2] == found for item in new):
            new = (*new, (*found, record.sealed_seq))
        if hit is None:
            return new
        return Violated(
            f"the call was made during a known downtime, {(hit[1] - record.at_ms) / 1000:g} s before it ended", state=new,
            repair="call again when the downtime is over", label=label,
        )  # fmt: skip

    label = checked_label(label)
    start = tuple((first, end, -1) for first, end in known)
    return _contract("not_during_maintenance", selected, step, start, label, text="no call is made during announced downtime")


@template
def no_shortcut(forbidden: On, *, label: str = "SHORTCUT_TAKEN", **options: Unpack[Options]) -> Contract:
    """The forbidden calls are never made, even if they are offered: the agent takes the canonical path.

    `forbidden`: these calls, as ports or routes. Raises `mat.MatError` for None, which would forbid every call, and for an
    unknown label.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> broken(no_shortcut("force_approve"), trace(record("tool_call", "approve")))
    ()
    >>> broken(no_shortcut("force_approve"), trace(record("tool_call", "force_approve")))
    (0,)

    Source: D1.
    """
    if forbidden is None:
        raise SpecError(what="no_shortcut(None) forbids every call", fix="name the calls that are shortcuts")
    selected = SelectedCalls(forbidden)

    def step(state: None, record: Record) -> Violated | None:
        if selected(record) is None:
            return state
        return Violated(f"the call is a shortcut around the canonical path (forbidden: {selected.text})", label=label)

    label = checked_label(label)
    return _contract("no_shortcut", selected, step, None, label, text=f"never {selected.text}")


@template
def compensated(
    steps: Mapping[str, str],
    *,
    completed: On = None,
    key: str = "id",
    label: str = "COMPENSATION_FAILURE",
    **options: Unpack[Options],
) -> Contract:
    """If a saga does not complete, every step that was done is undone by the end (Garcia-Molina and Salem 1987).

    `steps`: the call that does a step -> the call that undoes it; both are ports or routes. A step is done when its call
    succeeds, and undone when the other call succeeds for the same `key`. The key is captured by the route, or is a field of
    the request or the reply. `completed`: the call whose success completes the saga; then no step needs to be undone. Without
    `completed`, the saga has failed once one of its steps failed.

    Raises `mat.MatError` without steps and for an unknown label.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import record, trace, violations
    >>> saga = compensated({"book_flight": "cancel_flight", "book_hotel": "cancel_hotel"})
    >>> done = [record("tool_call", "book_flight", value={"id": 7}), record("tool_call", "book_hotel", error="server_error")]
    >>> violations(saga, trace(*done, record("tool_call", "cancel_flight", {"id": 7})))
    ()
    >>> [item.message for item in violations(saga, trace(*done))]
    ['book_flight was done (7) but never undone by cancel_flight, though the saga failed']

    Source: D1; Garcia-Molina and Salem 1987.
    """
    if not steps:
        raise SpecError(
            what="compensated({}) lists no steps", fix='write compensated({"POST /flights": "DELETE /flights/{id}"})'
        )
    doing = [(SelectedCalls(do), SelectedCalls(undo)) for do, undo in steps.items()]
    ending = None if completed is None else SelectedCalls(completed)

    def step(state: _Saga, record: Record) -> _Saga:
        if ending is not None and ending(record) is not None and _succeeded(record):
            return _Saga()
        for do, undo in doing:
            if do(record) is not None:
                if not _succeeded(record):
                    return state._replace(failed=True)
                return state._replace(done=(*state.done, _Done(do.text, undo.text, _key(do, record, key), record.step)))
            if undo(record) is not None and _succeeded(record):
                of = _key(undo, record, key)
                left = [item for item in state.done if item.undo != undo.text or (of and item.key and item.key != of)]
                return state._replace(done=tuple(left))
        return state

    def finish(state: _Saga) -> Violated | None:
        return all_of([not_undone(item) for item in state.done]) if ending is not None or state.failed else None

    def not_undone(item: _Done) -> Violated:
        return Violated(
            f"{item.do} was done ({item.key or 'once'}) but never undone by {item.undo}, though the saga failed",
            witness=(item.step,), instance=item.key, label=label, repair=f"call {item.undo} when a later step fails",
        )  # fmt: skip

    label = checked_label(label)
    name = joined(steps)
    return Contract(
        id=f"observation.compensated({name})", step=step, start=_Saga(), finish=finish,
        text=f"the completed steps of a failed saga are undone: {name}", label=label,
    )  # fmt: skip


class _Done(NamedTuple):
    do: str
    undo: str
    key: str
    step: int


class _Saga(NamedTuple):
    done: tuple[_Done, ...] = ()
    failed: bool = False


def _succeeded(record: Record) -> bool:
    status = status_of(record)
    returned = record.observation.error is None and not record.observation.cancelled and record.invoked > 0
    return returned and (not status or status < 400) and failure_of(record) is None


def _key(selected: SelectedCalls, record: Record, key: str) -> str:
    """The key of a call: captured by its route, else from its reply, else from its request."""
    captured = selected(record) or {}
    found = selected.exchange(record)
    value = record.observation.value
    places: list[Any] = [captured]
    places += [value] if found is None else [found.reply, found.fields, found.query]
    places.append(record.arguments)
    for where in places:
        if isinstance(where, Mapping) and where.get(key) is not None:
            return str(where[key])
    return str(next(iter(captured.values()))) if len(captured) == 1 else ""


@template
def idempotency_key_kept(
    on: On = None, *, key: str = "headers.idempotency-key", ignoring: Collection[str] = (), **options: Unpack[Options]
) -> Contract:
    """All attempts at a request carry the same idempotency key, and no two requests share a key.

    `key`: the place of the key, in an HTTP exchange or as the name of an argument. A call without a key gets the label
    MISSING_CONSTRAINT. A key that changes between attempts, or that was used for another request, gets WRONG_VALUE. Requests
    are equal if method, path and body are equal; for other ports, all arguments except the key and those in `ignoring`. After
    a success, the same request counts as a new one. A permanent refusal (a status 4xx that no retry can change) is ignored.
    The latest 256 keys and requests are remembered.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import record, trace, violations
    >>> def pay(key, **more): return record("tool_call", "pay", {"amount": 5, "key": key}, **more)
    >>> kept = idempotency_key_kept("pay", key="key")
    >>> violations(kept, trace(pay("a", error="timeout"), pay("a"), pay("b")))
    ()
    >>> [item.label for item in violations(kept, trace(pay("a", error="timeout"), pay("b")))]
    ['WRONG_VALUE']

    Source: D1.
    """
    selected, left_out = SelectedCalls(on), frozenset(ignoring)

    def request(record: Record, found: Exchange | None) -> str:
        if found is not None:
            return digest([found.method, found.path, found.body])
        return digest({name: item for name, item in record.arguments.items() if name != key and name not in left_out})

    def step(state: _Keys, record: Record) -> _Keys | Violated:
        if selected(record) is None or record.blocked:
            return state
        found = selected.exchange(record)
        given = record.arguments.get(key) if found is None else found.value(key)
        if given is None or given == "":
            return Violated(f"the request has no {key}", label="MISSING_CONSTRAINT", repair="send a key with every write")
        what, text = request(record, found), str(given)
        before, meant = dict(state.keys).get(what), dict(state.requests).get(text)
        keys = tuple(item for item in state.keys if item[0] != what)
        if not _succeeded(record):
            keys = (*keys, (what, text))
        requests = state.requests if meant else (*state.requests, (text, what))
        new = _Keys(keys[-_REMEMBERED:], requests[-_REMEMBERED:])
        if _permanently_refused(record):  # nothing was done under this key
            new = state
        if before is not None and before != text:
            message = "an earlier attempt at the same request had a different key"
        elif meant is not None and meant != what:
            message = "the key was used before for a different request"
        else:
            return new
        repair = "send one key per request, the same in all its attempts"
        return Violated(message, state=new, label="WRONG_VALUE", repair=repair)

    return _contract("idempotency_key_kept", selected, step, _Keys(), "", text="one idempotency key per request")


def _permanently_refused(record: Record) -> bool:
    return 400 <= status_of(record) < 500 and status_of(record) not in (408, 409, 425, 429)


class _Keys(NamedTuple):
    keys: tuple[tuple[str, str], ...] = ()
    """(request that may be tried again, its key), the latest last."""
    requests: tuple[tuple[str, str], ...] = ()
    """(key, the request it was first used for), the latest last."""


@template
def required(on: On, places: str | Iterable[str], *, label: str = "MISSING_CONSTRAINT", **options: Unpack[Options]) -> Contract:
    """The request has a value at each of the `places` (see Exchange.value; for other ports, the names of arguments).

    White space is no value.

    Raises `mat.MatError` for an empty place and an unknown label.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> broken(required("pay", ["amount"]), trace(record("tool_call", "pay", {"amount": 5})))
    ()
    >>> broken(required("pay", ["amount", "reason"]), trace(record("tool_call", "pay", {"amount": 5, "reason": ""})))
    (0,)

    Source: D1.
    """
    selected, wanted = SelectedCalls(on), names_of(places, "places")

    def step(state: None, record: Record) -> Violated | None:
        if selected(record) is None:
            return state
        missing = [place for place in wanted if _is_missing(value_at(selected, record, place))]
        return Violated(f"the request lacks {joined(missing)}", label=label) if missing else state

    label = checked_label(label)
    return _contract("required", selected, step, None, label, text=f"requests have {joined(wanted)}")


def _is_missing(value: Any) -> bool:
    return not value.strip() if isinstance(value, str) else value in (None, (), [])


@template
def expected(
    on: On, values: Mapping[str, Allowed | str | int], *, label: str = "WRONG_VALUE", **options: Unpack[Options]
) -> Contract:
    """The request has the expected value at each place.

    `values`: place (see Exchange.value; for other ports, the name of an argument) -> the value, several values, a (least, most)
    range, or a predicate. A number may also be written as text ("50"). A missing value is not judged: see `required`.

    Raises `mat.MatError` for an unknown label.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> broken(expected("pay", {"amount": 5}), trace(record("tool_call", "pay", {"amount": 5})))
    ()
    >>> broken(expected("pay", {"amount": 5}), trace(record("tool_call", "pay", {"amount": 6})))
    (0,)

    Source: D1.
    """
    selected = SelectedCalls(on)
    lists: dict[str, Allowed] = {
        place: (item,) if isinstance(item, str | int | float) else item for place, item in values.items()
    }

    def step(state: None, record: Record) -> Violated | None:
        if selected(record) is None:
            return state
        for place, allowed in lists.items():
            found = value_at(selected, record, place)
            if found not in (None, "") and not _is_expected(allowed, found):
                return Violated(f"{place} is {short(found)}; expected {describe(allowed)}", label=label)
        return state

    label = checked_label(label)
    return _contract("expected", selected, step, None, label, text=f"requests have the right {joined(values)}")


def _is_expected(allowed: Allowed, found: Any) -> bool:
    """Whether a value is allowed. Forms and URLs carry numbers as text, so a text may be the number that is expected."""
    if within(allowed, found):
        return True
    if callable(allowed) or not isinstance(found, str) or number_of(found) is None:
        return False
    return allows(allowed if is_range(allowed) else [item for item in allowed if not isinstance(item, str)], found)


@template
def digest_correct(
    on: On,
    place: str,
    of: Callable[[Record], str | bytes | None],
    *,
    algorithm: str = "sha256",
    label: str = "WRONG_HASH",
    **options: Unpack[Options],
) -> Contract:
    """The value at a place of the request is the digest of the right content (FIPS 180-4; RFC 9530).

    `of`: a function that returns the content for a record, or None if it is not known. The digest may be written in hexadecimal
    or base64, alone or as `sha-256=:...:`. A missing digest is not judged: see `required`.

    `algorithm`: one of hashlib's, by name. Raises `mat.MatError` for another algorithm and an unknown label.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> named = digest_correct("put", "digest", lambda record: record.arguments["text"])
    >>> right = hashlib.sha256(b"hello").hexdigest()
    >>> broken(named, trace(record("tool_call", "put", {"text": "hello", "digest": right})))
    ()
    >>> broken(named, trace(record("tool_call", "put", {"text": "hello!", "digest": right})))
    (0,)

    Source: D1; FIPS 180-4, RFC 9530.
    """
    selected = SelectedCalls(on)
    if algorithm not in hashlib.algorithms_guaranteed or algorithm.startswith("shake"):
        raise SpecError(what=f"unknown hash algorithm: {algorithm!r}", fix="name an algorithm of hashlib, such as sha256")

    def step(state: None, record: Record) -> Violated | None:
        if selected(record) is None:
            return state
        given, content = value_at(selected, record, place), of(record)
        if not isinstance(given, str) or not given or content is None:
            return state
        real = hashlib.new(algorithm, content.encode() if isinstance(content, str) else content).digest()
        return state if real in _possible_digests(given) else Violated(f"{place} is not the digest of the content", label=label)

    label = checked_label(label)
    return _contract("digest_correct", selected, step, None, label, text=f"{place} is the digest of the content")


def _possible_digests(text: str) -> list[bytes]:
    """The digests that a text may represent."""
    bare = text.partition("=:")[2].partition(":")[0] if "=:" in text else text.rpartition("=sha")[0] or text
    bare = bare.removeprefix("sha256=").removeprefix("sha256:").strip()
    found = []
    for read in (bytes.fromhex, lambda item: base64.b64decode(item + "=" * (-len(item) % 4), validate=True)):
        try:
            found.append(read(bare))
        except (ValueError, binascii.Error):
            continue
    return found


@template
def signature_verifies(
    on: On, verify: Callable[[Record], bool | None], *, label: str = "SIGNATURE_MISMATCH", **options: Unpack[Options]
) -> Contract:
    """The signature of the request verifies (RFC 9421; AWS SigV4).

    `verify`: a function that returns whether a record's signature verifies, or None if there is nothing to verify.

    Raises `mat.MatError` for an unknown label.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> signed = signature_verifies("send", lambda record: record.arguments["signature"] == record.arguments["text"][::-1])
    >>> broken(signed, trace(record("tool_call", "send", {"text": "ab", "signature": "ba"})))
    ()
    >>> broken(signed, trace(record("tool_call", "send", {"text": "ab", "signature": "ab"})))
    (0,)

    Source: D1; RFC 9421.
    """
    selected = SelectedCalls(on)

    def step(state: None, record: Record) -> Violated | None:
        if selected(record) is None or verify(record) is not False:
            return state
        return Violated("the signature of the request does not verify", label=label)

    label = checked_label(label)
    return _contract("signature_verifies", selected, step, None, label, text="the signatures of requests verify")


def value_at(selected: SelectedCalls, record: Record, place: str) -> Any:
    """The value at a place of an HTTP exchange; for other calls, the argument of that name."""
    found = selected.exchange(record)
    return record.arguments.get(place) if found is None else found.value(place)


def _contract(
    family: str, selected: SelectedCalls, step: Callable[[Any, Record], Any], start: Any, label: str, *, text: str
) -> Contract:
    return Contract(
        id=f"observation.{family}({selected.text})", step=step, start=start, text=text, label=label or OTHER,
    )  # fmt: skip
