"""Policies from files: they mean what they say, everything wrong is said at once, and nothing in them is executed."""

from __future__ import annotations

import json
import os
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat.core.errors import SpecError
from mat.govern import policy
from mat.govern.trust import Trust
from mat.resources.reading import data_of

pytest.importorskip("yaml")

POLICY = """
mat: 1
name: helpdesk
approver: manager
capabilities:
  main:
    - look
    - tool: pay
      parameters: {amount: {least: 0, most: 500}, to: [ann, bob]}
      rates: [{most: 3}]
rules:
  - block: {tools: drop, reason: nothing is dropped}
  - clamp: {parameter: amount, most: 100, tools: pay}
  - needs_approval: {tools: pay, where: {amount: {least: 50}}}
routing:
  - sandbox: {agents: [intern], replies: {pay: pretended}}
trust:
  prior: 0.7
  half_life: 20
  levels:
    - {below: 0.5, verify: manager, on: write}
    - {below: 0.2, high_impact: block}
variants:
  caps: {shield: false, capabilities: true}
"""


@mat.tool(effect="write", impact="high")
def pay(to: str, amount: int = 1) -> str:
    return f"{to} {amount}"


@mat.tool(effect="write")
def drop() -> None: ...


@mat.tool(effect="read")
def look() -> int:
    return 1


def outcome(
    governance: mat.policy.Governance | None, call: Any, *arguments: Any, state: Any = None, agent: str = "main"
) -> str:
    """What the agent gets, or why it is blocked."""
    with mat.run(governance=governance), mat.agent(agent):
        mat.state(**(state or {}))
        try:
            return str(call(*arguments))
        except mat.Blocked as blocked:
            return f"blocked: {blocked.reason}"


def approves(answer: bool) -> dict[str, Any]:
    return {"manager": lambda what, arguments: answer}


def test_a_file_becomes_a_policy_with_all_its_parts() -> None:
    made = policy.loads(POLICY, approvers=approves(True))
    assert list(made.variants()) == ["none", "shield", "shield+capabilities", "shield+routing", "caps"]
    shield, caps = made.variant("shield"), made.variant("caps")
    assert outcome(shield, drop) == "blocked: nothing is dropped"
    assert outcome(shield, pay, "eve", 900) == "eve 100"
    assert outcome(caps, pay, "eve", 1).startswith("blocked: ")
    assert outcome(caps, pay, "ann", 400) == "ann 400"
    assert outcome(caps, drop).startswith("blocked: ")
    assert outcome(made.variant("shield+routing"), pay, "ann", agent="intern") == "pretended"
    assert outcome(made.variant("none"), drop) == "None"
    assert isinstance(made.trust, Trust)
    assert (made.trust.prior, made.trust.half_life, made.trust.levels[0].below) == (Fraction(7, 10), 20, Fraction(1, 5))


def test_approvers_are_named_in_the_file_and_given_by_the_caller() -> None:
    for answer, got in ((True, "ann 60"), (False, "blocked: pay was not approved")):
        made = policy.loads(POLICY, approvers=approves(answer))
        assert outcome(made.variant("shield"), pay, "ann", 60) == got
    with pytest.raises(SpecError, match=r"approver \(line 4\): unknown approver: 'manager'; pass it with load"):
        policy.loads(POLICY)


def test_a_policy_without_a_version_is_distinguished_from_others_by_its_content() -> None:
    texts = (POLICY, POLICY.replace("most: 100", "most: 101"), POLICY + "version: v1\n")
    first, other, named = (policy.loads(text, approvers=approves(True)).version for text in texts)
    assert first == policy.loads(POLICY, approvers=approves(True)).version
    assert len({first, other, named}) == 3
    assert named == "v1"


def test_json_says_the_same_as_yaml(tmp_path: Path) -> None:
    data, _ = data_of(POLICY, json=False, kind="policy", where="policy")
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(data))
    made = policy.load(path, approvers=approves(True))
    assert outcome(made.variant("shield"), pay, "eve", 900) == "eve 100"
    assert list(made.variants()) == list(policy.loads(POLICY, approvers=approves(True)).variants())


