"""Sessions in places that lack something: a folder that cannot be written to, no temporary folder; and --stepwise."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from mat.core.errors import SpecError
from mat.kernel import folders
from mat.kernel.network import LOOPBACK, is_loopback
from mat_study.settings import settings_from

ID = "test_shop.py::test_refund"
BROKEN = """
@pytest.mark.mat(budget=4, faults=FAULTS)
def test_refund(mat_run, no_double):
    shop.naive()
"""
SERVER = """
import http.server
import threading
import urllib.request

import mat


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *parts):
        pass


PLACE = dict()


@pytest.fixture(scope="module")
def server():
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    PLACE["host"] = "localhost:" + str(made.server_port)
    yield made
    made.shutdown()
    made.server_close()


@mat.tool(effect="write")
def call(place):
    with urllib.request.urlopen("http://" + PLACE.get(place, place)) as reply:
        return reply.read().decode()


@pytest.mark.mat(budget=4, faults=FAULTS{more})
def test_refund(mat_run, server):
    try:
        assert call({place!r}) == "ok"
    except TimeoutError:
        pass
"""


# -- a folder that cannot be written to -----------------------------------------------------------------------------------


@pytest.mark.full
def test_a_search_in_a_read_only_folder_says_where_its_files_are_and_exits_as_usual(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    spare = tmp_path / "spare"
    spare.mkdir()
    monkeypatch.setattr(folders, "_try_writing", refused)
    monkeypatch.setattr(folders, "spare", lambda wanted: spare)
    shop.tests(BROKEN)
    session = shop.stress()
    assert session.code == 1
    assert "the journal of the search is in" in session.text
    assert "Read-only file system" in session.text


def test_where_nothing_can_be_written_at_all_a_folder_says_both_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> str:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(folders, "_try_writing", refused)
    monkeypatch.setattr(tempfile, "gettempdir", refused)
    found = folders.writable(tmp_path / "kept")
    assert (found.path, found.is_lost) == (tmp_path / "kept", True)
    assert found.why.count("Read-only file system") == 2


@pytest.mark.full
def test_a_plain_session_needs_no_temporary_folder_and_a_search_is_refused_without_one(shop: Any) -> None:
    shop.write(
        "nowhere.py",
        """
        import tempfile

        def refused(*_, **__):
            raise OSError(30, "Read-only file system")

        tempfile.gettempdir = tempfile.mkdtemp = refused
        """,
    )
    shop.tests(BROKEN)
    options = ("-s", "-p", "nowhere", "-p", "no:cacheprovider")
    assert shop.pytester.runpytest_subprocess(*options, timeout=60).ret == 0
    result = shop.pytester.runpytest_subprocess(*options, "--mat-stress", timeout=60)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = result.stderr.str() + result.stdout.str()
    assert "need a folder for temporary files: Read-only file system" in said
    assert "set TMPDIR" in said
    assert "INTERNALERROR" not in said


# -- stepwise -------------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_finished_search_that_stepwise_stops_after_was_not_interrupted(shop: Any) -> None:
    shop.tests(BROKEN)
    session = shop.stress("--stepwise", "-p", "cacheprovider")
    assert session.code == pytest.ExitCode.INTERRUPTED
    assert "interrupted: run the same command again" not in session.text
    assert "The session was interrupted" not in session.text
    assert not list((shop.path / ".mat" / "campaigns").glob("*.jsonl"))


# -- servers of this machine ----------------------------------------------------------------------------------------------


def test_a_server_of_a_fixture_is_refused_unless_loopback_is_allowed(shop: Any) -> None:
    shop.tests(SERVER.format(more="", place="host"))
    session = shop.run("-x")
    assert session.code == 1
    assert "was refused during the run" in session.text
    assert "loopback=True" in session.text


@pytest.mark.full
@pytest.mark.parametrize("way", ["marker", "ini"])
def test_an_allowed_server_is_reached_and_the_certificate_names_it(shop: Any, way: str) -> None:
    shop.tests(SERVER.format(more=", loopback=True" if way == "marker" else "", place="host"))
    options = () if way == "marker" else ("-o", "mat_loopback=true")
    session = shop.stress(*options)
    assert session.statuses == {ID: "certified"}, session.text
    assert LOOPBACK in session.items[ID]["relative_to"]


def test_the_allowance_ends_at_the_loopback_interface(shop: Any) -> None:
    shop.tests(SERVER.format(more=", loopback=True", place="192.0.2.1:9"))
    session = shop.run()
    assert session.code == 1
    assert "192.0.2.1:9 was refused during the run" in session.text


@pytest.mark.parametrize(("host", "here"), [
    ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("::ffff:127.0.0.1", True), ("LOCALHOST", True),
    ("localhost.", True), (b"localhost", True), ("::1%lo", True), ("10.0.0.1", False), ("0.0.0.0", False),
    ("::ffff:10.0.0.1", False),
    ("localhost.example.org", False), ("127.0.0.1.nip.io", False), ("", False),
])  # fmt: skip
def test_only_addresses_of_this_machine_are_loopback(host: object, here: bool) -> None:
    assert is_loopback(host) is here


def test_the_marker_takes_true_or_false() -> None:
    with pytest.raises(SpecError, match="loopback='yes' is neither True nor False"):
        settings_from([((), {"loopback": "yes"})], overrides={})
