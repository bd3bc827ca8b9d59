"""Every limit, by name. Reaching one is an outcome with a name, never a silent cut."""

from __future__ import annotations

from typing import Final

HORIZON_STEPS: Final = 1_000
"""Steps a run may take before it is stopped with Term = 0 (A1.7)."""
HORIZON_MS: Final = 86_400_000 * 7
"""Virtual milliseconds a run may take before it is stopped with Term = 0: one week."""
BUDGET: Final = 12
"""Largest total cost of a schedule the search looks at (DESIGN decision 18)."""
MAX_RUNS: Final = 2_000
"""Executions one item may spend on its search."""
VALUE_DEPTH: Final = 40
"""Nesting of a recorded value; deeper values have no canonical form."""
VALUE_CHARS: Final = 1_000_000
"""Characters of one recorded text; a longer one is kept as its hash and length."""
FILE_BYTES: Final = 50_000_000
"""Size of a replay file, a policy or a tape that we agree to read."""
FILE_DEPTH: Final = 100
"""Nesting of JSON that we agree to read."""
REPORT_INTEGER: Final = 2**63 - 1
"""The largest whole number of a report that is read back: what Parquet and SQL hold."""
HISTORY: Final = 16
"""Earlier raw replies kept per port for operators that serve stale ones."""
THREAD_GRACE_S: Final = 5.0
"""Real seconds in which threads around a run may wake it, where everyone in it waits, before that is a deadlock."""
FOREIGN_S: Final = 0.5
"""Real seconds that a wait with a time-out gives threads around a run, whose time is real, before it times out in run time."""
BLOCKED_S: Final = 1.0
"""Real seconds in which a thread that has the turn must get on; one that stands still is left behind, and the run is marked."""
SPIN_S: Final = 5.0
"""Seconds of processor time in which a thread that has the turn may compute while others could go on; then they do, and the run
is marked."""
POLLS: Final = 100_000
"""Looks (at the clock, an event, a future, `sleep(0)`) without waiting, after which each lets run time pass; a pass of an event
loop counts as ten."""
REGION: Final = 5
"""Steps shown before a violation in the failure section."""
SKIP_SAMPLE_PERCENT: Final = 5
SKIP_SAMPLE_LEAST: Final = 8
"""Share and least number of skipped edges that are executed and compared (DESIGN decision 9)."""
VOUCHED_SAMPLE_LEAST: Final = 32
"""Least number of edges executed of those that are skipped because states are equal by the user's word, where the search itself
has executed as many."""
AUDITS: Final = 8
"""Of these, how many are grown further at random, to see whether the claim holds deeper down."""
SHRINK_LEAST: Final = 200
"""Executions that shrinking one counterexample may take, however many the search has left."""
STABILITY_RUNS: Final = 3
"""Executions that confirm a counterexample, the first of them in a fresh process."""
EVALUATION_RUNS: Final = 200
"""Executions of each of the many searches of an evaluation."""
EVALUATION_CHAINS: Final = 20
"""Random chains of schedules that each search of an evaluation grows, for robustness curves."""
NOTES: Final = 100
"""Findings kept per run; the count of the rest is kept too."""
FAULT_OUTCOMES: Final = 200
"""Runs under faults of one item that a report keeps singly; the cheapest first."""
JOURNAL_BYTES: Final = 1_000_000_000
"""Size up to which the journal of a search grows; what is executed after that is not kept."""
JOURNALS_KEPT: Final = 100
"""Journals kept of searches that were never taken up again; the oldest go first."""
RUNS_KEPT: Final = 500
"""Whole runs that a search keeps in memory, to take again what it has executed; the oldest goes first."""
ARTEFACTS: Final = 1_024
"""Artefacts of a run that are recognised in later arguments; the oldest are let go."""
ARTEFACT_CHARS: Final = 65_536
"""Characters of an artefact, and of a text, in which damage is looked for; whole ones are found at any length."""
