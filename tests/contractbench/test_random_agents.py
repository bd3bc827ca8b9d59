"""Agents that nobody wrote a persona for: habits and changes of single requests, drawn at random; seeded."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from urllib.parse import unquote

import pytest

import mat

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import play
from contractbench.hands import GaveUp, Habits, Hands
from contractbench.task import ids
from contractbench.task import task as the_task

from mat_contracts.observation import FAILURES, primary_label

AGENTS = 15
COPIES = {
    "as it is": lambda text: text,
    "clipped": lambda text: text[:200],
    "short": lambda text: text[:-3],
    "lower": str.lower,
    "upper": str.upper,
    "wrapped": lambda text: f"{text[:30]}\n{text[30:]}" if len(text) > 30 else text,
    "decoded": unquote,
    "sorted": lambda text: "?".join([text.partition("?")[0], "&".join(sorted(text.partition("?")[2].split("&")))]),
    "swapped": lambda text: text[:10] + text[11:12] + text[10:11] + text[12:],
    "unquoted": lambda text: text.strip('"'),
    "full stop": lambda text: f"{text}.",
}
CHANGES = ("", "", "", "late", "twice", "dropped", "altered", "emptied", "bodiless")


class RandomHabits(Habits):
    """Mostly good ones, with one or two that are not, and those not always."""

    def __init__(self, rng):
        super().__init__(rng)
        self.bad = rng.sample(["copy", "order", "wait", "persist", "refresh", "complete", "tempt"], rng.choice([0, 1, 1, 2]))
        self.how, self.often = rng.choice(sorted(COPIES)), rng.choice([0.3, 1.0])
        self.skipped = rng.sample(["field", "token", "digest", "check", "undo"], 2)
        self.patience, self.waits = rng.choice([0, 1, 2]), 0

    def _now(self, what):
        return what in self.bad and self.rng.random() < self.often

    def order(self, items, deadline, *, machine_readable):
        return self.rng.sample(items, len(items)) if self._now("order") else sorted(items, key=deadline)

    def copy(self, text, hands, name):
        return COPIES[self.how](text) if self._now("copy") else text

    def patient(self):
        return not self._now("wait")

    def persistent(self):
        self.waits += "persist" in self.bad
        return self.waits <= 3 + self.patience

    def refreshes(self, *, machine_readable):
        return not self._now("refresh")

    def complete(self, what):
        return what not in self.skipped or not self._now("complete")

    def tempted(self):
        return self._now("tempt")


class ChangedOnce:
    """Tools that change one of the first ten requests on its way."""

    def __init__(self, tools, rng):
        self._tools, self._rng, self._change, self._left = tools, rng, rng.choice(CHANGES), rng.randrange(10)

    def __getattr__(self, name):
        return getattr(self._tools, name)

    async def http(self, method, url, **parts):
        self._left -= 1
        if self._left == 0:
            parts = await self._changed(method, url, parts)
        return await self._tools.http(method, url, **parts)

    async def _changed(self, method, url, parts):
        if self._change == "late":
            await self._tools.wait(self._rng.choice([1, 3, 8, 15, 30]))
        if self._change == "twice":
            await self._tools.http(method, url, **parts)
        if self._change == "bodiless":
            return {name: part for name, part in parts.items() if name not in ("json", "form")}
        fields = [
            (part, name) for part in ("headers", "json", "form") if isinstance(parts.get(part), dict) for name in parts[part]
        ]
        if self._change not in ("dropped", "altered", "emptied") or not fields:
            return parts
        part, name = self._rng.choice(fields)
        rest = {field: item for field, item in parts[part].items() if field != name}
        if self._change != "dropped":
            rest[name] = "" if self._change == "emptied" else _altered(parts[part][name])
        return {**parts, part: rest}


def _altered(value):
    if isinstance(value, str):
        return value[:-1] + ("y" if value.endswith("x") else "x")
    return value + 1 if isinstance(value, int) else value[:-1] if isinstance(value, list) else {}


def labels(task, number):
    """The labels of one random agent's episode: (by the server, by the library from the trace alone)."""
    rng = Random(f"{task.id}/{number}")
    seed = rng.randrange(50)

    async def agent(instruction, tools):
        try:
            await task.plan(Hands(instruction, ChangedOnce(tools, rng), RandomHabits(rng)))
        except (KeyError, TypeError, AttributeError, IndexError) as error:  # a plan does not expect what its request became
            raise GaveUp(str(error)) from error

    with mat.run(contracts=task.contracts(task.given(seed)), seed=seed, task=task.id) as run:
        result, _ = asyncio.run(play(task, seed, agent, name="random"))
    assert not [item.error for item in run.result.outcomes if item.outcome == "unknown"]
    return result.failure_label, primary_label(run.result.violations, result.success)


@pytest.fixture(scope="module")
def episodes():
    return {name: [labels(the_task(name), number) for number in range(AGENTS)] for name in ids()}


@pytest.mark.nightly
def test_the_trace_alone_tells_of_random_agents_what_the_server_tells_in_95_of_100_episodes(episodes):
    apart = Counter((name, *pair) for name, pairs in episodes.items() for pair in pairs if pair[0] != pair[1])
    assert sum(apart.values()) <= 0.05 * AGENTS * len(episodes), apart.most_common()


@pytest.mark.nightly
def test_no_failure_of_a_random_agent_goes_unseen_and_none_is_made_up(episodes):
    pairs = Counter((server == "SUCCESS", library == "SUCCESS") for played in episodes.values() for server, library in played)
    assert pairs[True, False] + pairs[False, True] <= 0.01 * sum(pairs.values())


@pytest.mark.full
def test_random_agents_fail_in_every_way_and_succeed_too(episodes):
    seen = {server for played in episodes.values() for server, _ in played}
    assert {*FAILURES, "SUCCESS"} <= seen
