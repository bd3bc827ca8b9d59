"""Budgets and deadlines, and the audit of the ledger. What the audit refuses no run writes: those traces are forged."""

from __future__ import annotations

from tests.truth.templates.notation import (
    Corpus,
    R,
    ServerError,
    again,
    agent,
    edited,
    finish,
    left_out,
    model,
    moved,
    on_work,
    renamed,
    tell,
    together,
    twice,
    wait,
    within,
)

from mat.resources import ResourceContract
from mat_contracts import (
    conserved,
    deadline_met,
    delegation_within_parent,
    exactly_one_terminal_state,
    no_spend_after_terminal,
    reserve_kept,
    utilisation_monotone,
    within_budget,
)

CORPUS = Corpus()


def ask(tokens=600, name="writer", **more):
    usage = {"input_tokens": 100, "output_tokens": tokens - 100}
    return model({"text": ".", "usage": usage}, name, prompt="go on", **more)


def contract(name, tokens=None, calls=None, **more):
    budgets = {key: amount for key, amount in (("tokens", tokens), ("calls", calls)) if amount is not None}
    return ResourceContract(name=name, budgets=budgets, **more)


TEAM = contract("team", 10_000, 20, reserve_percent=10, duration_s=300, depth=3)
RES = contract("res", 4000)
SUB = contract("sub", 1000)
call = R.fetch(x=1)

# --- within_budget ---------------------------------------------------------------------------------------------------

tokens = CORPUS.template("resource.within_budget", within_budget({"tokens": 1000}))
calls = tokens.given(within_budget({"calls": 3}))
searches = tokens.given(within_budget({"tool:search": 2}))
apart = tokens.given(within_budget({"tokens": 1000}, per="agent"))
seconds = tokens.given(within_budget({"seconds": 10}))
owned = tokens.given(within_budget())
tokens.broken("two calls of 600", ask(), ask())
tokens.broken("one call that is too large", ask(1001))
calls.broken("four calls", call, call, call, call)
calls.broken("failures count", *[R.fetch(x=1) >> TimeoutError()] * 4)
searches.broken("three searches", *[R.search(q=n) for n in range(3)])
apart.broken("one of two agents", agent("a", ask()), agent("b", ask(), ask()))
seconds.broken("eleven seconds in calls", R.slow().ms(6000), R.slow().ms(5000))
owned.broken("an overrun", within(SUB, "boss", ask(1200)))
tokens.broken("two agents together", agent("a", ask()), agent("b", ask()))
calls.broken("models and tools", call, ask(5), call, ask(5))
tokens.broken("usage as another provider names it", *[model({"usage": {"prompt_tokens": 100, "completion_tokens": 500}})] * 2)
tokens.kept("exactly the budget", ask(500), ask(500))
tokens.kept("replies without usage", model("x"), model("y"))
calls.kept("three", call, call, call)
calls.kept("a blocked one does not count", call, call, call, R.fetch(x=1).blocked())
searches.kept("other tools", *[R.find(q=n) for n in range(9)], R.search(q=1))
apart.kept("each its own", agent("a", ask()), agent("b", ask()))
seconds.kept("waiting is no call", R.slow().ms(6000), wait(60_000), R.slow().ms(4000))
owned.kept("within its contract", within(SUB, "boss", ask(600)))
owned.kept("the second is refused", within(contract("x", calls=1), "boss", call, call))
calls.kept("messages are no calls", *[tell("x") for _ in range(9)])
tokens.kept("nothing")

# --- deadline_met ----------------------------------------------------------------------------------------------------

