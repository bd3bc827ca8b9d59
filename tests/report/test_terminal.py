from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

import mat
from mat.core.campaign import Certificate, Counterexample, Stability
from mat.core.difference import first_difference
from mat.core.site import parse_site
from mat.core.spec import perturbation
from mat.harness.execute import installed_operators
from mat.report import words
from mat.report.terminal import difference_text, failure_section, steps_table, violation_section


def section(found: Counterexample, certificate: Certificate, path: str = "tests/mat_replays/x-123456.mat.json") -> str:
    return failure_section(found, certificate, replay_path=path, item="tests/test_shop.py::test_refund")


def flat(text: str) -> str:
    return " ".join(text.split())


def test_a_failure_starts_with_the_contract_and_what_it_says(shop_tests: Any, found: Counterexample) -> None:
    text = section(found, shop_tests.proven)
    assert text.splitlines()[0] == f"refund.once: refunded twice ({found.run.places[3]})"
    assert found.run.places[3].startswith("tests/report/conftest.py:")


def test_a_failure_tells_all_a_person_can_act_on(shop_tests: Any, found: Counterexample) -> None:
    text = flat(section(found, shop_tests.proven))
    for said in (
        "hard contract, effected at step 3 by mailer (support), in tests/test_shop.py::test_refund",
        "Schedule, cost 4:",
        "the reply of the 1st refund call by mailer is lost after the effect happened",
        "service.lost_ack at mailer/service:refund#1, cost 4, step 1",
        "No cheaper counterexample exists on this grid: 212 executions, bound 4, 38 skipped.",
        "It was reproduced in 3 of 3 executions.",
        "Steps 0 to 4 of 5",
        "By recorded provenance, step 3 was built from step 0 (tool_call lookup).",
        "Repair: send an idempotency key",
        "Replay: pytest --mat-replay tests/mat_replays/x-123456.mat.json",
    ):
        assert said in text


def test_a_failure_names_the_boundary_of_entry_and_the_path_of_the_fault(shop_tests: Any, found: Counterexample) -> None:
    text = flat(section(found, shop_tests.proven))
    assert "Fault: service.lost_ack entered at service (mailer/service:refund#1, step 1)" in text
    assert (
        "Steps it passed through (recorded provenance, not necessarily causes): step 1 mailer: tool_call refund -> "
        "step 3 mailer: tool_call refund (its retry)" in text
    )
    assert text.index("By recorded provenance") < text.index("Fault: ") < text.index("Repair: ")


def test_a_fault_that_was_not_contained_is_reported_with_what_came_of_it(shop_tests: Any) -> None:
    from mat_contracts import containment

    def body() -> None:
        with mat.agent("mailer"):
            for order in ("A-1", "A-1"):
                with suppress(TimeoutError):
                    shop_tests.refund(order, 25)

    strict = containment(mitigate_within=0)
    run = shop_tests.run(body, [shop_tests.lost], contracts=[strict, shop_tests.contract])
    assert [item.contract for item in run.violations] == ["refund.once"]
    run = shop_tests.run(lambda: None, contracts=[strict])
    assert "Fault: " not in violation_section(run, list(run.failures))

    def later() -> None:
        body()
        with mat.agent("mailer"):
            mat.claim("paid", supports=["step#1"])

    from mat.monitor.faults import DetectionRules

    run = shop_tests.run(
        later, [shop_tests.lost], contracts=[containment(rules=DetectionRules(without=["retry"])), shop_tests.contract]
    )
    text = flat(violation_section(run, [item for item in run.failures if item.contract == "containment.faults"]))
    assert "Fault: service.lost_ack entered at service (mailer/service:refund#1, step 0)" in text
    assert "step 0 mailer: tool_call refund -> step 1 mailer: tool_call refund (its retry)" in text
    assert "First violation on that path: refund.once at step 1: refunded twice" in text


