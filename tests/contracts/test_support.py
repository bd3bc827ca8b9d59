from __future__ import annotations

import datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat_contracts import claims_supported
from mat_contracts.support import (
    EvidenceContent,
    Verifier,
    all_of,
    any_of,
    by_one,
    entailment,
    evidence,
    exact_match,
    first_of,
    judged_by,
    number_match,
    row_match,
    stem,
)
from mat_contracts.traces import broken, record, trace

YES: Verifier = lambda claim, given: "supported"  # noqa: E731
NO: Verifier = lambda claim, given: False  # noqa: E731
DUNNO: Verifier = lambda claim, given: "unknown"  # noqa: E731


@pytest.mark.parametrize(
    ("claim", "value", "said"),
    [
        ("Refunds take 5 days.", "refunds take 5 days", "supported"),
        ("Refunds take 5 days.", "Open 9-5. **Refunds** take  5 days! Bye.", "supported"),
        ("Refunds take 5 days.", {"faq": ["x", "Refunds take “5” days"]}, "supported"),
        ("ＡＢＣ is ﬁne", "abc is fine", "supported"),
        ("Refunds take 5 days.", "Refunds take 15 days", "unsupported"),
        ("Refunds take 5 days.", "Refunds take 5 days only if unused", "unsupported"),
        ("Refunds take 5 days.", [], "unsupported"),
    ],
)
def test_exact_match_forgives_writing_and_not_words(claim: str, value: object, said: str) -> None:
    assert exact_match(claim, [evidence(value)]) == said


@pytest.mark.sweep(
    ("claim", "value", "said"),
    [
        ("The price is 1,250.00", {"price": 1250}, "supported"),
        ("The price is $1,250", {"price": "1250 USD"}, "supported"),
        ("The price is $1,250", {"price": 1250.0}, "supported"),
        ("The price is 1.250,50 EUR", {"price": "€1,250.50"}, "supported"),
        ("The price is 1 250 euros", {"price": "EUR 1250"}, "supported"),
        ("The price is 1'250'000 CHF", {"price": "CHF 1.25 million"}, "supported"),
        ("The price is $1,250", {"price": "1250 EUR"}, "unsupported"),
        ("The price is $1,250", {"price": 1251}, "unsupported"),
        ("The price is 1,250", {"price": 1.25}, "unsupported"),
        ("The price is 125", {"price": "A125"}, "unsupported"),
        ("The price is -5", {"price": 5}, "unsupported"),
        ("The discount is 50%", {"discount": 0.5}, "supported"),
        ("The discount is 50 percent", {"discount": "50 %"}, "supported"),
        ("The discount is 50%", {"discount": "5%"}, "unsupported"),
        ("The trip takes 2 hours", {"trip": "120 min"}, "supported"),
        ("The trip takes 2 hours", {"trip": "2 km"}, "unsupported"),
        ("The trip takes 2 hours", {"trip": 2}, "supported"),
        ("The trip takes 5-7 days", {"trip": "5 to 7 days"}, "supported"),
        ("The trip takes 5-7 days", {"trip": "5 to 9 days"}, "unsupported"),
        ("The box weighs 1.5 kg", {"box": "1500 g"}, "supported"),
        ("It left on May 3, 2024", {"left": "2024-05-03T10:30:00Z"}, "supported"),
        ("It left on 3 May", {"left": "03.05.2024"}, "supported"),
        ("It left on the 3rd of May", {"left": "05/03/2024"}, "supported"),
        ("It left on the 4th of May", {"left": "2024-05-03"}, "unsupported"),
        ("It left on May 3, 2023", {"left": "2024-05-03"}, "unsupported"),
        ("It left on Friday", {"left": "2024-05-03"}, "supported"),
        ("It left on Saturday", {"left": "2024-05-03"}, "unsupported"),
        ("It left at 3 pm", {"left": "15:00"}, "supported"),
        ("It left at 3 pm", {"left": "03:00"}, "unsupported"),
        ("It left at 3 pm on May 3", {"left": "2024-05-03"}, "unsupported"),
        ("The sky is 5 metres tall", {"price": 5}, "unsupported"),
        ("It may be lost", {"price": 5}, "unknown"),
        ("The parcel is lost", {"parcel": 5}, "unknown"),
    ],
)
def test_numbers_and_dates_agree_however_they_are_written_and_only_then(claim: str, value: object, said: str) -> None:
    assert number_match()(claim, [evidence(value)]) == said


