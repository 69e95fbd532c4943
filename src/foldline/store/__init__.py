"""Where logs are kept: one port, `base.Store`, and its backends.

    at         which store an address means        addresses  how one is written and shown
    logs       events ↔ rows, the tail of a view
    sqlite/    a file, or memory                   postgres/  many processes, many tenants
    crypt      encryption around any of them       rings      its keys

Knows rows. Refuses to know views.
"""
