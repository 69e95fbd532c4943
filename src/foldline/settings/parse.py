"""Checks a file's content, and builds the typed settings and the policy from it.

All faults are collected, not only the first. A fault names its setting; the caller, who read the
file, adds the line.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, NamedTuple, cast

from foldline.core.budget import limits
from foldline.core.policy import Clipping, LineLimits, Masking, Policy, named
from foldline.settings import kinds, schema
from foldline.settings.gateway_tables import OF_TENANT, ON_STORE_FAILURE, TENANTS
from foldline.settings.kinds import (
    ApprovalSettings,
    InstructionSettings,
    Limit,
    ModelSettings,
    RetentionSettings,
    ServerSettings,
    Settings,
    ShellSettings,
    TelegramSettings,
    Wrong,
    format_setting_value,
)
from foldline.settings.schema import KNOWN, PREFIX, SHORT, SLOT, Known

RESERVED = frozenset({"DEBUG", "LAWS", "MODELS", "PG", "PGBOUNCER", "SHARED", "TOKEN"})
"""Our environment variables that are not settings."""
_ALIASES = {
    "window": "model.max_input_tokens",
    "context_window": "model.max_input_tokens",
    "max_tokens": "model.max_output_tokens",
    "api_base": "model.base_url",
    "url": "model.base_url",
    "summariser": "summarizer",
    "mcpServers": "mcp.servers.NAME.command",
}
KEYS = frozenset({"api_key", "apikey", "key", "token", "secret", "password", "auth_token"})
"""Last parts of names under which people write secrets; there is no such setting."""
_PLAIN = {one.name: one for one in KNOWN if SLOT not in one.name}
_SLOTTED = tuple(one for one in KNOWN if SLOT in one.name)


@lru_cache(maxsize=2_048)  # each name is looked up several times
def find_setting(name: str) -> Known | None:
    """Return the setting of a name; its slot may be anything."""
    return _PLAIN.get(name) or next((one for one in _SLOTTED if one.match_slot(name)), None)


def find_setting_by_variable(name: str) -> str | None:
    """Return the setting that a variable sets; its slot is in lower case."""
    small = name.removeprefix(PREFIX).lower()
    for one in KNOWN:
        before, slot, behind = one.name.replace(".", "__").partition(SLOT)
        if not slot and small == before:
            return one.name
        inside = small[len(before) : len(small) - len(behind)]
        if slot and inside and small.startswith(before) and small.endswith(behind):
            return one.name.replace(SLOT, inside)
    return small if small in SHORT else None


def guess_setting_name(name: str, others: Iterable[str] = ()) -> str | None:
    """Guess the setting that a wrong name meant."""
    if name in _ALIASES:
        return _ALIASES[name]
    last = _ALIASES.get(name.rpartition(".")[2])
    found = get_close_matches(name[:200], [*_iterate_candidates(name), *others], n=1, cutoff=0.6)
    return found[0] if found else last


def _iterate_candidates(name: str) -> Iterator[str]:
    """Yield every setting's name, with this name's slot put into theirs."""
    for one in KNOWN:
        before, slot, behind = one.name.partition(SLOT)
        inside = name.removeprefix(before).partition(".")[0] if name.startswith(before) else ""
        yield f"{before}{inside or slot}{behind}"


PROFILES = "profiles."
_DEEP, _MANY = 12, 5_000  # nested tables, and names: no file written by hand has more
_SHARES = ("compact_threshold", "compaction.safety_ratio")  # two names of one setting


class SettingFault(NamedTuple):
    """A setting's name and what is wrong with it."""

    name: str
    told: str


def split_profile(name: str) -> tuple[str, str]:
    """Split a name into its profile, or "", and the setting's own name."""
    if not name.startswith(PROFILES):
        return "", name
    profile, _, own = name.removeprefix(PROFILES).partition(".")
    return profile, own


def parse_settings(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[SettingFault]]:
    """Parse the settings of a file and its profiles; return values and faults."""
    found: dict[str, Any] = {}
    faults: list[SettingFault] = []
    try:
        for name, value in _iterate_settings(cast("Mapping[Any, Any]", given), iter(range(_MANY))):
            try:
                _add_setting(found, name, value)
            except Wrong as wrong:
                faults.append(SettingFault(name, str(wrong)))
    except Wrong as wrong:  # too many names: the rest is not read
        faults.append(SettingFault("", str(wrong)))
    faults += _iterate_duplicates(found)
    return found, faults


