"""`mat.attach`: what is refused, what is put back, and an agent over httpx in which nothing is ours."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any

import httpx
import pytest

import mat
from mat.adapters import Adapter, Attachment
from mat.adapters.attach import attached
from mat.core.errors import MatError, SpecError
from mat.core.site import site_text
from mat_faults import operators

CATALOG = operators()

DESK = """
import asyncio
import json

import httpx

def backend(request):
    if request.method == "POST":
        return httpx.Response(201, json={"refunded": json.loads(request.content)["order"]})
    return httpx.Response(200, json={"order": "A17", "paid": 30})

shop = httpx.Client(transport=httpx.MockTransport(backend), base_url="http://shop.test")

def handle(order, key=None):
    paid = shop.get(f"/orders/{order}").json()["paid"]
    for _ in range(3):
        try:
            headers = {} if key is None else {"idempotency-key": key}
            reply = shop.post("/refunds", json={"order": order, "amount": paid}, headers=headers)
            if reply.status_code < 500:
                return reply.json()["refunded"]
        except httpx.TimeoutException:
            continue
    return ""
"""
TEST = """
import pytest
from desk import handle
from mat_contracts import no_duplicate_effect

@pytest.fixture
def refunded_once():
    return no_duplicate_effect("POST shop.test/refunds", key="body")

@pytest.mark.mat(budget=4)
def test_refund(mat_run, refunded_once):
    handle("A17")
"""


@pytest.mark.full
def test_an_ini_line_is_enough_to_find_a_double_refund_over_http(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(desk=DESK, test_desk=TEST)
    pytester.makeini("[pytest]\nmat_attach = httpx\n")
    result = pytester.runpytest_subprocess("--mat-stress", "--mat-report", "r.json")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*cost 4*"])
    found = json.loads((pytester.path / "r.json").read_text())["items"][0]["findings"]
    assert [each for each in found if "httpx retries nothing" in each], "its own policy decides what can be found"
    assert len(list((pytester.path / "mat_replays").glob("*.mat.json"))) == 1
    assert pytester.runpytest_subprocess("-q").ret == 1  # the replay, in another process


@pytest.mark.full
def test_a_fixture_gives_the_options(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        desk=DESK,
        test_desk=TEST + """
@pytest.fixture
def mat_attach():
    return {"httpx": {"effects": {"POST shop.test/refunds": "none"}, "perturb": {"GET shop.test/orders/{id}": False}}}
