"""Draws agents: what touches the state that outlives a run, what it decides, and the safe twin of each.

An agent settles orders. Its call that matters fails under a fault, and then state says whether it goes wrong. A *breakable*
agent goes wrong while nothing has touched its state yet, so one that was run before shows nothing. Of the *safe* ones the
state decides nothing, or the run resets it, or no schedule within the budget gets far enough. A *dirty* agent breaks only in a
process that has executed it before, which no execution from the state after import is. A *shared* one keeps its state where
every process sees it; a *hash* one depends on the hash seed on its failure path. What is drawn is a guess: `oracle` decides.
"""

from __future__ import annotations

import random
import textwrap
from dataclasses import dataclass
from typing import Final

from tests.planted.stores import OWN, SHARED, Store

KINDS: Final = ("breakable", "safe", "dirty", "shared", "hash")
TOUCHES: Final = ("success", "end", "each", "failure", "retry", "nth", "tear-down", "set-up", "service", "spent")
DECISIONS: Final = ("amount", "approval", "retries", "branch", "order")
TIMEOUT, LOST, OUTAGE = "service.timeout", "service.lost_ack", "service.outage"

COIN_SEED: Final = 3489
"""Its first draw is below 0.01, and the next 400 are not; so it is for numpy's."""
NUMPY_SEED: Final = 9964


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A test module of a user, with the modules it imports."""

    name: str
    kind: str
    store: str
    touch: str
    decides: str
    variant: str
    budget: int
    faults: tuple[str, ...]
    files: dict[str, str]
    folders: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        return f"{self.store}; touched: {self.touch}; decides: {self.decides}; {self.variant}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What was drawn, before it is written."""

    name: str
    kind: str
    store: Store
    touch: str
    decides: str
    variant: str
    orders: int
    depth: int
    noise: int
    rate: int
    budget: int
    faults: tuple[str, ...]
    hash_test: str = ""


def draw(kind: str, name: str, stream: random.Random) -> Agent:
    """An agent of a kind, not yet tried."""
    if kind == "hash":
        return _written(_hash_plan(name, stream))
    while True:
        plan = _plan(kind, name, stream)
        if _possible(plan):
            return _written(plan)


def _plan(kind: str, name: str, stream: random.Random) -> _Plan:
    store = stream.choice(SHARED if kind == "shared" else OWN)
    touch = stream.choice(TOUCHES)
    variants = {
        "breakable": ("cold",),
        "safe": ("harmless", "unused", "reset", "threshold", "constant"),
        "dirty": ("warm",),
        "shared": ("cold", "harmless", "unused"),
    }[kind]
    depth = stream.choice((1, 1, 1, 2, 3))
    return _Plan(
        name=name, kind=kind, store=store, touch=touch, decides=stream.choice(DECISIONS), variant=stream.choice(variants),
        orders=stream.choice((1, 1, 2)), depth=depth, noise=stream.choice((0, 1, 1, 2)), rate=stream.randrange(10, 60),
        budget=stream.choice((4, 5, 8)), faults=stream.choice(((TIMEOUT, LOST), (TIMEOUT, LOST), (TIMEOUT, LOST, OUTAGE))),
    )  # fmt: skip


