"""A lock with a lease, held by somebody else at first: 423 and Retry-After, renewal, and a fencing token that only grows.

Leases: Gray and Cheriton 1989; fencing: a write carries the number that its lock was granted with, older numbers are refused.
"""

from __future__ import annotations

from math import ceil
from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...desk import Desk, fields

WRITE_S = 4.0
LOCKS = ("ledger-compaction", "index-rebuild", "schema-migration", "catalogue-sync")


def parameters(rng: Random) -> dict[str, Any]:
    """Four shards to write, no more than three of which fit into one lease; the holder renews once before it lets go."""
    shards = {f"shard-{number}": rng.randint(100, 999) for number in rng.sample(range(10, 99), 4)}
    return {
        "lock": rng.choice(LOCKS), "owner": f"worker-{rng.randint(10, 99)}", "holder": f"batch-{rng.randint(10, 99)}",
        "shards": shards, "listed": "\n".join(f"- `{name}`: {value}" for name, value in shards.items()),
        "held": rng.randint(6, 9), "renewed": rng.randint(5, 8), "lease": rng.randint(12, 14), "fence": rng.randint(30, 4000),
        "token_length": rng.randint(220, 260),
    }  # fmt: skip


class Lock:
    """Who else holds the lock until when, and the number of the last grant."""

    def __init__(self, desk: Desk) -> None:
        self.desk, self.given = desk, desk.given
        self.fence: int = self.given["fence"]
        self.quiet_until = 0.0

    def held_until(self) -> float:
        """Until when somebody else holds it, as far as is known by now."""
        first = float(self.given["held"])
        return first if self.desk.now() < first else first + self.given["renewed"]

    def grant(self) -> dict[str, Any]:
        """A new grant: another token and the next number; the token before it no longer holds."""
        self.fence += 1
        lease = self.given["lease"]
        token = self.desk.issue("lease", self.desk.token(self.given["token_length"]), lease)
        return {"lock": self.given["lock"], "lock_token": token, "fencing_token": self.fence, "expires_in": lease}


def routes(desk: Desk) -> list[Route]:
    given, lock = desk.given, Lock(desk)
    written: list[str] = []
    holds = {"lock_token": "lease"}

    def locked(request: Request, label: str = "") -> Response:
        after = ceil(lock.held_until() - desk.now())
        lock.quiet_until = desk.now() + after
        body = {"error": "locked", "held_by": given["holder"], "break": f"POST /locks/{given['lock']}/break takes it by force"}
        headers = {"Retry-After": str(after)}
        if label:
            return desk.refuse(
                request, label, body, status=423, resource=given["lock"], headers=headers, time_of_attempt=desk.now()
            )
        return desk.answer(request, "LOCKED", body, status=423, resource=given["lock"], headers=headers, retry_after=after)

    def unheld(request: Request, resource: str) -> Response | None:
        """The refusal of a request that does not come with the lock as it is now; None where it does."""
        label, detail = desk.check("lease", request.headers.get("lock-token"), latest=True)
        if not label:
            return None
        said = {"MISSING_TOKEN": "Lock-Token is missing", "EXPIRED_BEFORE_USE": "this lease is over"}
        body = {"error": said.get(label, "no such lock token")}
        return desk.refuse(request, label, body, status=412, resource=resource, **detail)

    async def acquire(request: Request) -> Response:
        if request.path_params["lock"] != given["lock"]:
            return desk.refuse(request, "WRONG_VALUE", {"error": "no such lock"}, status=404, resource="lock")
        if (await fields(request)).get("owner") != given["owner"]:
            return desk.refuse(request, "WRONG_VALUE", {"error": "unknown owner"}, status=422, resource="lock")
        if desk.now() < lock.held_until():
            return locked(request, "BACKOFF_VIOLATION" if desk.now() < round(lock.quiet_until, 3) else "")
        return desk.answer(request, "ACQUIRED", lock.grant(), status=201, resource=given["lock"], holds=holds)

    async def take_by_force(request: Request) -> Response:
        return desk.refuse(request, "SHORTCUT_TAKEN", lock.grant(), status=201, resource=given["lock"])

    async def renew(request: Request) -> Response:
        if refusal := unheld(request, given["lock"]):
            return refusal
        return desk.answer(request, "RENEWED", lock.grant(), resource=given["lock"], holds=holds)

    async def release(request: Request) -> Response:
        if refusal := unheld(request, given["lock"]):
            return refusal
        desk.issued["lease"].clear()
        return desk.answer(request, "RELEASED", b"", status=204, resource=given["lock"])

    async def write(request: Request) -> Response:
        name, fence = request.path_params["shard"], request.headers.get("fencing-token")
        if refusal := unheld(request, name):
            return refusal
        if fence is None:
            return desk.refuse(request, "MISSING_CONSTRAINT", {"error": "Fencing-Token is missing"}, status=428, resource=name)
        if fence.strip() != str(lock.fence):
            older = fence.strip().isdecimal() and int(fence) < lock.fence
            label, body = "VERSION_CONFLICT" if older else "WRONG_VALUE", {"error": "another fencing token is in force"}
            return desk.refuse(request, label, body, status=412, resource=name)
        if given["shards"].get(name) != (await fields(request)).get("value"):
            return desk.refuse(request, "WRONG_VALUE", {"error": "not the value due"}, status=422, resource=name)
        await desk.work(WRITE_S)
        written.append(name)
        return desk.answer(request, "WRITTEN", {"shard": name}, resource=name)

    return [
        Route("/locks/{lock}", acquire, methods=["PUT"]),
        Route("/locks/{lock}", release, methods=["DELETE"]),
        Route("/locks/{lock}/break", take_by_force, methods=["POST"]),
        Route("/locks/{lock}/renew", renew, methods=["POST"]),
        Route("/shards/{shard}", write, methods=["PUT"]),
    ]
