"""Where logs are kept: one port, `base.Store`, and its backends.

    base        The store's port: the operations that every backend has, and what they promise
    encryption  Encryption at rest around any store: R-71
    event_log   Events in a store
    keyring     A session's keys
    open        Which store an address means
    postgres    PostgreSQL through psycopg 3: many processes, many tenants, many sessions
    sqlite      SQLite through apsw: `:memory:` for tests and scripts, one file for a person
    url         How a store's address is written, and how it may be shown

Knows rows. Refuses to know views.
"""
