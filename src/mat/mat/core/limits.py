"""All limits, by name. Reaching one is an outcome with a name, never a silent truncation."""

from __future__ import annotations

from typing import Final

HORIZON_STEPS: Final = 1_000
"""Steps that a run may take before it is stopped without having ended by itself."""
HORIZON_MS: Final = 86_400_000 * 7
"""Virtual milliseconds that a run may take before it is stopped with Term = 0: one week."""
BUDGET: Final = 12
"""The largest total cost of a schedule that the search tries."""
MAX_RUNS: Final = 2_000
"""Executions that the search of one item may use."""
VALUE_DEPTH: Final = 40
"""Nesting of a recorded value; deeper values have no canonical form."""
VALUE_CHARS: Final = 1_000_000
"""Characters of one recorded text; a longer one is kept as its hash and length."""
FILE_BYTES: Final = 50_000_000
"""The largest replay file or tape, in bytes, that is read."""
WRITTEN_BYTES: Final = 2_000_000
"""The largest policy or file of resource contracts, in bytes, that is read."""
WRITTEN_NODES: Final = 20_000
"""Values in a policy or in a file of resource contracts; each can be a problem that is reported."""
STREAMED_BYTES: Final = 50_000_000
"""Bytes of a model's streamed reply that are kept, outside of runs, to read its usage; that of a longer one is unknown."""
STREAMED_CHUNKS: Final = 100_000
"""Chunks of a model's stream that its recording keeps where the agent has left it."""
STREAM_REST_S: Final = 60.0
"""Seconds in which the rest of a stream is read that the agent has left. One that goes on for longer is not recorded."""
FORMULA_DEPTH: Final = 3_000
"""Levels of a formula. An operator is one, `implies` two and `historically` three; parts joined by & or | are on one."""
FILE_DEPTH: Final = 100
"""The deepest nesting of JSON that is read."""
REPORT_INTEGER: Final = 2**63 - 1
"""The largest integer of a report that is read back: the maximum of Parquet and SQL."""
GUESS_FUNCTIONS: Final = 200
"""Functions of the user's project that are read to guess which client a tool calls; the others are not read."""
HISTORY: Final = 16
"""Earlier raw replies kept per port for operators that serve stale ones."""
THREAD_GRACE_S: Final = 5.0
"""Real seconds that threads outside a run have to wake it when all its threads wait; after that it is a deadlock."""
FOREIGN_S: Final = 0.5
"""Real seconds that a wait with a timeout gives to threads outside the run, before it times out in run time."""
BLOCKED_S: Final = 1.0
"""Real seconds in which the thread with the turn must make progress; otherwise the run continues without it and is marked."""
SPIN_S: Final = 5.0
"""Seconds of processor time that the thread with the turn may compute while others are ready; then one of them gets the turn,
and the run is marked."""
POLLS: Final = 100_000
"""Polls (of the clock, an event, a future; `sleep(0)`) without a wait in between, after which each poll lets run time pass. A
pass of an event loop counts as ten."""
OPEN_OBLIGATIONS: Final = 10_000
"""Steps, of one id, that may wait for a formula with several future operators; with more, the contract cannot judge."""
ISOLATED_BYTES: Final = 64_000_000
"""The largest array that is copied, to be put back before each execution."""
ISOLATED_NODES: Final = 50_000
"""Objects with mutable state, reachable from the user's modules, that are compared around each execution."""
APART_NODES: Final = 500_000
"""The same in the modules of other tests, which are compared now and then."""
DECLARED_PORTS: Final = 10_000
"""Ports whose names are kept, to recognise names in contracts that are not those of ports."""
REGION: Final = 5
"""Steps shown before a violation in the failure section."""
SKIP_SAMPLE_PERCENT: Final = 5
SKIP_SAMPLE_LEAST: Final = 8
"""Share and least number of skipped edges that are executed and compared."""
FRESH_CHEAPEST: Final = 8
FRESH_SAMPLE: Final = 8
"""How many of the cheapest schedules, and of the others, are also executed in fresh processes before anything is certified."""
VOUCHED_SAMPLE_LEAST: Final = 32
"""How many edges, of those skipped because the user vouches that states are equal, are executed at least, if the search itself
has executed as many."""
LAYER_OFFERS: Final = 50
"""Runs whose next perturbations are counted, to say how far a search came in its last layer; others count like the average."""
SHRINK_RESERVE: Final = 20
"""Executions for which a search with a time limit sets time aside to shrink each counterexample."""
UNPROVEN_S: Final = 20.0
"""Real seconds that a search goes on for what it can find, once it can prove nothing: such runs may be slow."""
AUDITS: Final = 8
"""How many of these edges are extended at random, to check whether the claim also holds for longer schedules."""
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
"""Runs under faults of one item that a report lists individually, cheapest first."""
JOURNAL_BYTES: Final = 1_000_000_000
"""The largest journal of a search, in bytes; later executions are not kept."""
JOURNALS_KEPT: Final = 100
"""Journals kept of searches that were never resumed; the oldest are removed first."""
INPUT_BYTES: Final = 256_000_000
"""The largest file that is compared before a certificate is reused; one that rests on a larger file is not kept."""
SEARCHES_KEPT: Final = 10_000
"""Records of searches, with their certificates, that are kept; the oldest are removed first."""
RUNS_KEPT: Final = 500
"""Whole runs that a search keeps in memory for reuse; the oldest is dropped first."""
RECORDS_KEPT: Final = 50_000
"""Records of these runs, together; and of the runs whose children an exhaustive search still has to look at. A run that is not
kept is executed again when it is needed."""
ARTIFACTS: Final = 1_024
"""Artifacts of a run that are recognized in later arguments; the oldest are dropped first."""
ARTIFACT_CHARS: Final = 65_536
"""Characters of an artifact, and of a text, that are searched for damage; an undamaged artifact is found at any length."""
ERROR_CHARS: Final = 200
"""Characters of an exception that a violation shows, where a contract could not be judged."""
STATE_DIGEST_BYTES: Final = 16_000_000
"""Bytes of monitor states whose digests a process remembers; above that it forgets all of them and begins anew."""
