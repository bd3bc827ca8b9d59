"""One execution of one item: its environment from setup to teardown, the run around its body, and its outcome for pytest."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest
from _pytest.outcomes import Exit, XFailed
from _pytest.skipping import evaluate_xfail_marks

from mat.adapters.attach import attached
from mat.adapters.attachment import Attachment
from mat.boundary.port import declared_ports
from mat.boundary.tape import Tape
from mat.core.campaign import broken_run
from mat.core.errors import MatError, ProcessCrashed, RunStopped, SpecError
from mat.core.record import Record
from mat.core.redact import cleaned
from mat.core.run import ATTACHED, REFUSED, Run, remedy, same_violation
from mat.core.spec import RunSpec
from mat.core.verdict import Violation
from mat.evidence.replay_file import Replay
from mat.govern.mediator import Governance
from mat.govern.variant import NONE, GovernanceSelection, select
from mat.harness.execute import run
from mat.harness.patching import patched
from mat.kernel import install
from mat.kernel.names import HARNESS, origin
from mat.kernel.network import loopback_allowed
from mat.kernel.world import World
from mat.measure.workload import Workload
from mat.monitor.contract import Contract
from mat.monitor.triggers import Triggers
from mat_study.broken import replay_runs
from mat_study.evaluation import REPORTED, Plan
from mat_study.live import LiveCalls
from mat_study.replay import ReplayJudgement, judge
from mat_study.settings import ItemSettings
from mat_study.tasks import TASK, Judged, JudgeFailed, is_task, judged, refuse_gaps, with_success, with_task, workload_of
from pytest_mat.arming import contracts_in, values_of
from pytest_mat.debugging import Breakpoint, as_refusal, fail, without_our_frames
from pytest_mat.options import is_in_the_summary, settings_of, verbosity_of, width_of
from pytest_mat.replays import source_of, task_of
from pytest_mat.session import session_of


class RunHandle:
    """What a test sees of its run: the value of the `mat_run` fixture."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._run: run | None = None

    def _started_run(self) -> run:
        if self._run is None:
            raise MatError(
                "the run has not started",
                why="a run covers the test's body, not its fixtures",
                fix="read mat_run inside the test function",
            )
        return self._run

    @property
    def spec(self) -> RunSpec:
        """The RunSpec: task, config, seed, schedule."""
        return self._started_run().spec

    @property
    def trace(self) -> tuple[Record, ...]:
        """The records so far."""
        return self._started_run().trace

    @contextmanager
    def episode(self, name: str) -> Iterator[None]:
        """One of several cases in this body: contracts start anew in each, state is carried over."""
        recorder = self._started_run().recorder
        assert recorder is not None
        with recorder.episode(name):
            yield


@dataclass(slots=True, kw_only=True)
class Execution:
    """An execution in progress, shared by pytest's separate hooks for setup, call and teardown.

    It collects what is known before there is a run: the workload, the contracts, the variants to run the item under.
    `why`: the reason why there is no run that counts, if pytest's reports do not give it. `refused`: the test is invalid, or
    asks for something that is not available.
    """

    plan: Plan
    settings: ItemSettings
    live: LiveCalls
    handle: RunHandle
    planned: bool = True
    world: World | None = None
    installed: AbstractContextManager[World] | None = None
    task: Workload = field(default_factory=Workload)
    contracts: tuple[Contract, ...] = ()
    shared: frozenset[str] = frozenset()
    variants: tuple[str, ...] = (NONE,)
    tape: Tape | None = None
    attached: tuple[Attachment, ...] = ()
    run: Run | None = None
    judged: Judged = field(default_factory=Judged)
    why: str = ""
    refused: bool = False
    stop: Breakpoint | None = None

    @property
    def inspected(self) -> bool:
        """Whether a debugger has stopped at the violation."""
        return self.stop is not None and self.stop.stopped

    @classmethod
    def of(cls, plan: Plan, settings: ItemSettings, live: LiveCalls, *, task: Workload) -> Execution:
        return cls(plan=plan, settings=settings, live=live, handle=RunHandle(plan.seed), task=task)


EXECUTION: Final = pytest.StashKey[Execution]()
"""The execution in progress; whoever planned it removes it."""


def live_calls(item: pytest.Item, settings: ItemSettings) -> LiveCalls:
    return LiveCalls(item.config.rootpath, task_of(item), most=settings.live_calls, warn=warner(item))


def warner(item: pytest.Item) -> Callable[[str], None]:
    def warn(text: str) -> None:
        item.warn(pytest.PytestWarning(cleaned(text)))

    return warn


