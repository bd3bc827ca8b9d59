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

from mat_contracts.observation import OTHER, SEVERITY

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


Problem = tuple[str, int, str]
"""(label, status, what is said) of what is wrong with a request; no label where nothing is."""


def known(label: str) -> str:
    """A label as it is ranked."""
    return label if label in SEVERITY else OTHER


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
    holds = {"lock_token": "lease"}

    def locked(request: Request, *, label: str = "") -> Response:
        after = ceil(max(lock.held_until(), lock.quiet_until if label else 0.0) - desk.now())
        lock.quiet_until = round(desk.now() + after, 3)
        body = {"error": "locked", "held_by": given["holder"], "break": f"POST /locks/{given['lock']}/break takes it by force"}
        headers = {"Retry-After": str(after)}
        if label:
            return desk.refuse(
                request, label, body, status=423, resource=given["lock"], headers=headers, time_of_attempt=desk.now()
            )
        return desk.answer(request, "LOCKED", body, status=423, resource=given["lock"], headers=headers, retry_after=after)

    def unheld(request: Request, *more: Problem) -> Response | None:
        """The refusal of a request that does not come with the lock as it is now, or has other problems; None without any."""
        label, detail = desk.check("lease", request.headers.get("lock-token"), latest=True)
        said = {"MISSING_TOKEN": "Lock-Token is missing", "EXPIRED_BEFORE_USE": "this lease is over"}
        other = "WRONG_VALUE" if request.path_params.get("lock", given["lock"]) != given["lock"] else ""
        problems = [(label, 412, said.get(label, "no such lock token")), (other, 404, "no such lock"), *more]
        found = [problem for problem in problems if problem[0]]
        if not found:
            return None
        worst, status, text = min(found, key=lambda problem: SEVERITY.index(known(problem[0])))
        resource = request.path_params.get("shard", given["lock"])
        return desk.refuse(request, worst, {"error": text}, status=status, resource=resource, **detail)

    def fencing(submitted: str | None) -> Problem:
        number = (submitted or "").strip()
        if not number:
            return ("MISSING_CONSTRAINT", 428, "Fencing-Token is missing")
        if number == str(lock.fence):
            return ("", 0, "")
        older = number.isdecimal() and int(number) < lock.fence
        return ("VERSION_CONFLICT" if older else "WRONG_VALUE", 412, "another fencing token is in force")

    async def acquire(request: Request) -> Response:
        if request.path_params["lock"] != given["lock"]:
            return desk.refuse(request, "WRONG_VALUE", {"error": "no such lock"}, status=404, resource="lock")
        if (await fields(request)).get("owner") != given["owner"]:
            return desk.refuse(request, "WRONG_VALUE", {"error": "unknown owner"}, status=422, resource="lock")
        if desk.now() < lock.quiet_until:
            return locked(request, label="BACKOFF_VIOLATION")
        if desk.now() < lock.held_until():
            return locked(request)
        return desk.answer(request, "ACQUIRED", lock.grant(), status=201, resource=given["lock"], holds=holds)

    async def take_by_force(request: Request) -> Response:
        return desk.refuse(request, "SHORTCUT_TAKEN", lock.grant(), status=201, resource=given["lock"])

    async def renew(request: Request) -> Response:
        if refusal := unheld(request):
            return refusal
        return desk.answer(request, "RENEWED", lock.grant(), resource=given["lock"], holds=holds)

    async def release(request: Request) -> Response:
        if refusal := unheld(request):
            return refusal
        desk.issue("lease", desk.token(32))  # the next holder's: what was granted before is over
        return desk.answer(request, "RELEASED", b"", status=204, resource=given["lock"])

    async def write(request: Request) -> Response:
        name = request.path_params["shard"]
        due = name in given["shards"] and given["shards"][name] == (await fields(request)).get("value")
        value = ("" if due else "WRONG_VALUE", 422, "not the value due")
        if refusal := unheld(request, fencing(request.headers.get("fencing-token")), value):
            return refusal
        await desk.work(WRITE_S)
        return desk.answer(request, "WRITTEN", {"shard": name}, resource=name)

    return [
        Route("/locks/{lock}", acquire, methods=["PUT"]),
        Route("/locks/{lock}", release, methods=["DELETE"]),
        Route("/locks/{lock}/break", take_by_force, methods=["POST"]),
        Route("/locks/{lock}/renew", renew, methods=["POST"]),
        Route("/shards/{shard}", write, methods=["PUT"]),
    ]