def test_the_table_shows_each_step_of_the_region_with_its_marks(shop_tests: Any, found: Counterexample) -> None:
    table = section(found, shop_tests.proven).split("Steps 0 to 4 of 5\n")[1]
    header, *lines = table.split("\n\n")[0].splitlines()
    assert header.split() == ["step", "ms", "agent", "action", "arguments", "observation", "effect", "marks"]
    by_step = {line.split()[0]: line for line in lines if re.match(r" *\d", line)}
    assert list(by_step) == ["0", "1", "2", "3", "4"]
    assert "TimeoutError" in by_step["1"]
    assert "write: yes" in by_step["1"]
    assert "fault" in by_step["1"]
    assert "VIOLATES" in by_step["3"]
    assert "mitigation retry" in by_step["2"]
    assert all("VIOLATES" not in by_step[step] for step in "0124")


def test_everything_fits_the_width_and_carries_no_colour(shop_tests: Any) -> None:
    def wordy() -> None:
        with mat.agent("an agent with a rather long name", role="r" * 80):
            for number in range(3):
                mat.claim("lorem ipsum " * 100, supports=[])
                shop_tests.refund("order-" + "7" * 300, number)

    long = replace(shop_tests.counterexample(shop_tests.run(wordy)), stability=Stability(runs=3, reproduced=2))
    text = section(long, replace(shop_tests.proven, proven=False, reason="because " * 40))
    assert max(len(line) for line in text.splitlines()) <= words.WIDTH
    assert "\x1b" not in text


def test_text_from_a_run_cannot_write_to_the_terminal(shop_tests: Any) -> None:
    evil = "\x1b[31m[red]evil[/red]\x07\u202e :smile: "

    def body() -> None:
        with mat.agent("a\x1b]0;title\x07"):
            mat.claim(evil)
            shop_tests.refund(evil, 1)
            shop_tests.refund(evil, 1)

    text = section(shop_tests.counterexample(shop_tests.run(body)), shop_tests.proven, path="x\x1b[2J.mat.json")
    assert all(character.isprintable() or character == "\n" for character in text)
    assert "[red]evil[/red]" in text.replace("\n", "") or "[red]" in flat(text)
    assert ":smile:" in text


def test_an_empty_schedule_says_that_nothing_was_disturbed(shop_tests: Any) -> None:
    def twice() -> None:
        shop_tests.refund("A-777", 1)
        shop_tests.refund("A-777", 1)

    text = section(shop_tests.counterexample(shop_tests.run(twice)), shop_tests.proven)
    assert "Schedule: empty. The nominal run breaks the contract." in text


def test_perturbations_are_listed_in_the_order_in_which_they_hit(shop_tests: Any) -> None:
    second = mat.spec.perturbation("service.odd", "mailer/service:lookup#1", {"magnitude": 2}, cost=6)

    def body() -> None:
        with mat.agent("mailer"):
            for number in range(2):
                with suppress(TimeoutError):
                    shop_tests.refund("A-777", number)

    run = shop_tests.run(body, [shop_tests.lost, second])
    text = section(shop_tests.counterexample(run), shop_tests.proven)
    assert text.index("1. the reply of the 1st refund") < text.index("2. service.odd acts on the 1st lookup call by mailer")
    assert "service.odd(magnitude=2) at mailer/service:lookup#1, cost 6, not reached" in flat(text)


@pytest.mark.parametrize(
    ("certificate", "cost", "said"),
    [
        (Certificate(proven=True, bound=3, executions=9), 4, "No cheaper counterexample exists on this grid: 9 executions"),
        (
            Certificate(proven=True, bound=2, executions=9),
            4,
            "No counterexample of cost 2 or less exists on this grid; costs up to 4 are undecided",
        ),
        (Certificate(proven=False, reason="max-runs reached"), 4, "Not proven to be the cheapest: max-runs reached"),
        (Certificate(proven=False), 4, "the search did not finish"),
    ],
)
def test_a_certificate_claims_no_more_than_was_searched(certificate: Certificate, cost: int, said: str) -> None:
    assert said in words.certificate_in_words(certificate, cost)


