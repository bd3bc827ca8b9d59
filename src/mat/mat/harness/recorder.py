"""The session of one run: gives steps their numbers, seals records, folds monitors, asks the mediator and the fault layer."""

from __future__ import annotations

from collections import Counter as Counted
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import replace
from random import Random
from threading import get_ident
from typing import Any, Final, TypeVar, cast

from mat.boundary.catalog import Catalog, Operator
from mat.boundary.effect import PASS, Call, Effect, Hold, Past, Replace, Reply, Rewrite
from mat.boundary.emit import FinishStatus, acting
from mat.boundary.port import Port
from mat.boundary.session import Decided, Settled, StandIn
from mat.boundary.tape import Tape
from mat.core import limits
from mat.core.adversary import Choose
from mat.core.digest import canonical, digest
from mat.core.errors import Blocked, CodecError, RunStopped, SpecError
from mat.core.integrity import Integrity
from mat.core.record import (
    NOTHING,
    Action,
    ActionDraft,
    ActionKind,
    ErrorFact,
    FaultNote,
    Link,
    Mediation,
    Observation,
    ObservationDraft,
    Record,
    new_action,
    new_mediation,
    new_observation,
    new_record,
)
from mat.core.redact import Redactor, shares_piece, texts
from mat.core.resources import PER_PORT
from mat.core.run import Finding, Run, Termination
from mat.core.site import escape, order_name
from mat.core.spec import Perturbation, RunSpec
from mat.core.value import EMPTY, FrozenDict, FrozenList, Value, snapshot, snapshot_arguments
from mat.core.verdict import ContractOutcome, Verdict, Violation
from mat.govern.mediator import Approver, Mediator, governance_name
from mat.harness.adversary import Chooser
from mat.harness.alike import Exchanges, Watch
from mat.harness.amend import clean_site, holds, redacted
from mat.harness.closing import margins, opaque_replies, restricted, tape_entries, tape_entry
from mat.harness.digest import StateDigest
from mat.harness.following import Following
from mat.harness.reply import ORIGIN_CHARS, ORIGIN_TEXTS, if_changed, kept, memory_link, parts, retry_after_ms, usage_of
from mat.harness.step import Aside, Counter, OpenStep, Seat, unsealed
from mat.kernel import network
from mat.kernel.threads import real_rlock
from mat.kernel.world import World
from mat.monitor.judge import EPISODE, HARNESS, Judge, attribute, merged, speaks, verdicts
from mat.resources.contract import ResourceContract
from mat.resources.ledger import BudgetSpent, Ledger
from mat.resources.work import Work, working

T = TypeVar("T")
NO_LINKS: Final[tuple[Link, ...]] = ()
_UNDER_CONTRACT: Final = Mediation(decision="allow", rule="budget")