def handle_of(item: pytest.Item) -> RunHandle:
    execution = item.stash.get(EXECUTION, None)
    return execution.handle if execution is not None else RunHandle(0)


def is_unreported(item: pytest.Item) -> bool:
    """Whether the execution in progress has an outcome that is not the test's."""
    execution = item.stash.get(EXECUTION, None)
    return execution is not None and execution.plan.mode in ("search", "compare")


def set_up(item: pytest.Item) -> Generator[None, None, None]:
    """Install the run's clock and randomness before function fixtures are made, so that fixtures use them too."""
    execution = _execution_of(item)
    execution.world = World(execution.plan.seed, execution.settings.clock, task_of(item))
    execution.installed = install.installed(execution.world)
    execution.installed.__enter__()
    return (yield)


def _execution_of(item: pytest.Item) -> Execution:
    """The planned execution; a nominal one if another plugin runs the item."""
    execution = item.stash.get(EXECUTION, None)
    if execution is None:
        settings = settings_of(item)
        execution = Execution.of(Plan(), settings, live_calls(item, settings), task=Workload())
        execution.planned = False
        item.stash[EXECUTION] = execution
    return execution


def tear_down(item: pytest.Item) -> None:
    """Uninstall the run's clock and randomness. Drop an unplanned execution only here: reports of the body may need its run."""
    execution = item.stash.get(EXECUTION, None)
    if execution is None:
        return
    if not execution.planned:
        del item.stash[EXECUTION]
    installed, execution.installed = execution.installed, None
    if installed is not None:
        installed.__exit__(None, None, None)


def call(item: pytest.Item) -> Generator[None, None, None]:
    """Execute the body as one run, and turn its end into the item's outcome.

    An item that only requests a contract was not set up here: its fixtures are made with the real clock and randomness.
    """
    execution = _execution_of(item)
    with ExitStack() as stack:
        try:
            made = _make_run(item, execution, stack)
        except MatError as mistake:
            execution.refused = True
            refuse(mistake)
        error: BaseException | None = None
        made.__enter__()
        execution.handle._run = made
        for each in execution.attached:
            made.note(ATTACHED, each.in_words())
        if item.config.getoption("usepdb", False):
            _stop_at_violation(execution, made)
        try:
            yield
        except BaseException as caught:
            error = caught
        error = error or _unittest_error(item, execution.plan)
        if made.crashed:
            error = _resume(item, made)
        error = made.stop_in(error) or error
        try:
            made.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
        except MatError as raised:
            if raised is not made.mistake:
                raise
    if made.mistake is not None and error is not made.mistake:  # the agent, or the framework that it uses, has caught it
        execution.refused = True
        refuse(made.mistake)
    assert made.result is not None
    missed = None if execution.tape is None else execution.tape.refused
    if missed is not None:  # an agent that catches every exception has caught this one too, and continued without a reply
        execution.why = "a live call was not allowed"
        refuse(missed)
    try:
        result = with_success(execution.task, made.result, returned=error is None)
        execution.judged = judged(execution.task, result)
    except JudgeFailed as failed:
        execution.why = failed.reason
        refuse(failed)
    if error is None:
        _refuse_late(item, execution)
        if not execution.planned:  # a test that only requests a contract: no study will say what was not looked at
            _warn_of_vacuous(item, execution, result)
    if _is_judged_by_body(item, execution, result):
        expected = TASK in execution.settings.expect
        result = with_task(result, place="" if expected else _raised_at(item, error), named=not expected)
    execution.run = result
    _outcome(item, execution, result, error)


def _resume(item: pytest.Item, made: run) -> BaseException | None:
    """Go on with mat_resume after each end of the agent's process. Returns the exception that it ends with, if any."""
    resume = _fixture_reader(item)("mat_resume", None)
    if not callable(resume):
        return SpecError(
            what="process.crash has ended the agent's process, and no mat_resume fixture says how the agent continues",
            why="the fault simulates a service that crashes and is restarted",
            fix="write a fixture mat_resume that returns a function without arguments, which continues the work",
            where=item.nodeid,
        )
    while made.crashed:
        made.resume()
        try:
            going_on = resume()
            if inspect.isawaitable(going_on):
                asyncio.run(_awaited(going_on))
        except ProcessCrashed:
            continue
        except BaseException as error:
            if not made.crashed:
                return error
    return None


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


