"""The far end of a cluster, with the processes of an item that needs no pytest: what it executes, compares, and ends."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Timer

import pytest

from mat.core import limits
from mat.core.errors import MatError
from mat.kernel.reads import Read
from mat_study.contents import content_of
from mat_study.evaluation import Plan
from mat_study.fresh import FORKS, FreshAnswer, FreshItem, FreshPlace
from mat_study.inputs import project_files
from mat_study.remote import KnownFile, RemoteItem, RemoteItems, facts_digest
from pytest_mat import remote

pytestmark = pytest.mark.skipif(not FORKS, reason="the processes are forks")

SERVED = '''
"""Collects modules that wait for a file of their name, and executes plans that wait for a file named by their seed."""
import os
import sys
import time
from pathlib import Path

from mat_study.fresh import FreshAnswer, FreshFrame
from mat_study.pristine import serve


def wait_for(name):
    while Path("waiting", name).exists():
        time.sleep(0.01)


def collect(arguments, run):
    if "broken" in arguments:
        raise OSError("No space left on device")
    note("collected", arguments[-1])
    wait_for(arguments[-1])
    run(execute)


def execute(batch, plans, files, send):
    send(FreshFrame(kind="collected", sources=(("shop.py", Path("shop.py.digest").read_text()),)))
    for plan in plans:
        note("executed", plan.seed)
        if Path("rewritten").exists():
            Path("made.json").write_text(f"{os.getpid()}")
        wait_for(str(plan.seed))
        send(FreshFrame(kind="answer", packed=FreshAnswer(why=f"{os.getpid()}").packed()))


def note(what, which):
    with open("log", "a") as log:
        log.write(f"{what} {which} {os.getpid()}\\n")


serve(sys.argv[-2:], collect)
'''


class Far:
    """A worker, and a project in a folder. `execute` sends it a plan; `hold` makes a module or a seed wait until `let_go`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.items = RemoteItems(sys.executable)
        self.threads = ThreadPoolExecutor(4)
        self.clients: set[str] = set()
        (folder / "waiting").mkdir()
        (folder / "served.py").write_text(SERVED)
        (folder / "shop.py").write_text("PRICE = 1\n")
        (folder / "shop.py.digest").write_text(content_of(str(folder / "shop.py")))

    def item(self, *, client: str = "one", module: str = "test_a.py", session: str = "", **changed: object) -> RemoteItem:
        self.clients.add(client)
        sources = {"shop.py": content_of(str(self.folder / "shop.py"))}
        environment = {"PATH": os.environ["PATH"], "PYTHONPYCACHEPREFIX": os.environ.get("PYTHONPYCACHEPREFIX", "")}
        item = RemoteItem(
            session=session or "session", client=client, command=(str(self.folder / "served.py"),),
            place=FreshPlace(folder=str(self.folder), environment=environment, roots=()), hash_seed=1, root=str(self.folder),
            item=FreshItem(node=f"{module}::test_pay", arguments=(module,)), names=tuple(sources),
            sources=facts_digest(sources),
        )  # fmt: skip
        return replace(item, **changed)  # type: ignore[arg-type]

    def execute(self, item: RemoteItem, seed: int = 1) -> tuple[str, dict[str, str], str]:
        """The kind of the reply, its facts, and the process that answered."""
        sent = zlib.compress(pickle.dumps(item)), pickle.dumps(Plan(mode="search", seed=seed))
        kind, facts, packed = self.items.execute(*sent)
        return kind, facts, FreshAnswer.unpacked(packed).why if packed else ""

    def hold(self, name: str) -> None:
        (self.folder / "waiting" / name).touch()

    def let_go(self, name: str) -> None:
        (self.folder / "waiting" / name).unlink()

    def log(self, what: str) -> list[str]:
        path = self.folder / "log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.removeprefix(f"{what} ") for line in lines if line.startswith(what)]

    def close(self) -> None:
        for path in (self.folder / "waiting").glob("*"):
            path.unlink()
        self.threads.shutdown()
        for client in self.clients:
            self.items.release(client)


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Far]:
    found = Far(tmp_path)
    yield found
    found.close()


