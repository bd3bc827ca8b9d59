from __future__ import annotations

import gzip
import json
import math
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mat
from mat.core.codec import FORMAT, encode
from mat.core.errors import CodecError, SpecError
from mat.core.record import (
    ACTION_KINDS,
    Action,
    ErrorFact,
    FaultNote,
    Link,
    Mediation,
    Observation,
    Record,
)
from mat.core.run import Run
from mat.core.value import EMPTY, FrozenDict, FrozenList
from mat.evidence import jsonl, runlog


def step(number: int, **changed: Any) -> Record:
    fields: dict[str, Any] = dict(
        step=number, at_ms=number, sealed_ms=number, asked_seq=2 * number, sealed_seq=2 * number + 1, agent="mailer", role="",
        state=EMPTY, site=f"mailer/service:refund#{number + 1}",
        action=Action(kind="tool_call", name="refund", arguments=FrozenDict({"order": f"A-{number}"}), effect="write"),
        observation=Observation(value="done"), effected="yes", mediation=None, links=(), executed=None, raw=None, invoked=1,
        faults=(), taped=False,
    )  # fmt: skip
    return Record(**{**fields, **changed})


class Taken(NamedTuple):
    """A trace that was read to its end."""

    id: str
    labels: FrozenDict
    records: list[Record]
    finished: bool
    torn: str


def taken(path: Path) -> list[Taken]:
    found = []
    for trace in jsonl.read(path):
        records = list(trace.records)
        found.append(Taken(trace.id, trace.labels, records, trace.finished, trace.torn))
    return found


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(-(2**70), 2**70)
leaves = st.none() | st.booleans() | numbers | st.floats(allow_nan=False) | st.text(max_size=8) | st.binary(max_size=8)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3).map(FrozenList) | st.dictionaries(st.text(max_size=5), inner, max_size=3).map(FrozenDict)
    ),
    max_leaves=6,
)
mappings = st.dictionaries(st.text(max_size=5), values, max_size=3).map(FrozenDict)
small = st.integers(0, 10**9)
errors = st.builds(ErrorFact, type=names, message=names, kind=names)
observations = st.builds(
    Observation, value=values, error=st.none() | errors, cancelled=st.booleans(), chunks=st.none() | small,
    opaque=st.booleans(), usage=mappings,
)  # fmt: skip
actions = st.builds(
    Action, kind=st.sampled_from(ACTION_KINDS), name=names, arguments=mappings,
    effect=st.sampled_from(["none", "read", "write"]), impact=st.sampled_from(["low", "high"]), boundary=names,
)  # fmt: skip
mediations = st.builds(
    Mediation, decision=st.sampled_from(["allow", "rewrite", "block"]), rule=names, reason=names, arguments=st.none() | mappings
)
steps = st.builds(
    Record, step=st.just(0), at_ms=small, sealed_ms=small, asked_seq=small, sealed_seq=small, agent=names, role=names,
    state=mappings, site=names, action=actions, observation=observations,
    effected=st.sampled_from(["yes", "no", "unknown"]), mediation=st.none() | mediations,
    links=st.lists(st.builds(Link, src=names, rel=names, dst=names), max_size=2).map(tuple), executed=st.none() | mappings,
    raw=st.none() | observations, invoked=small,
    faults=st.lists(
        st.builds(FaultNote, operator=names, parameters=mappings, effect=names, changed=st.booleans()), max_size=2
    ).map(tuple), taped=st.booleans(),
)  # fmt: skip


