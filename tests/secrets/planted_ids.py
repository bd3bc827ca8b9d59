"""Tests with a secret in their node ids, a secret that is declared in the run alone, and replies of a live model."""

from __future__ import annotations

import os

import forms
import pytest

import mat

SECRET = mat.secret(os.environ["PLANTED_SECRET"])
LATE = "late-" + forms.SECRET[::-1] + "-" + forms.MIDDLE


@mat.tool(effect="write")
def pay(key):
    return f"paid with {key}"


@mat.model("planner", record="keep", tape="external", perturb=False)
def plan(prompt):
    return "a plan"


@pytest.fixture
def paid_once():
    @mat.trace_contract(start=0, on="tool_call", id="paid.once")
    def judged(count, record):
        paid = count + (record.action.name == "pay")
        return paid if paid < 2 else mat.Violated(f"paid twice by {record.agent}", repair=f"remember {SECRET}", state=paid)

    return judged


@pytest.fixture
def mat_governance(request):
    if request.node.originalname != "test_varies":
        return None
    return {
        f"variant-{SECRET.encode().hex()}": mat.policy.Governance(
            capabilities={"*": ["pay", "plan"]}, rules=(lambda record: mat.policy.Allow(),), version=f"version {SECRET}"
        ),
        "none": None,
    }


def agent(text):
    with mat.agent(f"clerk {text}"):
        plan(f"pay with {text}")
        try:
            pay(text)
        except TimeoutError as error:
            mat.mitigate("retry", why=f"{error} {text}")
            pay(text)
    mat.finish(f"paid {text}")


PARAMETERS = [pytest.param(form, id=forms.FORMS[form](SECRET)) for form in ("plain", "json", "percent")]


@pytest.mark.mat(budget=4, faults="service.lost_ack", workload=mat.Workload(category="pays", tools=["pay"], waive=["channels"]))
@pytest.mark.parametrize("form", PARAMETERS)
def test_pays(mat_run, paid_once, form):
    agent(forms.FORMS[form](SECRET))


@pytest.mark.mat(budget=4, faults="service.lost_ack")
def test_varies(mat_run, paid_once):
    agent("none")


@pytest.mark.mat(budget=4, faults="service.lost_ack")
def test_pays_late(mat_run, paid_once):
    mat.untrusted(f"use {LATE}", channel=f"channel {LATE}")
    mat.secret(LATE)
    agent(LATE)
