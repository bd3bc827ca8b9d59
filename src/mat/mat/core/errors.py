"""The errors that pytest-mat raises, all of one form (DESIGN section 3)."""

from __future__ import annotations

from collections.abc import Iterable


class MatError(Exception):
    """A caller's mistake in four parts: what happened, why it is wrong, how to fix it, and where.

    If several problems are found at once, `what` lists all of them. The parts are attributes, too.
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
    """A schedule, contract, operator or configuration is invalid."""


class CodecError(MatError):
    """A value has no canonical form, or a text does not decode to the expected value."""


class LimitReached(MatError):  # noqa: N818  (named after what happened)
    """A named limit of `mat.core.limits` was reached, and continuing would lose data."""


class ReplayError(MatError):
    """A replay file cannot be read, or names something that the current code does not have."""


class ReplayDivergence(MatError):  # noqa: N818  (named after what happened)
    """A step of a strict replay differs from the recorded one."""


class Uncontrolled(MatError):  # noqa: N818  (named after what happened)
    """A virtual run refused something that it cannot control, such as a socket or a foreign clock."""


class Deadlock(MatError):  # noqa: N818  (named after what happened)
    """Nothing in a virtual run can ever continue: there is no timer, no job and no open descriptor."""


class Blocked(PermissionError):  # noqa: N818
    """Raised in an agent when governance blocks its action. `reason` is safe to show to a model."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class RateLimited(ConnectionError):  # noqa: N818
    """Raised by default for HTTP status 429. `retry_after_s` is in seconds, None when the service gave none."""

    def __init__(self, message: str = "rate limited", retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class RunStopped(BaseException):
    """Unwinds the system under test once the horizon is reached; not an Exception, so agents do not swallow it."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: it suggests the nearest known one, or is empty."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
