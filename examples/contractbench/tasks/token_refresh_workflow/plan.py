from __future__ import annotations

from ...hands import Hands


async def plan(hands: Hands) -> str:
    """A token that is about to expire is replaced before the request that would carry it."""
    base, client_id = hands.base, hands.find(r"client_id=([^\s`]+)")
    refresh = (await hands.post(f"{base}/sessions", json={"client_id": client_id}))["refresh_token"]

    async def fetch() -> tuple[str, float]:
        optional = hands.parts("field", client_id=client_id)
        form = {"grant_type": "refresh_token", "refresh_token": hands.copy(refresh, "refresh_token"), **optional}
        reply = await hands.post(f"{base}/oauth/token", form=form)
        return (reply["access_token"], hands.now() + reply["expires_in"]) if reply.ok else ("", 0.0)

    async def headers() -> dict[str, str]:
        token, _ = await hands.current("token", fetch, until=lambda item: item[1])
        return {"Authorization": f"Bearer {hands.copy(token, 'access_token')}"} if token else {}

    if not (first := await headers()):
        return "no token"
    job = await hands.post(f"{base}/jobs", headers=first)
    if not job.ok:
        return "no job"
    for stage in job["stages"]:
        reply = await hands.post(f"{base}/jobs/{job['job']}/stages/{stage}", headers=await headers())
        if not reply.ok:
            return f"refused at {stage}"
    return "the job is done"
