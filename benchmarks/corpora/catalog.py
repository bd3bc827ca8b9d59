"""MAS-SIM's product catalogue: who owes what to whom between a question, a plan, a call, a reply and an answer.

From the domain's description: a coordinator turns the question into a query, a researcher prepares the call, the catalogue
answers it, an executor writes the answer, an evaluator approves it. The criteria of every task: the answer is derived from the
catalogue's output, and where the tool fails, it says that the task was not completed. Questions ask for the cheapest available
product, how many are available, which are above or below a price, and whether an item has an option.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mat.core.record import ActionKind, Record
from mat.core.value import EMPTY, FrozenDict
from mat.monitor.contract import Contract, Violated
from mat_contracts.retry import no_retry_storm

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_OPTION = re.compile(
    r"\b(\w[\w/\- ]*?)=([\w.\-/ ]+?)"
    r"(?=[?.,;](?:\s|$)|\s+(?:cost|and|that|which|with|under|over|below|above|more|less)\b|$)"
)
_ID = re.compile(r"\b\d{8,}\b")
_PRICE = re.compile(r"\$\s?(\d[\d,]*(?:\.\d+)?)")
_INCOMPLETE = re.compile(r"could not|couldn't|cannot|unable|not (?:be )?complete|failed", re.IGNORECASE)
_YES_NO = re.compile(r"\s*(yes|no)\b", re.IGNORECASE)
_OVER = re.compile(r"more than|over|above|at least|greater", re.IGNORECASE)
_UNDER = re.compile(r"less than|under|below|at most|cheaper than", re.IGNORECASE)
_CALLERS_FAULT = frozenset(("rejected",))


def contracts() -> tuple[Contract, ...]:
    """The contracts of the catalogue, in the order of the work."""
    return (
        plan_carries_the_question(), call_follows_the_plan(), call_is_accepted(), call_is_sent_as_prepared(), tool_answers(),
        reply_keeps_the_query(), answer_is_derived(), answer_answers(), failure_is_admitted(),
        no_retry_storm(id="catalog.no_retry_storm"),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What was seen so far: the question, the plan's query and step, the prepared call and step, the latest reply."""

    question: str = ""
    query: FrozenDict = EMPTY
    planned: int = -1
    prepared: FrozenDict = EMPTY
    preparing: int = -1
    reply: FrozenDict = EMPTY
    replied: int = -1
    failed: int = -1


def _after(seen: _Seen, record: Record) -> _Seen:
    """What is known after a record. A plan is a model call that gives a query, a preparation one that gives arguments."""
    action, value = record.action, record.observation.value
    if action.kind == "message" and action.name == "user":
        return _Seen(question=str(action.arguments.get("text", "")))
    if action.kind == "model_call" and isinstance(value, Mapping):
        query, prepared = value.get("query"), value.get("tool_arguments")
        if isinstance(query, Mapping):
            seen = replace(seen, query=FrozenDict(query), planned=record.step)
        if isinstance(prepared, Mapping):
            seen = replace(seen, prepared=FrozenDict(prepared), preparing=record.step)
        return seen
    if action.kind == "tool_call":
        if record.observation.error is not None:
            return replace(seen, reply=EMPTY, failed=record.step)
        return replace(seen, reply=FrozenDict(value) if isinstance(value, Mapping) else EMPTY, replied=record.step)
    return seen


_KINDS: frozenset[ActionKind] = frozenset(("message", "model_call", "tool_call", "final_response"))


def _contract(name: str, text: str, repair: str, check: Any) -> Contract:
    """A contract from a check of a record against what was seen before it: None where it is fine."""

    def step(seen: _Seen, record: Record) -> _Seen | Violated:
        found = check(seen, record)
        new = _after(seen, record)
        return replace(found, state=new) if isinstance(found, Violated) else new

    return Contract(id=f"catalog.{name}", step=step, start=_Seen(), kinds=_KINDS, text=text, repair=repair)


def plan_carries_the_question() -> Contract:
    """What the question asks for (product, ids, options, price bound, availability, order, count) is in the plan's query."""

    def check(seen: _Seen, record: Record) -> Violated | None:
        value = record.observation.value
        query = value.get("query") if record.action.kind == "model_call" and isinstance(value, Mapping) else None
        if not isinstance(query, Mapping) or not seen.question:
            return None
        lost = tuple(_lost(seen.question, query))
        if not lost:
            return None
        return Violated(
            f"the plan leaves out of the question: {', '.join(lost)}", witness=(record.step,), wanted=f"a query with {lost[0]}"
        )

    return _contract(
        "plan_carries_the_question", plan_carries_the_question.__doc__ or "", "plan again from the whole question", check
    )


