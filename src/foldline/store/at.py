"""Which store an address means.

    ":memory:", "talks.db"                SQLite
    "postgresql://host/database"          PostgreSQL, with the extra `pg`

Knows the kinds of addresses. Refuses to know what is there: each backend opens its own.
"""

import os

from foldline.errors import BadInput
from foldline.store.base import Store
from foldline.store.sqlite import SqliteStore

POSTGRES = ("postgresql://", "postgres://")
_SERVER = "://"


def without_secrets(address: str) -> str:
    """An address as a message may show it: of a server's, where it is and not who goes there."""
    kind, is_server, place = address.partition("?")[0].partition(_SERVER)
    if not is_server:
        return address
    where = place.rpartition("@")[2]
    return f"{'postgresql' if address.startswith(POSTGRES) else kind}{_SERVER}{where}"


def store_at(given: str | os.PathLike[str]) -> Store:
    """The store at an address; whoever opens it closes it."""
    address = os.fspath(given)
    if not address:
        raise BadInput("the store's address is empty; give a file's path, or ':memory:' for none")
    if not address.startswith(POSTGRES):
        if _SERVER in address:
            raise BadInput(
                f"no store for the address {without_secrets(address)!r}; give a file's path, "
                "':memory:', or a postgresql:// address"
            )
        return SqliteStore(address)
    try:
        from foldline.store.postgres import PostgresStore  # noqa: PLC0415 - an extra
    except ImportError as fault:
        raise BadInput(
            f"a PostgreSQL address needs the extra `pg`: pip install 'foldline[pg]' ({fault})"
        ) from fault
    return PostgresStore(address)
