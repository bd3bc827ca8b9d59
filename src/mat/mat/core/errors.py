"""The errors that pytest-mat raises, all of one form (DESIGN section 3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def printable(text: str) -> str:
    """Text that is safe to print in a terminal: escapes, newlines, bidirectional marks and the like are spelled out."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape", "replace").decode("ascii") for char in text)


class MatError(Exception):
    """A caller's mistake in four parts: what happened, why it is wrong, how to fix it, and where.

    Every error that pytest-mat raises for a mistake of its caller is one of this class; docs/reference/errors.md lists them.
    If several problems are found at once, `what` lists all of them. `what`, `why`, `fix` and `where` are attributes, too; a
    part that is not known is "".

    >>> try:
    ...     mat.mitigate("retries")
    ... except mat.MatError as error:
    ...     print(error)
    unknown mitigation: 'retries'
      fix: use one of retry, alternate, replan, clarify, escalate, sandbox, block
    """

    def __init__(self, what: str, *, why: str = "", fix: str = "", where: str = "") -> None:
        self.what, self.why, self.fix, self.where = what, why, fix, where
        super().__init__(self._text())

    def _text(self) -> str:
        """The error as text. What it quotes of a file may hold anything, so control characters are spelled out."""
        lines = [self.what]
        for label, part in (("why", self.why), ("fix", self.fix), ("where", self.where)):
            if part:
                lines.append(f"  {label}: {part}")
        return "\n".join(map(printable, "\n".join(lines).split("\n")))

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.why, self.fix, self.where))


def _rebuild(kind: type[MatError], what: str, why: str, fix: str, where: str) -> MatError:
    return kind(what, why=why, fix=fix, where=where)


class SpecError(MatError):
    """A schedule, contract, operator or configuration is invalid."""


class CodecError(MatError):
    """A value has no canonical form, or a text does not decode to the expected value."""


class LimitReached(MatError):  # noqa: N818  (named after what happened)
    """A named limit of `mat.core.limits` was reached, and continuing would lose data."""


class ReplayError(MatError):
    """A replay file cannot be read, or names something that the current code does not have."""


class ReplayDivergence(MatError):  # noqa: N818  (named after what happened)
    """A step of a strict replay differs from the recorded one; a `mat.MatError`.

    `pytest --mat-replay FILE` and `mat replay FILE` raise it at the first step whose call is another one than recorded: `what`
    names the step and both calls, `where` the file.

    `why` and `fix` are as in `mat.MatError`.

    >>> issubclass(mat.errors.ReplayDivergence, mat.MatError)
    True

    Source: A3.5.
    """


class Uncontrolled(MatError):  # noqa: N818  (named after what happened)
    """A virtual run refused something that it cannot control, such as a socket or a foreign clock."""


class Deadlock(MatError):  # noqa: N818  (named after what happened)
    """Nothing in a virtual run can ever continue: there is no timer, no job and no open descriptor."""


class Blocked(PermissionError):  # noqa: N818
    """Raised in an agent whose action governance blocks, or a contract with `policy="block"`.

    It is a `PermissionError`, so agents can handle a refusal without importing mat. `reason` is a sentence that is safe to
    show to a model. The refused call is a step of the trace, with `record.blocked` true.

    >>> @mat.tool(effect="write")
    ... def refund(order): return "refunded"
    >>> with mat.run(governance=mat.policy.Governance(capabilities={"clerk": ["look_up"]})), mat.agent("clerk"):
    ...     refund("A17")
    Traceback (most recent call last):
        ...
    mat.core.errors.Blocked: clerk has no capability refund

    Source: A5.2.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class RateLimited(ConnectionError):  # noqa: N818
    """A service refuses a call because there were too many; a fault operator raises it by default for HTTP status 429.

    It is a `ConnectionError`. `retry_after_s` is the wait in seconds that the service asks for, None if it names none. To get
    your client's own exception instead, write `@mat.tool(errors={"rate_limit": TooManyRequests})`.

    `message`: the text of the exception.

    >>> @mat.model("planner")
    ... def decide(text): return "refund"
    >>> limit = mat.spec.perturbation("model.rate_limit", "main/model:planner#1", cost=1)
    >>> with mat.run(schedule=[limit]):
    ...     try:
    ...         decide("Please refund A17")
    ...     except mat.errors.RateLimited as error:
    ...         print(error, error.retry_after_s)
    planner: rate limited 30.0

    Source: A4.1.
    """

    def __init__(self, message: str = "rate limited", retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class RunStopped(BaseException):
    """Raised in the system under test when the run reaches its horizon. Not an Exception, so that agents do not catch it."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class ProcessCrashed(BaseException):
    """Raised in the system under test where a fault ends its process. Not an Exception, so that agents do not catch it.

    Until the run is resumed, every call of an instrumented port raises it, and has no effect.

    >>> paid = []
    >>> @mat.tool(effect="write")
    ... def refund(order): paid.append(order)
    >>> crash = mat.spec.perturbation("process.crash", "main/process:service.refund#1", cost=4)
    >>> with mat.run(schedule=[crash]) as run:
    ...     try:
    ...         refund("A17")
    ...     except mat.errors.ProcessCrashed:
    ...         run.resume()
    ...         refund("A17")  # a service that starts again, and does not look whether it has paid
    >>> paid
    ['A17', 'A17']

    Source: A4.1.
    """


def plural(count: int, noun: str) -> str:
    """A count with its noun, in the plural unless the count is 1."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def enumeration(words: Sequence[str], conjunction: str = "and") -> str:
    """Words as a list in a sentence.

    >>> enumeration(["a"]), enumeration(["a", "b"]), enumeration(["a", "b", "c"], "or")
    ('a', 'a and b', 'a, b or c')
    """
    return f" {conjunction} ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def raised_text(error: BaseException, when: str = "") -> str:
    """What a function did that raised: `raised ValueError at step 3: too short`. Some exceptions have no message."""
    what = f"raised {type(error).__name__}{when and ' ' + when}"
    return f"{what}: {error}" if str(error) else what


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: a suggestion of the nearest known name, or ""."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
