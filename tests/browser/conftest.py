"""A real Chromium, driven over its DevTools protocol by two pipes (no driver, port or package is needed), and what it is shown.

The tests of this folder skip where there is none: install it (Debian: `apt-get install chromium`), or name one in MAT_CHROMIUM.
"""

from __future__ import annotations

import base64
import json
import os
import selectors
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import mat
from mat.boundary.catalog import operator
from mat.boundary.effect import Raise
from mat.core.campaign import Certificate, Counterexample, Covered, ItemResult, Stability
from mat.core.curve import schedule_result
from mat.core.errors import Blocked
from mat.core.run import Run
from mat.govern.mediator import Governance
from mat.measure.governance import governed_row
from mat.measure.regression import Regression, compare
from mat.measure.robustness import CurveRow
from mat.measure.rows import row_of
from mat.measure.suite import Cover, candidates, select
from mat.report.build import build
from mat.report.document import Document
from mat.report.page import Traced, render, trace_page

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_PATIENCE_S = 60.0
"""Until a browser that does not answer is given up."""
_KEYS = {
    "ArrowDown": 40, "ArrowUp": 38, "PageDown": 34, "PageUp": 33, "Home": 36, "End": 35, "Enter": 13, "Escape": 27, "Tab": 9,
}  # fmt: skip


class Chromium:
    """The browser. Commands go out on its descriptor 3 and answers come in on 4, each ended by a zero byte."""

    def __init__(self, path: str, profile: str) -> None:
        there, self._out = os.pipe()
        self._in, here = os.pipe()

        def give() -> None:  # in the child: its ends of the pipes become 3 and 4
            one, other = os.dup(there), os.dup(here)
            os.dup2(one, 3)
            os.dup2(other, 4)

        command = [
            path, "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={profile}", "--no-first-run", "--disable-gpu",
            "--no-default-browser-check", "--disable-extensions", "--disable-background-networking", "--disable-dev-shm-usage",
            "--force-color-profile=srgb", "--hide-scrollbars", *(["--no-sandbox"] if os.geteuid() == 0 else []), "about:blank",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command, preexec_fn=give, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(there)
        os.close(here)
        self._buffer, self._last = b"", 0
        self._events: list[dict[str, Any]] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._in, selectors.EVENT_READ)

    def send(self, method: str, session: str = "", **parameters: Any) -> Any:
        """One command, and its answer. Events that come in between are kept."""
        self._last += 1
        number = self._last
        message = {"id": number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        while True:
            answer = self._read()
            if answer.get("id") == number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]
            self._events.append(answer)

    def events(self, session: str) -> list[dict[str, Any]]:
        """The events of one page so far, taken away."""
        found = [event for event in self._events if event.get("sessionId") == session]
        self._events = [event for event in self._events if event.get("sessionId") != session]
        return found

    def until(self, session: str, method: str) -> None:
        """Until a page reports something."""
        while not any(event.get("sessionId") == session and event["method"] == method for event in self._events):
            self._events.append(self._read())

    def _read(self) -> dict[str, Any]:
        until = time.monotonic() + _PATIENCE_S
        while b"\0" not in self._buffer:
            if not self._selector.select(timeout=until - time.monotonic()):
                raise AssertionError("the browser does not answer")
            found = os.read(self._in, 1 << 20)
            if not found:
                raise AssertionError("the browser has ended")
            self._buffer += found
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def close(self) -> None:
        try:
            self.send("Browser.close")
            self._process.wait(timeout=20)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._selector.close()
        os.close(self._in)
        os.close(self._out)


