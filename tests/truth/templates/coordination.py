"""Several agents: memories, delegations, approvals, cycles, progress, faults and recovery."""

from __future__ import annotations

from tests.truth.templates.notation import (
    Corpus,
    NotFoundError,
    R,
    RateLimitError,
    ServerError,
    W,
    agent,
    approve,
    check,
    delegate,
    detect,
    drop,
    finish,
    get,
    mitigate,
    model,
    msg,
    put,
    state,
    tell,
    together,
    wait,
)

import mat
from mat.temporal import tool_call
from mat_contracts import (
    DetectionRules,
    collapse,
    containment,
    memory_collision,
    no_approval_deadlock,
    no_circular_delegation,
    no_oscillation,
    progress,
    recovers,
    replanning_without_execution,
    terminates,
)

CORPUS = Corpus()

# --- memory_collision ------------------------------------------------------------------------------------------------

collision = CORPUS.template("coordination.memory_collision", memory_collision())
board = collision.given(memory_collision("board"))
a_writes, b_writes = agent("a", put("notes", "eta", "Friday")), agent("b", put("notes", "eta", "Monday"))
collision.broken("overwritten unread", a_writes, b_writes)
collision.broken("read before the other wrote", agent("b", put("notes", "x", 1), get("notes", "eta")), a_writes, b_writes)
collision.broken(
    "another key was read", a_writes, agent("b", put("notes", "x", 1), get("notes", "x"), put("notes", "eta", "Monday"))
)
collision.broken("somebody else read it", a_writes, agent("c", get("notes", "eta")), b_writes)
collision.broken("dicts", agent("a", put("notes", "plan", {"n": 1})), agent("b", put("notes", "plan", {"n": 2})))
collision.broken("deleted unread", a_writes, agent("b", drop("notes", "eta")))
collision.broken(
    "both read, both write",
    agent("a", put("notes", "n", 1)),
    agent("b", get("notes", "n")),
    agent("a", put("notes", "n", 2)),
    agent("b", put("notes", "n", 3)),
)
board.broken("on the board", agent("a", put("board", "t", 1)), agent("b", put("board", "t", 2)))
collision.broken(
    "a delegate overwrites",
    agent("a", put("notes", "eta", "Friday"), delegate("b", "set the eta", put("notes", "eta", "Monday"))),
)
collision.broken("steps in between", a_writes, R.a(), R.b(), tell("hi"), b_writes)
collision.kept("read first", a_writes, agent("b", get("notes", "eta"), put("notes", "eta", "Monday")))
collision.kept("its own value", agent("a", put("notes", "eta", "Friday"), put("notes", "eta", "Monday")))
collision.kept("two keys", a_writes, agent("b", put("notes", "eta2", "Monday")))
collision.kept("two memories", a_writes, agent("b", put("scratch", "eta", "Monday")))
collision.kept("the same value again", a_writes, agent("b", put("notes", "eta", "Friday")))
collision.kept("in turns, each reads", a_writes, *[agent(who, get("notes", "eta"), put("notes", "eta", who)) for who in "baba"])
board.kept("not the board", a_writes, b_writes)
collision.kept("long ago", a_writes, *[R.a(n=n) for n in range(25)], b_writes)
collision.kept("only read", a_writes, agent("b", get("notes", "eta")), agent("c", get("notes", "eta")))
collision.kept(
    "an equal dict", agent("a", put("notes", "p", {"a": 1, "b": 2})), agent("b", put("notes", "p", {"b": 2, "a": 1}))
)

# --- no_approval_deadlock --------------------------------------------------------------------------------------------


def answers(record):
    return record.action.arguments.get("request") if record.action.name == "answer" else None


def asks(record):
    return record.action.arguments.get("request") if record.action.name == "ask_approval" else None


def whom(record):
    return record.action.arguments.get("to") if record.action.name == "ask_approval" else None


deadlock = CORPUS.template("coordination.no_approval_deadlock", no_approval_deadlock())
inbox = deadlock.given(no_approval_deadlock(asks=asks, approver=whom, answers=answers, within=6))
timed = deadlock.given(no_approval_deadlock(asks=asks, approver=whom, answers=answers, within_ms=60_000))


