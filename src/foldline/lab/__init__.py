"""The lab: what a policy would have cost and forgotten, and what models remember under it.

    answer_file      The answers of a run that asks a model, so that it can go on
    bill             What calls cost, and why
    coding_tasks     Small repositories with one failing test each
    comparison       One session under one policy, and policies compared over sessions
    kept_names       What a replay still had in sight when it was needed; a message as text
    planted          Made-up conversations with planted facts
    policy_run       The contenders of a replay: our policies, and the record itself
    quality          What a model remembers of planted facts, under several ways to fit the window
    recorded         A recorded session: its events, times and counts
    replay           Replays a session call by call
    report           A comparison for people
    task_run         Works coding tasks with our agent under several arms

Only `quality` and `task_run` call a model. Elsewhere no quality is judged: costs are simulated
from counts, retention is exact text.
"""
