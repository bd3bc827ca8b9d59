"""Each contract with the smallest breach it is for and the nearest run that keeps it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from corpora import catalog, service, teams

from mat.monitor.judge import judge
from mat_contracts.traces import broken as steps_of
from mat_contracts.traces import record, trace


def violated(records, contracts):
    _, outcomes = judge(trace(*records), contracts)
    assert [outcome.error for outcome in outcomes if outcome.error] == []
    return {outcome.contract: [item.step for item in outcome.violations] for outcome in outcomes if outcome.violations}


# -- the catalogue ----------------------------------------------------------------------------------------------------

QUESTION = "Which available Kettle with color=red cost more than $20?"
QUERY = {"product_type": "Kettle", "color": "red", "price_min": 20, "available_only": True}
ITEMS = [
    {"item_id": "11111111", "price": 19.0, "options": {"color": "red"}},
    {"item_id": "22222222", "price": 25.5, "options": {"color": "red"}},
]


def work(*, query=QUERY, prepared=None, sent=None, reply=None, error="", answer="22222222", question=QUESTION):
    given = query if prepared is None else prepared
    return [
        record("message", "user", {"text": question}, agent="user"),
        record("model_call", "m", {}, value={"text": "plan", "query": query}, agent="planner"),
        record("model_call", "m", {}, value={"tool": "catalog", "tool_arguments": given}, agent="researcher"),
        record("tool_call", "catalog", given if sent is None else sent, error=error, agent="researcher",
               value=None if error else reply or {"count": 2, "items": ITEMS, "query": given}),
        record("final_response", "answer", {"answer": answer}, agent="executor"),
    ]  # fmt: skip


def test_good_work_breaks_nothing():
    assert violated(work(), catalog.contracts()) == {}


@pytest.mark.parametrize(
    ("contract", "step", "changes"),
    [
        ("plan_carries_the_question", 1, {"query": {key: value for key, value in QUERY.items() if key != "price_min"}}),
        ("plan_carries_the_question", 1, {"query": {key: value for key, value in QUERY.items() if key != "available_only"}}),
        ("plan_carries_the_question", 1, {"query": QUERY | {"product_type": "Grill"}}),
        ("call_follows_the_plan", 2, {"prepared": QUERY | {"product_type": 7}}),
        ("call_is_sent_as_prepared", 3, {"sent": QUERY | {"color": "blue"}}),
        ("call_is_accepted", 2, {"error": "rejected", "answer": "It could not be completed."}),
        ("tool_answers", 3, {"error": "timeout", "answer": "It could not be completed."}),
        ("failure_is_admitted", 4, {"error": "timeout"}),
        ("reply_keeps_the_query", 3, {"reply": {"count": 9, "items": ITEMS, "query": QUERY}}),
        ("answer_is_derived", 4, {"answer": "22222222 and 33333333"}),
        ("answer_answers", 4, {"answer": "11111111, 22222222"}),
    ],
)
def test_each_breach_of_the_catalogue_blames_its_own_step(contract, step, changes):
    assert violated(work(**changes), catalog.contracts())[f"catalog.{contract}"] == [step]


@pytest.mark.parametrize(
    ("question", "right", "wrong"),
    [
        ("What is the cheapest Kettle?", "11111111 at $19", "22222222 at $25.50"),
        ("How many Kettle are there?", "There are 2.", "There are 3."),
        ("Which Kettle cost less than $20?", "11111111", "22222222"),
    ],
)
def test_answers_are_worked_out_of_the_reply(question, right, wrong):
    contract = catalog.answer_answers()
    assert steps_of(contract, trace(*work(question=question, answer=right))) == ()
    assert steps_of(contract, trace(*work(question=question, answer=wrong))) == (4,)


@pytest.mark.parametrize(("name", "value"), [("material", "oak"), ("screen size", "5.8-inch"), ("bagged/bagless", "bagged")])
def test_yes_and_no_are_read_from_the_options(name, value):
    contract, reply = catalog.answer_answers(), {"count": 1, "items": [{"item_id": "11111111", "options": {name: value}}]}
    question = f"Does item 11111111 of the Desk have {name}={value}?"
    assert steps_of(contract, trace(*work(question=question, reply=reply, answer="Yes, it does."))) == ()
    assert steps_of(contract, trace(*work(question=question, reply=reply, answer="No, it does not."))) == (4,)


def test_an_option_the_reply_does_not_speak_of_is_not_judged():
    reply = {"count": 1, "items": [{"item_id": "11111111", "options": {"color": "red"}}]}
    question = "Does item 11111111 of the Desk have material=oak?"
    assert steps_of(catalog.answer_answers(), trace(*work(question=question, reply=reply, answer="No, it does not."))) == ()


def test_prices_with_thousands_and_counted_items_are_no_inventions():
    query = QUERY | {"price_min": 1200.5}
    question = "Which available Kettle with color=red cost more than $1,200.50?"
    items = [item | {"price": item["price"] * 100} for item in ITEMS]
    run = work(
        query=query, question=question, reply={"count": 2, "items": items, "query": query}, answer="2: 11111111, 22222222"
    )
    assert violated(run, catalog.contracts()) == {}


# -- customer service -------------------------------------------------------------------------------------------------

ORDER = {
    "order_id": "#W1", "user_id": "al_bo_1234", "status": "delivered",
    "items": [{"item_id": "5001", "product_id": "70"}, {"item_id": "5002", "product_id": "70"}],
    "payment_history": [{"payment_method_id": "paypal_1"}],
}  # fmt: skip
PERSON = {"name": {"first_name": "Al"}, "payment_methods": {"paypal_1": {}, "gift_card_2": {}}, "membership": "regular"}
PRODUCT = {"product_id": "70", "variants": {"6001": {"available": True}, "6002": {"available": False}}}
TRIP = {
    "reservation_id": "ABC123", "user_id": "al_bo_1234", "cabin": "economy", "insurance": "no", "flight_type": "one_way",
    "created_at": "2024-05-01T10:00:00", "flights": [{"flight_number": "HAT001", "date": "2024-05-20"}],
    "passengers": [{"first_name": "Al"}], "total_baggages": 2,
}  # fmt: skip


def user(text):
    return record("message", "user", {"text": text}, agent="user", boundary="prompt")


def says(text):
    return record("message", "user", {"text": text}, agent="assistant")


def call(name, arguments, value=None, *, error=""):
    effect = "write" if name in (*service.RETAIL_WRITES, *service.AIRLINE_WRITES) else "read"
    return record("tool_call", name, arguments, value=value, error=error, effect=effect, agent="assistant")


def asked(yes="Yes, please."):
    return [says("Shall I do this with #W1 (ABC123)?"), user(yes)]


def shop(*writes, order=ORDER, yes="Yes, please.", known=True):
    found = call("find_user_id_by_email", {"email": "a@b.c"}, "al_bo_1234")
    looked = [
        call("get_user_details", {"user_id": "al_bo_1234"}, PERSON), call("get_order_details", {"order_id": "#W1"}, order),
        call("get_product_details", {"product_id": "70"}, PRODUCT),
    ]  # fmt: skip
    return [user("Hello"), *([found] if known else []), *looked, *asked(yes), *writes]


def exchange(new="6001", old="5001", **more):
    given = {"order_id": "#W1", "item_ids": [old], "new_item_ids": [new], "payment_method_id": "paypal_1"} | more
    return call("exchange_delivered_order_items", given, ORDER | {"status": "exchange requested"})


def back(**more):
    given = {"order_id": "#W1", "item_ids": ["5001"], "payment_method_id": "paypal_1"} | more
    return call("return_delivered_order_items", given, ORDER | {"status": "return requested"})


def cancel(reason="no longer needed"):
    return call("cancel_pending_order", {"order_id": "#W1", "reason": reason}, ORDER | {"status": "cancelled"})


PENDING = ORDER | {"status": "pending"}
REFUSED = call("cancel_pending_order", {"order_id": "#W1", "reason": "no longer needed"}, error="rejected")
TRANSFERRED = call("transfer_to_human_agents", {"summary": "x"}, "Transfer successful")


@pytest.mark.parametrize(
    "kept",
    [
        shop(exchange()),
        shop(back()),
        shop(back(payment_method_id="gift_card_2")),
        shop(cancel(), order=PENDING),
        shop(TRANSFERRED),
    ],
)
def test_service_by_the_retail_policy_breaks_nothing(kept):
    assert violated(kept, service.retail()) == {}


@pytest.mark.parametrize(
    ("contract", "run"),
    [
        ("confirmed", shop(exchange(), yes="Which colours are there?")),
        ("looked_up", [user("Yes"), *asked(), back()]),
        ("own", shop(back(), order=ORDER | {"user_id": "cy_do_5678"})),
        ("own_payment", shop(exchange(payment_method_id="paypal_9"))),
        ("over_after_transfer", shop(TRANSFERRED, back())),
        ("authenticated", [user("I am al_bo_1234"), call("get_order_details", {"order_id": "#W1"}, ORDER)]),
        ("status", shop(back(), order=PENDING)),
        ("once", shop(exchange(), *asked(), exchange(old="5002"))),
        ("items_of_order", shop(back(item_ids=["9999"]))),
        ("same_product", shop(exchange(new="6002"))),
        ("same_product", shop(exchange(new="8888"))),
        ("refund_to", shop(back(payment_method_id="credit_card_9"))),
        ("reason", shop(cancel("bored"), order=PENDING)),
        ("accepted", shop(REFUSED, order=PENDING)),
        ("named", [*shop()[:-2], says("Shall I?"), user("Yes"), back()]),
    ],
)  # fmt: skip
def test_each_breach_of_the_retail_policy_is_caught(contract, run):
    assert f"policy.{contract}" in violated(run, service.retail())


def test_text_next_to_a_call_and_two_calls_at_once_are_caught():
    beside = record("model_call", "model", value="One moment.", agent="assistant")
    assert "policy.one_at_a_time" in violated([user("Hi"), beside, call("think", {})], service.retail())
    first, second = (call("think", {"thought": str(number)}) for number in range(2))
    placed = trace(first, second)
    together = [replace(placed[0], asked_seq=0, sealed_seq=2), replace(placed[1], asked_seq=1, sealed_seq=3)]
    contract = next(item for item in service.retail() if item.id == "policy.one_at_a_time")
    assert steps_of(contract, together) == (1,)
    assert steps_of(contract, placed) == ()


def desk(*writes, trip=TRIP, person=PERSON):
    found = [call("get_user_details", {"user_id": "al_bo_1234"}, person)]
    return [
        user("I am al_bo_1234"),
        *found,
        call("get_reservation_details", {"reservation_id": "ABC123"}, trip),
        *asked(),
        *writes,
    ]


def update(**given):
    return call(
        "update_reservation_flights", {"reservation_id": "ABC123", "flights": TRIP["flights"], "payment_id": "paypal_1"} | given
    )


def bags(total, paid):
    given = {"reservation_id": "ABC123", "total_baggages": total, "nonfree_baggages": paid}
    return call("update_reservation_baggages", given)


CANCEL = call("cancel_reservation", {"reservation_id": "ABC123"}, TRIP)
FLOWN = TRIP | {"cabin": "business", "flights": [{"flight_number": "HAT001", "date": "2024-05-10"}]}
CERTIFICATES = [{"payment_id": "certificate_1"}, {"payment_id": "certificate_2"}]
GOLD = PERSON | {"membership": "gold"}
MOVED = [{"flight_number": "HAT002", "date": "2024-05-21"}]


@pytest.mark.parametrize(
    "kept",
    [
        desk(CANCEL, trip=TRIP | {"created_at": "2024-05-15T10:00:00"}),
        desk(CANCEL, trip=TRIP | {"cabin": "business"}),
        desk(update(cabin="business"), trip=TRIP | {"cabin": "basic_economy"}),
        desk(bags(3, 2)),
    ],
)
def test_service_by_the_airline_policy_breaks_nothing(kept):
    assert violated(kept, service.airline()) == {}


@pytest.mark.parametrize(
    ("contract", "run"),
    [
        ("user_known", [user("Hi"), *asked(), CANCEL]),
        ("may_cancel", desk(CANCEL)),
        ("not_flown", desk(CANCEL, trip=FLOWN)),
        ("basic_economy_stays", desk(update(flights=MOVED), trip=TRIP | {"cabin": "basic_economy"})),
        ("flights_seen", desk(update(flights=MOVED))),
        ("same_ends", desk(update(), trip=TRIP | {"flight_type": "round_trip"})),
        ("no_certificate", desk(update(payment_id="certificate_1"))),
        ("bags_stay", desk(bags(1, 0))),
        ("bags_free", desk(bags(3, 0))),
        ("same_number", desk(call("update_reservation_passengers", {"reservation_id": "ABC123", "passengers": [{}, {}]}))),
        ("booking", desk(call("book_reservation", {"passengers": [{}] * 6, "user_id": "al_bo_1234"}))),
        ("booking", desk(call("book_reservation", {"payment_methods": CERTIFICATES}))),
        ("certificate", desk(call("send_certificate", {"user_id": "al_bo_1234", "amount": 100}))),
        ("certificate", desk(call("send_certificate", {"user_id": "al_bo_1234", "amount": 70}), person=GOLD)),
    ],
)  # fmt: skip
def test_each_breach_of_the_airline_policy_is_caught(contract, run):
    assert f"policy.{contract}" in violated(run, service.airline())


# -- teams ------------------------------------------------------------------------------------------------------------


def chat(text, agent="Expert"):
    return record("message", "group_chat", {"text": text, "sender": agent}, agent=agent)


def ran(value="42", error=""):
    return record("tool_call", "execute_code", {}, value=None if error else value, error=error, agent="Computer_terminal")


def surfed(text):
    return record("message", "Orchestrator", {"text": text, "sender": "WebSurfer"}, agent="WebSurfer")


def ordered(text):
    return record("delegation", "WebSurfer", {"task": text}, agent="Orchestrator")


def thought(text="Updated Ledger", **flags):
    return record("model_call", "model", value=text, agent="Orchestrator", state=flags)


def page(text, title="Towers", url="https://towers.example/list", place="top"):
    """What the surfer says of a page: how much of it the viewport shows."""
    shown = f"Here is a screenshot of [{title}]({url}). The viewport shows {text} of the webpage"
    return surfed(f"{shown}, and is positioned at the {place} of the page.")


ANSWERED = record("final_response", "answer", {"answer": "42 metres"}, agent="Orchestrator")

TASK = chat("The task: assume nothing, and find the height of the tower.")


@pytest.mark.parametrize(
    "kept",
    [
        [TASK, chat("```python\nfind()\n```"), ran(), chat("I found that it is 42.")],
        [TASK, chat("```python\nfind()\n```"), ran("[]"), chat("No results; let us try another source.")][:2],
        [ordered("Open the page"), page("40%"), thought(), ordered("Scroll down"), ANSWERED],
        [ordered("Open the page"), page("40%"), ordered("Click the second link there"), ANSWERED],
        [ordered("Open the page"), page("100%"), ordered("Now search"), ANSWERED],
        [
            ordered("Search"),
            page("20%", "towers - Search", "https://www.bing.com/search?q=towers"),
            ordered("Ask Ann"),
            ANSWERED,
        ],
        [ordered("Open"), page("40%"), ordered("Now search"), page("40%", place="bottom"), ordered("Ask Ann"), ANSWERED],
        [ordered("Open the page"), surfed("Access denied"), ordered("Use a different page instead")],
    ],
)
def test_careful_teams_break_nothing(kept):
    assert violated(kept, teams.contracts()) == {}


@pytest.mark.parametrize(
    ("contract", "steps", "run"),
    [
        ("no_made_up_data", [1], [TASK, chat("Let's assume the height is 300 m.")]),
        ("code_runs", [1], [TASK, chat("```python\nfind()\n```"), ran(error="rejected")]),
        ("code_finds", [1], [TASK, chat("```python\nfind()\n```"), ran("[]\n")]),
        ("looked_before_told", [1], [TASK, chat("Upon reviewing the site, it is 300 m.")]),
        ("failure_noticed", [3], [TASK, chat("```python\nfind()\n```"), ran(error="rejected"), chat("It is 300 m.")]),
        (
            "whole_page_read",
            [2],
            [ordered("Open it"), page("40%"), thought(), ordered("Search for another"), ANSWERED],
        ),
        ("no_repeated_instruction", [2], [ordered("Open the page."), surfed("Done"), ordered("open the page")]),
        ("ledger_moves", [1], [ordered("Open it"), surfed("Done"), thought(is_in_loop=True), thought(is_in_loop=True)]),
    ],
)
def test_each_breach_of_a_team_blames_its_own_step(contract, steps, run):
    assert violated(run, teams.contracts())[f"team.{contract}"] == steps