def request(who, number, to):
    return agent(who, W.ask_approval(request=number, to=to))


def answer(who, number):
    return agent(who, W.answer(request=number, ok=True))


inbox.broken("never answered", request("clerk", "r1", "boss"), R.a())
inbox.broken("they wait for each other", request("a", "r1", "b"), request("b", "r2", "a"), answer("a", "r2"), answer("b", "r1"))
inbox.broken(
    "a circle of three",
    request("a", "r1", "b"),
    request("b", "r2", "c"),
    request("c", "r3", "a"),
    *[answer(w, r) for w, r in (("b", "r1"), ("c", "r2"), ("a", "r3"))],
)
inbox.broken("answered too late", request("a", "r1", "b"), *[R.a(n=n) for n in range(9)], answer("b", "r1"))
inbox.broken("the first of two is forgotten", request("a", "r1", "b"), request("c", "r2", "b"), answer("b", "r2"))
timed.broken("an hour later", request("a", "r1", "b"), wait(3_600_000), answer("b", "r1"))
inbox.broken("answers another request", request("a", "r1", "b"), answer("b", "r7"))
inbox.broken("asks itself", request("a", "r1", "a"), R.x())
inbox.broken("an answer before the request", answer("b", "r1"), request("a", "r1", "b"), R.x())
inbox.kept("answered", request("a", "r1", "b"), answer("b", "r1"))
inbox.kept("refused is answered", request("a", "r1", "b"), agent("b", W.answer(request="r1", ok=False)))
inbox.kept("one after the other", request("a", "r1", "b"), answer("b", "r1"), request("b", "r2", "a"), answer("a", "r2"))
inbox.kept("two for one boss", request("a", "r1", "c"), request("b", "r2", "c"), answer("c", "r2"), answer("c", "r1"))
inbox.kept("withdrawn by its asker", request("a", "r1", "b"), answer("a", "r1"))
inbox.kept("a chain, no circle", request("a", "r1", "b"), request("b", "r2", "c"), answer("c", "r2"), answer("b", "r1"))
timed.kept("after half a minute", request("a", "r1", "b"), wait(30_000), answer("b", "r1"))
deadlock.kept("the approver answers at once", approve("wire", amount=5), W.wire(amount=5))
deadlock.kept("the approver says no", approve("wire", False, amount=5), tell("no"))
deadlock.kept("the approver fails, which is an answer", approve("wire", TimeoutError("away"), amount=5), tell("no"))
deadlock.kept("no approval at all", W.note(text="x"))

# --- no_circular_delegation ------------------------------------------------------------------------------------------

