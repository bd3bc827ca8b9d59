"""States that the user vouches for (StateDigest with complete=True): what is skipped, that it is sound, that lies are seen.

L15 once more, on random agents that can say what their state is: pruned by it, pruned by the history, unpruned and brute
force agree on every contract's cheapest counterexample.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import mat
from mat.boundary.effect import Delay, Replace

STATES, SITES = 3, 3
many = settings(
    max_examples=15, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=[HealthCheck.too_slow]
)


@mat.trace_contract(start=0, on="tool_call", id="count.small")
def writes_stay_few(count, record):
    count += record.action.effect == "write" and record.effected == "yes"
    return mat.Violated("too many writes", state=0) if count > 3 else count


@mat.step_contract(on="tool_call", id="state.good")
def no_bad_state(record):
    return record.action.arguments.get("state") != STATES - 1 or record.action.name != "report"


@mat.step_contract(on="tool_call", id="harm.none")
def no_harm(record):
    return record.action.name != "harm"


@mat.tool(effect="write", perturb=False)
def harm() -> str:
    return "done"


@dataclass
class Automaton:
    """state -> site -> what came of it (0 fine, 1 error, 2 wrong) -> (next state, asks again); it can say where it stands."""

    table: Any
    now: tuple[Any, ...] = ()
    world: list[int] = field(default_factory=list)

    def digest(self) -> object:
        return (*self.now, len(self.world))

    def body(self) -> None:
        self.world = world = []

        @mat.tool(effect="write")
        def act(site: int, state: int) -> int:
            world.append(state)
            return len(world)

        @mat.tool
        def report(state: int, seen: int) -> int:
            return 0

        state = seen = 0
        for site in range(SITES):
            for attempt in range(2):
                self.now = (site, attempt, state, seen)
                try:
                    reply = act(site, state)
                    outcome, seen = (2 if reply < 0 else 0), reply
                except (TimeoutError, ConnectionError):
                    outcome = 1
                state, again = self.table[state][site][outcome]
                if not again:
                    break
        self.now = ("end", state, seen)
        report(state, seen)


cells = st.tuples(st.integers(0, STATES - 1), st.booleans())
fine = st.tuples(st.integers(0, 1), st.just(False))
tables = st.tuples(*[st.tuples(*[st.tuples(fine, cells, cells)] * SITES)] * STATES)
OPERATORS = ("service.timeout", "service.lost_ack", "service.wrong")


@pytest.mark.nightly
@many
@given(table=tables)
def test_what_is_vouched_for_prunes_more_and_agrees_with_brute_force(lab, found, table):
    agent = Automaton(table)
    complete = mat.spec.StateDigest(agent.digest, complete=True, clock=False, concolic=True)
    contracts = [writes_stay_few, no_bad_state]
    made = lab(agent.body, contracts, OPERATORS, digest=complete)
    plain = lab(agent.body, contracts, OPERATORS)
    vouched, varied, history, unpruned = (
        made.search(), made.search(vary=True), plain.search(), made.search(prune=False),
    )  # fmt: skip
    nominal = {violation.contract for violation in plain.nominal().failures}
    brute = {contract: cost for contract, cost in plain.brute_force(8).items() if contract not in nominal}
    assert found(vouched) == found(varied) == found(history) == found(unpruned) == brute
    assert [item.certificate.proven for item in (vouched, varied, history, unpruned)] == [True] * 4
    assert vouched.searched <= history.searched <= unpruned.searched
    assert varied.searched <= vouched.searched


def retrying(state: dict[str, Any], *, fatal: int) -> Any:
    """Eight reads, each retried once; harm if the `fatal` one needs its retry after an earlier one did."""

    @mat.tool
    def read(step: int) -> int:
        return step

    def body() -> None:
        state.clear()
        careful = False
        for step in range(8):
            state.update(step=step, careful=careful, attempt=0)
            try:
                read(step)
            except TimeoutError:
                if careful and step == fatal:
                    harm()
                careful = careful or step == 2
                state.update(careful=careful, attempt=1)
                try:
                    read(step)
                except TimeoutError:
                    return

    return body


@pytest.mark.full
def test_states_that_are_one_by_the_users_word_are_searched_once(lab, found):
    state: dict[str, Any] = {}
    body = retrying(state, fatal=6)
    plain = lab(body, [no_harm], ("service.timeout",)).search(budget=12)
    digest = mat.spec.StateDigest(lambda: dict(state), complete=True, clock=False)
    vouched = lab(body, [no_harm], ("service.timeout",), digest=digest).search(budget=12)
    assert found(plain) == found(vouched) == {"harm.none": 8}
    assert (plain.certificate.proven, vouched.certificate.proven) == (True, True)
    assert vouched.certificate.bound == plain.certificate.bound == 12
    assert (vouched.searched, plain.searched) == (27, 129)
    assert vouched.certificate.skipped["equal state"] > 0


@pytest.mark.parametrize("left_out", ["careful", "attempt"])
def test_a_state_that_leaves_out_what_decides_withdraws_the_certificate(lab, left_out):
    state: dict[str, Any] = {}
    body = retrying(state, fatal=6)
    digest = mat.spec.StateDigest(
        lambda: {key: item for key, item in state.items() if key != left_out}, complete=True, clock=False
    )
    result = lab(body, [no_harm], ("service.timeout",), digest=digest).search(budget=12)
    assert not result.certificate.proven
    assert "mat_state_digest" in result.certificate.reason


def slow(step: dict[str, int]) -> Any:
    """Three reads against a deadline: harm once they have taken more than seven seconds."""

    @mat.tool
    def read(index: int) -> int:
        return index

    def body() -> None:
        began = time.monotonic()
        for index in range(4):
            step["index"] = index
            read(index)
        if time.monotonic() - began > 7:
            harm()

    return body


DELAY = mat.spec.operator(
    "service.later", lambda call, reply, stream: Delay(call.parameters["s"] * 1000), grid=[{"s": 2}, {"s": 4}],
    price=lambda parameters, model: parameters["s"],
)  # fmt: skip


def test_time_is_part_of_a_complete_state_unless_nothing_looks_at_it(lab, found):
    step: dict[str, int] = {}
    body = slow(step)
    with_clock = mat.spec.StateDigest(lambda: dict(step), complete=True)
    honest = lab(body, [no_harm], (), extra=[DELAY], digest=with_clock).search(budget=8)
    assert (found(honest), honest.certificate.proven) == ({"harm.none": 8}, True)
    lying = mat.spec.StateDigest(lambda: dict(step), complete=True, clock=False)
    result = lab(body, [no_harm], (), extra=[DELAY], digest=lying).search(budget=8)
    assert not result.certificate.proven


def test_an_operator_that_looks_at_more_than_the_call_is_not_skipped_by_a_state(lab, found):
    """It serves what the port replied first: two equal states with another past are two for it, and one for a time-out."""
    state: dict[str, Any] = {}
    served = {"n": 0}

    @mat.tool
    def read(step: int) -> int:
        served["n"] += 1
        return 5 if step == 0 and served["n"] > 1 else 0

    def body() -> None:
        state.clear()
        served["n"] = 0
        for step in range(3):
            state.update(step=step)  # what `read` counts decides nothing once step 0 is done
            try:
                reply = read(step)
            except TimeoutError:
                reply = read(step)
            if reply == 5 and step:
                harm()

    first = mat.spec.operator(
        "service.first", lambda call, reply, stream: Replace(call.history[0] if call.history else reply.value), phase="after"
    )
    digest = mat.spec.StateDigest(
        lambda: (dict(state), served["n"] if state["step"] == 0 else None), complete=True, clock=False
    )
    result = lab(body, [no_harm], (), extra=[first], digest=digest).search(budget=12, prune=True)
    unpruned = lab(body, [no_harm], (), extra=[first], digest=digest).search(budget=12, prune=False)
    assert found(result) == found(unpruned)
    assert result.certificate.proven
