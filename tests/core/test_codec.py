"""The codec at the edge: what its errors call the data."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from mat.core.codec import decode
from mat.core.errors import CodecError
from mat.core.spec import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredRun:
    item: str


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (RunSpec, "", "not a run spec: "),
        (_StoredRun, "", "not a stored run: "),
        (_StoredRun, "report", "not a report: "),
    ],
)
def test_an_error_of_decoding_calls_the_data_by_words_and_not_by_a_private_class(kind: type, name: str, expected: str) -> None:
    with pytest.raises(CodecError) as raised:
        decode(kind, {"unheard": 1}, name=name)
    assert str(raised.value).startswith(expected)
