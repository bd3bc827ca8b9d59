"""Several processes for one item: the same report for any number of them, and nothing of theirs in the session."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any

import pytest

from mat_study.forks import Forked
from mat_study.receiving import WorkerDied, WorkerFailed

TEAM = """
import os
import sys

FRESH = "--mat-confirm" in sys.argv


def log(word):
    os.makedirs(".mat", exist_ok=True)
    with open(".mat/log", "a") as stream:  # in a folder that holds nothing of a program's state
        stream.write(f"{word}{' freshly' * FRESH} {os.getpid()}\\n")


@pytest.fixture(scope="module")
def ledger():
    log("setup")
    yield {"orders": ("o1", "o2")}
    log("teardown")


@pytest.fixture
def fresh(ledger, capfd):
    print("said by a fixture")
    yield dict(ledger)
    print("and at its end")


@pytest.mark.mat(budget=8, faults=FAULTS, seeds=2, workload=mat.Workload(category="refunds"))
def test_team(mat_run, fresh, no_double):
    log("run")
    os.write(1, b"said by the agent")
    for order in fresh["orders"]:
        shop.naive(2, order)


@pytest.mark.mat(budget=8, faults=FAULTS)
def test_careful(mat_run, no_double):
    log("run")
    print("said by the careful one")
    shop.careful()
"""


@dataclass(frozen=True)
class Team:
    """A session of TEAM: its report, its terminal, and (what was done, process) in order; `freshly`: in fresh processes."""

    report: Any
    text: str
    log: list[tuple[str, str]]

    @property
    def executing(self) -> set[str]:
        """The processes that search: the session's, and its workers."""
        return {process for word, process in self.log if word == "run"}


SESSIONS: dict[tuple[str, ...], Team] = {}


def team(shop: Any, *arguments: str) -> Team:
    """The session with these arguments, once for all tests that look at it."""
    if arguments not in SESSIONS:
        shop.tests(TEAM)
        session = shop.stress("--mat-no-reuse", *arguments, process=True)
        for path in shop.replays:
            path.unlink()
        log = shop.path / ".mat" / "log"
        SESSIONS[arguments] = Team(
            session.report,
            session.text,
            [(word, process) for word, _, process in (line.rpartition(" ") for line in log.read_text().splitlines())],
        )
        log.unlink()
    return SESSIONS[arguments]


def without_times(report: Any) -> str:
    return json.dumps(
        {name: part for name, part in report.items() if name not in ("made", "seconds", "duration")}, sort_keys=True
    )


@pytest.mark.nightly
def test_the_report_is_the_same_for_any_number_of_workers(shop: Any) -> None:
    alone = team(shop)
    assert {item["status"] for item in alone.report["items"]} == {"counterexample", "certified"}
    assert len(alone.executing) == 1
    for count in ("1", "2", "3"):
        found = team(shop, "--mat-workers", count)
        assert without_times(found.report) == without_times(alone.report)
        assert found.text.count("was refunded twice") == alone.text.count("was refunded twice")
        assert (len(found.executing) > 1) is (count != "1")


@pytest.mark.nightly
def test_wider_fixtures_are_set_up_and_torn_down_once_by_the_process_that_searches(shop: Any) -> None:
    words = team(shop, "--mat-workers", "3", "-k", "test_team").log
    (searching,) = {process for word, process in words[:1]}
    assert [each for each in words if each[0] in ("setup", "teardown")] == [("setup", searching), ("teardown", searching)]
    assert len({process for word, process in words if word == "run"} - {searching}) == 3
    fresh = {word: {process for other, process in words if other == word} for word in ("setup freshly", "run freshly")}
    assert fresh["setup freshly"] == fresh["run freshly"], "fresh processes have fixtures of their own"


@pytest.mark.nightly
def test_workers_write_nothing_into_the_session(shop: Any) -> None:
    shop.tests(TEAM)
    options = ("--log-file", "session.log", "-rA", "--mat-no-reuse")
    alone = shop.stress(*options, process=True).text
    (shop.path / ".mat" / "log").unlink()
    for path in shop.replays:
        path.unlink()
    with_workers = shop.stress(*options, "--mat-workers", "2", process=True).text
    assert _said(with_workers) == _said(alone)
    assert with_workers.count("said by the careful one") == alone.count("said by the careful one")


def _said(text: str) -> list[str]:
    """Lines of a terminal without times and places."""
    lines = [line for line in text.splitlines() if " in " not in line and "rootdir" not in line]
    return [re.sub(r", \d+ s\)", ")", line) for line in lines]


@pytest.mark.full
def test_workers_are_gone_when_the_session_is(shop: Any) -> None:
    for _, process in team(shop, "--mat-workers", "2").log:
        with pytest.raises(ProcessLookupError):
            os.kill(int(process), 0)


