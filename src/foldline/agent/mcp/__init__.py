"""The Model Context Protocol, as client and as server.

    mcp_client  A client for one server, restarted after it died
    mcp_server  Our own server on the standard streams: a session's past
    mcp_tools   The tools of MCP servers, for an agent

The official SDK, extra `foldline[mcp]`, takes a second to import; nothing here imports it before a
server is started or served.
"""
