"""Who executes does not matter: workers begin early what is asked for anyway, and what goes wrong with them goes on here."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress

import pytest

import mat
from mat.boundary.catalog import Catalog
from mat.boundary.effect import Raise
from mat.core.errors import SpecError
from mat.core.spec import NO_SCHEDULE
from mat_search import STRATEGIES, Campaign, SearchStopped, search
from mat_search.executions import Executions

OPERATORS = Catalog([
    mat.spec.operator("service.timeout", lambda call, reply, stream: Raise("timeout", delay_ms=1_000)),
    mat.spec.operator("service.lost_ack", lambda call, reply, stream: Raise("timeout", delay_ms=1_000), phase="after"),
])  # fmt: skip


@mat.tool(effect="write", impact="high")
def pay(order):
    return {"paid": order}


@mat.tool
def look(order):
    return {"order": order}


@mat.trace_contract(start=frozenset())
def once(seen, record):
    if record.action.name != "pay" or record.effected != "yes":
        return seen
    order = record.action.arguments["order"]
    return mat.Violated("paid twice") if order in seen else seen | {order}


@mat.step_contract(on="tool_call")
def no_fourth_look(record):
    return not record.site.endswith(":look#4")


def agent():
    for order in ("a", "b"):
        for _ in range(2):
            with suppress(TimeoutError):
                look(order)
                break
        for _ in range(2):
            with suppress(TimeoutError):
                pay(order)
                break
        else:
            look(order)


def evaluate(spec):
    with mat.run([once, no_fourth_look], schedule=spec.schedule, seed=spec.seed, operators=OPERATORS, states=True) as run:
        agent()
    return run.result


PARENT = os.getpid()


def dying(spec):
    """Ends every process that is not the one that searches, once a schedule has two perturbations."""
    if os.getpid() != PARENT and len(spec.schedule) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return evaluate(spec)


def failing(spec):
    if os.getpid() != PARENT and len(spec.schedule) == 2:
        raise ModuleNotFoundError("no module named shop")
    return evaluate(spec)


def stopping(spec):
    if len(spec.schedule) == 2:
        raise SearchStopped("enough")
    return evaluate(spec)


class Processes(ProcessPoolExecutor):
    """Forked processes that are killed at the end of a test: forks of a process with threads may never end by themselves."""

    def __exit__(self, *exception):
        workers = list((self._processes or {}).values())
        self.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.kill()


def processes(count):
    return Processes(count, mp_context=multiprocessing.get_context("fork"))


def campaign(**options):
    specs = tuple(operator.spec() for operator in OPERATORS)
    return Campaign(operators=specs, **{"budget": 8, "max_runs": 400, **options})


@functools.cache
def alone(strategy="exhaustive", stop="budget"):
    noted = []
    result = search(evaluate(mat.spec.RunSpec()), evaluate, campaign(strategy=strategy, stop=stop), note=noted.append)
    return result, noted


def test_the_planted_weaknesses_are_found_without_workers():
    result, noted = alone()
    assert next((item.verdict.contract, item.cost) for item in result.counterexamples) == ("once", 4)
    assert {item.verdict.contract for item in result.counterexamples} == {"once", "no_fourth_look"}
    assert result.certificate.proven
    assert len(noted) == result.executions


@pytest.mark.full
@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_result_and_the_order_of_executions_are_the_same_for_any_number_of_workers(count):
    expected, order = alone()
    noted = []
    with processes(count) as executor:
        result = search(evaluate(mat.spec.RunSpec()), evaluate, campaign(), executor=executor, note=noted.append)
    assert result == expected
    assert noted == order
    assert [run.head for run in noted] == [run.head for run in order]


@pytest.mark.full
@pytest.mark.parametrize("strategy", sorted(set(STRATEGIES) - {"exhaustive", "adversary"}))
@pytest.mark.parametrize("stop", ["budget", "first"])
def test_every_strategy_gives_with_workers_what_it_gives_without(strategy, stop):
    expected, order = alone(strategy, stop)
    noted = []
    with processes(2) as executor:
        asked = campaign(strategy=strategy, stop=stop)
        result = search(evaluate(mat.spec.RunSpec()), evaluate, asked, executor=executor, note=noted.append)
    assert result == expected
    assert noted == order


def test_workers_execute_what_is_explored(tmp_path):
    log = tmp_path / "log"
    with processes(2) as executor:
        expected, _ = alone()
        result = search(evaluate(mat.spec.RunSpec()), functools.partial(logged, str(log)), campaign(), executor=executor)
    assert result == expected
    here = log.read_text().split().count(str(os.getpid()))
    elsewhere = len(log.read_text().split()) - here
    assert elsewhere >= result.searched * 3 // 4
    assert here <= result.executions - result.searched * 3 // 4


def logged(log, spec):
    with open(log, "a") as stream:
        stream.write(f"{os.getpid()}\n")
    return evaluate(spec)


# -- what goes wrong ----------------------------------------------------------------------------------------------------


def test_a_worker_that_dies_costs_no_result_and_is_reported():
    expected, order = alone()
    noted = []
    with processes(2) as executor:
        result = search(evaluate(mat.spec.RunSpec()), dying, campaign(), executor=executor, note=noted.append)
    (finding,) = result.findings
    assert finding.code == "workers-lost"
    assert finding.message.startswith("the search continued without workers: ")
    assert "BrokenProcessPool" in finding.message
    assert noted == order
    assert (result.counterexamples, result.certificate) == (expected.counterexamples, expected.certificate)


def test_workers_that_cannot_do_what_this_process_can_are_no_longer_asked():
    expected, order = alone()
    noted = []
    with processes(2) as executor:
        result = search(evaluate(mat.spec.RunSpec()), failing, campaign(), executor=executor, note=noted.append)
    (finding,) = result.findings
    assert finding.message == (
        "the search continued without workers: 3 runs failed in workers but not in the searching process: "
        "ModuleNotFoundError: no module named shop"
    )
    assert noted == order
    assert (result.counterexamples, result.certificate) == (expected.counterexamples, expected.certificate)


def test_what_fails_everywhere_fails_as_it_does_without_workers():
    expected = search(evaluate(mat.spec.RunSpec()), stopping, campaign())
    with processes(2) as executor:
        result = search(evaluate(mat.spec.RunSpec()), stopping, campaign(), executor=executor)
    assert result == expected
    assert result.certificate.reason.startswith("enough")
    assert result.findings == ()


def test_an_executor_that_was_shut_down_is_reported_and_not_needed():
    executor = processes(1)
    executor.shutdown()
    result = search(evaluate(mat.spec.RunSpec()), evaluate, campaign(), executor=executor)
    assert [item.code for item in result.findings] == ["workers-lost"]
    assert result.counterexamples == alone()[0].counterexamples


def test_an_interrupt_keeps_what_was_found():
    def interrupt(executions, cost, bound):
        if cost is not None:
            raise KeyboardInterrupt

    with processes(2) as executor:
        result = search(evaluate(mat.spec.RunSpec()), evaluate, campaign(), executor=executor, progress=interrupt)
    assert result.interrupted
    assert [item.cost for item in (*result.counterexamples, *result.unconfirmed)] == [4]
    assert not result.certificate.proven


def test_threads_are_refused_because_two_runs_cannot_share_a_process():
    with ThreadPoolExecutor(2) as executor, pytest.raises(SpecError) as caught:
        search(evaluate(mat.spec.RunSpec()), evaluate, campaign(), executor=executor)
    assert "ThreadPoolExecutor" in caught.value.what
    assert "clock" in caught.value.why
    assert "ProcessPoolExecutor" in caught.value.fix


class Here(Executor):
    """An executor that does everything at once, in the process that asks."""

    def submit(self, fn, /, *arguments, **named):
        future = Future()
        try:
            future.set_result(fn(*arguments, **named))
        except Exception as error:
            future.set_exception(error)
        return future


def test_any_executor_of_this_very_process_is_refused():
    with pytest.raises(SpecError, match="the process that searches"):
        search(evaluate(mat.spec.RunSpec()), evaluate, campaign(), executor=Here())


def test_what_cannot_be_pickled_is_refused_with_the_way_out():
    with processes(1) as executor, pytest.raises(SpecError) as caught:
        search(evaluate(mat.spec.RunSpec()), lambda spec: evaluate(spec), campaign(), executor=executor)
    assert "a module-level function" in caught.value.fix


# -- what is begun ------------------------------------------------------------------------------------------------------


class Waiting(Executor):
    """An executor that notes what it is asked for, and does it when it is told to."""

    _max_workers = 2

    def __init__(self):
        self.asked = []

    def submit(self, fn, /, *arguments, **named):
        future = Future()
        self.asked.append((future, arguments[1].schedule))
        return future

    def finish(self, index):
        future, schedule = self.asked[index]
        future.set_result(evaluate(mat.spec.RunSpec(schedule=schedule)))


class Kept:
    """A journal in memory."""

    def __init__(self):
        self.runs = []

    def recall(self, kind, schedule):
        return None

    def holds(self, kind, schedule):
        return any(item[:2] == (kind, schedule) for item in self.runs)

    def keep(self, kind, schedule, run):
        self.runs.append((kind, schedule, run))


def some_schedules():
    return [
        mat.spec.Schedule((mat.spec.perturbation("service.timeout", f"main/service:look#{nth}", cost=4),))
        for nth in range(1, 9)
    ]


def test_two_schedules_are_begun_for_each_worker_and_more_as_they_finish():
    executor = Waiting()
    executions = Executions(mat.spec.RunSpec(), evaluate, executor=executor)
    assert executions.lookahead == 4
    executions.begin(some_schedules())
    assert [schedule for _, schedule in executor.asked] == some_schedules()[:4]
    executor.finish(2)
    executions.begin(some_schedules())
    assert [schedule for _, schedule in executor.asked] == some_schedules()[:5]


def test_what_a_worker_finishes_is_kept_at_once_and_once():
    executor, journal = Waiting(), Kept()
    executions = Executions(mat.spec.RunSpec(), evaluate, executor=executor, journal=journal)
    first, second = some_schedules()[:2]
    executions.begin([first, second])
    executor.finish(1)
    assert [item[:2] for item in journal.runs] == [("explore", second)]
    executor.finish(0)
    run = executions.explore(first)
    executions.explore(second)
    assert [item[:2] for item in journal.runs] == [("explore", second), ("explore", first)]
    assert journal.runs[1][2] is run
    assert (executions.count, executions.recalled) == (2, 0)


def test_what_is_in_the_journal_is_not_begun():
    executor, journal = Waiting(), Kept()
    first, second = some_schedules()[:2]
    journal.keep("explore", first, None)
    Executions(mat.spec.RunSpec(), evaluate, executor=executor, journal=journal).begin([first, second])
    assert [schedule for _, schedule in executor.asked] == [second]


def test_what_was_begun_and_never_asked_for_is_given_up():
    executor = Waiting()
    executions = Executions(mat.spec.RunSpec(), evaluate, executor=executor)
    executions.begin(some_schedules())
    executions.close()
    assert all(future.cancelled() for future, _ in executor.asked)
    assert executions.count == 0


def test_a_begun_run_that_was_cancelled_is_executed_here():
    executor = Waiting()
    executions = Executions(mat.spec.RunSpec(), evaluate, executor=executor)
    (first, *_) = some_schedules()
    executions.begin([first])
    executor.asked[0][0].cancel()
    assert executions.explore(first).head == evaluate(mat.spec.RunSpec(schedule=first)).head
    assert executions.findings == ()


def test_workers_that_never_answer_cost_no_result_and_are_reported(monkeypatch):
    expected, order = alone()
    noted = []
    monkeypatch.setattr("mat_search.executions._FIRST_S", 0.001)
    result = search(evaluate(mat.spec.RunSpec()), evaluate, campaign(), executor=Waiting(), note=noted.append)
    (finding,) = result.findings
    assert finding.message == (
        "the search continued without workers: 3 runs in a row were not answered: "
        "TimeoutError: a worker did not answer within 0 s"
    )
    assert noted == order
    assert (result.counterexamples, result.certificate) == (expected.counterexamples, expected.certificate)


def test_nobody_is_waited_for_once_the_workers_were_given_up(monkeypatch):
    monkeypatch.setattr("mat_search.executions._FIRST_S", 0.001)
    executor = Waiting()
    executions = Executions(mat.spec.RunSpec(), evaluate, executor=executor)
    late, other = some_schedules()[:3], some_schedules()[3]
    executions.begin([*late, other])
    for schedule in late:
        executions.explore(schedule)
    assert [finding.code for finding in executions.findings] == ["workers-lost"]
    monkeypatch.setattr("mat_search.executions._FIRST_S", 3600.0)
    assert executions.explore(other).head == evaluate(mat.spec.RunSpec(schedule=other)).head
    assert executor.asked[3][0].cancelled()


def test_no_executor_means_that_nothing_is_begun():
    executions = Executions(mat.spec.RunSpec(), evaluate)
    assert executions.lookahead == 0
    executions.begin([NO_SCHEDULE])
    assert executions.count == 0
