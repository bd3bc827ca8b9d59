"""An MCP server over stdio, written from the specification (2025-06-18) with the standard library only.

Its tools keep a ledger in the file that it is given: `refund` adds a line, `balance` counts them. `notes://policy` is a
resource, `greet` a prompt. `slow` never answers, `exit` ends the server in the middle of a call.
"""

import json
import os
import sys
import urllib.request

if "NO_SERVER" in os.environ:
    sys.exit("there is no server")
LEDGER = sys.argv[1]
OPEN = {"type": "object"}
TOOLS = [
    {"name": "refund", "description": "Refund an order", "inputSchema": OPEN},
    {"name": "balance", "description": "Count refunds", "inputSchema": OPEN, "annotations": {"readOnlyHint": True}},
    {"name": "exit", "description": "End", "inputSchema": OPEN},
    {"name": "slow", "description": "Never answer", "inputSchema": OPEN},
    {"name": "ask", "description": "Ask the client's model", "inputSchema": OPEN},
]


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(content, **more):
    return {"content": [{"type": "text", "text": content}], **more}


def refunds():
    return open(LEDGER).read().splitlines() if os.path.exists(LEDGER) else []


def call(name, arguments):
    if name == "refund":
        with open(LEDGER, "a") as ledger:
            ledger.write(arguments["order"] + "\n")
        return text("refunded " + arguments["order"], _meta={"pid": os.getpid()})
    if name == "balance":
        return text(str(refunds().count(arguments["order"])))
    if name == "post":
        request = urllib.request.Request(os.environ["API"] + "/refunds", data=b'{"order": "A17"}', method="POST")
        return text(str(urllib.request.urlopen(request, timeout=10).status))
    if name == "exit":
        os._exit(3)
    if name == "ask":
        send({"id": "sample-1", "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}})
        answer = json.loads(sys.stdin.readline())
        return text("the model said " + answer["result"]["content"]["text"])
    return text(f"there is no tool {name}", isError=True)


def handle(message):
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
            "serverInfo": {"name": "ledger", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        send({"method": "notifications/message", "params": {"level": "info", "data": "called " + params["name"]}})
        return call(params["name"], params.get("arguments", {}))
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "mimeType": "text/plain", "text": "Refund once only."}]}
    if method == "prompts/get":
        return {"messages": [{"role": "user", "content": {"type": "text", "text": "Be kind."}}]}
    if method == "ping":
        return {}
    raise LookupError(method)


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    if message["method"] == "tools/call" and message["params"]["name"] == "slow":
        continue
    try:
        send({"id": message["id"], "result": handle(message)})
    except LookupError as error:
        send({"id": message["id"], "error": {"code": -32601, "message": f"Method not found: {error}"}})
