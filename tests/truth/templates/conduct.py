"""How services are called: waits, rates, downtimes, sagas, keys, fields, digests and signatures."""

from __future__ import annotations

import base64
import hashlib
import json

from tests.truth.templates.notation import Corpus, R, RateLimitError, ServerError, W, agent, finish, tell, together, wait

from mat_contracts.observation import (
    backoff_respected,
    compensated,
    digest_correct,
    expected,
    idempotency_key_kept,
    no_shortcut,
    not_during_maintenance,
    not_rate_limited,
    required,
    signature_verifies,
    within_rate,
)

CORPUS = Corpus()


def http(method, url, body=None, headers=None, status=200, said=None, reply_headers=None):
    call = W.http(method=method, url="https://api.example" + url, headers=headers or {}, body=body)
    return call >> {"status": status, "headers": reply_headers or {}, "body": said if said is not None else {}}


def refused(url="/orders", seconds="10", status=429, **more):
    return http("GET", url, status=status, reply_headers={"Retry-After": seconds} if seconds else {}, **more)


get = http("GET", "/orders")

# --- backoff_respected -----------------------------------------------------------------------------------------------

backoff = CORPUS.template("observation.backoff_respected", backoff_respected())
whole = backoff.given(backoff_respected("http", scope="selection"))
backoff.broken("at once", refused(), get)
backoff.broken("a second too early", refused(), wait(9000), get)
backoff.broken("503", refused(status=503), wait(1000), get)
backoff.broken("another query, the same path", refused(), wait(1000), http("GET", "/orders?page=2"))
backoff.broken("the second refusal is longer", refused(), wait(10_000), refused(seconds="60"), wait(10_000), get)
backoff.broken(
    "an error that states its wait", R.search(q="x") >> RateLimitError("retry after 5 s"), wait(1000), R.search(q="x")
)
whole.broken("another path of the service", refused(), wait(1000), http("GET", "/customers"))
backoff.broken(
    "the header in lower case", http("GET", "/orders", status=429, reply_headers={"retry-after": "10"}), wait(1000), get
)
backoff.broken("by another agent", agent("a", refused()), wait(100), agent("b", get))
backoff.broken("a number, not a text", http("GET", "/orders", status=429, reply_headers={"Retry-After": 10}), wait(500), get)
backoff.kept("after the wait", refused(), wait(10_000), get)
backoff.kept("another path", refused(), http("GET", "/customers"))
backoff.kept("no wait is stated", refused(seconds=""), get)
backoff.kept("not a refusal", http("GET", "/orders", reply_headers={"Retry-After": "10"}), get)
backoff.kept("twice refused, twice waited", refused(), wait(11_000), refused(seconds="20"), wait(20_000), get)
backoff.kept("never again", refused(), tell("later"))
whole.kept("another tool", refused(), R.search(q="x"))
backoff.kept(
    "sent before the refusal was known",
    together(
        W.http(method="GET", url="https://api.example/orders", headers={}, body=None).ms(50)
        >> {"status": 429, "headers": {"Retry-After": "10"}, "body": ""},
        W.http(method="GET", url="https://api.example/orders", headers={}, body=None).ms(60)
        >> {"status": 200, "headers": {}, "body": ""},
    ),
)
backoff.kept("a wait of no time", refused(seconds="0"), get)
backoff.kept("not found", http("GET", "/orders", status=404), get)

# --- within_rate, not_rate_limited -----------------------------------------------------------------------------------

