from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import mat
from mat.boundary.effect import Replace
from mat.core.digest import canonical
from mat.core.record import ActionKind
from mat.core.redact import hashed
from mat.monitor.judge import judge
from mat_contracts import claims_supported
from mat_contracts.claims import EVIDENCE, EVIDENCE_CHARS, claims_in, missing, says, split_claims
from mat_contracts.support import number_match
from mat_contracts.traces import broken, record, trace, violations

IDLE = record("verification", "row", {"passed": True})


def track(value: object = None, **given: object) -> mat.Record:
    return record("tool_call", "track", {"parcel": 17}, value=value, **given)  # type: ignore[arg-type]


def claim(text: str, *supports: str) -> mat.Record:
    return record("claim", "claim", {"text": text}, supports=supports)


FRIDAY = "Parcel 17 arrives on Friday"


@pytest.mark.sweep(
    ("text", "evidence", "lost"),
    [
        ("It costs 12.50", ["12.5"], ()),
        ("It costs 1,250", ["1250.00"], ()),
        ("It costs 12", ["125", "1.2", "x12"], ("the number 12",)),
        ("Two of 3 parcels", ["3"], ()),
        ("Due on 2024-05-03", ["2024-05-03T10:00"], ()),
        ("Due on 2024-05-03", ["2024-05-04"], ("'2024-05-03'",)),
        ("Due on Friday", ["2024-05-03"], ()),
        ("Due on Friday", ["2024-05-04"], ("'friday'",)),
        ("Due on May 3", ["2024-05-03"], ()),
        ("Due at 10:30", ["2024-05-03T10:30"], ()),
        ("Due on Saturday", ["2024-02-31"], ("'saturday'",)),
        ("Owned by 'Ann Lee'", ["ann lee, Berlin"], ()),
        ('Owned by "Bob"', ["ann lee"], ("'Bob'",)),
        ("The parcel was delivered", ["status: delivered"], ()),
        ("The parcel was delivered", ["in transit"], ("'delivered'",)),
        ("The parcel was delivered", ["has not yet been delivered"], ("'delivered'",)),
        ("The parcel hasn't been delivered", ["in transit"], ()),
        ("It was canceled", ["cancelled"], ()),
        ("It was not delayed, delivered on time", ["delayed"], ("'delivered'",)),
        ("It is on its way", ["in transit"], ()),
        ("Delivered, 2 of 'A'", ["x"], ("the number 2", "'A'", "'delivered'")),
    ],
)
def test_what_of_a_claim_the_evidence_does_not_say(text: str, evidence: list[str], lost: tuple[str, ...]) -> None:
    assert missing(text, evidence) == lost
    assert says(text, evidence) is (lost == ())


def test_a_claim_without_a_link_is_not_supported_each_time() -> None:
    found = violations(claims_supported(), trace(claim("It is so"), track("Friday"), claim(FRIDAY)))
    assert [(item.step, item.message) for item in found] == [
        (0, "claim 'It is so': nothing supports it"),
        (2, f"claim {FRIDAY!r}: nothing supports it"),
    ]


def test_numbers_may_stand_in_the_question_but_states_and_days_may_not() -> None:
    assert broken(claims_supported(), trace(track({"eta": "Friday"}), claim(FRIDAY, "step#0"))) == ()
    asked = record("tool_call", "search", {"status": "delivered", "parcel": 17}, value=["none"])
    (found,) = violations(claims_supported(), trace(asked, claim("Parcel 17 was delivered", "step#0")))
    assert found.message == "claim 'Parcel 17 was delivered': its evidence does not say 'delivered'"
    assert found.witness == (0, 1)


def test_true_flags_and_numbers_speak_and_false_flags_do_not() -> None:
    assert broken(claims_supported(), trace(track({"delivered": True}), claim("17 was delivered", "step#0"))) == ()
    assert broken(claims_supported(), trace(track({"delivered": False}), claim("17 was delivered", "step#0"))) == (1,)
    assert broken(claims_supported(), trace(track({"days": 3}), claim("3 days", "step#0"))) == ()


