"""The settings of the process are put back, and what is written outside of a run is named."""

import csv
import decimal
import gc
import json
import locale
import logging
import os
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from mat.kernel.isolation import Isolation

SETTINGS: dict[str, tuple[Callable[[], object], Callable[[], object], str]] = {
    "environment": (lambda: os.environ.__setitem__("DESK", "1"), lambda: os.environ.get("DESK"), "os.environ.DESK"),
    "folder": (lambda: os.chdir("/"), os.getcwd, "the working folder"),
    "path": (lambda: sys.path.append("/nowhere"), lambda: list(sys.path), "sys.path"),
    "modules": (
        lambda: sys.modules.__setitem__("desk_stub", types.ModuleType("desk_stub")),
        lambda: "desk_stub" in sys.modules,
        "sys.modules.desk_stub",
    ),
    "replaced module": (
        lambda: sys.modules.__setitem__("json", types.ModuleType("json")),
        lambda: sys.modules["json"] is json,
        "sys.modules.json",
    ),
    "recursion": (lambda: sys.setrecursionlimit(4321), sys.getrecursionlimit, "the recursion limit"),
    "garbage": (gc.disable, gc.isenabled, "the garbage collector"),
    "locale": (lambda: locale.setlocale(locale.LC_CTYPE, "C"), lambda: locale.setlocale(locale.LC_ALL), "the locale"),
    "umask": (lambda: os.umask(0o077), lambda: os.umask(os.umask(0o022)) and None, "the umask"),
    "warnings": (
        lambda: warnings.simplefilter("ignore", ResourceWarning),
        lambda: list(warnings.filters),
        "the warning filters",
    ),
    "signal": (
        lambda: signal.signal(signal.SIGUSR1, lambda *_: None),
        lambda: signal.getsignal(signal.SIGUSR1),
        "a signal handler",
    ),
    "rare signal": (
        lambda: signal.signal(signal.SIGWINCH, signal.SIG_IGN),
        lambda: signal.getsignal(signal.SIGWINCH),
        "a signal handler",
    ),
    "signal mask": (
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2]),
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, []),
        "the signal mask",
    ),
    "limit": (
        lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1])),
        lambda: resource.getrlimit(resource.RLIMIT_NOFILE),
        "a resource limit",
    ),
    "affinity": (
        lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1]),
        lambda: os.sched_getaffinity(0),
        "the processor affinity",
    ),
    "timeout": (lambda: socket.setdefaulttimeout(3), socket.getdefaulttimeout, "the socket timeout"),
    "level": (
        lambda: logging.getLogger("desk").setLevel(logging.DEBUG),
        lambda: logging.getLogger("desk").level,
        "logging.desk",
    ),
    "handler": (
        lambda: logging.getLogger().addHandler(logging.NullHandler()),
        lambda: [each for each in logging.getLogger().handlers if isinstance(each, logging.NullHandler)],
        "logging.root",
    ),
    "csv": (
        lambda: csv.register_dialect("desk", delimiter=";"),
        lambda: sorted(csv.list_dialects()),
        "the csv dialects",
    ),
    "decimal": (lambda: setattr(decimal.getcontext(), "prec", 3), lambda: decimal.getcontext().prec, "the decimal context"),
}


def test_modules_are_compared_one_by_one_where_code_of_the_users_names_them(tmp_path: Path) -> None:
    """Nobody else replaces one without adding another; what libraries do with their own is no state of the user's."""
    isolation = Isolation([str(tmp_path)])
    isolation.start({})
    isolation.execute(SETTINGS["modules"][0])
    assert [each.name for each in isolation.found] == ["sys.modules.desk_stub"]
    isolation.execute(SETTINGS["replaced module"][0])
    sys.modules["json"] = json
    assert len(isolation.found) == 1


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_that_a_run_changed_is_put_back(setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, observe, name = SETTINGS[setting]
    monkeypatch.chdir(tmp_path)
    if setting == "affinity" and (not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) == 1):
        pytest.skip("there is one processor, or no choice")
    if setting == "locale" and locale.setlocale(locale.LC_CTYPE) == "C":
        pytest.skip("this process has the locale already")
    before = observe()
    isolation = Isolation([str(tmp_path), *([str(Path(__file__).parent)] if "module" in setting else [])])
    isolation.start({})
    isolation.execute(lambda: None)
    assert not isolation.found
    for _ in range(2):
        isolation.execute(run)
        assert observe() == before
    assert name in [each.name for each in isolation.found]
    assert {each.remedy for each in isolation.found} <= {"restore"}