@pytest.mark.nightly
def test_an_agent_that_ends_its_worker_costs_no_result(shop: Any) -> None:
    """The parent does what the worker could not; the item says that the workers were lost."""
    shop.tests(
        """
        import os
        import sys
        SEARCHING = os.getpid()

        @pytest.mark.mat(budget=8, faults=FAULTS)
        def test_refund(mat_run, no_double):
            if os.getpid() != SEARCHING and len(mat_run.spec.schedule) and "--mat-confirm" not in sys.argv:
                os._exit(3)
            shop.naive(2)
        """
    )
    session = shop.stress("--mat-workers", "2", process=True)
    (item,) = session.report["items"]
    assert (item["status"], item["cost"]) == ("counterexample", 4)


@pytest.mark.full
def test_an_evaluation_that_fails_its_set_up_is_reported_by_the_searching_process(shop: Any) -> None:
    text = """
        @pytest.fixture
        def broken(mat_run):
            calls.append(1)
            if len(calls) > 3:
                raise RuntimeError("no database left")

        calls = []

        @pytest.mark.mat(budget=8, faults=FAULTS)
        def test_refund(mat_run, broken, no_double):
            shop.naive(2)
        """
    shop.tests(text)
    # a worker that cancels the timer of the process it was forked from would wait for ever
    session = shop.stress("--mat-workers", "2", "-o", "faulthandler_timeout=60")
    (name,) = session.outcomes
    assert session.outcomes[name] in ("error", "failed")
    assert "no database left" in session.failures[name] or "no_double broken" in session.failures[name]


@pytest.mark.full
def test_one_worker_is_this_process(shop: Any) -> None:
    assert len(team(shop, "--mat-workers", "1", "-k", "careful").executing) == 1


def test_a_count_that_is_none_is_refused_at_once(shop: Any) -> None:
    shop.tests(TEAM)
    for text in ("0", "-1", "many"):
        result = shop.pytester.runpytest_inprocess("--mat-stress", "--mat-workers", text)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"*--mat-workers: *{text}*"])


def test_where_there_is_no_fork_more_than_one_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    import argparse

    from mat.core.errors import MatError
    from pytest_mat.options import _workers

    monkeypatch.delattr(os, "fork")
    assert _workers("1") == 1
    with pytest.raises(argparse.ArgumentTypeError, match="workers are forked processes"):
        _workers("2")
    with pytest.raises(MatError, match="is not available on this platform"):
        Forked(2)


def test_auto_is_one_per_core() -> None:
    from pytest_mat.options import _workers

    assert _workers("auto") == os.cpu_count()


# -- the processes themselves -------------------------------------------------------------------------------------------


def test_tasks_may_name_what_the_fork_inherits_though_it_cannot_be_pickled() -> None:
    values = {"a": 1}
    function = lambda name: (values[name], os.getpid())  # noqa: E731
    with Forked(2, inherited=[function]) as pool:
        futures = [pool.submit(function, "a") for _ in range(8)]
        found = [future.result() for future in futures]
    assert {value for value, _ in found} == {1}
    assert os.getpid() not in {process for _, process in found}


def test_tasks_are_executed_side_by_side() -> None:
    """Each waits for what the other writes."""
    first, second = os.pipe(), os.pipe()
    with Forked(2) as pool:
        one = pool.submit(exchange, first[0], second[1])
        other = pool.submit(exchange, second[0], first[1])
        assert one.result() != other.result()
    for descriptor in (*first, *second):
        os.close(descriptor)


def exchange(reading: int, writing: int) -> int:
    os.write(writing, b"x")
    os.read(reading, 1)
    return os.getpid()


def test_results_come_to_their_own_futures_whoever_finishes_first() -> None:
    with Forked(3) as pool:
        futures = [pool.submit(pow, 2, power) for power in range(50)]
        assert [future.result() for future in reversed(futures)] == [2**power for power in reversed(range(50))]
        assert all(future.done() for future in futures)


def test_a_result_larger_than_a_pipe_comes_through() -> None:
    with Forked(2) as pool:
        futures = [pool.submit(bytes, 5_000_000) for _ in range(3)]
        assert [len(future.result()) for future in futures] == [5_000_000] * 3


def test_what_a_task_raises_is_reported_in_words() -> None:
    with Forked(1) as pool:
        assert isinstance(pool.submit(int, "x").exception(), WorkerFailed)
        with pytest.raises(WorkerFailed, match="ValueError: invalid literal"):
            pool.submit(int, "x").result()
        assert pool.submit(int, "3").result() == 3


def test_who_searches_is_told_what_ended_a_task_though_nobody_asks_for_its_result() -> None:
    kinds: list[str] = []
    with Forked(1, failed=kinds.append) as pool:
        pool.submit(int, "none")
        assert pool.submit(int, "1").result() == 1
    assert kinds == ["ValueError"]