@pytest.mark.parametrize("item", [track(error="timeout"), track(blocked=True), track([])])
def test_a_reply_that_failed_or_is_empty_says_nothing(item: mat.Record) -> None:
    assert [found.message for found in violations(claims_supported(), trace(item, claim("It is so", "step#0")))] == [
        "claim 'It is so': its evidence says nothing"
    ]


def test_several_sources_support_together() -> None:
    items = trace(
        track("Friday"),
        record("retrieval", "kb", value=[{"id": "p1", "text": "at 10:30"}]),
        claim("Friday, 10:30", "step#0", "step#1"),
    )
    assert broken(claims_supported(), items) == ()


def test_passages_memory_cells_messages_and_claims_are_evidence() -> None:
    found = record("retrieval", "kb", value=[{"id": "p1", "text": "Friday"}, {"id": "p2", "text": "Monday"}])
    assert broken(claims_supported(), trace(found, claim("Friday", "passage:p1"), claim("Friday", "passage:p2"))) == (2,)
    noted = [record("memory_read", "notes", {"key": "eta"}, value=day) for day in ("Monday", "Friday")]
    assert broken(claims_supported(), trace(*noted, claim("Friday", "memory:notes/eta"))) == ()
    said = record("message", "user", {"text": "I need it on Friday", "sender": "user"}, boundary="prompt")
    assert broken(claims_supported(), trace(said, claim("Needed on Friday", "step#0"))) == ()
    assert broken(claims_supported(), trace(track("Friday"), claim("Friday", "step#0"), claim("So: Friday", "claim#1"))) == ()


def test_a_claim_on_an_unsupported_claim_is_unsupported_too() -> None:
    assert broken(claims_supported(), trace(claim("Friday"), claim("So: Friday", "claim#0"), claim("Yes", "claim#1"))) == (
        0,
        1,
        2,
    )


@pytest.mark.parametrize("value", [hashed("Friday"), {"redacted": "[redacted:field#1]", "pii": []}, "x" * (EVIDENCE_CHARS + 1)])
def test_where_the_text_is_not_known_the_link_is_enough(value: object) -> None:
    assert broken(claims_supported(), trace(track(value), claim("It is Monday, 99", "step#0"))) == ()


def test_of_evidence_no_longer_remembered_the_link_is_enough() -> None:
    others = [record("tool_call", "other", {"n": number}, value="x") for number in range(EVIDENCE)]
    assert broken(claims_supported(), trace(track("Friday"), *others, claim("Monday", "step#0"))) == ()
    assert broken(claims_supported(), trace(track("Friday"), *others[:-1], claim("Monday", "step#0"))) == (EVIDENCE,)
    assert broken(claims_supported(max_age=5), trace(track("Friday"), *others, claim("Monday", "step#0"))) == (EVIDENCE + 1,)


def test_an_own_verifier_sees_the_claim_and_all_its_texts() -> None:
    seen: list[tuple[str, list[str]]] = []

    def entails(text: str, texts: object) -> bool:
        seen.append((text, list(texts)))  # type: ignore[call-overload]
        return text == "yes"

    items = trace(track({"a": ["x", 1], "b": None}), claim("yes", "step#0"), claim("no", "step#0"))
    assert broken(claims_supported(support=entails), items) == (2,)
    assert seen == [("yes", ["x", "1"]), ("no", ["x", "1"])]


def test_evidence_is_refused_past_its_age_in_steps_and_in_time() -> None:
    items = trace(track("Friday"), IDLE, IDLE, claim("Friday", "step#0"))
    assert broken(claims_supported(max_age=3), items) == ()
    assert broken(claims_supported(max_age=2), items) == (3,)
    assert broken(claims_supported(max_age_ms=3000), items) == ()
    (found,) = violations(claims_supported(max_age_ms=2999), items)
    assert found.message == "claim 'Friday': its evidence is too old"


