"""Loops of every make run in virtual time, and are on real time again after the run."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
    import asyncio, faulthandler, json, selectors, sys, threading, time
    import mat
    from mat.kernel.loop import VirtualSelector

    HOUR = 3600
    EARLY = asyncio.new_event_loop()
    RUNNER = asyncio.Runner()
    RUNNER.get_loop()

    @mat.tool
    async def touch(tag):
        return tag

    @mat.tool
    def touch_here(tag):
        return tag

    async def agent():
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(HOUR)
        try:
            await asyncio.wait_for(asyncio.Event().wait(), HOUR)
        except TimeoutError:
            await touch("wait_for")
        try:
            async with asyncio.timeout(HOUR):
                await loop.create_future()
        except TimeoutError:
            await touch("timeout")
        queue = asyncio.Queue()
        loop.call_later(HOUR, queue.put_nowait, "call_later")
        loop.call_at(loop.time() + 2 * HOUR, queue.put_nowait, "call_at")
        await touch(await queue.get())
        await touch(await queue.get())
        await asyncio.to_thread(time.sleep, HOUR)
        await loop.run_in_executor(None, time.sleep, HOUR)
        await touch(loop.time() - began)

    def in_run(start, wrong=None):
        with mat.run() as run:
            start()
        return run

    def default_policy():
        return in_run(lambda: asyncio.get_event_loop_policy().new_event_loop().run_until_complete(agent()))

    def new_event_loop():
        return in_run(lambda: asyncio.new_event_loop().run_until_complete(agent()))

    def selector_event_loop():
        return in_run(lambda: asyncio.SelectorEventLoop().run_until_complete(agent()))

    def other_selector():
        return in_run(lambda: asyncio.SelectorEventLoop(selectors.PollSelector()).run_until_complete(agent()))

    def runner():
        def start():
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(agent())
        return in_run(start)

    class Own(asyncio.SelectorEventLoop):
        def time(self):
            return 1e9 + time.time()

    def subclass_with_a_clock():
        return in_run(lambda: Own().run_until_complete(agent()))

    def made_before():
        return in_run(lambda: EARLY.run_until_complete(agent()))

    def runner_of_before():
        return in_run(lambda: RUNNER.run(agent()))

    def running_around():
        async def body():
            with mat.run() as run:
                await agent()
            return run
        return EARLY.run_until_complete(body())

    def in_a_thread():
        def start():
            thread = threading.Thread(target=lambda: EARLY.run_until_complete(agent()))
            thread.start()
            thread.join()
        return in_run(start)

    def run_for_ever():
        def start():
            loop = asyncio.SelectorEventLoop()
            thread = threading.Thread(target=loop.run_forever)
            thread.start()
            asyncio.run_coroutine_threadsafe(agent(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
        return in_run(start)

    def after_a_failed_run():
        try:
            with mat.run():
                EARLY.run_until_complete(asyncio.sleep(HOUR))
                EARLY.call_later(1, list)
                raise ZeroDivisionError
        except ZeroDivisionError:
            real(EARLY)
        return made_before()

    def real(loop):
        before = time.monotonic()
        async def wait():
            await asyncio.sleep(0.01)
            return asyncio.current_task()
        task = loop.run_until_complete(wait())
        assert 0.01 <= time.monotonic() - before < 60
        assert abs(loop.time() - time.monotonic()) < 60
        assert type(task) is asyncio.Task
        assert not isinstance(loop._selector, VirtualSelector)
        assert not {"time", "_write_to_self", "mat_run_time"} & set(vars(loop))

    def watched(make):
        faulthandler.dump_traceback_later(20, exit=True)
        run = make()
        real(EARLY)
        real(RUNNER.get_loop())
        faulthandler.cancel_dump_traceback_later()
        tags = [record.action.arguments["tag"] for record in run.trace if record.action.name == "touch"]
        return [tags, run.result.elapsed_ms, sorted(item.code for item in run.result.findings), run.result.head]

    for name in sys.argv[1:]:
        print(json.dumps([name, *watched(globals()[name])]), flush=True)
"""

MAKES = [
    "default_policy",
    "new_event_loop",
    "selector_event_loop",
    "other_selector",
    "runner",
    "subclass_with_a_clock",
    "made_before",
    "runner_of_before",
    "running_around",
    "in_a_thread",
    "run_for_ever",
    "after_a_failed_run",
]


