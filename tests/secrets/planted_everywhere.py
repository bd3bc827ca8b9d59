"""A project that says a secret everywhere; `test_places.py` copies it into a folder, and searches all that is written.

Each test says the secret in one form, in every place where a person or a program can put text.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import forms
import pydantic
import pytest

import mat
from mat.evidence import jsonl
from mat.policy import Allow, Block, Governance, NeedsApproval, Rewrite

SECRET = mat.secret(os.environ["PLANTED_SECRET"])


class Account(pydantic.BaseModel):
    key: pydantic.SecretStr
    raw: pydantic.SecretBytes


@mat.tool(effect="read", perturb=False)
def look(query, **more):
    return {"echo": query, str(query): [query, {"deep": (query,)}], "bytes": str(query).encode()}


@mat.tool(effect="read", perturb=False)
def fail(query):
    try:
        raise KeyError(query)
    except KeyError as cause:
        error = RuntimeError(f"cannot {query}")
        error.add_note(f"a note on {query}")
        raise error from cause


@mat.tool(effect="write")
def pay(amount: int):
    return "paid"


@mat.tool(effect="write", perturb=False)
def open_door(key):
    return {"key": key, "account": Account(key=SECRET, raw=SECRET.encode())}


@mat.retriever("library", perturb=False)
def find(query):
    return [mat.Passage(text=f"found {query}", id=f"id {query}", source=f"source {query}", metadata={"about": query})]


@mat.model("planner", record="keep", perturb=False)
def plan(prompt):
    return {"text": f"I use {prompt}", "usage": {"input_tokens": 3, "output_tokens": 4}}


@mat.model("writer", perturb=False)
def write(prompt):
    return f"hash {prompt}"


def everywhere(text):
    log = logging.getLogger("desk")
    notes = mat.memory({}, name="notes", perturb=False)
    with mat.agent(f"clerk {text}", role=f"role {text}"):
        mat.untrusted(f"mail {text}", channel=f"channel {text}")
        look(text)
        look([text, {text: (text,)}], note=text)
        look(json.dumps({"inner": json.dumps({"innermost": text})}))
        look(repr({"quoted": text}))
        look(text.encode())
        with pytest.raises(RuntimeError):
            fail(text)
        find(text)
        plan(f"use {text}")
        write(f"use {text}")
        notes[f"key {text}"] = f"value {text}"
        assert notes[f"key {text}"]
        mat.state(**{"signal": text, "nested": {text: text}})
        mat.message(f"to {text}", f"use {text}")
        mat.delegate(f"helper {text}", task=f"use {text}")
        mat.claim(f"it is {text}", supports=[text])
        mat.verify(f"checked {text}", passed=True)
        mat.detect(f"leak of {text}")
        mat.mitigate("retry", why=text)
        mat.approval(f"spend {text}", why=text)
        mat.grant(f"helper {text}", "look")
        mat.artifact.observed(f"artifact {text}", name="token")
        open_door(pydantic.SecretStr(SECRET))
        open_door({"account": Account(key=SECRET, raw=SECRET.encode())})
        with pytest.raises(mat.Blocked):
            look(f"forbidden {text}")
        look(f"rewrite {text}")
        look(f"ask {text}")
        log.warning("the log has %s", text)
        print(f"printed {text}")
        try:
            pay(1)
        except Exception:
            mat.mitigate("alternate", why=f"after {text}")
            pay(1)
    mat.finish(text)


def contracts(text):
    @mat.step_contract(on="tool_call", id="desk.named", severity="soft")
    def named(record):
        return record.action.name != "open_door" or mat.Violated(
            f"message {text}",
            repair=f"repair {text}",
            instance=f"instance {text}",
            wanted=f"wanted {text}",
            label=f"label {text}",
        )

    @mat.step_contract(on="tool_call", id="desk.raw", severity="soft", raw=True, repair=f"general repair {text}")
    def raw(record):
        return record.action.name != "look" or mat.Violated(f"it was called with {record.action.arguments}")

    @mat.trace_contract(start=0, id="desk.crashes", severity="soft", on_error="unknown")
    def crashes(count, record):
        raise ValueError(f"a contract cannot judge {text}")

    @mat.trace_contract(start=0, on="tool_call", id="desk.paid_once")
    def paid_once(count, record):
        paid = count + (record.action.name == "pay")
        return paid if paid < 2 else mat.Violated(f"paid twice with {text}", repair=f"remember {text}", state=paid)

    @mat.step_contract(on="tool_call", id=f"desk.{text}", severity="soft")
    def in_its_name(record):
        return record.action.name != "look"

    return [named, raw, crashes, paid_once, *([in_its_name] if text == forms.FORMS["percent"](SECRET) else [])]


def governance(text):
    def decide(record):
        query = str(record.action.arguments.get("query", ""))
        if query.startswith("forbidden"):
            return Block(f"a reason with {text}")
        if query.startswith("rewrite"):
            return Rewrite({"query": f"rewritten {text}"})
        if query.startswith("ask"):
            return NeedsApproval(f"the approval of {text}")
        return Allow()

    return Governance(rules=(decide,), approver=lambda *asked: True, granters={}, name="shield")


def declared(name):
    text = forms.FORMS[name](SECRET)

    @pytest.mark.mat(
        budget=4,
        faults="service.lost_ack",
        workload=mat.Workload(category=f"category {text}", channels=[f"channel {text}"]),
    )
    def test(mat_run, record_property):
        record_property("said", text)
        with mat_run.episode(f"episode {text}"):
            everywhere(text)

    return test


for each in forms.FORMS:
    globals()[f"test_{each}"] = declared(each)


@pytest.fixture
def mat_contracts(request):
    return contracts(forms.FORMS[request.node.originalname.removeprefix("test_")](SECRET))


@pytest.fixture
def mat_governance(request):
    return governance(forms.FORMS[request.node.originalname.removeprefix("test_")](SECRET))


@pytest.fixture
def mat_config(request):
    text = forms.FORMS[request.node.originalname.removeprefix("test_")](SECRET)
    return {"model": f"model {text}", text: "a key", "prompts": [text]}


def test_files(tmp_path):
    """Files that a program writes itself through the library."""
    from mat.adapters.otel import to_otlp_json

    for name, form in forms.FORMS.items():
        text = form(SECRET)
        with mat.run(contracts(text)[:4], task=f"task {text}", config={text: text}, governance=governance(text)) as run:
            everywhere(text)
        jsonl.write(Path("traces.jsonl"), run.result, trace=f"trace {name} {text}", labels={"label": text, text: 1})
        Path(f"otlp-{name}.json").write_text(json.dumps(to_otlp_json(run.result, service=f"service {text}")), encoding="utf-8")
        assert SECRET not in repr(run.result.records)
