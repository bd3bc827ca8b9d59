"""The ways out of a virtual run: each is refused, by whatever module of Python it is taken, and says where and what helps."""

from __future__ import annotations

import _posixsubprocess
import _socket
import asyncio
import ctypes.util
import ftplib
import http.client
import imaplib
import multiprocessing
import os
import platform
import pty
import smtplib
import socket
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from socket import create_connection, getaddrinfo
from typing import Any

import pytest

import mat
from mat.adapters import program
from mat.core.errors import Uncontrolled

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="some of the ways are those of Unix")
HOST, ADDRESS = "192.0.2.1", ("192.0.2.1", 80)
"""An address that nobody has (RFC 5737)."""
COMMAND = [sys.executable, "-S", "-c", "import sys; print(sys.argv)"]


def sockets(kind: int, use: Callable[[socket.socket], Any]) -> None:
    with socket.socket(socket.AF_INET, kind) as made:
        made.setblocking(False)
        use(made)


def raw(use: Callable[[Any], Any]) -> None:
    made = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    try:
        use(made)
    finally:
        made.close()


async def datagrams() -> None:
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=ADDRESS)


async def loop_connects() -> None:
    with socket.socket() as made:
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, ADDRESS)


async def over_tls() -> None:
    await asyncio.open_connection(HOST, 443, ssl=ssl.create_default_context())


async def asyncio_child() -> None:
    await asyncio.create_subprocess_exec(*COMMAND)


def tls() -> None:
    context = ssl.create_default_context()
    with socket.socket() as plain, context.wrap_socket(plain, server_hostname="service.invalid") as made:
        made.connect(ADDRESS)


def in_a_thread() -> None:
    caught: list[BaseException] = []

    def reach() -> None:
        try:
            create_connection(ADDRESS)
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=reach)
    thread.start()
    thread.join()
    raise caught[0]


def spawned() -> None:
    process = multiprocessing.get_context("spawn").Process(target=print)
    process.start()
    process.join()


WAYS: dict[str, Callable[[], Any]] = {
    "connect": lambda: sockets(socket.SOCK_STREAM, lambda made: made.connect(ADDRESS)),
    "connect_ex": lambda: sockets(socket.SOCK_STREAM, lambda made: made.connect_ex(ADDRESS)),
    "connect by UDP": lambda: sockets(socket.SOCK_DGRAM, lambda made: made.connect(ADDRESS)),
    "sendto": lambda: sockets(socket.SOCK_DGRAM, lambda made: made.sendto(b"x", ADDRESS)),
    "sendto with flags": lambda: sockets(socket.SOCK_DGRAM, lambda made: made.sendto(b"x", 0, ADDRESS)),
    "sendmsg": lambda: sockets(socket.SOCK_DGRAM, lambda made: made.sendmsg([b"x"], [], 0, ADDRESS)),
    "_socket": lambda: raw(lambda made: made.sendto(b"x", ADDRESS)),
    "_socket.connect": lambda: raw(lambda made: made.connect(ADDRESS)),
    "create_connection": lambda: create_connection(ADDRESS, timeout=1),
    "getaddrinfo": lambda: getaddrinfo("service.invalid", 443),
    "_socket.getaddrinfo": lambda: _socket.getaddrinfo("service.invalid", 443),
    "gethostbyname": lambda: socket.gethostbyname("service.invalid"),
    "gethostbyname_ex": lambda: socket.gethostbyname_ex("service.invalid"),
    "gethostbyaddr": lambda: socket.gethostbyaddr(HOST),
    "getnameinfo": lambda: socket.getnameinfo(ADDRESS, 0),
    "create_datagram_endpoint": lambda: asyncio.run(datagrams()),
    "sock_connect": lambda: asyncio.run(loop_connects()),
    "asyncio with TLS": lambda: asyncio.run(over_tls()),
    "ssl": tls,
    "urllib": lambda: urllib.request.build_opener(urllib.request.ProxyHandler({})).open("http://service.invalid/"),
    "http.client": lambda: http.client.HTTPConnection(HOST, timeout=1).request("GET", "/"),
    "https": lambda: http.client.HTTPSConnection(HOST, timeout=1).request("GET", "/"),
    "smtplib": lambda: smtplib.SMTP(HOST, timeout=1),
    "ftplib": lambda: ftplib.FTP(HOST, timeout=1),
    "imaplib": lambda: imaplib.IMAP4(HOST, timeout=1),
    "a thread": in_a_thread,
    "loopback": lambda: create_connection(("127.0.0.1", 9), timeout=1),
    "subprocess.run": lambda: subprocess.run(COMMAND, check=True),
    "subprocess.Popen": lambda: subprocess.Popen(COMMAND),
    "a shell": lambda: subprocess.run("true", shell=True, check=True),
    "asyncio's processes": lambda: asyncio.run(asyncio_child()),
    "os.system": lambda: os.system("true"),
    "os.popen": lambda: os.popen("true").read(),
    "os.posix_spawn": lambda: os.posix_spawn(sys.executable, COMMAND, os.environ),
    "os.execv in a fork": lambda: _in_fork(lambda: os.execv(sys.executable, COMMAND)),
    "os.execvpe in a fork": lambda: _in_fork(lambda: os.execvpe(sys.executable, COMMAND, os.environ)),
    "pty.spawn": lambda: pty.spawn(COMMAND),
    "multiprocessing's spawn": spawned,
    "_posixsubprocess": lambda: _posixsubprocess.fork_exec(COMMAND),
    "the network in a fork": lambda: _in_fork(lambda: socket.gethostbyname("service.invalid")),
}


