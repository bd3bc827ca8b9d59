"""The session: turns, attempts, tools, the context guard and the final report. `Keeps` are promises that a test can break."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import mat
from session.contracts import SessionConfig, Target
from session.contracts.parsing import parsed, repaired, schema_problem, unfolded
from session.contracts.settings import BATCH, FINAL
from session.provider import Provider, tokens
from session.toolbox import Behaviour, Execute, execution, wrapped
from session.transports import Request, TagStream, Transport, transport_of

NOTICE: Final = "System notice: plain text responses without tool calls are ignored. Use final_report to provide your answer."
OVERFLOW: Final = "context window budget exceeded"
FINAL_INSTRUCTION: Final = "Answer now with what you know. No other tools are left."
FATAL: Final = ("auth", "quota")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeps:
    """The promises of the session. Each switch breaks one of them."""

    max_turns: bool = True
    retries_are_no_turns: bool = True
    max_retries: bool = True
    empties_count: bool = True
    round_robin: bool = True
    fatal_at_once: bool = True
    retry_after: bool = True
    backoff: bool = True
    longest_wait: bool = True
    backoff_cap: bool = True
    at_once: bool = True
    all_attempts: bool = True
    notice: bool = True
    invalid_notice: bool = True
    notice_not_stored: bool = True
    empty_not_stored: bool = True
    call_limit: bool = True
    tells_excess: bool = True
    truncates: bool = True
    times_out: bool = True
    slots: bool = True
    waits_for_slots: bool = True
    checks_parameters: bool = True
    repairs: bool = True
    turn_guard: bool = True
    strict_guard: bool = True
    tool_guard: bool = True
    stops_tools: bool = True
    restricts: bool = True
    sampling: bool = True
    decodes: bool = True
    parses_nested: bool = True
    collapses: bool = True
    report_by_tag: bool = True
    last_tag: bool = True
    cut_is_retried: bool = True
    unclosed_is_taken: bool = True
    matches_nonce: bool = True
    synthetic_report: bool = True
    exit_code: bool = True
    always_answers: bool = True
    keeps_reasoning: bool = True
    text_fallback: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The AIAgentResult, and the code with which the command would exit."""

    success: bool
    final_report: dict[str, Any] | None
    conversation: list[dict[str, Any]]
    accounting: list[dict[str, Any]]
    error: str = ""
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as returned to the caller."""
        found: dict[str, Any] = {"success": self.success, "conversation": self.conversation, "accounting": self.accounting}
        if self.final_report is not None:
            found["finalReport"] = self.final_report
        return {**found, **({"error": self.error} if self.error else {}), "exitCode": self.exit_code}


class Ledger:
    """An append-only array of the result; additions pass a memory boundary."""

    def __init__(self, name: str) -> None:
        self.items: list[dict[str, Any]] = []
        self._memory = mat.memory({}, name=name)

    def append(self, item: dict[str, Any]) -> None:
        self.items.append(item)
        self._memory[str(len(self.items))] = item


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A call of a reply, with arguments or with the reason why it cannot run."""

    id: str
    name: str
    arguments: dict[str, Any] | None
    problem: str = ""


@dataclass(slots=True)
class Counters:
    """Tokens: committed by the last response, waiting for the next request, added in this turn, and of tool outputs."""

    current: int = 0
    pending: int = 0
    new: int = 0
    outputs: int = 0

    def flush(self) -> None:
        self.pending, self.new = self.pending + self.new, 0


@dataclass(slots=True)
class Waits:
    """Rate limits of a turn: until when each target must wait, how often it was limited, and the waits of the cycle."""

    until: dict[int, float] = field(default_factory=dict)
    limited: dict[int, int] = field(default_factory=dict)
    cycle: list[float] = field(default_factory=list)


class Rejected(Exception):  # noqa: N818  (a reply was rejected)
    """A reply that cannot be used. `notice` is the retry's text for the model; `status` goes into the accounting."""

    def __init__(self, why: str, notice: str) -> None:
        self.notice = notice
        super().__init__(why)


