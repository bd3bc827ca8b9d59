"""The run log: what was appended is read back, whatever became of the process and of the file."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mat
from mat.core import checkpoint, limits
from mat.core.checkpoint import START
from mat.core.errors import CodecError, LimitReached, SpecError
from mat.core.run import Run
from mat.core.spec import schedule
from mat.evidence.runlog import SUFFIX, RunEntry, RunLog, Shard, layout, read, shards
from mat.evidence.store import Store
from mat.measure.rows import ClaimCount, Labels, Score

TRIALS = 50
"""Processes that are killed while they append; each is forked and lives for some milliseconds."""
LABELS = Labels(category="tools", input="misuse", variant="shield", misuse="refusal", episode="day", place=3)


def entry(run: Run, **more: Any) -> RunEntry:
    return RunEntry(item=run.spec.task, condition="nominal", run=run, **more)


@pytest.fixture
def runs(shop_tests: Any) -> list[Run]:
    """Six runs, with and without a fault, a violation among them."""
    return [shop_tests.run(seed=seed, schedule=[shop_tests.lost_ack()] if seed % 2 else ()) for seed in range(6)]


@pytest.fixture
def shard(tmp_path: Path, runs: list[Run]) -> Path:
    with RunLog(tmp_path / "log", session="first") as log:
        for run in runs:
            log.append(entry(run))
        path = log.path
    assert path is not None
    return path


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


# -- what is appended is read -----------------------------------------------------------------------------------------


def test_an_entry_comes_back_as_it_was_appended(tmp_path: Path, violating: Run) -> None:
    whole = RunEntry(
        item="tests/test_shop.py::test_refund", condition="fault", run=violating, labels=LABELS, session="nightly", repeat=2,
        claims=ClaimCount(final=3, unsupported=1, recorded=2, propagated=1), written_at="2026-11-21T17:00:00Z",
        scores=(Score(name="faithful", value=0.75), Score(name="context", value=None, error="no context")),
    )  # fmt: skip
    with RunLog(tmp_path) as log:
        log.append(whole)
        log.append(entry(violating))
    reading = read(tmp_path)
    assert list(reading) == [whole, entry(violating)]
    assert reading.findings == ()


def test_an_entry_without_a_session_gets_that_of_the_log(tmp_path: Path, violating: Run) -> None:
    with RunLog(tmp_path, session="nightly") as log:
        log.append(entry(violating))
        log.append(entry(violating, session="mine"))
    assert [found.session for found in read(tmp_path)] == ["nightly", "mine"]


def test_what_was_appended_can_be_read_before_the_log_is_closed(tmp_path: Path, runs: list[Run]) -> None:
    log = RunLog(tmp_path)
    for count, run in enumerate(runs, 1):
        log.append(entry(run))
        assert [found.run for found in read(tmp_path)] == runs[:count]
    log.close()


def test_a_log_of_nothing_leaves_no_file(tmp_path: Path) -> None:
    with RunLog(tmp_path / "log") as log:
        assert log.path is None
    assert not (tmp_path / "log").exists()


def test_a_shard_is_plain_ascii_with_a_header_that_says_what_it_rests_on(shard: Path) -> None:
    first = shard.read_bytes().decode("ascii").splitlines()[0]
    _, _, header = json.loads(first)
    assert (header["kind"], header["key"]) == ("artefact", {"session": "first", "layout": layout()})
    assert "observation" in header["key"]["layout"]["Record"][0]


def test_the_name_of_a_session_cannot_lead_out_of_the_folder(tmp_path: Path, violating: Run) -> None:
    with RunLog(tmp_path / "log", session="../../etc/x y" * 20) as log:
        log.append(entry(violating))
    (path,) = shards(tmp_path / "log")
    assert path.parent == tmp_path / "log"
    assert len(path.name) < 100


def test_a_key_tells_apart_what_an_entry_says_and_not_what_contracts_say(violating: Run) -> None:
    plain = entry(violating, labels=LABELS)
    others = [
        replace(plain, item="other"), replace(plain, condition="fault"), replace(plain, session="other"),
        replace(plain, repeat=1), replace(plain, labels=replace(LABELS, category="x")),
        replace(plain, labels=replace(LABELS, variant="x")), replace(plain, labels=replace(LABELS, place=4)),
        replace(plain, run=replace(violating, elapsed_ms=violating.elapsed_ms + 1)),
        replace(plain, run=replace(violating, spec=replace(violating.spec, seed=5))),
    ]  # fmt: skip
    assert len({plain.key, *(other.key for other in others)}) == len(others) + 1
    assert replace(plain, run=replace(violating, outcomes=(), verdicts=())).key == plain.key
    assert replace(plain, written_at="2026-11-21").key == plain.key


# -- several writers --------------------------------------------------------------------------------------------------


def test_a_forked_child_writes_a_shard_of_its_own(tmp_path: Path, runs: list[Run]) -> None:
    log = RunLog(tmp_path, session="s")
    log.append(entry(runs[0]))
    child = os.fork()
    if child == 0:
        try:
            log.append(entry(runs[1]))
            log.close()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    log.append(entry(runs[2]))
    log.close()
    found = {path: [one.run for one in Shard(path)] for path in shards(tmp_path)}
    assert sorted(map(len, found.values())) == [1, 2]
    assert [runs[0], runs[2]] in found.values()
    assert [runs[1]] in found.values()


def test_two_logs_of_one_process_and_session_never_share_a_file(tmp_path: Path, runs: list[Run]) -> None:
    one, other = RunLog(tmp_path, session="s"), RunLog(tmp_path, session="s")
    for index, run in enumerate(runs):
        (one if index % 2 else other).append(entry(run))
    one.close()
    other.close()
    assert len(shards(tmp_path)) == 2
    assert sorted(found.run.spec.seed for found in read(tmp_path)) == list(range(6))


def test_entries_of_several_shards_come_in_an_order_that_does_not_change(tmp_path: Path, runs: list[Run]) -> None:
    for name in ("b", "a", "c"):
        with RunLog(tmp_path, session=name) as log:
            log.append(entry(runs[0]))
            log.append(entry(runs[1]))
    assert [found.session for found in read(tmp_path)] == ["a", "a", "b", "b", "c", "c"]
    assert list(read(tmp_path)) == list(read(tmp_path))


@pytest.mark.full
def test_two_sessions_that_append_at_once_lose_nothing(tmp_path: Path, shop_tests: Any) -> None:
    folder = tmp_path / "log"
    script = f"""
