"""Between a session and a cluster: how a session ends, what it does with answers, and which workers get tasks."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from mat_search.executions import UnfitWorkersError, work
from mat_study.cluster import Cluster, ClusterPool, RemoteSubject
from mat_study.evaluation import Plan
from mat_study.fresh import FreshAnswer, FreshItem, FreshPlace
from mat_study.link import LinkFrame, LinkTask, reason_of
from mat_study.receiving import WorkerFailed
from mat_study.remote import RemoteItem

LINK = '''
"""A link whose workers can import this module; what they do depends on the plan."""
import os
import sys
import time
from multiprocessing.connection import Connection

import distributed

from mat_study.link import ClusterTasks, serve


def execute(versions, item, plan):
    worker = f"worker {os.getpid()}"
    if plan == b"no module":
        import pytest_mat_that_nobody_has
    if plan == b"no library":
        raise ImportError("libc.so.7: cannot open shared object file")
    if item == b"sick everywhere" or (item == b"sick" and claimed() == os.getpid()):
        return "failed", {"worker": worker, "why": "the disk is full"}, b""
    if plan == b"slow" and not os.path.exists("slow"):
        with open("slow.part", "w") as file:
            file.write(str(os.getpid()))
        os.rename("slow.part", "slow")
        time.sleep(60)
    if plan == b"quick":
        return "answer", {"task": distributed.get_worker().get_current_task()}, b""
    time.sleep(0.05)
    return "answer", {}, str(os.getpid()).encode()


def claimed():
    """The first worker that asks."""
    try:
        with open("claimed", "x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        time.sleep(0.1)
    with open("claimed") as file:
        return int(file.read())


async def release(client):
    with open("released", "a") as file:
        file.write(f"{client}\\n")


if __name__ == "__main__":
    import link_of_test

    tasks = ClusterTasks(execute=link_of_test.execute, release=link_of_test.release)
    address, connection = sys.argv[1:]
    serve(Connection(int(connection)), tasks, address=address, workers=2, versions="", client="client")
'''
SCRIPTED = '''
"""In place of a link: writes the frames that it finds in a file, those of a task once it is sent."""
import pickle
import sys
from multiprocessing.connection import Connection

connection = Connection(int(sys.argv[1]))
with open("frames", "rb") as file:
    frames = pickle.load(file)
number = -1
while True:
    for frame in frames:
        if frame.number == number:
            connection.send(frame)
    number = connection.recv().number
'''


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "link_of_test.py").write_text(LINK)
    (tmp_path / "scripted.py").write_text(SCRIPTED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


@pytest.fixture
def link(place: Path) -> Iterator[tuple[Connection, subprocess.Popen[bytes]]]:
    """A link with a cluster of two workers on this machine, and the session's end of its connection."""
    ours, theirs = Pipe()
    process = subprocess.Popen(
        [sys.executable, "link_of_test.py", "", str(theirs.fileno())], cwd=place, pass_fds=[theirs.fileno()],
        start_new_session=True, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    theirs.close()
    yield ours, process
    ours.close()
    try:
        process.wait(20)
    finally:
        process.kill()


def received(connection: Connection) -> LinkFrame:
    assert connection.poll(60)
    frame: LinkFrame = connection.recv()
    return frame


def told(connection: Connection) -> LinkFrame:
    """The next frame that tells of a task: how many a worker gets together may change at any time."""
    frame = received(connection)
    while frame.kind == "ready":
        frame = received(connection)
    return frame


def ready(connection: Connection) -> None:
    frame = received(connection)
    while frame.threads < 2:
        assert frame.kind == "ready"
        frame = received(connection)


def cluster(place: Path, *command: str, address: str = "") -> Cluster:
    return Cluster([sys.executable, *command], place, dict(os.environ), address=address, most=None)


def pool(cluster: Cluster, receive: Callable[[FreshAnswer], Any], told: list[str] | None = None) -> ClusterPool:
    item = RemoteItem(
        session="session", client="client", command=(), place=FreshPlace(folder="", environment={}, roots=()),
        item=FreshItem(node="test_shop.py::test_pay", arguments=()), hash_seed=1, root="", names=(), sources="",
    )  # fmt: skip
    subject = RemoteSubject(item=item, versions={"Python": "3.14"}, sources={"shop.py": "1"})
    return cluster.pool(
        subject, lambda evaluate, spec: Plan(mode="search"), receive, [].append if told is None else told.append
    )


def scripted(place: Path, *frames: LinkFrame) -> Cluster:
    """A cluster whose link writes these frames."""
    (place / "frames").write_bytes(pickle.dumps((LinkFrame(kind="ready", threads=2), *frames)))
    found = cluster(place, "scripted.py")
    found.begin()
    return found


def answered(number: int, packed: bytes) -> LinkFrame:
    return LinkFrame(kind="reply", number=number, reply=("answer", {}, packed))


# -- how a session ends -------------------------------------------------------------------------------------------------


def test_a_session_that_ends_while_its_link_connects_does_not_wait_for_it(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = cluster(
            place, "link_of_test.py", f"tcp://127.0.0.1:{silent.getsockname()[1]}", address="tcp://silent"
        )  # fmt: skip
        found.begin()
        silent.settimeout(60)
        accepted, _ = silent.accept()  # and says nothing
        began_s = time.monotonic()
        found.close()
        assert time.monotonic() - began_s < 4
        accepted.close()


@pytest.mark.full
def test_a_session_that_ends_while_a_local_cluster_starts_leaves_no_process(
    link: tuple[Connection, subprocess.Popen[bytes]],
) -> None:
    connection, process = link
    until(lambda: children_of(process.pid))
    children = children_of(process.pid)
    connection.close()
    process.wait(5)
    until(lambda: not any(is_alive(each) for each in children))


@pytest.mark.full
def test_a_link_that_receives_what_it_cannot_read_ends_with_its_workers_told(
    link: tuple[Connection, subprocess.Popen[bytes]], place: Path
) -> None:
    connection, process = link
    ready(connection)
    connection.send_bytes(b"no task")
    assert process.wait(20) == 0
    assert set((place / "released").read_text().split()) == {"client"}


@pytest.mark.full
def test_a_task_that_was_written_by_half_ends_the_cluster(place: Path) -> None:
    found = cluster(place, "-c", "import time; time.sleep(2)")
    found.begin()
    told = pool_without_waiting(found)

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            found.send(told, b"x" * 5_000_000, b"")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert found.gone == "interrupted"
    with pytest.raises(RuntimeError, match="interrupted"):
        found.send(told, b"", b"")
    found.close()


def pool_without_waiting(cluster: Cluster) -> ClusterPool:
    cluster._threads = 1
    return pool(cluster, lambda answer: None)


# -- what a session does with answers -----------------------------------------------------------------------------------


def test_a_fault_of_the_session_is_not_taken_for_one_of_a_worker(place: Path) -> None:
    def receive(answer: FreshAnswer) -> Any:
        return 1 // 0

    found = scripted(place, answered(1, FreshAnswer(why="executed").packed()))
    with pool(found, receive) as executor:
        answer = executor.submit(work, None, None, None)
        with pytest.raises(ZeroDivisionError):
            answer.exception(30)
    found.close()


def test_an_answer_that_cannot_be_read_is_a_fault_of_its_worker(place: Path) -> None:
    found = scripted(place, answered(1, b"no answer"), answered(2, FreshAnswer(why="executed").packed()))
    with pool(found, lambda answer: answer.why) as executor:
        first, second = (executor.submit(work, None, None, None) for _ in range(2))
        assert isinstance(first.exception(30), WorkerFailed)
        assert second.result(30) == "executed"
    found.close()


def test_a_frame_of_a_kind_that_nobody_knows_is_an_error(place: Path) -> None:
    unknown: Any = "unheard"
    found = scripted(place, LinkFrame(kind=unknown, number=1))
    with pool(found, lambda answer: answer.why) as executor:
        answer = executor.submit(work, None, None, None)
        with pytest.raises(AssertionError, match="unheard"):
            answer.exception(30)
    found.close()


def test_only_a_difference_refuses_the_workers_and_a_fault_of_one_does_not(place: Path) -> None:
    failed: Any = ("failed", {"worker": "far", "why": "the disk is full"}, b"")
    differs: Any = ("differs", {"worker": "far", "shop.py": "2"}, b"")
    found = scripted(
        place, LinkFrame(kind="given-up", number=1, text="far: the disk is full"),
        LinkFrame(kind="reply", number=1, reply=failed), LinkFrame(kind="reply", number=2, reply=differs),
    )  # fmt: skip
    told: list[str] = []
    with pool(found, lambda answer: answer.why, told) as executor:
        first, second = (executor.submit(work, None, None, None) for _ in range(2))
        assert isinstance(first.exception(30), WorkerFailed)
        refused = second.exception(30)
        assert isinstance(refused, UnfitWorkersError)
        assert refused.what == "far would execute something else: shop.py differs"
    assert told == ["a worker is given up: far: the disk is full"]
    found.close()


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("", "without a message"),
        ("Traceback\n  File\nOSError: the disk is full\n", "OSError: the disk is full"),
        ("=== ERRORS ===\n    import numpy\nE   ImportError: libx.so.1\n=== 1 error in 0.1s ===\n", "ImportError: libx.so.1"),
    ],
)  # fmt: skip
def test_the_reason_is_the_line_that_says_most(output: str, line: str) -> None:
    assert reason_of(output) == line


