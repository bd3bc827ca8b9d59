from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

import mat
from mat.core.digest import canonical
from mat.core.digest import plain as plain_data
from mat.core.errors import SpecError
from mat.core.record import ACTION_KINDS, ErrorFact, Observation
from mat.monitor.contract import KEEP, Contract, Violated
from mat_contracts.retry import backoff_respected, no_retry_storm, retries_bounded
from mat_contracts.traces import broken, record, trace, violations


def sizes(contract: Contract, records: Iterable[mat.Record]) -> list[int]:
    """The size of the contract's state, as canonical text, after every record."""
    state, found = contract.start, []
    for item in records:
        new = contract.step(state, item)
        state = (state if new.state is KEEP else new.state) if isinstance(new, Violated) else new
        found.append(len(canonical(plain_data(state))))
    return found


def call(n: int = 1, *, port: str = "track", error: str = "", **more: Any) -> mat.Record:
    return record("tool_call", port, {"id": n}, error=error, **more)


def fails(n: int = 1, *, kind: str = "timeout", **more: Any) -> mat.Record:
    return call(n, error=kind, **more)


def at(*times: tuple[int, mat.Record], takes_ms: int = 0) -> tuple[mat.Record, ...]:
    """A trace with the run times at which its records are asked."""
    items = trace(*(item for _, item in times))
    return tuple(
        replace(item, at_ms=ms, sealed_ms=ms + takes_ms) for item, (ms, _) in zip(items, times, strict=True)
    )  # fmt: skip


# -- storms ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([fails()] * 3, ()),
        ([fails()] * 3 + [call()], (3,)),
        ([fails()] * 5, (3, 4)),
        ([fails()] * 2 + [call()] + [fails()] * 3, ()),
        ([call()] * 9, ()),
        ([fails(n) for n in range(9)], ()),
        ([fails(port="a"), fails(port="b")] * 3, ()),
        ([fails(), call(2), fails(), call(3), fails(), call(4), fails()], (6,)),
        ([record("tool_call", "track", {"id": 1}, blocked=True)] * 4, (3,)),
        ([fails(agent="a"), fails(agent="b"), fails(agent="a"), fails(agent="b")], (3,)),
        ([record("message", "b", {"text": "hi"}, error="timeout")] * 9, ()),
    ],
    ids=[
        "as many as allowed", "one too many", "every one counts", "a success between", "polling", "other arguments",
        "other ports", "among others", "blocked", "whoever calls", "no calls",
    ],
)  # fmt: skip
def test_a_failing_call_is_made_a_bounded_number_of_times(steps: list[mat.Record], expected: tuple[int, ...]) -> None:
    assert broken(no_retry_storm(times=3), trace(*steps)) == expected


def test_attempts_outside_the_window_do_not_count() -> None:
    spaced = [item for _ in range(4) for item in (fails(), *[record("claim", "claim")] * 3)]  # failures at 0, 4, 8, 12
    assert broken(no_retry_storm(times=2, within=9), trace(*spaced)) == (8, 12)
    assert broken(no_retry_storm(times=2, within=8), trace(*spaced)) == ()
    timed = at(*((500 * n, fails()) for n in range(3)))
    assert broken(no_retry_storm(times=2, within_ms=1_000), timed) == (2,)
    assert broken(no_retry_storm(times=2, within_ms=999), timed) == ()


def test_a_storm_can_be_reported_by_a_key_by_errors_and_by_port() -> None:
    numbered = trace(*(record("tool_call", "pay", {"order": 1, "nonce": n}, error="timeout") for n in range(3)))
    assert broken(no_retry_storm(times=2), numbered) == ()
    assert broken(no_retry_storm(times=2, key="order"), numbered) == (2,)
    assert broken(no_retry_storm(times=2, key=lambda arguments: arguments["order"]), numbered) == (2,)
    assert broken(no_retry_storm(times=2, key="order", errors="rate_limit"), numbered) == ()
    assert broken(no_retry_storm("other", times=2, key="order"), numbered) == ()
    assert broken(no_retry_storm("pay", times=2, key="order"), numbered) == (2,)


def test_calls_in_flight_when_the_first_fails_are_no_retries() -> None:
    together = tuple(
        replace(fails(), step=n, at_ms=0, sealed_ms=9, asked_seq=n, sealed_seq=10 + n) for n in range(5)
    )  # fmt: skip
    assert broken(no_retry_storm(times=2), together) == ()
    later = replace(fails(), step=5, at_ms=10, sealed_ms=11, asked_seq=20, sealed_seq=21)
    assert broken(no_retry_storm(times=1), (*together, later)) == (5,)
    assert broken(no_retry_storm(times=2), (*together, later)) == ()


