"""Tapes: replies of ports in recorded runs, served again while calls match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from mat.boundary.cassette import Cassette, LiveCallsSpent, spent_reason
from mat.boundary.effect import BrokenReply, Reply
from mat.boundary.port import Port
from mat.core.campaign import CallKey, MissingReply
from mat.core.digest import canonical
from mat.core.errors import MatError, SpecError
from mat.core.run import TapeEntry
from mat.core.value import FrozenDict, snapshot, thaw


def _port_of(site: str) -> str:
    """The site without its agent and its number."""
    return site.partition("/")[2].partition("#")[0]


class Tape:
    """The replies that one run gets instead of live calls: those of a recorded run, then those of a cassette.

    `entries` are found by site and request digest; a request that moved to another call is served in recorded order. `live`
    limits the live calls for missing replies (None: no limit). A `cassette` provides replies that `entries` lack, for runs of
    `seed`, and counts and keeps live calls. `refused` is the error of a request that got no reply: the agent may have swallowed
    it, and the run is invalid.
    """

    def __init__(
        self, entries: Iterable[TapeEntry] = (), *, live: int | None = None, cassette: Cassette | None = None, seed: int = 0
    ) -> None:
        self._by_site: dict[tuple[str, str], TapeEntry] = {}
        self._by_request: dict[tuple[str, str], list[TapeEntry]] = {}
        self._used: set[str] = set()
        self._cassette, self._seed = cassette, seed
        self._asked: Counter[tuple[str, str]] = Counter()
        self._awaited: dict[str, tuple[CallKey, FrozenDict]] = {}
        self.live = live
        self.misses: list[str] = []
        self.refused: MatError | None = None
        for entry in entries:
            if entry.mode == "external" and not entry.opaque:
                self._by_site[entry.site, entry.request] = entry
                self._by_request.setdefault((_port_of(entry.site), entry.request), []).append(entry)
        if cassette is not None:
            cassette.catch_up()

    def __len__(self) -> int:
        return len(self._by_site)

    def serve(
        self, port: Port, site: str, request: str, asked: Callable[[], FrozenDict] = FrozenDict
    ) -> Reply | BrokenReply | BaseException | None:
        """The recorded reply or error; None for a miss that may be a live call. Other misses are refused.

        `request`: the digest of the arguments; `asked` returns them in a form that people read, which a cassette keeps.
        """
        if not self._by_site and self._cassette is None:
            return None
        entry = self._by_site.get((site, request)) or self._moved_reply(site, request)
        if entry is not None:
            self._used.add(entry.site)
        elif self._cassette is not None:
            entry = self._cassette_reply(self._cassette, port, site, request, asked)
        else:
            self._count_miss(site)
        return None if entry is None else _as_reply(port, entry)

    def _moved_reply(self, site: str, request: str) -> TapeEntry | None:
        """The reply to the same request at another call: the agent's own if there is one, else another agent's."""
        waiting = [each for each in self._by_request.get((_port_of(site), request), ()) if each.site not in self._used]
        calls = f"{site.partition('#')[0]}#"
        return next((each for each in waiting if each.site.startswith(calls)), waiting[0] if waiting else None)

    def _count_miss(self, site: str) -> None:
        self.misses.append(site)
        if self.live is not None and len(self.misses) > self.live:
            raise self._refuse(
                MatError(
                    what=f"no taped reply for {site}",
                    why=f"the request differs from every recorded one, and {spent_reason(self.live)}",
                    fix="record the run again, or raise --mat-live-calls",
                )
            )

    def _refuse(self, error: MatError) -> MatError:
        self.refused = self.refused or error
        return error

    # -- the cassette ---------------------------------------------------------------------------------------------------

    def _cassette_reply(
        self, cassette: Cassette, port: Port, site: str, request: str, asked: Callable[[], FrozenDict]
    ) -> TapeEntry | None:
        name = f"{port.boundary}:{port.name}"
        self._asked[name, request] += 1
        key = (self._seed, name, request, self._asked[name, request])
        entry = cassette.reply(key)
        if entry is None:
            self.misses.append(site)
            readable = asked()
            try:
                cassette.spend(name, where=site, asked=readable)
            except LiveCallsSpent as error:
                error.missing = MissingReply(key=key, asked=self._asked_of_ports())
                raise self._refuse(error) from None
            self._awaited[site] = key, readable
        return entry

    def _asked_of_ports(self) -> FrozenDict:
        """How many requests of this run each port got so far."""
        counts: Counter[str] = Counter()
        for (port, _), count in self._asked.items():
            counts[port] += count
        return FrozenDict(counts)

    def awaits(self, site: str) -> bool:
        """Whether the call at this site is a live one whose reply the cassette will keep."""
        return site in self._awaited

    def read_on(self, site: str) -> MatError:
        """Refuse a run that reads a stream further than the recorded run, whose agent had left it."""
        return self._refuse(
            MatError(
                what=f"the recorded stream of {site} ends where its agent left it, and this run reads on",
                why="what the port would have sent next is not recorded",
                fix="record the run again",
            )
        )

    def hear(self, port: Port, site: str, said: BaseException | Reply, recorded: TapeEntry) -> None:
        """Keep the reply of a live call. `recorded` is its recorded form; one that says less is not written to the file.

        SpecError if the served reply would differ from the port's: a reply of another type, or an error that is not one of
        the port's kinds.
        """
        key, asked = self._awaited.pop(site)
        cassette = self._cassette
        assert cassette is not None
        if isinstance(said, Reply):
            entry, written = self._kept_reply(port, said, recorded)
        elif isinstance(said, Exception) and not isinstance(said, MatError):
            entry, written = self._kept_error(port, said, recorded), True
        else:
            return  # the run was stopped or cancelled, or the call was refused: the port has not replied
        cassette.keep(key, entry, written=written, asked=asked)

    def _kept_reply(self, port: Port, said: Reply, recorded: TapeEntry) -> tuple[TapeEntry, bool]:
        if recorded.opaque:
            raise self._refuse(
                _unservable(port, f"{type(said.value).__qualname__}, which has no recorded form", "return data: a dict, a list")
            )
        exact = snapshot(said.value, f"reply of {port.name}")
        entry = replace(recorded, value=exact)
        served = _as_reply(port, entry)
        assert isinstance(served, Reply)
        other = _other_type(said.value, served.value)
        if other:
            raise self._refuse(_unservable(port, other, "annotate what the function returns with that type"))
        return entry, canonical(exact) == canonical(recorded.value)

    def _kept_error(self, port: Port, said: Exception, recorded: TapeEntry) -> TapeEntry:
        again = _as_reply(port, recorded)
        if recorded.error is not None and not recorded.error[2] and type(again) is not type(said):
            fix = f"give the port errors={{'server_error': {type(said).__name__}}}, or the kind that fits"
            raise self._refuse(
                _unservable(port, f"the error {type(said).__name__}, which is not one of the port's error kinds", fix)
            )
        return recorded


def _unservable(port: Port, what: str, fix: str) -> SpecError:
    return SpecError(
        what=f"a reply of {port.name} cannot be served again: {what}",
        why="a run must get the same reply from the recording as from the port",
        fix=fix,
    )


def _other_type(value: Any, served: Any) -> str:
    """The type that a recording would change and its replacement, in words; "" if the agent cannot see a difference."""
    exact = type(value) is type(served) or (type(value) is tuple and type(served) is list)
    if not exact:  # a dict of another class may carry more than its items
        return f"{type(value).__qualname__}, which comes back as {type(served).__qualname__}"
    if type(value) is dict:
        found = [_other_type(item, served.get(key)) for key, item in value.items()]
    elif type(value) in (list, tuple):
        found = [_other_type(one, other) for one, other in zip(value, served, strict=False)]
    else:
        return ""
    return next(filter(None, found), "")


_LEFT: Final = ("CancelledError", "GeneratorExit", "KeyboardInterrupt", "RunStopped", "StreamCut", "StreamSilent")
"""What ends a stream on the agent's side, or on the way to it."""


