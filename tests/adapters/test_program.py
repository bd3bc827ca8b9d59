"""Agents that are programs: what they do crosses the run of the test that started them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import mat
import mat_faults
from mat.adapters import program
from mat.adapters.program import AgentProgram

HERE = Path(__file__).parent / "programs"
CATALOG = mat_faults.operators()
pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="a program's proxies find the run by a Unix socket"), pytest.mark.full
]  # fmt: skip


def command(agent: str, ledger: Path, *options: str) -> list[str]:
    proxy = [sys.executable, "-m", "mat", "mcp-proxy", *options, "--"]
    return [sys.executable, str(HERE / "client.py"), agent, "--", *proxy, sys.executable, str(HERE / "server.py"), str(ledger)]


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


@pytest.fixture
def agent(ledger: Path) -> Callable[..., AgentProgram]:
    return lambda name, **options: program(command(name, ledger), **options)


def refunds(ledger: Path) -> list[str]:
    return ledger.read_text().splitlines() if ledger.exists() else []


def fault(operator: str, site: str, **parameters: Any) -> mat.spec.Perturbation:
    return mat.spec.perturbation(operator, site, parameters, cost=4)


def test_outside_of_a_run_the_proxy_only_passes_messages_on(agent: Callable[..., AgentProgram], ledger: Path) -> None:
    done = agent("careless").run("A17")
    assert (done.code, done.stdout, done.stderr) == (0, "refunded A17\n", "log: called refund\n")
    assert refunds(ledger) == ["A17"]


def test_what_a_program_asks_its_servers_is_a_trace_with_effects_by_annotation(agent: Callable[..., AgentProgram]) -> None:
    with mat.run() as run:
        assert agent("careful", effects={"refund": "write"}).run("A17").stdout == "refunded A17\n"
    asked = [(each.action.kind, each.action.name, each.action.effect) for each in run.trace[:-1]]
    assert asked == [("tool_call", "balance", "read"), ("tool_call", "refund", "write")]
    assert run.trace[1].action.arguments == {"order": "A17"}
    assert "_meta" not in str(run.trace[1].observation.value)  # the server's process id differs from run to run


def test_requests_of_the_server_to_the_client_pass_in_the_middle_of_a_call(agent: Callable[..., AgentProgram]) -> None:
    with mat.run():
        assert agent("talkative").run().stdout == "the model said yes\n"


def test_a_server_that_ends_in_a_call_and_a_method_that_it_does_not_have_are_errors_as_they_came(
    agent: Callable[..., AgentProgram],
) -> None:
    with mat.run() as run:
        assert agent("doomed").run().stdout == "lost with -32000\n"
    assert run.trace[0].effected == "unknown"
    with mat.run():
        assert agent("unknown").run().stdout == "-32601 Method not found: no/such\n"


def test_a_lost_acknowledgement_is_a_time_out_after_the_effect(agent: Callable[..., AgentProgram], ledger: Path) -> None:
    with mat.run(schedule=[fault("service.lost_ack", "main/service:refund#1")], operators=CATALOG) as run:
        assert agent("careless").run("A17").stdout == "refunded A17\n"
    assert refunds(ledger) == ["A17", "A17"]
    assert [each.effected for each in run.trace if each.action.name == "refund"] == ["yes", "yes"]


@pytest.mark.parametrize(("operator", "parameters"), [("service.timeout", {}), ("service.error", {"kind": "server_error"})])
def test_a_fault_before_the_effect_has_the_form_of_the_wire(
    agent: Callable[..., AgentProgram], ledger: Path, operator: str, parameters: dict[str, str]
) -> None:
    with mat.run(schedule=[fault(operator, "main/service:refund#1", **parameters)], operators=CATALOG) as run:
        assert agent("careless").run("A17").stdout == "refunded A17\n"  # an error of the protocol, or a result with isError
    assert run.result is not None
    assert run.result.unreached == ()
    assert refunds(ledger) == ["A17"]


def test_a_poisoned_resource_is_what_the_program_reads(agent: Callable[..., AgentProgram], ledger: Path) -> None:
    poison = fault("retrieval.poison", "main/retrieval:resource#1", payload="policy_update", magnitude=1)
    with mat.run(schedule=[poison], operators=CATALOG) as run:
        agent("obedient").run("A17")
    assert len(run.trace[0].observation.value) > 1
    assert refunds(ledger) == ["of somebody else", "A17"]


def test_governance_blocks_and_rewrites_what_a_program_does(agent: Callable[..., AgentProgram], ledger: Path) -> None:
    def nobody(record: Any) -> Any:
        return mat.policy.Block("not today") if record.action.name == "refund" else None

    def other(record: Any) -> Any:
        return mat.policy.Rewrite({"order": "SAFE"}) if record.arguments.get("order") == "A17" else None

    with mat.run(governance=mat.policy.Governance(rules=(nobody,))):
        assert "not today" in agent("careful").run("A17").stdout
    assert refunds(ledger) == []
    with mat.run(governance=mat.policy.Governance(rules=(other,))):
        assert agent("careless").run("A17").stdout == "refunded SAFE\n"
    assert refunds(ledger) == ["SAFE"]


def test_capabilities_name_tools_and_nothing_of_the_protocol(agent: Callable[..., AgentProgram], ledger: Path) -> None:
    allowed = mat.policy.Governance(capabilities={"main": ["balance"]})
    with mat.run(governance=allowed) as run:
        assert "no capability refund" in agent("careful").run("A17").stdout
    assert refunds(ledger) == []
    assert [each.blocked for each in run.trace[:-1]] == [False, True]


def test_an_approver_decides_on_a_call_of_a_program(agent: Callable[..., AgentProgram], ledger: Path) -> None:
    def ask(record: Any) -> Any:
        return mat.policy.NeedsApproval() if record.action.name == "refund" else None

    for answer in (False, True):
        asked: list[Any] = []

        def approver(what: str, arguments: Any, answer: bool = answer, asked: list[Any] = asked) -> bool:
            asked.append(arguments)
            return answer

        with mat.run(governance=mat.policy.Governance(rules=(ask,), approver=approver)):
            agent("careless").run("A17")
        assert asked[0] == {"order": "A17"}
        assert refunds(ledger) == ["A17"] * answer


def test_a_budget_of_calls_stops_a_program(agent: Callable[..., AgentProgram], ledger: Path) -> None:
    contract = mat.budget.ResourceContract(name="desk", budgets={"tool:refund": 0})
    with mat.run(), mat.budget.contracted(contract):
        agent("careless").run("A17")
    assert refunds(ledger) == []


def test_a_crash_ends_the_program_and_the_run_goes_on_by_itself(agent: Callable[..., AgentProgram], ledger: Path) -> None:
    with mat.run(schedule=[fault("process.crash", "main/process:service.refund#1")], operators=CATALOG) as run:
        with pytest.raises(mat.errors.ProcessCrashed):
            agent("careless").run("A17")
        run.resume()
        assert agent("careful").run("A17").stdout == "refunded before\n"
    assert refunds(ledger) == ["A17"]


def test_a_program_that_hangs_is_ended_with_all_that_it_started(agent: Callable[..., AgentProgram]) -> None:
    with mat.run(), pytest.raises(subprocess.TimeoutExpired, match="timed out after 3"):
        agent("stuck", timeout_s=3).run("A17")


def test_a_program_that_fails_says_how(tmp_path: Path) -> None:
    with mat.run():
        done = program([sys.executable, "-c", "import sys; print('x', file=sys.stderr); sys.exit(7)"]).run()
    assert (done.code, done.stderr) == (7, "x\n")


def test_draws_of_a_program_come_from_the_seed() -> None:
    def seed(number: int) -> str:
        with mat.run(seed=number):
            return program([sys.executable, "-c", "import os; print(os.environ['MAT_SEED'])"]).run().stdout

    assert seed(1) == seed(1) != seed(2)


def test_half_a_message_of_a_stranger_holds_nobody_up_for_longer_than_the_program_may_take() -> None:
    stranger = (
        "import os, socket, time; s = socket.socket(socket.AF_UNIX); s.connect(os.environ['MAT_RUN']); s.sendall(b'{');"
        "time.sleep(60)"
    )
    began = time.monotonic()
    with mat.run(), pytest.raises(subprocess.TimeoutExpired):
        program([sys.executable, "-c", stranger], timeout_s=2).run()
    assert time.monotonic() - began < 10


def test_a_server_that_hangs_does_not_outlive_the_run_even_in_a_session_of_its_own(
    agent: Callable[..., AgentProgram], ledger: Path
) -> None:
    with mat.run(), pytest.raises(subprocess.TimeoutExpired):
        agent("stuck", timeout_s=3, env={"NEW_SESSION": "1"}).run("A17")
    for _ in range(100):
        left = subprocess.run(["pgrep", "-f", str(ledger)], capture_output=True, text=True, check=False).stdout.split()
        if not left:
            return
        time.sleep(0.1)
    pytest.fail(f"still there: {left}")


STRANGER = "import os, socket; s = socket.socket(socket.AF_UNIX); s.connect(os.environ['MAT_RUN']); s.sendall(b'hello\\n')"


def test_what_is_no_message_of_a_proxy_is_refused() -> None:
    with mat.run(), pytest.raises(mat.MatError, match=r"a message that `mat mcp-proxy` does not send: hello"):
        program([sys.executable, "-c", STRANGER]).run()


def test_what_a_program_sent_before_its_end_is_served_however_soon_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    serving = sys.modules[AgentProgram.__module__]._Serving
    monkeypatch.setattr(serving, "_wait", lambda self, *rest: self._process.wait())  # nothing is read before it has ended
    with mat.run(), pytest.raises(mat.MatError, match=r"does not send: hello"):
        program([sys.executable, "-c", STRANGER]).run()


def test_a_single_string_is_refused_with_its_parts() -> None:
    with pytest.raises(mat.MatError, match=r"write program\(\['node', 'agent.js'\]\)"):
        program("node agent.js")  # type: ignore[arg-type]


# -- HTTP -----------------------------------------------------------------------------------------------------------------

ASKS = """
import json, os, urllib.error, urllib.request

