"""Agents that look past their calls: at the clock, at dice, at state of their module. Pruned and unpruned search agree."""

from __future__ import annotations

import random
import time

import pytest

import mat

OPERATORS = ("service.timeout", "service.lost_ack", "service.slow", "service.wrong")


@mat.step_contract(on="tool_call", id="harm.none")
def no_harm(record):
    return record.action.name != "harm"


@mat.tool(effect="write", perturb=False)
def harm() -> str:
    return "done"


@mat.tool(effect="write")
def book(step: int) -> int:
    return step


@mat.tool
def booked(step: int) -> bool:
    return False


def reads_the_clock():
    """Books again after a time-out, unless more than three seconds are gone; harm once more than five are."""
    began = time.monotonic()
    for step in range(3):
        try:
            book(step)
        except TimeoutError:
            if time.monotonic() - began <= 3:
                try:
                    book(step)
                except TimeoutError:
                    return
    if time.time() and time.monotonic() - began > 5:
        harm()


def draws():
    """Whether it asks again is drawn, and so is what counts as wrong: the run's dice are part of what the seed decides."""
    patience = random.randrange(2, 4)
    for step in range(3):
        for _ in range(patience):
            try:
                reply = book(step)
            except TimeoutError:
                if random.random() < 0.5 and booked(step):
                    break
                continue
            if reply < 0 and random.randrange(3) == 0:
                harm()
            break


LEDGER: dict[int, int] = {}


def keeps_module_state():
    """A module's ledger, cleared where a case begins; harm where something was booked twice while another was in doubt."""
    LEDGER.clear()
    for step in range(3):
        for _ in range(2):
            try:
                book(step)
                LEDGER[step] = LEDGER.get(step, 0) + 1
                break
            except TimeoutError:
                LEDGER[step] = LEDGER.get(step, 0) + 1
    if sorted(LEDGER.values()) == [1, 2, 2]:
        harm()


CACHE: list[int] = []


def never_clears():
    """A module's cache that outlives its runs, and decides from the third run on."""
    CACHE.append(1)
    book(0)
    if len(CACHE) > 2:
        book(1)


@pytest.mark.full
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("agent", [reads_the_clock, draws, keeps_module_state])
def test_pruned_unpruned_and_brute_force_agree(lab, found, agent, seed):
    made = lab(agent, [no_harm], OPERATORS, seed=seed)
    pruned, unpruned = made.search(budget=10), made.search(budget=10, prune=False)
    nominal = {violation.contract for violation in made.nominal().failures}
    brute = {contract: cost for contract, cost in made.brute_force(10).items() if contract not in nominal}
    assert found(pruned) == found(unpruned) == brute
    assert (pruned.certificate.proven, pruned.certificate.bound) == (True, 10)
    assert (unpruned.certificate.proven, unpruned.certificate.bound) == (True, 10)


@pytest.mark.full
def test_each_agent_has_something_to_find(lab, found):
    """The agreement above is about something: every kind of agent breaks its contract on some seed."""
    for agent in (reads_the_clock, draws, keeps_module_state):
        costs = [found(lab(agent, [no_harm], OPERATORS, seed=seed).search(budget=10)) for seed in range(3)]
        assert any(costs), agent.__name__


@pytest.mark.full
def test_state_of_a_module_that_outlives_its_runs_gives_no_certificate_however_one_searches(lab):
    for prune in (True, False):
        CACHE.clear()
        result = lab(never_clears, [no_harm], OPERATORS).search(budget=10, prune=prune)
        assert not result.certificate.proven
        assert "differs" in result.certificate.reason
