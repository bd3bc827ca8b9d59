"""Operators on texts from outside: what they keep, what they change, and that they pay for all of it."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
import mat_faults
from mat.boundary.catalog import DEFAULT_COST, Catalog
from mat.boundary.cost import changed_tokens, tokens
from mat.boundary.effect import PASS, Call, Reply
from mat.core.value import EMPTY, FrozenDict
from mat_faults.spans import TextSpan, is_within_limit, reordered, sentences
from mat_faults.wording import RULES, VAGUE, ambiguous, paraphrase

CATALOG = Catalog(mat_faults.operators())
PROMPTS = [item for item in CATALOG if item.boundary == "prompt"]
NAMES = ("Ann", "Bob Smith", "McDonald", "ACME", "Zürich")
NUMBERS = ("17", "3.5", "1,000", "$49", "5 %", "10%", "2026-03-12", "A17", "A-18", "#12", "order_7", "no. 12", "May 3", "12-14")
QUOTES = ('"do not send three"', "“I am sorry”", "'make sure'", "`if not ok: send()`", "«because two»")
PLACES = ("https://shop.example/do-not?until=two", "ann.please@shop.example", "/tmp/two/files.txt", "{please_fill}", "<b>")
WORDS = (
    "please", "do not", "don't", "it is", "we will not", "because", "make sure", "at least", "until", "I want", "thanks",
    "could you send", "the report", "my order", "three days", "twelve", "send", "refund", "cancel", "to", "before", "by", "if",
    "12 March 2026", "March 12, 2026", "next week", "on Friday", "5 kg", "49 EUR", "again", "however", "parcel", "it", "and",
)  # fmt: skip
MARKS = (". ", ", ", "? ", " ", " ", " ", "! ", "\n", ": ", "; ", "\n- ", "\n1. ")


@st.composite
def messages(draw: Any) -> str:
    """Texts of the kind that people write: phrases the rules know among names, numbers, quotations and addresses."""
    pieces = st.sampled_from((*NAMES, *NUMBERS, *QUOTES, *PLACES, *WORDS, *WORDS))
    found = []
    for piece in draw(st.lists(pieces, max_size=14)):
        capital = draw(st.booleans()) and (not found or found[-1].strip(" ") in (".", "?", "!", "\n", "\n-", "\n1.", ""))
        found += [piece[:1].upper() + piece[1:] if capital and piece in WORDS else piece, draw(st.sampled_from(MARKS))]
    return "".join(found)


TEXTS = messages() | st.text(max_size=80)


def kept(text: str) -> dict[str, list[str]]:
    """What a paraphrase must leave as it is, found by rules of this test's own."""
    quotes = re.findall("|".join(map(re.escape, (*QUOTES, *PLACES))), text)
    rest = re.sub("|".join(map(re.escape, (*QUOTES, *PLACES))), " ", text)
    return {
        "quotes": quotes,
        "names": re.findall(r"Ann\b|Bob Smith|McDonald|ACME|Zürich", rest),
        "ids": re.findall(r"\bA-?\d+\b|#\d+|order_7", rest),
        "numbers": re.findall(r"\d+(?:[.,]\d+)*", rest),
    }


@pytest.mark.parametrize("rule", [*RULES, "all"])
@given(text=messages())
def test_a_paraphrase_keeps_every_name_id_number_quotation_and_address(rule, text):
    before, after = kept(text), kept(paraphrase(text, rule=rule, limit=24))
    assert [after[kind] for kind in ("quotes", "names", "ids")] == [before[kind] for kind in ("quotes", "names", "ids")]
    if rule in ("number", "all"):  # "three" may become a 3, and a date may be turned round
        assert Counter(before["numbers"]) <= Counter(after["numbers"])
    else:
        assert after["numbers"] == before["numbers"]


MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
ENTITY = re.compile(
    rf"(?P<id>#\w+|\b[A-Z]-?\d+\b|\border_\d+|\bno\. \d+)|(?P<amount>\$\d+|\d[\d.,]*\s*(?:kg\b|EUR\b|%|percent\b))"
    rf"|(?P<iso>\d{{4}}-\d\d-\d\d|\d+-\d+)|(?P<day>\d{{1,2}}) (?P<month>{MONTHS})(?:,? (?P<year>\d{{4}}))?\b"
    rf"|(?P<month_first>{MONTHS}) (?P<its_day>\d{{1,2}})\b(?:,? (?P<its_year>\d{{4}})\b)?|(?P<number>\d+(?:[.,]\d+)*)",
    re.IGNORECASE,
)
"""Ids, amounts, dates and numbers, read by this test's own rules."""