def _hash_plan(name: str, stream: random.Random) -> _Plan:
    words = stream.sample(("euro", "yen", "pound", "franc", "krone", "peso", "real", "rupee", "won", "zloty"), 8)
    count = stream.choice((2, 2, 3, 4, 5, 8))
    some = ", ".join(f'"{word}"' for word in words[:count])
    test = stream.choice((
        f'next(iter({{{some}}})) == "{words[0]}"', f'hash("{words[0]}" + order) % {count} == {stream.randrange(count)}',
        f'{{{some}}}.pop() == "{words[1]}"', f'min([{some}], key=hash) == "{words[0]}"',
        f'list(frozenset(({some},)))[-1] == "{words[1]}"', f'str({{{some}}}).startswith("{{\'{words[0]}")',
        f'list(dict.fromkeys({{{some}}})).index("{words[0]}") == {stream.randrange(count)}',
        f'hash(("{words[0]}", order)) % {count} == {stream.randrange(count)}',
        f'hash(b"{words[0]}") % {count} == {stream.randrange(count)}',
    ))  # fmt: skip
    return _Plan(
        name=name, kind="hash", store=OWN[0], touch="hash seed", decides=stream.choice(DECISIONS), variant=f"{count} words",
        orders=1, depth=1, noise=stream.choice((0, 1)), rate=stream.randrange(10, 60), budget=4, faults=(TIMEOUT, LOST),
        hash_test=test,
    )  # fmt: skip


def _possible(plan: _Plan) -> bool:
    """Whether the parts fit together; the oracle has the last word."""
    if plan.touch == "nth" and (plan.store.binary or plan.variant in ("reset", "threshold", "warm")):
        return False
    if plan.touch == "spent" and plan.decides != "retries":
        return False
    if plan.touch == "spent" and plan.variant == "cold" and plan.kind != "shared" and LOST not in plan.faults:
        return False
    if plan.touch in ("retry", "service", "spent") and plan.depth != 1:
        return False
    if plan.variant in ("reset", "warm"):
        return plan.touch in ("end", "each", "tear-down") and (plan.variant == "warm" or plan.store.forgets)
    if plan.variant == "threshold":
        return plan.touch == "failure" and not plan.store.binary and plan.orders == 1 and plan.depth == 1
    if plan.variant == "cold":
        needed = {1: 4, 2: 8, 3: 5}[plan.depth] if plan.touch != "retry" else (5 if OUTAGE in plan.faults else 8)
        return needed <= plan.budget and not (plan.depth == 3 and OUTAGE not in plan.faults)
    return True


# -- code -----------------------------------------------------------------------------------------------------------------

CONTRACTS: Final = {
    "amount": """
        @mat.trace_contract(start=0)
        def NAME_kept(seen, record):
            if record.action.name == "pay" and record.effected == "yes" and record.action.arguments["amount"] < 100:
                return mat.Violated("paid too little")
            return seen
        """,
    "approval": """
        @mat.trace_contract(start=frozenset())
        def NAME_kept(approved, record):
            if record.effected != "yes":
                return approved
            order = record.action.arguments.get("order")
            if record.action.name == "approve":
                return approved | {order}
            if record.action.name == "pay" and record.action.arguments["amount"] > 500 and order not in approved:
                return mat.Violated("paid without approval")
            return approved
        """,
    "retries": """
        @mat.trace_contract(start=frozenset())
        def NAME_kept(paid, record):
            if record.action.name != "pay" or record.effected != "yes":
                return paid
            order = record.action.arguments["order"]
            if order in paid:
                return mat.Violated("paid twice")
            return paid | {order}
        """,
    "branch": """
        @mat.trace_contract(start=0)
        def NAME_kept(seen, record):
            if record.action.name == "wipe" and record.effected == "yes":
                return mat.Violated("the order is gone")
            return seen
        """,
    "order": """
        @mat.trace_contract(start=frozenset())
        def NAME_kept(signed, record):
            if record.effected != "yes":
                return signed
            order = record.action.arguments.get("order")
            if record.action.name == "sign":
                return signed | {order}
            if record.action.name == "pay" and order not in signed:
                return mat.Violated("paid before it was signed")
            return signed
        """,
}
RIGHT: Final = {
    "amount": "pay(order, 100 * rate)",
    "approval": "approve(order)\npay(order, 900)",
    "retries": "pay(order, 10 * rate)",
    "branch": "pay(order, 10 * rate)",
    "order": "sign(order)\npay(order, 10 * rate)",
}
WRONG: Final = {
    "amount": "pay(order, 0)",
    "approval": "pay(order, 900)",
    "retries": "for _ in range(2):\n    pay(order, 100)",
    "branch": "wipe(order)",
    "order": "pay(order, 100)\nsign(order)",
}
TOOLS: Final = {
    "quote": ("read", "currency", "EURO"),
    "backup": ("read", "currency", "EURO"),
    "look": ("read", "order", "len(order)"),
    "browse": ("read", "order", "[order]"),
    "approve": ("write", "order", "True"),
    "sign": ("write", "order", "True"),
    "pay": ("write", "order, amount", '"paid"'),
    "wipe": ("write", "order", '"gone"'),
    "note": ("write", "order, text", "None"),
    "reserve": ("write", "order", "None"),
}