@pytest.mark.full
@given(record=steps, labels=mappings)
@settings(max_examples=200, deadline=None)
def test_what_is_written_is_read_back_equal(
    record: Record, labels: FrozenDict, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("traces") / "one.mat.jsonl"
    jsonl.write(path, [record], trace="one", labels=labels)
    (trace,) = taken(path)
    assert trace.records == [record]
    assert (trace.id, trace.labels, trace.finished, trace.torn) == ("one", labels, True, "")


def test_values_that_json_lacks_are_read_back_too(tmp_path: Path) -> None:
    odd = FrozenDict({"nan": math.nan, "inf": -math.inf, "big": 10**5000, "raw": b"\x00\xff", "$tag": "$", "lone": "\ud800"})
    record = step(0, observation=Observation(value=odd))
    path = tmp_path / "odd.mat.jsonl"
    jsonl.write(path, [record], trace="odd")
    assert path.read_bytes().isascii()
    (trace,) = taken(path)
    (back,) = trace.records
    assert encode(back) == encode(record)


def test_a_run_is_written_with_its_task_and_how_it_ended(tmp_path: Path, violating: Run) -> None:
    path = tmp_path / "run.mat.jsonl"
    assert jsonl.write(path, violating) == len(violating.records)
    (trace,) = taken(path)
    assert tuple(trace.records) == violating.records
    assert trace.id == f"{violating.spec.task} seed 0"
    assert trace.labels["termination"] == violating.termination
    assert trace.finished


def test_traces_are_appended_and_come_back_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder" / "runs.mat.jsonl"
    for name, count in (("first", 2), ("empty", 0), ("last", 3)):
        jsonl.write(path, map(step, range(count)), trace=name)
    found = [(trace.id, len(trace.records), trace.finished) for trace in taken(path)]
    assert found == [("first", 2, True), ("empty", 0, True), ("last", 3, True)]


def test_another_process_waits_while_a_trace_is_appended(tmp_path: Path) -> None:
    path = tmp_path / "runs.mat.jsonl"
    locked = []

    def records() -> Iterator[Record]:
        locked.append(is_locked_for_others(path))
        yield step(0)

    jsonl.write(path, records(), trace="first")
    assert (locked, is_locked_for_others(path)) == ([True], False)


def is_locked_for_others(path: Path) -> bool:
    import fcntl

    with path.open("rb") as stream:  # a lock belongs to what `open` gave, not to the process
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_trace_whose_records_nobody_took_does_not_shift_the_next(tmp_path: Path) -> None:
    path = tmp_path / "runs.mat.jsonl"
    for name in ("first", "last"):
        jsonl.write(path, map(step, range(3)), trace=name)
    assert [trace.id for trace in jsonl.read(path)] == ["first", "last"]


def test_gzipped_files_are_read(tmp_path: Path) -> None:
    plain, packed = tmp_path / "runs.mat.jsonl", tmp_path / "runs.mat.jsonl.gz"
    jsonl.write(plain, map(step, range(3)), trace="one")
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert jsonl.recognises(packed)
    (trace,) = taken(packed)
    assert trace.records == [step(0), step(1), step(2)]


def test_a_trace_without_its_end_line_is_not_finished(tmp_path: Path) -> None:
    path = tmp_path / "runs.mat.jsonl"
    jsonl.write(path, map(step, range(2)), trace="cut", finished=False)
    jsonl.write(path, map(step, range(1)), trace="whole")
    found = [(trace.id, len(trace.records), trace.finished, trace.torn) for trace in taken(path)]
    assert found == [("cut", 2, False, ""), ("whole", 1, True, "")]


def test_a_recording_that_raises_leaves_its_steps_without_an_end(tmp_path: Path) -> None:
    def recording() -> Iterator[Record]:
        yield step(0)
        raise RuntimeError("the run crashed")

    path = tmp_path / "runs.mat.jsonl"
    with pytest.raises(RuntimeError, match="crashed"):
        jsonl.write(path, recording(), trace="crashed")
    (trace,) = taken(path)
    assert (trace.records, trace.finished, trace.torn) == ([step(0)], False, "")


def test_wherever_a_file_is_cut_everything_before_the_cut_is_kept(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.mat.jsonl", tmp_path / "cut.mat.jsonl"
    jsonl.write(whole, map(step, range(3)), trace="one")
    text = whole.read_bytes()
    ends = [index + 1 for index, byte in enumerate(text) if byte == 10]
    for size in range(ends[0], len(text), 7):
        cut.write_bytes(text[:size])
        lines = sum(end <= size or end - 1 == size for end in ends)
        (trace,) = taken(cut)
        assert trace.records == [step(number) for number in range(lines - 1)][:3]
        assert trace.finished == (lines == 5)
        half = size not in ends and size + 1 not in ends
        assert trace.torn.startswith(f"{cut}:{lines + 1}: the file is cut off here") if half else trace.torn == ""


def test_reading_goes_on_behind_a_line_that_a_crashed_writer_left_torn(tmp_path: Path) -> None:
    path = tmp_path / "runs.mat.jsonl"
    jsonl.write(path, map(step, range(3)), trace="crashed")
    path.write_bytes(path.read_bytes()[:-40])
    jsonl.write(path, map(step, range(2)), trace="next")
    first, second = ((trace.id, len(trace.records), trace.finished, trace.torn) for trace in taken(path))
    assert first == ("crashed", 2, False, f"{path}:4: the file is cut off here; the lines before this one are kept")
    assert second == ("next", 2, True, "")


def test_a_header_of_which_only_a_part_was_written_is_reported_and_hides_nothing(tmp_path: Path) -> None:
    path = tmp_path / "runs.mat.jsonl"
    jsonl.write(path, map(step, range(1)), trace="one")
    with path.open("ab") as stream:
        stream.write(b'{"mat": 1, "tra')
    found = [(trace.id, len(trace.records), trace.finished, bool(trace.torn)) for trace in taken(path)]
    assert found == [("one", 1, True, False), ("", 0, False, True)]


HEADER = json.dumps({"mat": FORMAT, "trace": "one"})
LINES = {
    "a broken line in the middle": ([HEADER, "{", json.dumps(encode(step(0)))], 2, "is not JSON"),
    "two broken lines at the end": ([HEADER, "{", "{"], 2, "is not JSON"),
    "a record outside a trace": ([HEADER, '{"end":0}', json.dumps(encode(step(0)))], 3, "is not part of a trace"),
    "no header": ([json.dumps(encode(step(0)))], 1, "is not part of a trace"),
    "a step left out": ([HEADER, json.dumps(encode(step(0))), json.dumps(encode(step(2)))], 3, "has step 2"),
    "an end that counts otherwise": (
        [HEADER, json.dumps(encode(step(0))), '{"end":2}'],
        3,
        "counts 2 records, but the trace has 1",
    ),
    "an unknown field": ([HEADER, json.dumps({**encode(step(0)), "extra": 1})], 2, "extra"),
    "a missing field": ([HEADER, json.dumps({k: v for k, v in encode(step(0)).items() if k != "site"})], 2, "site"),
    "a field of another type": ([HEADER, json.dumps({**encode(step(0)), "action": 3})], 2, "action"),
    "an unknown tag": ([HEADER, json.dumps({**encode(step(0)), "state": {"$import": "os"}})], 2, "unknown tag '$import'"),
    "an unknown field of the header": (['{"mat": 1, "trace": "x", "run": "os.system"}'], 1, "run"),
    "an older format": (['{"mat": 0, "trace": "x"}'], 1, "an older version"),
    "a newer format": (['{"mat": 99, "trace": "x"}'], 1, "trace of format 99; this pytest-mat reads format 1"),
    "a version that is no number": (['{"mat": "one", "trace": "x"}'], 1, "mat"),
    "a list": ([HEADER, "[1, 2]"], 2, "not a record"),
}


@pytest.mark.parametrize("name", LINES)
def test_a_wrong_line_is_an_error_with_its_position(name: str, tmp_path: Path) -> None:
    lines, number, said = LINES[name]
    path = tmp_path / "wrong.mat.jsonl"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(CodecError) as caught:
        taken(path)
    assert caught.value.where == f"{path}:{number}"
    assert said in str(caught.value)


def test_the_records_before_a_wrong_line_have_been_delivered(tmp_path: Path) -> None:
    path = tmp_path / "wrong.mat.jsonl"
    path.write_text("\n".join([HEADER, json.dumps(encode(step(0))), "{", json.dumps(encode(step(1)))]))
    records = next(iter(jsonl.read(path))).records
    assert next(records) == step(0)
    with pytest.raises(CodecError):
        next(records)


@pytest.mark.parametrize("depth", [101, 100_000])
def test_a_line_nested_too_deep_is_refused(depth: int, tmp_path: Path) -> None:
    path = tmp_path / "deep.mat.jsonl"
    path.write_text(f"{HEADER}\n{'[' * depth}{']' * depth}\n{json.dumps(encode(step(0)))}\n")
    with pytest.raises(CodecError, match="nested") as caught:
        list(next(iter(jsonl.read(path))).records)
    assert caught.value.where == f"{path}:2"


def test_a_line_over_the_limit_is_refused_without_reading_it_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "LINE_BYTES", 1_000)
    path = tmp_path / "long.mat.jsonl"
    path.write_bytes(HEADER.encode() + b"\n" + b" " * 50_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(CodecError, match="a line of more than 1000 bytes") as caught:
            list(next(iter(jsonl.read(path))).records)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    assert caught.value.where == f"{path}:2"


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"\xff\xfe\x00", b"[]", b'{"mat": 1}', b'{"trace": "x"}', b'{"resourceSpans": []}']
)
def test_what_is_not_ours_is_not_recognised(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_bytes(content)
    assert not jsonl.recognises(path)


def test_a_torn_gzip_stream_and_a_missing_file_are_errors_with_a_position(tmp_path: Path) -> None:
    path = tmp_path / "torn.gz"
    path.write_bytes(gzip.compress(HEADER.encode() * 1000)[:-20])
    for each in (path, tmp_path / "missing", tmp_path):
        with pytest.raises(CodecError, match="cannot read") as caught:
            list(jsonl.read(each))
        assert str(each) in caught.value.where


def test_records_that_are_no_whole_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="record 1 of trace 'one' has step 4"):
        jsonl.write(tmp_path / "x.mat.jsonl", [step(0), step(4)], trace="one")
    with pytest.raises(SpecError, match="no printable id"):
        jsonl.write(tmp_path / "x.mat.jsonl", [step(0)])
    with pytest.raises(CodecError, match="cannot write"):
        jsonl.write(tmp_path, [step(0)], trace="one")


