"""The recorded form of arguments, replies and errors: copied, and redacted before sealing."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from mat.boundary.effect import Effect, Replace, Rewrite
from mat.boundary.port import Port
from mat.core.digest import canonical
from mat.core.record import ErrorFact, Mediation, Observation
from mat.core.redact import Redactor, shares_piece, texts
from mat.core.value import FrozenDict, Value, snapshot
from mat.harness.open_step import OpenStep
from mat.harness.reply import retry_after_ms


class RecordedForm:
    """Makes the recorded form of values in a run. `redactor` removes secrets from it."""

    __slots__ = ("redactor",)

    def __init__(self, redactor: Redactor) -> None:
        self.redactor = redactor

    def arguments(self, port: Port, arguments: FrozenDict) -> FrozenDict:
        if port.record == "keep":
            return self.redactor.mapping(arguments)
        return FrozenDict({field: self.redactor.apply(port.policy(field), item) for field, item in arguments.items()})

    def executed(self, opened: OpenStep, arguments: FrozenDict) -> FrozenDict:
        """The recorded form of arguments that replaced the asked ones; unchanged fields keep the form they have."""
        asked, sealed = opened.passed_arguments, opened.arguments
        same = {
            field for field, item in arguments.items() if field in asked and (item is asked[field] or item is sealed[field])
        }
        new = self.arguments(opened.port, FrozenDict({field: item for field, item in arguments.items() if field not in same}))
        return FrozenDict({field: sealed[field] if field in same else new[field] for field in arguments})

    def served(self, opened: OpenStep) -> FrozenDict:
        """The recorded form of the arguments that the port gets now."""
        return opened.arguments if opened.replaced_arguments is None else self.executed(opened, opened.replaced_arguments)

    def request(self, opened: OpenStep) -> FrozenDict:
        """The arguments that the port gets now, for people who read a cassette.

        Prompts, which a trace keeps as hashes only because they are long, are readable there; secrets are redacted.
        """
        port = opened.port
        if port.kind != "model_call":
            return self.served(opened)
        readable = {
            field: "keep" if port.policy(field) == "hash" else port.policy(field) for field in opened.current_arguments
        }  # fmt: skip
        return FrozenDict(
            {field: self.redactor.apply(readable[field], item) for field, item in opened.current_arguments.items()}
        )

    def mediation(self, opened: OpenStep, mediation: Mediation) -> Mediation:
        if mediation.arguments is None and not mediation.reason:
            return mediation
        arguments = None if mediation.arguments is None else self.executed(opened, mediation.arguments)
        return replace(mediation, reason=self.redactor.text(mediation.reason), arguments=arguments)

    def reply(self, port: Port, value: Any) -> tuple[Value, bool]:
        """The recorded form of a reply, and whether it is opaque."""
        if value is None:
            return None, False
        try:
            sealed = snapshot(value, f"reply of {port.name}")
        except Exception:  # no canonical form, or a property of the user's class raised: the reply is opaque, not lost
            return f"{type(value).__module__}.{type(value).__qualname__}", True
        policy = port.policy("reply")
        return (self.redactor.value(sealed) if policy == "keep" else self.redactor.apply(policy, sealed)), False

    def error(self, opened: OpenStep, error: BaseException) -> ErrorFact:
        return ErrorFact(
            type=type(error).__name__, message=self.redactor.text(str(error))[:2000],
            kind=opened.error_kind or opened.port.error_kind(error), retry_after_ms=retry_after_ms(error),
        )  # fmt: skip

    def heard(self, opened: OpenStep, value: Any, error: BaseException | None) -> Observation:
        """The recorded form of a port's reply; of a stream that ended early, the chunks so far and the error."""
        sealed, opaque = self.reply(opened.port, value)
        return Observation(value=sealed, opaque=opaque, error=None if error is None else self.error(opened, error))

    def cut_damaged(self, effect: Effect, source: Any) -> None:
        """A damaged secret is still a secret: declare texts that a fault derived from a text with a secret as secrets."""
        made = effect.arguments if isinstance(effect, Rewrite) else effect.value if isinstance(effect, Replace) else None
        if made is None or not self.redactor.knows_secrets:
            return
        with suppress(Exception):  # a reply without a recorded form is opaque, so it is not written anywhere
            before, after = set(texts(snapshot(source, "reply"))), texts(snapshot(made, "reply"))
            held = [text for text in sorted(before.difference(after)) if self.redactor.text(text) != text]
            for text in after:
                if text not in before and any(shares_piece(text, lost) for lost in held):
                    self.redactor.add_secret(text)


def if_changed(raw: Observation | None, delivered: Observation) -> Observation | None:
    """The port's reply, only if something else was delivered: a perturbation without effect changes no facts."""
    if raw is None or canonical([raw.value, raw.opaque]) != canonical([delivered.value, delivered.opaque]):
        return raw
    return None if raw.error == delivered.error else raw
