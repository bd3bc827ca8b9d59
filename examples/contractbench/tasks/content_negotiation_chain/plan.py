from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256

from ...hands import Hands
from ...toolbox import Reply


async def plan(hands: Hands) -> str:
    """Choose the alternate, read it and its schema, look at the version again, amend."""
    url, language = f"{hands.base}/documents/{hands.find(r'Document `([^`]+)`')}", hands.find(r"in `(\w\w)`")
    field, value = hands.find(r"field `([^`]+)`"), hands.find(r"to `([^`]+)`")
    choices = (await hands.get(url))["alternates"]
    kind = next(item["type"] for item in choices if item["editable"] and item["language"] == language)

    async def read() -> Reply:
        return await hands.get(url, headers={"Accept": hands.retype(kind), "Accept-Language": language})

    document = await hands.current("document", read)
    if not document.ok:
        return f"refused with {document.status}"
    described = document["describedby"]
    schema = await hands.get(described["href"], headers=dict(hands.parts("field", Accept=hands.retype(described["accept"]))))
    if not schema.ok:
        return f"refused with {schema.status}"
    present = await hands.current("document", read)
    body = json.dumps({field: value})
    headers = {
        "Content-Type": schema["amendment"]["content_type"],
        "If-Match": hands.copy(present.headers["etag"], "etag"),
        **hands.parts("digest", **{"Content-Digest": f"sha-256=:{b64encode(sha256(body.encode()).digest()).decode()}:"}),
    }
    reply = await hands.http("PATCH", url, headers=headers, text=body)
    return "amended" if reply.ok else f"refused with {reply.status}"
