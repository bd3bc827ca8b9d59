"""Sites: the calls that a perturbation binds to, written `agent/boundary:name#nth`, or `#n..m` for a range."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from mat.core.errors import SpecError
from mat.core.spelling import as_boundary

Boundary: TypeAlias = Literal["service", "retrieval", "memory", "prompt", "model", "delegation", "order", "process"]
BOUNDARIES: Final = get_args(Boundary)
ABOUT_CALLS: Final = ("order", "process")
"""Boundaries whose sites name a call of another boundary: whose turn it is there, and whose process ends there."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_.\-]")
_ESCAPED = re.compile(r"%([0-9a-f]+);")
_PORT = re.compile(rf"(.*?)/({'|'.join(BOUNDARIES)}):(.+)", re.DOTALL)
"""A site up to the number, in which names need not be escaped."""
_SITE = re.compile(r"^([^/:#]*)/([a-z_]+):([^/:#]+)#([1-9][0-9]*)(?:\.\.([1-9][0-9]*))?$")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Site:
    """The nth call of one port by one agent, or a range of calls: where a perturbation binds, written `agent/boundary:name#n`.

    `boundary`: service, retrieval, memory, prompt, model, delegation, order or process. `nth` and `last` count from 1, both
    included.
    `covers(other)`: whether it includes every call of `other`; `overlaps(other)`: whether they share a call.

    >>> site = mat.spec.perturbation("service.outage", "clerk/service:refund#2..4").site
    >>> site.agent, site.name, site.nth, site.last, str(site)
    ('clerk', 'refund', 2, 4, 'clerk/service:refund#2..4')

    Source: A3.1.
    """

    agent: str
    boundary: Boundary
    name: str
    nth: int
    last: int

    def __str__(self) -> str:
        return site_text(self.agent, self.boundary, self.name, self.nth, self.last)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(_from_data)

    def covers(self, other: Site) -> bool:
        """Whether this site includes every call of `other`."""
        return self.port == other.port and self.nth <= other.nth and other.last <= self.last

    def overlaps(self, other: Site) -> bool:
        return self.port == other.port and self.nth <= other.last and other.nth <= self.last

    @property
    def port(self) -> tuple[str, str, str]:
        return (self.agent, self.boundary, self.name)


def site_text(agent: str, boundary: str, name: str, nth: int, last: int | None = None) -> str:
    """The text form; names are escaped so that it parses back."""
    suffix = f"#{nth}" if last is None or last == nth else f"#{nth}..{last}"
    return f"{escape(agent)}/{boundary}:{escape(name)}{suffix}"


def name_about(boundary: str, name: str) -> str:
    """The name that a port has at the boundaries about calls: `service.refund`. Their nth asks are the port's nth asks."""
    return f"{boundary}.{name}"


def site_about(about: str, site: str) -> str:
    """The site of a call at a boundary about calls: who goes first there ("order"), whose process ends there ("process")."""
    agent, _, rest = site.partition("/")
    boundary, _, name = rest.partition(":")
    return f"{agent}/{about}:{boundary}.{name}"


def meets(site: Site, asked: str) -> bool:
    """Whether a perturbed site includes the call at this site, itself or at a boundary about calls."""
    return site.covers(parse_site(site_about(site.boundary, asked) if site.boundary in ABOUT_CALLS else asked))


def port_about(agent: str, name: str) -> str:
    """The port that a site of a boundary about calls names, as the beginning of the port's sites up to the number."""
    boundary, _, port = name.partition(".")
    return f"{escape(agent)}/{boundary}:{escape(port)}"


@lru_cache(maxsize=10_000)  # every run of a search has the same few names
def escape(name: str) -> str:
    return _UNSAFE.sub(lambda match: f"%{ord(match[0]):x};", name) if _UNSAFE.search(name) else name


def unescape(name: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), name)


def clean_site(site: str, clean: Callable[[str], str]) -> str:
    """A site's text with the names in it cleaned, the agent's and the port's."""
    agent, slash, rest = site.partition("/")
    boundary, colon, last = rest.partition(":")
    name, mark, nth = last.rpartition("#")
    if not (slash and colon and mark):
        return clean(site)
    parts = unescape(agent), unescape(name)
    after = clean(parts[0]), clean(parts[1])
    return site if after == parts else f"{escape(after[0])}/{boundary}:{escape(after[1])}#{nth}"


def parse_site(text: str) -> Site:
    """Parse a site; SpecError says which part is wrong."""
    match = _SITE.match(text)
    boundary = match[2] if match else ""
    if match is None and (meant := _escaped(text)):
        raise SpecError(
            what=f"not a site: {text!r}", why="a name in it contains a character that separates the parts of a site",
            fix=f"write {meant}",
        )  # fmt: skip
    if match is None or boundary not in BOUNDARIES:
        raise SpecError(
            what=f"not a site: {text!r}",
            why="a site names agent, boundary, port and occurrence number"
            + (f"; {boundary!r} is not a boundary{as_boundary(boundary)}" if match else ""),
            fix=f"write agent/boundary:name#n or #n..m, where boundary is one of {', '.join(BOUNDARIES)}",
        )
    nth = int(match[4])
    last = int(match[5] or nth)
    if last < nth:
        raise SpecError(what=f"site {text!r} ends before it begins", fix=f"write #{last}..{nth}")
    if boundary in ABOUT_CALLS and match[3].partition(".")[0] not in BOUNDARIES:
        raise SpecError(
            what=f"not a site: {text!r}", why=f"the {boundary} boundary names a call with its own boundary",
            fix=f"write {match[1]}/{boundary}:service.{match[3]}#{match[4]}, or the call's boundary in the place of service",
        )  # fmt: skip
    return Site(
        agent=unescape(match[1]),
        boundary=cast(Boundary, boundary),
        name=unescape(match[3]),
        nth=nth,
        last=last,
    )


def _escaped(text: str) -> str:
    """The site that a text means if its names were not escaped; "" if it means none."""
    port, _, number = text.rpartition("#")
    found = _PORT.fullmatch(port)
    if found is None:
        return ""
    meant = f"{escape(found[1])}/{found[2]}:{escape(found[3])}#{number}"
    return meant if _SITE.match(meant) else ""


def _from_data(data: object) -> Site:
    if isinstance(data, Site):
        return data
    try:
        return parse_site(str(data))
    except SpecError as error:
        raise ValueError(error.what) from None