def test_a_killed_worker_breaks_its_own_task_and_the_others_go_on() -> None:
    with Forked(2) as pool:
        broken = pool.submit(suicide, 0)
        assert [pool.submit(pow, 2, 3).result() for _ in range(4)] == [8] * 4
        assert isinstance(broken.exception(), WorkerDied)
        assert "signal 9" in str(broken.exception())
        last = pool.submit(suicide, 0)
        assert isinstance(last.exception(), WorkerDied)
        assert "no worker is left" in str(pool.submit(pow, 2, 3).exception())


def suicide(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_waiting_task_can_be_cancelled_and_one_that_runs_is_given_up_at_the_end() -> None:
    reading, writing = os.pipe()
    pool = Forked(1)
    running, waiting = pool.submit(os.read, reading, 1), pool.submit(pow, 2, 3)
    assert waiting.cancel()
    assert not running.cancel()
    pool.shutdown()
    with pytest.raises(CancelledError):
        waiting.result()
    assert isinstance(running.exception(), WorkerDied)
    with pytest.raises(RuntimeError):
        pool.submit(pow, 2, 3)
    os.close(reading)
    os.close(writing)


def test_the_next_task_is_with_the_worker_before_anybody_asks_for_the_current_one() -> None:
    reading, writing = os.pipe()
    with Forked(1) as pool:
        first, second = pool.submit(os.getpid), pool.submit(os.write, writing, b"x")
        assert select.select([reading], [], [], 30)[0], "written though this process has not received the first answer"
        assert (second.result(), first.result()) == (1, pool.submit(os.getpid).result())
    os.close(reading)
    os.close(writing)


def test_the_next_task_of_a_killed_worker_goes_to_another_and_can_be_cancelled_until_it_begins() -> None:
    reading, writing = os.pipe()
    with Forked(2) as pool:
        killed, other = pool.submit(suicide_after, reading), pool.submit(os.getpid)
        process = other.result()
        waiting = [pool.submit(os.getpid) for _ in range(3)]
        assert waiting[1].cancel() or waiting[1].result() == process
        os.write(writing, b"x")
        assert isinstance(killed.exception(), WorkerDied)
        assert {future.result() for future in waiting if not future.cancelled()} == {process}
    os.close(reading)
    os.close(writing)


def test_a_task_that_was_cancelled_is_no_error_where_no_worker_is_left() -> None:
    with Forked(1) as pool:
        broken, *waiting = [pool.submit(suicide, 0) for _ in range(4)]
        assert waiting[-1].cancel()
        assert isinstance(broken.exception(), WorkerDied)
        assert [str(each.exception()) for each in waiting[:-1]] == ["no worker is left"] * 2


def suicide_after(reading: int) -> None:
    os.read(reading, 1)
    suicide(0)


def test_the_result_of_a_task_that_was_cancelled_when_it_was_sent_goes_to_nobody() -> None:
    reading, writing = os.pipe()
    with Forked(1) as pool:
        running, cancelled = pool.submit(os.read, reading, 1), pool.submit(pow, 2, 3)
        assert cancelled.cancel()
        later = pool.submit(pow, 2, 4)
        os.write(writing, b"x")
        assert (running.result(), later.result()) == (b"x", 16)
    os.close(reading)
    os.close(writing)


def test_a_task_that_does_not_fit_into_a_pipe_waits_for_its_turn() -> None:
    with Forked(1) as pool:
        futures = [pool.submit(bytes.__add__, bytes(5_000_000), bytes(5_000_000)) for _ in range(3)]
        assert [len(future.result()) for future in futures] == [10_000_000] * 3


def test_a_wait_ends_at_its_time_out() -> None:
    reading, writing = os.pipe()
    with Forked(1) as pool:
        future = pool.submit(os.read, reading, 1)
        with pytest.raises(TimeoutError):
            future.result(timeout=0.01)
        os.write(writing, b"x")
        assert future.result() == b"x"
    os.close(reading)
    os.close(writing)


def test_sidecar_is_taken_in_before_the_result_is_known() -> None:
    order = []
    with Forked(1, sidecar=lambda result: result + 1, unpack=lambda result, extra: order.append((result, extra))) as pool:
        future = pool.submit(pow, 2, 3)
        future.add_done_callback(lambda done: order.append(done.result()))
        future.result()
    assert order == [(8, 9), 8]


def test_a_worker_ends_when_the_process_that_forked_it_was_killed(tmp_path: Any) -> None:
    code = (
        "import os, signal\n"
        "from mat_study.forks import Forked\n"
        "pool = Forked(3)\n"
        "print(*{pool.submit(os.getpid).result() for _ in range(1)}, flush=True)\n"
        "print(*[worker.process for worker in pool._workers], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert len(done.stdout.split()) == 4  # the pipe is closed: nobody is left who could write into it
