"""An agent to talk to for months: a session, a model, and tools.

    approval      Asks before a call changes something, and remembers the answers
    checkpoints   What tools changed in files, turn by turn, and how to take it back
    events        The moments of a turn, as hooks see them
    factory       Builds an agent from settings
    instructions  Instructions from files: AGENTS.md, nearest first, and the memory file
    loop          The agentic loop
    mcp           The Model Context Protocol, as client and as server
    schedule      Cron entries that send messages into sessions as `cron`
    tool          The interface of every tool
    tools         The agent's own tools, which need no server

A terminal, a bot and a scheduler run the same loop.
"""
