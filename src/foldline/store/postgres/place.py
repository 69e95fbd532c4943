"""A PostgreSQL address: what libpq is told, and what is ours in it.

    postgresql://user@host/database?schema=foldline&pool=8

Knows our two parameters and takes them out. Refuses to know libpq's: they are handed
on as they are.
"""

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from foldline.errors import BadInput

SCHEMES = ("postgresql://", "postgres://")
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_POOL = 8


@dataclass(frozen=True, slots=True)
class Place:
    """A schema in a database."""

    address: str
    """As libpq takes it; it may hold a password, so it is in no message."""
    schema: str = "foldline"
    pool: int = _POOL
    """The most connections of one process. Appends take two of them, however many sessions there
    are: they are sent in batches."""

    @property
    def role(self) -> str:
        """The role that works there where the login could go round row-level security."""
        return f"{self.schema}_app"

    @property
    def shown(self) -> str:
        """The address as a message may show it."""
        where = self.address.partition("?")[0].partition("://")[2].rpartition("@")[2]
        return f"postgresql://{where} (schema {self.schema})"


def place(address: str) -> Place:
    """Read an address."""
    if not address.startswith(SCHEMES):
        raise BadInput(f"no PostgreSQL address: {address!r}; it begins with {SCHEMES[0]!r}")
    base, _, query = address.partition("?")
    given = parse_qsl(query, keep_blank_values=True)
    ours = {key: value for key, value in given if key in ("schema", "pool")}
    rest = urlencode([(key, value) for key, value in given if key not in ours])
    schema, pool = ours.get("schema", "foldline"), ours.get("pool", str(_POOL))
    if not _NAME.fullmatch(schema):
        raise BadInput(f"schema={schema!r}: a small letter, then up to 39 more, digits or _")
    if not pool.isdecimal() or int(pool) < 1:
        raise BadInput(f"pool={pool!r}: how many connections this process may have, at least 1")
    return Place(f"{base}?{rest}" if rest else base, schema, int(pool))
