"""Checks a file's content, and builds the typed settings and the policy from it.

All faults are collected, not only the first. A fault names its setting; the caller, who read the
file, adds the line.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar, cast

from msgspec import structs

from foldline.core.budget import limits
from foldline.core.policy import Clipping, LineLimits, Masking, Policy, named
from foldline.settings.fields import (
    GATEWAY,
    SETTINGS,
    SHORT,
    TENANTS,
    find_setting,
    guess_setting_name,
    list_fields,
    list_slot_values,
)
from foldline.settings.kinds import SettingError, format_setting_value
from foldline.settings.tree import OF_TENANT, ModelSettings, Settings, SettingsTable, SettingsTree

KEYS = frozenset({"api_key", "apikey", "key", "token", "secret", "password", "auth_token"})
"""Last parts of names under which people write secrets; there is no such setting."""
PROFILES = "profiles."
_DEEP, _MANY = 12, 5_000  # nested tables, and names: no file written by hand has more
_SHARES = ("compact_threshold", "compaction.safety_ratio")  # two names of one setting
_CONTEXT = "session.context."
_COMPUTED = ("start", "soft", "soft_tokens", "reserve")  # of the policy: from several settings
_POLICY_FIELDS = [
    one for one in SETTINGS if one.policy.isidentifier() and one.policy not in _COMPUTED
]
_ZERO_IS_NONE = ("fill", "turns")
_TableT = TypeVar("_TableT", bound=SettingsTable)


class SettingFault(NamedTuple):
    """A setting's name and what is wrong with it."""

    name: str
    message: str


def split_profile(name: str) -> tuple[str, str]:
    """Split a name into its profile, or "", and the setting's own name."""
    if not name.startswith(PROFILES):
        return "", name
    profile, _, own = name.removeprefix(PROFILES).partition(".")
    return profile, own


def parse_settings(content: Mapping[str, Any]) -> tuple[dict[str, Any], list[SettingFault]]:
    """Parse the settings of a file and its profiles; return values and faults."""
    found: dict[str, Any] = {}
    faults: list[SettingFault] = []
    try:
        for name, value in _iterate_values(content, iter(range(_MANY))):
            try:
                _add_setting(found, name, value)
            except SettingError as fault:
                faults.append(SettingFault(name, str(fault)))
    except SettingError as fault:  # too many names: the rest is not read
        faults.append(SettingFault("", str(fault)))
    for name in found:
        other = f"{name.removesuffix(_SHARES[1])}{_SHARES[0]}"
        if split_profile(name)[1] == _SHARES[1] and other in found:
            message = f"{other} and {name} are two names for one thing; keep one"
            faults.append(SettingFault(name, message))
    return found, faults


def _add_setting(found: dict[str, Any], name: str, value: Any) -> None:
    for own, one in _expand_short_form(name, value).items():
        if own in found:
            raise SettingError(f"{own} is written twice; keep one")
        found[own] = _check_value(own, one)


def parse_single_setting(name: str, value: Any) -> dict[str, Any]:
    """Parse the value of a variable or a flag, text or typed; raises `SettingError`."""
    setting = find_setting(SHORT.get(name, name))
    if isinstance(value, str) and setting is not None:
        value = setting.kind.parse(value)
    return {own: _check_value(own, one) for own, one in _expand_short_form(name, value).items()}


def list_faults(found: Mapping[str, Any], *, outranked: Collection[str] = ()) -> list[SettingFault]:
    """List the faults of settings that do not go together."""
    return [
        *_iterate_server_faults(found),
        *_iterate_line_faults(found),
        *_iterate_threshold_faults(
            {name: value for name, value in found.items() if name not in outranked}
        ),
    ]


def _iterate_server_faults(found: Mapping[str, Any]) -> Iterator[SettingFault]:
    """Yield the faults of MCP servers without an address or with two."""
    for server in list_slot_values(found, "mcp.servers."):
        name = f"mcp.servers.{server}"
        addresses = [part for part in ("command", "url") if f"{name}.{part}" in found]
        if not addresses:
            first = next(own for own in found if own.startswith(f"{name}."))
            message = f'{name} has no address: write {name}.command = ["PROGRAM"], or {name}.url'
            yield SettingFault(first, message)
        elif len(addresses) > 1:
            yield SettingFault(f"{name}.url", f"{name} has a command and a url; keep one")


