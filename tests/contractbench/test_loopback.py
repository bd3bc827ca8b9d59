"""Tasks at a socket: a real server, a real client, and the same episodes as in process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import mat
from mat import MatError

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")
pytest.importorskip("uvicorn", reason="tasks at a socket need uvicorn: pip install 'pytest-mat[examples]'")

from contractbench import episode, loopback
from contractbench.clock import ManualClock
from contractbench.episode import persona
from contractbench.task import ids, task

EXAMPLES = Path(__file__).parents[2] / "examples"


def at_a_socket(task_id, name="oracle", seed=0):
    """(result, events, base URL) of an episode over loopback, outside any run."""
    found, base = task(task_id), []
    agent = persona(name, found, seed)

    async def telling(instruction, tools):
        base.append(str(tools._client.base_url).rstrip("/"))
        return await agent(instruction, tools)

    result, events = asyncio.run(loopback.play(found, seed, telling, name=name))
    return result, events, base[0]


def in_process(task_id, base, name="oracle", seed=0):
    """The same episode without a socket, its server at that base URL."""
    found = task(task_id)

    def client(app):
        return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=base)

    return asyncio.run(
        episode.play(found, seed, persona(name, found, seed), name=name, clock=ManualClock(), client=client, base=base)
    )


@pytest.mark.full
@pytest.mark.sweep("task_id", ids(), fast=4)
def test_an_oracle_meets_the_same_events_at_a_socket_as_in_process(play_as, task_id):
    """Byte by byte, where the process takes the socket's address, which signatures cover; and but for it, what it meets in
    a run, whose clock is another one.
    """
    result, events, base = at_a_socket(task_id)
    assert result.success
    expected, there = in_process(task_id, base)
    assert [event.data() for event in events] == [event.data() for event in there]
    assert result == expected
    in_run, there = play_as(task_id, "oracle")
    assert [(event.at, event.method, event.status, event.label, event.resource) for event in events] == [
        (event.at, event.method, event.status, event.label, event.resource) for event in there
    ]
    assert (result.steps, result.virtual_time_elapsed) == (in_run.steps, in_run.virtual_time_elapsed)


@pytest.mark.full
@pytest.mark.parametrize("name", ["listed_order", "direct_pass", "paraphraser", "handle_based", "aggressive_retry"])
def test_a_persona_fails_at_a_socket_as_in_process(name):
    """Damaged bytes too: what a real HTTP message can hold reaches the server as it was sent."""
    for task_id in ("presigned-url-download", "extreme-url-length", "webhook-hmac-verify"):
        result, events, base = at_a_socket(task_id, name)
        expected, there = in_process(task_id, base, name)
        assert (result.failure_label, [event.data() for event in events]) == (
            expected.failure_label, [event.data() for event in there],
        )  # fmt: skip


# -- an agent that is elsewhere -------------------------------------------------------------------------------------------

DOWNLOADS = """
import json, sys, urllib.request as http

def ask(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    with http.urlopen(http.Request(url, data, {"content-type": "application/json"})) as reply:
        return reply.read().decode()

base = sys.argv[1]
files = json.loads(ask(base + "/exports"))["files"]
for file in sorted(files, key=lambda file: int(file["url"].split("X-Amz-Expires=")[1].split("&")[0])):
    ask(file["url"])
ask(base + "/receipts", {"files": [file["name"] for file in files]})
"""


def test_an_agent_in_another_process_with_another_http_client_can_do_a_task(play_as):
    with loopback.serving(task("presigned-url-download"), 3) as served:
        subprocess.run([sys.executable, "-c", DOWNLOADS, served.base], check=True, timeout=60)
        assert served.label == "SUCCESS"
        there = [(event.label, event.at) for event in served.events]
    assert there == [(event.label, event.at) for event in play_as("presigned-url-download", "oracle", 3)[1]]


def test_time_moves_with_requests_and_with_waiting_and_with_nothing_else():
    with loopback.serving(task("presigned-url-download")) as served, httpx.Client(base_url=served.base) as client:
        assert client.get("/-/now").json() == {"now": 0.0}
        client.get("/exports")
        assert client.get("/-/now").json() == {"now": 1.0}
        assert client.post("/-/wait", json={"seconds": 7.5}).json() == {"now": 9.5}
        assert "Download the three files" in client.get("/-/instruction").text
        assert served.base in client.get("/-/instruction").text
        assert [event["label"] for event in client.get("/-/result").json()["events"]] == ["LISTED"]


@pytest.mark.parametrize(
    "body", [{"seconds": -1}, {"seconds": "soon"}, {}, [], {"seconds": 1e999}, {"seconds": None}], ids=repr
)
def test_a_wait_that_means_nothing_is_refused(body):
    with loopback.serving(task("csrf-form-submit")) as served, httpx.Client(base_url=served.base) as client:
        reply = client.post("/-/wait", content=json.dumps(body))
        assert (reply.status_code, served.clock.now()) == (422, 1.0)


def test_late_is_late_at_a_socket_too():
    with loopback.serving(task("presigned-url-download")) as served, httpx.Client(base_url=served.base) as client:
        url = client.get("/exports").json()["files"][-1]["url"]
        client.post("/-/wait", json={"seconds": 60})
        assert client.get(url).status_code == 403
        assert served.label == "EXPIRED_BEFORE_USE"


def test_budgets_end_an_episode_at_a_socket():
    found = task("csrf-form-submit")
    with loopback.serving(found) as served, httpx.Client(base_url=served.base) as client:
        statuses = [client.get("/no/such/place").status_code for _ in range(found.steps + 1)]
        assert statuses == [404] * found.steps + [410]
        assert len(served.events) == found.steps
    with loopback.serving(found) as served, httpx.Client(base_url=served.base) as client:
        client.post("/-/wait", json={"seconds": found.seconds})
        assert client.get("/no/such/place").status_code == 410


def test_two_tasks_can_be_served_at_a_time():
    with loopback.serving(task("csrf-form-submit")) as one, loopback.serving(task("csrf-form-submit"), 1) as other:
        assert one.base != other.base
        assert httpx.get(f"{one.base}/-/now").json() == {"now": 0.0}
        assert httpx.get(f"{other.base}/-/instruction").text == other.instruction


def test_after_the_block_nobody_listens():
    with loopback.serving(task("csrf-form-submit")) as served:
        pass
    with pytest.raises(httpx.ConnectError):
        httpx.get(served.base)


def test_a_missing_uvicorn_is_reported_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MatError, match=r"(?s)uvicorn is not installed.*pip install 'pytest-mat\[examples\]'"):
        with loopback.serving(task("csrf-form-submit")):
            pass


def test_a_run_refuses_sockets_with_what_to_do_instead():
    with mat.run(), pytest.raises(MatError, match=r"(?s)inside a run.*play it in process"):
        with loopback.serving(task("csrf-form-submit")):
            pass


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_the_command_serves_a_task_until_it_is_interrupted():
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES)}
    command = [sys.executable, "-m", "contractbench.loopback", "presigned-url-download", "--seed", "2"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        text = ""
        while not text.endswith("Ctrl-C ends the episode\n") and (line := process.stdout.readline()):
            text += line
        base = text.rpartition("-- ")[2].partition(";")[0]
        assert "Download the three files" in text
        assert httpx.get(f"{base}/exports").status_code == 200
        process.send_signal(signal.SIGINT)
        assert json.loads(process.communicate(timeout=60)[0]) == {"label": "OTHER", "requests": 1, "virtual_seconds": 1.0}
    assert process.returncode == 0
