"""Threads of a run take turns: their order, their time-outs and their deadlocks are a function of the spec."""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib.util
import os
import queue
import subprocess
import sys
import textwrap
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mat
from mat.adapters import program
from mat.core.errors import SpecError
from mat.kernel.jobs import ExecutorJobs
from mat.kernel.threads import SimulatedThread

HOUR = 3600.0
real_monotonic = {"now": time.monotonic}  # held where no rebinding looks


@mat.tool
def touch(tag: str) -> str:
    return tag


@mat.tool(name="touch")
async def reach(tag: str) -> str:
    return tag


def order(run: mat.run) -> list[str]:
    return [record.action.arguments["tag"] for record in run.trace if record.action.name == "touch"]


def findings(run: mat.run) -> set[str]:
    assert run.result is not None
    return {item.code for item in run.result.findings}


def in_threads(*bodies: Callable[[], Any], names: str = "abcdefgh") -> list[threading.Thread]:
    threads = [threading.Thread(target=body, name=name) for body, name in zip(bodies, names, strict=False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return threads


def test_plain_threads_run_one_at_a_time_in_the_order_started_and_their_sleeps_overlap() -> None:
    def body(tag: str, seconds: float) -> Callable[[], None]:
        def run() -> None:
            touch(f"{tag}1")
            time.sleep(seconds)
            touch(f"{tag}2")

        return run

    with mat.run() as run:
        in_threads(body("a", 3), body("b", 1), body("c", 2))
        assert time.monotonic() - 1_000_000.0 == 3
    assert order(run) == ["a1", "b1", "c1", "b2", "c2", "a2"]
    assert [record.at_ms for record in run.trace[3:6]] == [1000, 2000, 3000]
    assert findings(run) == set()


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock], ids=["Lock", "RLock"])
def test_who_waits_for_a_lock_hands_over_and_gets_it_in_the_order_asked(make: Callable[[], Any]) -> None:
    def body(tag: str) -> Callable[[], None]:
        def run() -> None:
            with lock:
                touch(f"{tag} in")
                time.sleep(10)
                touch(f"{tag} out")

        return run

    with mat.run() as run:
        lock = threading.Lock() if make is threading.Lock else threading.RLock()
        in_threads(body("a"), body("b"), body("c"))
    assert order(run) == ["a in", "a out", "b in", "b out", "c in", "c out"]
    assert run.result is not None
    assert (run.result.elapsed_ms, findings(run)) == (30_000, set())


_module_lock = threading.Lock()
_module_rlock = threading.RLock()


class Store:
    guard = threading.Lock()

    def __init__(self) -> None:
        self.lock = threading.RLock()


_store = Store()


@pytest.mark.parametrize("which", ["lock", "rlock", "class", "instance"])
def test_locks_that_modules_classes_and_singletons_made_before_the_run_hand_over_too(which: str) -> None:
    def body() -> None:
        lock = {"lock": _module_lock, "rlock": _module_rlock, "class": Store.guard, "instance": _store.lock}[which]
        with lock:
            touch("in")
            time.sleep(10)

    with mat.run() as run:
        in_threads(body, body)
    assert order(run) == ["in", "in"]
    assert run.trace[1].at_ms == 10_000
    assert findings(run) == set()
    with _module_lock, _module_rlock, _module_rlock, Store.guard, _store.lock:
        assert _module_lock.locked()


def test_a_lock_s_time_out_is_in_run_time_and_leaves_the_lock_where_it_was() -> None:
    with mat.run() as run:
        lock = threading.Lock()
        lock.acquire()
        before = time.monotonic()
        assert not lock.acquire(timeout=30)
        assert time.monotonic() - before == 30
        assert not lock.acquire(blocking=False)
        assert lock.locked()
        threading.Timer(5, lock.release).start()
        assert lock.acquire(timeout=30)
        assert time.monotonic() - before == 35
        with pytest.raises(ValueError, match="non-blocking"):
            lock.acquire(False, 1)
    assert findings(run) == set()


