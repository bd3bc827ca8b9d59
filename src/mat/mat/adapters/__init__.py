"""Attach to frameworks of agents, and to what records of runs other tools make.

`attach` and the functions below are for agents; `otel`, `importers`, `checking` and `agentdojo` read and write recorded runs.
"""

from typing import TYPE_CHECKING

from mat.core.proxied import IN_PROXY

if TYPE_CHECKING or not IN_PROXY:
    from mat.adapters.attach import attach
    from mat.adapters.attachment import Adapter, Attachment
    from mat.adapters.program import program
    from mat.boundary.calls import cross, cross_async, cross_stream, cross_stream_async

__all__ = ["Adapter", "Attachment", "attach", "cross", "cross_async", "cross_stream", "cross_stream_async", "program"]
