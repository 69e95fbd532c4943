"""Conversations that a client owns: it sends its whole history with every call.

    body → read → matched with its log → planned on the log → patched → sent

    client_request  Parses a client's request into fields, messages and digests
    compacted_history  Answers requests to compact a history by a fold
    conversation    One client's conversation: its log, and planning its requests
    conversations   Finds the log that a request continues
    exchange        One call of a client: the body to send, and the response
    follow          Plans requests whose history the caller keeps
    google_client   Copies clients of Google's SDK, with HTTP clients that plan
    identity        Names and ids by which a request's conversation is known
    index           Finds logs by the digests of a history, and compares the two
    patch           Applies edits as patches to a client's bytes
    rounds          Answers in which the model calls `recall`, as one for the client
    spared_tokens   How much larger a client's own request is than the one that is sent
    transport       HTTP transports that plan what an SDK's client sends
    wrap            Wraps clients of the official SDKs

The client's bytes are the truth, and our edits are patches on them. `wrap` and the gateway share
this package.
"""