def until(met: Callable[[], object]) -> None:
    """Wait for what other processes do."""
    deadline_s = time.monotonic() + 30
    while not met():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def is_alive(process: int) -> bool:
    with suppress(OSError):
        os.kill(process, 0)
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    return False


# -- the end of a client ------------------------------------------------------------------------------------------------


def test_a_plan_of_a_client_that_is_released_ends_at_once_and_is_not_executed_again(far: Far) -> None:
    far.hold("1")
    running = far.threads.submit(far.execute, far.item(), 1)
    until(lambda: far.log("executed"))
    far.items.release("one")
    kind, _, _ = running.result(10)
    assert kind == "lost"
    ((_, process),) = [line.split() for line in far.log("executed")]
    ((_, module),) = [line.split() for line in far.log("collected")]
    until(lambda: not is_alive(int(process)) and not is_alive(int(module)))


def test_a_client_that_is_released_while_its_item_is_collected_leaves_no_process(far: Far) -> None:
    far.hold("test_a.py")
    running = far.threads.submit(far.execute, far.item())
    until(lambda: far.log("collected"))
    far.items.release("one")
    assert running.result(10)[0] == "lost"
    ((_, module),) = [line.split() for line in far.log("collected")]
    until(lambda: not is_alive(int(module)))
    assert far.log("executed") == []


def test_a_task_that_comes_after_its_client_was_released_begins_nothing(far: Far) -> None:
    far.items.release("one")
    assert far.execute(far.item())[0] == "lost"
    assert far.log("collected") == []


def test_a_client_of_the_same_session_shares_the_module_and_goes_on_when_another_one_is_released(far: Far) -> None:
    first, second = far.item(client="one"), far.item(client="two")
    assert far.execute(first)[0] == "answer"
    far.hold("2")
    running = far.threads.submit(far.execute, second, 2)
    until(lambda: len(far.log("executed")) == 2)
    far.items.release("one")
    far.let_go("2")
    assert running.result(10)[0] == "answer"
    assert [line.split()[0] for line in far.log("executed")] == ["1", "2"]
    assert len(far.log("collected")) == 1


def test_a_session_does_not_get_the_modules_that_another_one_has_collected(far: Far) -> None:
    first, second = far.item(client="one", session="first"), far.item(client="two", session="second")
    assert far.execute(first)[0] == far.execute(second)[0] == "answer"
    assert len(far.log("collected")) == 2
    far.hold("2")
    running = far.threads.submit(far.execute, second, 2)
    until(lambda: len(far.log("executed")) == 3)
    far.items.release("one")
    far.let_go("2")
    assert running.result(10)[0] == "answer"
    assert len(far.log("executed")) == 3