def test_an_unstable_counterexample_says_so(shop_tests: Any, found: Counterexample) -> None:
    text = section(replace(found, stability=Stability(runs=3, reproduced=1)), shop_tests.proven)
    assert "reproduced in 1 of 3 executions: the failure is real, but not stable" in flat(text)


@pytest.mark.parametrize(
    ("operator", "site", "said"),
    [
        ("service.timeout", "mailer/service:refund#2", "the 2nd refund call by mailer times out and has no effect"),
        ("service.outage", "mailer/service:track#1..3", "track is down during the 1st to 3rd track call by mailer"),
        ("memory.insert", "a/memory:notes#11", "the 11th use of memory notes by a finds an entry that the team did not write"),
        ("retrieval.shuffle", "a/retrieval:kb#21", "the passages of the 21st search of kb by a are shuffled"),
        ("prompt.splice", "a/prompt:email#1", "text is spliced into the 1st message from email to a"),
        ("model.brand_new", "a/model:planner#3", "model.brand_new acts on the 3rd call of model planner by a"),
        ("order.swap", "a/order:service.refund#2", "order.swap acts on the 2nd refund call by a"),
        ("delegation.late", "a/delegation:b#1", "delegation.late acts on the 1st message or task from a to b"),
    ],
)
def test_a_perturbation_is_reported_in_words(operator: str, site: str, said: str) -> None:
    assert words.perturbation_in_words(perturbation(operator, site)) == said


def test_names_with_braces_are_only_names() -> None:
    site = parse_site("%7b;nth%7d;/service:%7b;0%7d;#1")
    assert words.perturbation_in_words(perturbation("service.new", site)) == "service.new acts on the 1st {0} call by {nth}"


@pytest.mark.parametrize(
    ("number", "text"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (112, "112th"), (101, "101st")]
)
def test_ordinals(number: int, text: str) -> None:
    assert words.ordinal(number) == text


def test_a_replay_path_with_spaces_can_be_pasted(shop_tests: Any, found: Counterexample) -> None:
    assert "pytest --mat-replay 'my tests/x.mat.json'" in section(found, shop_tests.proven, path="my tests/x.mat.json")


def test_a_violation_without_a_search_shows_each_contract_once_with_its_steps(shop_tests: Any) -> None:
    noisy = mat.step_contract(on="tool_call", id="noisy")(lambda record: False)
    run = shop_tests.run(schedule=[shop_tests.lost], contracts=[noisy, shop_tests.contract])
    text = violation_section(run, list(run.failures))
    assert text.splitlines()[0].startswith("noisy: noisy does not hold (tests/report/conftest.py:")
    assert text.count("noisy: noisy does not hold") == 1
    assert "2 more violations of this contract" in flat(text)
    assert "refund.once: refunded twice" in text
    assert "Repair: send an idempotency key" in text
    assert "Perturbed: the reply of the 1st refund call" in text


def test_blocked_steps_are_marked(shop_tests: Any) -> None:
    def body() -> None:
        with suppress(mat.Blocked):
            shop_tests.refund("A-777", 1)

    run = shop_tests.run(body, governance=mat.policy.Governance(rules=[lambda record: mat.policy.Block("no refunds")]))
    assert "blocked" in steps_table(run, run.records)


def test_a_difference_shows_the_step_of_both_runs(shop_tests: Any) -> None:
    one, other = shop_tests.run(), shop_tests.run(schedule=[shop_tests.lost])
    difference = first_difference(one, other)
    assert difference is not None
    text = difference_text(difference, one, other, names=("old", "new"))
    assert text.splitlines()[0] == "first difference at step 1, in: fault"
    assert "likely cause: schedule changed" in flat(text)
    old, new = text.split("\nold\n")[1].split("\nnew\n")
    assert "tool_call refund" in old
    assert "TimeoutError" not in old
    assert "TimeoutError" in new


def test_every_installed_operator_has_words_of_its_own() -> None:
    general = [
        operator.id
        for operator in installed_operators()
        if operator.id in words.perturbation_in_words(perturbation(operator.id, f"a/{operator.boundary}:service.port#1"))
    ]
    assert general == []
