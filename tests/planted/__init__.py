"""Agents with planted state, and an oracle of their own: does pytest-mat say the truth about state that outlives a run?

`python -m tests.planted --help` draws them and tallies what pytest-mat says of each. Nothing here knows how executions are
isolated: `stores` says where state is kept, `agents` what touches it and what it decides, `oracle` finds the cheapest schedule
that breaks an agent by brute force, each schedule in a process that executed nothing before.
"""
