"""Personal data: what each rule finds, what it leaves alone, and what masks leave."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mat
from mat.core.redact import hashed
from mat.core.value import snapshot
from mat_contracts.pii import IBAN_LENGTHS, KINDS, both, half_masked, personal_data, presidio, redactions, rules

law = settings(deadline=None, max_examples=200)
FOUND = {
    "email": ["ann@example.com", "Ann.O'Neil+x@mail.example.co.uk", "ann@bücher.example"],
    "card": ["4111 1111 1111 1111", "3782-822463-10005", "5555555555554444", "6011 1111 1111 1117"],
    "iban": ["DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432", "no93 8601 1117 947"],
    "phone": ["+49 30 901820", "(555) 123-4567", "555-123-4567", "020 7946 0958", "06 12 34 56 78", "+1 555 010 0199"],
    "ssn": ["078-05-1120", "SSN: 078051120"],
    "ip": ["203.0.113.7", "2001:db8::1"],
    "birth_date": ["born 3 May 1984", "date_of_birth 1984-05-03", "DOB: 05/03/1984"],
    "dni": ["12345678Z", "X1234567L"],
    "nir": ["1 85 05 78 006 084 91"],
}
SILENT = [
    "Order 4711-22 of 2024-05-03, 1,250.00 EUR", "4111 1111 1111 1112", "ORD4111111111111111", "0.4111111111111111",
    "123e4567-e89b-12d3-a456-426614174000", "41111111-1111-1111-1111-111111111111", "ISBN 978-3-16-148410-0", "pkg@1.2.3",
    "logo@2x.png", "version 1.2.3.4", "v1.2.3.4", "1.2.3.4.5", "10.0.0.0/8", "127.0.0.1", "at 12:30:45", "a::b",
    "due 1984-05-03", "Born to run 1975", "DE88 3704 0044 0532 0130 00", "666-05-1120", "000-12-3456", "12345678A",
    "20240503123000",
    "order 4711-2233-44", "+999 123 456 789", "1Z999AA10123456784", "9999 9999 9999 9995", "ann at example.com", "@handle",
]  # fmt: skip


@pytest.mark.sweep(("kind", "text"), [(kind, text) for kind, texts in FOUND.items() for text in texts])
def test_each_kind_is_found_within_a_sentence_and_nothing_else(kind: str, text: str) -> None:
    assert [item.kind for item in rules().find(f"Write this: {text}, please")] == [kind]
    assert [item.kind for item in rules([kind]).find(text)] == [kind]
    assert rules(set(KINDS) - {kind}).find(text) == ()


@pytest.mark.sweep("text", SILENT)
def test_near_misses_are_no_personal_data(text: str) -> None:
    assert rules().find(text) == ()


def test_a_card_is_found_behind_other_numbers_and_the_iban_before_words() -> None:
    assert [item.kind for item in rules().find("17 4111 1111 1111 1111")] == ["card"]
    text = "to DE89 3704 0044 0532 0130 00 AND MORE"
    assert [text[item.start : item.end] for item in rules().find(text)] == ["DE89 3704 0044 0532 0130 00"]


def test_national_phone_numbers_depend_on_the_regions_asked_for() -> None:
    assert rules("phone", regions="US").find("020 7946 0958") == ()
    assert [item.kind for item in rules("phone", regions="GB").find("020 7946 0958")] == ["phone"]


def _luhn(digits: str) -> str:
    return next(digits + check for check in "0123456789" if _passes(digits + check))


def _passes(digits: str) -> bool:
    total = 0
    for index, char in enumerate(reversed(digits)):
        total += sum(divmod(int(char) * 2, 10)) if index % 2 else int(char)
    return total % 10 == 0


@law
@given(st.text("0123456789", min_size=14, max_size=14), st.integers(0, 15), st.integers(1, 9))
def test_every_visa_number_is_a_card_and_none_is_with_one_digit_changed(rest: str, place: int, by: int) -> None:
    number = _luhn("4" + rest)
    assert [item.kind for item in rules("card").find(number)] == ["card"]
    changed = number[:place] + str((int(number[place]) + by) % 10) + number[place + 1 :]
    assert rules("card").find(changed) == ()


@law
@given(st.sampled_from(sorted(IBAN_LENGTHS)), st.data())
def test_every_iban_of_its_countrys_length_is_found_and_none_with_another_check(country: str, data: st.DataObject) -> None:
    size = IBAN_LENGTHS[country] - 4
    rest = data.draw(st.text("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", min_size=size, max_size=size))
    value = int("".join(str(int(char, 36)) for char in rest + country + "00"))
    check = 98 - value % 97
    assert [item.kind for item in rules("iban").find(f"{country}{check:02}{rest}")] == ["iban"]
    other = data.draw(st.integers(2, 98).filter(lambda number: number != check))
    assert rules("iban").find(f"{country}{other:02}{rest}") == ()
    assert rules("iban").find(f"{country}{check:02}{rest}0") == ()


fragments = st.lists(
    st.sampled_from([text for texts in FOUND.values() for text in texts] + SILENT + [" ", "-", ",", "1111", "4"]), max_size=5
)


@law
@given(fragments, st.sampled_from(["", " ", ", "]))
def test_masking_leaves_nothing_to_find_and_masking_twice_changes_nothing(parts: list[str], between: str) -> None:
    mask = redactions()
    masked = mask(between.join(parts))
    assert rules().find(masked) == ()
    assert mask(masked) == masked


def test_masks_are_stable_by_kind_and_can_be_given() -> None:
    mask = redactions()
    assert mask("4111 1111 1111 1111 or ann@example.com") == "**** **** **** 1111 or ***@example.com"
    assert mask("078-05-1120, DE89370400440532013000") == "***-**-1120, DE****************3000"
    assert (
        redactions("email", masks={"email": lambda text: "<mail>"})("ann@example.com +49 30 901820") == "<mail> +49 30 901820"
    )
    value = snapshot({"rows": [{"date_of_birth": "1984-05-03", "n": 1}]})
    assert mask.value(value) == {"rows": [{"date_of_birth": "[birth date]", "n": 1}]}


def test_numbers_masked_by_half_are_distinguished_from_masked_ones() -> None:
    assert half_masked("4111 11** **** 1111") == ("card",)
    assert half_masked("***-05-1120") == ("ssn",)
    assert half_masked("**** **** **** 1111, ***-**-1120, ************, 10 x 20") == ()


def test_a_field_named_after_birth_and_withheld_values_are_read() -> None:
    value = snapshot({"customer_dob": "1984-05-03", "due": "1984-05-03"})
    assert personal_data(value, rules()) == [("birth_date", "1984-05-03")]
    assert personal_data(hashed("host 203.0.113.7"), rules()) == [("ip", "")]
    assert personal_data(hashed("host 203.0.113.7"), rules("email")) == []


@dataclass
class _Result:
    entity_type: str
    start: int
    end: int
    score: float


class _Names:
    """An analyzer in the form of presidio's, that knows two names."""

    def analyze(self, text: str, language: str, entities: list[str]) -> list[_Result]:
        assert (language, entities) == ("en", ["PERSON"])
        known = [("Ann Lee", 0.9), ("May", 0.3)]
        return [_Result("PERSON", text.find(name), text.find(name) + len(name), score) for name, score in known if name in text]


