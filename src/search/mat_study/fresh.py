"""Execute plans of an item where nothing has been executed before: in children of pristine processes, one per hash seed.

`FreshProcesses` is this end; `mat_study.pristine` runs at the other. A pristine process is started before the first item that
will be searched is executed, else at the first request. It is kept for the session; sessions that follow one another in one
process may share it (`SHARED`):

    the pristine process      has imported pytest and pytest-mat, and no code of the user
      one per module          has collected a module, and executed nothing
        one per request       a fork that executes a plan or several, answers, and is killed with all its children

Requests go through a socket in a private folder, one connection each, so workers and the searching process may send them at the
same time. Whatever dies is noticed at the end of its connection. The processes end when this one does.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import Final, Literal, TypeAlias

from mat.core.errors import MatError
from mat.core.run import Run
from mat.kernel.isolation import OutlivedState
from mat.kernel.reads import Read
from mat_study.evaluation import Evaluated, Lost, Plan, TestOutcome
from mat_study.tasks import Judged

HashSeed: TypeAlias = int
ANSWER_S: Final = 600.0
"""Real seconds that one execution in a fresh process may take; then its process is killed."""
FORKS: Final = all(hasattr(os, name) for name in ("fork", "waitid"))
"""Whether executions can be forks of a process that has collected the module. macOS has `waitid` from Python 3.13 on."""
_PATH_CHARS: Final = 100
"""The longest path that a Unix socket may have everywhere."""
_OUTPUT_BYTES: Final = 2000
MODULES_KEPT: Final = 4
"""Modules whose processes a session keeps: the tests of one usually follow one another."""
_TURNS: Final = 30
"""How often a batch may find that the process of its module has just served another one and is ending."""
_ATTEMPTS: Final = 2
"""A pristine process that died is started again once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshItem:
    """An item as a fresh process finds it: its node id, and the command line that collects its module.

    `recorded`: replies come from recordings, and no live call is made.
    """

    node: str
    arguments: tuple[str, ...]
    recorded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRequest:
    """Asks a pristine process for the socket of a module. `arguments` collect it, in `folder`, with `environment`; `roots` are
    the user's entries of sys.path. `left`: the socket of that module which takes no request any more. `session`: sessions with
    different names do not share the process of a module.
    """

    arguments: tuple[str, ...]
    folder: str
    environment: Mapping[str, str]
    roots: tuple[str, ...]
    left: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True)
class AnswerWhenCollected:
    """Asks the process of a module for an empty answer, which it gives once it has collected the module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndModules:
    """Asks a pristine process to end the processes of modules, named by their sockets."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshBatch:
    """Plans that one fresh process executes, in this order, as far as each leaves it as it was.

    `more`: it also executes plans that are sent later, until the connection closes. It says first which sources it has, and
    packs its answers, which are for another machine. `runs_only`: nobody asks what the executions read and left behind.
    """

    item: FreshItem
    plans: tuple[Plan, ...]
    more: bool = False
    runs_only: bool = False

    @property
    def ends_at_once(self) -> bool:
        """Whether it does not matter in which state the one execution leaves its process."""
        return self.runs_only and len(self.plans) == 1 and not self.more


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshAnswer:
    """An execution in a fresh process, without what cannot be sent between processes. `run` None: it was lost.

    `detail`: the exception that lost it; `why` has the same words for the same cause. `sources`: with `more`,
    what was imported there since the item was collected, with digests.
    """

    run: Run | None = None
    judged: Judged = field(default_factory=Judged)
    outcome: TestOutcome = "passed"
    why: str = ""
    detail: str = ""
    refused: bool = False
    unanswered: str = ""
    outlived: tuple[OutlivedState, ...] = ()
    read: tuple[Read, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, given: Evaluated | Lost) -> FreshAnswer:
        if isinstance(given, Evaluated):
            return cls(
                run=given.run, judged=given.judged, outcome=given.outcome, outlived=given.outlived, read=given.read
            )  # fmt: skip
        return cls(
            outcome=given.outcome, why=given.why, refused=given.refused, unanswered=given.unanswered,
            outlived=given.outlived, read=given.read,
        )  # fmt: skip

    def packed(self) -> bytes:
        return zlib.compress(pickle.dumps(self, pickle.HIGHEST_PROTOCOL), 1)

    @classmethod
    def unpacked(cls, data: bytes) -> FreshAnswer:
        answer: FreshAnswer = pickle.loads(zlib.decompress(data))
        return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshFrame:
    """What a fresh process sends: that it has begun, the sources of the item there (with digests), an answer (or a packed one),
    that it has finished, why the item could not be executed at all, or how it ended without finishing. `process`: its number.
    """

    kind: Literal["begun", "collected", "answer", "finished", "failed", "ended"]
    answer: FreshAnswer | None = None
    packed: bytes = b""
    sources: tuple[tuple[str, str], ...] = ()
    text: str = ""
    process: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshPlace:
    """Where the modules of a session are collected: its folder, its environment, and the user's entries of sys.path."""

    folder: str
    environment: Mapping[str, str]
    roots: tuple[str, ...]