deadline = CORPUS.template("resource.deadline_met", deadline_met(within_ms=60_000))
of_each = deadline.given(deadline_met(within_ms=60_000, per="agent"))
mine = deadline.given(deadline_met(within_ms=60_000, agents="clerk"))
contracts = deadline.given(deadline_met())
quick = contract("quick", calls=9, duration_s=10)
deadline.broken("a long wait", call, wait(61_000), call)
deadline.broken("the last call ends too late", call, wait(50_000), R.slow().ms(20_000))
deadline.broken("one very slow call", R.slow().ms(61_000))
of_each.broken("the second agent", agent("a", call, wait(70_000)), agent("b", call, wait(70_000), call))
mine.broken("the clerk", agent("clerk", call, wait(61_000), call))
contracts.broken("the contract expires", within(quick, "boss", call, wait(11_000), call))
contracts.broken("it ends too late", within(quick, "boss", R.slow().ms(15_000)))
deadline.broken("many short steps", *[s for n in range(14) for s in (R.x(n=n), wait(5000))])
deadline.kept("exactly", call, wait(60_000), call)
deadline.kept("short", call, wait(1000), finish("x"))
of_each.kept("each is quick, one after the other", agent("a", call, wait(50_000), call), agent("b", call, wait(50_000), call))
mine.kept("another agent is slow", agent("clerk", call), agent("b", wait(90_000), call))
contracts.kept("in time", within(quick, "boss", call, wait(5000), call))
contracts.kept("no contract", call, wait(900_000), call)
deadline.kept("it starts late", wait(100_000), call, wait(10_000), call)
contracts.kept("without a deadline", within(SUB, "boss", ask(5), wait(900_000), ask(5)))

# --- the audit -------------------------------------------------------------------------------------------------------

work = (
    within(RES, "res", ask(), call, on_work("res", lambda work: work.top_up(tokens=500))),
    ask(),
    on_work("team", lambda work: work.spend(calls=2)),
    within(SUB, "sub", ask(300)),
)
team = within(TEAM, "boss", *work)


def put(path, value):
    def change(data):
        *way, last = path
        for key in way:
            data = data[key]
        data[last] = value

    return change


kept_law = CORPUS.template("resource.conserved", conserved())
parent = CORPUS.template("resource.delegation_within_parent", delegation_within_parent())
once = CORPUS.template("resource.exactly_one_terminal_state", exactly_one_terminal_state())
after = CORPUS.template("resource.no_spend_after_terminal", no_spend_after_terminal())
reserve = CORPUS.template("resource.reserve_kept", reserve_kept())
monotone = CORPUS.template("resource.utilisation_monotone", utilisation_monotone())

# Real runs keep each law of the ledger, whatever the agents do.
for law in (kept_law, parent, once, after, reserve, monotone):
    law.kept("a team and two sub-contracts", team)
    law.kept("a call that overruns", within(TEAM, "boss", within(SUB, "sub", ask(5000), ask())))
    law.kept("a call that is refused", within(contract("x", calls=1), "boss", call, call))
    law.kept("calls in parallel", within(TEAM, "boss", together(ask().ms(30), ask().ms(20), call.ms(10))))
    law.kept("a call that fails", within(TEAM, "boss", R.fetch(x=1) >> ServerError("500"), call))
    law.kept("a deadline that passes", within(contract("q", calls=5, duration_s=10), "boss", call, wait(20_000), call))
    law.kept("three levels", within(TEAM, "boss", within(RES, "res", within(SUB, "sub", ask(200)), ask(300))))
    law.kept(
        "a top-up from the reserve",
        within(
            TEAM,
            "boss",
            within(
                contract("big", 9000), "res", on_work("big", lambda work: work.top_up(from_reserve=True, tokens=500)), ask()
            ),
        ),
    )
    law.kept("too much is asked of the team", within(TEAM, "boss", within(contract("big", 90_000), "res", ask()), ask()))
    law.kept("cancelled", within(TEAM, "boss", within(RES, "res", ask(), on_work("res", lambda work: work.cancel()), ask())))
    law.kept("no contract", call, ask())

kept_law.broken(
    "less is charged than the model took", team, forge=edited("writer", put(["amounts", "res#1", "tokens"], 60), "res#1")
)
kept_law.broken("an entry is missing", team, forge=left_out("spent"))
kept_law.broken("an entry stands twice", team, forge=twice("spent"))
kept_law.broken(
    "more is allocated than is free", team, forge=edited("activated", put(["allocations", "team#1", "tokens"], 40_000), "res#1")
)
kept_law.broken(
    "more comes back than was left",
    team,
    forge=edited("fulfilled", put(["returned", "res#1", "team#1", "tokens"], 9000), "res#1"),
)
kept_law.broken("nothing comes back", team, forge=edited("fulfilled", put(["returned"], {}), "res#1"))
kept_law.broken("the report is too low", team, forge=edited("fulfilled", put(["consumed", "tokens"], 300), "team#1"))
kept_law.broken("a call is not settled", team, forge=edited("fetch", lambda data: data.clear()))
kept_law.broken(
    "charged to another account",
    team,
    forge=edited("writer", put(["amounts"], {"team#1": {"calls": 1, "tokens": 600}}), "res#1"),
)
kept_law.broken("a call is charged twice", team, forge=edited("fetch", put(["amounts", "team#1", "calls"], 2)))

