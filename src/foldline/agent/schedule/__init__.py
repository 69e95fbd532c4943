"""Cron entries that speak into sessions as `cron`, never as the user.

    times      a cron expression in a time zone: when it comes            schedule/times.py
    entry      an entry, and what becomes of it as time goes by (pure)    schedule/entry.py
    kept       the entries of a tenant, in the store's side table         schedule/kept.py
    worker     fires what is due, once, whoever else does the same        schedule/worker.py

    planned → claimed → fired (in the log) → answered
                 ↘ by another worker, when the claim has run out

Knows when something is to be said, and that it is said once. Refuses to know how an agent is made,
and what it answers: that is the loop.
"""
