"""The tape's layer of a run: replies served from a recording, and live ones that a cassette keeps."""

from __future__ import annotations

from typing import Any

from mat.boundary.effect import BrokenReply, Reply
from mat.boundary.tape import Tape
from mat.core.digest import digest
from mat.harness.finalisation import tape_entry
from mat.harness.open_step import OpenStep
from mat.harness.recorded_form import RecordedForm
from mat.kernel import network


class TapeLayer:
    """Serves and fills the tape of a run."""

    __slots__ = ("_form", "_tape")

    def __init__(self, tape: Tape, form: RecordedForm) -> None:
        self._tape, self._form = tape, form

    def serve(self, opened: OpenStep) -> Reply | BrokenReply | BaseException | None:
        """The taped reply to this call; None if the port is called."""
        request = digest(self._form.served(opened))
        reply = self._tape.serve(opened.port, opened.site, request, lambda: self._form.request(opened))
        if reply is None:
            if self._tape.awaits(opened.site):
                network.live.set(True)
            return None
        opened.taped = True
        opened.invoked += 1  # the port was invoked when the tape was made: the facts of a replay are those of the recording
        return reply

    def records(self, opened: OpenStep) -> bool:
        """Whether this is a live call whose reply the cassette keeps."""
        return self._tape.awaits(opened.site)

    def read_on(self, opened: OpenStep) -> BaseException:
        """The error of a run that reads a stream further than the recorded run did."""
        return self._tape.read_on(opened.site)

    def heard(self, opened: OpenStep, value: Any, error: BaseException | None) -> None:
        """End a live call: its reply goes on the cassette, and network access is closed again."""
        if not self._tape.awaits(opened.site):
            return
        network.live.set(False)
        entry = tape_entry(opened.port, opened.site, self._form.served(opened), self._form.heard(opened, value, error))
        self._tape.hear(opened.port, opened.site, Reply(value) if error is None else error, entry)