paced = CORPUS.template("observation.within_rate", within_rate(calls=3, per_ms=1000))
searches = paced.given(within_rate("search", calls=2, per_ms=60_000))
posts = paced.given(within_rate("POST /orders", calls=1, per_ms=1000))
paced.broken("four at once", *[R.x(n=n) for n in range(4)])
paced.broken("four within a second", *[s for n in range(4) for s in (R.x(n=n), wait(300))])
searches.broken("three searches in a minute", *[s for n in range(3) for s in (R.search(q=n), wait(10_000))])
posts.broken("two orders in a second", http("POST", "/orders"), wait(500), http("POST", "/orders"))
paced.broken("at the edge of two seconds", R.x(), wait(900), R.x(), R.x(), wait(99), R.x())
paced.broken("several agents", *[agent(f"a{n}", R.x()) for n in range(4)])
searches.broken("failures count", *[R.search(q=n) >> TimeoutError() for n in range(3)])
paced.broken("in parallel", together(*[R.x(n=n).ms(5) for n in range(4)]))
paced.kept("three", *[R.x(n=n) for n in range(3)])
paced.kept("three a second", *[s for n in range(9) for s in (R.x(n=n), wait(334))])
searches.kept("other tools", *[R.find(q=n) for n in range(9)])
posts.kept("reads do not count", http("POST", "/orders"), get, get, get)
posts.kept("another path", http("POST", "/orders"), http("POST", "/customers"))
searches.kept("two, then a minute", R.search(q=1), R.search(q=2), wait(60_000), R.search(q=3), R.search(q=4))
paced.kept("exactly a second later", R.x(), R.x(), R.x(), wait(1000), R.x())
paced.kept("nothing", tell("x"))

limited = CORPUS.template("observation.not_rate_limited", not_rate_limited())
one = limited.given(not_rate_limited(at_most=1))
of_search = limited.given(not_rate_limited("search"))
limited.broken("429", refused())
limited.broken("an error", R.search(q="x") >> RateLimitError("slow down"))
one.broken("twice", refused(), wait(10_000), refused())
of_search.broken("the search", R.search(q="x") >> RateLimitError("slow down"))
limited.broken("without a wait", refused(seconds=""))
limited.broken("status_code", R.search(q="x") >> {"status_code": 429})
limited.broken("after good calls", get, get, refused())
limited.broken("429 as text", R.search(q="x") >> {"status": "429", "body": ""})
limited.kept("fine", get, get)
one.kept("once", get, refused(), wait(10_000), get)
limited.kept("503 is something else", refused(status=503))
of_search.kept("another tool", R.find(q="x") >> RateLimitError("x"))
limited.kept("a body that contains 429", http("GET", "/orders/429", said={"id": 429}))
limited.kept("a server error", R.search(q="x") >> ServerError("500"))
limited.kept("a time-out", R.search(q="x") >> TimeoutError())
limited.kept("nothing", finish("x"))

# --- not_during_maintenance ------------------------------------------------------------------------------------------

down = CORPUS.template("observation.not_during_maintenance", not_during_maintenance(windows=[(10_000, 20_000)]))
told = down.given(not_during_maintenance("http"))
down.broken("in the window", wait(15_000), R.x())
down.broken("at its first millisecond", wait(10_000), R.x())
down.broken("at its last", wait(19_999), R.x())
told.broken("the service announced it", refused(status=503, seconds="60"), wait(30_000), get)
told.broken("another path is down as well", refused(status=503, seconds="60"), wait(1000), http("GET", "/customers"))
down.broken("by one of two agents", agent("a", R.x()), wait(12_000), agent("b", R.x()))
down.broken("twice", wait(11_000), R.x(), R.x())
down.broken("it fails, as it must", wait(11_000), R.x() >> ConnectionError())
down.kept("before", R.x(), wait(9999), R.x())
down.kept("after", wait(20_000), R.x())
told.kept("after the announced time", refused(status=503, seconds="60"), wait(60_000), get)
told.kept("429 announces nothing", refused(status=429, seconds="60"), wait(1000), get)
told.kept("another tool", refused(status=503, seconds="60"), R.search(q="x"))
down.kept("begun before, it lasts into it", wait(9000), R.x().ms(5000))
down.kept("only a message", wait(15_000), tell("We are in maintenance"))
told.kept("503 without a time", refused(status=503, seconds=""), wait(1000), get)

# --- compensated -----------------------------------------------------------------------------------------------------

