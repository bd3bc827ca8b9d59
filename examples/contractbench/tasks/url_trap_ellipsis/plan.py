from __future__ import annotations

import html
import re

from ...hands import Hands


async def plan(hands: Hands) -> str:
    """Follow every link by its href, send the references."""
    mail = await hands.get(f"{hands.base}/mail/latest")
    references = []
    for at, (address, shown) in enumerate(re.findall(r'<a href="([^"]+)">([^<]+)</a>', mail.body)):
        link = html.unescape(shown if hands.tempted() else address)
        reply = await hands.get(hands.copy(link, f"link_{at}"))
        if not reply.ok:
            return f"refused with {reply.status}"
        references.append(hands.retype(hands.find(r"Reference: (\S+)", reply.body)))
    await hands.post(f"{hands.base}/acknowledgements", json={"references": references})
    return f"acknowledged {len(references)} documents"