def _written(plan: _Plan) -> Agent:
    body = _module(plan)
    used = [tool for tool in TOOLS if f"{tool}(" in body]
    contract = textwrap.dedent(CONTRACTS[plan.decides]).strip()
    head = f'"""{plan.store.name}; touched: {plan.touch}; decides: {plan.decides}; {plan.kind}, {plan.variant}."""\n'
    parts = [
        head + "import pytest\n\nimport mat",
        plan.store.source if plan.kind != "hash" else "",
        f"FAULTS = (TimeoutError, ConnectionError)\nEURO = {plan.rate}",
        *(_tool(plan, tool) for tool in used),
        contract,
        body,
    ]
    code = "\n\n\n".join(part.strip() for part in parts if part.strip()) + "\n"
    boxed = bool(plan.store.scope)

    def fill(text: str) -> str:
        text = text.replace("BOX_ ", "box, " if boxed else "").replace("BOX_", "box, " if boxed else "")
        text = text.replace("BOX", "box" if boxed else "").replace("NPSEED", str(NUMPY_SEED))
        return text.replace("(SEED)", f"({COIN_SEED})").replace("NAME", plan.name)

    files = {f"test_{plan.name}.py": code, **plan.store.files}
    return Agent(
        name=plan.name, kind=plan.kind, store=plan.store.name if plan.kind != "hash" else "none", touch=plan.touch,
        decides=plan.decides, variant=plan.variant, budget=plan.budget, faults=plan.faults,
        files={fill(path): fill(text) for path, text in files.items()},
        folders=tuple(fill(path) for path in plan.store.folders),
    )  # fmt: skip


def _tool(plan: _Plan, name: str) -> str:
    effect, parameters, reply = TOOLS[name]
    body = f"return {reply}"
    if name == "reserve":
        body = 'return "ok" if tick(BOX) != 1 else "refused"'
        if plan.store.binary:
            body = 'return "ok" if tick(BOX) == 0 else "refused"'
        if plan.store.scope:
            body = body.replace("tick(BOX)", "tick(HELD[0])")
            return f'HELD = []\n\n\n@mat.tool(effect="{effect}")\ndef {name}({parameters}):\n    {body}'
    return f'@mat.tool(effect="{effect}")\ndef {name}({parameters}):\n    {body}'


def _cold(plan: _Plan) -> str:
    """Whether nothing has touched the state; a place that only counts is touched by asking."""
    return "recall(BOX) is None" if plan.store.holds else "tick(BOX) == 0"


def _touched(plan: _Plan) -> str:
    return "keep(BOX_ EURO)" if plan.store.holds else "tick(BOX)"


def _first(plan: _Plan, name: str) -> str:
    """Asks and touches."""
    if plan.store.holds:
        return f"{name} = recall(BOX) is None\nkeep(BOX_ EURO)"
    return f"{name} = tick(BOX) == 0"


def _handled(plan: _Plan, cold: str) -> str:
    """What becomes of an order whose call has failed."""
    if plan.variant in ("harmless", "constant"):
        return f"if {cold}:\n    told(order)"
    if plan.variant == "unused":
        return f"_ = {cold}"
    if plan.variant in ("reset", "warm"):
        return f"if not ({cold}):\n    wrong(order)"
    return f"if {cold}:\n    wrong(order)"


