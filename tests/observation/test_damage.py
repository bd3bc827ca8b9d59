"""Artefacts in what agents pass on: whole ones are found whole, damaged ones are called by what happened, others are let be."""

from __future__ import annotations

import base64
import html
import json
import re
import string
import time
import unicodedata
from collections.abc import Callable
from random import Random
from urllib.parse import quote, unquote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mat.core.damage import TextReading, Wanted, damage, damage_in, holds, reading_of, readings, wanted_of, whole
from mat.core.value import FrozenDict
from mat_faults import path

Made = dict[str, Callable[[Random], str]]
Carriers = dict[str, Callable[[str], str]]

random = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
seeds = st.integers(0, 10**6)
KINDS = ("token", "signed url", "cursor", "base64", "jwt", "cookie", "etag", "8 kB url", "odd text")
FORMATS = (
    "nothing", "query", "query of a query", "path", "form", "authorization", "basic authentication", "json", "json in a form",
    "json in json", "html", "cookies", "sentence", "brackets",
)  # fmt: skip
URLS = ("signed url", "8 kB url")
TOKENS = ("token", "signed url", "cursor", "base64", "jwt", "cookie", "8 kB url")
CARRYING = ("nothing", "query", "form", "authorization", "json", "html", "sentence")


def found(artifact: str, text: str) -> str | None:
    """ "whole", the name of the damage, or None."""
    return "whole" if whole(artifact, text) else damage(artifact, text)


def sorted_query(url: str) -> str:
    base, mark, query = url.partition("?")
    return base + mark + "&".join(sorted(query.split("&"), reverse=True))


@pytest.mark.full
@pytest.mark.sweep("carrier", FORMATS, fast=30)
@pytest.mark.sweep("kind", KINDS)
@random
@given(seed=seeds)
def test_whole_artifacts_are_found_whole_in_every_format(
    made: Made, carriers: Carriers, kind: str, carrier: str, seed: int
) -> None:
    artifact = made[kind](Random(seed))
    assert found(artifact, carriers[carrier](artifact)) == "whole"


