"""Errors that an agent or a test may meet besides `mat.MatError` and `mat.Blocked`."""

from mat.core.errors import ProcessCrashed, RateLimited, ReplayDivergence

__all__ = ["ProcessCrashed", "RateLimited", "ReplayDivergence"]
