"""An injected failure is what the client of the tool would raise: declared, set for the project, guessed, and said."""

from __future__ import annotations

import asyncio
import functools
import json
import random
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

import mat
import mat_faults
from mat.boundary.clients import CLIENTS, ClientFailure, exception, kind_of, names
from mat.boundary.port import DEFAULT_ERRORS
from mat.core.errors import MatError, RateLimited, SpecError
from mat.core.run import PortErrors, Run, Uncaught
from mat.core.spec import Perturbation
from mat.report.words import perturbation_in_words
from mat_contracts import no_duplicate_effect
from mat_search import Campaign, CampaignResult, search

ONCE = no_duplicate_effect("refund")
SERVICE = tuple(item.spec() for item in mat_faults.service.operators() if item.default)

SHOP = """
import httpx
import mat

def make(**options):
    @mat.tool(effect="write", **options)
    def refund(order):
        return {"order": order}
    return refund
"""


def module(source: str, name: str = "shop") -> ModuleType:
    """A module of a user's project, as if it had been imported."""
    made = ModuleType(name)
    made.__file__ = f"/project/{name}.py"
    exec(compile(source, made.__file__, "exec"), vars(made))
    return made


def paying(refund: Callable[[str], Any]) -> Callable[[], Any]:
    """The agent of many projects: it retries on the errors of its client, and nothing else."""
    from tenacity import retry, retry_if_exception_type, stop_after_attempt

    tried = retry(retry=retry_if_exception_type(httpx.TransportError), stop=stop_after_attempt(3), reraise=True)
    return functools.partial(tried(refund), "A17")


def executed(body: Callable[[], Any], schedule: Sequence[Perturbation] = (), **options: Any) -> Run:
    made = mat.run([ONCE], schedule=schedule, states=True, **options)
    try:
        with made:
            body()
    except MatError:
        raise
    except Exception:
        assert made.result is not None
    assert made.result is not None
    return made.result


def searched(body: Callable[[], Any], *, errors: Any = (), strategy: str = "exhaustive", runs: int = 300) -> CampaignResult:
    def evaluate(spec: mat.spec.RunSpec) -> Run:
        return executed(body, spec.schedule, errors=errors)

    campaign = Campaign(operators=SERVICE, budget=4, strategy=strategy, max_runs=runs)
    adapt = lambda spec, choose: executed(body, errors=errors, adversary=choose)  # noqa: E731
    return search(evaluate(mat.spec.RunSpec()), evaluate, campaign, adapt=adapt)


def perturb(operator: str, site: str, **parameters: Any) -> Perturbation:
    return mat.spec.perturbation(operator, site, parameters, cost=4)


def met(call: Callable[[], Any], schedule: Sequence[Perturbation], **options: Any) -> BaseException:
    """What the caller of a tool gets under a schedule."""
    found: list[BaseException] = []

    def body() -> None:
        try:
            call()
        except Exception as error:
            found.append(error)

    executed(body, schedule, **options)
    return found[0]


# -- the agent that was certified -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "project", "parameters"),
    [({}, (), {"errors": "httpx"}), ({"errors": "httpx"}, (), {}), ({}, "httpx", {"errors": "httpx"})],
    ids=["guessed", "declared", "set for the project"],
)
def test_an_agent_that_retries_on_its_clients_errors_is_seen_to_pay_twice(declared, project, parameters):
    body = paying(module(SHOP).make(**declared))
    found = searched(body, errors=project)
    (each,) = found.counterexamples
    (perturbation,) = each.run.spec.schedule
    assert (each.verdict.contract, perturbation.operator) == (ONCE.id, "service.lost_ack")
    assert dict(perturbation.parameters) == parameters
    assert each.run.records[0].observation.error.type == "ReadTimeout"


def test_with_pythons_own_errors_it_is_certified_as_long_as_somebody_says_so():
    found = searched(paying(module(SHOP).make(errors="builtin")))
    assert (found.counterexamples, found.certificate.proven, found.certificate.assumptions) == ((), True, ())


