"""Sessions over HTTP, for those who let Foldline keep the history and post only what is new.

    api_call      One request and its reply; errors as status and body
    edit_routes   Routes that change a session
    pool          The sessions that are open in this process
    read_routes   Routes that only read
    routes        The table of routes
    schemas       Bodies and answers, as structs
    sessions_api  The session API as one ASGI app at /sessions, and its OpenAPI document
    turns         Routes that run the agent, and that add and follow events

Tenant and owner come from the scope: whoever mounts the app has checked them.
"""

from foldline.apps.gateway.api.pool import PoolPlace
from foldline.apps.gateway.api.sessions_api import SessionsApi, sessions_api

__all__ = ["PoolPlace", "SessionsApi", "sessions_api"]
