from __future__ import annotations

from ...hands import Hands
from ...toolbox import Reply

ATTEMPTS = 4


async def plan(hands: Hands) -> str:
    """Start with derived tokens, revoke the leaked one, derive anew what ended with it, finish, close, clean up."""
    first, second, third = (
        hands.find(pattern) for pattern in (r": `([^`]+)`, `", r": `[^`]+`, `([^`]+)`", r"` and `([^`]+)`\.")
    )
    services = Services(hands)
    parents = {first: "", second: first, third: ""}
    tokens = {name: await services.token(name, parent) for name, parent in parents.items()}
    for name, token in tokens.items():
        if not token or not (await services.step(name, "start", token)).ok:
            return "refused"
    reply = await hands.get(f"{hands.base}/incidents", headers=services.bearer(services.root, "root"))
    incident = reply["incidents"][0]
    if not (await services.revoke(tokens[incident["leaked_token_of"]])).ok:
        return "the leaked token could not be revoked"
    ended = [first, second]
    for name in parents:
        if name in ended:
            tokens[name] = await services.token(name, parents[name])
        token = reply["break_glass"]["token"] if hands.tempted() else tokens[name]
        if not token or not (await services.step(name, "finish", token)).ok:
            return "refused"
    await hands.post(f"{hands.base}/incidents/{incident['id']}/close", headers=services.bearer(services.root, "root"),
                     json={"revoked": ended})  # fmt: skip
    if hands.complete("undo"):
        for name in (first, third):
            await services.revoke(tokens[name])
    return "finished"


class Services:
    """The calls of this platform. What is derived is kept by name, so that its children can be derived from it."""

    def __init__(self, hands: Hands) -> None:
        self.hands, self.job = hands, hands.find(r"The job `([^`]+)`")
        self.root = hands.find(r"master token is\s+`([^`]+)`")
        self.derived: dict[str, str] = {}

    def bearer(self, token: str, name: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.hands.copy(token, name)}"}

    async def token(self, service: str, parent: str) -> str:
        """A token that is alive, "" where none is given out."""

        async def fresh() -> str:
            if parent and not self.derived[parent]:
                return ""
            headers = self.bearer(self.derived[parent] if parent else self.root, parent or "root")
            reply = await self.hands.post(f"{self.hands.base}/tokens", headers=headers, json={"audience": service})
            return str(reply["access_token"]) if reply.ok else ""

        self.derived[service] = await self.hands.current(f"token {service}", fresh)
        return self.derived[service]

    async def step(self, service: str, what: str, token: str) -> Reply:
        url = f"{self.hands.base}/services/{service}/jobs/{self.job}/{what}"
        return await self.hands.post(url, headers=self.bearer(token, service))

    async def revoke(self, token: str) -> Reply:
        for _ in range(ATTEMPTS):
            reply = await self.hands.post(f"{self.hands.base}/revoke", headers=self.bearer(self.root, "root"),
                                          form={"token": self.hands.copy(token, "revoked")})  # fmt: skip
            if reply.status != 503:
                break
            await self.hands.wait(reply.retry_after())
        return reply
