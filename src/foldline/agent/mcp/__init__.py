"""The Model Context Protocol, both ways.

    connection  One server: started, asked for its tools, called, and started again after it died
    messages    A server's messages on their way in
    results     What a server answers, as parts of a message: the one way in for all of it (R-57)
    server      Tools of ours for any agent host: an MCP server on the standard streams
    tools       The tools of MCP servers, as an agent has them

Knows the official SDK, the extra `foldline[mcp]`, which takes a second to import: nothing here does
so before a server is started or served. Refuses to know settings and terminals.
"""
