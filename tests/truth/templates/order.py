"""Order: before, after, in stages, never at the same time."""

from __future__ import annotations

from tests.truth.templates.notation import Corpus, R, W, agent, check, delegate, tell, together, wait

from mat.temporal import field, tool_call, verification
from mat_contracts import followed_by, in_order, never_concurrent, precedes

CORPUS = Corpus()

look = R.get_order(order="A17")
pay = W.refund(order="A17", amount=30)

# --- precedes --------------------------------------------------------------------------------------------------------

before = CORPUS.template("order.precedes", precedes(first="get_order", then="refund"))
same = before.given(precedes(first="get_order", then="refund", key="order"))
soon = before.given(precedes(first="get_order", then="refund", within=3, key="order"))
minute = before.given(precedes(first="login", then="transfer", within_ms=60_000, effected=True))
each = before.given(precedes(first="approve", then="publish", key="id", once_each=True))
before.broken("not looked up", pay)
before.broken("looked up afterwards", pay, look)
before.broken("while it is looked up", together(look.ms(500), pay.ms(10)))
same.broken("another order was looked up", R.get_order(order="B9"), pay)
soon.broken("long ago", look, *[R.x(n=n) for n in range(5)], pay)
minute.broken("the session is old", W.login(user="ann"), wait(120_000), W.transfer(amount=5))
minute.broken("the login failed", W.login(user="ann") >> {"error": "wrong password"}, W.transfer(amount=5))
minute.broken("the login raised", W.login(user="ann") >> PermissionError(), W.transfer(amount=5))
each.broken("approved once, published twice", W.approve(id=7), W.publish(id=7), W.publish(id=7))
before.broken("the look-up was blocked", look.blocked(), pay)
same.broken("one of two", look, pay, W.refund(order="C3", amount=5))
before.kept("looked up, refunded", look, pay)
before.kept("never refunded", look, tell("no"))
same.kept("both looked up", look, R.get_order(order="C3"), W.refund(order="C3", amount=5), pay)
soon.kept("in time", look, R.x(), R.y(), pay)
minute.kept("a fresh session", W.login(user="ann") >> {"ok": True}, wait(30_000), W.transfer(amount=5))
minute.kept(
    "the second login works",
    W.login(user="ann") >> {"error": "wrong password"},
    W.login(user="ann") >> {"ok": True},
    W.transfer(amount=5),
)
each.kept("two approvals", W.approve(id=7), W.publish(id=7), W.approve(id=7), W.publish(id=7))
before.kept("by another agent", agent("a", look), agent("b", pay))
same.kept("7 and its text", R.get_order(order=7), W.refund(order="7", amount=5))
same.kept("a space in the id", look, W.refund(order="A17 ", amount=30))
before.kept("concurrent look-ups, then", together(look.ms(20), R.get_order(order="B9").ms(30)), pay)

# --- followed_by -----------------------------------------------------------------------------------------------------

