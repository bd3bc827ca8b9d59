"""Renders the report as one self-contained HTML file: tables, plots, and a trace viewer.

The page needs no other file and no network. Its content security policy (CSP) allows only the script in the page and forbids
parsing text as HTML. Everything that comes from a run is untrusted and shown as text.

Source: A6.6.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from mat.core.record import Record
from mat.core.run import Run
from mat.core.verdict import Violation
from mat.report.page.trace import Traced, data_of, partners, undisturbed
from mat.report.page.view import environment

if TYPE_CHECKING:
    from markupsafe import Markup

    from mat.measure.regression import Regression
    from mat.measure.suite import Cover
    from mat.report.document import Document
    from mat.report.page.sections import PageParts

__all__ = ["RECORDS", "Traced", "render", "trace_page", "undisturbed"]

RECORDS: Final = 200_000
"""The most steps that one page holds, about 800 characters each; further traces are left out, and the page says so."""


def render(
    document: Document,
    *,
    regression: Regression | None = None,
    suite: Cover | None = None,
    traces: Sequence[Traced] = (),
    title: str = "MAT report",
) -> str:
    """The report of a session as HTML. Equal reports give equal bytes.

    `regression` is the comparison with an earlier report, `suite` the selected regression suite. `traces` are further traces
    for the viewer, after those of the counterexamples, as long as there is room. By default the viewer compares a trace with
    the nominal run of the same base.
    """
    from mat.report.page.sections import PageParts

    every: list[Traced] = []
    owner: dict[int, int] = {}
    for number, replay in enumerate(document.counterexamples):
        found = replay.counterexample
        if found.run.records:  # a report that was read back may have no steps
            owner[len(every)] = number
            name = f"{number + 1}. {found.verdict.contract}, cost {found.cost}: {replay.item}"
            every.append(Traced.of(found.run, name=name, verdict=found.verdict))
    every += traces
    kept = _indexes_that_fit(every)
    opened = {owner[place]: at for at, place in enumerate(kept) if place in owner}
    traced = [every[place] for place in kept]
    parts = PageParts(document=document, regression=regression, suite=suite, opened=opened, traces=traced)
    return _page(title, _sections(parts), every, kept, heat=bool(document.heat_maps))


def _sections(parts: PageParts) -> dict[str, tuple[str, Markup]]:
    """Title and content of each non-empty section, by its id."""
    template: Any = environment().get_template("sections.html.jinja").module
    made = {name: (title, getattr(template, name)(parts).strip()) for name, title in template.TITLES.items()}
    return {name: (title, body) for name, (title, body) in made.items() if body}


def trace_page(
    source: Run | Iterable[Record] | Sequence[Traced],
    *,
    violations: Sequence[Violation] = (),
    title: str = "Trace",
) -> str:
    """A page with only the viewer: of one run, of the records of a stored trace and their violations, or of several traces."""
    if isinstance(source, Run):
        traces = [Traced.of(source, name=f"{source.spec.task or title}, seed {source.spec.seed}")]
    else:
        items = list(source)
        traces = [item for item in items if isinstance(item, Traced)]
        if not traces:
            records = tuple(item for item in items if isinstance(item, Record))
            first = next(iter(violations), None)
            traces = [Traced(name=title, records=records, violations=tuple(violations), verdict=first)]
    return _page(title, {}, traces, _indexes_that_fit(traces))


def _indexes_that_fit(traces: Sequence[Traced]) -> list[int]:
    """The indexes of the traces that fit on a page, in order; one is always kept."""
    kept: list[int] = []
    room = RECORDS
    for place, trace in enumerate(traces):
        if len(trace.records) <= room or not kept:
            kept.append(place)
            room -= len(trace.records)
    return kept


# -- the page ---------------------------------------------------------------------------------------------------------


def _page(
    title: str, sections: Mapping[str, tuple[str, Markup]], every: Sequence[Traced], kept: Sequence[int], *, heat: bool = False
) -> str:
    from markupsafe import Markup

    traces = [every[place] for place in kept]
    left_out = [trace for place, trace in enumerate(every) if place not in set(kept)]
    style = _file("style.css") + (_file("heat.css") if heat else "")
    script = _file("viewer.js")
    names = {name: label for name, (label, _) in sections.items()}
    data: list[tuple[str, object]] = []
    if traces:
        names["traces"] = "Traces"
        data = [("trace-list", _trace_list(traces)), *(one for at, trace in enumerate(traces) for one in data_of(at, trace))]
    return environment().get_template("page.html.jinja").render(
        title=title, tabs=_tabs(names), names=names, bodies={name: body for name, (_, body) in sections.items()}, data=data,
        left_out=left_out, plain=sum(trace.undisturbed for trace in left_out), most=RECORDS, style=Markup(style),
        script=Markup(script), policy=_policy(style, script),
    )  # fmt: skip


def _tabs(names: Collection[str]) -> list[list[str]]:
    """The ids of the sections that are there, by tab."""
    template: Any = environment().get_template("sections.html.jinja").module
    tabs = [[name for name in tab if name in names] for tab in template.TABS]
    return [tab for tab in tabs if tab]


def _trace_list(traces: Sequence[Traced]) -> list[dict[str, Any]]:
    """The traces to choose from; `against` is the index of the trace that each is compared with by default."""
    listed: list[dict[str, Any]] = []
    for trace, against in zip(traces, partners(traces), strict=True):
        listed.append({"name": trace.name, "item": trace.item, "steps": len(trace.records)})
        if against is not None:
            listed[-1]["against"] = against
    return listed


@lru_cache(maxsize=8)
def _file(name: str) -> str:
    from importlib.resources import files

    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """The content security policy: only this style and this script; no network, frames, forms or text parsed as HTML."""
    allowed = (
        "default-src 'none'",
        f"script-src '{_hash(script)}'",
        f"style-src '{_hash(style)}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
    return "; ".join(allowed)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
