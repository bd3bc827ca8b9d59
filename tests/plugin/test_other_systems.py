"""Windows and macOS, pretended: what they lack is taken away. Nominal runs work, and the rest is refused with its reason."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import textwrap
from typing import Any

import pytest

import mat
from mat.adapters import program
from mat.adapters.mcp_proxy import RunConnection, StdioProxy
from mat.core.errors import SpecError

WINDOWS = """
import asyncio, multiprocessing.connection, os, signal, socket, subprocess, sys, tempfile, time

LACKING = {
    os: ("fork forkpty register_at_fork killpg setpgid setsid waitid wait sched_getaffinity sched_setaffinity getpriority"
         " setpriority sysconf getrandom mkfifo posix_spawn statvfs O_ACCMODE chown fpathconf"),
    signal: "pthread_sigmask pthread_kill setitimer alarm SIGALRM SIGHUP",
    socket: "AF_UNIX",
    time: "tzset",
}
os.process_cpu_count = os.cpu_count
for owner, names in LACKING.items():
    for name in names.split():
        if hasattr(owner, name):
            delattr(owner, name)
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None

def socketpair(*_):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        return listener.accept()[0], client

socket.socketpair = socketpair
"""
MACOS = """
import asyncio, builtins, multiprocessing.connection, os, platform, subprocess, sys, sysconfig, tempfile

sysconfig.get_config_vars()

def without_proc(real):
    def look(path, *arguments, **options):
        if str(path).startswith("/proc"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return real(path, *arguments, **options)
    return look

os.process_cpu_count = os.cpu_count
builtins.open, os.listdir, os.readlink = map(without_proc, (open, os.listdir, os.readlink))
for name in ("waitid", "sched_getaffinity", "sched_setaffinity", "getrandom", "posix_fadvise"):
    if hasattr(os, name):
        delattr(os, name)
sys.platform = "darwin"
"""
SYSTEMS = pytest.mark.parametrize("system", [pytest.param(WINDOWS, id="windows"), pytest.param(MACOS, id="macos")])
ALONE = ("-p", "lacking", "-p", "no:xdist", "-p", "no:cacheprovider")
BROKEN = """
@pytest.mark.mat(budget=4, faults=FAULTS)
def test_refund(mat_run, no_double):
    shop.naive()
"""
EVERY_MODULE = """
import importlib, pkgutil

import mat, mat_contracts, mat_faults, mat_search, mat_study, pytest_mat

for package in (mat, mat_contracts, mat_faults, mat_search, mat_study, pytest_mat):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""
RUN = """
import asyncio, threading, time

import mat

@mat.tool(effect="write")
def pay(order):
    time.sleep(1)
    return order

async def several():
    await asyncio.gather(*(asyncio.to_thread(pay, order) for order in range(3)))

with mat.run(seed=3) as run:
    threads = [threading.Thread(target=pay, args=(order,)) for order in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(several())
print(run.result.head, len(run.trace))
"""


def in_process(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# -- what works -----------------------------------------------------------------------------------------------------------


@pytest.mark.full
@SYSTEMS
def test_every_module_is_imported_there(system: str) -> None:
    in_process(system + EVERY_MODULE)


@pytest.mark.full
@SYSTEMS
def test_a_run_with_threads_and_tasks_has_the_same_head_there(system: str) -> None:
    here = in_process(RUN)
    assert here.endswith(" 7\n")
    assert in_process(system + RUN) == here


@pytest.mark.full
@SYSTEMS
def test_a_nominal_session_passes_and_keeps_its_runs_there(shop: Any, system: str) -> None:
    shop.write("lacking.py", system)
    shop.tests(BROKEN)
    result = shop.pytester.runpytest_subprocess(*ALONE, "--mat-store", "kept", timeout=120)
    assert (result.ret, "1 passed" in result.stdout.str()) == (0, True), result.stdout.str() + result.stderr.str()
    assert list((shop.path / "kept").glob("*.mat.log"))


@pytest.mark.nightly
@SYSTEMS
def test_a_search_confirms_there_in_interpreters_of_its_own(shop: Any, system: str) -> None:
    shop.write("lacking.py", system)
    shop.tests(BROKEN)
    result = shop.pytester.runpytest_subprocess(*ALONE, "--mat-stress", timeout=120)
    assert (result.ret, "1 broken" in result.stdout.str()) == (1, True), result.stdout.str()
    assert shop.replays


class Proactor(asyncio.BaseEventLoop):
    """As the loops that asyncio makes on Windows: without a selector."""


def test_a_loop_without_a_selector_is_replaced_inside_a_run_and_refused_around_it() -> None:
    with mat.run() as run:
        assert asyncio.Runner(loop_factory=Proactor).run(asyncio.sleep(5, "slept")) == "slept"
    assert (run.result.elapsed_ms, run.result.findings) == (5000, ())
    loop = Proactor()
    asyncio._set_running_loop(loop)
    try:
        with pytest.raises(SpecError, match="Proactor cannot run in virtual time") as refused, mat.run():
            raise AssertionError
    finally:
        asyncio._set_running_loop(None)
        loop.close()
    assert "asyncio.SelectorEventLoop" in refused.value.fix


# -- what is refused ------------------------------------------------------------------------------------------------------


def test_workers_are_refused_without_fork(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.tests(BROKEN)
    monkeypatch.delattr(os, "fork")
    result = shop.pytester.runpytest_inprocess("--mat-stress", "--mat-workers", "2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "workers are forked processes, which this platform does not support" in result.stderr.str()


@pytest.mark.full
def test_an_adversary_in_new_processes_is_refused_without_fork(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.tests(BROKEN.replace("budget=4", 'budget=4, isolate="fork"'))
    monkeypatch.delattr(os, "fork")
    session = shop.stress("--mat-strategy", "adversary")
    assert session.code == 1
    assert "its runs need forked processes, which this platform does not have" in session.text
    assert "use another strategy" in session.text


def test_a_program_and_its_proxies_are_refused_without_unix_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "AF_UNIX")
    with mat.run(), pytest.raises(SpecError, match="an agent that is a program needs Unix sockets") as refused:
        program([sys.executable, "-c", ""]).run("")
    assert refused.value.fix == "run these tests on Linux or macOS"
    with pytest.raises(SpecError, match="MAT_RUN names a run, which cannot be reached"):
        RunConnection("/nowhere", name="shop")


def test_a_proxy_between_pipes_is_refused_where_they_cannot_be_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SpecError, match="a server that is a command needs Linux or macOS") as refused:
        StdioProxy(["server"], Answers())
    assert "--url" in refused.value.fix


class Answers:
    descriptor = None

    def answer(self, method: str, params: Any, forward: Any) -> dict[str, Any]:
        raise AssertionError("it was asked")
