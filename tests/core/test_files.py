"""Files are written whole or not at all, with a mode that one place decides."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from mat.core.errors import MatError
from mat.core.files import write_whole
from mat.report.files import write_bytes


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes the first bytes of a file, and reports later that it is full, as disks do."""

    def sync(descriptor: int) -> None:
        os.ftruncate(descriptor, 3)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", sync)


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_leaves_no_half_of_a_file_and_keeps_the_one_that_was_there(tmp_path: Path) -> None:
    earlier = tmp_path / "page.html"
    earlier.write_text("an earlier page")
    for path in (earlier, tmp_path / "new.html"):
        with pytest.raises(MatError, match="cannot write the report: No space left on device") as caught:
            write_bytes(path, b"a page")
        assert caught.value.where == str(path)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert earlier.read_text() == "an earlier page"


def test_the_mode_is_the_owners_alone_in_mat_and_the_umasks_elsewhere(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / ".mat" / "store" / "note", b"x")
        write_whole(tmp_path / "reports" / "page.html", b"x")
    finally:
        os.umask(before)
    assert mode(tmp_path / ".mat" / "store" / "note") == 0o600
    assert (mode(tmp_path / ".mat"), mode(tmp_path / ".mat" / "store")) == (0o700, 0o700)
    assert (mode(tmp_path / "reports"), mode(tmp_path / "reports" / "page.html")) == (0o750, 0o640)


def test_a_file_that_is_written_again_keeps_its_mode_and_a_link_to_it_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "page.html", tmp_path / "latest.html"
    target.write_text("old")
    target.chmod(0o604)
    link.symlink_to(target)
    write_whole(link, b"new")
    assert (target.read_text(), mode(target), link.is_symlink()) == ("new", 0o604, True)


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, b"a page")
        assert os.read(reader, 100) == b"a page"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