@pytest.mark.full
def test_a_worker_releases_a_client_without_holding_up_its_event_loop(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_ITEMS", far.items)
    assert far.execute(far.item(client="one"))[0] == "answer"
    far.hold("test_b.py")
    running = far.threads.submit(far.execute, far.item(client="two", module="test_b.py"))
    until(lambda: len(far.log("collected")) == 2)
    Timer(2, far.let_go, ["test_b.py"]).start()

    async def ticks_during_release() -> int:
        ticks, released = 0, asyncio.ensure_future(remote.release("one"))
        while not released.done():
            ticks += 1
            await asyncio.sleep(0.01)
        return ticks

    assert asyncio.run(ticks_during_release()) > 10
    assert running.result(10)[0] == "answer"


# -- what is compared ---------------------------------------------------------------------------------------------------


def differing(far: Far, item: RemoteItem) -> dict[str, str]:
    kind, facts, _ = far.execute(item)
    assert facts.pop("worker", "") if kind == "differs" else kind == "answer"
    return facts


def test_a_source_that_is_missing_or_has_another_content_is_named_before_anything_is_collected(far: Far) -> None:
    item = far.item()
    (far.folder / "shop.py").write_text("PRICE = 2\n")
    assert differing(far, item) == {"shop.py": content_of(str(far.folder / "shop.py"))}
    (far.folder / "shop.py").unlink()
    assert differing(far, item) == {"shop.py": "missing"}
    assert far.log("collected") == []


def test_a_source_that_only_the_worker_imports_is_named(far: Far) -> None:
    (far.folder / "shop.py.digest").write_text("another one")
    assert differing(far, far.item()) == {"shop.py": "another one"}


@pytest.mark.parametrize(
    ("here", "there", "found"),
    [
        ("{}", "{}", ""),
        ("", "", ""),
        ("{}", '{"a": 1}', "another content"),
        ("{}", "[]", "another content"),
        ("{}", None, "missing there"),
        (None, "{}", "a file there, missing here"),
        (None, "", "a file there, missing here"),
        (None, None, ""),
    ],
)  # fmt: skip
def test_a_file_that_is_read_must_be_the_same_there_or_be_missing_on_both_sides(
    far: Far, here: str | None, there: str | None, found: str
) -> None:
    path = far.folder / "prices.json"
    write(path, here)
    item = far.item(files=(KnownFile.of(str(path)),))
    write(path, there)
    assert differing(far, item) == ({str(path): found} if found else {})


def write(path: Path, text: str | None) -> None:
    path.unlink(missing_ok=True)
    if text is not None:
        path.write_text(text)


def test_a_cassette_may_have_grown_and_not_have_changed(far: Far) -> None:
    path = far.folder / "cassette"
    path.write_text("one\n")
    item = far.item(files=(KnownFile.of(str(path), grows=True),))
    path.write_text("one\ntwo\n")
    assert differing(far, item) == {}
    path.write_text("two\none\n")
    assert differing(far, far.item(client="two", files=item.files)) == {str(path): "another content"}


@pytest.mark.parametrize(("rewritten", "found"), [(False, ""), (True, "another content")])
def test_a_file_that_a_fixture_makes_is_compared_after_the_first_execution_and_before_its_answer_is_used(
    far: Far, rewritten: bool, found: str
) -> None:
    path = far.folder / "made.json"
    path.write_text("here")
    item = far.item(files=(KnownFile.of(str(path), made=True),))
    if rewritten:
        (far.folder / "rewritten").touch()
    assert differing(far, item) == ({str(path): found} if found else {})
    assert len(far.log("executed")) == 1


def test_no_file_of_the_project_that_was_read_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "INPUT_BYTES", 10)
    (tmp_path / "large").write_bytes(b"x" * 11)
    (tmp_path / "changed").write_text("a moment ago")
    names = [str(tmp_path / name) for name in ("changed", "large", "missing")]
    read = [Read("file", name) for name in (*names, "/etc/hosts", str(tmp_path / ".git" / "HEAD"))]
    assert project_files(read, tmp_path) == names


def test_a_file_is_digested_piece_by_piece(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"x" * 2_500_000)
    assert content_of(str(path), size=2_500_000) == content_of(str(path)) != content_of(str(path), size=2_499_999)
    (tmp_path / "copy").write_bytes(b"x" * 2_499_999)
    assert content_of(str(tmp_path / "copy")) == content_of(str(path), size=2_499_999)


# -- what is the worker's own fault -------------------------------------------------------------------------------------


def test_a_worker_that_cannot_collect_an_item_has_failed_and_says_why(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_ITEMS", far.items)
    item = far.item(module="broken")
    with pytest.raises(MatError, match="No space left on device"):
        far.execute(item)
    sent = zlib.compress(pickle.dumps(item)), pickle.dumps(Plan(mode="search", seed=1))
    kind, facts, packed = remote.execute(facts_digest(remote.versions()), *sent)
    assert (kind, packed) == ("failed", b"")
    assert "No space left on device" in facts["why"]
    assert str(os.getpid()) in facts["worker"]


def test_a_fault_of_a_worker_that_nobody_foresaw_is_its_own_too() -> None:
    kind, facts, _ = remote.execute(facts_digest(remote.versions()), b"no item", b"")
    assert kind == "failed"
    assert facts["why"].startswith("error: ")


def test_a_worker_with_other_versions_differs_and_executes_nothing() -> None:
    kind, facts, _ = remote.execute("another digest", b"no item", b"")
    assert kind == "differs"
    assert facts["Python"] == sys.version
