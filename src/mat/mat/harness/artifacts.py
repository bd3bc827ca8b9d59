"""Artifact tracking: record which artifacts a call carries, and which ones a reply issues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from mat.boundary.integrity import Integrity
from mat.boundary.port import Port
from mat.boundary.requests import sent
from mat.core.artifact import Issued, as_facts
from mat.core.record import Link
from mat.core.redact import Redactor
from mat.core.value import FrozenDict, FrozenList
from mat.harness.artifact_index import ArtifactIndex
from mat.harness.open_step import OpenStep


class ArtifactTracking:
    """Writes facts about artifacts on open steps. `note` and `redactor` belong to the run."""

    __slots__ = ("_known", "_redactor")

    def __init__(self, note: Callable[[str, str], None], redactor: Redactor) -> None:
        self._known, self._redactor = ArtifactIndex(note), redactor

    def carried(
        self, port: Port, arguments: FrozenDict, step: int, links: tuple[Link, ...]
    ) -> tuple[FrozenDict, tuple[Link, ...]]:
        """Note which artifacts the arguments carry; return the step's links, plus links to the sources of the artifacts."""
        found = self._known.carried(port, sent(port, arguments))
        more = [Link(src=f"step#{source}", rel="derived_from", dst=f"step#{step}") for source in found.sources]
        return self._redactor.mapping(found.facts()), (*links, *(link for link in more if link not in links))

    def declared(
        self, opened: OpenStep, name: str, text: str, *, ttl_ms: int | None, integrity: Integrity, supersedes: bool
    ) -> None:
        """Note an artifact that the agent, or its harness, declares."""
        fact = self._known.issue(
            name, text, at="", step=opened.step, at_ms=opened.at_ms, ttl_ms=ttl_ms, integrity=integrity, supersedes=supersedes
        )
        opened.artefacts = FrozenDict({"issued": as_facts((fact,))})

    def issued(self, opened: OpenStep, port: Port, reply: Any, *, at_ms: int) -> None:
        """Note the artifacts in a port's reply, before anything changes it on the way to the agent."""
        found = self._known.issued_by(
            port, _without_seams(port, reply), opened.current_arguments, step=opened.step, at_ms=at_ms
        )
        if found:
            before = cast("tuple[Any, ...]", opened.artefacts.get("issued", ()))
            facts = self._redactor.value(FrozenList([*before, *as_facts(found)]))
            opened.artefacts = FrozenDict({**opened.artefacts, "issued": facts})

    def arrived(self, opened: OpenStep, port: Port, reply: Any) -> None:
        """Note whether the artifacts issued at a step reached the agent as they were issued."""
        if "issued" not in opened.artefacts or not opened.action.boundary:
            return
        found = self._known.delivered(tuple(Issued(**item) for item in opened.artefacts["issued"]), _without_seams(port, reply))
        opened.artefacts = FrozenDict({**opened.artefacts, "issued": as_facts(found)})

    def reached(self, opened: OpenStep, port: Port, executed: FrozenDict) -> None:
        """Note which artifacts reached the port, if governance or a fault changed the arguments."""
        used = self._redactor.mapping(self._known.carried(port, sent(port, executed), changed=True).facts()).get(
            "used", FrozenList()
        )
        if used != opened.artefacts.get("used", FrozenList()):
            opened.artefacts = FrozenDict({**opened.artefacts, "reached": used})


def _without_seams(port: Port, reply: Any) -> Any:
    """The reply; a stream of texts as one text."""
    texts = port.stream and isinstance(reply, list) and all(isinstance(chunk, str) for chunk in reply)
    return "".join(reply) if texts else reply
