"""Errors that an agent or a test may meet besides `mat.MatError` and `mat.Blocked`."""

from mat.core.errors import RateLimited, ReplayDivergence

__all__ = ["RateLimited", "ReplayDivergence"]