class Recorder:
    """One run in the making. Records are kept in ask order; monitors fold each once all asked before it are sealed."""

    __slots__ = (  # attributes are read some forty times a step
        "__weakref__", "_adversary", "_alike", "_clock", "_contended", "_contracts", "_disturbed", "_emitted",
        "_end_step", "_episode_count", "_episodes", "_evidence", "_findings", "_folded", "_following", "_given",
        "_history", "_horizon_ns", "_indexed", "_judged", "_keep_states", "_latest", "_lock", "_mediator",
        "_metering", "_origins", "_outer", "_ports", "_reached", "_records", "_redactor", "_scheduled", "_seats",
        "_seen_ms", "_seen_ns", "_seq", "_sites", "_standing", "_start_ns", "_state", "_states", "_tape", "_thread",
        "_unindexed", "_vary", "_verdicts", "_watch", "approver", "closed", "interleaves", "judge", "ledger",
        "meters", "spec", "termination", "world",
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
    ) -> None:
        self.spec, self.world, self.judge = spec, world, judge
        self.closed = False
        self.ledger: Ledger | None = None
        self.meters = bool(contracts)
        self._contracts = contracts
        self._standing: dict[str, Work] = {}
        self.approver = approver
        self.termination: Termination | None = None
        self._mediator = mediator if mediator.active else None
        self._watch: Watch | None = mediator.observe if mediator.watches else None
        self._tape = tape
        self._redactor = Redactor(secrets)
        self._state = EMPTY
        self._records: list[Record | OpenStep] = []
        self._ports: list[Port] = []
        self._verdicts: list[Verdict | tuple[str, ...]] = []
        self._folded = 0
        self._seq = 0
        self._seats: dict[tuple[str, Port], Seat] = {}
        self._latest: dict[Port, Seat] = {}
        self._sites: dict[tuple[str, str, str], Counter] = {}
        self._emitted: dict[tuple[str, str], Port] = {}
        self._origins: dict[str, int] = {}
        self._following: Following | None = None
        self._evidence: dict[str, str] = {}
        self._indexed = 0
        self._unindexed: list[int] = []
        self._metering: dict[int, Work] = {}
        self._findings: list[Finding] = []
        self._keep_states = keep_states
        self._contended: list[int] = []
        self.interleaves = keep_states or any(item.site.boundary == "order" for item in spec.schedule)
        self._given = (
            state_digest if isinstance(state_digest, StateDigest) or state_digest is None else StateDigest(state_digest)
        )
        self._vary = vary
        self._alike: Exchanges | None = None
        self._episodes: list[tuple[ContractOutcome, ...]] = []
        self._episode_count = 0
        self._judged = 0
        self._states: list[str] = []
        self._lock = real_rlock()
        self._thread = get_ident()
        self._clock = world.clock
        self._start_ns = self._seen_ns = self._clock.at_ns
        self._seen_ms = 0
        self._end_step, self._horizon_ns = spec.horizon_steps, self._start_ns + spec.horizon_ms * 1_000_000
        self._scheduled: dict[tuple[str, str, str], list[tuple[Perturbation, Operator, frozenset[ActionKind]]]] = {}
        self._history: dict[tuple[str, str], deque[Any]] = {}
        self._reached: set[tuple[str, str, str]] = set()
        catalog = Catalog() if catalog is None else catalog
        for item in spec.schedule:
            catalog.check(item)
            self._bind(item, catalog[item.operator])
            self._history[item.site.boundary, item.site.name] = deque(maxlen=limits.HISTORY)
        self._adversary = None if adversary is None else Chooser(adversary, catalog=catalog, schedule=spec.schedule)
        self._disturbed = len(spec.schedule) > 0 or adversary is not None
        if self._adversary is not None and "order" in self._adversary.boundaries:
            self.interleaves = True
        self._outer = (world.on_note, world.on_stop, world.ends_at_ns, world.guarded)
        world.on_note, world.on_stop, world.ends_at_ns = self.note, self.stop, self._horizon_ns

    # -- the two phases ---------------------------------------------------------------------------------------------

    def ask(self, port: Port, arguments: dict[str, Any]) -> OpenStep:
        """Phase one: number, site, snapshot. Raises RunStopped at the horizon, CodecError for what has no recorded form."""
        if self._contracts and port.kind in PER_PORT:  # what it stands under comes before it in the trace
            with suppress(BudgetSpent):
                self.standing(acting.get()[0])
        clean = self._redactor.clean(arguments)
        if type(arguments) is not FrozenDict:
            arguments = FrozenDict(arguments) if clean else snapshot_arguments(arguments, f"call of {port.name}")
        self._lock.acquire()  # at half the price of a with statement, twice in every step
        try:
            if self._clock.at_ns != self._seen_ns:
                self._tick()
            step = len(self._records)
            if step >= self._end_step:
                self.stop("horizon")
                raise RunStopped("horizon")
            if get_ident() != self._thread:
                self._check_thread()
            agent, role = acting.get()
            seat = self._latest.get(port)
            if seat is None or seat.agent != agent:
                seat = self._seat(agent, port)
            counter = seat.counter
            counter.nth = nth = counter.nth + 1
            sealed, links = arguments, NO_LINKS
            if not (clean and seat.plain):
                sealed, links = self._slowly(port, arguments, step)
            elif self._origins:
                for item in arguments.values():
                    if item in self._origins:
                        links = self._derived(arguments, step)
                        break
            artefacts = EMPTY
            if self._following is not None:
                artefacts, links = self._following.carried(port, arguments, step, links)
            opened = OpenStep()
            opened.step = step
            opened.at_ms = self._seen_ms
            opened.asked_seq = self._seq
            opened.agent = agent
            opened.role = role
            opened.state = self._state
            opened.site = f"{counter.prefix}{nth}"
            opened.action = action = ActionDraft()
            action.kind = port.kind
            action.name = counter.name
            action.arguments = sealed
            action.effect = port.effect
            action.impact = port.impact
            action.boundary = port.boundary
            action.__class__ = Action
            opened.observation = None if sealed is arguments else Aside(arguments)
            opened.mediation = None
            opened.links = links
            opened.executed = None
            opened.raw = None
            opened.invoked = 0
            opened.faults = ()
            opened.taped = False
            opened.artefacts = artefacts
            self._seq += 1
            self._records.append(opened)
            self._ports.append(port)
            if self._keep_states:
                self._states.append(self._digest())
            return opened
        finally:
            self._lock.release()

    def _tick(self) -> None:
        """Time has moved: milliseconds are worked out anew, and at the horizon no further step is taken."""
        self._seen_ns = now_ns = self._clock.at_ns
        self._seen_ms = (now_ns - self._start_ns) // 1_000_000
        if now_ns > self._horizon_ns:
            self._end_step = 0

    def _seat(self, agent: str, port: Port) -> Seat:
        """The agent's seat at a port, which from now on is the port's latest."""
        seat = self._seats.get((agent, port))
        if seat is None:
            plain = port.record == "keep" and port.boundary != "memory"
            seat = self._seats[agent, port] = Seat(agent, self._counter(agent, port), plain=plain)
            if port.issues or port.consumes:
                self._follow()
        self._latest[port] = seat
        return seat

    def _counter(self, agent: str, port: Port) -> Counter:
        """The asks of one site so far; ports of one name share it. What a message goes to or a check is called is free text."""
        key = (agent, port.boundary or port.kind, port.name)
        counter = self._sites.get(key)
        if counter is None:
            name = self._redactor.text(port.name)
            counter = self._sites[key] = Counter(f"{escape(agent)}/{key[1]}:{escape(name)}#", name)
        return counter

    def _slowly(self, port: Port, arguments: FrozenDict, step: int) -> tuple[FrozenDict, tuple[Link, ...]]:
        """Arguments in recorded form and their links, where they are nested or long, or the port has a policy of its own."""
        if self._alike is not None:
            arguments = self._alike.recorded(arguments)
        sealed = self._sealed(port, arguments)
        links = self._derived(sealed if port.record == "keep" else arguments, step) if self._origins else ()
        if port.boundary == "memory":
            links = (*links, memory_link(port, sealed, step))
        return sealed, links

    def _follow(self) -> Following:
        if self._following is None:
            self._following = Following(self.note, self._redactor)
            if self._alike is not None:  # it reads arguments that equal decisions are no word about
                self._alike.forget()
        return self._following

    def observe(self, name: str, text: str, *, ttl_ms: int | None, integrity: Integrity, supersedes: bool) -> None:
        """A record that an artefact was declared."""
        known = self._follow()
        port = self._emitted.get(("artefact", name))
        if port is None:
            port = self._emitted["artefact", name] = Port(name=name, kind="artefact", boundary="", effect="none")
        opened, source = self.ask(port, EMPTY), self._artefact(text)
        with self._lock:
            known.declared(opened, name, text, ttl_ms=ttl_ms, integrity=integrity, supersedes=supersedes)
        if source:
            opened.links = (*opened.links, Link(src=source, rel="derived_from", dst=f"step#{opened.step}"))
        self.seal(opened, port, None)

    def _sealed(self, port: Port, arguments: FrozenDict) -> FrozenDict:
        if port.record == "keep":
            return self._redactor.mapping(arguments)
        return FrozenDict({field: self._redactor.apply(port.policy(field), item) for field, item in arguments.items()})

    def _sealed_executed(self, opened: OpenStep, arguments: FrozenDict) -> FrozenDict:
        """Arguments that took the place of those asked, in recorded form; fields nobody changed read as they did when asked."""
        asked, sealed = opened.asked, opened.arguments
        same = {
            field for field, item in arguments.items() if field in asked and (item is asked[field] or item is sealed[field])
        }
        port = self._ports[opened.step]
        new = self._sealed(port, FrozenDict({field: item for field, item in arguments.items() if field not in same}))
        return FrozenDict({field: sealed[field] if field in same else new[field] for field in arguments})

    def _check_thread(self) -> None:
        if not self.world.owns_thread():
            self.note("order-not-controlled", "a step was taken in a thread whose turn virtual time does not decide")

    def _derived(self, arguments: FrozenDict, step: int) -> tuple[Link, ...]:
        """Links from earlier replies whose texts come back in these arguments."""
        origins, found = self._origins, set()
        for item in arguments.values():
            kind = type(item)
            if kind is str:
                if item in origins:
                    found.add(origins[item])
            elif kind is FrozenDict or kind is FrozenList:
                found.update(origins[text] for text in texts(item) if text in origins)
        if not found:
            return ()
        return tuple(Link(src=f"step#{source}", rel="derived_from", dst=f"step#{step}") for source in sorted(found))

    def seal(self, opened: OpenStep, port: Port, value: Any) -> None:
        """Phase two, with a reply."""
        sealed: Value
        if self._following is not None and opened.raw is not None:
            self._following.arrived(opened, port, value)
        if type(value) is dict and port.record == "keep" and self._redactor.clean(value):
            sealed, opaque, flat = FrozenDict(value), False, len(value) <= ORIGIN_TEXTS
        else:
            if self._alike is not None:
                value = self._alike.plain(opened.step, value)
            (sealed, opaque), flat = self._reply(port, value), False
        usage = usage_of(value) if port.kind == "model_call" else EMPTY
        chunks = len(value) if port.stream and isinstance(value, list) else None
        self._lock.acquire()
        try:
            if self.closed:
                return
            observation = ObservationDraft()
            observation.value = sealed
            observation.error = None
            observation.cancelled = False
            observation.chunks = chunks
            observation.opaque = opaque
            observation.usage = usage
            observation.charged = EMPTY
            observation.__class__ = Observation
            self._seal(opened, observation)
            if flat:  # what _remember would do, without asking again what kind of value this is
                origins, step = self._origins, opened.step
                for item in value.values():
                    if type(item) is str and len(item) >= ORIGIN_CHARS:
                        origins[item] = step
            elif sealed is not None:
                self._remember(sealed, opened.step)
        finally:
            self._lock.release()

    def seal_error(self, opened: OpenStep, port: Port, error: BaseException) -> None:
        """Phase two, with an error, a cancellation or a stop: nothing leaves a crossing without a record (L10)."""
        import asyncio

        cancelled = isinstance(error, asyncio.CancelledError | GeneratorExit | KeyboardInterrupt | RunStopped)
        passed, opaque = opened.passed, False
        value: Value = None
        if passed is not None:  # of a stream, what the agent had got when it ended
            value, opaque = self._reply(port, passed)
        chunks = None if passed is None else len(passed)
        if self._following is not None:
            self._following.arrived(opened, port, passed)
        with self._lock:
            if not self.closed:
                fact = self._error_fact(opened, port, error)
                self._seal(opened, new_observation(value, fact, cancelled, chunks, opaque, EMPTY, EMPTY))

    def _error_fact(self, opened: OpenStep, port: Port, error: BaseException) -> ErrorFact:
        kind = opened.error_kind or port.error_kind(error)
        return ErrorFact(
            type=type(error).__name__, message=self._redactor.text(str(error))[:2000], kind=kind,
            retry_after_ms=retry_after_ms(error),
        )  # fmt: skip

    def _reply(self, port: Port, value: Any) -> tuple[Value, bool]:
        if value is None:
            return None, False
        try:
            sealed = snapshot(value, f"reply of {port.name}")
        except Exception:  # without a canonical form, or a property of the user's raised: the reply is opaque, not lost
            return f"{type(value).__module__}.{type(value).__qualname__}", True
        policy = port.policy("reply")
        return (self._redactor.value(sealed) if policy == "keep" else self._redactor.apply(policy, sealed)), False

    def _seal(self, opened: OpenStep, observation: Observation) -> None:
        """Fill in what is left, make the step a Record, and fold it once all asked before it are sealed."""
        if self.meters:
            observation = self._charged(opened, observation)
        if observation.error is None and not observation.cancelled:
            opened.effected = "yes" if opened.invoked or opened.taped or not self._ports[opened.step].boundary else "no"
        elif opened.invoked == 0:
            opened.effected = "no"
        else:
            opened.effected = "yes" if opened.raw is not None and opened.raw.error is None else "unknown"
        if opened.executed is not None:
            if self._following is not None:
                self._following.reached(opened, self._ports[opened.step], opened.executed)
            opened.executed = self._sealed_executed(opened, opened.executed)
        if opened.mediation is not None:
            opened.mediation = self._sealed_mediation(opened, opened.mediation)
        if opened.raw is not None:
            opened.raw = if_changed(opened.raw, observation)
        if self._clock.at_ns != self._seen_ns:
            self._tick()
        opened.observation = observation
        opened.sealed_ms = self._seen_ms
        opened.sealed_seq = self._seq
        self._seq += 1
        if self.interleaves and opened.action.boundary:
            self.world.call_ended()
        opened.__class__ = Record  # type: ignore[assignment]
        if opened.step == self._folded:
            found = self.judge.fold(cast(Record, opened))
            self._verdicts.append(found)
            self._folded = folded = opened.step + 1
            if self._watch is not None:
                self._watch(cast(Record, opened), found)
            if folded < len(self._records):
                self._fold()
        if self.meters:
            self._write_entries()

    def _sealed_mediation(self, opened: OpenStep, mediation: Mediation) -> Mediation:
        if mediation.arguments is None and not mediation.reason:
            return mediation
        arguments = None if mediation.arguments is None else self._sealed_executed(opened, mediation.arguments)
        return replace(mediation, reason=self._redactor.text(mediation.reason), arguments=arguments)

    def _fold(self) -> None:
        records, verdicts, fold, watch = self._records, self._verdicts, self.judge.fold, self._watch
        while self._folded < len(records):
            record = records[self._folded]
            if type(record) is not Record:
                return
            found = fold(record)
            verdicts.append(found)
            self._folded += 1
            if watch is not None:
                watch(record, found)

    def _remember(self, value: Value, step: int) -> None:
        """Texts of a reply, so that arguments made of them link back."""
        origins, kind = self._origins, type(value)
        if kind is FrozenDict and len(cast(FrozenDict, value)) <= ORIGIN_TEXTS:
            for item in cast(FrozenDict, value).values():
                if type(item) is str:
                    if len(item) >= ORIGIN_CHARS:
                        origins[item] = step
                elif type(item) is FrozenDict or type(item) is FrozenList:
                    self._remember(item, step)
        elif kind is FrozenDict or kind is FrozenList:
            for text in texts(value)[:ORIGIN_TEXTS]:
                if len(text) >= ORIGIN_CHARS:
                    origins[text] = step
        elif kind is str and len(cast(str, value)) >= ORIGIN_CHARS:
            origins[cast(str, value)] = step

    # -- governance, faults, tape -----------------------------------------------------------------------------------

    def mediate(self, opened: OpenStep, port: Port) -> Decided | None:
        if self._mediator is None:
            return None
        decided = self._mediator.mediate(opened.proposed(), self)
        if decided is None or (type(decided) is Mediation and decided.arguments is None):
            return decided
        return _live(opened, decided)

    def confirm(self, opened: OpenStep, port: Port) -> Mediation | None:
        """The mediator's word on what would run now, where it was approved; None where it stands."""
        if self._mediator is None or opened.mediation is None:
            return None
        executed = None if opened.executed is None else self._sealed_executed(opened, opened.executed)
        record = replace(opened.proposed(), executed=executed)
        refused = self._mediator.confirm(record, self._sealed_mediation(opened, opened.mediation))
        return None if refused is None else replace(refused, arguments=opened.mediation.arguments)

    def settled(self) -> Sequence[Record]:
        """The records that are sealed and judged, without a gap."""
        return cast("list[Record]", self._records[: self._folded])

    def pending(self, step: int) -> Sequence[Record]:
        """The records asked after those and before a step, as far as they are known."""
        asked = self._records[self._folded : step]
        return [item.proposed() if isinstance(item, OpenStep) else item for item in asked]

    def recorded(self, step: int, arguments: FrozenDict) -> FrozenDict:
        """The recorded form of arguments put in the place of those that an open step asked."""
        opened = self._records[step]
        return self._sealed_executed(opened, arguments) if isinstance(opened, OpenStep) else arguments

    def peek(self, proposed: Record) -> tuple[Any, ...]:
        """What a proposed action would break, with everything asked before it."""
        return self.judge.peek(proposed, self.pending(proposed.step), blocking=True)

    def turns(self, opened: OpenStep, port: Port, *, suspends: bool) -> int:
        """Asks the operator of the order boundary that is bound to this call; notes where others could have gone first."""
        if (self._keep_states or self._adversary is not None) and self.world.others_can_run(suspends=suspends):
            if self._keep_states:
                self._contended.append(opened.step)
            if self._adversary is not None:
                self._offer(opened, port, self._adversary, order=True)
        name = order_name(port.boundary, opened.action.name)
        for item, operator, kinds in self._scheduled.get((opened.agent, "order", name), ()):
            if item.site.nth <= opened.nth <= item.site.last and port.kind in kinds:
                effect = self._decided(opened, port, item, operator, None)
                return effect.turns if isinstance(effect, Hold) else 0
        return 0

    def went_first(self, opened: OpenStep, others: int) -> None:
        self.changed(opened, Hold(), differs=others > 0)

    def perturbed(self, opened: OpenStep, port: Port) -> str:
        if not self._disturbed:
            return ""
        if self._adversary is not None:
            self._offer(opened, port, self._adversary, order=False)
        found = self._perturbation(opened, port)
        return "" if found is None else found[1].phase

    def _bind(self, item: Perturbation, operator: Operator) -> None:
        self._scheduled.setdefault(item.site.port, []).append((item, operator, operator.spec().kinds))

    def _offer(self, opened: OpenStep, port: Port, adversary: Chooser, *, order: bool) -> None:
        """Ask the adversary about a call that is about to be served; what it chooses is bound like any scheduled one.

        Earlier replies are kept at every port that it may act on: nobody knows yet what it will choose.
        """
        with self._lock:
            if not order and port.boundary in adversary.boundaries and (port.boundary, port.name) not in self._history:
                self._history[port.boundary, port.name] = deque(maxlen=limits.HISTORY)
            adversary.follow(self._records, self._verdicts, self._episodes)
            item = adversary.about(opened, port, self.judge, order=order)
            if item is not None:
                self._bind(item, adversary.operator(item))

    def _perturbation(self, opened: OpenStep, port: Port) -> tuple[Perturbation, Operator] | None:
        for item, operator, kinds in self._scheduled.get((opened.agent, port.boundary, port.name), ()):
            if item.site.nth <= opened.nth <= item.site.last and port.kind in kinds:
                return item, operator
        return None

    def decide(self, opened: OpenStep, port: Port, reply: Reply | None) -> Effect:
        found = self._perturbation(opened, port)
        if found is None:
            return PASS
        return self._decided(opened, port, *found, reply)

    def _decided(self, opened: OpenStep, port: Port, item: Perturbation, operator: Operator, reply: Reply | None) -> Effect:
        self._reached.add(item.key)
        call = Call(
            port=port.name, kind=port.kind, agent=opened.agent, site=opened.site, arguments=opened.executed or opened.arguments,
            at_ms=opened.at_ms, parameters=item.parameters, index=opened.nth - item.site.nth, given=opened.given,
            past=tuple(self._history.get((port.boundary, port.name), ())),
        )  # fmt: skip
        stream = self.world.entropy.stream(f"fault/{item.operator}/{opened.site}")
        exchangeable = self._keep_states and self.ledger is None and self._following is None
        alike = self._exchanges() if exchangeable else None
        if alike is None:
            effect = _effect_of(operator, call, reply, stream)
        else:
            effect, decisions = alike.decide(item, operator, call, reply, stream, _effect_of)
        if self._redactor.knows_secrets:
            self._cut_damaged(effect, opened.given if reply is None else reply.value)
        note = FaultNote(operator=item.operator, parameters=item.parameters, effect="Pass", changed=False)
        opened.faults = (*opened.faults, note)
        return effect if alike is None else alike.settle(decisions, opened.step, port, label=len(opened.faults) - 1)

    def _exchanges(self) -> Exchanges:
        """What the search wants to know of perturbations that act. Governance may judge calls by replies that came before."""
        if self._alike is None:
            ungoverned = self.spec.config.get("governance", governance_name(None)) == governance_name(None)
            vary = self._vary and ungoverned
            self._alike = Exchanges(world=self.world, judge=lambda: self.judge, given=self._given, vary=vary)
            self._watch = self._alike.watching(self._watch)
        return self._alike

    def _cut_damaged(self, effect: Effect, source: Any) -> None:
        """A secret that an operator damaged is one still: texts made of one that held it are cut out whole (L16)."""
        made = effect.arguments if isinstance(effect, Rewrite) else effect.value if isinstance(effect, Replace) else None
        if made is None:
            return
        with suppress(Exception):  # without a recorded form the reply is opaque, and in no artefact
            before, after = set(texts(snapshot(source, "reply"))), texts(snapshot(made, "reply"))
            held = [text for text in sorted(before.difference(after)) if self._redactor.text(text) != text]
            for text in after:
                if text not in before and any(shares_piece(text, lost) for lost in held):
                    self._redactor.add_secret(text)

    def changed(self, opened: OpenStep, effect: Effect, *, differs: bool) -> None:
        note = opened.faults[-1]
        acted = FaultNote(operator=note.operator, parameters=note.parameters, effect=type(effect).__name__, changed=differs)
        opened.faults = (*opened.faults[:-1], acted)

    def taped(self, opened: OpenStep, port: Port) -> Reply | BaseException | None:
        if self._tape is None:
            return None
        sealed = opened.arguments if opened.executed is None else self._sealed_executed(opened, opened.executed)
        reply = self._tape.serve(port, opened.site, digest(sealed))
        if reply is None:
            if self._tape.awaits(opened.site):
                network.live.set(True)
            return None
        opened.taped = True
        opened.invoked += 1  # the port was invoked when the tape was made: the facts of a replay are those of the recording
        if isinstance(reply, BaseException):
            self.heard(opened, port, None, reply)
        else:
            self.heard(opened, port, reply.value, None)
        return reply

    def heard(self, opened: OpenStep, port: Port, value: Any, error: BaseException | None) -> None:
        if port.issues and error is None:
            with self._lock:
                if self._clock.at_ns != self._seen_ns:
                    self._tick()
                self._follow().issued(opened, port, value, at_ms=self._seen_ms)
        if self._tape is not None and self._tape.awaits(opened.site):
            self._heard_live(self._tape, opened, port, value, error)
        history = self._history.get((port.boundary, port.name))
        if history is None:
            return
        if error is None:
            arguments = opened.executed or opened.arguments
            history.append(Past(kind=port.kind, agent=opened.agent, arguments=arguments, value=kept(value), at_ms=opened.at_ms))
        if opened.raw is not None or self._perturbation(opened, port) is None:
            return  # of a call that was delivered twice, the first reply is the one that counts
        opened.raw = self._heard(opened, port, value, error)

    def _heard(self, opened: OpenStep, port: Port, value: Any, error: BaseException | None) -> Observation:
        """What a port said, in recorded form."""
        if error is not None:
            return Observation(error=self._error_fact(opened, port, error))
        sealed, opaque = self._reply(port, value)
        return Observation(value=sealed, opaque=opaque)

    def _heard_live(self, tape: Tape, opened: OpenStep, port: Port, value: Any, error: BaseException | None) -> None:
        """A live call has ended: its reply goes on the reel, and the network is out of reach again."""
        network.live.set(False)
        asked = opened.arguments if opened.executed is None else self._sealed_executed(opened, opened.executed)
        entry = tape_entry(port, opened.site, asked, self._heard(opened, port, value, error))
        tape.hear(port, opened.site, Reply(value) if error is None else error, entry)

    # -- resource contracts -----------------------------------------------------------------------------------------

    def account(self, act: Callable[[Ledger], T], *, step: bool = False) -> T:
        """Do something with the ledger of the run, alone, and record its entries. `step`: the horizon counts it."""
        with self._lock:
            if self._clock.at_ns != self._seen_ns:
                self._tick()
            if step and len(self._records) >= self._end_step and not self.closed:
                self.stop("horizon")
                raise RunStopped("horizon")
            if self.ledger is None:
                self.ledger, self.meters = Ledger(lambda: self.elapsed_ms), True
                if self._alike is not None:
                    self._alike.forget()
            try:
                return act(self.ledger)
            finally:
                self._write_entries()

    def reserve(self, opened: OpenStep, port: Port) -> Blocked | None:
        """Hold what a call may consume, after the mediator's word and before any fault; what to raise where it does not fit."""
        if port.kind not in PER_PORT:
            return None
        work, name = working.get(), opened.action.name
        if work is None or cast(Any, work.keeper) is not self:
            work = self.standing(opened.agent)
        ledger = self.ledger
        if work is None or ledger is None:
            return None
        needs, why = work.needs(port.kind, f"{PER_PORT[port.kind]}:{name}", opened.given)
        with self._lock:
            resource = ""
            if not why:
                resource, why = ledger.refusal(work.node, needs)
            mediation = opened.mediation or _UNDER_CONTRACT
            if why:
                opened.mediation = replace(mediation, decision="block", rule=_UNDER_CONTRACT.rule, reason=why)
                opened.error_kind = "blocked"
                self._write_entries()
                return BudgetSpent(why, work.id, resource)
            facts = FrozenDict(ledger.reserve(str(opened.step), work.node, needs))
            if mediation is _UNDER_CONTRACT:
                mediation = new_mediation("allow", mediation.rule, "", None, "", "", "", "", (), facts)
            else:
                mediation = replace(mediation, reserved=facts)
            opened.mediation = mediation
            self._metering[opened.step] = work
            self._write_entries()
        return None

    def standing(self, agent: str) -> Work | None:
        """The contract that governance has an agent work under, which begins when it is first asked for; None for none."""
        name = agent if agent in self._contracts else "*"
        if name not in self._contracts:
            return None
        with self._lock:
            work = self._standing.get(name)
            if work is None:
                above = self.standing("*") if name != "*" else None
                whom = name if name != "*" else HARNESS
                work = Work(self._contracts[name], agent=whom, parents=() if above is None else (above,))
                self._standing[name] = work
                work.activate()
        return work

    def _charged(self, opened: OpenStep, observation: Observation) -> Observation:
        """Settle a call with what it consumed."""
        work = self._metering.pop(opened.step, None)
        if work is None or self.ledger is None:
            return observation
        blocked = opened.mediation is not None and opened.mediation.decision == "block"  # after all: what was approved changed
        actual = {} if blocked else work.consumption(
            opened.action.kind, opened.action.name, invoked=opened.invoked, elapsed_ms=self.elapsed_ms - opened.at_ms,
            usage=observation.usage, needs=self.ledger.holds[str(opened.step)].needs,
        )  # fmt: skip
        facts, seen = FrozenDict(self.ledger.settle(str(opened.step), actual)), observation
        return new_observation(seen.value, seen.error, seen.cancelled, seen.chunks, seen.opaque, seen.usage, facts)

    def _write_entries(self) -> None:
        """Records of what the ledger tells: facts about the run, and no steps of anybody. The horizon lets them pass."""
        for told in () if self.ledger is None or self.closed else self.ledger.told():
            port = self._emitted.get(("contract", told.event))
            if port is None:
                port = self._emitted["contract", told.event] = Port(
                    name=told.event, kind="contract", boundary="", effect="none"
                )
            counter = self._counter(told.agent, port)
            counter.nth += 1
            facts = self._redactor.mapping(snapshot_arguments(told.facts, f"contract {told.event}"))
            self._ports.append(port)
            self._write("contract", told.event, told.agent, f"{counter.prefix}{counter.nth}", facts)

    def _write(self, kind: ActionKind, name: str, agent: str, site: str, arguments: FrozenDict) -> None:
        """A record that is sealed from the start."""
        action = new_action(kind, name, arguments, "none", "low", "")
        step, at_ms = len(self._records), self.elapsed_ms
        record = new_record(
            step, at_ms, at_ms, self._seq, self._seq + 1, agent, "", self._state, site, action, NOTHING, "yes", None, (), None,
            None, 0, (), False, EMPTY,
        )  # fmt: skip
        self._records.append(record)
        self._seq += 2
        if self._keep_states:
            self._states.append(self._digest())
        self._fold()

    # -- what agents say --------------------------------------------------------------------------------------------

    def emit(self, kind: ActionKind, name: str, arguments: FrozenDict, supports: Iterable[object] = ()) -> None:
        """A record that crosses no boundary."""
        port = self._emitted.get((kind, name))
        if port is None:
            port = self._emitted[kind, name] = Port(name=name, kind=kind, boundary="", effect="none")
        opened = self.ask(port, arguments)
        artefact = f"claim#{opened.step}" if kind == "claim" else f"step#{opened.step}"
        found = [self._artefact(item) for item in supports]
        opened.links = (
            *opened.links,
            *(Link(src=source, rel="supports", dst=artefact) for source in found if source),
        )
        self.seal(opened, port, None)

    def _artefact(self, thing: object) -> str:
        """The artefact a result, passage or row came from: the latest step that delivered it, whole or as a part."""
        self._unindexed += range(self._indexed, len(self._records))
        self._indexed = len(self._records)
        waiting = []
        for step in self._unindexed:
            record = self._records[step]
            if isinstance(record, OpenStep):
                waiting.append(step)  # in flight: what others have said meanwhile is evidence already
                continue
            for part in parts(record.observation.value):
                self._evidence[canonical(part)] = record.artefact
        self._unindexed = waiting
        if isinstance(thing, str) and thing.startswith(("step#", "claim#", "passage:", "memory:")):
            return thing
        try:
            wanted = canonical(self._redactor.value(snapshot(thing, "supports")))
        except CodecError:
            return ""
        if self._alike is not None:
            self._alike.cited(wanted)
        return self._evidence.get(wanted, "")

    def project(self, signals: Mapping[str, object]) -> None:
        new = self._redactor.value(snapshot_arguments(signals, "mat.state"))
        self._state = FrozenDict({**self._state, **new})  # type: ignore[dict-item]

    def secret(self, text: str) -> None:
        """Cut this text out from now on, and out of what is already recorded."""
        with self._lock:
            self._redactor.add_secret(text)
            for counter in self._sites.values():
                counter.prefix, counter.name = clean_site(counter.prefix, self._redactor), self._redactor.text(counter.name)
            self._state = self._redactor.mapping(self._state)
            for step, record in enumerate(self._records):
                if isinstance(record, Record) and holds(record, text):
                    self._records[step] = redacted(record, self._redactor)

    def finish(self, status: FinishStatus, answer: object) -> None:
        if status == "completed":
            self.emit("final_response", "answer", snapshot_arguments({"answer": answer}, "final response"))
        else:
            self.emit("termination", status, snapshot_arguments({"answer": answer}, "termination"))
        self.termination = self.termination or status

    def note(self, code: str, message: str) -> None:
        if any(item.code == code and item.message == message for item in self._findings):
            return
        if len(self._findings) < limits.NOTES:
            self._findings.append(Finding(code=code, message=message, step=len(self._records) - 1))

    # -- the end ----------------------------------------------------------------------------------------------------

    @property
    def elapsed_ms(self) -> int:
        """Milliseconds of run time since the run began."""
        return (self._clock.at_ns - self._start_ns) // 1_000_000

    @property
    def records(self) -> tuple[Record, ...]:
        return tuple(record for record in self._records if isinstance(record, Record))

    def stop(self, reason: str) -> None:
        """The run was ended from outside the agent: horizon or deadlock."""
        self._end_step = 0
        if self.termination not in ("horizon", "deadlock"):
            self.termination = "deadlock" if reason == "deadlock" else "horizon"

    def close(self, *, success: bool | None, error: str = "", raised: bool = False) -> Run:
        """Seal what is still open as cancelled, add the termination record where there is none, and judge the end."""
        for step, opened in enumerate(self._records):
            if isinstance(opened, OpenStep):  # whoever took the step may go on noting things on it: a copy is sealed
                self._records[step] = unfinished = copy(opened)
                self._seal(unfinished, Observation(cancelled=True))
        if self.ledger is not None:
            for work in reversed(self._standing.values()):
                self.ledger.expire(work.node, self.elapsed_ms)
                if work.live and not work.asks_for_output:
                    self.ledger.end(work.node, "fulfilled")
            self.ledger.close()
            self._write_entries()
        ended = self.termination
        if ended is None:
            ended = self.termination = "exception" if raised else "implicit"
        elapsed_ms = self.elapsed_ms
        if ended not in ("completed", "aborted", "failed"):
            self._terminate(ended)
        self.closed = True
        self.world.on_note, self.world.on_stop, self.world.ends_at_ns, self.world.guarded = self._outer
        if self._adversary is not None:
            self.spec = self.spec.under(self._adversary.schedule)
            if self._adversary.failed is not None:
                raise self._adversary.failed
        records = self.records
        if not self._episodes or speaks(records[self._judged :]):
            self._episodes.append(attribute(self.judge.finish(records[-1] if records else None), records))
            self._tell_end()
        outcomes = merged(self._episodes)
        if self._keep_states:
            self._states.append(self._digest())
        alike, horizon_ms = self._alike, self.spec.horizon_ms
        return Run(
            spec=self.spec, records=records, verdicts=verdicts(self._verdicts), outcomes=outcomes,
            tape=tape_entries(records, self._ports), termination=ended, success=success, error=self._redactor.text(error),
            unreached=tuple(item for item in self.spec.schedule if item.key not in self._reached),
            findings=tuple(self._findings) + opaque_replies(records), states=tuple(self._states),
            restricted=restricted(self._ports),
            elapsed_ms=elapsed_ms, contended=tuple(self._contended),
            margins=margins(self.judge.contracts, records) if self._keep_states else EMPTY,  # wanted by the search alone
            complete=self._given is not None and self._given.complete, clocked=self._given is None or self._given.clock,
            concolic=self._given is not None and self._given.complete and self._given.concolic,
            seen=() if self._adversary is None else tuple(self._adversary.seen),
            alike=() if alike is None else alike.finish(termination=ended, elapsed_ms=elapsed_ms, horizon_ms=horizon_ms),
        )  # fmt: skip

    @contextmanager
    def episode(self, name: str) -> Iterator[None]:
        """A case of its own: contracts start anew and their obligations close at its end; everything else is carried on.

        The projection carries the episode's number and name, so that judging offline begins anew at the same steps. A run
        that is stopped ends inside its episode.
        """
        self._next_episode()
        self._episode_count += 1
        self.project({EPISODE: f"{self._episode_count}: {name}"})
        stopped = False
        try:
            yield
        except RunStopped:
            stopped = True
            raise
        finally:
            if not stopped:
                self._next_episode()
                self._state = FrozenDict({key: item for key, item in self._state.items() if key != EPISODE})

    def _next_episode(self) -> None:
        records = self.records
        if len(records) > self._judged:
            self._episodes.append(attribute(self.judge.finish(records[-1]), records))
            self._tell_end()
            self.judge = Judge(self.judge.contracts)
            self._judged = len(records)

    def _tell_end(self) -> None:
        """Show the mediator what the end of an episode broke, beside what its steps had broken before."""
        if self._mediator is None:
            return
        shown = Counted(item.contract for verdict in self._verdicts[self._judged :] for item in _broken_by(verdict))
        self._mediator.ended([item for found in self._episodes[-1] for item in found.violations[shown[found.contract] :]])

    def _digest(self) -> str:
        """Monitor states at this moment, what the mediator keeps, and what the user adds to them."""
        if self._alike is not None:
            self._alike.read()
        states = self.judge.digest()
        governed = () if self._mediator is None else self._mediator.state()
        if governed:
            states = digest([states, governed])
        if self.ledger is not None:
            states = digest([states, self.ledger.state()])
        if cut_out := self._redactor.digest():
            states = digest([states, cut_out])
        if self._given is None:
            return states
        return digest([states, snapshot(self._given.function(), "mat_state_digest")])

    def _terminate(self, ended: Termination) -> None:
        self._write("termination", ended, HARNESS, f"{HARNESS}/termination:{ended}#1", EMPTY)


