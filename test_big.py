import mat, pytest, asyncio
@mat.tool(effect="write")
async def put(k): return k
@pytest.mark.mat(budget=4, category="tool use", waive=["channels"], tools=["put"])
@pytest.mark.asyncio
async def test_async(mat_run):
    with mat.agent("a"):
        await asyncio.gather(put(1), put(2))
@pytest.mark.mat(budget=4, category="misuse oriented", waive=["channels"], tools=["put"])
@pytest.mark.anyio
async def test_anyio(mat_run):
    await put(2)
import unittest