circle = CORPUS.template("coordination.no_circular_delegation", no_circular_delegation())
circle.broken("back to the first", agent("a", delegate("b", "refund A17", delegate("a", "do it yourself", W.x()))))
circle.broken("a circle of three", agent("a", delegate("b", "x", delegate("c", "y", delegate("a", "z", W.x())))))
circle.broken(
    "the same task comes back, each handed on and closed",
    agent("a", delegate("b", "refund order A17")),
    agent("b", delegate("a", "refund order A17")),
)
circle.broken(
    "in another case",
    agent("a", delegate("b", "Refund order A17")),
    agent("b", delegate("c", "refund order a17 ")),
    agent("c", delegate("a", "REFUND ORDER A17")),
)
circle.broken("deep down", agent("a", delegate("b", "1", delegate("c", "2", delegate("d", "3", delegate("b", "4", W.x()))))))
circle.broken("after some work", agent("a", R.get(), delegate("b", "x", R.look(), check("ok"), delegate("a", "y", W.x()))))
circle.broken("ping-pong of one task", *[agent(one, delegate(two, "write the report")) for one, two in ("ab", "ba", "ab")])
circle.broken("with roles", agent("a", delegate("b", "x", delegate("a", "y", W.x(), role="clerk"), role="lead"), role="boss"))
circle.broken(
    "by handoffs without blocks",
    agent("triage", delegate("billing", "the customer wants a refund")),
    agent("billing", delegate("triage", "the customer wants a refund")),
)
circle.broken(
    "the second delegation closes it", agent("a", delegate("b", "x", delegate("c", "one", R.y()), delegate("a", "two", W.x())))
)
circle.kept("there and back again", agent("a", delegate("b", "x", W.x()), delegate("b", "y", W.y())))
circle.kept("a chain", agent("a", delegate("b", "x", delegate("c", "y", delegate("d", "z", W.x())))))
circle.kept("two workers", agent("a", delegate("b", "x", W.x()), delegate("c", "x", W.x())))
circle.kept(
    "later the other way round, another task",
    agent("a", delegate("b", "write it", W.x())),
    agent("b", delegate("a", "review it", R.x())),
)
circle.kept(
    "a retry of the same worker",
    agent("a", delegate("b", "refund A17", W.x() >> TimeoutError()), delegate("b", "refund A17", W.x())),
)
circle.kept(
    "handed back by a message",
    agent("a", delegate("b", "look up A17")),
    agent("b", msg("a", "it was shipped")),
    agent("a", W.x()),
)
circle.kept(
    "a diamond", agent("a", delegate("b", "x", delegate("d", "1", R.x())), delegate("c", "y", delegate("d", "2", R.x())))
)
circle.kept("two at the same time", agent("a", together(delegate("b", "x", R.x().ms(5)), delegate("c", "y", R.x().ms(9)))))
circle.kept("no delegation", agent("a", msg("b", "hi")), agent("b", msg("a", "hi")))
circle.kept(
    "after the answer, a new question",
    agent("a", delegate("b", "part one", W.x())),
    agent("b", delegate("c", "part two", W.y())),
    agent("c", msg("a", "done")),
)

# --- no_oscillation --------------------------------------------------------------------------------------------------

swing = CORPUS.template("coordination.no_oscillation", no_oscillation())
names = swing.given(no_oscillation(compare="names"))
signals = swing.given(no_oscillation(compare="states", signals="route"))
each = swing.given(no_oscillation(by="agent"))
up, down = W.set_price(value=10), W.set_price(value=20)
swing.broken("to and fro", *[up, down] * 3)
swing.broken("three tools in a circle", *[R.look(), R.think(), R.ask()] * 3)
swing.broken("two agents undo each other", *[agent("a", W.open(door=1)), agent("b", W.close(door=1))] * 3)
names.broken("other arguments each time", *[step for n in range(3) for step in (R.search(q=f"q{n}"), R.read(page=n))])
signals.broken("routed to and fro", *[step for _ in range(3) for step in (state(route="a"), R.x(), state(route="b"), R.y())])
each.broken(
    "while another agent works",
    *[step for n in range(3) for step in (agent("a", up), agent("b", R.read(page=n)), agent("a", down))],
)
swing.broken("messages", *[agent("a", msg("b", "your turn")), agent("b", msg("a", "no, your turn"))] * 3)
swing.broken("a cycle of four", *[R.a(), R.b(), R.c(), R.d()] * 3)
swing.broken("it begins late", R.x(), R.y(), R.z(), *[up, down] * 4)
swing.broken("memory rewritten", *[put("n", "x", 1), put("n", "x", 2)] * 3)
swing.kept("twice is not three times", *[up, down] * 2)
swing.kept("progress", *[step for n in range(5) for step in (R.search(q=f"q{n}"), R.read(page=n))])
swing.kept("repeats are not cycles", *[up] * 6)
names.kept("different tools", R.a(), R.b(), R.c(), R.d(), R.e(), R.f())
signals.kept("states go on", *[step for n in range(6) for step in (state(route=f"r{n}"), R.x())])
each.kept("two agents, each the same call", *[agent("a", R.a()), agent("b", R.b())] * 4)
swing.kept("a cycle of five", *[R.a(), R.b(), R.c(), R.d(), R.e()] * 3)
swing.kept("interrupted", up, down, up, down, R.look(), up, down)
swing.kept("pages of a list", *[R.next_page(cursor=n) for n in range(9)])
swing.kept("an amount that changes", *[step for n in range(4) for step in (W.bid(amount=n), R.get_price())])

