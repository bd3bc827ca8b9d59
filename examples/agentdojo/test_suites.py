"""All 97 user tasks of AgentDojo v1.2.2, driven by its own ground-truth pipeline, every tool call through our boundary."""

from __future__ import annotations

import pytest

import mat
from mat.adapters.agentdojo import effect_of, governed_runtime
from mat_contracts import least_privilege

pytest.importorskip("agentdojo.functions_runtime", reason="needs AgentDojo: pip install 'pytest-mat[agentdojo]'")

from agentdojo.agent_pipeline.ground_truth_pipeline import GroundTruthPipeline
from agentdojo.functions_runtime import FunctionsRuntime
from agentdojo.task_suite.load_suites import get_suites

SUITES = get_suites("v1.2.2")
TASKS = [(name, task) for name, suite in SUITES.items() for task in suite.user_tasks]


def _solve(suite, task, environment, runtime_class) -> bool:
    """AgentDojo's utility for its ground-truth pipeline on one task. Changes the environment in place."""
    utility, _ = suite.run_task_with_pipeline(
        GroundTruthPipeline(task), task, None, {}, runtime_class=runtime_class, environment=environment
    )
    return utility


@pytest.fixture
def tools_of_the_suite(request):
    """The assistant calls only tools that its suite gives it."""
    suite = request.node.callspec.params["suite"]
    return least_privilege({"assistant": [tool.name for tool in SUITES[suite].tools]}, id="privilege.tools")


@pytest.mark.mat(budget=4, faults=["service.timeout"])
@pytest.mark.parametrize(("suite", "task"), TASKS)
def test_the_ground_truth_solves_the_task_through_our_boundary(suite, task, environment, mat_run, tools_of_the_suite):
    asked = SUITES[suite].user_tasks[task]
    world = environment(suite)
    expected = [call.function for call in asked.ground_truth(asked.init_environment(environment(suite)))]
    assert _solve(SUITES[suite], asked, world, governed_runtime(agent="assistant"))
    assert [record.action.name for record in mat_run.trace] == expected


def test_the_benchmark_has_its_97_user_tasks():
    assert {name: len(suite.user_tasks) for name, suite in SUITES.items()} == {
        "workspace": 40, "travel": 20, "banking": 16, "slack": 21,
    }  # fmt: skip
    assert len(TASKS) == 97


@pytest.mark.parametrize("suite", SUITES)
def test_without_us_utility_and_world_are_the_same(suite, environment):
    """The control: AgentDojo's own runtime, and ours outside a run and inside one. Mails carry the time, so worlds are
    compared where time is the run's.
    """
    ours = governed_runtime(agent="assistant")
    for task in SUITES[suite].user_tasks.values():
        assert _solve(SUITES[suite], task, environment(suite), FunctionsRuntime)
        assert _solve(SUITES[suite], task, environment(suite), ours)
        plain, crossed = environment(suite), environment(suite)
        with mat.run() as without:
            assert _solve(SUITES[suite], task, plain, FunctionsRuntime)
        with mat.run() as run:
            assert _solve(SUITES[suite], task, crossed, ours)
        assert plain == crossed
        assert len(without.trace) < len(run.trace)


@pytest.mark.parametrize("suite", SUITES)
def test_a_tool_that_we_call_a_read_leaves_the_world_as_it_was(suite, environment):
    """Every write of every ground truth changes the environment: the naming rule is checked against the system itself."""
    changing = set()

    class Watching(FunctionsRuntime):
        def run_function(self, env, function, kwargs, raise_on_error=False):
            before = env.model_copy(deep=True)
            answer = super().run_function(env, function, kwargs, raise_on_error)
            if env != before:
                changing.add(function)
            return answer

    for task in SUITES[suite].user_tasks.values():
        _solve(SUITES[suite], task, environment(suite), Watching)
    assert changing
    assert {tool: effect_of(tool) for tool in changing} == dict.fromkeys(changing, "write")


def test_a_run_has_the_same_head_each_time(environment):
    def head(task):
        with mat.run(task=task.ID) as run:
            _solve(SUITES["banking"], task, environment("banking"), governed_runtime(agent="assistant"))
        return run.result.head

    tasks = list(SUITES["banking"].user_tasks.values())
    assert [head(task) for task in tasks] == [head(task) for task in tasks]
    assert len({head(task) for task in tasks}) == len(tasks)