def test_every_problem_is_said_in_one_go_with_its_line_and_what_was_meant() -> None:
    text = """
naem: x
use: sheild
capabilities:
  main:
    - {tool: pay, parametres: {}}
    - {tool: pay, parameters: {amount: {least: 5, most: 1}, to: {least: 1, pattern: a}}}
    - {tool: pay, rates: [{most: -1}], parameters: {}}
    - {tool: pay, parameters: {y: 3, z: {paterns: a}}}
rules:
  - blok: {}
  - block: {tools: 3}
  - clamp: {parameter: amount, leest: 3}
  - needs_approval: {by: manger}
  - redact: {data: emial}
  - strip: {parameters: a, matching: "("}
  - block: {reason: x, impact: hihg}
  - {block: {reason: x}, clamp: {parameter: a}}
trust:
  prior: 7
  half_lief: 3
  levels: [{below: 0.5}, {below: 0.5, verify: bob}, {below: 0.2, high_impact: blok}]
variants: {caps: {shild: true}}
routing: [{strip: {parameters: [a, 1, b, [c]]}}]
"""
    with pytest.raises(SpecError) as raised:
        policy.loads(text, approvers=approves(True))
    said = str(raised.value)
    for part in (
        "routing[0].strip.parameters[1] (line 24): input should be a name, not a number",
        "routing[0].strip.parameters[3] (line 24): input should be a name, not a list",
        "naem (line 2): unknown key: 'naem'; did you mean 'name'?",
        "use='sheild' is not one of its variants; did you mean 'shield'?",
        "capabilities.main[0].parametres (line 6): unknown key: 'parametres'; did you mean 'parameters'?",
        "capabilities.main[1].parameters.amount (line 7): least=5 is greater than most=1",
        "capabilities.main[1].parameters.to (line 7): it gives pattern and least/most",
        "capabilities.main[2].rates[0] (line 8): most=-1 is not an integer >= 0",
        "rules[0] (line 11): unknown rule: 'blok'; did you mean 'block'?",
        "rules[1].block.reason (line 12): it is missing",
        "rules[2].clamp.leest (line 13): unknown key: 'leest'; did you mean 'least'?",
        "rules[3].needs_approval.by (line 14): unknown approver: 'manger'; load(approvers=) has manager; "
        "did you mean 'manager'?",
        "rules[4].redact (line 15): unknown kind of data: 'emial'; did you mean 'email'?",
        "rules[5].strip (line 16): '(' is not a regular expression",
        "rules[6].block.impact (line 17): 'hihg' is not one of low, high; did you mean 'high'?",
        "rules[7] (line 18): a rule has one key, its kind; this one has block, clamp",
        "trust.half_lief (line 21): unknown key: 'half_lief'; did you mean 'half_life'?",
        "trust.levels[0] (line 22): level of trust: it has no consequence",
        "trust.levels[1].verify (line 22): unknown approver: 'bob'",
        "capabilities.main[3].parameters.z.paterns (line 9): unknown key: 'paterns'; did you mean 'pattern'?",
        "trust.levels[2].high_impact (line 22): 'blok' is not one of approve, block; did you mean 'block'?",
        "trust (line 19): trust: prior is 7",
        "variants.caps.shild (line 23): unknown key: 'shild'; did you mean 'shield'?",
    ):  # fmt: skip
        assert part in said, part


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it contains an empty value"),
        ("- 1", "it contains a list"),
        ("{}", "it governs nothing"),
        ("mat: 2\ndefault: deny", "mat"),
        ("name: &a x", "anchor or alias on line 1"),
        ("name: *a", "anchor or alias on line 1"),
        ("name: !!python/object/apply:os.system ['true']", "tag on line 1"),
        ("name: x\nname: y", "the key 'name' twice, the second time on line 2"),
        ("name: [", "not valid YAML on line 1"),
        ("--- {}\n--- {}", "2 documents"),
        ("0[:", r"unknown key: '0\['"),
        ("timeout_ms: " + "9" * 5_000, "5000 digits"),
        ("[" * 101 + "]" * 101, "nested more than 100 deep"),
        ("rules:\n  - strip: {parameters: a, matching: '" + "a" * 1_001 + "'}", "the regular expression has 1001 characters"),
    ],
)
def test_what_a_policy_may_not_hold_is_refused_before_anything_is_made_of_it(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        policy.loads(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"rules": [], "rules": []}', "'rules' twice"),
        ('{"trust": {"prior": NaN}}', "NaN"),
        ("{", "not JSON"),
        ("[" * 200_000, "nested"),
        ("[]", "it contains a list"),
        (r'{"name": "\ud800"}', r"contains '\\ud800'"),
        (r'{"rules": [{"\ud800": 1}]}', r"contains '\\ud800'"),
    ],
)
def test_json_is_held_to_the_same(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        policy.loads(text, json=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("timeout_ms: '5'", "timeout_ms (line 1): input should be a valid integer, not a string"),
        ("timeout_ms: 5.0", "timeout_ms (line 1): input should be a valid integer, not a number"),
        ("timeout_ms: true", "timeout_ms (line 1): input should be a valid integer, not true or false"),
        ("name: 3", "name (line 1): input should be a valid string, not a number"),
        ("variants: {a: {shield: 1}}", "variants.a.shield (line 1): input should be a valid boolean, not a number"),
        ("rules: [{needs_approval: {own: 'true'}}]", "own (line 1): input should be a valid boolean, not a string"),
        ("rules: [{clamp: {parameter: a, least: '3'}}]", "least (line 1): input should be a number, not a string"),
        ("rules: [{clamp: {parameter: a, least: true}}]", "least (line 1): input should be a number, not true or false"),
        ("rules: [{keep_only: {parameter: a, allowed: [b], least: 1.0}}]", "least (line 1): input should be a valid integer"),
        ("rules: [{replace: {parameter: a, value: [1]}}]", "value (line 1): input should be a string, a number, true"),
        ("rules: {block: {reason: x}}", "rules (line 1): input should be a list, not a mapping"),
        ("capabilities: {a: [{tool: t, rates: [{most: '3'}]}]}", "(line 1): input should be a valid integer, not a string"),
        ("trust: {half_life: 2.0, levels: []}", "half_life (line 1): input should be a valid integer, not a number"),
        ("trust: {prior: true, levels: []}", "prior (line 1): input should be a number, or a string such as '0.25', not true"),
        ("routing: [{route: {by: ''}}]", "routing[0].route.by (line 1): unknown approver: ''; pass it with load"),
    ],
)  # fmt: skip
def test_nothing_is_taken_for_what_it_is_not(text: str, said: str) -> None:
    with pytest.raises(SpecError) as raised:
        policy.loads(text + "\ndefault: deny")
    assert said in raised.value.what


