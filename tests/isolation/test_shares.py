"""What a run uses that another run at the same time would use as well: then fresh processes execute one after another."""

from __future__ import annotations

import asyncio
import mmap
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from mat.kernel.isolation import Isolation

fcntl = pytest.importorskip("fcntl", reason="the locks are those of POSIX")
Way = Callable[[Path], object]


def _listen(folder: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))


def _listen_by_name(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "s"))


def _call(folder: Path) -> None:
    with socket.socket() as client:
        client.connect_ex(("127.0.0.1", 9))


def _write_database(folder: Path) -> None:
    with sqlite3.connect(folder / "shop.db") as database:
        database.execute("CREATE TABLE orders (name)")
    database.close()


def _read_database(folder: Path) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE orders (name)")
    database.close()


def _temporary(folder: Path) -> None:
    with tempfile.TemporaryDirectory():
        pass


def _named_folder(folder: Path) -> None:
    own = Path(tempfile.gettempdir(), f"mat-shares-{os.getpid()}")
    own.mkdir()
    own.rmdir()


def _lock(lock: Callable[[int, int], None]) -> None:
    with open(__file__) as file:
        lock(file.fileno(), fcntl.LOCK_SH)


def _map(folder: Path) -> None:
    with open(__file__, "rb") as file:
        mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ).close()


def _loop(folder: Path) -> None:
    asyncio.new_event_loop().close()


SHARING: dict[str, Way] = {
    "a file": lambda folder: (folder / "orders").write_text("A17"),
    "a file that is made, and nothing written": lambda folder: os.close(os.open(folder / "lock", os.O_CREAT)),
    "a folder": lambda folder: (folder / "orders").mkdir(),
    "a database": _write_database,
    "a port": _listen,
    "a socket with a name": _listen_by_name,
    "a server": _call,
    "a temporary folder": _temporary,
    "a folder with a name beside those": _named_folder,
    "a database that is read": lambda folder: sqlite3.connect(folder / "shop.db").close(),
    "a lock": lambda folder: _lock(fcntl.flock),
    "a lock of a part": lambda folder: _lock(fcntl.lockf),
    "memory with a file": _map,
    "a process": lambda folder: subprocess.run([sys.executable, "-c", ""], check=True),
}
ALONE: dict[str, Way] = {
    "nothing": lambda folder: None,
    "a file that is read": lambda folder: Path(__file__).read_text(),
    "a database in memory": _read_database,
    "memory of its own": lambda folder: mmap.mmap(-1, 8).close(),
    "an event loop": _loop,
    "a pair of sockets": lambda folder: [each.close() for each in socket.socketpair()],
}


@pytest.mark.parametrize(("way", "shares"), [*((each, True) for each in SHARING), *((each, False) for each in ALONE)])
def test_what_two_runs_would_share(way: str, shares: bool, tmp_path: Path) -> None:
    isolation = Isolation([str(tmp_path)])
    isolation.start({})
    assert not isolation.shares
    isolation.execute(lambda: (SHARING | ALONE)[way](tmp_path))
    assert isolation.shares is shares
    isolation.execute(lambda: None)
    assert isolation.shares is shares, "one run is enough"