import sys
import mat
from mat.evidence.runlog import RunEntry, RunLog

@mat.tool
def look(x):
    return x

with RunLog({str(folder)!r}, session="shared") as log:
    for seed in range(40):
        with mat.run([], task=sys.argv[1], seed=seed) as run:
            look(seed)
        log.append(RunEntry(item=sys.argv[1], condition="nominal", run=run.result))
"""
    children = [subprocess.Popen([sys.executable, "-c", script, name]) for name in ("one", "other")]
    assert [child.wait(60) for child in children] == [0, 0]
    reading = read(folder)
    found = sorted((item.item, item.run.spec.seed) for item in reading)
    assert found == [(name, seed) for name in ("one", "other") for seed in range(40)]
    assert reading.findings == ()


# -- files that break off ---------------------------------------------------------------------------------------------


def test_wherever_a_shard_breaks_off_all_whole_records_before_it_are_read(shard: Path, runs: list[Run]) -> None:
    whole, lines = shard.read_bytes(), lines_of(shard)
    ends = [sum(map(len, lines[: index + 1])) for index in range(len(lines))]
    for cut in sorted({*range(0, len(whole), 97), *ends, *(end - 1 for end in ends), *(end + 1 for end in ends[:-1])}):
        shard.write_bytes(whole[:cut])
        found = Shard(shard)
        kept = sum(end <= cut for end in ends[1:])
        assert [item.run for item in found] == runs[:kept]
        assert [finding.code for finding in found.findings] == ([] if cut in ends else ["log-torn"])


def test_a_finding_says_where_a_shard_breaks_off_and_how_much_is_lost(shard: Path) -> None:
    whole, last = shard.read_bytes(), lines_of(shard)[-1]
    shard.write_bytes(whole[:-10])
    reading = read(shard.parent)
    assert len(list(reading)) == 5
    (finding,) = reading.findings
    assert finding.code == "log-torn"
    assert finding.message == (
        f"{shard.name}: line 6, at byte {len(whole) - len(last)}, is incomplete: {len(last) - 10} bytes left out; "
        "the process that wrote it was killed, or is still writing"
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shard of six small runs, their seeds 0 to 5."""

    @mat.tool
    def look(x: int) -> int:
        return x

    with RunLog(tmp_path_factory.mktemp("written")) as log:
        for seed in range(6):
            with mat.run([], task="t", seed=seed) as run:
                look(seed)
            assert run.result is not None
            log.append(entry(run.result))
    assert log.folder.is_dir()
    return shards(log.folder)[0]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_damaged_shard_gives_only_runs_that_were_written(data: st.DataObject, written: Path) -> None:
    whole = written.read_bytes()
    lines = whole.splitlines(keepends=True)
    body = bytearray(whole)
    for place in data.draw(st.lists(st.integers(len(lines[0]), len(body) - 1), min_size=1, max_size=3)):
        body[place] = data.draw(st.integers(0, 255))
    damaged = written.with_name("damaged")
    damaged.write_bytes(body)
    shard = Shard(damaged)
    found = [item.run.spec.seed for item in shard]
    untouched = [seed for seed, line in enumerate(lines[1:]) if line in bytes(body).splitlines(keepends=True)]
    assert found == untouched
    assert bool(shard.findings) == (len(found) < len(lines) - 1)


