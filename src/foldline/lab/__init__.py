"""The lab: what a policy would have cost, and forgotten, on recorded sessions.

    bill             What calls cost, and why
    comparison       Compares policies over sessions
    fake_summarizer  Narratives without a model
    kept_names       What a replay still had in sight when it was needed
    policy_run       The contenders of a replay: our policies, and the record itself
    recorded         A recorded session: its events, times and counts
    replay           Replays a session call by call
    report           A comparison for people
    trials           One session under one policy
    words            The text of a message as probes search it

No model is called, and no quality is judged: costs are simulated from counts, retention is exact
text.
"""