def test_a_large_mapping_in_json_is_read_in_linear_time() -> None:
    """Where each name is counted among all others, this takes half a minute."""
    replies = {f"tool_{number}": number for number in range(19_000)}
    text = json.dumps({"rules": [{"sandbox": {"agents": "main", "replies": replies}}]})
    assert len(policy.loads(text, json=True).rules) == 1


def test_a_file_beyond_the_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mat.core.limits.WRITTEN_BYTES", 100)
    path = tmp_path / "policy.yaml"
    path.write_text("default: deny\n" + "#" * 100)
    with pytest.raises(SpecError, match="the limit is 100"):
        policy.load(path)


def test_without_pyyaml_json_policies_work_and_yaml_ones_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert policy.loads('{"default": "deny"}', json=True).default == "deny"
    (tmp_path / "policy.yaml").write_text("default: deny")
    with pytest.raises(mat.MatError, match=r'pip install "pytest-mat\[yaml\]"'):
        policy.load(tmp_path / "policy.yaml")
    assert outcome(policy.load_or_block(tmp_path / "policy.yaml").variant(), look).startswith("blocked: ")


def test_words_that_older_yaml_reads_as_yes_and_no_are_words() -> None:
    text = "rules: [{block: {tools: 'no', reason: on}}]\nrouting: [{route: {by: manager, on: high}}]"
    made = policy.loads(text, approvers=approves(True))
    assert outcome(made.variant("shield+routing"), pay, "ann") == "ann 1"


