"""Models behind an endpoint, recorded once through each framework: after that, no call, no endpoint and no key is needed."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.frameworks.endpoint import KEY, PLAIN, Endpoint, served

import mat
from mat.boundary.cassette import Cassette, LiveCallsSpent
from mat.boundary.tape import Tape

HERE = Path(__file__).parent
FRAMEWORKS = {
    "langgraph": "langgraph", "openai_agents": "agents", "pydantic_ai": "pydantic_ai", "google_adk": "google.adk",
    "smolagents": "smolagents", "litellm": "litellm",
}  # fmt: skip
"""Our name of a framework with models, and the module that must be there."""
MODES = {"smolagents": ("sync", "stream")}
MORE = {"pydantic_ai": ', "errors": dict.fromkeys(["timeout", "connection"], __import__("pydantic_ai").ModelRetry)'}
EFFECTS = {"look_up": "read", "refund": "write"}
INSTRUMENT = {"litellm": {f"shop.{name}": {"effect": effect} for name, effect in EFFECTS.items()}}
SECRET = "4111-2222-3333-4444-holder"
TEST = """
import pytest, remote, shop
from mat_contracts import no_duplicate_effect
from {framework}_desk import handle

@pytest.fixture
def once():
    return no_duplicate_effect("refund", key="order")

@pytest.fixture
def mat_attach():
    return {{"{framework}": {{"effects": {effects}{more}}}}}

@pytest.fixture
def mat_instrument():
    return {instrument}

@pytest.mark.mat(budget=4, faults=["service.timeout", "service.lost_ack"])
def test_refund(mat_run, once):
    shop.reset()
    handle(remote.mind, "{mode}")