def test_fresh_judges_by_what_the_port_said_and_not_by_what_a_fault_delivered() -> None:
    stale = track("Monday", raw="Friday", faults=["service.stale"])
    assert broken(claims_supported(), trace(stale, claim("Monday", "step#0"))) == ()
    assert broken(claims_supported(fresh=True), trace(stale, claim("Monday", "step#0"))) == (1,)
    assert broken(claims_supported(fresh=True), trace(stale, claim("Friday", "step#0"))) == ()
    cached = track("Monday", faults=["service.stale"], invoked=0)
    assert broken(claims_supported(fresh=True), trace(cached, claim("Monday", "step#0"))) == (1,)
    late = track("Friday", faults=["service.delay"])
    assert broken(claims_supported(fresh=True), trace(late, claim("Friday", "step#0"))) == ()


@pytest.mark.parametrize("phase", ["before", "after"])
def test_in_a_run_a_claim_from_a_stale_reply_is_found(phase: str) -> None:
    @mat.tool(name="track")
    def carrier(parcel: int) -> dict[str, object]:
        return {"parcel": parcel, "eta": "Friday"}

    stale = mat.spec.operator("service.old", lambda call, reply, stream: Replace({"parcel": 17, "eta": "Monday"}), phase=phase)  # type: ignore[arg-type]
    schedules: list[list[mat.spec.Perturbation]] = [[], [mat.spec.perturbation("service.old", "main/service:track#1")]]
    broke = []
    for schedule in schedules:
        with mat.run([claims_supported(fresh=True)], schedule=schedule, operators=[stale]) as run:
            row = carrier(17)
            mat.claim(f"Parcel 17 arrives on {row['eta']}", supports=[row])
            mat.finish("done")
        broke.append([item.step for item in run.violations])
    assert broke == [[], [1]]


# -- claims in a text ---------------------------------------------------------------------------------------------------


@pytest.mark.sweep(
    ("text", "claims"),
    [
        ("It left on 3. May. It weighs 1.5 kg.", ("It left on 3. May.", "It weighs 1.5 kg.")),
        ("Dr. Lee signed e.g. form 7. It is done.", ("Dr. Lee signed e.g. form 7.", "It is done.")),
        ("J. Smith lives in the U.S. He works.", ("J. Smith lives in the U.S.", "He works.")),
        ("It comes at 3 p.m. Monday. It is big.", ("It comes at 3 p.m. Monday.", "It is big.")),
        ("We wrote to a.b@example.com. See no. 5 there.", ("We wrote to a.b@example.com.", "See no. 5 there.")),
        ("The page www.example.com/a.html?x=1.2 is down.", ("The page www.example.com/a.html?x=1.2 is down.",)),
        ("Server 10.0.0.1 runs v1.2.3 now! Fine work.", ("Server 10.0.0.1 runs v1.2.3 now!", "Fine work.")),
        ("It is wet; it is cold.", ("It is wet", "it is cold.")),
        ("Wait... it moved. Still there.", ("Wait... it moved.", "Still there.")),
        (
            "- Total: $1,250.00\n* Status: **paid**\n1. Item one costs 5",
            ("Total: $1,250.00", "Status: paid", "Item one costs 5"),
        ),
        ("These were sent:\n- A1\n- B2 by air mail only", ("These were sent: A1", "B2 by air mail only")),
        ("The parcel\nis in Berlin\nIt is safe", ("The parcel is in Berlin", "It is safe")),
        ("# The title\n\nIt is so.\n\n```\nx = 1. Then y.\n```", ("It is so.",)),
        ("Was it sent? Is that ok?", ()),
        ("Hi Ann! Good morning. Thank you for waiting. Best regards,\nBob Lee", ("Bob Lee",)),
        ("Hello Ann, the parcel is here.", ("the parcel is here.",)),
        ("I'm sorry, but the parcel was lost.", ("the parcel was lost.",)),
        ("I can confirm that order 17 is paid.", ("order 17 is paid.",)),
        ("No refund was issued. No.", ("No refund was issued.",)),
        ("I think it is lost. It might rain. It seems wet. Perhaps so it is.", ()),
        ("It may rain. It ends in May.", ("It ends in May.",)),
        ("I will send it. We can help you. Let me know more. Please write us. If it is lost, call us.", ()),
        ("", ()),
        ("OK", ()),
    ],
)
def test_a_text_is_split_into_its_claims(text: str, claims: tuple[str, ...]) -> None:
    assert split_claims(text) == claims


