"""Provenance: the earlier steps from which the arguments of a call, or the evidence of a claim, come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from mat.boundary.port import Port
from mat.core.digest import canonical
from mat.core.errors import CodecError
from mat.core.record import Link
from mat.core.redact import texts
from mat.core.value import FrozenDict, FrozenList, Value, snapshot
from mat.harness.open_step import OpenStep
from mat.harness.recorded_form import RecordedForm
from mat.harness.trace import Trace

ORIGIN_CHARS: Final = 4
"""Shorter texts are too common to have a known origin."""
ORIGIN_TEXTS: Final = 64
"""Texts of one reply that provenance follows."""
NO_LINKS: Final[tuple[Link, ...]] = ()


class Provenance:
    """Finds where texts and values came from. `origins`: text of a reply -> the latest step that returned it.

    `on_cited` is called with the canonical text of each value whose source is looked up.
    """

    __slots__ = ("_form", "_indexed", "_sources", "_trace", "_waiting", "on_cited", "origins")

    def __init__(self, trace: Trace, form: RecordedForm) -> None:
        self._trace, self._form = trace, form
        self._sources: dict[str, str] = {}
        self._indexed = 0
        self._waiting: list[int] = []
        self.origins: dict[str, int] = {}
        self.on_cited: Callable[[str], None] | None = None

    def links(self, port: Port, arguments: FrozenDict, sealed: FrozenDict, step: int) -> tuple[Link, ...]:
        """The links of a step; sealed: the arguments in recorded form."""
        links = self.derived(sealed if port.record == "keep" else arguments, step) if self.origins else NO_LINKS
        return (*links, _memory_link(port, sealed, step)) if port.boundary == "memory" else links

    def derived(self, arguments: FrozenDict, step: int) -> tuple[Link, ...]:
        """Links from earlier replies whose texts come back in these arguments."""
        origins, found = self.origins, set()
        for item in arguments.values():
            kind = type(item)
            if kind is str:
                if item in origins:
                    found.add(origins[item])
            elif kind is FrozenDict or kind is FrozenList:
                found.update(origins[text] for text in texts(item) if text in origins)
        if not found:
            return NO_LINKS
        return tuple(Link(src=f"step#{source}", rel="derived_from", dst=f"step#{step}") for source in sorted(found))

    def remember(self, value: Value, step: int) -> None:
        """Remember the texts of a reply, so that later arguments with such a text link back to its step."""
        origins = self.origins
        if type(value) is FrozenDict and len(value) <= ORIGIN_TEXTS:
            for item in value.values():
                if type(item) is str:
                    if len(item) >= ORIGIN_CHARS:
                        origins[item] = step
                elif type(item) is FrozenDict or type(item) is FrozenList:
                    self.remember(item, step)
        elif type(value) is FrozenDict or type(value) is FrozenList:
            for text in texts(value)[:ORIGIN_TEXTS]:
                if len(text) >= ORIGIN_CHARS:
                    origins[text] = step
        elif type(value) is str and len(value) >= ORIGIN_CHARS:
            origins[value] = step

    def source(self, thing: object) -> str:
        """The latest step that delivered a result, passage or row, whole or as a part, as `step#n`; "" if it is unknown."""
        self._index()
        if isinstance(thing, str) and thing.startswith(("step#", "claim#", "passage:", "memory:")):
            return thing
        try:
            wanted = canonical(self._form.redactor.value(snapshot(thing, "supports")))
        except CodecError:
            return ""
        if self.on_cited is not None:
            self.on_cited(wanted)
        return self._sources.get(wanted, "")

    def _index(self) -> None:
        """Index the parts of all new replies; steps that are still open are indexed later."""
        records = self._trace.records
        steps = [*self._waiting, *range(self._indexed, len(records))]
        self._indexed, self._waiting = len(records), []
        for step in steps:
            record = records[step]
            if isinstance(record, OpenStep):
                self._waiting.append(step)
                continue
            for part in parts(record.observation.value):
                self._sources[canonical(part)] = record.artefact


def parts(value: Value, depth: int = 3) -> Iterator[Value]:
    """A reply and the parts of it that a claim can cite, down to the rows of a table in the reply."""
    kind = type(value)
    if kind is str:
        if len(value) >= ORIGIN_CHARS:  # type: ignore[arg-type]
            yield value
    elif isinstance(value, dict | list):
        yield value
        if depth:
            for part in value.values() if isinstance(value, dict) else value:
                yield from parts(part, depth - 1)


def _memory_link(port: Port, arguments: FrozenDict, step: int) -> Link:
    cell = f"memory:{port.name}/{arguments.get('key', '*')}"
    if port.kind == "memory_read":
        return Link(src=cell, rel="returns", dst=f"step#{step}")
    return Link(src=f"step#{step}", rel="derived_from", dst=cell)
