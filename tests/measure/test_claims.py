from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest

import mat
from mat.core.errors import SpecError
from mat.core.record import Record
from mat.measure.claims import Agreement, Labelled, agreement, h_prop, h_rate, is_used, variance
from mat_contracts.claims import claims_in
from mat_contracts.support import number_match
from mat_contracts.traces import record, trace


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The shape the rates read."""

    text: str
    status: str
    step: int = 0
    final: bool = True

    @property
    def artefact(self) -> str:
        return f"claim#{self.step}"


def claims(*said: str, final: bool = True) -> tuple[Judged, ...]:
    return tuple(Judged(text=f"claim {index}", status=word, final=final, step=index) for index, word in enumerate(said))


GOOD, BAD, DUNNO = "supported", "unsupported", "unknown"


def given(runs: object) -> object:
    """An assessor for runs that are their own claims."""
    return lambda records: records


def test_the_rate_is_the_mean_of_each_runs_share_and_runs_without_claims_stand_apart() -> None:
    found = h_rate([claims(GOOD, BAD), claims(BAD), claims(), claims(GOOD, GOOD, GOOD, BAD)], given(0))  # type: ignore[arg-type]
    assert found.mean.value == pytest.approx((1 / 2 + 1 + 1 / 4) / 3)
    assert (found.mean.n, found.mean.method) == (3, "wilson, as if binary")
    assert (found.pooled.value, found.pooled.n) == (3 / 7, 7)
    assert (found.claims, found.counted, found.unknown, found.runs, found.without_claims) == (7, 3, 0, 4, 1)
    assert found.mean.low is not None
    assert found.mean.high is not None
    assert 0 <= found.mean.low < found.mean.value < found.mean.high <= 1


@pytest.mark.parametrize("runs", [[], [()], [(), ()]])
def test_without_a_claim_there_is_no_rate_and_never_zero(runs: list[tuple[()]]) -> None:
    found = h_rate(runs, given(0))  # type: ignore[arg-type]
    assert (found.mean.value, found.mean.low, found.mean.high, found.mean.n) == (None, None, None, 0)
    assert (found.pooled.value, found.without_claims, found.runs) == (None, len(runs), len(runs))


def test_equal_runs_claim_no_certainty() -> None:
    for shares in ((GOOD,), (BAD,), (GOOD, BAD)):
        found = h_rate([claims(*shares)] * 10, given(0)).mean  # type: ignore[arg-type]
        assert found.method == ("wilson" if len(shares) == 1 else "wilson, as if binary")
        assert found.low is not None
        assert found.high is not None
        assert found.high - found.low > 0.2
    one = h_rate([claims(GOOD, BAD)], given(0)).mean  # type: ignore[arg-type]
    assert (one.low, one.value, one.high) == (0.0, 0.5, 1.0)


def test_a_claim_nobody_knows_is_not_supported_unless_the_other_bound_is_asked_for() -> None:
    runs = [claims(GOOD, DUNNO), claims(GOOD, BAD)]
    low, high = (h_rate(runs, given(0), unknown=word) for word in ("supported", "unsupported"))  # type: ignore[arg-type]
    assert (low.mean.value, high.mean.value, low.unknown, high.unknown) == (0.25, 0.5, 1, 1)


@pytest.mark.full
def test_the_interval_of_a_mean_covers_it_about_as_often_as_it_says() -> None:
    draw, covered, rounds = random.Random(7), 0, 200
    for _ in range(rounds):
        runs = [claims(*(BAD if draw.random() < 0.3 else GOOD for _ in range(draw.randint(1, 6)))) for _ in range(40)]
        mean = h_rate(runs, given(0)).mean  # type: ignore[arg-type]
        assert mean.low is not None
        assert mean.high is not None
        covered += mean.low <= 0.3 <= mean.high
    assert 0.89 <= covered / rounds <= 0.99


def test_the_order_of_runs_changes_nothing() -> None:
    runs = [claims(GOOD, BAD), claims(BAD), claims(GOOD), claims(GOOD, GOOD, BAD)]
    assert h_rate(runs, given(0)) == h_rate(runs[::-1], given(0))  # type: ignore[arg-type]


# -- use in later steps -------------------------------------------------------------------------------------------------


def claim(text: str, *supports: str) -> Record:
    return record("claim", "claim", {"text": text}, supports=supports)


TRACK = record("tool_call", "track", {"parcel": 17}, value={"eta": "Friday"})
LOST = claim("Parcel 17 was lost")


@pytest.mark.parametrize(
    ("later", "used"),
    [
        (claim("So we pay", "claim#1"), True),
        (record("message", "boss", {"text": "I see that parcel 17  was LOST, so I pay."}), True),
        (record("tool_call", "refund", {"reason": {"why": "Parcel 17 was lost."}}), True),
        (record("approval", "refund", {"because": "see claim#1"}), True),
        (record("delegation", "payer", {"task": "Parcel 17 was lost: pay"}), True),
        (record("final_response", "answer", {"answer": "Parcel 17 was lost."}), True),
        (record("tool_call", "refund", {"parcel": 17}), False),
        (record("message", "boss", {"text": "Parcel 17 was lostlike, see claim#11"}), False),
        (claim("So we pay", "claim#11"), False),
        (TRACK, False),
    ],
)
def test_a_claim_is_used_where_a_later_step_cites_names_or_repeats_it(later: Record, used: bool) -> None:
    found = h_prop([trace(TRACK, LOST, later)], partial(claims_in, on=("claim",)))
    assert found.counted == used
    assert is_used(claims_in(trace(TRACK, LOST))[0], trace(TRACK, LOST, later)[2]) is used


def test_a_claim_repeated_before_it_was_made_is_not_used_and_a_supported_one_does_not_count() -> None:
    said = record("message", "boss", {"text": "Parcel 17 was lost"})
    assert h_prop([trace(TRACK, said, LOST)], claims_in).counted == 0
    good = claim("Parcel 17 comes on Friday", "step#0")
    again = record("message", "boss", {"text": "Parcel 17 comes on Friday"})
    assert h_prop([trace(TRACK, good, again)], claims_in).mean.value == 0.0


def test_propagation_is_over_recorded_claims_and_the_rate_over_those_of_the_answer() -> None:
    answer = record("final_response", "answer", {"answer": "Parcel 17 was lost. Parcel 17 comes on Friday. It weighs 5 kg."})
    items = trace(TRACK, LOST, claim("Parcel 17 comes on Friday", "step#0"), claim("It is blue"), answer)
    rate, prop = h_rate([items], claims_in), h_prop([items], claims_in)
    assert (rate.mean.value, rate.claims, rate.counted) == (pytest.approx(2 / 3), 3, 2)
    assert (prop.mean.value, prop.claims, prop.counted) == (pytest.approx(1 / 3), 3, 1)


def test_an_own_rule_of_use_and_an_own_verifier_decide() -> None:
    items = trace(TRACK, LOST, record("tool_call", "refund", {"parcel": 17}))
    assert h_prop([items], claims_in).counted == 0
    assert h_prop([items], claims_in, use=lambda claim, later: later.action.name == "refund").counted == 1
    priced = trace(
        record("tool_call", "price", value={"price": "5 EUR"}), claim("The price is 5 dollars", "step#0"), claim("x")
    )
    judged = partial(claims_in, verifier=number_match())
    assert h_prop([priced], judged, use=lambda claim, later: True).counted == 1


def test_finished_runs_are_read_as_traces_are() -> None:
    with mat.run([]) as run:
        mat.claim("nothing says so")
        mat.finish("nothing says so")
    assert (h_rate([run.result], claims_in).mean.value, h_prop([run.result], claims_in).mean.value) == (1.0, 1.0)


# -- judges -------------------------------------------------------------------------------------------------------------


def labelled(*pairs: tuple[str, str, int]) -> Iterator[Labelled]:
    """Items whose claim is what the judge will say."""
    for label, said, count in pairs:
        for _ in range(count):
            yield Labelled(claim=said, texts=("x",), label=label)  # type: ignore[arg-type]


def echo(claim: str, texts: object) -> str:
    return claim


def test_agreement_is_cohens_kappa_and_the_share_of_equal_words() -> None:
    found = agreement(echo, labelled((GOOD, GOOD, 20), (GOOD, BAD, 5), (BAD, GOOD, 10), (BAD, BAD, 15)))
    assert (found.accuracy.value, found.accuracy.n, found.accuracy.method) == (0.7, 50, "wilson")
    assert found.kappa.value == pytest.approx(0.4)
    assert found.kappa.low is not None
    assert found.kappa.high is not None
    assert found.kappa.low < 0.4 < found.kappa.high
    assert found.table[:2] == ((GOOD, GOOD, 20), (GOOD, BAD, 5))
    assert found.decided.value == 1.0


def test_a_judge_that_passes_or_babbles_is_not_decided_and_disagrees() -> None:
    found = agreement(echo, labelled((GOOD, "unknown", 1), (BAD, "I think so", 1), (BAD, "Unsupported.", 2)))
    assert (found.decided.value, found.accuracy.value) == (0.5, 0.5)


def test_kappa_is_not_defined_where_chance_alone_agrees_always() -> None:
    found = agreement(echo, labelled((GOOD, GOOD, 9)))
    assert (found.kappa.value, found.kappa.n, found.accuracy.value) == (None, 9, 1.0)
    nothing: Agreement = agreement(echo, [])
    assert (nothing.kappa.value, nothing.accuracy.value, nothing.decided.n) == (None, None, 0)


def test_full_agreement_on_few_items_claims_no_certainty() -> None:
    kappa = agreement(echo, labelled((GOOD, GOOD, 5), (BAD, BAD, 5))).kappa
    assert (kappa.value, kappa.high) == (1.0, 1.0)
    assert kappa.low is not None
    assert kappa.low < 0.6


def test_the_interval_of_kappa_covers_it_about_as_often_as_it_says() -> None:
    draw, covered, rounds = random.Random(3), 0, 400
    for _ in range(rounds):
        items = [(GOOD if draw.random() < 0.6 else BAD) for _ in range(80)]
        pairs = [(word, word if draw.random() < 0.8 else (BAD if word == GOOD else GOOD), 1) for word in items]
        kappa = agreement(echo, labelled(*pairs)).kappa
        said_good = 0.6 * 0.8 + 0.4 * 0.2
        chance = 0.6 * said_good + 0.4 * (1 - said_good)
        assert kappa.low is not None
        assert kappa.high is not None
        covered += kappa.low <= (0.8 - chance) / (1 - chance) <= kappa.high
    assert 0.91 <= covered / rounds <= 0.985


def test_a_label_of_another_word_is_refused() -> None:
    with pytest.raises(SpecError):
        agreement(echo, [Labelled(claim="a", texts=(), label="yes")])  # type: ignore[arg-type]


def test_a_judge_that_wavers_is_distinguished_from_one_that_does_not() -> None:
    answers = iter([GOOD, BAD, GOOD, BAD, BAD, BAD, BAD, BAD, GOOD, GOOD, GOOD, "unknown"])
    found = variance(lambda claim, texts: next(answers), [("a", ["x"]), ("b", ["x"]), ("c", ["x"])], repeats=4)
    assert found.variance.value == pytest.approx((4 / 12 + 0 + 3 / 12) / 3)
    assert (found.unanimous.value, found.unanimous.n) == (1 / 3, 3)
    assert (found.unknown.value, found.unknown.n) == (1 / 12, 12)
    assert (found.items, found.repeats) == (3, 4)
    steady = variance(echo, [("supported", [])] * 5, repeats=3)
    assert (steady.variance.value, steady.unanimous.value) == (0.0, 1.0)
    assert steady.variance.high is not None
    assert steady.variance.high > 0


@pytest.mark.parametrize("repeats", [1, 0, True, 2.0])
def test_one_answer_does_not_vary(repeats: object) -> None:
    with pytest.raises(SpecError):
        variance(echo, [("a", [])], repeats=repeats)  # type: ignore[arg-type]


def test_the_module_loads_without_numpy_and_without_the_contract_library() -> None:
    code = "import sys, mat.measure.claims; print(sorted(set(sys.modules) & {'numpy', 'scipy', 'mat_contracts'}))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
