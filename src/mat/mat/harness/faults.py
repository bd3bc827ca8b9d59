"""The fault layer of a run: which perturbation acts on a call, and what its operator decides."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from copy import deepcopy
from random import Random
from threading import RLock
from typing import Any, Final

from mat.boundary import clients
from mat.boundary.catalog import Catalog, Operator
from mat.boundary.effect import PASS, Call, Crash, Effect, Hold, Past, Raise, Reply
from mat.core import limits
from mat.core.adversary import Choose, Seen
from mat.core.errors import SpecError, raised_text
from mat.core.operator import ERRORS
from mat.core.record import ActionKind, FaultNote
from mat.core.site import name_about
from mat.core.spec import Perturbation, Schedule
from mat.core.verdict import ContractOutcome
from mat.harness.adversary import Chooser
from mat.harness.injected import marked
from mat.harness.open_step import OpenStep
from mat.harness.recorded_form import RecordedForm
from mat.harness.search_state import SearchState
from mat.harness.trace import Trace
from mat.kernel.world import World

_KEPT: Final = limits.HISTORY + 1
"""Earlier replies kept by port: one more than operators are shown, because the latest may be lost and leave again."""


class FaultLayer:
    """Applies the perturbations of the schedule, and those that an adversary chooses, to their calls.

    `interleaves`: whether the order of concurrent calls is recorded or controlled. `schedule` holds the given and the chosen
    perturbations. `errors`: the clients whose exceptions the project injects where a port declares none.
    """

    __slots__ = (
        "_adversary", "_crashes", "_episodes", "_errors", "_form", "_history", "_lock", "_orders", "_reached", "_scheduled",
        "_search", "_trace", "_world", "interleaves", "schedule",
    )  # fmt: skip

    def __init__(
        self,
        schedule: Schedule,
        *,
        catalog: Catalog,
        adversary: Choose | None,
        world: World,
        trace: Trace,
        episodes: Sequence[tuple[ContractOutcome, ...]],
        form: RecordedForm,
        search: SearchState | None,
        lock: RLock,
        errors: tuple[str, ...] = (),
    ) -> None:
        self._world, self._trace, self._episodes, self._form, self._search = world, trace, episodes, form, search
        self._lock, self._errors = lock, errors
        self._scheduled: dict[tuple[str, str, str], list[tuple[Perturbation, Operator, frozenset[ActionKind]]]] = {}
        self._history: dict[tuple[str, str], deque[Past]] = {}
        self._reached: set[tuple[str, str, str]] = set()
        self._orders = self._crashes = False
        self.schedule = schedule
        for item in schedule:
            catalog.check(item)
            self._bind(item, catalog[item.operator])
            self._history[item.site.boundary, item.site.name] = deque(maxlen=_KEPT)
        self._adversary = None if adversary is None else Chooser(adversary, catalog=catalog, schedule=schedule)
        self.interleaves = (
            search is not None
            or any(item.site.boundary == "order" for item in schedule)
            or (self._adversary is not None and "order" in self._adversary.boundaries)
        )

    def turns(self, opened: OpenStep, *, suspends: bool) -> int:
        """How many turns other calls get before this one, by the order perturbation bound to it.

        Also notes the step as contended if another call could go first.
        """
        search, adversary, port = self._search, self._adversary, opened.port
        if (search is not None or adversary is not None) and self._world.others_can_run(suspends=suspends):
            if search is not None:
                search.contended.append(opened.step)
            if adversary is not None:
                self._offer(opened, adversary, order=True)
        found = self._bound(opened, "order", name_about(port.boundary, opened.action.name)) if self._orders else None
        if found is None:
            return 0
        effect = self._decided(opened, *found, None)
        return effect.turns if isinstance(effect, Hold) else 0

    def crashes(self, opened: OpenStep) -> bool:
        """Whether the agent's process ends at this call, by the process perturbation bound to it."""
        found = self._crash(opened)
        return found is not None and isinstance(self._decided(opened, *found, None), Crash)

    def _crash(self, opened: OpenStep) -> tuple[Perturbation, Operator] | None:
        if not self._crashes:
            return None
        return self._bound(opened, "process", name_about(opened.port.boundary, opened.action.name))

    def phase(self, opened: OpenStep) -> str:
        """When the schedule acts on this call: "", "before" or "after"."""
        if self._adversary is not None:
            self._offer(opened, self._adversary, order=False)
        found = self._perturbation(opened)
        return "" if found is None else found[1].phase

    def decide(self, opened: OpenStep, reply: Reply | None) -> Effect:
        """The effect on a call, or on its reply."""
        found = self._perturbation(opened)
        return PASS if found is None else self._decided(opened, *found, reply)

    def acted(self, opened: OpenStep, effect: Effect, *, differs: bool) -> None:
        """Note that an effect has happened at a call, and whether it made a difference.

        The reply of a read that is lost on its way back is in no cache, so it does not belong to the port's earlier replies:
        whatever is injected later, the run goes on as after a time-out (`mat_search.covering`).
        """
        replied = opened.port_reply is not None and opened.port_reply.error is None
        history = self._history.get((opened.port.boundary, opened.port.name))
        if history and replied and isinstance(effect, Raise) and opened.action.changes_nothing:
            history.pop()
        note = opened.faults[-1]
        acted = FaultNote(operator=note.operator, parameters=note.parameters, effect=type(effect).__name__, changed=differs)
        opened.faults = (*opened.faults[:-1], acted)

    def failure(self, opened: OpenStep, kind: str, message: str, *, retry_after_s: float | None, midway: bool) -> BaseException:
        """The exception that the agent gets: what the port's client raises, by the perturbation, the port or the project."""
        found, port = self._perturbation(opened), opened.port
        client = "" if found is None else str(found[0].parameters.get(ERRORS, ""))
        if missing := clients.not_imported((client, *port.clients, *self._errors)):
            with self._world.entropy.unmoved():  # modules may draw when they are imported, and only one run imports them
                clients.import_all(missing)
        error = port.failure(kind, message, retry_after_s, client=client, project=self._errors, midway=midway)
        return marked(error, port)

    def heard(self, opened: OpenStep, value: Any, error: BaseException | None) -> None:
        """Keep a port's reply before anything changes it, for operators that read earlier replies."""
        port = opened.port
        if opened.port_reply is None and self._crash(opened) is not None:
            opened.port_reply = self._form.heard(opened, value, error)
        history = self._history.get((port.boundary, port.name))
        if history is None:
            return
        if error is None:
            arguments = opened.replaced_arguments or opened.arguments
            history.append(
                Past(kind=port.kind, agent=opened.agent, arguments=arguments, value=_copy(value), at_ms=opened.at_ms)
            )
        if opened.port_reply is None and self._perturbation(opened) is not None:
            # if a call is delivered twice, its first reply counts
            opened.port_reply = self._form.heard(opened, value, error)

    def unreached(self) -> tuple[Perturbation, ...]:
        """Perturbations of the schedule whose site was never reached."""
        return tuple(item for item in self.schedule if item.key not in self._reached)

    def close(self) -> tuple[Seen, ...]:
        """The facts that the adversary was shown. Raises SpecError if one of its answers was invalid."""
        if self._adversary is None:
            return ()
        if self._adversary.failed is not None:
            raise self._adversary.failed
        return tuple(self._adversary.seen)

    def _bind(self, item: Perturbation, operator: Operator) -> None:
        self._orders = self._orders or item.site.boundary == "order"
        self._crashes = self._crashes or item.site.boundary == "process"
        self._scheduled.setdefault(item.site.port, []).append((item, operator, operator.spec().kinds))

    def _offer(self, opened: OpenStep, adversary: Chooser, *, order: bool) -> None:
        """Ask the adversary about a call that is about to be served; its choice is bound like a scheduled perturbation.

        Earlier replies are kept at every port that it can act on, because its choices are not known in advance.
        """
        port = opened.port
        with self._lock:
            if not order and port.boundary in adversary.boundaries and (port.boundary, port.name) not in self._history:
                self._history[port.boundary, port.name] = deque(maxlen=_KEPT)
            adversary.follow(self._trace.records, self._trace.verdicts, self._episodes)
            item = adversary.about(opened, port, self._trace.judge, order=order)
            if item is not None:
                self._bind(item, adversary.operator(item))
                self.schedule = adversary.schedule

    def _perturbation(self, opened: OpenStep) -> tuple[Perturbation, Operator] | None:
        return self._bound(opened, opened.port.boundary, opened.port.name)

    def _bound(self, opened: OpenStep, boundary: str, name: str) -> tuple[Perturbation, Operator] | None:
        scheduled = self._scheduled.get((opened.agent, boundary, name))
        if scheduled is None:
            return None
        nth, kind = opened.nth, opened.port.kind
        for item, operator, kinds in scheduled:
            if item.site.nth <= nth <= item.site.last and kind in kinds:
                return item, operator
        return None

    def _decided(self, opened: OpenStep, item: Perturbation, operator: Operator, reply: Reply | None) -> Effect:
        port = opened.port
        self._reached.add(item.key)
        call = Call(
            port=port.name, kind=port.kind, agent=opened.agent, site=opened.site,
            arguments=opened.replaced_arguments or opened.arguments, at_ms=opened.at_ms, parameters=item.parameters,
            index=opened.nth - item.site.nth, given=opened.current_arguments,
            past=tuple(self._history.get((port.boundary, port.name), ()))[-limits.HISTORY :],
        )  # fmt: skip
        stream = self._world.entropy.stream(f"fault/{item.operator}/{opened.site}")
        equivalences = None if self._search is None else self._search.compare()
        if equivalences is None:
            effect = _effect_of(operator, call, reply, stream)
        else:
            effect, decisions = equivalences.decide(item, operator, call, reply, stream, _effect_of)
        self._form.cut_damaged(effect, opened.current_arguments if reply is None else reply.value)
        note = FaultNote(operator=item.operator, parameters=item.parameters, effect="Pass", changed=False)
        opened.faults = (*opened.faults, note)
        if equivalences is None:
            return effect
        return equivalences.settle(decisions, opened.step, port, label=len(opened.faults) - 1)


def _effect_of(operator: Operator, call: Call, reply: Reply | None, stream: Random) -> Effect:
    """The operator's decision; a crash or an invalid decision is a SpecError, never an effect on the agent."""
    try:
        effect = operator.decide(call, reply, stream)
    except Exception as error:
        problem = raised_text(error)
    else:
        if isinstance(effect, Effect):
            return effect
        problem = f"returned {type(effect).__name__}"
    raise SpecError(
        what=f"operator {operator.id} {problem}",
        why="an operator returns one of the effects in mat.boundary.effect",
        fix="correct the operator, or leave it out of the search",
        where=call.site,
    )


_PLAIN: Final[frozenset[type[object]]] = frozenset({type(None), bool, int, float, str, bytes})


def _copy(value: Any) -> Any:
    """A copy of a reply as it arrived, because the agent may change its own."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is dict and all(type(item) in _PLAIN for item in value.values()) and all(type(key) is str for key in value):
        return dict(value)
    try:
        return deepcopy(value)
    except Exception:  # an open handle or a live object is kept as it is
        return value