saga = CORPUS.template("observation.compensated", compensated({"book_flight": "cancel_flight", "book_hotel": "cancel_hotel"}))
until = saga.given(compensated({"book_flight": "cancel_flight"}, completed="confirm_trip"))
routes = saga.given(compensated({"POST /holds": "DELETE /holds/{id}", "POST /payments": "POST /payments/{id}/refund"}))
flight, hotel = W.book_flight(to="LIS") >> {"id": 7}, W.book_hotel(city="Lisbon") >> {"id": 9}
no_hotel = W.book_hotel(city="Lisbon") >> {"error": "no rooms"}
saga.broken("the hotel raises, the flight stays", flight, W.book_hotel(city="Lisbon") >> TimeoutError())
saga.broken("the hotel reports an error, the flight stays", flight, no_hotel)
saga.broken("another flight is cancelled", flight, W.book_hotel(city="x") >> ServerError("500"), W.cancel_flight(id=8))
saga.broken(
    "the cancellation fails", flight, W.book_hotel(city="x") >> ServerError("500"), W.cancel_flight(id=7) >> TimeoutError()
)
saga.broken(
    "the cancellation reports an error",
    flight,
    W.book_hotel(city="x") >> ServerError("500"),
    W.cancel_flight(id=7) >> {"error": "too late"},
)
until.broken("never confirmed", flight, tell("booked"))
until.broken("the confirmation fails", flight, W.confirm_trip(id=1) >> TimeoutError())
routes.broken(
    "payment refused, the hold stays",
    http("POST", "/holds", said={"id": "h1"}, status=201),
    http("POST", "/payments", status=402),
)
saga.broken(
    "two flights, one cancelled",
    flight,
    W.book_flight(to="OPO") >> {"id": 8},
    W.book_hotel(city="x") >> ServerError("500"),
    W.cancel_flight(id=7),
)
saga.broken(
    "the cancellation is blocked", flight, W.book_hotel(city="x") >> ServerError("500"), W.cancel_flight(id=7).blocked()
)
saga.kept("all is well", flight, hotel)
saga.kept("the hotel fails, the flight is cancelled", flight, W.book_hotel(city="x") >> TimeoutError(), W.cancel_flight(id=7))
saga.kept("the id as text", flight, W.book_hotel(city="x") >> TimeoutError(), W.cancel_flight(id="7"))
saga.kept("an error reply, and the flight is cancelled", flight, no_hotel, W.cancel_flight(id=7) >> {"ok": True})
until.kept("confirmed", flight, W.confirm_trip(id=1))
until.kept("cancelled instead", flight, W.cancel_flight(id=7))
routes.kept(
    "payment refused, the hold is released",
    http("POST", "/holds", said={"id": "h1"}, status=201),
    http("POST", "/payments", status=402),
    http("DELETE", "/holds/h1", status=204),
)
saga.kept("the first step fails", W.book_flight(to="LIS") >> TimeoutError(), tell("no flight"))
saga.kept(
    "the second cancellation works",
    flight,
    W.book_hotel(city="x") >> ServerError("500"),
    W.cancel_flight(id=7) >> TimeoutError(),
    W.cancel_flight(id=7),
)
saga.kept(
    "another agent cancels", agent("a", flight, W.book_hotel(city="x") >> ServerError("500")), agent("b", W.cancel_flight(id=7))
)

# --- no_shortcut -----------------------------------------------------------------------------------------------------

canonical = CORPUS.template("observation.no_shortcut", no_shortcut(["POST /admin/force", "override_limit"]))
canonical.broken("a tool", W.override_limit(amount=5))
canonical.broken("a route", http("POST", "/admin/force"))
canonical.broken("with a query", http("POST", "/admin/force?why=fast"))
canonical.broken("refused by the service", http("POST", "/admin/force", status=403))
canonical.broken("after the long way", get, http("POST", "/orders"), W.override_limit(amount=5))
canonical.broken("by a second agent", agent("a", get), agent("b", W.override_limit(amount=5)))
canonical.broken("it raises", W.override_limit(amount=5) >> TimeoutError())
canonical.broken("twice", W.override_limit(amount=5), W.override_limit(amount=5))
canonical.kept("the long way", get, http("POST", "/orders"))
canonical.kept("another method", http("GET", "/admin/force"))
canonical.kept("below it", http("POST", "/admin/force/help"))
canonical.kept("a similar tool", W.override_limits(amount=5))
canonical.kept("only mentioned", tell("I could call override_limit"))
canonical.kept("in a body", http("POST", "/orders", body={"next": "/admin/force"}))
canonical.kept("offered, not taken", http("GET", "/orders", said={"shortcut": "/admin/force"}), http("POST", "/orders"))
canonical.kept("nothing")

