"""The suite as a whole: the catalogue of seed 003 (appendix D), complete folders, oracles, and nothing that leaks."""

from __future__ import annotations

import ast
import asyncio
import re
from collections import Counter

import pytest

import mat

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE, in_process, persona, play
from contractbench.personas import PERSONAS
from contractbench.task import FOLDER, ids, task

from mat_contracts.observation import FAILURES

SEEDS = range(10)
CATALOGUE = """
| scheduled-maintenance | Medium | Q2 | Timing/Backoff |
| api-rate-limit-patience | Hard | Q2 | Timing/Backoff |
| token-refresh-workflow | Hard | Q2 | Timing/Backoff |
| presigned-url-download | Hard | Q2 | Timing/Backoff |
| csrf-form-submit | Hard | Q3 | Byte-exact |
| url-trap-ellipsis | Hard | Q3 | Byte-exact |
| long-token-handling | Hard | Q3 | Byte-exact |
| extreme-url-length | Hard | Q3 | Byte-exact |
| presigned-url-integrity | Hard | Q4 | Signed requests |
| multi-token-workflow | Hard | Q4 | Signed requests |
| multi-resource-priority | Hard | Q4 | Resource mgmt |
| scattered-url-assembly | Hard | Q4 | State chains |
| cumulative-hash-chain | Hard | Q4 | State chains |
| multi-turn-recall | Hard | Q4 | State chains |
| constraint-overload-protocol | Hard | Q4 | Signed requests |
| adversarial-shortcut-injection | Hard | Q4 | Signed requests |
| retry-backoff-compliance | Hard | Q2 | Timing/Backoff |
| webhook-hmac-verify | V. Hard | Q3 | Byte-exact |
| basic-oauth-token | Hard | Q4 | OAuth/Auth |
| oauth-authorization-code | V. Hard | Q4 | OAuth/Auth |
| oauth-pkce-with-rotation | Extreme | Q4 | OAuth/Auth |
| api-key-rotation | V. Hard | Q4 | OAuth/Auth |
| session-cookie-chain | V. Hard | Q4 | OAuth/Auth |
| signed-request-canonicalization | V. Hard | Q4 | Signed requests |
| certificate-pinning-handshake | Extreme | Q4 | Signed requests |
| cursor-pagination-integrity | V. Hard | Q4 | State chains |
| content-negotiation-chain | V. Hard | Q4 | State chains |
| etag-conditional-get | Hard | Q4 | Resource mgmt |
| idempotency-key-retry | V. Hard | Q4 | Resource mgmt |
| distributed-lock-acquire | Extreme | Q4 | Resource mgmt |
| multi-service-saga | Extreme | Q4 | Multi-service |
| event-sourced-consistency | Extreme | Q4 | Multi-service |
| cascading-token-revocation | V. Hard | Q4 | Multi-service |
"""
"""Appendix D, row by row."""
ROWS = [[cell.strip() for cell in line.strip("| ").split("|")] for line in CATALOGUE.strip().splitlines()]
FILES = ("__init__.py", "instruction.md", "plan.py", "promises.py", "server.py", "task.toml", "validator.py")
every_task = pytest.mark.sweep("task_id", ids(), fast=8)

# -- the catalogue --------------------------------------------------------------------------------------------------------


def test_there_are_the_33_tasks_of_the_catalogue_and_no_other():
    assert len(ROWS) == 33
    assert sorted(row[0] for row in ROWS) == sorted(ids())


@pytest.mark.sweep(("task_id", "difficulty", "quadrant", "pattern"), ROWS, ids=[row[0] for row in ROWS])
def test_a_task_has_the_difficulty_the_quadrant_and_the_pattern_of_the_catalogue(task_id, difficulty, quadrant, pattern):
    found = task(task_id)
    assert (found.difficulty, found.quadrant, found.pattern) == (difficulty, quadrant, pattern)


def test_quadrants_are_as_large_as_in_the_catalogue():
    """Its rows: 5, 5 and 23. Section 3.1 speaks of 24 tasks in Q4 and appendix R of four in its family Validity, because both
    count presigned-url-download with the dual ones, which appendix D lists in Q2; the list by name is what we follow.
    """
    assert Counter(task(id).quadrant for id in ids()) == {"Q2": 5, "Q3": 5, "Q4": 23}


def test_quadrants_two_and_three_are_one_pattern_each_and_quadrant_four_has_the_five_others():
    patterns = {
        quadrant: {task(id).pattern for id in ids() if task(id).quadrant == quadrant} for quadrant in ("Q2", "Q3", "Q4")
    }
    assert patterns == {
        "Q2": {"Timing/Backoff"},
        "Q3": {"Byte-exact"},
        "Q4": {"OAuth/Auth", "Signed requests", "State chains", "Resource mgmt", "Multi-service"},
    }


# -- the folders ----------------------------------------------------------------------------------------------------------


@every_task
def test_a_folder_holds_all_files_of_a_task(task_id):
    folder = FOLDER / task_id.replace("-", "_")
    assert set(FILES) <= {path.name for path in folder.iterdir()}