parent.broken(
    "more than the team has", team, forge=edited("activated", put(["allocations", "team#1", "tokens"], 40_000), "res#1")
)
parent.broken("a later deadline", team, forge=edited("activated", put(["due_ms"], 900_000), "res#1"))
parent.broken("no deadline below a deadline", team, forge=edited("activated", put(["due_ms"], None), "res#1"))
parent.broken("a top-up that is too large", team, forge=edited("reallocated", put(["allocations", "team#1", "tokens"], 9500)))
parent.broken(
    "from a contract that is not above it",
    team,
    forge=edited("activated", put(["allocations"], {"sub#1": {"tokens": 4000}}), "res#1"),
)
parent.broken("from nowhere", team, forge=edited("activated", put(["allocations"], {"": {"tokens": 4000}}), "res#1"))
parent.broken("a team that has ended", team, forge=moved("fulfilled", "activated", "team#1", "sub#1"))
parent.broken(
    "deeper than is allowed",
    within(contract("team", 10_000, depth=2), "boss", within(RES, "res", within(SUB, "sub", ask(200)))),
    forge=edited("drafted", put(["depth"], 1), "team#1"),
)

once.broken("it never ends", team, forge=left_out("fulfilled", "res#1"))
once.broken("it ends twice", team, forge=again("fulfilled", "res#1"))
once.broken("the team never ends", team, forge=left_out("fulfilled", "team#1"))
once.broken("activated twice", team, forge=again("activated", "sub#1"))
once.broken("never activated", team, forge=left_out("activated", "res#1"))
once.broken(
    "fulfilled beyond its budget",
    within(TEAM, "boss", within(SUB, "sub", ask(5000))),
    forge=renamed("violated", "fulfilled", "sub#1"),
)
once.broken("activated after its end", team, forge=moved("fulfilled", "activated", "sub#1", "sub#1"))
once.broken("never drafted", team, forge=left_out("drafted", "res#1"))

after.broken("a call after its end", team, forge=moved("fulfilled", "writer", "res#1", "res#1"))
after.broken("a tool call after its end", team, forge=moved("fulfilled", "fetch", "res#1"))
after.broken("the contract above has ended", team, forge=moved("fulfilled", "writer", "team#1", "sub#1"))
after.broken("spent by hand after its end", team, forge=moved("fulfilled", "spent", "team#1"))
after.broken(
    "spent by hand after its only call and its end",
    within(TEAM, "boss", ask(), on_work("team", lambda work: work.spend(calls=1))),
    forge=moved("fulfilled", "spent", "team#1"),
)
after.broken("its own model call", within(TEAM, "boss", ask(), ask(50)), forge=moved("fulfilled", "writer", "team#1"))
after.broken(
    "an overrun, and one call more",
    within(TEAM, "boss", within(SUB, "sub", ask(5000)), call),
    forge=moved("fulfilled", "fetch", "team#1"),
)
after.broken(
    "two levels above",
    within(TEAM, "boss", within(RES, "res", within(SUB, "sub", ask(200)))),
    forge=moved("fulfilled", "writer", "team#1"),
)

reserve.broken(
    "the reserve is handed on", team, forge=edited("activated", put(["allocations", "team#1", "tokens"], 9500), "res#1")
)
reserve.broken("a top-up takes from it", team, forge=edited("reallocated", put(["allocations", "team#1", "tokens"], 5500)))
reserve.broken("a larger reserve was agreed", team, forge=edited("drafted", put(["reserve", "tokens"], 8000), "team#1"))
reserve.broken("all of it", team, forge=edited("activated", put(["allocations", "team#1", "tokens"], 10_000), "res#1"))
reserve.broken(
    "the second sub-contract", team, forge=edited("activated", put(["allocations", "team#1", "tokens"], 8500), "sub#1")
)
reserve.broken(
    "from the reserve, without saying so",
    within(
        TEAM,
        "boss",
        within(contract("big", 9000), "res", on_work("big", lambda work: work.top_up(from_reserve=True, tokens=500)), ask()),
    ),
    forge=edited("reallocated", put(["from_reserve"], False)),
)
reserve.broken(
    "one token of it",
    within(TEAM, "boss", within(contract("big", 9000), "res", ask())),
    forge=edited("activated", put(["allocations", "team#1", "tokens"], 9001), "big#1"),
)
reserve.broken(
    "a middle contract's reserve",
    within(TEAM, "boss", within(contract("mid", 4000, reserve_percent=50), "m", within(SUB, "sub", ask(200)))),
    forge=edited("activated", put(["allocations", "mid#1", "tokens"], 2500), "sub#1"),
)

