"""Integrity predicates, and Proposition 1: validity and integrity are two axes, and neither says anything of the other."""

from __future__ import annotations

import base64
import hashlib
import hmac as library
import sys

import jwt as pyjwt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import mat
from mat.boundary.integrity import Integrity, ObservationContract

KEY = "k" * 32
texts = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=60)
words = st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=20)


def code(text: str, *, written: str = "hex") -> str:
    found = library.new(KEY.encode(), text.encode(), "sha256").digest()
    return found.hex() if written == "hex" else base64.urlsafe_b64encode(found).decode().rstrip("=")


def signed_url(word: str) -> str:
    return f"https://h.test/{word}?a={word}&sig={code(f'https://h.test/{word}?a={word}')}"


PREDICATES = {
    "sha256": (mat.artifact.sha256(), lambda word: f"{word}%2F\u2603"),
    "hmac": (mat.artifact.hmac(KEY), lambda word: f"{word}.{code(word)}"),
    "hmac parameter": (mat.artifact.hmac(KEY, parameter="sig"), signed_url),
    "etag": (mat.artifact.etag(), lambda word: f'"{word}"'),
    "weak etag": (mat.artifact.etag(weak=True), lambda word: f'W/"{word}"'),
    "jwt": (mat.artifact.jwt(KEY), lambda word: pyjwt.encode({"sub": word}, KEY, algorithm="HS256")),
    "own": (Integrity("length", lambda before, after: len(before) == len(after)), lambda word: word),
}
"""Kind -> (predicate, word -> an artefact that it is declared for)."""


@pytest.mark.full
@pytest.mark.parametrize("kind", PREDICATES)
@given(word=words, issued=st.integers(0, 10**9), ttl=st.integers(1, 10**9), late=st.integers(0, 10**9), data=st.data())
def test_all_four_cells_of_validity_and_integrity_are_reached(
    kind: str, word: str, issued: int, ttl: int, late: int, data: st.DataObject
) -> None:
    predicate, made = PREDICATES[kind]
    artefact, damaged = made(word), made(word) + "!"
    contract = ObservationContract(artifact=artefact, issued_ms=issued, ttl_ms=ttl, integrity=predicate)
    in_time, over = issued + data.draw(st.integers(0, ttl - 1)), issued + ttl + late
    cells = {(contract.valid(at), contract.intact(text)) for at in (in_time, over) for text in (artefact, damaged)}
    assert cells == {(True, True), (True, False), (False, True), (False, False)}
    assert [contract.satisfied(text, at) for at in (in_time, over) for text in (artefact, damaged)] == [
        True,
        False,
        False,
        False,
    ]


@given(issued=st.integers(0, 10**6), ttl=st.integers(0, 10**6))
def test_the_window_is_half_open(issued: int, ttl: int) -> None:
    contract = ObservationContract(artifact="x", issued_ms=issued, ttl_ms=ttl)
    assert contract.expires_ms == issued + ttl
    assert contract.valid(issued) is (ttl > 0)
    assert contract.valid(issued + ttl - 1) is (ttl > 0)
    assert not contract.valid(issued + ttl)
    assert not contract.valid(issued - 1)


def test_what_has_no_time_to_live_holds_for_ever_but_not_before_it_was_issued() -> None:
    contract = ObservationContract(artifact="x", issued_ms=5)
    assert contract.expires_ms is None
    assert contract.valid(10**15)
    assert not contract.valid(4)


@pytest.mark.full
@pytest.mark.parametrize("kind", PREDICATES)
@given(word=words)
def test_what_was_issued_keeps_its_own_predicate(kind: str, word: str) -> None:
    predicate, made = PREDICATES[kind]
    assert predicate.keeps(made(word), made(word))


@pytest.mark.full
@pytest.mark.parametrize("kind", [kind for kind in PREDICATES if kind != "own"])
@given(issued=texts, submitted=texts)
def test_no_predicate_raises_and_none_changes_its_mind(kind: str, issued: str, submitted: str) -> None:
    predicate, _ = PREDICATES[kind]
    assert predicate.keeps(issued, submitted) is predicate.keeps(issued, submitted)


@pytest.mark.parametrize("kind", ["sha256", "hmac", "hmac parameter", "etag", "jwt"])
def test_a_text_that_no_utf8_can_hold_is_judged_like_any_other(kind: str) -> None:
    predicate, made = PREDICATES[kind]
    assert not predicate.keeps(made("a"), "\ud800")


@given(artefact=texts, other=texts)
def test_sha256_holds_of_the_same_bytes_and_of_nothing_else(artefact: str, other: str) -> None:
    assume(artefact != other)
    assert mat.artifact.sha256().keeps(artefact, artefact)
    assert not mat.artifact.sha256().keeps(artefact, other)
    assert hashlib.sha256(artefact.encode()).digest() != hashlib.sha256(other.encode()).digest()