def test_conditions_events_semaphores_barriers_and_queues_hand_over() -> None:
    got: list[Any] = []

    with mat.run() as run:
        condition, event, semaphore = threading.Condition(), threading.Event(), threading.Semaphore(1)
        barrier, jobs = threading.Barrier(2), queue.Queue[int](maxsize=1)

        def producer() -> None:
            for number in range(3):
                time.sleep(1)
                jobs.put(number)
            with condition:
                got.append("notified")
                condition.notify_all()
            barrier.wait()
            event.set()

        def consumer() -> None:
            with condition:
                got.extend(jobs.get(timeout=5) for _ in range(3))
                assert condition.wait_for(lambda: "notified" in got, timeout=60)
            barrier.wait(timeout=60)
            with semaphore:
                got.append(event.wait(timeout=60))
            with pytest.raises(queue.Empty):
                jobs.get(timeout=7)

        in_threads(producer, consumer)
        assert time.monotonic() - 1_000_000.0 == 10
    assert got == [0, 1, 2, "notified", True]
    assert findings(run) == set()


def test_futures_and_executors_wait_in_run_time_and_jobs_inherit_the_agent() -> None:
    def job(tag: str, seconds: float) -> str:
        time.sleep(seconds)
        return touch(tag)

    with mat.run() as run:
        with mat.agent("planner"), concurrent.futures.ThreadPoolExecutor(2) as pool:
            slow, fast = pool.submit(job, "slow", 100), pool.submit(job, "fast", 1)
            with pytest.raises(TimeoutError):
                slow.result(timeout=50)
            assert [done.result() for done in concurrent.futures.as_completed([slow, fast])] == ["fast", "slow"]
            assert list(pool.map(job, "abc", [3, 2, 1])) == ["a", "b", "c"]
    assert order(run) == ["fast", "slow", "b", "a", "c"]
    assert {record.agent for record in run.trace if record.action.name == "touch"} == {"planner"}
    assert findings(run) == set()


_pool = concurrent.futures.ThreadPoolExecutor(2)


def test_an_executor_made_before_the_run_is_a_guest_and_its_jobs_keep_their_order_run_after_run() -> None:
    def job(tag: str) -> str:
        touch(f"{tag}1")
        time.sleep(10)
        touch(f"{tag}2")
        return tag

    heads = set()
    for _ in range(5):
        with mat.run() as run:
            assert list(_pool.map(job, "abcd")) == ["a", "b", "c", "d"]
            assert asyncio.run(_in_pool()) == ["x", "y"]
        assert order(run) == ["a1", "b1", "a2", "b2", "c1", "d1", "c2", "d2", "x", "y"]
        assert findings(run) == set()
        assert run.result is not None
        heads.add(run.result.head)
    assert len(heads) == 1
    assert _pool.submit(touch, "outside").result(5) == "outside"


async def _in_pool() -> list[str]:
    loop = asyncio.get_running_loop()
    return list(await asyncio.gather(*(loop.run_in_executor(_pool, touch, tag) for tag in "xy")))


_lazy: list[concurrent.futures.ThreadPoolExecutor] = []


def test_an_executor_that_one_run_left_open_serves_the_next_run_and_the_time_after() -> None:
    heads = set()
    for _ in range(3):
        with mat.run() as run:
            if not _lazy:
                _lazy.append(concurrent.futures.ThreadPoolExecutor(2))
            assert list(_lazy[0].map(touch, "abc")) == ["a", "b", "c"]
        assert findings(run) == set()
        assert run.result is not None
        heads.add(run.result.head)
    assert len(heads) == 1
    assert _lazy[0].submit(touch, "after").result(5) == "after"
    _lazy[0].shutdown()


def test_a_cancelled_job_never_runs_and_holds_nobody() -> None:
    with mat.run() as run:
        first, second, third = (_pool.submit(time.sleep, 10) for _ in range(3))
        assert third.cancel()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            slow, never = pool.submit(time.sleep, 10), pool.submit(touch, "never")
            assert never.cancel()
            slow.result()
        first.result()
        second.result()
        time.sleep(1)
    assert order(run) == []
    assert findings(run) == set()


def test_a_job_that_is_withdrawn_before_it_began_frees_no_thread() -> None:
    jobs = ExecutorJobs(_pool)
    first, second, third, fourth = (SimulatedThread(f"job {number}", number) for number in range(4))
    assert [jobs.submit(job) for job in (first, second, third, fourth)] == [[first], [second], [], []]
    assert (jobs.withdraw(first), jobs.withdraw(third), jobs.active) == (False, True, True)
    assert (jobs.end(), jobs.end(), jobs.active) == ([fourth], [], True)
    assert (jobs.end(), jobs.active) == ([], False)