WRITER = """
import sys
from mat.evidence import jsonl, runlog
path, name = sys.argv[1:]
records = list(next(jsonl.read(path + ".one")).records)
for turn in range(50):
    jsonl.write(path, iter(records), trace=f"{name} {turn}")
"""


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="files are not locked there")
def test_two_processes_append_to_one_file_without_mixing_their_traces(tmp_path: Path) -> None:
    path = tmp_path / "runs.mat.jsonl"
    jsonl.write(f"{path}.one", (step(number, agent="a" * 3_000) for number in range(5)), trace="one")
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in ("left", "right")]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    found = [(trace.id, len(trace.records), trace.finished) for trace in taken(path)]
    assert sorted(found) == sorted((f"{name} {turn}", 5, True) for name in ("left", "right") for turn in range(50))


@pytest.mark.full
def test_reading_holds_one_record_at_a_time(tmp_path: Path) -> None:
    def peak(count: int) -> int:
        path = tmp_path / f"{count}.mat.jsonl"
        jsonl.write(path, map(step, range(count)), trace="long")
        tracemalloc.start()
        try:
            for trace in jsonl.read(path):
                for _ in trace.records:
                    pass
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(10)  # what is imported and cached on first use
    assert peak(5_000) < peak(500) + 20_000


# -- lines that no parser takes, and integers that none prints ------------------------------------------------------------