def _module(plan: _Plan) -> str:
    parts = [_helpers(plan), _settle(plan), _agent(plan), *_fixtures(plan), _test(plan)]
    return "\n\n\n".join(part.strip() for part in parts if part.strip())


def _helpers(plan: _Plan) -> str:
    right = _function("right(order, rate)", f"try:\n{_in(RIGHT[plan.decides])}\nexcept FAULTS:\n    return")
    wrong = _function("wrong(order)", f"try:\n{_in(WRONG[plan.decides])}\nexcept FAULTS:\n    return")
    told = _function("told(order)", 'try:\n    note(order, "gave up")\nexcept FAULTS:\n    return')
    fetch = {
        1: 'return quote("EUR")',
        2: 'try:\n    return quote("EUR")\nexcept FAULTS:\n    return backup("EUR")',
        3: 'for _ in range(2):\n    try:\n        return quote("EUR")\n    except FAULTS:\n        pass\nreturn quote("EUR")',
    }[plan.depth]
    handled = _handled(plan, "x")
    wanted = [right, _function("fetched()", fetch) if plan.touch not in ("service", "spent", "retry") else ""]
    wanted += [wrong if "wrong(" in handled or plan.variant == "threshold" else "", told if "told(" in handled else ""]
    return "\n\n\n".join(part for part in wanted if part)


def _function(head: str, body: str) -> str:
    return f"def {head}:\n{_in(body)}"


def _in(text: str, levels: int = 1) -> str:
    return textwrap.indent(text.strip(), "    " * levels)


def _looks(plan: _Plan) -> list[str]:
    """Calls whose faults are handled well; those count as failures where failures are counted."""
    touched = f"{_touched(plan)}" if plan.touch == "failure" and plan.variant not in ("threshold", "constant") else "pass"
    if plan.touch == "failure" and plan.variant == "threshold":
        touched = "tick(BOX)"
    return [f"try:\n    {tool}(order)\nexcept FAULTS:\n    {touched}" for tool in ("look", "browse")[: plan.noise]]


def _settle(plan: _Plan) -> str:
    """One order, from the first look to the payment."""
    if plan.kind == "hash":
        handler = f"if {plan.hash_test}:\n    wrong(order)"
        return _function("settle(order)", "\n".join([*_looks(plan), _asked(handler), "right(order, rate)"]))
    extra = {"each": ", first", "set-up": ", first"}.get(plan.touch, "")
    lines = [*_looks(plan), *_core(plan)]
    return _function(f"settle(BOX_ order{extra})", "\n".join(lines))


def _asked(handler: str) -> str:
    return f"try:\n    rate = fetched()\nexcept FAULTS:\n{_in(handler)}\n    return"