def entities(text: str) -> Counter[tuple[str, ...]]:
    """What a text speaks of, however it is written: "12 March 2026" and "March 12, 2026" are one day, 5% is 5 percent."""
    found: Counter[tuple[str, ...]] = Counter()
    for match in ENTITY.finditer(re.sub("|".join(map(re.escape, (*QUOTES, *PLACES))), " ", text)):
        if match["month"] or match["month_first"]:
            day, month = match["day"] or match["its_day"], match["month"] or match["month_first"]
            found["date", day, month, match["year"] or match["its_year"] or ""] += 1
        else:
            found["said", "".join(match[0].lower().replace("percent", "%").split()).rstrip(".,")] += 1
    return found


@pytest.mark.parametrize("rule", [*RULES, "all"])
@given(text=messages())
def test_no_rule_splits_or_joins_an_id_an_amount_or_a_date(rule, text):
    """A number word may become a number, which is then there besides; all that was there before still is."""
    before, after = entities(text), entities(paraphrase(text, rule=rule, limit=24))
    assert before <= after
    assert (after - before).total() <= len(re.findall("twelve|three|two", text, re.IGNORECASE))


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("Please pay #12 March 12, 2026.", "Please pay #12 12 March 2026."),  # not "#March 12 12, 2026"
        ("Please pay no. 12 March 12, 2026.", "Please pay no. 12 12 March 2026."),
        ("Please pay $49 March 12, 2026.", "Please pay $49 12 March 2026."),
        ("Pay 12 March 12, 2026.", "Pay 12 March 12, 2026."),  # 12 what, or which day?
        ("From May 3 March 12, 2026 on.", "From May 3 March 12, 2026 on."),
        ("Room 7 12 March 2026.", "Room 7 12 March 2026."),  # not "Room 7 March 12"
        ("In March 3 kg came, in March 1,000 people.", "In March 3 kg came, in March 1,000 people."),
        ("March 12-14, 12 March-14 April, 5 to 12 March.", "March 12-14, 12 March-14 April, 5 to 12 March."),
        ("Twenty two days, half a dozen eggs, 1,two days.", "Twenty two days, half a dozen eggs, 1,two days."),
        ("#5 percent, $5%, a%20% b.", "#5 percent, $5%, a%20% b."),
        ("On 12\nMarch 2026.\nMay 3\n5 May.", "On March 12, 2026.\n3 May\nMay 5."),
    ],
)
def test_the_rule_about_numbers_leaves_alone_what_can_be_read_in_two_ways(text, after):
    assert paraphrase(text, rule="number", limit=40) == after


def test_a_sentence_does_not_end_within_the_number_of_something():
    assert paraphrase("Pay the invoice no. 12.", rule="passive", limit=24) == "Pay the invoice no. 12."
    assert paraphrase("Pay the invoice. 12 are left.", rule="passive", limit=24) == "The invoice should be paid. 12 are left."


def decide(operator: mat.spec.Operator, value: Any, point: Any) -> Any:
    """What enters in the place of a text; the text itself where the operator passes."""
    call = Call(port="user", kind="message", agent="main", site="", arguments=EMPTY, at_ms=0, parameters=FrozenDict(point))
    effect = operator.decide(call, Reply(value), random.Random(0))
    return value if effect == PASS else effect.value


@pytest.mark.parametrize("operator", PROMPTS, ids=lambda item: item.id)
@given(text=TEXTS)
def test_no_text_changes_by_more_tokens_than_were_paid_for_and_bounded(operator, text):
    for point in operator.grid:
        changed = changed_tokens(text, decide(operator, text, point))
        assert changed <= operator.bounds["tokens"]
        assert DEFAULT_COST.of(changed=changed) <= operator.price(point, DEFAULT_COST)
        assert changed <= point.get("tokens", changed)


