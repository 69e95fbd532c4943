"""Models: what is known of them, how they are asked, and what they may not be shown.

    addresses            Addresses of model servers
    catalog              Windows and prices by a model's name
    clients              Real models behind the port, through the official SDKs
    credential_patterns  The shapes of credentials
    overrides            The user's own file of windows and prices
    port                 The port to a model
    redact               Secrets taken out of a text before it goes where it need not
    redact_events        Events without secrets: what a summarizer may be shown of them (R-70)
    retries              Calling a model until it answers: how often, and how long
    secret_guess         Whether a value that stands behind a telling name is a secret
    servers              What a server says of its own models: windows, the largest answer, prices
    summarize            A narrative asked of a model, and proven before anybody sees it

Knows names, servers and SDKs. Refuses to know sessions.
"""