def _is_judged_by_body(item: pytest.Item, execution: Execution, result: Run) -> bool:
    """Whether the body's own outcome is a verdict of this run: for objective="task", and if there is no contract.

    An evaluation measures task success by itself.
    """
    if execution.plan.mode in ("nominal", "compare", "measure"):
        return False
    return execution.settings.objective == "task" or not (result.outcomes or item.config.getoption("mat_evaluate"))


def _raised_at(item: pytest.Item, error: BaseException | None) -> str:
    """The innermost line of the project that an exception came through, as file:line; "" if there is none."""
    root, found = f"{item.config.rootpath}{os.sep}", ""
    trace = None if error is None else error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        ours = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0] in HARNESS
        if code.co_filename.startswith(root) and not ours and origin(code.co_filename) == "project":
            found = f"{Path(code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def _stop_at_violation(execution: Execution, made: run) -> None:
    """With --pdb: open a prompt in the agent's code where it breaks the contract that makes the item fail."""
    plan, expect = execution.plan, execution.settings.expect
    recorded = plan.look
    if plan.replay is not None and (plan.mode == "strict" or plan.replay.expected):
        recorded = plan.replay.counterexample.verdict
    if recorded is None and plan.mode not in REPORTED:
        return

    def wanted(record: Record, found: tuple[Violation, ...]) -> str:
        if recorded is None:
            first = next((each for each in found if each.severity == "hard" and each.contract not in expect), None)
        else:
            again = (each for each in found if same_violation(each, recorded))
            first = next(again, recorded if record.step == recorded.step else None)
        return "" if first is None else f"{first.contract}: {first.message}"

    assert made.recorder is not None
    execution.stop = Breakpoint(wanted)
    made.recorder.trace.sinks.append(execution.stop)


def _make_run(item: pytest.Item, execution: Execution, stack: ExitStack) -> run:
    settings = execution.settings
    if settings.faults is not None and execution.plan.mode == "nominal":
        session_of(item.config).catalog.select(settings.faults)  # refuses a name that no operator has
    value = _fixture_reader(item)
    execution.contracts, execution.shared = _contracts(item, settings, value)
    execution.task = workload_of(value("mat_workload", None), settings)
    plan = execution.plan = _plan_for_workload(item, execution)
    governance = _governance(execution, value("mat_governance", None))
    stack.enter_context(patched(value("mat_instrument", item.config.getini("mat_instrument"))))
    execution.attached = stack.enter_context(attached(value("mat_attach", item.config.getini("mat_attach"))))
    stack.enter_context(loopback_allowed(settings.loopback))
    execution.tape = execution.live.tape_for(plan.seed, plan.tape)
    return run(
        execution.contracts,
        governance=governance,
        seed=plan.seed,
        schedule=plan.schedule,
        horizon=settings.horizon,
        clock=settings.clock,
        config=value("mat_config", {}),
        task=task_of(item),
        operators=session_of(item.config).catalog,
        tape=execution.tape,
        states=plan.mode == "search",
        state_digest=value("mat_state_digest", None),
        vary=plan.vary,
        adversary=plan.adversary,
        world=execution.world,
        errors=settings.errors,
    )


def _plan_for_workload(item: pytest.Item, execution: Execution) -> Plan:
    """The plan, now that the workload is known: a test that is not a task runs as usual; a task with gaps is refused."""
    plan, task = execution.plan, execution.task
    if plan.mode != "measure":
        return plan
    if not is_task(task):
        return replace(plan, mode="nominal")
    if evaluate_xfail_marks(item) is not None:
        item.config.option.runxfail = True  # its failures are data; whoever plans an evaluation restores this option
    refuse_gaps(task, item.nodeid)
    return plan


def _governance(execution: Execution, declared: Any) -> Governance | None:
    """The governance of this execution, from the fixture, the marker and the command line.

    A test that declares no governance has one variant only, whatever the command line asks for.
    """
    if isinstance(declared, str | Path):
        from mat.govern.policy import load

        declared = load(declared)
    settings = execution.settings
    asked = () if declared is None else settings.variants
    chosen: GovernanceSelection = select(declared, marker=settings.governance, asked=asked)
    execution.variants = chosen.compared
    return chosen.governance[execution.plan.variant or chosen.own]


_OVERRIDDEN: Final = pytest.StashKey[dict[str, bool]]()
"""Which of our own fixtures an item overrides, as far as somebody asked."""