STATEMENTS = [
    "Parcel 17 weighs 1.5 kg.", "The fee is $1,250.00!", "Dr. Lee wrote to ann.lee@example.com.", "It left on 3. May 2024.",
    "The page https://x.example/a.b?c=1.2 is up.", "Order W-17 was paid at 2.30 p.m. by Mr. Low.",
]  # fmt: skip
NOISE = ["Is it so?", "Hello Ann!", "I think it is late.", "Thank you.", "I will write again.", "Let me know."]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=8), st.sampled_from([" ", "\n\n", "\n- "]))
def test_what_was_put_together_from_claims_and_noise_comes_apart_into_the_claims(
    parts: list[tuple[bool, int]], glue: str
) -> None:
    text = glue.join((STATEMENTS if kept else NOISE)[index] for kept, index in parts)
    assert split_claims(text) == tuple(STATEMENTS[index] for kept, index in parts if kept)


MARKUP = "[*`#\\[\\]()_]*"


@example("1B`B`")
@example("The **to**tal is 5")
@given(st.text(alphabet="aB1 .!?;:,-*#`[]()\n\"'@", max_size=80))
def test_a_claim_never_holds_a_word_that_the_text_does_not_show(text: str) -> None:
    """A reader sees "1B`B`" as the word 1BB: marks of Markdown may stand between the letters of a word, nothing else may."""
    for claim in split_claims(text):
        for word in set(re.findall(r"\w+", claim)):
            assert re.search(MARKUP.join(word), text), word


# -- answers ------------------------------------------------------------------------------------------------------------


def answer(text: object) -> mat.Record:
    return record("final_response", "answer", {"answer": text})


ANSWERS = claims_supported(on=("claim", "final_response"))


def test_each_claim_of_an_answer_is_judged_by_what_the_world_replied() -> None:
    items = trace(track({"eta": "Friday"}), answer("Hi Ann! Parcel 17 arrives on Friday. It was delivered. Parcel 18 is big."))
    assert broken(claims_supported(), items) == ()
    found = violations(ANSWERS, items)
    assert [item.message for item in found] == [
        "final response says 'It was delivered.': the trace does not say 'delivered'",
        "final response says 'Parcel 18 is big.': the trace does not say the number 18",
    ]
    assert {item.instance for item in found} == {"step#1"}
    assert found[0].wanted == "evidence that says 'delivered'"


def test_what_a_model_or_another_agent_said_does_not_support_an_answer() -> None:
    said = record("model_call", "planner", {}, value="Parcel 17 arrives on Friday")
    told = record("message", "writer", {"text": "Parcel 17 arrives on Friday", "sender": "main"})
    assert broken(ANSWERS, trace(said, told, answer(FRIDAY))) == (2,)
    assert broken(ANSWERS, trace(record("retrieval", "kb", value=[{"text": FRIDAY}]), answer(FRIDAY))) == ()


def test_the_users_words_are_the_question_and_not_the_evidence_of_an_answer() -> None:
    asked = record("message", "user", {"text": "Parcel 99 was delivered", "sender": "user"}, boundary="prompt")
    assert broken(ANSWERS, trace(asked, track({"eta": "Friday"}), answer("Parcel 99 comes Friday."))) == ()
    assert broken(ANSWERS, trace(asked, track({"eta": "Friday"}), answer("Parcel 99 was delivered."))) == (2,)


