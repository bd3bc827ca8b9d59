"""Virtual time, entropy, threads and network of a run."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import datetime
import importlib.util
import os
import random
import secrets
import socket
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

import mat
from mat.core.errors import Uncontrolled
from mat.kernel.entropy import Entropy
from mat.kernel.install import installed
from mat.kernel.world import World

HOUR = 3600.0
real_monotonic = {"now": time.monotonic}  # held where no rebinding looks


@mat.tool
def touch(tag: str) -> str:
    return tag


def order(run: mat.run) -> list[str]:
    return [record.action.arguments["tag"] for record in run.trace if record.action.name == "touch"]


def findings(run: mat.run) -> set[str]:
    assert run.result is not None
    return {item.code for item in run.result.findings}


def test_sleep_monotonic_and_the_wall_clock_agree_and_cost_no_time() -> None:
    began = real_monotonic["now"]()
    with mat.run() as run:
        before = (time.monotonic(), time.monotonic_ns(), time.time(), datetime.datetime.now())
        time.sleep(24 * HOUR)
        after = (time.monotonic(), time.monotonic_ns(), time.time(), datetime.datetime.now())
        touch("late")
    assert [b - a for a, b in zip(before, after, strict=True)] == [
        24 * HOUR, 24 * 3600 * 10**9, 24 * HOUR, datetime.timedelta(days=1),
    ]  # fmt: skip
    assert run.trace[0].at_ms == 86_400_000
    assert real_monotonic["now"]() - began < 5


def test_timeouts_gather_and_a_day_of_back_off_follow_virtual_time() -> None:
    async def worker(tag: str, seconds: float) -> str:
        await asyncio.sleep(seconds)
        touch(tag)
        return tag

    async def body() -> None:
        assert await asyncio.gather(worker("c", 3), worker("a", 1), worker("b", 2)) == ["c", "a", "b"]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(worker("never", 10), timeout=5)
        async with asyncio.timeout(2):
            await worker("d", 1)
        for attempt in range(17):
            await asyncio.sleep(2**attempt)

    with mat.run() as run:
        asyncio.run(body())
    assert order(run) == ["a", "b", "c", "d"]
    assert run.result is not None
    assert run.result.elapsed_ms == (3 + 5 + 1 + 2**17 - 1) * 1000
    assert findings(run) == set()


def test_a_sleep_bound_before_the_run_is_virtual_too(tmp_path: Path) -> None:
    path = tmp_path / "user_module.py"
    path.write_text("from time import sleep, monotonic\ndef nap(): sleep(3600); return monotonic()\n")
    spec = importlib.util.spec_from_file_location("mat_test_user_module", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mat_test_user_module"] = module
    try:
        spec.loader.exec_module(module)
        with mat.run() as run:
            start = time.monotonic()
            assert module.nap() - start == HOUR
        assert "real-sleep" not in findings(run)
        assert module.monotonic() == pytest.approx(real_monotonic["now"](), abs=5)
    finally:
        del sys.modules["mat_test_user_module"]


@pytest.mark.skipif(sys.version_info < (3, 13), reason="CPython reports sleeps as audit events from 3.13 on")
def test_a_real_sleep_inside_a_run_is_reported() -> None:
    from mat.kernel.clock import real_sleep

    with mat.run() as run:
        real_sleep(0)
    assert "real-sleep" in findings(run)


@pytest.mark.parametrize("way", ["to_thread", "executor", "anyio"])
def test_jobs_of_a_loop_begin_in_the_order_submitted_one_runs_at_a_time_and_sleeps_overlap(way: str) -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="none")
    alive: list[str] = []

    def job(tag: str) -> str:
        assert alive == []
        alive.append(tag)
        touch(f"{tag}-{name.get()}")
        alive.remove(tag)
        time.sleep(HOUR)
        touch(tag)
        return tag

    async def submit(tag: str) -> str:
        name.set(f"of {tag}")
        if way == "to_thread":
            return await asyncio.to_thread(job, tag)
        if way == "anyio":
            import anyio.to_thread

            return await anyio.to_thread.run_sync(job, tag)
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(None, context.run, job, tag)

    async def body() -> None:
        assert await asyncio.gather(*(submit(tag) for tag in "abc")) == ["a", "b", "c"]

    with mat.run() as run:
        asyncio.run(body())
    assert order(run) == ["a-of a", "b-of b", "c-of c", "a", "b", "c"]
    assert [record.at_ms for record in run.trace if record.action.name == "touch"] == [0, 0, 0, *[3_600_000] * 3]
    assert findings(run) == set()


def test_jobs_submitted_from_plain_code_run_in_order_with_the_submitters_agent() -> None:
    def job(tag: str) -> str:
        time.sleep(1)
        return touch(tag)

    with mat.run() as run:
        with mat.agent("planner"), concurrent.futures.ThreadPoolExecutor(3) as pool:
            assert list(pool.map(job, "abcd")) == list("abcd")
    assert order(run) == list("abcd")
    assert {record.agent for record in run.trace[:4]} == {"planner"}
    assert findings(run) == set()


def test_a_cancelled_job_that_never_started_does_not_hold_the_loop() -> None:
    async def body() -> None:
        loop = asyncio.get_running_loop()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            first = loop.run_in_executor(pool, touch, "first")
            second = loop.run_in_executor(pool, touch, "second")
            second.cancel()
            assert await first == "first"
            await asyncio.sleep(HOUR)

    with mat.run() as run:
        asyncio.run(body())
    assert order(run) == ["first"]


def test_an_executor_that_refuses_a_job_leaves_nothing_running() -> None:
    pool = concurrent.futures.ThreadPoolExecutor(1)
    pool.shutdown()
    with mat.run():
        with pytest.raises(RuntimeError, match="after shutdown"):
            pool.submit(touch, "x")
        asyncio.run(asyncio.sleep(HOUR))


def test_a_job_that_waits_for_its_loop_gets_its_answer_in_virtual_time() -> None:
    async def later() -> str:
        await asyncio.sleep(HOUR)
        return "answer"

    async def body() -> str:
        loop = asyncio.get_running_loop()
        return await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(later(), loop).result(2 * HOUR))

    with mat.run() as run:
        assert asyncio.run(body()) == "answer"
    assert run.result is not None
    assert (run.result.elapsed_ms, findings(run)) == (3_600_000, set())


def test_a_deadlock_ends_the_run_and_an_agent_that_swallows_it_changes_nothing() -> None:
    async def stuck() -> None:
        await asyncio.get_running_loop().create_future()

    with mat.run() as run:
        asyncio.run(stuck())
    assert run.result is not None
    assert (run.result.termination, run.result.term, run.result.success) == ("deadlock", False, False)
    with mat.run() as run:
        try:  # noqa: SIM105
            asyncio.run(stuck())
        except BaseException:
            pass
    assert run.result is not None
    assert run.result.termination == "deadlock"


def draw() -> list[Any]:
    return [
        random.random(), random.Random().random(), random.SystemRandom().random(), uuid.uuid4(), uuid.uuid1(),
        secrets.token_hex(8), os.urandom(8),
    ]  # fmt: skip


def test_randomness_and_ids_are_a_function_of_the_seed() -> None:
    uuid.uuid1()
    found = []
    for seed in (1, 1, 2):
        with mat.run(seed=seed):
            found.append(draw())
    assert found[0] == found[1]
    assert all(
        one != other
        for one, other in zip(found[0], found[2], strict=True)
        if not isinstance(one, uuid.UUID) or one.version == 4
    )
    assert draw() != draw()


def test_nothing_of_the_world_remains_after_a_run_even_when_it_fails() -> None:
    def installed() -> list[Any]:
        return [
            time.sleep, time.monotonic, time.monotonic_ns, os.urandom, random._urandom, random.Random.seed, uuid._node,  # type: ignore[attr-defined]
            concurrent.futures.ThreadPoolExecutor.submit, threading.Thread.start, asyncio.new_event_loop,
            asyncio.events.new_event_loop, random.getstate(), getattr(uuid, "_generate_time_safe", None),
        ]  # fmt: skip

    random.seed(5)
    before = installed()
    with pytest.raises(ZeroDivisionError), mat.run():  # noqa: PT012
        assert time.sleep is not before[0]
        random.random()
        time.sleep(1 / 0)
    assert installed() == before
    assert abs(time.time() - datetime.datetime.now().timestamp()) < 1


def test_worlds_nest_and_the_inner_one_counts() -> None:
    with installed(World(1)) as outer:
        time.sleep(10)
        with installed(World(2)) as inner:
            time.sleep(3)
            assert inner.clock.now_ns() == 3 * 10**9
        time.sleep(1)
        assert outer.clock.now_ns() == 11 * 10**9
        assert time.time() == 1_767_225_600 + 11


def test_a_real_connection_is_refused_with_its_address_and_noted() -> None:
    with mat.run() as run:
        with socket.socket() as client, pytest.raises(Uncontrolled, match=r"192\.0\.2\.1:80"):
            client.connect(("192.0.2.1", 80))
        with pytest.raises(Uncontrolled, match=r"service\.invalid:443"):
            socket.create_connection(("service.invalid", 443))
    assert "network-refused" in findings(run)


def test_an_endless_sleep_ends_at_the_horizon() -> None:
    async def forever() -> None:
        while True:
            await asyncio.sleep(60)

    for body in (lambda: asyncio.run(forever()), lambda: [time.sleep(60) for _ in range(10**6)]):
        with mat.run(horizon_ms=3_600_000) as run:
            body()
        assert run.result is not None
        assert (run.result.termination, run.result.term) == ("horizon", False)


def test_a_new_stream_moves_no_other() -> None:
    alone = Entropy(7).stream("search").random()
    crowd = Entropy(7)
    for name in ("a", "b", "faults"):
        crowd.stream(name).random()
    assert crowd.stream("search").random() == alone
    assert Entropy(7).stream("a").random() != Entropy(7).stream("b").random() != Entropy("7").stream("b").random()


def test_anyio_runs_in_virtual_time() -> None:
    anyio = pytest.importorskip("anyio")

    async def body() -> None:
        with anyio.move_on_after(5) as scope:
            await anyio.sleep(HOUR)
        assert scope.cancelled_caught
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, HOUR)

    with mat.run() as run:
        anyio.run(body)
    assert run.result is not None
    assert run.result.elapsed_ms == 3_605_000
