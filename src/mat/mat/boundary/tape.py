"""What ports said in a recorded run, served again while calls match (DESIGN decision 17)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mat.boundary.effect import Reply
from mat.boundary.port import Port
from mat.core.errors import MatError
from mat.core.run import TapeEntry
from mat.core.value import thaw


class Tape:
    """Replies by site and request digest; a request that moved to another ask is served in recorded order."""

    def __init__(self, entries: Iterable[TapeEntry] = (), *, live: int | None = None) -> None:
        self._by_site: dict[tuple[str, str], TapeEntry] = {}
        self._by_request: dict[tuple[str, str], list[TapeEntry]] = {}
        self._used: set[str] = set()
        self.live = live
        self.misses: list[str] = []
        for entry in entries:
            if entry.mode == "external" and not entry.opaque:
                self._by_site[entry.site, entry.request] = entry
                self._by_request.setdefault((entry.site.partition("#")[0], entry.request), []).append(entry)

    def __len__(self) -> int:
        return len(self._by_site)

    def serve(self, port: Port, site: str, request: str) -> Reply | BaseException | None:
        """The recorded reply or error; None for a miss, after which the port is asked for real, or the miss is refused."""
        if not self._by_site:
            return None
        entry = self._by_site.get((site, request)) or self._moved(site, request)
        if entry is None:
            self.misses.append(site)
            if self.live is not None and len(self.misses) > self.live:
                raise MatError(
                    what=f"no taped reply for {site}",
                    why=f"the request differs from every recorded one, and {self.live} live calls are allowed",
                    fix="record the run again, or raise --mat-live-calls",
                )
            return None
        self._used.add(entry.site)
        if entry.error is not None:
            return _error(port, entry.error, entry.retry_after_ms)
        return Reply(_typed(port, thaw(entry.value)))

    def _moved(self, site: str, request: str) -> TapeEntry | None:
        for entry in self._by_request.get((site.partition("#")[0], request), ()):
            if entry.site not in self._used:
                return entry
        return None


def _error(port: Port, error: tuple[str, str, str], retry_after_ms: int | None) -> BaseException:
    name, message, kind = error
    if kind:
        return port.error(kind, message, None if retry_after_ms is None else retry_after_ms / 1000)
    import builtins

    found = getattr(builtins, name, None)
    if isinstance(found, type) and issubclass(found, Exception):
        return found(message)
    return RuntimeError(f"{name}: {message}")


def _typed(port: Port, value: Any) -> Any:
    """The value as the port's declared return type, where pydantic knows it."""
    if port.result_type in (None, Any):
        return value
    if port.stream:
        return _typed_as(list[port.result_type], value)  # type: ignore[name-defined]
    return _typed_as(port.result_type, value)


def _typed_as(kind: Any, value: Any) -> Any:
    from pydantic import TypeAdapter, ValidationError
    from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

    try:
        return TypeAdapter(kind).validate_python(value)
    except (PydanticSchemaGenerationError, PydanticUserError, ValidationError):
        return value