def _add_setting(found: dict[str, Any], name: str, value: Any) -> None:
    for own, one in _expand_short_form(name, value).items():
        if own in found:
            raise Wrong(f"{own} is written twice; keep one")
        found[own] = _check_value(own, one)


def parse_single_setting(name: str, words: Any) -> dict[str, Any]:
    """Parse the value of a variable or a flag, text or typed; raises `Wrong`."""
    setting = find_setting(schema.SHORT.get(name, name))
    if isinstance(words, str) and setting is not None:
        words = setting.kind.spoken(words)
    return {own: _check_value(own, value) for own, value in _expand_short_form(name, words).items()}


def list_server_faults(found: Mapping[str, Any]) -> list[SettingFault]:
    """List the faults of MCP servers without an address or with two."""
    faults: list[SettingFault] = []
    for server in list_slot_values(found, "mcp.servers."):
        name = f"mcp.servers.{server}"
        has = [part for part in ("command", "url") if f"{name}.{part}" in found]
        if not has:
            said = next(own for own in found if own.startswith(f"{name}."))
            told = f'{name} has no address: write {name}.command = ["PROGRAM"], or {name}.url'
            faults.append(SettingFault(said, told))
        elif len(has) > 1:
            told = f"{name} has a command and a url; keep one"
            faults.append(SettingFault(f"{name}.url", told))
    return faults


def list_threshold_faults(
    found: Mapping[str, Any], *, outranked: Collection[str] = ()
) -> list[SettingFault]:
    """List the fault of a fold threshold that the window and the reserve written beside it forbid.

    Where the window is known only later, a session's report warns of it.
    """
    heard = {name: value for name, value in found.items() if name not in outranked}
    model = build_model_settings(heard)
    name = _find_threshold_name(heard, model.provider)
    if name is None or model.max_input_tokens is None:
        return []
    policy = build_policy(heard, provider=model.provider)
    known = limits(
        model.max_input_tokens,
        model.max_output_tokens,
        usual=policy.reserve,
        margin=policy.margin,
        threshold=policy.threshold,
    )
    told = known.explain_threshold()
    return [SettingFault(name, f"{name} = {told}")] if told else []


def list_line_faults(found: Mapping[str, Any]) -> list[SettingFault]:
    """List the fault of lines that are to stay, if together they are more than the most lines."""
    limits = build_policy(found).clip.lines
    if limits.head + limits.tail <= limits.lines:
        return []
    names = [f"{_CONTEXT}tool_result_{end}_lines" for end in ("tail", "head")]
    name = next(name for name in names if name in found)
    told = f"{limits.head} first and {limits.tail} last lines are more than {limits.lines}"
    way = f"write fewer, or a larger {_CONTEXT}max_tool_result_lines"
    return [SettingFault(name, f"{name} = {found[name]}: {told}; {way}")]


def list_slot_values(found: Collection[str], prefix: str) -> list[str]:
    """List the slot values of the names with a prefix."""
    settings = [(own, find_setting(own)) for own in found if own.startswith(prefix)]
    return [*dict.fromkeys(one.match_slot(own) or "" for own, one in settings if one)]


def _iterate_settings(
    given: Mapping[Any, Any], left: Iterator[int], prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, Any]]:
    """Yield every name and its value; raises `Wrong` when `left` is exhausted."""
    for key, value in given.items():
        name = f"{prefix}{key}" if isinstance(key, str) else f"{prefix}{format_setting_value(key)}"
        if next(left, None) is None:
            raise Wrong(f"{name}: {_MANY:,} names stand before it; remove some")
        _, own = split_profile(name)
        if isinstance(value, Mapping) and find_setting(own) is None and depth < _DEEP:
            yield from _iterate_settings(
                cast("Mapping[Any, Any]", value), left, f"{name}.", depth + 1
            )
        else:
            yield name, value


def _expand_short_form(name: str, value: Any) -> dict[str, Any]:
    """Expand a short form to its settings; any other name stays."""
    _, own = split_profile(name)
    before = name.removesuffix(own)
    if own not in schema.SHORT:
        return {name: value}
    if not isinstance(value, str):
        raise Wrong(
            f"{name} = {format_setting_value(value)}: write it in quotes, or [{name}] and "
            f"lines below it"
        )
    whole = {f"{before}{schema.SHORT[own]}": value}
    return {f"{before}model.provider": "", **whole} if own == "model" else whole