@pytest.mark.parametrize("name", ["missing.yaml", "broken.yaml", "text.txt", "folder.yaml", "pipe.yaml"])
def test_a_file_that_cannot_be_read_is_refused_at_set_up_and_blocks_everything_at_run_time(tmp_path: Path, name: str) -> None:
    (tmp_path / "broken.yaml").write_text("rules: [{blok: {}}]")
    (tmp_path / "text.txt").write_text("default: deny")
    (tmp_path / "folder.yaml").mkdir()
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(SpecError):
        policy.load(tmp_path / name)
    closed = policy.load_or_block(tmp_path / name)
    for variant in ("shield", "shield+capabilities", "shield+routing", ""):
        with mat.run(governance=closed.variant(variant)) as run:
            for call in (look, drop, lambda: pay("ann")):
                with pytest.raises(mat.Blocked, match=f"the policy {name} cannot be used, so nothing is allowed"):
                    call()
        reasons = [record.mediation.reason for record in run.trace if record.mediation]
        assert len(reasons) == 3
        assert {record.effected for record in run.trace if record.action.kind == "tool_call"} == {"no"}


def test_a_good_file_is_loaded_the_same_at_run_time(tmp_path: Path) -> None:
    path = tmp_path / "policy.yml"
    path.write_text("rules: [{block: {tools: drop, reason: never}}]")
    governance = policy.load_or_block(path).variant()
    assert outcome(governance, drop) == "blocked: never"
    assert outcome(governance, look) == "1"


WORDS = (
    "mat name rules routing trust capabilities main tool parameters block clamp sandbox",
    "route least most values pattern levels below keep verify variants shield use",
    "default where unless tools to.* state.x replies agents strip matching length",
)
KEYS = st.sampled_from([word for line in WORDS for word in line.split()])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | KEYS
DATA = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=25
)  # fmt: skip


def loaded_or_refused(text: str, **options: Any) -> None:
    try:
        made = policy.loads(text, **options)
    except SpecError:
        return
    assert made.variant("none") is None


@given(st.dictionaries(KEYS, DATA, max_size=5))
def test_whatever_a_json_file_holds_it_is_a_policy_or_refused(data: Any) -> None:
    loaded_or_refused(json.dumps(data), json=True, approvers=approves(True))


@given(st.text(max_size=60) | st.lists(st.sampled_from([":", "-", " ", "\n", "{", "}", "[", "'", "rules", "1e9"])).map("".join))
def test_whatever_a_yaml_file_holds_it_is_a_policy_or_refused(text: str) -> None:
    loaded_or_refused(text)


@given(st.integers(0, len(POLICY)), st.integers(0, 12), st.text(max_size=3))
def test_a_damaged_file_is_a_policy_or_refused(at: int, size: int, instead: str) -> None:
    loaded_or_refused(POLICY[:at] + instead + POLICY[at + size :], approvers=approves(True))


def ruled(rule: str, **approvers: Any) -> mat.policy.Governance | None:
    return policy.loads(f"rules:\n  - {rule}", approvers=approvers).variant("shield")