def test_a_priority_that_a_run_lowered_is_put_back_or_needs_forks() -> None:
    """Only a privileged process may raise it again."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    child = os.fork()
    if not child:  # else everything after this test might have the priority
        try:
            isolation = Isolation([])
            isolation.start({})
            isolation.execute(lambda: os.nice(1))
            (found,) = isolation.found
            back = os.getpriority(os.PRIO_PROCESS, 0) == before
            os._exit(0 if (found.name, found.remedy) == ("the process priority", "restore" if back else "fork") else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _noted(folder: Path, run: Callable[[], object]) -> list[str]:
    isolation = Isolation([str(folder)], shown=lambda path: os.path.basename(path), kept_folder=str(folder.parent.parent))
    isolation.start({})
    isolation.execute(run)
    return [each.name for each in isolation.found if each.remedy == "none"]


def _insert(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("create table if not exists t (a)")
        database.execute("insert into t values (1)")


def _ask(path: Path) -> None:
    sqlite3.connect(path).execute("select * from sqlite_master").fetchall()


def _own_folder() -> None:
    """A folder for temporary files that the run makes itself, without `tempfile`."""
    place = Path(tempfile.gettempdir(), f"mat-test-{os.getpid()}")
    place.mkdir()
    (place / "a").write_text("a")
    shutil.rmtree(place)


WRITES: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "write": (lambda folder: (folder / "ledger.txt").write_text("a"), ["ledger.txt"]),
    "append": (lambda folder: open(folder / "known", "a").close(), ["known"]),
    "descriptor": (lambda folder: os.close(os.open(folder / "ledger.txt", os.O_CREAT | os.O_WRONLY)), ["ledger.txt"]),
    "remove": (lambda folder: (folder / "known").unlink(), ["known"]),
    "rename": (lambda folder: (folder / "known").rename(folder / "other"), ["known", "other"]),
    "database": (lambda folder: _insert(folder / "ledger.db"), ["ledger.db"]),
    "process": (lambda folder: subprocess.run([sys.executable, "-c", ""], check=True), ["process python"]),
    "read": (lambda folder: (folder / "known").read_text(), []),
    "asked database": (lambda folder: _ask(folder / "kept.db"), []),
    "memory": (lambda folder: sqlite3.connect(":memory:").execute("create table t (a)"), []),
    "temporary file": (lambda folder: tempfile.NamedTemporaryFile().close(), []),
    "temporary folder": (lambda folder: Path(tempfile.mkdtemp(), "a").write_text("a"), []),
    "own folder": (lambda folder: _own_folder(), []),
    "folder of the project": (lambda folder: (folder / "new").mkdir(), ["new"]),
    "shared memory": (lambda folder: _write_shared(), ["mat-test"] if os.path.isdir("/dev/shm") else []),
    "nothing": (lambda folder: open(os.devnull, "w").close(), []),
}


def _write_shared() -> None:
    """In a folder that is no device, though it is among them."""
    if os.path.isdir("/dev/shm"):
        path = Path("/dev/shm/mat-test")
        path.write_text("a")
        path.unlink()


@pytest.mark.parametrize("kind", WRITES)
def test_what_a_run_writes_outside_of_itself_is_named(kind: str, tmp_path: Path) -> None:
    run, expected = WRITES[kind]
    (tmp_path / "known").write_text("a")
    _insert(tmp_path / "kept.db")
    found = _noted(tmp_path, lambda: run(tmp_path))
    assert [name.partition("python")[0] + "python" if name.startswith("process") else name for name in found] == expected


def test_a_server_is_named_unless_its_replies_are_recorded(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]

        def run() -> None:
            socket.create_connection(("127.0.0.1", port)).close()

        assert _noted(tmp_path, run) == [f"127.0.0.1:{port}"]
        isolation = Isolation([str(tmp_path)], recorded=True)
        isolation.start({})
        isolation.execute(run)
        assert not isolation.found


def test_bytecode_is_no_state_wherever_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With PYTHONPYCACHEPREFIX, the first import of a library's module in a run wrote a file that took the certificate away."""
    (tmp_path / "bytecode").mkdir()
    assert _noted(tmp_path, lambda: (tmp_path / "bytecode" / "late.pyc").write_bytes(b"")) != []
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "bytecode"))
    assert _noted(tmp_path, lambda: (tmp_path / "bytecode" / "later.pyc").write_bytes(b"")) == []


def test_a_pipe_that_holds_something_else_after_a_run_is_named_because_forks_share_it(tmp_path: Path) -> None:
    reads, writes = os.pipe()
    try:
        assert _noted(tmp_path, lambda: os.write(writes, b"a")) == ["a pipe"]
        assert _noted(tmp_path, lambda: (os.write(writes, b"b"), os.read(reads, 1))) == []
    finally:
        os.close(reads)
        os.close(writes)


def test_the_position_of_a_descriptor_is_named_because_forks_share_it(tmp_path: Path) -> None:
    descriptor = os.open(__file__, os.O_RDONLY)
    try:
        assert _noted(tmp_path, lambda: os.read(descriptor, 1)) == ["the position in a file"]
        assert _noted(tmp_path, lambda: None) == []
    finally:
        os.close(descriptor)


def test_the_position_of_a_file_object_is_its_own_business(tmp_path: Path) -> None:
    with open(__file__) as file:
        assert _noted(tmp_path, lambda: file.readline()) == []


def test_a_pipe_that_somebody_else_reads_is_no_state(tmp_path: Path) -> None:
    """As both outputs of `pytest 2>&1 | tee log`: two descriptors of one pipe, and neither is its other end."""
    reads, writes = os.pipe()
    second = os.dup(writes)
    one, other = socket.socketpair()
    with one, other:
        socket.send_fds(one, [b"a"], [reads])  # on its way it is open, and no descriptor of this process
        os.close(reads)
        try:
            assert _noted(tmp_path, lambda: os.write(writes, b"a")) == []
        finally:
            os.close(writes)
            os.close(second)
