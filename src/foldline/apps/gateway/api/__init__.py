"""Sessions over HTTP, for those who let Foldline keep the history and post only what is new.

    app          The session API as one ASGI app, to be mounted at /sessions
    calls        One request of a client, and what it is answered with: ASGI in structs
    document     The OpenAPI document, made from the table of routes and the structs
    edit_routes  Verbs that change a session: made, folded, undone, pinned, switched, forked, erased
    errors       Every error as a status and a body: {"error": {"kind", "message", "way_out"}}
    pool         The sessions that are open in this process, and whose turn it is
    read_routes  Verbs that only look: lists, sizes, pictures, the past, what is kept out of sight
    routes       The table of all that can be asked for
    schemas      Bodies and answers of the session API, as structs
    turns        A message, and the agent's work on it: the HTTP call site of the one loop (A-47)

Knows sessions and HTTP. Refuses to know who asks: tenant and owner stand in the scope, proven by
whoever put them there; and to decide: the session does.
"""

from foldline.apps.gateway.api.app import SessionsApi, sessions_api
from foldline.apps.gateway.api.pool import PoolPlace

__all__ = ["PoolPlace", "SessionsApi", "sessions_api"]