# -- which workers get tasks --------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_worker_that_fails_is_given_up_by_name_and_for_its_item_alone(
    link: tuple[Connection, subprocess.Popen[bytes]], place: Path
) -> None:
    connection, _ = link
    ready(connection)
    for number in range(6):
        connection.send(LinkTask(number=number, item=b"sick", plan=b""))
    frames = [told(connection) for _ in range(7)]
    sick = (place / "claimed").read_text()
    assert [each.text for each in frames if each.kind == "given-up"] == [f"worker {sick}: the disk is full"]
    replies = {each.number: each.reply for each in frames if each.kind == "reply"}
    assert sorted(replies) == list(range(6))
    assert {each and each[0] for each in replies.values()} == {"answer"}
    assert sick.encode() not in {each and each[2] for each in replies.values()}
    for number in range(10, 30):
        connection.send(LinkTask(number=number, item=b"another", plan=b""))
    answers = [told(connection).reply for _ in range(20)]
    assert sick.encode() in {each and each[2] for each in answers}


@pytest.mark.nightly
def test_a_task_whose_only_worker_dies_does_not_wait_for_it_and_later_ones_go_to_its_successor(
    link: tuple[Connection, subprocess.Popen[bytes]], place: Path
) -> None:
    connection, _ = link
    ready(connection)
    connection.send(LinkTask(number=1, item=b"sick", plan=b""))
    while told(connection).kind != "reply":
        connection.send(LinkTask(number=2, item=b"sick", plan=b""))
    connection.send(LinkTask(number=3, item=b"sick", plan=b"slow"))
    until((place / "slow").exists)
    able, sick = (int((place / name).read_text()) for name in ("slow", "claimed"))
    assert able != sick
    os.kill(able, signal.SIGKILL)
    number, frame = 3, LinkFrame(kind="lost")
    while frame.reply is None:  # nobody is left, until a worker takes the place of the one that died
        while frame.number != number:
            frame = told(connection)
        number += 1
        connection.send(LinkTask(number=number, item=b"sick", plan=b""))
        time.sleep(0.1)
    assert frame.reply[0] == "answer"
    assert int(frame.reply[2]) not in (able, sick)


