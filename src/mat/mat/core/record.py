"""Actions, observations, links and the record of one step. Facts only; verdicts are kept separately."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

from mat.core.value import EMPTY, EXACT_FIELDS, SPARSE, FrozenDict, Value, fast_constructor

ActionKind: TypeAlias = Literal[
    "message",
    "model_call",
    "tool_call",
    "retrieval",
    "memory_read",
    "memory_write",
    "delegation",
    "handback",
    "grant",
    "contract",
    "artefact",
    "approval",
    "verification",
    "claim",
    "detection",
    "mitigation",
    "final_response",
    "termination",
]
ACTION_KINDS: Final = get_args(ActionKind)
DeclaredEffect: TypeAlias = Literal["none", "read", "write", "unknown"]
"""What a call does to the world, as its port declares it; "unknown" if nobody declared it."""
Impact: TypeAlias = Literal["low", "high"]
Effected: TypeAlias = Literal["yes", "no", "unknown"]
MediationDecision: TypeAlias = Literal["allow", "rewrite", "block"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One action that an agent asked for.

    `name` and `arguments` by kind. tool_call, model_call, retrieval: the port and its parameters. memory_read and
    memory_write: the memory, {key, value}; message: the recipient or channel, {text, sender}; delegation: the agent,
    {task}; handback: the delegator, {agent}, where a delegated task has ended; grant: the agent, {tool, ...}; contract: an
    event of a resource contract, {contract, entry, ...}; artifact: the name given to mat.artifact.observed;
    approval: what for, details; verification: what, {passed}; claim: "claim", {text}; detection: what; mitigation: its kind;
    final_response: "answer", {answer}; termination: completed, aborted, failed, implicit, exception, horizon or deadlock.
    """

    __pydantic_config__ = EXACT_FIELDS
    kind: ActionKind
    name: str
    arguments: FrozenDict = EMPTY
    effect: DeclaredEffect = "none"
    impact: Impact = "low"
    boundary: str = ""

    @property
    def may_write(self) -> bool:
        """Whether the call changes the world, or could: it is declared to write, or nobody declared its effect."""
        return self.effect == "write" or self.effect == "unknown"

    @property
    def changes_nothing(self) -> bool:
        """Whether the port declares that the call leaves the world, and the port's own next replies, as they were."""
        return self.effect == "read" or self.effect == "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFact:
    """An exception that reached the agent: class, text and, if a port or an operator raised it, its kind (timeout, ...).

    `retry_after_ms`: the wait that the service asked for, or None.
    """

    __pydantic_config__ = EXACT_FIELDS
    type: str
    message: str
    kind: str = ""
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What came back from an action. `opaque`: the reply has no canonical form and `value` names its class.

    `chunks`: their number, if the reply was a stream. `usage`: tokens, as a model's reply reports them. `charged`: what the
    resource ledger settled for the call.
    """

    __pydantic_config__ = EXACT_FIELDS
    value: Value = None
    error: ErrorFact | None = None
    cancelled: bool = False
    chunks: int | None = None
    opaque: bool = False
    usage: FrozenDict = EMPTY
    charged: FrozenDict = field(default=EMPTY, metadata=SPARSE)


NOTHING: Final = Observation()


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A provenance link (src, rel, dst). Artifacts are `step#n`, `claim#n`, `passage:id`, `memory:name/key`."""

    __pydantic_config__ = EXACT_FIELDS
    src: str
    rel: str
    dst: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mediation:
    """The mediator's decision on a proposed action, with the rule that made it and the arguments of a rewrite.

    If a rewrite was refused, `arguments` are the refused ones. The digests, of a tool's name and arguments in recorded
    form, are set if a rewrite or an approval was involved. `approval` and `grant` name the records of the requested approval
    and of the grant used, `under` the delegations under which the agent acted, outermost first. `reserved`: what the ledger of
    resource contracts holds for the call.
    """

    __pydantic_config__ = EXACT_FIELDS
    decision: MediationDecision
    rule: str = ""
    reason: str = ""
    arguments: FrozenDict | None = None
    asked_digest: str = ""
    allowed_digest: str = ""
    approval: str = ""
    grant: str = ""
    under: tuple[str, ...] = ()
    reserved: FrozenDict = field(default=EMPTY, metadata=SPARSE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultNote:
    """A fault effect that took place at this crossing. `effect` names its kind; `changed`: whether it changed the reply."""

    __pydantic_config__ = EXACT_FIELDS
    operator: str
    parameters: FrozenDict
    effect: str
    changed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One step of a run: who acted, what was asked, what came back. Only facts; verdicts are kept separately.

    `step` counts from 0 in ask order. `at_ms` and `sealed_ms` are run time. `asked_seq` and `sealed_seq` number the asks
    and the replies of a run in one count: a happened before b iff a.sealed_seq < b.asked_seq. `executed`: parameter ->
    value, the arguments that the port got, if they differ from those asked. `raw`: what the port returned, if it differs
    from what was delivered. `invoked`: how often the port ran. `artefacts`: "issued", "used" or "lacking" -> a list of the
    artifacts that the step issued, used or lacked (mat.core.artifact).

    - `agent`, `role`: who acted. `state`: signal -> value, as `mat.state` last set them. `site`: `agent/boundary:name#n`.
    - `action`: what was asked: kind, name, `arguments`, effect, impact. `observation`: what came back: value, error, token
      usage. `effected`: "yes", "no" or "unknown": whether the action had an effect.
    - `mediation`: the decision of governance, None if none was in force. `links`: a tuple of provenance links (src, rel,
      dst). `faults`: a tuple of the fault effects injected here. `taped`: whether the reply comes from a recording.

    >>> @mat.tool
    ... def track(parcel): return {"eta": "Friday"}
    >>> with mat.run() as run, mat.agent("clerk", role="planner"):
    ...     reply = track(17)
    >>> record = run.trace[0]
    >>> record.step, record.agent, record.action.kind, record.action.name, record.observation.value["eta"]
    (0, 'clerk', 'tool_call', 'track', 'Friday')

    Source: A1.1 (Eq. 6), A1.2, A1.3.
    """

    __pydantic_config__ = EXACT_FIELDS
    step: int
    at_ms: int
    sealed_ms: int
    asked_seq: int
    sealed_seq: int
    agent: str
    role: str
    state: FrozenDict
    site: str
    action: Action
    observation: Observation
    effected: Effected
    mediation: Mediation | None
    links: tuple[Link, ...]
    executed: FrozenDict | None
    raw: Observation | None
    invoked: int
    faults: tuple[FaultNote, ...]
    taped: bool
    artefacts: FrozenDict = field(default=EMPTY, metadata=SPARSE)

    @property
    def artefact(self) -> str:
        return f"step#{self.step}"

    @property
    def arguments(self) -> FrozenDict:
        """The arguments that governance let through: rewritten, or as the agent asked.

        `action.arguments` are those asked, `executed` those that the port got, faults included.
        """
        mediation = self.mediation
        if mediation is None or mediation.decision != "rewrite" or mediation.arguments is None:
            return self.action.arguments
        return FrozenDict({**self.action.arguments, **mediation.arguments})

    @property
    def blocked(self) -> bool:
        return self.mediation is not None and self.mediation.decision == "block"

    def happened_before(self, other: Record) -> bool:
        return self.sealed_seq < other.asked_seq


new_action = fast_constructor(Action)
new_mediation = fast_constructor(Mediation)
new_observation = fast_constructor(Observation)
new_record = fast_constructor(Record)


def facts(record: Record) -> list[Any]:
    """The facts that are hashed into `head`."""
    return [
        *_view_facts(record),
        record.agent,
        record.role,
        record.state,
        [[link.src, link.rel, link.dst] for link in record.links],
        [[note.operator, note.parameters, note.effect, note.changed] for note in record.faults],
        [record.asked_seq, record.sealed_seq, record.sealed_ms],
        None if record.raw is None else observed(record.raw),
    ]


def view(record: Record) -> list[Any]:
    """What agents and the world got, without fault labels; hashed into `view`."""
    return _view_facts(record)


def history(record: Record) -> list[Any]:
    """The facts of an earlier crossing that are part of the search's state key.

    They include state, role and links, because contracts read them. Fault labels are left out: they reach contracts only
    through monitor states, which are part of the key themselves.
    """
    return [
        *_view_facts(record),
        record.role,
        record.state,
        [[link.src, link.rel, link.dst] for link in record.links],
        [record.asked_seq, record.sealed_seq, record.sealed_ms],
        None if record.raw is None else observed(record.raw),
    ]


def observed(observation: Observation) -> list[Any]:
    """The facts of an observation for hashing."""
    found = [
        observation.value,
        None if observation.error is None else error_facts(observation.error),
        observation.cancelled,
        observation.chunks,
        observation.usage,
    ]
    return [*found, observation.charged] if observation.charged else found


def error_facts(error: ErrorFact) -> list[Any]:
    """The facts of an error for hashing; `retry_after_ms` is left out if it is None."""
    found: list[Any] = [error.type, error.message, error.kind]
    return found if error.retry_after_ms is None else [*found, error.retry_after_ms]


def mediation_facts(mediation: Mediation) -> list[Any]:
    """The facts of a decision for hashing; fields that later versions added are left out if they are empty."""
    found: list[Any] = [mediation.decision, mediation.rule, mediation.reason, mediation.arguments]
    more = {name: getattr(mediation, name) for name in _LATER_MEDIATION_FIELDS if getattr(mediation, name)}
    return [*found, more] if more else found


_LATER_MEDIATION_FIELDS: Final = ("asked_digest", "allowed_digest", "approval", "grant", "under", "reserved")


def _view_facts(record: Record) -> list[Any]:
    action, mediation = record.action, record.mediation
    found = [
        record.site,
        record.at_ms,
        [action.kind, action.name, action.arguments, action.effect, action.impact],
        observed(record.observation),
        record.effected,
        record.invoked,
        None if mediation is None else mediation_facts(mediation),
        record.executed,
    ]
    return [*found, record.artefacts] if record.artefacts else found
