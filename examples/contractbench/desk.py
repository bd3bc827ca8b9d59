"""The common parts of the tasks' servers: a log with one label per request, issued artifacts, answers and refusals."""

from __future__ import annotations

import hmac
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from random import Random
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mat_contracts.observation import FAILURES, OTHER

from .clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One request as the server saw it. `label` is a failure label, or the name of a state of the protocol.

    at: virtual seconds. resource: what the request was about. detail: what the label is made of.
    """

    at: float
    method: str
    path: str
    status: int
    label: str
    resource: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def failure(self) -> str:
        """The failure label of this event, empty where it is a state."""
        return self.label if self.label in (*FAILURES, OTHER) else ""

    def data(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Issued:
    """An artifact and its validity. ttl_s: virtual seconds, None for unlimited."""

    value: str
    at: float
    ttl_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Levers:
    """Help that a stack can give its agents (seed 003, appendix A), each on or off.

    ttl: a field of each reply says when its artifacts expire. handles: agents get and pass on handles instead of
    artifacts. backoff: the client waits as Retry-After says before it sends the next request. note: what the retry
    after a failed episode sees: its label ("correct"), one of the other axis ("wrong"), or nothing ("").
    """

    ttl: bool = False
    handles: bool = False
    backoff: bool = False
    note: str = ""


class Desk:
    """The state of one server in one episode.

    `given`: the parameters of the instance. `rng`: for values that the server makes up; the same for the same task and seed.
    """

    def __init__(self, given: Mapping[str, Any], *, seed: str, clock: Clock, levers: Levers | None = None) -> None:
        self.given, self.clock = given, clock
        self.levers = Levers() if levers is None else levers
        self.rng = Random(f"server/{seed}")
        self.events: list[Event] = []
        self.issued: dict[str, list[Issued]] = {}
        self.seen: Counter[str] = Counter()
        self._fresh: list[str] = []
        self._key = self.rng.randbytes(32)

    def now(self) -> float:
        return self.clock.now()

    async def work(self, seconds: float) -> None:
        """Take this many virtual seconds for a request."""
        await self.clock.sleep(seconds)

    # -- artefacts --------------------------------------------------------------------------------------------------

    def token(self, length: int = 32, alphabet: str = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789") -> str:
        """Random characters."""
        return "".join(self.rng.choice(alphabet) for _ in range(length))

    def sign(self, text: str) -> str:
        """HMAC-SHA-256 of a text under the server's own key, in hexadecimal."""
        return hmac.new(self._key, text.encode(), sha256).hexdigest()

    def issue(self, name: str, value: str, ttl_s: float | None = None) -> str:
        """Issue an artifact. Several of one name may be valid at a time, each for its own time."""
        self.issued.setdefault(name, []).append(Issued(value, self.now(), ttl_s))
        self._fresh.append(name)
        return value

    def check(self, name: str, submitted: str | None, *, latest: bool = False) -> tuple[str, dict[str, Any]]:
        """(label, detail) of a submission; the label is "" if the artifact is intact and valid. Expiry comes before damage.

        A text that has nothing in common with any issued artifact is a wrong value, not a damaged one.

        latest: accept only the artifact of that name issued last; an older one counts as expired.
        """
        known = self.issued.get(name, [])
        if not submitted:
            return "MISSING_TOKEN", {}
        nearest = next((item for item in reversed(known) if item.value == submitted), None)
        if nearest is None and known:
            nearest = known[-1] if latest else max(known, key=lambda item: _alike(item.value, submitted))
        if nearest is None or _strange(nearest.value, submitted):
            return "WRONG_VALUE", {}
        now, replaced = self.now(), latest and nearest is not known[-1]
        over = nearest.ttl_s is not None and now >= nearest.at + nearest.ttl_s
        detail: dict[str, Any] = {"ttl_seconds": nearest.ttl_s, "time_of_attempt": now}
        if over or replaced:
            late = round(now - nearest.at - (nearest.ttl_s or 0.0), 3) if over else 0.0
            return "EXPIRED_BEFORE_USE", {**detail, "expired_by_seconds": late}
        return ("", {}) if nearest.value == submitted else (damage(nearest.value, submitted), detail)

    # -- answers ----------------------------------------------------------------------------------------------------

    def answer(
        self,
        request: Request,
        state: str,
        body: object = None,
        *,
        status: int = 200,
        resource: str = "",
        headers: Mapping[str, str] | None = None,
        media_type: str = "",
        holds: Mapping[str, str] | None = None,
        **detail: Any,
    ) -> Response:
        """An answer, logged as a state of the protocol. A text is sent unchanged, any other body as JSON.

        The lever `ttl` adds when the issued artifacts expire, in virtual seconds: under the names in `holds` (field of the
        body -> name of the artifact issued there last), and for all other artifacts under their own names.
        """
        if state in (*FAILURES, OTHER):
            raise ValueError(f"{state} is a failure label, no state: use refuse")
        told = {**{name: name for name in self._fresh if name not in (holds or {}).values()}, **(holds or {})}
        ends = {field: end for field, name in told.items() if (end := self._expiry(name)) is not None}
        if self.levers.ttl and ends and isinstance(body, dict):
            body = {**body, "expires": ends}
        return self._reply(request, state, body, status, resource, headers, media_type, detail)

    def refuse(
        self,
        request: Request,
        label: str,
        body: object = None,
        *,
        status: int,
        resource: str = "",
        headers: Mapping[str, str] | None = None,
        **detail: Any,
    ) -> Response:
        """A refusal, logged with its failure label. The body must not name the label: agents see what real services say."""
        if label == "TOOL_INPUT_TOO_LONG":
            label, detail = OTHER, {**detail, "said": label}
        if label not in (*FAILURES, OTHER):
            raise ValueError(f"{label} is no failure label: use answer")
        return self._reply(request, label, body, status, resource, headers, "", detail)

    def _reply(
        self,
        request: Request,
        label: str,
        body: object,
        status: int,
        resource: str,
        headers: Mapping[str, str] | None,
        media_type: str,
        detail: Mapping[str, Any],
    ) -> Response:
        self._fresh.clear()
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        event = Event(
            at=self.now(), method=request.method, path=path, status=status, label=label, resource=resource, detail=dict(detail)
        )  # fmt: skip
        self.events.append(event)
        if isinstance(body, str | bytes):
            return Response(body, status, dict(headers or {}), media_type or "text/plain")
        text = json.dumps({} if body is None else body)
        return Response(text, status, dict(headers or {}), media_type or "application/json")

    def _expiry(self, name: str) -> float | None:
        known = self.issued.get(name)
        return None if not known or known[-1].ttl_s is None else round(known[-1].at + known[-1].ttl_s, 3)

    # -- the application --------------------------------------------------------------------------------------------

    def app(self, routes: Sequence[Route]) -> Starlette:
        """The ASGI application. A request that no route takes is logged as the state NO_ROUTE."""

        async def lost(request: Request, error: Exception) -> Response:
            status = error.status_code if isinstance(error, HTTPException) else 500
            return self.answer(request, "NO_ROUTE", {"error": "not found"}, status=status)

        for route in routes:  # a line break that a wrapped URL has in its path belongs to the path
            route.path_regex = re.compile(route.path_regex.pattern, re.DOTALL)
        app = Starlette(routes=list(routes), exception_handlers={404: lost, 405: lost})
        app.router.redirect_slashes = False  # every request is logged, but a redirect by the router would not be
        return app


