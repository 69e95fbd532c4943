"""The gateway: change `base_url`, and any agent in any language stays inside its window.

    serving   uvicorn, the drain at its end
    app       which path is whose: raw ASGI; health, audit beside it
    keys      who comes in                      settings  what the operator decides
    local     who reaches sessions without keys, on one's own machine
    models    whom sessions over HTTP are answered by
    relay     one request to its upstream, and its answer back
      limits    what a request may be           calls     stopped from outside, and counted
      planning  the conversation it is of       upstream  asked over HTTP
      unplanned what is relayed as it comes, and why
      refusing  errors of our own               network   proxies, and whose CA is trusted
    api/      sessions over HTTP, for those who send only what is new

Knows HTTP. Refuses to decide: conversations are `proxy`'s, plans are the core's. An upstream is
one that the operator named; a key is passed on or taken from the operator, never kept.
"""
