"""Search for the cheapest schedule that breaks a contract, over an `evaluate` function and operators as data.

`STRATEGIES`: name -> strategy, but for the statistical one.

>>> from mat_search import STRATEGIES
>>> list(STRATEGIES)
['exhaustive', 'anytime', 'portfolio', 'random', 'beam', 'evolutionary', 'adversary']

Source: A3.2, A3.3.
"""

from mat_search.campaign import Campaign, CampaignResult, SearchStopped, hard_violations
from mat_search.engine import STRATEGIES, search

__all__ = ["STRATEGIES", "Campaign", "CampaignResult", "SearchStopped", "hard_violations", "search"]