@pytest.mark.parametrize("strategy", ["anytime", "random", "beam", "evolutionary", "adversary"])
@pytest.mark.full
def test_every_strategy_injects_what_the_client_raises(strategy):
    found = searched(paying(module(SHOP).make()), strategy=strategy)
    assert [each.verdict.contract for each in found.counterexamples] == [ONCE.id]
    assert all(item.parameters["errors"] == "httpx" for each in found.counterexamples for item in each.run.spec.schedule)


def test_a_guess_is_named_in_the_certificate_and_a_declaration_is_not():
    def once(refund: Callable[[str], Any]) -> Callable[[], Any]:
        return functools.partial(refund, "A17")

    guessed, declared, set_for_all = (
        searched(once(module(SHOP).make(**options)), errors=project).certificate
        for options, project in (({}, ()), ({"errors": "httpx"}, ()), ({}, "httpx"))
    )
    assert guessed.given == "errors guessed: refund raises those of httpx (shop.py imports it)"
    assert (declared.given, set_for_all.given) == ("", "")
    assert guessed.proven


def test_one_specification_gives_one_trace_and_another_client_another():
    shop = module(SHOP)
    lost = [perturb("service.lost_ack", "main/service:refund#1", errors="httpx")]
    runs = [executed(paying(shop.make()), lost) for _ in range(2)]
    assert runs[0].head == runs[1].head
    builtin = [perturb("service.lost_ack", "main/service:refund#1", errors="builtin")]
    assert executed(paying(shop.make()), builtin).head != runs[0].head


def test_a_schedule_that_names_a_client_raises_its_errors_whatever_is_imported_today():
    refund = module(SHOP.replace("import httpx", "")).make()
    named = [perturb("service.timeout", "main/service:refund#1", errors="httpx")]
    plain = [perturb("service.timeout", "main/service:refund#1")]
    call = functools.partial(refund, "A17")
    assert (type(met(call, named)), type(met(call, plain))) == (httpx.ReadTimeout, TimeoutError)


def test_a_declaration_overrules_the_client_of_an_older_schedule():
    named = [perturb("service.timeout", "main/service:refund#1", errors="httpx")]
    call = functools.partial(module(SHOP).make(errors="sqlite3"), "A17")
    assert type(met(call, named)) is sqlite3.OperationalError
    call = functools.partial(module(SHOP).make(errors={"timeout": EOFError}), "A17")
    assert type(met(call, named)) is EOFError


def test_kinds_that_a_mapping_leaves_out_are_those_of_the_project_or_guessed():
    call = functools.partial(module(SHOP).make(errors={"timeout": EOFError}), "A17")
    down = [perturb("service.outage", "main/service:refund#1", calls=1)]
    assert type(met(call, down)) is httpx.ConnectError
    assert type(met(call, down, errors="sqlite3")) is sqlite3.OperationalError


# -- several clients --------------------------------------------------------------------------------------------------

TWO = SHOP.replace("import httpx", "import sqlite3\nimport httpx")


def injected(found: CampaignResult | None, runs: Sequence[Run]) -> list[tuple[str, str]]:
    return sorted({(item.operator, str(item.parameters.get("errors", ""))) for run in runs for item in run.spec.schedule})


def schedules_of(body: Callable[[], Any], *, budget: int = 5) -> list[tuple[str, str]]:
    runs: list[Run] = []

    def evaluate(spec: mat.spec.RunSpec) -> Run:
        runs.append(executed(body, spec.schedule))
        return runs[-1]

    search(evaluate(mat.spec.RunSpec()), evaluate, Campaign(operators=SERVICE, budget=budget))
    return injected(None, runs)


def test_with_two_clients_each_failure_is_tried_with_both_and_nothing_else_is():
    both = [
        (operator, client)
        for operator in ("service.lost_ack", "service.outage", "service.timeout")
        for client in ("httpx", "sqlite3")
    ]
    found = schedules_of(functools.partial(module(TWO).make(), "A17"))
    assert found == sorted([("service.corrupt_field", ""), *both])
    assert schedules_of(functools.partial(module(TWO).make(errors=["sqlite3", "httpx"]), "A17")) == found