# --- replanning_without_execution ------------------------------------------------------------------------------------

replan = CORPUS.template("coordination.replanning_without_execution", replanning_without_execution())
by_model = replan.given(replanning_without_execution(planning=lambda record: record.action.name == "planner"))
one_each = replan.given(replanning_without_execution(by="agent", times=2))
plan = mitigate("replan")
replan.broken("three plans", plan, plan, plan)
replan.broken("messages carry nothing out", plan, tell("new plan"), plan, tell("newer plan"), plan)
by_model.broken("the planner is asked again and again", *[model({"plan": n}, "planner") for n in range(3)])
replan.broken("each execution fails", *[plan, W.x() >> TimeoutError()] * 3)
replan.broken("each execution is blocked", *[plan, W.x().blocked()] * 3)
one_each.broken("another agent acts", agent("a", plan), agent("b", W.x()), agent("a", plan))
replan.broken("each execution reports an error", *[plan, W.x() >> {"error": "no such order"}] * 3)
replan.broken("after a good start", plan, W.x(), plan, plan, plan)
by_model.broken("plans and other models", *[model({}, "planner"), model({}, "writer")] * 3)
replan.broken(
    "messages between agents",
    agent("a", plan, msg("b", "new plan")),
    agent("b", plan, msg("a", "newer plan")),
    agent("a", plan),
)
replan.kept("each plan is carried out", *[plan, W.x()] * 4)
replan.kept("two plans", plan, plan, W.x(), plan, plan, W.x())
by_model.kept("the planner, then a call", *[model({"plan": 1}, "planner"), W.x()] * 3)
replan.kept("another agent carries it out", *[agent("planner", plan), agent("worker", W.x())] * 3)
replan.kept("no plan", *[W.x()] * 3)
one_each.kept("each agent one plan", agent("a", plan), agent("b", plan), agent("c", plan))
replan.kept("retries are no plans", *[mitigate("retry")] * 5)
replan.kept("a failure, then it works", plan, W.x() >> TimeoutError(), plan, W.x(), plan)
by_model.kept("another model", *[model({}, "writer")] * 6)
replan.kept("one of them works", plan, W.x() >> TimeoutError(), plan, W.y(), plan, W.x() >> TimeoutError(), plan)

# --- progress, collapse, terminates ----------------------------------------------------------------------------------

forward = CORPUS.template("progress.progress", progress(window=3))
left = forward.given(progress(window=3, potential=lambda state: state["left"]))
weighted = forward.given(progress(window=4, weights={"todo": 2}))


def at(n):
    return (state(open_subtasks=n), R.work(n=n))


forward.broken("nothing gets less", *at(3), *at(3), *at(3), *at(3), R.x(), R.y())
forward.broken("it grows", *at(1), *at(2), *at(3), *at(4), *at(5))
left.broken("a measure of our own stands still", state(left=5), *[R.x(n=n) for n in range(6)])
weighted.broken("todo stays", state(todo=3), *[R.x(n=n) for n in range(7)])
forward.broken(
    "approvals and retries pile up",
    state(open_subtasks=1, approvals=0, retries=0),
    R.a(),
    state(approvals=1),
    R.b(),
    state(retries=1),
    R.c(),
    state(retries=2),
    R.d(),
    R.e(),
)
forward.broken("a good start, then nothing", *at(3), *at(2), *[R.x(n=n) for n in range(5)])
forward.broken(
    "one subtask closes as another opens",
    state(open_subtasks=2, approvals=0),
    R.a(),
    state(open_subtasks=1, approvals=1),
    R.b(),
    state(open_subtasks=2, approvals=0),
    R.c(),
    R.d(),
    R.e(),
)
left.broken("up and down, but never below", *[s for n in (5, 6, 6, 7, 7, 8) for s in (state(left=n), R.x(n=n))])
forward.broken("messages are steps as well", *at(2), tell("a"), tell("b"), tell("c"), tell("d"))
left.broken("fractions that stay", state(left=0.5), *[W.x(n=n) for n in range(5)])
forward.kept("less each time", *at(3), *at(2), *at(1), *at(0), finish("done"))
forward.kept("less within three steps", *at(3), R.a(), R.b(), *at(2), R.a(), R.b(), *at(1), finish("done"))
left.kept("counts down", *[s for n in (5, 4, 3, 2, 1) for s in (state(left=n), R.x(n=n))])
weighted.kept("todo gets less", *[s for n in (3, 2, 1) for s in (state(todo=n), R.x(n=n), R.y(n=n))])
forward.kept("no measure at all", *[R.x(n=n) for n in range(9)])
forward.kept("the run ends", *at(3), R.a(), R.b(), finish("done"))
forward.kept("up, then down in time", *at(2), *at(3), *at(1), *at(2), *at(0), finish("x"))
left.kept("a large step", state(left=90), R.a(), R.b(), state(left=1), R.c(), R.d(), finish("x"))
forward.kept("an empty trace")
forward.kept("other signals only", *[s for n in range(5) for s in (state(phase=n), R.x(n=n))])

