"""A signed URL of 8,192 bytes, stated once and usable only after a conversation: deferred use of a capability."""

from __future__ import annotations

from hashlib import sha256
from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...desk import Desk, exact_url, fields

URL_BYTES = 8192


def parameters(rng: Random) -> dict[str, Any]:
    sums = [[rng.randint(11, 89), rng.randint(11, 89)] for _ in range(rng.randint(4, 6))]
    return {
        "reference": f"RO-{rng.randint(1000, 9999)}-{rng.choice('KLMNPQ')}", "sums": sums,
        "recalled": rng.randint(2, len(sums)), "opens_after": rng.randint(8, 11), "holds": rng.randint(70, 90),
        "year": rng.randint(1998, 2025),
    }  # fmt: skip


def routes(desk: Desk) -> list[Route]:
    given = desk.given
    questions = [(f"What is {left} + {right}?", str(left + right)) for left, right in given["sums"]]
    questions.insert(given["recalled"], ("Which reference did I give you at the beginning?", given["reference"]))
    archive = "".join(f"{given['year']};{desk.token(40)}\n" for _ in range(6))
    state: dict[str, Any] = {"id": "", "turn": 0, "opens_at": None}

    async def begin(request: Request) -> Response:
        if state["id"]:
            return desk.answer(request, "ALREADY_OPEN", {"error": "your conversation is open"}, status=409)
        state["id"] = desk.token(10)
        url = desk.issue("archive_url", _url(desk, str(request.base_url), state["id"]), given["holds"])
        body = {
            "id": state["id"], "say": "Good morning. Please keep the link for later.", "reference": given["reference"],
            "archive_url": url, "link_holds_seconds": given["holds"], "question": questions[0][0],
        }  # fmt: skip
        return desk.answer(request, "OPENED", body, status=201, holds={"archive_url": "archive_url"})

    async def turn(request: Request) -> Response:
        if request.path_params["id"] != state["id"] or state["turn"] == len(questions):
            return desk.answer(request, "NO_ROUTE", {"error": "there is no open conversation of this id"}, status=404)
        said = (await fields(request)).get("answer")
        if said is None:
            return desk.refuse(request, "MISSING_CONSTRAINT", {"error": "answer is required"}, status=422)
        if str(said).strip() != questions[state["turn"]][1]:
            body = {"say": "I do not think so.", "question": questions[state["turn"]][0]}
            return desk.refuse(request, "WRONG_VALUE", body, status=422, resource="answer")
        state["turn"] += 1
        if state["turn"] < len(questions):
            return desk.answer(request, "TURN", {"say": "Thank you.", "question": questions[state["turn"]][0]})
        state["opens_at"] = desk.now() + given["opens_after"]
        body = {"say": f"That is all. I am unsealing the archive; it is open in {given['opens_after']} seconds."}
        return desk.answer(request, "ENDED", body, status=202, headers={"Retry-After": str(given["opens_after"])})

    async def fetch(request: Request) -> Response:
        label, detail = desk.check("archive_url", exact_url(request))
        left = 0.0 if state["opens_at"] is None else round(state["opens_at"] - desk.now(), 3)
        if label:
            said = {"error": "link has expired" if label == "EXPIRED_BEFORE_USE" else "signature does not match"}
            if left > 0 and label == "TOOL_INPUT_TOO_LONG":  # early as well, which weighs more
                label = "BACKOFF_VIOLATION"
            return desk.refuse(request, label, said, status=403, resource="archive_url", **detail)
        if state["opens_at"] is None:
            return desk.answer(request, "SEALED", {"error": "the archive is sealed while we are talking"}, status=409)
        if left > 0:
            body = {"error": "the archive is not open yet"}
            return desk.refuse(request, "BACKOFF_VIOLATION", body, status=425, resource="archive_url",
                               headers={"Retry-After": f"{left:g}"}, early_by_seconds=left)  # fmt: skip
        return desk.answer(request, "FETCHED", archive, resource="archive_url", media_type="text/plain")

    async def elsewhere(request: Request) -> Response:
        """A request that no other route takes; its URL may be the archive's, damaged in its path."""
        if desk.check("archive_url", exact_url(request))[0] in ("WRONG_VALUE", "MISSING_TOKEN"):
            return desk.answer(request, "NO_ROUTE", {"error": "not found"}, status=404)
        return await fetch(request)

    async def receipt(request: Request) -> Response:
        said = (await fields(request)).get("sha256")
        if said is None:
            return desk.refuse(request, "MISSING_CONSTRAINT", {"error": "sha256 is required"}, status=422, resource="receipt")
        if said != sha256(archive.encode()).hexdigest():
            return desk.refuse(request, "WRONG_HASH", {"error": "this is not the archive"}, status=422, resource="receipt")
        return desk.answer(request, "RECEIPT", {"say": "Goodbye."}, status=201)

    return [
        Route("/conversations", begin, methods=["POST"]),
        Route("/conversations/{id}/turns", turn, methods=["POST"]),
        Route("/conversations/{id}/receipt", receipt, methods=["POST"]),
        Route("/archive/{rest:path}", fetch),
        Route("/{rest:path}", elsewhere),
    ]


def _url(desk: Desk, base: str, id: str) -> str:
    """A URL of URL_BYTES bytes, all of it under a signature."""
    start = f"{base}archive/{id}?scope=annual%2Freports%2B{desk.given['year']}&state="
    end = f"&X-Signature={desk.sign(start)}"
    return start + desk.token(URL_BYTES - len(start) - len(end)) + end
