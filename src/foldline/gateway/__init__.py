"""The gateway: change `base_url`, and any agent in any language stays inside its window.

    serving   uvicorn, the drain at its end                       gateway/serving.py
    app       which path is whose: raw ASGI                       gateway/app.py
    relay     one request to its upstream, and its answer back    gateway/relay.py
    api/      sessions over HTTP, for those who send only what is new

Knows HTTP. Refuses to decide: conversations are `run.talks`', plans are the core's. An upstream is
one that the operator named; a key is passed on or taken from the operator, never kept.
"""
