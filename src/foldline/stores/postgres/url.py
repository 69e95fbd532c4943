"""A PostgreSQL address: what libpq is told, and what is ours in it.

    postgresql://user@host/database?schema=foldline&pool=8

Knows our two parameters and takes them out. Refuses to know libpq's: they are handed
on as they are.
"""

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlencode

from foldline.errors import BadInput
from foldline.stores.url import POSTGRES, without_secrets

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_POOL = 8


@dataclass(frozen=True, slots=True)
class PostgresSchema:
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

    def put_in(self, text: str) -> bytes:
        """A statement of ours, in this schema; quoted, because a reserved word may be its name."""
        return text.replace("{schema}", f'"{self.schema}"').replace("{role}", self.role).encode()

    @property
    def shown(self) -> str:
        """The address as a message may show it."""
        return f"{without_secrets(self.address)} (schema {self.schema})"


def place(address: str) -> PostgresSchema:
    """Read an address."""
    if not address.startswith(POSTGRES):
        raise BadInput(f"no PostgreSQL address: {address!r}; it begins with {POSTGRES[0]!r}")
    base, _, query = address.partition("?")
    where = base.partition("://")[2]
    if where.count("@") > 1 or (":" in where and "@" not in where and "@" in query):
        raise BadInput(
            "where the password of this PostgreSQL address ends cannot be seen; "
            "an @ or ? in a name, password or parameter is written as %40 or %3F"
        )
    # libpq does not know a blank's other spelling, +, neither here nor there.
    given = [(key, unquote(value)) for key, _, value in map(_parted, query.split("&")) if key]
    ours = {key: value for key, value in given if key in ("schema", "pool")}
    rest = urlencode([(key, value) for key, value in given if key not in ours], quote_via=quote)
    schema, pool = ours.get("schema", "foldline"), ours.get("pool", str(_POOL))
    if not _NAME.fullmatch(schema):
        raise BadInput(f"schema={schema!r}: a small letter, then up to 39 more, digits or _")
    if not pool.isdecimal() or int(pool) < 1:
        raise BadInput(f"pool={pool!r}: how many connections this process may have, at least 1")
    return PostgresSchema(f"{base}?{rest}" if rest else base, schema, int(pool))


def _parted(parameter: str) -> tuple[str, str, str]:
    return parameter.partition("=")