@given(word=words, at=st.integers(0, 3), last=st.integers(0, 63))
def test_a_code_at_any_place_of_a_query_authenticates_the_rest_byte_by_byte(word: str, at: int, last: int) -> None:
    rest = ["a=1", f"b={word}", "sigs=2"]
    bare = "https://h.test/p?" + "&".join(rest)
    url = "https://h.test/p?" + "&".join([*rest[:at], f"sig={code(bare)}", *rest[at:]])
    keeps = mat.artifact.hmac(KEY, parameter="sig").keeps
    assert keeps(url, url)
    for damaged in (url + "x", url.replace("/p?", "/q?"), url.replace("&", "&&", 1), url + "&c=3", url + f"&sig={'0' * 64}"):
        assert not keeps(url, damaged)
    flipped = url.replace(code(bare), code(bare)[:last] + ("0" if code(bare)[last] != "0" else "1") + code(bare)[last + 1 :])
    assert not keeps(url, flipped)


def test_a_code_may_be_written_in_hexadecimal_and_base64_also_percent_encoded() -> None:
    found = library.new(KEY.encode(), b"https://h.test/p", "sha256").digest()
    plain = base64.b64encode(found).decode()
    written = [found.hex(), found.hex().upper(), plain, plain.rstrip("="), base64.urlsafe_b64encode(found).decode()]
    written.append(plain.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D"))
    for one in written:
        url = f"https://h.test/p?sig={one}"
        assert mat.artifact.hmac(KEY, parameter="sig").keeps(url, url)


def test_bits_of_base64_that_say_nothing_may_not_be_changed() -> None:
    text = f"payload.{code('payload', written='base64')}"
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    assert [char for char in alphabet if mat.artifact.hmac(KEY).keeps(text, text[:-1] + char)] == [text[-1]]


def test_a_code_under_another_key_or_of_another_digest_does_not_verify() -> None:
    text = f"payload.{code('payload')}"
    assert mat.artifact.hmac(KEY.encode()).keeps(text, text)
    assert not mat.artifact.hmac("other").keeps(text, text)
    assert not mat.artifact.hmac(KEY, algorithm="sha512").keeps(text, text)


@pytest.mark.parametrize(
    ("issued", "submitted", "strong", "weak"),
    [
        ('"a"', '"a"', True, True),
        ('"a"', '"b"', False, False),
        ('"a"', 'W/"a"', False, True),
        ('W/"a"', 'W/"a"', False, True),
        ('"a"', '"b", "a"', True, True),
        ('"a"', '"b",W/"a"', False, True),
        ('"a"', "*", True, True),
        ('"a"', "a", False, False),
        ('"a"', '"a', False, False),
        ('"a"', '"a" x', False, False),
        ("7", "7", True, True),
        ("7", "8", False, False),
        ('"a,b"', '"a,b"', True, True),
    ],
)
def test_entity_tags_are_compared_as_http_says(issued: str, submitted: str, strong: bool, weak: bool) -> None:
    """RFC 9110, sections 8.8.3.2, 13.1.1 and 13.1.2."""
    assert (mat.artifact.etag().keeps(issued, submitted), mat.artifact.etag(weak=True).keeps(issued, submitted)) == (
        strong,
        weak,
    )


def test_a_token_is_intact_whatever_its_claims_say_and_damaged_once_one_character_is_another() -> None:
    token = pyjwt.encode({"sub": "x", "exp": 1, "aud": "y", "nbf": 2**33}, KEY, algorithm="HS256")
    keeps = mat.artifact.jwt(KEY).keeps
    assert keeps(token, token)
    for at in range(len(token)):
        assert not keeps(token, token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :])
    unsigned = pyjwt.encode({"sub": "x"}, None, algorithm="none")
    assert not keeps(token, unsigned)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: mat.artifact.hmac(5),  # type: ignore[arg-type]
        lambda: mat.artifact.hmac("k", algorithm="shake_128"),
        lambda: mat.artifact.hmac("k", algorithm="md99"),
        lambda: mat.artifact.jwt(KEY, algorithms="HS256"),
        lambda: mat.artifact.jwt(KEY, algorithms=()),
        lambda: mat.artifact.jwt(KEY, algorithms=["none"]),
    ],
)
def test_what_verifies_nothing_is_refused_when_it_is_written(wrong: object) -> None:
    with pytest.raises(mat.MatError) as caught:
        wrong()  # type: ignore[operator]
    assert caught.value.what
    assert caught.value.fix


def test_without_pyjwt_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(mat.MatError, match=r"pip install \"pytest-mat\[jwt\]\""):
        mat.artifact.jwt(KEY)
