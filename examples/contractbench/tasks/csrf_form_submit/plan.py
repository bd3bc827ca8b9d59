from __future__ import annotations

import html
import re

from ...hands import Hands


async def plan(hands: Hands) -> str:
    """Read the page, fill in the form, send all of its fields."""
    page = await hands.get(f"{hands.base}/settings")
    cookie, session = hands.find(r"^([^;]+)", page.headers["set-cookie"]).split("=", 1)
    form = hands.find(r"(?s)(<form[^>]*>\s*<h2>Contact details</h2>.*?</form>)", page.body)
    fields = {name: html.unescape(value) for name, value in re.findall(r'name="([^"]*)" value="([^"]*)"', form)}
    asked = {
        "display_name": hands.find(r"display name `([^`]+)`"),
        "email": hands.find(r"e-mail address `([^`]+)`"),
    }
    sent = {name: hands.retype(value) for name, value in asked.items()}
    token = fields.pop("authenticity_token")
    sent |= hands.parts("field", **{name: value for name, value in fields.items() if name not in asked})
    sent |= hands.parts("token", authenticity_token=hands.copy(token, "authenticity_token"))
    action = hands.find(r'action="([^"]+)"', form)
    reply = await hands.post(
        f"{hands.base}{action}", form=sent, headers={"Cookie": f"{cookie}={hands.copy(session, 'session')}"}
    )
    return "saved" if reply.ok else f"refused with {reply.status}"