@pytest.mark.sweep(
    ("rule", "call", "got"),
    [
        ("block: {reason: no}", lambda: pay("ann"), "blocked: no"),
        ("block: {reason: no, tools: [pay]}", lambda: drop(), "None"),
        ("block: {reason: no, impact: high}", lambda: pay("ann"), "blocked: no"),
        ("block: {reason: no, impact: high}", lambda: drop(), "None"),
        ("block: {reason: no, effect: write}", lambda: look(), "1"),
        ("block: {reason: no, agents: main}", lambda: look(), "blocked: no"),
        ("block: {reason: no, agents: [other]}", lambda: look(), "1"),
        ("block: {reason: no, where: {to: [eve]}}", lambda: pay("eve"), "blocked: no"),
        ("block: {reason: no, where: {to: [eve]}}", lambda: pay("ann"), "ann 1"),
        ("block: {reason: no, unless: {to: [ann]}}", lambda: pay("ann"), "ann 1"),
        ("block: {reason: no, unless: {to: [ann]}}", lambda: pay("eve"), "blocked: no"),
        ("block: {reason: no, unless: {missing: [ann]}}", lambda: pay("eve"), "blocked: no"),
        ("block: {reason: no, unless: {state.checked: [true]}}", lambda: pay("eve"), "blocked: no"),
        ("replace: {parameter: to, value: bob, unless: [ann]}", lambda: pay("eve"), "bob 1"),
        ("keep_only: {parameter: to, allowed: [ann]}", lambda: pay("ann, eve"), "ann 1"),
        ("drop_recipients: {allowed: [ann]}", lambda: pay("ann, eve"), "ann 1"),
        ("strip: {parameters: to, matching: 'e+'}", lambda: pay("eve"), "v 1"),
        ("redact: {data: email}", lambda: pay("a@b.example"), "[email] 1"),
        ("to_approval: {tools: pay}", lambda: pay("ann")["status"], "pending approval"),  # type: ignore[index]
        ("needs_approval: {tools: pay}", lambda: pay("ann"), "blocked: pay needs approval, and this run has no approver"),
    ],
)  # fmt: skip
def test_each_rule_of_the_vocabulary_does_what_its_name_says(rule: str, call: Any, got: str) -> None:
    assert outcome(ruled(rule), call) == got


def test_a_rule_reads_the_projection_of_the_state() -> None:
    governance = ruled("block: {reason: no, unless: {state.checked: [true]}}")
    assert outcome(governance, look, state={"checked": True}) == "1"
    assert outcome(governance, look, state={"checked": False}) == "blocked: no"


def test_a_restriction_sees_any_member_of_a_list_and_an_exception_needs_all_of_them() -> None:
    @mat.tool(effect="write")
    def send(to: list[str]) -> int:
        return len(to)

    bad, only = ruled("block: {reason: no, where: {to.*: [eve]}}"), ruled("block: {reason: no, unless: {to.*: [ann, bob]}}")
    for governance in (bad, only):
        assert outcome(governance, send, ["ann", "bob"]) == "2"
        assert outcome(governance, send, ["ann", "eve"]) == "blocked: no"


def test_a_rule_is_about_the_roles_that_it_names() -> None:
    governance = ruled("block: {reason: no, roles: [intern, guest]}")
    for role, got in (("intern", "blocked: no"), ("guest", "blocked: no"), ("chief", "1"), ("", "1")):
        with mat.run(governance=governance), mat.agent("ann", role=role):
            try:
                found = str(look())
            except mat.Blocked as blocked:
                found = f"blocked: {blocked.reason}"
        assert (role, found) == (role, got)


def test_a_rule_is_about_tool_calls_unless_it_names_other_kinds_of_action() -> None:
    @mat.model("planner")
    def planner(prompt: str) -> str:
        return prompt

    tools, models = ruled("block: {reason: no}"), ruled("block: {reason: no, kinds: [model_call]}")
    both = ruled("block: {reason: no, kinds: [model_call, tool_call]}")
    assert [outcome(each, look) for each in (tools, models, both)] == ["blocked: no", "1", "blocked: no"]
    assert [outcome(each, planner, "plan") for each in (tools, models, both)] == ["plan", "blocked: no", "blocked: no"]


def test_a_permission_needs_all_members_of_a_list_and_an_exception_to_it_any_of_them() -> None:
    @mat.tool(effect="write")
    def send(to: list[str]) -> int:
        return len(to)

    for condition in ("where: {to.*: [ann, bob]}", "unless: {to.*: [eve]}"):
        governance = policy.loads(f"default: deny\nrules: [{{allow: {{tools: send, {condition}}}}}]").variant("shield")
        assert outcome(governance, send, ["ann", "bob"]) == "2"
        assert outcome(governance, send, ["ann", "eve"]).startswith("blocked: ")
    missing = policy.loads("default: deny\nrules: [{allow: {tools: send, where: {cc: [ann]}}}]").variant("shield")
    assert outcome(missing, send, ["ann"]).startswith("blocked: ")


