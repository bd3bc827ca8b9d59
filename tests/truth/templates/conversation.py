"""Conversations with models, claims, attempts and waits."""

from __future__ import annotations

from tests.truth.templates.notation import (
    Corpus,
    InvalidError,
    NotFoundError,
    R,
    RateLimitError,
    ServerError,
    T,
    W,
    agent,
    check,
    claim,
    find,
    finish,
    model,
    put,
    tell,
    together,
    user,
    wait,
)

from mat_contracts import (
    backoff_respected,
    claims_supported,
    messages_well_formed,
    no_retry_storm,
    one_entry_per_attempt,
    retries_bounded,
    tool_calls_well_formed,
    truncation_noticed,
    turns_bounded,
)

CORPUS = Corpus()

USER = {"role": "user", "content": "Where is order A17?"}
SYSTEM = {"role": "system", "content": "You are a help desk."}


def asks(*ids, name="get_order"):
    calls = [{"id": one, "type": "function", "function": {"name": name, "arguments": "{}"}} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call, text="shipped"):
    return {"role": "tool", "tool_call_id": call, "content": text}


def uses(*ids):
    blocks = [{"type": "tool_use", "id": one, "name": "get_order", "input": {}} for one in ids]
    return {"role": "assistant", "content": [{"type": "text", "text": "Let me look."}, *blocks]}


def used(*ids):
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": one, "content": "shipped"} for one in ids]}


def sent(*messages, **more):
    return model({"content": "It was shipped."}, messages=list(messages), **more)


# --- messages_well_formed --------------------------------------------------------------------------------------------

formed = CORPUS.template("conversation.messages_well_formed", messages_well_formed())
formed.broken("a result without a call", sent(USER, result("c1")))
formed.broken("a call without a result", sent(USER, asks("c1"), {"role": "user", "content": "Hello?"}))
formed.broken("one of two results is missing", sent(USER, asks("c1", "c2"), result("c1"), {"role": "user", "content": "And?"}))
formed.broken("the result is answered twice", sent(USER, asks("c1"), result("c1"), result("c1")))
formed.broken("another id", sent(USER, asks("call_1"), result("call_2")))
formed.broken("the context was cut in the middle", sent(SYSTEM, result("c1"), asks("c2"), result("c2")))
formed.broken("the id of an earlier call", sent(USER, asks("c1"), result("c1"), asks("c1"), result("c1")))
formed.broken("Anthropic: a block without an answer", sent(USER, uses("t1", "t2"), used("t1")))
formed.broken("Anthropic: an answer without a block", sent(USER, used("t1")))
formed.broken("the user speaks before the result", sent(USER, asks("c1"), {"role": "user", "content": "Hurry"}, result("c1")))
formed.broken("the second request is broken", sent(USER, asks("c1"), result("c1")), sent(USER, asks("c1")))
formed.broken(
    "Responses: an output without a call",
    model({"output": []}, input=[USER, {"type": "function_call_output", "call_id": "f1", "output": "x"}]),
)
formed.kept("no tools", sent(SYSTEM, USER))
formed.kept("call and result", sent(SYSTEM, USER, asks("c1"), result("c1")))
formed.kept("two calls at once, answered in another order", sent(USER, asks("c1", "c2"), result("c2"), result("c1")))
formed.kept("Anthropic: both answered in one message", sent(USER, uses("t1", "t2"), used("t1", "t2")))
formed.kept(
    "several rounds", sent(USER, asks("c1"), result("c1"), asks("c2"), result("c2"), {"role": "user", "content": "Thanks"})
)
formed.kept(
    "the same conversation, longer",
    sent(USER, asks("c1"), result("c1")),
    sent(USER, asks("c1"), result("c1"), asks("c2"), result("c2")),
)
formed.kept("an error as result", sent(USER, asks("c1"), result("c1", "Error: not found")))
formed.kept("a plain prompt", model({"text": "hi"}, prompt="Say hi"))
formed.kept("an empty list of calls", sent(USER, {"role": "assistant", "content": "Hm", "tool_calls": []}, USER))
formed.kept(
    "Responses: call and output",
    model(
        {"output": []},
        input=[
            USER,
            {"type": "function_call", "call_id": "f1", "name": "x", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "f1", "output": "x"},
        ],
    ),
)
formed.kept(
    "Responses: the call is stored by the provider",
    model({"output": []}, previous_response_id="r1", input=[{"type": "function_call_output", "call_id": "f1", "output": "x"}]),
)
formed.kept("content in parts", sent({"role": "user", "content": [{"type": "text", "text": "hi"}]}, asks("c1"), result("c1")))

