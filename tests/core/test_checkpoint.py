"""A checkpoint log gives back a prefix of what was appended, whatever happened to the process and to the file."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from mat.core import checkpoint, limits
from mat.core.checkpoint import START, Gap, Log, LogLine, Unusable, claim, create, read_header, scan, share, tidy
from mat.core.errors import LimitReached

KEY = {"item": "test_shop.py::test_refund", "budget": 8}
CONTENTS = [json.dumps({"run": index, "text": "x" * index, "note": "ü\n]"}) for index in range(5)]
ASIDE = "an interrupted search was set aside"
DAMAGED = (
    "an interrupted search is damaged at byte {}: everything before it is used; "
    "the damaged file is copied to log.aside.jsonl before more is written"
)
TRIALS = 50
"""Processes that are killed while they append."""


def claimed(path: Path, **more: Any) -> Log:
    log = claim(path, kind="search", key=KEY | more)
    assert log is not None
    return log


def contents(log: Log) -> list[str]:
    return [line.content.decode() for line in log.lines()]


def written(path: Path, *texts: str) -> bytes:
    log = claimed(path)
    for text in texts:
        log.append(text)
    log.close()
    return path.read_bytes()


def reread(path: Path) -> tuple[list[str], str]:
    """What is given back, and what is said."""
    log = claimed(path)
    found = contents(log)
    log.close()
    return found, log.note()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


# -- what is appended is read -----------------------------------------------------------------------------------------


def test_what_was_appended_is_given_back_and_more_can_be_appended(path: Path) -> None:
    written(path, *CONTENTS[:3])
    log = claimed(path)
    assert contents(log) == CONTENTS[:3]
    log.append(CONTENTS[3])
    log.append(CONTENTS[4])
    log.close()
    assert reread(path) == (CONTENTS, "")


def test_each_line_is_json_and_the_first_says_what_the_log_is(path: Path) -> None:
    lines = [json.loads(line) for line in written(path, *CONTENTS).splitlines()]
    assert [number for _, number, _ in lines] == list(range(6))
    assert lines[0][2] == {"format": "pytest-mat log", "version": 1, "kind": "search", "key": KEY}
    assert [content for _, _, content in lines[1:]] == [json.loads(text) for text in CONTENTS]


def test_a_line_is_in_the_file_when_append_returns_and_its_content_can_be_read_again(path: Path) -> None:
    log = claimed(path)
    for count, text in enumerate(CONTENTS, 1):
        log.append(text)
        assert path.read_bytes().count(b"\n") == count + 1
    log.close()
    log = claimed(path)
    places = [line.place for line in log.lines()]
    log.append('{"more":1}')
    assert [log.content(place).decode() for place in reversed(places)] == CONTENTS[::-1]


def test_appending_before_anything_was_read_loses_nothing(path: Path) -> None:
    written(path, *CONTENTS[:3])
    assert len(written(path, CONTENTS[3]).splitlines()) == 5
    assert reread(path) == (CONTENTS[:4], "")


def test_a_reader_that_was_not_taken_to_its_end_loses_nothing_whenever_it_is_dropped(path: Path) -> None:
    written(path, *CONTENTS[:3])
    log = claimed(path)
    lines = log.lines()
    next(lines)
    log.append(CONTENTS[3])
    lines.close()  # type: ignore[attr-defined]
    log.append(CONTENTS[4])
    log.close()
    assert reread(path) == (CONTENTS, "")


# -- files that are not as they were written --------------------------------------------------------------------------


def test_a_log_cut_at_any_byte_gives_back_all_whole_lines_and_goes_on(path: Path) -> None:
    whole = written(path, *CONTENTS)
    ends = [index + 1 for index, byte in enumerate(whole) if byte == ord("\n")]
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        kept = CONTENTS[: max(0, sum(end <= size for end in ends) - 1)]
        assert (size, *reread(path)) == (size, kept, "")
        written(path, '{"more":1}')
        assert (size, *reread(path)) == (size, [*kept, '{"more":1}'], "")
    assert not path.with_name("log.aside.jsonl").exists()


@pytest.mark.full
@pytest.mark.parametrize("bits", [0b1, 0b1000, 0b100000])
def test_a_log_with_any_byte_changed_gives_back_what_stands_before_it_and_says_so(path: Path, bits: int) -> None:
    whole = written(path, *CONTENTS)
    lines = whole.splitlines(keepends=True)
    starts = [sum(map(len, lines[:index])) for index in range(len(lines))]
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ bits]) + whole[place + 1 :])
        found, said = reread(path)
        hit = sum(start <= place for start in starts) - 1
        assert (place, found) == (place, CONTENTS[: max(0, hit - 1)])
        if place == len(whole) - 1:
            assert said == ""  # the last line looks like one that was not written to its end
        elif hit == 0:
            assert (place, said) == (place, f"{ASIDE}: its first line is damaged, or not written by pytest-mat")
        else:
            assert (place, said) == (place, DAMAGED.format(starts[hit]))


@pytest.mark.parametrize("damage", ["remove", "repeat", "swap", "foreign", "garbage"])
def test_lines_that_were_moved_removed_or_copied_end_what_is_given_back(tmp_path: Path, path: Path, damage: str) -> None:
    lines = written(path, *CONTENTS).splitlines(keepends=True)
    if damage == "remove":
        del lines[2]
    if damage == "repeat":
        lines.insert(2, lines[1])
    if damage == "swap":
        lines[2], lines[3] = lines[3], lines[2]
    if damage == "foreign":
        log = claim(tmp_path / "other", kind="search", key={"item": "other"})
        assert log is not None
        for text in CONTENTS:
            log.append(text)
        lines[2] = (tmp_path / "other").read_bytes().splitlines(keepends=True)[2]
    if damage == "garbage":
        lines.insert(2, b"\x00\xff\n")
    path.write_bytes(b"".join(lines))
    found, said = reread(path)
    assert found == CONTENTS[:1]
    assert said.startswith(f"an interrupted search is damaged at byte {len(lines[0] + lines[1])}: ")


def test_what_is_cut_off_because_of_damage_is_kept_next_to_the_log(path: Path) -> None:
    lines = written(path, *CONTENTS).splitlines(keepends=True)
    damaged = b"".join([*lines[:3], b"?", *lines[3:]])
    path.write_bytes(damaged)
    written(path, CONTENTS[2])
    assert path.with_name("log.aside.jsonl").read_bytes() == damaged
    assert reread(path) == (CONTENTS[:3], "")


def test_a_log_whose_damaged_file_was_copied_still_belongs_to_the_process_that_claimed_it(path: Path) -> None:
    lines = written(path, *CONTENTS).splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], b"?", *lines[3:]]))
    log = claimed(path)
    log.append(CONTENTS[2])
    assert path.with_name("log.aside.jsonl").exists()
    assert in_a_fork(lambda: claim(path, kind="search", key=KEY) is None)
    log.close()


def test_a_reader_may_go_on_behind_damage_and_learns_how_much_is_missing(path: Path) -> None:
    lines = written(path, *CONTENTS).splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"?" + lines[2], *lines[4:], b'["01234']))
    with path.open("rb") as stream:
        header = read_header(stream.readline())
        found = list(scan(stream, header.mark, header.parse))
    sizes = [sum(map(len, lines[:index])) for index in range(7)]
    assert [item.number if isinstance(item, LogLine) else item for item in found] == [
        1,
        Gap(offset=sizes[2], end=sizes[3] + 1, missing=2, last=False, torn=False),
        4,
        5,
        Gap(offset=sizes[6] - len(lines[3]) + 1, end=sizes[6] - len(lines[3]) + 8, missing=0, last=True, torn=True),
    ]


# -- logs that do not fit ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "named"),
    [({"item": "there"}, "item"), ({"seed": 1}, "seed"), ({"budget": 9, "item": None}, "budget and item")],
)
def test_a_log_with_another_key_is_set_aside_and_its_file_kept(path: Path, other: dict[str, Any], named: str) -> None:
    whole = written(path, *CONTENTS)
    log = claimed(path, **other)
    assert log.note() == f"{ASIDE}: it has a different {named}"
    assert contents(log) == []
    assert path.with_name("log.aside.jsonl").read_bytes() == whole
    log.append("{}")
    log.close()
    again = claimed(path, **other)
    assert (contents(again), again.note()) == (["{}"], "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"sum":"5c1d09ab77fe4f53","mat":1,"key":{}}\n', "an older version of pytest-mat wrote it"),
        ("dear diary\n", "its first line is damaged, or not written by pytest-mat"),
        ("dear diary", "its first line is damaged, or not written by pytest-mat"),
        ('["refund", "search"]', "its first line is damaged, or not written by pytest-mat"),
        ('["5c1d09ab77fe4f53",7,{"format":"pytest', "its first line is damaged, or not written by pytest-mat"),
    ],
)
def test_a_file_that_is_no_log_of_this_version_is_set_aside_and_kept(path: Path, text: str, said: str) -> None:
    path.write_text(text)
    assert reread(path) == ([], f"{ASIDE}: {said}")
    assert path.with_name("log.aside.jsonl").read_text() == text


def test_a_first_line_with_the_right_checksum_that_is_not_json_is_no_header(path: Path) -> None:
    line, _ = checkpoint._written(b"", 0, b"{")
    path.write_bytes(line)
    assert reread(path) == ([], f"{ASIDE}: its first line is damaged, or not written by pytest-mat")


def test_a_log_of_another_version_is_set_aside(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "VERSION", 99)
    written(path, *CONTENTS)
    monkeypatch.undo()
    assert reread(path) == ([], f"{ASIDE}: another version of pytest-mat wrote it")
    with path.with_name("log.aside.jsonl").open("rb") as stream, pytest.raises(Unusable) as refused:
        read_header(stream.readline())
    assert (refused.value.problem, refused.value.fix) == ("version", "upgrade pytest-mat")


def test_a_log_of_another_kind_is_set_aside(path: Path) -> None:
    written(path, *CONTENTS)
    log = claim(path, kind="evaluation", key=KEY)
    assert log is not None
    assert log.note() == "an interrupted evaluation was set aside: it is a search log"


def test_its_owner_may_set_a_log_aside_for_a_reason_of_its_own(path: Path) -> None:
    written(path, *CONTENTS)
    log = claimed(path)
    assert contents(log) == CONTENTS
    log.set_aside("shop.py changed since")
    assert log.note() == f"{ASIDE}: shop.py changed since"
    log.append(CONTENTS[0])
    log.close()
    assert reread(path) == (CONTENTS[:1], "")


# -- several processes ------------------------------------------------------------------------------------------------


def in_a_fork(do: Callable[[], bool]) -> bool:
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if do() else 1)
        finally:
            os._exit(2)
    status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) in (0, 1)
    return status == 0


def test_one_process_has_a_claimed_log_and_a_fork_of_it_does_not_keep_it(path: Path) -> None:
    log = claimed(path)
    assert in_a_fork(lambda: claim(path, kind="search", key=KEY) is None)
    log.append("{}")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    log.close()
    assert in_a_fork(lambda: claim(path, kind="search", key=KEY) is not None)
    os.close(writing)
    os.waitpid(child, 0)
    os.close(reading)


@pytest.mark.parametrize("move", ["set aside", "removed"])
def test_a_log_that_was_moved_between_opening_and_locking_is_not_claimed_in_place_of_the_new_one(
    path: Path, monkeypatch: pytest.MonkeyPatch, move: str
) -> None:
    """Another process has the file when this one opens it, and gives it up before this one locks it."""
    written(path, *CONTENTS)
    open_file, opened = os.open, []

    def moved_afterwards(name: Any, *arguments: Any) -> int:
        descriptor = open_file(name, *arguments)
        if not opened and move == "set aside":
            os.replace(path, path.with_name("log.aside.jsonl"))
        elif not opened:
            path.unlink()
        opened.append(name)
        return descriptor

    monkeypatch.setattr(os, "open", moved_afterwards)
    log = claimed(path)
    monkeypatch.undo()
    log.append('{"more":1}')
    log.close()
    assert reread(path) == (['{"more":1}'], "")


def test_a_log_that_another_process_claims_while_it_is_set_aside_is_the_other_ones(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text("dear diary\n")
    replace_file = os.replace
    reading, writing = os.pipe()
    children = []

    def other_claims(source: Any, target: Any) -> None:
        replace_file(source, target)
        ready, said = os.pipe()
        children.append(os.fork())
        if children[-1] == 0:
            try:
                os.close(writing)
                claimed(path)
                os.write(said, b".")
                os.read(reading, 1)
            finally:
                os._exit(0)
        os.close(said)
        os.read(ready, 1)
        os.close(ready)

    monkeypatch.setattr(os, "replace", other_claims)
    assert claim(path, kind="search", key=KEY) is None
    os.close(writing)
    os.close(reading)
    os.waitpid(children[0], 0)


def test_processes_that_share_a_log_read_what_the_others_have_appended(path: Path) -> None:
    mark = START
    heard: list[str] = []
    for turn in range(3):
        assert in_a_fork(lambda turn=turn: shared(path, f'{{"theirs":{turn}}}'))
        with share(path, mark, kind="cassette", key=KEY) as log:
            heard += contents(log)
            log.append(f'{{"ours":{turn}}}')
            mark = log.mark
    assert heard == [f'{{"theirs":{turn}}}' for turn in range(3)]
    with share(path, START, kind="cassette", key=KEY) as log:
        assert len(contents(log)) == 6


def test_a_process_that_shares_a_log_waits_for_the_one_that_has_it(path: Path) -> None:
    shared(path, CONTENTS[0])
    with share(path, START, kind="cassette", key=KEY):
        assert not in_a_fork(lambda: can_lock(path))
    assert in_a_fork(lambda: can_lock(path))


def can_lock(path: Path) -> bool:
    import fcntl

    with path.open("rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_processes_that_append_to_a_shared_log_at_once_lose_and_repeat_nothing(path: Path) -> None:
    each = 100
    children = []
    for name in range(3):
        children.append(os.fork())
        if children[-1] == 0:
            try:
                for number in range(each):
                    shared(path, f'{{"of":{name},"number":{number}}}')
                os._exit(0)
            finally:
                os._exit(1)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]
    with share(path, START, kind="cassette", key=KEY) as log:
        found = [json.loads(text) for text in contents(log)]
    assert log.gap is None
    assert [[item["number"] for item in found if item["of"] == name] for name in range(3)] == [list(range(each))] * 3


def shared(path: Path, text: str) -> bool:
    with share(path, START, kind="cassette", key=KEY) as log:
        log.append(text)
    return True


def test_a_shared_log_that_is_another_or_was_replaced_is_refused_and_stays(path: Path) -> None:
    shared(path, CONTENTS[0])
    with share(path, START, kind="cassette", key=KEY) as log:
        assert contents(log) == CONTENTS[:1]
        mark = log.mark
    with pytest.raises(Unusable, match="it has a different "), share(path, START, kind="cassette", key={}):
        pass
    path.unlink()
    shared(path, CONTENTS[1])
    before = path.read_bytes()
    with pytest.raises(Unusable, match="replaced while it was in use"), share(path, mark, kind="cassette", key=KEY):
        pass
    assert path.read_bytes() == before


def test_a_file_of_its_own_is_never_one_that_is_there(path: Path) -> None:
    log = create(path, kind="artefact", key={})
    log.append("{}")
    log.close()
    with pytest.raises(FileExistsError):
        create(path, kind="artefact", key={})


def test_threads_that_append_to_a_log_and_read_it_lose_and_repeat_nothing(path: Path) -> None:
    written(path, CONTENTS[0])
    log = claimed(path)
    (first,) = log.lines()
    begin = Barrier(4)

    def work(name: int) -> list[bytes]:
        begin.wait()
        read = []
        for number in range(100):
            log.append(f'{{"of":{name},"number":{number}}}')
            read.append(log.content(first.place))
        return read

    with ThreadPoolExecutor(4) as threads:
        read = [content for contents_read in threads.map(work, range(4)) for content in contents_read]
    assert set(read) == {CONTENTS[0].encode()}
    log.close()
    found, said = reread(path)
    entries = [json.loads(text) for text in found[1:]]
    assert said == ""
    assert [[item["number"] for item in entries if item["of"] == name] for name in range(4)] == [list(range(100))] * 4


# -- what cannot be written -------------------------------------------------------------------------------------------


def test_an_interrupt_while_a_line_is_written_leaves_nothing_of_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = claimed(path)
    log.append(CONTENTS[0])
    write = os.write

    def half(descriptor: int, data: bytes) -> int:
        write(descriptor, bytes(data[: len(data) // 2]))
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(KeyboardInterrupt):
        log.append(CONTENTS[1])
    monkeypatch.undo()
    log.append(CONTENTS[2])
    log.close()
    assert reread(path) == ([CONTENTS[0], CONTENTS[2]], "")


def test_a_file_of_its_own_that_cannot_be_begun_leaves_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        create(path, kind="artefact", key={})
    assert not path.exists()


def test_limits_on_a_line_and_on_a_file_are_outcomes_and_the_log_goes_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = claim(path, kind="search", key=KEY, size_limit=700)
    assert log is not None
    monkeypatch.setattr(limits, "FILE_BYTES", 300)
    with pytest.raises(LimitReached, match="an entry of 302 bytes is too large for the search log"):
        log.append(f'"{"x" * 300}"')
    log.append(f'"{"x" * 290}"')
    with pytest.raises(LimitReached, match="the search log has reached its limit of 700 bytes"):
        log.append(f'"{"x" * 290}"')
    log.append('"short"')
    log.close()
    assert reread(path) == ([f'"{"x" * 290}"', '"short"'], "")


def test_a_line_longer_than_a_reader_takes_is_damage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(path, CONTENTS[0], f'"{"x" * 900}"', CONTENTS[1])
    monkeypatch.setattr(limits, "FILE_BYTES", 300)
    found, said = reread(path)
    assert found == CONTENTS[:1]
    assert "is damaged at byte" in said


def test_content_that_is_not_json_is_an_error_although_its_checksum_is_right(path: Path) -> None:
    written(path, "[" * 100_000)
    (line,) = claimed(path).lines()
    with pytest.raises(checkpoint.CodecError, match="line 1 of a log is not JSON"):
        line.data()


def test_tidying_removes_the_oldest_logs_and_hides_the_folder_from_version_control(tmp_path: Path) -> None:
    folder = tmp_path / ".mat" / "campaigns"
    folder.mkdir(parents=True)
    for index in range(5):
        (folder / f"{index}.jsonl").write_text("")
        os.utime(folder / f"{index}.jsonl", ns=(index, index))
    tidy(folder, kept=2)
    assert sorted(path.name for path in folder.iterdir()) == ["3.jsonl", "4.jsonl"]
    assert (tmp_path / ".mat" / ".gitignore").read_text().endswith("*\n")


# -- processes that are killed ----------------------------------------------------------------------------------------


@pytest.mark.full
def test_no_finished_entry_is_lost_to_a_kill_at_any_moment(tmp_path: Path) -> None:
    """The witness is a pipe: the child writes a byte to it after each append that returned, and is killed at any moment."""
    draw, finished = random.Random(20261122), 0
    for trial in range(TRIALS):
        path = tmp_path / f"{trial // 5}.jsonl"  # five processes one after the other go on with one log
        before = reread(path)[0]
        seen = killed_while_appending(path, draw)
        found, said = reread(path)
        assert (trial, said, found[: len(before)] == before) == (trial, "", True)
        assert seen <= len(found) - len(before) <= seen + 1
        assert [json.loads(text)["index"] for text in found] == list(range(len(found)))
        finished += seen
    assert finished > TRIALS


def killed_while_appending(path: Path, draw: random.Random) -> int:
    """How many appends had returned when a child that appends without end was killed."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(receiver)
            log = claimed(path)
            count = len(contents(log))
            while True:
                log.append(json.dumps({"index": count, "text": "x" * 200_000}))
                os.write(sender, b".")
                count += 1
        finally:
            os._exit(1)
    os.close(sender)
    seen = 0
    for _ in range(draw.randrange(6)):
        seen += len(os.read(receiver, 1))
    for _ in range(draw.randrange(20_000)):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(receiver, 65_536):
        seen += len(more)
    os.close(receiver)
    return seen
