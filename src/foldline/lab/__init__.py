"""The lab: what a policy would have cost, and forgotten, on sessions that really happened.

    recorded  a session's events, times and counts     replay    the same, somebody else deciding
    ours      one of our policies as who decides       planned   a log that grows under one policy
    tellers   narratives of given size and loss        cache     what a provider bills for a call
    probes    what the model still had in front        trials    many of these, on any executor
    costs     a session's bill and its cold calls      causes    why a call found no cache
    volatile  bytes of the front that changed          providers the rules of each one's cache

No model is asked, and no quality is judged: costs are simulated from counts, retention is exact
text.
"""