def _check_value(name: str, value: Any) -> Any:
    profile, own = split_profile(name)
    setting = find_setting(own)
    if setting is None or (profile and own == "profile"):
        raise Wrong(_explain_unknown_name(name, own, profile))
    try:
        return setting.kind.read(value)
    except Wrong as wrong:
        hidden = setting.secret or setting.kind is kinds.KEY  # it may be the key itself
        said = "…" if hidden else format_setting_value(value)
        raise Wrong(f"{name} = {said}: {wrong}") from None


def _explain_unknown_name(name: str, own: str, profile: str) -> str:
    told = f"there is no setting {format_setting_value(name)}"
    if profile and own == "profile":
        return f"{told}: a profile does not choose another; take it away"
    if own.rpartition(".")[2].lower() in KEYS:
        return (
            f"{told}, and no key stands in a file: put it into an environment variable, and write "
            'model.key_env = "THE_VARIABLES_NAME"'
        )
    if own.startswith(TENANTS):
        return (
            f"{told}; a tenant's table has {', '.join(OF_TENANT)} and {ON_STORE_FAILURE}: put "
            "others into a profile, and name that here"
        )
    below = [one.name for one in schema.KNOWN if one.name.startswith(f"{own}.")]
    if own in ("", "profiles") or below:
        some = f"{below[0].removeprefix(f'{own}.')} = …" if below else 'model = "…"'
        return f"{told}, it is a table: write [{name}], and below it lines like {some}"
    meant = guess_setting_name(own)
    if meant:
        return f"{told}; did you mean {name.removesuffix(own)}{meant}?"
    return f"{told}; `foldline config show` lists all"


def _iterate_duplicates(found: Mapping[str, Any]) -> Iterator[SettingFault]:
    """Yield a fault for two names of one setting in the same place."""
    for name in found:
        _, own = split_profile(name)
        before = name.removesuffix(own)
        if own == _SHARES[1] and f"{before}{_SHARES[0]}" in found:
            told = f"{before}{_SHARES[0]} and {name} are two names for one thing; keep one"
            yield SettingFault(name, told)


_DEFAULTS = {one.name: one.default for one in KNOWN}
_CONTEXT = "session.context."
_SERVER = ("command", "env", "url", "headers", "trusted", "tools", "seconds")
_TELEGRAM = ("allowed", "admins", "sessions", "notices", "base_url", "webhook", "listen")


def build_settings(said: Mapping[str, Any], *, outranked: Collection[str] = ()) -> Settings:
    """Build typed settings from values; the policy ignores the `outranked` names."""

    def value_of(name: str) -> Any:
        return said.get(name, _DEFAULTS[name])

    model = build_model_settings(said)
    heard = {name: value for name, value in said.items() if name not in outranked}
    return Settings(
        policy=build_policy(heard, provider=model.provider),
        model=model,
        on_disconnect=value_of("session.on_disconnect"),
        max_tool_iterations=value_of("session.max_tool_iterations"),
        prompt_template=value_of("compaction.prompt_template"),
        summarizer=value_of("summarizer"),
        limits={
            whose: Limit(value_of(f"caps.{whose}.tokens"), value_of(f"caps.{whose}.dollars"))
            for whose in ("call", "turn", "session", "user", "day")
        },
        store=value_of("store"),
        tenant=value_of("tenant"),
        instructions=InstructionSettings(
            value_of("instructions.text"),
            value_of("instructions.max_tokens"),
            value_of("instructions.names"),
            value_of("instructions.roots"),
            value_of("instructions.memory"),
        ),
        approval=ApprovalSettings(
            value_of("approval.mode"), value_of("approval.allow"), value_of("approval.deny")
        ),
        shell=ShellSettings(value_of("shell.enabled"), value_of("shell.timeout")),
        servers=tuple(
            _build_server_settings(name, said) for name in list_slot_values(said, "mcp.servers.")
        ),
        telegram=TelegramSettings(**{one: value_of(f"telegram.{one}") for one in _TELEGRAM}),
        retention=RetentionSettings(
            **{one: value_of(f"retention.{one}") for one in ("days", "sessions", "every_hours")}
        ),
        profile=value_of("profile"),
        said=said,
        outranked=frozenset(outranked),
    )