class FreshProcesses:
    """The pristine processes of a session.

    `command` starts `mat_study.pristine.serve` with two more arguments, the number of an inherited socket and a folder. Modules
    are collected in `folder` and with `environment`, that of the start of the session. `roots`: the user's entries of sys.path,
    by default those of this process. `answer_s`: how long one execution may take. `forks`: False executes each batch in an
    interpreter of its own. `session`: a name that separates the modules from those of sessions that go on at the same time.
    `at_once`: how many of the batches that `begin_batches` gets are executed at the same time.
    """

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], *, roots: tuple[str, ...] | None = None,
        answer_s: float = ANSWER_S, forks: bool = FORKS, session: str = "", at_once: int = 1,
    ) -> None:  # fmt: skip
        self._session = session
        self._command, self._folder, self._environment = tuple(command), folder, dict(environment)
        self._answer_s, self._forks = answer_s, forks
        self._processes: dict[HashSeed, _Collected] = {}
        self._recent: list[FreshItem] = []  # one of each module, the latest last
        self._roots = roots
        self._at_once = at_once if forks else 1
        self._expected: deque[tuple[HashSeed, FreshBatch]] = deque()
        self._begun: list[tuple[HashSeed, FreshBatch, Connection]] = []
        SHARED.hold()

    @property
    def command(self) -> tuple[str, ...]:
        return self._command

    @property
    def place(self) -> FreshPlace:
        """Where modules are collected, so that another machine does it in the same way."""
        return FreshPlace(folder=str(self._folder), environment=self._environment, roots=self._known_roots())

    def _known_roots(self) -> tuple[str, ...]:
        if self._roots is None:  # a later execution may have left entries of its own in sys.path
            self._roots = tuple(user_roots())
        return self._roots

    def begin(self, hash_seeds: Sequence[HashSeed]) -> None:
        """Start pristine processes that will be needed, and do not wait for them.

        They inherit from this process: its umask, limits, ignored signals and more. So nothing must have been executed yet.
        """
        if self._forks:
            for hash_seed in hash_seeds:
                self._process(hash_seed)

    def begin_batches(self, item: FreshItem, batches: Sequence[tuple[HashSeed, Sequence[Plan]]]) -> bool:
        """Begin what `execute` will be asked for next, in this order and with `runs_only`; forget what it did not ask for.
        Returns whether some of it is executed at the same time.

        What was begun before is waited for: an execution that is killed leaves behind what it has taken.
        """
        self._expected.clear()
        while self._begun:
            hash_seed, batch, connection = self._begun.pop()
            for _ in self._frames(batch, self._process(hash_seed), begun=connection):
                pass
        if self._at_once > 1:
            self._expected.extend((seed, FreshBatch(item=item, plans=tuple(plans), runs_only=True)) for seed, plans in batches)
            self._begin_next()
        return len(self._begun) > 1

    def _begin_next(self) -> None:
        """Begin as many of the expected batches as may go on at the same time."""
        while self._expected and len(self._begun) < self._at_once:
            hash_seed, batch = self._expected.popleft()
            process = self._process(hash_seed)
            self._collect(batch.item, process)
            connection = process.connect(batch.item)
            if connection is not None:
                with suppress(OSError):  # who takes the connection finds that it is closed
                    connection.send_bytes(pickle.dumps(batch))
                self._begun.append((hash_seed, batch, connection))

    def _take_begun(self, batch: FreshBatch, hash_seed: HashSeed) -> Connection | None:
        found = next((each for each in self._begun if each[:2] == (hash_seed, batch)), None)
        if found is None:
            return None
        self._begun.remove(found)
        return found[2]

    def execute(
        self, item: FreshItem, plans: Sequence[Plan], *, hash_seed: HashSeed, runs_only: bool = False
    ) -> Iterator[FreshAnswer]:
        """Execute plans one after another in one new process, and yield each answer as soon as it is ready.

        `runs_only`: answers need not say what an execution read and left behind.

        If the process dies or does not answer in time, the plan is lost, and another process executes those after it; so it
        does after an execution that left something in the process that cannot be put back.
        MatError if the item cannot be collected there.
        """
        left = list(plans)
        while left:
            answered, batch = 0, FreshBatch(item=item, plans=tuple(left), runs_only=runs_only)
            for answer in self._batch(batch, hash_seed, self._take_begun(batch, hash_seed)):
                if answered < len(left):  # what an agent has forked may answer as well
                    answered += 1
                    yield answer
            left = left[answered:]
            self._begin_next()

    def _batch(self, batch: FreshBatch, hash_seed: HashSeed, connection: Connection | None) -> Iterator[FreshAnswer]:
        """At least one answer: that of a process which ended without any says so. `connection`: the batch was sent there."""
        output = "it ended without a message"
        failures = 0
        for _ in range(_TURNS):
            begun, process = False, self._process(hash_seed)
            self._collect(batch.item, process)
            for frame in self._frames(batch, process, begun=connection):
                begun = True
                if frame.kind == "failed":
                    raise _no_answer(frame.text, batch.item)
                if frame.kind == "ended":
                    yield FreshAnswer(outcome="error", why=f"its process {frame.text}")
                elif frame.answer is not None:
                    yield frame.answer
            if begun:
                return
            connection = None
            output = process.output(batch.item) or output
            process.wait_for(batch.item)
            failures += not process.has_collected(batch.item)  # one that has threads serves a single batch, perhaps another's
            if failures == _ATTEMPTS:
                break
        raise _no_answer(output, batch.item)

    def _collect(self, item: FreshItem, process: _Collected) -> None:
        """Have a module that a process will collect collected in all of them at the same time.

        All have finished before the first execution: an import may write what an execution reads.
        """
        if not self._forks or process.knows(item):
            return
        for each in self._processes.values():
            each.expect(item)
        for each in self._processes.values():
            each.wait_for(item)
        self._recent = [*(each for each in self._recent if each.arguments != item.arguments), item]
        for old in self._recent[:-MODULES_KEPT]:
            self.forget(old)
        del self._recent[:-MODULES_KEPT]

    def _frames(
        self, batch: FreshBatch, process: _Collected, *, begun: Connection | None = None,
        connected: Callable[[Connection], None] | None = None,
    ) -> Generator[FreshFrame, Plan | None, None]:  # fmt: skip
        """The frames of one process; none if it did not begin. The last is `finished` or `ended`.

        With `more`, a plan that is sent into the generator is executed next. `begun`: the connection through which the batch
        was sent. `connected` is called with the connection.
        """
        if not self._forks:
            yield from self._interpreter(batch, process)
            return
        connection = begun or process.connect(batch.item)
        if connection is None:
            return
        running = 0
        with connection:
            if connected is not None:
                connected(connection)
            try:
                if begun is None:
                    connection.send_bytes(pickle.dumps(batch))
                while True:
                    if not connection.poll(self._answer_s):
                        yield FreshFrame(kind="ended", text=f"gave no answer within {self._answer_s:.0f} s and was killed")
                        return
                    frame: FreshFrame = pickle.loads(connection.recv_bytes())
                    running = frame.process or running
                    if frame.kind in ("finished", "failed", "ended"):
                        running = 0
                    plan = yield frame
                    if not running:
                        return
                    if plan is not None:
                        connection.send_bytes(pickle.dumps(plan))
            except (EOFError, OSError):
                if running:
                    yield FreshFrame(kind="ended", text="was killed")
            finally:
                _kill(running)

    def _process(self, hash_seed: HashSeed) -> _Collected:
        known = self._processes.get(hash_seed)
        if known is None or not known.pristine.alive:
            roots = self._known_roots()
            environment = {**self._environment, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": os.pathsep.join(roots)}
            pristine = SHARED.get(self._command, self._folder, environment, forks=self._forks)
            known = self._processes[hash_seed] = _Collected(
                pristine, str(self._folder), environment, roots, self._session
            )  # fmt: skip
        return known

    def _interpreter(self, batch: FreshBatch, process: _Collected) -> Iterator[FreshFrame]:
        """Execute a batch in an interpreter of its own: for platforms without fork."""
        request, answer = process.pristine.place / "request", process.pristine.place / "answer"
        request.write_bytes(pickle.dumps(batch))
        answer.unlink(missing_ok=True)
        how = process.pristine.run_once(request, answer, seconds=self._answer_s * len(batch.plans))
        frames: list[FreshFrame] = []
        if answer.exists():
            with answer.open("rb") as stream, suppress(EOFError, pickle.UnpicklingError):
                while True:
                    frames.append(pickle.load(stream))
        yield from frames
        if frames and frames[-1].kind != "finished":
            yield FreshFrame(kind="ended", text=how)

    def forget(self, item: FreshItem) -> None:
        """End the processes that have collected the item's module."""
        for process in self._processes.values():
            process.forget(item)

    def close(self) -> None:
        """End the processes of this session's modules, and the pristine ones if nobody else shares them."""
        for *_, connection in self._begun:
            connection.close()  # which ends its process
        self._begun.clear()
        for process in self._processes.values():
            process.close()
        self._processes.clear()
        SHARED.release()


class FreshStream:
    """One fresh process that executes plan after plan, for another machine; a new one where an execution needs it.

    `open` begins with a plan, whose answer `answer` returns first, packed. One thread uses a stream at a time; any thread may
    `end` it.
    """

    def __init__(self, processes: FreshProcesses, item: FreshItem, *, hash_seed: HashSeed) -> None:
        self._processes, self._item, self._hash_seed = processes, item, hash_seed
        self._frames: Generator[FreshFrame, Plan | None, None] | None = None
        self._socket: socket.socket | None = None
        self._lock = Lock()
        self.is_ended = False

    def open(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """Begin a process with this plan; returns the sources of the item there. MatError if it cannot be collected,
        StreamEnded after `end`.
        """
        output = "it ended without a message"
        for _ in range(_ATTEMPTS):
            if self.is_ended:
                break
            process, batch = self._processes._process(self._hash_seed), FreshBatch(item=self._item, plans=(plan,), more=True)
            self._frames = self._processes._frames(batch, process, connected=self._connected)
            for frame in self._frames:
                if frame.kind == "collected":
                    return frame.sources
                if frame.kind in ("failed", "ended"):
                    output = frame.text
                    break
            self.close()
            output = process.output(self._item) or output
        if self.is_ended:
            raise StreamEnded("its stream was ended", finished=False)
        raise _no_answer(output, self._item)

    def _connected(self, connection: Connection) -> None:
        with self._lock:
            self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        if self.is_ended:
            self.end()

    @property
    def is_open(self) -> bool:
        return self._frames is not None

    def answer(self, plan: Plan | None = None) -> bytes:
        """The packed answer to the first plan, else to this one. StreamEnded if the process died."""
        assert self._frames is not None
        try:
            frame = next(self._frames) if plan is None else self._frames.send(plan)
        except StopIteration:
            frame = FreshFrame(kind="ended", text="was killed")
        if frame.kind == "answer":
            return frame.packed
        self.close()
        raise StreamEnded(f"its process {frame.text or 'has finished'}", finished=frame.kind == "finished")

    def end(self) -> None:
        """End the process for good, even if another thread waits for its answer: that thread gets StreamEnded."""
        with self._lock:
            self.is_ended = True
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the process."""
        if self._frames is not None:
            self._frames.close()
            self._frames = None
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None


class StreamEnded(Exception):  # noqa: N818  (named after what happened)
    """The process of a stream gives no answer: it died, or it `finished`, because its last execution left something behind."""

    def __init__(self, text: str, *, finished: bool) -> None:
        super().__init__(text)
        self.finished = finished


class FreshEvaluator:
    """An Evaluator whose executions each begin in a new process that has collected the item and executed nothing.

    `known`: an execution of the item in this process; contracts, workload and variants are taken from it.
    """

    def __init__(self, processes: FreshProcesses, item: FreshItem, known: Evaluated, *, hash_seed: HashSeed) -> None:
        self._processes, self._item, self._known, self._hash_seed = processes, item, known, hash_seed

    def __call__(self, plan: Plan) -> Evaluated | Lost:
        return next(self.batch([plan]))

    def batch(self, plans: Sequence[Plan]) -> Iterator[Evaluated | Lost]:
        """Execute plans one after another in one process; after one that killed its process, in another."""
        known = self._known
        plans = [replace(plan, variant=plan.variant or known.variant) for plan in plans]
        for plan, given in zip(plans, self._processes.execute(self._item, plans, hash_seed=self._hash_seed), strict=True):
            if given.run is not None:
                yield replace(
                    known,
                    plan=plan,
                    run=given.run,
                    judged=given.judged,
                    outcome=given.outcome,
                    outlived=given.outlived,
                    read=given.read,
                )
            else:
                yield Lost(
                    plan=plan, why=given.why, outcome=given.outcome, refused=given.refused, unanswered=given.unanswered,
                    task=known.task, variants=known.variants, outlived=given.outlived, read=given.read,
                )  # fmt: skip


class _Collected:
    """What one session has collected in a pristine process: its modules, and the way to reach them."""

    def __init__(
        self, pristine: _PristineProcess, folder: str, environment: Mapping[str, str], roots: tuple[str, ...], session: str
    ) -> None:
        self.pristine, self._session = pristine, session
        self._folder, self._environment, self._roots = folder, environment, roots
        self._modules: dict[tuple[str, ...], str] = {}
        self._successes: set[tuple[str, ...]] = set()

    def connect(self, item: FreshItem) -> Connection | None:
        """A connection to the process that has collected the item's module; None if it has died.

        The pristine process is asked for its socket once, and again after it died.
        """
        for refused in (False, True):
            if refused or item.arguments not in self._modules:
                name = self._ask(item.arguments, self._modules.get(item.arguments, ""))
                if not name:
                    return None
                self._modules[item.arguments] = name
            connection = _connected(self.pristine.place / self._modules[item.arguments])
            if connection is not None:
                return connection
        return None

    def knows(self, item: FreshItem) -> bool:
        """Whether the process of the item's module has been asked for."""
        return item.arguments in self._modules

    def expect(self, item: FreshItem) -> None:
        """Have the item's module collected, and wait for nothing."""
        if not self.knows(item):
            self.pristine.tell(self._request(item.arguments))

    def wait_for(self, item: FreshItem) -> None:
        """Wait until the item's module is collected, or its process has ended. MatError if that takes too long."""
        connection = self.connect(item)
        if connection is not None:
            with connection, suppress(EOFError, OSError):
                connection.send_bytes(pickle.dumps(AnswerWhenCollected()))
                if not connection.poll(ANSWER_S):
                    raise _no_answer(f"its module was not collected within {ANSWER_S:.0f} s", item)
                connection.recv_bytes()
                self._successes.add(item.arguments)

    def has_collected(self, item: FreshItem) -> bool:
        """Whether the item's module was ever collected here: then its process has ended because it has served a batch."""
        return item.arguments in self._successes

    def _ask(self, arguments: tuple[str, ...], left: str) -> str | None:
        """The socket of a module, another one than `left`, which takes no request any more."""
        return self.pristine.ask(self._request(arguments, left))

    def _request(self, arguments: tuple[str, ...], left: str = "") -> ModuleRequest:
        return ModuleRequest(
            arguments=arguments, folder=self._folder, environment=self._environment, roots=self._roots, left=left,
            session=self._session,
        )  # fmt: skip

    def forget(self, item: FreshItem) -> None:
        name = self._modules.pop(item.arguments, "")
        if name and self.pristine.is_own:
            self.pristine.ask(EndModules(names=(name,)))

    def close(self) -> None:
        if self._modules and self.pristine.is_own:
            self.pristine.ask(EndModules(names=tuple(self._modules.values())))

    def output(self, item: FreshItem) -> str:
        """The end of what the process of the item's module has printed, else of the pristine process."""
        names = [self._modules[item.arguments]] if item.arguments in self._modules else []
        return self.pristine.output((*names, "root"))


class _PristineProcess:
    """One pristine process and the way to reach it. Only the process that started it ends it."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str], *, forks: bool) -> None:
        self.place = _private_folder()
        self._command, self._folder, self._environment = command, folder, environment
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = self._start() if forks else None

    def _start(self) -> subprocess.Popen[bytes]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(self.place / "root"))
            listener.listen(16)
            with open(self.place / "root.output", "wb") as output:
                return subprocess.Popen(
                    [*self._command, str(listener.fileno()), str(self.place)], cwd=self.place, env=dict(self._environment),
                    stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, pass_fds=[listener.fileno()],
                    start_new_session=True,
                )  # fmt: skip

    @property
    def is_own(self) -> bool:
        """Whether this process started it; a worker did not."""
        return self._owner == os.getpid()

    @property
    def alive(self) -> bool:
        if not self.is_own or self._process is None:  # a worker cannot ask for another process's child
            return self.place.exists()
        return self._process.poll() is None

    def ask(self, request: ModuleRequest | EndModules) -> str | None:
        """The answer to a request; None if the process has died."""
        connection = _connected(self.place / "root")
        if connection is None:
            return None
        with connection, suppress(EOFError, OSError):
            connection.send_bytes(pickle.dumps(request))
            if connection.poll(ANSWER_S):
                return connection.recv_bytes().decode()
        return None

    def tell(self, request: ModuleRequest) -> None:
        """Send a request, and wait for nothing."""
        connection = _connected(self.place / "root")
        if connection is not None:
            with connection, suppress(OSError):
                connection.send_bytes(pickle.dumps(request))

    def output(self, names: Sequence[str]) -> str:
        """The end of what the first of these has printed that printed anything."""
        for name in names:
            path = self.place / f"{name}.output"
            text = path.read_bytes()[-_OUTPUT_BYTES:].decode(errors="replace").strip() if path.exists() else ""
            if text:
                return text
        return ""

    def run_once(self, request: Path, answer: Path, *, seconds: float) -> str:
        """Execute a request in an interpreter of its own; returns how that ended."""
        with open(self.place / "root.output", "wb") as output:
            process = subprocess.Popen(
                [*self._command, str(request), str(answer)], cwd=self._folder, env=dict(self._environment),
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
            try:
                return f"exited with {process.wait(seconds)}"
            except subprocess.TimeoutExpired:
                return f"gave no answer within {seconds:.0f} s and was killed"
            finally:
                process.kill()
                process.wait()

    def close(self) -> None:
        if not self.is_own:
            return
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()  # which ends it, and its children
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self.place, ignore_errors=True)


class SharedProcesses:
    """The pristine processes of this process, by what they were started with. They end when nobody holds them any more."""

    def __init__(self) -> None:
        self._processes: dict[tuple[object, ...], _PristineProcess] = {}
        self._holders = 0
        self._lock = Lock()

    def hold(self) -> None:
        with self._lock:
            self._holders += 1

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            unused = self._holders <= 0
        if unused:
            for process in self._processes.values():
                process.close()
            self._processes.clear()

    def get(self, command: tuple[str, ...], folder: Path, environment: Mapping[str, str], *, forks: bool) -> _PristineProcess:
        """A process that was started with the same settings of the interpreter, else a new one."""
        settings = tuple(sorted(each for each in environment.items() if each[0].startswith(_STARTING)))
        key = (os.getpid(), command, settings, forks, None if forks else folder)
        known = self._processes.get(key)
        if known is None or not known.alive:
            if known is not None:
                known.close()
            known = self._processes[key] = _PristineProcess(command, folder, environment, forks=forks)
        return known


_STARTING: Final = ("PYTHONHASHSEED", "PYTHONWARNINGS", "PYTHONDEVMODE", "PYTHONOPTIMIZE", "PYTHONUTF8", "LANG", "LC_", "TZ")
"""Variables that an interpreter reads once, when it starts."""
SHARED: Final = SharedProcesses()


def _kill(process: int) -> None:
    """Kill a process that has not finished, and its group; usually the process that has collected the module does so."""
    if process:
        for kill in (os.killpg, os.kill):
            with suppress(OSError):
                kill(process, signal.SIGKILL)


def _no_answer(why: str, item: FreshItem) -> MatError:
    return MatError(
        "the fresh process that confirms counterexamples did not answer",
        why=why,
        fix="run the test by its node id alone and see whether it is collected",
        where=item.node,
    )


def _connected(path: Path) -> Connection | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(str(path))
        except OSError:
            return None
        return Connection(client.detach())


def _private_folder() -> Path:
    place = tempfile.mkdtemp(prefix="mat-")
    if len(place) > _PATH_CHARS - 10 and os.name == "posix":
        os.rmdir(place)
        place = tempfile.mkdtemp(prefix="mat-", dir="/tmp")
    return Path(place)


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without what belongs to one session of pytest."""
    own = ("PYTEST_XDIST", "PYTEST_CURRENT", "COV_CORE")
    return {key: value for key, value in environment.items() if not key.startswith(own) and key != "PYTEST_ADDOPTS"}


def user_roots() -> list[str]:
    """The user's own entries of sys.path, in their order, so that imports resolve as they do here.

    They are PYTHONPATH, additions of a conftest or `pythonpath`, and editable installations; the interpreter adds the folders
    of the installation itself.
    """
    return [
        path for path in sys.path if path and "site-packages" not in path and not path.startswith((sys.prefix, sys.base_prefix))
    ]