@given(one=TEXTS, other=TEXTS, limit=st.integers(0, 12), cut=st.integers(0, 20))
def test_a_bounded_comparison_agrees_with_the_cost_rule(one, other, limit, cut):
    for pair in ((one, other), (one, one[:cut] + one[cut + 3 :]), (one, one[:cut] + other + one[cut:])):
        assert is_within_limit(*pair, limit) == (changed_tokens(*pair) <= limit)


@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [
        ("contraction", "Do not ship it, I am away.", "Don't ship it, I'm away."),
        ("contraction", "We can't and won’t.", "We cannot and will not."),
        ("contraction", "Where is it? As good as it is.", "Where's it? As good as it is."),
        ("synonym", "Because it's late, make sure it is here.", "Since it's late, ensure it is here."),
        ("synonym", "At least two, at most five.", "No less than two, no more than five."),
        ("politeness", "Could you please cancel it?", "Please cancel it."),
        ("politeness", "Cancel the order. Thanks", "Please cancel the order. Thank you"),
        ("politeness", "I want a refund.", "I would like a refund."),
        ("passive", "Send the report to Ann by Friday.", "The report should be sent to Ann by Friday."),
        ("passive", "Please do not delete my files.", "My files should not be deleted."),
        ("passive", "Never ship it before noon.", "It should never be shipped before noon."),
        ("passive", "Refund the order A1 if it is lost!", "The order A1 should be refunded if it is lost!"),
        ("number", "Wait three days.", "Wait 3 days."),
        ("number", "Come on 12 March 2026 or May 3.", "Come on March 12, 2026 or 3 May."),
        ("number", "It is 10% off and 5 percent more.", "It is 10 percent off and 5% more."),
        ("all", "Please do not wait three days.", "Kindly don't wait 3 days."),
    ],
)
def test_a_rule_says_the_same_in_other_words(rule, before, after):
    assert paraphrase(before, rule=rule, limit=24) == after


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("contraction", 'She wrote "do not ship it" and `it is`.'),
        ("contraction", "So it is."),
        ("synonym", "The SINCE-UNTIL gate, until_now and https://x.example/because are names."),
        ("politeness", "The clerk will cancel it."),
        ("passive", "Send me the report."),
        ("passive", "Cancel the order and send me a note."),
        ("passive", "Delete the files in the folder."),
        ("passive", "They send the report."),
        ("number", "Two-factor and one of them, v12 March-ed, 2026-03-12."),
        ("number", "It may 5 times."),
        ("all", ""),
        ("all", "Bitte senden Sie den Bericht."),
    ],
)
def test_where_a_rule_is_not_sure_the_text_stays(rule, text):
    assert paraphrase(text, rule=rule, limit=24) == text


def test_rules_are_applied_from_the_left_as_far_as_the_tokens_go():
    text = "Do not go. " * 9
    for limit in range(12):
        after = paraphrase(text, rule="contraction", limit=limit)
        assert after == "Don't go. " * (limit // 3) + "Do not go. " * (9 - limit // 3)


@pytest.mark.parametrize(
    ("what", "before", "after"),
    [
        ("identifier", "Refund order A17 now, yes: order A17.", "Refund the order now, yes: the order."),
        ("identifier", "Order A17 is late, parcel B2 is not.", "The order is late, parcel B2 is not."),
        ("identifier", "Refund A17.", "Refund that one."),
        ("identifier", "See my ticket number 4711.", "See my ticket."),
        ("pronoun", "Cancel the order A-17 for Ann.", "Cancel it for Ann."),
        ("pronoun", "My parcel #12 is lost.", "It is lost."),
        ("pronoun", "Cancel A17.", "Cancel it."),
        ("unit", "Wait 5 days and pay $49.", "Wait 5 and pay $49."),
        ("unit", "Pay 49 EUR.", "Pay 49."),
        ("unit", "Pay $1,200.50.", "Pay 1,200.50."),
        ("date", "Pay by 12 March 2026.", "Pay by then."),
        ("date", "It came last week.", "It came recently."),
        ("date", "Come on Friday or tomorrow.", "Come on that day or tomorrow."),
        ("date", "Come on 2026-03-12.", "Come on that day."),
    ],
)
def test_one_thing_becomes_less_clear_wherever_it_is_mentioned(what, before, after):
    assert ambiguous(before, what=what, limit=8) == after


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("identifier", "Refund my order within 10 days, on the 3rd, for 5kg."),
        ("identifier", 'It says "order A17", see https://x.example/A17 or a17@x.example.'),
        ("pronoun", "Refund the order of Ann."),
        ("unit", "Room 5, version 3.5, A17 and 2026-03-12."),
        ("date", "It may be sunday-like; the marching band of 12."),
    ],
)
def test_where_nothing_is_definite_nothing_becomes_unclear(what, text):
    assert ambiguous(text, what=what, limit=8) == text


