"""Provenance: the earlier steps from which the arguments of a call, or the evidence of a claim, come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from mat.boundary.port import Port
from mat.core.digest import canonical
from mat.core.errors import CodecError
from mat.core.record import Link
from mat.core.value import FrozenDict, FrozenList, Value, snapshot
from mat.harness.open_step import OpenStep
from mat.harness.recorded_form import RecordedForm
from mat.harness.trace import Trace

ORIGIN_CHARS: Final = 4
"""Shorter texts are too common to have a known origin."""
ORIGIN_TEXTS: Final = 64
"""Texts of one reply that provenance follows."""
ORIGIN_STEPS: Final = 8
"""Steps that delivered one text, the latest ones, which provenance names."""
NO_LINKS: Final[tuple[Link, ...]] = ()


class Provenance:
    """Finds where texts and values came from. `origins`: text of a reply -> the latest steps that returned it, the last first.

    `on_cited` is called with the canonical text of each value whose source is looked up.
    """

    __slots__ = ("_form", "_indexed", "_sources", "_trace", "_waiting", "on_cited", "origins")

    def __init__(self, trace: Trace, form: RecordedForm) -> None:
        self._trace, self._form = trace, form
        self._sources: dict[str, str] = {}
        self._indexed = 0
        self._waiting: list[int] = []
        self.origins: dict[str, tuple[int, ...]] = {}
        self.on_cited: Callable[[str], None] | None = None

    def links(self, port: Port, arguments: FrozenDict, sealed: FrozenDict, step: int) -> tuple[Link, ...]:
        """The links of a step; sealed: the arguments in recorded form."""
        links = self.derived(sealed if port.record == "keep" else arguments, step) if self.origins else NO_LINKS
        return (*links, _memory_link(port, sealed, step)) if port.boundary == "memory" else links

    def derived(self, arguments: FrozenDict, step: int) -> tuple[Link, ...]:
        """Links from earlier replies whose texts come back in these arguments, the nearest first.

        Steps that delivered every known text of an argument are its sources; if there is none, each that delivered one of them.
        """
        origins, found = self.origins, set[int]()
        for item in arguments.values():
            kind = type(item)
            if kind is str:
                found.update(origins.get(item, ()))
            elif kind is FrozenDict or kind is FrozenList:
                sources = [set(origins[text]) for text in inner_texts(item) if text in origins]
                if sources:
                    found |= set.intersection(*sources) or set.union(*sources)
        if not found:
            return NO_LINKS
        nearest = sorted(found, reverse=True)
        return tuple(Link(src=f"step#{source}", rel="derived_from", dst=f"step#{step}") for source in nearest)

    def remember(self, value: Value, step: int) -> None:
        """Remember the texts of a reply, so that later arguments with such a text link back to its step."""
        origins = self.origins
        for text in islice(inner_texts(value), ORIGIN_TEXTS):
            if len(text) >= ORIGIN_CHARS:
                earlier = origins.get(text, ())
                if not earlier:
                    origins[text] = (step,)
                elif earlier[0] != step:
                    origins[text] = (step, *earlier[: ORIGIN_STEPS - 1])

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


def inner_texts(value: Value) -> Iterator[str]:
    """The texts inside a value; names of fields are no texts of it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from inner_texts(item)


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