class Page:
    """One tab with a page open, and everything it complained of."""

    def __init__(self, browser: Chromium, *, width: int = 1400, height: int = 1000) -> None:
        self._browser = browser
        self._target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.send("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self._complaints: list[str] = []
        self.requests: list[str] = []
        self.resize(width, height)

    def send(self, method: str, **parameters: Any) -> Any:
        return self._browser.send(method, session=self._session, **parameters)

    def resize(self, width: int, height: int) -> None:
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def open(self, path: Path, fragment: str = "") -> Page:
        """Load a file and run its script to the end."""
        self.send("Page.navigate", url=path.resolve().as_uri() + fragment)
        self._browser.until(self._session, "Page.loadEventFired")
        return self

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression; one that throws fails the test."""
        found = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, allowUnsafeEvalBlockedByCSP=False
        )
        if "exceptionDetails" in found:
            raise AssertionError(f"{expression}: {found['exceptionDetails'].get('exception', {}).get('description')}")
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until a condition holds; it is looked at before each frame is drawn."""
        done = self.run(
            f"""new Promise((resolve) => {{
                const end = performance.now() + {_PATIENCE_S * 500};
                const look = () => {{
                    if ({condition}) resolve(true);
                    else if (performance.now() > end) resolve(false);
                    else setTimeout(look, 5);
                }};
                look();
            }})"""
        )
        assert done, f"never came true: {condition}"

    def frame(self) -> None:
        """Until what was asked for is drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def press(self, key: str, *, shift: bool = False) -> None:
        """A key as a person presses it."""
        code = _KEYS.get(key, ord(key.upper()) if len(key) == 1 else 0)
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        modifiers = 8 if shift else 0
        common = {"key": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self.send("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", **common)
        self.frame()

    def type(self, text: str) -> None:
        self.send("Input.insertText", text=text)
        self.frame()

    def click(self, selector: str) -> None:
        """A click in the middle of an element, by the mouse; what lies over it takes the click instead."""
        at = self.run(
            f"""(() => {{
                const node = document.querySelector({json.dumps(selector)});
                node.scrollIntoView({{ block: 'center' }});
                const box = node.getBoundingClientRect();
                return [box.x + box.width / 2, box.y + box.height / 2];
            }})()"""
        )
        self.click_at(*at)

    def click_at(self, x: float, y: float) -> None:
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.send(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="none" if kind == "mouseMoved" else "left", clickCount=1
            )
        self.frame()

    def choose(self, selector: str, value: str) -> None:
        """An option of a select, by its value or its text."""
        assert self.run(
            f"""(() => {{
                const node = document.querySelector({json.dumps(selector)}), wanted = {json.dumps(value)};
                const option = [...node.options].find((item) => item.value === wanted || item.text === wanted);
                if (!option) return false;
                node.value = option.value;
                node.dispatchEvent(new Event('input', {{ bubbles: true }}));
                node.dispatchEvent(new Event('change', {{ bubbles: true }}));
                return true;
            }})()"""
        ), f"{selector} offers no {value!r}"
        self.frame()

    def dark(self, on: bool) -> None:
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if on else "light"}])
        self.frame()

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, exceptions, and whatever was asked for from elsewhere."""
        self.run("1")
        for event in self._browser.events(self._session):
            method, parameters = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                self._complaints.append(json.dumps(parameters["exceptionDetails"])[:2000])
            elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
                self._complaints.append(json.dumps(parameters["args"])[:2000])
            elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                self._complaints.append(parameters["entry"]["text"])
            elif method == "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            elif method == "Page.javascriptDialogOpening":
                self._complaints.append(f"dialog: {parameters['message']}")
        return self._complaints

    def forgive(self) -> None:
        """Forget the complaints so far: the test has looked at them."""
        self._complaints.clear()

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def pdf(self) -> bytes:
        return base64.b64decode(self.send("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])

    def close(self) -> None:
        self._browser.send("Target.closeTarget", targetId=self._target)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    if os.name != "posix":
        pytest.skip("the browser is driven over inherited pipes, which this system does not have")
    path = os.environ.get("MAT_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.skip("no Chromium: apt-get install chromium, or name one in MAT_CHROMIUM")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Chromium(path, profile)
        try:
            browser.send("Browser.getVersion")
            yield browser
        finally:
            browser.close()


@pytest.fixture
def tab(chromium: Chromium) -> Iterator[Page]:
    """A tab of its own; a test that leaves a complaint behind fails."""
    page = Page(chromium)
    yield page
    found = page.complaints()
    page.close()
    assert found == [], found


@pytest.fixture
def opened(tab: Page, tmp_path: Path) -> Callable[..., Page]:
    """Write a page and open it."""

    def open_(html: str, fragment: str = "") -> Page:
        path = tmp_path / "page.html"
        path.write_text(html, encoding="utf-8", errors="strict")
        return tab.open(path, fragment)

    return open_


# -- what is shown ----------------------------------------------------------------------------------------------------

ITEM = "tests/test_desk.py::test_desk_answers[order 7]"
LOST = operator("service.lost_ack", lambda call, reply, stream: Raise("timeout"), phase="after")
OUTAGE = operator("service.outage", lambda call, reply, stream: Raise("connection"), grid=[{"magnitude": 2}])


@mat.tool(effect="write", impact="high")
def refund(order: str, amount: int) -> dict[str, object]:
    return {"order": order, "paid": amount}


@mat.tool
def lookup(email: str) -> dict[str, str]:
    return {"order": "A-777", "email": email}


@mat.retriever("kb")
def articles(query: str) -> list[mat.Passage]:
    return [mat.Passage(id="kb-1", text="Refunds take two days.\nSay so."), mat.Passage(id="kb-2", text="Parcels are tracked.")]


@mat.trace_contract(start=0, id="refund.once")
def once_only(count: int, record: mat.Record) -> object:
    if record.action.name != "refund" or record.effected == "no":
        return None
    return mat.Violated("refunded twice", repair="send an idempotency key", state=count + 1, since=1) if count else 1


@mat.step_contract(on="tool_call", id="refund.small", severity="soft")
def small_refunds(record: mat.Record) -> bool:
    return record.action.arguments.get("amount", 0) <= 20


def desk() -> None:
    notes = mat.memory({}, name="notes")
    with mat.agent("triage", role="planner"):
        email = mat.untrusted("Order A-777 arrived broken. Please refund it.", channel="email")
        found = articles(email)
        notes["case"] = "broken parcel"
        mat.claim("Refunds take two days", supports=[found[0]])
        mat.delegate("mailer", task="refund order A-777")
    with mat.agent("mailer", role="support"):
        reason = notes["case"]
        order = lookup("ann@example.org")["order"]
        for _ in range(3):
            try:
                refund(order, 25)
                break
            except (TimeoutError, ConnectionError):
                mat.mitigate("retry")
            except Blocked:
                break
        mat.message("triage", f"done: {reason}")
        mat.finish("refunded")


def run_desk(schedule: Sequence[mat.spec.Perturbation] = (), **options: Any) -> Run:
    options = {"task": ITEM, **options}
    with mat.run([once_only, small_refunds], schedule=schedule, operators=[LOST, OUTAGE], **options) as run:
        desk()
    assert run.result is not None
    return run.result


@dataclass(frozen=True)
class Shown:
    """A whole report: its document, the nominal run, and a comparison with an earlier report."""

    document: Document
    nominal: Run
    regression: Regression
    suite: Cover

    @property
    def html(self) -> str:
        traces = [Traced.of(self.nominal, name="nominal")]
        return render(self.document, regression=self.regression, suite=self.suite, traces=traces)


@pytest.fixture(scope="session")
def shown() -> Shown:
    """Real runs of a small team, governed and not, searched and compared, as a report has them."""
    lost = mat.spec.perturbation("service.lost_ack", "mailer/service:refund#1", cost=4)
    nominal, broken = run_desk(), run_desk([lost])
    proven = Certificate(proven=True, bound=4, executions=212, states=250, seeds=(0,))
    found = Counterexample(verdict=broken.failures[0], run=broken, stability=Stability(runs=3, reproduced=3))
    other = "tests/test_desk.py::test_desk_is_fast"
    results = [
        ItemResult(
            id=ITEM, status="counterexample", counterexamples=(found,), certificate=proven, executions=215,
            replays=("mat_replays/x.mat.json",), category="refunds",
            covered=Covered(contracts=("refund.once",), idle=("idle",), interfaces=("service:refund", "retrieval:kb")),
        ),
        ItemResult(id=other, status="certified", certificate=proven, executions=9, category="speed", reason="searched"),
    ]  # fmt: skip
    rows = [row_of(run_desk(seed=seed), item=item, condition="nominal") for item in (ITEM, other) for seed in range(3)]
    rows.append(row_of(broken, item=ITEM, condition="fault"))
    policies = (("none", None), ("shield", Governance(rules=(no_refund_above_20,))))
    governed = [governed_row(run_desk(governance=policy), item=ITEM, variant=name) for name, policy in policies]
    executed = (schedule_result(nominal), schedule_result(broken))
    chains = (executed, executed[:1] * 2)
    curves = [
        CurveRow(item=item, budget=4, bound=4 if item == ITEM else 2, executed=executed, chains=chains)
        for item in (ITEM, other)
    ]
    document = build(results, rows, governed=governed, curves=curves)
    worse = [replace(row, success=False, outcome="fail", broken=("refund.once",)) for row in document.outcomes]
    return Shown(
        document=document,
        nominal=nominal,
        regression=compare(document.outcomes, worse),
        suite=select(candidates({"x.mat.json": found, "y.mat.json": found})),
    )


def no_refund_above_20(record: mat.Record) -> mat.policy.Block | None:
    return mat.policy.Block("too much") if record.action.arguments.get("amount", 0) > 20 else None


@pytest.fixture
def long_values() -> str:
    """A trace whose one reply is long, in characters and in entries."""

    @mat.tool
    def search(query: str) -> dict[str, object]:
        return {"text": "word " * 1000, "rows": list(range(300))}

    with mat.run([], task="long") as run, mat.agent("reader"):
        search("all")
    assert run.result is not None
    return trace_page(run.result)
