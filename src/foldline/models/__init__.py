"""Models: what is known of them, how they are asked, and what they may not be shown.

    catalog    windows and prices by name          overrides  the user's own file of them
    servers    what a server says of its models    addresses  where servers are
    port       what a model is to the rest         clients    the official SDKs behind it
    calling    asked until it answers              summarize  a narrative asked for, and proven
    redact     secrets out of a text               striking   and out of events
      shapes     what credentials look like          likely     what stands behind a telling name

Knows names, servers and SDKs. Refuses to know sessions.
"""
