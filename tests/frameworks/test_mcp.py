"""What MCP has beyond tools that are called: annotations, resources, prompts, and results that report an error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import mat

pytest.importorskip("mcp")

try:
    from mcp import Client
    from mcp.server.mcpserver import MCPServer as Server
    from mcp_types import ToolAnnotations
except ImportError:  # before 2.0
    from mcp.server.fastmcp import FastMCP as Server
    from mcp.types import ToolAnnotations

    Client = None


def connected(made: Any) -> Any:
    if Client is not None:
        return Client(made)
    from mcp.shared.memory import create_connected_server_and_client_session

    return create_connected_server_and_client_session(made._mcp_server)


def server() -> Any:
    made = Server("shop")

    @made.tool(annotations=ToolAnnotations.model_validate({"readOnlyHint": True}))
    def look_up(order: str) -> str:
        return f"{order} paid"

    @made.tool(annotations=ToolAnnotations.model_validate({"destructiveHint": False}))
    def refund(order: str) -> str:
        return "refunded"

    @made.tool()
    def ping() -> dict[str, int]:
        return {"up": 1}

    @made.resource("docs://refunds")
    def refunds() -> str:
        return "within 14 days"

    @made.prompt()
    def polite(name: str) -> str:
        return f"Greet {name}."

    return made


async def everything() -> list[Any]:
    async with connected(server()) as session:
        await session.list_tools()
        found = [
            await session.call_tool("look_up", {"order": "A17"}),
            await session.call_tool("refund", {"order": "A17"}),
            await session.call_tool("ping", {}),
            await session.read_resource("docs://refunds"),
            await session.get_prompt("polite", {"name": "Ann"}),
        ]
    return [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in found]


def test_annotations_give_the_effect_and_nothing_is_changed_without_a_fault() -> None:
    bare = asyncio.run(everything())
    with mat.run() as run, mat.attach("mcp") as attachment:
        assert asyncio.run(everything()) == bare
    found = [(record.action.kind, record.action.name, record.action.effect) for record in run.trace if record.action.boundary]
    assert found == [
        ("tool_call", "look_up", "read"), ("tool_call", "refund", "write"), ("tool_call", "ping", "unknown"),
        ("retrieval", "resource", "read"), ("retrieval", "prompt", "read"),
    ]  # fmt: skip
    assert attachment.declared["look_up"].source == "the server's annotations"
    assert asyncio.run(everything()) == bare


@pytest.mark.parametrize(
    ("operator", "site", "where"),
    [
        ("retrieval.poison", "main/retrieval:resource#1", lambda found: found[3]["contents"]),
        ("retrieval.poison", "main/retrieval:prompt#1", lambda found: found[4]["messages"]),
    ],
)
def test_texts_of_resources_and_prompts_can_be_poisoned(operator: str, site: str, where: Any) -> None:
    import mat_faults

    chosen = next(each for each in mat_faults.operators() if each.id == operator)
    added = mat.spec.perturbation(operator, site, dict(chosen.grid[0]))
    [bare] = where(asyncio.run(everything()))
    with mat.run(schedule=[added], operators=mat_faults.operators()), mat.attach("mcp"):
        first, planted = where(asyncio.run(everything()))
    assert first == bare
    assert "text" in str(planted)


def test_a_fault_of_the_service_behind_a_tool_is_a_result_that_reports_an_error() -> None:
    import mat_faults

    down = mat.spec.perturbation("service.error", "main/service:ping#1", {"kind": "server_error"})
    with mat.run(schedule=[down], operators=mat_faults.operators()) as run, mat.attach("mcp"):
        found = asyncio.run(everything())
    assert found[2]["isError"] is True
    [failed] = [record for record in run.trace if record.action.name == "ping"]
    assert failed.observation.error is not None
    assert failed.observation.error.kind == "server_error"


def test_a_time_out_has_the_code_that_the_installed_release_raises() -> None:
    import mcp

    import mat_faults

    lost = mat.spec.perturbation("service.timeout", "main/service:look_up#1", cost=4)
    raised: type[Exception] = getattr(mcp, "MCPError", None) or mcp.McpError
    with (
        mat.run(schedule=[lost], operators=mat_faults.operators()),
        mat.attach("mcp"),
        pytest.raises(BaseException) as caught,
    ):
        asyncio.run(everything())
    [error] = _leaves(caught.value)
    assert isinstance(error, raised)
    assert error.error.code == (-32001 if Client is not None else 408)


def _leaves(error: BaseException) -> list[BaseException]:
    """The exceptions in the groups of task groups."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]


