"""One evaluation of one item: its world from set-up to tear-down, its run around the body, and what its outcome means."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

import pytest
from _pytest.outcomes import Exit, XFailed

from mat.boundary.catalog import Catalog
from mat.boundary.tape import Tape
from mat.core.adversary import Choose
from mat.core.errors import MatError, RunStopped, SpecError
from mat.core.record import Record
from mat.core.run import Run
from mat.core.spec import NO_SCHEDULE, Schedule
from mat.core.verdict import ContractOutcome, Violation
from mat.core.workload import Workload
from mat.govern.mediator import Governance
from mat.govern.variant import NONE, Selection, select
from mat.harness.execute import installed_operators, run
from mat.harness.patching import patched
from mat.kernel import install
from mat.kernel.world import World
from mat.monitor.contract import Contract
from pytest_mat import live
from pytest_mat.options import Settings, settings_of, width_of
from pytest_mat.tasks import GIVEN, JUDGED, JudgeFailed, is_task, judged, refuse_gaps, succeeded, workload_of

Mode = Literal["nominal", "search", "regression", "strict", "compare", "measure"]
"""`compare`: a nominal run under another governance variant; `measure`: one of an evaluation. Their outcome is not reported."""
_UNREPORTED: Final = ("search", "compare", "measure")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the next evaluation of an item is: its seed, schedule and tape, and whether its outcome is reported.

    `vary`: numbers in perturbed replies may be recording proxies. `adversary` chooses perturbations while it runs.
    """

    mode: Mode = "nominal"
    seed: int = 0
    schedule: Schedule = NO_SCHEDULE
    tape: Tape | None = None
    replay: Any = None
    vary: bool = False
    adversary: Choose | None = None


@dataclass(slots=True, kw_only=True)
class State:
    """An evaluation in progress."""

    plan: Plan
    settings: Settings
    world: World
    installed: AbstractContextManager[World] | None
    handle: RunHandle
    workload: Workload = field(default_factory=Workload)


PLAN: Final = pytest.StashKey[Plan]()
STATE: Final = pytest.StashKey[State]()
RESULT: Final = pytest.StashKey[Run]()
REPLAY: Final = pytest.StashKey[Any]()
NO_RUN: Final = pytest.StashKey[str]()
"""Why the latest evaluation gave no run, where its reports do not tell: a short reason, or REFUSED."""
REFUSED: Final = "refused"
"""What the test asks for cannot be had: a mistake of its author, and no failure around it."""
ARMED: Final = pytest.StashKey[tuple[Contract, ...]]()
"""The contracts of the latest evaluation."""
VARIANT: Final = pytest.StashKey[str]()
"""The governance variant that evaluations run under, where it is not the item's own."""
VARIANTS: Final = pytest.StashKey[tuple[str, ...]]()
"""The variants that the item is to be run under, its own first; known once it was evaluated."""
KEPT: Final = pytest.StashKey[int]()
"""How many runs of the item the store has taken (--mat-store)."""
_SETTINGS: Final = pytest.StashKey[Settings]()
_CATALOG: Final = pytest.StashKey[Catalog]()


class RunHandle:
    """What a test sees of its run: the value of the `mat_run` fixture."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._run: run | None = None

    def _open(self) -> run:
        if self._run is None:
            raise MatError(
                "the run has not begun",
                why="it spans the test's body, not its fixtures",
                fix="read mat_run inside the test function",
            )
        return self._run

    @property
    def spec(self) -> Any:
        """The RunSpec: task, config, seed, schedule."""
        return self._open().spec

    @property
    def trace(self) -> tuple[Record, ...]:
        """The records so far."""
        return self._open().trace

    @contextmanager
    def episode(self, name: str) -> Iterator[None]:
        """One of several cases in this body: contracts are judged for each from their start, state is carried on."""
        recorder = self._open().recorder
        assert recorder is not None
        with recorder.episode(name):
            yield


def handle_of(item: Any) -> RunHandle:
    state = item.stash.get(STATE, None)
    return state.handle if state is not None else RunHandle(0)


def cached_settings(item: pytest.Item) -> Settings:
    found = item.stash.get(_SETTINGS, None)
    if found is None:
        found = item.stash[_SETTINGS] = settings_of(item)
    return found


def catalog_of(config: pytest.Config) -> Catalog:
    """Operators of installed distributions and of the pytest_mat_operators hook."""
    found = config.stash.get(_CATALOG, None)
    if found is None:
        found = installed_operators()
        for group in config.hook.pytest_mat_operators(config=config):
            for operator in group or ():
                found.register(operator)
        config.stash[_CATALOG] = found
    return found


def task_of(item: pytest.Item) -> str:
    """x: the node id the item has without its replay."""
    replay = item.stash.get(REPLAY, None)
    return replay.item if replay is not None else item.nodeid


def set_up(item: pytest.Item) -> Generator[None, None, None]:
    """Put the world in place before function fixtures are made, so that what they draw and read is the run's own."""
    plan = item.stash.get(PLAN, None) or Plan()
    _begin(item, plan)
    return (yield)