@pytest.mark.full
def test_a_task_that_no_worker_can_execute_is_lost_and_only_missing_code_makes_workers_unfit(
    link: tuple[Connection, subprocess.Popen[bytes]],
) -> None:
    connection, _ = link
    ready(connection)
    connection.send(LinkTask(number=1, item=b"sick everywhere", plan=b""))
    frames = [told(connection) for _ in range(3)]
    assert [each.kind for each in frames] == ["given-up", "given-up", "lost"]
    assert frames[-1].text == f"no worker is left: {frames[0].text}; {frames[1].text}"
    connection.send(LinkTask(number=2, item=b"sick everywhere", plan=b""))
    assert told(connection).kind == "lost"
    connection.send(LinkTask(number=3, item=b"", plan=b"no library"))
    assert told(connection).kind == "lost"
    connection.send(LinkTask(number=4, item=b"", plan=b"no module"))
    assert told(connection).kind == "unfit"


@pytest.mark.full
def test_short_tasks_travel_together_and_one_that_fails_takes_no_other_with_it(
    link: tuple[Connection, subprocess.Popen[bytes]],
) -> None:
    connection, _ = link
    ready(connection)
    connection.send(LinkTask(number=0, item=b"", plan=b"quick"))
    batch = 1
    while (frame := received(connection)).kind != "reply":
        batch = frame.batch
    for number in range(1, 20):  # what a task takes is learnt, though the first one may have waited for an import
        connection.send(LinkTask(number=number, item=b"", plan=b"quick"))
        while (frame := received(connection)).kind != "reply":
            batch = frame.batch
    assert batch == 4
    for number in range(20, 40):
        connection.send(LinkTask(number=number, item=b"", plan=b"quick"))
    replies = [told(connection).reply for _ in range(20)]
    together = Counter(reply[1]["task"] for reply in replies if reply is not None)
    assert 1 < max(together.values()) <= 4
    for number in range(40, 60):
        connection.send(LinkTask(number=number, item=b"", plan=b"no library" if number in (41, 48) else b"quick"))
    frames = [told(connection) for _ in range(20)]
    assert {frame.number: frame.kind for frame in frames} == {
        number: "lost" if number in (41, 48) else "reply" for number in range(40, 60)
    }


def until(met: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 30
    while not met():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def children_of(process: int) -> list[int]:
    import psutil

    with suppress(psutil.NoSuchProcess):
        return [each.pid for each in psutil.Process(process).children(recursive=True)]
    return []


def is_alive(process: int) -> bool:
    import psutil

    return bool(psutil.pid_exists(process) and psutil.Process(process).status() != psutil.STATUS_ZOMBIE)
