"""Results of the suite: labelled twice, counted with intervals, told as text, data and a page."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench import __main__ as cli
from contractbench import results
from contractbench.personas import PERSONAS
from contractbench.results import as_data, digest, disagreements, document, labels, played, rates, suite, text, unstable
from contractbench.task import task as the_task
from contractbench.tasks.presigned_url_download import promises

from mat.measure.interval import wilson
from mat.report.page import render

DOWNLOAD, INTEGRITY, BACKOFF = "presigned-url-download", "presigned-url-integrity", "retry-backoff-compliance"
FIELDS = (
    "task_id", "category", "seed", "agent", "success", "failure_label", "failure_detail", "steps", "tool_calls",
    "virtual_time_elapsed", "trace_hash",
)  # fmt: skip


@pytest.fixture(scope="module")
def episodes():
    """Two tasks x three agents x two seeds, of which listed_order fails one task and paraphraser both."""
    return suite((DOWNLOAD, INTEGRITY), ("oracle", "listed_order", "paraphraser"), seeds=2)


async def idle(instruction, tools):
    """An agent that does nothing."""


async def curious(instruction, tools):
    """An agent that asks for one place that its instruction names, and then stops."""
    await tools.http("GET", re.search(r"https?://[^\s/`]+", instruction)[0] + "/exports")


# -- episodes ---------------------------------------------------------------------------------------------------------


def test_a_record_has_the_fields_of_the_schema_and_the_librarys_label(episodes):
    for item in episodes:
        assert tuple(item.record()) == (*FIELDS, "library_label")
    failed = next(item for item in episodes if item.result.failure_label == "EXPIRED_BEFORE_USE")
    detail = failed.result.failure_detail
    assert set(detail) == {"resource_id", "ttl_seconds", "time_of_attempt", "expired_by_seconds"}
    assert detail["expired_by_seconds"] >= 0


def test_every_agent_plays_every_task_on_every_seed_in_order(episodes):
    assert [item.key for item in episodes] == [
        (task, agent, seed)
        for task in (DOWNLOAD, INTEGRITY)
        for agent in ("oracle", "listed_order", "paraphraser")
        for seed in range(2)
    ]


def test_a_function_plays_under_its_own_name():
    found = suite((DOWNLOAD,), {"mine": idle, "other": curious}, seeds=1)
    assert [(item.result.agent, item.result.failure_label, item.judged) for item in found] == [
        ("mine", "OTHER", "OTHER"), ("other", "OTHER", "OTHER"),
    ]  # fmt: skip
    assert [item.result.tool_calls for item in found] == [0, 1]


def test_a_note_reaches_an_agent_as_part_of_its_instruction():
    heard = []

    async def listening(instruction, tools):
        heard.append(instruction)

    task = the_task(DOWNLOAD)
    played(task, 0, listening)
    played(task, 0, listening, levers=results.Levers(note="EXPIRED_BEFORE_USE"))
    assert heard[1].startswith(heard[0])
    assert heard[1].endswith("Your last attempt failed (EXPIRED_BEFORE_USE): something was used after it had expired.")


def test_what_an_agent_raises_ends_its_episode_and_is_reported():
    async def broken(instruction, tools):
        await tools.http("GET", re.search(r"https?://[^\s/`]+", instruction)[0] + "/exports")
        raise RuntimeError("the model is overloaded")

    async def endless(instruction, tools):
        while True:
            await tools.wait(1)

    found = suite((DOWNLOAD,), {"broken": broken, "endless": endless}, seeds=1)
    assert [(item.raised, item.result.failure_label) for item in found] == [
        ("RuntimeError: the model is overloaded", "OTHER"), ("", "OTHER"),
    ]  # fmt: skip
    assert "broken at presigned-url-download, seed 0: RuntimeError: the model is overloaded" in text(found)
    assert as_data(found)["summary"]["raised"] == [
        {"task": DOWNLOAD, "agent": "broken", "seed": 0, "error": "RuntimeError: the model is overloaded"}
    ]
    assert found[1].result.steps == the_task(DOWNLOAD).steps


@pytest.mark.full
def test_processes_change_nothing(episodes):
    again = suite((DOWNLOAD, INTEGRITY), ("oracle", "listed_order", "paraphraser"), seeds=2, jobs=2)
    assert as_data(again) == as_data(episodes)


# -- counting ---------------------------------------------------------------------------------------------------------


def test_the_success_rate_is_the_share_of_episodes_labelled_success(episodes):
    found = {rate.name: rate.episodes for rate in rates(episodes, results.agent_of)}
    assert found == {"oracle": wilson(4, 4), "listed_order": wilson(2, 4), "paraphraser": wilson(0, 4)}


def test_seeds_that_hang_together_make_the_interval_by_task_wider_than_that_by_episode(episodes):
    for rate in rates(episodes, results.agent_of):
        assert rate.by_task.value == rate.episodes.value
        assert rate.by_task.high - rate.by_task.low > rate.episodes.high - rate.episodes.low


def test_labels_are_shares_of_the_failed_episodes_alone(episodes):
    found = {share.name: (share.count, share.share) for share in labels(episodes)}
    assert found == {"EXPIRED_BEFORE_USE": (2, wilson(2, 6)), "MUTATED_TOKEN": (4, wilson(4, 6))}


def test_a_label_that_differs_is_a_disagreement_with_the_reason_that_the_task_gives(episodes, monkeypatch):
    assert results.agreement(episodes).episodes == wilson(12, 12)
    assert disagreements(episodes) == ()
    changed = [replace(item, judged="OTHER") if item.key == (DOWNLOAD, "paraphraser", 1) else item for item in episodes]
    monkeypatch.setattr(promises, "DISAGREEMENTS", {"paraphraser": "nobody knows"}, raising=False)
    (found,) = disagreements(changed)
    assert (found.task, found.agent, found.server, found.judged) == (DOWNLOAD, "paraphraser", "MUTATED_TOKEN", "OTHER")
    assert (found.seeds, found.reason) == ((1,), "nobody knows")
    assert results.agreement(changed).episodes == wilson(11, 12)


def test_a_contract_that_could_not_judge_is_no_agreement(episodes):
    changed = [replace(episodes[0], crashed=("download_url.compliant",)), *episodes[1:]]
    assert [item.judged for item in disagreements(changed)] == ["crashed: download_url.compliant"]


def test_an_agent_whose_label_depends_on_the_seed_is_named(episodes):
    assert unstable(episodes) == ()
    odd = replace(episodes[-1], result=replace(episodes[-1].result, failure_label="OTHER"))
    assert unstable([*episodes[:-1], odd]) == ((INTEGRITY, "paraphraser", ("MUTATED_TOKEN", "OTHER")),)


def test_the_trace_hash_of_a_suite_depends_on_every_episode_and_not_on_their_order(episodes):
    assert digest(reversed(episodes)) == digest(episodes)
    again = suite((DOWNLOAD, INTEGRITY), ("oracle", "listed_order", "paraphraser"), seeds=2)
    assert digest(again) == digest(episodes)
    changed = replace(episodes[3], result=replace(episodes[3].result, trace_hash="0" * 64))
    assert digest([*episodes[:3], changed, *episodes[4:]]) != digest(episodes)


# -- reported -----------------------------------------------------------------------------------------------------------


def test_the_text_tells_rates_labels_pass_rates_and_agreement(episodes):
    said = text(episodes)
    assert re.search(r"^oracle +4 +100% \[51-100\]", said, re.MULTILINE)
    assert re.search(r"^paraphraser +4 +0% \[0-49\]", said, re.MULTILINE)
    assert re.search(r"^MUTATED_TOKEN +integrity +4 +67% \[30-90\]", said, re.MULTILINE)
    assert re.search(rf"^Q2 {DOWNLOAD} +100 +0 EX +0 MU$", said, re.MULTILINE)
    assert "EX EXPIRED_BEFORE_USE, MU MUTATED_TOKEN." in said
    assert "Server and library agree on 100%" in said
    assert f"Trace hash of 12 episodes: {digest(episodes)}" in said
    assert "expired_by_seconds=" not in said
    assert "expired_by_seconds=" in text(episodes, failures=True)


def test_every_label_has_a_short_name_of_its_own():
    assert set(results.SHORT) == {*results.SEVERITY} - {"SUCCESS"} == set(results.NOTES)
    assert len(set(results.SHORT.values())) == len(results.SHORT)


def test_the_data_hold_every_record_and_what_they_come_to(episodes):
    data = json.loads(results.to_json(as_data(episodes)))
    assert [item["trace_hash"] for item in data["episodes"]] == [item.result.trace_hash for item in episodes]
    summary = data["summary"]
    assert summary["pass_rate"][DOWNLOAD] == {"oracle": 1.0, "listed_order": 0.0, "paraphraser": 0.0}
    assert summary["success"]["quadrant"]["Q2"]["value"] == pytest.approx(1 / 3)
    assert summary["success"]["pattern"]["Signed requests"]["n"] == 6
    assert summary["labels"]["agent"] == {
        "listed_order": {"EXPIRED_BEFORE_USE": {"count": 2, **asdict(wilson(2, 2))}},
        "paraphraser": {"MUTATED_TOKEN": {"count": 4, **asdict(wilson(4, 4))}},
    }
    assert summary["agreement"]["value"] == 1.0


class Cells(HTMLParser):
    """The rows of the heat map of a page: lists of what their cells say, with tooltips."""

    def __init__(self, html):
        super().__init__()
        self.rows, self.tips, self.links, self._inside, self._cell = [], [], [], False, False
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.links += [given[name] for name in ("src", "href") if given.get(name)]
        if tag == "table":
            self._inside = given.get("class") == "heat"
        if self._inside and tag == "tr":
            self.rows.append([])
        if self._inside and tag in ("td", "th"):
            self._cell = True
            self.rows[-1].append("")
            self.tips.append(given.get("title", ""))

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self._cell = False

    def handle_data(self, data):
        if self._inside and self._cell:
            self.rows[-1][-1] += data


def test_the_page_has_a_heat_map_whose_cells_say_their_rate_and_label(episodes):
    page = Cells(render(document(episodes)))
    assert page.rows == [
        ["task", "oracle", "listed_order", "paraphraser"],
        ["Q2 validity"],
        [DOWNLOAD, "100%", "0%EXPIRED_BEFORE_USE", "0%MUTATED_TOKEN"],
        ["Q4 both"],
        [INTEGRITY, "100%", "100%", "0%MUTATED_TOKEN"],
    ]
    assert "0% to 66%, 2 runs; most often: EXPIRED_BEFORE_USE" in page.tips
    assert [link for link in page.links if not link.startswith(("#", "data:,"))] == []


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command_writes_what_it_tells(tmp_path, capsys):
    given = ["--tasks", DOWNLOAD, "--agents", "oracle,listed_order", "--seeds", "1"]
    cli.main([*given, "--twice", "--json", str(tmp_path / "a.json"), "--html", str(tmp_path / "a.html")])
    said = capsys.readouterr().out
    expected = suite((DOWNLOAD,), ("oracle", "listed_order"), seeds=1)
    assert said.startswith(text(expected))
    assert "Played again: 2 of 2 trace hashes are equal." in said
    assert (tmp_path / "a.json").read_text() == results.to_json(as_data(expected))
    assert "EXPIRED_BEFORE_USE" in (tmp_path / "a.html").read_text()


def test_the_command_plays_an_agent_that_can_be_imported(capsys):
    cli.main(["--tasks", DOWNLOAD, "--agents", f"{idle_module()}:idle", "--seeds", "1"])
    assert re.search(r":idle +1 +0%", capsys.readouterr().out)


def idle_module():
    """A module that can be imported by name, and holds the agent."""
    import sys
    from types import ModuleType

    module = ModuleType("an_agent_of_mine")
    module.idle = idle
    sys.modules[module.__name__] = module
    return module.__name__


def test_the_command_tells_all_that_is_wrong_in_one_go(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(
            [
                "--tasks", "presigned-url-dowload", "--agents", "orcle", "nowhere:agent", "--seeds", "0", "--html",
                str(tmp_path / "a.htm"),
            ]
        )  # fmt: skip
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "unknown task: 'presigned-url-dowload'; did you mean 'presigned-url-download'?" in said
    assert "unknown agent: 'orcle'; did you mean 'oracle'?" in said
    assert "no agent 'nowhere:agent' can be imported: No module named 'nowhere'" in said
    assert "--seeds 0 is not at least 1" in said
    assert "a.htm does not end in .html" in said


def test_the_names_of_the_personas_are_all_agents():
    assert ("oracle", *PERSONAS) == results.SCRIPTED


# -- README -----------------------------------------------------------------------------------------------------------

README = Path(cli.__file__).with_name("README.md").read_text(encoding="utf-8")
RESULTS = Path(cli.__file__).with_name("results.md").read_text(encoding="utf-8")
FILES = {name: f"{body}\n" for name, body in re.findall(r"```python\n# (\S+\.py)\n(.*?)\n```", README, re.DOTALL)}
COMMANDS = re.findall(r"```console\n\$ python -m examples\.contractbench (.*?)\n(.*?)\n```", RESULTS, re.DOTALL)


@pytest.mark.full
@pytest.mark.parametrize(("arguments", "expected"), COMMANDS, ids=[arguments for arguments, _ in COMMANDS])
def test_the_commands_of_the_page_print_what_it_says(arguments, expected, tmp_path, monkeypatch, capsys):
    (tmp_path / "my_agent.py").write_text(FILES["my_agent.py"], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    cli.main(shlex.split(arguments))
    pattern = "".join(
        "(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + "\n" for line in expected.splitlines()
    )
    assert re.fullmatch(pattern, capsys.readouterr().out)


def test_the_readme_has_its_examples():
    assert sorted(FILES) == ["my_agent.py", "test_my_agent.py"]
    assert len(COMMANDS) == 1


def test_the_test_of_the_readme_fails_with_the_label_and_the_step_that_broke_the_contract(pytester):
    pytester.makepyfile(**{name.removesuffix(".py"): body for name, body in FILES.items()})
    pytester.syspathinsert()
    done = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:asyncio", "test_my_agent.py")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*AssertionError: EXPIRED_BEFORE_USE*"])
    assert "download_url" in done.stdout.str()
