from __future__ import annotations

import pytest

import mat
from mat.boundary.effect import Replace
from mat.core.redact import hashed
from mat_contracts import claims_supported
from mat_contracts.claims import EVIDENCE, EVIDENCE_CHARS, missing, says
from mat_contracts.traces import broken, record, trace, violations

IDLE = record("verification", "row", {"passed": True})


def track(value: object = None, **given: object) -> mat.Record:
    return record("tool_call", "track", {"parcel": 17}, value=value, **given)  # type: ignore[arg-type]


def claim(text: str, *supports: str) -> mat.Record:
    return record("claim", "claim", {"text": text}, supports=supports)


FRIDAY = "Parcel 17 arrives on Friday"


@pytest.mark.parametrize(
    ("text", "evidence", "lost"),
    [
        ("It costs 12.50", ["12.5"], ()),
        ("It costs 1,250", ["1250.00"], ()),
        ("It costs 12", ["125", "1.2", "x12"], ("number 12",)),
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
        ("Delivered, 2 of 'A'", ["x"], ("number 2", "'A'", "'delivered'")),
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

    stale = mat.operator("service.old", lambda call, reply, stream: Replace({"parcel": 17, "eta": "Monday"}), phase=phase)  # type: ignore[arg-type]
    schedules: list[list[mat.Perturbation]] = [[], [mat.perturbation("service.old", "main/service:track#1")]]
    broke = []
    for schedule in schedules:
        with mat.run([claims_supported(fresh=True)], schedule=schedule, operators=[stale]) as run:
            row = carrier(17)
            mat.claim(f"Parcel 17 arrives on {row['eta']}", supports=[row])
            mat.finish("done")
        broke.append([item.step for item in run.violations])
    assert broke == [[], [1]]
