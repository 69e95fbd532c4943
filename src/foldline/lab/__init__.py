"""The lab: what a policy would have cost, and forgotten, on sessions that really happened.

    recorded, stored   a session's events, times and counts: from files, from our own store
    replay             it again, call by call, somebody else deciding
    ours, tellers      one of our policies as who decides; narratives of given size and loss
    theirs             the record itself as who decides
    planned, words     the steps of a session without a store; the words of a message
    bill/              what each call costs           probes/   what was still in front
    trials, compared   many of these, on any executor, side by side; intervals: how sure
    report/            a comparison told to people
    made/              sessions made up from a seed, whose truth is known

No model is asked, and no quality is judged: costs are simulated from counts, retention is exact
text.
"""
