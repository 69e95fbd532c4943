"""The lab: what a policy would have cost, and forgotten, on sessions that really happened.

    recorded  a session's events, times and counts     stored   the same, of our own store
    replay    it again, somebody else deciding         ours     one of our policies as who decides
    planned   a log that grows under one policy        tellers  narratives of given size and loss
    cache     what a provider bills for each call      probes   what the model still had in front
    trials    many of these, on any executor           compared them side by side
    sentences a comparison in words                    page     the same as HTML; plots its drawings

No model is asked, and no quality is judged: costs are simulated from counts, retention is exact
text.
"""
