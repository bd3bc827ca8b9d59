"""What a program's proxies and the run of its test share: where the run is, and whether this process is such a proxy."""

from __future__ import annotations

import os
import sys
from typing import Final

ADDRESS: Final = "MAT_RUN"
"""The environment variable with the socket of the run that a program belongs to."""
VERSION: Final = 1
"""Of the messages between a proxy and a run."""
CLOSED: Final = -32000
"""The error code of a closed connection, as the SDKs of MCP have it."""
IN_PROXY: Final[bool] = sys.argv[1:2] == ["mcp-proxy"] and ADDRESS in os.environ
"""Whether this process is the proxy of a test's program. One starts with each server of each execution and has no run of its
own, so `mat` loads nothing for it."""

__all__ = ["ADDRESS", "CLOSED", "IN_PROXY", "VERSION"]
