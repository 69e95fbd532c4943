"""The lab: what a policy would have cost, and forgotten, on sessions that really happened.

    recorded, stored   a session's events, times and counts: from files, from our own store
    bill             What calls cost
    comparison       Sessions under policies, side by side
    fake_summarizer  A narrative without a model: of a given size, and with a given loss
    intervals        How sure a mean over sessions is: the bootstrap
    made             Coding sessions that are made up from a seed, and whose truth is known
    planned          A conversation through admission and plan, as a session runs it
    policy_run       One of our policies as a contender of a replay
    probes           What a replay still had in front when it was needed: exact text, no judgement
    recorded         A session that happened: its events, when, and what the provider counted
    recorded_run     The record itself as a contender of a replay
    replay           A recorded session once more, call by call
    report           A comparison for people
    stored           A session of our own store as a record that the lab can replay
    trials           Many sessions under many policies
    words            The words of a message, as a probe looks for them

No model is asked, and no quality is judged: costs are simulated from counts, retention is exact
text.
"""
