"""The four kinds of wrong, and the one shape of every error we raise (DESIGN section 3)."""

from __future__ import annotations

from collections.abc import Iterable


class MatError(Exception):
    """A caller's mistake, said in four parts: what happened, why it is wrong, how to fix it, where.

    Several problems found in one go are joined by the caller into `what`; the parts stay readable as attributes.
    """

    def __init__(self, what: str, *, why: str = "", fix: str = "", where: str = "") -> None:
        self.what, self.why, self.fix, self.where = what, why, fix, where
        super().__init__(self._text())

    def _text(self) -> str:
        lines = [self.what]
        for label, part in (("why", self.why), ("fix", self.fix), ("where", self.where)):
            if part:
                lines.append(f"  {label}: {part}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.why, self.fix, self.where))


def _rebuild(kind: type[MatError], what: str, why: str, fix: str, where: str) -> MatError:
    return kind(what, why=why, fix=fix, where=where)


class SpecError(MatError):
    """A schedule, contract, operator or configuration that cannot mean anything."""


class CodecError(MatError):
    """A value without a canonical form, or text that does not decode to one of our values."""


class LimitReached(MatError):  # noqa: N818  (named after what happened)
    """A named limit of `mat.core.limits` was reached where going on would lose something."""


class ReplayError(MatError):
    """A replay file that cannot be read, or that asks for something today's code does not have."""


class ReplayDivergence(MatError):  # noqa: N818  (named after what happened)
    """A strict replay met a step that differs from the recorded one."""


class Uncontrolled(MatError):  # noqa: N818  (named after what happened)
    """Something a virtual run cannot control (a socket, a foreign clock) was refused."""


class Deadlock(MatError):  # noqa: N818  (named after what happened)
    """In virtual time nothing can ever run again: no timer, no job, no descriptor."""


class Blocked(PermissionError):  # noqa: N818
    """What an agent meets when governance blocks its action. `reason` is safe to show to a model."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class RateLimited(ConnectionError):  # noqa: N818
    """The default form of a 429. `retry_after_s` is in seconds, None when the service gave none."""

    def __init__(self, message: str = "rate limited", retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class RunStopped(BaseException):
    """Unwinds the system under test once the horizon is reached; not an Exception, so agents do not swallow it."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is none: the nearest known one, or an empty text."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