def test_damage_in_the_middle_costs_the_runs_it_hit_and_says_how_many(shard: Path, runs: list[Run]) -> None:
    lines = lines_of(shard)
    lines[2] = lines[2].replace(b"mailer", b"mailed", 1)
    del lines[4]
    shard.write_bytes(b"".join(lines))
    found = Shard(shard)
    assert [item.run for item in found] == [runs[0], runs[2], *runs[4:]]
    assert [finding.code for finding in found.findings] == ["log-damaged", "log-damaged"]
    assert all("1 run is left out" in finding.message for finding in found.findings)


def test_a_line_made_by_hand_with_a_right_checksum_is_left_out(shard: Path, runs: list[Run]) -> None:
    with checkpoint.share(shard, START, kind="artefact", key={"session": "first", "layout": layout()}) as log:
        log.append('{"item":"x","condition":"perhaps","run":[null,[],[]]}')
    found = Shard(shard)
    assert [item.run for item in found] == runs
    assert [finding.code for finding in found.findings] == ["log-damaged"]


def test_reading_goes_on_at_a_mark_once_the_torn_line_is_whole(shard: Path, runs: list[Run]) -> None:
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-40])
    first = Shard(shard)
    assert [item.run for item in first] == runs[:5]
    shard.write_bytes(whole)
    rest = Shard(shard, first.mark)
    assert [item.run for item in rest] == runs[5:]
    assert rest.findings == ()
    assert list(Shard(shard, rest.mark)) == []


def test_a_mark_in_a_file_that_was_replaced_is_not_trusted(shard: Path, runs: list[Run], tmp_path: Path) -> None:
    first = Shard(shard)
    assert len(list(first)) == 6
    with RunLog(tmp_path / "other", session="first") as log:
        for run in reversed(runs):
            log.append(entry(run))
    shard.write_bytes(shards(tmp_path / "other")[0].read_bytes())
    assert [item.run for item in Shard(shard, first.mark)] == runs[::-1]
    assert first.mark != START


def contents_of(shard: Path) -> list[Any]:
    """The header's key and the entries of a shard."""
    header, *entries = [json.loads(line)[2] for line in lines_of(shard)]
    return [header["key"], *entries]


def rewritten(shard: Path, key: Any, entries: list[Any]) -> None:
    """The shard with other contents."""
    shard.unlink()
    log = checkpoint.create(shard, kind="artefact", key=key)
    for each in entries:
        log.append(json.dumps(each))
    log.close()