class Session:
    """One session. Make a new one for each task."""

    def __init__(
        self,
        config: SessionConfig,
        provider: Provider,
        tools: Mapping[str, Behaviour],
        *,
        keeps: Keeps = Keeps(),
        nonce: str = "5e551011",
    ) -> None:
        self.config, self.keeps, self._provider = config, keeps, provider
        self.conversation, self.accounting, self._log = Ledger("conversation"), Ledger("accounting"), Ledger("log")
        self._transport: Transport = transport_of(config, nonce)
        self._execute: dict[str, Execute] = {
            tool.name: execution(tool.name, tools[tool.name]) for tool in config.tools if tool.name in tools
        }
        self._execute[BATCH] = wrapped(BATCH, self._batch)
        self._execute[FINAL] = wrapped(FINAL, self._final)
        self._queues: dict[str, asyncio.Semaphore] = {}
        self._counters = Counters()
        self._last_turn = config.max_turns or 1
        self._forced = self._overflowed = False
        self._report: dict[str, Any] | None = None
        self._waiting: dict[str, int] = {}
        self._turn = 0
        self._target = config.targets[0]

    async def run(self, task: str) -> Result:
        """The result, whatever happens."""
        self._queues = {
            name: asyncio.Semaphore(slots if self.keeps.slots else 99) for name, slots in self.config.queues.items()
        }
        try:
            result = await self._session(task)
        except Exception as error:
            if not self.keeps.always_answers:
                raise
            result = self._failed(f"internal error: {error}")
        return self.ended(result)

    def ended(self, result: Result) -> Result:
        answer = {key: item for key, item in result.as_dict().items() if key not in ("conversation", "accounting")}
        mat.finish(answer, status="completed" if result.success else "failed")
        return result

    def refused(self, error: str, exit_code: int) -> Result:
        """The result of a session that could not start."""
        return self.ended(
            Result(success=False, final_report=None, conversation=[], accounting=[], error=error, exit_code=exit_code)
        )

    def _failed(self, error: str, report: dict[str, Any] | None = None) -> Result:
        return Result(
            success=False,
            final_report=report,
            conversation=self.conversation.items,
            accounting=self.accounting.items,
            error=error,
            exit_code=1 if self.keeps.exit_code else 0,
        )

    def _add(self, message: dict[str, Any], *, output: bool = False) -> None:
        self.conversation.append(message)
        cost = tokens(json.dumps(message))
        if message["role"] != "assistant":  # the provider has counted its own reply
            self._counters.new += cost
            self._counters.outputs += cost if output else 0

    # -- turns ------------------------------------------------------------------------------------------------------

    async def _session(self, task: str) -> Result:
        self._add({"role": "system", "content": self._transport.system_prompt()})
        self._add({"role": "user", "content": task})
        extra = 0 if self.keeps.max_turns else 1
        while self._turn < self._last_turn + extra:
            self._turn += 1
            fatal = await self._take_turn()
            if fatal:
                return self._failed(fatal)
            if self._report is not None:
                return Result(
                    success=True,
                    final_report=self._report,
                    conversation=self.conversation.items,
                    accounting=self.accounting.items,
                )
        return self._exhausted()

    def _exhausted(self) -> Result:
        if not self.keeps.synthetic_report:
            return self._failed("")
        reason = "context_window_exceeded" if self._forced else "max_turns_exhausted"
        if not self._forced and self._last_turn < (self.config.max_turns or 1):
            reason = "final_report_failed"
        text = (
            "The session ended without an answer: "
            + {
                "max_turns_exhausted": "the maximum number of turns (max turns) was reached.",
                "context_window_exceeded": "the context window was used up.",
                "final_report_failed": "the final report could not be used.",
            }[reason]
        )
        return self._failed("", self._finished("failure", text, {"reason": reason}))

    def _finished(self, status: str, content: Any, metadata: Mapping[str, Any] | None = None) -> dict[str, Any]:
        format = self.config.expected_output_format
        name = (
            {"json": "content_json", "slack-block-kit": "messages"}.get(format, "content") if status == "success" else "content"
        )
        found = {"status": status, "format": format, "ts": int(time.time() * 1000), name: content}
        return {**found, "metadata": dict(metadata)} if metadata else found

    async def _take_turn(self) -> str:
        """One turn with all its attempts; the text of a fatal error, or nothing."""
        config, waits, notice, counted = self.config, Waits(), "", 0
        most = (config.max_retries or 1) + (0 if self.keeps.max_retries else 1)
        number = 0
        while counted < most:
            number += 1
            index = (number - 1) % len(config.targets) if self.keeps.round_robin else 0
            await self._rest(waits, index)
            self._target = config.targets[index]
            reply, request, began = await self._ask(self._target, notice)
            error, notice, counted = reply.get("error"), "", counted + 1
            if error is None:
                try:
                    await self._use(reply, request, config.targets[index], began)
                except Rejected as rejected:
                    self._bill(config.targets[index], reply, began, error=str(rejected))
                    notice = rejected.notice
                    if not self.keeps.empties_count:
                        counted -= 1
                        if number > most:
                            return ""
                    continue
                return ""
            self._bill(config.targets[index], reply, began, error=error["message"])
            if error["kind"] in FATAL and self.keeps.fatal_at_once:
                return f"{error['kind']} error: {error['message']}"
            if error["kind"] == "invalid" and self.keeps.invalid_notice:
                notice = "System notice: the last response could not be read. Please answer again."
            self._limited(waits, index, error)
            if not self.keeps.at_once and error["kind"] in ("network", "timeout", "model"):
                await asyncio.sleep(2)
            if not self.keeps.all_attempts:
                return "gave up after the first error"
        if not self.keeps.retries_are_no_turns:
            self._turn += number - 1
        if not self.keeps.always_answers:
            raise RuntimeError(f"all {number} attempts of turn {self._turn} failed")
        return ""

    def _limited(self, waits: Waits, index: int, error: Mapping[str, Any]) -> None:
        """Note what a failed attempt means for the next ones."""
        if len(waits.cycle) == len(self.config.targets):
            waits.cycle = []
        if error["kind"] != "rate_limit":
            waits.cycle.append(0)
            waits.until.pop(index, None)
            waits.limited.pop(index, None)
            return
        waits.limited[index] = count = waits.limited.get(index, 0) + 1
        given = error.get("retry_after_ms")
        most = 60 if self.keeps.backoff_cap else 600
        wait = min(2 ** (count - 1), most) if given is None else given / 1000
        if given is None and not self.keeps.backoff:
            wait = 0.5
        if given is not None and not self.keeps.retry_after:
            wait = min(2 ** (count - 1), 60)
        waits.until[index] = time.monotonic() + wait
        waits.cycle.append(wait)

    async def _rest(self, waits: Waits, index: int) -> None:
        """Wait for a limited target; after a fully limited cycle, for the longest wait of that cycle."""
        wait = waits.until.get(index, 0) - time.monotonic()
        if len(waits.cycle) == len(self.config.targets) and all(waits.cycle) and self.keeps.longest_wait:
            wait = max(wait, *waits.cycle)
        if wait > 0:
            await asyncio.sleep(wait)

    # -- one attempt ------------------------------------------------------------------------------------------------

    async def _ask(self, target: Target, notice: str) -> tuple[dict[str, Any], Request, float]:
        """The provider's reply to a request that the guard has let through."""
        extra = [{"role": "user", "content": notice}] if notice and self.keeps.notice else []
        if notice and not self.keeps.notice_not_stored:
            self._add(extra.pop())
        self._counters.flush()
        request, counters, after = self._guarded(target, extra)
        meta = {"turn": self._turn, "context": counters, **({"context_after": after} if after else {})}
        self._prepared(target, counters if after is None else after)
        settings = (
            {**self.config.settings, **target.settings} if self.keeps.sampling else {**self.config.settings, "temperature": 1.0}
        )
        settings |= {name: value for name, value in self.config.reasoning.items() if target.reasoning and value}
        began = time.monotonic()
        try:
            reply = await self._provider.complete(
                target.provider, target.model, request.messages, request.tools, request.tool_choice, settings, meta
            )
        except TimeoutError as error:
            reply = {"error": {"kind": "timeout", "message": str(error)}}
        except mat.errors.RateLimited as error:
            after_ms = None if error.retry_after_s is None else round(error.retry_after_s * 1000)
            reply = {"error": {"kind": "rate_limit", "message": str(error), "retry_after_ms": after_ms}}
        except ConnectionError as error:
            reply = {"error": {"kind": "network", "message": str(error)}}
        except MatErrors:
            raise
        except Exception as error:
            reply = {"error": {"kind": "model", "message": str(error)}}
        if not isinstance(reply, dict) or not ("error" in reply or "usage" in reply):
            reply = {"error": {"kind": "invalid", "message": "the provider's response cannot be read"}}
        return reply, request, began

    def _guarded(self, target: Target, extra: list[dict[str, Any]]) -> tuple[Request, dict[str, int], dict[str, int] | None]:
        """The request, the counters by which the guard judged it, and those after shrinking, if any."""
        final = self._forced or self._turn >= self._last_turn
        request = self._request(extra, final=final)
        counters = self._projection(request, extra)
        if not self._fires(target, counters, "turn_preflight") and not self._overflowed:
            return request, counters, None
        self._forced = True
        self._log.append({"event": "forced_final_turn", "forcedFinalTurnReason": "context"})
        if not self.keeps.restricts:
            return request, counters, None
        request = self._request(extra, final=True)
        after = self._projection(request, extra)
        if sum(after[name] for name in ("current", "pending", "schema")) > (self.config.limit or 0):
            self._log.append({"event": "post_shrink_overflow", "severity": "warn"})
        return request, counters, after

    def _request(self, extra: list[dict[str, Any]], *, final: bool) -> Request:
        closing = [{"role": "system", "content": FINAL_INSTRUCTION}] if final else []
        return self._transport.request([*self.conversation.items, *extra, *closing], turn=self._turn, final=final)

    def _projection(self, request: Request, extra: list[dict[str, Any]]) -> dict[str, int]:
        pending = self._counters.pending + sum(tokens(json.dumps(item)) for item in extra)
        return {
            "current": self._counters.current,
            "pending": pending,
            "new": 0,
            "schema": request.schema_tokens,
            "outputs": self._counters.outputs,
        }

    def _fires(self, target: Target | None, counters: Mapping[str, int], trigger: str) -> bool:
        """Whether a projection exceeds the limit; every decision is logged."""
        limit = self.config.limit
        if limit is None:
            return False
        projected = counters["current"] + counters["pending"] + counters["new"] + counters["schema"]
        fired = projected > limit if self.keeps.strict_guard else projected >= limit
        fired = fired and (self.keeps.turn_guard or trigger != "turn_preflight")
        entry = {
            "event": "context_guard",
            "trigger": trigger,
            "currentCtxTokens": counters["current"],
            "newCtxTokens": counters["new"],
            "pendingCtxTokens": counters["pending"],
            "schemaCtxTokens": counters["schema"],
            "projected_tokens": projected,
            "limit_tokens": limit,
            "fired": fired,
        }
        target = target or self._target
        self._log.append({**entry, "provider": target.provider, "model": target.model})
        return fired

    def _prepared(self, target: Target, counters: Mapping[str, int]) -> None:
        current, pending, schema = counters["current"], counters["pending"], counters["schema"]
        self._log.append(
            {
                "event": "llm_request_prepared",
                "message": "LLM request prepared",
                "ctxTokens": current,
                "pendingCtxTokens": pending,
                "newTokens": pending,
                "schemaCtxTokens": schema,
                "expectedTokens": current + pending + schema,
                "target": target.provider,
            }
        )

    def _bill(self, target: Target, reply: Mapping[str, Any], began: float, error: str = "") -> None:
        usage = reply.get("usage") or {}
        read, wrote, cached = (usage.get(name, 0) for name in ("inputTokens", "outputTokens", "cacheReadTokens"))
        entry = {
            "type": "llm",
            "provider": target.provider,
            "model": target.model,
            "status": "failed" if error else "ok",
            "latency": round((time.monotonic() - began) * 1000),
            "timestamp": _stamp(began),
            "tokens": {
                "inputTokens": read,
                "outputTokens": wrote,
                "cachedTokens": cached,
                "totalTokens": read + wrote + cached,
            },
        }
        self.accounting.append({**entry, "error": error} if error else {**entry, "stopReason": reply.get("stop_reason", "")})
        if usage and not error:
            self._counters.current = read + wrote + cached
            self._counters.pending = self._counters.outputs = 0

    # -- replies ----------------------------------------------------------------------------------------------------

    async def _use(self, reply: dict[str, Any], request: Request, target: Target, began: float) -> None:
        """Store a reply and do what it asks; Rejected if there is nothing to do."""
        found = self._transport.calls(reply, request, self.keeps)
        asked = [self._read(id, name, raw, request) for id, name, raw in found.calls]
        text, reasoning = reply.get("content") or "", reply.get("reasoning") or ""
        final = self._turn >= self._last_turn or self._forced
        self._refuse(found, asked, text, reasoning, final=final)
        self._bill(target, reply, began)
        if found.warn:
            self._log.append(
                {"event": "unclosed_final_report", "severity": "warn", "stop_reason": reply.get("stop_reason", "")}
            )
        message = {"role": "assistant", "content": text}
        if reply.get("tool_calls"):
            message["toolCalls"] = reply["tool_calls"]
        self._add({**message, "reasoning": reasoning} if reasoning else message)
        if found.report is not None:
            await self._take_report(found.report)
        elif asked:
            await self._run_calls(asked, request)
        elif text.strip() and final and self.config.transport == "native" and self.keeps.text_fallback:
            self._report = self._finished("success", text.strip())

    def _refuse(self, found: Any, asked: list[Asked], text: str, reasoning: str, *, final: bool) -> None:
        if found.cut:
            raise Rejected(
                "malformed response: the final report is cut off",
                "System notice: your final report was cut off. Please send it again.",
            )
        native = self.config.transport == "native"
        if not asked and found.report is None:
            proceeds = (native and reasoning.strip() and not text.strip() and self.keeps.keeps_reasoning) or (
                native and text.strip() and final
            )
            if not proceeds and (self.keeps.empty_not_stored or text.strip()):
                raise Rejected("empty response", NOTICE)
        if asked and found.report is None and all(item.problem for item in asked):
            problems = "; ".join(f"{item.id} ({item.name}): {item.problem}" for item in asked)
            self._log_failures(asked, found)
            raise Rejected(
                "malformed tool calls", f"System notice: your tool calls could not be used: {problems}. Please try again."
            )
        self._log_failures(asked, found)

    def _log_failures(self, asked: list[Asked], found: Any) -> None:
        raws = {id: raw for id, _, raw in found.calls}
        for item in asked:
            raw = raws[item.id]
            if item.arguments is None and isinstance(raw, str):
                self._log.append({"event": "tool_arguments_unreadable", "severity": "error", "payload": raw})
            elif isinstance(raw, str) and parsed(raw) is None:
                entry = {"event": "tool_arguments_repaired", "severity": "warn", "original": raw, "repaired": item.arguments}
                self._log.append(entry)

    def _read(self, id: str, name: str, raw: Any, request: Request) -> Asked:
        """A call with its arguments: JSON first, then repair, then the tool's schema."""
        if raw is None:
            return Asked(id=id, name=name, arguments=None, problem="its tag is not closed")
        arguments = parsed(raw)
        if arguments is None and self.keeps.repairs:
            arguments = repaired(raw)
        if arguments is None:
            return Asked(id=id, name=name, arguments=None, problem="its arguments are not valid JSON, please retry")
        schema = request.schemas.get(name)
        if schema is None and name not in request.schemas:
            return Asked(id=id, name=name, arguments=dict(arguments), problem=f"no tool is called {name}")
        problem = schema_problem(arguments, schema) if self.keeps.checks_parameters else ""
        return Asked(id=id, name=name, arguments=dict(arguments), problem=problem)

    async def _run_calls(self, asked: list[Asked], request: Request) -> None:
        limit, running = self.config.max_tool_calls_per_turn or len(asked), []
        for index, item in enumerate(asked):
            if index >= limit and self.keeps.call_limit:
                if self.keeps.tells_excess:
                    self._answer(item, "failed", 0, f"(tool failed: more than {limit} tool calls in one turn)")
            elif item.problem:
                self._answer(item, "failed", 0, f"(tool failed: {item.problem})")
            else:
                running.append(self._run_tool(item))
        await asyncio.gather(*running)

    # -- tools ------------------------------------------------------------------------------------------------------

    def _answer(self, item: Asked, status: str, duration_ms: int, text: str, *, output: bool = False) -> None:
        for message in self._transport.answers(item.id, item.name, status, duration_ms, item.arguments or {}, text):
            self._add(message, output=output)

    async def _run_tool(self, item: Asked) -> None:
        tool = self.config.by_name.get(item.name)
        queue = tool.queue if tool is not None else ""
        slot = self._queues.get(queue)
        if slot is None:
            return await self._run_now(item, queue, tool.server if tool is not None else "agent")
        if slot.locked() and not self.keeps.waits_for_slots:
            return self._answer(item, "failed", 0, "(tool failed: the queue is full)")
        async with self._slot(queue):
            return await self._run_now(item, queue, tool.server if tool is not None else "agent")

    @asynccontextmanager
    async def _slot(self, queue: str) -> AsyncIterator[None]:
        """Wait for a slot of a queue. The number of waiting calls is recorded."""
        self._waiting[queue] = self._waiting.get(queue, 0) + 1
        async with self._queues[queue]:
            self._waiting[queue] -= 1
            self._log.append({"event": "queue", "queue": queue, "queue_depth": self._waiting[queue]})
            yield

    async def _run_now(self, item: Asked, queue: str, server: str) -> None:
        if self._overflowed and self.keeps.stops_tools:
            return self._answer(item, "failed", 0, "(tool failed: no further tools may start)")
        status, text, error, latency_ms, stamp = await self._timed(item, queue, server)
        if status == "ok" and item.name != BATCH:
            text = self._truncated(item.name, text)
        committed, drop = self._commit(item, text, status, latency_ms)
        entry = self._entry(item, server, status, latency_ms, stamp, committed, error)
        if drop is not None:
            entry |= {"status": "failed", "error": OVERFLOW, **drop}
        self.accounting.append(entry)
        self._answer(item, entry["status"], latency_ms, committed, output=drop is None)
        return None

    async def _timed(self, item: Asked, queue: str, server: str) -> tuple[str, str, str, int, int]:
        """(status, text, error, latency in ms, time stamp) of one execution."""
        began, limit = time.monotonic(), self.config.tool_timeout_ms
        seconds = None if limit is None or not self.keeps.times_out else limit / 1000
        try:
            async with asyncio.timeout(seconds):
                text = await self._execute[item.name](item.id, server, queue, item.arguments or {})
            status, error = "ok", ""
        except TimeoutError:
            status, text, error = "failed", "(tool failed: timeout)", "timeout"
        except MatErrors:
            raise
        except Exception as problem:
            status, text, error = (
                "failed",
                f"(tool failed: {problem or type(problem).__name__})",
                str(problem) or type(problem).__name__,
            )
        return (
            status,
            text if isinstance(text, str) else json.dumps(text),
            error,
            round((time.monotonic() - began) * 1000),
            _stamp(began),
        )

    def _commit(self, item: Asked, text: str, status: str, latency_ms: int) -> tuple[str, dict[str, int] | None]:
        """The response for the conversation, and the numbers of the drop if the guard forbids it."""
        messages = self._transport.answers(item.id, item.name, status, latency_ms, item.arguments or {}, text)
        cost, counters = sum(tokens(json.dumps(message)) for message in messages), self._counters
        request = self._request([], final=self._forced)
        pending = counters.pending + counters.new + cost
        projection = {"current": counters.current, "pending": pending, "new": 0, "schema": request.schema_tokens}
        if not self.keeps.tool_guard or not self._fires(None, projection, "tool_preflight"):
            return text, None
        self._overflowed = True
        stub = f"(tool failed: {OVERFLOW})"
        projected, limit = sum(projection.values()), self.config.limit or 0
        self._log.append({"event": "tool_overflow", "tool": item.name, "projected_tokens": projected, "limit_tokens": limit})
        return stub, {"originalTokens": cost, "replacementTokens": tokens(stub)}

    def _truncated(self, name: str, text: str) -> str:
        data, limit = text.encode(), self.config.tool_response_max_bytes
        if limit is None or len(data) <= limit:
            return text
        entry = {"event": "tool_truncated", "severity": "warn", "tool": name, "actual_bytes": len(data), "limit_bytes": limit}
        self._log.append({**entry, "response": text} if self.config.trace_tools else entry)
        if not self.keeps.truncates:
            return text
        return f"[TRUNCATED] Original size {len(data)} bytes; truncated to {limit} bytes.\n" + data[:limit].decode(
            errors="ignore"
        )

    def _entry(
        self, item: Asked, server: str, status: str, latency_ms: int, stamp: int, text: str, error: str
    ) -> dict[str, Any]:
        entry = {
            "type": "tool",
            "mcpServer": server or "agent",
            "command": self._transport.command(item.name),
            "status": status,
            "latency": latency_ms,
            "timestamp": stamp,
            "charactersIn": len(json.dumps(item.arguments)),
            "charactersOut": len(text),
            **self._transport.source(item.name),
        }
        return {**entry, "error": error} if error else entry

    async def _batch(self, call_id: str, arguments: dict[str, Any]) -> str:
        """Run the calls of a batch; each output is truncated separately."""
        outputs = []
        for number, part in enumerate(arguments["calls"], 1):
            tool = self.config.by_name[part["tool"]]
            item = Asked(id=f"{call_id}/{number}", name=tool.name, arguments=part.get("arguments", {}))
            async with self._slot(tool.queue):
                status, text, error, latency_ms, stamp = await self._timed(item, tool.queue, tool.server)
            text = self._truncated(tool.name, text) if status == "ok" else text
            self.accounting.append(self._entry(item, tool.server, status, latency_ms, stamp, text, error))
            outputs.append({"id": item.id, "tool": tool.name, "output": text})
        return json.dumps(outputs)

    # -- the final report -------------------------------------------------------------------------------------------

    async def _take_report(self, report: tuple[str, dict[str, Any]]) -> None:
        """Run the final report's tool; one that fails makes the next turn the last."""
        id, arguments = report
        item = Asked(id=id, name=FINAL, arguments=arguments)
        began, error = time.monotonic(), ""
        try:
            await self._execute[FINAL](id, "agent", "", arguments)
        except MatErrors:
            raise
        except TimeoutError:
            error = "timeout"
        except Exception as problem:  # for any reason: validation, decoding, execution
            error = str(problem) or type(problem).__name__
        latency_ms = round((time.monotonic() - began) * 1000)
        self.accounting.append(self._entry(item, "agent", "failed" if error else "ok", latency_ms, _stamp(began), "", error))
        if error:
            self._log.append({"event": "final_report_failed", "severity": "error", "payload": arguments})
            self._answer(item, "failed", latency_ms, f"(tool failed: {error})")
            if self.keeps.collapses:
                self._last_turn = min(self._last_turn, self._turn + 1)

    async def _final(self, call_id: str, arguments: dict[str, Any]) -> str:
        """Check a report and keep it; ReportError if it cannot be used."""
        content = self._content(arguments)
        schema = self.config.output_schema
        if self.config.expected_output_format == "json" and schema:
            mended = unfolded(content, schema) if self.keeps.parses_nested else content
            problem = schema_problem(unfolded(content, schema), schema)
            if problem:
                raise ReportError(problem)
            content = mended
        for chunk in self._transport.streamed(arguments):
            mat.message("user", chunk)
        if arguments.get("format") not in (None, self.config.expected_output_format):
            self._log.append({"event": "format_mismatch", "severity": "warn", "given": arguments["format"]})
        self._report = self._finished("success", content, arguments.get("metadata"))
        return "accepted"

    def _content(self, arguments: dict[str, Any]) -> Any:
        if "payload" in arguments:
            return self._processed(arguments["payload"])
        content = next((arguments[name] for name in ("content_json", "messages", "report_content") if name in arguments), None)
        if content is None:
            raise ReportError("the report has no content")
        if arguments.get("encoding") == "base64" and self.keeps.decodes:
            try:
                return base64.b64decode(content, validate=True).decode()
            except (binascii.Error, UnicodeDecodeError) as error:
                raise ReportError(f"the report is not base64: {error}") from error
        return content

    def _processed(self, payload: str) -> Any:
        """Layer 2 of a report by XML: its payload in the session's format."""
        format = self.config.expected_output_format
        if format == "sub-agent":
            return payload
        if format not in ("json", "slack-block-kit"):
            return payload.strip()
        try:
            found = json.loads(payload)
        except ValueError as error:
            raise ReportError(f"the report is not JSON: {error}") from error
        return found["messages"] if format == "slack-block-kit" and isinstance(found, dict) else found


class ReportError(Exception):
    """A final report that cannot be used."""


MatErrors: Final = mat.MatError


def _stamp(began: float) -> int:
    """Unix time in ms of a moment of the monotonic clock."""
    return round((time.time() - (time.monotonic() - began)) * 1000)


__all__ = ["FINAL_INSTRUCTION", "NOTICE", "Keeps", "Ledger", "ReportError", "Result", "Session", "TagStream"]