def build_model_settings(said: Mapping[str, Any]) -> ModelSettings:
    """Build the settings of the model: its name with its provider, its limits, its address."""
    parts = (said.get("model.provider", ""), said.get("model.name", ""))
    name = "/".join(part for part in parts if part) or None
    return ModelSettings(
        name,
        name.partition("/")[0] if name and "/" in name else "",
        said.get("model.max_input_tokens"),
        said.get("model.max_output_tokens"),
        said.get("model.base_url"),
        said.get("model.key_env"),
    )


def _build_server_settings(name: str, said: Mapping[str, Any]) -> ServerSettings:
    names = {part: f"mcp.servers.{name}.{part}" for part in _SERVER}
    return ServerSettings(name, **{part: said[one] for part, one in names.items() if one in said})


def build_policy(said: Mapping[str, Any], *, provider: str = "") -> Policy:
    """Build the policy: the preset with the user's changes."""
    changed = _apply_clipping(named(said.get("policy", "steady")), said)
    first, last = (said.get(f"{_CONTEXT}tool_result_keep_{end}") for end in ("first", "last"))
    if first is not None or last is not None:
        own = changed.mask or Masking(first=0, last=0)
        mask = Masking(own.first if first is None else first, own.last if last is None else last)
        changed = replace(changed, mask=mask)
    names = {
        f"{_CONTEXT}max_history_tokens": "fill",
        "compaction.invocation_threshold": "turns",
    }
    zeroed = {field: said[name] or None for name, field in names.items() if name in said}
    changed = replace(changed, **zeroed)
    fields = {"compaction.overlap_size": "overlap", "estimator": "estimator"}
    changed = replace(
        changed, **{field: said[name] for name, field in fields.items() if name in said}
    )
    return _apply_start(_apply_thresholds(changed, said, provider), said)


def _apply_clipping(preset: Policy, said: Mapping[str, Any]) -> Policy:
    clip = _make_clipping(preset.clip, said, _CONTEXT)
    clips: dict[str, Clipping] = {**preset.clips}
    for tool in list_slot_values(said, "context.tools."):
        own = replace(preset, clip=clip).clipping(tool)
        clips[tool] = _make_clipping(own, said, f"context.tools.{tool}.")
    return replace(preset, clip=clip, clips=clips)


def _make_clipping(own: Clipping, said: Mapping[str, Any], before: str) -> Clipping:
    return Clipping(
        said.get(f"{before}max_tool_result_tokens", own.tokens),
        said.get(f"{before}tool_result_truncation", own.how),
        _make_line_limits(own.lines, said, before),
    )


def _make_line_limits(own: LineLimits, said: Mapping[str, Any], before: str) -> LineLimits:
    """Make the limits of cutting by lines; both ends are at most half where only that is set."""
    lines = said.get(f"{before}max_tool_result_lines", own.lines)
    head = said.get(f"{before}tool_result_head_lines", min(own.head, lines // 2))
    tail = said.get(f"{before}tool_result_tail_lines", min(own.tail, lines - head))
    return LineLimits(said.get(f"{before}max_tool_result_bytes", own.bytes), lines, head, tail)


def _apply_thresholds(changed: Policy, said: Mapping[str, Any], provider: str) -> Policy:
    """Apply the fold thresholds: a share, the provider's own first, and a token count."""
    name = _find_threshold_name(said, provider)
    if name is not None:
        changed = replace(changed, soft=said[name], soft_of="window")
    if "compaction.token_threshold" in said:
        most = said["compaction.token_threshold"]
        changed = replace(changed, soft=changed.soft or 1.0, soft_tokens=most)
    return changed


def _find_threshold_name(said: Mapping[str, Any], provider: str) -> str | None:
    """Find the name under which the share is set: the provider's own goes first."""
    names = (f"providers.{provider}.compact_threshold", *_SHARES)
    return next((name for name in names if name in said), None)


def _apply_start(changed: Policy, said: Mapping[str, Any]) -> Policy:
    """Apply who starts folds; without `auto`, folds that would pay are not looked for."""
    start = said.get("start", changed.start)
    if not said.get("compaction.enabled", True):
        start = "off"
    if start == changed.start:
        return changed
    changed = replace(changed, start=start, priced=changed.priced if start == "auto" else None)
    due = changed.soft, changed.turns, changed.fill
    if start == "ask" and due == (None, None, None):
        return replace(changed, soft=changed.warn)  # else the user would never be asked
    return changed
