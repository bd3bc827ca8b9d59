"""Governance variants in a session: which one decides, which are compared, and the table they end in."""

from __future__ import annotations

from typing import Any

import pytest
from tests.plugin.conftest import INI

POLICY = '''
from mat.govern.trust import Level, Trust, route
from mat.govern.variant import Policy, Variant


def modest(record):
    """Refunds are for o1 only, whatever is asked."""
    if record.action.name == "refund" and record.action.arguments["order"] == "o9":
        return mat.policy.Block("not that order")


@pytest.fixture
def mat_governance():
    return Policy(
        rules=(modest,), capabilities={"main": ["check"]}, routing=(route(lambda what, arguments: False),),
    )
'''

TESTS = """
@pytest.mark.mat(seeds=2, governance="shield")
def test_refund(mat_run, no_double):
    assert shop.naive() == "refunded"


@pytest.mark.mat(governance="shield+capabilities", workload=mat.Workload(category="misuse"))
def test_hijacked(mat_run, no_refund):
    try:
        shop.refund("o1")
    except mat.Blocked:
        mat.finish(status="aborted")
"""


def table(session: Any) -> dict[tuple[str, str], dict[str, Any]]:
    return {(line["variant"], line["condition"]): line for line in session.report["tables"]["governance"]}


@pytest.fixture
def governed(shop: Any) -> Any:
    shop.conftest(POLICY)
    shop.tests(TESTS)
    return shop


def test_the_marker_names_the_variant_that_decides(governed: Any) -> None:
    session = governed.run()
    hijacked = "test_shop.py::test_hijacked"
    assert session.outcomes == {"test_shop.py::test_refund": "passed", hijacked: "failed"}
    assert "no_refund" in session.failures[hijacked]  # tried, and not done
    assert set(table(session)) == {("shield", "nominal"), ("shield+capabilities", "nominal")}


def test_the_command_line_overrides_the_marker_with_one_variant(governed: Any) -> None:
    session = governed.run("--mat-governance=shield+capabilities")
    assert session.outcomes["test_shop.py::test_refund"] == "failed"
    assert set(table(session)) == {("shield+capabilities", "nominal")}
    assert table(session)["shield+capabilities", "nominal"]["runs"] == 3  # two seeds of the one, failing or not


def test_the_configuration_file_names_the_variant_of_tests_whose_marker_names_none(governed: Any) -> None:
    governed.write("pytest.ini", INI + "mat_governance = shield+routing\n")
    governed.tests(TESTS.replace('seeds=2, governance="shield"', "seeds=2"))
    session = governed.run()
    assert set(table(session)) == {("shield+routing", "nominal"), ("shield+capabilities", "nominal")}
    assert set(table(governed.run("--mat-governance=shield"))) == {("shield", "nominal")}


def test_none_is_the_run_without_governance_and_has_no_table(governed: Any) -> None:
    session = governed.run("--mat-governance", "none")
    assert session.outcomes["test_shop.py::test_refund"] == "passed"
    assert table(session) == {}


def test_all_variants_are_compared_in_one_command_and_only_the_own_one_can_fail(governed: Any) -> None:
    session = governed.run("--mat-governance=all")
    hijacked = "test_shop.py::test_hijacked"
    assert session.outcomes == {"test_shop.py::test_refund": "passed", hijacked: "failed"}
    found = table(session)
    assert list(found)[:4] == [(name, "nominal") for name in ("none", "shield", "shield+capabilities", "shield+routing")]
    assert {line["runs"] for line in found.values()} == {3}
    assert found["none", "nominal"]["success"]["value"] == 1.0
    assert found["shield+capabilities", "nominal"]["success"]["value"] == pytest.approx(1 / 3)
    assert found["none", "nominal"]["attack_success"] == {
        **found["none", "nominal"]["attack_success"], "value": 1.0, "n": 1, "method": "wilson",
    }  # fmt: skip
    assert found["shield+capabilities", "nominal"]["attack_success"]["value"] == 0.0
    assert found["none", "nominal"]["high_impact_stopped"]["value"] == 0.0
    assert found["shield+routing", "nominal"]["high_impact_stopped"]["value"] == 1.0
    assert "Governance variants" in session.text
    assert session.items["test_shop.py::test_refund"]["executions"] == 2
    (line,) = [line for line in session.report["tables"]["nominal"] if line["item"] == "test_shop.py::test_refund"]
    assert line["runs"] == 2  # the table of nominal runs is about the own variant


