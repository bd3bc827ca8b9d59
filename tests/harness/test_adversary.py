"""An adversary's seat in a run: what it is shown, what it may answer, and that what it chose is a schedule like any other."""

from __future__ import annotations

import asyncio
import pickle
from contextlib import suppress
from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest

import mat
from mat.boundary.catalog import Catalog
from mat.boundary.effect import PASS, Delay, Drop, Duplicate, Hold, Raise, Replace
from mat.core import limits
from mat.core.adversary import Adaptive, Seen
from mat.core.errors import SpecError
from mat.core.run import Run
from mat.core.site import parse_site
from mat.temporal import always, eventually, tool_call

MARK = "0x5ec2e7"


def _stale(call, reply, stream):
    return Replace(call.history[0]) if call.history else PASS


def _noisy(call, reply, stream):
    return Replace({"status": f"shuffled {stream.randrange(1_000)}"})


OPERATORS = Catalog(
    [
        mat.spec.operator("service.timeout", lambda call, reply, stream: Raise("timeout", delay_ms=700)),
        mat.spec.operator(
            "service.outage", lambda call, reply, stream: Raise("connection"), grid=[{"calls": 3, "magnitude": 1}]
        ),
        mat.spec.operator("service.stale", _stale, phase="after"),
        mat.spec.operator("service.noisy", _noisy, phase="after"),
        mat.spec.operator("service.twice", lambda call, reply, stream: Duplicate(), kinds=["tool_call"]),
        mat.spec.operator("service.slow", lambda call, reply, stream: Delay(900)),
        mat.spec.operator("memory.forget", lambda call, reply, stream: Drop(), kinds=["memory_write"]),
        mat.spec.operator("memory.old", _stale, phase="after", kinds=["memory_read"]),
        mat.spec.operator("prompt.inject", lambda call, reply, stream: Replace(f"{reply.value} and hurry"), phase="after"),
        mat.spec.operator("model.blank", lambda call, reply, stream: Replace(""), phase="after"),
        mat.spec.operator("delegation.lose", lambda call, reply, stream: Drop(), kinds=["message"]),
        mat.spec.operator("retrieval.nothing", lambda call, reply, stream: Replace([]), phase="after"),
        mat.spec.operator("order.others", lambda call, reply, stream: Hold(1), price=lambda parameters, model: 1),
    ]
)


@mat.tool
def look(order: str) -> dict[str, str]:
    return {"status": f"{order} is fine"}


@mat.tool(effect="write", impact="high")
def pay(order: str, amount: int) -> dict[str, str]:
    return {"receipt": order}


@mat.tool
def broken(order: str) -> str:
    raise LookupError(order)


@mat.tool(perturb=False)
def guarded(order: str) -> str:
    return order


@mat.tool(perturb=["service.slow"])
def choosy(order: str) -> str:
    return order


@mat.model("planner")
def plan(prompt: str) -> str:
    return f"do {prompt}"


@mat.retriever("kb")
def find(query: str) -> list[mat.Passage]:
    return [mat.Passage(id="p1", text=query)]


def retrying():
    for order in ("A", "B", "C"):
        for _ in range(3):
            with suppress(OSError):
                pay(order, 5 if look(order)["status"] else 50)
                break
    mat.finish("done")


def remembering():
    notes = mat.memory({}, name="notes")
    for index in range(4):
        notes["last"] = index
        notes["sum"] = (notes.get("last") or 0) + index
        look(str(notes.get("sum")))


def talking():
    text = mat.untrusted("refund A please", channel="email")
    with mat.agent("planner", role="lead"):
        said = plan(text)
        found = find(said or "nothing")
        mat.message("worker", said)
    with mat.agent("worker", role="clerk" if said else "admin"):
        if found:
            look("A")
        with suppress(LookupError):
            broken("A")
        guarded("A")
        choosy("A")


def crashing():
    look("A")
    pay(look("B")["status"], 1)


@mat.tool
async def fetch(part: str) -> str:
    await asyncio.sleep(0.2)
    return part


def together():
    async def several():
        async def one(part):
            for _ in range(2):
                with suppress(OSError):
                    await fetch(part)

        await asyncio.gather(*(one(part) for part in "xyz"))

    asyncio.run(several())