def _broken_by(verdict: Verdict | tuple[str, ...]) -> tuple[Violation, ...]:
    return verdict.violations if isinstance(verdict, Verdict) else ()


def _live(opened: OpenStep, decided: Decided) -> Decided:
    """A decision, made of the recorded form, as it holds for the real arguments."""
    if isinstance(decided, Mediation):
        return unsealed(opened, decided)
    if isinstance(decided, StandIn):
        return replace(decided, mediation=unsealed(opened, decided.mediation))
    settle = decided.settle

    def settled(answer: Any, artefact: str) -> Settled:
        found = settle(answer, artefact)
        return replace(found, decision=_live(opened, found.decision))

    return replace(decided, settle=settled)


def _effect_of(operator: Operator, call: Call, reply: Reply | None, stream: Random) -> Effect:
    """What the operator decided; a crash or nonsense is its author's mistake, never an effect the agent meets unnoticed."""
    try:
        effect = operator.decide(call, reply, stream)
    except Exception as error:
        problem = f"raised {type(error).__name__}: {error}"
    else:
        if isinstance(effect, Effect):
            return effect
        problem = f"returned {type(effect).__name__}"
    raise SpecError(
        what=f"operator {operator.id} {problem}",
        why="an operator decides one of the effects of mat.boundary.effect",
        fix="mend the operator, or take it out of the search",
        where=call.site,
    )