def _core(plan: _Plan) -> list[str]:
    still = plan.variant == "constant"
    touched = [] if still else [_touched(plan)]
    cold = _cold(plan)
    right = "right(order, rate)"
    if plan.touch == "success":
        return [_asked(_handled(plan, cold)), *touched, right]
    if plan.touch in ("end", "tear-down"):
        return [_asked(_handled(plan, cold)), right]
    if plan.touch in ("each", "set-up"):
        return [_asked(_handled(plan, "first")), right]
    if plan.touch == "failure":
        if plan.variant == "threshold":
            return [_asked("count = tick(BOX)\nif count >= 2:\n    wrong(order)"), right]
        asked = f"first = {cold}" if still else _first(plan, "first")
        return [_asked(asked + "\n" + _handled(plan, "first")), right]
    if plan.touch == "nth":
        return [
            "count = tick(BOX)" if not still else "count = 0",
            _asked(_handled(plan, f"count < {max(plan.orders, 2) - 1}")),
            right,
        ]
    if plan.touch == "retry":
        first = f"first = {cold}" if still else _first(plan, "first")
        again = f"try:\n    rate = quote('EUR')\nexcept FAULTS:\n{_in(_handled(plan, 'first'))}\n    return"
        return [f"try:\n    rate = quote('EUR')\nexcept FAULTS:\n{_in(first)}\n{_in(again)}", right]
    if plan.touch == "service":
        handled = {
            "cold": "wrong(order)", "harmless": "told(order)", "unused": "_ = order", "constant": "told(order)",
        }[plan.variant]  # fmt: skip
        again = "try:\n    reply = reserve(order)\nexcept FAULTS:\n    return"
        asked = f"try:\n    reply = reserve(order)\nexcept FAULTS:\n{_in(again)}"
        return [asked, f'if reply == "refused":\n{_in(handled)}\n    return', "rate = EURO", right]
    assert plan.touch == "spent", plan.touch
    first = f"first = {cold}" if still else _first(plan, "first")
    again = {"cold": "pay(order, EURO)", "harmless": 'note(order, "once more")', "unused": "_ = order", "constant": "_ = order"}
    handler = f"{first}\nif first:\n    try:\n        {again[plan.variant]}\n    except FAULTS:\n        pass"
    return [f"try:\n    pay(order, EURO)\nexcept FAULTS:\n{_in(handler)}"]


def _agent(plan: _Plan) -> str:
    orders = ", ".join(f'"o{number}"' for number in range(1, _orders(plan) + 1))
    if plan.kind == "hash":
        return _function("agent()", f"for order in ({orders},):\n    settle(order)")
    head = ["forget(BOX)"] if plan.variant == "reset" else []
    if plan.touch == "each":
        head.append(_first(plan, "first") if plan.variant != "constant" else f"first = {_cold(plan)}")
    if plan.touch == "service" and plan.store.scope:
        head.append("HELD[:] = [BOX]")
    extra = ", first" if plan.touch in ("each", "set-up") else ""
    loop = f"for order in ({orders},):\n    settle(BOX_ order{extra})"
    tail = [_touched(plan)] if plan.touch == "end" and plan.variant != "constant" else []
    parameters = "BOX_ first" if plan.touch == "set-up" else "BOX"
    return _function(f"agent({parameters})", "\n".join([*head, loop, *tail]))


def _orders(plan: _Plan) -> int:
    return max(plan.orders, 2) if plan.touch == "nth" else plan.orders


def _fixtures(plan: _Plan) -> list[str]:
    found = []
    if plan.store.scope:
        value = '{"desk": Desk()}' if plan.store.scope == "session-desk" else "{}"
        found.append(f'@pytest.fixture(scope="{plan.store.scope.split("-")[0]}")\ndef box():\n    return {value}')
    if plan.touch == "tear-down" and plan.variant != "constant":
        found.append("@pytest.fixture\n" + _function("closing(BOX)", f"yield\n{_touched(plan)}"))
    if plan.touch == "set-up":
        first = _first(plan, "first") if plan.variant != "constant" else f"first = {_cold(plan)}"
        found.append("@pytest.fixture\n" + _function("opening(BOX)", f"{first}\nreturn first"))
    return found


def _test(plan: _Plan) -> str:
    names = ["mat_run", *(["box"] if plan.store.scope else [])]
    names += ["closing"] if plan.touch == "tear-down" and plan.variant != "constant" else []
    names += ["opening"] if plan.touch == "set-up" else []
    faults = ", ".join(f'"{fault}"' for fault in plan.faults)
    call = "agent(BOX_ opening)" if plan.touch == "set-up" else "agent(BOX)" if plan.kind != "hash" else "agent()"
    marker = f"@pytest.mark.mat(budget={plan.budget}, faults=[{faults}], contracts=[NAME_kept], vacuous='NAME_kept')"
    return f"{marker}\ndef test_NAME({', '.join(names)}):\n    {call}"
