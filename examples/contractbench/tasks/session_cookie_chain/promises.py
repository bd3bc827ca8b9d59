"""What a trace of this task is judged by: the cookies that were set last go back whole and in time, steps are taken in their
order, and what is ordered is what was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import mat
from mat.core.artefact import FOREIGN, lacking
from mat_contracts.observation import bytes_preserved, compliant, exchange, expected, required

STEPS = ("login", "cart", "address", "quote", "order")
DAMAGES = ("truncated", "wrapped", "reencoded", "reordered", "other")


def _max_age_ms(cookie: str, reply: Any) -> int | None:
    found = re.search(r"Max-Age=(\d+)", reply["headers"]["set-cookie"])
    return None if found is None else int(found[1]) * 1000


ISSUES = tuple(
    mat.issue(name, at="headers.set-cookie", pattern=rf"^{name}=([^;]+)", ttl_ms=_max_age_ms, supersedes=True)
    for name in ("session", "checkout")
)
CONSUMES = (mat.consume("password", at="form.password", when={"url": r"/login$"}, required=False),)


def known(given: Mapping[str, Any]) -> dict[str, str]:
    return {"password": given["password"]}


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    return [
        compliant(["session", "checkout"]),
        bytes_preserved("password", labels=dict.fromkeys(DAMAGES, "WRONG_VALUE")),
        password_known(),
        required("POST /login", ["body.username", "body.password"]),
        expected("POST /login", {"body.username": given["username"]}),
        required("PUT /cart", ["body.article", "body.quantity"]),
        expected("PUT /cart", {"body.article": given["article"], "body.quantity": given["quantity"]}),
        required("PUT /address", "body.street"),
        expected("PUT /address", {"body.street": given["street"]}),
        required("POST /order", "body.total"),
        chain_kept(),
    ]


def password_known() -> mat.Contract:
    @mat.step_contract(on="tool_call", id="login.password", label="WRONG_VALUE")
    def known_one(record: mat.Record) -> bool:
        return not any(gap.name == "password" and gap.what == FOREIGN for gap in lacking(record))

    return known_one


class Chain(NamedTuple):
    """How many steps were done, and the total that was quoted."""

    done: int = 0
    total: str = ""


def chain_kept() -> mat.Contract:
    """Each step bears the cookies it needs and follows the one before; the total is the one that was quoted."""

    @mat.trace_contract(start=Chain(), id="shop.chain", label="MISSING_CONSTRAINT")
    def kept(chain: Chain, record: mat.Record) -> Chain | mat.Violated:
        found = exchange(record)
        step = found.path.strip("/") if found is not None else ""
        if found is None or step not in STEPS:
            return chain
        at = STEPS.index(step)
        new = Chain(1 if at == 0 else max(chain.done, at + 1), found.said.get("total", chain.total)) if found.succeeded else chain
        cookies = re.findall(r"(\w+)=[^;]", found.headers.get("cookie", ""))
        needed = {"login": (), "order": ("session", "checkout")}.get(step, ("session",))
        if missing := [name for name in needed if name not in cookies]:
            return mat.Violated(f"no cookie {', '.join(missing)}", state=new, label="MISSING_TOKEN")
        if at > chain.done:
            return mat.Violated(f"{STEPS[chain.done]} comes before {step}", state=new)
        if step == "order" and found.value("body.total") not in (None, "", chain.total):
            return mat.Violated("another total than the one quoted", state=new, label="WRONG_VALUE")
        return new

    return kept