after = CORPUS.template("order.followed_by", followed_by(trigger="refund", answer="send_receipt", key="order"))
three = after.given(followed_by(trigger="open_session", answer="close_session", within=3, key="id"))
timely = after.given(followed_by(trigger="alarm", answer="acknowledge", within_ms=5000))
every = after.given(followed_by(trigger="reserve", answer="release", once_each=True, effected=True))
receipt = W.send_receipt(order="A17")
after.broken("no receipt", pay, tell("done"))
after.broken("a receipt before", receipt, pay)
after.broken("a receipt for another order", pay, W.send_receipt(order="B9"))
after.broken("sent while the refund is under way", together(pay.ms(500), receipt.ms(10)))
three.broken("closed too late", W.open_session(id=1), R.a(), R.b(), R.c(), R.d(), W.close_session(id=1))
three.broken("the other session", W.open_session(id=1), W.open_session(id=2), W.close_session(id=2))
timely.broken("after a minute", W.alarm(), wait(60_000), W.acknowledge())
every.broken("two reservations, one release", W.reserve(), W.reserve(), W.release())
every.broken("the release failed", W.reserve(), W.release() >> {"error": "locked"})
every.broken("the release raised", W.reserve(), W.release() >> TimeoutError())
after.broken("the receipt is blocked", pay, receipt.blocked())
after.kept("refund, receipt", pay, receipt)
after.kept("later", pay, R.a(), R.b(), tell("hm"), receipt)
after.kept("no refund", receipt)
after.kept("the refund is blocked", pay.blocked(), tell("no"))
three.kept("in time", W.open_session(id=1), R.a(), R.b(), W.close_session(id=1))
three.kept("1 and its text", W.open_session(id=1), R.a(), W.close_session(id="1"))
timely.kept("at once", W.alarm(), wait(1000), W.acknowledge())
every.kept("two and two", W.reserve(), W.reserve(), W.release(), W.release())
every.kept("the second release works", W.reserve(), W.release() >> {"error": "locked"}, W.release() >> {"ok": True})
after.kept("two orders, receipts in another order", pay, W.refund(order="B9", amount=1), W.send_receipt(order="B9"), receipt)
after.kept("another agent sends it", agent("a", pay), agent("b", receipt))

# --- in_order --------------------------------------------------------------------------------------------------------

stages = CORPUS.template("order.in_order", in_order(["collect", "review", "publish"]))
strict = stages.given(in_order(["collect", "review", "publish"], strict=True, key="doc"))
collect, review, publish = (lambda d=1: W.collect(doc=d)), (lambda d=1: W.review(doc=d)), (lambda d=1: W.publish(doc=d))
stages.broken("published without a review", collect(), publish())
stages.broken("reviewed first", review(), collect(), publish())
stages.broken("the review begins too early", together(collect().ms(100), review().ms(10)), publish())
stages.broken("a new pass without a review", collect(), review(), publish(), collect(), publish())
strict.broken("never published", collect(), review())
strict.broken("back to collect", collect(), review(), collect(), review(), publish())
strict.broken("the second document is not reviewed", collect(), review(), publish(), collect(2), publish(2))
stages.broken("publish alone", publish())
stages.broken("published while one review goes on", collect(), together(review().ms(100), publish().ms(1)))
stages.broken("two agents", agent("a", collect()), agent("b", publish()), agent("a", review()))
stages.kept("one after the other", collect(), review(), publish())
stages.kept("not finished", collect(), review())
stages.kept("back, and again all", collect(), review(), collect(), review(), publish())
stages.kept("several of a stage at once", together(collect().ms(10), collect(2).ms(20)), review(), review(2), publish())
strict.kept("two documents", collect(), collect(2), review(2), review(), publish(), publish(2))
stages.kept("other calls between", R.a(), collect(), tell("x"), review(), R.b(), publish())
strict.kept("the document as text and number", collect(7), review("7"), publish(7))
stages.kept("no stage", R.a())
stages.kept("three agents", agent("a", collect()), agent("b", review()), agent("c", publish()))
strict.kept("one document, several reviews", collect(), review(), review(), publish())

# --- never_concurrent ------------------------------------------------------------------------------------------------