def test_a_counterexample_of_the_second_client_is_found_and_stays_its():
    found = searched(paying(module(TWO).make()))
    (each,) = found.counterexamples
    assert [dict(item.parameters) for item in each.run.spec.schedule] == [{"errors": "httpx"}]
    assert found.certificate.given == "errors guessed: refund raises those of sqlite3 or httpx (shop.py imports them)"


def test_a_perturbation_in_words_names_its_client():
    lost = perturb("service.lost_ack", "main/service:refund#1", errors="httpx")
    assert perturbation_in_words(lost).endswith("is lost after the effect happened, as httpx reports it")


def test_a_client_that_raises_nothing_for_a_kind_is_not_tried_for_it():
    run = executed(functools.partial(module(TWO).make(), "A17"))
    (port,) = run.errors
    assert (port.port, port.clients, port.guess) == ("service:refund", ("sqlite3", "httpx"), "shop.py imports them")
    assert list(port.kinds["timeout"]) == ["sqlite3", "httpx"]
    assert list(port.kinds["rate_limit"]) == ["httpx"]


def test_what_no_client_raises_is_one_of_pythons_own():
    call = functools.partial(module(SHOP).make(errors="sqlite3"), "A17")
    error = met(call, [perturb("service.error", "main/service:refund#1", kind="rate_limit")])
    assert (type(error), error.retry_after_s) == (RateLimited, 30.0)


def test_a_declaration_of_one_client_leaves_the_grid_as_it_is():
    assert executed(functools.partial(module(SHOP).make(errors="httpx"), "A17")).errors == ()
    assert executed(functools.partial(module(SHOP).make(), "A17"), errors="httpx").errors[0].guess == ""


# -- what is guessed --------------------------------------------------------------------------------------------------

TRANSPORT = module(
    "import httpx\ndef post(path): return httpx.post(path)\nclass Api:\n    def get(self): return httpx.get('/')", "transport"
)
TEAM = module("import httpx\nclass Agent:\n    def run(self): return httpx.get('/')", "team")


