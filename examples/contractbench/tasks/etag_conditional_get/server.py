"""Documents with entity tags that others edit, too: 304, 412 and 428 (RFC 9110, section 13; RFC 7232; RFC 6585, section 3).

Another editor saves one document once all have been read, and a second one after the agent's first write.
"""

from __future__ import annotations

from random import Random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...desk import Desk, fields

NAMES = ("handbook", "roadmap", "glossary", "charter", "style-guide", "runbook")
PEOPLE = ("Ada", "Grace", "Edsger", "Barbara", "Donald", "Frances", "Tony", "Radia")


def parameters(rng: Random) -> dict[str, Any]:
    names = rng.sample(NAMES, 3)
    return {
        "documents": names, "listed": ", ".join(f"`{name}`" for name in names), "owners": rng.sample(PEOPLE, 3),
        "editors": rng.sample(PEOPLE, 2), "first_edited": rng.randrange(3), "tag_length": rng.randint(16, 27),
    }  # fmt: skip


def routes(desk: Desk) -> list[Route]:
    given, seen = desk.given, set()
    documents: dict[str, dict[str, Any]] = {}
    written: list[str] = []
    editors = list(given["editors"])

    def save(name: str, document: dict[str, Any]) -> None:
        documents[name] = document
        desk.issue(name, f'"{desk.token(given["tag_length"])}"')

    def tag(name: str) -> dict[str, str]:
        return {"ETag": desk.issued[name][-1].value, "Cache-Control": "no-cache"}

    def edited(name: str) -> None:
        """Somebody else saves a document."""
        save(name, {**documents[name], "revision": documents[name]["revision"] + 1, "last_editor": editors.pop(0)})

    for name, owner in zip(given["documents"], given["owners"], strict=True):
        save(name, {"name": name, "state": "draft", "revision": desk.rng.randint(2, 9), "owner": owner, "last_editor": owner})

    def stale(name: str, submitted: str) -> str:
        """The label of an entity tag that is not the current one: an older version, or altered on its way."""
        *older, _ = [item.value for item in desk.issued[name]]
        return "VERSION_CONFLICT" if submitted in older else desk.check(name, submitted)[0]

    async def read(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in documents:
            return desk.refuse(request, "WRONG_VALUE", {"error": "no such document"}, status=404, resource=name)
        condition = request.headers.get("if-none-match")
        if name in seen and not condition:
            body = {"error": "you have this document: make the request conditional"}
            return desk.refuse(request, "MISSING_CONSTRAINT", body, status=428, resource=name)
        label = stale(name, condition) if condition else ""
        if condition and not label:
            return desk.answer(request, "NOT_MODIFIED", b"", status=304, resource=name, headers=tag(name))
        body, headers = documents[name], tag(name)
        if label not in ("", "VERSION_CONFLICT"):  # the condition is no tag of this document: the answer is the document
            return desk.refuse(request, label, body, status=200, resource=name, headers=headers)
        answer = desk.answer(request, "MODIFIED" if condition else "READ", body, resource=name, headers=headers)
        if name not in seen:
            seen.add(name)
            if len(seen) == len(documents):
                edited(given["documents"][given["first_edited"]])
        return answer

    async def write(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in documents:
            return desk.refuse(request, "WRONG_VALUE", {"error": "no such document"}, status=404, resource=name)
        condition = request.headers.get("if-match", "").strip()
        if condition in ("", "*"):
            body = {"error": "name the version that this replaces in If-Match"}
            return desk.refuse(request, "MISSING_CONSTRAINT", body, status=428, resource=name)
        if label := stale(name, condition):
            body = {"error": "the document is not in this version"}
            return desk.refuse(request, label, body, status=412, resource=name, time_of_attempt=desk.now())
        if await fields(request) != {**documents[name], "state": "approved"}:
            body = {"error": "only the state of a document can be changed here, to approved"}
            return desk.refuse(request, "WRONG_VALUE", body, status=422, resource=name)
        save(name, {**documents[name], "state": "approved"})
        answer = desk.answer(request, "APPROVED", documents[name], resource=name, headers=tag(name))
        written.append(name)
        if (waiting := [item for item in documents if item not in written]) and len(editors) == 1:
            edited(waiting[-1])
        return answer

    return [Route("/documents/{name}", read, methods=["GET"]), Route("/documents/{name}", write, methods=["PUT"])]