def _iterate_threshold_faults(found: Mapping[str, Any]) -> Iterator[SettingFault]:
    """Yield the fault of a fold threshold that the model's window and reserve forbid.

    If the window is known only later, a session's report warns of it.
    """
    model = _build_model(found)
    name = _find_threshold_name(found, model.provider)
    if name is None or model.max_input_tokens is None:
        return
    policy = build_policy(found, provider=model.provider)
    known = limits(
        model.max_input_tokens,
        model.max_output_tokens,
        usual=policy.reserve,
        margin=policy.margin,
        threshold=policy.threshold,
    )
    if why := known.explain_threshold():
        yield SettingFault(name, f"{name} = {why}")


def _iterate_line_faults(found: Mapping[str, Any]) -> Iterator[SettingFault]:
    """Yield the fault of more head and tail lines than a result may have lines."""
    limits = build_policy(found).clip.lines
    if limits.head + limits.tail > limits.lines:
        names = [f"{_CONTEXT}tool_result_{end}_lines" for end in ("tail", "head")]
        name = next(name for name in names if name in found)
        message = (
            f"{name} = {found[name]}: {limits.head} first and {limits.tail} last lines are more "
            f"than {limits.lines}; write fewer, or a larger {_CONTEXT}max_tool_result_lines"
        )
        yield SettingFault(name, message)


def _iterate_values(
    content: Mapping[Any, Any], left: Iterator[int], prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, Any]]:
    """Yield every name and its value; raises `SettingError` when `left` is exhausted."""
    for key, value in content.items():
        name = f"{prefix}{key}" if isinstance(key, str) else f"{prefix}{format_setting_value(key)}"
        if next(left, None) is None:
            raise SettingError(f"{name}: there are {_MANY:,} names before it; remove some")
        is_table = isinstance(value, Mapping) and find_setting(split_profile(name)[1]) is None
        if is_table and depth < _DEEP:
            table = cast("Mapping[Any, Any]", value)
            yield from _iterate_values(table, left, f"{name}.", depth + 1)
        else:
            yield name, value


def _expand_short_form(name: str, value: Any) -> dict[str, Any]:
    """Expand a short form to its settings; any other name stays."""
    _, own = split_profile(name)
    if own not in SHORT:
        return {name: value}
    if not isinstance(value, str):
        raise SettingError(
            f"{name} = {format_setting_value(value)}: write it in quotes, or [{name}] and "
            f"lines below it"
        )
    before = name.removesuffix(own)
    whole = {f"{before}{SHORT[own]}": value}
    return {f"{before}model.provider": "", **whole} if own == "model" else whole


def _check_value(name: str, value: Any) -> Any:
    profile, own = split_profile(name)
    setting = find_setting(own)
    if setting is None or (profile and own == "profile"):
        raise SettingError(_explain_unknown_name(name, own, profile))
    try:
        return setting.check_value(value)
    except SettingError as fault:
        hidden = setting.secret or own == "model.key_env"  # it may be the key itself
        shown = "…" if hidden else format_setting_value(value)
        raise SettingError(f"{name} = {shown}: {fault}") from None


def _explain_unknown_name(name: str, own: str, profile: str) -> str:
    message = f"there is no setting {format_setting_value(name)}"
    if profile and own == "profile":
        return f"{message}: a profile does not choose another; take it away"
    if own.rpartition(".")[2].lower() in KEYS:
        return (
            f"{message}, and a file never holds a key: put it into an environment variable, and "
            'write model.key_env = "THE_VARIABLES_NAME"'
        )
    if own.startswith(TENANTS):
        names = ", ".join(one.removeprefix(GATEWAY) for one in OF_TENANT)
        way = "put others into a profile, and name that here"
        return f"{message}; a tenant's table has {names}: {way}"
    below = [one.name for one in SETTINGS if one.name.startswith(f"{own}.")]
    if own in ("", "profiles") or below:
        some = f"{below[0].removeprefix(f'{own}.')} = …" if below else 'model = "…"'
        return f"{message}, it is a table: write [{name}], and below it lines like {some}"
    meant = guess_setting_name(own)
    if meant:
        return f"{message}; did you mean {name.removesuffix(own)}{meant}?"
    return f"{message}; `foldline config show` lists all"


