"""Open the store that an address names.

":memory:", "talks.db"                SQLite
"postgresql://host/database"          PostgreSQL, with the extra `pg`
"""

import os

from foldline.errors import BadInput
from foldline.stores.base import POSTGRES, Store
from foldline.stores.sqlite import SqliteStore


def store_at(given: str | os.PathLike[str]) -> Store:
    """Open the store at an address; the caller closes it."""
    if not isinstance(given, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadInput(
            f"store={given!r}; give a file's path, ':memory:' or a postgresql:// address"
        )
    address = os.fspath(given)
    if not address.startswith(POSTGRES):
        return SqliteStore(address)
    try:
        from foldline.stores.postgres import PostgresStore  # noqa: PLC0415 - an extra
    except ImportError as fault:
        raise BadInput(
            f"a PostgreSQL address needs the extra `pg`: pip install 'foldline[pg]' ({fault})"
        ) from fault
    return PostgresStore(address)
