"""The Model Context Protocol, both ways.

    results    what a server answers, as parts of a message           mcp/results.py
    hearing    a server's messages on their way in, unknown ones too  mcp/hearing.py
    joined     one server: started, listed, called, started again     mcp/joined.py
    using      all servers of an agent, as its tools                  mcp/using.py
    serving    tools of ours, for any agent host                      mcp/serving.py

Knows the official SDK, the extra `foldline[mcp]`, which takes a second to import: nothing here does
so before a server is started or served. Refuses to know settings and terminals.
"""