fall = CORPUS.template("progress.collapse", collapse(window=3))
own = fall.given(collapse(window=3, potential=lambda state: state["left"]))


def endless(*steps):
    return (*steps, *[R.again(n=n) for n in range(30)])


fall.broken("stopped at the horizon, no progress", *endless(*at(2)), horizon=12)
fall.broken("it grows until the horizon", *[s for n in range(20) for s in at(n)], horizon=10)
own.broken("our own measure", *endless(state(left=3)), horizon=9)
fall.broken("progress at first", *at(3), *at(2), *endless(*at(1)), horizon=12)
own.broken(
    "a stall in the middle, then the horizon",
    state(left=9),
    *[R.x(n=n) for n in range(6)],
    *[s for n in range(8, -40, -1) for s in (state(left=n), R.y(n=n))],
    horizon=14,
)
fall.broken("two agents wait", *at(2), *[agent(w, msg("x", "you first")) for w in "abababab"], *endless(), horizon=10)
own.broken("up and down", *[s for n in (5, 6, 6, 7, 7) * 8 for s in (state(left=n), R.x(n=n))], horizon=12)
fall.broken("retries pile up", *[s for n in range(20) for s in (state(open_subtasks=1, retries=n), R.x())], horizon=10)
fall.kept("it ends", *at(2), *[R.again(n=n) for n in range(9)], finish("done"))
fall.kept("it returns", *at(2), *[R.again(n=n) for n in range(9)])
own.kept("the horizon, with progress", *[s for n in range(60, 0, -1) for s in (state(left=n), R.x(n=n))], horizon=12)
fall.kept("given up", *at(2), *[R.again(n=n) for n in range(9)], finish("no", status="aborted"))
fall.kept("the horizon comes too early to say", *at(2), R.a(), R.b(), R.c(), horizon=3)
fall.kept("no measure", *endless(), horizon=9)
own.kept(
    "less every third step", *[s for n in range(60, 0, -1) for s in (state(left=n), R.x(n=n), R.y(n=n), R.z(n=n))], horizon=14
)
fall.kept("a failure", *at(2), *[R.again(n=n) for n in range(9)], finish("cannot", status="failed"))

ends = CORPUS.template("progress.terminates", terminates())
ends.broken("stopped at the horizon", *endless(), horizon=8)
ends.broken("two agents for ever", *[agent(w, msg("x", "ping")) for w in "ab" * 20], horizon=10)
ends.broken("time is over", R.a(), wait(100_000), R.b(), wait(100_000), R.c(), horizon_ms=50_000)
ends.broken("polling", *[R.get_status(job=1)] * 30, horizon=20)
ends.broken("a slow tool", R.a(), R.slow().ms(90_000), R.b(), horizon_ms=50_000)
ends.broken("one step too many", R.a(), R.b(), R.c(), finish("x"), horizon=3)
ends.kept("a final response", R.a(), finish("done"))
ends.kept("it returns", R.a(), R.b())
ends.kept("aborted", R.a(), finish("no", status="aborted"))
ends.kept("failed", R.a(), finish("cannot", status="failed"))
ends.kept("exactly within its horizon", R.a(), R.b(), finish("x"), horizon=4)
ends.kept("long, but in time", wait(40_000), R.a(), finish("x"), horizon_ms=50_000)
ends.kept("nothing to do")

