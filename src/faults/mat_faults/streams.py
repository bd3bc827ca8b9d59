"""Faults of streams on their way: silence between two chunks, a chunk that comes twice, a failure or an end in the middle.

A chunk is what the port sends at a time: an event of a model's stream, or what a generator yields. Of a streamed HTTP reply the
first is its head, status and headers. `model.cut` has its place in `model`.

>>> from mat_faults import streams
>>> [operator.id for operator in streams.operators()][:3]
['model.stream_error', 'model.stream_stall', 'model.stream_repeat']

Source: A3.4, A4.1.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from mat.boundary.catalog import Operator, operator
from mat.boundary.effect import Call, Effect, Repeat, Reply, Stall, Truncate
from mat.core.record import Record
from mat.core.value import FrozenDict
from mat_faults.site import raw_observation, reply_value
from mat_faults.wire import is_http

_AFTER: Final = (1, 2, 4)
"""Chunks before the fault."""
_SILENCE_MS: Final = (30_000, 700_000)
"""Longer than the default read time-out of httpx, and than that of the clients of OpenAI and Anthropic (ten minutes)."""
_ENDS: Final[tuple[dict[str, str], ...]] = ({}, {"kind": "connection"})


def cut_stream(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    """End a stream after some chunks, quietly or with an error of the parameter `kind`."""
    return Truncate(int(call.parameters["chunks"]), kind=str(call.parameters.get("kind", "")))


def cut_matters(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    """A silent cut matters if more chunks or an error followed; an error always, if only at the end."""
    return _cut_matters(record, int(parameters["chunks"]), fails=bool(parameters.get("kind")))


def _cut_matters(record: Record, chunks: int, *, fails: bool) -> bool:
    found = raw_observation(record)
    whole = _chunks_of(record) is not None and not found.cancelled and found.error is None
    return whole if whole and fails else _matters(record, chunks, at_end=False)


def _fail(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Truncate(int(call.parameters["chunks"]), kind="server_error")


def _fail_matters(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    return _cut_matters(record, int(parameters["chunks"]), fails=True)


def _stall_matters(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    return _matters(record, int(parameters["chunks"]), at_end=True)


def _stall(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Stall(int(call.parameters["chunks"]), ms=int(call.parameters["ms"]))


def _repeat(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Repeat(int(call.parameters["chunk"]))


def _repeat_matters(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    """The head of an HTTP reply does not come twice."""
    chunk, value = int(parameters["chunk"]), reply_value(record)
    heads = isinstance(value, list | tuple) and bool(value) and is_http(value[0])
    return not (chunk == 1 and heads) and _matters(record, chunk - 1, at_end=False)


def _matters(record: Record, chunks: int, *, at_end: bool) -> bool:
    """Whether a stream went on after this many chunks. `at_end`: reaching its end there is enough."""
    found, total = raw_observation(record), _chunks_of(record)
    if total is None:
        return False
    if found.cancelled:
        return total > chunks
    return total >= chunks if at_end or found.error is not None else total > chunks


def _chunks_of(record: Record) -> int | None:
    """How many chunks a stream had; None for any other reply."""
    found = raw_observation(record)
    return found.chunks if found.chunks is not None else record.observation.chunks


def _on_the_way(family: str) -> tuple[Operator, ...]:
    """The faults that streams of models and of services have in common. `family`: the first part of their ids."""
    return (
        operator(
            f"{family}_error", _fail, relevant=_fail_matters, default=False, raises=["server_error"], bounds={"count": 1},
            grid=[{"chunks": chunks, "magnitude": 1} for chunks in _AFTER],
            plausible="the service fails while it writes, and says so in the stream",
        ),
        operator(
            f"{family}_stall", _stall, relevant=_stall_matters, default=False, bounds={"latency_ms": max(_SILENCE_MS)},
            grid=[
                {"chunks": chunks, "ms": ms, "magnitude": magnitude}
                for magnitude, ms in enumerate(_SILENCE_MS, 1) for chunks in _AFTER
            ],
            plausible="the service is overloaded and pauses in the middle of its reply",
        ),
        operator(
            f"{family}_repeat", _repeat, relevant=_repeat_matters, default=False, bounds={"count": 1},
            grid=[{"chunk": chunk, "magnitude": 1} for chunk in (2, 3, 1)],
            plausible="a proxy or a client that resumes a broken stream sends an event again",
        ),
    )  # fmt: skip


def operators() -> tuple[Operator, ...]:
    return (
        *_on_the_way("model.stream"),
        *_on_the_way("service.stream"),
        operator(
            "service.stream_cut", cut_stream, relevant=cut_matters, default=False, bounds={"count": 1},
            grid=[{"chunks": chunks, "magnitude": 1, **end} for end in _ENDS for chunks in _AFTER],
            plausible="a stream ends early, quietly or with its connection",
        ),
    )  # fmt: skip
