"""The contracts on traces of this task: the form is sent whole, with its own token and with values as they are to be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import mat
from mat.core.artifact import used
from mat.core.record import Record
from mat_contracts.observation import compliant, exchange, expected, no_shortcut, required

SUBMIT = "POST /settings/contact"
_TOKEN = r'(?s)<h2>{}</h2>(?:(?!</form>).)*?name="authenticity_token" value="([^"]+)"'
_SENT = {"url": r"/settings/contact$", "method": "POST"}

ISSUES = (
    mat.artifact.issue("session", at="headers.set-cookie", pattern=r"_shop_session=([^;]+)"),
    mat.artifact.issue("token", at="body", pattern=_TOKEN.format("Contact details"), when={"url": r"/settings$"}),
    mat.artifact.issue("newsletter_token", at="body", pattern=_TOKEN.format("Newsletter"), when={"url": r"/settings$"}),
)
CONSUMES = (
    mat.artifact.consume(
        "session", at="headers.cookie", when={**_SENT, "headers.cookie": r"_shop_session=\s*[^;\s]"}, required=False
    ),
    mat.artifact.consume("token", at="form.authenticity_token", when={**_SENT, "form.*": "."}),
)


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    kept = {"_method": "patch", "return_to": given["return_to"], "lock_version": given["lock_version"]}
    wanted = {**kept, "display_name": given["display_name"], "email": given["email"]}
    return [
        compliant(["session", "token"], on=SUBMIT),
        required(SUBMIT, [f"body.{name}" for name in wanted]),
        required(SUBMIT, "body.authenticity_token", label="MISSING_TOKEN", id="token sent"),
        expected(SUBMIT, {**{f"body.{name}": value for name, value in wanted.items()}, "body.website": ("",)}),
        no_shortcut("POST /settings/newsletter", label="WRONG_VALUE"),
        signed_in,
        own_token,
        as_a_form,
    ]


@mat.step_contract(on="tool_call", id="signed_in", label="MISSING_TOKEN")
def signed_in(record: Record) -> bool:
    """The session cookie goes with the form."""
    found = exchange(record)
    if found is None or found.path != "/settings/contact":
        return True
    return re.search(r"_shop_session=\s*[^;\s]", found.headers.get("cookie", "")) is not None


@mat.step_contract(on="tool_call", id="own_token", label="WRONG_VALUE")
def own_token(record: Record) -> bool:
    """The contact form is sent with its own token, not with that of another form."""
    found = exchange(record)
    elsewhere = found is None or found.path != "/settings/contact"
    return elsewhere or not any(item.name == "newsletter_token" and item.intact for item in used(record))


@mat.step_contract(on="tool_call", id="as_a_form", label="MISSING_CONSTRAINT")
def as_a_form(record: Record) -> bool:
    """A form is sent in the encoding of forms."""
    found = exchange(record)
    if found is None or (found.method, found.path) != ("POST", "/settings/contact"):
        return True
    kind = found.headers.get("content-type", "application/x-www-form-urlencoded" if record.arguments.get("form") else "")
    return kind.split(";")[0].strip().lower() == "application/x-www-form-urlencoded"
