from __future__ import annotations

import asyncio
import re
from random import Random
from urllib.parse import urlsplit

import pytest

import mat

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import persona, play
from contractbench.hands import Habits, Hands
from contractbench.task import task as the_task

from mat_contracts.observation import primary_label


@pytest.fixture
def play_with():
    """Plays a task with any agent function, in a run of its own: (result, events)."""

    def playing(task_id, agent, seed=0, **options):
        task = the_task(task_id)
        with mat.run(seed=seed, task=task_id):
            return asyncio.run(play(task, seed, agent, name="planted", **options))

    return playing


@pytest.fixture
def play_as():
    """Plays a task with the habits of the oracle or of a persona, in a run of its own: (result, events)."""

    def playing(task_id, name, seed=0, **options):
        task = the_task(task_id)
        with mat.run(seed=seed, task=task_id):
            return asyncio.run(play(task, seed, persona(name, task, seed, levers=options.get("levers")), name=name, **options))

    return playing


@pytest.fixture
def play_changed():
    """Plays a task as the oracle does, but for one request: (result, events).

    where: regular expression of "METHOD /path" of the request meant; nth: which of those that match, 0 for every one.
    edit(request): changes {"method", "url", "headers", "json", "form"} in place. wait: seconds spent before it goes out.
    """

    def playing(task_id, where, edit=None, *, wait=0.0, nth=1, seed=0, **options):
        task = the_task(task_id)
        agent = changed(task, where, edit, wait, nth, seed)
        with mat.run(seed=seed, task=task_id):
            return asyncio.run(play(task, seed, agent, name="planted", **options))

    return playing


@pytest.fixture
def judged_with():
    """The labels of an episode that an agent function plays: (by server and validator, by the library from the trace alone)."""

    def judging(task_id, agent, seed=0):
        return judged(the_task(task_id), agent, seed)[1:]

    return judging


@pytest.fixture
def judged_changed():
    """The labels (by the server, by the library) where the oracle's plan has one request changed; as play_changed."""

    def judging(task_id, where, edit=None, *, wait=0.0, nth=1, seed=0):
        task = the_task(task_id)
        return judged(task, changed(task, where, edit, wait, nth, seed), seed)[1:]

    return judging


@pytest.fixture
def all_labels():
    """(label of the first refusal, the server's label of the episode, the library's) where one request is changed."""

    def judging(task_id, where, edit):
        task = the_task(task_id)
        events, server, library = judged(task, changed(task, where, edit), 0)
        return next((event.label for event in events if event.failure), None), server, library

    return judging


def judged(task, agent, seed):
    """(events, the server's label, the label from the trace alone) of an episode under the task's promises."""
    with mat.run(contracts=task.contracts(task.given(seed)), seed=seed, task=task.id) as run:
        result, events = asyncio.run(play(task, seed, agent, name="planted"))
    assert not [item.error for item in run.result.outcomes if item.outcome == "unknown"]
    return events, result.failure_label, primary_label(run.result.violations, result.success)


def changed(task, where, edit=None, wait=0.0, nth=1, seed=0):
    """An agent that does what the oracle does, but for one request."""

    async def agent(instruction, tools):
        return await task.plan(Hands(instruction, Changed(tools, where, edit, wait, nth), Habits(Random(seed))))

    return agent


class Changed:
    """The tools of an agent, with a change to one of its requests on the way."""

    def __init__(self, tools, where, edit, wait, nth):
        self._tools, self._where, self._edit, self._wait, self._nth = tools, where, edit, wait, nth
        self._seen = 0

    def __getattr__(self, name):
        return getattr(self._tools, name)

    async def http(self, method, url, **parts):
        request = {"method": method, "url": url, **parts}
        if re.fullmatch(self._where, f"{method} {urlsplit(url).path}"):
            self._seen += 1
            if self._nth in (0, self._seen):
                if self._wait:
                    await self._tools.wait(self._wait)
                if self._edit is not None:
                    self._edit(request)
        return await self._tools.http(request.pop("method"), request.pop("url"), **request)