# --- idempotency_key_kept --------------------------------------------------------------------------------------------

kept_key = CORPUS.template("observation.idempotency_key_kept", idempotency_key_kept("POST /payments"))
argument = kept_key.given(idempotency_key_kept("pay", key="request_id", ignoring=["attempt"]))


def payment(key="k-1", amount=5, status=201, name="Idempotency-Key"):
    return http("POST", "/payments", body={"amount": amount}, headers={name: key} if key else {}, status=status)


kept_key.broken("no key", payment(key=""))
kept_key.broken("a new key for the retry", payment(status=503), payment("k-2"))
kept_key.broken("one key for two payments", payment(), payment(amount=9))
kept_key.broken("the retry has no key", payment(status=500), payment(key=""))
kept_key.broken("three keys", payment(status=503), payment("k-2", status=503), payment("k-3"))
argument.broken(
    "an argument", W.pay(amount=5, request_id="a", attempt=1) >> TimeoutError(), W.pay(amount=5, request_id="b", attempt=2)
)
argument.broken("an argument is missing", W.pay(amount=5, attempt=1))
argument.broken("one for two", W.pay(amount=5, request_id="a"), W.pay(amount=7, request_id="a"))
kept_key.kept("one key, two attempts", payment(status=503), payment())
kept_key.kept("in lower case", payment(name="idempotency-key"))
kept_key.kept("two payments, two keys", payment(), payment("k-2", amount=9))
kept_key.kept("paid twice on purpose", payment(), payment("k-2"))
kept_key.kept("another route", http("POST", "/orders"), get)
kept_key.kept("refused for good, then corrected", payment(amount=-5, status=422), payment("k-2"))
argument.kept(
    "the attempt is counted elsewhere",
    W.pay(amount=5, request_id="a", attempt=1) >> TimeoutError(),
    W.pay(amount=5, request_id="a", attempt=2),
)
argument.kept("another tool", W.pay_later(amount=5))

# --- required, expected ----------------------------------------------------------------------------------------------

needs = CORPUS.template("observation.required", required("refund", ["order", "reason"]))
routed = needs.given(required("POST /orders", ["headers.x-tenant", "body.items"]))
needs.broken("no reason", W.refund(order="A17"))
needs.broken("null", W.refund(order="A17", reason=None))
needs.broken("empty", W.refund(order="A17", reason=""))
needs.broken("neither", W.refund(amount=5))
routed.broken("no header", http("POST", "/orders", body={"items": [1]}))
routed.broken("no items", http("POST", "/orders", body={"n": 1}, headers={"X-Tenant": "t1"}))
needs.broken("the second call", W.refund(order="A17", reason="late"), W.refund(order="B9"))
routed.broken("no body", http("POST", "/orders", headers={"X-Tenant": "t1"}))
needs.kept("both", W.refund(order="A17", reason="late"))
needs.kept("with more", W.refund(order="A17", reason="late", amount=5))
needs.kept("another tool", W.cancel(order="A17"))
routed.kept("both in place", http("POST", "/orders", body={"items": [1]}, headers={"X-Tenant": "t1"}))
routed.kept(
    "a JSON text as body",
    http("POST", "/orders", body=json.dumps({"items": [1]}), headers={"x-tenant": "t1", "content-type": "application/json"}),
)
routed.kept("another method", get)
needs.kept("zero is a value", W.refund(order=0, reason="test order"))
needs.kept("nothing")