def rewritten_before(shard: Path, key: Any, entries: list[Any]) -> None:
    """The shard with other contents, as it was written before there was a checkpoint log."""
    contents = [{"mat": 1, "log": key["session"], "layout": key["layout"]}, *entries]
    shard.write_bytes(b"".join(old_line(number, json.dumps(each).encode()) for number, each in enumerate(contents)))


def old_line(number: int, content: bytes) -> bytes:
    checksum = sha256(b"%d " % number + content).hexdigest()[:16].encode()
    return b"%d %d %s %s\n" % (number, len(content), checksum, content)


def test_a_shard_that_an_earlier_version_wrote_is_read_and_ends_torn_where_it_is_cut(tmp_path: Path) -> None:
    """The file is the work of the version before the checkpoint log, and so are the digests of its runs."""
    earlier = Path(__file__).with_name("earlier.mat.log").read_bytes()
    path = tmp_path / "earlier.mat.log"
    path.write_bytes(earlier)
    found = Shard(path)
    assert [(each.item, each.session, each.run.spec.seed, each.run.head[:16]) for each in found] == [
        ("test_shop.py::test_refund", "monday", 0, "a11b311d53109d60"),
        ("test_shop.py::test_refund", "monday", 1, "151e1b4db051d3e2"),
    ]
    assert found.findings == ()
    path.write_bytes(earlier[:-5])
    cut = Shard(path)
    assert ([each.run.spec.seed for each in cut], [finding.code for finding in cut.findings]) == ([0], ["log-torn"])
    path.write_bytes(earlier)
    assert [each.run.spec.seed for each in Shard(path, cut.mark)] == [1]


