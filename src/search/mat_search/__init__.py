"""Search for the cheapest disturbance that breaks a contract. Given `evaluate` and operators as data; knows no framework."""

from mat_search.campaign import STOPS, Campaign, CampaignResult, SearchStopped, hard_violations
from mat_search.engine import STRATEGIES, search

__all__ = ["STOPS", "STRATEGIES", "Campaign", "CampaignResult", "SearchStopped", "hard_violations", "search"]