def test_numbers_may_stand_in_the_question_dates_may_not_and_words_must_be_shared() -> None:
    verifier = number_match()
    reply = evidence({"arrival": "2024-05-03"}, asked={"parcel": 17})
    assert verifier("Parcel 17: arrival on May 3", [reply]) == "supported"
    assert verifier("The arrival is on May 3", [evidence({"arrival": "soon"}, asked={"day": "2024-05-03"})]) == "unsupported"
    assert number_match(overlap=0.6)("Big shiny parcel arrives May 3", [reply]) == "unsupported"
    assert number_match(overlap=0.3)("Parcel arrives May 3", [reply]) == "supported"


def test_a_tolerance_is_relative_and_zero_by_default() -> None:
    assert number_match()("The mean is 12.5", [evidence({"mean": 12.4999})]) == "unsupported"
    assert number_match(tolerance=0.01)("The mean is 12.5", [evidence({"mean": 12.4999})]) == "supported"
    assert number_match(tolerance=0.01)("The mean is 12.5", [evidence({"mean": 12.3})]) == "unsupported"


@given(st.decimals(min_value=0, max_value=10**9, places=2, allow_nan=False))
def test_a_sum_is_found_in_all_its_spellings_and_a_cent_less_in_none(amount: Decimal) -> None:
    verifier = number_match()
    english = f"{amount:,.2f}"
    german = english.replace(",", " ").replace(".", ",").replace(" ", ".")
    for written in (english, german, f"${english}", f"{amount:.2f} USD", str(amount)):
        assert verifier(f"The sum is {written}", [evidence({"sum": f"{amount:.2f}"})]) == "supported", written
        assert verifier(f"The sum is {written}", [evidence({"sum": f"{amount + Decimal('0.01'):.2f}"})]) == "unsupported", (
            written
        )


@given(st.dates(datetime.date(1990, 1, 1), datetime.date(2089, 12, 31)), st.integers(1, 400))
def test_a_day_is_found_in_all_its_spellings_and_another_day_in_none(day: datetime.date, later: int) -> None:
    verifier = number_match()
    other = day + datetime.timedelta(days=later)
    for form in ("%B %d, %Y", "%d %b %Y", "%Y-%m-%d", "%d.%m.%Y", "%Y/%m/%d"):
        claim = f"The start is on {day.strftime(form)}"
        assert verifier(claim, [evidence({"start": day})]) == "supported", form
        assert verifier(claim, [evidence({"start": other})]) == "unsupported", form


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_text_makes_a_verifier_fail(claim: str, text: str) -> None:
    for verifier in (exact_match, number_match(), row_match):
        assert verifier(claim, [evidence({"id": text, "text": text})]) in ("supported", "unsupported", "unknown")


ROWS = {"orders": [{"order_id": "#W17", "total": 99}, {"order_id": "W18", "total": 7}], "HAT078": {"seats": 3}}


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ("Order W17 is paid", "supported"),
        ("Orders #w17 and W18 are paid", "supported"),
        ("Flight HAT078 is full", "supported"),
        ("Orders W17 and W19 are paid", "unsupported"),
        ("Order W19 is paid", "unsupported"),
        ("Order W17 of customer C1 is paid", "supported"),
        ("Customer C1 is rich", "unsupported"),
        ("The total is 99", "unknown"),
        ("On the 3rd it took 5-day post", "unknown"),
    ],
)
def test_rows_are_known_by_the_ids_they_carry(claim: str, said: str) -> None:
    assert row_match(claim, [evidence(ROWS, asked={"customer": "C1"})]) == said


def test_a_plain_number_names_a_row_where_a_row_is_called_so() -> None:
    assert row_match("Order 17 is paid", [evidence({"id": 17})]) == "supported"
    assert row_match("Order 17 is paid", [evidence({"amount": 17})]) == "unknown"


