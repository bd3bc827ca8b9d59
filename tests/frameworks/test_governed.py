"""Governance, budgets and determinism through every adapter: what is blocked, rewritten, approved and counted."""

from __future__ import annotations

import importlib
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.frameworks.test_frameworks import EFFECTS, HERE, INSTRUMENT, MODES, missing

import mat

pytestmark = pytest.mark.full
GOVERNED = ("google_adk", "langgraph", "mcp", "openai_agents", "pydantic_ai", "smolagents")


@pytest.fixture(params=GOVERNED)
def framework(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    if missing(name):
        pytest.skip(f"{name} is not installed")
    monkeypatch.syspath_prepend(str(HERE))
    importlib.import_module("shop").reset()
    return name


def desk(framework: str) -> Any:
    return importlib.import_module(f"{framework}_desk")


def shop() -> Any:
    return importlib.import_module("shop")


def mode_of(framework: str) -> str:
    return "async" if "async" in MODES.get(framework, ("async",)) else "sync"


def work(framework: str, policy: mat.policy.Governance | None = None) -> tuple[mat.Run, Exception | None]:
    """The careful refunder under a policy: its run, and what it raised, because some frameworks end at a failed tool."""
    raised = None
    with mat.run(governance=policy) as run, mat.attach(framework, effects=EFFECTS):
        try:
            desk(framework).handle(shop().careful_refunder, mode_of(framework))
        except Exception as error:
            raised = error
    assert run.result is not None
    return run.result, raised


def refunds(run: mat.Run) -> list[Any]:
    return [record for record in run.records if record.action.name == "refund" and record.action.boundary]


def test_a_blocked_tool_has_no_effect_and_the_agent_hears_of_it_as_of_a_failure(framework: str) -> None:
    def nobody(record: Any) -> Any:
        return mat.policy.Block("not today") if record.action.name == "refund" else None

    run, raised = work(framework, mat.policy.Governance(rules=(nobody,)))
    [asked] = refunds(run)
    assert (asked.mediation.decision, asked.effected, shop().world.refunded) == ("block", "no", [])
    assert raised is None or "not today" in f"{raised!r} {raised.__cause__!r}"


def test_a_rewritten_call_reaches_the_tool_with_the_other_arguments(framework: str) -> None:
    def other(record: Any) -> Any:
        if record.action.name == "refund" and record.arguments["order"] != "SAFE":
            return mat.policy.Rewrite({"order": "SAFE"})
        return None

    run, raised = work(framework, mat.policy.Governance(rules=(other,)))
    assert raised is None
    assert shop().world.refunded == ["SAFE"]
    assert refunds(run)[0].executed["order"] == "SAFE"


@pytest.mark.parametrize("answer", [True, False])
def test_an_approver_is_asked_before_the_tool_runs(framework: str, answer: bool) -> None:
    asked = []

    def approver(what: str, arguments: Any) -> bool:
        asked.append(arguments["order"])
        return answer

    def ask(record: Any) -> Any:
        return mat.policy.NeedsApproval() if record.action.name == "refund" else None

    run, _ = work(framework, mat.policy.Governance(rules=(ask,), approver=approver))
    assert asked == ["A17"]
    assert shop().world.refunded == (["A17"] if answer else [])
    assert [record.observation.value["status"] for record in run.records if record.action.kind == "approval"] == [
        "approved" if answer else "rejected"
    ]


def test_a_budget_of_calls_stops_the_agent(framework: str) -> None:
    contract = mat.budget.ResourceContract(name="desk", budgets={"tool:look_up": 3})
    with mat.run() as run, mat.attach(framework, effects=EFFECTS), mat.budget.contracted(contract), suppress(Exception):
        desk(framework).handle(forgetful, mode_of(framework))
    made = [record for record in run.trace if record.action.name == "look_up" and record.action.boundary]
    assert [record.invoked for record in made[:4]] == [1, 1, 1, 0]
    assert not any(record.invoked for record in made[3:])


def forgetful(results: list[Any]) -> Any:
    return "enough" if any(each.failed for each in results) or len(results) > 5 else [("look_up", {"order": "A17"})]


def test_a_budget_of_tokens_counts_what_the_model_reports(framework: str) -> None:
    if framework == "mcp":
        pytest.skip("MCP has no models")
    contract = mat.budget.ResourceContract(name="desk", budgets={"tokens": 100_000})
    with mat.run() as run, mat.attach(framework, effects=EFFECTS), mat.budget.contracted(contract) as budget:
        desk(framework).handle(shop().careful_refunder, mode_of(framework))
    used = [record.observation.usage for record in run.trace if record.action.kind == "model_call"]
    counted = sum(each["input_tokens"] + each["output_tokens"] for each in used)
    assert counted > 0
    assert budget.status().consumed["tokens"] == counted


HEADS = """
import sys
sys.path.insert(0, {here!r})
import mat, shop
from mat.harness.patching import patched
from {framework}_desk import handle
for mode in sys.argv[1:]:
    shop.reset()
    with mat.run() as run, patched({instrument}), mat.attach({framework!r}, effects={effects}, retrievers=["search_kb"]):
        for mind in (shop.careful_refunder, shop.careful_reader, shop.hurried):
            handle(mind, mode)
    print("\\nhead", mode, len(run.result.records), run.result.head)
"""


@pytest.mark.parametrize("framework", [*GOVERNED, "litellm"])
def test_one_seed_is_one_head_in_every_process_under_every_hash_seed(framework: str, tmp_path: Path) -> None:
    """Each process runs every mode, and begins with another one, so what ran before in a process does not matter either."""
    import os

    if missing(framework):
        pytest.skip(f"{framework} is not installed")
    modes = MODES.get(framework, ("sync", "async", "stream"))
    script = tmp_path / "heads.py"
    script.write_text(
        HEADS.format(here=str(HERE), framework=framework, effects=EFFECTS, instrument=INSTRUMENT.get(framework, {}))
    )
    heads: dict[str, set[str]] = {}
    for number in range(int(os.environ.get("PROCESSES", "3"))):
        first = number % len(modes)
        environment = {**os.environ, "PYTHONHASHSEED": str(number * 17)}
        command = [sys.executable, str(script), *modes[first:], *modes[:first]]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        said = [line.split() for line in done.stdout.splitlines() if line.startswith("head ")]  # LiteLLM prints more
        for _, mode, steps, head in said:
            assert int(steps) >= 6  # the calls of tools; MCP has no models
            heads.setdefault(mode, set()).add(head)
    assert {mode: len(found) for mode, found in heads.items()} == dict.fromkeys(modes, 1)