def in_process(script: str, *arguments: str, seed: str = "0") -> str:
    """What a script prints in a process of its own, which ends if it hangs."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_loops_of_every_make_keep_run_time_and_are_on_real_time_afterwards() -> None:
    told = {name: rest for name, *rest in map(json.loads, in_process(SCRIPT, *MAKES).splitlines())}
    hours = [["wait_for", "timeout", "call_later", "call_at", 7 * 3600.0], 7 * 3_600_000, []]
    assert {name: rest[:3] for name, rest in told.items()} == dict.fromkeys(MAKES, hours)
    assert len({rest[3] for rest in told.values()}) == 1


STOPPED = """
    import asyncio, faulthandler, time
    import mat

    faulthandler.dump_traceback_later(30, exit=True)
    EARLY = asyncio.new_event_loop()

    async def stuck(event):
        try:
            await event.wait()
        finally:
            print("ended")

    async def body():
        event = asyncio.Event()
        await asyncio.gather(stuck(event), asyncio.create_task(stuck(event), name="second"))

    async def endless():
        while True:
            await asyncio.sleep(60)

    async def around(agent):
        with mat.run(horizon_ms=600_000) as run:
            await agent()
        assert asyncio.current_task().cancelling() == 0
        await asyncio.sleep(0.01)
        return run

    def told(run):
        print(run.result.termination, [item.message for item in run.result.findings])

    for agent in (body, endless):
        told(EARLY.run_until_complete(around(agent)))
        with mat.run(horizon_ms=600_000) as run:
            EARLY.run_until_complete(agent())
        told(run)
        assert not asyncio.all_tasks(EARLY)
"""


def test_a_run_that_is_stopped_in_a_loop_of_others_ends_its_tasks_and_nothing_else() -> None:
    told = in_process(STOPPED).splitlines()
    deadlocked = told[2]
    assert told[:2] == told[3:5] == ["ended", "ended"]
    assert deadlocked.startswith("deadlock ['all tasks and threads wait, and nothing can wake them: ")
    assert "second waits at <string>:10 in stuck" in deadlocked
    assert told[5].startswith("deadlock ")
    assert [line.partition(" ")[0] for line in told[6:]] == ["horizon", "horizon"]


TIMERS = """
    import asyncio, time
    import mat

    loop, came = asyncio.new_event_loop(), []
    held = loop.call_later(1000, came.append, "late")
    when = held.when()
    loop.call_later(100, came.append, "early")
    with mat.run() as run:
        loop.run_until_complete(asyncio.sleep(500))
        left = loop.call_later(50, came.append, "left")
    assert run.result.elapsed_ms == 500_000
    assert came == ["early"]
    assert held.when() == when
    assert 40 < left.when() - time.monotonic() <= 50
    assert [item.when() for item in loop._scheduled] == sorted(item.when() for item in loop._scheduled)
"""


def test_timers_from_before_the_run_run_in_it_and_keep_their_time_after_it() -> None:
    in_process(TIMERS)


ORDER = """
    import asyncio, concurrent.futures, random, sys, time
    import mat

    @mat.tool
    async def touch(tag):
        return tag

    @mat.tool
    def job(tag):
        time.sleep(1)
        return tag

    async def late(tag):
        try:
            await asyncio.sleep(60)
        finally:
            await touch(tag)

    async def slept(tag):
        await asyncio.sleep(1)
        return await touch(tag)

    async def generator(tag):
        try:
            yield tag
            yield tag
        finally:
            await touch(f"closed {tag}")

    async def abandoned():  # its frame is no part of a failing TaskGroup, whose frame 3.12.1 and 3.13.0 leave in a cycle
        held = [generator(f"generator {number}") for number in range(9)]
        for each in held:
            await anext(each)

    async def scopes(anyio):
        async def nested(tag):
            with anyio.CancelScope():
                await late(tag)
        async with anyio.create_task_group() as group:
            for number in range(9):
                group.start_soon(nested, f"scope {number}")
            await anyio.sleep(1)
            group.cancel_scope.cancel()

    async def team():
        for awaited in asyncio.as_completed([slept(f"completed {number}") for number in range(9)]):
            await awaited
        done, _ = await asyncio.wait([asyncio.create_task(slept(f"wait {number}")) for number in range(9)])
        for task in done:
            await touch(f"done {task.result()}")
        loop = asyncio.get_running_loop()
        jobs = {loop.run_in_executor(None, job, f"job {number}"): number for number in range(5)}
        done, _ = await asyncio.wait(jobs)
        for future in done:
            await touch(jobs[future])
        gathered = {asyncio.gather(slept(number)): number for number in range(5)}
        for future in (await asyncio.wait(gathered))[0]:
            await touch(f"gathered {gathered[future]}")
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(9):
                    group.create_task(late(f"group {number}"))
                await asyncio.sleep(1)
                raise ZeroDivisionError
        except* ZeroDivisionError:
            pass
        if anyio is not None:
            await scopes(anyio)
        await abandoned()
        left = [asyncio.create_task(late(f"left {number}")) for number in range(40)]
        await asyncio.sleep(1)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            await touch(f"all {task.get_name()}")

    def pooled():
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            jobs = {pool.submit(job, f"pool {number}"): number for number in range(9)}
            for future in concurrent.futures.as_completed(jobs):
                job(f"came {jobs[future]}")
            for future in concurrent.futures.wait(jobs).done:
                job(f"waited {jobs[future]}")

    try:
        import anyio
    except ImportError:
        anyio = None
    said = set()
    for _ in range(int(sys.argv[1])):
        junk = [bytearray(random.SystemRandom().randrange(2000)) for _ in range(random.SystemRandom().randrange(200))]
        with mat.run(seed=7, states=True) as run:
            asyncio.run(team())
            pooled()
        said.add((run.result.head, run.result.contended))
        del junk[::2]
    told = [str(record.action.arguments.get("tag")) for record in run.trace]
    left = [tag for tag in told if tag.startswith("left")]
    assert left == [f"left {number}" for number in range(40)], left
    print(sorted(said), sorted(item.code for item in run.result.findings))
