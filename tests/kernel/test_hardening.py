"""Agents of every kind in virtual time: none hangs, none is marked without cause, and nothing of a run outlives it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import datetime
import functools
import gc
import logging
import multiprocessing.dummy
import os
import queue
import sched
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

import mat
from mat.adapters import program
from mat.core import limits
from mat.core.errors import SpecError

HOUR = 3600.0
real = {"monotonic": time.monotonic}  # held where no rebinding looks


@mat.tool
def touch(tag: str) -> str:
    return tag


def order(run: mat.run) -> list[str]:
    return [record.action.arguments["tag"] for record in run.trace if record.action.name == "touch"]


def findings(run: mat.run) -> set[str]:
    assert run.result is not None
    return {item.code for item in run.result.findings}


def elapsed_ms(run: mat.run) -> int:
    assert run.result is not None
    return run.result.elapsed_ms


def started(*bodies: Callable[[], Any], daemon: bool = False) -> list[threading.Thread]:
    threads = [threading.Thread(target=body, daemon=daemon) for body in bodies]
    for thread in threads:
        thread.start()
    return threads


def joined(*bodies: Callable[[], Any]) -> None:
    for thread in started(*bodies):
        thread.join()


def child(script: str, *, seconds: float = 60) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- polling ------------------------------------------------------------------------------------------------------------


def _until_event(done: threading.Event, _: threading.Thread) -> None:
    while not done.is_set():
        pass


def _until_dead(_: threading.Event, thread: threading.Thread) -> None:
    while thread.is_alive():
        pass


def _until_event_yielding(done: threading.Event, _: threading.Thread) -> None:
    while not done.is_set():
        time.sleep(0)


def _until_event_in_loop(done: threading.Event, _: threading.Thread) -> None:
    async def body() -> None:
        while not done.is_set():
            await asyncio.sleep(0)

    asyncio.run(body())


@pytest.mark.full
@pytest.mark.parametrize("poll", [_until_event, _until_dead, _until_event_yielding, _until_event_in_loop])
def test_who_polls_for_another_thread_lets_time_pass_and_the_run_stays_controlled(poll: Callable[..., None]) -> None:
    heads = set()
    for _ in range(2):
        with mat.run() as run:
            done = threading.Event()
            (thread,) = started(lambda done=done: (time.sleep(1), done.set()))  # type: ignore[misc]
            poll(done, thread)
            touch("seen")
            thread.join()
        assert 1000 <= run.trace[0].at_ms <= 1010
        assert findings(run) == {"busy-wait"}
        assert run.result is not None
        assert run.result.uncontrolled == ()
        heads.add(run.result.head)
    assert len(heads) == 1


@pytest.mark.full
@pytest.mark.parametrize(
    "read",
    [time.monotonic, time.time, lambda: datetime.datetime.now().timestamp(), time.perf_counter],
    ids=["monotonic", "time", "datetime", "perf_counter"],
)
def test_who_reads_the_clock_until_it_is_late_enough_gets_there(read: Callable[[], float]) -> None:
    with mat.run() as run:
        now = {"monotonic": time.monotonic, "perf_counter": time.perf_counter}.get(getattr(read, "__name__", ""), read)
        until = now() + 60
        while now() < until:
            pass
    assert 60_000 <= elapsed_ms(run) <= 60_100
    assert findings(run) == {"busy-wait"}


def test_a_loop_that_polls_next_to_a_sleeping_task_does_not_hang() -> None:
    async def body() -> None:
        slept = asyncio.create_task(asyncio.sleep(60))
        while not slept.done():
            await asyncio.sleep(0)

    with mat.run() as run:
        asyncio.run(body())
    assert elapsed_ms(run) >= 60_000
    assert findings(run) == {"busy-wait"}


@pytest.mark.full
def test_a_thread_that_spins_on_a_plain_flag_is_left_behind_after_a_bound_and_the_run_is_marked(monkeypatch: Any) -> None:
    monkeypatch.setattr(limits, "SPIN_S", 0.2)
    with mat.run() as run:
        done: list[int] = []
        (thread,) = started(lambda: (time.sleep(1), done.append(1)))
        while not done:
            pass
        thread.join()
    (finding,) = [item for item in run.result.findings if item.code == "order-not-controlled"]  # type: ignore[union-attr]
    assert "main computes at test_hardening.py" in finding.message


def test_many_looks_with_waits_in_between_are_no_busy_wait() -> None:
    with mat.run() as run:
        for _ in range(40):
            for _ in range(limits.POLLS // 20):
                time.monotonic()
            time.sleep(0.001)
    assert (elapsed_ms(run), findings(run)) == (40, set())


# -- clocks -------------------------------------------------------------------------------------------------------------


def test_every_form_of_every_clock_agrees_to_the_nanosecond() -> None:
    clocks: list[Callable[[], int]] = [lambda: time.time_ns(), lambda: time.monotonic_ns(), lambda: time.perf_counter_ns()]
    if hasattr(time, "clock_gettime_ns"):
        clocks += [lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC), lambda: time.clock_gettime_ns(time.CLOCK_REALTIME)]
    with mat.run():
        for seconds in (0.000000001, 0.1, 12345.678901234):
            before = [clock() for clock in clocks]
            time.sleep(seconds)
            passed = {clock() - start for clock, start in zip(clocks, before, strict=True)}
            assert len(passed) == 1
    assert abs(time.time() - datetime.datetime.now().timestamp()) < 1


def test_a_time_travel_of_the_agent_s_own_ends_with_the_run_even_where_it_was_left_open() -> None:
    import time_machine

    with mat.run():
        time_machine.travel(0.0, tick=False).start()
        assert time.time() == 0
    assert time.time() > 1_700_000_000
    with mat.run():
        assert time.time() == 1_767_225_600


def test_a_scheduler_of_the_standard_library_sleeps_in_run_time() -> None:
    with mat.run() as run:
        plan = sched.scheduler()
        plan.enter(50, 1, touch, ("late",))
        plan.enter(20, 1, touch, ("early",))
        plan.run()
    assert [(item.at_ms, item.action.arguments["tag"]) for item in run.trace[:2]] == [(20_000, "early"), (50_000, "late")]
    assert findings(run) == set()


# -- threads of all kinds -----------------------------------------------------------------------------------------------


def test_thread_pools_of_multiprocessing_take_turns() -> None:
    def job(tag: str) -> str:
        time.sleep(1)
        return touch(tag)

    with mat.run() as run, multiprocessing.dummy.Pool(2) as pool:
        assert pool.map(job, "abcd", chunksize=1) == list("abcd")
    assert (order(run), elapsed_ms(run), findings(run)) == (list("abcd"), 2000, set())


def test_threads_without_an_object_take_turns() -> None:
    import _thread

    def body() -> None:
        time.sleep(HOUR)
        touch("raw")
        done.release()

    with mat.run() as run:
        done = threading.Lock()
        done.acquire()
        _thread.start_new_thread(body, ())
        done.acquire()
    assert (order(run), elapsed_ms(run), findings(run)) == (["raw"], 3_600_000, set())


class Slow:
    @functools.cached_property
    def answer(self) -> str:
        time.sleep(1)
        return touch("made")


def test_a_cached_property_is_made_by_one_thread_while_others_wait() -> None:
    with mat.run() as run:
        slow = Slow()
        joined(lambda: slow.answer, lambda: slow.answer)
    assert findings(run) == set()


_handler = logging.StreamHandler(open(os.devnull, "w"))  # noqa: SIM115


def test_a_logging_handler_made_before_the_run_hands_over_while_it_waits() -> None:
    class Patient(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            time.sleep(1)
            return super().format(record)

    _handler.setFormatter(Patient())
    log = logging.getLogger("mat.tests.hardening")
    log.propagate = False
    log.addHandler(_handler)
    try:
        with mat.run() as run:
            joined(lambda: log.error("a"), lambda: log.error("b"))
    finally:
        log.removeHandler(_handler)
    assert (elapsed_ms(run), findings(run)) == (2000, set())


def test_finalizers_that_wake_others_in_the_midst_of_a_hand_over_break_nothing() -> None:
    threshold = gc.get_threshold()

    class Knot:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            came.put(1)

    def body() -> None:
        for _ in range(10):
            Knot()
            time.sleep(1)
        for _ in range(10):
            came.get()

    with mat.run() as run:
        came: queue.Queue[int] = queue.Queue()
        gc.set_threshold(1)
        try:
            joined(body, body, body)
        finally:
            gc.set_threshold(*threshold)
    assert (elapsed_ms(run), findings(run)) == (10_000, set())


@pytest.mark.full
def test_a_child_process_that_takes_long_is_no_deadlock_and_marks_nothing_where_others_only_wait() -> None:
    declared = program([sys.executable])
    with mat.run() as run:
        jobs: queue.Queue[int] = queue.Queue()
        (worker,) = started(jobs.get)
        subprocess.run([sys.executable, "-S", "-c", "import time; time.sleep(2.5)"], check=True, timeout=60)
        jobs.put(1)
        worker.join()
    del declared
    assert findings(run) == set()


def test_asyncio_waits_for_a_child_process_without_calling_that_a_deadlock() -> None:
    async def body() -> None:
        process = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", "")
        assert await process.wait() == 0

    declared = program([sys.executable])
    with mat.run() as run:
        asyncio.run(body())
    del declared
    assert run.result is not None
    assert run.result.termination == "implicit"
    assert findings(run) <= {"real-clock"}


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_that_forks_inside_a_run_has_the_turn_to_itself() -> None:
    said = child(
        """
        import os, threading, time, warnings
        import mat
        warnings.simplefilter("ignore")
        with mat.run():
            other = threading.Thread(target=time.sleep, args=(1,))
            other.start()
            pid = os.fork()
            if pid == 0:
                time.sleep(5)
                thread = threading.Thread(target=time.sleep, args=(1,))
                thread.start()
                thread.join()
                os._exit(7)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            other.join()
        """
    )
    assert said == "7\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_forked_while_another_thread_begins_a_run_can_begin_one() -> None:
    said = child(
        """
        import os, signal
        import mat
        from mat.kernel import install
        with install._entering:
            pid = os.fork()
            if pid == 0:
                signal.alarm(20)
                with mat.run():
                    os._exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """
    )
    assert said == "7\n"


# -- threads around the run ---------------------------------------------------------------------------------------------


def test_a_loop_that_runs_in_a_thread_of_the_module_answers_and_is_no_deadlock() -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def answer() -> str:
        return "yes"

    try:
        with mat.run() as run:
            touch(asyncio.run_coroutine_threadsafe(answer(), loop).result(timeout=30))
            touch(asyncio.run_coroutine_threadsafe(answer(), loop).result())
        assert (order(run), findings(run)) == (["yes", "yes"], set())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@pytest.mark.full
def test_a_server_thread_of_the_set_up_that_polls_its_queue_answers_before_the_time_out() -> None:
    asked: queue.Queue[int] = queue.Queue()
    answers: queue.Queue[int] = queue.Queue()

    def serve() -> None:
        while True:
            try:
                number = asked.get(timeout=0.02)
            except queue.Empty:
                continue
            if number < 0:
                return
            answers.put(number * 2)

    (server,) = started(serve)
    try:
        for _ in range(5):
            with mat.run() as run:
                asked.put(21)
                assert answers.get(timeout=30) == 42
                time.sleep(HOUR)
            assert (elapsed_ms(run), findings(run)) == (3_600_000, set())
        with mat.run() as run, pytest.raises(queue.Empty):
            answers.get(timeout=30)
        assert (elapsed_ms(run), findings(run)) == (30_000, {"foreign-threads"})
    finally:
        asked.put(-1)
        server.join(10)


def wall_clocks() -> tuple[float, ...]:
    return time.time(), time.time_ns() / 1e9, datetime.datetime.now().timestamp(), time.mktime(time.localtime())


@pytest.mark.parametrize(("module", "real"), [("distributed.batched", True), ("_pytest.runner", True), ("shop.server", False)])
def test_threads_next_to_the_run_see_its_wall_clock_but_for_those_that_run_the_test(module: str, real: bool) -> None:
    """What the loop of dask's client planned in the time of a run would be due a year too late."""
    look = FunctionType(wall_clocks.__code__, {"__name__": module, "time": time, "datetime": datetime})
    asked: queue.Queue[bool] = queue.Queue()
    said: queue.Queue[tuple[float, ...]] = queue.Queue()

    def looking() -> None:
        while asked.get():
            said.put(look())

    (looker,) = started(looking)
    try:
        before = time.time()
        with mat.run(), mat.run():
            asked.put(True)
            first, own = said.get(), look()
            time.sleep(HOUR)
            asked.put(True)
            second, later = said.get(), look()
        after = time.time()
        begun = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).timestamp()
        assert (set(own), set(later)) == ({begun}, {begun + HOUR})
        if real:
            assert all(before - 1.5 < each < after + 0.5 for each in (*first, *second))
        else:
            assert (first, second) == (own, later)
    finally:
        asked.put(False)
        looker.join(10)