def _lost(question: str, query: Mapping[str, Any]) -> Iterator[str]:
    said = json.dumps(query, ensure_ascii=False, default=str).casefold()
    low, numbers = question.casefold(), {_amount(item) for item in _NUMBER.findall(said)}
    for item in _ID.findall(question):
        if item not in said:
            yield f"id {item}"
    if "item_id" in query:  # details of one item: the catalogue gives all of it, there is nothing to filter
        return
    for item in _PRICE.findall(question):
        if _amount(item) not in numbers:
            yield f"price {item}"
    for name, option in _OPTION.findall(question):
        if option.strip().casefold() not in said:
            yield f"{name.split()[-1]}={option.strip()}"
    if "available" in low and query.get("available_only") is not True:
        yield "availability"
    if re.search(r"\bcheapest\b|\blowest\b", low) and query.get("sort") != "price_asc":
        yield "the cheapest first"
    if re.search(r"\bmost expensive\b|\bhighest price", low) and query.get("sort") != "price_desc":
        yield "the dearest first"
    if re.search(r"\bhow many\b|\bnumber of\b", low) and query.get("op") != "count":
        yield "a count"
    product = query.get("product_type")
    if not isinstance(product, str) or product.casefold() not in low:
        yield f"the product asked for (the query has {product!r})"


def _amount(text: str) -> float:
    return float(text.replace(",", ""))


def call_follows_the_plan() -> Contract:
    """The call that is prepared has the arguments of the plan's query."""

    def check(seen: _Seen, record: Record) -> Violated | None:
        value = record.observation.value
        prepared = value.get("tool_arguments") if record.action.kind == "model_call" and isinstance(value, Mapping) else None
        if seen.planned < 0 or record.action.kind != "model_call" or not isinstance(value, Mapping) or "tool" not in value:
            return None
        given = dict(prepared) if isinstance(prepared, Mapping) else {}
        if given == dict(seen.query):
            return None
        names = sorted(name for name in {*given, *seen.query} if given.get(name) != seen.query.get(name))
        return Violated(
            f"the prepared call differs from the plan in {', '.join(names)}", witness=(seen.planned, record.step),
            wanted=f"the arguments planned at step {seen.planned}",
        )  # fmt: skip

    return _contract(
        "call_follows_the_plan", call_follows_the_plan.__doc__ or "", "prepare the call from the plan's query", check
    )


def call_is_accepted() -> Contract:
    """No call is refused for its arguments: that is the fault of the step that prepared it."""

    def check(seen: _Seen, record: Record) -> Violated | None:
        error = record.observation.error
        if record.action.kind != "tool_call" or error is None or error.kind not in _CALLERS_FAULT:
            return None
        blamed = seen.preparing if seen.preparing >= 0 else record.step
        return Violated(
            f"the call was refused: {error.message}", step=blamed, witness=(blamed, record.step),
            wanted="arguments the tool's schema allows",
        )  # fmt: skip

    return _contract(
        "call_is_accepted", call_is_accepted.__doc__ or "", "check arguments against the tool's schema before calling", check
    )


def call_is_sent_as_prepared() -> Contract:
    """The tool is called with the arguments that were prepared."""

    def check(seen: _Seen, record: Record) -> Violated | None:
        if record.action.kind != "tool_call" or seen.preparing < 0 or dict(record.action.arguments) == dict(seen.prepared):
            return None
        return Violated(
            "the call was not sent as it was prepared", witness=(seen.preparing, record.step),
            wanted=f"the arguments of step {seen.preparing}",
        )  # fmt: skip

    return _contract("call_is_sent_as_prepared", call_is_sent_as_prepared.__doc__ or "", "send what was prepared", check)


def tool_answers() -> Contract:
    """A call that is not refused is answered: the tool does not fail by itself."""

    def check(seen: _Seen, record: Record) -> Violated | None:
        error = record.observation.error
        if record.action.kind != "tool_call" or error is None or error.kind in _CALLERS_FAULT:
            return None
        return Violated(f"{record.action.name} failed: {error.message}", witness=(record.step,), wanted="an answer")

    return _contract("tool_answers", tool_answers.__doc__ or "", "try again, or say that the task was not completed", check)


