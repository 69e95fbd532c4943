"""The facts that plans use: the policy, and the limits and prices of a model.

Of several sources the first wins: the user, the server, the user's file, the catalogue, the model's
family. A smaller window learned from an error wins over all of them. This module also fits the
answer limit of a request into the window.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from foldline.core.budget import Source, limits, replace_reserve
from foldline.core.log import Setting
from foldline.core.plan import Facts
from foldline.core.policy import Policy, named
from foldline.core.prices import FREE, Prices
from foldline.dialects.base import Dialect
from foldline.dialects.model_names import binds_thinking
from foldline.errors import BadInput

if TYPE_CHECKING:
    from foldline.models.servers import Reported

FactsOf: TypeAlias = Callable[[str, Mapping[str, Setting]], Facts]
"""Builds the facts of a session from its model and from the settings in its log."""
_OPENAI_LIFETIME = 1_800.0  # seconds, by OpenAI's page on models from GPT-5.6 on
_UNSTREAMED = 20_000  # tokens: Anthropic's SDK allows no longer answer without a stream


def fit_answer_limit(
    facts: Facts, dialect: Dialect, parameters: Mapping[str, Any], *, streams: bool = False
) -> tuple[Facts, dict[str, Any]]:
    """Fit the answer limit and the reserve to each other; return facts and parameters.

    A missing limit that the dialect requires becomes the reserve, at most the model's own limit,
    and less without a stream. A limit that the window cannot keep free is lowered.
    """
    kept = facts.limits.reserve
    most = min(kept, facts.limits.max_output or kept)
    most = most if streams or parameters.get("stream") else min(most, _UNSTREAMED)
    sent = dialect.build_parameters(parameters, most=most)
    bound = dialect.find_bound(sent)
    if bound is not None and bound[1] > kept:
        facts = replace(facts, limits=replace_reserve(facts.limits, bound[1]))
    reserve = facts.limits.reserve
    if bound is not None and bound[1] > reserve:
        sent = dialect.lower_bound(sent, bound[0], reserve)
    return facts, sent


_FRESH, _MODELS = 10.0, 1_000  # seconds that facts are cached, and for how many models


def build_facts(  # noqa: PLR0913 - whatever is known of a model
    model: str,
    *,
    window: int | None,
    reserve: int | None,
    policy: str | Policy,
    reported: "Reported | None" = None,
    tokenizer: Callable[[str], int] | None = None,
    base_url: Setting | None = None,
) -> Facts:
    """Build facts from the policy and from what user, server and catalogue say of a model.

    `base_url` is where it is asked: what runs on a machine of one's own costs nothing.
    """
    from foldline.models.catalog import resolve_model  # noqa: PLC0415 - a tenth of an import's time
    from foldline.models.servers import is_own_address  # noqa: PLC0415

    for what, said in (("window", window), ("reserve", reserve)):
        if said is not None and type(said) is not int:
            raise BadInput(f"{what}={said!r} is no number of tokens; give a whole number")
    preset = policy if isinstance(policy, Policy) else named(policy)
    found = resolve_model(model)
    size, source, most = found.window, found.source, found.max_input
    words: tuple[tuple[int | None, Source], ...] = (
        (reported.window if reported else None, "provider"),
        (window, "user"),
    )
    for said, whose in words:
        if said is not None and said > 0:
            # A larger window than the catalogue's: its other limit is outdated too.
            size, source, most = said, whose, most if said <= (found.window or 0) else None
    prices = found.prices
    if reported and reported.prices and (reported.prices.is_known or not prices.is_known):
        prices = reported.prices
    elif base_url and not prices.is_known and is_own_address(str(base_url)):
        prices = FREE
    limit = limits(
        size,
        reserve,
        source=source,
        max_input=most,
        step=prices.step,
        max_output=(reported.max_output if reported else None) or found.max_output,
        tokenizer=tokenizer,
        usual=preset.reserve,
        margin=preset.margin,
        threshold=preset.threshold,
        estimator=preset.estimator,
    )
    lifetime, binds = _find_cache_lifetime(model, prices), binds_thinking(model)
    return Facts(limit, preset, prices, lifetime=lifetime, binds_thinking=binds)


def _find_cache_lifetime(model: str, prices: Prices) -> float | None:
    """Find how many seconds a provider keeps a prompt, where prices alone do not show it."""
    is_newer_openai = "gpt-" in model and prices.w > 1  # the first that charge for writes
    return _OPENAI_LIFETIME if is_newer_openai else None


def remember_facts(build: Callable[[str], Facts]) -> Callable[[str], Facts]:
    """Return a function that caches the facts of models for seconds: a file may change them."""
    cached: dict[str, tuple[float, Facts]] = {}

    def facts_of(model: str) -> Facts:
        now = monotonic()
        since, facts = cached.get(model, (-_FRESH, None))
        if facts is None or now - since > _FRESH:
            facts = build(model)
            if len(cached) > _MODELS:
                cached.clear()
            cached[model] = (now, facts)
        return facts

    return facts_of


def of_session(model: str, settings: Mapping[str, Setting]) -> Facts:
    """Build the facts that a stored session's settings name."""
    window, reserve, policy = (settings.get(key) for key in ("window", "reserve", "policy"))
    return build_facts(
        model,
        window=cast("int | None", window),
        reserve=cast("int | None", reserve),
        policy=cast("str | None", policy) or "steady",
        base_url=settings.get("base_url"),
    )