# --- containment -----------------------------------------------------------------------------------------------------

contain = CORPUS.template("containment.containment", containment())
tight = contain.given(containment(detect_within=2, mitigate_within=2, alternates={"track": ["carrier"]}))
paged = contain.given(containment(rules=DetectionRules(backoff_ms=1000, escalates_to=["oncall"])))
lost = R.track(parcel="P1") >> TimeoutError("no answer")


def injected(operator, site, **options):
    return [mat.spec.perturbation(operator, site, **options)]


contain.broken("nobody cares", lost, finish("Your parcel is on its way."))
contain.broken("the reply is made up", lost, tell("It arrives on Friday."), W.close(ticket=7))
contain.broken("other work, too long", lost, *[W.note(n=n) for n in range(12)], R.track(parcel="P1"))
contain.broken("detected, and that is all", lost, detect("track is down"), finish("It arrives on Friday."))
contain.broken("another parcel is asked for", lost, R.track(parcel="Q9"), finish("ok"))
tight.broken("tried again too late", lost, R.a(), R.b(), R.c(), R.d(), R.e(), R.track(parcel="P1"))
paged.broken("tried again without a wait, and only once", lost, R.track(parcel="P1") >> {"eta": "Friday"}, finish("Friday"))
paged.broken("somebody else is told", lost, detect("down"), delegate("intern", "track is down, please look"), finish("x"))
contain.broken("a server error in the memory of a tool", W.save(x=1) >> ServerError("500"), finish("Saved."))
contain.broken(
    "a refused connection", R.get_order(order="A17") >> ConnectionError(), tell("Your order A17 was shipped."), finish("done")
)
contain.broken("a model that fails", model(TimeoutError()), finish("Here is your summary."))
contain.kept("tried again", lost, R.track(parcel="P1") >> {"eta": "Friday"}, finish("Friday"))
contain.kept("aborted", lost, finish("track does not answer", status="aborted"))
contain.kept("the user is asked", lost, tell("I cannot reach the carrier. Should I try again later?"), finish("x"))
contain.kept("noticed and escalated", lost, detect("track is down"), mitigate("escalate", to="oncall"), finish("x"))
tight.kept("another service", lost, R.carrier(parcel="P1"), finish("Friday"))
contain.kept("a fallback of that name", lost, R.track_backup(parcel="P1"), finish("Friday"))
contain.kept("not found is an answer", R.track(parcel="P1") >> NotFoundError("404"), finish("There is no such parcel."))
contain.kept("no fault", R.track(parcel="P1"), finish("Friday"))
paged.kept("tried again after the wait", lost, wait(1500), R.track(parcel="P1"), finish("Friday"))
paged.kept("on call is told", lost, delegate("oncall", "track is down"), finish("x"))
contain.kept("two faults, two answers", lost, R.track(parcel="P1"), lost, mitigate("alternate", service="phone"), finish("x"))
contain.kept("a check fails, a new plan", lost, check("the parcel is tracked", False), mitigate("replan"), finish("x"))
contain.kept("approval to go on without", lost, approve("go on although track is down and failed", plan="guess"), finish("x"))

# --- recovers --------------------------------------------------------------------------------------------------------

