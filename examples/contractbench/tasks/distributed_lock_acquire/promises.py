"""The contracts on traces of this task: the lock waited for, its latest lease in time and as it came, its fencing number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import mat
from mat.monitor.contract import Violated
from mat_contracts.observation import backoff_respected, compliant, exchange, expected, no_shortcut, required

ACQUIRE, WRITE = "PUT /locks/{lock}", "PUT /shards/{shard}"
GRANTS = r"/locks/[^/]+(/renew|/break)?$"
ISSUES = (
    mat.artifact.issue("lock_token", at="body.lock_token", expires_in="body.expires_in", supersedes=True, when={"url": GRANTS}),
)  # fmt: skip
CONSUMES = (
    mat.artifact.consume("lock_token", at="headers.lock-token", when={"url": r"/shards/|/renew$"}),
    mat.artifact.consume("lock_token", at="headers.lock-token", when={"url": r"/locks/", "method": "DELETE"}),
)


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    values = [expected(f"PUT /shards/{name}", {"body.value": value}) for name, value in given["shards"].items()]
    return [
        compliant("lock_token"),
        backoff_respected(ACQUIRE, statuses=(423,)),
        no_shortcut("POST /locks/{lock}/break"),
        required(ACQUIRE, "body.owner", label="WRONG_VALUE"),
        expected(ACQUIRE, {"body.owner": given["owner"], "path.lock": given["lock"]}),
        expected(["POST /locks/{lock}/renew", "DELETE /locks/{lock}"], {"path.lock": given["lock"]}),
        required(WRITE, "headers.fencing-token"),
        required(WRITE, "body.value", label="WRONG_VALUE", id="a value in every write"),
        expected(WRITE, {"path.shard": list(given["shards"])}),
        *values,
        _under_the_lock(frozenset(given["shards"])),
    ]


class _Lock(NamedTuple):
    fence: int = 0
    """The number of the latest grant."""
    released: bool = False
    written: tuple[str, ...] = ()


def _under_the_lock(shards: frozenset[str]) -> mat.Contract:
    def finish(state: _Lock) -> Violated | None:
        if shards <= set(state.written) and not state.released:
            return Violated(
                "everything is written, but the lock is still held", label="MISSING_CONSTRAINT", repair="release it"
            )
        return None

    @mat.trace_contract(start=_Lock(), finish=finish, on="tool_call", id="under the lock", label="EXPIRED_BEFORE_USE")
    def held(state: _Lock, record: mat.Record) -> _Lock | Violated:
        """Writes carry the latest fencing number, nothing is sent with a lock that was released, and it is released."""
        found = exchange(record)
        if found is None:
            return state
        if found.headers.get("lock-token") and state.released:
            return Violated(f"{found.path} was requested with a lock that had been released", state=state)
        if found.method == "DELETE" and found.succeeded:
            return state._replace(released=True)
        said = found.reply.get("fencing_token") if isinstance(found.reply, Mapping) else None
        if isinstance(said, int) and found.succeeded:
            return state._replace(fence=said, released=False)
        number = (found.headers.get("fencing-token") or str(state.fence)).strip()
        if found.path.startswith("/shards/") and number != str(state.fence):
            older = number.isdecimal() and int(number) < state.fence
            label = "VERSION_CONFLICT" if older else "WRONG_VALUE"
            return Violated(f"{number} is not the number of the latest grant", state=state, label=label)
        if found.path.startswith("/shards/") and found.succeeded:
            return state._replace(written=(*state.written, found.path.removeprefix("/shards/")))
        return state

    return held