def _fixture_reader(item: pytest.Item) -> Any:
    """A function that reads a fixture of ours; its default, without making the fixture, if nobody overrides it."""
    request: Any = getattr(item, "_request", None)
    funcargs = getattr(item, "funcargs", None) or {}
    overridden = item.stash.setdefault(_OVERRIDDEN, {})

    def read(name: str, default: Any) -> Any:
        if name in funcargs:
            return funcargs[name]
        if name not in overridden:
            overridden[name] = _is_overridden(item, name)
        return request.getfixturevalue(name) if request and overridden[name] else default

    return read


def resumes(item: pytest.Item) -> bool:
    """Whether the test says how the agent goes on after the end of its process."""
    return _is_overridden(item, "mat_resume")


def _is_overridden(item: pytest.Item, name: str) -> bool:
    found: Any = item.session._fixturemanager.getfixturedefs(name, item)
    return not found or found[-1].func.__module__ != "pytest_mat"


def _contracts(item: pytest.Item, settings: ItemSettings, value: Any) -> tuple[tuple[Contract, ...], frozenset[str]]:
    """The contracts from requested fixtures (alone or in containers), mat_contracts, the marker and the hook; each once.

    Those that come from mat_contracts or the hook alone are armed for several tests; their ids are returned as well.
    """
    own: list[Any] = [contract for _, contract in _requested(item)]
    shared = _contract_list(value("mat_contracts", []), "mat_contracts")
    found = [*own, *shared, *_contract_list(settings.contracts, "the marker's contracts=")]
    own += found[len(own) + len(shared) :]
    for group in item.ihook.pytest_mat_contracts(item=item):
        shared += _contract_list(group or (), "the hook pytest_mat_contracts")
    unique: dict[int, Contract] = {id(contract): contract for contract in (*found, *shared)}
    return tuple(unique.values()), frozenset(each.id for each in shared) - {each.id for each in own}


def _requested(item: pytest.Item) -> list[tuple[str, Contract]]:
    """The contracts of the item's fixtures, with the name of the fixture."""
    values = values_of(item)
    return [(name, contract) for name in sorted(values) if name != "mat_contracts" for contract in contracts_in(values[name])]


def _refuse_late(item: pytest.Item, execution: Execution) -> None:
    """Refuse contracts that the body requested: the run had begun without them."""
    armed = {id(contract) for contract in execution.contracts}
    late = [(name, contract.id) for name, contract in _requested(item) if id(contract) not in armed]
    if late:
        execution.refused = True
        names = ", ".join(dict.fromkeys(name for name, _ in late))
        refuse(
            SpecError(
                what=f"the test's body requests contracts too late: {', '.join(contract for _, contract in late)}",
                why="contracts are armed before the body runs, so these have judged nothing",
                fix=f"request the fixture as an argument of the test ({names}), or with getfixturevalue in another fixture",
                where=item.nodeid,
            )
        )


def _warn_of_vacuous(item: pytest.Item, execution: Execution, result: Run) -> None:
    triggers = Triggers(execution.contracts)
    triggers.note(result.records)
    for each in triggers.vacuous(declared_ports()):
        if each.contract not in execution.settings.vacuous:
            item.warn(pytest.PytestWarning(f"{each.contract} is vacuous: {each.reason}"))


def _contract_list(value: Any, source: str) -> list[Any]:
    if isinstance(value, Contract):
        return [value]
    if not isinstance(value, Iterable) or isinstance(value, str):
        raise SpecError(
            what=f"{source} is {type(value).__qualname__}", why="contracts come in a list", fix="use a list of contracts"
        )
    contracts = list(value)
    foreign = sorted({type(part).__qualname__ for part in contracts if not isinstance(part, Contract)})
    if foreign:
        raise SpecError(
            what=f"{source} contains {', '.join(foreign)}", why="every item must be a contract", fix="use a list of contracts"
        )
    return contracts


def _unittest_error(item: pytest.Item, plan: Plan) -> BaseException | None:
    """The body's exception, which unittest keeps on the item; a search removes it, a reported run leaves it there."""
    stored = getattr(item, "_excinfo", None)
    if not stored:
        return None
    error: BaseException = stored[0].value
    if (plan.mode not in REPORTED and not isinstance(error, _ALWAYS)) or isinstance(error, RunStopped):
        del item._excinfo  # type: ignore[attr-defined]  # not None: the next execution appends to it
    return error


def refuse(error: MatError) -> NoReturn:
    """Fail with the text of an error and without its traceback, which contains none of the user's code."""
    text = cleaned(f"{type(error).__name__}: {error}")
    raise pytest.fail.Exception(text, pytrace=False) from None  # else pytest shows it twice