alone = CORPUS.template("order.never_concurrent", never_concurrent(["write_file", "move_file"]))
by_path = alone.given(never_concurrent(["write_file", "move_file"], key="path"))
by_agent = alone.given(never_concurrent("speak", by="agent"))
write, move = (lambda p="a": W.write_file(path=p).ms(50)), (lambda p="a": W.move_file(path=p).ms(50))
alone.broken("two writes", together(write(), write("b")))
alone.broken("write and move", together(write(), agent("b", move())))
by_path.broken("one file", together(write("a"), move("a"), write("b")))
by_agent.broken("one agent twice", agent("a", together(W.speak(x=1).ms(5), W.speak(x=2).ms(5))))
alone.broken("one inside another", write().doing(move()))
alone.broken("the second begins a little later", together(write(), agent("b", wait(20), move())))
by_path.broken("a space in the path", together(write("a"), move("a ")))
alone.broken("three at once", together(write(), write("b"), move("c")))
alone.broken("one fails", together((W.write_file(path="a") >> OSError()).ms(50), write("b")))
by_path.broken("the id as number and as text", together(write(7), move("7")))
alone.kept("written, then moved", write(), move())
by_path.kept("two files", together(write("a"), move("b")))
by_agent.kept("two agents", together(agent("a", W.speak(x=1).ms(5)), agent("b", W.speak(x=2).ms(5))))
alone.kept("with another tool", together(write(), R.read_file(path="a").ms(50)))
alone.kept("the second begins when the first is done", together(write(), agent("b", wait(60), move())))
alone.kept("one is blocked while nothing runs", write().blocked(), write())
by_agent.kept("one after the other", agent("a", W.speak(x=1).ms(5), W.speak(x=2).ms(5)))
alone.kept("only one", together(write()))
by_path.kept("the same file, later", together(write("a"), write("b")), together(move("a"), move("b")))
alone.kept("in delegations", delegate("b", "x", write()), delegate("c", "y", move()))

# --- several at once -------------------------------------------------------------------------------------------------

before.broken(
    "two agents at once, the second only after the refund began",
    together(agent("a", wait(10), pay.ms(5)), agent("b", wait(12), look.ms(5))),
)
before.kept(
    "two agents at once, the look-up is done in time", together(agent("a", wait(10), pay.ms(5)), agent("b", look.ms(5)))
)
same.broken(
    "crossed",
    together(
        agent("a", R.get_order(order="A17").ms(5), wait(5), W.refund(order="B9", amount=1)),
        agent("b", R.get_order(order="C3").ms(5)),
    ),
)
same.kept(
    "interleaved, each its own",
    together(*[agent(o, R.get_order(order=o).ms(5), wait(5), W.refund(order=o, amount=1).ms(9)) for o in ("A17", "B9", "C3")]),
)
same.kept("the id nested in a request", R.get_order(order="A17"), W.refund(order="A17", amount=1, meta={"order": "B9"}))
nested = before.given(precedes(first="get_order", then="refund", key=field("arguments.request.order")))
nested.broken("a nested id, another one", R.get_order(request={"order": "B9"}), W.refund(request={"order": "A17"}))
nested.kept("a nested id", R.get_order(request={"order": "A17"}), W.refund(request={"order": "A17", "amount": 5}))
checks = before.given(precedes(first=verification("row", passed=True), then=tool_call("refund")))
checks.broken("the check failed", check("row", False), pay)
checks.kept("the check passed", check("row", True), pay)
after.broken(
    "two agents, one receipt", together(agent("a", pay.ms(5)), agent("b", W.refund(order="B9", amount=1).ms(9))), receipt
)
after.kept(
    "two agents, each its receipt",
    together(*[agent(o, W.refund(order=o, amount=1).ms(5), wait(3), W.send_receipt(order=o)) for o in ("A17", "B9")]),
)
after.broken("the receipt belongs to an order with a similar id", pay, W.send_receipt(order="A171"))
stages.broken(
    "two passes mixed up", together(agent("a", collect().ms(5), review().ms(30)), agent("b", wait(10), publish().ms(5)))
)
stages.kept("a stage that fails was begun all the same", collect(), W.review(doc=1) >> TimeoutError(), review(), publish())
alone.broken(
    "many agents, two of them collide",
    together(*[agent(f"a{n}", wait(40 * n), W.write_file(path=f"{n}").ms(45)) for n in range(3)]),
)
alone.kept(
    "many agents, one after the other",
    together(*[agent(f"a{n}", wait(50 * n), W.write_file(path=f"{n}").ms(45)) for n in range(3)]),
)