def test_what_is_not_allowed_is_denied_where_the_file_says_so() -> None:
    text = "default: deny\nrules:\n  - allow: {tools: pay, where: {to: [ann]}}\n  - allow: {tools: look}"
    governance = policy.loads(text).variant("shield")
    assert outcome(governance, pay, "ann") == "ann 1"
    assert outcome(governance, look) == "1"
    assert outcome(governance, pay, "eve").startswith("blocked: ")
    assert outcome(governance, drop).startswith("blocked: ")


@pytest.mark.parametrize(
    ("allowed", "fits", "refused"),
    [
        ("[ann]", "ann", "bob"),
        ("{values: [ann]}", "ann", "bob"),
        ("{pattern: 'a.*'}", "ann", "ban"),
        ("{length: {least: 3, most: 3}}", "ann", "anna"),
        ("{endpoint: {hosts: api.shop.example, paths: /v1}}", "https://api.shop.example/v1/x", "https://api.shop.example.evil/v1/x"),
        ("{folder: /srv/reports}", "/srv/reports/a", "/srv/reports/../etc"),
    ],
)  # fmt: skip
def test_each_way_to_say_what_a_value_may_be(allowed: str, fits: str, refused: str) -> None:
    made = policy.loads(f"capabilities:\n  main:\n    - tool: pay\n      parameters: {{to: {allowed}}}")
    governance = made.variant("shield+capabilities")
    assert outcome(governance, pay, fits) == f"{fits} 1"
    assert outcome(governance, pay, refused).startswith("blocked: ")


@pytest.mark.parametrize(
    ("bounds", "amounts"), [("least: 2", {2, 3, 9}), ("most: 3", {1, 2, 3}), ("least: 2, most: 3", {2, 3})]
)
def test_a_range_may_be_open_at_one_end(bounds: str, amounts: set[int]) -> None:
    made = policy.loads(f"capabilities: {{main: [{{tool: pay, parameters: {{amount: {{{bounds}}}}}}}]}}")
    governance = made.variant("shield+capabilities")
    assert {amount for amount in (1, 2, 3, 9) if not outcome(governance, pay, "ann", amount).startswith("blocked")} == amounts


def test_levels_of_trust_hold_rules_capabilities_and_stand_ins() -> None:
    text = """
trust:
  start: {main: 0.3, low: 0.1, intern: "0.05"}
  levels:
    - {below: 0.4, keep: [look, {tool: pay, parameters: {to: [ann]}}]}
    - {below: 0.2, rules: [{clamp: {parameter: amount, most: 1}}]}
    - {below: 0.06, sandbox: {replies: {pay: pretended}}}
"""
    governance = policy.loads(text).variant("shield+routing")
    assert outcome(governance, pay, "ann", 9) == "ann 9"
    assert outcome(governance, pay, "eve", 9).startswith("blocked: trust in main is 0.3000, below 0.4000")
    assert outcome(governance, pay, "ann", 9, agent="low") == "ann 1"
    assert outcome(governance, pay, "ann", 9, agent="intern") == "pretended"
    assert outcome(governance, drop, agent="fresh") == "None"


@pytest.mark.parametrize(
    "text", ['"bad\\e[2J\\u202e": 1', 'default: "deny\\e[31m"', 'rules: ["\\e]0;title\\a"]', "name: [\x1b"]
)
def test_control_characters_of_a_policy_are_spelled_out_in_its_errors(text: str, tmp_path: Path) -> None:
    file = tmp_path / "policy\x1b[1m.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        policy.load(file)
    assert all(line.isprintable() for line in str(caught.value).split("\n")), str(caught.value)
    assert "\\x1b[1m.yaml" in str(caught.value)


@mat.tool(effect="read")
def fetch(url: Any) -> str:
    return "fetched"