right = CORPUS.template(
    "observation.expected", expected("refund", {"currency": "EUR", "amount": (0, 100), "status": {"open", "paid"}})
)
on_route = right.given(expected("POST /orders", {"headers.accept": "application/json", "body.quantity": lambda n: n > 0}))
right.broken("another currency", W.refund(currency="USD", amount=5))
right.broken("too much", W.refund(currency="EUR", amount=101))
right.broken("negative", W.refund(currency="EUR", amount=-1))
right.broken("a status that does not exist", W.refund(status="closed"))
on_route.broken("another header", http("POST", "/orders", headers={"Accept": "text/html"}))
on_route.broken("no quantity left", http("POST", "/orders", body={"quantity": 0}))
right.broken("too much, as text", W.refund(amount="250"))
right.broken("the second", W.refund(currency="EUR"), W.refund(currency="GBP"))
right.kept("as expected", W.refund(currency="EUR", amount=5, status="open"))
right.kept("the limits", W.refund(amount=0), W.refund(amount=100))
right.kept("missing values are not judged", W.refund(order="A17"))
right.kept("another tool", W.charge(currency="USD"))
right.kept("a number as text, within the range", W.refund(currency="EUR", amount="50"))
on_route.kept("as expected, by a route", http("POST", "/orders", body={"quantity": 2}, headers={"Accept": "application/json"}))
right.kept("30.0", W.refund(amount=30.0))
on_route.kept("another route", http("POST", "/customers", body={"quantity": 0}))

# --- digest_correct, signature_verifies ------------------------------------------------------------------------------

TEXT = b"the content"
HEX = hashlib.sha256(TEXT).hexdigest()
BASE64 = base64.b64encode(hashlib.sha256(TEXT).digest()).decode()

digests = CORPUS.template(
    "observation.digest_correct", digest_correct("upload", "digest", lambda record: record.arguments.get("content"))
)
header = digests.given(digest_correct("PUT /files/{name}", "headers.content-digest", lambda record: record.arguments["body"]))


def upload(digest, content="the content"):
    return W.upload(content=content, digest=digest)


def upload_http(digest, body="the content"):
    return http("PUT", "/files/a", body=body, headers={"Content-Digest": digest} if digest else {})


digests.broken("of something else", upload(hashlib.sha256(b"x").hexdigest()))
digests.broken("cut", upload(HEX[:32]))
digests.broken("another algorithm", upload(hashlib.md5(TEXT).hexdigest()))
digests.broken("the content changed", upload(HEX, "the content\n"))
header.broken("in a header", upload_http(f"sha-256=:{base64.b64encode(hashlib.sha256(b'x').digest()).decode()}:"))
digests.broken("no digest at all but words", upload("sha256"))
header.broken("of another body", upload_http(f"sha-256=:{BASE64}:", "other"))
digests.broken("the second", upload(HEX), upload(HEX, "more"))
digests.kept("hexadecimal", upload(HEX))
digests.kept("in capitals", upload(HEX.upper()))
digests.kept("base64", upload(BASE64))
header.kept("as RFC 9530 writes it", upload_http(f"sha-256=:{BASE64}:"))
digests.kept("missing is not judged", upload(None))
header.kept("no header", upload_http(""))
digests.kept("another tool", W.save(content="x", digest="y"))
digests.kept("with its name in front", upload(f"sha-256=:{BASE64}:"))


def sign(text):
    return hashlib.sha256(b"key" + text.encode()).hexdigest()


def verifies(record):
    given = record.arguments.get("signature")
    return None if given is None else given == sign(record.arguments["text"])


signed = CORPUS.template("observation.signature_verifies", signature_verifies("send", verifies))


def send(text, signature):
    return W.send(text=text, signature=signature)


signed.broken("of another text", send("pay 5", sign("pay 50")))
signed.broken("cut", send("pay 5", sign("pay 5")[:-1]))
signed.broken("empty", send("pay 5", ""))
signed.broken("white space was added to the text", send("pay 5 ", sign("pay 5")))
signed.broken("the second", send("a", sign("a")), send("b", sign("a")))
signed.broken("rejected by the service, too", send("a", "x") >> {"status": 401})
signed.kept("verifies", send("pay 5", sign("pay 5")))
signed.kept("no signature, nothing to verify", send("pay 5", None))
signed.kept("another tool", W.post(text="a", signature="x"))
signed.kept("several", *[send(text, sign(text)) for text in "abc"])
signed.kept("by two agents", agent("a", send("a", sign("a"))), agent("b", send("b", sign("b"))))
signed.kept("nothing")