def reply_keeps_the_query() -> Contract:
    """The reply is of the query that was sent, and counts what it lists."""

    def check(seen: _Seen, record: Record) -> Violated | None:
        value = record.observation.value
        if record.action.kind != "tool_call" or not isinstance(value, Mapping):
            return None
        echoed, items, count = value.get("query"), value.get("items"), value.get("count")
        if isinstance(echoed, Mapping) and dict(echoed) != dict(record.action.arguments):
            return Violated("the reply answers another query", witness=(record.step,), wanted="a reply to the query sent")
        if isinstance(items, list | tuple) and items and isinstance(count, int) and count != len(items):
            return Violated(f"the reply says {count} items and lists {len(items)}", witness=(record.step,), wanted="one count")
        return None

    return _contract("reply_keeps_the_query", reply_keeps_the_query.__doc__ or "", "ask again", check)


def answer_is_derived() -> Contract:
    """Every number of the answer, ids and prices included, is in the catalogue's reply or in the question."""

    def check(seen: _Seen, record: Record) -> Violated | None:
        if record.action.kind != "final_response" or seen.replied < 0:
            return None
        answer = str(record.action.arguments.get("answer", ""))
        known = {_amount(item) for item in _NUMBER.findall(json.dumps(seen.reply, default=str) + " " + seen.question)}
        known |= {len(set(_ID.findall(answer))), len(seen.reply.get("items", ()))}  # counted, not made up
        made_up = [item for item in _NUMBER.findall(answer) if _amount(item) not in known]
        if not made_up:
            return None
        return Violated(
            f"the answer says {', '.join(made_up)}, which the catalogue did not", witness=(seen.replied, record.step),
            wanted="numbers of the reply only",
        )  # fmt: skip

    return _contract("answer_is_derived", answer_is_derived.__doc__ or "", "answer from the reply", check)


def answer_answers() -> Contract:
    """The answer is what the question asks of the catalogue's reply: the cheapest, the count, the items, yes or no."""

    def check(seen: _Seen, record: Record) -> Violated | None:
        items = seen.reply.get("items", ())
        if record.action.kind != "final_response" or seen.replied < 0 or not isinstance(items, list | tuple):
            return None
        answer = str(record.action.arguments.get("answer", ""))
        wanted = _wrong(seen.question, [item for item in items if isinstance(item, Mapping)], seen.reply.get("count"), answer)
        if not wanted:
            return None
        return Violated(f"by the reply the answer is {wanted}", witness=(seen.replied, record.step), wanted=wanted)

    return _contract("answer_answers", answer_answers.__doc__ or "", "work the answer out of the reply again", check)


def _wrong(question: str, items: list[Mapping[str, Any]], count: object, answer: str) -> str:
    """What the answer should be where it is not that, else an empty text."""
    low, named = question.casefold(), set(_ID.findall(answer))
    priced = [item for item in items if isinstance(item.get("price"), int | float)]
    if "cheapest" in low and priced:
        least = min(item["price"] for item in priced)
        best = sorted(str(item.get("item_id")) for item in priced if item["price"] == least)
        return "" if len(named) == 1 and named <= set(best) else f"{' or '.join(best)} at {least}"
    if "how many" in low:
        right_count = count if isinstance(count, int) else len(items)
        return "" if right_count in {_amount(item) for item in _NUMBER.findall(answer)} else str(right_count)
    bound = _PRICE.search(question)
    if bound is not None and priced and (_OVER.search(low) or _UNDER.search(low)):
        limit, over = _amount(bound[1]), _OVER.search(low) is not None
        right = {str(item.get("item_id")) for item in priced if (item["price"] > limit if over else item["price"] < limit)}
        return "" if right == named else ", ".join(sorted(right)) or "none"
    option, word = _OPTION.search(question), _YES_NO.match(answer)
    has = _has(items[0], option[1], option[2]) if option is not None and len(items) == 1 else None
    if has is None or word is None or has == (word[1].casefold() == "yes"):
        return ""
    return "yes" if has else "no"


def _has(item: Mapping[str, Any], name: str, value: str) -> bool | None:
    """Whether an item has an option, None where it has no such; the question's words before its name do not count."""
    options = item.get("options", {})
    found = [options[key] for key in options if name.casefold().endswith(str(key).casefold())]
    return any(str(has).casefold() == value.strip().casefold() for has in found) if found else None


def failure_is_admitted() -> Contract:
    """Where the tool failed and no call succeeded, the answer says that the task was not completed."""

    def check(seen: _Seen, record: Record) -> Violated | None:
        if record.action.kind != "final_response" or seen.failed < 0 or seen.replied > seen.failed:
            return None
        if _INCOMPLETE.search(str(record.action.arguments.get("answer", ""))):
            return None
        return Violated(
            "the tool failed, and the answer does not say so", witness=(seen.failed, record.step),
            wanted="an answer that the task was not completed",
        )  # fmt: skip

    return _contract("failure_is_admitted", failure_is_admitted.__doc__ or "", "say what could not be done", check)
