"""Role drift and unsafe actions reach every report, by task, and with a verdict where a bound is given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import mat
from mat.__main__ import main
from mat.evidence.runlog import RunEntry, RunLog
from mat.measure.agency import excessive_agency
from mat.measure.conduct import role_drift, unsafe_actions
from mat.measure.drift import drift, drift_of
from mat.measure.rows import RunRow, row_of
from mat.measure.sampling import RUNS
from mat.report.build import build
from mat.report.definitions import definition_of
from mat.report.files import rendered
from mat.report.from_json import restored
from mat_contracts.role import role
from mat_contracts.unsafe import declared_unsafe


@mat.tool(effect="write", impact="high")
def delete(name: str) -> str:
    return name


@mat.tool
def look(name: str) -> str:
    return name


CONTRACTS = (role("clerk", deny="tool_call:delete"), declared_unsafe({"irreversible action": "delete"}))


def run_of(seed: int, deletes: int, *, contracts: tuple[mat.Contract, ...] = CONTRACTS) -> mat.Run:
    with mat.run(contracts, task="t", seed=seed) as run:
        with mat.agent("clerk"):
            for number in range(4):
                (delete if number < deletes else look)("o1")
        with mat.agent("mailer"):
            look("o2")
        mat.finish("done")
    assert run.result is not None
    return run.result


RUNS_OF = [run_of(seed, deletes) for seed, deletes in enumerate((0, 1, 4, 0, 2, 0))]
ROWS = [row_of(run, item=f"test_{place % 2}", condition="nominal") for place, run in enumerate(RUNS_OF)]


def test_drift_of_rows_is_that_of_runs() -> None:
    theirs = {each.agent: each for each in drift(each for run in RUNS_OF for each in drift_of(run, "clerk.role"))}
    ours = {each.agent: each for each in role_drift(ROWS, RUNS)}
    assert ours.keys() == theirs.keys()
    for agent, each in ours.items():
        assert each.score.value == pytest.approx(theirs[agent].score.value)
        assert (each.drifted, each.absent, each.unjudged) == (
            theirs[agent].drifted, theirs[agent].absent, theirs[agent].unjudged,
        )  # fmt: skip
    assert ours["clerk"].drifted.value == 0.5
    by_task = {each.agent: each for each in role_drift(ROWS)}
    assert by_task["clerk"].score.sampling_unit == "task"


def test_unsafe_actions_of_rows_are_those_of_runs() -> None:
    theirs, ours = excessive_agency(RUNS_OF, epsilon=0.05), unsafe_actions(ROWS, RUNS, epsilon=0.05)
    assert ours is not None
    assert (ours.rate.value, ours.rate.n, ours.effected.value) == (theirs.rate.value, theirs.rate.n, theirs.effected.value)
    assert (ours.runs, ours.labels, theirs.labels) == (theirs.runs, (("irreversible action", 7),), ours.labels)
    assert theirs.rate.value == 7 / 30
    assert unsafe_actions([row_of(run_of(0, 1, contracts=()), item="t", condition="nominal")]) is None


@pytest.mark.parametrize(
    ("deletes", "epsilon", "verdict"), [(4, 0.1, "fail"), (0, 0.3, "pass"), (1, 0.2, "unknown"), (1, None, "")]
)
def test_the_verdict_follows_the_interval(deletes: int, epsilon: float | None, verdict: str) -> None:
    rows = [row_of(run_of(seed, deletes), item=f"test_{seed}", condition="nominal") for seed in range(12)]
    (line,) = build([], rows, epsilon=epsilon).agency
    assert (line.verdict, line.epsilon) == (verdict, epsilon)


@pytest.mark.parametrize("form", ["txt", "md", "html", "csv"])
def test_every_form_shows_both(form: str) -> None:
    text = rendered(build([], ROWS, epsilon=0.05), form).decode()
    for name in ("clerk", "irreversible action"):
        assert name in text
    if form in ("md", "html"):
        assert definition_of("score").split("'")[0] in text


def test_json_gives_both_back() -> None:
    document = build([], ROWS, epsilon=0.05)
    again = restored(json.loads(rendered(document, "json")), where="r.json").document
    assert (again.drift, again.agency) == (document.drift, document.agency)


def test_the_command_takes_the_bound_and_the_policies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunLog(tmp_path / "log", session="s") as log:
        for place, run in enumerate(RUNS_OF):
            log.append(RunEntry(item=f"test_{place % 2}", condition="nominal", run=run))
    assert main(["report", str(tmp_path / "log"), "--epsilon", "0.01", "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)["tables"]["agency"]
    assert (line["verdict"], line["epsilon"]) == ("fail", 0.01)
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path / "log"), "--epsilon", "1.5"])
    assert "not a probability" in capsys.readouterr().err


def test_residual_harm_counts_the_policies_that_are_named() -> None:
    from mat.boundary.catalog import operator
    from mat.boundary.effect import Raise

    late = operator("service.timeout", lambda call, reply, stream: Raise("timeout"))
    rude = mat.step_contract(on="final_response", id="answer.polite")(lambda record: False)

    def faulted(seed: int) -> RunRow:
        fault = [mat.spec.perturbation("service.timeout", "clerk/service:look#1", cost=4)]
        with mat.run([rude], task="t", seed=seed, schedule=fault, operators=[late]) as run:
            with mat.agent("clerk"):
                try:
                    look("o1")
                except TimeoutError:
                    mat.mitigate("escalate")
            mat.finish("no")
        assert run.result is not None
        return row_of(run.result, item="t", condition="fault")

    rows = [faulted(seed) for seed in range(3)]
    for policies, value in ((None, 1.0), (["answer.polite"], 1.0), (["other"], 0.0)):
        found = {metric.name: metric.estimate for metric in build([], rows, policies=policies).metrics}
        assert found["fault.residual_harm"].value == value
