"""A mind that is elsewhere: the model of an agent asks an endpoint in the shape of OpenAI's, with the standard library."""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.request import Request, urlopen

import shop


def mind(results: list[shop.Result]) -> list[shop.Call] | str:
    said = [
        {"role": "tool", "name": each.tool, "content": f"error: {each.text}" if each.failed else each.text} for each in results
    ]
    body = {"model": "gpt-test", "messages": [{"role": "user", "content": "Help me with order A17"}, *said]}
    headers = {"content-type": "application/json", "authorization": f"Bearer {os.environ['SHOP_KEY']}"}
    request = Request(f"{os.environ['SHOP_URL']}/v1/chat/completions", json.dumps(body).encode(), headers)
    with urlopen(request) as reply:
        message: dict[str, Any] = json.load(reply)["choices"][0]["message"]
    if not message.get("tool_calls"):
        return str(message["content"])
    functions = [call["function"] for call in message["tool_calls"]]
    return [(each["name"], json.loads(each["arguments"])) for each in functions]
