"""The sites of a run: where its steps are asked, with occurrence numbers in ask order."""

from __future__ import annotations

from mat.boundary.port import Port
from mat.core.record import ActionKind
from mat.core.redact import Redactor
from mat.core.site import clean_site, escape


class Counter:
    """The number of asks at one site so far, the site's text up to its number, and the port's recorded name."""

    __slots__ = ("name", "nth", "prefix")

    def __init__(self, prefix: str, name: str) -> None:
        self.prefix, self.name, self.nth = prefix, name, 0


class SiteSlot:
    """One agent at one port: the site's counter, and whether clean arguments are recorded unchanged and without links."""

    __slots__ = ("agent", "counter", "plain")

    def __init__(self, agent: str, counter: Counter, *, plain: bool) -> None:
        self.agent, self.counter, self.plain = agent, counter, plain


class Sites:
    """The slots and counters of a run. `latest`: the slot that was used last at each port."""

    __slots__ = ("_counters", "_inner", "_redactor", "_slots", "latest")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._slots: dict[tuple[str, Port], SiteSlot] = {}
        self._counters: dict[tuple[str, str, str], Counter] = {}
        self._inner: dict[tuple[str, str], Port] = {}
        self.latest: dict[Port, SiteSlot] = {}

    def slot(self, agent: str, port: Port) -> SiteSlot:
        """The agent's slot at a port; it becomes the port's latest slot."""
        slot = self._slots.get((agent, port))
        if slot is None:
            plain = port.record == "keep" and port.boundary != "memory"
            slot = self._slots[agent, port] = SiteSlot(agent, self._counter(agent, port), plain=plain)
        self.latest[port] = slot
        return slot

    def _counter(self, agent: str, port: Port) -> Counter:
        """The counter of a site, shared by ports of one name. Names can be free text (a recipient), so they are redacted."""
        key = (agent, port.boundary or port.kind, port.name)
        counter = self._counters.get(key)
        if counter is None:
            name = self._redactor.text(port.name)
            shown = self._redactor.text(agent)
            counter = self._counters[key] = Counter(f"{escape(shown)}/{key[1]}:{escape(name)}#", name)
        return counter

    def inner_port(self, kind: ActionKind, name: str) -> Port:
        """The port of records that cross no boundary."""
        port = self._inner.get((kind, name))
        if port is None:
            port = self._inner[kind, name] = Port(name=name, kind=kind, boundary="", effect="none")
        return port

    def redact(self) -> None:
        """Redact the names of later sites, after a secret was declared."""
        for counter in self._counters.values():
            counter.prefix, counter.name = clean_site(counter.prefix, self._redactor.text), self._redactor.text(counter.name)