_ALWAYS: Final = (KeyboardInterrupt, SystemExit, Exit, pytest.skip.Exception, XFailed, MatError)
"""Exceptions that propagate out of the body under any schedule (DESIGN section 1)."""


def _outcome(item: pytest.Item, execution: Execution, result: Run, error: BaseException | None) -> None:
    mode, expect = execution.plan.mode, execution.settings.expect
    stored = bool(getattr(item, "_excinfo", None))
    refusal = None if error is None else as_refusal(error)
    if refusal is not None and not stored:
        raise refusal from None
    if isinstance(error, _ALWAYS):
        if not stored:
            raise error
        return
    if mode not in REPORTED:
        return
    if mode in ("regression", "strict"):
        _judge_replay(item, execution, result)
        return
    unexpected = [each for each in result.failures if each.contract not in expect]
    if error is not None and not isinstance(error, RunStopped):
        refused = [each for each in result.findings if each.code in REFUSED]
        if refused:
            lines = [f"{each.message} during the run\n  fix: {remedy(each.code)}" for each in refused]
            item.add_report_section("call", "mat", cleaned("\n".join(lines)))
        if unexpected:
            item.add_report_section("call", "mat", _violation_text(item, result, unexpected))
        if not stored:
            raise without_our_frames(error)
        return
    if unexpected:
        fail(_violation_text(item, result, unexpected), inspected=execution.inspected)
    if isinstance(error, RunStopped) and not result.failures:
        pytest.fail(_nontermination_text(result), pytrace=False)
    if error is None and result.success is False and result.term:
        pytest.fail("the task did not succeed: the oracle of its workload says no", pytrace=False)


def _judge_replay(item: pytest.Item, execution: Execution, result: Run) -> None:
    """Judge a replay item; raises the failure that its report shows."""
    plan = execution.plan
    replay = plan.replay
    assert replay is not None
    found = judge(plan, result, execution.settings)
    if found.divergence is not None:
        refuse(found.divergence)
    if found.reproduced:
        from mat.report.terminal import failure_section

        recorded = replay.counterexample
        shown = replace(recorded, run=replace(recorded.run, places=result.places))
        text = failure_section(
            cleaned(shown), replay.certificate, replay_path=source_of(item), item=replay.item, width=width_of(item.config)
        )
        if not found.fails:
            item.add_report_section("call", "mat", text)
    elif found.violations:
        text = _broken_replay_text(item, execution.settings, result, replay, found)
    else:
        text = found.message
    if found.fails:
        fail(text, inspected=execution.inspected)


def _violation_text(item: pytest.Item, result: Run, violations: Sequence[Violation]) -> str:
    """The violations of a nominal run: with the steps around them or, if the summary tells about them, in short."""
    from mat.report.brief import failure_lines
    from mat.report.findings import finding_line
    from mat.report.terminal import violation_section

    shown, found = cleaned((result, list(violations)))  # before lines are broken, in which no secret would be found
    if is_in_the_summary(item.config):
        run = broken_run(shown, found[0], frozenset(each.contract for each in found))
        return "\n".join(failure_lines(finding_line(cleaned(item.nodeid), run)))
    return violation_section(shown, found, width=width_of(item.config))


def _broken_replay_text(
    item: pytest.Item, settings: ItemSettings, result: Run, recorded: Replay, judged_as: ReplayJudgement
) -> str:
    """The failure of a replay: in short if the summary tells about it, and with the steps only if output is verbose."""
    from mat.report import brief, words
    from mat.report.findings import finding_line
    from mat.report.terminal import violation_section

    message = judged_as.message
    shown, found, known, name = cleaned((result, list(judged_as.violations), recorded, item.nodeid))
    line = finding_line(name, replay_runs(shown, known, settings, file=source_of(item))[0])
    if is_in_the_summary(item.config):
        return "\n".join(brief.failure_lines(line))
    if verbosity_of(item.config) < 1:
        return "\n".join([message, *brief.entry_lines(line, width=width_of(item.config), follows_message=True)])
    steps = violation_section(shown, found, width=width_of(item.config))
    return f"{message}\n\n{steps}Replay: {words.replay_command(source_of(item))}\n"


def _nontermination_text(result: Run) -> str:
    last = result.records[-1]
    return (
        f"the run did not terminate: {result.termination} at step {last.step}, {result.elapsed_ms} ms\n"
        "  why: every run must terminate, and no armed contract requires it\n"
        "  fix: raise horizon=, or make the agent give up; arm mat_contracts.terminates() to make it a contract"
    )
