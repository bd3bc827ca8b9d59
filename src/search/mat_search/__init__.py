"""Search for the cheapest schedule that breaks a contract, over an `evaluate` function and operators as data."""

from mat_search.campaign import Campaign, CampaignResult, SearchStopped, hard_violations
from mat_search.engine import STRATEGIES, search

__all__ = ["STRATEGIES", "Campaign", "CampaignResult", "SearchStopped", "hard_violations", "search"]