def test_the_job_behind_a_cancelled_one_begins_when_a_thread_is_free() -> None:
    with mat.run() as run:
        sleeping = [_pool.submit(time.sleep, seconds) for seconds in (10, 20)]
        cancelled, last = _pool.submit(touch, "never"), _pool.submit(touch, "last")
        assert cancelled.cancel()
        last.result()
        assert ([job.done() for job in sleeping], run.trace[-1].at_ms) == ([True, False], 10_000)
        sleeping[1].result()
    assert (order(run), findings(run)) == (["last"], set())


def test_threads_and_an_event_loop_share_one_time() -> None:
    async def body() -> None:
        def worker() -> None:
            for _ in range(3):
                time.sleep(2)
                touch("thread")

        thread = threading.Thread(target=worker)
        thread.start()
        for _ in range(3):
            await asyncio.sleep(1.5)
            touch("task")
        await asyncio.to_thread(thread.join)

    with mat.run() as run:
        asyncio.run(body())
    assert [(record.at_ms, record.action.arguments["tag"]) for record in run.trace if record.action.name == "touch"] == [
        (1500, "task"), (2000, "thread"), (3000, "task"), (4000, "thread"), (4500, "task"), (6000, "thread"),
    ]  # fmt: skip
    assert findings(run) == set()


def test_two_threads_with_an_event_loop_each_take_turns() -> None:
    def worker(tag: str, seconds: float) -> None:
        async def body() -> None:
            for _ in range(2):
                await asyncio.sleep(seconds)
                touch(tag)

        asyncio.run(body())

    with mat.run() as run:
        in_threads(lambda: worker("a", 2), lambda: worker("b", 3))
    assert [(record.at_ms, record.action.arguments["tag"]) for record in run.trace[:4]] == [
        (2000, "a"), (3000, "b"), (4000, "a"), (6000, "b"),
    ]  # fmt: skip
    assert findings(run) == set()


def test_a_deadlock_of_threads_ends_the_run_and_names_who_waits_where() -> None:
    def body(first: Any, second: Any) -> Callable[[], None]:
        def run() -> None:
            with first:
                time.sleep(1)
                with second:
                    touch("never")

        return run

    with mat.run() as run:
        one, two = threading.Lock(), threading.Lock()
        in_threads(body(one, two), body(two, one), names="xy")
    assert run.result is not None
    assert (run.result.termination, run.result.term) == ("deadlock", False)
    assert order(run) == []
    (said,) = [item.message for item in run.result.findings if item.code == "deadlock"]
    for part in ("main waits at test_threads.py", "x waits at test_threads.py", "y waits at test_threads.py", " in run"):
        assert part in said


def test_a_deadlock_of_tasks_names_the_tasks() -> None:
    async def stuck(event: asyncio.Event) -> None:
        await event.wait()

    async def body() -> None:
        event = asyncio.Event()
        await asyncio.gather(stuck(event), stuck(event))

    with mat.run() as run:
        asyncio.run(body())
    assert run.result is not None
    assert run.result.termination == "deadlock"
    (said,) = [item.message for item in run.result.findings if item.code == "deadlock"]
    assert "Task-2 waits at test_threads.py" in said
    assert "Task-3 waits at test_threads.py" in said


def test_a_thread_that_works_on_without_end_stops_at_the_horizon_and_dies_silently() -> None:
    def endless() -> None:
        while True:
            time.sleep(60)
            touch("again")

    with mat.run(horizon=50) as run:
        in_threads(endless)
    assert run.result is not None
    assert (run.result.termination, len(order(run))) == ("horizon", 50)
    with mat.run(horizon_ms=600_000) as run:
        in_threads(endless)
    assert run.result is not None
    assert (run.result.termination, len(order(run))) == ("horizon", 10)


def test_a_thread_that_nobody_joins_gets_on_as_far_as_it_can_and_ends_with_the_run() -> None:
    def background() -> None:
        touch("began")
        try:
            time.sleep(5)
            touch("never")
        finally:
            ended.set()

    ended = threading.Event()
    with mat.run() as run:
        thread = threading.Thread(target=background)
        thread.start()
    assert order(run) == ["began"]
    assert ended.wait(5)
    thread.join(5)
    assert not thread.is_alive()


