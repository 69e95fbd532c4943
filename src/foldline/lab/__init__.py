"""The lab: what a policy would have cost, and forgotten, on sessions that really happened.

    recorded  a session's events, times and counts       replay  the same through a policy
    cache     what a provider bills for each call        probes  what the model still had in front
    planned   a log that grows under one policy, for replays and for tests

No model is asked, and no quality is judged: costs are simulated from counts, retention is exact
text.
"""