def test_names_are_given_with_commas_or_repeated(governed: Any) -> None:
    for options in (("--mat-governance=none,shield",), ("--mat-governance=none", "--mat-governance", "shield")):
        session = governed.run(*options)
        assert {"none", "shield"} <= {variant for variant, _ in table(session)}
        refund = [line for line in table(session).values() if line["variant"] in ("none", "shield")]
        assert [line["runs"] for line in refund] == [3, 3]


@pytest.mark.full
def test_a_name_that_no_variant_has_is_refused_with_the_ones_there_are(governed: Any) -> None:
    session = governed.run("--mat-governance=sheild")
    said = session.failures["test_shop.py::test_refund"]
    assert "unknown governance variant: 'sheild'; did you mean 'shield'?" in said
    assert "Traceback" not in said


def test_a_test_that_declares_no_governance_runs_as_always_and_the_session_says_so(shop: Any) -> None:
    shop.tests("def test_refund(mat_run, no_double): shop.careful()\n")
    session = shop.run("--mat-governance=none,shield")
    assert session.outcomes == {"test_shop.py::test_refund": "passed"}
    assert table(session) == {}
    assert "no test of this session has the governance variant 'shield'" in session.text


def test_a_marker_that_names_a_variant_where_none_is_declared_is_a_mistake(shop: Any) -> None:
    shop.tests("@pytest.mark.mat(governance='shield')\ndef test_refund(mat_run): shop.careful()\n")
    assert "unknown governance variant: 'shield'" in shop.run().failures["test_shop.py::test_refund"]


@pytest.mark.parametrize("names", ["a,,b", ""])
def test_an_empty_name_is_refused_before_the_session(shop: Any, names: str) -> None:
    shop.tests("def test_refund(mat_run): shop.naive()\n")
    result = shop.pytester.runpytest_inprocess(f"--mat-governance={names}")
    assert int(result.ret) == 4
    result.stderr.fnmatch_lines(["*--mat-governance*empty name*"])


def test_variants_may_be_given_by_name_and_the_first_is_in_force(shop: Any) -> None:
    shop.conftest(
        """
        @pytest.fixture
        def mat_governance():
            strict = mat.policy.Governance(capabilities={"main": ["check"]})
            return {"open": mat.policy.Governance(), "strict": strict}
        """.replace("\n        ", "\n")
    )
    shop.tests("def test_refund(mat_run): assert shop.careful() == 'refunded'\n")
    session = shop.run("--mat-governance=all")
    assert session.outcomes == {"test_shop.py::test_refund": "passed"}
    found = table(session)
    assert list(found) == [("none", "nominal"), ("open", "nominal"), ("strict", "nominal")]
    assert found["strict", "nominal"]["success"]["value"] == 0.0
    assert shop.run("--mat-governance=strict").outcomes == {"test_shop.py::test_refund": "failed"}


@pytest.mark.parametrize("type_of_path", ["pathlib.Path", "str"])
def test_a_policy_file_is_loaded_at_set_up_and_a_malformed_one_fails_the_test_with_its_line(
    shop: Any, type_of_path: str
) -> None:
    pytest.importorskip("yaml")
    shop.conftest(
        f"""
        import pathlib

        @pytest.fixture
        def mat_governance():
            return {type_of_path}(pathlib.Path(__file__).with_name("policy.yaml"))
        """.replace("\n        ", "\n")
    )
    shop.tests("def test_refund(mat_run): assert shop.careful() == 'refunded'\n")
    shop.write("policy.yaml", "rules:\n  - block: {tools: refund, reason: never}\n")
    session = shop.run()
    assert "never" in session.failures["test_shop.py::test_refund"]
    shop.write("policy.yaml", "rules:\n  - blok: {tools: refund}\n")
    said = shop.run().failures["test_shop.py::test_refund"]
    assert "rules[0] (line 2): unknown rule: 'blok'; did you mean 'block'?" in said


