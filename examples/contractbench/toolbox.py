"""The tools that an agent has: HTTP requests and waiting. Each use is a step, and takes a second of virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from json import dumps
from typing import Any
from urllib.parse import urlsplit

import httpx

import mat

from .clock import Clock
from .desk import Levers

READS = ("GET", "HEAD", "OPTIONS")
SECONDS = 1.0
"""Virtual time that one step of the agent takes before its request goes out."""


class OutOfBudget(Exception):  # noqa: N818
    """The steps or the virtual time of the task are used up: the episode ends here."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: `headers` in lower case, `body` as data where it is JSON, else as text."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def ok(self) -> bool:
        return 0 < self.status < 400

    def retry_after(self, otherwise: float = 0.0) -> float:
        """Seconds that the server asks to wait."""
        return float(self.headers.get("retry-after", otherwise))

    def __getitem__(self, name: str) -> Any:
        """A field of the body."""
        return self.body[name]


class Tools:
    """HTTP and waiting, within the budgets of a task. This, and the instruction, is all an agent gets.

    `calls` counts the uses of tools; `trace` is the SHA-256 of all requests and replies so far. Budgets: steps, and virtual
    seconds since the episode began.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        *,
        clock: Clock,
        steps: int,
        seconds: float,
        levers: Levers,
        issues: tuple[Any, ...] = (),
        consumes: tuple[Any, ...] = (),
    ) -> None:
        self._client, self._clock, self._levers = client, clock, levers
        self._steps, self._seconds = steps, seconds
        self.calls = 0
        self.trace = sha256()
        self._quiet: dict[str, float] = {}
        self.handles = mat.artifact.handles()
        options: dict[str, Any] = {"issues": issues, "consumes": consumes, "handles": self.handles}
        options["errors"] = "builtin"  # the toolbox tells its agents of lost requests as OSError, not as its HTTP client does
        self._read = mat.tool(self._send, name="http_read", effect="read", **options)
        self._write = mat.tool(self._send, name="http_write", effect="write", impact="high", **options)
        self._wait = mat.tool(clock.sleep, name="wait", effect="none", perturb=False)

    async def http(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        json: object = None,
        form: Mapping[str, str] | None = None,
        text: str | None = None,
    ) -> Reply:
        """One request. At most one of json, form and text is its body; redirects are not followed."""
        await self._step()
        if sum(item is not None for item in (json, form, text)) > 1:
            raise ValueError("a request has one body: json, form or text")
        await self._back_off(url)
        port = self._read if method in READS else self._write
        said = await port(
            method=method, url=url, headers=dict(headers or {}), json=json, form=None if form is None else dict(form), text=text
        )
        if not isinstance(said, dict) or not {"status", "headers", "body"} <= said.keys():
            raise ConnectionError(f"{method} {url}: no whole reply came back")
        return Reply(said["status"], said["headers"], said["body"])

    async def _back_off(self, url: str) -> None:
        """With the lever `backoff`, a request goes out once the wait that was asked for at its path is over."""
        if self._levers.backoff and self._quiet:
            path = urlsplit(self.handles.resolve(url) if url in self.handles else url).path
            await self._clock.sleep(max(0.0, self._quiet.get(path, 0.0) - self._clock.now()))

    async def wait(self, seconds: float) -> None:
        """Let virtual time pass."""
        await self._step()
        await self._wait(seconds=seconds)

    def now(self) -> float:
        """Virtual seconds since the episode began, as an agent's own clock shows them."""
        return self._clock.now()

    async def _step(self) -> None:
        if self.calls >= self._steps or self._clock.now() >= self._seconds:
            raise OutOfBudget
        self.calls += 1
        await self._clock.sleep(SECONDS)

    async def _send(
        self,
        method: str,
        url: str,
        headers: dict[str, str] | None = None,
        json: object = None,
        form: dict[str, str] | None = None,
        text: str | None = None,
    ) -> dict[str, Any]:
        """One HTTP request: {status, headers, body}. Bytes go out as they are, but for what no HTTP message can hold."""
        self._client.cookies.clear()  # an agent that wants a cookie sent sends it
        try:
            response = await self._client.request(
                method, _folded(url, "%0A"), headers={name: _folded(item, " ") for name, item in (headers or {}).items()},
                json=json, data=form, content=text,
            )  # fmt: skip
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeEncodeError) as error:  # never leaves the client
            return {"status": 0, "headers": {}, "body": f"no request was sent: {error}"}
        if "retry-after" in response.headers:
            self._quiet[urlsplit(url).path] = self._clock.now() + float(response.headers["retry-after"])
        body: Any = response.text
        if "json" in response.headers.get("content-type", "") and body:
            body = response.json()
        shown = {name: value for name, value in response.headers.items() if name not in ("content-length", "date", "server")}
        said = {"status": response.status_code, "headers": shown, "body": body}
        asked = [method, url, headers, json, form, text, self._clock.now()]
        self.trace.update(dumps([asked, said], sort_keys=True).encode())
        return said


def _folded(text: str, instead: str) -> str:
    """A text without line breaks, which neither a URL nor a header can hold."""
    return text.replace("\r\n", instead).replace("\n", instead).replace("\r", instead)