def _in_fork(act: Callable[[], Any]) -> None:
    """Raise what `act` is refused with in a forked child."""
    child = os.fork()
    if child == 0:
        try:
            act()
        except Uncontrolled:
            os._exit(7)
        finally:
            os._exit(1)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7:
        raise Uncontrolled(
            "was refused during the run, in the fork", fix="see above", where="main/service:leave#1 test_ways_out.py:"
        )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("way", WAYS)
def test_a_way_out_is_refused_with_its_site_its_place_and_what_helps(way: str) -> None:
    @mat.tool
    def leave() -> None:
        WAYS[way]()

    with mat.run() as run, pytest.raises(Uncontrolled, match="was refused during the run") as caught:
        leave()
    assert caught.value.fix
    assert "main/service:leave#1" in caught.value.where
    assert "test_ways_out.py:" in caught.value.where
    assert run.result is not None
    if "fork" not in way:
        assert {"network-refused", "process-refused"} & {item.code for item in run.result.findings}


def test_a_message_that_asyncio_swallows_is_not_sent_and_is_noted() -> None:
    """Transports of datagrams raise nothing to whoever sends."""

    async def send() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, family=socket.AF_INET)
        transport.sendto(b"x", ADDRESS)
        transport.close()

    with mat.run() as run:
        asyncio.run(send())
    assert run.result is not None
    assert [item.message for item in run.result.findings if item.code == "network-refused"] == [
        "a message to 192.0.2.1:80 was refused"
    ]


def test_before_and_after_a_run_and_in_real_time_nothing_is_refused() -> None:
    for where in (None, mat.run(clock="real")):
        if where is not None:
            where.__enter__()
        try:
            assert subprocess.run(COMMAND, check=True, capture_output=True).returncode == 0
            with pytest.raises(OSError, match=r".") as caught:
                socket.gethostbyname("service.invalid")
            assert not isinstance(caught.value, Uncontrolled)
        finally:
            if where is not None:
                where.__exit__(None, None, None)


def test_a_declared_program_may_start_by_its_own_name_and_no_other_one() -> None:
    declared = program([sys.executable, "-S", "-c", "import sys; print(sys.argv)"])
    with mat.run():
        assert declared.run("", "more").stdout == "['-c', 'more']\n"
        done = subprocess.run([*COMMAND, "directly"], capture_output=True, text=True, check=True)
        assert done.stdout == "['-c', 'directly']\n"
        with pytest.raises(Uncontrolled, match="start of the process"):
            subprocess.run([sys.executable, "-S", "-c", "print()"], check=True)
        del declared
        with pytest.raises(Uncontrolled, match="start of the process"):
            subprocess.run(COMMAND, check=True)


def test_a_stdio_server_of_an_mcp_client_may_start() -> None:
    pytest.importorskip("mcp")
    from mcp import StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def body() -> None:
        server = StdioServerParameters(command=sys.executable, args=["-S", "-c", "print()"])
        async with stdio_client(server):
            pass

    with mat.run() as run:
        asyncio.run(body())
    assert run.result is not None
    assert not {item.code for item in run.result.findings} & {"network-refused", "process-refused"}


def test_libraries_may_ask_about_the_machine_and_pairs_of_sockets_work() -> None:
    with mat.run() as run:
        assert isinstance(platform.uname().processor, str)
        ctypes.util.find_library("c")
        one, other = socket.socketpair()
        with one, other:
            one.sendall(b"x")
            assert other.recv(1) == b"x"
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
    assert run.result is not None
    assert not {item.code for item in run.result.findings} & {"network-refused", "process-refused"}