def test_one_call_within_one_step_is_in_the_singular() -> None:
    assert no_retry_storm(times=1, within=1).text == "a call that fails is made at most 1 time within 1 step"


def test_a_storm_says_what_was_called_and_when() -> None:
    (found,) = violations(no_retry_storm(times=2), trace(fails(), fails(), fails()))
    assert found.message == "track was called 3 times within 20 steps, and every call before the last failed"
    assert (found.witness, found.instance) == ((0, 1, 2), "track")


# -- back-off -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ((0, 100), ()),
        ((0, 99), (1,)),
        ((0, 100, 300), ()),
        ((0, 100, 299), (2,)),
        ((0, 100, 300, 700), ()),
        ((0, 100, 300, 699), (3,)),
        ((0, 100, 300, 700, 1_200), ()),
        ((0, 100, 300, 700, 1_199), (4,)),
        ((0, 50, 100), (1, 2)),
    ],
)
def test_waits_double_from_the_base_up_to_the_cap(times: tuple[int, ...], expected: tuple[int, ...]) -> None:
    contract = backoff_respected(base_ms=100, factor=2, cap_ms=500)
    assert broken(contract, at(*((ms, fails()) for ms in times))) == expected


def test_the_wait_counts_from_when_the_failure_was_known() -> None:
    contract = backoff_respected(base_ms=100)
    assert broken(contract, at((0, fails()), (150, call()), takes_ms=50)) == ()
    assert broken(contract, at((0, fails()), (149, call()), takes_ms=50)) == (1,)


def test_a_call_that_does_not_fail_begins_anew() -> None:
    contract = backoff_respected(base_ms=100)
    assert broken(contract, at((0, fails()), (100, call()), (110, call()), (120, fails()), (220, call()))) == ()


def test_other_ports_agents_and_errors_do_not_wait_for_this_one() -> None:
    contract = backoff_respected(base_ms=100)
    assert broken(contract, at((0, fails()), (1, call(port="other")), (2, call(agent="bo")), (100, call()))) == ()
    assert broken(backoff_respected(base_ms=100, shared=["track"]), at((0, fails()), (2, call(agent="bo")))) == (1,)
    assert broken(contract, at((0, fails(kind="not_found")), (1, call()))) == ()
    assert broken(backoff_respected(base_ms=100, errors="not_found"), at((0, fails(kind="not_found")), (1, call()))) == (1,)
    assert broken(backoff_respected("other", base_ms=100), at((0, fails()), (1, call()))) == ()


def test_jitter_shortens_the_computed_wait_and_not_the_stated_one() -> None:
    contract = backoff_respected(base_ms=100, jitter=0.5)
    assert broken(contract, at((0, fails()), (50, call()))) == ()
    assert broken(contract, at((0, fails()), (49, call()))) == (1,)
    assert broken(backoff_respected(base_ms=100, jitter=1), at((0, fails()), (0, call()))) == ()
    assert broken(contract, at((0, said("retry after 2 s")), (1_999, call()))) == (1,)


def said(text: str) -> mat.Record:
    error = ErrorFact(type="RateLimited", message=text, kind="rate_limit")
    return replace(fails(), observation=Observation(error=error))


@pytest.mark.parametrize(
    ("failure", "stated_ms"),
    [
        (said("429: retry after 3 s"), 3_000),
        (said("Retry-After: 3"), 3_000),
        (said("rate limited, please try again in 1.5 seconds"), 1_500),
        (said("retry_after=250ms"), 250),
        (call(value={"status": 429, "headers": {"Retry-After": "3"}}), 3_000),
        (call(value={"status_code": 503, "retry_after_ms": 1_200}), 1_200),
        (call(value={"status_code": 429, "retry_after": 2}), 2_000),
        (said("too many requests"), 100),
        (said("retry after Fri, 31 Dec 1999 23:59:59 GMT"), 100),
        (call(value={"status": 429, "headers": {"Retry-After": "Fri, 31 Dec 1999"}}), 100),
    ],
)
def test_a_stated_wait_holds_to_the_millisecond_and_the_computed_one_where_none_is(failure: mat.Record, stated_ms: int) -> None:
    contract = backoff_respected(base_ms=100)
    assert broken(contract, at((0, failure), (stated_ms, call()))) == ()
    assert broken(contract, at((0, failure), (stated_ms - 1, call()))) == (1,)


def test_a_reply_that_is_no_failure_asks_for_no_wait() -> None:
    for value in ({"status": 200, "retry_after": 5}, {"status": "4290"}, {"status": True}, "429", [429]):
        assert broken(backoff_respected(), at((0, call(value=value)), (1, call()))) == ()
    assert broken(backoff_respected(errors="timeout"), at((0, call(value={"status": 429})), (1, call()))) == ()


