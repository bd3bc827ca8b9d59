"""Multi-agent teams on research questions: Magentic-One's (an orchestrator with surfers) and generated group chats.

Nothing states a policy for them, so the contracts are general: templates of `mat_contracts`, and what any team that answers
questions owes. Everything is read from texts by rules for English. Where a rule can only suspect, as where code prints
nothing, the contract is soft and names no step.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from mat.core.record import ActionKind, Record
from mat.core.verdict import Severity
from mat.monitor.contract import Contract, Violated
from mat_contracts.coordination import no_oscillation, replanning_without_execution
from mat_contracts.progress import terminates
from mat_contracts.retry import no_retry_storm

_TERMINAL = "Computer_terminal"
_MADE_UP = re.compile(
    r"\b(?:let(?:'s| us) assume|(?:I(?:'ll| will)|we(?:'ll| will| can)?) (?:assume|simulate|pretend|mock)|assum(?:e|ing) "
    r"(?:that )?(?:the|we|these|this|it)\b|for (?:the purpose of )?(?:demonstration|illustration|this example)|"
    r"hypothetical(?:ly)?|placeholder|dummy data|mock (?:data|response)|example data|simulated? (?:data|results?))",
    re.IGNORECASE,
)
_LOOKED = re.compile(
    r"\b(?:upon (?:review(?:ing)?|examin(?:ing|ation)|check(?:ing)?|inspection|verif\w+|research\w*)|"
    r"(?:I|we)(?:'ve| have)? (?:found|reviewed|checked|verified|looked up|searched|confirmed|identified|located|visited|"
    r"gathered)|"
    r"based on (?:my|our|the) (?:search|research|review|findings|verification|knowledge))",
    re.IGNORECASE,
)
_EMPTY = re.compile(
    r"\s*(?:\[\s*\]|\{\s*\}|none|null|nan|0|0\.0+%?|empty dataframe.*|no (?:results?|data|matches?)\b.*|not found.*|)\s*",
    re.IGNORECASE | re.DOTALL,
)
_FAILED = re.compile(
    r"\b(?:40[0-9]|50[0-9])\b.{0,20}(?:error|forbidden|not found|unavailable)|access denied|captcha|verify (?:you|that you)"
    r" are (?:a )?human|page (?:not found|can't be reached)|an error occurred|something went wrong|"
    r"unable to (?:access|load|open)|could ?n[o']t (?:find|access|load|open)|no results found",
    re.IGNORECASE | re.DOTALL,
)
_NOTICED = re.compile(
    r"\b(?:error|fail\w*|issue|problem|unable|could ?n[o']t|cannot|can't|not (?:work|find|found|available|able)|instead|"
    r"another|different|alternative|retry|try again|fix\w*|correct\w*|no (?:results?|data)|empty|did not|didn't|block\w*)\b",
    re.IGNORECASE,
)
_COVERAGE = re.compile(r"viewport shows (\d+)% of the webpage", re.IGNORECASE)
_PAGE = re.compile(r"screenshot of \[([^\]]*)\]\((\S+?)\)")
_RESULTS = re.compile(r"- Search\b|/search\b|search\?|[?&](?:q|query|s)=|just a moment|/results\b", re.IGNORECASE)
"""A list of results is there to choose from, not to be read."""
_WITHIN = re.compile(
    r"\b(?:click|open|select|follow|links?|tabs?|section|menu|button"
    r"|(?:this|the|that|same|current) (?:page|site|website|article|document|list|table|map|results?))\b",
    re.IGNORECASE,
)
"""Words of an instruction that goes on with the page."""
_MORE = re.compile(r"\b(?:scroll\w*|next page|page down|further down|rest of|continue|full page|more of)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """Where a conversation stands.

    `said_at`: the last message; `worked`: something ran or acted since it; `failing`: the reply that reports a failure;
    `partial`: the reply that saw the top of a page, and `decided`, the first thought after it; `page`: its address; `left`:
    pages left like that, and not seen again; `tasks`: instructions given.
    """

    begun: bool = False
    said_at: int = -1
    worked: bool = False
    failing: int = -1
    partial: int = -1
    decided: int = -1
    page: str = ""
    left: tuple[tuple[str, int, int], ...] = ()
    tasks: tuple[tuple[str, str], ...] = ()
    flagged: bool = False


_KINDS: frozenset[ActionKind] = frozenset(("message", "model_call", "tool_call", "delegation", "final_response"))
_TASKS = 40
"""Instructions remembered for repetition."""
Check = Callable[[Talk, Record], "Violated | None"]


def contracts() -> tuple[Contract, ...]:
    """General contracts of teams, the same for both kinds."""
    return (
        _rule("no_made_up_data", "results rest on data, not on assumed, simulated or placeholder data", _made_up),
        _rule("code_runs", "code that is handed over runs", _code_runs),
        _rule("code_finds", "code that is handed over finds something", _code_finds, severity="soft"),
        _rule("looked_before_told", "who says what it found has looked: a tool ran or an agent acted before", _looked_first),
        _rule("failure_noticed", "a reply that reports a failure is noticed in what is said next", _failure_noticed),
        _rule("whole_page_read", "a page of which the top was seen is read on, or seen again before the answer", _page_read),
        _rule("no_repeated_instruction", "an agent is not given the same instruction again", _new_instruction),
        _rule("ledger_moves", "the ledger does not say that the team is in a loop or stands still", _ledger_moves),
        no_oscillation(
            id="template.no_oscillation", compare="names", times=4, kinds=("delegation", "tool_call"), severity="soft"
        ),
        no_retry_storm(id="template.no_retry_storm"),
        replanning_without_execution(id="template.replanning_without_execution", planning=_plans, effective=_executes),
        terminates(id="template.terminates"),
    )


def _rule(name: str, text: str, check: Check, *, severity: Severity = "hard") -> Contract:
    def step(talk: Talk, record: Record) -> Talk | Violated:
        found, new = check(talk, record), after(talk, record)
        return new if found is None else replace(found, state=new, wanted=found.wanted or text)

    return Contract(id=f"team.{name}", step=step, start=Talk(), kinds=_KINDS, text=text, severity=severity, repair=text)


def after(talk: Talk, record: Record) -> Talk:
    """What is known after a record."""
    kind, text = record.action.kind, text_of(record)
    if kind == "tool_call":
        failing = record.step if record.observation.error is not None else -1
        return replace(talk, worked=True, failing=failing)
    if kind == "delegation":
        given = (record.action.name, _plain(text))
        tasks = (*(item for item in talk.tasks if item != given), given)[-_TASKS:]
        return replace(talk, tasks=tasks, left=_left(talk, record), failing=-1, partial=-1, worked=False)
    if kind == "model_call":
        first = record.step if talk.partial >= 0 and talk.decided < 0 else talk.decided
        return replace(talk, flagged=_stuck(record), decided=first)
    acts = record.action.name == "Orchestrator"
    seen = _COVERAGE.search(text) if acts else None
    page = _PAGE.search(text) if seen is not None else None
    address = "" if page is None else page[2].partition("#")[0]
    at_top = seen is not None and int(seen[1]) < 100 and "top of the page" in text[seen.end() : seen.end() + 80]
    partial = record.step if at_top and page is not None and not _RESULTS.search(f"{page[1]} {page[2]}") else -1
    failing = record.step if acts and _FAILED.search(text) else -1
    return replace(
        talk, begun=True, said_at=record.step, worked=acts, failing=failing, partial=partial, decided=-1, page=address,
        left=tuple(item for item in talk.left if item[0] != address),
    )  # fmt: skip


def text_of(record: Record) -> str:
    """What a record says, whatever its kind."""
    arguments = record.action.arguments
    for name in ("text", "task", "answer"):
        if isinstance(arguments.get(name), str):
            return str(arguments[name])
    value = record.observation.value
    return value if isinstance(value, str) else ""


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _in_chat(talk: Talk, record: Record) -> bool:
    """Whether a record is a message to the group after the task was given."""
    return talk.begun and record.action.kind in ("message", "final_response") and record.action.name in ("group_chat", "answer")


def _made_up(talk: Talk, record: Record) -> Violated | None:
    found = _MADE_UP.search(text_of(record)) if _in_chat(talk, record) else None
    return None if found is None else Violated(f"{record.agent} goes on with {found[0]!r}", witness=(record.step,))


def _code_runs(talk: Talk, record: Record) -> Violated | None:
    error = record.observation.error
    if record.action.kind != "tool_call" or error is None or talk.said_at < 0:
        return None
    return Violated(
        f"the code of step {talk.said_at} failed: {error.message[:80]}", step=talk.said_at, witness=(talk.said_at, record.step)
    )


def _code_finds(talk: Talk, record: Record) -> Violated | None:
    value = record.observation.value
    if record.action.kind != "tool_call" or not isinstance(value, str) or not _EMPTY.fullmatch(value) or talk.said_at < 0:
        return None
    return Violated(f"the code of step {talk.said_at} found nothing", step=talk.said_at, witness=(talk.said_at, record.step))


def _looked_first(talk: Talk, record: Record) -> Violated | None:
    text = text_of(record) if _in_chat(talk, record) else ""
    found = _LOOKED.search(text)
    if found is None or talk.worked or "```" in text:
        return None
    return Violated(f"{record.agent} says {found[0]!r}, and nothing was run or fetched for it", witness=(record.step,))


def _failure_noticed(talk: Talk, record: Record) -> Violated | None:
    answers = _in_chat(talk, record) or record.action.kind == "delegation"
    if talk.failing < 0 or not answers or _NOTICED.search(text_of(record)):
        return None
    return Violated(
        f"step {talk.failing} reports a failure, and {record.agent} goes on as if it did not",
        witness=(talk.failing, record.step),
    )


def _page_read(talk: Talk, record: Record) -> Violated | None:
    """The pages that were left after a look at their top, and are still unread when the answer is given."""
    if record.action.kind != "final_response":
        return None
    found = [
        Violated(
            f"step {partial} saw the top of {page}, the team asked for something else, and nobody saw more of it", step=step,
            witness=(partial, record.step), instance=page,
        )
        for page, partial, step in talk.left
    ]  # fmt: skip
    return replace(found[0], more=tuple(found[1:])) if found else None


def _left(talk: Talk, record: Record) -> tuple[tuple[str, int, int], ...]:
    """The pages left unread after an instruction: it asks for something else than more of the page that was just seen."""
    if talk.partial < 0 or _MORE.search(text_of(record)) or _WITHIN.search(text_of(record)):
        return talk.left
    step = talk.decided if talk.decided >= 0 else record.step
    return (*(item for item in talk.left if item[0] != talk.page), (talk.page, talk.partial, step))[-_TASKS:]


def _new_instruction(talk: Talk, record: Record) -> Violated | None:
    if record.action.kind != "delegation" or (record.action.name, _plain(text_of(record))) not in talk.tasks:
        return None
    return Violated(f"{record.action.name} gets an instruction it had before", witness=(record.step,))


def _stuck(record: Record) -> bool:
    state = record.state
    return state.get("is_in_loop") is True or state.get("is_progress_being_made") is False


def _ledger_moves(talk: Talk, record: Record) -> Violated | None:
    if record.action.kind != "model_call" or not _stuck(record) or talk.flagged:
        return None
    return Violated(
        "the ledger says that the team is in a loop or makes no progress", step=max(talk.said_at, 0),
        witness=(max(talk.said_at, 0), record.step),
    )  # fmt: skip


def _plans(record: Record) -> bool:
    said = text_of(record).lstrip().casefold()
    return record.action.kind == "model_call" and said.startswith(
        ("initial plan", "updated plan", "new plan", "we are working to")
    )


def _executes(record: Record) -> bool:
    return record.action.kind == "tool_call" or (record.action.kind == "message" and record.action.name == "Orchestrator")