@pytest.mark.sweep(
    "last", ["[" * 200_000, '{"a":' * 50_000, '{"step":' + "9" * 5_000 + "}", '{"step":'], ids=lambda last: last[:8]
)
def test_an_invalid_last_line_that_was_written_whole_is_an_error_after_everything_before_it(last, tmp_path_factory):
    path = tmp_path_factory.mktemp("deep") / "runs.jsonl"
    with mat.run() as run:
        mat.claim("one")
        mat.claim("two")
    jsonl.write(path, run.result, trace="first")
    whole = path.read_bytes()
    path.write_bytes(whole + (last + "\n").encode())
    found = []
    with pytest.raises(CodecError) as caught:
        found.extend(record for trace in jsonl.read(path) for record in trace.records)
    assert found == list(run.result.records)
    assert caught.value.where == f"{path}:{len(whole.splitlines()) + 1}"
    path.write_bytes(whole + last.encode())  # the same line without its end was perhaps torn
    assert [record for trace in jsonl.read(path) for record in trace.records] == list(run.result.records)


@pytest.mark.parametrize("number", [10**6000, -(10**5000)], ids=["positive", "negative"])
def test_an_integer_that_python_does_not_print_survives_every_file(number, tmp_path):
    @mat.tool
    def count(amount):
        return {"twice": [2 * amount]}

    @mat.step_contract(on="tool_call", id="small")
    def small(record):
        return record.action.arguments["amount"] == 1

    with mat.run([small], task="t") as run:
        count(number)
    jsonl.write(tmp_path / "runs.jsonl", run.result, trace="first")
    first, *_ = [record for trace in jsonl.read(tmp_path / "runs.jsonl") for record in trace.records]
    assert (first.action.arguments["amount"], first.observation.value["twice"]) == (number, [2 * number])
    with runlog.RunLog(tmp_path / "log", session="s") as log:
        log.append(runlog.RunEntry(item="t", condition="nominal", run=run.result))
    (entry,) = runlog.read(tmp_path / "log")
    assert entry.run.records[0].action.arguments["amount"] == number
