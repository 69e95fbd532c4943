"""Builds caps, model clients, narrators and `open` arguments from settings.

Whoever gets a model closes it.
"""

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from msgspec import structs

from foldline.dialects.base import choose_dialect
from foldline.errors import BadInput
from foldline.models.clients import client
from foldline.models.port import Model
from foldline.models.summarize import Tellers
from foldline.session.host import Host, make_teller
from foldline.session.session_settings import resolve_session_settings
from foldline.session.spending import Cap, Caps
from foldline.settings.tree import NO_MODEL, OWN_MODEL, CapSettings, Settings


def build_caps(settings: Settings, *, but: Collection[str] = ()) -> Caps | None:
    """Build the caps that are set, `but` some; None if there are none."""
    caps = {
        whose: Cap(limit.tokens, limit.dollars)
        for whose, limit in structs.asdict(settings.caps).items()
        if limit != CapSettings() and whose not in but
    }
    return Caps(**caps) if caps else None


def make_model_client(
    settings: Settings, *, env: Mapping[str, str] | None = None, saved_key: str | None = None
) -> Model:
    """Make a client of the model that is set, with its address and key.

    `saved_key` is used where the settings name no variable.
    """
    said = settings.model
    if said.name is None:
        raise BadInput(
            'no model is set: write model = "NAME" into foldline.toml, or set FOLDLINE_MODEL'
        )
    return client(
        said.name, base_url=said.base_url, api_key=read_api_key(settings, env) or saved_key
    )


def read_api_key(settings: Settings, env: Mapping[str, str] | None = None) -> str | None:
    """Read the model's key from the variable that the settings name, if they name one."""
    named = settings.model.key_env
    if named is None:
        return None
    key = (os.environ if env is None else env).get(named)
    if not key:
        where = settings.origins.get("model.key_env", "model.key_env")
        raise BadInput(f"{where}: the environment has no {named}; set it to the model's key")
    return key


def build_tellers(
    settings: Settings, own: Model, *, host: Host | None = None, saved_key: str | None = None
) -> Tellers | None:
    """Build the narrators: the agent's own model, others at the same host, or none."""
    if NO_MODEL in settings.summarizer:
        return None
    named = {OWN_MODEL: own, settings.model.name or OWN_MODEL: own}
    said = settings.model
    if host is None and said.base_url is not None:
        speaks = choose_dialect(said.name or "", None, address=said.base_url)
        host = Host(said.base_url, speaks.name, said.base_url)
    found = Tellers(
        tuple(
            named.get(name) or make_teller(name, host, api_key=read_api_key(settings) or saved_key)
            for name in settings.summarizer
        )
    )
    template = settings.compaction.prompt_template
    return replace(found, template=template) if template else found


def build_open_arguments(settings: Settings) -> dict[str, Any]:
    """Build the arguments of `foldline.open`, except the address and the summarizer."""
    settings = resolve_session_settings(settings, settings.model.name or "", {})
    said = settings.model
    return {
        "model": said.name or "",
        "window": said.max_input_tokens,
        "reserve": said.max_output_tokens,
        "policy": settings.policy,
        "tenant": settings.tenant,
        "caps": build_caps(settings),
    }
