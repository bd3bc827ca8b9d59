"""Fresh processes: all collect a module at the same time, before any executes, and a session keeps few of them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mat.core.errors import MatError
from mat_study import fresh
from mat_study.evaluation import Plan
from mat_study.fresh import FORKS, MODULES_KEPT, FreshBatch, FreshItem, FreshProcesses

pytestmark = pytest.mark.skipif(not FORKS, reason="the processes are forks")

SERVED = '''
"""Collects modules, each of which may wait for a file of its name and hash seed, and executes plans."""
import os
import sys
import threading
import time
from pathlib import Path

from mat_study.fresh import FreshAnswer, FreshFrame
from mat_study.pristine import serve

SEED = os.environ["PYTHONHASHSEED"]


def note(what, which):
    with open("log", "a") as log:
        log.write(f"{what} {which} {os.getpid()}\\n")


def collect(arguments, run):
    note("begins", f"{arguments[-1]}/{SEED}")
    while Path("waiting", f"{arguments[-1]}-{SEED}").exists():
        time.sleep(0.01)
    if Path("broken", arguments[-1]).exists():
        raise OSError("No space left on device")
    if Path("threads").exists():
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    note("collected", f"{arguments[-1]}/{SEED}")
    run(execute)


def execute(batch, plans, files, send):
    for plan in plans:
        note("executes", plan.seed)
        if Path("forks").exists():
            os.fork()
        while Path("waiting", f"plan-{plan.seed}").exists():
            time.sleep(0.01)
        lost = Path("lost", str(plan.seed))
        run = None if lost.exists() else f"run of {plan.seed}"
        lost.unlink(missing_ok=True)
        note("executed", f"{arguments(batch)}/{SEED}")
        send(FreshFrame(kind="answer", answer=FreshAnswer(run=run, why="done")))


def arguments(batch):
    return batch.item.arguments[-1]


serve(sys.argv[-2:], collect)
'''


ITEM = FreshItem(node="test_a.py::test_pay", arguments=("test_a.py",))


class Session:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("waiting", "broken", "lost"):
            (folder / name).mkdir()
        (folder / "served.py").write_text(SERVED)
        environment = {"PATH": os.environ["PATH"], "PYTHONPYCACHEPREFIX": os.environ.get("PYTHONPYCACHEPREFIX", "")}
        command = (sys.executable, str(folder / "served.py"))
        self.processes = FreshProcesses(command, folder, environment, session=str(folder), at_once=2)
        self.processes.begin((1, 2))

    def execute(self, module: str, *, hash_seed: int = 1, plans: int = 1) -> list[str]:
        item = FreshItem(node=f"{module}::test_pay", arguments=(module,))
        asked = [Plan(mode="search", seed=seed) for seed in range(plans)]
        return [each.why for each in self.processes.execute(item, asked, hash_seed=hash_seed)]

    def begin(self, *batches: tuple[int, ...]) -> None:
        """Say that plans with these seeds will be asked for."""
        self.processes.begin_batches(ITEM, [(1, [Plan(mode="search", seed=seed) for seed in seeds]) for seeds in batches])

    def runs(self, *seeds: int) -> list[object]:
        plans = [Plan(mode="search", seed=seed) for seed in seeds]
        return [each.run for each in self.processes.execute(ITEM, plans, hash_seed=1, runs_only=True)]

    def executed(self, seed: int) -> list[int]:
        """The processes that have begun to execute a plan."""
        return [process for what, which, process in self.log() if (what, which) == ("executes", str(seed))]

    def log(self) -> list[tuple[str, str, int]]:
        path = self.folder / "log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(what, which, int(process)) for what, which, process in (line.split() for line in lines)]

    def noted(self) -> list[str]:
        return [f"{what} {which}" for what, which, _ in self.log()]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    found = Session(tmp_path)
    yield found
    found.processes.close()


def until(met: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 30
    while not met():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_all_processes_collect_a_module_before_one_executes(session: Session) -> None:
    (session.folder / "waiting" / "test_a.py-2").touch()
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(session.execute, "test_a.py")
        until(lambda: {"collected test_a.py/1", "begins test_a.py/2"} <= {*session.noted()})
        time.sleep(0.2)
        assert "executed test_a.py/1" not in session.noted()
        (session.folder / "waiting" / "test_a.py-2").unlink()
        assert answer.result(30) == ["done"]
    assert session.execute("test_a.py", hash_seed=2) == ["done"]
    assert sorted(each for each in session.noted() if each.startswith("collected")) == [
        "collected test_a.py/1", "collected test_a.py/2",
    ]  # fmt: skip


def test_a_module_that_cannot_be_collected_ends_in_its_message(session: Session) -> None:
    (session.folder / "broken" / "test_a.py").touch()
    with pytest.raises(Exception, match="No space left on device"):
        session.execute("test_a.py")
    assert session.execute("test_b.py", plans=2) == ["done", "done"]


def test_a_module_that_is_never_collected_is_given_up(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    assert session.execute("test_b.py") == ["done"]
    (session.folder / "waiting" / "test_a.py-2").touch()
    monkeypatch.setattr(fresh, "ANSWER_S", 1.0)
    with pytest.raises(MatError, match="was not collected within 1 s"):
        session.execute("test_a.py", plans=16)
    assert "executed test_a.py/1" not in session.noted()


def test_a_module_that_starts_threads_serves_all_who_wait_at_once(session: Session) -> None:
    """Its process cannot be forked, so it serves one batch and ends; those that wait for it get another one."""
    (session.folder / "threads").touch()
    with ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(session.execute, "test_a.py") for _ in range(8)]
        assert [answer.result(60) for answer in answers] == [["done"]] * 8


def test_a_session_keeps_the_processes_of_few_modules(session: Session) -> None:
    for number in range(MODULES_KEPT + 2):
        session.execute(f"test_{number}.py")
    collected = {which: process for what, which, process in session.log() if what == "collected"}
    assert len(collected) == 2 * (MODULES_KEPT + 2)
    old = [collected[f"test_{number}.py/{hash_seed}"] for number in (0, 1) for hash_seed in (1, 2)]
    until(lambda: not any(map(_is_alive, old)))
    assert all(_is_alive(process) for process in collected.values() if process not in old)
    assert session.execute("test_0.py") == ["done"], "it is collected again"


def test_as_many_batches_as_are_allowed_go_on_at_the_same_time(session: Session) -> None:
    for seed in (1, 2, 3):
        (session.folder / "waiting" / f"plan-{seed}").touch()
    session.begin((1,), (2,), (3,))
    until(lambda: session.executed(1) and session.executed(2))
    time.sleep(0.2)
    assert not session.executed(3)
    for seed in (1, 2, 3):
        (session.folder / "waiting" / f"plan-{seed}").unlink()
    assert [session.runs(seed) for seed in (1, 2, 3)] == [["run of 1"], ["run of 2"], ["run of 3"]]
    assert [len(session.executed(seed)) for seed in (1, 2, 3)] == [1, 1, 1], "nothing is executed twice"


def test_a_batch_that_nobody_expected_is_executed_as_ever(session: Session) -> None:
    session.begin((1,))
    assert session.runs(4, 5) == ["run of 4", "run of 5"]
    assert session.runs(1) == ["run of 1"]


def test_a_lost_execution_ends_no_other(session: Session) -> None:
    (session.folder / "lost" / "2").touch()
    session.begin((1, 2, 3), (4,))
    assert session.runs(1, 2, 3) == ["run of 1", None, "run of 3"]
    assert session.runs(4) == ["run of 4"]


def test_what_was_begun_in_a_process_that_is_gone_is_executed_anew(session: Session) -> None:
    (session.folder / "threads").touch()  # so it serves one batch and ends
    session.begin((1,), (2,), (3,))
    assert [session.runs(seed) for seed in (1, 2, 3)] == [["run of 1"], ["run of 2"], ["run of 3"]]


def test_an_agent_that_forks_answers_once(session: Session) -> None:
    (session.folder / "forks").touch()
    assert session.runs(1, 2)[0] == "run of 1"
    assert len(session.runs(3, 4)) == 2


def test_what_is_not_asked_for_is_waited_for_but_not_at_the_end_of_the_session(session: Session) -> None:
    (session.folder / "waiting" / "plan-1").touch()
    session.begin((1,))
    until(lambda: session.executed(1))
    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(session.begin)
        time.sleep(0.2)
        assert not ended.done()
        (session.folder / "waiting" / "plan-1").unlink()
        ended.result(30)
    assert "executed test_a.py/1" in session.noted()
    (session.folder / "waiting" / "plan-2").touch()
    session.begin((2,))
    until(lambda: session.executed(2))
    session.processes.close()
    until(lambda: not any(map(_is_alive, session.executed(2))))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("plans", "more", "runs_only", "ends"),
    [(1, False, True, True), (2, False, True, False), (1, True, True, False), (1, False, False, False)],
)
def test_only_a_process_with_one_execution_may_leave_what_it_likes(plans: int, more: bool, runs_only: bool, ends: bool) -> None:
    item, asked = FreshItem(node="test_a.py::test_pay", arguments=()), tuple(Plan(mode="search") for _ in range(plans))
    assert FreshBatch(item=item, plans=asked, more=more, runs_only=runs_only).ends_at_once is ends
