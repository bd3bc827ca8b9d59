"""The contracts on traces of this task: states, codes and tokens are whole, in time and of the sign-in they are sent for; no
code is used twice or comes from a foreign answer; the developer login is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlsplit

import mat
from mat.boundary.handles import PREFIX
from mat.core.artifact import issued, used
from mat.core.damage import SHORTEST, damage
from mat.core.value import EMPTY, FrozenDict
from mat_contracts.observation import compliant, exchange, expected, no_shortcut, required, used_while_valid

TOKEN = {"url": r"/token$"}
CODE_MS = 8000
COMPLETE = "POST /sign-ins/{workspace}/complete"
ISSUES = (
    mat.artifact.issue("state", at="body.sign_ins.*.state", expires_in="expires_in", when={"url": r"/sign-ins$"}),
    mat.artifact.issue(
        "code", at="headers.location", pattern=r"[?&]code=([^&]+)", ttl_ms=CODE_MS, when={"url": r"/authorize\?"}
    ),
    mat.artifact.issue("access_token", at="body.access_token", expires_in="body.expires_in", when={"url": r"/token(\?|$)"}),
)
CONSUMES = (
    mat.artifact.consume("client_secret", at="form.client_secret", when=TOKEN),
    mat.artifact.consume("code", at="form.code", when=TOKEN),
    mat.artifact.consume("access_token", at="headers.authorization", when={"url": r"/complete$"}),
    mat.artifact.consume("state", at="json.state", when={"url": r"/complete$"}, required=False),
)


def known(given: Mapping[str, Any]) -> dict[str, str]:
    return {"client_secret": given["client_secret"]}


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    client = {"client_id": given["client_id"], "redirect_uri": given["redirect_uri"]}
    asked = {"response_type": "code", "scope": given["scope"], **client}
    query = {f"query.{name}": value for name, value in asked.items()}
    form = {f"body.{name}": value for name, value in {"grant_type": "authorization_code", **client}.items()}
    return [
        compliant(["client_secret", "code"], on="POST /token"),
        compliant(["access_token", "state"], on=COMPLETE),
        used_while_valid("state", on="GET /authorize"),
        required("GET /authorize", [*query, "query.state"]),
        expected("GET /authorize", query),
        required("POST /token", form),
        expected("POST /token", form),
        required(COMPLETE, "body.state"),
        no_shortcut("GET /dev/token"),
        state_in_query(),
        each_for_its_own(),
    ]


def state_in_query() -> mat.Contract:
    """A state is what was listed after the query was decoded; a bare plus sign in it is a blank to whoever reads a form."""

    @mat.trace_contract(start=(), id="oauth.state_in_query", label="MUTATED_TOKEN")
    def kept(states: tuple[str, ...], record: mat.Record) -> tuple[str, ...] | mat.Violated:
        found = exchange(record)
        if found is None:
            return states
        if found.path == "/sign-ins" and found.status == 200:
            return tuple(item["state"] for item in found.reply["sign_ins"])
        sent = re.search(r"[?&]state=([^&]*)", str(record.arguments["url"])) if found.path == "/authorize" else None
        state = unquote_plus(sent[1]) if sent else ""
        if not state or PREFIX in state or state in states:
            return states
        clipped = len(state) >= SHORTEST and any(item.startswith(state) for item in states)
        wrapped = sent is not None and unquote_plus(re.sub(r"\s+", "", sent[1])) in states
        known = wrapped or any(damage(item, state, sure=True) is not None for item in states)
        label = "OTHER" if clipped else "MUTATED_TOKEN" if known else "WRONG_VALUE"
        return mat.Violated("the state is none of those listed", state=states, label=label)

    return kept


def each_for_its_own() -> mat.Contract:
    """Codes are used once and come from answers that bear the state that was sent; states and tokens go back to their own
    sign-in.
    """

    @mat.trace_contract(start=EMPTY, id="oauth.each_for_its_own", label="WRONG_VALUE")
    def own(of: FrozenDict, record: mat.Record) -> FrozenDict | mat.Violated:
        found = exchange(record)
        if found is None:
            return of
        mine = [of[item.id] for item in used(record) if item.id in of and (item.name == "state" or "complete" in found.path)]
        if found.path == "/sign-ins" and found.status == 200:
            names = {item["state"]: item["workspace"] for item in found.reply["sign_ins"]}
            ids = {item.id: found.reply["sign_ins"][int(item.at.split(".")[2])]["workspace"] for item in issued(record)}
            return FrozenDict({**of, **ids, **{f"state {state}": name for state, name in names.items()}})
        if found.path == "/authorize" and found.status == 302:
            answer = parse_qs(urlsplit(found.reply_headers["location"]).query).get("state", [""])[0]
            is_own = bool(mine) and of.get(f"state {answer}") == mine[-1]
            return FrozenDict({**of, **{item.id: mine[-1] if is_own else "foreign" for item in issued(record)}})
        if found.path == "/token" and found.method == "POST":
            return _exchanged(of, record, found.status)
        workspace = found.path.split("/")[2] if found.path.endswith("/complete") else ""
        if workspace and any(name != workspace for name in mine):
            return mat.Violated("a state or a token of another sign-in", state=of)
        return of

    return own


def _exchanged(of: FrozenDict, record: mat.Record, status: int) -> FrozenDict | mat.Violated:
    """A code is sent: what it was for, and what the token is for that it is exchanged for."""
    codes = [item.id for item in used(record) if item.name == "code" and item.intact]
    if not codes:
        return of
    name = of.get(codes[-1], "")
    if name == "foreign":
        return mat.Violated("the code came with a state that was not sent", state=of)
    if name == "spent":
        return mat.Violated("a code is used once", state=of, label="EXPIRED_BEFORE_USE")
    if status != 200:
        return of
    return FrozenDict({**of, **{item.id: name for item in issued(record)}, codes[-1]: "spent"})