""",
    )  # fmt: skip
    pytester.runpytest_subprocess("--mat-stress").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("langraph",), "there is no adapter 'langraph'"),
        (("httpx", {"effects": ["refund"]}), "effects=['refund'] is not a dict"),
        (("httpx", {"retrievers": "search"}), "write ['search']"),
        (("httpx", {"effects": {"refund": "writes"}}), "refund: effect='writes' is not one of"),
        (("httpx", {"impacts": {"refund": "huge"}}), "refund: impact='huge' is not one of"),
        (("httpx", {"errors": "htpx"}), "htpx"),
        (("httpx", {"perturb": "service"}), "write ['service']"),
        (("httpx", {"perturb": {"refund": ["services.timeout"]}}), "refund: perturb: 'services.timeout' is not an operator"),
    ],
)
def test_what_cannot_be_attached_is_refused_with_a_reason(arguments: tuple[Any, ...], said: str) -> None:
    name, options = arguments[0], arguments[1] if len(arguments) > 1 else {}
    with pytest.raises(MatError) as refused, mat.attach(name, **options):
        pass
    assert said in str(refused.value)


@pytest.mark.parametrize(("options", "said"), [
    ({"retreivers": ["search"]}, "attach 'httpx' has no option 'retreivers'; did you mean 'retrievers'?"),
    ({"tape": "external"}, "attach 'httpx' has no option 'tape'"),
    ("search", "'search' is not a dict of options"),
])  # fmt: skip
def test_options_of_the_fixture_that_do_not_exist_are_refused_before_anything_is_attached(options: Any, said: str) -> None:
    with pytest.raises(SpecError, match=re.escape(said)), attached({"httpx": options}):
        pass


def test_nothing_stays_attached_after_the_block() -> None:
    before = httpx.Client.send, httpx.AsyncClient.send

    def body() -> None:
        with mat.attach("httpx"):
            assert httpx.Client.send is not before[0]
            raise RuntimeError

    with pytest.raises(RuntimeError):
        body()
    assert (httpx.Client.send, httpx.AsyncClient.send) == before


def test_an_inherited_seam_is_removed_again() -> None:
    class Base:
        def call(self) -> str:
            return "base"

    class Derived(Base):
        pass

    attachment = Attachment()
    attachment.replace(Derived, "call", lambda real: lambda self: f"seen {real(self)}")
    assert Derived().call() == "seen base"
    assert Base().call() == "base"
    attachment.undo()
    assert "call" not in vars(Derived)


def test_a_fault_is_what_the_client_would_meet() -> None:
    shop = httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, json={"paid": 30})))
    met = []
    site = site_text("main", "service", "GET shop.test/orders/{id}", 1)
    for operator, kind in (("service.timeout", ""), ("service.error", "server_error"), ("service.error", "rate_limit")):
        fault = mat.spec.perturbation(operator, site, {"kind": kind} if kind else {})
        with mat.attach("httpx"), mat.run(schedule=[fault], operators=CATALOG):
            try:
                met.append(shop.get("http://shop.test/orders/17").status_code)
            except httpx.HTTPError as error:
                met.append(type(error).__name__)
    assert met == ["ReadTimeout", 503, 429]


def test_arguments_without_a_recorded_form_are_recorded_by_their_type() -> None:
    port = Attachment().tool("send")
    with mat.run() as run:
        mat.cross(port, {"client": object(), "options": {"lock": object(), "size": 3}}, lambda changed: None)
    assert dict(run.trace[0].action.arguments) == {
        "client": "<builtins.object>", "options": {"lock": "<builtins.object>", "size": 3},
    }  # fmt: skip


def test_a_call_inside_of_itself_is_one_step_and_of_another_agent_a_second_one() -> None:
    port = Attachment().tool("search")

    def inner(changed: Any) -> Any:
        return mat.cross(port, {"q": "in"}, lambda changed: "found")

    with mat.run() as run:
        mat.cross(port, {"q": "out"}, inner, agent="clerk")
    assert len([record for record in run.trace if record.action.name == "search"]) == 1
    with mat.run() as run:
        mat.cross(port, {"q": "out"}, lambda changed: mat.cross(port, {}, lambda changed: "", agent="other"), agent="clerk")
    assert [record.agent for record in run.trace if record.action.name == "search"] == ["clerk", "other"]


def test_a_text_from_a_retriever_can_be_poisoned() -> None:
    port = Attachment(retrievers={"kb"}).tool("kb")
    with mat.run() as run:
        assert mat.cross(port, {"q": "x"}, lambda changed: "Refunds take 14 days.") == "Refunds take 14 days."
    assert run.trace[0].action.kind == "retrieval"
    point = next(item for item in CATALOG if item.id == "retrieval.poison").grid[0]
    fault = mat.spec.perturbation("retrieval.poison", "main/retrieval:kb#1", point)
    with mat.run(schedule=[fault], operators=CATALOG):
        poisoned = mat.cross(port, {"q": "x"}, lambda changed: "Refunds take 14 days.")
    assert isinstance(poisoned, str)
    assert poisoned.startswith("Refunds take 14 days.\n")


def test_a_release_that_is_too_old_is_refused_with_the_one_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.1.0")
    found = Adapter(name="old", package="httpx", install=lambda attachment: None, release="httpx>=0.28")
    monkeypatch.setattr(sys.modules["mat.adapters.attach"], "_foreign", lambda wanted, name: found)
    with pytest.raises(MatError, match=r"httpx 0\.1\.0 is too old") as caught, mat.attach("old"):
        pass
    assert 'pip install "httpx>=0.28"' in str(caught.value)


def test_a_release_without_a_seam_is_refused_and_what_was_replaced_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def install(attachment: Attachment) -> None:
        attachment.replace(httpx.Client, "get", lambda real: lambda self: None)
        attachment.replace(httpx, "no_such_function", lambda real: real)

    monkeypatch.setattr(
        sys.modules["mat.adapters.attach"],
        "_foreign",
        lambda wanted, name: Adapter(name="new", package="httpx", install=install),
    )
    real = httpx.Client.get
    with pytest.raises(MatError, match="no_such_function"), mat.attach("new"):
        pass
    assert httpx.Client.get is real


@pytest.mark.full
def test_doctor_says_what_is_attached_how_effects_were_known_and_the_line_that_settles_the_others(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(desk=DESK, test_desk=TEST)
    pytester.makeini("[pytest]\nmat_attach = httpx\n")
    said = pytester.run(sys.executable, "-m", "mat", "doctor", "test_desk.py").stdout.str()
    assert "attached: httpx (observe, perturb, govern, replay)" in said
    assert "its own policy: httpx retries nothing" in said
    assert "GET shop.test/orders/{id}: read, by " in said


CHAT = {"choices": [{"message": {"role": "assistant", "content": "hi"}}], "usage": {"total_tokens": 15}}


def _asked(client: Any) -> Any:
    return client.post("https://api.openai.com/v1/chat/completions", json={"model": "gpt", "messages": []}).json()


@pytest.mark.parametrize("form", ["plain", "async", "generator", "async generator"])
def test_a_request_to_a_model_below_a_decorated_model_is_a_part_of_its_call(form: str) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=CHAT))

    @mat.model("planner")
    def plain() -> Any:
        return _asked(httpx.Client(transport=transport))

    @mat.model("planner")
    async def waiting() -> Any:
        async with httpx.AsyncClient(transport=transport) as client:
            reply = await client.post("https://api.openai.com/v1/chat/completions", json={"model": "gpt", "messages": []})
            return reply.json()

    @mat.model("planner")
    def chunks() -> Any:
        yield _asked(httpx.Client(transport=transport))
        yield {"text": "done"}

    @mat.model("planner")
    async def waiting_chunks() -> Any:
        yield _asked(httpx.Client(transport=transport))
        yield {"text": "done"}

    async def all_of_them() -> Any:
        return await anext(waiting_chunks())

    work: dict[str, Any] = {
        "plain": plain, "async": lambda: asyncio.run(waiting()), "generator": lambda: next(iter(list(chunks()))),
        "async generator": lambda: asyncio.run(all_of_them()),
    }  # fmt: skip
    with mat.run() as run, mat.attach("httpx"):
        assert work[form]() == CHAT
        _asked(httpx.Client(transport=transport))
    calls = [(each.action.name, each.observation.usage["total_tokens"]) for each in run.trace if each.action.boundary]
    assert calls == [("planner", 15), ("gpt", 15)]


def test_prompts_are_recorded_as_hashes_unless_an_attachment_keeps_them() -> None:
    kept = [Attachment(**options).model("m").policy("messages") for options in ({}, {"prompts": "keep"})]  # type: ignore[arg-type]
    assert kept == ["hash", "keep"]
    assert Attachment(prompts="keep").model("m").policy("reply") == "keep"
    with (
        pytest.raises(SpecError, match=r"prompts='show' is not one of keep, hash, redact"),
        mat.attach("httpx", prompts="show"),
    ):  # type: ignore[arg-type]
        pass
