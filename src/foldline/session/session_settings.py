"""The settings of one session, and the facts that follow from them: one rule for every site.

    facts_of = make_facts_of(load_settings(Path.cwd()))
    live.facts = facts_of(live.view.model, live.view.settings)

Terminal, bot, scheduler, worker, session API, relay and `wrap` all use it. The first that says
something wins:

    policy              the command line; the session's maker, if they named one; the settings;
                        what the session was left with
    window, reserve     the command line; what the session was left with; the settings, if they name
                        this model or none
    everything else     the settings, on top of that policy
"""

import logging
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TypeAlias, cast

from msgspec import structs

from foldline.core.edits.fold import Ask, Prepared
from foldline.core.log import Setting
from foldline.core.plan import Facts
from foldline.core.policy import PRESETS, Policy
from foldline.dialects.base import choose_model_dialect
from foldline.errors import BadInput, FoldlineError
from foldline.models.port import Model
from foldline.models.summarize import Tellers
from foldline.session.host import names_address
from foldline.session.log_handle import Live
from foldline.session.model_facts import FactsOf, build_facts
from foldline.session.spending import Spending
from foldline.session.summaries import Preparing
from foldline.settings.layers import LINE
from foldline.settings.parse import build_policy
from foldline.settings.tree import NO_MODEL, OWN_MODEL, Settings

ClientOf: TypeAlias = Callable[[str], Model]
Prepare: TypeAlias = Callable[[Live], Awaitable[None]]
_log = logging.getLogger("foldline.session")
GIVEN = "policy_given"
"""In a session's log: true if the session's maker named its policy."""


def resolve_session_settings(
    settings: Settings, model: str, recorded: Mapping[str, Setting]
) -> Settings:
    """Return the settings in force for a session, with its model, window, reserve and policy."""
    said = settings.model
    is_meant = said.name is None or _strip_provider(said.name) == _strip_provider(model)

    def choose_tokens(name: str, own: int | None, key: str) -> int | None:
        if settings.origins.get(name) == LINE:
            return own
        return cast("int | None", recorded.get(key)) or (own if is_meant else None)

    own = structs.replace(
        said,
        name=model or said.name,
        max_input_tokens=choose_tokens("model.max_input_tokens", said.max_input_tokens, "window"),
        max_output_tokens=choose_tokens(
            "model.max_output_tokens", said.max_output_tokens, "reserve"
        ),
    )
    return structs.replace(
        settings, model=own, policy=_resolve_policy(settings, own.name or "", recorded)
    )


def make_facts_of(settings: Settings) -> FactsOf:
    """Make the function that builds the facts of a session under these settings."""

    def facts_of(model: str, recorded: Mapping[str, Setting]) -> Facts:
        own = resolve_session_settings(settings, model, recorded)
        return build_facts(
            model,
            window=own.model.max_input_tokens,
            reserve=own.model.max_output_tokens,
            policy=own.policy,
            base_url=recorded.get("base_url"),
        )

    return facts_of


def _resolve_policy(settings: Settings, model: str, recorded: Mapping[str, Setting]) -> Policy:
    """Return the policy: the preset that counts, with all other settings on top of it."""
    said = {name: one for name, one in settings.values.items() if name not in settings.outranked}
    left = recorded.get("policy")
    is_free = settings.origins.get("policy") != LINE
    if left in PRESETS and is_free and (recorded.get(GIVEN) or "policy" not in said):
        said["policy"] = left
    return build_policy(said, provider=_find_provider(model))


def _find_provider(model: str) -> str:
    """Return the prefix before the slash of the model's name, else its vendor's name."""
    before, slash, _ = model.partition("/")
    return before if slash else choose_model_dialect(model).vendor.name if model else ""


def _strip_provider(model: str) -> str:
    return model.rpartition("/")[2]


def make_preparation(settings: Settings, client_of: ClientOf) -> Prepare | None:
    """Make the function that gives an opened log its narrator; None if no summarizer is set.

    For sites without a default summarizer. `client_of` opens a model by its name; the word `model`
    in the settings means the session's own.
    """
    if "summarizer" not in settings.values or NO_MODEL in settings.summarizer:
        return None

    def tellers_of(model: str) -> Tellers:
        if OWN_MODEL in settings.summarizer and names_address(model):
            raise BadInput(f"{model[:80]!r} is the session's own model, and names an address")
        names = (model if name == OWN_MODEL else name for name in settings.summarizer)
        found = Tellers(tuple(map(client_of, names)))
        template = settings.compaction.prompt_template
        return replace(found, template=template) if template else found

    async def prepare_log(live: Live) -> None:
        live.narrator = SessionNarrator(tellers_of, spending=live.spending)

    return prepare_log


class SessionNarrator(Preparing):
    """Asks models that depend on the session's own, which a new log does not name yet."""

    def __init__(self, tellers_of: Callable[[str], Tellers], *, spending: Spending | None) -> None:
        super().__init__(Tellers(()), spending)
        self._tellers_of = tellers_of

    async def _prepare_and_keep(self, live: Live, ask: Ask) -> Prepared:
        try:  # in a thread: an SDK takes a second to import
            self.tellers = await to_thread(self._tellers_of, live.view.model)
        except FoldlineError as fault:  # no key, or no upstream: the fold has no narrative
            self.tellers = Tellers(())
            _log.warning("nobody can be asked to summarize %s: %s", live.name.session, fault)
        return await super()._prepare_and_keep(live, ask)