@pytest.mark.skipif(Client is None, reason="before 2.0 a call is one request")
def test_a_call_that_asks_the_user_in_between_is_one_step_with_one_effect() -> None:
    from typing import Annotated

    import mcp_types
    from mcp.server.mcpserver import Elicit, Resolve
    from pydantic import BaseModel

    class Answer(BaseModel):
        ok: bool

    def ask(order: str) -> Any:
        return Elicit("sure?", Answer)

    made = Server("shop")

    async def refund(order: str, answer: Any) -> str:
        return f"refunded {order}"

    refund.__annotations__.update(order=str, answer=Annotated[Answer, Resolve(ask)])
    made.tool()(refund)
    ask.__annotations__["return"] = Elicit[Answer]

    async def agree(context: Any, parameters: Any) -> Any:
        return mcp_types.ElicitResult(action="accept", content={"ok": True})

    async def work() -> str:
        async with Client(made, elicitation_callback=agree) as client:
            return str((await client.call_tool("refund", {"order": "A17"})).content[0].text)

    with mat.run() as run, mat.attach("mcp"):
        assert asyncio.run(work()) == "refunded A17"
    assert [(record.action.name, record.effected) for record in run.trace if record.action.boundary] == [("refund", "yes")]


# -- structured content -----------------------------------------------------------------------------------------------------


def library() -> Any:
    """Searches whose results have structured content, as servers give it."""
    made = Server("library")

    @made.tool()
    def texts(query: str) -> list[str]:
        return ["Paid within 14 days.", "Not for gifts."]

    @made.tool()
    def documents(query: str) -> dict[str, Any]:
        return {"query": query, "hits": [{"id": 1, "snippet": "Paid within 14 days."}, {"id": 2, "snippet": "Not for gifts."}]}

    @made.tool()
    def text(query: str) -> str:
        return "Paid within 14 days."

    @made.tool()
    def page(query: str) -> dict[str, Any]:
        return {"title": "Refunds", "body": "Paid within 14 days."}

    return made


def searched(tool: str, operator: str = "", **parameters: Any) -> tuple[list[str], Any]:
    """The text blocks and the structured content that the client gets, under a fault if one is named."""
    import mat_faults

    async def ask() -> Any:
        async with connected(library()) as session:
            await session.list_tools()
            return await session.call_tool(tool, {"query": "refunds"})

    schedule = [mat.spec.perturbation(operator, f"main/retrieval:{tool}#1", parameters)] if operator else []
    with mat.run(schedule=schedule, operators=mat_faults.operators()) as run, mat.attach("mcp", retrievers=[tool]):
        found = asyncio.run(ask()).model_dump(mode="json", by_alias=True, exclude_none=True)
    [record] = [record for record in run.trace if record.action.boundary]
    assert record.observation.value[0]["text"]
    return [block["text"] for block in found["content"]], found.get("structuredContent")


def texts_in(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in inside for text in texts_in(each)]


PLANTED = "policy"
SEARCHES = ("texts", "documents", "text", "page")


@pytest.mark.parametrize("tool", SEARCHES)
def test_a_planted_passage_is_in_the_text_and_in_the_structured_content(tool: str) -> None:
    import json

    calm = searched(tool)
    assert "14 days" in str(calm[0])
    assert "14 days" in str(calm[1])
    text, structured = searched(tool, "retrieval.poison", payload="policy_update", magnitude=1)
    planted = [each for each in texts_in(structured) if each not in texts_in(calm[1])]
    assert planted
    inside = text[0] if tool == "text" else json.loads(text[0]) if tool in ("documents", "page") else text
    assert texts_in(inside) == texts_in(structured)  # they say the same
    assert all(entry in str(structured) for entry in texts_in(calm[1]))  # and nothing is lost


@pytest.mark.parametrize("tool", SEARCHES)
def test_an_operator_can_plant_a_passage_in_one_of_the_two(tool: str) -> None:
    calm = searched(tool)
    text, structured = searched(tool, "retrieval.poison_view", view="structured", magnitude=1)
    assert (text, structured == calm[1]) == (calm[0], False)
    text, structured = searched(tool, "retrieval.poison_view", view="text", magnitude=1)
    assert (text == calm[0], structured) == (False, calm[1])


@pytest.mark.parametrize("operator", ["retrieval.drop", "retrieval.truncate", "retrieval.shuffle"])
def test_other_faults_of_retrieval_change_both(operator: str) -> None:
    import json

    parameters = {"retrieval.drop": {"passage": 0}, "retrieval.truncate": {"passage": 0, "part": "tail"}}.get(operator, {})
    text, structured = searched("documents", operator, **parameters, magnitude=1)
    assert json.loads(text[0]) == structured
    assert structured["query"] == "refunds"
    assert structured != searched("documents")[1]
    text, structured = searched("texts", operator, **parameters, magnitude=1)
    assert structured == {"result": text}