@pytest.mark.parametrize(
    ("condition", "meant", "other"),
    [
        ("endpoint: {hosts: evil.example}", "https://a@evil.example:8443/x", "https://good.example/x"),
        ("folder: /etc", "../../etc/passwd", "notes.txt"),
        ("least: 50", Decimal("900"), Decimal("9")),
        ("least: 50", float("nan"), 9.5),
        ("least: 50", ["900"], ["9"]),
        ("pattern: '.*secret.*'", [b"a secret"], [b"a letter"]),
        ("values: [123]", "123", "124"),
    ],
)
def test_in_doubt_a_restriction_applies_and_a_permission_does_not(condition: str, meant: Any, other: Any) -> None:
    """Each `meant` is inside in one of its readings only."""
    where = f"{{url: {{{condition}}}}}"
    assert outcome(ruled(f"block: {{reason: no, where: {where}}}"), fetch, meant) == "blocked: no"
    assert outcome(ruled(f"block: {{reason: no, where: {where}}}"), fetch, other) == "fetched"
    assert outcome(ruled(f"block: {{reason: no, unless: {where}}}"), fetch, meant) == "blocked: no"
    for options, value in ((f"where: {where}", meant), (f"unless: {where}", meant), (f"where: {where}", other)):
        allowing = policy.loads(f"default: deny\nrules: [{{allow: {{tools: fetch, {options}}}}}]").variant("shield")
        assert outcome(allowing, fetch, value).startswith("blocked: "), options
    caps = policy.loads(f"capabilities: {{main: [{{tool: fetch, parameters: {where}}}]}}").variant("shield+capabilities")
    assert outcome(caps, fetch, meant).startswith("blocked: ")


@pytest.mark.parametrize("path", ["url", "url.*", "url.0"])
def test_a_path_of_a_restriction_misses_no_shape_of_the_value(path: str) -> None:
    governance = ruled(f"block: {{reason: no, where: {{{path}: [eve]}}}}")
    assert outcome(governance, fetch, "eve") == "blocked: no"
    assert outcome(governance, fetch, ["eve"]) == "blocked: no"
    assert outcome(governance, fetch, "ann") == outcome(governance, fetch, ["ann"]) == "fetched"


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("allow: {tools: []}", "tools (line 2): the list is empty"),
        ("allow: {agents: []}", "agents (line 2): the list is empty"),
        ("block: {reason: no, kinds: []}", "kinds (line 2): the list is empty"),
        ("block: {reason: no, kinds: [approval]}", "'approval' is not one of"),
        ("block: {reason: no, kinds: [final_response]}", "'final_response' is not one of"),
        ("block: {reason: no, tools: ''}", "the name is empty"),
        ("block: {reason: no, tools: 'send, refund'}", "write several names as a list: [send, refund]"),
        ("block: {reason: no, where: {amount: []}}", "the list is empty, so no value meets it"),
        ("block: {reason: no, where: {'': [1]}}", "the path has an empty part"),
        ("block: {reason: no, where: {}}", "it names no parameter"),
        ("block: {reason: no, where: {amount: {least: 1e400}}}", "1e400 on line 2 cannot be held exactly"),
        ("block: {reason: no, where: {amount: {least: .inf}}}", ".inf on line 2 cannot be held exactly"),
        ("block: {reason: no, where: {amount: [500.0000000000000000001]}}", "it would become 500.0"),
        ("block: {reason: no, where: {amount: [9007199254740993.0]}}", "it would become 9007199254740992.0"),
        ("block: {reason: no, where: {url: {endpoint: {hosts: a.example, paths: ''}}}}", "the name is empty"),
        ("block: {reason: no, where: {url: {endpoint: {hosts: a.example, paths: []}}}}", "the list is empty"),
        ("needs_approval: {by: ''}", "unknown approver: ''"),
    ],
)
def test_a_condition_that_would_mean_something_else_than_it_says_is_refused(rule: str, said: str) -> None:
    with pytest.raises(SpecError) as raised:
        policy.loads(f"rules:\n  - {rule}")
    assert said in raised.value.what


def test_numbers_are_those_of_yaml_1_2() -> None:
    data, _ = data_of("[0x1F4, 0o17, 017, 1e3, 0.1]", json=False, kind="policy", where="policy")
    assert data == [500, 15, 17, 1000.0, 0.1]


def test_a_rule_about_grants_applies() -> None:
    governance = policy.loads(
        "capabilities: {boss: [look], intern: []}\nrules: [{block: {kinds: [grant], reason: no}}]"
    ).variant()
    with mat.run(governance=governance) as run, mat.agent("boss"):
        assert mat.grant("intern", "look") is False
    assert run.trace[0].blocked