def _begin(item: pytest.Item, plan: Plan) -> State:
    settings = cached_settings(item)
    world = World(plan.seed, settings.clock)
    installed = install.installed(world)
    installed.__enter__()
    state = State(plan=plan, settings=settings, world=world, installed=installed, handle=RunHandle(plan.seed))
    item.stash[STATE] = state
    return state


def tear_down(item: pytest.Item) -> None:
    state = item.stash.get(STATE, None)
    if state is not None:
        del item.stash[STATE]
        if state.installed is not None:
            state.installed.__exit__(None, None, None)


def call(item: pytest.Item) -> Generator[None, None, None]:
    """Run the body as one run, and turn its end into the item's outcome."""
    state = item.stash.get(STATE, None)
    item.stash[NO_RUN] = ""
    own = state is None
    if state is None:
        state = _begin(item, item.stash.get(PLAN, None) or Plan())
    try:
        with ExitStack() as stack:
            try:
                made = _make_run(item, state, stack)
            except MatError as mistake:
                item.stash[NO_RUN] = REFUSED
                refuse(mistake)
            error: BaseException | None = None
            made.__enter__()
            state.handle._run = made
            try:
                yield
            except BaseException as caught:
                error = caught
            error = error or _unittest_error(item, state.plan)
            made.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
    finally:
        if own:
            tear_down(item)
    assert made.result is not None
    missed = live.refusal(item)
    if missed is not None:  # an agent that catches everything has caught this too, and went on with nothing
        item.stash[NO_RUN] = "a live call was not allowed"
        refuse(missed)
    try:
        result = _with_success(made.result, error, state.workload)
        item.stash[JUDGED] = judged(state.workload, result)
    except JudgeFailed as failed:
        item.stash[NO_RUN] = failed.reason
        refuse(failed)
    if state.settings.objective == "task" and state.plan.mode not in ("nominal", "compare", "measure"):
        result = _with_task(result)
    item.stash[RESULT] = result
    _outcome(item, state, result, error)


def _with_success(result: Run, error: BaseException | None, task: Workload) -> Run:
    """Y is about the task alone: its body returned, and its oracle, where it has one, says yes."""
    success = succeeded(task, result) if error is None and result.term else False
    return result if result.success == success else replace(result, success=success)


def _with_task(result: Run) -> Run:
    """Under objective="task" a body that does not succeed breaks a contract of that name."""
    last = result.records[-1]
    said = result.error or f"the run ended with {result.termination}"
    broken = Violation(
        contract="task", severity="hard", stage="effected", step=last.step, agent=last.agent, role=last.role, message=said,
        region=(last.step, last.step),
    )  # fmt: skip
    outcome = ContractOutcome(
        contract="task", severity="hard", outcome="pass" if result.success else "fail",
        violations=() if result.success else (broken,),
    )  # fmt: skip
    return replace(result, outcomes=(*result.outcomes, outcome))


def _make_run(item: pytest.Item, state: State, stack: ExitStack) -> run:
    plan, settings = state.plan, state.settings
    value = _fixture_reader(item)
    contracts = item.stash[ARMED] = _contracts(item, settings, value)
    state.workload = item.stash[GIVEN] = workload_of(value("mat_workload", None), settings)
    plan = state.plan = _planned(item, plan, state.workload)
    governance = _governance(item, settings, value("mat_governance", None))
    stack.enter_context(patched(value("mat_instrument", {})))
    tape = live.tape_for(item, settings, task_of(item), seed=plan.seed, given=plan.tape)
    return run(
        contracts,
        governance=governance,
        seed=plan.seed,
        schedule=plan.schedule,
        horizon=settings.horizon,
        clock=settings.clock,
        config=value("mat_config", {}),
        task=task_of(item),
        operators=catalog_of(item.config),
        tape=tape,
        states=plan.mode == "search",
        state_digest=value("mat_state_digest", None),
        vary=plan.vary,
        adversary=plan.adversary,
        world=state.world,
    )


def _planned(item: pytest.Item, plan: Plan, task: Workload) -> Plan:
    """The plan, now that the workload is known: what is no task is run as usual, and one with gaps is refused unrun."""
    if plan.mode != "measure":
        return plan
    if not is_task(task):
        return replace(plan, mode="nominal")
    from pytest_mat.evaluate import disregard_xfail

    disregard_xfail(item)
    refuse_gaps(task, item.nodeid)
    return plan


def _governance(item: pytest.Item, settings: Settings, given: Any) -> Governance | None:
    """The governance of this evaluation, out of what the fixture gives, the marker names and the command line asks for.

    A test that declares no governance has one variant only, whatever is asked of the session.
    """
    if isinstance(given, Path):
        from mat.govern.policy import load

        given = load(given)
    chosen: Selection = select(given, marker=settings.governance, asked=() if given is None else settings.variants)
    item.stash[VARIANTS] = chosen.compared
    return chosen.governance[item.stash.get(VARIANT, chosen.own)]


