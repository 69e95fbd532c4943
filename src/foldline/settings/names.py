"""Names of settings: which setting one is, which variable sets it, what a wrong one was meant for.

Knows that a name may have a part of a person's own in it. Refuses to know values.
"""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import lru_cache

from foldline.settings.schema import KNOWN, PREFIX, SHORT, SLOT, Known

RESERVED = frozenset({"DEBUG", "LAWS", "MODELS", "PG", "PGBOUNCER", "SHARED", "TOKEN"})
"""Variables of ours that are no settings."""
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
"""Last words of names under which people write secrets; there is no such setting."""
_PLAIN = {one.name: one for one in KNOWN if SLOT not in one.name}
_SLOTTED = tuple(one for one in KNOWN if SLOT in one.name)


@lru_cache(maxsize=2_048)  # each is looked for several times
def find(name: str) -> Known | None:
    """The setting of a name; a free part of it may be anything."""
    return _PLAIN.get(name) or next((one for one in _SLOTTED if one.named(name)), None)


def setting(name: str) -> str | None:
    """The setting that a variable sets; a free part of it is in small letters."""
    small = name.removeprefix(PREFIX).lower()
    for one in KNOWN:
        before, slot, behind = one.name.replace(".", "__").partition(SLOT)
        if not slot and small == before:
            return one.name
        inside = small[len(before) : len(small) - len(behind)]
        if slot and inside and small.startswith(before) and small.endswith(behind):
            return one.name.replace(SLOT, inside)
    return small if small in SHORT else None


def near(name: str, others: Iterable[str] = ()) -> str | None:
    """What somebody may have meant."""
    if name in _ALIASES:
        return _ALIASES[name]
    last = _ALIASES.get(name.rpartition(".")[2])
    found = get_close_matches(name[:200], [*_candidates(name), *others], n=1, cutoff=0.6)
    return found[0] if found else last


def _candidates(name: str) -> Iterator[str]:
    """Every name, with what stands in this one's free part put into theirs."""
    for one in KNOWN:
        before, slot, behind = one.name.partition(SLOT)
        inside = name.removeprefix(before).partition(".")[0] if name.startswith(before) else ""
        yield f"{before}{inside or slot}{behind}"
