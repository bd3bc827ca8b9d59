"""The recorder, the session of one run: it numbers steps, seals their records, and passes them to monitors and sinks.

The layers of a crossing and the state of a run are separate modules: mediation, metering, faults and
taping; provenance, artifacts, episodes and the state that the search compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from sys import _getframe
from threading import get_ident
from typing import Any

from mat.boundary.catalog import Catalog
from mat.boundary.emit import FinishStatus, acting
from mat.boundary.integrity import Integrity
from mat.boundary.port import Port
from mat.boundary.tape import Tape
from mat.boundary.usage import usage_of
from mat.core import limits
from mat.core.adversary import Choose, Seen
from mat.core.errors import MatError, ProcessCrashed, RunStopped
from mat.core.record import (
    NOTHING,
    ActionKind,
    Effected,
    Link,
    Observation,
    Record,
    new_action,
    new_observation,
    new_record,
)
from mat.core.redact import Redactor, clean_texts
from mat.core.run import Finding, Run, Termination, Uncaught
from mat.core.spec import RunSpec
from mat.core.value import EMPTY, FrozenDict, Value, snapshot_arguments
from mat.govern.mediator import Approver, Mediator, governance_name
from mat.harness.artifacts import ArtifactTracking
from mat.harness.digest import StateDigest
from mat.harness.episodes import Episodes
from mat.harness.faults import FaultLayer
from mat.harness.finalisation import margins, opaque_replies, port_errors, restricted, tape_entries
from mat.harness.mediation import MediationLayer
from mat.harness.metering import Metering
from mat.harness.open_step import OpenStep, new_draft
from mat.harness.provenance import NO_LINKS, ORIGIN_CHARS, ORIGIN_TEXTS, Provenance
from mat.harness.recorded_form import RecordedForm, if_changed
from mat.harness.redaction import redacted_run
from mat.harness.run_time import RunTime
from mat.harness.search_state import SearchState
from mat.harness.sites import Sites, SiteSlot
from mat.harness.taping import TapeLayer
from mat.harness.trace import Trace
from mat.kernel.callers import CallPlace, agent_place, place_texts
from mat.kernel.threads import real_rlock
from mat.kernel.world import World
from mat.monitor.judge import EPISODE, HARNESS, Judge, verdicts
from mat.resources.contract import ResourceContract


class Recorder:
    """Records one run, in ask order. `closed`: whether the run is over.

    `mediation`, `faults` and `tape` are None without governance, faults and a tape.
    """

    __slots__ = (
        "__weakref__", "_artifacts", "_episodes", "_errors", "_findings", "_form", "_given", "_latest", "_lock", "_origins",
        "_outer", "_places", "_provenance", "_records", "_redactor", "_search", "_secrets", "_seq", "_sites", "_state",
        "_thread", "_time", "_world",
        "approver", "closed", "crashed", "faults", "mediation", "metering", "mistake", "spec", "tape", "termination", "trace",
    )  # fmt: skip

    def __init__(
        self,
        spec: RunSpec,
        *,
        world: World,
        judge: Judge,
        mediator: Mediator,
        approver: Approver | None = None,
        catalog: Catalog | None = None,
        tape: Tape | None = None,
        secrets: Mapping[str, None] | None = None,
        keep_states: bool = False,
        state_digest: Callable[[], object] | StateDigest | None = None,
        vary: bool = False,
        adversary: Choose | None = None,
        contracts: Mapping[str, ResourceContract] = EMPTY,
        errors: tuple[str, ...] = (),
    ) -> None:
        self.spec, self.approver = spec, approver
        self.closed = self.crashed = False
        self.mistake: MatError | None = None
        self.termination: Termination | None = None
        self._world, self._given, self._errors = world, _as_digest(state_digest), errors
        self._lock, self._thread = real_rlock(), get_ident()
        self._redactor = Redactor(secrets)
        self._secrets = self._redactor.secrets
        self._form = form = RecordedForm(self._redactor)
        self._time = RunTime(world.clock, spec)
        self._sites = Sites(self._redactor)
        self._latest = self._sites.latest
        self._state = EMPTY
        self._seq = 0
        self._findings: list[Finding] = []
        self._places: list[CallPlace | None] = []
        self.trace = trace = Trace(judge, form)
        self._records = trace.records
        self._provenance = Provenance(trace, form)
        self._origins = self._provenance.origins
        self._artifacts: ArtifactTracking | None = None
        self._episodes = Episodes(trace, mediator if mediator.active else None)
        self.mediation = MediationLayer(mediator, trace, form) if mediator.active else None
        self.tape = None if tape is None else TapeLayer(tape, form)
        if mediator.watches:
            trace.sinks.append(mediator.observe)
        self.metering = Metering(
            contracts, time=self._time, lock=self._lock, redactor=self._redactor, write=self.write,
            check_horizon=self._check_horizon, note=self.note,
        )  # fmt: skip
        self._search = self.metering.search = search = None if not keep_states else SearchState(
            trace, self._provenance, world=world, redactor=self._redactor, governed=mediator.state,
            metered=self.metering.state, given=self._given,
            vary=vary and spec.config.get("governance", governance_name(None)) == governance_name(None),
        )  # fmt: skip
        disturbed = len(spec.schedule) > 0 or adversary is not None
        self.faults = None if not disturbed and search is None else FaultLayer(
            spec.schedule, catalog=Catalog() if catalog is None else catalog, adversary=adversary, world=world, trace=trace,
            episodes=self._episodes.outcomes, form=form, search=search, lock=self._lock, errors=errors,
        )  # fmt: skip
        self._outer = (world.on_note, world.on_stop, world.on_site, world.ends_at_ns, world.guarded)
        world.on_note, world.on_stop, world.on_site = self.note, self.stop, self.open_site
        world.ends_at_ns = self._time.ends_at_ns

    # -- the two phases ---------------------------------------------------------------------------------------------

    def ask(self, port: Port, arguments: dict[str, Any]) -> OpenStep:
        """Phase one: number, site, snapshot. RunStopped at the horizon, CodecError for a value without a recorded form."""
        if self.crashed:
            raise ProcessCrashed(f"{port.name}: the process has ended")
        if self.metering.active:
            self.metering.begin(port)
        clean = self._redactor.clean(arguments)
        if type(arguments) is not FrozenDict:
            arguments = FrozenDict(arguments) if clean else snapshot_arguments(arguments, f"call of {port.name}")
        self._lock.acquire()  # half the cost of a with statement, and twice in every step
        try:
            time = self._time
            if time.clock.at_ns != time.seen_ns:
                time.now_ms()
            step = len(self._records)
            if step >= time.end_step:
                self._check_horizon()
            if get_ident() != self._thread:
                self._check_thread()
            agent, role = acting.get()
            slot = self._latest.get(port)
            if slot is None or slot.agent != agent:
                slot = self._slot(agent, port)
            counter = slot.counter
            counter.nth = nth = counter.nth + 1
            sealed, links, judged = arguments, NO_LINKS, arguments
            if not (clean and slot.plain):
                if self._search is not None:
                    judged = self._search.plain_arguments(arguments)
                sealed, links = self._sealed_with_links(port, judged, step)
            elif origins := self._origins:
                for item in arguments.values():
                    if item in origins:
                        links = self._provenance.derived(arguments, step)
                        break
            artifacts = EMPTY
            if self._artifacts is not None:
                artifacts, links = self._artifacts.carried(port, arguments, step, links)
            if self._redactor.knows_secrets:
                agent, role = self._redactor.text(agent), self._redactor.text(role)
            draft = new_draft()
            draft.step, draft.at_ms, draft.asked_seq = step, time.at_ms, self._seq
            draft.agent, draft.role, draft.state = agent, role, self._state
            draft.site = f"{counter.prefix}{nth}"
            draft.action = new_action(port.kind, counter.name, sealed, port.effect, port.impact, port.boundary)
            opened = OpenStep()
            opened.record, opened.port, opened.passed_arguments, opened.judged_arguments = draft, port, arguments, judged
            opened.links, opened.artefacts = links, artifacts
            opened.mediation = opened.replaced_arguments = opened.port_reply = opened.delivered = opened.client_reply = None
            opened.invoked, opened.faults, opened.taped, opened.error_kind = 0, (), False, ""
            self._seq += 1
            self._records.append(opened)
            self._places.append(agent_place(_getframe(1)))
            self.trace.ports.append(port)
            if self._search is not None:
                self._search.read()
            return opened
        finally:
            self._lock.release()

    def _check_horizon(self) -> None:
        """Raise RunStopped at the horizon."""
        if len(self._records) >= self._time.end_step and not self.closed:
            self.stop("horizon")
            raise RunStopped("horizon")

    def _check_thread(self) -> None:
        if not self._world.owns_thread():
            self.note("order-not-controlled", "a step ran in a thread that virtual time does not schedule")

    def _slot(self, agent: str, port: Port) -> SiteSlot:
        if port.issues or port.consumes:
            self._track()
        return self._sites.slot(agent, port)

    def _sealed_with_links(self, port: Port, arguments: FrozenDict, step: int) -> tuple[FrozenDict, tuple[Link, ...]]:
        """The recorded form of arguments and their links: the slow path, for nested or long ones and ports with a policy."""
        sealed = self._form.arguments(port, arguments)
        return sealed, self._provenance.links(port, arguments, sealed, step)

    def heard(self, opened: OpenStep, value: Any, error: BaseException | None) -> None:
        """Take the reply of the port or of the tape, before faults act on it."""
        if opened.port.issues and (error is None or _holds_whole_chunks(value)):
            with self._lock:
                self._track().issued(opened, opened.port, value, at_ms=self._time.now_ms())
        if self.tape is not None:
            self.tape.heard(opened, value, error)
        if self.faults is not None:
            self.faults.heard(opened, value, error)

    def seal(self, opened: OpenStep, value: Any) -> None:
        """Phase two, with a reply."""
        port = opened.port
        if self._artifacts is not None and opened.port_reply is not None:
            self._artifacts.arrived(opened, port, value)
        if type(value) is dict and port.record == "keep" and self._redactor.clean(value):
            sealed: Value = FrozenDict(value)
            opaque, flat = False, len(value) <= ORIGIN_TEXTS
        else:
            if self._search is not None:
                value = self._search.plain_reply(opened.step, value)
            (sealed, opaque), flat = self._form.reply(port, value), False
        usage = usage_of(value, port.usage) if port.kind == "model_call" else EMPTY
        chunks = len(value) if port.stream and isinstance(value, list) else None
        self._lock.acquire()
        try:
            if self.closed:
                return
            effected: Effected = "yes" if opened.invoked or opened.taped or not port.boundary else "no"
            self._seal(opened, new_observation(sealed, None, False, chunks, opaque, usage, EMPTY), effected)
            if flat:  # like `Provenance.remember`, without checking the type of the value again
                origins, step = self._origins, opened.record.step
                for item in value.values():
                    if type(item) is str and len(item) >= ORIGIN_CHARS:
                        if item in origins:
                            self._provenance.remember(item, step)
                        else:
                            origins[item] = (step,)
            elif sealed is not None:
                self._provenance.remember(sealed, opened.step)
        finally:
            self._lock.release()

    def seal_error(self, opened: OpenStep, error: BaseException) -> None:
        """Phase two, with an error, a cancellation or a stop: every crossing that is left has a record."""
        import asyncio

        cancelled = isinstance(error, asyncio.CancelledError | GeneratorExit | KeyboardInterrupt | RunStopped)
        passed = opened.delivered  # the chunks of a stream that the agent got before it ended
        value, opaque = (None, False) if passed is None else self._form.reply(opened.port, passed)
        chunks = None if passed is None else len(passed)
        usage = EMPTY if passed is None or opened.port.kind != "model_call" else usage_of(passed, opened.port.usage)
        if self._artifacts is not None:
            self._artifacts.arrived(opened, opened.port, passed)
        with self._lock:
            if not self.closed:
                fact = self._form.error(opened, error)
                self._seal(opened, new_observation(value, fact, cancelled, chunks, opaque, usage, EMPTY), opened.effected)

    def _seal(self, opened: OpenStep, observation: Observation, effected: Effected) -> None:
        """Make the record of an open step, and fold it once all steps asked before it are sealed."""
        faults, time = self.faults, self._time
        executed, mediation, raw = opened.replaced_arguments, opened.mediation, opened.port_reply
        if self.metering.active:
            observation = self.metering.charged(opened, observation)
        if executed is not None:
            if self._artifacts is not None:
                self._artifacts.reached(opened, opened.port, executed)
            executed = self._form.executed(opened, executed)
        if mediation is not None:
            mediation = self._form.mediation(opened, mediation)
        if raw is not None:
            raw = if_changed(raw, observation)
        if time.clock.at_ns != time.seen_ns:
            time.now_ms()
        if faults is not None and faults.interleaves and opened.port.boundary:
            self._world.call_ended()
        draft: Any = opened.record
        draft.sealed_ms, draft.sealed_seq = time.at_ms, self._seq
        draft.observation, draft.effected, draft.mediation = observation, effected, mediation
        draft.links, draft.executed, draft.raw = opened.links, executed, raw
        draft.invoked, draft.faults, draft.taped = opened.invoked, opened.faults, opened.taped
        draft.artefacts = opened.artefacts
        draft.__class__ = Record  # from here on it is frozen; a new object would cost a second allocation per step
        record, step, trace = opened.record, draft.step, self.trace
        self._records[step] = record
        self._seq += 1
        if step == len(trace.verdicts):  # nearly always the last step asked: judge it without a loop
            found = trace.judge.fold(record)
            trace.verdicts.append(found)
            if trace.sinks:
                for sink in trace.sinks:
                    sink(record, found)
            if step + 1 < len(self._records):
                self._fold()
        if self.metering.active:
            self.metering.write_entries()

    def _fold(self) -> None:
        """Judge the records up to the first unsealed step, and pass them to the sinks."""
        trace, records = self.trace, self._records
        verdicts, sinks = trace.verdicts, trace.sinks
        while len(verdicts) < len(records):
            record = records[len(verdicts)]
            if type(record) is not Record:
                return
            found = trace.judge.fold(record)
            verdicts.append(found)
            for sink in sinks:
                sink(record, found)

    def write(self, kind: ActionKind, name: str, agent: str, arguments: FrozenDict) -> None:
        """Write a record that is sealed at once. It is not an agent's step, so the horizon does not stop it."""
        if self.closed:
            return
        port = self._sites.inner_port(kind, name)
        counter = self._sites.slot(agent, port).counter
        counter.nth += 1
        at_ms, site = self._time.now_ms(), f"{counter.prefix}{counter.nth}"
        self._records.append(new_record(
            len(self._records), at_ms, at_ms, self._seq, self._seq + 1, agent, "", self._state, site,
            new_action(kind, name, arguments, "none", "low", ""), NOTHING, "yes", None, (), None, None, 0, (), False, EMPTY,
        ))  # fmt: skip
        self._places.append(None)
        self.trace.ports.append(port)
        self._seq += 2
        if self._search is not None:
            self._search.read()
        self._fold()

    # -- statements of agents ---------------------------------------------------------------------------------------

    def emit(self, kind: ActionKind, name: str, arguments: FrozenDict, supports: Iterable[object] = ()) -> None:
        """Record an action that crosses no boundary."""
        opened = self.ask(self._sites.inner_port(kind, name), arguments)
        artifact = f"claim#{opened.step}" if kind == "claim" else f"step#{opened.step}"
        found = [self._provenance.source(item) for item in supports]
        opened.links = (*opened.links, *(Link(src=source, rel="supports", dst=artifact) for source in found if source))
        self.seal(opened, None)

    def observe(self, name: str, text: str, *, ttl_ms: int | None, integrity: Integrity, supersedes: bool) -> None:
        """Record that an artifact was declared."""
        known = self._track()
        opened, source = self.ask(self._sites.inner_port("artefact", name), EMPTY), self._provenance.source(text)
        with self._lock:
            known.declared(opened, name, text, ttl_ms=ttl_ms, integrity=integrity, supersedes=supersedes)
        if source:
            opened.links = (*opened.links, Link(src=source, rel="derived_from", dst=f"step#{opened.step}"))
        self.seal(opened, None)

    def _track(self) -> ArtifactTracking:
        """Track artifacts from now on, without equivalence classes: artifacts depend on arguments, which may differ in them."""
        if self._artifacts is None:
            self._artifacts = ArtifactTracking(self.note, self._redactor)
            if self._search is not None:
                self._search.forgo_equivalence()
        return self._artifacts

    def project(self, signals: Mapping[str, object]) -> None:
        """Change the state projection that records carry."""
        new = self._redactor.value(snapshot_arguments(signals, "mat.state"))
        self._state = FrozenDict({**self._state, **new})  # type: ignore[dict-item]

    def secret(self, text: str) -> None:
        """Redact this text from now on, and in the records made so far."""
        with self._lock:
            self._redactor.add_secret(text)
            self._sites.redact()
            self._state = self._redactor.mapping(self._state)
            for step, record in enumerate(self._records):
                if isinstance(record, Record):
                    self._records[step] = clean_texts(record, self._redactor.text)

    def finish(self, status: FinishStatus, answer: object) -> None:
        """Record that the agent is done."""
        if status == "completed":
            self.emit("final_response", "answer", snapshot_arguments({"answer": answer}, "final response"))
        else:
            self.emit("termination", status, snapshot_arguments({"answer": answer}, "termination"))
        self.termination = self.termination or status

    def note(self, code: str, message: str) -> None:
        """Note a finding about the run, once."""
        if any(item.code == code and item.message == message for item in self._findings):
            return
        if len(self._findings) < limits.NOTES:
            self._findings.append(Finding(code=code, message=message, step=len(self._records) - 1))

    def open_site(self) -> str:
        """The site of the last step that the acting agent has open; "" without one."""
        agent = self._redactor.text(acting.get()[0])
        steps = (each for each in reversed(self._records) if isinstance(each, OpenStep))
        return next((each.record.site for each in steps if each.record.agent == agent), "")

    @contextmanager
    def episode(self, name: str) -> Iterator[None]:
        """Begin an episode: contracts start anew, and their obligations close at its end. All other state is kept.

        The state projection holds the episode's number and name, so that offline judging starts anew at the same steps. A run
        that is stopped ends inside its episode.
        """
        self._episodes.next()
        self.project({EPISODE: f"{self._episodes.number()}: {name}"})
        stopped = False
        try:
            yield
        except RunStopped:
            stopped = True
            raise
        finally:
            if not stopped:
                self._episodes.next()
                self._state = FrozenDict({key: item for key, item in self._state.items() if key != EPISODE})

    # -- the end ----------------------------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """End the run from outside the agent: horizon or deadlock."""
        self._time.end_step = 0
        if self.termination not in ("horizon", "deadlock"):
            self.termination = "deadlock" if reason == "deadlock" else "horizon"

    def crash(self) -> None:
        """End the agent's process: no call reaches a port until `resume`."""
        self.crashed = True

    def resume(self) -> None:
        """Go on as a new process of the agent would: threads of the ended one meet their end first."""
        if self.crashed:
            self._world.settle()
            self.crashed = False

    def close(self, *, success: bool | None, error: str = "", raised: bool = False, uncaught: Uncaught | None = None) -> Run:
        """Seal open steps as cancelled, add a termination record if there is none, and judge the end."""
        with self._lock:  # code that still has an open step finds the run closed
            for opened in list(self._records):
                if isinstance(opened, OpenStep):
                    self._seal(opened, Observation(cancelled=True), opened.effected)
            self.metering.close()
            ended = self.termination
            if ended is None:
                ended = self.termination = "exception" if raised else "implicit"
            elapsed_ms = self._time.now_ms()
            if ended not in ("completed", "aborted", "failed"):
                self.write("termination", ended, HARNESS, EMPTY)
            self.closed = True
        world = self._world
        world.on_note, world.on_stop, world.on_site, world.ends_at_ns, world.guarded = self._outer
        faults, seen = self.faults, tuple[Seen, ...]()
        if faults is not None:
            if faults.schedule is not self.spec.schedule:
                self.spec = self.spec.under(faults.schedule)
            seen = faults.close()
        outcomes = self._episodes.finish()
        records, search, given = self.trace.sealed(), self._search, self._given
        if search is not None:
            search.read()
        run = Run(
            spec=self.spec, records=records, verdicts=verdicts(self.trace.verdicts), outcomes=outcomes,
            tape=tape_entries(records, self.trace.ports), termination=ended, success=success, error=error,
            unreached=() if faults is None else faults.unreached(),
            findings=tuple(self._findings) + opaque_replies(records), restricted=restricted(self.trace.ports),
            elapsed_ms=elapsed_ms, seen=seen, errors=port_errors(self.trace.ports, self._errors), uncaught=uncaught,
            places=place_texts(self._places),
            states=() if search is None else tuple(search.states),
            contended=() if search is None else tuple(search.contended),
            margins=EMPTY if search is None else margins(self.trace.judge.contracts, records),
            complete=given is not None and given.complete, clocked=given is None or given.clock,
            concolic=given is not None and given.complete and given.concolic,
            equivalence_classes=() if search is None else search.classes(
                termination=ended, elapsed_ms=elapsed_ms, horizon_ms=self.spec.horizon_ms
            ),
        )  # fmt: skip
        return redacted_run(run, self._redactor, late=self._redactor.secrets > self._secrets)


def _as_digest(given: Callable[[], object] | StateDigest | None) -> StateDigest | None:
    return given if isinstance(given, StateDigest) or given is None else StateDigest(given)


def _holds_whole_chunks(value: Any) -> bool:
    """Whether the chunks of a stream that ended early are pieces of data. Texts may end in the middle of a word."""
    return isinstance(value, list) and not any(isinstance(chunk, str) for chunk in value)