@every_task
def test_plan_validator_and_promises_know_nothing_of_the_server(task_id):
    """A plan knows instruction and replies alone, a validator the events, promises the trace."""
    folder = FOLDER / task_id.replace("-", "_")
    assert not _relative_imports(folder / "plan.py") & {"server", "validator", "promises", "desk", "task", "episode"}
    assert not _relative_imports(folder / "validator.py") & {"server", "plan", "promises", "task", "episode"}
    assert not _relative_imports(folder / "promises.py") & {"server", "plan", "validator", "desk", "task", "episode"}


def _relative_imports(path):
    """Modules of the suite that a file imports, by their last name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.level or "contractbench" in (node.module or "")):
            found |= {(node.module or "").rpartition(".")[2]} if node.module else {alias.name for alias in node.names}
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if "contractbench" in alias.name}
    return found


@every_task
def test_an_instruction_is_complete_and_names_no_label_and_no_habit(task_id):
    found = task(task_id)
    for seed in SEEDS:
        text = found.instruction(found.given(seed), BASE)
        assert BASE in text
        assert "$" not in text
        assert not [name for name in (*FAILURES, *PERSONAS, "oracle", "persona") if re.search(rf"\b{name}\b", text, re.I)]


@every_task
def test_an_instance_is_the_same_for_the_same_seed_and_another_one_for_another(task_id):
    found = task(task_id)
    given = [found.given(seed) for seed in SEEDS]
    assert given == [found.given(seed) for seed in SEEDS]
    assert len({str(item) for item in given}) == len(SEEDS)


# -- oracles --------------------------------------------------------------------------------------------------------------


@pytest.mark.nightly
@every_task
def test_the_oracle_passes_ten_seeds_with_room_in_both_budgets(play_as, task_id):
    found = task(task_id)
    results = [play_as(task_id, "oracle", seed)[0] for seed in SEEDS]
    assert [(result.seed, result.failure_label, result.success) for result in results] == [(n, "SUCCESS", True) for n in SEEDS]
    assert max(result.steps for result in results) <= found.steps * 2 / 3
    assert max(result.virtual_time_elapsed for result in results) <= found.seconds * 2 / 3


@pytest.mark.nightly
@every_task
def test_the_oracle_keeps_all_promises_of_its_task_on_ten_seeds(task_id):
    found = task(task_id)
    for seed in SEEDS:
        with mat.run(found.contracts(found.given(seed)), seed=seed, task=task_id) as run:
            asyncio.run(play(found, seed, persona("oracle", found, seed), name="oracle"))
        assert [(item.contract, item.message) for item in run.result.violations] == []
        assert [(item.contract, item.error) for item in run.result.outcomes if item.outcome == "unknown"] == []


@every_task
def test_a_task_is_judged_by_promises_of_its_own(task_id):
    found = task(task_id)
    armed = found.contracts(found.given(0))
    assert armed
    assert len({contract.id for contract in armed}) == len(armed)


@every_task
def test_who_does_nothing_has_not_done_the_task(play_with, task_id):
    async def idle(instruction, tools):
        pass

    result, events = play_with(task_id, idle)
    assert (result.success, result.steps, events) == (False, 0, [])


# -- nothing leaks --------------------------------------------------------------------------------------------------------


class Overheard:
    """An application, with all that it replies to the agent written down."""

    def __init__(self, app):
        self._app, self.said = app, []

    async def __call__(self, scope, receive, send):
        async def heard(message):
            self.said += [name + b": " + value for name, value in message.get("headers", [])]
            self.said.append(message.get("body", b""))
            await send(message)

        await self._app(scope, receive, heard)


LABEL = re.compile("|".join(rf"\b{name.replace('_', '[_ -]?')}\b" for name in (*FAILURES, "TOOL_INPUT_TOO_LONG")), re.I)


@pytest.mark.nightly
@every_task
def test_no_reply_names_a_label_or_a_state_of_the_log(task_id):
    """Whatever an agent does: the oracle and all personas, two seeds each."""
    found = task(task_id)
    heard, states = [], set()

    def client(app):
        heard.append(Overheard(app))
        return in_process(heard[-1])

    for name in ("oracle", *PERSONAS):
        for seed in range(2):
            with mat.run(seed=seed, task=task_id):
                _, events = asyncio.run(play(found, seed, persona(name, found, seed), name=name, client=client))
            states |= {event.label for event in events}
    said = b"\n".join(part for app in heard for part in app.said).decode("utf-8", "replace")
    assert said
    assert LABEL.findall(said) == []
    assert [state for state in sorted(states) if re.search(rf"\b{state}\b", said)] == []


def test_a_label_in_a_reply_would_be_found():
    """The guard above, on planted replies: a label in a body, in a header, and in another writing."""
    assert LABEL.findall('{"error": "MUTATED_TOKEN"}\nx-reason: rate_limited\nSignature mismatch') == [
        "MUTATED_TOKEN", "rate_limited", "Signature mismatch",
    ]  # fmt: skip
    assert LABEL.findall('{"error": "SignatureDoesNotMatch"}\nretry-after: 3') == []


@every_task
def test_a_request_that_nobody_expects_is_refused_and_logged_once(play_with, task_id):
    """No route takes it, or one that tells what became of a signed URL."""

    async def lost(instruction, tools):
        reply = await tools.http("GET", f"{BASE}/no/such/place")
        assert reply.status in (403, 404, 405)

    (event,) = play_with(task_id, lost)[1]
    assert event.label == "NO_ROUTE" or event.failure
