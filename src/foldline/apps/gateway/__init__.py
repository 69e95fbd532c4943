"""The gateway: change `base_url`, and any agent in any language stays inside its window.

    allowances      The arithmetic of limits that several processes share
    api             Sessions over HTTP
    api_keys        Keys that clients present, and what each may do
    asgi            The ASGI application: routes, health and metrics
    audit           The audit log, and Prometheus metrics of calls, limits and the process
    call_figures    What one call took: tokens, dollars, what edits saved
    call_limits     What a call may take of its limits, and what it took
    call_spans      A span for each call of a model
    calls           Requests under way: counted, and stopped from outside
    current_settings  The settings as the files have them now, by tenant
    error_response  Errors of the gateway itself
    key_store       The keys that the store keeps
    limit_counters  What one process holds of each limit, and its trades with the store
    limiter         Admits calls that the limits allow; what tenants have stored
    limits          Checks of a request's path and size
    local_access    Who reaches the sessions of a gateway without keys
    models          The models that answer sessions over HTTP
    network         How upstreams are reached: proxies and certificates
    plan_request    Plans a request as part of its conversation
    provider_routes Which of a provider's paths are passed on
    relay           Relays one request to its upstream, and the answer back
    server          The process: uvicorn, its port, and signals
    session_shares  Sessions that their owners share
    settings        The operator's settings: upstreams, limits, keys
    upstream        Asks an upstream over HTTP

Conversations are `proxy`'s, plans are the core's. Only upstreams that the operator named are asked;
a key is passed on or taken from the operator, never kept.
"""
