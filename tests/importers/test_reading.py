"""Reading files of rows: lines, arrays and objects, plain and gzipped, lazily, and what is said of broken ones."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mat.adapters.importers import base, formats, read_traces
from mat.adapters.importers.base import interleave, read_rows
from mat.core import limits
from mat.core.errors import CodecError, MatError, SpecError

ROW = {"id": "one", "messages": [{"role": "user", "content": "hello"}]}


def rows(path: Path) -> list[Any]:
    return [row for _, row in read_rows(path)]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}\n{"a": 2}\n',
        '{"a": 1}\n\n{"a": 2}',
        '\ufeff{"a": 1}\n{"a": 2}\n',
        '[{"a": 1}, {"a": 2}]',
        '\n [\n {"a":\n 1},\n {"a": 2}\n]\n',
        '{\n "a": 1\n}\n{\n "a": 2\n}\n',
        '{"a": 1} {"a": 2}',
    ],
)
def test_lines_arrays_and_objects_give_the_same_rows(tmp_path: Path, text: str, packed: bool) -> None:
    path = tmp_path / "rows"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    assert rows(path) == [{"a": 1}, {"a": 2}]


def test_texts_with_brackets_quotes_and_escapes_are_cut_where_rows_end_whatever_the_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = random.Random(7)
    made = [{"t": "".join(stream.choice('{}[]"\\ \n,é') for _ in range(stream.randrange(12))), "n": [{}]} for _ in range(60)]
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(made, indent=1, ensure_ascii=False))
    for size in (1, 2, 3, 7, 64, 1 << 16):
        monkeypatch.setattr(base, "_CHUNK", size)
        assert rows(path) == made


def test_a_position_is_the_line_where_the_row_begins(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text('[\n {"a":\n 1},\n\n {"a": 2}]')
    assert [position for position, _ in read_rows(path)] == [f"{path}:2", f"{path}:5"]
    path.write_text('\n{"a": 1}\n\n{"a": 2}\n')
    assert [position for position, _ in read_rows(path)] == [f"{path}:2", f"{path}:4"]


@pytest.mark.parametrize(
    ("text", "before", "line", "said"),
    [
        ('{"a": 1}\n{"a": 2', 1, 2, "cut off"),
        ('{"a": 1}\n{"a": nope}\n{"a": 3}\n', 1, 2, "not JSON"),
        ('{"a": nope}\n{"a": 3}\n', 0, 1, "not JSON"),
        ('{"a": 1', 0, 1, "cut off"),
        ('[{"a": 1},\n {"a": 2}', 2, 2, "cut off"),
        ('[{"a": 1},\n {"a": "2}]', 1, 2, "cut off"),
        ('[{"a": 1},\n 7, {"a": 2}]', 1, 2, "7"),
        ('{"a": 1}\n[1]\n', 1, 2, "list"),
        ('{"a": 1}\n"text"\n', 1, 2, "str"),
        ("no rows at all\n", 0, 1, "not JSON"),
    ],
)
def test_a_broken_file_is_an_error_with_its_line_after_the_rows_before_it(
    tmp_path: Path, text: str, before: int, line: int, said: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    stream = read_rows(path)
    assert [next(stream)[1] for _ in range(before)] == [{"a": 1}, {"a": 2}][:before]
    with pytest.raises(MatError) as caught:
        next(stream)
    assert f"{path}:{line}" in str(caught.value)
    assert said in str(caught.value)


def test_bytes_that_are_no_text_are_an_error_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": "\xff\xfe"}\n')
    with pytest.raises(CodecError, match=f"{path}:2"):
        rows(path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
def test_a_file_in_utf_16_or_32_is_an_error_that_says_how_to_convert_it(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes((json.dumps(ROW) + "\n" + json.dumps(ROW) + "\n").encode(encoding))
    with pytest.raises(CodecError, match=r"rows\.jsonl is in UTF-(16|32)") as caught:
        rows(path)
    assert caught.value.fix is not None
    assert path.read_bytes().decode(caught.value.fix.split()[-3]).count("hello") == 2


@pytest.mark.parametrize("content", [b"PK\x03\x04\x14\x00archive", b"BZh91AY&SY\xe0", b"\x00" * 64, b"id,messages", b"\x1f"])
def test_a_file_of_something_else_is_not_json_and_not_called_cut_off(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(CodecError, match=f"{path}:1 is not JSON") as caught:
        rows(path)
    assert caught.value.fix == "copy the file again, or remove the row"


@pytest.mark.parametrize("keep", [20, -4, -9])
def test_a_cut_or_damaged_gzip_file_is_an_error(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "rows.jsonl.gz"
    whole = gzip.compress("".join(json.dumps({"a": n}) + "\n" for n in range(1000)).encode())
    path.write_bytes(whole[:keep])
    with pytest.raises(CodecError, match="cut off"):
        rows(path)
    path.write_bytes(whole[:100] + b"damage" + whole[106:])
    with pytest.raises(MatError):
        rows(path)


def test_a_file_that_is_absent_or_a_folder_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.jsonl", tmp_path):
        with pytest.raises(MatError, match="cannot be read"):
            read_traces(path)


def test_a_file_without_rows_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    for text in ("", "\n\n", "[]"):
        path.write_text(text)
        with pytest.raises(MatError, match="no rows"):
            read_traces(path)


def test_a_row_larger_than_the_limit_is_an_error_in_lines_and_in_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FILE_BYTES", 100)
    path = tmp_path / "rows.jsonl"
    for text in ('{"a": 1}\n{"a": "' + "x" * 200 + '"}\n', '[{"a": 1}, {"a": "' + "x" * 200 + '"}]'):
        path.write_text(text)
        with pytest.raises(CodecError, match=r":[12] has"):
            rows(path)


def test_an_unknown_format_is_an_error_that_lists_the_known(written: Callable[..., Path]) -> None:
    with pytest.raises(MatError, match=r"otlp.*inspect.*chat"):
        read_traces(written({"something": "else"}))
    with pytest.raises(SpecError, match=r"otlp.*inspect.*chat"):
        read_traces(written(ROW), "tau")


def test_a_named_format_refuses_rows_of_another(written: Callable[..., Path]) -> None:
    path = written(ROW)
    with pytest.raises(MatError, match=f"{path}:1"):
        list(read_traces(path, "inspect"))


def test_formats_have_different_names_and_no_row_fits_two(written: Callable[..., Path]) -> None:
    names = [item.name for item in formats()]
    assert len(set(names)) == len(names)
    assert [item.name for item in formats() if item.accepts(ROW)] == ["chat"]


def test_traces_are_read_lazily_so_that_a_broken_row_ends_only_what_comes_after_it(written: Callable[..., Path]) -> None:
    path = written(ROW, {**ROW, "id": "two"}, {**ROW, "messages": [7]})
    stored = read_traces(path)
    assert [next(stored).id, next(stored).id] == ["one", "two"]
    with pytest.raises(MatError, match=f"(?s){path}:3.*messages"):
        next(stored)


@pytest.mark.full
@pytest.mark.parametrize("array", [False, True])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, array: bool) -> None:
    import tracemalloc

    def peak(count: int) -> int:
        path = tmp_path / f"{count}.json"
        lines = [json.dumps({**ROW, "trial": n, "info": {"pad": "x" * 2000}}) for n in range(count)]
        path.write_text("[" + ",".join(lines) + "]" if array else "\n".join(lines))
        tracemalloc.start()
        assert sum(1 for _ in read_traces(path)) == count
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(10)
    few, many = peak(200), peak(2000)
    assert many < few + 300_000, (few, many)


def test_a_value_too_deep_to_record_is_an_error_with_its_line(written: Callable[..., Path]) -> None:
    deep: Any = "x"
    for _ in range(limits.VALUE_DEPTH + 5):
        deep = [deep]
    call = {"id": "1", "function": {"name": "get_it", "arguments": json.dumps({"deep": deep})}}
    path = written(ROW, {**ROW, "messages": [{"role": "assistant", "tool_calls": [call]}]})
    with pytest.raises(CodecError, match=f"{path}:2"):
        list(read_traces(path))


def test_intervals_are_ordered_by_time_and_a_call_that_ends_when_another_starts_came_before_it() -> None:
    overlapping, instant, after = interleave([(0, 10), (5, 5), (10, 12)])
    assert overlapping[0] < instant[0] < instant[1] < overlapping[1] < after[0] < after[1]
    first, second = interleave([(3, 3), (3, 3)])
    assert first[1] < second[0]
