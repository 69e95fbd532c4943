"""Settings put to use: caps, the model that is asked, who tells narratives, how a session opens.

Knows what each of these wants to be given. Refuses to close: whoever gets a model
closes it.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from foldline.errors import BadInput
from foldline.models.addresses import dialect_of
from foldline.models.clients import client
from foldline.models.port import Model
from foldline.models.summarize import Tellers
from foldline.session.host import Host, make_teller
from foldline.session.spending import Cap, Caps
from foldline.settings.values import NOBODY, OWN, Settings


def caps(settings: Settings) -> Caps | None:
    """The most that may be spent, where anything is said of it."""
    found = {whose: Cap(*limit) for whose, limit in settings.limits.items() if _limited(limit)}
    return Caps(**found) if found else None


def _limited(limit: tuple[int | None, float | None]) -> bool:
    """Whether there is a limit at all; 0 is one."""
    return any(one is not None for one in limit)


def model(settings: Settings, *, env: Mapping[str, str] | None = None) -> Model:
    """A client of the model that is set, with its address and its key."""
    said = settings.model
    if said.name is None:
        raise BadInput(
            'no model is set: write model = "NAME" into foldline.toml, or set FOLDLINE_MODEL'
        )
    return client(said.name, base_url=said.base_url, api_key=_key(settings, env))


def _key(settings: Settings, env: Mapping[str, str] | None) -> str | None:
    named = settings.model.key_env
    if named is None:
        return None
    key = (os.environ if env is None else env).get(named)
    if not key:
        where = settings.origins.get("model.key_env", "model.key_env")
        raise BadInput(f"{where}: the environment has no {named}; set it to the model's key")
    return key


def tellers(settings: Settings, own: Model, *, host: Host | None = None) -> Tellers | None:
    """Who tells narratives: the agent's own model, others at the same host, or nobody."""
    if NOBODY in settings.summarizer:
        return None
    named = {OWN: own, settings.model.name or OWN: own}
    said = settings.model
    if host is None and said.base_url is not None:
        host = Host(said.base_url, dialect_of(said.name or ""), said.base_url)
    found = Tellers(
        tuple(
            named.get(name) or make_teller(name, host, api_key=_key(settings, None))
            for name in settings.summarizer
        )
    )
    template = settings.prompt_template
    return replace(found, template=template) if template else found


def opening(settings: Settings) -> dict[str, Any]:
    """What `foldline.open` is given, besides the store's address and who tells narratives."""
    said = settings.model
    return {
        "model": said.name or "",
        "window": said.max_input_tokens,
        "reserve": said.max_output_tokens,
        "policy": settings.policy,
        "tenant": settings.tenant,
        "caps": caps(settings),
    }