def test_entailment_takes_a_bool_a_score_from_the_threshold_on_and_no_number_as_unknown() -> None:
    seen: list[tuple[str, str]] = []

    def entails(premise: str, hypothesis: str) -> float:
        seen.append((premise, hypothesis))
        return {"a": 0.7, "b": 0.69, "c": float("nan")}[hypothesis]

    verifier = entailment(entails, threshold=0.7)
    assert [verifier(text, [evidence(["x", "y"], asked="q")]) for text in "abc"] == ["supported", "unsupported", "unknown"]
    assert seen[0] == ("q\nx\ny", "a")
    assert entailment(lambda premise, hypothesis: True)("a", [evidence("x")]) == "supported"


@pytest.mark.parametrize(
    ("answer", "said"),
    [("supported", "supported"), (" Unsupported.", "unsupported"), ("UNKNOWN", "unknown"), ("not supported", "unknown"),
     ("supported because", "unknown"), ("", "unknown"), (None, "unknown"), (True, "supported"), (3, "unknown")],
)  # fmt: skip
def test_a_judge_is_held_to_three_words(answer: object, said: str) -> None:
    assert judged_by(lambda claim, texts: answer)("a", [evidence("x")]) == said


def test_combinations_follow_their_order_of_three_values() -> None:
    given: list[EvidenceContent] = []
    table = {
        (YES, NO): ("supported", "unsupported", "supported"),
        (NO, YES): ("supported", "unsupported", "unsupported"),
        (DUNNO, YES): ("supported", "unknown", "supported"),
        (DUNNO, NO): ("unknown", "unsupported", "unsupported"),
        (DUNNO, DUNNO): ("unknown", "unknown", "unknown"),
        (YES, YES): ("supported", "supported", "supported"),
    }
    for verifiers, wanted in table.items():
        assert tuple(made(*verifiers)("a", given) for made in (any_of, all_of, first_of)) == wanted


def test_nobody_is_asked_once_the_matter_is_settled() -> None:
    def never(claim: str, given: object) -> bool:
        raise AssertionError("asked")

    assert any_of(YES, never)("a", []) == "supported"
    assert all_of(NO, never)("a", []) == "unsupported"
    assert first_of(YES, never)("a", []) == "supported"


def test_parts_of_several_sources_add_up_unless_one_alone_must_do() -> None:
    sources = [evidence({"price": 5}), evidence({"price": "on 2024-05-03"})]
    assert number_match()("The price was 5 on May 3", sources) == "supported"
    assert by_one(number_match())("The price was 5 on May 3", sources) == "unsupported"
    assert by_one(number_match())("The price was 5", sources) == "supported"


def test_a_verifier_decides_in_a_contract() -> None:
    items = trace(
        record("tool_call", "price", {"item": "A1"}, value={"price": "EUR 1250"}),
        record("claim", "claim", {"text": "The price of A1 is 1,250 euros"}, supports=["step#0"]),
        record("claim", "claim", {"text": "The price of A1 is 1,250 dollars"}, supports=["step#0"]),
    )
    assert broken(claims_supported(), items) == (2,)
    assert broken(claims_supported(verifier=number_match()), items) == (2,)
    assert broken(claims_supported(support=lambda claim, texts: True), items) == ()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: number_match(overlap=2), lambda: number_match(tolerance=-0.1), lambda: number_match(tolerance=True),
        lambda: entailment(lambda a, b: True, threshold=1.5), lambda: entailment("x"),  # type: ignore[arg-type]
        lambda: judged_by(None), lambda: any_of(), lambda: all_of("x"), lambda: first_of(lambda claim, given: "si")("a", []),  # type: ignore[arg-type,return-value]
    ],
)  # fmt: skip
def test_a_verifier_that_cannot_work_is_refused(wrong: object) -> None:
    with pytest.raises(mat.MatError):
        wrong()  # type: ignore[operator]


def test_inflected_forms_of_a_word_have_one_stem_and_other_words_have_others() -> None:
    forms = (
        "deliver delivers delivered delivering delivery",
        "ship ships shipped shipping",
        "cancel cancels cancelled cancelling",
        "agree agrees agreed agreeing",
        "query queries queried",
    )
    stems = [{stem(word) for word in row.split()} for row in forms]
    assert [len(row) for row in stems] == [1] * len(forms)
    assert len(set().union(*stems)) == len(forms)
