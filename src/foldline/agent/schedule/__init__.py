"""Cron entries that speak into sessions as `cron`, never as the user.

    entry   An entry of the schedule, and what becomes of it as time goes by
    kept    The entries of a tenant, in the store's side table
    times   A cron expression in a time zone: when it comes, and what is wrong with it
    worker  A worker: fires what is due, once, however many others do the same, and has it answered

    planned → claimed → fired (in the log) → answered
                 ↘ by another worker, when the claim has run out

Knows when something is to be said, and that it is said once. Refuses to know how an agent is made,
and what it answers: that is the loop.
"""
