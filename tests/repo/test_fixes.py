"""An error's why and fix fit what was wrong, not only what is most often wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import mat
import mat_contracts
from mat.boundary.tape import Tape
from mat.core.endpoint import pattern
from mat.core.errors import MatError
from mat.core.resources import amount
from mat.core.spec import Schedule, perturbation
from mat.evidence import acceptance
from mat.harness.hijack import hijacked
from mat.measure.interval import wilson
from mat.measure.sequential import decided
from mat.monitor.written import PureFold, holds
from mat_faults.payloads import named


def error_of(call: Callable[[], object]) -> MatError:
    with pytest.raises(MatError) as caught:
        call()
    return caught.value


async def later(reply: Any) -> None: ...


def hijack_after(place: int) -> None:
    @mat.tool
    def pay() -> None: ...

    with mat.run():
        hijacked([("pay", {})], benign=[("pay", {})], tools=[pay], after=place)


def ask_live(most: int) -> None:
    @mat.tool(tape="external")
    def ask(text: str) -> str:
        return text.upper()

    with mat.run() as run:
        ask("recorded")
    assert run.result is not None
    with mat.run(tape=Tape(run.result.tape, live=most)):
        for nth in range(most + 1):
            ask(f"new {nth}")


def schedule(*sites: str) -> Schedule:
    return Schedule(tuple(perturbation("service.timeout", site) for site in sites))


@pytest.mark.parametrize(
    ("call", "what", "why", "fix"),
    [
        (
            lambda: mat.model("house", usage=later)(len), "usage= is a coroutine function; give an ordinary function", "", "",
        ),
        (lambda: mat.model("house", usage=3)(len), "usage=3 is not a function of the reply", "", ""),
        (lambda: named({"a": " "}), "' ' is empty", "", ""),
        (lambda: mat.secret(""), "a secret must be a non-empty string", "it is empty", ""),
        (lambda: mat.secret(b""), "a secret must be a non-empty string", "it is of type bytes", ""),
        (lambda: mat.artifact.observed("", name="url"), "an artifact must be a non-empty string", "it is empty", ""),
        (
            lambda: mat_contracts.truncation_noticed(limit=3), "limit=3 is not an integer >= 64", "",
            "give limit as a whole number of at least 64",
        ),
        (
            lambda: mat_contracts.recovers(within_ms=-1), "within_ms=-1 is not an integer >= ", "",
            "give within_ms as a whole number of milliseconds, at least ",
        ),
        (
            lambda: mat_contracts.progress(window=1, weights={"retries": -1}), "the weight of retries is -1",
            "its weights are numbers >= 0", "give numbers >= 0",
        ),
        (
            lambda: mat_contracts.resource.within_budget({"tokens": -1}), "tokens=-1 is negative", "an amount >= 0",
            "correct budgets= and prices=; ",
        ),
        (lambda: amount("tool:", 3), "'tool:' does not name a port", "", "correct the name of the resource"),
        (lambda: amount("tokens", 1.5), "not a multiple of 1", "amounts are exact", "that is a multiple of 1"),
        (lambda: amount("seconds", "0.0001"), "not a multiple of 0.001", "amounts are exact", "that is a multiple of 0.001"),
        (
            lambda: mat.policy.capability("retreival:kb"), "unknown kind: 'retreival'", "names match exactly",
            'write capability("refund"), or capability("retrieval:kb")',
        ),
        (lambda: mat.policy.capability("send", to="ann"), "to='ann' is not an allow-list", "substrings", "give a set"),
        (
            lambda: mat.Policy(use="sheild"), "use='sheild' is not one of its variants; did you mean 'shield'?", "",
            "set use= to one of 'none', ",
        ),
        (
            lambda: decided(0, 1, Fraction(0), Fraction(1, 2)), "target=0 does not lie strictly between 0 and 1",
            "targets and confidences are shares", "write Fraction(1, 20)",
        ),
        (lambda: wilson(2, 1), "successes=2 is not between 0 and 1, the number of runs", "divided by the runs", ""),
        (
            lambda: pattern(r"(?:\w{1000}){1000}")("a"),
            "cannot be matched in linear time: Compiled regex exceeds size limit of 10485760 bytes", "", "",
        ),
        (
            lambda: pattern("a(?=b)")("a"),
            "cannot be matched in linear time: look-around, including look-ahead and look-behind, is not supported", "", "",
        ),
        (
            lambda: mat_contracts.misuse_refused(1, 2),  # type: ignore[call-arg]
            "misuse_refused: too many positional arguments", "", "refuses=is_refusal)",
        ),
        (
            lambda: PureFold(lambda state, record: True, "seen", mat.Violated)((), None), "seen returned True",
            "a fold returns the next state", "return one of these$",
        ),
        (lambda: holds("yes", later), "later returned a value of type str", "True or False", "for example bool"),
        (
            lambda: hijack_after(4), "after=4 is outside the benign script, which has 1 call", "",
            "give after= as an integer from 0 to 1",
        ),
        (lambda: ask_live(0), "no taped reply for", "and no live calls are allowed", "raise --mat-live-calls"),
        (lambda: ask_live(1), "no taped reply for", "and the one live call of this item is used up", "raise --mat-live-calls"),
        (lambda: schedule("a/service:b#1", "a/service:b#1"), "two perturbations share a/service:b#1", "", ""),
        (
            lambda: schedule("a/service:b#1..3", "a/service:b#2"),
            "two perturbations overlap: a/service:b#1..3 and a/service:b#2", "", "",
        ),
    ],
)  # fmt: skip
def test_the_why_and_the_fix_are_about_what_is_wrong(call: Callable[[], object], what: str, why: str, fix: str) -> None:
    error = error_of(call)
    assert what in error.what
    assert "\n" not in error.what
    assert why in error.why
    assert fix in f"{error.fix}$"


@pytest.mark.parametrize(("version", "fix"), [(acceptance.FORMAT + 1, "upgrade pytest-mat"), (0, "restore the file")])
def test_accepted_findings_of_another_version_say_what_to_do(tmp_path: Path, version: int, fix: str) -> None:
    path = tmp_path / "accepted.json"
    path.write_text(json.dumps({"mat": version, "accepted": []}))
    error = error_of(lambda: acceptance.read(path))
    assert f"accepted findings of format {version}; this pytest-mat reads format {acceptance.FORMAT}" == error.what
    assert error.why == f"{'a newer' if version else 'an older'} version wrote them"
    assert error.fix.startswith(fix)
    assert error.where == str(path)
