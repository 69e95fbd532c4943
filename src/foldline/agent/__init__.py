"""An agent to talk to for months: a session, a model, and tools.

    approval      Approval: who decides before something is changed, and what was decided for good
    events        What happens in a turn, told to hooks as it happens: A-48
    factory       An agent made of settings
    host          A session is asked at its own host
    instructions  Instructions from files: AGENTS.md, nearest first, and the memory file
    loop          The agentic loop
    mcp           The Model Context Protocol, both ways
    schedule      Cron entries that speak into sessions as `cron`, never as the user
    tool          The port that every tool stands behind
    tools         The agent's own tools: what every agent of ours can do without a server
    unfinished    What was left unanswered, or in the middle of an answer

Knows how an agent works through a turn. Refuses to know who listens: a terminal, a bot and a
scheduler run the same loop.
"""