def test_a_shard_of_a_later_version_is_not_misread(shard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, *entries = contents_of(shard)
    monkeypatch.setattr(checkpoint, "VERSION", 99)
    rewritten(shard, key, entries)
    monkeypatch.undo()
    found = Shard(shard)
    assert list(found) == []
    (finding,) = found.findings
    assert finding.code == "log-foreign"
    assert finding.message == f"{shard.name}: another version of pytest-mat wrote it; upgrade pytest-mat"


FORMS = pytest.mark.parametrize("write", [rewritten, rewritten_before])


@FORMS
def test_a_shard_of_another_layout_is_not_misread(shard: Path, write: Callable[..., None]) -> None:
    key, *entries = contents_of(shard)
    write(shard, key | {"layout": key["layout"] | {"Link": [["src", "dst"], []]}}, entries)
    found = Shard(shard)
    assert list(found) == []
    (finding,) = found.findings
    assert finding.code == "log-foreign"
    assert "another version" in finding.message


def test_a_shard_from_before_the_checkpoint_log_is_read_and_taken_up_at_its_mark(shard: Path, runs: list[Run]) -> None:
    key, *entries = contents_of(shard)
    rewritten_before(shard, key, entries[:4])
    first = Shard(shard)
    assert [item.run for item in first] == runs[:4]
    rewritten_before(shard, key, entries)
    rest = Shard(shard, first.mark)
    assert [item.run for item in rest] == runs[4:]
    assert rest.findings == ()


def test_a_shard_from_before_the_checkpoint_log_is_checked_as_then(shard: Path, runs: list[Run]) -> None:
    rewritten_before(shard, *_split(contents_of(shard)))
    lines = lines_of(shard)
    lines[2] = lines[2].replace(b"mailer", b"mailed", 1)
    shard.write_bytes(b"".join(lines)[:-10])
    found = Shard(shard)
    assert [item.run for item in found] == [runs[0], *runs[2:5]]
    assert [finding.code for finding in found.findings] == ["log-damaged", "log-torn"]


def _split(contents: list[Any]) -> tuple[Any, list[Any]]:
    return contents[0], contents[1:]


def changed(shard: Path, change: Callable[[Any, Any], Any], write: Callable[..., None]) -> None:
    """The shard as another version would have written it: `change` takes and returns (layout, packed run)."""
    key, entries = _split(contents_of(shard))
    old = key["layout"]
    for data in entries:
        old, data["run"] = change(key["layout"], data["run"])
    write(shard, key | {"layout": old}, entries)


@FORMS
def test_a_shard_from_before_some_fields_came_is_read_with_their_defaults(
    shard: Path, runs: list[Run], write: Callable[..., None]
) -> None:
    def earlier(layout: Any, packed: Any) -> Any:
        """Runs without `margins` and `seen`, perturbations without `cost`, records of which the role is always written."""
        above, run, tape = packed
        names, marks = layout["Run"][0], layout["Record"]
        records = names.index("records")
        others = [name for name in marks[1] if name != "role"]

        def older(record: Any) -> Any:
            rare = dict(zip(marks[1], record[-1], strict=True)) if len(record) > len(marks[0]) else {}
            said = [*record[: len(marks[0])], rare.pop("role", "")]
            return [*said, list(rare.values())] if rare else said

        run[records] = [older(record) for record in run[records]]
        kept = [name for name in names if name not in ("margins", "seen")]
        run = [item for name, item in zip(names, run, strict=True) if name in kept]
        spec, at = run[names.index("spec")], layout["RunSpec"][0].index("schedule")
        spec[at] = [[item[:-1] for item in spec[at][0]]]
        assert layout["Perturbation"][0][-1] == "cost"
        old = layout | {
            "Run": [kept, []], "Record": [[*marks[0], "role"], others],
            "Perturbation": [layout["Perturbation"][0][:-1], []],
        }  # fmt: skip
        return old, [above, run, tape]

    changed(shard, earlier, write)
    found = Shard(shard)
    free = [schedule(replace(item, cost=0) for item in run.spec.schedule) for run in runs]
    assert [item.run for item in found] == [replace(run, spec=run.spec.under(at)) for run, at in zip(runs, free, strict=True)]
    assert [item.run.head for item in Shard(shard)] == [run.head for run in runs]
    assert found.findings == ()


@pytest.mark.parametrize("kind", ["Link", "TapeEntry"])
def test_a_shard_whose_fields_have_other_names_is_left_out_whole(shard: Path, kind: str) -> None:
    def renamed(layout: Any, packed: Any) -> Any:
        names, rare = layout[kind]
        return layout | {kind: [["earlier", *names[1:]], rare]}, packed

    changed(shard, renamed, rewritten)
    found = Shard(shard)
    assert list(found) == []
    assert [finding.code for finding in found.findings] == ["log-foreign"]


def test_a_shard_whose_tapes_have_fewer_fields_is_left_out_whole(shard: Path) -> None:
    """A tape is packed without the names of its fields, so what is missing could not be told."""

    def shorter(layout: Any, packed: Any) -> Any:
        names, rare = layout["TapeEntry"]
        assert names[-1] == "retry_after_ms"  # with a default, so that another class could do without it
        return layout | {"TapeEntry": [names[:-1], rare]}, packed

    changed(shard, shorter, rewritten)
    found = Shard(shard)
    assert list(found) == []
    assert [finding.code for finding in found.findings] == ["log-foreign"]


def test_a_log_of_another_kind_is_said_to_be_that(tmp_path: Path) -> None:
    path = tmp_path / "search.mat.log"
    checkpoint.create(path, kind="search", key={}).close()
    found = Shard(path)
    assert list(found) == []
    (finding,) = found.findings
    assert (finding.code, finding.message) == (
        "log-damaged", "search.mat.log: it is a search log, which contains no runs",
    )  # fmt: skip


def test_a_file_that_is_no_shard_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / f"notes{SUFFIX}").write_text("dear diary\n")
    (tmp_path / f"empty{SUFFIX}").write_text("")
    (tmp_path / "other.txt").write_text("not looked at")
    reading = read(tmp_path)
    assert list(reading) == []
    assert [finding.code for finding in reading.findings] == ["log-torn", "log-damaged"]


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is no run log"):
        read(tmp_path / "nothing")


# -- what cannot be written -------------------------------------------------------------------------------------------