class Lazy:
    """An object that must not be touched."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"touched: {name}")


SOURCES = {
    "its module imports the client": ("import httpx\ndef f(): pass", ["httpx"]),
    "a name of the client": ("from httpx import Client\ndef f(): pass", ["httpx"]),
    "an object of the client": ("from sqlite3 import connect\nDB = connect(':memory:')\ndef f(): DB.execute('')", ["sqlite3"]),
    "imported in the function": ("def f():\n    import httpx\n    httpx.post('/')", ["httpx"]),
    "a function of another module": ("import transport\ndef f(): return transport.post('/')", ["httpx"]),
    "a class of another module": ("from transport import Api\ndef f(): return Api().get()", ["httpx"]),
    "what it calls comes first": ("import sqlite3, transport\ndef f(): return transport.post('/')", ["httpx", "sqlite3"]),
    "another agent that is imported": ("import team\nfrom team import Agent\ndef f(): return 1", []),
    "an exception of the project's own": ("import httpx as h\nclass Down(h.HTTPError): ...\ndel h\ndef f(): pass", ["httpx"]),
    "an object that connects when it is touched": ("def f(): return THING", []),
    "nothing": ("import json\ndef f(): return json.dumps({})", []),
}


def clients_of(tool: Any, project: tuple[str, ...] = ()) -> list[str]:
    found: PortErrors | None = tool.mat_port.tried(project)
    return [] if found is None else list(found.clients)


@pytest.mark.parametrize("case", SOURCES)
def test_the_guess_is_read_off_the_code_of_the_tool_and_the_imports_of_its_module(case, monkeypatch):
    source, expected = SOURCES[case]
    for other in (TRANSPORT, TEAM):
        monkeypatch.setitem(sys.modules, other.__name__, other)
    made = module(source)
    made.THING = Lazy()
    assert clients_of(mat.tool(made.f)) == expected


def test_methods_are_guessed_from_their_class_and_receivers_from_their_attributes():
    shop = module(
        "class Api:\n"
        "    def __init__(self):\n"
        "        import httpx\n"
        "        self.http = httpx.Client()\n"
        "    def refund(self, order): return self.http.post('/')\n"
        "class Bare:\n"
        "    def refund(self, order): return self.http.post('/')\n"
    )
    sys.modules["shop"] = shop
    try:
        assert clients_of(mat.tool(shop.Api.refund)) == ["httpx"]
        bare = shop.Bare()
        bare.http = httpx.Client()
        assert clients_of(mat.tool(bare.refund, name="refund")) == ["httpx"]
        assert clients_of(mat.tool(bare.http.post, name="post")) == ["httpx"]
    finally:
        del sys.modules["shop"]


def test_decorators_of_libraries_hide_no_module():
    from tenacity import retry

    shop = module("import httpx\ndef refund(order): pass")
    assert clients_of(mat.tool(retry(shop.refund))) == ["httpx"]
    assert clients_of(mat.tool(functools.partial(shop.refund, "A17"), name="refund")) == ["httpx"]


def test_functions_of_other_libraries_are_not_guessed_because_they_wrap_errors():
    assert clients_of(mat.tool(asyncio.sleep)) == []


def test_a_module_of_the_users_that_has_the_name_of_a_client_is_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", ModuleType("redis"))
    assert clients_of(mat.tool(module("import redis\ndef f(): pass").f)) == []


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **classes: type[Exception]) -> ModuleType:
    made, errors = ModuleType(name), ModuleType(f"{name}.exceptions")
    for each in (made, errors):
        for known, kind in classes.items():
            kind.__module__ = f"{name}.exceptions"
            setattr(each, known, kind)
    made.exceptions = errors
    monkeypatch.setitem(sys.modules, name, made)
    monkeypatch.setitem(sys.modules, f"{name}.exceptions", errors)
    return made


def redis_stand_in(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    class RedisError(Exception): ...

    kinds = ("TimeoutError", "ConnectionError", "BusyLoadingError", "AuthenticationError", "ResponseError")
    return stand_in(monkeypatch, "redis", **{name: type(name, (RedisError,), {}) for name in kinds})


def model_stand_in(monkeypatch: pytest.MonkeyPatch, name: str) -> ModuleType:
    class APIError(Exception):
        def __init__(self, message: str = "timed out", *, request: Any = None, response: Any = None, body: Any = None) -> None:
            self.request, self.response = request, response
            super().__init__(message)

    kinds = ("APITimeoutError", "APIConnectionError", "RateLimitError", "InternalServerError", "AuthenticationError",
             "NotFoundError", "UnprocessableEntityError")  # fmt: skip
    return stand_in(monkeypatch, name, **{kind: type(kind, (APIError,), {}) for kind in kinds})


def test_a_client_of_models_is_guessed_for_models_and_other_clients_for_the_rest(monkeypatch):
    model_stand_in(monkeypatch, "openai")
    shop = module("import openai, httpx\ndef ask(prompt): return ''\ndef refund(order): return ''")
    assert clients_of(mat.tool(shop.refund)) == ["httpx"]
    assert clients_of(mat.model(shop.ask)) == ["openai"]
    shop = module("import httpx\ndef ask(prompt): return ''")
    assert clients_of(mat.model(shop.ask)) == ["httpx"]


# -- presets ----------------------------------------------------------------------------------------------------------

HTTPX = {
    "timeout": "ReadTimeout", "connection": "ConnectError", "midway": "RemoteProtocolError", "status": "HTTPStatusError",
}  # fmt: skip
EXPECTED = {
    "httpx": HTTPX,
    "httpx2": HTTPX,
    "requests": {
        "timeout": "ReadTimeout", "connection": "ConnectionError", "midway": "ChunkedEncodingError", "status": "HTTPError",
    },
    "urllib3": {"timeout": "ReadTimeoutError", "connection": "MaxRetryError", "midway": "ProtocolError"},
    "aiohttp": {
        "timeout": "ServerTimeoutError", "connection": "ClientConnectorError", "midway": "ClientPayloadError",
        "status": "ClientResponseError",
    },
    "openai": {"timeout": "APITimeoutError", "connection": "APIConnectionError", "status": "APIStatusError"},
    "anthropic": {"timeout": "APITimeoutError", "connection": "APIConnectionError", "status": "APIStatusError"},
    "boto3": {
        "timeout": "ReadTimeoutError", "connection": "EndpointConnectionError", "midway": "ResponseStreamingError",
        "status": "ClientError",
    },
    "grpc": {"timeout": "RpcError", "connection": "RpcError", "midway": "RpcError", "status": "RpcError"},
    "sqlite3": {"timeout": "OperationalError", "connection": "OperationalError", "status": "DatabaseError"},
    "psycopg": {"timeout": "OperationalError", "connection": "OperationalError", "status": "Error"},
    "psycopg2": {"timeout": "OperationalError", "connection": "OperationalError", "status": "Error"},
    "redis": {"timeout": "TimeoutError", "connection": "ConnectionError", "status": "RedisError"},
}  # fmt: skip
"""By client, the class that code which handles its errors names."""


def test_every_preset_is_expected_to_raise_something():
    assert set(EXPECTED) == set(CLIENTS)
    assert set(names()) == {*CLIENTS, "botocore", "builtin"}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_preset_raises_what_the_client_raises(name):
    library = CLIENTS[name].module
    pytest.importorskip(library, reason=f"{library} is not installed")
    for kind in CLIENTS[name].kinds:
        made = exception(name, ClientFailure(kind=kind, text="refund: failed", retry_after_s=30.0))
        assert EXPECTED[name].get(kind, EXPECTED[name].get("status")) in [each.__name__ for each in type(made).__mro__]
        assert str(made) == str(exception(name, ClientFailure(kind=kind, text="refund: failed", retry_after_s=30.0)))
        told = kind_of(name, made)
        assert told == kind or name in ("sqlite3", "psycopg", "psycopg2", "redis")
    if "midway" in EXPECTED[name]:
        made = exception(name, ClientFailure(kind="connection", text="broke", midway=True))
        assert EXPECTED[name]["midway"] in [each.__name__ for each in type(made).__mro__]


def test_errors_of_http_carry_their_request_their_status_and_the_wait_that_is_asked_for():
    limited = exception("httpx", ClientFailure(kind="rate_limit", text="later", retry_after_s=30.0))
    assert isinstance(limited, httpx.HTTPStatusError)
    assert (limited.response.status_code, limited.response.headers["retry-after"]) == (429, "30")
    lost = exception("httpx", ClientFailure(kind="timeout", text="lost"))
    assert isinstance(lost, httpx.ReadTimeout)
    assert lost.request.url.host == "service.invalid"


def test_the_wait_that_a_client_reads_off_a_response_is_in_the_record():
    call = functools.partial(module(SHOP).make(), "A17")
    run = executed(call, [perturb("service.error", "main/service:refund#1", kind="rate_limit")])
    error = run.records[0].observation.error
    assert (error.type, error.kind, error.retry_after_ms) == ("HTTPStatusError", "rate_limit", 30_000)


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_a_preset_asks_no_more_of_a_library_than_its_exceptions(name, monkeypatch):
    library = model_stand_in(monkeypatch, name)

    @mat.model("planner", errors=name, tape="inprocess")
    def plan(prompt: str) -> str:
        return "refund"

    error = met(lambda: plan("?"), [perturb("model.rate_limit", "main/model:planner#1")])
    assert type(error) is library.RateLimitError
    assert (error.response.status_code, error.response.headers["retry-after"]) == (429, "30")


def test_a_stand_in_of_redis_raises_its_own_errors(monkeypatch):
    library = redis_stand_in(monkeypatch)
    call = functools.partial(module(SHOP).make(errors="redis"), "A17")
    assert type(met(call, [perturb("service.timeout", "main/service:refund#1")])) is library.TimeoutError


def test_a_client_that_is_imported_in_a_run_moves_no_draw(tmp_path, monkeypatch):
    Path(tmp_path, "redis").mkdir()
    Path(tmp_path, "redis", "__init__.py").write_text("import random\nDRAWN = [random.random() for _ in range(9)]\n")
    Path(tmp_path, "redis", "exceptions.py").write_text("class TimeoutError(Exception): ...\nConnectionError = TimeoutError\n")
    for name in ("redis", "redis.exceptions"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    refund, drawn = module(SHOP).make(errors="redis"), list[float]()

    def body() -> None:
        try:
            refund("A17")
        except Exception:
            drawn.append(random.random())

    for _ in range(2):
        executed(body, [perturb("service.timeout", "main/service:refund#1")])
    assert drawn[0] == drawn[1]
    for name in ("redis", "redis.exceptions"):
        del sys.modules[name]


def test_a_stream_that_breaks_raises_what_the_client_raises_in_the_middle():
    @mat.model("planner", errors="httpx", tape="inprocess")
    def plan() -> Iterator[str]:
        yield from "abc"

    got: list[str] = []
    error = met(lambda: got.extend(plan()), [perturb("model.cut", "main/model:planner#1", chunks=2, kind="connection")])
    assert type(error) is httpx.RemoteProtocolError
    assert str(error) == "planner: the stream broke after 2 chunks"


def test_async_tools_raise_the_same():
    @mat.tool(errors="httpx")
    async def refund(order: str) -> None: ...

    error = met(lambda: asyncio.run(refund("A17")), [perturb("service.timeout", "main/service:refund#1")])
    assert type(error) is httpx.ReadTimeout


def test_errors_that_a_port_raises_itself_are_of_the_kinds_of_its_client():
    def fail(error: Exception) -> Any:
        @mat.tool(errors="httpx")
        def refund() -> None:
            raise error

        return executed(refund).records[0].observation.error.kind

    request = httpx.Request("POST", "/")
    assert fail(httpx.ConnectTimeout("", request=request)) == "timeout"
    assert fail(httpx.ReadError("", request=request)) == "connection"
    assert fail(httpx.HTTPStatusError("", request=request, response=httpx.Response(503))) == "server_error"
    assert fail(ValueError("")) == ""


@pytest.mark.parametrize("option", ["tool", "project"])
def test_mistakes_in_the_names_of_presets_are_said_at_once(option, monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", None)
    declare = mat.tool(errors=["htpx", "grpc"]) if option == "tool" else lambda callee: mat.run(errors=["htpx", "grpc"])
    with pytest.raises(SpecError) as caught:
        declare(print)
    assert "there is no preset 'htpx'; did you mean 'httpx'?" in caught.value.what
    assert "errors='grpc': grpc cannot be imported; install it" in caught.value.what


def test_a_client_that_a_replay_names_and_that_is_missing_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    call = functools.partial(module(SHOP).make(), "A17")
    with pytest.raises(MatError, match="redis cannot be imported"):
        executed(call, [perturb("service.timeout", "main/service:refund#1", errors="redis")])


def test_an_operator_cannot_take_the_parameter_that_names_a_client():
    with pytest.raises(SpecError, match="'errors' of a grid point is taken"):
        mat.spec.operator("service.mine", lambda call, reply, stream: None, grid=[{"errors": 1}])


@pytest.mark.parametrize("kind", DEFAULT_ERRORS)
def test_every_kind_has_an_exception_with_every_preset(kind):
    for name in ("httpx", "sqlite3", "builtin"):
        call = functools.partial(module(SHOP).make(errors=name), "A17")
        schedule = [perturb("service.error", "main/service:refund#1", kind=kind)]
        assert isinstance(met(call, schedule), Exception)


# -- what leaves the body ---------------------------------------------------------------------------------------------

LOST = (perturb("service.timeout", "main/service:refund#1"),)


def test_a_failure_that_leaves_the_body_is_noted_with_its_port_and_type():
    call = functools.partial(module(SHOP).make(), "A17")
    assert executed(call, LOST).uncaught == Uncaught(port="service:refund", type="httpx.ReadTimeout")
    plain = functools.partial(module(SHOP).make(errors="builtin"), "A17")
    assert executed(plain, LOST).uncaught == Uncaught(port="service:refund", type="TimeoutError")


def test_a_failure_in_the_group_of_a_task_group_is_noted_and_one_that_was_caught_is_not():
    refund = module(SHOP).make()

    def grouped() -> None:
        try:
            refund("A17")
        except httpx.TransportError as error:
            raise ExceptionGroup("tasks", [error]) from None

    def caught() -> None:
        try:
            refund("A17")
        except httpx.TransportError:
            raise KeyError("A17") from None

    assert executed(grouped, LOST).uncaught is not None
    assert executed(caught, LOST).uncaught is None


# -- in a session of pytest -------------------------------------------------------------------------------------------

FILES = {
    "shop.py": "import httpx\nimport mat\n\n@mat.tool(effect='write')\ndef refund(order):\n    return {'order': order}\n",
    "agent.py": """