def test_a_second_run_in_another_thread_is_refused_and_the_first_is_unharmed() -> None:
    refused: list[BaseException] = []
    entered, leave = threading.Event(), threading.Event()
    before = (time.sleep, time.monotonic, threading.Lock, queue.SimpleQueue)

    def second() -> None:
        entered.wait(10)
        try:
            with mat.run():
                pass
        except SpecError as error:
            refused.append(error)
        leave.set()

    (thread,) = started(second)
    with mat.run():
        entered.set()
        leave.wait()
        time.sleep(HOUR)
    thread.join(10)
    assert "a run is open in another thread" in str(refused[0])
    assert (time.sleep, time.monotonic, threading.Lock, queue.SimpleQueue) == before


def test_a_run_within_a_thread_of_a_run_nests() -> None:
    inner: list[mat.run] = []

    def body() -> None:
        with mat.run() as run:
            joined(lambda: (time.sleep(50), touch("inner")))
        inner.append(run)
        time.sleep(1)

    with mat.run() as outer:
        joined(body)
    assert (order(inner[0]), elapsed_ms(inner[0]), elapsed_ms(outer)) == (["inner"], 50_000, 1000)
    assert findings(outer) | findings(inner[0]) == set()


# -- the end ------------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_heartbeats_sleepers_and_stuck_threads_end_with_the_run_and_let_the_process_end() -> None:
    said = child(
        """
        import threading, time
        import mat

        def beat():
            while not stop.wait(5):
                pass

        def stuck(first, second):
            with first:
                barrier.wait()
                with second:
                    print("never")

        with mat.run() as run:
            stop, barrier = threading.Event(), threading.Barrier(2)
            for _ in range(2):
                threading.Thread(target=beat).start()
            time.sleep(20)
        with mat.run() as run:
            barrier, one, two = threading.Barrier(2), threading.Lock(), threading.Lock()
            threads = [threading.Thread(target=stuck, args=pair) for pair in ((one, two), (two, one))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        print(run.result.termination)
        """
    )
    assert said == "deadlock\n"


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise")
@pytest.mark.parametrize("waits", ["lock", "join", "sleep", "loop", "compute"])
def test_an_interrupt_ends_the_run_wherever_its_owner_waits_and_leaves_nothing_patched(waits: str) -> None:
    said = child(
        f"""
        import asyncio, os, signal, subprocess, sys, threading, time
        import mat
        from mat.adapters import program
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
        before = (time.sleep, time.monotonic, threading.Lock, threading.Thread.start)
        reading, writing = os.pipe()
        declared = program([sys.executable])
        sender = "import os, signal, time; time.sleep(0.7); os.kill(%d, signal.SIGINT)" % os.getpid()
        try:
            with mat.run():
                subprocess.Popen([sys.executable, "-S", "-c", sender])
                blocked = threading.Thread(target=os.read, args=(reading, 1), daemon=True)
                blocked.start()
                lock = threading.Lock()
                lock.acquire()
                if {waits!r} == "lock": lock.acquire()
                if {waits!r} == "join": blocked.join()
                if {waits!r} == "sleep": time.sleep(1e5)
                if {waits!r} == "loop": asyncio.run(asyncio.sleep(1e5))
                while True: pass
        except KeyboardInterrupt:
            print("interrupted", before == (time.sleep, time.monotonic, threading.Lock, threading.Thread.start))
        """
    )
    assert said == "interrupted True\n"