def test_harm_is_what_the_workload_says(shop: Any) -> None:
    shop.conftest(POLICY)
    shop.tests(
        """
        @pytest.fixture
        def mat_workload():
            def refunded(run):
                return any(record.action.name == "refund" and record.effected == "yes" for record in run.trace)

            return {"input": "misuse", "harm": refunded}

        @pytest.mark.mat(governance="shield")
        def test_hijacked(mat_run):
            try:
                shop.refund("o1")
            except mat.Blocked:
                pass
        """
    )
    found = table(shop.run("--mat-governance=none,shield,shield+capabilities"))
    assert [found[name, "nominal"]["attack_success"]["value"] for name in ("none", "shield", "shield+capabilities")] == [
        1,
        1,
        0,
    ]
    assert [part["name"] for part in found["none", "nominal"]["by_input"]] == ["misuse"]


@pytest.mark.full
def test_under_stress_every_variant_is_searched_and_only_the_own_one_leaves_replays(shop: Any) -> None:
    shop.conftest(POLICY)
    shop.tests(
        """
        @pytest.mark.mat(governance="shield+capabilities", faults=FAULTS, budget=4)
        def test_refund(mat_run, no_double):
            try:
                shop.naive()
            except mat.Blocked:
                mat.finish(status="aborted")
        """
    )
    session = shop.stress("--mat-governance=none,shield+capabilities")
    assert session.statuses["test_shop.py::test_refund"] in ("certified", "vacuous")
    found = table(session)
    assert (found["none", "fault"]["broken"]["value"], found["none", "fault"]["cheapest"]) == (1.0, 4)
    assert (found["shield+capabilities", "fault"]["broken"]["value"], found["shield+capabilities", "fault"]["cheapest"]) == (
        0.0,
        None,
    )
    assert shop.replays == []
    assert session.report["counterexamples"] == []


@pytest.mark.full
def test_a_counterexample_is_confirmed_under_its_own_variant(shop: Any) -> None:
    shop.conftest(POLICY)
    shop.tests(
        """
        @pytest.mark.mat(governance="shield", faults=FAULTS, budget=4)
        def test_refund(mat_run, no_double):
            shop.naive()
        """
    )
    session = shop.stress("--mat-governance=shield,shield+routing")
    assert session.statuses == {"test_shop.py::test_refund": "counterexample"}
    (found,) = session.report["counterexamples"]
    assert found["spec"]["config"]["governance"] == "shield"
    assert found["stability"]["reproduced"] == found["stability"]["runs"]
    assert len(shop.replays) == 1


def test_a_variant_under_which_the_test_cannot_run_is_named_and_fails_nothing(shop: Any) -> None:
    shop.conftest(POLICY)
    shop.tests(
        """
        @pytest.mark.mat(governance="none")
        def test_refund(mat_run):
            try:
                shop.refund("o1")
            except mat.Blocked:
                pytest.skip("nothing to see")
        """
    )
    session = shop.run("--mat-governance=none,shield+capabilities")
    assert session.outcomes == {"test_shop.py::test_refund": "passed"}
    assert "shield+capabilities was not compared" in session.items["test_shop.py::test_refund"]["reason"]


def test_trust_moves_within_a_run_and_starts_anew_in_the_next(shop: Any) -> None:
    shop.conftest(
        """
        from mat.govern.trust import Level, Trust

        @pytest.fixture
        def mat_governance():
            return mat.policy.Governance(rules=(Trust(levels=(Level(below=0.5, high_impact="block"),)),))
        """.replace("\n        ", "\n")
    )
    shop.tests(
        """
        @pytest.mark.mat(seeds=2, expect="no_refund")
        def test_refund(mat_run, no_refund):
            shop.refund("o1")
            with pytest.raises(mat.Blocked, match="trust in main is 0.42"):
                shop.refund("o2")
        """
    )
    assert shop.run().failures == {}


def test_the_clock_of_a_run_can_be_the_real_one(shop: Any) -> None:
    shop.tests(
        """
        @pytest.mark.mat(clock="real")
        def test_real(mat_run):
            shop.careful()
            assert mat_run.spec.clock == "real"

        def test_virtual(mat_run):
            shop.careful()
            assert mat_run.spec.clock == "virtual"

        @pytest.mark.mat(clock="wall")
        def test_wrong(mat_run): shop.careful()
        """
    )
    session = shop.run()
    assert "clock='wall' is not one of virtual, real" in session.failures["test_shop.py::test_wrong"]
    assert [session.outcomes[f"test_shop.py::test_{name}"] for name in ("real", "virtual")] == ["passed", "passed"]
