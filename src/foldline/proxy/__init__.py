"""Conversations that a client owns: it sends its whole history with every call.

    body → read → matched with its log → planned on the log → patched → sent

    wrap           clients of the official SDKs        exchange   one call: sent, and answered
    conversations  which log a request goes on with    identity   whose it is, by key and headers
    conversation   one log: what is new, what is sent  index      histories by their digests
    request        a body's fields and messages        match      what a log has of a request
    patch          edits, laid over the client's bytes transport  httpx: timeouts and errors
    naming         names that a program gives

The client's bytes are the truth, and our edits are patches on them. Shared by `wrap` and the
gateway. Refuses to know HTTP beyond the SDKs' own layer.
"""