def post(path, body):
    request = urllib.request.Request(os.environ["API"] + path, data=json.dumps(body).encode(), method="POST",
                                     headers={"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=20))

try:
    print(post("/chat/completions", {"model": "small", "messages": [{"role": "user", "content": "hi"}]})["choices"])
    print(post("/refunds", {"order": "A17"}))
except urllib.error.HTTPError as error:
    print(error.code)
except OSError as error:
    print(type(error).__name__)
"""


@pytest.fixture
def api() -> Any:
    class API(BaseHTTPRequestHandler):
        def log_message(self, *given: Any) -> None:
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            made = {"choices": ["hello"], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}}
            content = json.dumps(made if "model" in body else {"refunded": body["order"]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    server = HTTPServer(("127.0.0.1", 0), API)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()


def test_a_gateway_records_models_and_endpoints_of_a_program(api: str) -> None:
    asks = program([sys.executable, "-c", ASKS], http={"API": api})
    assert asks.run().stdout == "['hello']\n{'refunded': 'A17'}\n"  # outside of a run: the API itself
    with mat.run() as run:
        assert asks.run().stdout == "['hello']\n{'refunded': 'A17'}\n"
    kinds = [(each.action.kind, each.action.effect) for each in run.trace[:2]]
    assert kinds == [("model_call", "read"), ("tool_call", "write")]
    assert run.trace[0].action.name == "small"
    assert run.trace[1].action.arguments["body"] == {"order": "A17"}


def test_a_gateway_takes_bodies_in_chunks_and_connections_that_nobody_uses(api: str) -> None:
    chunked = (
        "import http.client, os, socket, urllib.parse\n"
        "to = urllib.parse.urlsplit(os.environ['API'])\n"
        "idle = socket.create_connection((to.hostname, to.port))\n"
        "c = http.client.HTTPConnection(to.netloc, timeout=20)\n"
        "c.request('POST', to.path + '/refunds', body=iter([b'{\"order\": ', b'\"A17\"}']), encode_chunked=True,\n"
        "          headers={'Transfer-Encoding': 'chunked', 'Content-Type': 'application/json'})\n"
        "print(c.getresponse().read().decode())\n"
    )
    with mat.run() as run:
        assert program([sys.executable, "-c", chunked], http={"API": api}).run().stdout == '{"refunded": "A17"}\n'
    assert run.trace[0].action.arguments["body"] == {"order": "A17"}


@pytest.mark.parametrize(
    ("operator", "parameters", "answer"),
    [
        ("service.timeout", {}, "RemoteDisconnected"), ("service.error", {"kind": "server_error"}, "503"),
        ("service.http_status", {"status": 429}, "429"),
    ],
)  # fmt: skip
def test_a_fault_at_a_gateway_is_a_status_or_a_closed_connection(
    api: str, operator: str, parameters: dict[str, Any], answer: str
) -> None:
    asks = program([sys.executable, "-c", ASKS], http={"API": api})
    with mat.run() as run:
        asks.run()
    with mat.run(schedule=[fault(operator, run.trace[1].site, **parameters)], operators=CATALOG):
        assert asks.run().stdout.splitlines()[1] == answer


# -- under pytest ---------------------------------------------------------------------------------------------------------

TEST = """
import sys
import pytest
from mat.adapters import program
from mat_contracts import no_duplicate_effect

@pytest.fixture
def agent(tmp_path):
    return program({command}, effects={{"refund": "write"}}, tape={tape!r})

@pytest.fixture
def refunded_once():
    return no_duplicate_effect("refund", key="order")

@pytest.mark.mat(budget=4)
def test_refund(mat_run, agent, refunded_once):
    assert "refunded" in agent.run("A17").stdout
"""


def write_test(folder: Path, agent: str, *, tape: str = "inprocess") -> None:
    text = repr(command(agent, Path("LEDGER"))).replace("'LEDGER'", 'str(tmp_path / "ledger")')
    (folder / "test_case.py").write_text(TEST.format(command=text, tape=tape))
    (folder / "pytest.ini").write_text("[pytest]\n")


def pytest_in(folder: Path, *arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    made = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(made, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.nightly
def test_a_double_refund_is_found_replayed_in_a_new_process_and_gone_when_it_is_mended(tmp_path: Path) -> None:
    write_test(tmp_path, "careless")
    searched = pytest_in(tmp_path, "--mat-stress", "--mat-report", "report.json")
    item = json.loads((tmp_path / "report.json").read_text())["items"][0]
    assert (item["status"], item["cost"]) == ("counterexample", 4), searched.stdout
    [replay] = (tmp_path / "mat_replays").glob("*.mat.json")
    strict = pytest_in(tmp_path, "--mat-replay", str(replay), hash_seed="7")
    assert strict.returncode == 1
    assert "ReplayDivergence" not in strict.stdout
    write_test(tmp_path, "careful")
    mended = pytest_in(tmp_path, "--mat-stress", "--mat-report", "report.json")
    assert mended.returncode == 0, mended.stdout
    assert {each["status"] for each in json.loads((tmp_path / "report.json").read_text())["items"]} == {"certified", "replayed"}


@pytest.mark.nightly
def test_a_recording_answers_in_the_place_of_servers_until_the_program_does_something_else(tmp_path: Path) -> None:
    """A server that starts late is told what the recording answered for it: else a fixed agent would look in vain."""
    write_test(tmp_path, "forgetful", tape="external")
    searched = pytest_in(tmp_path, "--mat-stress")
    assert "cost 4" in searched.stdout, searched.stdout
    [replay] = (tmp_path / "mat_replays").glob("*.mat.json")
    (tmp_path / "conftest.py").write_text("import os\nos.environ['NO_SERVER'] = '1'\n")
    strict = pytest_in(tmp_path, "--mat-replay", str(replay), hash_seed="7")
    assert strict.returncode == 1
    assert "refund had the same effect" in strict.stdout, strict.stdout
    (tmp_path / "conftest.py").unlink()
    write_test(tmp_path, "looking", tape="external")
    mended = pytest_in(tmp_path, hash_seed="7")
    assert mended.returncode == 0, mended.stdout
    assert "2 passed" in mended.stdout


@pytest.mark.nightly
def test_a_program_that_a_module_makes_once_keeps_nothing_from_run_to_run(tmp_path: Path) -> None:
    made = command("careless", tmp_path / "ledger")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_case.py").write_text(
        "import pytest\nfrom mat.adapters import program\n"
        f"AGENT = program({made!r})\n\n"
        "@pytest.mark.mat(budget=1)\ndef test_refund(mat_run):\n    assert AGENT.run('A17').code == 0\n"
    )
    done = pytest_in(tmp_path, "--mat-stress", "--mat-report", "report.json")
    assert "AGENT" not in (tmp_path / "report.json").read_text(), done.stdout


def test_a_proxy_of_a_run_loads_nothing_of_a_run() -> None:
    ask = "import sys; sys.argv = ['mat', 'mcp-proxy']; import mat.__main__, mat.adapters.mcp_proxy; print(*sys.modules)"
    environment = {**os.environ, "MAT_RUN": "somewhere"}
    done = subprocess.run([sys.executable, "-c", ask], env=environment, capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split())
    assert "mat.adapters.mcp_proxy" in loaded
    assert loaded.isdisjoint({"mat.harness.recorder", "mat.boundary.calls", "pydantic", "http.server", "asyncio", "mat.report"})


def test_a_server_may_need_an_api_that_the_run_serves_in_the_middle_of_a_call(
    agent: Callable[..., AgentProgram], api: str
) -> None:
    with mat.run() as run:
        assert agent("calling", http={"API": api}).run("A17").stdout == "200\n"
    assert [each.action.kind for each in run.trace[:-1]] == ["tool_call", "tool_call"]
    assert "refunds" in run.trace[1].action.name


def test_a_second_delivery_has_an_id_of_its_own_and_the_client_hears_of_one(
    agent: Callable[..., AgentProgram], ledger: Path
) -> None:
    with mat.run(schedule=[fault("service.duplicate", "main/service:refund#1")], operators=CATALOG):
        assert agent("careless").run("A17").stdout == "refunded A17\n"
    assert refunds(ledger) == ["A17", "A17"]
