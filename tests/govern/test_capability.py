"""Capability sets: exact names, kinds, endpoints, nested parameters, rates. What is not covered is denied."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat.core.allowed import may_be_within, within
from mat.core.endpoint import allowed_data, allowed_from, endpoint, folder, length, may_be_at, narrower, pattern, values_at
from mat.core.errors import CodecError, SpecError
from mat.core.value import FrozenDict
from mat.govern.capability import Capability, capability, capability_sets, covers, rate
from mat.govern.policy import _rule_maker


def blocked(call: Any) -> bool:
    try:
        call()
    except mat.Blocked:
        return True
    return False


@mat.tool(effect="write")
def send(to: Any = "ann", body: Any = None, url: str = "") -> str:
    """Sends."""
    return "sent"


@mat.retriever("kb")
def look_up(query: str) -> list[str]:
    """Finds."""
    return ["a passage"]


@mat.model("planner")
def plan(prompt: str) -> str:
    """Plans."""
    return "a plan"


def may(*items: Any, **options: Any) -> mat.policy.Governance:
    return mat.policy.Governance(capabilities={"main": items}, **options)


@pytest.mark.parametrize(
    ("granted", "retrieves", "plans", "reads", "writes", "delegates"),
    [
        (["send"], False, False, False, False, False),
        (["retrieval:kb"], True, False, False, False, False),
        (["retrieval:kb2", "kb", "retrieval:k"], False, False, False, False, False),
        (["model:planner"], False, True, False, False, False),
        (["memory:notes"], False, False, True, True, False),
        (["memory_read:notes"], False, False, True, False, False),
        (["memory_write:notes"], False, False, False, True, False),
        (["delegation:mailer"], False, False, False, False, True),
    ],
)
def test_a_set_limits_retrievals_models_memories_and_delegations_by_kind_and_exact_name(
    granted: list[str], retrieves: bool, plans: bool, reads: bool, writes: bool, delegates: bool
) -> None:
    notes = mat.memory({"k": 1}, name="notes")
    with mat.run(governance=may(*granted)):
        assert blocked(lambda: look_up("q")) is not retrieves
        assert blocked(lambda: plan("p")) is not plans
        assert blocked(lambda: notes["k"]) is not reads
        assert blocked(lambda: notes.update(k=2)) is not writes
        assert blocked(lambda: mat.delegate("mailer", "write")) is not delegates
        assert mat.untrusted("text") == "text", "what enters from outside is no action of a set"


def test_with_default_deny_an_agent_without_a_set_needs_a_rules_allow() -> None:
    def yes(record: mat.Record) -> mat.policy.Allow | None:
        return mat.policy.Allow() if record.action.arguments.get("to") == "ann" else None

    for rules, runs in (((), False), ((yes,), True), ((lambda record: None,), False)):
        with mat.run(governance=mat.policy.Governance(default="deny", rules=rules)) as run:
            assert blocked(send) is not runs
            assert blocked(lambda: send("bob"))
        assert run.trace[1].mediation is not None
        assert run.trace[1].mediation.rule == "default"
    with mat.run(governance=mat.policy.Governance(default="deny", capabilities={"main": ["send"]})):
        assert not blocked(send), "a set that covers it is a yes"


@pytest.mark.parametrize(
    ("allowed", "body", "runs"),
    [
        ({"body.amount": (0, 10)}, {"amount": 10}, True),
        ({"body.amount": (0, 10)}, {"amount": 11}, False),
        ({"body.amount": (0, 10)}, {}, False),
        ({"body.amount": (0, 10)}, "amount", False),
        ({"body.lines.*.cents": (0, 5)}, {"lines": [{"cents": 1}, {"cents": 5}]}, True),
        ({"body.lines.*.cents": (0, 5)}, {"lines": [{"cents": 1}, {"cents": 6}]}, False),
        ({"body.lines.*.cents": (0, 5)}, {"lines": [{"cents": 1}, {"price": 6}]}, False),
        ({"body.0": {"a"}}, ["a", "b"], True),
        ({"body.1": {"a"}}, ["a", "b"], False),
        ({"body": lambda body: body["x"] > 1}, {"y": 1}, False),
    ],
)
def test_nested_parameters_are_found_by_path_and_what_is_missing_or_crashes_is_denied(
    allowed: dict[str, Any], body: Any, runs: bool
) -> None:
    with mat.run(governance=may(capability("send", **allowed))):
        assert blocked(lambda: send(body=body)) is not runs


@pytest.mark.parametrize(
    ("given", "inside", "outside"),
    [
        (
            endpoint("api.shop.example", paths="/v1"),
            ["https://api.shop.example/v1", "https://API.shop.example/v1/x?y=/admin", "https://api.shop.example/v1/a/../b",
             "https://api.shop.example/v1/caf%C3%A9/", "https://api.shop.example/v1/100%25;size=5?x=%2F"],
            [
                "https://api.shop.example/v10", "https://api.shop.example.evil.example/v1",
                "https://evil.example/api.shop.example/v1",
                "https://api.shop.example@evil.example/v1", "https://api.shop.example/v1/../admin",
                "http://api.shop.example/v1",
                "https://api.shop.example/v1/%2e%2e/admin", "https://api.shop.example/v1/%252e%252e/admin",
                "//api.shop.example/v1",
                "https://api.shop.example/v1/%25252525252e%25252525252e/x", "https://api.shop.example\\@evil.example/v1", "",
                "https://api.shop.example:444/v1", "https://xapi.shop.example/v1",
                "https://api.shop.example%2f@evil.example/v1",
                "https://api.shop.example/x/%2e%2e/v1/y", "https://api.shop.example/x%2f..%2fv1/y",
                "https://api.shop.example/x/%252e%252e/v1/y",
                "https://api.shop.example/v1/caf%C3%A9%2Fbar", "https://api.shop.example/v1/a%2fb/%2e%2e/%2e%2e/admin",
                "https://api.shop.example/admin//../v1", "https://api.shop.example/v1/..;/admin",
                "https://api.shop.example/v1/..%3B/admin", "https://api.shop.example/v1/x%5c..", "https://api.shop.example/v1//x",
                "https://api.shop.example/v1/%c0%ae%c0%ae/admin", "https://api.shop.example/v1/%u002e%u002e/admin",
                "https://api.shop.example/v1/\uff0e\uff0e/admin", "https://api.shop.example/v1/\u2025/admin",
            ],
        ),
        (
            folder("/srv/reports"),
            ["/srv/reports", "/srv/reports/a.txt", "/srv//reports/./b", "/srv/reports/x/../y"],
            ["/srv/reports2", "/srv/reports/../secret", "srv/reports/a", "/srv", "~/srv/reports", "/srv/reports\\..\\x", "", 5],
        ),
        (folder("out"), ["out/a", "./out/b"], ["/out/a", "out/../etc", "../out/a", "outer/a"]),
    ],
    ids=["endpoint", "folder", "relative"],
)  # fmt: skip
def test_endpoints_and_folders_are_parsed_and_never_compared_by_prefix(
    given: Any, inside: list[Any], outside: list[Any]
) -> None:
    assert [item for item in inside if not given(item)] == []
    assert [item for item in outside if given(item)] == []


def test_a_rate_counts_in_virtual_time_and_gives_back_what_was_blocked() -> None:
    import time

    refused: list[str] = []

    def no_bob(record: mat.Record) -> mat.policy.Block | None:
        return mat.policy.Block("not bob") if record.action.arguments["to"] == "bob" else None

    governance = may(capability("send", rate(2, window_ms=1000)), rules=(no_bob,))
    with mat.run(governance=governance) as run:
        assert not blocked(send)
        assert blocked(lambda: send("bob"))
        assert not blocked(send)
        assert blocked(send)
        time.sleep(0.999)
        assert blocked(send)
        time.sleep(0.001)
        assert not blocked(send)
        refused = [item.mediation.reason for item in run.trace if item.mediation and item.blocked]
    assert refused[1] == "main may not call send more than 2 times in 1000 ms"


def test_a_rate_without_a_window_holds_for_the_run_and_starts_anew_in_the_next() -> None:
    governance = may(capability("send", rate(1)))
    for _ in range(2):
        with mat.run(governance=governance):
            assert [blocked(send) for _ in range(3)] == [False, True, True]


def test_reads_and_writes_of_one_memory_share_its_rate() -> None:
    notes = mat.memory({"k": 1}, name="notes")
    with mat.run(governance=may(capability("memory:notes", rate(2)))):
        assert [blocked(lambda: notes["k"]), blocked(lambda: notes.update(k=2)), blocked(lambda: notes["k"])] == [
            False,
            False,
            True,
        ]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: capability_sets({"main": "send"}), "are a single string"),
        (lambda: capability_sets({"main": ["retreival:kb"]}), "did you mean 'retrieval'"),
        (lambda: capability("prompt:user"), "capability sets do not limit prompt"),
        (lambda: capability("retrieval:"), "no name after its kind"),
        (lambda: capability(""), "has no name"),
        (lambda: capability("send", to="ann"), "is not an allow-list"),
        (lambda: capability("send", 5), "is not a rate"),  # type: ignore[arg-type]
        (lambda: rate(-1), "is not an integer >= 0"),
        (lambda: rate(1, window_ms=0), "window_ms=0 is not an integer >= 1"),
        (lambda: mat.policy.Governance(default="maybe"), "neither 'allow' nor 'deny'"),  # type: ignore[arg-type]
        (lambda: mat.policy.Governance(timeout_ms=-1), "is not a duration"),
        (lambda: mat.policy.Governance(rules=(5,)), "is not a rule"),  # type: ignore[arg-type]
        (lambda: endpoint("*.shop.example"), "is not a host name"),
        (lambda: endpoint("https://shop.example"), "is not a host name"),
        (lambda: endpoint("."), "is not a host name"),
        (lambda: endpoint("straße.example"), "has no clear form in ASCII"),
        (lambda: endpoint("\u212a.example"), "has no clear form in ASCII"),
        (lambda: endpoint("shop.example", paths=""), "paths='' is empty"),
        (lambda: endpoint("shop.example", paths=[]), r"paths=\[\] is empty"),
        (lambda: pattern("("), "is not a regular expression"),
        (lambda: pattern(r"(a)\1"), "backreferences are not supported"),
        (lambda: pattern("(?=a)b"), "look-around"),
        (lambda: pattern(r"\w{1,1000}\w{1,1000}"), "size limit"),
        (lambda: length(3, 1), "less than"),
    ],
)
def test_a_declaration_that_means_nothing_is_refused_with_its_reason(wrong: Any, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        wrong()


SLOW = [
    ("(a+)+b", "a" * 100_000),
    (r"(\w+\s?)*$x", "a " * 50_000),
    (r"(.*,){12}P", "1," * 50_000),
    (r"\s*\s*\s*x", " " * 100_000),
]


@pytest.mark.parametrize(("expression", "text"), SLOW)
def test_a_pattern_of_a_policy_reads_its_worst_text_in_linear_time(expression: str, text: str) -> None:
    began = time.process_time()
    assert not pattern(expression)(text)
    assert time.process_time() - began < 1, "python's engine would not end"


ORDINARY = [
    r"[a-c]+\d*", r"(?:ab|a)(?:c|bc)?", r"(?i)order-\d{2,4}", r"[^\s,]+(?:, [^\s,]+)*", r"a?b?c?", r"\w+@\w+\.(?:com|org)",
]  # fmt: skip


@given(st.sampled_from(ORDINARY), st.text("abcCd0123 ,@.-\norder", max_size=12))
def test_a_pattern_matches_what_pythons_engine_matches(expression: str, text: str) -> None:
    assert pattern(expression)(text) == (re.fullmatch(expression, text) is not None)


def test_a_text_that_is_no_unicode_is_still_read() -> None:
    assert pattern("pay .*")("pay \ud800 eve"), "a restriction must not be passed by a broken character"


def test_a_tool_whose_name_has_a_colon_is_named_with_its_kind() -> None:
    assert capability("service:model:x") == Capability(tool="model:x")
    assert capability("mcp:search").tool == "mcp:search"


ALLOWED = st.one_of(
    st.sets(st.integers(0, 5), min_size=1),
    st.tuples(st.integers(0, 5), st.integers(0, 5)).map(lambda pair: (min(pair), max(pair))),
    st.tuples(st.integers(0, 5), st.integers(5, 9)).map(lambda pair: length(*pair)),
    st.sampled_from([pattern("[a-z]+"), pattern("a"), folder("/a"), folder("/a/b"), endpoint("a.example", paths="/v1"),
                     endpoint("a.example"), endpoint(["a.example", "b.example"])]),
)  # fmt: skip
VALUES = st.one_of(
    st.integers(-1, 6),
    st.text("ab", max_size=9),
    st.sampled_from(["/a", "/a/b/c", "https://a.example/v1", "https://b.example/"]),
)


@given(inner=ALLOWED, outer=ALLOWED, value=VALUES)
def test_what_is_called_narrower_allows_nothing_that_the_wider_one_does_not(inner: Any, outer: Any, value: Any) -> None:
    if narrower(inner, outer) and within(inner, value):
        assert within(outer, value)
    assert narrower(inner, inner)


@given(allowed=ALLOWED, value=VALUES | st.lists(VALUES, max_size=2))
def test_what_is_surely_inside_may_be_inside(allowed: Any, value: Any) -> None:
    for item in (value, [value], {"key": value}):
        assert may_be_within(allowed, item) or not within(allowed, value) or isinstance(value, list)


@given(allowed=ALLOWED, value=VALUES)
def test_a_recorded_allow_list_allows_the_same(allowed: Any, value: Any) -> None:
    again = allowed_from(allowed_data(allowed, "x"), "x")
    assert within(again, value) is within(allowed, value)


def test_a_function_cannot_be_recorded_and_nonsense_cannot_be_read() -> None:
    with pytest.raises(SpecError, match="is a function"):
        allowed_data(lambda value: True, "x")
    for data in ({"range": [1]}, {"glob": "*"}, {"pattern": {"x": 1}}, [1], {}):
        with pytest.raises(CodecError):
            allowed_from(data, "x")


def test_a_capability_covers_a_narrower_one_only() -> None:
    wide, narrow = capability("pay", amount=(0, 100)), capability("pay", amount=(0, 9), to={"ann"})
    assert covers(wide, narrow)
    assert not covers(narrow, wide)
    assert covers(capability("pay"), wide)
    assert not covers(wide, capability("pay"))
    assert not covers(wide, capability("pays", amount=(0, 9)))
    assert covers(capability("memory:notes"), capability("memory_read:notes"))
    assert not covers(capability("memory_read:notes"), capability("memory:notes"))


@pytest.mark.full
@given(
    st.dictionaries(
        st.text("ab.*", max_size=3),
        st.recursive(st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text("ab*", max_size=2), inner)),
    ),
    st.text("ab.*01", max_size=6),
)
def test_no_path_and_no_arguments_break_the_look_up(arguments: dict[str, Any], path: str) -> None:
    assert isinstance(values_at(FrozenDict(arguments), path), list)


# -- ways round -------------------------------------------------------------------------------------------------------


def test_a_keyword_with_a_full_stop_hides_no_nested_value() -> None:
    small = capability("pay", **{"body.amount": (0, 10)})
    assert small.refuses({"body.amount": 1, "body": {"amount": 5000}}) == "pay(body.amount=5000) is outside 0..10"
    assert small.refuses({"body": {"amount": 1}, "body.amount": 5000}) == "pay(body.amount=5000) is outside 0..10"
    assert small.refuses({"body.amount": 1, "body": {"amount": 2}}) == small.refuses({"body.amount": 1}) == ""
    deep = capability("pay", **{"a.b.c": (0, 10)})
    for hiding in ({"a": {"b.c": 1, "b": {"c": 99}}}, {"a.b": {"c": 1}, "a": {"b": {"c": 99}}}, {"a.b.c": 1, "a": {"b.c": 99}}):
        assert deep.refuses(hiding).startswith("pay(a.b.c=99)"), hiding


def test_a_key_called_star_hides_no_other_member() -> None:
    ours = capability("send", **{"to.*": {"ann"}})
    assert ours.refuses({"to": {"*": "ann", "cc": "eve"}}) == "send(to.*='eve') is outside {'ann'}"
    assert ours.refuses({"to": ["ann"]}) == ""


async def later(value: Any) -> bool:
    return False


@pytest.mark.parametrize("predicate", [later, lambda value: "yes", lambda value: 1, lambda value: [value], lambda value: None])
@pytest.mark.filterwarnings("error")
def test_a_predicate_allows_with_true_alone(predicate: Any) -> None:
    assert not within(predicate, 5)
    assert capability("pay", amount=predicate).refuses({"amount": 5}).startswith("pay(amount=5) is outside")
    assert within(lambda value: True, 5)


@mat.tool(effect="write")
def pay_to(amount: int, /, *others: int, **more: Any) -> list[Any]:
    return [amount, others, more]


def test_a_keyword_called_like_a_positional_parameter_is_recorded_apart() -> None:
    with mat.run(governance=mat.policy.Governance(capabilities={"main": [capability("pay_to", amount=(0, 10))]})) as run:
        assert pay_to(1, 2, others="x", amount=3, more=4, plain=5) == [
            1,
            (2,),
            {"others": "x", "amount": 3, "more": 4, "plain": 5},
        ]
        with pytest.raises(mat.Blocked, match="amount=5000"):
            pay_to(5000, amount=1)
    assert run.result is not None
    first = run.result.records[0].action.arguments
    assert first == {"amount": 1, "others": [2], "plain": 5, "more": {"others": "x", "amount": 3, "more": 4}}


@pytest.mark.parametrize("predicate", [later, lambda value: "yes", lambda value: True])
def test_a_rule_that_restricts_takes_any_true_answer(predicate: Any) -> None:
    """Otherwise a match object, or an async predicate, would let through what a rule is there to block."""
    with mat.run(
        governance=mat.policy.Governance(rules=[_rule_maker("block")(reason="not that", where={"amount": predicate})])
    ):
        with pytest.raises(mat.Blocked, match="not that"):
            pay_to(1)


@pytest.mark.parametrize(("predicate", "allowed"), [(later, False), (lambda value: "yes", False), (lambda value: True, True)])
def test_a_rule_that_allows_takes_true_alone(predicate: Any, allowed: bool) -> None:
    rule = _rule_maker("allow")(where={"amount": predicate})
    with mat.run(governance=mat.policy.Governance(rules=[rule], default="deny")):
        if allowed:
            assert pay_to(1)
        else:
            with pytest.raises(mat.Blocked):
                pay_to(1)


# -- restrictions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "may", "never"),
    [
        (
            endpoint("evil.example"),
            [
                "https://evil.example/x", "https://a@evil.example/x", "https://evil.example./x", "https://evil.example:8443/x",
                " https://evil.example/x", "https://evil.example/a b", "//evil.example/x", "https:\\\\evil.example\\x",
                "https://\uff45vil.example/x", "http://evil.example", "evil.example", "evil.example:80/x", "https:evil.example",
                "https:/evil.example", "https:\\/\\/evil.example", "https://good.example\\@evil.example",
                "https://evil.example\\@good.example", "https://evil%2eexample/", "https:%2f%2fevil.example",
                "https://ev\til.example", "https://ev\u00adil.example", "https://evil\u3002example", "jar:https://evil.example/x!/",
                "<https://EVIL.example>", "https://evil.example\x00.good.example", "https://x%25252525252540/",
                b"https://evil.example", ["https://good.example", "https://evil.example"], {"url": "https://evil.example"},
            ],
            [
                "https://good.example/evil.example", "https://good.example/?to=https://evil.example/", "https://notevil.example",
                "https://evil.example.good.example", "https://a.evil.example", "https://a%40b@good.example/%20", "", 5, None,
            ],
        ),
        (
            endpoint("evil.example", paths="/admin"),
            [
                "https://evil.example/admin", "https://evil.example/x/../admin", "https://evil.example/..;/admin",
                "https://evil.example/%61dmin", "https://evil.example//admin", "https://evil.example/x%2f", "https://evil.example/ADMIN",
            ],
            ["https://evil.example/", "https://evil.example/administrator", "https://evil.example?/admin"],
        ),
        (
            endpoint("evil.example", schemes="http", port=81),
            ["http://evil.example:81", "evil.example:081", "//evil.example"],
            ["https://evil.example:81", "http://evil.example", "http://evil.example:8081"],
        ),
        (
            endpoint("169.254.169.254"),
            [
                "http://2852039166/", "http://0xA9FEA9FE/", "http://169.254.43518/", "http://0251.0376.0251.0376/",
                "http://[::ffff:169.254.169.254]:80/",
            ],
            ["http://169.254.169.25/", "http://2852039167/", "http://[::1]/", "http://1.2.3.4.5/"],
        ),
        (endpoint("xn--strae-oqa.example"), ["https://straße.example/"], ["https://strasse.example/"]),
        (endpoint("bücher.example"), ["https://BÜCHER.example/", "https://xn--bcher-kva.example:1/"], ["https://bucher.example/"]),
        (
            folder("/etc"),
            [
                "/etc", "/etc/passwd", "../../etc/passwd", "..", "~/../../etc/passwd", "~root", "$HOME/x", "/etc/x\\y",
                "\\etc\\x", "/ETC/x", " /etc/x", "//etc//x", "/x/../etc", "file:///etc/x", "file://localhost/etc/x", "/%65tc/x",
                "etc/passwd", "/e\x00tc/x", "/etc\x00.txt", "/\uff45tc", "/x/%252e%252e/etc", "/%25252525252565",
                b"/etc/x", ["/x", "/etc"],
            ],
            ["/data/etc", "/etcx", "notes.txt", "x/../y", "/data/a%20b", "/data/100%/x", "", 5, None],
        ),
        (folder("/srv/app"), ["app/x", "srv/app", "../app/x"], ["apps/x", "srv/x"]),
        (folder("out"), ["out/a", "x/out/a", "/data/out/a", "../a"], ["/data/outer", "notes.txt"]),
        (
            pattern(".*DROP.*"),
            ["DROP", "a\nDROP\nb", b"DROP", ["a", "DROP"], {"sql": ["DROP"]}, {"DROP": 1}],
            ["drop", b"\xff", [], 5, None],
        ),
        (pattern("[0-9.]+"), [17, "17", 17.5, b"17"], ["x", True, None]),
        (pattern("true"), [True, "true"], [False, 1]),
        (length(2, 3), ["ab", b"ab", ["ab"], [1, 2], {"a": 1, "b": 2}, 17, "é".encode() * 2], ["a", ["a"], 5, None]),
        ((50, 100), ["90", "９０", "9e1", b"90", [90], {"amount": 90}, "90,00", "10.0", "NaN", float("nan"), "all",
                     "9k", " 90\n", "$90", "0x5a", "1e99999999999"],
         ["", " ", None, "9", 9, "-90", [], ["9"], True, 10**5000, "1e9999", "1,000.90"]),
        ({123}, ["123", 123.0, b"123", ["x", "123"], "1, 123", "0123", "123.0", "1.23e2"], ["124", "1234", None, True]),
        ({"eve"}, ["eve", " EVE", "ann, eve", "Eve <x>", ["eve"], {"eve": 1}, b"eve"], ["steve", "", None]),
        ({True}, [True, "true", 1], [False, 2, None]),
        ({(1, 2)}, [(1, 2), [1, 2]], [3]),
    ],
)  # fmt: skip
def test_a_restriction_takes_what_may_be_meant_and_not_what_surely_is_not(given: Any, may: list[Any], never: list[Any]) -> None:
    assert [item for item in may if not may_be_within(given, item)] == []
    assert [item for item in never if may_be_within(given, item)] == []


def test_an_address_in_other_letters_is_no_permitted_host() -> None:
    assert not endpoint("strasse.example")("https://straße.example/")
    assert not endpoint("k.example")("https://\u212a.example/")
    assert endpoint("bücher.example")("https://bücher.example:443/")
    assert endpoint("Bücher.example")("https://xn--bcher-kva.example/")


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("to", [["a", {"b": 1}]]), ("to.*", ["a", {"b": 1}]), ("to.*.b", [1]), ("to.b", [1]), ("to.7", []), ("text.*", ["t"]),
        ("text.0", ["t"]), ("text.x", []), ("missing.*", []), ("body.amount", [900]),
    ],
)  # fmt: skip
def test_a_path_of_a_restriction_reaches_what_another_shape_of_the_value_holds(path: str, found: list[Any]) -> None:
    assert may_be_at({"to": ["a", {"b": 1}], "text": "t", "body": [[{"amount": 900}]]}, path) == found
