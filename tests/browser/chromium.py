"""A real Chromium, driven over its DevTools protocol by two pipes: no driver, port or package is needed."""

from __future__ import annotations

import base64
import json
import os
import selectors
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
NO_CHROMIUM = "no Chromium: apt-get install chromium, or name one in MAT_CHROMIUM"
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

    def until(self, session: str, method: str, **parameters: str) -> None:
        """Until a page reports something, with these parameters."""

        def reported(event: dict[str, Any]) -> bool:
            given = event["params"]
            return (event.get("sessionId"), event["method"], {**given, **parameters}) == (session, method, given)

        while not any(map(reported, self._events)):
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
        self.send("Page.setLifecycleEventsEnabled", enabled=True)
        self._complaints: list[str] = []
        self.requests: list[str] = []
        self.resize(width, height)

    def send(self, method: str, **parameters: Any) -> Any:
        return self._browser.send(method, session=self._session, **parameters)

    def resize(self, width: int, height: int) -> None:
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def open(self, path: Path, fragment: str = "") -> Page:
        """Load a file and run its script to the end."""
        loader = self.send("Page.navigate", url=path.resolve().as_uri() + fragment).get("loaderId")
        if loader is not None:  # where only the fragment is another one, nothing is loaded
            self._browser.until(self._session, "Page.lifecycleEvent", loaderId=loader, name="load")
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


def chromium_path() -> str | None:
    """The browser of this machine, or the one that MAT_CHROMIUM names."""
    return os.environ.get("MAT_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)


@contextmanager
def running(path: str) -> Iterator[Chromium]:
    """A browser with a profile of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Chromium(path, profile)
        try:
            browser.send("Browser.getVersion")
            yield browser
        finally:
            browser.close()