def test_own_code_may_read_the_stated_wait() -> None:
    contract = backoff_respected(base_ms=100, retry_after_ms=lambda item: 700)
    assert broken(contract, at((0, fails()), (699, call()))) == (1,)
    (found,) = violations(contract, at((0, fails()), (1, call())))
    assert found.message == "track was called again 1 ms after it failed at step 0; its reply asked for a wait of 700 ms"
    assert found.wanted == "a wait of 700 ms"


def test_calls_in_flight_when_the_port_failed_need_not_have_waited() -> None:
    first = replace(fails(), step=0, at_ms=0, sealed_ms=50, asked_seq=0, sealed_seq=2)
    second = replace(fails(), step=1, at_ms=1, sealed_ms=60, asked_seq=1, sealed_seq=3)
    third = replace(call(), step=2, at_ms=160, sealed_ms=161, asked_seq=4, sealed_seq=5)
    assert broken(backoff_respected(base_ms=100), (first, second, third)) == ()
    assert broken(backoff_respected(base_ms=100), (first, second, replace(third, at_ms=159))) == (2,)


# -- requests -------------------------------------------------------------------------------------------------------------


def pay(order: int = 1, *, error: str = "", agent: str = "main", **more: Any) -> mat.Record:
    return record("tool_call", "pay", {"order": order, **more}, error=error, effect="write", agent=agent)


LOST = pay(error="timeout")
LOOK = record("tool_call", "orders", {"order": 1}, effect="read")


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([fails()] * 3, ()),
        ([fails()] * 4, (3,)),
        ([fails()] * 6, (3, 4, 5)),
        ([fails(), fails(), fails(), call()], (3,)),
        ([fails(), fails(), call(), fails(), fails(), call()], ()),
        ([fails(n) for n in range(9)], ()),
        ([fails(agent=agent) for agent in "aabb"], ()),
    ],
)
def test_a_request_is_tried_a_bounded_number_of_times(steps: list[mat.Record], expected: tuple[int, ...]) -> None:
    assert broken(retries_bounded(attempts=3), trace(*steps)) == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([LOST, pay()], (1,)),
        ([LOST, LOOK, pay()], ()),
        ([LOST, record("verification", "paid?", {"passed": False}), pay()], ()),
        ([LOOK, LOST, pay()], (2,)),
        ([LOST, replace(LOOK, agent="bo"), pay()], (2,)),
        ([LOST, record("tool_call", "orders", error="timeout", effect="read"), pay()], (2,)),
        ([LOST, record("model_call", "gpt", effect="read"), pay()], (2,)),
        ([LOST, pay(2)], ()),
        ([pay(error="timeout"), LOOK, pay(error="timeout"), pay()], (3,)),
        ([record("tool_call", "pay", {"order": 1}, error="timeout", effect="write", invoked=0), pay()], ()),
        ([record("tool_call", "pay", {"order": 1}, error="timeout", effect="read"), call(port="pay")], ()),
        ([pay(), pay()], ()),
    ],
    ids=[
        "at once", "looked", "verified", "looked before", "another looked", "the look failed", "thinking is no look",
        "another request", "again lost", "never sent", "no write", "not lost",
    ],
)  # fmt: skip
def test_a_write_of_unknown_outcome_is_checked_before_it_is_tried_again(
    steps: list[mat.Record], expected: tuple[int, ...]
) -> None:
    assert broken(retries_bounded(attempts=9), trace(*steps)) == expected


def test_what_can_be_repeated_safely_needs_no_check_and_only_named_checks_count() -> None:
    keyed = trace(pay(error="timeout", idempotency_key="k1"), pay(idempotency_key="k1"))
    assert broken(retries_bounded(), keyed) == ()
    assert broken(retries_bounded(idempotency_key="token"), keyed) == (1,)
    assert broken(retries_bounded(idempotent="pay"), trace(LOST, pay())) == ()
    assert broken(retries_bounded(checks="ledger"), trace(LOST, LOOK, pay())) == (2,)
    assert broken(retries_bounded(checks="orders"), trace(LOST, LOOK, pay())) == ()


def test_the_look_at_a_memory_is_a_read_of_it() -> None:
    lost = record("memory_write", "notes", {"key": "k", "value": 1}, error="timeout", effect="write")
    again = record("memory_write", "notes", {"key": "k", "value": 1}, effect="write")
    assert broken(retries_bounded(), trace(lost, again)) == (1,)
    assert broken(retries_bounded(), trace(lost, record("memory_read", "notes", {"key": "k"}), again)) == ()
    assert broken(retries_bounded(), trace(lost, record("memory_read", "other", {"key": "k"}), again)) == (2,)