def variant_of(item: pytest.Item) -> str:
    """The governance variant that the item's evaluations run under."""
    return item.stash.get(VARIANT, None) or item.stash.get(VARIANTS, (NONE,))[0]


def _fixture_reader(item: pytest.Item) -> Any:
    request = getattr(item, "_request", None)

    def read(name: str, default: Any) -> Any:
        funcargs = getattr(item, "funcargs", None) or {}
        if name in funcargs:
            return funcargs[name]
        return request.getfixturevalue(name) if request else default

    return read


def _contracts(item: pytest.Item, settings: Settings, value: Any) -> tuple[Contract, ...]:
    """Requested fixtures that are contracts (or lists of them), mat_contracts, the marker's, and the hook's; each once."""
    found: list[Any] = []
    for name in sorted(getattr(item, "funcargs", None) or {}):
        if name == "mat_contracts":
            continue
        requested = item.funcargs[name]  # type: ignore[attr-defined]
        if isinstance(requested, Contract):
            found.append(requested)
        elif isinstance(requested, list | tuple) and requested and all(isinstance(part, Contract) for part in requested):
            found += requested
    found += _listed(value("mat_contracts", []), "mat_contracts")
    found += _listed(settings.contracts, "the marker's contracts=")
    for group in item.ihook.pytest_mat_contracts(item=item):
        found += _listed(group or (), "the hook pytest_mat_contracts")
    unique: dict[int, Contract] = {id(contract): contract for contract in found}
    return tuple(unique.values())


def _listed(given: Any, source: str) -> list[Any]:
    if isinstance(given, Contract):
        return [given]
    if not isinstance(given, Iterable) or isinstance(given, str):
        raise SpecError(
            what=f"{source} is {type(given).__qualname__}", why="it lists contracts", fix="give a list of contracts"
        )
    listed = list(given)
    strange = sorted({type(part).__qualname__ for part in listed if not isinstance(part, Contract)})
    if strange:
        raise SpecError(
            what=f"{source} holds {', '.join(strange)}", why="its members are contracts", fix="give a list of contracts"
        )
    return listed


def _unittest_error(item: pytest.Item, plan: Plan) -> BaseException | None:
    """unittest keeps the body's exception on the item; a search takes it away, a reported run leaves it for the report."""
    stored = getattr(item, "_excinfo", None)
    if not stored:
        return None
    error: BaseException = stored[0].value
    if (plan.mode in _UNREPORTED and not isinstance(error, _ALWAYS)) or isinstance(error, RunStopped):
        item._excinfo = None  # type: ignore[attr-defined]
    return error


def refuse(error: MatError) -> NoReturn:
    """Fail with what an error says and no traceback: it passes through none of the user's code."""
    raise pytest.fail.Exception(f"{type(error).__name__}: {error}", pytrace=False) from None  # else it is told twice


_ALWAYS: Final = (KeyboardInterrupt, SystemExit, Exit, pytest.skip.Exception, XFailed, MatError)
"""What leaves the body whatever the schedule (DESIGN section 1)."""


def _outcome(item: pytest.Item, state: State, result: Run, error: BaseException | None) -> None:
    mode = state.plan.mode
    stored = bool(getattr(item, "_excinfo", None))
    if isinstance(error, _ALWAYS):
        if not stored:
            raise error
        return
    if mode in _UNREPORTED:
        return
    if mode in ("regression", "strict"):
        from pytest_mat.collect import judge_replay

        judge_replay(item, state.plan, result, error)
        return
    unexpected = [item for item in result.failures if item.contract not in state.settings.expect]
    if error is not None and not isinstance(error, RunStopped):
        if unexpected:
            item.add_report_section("call", "mat", _violated(item, result, unexpected))
        if not stored:
            raise error
        return
    if unexpected:
        pytest.fail(_violated(item, result, unexpected), pytrace=False)
    if isinstance(error, RunStopped) and not result.failures:
        pytest.fail(_stopped(result), pytrace=False)
    if error is None and result.success is False and result.term:
        pytest.fail("the task did not succeed: the oracle of its workload says no", pytrace=False)


def _violated(item: pytest.Item, result: Run, violations: list[Violation]) -> str:
    from mat.report.terminal import violation_section

    return violation_section(result, violations, width=width_of(item.config))


def _stopped(result: Run) -> str:
    last = result.records[-1]
    return (
        f"the run did not terminate: {result.termination} at step {last.step}, {result.elapsed_ms} ms\n"
        "  why: Term = 0 (A1.7), and no armed contract speaks about it\n"
        "  fix: raise horizon=, or let the agent give up; arm mat_contracts.terminates() to make it a contract"
    )
