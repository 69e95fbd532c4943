"""A session is asked at its own host: a hook for the agents that terminal, bot and API make.

Knows when a model is about to be asked. Refuses to know addresses: those are `session.host`'s.
"""

from foldline.agent.events import Asking, Hook, Moment
from foldline.agent.loop import Agent
from foldline.core.log import Event
from foldline.errors import OtherHost
from foldline.session.host import host_of, must_be_asked_at, record_host


def keep_host(agent: Agent) -> Hook:
    """A hook that records where a session is asked first, and lets it be asked nowhere else.

    Another process may have moved the session since this agent was made.
    """

    def keep(moment: Moment) -> str | Event | None:
        host = host_of(agent.model) if isinstance(moment, Asking) else None
        if host is None:
            return None
        live = agent.session.live
        try:
            must_be_asked_at(live.name.session, live.view.settings, host)
        except OtherHost as fault:
            return str(fault)
        return record_host(live.view.settings, host)

    return keep