AGENTS = {body.__name__: body for body in (retrying, remembering, talking, crashing, together)}


@mat.step_contract(on="tool_call", severity="hard")
def payments_are_small(record):
    return record.action.arguments.get("amount", 0) < 10


def executed(body, *, schedule=(), adversary=None, contracts=(payments_are_small,), **options) -> Run:
    run = mat.run(list(contracts), schedule=schedule, operators=OPERATORS, adversary=adversary, **options)
    with suppress(OSError, TypeError, KeyError), run:
        body()
    assert run.result is not None
    return run.result


def injection(seen: Seen, operator: str, *, span: int = 1) -> mat.spec.Perturbation:
    site, choice = parse_site(seen.site), OPERATORS[operator].spec().choices[0]
    return mat.spec.Perturbation(
        operator=operator, site=replace(site, last=site.nth + span - 1), parameters=choice.parameters, cost=choice.cost
    )


class AtRandom:
    """Any operator that can act, in one of three calls, as long as the budget lasts."""

    def __init__(self, seed: int) -> None:
        self.stream, self.shown = Random(seed), []

    def __call__(self, seen: Seen) -> mat.spec.Perturbation | None:
        self.shown.append(seen)
        operator = OPERATORS[seen.operators[self.stream.randrange(len(seen.operators))]]
        choice = operator.spec().choices[0]
        if self.stream.randrange(3) or choice.cost > seen.rest:
            return None
        return injection(seen, operator.id, span=choice.span)


class TestWhatItChoseIsASchedule:
    @pytest.mark.full
    @pytest.mark.parametrize("states", [False, True])
    @pytest.mark.parametrize("name", AGENTS)
    def test_executed_plainly_it_makes_the_same_run(self, name, states):
        chosen = set()
        for seed in range(25):
            run = executed(AGENTS[name], adversary=AtRandom(seed), states=states, seed=seed)
            again = executed(AGENTS[name], schedule=run.spec.schedule, states=states, seed=seed)
            assert (again.head, again.id, again.states) == (run.head, run.id, run.states)
            assert (again.unreached, again.tape, again.outcomes) == (run.unreached, run.tape, run.outcomes)
            assert run.spec.schedule.cost <= limits.BUDGET
            chosen |= {item.operator for item in run.spec.schedule}
        assert len(chosen) >= 3

    def test_under_governance_that_asks_for_approval_too(self):
        def capped(proposed):
            if proposed.action.name != "pay":
                return None
            return mat.policy.NeedsApproval() if proposed.action.arguments["order"] == "B" else mat.policy.Allow()

        governance = mat.policy.Governance(rules=(capped,), approver=lambda *asked: True)
        approved = []
        for seed in range(10):
            run = executed(retrying, adversary=AtRandom(seed), governance=governance)
            again = executed(retrying, schedule=run.spec.schedule, governance=governance)
            assert again.head == run.head
            approved += [record for record in run.records if record.mediation is not None and record.mediation.approval]
        assert {record.invoked > 0 for record in approved} >= {True}

    def test_an_order_that_it_chose_is_kept(self):
        def others_first(seen):
            return injection(seen, "order.others") if seen.boundary == "order" and seen.rest else None

        run = executed(together, adversary=others_first)
        plain = executed(together, schedule=run.spec.schedule)
        assert {item.operator for item in run.spec.schedule} == {"order.others"}
        assert plain.head == run.head != executed(together).head

    def test_one_that_lets_everything_pass_makes_the_undisturbed_run(self):
        for body in AGENTS.values():
            for states in (False, True):
                run, plain = executed(body, adversary=lambda seen: None, states=states), executed(body, states=states)
                assert (run.head, run.states, run.spec) == (plain.head, plain.states, plain.spec)
                assert (len(run.seen) > 0, plain.seen) == (True, ())

    def test_an_operator_that_serves_old_replies_knows_those_of_before_it_was_chosen(self):
        run = executed(
            retrying, adversary=lambda seen: injection(seen, "service.stale") if seen.site.endswith("look#3") else None
        )
        delivered = [record.observation.value for record in run.records if record.action.name == "look"]
        assert delivered[2] == {"status": "A is fine"}

    def test_what_is_never_reached_is_reported(self):
        """An operator on the reply of a call that fails by itself."""
        run = executed(talking, adversary=lambda seen: injection(seen, "service.stale") if seen.name == "broken" else None)
        assert run.unreached == run.spec.schedule.perturbations != ()

    def test_it_acts_next_to_a_schedule_that_was_given(self):
        given = mat.spec.schedule([mat.spec.perturbation("service.timeout", "main/service:look#1", {}, 4)])
        run = executed(
            retrying, schedule=given, adversary=lambda seen: injection(seen, "service.noisy") if seen.rest > 4 else None
        )
        assert [str(item.site) for item in run.spec.schedule] == ["main/service:look#1", "main/service:look#2"]
        assert [seen.rest for seen in run.seen][:2] == [8, 4]
        assert executed(retrying, schedule=run.spec.schedule).head == run.head