monotone.broken("a negative charge", team, forge=edited("writer", put(["amounts", "res#1", "tokens"], -600), "res#1"))
monotone.broken("a negative amount by hand", team, forge=edited("spent", put(["amounts", "team#1", "calls"], -2)))
monotone.broken("the report is below its entries", team, forge=edited("fulfilled", put(["consumed", "tokens"], 10), "res#1"))
monotone.broken("a negative allocation", team, forge=edited("activated", put(["allocations", "team#1", "tokens"], -5), "sub#1"))
monotone.broken("the report of the team", team, forge=edited("fulfilled", put(["consumed", "calls"], 0), "team#1"))
monotone.broken("a negative top-up", team, forge=edited("reallocated", put(["allocations", "team#1", "tokens"], -500)))
monotone.broken(
    "a warning counts too little",
    within(TEAM, "boss", within(SUB, "sub", ask(900))),
    forge=edited("warned", put(["consumed"], 5)),
)
monotone.broken(
    "a warning names too large a budget",
    within(TEAM, "boss", within(SUB, "sub", ask(900))),
    forge=edited("warned", put(["budget"], 50_000)),
)

# --- more ------------------------------------------------------------------------------------------------------------

mine.broken("the clerk comes back", agent("clerk", call, wait(30_000), call), agent("clerk", wait(40_000), call))
contracts.broken("a sub-contract expires", within(TEAM, "boss", within(quick, "res", call, wait(11_000), call)))
deadline.kept("many short steps, in time", *[s for n in range(10) for s in (R.x(n=n), wait(5000))])
contracts.kept("the last call ends in time", within(quick, "boss", R.slow().ms(9000)))
parent.broken(
    "a resource of which little is left",
    within(TEAM, "boss", ask(5000), within(RES, "res", ask())),
    forge=edited("activated", put(["allocations", "team#1", "tokens"], 6000), "res#1"),
)
parent.broken(
    "two levels below",
    within(TEAM, "boss", within(RES, "res", within(SUB, "sub", ask(200)))),
    forge=edited("activated", put(["allocations", "res#1", "tokens"], 4500), "sub#1"),
)
once.broken("violated twice", within(TEAM, "boss", within(SUB, "sub", ask(5000))), forge=again("violated", "sub#1"))
once.broken("no contract of two ends", within(TEAM, "boss", within(SUB, "sub", ask(200))), forge=left_out("fulfilled", "sub#1"))
after.broken(
    "activated below a contract that has ended",
    within(TEAM, "boss", within(RES, "res", call)),
    forge=moved("fulfilled", "fetch", "team#1"),
)
after.broken("a slow end", within(contract("solo", 5000, 5), "boss", call, ask()), forge=moved("fulfilled", "writer", "solo#1"))
reserve.broken(
    "all sub-contracts together",
    within(TEAM, "boss", within(contract("a", 5000), "a", within(contract("b", 3000), "b", ask())), within(RES, "res", ask())),
    forge=edited("activated", put(["allocations", "team#1", "tokens"], 9900), "res#1"),
)
reserve.broken(
    "the reserve of calls",
    within(TEAM, "boss", within(contract("c", calls=5), "c", call)),
    forge=edited("activated", put(["allocations", "team#1", "calls"], 19), "c#1"),
)
monotone.broken("a negative charge of calls", team, forge=edited("fetch", put(["amounts", "team#1", "calls"], -1)))
monotone.broken("the report of the second contract", team, forge=edited("fulfilled", put(["consumed", "tokens"], 0), "sub#1"))