back = CORPUS.template("recovery.recovers", recovers())
goal = back.given(recovers(within=4, goal=tool_call("refund")))
soon = back.given(recovers(within_ms=10_000))
back.broken("never again", lost, R.a(), tell("hm"))
back.broken("aborted is not recovered", lost, finish("sorry", status="aborted"))
goal.broken("the goal comes too late", lost, *[R.a(n=n) for n in range(6)], W.refund(order="A17"))
back.broken("HTTP 503 again", lost, R.track(parcel="P1") >> {"status": 503, "body": ""})
soon.broken("a minute later", lost, wait(60_000), R.track(parcel="P1"), finish("x"))
back.broken("it fails again", lost, lost, R.a())
back.broken("more than ten steps", lost, *[R.a(n=n) for n in range(12)], R.track(parcel="P1"))
back.broken("the second try is blocked", lost, R.track(parcel="P1").blocked(), R.a())
back.broken("the second fault is not overcome", lost, R.track(parcel="P1"), W.save(x=1) >> ConnectionError())
back.broken("the reply is an error again", lost, R.track(parcel="P1") >> {"error": "still down"})
back.kept("the same service works", lost, R.track(parcel="P1"))
back.kept("a final response", lost, tell("trying"), finish("Friday, says the shop"))
goal.kept("refunded", lost, R.a(), W.refund(order="A17"))
soon.kept("five seconds later", lost, wait(5000), R.track(parcel="P1"))
back.kept("no fault at all", R.track(parcel="P1"))
back.kept("two faults, then well", lost, lost, R.track(parcel="P1"))
back.kept("not found is no fault", R.track(parcel="P1") >> NotFoundError("404"))
back.kept("another parcel by the same service", lost, R.track(parcel="Q9") >> {"eta": "Monday"})
goal.kept("the last fault counts", lost, R.a(), R.b(), lost, R.a(), W.refund(order="A17"))
back.kept("ten steps", lost, *[R.a(n=n) for n in range(8)], R.track(parcel="P1"))

# --- more ------------------------------------------------------------------------------------------------------------

inbox.broken(
    "two wait for each other, through a delegate",
    request("a", "r1", "b"),
    agent("c", R.x()),
    request("b", "r2", "a"),
    answer("a", "r2"),
    answer("b", "r1"),
)
circle.kept(
    "handed back, then the delegate asks for something else",
    agent("a", delegate("b", "draft", R.x())),
    tell("ok"),
    agent("b", delegate("a", "approve the draft", R.y())),
)
fall.broken("handed to and fro", *at(2), *[delegate("b", f"part {n}", R.x()) for n in range(9)], horizon=12)
fall.broken("only talk", *at(2), *[tell(f"still working, {n}") for n in range(30)], horizon=12)
fall.kept("a delegate finishes", *at(2), *[R.again(n=n) for n in range(5)], delegate("b", "end it", finish("done")))
fall.kept("a failure in a tool, then it returns", *at(2), *[R.again(n=n) >> ServerError("500") for n in range(8)])
ends.broken("waits for ever", R.a(), wait(10**9), R.b(), horizon_ms=1_000_000)
ends.broken("retries without end", *[R.track(parcel="P1") >> TimeoutError()] * 50, horizon=25)
ends.broken("replanning without end", *[mitigate("replan")] * 50, horizon=25)
ends.broken("models without end", *[model({"content": "hm"})] * 50, horizon=25)
ends.kept("an error in the last tool, then the end", R.a() >> TimeoutError())
ends.kept("a message as the last word", R.a(), tell("bye"))
ends.kept("two agents, both return", agent("a", R.a()), agent("b", R.b()))
contain.broken(
    "an error in words, nobody reacts",
    R.get_eta(order=1) >> ConnectionError("refused"),
    put("notes", "eta", "Friday"),
    finish("Friday"),
)
contain.broken(
    "only the second of two faults is answered",
    W.save(x=1) >> ServerError("500"),
    *[R.a(n=n) for n in range(12)],
    lost,
    R.track(parcel="P1"),
    finish("x"),
)
contain.kept(
    "a retry after a wait",
    lost,
    wait(3000),
    R.track(parcel="P1") >> TimeoutError(),
    wait(9000),
    R.track(parcel="P1"),
    finish("x"),
)
back.broken("the answer comes, though too late for the budget", lost, *[R.a(n=n) for n in range(15)], finish("Friday"))
back.broken("another tool works, this one is needed", lost, R.get_weather(city="Rome"), R.get_order(order="A17"))