def test_names_of_threads_and_pools_and_tasks_do_not_depend_on_what_ran_before() -> None:
    def named() -> list[str]:
        with mat.run() as run:
            in_threads(lambda: touch(threading.current_thread().name), names="")
            thread = threading.Thread(target=lambda: touch(threading.current_thread().name))
            thread.start()
            thread.join()
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                pool.submit(lambda: touch(threading.current_thread().name)).result()

            async def body() -> None:
                task = asyncio.create_task(asyncio.sleep(0))
                touch(task.get_name())
                await task

            asyncio.run(body())
        return order(run)

    assert named() == named()


@pytest.mark.full
def test_a_thread_blocked_where_nothing_hands_over_is_left_behind_and_the_run_is_marked() -> None:
    reading, writing = os.pipe()
    try:

        def blocked() -> None:
            touch(os.read(reading, 1).decode())

        def other() -> None:
            time.sleep(HOUR)
            os.write(writing, b"x")

        with mat.run() as run:
            in_threads(blocked, other)
    finally:
        os.close(reading)
        os.close(writing)
    assert order(run) == ["x"]
    assert run.result is not None
    (finding,) = [item for item in run.result.findings if item.code == "order-not-controlled"]
    assert "a is blocked at test_threads.py" in finding.message


@pytest.mark.full
def test_one_that_computes_for_long_is_not_taken_for_blocked() -> None:
    def busy() -> None:
        until = real_monotonic["now"]() + 2.5
        while real_monotonic["now"]() < until:
            pass
        touch("busy")

    with mat.run() as run:
        in_threads(busy, lambda: touch("other"))
    assert order(run) == ["busy", "other"]
    assert findings(run) == set()


def test_deadlines_measured_by_any_clock_agree_with_sleeps() -> None:
    with mat.run():
        readers = [time.monotonic, time.perf_counter, time.time, lambda: time.perf_counter_ns() / 1e9]
        before = [read() for read in readers]
        time.sleep(90)
        assert [round(read() - start, 6) for read, start in zip(readers, before, strict=True)] == [90] * 4


def test_a_day_of_back_off_by_tenacity_and_stamina_costs_no_time() -> None:
    import stamina
    import tenacity

    calls: list[float] = []

    def failing() -> str:
        calls.append(time.monotonic())
        if len(calls) % 4:
            raise ConnectionError("down")
        return touch("up")

    async def failing_async() -> str:
        return failing()

    began = real_monotonic["now"]()
    with mat.run() as run:
        wait = tenacity.wait_exponential(multiplier=HOUR, max=12 * HOUR)
        assert tenacity.Retrying(wait=wait, stop=tenacity.stop_after_attempt(9))(failing) == "up"
        assert asyncio.run(tenacity.AsyncRetrying(wait=wait)(failing_async)) == "up"
        again = stamina.retry(
            on=ConnectionError, attempts=9, timeout=None, wait_initial=HOUR, wait_max=9 * HOUR, wait_jitter=60
        )
        assert again(failing)() == "up"
        assert asyncio.run(again(failing_async)()) == "up"
        with pytest.raises(tenacity.RetryError):
            tenacity.Retrying(wait=tenacity.wait_fixed(50), stop=tenacity.stop_after_delay(90))(lambda: 1 / 0)
    assert real_monotonic["now"]() - began < 5
    assert run.result is not None
    assert run.result.elapsed_ms > 24 * 3_600_000
    assert findings(run) == set()
    assert calls[1] - calls[0] == HOUR


def test_a_library_s_own_names_of_the_clock_are_virtual_too(tmp_path: Path) -> None:
    path = tmp_path / "site-packages" / "somelibrary.py"
    path.parent.mkdir()
    path.write_text("from time import sleep, perf_counter\nfrom threading import Lock\n")
    module = types.ModuleType("somelibrary")
    module.__file__ = str(path)
    exec(path.read_text(), vars(module))
    sys.modules["somelibrary"] = module
    try:
        with mat.run():
            before = module.perf_counter()
            module.sleep(60)
            assert module.perf_counter() - before == 60
            assert type(module.Lock()).__module__ == "mat.kernel.locks"
        assert type(module.Lock()) is type(threading.Lock())
    finally:
        del sys.modules["somelibrary"]