CUT = {
    "at 60 %": lambda text: text[: len(text) * 6 // 10],
    "at 90 %": lambda text: text[: len(text) * 9 // 10],
    "the last character": lambda text: text[:-1],
    "the first character": lambda text: text[1:],
    "the first quarter": lambda text: text[len(text) // 4 :],
}


@pytest.mark.sweep("carrier", CARRYING, fast=40)
@pytest.mark.sweep("cut", CUT)
@pytest.mark.sweep("kind", TOKENS)
@random
@given(seed=seeds)
def test_what_breaks_off_or_begins_in_the_middle_is_truncated(
    made: Made, carriers: Carriers, kind: str, cut: str, carrier: str, seed: int
) -> None:
    artifact = made[kind](Random(seed))
    assert found(artifact, carriers[carrier](CUT[cut](artifact))) == "truncated"


KINDS_OF_CHARACTERS = (string.digits, string.ascii_lowercase, string.ascii_uppercase)
DENSE = "P/xc+F4+9tQ/+Ep6zZVIi83EjnA="
"""Drawn by the test above: base64 whose beginning has no four letters and digits in a row, because signs part them."""


@pytest.mark.parametrize("signs", ["+/", "-_", ".~"])
def test_a_code_whose_signs_leave_no_run_of_letters_and_digits_is_truncated_wherever_it_breaks_off(signs: str) -> None:
    artifact = DENSE.translate(str.maketrans("+/", signs))
    cuts = [artifact[:length] for length in range(len(artifact) * 6 // 10, len(artifact))]
    assert [cut for cut in cuts if found(artifact, cut) != "truncated"] == []


@random
@given(seed=seeds, signs=st.sampled_from(["+/", "-_", ".~"]), parted=st.integers(6, 12))
def test_so_is_any_code_that_signs_part_into_threes(seed: int, signs: str, parted: int) -> None:
    rng = Random(seed)
    threes = ["".join(rng.sample([rng.choice(kind) for kind in KINDS_OF_CHARACTERS], 3)) for _ in range(parted + 3)]
    artifact = "".join(three + rng.choice(signs) for three in threes[:parted]) + "".join(threes[parted:])
    cuts = [artifact[:length] for length in range(len(artifact) * 6 // 10, len(artifact))]
    assert [cut for cut in cuts if found(artifact, cut) != "truncated"] == []


PLUS = "+Zk3/pQ9xL0vB7nT2cWmR5aJ8dHs+"


@pytest.mark.parametrize(
    ("carrier", "lost", "text", "wanted"),
    [
        ("query", "the first", PLUS[1:], "truncated"),
        ("query", "the last", PLUS[:-1], "truncated"),
        ("authorization", "the first", PLUS[1:], "truncated"),
        ("sentence", "the first", PLUS[1:], "truncated"),
        ("json", "the first", PLUS[1:], "truncated"),
        ("query", "read as blanks", PLUS.replace("+", " "), "reencoded"),
        ("authorization", "read as blanks", PLUS.replace("+", " "), "reencoded"),
        ("json", "read as blanks", PLUS.replace("+", " "), "reencoded"),
    ],
)
def test_a_plus_sign_that_was_lost_is_none_that_was_read_as_a_blank(
    carriers: Carriers, carrier: str, lost: str, text: str, wanted: str
) -> None:
    assert found(PLUS, carriers[carrier](text)) == wanted


@pytest.mark.sweep("carrier", CARRYING, fast=20)
@pytest.mark.sweep("kind", TOKENS)
@random
@given(seed=seeds, at=st.floats(0.25, 0.9), blank=st.sampled_from(["\n", "\r\n ", " ", "\u200b", "\t"]))
def test_a_line_break_or_blank_inside_is_wrapped(
    made: Made, carriers: Carriers, kind: str, carrier: str, seed: int, at: float, blank: str
) -> None:
    artifact = made[kind](Random(seed))
    middle = int(len(artifact) * at)
    assert found(artifact, carriers[carrier](artifact[:middle] + blank + artifact[middle:])) == "wrapped"


ENCODED = {
    "an escape decoded": (("signed url", "cookie"), lambda text: text.replace("%2F", "/").replace("%3A", ":")),
    "all decoded": (("signed url", "cookie"), unquote),
    "percent-encoded": (("signed url", "8 kB url", "cookie"), lambda text: quote(text, safe="")),
    "percent-encoded twice": (("signed url", "cookie"), lambda text: quote(quote(text, safe=""), safe="")),
    "escapes in lower case": (("signed url",), lambda text: re.sub("%[0-9A-F]{2}", lambda code: code[0].lower(), text)),
    "as HTML": (("signed url", "8 kB url"), html.escape),
    "as JSON": (("etag", "odd text"), lambda text: json.dumps(text)[1:-1]),
    "compatibility characters": (("odd text",), lambda text: unicodedata.normalize("NFKD", text)),
    "in base64": (TOKENS, lambda text: base64.b64encode(text.encode()).decode()),
    "in hexadecimal": (TOKENS, lambda text: text.encode().hex()),
}


@pytest.mark.sweep(("how", "kind"), [(how, kind) for how, (kinds, _) in ENCODED.items() for kind in kinds], fast=20)
@random
@given(seed=seeds)
def test_the_same_text_in_another_encoding_is_reencoded(made: Made, how: str, kind: str, seed: int) -> None:
    artifact = made[kind](Random(seed))
    assert found(artifact, ENCODED[how][1](artifact)) == "reencoded"


@given(raw=st.binary(min_size=24, max_size=60))
def test_base64_in_the_alphabet_of_urls_is_reencoded(raw: bytes) -> None:
    plain, safe = base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()
    if plain != safe and any(char.isdigit() for char in plain):
        assert {found(plain, safe), found(safe, plain), found(plain, f"Bearer {safe.rstrip('=')}")} == {"reencoded"}


@pytest.mark.full
@pytest.mark.sweep("carrier", ["nothing", "query", "json", "html", "sentence", "cookies"], fast=12)
@pytest.mark.sweep("kind", URLS)
@random
@given(seed=seeds)
def test_a_query_in_another_order_is_reordered(made: Made, carriers: Carriers, kind: str, carrier: str, seed: int) -> None:
    artifact = made[kind](Random(seed))
    assert found(artifact, carriers[carrier](sorted_query(artifact))) == "reordered"


def test_a_sorted_query_with_bare_values_is_reordered_and_one_with_more_or_fewer_is_not() -> None:
    url = "https://h.test/f?zeta=1&flag&sig=4f3a9b2c1d8e7f60&alpha"
    assert found(url, "https://h.test/f?alpha&flag&sig=4f3a9b2c1d8e7f60&zeta=1") == "reordered"
    assert found(url, "https://h.test/f?alpha&sig=4f3a9b2c1d8e7f60&zeta=1") == "other"
    assert found(url, "https://h.test/f?alpha&flag&more=2&sig=4f3a9b2c1d8e7f60&zeta=1") == "other"


@pytest.mark.parametrize(
    ("kind", "mutate", "parameters", "name"),
    [
        ("8 kB url", path.truncated, {"chars": 200}, "truncated"),
        ("signed url", path.truncated, {"chars": 200}, "truncated"),
        ("signed url", path.truncated, {"chars": 64}, "truncated"),
        ("jwt", path.truncated, {"chars": 64}, "truncated"),
        ("signed url", path.wrapped, {"column": 76}, "wrapped"),
        ("8 kB url", path.wrapped, {"column": 76}, "wrapped"),
        ("jwt", path.wrapped, {"column": 32}, "wrapped"),
        ("signed url", path.reencoded, {"escape": "%2F"}, "reencoded"),
        ("cookie", path.reencoded, {"escape": "first"}, "reencoded"),
    ],
)
@random
@given(seed=seeds)
def test_the_mutations_of_the_path_are_called_by_their_names(
    made: Made, kind: str, mutate: path.Mutate, parameters: dict[str, object], name: str, seed: int
) -> None:
    artifact = made[kind](Random(seed))
    assert found(artifact, mutate(artifact, FrozenDict(parameters))) == name


def test_the_reordering_of_the_path_is_called_by_its_name() -> None:
    url = "https://h.test/f?expires=60&user=a%2Fb&name=c&signature=4f3a9b2c1d8e7f60"
    assert found(url, path.reordered(url, FrozenDict())) == "reordered"


CHANGED = {
    "upper case": str.upper,
    "lower case": str.lower,
    "dots in the middle": lambda text: f"{text[: len(text) * 4 // 10]}...{text[-(len(text) * 4 // 10) :]}",
    "dots at the end": lambda text: f"{text[: len(text) * 7 // 10]}\u2026",
    "said to be cut": lambda text: f"{text[: len(text) * 7 // 10]}...[truncated]",
    "one more character": lambda text: f"{text}Q",
    "a full stop": lambda text: f"{text}.",
    "a blank behind": lambda text: f"{text} ",
}


@pytest.mark.full
@pytest.mark.sweep("how", CHANGED, fast=12)
@pytest.mark.sweep("kind", ["signed url", "jwt", "8 kB url"])
@random
@given(seed=seeds)
def test_what_nothing_explains_is_other(made: Made, kind: str, how: str, seed: int) -> None:
    artifact = made[kind](Random(seed))
    assert found(artifact, CHANGED[how](artifact)) == "other"


@pytest.mark.parametrize("kind", ["signed url", "jwt"])
@random
@given(seed=seeds, back=st.integers(1, 24))
def test_one_character_that_is_another_is_other(made: Made, kind: str, seed: int, back: int) -> None:
    artifact = made[kind](Random(seed))
    char = "w" if artifact[-back] != "w" else "q"
    assert found(artifact, artifact[:-back] + char + artifact[len(artifact) - back + 1 :]) == "other"


@pytest.mark.full
@pytest.mark.sweep("carrier", FORMATS, fast=20)
@pytest.mark.sweep("kind", ["token", "signed url", "base64", "jwt", "cookie", "8 kB url"])
@random
@given(seed=seeds)
def test_a_sibling_is_no_damage(made: Made, carriers: Carriers, kind: str, carrier: str, seed: int) -> None:
    rng = Random(seed)
    assert found(made[kind](rng), carriers[carrier](made[kind](rng))) is None


def test_tokens_of_one_issuer_whose_claims_begin_alike_are_no_damage_of_each_other() -> None:
    header = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9"
    one = f"{header}.eyJzdWIiOiAiRWgzaHNZTGpzU2lZIn0.FuP08nRy7L-UJUeW_QTGe6kV_uYNOGWGUe9SqeqignU"
    assert found(one, f"{header}.eyJzdWIiOiAiRWZhc3J3NUJUUkxRIn0.RXhSlmLixf8wA8biOh6JkSPkTzLJJ-9TZcS5pOxdAe8") is None
    assert found(one, one.replace("SqeqignU", "wrong123")) == "other"


@random
@given(seed=seeds)
def test_the_same_address_signed_anew_is_no_damage(made: Made, seed: int) -> None:
    rng = Random(seed)
    artifact, other = made["signed url"](rng), made["signed url"](rng)
    again = artifact.partition("X-Amz-Date")[0] + "X-Amz-Date" + other.partition("X-Amz-Date")[2]
    assert found(artifact, again) is None


CLAIMS = "eyJzdWIiOiJhbm4iLCJleHAiOjE3MDAwMDAwMDB9.Kx9v2LQ7wT4mZ8pR1nB6yH3cF5dJ0sGaUeWqXoViNtM"


@pytest.mark.sweep(
    ("artifact", "text"),
    [
        ("https://a.test/items?limit=10&cursor=eyJvIjoxMH0abc12", "https://a.test/items?limit=10"),
        ("https://a.test/items?limit=10&cursor=eyJvIjoxMH0abc12", "https://a.test/items?limit=1"),
        ("https://a.test/items?limit=10&cursor=eyJvIjoxMH0abc12", "https://a.test/items?limit=10&page=2"),
        ("https://a.test/items?limit=10&cursor=eyJvIjoxMH0abc12", "https://a.test/items"),
        ("https://a.test/orders/17/download", "https://a.test/orders/18/download"),
        ("https://a.test/organisations/acme/orders/17/download", "https://a.test/organisations/acme/orders/18/download"),
        ("https://a.test/orders/17", "https://a.test/orders/175"),
        ("https://a.test/orders/175", "https://a.test/orders/17"),
        ("https://a.test/orders/17", "https://a.test/orders"),
        ("customer-9f8a7b6c5d4e3f", "our customer list"),
        ("customer-9f8a7b6c5d4e3f", "customer-support"),
        ("sk_live_9f8a7b6c5d4e3f21", "keys that begin with sk_live_ are secret"),
        ("invoice-2024-000123", "invoice-2024-000124"),
        ("invoice-2024-000123", "invoice-2024-0001234"),
        ("invoice-2024-000123", "invoice-2024"),
        ("customer-support-team", "the customer support team"),
        ("acme_reports_2024", "/acme/reports/2024"),
        ("2024-01-15T10:00:00Z", "2024-01-15T10:30:00Z"),
        ("application/json; charset=utf-8", "application/json"),
        ("correct horse battery staple", "a horse and a battery"),
        ('"v3-4f3a9b2c"', '"v4-0d1e2f3a"'),
        ("550e8400-e29b-41d4-a716-446655440000", "550e8400"),
        (f"eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.{CLAIMS}", "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9"),
    ],
)
def test_texts_that_share_what_many_share_are_no_damage(artifact: str, text: str) -> None:
    assert found(artifact, text) is None


@pytest.mark.parametrize(
    ("artifact", "text"),
    [
        ("https://a.test/f?scope=a/b&sig=4f3a9b2c1d8e", "https://a.test/f?scope=a%2Fb&sig=4f3a9b2c1d8e"),
        ("ab/cd+12EF/gh78IJ==", "Bearer ab%2Fcd%2B12EF%2Fgh78IJ%3D%3D"),
        ("https://a.test/f?a=1&sig=4f3a9b2c1d8e", "see https://a.test/f?a=1&amp;sig=4f3a9b2c1d8e in the mail"),
        ("ab/cd+12EF/gh78IJ==", '{"token": "ab%2Fcd%2B12EF%2Fgh78IJ%3D%3D"}'),
    ],
)
def test_an_encoding_that_the_format_around_it_does_not_ask_for_is_damage(artifact: str, text: str) -> None:
    assert found(artifact, text) == "reencoded"


def test_quotes_of_json_are_no_part_of_a_value() -> None:
    tag = '"4f3a9b2c1d8e7f60aa"'
    assert found(tag, json.dumps({"tag": tag})) == "whole"
    assert found(tag, json.dumps({"tag": tag[1:-1]})) == "other"
    assert found(tag, json.dumps({"tag": tag[1:]})) == "truncated"


def test_short_artifacts_are_not_looked_for_in_other_texts() -> None:
    assert [damage("abc1234", text) for text in ("abc123", "abc 1234", "ABC1234", "")] == [None] * 4
    assert damage("abc1234", "abc1235", sure=True) == "other"


def test_an_artifact_of_signs_alone_is_in_no_other_text() -> None:
    assert [damage("=" * 12, text) for text in ("an answer", "state=1", "=")] == [None] * 3
    assert found("=" * 12, "a " + "=" * 12 + " b") == "whole"


def test_an_empty_text_is_nothing() -> None:
    assert damage("abcdefgh12345678", "") is None
    assert damage("", "abcdefgh12345678") is None
    assert readings("") == ()


URL = f"https://h.test/f?a=1&sig={'4f3a9b2c1d8e7f60' * 4}"


@pytest.mark.parametrize(
    ("artifact", "text", "wanted"),
    [
        ("AbCdEfGh12345678Zy", "AbCdEfGh12345678Zy x", "other"),
        ("AbCdEfGh12345678Zy", '"AbCdEfGh12345678Zy"', "other"),
        ("AbCdEfGh12345678Zy", "AbCdEfGh12345678Zy=", "other"),
        ("AbCdEfGh12345678Zy", "AbCdEfGh12345678Zy.", "other"),
        ("AbCdEfGh12345678Zy", " AbCdEfGh12345678Zy", "other"),
        ("AbCdEfGh12345678Zy", "AbCdEfGh12345678Zy\n", "wrapped"),
        ("AbCdEfGh12345678Zy", "AbCd", None),
        ("AbCdEfGh12345678Zy", "Bearer zzzzyyyyxxxxwwww", None),
        (URL, f"{URL}&", "other"),
        (URL, URL.partition("?")[0], "truncated"),
        (URL, f"{URL[:60]}...", "other"),
        (URL, URL[-30:], "other"),
        (URL, "https://h.test/g?b=2", None),
    ],
)
def test_where_an_artifact_belongs_nothing_may_touch_it_and_a_little_of_it_tells(
    artifact: str, text: str, wanted: str | None
) -> None:
    reading = TextReading(text)
    assert not holds(Wanted(artifact), reading, exact=True)
    assert damage_in(Wanted(artifact), reading, sure=True) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "AbCdEfGh12345678Zy",
        "Bearer AbCdEfGh12345678Zy",
        "id=AbCdEfGh12345678Zy; lang=en",
        'nonce="AbCdEfGh12345678Zy", uri="/x"',
        "https://h.test/items/AbCdEfGh12345678Zy/edit?x=1",
        "client:AbCdEfGh12345678Zy",
        '{"t": "AbCdEfGh12345678Zy"}',
    ],
)
def test_where_an_artifact_belongs_a_scheme_and_separators_may_be_around_it(text: str) -> None:
    assert holds(Wanted("AbCdEfGh12345678Zy"), TextReading(text), exact=True)


def test_around_the_value_of_a_header_blanks_mean_nothing_and_quotes_are_the_format() -> None:
    token = Wanted("AbCdEfGh12345678Zy")
    for text in (" AbCdEfGh12345678Zy ", '"AbCdEfGh12345678Zy"'):
        assert holds(token, TextReading(text, header=True), exact=True)


MEGABYTE = 1_000_000
HARD = {
    "letters": "a" * MEGABYTE,
    "letters and an end": "a" * MEGABYTE + "!",
    "escapes": "%25" * (MEGABYTE // 3),
    "entities": "&amp;" * (MEGABYTE // 5),
    "ampersands": "&" * MEGABYTE,
    "tags": "<a" * (MEGABYTE // 2),
    "brackets": "[" * MEGABYTE,
    "quotes": '"' * MEGABYTE,
    "backslashes": "\\" * MEGABYTE,
    "blanks": " " * MEGABYTE,
    "urls": "https://h/?" * (MEGABYTE // 11),
    "dots": "..a" * (MEGABYTE // 3),
    "words in brackets": "[truncated" * (MEGABYTE // 10),
    "base64": "A" * MEGABYTE + "=",
    "surrogates": "\ud800" * 1000 + "%41",
    "deep JSON": "[" * 5000 + '"a"' + "]" * 5000,
}


@pytest.mark.full
@pytest.mark.parametrize("text", HARD.values(), ids=HARD)
def test_a_megabyte_of_any_text_is_read_in_time_that_grows_with_its_length(text: str) -> None:
    """Quadratic time would be hours here; a whole minute is room for any machine."""
    began = time.process_time()
    for artifact in ("a" * 2000, 'x"' * 50, "https://h/?" + "a=1&" * 300, "%41" * 200):
        reading, wanted = TextReading(text), Wanted(artifact)
        holds(wanted, reading)
        damage_in(wanted, TextReading(text[:65_536]), sure=True)
    assert time.process_time() - began < 60


class Marked(str):
    """A text of a class of its own, which must not stand for an equal plain one."""


def test_what_a_text_is_read_as_is_remembered_with_what_it_is() -> None:
    text = f"/orders?cursor={base64.b64encode(b'after order 17 of 90').decode()} "
    assert reading_of(text) is reading_of(text)
    header, address = reading_of(text, header=True), reading_of(text, address=True)
    assert (header.text, header.header, address.text, address.address) == (text.strip(), True, text, True)
    assert reading_of(text).text == text
    assert wanted_of(text) is wanted_of(text)
    for other in (Marked(text), text * 400):
        assert reading_of(other) is not reading_of(other)
        assert wanted_of(other).text is other