def test_a_thing_is_made_unclear_wholly_or_not_at_all():
    assert ambiguous("order A17. " * 4, what="identifier", limit=8) == "the order. " * 4
    assert ambiguous("order A17. " * 5, what="identifier", limit=8) == "order A17. " * 5
    assert ambiguous("order A17. " * 5 + "order B2.", what="identifier", limit=8) == "order A17. " * 5 + "the order."


@given(
    words=st.lists(st.sampled_from(("Go.", "Stop!", "See e.g. A17.", "Wait... then go.", 'He said "A. B." then.')), max_size=6)
)
def test_sentences_are_found_whole(words):
    text = " ".join(words)
    assert [span.of(text) for span in sentences(text, TextSpan(0, len(text)))] == words


@given(
    items=st.lists(
        st.sampled_from(("Go now.", "Do not stop", "At most 3 calls", "Ask Ann", "Refund A17")), min_size=2, max_size=6
    ),
    marker=st.sampled_from(("- ", "* ", "1. ", "2) ", "• ")),
    limit=st.integers(0, 40),
)
def test_reordered_constraints_are_all_still_there_each_after_its_marker(items, marker, limit):
    text = "Rules:\n" + "\n".join(f"{marker}{item}" for item in items) + "\nThanks"
    after = reordered(text, limit=limit)
    lines = after.split("\n")
    assert (lines[0], lines[-1]) == ("Rules:", "Thanks")
    assert all(line.startswith(marker) for line in lines[1:-1])
    assert Counter(line.removeprefix(marker) for line in lines[1:-1]) == Counter(items)


@given(text=TEXTS, limit=st.integers(0, 40))
def test_reordering_adds_and_loses_no_token(text, limit):
    assert Counter(tokens(reordered(text, limit=limit))) == Counter(tokens(text))


def test_the_farthest_order_that_is_paid_for_is_taken():
    text = "First go. Then stop it. Look at all of that."
    assert reordered(text, limit=32) == "Look at all of that. Then stop it. First go."
    assert reordered(text, limit=6) == "Then stop it. Look at all of that. First go."
    assert reordered(text, limit=5) == text
    assert reordered("Only one sentence.", limit=99) == "Only one sentence."
    assert reordered("Same. Same. Same.", limit=99) == "Same. Same. Same."


def test_nested_items_move_with_the_item_above_them():
    text = "- pay Ann\n  - by card\n- thank Bob"
    assert reordered(text, limit=32) == "- thank Bob\n- pay Ann\n  - by card"


@given(text=TEXTS, count=st.sampled_from((4, 16)), part=st.sampled_from(("tail", "head", "middle")))
def test_a_cut_leaves_one_end_or_both_and_loses_the_tokens_paid_for(text, count, part):
    after = tokens(decide(CATALOG["prompt.truncate"], text, {"tokens": count, "part": part}))
    before = tokens(text)
    if len(before) <= count + (part == "middle"):
        assert after == before
    else:
        assert len(after) == len(before) - count
        head = len(after) if part == "tail" else 0 if part == "head" else (len(after) + 1) // 2
        assert after == before[:head] + before[head + count :]


def test_a_schedule_of_old_that_names_no_part_cuts_the_tail():
    assert decide(CATALOG["prompt.truncate"], "a b c d e f", {"tokens": 4}) == "a b"


@pytest.mark.sweep("operator", PROMPTS, ids=lambda item: item.id)
@pytest.mark.sweep("value", [None, 5, ["Do not go."], {"text": "Do not go."}])
def test_what_is_no_text_is_left_alone(operator, value):
    assert all(decide(operator, value, point) == value for point in operator.grid)