# --- tool_calls_well_formed ------------------------------------------------------------------------------------------


def reply(*calls):
    return model({"role": "assistant", "content": None, "tool_calls": list(calls)})


def function(name, arguments, id="c1"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


calls = CORPUS.template("conversation.tool_calls_well_formed", tool_calls_well_formed())
known = calls.given(tool_calls_well_formed(tools=["get_order", "refund"]))
calls.broken("arguments are no JSON", reply(function("get_order", "{order: A17")))
calls.broken("arguments are a list", reply(function("get_order", '["A17"]')))
calls.broken("arguments are a text", reply(function("get_order", '"A17"')))
calls.broken("no name", reply(function("", "{}")))
calls.broken("the same id twice in a reply", reply(function("get_order", "{}"), function("refund", "{}")))
calls.broken("the id of an earlier reply", reply(function("get_order", "{}")), reply(function("refund", "{}")))
known.broken("a tool that does not exist", reply(function("get_orders", '{"order": "A17"}')))
known.broken("a prefix that frameworks add", reply(function("functions.refund", "{}")))
calls.broken("the JSON is cut", reply(function("refund", '{"order": "A17", "amo')))
calls.broken(
    "one of two has no id",
    reply(function("get_order", "{}", "c1"), {"type": "function", "function": {"name": "refund", "arguments": "{}"}}),
)
calls.broken(
    "Anthropic: the input is a text",
    model({"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "refund", "input": "A17"}]}),
)
calls.broken("arguments are null", reply(function("refund", "null")))
calls.kept("one call", reply(function("get_order", '{"order": "A17"}')))
calls.kept("no argument", reply(function("list_orders", "{}")))
calls.kept("two calls", reply(function("get_order", "{}", "c1"), function("refund", "{}", "c2")))
calls.kept("arguments that are an object already", reply(function("get_order", {"order": "A17"})))
calls.kept("no call at all", model({"role": "assistant", "content": "Hello"}))
calls.kept(
    "Anthropic",
    model(
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "ok"},
                {"type": "tool_use", "id": "t1", "name": "refund", "input": {"order": "A17"}},
            ],
        }
    ),
)
known.kept("tools that exist", reply(function("refund", '{"order": "A17", "amount": 30}')))
calls.kept(
    "no ids in the whole reply",
    model({"tool_calls": [{"name": "get_order", "arguments": {}}, {"name": "refund", "arguments": {}}]}),
)
calls.kept("nested JSON with white space", reply(function("refund", ' {"order": {"id": "A17"},\n "lines": [1, 2]} ')))
calls.kept("ids differ from reply to reply", reply(function("get_order", "{}", "c1")), reply(function("get_order", "{}", "c2")))
calls.kept("a text that shows JSON", model({"role": "assistant", "content": 'Use {"tool": }'}))

# --- truncation_noticed ----------------------------------------------------------------------------------------------

LONG = "line of a log, number one. " * 40  # 1,080 characters
cut = CORPUS.template("conversation.truncation_noticed", truncation_noticed(limit=500))
only = cut.given(truncation_noticed("read_file", limit=500))


def gets(text):
    return sent(USER, asks("c1"), result("c1", text))