import httpx
import shop
from tenacity import retry, retry_if_exception_type, stop_after_attempt

@retry(retry=retry_if_exception_type(httpx.TransportError), stop=stop_after_attempt(3), reraise=True)
def pay(order):
    return shop.refund(order)
""",
    "test_shop.py": """
import pytest
from mat_contracts import no_duplicate_effect
import agent

@pytest.fixture
def once():
    return no_duplicate_effect("refund")

@pytest.mark.mat(budget=5, faults=["service.outage", "service.lost_ack"])
def test_pay(mat_run, once):
    agent.pay("A17")
""",
}


@pytest.fixture
def project(pytester, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    for name, text in FILES.items():
        (pytester.path / name).write_text(text)
    return pytester


def written(project: pytest.Pytester, shop: str = "", ini: str = "") -> None:
    if shop:
        Path(project.path, "shop.py").write_text(shop)
    Path(project.path, "pytest.ini").write_text(f"[pytest]\n{ini}\n")


@pytest.mark.full
def test_a_session_finds_it_says_where_failures_left_the_body_and_replays_it_without_the_import(project):
    written(project)
    stressed = project.runpytest_subprocess("--mat-stress", "-v", timeout=120)
    assert stressed.ret == 1
    text = stressed.stdout.str()
    assert "relative to errors guessed: refund raises those of httpx (shop.py imports it)" in " ".join(text.split())
    assert "disturbed runs the test's body did not catch the httpx.ConnectError injected at refund" in " ".join(text.split())
    (file,) = Path(project.path, "mat_replays").glob("*")
    assert json.loads(file.read_text())["schedule"][0]["parameters"] == {"errors": "httpx"}
    written(project, shop=FILES["shop.py"].replace("import httpx\n", ""))
    replayed = project.runpytest_subprocess("--mat-replay", str(file), timeout=120)
    assert (replayed.ret, "refund had the same effect at steps 0 and 1" in replayed.stdout.str()) == (1, True)


@pytest.mark.nightly
def test_the_option_of_a_project_decides_where_nothing_is_declared(project):
    nothing = FILES["shop.py"].replace("import httpx\n", "")
    written(project, shop=nothing)
    assert project.runpytest_subprocess("--mat-stress", timeout=120).ret == 0
    written(project, shop=nothing, ini="mat_errors = httpx")
    assert project.runpytest_subprocess("--mat-stress", timeout=120).ret == 1


@pytest.mark.full
def test_the_doctor_says_what_was_guessed(project):
    written(project)
    done = project.run(sys.executable, "-m", "mat", "doctor", "test_shop.py", timeout=120)
    done.stdout.fnmatch_lines(["  errors of refund: httpx (guessed: shop.py imports it); settle it with errors=..."])