def test_a_runner_with_a_loop_of_a_class_of_its_own_keeps_run_time() -> None:
    class Foreign(asyncio.SelectorEventLoop):
        pass

    with mat.run() as run, asyncio.Runner(loop_factory=Foreign) as runner:
        runner.run(asyncio.sleep(HOUR))
    assert run.result is not None
    assert run.result.elapsed_ms == 3_600_000
    assert findings(run) == set()


@pytest.mark.skipif(importlib.util.find_spec("uvloop") is None, reason="uvloop is not installed")
def test_uvloop_is_replaced_and_the_run_says_so() -> None:
    import uvloop

    async def body() -> None:
        await asyncio.sleep(HOUR)
        await reach("x")

    with mat.run() as run:
        uvloop.run(body())
    assert (order(run), run.trace[0].at_ms, findings(run)) == (["x"], 3_600_000, {"loop-replaced"})


@pytest.mark.skipif(importlib.util.find_spec("trio") is None, reason="trio is not installed")
def test_trio_is_refused_in_virtual_time_and_runs_in_real_time() -> None:
    import trio

    with pytest.raises(SpecError, match="trio cannot run in virtual time"), mat.run():
        trio.run(trio.sleep, HOUR)
    with mat.run(clock="real") as run:
        trio.run(reach, "x")
    assert order(run) == ["x"]

    async def around() -> None:
        with mat.run():
            raise AssertionError

    with pytest.raises(SpecError, match="trio cannot run in virtual time"):
        trio.run(around)


def test_a_run_inside_a_running_loop_is_controlled() -> None:
    async def body() -> mat.run:
        with mat.run() as run:
            await reach("x")
        return run

    assert findings(asyncio.run(body())) == set()


def test_a_run_in_real_time_works_and_says_that_it_proves_nothing() -> None:
    with mat.run(clock="real") as run:
        before = real_monotonic["now"]()
        in_threads(lambda: time.sleep(0.05), lambda: touch("x"))
        assert real_monotonic["now"]() - before >= 0.05
    assert order(run) == ["x"]
    assert run.result is not None
    assert "real-clock" in {item.code for item in run.result.uncontrolled}


def test_a_child_process_is_waited_for_in_real_time() -> None:
    declared = program([sys.executable])
    with mat.run():
        done = subprocess.run([sys.executable, "-c", "print('hello')"], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout == "hello\n"
        assert time.monotonic() == 1_000_000.0
    del declared


SCRIPT = """
    import asyncio, concurrent.futures, queue, random, threading, time
    import mat

    @mat.tool
    def touch(tag):
        time.sleep(random.random())
        return tag

    @mat.tool
    async def reach(tag):
        await asyncio.sleep(random.random())
        return tag

    def worker(name, jobs):
        while (job := jobs.get()) is not None:
            touch(f"{name}{job}")

    async def team():
        names = {"ann", "bob", "cleo"}
        await asyncio.gather(*(reach(name) for name in sorted(names)), asyncio.to_thread(touch, "thread"))

    with mat.run(seed=7) as run:
        jobs = queue.Queue()
        threads = [threading.Thread(target=worker, args=(name, jobs)) for name in "abc"]
        for thread in threads:
            thread.start()
        for job in range(12):
            jobs.put(job)
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            list(pool.map(touch, "xyz"))
        asyncio.run(team())
        for _ in threads:
            jobs.put(None)
        for thread in threads:
            thread.join()
    print(run.result.head, len(run.trace), sorted(item.code for item in run.result.findings))
"""


@pytest.mark.parametrize("batches", [pytest.param(1, marks=pytest.mark.full), pytest.param(5, marks=pytest.mark.nightly)])
def test_one_run_with_threads_pools_and_gather_has_one_head_in_every_process(batches: int) -> None:
    script = textwrap.dedent(SCRIPT)
    said = []
    for batch in range(batches):
        running = [
            subprocess.Popen(
                [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True,
                env={**os.environ, "PYTHONHASHSEED": str(4 * batch + number)},
            )
            for number in range(4)
        ]  # fmt: skip
        said += [process.communicate(timeout=120)[0] for process in running]
    assert len(said) == 4 * batches
    assert len(set(said)) == 1
    assert said[0].endswith(" 20 []\n")
