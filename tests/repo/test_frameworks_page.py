"""The table of frameworks in the reference is what the adapters say of themselves."""

from __future__ import annotations

import importlib
from pathlib import Path

from mat.adapters.attach import BUILT_IN
from mat.adapters.attachment import Adapter

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "frameworks.md"
BEGIN, END = "<!-- adapters -->\n", "<!-- end of adapters -->"
BOUNDARIES = {
    "aiohttp": "endpoints, models behind endpoints (streamed too)",
    "google_adk": "tools, agents as tools and transfers, models (streamed too), memory service, sessions",
    "httpx": "endpoints, models behind endpoints (streamed too)",
    "langchain": "tools, chat models (streamed too), retrievers",
    "langgraph": "tools, chat models (streamed too), retrievers, stores, check-pointers",
    "litellm": "models (streamed too)",
    "mcp": "tools, resources, prompts",
    "openai_agents": "tools, models (streamed too), hand-offs, sessions",
    "pydantic_ai": "tools, models (streamed too)",
    "requests": "endpoints, models behind endpoints (streamed too)",
    "smolagents": "tools, models (streamed too), managed agents",
    "urllib3": "endpoints, models behind endpoints (streamed too)",
}


def adapter(name: str) -> Adapter:
    found: Adapter = importlib.import_module(BUILT_IN[name]).ADAPTERS[name]
    return found


def table() -> str:
    lines = []
    for name in sorted(BUILT_IN):
        found = adapter(name)
        release = found.release.replace(">=", " >= ") if found.release else found.package
        lines.append(f"| `{name}` | {release} | {BOUNDARIES[name]} | {found.policy} |\n")
    return "".join(lines)


def test_the_table_of_frameworks_is_what_the_adapters_say() -> None:
    found = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert found == table(), "write it again: python tests/repo/test_frameworks_page.py"


def test_every_adapter_states_its_policy_and_can_be_installed_by_its_extra() -> None:
    import tomllib

    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name in BUILT_IN:
        found = adapter(name)
        assert found.name == name
        assert found.policy, name
        if found.extra and found.extra != "httpx":
            assert found.release in extras[found.extra], name


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.partition(END)[2], encoding="utf-8")