"""


@pytest.mark.full
@pytest.mark.parametrize("runs", [3, pytest.param(20, marks=pytest.mark.full)])
def test_sets_of_tasks_and_futures_have_one_order_in_every_run_of_a_process_and_across_processes(runs: int) -> None:
    told = [in_process(ORDER, str(runs), seed=seed) for seed in ("0", "1", "random")[: 2 if runs == 3 else 3]]
    assert len(set(told)) == 1
    assert told[0].count("(") == 2


REFUSED = """
    import asyncio
    import mat

    class InC(asyncio.AbstractEventLoop):  # a loop that waits where nobody sees it, as those written in C
        def run_until_complete(self, future):
            raise AssertionError("it ran")

        def close(self):
            pass

    with mat.run() as run:
        asyncio.Runner(loop_factory=InC).run(asyncio.sleep(3600))
    assert (run.result.elapsed_ms, [item.code for item in run.result.findings]) == (3_600_000, ["loop-replaced"])
    try:
        with mat.run():
            InC().run_until_complete(None)
    except mat.MatError as error:
        print(error)
    loop = InC()
    asyncio._set_running_loop(loop)
    try:
        with mat.run():
            raise AssertionError
    except mat.MatError as error:
        print(error.what)
    asyncio._set_running_loop(None)
    try:
        InC().run_until_complete(None)
    except AssertionError as error:
        print(error)
"""


def test_a_loop_that_cannot_keep_run_time_is_refused_and_never_hangs() -> None:
    told = in_process(REFUSED)
    assert told.count("__main__.InC cannot run in virtual time") == 2
    assert 'clock="real"' in told
    assert told.endswith("it ran\n")


TASKS = """
    import asyncio
    import mat

    async def one(barrier):
        with mat.run():
            await asyncio.sleep(1)

    async def main():
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(one(0))
                group.create_task(one(1))
        except* mat.MatError as errors:
            print(errors.exceptions[0].what)

    asyncio.run(main())
"""


def test_two_tasks_of_a_loop_cannot_each_have_a_run_open() -> None:
    assert in_process(TASKS) == "a run is open in another thread or task of this process\n"


UVLOOP = """
    import asyncio, uvloop
    import mat

    early = uvloop.new_event_loop()
    for start in (lambda: early.run_until_complete(asyncio.sleep(3600)), lambda: early.run_forever()):
        try:
            with mat.run():
                start()
        except mat.MatError as error:
            print(error.what)

    async def around():
        with mat.run():
            raise AssertionError

    try:
        early.run_until_complete(around())
    except mat.MatError as error:
        print(error.what)
"""


@pytest.mark.skipif(not __import__("importlib.util").util.find_spec("uvloop"), reason="uvloop is not installed")
def test_a_loop_of_uvloop_is_refused() -> None:
    assert in_process(UVLOOP) == "uvloop.Loop cannot run in virtual time\n" * 3
