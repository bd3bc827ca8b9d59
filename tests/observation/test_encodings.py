"""An artifact in another encoding, where no place is declared: all of it is no damage, unless a fault has encoded it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

import mat
from mat_contracts.observation import bytes_preserved, compliant

TOKENS = ("sess_4vN8qLrT2xWzPbK9mYdHcJ6f", 'W/"a9f3-5c1e7b2d90"', "AKq/x+9Zt7Lm2Pw4Vb8Nc==")
URL = "https://files.example/q3%20final.pdf?expires=900&sig=5f3c9a7be1d24c0894aa6f1e2b7d8c90"


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def labels(value: str, text: str) -> list[str]:
    @mat.tool
    def act(blob: str) -> str:
        return "done"

    with mat.run([compliant()]) as run:
        mat.artifact.observed(value, name="thing")
        act(text)
    assert run.result is not None
    return [item.label for item in run.result.violations]


@pytest.mark.parametrize("value", [*TOKENS, URL])
@pytest.mark.parametrize(
    "encode",
    [
        in_base64,
        lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
        lambda text: text.encode().hex(),
        lambda text: in_base64(json.dumps({"token": text, "v": 1})),
        lambda text: 'id,token\n1,"' + text.replace('"', '""') + '"\n',
    ],
    ids=["base64", "base64 of URLs", "hexadecimal", "base64 of JSON", "CSV"],
)
def test_all_of_an_artifact_in_another_encoding_is_no_damage(value: str, encode: Callable[[str], str]) -> None:
    assert labels(value, encode(value)) == []


@pytest.mark.parametrize("value", TOKENS)
def test_an_artifact_that_was_changed_is_damaged(value: str) -> None:
    changed = value[:10] + ("q" if value[10] != "q" else "z") + value[11:]
    assert labels(value, changed)


@pytest.mark.parametrize("value", TOKENS)
def test_two_characters_that_are_exchanged_are_damage(value: str) -> None:
    at = next(index for index in range(len(value) // 2, len(value)) if value[index].isalnum() and value[index - 1].isalnum())
    assert labels(value, value[: at - 1] + value[at] + value[at - 1] + value[at + 1 :])


def test_another_number_of_the_same_digits_is_another_number() -> None:
    assert labels("order-2026-000021", "order-2026-000012") == []


def test_what_a_fault_encodes_has_been_changed_on_the_way() -> None:
    from mat.boundary.effect import Rewrite

    encoded = mat.spec.operator("service.own", lambda call, reply, stream: Rewrite({"blob": in_base64(TOKENS[0])}))

    @mat.tool
    def act(blob: str) -> str:
        return "done"

    def work() -> Any:
        mat.artifact.observed(TOKENS[0], name="thing")
        return act(TOKENS[0])

    with mat.run() as first:
        work()
    assert first.result is not None
    site = next(item.site for item in first.result.records if item.action.kind == "tool_call")
    contracts = [bytes_preserved(form="reached")]
    with mat.run(contracts, operators=[encoded], schedule=[mat.spec.perturbation(encoded.id, site)]) as run:
        work()
    assert run.result is not None
    assert [item.contract for item in run.result.violations] == ["observation.bytes_preserved(*)"]
