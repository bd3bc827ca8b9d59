"""The other end of `mat_study.fresh`: a pristine process, the processes of modules below it, and their forks that execute.

Every process ends when the one above it does. A fork that executes is in a process group of its own, which is killed when it
has finished, when it dies, or when whoever waits for it closes the connection. No process here starts a thread.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import shutil
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from mat_study.evaluation import Plan
from mat_study.fresh import AnswerWhenCollected, EndModules, FreshBatch, FreshFrame, ModuleRequest

SendFrame: TypeAlias = Callable[[FreshFrame], None]
ExecuteBatch: TypeAlias = Callable[[FreshBatch, Iterable[Plan], Path, SendFrame], None]
"""(a batch, its plans and those that come later, a path for a folder of temporary files, where answers go)."""
CollectModule: TypeAlias = Callable[[tuple[str, ...], Callable[[ExecuteBatch], None]], None]
"""Collects what arguments say and then calls the function it is given with what executes a batch; that call never returns."""

_WATCH_S: Final = 0.5
"""Real seconds between two looks whether the parent is alive."""
_REAP_S: Final = 0.02
"""Real seconds between two looks whether a fork has died."""


def serve(arguments: list[str], collect: CollectModule) -> None:
    """Be a pristine process until the process that started it ends. `arguments` are the two that FreshProcesses added."""
    first, second = arguments
    if first.isdigit():
        _Root(socket.socket(fileno=int(first)), Path(second), collect).serve()
    else:
        _once(Path(first), Path(second), collect)


class _Root:
    """Forks a process for each module that is asked for, and names its socket."""

    def __init__(self, listener: socket.socket, place: Path, collect: CollectModule) -> None:
        self._listener, self._place, self._collect = listener, place, collect
        self._parent = os.getppid()
        self._lifeline = os.dup(0)  # closed by the process that started this one, or by its death
        with open(os.devnull, "rb") as nowhere:
            os.dup2(nowhere.fileno(), 0)
        os.set_inheritable(self._lifeline, False)
        self._roots = frozenset(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
        self._modules: dict[str, tuple[ModuleRequest, int]] = {}
        self._retired: list[int] = []
        self._count = 0

    def serve(self) -> None:
        gc.freeze()
        while os.getppid() == self._parent:
            ready = wait([self._listener, self._lifeline], _WATCH_S)
            if self._lifeline in ready:
                break
            self._reap()
            if ready:
                self._answer(Connection(self._listener.accept()[0].detach()))
        shutil.rmtree(self._place, ignore_errors=True)

    def _reap(self) -> None:
        for name, (_, process) in list(self._modules.items()):
            if os.waitpid(process, os.WNOHANG)[0]:
                del self._modules[name]
        self._retired = [process for process in self._retired if not os.waitpid(process, os.WNOHANG)[0]]

    def _answer(self, connection: Connection) -> None:
        with connection, suppress(EOFError, OSError):
            request = pickle.loads(connection.recv_bytes())
            if isinstance(request, EndModules):
                self._end(request.names)
                connection.send_bytes(b"ended")
            else:
                connection.send_bytes(self._named(request, connection).encode())

    def _end(self, names: tuple[str, ...]) -> None:
        for name in names:
            if name in self._modules:
                process = self._modules.pop(name)[1]
                with suppress(OSError):
                    os.kill(process, signal.SIGKILL)
                self._retired.append(process)

    def _named(self, request: ModuleRequest, connection: Connection) -> str:
        """The socket of a module, another one than `left`, which takes no request any more."""
        if request.left in self._modules:
            self._retired.append(self._modules.pop(request.left)[1])
        wanted = replace(request, left="")
        known = next((name for name, (held, _) in self._modules.items() if held == wanted), None)
        if known is None:
            known, process = self._fork(wanted, connection)
            self._modules[known] = (wanted, process)
        return known

    def _fork(self, request: ModuleRequest, connection: Connection) -> tuple[str, int]:
        self._count += 1
        name = f"module-{self._count}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self._place / name))
        listener.listen(64)
        parent = os.getpid()
        process = os.fork()
        if process:
            listener.close()
            return name, process
        try:
            end_with_parent(parent)
            connection.close()
            self._listener.close()
            os.close(self._lifeline)
            _redirect_output(self._place / f"{name}.output")
            self._move(request)
            self._collect(request.arguments, _Module(listener, self._place, parent).serve)
        except BaseException:
            traceback.print_exc()
        finally:
            _flush()
            os._exit(1)

    def _move(self, request: ModuleRequest) -> None:
        """Go where the session is: its folder, its environment, and its entries of sys.path in front."""
        os.chdir(request.folder)
        os.environ.clear()
        os.environ.update(request.environment)
        own = {*request.roots, *self._roots, "", os.path.realpath(self._place), str(self._place)}
        sys.path[:] = [*request.roots, *(path for path in sys.path if path not in own)]


class _Module:
    """Forks a process for each batch; it has collected a module, and executes nothing itself.

    A process with other threads cannot be forked safely; it executes the one batch it gets itself, and then ends.
    """

    def __init__(self, listener: socket.socket, place: Path, parent: int) -> None:
        self._listener, self._place, self._parent = listener, place, parent
        self._batches: dict[Connection, int] = {}

    def serve(self, execute: ExecuteBatch) -> None:
        gc.collect()
        gc.freeze()
        _flush()
        _survive_parent()  # long enough to kill what is below it
        while os.getppid() == self._parent:
            ready = wait([self._listener, *self._batches], _REAP_S if self._batches else _WATCH_S)
            for connection, process in list(self._batches.items()):
                if (connection in ready and _is_closed(connection)) or _has_died(process):
                    self._end(connection, process)
            if self._listener in ready:
                self._begin(execute, Connection(self._listener.accept()[0].detach()))
        for connection, process in list(self._batches.items()):
            self._end(connection, process)
        os._exit(0)

    def _begin(self, execute: ExecuteBatch, connection: Connection) -> None:
        try:
            batch = pickle.loads(connection.recv_bytes())
            if isinstance(batch, AnswerWhenCollected):
                connection.send_bytes(b"")
        except (EOFError, OSError):
            batch = None
        if not isinstance(batch, FreshBatch):
            connection.close()
            return
        parent = os.getpid()
        if threading.active_count() > 1:
            self._listener.close()
            end_with_parent(self._parent)
            _execute(execute, batch, self._files(parent), connection)
        process = os.fork()
        if process:
            self._batches[connection] = process
            return
        os.setpgid(0, 0)
        end_with_parent(parent)
        self._listener.close()
        for other in self._batches:
            other.close()
        _execute(execute, batch, self._files(os.getpid()), connection)

    def _files(self, process: int) -> Path:
        return self._place / f"files-{process}"

    def _end(self, connection: Connection, process: int) -> None:
        """Kill a fork and what it has started, and report how it ended to whoever still waits."""
        del self._batches[connection]
        died = _has_died(process)
        with suppress(OSError):
            os.killpg(process, signal.SIGKILL)
        with suppress(OSError):
            os.kill(process, signal.SIGKILL)  # it has perhaps no group yet
        _, status = os.waitpid(process, 0)
        if died:
            code = os.waitstatus_to_exitcode(status)
            text = f"was killed by signal {-code}" if code < 0 else f"exited with {code}"
            with suppress(OSError):
                connection.send_bytes(pickle.dumps(FreshFrame(kind="ended", text=text)))
        connection.close()
        shutil.rmtree(self._files(process), ignore_errors=True)


def _execute(execute: ExecuteBatch, batch: FreshBatch, files: Path, connection: Connection) -> None:
    """Execute a batch and end this process, without the exit handlers of the process it was forked from."""

    def send(frame: FreshFrame) -> None:
        connection.send_bytes(pickle.dumps(frame))

    try:
        send(FreshFrame(kind="begun", process=os.getpid()))
        send(_outcome(execute, batch, _plans(batch, connection), files, send))
    except BaseException:  # nobody waits any more
        traceback.print_exc()
    finally:
        _flush()
        os._exit(0)


def _plans(batch: FreshBatch, connection: Connection) -> Iterator[Plan]:
    """The plans of a batch, and those that are sent later."""
    yield from batch.plans
    while batch.more:
        try:
            data = connection.recv_bytes()
        except (EOFError, OSError):
            return
        yield pickle.loads(data)


def _is_closed(connection: Connection) -> bool:
    """Whether a readable connection was closed at its other end; otherwise a fork will read from it."""
    with socket.socket(fileno=os.dup(connection.fileno())) as peer, suppress(BlockingIOError):
        try:
            return not peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except ConnectionError:
            return True
    return False


def _outcome(
    execute: ExecuteBatch, batch: FreshBatch, plans: Iterable[Plan], files: Path, send: SendFrame
) -> FreshFrame:  # fmt: skip
    try:
        execute(batch, plans, files, send)
    except Exception:
        return FreshFrame(kind="failed", text=traceback.format_exc())
    return FreshFrame(kind="finished")


def _once(request: Path, answer: Path, collect: CollectModule) -> None:
    """On a platform without fork: execute one request in this interpreter, and end it."""
    batch: FreshBatch = pickle.loads(request.read_bytes())
    files = request.with_name("files")
    shutil.rmtree(files, ignore_errors=True)  # of the interpreter before this one

    def run(execute: ExecuteBatch) -> None:
        with answer.open("wb") as stream:
            _write(stream, FreshFrame(kind="begun"))
            _write(stream, _outcome(execute, batch, batch.plans, files, lambda frame: _write(stream, frame)))
        _flush()
        os._exit(0)

    collect(batch.item.arguments, run)


def _write(stream: BinaryIO, frame: FreshFrame) -> None:
    pickle.dump(frame, stream)
    stream.flush()


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, where it can (Linux); elsewhere the parent's own checks do."""
    _set_parent_death_signal(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _survive_parent() -> None:
    _set_parent_death_signal(0)


def _set_parent_death_signal(number: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


_PR_SET_PDEATHSIG: Final = 1


def _has_died(process: int) -> bool:
    """Whether a child has died; it is not waited for, so its number is not given to another process yet."""
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _redirect_output(path: Path) -> None:
    _flush()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
