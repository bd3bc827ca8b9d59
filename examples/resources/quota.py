"""Concurrent finders that may search three times in total, limited by a contract above them or by a counter of their own.

The counter is what people write first: check that a search is left, search, decrement. It is correct as long as no other
finder acts between the check and the decrement. Under a contract the mediator reserves the search before it begins, so the
order does not matter. An attempt that fails counts as a search, too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import MutableMapping
from typing import Any, Final

import mat
from mat.resources import ResourceContract

SEARCHES: Final = 3
TRIES: Final = 2
"""Attempts of a finder at one question when the search engine does not answer."""
DOWN: Final = (OSError, mat.errors.RateLimited)
QUESTIONS: Final = {"supply": ("price", "stock"), "demand": ("orders", "returns")}
"""finder -> what it wants to know: four questions, three searches"""


@mat.tool(effect="write", reversible=False)
def web_search(query: str) -> list[str]:
    """Its only effect is the bill: every search is paid for, even if its answer is lost."""
    return [f"about {query}"]


@mat.tool(name="web_search", effect="write", reversible=False)
async def web_search_async(query: str) -> list[str]:
    await asyncio.sleep(1)
    return [f"about {query}"]


class Notes:
    """The findings, and in `quota` the finders' own counter."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self.missing: list[str] = []
        self._counter: dict[str, int] = {"searches": SEARCHES}
        self.quota: MutableMapping[str, int] = mat.memory(self._counter, name="quota")


# -- a counter of their own ---------------------------------------------------------------------------------------------


def by_counter(notes: Notes) -> None:
    """In threads: each finder checks, searches and decrements."""
    threads = [threading.Thread(target=_find_by_counter, args=(name, asked, notes)) for name, asked in QUESTIONS.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _find_by_counter(name: str, asked: tuple[str, ...], notes: Notes) -> None:
    with mat.agent(name, role="finder"):
        for question in asked:
            left = notes.quota.get("searches", 0)
            if not isinstance(left, int) or left < 1:
                notes.missing.append(question)
                continue
            try:
                notes.found[question] = web_search(question)
            except DOWN as error:
                _given_up(question, error, notes)
            notes.quota["searches"] = left - 1


# -- a contract above them ----------------------------------------------------------------------------------------------

RESEARCH: Final = ResourceContract(name="research", budgets={"tool:web_search": SEARCHES, "subcontracts": 8})
FIND: Final = ResourceContract(name="find")
"""No budget of its own: its searches are charged to the nearest contract above that has one."""


def by_contract(notes: Notes) -> None:
    """In threads: every question is a sub-contract of a finder's sub-contract, two levels below the limit."""
    with mat.budget.contracted(RESEARCH, agent="planner", role="planner") as work:

        def find(name: str, asked: tuple[str, ...]) -> None:
            with work.delegate(FIND, agent=name, role="finder") as finder:
                for question in asked:
                    with finder.delegate(FIND, agent=name, task=question, role="finder"):
                        _find(question, notes)

        threads = [threading.Thread(target=find, args=item) for item in QUESTIONS.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _find(question: str, notes: Notes) -> None:
    for _ in range(TRIES):
        try:
            notes.found[question] = web_search(question)
            return
        except DOWN as error:
            mat.detect(f"{question}: {type(error).__name__}")
            mat.mitigate("retry")
        except mat.Blocked as spent:
            _given_up(question, spent, notes)
            return
    _given_up(question, None, notes)


def _given_up(question: str, error: Exception | None, notes: Notes) -> None:
    mat.detect(f"{question}: {type(error).__name__ if error else 'no answer'}")
    mat.mitigate("escalate", reason=question)
    notes.missing.append(question)


async def by_contract_in_tasks(notes: Notes) -> None:
    """The same in tasks of one event loop, where every search takes a second."""
    async with mat.budget.contracted(RESEARCH, agent="planner", role="planner") as work:

        async def find(name: str, asked: tuple[str, ...]) -> None:
            async with work.delegate(FIND, agent=name, role="finder") as finder:
                for question in asked:
                    async with finder.delegate(FIND, agent=name, task=question, role="finder"):
                        await _find_async(question, notes)

        await asyncio.gather(*(find(*item) for item in QUESTIONS.items()))


async def _find_async(question: str, notes: Notes) -> None:
    for _ in range(TRIES):
        try:
            notes.found[question] = await web_search_async(question)
            return
        except DOWN as error:
            mat.detect(f"{question}: {type(error).__name__}")
            mat.mitigate("retry")
        except mat.Blocked as spent:
            _given_up(question, spent, notes)
            return
    _given_up(question, None, notes)
