from __future__ import annotations

from ...hands import Hands


async def plan(hands: Hands) -> str:
    """From page to page, then the codes."""
    report = await hands.get(f"{hands.base}/reports/latest")
    url = report["first"]
    codes: list[str] = []
    while url:
        page = await hands.get(hands.copy(url, f"page_{len(codes) + 1}"))
        if not page.ok:
            return f"page {len(codes) + 1} was refused with {page.status}"
        codes.append(hands.retype(page["code"]))
        url = page["next"]
    await hands.post(f"{hands.base}/reports/{report['id']}/read", json={"codes": codes})
    return f"read {len(codes)} pages"
