"""Sandboxes: a stand-in answers the writes of untrusted agents, and the port is not called.

The record says effected "no" and mediation "rewrite", with a reason that begins with "sandbox". Declared
reads go through, so that the agent continues with real data; a call whose effect nobody declared does not.

Source: Sec. IV-E.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from mat.boundary.emit import around
from mat.core.errors import SpecError, did_you_mean
from mat.core.record import Record
from mat.govern.mediator import Block, Decision, Rule, Sandbox

Otherwise: TypeAlias = Literal["dry_run", "block"]
_OTHERWISE: Final = ("dry_run", "block")


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIns:
    """Stand-ins that replace ports. `replies`: tool or memory -> a fake, called with the arguments by name, or a value.

    Any other call gets a dry-run reply (a memory's write: None), or is blocked with `otherwise="block"`. A
    fake can be async if its port is, and the agent gets its exceptions. A fake with state belongs to one run:
    make it in the fixture.
    """

    replies: Mapping[str, Any] = field(default_factory=dict)
    otherwise: Otherwise = "dry_run"

    def __post_init__(self) -> None:
        problems = []
        if not isinstance(self.replies, Mapping):
            problems.append(f"replies={self.replies!r} does not map tools to replies")
        if self.otherwise not in _OTHERWISE:
            problems.append(f"otherwise={self.otherwise!r} is not one of {', '.join(_OTHERWISE)}")
            problems[-1] += did_you_mean(str(self.otherwise), _OTHERWISE)
        if problems:
            raise SpecError(what=f"sandbox: {'; '.join(problems)}", fix='StandIns(replies={"refund": fake_refund})')

    def answer(self, record: Record, why: str) -> Decision | None:
        """The decision on a call: a stand-in for writes and for calls of unknown effect, None for anything else."""
        action = record.action
        if not action.may_write or not action.boundary:
            return None
        if action.name in self.replies:
            return Sandbox(_taking_mapping(self.replies[action.name]), reason=why)
        if self.otherwise == "block":
            return Block(f"sandbox: {why}; there is no stand-in for {action.name}")
        return Sandbox(None if action.kind == "memory_write" else dry_run(action.name), reason=why)


def dry_run(name: str) -> dict[str, str]:
    """The reply of a dry run."""
    return {"status": "dry run", "action": name}


def _taking_mapping(reply: Any) -> Any:
    """Adapt a fake, which has its port's signature, to a decision's callable, which takes the arguments as one mapping."""
    if not callable(reply):
        return reply
    return lambda arguments: reply(**arguments)


def sandbox(agents: str | Iterable[str], replies: Mapping[str, Any] | None = None, *, otherwise: Otherwise = "dry_run") -> Rule:
    """Make a rule that sandboxes these agents, by exact name, and all that acts for them, regardless of their trust."""
    names = frozenset((agents,) if isinstance(agents, str) else agents)
    stand_ins = StandIns(replies=replies or {}, otherwise=otherwise)
    if not names:
        raise SpecError(what="the sandbox names no agent", why="it would do nothing", fix='write sandbox("intern")')

    def sandbox(record: Record) -> Decision | None:
        found = next((agent for agent in (record.agent, *(outer for outer, _ in around())) if agent in names), None)
        return None if found is None else stand_ins.answer(record, f"{found} is not trusted")

    return sandbox