def test_presidio_finds_by_score_and_joins_the_rules() -> None:
    names = presidio("person", analyzer=_Names())
    assert [item.kind for item in names.find("Ann Lee in May")] == ["person"]
    text = "Ann Lee, ann@example.com"
    assert [item.kind for item in both(names, rules()).find(text)] == ["person", "email"]
    assert redactions(detector=both(names, rules()))(text) == "[person], ***@example.com"


def test_presidio_that_is_not_installed_says_how_to_install_it() -> None:
    try:
        import presidio_analyzer  # noqa: F401
    except ImportError:
        with pytest.raises(mat.MatError, match=r'pip install "pytest-mat\[presidio\]"'):
            presidio()
    else:
        pytest.skip("presidio is installed")


@pytest.mark.parametrize("wrong", [lambda: rules("name"), lambda: rules(regions="USA"), lambda: presidio("email", score=2)])
def test_what_cannot_mean_anything_is_refused(wrong: object) -> None:
    with pytest.raises(mat.MatError):
        wrong()  # type: ignore[operator]


def test_the_phone_library_is_loaded_by_a_text_that_may_hold_one_only() -> None:
    code = (
        "import sys, mat_contracts.privacy as p; from mat_contracts.pii import rules; rules().find('a@b.example 17');"
        "assert 'phonenumbers' not in sys.modules; rules().find('+49 30 901820'); assert 'phonenumbers' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.full
@pytest.mark.parametrize("unit", ["1 ", "a.", "@", "a@", "DE89 ", "0 1", "1.1.1.1 ", "+1 ", "born ", "* "])
def test_a_long_text_of_any_kind_is_searched_in_linear_time(unit: str) -> None:
    assert isinstance(rules().find(unit * (200_000 // len(unit))), tuple)
    assert isinstance(half_masked(unit * (200_000 // len(unit))), tuple)
