"""The gateway: change `base_url`, and any agent in any language stays inside its window.

    api             Sessions over HTTP
    app             Which path is whose: raw ASGI, from a request's head to whoever serves it
    audit           What every request came to: one line of JSON each, and the same in figures
    calls           Requests on their way: each can be stopped from outside, and all are counted
    error_response  What the gateway itself answers: in the shape that the client's SDK knows
    health          Whether the gateway lives, is ready, and what it counts
    keys            Who comes in: the gateway's own keys, and providers' keys that pass through
    limits          What a request may be: its path, its size, what it unfolds to
    local_access    Who reaches the sessions of a gateway without keys
    models          The models that sessions over HTTP are answered by
    network         How upstreams are reached
    plan_request    The conversation that a request is of
    relay           One request to its upstream, and its answer back
    server          The gateway's process: a port, signals, the drain at its end
    settings        What an operator decides: upstreams, limits, who may come in
    unplanned       Requests that carry a conversation and are not planned: why, and that it is said
    upstream        An upstream over HTTP: asked, and its answer read as it comes

Knows HTTP. Refuses to decide: conversations are `proxy`'s, plans are the core's. An upstream is
one that the operator named; a key is passed on or taken from the operator, never kept.
"""
