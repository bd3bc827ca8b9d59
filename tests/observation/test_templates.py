"""Every template of observation contracts, seen failing with its label and its step, and silent on what is nearly that."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import mat
from mat.core.digest import canonical, digest
from mat.core.record import ErrorFact, Observation, Record
from mat.monitor.contract import KEEP, Contract
from mat_contracts import observation as obs
from mat_contracts.traces import broken, record, trace, violations

MADE: dict[str, Callable[..., Contract]] = {
    "backoff_respected": obs.backoff_respected,
    "bytes_preserved": obs.bytes_preserved,
    "compensated": lambda **more: obs.compensated({"do": "undo"}, **more),
    "compliant": obs.compliant,
    "digest_correct": lambda **more: obs.digest_correct("send", "sum", lambda record: record.arguments["text"], **more),
    "expected": lambda **more: obs.expected("send", {"to": "ann"}, **more),
    "idempotency_key_kept": lambda **more: obs.idempotency_key_kept("pay", key="key", **more),
    "no_shortcut": lambda **more: obs.no_shortcut("force", **more),
    "no_stale_write": obs.no_stale_write,
    "not_during_maintenance": lambda **more: obs.not_during_maintenance(windows=[(1000, 2000)], **more),
    "not_rate_limited": obs.not_rate_limited,
    "present": obs.present,
    "required": lambda **more: obs.required("send", "to", **more),
    "signature_verifies": lambda **more: obs.signature_verifies("send", lambda record: record.arguments.get("ok"), **more),
    "used_while_valid": obs.used_while_valid,
    "version_fresh": obs.version_fresh,
    "within_rate": lambda **more: obs.within_rate(calls=2, per_ms=2500, **more),
}


def call(name: str = "get", arguments: Any = (), /, **more: Any) -> Record:
    return record("tool_call", name, dict(arguments), **more)


def http(method: str, path: str, status: int = 200, /, *, said: Any = None, wait: Any = None, **arguments: Any) -> Record:
    """An exchange of a port that makes HTTP requests."""
    headers = {} if wait is None else {"retry-after": str(wait)}
    value = {"status": status, "headers": headers, "body": said}
    effect: Any = "read" if method == "GET" else "write"
    return record(
        "tool_call", "http", {"method": method, "url": f"https://h.test{path}", **arguments}, value=value, effect=effect
    )


def at(item: Record, asked_ms: int, sealed_ms: int, asked_seq: int, sealed_seq: int) -> Record:
    return replace(item, at_ms=asked_ms, sealed_ms=sealed_ms, asked_seq=asked_seq, sealed_seq=sealed_seq)


def found(contract: Contract, records: tuple[Record, ...]) -> list[tuple[int, str]]:
    return [(item.step, item.label) for item in violations(contract, records)]


def test_every_template_is_tested_here() -> None:
    import inspect

    public = {name: getattr(obs, name) for name in obs.__all__}
    functions = {name: item for name, item in public.items() if inspect.isfunction(item)}
    templates = {name for name, item in functions.items() if inspect.get_annotations(item).get("return") == "Contract"}
    assert set(MADE) == templates


# -- artefacts ----------------------------------------------------------------------------------------------------------


def test_used_while_valid_is_broken_from_the_very_end_of_the_time_to_live_on() -> None:
    listed = call("list", issues=[("url", 2000)])
    get = call(uses=["url"])
    assert found(obs.used_while_valid("url"), trace(listed, get, get, get)) == [
        (2, "EXPIRED_BEFORE_USE"), (3, "EXPIRED_BEFORE_USE"),
    ]  # fmt: skip


def test_used_while_valid_counts_a_damaged_late_one_and_none_of_another_name_or_port() -> None:
    listed = call("list", issues=[("url", 500), ("key", 500)])
    late = [listed, call(uses=[("url", "wrapped")])]
    assert found(obs.used_while_valid("url"), trace(*late)) == [(1, "EXPIRED_BEFORE_USE")]
    assert found(obs.used_while_valid("key"), trace(*late)) == []
    assert found(obs.used_while_valid("u*"), trace(*late)) == [(1, "EXPIRED_BEFORE_USE")]
    assert found(obs.used_while_valid("url", on="post"), trace(*late)) == []
    assert found(obs.used_while_valid("url", on=["get", "post"]), trace(*late)) == [(1, "EXPIRED_BEFORE_USE")]


def test_what_was_renewed_or_never_ends_is_valid() -> None:
    listed, forever = call("list", issues=[("url", 500)]), call("list", issues=[("url", None)])
    assert found(obs.used_while_valid(), trace(listed, forever, call(uses=["url"]), call(uses=["url"]))) == []
    assert found(obs.used_while_valid(), trace(listed, forever, call(uses=["url#1"]))) == [(2, "EXPIRED_BEFORE_USE")]


@pytest.mark.parametrize(
    ("damage", "label"),
    [
        ("truncated", "OTHER"),
        ("wrapped", "MUTATED_TOKEN"),
        ("reencoded", "MUTATED_TOKEN"),
        ("reordered", "SIGNATURE_MISMATCH"),
        ("other", "MUTATED_TOKEN"),
    ],
)
def test_bytes_preserved_labels_each_damage_as_the_paper_does(damage: Any, label: str) -> None:
    listed = call("list", issues=[("url", None)])
    records = trace(listed, call(uses=["url"]), call(uses=[("url", damage)]))
    assert found(obs.bytes_preserved(), records) == [(2, label)]
    assert found(obs.compliant(), records) == [(2, label)]
    assert found(obs.used_while_valid(), records) == []
    assert found(obs.bytes_preserved(labels={damage: "WRONG_VALUE"}), records) == [(2, "WRONG_VALUE")]


def test_damage_that_its_predicate_does_not_mind_is_none(shop: SimpleNamespace) -> None:
    from mat.boundary.integrity import Integrity

    folded = Integrity("case", lambda before, after: before.casefold() == after.casefold())
    with mat.run([obs.bytes_preserved()]) as run:
        mat.artifact.observed("AbCdEfGh12345678", name="key", integrity=folded)
        shop.mail("abcdefgh12345678")
        shop.mail("AbCdEfGh1234567")
    assert [(item.step, item.label) for item in run.result.violations] == [(2, "OTHER")]


def test_compliant_puts_expiry_before_damage_and_tells_each_artefact_the_most_severe_first() -> None:
    listed = call("list", issues=[("url", 500), ("key", None), ("tag", None)])
    use = call(uses=[("tag", "truncated"), ("key", "reordered"), ("url", "wrapped")], lacks=[("token", "absent")])
    assert [item.label for item in violations(obs.compliant(), trace(listed, use))] == [
        "EXPIRED_BEFORE_USE", "SIGNATURE_MISMATCH", "MISSING_TOKEN", "OTHER",
    ]  # fmt: skip


def test_present_tells_what_is_absent_from_what_is_foreign() -> None:
    records = trace(call(lacks=[("token", "absent")]), call(lacks=[("token", "foreign")]), call(lacks=[("key", "absent")]))
    assert found(obs.present("token"), records) == [(0, "MISSING_TOKEN"), (1, "WRONG_VALUE")]


def test_version_fresh_and_no_stale_write_in_a_run(shop: SimpleNamespace) -> None:
    @mat.tool(issues=mat.artifact.issue("tag", at="tag", supersedes=True, integrity=mat.artifact.etag()))
    def read(version: int) -> dict[str, str]:
        return {"tag": f'"v{version}-4f3a9b2c"'}

    @mat.tool(effect="write", consumes={"match": "tag"})
    def write(match: str = "") -> None: ...

    @mat.tool(effect="read", consumes={"match": "tag"})
    def peek(match: str = "") -> None: ...

    with mat.run([obs.no_stale_write("tag"), obs.version_fresh("tag"), obs.used_while_valid("tag")]) as run:
        first, second = read(1)["tag"], read(2)["tag"]  # steps 0 and 1
        write(second)
        peek(first)  # step 3: an old version, and no write
        write(first)  # step 4
        write()  # step 5
        write('"v9-00000000"')  # step 6
    stale = [(item.step, item.label) for item in run.result.violations if "no_stale_write" in item.contract]
    assert stale == [(4, "VERSION_CONFLICT"), (5, "MISSING_CONSTRAINT"), (6, "VERSION_CONFLICT")]
    old = [(item.step, item.label) for item in run.result.violations if "version_fresh" in item.contract]
    assert old == [(3, "VERSION_CONFLICT"), (4, "VERSION_CONFLICT")]
    ended = [(item.step, item.label) for item in run.result.violations if "used_while_valid" in item.contract]
    assert ended == [(3, "EXPIRED_BEFORE_USE"), (4, "EXPIRED_BEFORE_USE")]


def test_what_reached_the_port_is_judged_apart_from_what_was_asked(shop: SimpleNamespace) -> None:
    from mat.boundary.effect import Rewrite

    url = "https://h.test/a?sig=4f3a9b2c1d8e7f60"
    shop.offers(url)
    own = mat.spec.operator("service.own", lambda call, reply, stream: Rewrite({"url": url[:-6]}))
    contracts = [obs.bytes_preserved(id="asked"), obs.bytes_preserved(id="reached", form="reached")]
    with mat.run(contracts, operators=[own], schedule=[mat.spec.perturbation(own.id, "main/service:fetch#1")]) as run:
        shop.listing()
        shop.fetch(url)
    assert [(item.contract, item.step, item.label) for item in run.result.violations] == [("reached", 1, "OTHER")]


# -- conduct ------------------------------------------------------------------------------------------------------------


def test_backoff_is_kept_at_its_very_end_and_counted_from_the_reply() -> None:
    refused = http("GET", "/a", 429, wait=2)
    again = http("GET", "/a")
    early = [at(refused, 0, 500, 0, 1), at(again, 2499, 2499, 2, 3)]
    in_time = [at(refused, 0, 500, 0, 1), at(again, 2500, 2500, 2, 3)]
    contract = obs.backoff_respected()
    assert found(contract, tuple(replace(item, step=step) for step, item in enumerate(early))) == [(1, "BACKOFF_VIOLATION")]
    assert found(contract, tuple(replace(item, step=step) for step, item in enumerate(in_time))) == []


def test_backoff_leaves_other_paths_and_ports_alone_unless_the_scope_is_the_selection() -> None:
    refused, other = http("GET", "/a", 503, wait=9), http("GET", "/b")
    assert found(obs.backoff_respected(), trace(refused, other)) == []
    assert found(obs.backoff_respected(scope="selection"), trace(refused, other)) == [(1, "BACKOFF_VIOLATION")]
    assert found(obs.backoff_respected("GET /b", scope="selection"), trace(refused, other)) == []
    assert found(obs.backoff_respected(), trace(http("GET", "/a", 200, wait=9), http("GET", "/a"))) == []
    assert found(obs.backoff_respected(), trace(http("GET", "/a", 429), http("GET", "/a"))) == []


def test_a_violation_of_conduct_says_what_was_done_and_what_was_forbidden() -> None:
    refused, other = http("GET", "/a", 429, wait=9), http("GET", "/b")

    def told(contract: Contract, *records: Record) -> list[str]:
        return [item.message for item in violations(contract, trace(*records))]

    assert told(obs.backoff_respected(scope="selection"), refused, other) == [
        "a selected call was made 8 s before the requested wait was over"
    ]
    assert told(obs.backoff_respected(), refused, refused) == [
        "h.test/a was called again 8 s before the requested wait was over"
    ]
    assert told(obs.not_rate_limited(), refused) == ["the call was refused because of a rate limit (such refusals allowed: 0)"]
    assert told(obs.no_shortcut(["force", "skip"]), call("force")) == [
        "the call is a shortcut around the canonical path (forbidden: force, skip)"
    ]


def test_backoff_reads_waits_of_errors_too() -> None:
    error = ErrorFact(type="RateLimited", message="slow down", kind="rate_limit", retry_after_ms=5000)
    refused = replace(call("get", error="rate_limit"), observation=Observation(error=error))
    assert found(obs.backoff_respected("get"), trace(refused, call("get"))) == [(1, "BACKOFF_VIOLATION")]


def test_a_call_asked_before_the_wait_was_known_is_not_early_and_ends_no_wait() -> None:
    refused, beside = http("GET", "/a", 429, wait=9), http("GET", "/a")
    records = (at(refused, 0, 500, 0, 2), at(beside, 100, 600, 1, 3), at(beside, 700, 800, 4, 5))
    placed = tuple(replace(item, step=step) for step, item in enumerate(records))
    assert found(obs.backoff_respected(), placed) == [(2, "BACKOFF_VIOLATION")]


def test_within_rate_is_a_sliding_window() -> None:
    get, wait = call("get"), call("wait")
    records = trace(get, get, get, wait, get)
    assert found(obs.within_rate("get", calls=2, per_ms=2001), records) == [(2, "RATE_LIMITED")]
    assert found(obs.within_rate("get", calls=2, per_ms=2000), records) == []
    assert found(obs.within_rate("get", calls=1, per_ms=1001), records) == [(1, "RATE_LIMITED"), (2, "RATE_LIMITED")]


def test_one_refusal_may_be_allowed_to_learn_of_a_limit() -> None:
    limited = http("GET", "/a", 429)
    failed = call("get", error="rate_limit")
    assert found(obs.not_rate_limited(), trace(limited, http("GET", "/a", 503), failed)) == [
        (0, "RATE_LIMITED"), (2, "RATE_LIMITED"),
    ]  # fmt: skip
    assert found(obs.not_rate_limited(at_most=1), trace(limited, limited)) == [(1, "RATE_LIMITED")]
    assert found(obs.not_rate_limited("GET /b"), trace(limited)) == []


def test_maintenance_is_kept_free_from_its_first_moment_to_its_last() -> None:
    get = call("get")
    contract = obs.not_during_maintenance("get", windows=[(3000, 4000), (1000, 2000)])
    assert found(contract, trace(get, get, get, get, get)) == [(1, "SCHEDULED_UNAVAILABLE"), (3, "SCHEDULED_UNAVAILABLE")]


def test_maintenance_that_a_reply_announces_is_known_to_calls_asked_after_it() -> None:
    down, get = http("GET", "/a", 503, wait=3), http("GET", "/a")
    assert found(obs.not_during_maintenance(), trace(down, get, get, get)) == [
        (1, "SCHEDULED_UNAVAILABLE"), (2, "SCHEDULED_UNAVAILABLE"),
    ]  # fmt: skip
    beside = (at(down, 0, 500, 0, 2), replace(at(get, 600, 700, 1, 3), step=1))
    assert found(obs.not_during_maintenance(), beside) == []

    def announced(item: Record) -> tuple[int, int] | None:
        value = item.observation.value
        return tuple(value["body"]) if isinstance(value, dict) and value.get("body") else None  # type: ignore[return-value]

    notice = http("GET", "/status", said=[2000, 3000])
    contract = obs.not_during_maintenance("GET /a", announced=announced)
    assert found(contract, trace(notice, get, get, get)) == [(2, "SCHEDULED_UNAVAILABLE")]


def test_no_shortcut_knows_ports_and_routes() -> None:
    records = trace(http("POST", "/orders/7/force"), http("POST", "/orders/7"), http("GET", "/orders/7/force"), call("force"))
    assert found(obs.no_shortcut("POST /orders/{id}/force"), records) == [(0, "SHORTCUT_TAKEN")]
    assert found(obs.no_shortcut(["/orders/*/force", "force"]), records) == [
        (0, "SHORTCUT_TAKEN"), (2, "SHORTCUT_TAKEN"), (3, "SHORTCUT_TAKEN"),
    ]  # fmt: skip


SAGA = {"POST /flights": "DELETE /flights/{id}", "POST /hotels": "DELETE /hotels/{id}"}


def test_a_saga_that_fails_owes_the_undoing_of_each_step_that_was_done() -> None:
    flights = [http("POST", "/flights", 201, said={"id": number}) for number in (7, 8)]
    failed = http("POST", "/hotels", 409)
    saga = obs.compensated(SAGA)
    assert [(item.step, item.label, item.witness) for item in violations(saga, trace(*flights, failed))] == [
        (2, "COMPENSATION_FAILURE", (0,)), (2, "COMPENSATION_FAILURE", (1,)),
    ]  # fmt: skip
    undone = [http("DELETE", "/flights/7", 204), http("DELETE", "/flights/8", 500)]
    assert [item.instance for item in violations(saga, trace(*flights, failed, *undone))] == ["8"]
    undone[1] = http("DELETE", "/flights/8", 204)
    assert violations(saga, trace(*flights, failed, *undone)) == ()


def test_a_saga_that_succeeds_or_has_done_nothing_owes_nothing() -> None:
    flight, hotel = http("POST", "/flights", 201, said={"id": 7}), http("POST", "/hotels", 201, said={"id": 1})
    assert found(obs.compensated(SAGA), trace(flight, hotel)) == []
    assert found(obs.compensated(SAGA), trace(http("POST", "/flights", 409))) == []
    booked = obs.compensated(SAGA, completed="POST /bookings")
    assert [label for _, label in found(booked, trace(flight, hotel))] == ["COMPENSATION_FAILURE"] * 2
    assert found(booked, trace(flight, hotel, http("POST", "/bookings", 201))) == []
    assert [label for _, label in found(booked, trace(flight, http("POST", "/bookings", 409)))] == ["COMPENSATION_FAILURE"]


def pay(key: str | None, amount: int = 5, status: int = 200) -> Record:
    headers = {} if key is None else {"Idempotency-Key": key}
    return http("POST", "/payments", status, headers=headers, json={"amount": amount})


@pytest.mark.parametrize(
    ("attempts", "wanted"),
    [
        ([pay("a", status=504), pay("a")], []),
        ([pay("a", status=504), pay("b")], [(1, "WRONG_VALUE")]),
        ([pay("a"), pay("b")], []),
        ([pay("a"), pay("a", amount=6)], [(1, "WRONG_VALUE")]),
        ([pay(None), pay("")], [(0, "MISSING_CONSTRAINT"), (1, "MISSING_CONSTRAINT")]),
        ([pay("a", status=422), pay("b")], []),
        ([pay("a", status=422), pay("a", amount=6)], []),
        ([pay("a", status=504), pay("x", status=422), pay("b")], [(1, "WRONG_VALUE"), (2, "WRONG_VALUE")]),
        ([pay("a", status=429), pay("a"), pay("b", amount=7)], []),
    ],
)
def test_attempts_at_one_request_carry_one_key(attempts: list[Record], wanted: list[tuple[int, str]]) -> None:
    assert found(obs.idempotency_key_kept("POST /payments"), trace(*attempts)) == wanted


def test_required_and_expected_part_what_is_missing_from_what_is_wrong() -> None:
    records = trace(*(call("send", arguments) for arguments in ({"to": "ann"}, {"to": "bob"}, {"to": ""}, {}, {"to": None})))
    assert found(obs.required("send", "to"), records) == [(step, "MISSING_CONSTRAINT") for step in (2, 3, 4)]
    assert found(obs.expected("send", {"to": "ann"}), records) == [(1, "WRONG_VALUE")]
    amounts = trace(*(call("send", {"n": number}) for number in (1, 5, 6)))
    assert found(obs.expected("send", {"n": (1, 5)}), amounts) == [(2, "WRONG_VALUE")]


def test_a_digest_may_be_written_in_three_ways_and_must_be_of_the_content() -> None:
    real = hashlib.sha256(b"text").digest()
    packed = base64.b64encode(real).decode()
    good = [real.hex(), real.hex().upper(), packed, packed.rstrip("="), f"sha-256=:{packed}:", f"sha256={real.hex()}"]
    contract = obs.digest_correct("send", "sum", lambda item: item.arguments["text"])
    records = trace(*(call("send", {"text": "text", "sum": one}) for one in good))
    assert found(contract, records) == []
    bad = [hashlib.sha256(b"text ").hexdigest(), real.hex()[:-1], "none", f"sha-256=:{packed[:-4]}AAA=:"]
    assert found(contract, trace(*(call("send", {"text": "text", "sum": one}) for one in bad))) == [
        (step, "WRONG_HASH") for step in range(4)
    ]
    assert found(contract, trace(call("send", {"text": "text", "sum": ""}), call("send", {"text": None, "sum": "x"}))) == []


def test_a_signature_that_cannot_be_verified_is_not_judged() -> None:
    records = trace(*(call("send", {"ok": ok}) for ok in (True, False, None)))
    assert found(obs.signature_verifies("send", lambda item: item.arguments["ok"]), records) == [(1, "SIGNATURE_MISMATCH")]


# -- all of them --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(MADE))
def test_id_severity_weight_policy_and_repair_have_defaults_and_can_be_given(name: str) -> None:
    plain = MADE[name]()
    assert plain.id.startswith(f"observation.{name}(")
    assert (plain.severity, plain.weight, plain.policy) == ("hard", 10.0, "observe")
    assert plain.text
    given = MADE[name](id="own", severity="soft", weight=3.0, policy="block", repair="do it right")
    assert (given.id, given.severity, given.weight, given.policy, given.repair) == ("own", "soft", 3.0, "block", "do it right")


@pytest.mark.parametrize("name", sorted(MADE))
def test_an_empty_trace_and_other_calls_break_nothing(name: str) -> None:
    other = record("memory_read", "notes", {"key": "a"}, value="b")
    if name != "not_during_maintenance":
        assert broken(MADE[name](), trace(other, other)) == ()
    assert broken(MADE[name](), ()) == ()


CYCLE = [
    http("POST", "/flights", 201, said={"id": 1}, headers={"idempotency-key": "k"}),
    http("GET", "/a", 429, wait=1),
    http("GET", "/a", 503, wait=1),
    call("list", issues=[("url", 1500)]),
    call("send", {"to": "bob", "text": "t", "sum": "x", "ok": False}, uses=[("url", "wrapped")], lacks=[("t", "absent")]),
    call("do", value={"id": 7}),
    call("undo", {"id": 7}),
    call("pay", {"key": "a", "amount": 5}, error="timeout"),
    call("pay", {"key": "b", "amount": 5}),
]


@pytest.mark.parametrize("name", sorted(MADE))
def test_the_state_stays_small_over_a_long_trace_and_has_a_canonical_digest(name: str) -> None:
    contract, sizes = MADE[name](), []
    state = contract.start
    for item in trace(*CYCLE * 150):
        new = contract.step(state, item)
        assert digest(state) == digest(state)
        if not isinstance(new, mat.Violated):
            state = new
        elif new.state is not KEEP:
            state = new.state
        sizes.append(len(canonical(state)))
    assert max(sizes[600:]) <= max(sizes[:600]) * 1.2 + 40


def test_keys_and_waits_of_many_different_requests_are_let_go() -> None:
    kept, quiet = obs.idempotency_key_kept("POST /payments"), obs.backoff_respected()
    states: list[list[Any]] = [[kept.start], [quiet.start]]
    for number in range(1000):
        paid = replace(pay(f"key-{number}", amount=number, status=504), at_ms=number * 1000, sealed_ms=number * 1000)
        limited = replace(
            http("GET", f"/a/{number}", 429, wait=3), at_ms=number * 1000, sealed_ms=number * 1000, asked_seq=number
        )
        states[0].append(kept.step(states[0][-1], paid))
        states[1].append(quiet.step(states[1][-1], limited))
    assert len(canonical(states[0][-1])) <= 1.1 * len(canonical(states[0][300])) + 100
    assert len(canonical(states[1][-1])) <= 2 * len(canonical(states[1][10]))


@pytest.mark.parametrize("name", sorted(MADE))
def test_a_peek_changes_no_state(name: str) -> None:
    contract = MADE[name]()
    state = contract.start
    for item in trace(*CYCLE * 3):
        before = digest(state)
        contract.step(state, item)
        assert digest(state) == before
        new = contract.step(state, item)
        state = state if isinstance(new, mat.Violated) and new.state is KEEP else getattr(new, "state", new)


@pytest.mark.sweep(
    ("wrong", "hint"),
    [
        (lambda: obs.used_while_valid(""), ""),
        (lambda: obs.used_while_valid(label="EXPIRED_BEFORE_USED"), "EXPIRED_BEFORE_USE"),
        (lambda: obs.bytes_preserved(labels={"truncate": "OTHER"}), "truncated"),
        (lambda: obs.bytes_preserved(labels={"truncated": "WRONG_VALU"}), "WRONG_VALUE"),
        (lambda: obs.compliant(labels={"truncate": "OTHER"}), "truncated"),
        (lambda: obs.compliant(labels={"truncated": "WRONG_VALU"}), "WRONG_VALUE"),
        (lambda: obs.bytes_preserved(form="got"), "reached"),  # type: ignore[arg-type]
        (lambda: obs.version_fresh(label="VERSION_CONFLICTS"), "VERSION_CONFLICT"),
        (lambda: obs.no_stale_write(label="nothing"), ""),
        (lambda: obs.backoff_respected(scope="port"), "path"),
        (lambda: obs.backoff_respected("get orders/7"), "POST /orders"),
        (lambda: obs.within_rate(calls=0, per_ms=5), ""),
        (lambda: obs.within_rate(calls=1, per_ms=0), ""),
        (lambda: obs.not_rate_limited(at_most=-1), ""),
        (lambda: obs.not_during_maintenance(windows=[(5, 5)]), ""),
        (lambda: obs.no_shortcut(None), ""),
        (lambda: obs.compensated({}), ""),
        (lambda: obs.required("send", ()), ""),
        (lambda: obs.digest_correct("send", "sum", lambda item: "", algorithm="md99"), "sha256"),
        (lambda: obs.used_while_valid(severty="soft"), "severity"),  # type: ignore[call-arg]
        (lambda: obs.backoff_respected(polcy="block"), "policy"),  # type: ignore[call-arg]
        (lambda: obs.compensated({"a": "b"}, repairs="x"), "repair"),  # type: ignore[call-arg]
    ],
)
def test_an_option_that_cannot_mean_anything_is_refused_with_a_way_out(wrong: Callable[[], Contract], hint: str) -> None:
    with pytest.raises(mat.MatError) as caught:
        wrong()
    assert caught.value.fix
    assert hint in str(caught.value)


def test_a_late_use_is_blocked_before_it_happens(shop: SimpleNamespace) -> None:
    import time

    fetched: list[str] = []

    @mat.tool(effect="write")
    def send(url: str) -> None:
        fetched.append(url)

    url = "https://h.test/a?sig=4f3a9b2c1d8e7f60"
    shop.offers(url, ttl=10)
    with mat.run([obs.compliant("url", policy="block", repair="list again")], governance=mat.policy.Governance()) as run:
        shop.listing()
        send(url)
        with pytest.raises(mat.Blocked):
            send(url[:-6])
        time.sleep(10)
        with pytest.raises(mat.Blocked):
            send(url)
    assert fetched == [url]
    assert [(item.step, item.label, item.stage, item.repair) for item in run.result.violations] == [
        (2, "OTHER", "attempted", "list again"),
        (3, "EXPIRED_BEFORE_USE", "attempted", "list again"),
    ]


# -- exchanges and routes -----------------------------------------------------------------------------------------------


def test_an_exchange_reads_a_request_and_its_reply() -> None:
    item = record(
        "tool_call", "http",
        {
            "method": "post", "url": "https://h.test/orders/7?a=1&b=", "headers": {"X-One": "1"},
            "json": {"lines": [{"sku": "k"}], "n": 0},
        },
        value={"status_code": 201, "headers": {"ETag": '"1"'}, "body": {"id": 7}},
    )  # fmt: skip
    read = obs.exchange(item, {"id": "7"})
    assert read is not None
    assert (read.method, read.path, read.status, read.succeeded, read.reply) == ("POST", "/orders/7", 201, True, {"id": 7})
    wanted = {
        "headers.x-one": "1", "headers.X-ONE": "1", "query.a": "1", "query.b": "", "query.c": None, "path.id": "7",
        "body.lines.0.sku": "k", "body.lines.1.sku": None, "body.n": 0, "body.n.x": None,
    }  # fmt: skip
    assert {place: read.value(place) for place in wanted} == wanted
    assert read.reply_headers == {"etag": '"1"'}


@pytest.mark.parametrize(
    ("body", "fields"),
    [('{"a": 1}', {"a": 1}), ("a=1&b=", {"a": "1", "b": ""}), ("[1]", {}), ("", {}), (None, {}), ([1], {})],
)
def test_the_fields_of_a_body_are_those_of_json_or_a_form(body: Any, fields: dict[str, Any]) -> None:
    read = obs.exchange(record("tool_call", "http", {"url": "/x", "body": body}))
    assert read is not None
    assert dict(read.fields) == fields


def test_a_call_without_a_url_is_no_exchange_and_an_odd_url_raises_nothing() -> None:
    assert obs.exchange(call("get", {"path": "/x"})) is None
    assert obs.exchange(call("get", {"url": 5})) is None
    for url in ("", "[", "http://[", "http://[::1", "\x00", "//", "http://h:x/y", "?a=1"):
        odd = call("get", {"url": url})
        assert obs.exchange(odd) is not None
        assert violations(obs.no_shortcut("POST /x"), trace(odd)) == ()
        assert violations(obs.backoff_respected(), trace(odd)) == ()


@pytest.mark.parametrize(
    ("route", "hit", "missed"),
    [
        ("GET /a", "GET https://h.test/a?x=1", "POST https://h.test/a"),
        ("/a/*", "GET https://h.test/a/b/c", "GET https://h.test/a"),
        ("/a/{id}/b", "PUT https://h.test/a/7/b", "PUT https://h.test/a/7/8/b"),
        ("GET https://h.test/a", "GET https://h.test/a", "GET https://other.test/a"),
        ("/a.b", "GET https://h.test/a.b", "GET https://h.test/axb"),
    ],
)
def test_routes_select_by_method_host_and_path(route: str, hit: str, missed: str) -> None:
    def asked(line: str) -> Record:
        method, url = line.split()
        return call("http", {"method": method, "url": url})

    assert broken(obs.no_shortcut(route), trace(asked(hit), asked(missed))) == (0,)


def test_a_call_by_a_handle_is_selected_by_where_its_url_leads() -> None:
    store = mat.artifact.handles()

    @mat.tool(handles=store)
    def http_send(method: str, url: str) -> dict[str, Any]:
        return {"status": 200}

    with mat.run([obs.no_shortcut("POST /orders/{id}/force")]) as run:
        mat.artifact.observed("https://h.test/orders/7/force?sig=4f3a9b2c1d8e", name="url")
        http_send("POST", store.put("u", "https://h.test/orders/7/force?sig=4f3a9b2c1d8e"))
    assert [item.label for item in run.result.violations] == ["SHORTCUT_TAKEN"]


# -- labels -------------------------------------------------------------------------------------------------------------


def test_the_order_of_labels_is_total_and_has_each_label_once() -> None:
    assert sorted(obs.SEVERITY) == sorted(obs.LABELS)
    assert len(set(obs.LABELS)) == 15
    assert (len(obs.VALIDITY), len(obs.INTEGRITY)) == (4, 9)
    assert {obs.axis(label) for label in obs.VALIDITY} == {"validity"}
    assert {obs.axis(label) for label in obs.INTEGRITY} == {"integrity"}
    assert {obs.axis(label) for label in ("SUCCESS", "OTHER", "nonsense")} == {"meta"}


@pytest.mark.parametrize("first", obs.SEVERITY)
def test_the_most_severe_of_two_labels_is_the_one_further_up_whatever_their_order(first: str) -> None:
    for second in obs.SEVERITY:
        wanted = min(first, second, key=obs.SEVERITY.index)
        assert obs.most_severe([first, second]) == obs.most_severe([second, first]) == wanted


def test_no_label_is_success_and_an_unknown_one_other() -> None:
    assert obs.most_severe([]) == "SUCCESS"
    assert obs.most_severe(["TOOL_INPUT_TOO_LONG"]) == "OTHER"
    assert obs.most_severe(["SUCCESS", "nonsense"]) == "OTHER"


def test_the_label_of_a_run_is_its_most_severe_violation_and_then_its_success() -> None:
    listed = call("list", issues=[("url", 500)])
    late = violations(obs.compliant(), trace(listed, call(uses=["url"]), call(uses=[("url", "wrapped")])))
    assert obs.primary_label(late) == obs.primary_label(late, True) == "EXPIRED_BEFORE_USE"
    assert obs.primary_label([replace(late[0], label="")]) == "OTHER"
    assert [obs.primary_label([], success) for success in (None, True, False)] == ["SUCCESS", "SUCCESS", "OTHER"]


def test_traces_by_hand_number_artefacts_and_give_them_times() -> None:
    from mat.core.artifact import issued, used

    records = trace(call("list", issues=[("url", 500), ("url", None)]), call(uses=["url#1", "url", ("url#1", "other")]))
    assert [(item.id, item.issued_ms, item.ttl_ms) for item in issued(records[0])] == [("url#1", 0, 500), ("url#2", 0, None)]
    assert [(item.id, item.ttl_ms, item.damage, item.intact) for item in used(records[1])] == [
        ("url#1", 500, "", True), ("url#2", None, "", True), ("url#1", 500, "other", False),
    ]  # fmt: skip
