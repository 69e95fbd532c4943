"""Sessions over HTTP, for those who let Foldline keep the history and post only what is new.

    app        one ASGI app, made by `sessions_api(place)`             api/app.py
    routes     the table of all that can be asked for                  api/routes.py
    document   the OpenAPI document, made from that table              api/document.py
    shapes     bodies and answers, as structs                          api/shapes.py
    calls      one request of a client, and what it is answered with   api/calls.py
    pool       the sessions that are open, and whose turn it is        api/pool.py
    turns      a message, and the agent's work on it (A-47)            api/turns.py
    looking    verbs that only look                                    api/looking.py
    deciding   verbs that change what the model sees                   api/deciding.py
    faults     every error as a status and a body                      api/faults.py

Knows sessions and HTTP. Refuses to know who asks: tenant and owner stand in the scope, proven by
whoever put them there; and to decide: the session does.
"""

from foldline.gateway.api.app import SessionsApi, sessions_api
from foldline.gateway.api.pool import Place

__all__ = ["Place", "SessionsApi", "sessions_api"]