def test_an_agent_that_swallows_the_end_of_its_run_is_told_again_until_it_ends() -> None:
    def endless() -> None:
        while True:
            try:
                time.sleep(60)
            except BaseException:
                return

    with mat.run(horizon_ms=3_600_000) as run:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            try:
                pool.submit(endless).result()
            except BaseException:
                touch("swallowed")
    assert run.result is not None
    assert (run.result.termination, run.result.term) == ("horizon", False)


def test_an_event_loop_that_is_closed_in_tear_down_gets_its_executor_s_threads_to_end_at_once(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BLOCKED_S", 20.0)  # far more than a busy machine needs for the two tests
    pytester.makepyfile(
        """
        import asyncio
        import time
        import pytest
        import mat

        @mat.tool
        def touch(tag):
            return tag

        @pytest.fixture
        def runner():
            with asyncio.Runner() as runner:
                yield runner

        @pytest.mark.mat(contracts=[])
        def test_in_a_thread(mat_run, runner):
            runner.run(asyncio.to_thread(touch, "x"))

        @pytest.mark.mat(contracts=[])
        def test_that_leaves_a_job_asleep(mat_run, runner):
            async def body():
                asyncio.get_running_loop().run_in_executor(None, time.sleep, 10)
                await asyncio.sleep(1)
            runner.run(body())
        """
    )
    began = real["monotonic"]()
    pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider").assert_outcomes(passed=2)
    assert real["monotonic"]() - began < limits.BLOCKED_S
