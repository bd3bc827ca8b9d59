"""Execute one run from its specification, under contracts and governance.

Source: Exec(x, kappa, z, delta) of the paper.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from mat.boundary.catalog import Catalog, Operator
from mat.boundary.port import project_errors
from mat.boundary.session import current_session, pop_ambient, push_ambient
from mat.boundary.tape import Tape
from mat.core import limits
from mat.core.adversary import Choose
from mat.core.errors import MatError, RunStopped
from mat.core.record import Record
from mat.core.redact import Redactor, process_secrets
from mat.core.run import Run
from mat.core.spec import ClockKind, Perturbation, RunSpec, Schedule
from mat.core.spec import schedule as as_schedule
from mat.core.value import FrozenDict, FrozenList, snapshot_arguments
from mat.core.verdict import ContractOutcome, Violation
from mat.govern.mediator import Governance, Mediator, governance_name
from mat.harness.digest import StateDigest
from mat.harness.injected import uncaught
from mat.harness.recorder import Recorder
from mat.kernel.install import installed
from mat.kernel.world import World
from mat.monitor.contract import Contract
from mat.monitor.judge import Judge


def run_configuration(
    contracts: Iterable[Contract], governance: Governance | None, config: Mapping[str, object], errors: Sequence[str] = ()
) -> FrozenDict:
    """The run's configuration, which is part of its id: the user's own, the armed contracts, the governance variant, and the
    clients whose exceptions are injected (`errors`), if the project names some."""
    redactor = Redactor(process_secrets())  # a config holds keys, and is written into every replay file
    return FrozenDict(
        {
            **redactor.mapping(snapshot_arguments(config, "config")),
            "contracts": FrozenList(sorted(f"{contract.id}:{contract.severity}" for contract in contracts)),
            "governance": governance_name(governance),
            **({"errors": FrozenList(errors)} if errors else {}),
        }
    )


def installed_operators() -> Catalog:
    """Every operator that an installed distribution registers under the entry point group `mat.operators`."""
    from importlib.metadata import entry_points

    catalog = Catalog()
    for entry in sorted(entry_points(group="mat.operators"), key=lambda item: item.name):
        for operator in entry.load()():
            catalog.register(operator)
    return catalog


class run:  # noqa: N801  (a statement: with mat.run(...) as run)
    """One run as a context manager: inside, everything that instrumented code does is recorded, judged and governed.

    In a test, prefer the fixture `mat_run`, which the command line can repeat under faults. Time inside the block is virtual.

    - `contracts`: what to judge. `governance`: who may do what. `config`: name -> setting, part of the run's id.
    - `seed` (an integer), `task`: all randomness is drawn from them. `schedule`: the perturbations to inject. `operators`:
      those that it may name, by default the installed ones. `adversary`: a function that chooses perturbations while the
      run goes on.
    - `horizon`: steps (1,000), and `horizon_ms`: run time in milliseconds (a week), after which the run is stopped.
    - `clock`: "virtual" (default) or "real". `tape`: recorded replies to serve.
    - `errors`: the clients whose exceptions faults inject at tools that declare none, such as "httpx" (`mat.tool(errors=)`).
    - `states`, `state_digest` (a `mat.spec.StateDigest`, or its function), `vary`, `world`: for search and replay.

    `trace`: the records so far, `outcomes_so_far`: the outcome of each contract so far; `episode(name)` begins one of
    several cases. After the block, `result` is the `mat.Run`, and `violations` and `outcome` are its own. Exceptions of the
    body propagate and make `success` False; a run stopped at its horizon ends the block quietly. Raises `mat.MatError` for
    an invalid schedule or an unknown operator, for two contracts with one id, and where verdicts are read inside the block.

    >>> @mat.tool(effect="write")
    ... def refund(order): return "refunded"
    >>> lost = mat.spec.perturbation("service.lost_ack", "main/service:refund#1", cost=4)
    >>> with mat.run(schedule=[lost]) as run:
    ...     try:
    ...         refund("A17")
    ...     except TimeoutError:
    ...         mat.detect("no acknowledgement")
    >>> [(record.at_ms, record.action.kind, record.effected) for record in run.trace[:2]]
    [(0, 'tool_call', 'yes'), (1000, 'detection', 'yes')]

    Source: A3.1.
    """

    def __init__(
        self,
        contracts: Iterable[Contract] = (),
        *,
        governance: Governance | None = None,
        seed: int = 0,
        schedule: Schedule | Iterable[Perturbation] = (),
        clock: ClockKind = "virtual",
        horizon: int = limits.HORIZON_STEPS,
        horizon_ms: int = limits.HORIZON_MS,
        config: Mapping[str, object] = FrozenDict(),
        task: str = "",
        operators: Iterable[Operator] | Catalog | None = None,
        tape: Tape | None = None,
        states: bool = False,
        state_digest: Callable[[], object] | StateDigest | None = None,
        vary: bool = False,
        adversary: Choose | None = None,
        world: World | None = None,
        errors: str | Sequence[str] = (),
    ) -> None:
        armed = tuple(contracts)
        self.contracts = armed
        self._errors = project_errors(errors)
        self.spec = RunSpec(
            task=task, config=run_configuration(armed, governance, config, self._errors), seed=seed,
            schedule=as_schedule(schedule), clock=clock, horizon_steps=horizon, horizon_ms=horizon_ms,
        )  # fmt: skip
        self._world = world
        self.result: Run | None = None
        self._stack = ExitStack()
        self._seed, self._clock = seed, clock
        catalog = operators
        if catalog is None:
            catalog = installed_operators() if len(self.spec.schedule) or adversary is not None else Catalog()
        self._catalog = catalog if isinstance(catalog, Catalog) else Catalog(catalog)
        self._governance, self._tape, self._states, self._state_digest = governance, tape, states, state_digest
        self._vary, self._adversary = vary, adversary
        self.recorder: Recorder | None = None

    if not TYPE_CHECKING:  # for people: to a type checker there is nothing of that name

        def __getattr__(self, name: str) -> Any:
            """Name `.result` in the error if only the finished Run has the attribute."""
            hint = "; the finished run is its .result" if name in Run.__dataclass_fields__ or hasattr(Run, name) else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

    @property
    def seed(self) -> int:
        """The seed of the run, z: all randomness is drawn from it and the task."""
        return self._seed

    @contextmanager
    def episode(self, name: str) -> Iterator[None]:
        """Begin an episode, one of several cases in this run: contracts start anew, and the system keeps its state."""
        if self.recorder is None:
            raise MatError("the run has not begun", why="an episode is a part of it", fix="use it inside the with block")
        with self.recorder.episode(name):
            yield

    @property
    def trace(self) -> tuple[Record, ...]:
        """The records so far."""
        if self.result is not None:
            return self.result.records
        return self.recorder.trace.sealed() if self.recorder is not None else ()

    @property
    def outcomes_so_far(self) -> tuple[ContractOutcome, ...]:
        """The verdicts of the contracts on the prefix so far (RV-LTL): `standing`, and the `open` obligations."""
        if self.result is not None:
            return self.result.outcomes
        return (
            () if self.recorder is None else self.recorder.trace.judge.outcomes_so_far(self.trace[-1] if self.trace else None)
        )

    @property
    def violations(self) -> tuple[Violation, ...]:
        return self._finished().violations

    @property
    def outcome(self) -> str:
        return self._finished().outcome

    def _finished(self) -> Run:
        if self.result is None:
            raise MatError("the run is still open", why="verdicts are complete at its end", fix="read it after the with block")
        return self.result

    def __enter__(self) -> run:
        world = self._world
        if world is None:
            world = World(self._seed, self._clock, self.spec.task)
            self._stack.enter_context(installed(world))
        try:
            self.recorder = self._recorder(world)
        except BaseException:  # an invalid schedule or policy: __exit__ will not be called
            self._stack.close()
            raise
        self._token = current_session.set(self.recorder)
        push_ambient(self.recorder)
        world.guarded = True
        self._running = world
        if not world.clock.virtual:
            self.recorder.note("real-clock", "the run was made in real time")
        return self

    def _recorder(self, world: World) -> Recorder:
        judge = Judge(self.contracts)
        blocking = any(contract.policy == "block" for contract in self.contracts)
        mediator = Mediator(self._governance, self._peek if blocking else None)
        return Recorder(
            self.spec, world=world, judge=judge, mediator=mediator,
            approver=mediator.approver, catalog=self._catalog, tape=self._tape,
            secrets=process_secrets(), keep_states=self._states, state_digest=self._state_digest,
            vary=self._vary, adversary=self._adversary,
            contracts={} if self._governance is None else self._governance.contracts, errors=self._errors,
        )  # fmt: skip

    def _peek(self, proposed: Record) -> tuple[Violation, ...]:
        assert self.recorder is not None
        return self.recorder.trace.peek(proposed)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        assert self.recorder is not None
        stop = self.stop_in(error)
        if stop is not None:
            self.recorder.stop(stop.reason)
        try:
            self._running.settle()
        finally:
            self._running.guarded = False
        try:
            self.close(error)
        finally:
            self._stack.close()
        if error is None and self.mistake is not None:
            raise self.mistake
        return stop is not None

    @property
    def mistake(self) -> MatError | None:
        """The first refusal of an invalid call. The end of the run raises it, even if the agent caught it."""
        return None if self.recorder is None else self.recorder.mistake

    def stop_in(self, error: BaseException | None) -> RunStopped | None:
        """The RunStopped that ended the block, if nothing else went wrong.

        In a loop that others go on using, a run that is stopped ends its tasks by cancelling them.
        """
        from asyncio import CancelledError

        stop = _only(error, RunStopped)
        if stop is None and self._running.cancelled_by and _only(error, CancelledError) is not None:
            return RunStopped(self._running.cancelled_by)
        return stop if isinstance(stop, RunStopped) else None

    @property
    def crashed(self) -> bool:
        """Whether a fault has ended the agent's process, and nobody has resumed the run yet."""
        return self.recorder is not None and self.recorder.crashed

    def note(self, code: str, message: str) -> None:
        """Note a finding about the run in progress."""
        if self.recorder is not None:
            self.recorder.note(code, message)

    def resume(self) -> None:
        """Go on after `mat.errors.ProcessCrashed`, as a new process of the agent would. Without a crash nothing happens."""
        if self.recorder is not None:
            self.recorder.resume()

    def close(self, error: BaseException | None) -> Run:
        """End the run and make its Run; idempotent."""
        assert self.recorder is not None
        if self.result is None:
            pop_ambient(self.recorder)
            with suppress(ValueError):  # the block was left in another context (an async fixture); the session is closed anyway
                current_session.reset(self._token)
            said = "" if error is None else _first_line(error)
            self.result = self.recorder.close(
                success=error is None and self.recorder.termination not in ("aborted", "failed", "horizon", "deadlock"),
                error=said, raised=error is not None, uncaught=uncaught(error),
            )  # fmt: skip
        return self.result


def _only(error: BaseException | None, kind: type[BaseException]) -> BaseException | None:
    """The exception of this kind that ended the block, even inside a task group's exception, if nothing else went wrong."""
    while isinstance(error, BaseExceptionGroup):
        found, rest = error.split(kind)
        if found is None or rest is not None:
            return None
        error = found.exceptions[0]
    return error if isinstance(error, kind) else None


_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{4,}")


def _first_line(error: BaseException) -> str:
    """The first line of an exception's text, without parts that differ between processes: addresses, details of assertions."""
    line = next(iter(str(error).splitlines()), "")
    if line.startswith("assert "):  # pytest's own words, whose length depends on -v
        line = ""
    return _ADDRESS.sub("0x", f"{type(error).__name__}: {line}").rstrip(": ")