def test_an_answer_without_anything_in_the_trace_is_not_supported() -> None:
    (found,) = violations(ANSWERS, trace(answer("The sky is green.")))
    assert found.message == "final response says 'The sky is green.': nothing in the trace supports it"


def test_a_sentence_that_a_recorded_claim_says_shares_its_fate() -> None:
    good = trace(track("Friday"), claim("it is on its way", "step#0"), answer("It is on its way!"))
    bad = trace(track("Friday"), claim("it is on its way"), answer("It is on its way!"))
    assert broken(ANSWERS, good) == ()
    assert broken(ANSWERS, bad) == (1, 2)


def test_messages_to_the_user_are_judged_where_asked_for() -> None:
    items = trace(track("Friday"), record("message", "user", {"text": "It comes on Monday.", "sender": "main"}))
    assert broken(claims_supported(on="message"), items) == (1,)
    assert broken(ANSWERS, items) == ()
    other = trace(track("Friday"), record("message", "mailer", {"text": "It comes on Monday.", "sender": "main"}))
    assert broken(claims_supported(on="message"), other) == ()


def test_an_own_splitter_decides_what_the_claims_are() -> None:
    contract = claims_supported(on="final_response", splitter=lambda text: text.split("|"))
    assert len(violations(contract, trace(track("Friday"), answer("Monday 1|Friday|Tuesday?")))) == 2


# -- links, unknowns and limits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["passage:p9", "memory:notes/eta", "claim#0", "step#7", "claim#1"])
def test_a_link_to_something_that_is_nowhere_before_the_claim_supports_nothing(name: str) -> None:
    (found,) = violations(claims_supported(), trace(track("Friday"), claim("Friday", name)))
    assert found.message == f"claim 'Friday': its evidence {name} does not occur before it"


def test_a_link_to_a_check_is_enough_and_a_memory_cell_says_what_was_written_to_it() -> None:
    assert broken(claims_supported(), trace(IDLE, claim("It is so, 5", "step#0"))) == ()
    noted = record("memory_write", "notes", {"key": "eta", "value": "Friday"})
    assert broken(claims_supported(), trace(noted, claim("Friday", "memory:notes/eta"))) == ()
    assert broken(claims_supported(), trace(noted, claim("Monday", "memory:notes/eta"))) == (1,)


def test_a_claim_nobody_can_judge_fails_the_contract_and_a_violation_outweighs_it() -> None:
    items = trace(track("Friday"), claim("It is so", "step#0"))
    contract = claims_supported(verifier=number_match())
    _, (outcome,) = judge(items, [contract])
    assert (outcome.outcome, outcome.unjudged) == ("fail", True)
    assert "1 claim could not be judged, the first at step 1: 'It is so'" in outcome.error
    worse = (*items, *trace(*items, claim("It is Monday", "step#0"))[2:])
    _, (outcome,) = judge(worse, [contract])
    assert (outcome.outcome, [item.label for item in outcome.violations]) == ("fail", ["", "unjudged"])


def test_what_unknown_counts_as_can_be_said() -> None:
    items = trace(track("Friday"), claim("It is so", "step#0"))
    assert broken(claims_supported(verifier=number_match(), unknown="supported"), items) == ()
    (found,) = violations(claims_supported(verifier=number_match(), unknown="unsupported"), items)
    assert found.message == "claim 'It is so': it could not be decided whether its evidence supports it"


def test_an_answer_that_only_forgotten_evidence_can_support_fails() -> None:
    others = [record("tool_call", "other", {"n": number}, value="x") for number in range(3)]
    items = trace(track("Friday"), *others, answer("It arrives on Friday."))
    contract = claims_supported(on="final_response", remember=3)
    _, (outcome,) = judge(items, [contract])
    assert outcome.outcome == "fail"
    assert broken(claims_supported(on="final_response", remember=4), items) == ()