def test_a_run_too_large_for_a_reader_is_refused_and_the_log_goes_on(
    tmp_path: Path, runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunLog(tmp_path) as log:
        log.append(entry(runs[0]))
        with monkeypatch.context() as patch:
            patch.setattr(limits, "FILE_BYTES", 500)
            with pytest.raises(LimitReached, match="is too large for the run log"):
                log.append(entry(runs[1]))
        log.append(entry(runs[2]))
    reading = read(tmp_path)
    assert [item.run for item in reading] == [runs[0], runs[2]]
    assert reading.findings == ()


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are POSIX")
def test_of_a_run_that_did_not_fit_on_the_disk_nothing_stays(tmp_path: Path) -> None:
    """The process may write so many bytes to a file: the last line is cut short by the system, as on a full disk."""
    script = f"""
import resource, signal
import mat
from mat.core.errors import CodecError
from mat.evidence.runlog import RunEntry, RunLog

@mat.tool
def look(x):
    return "answer" * 50

def made(seed):
    with mat.run([], task="t", seed=seed) as run:
        look(seed)
    return RunEntry(item="t", condition="nominal", run=run.result)

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = RunLog({str(tmp_path)!r})
log.append(made(0))
size = log.path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 300, resource.RLIM_INFINITY))
try:
    log.append(made(1))
except CodecError as error:
    print(error.what, log.path.stat().st_size > size)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.append(made(2))
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.strip() == "cannot write the run log: File too large True"
    reading = read(tmp_path)
    assert [item.run.spec.seed for item in reading] == [0, 2]
    assert reading.findings == ()


def test_a_folder_that_cannot_be_written_is_an_error_with_its_name(tmp_path: Path, violating: Run) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CodecError, match="cannot write the run log"):
        RunLog(tmp_path / "file" / "log").append(entry(violating))


# -- processes that are killed ----------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_no_finished_run_is_lost_to_a_killed_process_and_the_store_is_rebuilt(tmp_path: Path, shop_tests: Any) -> None:
    """The witness is a pipe: the child writes a byte to it after each append that returned, and is killed at any moment."""
    draw, log = random.Random(20261121), tmp_path / "log"
    run = replace(shop_tests.run(schedule=[shop_tests.lost_ack()]), error="x" * 400_000)  # long enough to be cut in writing
    witnessed = [_killed_while_appending(log, trial, run, draw) for trial in range(TRIALS)]
    reading = read(log)
    found = [0] * TRIALS
    for item in reading:
        assert item.run == replace(run, spec=replace(run.spec, seed=item.run.spec.seed))
        assert item.run.spec.seed == found[int(item.session)]  # none is missing among them
        found[int(item.session)] += 1
    assert all(seen <= kept <= seen + 1 for seen, kept in zip(witnessed, found, strict=True))
    assert sum(found) > TRIALS, found
    assert {finding.code for finding in reading.findings} <= {"log-torn"}
    taken = Store.rebuild(tmp_path / "store.duckdb", log)
    assert taken.new == sum(found)
    with Store(tmp_path / "store.duckdb", mode="read") as store:
        rows = store.query("SELECT session, count(*) FROM runs GROUP BY session").rows
        ((steps,),) = store.query("SELECT count(*) FROM steps").rows
    assert dict(rows) == {str(trial): count for trial, count in enumerate(found) if count}
    assert steps == sum(found) * len(run.records)


def _killed_while_appending(folder: Path, trial: int, run: Run, draw: random.Random) -> int:
    """How many appends had returned when a child that appends without end was killed."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(receiver)
            log, seed = RunLog(folder, session=str(trial)), 0
            while True:
                log.append(entry(replace(run, spec=replace(run.spec, seed=seed))))
                os.write(sender, b".")
                seed += 1
        finally:
            os._exit(1)
    os.close(sender)
    seen = 0
    for _ in range(draw.randrange(6)):
        seen += len(os.read(receiver, 1))
    for _ in range(draw.randrange(20_000)):  # some more of its time, up to a few appends
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(receiver, 65_536):
        seen += len(more)
    os.close(receiver)
    return seen
