"""A cluster that searches items (--mat-executor dask): this end of it.

    this process      searches; sends an item and a plan, and receives an answer (`ClusterPool`)
      the link        a process with the client of dask.distributed (`mat_study.link`)
        workers       processes of dask, perhaps on other machines (`mat_study.remote`)
          fresh ones  have collected the item, and execute plans (`mat_study.fresh`, `mat_study.pristine`)

A worker compares its versions, sources and files with those of this process before it answers anything: a difference ends the
search, by name. A worker that cannot execute the item for another reason is given up, by name. Its plans, and those of a worker
that is lost, are executed by another one. If that fails too, or the scheduler is gone, they are executed in this process, as
with any other executor.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, Any, Final, assert_never

from mat.core.errors import MatError
from mat_search.executions import Declined, UnfitWorkersError
from mat_study.fresh import FreshAnswer
from mat_study.link import LinkFrame, LinkTask
from mat_study.means import PlanOf, Receive, Tell
from mat_study.receiving import Answer, ReceivingExecutor, WorkerDied, WorkerFailed
from mat_study.remote import RemoteItem

_READY_S: Final = 90.0
"""Real seconds until the cluster must be ready, from the moment that it is needed."""
_OUTPUT_BYTES: Final = 2000
_NAMES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSubject:
    """An item, and the facts by which a worker proves to have the same: versions, and sources with digests."""

    item: RemoteItem
    versions: Mapping[str, str]
    sources: Mapping[str, str]


class Cluster:
    """The cluster of a session. `command` starts its link with the number of an inherited connection; `address`: of a
    scheduler, "" for a cluster on this machine. `most`: how many executions to request at once, None for all threads.
    """

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], *, address: str, most: int | None
    ) -> None:  # fmt: skip
        self._command, self._folder, self._environment = tuple(command), folder, dict(environment)
        self._address, self._most = address, most
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._output: IO[bytes] | None = None
        self._owner = os.getpid()
        self._count = 0
        self._pools: dict[int, ClusterPool] = {}
        self._threads = 0
        self.batch = 1
        self.failure: MatError | None = None
        self.gone = ""

    def begin(self) -> None:
        """Start the link, and do not wait for it. Nothing must have been executed yet: it inherits from this process."""
        self._connection, theirs = Pipe()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (as long as the link lives)
        self._process = subprocess.Popen(
            [*self._command, str(theirs.fileno())], cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL,
            stdout=self._output, stderr=subprocess.STDOUT, pass_fds=[theirs.fileno()], start_new_session=True,
        )  # fmt: skip
        theirs.close()

    def pool(self, subject: RemoteSubject, plan: PlanOf, receive: Receive, tell: Tell) -> ClusterPool:
        """An executor for one search, which tells what workers were given up; MatError if the cluster cannot be reached."""
        self.receive(0)
        while not (self._threads or self.failure or self.gone):
            if not self.receive(_READY_S):
                self._fail(f"it is not ready after {_READY_S:.0f} s")
        if self.failure is not None:
            raise self.failure
        return ClusterPool(self, subject, plan, receive, tell)

    @property
    def threads(self) -> int:
        return min(self._threads, self._most or self._threads)

    def send(self, pool: ClusterPool, item: bytes, plan: bytes) -> int:
        """Have a plan executed; `pool` takes in what comes of it under the number returned. RuntimeError without a cluster."""
        if self.gone or self._connection is None:
            raise RuntimeError(self.gone or "the cluster is closed")
        self._count += 1
        self._pools[self._count] = pool
        try:
            self._write(LinkTask(number=self._count, item=item, plan=plan))
        except OSError:
            self._lose("its client has ended")
            raise RuntimeError(self.gone) from None
        return self._count

    def give_up(self, numbers: Sequence[int]) -> None:
        """Nobody needs these any more."""
        for number in numbers:
            self._pools.pop(number, None)
            if not self.gone:
                with suppress(OSError):
                    self._write(LinkTask(number=number))

    def _write(self, task: LinkTask) -> None:
        if self._connection is None:
            return
        try:
            self._connection.send(task)
        except OSError:
            raise
        except BaseException:  # half a task was written, and its other half would corrupt the next one
            self._disconnect("interrupted")
            raise

    def _disconnect(self, why: str) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._lose(why)

    def receive(self, timeout: float | None) -> bool:
        """Receive what is there, waiting at most `timeout` real seconds; whether anything came."""
        came = False
        while self._connection is not None and wait([self._connection], 0 if came else timeout):
            came = True
            try:
                frame: LinkFrame = self._connection.recv()
            except (EOFError, OSError):
                self._disconnect(f"its client has ended: {self._printed()}")
                break
            except BaseException:  # half a frame was read, and its other half would corrupt the next one
                self._disconnect("interrupted")
                raise
            self._dispatch(frame)
        return came

    def _dispatch(self, frame: LinkFrame) -> None:
        match frame.kind:
            case "ready":
                self._threads, self.batch, self.gone = frame.threads, frame.batch, ""
            case "failed":
                self._fail(frame.text)
            case "gone":
                self._lose(frame.text)
            case "reply" | "lost" | "unfit":
                pool = self._pools.pop(frame.number, None)
                if pool is not None:
                    pool.learn(frame)
            case "given-up":
                if frame.number in self._pools:
                    self._pools[frame.number].tell(f"a worker is given up: {frame.text}")
            case _:
                assert_never(frame.kind)

    def _lose(self, why: str) -> None:
        self.gone = why
        if not self._threads:
            self._fail(why)
        pools, self._pools = self._pools, {}
        for number, pool in pools.items():
            pool.learn(LinkFrame(kind="lost", number=number, text=why))

    def _fail(self, why: str) -> None:
        where = self._address or "a cluster on this machine"
        self.failure = MatError(
            f"--mat-executor: there is no cluster: {where}", why=why,
            fix="start `dask scheduler` and `dask worker`, and name the scheduler's address, or leave the option out",
        )  # fmt: skip

    def _printed(self) -> str:
        if self._output is None:
            return ""
        self._output.seek(0)
        lines = self._output.read()[-_OUTPUT_BYTES:].decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "without a message"

    def close(self) -> None:
        """End the link, and a local cluster with it."""
        if self._process is None or self._owner != os.getpid():
            return
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._output is not None:
            self._output.close()
        self._process = None


class ClusterPool(ReceivingExecutor):
    """An Executor whose tasks are executions of one item by the workers of a cluster."""

    def __init__(self, cluster: Cluster, subject: RemoteSubject, plan: PlanOf, receive: Receive, tell: Tell) -> None:
        self.tell = tell
        self._cluster, self._subject, self._plan, self._receive = cluster, subject, plan, receive
        self._item = zlib.compress(pickle.dumps(subject.item))
        self._answers: dict[int, Answer] = {}
        self._unfit: UnfitWorkersError | None = None

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """`function` is `mat_search.executions.work`, which a worker of a cluster replaces by an execution of its own."""
        if self._unfit is not None:
            raise self._unfit
        evaluate, spec, *_ = arguments
        self.take()
        answer = Answer(self)
        self._answers[self._cluster.send(self, self._item, pickle.dumps(self._plan(evaluate, spec)))] = answer
        return answer

    @property
    def _max_workers(self) -> int:
        """How many tasks the cluster has begun at a time; what is known of that changes."""
        return max(1, self._cluster.threads) * self._cluster.batch

    @property
    def batch(self) -> int:
        """How many tasks a worker gets together."""
        return self._cluster.batch

    def take(self, timeout: float | None = 0) -> None:
        self._cluster.receive(timeout)

    def learn(self, frame: LinkFrame) -> None:
        """Take in what became of a task."""
        answer = self._answers.pop(frame.number, None)
        if answer is None or not answer.set_running_or_notify_cancel():  # nobody waits for it any more
            return
        try:
            run = self._receive(_unpacked(self._packed(frame)))
        except UnfitWorkersError as unfit:
            self._unfit = unfit
            answer.set_exception(unfit)
        except (Declined, WorkerDied, WorkerFailed) as failed:
            answer.set_exception(failed)
        else:
            answer.set_result(run)

    def _packed(self, frame: LinkFrame) -> bytes:
        """The packed answer of a reply; what there is instead is raised."""
        if frame.kind == "unfit":
            raise _unfit(f"a worker of the cluster cannot execute anything: {frame.text}", "")
        if frame.reply is None:
            raise WorkerDied(frame.text) if self._cluster.gone else WorkerFailed(frame.text)
        kind, facts, packed = frame.reply
        known = {name: value for name, value in facts.items() if name != "worker"}
        worker = facts.get("worker", "a worker")
        match kind:
            case "answer":
                return packed
            case "differs":
                what = f"{worker} would execute something else: {self._difference(known)}"
                raise _unfit(what, self._subject.item.item.node)
            case "lost" | "failed":
                raise WorkerFailed(f"{worker}: {known.get('why', '')}")
            case _:
                assert_never(kind)

    def _difference(self, facts: Mapping[str, str]) -> str:
        """The facts that differ: versions with both values, sources by name."""
        here = self._subject.versions if facts.keys() & self._subject.versions.keys() else self._subject.sources
        if not facts.keys() & here.keys():
            return ", ".join(f"{name}: {value}" for name, value in facts.items())
        names = sorted(name for name in {*facts, *here} if facts.get(name) != here.get(name))
        more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
        if here is self._subject.sources:
            return f"{', '.join(names[:_NAMES])}{more} {'differs' if len(names) == 1 else 'differ'}"
        shown = [f"{name} is {facts.get(name, 'missing')} there, {here.get(name, 'missing')} here" for name in names[:_NAMES]]
        return f"{'; '.join(shown)}{more}"

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Give up what is being executed: whoever needs a result has waited for it."""
        self.closed = True
        self._cluster.give_up(tuple(self._answers))
        for answer in self._answers.values():
            answer.cancel()
        self._answers.clear()


def _unpacked(packed: bytes) -> FreshAnswer:
    try:
        return FreshAnswer.unpacked(packed)
    except Exception as error:  # whatever its data does when it is unpickled, an execution here shows it
        raise WorkerFailed(f"its answer cannot be read: {type(error).__name__}: {error}") from None


def _unfit(what: str, where: str) -> UnfitWorkersError:
    return UnfitWorkersError(
        what=what, why="workers must execute exactly what this process would, or certificates would mean nothing",
        fix="give the workers the same code, data and environment, in the same folder, and start them again", where=where,
    )  # fmt: skip
