"""Parses a PostgreSQL address: our two parameters, and the rest for libpq.

postgresql://user@host/database?schema=foldline&pool=8
"""

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlencode

from foldline.errors import BadInput
from foldline.stores.base import POSTGRES, without_secrets

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_POOL = 8


@dataclass(frozen=True, slots=True)
class PostgresSchema:
    """A schema in a database."""

    address: str
    """For libpq; it may hold a password, so no message shows it."""
    schema: str = "foldline"
    pool: int = _POOL
    """The most connections of one process. Appends use two of them for any number of sessions,
    since they are sent in batches."""

    @property
    def role(self) -> str:
        """The role to take if the login bypasses row-level security."""
        return f"{self.schema}_app"

    @property
    def reader(self) -> str:
        """The role of programs that only read."""
        return f"{self.schema}_reader"

    def put_in(self, text: str) -> bytes:
        """Put the schema's name into a statement, quoted: it may be a reserved word."""
        return text.replace("{schema}", f'"{self.schema}"').replace("{role}", self.role).encode()

    @property
    def shown(self) -> str:
        """The address as a message may show it."""
        return f"{without_secrets(self.address)} (schema {self.schema})"


def parse_postgres_url(address: str) -> PostgresSchema:
    """Parse an address; raises `BadInput`."""
    if not address.startswith(POSTGRES):
        raise BadInput(f"no PostgreSQL address: {address!r}; it begins with {POSTGRES[0]!r}")
    base, _, query = address.partition("?")
    where = base.partition("://")[2]
    if where.count("@") > 1 or (":" in where and "@" not in where and "@" in query):
        raise BadInput(
            "where the password of this PostgreSQL address ends cannot be seen; "
            "an @ or ? in a name, password or parameter is written as %40 or %3F"
        )
    # Not parse_qsl: libpq does not read + as a space.
    pairs = (parameter.partition("=") for parameter in query.split("&"))
    parameters = [(key, unquote(value)) for key, _, value in pairs if key]
    ours = {key: value for key, value in parameters if key in ("schema", "pool")}
    rest = urlencode(
        [(key, value) for key, value in parameters if key not in ours], quote_via=quote
    )
    schema, pool = ours.get("schema", "foldline"), ours.get("pool", str(_POOL))
    if not _NAME.fullmatch(schema):
        raise BadInput(f"schema={schema!r}: a small letter, then up to 39 more, digits or _")
    if not pool.isdecimal() or int(pool) < 1:
        raise BadInput(f"pool={pool!r}: how many connections this process may have, at least 1")
    return PostgresSchema(f"{base}?{rest}" if rest else base, schema, int(pool))