cut.broken("given in full", R.read_log() >> LONG, gets(LONG))
cut.broken("cut without a notice", R.read_log() >> LONG, gets(LONG[:500]))
cut.broken("a notice, but far too long", R.read_log() >> LONG, gets(LONG[:900] + " [truncated]"))
cut.broken("an ellipsis is no notice", R.read_log() >> LONG, gets(LONG[:500] + "..."))
cut.broken(
    "the second of two", R.read_log() >> LONG, R.read_mail() >> "M" + LONG, gets(LONG[:450] + " [truncated]"), gets("M" + LONG)
)
cut.broken(
    "Anthropic",
    R.read_log() >> LONG,
    sent(USER, uses("t1"), {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": LONG}]}),
)
only.broken("the tool that is judged", R.read_file(path="a") >> LONG, gets(LONG))
cut.broken("one character above the limit", R.read_log() >> LONG[:501], gets(LONG[:501]))
cut.broken("in a prompt", R.read_log() >> LONG, model(prompt=f"Summarize this: {LONG}"))
cut.broken(
    "noticed elsewhere, in the system message",
    R.read_log() >> LONG,
    sent({"role": "system", "content": "Results may be truncated."}, asks("c1"), result("c1", LONG)),
)
cut.kept("short", R.read_log() >> LONG[:400], gets(LONG[:400]))
cut.kept("cut with a notice", R.read_log() >> LONG, gets(LONG[:500] + " [truncated]"))
cut.kept("in upper case", R.read_log() >> LONG, gets(LONG[:480] + "\n*** OUTPUT TRUNCATED, 600 characters left out ***"))
cut.kept("exactly the limit", R.read_log() >> LONG[:500], gets(LONG[:500]))
cut.kept("no model gets it", R.read_log() >> LONG, tell("The log is long."))
cut.kept("summarized", R.read_log() >> LONG, gets("The log has 40 equal lines."))
only.kept("another tool", R.read_log() >> LONG, gets(LONG))
cut.kept("the notice in front of the rest", R.read_log() >> LONG, gets(LONG[:300] + "... (truncated)"))
cut.kept("a long prompt of the user", user(LONG), sent({"role": "user", "content": LONG}))
cut.kept("an error instead of the text", R.read_log() >> ServerError("500"), gets("Error: 500"))

# --- turns_bounded ---------------------------------------------------------------------------------------------------

turns = CORPUS.template("conversation.turns_bounded", turns_bounded(3))
planner = turns.given(turns_bounded(2, model="planner"))
ok = model({"content": "go on"})
failed = model(RateLimitError("429"))
turns.broken("four turns", ok, ok, ok, ok)
turns.broken("with tools in between", ok, R.get_order(), ok, R.get_order(), ok, R.get_order(), ok)
turns.broken("a failed call after the third", ok, ok, ok, failed)
turns.broken("a failure in between does not help", ok, failed, ok, ok, ok)
planner.broken("the planner's third", *[model({"content": "plan"}, "planner") for _ in range(3)])
turns.broken("even after an answer to the user", ok, ok, ok, tell("Done"), ok)
turns.broken("one agent four, another one", *[agent("a", ok) for _ in range(4)], agent("b", ok))
turns.broken("an empty answer is an answer", ok, model({"content": ""}), ok, ok)
turns.broken("five", *[ok] * 5)
turns.broken("the model refuses in words", model("I can't"), ok, model("I can't"), ok)
turns.kept("three turns", ok, ok, ok)
turns.kept("two failures do not count", failed, ok, failed, ok, ok)
turns.kept("an error in the reply does not count", model({"error": {"message": "overloaded"}}), ok, ok, ok)
turns.kept("none", R.get_order(), finish("hi"))
planner.kept("another model", *[model({"content": "x"}, "writer") for _ in range(5)], model({"content": "plan"}, "planner"))
turns.kept("two agents with three turns each", *[agent("a", ok) for _ in range(3)], *[agent("b", ok) for _ in range(3)])
turns.kept("a time-out is tried again", ok, model(TimeoutError()), ok, model(TimeoutError()), ok)
turns.kept("many tools in a turn", ok, *[R.get_order(order=n) for n in range(9)], ok)
planner.kept("two", model({"content": "x"}, "planner"), model({"content": "y"}, "planner"))
turns.kept("three, then the answer", ok, ok, ok, finish("done"))

# --- one_entry_per_attempt -------------------------------------------------------------------------------------------

entries = CORPUS.template("conversation.one_entry_per_attempt", one_entry_per_attempt("pay", entry="ledger"))
fields = entries.given(one_entry_per_attempt("pay", entry="log", fields={"event": "payment"}))
tooled = entries.given(one_entry_per_attempt("pay", entry="write_audit"))
pay, entry = W.pay(amount=5), put("ledger", "e", {"amount": 5})
entries.broken("not entered", pay)
entries.broken("entered twice", pay, entry, entry)
entries.broken("entered without a payment", entry)
entries.broken("a failed attempt is not entered", pay >> TimeoutError(), pay, entry)
entries.broken("entered before it is made", entry, pay)
entries.broken("two payments, one entry", pay, pay, entry)
fields.broken("another event is no entry", pay, put("log", "e", {"event": "refund"}))
tooled.broken("no audit", pay, R.get_order())
tooled.broken("two audits", pay, W.write_audit(text="paid"), W.write_audit(text="paid"))
entries.broken("in another memory", pay, put("notes", "e", {"amount": 5}))
entries.kept("paid and entered", pay, entry)
entries.kept(
    "a failed attempt, entered too", pay >> TimeoutError(), put("ledger", "e1", "failed"), pay, put("ledger", "e2", "ok")
)
entries.kept("overlapping payments", together(pay.ms(20), pay.ms(30)), entry, entry)
entries.kept("blocked: no attempt", pay.blocked(), tell("not allowed"))
fields.kept("other events between", put("log", "a", {"event": "start"}), pay, put("log", "b", {"event": "payment", "ok": True}))
tooled.kept("audited", pay, W.write_audit(text="paid"), pay, W.write_audit(text="paid again"))
entries.kept("two agents", agent("a", pay, entry), agent("b", pay, put("ledger", "f", 5)))
entries.kept("nothing happens", R.get_order())
entries.kept("entered later", pay, R.get_order(), tell("paid"), entry)
tooled.kept("an error in the reply, audited", pay >> {"error": "no funds"}, W.write_audit(text="failed"))

# --- claims_supported ------------------------------------------------------------------------------------------------

supported = CORPUS.template("claims.claims_supported", claims_supported())
answers = supported.given(claims_supported(on="final_response"))
fresh = supported.given(claims_supported(max_age_ms=60_000))
order = R.get_order(order="A17") >> {"order": "A17", "total": 30, "status": "shipped", "date": "2024-05-15"}
supported.broken("no evidence", claim("Order A17 was shipped"))
supported.broken("another number", order, claim("Order A17 costs 35 EUR", "step#0"))
supported.broken("another date", order, claim("A17 was shipped on May 16, 2024", "step#0"))
supported.broken("another status", order, claim("Order A17 was cancelled", "step#0"))
supported.broken("rests on a failed call", R.get_order(order="A17") >> TimeoutError(), claim("Order A17 was shipped", "step#0"))
supported.broken(
    "rests on an error reply", R.get_order(order="A17") >> {"error": "not found"}, claim("Order A17 was shipped", "step#0")
)
supported.broken(
    "the wrong passage",
    find("kb", "returns", "Shoes can be returned within 30 days."),
    claim("Shoes can be returned within 90 days", "step#0"),
)
answers.broken("a number from nowhere", order, finish("Order A17 costs 42 EUR."))
answers.broken("the second sentence", order, finish("Order A17 was shipped. It arrives on 2024-05-19."))
fresh.broken("evidence of an hour ago", order, wait(3_600_000), claim("Order A17 was shipped", "step#0"))
supported.broken("evidence that comes later", claim("Order A17 was shipped", "step#1"), order)
supported.kept("as the reply says", order, claim("Order A17 was shipped", "step#0"))
supported.kept("the number as text, with a currency", order, claim("Order A17 costs 30.00 EUR", "step#0"))
supported.kept("the date in words", order, claim("A17 was shipped on 15 May 2024", "step#0"))
supported.kept(
    "from a passage",
    find("kb", "returns", "Shoes can be returned within 30 days."),
    claim("You can return shoes within 30 days", "step#0"),
)
supported.kept("a check", check("A17 is paid"), claim("A17 is paid", "step#0"))
supported.kept(
    "two steps together",
    order,
    R.get_customer(id=7) >> {"name": "Ann"},
    claim("Ann's order A17 was shipped", "step#0", "step#1"),
)
answers.kept("the answer repeats the reply", order, finish("Order A17 was shipped on 2024-05-15."))
answers.kept("greetings need no evidence", order, finish("Hello! Order A17 was shipped. Have a nice day!"))
answers.kept(
    "the user's own number",
    user("Where is order 4711?"),
    R.get_order(order="4711") >> {"status": "shipped"},
    finish("Order 4711 was shipped."),
)
fresh.kept("evidence of now", order, wait(1000), claim("Order A17 was shipped", "step#0"))
supported.kept("no claims", order, tell("One moment please"))

# --- retries_bounded -------------------------------------------------------------------------------------------------

bounded = CORPUS.template("retry.retries_bounded", retries_bounded())
on_search = bounded.given(retries_bounded("search", attempts=2))
by_id = bounded.given(retries_bounded("pay", key="invoice", attempts=2))
late = R.search(q="shoes") >> TimeoutError()
bounded.broken("four attempts", late, late, late, late)
bounded.broken("with waits", late, wait(1000), late, wait(2000), late, wait(4000), late)
on_search.broken("three where two are allowed", late, late, late)
bounded.broken("a payment that timed out is simply repeated", W.pay(amount=5) >> TimeoutError(), W.pay(amount=5))
bounded.broken("checked only after the repetition", W.pay(amount=5) >> TimeoutError(), W.pay(amount=5), R.get_payments())
bounded.broken("the check failed", W.pay(amount=5) >> TimeoutError(), R.get_payments() >> TimeoutError(), W.pay(amount=5))
bounded.broken("an undeclared write", T.create_ticket(title="x") >> ConnectionError(), T.create_ticket(title="x"))
bounded.broken("error replies, again and again", *[R.search(q="shoes") >> {"error": "timeout"} for _ in range(5)])
by_id.broken("the same invoice, other wording", *[W.pay(invoice=7, text=f"try {n}") >> {"status": 503} for n in range(3)])
by_id.broken(
    "the id as text",
    W.pay(invoice=7) >> RateLimitError("429"),
    R.get_payments(),
    W.pay(invoice="7") >> RateLimitError("429"),
    R.get_payments(),
    W.pay(invoice="7"),
)
bounded.broken("four attempts, the last succeeds", late, late, late, R.search(q="shoes"))
bounded.kept("three attempts", late, late, R.search(q="shoes"))
bounded.kept("different questions", *[R.search(q=f"shoes {n}") >> TimeoutError() for n in range(5)])
bounded.kept("polling", *[R.get_status(job=1) >> {"status": "running"} for _ in range(8)])
bounded.kept("checked, then repeated", W.pay(amount=5) >> TimeoutError(), R.get_payments(), W.pay(amount=5))
bounded.kept(
    "with an idempotency key", W.pay(amount=5, idempotency_key="k") >> TimeoutError(), W.pay(amount=5, idempotency_key="k")
)
bounded.kept("given up after two", late, late, tell("The search does not answer."))
on_search.kept("another tool", *[R.get_weather(city="Rome") >> TimeoutError() for _ in range(3)])
bounded.kept("blocked, so nothing is unknown", W.pay(amount=5).blocked(), W.pay(amount=5))
by_id.kept("two invoices", W.pay(invoice=7), W.pay(invoice=8), W.pay(invoice=9))
bounded.kept("a success starts anew", late, late, R.search(q="shoes"), late, late, R.search(q="shoes"))
bounded.kept("a verification as check", W.pay(amount=5) >> TimeoutError(), check("payment is not booked"), W.pay(amount=5))

# --- no_retry_storm --------------------------------------------------------------------------------------------------

storm = CORPUS.template("retry.no_retry_storm", no_retry_storm())
minute = storm.given(no_retry_storm("search", times=2, within_ms=60_000))
storm.broken("five failures in a row", *[late] * 5)
storm.broken("other calls in between", late, R.a(), late, R.b(), late, R.c(), late)
storm.broken("two agents hammer on one service", *[agent("a", late), agent("b", late)] * 2)
storm.broken("error replies", *[R.search(q="x") >> {"error": "overloaded"} for _ in range(5)])
storm.broken("HTTP 503", *[R.search(q="x") >> {"status": 503} for _ in range(5)])
storm.broken("a blocked call, again and again", *[W.pay(amount=5).blocked() for _ in range(4)])
minute.broken("three within a minute", late, wait(10_000), late, wait(10_000), late)
storm.broken("isError", *[R.search(q="x") >> {"isError": True, "content": []} for _ in range(4)])
storm.broken("not found, asked four times", *[R.get_order(order="A17") >> NotFoundError("404") for _ in range(4)])
storm.broken("text replies that report errors", *[R.search(q="x") >> "Error: connection reset by peer" for _ in range(4)])
storm.kept("three", late, late, late)
storm.kept("polling", *[R.get_status(job=1) >> {"status": "pending"} for _ in range(9)])
storm.kept("different arguments", *[R.search(q=f"x{n}") >> TimeoutError() for n in range(6)])
minute.kept("one in each minute", late, wait(61_000), late, wait(61_000), late)
storm.kept("a success in between", late, late, R.search(q="shoes"), late, late)
storm.kept("two services", late, late, R.search2(q="shoes") >> TimeoutError(), R.search2(q="shoes") >> TimeoutError())
minute.kept("another port", *[R.find(q="x") >> TimeoutError() for _ in range(4)])
storm.kept(
    "spread over many steps",
    late,
    *[R.a(n=n) for n in range(12)],
    late,
    *[R.a(n=n) for n in range(12)],
    late,
    *[R.a(n=n) for n in range(12)],
    late,
)
storm.kept("asked at the same time", together(*[(R.search(q="shoes") >> TimeoutError()).ms(10) for _ in range(4)]))
storm.kept("no failures", *[R.search(q="shoes") >> [] for _ in range(5)])

# --- backoff_respected (retry) ---------------------------------------------------------------------------------------

backoff = CORPUS.template("retry.backoff_respected", backoff_respected())
slow = backoff.given(backoff_respected("search", base_ms=5000, factor=3))
limit = R.search(q="shoes") >> RateLimitError("429 Too Many Requests")
backoff.broken("at once", late, late)
backoff.broken("half a second", limit, wait(500), limit)
backoff.broken("the second wait does not grow", late, wait(1000), late, wait(1000), late)
backoff.broken("sooner than the error says", R.search(q="x") >> RateLimitError("retry after 5 s"), wait(2000), R.search(q="x"))
backoff.broken(
    "sooner than the header says",
    R.search(q="x") >> {"status": 429, "headers": {"Retry-After": "30"}},
    wait(10_000),
    R.search(q="x"),
)
backoff.broken(
    "retry_after in the reply", R.search(q="x") >> {"status_code": 503, "retry_after": 10}, wait(2000), R.search(q="x")
)
slow.broken("one second where five are asked for", late, wait(1000), late)
backoff.broken("another question to the same service", late, wait(10), R.search(q="boots"))
backoff.broken("a model", model(RateLimitError("429")), model("ok"))
backoff.broken("HTTP 429 as text", R.search(q="x") >> {"status": "429"}, wait(100), R.search(q="x"))
backoff.kept("a second", late, wait(1000), late)
backoff.kept("one, two, four", late, wait(1000), late, wait(2000), late, wait(4000), R.search(q="shoes"))
backoff.kept("another service", late, R.search_backup(q="shoes"))
backoff.kept("as the error says", R.search(q="x") >> RateLimitError("retry after 5 s"), wait(5000), R.search(q="x"))
backoff.kept(
    "as the header says", R.search(q="x") >> {"status": 429, "headers": {"retry-after": "30"}}, wait(30_000), R.search(q="x")
)
backoff.kept("a bad request is no overload", R.search(q="") >> InvalidError("400"), R.search(q="shoes"))
backoff.kept("another agent", agent("a", late), agent("b", R.search(q="boots")))
backoff.kept("a success resets", late, wait(1000), R.search(q="a"), R.search(q="b"), late, wait(1000), late)
slow.kept("five, then fifteen seconds", late, wait(5000), late, wait(15_000), late)
backoff.kept("asked at the same time", together(late.ms(100), (R.search(q="boots") >> TimeoutError()).ms(90)))
backoff.kept("no failure", R.search(q="a"), R.search(q="b"))

# --- more ------------------------------------------------------------------------------------------------------------

supported.broken("a weekday", R.get_eta(order="A17") >> {"eta": "Friday"}, claim("It arrives on Monday", "step#0"))
supported.broken("negated", R.get_order(order="A17") >> {"status": "not shipped"}, claim("Order A17 was shipped", "step#0"))
supported.broken(
    "another customer", R.get_customer(id=7) >> {"name": "Ann", "tier": "gold"}, claim("Bob is a gold customer", "step#0")
)
answers.broken(
    "an invented policy",
    find("kb", "returns", "Shoes can be returned within 30 days."),
    finish("You can return shoes within 60 days, and we pay for the parcel."),
)
answers.kept("thousands", R.get_price(id=1) >> {"price": 1250}, finish("It costs 1,250.00 EUR."))
answers.kept(
    "an ISO date in American words", R.get_eta(order=1) >> {"eta": "2024-05-15"}, finish("It arrives on May 15, 2024.")
)
answers.kept("a question back", order, finish("Order A17 was shipped. Is there anything else?"))
storm.broken("in a loop with waits", *[step for _ in range(5) for step in (late, wait(200))])
bounded.broken("success: false", *[R.search(q="shoes") >> {"success": False} for _ in range(4)])
bounded.kept("an empty result is no failure", *[R.search(q="shoes") >> [] for _ in range(6)])
storm.kept(
    "replies that only mention errors", *[R.get_log(n=1) >> {"lines": ["error: disk full"], "error": None} for _ in range(6)]
)
backoff.kept("an empty error field", R.search(q="a") >> {"status": 200, "error": None}, R.search(q="b"))
turns.kept("a reply with an empty error", *[model({"content": "x", "error": None})] * 3)
turns.broken("a reply with an empty error is a turn", *[model({"content": "x", "error": None})] * 4)

answers.kept("a time", R.get_flight(n=1) >> {"departs": "09:00"}, finish("Your flight leaves at 9 am."))
answers.kept("a number word", R.list_orders(user=7) >> {"count": 3}, finish("You have three orders."))
answers.kept("a percentage", R.get_rate(x=1) >> {"vat": "19 %"}, finish("The VAT is 19%."))
answers.kept("a currency sign", R.get_price(x=1) >> {"price": "19.99", "currency": "USD"}, finish("It costs $19.99."))
answers.broken("the wrong time", R.get_flight(n=1) >> {"departs": "09:00"}, finish("Your flight leaves at 9 pm."))
answers.broken("two values are swapped", R.get_prices(x=1) >> {"A1": 10, "B2": 20}, finish("A1 costs 20 and B2 costs 10."))
answers.broken("from a failed call", R.get_price(x=1) >> {"error": "price 19.99 is out of date"}, finish("It costs 19.99."))
entries.broken("overlapping payments, one entry", together(pay.ms(20), pay.ms(30)), entry)
entries.kept(
    "two agents at once, each its entry",
    together(agent("a", pay.ms(5), put("ledger", "a", 1)), agent("b", pay.ms(9), put("ledger", "b", 1))),
)
formed.broken(
    "two agents, one conversation is broken",
    agent("a", sent(USER, asks("c1"), result("c1"))),
    agent("b", sent(USER, asks("c1"), result("c2"))),
)
formed.kept(
    "two agents use the same ids",
    agent("a", sent(USER, asks("c1"), result("c1"))),
    agent("b", sent(USER, asks("c1"), result("c1"))),
)
calls.kept(
    "two agents get the same ids",
    agent("a", reply(function("get_order", "{}"))),
    agent("b", reply(function("get_order", "{}"))),
)
storm.kept(
    "three agents, three calls each of their own",
    together(*[agent(w, (R.search(q=w) >> TimeoutError()).ms(5)) for w in "abc"]),
    *[agent(w, R.search(q=w) >> TimeoutError()) for w in "abc"],
)
own_checks = bounded.given(retries_bounded(checks="get_payments", idempotent="set_price"))
own_checks.broken("another read is no check", W.pay(amount=5) >> TimeoutError(), R.get_weather(city="Rome"), W.pay(amount=5))
own_checks.kept("the named check", W.pay(amount=5) >> TimeoutError(), R.get_payments(), W.pay(amount=5))
own_checks.kept("an idempotent port", W.set_price(value=5) >> TimeoutError(), W.set_price(value=5))
shared_wait = backoff.given(backoff_respected(shared=["search"]))
shared_wait.broken("another agent does not wait", agent("a", late), agent("b", R.search(q="boots")))
shared_wait.kept("another agent waits", agent("a", late), wait(1000), agent("b", R.search(q="boots")))
jitter = backoff.given(backoff_respected(jitter=0.5))
jitter.broken("earlier than the jitter allows", late, wait(400), late)
jitter.kept("half a second, with jitter", late, wait(500), late)