class TestWhatItIsShown:
    def test_no_text_argument_or_reply_of_the_agent(self):
        def body():
            with suppress(OSError):
                pay(MARK, 10)
            plan(MARK)
            look(MARK)

        def steals(seen):
            shown.append(repr(seen) + repr([getattr(seen, item.name) for item in fields(seen)]))

        shown: list[str] = []
        executed(body, adversary=steals)
        assert [MARK in text for text in shown] == [False, False, False]

    def test_each_call_once_in_the_order_asked(self):
        run = executed(retrying, adversary=lambda seen: None)
        assert [seen.step for seen in run.seen] == [record.step for record in run.records if record.action.boundary]
        assert [seen.site for seen in run.seen] == [record.site for record in run.records if record.action.boundary]

    def test_only_the_operators_that_can_act_there_and_no_call_where_none_can(self):
        shown = {seen.name: seen.operators for seen in executed(talking, adversary=lambda seen: None).seen}
        assert "guarded" not in shown
        assert shown["choosy"] == ("service.slow",)
        assert "service.timeout" in shown["look"]
        assert "model.blank" not in shown["look"]
        assert shown["planner"] == ("model.blank",)

    def test_the_kinds_of_an_operator_count(self):
        shown = {seen.kind: seen.operators for seen in executed(remembering, adversary=lambda seen: None).seen}
        assert (shown["memory_write"], shown["memory_read"]) == (("memory.forget",), ("memory.old",))

    def test_no_call_that_governance_blocked(self):
        def body():
            look("A")
            with suppress(PermissionError):
                pay("A", 1)

        run = executed(body, adversary=AtRandom(0), governance=mat.policy.Governance(capabilities={"main": ["look"]}))
        assert [record.action.name for record in run.records if record.blocked] == ["pay"]
        assert [seen.name for seen in run.seen] == ["look"]

    def test_nothing_inside_a_range_that_is_under_way(self):
        def outage(seen):
            return injection(seen, "service.outage", span=3) if seen.site.endswith("look#2") else None

        run = executed(retrying, adversary=outage)
        assert [seen.site.rpartition("#")[2] for seen in run.seen if seen.name == "look"] == ["1", "2", "5"]

    def test_order_only_where_somebody_else_could_go_first(self):
        assert {seen.boundary for seen in executed(together, adversary=lambda seen: None).seen} == {"service", "order"}
        assert {seen.boundary for seen in executed(retrying, adversary=lambda seen: None).seen} == {"service"}

    def test_failed_calls_of_the_port_broken_contracts_and_its_own_choices(self):
        def body():
            for amount in (1, 50, 60):
                with suppress(OSError):
                    pay("A", amount)
                look("A")

        run = executed(
            body, adversary=lambda seen: injection(seen, "service.timeout") if seen.name == "pay" and seen.step else None
        )
        pays = [seen for seen in run.seen if seen.name == "pay"]
        assert [seen.errors for seen in pays] == [0, 0, 1]
        assert [seen.broken for seen in pays] == [(), (), ("payments_are_small",)]
        assert [seen.injected for seen in pays] == [(), (), ("service.timeout",)]
        assert [seen.rest for seen in pays] == [12, 12, 8]
        assert [seen.errors for seen in run.seen if seen.name == "look"] == [0, 0, 0]

    def test_obligations_that_stand_open(self):
        paid, looked = tool_call("pay"), tool_call("look")
        follows = mat.contract("looked.after", always(paid.implies(eventually(looked, within=9))))

        def body():
            look("A")
            pay("A", 1)
            look("A")
            look("A")

        run = executed(body, adversary=lambda seen: None, contracts=[follows])
        assert [seen.open for seen in run.seen] == [0, 0, 1, 0]

    def test_its_facts_travel(self):
        seen = executed(talking, adversary=lambda seen: None).seen
        assert pickle.loads(pickle.dumps(seen)) == seen


