"""Convert a run to spans, for any exporter: one for the run, one per agent, one per record; verdicts are events.

A record's span has the attributes of the GenAI conventions where its kind has any, and all of its fields under `mat.*`. Times
are run time from `began_ns` on; the nanoseconds below a millisecond are the sequence number, so that the times also show order
and concurrency. Ids are computed from the run's digests, so the same run always gives the same spans.
"""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from mat.adapters.otel import names
from mat.core.codec import FORMAT, encode
from mat.core.digest import chain, digest, plain
from mat.core.record import Record, facts
from mat.core.redact import Redactor, clean_texts, cleaned
from mat.core.run import Run
from mat.core.verdict import ContractOutcome, Violation
from mat.kernel.clock import EPOCH_S
from mat.monitor.judge import HARNESS

__all__ = ["EPOCH_NS", "Attributes", "Draft", "Happening", "drafts", "trace_id_of"]

EPOCH_NS: Final = EPOCH_S * 1_000_000_000
"""When a virtual run begins, in Unix nanoseconds."""
_BELOW_MS: Final = 999_999
_INT64: Final = 1 << 63
_COMPUTED: Final = frozenset({"id", "parent", "links"})
"""Fields of a span without text of anybody."""
Attributes: TypeAlias = dict[str, str | bool | int | float | list[str] | list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """An event of a span; `at` is in Unix nanoseconds."""

    name: str
    at: int
    attributes: Attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A span before export: ids in hex, times in Unix ns. `links` are ids of spans of the same trace, `error` a status."""

    name: str
    id: str
    parent: str
    client: bool
    start: int
    end: int
    attributes: Attributes
    events: tuple[Happening, ...] = ()
    links: tuple[str, ...] = ()
    error: str | None = None


def trace_id_of(run: Run) -> str:
    """The trace id of a run, 32 hex digits."""
    run = cleaned(run)
    return digest(["otel", run.id, run.head])[:32]


def drafts(run: Run, *, began_ns: int = EPOCH_NS) -> tuple[Draft, ...]:
    """The spans of a run: first its own, then those of agents, then those of records by step, without declared secrets."""
    tokens = Redactor()
    spans = _Spans(cleaned(run), began_ns)
    made = (spans.run_span(), *spans.agent_spans(), *spans.record_spans())
    return tuple(clean_texts(cleaned(draft), tokens.text, kept=_COMPUTED) for draft in made)


class _Spans:
    """The shared data of the spans of one run."""

    def __init__(self, run: Run, began_ns: int) -> None:
        self._run, self._trace, self._began = run, trace_id_of(run), began_ns
        self._root = self._id("run")
        self._broken: dict[int, list[Violation]] = {}
        for violation in run.violations:
            self._broken.setdefault(violation.step, []).append(violation)
        self._causes = _Causes()

    def _id(self, *parts: object) -> str:
        return digest([self._trace, *parts])[:16]

    def _asked_ns(self, record: Record) -> int:
        return self._began + record.at_ms * 1_000_000 + min(record.asked_seq, _BELOW_MS)

    def _sealed_ns(self, record: Record) -> int:
        return self._began + record.sealed_ms * 1_000_000 + min(record.sealed_seq, _BELOW_MS)

    def run_span(self) -> Draft:
        run = self._run
        end = max([self._began + run.elapsed_ms * 1_000_000, *map(self._sealed_ns, run.records)])
        attributes: Attributes = {
            names.RUN_ID: run.id, names.RUN_HEAD: run.head, names.RUN_VIEW: run.view,
            names.RUN_RECORDS: len(run.records), names.RUN_OUTCOME: run.outcome,
        }  # fmt: skip
        for value, scalars in ((run.spec, names.SPEC_SCALARS), (run, names.RUN_SCALARS)):
            _scalars(attributes, value, scalars)
        for value, structures in ((run.spec, names.SPEC_STRUCTURES), (run, names.RUN_STRUCTURES)):
            for field, name in structures.items():
                found = encode(getattr(value, field))
                if found:
                    attributes[name] = _json(found)
        # Last, because an SDK with a limit drops the oldest attributes: a reader then finds that they are missing.
        attributes[names.FORMAT] = FORMAT
        broken = next((f"{item.contract} is violated: {item.message}" for item in run.failures), None)
        error = run.error or (None if run.term else run.termination) or broken
        events = tuple(_outcome(outcome, end) for outcome in run.outcomes)
        return Draft(
            name=f"mat.run {run.spec.task}".rstrip(), id=self._root, parent="", client=False, start=self._began, end=end,
            attributes=attributes, events=events, error=error,
        )  # fmt: skip

    def agent_spans(self) -> Iterable[Draft]:
        """One span for each agent, from its first step to its last."""
        acts: dict[str, list[Record]] = {}
        for record in self._run.records:
            if record.agent != HARNESS:
                acts.setdefault(record.agent, []).append(record)
        for agent, records in acts.items():
            attributes: Attributes = {
                "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent, "gen_ai.provider.name": names.PROVIDER,
            }  # fmt: skip
            yield Draft(
                name=f"invoke_agent {agent}", id=self._id("agent", agent), parent=self._root, client=False,
                start=min(map(self._asked_ns, records)), end=max(map(self._sealed_ns, records)), attributes=attributes,
            )  # fmt: skip

    def record_spans(self) -> Iterable[Draft]:
        link = self._run.id
        for record in self._run.records:
            link = chain(link, facts(record))
            causes, previous = self._causes.of(record)
            attributes = {**_convention_attributes(record), **_fields(record), names.HEAD: link}
            broken = self._broken.get(record.step, [])
            attributes[names.VERDICT] = min((item.severity for item in broken), default="pass")  # "hard" comes before "soft"
            if causes:
                attributes[names.CAUSES] = causes
            if previous is not None:
                attributes[names.PREVIOUS] = previous
            attributes[names.STEP] = attributes.pop(names.STEP)  # last, like the format of the run
            error, cancelled = record.observation.error, record.observation.cancelled
            status = f"{error.type}: {error.message}" if error is not None else "cancelled" if cancelled else None
            yield Draft(
                name=_title(record, attributes), id=self._id("step", record.step),
                parent=self._root if record.agent == HARNESS else self._id("agent", record.agent),
                client=record.action.kind == "model_call", start=self._asked_ns(record), end=self._sealed_ns(record),
                attributes=attributes, events=self._events(record, broken),
                links=tuple(self._id("step", step) for step in causes), error=status,
            )  # fmt: skip

    def _events(self, record: Record, broken: Iterable[Violation]) -> tuple[Happening, ...]:
        found: list[tuple[str, int, Attributes]] = []
        asked, sealed = self._asked_ns(record), self._sealed_ns(record)
        mediation, error = record.mediation, record.observation.error
        if mediation is not None:
            decided = {"decision": mediation.decision, "rule": mediation.rule, "reason": mediation.reason}
            found.append((names.MEDIATION_EVENT, asked, _event_attributes(names.MEDIATION_EVENT, decided)))
        for note in record.faults:
            fields = {
                "operator": note.operator, "parameters": _json(plain(note.parameters)), "effect": note.effect,
                "changed": note.changed,
            }  # fmt: skip
            found.append((names.FAULT_EVENT, sealed, _event_attributes(names.FAULT_EVENT, fields)))
        if error is not None:
            found.append(("exception", sealed, {"exception.type": error.type, "exception.message": error.message}))
        found += [
            (names.VIOLATION_EVENT, sealed, _event_attributes(names.VIOLATION_EVENT, _violation(item))) for item in broken
        ]
        return tuple(Happening(name=name, at=at, attributes=attributes) for name, at, attributes in found)


class _Causes:
    """Follows links: which step made an artifact, and which step of an agent preceded another."""

    def __init__(self) -> None:
        self._made: dict[str, int] = {}
        self._before: dict[str, list[tuple[int, int]]] = {}

    def of(self, record: Record) -> tuple[list[int], int | None]:
        """The steps that a record's links lead from, and the agent's step sealed last before it was asked."""
        own = (record.artefact, f"claim#{record.step}")
        found = {self._step(link.src) for link in record.links} - {None, record.step}
        self._made.update({link.dst: record.step for link in record.links if link.dst not in own})
        if record.action.kind == "retrieval" and isinstance(record.observation.value, list):
            passages = [item.get("id") for item in record.observation.value if isinstance(item, dict)]
            self._made.update({f"passage:{id}": record.step for id in passages if id is not None})
        before = self._before.setdefault(record.agent, [])
        place = bisect_left(before, (record.asked_seq, -1))
        previous = before[place - 1][1] if place else None
        insort(before, (record.sealed_seq, record.step))
        return sorted(step for step in found if step is not None), previous

    def _step(self, artifact: str) -> int | None:
        kind, _, number = artifact.partition("#")
        if kind in ("step", "claim") and number.isdecimal():
            return int(number)
        return self._made.get(artifact)


# -- attributes of our own --------------------------------------------------------------------------------------------


def _fields(record: Record) -> Attributes:
    """Every field of a record that is not empty, under its name in `names`."""
    found: Attributes = {}
    action, observation, mediation = record.action, record.observation, record.mediation
    _scalars(found, record, names.SCALARS)
    _scalars(found, action, names.ACTION)
    if action.arguments:
        found[names.ARGUMENTS] = _json(plain(action.arguments))
    for field, name in names.STRUCTURES.items():
        value = getattr(record, field)
        if value if field in ("state", "links", "faults", "artefacts") else value is not None:
            found[name] = _json(encode(value))
    if observation.value is not None:
        found[names.VALUE] = _json(plain(observation.value))
    if observation.error is not None:
        found[names.ERROR] = _json(encode(observation.error))
    if observation.usage:
        found[names.USAGE] = _json(plain(observation.usage))
    if observation.charged:
        found[names.CHARGED] = _json(plain(observation.charged))
    for field, name in names.OBSERVATION.items():
        value = getattr(observation, field)
        if value is not None and value is not False:
            found[name] = value
    if mediation is not None:
        found |= {name: text for field, name in names.MEDIATION.items() if (text := getattr(mediation, field))}
        if mediation.arguments is not None:
            found[names.ALLOWED] = _json(plain(mediation.arguments))
        if mediation.under:
            found[names.UNDER] = list(mediation.under)
        if mediation.reserved:
            found[names.RESERVED] = _json(plain(mediation.reserved))
    return found


def _scalars(found: Attributes, value: object, scalars: Mapping[str, str]) -> None:
    for field, name in scalars.items():
        item = getattr(value, field)
        if item is not None:  # an integer too large for OTLP becomes a text
            found[name] = str(item) if type(item) is int and not -_INT64 <= item < _INT64 else item


def _violation(violation: Violation) -> dict[str, Any]:
    return {
        "contract": violation.contract, "severity": violation.severity, "stage": violation.stage, "message": violation.message,
        "weight": violation.weight, "instance": violation.instance, "wanted": violation.wanted, "repair": violation.repair,
        "region": list(violation.region), "witness": list(violation.witness),
        **({"label": violation.label} if violation.label else {}),
    }  # fmt: skip


def _outcome(outcome: ContractOutcome, at: int) -> Happening:
    fields = {
        "id": outcome.contract, "severity": outcome.severity, "outcome": outcome.outcome, "standing": outcome.standing,
        "violations": len(outcome.violations), "error": outcome.error,
    }  # fmt: skip
    return Happening(name=names.CONTRACT_EVENT, at=at, attributes=_event_attributes(names.CONTRACT_EVENT, fields))


def _event_attributes(event: str, fields: Mapping[str, Any]) -> Attributes:
    """The attributes of an event, under its name; texts and lists without content are left out."""
    return {f"{event}.{key}": value for key, value in fields.items() if value not in ("", [])}


# -- attributes of the conventions ------------------------------------------------------------------------------------


def _title(record: Record, attributes: Mapping[str, Any]) -> str:
    """The span's name, by the conventions if they cover its kind."""
    operation = attributes.get("gen_ai.operation.name", f"mat.{record.action.kind}")
    return str(operation) if record.action.kind in ("memory_read", "memory_write") else f"{operation} {record.action.name}"


def _convention_attributes(record: Record) -> Attributes:
    """A record as attributes of the GenAI conventions, as far as they cover it. The arguments are those that were executed."""
    action, observation = record.action, record.observation
    arguments = action.arguments if record.executed is None else record.executed
    found: Attributes = {"gen_ai.agent.name": record.agent}
    if action.kind == "tool_call":
        found |= {
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": action.name,
            "gen_ai.tool.call.arguments": _json(plain(arguments)),
        }  # fmt: skip
        if observation.value is not None:
            found["gen_ai.tool.call.result"] = _as_text(observation.value)
    elif action.kind == "model_call":
        found |= {
            "gen_ai.operation.name": "chat", "gen_ai.request.model": action.name, "gen_ai.provider.name": names.PROVIDER,
        }  # fmt: skip
        found |= _conversation(record)
    elif action.kind == "retrieval":
        found |= {"gen_ai.operation.name": "retrieval", "gen_ai.data_source.id": action.name}
        if isinstance(arguments.get("query"), str):
            found["gen_ai.retrieval.query.text"] = arguments["query"]
        if isinstance(observation.value, list):
            found["gen_ai.retrieval.documents"] = _json(plain(observation.value))
    elif action.kind in ("memory_read", "memory_write"):
        read = action.kind == "memory_read"
        content = observation.value if read else arguments.get("value")
        key = arguments.get("key")
        found |= {
            "gen_ai.operation.name": "search_memory" if read else "upsert_memory", "gen_ai.memory.store.id": action.name,
        }  # fmt: skip
        if key is not None:
            found["gen_ai.memory.record.id"] = _as_text(key)
        if content is not None:
            record_id = {} if key is None else {"id": _as_text(key)}
            found["gen_ai.memory.records"] = _json([{**record_id, "content": plain(content)}])
    elif action.kind == "delegation":
        found |= {
            "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": action.name, "gen_ai.provider.name": names.PROVIDER,
        }  # fmt: skip
    error = observation.error
    if error is not None or observation.cancelled:
        found["error.type"] = "cancelled" if error is None else error.type or "_OTHER"
    return found


def _conversation(record: Record) -> Attributes:
    """The input and output of a model call, if the record has them in plain text; prompts are hashed by default."""
    given, value = record.action.arguments.get("messages"), record.observation.value
    found: Attributes = {}
    if isinstance(given, list) and given and all(isinstance(item, dict) and "role" in item for item in given):
        messages = [{"role": item["role"], "parts": [_part(item.get("content"))]} for item in given]
        found["gen_ai.input.messages"] = _json(messages)
    if value is not None:
        content = value.get("content", value) if isinstance(value, dict) else value
        found["gen_ai.output.messages"] = _json([{"role": "assistant", "parts": [_part(content)], "finish_reason": "stop"}])
    for ours, theirs in (("input_tokens", "input_tokens"), ("output_tokens", "output_tokens"),
                         ("reasoning_tokens", "reasoning.output_tokens")):  # fmt: skip
        count = record.observation.usage.get(ours)
        if type(count) is int and 0 <= count < _INT64:
            found[f"gen_ai.usage.{theirs}"] = count
    return found


def _part(content: Any) -> dict[str, str]:
    return {"type": "text", "content": _as_text(content)}


def _as_text(value: Any) -> str:
    """A text unchanged, anything else as JSON."""
    return value if isinstance(value, str) else _json(plain(value))


def _json(data: Any) -> str:
    """JSON data as ASCII text, because exporters fail on text without a UTF-8 form."""
    return json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


# -- secrets ----------------------------------------------------------------------------------------------------------
