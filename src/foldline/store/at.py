"""Which store an address means.

    ":memory:", "talks.db"                SQLite
    "postgresql://host/database"          PostgreSQL, with the extra `pg`

Knows the kinds of addresses. Refuses to know what is there: each backend opens its own.
"""

from foldline.errors import BadInput
from foldline.store.base import Store
from foldline.store.sqlite import SqliteStore

POSTGRES = ("postgresql://", "postgres://")


def without_secrets(address: str) -> str:
    """An address as a message may show it: of a server's, where it is and not who goes there."""
    if not address.startswith(POSTGRES):
        return address
    where = address.partition("?")[0].partition("://")[2].rpartition("@")[2]
    return f"postgresql://{where}"


def store_at(address: str) -> Store:
    """The store at an address; whoever opens it closes it."""
    if not address.startswith(POSTGRES):
        return SqliteStore(address)
    try:
        from foldline.store.postgres import PostgresStore  # noqa: PLC0415 - an extra
    except ImportError as fault:
        raise BadInput(
            f"a PostgreSQL address needs the extra `pg`: pip install 'foldline[pg]' ({fault})"
        ) from fault
    return PostgresStore(address)