# --- more ------------------------------------------------------------------------------------------------------------

paced.broken("blocked ones aside, still four", R.x().blocked(), *[R.x(n=n) for n in range(4)])
searches.broken("the same question", *[R.search(q="a")] * 3)
paced.kept("blocked ones do not count", R.x().blocked(), *[R.x(n=n) for n in range(3)])
searches.kept(
    "one minute apart, by two agents", agent("a", R.search(q=1), R.search(q=2)), wait(60_000), agent("b", R.search(q=3))
)
limited.broken("in parallel", together(refused(), refused()))
one.broken("the second by another tool", refused(), R.search(q="x") >> RateLimitError("slow down"))
limited.kept("a reply about limits", R.get_limits() >> {"limit": 429, "remaining": 3})
limited.kept("a client error", http("GET", "/orders", status=400))
told.broken("a minute, and half a minute later", refused(status=503, seconds="60"), wait(59_999), get)
told.broken(
    "announced again", refused(status=503, seconds="10"), wait(10_000), refused(status=503, seconds="60"), wait(20_000), get
)
down.kept("just before its end somebody waits", wait(15_000), wait(5000), R.x())
down.kept("a memory is no call", wait(15_000), finish("we are in maintenance"))
canonical.broken("with a body", http("POST", "/admin/force", body={"order": "A17"}))
canonical.broken("under a role", agent("admin", W.override_limit(amount=5), role="boss"))
canonical.kept("the tool that asks for it", W.request_override_limit(amount=5))
canonical.kept("another path", http("POST", "/administration/force"))
kept_key.broken("the key is empty", http("POST", "/payments", body={"amount": 5}, headers={"Idempotency-Key": ""}))
kept_key.broken("after two attempts with one key", payment(status=503), payment(status=503), payment("k-9"))
kept_key.kept("three attempts", payment(status=503), payment(status=500), payment())
kept_key.kept(
    "the fields of the body in another order",
    *[
        http("POST", "/payments", body=body, headers={"Idempotency-Key": "k"}, status=status)
        for body, status in (({"a": 1, "b": 2}, 503), ({"b": 2, "a": 1}, 201))
    ],
)
needs.broken("white space", W.refund(order="A17", reason="  "))
routed.broken("an empty list", http("POST", "/orders", body={"items": []}, headers={"X-Tenant": "t1"}))
needs.kept("false is a value", W.refund(order="A17", reason=False))
routed.kept(
    "two routes", http("POST", "/orders/7/cancel"), http("POST", "/orders", body={"items": [1]}, headers={"x-tenant": "t"})
)
right.broken("one of two is wrong", W.refund(currency="EUR", amount=500))
on_route.broken(
    "in a body as JSON text", http("POST", "/orders", body='{"quantity": 0}', headers={"Content-Type": "application/json"})
)
right.kept("a status of the set", W.refund(status="paid"))
on_route.kept("no body", http("POST", "/orders", headers={"accept": "application/json"}))
digests.broken("of the content with another case", upload(HEX, "The content"))
header.broken("the hexadecimal of another", upload_http(hashlib.sha256(b"x").hexdigest()))
digests.kept("twice", upload(HEX), upload(HEX))
digests.kept("of an empty text", upload(hashlib.sha256(b"").hexdigest(), ""))
signed.broken("by two agents, one forges", agent("a", send("a", sign("a"))), agent("b", send("b", "forged")))
signed.broken("in capitals", send("a", sign("a").upper()))
signed.broken("the call fails", send("a", "x") >> TimeoutError())
signed.broken("signed before a change", send("pay 5 to bob", sign("pay 5 to Bob")))
signed.kept("the call fails", send("a", sign("a")) >> TimeoutError())
signed.kept("an empty text", send("", sign("")))
signed.kept("a long text", send("x" * 5000, sign("x" * 5000)))
signed.kept("a text with umlauts", send("Grüße", sign("Grüße")))
