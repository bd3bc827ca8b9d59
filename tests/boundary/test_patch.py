"""mat.patch: the same instruments without touching the source, and everything as it was afterwards."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import mat
from mat.core.errors import SpecError
from mat.harness.patching import patched

SOURCE = """
class Base:
    def ping(self, host):
        return f"pong {host}"

class Client(Base):
    kind = "http"
    def get(self, path):
        return f"got {path}"
    @classmethod
    def open(cls, url):
        return f"{cls.__name__} {url}"
    @staticmethod
    def version():
        return 3
    def _private(self):
        return "private"

client = Client()

def search(query):
    return [{"text": query}]

def ask(prompt):
    return {"text": prompt, "usage": {"input_tokens": 2}}
"""


@pytest.fixture
def shop() -> Iterator[Any]:
    module = ModuleType("patched_shop")
    exec(SOURCE, module.__dict__)
    sys.modules["patched_shop"] = module
    yield module
    del sys.modules["patched_shop"]


def crossed(call: Any) -> list[tuple[str, str, dict[str, Any]]]:
    with mat.run() as run:
        call()
    return [(item.action.kind, item.action.name, dict(item.action.arguments)) for item in run.trace if item.action.boundary]


@pytest.mark.parametrize(
    ("target", "call", "expected"),
    [
        ("patched_shop.search", lambda shop: shop.search("a"), ("search", {"query": "a"})),
        ("patched_shop.Client.get", lambda shop: shop.Client().get("a"), ("get", {"path": "a"})),
        ("patched_shop.Client.open", lambda shop: shop.Client.open("u"), ("open", {"url": "u"})),
        ("patched_shop.Client.version", lambda shop: shop.Client.version(), ("version", {})),
        ("patched_shop.Client.ping", lambda shop: shop.Client().ping("h"), ("ping", {"host": "h"})),
        ("patched_shop.client.get", lambda shop: shop.client.get("a"), ("get", {"path": "a"})),
        ("patched_shop.Client", lambda shop: shop.Client().get("a"), ("Client.get", {"path": "a"})),
        ("patched_shop.Client", lambda shop: shop.Client.open("u"), ("Client.open", {"url": "u"})),
    ],
)
def test_a_patched_target_crosses_gives_the_same_reply_and_is_plain_again_after_undo(shop, target, call, expected):
    plain, before = call(shop), {name: dict(vars(getattr(shop, name))) for name in ("Base", "Client", "client")}
    patch = mat.patch(target)
    replies: list[Any] = []
    assert crossed(lambda: replies.append(call(shop))) == [("tool_call", *expected)]
    assert replies == [plain]
    patch.undo()
    assert crossed(lambda: call(shop)) == []
    assert {name: dict(vars(getattr(shop, name))) for name in before} == before


def test_an_inherited_method_is_patched_for_the_subclass_alone(shop):
    mat.patch("patched_shop.Client.ping")
    assert crossed(lambda: shop.Base().ping("h")) == []
    assert crossed(lambda: shop.Client().ping("h")) == [("tool_call", "ping", {"host": "h"})]


def test_the_kind_of_a_patch_decides_the_boundary_and_its_defaults(shop):
    with patched({"patched_shop.search": {"kind": "retriever", "name": "kb"}, "patched_shop.ask": {"kind": "model"}}):
        with mat.run() as run:
            shop.search("kettle")
            shop.ask("a private prompt")
    found, asked = run.trace[:2]
    assert (found.action.kind, found.action.name, found.action.boundary) == ("retrieval", "kb", "retrieval")
    assert (asked.action.kind, asked.action.boundary, asked.observation.usage) == ("model_call", "model", {"input_tokens": 2})
    assert set(asked.action.arguments["prompt"]) == {"sha256", "length", "pii"}
    assert [entry.mode for entry in run.result.tape] == ["inprocess", "external"]
    assert crossed(lambda: shop.search("kettle")) == []


@pytest.mark.parametrize("targets", [["patched_shop.search"], "patched_shop.search"])
def test_targets_alone_are_tools_whose_effect_is_unknown(shop, targets):
    with patched(targets), mat.run() as run:
        shop.search("kettle")
    assert [(each.site, each.action.effect) for each in run.trace if each.action.boundary] == [
        ("main/service:search#1", "unknown")
    ]


def test_a_patch_that_fails_takes_back_the_ones_before_it(shop):
    with pytest.raises(SpecError), patched({"patched_shop.search": {}, "patched_shop.missing": {}}):
        pytest.fail("must not be entered")
    assert crossed(lambda: shop.search("a")) == []


@pytest.mark.parametrize(
    ("target", "options", "says"),
    [
        ("patched_shop.serch", {}, "has no 'serch'"),
        ("patched_shop.Clint.get", {}, "has no 'Clint'"),
        ("patched_shop.Client.kind", {}, "cannot be instrumented"),
        ("no_such_module.thing", {}, "no module of 'no_such_module.thing' can be imported"),
        ("search", {}, "is not a dotted path"),
        ("patched_shop.search", {"kind": "tol"}, "unknown kind: 'tol'"),
        ("patched_shop.search", {"effect": "writes"}, "effect='writes' is not one of"),
    ],
)
def test_a_patch_that_cannot_be_made_is_refused_with_a_fix_and_changes_nothing(shop, target, options, says):
    with pytest.raises(SpecError) as caught:
        mat.patch(target, **options)
    assert says in caught.value.what
    assert caught.value.fix
    assert crossed(lambda: shop.search("a")) == []
