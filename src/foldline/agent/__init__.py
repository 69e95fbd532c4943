"""An agent to talk to for months: a session, a model, and tools.

    moments       what happens in a turn, told to hooks as it happens      agent/moments.py
    tool          the port that every tool stands behind                   agent/tool.py
    loop          ask, run what was called for, ask again                  agent/loop.py
    approval      what a person is asked before something is changed       agent/approval.py
    host          a session is asked at its own host, and nowhere else     agent/host.py
    tools/        files, search, shell, the past of the session            agent/tools/
    mcp/          tools of MCP servers; a session's own past as one        agent/mcp/
    instructions/ AGENTS.md, nearest first; the memory file                agent/instructions/
    schedule/     cron entries that speak into sessions                    agent/schedule/
    unfinished    what a process left unanswered, or half answered         agent/unfinished.py
    making        an agent made of settings: all of these                  agent/making.py

Knows how an agent works through a turn. Refuses to know who listens: a terminal, a bot and a
scheduler run the same loop.
"""
