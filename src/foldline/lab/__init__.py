"""The lab: what a policy would have cost, and forgotten, on sessions that really happened.

    recorded     a session's events, times and counts     replay     somebody else deciding
    ours         one of our policies as who decides       planned    a log under one policy
    tellers      narratives of given size and loss        cache      what a provider bills
    probes       what the model still had in front        trials     many, on any executor
    generated    made-up sessions, from a seed            truth      what is true of them
    coder        the agent in them: it looks              editor     and it changes things
    repository   the files it works on                    sayings    what is said
    planted      what of the truth is still in front      decay      what many folds leave
    recoverable  whether what was cut comes back          intervals  how sure a mean is

No model is asked, and no quality is judged: costs are simulated from counts, retention is exact
text.
"""