eta = R.get_eta(order=1) >> {"eta": "Friday"}
contain.broken(
    "a stale reply that nobody notices",
    R.get_eta(order=1) >> {"eta": "Monday"},
    eta,
    finish("Monday"),
    schedule=injected("service.stale", "main/service:get_eta#2", cost=4, parameters={"age": 1}),
)
contain.broken(
    "a lost acknowledgement, not looked at",
    W.pay(amount=5),
    finish("paid"),
    schedule=injected("service.lost_ack", "main/service:pay#1", cost=4),
)
contain.kept(
    "a lost acknowledgement, paid again with its key",
    W.pay(amount=5, key="k"),
    W.pay(amount=5, key="k"),
    finish("paid"),
    schedule=injected("service.lost_ack", "main/service:pay#1", cost=4),
)
contain.kept(
    "noticed, and taken from elsewhere",
    W.pay(amount=5),
    detect("no acknowledgement"),
    mitigate("alternate", service="bank"),
    finish("paid"),
    schedule=injected("service.lost_ack", "main/service:pay#1", cost=4),
)
collision.broken("at the same time", together(agent("a", put("notes", "n", 1)), agent("b", put("notes", "n", 2))))
collision.kept("at the same time, two keys", together(agent("a", put("notes", "n", 1)), agent("b", put("notes", "m", 2))))

# --- several at once -------------------------------------------------------------------------------------------------

collision.broken(
    "read, then somebody writes, then written",
    agent("c", put("notes", "n", 0)),
    agent("b", get("notes", "n")),
    agent("a", get("notes", "n"), put("notes", "n", 1)),
    agent("b", put("notes", "n", 2)),
)
collision.kept(
    "read again after the other wrote",
    agent("b", get("notes", "n")),
    agent("a", put("notes", "n", 1)),
    agent("b", get("notes", "n"), put("notes", "n", 2)),
)
collision.kept(
    "a delegate reads first",
    agent("a", put("notes", "eta", "Friday"), delegate("b", "set the eta", get("notes", "eta"), put("notes", "eta", "Monday"))),
)
swing.broken(
    "with messages in between",
    *[
        step
        for _ in range(3)
        for step in (agent("a", up), agent("a", msg("b", "up")), agent("b", down), agent("b", msg("a", "down")))
    ],
)
swing.kept("a poll with its wait", *[step for n in range(5) for step in (R.get_status(job=1), W.note(n=n))])
replan.kept("a new plan after each read", *[step for n in range(3) for step in (plan, W.write_file(path=f"{n}"))])
circle.broken(
    "a circle among workers, the lead waits", agent("lead", delegate("a", "1", delegate("b", "2", delegate("a", "3", R.x()))))
)
circle.kept("a pool of workers", agent("lead", together(*[delegate(w, f"part {w}", R.x().ms(5)) for w in "abcd"])))
circle.kept(
    "the lead asks twice",
    agent("lead", delegate("a", "part 1", R.x()), delegate("b", "part 2", R.y()), delegate("a", "part 3", R.z())),
)
contain.broken(
    "another agent works on, nobody looks at the fault", agent("a", lost), agent("b", W.note(text="all fine")), finish("Friday")
)
contain.kept(
    "another agent takes it over",
    agent("a", lost, delegate("b", "track failed with a timeout, please look", R.track(parcel="P1"))),
    finish("Friday"),
)
contain.kept(
    "a rate limit, waited for", R.search(q="x") >> RateLimitError("429"), wait(30_000), R.search(q="x"), finish("found")
)
contain.broken(
    "an empty answer is made up after a rate limit", R.search(q="x") >> RateLimitError("429"), finish("There are no shoes.")
)
contain.broken(
    "two services fail, one is answered",
    together((R.track(parcel="P1") >> TimeoutError()).ms(5), (R.get_price(id=3) >> TimeoutError()).ms(6)),
    R.track(parcel="P1"),
    *[R.a(n=n) for n in range(12)],
    finish("x"),
)
contain.kept(
    "two services fail, both are answered",
    together((R.track(parcel="P1") >> TimeoutError()).ms(5), (R.get_price(id=3) >> TimeoutError()).ms(6)),
    R.track(parcel="P1"),
    R.get_price(id=3),
    finish("x"),
)
contain.kept(
    "told honestly", lost, finish("I could not reach the carrier, so I do not know when it arrives.", status="aborted")
)
