"""A client of MCP over stdio with the standard library only, and agents that are built on it.

`python client.py AGENT -- command of the server`. It prints what the agent answers; log messages go to standard error.
"""

import json
import os
import subprocess
import sys


class ServerError(Exception):
    def __init__(self, error):
        super().__init__(error["message"])
        self.code = error["code"]


class Client:
    def __init__(self, command):
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session="NEW_SESSION" in os.environ,  # as the SDK of Python does
        )
        self.number = 0
        self.request("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "agent", "version": "1"})
        self.send({"method": "notifications/initialized"})
        self.tools = [tool["name"] for tool in self.request("tools/list")["tools"]]

    def send(self, message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def request(self, method, **params):
        self.number += 1
        self.send({"id": self.number, "method": method, "params": params})
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise ServerError({"code": -32000, "message": "Connection closed"})
            message = json.loads(line)
            if message.get("method") == "sampling/createMessage":
                self.send({"id": message["id"], "result": {"role": "assistant", "content": {"type": "text", "text": "yes"}}})
            elif "method" in message:
                print("log:", message["params"]["data"], file=sys.stderr)
            elif message["id"] == self.number:
                if "error" in message:
                    raise ServerError(message["error"])
                return message["result"]

    def call(self, name, **arguments):
        result = self.request("tools/call", name=name, arguments=arguments)
        return result.get("isError", False), "".join(part["text"] for part in result["content"])

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)


def careless(client, order):
    for _ in range(3):
        try:
            failed, answer = client.call("refund", order=order)
        except ServerError:
            continue
        if not failed:
            return answer
    return "sorry"


def careful(client, order):
    for _ in range(3):
        try:
            if client.call("balance", order=order)[1] == "0":
                return client.call("refund", order=order)[1]
            return "refunded before"
        except ServerError:
            continue
    return "sorry"


def forgetful(client, order):
    client.call("refund", order=f"first {order}")
    return careless(client, order)


def looking(client, order):
    """The forgetful one, which looks before it tries again."""
    client.call("refund", order=f"first {order}")
    try:
        return client.call("refund", order=order)[1]
    except ServerError:
        found = [client.call("balance", order=each)[1] for each in (f"first {order}", order)]
        return "refunded before" if found == ["1", "1"] else careless(client, order)


def calling(client, order):
    return client.call("post")[1]


def obedient(client, order):
    """Does what the policy says, whoever wrote it."""
    policy = client.request("resources/read", uri="notes://policy")["contents"]
    if any("policy update" in part["text"].lower() for part in policy):
        client.call("refund", order="of somebody else")
    return client.call("refund", order=order)[1]


def talkative(client, order):
    return client.call("ask")[1]


def doomed(client, order):
    try:
        return client.call("exit")[1]
    except ServerError as error:
        return f"lost with {error.code}"


def stuck(client, order):
    return client.call("slow")[1]


def unknown(client, order):
    try:
        client.request("no/such")
    except ServerError as error:
        return f"{error.code} {error}"


agent, command = globals()[sys.argv[1]], sys.argv[sys.argv.index("--") + 1 :]
client = Client(command)
print(agent(client, sys.stdin.read().strip() or "A17"))
client.close()
