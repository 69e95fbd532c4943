"""The settings by name, as the tree's fields say: `SETTINGS`.

`docs/reference/settings.md` is made from them.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache, lru_cache
from types import NoneType
from typing import Annotated, Any, NamedTuple, get_args, get_origin

from msgspec import Meta, ValidationError, convert, structs

from foldline.core.policy import Policy
from foldline.settings.kinds import (
    Kind,
    SettingError,
    make_choice_kind,
)
from foldline.settings.tree import OF_TENANT, SettingsTable, SettingsTree

SLOT = "NAME"
"""Placeholder in a setting's name for a name the user gives: a tool, a server, a provider."""
PREFIX = "FOLDLINE_"
SHORT = {"model": "model.name", "instructions": "instructions.text"}
"""Text allowed in place of a table: `model = "gpt-6.1-sol"` sets `model.name`."""
GATEWAY, TENANTS = "gateway.", "gateway.tenants."
CAPS = "caps."
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


@dataclass(frozen=True, slots=True)
class SettingField:
    """One setting."""

    name: str
    type: Any
    """Checks its values."""
    kind: Kind
    default: Any
    description: str
    guarded: bool = False
    """True if only a trusted file may set it."""
    secret: bool = False
    """Its values are never displayed."""
    policy: str = ""
    """The attribute of the policy with its default, like `clip.tokens`."""

    @property
    def env(self) -> str:
        """The environment variable that sets it: upper case, two underscores for a dot."""
        return variable_of(self.name)

    def match_slot(self, name: str) -> str | None:
        """Return the slot's value in a matching name, "" without a slot, None for no match."""
        before, slot, behind = self.name.partition(SLOT)
        if not slot:
            return "" if name == self.name else None
        inside = name[len(before) : len(name) - len(behind)]
        fits = name.startswith(before) and name.endswith(behind) and inside
        return inside if fits and len(name) > len(before) + len(behind) else None

    def check_value(self, value: Any) -> Any:
        """Return a file's value with its type; raises `SettingError`."""
        try:
            if self.kind.convert is not None:
                return self.kind.convert(value)
            return convert(value, self.type)
        except ValidationError:
            raise SettingError(self.kind.hint) from None

    def read_policy(self, policy: Policy) -> Any:
        """Return the default that a policy has."""
        found: Any = policy
        for part in self.policy.split("."):
            found = found and getattr(found, part)
        return found


def variable_of(name: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + name.replace(".", "__").upper()


class TreeField(NamedTuple):
    """A field of a table."""

    attribute: str
    name: str
    """Its name in a file."""
    base: Any
    """Its type without annotations."""
    annotations: tuple[Any, ...]
    default: Any
    table: type[SettingsTable] | None = None
    """The table that it is."""
    slot: str = ""
    """Not empty if users choose the names of such tables."""


@cache
def list_fields(table: type[SettingsTable]) -> tuple[TreeField, ...]:
    """List the fields of a table."""
    found: list[TreeField] = []
    for one in structs.fields(table):
        is_annotated = get_origin(one.type) is Annotated
        base, *annotations = get_args(one.type) if is_annotated else (one.type,)
        slot = f"{SLOT}." if get_origin(base) is dict else ""
        inner: Any = get_args(base)[1] if slot else base
        inner = inner if isinstance(inner, type) and issubclass(inner, SettingsTable) else None
        names = one.name, one.encode_name
        found.append(TreeField(*names, base, tuple(annotations), one.default, inner, slot))
    return tuple(found)


def iterate_settings(
    table: type[SettingsTable], prefix: str = "", subject: str = ""
) -> Iterator[SettingField]:
    """Yield the settings of a table; `subject` replaces the … in their descriptions."""
    for one in list_fields(table):
        about: Any
        *kinds, about = one.annotations or (Meta(description=""),)
        name = f"{prefix}{one.name}"
        if one.table is not None:
            yield from iterate_settings(one.table, f"{name}.{one.slot}", about.description)
            continue
        base = value_type = get_args(one.base)[0] if NoneType in get_args(one.base) else one.base
        if value_type is one.base and kinds:
            value_type = Annotated[base, *kinds]
        kinds = [part for part in (*get_args(base), *kinds) if isinstance(part, Kind)]
        yield SettingField(
            name,
            value_type,
            kinds[-1] if kinds else make_choice_kind(*get_args(base)),
            one.default,
            about.description.replace("…", subject),
            **about.extra,
        )


def _iterate_tenant_fields(found: Collection[SettingField]) -> Iterator[SettingField]:
    """Yield the settings of `[gateway.tenants.NAME]`, made from those for everybody."""
    general = {one.name: one for one in found}
    for name in OF_TENANT:
        yield replace(
            general[name],
            name=f"{TENANTS}{SLOT}.{name.removeprefix(GATEWAY)}",
            default=None,
            description=f"`{name}` for this tenant alone",
            guarded=True,
            policy="",
        )


_GENERAL = tuple(iterate_settings(SettingsTree))
SETTINGS: tuple[SettingField, ...] = (*_GENERAL, *_iterate_tenant_fields(_GENERAL))
_PLAIN = {one.name: one for one in SETTINGS if SLOT not in one.name}
_SLOTTED = tuple(one for one in SETTINGS if SLOT in one.name)


@lru_cache(maxsize=2_048)  # each name is looked up several times
def find_setting(name: str) -> SettingField | None:
    """Return the setting of a name; its slot may be anything."""
    return _PLAIN.get(name) or next((one for one in _SLOTTED if one.match_slot(name)), None)


def find_setting_by_variable(name: str) -> str | None:
    """Return the setting that a variable sets; its slot is in lower case."""
    small = name.removeprefix(PREFIX).lower()
    for one in SETTINGS:
        variable = replace(one, name=one.name.replace(".", "__"))
        slot = variable.match_slot(small)
        if slot is not None:
            return one.name.replace(SLOT, slot)
    return small if small in SHORT else None


def list_slot_values(names: Iterable[str], prefix: str) -> list[str]:
    """List the slot values of the names with a prefix."""
    settings = [(own, find_setting(own)) for own in names if own.startswith(prefix)]
    return [*dict.fromkeys(one.match_slot(own) or "" for own, one in settings if one)]


def guess_setting_name(name: str, others: Iterable[str] = ()) -> str | None:
    """Guess the setting that a wrong name meant."""
    if name in _ALIASES:
        return _ALIASES[name]
    candidates = [*(_fill_slot(one.name, name) for one in SETTINGS), *others]
    found = get_close_matches(name[:200], candidates, n=1, cutoff=0.6)
    return found[0] if found else _ALIASES.get(name.rpartition(".")[2])


def _fill_slot(pattern: str, name: str) -> str:
    """Put what `name` has in the place of the slot into it."""
    before, slot, behind = pattern.partition(SLOT)
    inside = name[len(before) :].partition(".")[0] if name.startswith(before) else ""
    return f"{before}{inside or slot}{behind}" if slot else pattern
