"""A planted secret is in no artefact (A1.8, L16), wherever in a run it turns up; agents and ports still get the real thing."""

from __future__ import annotations

from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat.core.site import parse_site
from mat.evidence import runlog

SECRET = "hunter2-the-secret"
TOKENS = {
    "bearer": "Bearer abcdefghijklmnop123456",
    "key": "sk-abcdefghijklmnopqrstuvwx",
    "github": "ghp_abcdefghijklmnopqrst1234",
    "jwt": "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxwRJSMeKKF2QT4",
}


@mat.tool(effect="write")
def call(given: Any, fail: bool = False) -> Any:
    if fail:
        raise ValueError(f"refused {given}")
    return {"echo": given}


@mat.tool
def login(password: str, api_key: str, nested: dict[str, Any]) -> dict[str, Any]:
    return {"access_token": "short", "ok": True, "got": [password == "pw1", api_key == "ak1", nested["secret"] == "s1"]}


def say(text: str) -> None:
    """The text goes everywhere an agent can put it."""
    notes = mat.memory({}, name="notes")
    with mat.agent("planner", role="planner"):
        mat.untrusted(f"mail {text}", channel="email")
        call([{"deep": text}])
        with pytest.raises(ValueError, match="refused"):
            call(text, fail=True)
        notes["a"] = text
        assert text in notes["a"]
        mat.state(plan=text)
        mat.message("mailer", f"use {text}")
        mat.delegate("mailer", task=f"use {text}")
        mat.claim(f"it is {text}", supports=[text])
        mat.verify(f"checked {text}", passed=True)
        mat.detect(f"leak of {text}")
        mat.mitigate("retry", why=text)
        mat.approval(f"spend {text}", why=text)
        mat.finish(text)


def artefacts(run: Any) -> str:
    result = run.result
    return repr(result) + "".join(repr(part) for part in (result.records, result.tape, result.outcomes, result.states))


def test_a_declared_secret_is_in_no_record_wherever_it_is_said():
    with mat.run() as run:
        say(mat.secret(SECRET))
    assert len(run.trace) == 13, "everything that was said is recorded"
    assert SECRET not in artefacts(run)
    assert "[redacted:secret" in artefacts(run)


def test_a_secret_that_is_declared_late_is_cut_out_of_what_was_recorded_before():
    with mat.run() as run:
        say(SECRET)
        assert SECRET in repr(run.trace)
        mat.secret(SECRET)
    assert SECRET not in repr(run.trace)


def test_a_site_that_named_a_secret_before_it_was_declared_counts_on_without_it():
    with mat.run() as run:
        mat.verify(f"checked {SECRET}", passed=True)
        mat.secret(SECRET)
        mat.verify(f"checked {SECRET}", passed=True)
    assert SECRET not in repr(run.trace)
    first, second = (record.site for record in run.trace if record.action.kind == "verification")
    assert (first.rpartition("#")[0], first[-2:]) == (second.rpartition("#")[0], "#1")
    assert second[-2:] == "#2"


@pytest.mark.parametrize("kind", sorted(TOKENS))
def test_tokens_and_keys_are_known_by_their_look(kind):
    with mat.run() as run:
        say(TOKENS[kind])
    assert TOKENS[kind].removeprefix("Bearer ") not in artefacts(run)


def test_fields_with_the_name_of_a_secret_are_cut_out_however_short_they_are():
    with mat.run() as run:
        assert login("pw1", "ak1", {"secret": "s1"})["got"] == [True, True, True]
    text = repr(run.trace)
    assert not any(repr(word) in text for word in ("pw1", "ak1", "s1", "short"))
    assert run.trace[0].observation.value["ok"] is True


def test_a_blocked_and_a_rewritten_call_leak_no_secret_either():
    def decide(record: mat.Record) -> Any:
        return (
            mat.policy.Block(f"not {record.action.arguments}")
            if record.action.arguments["fail"]
            else mat.policy.Rewrite({"fail": False})
        )

    with mat.run(governance=mat.policy.Governance(rules=(decide,))) as run:
        secret = mat.secret(SECRET)
        with pytest.raises(mat.Blocked) as caught:
            call(secret, fail=True)
        assert call(secret) == {"echo": SECRET}
    assert SECRET not in str(caught.value)
    assert SECRET not in artefacts(run)


class Account(pydantic.BaseModel):
    key: pydantic.SecretStr
    raw: pydantic.SecretBytes = pydantic.SecretBytes(b"more-of-it")


def test_secrets_of_pydantic_reach_the_port_and_no_record():
    got: list[Any] = []

    @mat.tool
    def open_account(key: Any, accounts: Any, other: int) -> Any:
        got.extend((key, accounts))
        return {"account": Account(key=pydantic.SecretStr(SECRET + "-2")), "plain": f"made with {SECRET}"}

    key, account = pydantic.SecretStr(SECRET), Account(key=pydantic.SecretStr(SECRET))
    with mat.run(governance=mat.policy.Governance(rules=(lambda record: mat.policy.Rewrite({"other": 2}),))) as run:
        reply = open_account(key, [account], 1)
        mat.claim(f"the account has {SECRET}-2, more-of-it")
        mat.finish(pydantic.SecretBytes(SECRET.encode()))
    assert (got[0] is key, got[1][0] is account) == (True, True)
    assert reply["account"].key.get_secret_value() == SECRET + "-2"
    first = run.trace[0]
    assert first.action.arguments["key"] == first.action.arguments["accounts"][0]["key"] == "[redacted:secret#1]"
    assert first.observation.value["plain"] == "made with [redacted:secret#1]"
    assert not any(text in artefacts(run) for text in (SECRET, "more-of-it"))


