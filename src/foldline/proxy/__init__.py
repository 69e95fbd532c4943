"""Conversations that a client owns: it sends its whole history with every call.

    body → read → matched with its log → planned on the log → patched → sent

    conversation   One client's conversation
    conversations  Which log a request goes on with
    exchange       One call of a client: what to send, and what comes back
    identity       Whose conversation a request belongs to
    index          Which logs a history may go on with
    match          What a request makes of its log
    naming         Which conversation the calls of a program belong to
    patch          Edits as patches on a client's bytes: outside of them every byte is the client's
    request        A client's request as bytes
    transport      HTTP transports that plan what an SDK's client sends
    wrap           Clients of the official SDKs, with their history planned on the way out

The client's bytes are the truth, and our edits are patches on them. Shared by `wrap` and the
gateway. Refuses to know HTTP beyond the SDKs' own layer.
"""