async def fields(request: Request) -> dict[str, Any]:
    """The fields of a body that is a JSON object or a form; empty for any other body."""
    body = await request.body()
    try:
        text = body.decode()
        if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            return dict(parse_qsl(text, keep_blank_values=True))
        data = json.loads(text)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def bearer(request: Request) -> str:
    """The token of an `Authorization: Bearer` header, empty without one (RFC 6750, 2.1)."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" else ""


def damage(issued: str, submitted: str) -> str:
    """The label of a submission that differs from the issued artifact, by comparison with the original.

    Either one end was truncated, or the query was reordered, which breaks its signature, or the text was changed otherwise.
    """
    tail = len(submitted) >= len(issued) // 2 and issued.endswith(submitted)
    if len(submitted) >= 16 and (issued.startswith(submitted) or tail):
        return "TOOL_INPUT_TOO_LONG"
    before, after = urlsplit(issued), urlsplit(submitted)
    same = (before.scheme, before.netloc, before.path) == (after.scheme, after.netloc, after.path)
    if same and before.query != after.query and sorted(before.query.split("&")) == sorted(after.query.split("&")):
        return "SIGNATURE_MISMATCH"
    return "MUTATED_TOKEN"


def _strange(issued: str, submitted: str) -> bool:
    """Whether a text and an artifact have no run of a few characters in common, ignoring case."""
    known = issued == submitted or damage(issued, submitted) == "TOOL_INPUT_TOO_LONG"
    return not known and not _runs(issued) & _runs(submitted)


def _alike(issued: str, submitted: str) -> tuple[int, int]:
    """The similarity of two texts, to find which of several artifacts was meant: by common runs, then by common prefix."""
    pairs = enumerate(zip(issued, submitted, strict=False))
    front = next((at for at, (left, right) in pairs if left != right), min(len(issued), len(submitted)))
    return len(_runs(issued) & _runs(submitted)), front


def _runs(text: str, length: int = 6) -> set[str]:
    """The runs of characters in the distinctive part of a text: the query of a URL, or its path without a query."""
    split = urlsplit(text) if "://" in text else None
    told = text if split is None else split.query or split.path
    folded = told.casefold()
    return {folded[at : at + length] for at in range(max(1, len(folded) - length + 1))}


def exact_url(request: Request) -> str:
    """The URL of a request byte for byte as received; request.url is rebuilt from decoded parts."""
    path = request.scope.get("raw_path") or request.url.path.encode()
    query = request.scope["query_string"].decode("latin-1")
    return f"{request.url.scheme}://{request.headers['host']}{path.decode('latin-1')}{'?' if query else ''}{query}"
