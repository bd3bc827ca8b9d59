"""Open steps: steps that were asked and are not sealed yet."""

from __future__ import annotations

from typing import Any, Final

from mat.boundary.port import Port
from mat.core.record import (
    NOTHING,
    Action,
    Effected,
    FaultNote,
    Link,
    Mediation,
    Observation,
    Record,
    new_record,
)
from mat.core.value import FrozenDict, draft_of

new_draft: Final = draft_of(Record)
"""A record under construction. A second object of twenty fields would be the most expensive part of a step."""


class OpenStep:
    """A step that was asked and is not sealed; each layer notes on it what it does.

    `record` is the record under construction, with the facts known at the ask; sealing adds the other fields.
    `passed_arguments` are those of the agent's call, `judged_arguments` the same with plain numbers, which governance judges,
    `action.arguments` their recorded form, `replaced_arguments` those that governance or a fault put in their place. All but
    the recorded form are unredacted, and so is `mediation`. `port_reply` is what the port answered, `client_reply` its encoded
    form with the client's object itself, `delivered` the chunks of a stream that the agent has got. `error_kind` is the kind
    of an error that a layer raises here.
    """

    __slots__ = (
        "artefacts", "client_reply", "delivered", "error_kind", "faults", "invoked", "judged_arguments", "links", "mediation",
        "passed_arguments", "port", "port_reply", "record", "replaced_arguments", "taped",
    )  # fmt: skip

    artefacts: FrozenDict
    passed_arguments: FrozenDict
    judged_arguments: FrozenDict
    error_kind: str
    replaced_arguments: FrozenDict | None
    faults: tuple[FaultNote, ...]
    invoked: int
    links: tuple[Link, ...]
    mediation: Mediation | None
    client_reply: tuple[Any, Any] | None
    delivered: list[Any] | None
    port: Port
    port_reply: Observation | None
    record: Record
    taped: bool

    @property
    def step(self) -> int:
        return self.record.step

    @property
    def at_ms(self) -> int:
        return self.record.at_ms

    @property
    def agent(self) -> str:
        return self.record.agent

    @property
    def role(self) -> str:
        return self.record.role

    @property
    def site(self) -> str:
        return self.record.site

    @property
    def action(self) -> Action:
        return self.record.action

    @property
    def arguments(self) -> FrozenDict:
        """The arguments as they are recorded."""
        return self.record.action.arguments

    @property
    def current_arguments(self) -> FrozenDict:
        """The arguments that the port would get now: the asked ones, or their replacement by governance or a fault."""
        return self.passed_arguments if self.replaced_arguments is None else self.replaced_arguments

    @property
    def nth(self) -> int:
        """The occurrence number of the ask at its site, from 1."""
        return int(self.record.site.rpartition("#")[2])

    @property
    def effected(self) -> Effected:
        """Whether the call had its effect: yes, no, or unknown without a reply."""
        if self.invoked == 0:
            return "no"
        return "yes" if self.port_reply is not None and self.port_reply.error is None else "unknown"

    def proposed(self) -> Record:
        """The proposed record, to be judged before the call: without an observation, effect unknown."""
        asked = self.record
        return new_record(
            asked.step, asked.at_ms, asked.at_ms, asked.asked_seq, asked.asked_seq, asked.agent, asked.role, asked.state,
            asked.site, asked.action, NOTHING, "unknown", self.mediation, self.links, self.replaced_arguments, None,
            self.invoked, (), False, self.artefacts,
        )  # fmt: skip