def test_claims_of_a_trace_are_listed_as_the_contract_judges_them() -> None:
    items = trace(track("Friday"), claim(FRIDAY, "step#0"), claim("It was lost", "step#0"), answer("It comes Friday. It is 5."))
    found = claims_in(items)
    assert [(item.artefact, item.index, item.final, item.status) for item in found] == [
        ("claim#1", 0, False, "supported"), ("claim#2", 0, False, "unsupported"), ("step#3", 0, True, "supported"),
        ("step#3", 1, True, "unsupported"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        {"on": "tool_call"}, {"on": ()}, {"unknown": "maybe"}, {"remember": 0}, {"max_age": -1},
        {"verifier": number_match(), "support": lambda text, texts: True},
    ],
)  # fmt: skip
def test_an_option_that_cannot_mean_anything_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(mat.MatError):
        claims_supported(**wrong)  # type: ignore[arg-type]


def test_a_verifier_that_says_something_else_fails_the_contract_with_its_error() -> None:
    _, (outcome,) = judge(
        trace(track("x"), claim("It is so", "step#0")), [claims_supported(verifier=lambda text, given: "yes")]
    )  # type: ignore[arg-type,return-value]
    assert outcome.outcome == "fail"
    assert "a support verifier returned 'yes'" in outcome.error


def test_a_long_passage_hides_only_itself_and_a_long_reply_is_known_by_its_link() -> None:
    long = "x" * (EVIDENCE_CHARS + 1)
    found = record("retrieval", "kb", value=[{"id": "p1", "text": long}, {"id": "p2", "text": "due on Friday"}])
    wrong, right = claim("Due on Monday", "passage:p2"), claim("Due on Friday", "passage:p2")
    assert broken(claims_supported(), trace(found, wrong, right)) == (1,)
    assert broken(claims_supported(), trace(found, claim("Due on Monday", "passage:p1"))) == ()
    page = track({"page": {"text": [long]}, "day": "Friday"})
    assert broken(claims_supported(), trace(page, claim("Due on Monday", "step#0"))) == ()


@pytest.mark.sweep("remember", [1, 2, 40, 100])
@pytest.mark.sweep("between", [0, 1, 2, 31, 32, 33, 39, 40, 70, 99, 100])
def test_what_is_remembered_does_not_depend_on_how_it_is_kept(remember: int, between: int) -> None:
    others = [record("tool_call", "other", {"n": number}, value="x") for number in range(between)]
    items = trace(track("Friday"), *others, claim("Monday", "step#0"))
    assert broken(claims_supported(remember=remember), items) == ((between + 1,) if between < remember else ())
    read = trace(record("memory_read", "m", {"key": "k"}, value="Friday"), *others, claim("Monday", "memory:m/k"))
    assert broken(claims_supported(remember=remember), read) == ((between + 1,) if between < remember else ())


@pytest.mark.parametrize("kind", ["tool_call", "message", "retrieval", "memory_read"])
def test_the_state_holds_no_text_that_is_too_long_to_be_judged(kind: ActionKind) -> None:
    contract = claims_supported()
    state = contract.start
    for item in trace(*[record(kind, "web", {"key": "k"}, value=[{"id": "p", "page": ["x" * 50_000]}])] * 100):
        state = contract.step(state, item)
        assert not isinstance(state, mat.Violated)
        assert len(canonical(state)) < 20_000


def test_a_peeked_step_leaves_no_trace_in_what_is_remembered() -> None:
    contract = claims_supported()
    first, second, monday = trace(track("Friday"), track("Monday"), claim("Monday", "step#1"))
    one = contract.step(contract.start, first)
    kept = canonical(one)
    contract.step(one, second)
    contract.step(one, monday)
    assert canonical(one) == kept


def test_a_citation_after_the_full_stop_is_no_claim_of_its_own() -> None:
    assert split_claims("Parcel P2 was delivered. [order:A1] [2]") == ("Parcel P2 was delivered.",)
    assert split_claims("[A1] was delivered on Friday.") == ("[A1] was delivered on Friday.",)