def _elsewhere(seen, **changes):
    item = injection(seen, "service.timeout")
    return replace(item, site=replace(item.site, **changes))


WRONG: dict[str, tuple[Any, str]] = {
    "unknown": (lambda seen: replace(injection(seen, "service.timeout"), operator="service.timeoot"), "did you mean"),
    "boundary": (lambda seen: injection(seen, "memory.forget"), "acts at the memory boundary"),
    "another call": (lambda seen: _elsewhere(seen, nth=2, last=2), "does not begin at this call"),
    "another port": (lambda seen: _elsewhere(seen, name="pay"), "does not begin at this call"),
    "free": (lambda seen: replace(injection(seen, "service.timeout"), cost=0), "is not an integer >= 1"),
    "fractional": (lambda seen: replace(injection(seen, "service.timeout"), cost=1.5), "is not an integer >= 1"),
    "dear": (lambda seen: replace(injection(seen, "service.timeout"), cost=13), "costs 13, but only 12 of the budget is left"),
    "no perturbation": (lambda seen: "service.timeout", "it is a str"),
    "a crash": (lambda seen: 1 / 0, "raised ZeroDivisionError"),
}


class TestWhatItMayAnswer:
    @pytest.mark.parametrize("case", WRONG)
    def test_anything_else_is_an_error_that_names_the_site(self, case):
        answer, said = WRONG[case]
        with pytest.raises(SpecError, match=r"main/service:look#1") as raised:
            executed(crashing, adversary=answer)
        assert said in str(raised.value)

    def test_every_problem_is_said_at_once(self):
        def wrong(seen):
            return replace(_elsewhere(seen, nth=2, last=2), operator="model.blank", cost=99)

        with pytest.raises(SpecError) as raised:
            executed(crashing, adversary=wrong)
        assert all(part in str(raised.value) for part in ("model boundary", "does not begin", "costs 99"))

    def test_an_operator_that_the_port_does_not_allow_is_refused(self):
        def body():
            choosy("A")

        with pytest.raises(SpecError, match="perturb="):
            executed(body, adversary=lambda seen: injection(seen, "service.timeout"))

    def test_a_range_must_not_run_into_what_was_given(self):
        given = mat.spec.schedule([mat.spec.perturbation("service.timeout", "main/service:look#3", {}, 4)])
        with pytest.raises(SpecError, match=r"overlaps with service\.timeout"):
            executed(retrying, schedule=given, adversary=lambda seen: injection(seen, "service.outage", span=3))

    def test_an_agent_cannot_swallow_the_error(self):
        def body():
            for _ in range(3):
                with suppress(Exception):
                    look("A")

        asked = []
        with pytest.raises(SpecError, match="look#1"):
            executed(body, adversary=lambda seen: asked.append(seen) or "nonsense")
        assert len(asked) == 1

    def test_a_budget_of_its_own_is_kept(self):
        run = executed(
            retrying, adversary=Adaptive(choose=lambda seen: injection(seen, "service.noisy") if seen.rest else None, budget=4)
        )
        assert (run.spec.schedule.cost, len(run.spec.schedule)) == (4, 1)
        with pytest.raises(SpecError, match="4 of the budget is left") as raised:
            executed(retrying, adversary=Adaptive(choose=lambda seen: injection(seen, "service.outage", span=3), budget=4))
        assert "costs 5" in str(raised.value)

    @pytest.mark.parametrize("budget", [-1, 1.5, True])
    def test_a_budget_that_is_none_is_refused(self, budget):
        with pytest.raises(SpecError, match="budget"):
            Adaptive(choose=lambda seen: None, budget=budget)