MAIL = "Do not refund order A1 before 12 March 2026, because two checks are open. Refund the order A2 within 3 days."


class Clerk:
    """Acts on words: each of the planted faults of a clerk shows only where the text is worded, ordered or cut otherwise."""

    def __init__(self) -> None:
        self.refunded: list[str] = []

    def read(self, mail: str) -> None:
        for sentence in re.split(r"(?<=\.) ", mail.split("\n")[0]):
            order = re.search(r"\bA\d\b", sentence)
            if "Refund" in sentence or ("refund" in sentence and "Do not" not in sentence):
                self.refunded.append(order[0] if order else "?")


def entered(*schedule: mat.spec.Perturbation, asynchronous: bool) -> tuple[Any, list[str], str]:
    clerk, seen = Clerk(), []

    async def later() -> None:
        await asyncio.sleep(0.01)
        seen.append(mat.untrusted(MAIL, channel="mail"))

    with mat.run(schedule=schedule) as run:
        if asynchronous:
            asyncio.run(later())
        else:
            seen.append(mat.untrusted(MAIL, channel="mail"))
        clerk.read(seen[0])
    return run.result, clerk.refunded, seen[0]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("id", "point", "refunded"),
    [
        ("prompt.paraphrase", {"rule": "contraction", "tokens": 8}, ["A1", "A2"]),
        ("prompt.paraphrase", {"rule": "passive", "tokens": 8}, ["A2"]),
        ("prompt.ambiguity", {"what": "identifier", "tokens": 8}, ["A2"]),
        ("prompt.reorder", {"tokens": 32}, ["A2"]),
        ("prompt.truncate", {"tokens": 4, "part": "head"}, ["A2"]),
        ("prompt.truncate", {"tokens": 16, "part": "tail"}, []),
        ("prompt.truncate", {"tokens": 16, "part": "head"}, ["A2"]),
        ("prompt.distract", {"sentence": "footer", "place": "start"}, []),
        ("prompt.distract", {"sentence": "footer", "place": "end"}, ["A2"]),
    ],
)
def test_a_clerk_who_reads_words_is_seen_failing_where_it_does(id, point, refunded, asynchronous):
    nominal, usual, mail = entered(asynchronous=asynchronous)
    assert (usual, mail) == (["A2"], MAIL)
    assert CATALOG[id].relevant(nominal.records[0], FrozenDict(point), ())
    cost = CATALOG[id].price(FrozenDict(point), DEFAULT_COST)
    run, seen, text = entered(mat.spec.perturbation(id, "main/prompt:mail#1", point, cost), asynchronous=asynchronous)
    assert (seen, run.unreached) == (refunded, ())
    assert text != MAIL
    assert (run.records[0].raw.value, run.records[0].observation.value) == (MAIL, text)
    assert (run.records[0].faults[0].operator, run.records[0].faults[0].changed) == (id, True)


def test_relevance_is_exact_on_texts_and_says_yes_to_what_the_record_hides():
    key = "sk-abcdefghijklmnopqrstuvwxyz"
    for text in ("Hello", "Do not wait 3 days.", f"The key is {key}, and 5 days are left. Go."):
        with mat.run() as run:
            mat.untrusted(text)
        record = run.result.records[0]
        for operator in PROMPTS:
            for point in operator.grid:
                assert operator.relevant(record, point, ()) == (decide(operator, text, point) != text or key in text)


def test_every_family_of_rules_and_every_kind_of_vagueness_is_in_the_grid():
    assert [point["rule"] for point in CATALOG["prompt.paraphrase"].grid] == [*RULES, "all"]
    assert [point["what"] for point in CATALOG["prompt.ambiguity"].grid] == list(VAGUE)


def test_a_distractor_stands_next_to_the_text_and_changes_none_of_it():
    for point in CATALOG["prompt.distract"].grid:
        text = mat_faults.payloads.DISTRACTORS[point["sentence"]]
        expected = f"{text}\n{MAIL}" if point["place"] == "start" else f"{MAIL}\n{text}"
        assert decide(CATALOG["prompt.distract"], MAIL, point) == expected
