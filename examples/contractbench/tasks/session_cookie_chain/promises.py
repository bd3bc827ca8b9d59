"""The contracts on traces of this task: the cookies that were set last go back whole and in time, steps are taken in their
order, and what is ordered is what was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import mat
from mat.boundary.handles import PREFIX
from mat.core.artifact import FOREIGN, lacking
from mat.core.damage import SHORTEST, damage
from mat_contracts.observation import bytes_preserved, exchange, expected, required, used_while_valid

STEPS = ("login", "cart", "address", "quote", "order")
DAMAGES = ("truncated", "wrapped", "reencoded", "reordered", "other")


def _max_age_ms(cookie: str, reply: Any) -> int | None:
    found = re.search(r"Max-Age=(\d+)", reply["headers"]["set-cookie"])
    return None if found is None else int(found[1]) * 1000


ISSUES = tuple(
    mat.artifact.issue(name, at="headers.set-cookie", pattern=rf"^{name}=([^;]+)", ttl_ms=_max_age_ms, supersedes=True)
    for name in ("session", "checkout")
)
CONSUMES = (mat.artifact.consume("password", at="form.password", when={"url": r"/login$"}, required=False),)


def known(given: Mapping[str, Any]) -> dict[str, str]:
    return {"password": given["password"]}


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    return [
        used_while_valid(["session", "checkout"]),
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
    """How many steps were done, the total that was quoted, and the cookies as they were set."""

    done: int = 0
    total: str = ""
    set: tuple[tuple[str, str], ...] = ()


def chain_kept() -> mat.Contract:
    """Each step bears the cookies it needs, whole, and follows the one before; the total is the one that was quoted."""

    @mat.trace_contract(start=Chain(), id="shop.chain", label="MISSING_CONSTRAINT")
    def kept(chain: Chain, record: mat.Record) -> Chain | mat.Violated:
        found = exchange(record)
        step = found.path.strip("/") if found is not None else ""
        if found is None or step not in STEPS:
            return chain
        at, new, problems = STEPS.index(step), chain, []
        if found.succeeded:
            sets = tuple(re.findall(r"^(\w+)=([^;]+)", found.reply_headers.get("set-cookie", "")))
            new = Chain(1 if at == 0 else max(chain.done, at + 1), found.reply.get("total", chain.total), (*chain.set, *sets))
        cookies = dict(re.findall(r"(\w+)=([^;]*)", found.headers.get("cookie", "")))
        for name in {"login": (), "order": ("session", "checkout")}.get(step, ("session",)):
            problems += _cookie(name, cookies.get(name, ""), [text for known, text in chain.set if known == name])
        if at > chain.done and not problems:
            problems.append(("MISSING_CONSTRAINT", f"{STEPS[chain.done]} comes before {step}"))
        if step == "order" and found.value("body.total") not in (None, "", chain.total):
            problems.append(("WRONG_VALUE", "another total than the one quoted"))
        if not problems:
            return new
        (label, said), *rest = problems
        return mat.Violated(said, state=new, label=label, more=tuple(mat.Violated(text, label=of) for of, text in rest))

    return kept


def _cookie(name: str, value: str, known: list[str]) -> list[tuple[str, str]]:
    """What is wrong with a cookie's value, which a client has to leave as it is; whether it is too old is judged elsewhere."""
    if not value.strip():
        return [("MISSING_TOKEN", f"no cookie {name}")]
    if value in known or PREFIX in value:
        return []
    clipped = len(value) >= SHORTEST and any(text.startswith(value) for text in known)
    like_one = any(damage(text, value, sure=True) is not None for text in known)
    label = "OTHER" if clipped else "MUTATED_TOKEN" if like_one else "WRONG_VALUE"
    return [(label, f"the cookie {name} differs from the one that was set")]