"""


def missing(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is None
    except ModuleNotFoundError:  # of its parent
        return True


def folder(tmp_path: Path, framework: str, mode: str) -> Path:
    installed = tmp_path / "site-packages"  # a model of the project itself is code under test, and never recorded
    installed.mkdir()
    shutil.copy(HERE / "remote.py", installed)
    shutil.copy(HERE / f"{framework}_desk.py", installed)
    paid = 'return f"{order}: 30 paid"'
    text = (HERE / "shop.py").read_text()
    assert paid in text
    secret = f"import mat\n    return f\"{{order}}: 30 paid by {{mat.secret('{SECRET}')}}\""
    (tmp_path / "shop.py").write_text(text.replace(paid, secret))
    found = {"effects": EFFECTS, "more": MORE.get(framework, ""), "instrument": INSTRUMENT.get(framework, {})}
    (tmp_path / "test_case.py").write_text(TEST.format(framework=framework, mode=mode, **found))
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = . site-packages\n")
    return tmp_path


def session(path: Path, url: str, *arguments: str, key: str = KEY) -> dict[str, Any]:
    """The item of a session of its own, as its report has it."""
    more = {"SHOP_URL": url, "SHOP_KEY": key, "PYTHONHASHSEED": "0", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--mat-report", "report.json", *arguments]
    done = subprocess.run(
        command, cwd=path, env={**os.environ, **more}, capture_output=True, text=True, timeout=240, check=False
    )
    found: dict[str, Any] = json.loads((path / "report.json").read_text())["items"][0] | {"output": done.stdout}
    return found


def entries(path: Path) -> list[dict[str, Any]]:
    [cassette] = (path / ".mat" / "cassettes").iterdir()
    return [json.loads(line)[2] for line in cassette.read_text().splitlines()[1:]]


@pytest.mark.full
@pytest.mark.parametrize("mode", ["sync", "async", "stream"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_search_needs_each_reply_once_and_afterwards_neither_endpoint_nor_key(
    framework: str, mode: str, tmp_path: Path
) -> None:
    if missing(FRAMEWORKS[framework]):
        pytest.skip(f"{framework} is not installed")
    if mode not in MODES.get(framework, (mode,)):
        pytest.skip(f"{framework} records {' and '.join(MODES[framework])} only")
    path = folder(tmp_path, framework, mode)
    with served() as url:
        recorded = session(path, url, "--mat-stress", "--mat-live-calls", "40")
        asked = Endpoint.asked
    assert recorded["status"] == "counterexample", recorded["output"]
    assert recorded["recorded"]["unreached"] == 0
    kept = entries(path)
    assert 3 < len(kept) == asked == recorded["recorded"]["made"]
    shutil.rmtree(path / "mat_replays")
    again = session(path, "http://127.0.0.1:9", "--mat-stress", "--mat-live-calls", "0", key="")
    assert again["status"] == "counterexample", again["output"]
    assert again["recorded"] == {**recorded["recorded"], "made": 0}
    assert (again["cost"], again["bound"]) == (recorded["cost"], recorded["bound"])
    assert "recorded replies" in again["relative_to"]
    assert "A17" in json.dumps([each["asked"] for each in kept])
    for file in (each for each in path.rglob("*") if each.is_file() and each.name not in ("shop.py", "shop.pyc")):
        content = file.read_bytes()
        if "__pycache__" not in file.parts:
            assert KEY.encode() not in content, file
            assert SECRET.encode() not in content, file


# -- clients of HTTP --------------------------------------------------------------------------------------------------------


@pytest.fixture
def url() -> Iterator[str]:
    with served() as found:
        yield found


def replayed(ask: Any, path: Path) -> tuple[Any, Any, int]:
    """What a client gets from the endpoint, and then from the recording; and how often the endpoint was asked."""
    cassette = path / "c.jsonl"
    with mat.attach("httpx"), mat.run(tape=Tape(cassette=Cassette(cassette, item="t", live=4))):
        live = ask()
    with mat.attach("httpx"), mat.run(tape=Tape(cassette=Cassette(cassette, item="t", live=0))):
        again = ask()
    text = cassette.read_text()
    assert KEY not in text
    assert PLAIN not in text
    assert "Refund A17" in text
    return live, again, Endpoint.asked


MESSAGES: Any = [{"role": "user", "content": "Refund A17"}]
SAID: Any = [*MESSAGES, {"role": "tool", "tool_call_id": "c", "name": "look_up", "content": "30 paid, größer"}]


def dumped(found: Any) -> Any:
    return [each.model_dump() for each in found] if isinstance(found, list) else found.model_dump()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_openai_client_parses_a_recorded_reply_as_it_did_the_live_one(
    url: str, tmp_path: Path, mode: str, stream: bool
) -> None:
    openai = pytest.importorskip("openai")
    asked: dict[str, Any] = {"model": "gpt-test", "messages": SAID, "stream": stream}
    if stream:
        asked["stream_options"] = {"include_usage": True}

    def ask() -> Any:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)
        reply = client.chat.completions.create(**asked)
        return dumped(list(reply) if stream else reply)

    async def ask_async() -> Any:
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)
        reply = await client.chat.completions.create(**asked)
        return dumped([each async for each in reply] if stream else reply)

    live, again, count = replayed(ask if mode == "sync" else lambda: asyncio.run(ask_async()), tmp_path)
    assert again == live
    assert count == 1
    if stream:
        calls = [each["choices"][0]["delta"]["tool_calls"] or () for each in live if each["choices"]]
        assert "".join(call["function"]["arguments"] for found in calls for call in found) == '{"order": "A17", "amount": 30}'
        assert live[-1]["usage"]["total_tokens"] == 13
    else:
        assert live["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "refund"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_anthropic_client_parses_a_recorded_reply_as_it_did_the_live_one(
    url: str, tmp_path: Path, mode: str, stream: bool
) -> None:
    anthropic = pytest.importorskip("anthropic")
    asked: dict[str, Any] = {"model": "claude-test", "max_tokens": 100, "messages": MESSAGES}

    def ask() -> Any:
        client = anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0)
        if not stream:
            return dumped(client.messages.create(**asked))
        with client.messages.stream(**asked) as events:
            texts = list(events.text_stream)
            return texts, dumped(events.get_final_message())

    async def ask_async() -> Any:
        client = anthropic.AsyncAnthropic(base_url=url, api_key=KEY, max_retries=0)
        if not stream:
            return dumped(await client.messages.create(**asked))
        async with client.messages.stream(**asked) as events:
            texts = [each async for each in events.text_stream]
            return texts, dumped(await events.get_final_message())

    live, again, count = replayed(ask if mode == "sync" else lambda: asyncio.run(ask_async()), tmp_path)
    assert again == live
    assert count == 1
    texts, message = live if stream else (["größ", "er: 30 €"], live)
    assert texts == ["größ", "er: 30 €"]
    assert message["content"][1]["input"] == {"order": "A17"}
    assert message["usage"]["output_tokens"] == 3


@pytest.mark.parametrize("key", ["header", "query"])
@pytest.mark.parametrize("method", ["generateContent", "streamGenerateContent?alt=sse"])
@pytest.mark.parametrize("client", ["httpx", "httpx2"])
def test_gemini_is_recorded_without_its_key(url: str, tmp_path: Path, client: str, method: str, key: str) -> None:
    httpx = pytest.importorskip(client)
    body = {"contents": [{"role": "user", "parts": [{"text": "Refund A17"}]}]}
    headers = {"x-goog-api-key": KEY} if key == "header" else {}
    mine = PLAIN if key == "query" else ""

    def ask() -> Any:
        nonlocal mine
        address = f"{url}/v1beta/models/gemini-test:{method}"
        address += f"{'&' if '?' in address else '?'}key={mine}" if key == "query" else ""
        mine = ""  # whoever has the recording needs no key
        with httpx.Client() as session, session.stream("POST", address, json=body, headers=headers) as reply:
            assert reply.status_code == 200
            return list(reply.iter_lines())

    live, again, count = replayed(ask, tmp_path)
    if "alt" in method:
        assert again == live
    else:  # JSON, as the client's `json()` reads it
        assert [json.loads(line) for line in again] == [json.loads(line) for line in live]
    assert count == 1
    assert "functionCall" in "".join(live)


def test_a_stream_is_one_entry_and_a_request_that_differs_from_it_is_told_by_its_field(url: str, tmp_path: Path) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)
    cassette = tmp_path / "c.jsonl"

    def ask(text: str, live: int) -> None:
        with mat.attach("httpx"), mat.run(tape=Tape(cassette=Cassette(cassette, item="t", live=live))):
            list(client.chat.completions.create(model="gpt-test", messages=[{"role": "user", "content": text}], stream=True))

    ask("Refund A17", 1)
    assert len(cassette.read_text().splitlines()) == 2  # its first line, and the whole stream
    with pytest.raises((LiveCallsSpent, openai.APIConnectionError)) as raised:  # older clients wrap what they do not know
        ask("Refund A18", 0)
    spent = raised.value if isinstance(raised.value, LiveCallsSpent) else raised.value.__cause__
    assert isinstance(spent, LiveCallsSpent)
    assert "body.messages.0.content: recorded 'Refund A17', asked 'Refund A18'" in str(spent)


@pytest.mark.parametrize("client", ["httpx", "requests", "aiohttp"])
def test_a_request_that_governance_rewrites_keeps_its_key(url: str, client: str) -> None:
    library = pytest.importorskip(client)
    address = f"{url}/v1beta/models/gemini-test:generateContent?key={PLAIN}&view=all"
    body = {"contents": [{"role": "user", "parts": [{"text": "Refund A17"}]}]}

    def ask() -> int:
        if client != "aiohttp":
            return int(library.post(address, json=body).status_code)

        async def asked() -> int:
            async with library.ClientSession() as session, session.post(address, json=body) as reply:
                return int(reply.status)

        return asyncio.run(asked())

    shorter = mat.policy.Governance(rules=(lambda record: mat.policy.Rewrite({"query": {"view": "short"}}),))
    with mat.attach(client), mat.run(governance=shorter, clock="real") as run:
        assert ask() == 200
    assert Endpoint.paths == [f"/v1beta/models/gemini-test:generateContent?key={PLAIN}&view=short"]
    assert PLAIN not in str(run.trace)


@pytest.mark.full
@pytest.mark.parametrize("mode", ["async", "stream"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_is_not_recorded_is_told_with_its_price_and_recorded_on_request(framework: str, mode: str, tmp_path: Path) -> None:
    if missing(FRAMEWORKS[framework]):
        pytest.skip(f"{framework} is not installed")
    mode = "stream" if framework == "smolagents" else mode
    if mode not in MODES.get(framework, (mode,)):
        pytest.skip(f"{framework} records {' and '.join(MODES[framework])} only")
    path = folder(tmp_path, framework, mode)
    with served() as url:
        session(path, url, "--mat-live-calls", "20")
        nominal = Endpoint.asked
    kept = entries(path)
    assert len(kept) == nominal
    prices = "".join(f"    {name} = 2.50/10 USD\n" for name in sorted({each["port"].partition(":")[2] for each in kept}))
    (path / "pytest.ini").write_text(f"[pytest]\npythonpath = . site-packages\nmat_prices =\n{prices}")
    offline = session(path, "http://127.0.0.1:9", "--mat-stress", "--mat-live-calls", "0", key="")
    text = " ".join(offline["output"].split())
    reach = offline["recorded"]
    assert reach["made"] == 0
    assert reach["unreached"] > 0, text
    assert f"{reach['reached']} of {reach['reached'] + reach['unreached']} schedules" in text, text
    assert "live call" in text, text
    assert "tokens" in text, text
    assert "USD" in text, text
    assert "the nearest differs in" in text, text
    assert "recorded" in text.partition("the nearest differs in")[2], text
    with served() as url:
        further = session(path, url, "--mat-stress", "--mat-live-calls", "40")
        assert Endpoint.asked == further["recorded"]["made"] > 0
    assert further["recorded"]["unreached"] == 0
    assert further["status"] == "counterexample", further["output"]