def test_a_look_that_was_asked_while_the_write_was_under_way_checks_nothing() -> None:
    lost = replace(LOST, step=0, asked_seq=0, sealed_seq=3)
    during = replace(LOOK, step=1, asked_seq=1, sealed_seq=2)
    again = replace(pay(), step=2, asked_seq=6, sealed_seq=7)
    assert broken(retries_bounded(), (lost, during, again)) == (2,)
    assert broken(retries_bounded(), (lost, replace(during, asked_seq=4, sealed_seq=5), again)) == ()


def test_a_check_settles_what_is_unknown_at_every_port_and_only_for_its_own_agent() -> None:
    lost = [record("tool_call", port, {"order": 7}, error="timeout", effect="write") for port in ("pay", "ship")]
    again = [record("tool_call", port, {"order": 7}, effect="write") for port in ("pay", "ship")]
    look, others = record("verification", "done?"), record("verification", "done?", agent="other")
    assert broken(retries_bounded(), trace(*lost, look, *again)) == ()
    assert broken(retries_bounded(), trace(*lost, others, *again)) == (3, 4)
    assert broken(retries_bounded(), trace(lost[0], look, lost[1], *again)) == (4,)


def test_requests_of_one_port_that_take_turns_and_forgotten_ones_are_distinguished() -> None:
    turns = [fails(n) for n in (1, 2, 1, 2, 1, 2)]
    assert broken(retries_bounded(attempts=2), trace(*turns)) == (4, 5)
    assert broken(no_retry_storm(times=2), trace(*turns)) == (4, 5)
    wait = [call(9)] * 4
    assert broken(retries_bounded(attempts=1, forget_after=4), trace(fails(), *wait[:3], call())) == (4,)
    assert broken(retries_bounded(attempts=1, forget_after=4), trace(fails(), *wait, call())) == ()
    assert broken(no_retry_storm(times=1, within=4), trace(fails(), *wait[:2], fails())) == (3,)
    assert broken(no_retry_storm(times=1, within=4), trace(fails(), *wait[:3], fails())) == ()


def test_both_faults_of_one_call_are_distinguished() -> None:
    found = violations(retries_bounded(attempts=1), trace(LOST, pay()))
    assert [item.message for item in found] == [
        "pay was tried 2 times for one request; the limit is 1",
        "pay failed at step 0 with an unknown outcome and was repeated at step 1 without a check",
    ]


def test_a_real_run_that_repeats_a_lost_write_is_caught() -> None:
    calls: list[int] = []

    @mat.tool(effect="write")
    def settle(order: int) -> str:
        calls.append(order)
        if len(calls) == 1:
            raise TimeoutError("no answer")
        return "settled"

    with mat.run(contracts=[retries_bounded(), backoff_respected(base_ms=50)]) as run:
        with pytest.raises(TimeoutError):
            settle(order=7)
        settle(order=7)
    assert [item.contract for item in run.result.violations] == ["any.backoff_respected", "any.retries_bounded"]


# -- all ------------------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(
    "contract",
    [no_retry_storm(within=10), no_retry_storm(within_ms=10_000), backoff_respected(), retries_bounded(forget_after=10)],
    ids=["storm", "storm in time", "back-off", "bounded"],
)
def test_the_state_stays_as_small_over_a_long_trace(contract: Contract) -> None:
    mixed = (fails(n, agent=f"a{n % 3}") if n % 2 else fails(1) for n in range(4_000))
    found = sizes(contract, trace(*mixed))
    assert max(found[1_000:]) <= 1.1 * max(found[:1_000])
    assert sizes(contract, trace(*[call()] * 50))[-1] == 2  # nothing is kept of calls that do not fail


@pytest.mark.parametrize("contract", [no_retry_storm(), backoff_respected(), retries_bounded()])
def test_records_without_the_usual_fields_are_passed_over(contract: Contract) -> None:
    assert broken(contract, trace(*(record(kind) for kind in ACTION_KINDS))) == ()
    assert broken(contract, trace(*(record(kind, error="odd") for kind in ACTION_KINDS))) == ()


@pytest.mark.parametrize(
    "make",
    [
        lambda: no_retry_storm(times=0),
        lambda: no_retry_storm(within=5, within_ms=5),
        lambda: no_retry_storm(within=0),
        lambda: no_retry_storm(within_ms=-1),
        lambda: no_retry_storm(""),
        lambda: backoff_respected(base_ms=-1),
        lambda: backoff_respected(base_ms=0.5),  # type: ignore[arg-type]
        lambda: backoff_respected(factor=0.5),
        lambda: backoff_respected(jitter=1.5),
        lambda: backoff_respected(errors=()),
        lambda: retries_bounded(attempts=0),
        lambda: retries_bounded(forget_after=0),
        lambda: retries_bounded(key=""),
    ],
)
def test_arguments_that_mean_nothing_are_refused(make: Any) -> None:
    with pytest.raises(SpecError):
        make()
