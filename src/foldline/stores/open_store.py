"""Open the store that an address names.

":memory:", "talks.db"                SQLite
"postgresql://host/database"          PostgreSQL, with the extra `pg`

With `FOLDLINE_ENCRYPT` in the environment, what is at rest is encrypted (`encryption`).
"""

import os
import shlex
import subprocess
from string import hexdigits

from foldline.errors import BadInput
from foldline.stores.base import POSTGRES, Store
from foldline.stores.sqlite import SqliteStore

ENCRYPT = "FOLDLINE_ENCRYPT"
_KEY_BYTES = 32
_COMMAND_SECONDS = 60.0


def store_at(given: str | os.PathLike[str]) -> Store:
    """Open the store at an address, encrypted if `FOLDLINE_ENCRYPT` is set; the caller closes it.

    The variable holds master keys, or a command that prints them: 64 hex digits each, separated by
    white space. The first encrypts; sessions of the others are still opened.
    """
    if not isinstance(given, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadInput(
            f"store={given!r}; give a file's path, ':memory:' or a postgresql:// address"
        )
    address = os.fspath(given)
    secret = os.environ.get(ENCRYPT)
    keys = [] if not secret or address == ":memory:" else _read_master_keys(secret)
    store = _open_plain_store(address)
    if not keys:
        return store
    from foldline.stores.encryption import CryptStore  # noqa: PLC0415 - few encrypt

    return CryptStore(store, keys[0], older=keys[1:])


def _open_plain_store(address: str) -> Store:
    if not address.startswith(POSTGRES):
        return SqliteStore(address)
    try:
        from foldline.stores.postgres import PostgresStore  # noqa: PLC0415 - an extra
    except ImportError as fault:
        raise BadInput(
            f"a PostgreSQL address needs the extra `pg`: pip install 'foldline[pg]' ({fault})"
        ) from fault
    return PostgresStore(address)


def _read_master_keys(secret: str) -> list[bytes]:
    """Decode keys, or run the command that prints them; no message holds either."""
    if not {*"".join(secret.split())} <= {*hexdigits}:
        try:
            secret = subprocess.run(  # noqa: S603 - the operator's own
                shlex.split(secret), stdout=subprocess.PIPE, check=True, text=True,
                timeout=_COMMAND_SECONDS,
            ).stdout  # fmt: skip
        except (OSError, ValueError, subprocess.SubprocessError) as fault:
            raise BadInput(
                f"the command in {ENCRYPT} failed ({type(fault).__name__}); it prints master keys"
            ) from None
    try:
        keys = [bytes.fromhex(one) for one in secret.split()]
    except ValueError:
        keys = []
    if not keys or {len(one) for one in keys} != {_KEY_BYTES}:
        raise BadInput(
            f"{ENCRYPT} holds no master keys: 64 hex digits, or a command that prints them; "
            "`openssl rand -hex 32` makes one"
        )
    return keys
