"""The gateway: change `base_url`, and any agent in any language stays inside its window.

    api             Sessions over HTTP
    api_keys        Keys that clients present, and what each may do
    asgi            The ASGI application: routes, health and metrics
    audit           The audit log, and Prometheus metrics
    calls           Requests under way: counted, and stopped from outside
    error_response  Errors of the gateway itself
    limits          Checks of a request's path and size
    local_access    Who reaches the sessions of a gateway without keys
    models          The models that answer sessions over HTTP
    network         How upstreams are reached: proxies and certificates
    plan_request    Plans a request as part of its conversation
    relay           Relays one request to its upstream, and the answer back
    server          The process: uvicorn, its port, and signals
    settings        The operator's settings: upstreams, limits, keys
    upstream        Asks an upstream over HTTP

Conversations are `proxy`'s, plans are the core's. Only upstreams that the operator named are asked;
a key is passed on or taken from the operator, never kept.
"""
