"""Cron entries that send messages into sessions as `cron`, never as the user.

schedule_entry  An entry: its cron expression, and its states as time goes by
schedule_store  A tenant's entries in the store
scheduler       A worker that fires what is due, once, and has it answered

planned → claimed → fired (in the log) → answered
             ↘ by another worker, when the claim has expired
"""
