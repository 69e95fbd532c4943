"""Storage for logs: one port, `base.Store`, and its backends.

base            The port: the operations every backend has, and what they promise
beside          Runs work beside the event loop; indexing once for all that wait for it
encryption      Encryption at rest around any store
event_log       Writes events to a store and reads them back
open_store      Opens the store that an address names
postgres        PostgreSQL through psycopg 3: many processes, many tenants, many sessions
search_ranking  How a search ranks messages: BM25 over posting lists
search_terms    The terms that a text is indexed and searched by
side_values     Changes a value that other processes change too
sqlite          SQLite through apsw: `:memory:` for tests and scripts, one file for a person
work_thread     A thread that waits for the disk, or computes for long
"""
