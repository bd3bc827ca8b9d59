"""Observation contracts: artifacts that tools issue, how their use is checked, and handles.

`docs/artifacts.md` is the guide.
"""

from mat.boundary.emit import observed
from mat.boundary.handles import Handles, UnknownHandle, handles
from mat.boundary.integrity import Integrity, ObservationContract, etag, hmac, jwt, sha256
from mat.boundary.issue import consume, issue

__all__ = [
    "Handles", "Integrity", "ObservationContract", "UnknownHandle", "consume", "etag", "handles", "hmac", "issue", "jwt",
    "observed", "sha256",
]  # fmt: skip