def test_what_contracts_agents_and_exceptions_say_is_cut_out_too():
    @mat.step_contract(on="tool_call", id="named", repair=f"general {SECRET}")
    def named(record: mat.Record) -> Any:
        return mat.Violated(f"a message {SECRET}", repair=f"use {SECRET}", instance=SECRET, wanted=SECRET, label=SECRET)

    @mat.trace_contract(start=0, id="crashes")
    def crashes(count: int, record: mat.Record) -> Any:
        raise ValueError(SECRET)

    run = mat.run([named, crashes])

    def say_it() -> None:
        mat.secret(SECRET)
        with mat.agent(f"clerk {SECRET}", role=SECRET):
            call("something")
        raise RuntimeError(f"ended by {SECRET}")

    with pytest.raises(RuntimeError), run:
        say_it()
    assert SECRET not in artefacts(run)
    assert run.result is not None
    assert {"a message [redacted:secret#1]"} < {found.message for found in run.result.violations}
    assert run.result.error == "RuntimeError: ended by [redacted:secret#1]"
    assert parse_site(run.trace[0].site).agent == run.trace[0].agent == "clerk [redacted:secret#1]"


def test_equal_secrets_stay_equal_and_different_ones_different():
    with mat.run() as run:
        one, other = mat.secret("first-secret-1"), mat.secret("second-secret-2")
        for text in (one, other, one):
            call(text)
    first, second, third = (item.action.arguments["given"] for item in run.trace[:3])
    assert first == third != second


def test_policies_keep_hash_or_redact_each_field():
    @mat.tool(record={"address": "redact", "body": "hash", "reply": "redact"})
    def mail(to: str, address: str, body: str) -> str:
        return "sent to ann@example.org"

    with mat.run() as run:
        assert mail("ann", "ann@example.org", "a long private letter") == "sent to ann@example.org"
    arguments, reply = run.trace[0].action.arguments, run.trace[0].observation.value
    assert arguments["to"] == "ann"
    assert (set(arguments["address"]), arguments["address"]["pii"]) == ({"redacted", "pii"}, ["email"])
    assert (set(arguments["body"]), arguments["body"]["length"]) == ({"sha256", "length", "pii"}, 21)
    assert (set(reply), reply["pii"]) == ({"redacted", "pii"}, ["email"])
    assert "example.org" not in repr(run.trace)


@given(secret=st.text(min_size=6, max_size=20), around=st.text(max_size=10))
def test_no_secret_of_any_letters_survives_in_a_record(secret, around):
    with mat.run() as run:
        mat.secret(secret)
        call({"text": around + secret, "list": [secret]})
        mat.claim(secret)
    texts = [run.trace[0].action.arguments, run.trace[0].observation.value, run.trace[1].action.arguments]
    assert not any(secret in text for item in texts for text in _leaves(item))


def _leaves(value: Any) -> list[str]:
    """Every recorded text, without the mark that stands for the secret."""
    if isinstance(value, str):
        return [value.replace("[redacted:secret#1]", "\x00")]
    if isinstance(value, dict):
        return [text for item in value.values() for text in _leaves(item)]
    return [text for item in value for text in _leaves(item)] if isinstance(value, list) else []


@pytest.mark.parametrize("wrong", ["", None, 5])
def test_only_a_text_can_be_a_secret(wrong):
    with pytest.raises(mat.MatError, match="non-empty string"):
        mat.secret(wrong)


@pytest.mark.parametrize(
    ("operator", "parameters"),
    [("service.corrupt_field", {"field": 0, "how": "wrong"}), ("service.path_truncate", {"chars": 64, "artefact": 0})],
)
def test_a_secret_that_a_fault_damaged_is_in_no_artefact_either(operator, parameters):
    import mat_faults

    secret = "key-" + "0123456789abcdef" * 20

    @mat.tool(name="fetch")
    def fetch(token: str) -> dict[str, str]:
        return {"token": secret}

    parameters = {**parameters, "magnitude": 1}
    with mat.run(
        schedule=[mat.spec.perturbation(operator, "main/service:fetch#1", parameters)], operators=mat_faults.operators()
    ) as run:
        mat.secret(secret)
        fetch(secret)
    (record, *_) = run.trace
    assert [note.changed for note in record.faults] == [True]
    assert "0123456789" not in repr(run.result)


def test_a_secret_that_is_a_word_of_ours_leaves_runs_readable(tmp_path):
    """Severities, outcomes and kinds are no texts of anybody."""

    @mat.step_contract(on="tool_call", id="never")
    def never(record: mat.Record) -> Any:
        return mat.Violated("it is hard")

    with mat.run([never], task="t") as run:
        for word in ("hard", "effected", "tool_call", "completed", "fail", "yes"):
            mat.secret(word)
        call("it is hard")
        mat.finish("all completed")
    assert run.result is not None
    with runlog.RunLog(tmp_path, session="s") as log:
        log.append(runlog.RunEntry(item="t", condition="nominal", run=run.result))
    (entry,) = runlog.read(tmp_path)
    (violation,) = entry.run.violations
    assert (violation.severity, violation.stage, violation.message) == ("hard", "effected", "it is [redacted:secret#1]")
    assert entry.run.records[0].action.arguments["given"] == "it is [redacted:secret#1]"
    assert (entry.run.records[0].action.kind, entry.run.outcome, entry.run.termination) == ("tool_call", "fail", "completed")