def build_settings(values: Mapping[str, Any], *, outranked: Collection[str] = ()) -> Settings:
    """Build typed settings from values; the policy ignores the `outranked` names."""
    model = _build_model(values)
    counted = {name: value for name, value in values.items() if name not in outranked}
    built: dict[str, Any] = structs.asdict(_build_table(SettingsTree, values))
    built |= {"model": model, "policy": build_policy(counted, provider=model.provider)}
    return Settings(**built, values=values, outranked=frozenset(outranked))


def _build_table(table: type[_TableT], values: Mapping[str, Any], prefix: str = "") -> _TableT:
    """Build a table from values by name; the other fields have their defaults."""
    built: dict[str, Any] = {}
    for one in list_fields(table):
        name = f"{prefix}{one.name}"
        if one.table is None:
            built |= {one.attribute: values[name]} if name in values else {}
        elif one.slot:
            tables = {
                key: _build_table(one.table, values, f"{name}.{key}.")
                for key in list_slot_values(values, f"{name}.")
            }
            built[one.attribute] = tables
        else:
            built[one.attribute] = _build_table(one.table, values, f"{name}.")
    return table(**built)


def _build_model(values: Mapping[str, Any]) -> ModelSettings:
    """Build the settings of the model; its name has its provider."""
    said = _build_table(ModelSettings, values, "model.")
    name = "/".join(filter(None, (said.provider, said.name))) or None
    provider = name.partition("/")[0] if name and "/" in name else ""
    return structs.replace(said, name=name, provider=provider)


def build_policy(values: Mapping[str, Any], *, provider: str = "") -> Policy:
    """Build the policy: the preset with the user's changes."""
    policy = _apply_clipping(named(values.get("policy", "steady")), values)
    own = policy.mask or Masking(first=0, last=0)
    first, last = (values.get(f"{_CONTEXT}tool_result_keep_{end}") for end in ("first", "last"))
    if first is not None or last is not None:
        mask = Masking(own.first if first is None else first, own.last if last is None else last)
        policy = replace(policy, mask=mask)
    for one in _POLICY_FIELDS:
        if one.name in values:
            value = values[one.name]
            zero = value == 0 and one.policy in _ZERO_IS_NONE
            policy = replace(policy, **{one.policy: None if zero else value})
    name = _find_threshold_name(values, provider)
    if name is not None:
        policy = replace(policy, soft=values[name], soft_of="window")
    if "compaction.token_threshold" in values:
        most = values["compaction.token_threshold"]
        policy = replace(policy, soft=policy.soft or 1.0, soft_tokens=most)
    return _apply_start(policy, values)


def _apply_clipping(preset: Policy, values: Mapping[str, Any]) -> Policy:
    clip = _make_clipping(preset.clip, values, _CONTEXT)
    clips: dict[str, Clipping] = {**preset.clips}
    for tool in list_slot_values(values, "context.tools."):
        own = replace(preset, clip=clip).clipping(tool)
        clips[tool] = _make_clipping(own, values, f"context.tools.{tool}.")
    return replace(preset, clip=clip, clips=clips)


def _make_clipping(own: Clipping, values: Mapping[str, Any], before: str) -> Clipping:
    """Make the clipping of a table; head and tail are at most half of its lines by default."""
    most = values.get(f"{before}max_tool_result_lines", own.lines.lines)
    head = values.get(f"{before}tool_result_head_lines", min(own.lines.head, most // 2))
    tail = values.get(f"{before}tool_result_tail_lines", min(own.lines.tail, most - head))
    size = values.get(f"{before}max_tool_result_bytes", own.lines.bytes)
    return Clipping(
        values.get(f"{before}max_tool_result_tokens", own.tokens),
        values.get(f"{before}tool_result_truncation", own.how),
        LineLimits(size, most, head, tail),
    )


def _find_threshold_name(values: Mapping[str, Any], provider: str) -> str | None:
    """Find the name under which the share is set: the provider's own goes first."""
    names = (f"providers.{provider}.compact_threshold", *_SHARES)
    return next((name for name in names if name in values), None)


def _apply_start(policy: Policy, values: Mapping[str, Any]) -> Policy:
    """Apply who starts folds; without `auto`, folds that would pay are not looked for."""
    start = values.get("start", policy.start)
    if not values.get("compaction.enabled", True):
        start = "off"
    if start == policy.start:
        return policy
    policy = replace(policy, start=start, priced=policy.priced if start == "auto" else None)
    due = policy.soft, policy.turns, policy.fill
    if start == "ask" and due == (None, None, None):
        return replace(policy, soft=policy.warn)  # else the user would never be asked
    return policy