def _as_reply(port: Port, entry: TapeEntry) -> Reply | BrokenReply | BaseException:
    if entry.error is not None:
        error = _error(port, entry.error, entry.retry_after_ms)
        if port.stream and isinstance(entry.value, list):
            chunks = _as_declared(port, thaw(entry.value))
            return BrokenReply(chunks, None if entry.error[0] in _LEFT else error)
        return error
    return Reply(_as_declared(port, thaw(entry.value)))


def _error(port: Port, error: tuple[str, str, str], retry_after_ms: int | None) -> BaseException:
    name, message, kind = error
    if kind:
        return port.error(kind, message, None if retry_after_ms is None else retry_after_ms / 1000)
    import builtins

    found = getattr(builtins, name, None)
    if isinstance(found, type) and issubclass(found, Exception):
        return found(message)
    return RuntimeError(f"{name}: {message}")


def _as_declared(port: Port, value: Any) -> Any:
    """Convert the value to the port's declared return type, if pydantic knows the type."""
    if port.result_type in (None, Any):
        return value
    if port.stream:
        return _validated(list[port.result_type], value)  # type: ignore[name-defined]
    return _validated(port.result_type, value)


def _validated(kind: Any, value: Any) -> Any:
    from pydantic import TypeAdapter, ValidationError
    from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

    try:
        return TypeAdapter(kind).validate_python(value)
    except (PydanticSchemaGenerationError, PydanticUserError, ValidationError):
        return value
