"""A file's content → every setting in it by its name, checked, and all that is wrong with it.

Knows tables, names with dots, short forms, profiles. Refuses to stop at the first fault, and to
know places: a fault names its setting, and whoever read the file knows the line.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, cast

from foldline.settings import kinds, names, schema
from foldline.settings.kinds import Wrong, shown

PROFILES = "profiles."
_DEEP, _MANY = (
    12,
    5_000,
)  # tables in tables, and names: a file that has more was not written by hand
_TWICE = ("compact_threshold", "compaction.safety_ratio")


class SettingFault(NamedTuple):
    """What is wrong with a setting."""

    name: str
    told: str


def parted(name: str) -> tuple[str, str]:
    """The profile that a name belongs to, or "", and the setting's own name."""
    if not name.startswith(PROFILES):
        return "", name
    profile, _, own = name.removeprefix(PROFILES).partition(".")
    return profile, own


def checked(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[SettingFault]]:
    """The settings of a file, also those of its profiles, and what is wrong."""
    found: dict[str, Any] = {}
    faults: list[SettingFault] = []
    try:
        for name, value in _spread(cast("Mapping[Any, Any]", given), iter(range(_MANY))):
            try:
                _take(found, name, value)
            except Wrong as wrong:
                faults.append(SettingFault(name, str(wrong)))
    except Wrong as wrong:  # no more is looked at
        faults.append(SettingFault("", str(wrong)))
    faults += _both(found)
    return found, faults


def _take(found: dict[str, Any], name: str, value: Any) -> None:
    for own, one in _expanded(name, value).items():
        if own in found:
            raise Wrong(f"{own} is written twice; keep one")
        found[own] = _value(own, one)


def spoken(name: str, words: Any) -> dict[str, Any]:
    """A setting from a variable or a flag, in words or as it is; `Wrong` says what to write."""
    setting = names.find(schema.SHORT.get(name, name))
    if isinstance(words, str) and setting is not None:
        words = setting.kind.spoken(words)
    return {own: _value(own, value) for own, value in _expanded(name, words).items()}


def crossed(found: Mapping[str, Any]) -> list[SettingFault]:
    """What is wrong with settings beside each other: servers without an address or with two."""
    faults: list[SettingFault] = []
    for server in servers(found):
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


def servers(found: Collection[str]) -> list[str]:
    """The MCP servers that some settings name."""
    return slots(found, "mcp.servers.")


def slots(found: Collection[str], prefix: str) -> list[str]:
    """What stands in the free part of those names that begin so."""
    settings = [(own, names.find(own)) for own in found if own.startswith(prefix)]
    return [*dict.fromkeys(one.named(own) or "" for own, one in settings if one)]


def _spread(
    given: Mapping[Any, Any], left: Iterator[int], prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, Any]]:
    """Every name and its value, as long as any are left to be looked at."""
    for key, value in given.items():
        name = f"{prefix}{key}" if isinstance(key, str) else f"{prefix}{shown(key)}"
        if next(left, None) is None:
            raise Wrong(f"{name}: {_MANY:,} names stand before it; remove some")
        _, own = parted(name)
        if isinstance(value, Mapping) and names.find(own) is None and depth < _DEEP:
            yield from _spread(cast("Mapping[Any, Any]", value), left, f"{name}.", depth + 1)
        else:
            yield name, value


def _expanded(name: str, value: Any) -> dict[str, Any]:
    """A short form's settings; any other is itself."""
    _, own = parted(name)
    before = name.removesuffix(own)
    if own not in schema.SHORT:
        return {name: value}
    if not isinstance(value, str):
        raise Wrong(f"{name} = {shown(value)}: write it in quotes, or [{name}] and lines below it")
    whole = {f"{before}{schema.SHORT[own]}": value}
    return {f"{before}model.provider": "", **whole} if own == "model" else whole


def _value(name: str, value: Any) -> Any:
    profile, own = parted(name)
    setting = names.find(own)
    if setting is None or (profile and own == "profile"):
        raise Wrong(_unknown(name, own, profile))
    try:
        return setting.kind.read(value)
    except Wrong as wrong:
        hidden = setting.secret or setting.kind is kinds.KEY  # it may be the key itself
        said = "…" if hidden else shown(value)
        raise Wrong(f"{name} = {said}: {wrong}") from None


def _unknown(name: str, own: str, profile: str) -> str:
    told = f"there is no setting {shown(name)}"
    if profile and own == "profile":
        return f"{told}: a profile does not choose another; take it away"
    if own.rpartition(".")[2].lower() in names.KEYS:
        return (
            f"{told}, and no key stands in a file: put it into an environment variable, and write "
            'model.key_env = "THE_VARIABLES_NAME"'
        )
    below = [one.name for one in schema.KNOWN if one.name.startswith(f"{own}.")]
    if own in ("", "profiles") or below:
        some = f"{below[0].removeprefix(f'{own}.')} = …" if below else 'model = "…"'
        return f"{told}, it is a table: write [{name}], and below it lines like {some}"
    meant = names.near(own)
    if meant:
        return f"{told}; did you mean {name.removesuffix(own)}{meant}?"
    return f"{told}; `foldline config show` lists all"


def _both(found: Mapping[str, Any]) -> Iterator[SettingFault]:
    """Two names for one thing, in one place."""
    for name in found:
        _, own = parted(name)
        before = name.removesuffix(own)
        if own == _TWICE[1] and f"{before}{_TWICE[0]}" in found:
            told = f"{before}{_TWICE[0]} and {name} are two names for one thing; keep one"
            yield SettingFault(name, told)
